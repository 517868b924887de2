//! Who follows this server, as far as it is known without the server: what each has said and is to be sent, the newest of the stream, and
//! the journal of a server without a log. Who acts on it is above (`feeding`).
//!
//! Thread rule: one lock, of the state; nothing else is locked while it is held but an outbox, or what was looked at of a replica's stream, and slots may be locked when it is taken.

pub mod away;
pub mod copies;
pub mod elder;
pub mod foreign;
pub mod journal;
pub mod refused;
pub mod replica;
pub mod standing;
pub mod synced;

use ::log::{Dresser, ReplicationId, Stream};
use away::Away;
use elder::Unknown;
use parking_lot::Mutex;
use refused::Refused;
use replica::Replica;
use replication::feed::{Backlog, Ranges};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use synced::Synced;
use sys::{Counter, UnixMs};
use tokio::sync::Notify;

/// Who follows.
#[derive(Default)]
pub struct Feeding {
    /// What is known, and what is kept. Held for a moment only.
    pub state: Mutex<State>,
    /// Copies that their replicas have not passed. Held for a moment only, and never with the state.
    pub unfinished: Mutex<Unfinished>,
    /// Held while the directory is told of those.
    pub telling: Mutex<()>,
    /// What enough of them have.
    pub synced: Synced,
    /// Told whenever a replica has acknowledged something, or is gone.
    pub acknowledged: Notify,
    /// Full copies that were begun.
    pub full_copies: Counter,
    /// Replicas that went on where they were.
    pub continued: Counter,
    /// Those that could not.
    pub refused: Counter,
    /// How often this server gave up what it had beyond its master.
    pub rewinds: Counter,
    /// Bytes that replicas were sent.
    pub sent_bytes: Counter,
    /// Whether anybody follows.
    is_followed: AtomicBool,
}

/// Full copies that their replicas have not passed, as far as is known.
#[derive(Default)]
pub struct Unfinished {
    /// Those of replicas that are there.
    pub copies: Vec<Unpassed>,
    /// Those whose replicas left before they had passed them, in this run or one before, and may come again whenever they like.
    pub left: Ranges,
    /// Whether the directory is to say that there are some: there is a log, or one begins.
    pub is_told: bool,
    /// What it says.
    pub told: String,
}

/// A full copy that its replica has not passed.
pub struct Unpassed {
    /// Whose.
    pub replica: Arc<Replica>,
    /// Where it begins.
    pub from: u64,
    /// Where it ends, once that is known.
    pub until: Option<u64>,
}

/// What is known of those who follow, and what is kept for them.
#[derive(Default)]
pub struct State {
    /// None: nobody has followed, or not of late.
    pub backlog: Option<Backlog>,
    /// Of the journal without a log.
    pub dresser: Dresser,
    /// Whether that is the keyspace's, or was: it is until a log takes over.
    pub has_journal: bool,
    /// The end of what of the stream that journal has been told.
    pub journal_end: u64,
    /// The end of the last of a master's units that it was told, or of what was written before one was followed, and the database that is
    /// selected there.
    pub unit_end: Option<(u64, u32)>,
    /// A master is followed: what is written here, and is not its, is in nobody's stream.
    pub is_following: bool,
    /// The latest stamp that it has given: where the stream became another one, its end may be before that.
    pub stamped_until: u64,
    /// Where a log takes over, or has: nothing more comes by way of that journal, and what is before is in no segment.
    pub taken_over_at: Option<u64>,
    /// All of them, in the order in which they came.
    pub replicas: Vec<Arc<Replica>>,
    /// Offsets from which on others who read it need it: moves of slots, by their numbers.
    pub readers: BTreeMap<u64, u64>,
    /// Which offsets are one replica's alone.
    pub ranges: Ranges,
    /// Those that wait for a full copy.
    pub waiting: VecDeque<Arc<Replica>>,
    /// Whether somebody is sent a full copy while that is made.
    pub is_sending_directly: bool,
    /// Whether one is made in a file.
    pub is_making: bool,
    /// Those in files, in the order of their beginnings, as long as anybody has them.
    pub copies: Vec<Weak<copies::Copy>>,
    /// How often the stream did not go on where it was.
    pub generation: u64,
    /// What the stream was called when replicas were looked after last.
    pub id: Option<ReplicationId>,
    /// Those that have left.
    pub away: Away,
    /// Those whose copies were refused of late.
    pub refused: Refused,
    /// When the last heartbeat went into the stream.
    pub pinged_at: UnixMs,
    /// Where replicas were last asked how far they are.
    pub asked_at: u64,
    /// The end of that request.
    pub asked_end: u64,
    /// How long the backlog may become for those that are behind.
    pub held_bytes_max: u64,
    /// The end of the last that was met and that a Redis, or an elder one, does not know: who comes again for that gets a copy.
    pub foreign_until: u64,
}

impl State {
    /// The stream does not go on where it was: it is another one, or some of it was under way when somebody began to read.
    fn break_off(&mut self, at: u64) {
        (self.asked_at, self.asked_end) = (0, 0);
        self.generation += 1;
        self.foreign_until = 0;
        if let Some(backlog) = &mut self.backlog {
            backlog.restart(at);
        }
        self.end_all();
    }

    fn end_all(&self) {
        self.replicas.iter().for_each(|replica| replica.end());
    }

    /// The end of the stream without a log; None: it has never begun.
    pub fn end_without_log(&self) -> Option<u64> {
        self.has_journal.then_some(self.journal_end)
    }

    /// The database that is selected there, of a stream that was last noted like this; None: that is not known. Where nothing is selected, what
    /// is written next selects its own, and any database is right.
    pub fn selected_without_log(&self, noted: &Stream) -> Option<u32> {
        match self.unit_end {
            _ if noted.offset == self.journal_end => Some(noted.selected.unwrap_or(0)),
            _ if !self.is_following => Some(self.dresser.selected().unwrap_or(0)),
            Some((end, database)) if end == self.journal_end => Some(database),
            _ => None,
        }
    }

    /// Appends to the backlog.
    pub fn append(&mut self, bytes: &[u8]) {
        let Some(backlog) = &mut self.backlog else { return };
        backlog.append(bytes);
    }

    /// Whether somebody is still to read what is in no segment.
    pub fn lacks_segments(&self) -> bool {
        let from = |replica: &Arc<Replica>| replica.position().unwrap_or(u64::MAX);
        self.taken_over_at.is_some_and(|at| self.replicas.iter().any(|replica| from(replica) < at))
    }

    /// Drops what is kept for nobody.
    pub fn trim(&mut self) {
        let State { backlog, replicas, readers, held_bytes_max, .. } = self;
        if let Some(backlog) = backlog {
            let positions = || replicas.iter().filter_map(|one| one.position());
            backlog.trim(|| positions().chain(readers.values().copied()).min(), *held_bytes_max);
        }
    }

    /// Wakes those that have read all there was.
    pub fn wake(&self) {
        self.replicas.iter().for_each(|replica| replica.wake_if_asleep());
    }
}

impl Feeding {
    /// Takes what is durable of the stream, from an offset on.
    pub fn streamed(&self, from: u64, bytes: &[u8]) {
        let mut state = self.state.lock();
        if state.backlog.as_ref().is_none_or(|backlog| backlog.end() != from) {
            state.break_off(from);
        }
        state.append(bytes);
        state.trim();
        state.wake();
    }

    /// Whether the stream without a log has all that is written, so that its offset says what is here.
    pub fn is_counted(&self) -> bool {
        let state = self.state.lock();
        state.has_journal && state.backlog.is_some()
    }

    /// Notes where the stream is without a log, by somebody else's account: that of the master that is followed.
    pub fn follow_stream(&self, offset: u64) {
        let mut state = self.state.lock();
        if state.has_journal && state.journal_end != offset {
            state.stamped_until = state.stamped_until.max(state.journal_end);
            state.journal_end = offset;
            state.break_off(offset);
        }
    }

    /// Notes whether a master is followed. To be called while nobody writes, or what is written is still not to be in the stream.
    pub fn set_following(&self, on: bool) {
        let mut state = self.state.lock();
        if on && !state.is_following {
            // As it stands behind what was written here.
            state.unit_end = Some((state.journal_end, state.dresser.selected().unwrap_or(0)));
        }
        state.is_following = on;
        // What a master has selected is not known here.
        state.dresser.forget();
    }

    /// Ends all replicas: what comes is another stream, or has another name, of which they are to hear before its first byte.
    pub fn end_all(&self, id: ReplicationId) {
        let mut state = self.state.lock();
        // Those that come now know it.
        state.id = Some(id);
        state.end_all();
    }

    /// The same where the stream does not go on from what they have.
    pub fn break_off(&self, at: u64) {
        self.state.lock().break_off(at);
    }

    /// What comes is the stream of a name of which nothing is known here: no copy that was given in another means anything in it.
    pub fn forget_copies(&self) {
        self.state.lock().ranges = Ranges::default();
        let unfinished = &mut *self.unfinished.lock();
        unfinished.copies.clear();
        unfinished.left = Ranges::default();
    }

    /// Whether a full copy is made.
    pub fn is_copying(&self) -> bool {
        let state = self.state.lock();
        state.is_making || state.is_sending_directly
    }

    /// The end of the stream without a log; None: it has never begun.
    pub fn end_without_log(&self) -> Option<u64> {
        self.state.lock().end_without_log()
    }

    /// All replicas, in the order in which they came.
    pub fn replicas(&self) -> Vec<Arc<Replica>> {
        self.state.lock().replicas.clone()
    }
}

impl Feeding {
    /// Looks at what a replica is to be sent next of the stream: a Redis before 7.4 knows no times of hashes' fields, one before 7.0 less
    /// (`repl-rdb-version 9`).
    ///
    /// # Errors
    /// There is something of that in these bytes, which begin at this offset. Whoever comes again for them gets a full copy.
    pub fn look_at(&self, replica: &Replica, bytes: &[u8], from: u64) -> io::Result<()> {
        let end = from + bytes.len() as u64;
        let mut found = None;
        if let Some(foreign) = &replica.foreign
            && foreign.lock().is_in(from, bytes)
        {
            found = Some(io::Error::other(
                "fields of a hash got a time to live (HPEXPIRE), which a replica of Redis 7.2 cannot know",
            ));
        }
        if let Some(elder) = &replica.elder {
            let unknown = elder.lock().take(from, bytes).err();
            found = found.or(unknown.map(Unknown::into_error));
        }
        let Some(error) = found else { return Ok(()) };
        let mut state = self.state.lock();
        state.foreign_until = state.foreign_until.max(end);
        Err(error)
    }

    /// Notes whether anybody follows.
    pub fn note_followers(&self, state: &State) {
        self.is_followed.store(!state.replicas.is_empty(), Ordering::Relaxed);
    }

    /// Whether anybody follows.
    pub fn is_followed(&self) -> bool {
        self.is_followed.load(Ordering::Relaxed)
    }

    /// A replica has acknowledged so much.
    pub fn acknowledge(&self, replica: &Replica, offset: u64, durable: Option<u64>, now: UnixMs) {
        replica.acknowledge(offset, durable, now);
        self.acknowledged.notify_waiters();
    }

    /// A replica's connection is gone.
    pub fn leave(&self, replica: &Arc<Replica>, now: UnixMs) {
        replica.leave();
        let mut state = self.state.lock();
        state.replicas.retain(|known| !Arc::ptr_eq(known, replica));
        state.waiting.retain(|known| !Arc::ptr_eq(known, replica));
        let had = replica.acknowledged().min(replica.position().unwrap_or(u64::MAX));
        state.away.leave(replica.identity(), (had > 0).then_some(had), now);
        self.note_followers(&state);
        // What was kept for it alone.
        state.trim();
        drop(state);
        self.acknowledged.notify_waiters();
    }
}

impl Feeding {
    /// Whether the backlog goes back to an offset.
    pub fn has_in_backlog(&self, offset: u64) -> bool {
        self.state.lock().backlog.as_ref().is_some_and(|backlog| backlog.holds(offset))
    }
}
