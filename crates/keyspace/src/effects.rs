//! What writes came down to, on its way to the log; and up to where in the log's history what a batch has looked at
//! was written.
//!
//! Whoever executes a write says what it came down to ([`Effects::add`]) while its slots are locked. Before they are
//! unlocked everything said is appended to the [`Journal`] as one record, and the slots are stamped with its end. A batch
//! remembers the latest stamp of all the slots that it locked: its replies reveal nothing that was written later.
//!
//! Thread rule: [`Effects`] belong to a worker and are used inside its batch.
//!
//! Invariants:
//! 1. Records stand in the journal in the order in which each slot changed.
//! 2. What a transaction or a script did while its batch held its slots is one record.
//! 3. Without a journal nothing of this costs more than asking whether there is one.

use crate::ids::{DbIndex, Key};
use crate::keyspace::{Batch, Keyspace};
use crate::locks::{Held, Locks, SlotId};
use crate::policy::Removal;
use memchr::memmem;
use parking_lot::Mutex;
use std::mem;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use sys::{Stamp, UnixMs};
use wire::{Request, encode_arg, encode_request_header};

/// The databases in which the requests of a record run; SELECT stands between those of different ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Of the first request.
    pub first: DbIndex,
    /// Of the last.
    pub last: DbIndex,
    /// Whether there are several.
    pub is_several: bool,
}

impl Span {
    fn of(db: DbIndex) -> Span {
        Span { first: db, last: db, is_several: false }
    }
}

/// What a master wanted to be done.
#[derive(Clone, Copy, Debug)]
pub struct Unit<'a> {
    /// The database of the first effect.
    pub first: DbIndex,
    /// The database that is selected in the stream behind it.
    pub last: DbIndex,
    /// When it is done.
    pub now: UnixMs,
    /// The bytes of the master's stream, which are whole requests; none for what else came of them.
    pub stream: &'a [u8],
}

/// Takes effects in the order of execution: the log, or a test.
pub trait Journal: Send + Sync {
    /// Takes RESP requests that were executed together at `now`. Gives the record's end. The slots of their keys are held; must not
    /// wait.
    fn append(&self, span: Span, now: UnixMs, requests: &[u8]) -> Stamp;

    /// The same for so much that it lies in several parts, cut anywhere. They are given back to the allocator one by one.
    fn append_parts(&self, span: Span, now: UnixMs, parts: Vec<Vec<u8>>) -> Stamp {
        self.append(span, now, &parts.concat())
    }

    /// Takes what was done on a server that follows a master, in parts, and what the master's stream has of it: both are one record. Either
    /// may be empty.
    fn append_unit(&self, unit: Unit<'_>, effects: Vec<Vec<u8>>) -> Stamp {
        let span = Span { first: unit.first, last: unit.first, is_several: false };
        if effects.is_empty() { self.end() } else { self.append_parts(span, unit.now, effects) }
    }

    /// The same where the stream's bytes are one request that did what it says: they are the effects, too.
    fn append_unit_as_sent(&self, unit: Unit<'_>) -> Stamp {
        self.append_unit(unit, vec![unit.stream.to_vec()])
    }

    /// The end of all that was appended.
    fn end(&self) -> Stamp;

    /// Whether it has room for the removal of keys that could as well be removed later: what a sweep, an eviction or a look finds.
    /// They would gather in memory while the disk takes nothing.
    fn has_room(&self) -> bool {
        true
    }

    /// Called when a batch ends that appended something, with no slot held.
    fn nudge(&self) {}
}

/// The keyspace's journal: one for good, before which there may have been another.
#[derive(Default)]
pub(crate) struct Journals {
    last: OnceLock<Box<dyn Journal>>,
    first: OnceLock<Box<dyn Journal>>,
}

impl Journals {
    /// Where effects go now.
    #[inline]
    pub fn get(&self) -> Option<&dyn Journal> {
        self.last.get().or_else(|| self.first.get()).map(|journal| &**journal)
    }
}

/// The effects of one worker that have not been appended yet.
#[derive(Default)]
pub struct Effects(Mutex<Pending>);

#[derive(Default)]
struct Pending {
    requests: Vec<u8>,
    /// What was said before, as soon as it is long: it is never moved as a whole.
    parts: Vec<Vec<u8>>,
    parts_bytes: usize,
    /// Of values that were copied and are named only.
    named_bytes: usize,
    first: DbIndex,
    last: DbIndex,
    is_several: bool,
    now: UnixMs,
    /// By the command that runs.
    has_said: bool,
    /// A master's bytes are being executed, and when.
    followed_at: Option<UnixMs>,
    /// The database that is selected behind them.
    ends_in: DbIndex,
    /// Those that are in no record yet.
    stream: Vec<u8>,
}

/// What a worker keeps of memory for effects.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// How long a part is, or a request longer: so long that it fits a block of the log.
const PART_BYTES: usize = 128 << 10;

impl Effects {
    /// Says a request that has the effect of what the running command did in `db`.
    pub fn add<'w>(&self, db: DbIndex, now: UnixMs, words: impl ExactSizeIterator<Item = &'w [u8]>) {
        let pending = &mut *self.0.lock();
        pending.add(db, now, words);
        pending.has_said = true;
    }

    /// Counts a value that has been copied, of which the names of its keys are all that is said: a copy is as much as its value, also for who
    /// makes it again.
    pub fn note_copied(&self, bytes: usize) {
        self.0.lock().named_bytes += bytes;
    }

    /// Ends the running command. True: it has said something.
    pub fn end_command(&self) -> bool {
        mem::take(&mut self.0.lock().has_said)
    }

    /// Ends the running command; this is what it did, unless it has said something else.
    #[inline]
    pub fn end_command_as<'w>(
        &self,
        db: DbIndex,
        now: UnixMs,
        words: impl ExactSizeIterator<Item = &'w [u8]>,
    ) {
        self.0.lock().end_as(db, now, words);
    }

    /// Whether all that was said is in the journal, and no command is thought to run still: the next one's own request would
    /// count as said.
    pub(crate) fn is_settled(&self) -> bool {
        let pending = self.0.lock();
        pending.requests.is_empty() && !pending.has_said
    }

    fn is_of_another(&self, now: UnixMs) -> bool {
        let pending = self.0.lock();
        !pending.is_empty() && pending.now != now
    }

    /// Whether this word is in a request that was said and is not in the journal.
    fn has_said(&self, word: &[u8]) -> bool {
        let mut encoded = Vec::new();
        encode_arg(&mut encoded, word);
        let pending = self.0.lock();
        let mut all = pending.parts.iter().chain([&pending.requests]);
        // A request is not cut in two.
        all.any(|requests| memmem::find(requests, &encoded).is_some())
    }

    /// Says that a key went away by itself, before the running command looked at it.
    fn add_removal(&self, db: DbIndex, now: UnixMs, words: [&[u8]; 2]) {
        self.0.lock().add(db, now, words.into_iter());
    }

    /// Says that fields of a hash went away by themselves.
    fn add_fields_removal(&self, db: DbIndex, now: UnixMs, key: &[u8], names: &[Box<[u8]>]) {
        let words: Vec<&[u8]> =
            [&b"HDEL"[..], key].into_iter().chain(names.iter().map(|name| &**name)).collect();
        self.0.lock().add(db, now, words.into_iter());
    }

    /// Ends the running command as [`Effects::end_command_as`] does, and appends what was said. The request itself goes to
    /// the journal as it was sent, where that is all.
    #[inline]
    fn settle_as(&self, journal: &dyn Journal, db: DbIndex, now: UnixMs, request: Request<'_>) -> Stamp {
        let pending = &mut *self.0.lock();
        // Whoever has said something has it here.
        if pending.is_empty()
            && let Some(sent) = request.as_sent()
        {
            match pending.followed_at {
                None => return journal.append(Span::of(db), now, sent),
                Some(now) if pending.ends_in == db && pending.stream == sent => {
                    return pending.settle_unit_as_sent(journal, now);
                }
                Some(_) => {}
            }
        }
        pending.end_as(db, now, request.iter());
        pending.settle(journal)
    }

    /// Appends what was said, if anything was.
    fn settle(&self, journal: &dyn Journal) -> Option<Stamp> {
        let pending = &mut *self.0.lock();
        (!pending.is_empty()).then(|| pending.settle(journal))
    }
}

impl Pending {
    fn add<'w>(&mut self, db: DbIndex, now: UnixMs, words: impl ExactSizeIterator<Item = &'w [u8]>) {
        self.is_several = !self.is_empty();
        if self.is_empty() {
            self.first = db;
        } else if self.last != db {
            let mut digits = itoa::Buffer::new();
            let select = [&b"SELECT"[..], digits.format(db.0).as_bytes()];
            encode(&mut self.requests, select.into_iter());
        }
        (self.last, self.now) = (db, now);
        encode(&mut self.requests, words);
        if self.requests.len() >= PART_BYTES {
            self.parts_bytes += self.requests.len();
            self.parts.push(mem::take(&mut self.requests));
        }
    }

    fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.parts.is_empty()
    }

    fn bytes(&self) -> usize {
        self.parts_bytes + self.requests.len() + self.named_bytes
    }

    fn end_as<'w>(&mut self, db: DbIndex, now: UnixMs, words: impl ExactSizeIterator<Item = &'w [u8]>) {
        if !mem::take(&mut self.has_said) {
            self.add(db, now, words);
        }
    }

    fn settle(&mut self, journal: &dyn Journal) -> Stamp {
        self.named_bytes = 0;
        if let Some(now) = self.followed_at {
            return self.settle_unit(journal, now);
        }
        if !self.parts.is_empty() {
            return self.settle_parts(journal);
        }
        let stamp = journal.append(self.span(), self.now, &self.requests);
        self.requests.clear();
        self.requests.shrink_to(KEPT_BYTES_MAX);
        stamp
    }

    #[cold]
    fn settle_parts(&mut self, journal: &dyn Journal) -> Stamp {
        let parts = self.take_parts();
        journal.append_parts(self.span(), self.now, parts)
    }

    fn take_parts(&mut self) -> Vec<Vec<u8>> {
        let mut parts = mem::take(&mut self.parts);
        parts.extend(Some(mem::take(&mut self.requests)).filter(|last| !last.is_empty()));
        self.parts_bytes = 0;
        parts
    }

    /// Appends what came of a master's bytes: they go with the first that did.
    fn settle_unit(&mut self, journal: &dyn Journal, now: UnixMs) -> Stamp {
        let parts = self.take_parts();
        let first = if parts.is_empty() { self.ends_in } else { self.first };
        let unit = Unit { first, last: self.ends_in, now, stream: &self.stream };
        let stamp = journal.append_unit(unit, parts);
        self.forget_stream();
        stamp
    }

    /// The same where the bytes are the request that was executed, and nothing was said but that.
    #[inline]
    fn settle_unit_as_sent(&mut self, journal: &dyn Journal, now: UnixMs) -> Stamp {
        let unit = Unit { first: self.ends_in, last: self.ends_in, now, stream: &self.stream };
        let stamp = journal.append_unit_as_sent(unit);
        self.forget_stream();
        stamp
    }

    fn forget_stream(&mut self) {
        self.stream.clear();
        self.stream.shrink_to(KEPT_BYTES_MAX);
    }

    fn span(&self) -> Span {
        Span { first: self.first, last: self.last, is_several: self.is_several }
    }
}

fn encode<'w>(out: &mut Vec<u8>, words: impl ExactSizeIterator<Item = &'w [u8]>) {
    encode_request_header(out, words.len());
    words.for_each(|word| encode_arg(out, word));
}

impl Keyspace {
    /// Names the journal to which all effects go from now on, for good. Called before the first client, or while a batch
    /// holds everything that has said nothing. Where another took them until then, stamps go on: what this one gives is later than what
    /// that one gave.
    ///
    /// # Panics
    /// If there is one already.
    pub fn set_journal(&self, journal: Box<dyn Journal>) {
        let is_only = self.journal.last.set(journal).is_ok();
        assert!(is_only, "a keyspace has one journal for good");
        self.rest_journal(false);
    }

    /// The same for a journal whose place [`Keyspace::set_journal`] may give to another.
    ///
    /// # Panics
    /// If there is or was one already.
    pub fn set_first_journal(&self, journal: Box<dyn Journal>) {
        let is_first = self.journal.get().is_none() && self.journal.first.set(journal).is_ok();
        assert!(is_first, "a keyspace has one first journal");
    }

    /// Has nothing be said to the journal for now, as if there were none, or again. Called while a batch holds everything that has said
    /// nothing.
    pub fn rest_journal(&self, rests: bool) {
        self.journal_rests.store(rests, Ordering::Relaxed);
    }

    /// Where effects go; None if nobody takes them.
    #[inline]
    pub(crate) fn journal(&self) -> Option<&dyn Journal> {
        self.journal.get().filter(|_| !self.journal_rests.load(Ordering::Relaxed))
    }

    /// Whether batches remember what they only looked at (on at first). Off, replies that show what others have written
    /// count as showing nothing: for tests that must notice.
    pub fn set_reads_seen(&self, on: bool) {
        self.are_reads_unseen.store(!on, Ordering::Relaxed);
    }

    /// Where all keys were last written together (FLUSHALL, SWAPDB, a transaction over undeclared keys).
    fn whole_stamp(&self) -> Stamp {
        Stamp(self.whole_stamp.load(Ordering::Relaxed))
    }

    /// Where a slot was last written.
    pub(crate) fn stamp_of(&self, (physical, slot): SlotId) -> Stamp {
        let stamps = self.database_at(physical).stamps();
        let own = stamps.map_or(0, |stamps| stamps[usize::from(slot.0)].load(Ordering::Relaxed));
        Stamp(own).max(self.whole_stamp())
    }

    /// Notes where a slot was last written; its lock is held.
    pub(crate) fn set_stamp(&self, (physical, slot): SlotId, stamp: Stamp) {
        let stamps = self.database_at(physical).stamps_or_new();
        stamps[usize::from(slot.0)].store(stamp.0, Ordering::Relaxed);
    }
}

impl<'k> Batch<'k> {
    /// Where effects go; None if nobody takes them.
    #[inline]
    pub fn effects(&self) -> Option<&'k Effects> {
        self.keyspace.journal().map(|_| self.keyspace.effects_of(self.worker))
    }

    /// Up to where in the history the batch has seen what was written: whoever learns of it must not learn of it
    /// before the log is durable up to here. Starts anew.
    #[inline]
    pub fn take_seen(&self) -> Stamp {
        self.seen.take()
    }

    /// What [`Batch::take_seen`] would give now.
    pub fn seen(&self) -> Stamp {
        self.seen.get()
    }

    /// Notes that the batch has seen what was written up to here.
    #[inline]
    pub fn see(&self, stamp: Stamp) {
        self.seen.set(self.seen.get().max(stamp));
    }

    /// Notes that the batch has looked at anything that there is.
    pub fn see_all(&self) {
        if let Some(journal) = self.keyspace.journal() {
            self.see(journal.end());
        }
    }

    /// Notes what an access has locked.
    #[inline]
    pub(crate) fn see_locked(&self, locks: &Locks<'_>) {
        if self.keyspace.journal().is_none() || self.keyspace.are_reads_unseen.load(Ordering::Relaxed) {
            return;
        }
        match locks {
            Locks::One(id, _) => self.see(self.keyspace.stamp_of(*id)),
            Locks::Many(locks) if locks.is_empty() => self.see_all(),
            Locks::Many(locks) => locks.iter().for_each(|(id, _)| self.see(self.keyspace.stamp_of(*id))),
            // Seen when the batch took them.
            Locks::OfBatch => {}
        }
    }

    /// Notes that the batch holds slots from now on.
    pub(crate) fn begin_group(&self) {
        if let Some(observer) = self.keyspace.observer_of_groups() {
            observer.begin_group();
        }
        self.see_held();
    }

    /// Notes that it holds none any more.
    pub(crate) fn end_group(&self) {
        if let Some(observer) = self.keyspace.observer_of_groups() {
            observer.end_group();
        }
    }

    /// Notes what the batch has come to hold.
    pub(crate) fn see_held(&self) {
        match &*self.held.borrow() {
            Held::Nothing => {}
            Held::Slots(slots) => slots.iter().for_each(|id| self.see(self.keyspace.stamp_of(*id))),
            Held::All => self.see_all(),
        }
    }

    /// Whether keys that nobody changes may be removed now.
    pub(crate) fn may_remove(&self) -> bool {
        self.keyspace.keeps_all.load(Ordering::Relaxed) == 0
            && self.keyspace.journal().is_none_or(|journal| journal.has_room())
    }

    /// Whether something was said that is not appended yet: what the batch does with slots held has begun to write.
    pub fn has_effects(&self) -> bool {
        self.effects().is_some_and(|effects| !effects.0.lock().is_empty())
    }

    /// Appends what was said of another moment than this, as a record is of one moment. For what is no part of what the batch did before.
    pub fn append_earlier(&self, now: UnixMs) {
        if self.effects().is_some_and(|effects| effects.is_of_another(now)) {
            self.append();
        }
    }

    /// Whether what was said and is not appended yet may have changed this key: a crash would take that back. It has, unless another
    /// request has its name for a word.
    pub fn may_have_changed(&self, key: &Key<'_>) -> bool {
        self.has_exchanged.get() || self.effects().is_some_and(|effects| effects.has_said(key.bytes))
    }

    /// Bytes of what was said that is not appended yet, and of values that were copied and only named there.
    pub fn effects_bytes(&self) -> usize {
        self.effects().map_or(0, |effects| effects.0.lock().bytes())
    }

    /// What the batch does until [`Batch::end_unit`] is what a master wanted, whose stream has these bytes, and this database selected behind
    /// them.
    pub fn begin_unit(&self, stream: &[u8], ends_in: DbIndex, now: UnixMs) {
        let Some(effects) = self.effects() else { return };
        let pending = &mut *effects.0.lock();
        (pending.followed_at, pending.ends_in) = (Some(now), ends_in);
        pending.stream.extend_from_slice(stream);
    }

    /// Nothing of it is done, nor said.
    pub fn take_back_unit(&self) {
        let Some(effects) = self.effects() else { return };
        let pending = &mut *effects.0.lock();
        debug_assert!(pending.is_empty(), "what is taken back has changed nothing");
        pending.forget_stream();
        pending.followed_at = None;
    }

    /// All of it is done. Bytes that changed nothing are appended by themselves. The batch holds nothing.
    pub fn end_unit(&self) {
        let Some((effects, journal)) = self.effects().zip(self.keyspace.journal()) else { return };
        let pending = &mut *effects.0.lock();
        if let Some(now) = pending.followed_at.filter(|_| !pending.stream.is_empty()) {
            self.note_appended(pending.settle_unit(journal, now));
        }
        pending.followed_at = None;
    }

    /// Whether the batch has appended anything.
    pub fn has_appended(&self) -> bool {
        self.appended.get() > Stamp(0)
    }

    /// Up to where in the history there is what the batch has appended; 0: it has appended nothing.
    pub fn appended(&self) -> Stamp {
        self.appended.get()
    }

    #[inline]
    fn note_appended(&self, stamp: Stamp) {
        self.see(stamp);
        self.appended.set(stamp);
    }

    /// Says that a key went away by itself.
    pub(crate) fn add_removal(&self, db: DbIndex, now: UnixMs, key: &[u8], removal: Removal) {
        if let Some(effects) = self.effects() {
            effects.add_removal(db, now, [self.keyspace.policy().removal(removal), key]);
        }
    }

    /// Says that fields of a hash went away by themselves, and left others.
    pub(crate) fn add_fields_removal(&self, db: DbIndex, now: UnixMs, key: &[u8], names: &[Box<[u8]>]) {
        if let Some(effects) = self.effects() {
            effects.add_fields_removal(db, now, key, names);
        }
    }

    /// Appends a request that concerns no slot, unless it is part of what the batch does with slots held.
    pub fn append_apart(&self, now: UnixMs, words: &[&[u8]]) {
        let Some(effects) = self.effects() else { return };
        effects.add(DbIndex(0), now, words.iter().copied());
        effects.end_command();
        if !self.is_holding()
            && let Some(stamp) = self.append()
        {
            // Another worker's may be later, and noted already.
            self.keyspace.apart_stamp.fetch_max(stamp.0, Ordering::AcqRel);
        }
    }

    /// Notes that the batch has looked at what concerns no slot. Called behind the look. Whoever writes it while it holds
    /// something holds everything.
    pub fn see_apart(&self) {
        if self.keyspace.journal().is_some() {
            let apart = Stamp(self.keyspace.apart_stamp.load(Ordering::Acquire));
            self.see(apart.max(self.keyspace.whole_stamp()));
        }
    }

    /// Appends what was said, stamps this slot, which is locked, and publishes what was noted.
    pub(crate) fn settle(&self, slot: SlotId) {
        if let Some(stamp) = self.append() {
            self.keyspace.set_stamp(slot, stamp);
        }
        self.publish();
    }

    /// The same for what the batch holds. Before anyone else learns of what was done under it, and before it is let go.
    pub fn settle_held(&self) {
        if let Some(stamp) = self.append() {
            match &*self.held.borrow() {
                Held::Nothing => unreachable!("effects are appended before their slots are let go"),
                Held::Slots(slots) => slots.iter().for_each(|id| self.keyspace.set_stamp(*id, stamp)),
                Held::All => self.keyspace.whole_stamp.store(stamp.0, Ordering::Relaxed),
            }
        }
        self.publish();
        if self.has_exchanged.take() {
            self.keyspace.show_numbers();
        }
    }

    /// Says that something was appended, with no slot held. At the batch's end.
    pub(crate) fn nudge(&self) {
        if self.has_appended()
            && let Some(journal) = self.keyspace.journal()
        {
            journal.nudge();
        }
    }

    /// Appends what was said; where, for the slots that it is about.
    pub(crate) fn append(&self) -> Option<Stamp> {
        self.append_by(Effects::settle)
    }

    /// The same for a command that did what its request says, unless it has said something else.
    #[inline]
    pub(crate) fn append_as(&self, db: DbIndex, now: UnixMs, request: Request<'_>) -> Option<Stamp> {
        self.append_by(|effects, journal| Some(effects.settle_as(journal, db, now, request)))
    }

    #[inline]
    fn append_by(&self, settle: impl FnOnce(&Effects, &dyn Journal) -> Option<Stamp>) -> Option<Stamp> {
        let journal = self.keyspace.journal()?;
        let stamp = settle(self.keyspace.effects_of(self.worker), journal)?;
        self.note_appended(stamp);
        Some(stamp)
    }
}
