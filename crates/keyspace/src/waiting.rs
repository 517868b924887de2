//! Sessions that wait for a key to hold what they want: BLPOP, BZPOPMIN, XREAD.
//!
//! A session queues up while it holds the slots of its keys, so nothing can be
//! added to a key between its look at it and its queueing. Whoever then changes
//! the key finds it in here before it unlocks, keeps its locks, and the batch's
//! owner serves who waits: first come first served, as if a part of the change.
//!
//! Thread rule: one lock, held briefly and only taken while somebody waits.

use crate::changes::{Interest, Interests};
use crate::ids::DbIndex;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
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
