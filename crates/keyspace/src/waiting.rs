//! Sessions that wait for a key to hold what they want: BLPOP, BZPOPMIN, XREAD.
//!
//! A session queues up while it holds the slots of its keys, so nothing can be
//! added to a key between its look at it and its queueing. Whoever then changes
//! the key finds it in here before it unlocks, keeps its locks, and the batch's
//! owner serves who waits: first come first served, as if a part of the change.
//!
//! Serving a session may touch other keys than those that it waits for (BLMOVE's target). They are known here, too, so that whoever
//! changes a key locks them with it ([`Waiting::reached_from`]).
//!
//! Thread rule: one lock, held briefly and only taken while somebody waits.

use crate::changes::{Interest, Interests};
use crate::ids::DbIndex;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use value::collection::TypeName;

/// Names a waiting session to the owner of the sessions.
pub type Ticket = u64;

/// One who waits for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// Who.
    pub ticket: Ticket,
    /// The type of value that it can use.
    pub wants: TypeName,
    /// Whether it is also to be woken when the key goes away or changes its type.
    pub also_when_gone: bool,
}

/// A key's name: database and bytes.
pub type KeyName = (DbIndex, Box<[u8]>);

/// All who wait, by key, in the order in which they came.
#[derive(Debug, Default)]
pub struct Waiting {
    by_key: Mutex<HashMap<KeyName, VecDeque<Waiter>>>,
    /// What sessions touch, when they are served, beside what they wait for. Locked behind `by_key`.
    reaches: Mutex<HashMap<Ticket, Vec<KeyName>>>,
    /// Whether any does.
    is_reaching: AtomicBool,
}

impl Waiting {
    /// Queues up; once per key, however often it is given.
    pub(crate) fn add(&self, key: KeyName, waiter: Waiter, interests: &Interests) {
        let mut by_key = self.by_key.lock();
        interests.set(Interest::WAITING, true);
        let queue = by_key.entry(key).or_default();
        if !queue.contains(&waiter) {
            queue.push_back(waiter);
        }
    }

    /// Leaves the queues of these keys.
    pub(crate) fn remove(&self, ticket: Ticket, keys: &[KeyName], interests: &Interests) {
        let mut by_key = self.by_key.lock();
        for key in keys {
            let Some(queue) = by_key.get_mut(key) else { continue };
            queue.retain(|waiter| waiter.ticket != ticket);
            if queue.is_empty() {
                by_key.remove(key);
            }
        }
        if by_key.is_empty() {
            interests.set(Interest::WAITING, false);
        }
        if self.is_reaching() {
            let mut reaches = self.reaches.lock();
            reaches.remove(&ticket);
            self.is_reaching.store(!reaches.is_empty(), Ordering::Relaxed);
        }
    }

    /// Notes what a session will touch beside the keys for which it queues up afterwards.
    pub(crate) fn add_reach(&self, ticket: Ticket, keys: Vec<KeyName>) {
        let mut reaches = self.reaches.lock();
        reaches.insert(ticket, keys);
        self.is_reaching.store(true, Ordering::Relaxed);
    }

    /// Whether serving anybody touches keys that it does not wait for. Exact for those who wait for keys of slots that the caller has
    /// locked.
    #[inline]
    pub fn is_reaching(&self) -> bool {
        self.is_reaching.load(Ordering::Relaxed)
    }

    /// What is touched beside these keys when those are served who wait for them, and those who wait for what that changes, and so on.
    pub fn reached_from(&self, keys: impl Iterator<Item = KeyName>) -> Vec<KeyName> {
        let (by_key, reaches) = (self.by_key.lock(), self.reaches.lock());
        let mut names: Vec<KeyName> = keys.collect();
        let given = names.len();
        let mut at = 0;
        while let Some(name) = names.get(at) {
            let waiters = by_key.get(name).into_iter().flatten();
            let reached: Vec<&KeyName> =
                waiters.filter_map(|waiter| reaches.get(&waiter.ticket)).flatten().collect();
            for name in reached {
                if !names.contains(name) {
                    names.push(name.clone());
                }
            }
            at += 1;
        }
        names.split_off(given)
    }

    /// Whether a change that left a key with `now` (None: nothing) is of use to anybody.
    pub(crate) fn wakes(&self, key: &KeyName, now: Option<TypeName>) -> bool {
        let by_key = self.by_key.lock();
        by_key.get(key).is_some_and(|queue| queue.iter().any(|waiter| waiter.is_woken_by(now)))
    }

    /// Who waits for a key, in order.
    pub fn queue(&self, key: &KeyName) -> Vec<Waiter> {
        self.by_key.lock().get(key).map(|queue| queue.iter().copied().collect()).unwrap_or_default()
    }

    /// Keys of a database that somebody waits for (SWAPDB and FLUSHALL look at them all).
    pub(crate) fn keys_of(&self, db: DbIndex) -> Vec<KeyName> {
        self.by_key.lock().keys().filter(|(of, _)| *of == db).cloned().collect()
    }

    /// How many keys are waited for.
    pub fn keys(&self) -> usize {
        self.by_key.lock().len()
    }

    /// How many keys are waited for by somebody who wants to know that they went.
    pub fn keys_on_gone(&self) -> usize {
        self.by_key.lock().values().filter(|queue| queue.iter().any(|waiter| waiter.also_when_gone)).count()
    }
}

impl Waiter {
    /// Whether it has to look at its key again now that this is there.
    pub fn is_woken_by(&self, now: Option<TypeName>) -> bool {
        now == Some(self.wants) || self.also_when_gone
    }
}
