//! One slot against a naive model, with so many keys that its table is split.

use super::*;
use crate::ids::{DbIndex, Slot};
use std::collections::{HashMap, HashSet};
use sys::Prng;
use value::limits::TABLE_SEGMENT_WORDS_MAX;

const EPOCH: u64 = 1_000_000;

struct Fuzz {
    hasher: KeyHasher,
    slot: SlotKeys,
    model: HashMap<u64, Option<u64>>,
    prng: Prng,
    now: u64,
    /// A scan under way, and the keys that it must return.
    scan: Option<Position>,
    owed: HashSet<u64>,
}

/// Keys by number.
fn name(number: u64) -> [u8; 8] {
    number.to_le_bytes()
}

fn number(object: Object<'_>) -> u64 {
    u64::from_le_bytes(object.key().try_into().expect("keys of this test have 8 bytes"))
}

impl Fuzz {
    fn new(seed: u64) -> Fuzz {
        Fuzz {
            hasher: KeyHasher::from_seed(seed),
            slot: SlotKeys::default(),
            model: HashMap::new(),
            prng: Prng::from_seed(seed),
            now: EPOCH,
            scan: None,
            owed: HashSet::new(),
        }
    }

    fn frame(hasher: &KeyHasher) -> Frame<'_> {
        Frame { hasher, epoch: Epoch::new(UnixMs(EPOCH)) }
    }

    fn set(&mut self, number: u64, expires_at: Option<u64>) {
        let name = name(number);
        let key = Key { slot: Slot(0), ..self.hasher.key(DbIndex(0), &name) };
        let (frame, at) = (Fuzz::frame(&self.hasher), expires_at.map(UnixMs));
        let value = NewValue::Int(number as i64);
        let old = self.model.insert(number, expires_at);
        let change = match self.slot.find(&key) {
            Some(place) if self.prng.one_in(2) => self.slot.set_expiry(frame, place, &key, at),
            Some(place) => self.slot.replace(frame, place, &key, value, at, 0),
            None => self.slot.insert(frame, &key, value, at, 0),
        };
        let expiring = i64::from(expires_at.is_some()) - i64::from(old.flatten().is_some());
        assert_eq!(change, Change { keys: i64::from(old.is_none()), expiring, ..Change::default() });
    }

    fn remove(&mut self, number: u64) {
        let name = name(number);
        let place = self.slot.find(&self.hasher.key(DbIndex(0), &name));
        assert_eq!(place.is_some(), self.model.remove(&number).is_some());
        place.map(|place| self.slot.remove(Fuzz::frame(&self.hasher), place));
        self.owed.remove(&number);
    }

    /// Random steps among `keys` keys, of which `sets` in a hundred set one.
    fn churn(&mut self, steps: u64, keys: u64, sets: u64) {
        for step in 0..steps {
            let number = self.prng.below(keys);
            if self.prng.below(100) < sets {
                let expires_at = self.prng.one_in(3).then(|| self.now + self.prng.below(30_000));
                self.set(number, expires_at);
            } else {
                self.remove(number);
            }
            match step % 64 {
                0 => self.scan_on(),
                32 => self.sweep(),
                _ => self.now += u64::from(self.prng.one_in(32)),
            }
            assert_eq!(self.slot.table().len(), self.model.len());
            let timers = self.slot.timers.as_ref().map_or(0, |timers| timers.len());
            assert!(
                timers <= 2 * self.slot.expiring() + STALE_TIMERS_MIN + self.model.len() / 4,
                "timers pile up"
            );
        }
        self.check();
    }

    fn scan_on(&mut self) {
        if self.scan.is_none() {
            self.scan = Some(Position(0));
            self.owed = self.model.keys().copied().collect();
        }
        let from = self.scan.expect("begun above");
        let mut returned = Vec::new();
        self.scan = self.slot.table().scan(from, 500, |object| returned.push(number(object)));
        for number in returned {
            assert!(self.model.contains_key(&number));
            self.owed.remove(&number);
        }
        assert!(self.scan.is_none_or(|at| at > from), "a scan goes on");
        assert!(self.scan.is_some() || self.owed.is_empty(), "a scan left keys out");
    }

    fn sweep(&mut self) {
        let (frame, mut gone) = (Fuzz::frame(&self.hasher), Vec::new());
        let most = self.prng.below(300) as usize;
        let visit = |key: &[u8], _: Over<'_>| gone.push(u64::from_le_bytes(key.try_into().expect("8 bytes")));
        let (change, sweep) = self.slot.sweep(frame, UnixMs(self.now), most, |_, _| true, visit);
        assert_eq!((change.keys, change.expiring), (-(gone.len() as i64), -(gone.len() as i64)));
        for number in gone {
            let expires_at = self.model.remove(&number).expect("a swept key was there");
            assert!(expires_at.is_some_and(|at| at <= self.now));
            self.owed.remove(&number);
        }
        if sweep == Sweep::Done {
            assert!(!self.model.values().any(|at| at.is_some_and(|at| at + 128 <= self.now)));
        }
    }

    fn check(&self) {
        let found: HashMap<u64, Option<u64>> = self
            .slot
            .table()
            .iter()
            .map(|object| (number(object), object.expires_at().map(|at| at.0)))
            .collect();
        assert!(found == self.model, "the contents differ");
        assert_eq!(self.slot.table().iter().count(), self.model.len());
        assert_eq!(self.slot.expiring(), self.model.values().flatten().count());
        for object in self.slot.table().iter() {
            let position = self.hasher.position(object.key());
            let place = self.slot.table().find_position(position, &self.hasher).expect("it is there");
            assert_eq!(self.slot.object(place).key(), object.key());
        }
        self.slot.table().check();
        self.check_timers();
    }
}

impl Fuzz {
    /// Each expiring key has a timer in time, and the slot knows the first of all.
    fn check_timers(&self) {
        let entries = self.slot.timers.as_ref().map_or(Vec::new(), |timers| timers.entries().collect());
        let first = entries.iter().map(|(deadline, _)| *deadline).min().unwrap_or(Deadline::NEVER);
        assert!(self.slot.next_deadline() <= first);
        let mut earliest = HashMap::new();
        for (deadline, prefix) in entries {
            let known = earliest.entry(prefix).or_insert(deadline);
            *known = deadline.min(*known);
        }
        for (number, at) in self.model.iter().filter_map(|(number, at)| at.map(|at| (number, at))) {
            let prefix = prefix_of(self.hasher.position(&name(*number)));
            let deadline = Epoch::new(UnixMs(EPOCH)).deadline_of(UnixMs(at));
            assert!(
                earliest.get(&prefix).is_some_and(|earliest| *earliest <= deadline),
                "{number} has no timer"
            );
        }
    }
}

fn seed() -> u64 {
    let seed = std::env::var("TARN_SEED").ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(sys::prng::entropy_seed);
    println!("TARN_SEED={seed}");
    seed
}

#[test]
fn slot_that_outgrows_one_segment_agrees_with_a_model() {
    let keys = 5 * TABLE_SEGMENT_WORDS_MAX as u64;
    let mut fuzz = Fuzz::new(seed());
    fuzz.churn(keys / 2, keys, 100);
    assert!(fuzz.slot.table().hint().is_none(), "the table has a directory");
    fuzz.churn(keys / 2, keys, 60);
    fuzz.churn(keys, keys, 10);
    fuzz.churn(keys / 4, keys, 70);
    (0..keys).for_each(|number| fuzz.remove(number));
    fuzz.check();
    assert_eq!(fuzz.slot.overhead_bytes(), 0);
    fuzz.churn(5000, 1000, 80);
}

#[test]
fn small_slot_agrees_with_a_model() {
    let mut fuzz = Fuzz::new(seed());
    for keys in [1, 2, 3, 10, 100, 1000] {
        fuzz.churn(4000, keys, 50);
    }
}

#[test]
fn every_expiring_key_has_a_timer_in_time() {
    let mut fuzz = Fuzz::new(seed());
    for round in 0..40 {
        fuzz.churn(500, 200, 70);
        fuzz.now += round * 100;
    }
}
