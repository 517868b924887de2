//! What a block says of its residence: where on disk the same object lies, whether a copy is on its way there, whether an older
//! version may be there, and how often it was used of late.

#![allow(unsafe_code)] // Frees the block that another takes the place of; fuzzed by tests/fuzz.rs.

use super::{
    Block, CLOCK_MASK, EXPIRES_AT, HAS_AT, IS_LEAVING, KEY_LEN, KIND_MASK, KIND_SHIFT, Kind, META, NOWHERE,
    Object, Parts, SHADOWING, USES_MAX, USES_SHIFT, VALUE_LEN, VALUE_LEN_MASK, allocate, at_offset,
    block_bytes, key_offset,
};
use std::marker::PhantomData;
use sys::memory::size_class;
use value::collection::Form;
use value::table::Handle;

/// How a value lay in its block, for who puts it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    /// A 64-bit integer.
    Int,
    /// A string as it was set.
    Whole,
    /// A string that was edited.
    Edited,
    /// A collection in its compact encoding.
    Compact(Form),
    /// Any other collection.
    Native,
}

impl Stored {
    /// Takes apart what [`Object::stored_meta`] has made: also the access clock. None: that is not what it is.
    pub(crate) fn from_meta(meta: u32) -> Option<(Stored, u32)> {
        let kind = Kind::from_number((meta & KIND_MASK) >> KIND_SHIFT)?;
        let stored = match kind {
            Kind::Int => Stored::Int,
            Kind::Embstr => Stored::Whole,
            Kind::Raw | Kind::Boxed => Stored::Edited,
            Kind::Native => Stored::Native,
            kind => Stored::Compact(kind.form()?),
        };
        (meta >> (KIND_SHIFT + 4) == 0).then_some((stored, meta & CLOCK_MASK))
    }
}

impl Block {
    /// The same object in a block that says where on disk it lies.
    pub(crate) fn placed(self, at: u32) -> Block {
        debug_assert!(!self.has_at() && !self.is_shadowing());
        if self.settle(at) {
            return self;
        }
        let object = Object { block: self, lifetime: PhantomData };
        let (key, expires_at, value_len) = (object.key(), object.expires_at(), self.value_len());
        let parts = Parts { expiry: expires_at.is_some(), at: true };
        let block = Block(allocate(block_bytes(key.len(), value_len, parts)));
        block.put_u32(META, self.meta() & !IS_LEAVING | HAS_AT);
        block.put_u32(KEY_LEN, self.get_u32(KEY_LEN));
        block.put_u32(VALUE_LEN, self.get_u32(VALUE_LEN));
        if let Some(expires_at) = expires_at {
            block.put_u64(EXPIRES_AT, expires_at.0);
        }
        block.put_u32(at_offset(parts.expiry), at);
        block.put_bytes(key_offset(parts), key);
        block.put_bytes(block.value_offset(), self.value_bytes());
        self.give_up_value();
        // SAFETY: the caller has given this block up, and nothing that it owned is its own any more.
        unsafe { self.free() }
        block
    }

    /// The same object in another block.
    pub(crate) fn relocated(self) -> Block {
        let block = Block(allocate(self.capacity()));
        // SAFETY: both have this capacity, and the new one is nobody else's.
        unsafe { block.0.copy_from_nonoverlapping(self.0, self.capacity()) };
        self.give_up_value();
        // SAFETY: as in `placed`.
        unsafe { self.free() }
        block
    }

    /// Where on disk the same object lies.
    #[inline]
    pub(crate) fn at(self) -> Option<u32> {
        if !self.has_at() {
            return None;
        }
        Some(self.get_u32(at_offset(self.has_expiry()))).filter(|at| *at != NOWHERE)
    }

    /// Notes that a copy has reached the disk. False: there is no room for where it lies (see [`Block::placed`]).
    pub(crate) fn settle(self, at: u32) -> bool {
        let has_room = self.has_at() || self.make_room_for_at();
        if has_room {
            self.put_u32(at_offset(self.has_expiry()), at);
            self.set_leaving(false);
        }
        has_room
    }

    /// Moves key and value up in the block, if its size class has room for that.
    fn make_room_for_at(self) -> bool {
        let (expiry, key_len) = (self.has_expiry(), self.get_u32(KEY_LEN) as usize);
        let [from, to] = [false, true].map(|at| key_offset(Parts { expiry, at }));
        let bytes = key_len + self.value_len();
        let has_room = size_class(to + bytes) == self.capacity();
        if has_room {
            // SAFETY: both stretches lie within the block, whose capacity is that of its contents with the room.
            unsafe { self.0.add(to).copy_from(self.0.add(from), bytes) };
            self.set_meta(self.meta() | HAS_AT);
        }
        has_room
    }

    /// Notes that the same object lies elsewhere on disk now.
    pub(crate) fn move_at(self, at: u32) {
        debug_assert!(self.at().is_some());
        self.put_u32(at_offset(self.has_expiry()), at);
    }

    /// Notes that the object is about to change: nothing on disk is like it from now on.
    #[inline]
    pub(crate) fn soil(self) {
        if self.meta() & (HAS_AT | IS_LEAVING) == 0 {
            return;
        }
        if self.has_at() {
            self.put_u32(at_offset(self.has_expiry()), NOWHERE);
        }
        self.set_meta(self.meta() & !IS_LEAVING);
    }

    /// Whether a copy of the object, as it is now, is on its way to the disk.
    pub(crate) fn is_leaving(self) -> bool {
        self.meta() & IS_LEAVING != 0
    }

    /// Sets what [`Block::is_leaving`] says.
    pub(crate) fn set_leaving(self, leaving: bool) {
        let flag = if leaving { IS_LEAVING } else { 0 };
        self.set_meta(self.meta() & !IS_LEAVING | flag);
    }

    /// Whether a cold word of the same table that looks like this object may be an older version's of it.
    #[inline]
    pub(crate) fn is_shadowing(self) -> bool {
        self.get_u32(VALUE_LEN) & SHADOWING != 0
    }

    /// Sets what [`Block::is_shadowing`] says.
    #[inline]
    pub(crate) fn set_shadowing(self, shadowing: bool) {
        let flag = if shadowing { SHADOWING } else { 0 };
        self.put_u32(VALUE_LEN, self.get_u32(VALUE_LEN) & !SHADOWING | flag);
    }

    /// Whether the object was used of late, apart from the use with which it came.
    pub(crate) fn is_proven(self) -> bool {
        self.get_u32(VALUE_LEN) >> USES_SHIFT > 1
    }

    /// Counts one use down, of an object that was used.
    pub(crate) fn take_use(self) {
        self.put_u32(VALUE_LEN, self.get_u32(VALUE_LEN) - (1 << USES_SHIFT));
    }

    /// What the object is besides its value: how often it was used, and whether it is shadowing.
    #[inline]
    pub(crate) fn standing(self) -> Standing {
        Standing(self.get_u32(VALUE_LEN) & !VALUE_LEN_MASK)
    }

    /// Takes the place of one that was of this standing, which counts as a use.
    #[inline]
    pub(crate) fn succeed(self, standing: Standing) {
        self.put_u32(VALUE_LEN, with_use(self.get_u32(VALUE_LEN) & VALUE_LEN_MASK | standing.0));
    }
}

/// See [`Block::standing`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing(u32);

/// The field of `value_len` with one use more, if that is still counted.
#[inline]
fn with_use(field: u32) -> u32 {
    if field >> USES_SHIFT < USES_MAX { field + (1 << USES_SHIFT) } else { field }
}

impl Object<'_> {
    /// The address of its block. Looks at nothing in it.
    pub(crate) fn address(&self) -> u64 {
        self.block.address()
    }

    /// How many bytes its block takes, without what that owns elsewhere.
    pub(crate) fn block_bytes(&self) -> usize {
        self.block.capacity()
    }

    /// As [`Block::is_shadowing`].
    pub(crate) fn is_shadowing(&self) -> bool {
        self.block.is_shadowing()
    }

    /// Where on disk the same object lies.
    pub fn at(&self) -> Option<u32> {
        self.block.at()
    }

    /// Kind and access clock, for who puts the object back.
    pub(crate) fn stored_meta(&self) -> u32 {
        self.block.meta() & (KIND_MASK | CLOCK_MASK)
    }

    /// Counts a use of late. As [`Object::set_clock`], a reader may.
    #[inline]
    pub(crate) fn note_use(&self) {
        let field = self.block.get_u32(VALUE_LEN);
        let used = with_use(field);
        if used != field {
            self.block.put_u32(VALUE_LEN, used);
        }
    }
}
