//! The coordinates of a key: database, slot, and position within the slot.

use crate::keyspace::Keyspace;
pub use value::table::{POSITION_BITS, Position};
use value::table::{SecretHasher, SecretKey};

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

/// What decides which keys have which slots. It is kept with a directory: what is written of a slot is about the keys that had it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashSeed {
    /// Of directories from before there were secret keys. Who knows how keys were hashed then can choose some that collide.
    Folded(u64),
    /// Nobody can choose keys that collide without it.
    Secret(SecretKey),
    /// Of servers of a cluster: slots are those of Redis Cluster, by the key or its hash tag; places within one are as secret.
    Tagged(SecretKey),
}

/// What stands before a key that is kept for [`HashSeed::Tagged`].
const TAGGED: u8 = 1;

impl HashSeed {
    /// One that nobody can guess.
    pub fn from_entropy() -> HashSeed {
        HashSeed::Secret(SecretKey::from_entropy())
    }

    /// One that nobody can guess, for a server of a cluster.
    pub fn tagged_from_entropy() -> HashSeed {
        HashSeed::Tagged(SecretKey::from_entropy())
    }

    /// Whether slots are those of Redis Cluster.
    pub fn is_tagged(self) -> bool {
        matches!(self, HashSeed::Tagged(_))
    }

    /// One that is the same whenever the number is.
    pub fn from_number(number: u64) -> HashSeed {
        HashSeed::Secret(SecretKey([number, !number]))
    }

    /// As it is kept with a directory.
    pub fn to_bytes(self) -> Vec<u8> {
        match self {
            HashSeed::Folded(seed) => seed.to_le_bytes().to_vec(),
            HashSeed::Secret(key) => key.to_bytes().to_vec(),
            HashSeed::Tagged(key) => [&[TAGGED][..], &key.to_bytes()].concat(),
        }
    }

    /// From what is kept with a directory; which one it is shows by the length.
    pub fn from_bytes(bytes: &[u8]) -> Option<HashSeed> {
        match (bytes.try_into(), bytes.try_into(), bytes.split_first()) {
            (Ok(seed), _, _) => Some(HashSeed::Folded(u64::from_le_bytes(seed))),
            (_, Ok(key), _) => Some(HashSeed::Secret(SecretKey::from_bytes(key))),
            (_, _, Some((&TAGGED, key))) => {
                key.try_into().ok().map(|key| HashSeed::Tagged(SecretKey::from_bytes(key)))
            }
            _ => None,
        }
    }
}

/// Gives keys their coordinates, by a seed.
#[derive(Clone, Debug)]
pub struct KeyHasher {
    hash: KeyHash,
    /// The bits of a hash that are used: keys look alike in tests.
    #[cfg(test)]
    used: u64,
}

#[derive(Clone, Debug)]
enum KeyHash {
    Folded(foldhash::quality::FixedState),
    Secret(SecretHasher),
    Tagged(SecretHasher),
}

impl KeyHasher {
    /// A hasher that gives the same coordinates whenever it has the same seed.
    pub fn new(seed: HashSeed) -> KeyHasher {
        let hash = match seed {
            HashSeed::Folded(seed) => KeyHash::Folded(foldhash::quality::FixedState::with_seed(seed)),
            HashSeed::Secret(key) => KeyHash::Secret(SecretHasher::new(key)),
            HashSeed::Tagged(key) => KeyHash::Tagged(SecretHasher::new(key)),
        };
        KeyHasher {
            hash,
            #[cfg(test)]
            used: u64::MAX,
        }
    }

    /// Whether slots are those of Redis Cluster.
    #[inline]
    pub fn is_tagged(&self) -> bool {
        matches!(self.hash, KeyHash::Tagged(_))
    }

    /// The same, with [`HashSeed::from_number`].
    pub fn from_seed(seed: u64) -> KeyHasher {
        KeyHasher::new(HashSeed::from_number(seed))
    }

    /// A hasher for a few slots, most of whose keys could not be told apart by cold words.
    #[cfg(test)]
    pub(crate) fn look_alike() -> KeyHasher {
        const SLOT_BITS: u64 = 0b111;
        // The first bits of a position, and some behind those that a cold word knows.
        const POSITION_BITS: u64 = 0b11 << 62 | 0xffff_ffff & !0x3fff;
        KeyHasher { used: SLOT_BITS | POSITION_BITS, ..KeyHasher::from_seed(7) }
    }

    /// A key with its coordinates. On a standalone server the slot is a part of the hash of the whole key: keys that share a hash tag do not share a
    /// lock. In a cluster it is the cluster's.
    #[inline]
    pub fn key<'a>(&self, db: DbIndex, bytes: &'a [u8]) -> Key<'a> {
        let hash = self.hash(bytes);
        let slot = match self.hash {
            KeyHash::Tagged(_) => wire::key_slot(bytes),
            KeyHash::Folded(_) | KeyHash::Secret(_) => (hash as usize % SLOTS) as u16,
        };
        Key { bytes, db, slot: Slot(slot), position: Position::from_hash(hash) }
    }

    /// A key's position alone.
    pub(crate) fn position(&self, bytes: &[u8]) -> Position {
        Position::from_hash(self.hash(bytes))
    }

    #[inline]
    fn hash(&self, bytes: &[u8]) -> u64 {
        let hash = match &self.hash {
            KeyHash::Secret(hasher) | KeyHash::Tagged(hasher) => hasher.hash(bytes),
            KeyHash::Folded(state) => folded(state, bytes),
        };
        #[cfg(test)]
        return hash & self.used;
        #[cfg(not(test))]
        hash
    }
}

impl Keyspace {
    /// Whether slots are those of Redis Cluster: it is a node's of a cluster.
    #[inline]
    pub fn has_cluster_slots(&self) -> bool {
        self.hasher.is_tagged()
    }
}

fn folded(state: &foldhash::quality::FixedState, bytes: &[u8]) -> u64 {
    use std::hash::{BuildHasher, Hasher};
    let mut hasher = state.build_hasher();
    hasher.write(bytes);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// What a factor of the folded hash is mixed with in every program that has it.
    const PUBLIC: u64 = 0x3f84_d5b5_b547_0917;

    #[test]
    fn keys_made_against_public_constants_do_not_collide() {
        let keys: Vec<Vec<u8>> =
            (0..1000u64).map(|number| [number.to_le_bytes(), PUBLIC.to_le_bytes()].concat()).collect();
        let places = |hasher: KeyHasher| {
            let places: HashSet<_> = keys
                .iter()
                .map(|key| hasher.key(DbIndex(0), key))
                .map(|key| (key.slot.0, key.position.0))
                .collect();
            places.len()
        };
        assert_eq!(places(KeyHasher::new(HashSeed::from_entropy())), keys.len());
        let members: HashSet<u64> = keys.iter().map(|key| value::table::position_of(key).0).collect();
        assert_eq!(members.len(), keys.len());
        // Else this would prove nothing.
        assert_eq!(places(KeyHasher::new(HashSeed::Folded(7))), 1);
    }

    #[test]
    fn a_seed_is_kept_whole() {
        let tagged = HashSeed::tagged_from_entropy();
        for seed in [HashSeed::Folded(7), HashSeed::from_number(7), HashSeed::from_entropy(), tagged] {
            assert_eq!(HashSeed::from_bytes(&seed.to_bytes()), Some(seed));
        }
        assert_eq!(HashSeed::from_bytes(&[0; 9]), None);
    }

    #[test]
    fn slots_of_a_cluster_go_by_the_tag() {
        let hasher = KeyHasher::new(HashSeed::tagged_from_entropy());
        let keys = [&b"{user}:1"[..], b"{user}:2", b"user"].map(|bytes| hasher.key(DbIndex(0), bytes));
        assert!(keys.iter().all(|key| key.slot == Slot(wire::key_slot(b"user"))));
        assert_ne!(keys[0].position, keys[1].position);
    }

    #[test]
    fn keys_of_older_directories_keep_their_places() {
        let hasher = KeyHasher::new(HashSeed::Folded(7));
        let key = hasher.key(DbIndex(0), b"user:1000");
        assert_eq!((key.slot, key.position), (Slot(14118), Position(258_822_557_652_775)));
    }
}
