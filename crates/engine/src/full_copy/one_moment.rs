//! What keeps a copy of one moment while what it copies is written to: whoever is about to change a slot has it copied before, out of turn.
//!
//! Thread rule: one thread copies; one thread writes, and asks before it does ([`OneMoment::is_copied`]), with nothing of the keyspace held.
//! Anybody gives a copy up.
//!
//! Invariant: what is not copied is as it was when the copy began, unless that is over.

use crate::Engine;
use crate::scripts::Libraries;
use keyspace::{DbIndex, SLOTS, Slot};
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const WORD_BITS: usize = u64::BITS as usize;

/// A slot, by its database's constant number.
pub(crate) type Place = (u32, Slot);

/// How far a copy of one moment is, for who makes it and who writes.
pub struct OneMoment {
    /// Libraries as they were.
    pub(crate) libraries: Libraries,
    /// The constant number of each database.
    numbers: Vec<u32>,
    /// A bit for each slot that is copied, by constant numbers; None of a database that was not in use: there is nothing to copy.
    copied: Vec<Option<Box<[AtomicU64]>>>,
    /// Wanted out of turn.
    wanted: Mutex<BTreeSet<Place>>,
    /// Something is wanted, or what was wanted is copied, or it is over.
    changed: Condvar,
    /// Whoever writes need not ask any more.
    is_over: AtomicBool,
    /// What is not copied changes otherwise: nothing comes of the copy.
    is_given_up: AtomicBool,
}

impl std::fmt::Debug for OneMoment {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("OneMoment")
    }
}

impl OneMoment {
    /// Of now: nobody writes until whoever does so knows of it.
    pub(crate) fn begin(engine: &Engine) -> OneMoment {
        let keyspace = &engine.keyspace;
        let words = || (0..SLOTS.div_ceil(WORD_BITS)).map(|_| AtomicU64::new(0)).collect();
        OneMoment {
            libraries: engine.scripts.libraries(),
            numbers: keyspace.numbers(),
            copied: (0..keyspace.databases())
                .map(|number| keyspace.is_number_used(number).then(words))
                .collect(),
            wanted: Mutex::new(BTreeSet::new()),
            changed: Condvar::new(),
            is_over: AtomicBool::new(false),
            is_given_up: AtomicBool::new(false),
        }
    }

    /// Whether a database was in use.
    pub(crate) fn has(&self, number: u32) -> bool {
        self.copied.get(number as usize).is_some_and(Option::is_some)
    }

    /// How many were.
    pub(crate) fn databases(&self) -> usize {
        self.copied.iter().flatten().count()
    }

    /// Whether a slot is still to be copied.
    pub(crate) fn lacks(&self, (number, slot): Place) -> bool {
        let (word, bit) = at(slot);
        let copied = self.copied.get(number as usize).and_then(Option::as_deref);
        copied.is_some_and(|copied| copied[word].load(Ordering::Acquire) & bit == 0)
    }

    /// A slot is copied.
    pub(crate) fn note_copied(&self, place: Place) {
        let (number, (word, bit)) = (place.0, at(place.1));
        if let Some(copied) = self.copied.get(number as usize).and_then(Option::as_deref) {
            copied[word].fetch_or(bit, Ordering::AcqRel);
        }
        let mut wanted = self.wanted.lock();
        wanted.remove(&place);
        // What is wanted beside it may have been copied in its turn.
        self.changed.notify_all();
    }

    /// The next that is wanted out of turn, which is waited for until some moment.
    pub(crate) fn next_wanted(&self, until: Instant) -> Option<Place> {
        let mut wanted = self.wanted.lock();
        loop {
            if let Some(next) = wanted.pop_first() {
                return Some(next);
            }
            if self.is_given_up() || self.changed.wait_until(&mut wanted, until).timed_out() {
                return wanted.pop_first();
            }
        }
    }

    /// Whether slots, of databases by the numbers by which commands know them, may be changed: they are copied, as soon as that was asked
    /// for, or it is over. False: that would take longer.
    pub fn is_copied(&self, slots: impl Iterator<Item = (DbIndex, Slot)>, patience: Duration) -> bool {
        let number = |db: DbIndex| self.numbers.get(db.0 as usize).copied();
        let places = slots.filter_map(|(db, slot)| Some((number(db)?, slot)));
        let lacking: BTreeSet<Place> = places.filter(|place| self.lacks(*place)).collect();
        let is_done = || self.is_over() || !lacking.iter().any(|place| self.lacks(*place));
        if lacking.is_empty() || is_done() {
            return true;
        }
        let until = Instant::now() + patience;
        let mut wanted = self.wanted.lock();
        wanted.clone_from(&lacking);
        self.changed.notify_all();
        while !is_done() {
            if self.changed.wait_until(&mut wanted, until).timed_out() {
                return is_done();
            }
        }
        true
    }

    /// Whether everything may be changed, as soon as it is over. False: that would take longer.
    pub fn is_over_soon(&self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        let mut wanted = self.wanted.lock();
        while !self.is_over() {
            if self.changed.wait_until(&mut wanted, until).timed_out() {
                break;
            }
        }
        self.is_over()
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// All is copied, or nothing more is.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        let _wanted = self.wanted.lock();
        self.changed.notify_all();
    }

    /// What there is changes otherwise than by who asks before.
    pub fn give_up(&self) {
        self.is_given_up.store(true, Ordering::Release);
        self.end();
    }

    fn is_given_up(&self) -> bool {
        self.is_given_up.load(Ordering::Acquire)
    }

    /// # Errors
    /// It was given up.
    pub(crate) fn fail_if_given_up(&self) -> io::Result<()> {
        match self.is_given_up() {
            true => Err(io::Error::other("this server is to follow its master no more, or another copy")),
            false => Ok(()),
        }
    }
}

fn at(slot: Slot) -> (usize, u64) {
    let slot = usize::from(slot.0);
    (slot / WORD_BITS, 1 << (slot % WORD_BITS))
}
