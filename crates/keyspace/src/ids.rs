//! The coordinates of a key: database, slot, and position within the slot.

use sys::prng::entropy_seed;
pub use value::table::{POSITION_BITS, Position};

/// How many slots a database has; the slots of Redis Cluster.
pub const SLOTS: usize = 16_384;

/// A slot of a database, in `0..SLOTS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u16);

/// A database by the number that SELECT takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DbIndex(pub u32);

/// A key's bytes with its coordinates.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// Its database.
    pub db: DbIndex,
    /// Its slot.
    pub slot: Slot,
    /// Its place in the slot.
    pub position: Position,
}

/// Hashes keys with a secret seed, so that nobody can choose keys that collide.
#[derive(Clone, Debug)]
pub struct KeyHasher {
    state: foldhash::quality::FixedState,
    /// The bits of a hash that are used: keys look alike in tests.
    #[cfg(test)]
    used: u64,
}

impl KeyHasher {
    /// A hasher that gives the same coordinates whenever it has the same seed.
    pub fn from_seed(seed: u64) -> KeyHasher {
        KeyHasher {
            state: foldhash::quality::FixedState::with_seed(seed),
            #[cfg(test)]
            used: u64::MAX,
        }
    }

    /// A hasher for a few slots, most of whose keys could not be told apart by cold words.
    #[cfg(test)]
    pub(crate) fn look_alike() -> KeyHasher {
        const SLOT_BITS: u64 = 0b111;
        // The first bits of a position, and some behind those that a cold word knows.
        const POSITION_BITS: u64 = 0b11 << 62 | 0xffff_ffff & !0x3fff;
        KeyHasher { used: SLOT_BITS | POSITION_BITS, ..KeyHasher::from_seed(7) }
    }

    /// A hasher with a seed that nobody can guess.
    pub fn from_entropy() -> KeyHasher {
        KeyHasher::from_seed(entropy_seed())
    }

    /// A key with its coordinates on a standalone server, where the slot is a
    /// part of the hash of the whole key: keys that share a hash tag do not
    /// share a lock.
    #[inline]
    pub fn key<'a>(&self, db: DbIndex, bytes: &'a [u8]) -> Key<'a> {
        let hash = self.hash(bytes);
        Key { bytes, db, slot: Slot((hash as usize % SLOTS) as u16), position: Position::from_hash(hash) }
    }

    /// A key's position alone.
    pub(crate) fn position(&self, bytes: &[u8]) -> Position {
        Position::from_hash(self.hash(bytes))
    }

    #[inline]
    fn hash(&self, bytes: &[u8]) -> u64 {
        use std::hash::{BuildHasher, Hasher};
        let mut hasher = self.state.build_hasher();
        hasher.write(bytes);
        #[cfg(test)]
        return hasher.finish() & self.used;
        #[cfg(not(test))]
        hasher.finish()
    }
}
