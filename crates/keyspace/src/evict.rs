//! Eviction: frees keys when memory is full, as the policy says whom.
//!
//! A worker calls it before a command that may need memory, with no slot locked.
//! It samples a few keys of each database into a pool of the best candidates seen
//! so far, frees the best, and samples again. Each worker has a pool of its own:
//! workers that evict at once get in each other's way only at the slots.
//!
//! Who is told that a key went takes memory for that, often more than the key had: clients that track it, the log. That is
//! given back when it is out, and until then no eviction could make up for it. So what is to be freed is measured once, and
//! only what the removals themselves free counts for it, whoever of the workers frees it.
//!
//! Invariants of a pool:
//! 1. Candidates are in ascending order of score, and all were scored by one policy.
//! 2. There are at most [`POOL_CANDIDATES_MAX`], each key once.

use crate::changes::{Change, Class, What};
use crate::clock;
use crate::ids::{DbIndex, Position, Slot};
use crate::keyspace::Batch;
use crate::limits::{EVICT_COLD_COST, EVICT_KEYS_MAX, EVICT_ROUNDS_MAX, POOL_CANDIDATES_MAX};
use crate::locks;
use crate::object::Object;
use crate::policy::{Eviction, Policy, Removal};
use crate::reaper;
use crate::sample::Sampled;
use crate::sweep::Progress;
use std::fmt;
use std::sync::atomic::Ordering;
use sys::UnixMs;
use value::table::Cold;

/// Memory is full and the policy allows no key to be freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory;

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("more memory is used than 'maxmemory' allows, and no key can be evicted")
    }
}

impl std::error::Error for OutOfMemory {}

/// A key that may be evicted, and how well it suits: the higher, the better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Candidate {
    score: u64,
    db: DbIndex,
    slot: Slot,
    who: Who,
}

/// What is known of a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    /// It is in memory, at this position.
    Here(Position),
    /// It is on disk: its word.
    Cold(Cold),
    /// It was on disk: how the position begins of one that expires.
    Timed(u32),
}

/// The best candidates that a worker has seen.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    scored_by: Option<Eviction>,
    candidates: Vec<Candidate>,
}

impl Pool {
    /// Forgets candidates that another policy has scored.
    fn begin(&mut self, policy: Eviction) {
        if self.scored_by.replace(policy) != Some(policy) {
            self.candidates.clear();
        }
    }

    fn offer(&mut self, candidate: Candidate) {
        let is_same = |c: &Candidate| (c.db, c.slot, c.who) == (candidate.db, candidate.slot, candidate.who);
        if self.candidates.iter().any(is_same) {
            return;
        }
        if self.candidates.len() == POOL_CANDIDATES_MAX {
            if candidate.score <= self.candidates[0].score {
                return;
            }
            self.candidates.remove(0);
        }
        let at = self.candidates.partition_point(|c| c.score <= candidate.score);
        self.candidates.insert(at, candidate);
    }

    fn take_best(&mut self) -> Option<Candidate> {
        self.candidates.pop()
    }
}

impl Batch<'_> {
    /// Frees keys until they had as much as `used_bytes` was above `maxmemory` at first, or until it is not any more.
    /// `Progress::More` means that a call's limit of keys was reached: commands may go on, and the next call continues. The
    /// caller must hold no slot.
    ///
    /// `visit_evicted` gets each key while it is still there and its slot locked.
    ///
    /// # Errors
    /// There is no key that the policy allows to be freed.
    pub fn evict(
        &self,
        now: UnixMs,
        used_bytes: impl Fn() -> u64,
        mut visit_evicted: impl FnMut(DbIndex, &[u8]),
    ) -> Result<Progress, OutOfMemory> {
        let policy = self.keyspace.policy();
        let used_bytes = || reaper::without_pending(used_bytes());
        let is_full = || policy.memory_bytes_max() > 0 && used_bytes() > policy.memory_bytes_max();
        let freed_bytes = || self.keyspace.evicted_bytes.load(Ordering::Relaxed);
        let excess_bytes = used_bytes().saturating_sub(policy.memory_bytes_max());
        let goal = freed_bytes().saturating_add_unsigned(excess_bytes);
        let needs_more = || is_full() && freed_bytes() < goal;
        let mut cost = 0;
        while cost < EVICT_KEYS_MAX {
            if !needs_more() {
                return Ok(Progress::Done);
            }
            if !self.may_remove() {
                return Ok(Progress::More);
            }
            let eviction = policy.eviction();
            let evicted = match eviction {
                Eviction::Never => None,
                _ => self.evict_one(eviction, now, &mut visit_evicted),
            };
            match evicted.ok_or(OutOfMemory)? {
                Who::Here(_) => cost += 1,
                Who::Cold(_) | Who::Timed(_) => cost += EVICT_COLD_COST,
            }
        }
        Ok(if needs_more() { Progress::More } else { Progress::Done })
    }

    /// Frees the best key that can be found, and says where that was. None: there is none.
    fn evict_one(
        &self,
        eviction: Eviction,
        now: UnixMs,
        visit: &mut impl FnMut(DbIndex, &[u8]),
    ) -> Option<Who> {
        let mut pool = self.state().pool.borrow_mut();
        pool.begin(eviction);
        // Candidates may have gone or been used since; then others are looked for.
        for _ in 0..EVICT_ROUNDS_MAX {
            self.fill(&mut pool, eviction, now);
            while let Some(candidate) = pool.take_best() {
                if self.evict_candidate(candidate, eviction, now, visit) {
                    return Some(candidate.who);
                }
            }
        }
        None
    }

    /// Samples every database.
    fn fill(&self, pool: &mut Pool, eviction: Eviction, now: UnixMs) {
        let wanted = self.keyspace.policy().samples().max(1) as usize;
        for db in (0..self.keyspace.databases()).map(DbIndex) {
            let offer = |slot: Slot, sampled: Sampled<'_>| {
                let (who, score) = match sampled {
                    Sampled::Here(object) => {
                        let position = self.keyspace.position(object.key());
                        (Who::Here(position), self.score(object, eviction, now))
                    }
                    Sampled::Cold(cold) => (Who::Cold(cold), self.score_of_cold(eviction, None)),
                    Sampled::Timed { prefix, expires_at } => {
                        (Who::Timed(prefix), self.score_of_cold(eviction, Some(expires_at)))
                    }
                };
                pool.offer(Candidate { score, db, slot, who });
            };
            if eviction.expiring_only() {
                self.sample_expiring(db, wanted, offer);
            } else if !self.is_empty(db) {
                self.sample_words(db, wanted, offer);
            }
        }
    }

    /// Frees a candidate unless it is gone or has become worth keeping.
    fn evict_candidate(
        &self,
        candidate: Candidate,
        eviction: Eviction,
        now: UnixMs,
        visit: &mut impl FnMut(DbIndex, &[u8]),
    ) -> bool {
        let Candidate { db, slot, who, score } = candidate;
        let database = self.keyspace.database(db);
        let Some(mut keys) = locks::lock_soon(&database.slot(slot).keys) else { return false };
        let id = (self.keyspace.physical(db), slot);
        let before = reaper::bytes_of_this_thread();
        let place = match who {
            Who::Here(position) if !self.resolve_position(id, &mut keys, position) => None,
            Who::Here(position) => keys.find_position(self.keyspace.frame(), position),
            Who::Cold(cold) => self.warm_word(id, &mut keys, cold),
            Who::Timed(prefix) => self.warm_timed(id, &mut keys, prefix),
        };
        let Some(place) = place else { return false };
        // To read a key from disk takes what its removal gives back.
        let read_bytes = reaper::bytes_of_this_thread() - before;
        let object = keys.object(place);
        let may_go = !eviction.expiring_only() || object.expires_at().is_some();
        // One that was on disk counts as used now that it is not.
        let is_comparable = matches!(who, Who::Here(_)) && !eviction.is_random();
        if !may_go || is_comparable && self.score(object, eviction, now) < score {
            return false;
        }
        visit(db, object.key());
        self.add_removal(db, now, object.key(), Removal::Eviction);
        let changes = match self.keyspace.interest().is_empty() {
            true => Vec::new(),
            false => told(db, object, now).to_vec(),
        };
        let before = reaper::bytes_of_this_thread();
        let change = keys.remove(self.keyspace.frame(), place);
        let freed_bytes = before - reaper::bytes_of_this_thread() - read_bytes;
        self.keyspace.evicted_bytes.fetch_add(freed_bytes, Ordering::Relaxed);
        self.note(id, &keys, change);
        self.keyspace.stats().evicted.add(1);
        self.settle(id);
        self.tell_gone(&changes);
        true
    }

    fn score(&self, object: Object<'_>, eviction: Eviction, now: UnixMs) -> u64 {
        match eviction {
            Eviction::AllLru | Eviction::ExpiringLru => object.idle_seconds(now),
            Eviction::AllLfu | Eviction::ExpiringLfu => {
                255 - u64::from(object.frequency(self.keyspace.policy(), now))
            }
            Eviction::SoonestExpiry => u64::MAX - object.expires_at().map_or(u64::MAX, |at| at.0),
            Eviction::Never | Eviction::AllRandom | Eviction::ExpiringRandom => self.random(),
        }
    }

    /// What is on disk was used less than anything in memory.
    fn score_of_cold(&self, eviction: Eviction, expires_at: Option<UnixMs>) -> u64 {
        match eviction {
            Eviction::SoonestExpiry => u64::MAX - expires_at.map_or(u64::MAX, |at| at.0),
            Eviction::AllRandom | Eviction::ExpiringRandom => self.random(),
            _ => u64::MAX,
        }
    }
}

/// How much a key was used.
impl Object<'_> {
    /// Seconds since the last use, if access clocks count seconds (OBJECT IDLETIME).
    pub fn idle_seconds(&self, now: UnixMs) -> u64 {
        clock::idle_seconds(self.clock(), now)
    }

    /// The logarithmic counter of uses, if access clocks count those (OBJECT FREQ).
    pub fn frequency(&self, policy: &Policy, now: UnixMs) -> u8 {
        clock::frequency(self.clock(), policy, now) as u8
    }
}

/// What is told of a key that is evicted.
fn told(db: DbIndex, object: Object<'_>, now: UnixMs) -> [Change; 2] {
    let gone = if object.is_expired(now) { What::Over } else { What::Modified };
    [What::Event(Class::EVICTED, "evicted"), gone].map(|what| Change { db, key: object.key().into(), what })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Expiry;
    use crate::fixture::{DB, NOW, get, new_keyspace, number, seconds_later, set};
    use crate::keyspace::Keyspace;
    use std::cell::Cell;

    /// Evicts so many keys and returns their numbers.
    fn evict(keyspace: &Keyspace, policy: Eviction, keys: u64, now: UnixMs) -> Result<Vec<u32>, OutOfMemory> {
        keyspace.policy().set_eviction(policy);
        keyspace.policy().set_memory_bytes_max(1000);
        let used = Cell::new(1000 + keys);
        let mut evicted = Vec::new();
        let visit = |_, key: &[u8]| {
            used.set(used.get() - 1);
            evicted.push(number(key));
        };
        let progress = keyspace.enter(0).evict(now, || used.get(), visit)?;
        assert_eq!(progress == Progress::More, used.get() > 1000);
        assert_eq!(keyspace.stats().evicted.get(), evicted.len() as u64);
        Ok(evicted)
    }

    fn mean(numbers: &[u32]) -> u32 {
        numbers.iter().sum::<u32>() / numbers.len() as u32
    }

    #[test]
    fn lru_evicts_keys_that_were_not_used_for_long() {
        let keyspace = new_keyspace(1);
        (0..1000).for_each(|number| set(&keyspace, number, seconds_later(number.into()), Expiry::Clear));
        let evicted = evict(&keyspace, Eviction::AllLru, 200, seconds_later(2000)).unwrap();
        assert!(mean(&evicted) < 250, "the mean age is {}", mean(&evicted));
    }

    #[test]
    fn lfu_keeps_keys_that_are_used_often() {
        let keyspace = new_keyspace(1);
        keyspace.policy().set_eviction(Eviction::AllLfu);
        (0..1000).for_each(|number| set(&keyspace, number, NOW, Expiry::Clear));
        for _ in 0..100 {
            (0..100).for_each(|number| assert!(get(&keyspace, number, NOW)));
        }
        let evicted = evict(&keyspace, Eviction::AllLfu, 800, NOW).unwrap();
        let often_used = evicted.iter().filter(|number| **number < 100).count();
        assert!(often_used < 5, "{often_used} keys that were used often went");
    }

    #[test]
    fn soonest_expiry_goes_first_and_lasting_keys_never() {
        let keyspace = new_keyspace(1);
        for number in 0..1000 {
            let at = seconds_later(10 + u64::from(number));
            set(&keyspace, number, NOW, if number % 2 == 0 { Expiry::At(at) } else { Expiry::Clear });
        }
        let evicted = evict(&keyspace, Eviction::SoonestExpiry, 100, NOW).unwrap();
        assert!(mean(&evicted) < 250 && evicted.iter().all(|number| number % 2 == 0));
        assert_eq!(evict(&keyspace, Eviction::ExpiringRandom, 1000, NOW), Err(OutOfMemory));
        assert_eq!((keyspace.len(DB), keyspace.expiring(DB)), (500, 0));
    }

    #[test]
    fn the_only_key_of_a_database_is_found() {
        for policy in [Eviction::AllLru, Eviction::ExpiringLfu, Eviction::AllRandom] {
            let keyspace = new_keyspace(1);
            set(&keyspace, 7, NOW, Expiry::At(seconds_later(100)));
            assert_eq!(evict(&keyspace, policy, 1, NOW), Ok(vec![7]));
        }
    }

    #[test]
    fn candidates_that_were_used_meanwhile_stay() {
        let keyspace = new_keyspace(1);
        (0..2).for_each(|number| set(&keyspace, number, NOW, Expiry::Clear));
        let first = evict(&keyspace, Eviction::AllLru, 1, seconds_later(100)).unwrap();
        let other = 1 - first[0];
        assert!(get(&keyspace, other, seconds_later(100)));
        set(&keyspace, 7, seconds_later(50), Expiry::Clear);
        keyspace.stats().evicted.reset();
        assert_eq!(evict(&keyspace, Eviction::AllLru, 1, seconds_later(100)), Ok(vec![7]));
    }

    #[test]
    fn one_call_frees_a_limited_number_of_keys() {
        let keyspace = new_keyspace(1);
        (0..3000).for_each(|number| set(&keyspace, number, NOW, Expiry::Clear));
        assert_eq!(evict(&keyspace, Eviction::AllRandom, 3000, NOW).unwrap().len(), EVICT_KEYS_MAX);
        keyspace.stats().evicted.reset();
        assert_eq!(evict(&keyspace, Eviction::Never, 1, NOW), Err(OutOfMemory));
    }
}
