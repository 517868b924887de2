//! How an access ends: what was found expired is freed, what was said goes to the journal, what changed is told, and its
//! slots are unlocked. It ends so whether it is finished or dropped.

use super::{Access, ExpiredKey, Purpose};
use crate::changes::{Change, Interest, What};
use crate::ids::{DbIndex, Key};
use crate::locks::Locks;
use std::{mem, thread};
use sys::Stamp;
use wire::Request;

impl Access<'_> {
    /// Frees what was found expired, tells what changed, and unlocks, unless somebody
    /// waits for a key that changed: then the batch keeps the locks.
    #[inline]
    pub(super) fn finish(mut self) -> Vec<ExpiredKey> {
        self.is_open = false;
        if self.has_to_end() { self.finish_changes() } else { Vec::new() }
    }

    #[cold]
    fn finish_changes(&mut self) -> Vec<ExpiredKey> {
        // What was to be replaced unread is replaced by now, or gone again: SET with a moment that is past.
        self.is_blind = false;
        let (mut all_expired, mut is_ready) = (Vec::new(), false);
        loop {
            let expired = self.noted().expired.take().into_keys();
            self.free_expired(&expired);
            self.settle();
            let changes = self.noted().changes.take();
            self.batch.tell(&changes);
            if self.interest.contains(Interest::BESIDE) {
                self.note_beside(&changes);
            }
            let type_now = |key: &Key<'_>| self.look(key).map(|object| object.value().type_name());
            is_ready |=
                self.interest.contains(Interest::WAITING) && self.batch.note_ready(&changes, type_now);
            all_expired.extend(expired);
            // The look at what changed may have found that its time is up already.
            if !self.has_to_end() {
                break;
            }
        }
        if is_ready {
            self.batch.keep(mem::replace(&mut self.locks, Locks::OfBatch));
        }
        all_expired
    }

    /// Notes keys with an expiry that no master has written.
    fn note_beside(&self, changes: &[Change]) {
        for change in changes.iter().filter(|change| change.what == What::Modified) {
            let object = self.look(&self.keyspace().key(change.db, &change.key));
            if object.is_some_and(|object| object.expires_at().is_some()) {
                self.keyspace().beside.note(change.db, &change.key);
            }
        }
    }

    #[cold]
    fn finish_dropped(&mut self) {
        self.settle();
        if self.has_to_end() {
            self.finish_changes();
        }
    }

    /// Appends what was said of these slots to the journal, and publishes what was noted, unless they are the batch's: then
    /// it does so when it lets them go.
    pub(super) fn settle(&self) {
        if !matches!(self.locks, Locks::OfBatch) {
            self.stamp(self.batch.append());
            self.batch.publish();
        }
    }

    /// The same for a command on one key that did what its request says, unless something else was said.
    #[inline]
    pub(super) fn settle_as(&self, db: DbIndex, request: Request<'_>) {
        if !matches!(self.locks, Locks::OfBatch) {
            self.stamp(self.batch.append_as(db, self.now, request));
            self.batch.publish();
        } else if let Some(effects) = self.batch.effects() {
            effects.end_command_as(db, self.now, request.iter());
        }
    }

    #[inline]
    fn stamp(&self, stamp: Option<Stamp>) {
        let Some(stamp) = stamp else { return };
        match &self.locks {
            Locks::One(id, _) => self.keyspace().set_stamp(*id, stamp),
            Locks::Many(locks) => locks.iter().for_each(|(id, _)| self.keyspace().set_stamp(*id, stamp)),
            Locks::OfBatch => {}
        }
    }

    fn free_expired(&mut self, expired: &[ExpiredKey]) {
        for ExpiredKey { db, key } in expired {
            let key = self.keyspace().key(*db, key);
            if self.keyspace().has_shelf() {
                self.admit(&[key], Purpose::Change);
            }
            self.remove_if(&key, |object, now| object.is_expired(now));
        }
        self.keyspace().stats().expired.add(expired.len() as i64);
    }
}

impl Drop for Access<'_> {
    /// Nobody forgets what an access has said or found: it would be in the journal behind what came later.
    #[inline]
    fn drop(&mut self) {
        if self.is_open && !thread::panicking() {
            self.finish_dropped();
        }
    }
}
