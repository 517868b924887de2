//! Drives a keyspace and a naive model with the same random steps and compares
//! them after each.
//!
//! `TARN_SEED` repeats a run, `TARN_STEPS` sets its length (default: some two
//! seconds). The canary plants a mistake in the model and must be caught.

use keyspace::{
    Ahead, Cursor, DbIndex, Encoding, Eviction, ExpiredKey, Expiry, KeyHasher, Keyspace, NewValue, Object,
    Options, Progress, Touch, ValueRef,
};
use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use sys::{Prng, UnixMs};

const DATABASES: u32 = 4;
const KEYS: u64 = 3000;
const SCANS_MAX: usize = 3;

type DbKey = (u32, Vec<u8>);

#[derive(Clone, Debug, PartialEq)]
struct Expected {
    value: Vec<u8>,
    encoding: Encoding,
    expires_at: Option<u64>,
}

/// A scan under way, and the keys that it must return.
struct Scan {
    db: u32,
    cursor: Cursor,
    owed: HashSet<Vec<u8>>,
}

/// What the model gets wrong on purpose.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    KeepsRemovedKeys,
}

struct Fuzz {
    keyspace: Keyspace,
    model: HashMap<DbKey, Expected>,
    scans: Vec<Scan>,
    prng: Prng,
    now: u64,
    fault: Fault,
}

fn env(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

#[test]
fn keyspace_agrees_with_a_naive_model() {
    let seed = env("TARN_SEED").unwrap_or_else(sys::prng::entropy_seed);
    println!("TARN_SEED={seed}");
    Fuzz::new(seed, Fault::None).run(env("TARN_STEPS").unwrap_or(10_000));
}

#[test]
fn canary_is_caught() {
    let result = std::panic::catch_unwind(|| Fuzz::new(1, Fault::KeepsRemovedKeys).run(5000));
    assert!(result.is_err(), "a model that keeps removed keys went unnoticed");
}

impl Fuzz {
    fn new(seed: u64, fault: Fault) -> Fuzz {
        let now = 1_700_000_000_000;
        let options = Options {
            databases: DATABASES,
            workers: 1,
            guests: 0,
            hasher: KeyHasher::from_seed(seed ^ 1),
            seed: seed ^ 2,
            now: UnixMs(now),
        };
        let keyspace = Keyspace::new(options);
        Fuzz { keyspace, model: HashMap::new(), scans: Vec::new(), prng: Prng::from_seed(seed), now, fault }
    }

    fn run(&mut self, steps: u64) {
        for step in 0..steps {
            self.step();
            self.check_counts();
            if step % 4000 == 0 {
                self.check_everything();
            }
        }
        self.check_everything();
    }

    fn step(&mut self) {
        match self.prng.below(1000) {
            0..330 => self.set(),
            330..450 => self.get(),
            450..560 => self.take_or_remove(),
            560..620 => self.rename(),
            620..700 => self.set_expiry(),
            700..780 => self.edit_bytes(),
            780..840 => self.advance_clock(),
            840..930 => self.scan_on(),
            930..960 => self.sweep(),
            960..970 => self.random_key(),
            970..974 => self.evict(),
            974..996 => self.prefetch(),
            996 => self.clear_or_swap(),
            997 => self.check_overhead(),
            998 => self.set_and_remove_many(),
            _ => self.set_many_in_one_command(),
        }
    }

    /// A key by its number: the same number is always the same key.
    fn key(&mut self) -> DbKey {
        let number = self.prng.below(KEYS);
        let mut key = number.to_string().into_bytes();
        if number == 0 {
            key.clear();
        }
        key.resize((number % 101) as usize, b'k');
        if key.len() < 5 && number > 0 {
            key = format!("{number:05}").into_bytes();
        }
        (self.prng.below(u64::from(DATABASES)) as u32, key)
    }

    fn bytes(&mut self) -> Vec<u8> {
        let len = match self.prng.below(300) {
            0 => 65_530 + self.prng.below(12),
            1 => 60_000 + self.prng.below(100_000),
            2..100 => self.prng.below(8),
            _ => self.prng.below(200),
        };
        if self.prng.one_in(4) {
            return (self.prng.next_u64() as i64 >> self.prng.below(64)).to_string().into_bytes();
        }
        (0..len).map(|i| (i * 7 + len) as u8).collect()
    }

    fn moment(&mut self) -> u64 {
        match self.prng.below(12) {
            0 => self.now - self.prng.below(3000),
            1 => self.now + self.prng.below(1 << 45),
            _ => self.now + self.prng.below(20_000),
        }
    }

    fn expiry(&mut self) -> Expiry {
        match self.prng.below(5) {
            0 => Expiry::Keep,
            1 | 2 => Expiry::Clear,
            _ => Expiry::At(UnixMs(self.moment())),
        }
    }

    fn touch(&mut self) -> Touch {
        if self.prng.one_in(2) { Touch::Yes } else { Touch::No }
    }

    fn is_live(&self, key: &DbKey) -> bool {
        self.model.get(key).is_some_and(|expected| expected.expires_at.is_none_or(|at| at > self.now))
    }

    /// Takes keys out of the model that the keyspace says have expired, and checks
    /// that those are the expired ones among the keys given.
    fn note_expired(&mut self, keys: &[&DbKey], expired: Vec<ExpiredKey>) {
        let is_gone = |key: &&&DbKey| self.model.contains_key(**key) && !self.is_live(key);
        let mut expected: Vec<DbKey> = keys.iter().filter(is_gone).map(|key| (*key).clone()).collect();
        expected.sort();
        expected.dedup();
        // They come in the order in which they were met.
        let mut expired: Vec<DbKey> = expired.into_iter().map(|e| (e.db.0, e.key.into_vec())).collect();
        expired.sort();
        assert_eq!(expired, expected);
        expired.iter().for_each(|key| drop(self.drop_from_model(key)));
    }

    fn drop_from_model(&mut self, key: &DbKey) -> Option<Expected> {
        self.disown(key);
        self.model.remove(key)
    }

    /// The key is not there throughout any more.
    fn disown(&mut self, key: &DbKey) {
        for scan in self.scans.iter_mut().filter(|scan| scan.db == key.0) {
            scan.owed.remove(&key.1);
        }
    }

    fn put_into_model(&mut self, key: &DbKey, expected: Expected) {
        self.model.insert(key.clone(), expected);
        if !self.is_live(key) {
            self.disown(key);
        }
    }

    /// Runs a closure on a locked key and notes what expired.
    fn edit<T>(
        &mut self,
        key: &DbKey,
        work: impl FnOnce(&mut keyspace::Edit<'_>, &keyspace::Key<'_>) -> T,
    ) -> T {
        let touch = self.touch();
        let batch = self.keyspace.enter(0);
        let at = self.keyspace.key(DbIndex(key.0), &key.1);
        let mut edit = batch.edit(&[at], UnixMs(self.now), touch);
        let result = work(&mut edit, &at);
        let expired = edit.finish();
        drop(batch);
        self.note_expired(&[key], expired);
        result
    }

    fn set(&mut self) {
        let (key, bytes, expiry) = (self.key(), self.bytes(), self.expiry());
        self.set_one(&key, &bytes, expiry);
    }

    fn set_one(&mut self, key: &DbKey, bytes: &[u8], expiry: Expiry) {
        let value = match self.prng.below(4) {
            0 => NewValue::Edited(bytes),
            1 => NewValue::Bytes(bytes),
            _ => NewValue::from_bytes(bytes),
        };
        let was_live = self.is_live(key);
        let was_expired = self.model.contains_key(key) && !was_live;
        self.edit(key, |edit, at| edit.set(at, value, expiry));
        let expires_at = match expiry {
            Expiry::Keep => self.model.get(key).filter(|_| was_live).and_then(|expected| expected.expires_at),
            Expiry::Clear => None,
            Expiry::At(at) => Some(at.0),
        };
        if was_expired && expires_at.is_some_and(|at| at <= self.now) {
            // The key was to be freed when the access ended, and so was the new value.
            return;
        }
        let encoding = match value {
            NewValue::Int(_) => Encoding::Int,
            NewValue::Bytes(b) if b.len() <= 44 => Encoding::Embstr,
            _ => Encoding::Raw,
        };
        self.put_into_model(key, Expected { value: bytes.to_vec(), encoding, expires_at });
    }

    fn get(&mut self) {
        let keys: Vec<DbKey> = (0..1 + self.prng.below(3)).map(|_| self.key()).collect();
        let touch = self.touch();
        let batch = self.keyspace.enter(0);
        let at: Vec<_> = keys.iter().map(|key| self.keyspace.key(DbIndex(key.0), &key.1)).collect();
        let view = batch.view(&at, UnixMs(self.now), touch);
        for (key, at) in keys.iter().zip(&at) {
            let found = if self.now.is_multiple_of(2) { view.get(at) } else { view.peek(at) };
            assert_eq!(found.map(expected_of), self.model.get(key).filter(|_| self.is_live(key)).cloned());
            assert_eq!(found.map(|object| object.key()), found.map(|_| &key.1[..]));
        }
        let expired = view.finish();
        drop(batch);
        self.note_expired(&keys.iter().collect::<Vec<_>>(), expired);
    }

    fn take_or_remove(&mut self) {
        let key = self.key();
        let takes = self.prng.one_in(2);
        let was_live = self.is_live(&key);
        let found = self.edit(&key, |edit, at| match takes {
            true => edit.take(at).map(|detached| expected_of(detached.object())),
            false => edit.remove(at).then(|| edit.get(at).map_or_else(dummy, expected_of)),
        });
        assert_eq!(found.is_some(), was_live);
        if was_live && self.fault != Fault::KeepsRemovedKeys {
            let expected = self.drop_from_model(&key).expect("it is live");
            assert!(!takes || found == Some(expected));
        }
    }

    fn rename(&mut self) {
        let (from, to) = (self.key(), self.key());
        if from == to {
            return;
        }
        let expires_at = self.prng.one_in(2).then(|| self.moment());
        let batch = self.keyspace.enter(0);
        let (a, b) = (self.keyspace.key(DbIndex(from.0), &from.1), self.keyspace.key(DbIndex(to.0), &to.1));
        let mut edit = batch.edit(&[a, b], UnixMs(self.now), Touch::Yes);
        edit.get(&b);
        let taken = edit.take(&a);
        let was_there = taken.is_some();
        if let Some(detached) = taken {
            edit.put(&b, detached, expires_at.map(UnixMs));
        }
        assert_eq!(was_there, self.is_live(&from));
        let expired = edit.finish();
        drop(batch);
        let mut moved = was_there.then(|| self.drop_from_model(&from).expect("it is live"));
        // What was put with an expiry in the past goes at once, and is told.
        if let Some(moved) = &mut moved {
            moved.expires_at = expires_at;
        }
        let to_was_expired = self.model.contains_key(&to) && !self.is_live(&to);
        assert_eq!(expired.iter().any(|e| e.db.0 == to.0 && *e.key == to.1), to_was_expired);
        expired.iter().for_each(|e| drop(self.drop_from_model(&(e.db.0, e.key.to_vec()))));
        if let Some(moved) = moved {
            let gone_at_once = to_was_expired && moved.expires_at.is_some_and(|at| at <= self.now);
            if !gone_at_once {
                self.put_into_model(&to, moved);
            }
        }
    }

    fn set_expiry(&mut self) {
        let key = self.key();
        let expires_at = (!self.prng.one_in(4)).then(|| self.moment());
        let was_live = self.is_live(&key);
        let found = self.edit(&key, |edit, at| edit.set_expiry(at, expires_at.map(UnixMs)));
        assert_eq!(found, was_live);
        if found {
            let expected = Expected { expires_at, ..self.model[&key].clone() };
            self.put_into_model(&key, expected);
        }
    }

    fn edit_bytes(&mut self) {
        let key = self.key();
        let old = self.model.get(&key).filter(|_| self.is_live(&key)).cloned();
        let old_len = old.as_ref().map_or(0, |expected| expected.value.len() as u64);
        let len = match self.prng.below(30) {
            0 => self.prng.below(150_000),
            1..10 => self.prng.below(200),
            _ => old_len + self.prng.below(40),
        } as usize;
        let mut value = old.as_ref().map_or(Vec::new(), |expected| expected.value.clone());
        value.resize(len, 0);
        let (at, byte) = (self.prng.below(len as u64 + 1) as usize, self.prng.next_u64() as u8);
        value.iter_mut().skip(at).take(1).for_each(|b| *b = byte);
        self.edit(&key, |edit, key| {
            edit.bytes_mut(key, len).iter_mut().skip(at).take(1).for_each(|b| *b = byte);
        });
        let expires_at = old.and_then(|expected| expected.expires_at);
        self.put_into_model(&key, Expected { value, encoding: Encoding::Raw, expires_at });
    }

    fn advance_clock(&mut self) {
        self.now += if self.prng.one_in(50) { 1_000_000 } else { self.prng.below(600) };
        let is_gone = |expected: &Expected| expected.expires_at.is_some_and(|at| at <= self.now);
        let gone: Vec<DbKey> =
            self.model.iter().filter(|(_, e)| is_gone(e)).map(|(key, _)| key.clone()).collect();
        gone.iter().for_each(|key| self.disown(key));
    }

    fn scan_on(&mut self) {
        if self.scans.len() < SCANS_MAX && self.prng.one_in(3) {
            let db = self.prng.below(u64::from(DATABASES)) as u32;
            let is_live = |expected: &Expected| expected.expires_at.is_none_or(|at| at > self.now);
            let owed = self.model.iter().filter(|(key, e)| key.0 == db && is_live(e));
            let owed = owed.map(|(key, _)| key.1.clone()).collect();
            self.scans.push(Scan { db, cursor: Cursor(0), owed });
        }
        let Some(mut scan) = self.scans.pop() else { return };
        let count = 1 + self.prng.below(200) as usize;
        let batch = self.keyspace.enter(0);
        let next = batch.try_scan(DbIndex(scan.db), scan.cursor, count, UnixMs(self.now), |object| {
            let key = (scan.db, object.key().to_vec());
            assert!(self.is_live(&key), "a scan returned a key that is not there");
            scan.owed.remove(&key.1);
        });
        scan.cursor = next.expect("nobody holds anything for long");
        assert!(scan.cursor.0 < 1 << 62);
        if scan.cursor.0 == 0 {
            assert!(scan.owed.is_empty(), "a scan left out {} keys", scan.owed.len());
        } else {
            self.scans.insert(0, scan);
        }
    }

    fn sweep(&mut self) {
        self.keyspace.set_active_expiry(!self.prng.one_in(8));
        let mut steps = if self.prng.one_in(2) { u64::MAX } else { self.prng.below(30) };
        let mut gone = Vec::new();
        let batch = self.keyspace.enter(0);
        let has_budget = || {
            steps = steps.saturating_sub(1);
            steps > 0
        };
        let progress =
            batch.sweep_expired(UnixMs(self.now), has_budget, |db, key| gone.push((db.0, key.to_vec())));
        drop(batch);
        for key in &gone {
            assert!(!self.is_live(key) && self.drop_from_model(key).is_some(), "a sweep freed a live key");
        }
        self.keyspace.set_active_expiry(true);
        if progress == Progress::Done && steps > u64::MAX / 2 && !gone.is_empty() {
            let is_overdue = |e: &Expected| e.expires_at.is_some_and(|at| at + 128 <= self.now);
            assert!(!self.model.values().any(is_overdue), "a sweep left an expired key");
        }
    }

    fn random_key(&mut self) {
        let db = self.prng.below(u64::from(DATABASES)) as u32;
        let batch = self.keyspace.enter(0);
        match batch.try_random_key(DbIndex(db), UnixMs(self.now), |_| ()).flatten() {
            Some(key) => assert!(self.is_live(&(db, key.into_vec()))),
            None => assert!(!self.model.keys().any(|key| key.0 == db && self.is_live(key))),
        }
        let average = batch.average_ttl_ms(DbIndex(db), UnixMs(self.now));
        assert!(average == 0 || self.keyspace.expiring(DbIndex(db)) > 0);
    }

    fn evict(&mut self) {
        use Eviction::*;
        let policies =
            [Never, AllLru, ExpiringLru, AllLfu, ExpiringLfu, AllRandom, ExpiringRandom, SoonestExpiry];
        let eviction = policies[self.prng.below(8) as usize];
        self.keyspace.policy().set_eviction(eviction);
        self.keyspace.policy().set_memory_bytes_max(100);
        let used = Cell::new(100 + self.prng.below(30));
        let mut gone = Vec::new();
        let batch = self.keyspace.enter(0);
        let result = batch.evict(
            UnixMs(self.now),
            || used.get(),
            |db, key| {
                used.set(used.get() - 1);
                gone.push((db.0, key.to_vec()));
            },
        );
        drop(batch);
        for key in &gone {
            let expected = self.drop_from_model(key).expect("only a key that is there can be evicted");
            assert!(!eviction.expiring_only() || expected.expires_at.is_some());
        }
        assert!(eviction != Never || gone.is_empty());
        match result {
            Ok(progress) => assert!(progress == Progress::Done && used.get() <= 100),
            Err(_) => {
                let may_go =
                    |e: &Expected| eviction != Never && (!eviction.expiring_only() || e.expires_at.is_some());
                assert!(!self.model.values().any(may_go), "eviction found no key though there is one");
            }
        }
    }

    fn prefetch(&mut self) {
        let key = self.key();
        let batch = self.keyspace.enter(0);
        let at = self.keyspace.key(DbIndex(key.0), &key.1);
        batch.prefetch_slot(at.db, at.slot);
        let element = self.prng.one_in(2).then_some(at.position);
        batch.prefetch(at.db, std::iter::once(Ahead { slot: at.slot, position: at.position, element }));
    }

    fn clear_or_swap(&mut self) {
        let (one, other) =
            (self.prng.below(u64::from(DATABASES)) as u32, self.prng.below(u64::from(DATABASES)) as u32);
        let swaps = self.prng.one_in(2);
        let keys = self.keyspace.enter(0).exclusively(UnixMs(self.now), Touch::Yes, |all| {
            if swaps {
                all.swap(DbIndex(one), DbIndex(other));
                return None;
            }
            Some(all.clear(DbIndex(one)).keys())
        });
        self.scans.retain(|scan| scan.db != one && scan.db != other);
        let new_number = |db: u32| match db {
            db if swaps && db == one => other,
            db if swaps && db == other => one,
            db => db,
        };
        let model = std::mem::take(&mut self.model);
        let before = model.len();
        let kept = model.into_iter().filter(|((db, _), _)| swaps || *db != one);
        self.model = kept.map(|((db, key), expected)| ((new_number(db), key), expected)).collect();
        assert_eq!(keys.unwrap_or(0), (before - self.model.len()) as u64);
    }

    /// The same few keys come and go with an expiry: timers must not pile up.
    fn set_and_remove_many(&mut self) {
        let key = self.key();
        for _ in 0..300 {
            let at = Expiry::At(UnixMs(self.now + 1 + self.prng.below(1 << 20)));
            self.set_one(&key, b"short-lived", at);
            self.edit(&key, |edit, at| edit.remove(at));
            self.drop_from_model(&key);
        }
    }

    fn set_many_in_one_command(&mut self) {
        let keys: Vec<DbKey> = (0..200).map(|_| self.key()).collect();
        let now = self.now;
        let expired = self.keyspace.enter(0).exclusively(UnixMs(now), Touch::Yes, |all| {
            let mut edit = all.edit();
            for key in &keys {
                edit.set(&self.keyspace.key(DbIndex(key.0), &key.1), NewValue::Int(7), Expiry::Clear);
            }
            edit.finish()
        });
        self.note_expired(&keys.iter().collect::<Vec<_>>(), expired);
        for key in &keys {
            let expected = Expected { value: b"7".to_vec(), encoding: Encoding::Int, expires_at: None };
            self.put_into_model(key, expected);
        }
    }

    fn check_counts(&self) {
        if self.prng.clone().one_in(16) {
            for db in 0..DATABASES {
                let of_db = || self.model.iter().filter(|(key, _)| key.0 == db);
                assert_eq!(self.keyspace.len(DbIndex(db)), of_db().count() as u64);
                let expiring = of_db().filter(|(_, expected)| expected.expires_at.is_some()).count();
                assert_eq!(self.keyspace.expiring(DbIndex(db)), expiring as u64);
            }
        }
    }

    /// Timers have at most two entries an expiring key, some dozens a slot, and
    /// tables at most a few words a key.
    fn check_overhead(&self) {
        let slots = u64::from(DATABASES) * 16_384 * (64 + 4);
        let most = slots + self.model.len() as u64 * 512 + 300 * 2048;
        let bytes = self.keyspace.enter(0).overhead_bytes() as u64;
        assert!(bytes <= most, "{bytes} bytes for {} keys", self.model.len());
    }

    fn check_everything(&self) {
        let batch = self.keyspace.enter(0);
        let mut found = HashMap::new();
        for db in 0..DATABASES {
            batch.for_each(DbIndex(db), UnixMs(0), |object| {
                let before = found.insert((db, object.key().to_vec()), expected_of(object));
                assert!(before.is_none(), "a key is there twice");
            });
        }
        assert!(found == self.model, "the contents differ");
    }
}

fn expected_of(object: Object<'_>) -> Expected {
    assert!(object.bytes(0) > object.key().len());
    let value = match object.value() {
        ValueRef::Int(number) => number.to_string().into_bytes(),
        ValueRef::Bytes(bytes) => bytes.to_vec(),
        ValueRef::Collection(other) => panic!("the model has strings only, not {other:?}"),
    };
    Expected { value, encoding: object.encoding(), expires_at: object.expires_at().map(|at| at.0) }
}

fn dummy() -> Expected {
    Expected { value: Vec::new(), encoding: Encoding::Raw, expires_at: None }
}
