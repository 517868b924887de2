//! What a table's word stands for, and where in the table it lies.
//!
//! A position is a part of a hash. The keyspace hashes keys with a seed of its
//! own; the members of collections share one hash for the whole process, so that
//! a member hashed once can be looked up in several sets.

#![allow(unsafe_code)] // Declares what the owners of blocks promise.

use super::secret::{SecretHasher, SecretKey};
use super::segment::Words;
use std::sync::LazyLock;

/// The handle of a heap block that a table owns. Copying the handle does not copy
/// the block.
///
/// # Safety
/// The block's address must be a multiple of 16 and below 2^47, and `from_address`
/// must give the handle back that `address` was called on.
pub unsafe trait Handle: Copy {
    /// How its tables keep their words: [`OwnWords`](super::OwnWords) or [`SharedWords`](super::SharedWords).
    type Words: Words;

    /// Where the block lies.
    fn address(self) -> u64;

    /// The handle of the block at an address.
    ///
    /// # Safety
    /// The address must have come from [`Handle::address`], and the block be live.
    unsafe fn from_address(address: u64) -> Self;

    /// Frees the block.
    ///
    /// # Safety
    /// The caller owns the block, and nothing may use it or its handles afterwards.
    unsafe fn free(self);
}

/// Where in its table a block lies: 48 bits of a hash. Tables keep their words in
/// the order of positions and scans follow it, so that neither growth nor
/// shrinking changes the order of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position(pub u64);

/// How many bits a position has.
pub const POSITION_BITS: u32 = 48;

impl Position {
    /// The upper bits of a hash.
    #[inline]
    pub const fn from_hash(hash: u64) -> Position {
        Position(hash >> (64 - POSITION_BITS))
    }

    /// The position where a scan goes on whose cursor a client gives back; any number will do.
    #[inline]
    pub const fn from_cursor(cursor: u64) -> Position {
        Position(cursor & ((1 << POSITION_BITS) - 1))
    }
}

/// One secret key for all collections of the process, so that nobody can choose
/// members that collide.
static HASH: LazyLock<SecretHasher> = LazyLock::new(|| SecretHasher::new(SecretKey::from_entropy()));

/// The position of a member, field or element in any collection's table. It differs
/// from one run of the program to the next.
#[inline]
pub fn position_of(bytes: &[u8]) -> Position {
    Position::from_hash(HASH.hash(bytes))
}
