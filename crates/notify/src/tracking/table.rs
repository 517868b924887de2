//! Which clients have read which keys. Databases are not told apart, as in Redis.
//!
//! Thread rule: keys are spread over shards with a lock each.
//!
//! Invariants:
//! 1. `places` has each key of `entries` with its index there.
//! 2. `keys`, `items` and `bytes` are the sums over the shards.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Many more than there are workers, so that two rarely meet.
const SHARDS: usize = 256;

/// The table.
pub(super) struct Table {
    shards: Box<[Shard]>,
    hasher: RandomState,
    keys: AtomicUsize,
    items: AtomicUsize,
    /// What the entries take.
    bytes: AtomicUsize,
    /// Where eviction looks next.
    next: AtomicUsize,
}

#[repr(align(64))]
#[derive(Default)]
struct Shard(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    places: HashMap<Arc<[u8]>, usize, RandomState>,
    entries: Vec<Entry>,
}

/// What an entry takes beside its key and readers, and a reader.
const ENTRY_BYTES: usize = 100;
const READER_BYTES: usize = size_of::<u64>();

fn entry_bytes(key: &[u8], readers: usize) -> usize {
    ENTRY_BYTES + key.len() + READER_BYTES * readers
}

/// A key and its readers in ascending order.
struct Entry {
    key: Arc<[u8]>,
    ids: Vec<u64>,
}

impl Default for Table {
    fn default() -> Table {
        Table {
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            hasher: RandomState::default(),
            keys: AtomicUsize::new(0),
            items: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            next: AtomicUsize::new(0),
        }
    }
}

impl Table {
    /// Puts a client down as a reader of a key. Gives the key if it was not down for it before.
    pub fn add(&self, key: &[u8], id: u64) -> Option<Arc<[u8]>> {
        let mut shard = self.shard(key).0.lock();
        let Entries { places, entries } = &mut *shard;
        if let Some(place) = places.get(key) {
            let Entry { key, ids } = &mut entries[*place];
            let at = ids.binary_search(&id).err()?;
            ids.insert(at, id);
            self.items.fetch_add(1, Ordering::Relaxed);
            self.bytes.fetch_add(READER_BYTES, Ordering::Relaxed);
            return Some(key.clone());
        }
        self.bytes.fetch_add(entry_bytes(key, 1), Ordering::Relaxed);
        let key: Arc<[u8]> = key.into();
        places.insert(key.clone(), entries.len());
        entries.push(Entry { key: key.clone(), ids: vec![id] });
        self.keys.fetch_add(1, Ordering::Relaxed);
        self.items.fetch_add(1, Ordering::Relaxed);
        Some(key)
    }

    /// Takes a key out; returns its readers.
    pub fn take(&self, key: &[u8]) -> Option<Vec<u64>> {
        let mut shard = self.shard(key).0.lock();
        let place = *shard.places.get(key)?;
        Some(self.take_at(&mut shard, place).ids)
    }

    /// Takes some key out; None if there are none.
    pub fn take_any(&self) -> Option<(Arc<[u8]>, Vec<u64>)> {
        for _ in 0..SHARDS {
            let turn = self.next.fetch_add(1, Ordering::Relaxed);
            let mut shard = self.shards[turn % SHARDS].0.lock();
            if !shard.entries.is_empty() {
                // Old and new ones alike: removal has shuffled them.
                let place = self.hasher.hash_one(turn) as usize % shard.entries.len();
                let Entry { key, ids } = self.take_at(&mut shard, place);
                return Some((key, ids));
            }
        }
        None
    }

    fn take_at(&self, shard: &mut Entries, place: usize) -> Entry {
        let Entries { places, entries } = shard;
        let taken = entries.swap_remove(place);
        places.remove(&taken.key);
        if let Some(moved) = entries.get(place) {
            *places.get_mut(&moved.key).expect("every entry has its place") = place;
        }
        if entries.len() < entries.capacity() / 4 {
            entries.shrink_to(entries.len() * 2);
            places.shrink_to(entries.len() * 2);
        }
        self.keys.fetch_sub(1, Ordering::Relaxed);
        self.items.fetch_sub(taken.ids.len(), Ordering::Relaxed);
        self.bytes.fetch_sub(entry_bytes(&taken.key, taken.ids.len()), Ordering::Relaxed);
        taken
    }

    /// Takes all keys out that are such.
    pub fn take_all(&self, is_such: impl Fn(&[u8]) -> bool, mut visit: impl FnMut(Arc<[u8]>, Vec<u64>)) {
        for shard in &self.shards {
            let mut shard = shard.0.lock();
            for place in (0..shard.entries.len()).rev() {
                if is_such(&shard.entries[place].key) {
                    let Entry { key, ids } = self.take_at(&mut shard, place);
                    visit(key, ids);
                }
            }
        }
    }

    /// Takes all keys out.
    pub fn clear(&self) {
        for shard in &self.shards {
            let Entries { entries, .. } = std::mem::take(&mut *shard.0.lock());
            let items: usize = entries.iter().map(|entry| entry.ids.len()).sum();
            self.keys.fetch_sub(entries.len(), Ordering::Relaxed);
            self.items.fetch_sub(items, Ordering::Relaxed);
            let bytes: usize = entries.iter().map(|entry| entry_bytes(&entry.key, entry.ids.len())).sum();
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// What all entries take, more or less.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// How many keys there are.
    pub fn keys(&self) -> usize {
        self.keys.load(Ordering::Relaxed)
    }

    /// How many readers all keys have.
    pub fn items(&self) -> usize {
        self.items.load(Ordering::Relaxed)
    }

    fn shard(&self, key: &[u8]) -> &Shard {
        // The low bits choose the place within the shard's table.
        let hash = self.hasher.hash_one(key) >> 32;
        &self.shards[hash as usize % SHARDS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_down_is_taken_once() {
        let table = Table::default();
        for number in 0..1000u64 {
            for id in [number % 7, 3, number % 7] {
                table.add(&(number % 100).to_le_bytes(), id);
            }
        }
        assert_eq!((table.keys(), table.items()), (100, 700));
        assert_eq!(table.take(&7u64.to_le_bytes()), Some((0..7).collect()));
        assert_eq!(table.take(&7u64.to_le_bytes()), None);
        let mut taken: Vec<_> = std::iter::from_fn(|| table.take_any().map(|(key, _)| key)).collect();
        taken.sort_unstable();
        taken.dedup();
        assert_eq!((taken.len(), table.keys(), table.items(), table.bytes()), (99, 0, 0, 0));
        table.add(b"k", 1);
        assert_eq!(table.bytes(), entry_bytes(b"k", 1));
        table.clear();
        assert_eq!(table.bytes(), 0);
        assert_eq!((table.keys(), table.items(), table.take(b"k")), (0, 0, None));
    }
}
