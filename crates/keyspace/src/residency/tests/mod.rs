//! A keyspace that sends its objects away all the time, beside one that keeps them: nobody must notice.

mod spilling;

use super::index::SlotIndex;
use super::shadow::Seen;
use super::spill::{Aim, Carrier, Copied, Fate, Sweep};
use super::{Record, Shelf, Unreadable};
use crate::fixture::{DB, NOW, get, number, seconds_later, set};
use crate::{
    Batch, DbIndex, Eviction, Expiry, Key, KeyHasher, Keyspace, NewValue, Object, Options, OutOfMemory, Slot,
    Touch, ValueRef, walk::Cursor,
};
use parking_lot::Mutex;
use spilling::{Page, Spilling, keyspace_of};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use sys::{Prng, UnixMs};
use value::collection::{CollectionRef, Encoding, Thresholds, Type};
use value::hash::{FieldExpiry, Hash};
use value::list::{End, List};
use value::rdb::dump;
use value::table::Entry;

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
        let next = batch.try_scan(DB, cursor, 100, now, |object| {
            assert!(all.insert(object.key().to_vec(), shown(object)).is_none(), "a key came twice");
        });
        cursor = next.expect("nobody holds anything for long");
        if cursor == Cursor(0) {
            break;
        }
    }
    assert_eq!(batch.take_unreadable(), None);
    drop(batch);
    assert_eq!(all, all_held(keyspace, now));
    all
}

/// The same as whoever holds everything sees it.
fn all_held(keyspace: &Keyspace, now: UnixMs) -> All {
    let mut all = All::new();
    keyspace.enter(0).exclusively(now, Touch::No, |held| {
        held.for_each(DB, |object| {
            assert!(all.insert(object.key().to_vec(), shown(object)).is_none(), "a key came twice");
        });
        assert_eq!(held.take_unreadable(), None);
    });
    all
}

/// Gives a key a value whatever was there.
fn replace(batch: &Batch<'_>, key: &Key<'_>, now: UnixMs, action: u64, random: u64) {
    let mut edit = batch.try_replace(&[*key], now, Touch::Yes).unwrap();
    let bytes = vec![random as u8; (random % 90) as usize];
    let expiry = match action {
        13 | 14 => Expiry::Clear,
        _ => Expiry::At(UnixMs(now.0 + random % 5_000)),
    };
    edit.set(key, NewValue::from_bytes(&bytes), expiry);
    if random.is_multiple_of(5) {
        edit.set(key, NewValue::Int(7), Expiry::Clear);
    }
    edit.finish();
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
    if (13..=15).contains(&action) {
        replace(&batch, key, now, action, random);
        return None;
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

/// Runs commands at random on two keyspaces, one of which sends its objects away all the time.
struct Pair {
    spilling: Spilling,
    plain: Keyspace,
    prng: Prng,
    now: UnixMs,
    keys: Vec<Vec<u8>>,
    /// Pages that were read and have not come back yet.
    on_their_way: Vec<(u32, Page)>,
    /// How often a key was taken for an older version of another.
    mistakes: u64,
}

impl Pair {
    fn new(hasher: &KeyHasher, keys: u32) -> Pair {
        let seed = sys::prng::entropy_seed();
        println!("seed {seed}");
        let (spilling, plain) = (Spilling::of(keyspace_of(hasher)), keyspace_of(hasher));
        let keys = (0..keys).map(|number| format!("key:{number}").into_bytes()).collect();
        let prng = Prng::from_seed(seed);
        Pair { spilling, plain, prng, now: NOW, keys, on_their_way: Vec::new(), mistakes: 0 }
    }

    fn any_key(&mut self) -> Vec<u8> {
        self.keys[self.prng.below(self.keys.len() as u64) as usize].clone()
    }

    fn both(&self) -> [&Keyspace; 2] {
        [&self.spilling.keyspace, &self.plain]
    }

    fn step(&mut self, step: usize) {
        let name = self.any_key();
        let (action, random) = (self.prng.below(18), self.prng.next_u64());
        let results = self.both().map(|one| touch(one, &one.key(DB, &name), self.now, action, random));
        assert_eq!(results[0], results[1], "step {step}, action {action}");
        if self.prng.one_in(3) {
            let name = self.any_key();
            let slot = self.plain.key(DB, &name).slot;
            self.spilling.spill(slot);
        }
        if self.spilling.chunk.len() > 20 || self.prng.one_in(20) {
            self.spilling.write(!self.prng.one_in(5));
            self.spilling.sweep.aim = if self.prng.one_in(4) { Aim::Copies } else { Aim::Unused };
        }
        if self.prng.one_in(50) {
            self.now = UnixMs(self.now.0 + self.prng.below(2000));
            for one in self.both() {
                let _ = one.enter(0).sweep_expired(self.now, || true, |_, _| {});
            }
        }
        if self.prng.one_in(30) {
            self.spilling.clean(self.prng.next_u64());
        }
        if self.prng.one_in(20) {
            self.spilling.see_shadowed();
        }
        if self.prng.one_in(500) {
            self.spilling.relocate();
        }
        self.read_pages();
    }

    /// Has pages read that come back later, whatever has become of their objects.
    fn read_pages(&mut self) {
        if self.prng.one_in(10)
            && let Some((at, page)) = self.spilling.any_page(self.prng.next_u64())
        {
            self.on_their_way.push((at, page));
        }
        if self.on_their_way.len() > 5 {
            let (at, page) = self.on_their_way.remove(0);
            let batch = self.spilling.keyspace.enter(0);
            for (db, Record { key, expires_at, image }) in &page {
                batch.admit(*db, &self.plain.key(DB, key), *expires_at, image, at);
            }
        }
    }

    fn compare(&mut self) {
        self.spilling.check();
        let [counted, _, shadowing] = counts(&self.spilling.keyspace);
        let there = all_of(&self.spilling.keyspace, UnixMs(0)).len() as u64;
        assert!((counted..=counted + shadowing).contains(&there), "{there} keys, {counted} counted");
        self.mistakes += there - counted;
        assert_eq!(all_of(&self.spilling.keyspace, self.now), all_of(&self.plain, self.now));
    }

    fn compare_at_end(&mut self) {
        self.spilling.write(true);
        assert_eq!(all_of(&self.spilling.made_again(), self.now), all_of(&self.plain, self.now));
        self.spilling.sweep.aim = Aim::Unused;
        self.spilling.spill_all();
        self.compare();
        let counts = |one: &Keyspace| (one.len(DB), one.expiring(DB));
        assert_eq!(counts(&self.spilling.keyspace), counts(&self.plain));
        assert_eq!(self.spilling.cold() as u64, self.plain.len(DB));
        self.now = UnixMs(self.now.0 + 1_000_000);
        for one in self.both() {
            let _ = one.enter(0).sweep_expired(self.now, || true, |_, _| {});
            assert_eq!(one.expiring(DB), 0);
        }
        self.compare();
    }
}

#[test]
fn nobody_notices_who_is_in_memory() {
    let mut pair = Pair::new(&KeyHasher::from_seed(7), 400);
    let mut most_cold = 0;
    for step in 0..20_000 {
        pair.step(step);
        if pair.prng.one_in(500) {
            most_cold = most_cold.max(pair.spilling.cold());
            pair.compare();
        }
    }
    pair.compare_at_end();
    assert_eq!(pair.mistakes, 0, "no two of these look alike");
    assert!(most_cold > 10, "{most_cold}");
}

#[test]
fn keys_that_look_alike_are_not_taken_for_each_other() {
    let mut pair = Pair::new(&KeyHasher::look_alike(), 200);
    for step in 0..20_000 {
        pair.step(step);
        if pair.prng.one_in(200) {
            pair.compare();
        }
    }
    pair.compare_at_end();
    assert!(pair.mistakes > 10, "{}", pair.mistakes);
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
fn whoever_holds_everything_reads_each_page_once() {
    const KEYS: u32 = 1000;
    let mut spilling = Spilling::new();
    (0..KEYS).for_each(|number| crate::fixture::set(&spilling.keyspace, number, NOW, Expiry::Clear));
    spilling.spill_all();
    assert_eq!(spilling.cold(), KEYS as usize);
    let pages = spilling.pages.pages.lock().len();
    spilling.pages.visits.store(0, Ordering::Relaxed);
    assert_eq!(all_held(&spilling.keyspace, NOW).len(), KEYS as usize);
    assert_eq!(spilling.pages.visits.load(Ordering::Relaxed), pages);
    spilling.pages.is_broken.store(true, Ordering::Relaxed);
    let mut batch = spilling.keyspace.enter(0);
    batch.exclusively(NOW, Touch::No, |held| held.for_each(DB, |_| panic!("the disk is gone")));
    assert!(batch.take_unreadable().is_some());
    assert_eq!(batch.take_passed(), u64::from(KEYS), "each is passed by");
}

/// Slots are gathered while keys change, go and come back, and read afterwards, when they have changed once more.
#[test]
fn what_is_gathered_is_shown_as_it_was_when_its_slot_was() {
    const KEYS: u32 = 1500;
    const GATHERED_BYTES: usize = 1200;
    let (mut spilling, mut prng) = (Spilling::new(), Prng::from_seed(11));
    (0..KEYS).for_each(|number| set(&spilling.keyspace, number, NOW, Expiry::Clear));
    spilling.spill_all();
    let (mut expected, mut seen) = (All::new(), All::new());
    let add = |all: &mut All, object: Object<'_>| {
        assert!(all.insert(object.key().to_vec(), shown(object)).is_none(), "a key came twice");
    };
    // What is done to some keys behind the back of whoever goes over them.
    let disturb = |spilling: &mut Spilling, prng: &mut Prng| {
        for _ in 0..prng.below(4) {
            let (number, random) = (prng.below(u64::from(KEYS)) as u32, prng.next_u64());
            if random.is_multiple_of(4) {
                get(&spilling.keyspace, number, NOW);
                continue;
            }
            let (batch, name) = (spilling.keyspace.enter(0), number.to_be_bytes());
            let key = spilling.keyspace.key(DB, &name);
            if random % 4 == 1 {
                replace(&batch, &key, NOW, 15, random);
                continue;
            }
            let mut edit = batch.edit(&[key], NOW, Touch::Yes);
            match random % 4 {
                2 => drop(edit.remove(&key)),
                _ => edit.set(&key, NewValue::from_bytes(&random.to_le_bytes()), Expiry::Clear),
            }
            edit.finish();
        }
        match prng.below(2000) {
            0 => spilling.round(),
            1..100 => spilling.clean(prng.next_u64()),
            100..120 => spilling.see_shadowed(),
            _ => {}
        }
    };
    let keyspace = spilling.keyspace.clone();
    let mut gathered = keyspace.gather(DB.0, GATHERED_BYTES).unwrap();
    for slot in (0..=crate::SLOTS as u16).map(Slot) {
        disturb(&mut spilling, &mut prng);
        if usize::from(slot.0) < crate::SLOTS {
            gathered.keep();
            keyspace.enter(0).look_into(DB.0, slot, |view| {
                view.visit(|object| add(&mut expected, object));
                view.gather(&mut gathered, |object| add(&mut seen, object));
            });
        }
        let is_time = gathered.is_full() || usize::from(slot.0) == crate::SLOTS;
        while is_time && gathered.read_on(|object| add(&mut seen, object), |error| panic!("{error}")) {
            (0..20).for_each(|_| disturb(&mut spilling, &mut prng));
        }
    }
    assert!(seen.len() > KEYS as usize / 2, "{}", seen.len());
    assert_eq!(seen, expected);
    drop(gathered);
    spilling.check();
}

#[test]
fn a_scan_does_not_take_the_place_of_what_is_used() {
    const USED: u32 = 300;
    const ALL: u32 = 3000;
    let mut spilling = Spilling::new();
    (0..ALL).for_each(|number| crate::fixture::set(&spilling.keyspace, number, NOW, Expiry::Clear));
    spilling.spill_all();
    let get = |spilling: &Spilling, number| assert!(crate::fixture::get(&spilling.keyspace, number, NOW));
    // One more than it takes: a round in which nothing went was before.
    for _ in 0..4 {
        (0..USED).for_each(|number| get(&spilling, number));
    }
    for _ in 0..20 {
        (USED..ALL).for_each(|number| get(&spilling, number));
        spilling.round();
        assert_eq!(spilling.cold() as u32, ALL - USED, "what is looked at once goes, and nothing else");
    }
    // Once all is used, who was used least goes.
    (USED..2 * USED).for_each(|number| (0..2).for_each(|_| get(&spilling, number)));
    while spilling.cold() as u32 == ALL - 2 * USED {
        spilling.round();
    }
    let kept = |numbers: std::ops::Range<u32>| {
        let cold = spilling.cold();
        numbers.for_each(|number| get(&spilling, number));
        cold - spilling.cold()
    };
    assert_eq!((kept(0..USED), kept(USED..2 * USED)), (0, USED as usize));
    spilling.spill_all();
    assert_eq!(spilling.cold() as u32, ALL, "in the end all goes");
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
    batch.take_passed();
    batch.for_each(DB, NOW, |_| {});
    assert!(batch.take_unreadable().is_some());
    assert_eq!(batch.take_passed(), 10, "each is passed by");
    drop(batch);
    spilling.pages.is_broken.store(false, Ordering::Relaxed);
    assert!((0..10).all(|number| crate::fixture::get(&spilling.keyspace, number, NOW)));
    assert_eq!(spilling.keyspace.len(DbIndex(0)), 10);
}

#[test]
fn what_is_looked_at_is_lent_once_and_takes_a_part_of_memory_at_most() {
    let mut spilling = Spilling::new();
    (0..40).for_each(|number| crate::fixture::set(&spilling.keyspace, number, NOW, Expiry::Clear));
    let long = vec![b'x'; 100_000];
    set_long(&spilling.keyspace, &long);
    spilling.spill_all();
    spilling.keyspace.policy().set_memory_bytes_max(4 * 150_000);
    let mut batch = spilling.keyspace.enter(0);
    let of = |number: u32| number.to_be_bytes();
    batch.hold_all();
    let view = batch.view(&[], NOW, Touch::Yes);
    let look = |number: u32| view.get(&spilling.keyspace.key(DB, &of(number))).is_some();
    assert!((0..1000).all(|_| look(100)), "the same bytes each time");
    assert!(!batch.has_unreadable() && look(101));
    assert!(!look(102), "enough is lent");
    assert!(look(100), "what was lent stays");
    view.finish();
    assert!(batch.take_unreadable().is_some_and(|error| error.0.contains("1/4 of maxmemory")));
}

/// Some keys with long values, from number 100 on.
fn set_long(keyspace: &Keyspace, value: &[u8]) {
    let batch = keyspace.enter(0);
    for number in 100..104u32 {
        let name = number.to_be_bytes();
        let key = keyspace.key(DB, &name);
        let mut edit = batch.edit(&[key], NOW, Touch::Yes);
        edit.set(&key, NewValue::Bytes(value), Expiry::Clear);
        edit.finish();
    }
}

/// Two keys that cold words could not tell apart, by a hasher that makes such.
fn two_that_look_alike(hasher: &KeyHasher) -> [Vec<u8>; 2] {
    let names = (0..100u32).map(|number| format!("key:{number}").into_bytes());
    let of = |name: &[u8]| {
        let key = hasher.key(DB, name);
        (key.slot, key.position)
    };
    let mut seen: Vec<Vec<u8>> = Vec::new();
    for name in names {
        let (slot, position) = of(&name);
        let looks_alike = |other: &&Vec<u8>| {
            let (there, other) = of(other);
            there == slot && super::spill::look_alike(other, position)
        };
        if let Some(other) = seen.iter().find(looks_alike) {
            return [other.clone(), name];
        }
        seen.push(name);
    }
    unreachable!("a hundred keys are more than can look different")
}

/// A keyspace with one key, which expires and is on disk only.
fn with_one_cold(hasher: &KeyHasher, name: &[u8]) -> Spilling {
    let mut spilling = Spilling::of(keyspace_of(hasher));
    let key = spilling.keyspace.key(DB, name);
    let batch = spilling.keyspace.enter(0);
    let mut edit = batch.edit(&[key], NOW, Touch::Yes);
    edit.set(&key, NewValue::Int(1), Expiry::At(UnixMs(NOW.0 + 60_000)));
    edit.finish();
    drop(batch);
    spilling.spill_all();
    assert_eq!(spilling.cold(), 1);
    spilling
}

fn replace_one(keyspace: &Keyspace, name: &[u8]) {
    replace(&keyspace.enter(0), &keyspace.key(DB, name), NOW, 13, 1);
}

fn remove_one(keyspace: &Keyspace, name: &[u8]) -> (bool, Option<Unreadable>) {
    let (batch, key) = (keyspace.enter(0), keyspace.key(DB, name));
    let mut edit = batch.edit(&[key], NOW, Touch::Yes);
    let is_removed = edit.remove(&key);
    edit.finish();
    let unreadable = batch.take_unreadable();
    (is_removed, unreadable)
}

fn counts(keyspace: &Keyspace) -> [u64; 3] {
    [keyspace.len(DB), keyspace.expiring(DB), keyspace.shadowing()]
}

#[test]
fn a_replaced_key_counts_once_at_once_and_its_old_expiry_no_more_when_it_is_resolved() {
    let hasher = KeyHasher::look_alike();
    let [name, _] = two_that_look_alike(&hasher);
    let resolving: [fn(&mut Spilling); 2] = [|one| one.see_shadowed(), Spilling::spill_all];
    for resolve in resolving {
        let mut spilling = with_one_cold(&hasher, &name);
        spilling.pages.is_broken.store(true, Ordering::Relaxed);
        replace_one(&spilling.keyspace, &name);
        replace_one(&spilling.keyspace, &name);
        assert_eq!(counts(&spilling.keyspace), [1, 1, 1], "nothing was read");
        spilling.pages.is_broken.store(false, Ordering::Relaxed);
        resolve(&mut spilling);
        spilling.check();
        assert_eq!(counts(&spilling.keyspace), [1, 0, 0]);
        assert_eq!(spilling.pages.dead.lock().values().sum::<usize>(), 1);
        assert_eq!(remove_one(&spilling.keyspace, &name), (true, None));
        assert_eq!(counts(&spilling.keyspace), [0, 0, 0]);
    }
}

#[test]
fn a_key_that_only_looks_like_one_on_disk_counts_when_it_is_resolved() {
    let hasher = KeyHasher::look_alike();
    let [old, new] = two_that_look_alike(&hasher);
    let resolving: [fn(&mut Spilling); 2] = [|one| one.see_shadowed(), Spilling::spill_all];
    for resolve in resolving {
        let mut spilling = with_one_cold(&hasher, &old);
        replace_one(&spilling.keyspace, &new);
        assert_eq!(counts(&spilling.keyspace), [1, 1, 1]);
        assert_eq!(all_of(&spilling.keyspace, NOW).len(), 2);
        resolve(&mut spilling);
        spilling.check();
        assert_eq!(counts(&spilling.keyspace), [2, 1, 0]);
        assert_eq!(spilling.pages.dead.lock().len(), 0);
        assert_eq!(remove_one(&spilling.keyspace, &new), (true, None));
        assert_eq!(counts(&spilling.keyspace), [1, 1, 0]);
        assert!(all_of(&spilling.keyspace, NOW).contains_key(&old));
    }
}

#[test]
fn a_replaced_key_stays_while_what_it_replaced_cannot_be_read() {
    let hasher = KeyHasher::look_alike();
    let [name, _] = two_that_look_alike(&hasher);
    let mut spilling = with_one_cold(&hasher, &name);
    replace(&spilling.keyspace.enter(0), &spilling.keyspace.key(DB, &name), NOW, 15, 1);
    spilling.pages.is_broken.store(true, Ordering::Relaxed);
    let broken = Unreadable("the disk is gone".to_owned());
    assert_eq!(remove_one(&spilling.keyspace, &name), (false, Some(broken)));
    for slot in 0..crate::SLOTS as u16 {
        spilling.spill(Slot(slot));
    }
    let later = UnixMs(NOW.0 + 1_000_000);
    let _ = spilling.keyspace.enter(0).sweep_expired(later, || true, |_, _| {});
    assert_eq!(counts(&spilling.keyspace), [1, 2, 1]);
    spilling.pages.is_broken.store(false, Ordering::Relaxed);
    let _ = spilling.keyspace.enter(0).sweep_expired(UnixMs(later.0 + 1_000_000), || true, |_, _| {});
    assert_eq!(counts(&spilling.keyspace), [0, 0, 0]);
    assert!(all_of(&spilling.keyspace, NOW).is_empty());
}

#[test]
fn a_flushed_database_has_no_shadows() {
    let hasher = KeyHasher::look_alike();
    let [name, _] = two_that_look_alike(&hasher);
    let spilling = with_one_cold(&hasher, &name);
    replace_one(&spilling.keyspace, &name);
    let mut batch = spilling.keyspace.enter(0);
    batch.exclusively(NOW, Touch::Yes, |all| drop(all.clear(DB)));
    drop(batch);
    assert_eq!(counts(&spilling.keyspace), [0, 0, 0]);
    spilling.see_shadowed();
    spilling.check();
}

#[test]
fn what_has_expired_does_not_show_what_it_replaced() {
    let hasher = KeyHasher::look_alike();
    let [name, _] = two_that_look_alike(&hasher);
    let spilling = with_one_cold(&hasher, &name);
    let (batch, key) = (spilling.keyspace.enter(0), spilling.keyspace.key(DB, &name));
    replace(&batch, &key, NOW, 15, 1);
    let view = batch.view(&[key], UnixMs(NOW.0 + 50_000), Touch::Yes);
    assert!(view.get(&key).is_none());
    assert_eq!(view.finish().len(), 1);
    drop(batch);
    assert_eq!(counts(&spilling.keyspace), [0, 0, 0]);
}

/// Evicts so many keys, cost what it may.
fn evict(keyspace: &Keyspace, policy: Eviction, keys: u64) -> Result<Vec<u32>, OutOfMemory> {
    keyspace.policy().set_eviction(policy);
    keyspace.policy().set_memory_bytes_max(1000);
    let (used, evicted) = (Cell::new(1000 + keys), RefCell::new(Vec::new()));
    while used.get() > 1000 {
        let _ = keyspace.enter(0).evict(
            NOW,
            || used.get(),
            |_, key| {
                used.set(used.get() - 1);
                evicted.borrow_mut().push(number(key));
            },
        )?;
    }
    Ok(evicted.into_inner())
}

#[test]
fn what_is_on_disk_only_is_evicted_as_the_policy_says() {
    let expiry = |number: u32| match number % 2 {
        0 => Expiry::At(seconds_later(10 + u64::from(number))),
        _ => Expiry::Clear,
    };
    for (policy, is_in_order) in [
        (Eviction::AllLru, false),
        (Eviction::AllLfu, false),
        (Eviction::AllRandom, false),
        (Eviction::ExpiringLru, false),
        (Eviction::ExpiringRandom, false),
        (Eviction::SoonestExpiry, true),
    ] {
        let mut spilling = Spilling::new();
        (0..1000).for_each(|number| set(&spilling.keyspace, number, NOW, expiry(number)));
        spilling.spill_all();
        let evicted = evict(&spilling.keyspace, policy, 100).unwrap();
        assert_eq!((evicted.len(), spilling.keyspace.len(DB)), (100, 900));
        spilling.check();
        let left = all_of(&spilling.keyspace, NOW);
        assert!(left.len() == 900 && evicted.iter().all(|key| !left.contains_key(&key.to_be_bytes()[..])));
        if policy.expiring_only() {
            assert!(evicted.iter().all(|key| key % 2 == 0), "{policy:?}");
            assert_eq!(evict(&spilling.keyspace, policy, 1000), Err(OutOfMemory));
            assert_eq!((spilling.keyspace.len(DB), spilling.keyspace.expiring(DB)), (500, 0));
        }
        assert!(!is_in_order || evicted.iter().sum::<u32>() < 100 * 300, "{evicted:?}");
    }
}

#[test]
fn what_is_in_memory_outlasts_what_is_on_disk() {
    let mut spilling = Spilling::new();
    (0..1000).for_each(|number| set(&spilling.keyspace, number, NOW, Expiry::Clear));
    spilling.spill_all();
    (0..100).for_each(|number| assert!(get(&spilling.keyspace, number, NOW)));
    let evicted = evict(&spilling.keyspace, Eviction::AllLru, 300).unwrap();
    let in_memory = evicted.iter().filter(|number| **number < 100).count();
    assert!(in_memory < 5, "{in_memory} that were in memory went");
}

#[test]
fn what_was_replaced_unread_is_evicted_whole() {
    let mut spilling = Spilling::new();
    (0..1000).for_each(|number| set(&spilling.keyspace, number, NOW, Expiry::Clear));
    spilling.spill_all();
    (0..1000).step_by(2).for_each(|number: u32| replace_one(&spilling.keyspace, &number.to_be_bytes()));
    assert_eq!(spilling.keyspace.shadowing(), 500);
    let evicted = evict(&spilling.keyspace, Eviction::AllRandom, 600).unwrap();
    spilling.check();
    let left = all_of(&spilling.keyspace, NOW);
    assert_eq!((left.len(), spilling.keyspace.len(DB)), (400, 400));
    assert!(evicted.iter().all(|number| !left.contains_key(&number.to_be_bytes()[..])));
}

#[test]
fn a_compact_hash_too_long_for_a_block_comes_back_as_it_went() {
    let mut spilling = Spilling::new();
    let thresholds = Thresholds { hash_max_listpack_value: usize::MAX, ..Thresholds::DEFAULT };
    let (mut hash, long) = (Hash::default(), vec![b'x'; 70_000]);
    for (name, value) in [("c", &b"v"[..]), ("a", &long), ("b", b"w")] {
        hash.set(name.as_bytes(), value, FieldExpiry::Clear, &thresholds, NOW);
    }
    let before = dump(CollectionRef::Hash(hash.as_ref()));
    {
        let (batch, keys) = (spilling.keyspace.enter(0), [spilling.keyspace.key(DB, b"hash")]);
        let mut edit = batch.edit(&keys, NOW, Touch::Yes);
        edit.put_collection(&keys[0], hash, Expiry::Clear);
        edit.finish();
    }
    spilling.spill_all();
    assert_eq!(spilling.cold(), 1);
    let (batch, keys) = (spilling.keyspace.enter(0), [spilling.keyspace.key(DB, b"hash")]);
    let view = batch.view(&keys, NOW, Touch::No);
    let ValueRef::Collection(collection) = view.peek(&keys[0]).unwrap().value() else {
        panic!("it is a hash")
    };
    assert_eq!(collection.encoding(), Encoding::Listpack);
    assert!(dump(collection) == before, "its fields are in another order");
}
