//! A keyspace that sends its objects away all the time, beside one that keeps them: nobody must notice.

use super::spill::{Carrier, Copied, Fate, Sweep};
use super::{Record, Shelf, Unreadable};
use crate::fixture::{DB, NOW};
use crate::{
    DbIndex, Expiry, Key, KeyHasher, Keyspace, NewValue, Object, Options, Slot, Touch, ValueRef, walk::Cursor,
};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use sys::{Prng, UnixMs};
use value::collection::Thresholds;
use value::hash::{FieldExpiry, Hash};
use value::list::{End, List};
use value::rdb::dump;

/// How many records share a place.
const PAGE_RECORDS: usize = 8;

type Page = Vec<(u32, Record)>;

/// A shelf in memory.
#[derive(Default)]
struct Pages {
    pages: Mutex<HashMap<u32, Page>>,
    /// How many records of a page died.
    dead: Mutex<HashMap<u32, usize>>,
    is_broken: AtomicBool,
}

impl Shelf for Arc<Pages> {
    fn read(&self, at: u32, is_it: &mut dyn FnMut(u32, &[u8]) -> bool) -> Result<Option<Record>, Unreadable> {
        if self.is_broken.load(Ordering::Relaxed) {
            return Err(Unreadable("the disk is gone".to_owned()));
        }
        let pages = self.pages.lock();
        let page = pages.get(&at).ok_or_else(|| Unreadable(format!("there is no page {at}")))?;
        Ok(page.iter().find(|(db, record)| is_it(*db, &record.key)).map(|(_, record)| record.clone()))
    }

    fn note_dead(&self, at: u32) {
        *self.dead.lock().entry(at).or_default() += 1;
    }
}

/// A keyspace and its shelf.
struct Spilling {
    keyspace: Keyspace,
    pages: Arc<Pages>,
    next_page: u32,
    /// Copied and not written yet.
    chunk: Vec<(u32, u32, Record)>,
    sweep: Sweep,
    /// Slots that were spilled since the last write.
    visited: HashSet<Slot>,
}

/// Records for pages that are not written yet.
struct Chunk<'a> {
    pages: &'a Pages,
    first: u32,
    records: &'a mut Vec<(u32, u32, Record)>,
}

impl Carrier for Chunk<'_> {
    fn is_written(&self, at: u32) -> bool {
        self.pages.pages.lock().contains_key(&at)
    }

    fn take(&mut self, copied: Copied<'_>) -> Fate {
        let at = self.first + (self.records.len() / PAGE_RECORDS) as u32;
        let Copied { db, key, expires_at, image } = copied;
        self.records.push((at, db, Record { key: key.to_vec(), expires_at, image: image.to_vec() }));
        Fate::LeavesTo(at)
    }
}

fn keyspace() -> Keyspace {
    let hasher = KeyHasher::from_seed(7);
    Keyspace::new(Options { databases: 2, workers: 1, guests: 0, hasher, seed: 2, now: NOW })
}

impl Spilling {
    fn new() -> Spilling {
        let (keyspace, pages) = (keyspace(), Arc::new(Pages::default()));
        keyspace.set_shelf(Box::new(pages.clone()));
        let (chunk, visited) = (Vec::new(), HashSet::new());
        Spilling { keyspace, pages, next_page: 0, chunk, sweep: Sweep::default(), visited }
    }

    /// Sends objects of a slot away, as far as they have not been used.
    fn spill(&mut self, slot: Slot) {
        if !self.visited.insert(slot) {
            return;
        }
        let mut carrier = Chunk { pages: &self.pages, first: self.next_page, records: &mut self.chunk };
        self.keyspace.enter(0).spill(DB, slot, &mut self.sweep, &mut carrier);
    }

    /// Writes what was copied, or fails to.
    fn write(&mut self, succeeds: bool) {
        self.next_page += (self.chunk.len() / PAGE_RECORDS) as u32 + 1;
        for (at, db, record) in self.chunk.drain(..).filter(|_| succeeds) {
            self.pages.pages.lock().entry(at).or_default().push((db, record));
        }
        self.keyspace.enter(0).let_go(&mut self.sweep, succeeds);
        self.visited.clear();
    }

    /// Sends away all that can go.
    fn spill_all(&mut self) {
        for _ in 0..4 {
            (0..crate::SLOTS as u16).for_each(|slot| self.spill(Slot(slot)));
            self.write(true);
        }
    }

    fn cold(&self) -> usize {
        let objects = |slot: u16| {
            let keys = crate::locks::lock(self.keyspace.keys_of_slot((0, Slot(slot))));
            keys.table().len() - keys.table().iter().count()
        };
        (0..crate::SLOTS as u16).map(objects).sum()
    }
}

fn shown(object: Object<'_>) -> (Vec<u8>, Option<UnixMs>, String) {
    let value = match object.value() {
        ValueRef::Int(number) => number.to_string().into_bytes(),
        ValueRef::Bytes(bytes) => bytes.to_vec(),
        ValueRef::Collection(collection) => dump(collection),
    };
    (value, object.expires_at(), format!("{:?}", object.encoding()))
}

type All = BTreeMap<Vec<u8>, (Vec<u8>, Option<UnixMs>, String)>;

fn all_of(keyspace: &Keyspace, now: UnixMs) -> All {
    let (batch, mut all) = (keyspace.enter(0), All::new());
    let mut cursor = Cursor(0);
    loop {
        cursor = batch.scan(DB, cursor, 100, now, |object| {
            assert!(all.insert(object.key().to_vec(), shown(object)).is_none(), "a key came twice");
        });
        if cursor == Cursor(0) {
            break;
        }
    }
    assert_eq!(batch.take_unreadable(), None);
    all
}

/// Changes or reads a key, the same way whatever keyspace it is in.
fn touch(keyspace: &Keyspace, key: &Key<'_>, now: UnixMs, action: u64, random: u64) -> Option<Vec<u8>> {
    let batch = keyspace.enter(0);
    if action < 4 {
        let view = batch.view(&[*key], now, Touch::Yes);
        let found = view.get(key).map(|object| format!("{:?}", shown(object)).into_bytes());
        view.finish();
        return found;
    }
    let mut edit = batch.edit(&[*key], now, Touch::Yes);
    let bytes = vec![random as u8; (random % 300) as usize];
    let result = match action {
        4 | 5 => {
            edit.set(key, NewValue::from_bytes(&bytes), Expiry::Keep);
            None
        }
        6 => {
            edit.set(key, NewValue::Int(random as i64), Expiry::At(UnixMs(now.0 + random % 100_000)));
            None
        }
        7 => edit.remove(key).then(|| b"removed".to_vec()),
        8 => edit.set_expiry(key, Some(UnixMs(now.0 + random % 50_000))).then(|| b"expires".to_vec()),
        9 if edit.get(key).is_none_or(|object| matches!(object.value(), ValueRef::Bytes(_))) => {
            edit.bytes_mut(key, (random % 400) as usize + 1)[0] = random as u8;
            None
        }
        10 | 11 => {
            // Some become native.
            let size: u64 = if action == 10 { 1 } else { 600 };
            if let Ok(mut hash) = edit.open_or_new(key, Hash::default) {
                for field in 0..size {
                    let (name, value) = (field.to_le_bytes(), random.to_le_bytes());
                    hash.set(&name, &value, FieldExpiry::Clear, &Thresholds::DEFAULT, now);
                }
                hash.touch();
            }
            None
        }
        12 => {
            if let Ok(mut list) = edit.open_or_new(key, List::new) {
                list.push(&bytes, End::Tail);
                list.touch();
            }
            None
        }
        _ => None,
    };
    edit.finish();
    result
}

#[test]
fn nobody_notices_who_is_in_memory() {
    let seed = sys::prng::entropy_seed();
    println!("seed {seed}");
    let mut prng = Prng::from_seed(seed);
    let (mut spilling, plain) = (Spilling::new(), keyspace());
    let mut now = NOW;
    let keys: Vec<Vec<u8>> = (0..400u32).map(|number| format!("key:{number}").into_bytes()).collect();
    let mut most_cold = 0;
    for step in 0..20_000 {
        let name = &keys[prng.below(keys.len() as u64) as usize];
        let (action, random) = (prng.below(13), prng.next_u64());
        let results =
            [&spilling.keyspace, &plain].map(|one| touch(one, &one.key(DB, name), now, action, random));
        assert_eq!(results[0], results[1], "step {step}, action {action}");
        if prng.one_in(3) {
            let slot = plain.key(DB, &keys[prng.below(keys.len() as u64) as usize]).slot;
            spilling.spill(slot);
        }
        if spilling.chunk.len() > 20 {
            spilling.write(!prng.one_in(5));
            most_cold = most_cold.max(spilling.cold());
        }
        if prng.one_in(50) {
            now = UnixMs(now.0 + prng.below(2000));
            for one in [&spilling.keyspace, &plain] {
                let _ = one.enter(0).sweep_expired(now, || true, |_, _| {});
            }
        }
        if prng.one_in(2000) {
            assert_eq!(all_of(&spilling.keyspace, now), all_of(&plain, now));
        }
    }
    spilling.write(true);
    spilling.spill_all();
    assert_eq!(
        (spilling.keyspace.len(DB), spilling.keyspace.expiring(DB)),
        (plain.len(DB), plain.expiring(DB))
    );
    assert!(most_cold > 50 && spilling.cold() as u64 == plain.len(DB), "{most_cold}, {}", spilling.cold());
    assert_eq!(all_of(&spilling.keyspace, now), all_of(&plain, now));
    let later = UnixMs(now.0 + 1_000_000);
    for one in [&spilling.keyspace, &plain] {
        let _ = one.enter(0).sweep_expired(later, || true, |_, _| {});
    }
    assert_eq!(spilling.keyspace.expiring(DB), 0);
    assert_eq!(all_of(&spilling.keyspace, later), all_of(&plain, later));
}

#[test]
fn what_is_read_only_goes_again_without_being_written() {
    let mut spilling = Spilling::new();
    let set = |number: u32| crate::fixture::set(&spilling.keyspace, number, NOW, Expiry::Clear);
    (0..100).for_each(set);
    spilling.spill_all();
    let pages = spilling.next_page;
    assert_eq!(spilling.cold(), 100);
    assert!((0..100).all(|number| crate::fixture::get(&spilling.keyspace, number, NOW)));
    assert_eq!(spilling.cold(), 0);
    let written = spilling.pages.pages.lock().len();
    spilling.spill_all();
    assert_eq!((spilling.cold(), spilling.pages.pages.lock().len()), (100, written));
    assert!(spilling.next_page > pages);
}

#[test]
fn what_cannot_be_read_is_an_error_and_stays() {
    let mut spilling = Spilling::new();
    (0..10).for_each(|number| crate::fixture::set(&spilling.keyspace, number, NOW, Expiry::Clear));
    spilling.spill_all();
    spilling.pages.is_broken.store(true, Ordering::Relaxed);
    let batch = spilling.keyspace.enter(0);
    let name = 3u32.to_be_bytes();
    let key = spilling.keyspace.key(DB, &name);
    for changes in [false, true] {
        match changes {
            false => drop(batch.view(&[key], NOW, Touch::Yes)),
            true => drop(batch.edit(&[key], NOW, Touch::Yes)),
        }
        assert_eq!(batch.take_unreadable(), Some(Unreadable("the disk is gone".to_owned())));
        assert_eq!(batch.take_unreadable(), None);
    }
    batch.for_each(DB, NOW, |_| {});
    assert!(batch.take_unreadable().is_some());
    drop(batch);
    spilling.pages.is_broken.store(false, Ordering::Relaxed);
    assert!((0..10).all(|number| crate::fixture::get(&spilling.keyspace, number, NOW)));
    assert_eq!(spilling.keyspace.len(DbIndex(0)), 10);
}
