//! Eviction: frees keys when memory is full, as the policy says whom.
//!
//! A worker calls it before a command that may need memory, with no slot locked.
//! It samples a few keys of each database into a pool of the best candidates seen
//! so far, frees the best, and samples again. Each worker has a pool of its own:
//! workers that evict at once get in each other's way only at the slots.
//!
//! Invariants of a pool:
//! 1. Candidates are in ascending order of score, and all were scored by one policy.
//! 2. There are at most [`POOL_CANDIDATES_MAX`], each key once.

use crate::clock;
use crate::ids::{DbIndex, Position, Slot};
use crate::keyspace::Batch;
use crate::limits::{EVICT_KEYS_MAX, EVICT_ROUNDS_MAX, POOL_CANDIDATES_MAX};
use crate::object::Object;
use crate::policy::{Eviction, Policy};
use crate::sweep::Progress;
use std::fmt;
use sys::UnixMs;

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
    position: Position,
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
        let is_same =
            |c: &Candidate| (c.db, c.slot, c.position) == (candidate.db, candidate.slot, candidate.position);
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
    /// Frees keys until `used_bytes` is no more than `maxmemory`. `Progress::More`
    /// means that a call's limit of keys was reached: commands may go on, and the
    /// next call continues. The caller must hold no slot.
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
        let is_full = || policy.memory_bytes_max() > 0 && used_bytes() > policy.memory_bytes_max();
        for _ in 0..EVICT_KEYS_MAX {
            if !is_full() {
                return Ok(Progress::Done);
            }
            let eviction = policy.eviction();
            if eviction == Eviction::Never || !self.evict_one(eviction, now, &mut visit_evicted) {
                return Err(OutOfMemory);
            }
        }
        Ok(if is_full() { Progress::More } else { Progress::Done })
    }

    /// Frees the best key that can be found. False: there is none.
    fn evict_one(&self, eviction: Eviction, now: UnixMs, visit: &mut impl FnMut(DbIndex, &[u8])) -> bool {
        let mut pool = self.state().pool.borrow_mut();
        pool.begin(eviction);
        // Candidates may have gone or been used since; then others are looked for.
        for _ in 0..EVICT_ROUNDS_MAX {
            self.fill(&mut pool, eviction, now);
            while let Some(candidate) = pool.take_best() {
                if self.evict_candidate(candidate, eviction, now, visit) {
                    return true;
                }
            }
        }
        false
    }

    /// Samples every database.
    fn fill(&self, pool: &mut Pool, eviction: Eviction, now: UnixMs) {
        let wanted = self.keyspace.policy().samples().max(1) as usize;
        for db in (0..self.keyspace.databases()).map(DbIndex) {
            let mut offer = |slot: Slot, object: Object<'_>| {
                let position = self.keyspace.position(object.key());
                pool.offer(Candidate { score: self.score(object, eviction, now), db, slot, position });
            };
            if eviction.expiring_only() {
                self.sample_expiring(db, wanted, offer);
            } else if self.keyspace.len(db) > 0 {
                self.sample_all(db, wanted, |slot, object| {
                    offer(slot, object);
                    true
                });
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
        let Candidate { db, slot, position, score } = candidate;
        let database = self.keyspace.database(db);
        let mut keys = database.slot(slot).keys.lock();
        let Some(place) = keys.find_position(self.keyspace.frame(), position) else { return false };
        let object = keys.object(place);
        let may_go = !eviction.expiring_only() || object.expires_at().is_some();
        if !may_go || !eviction.is_random() && self.score(object, eviction, now) < score {
            return false;
        }
        visit(db, object.key());
        let change = keys.remove(place);
        database.note(slot, &keys, change);
        self.keyspace.stats().evicted.add(1);
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
