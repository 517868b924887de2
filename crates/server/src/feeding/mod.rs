//! A master's side of Redis' replication: who follows this server, and what each is sent.
//!
//! A connection that has said PSYNC or SYNC is a [`Replica`]. What it is sent comes from its outbox, which a thread fills (a full copy,
//! [`copying`], or a part of the stream that only segments hold, [`behind`]), and then from the backlog, which its own connection reads.
//! The backlog is filled with what is durable by the log's flusher, or, without a log, by a journal of its own ([`journal`]).
//!
//! Thread rule: one lock, of the state; nothing else is locked while it is held but an outbox, and slots may be locked when it is taken.
//!
//! Invariants:
//! 1. Nobody is sent a byte of the stream that is not in the backlog or in a segment: where there is a log, it has been made durable
//!    as the log's policy says.
//! 2. What a replica takes of memory is its outbox, which has a bound, and what the backlog keeps for it (`client-output-buffer-limit`).
//! 3. While nobody follows, and nobody has of late, nothing of this is touched by commands.

mod behind;
mod copying;
mod filter;
mod foreign;
pub mod joining;
mod journal;
pub mod replica;
pub mod standing;
pub mod upkeep;

use crate::server::Server;
use ::log::{Dresser, ReplicationId, Unit};
use engine::Engine;
use parking_lot::Mutex;
use replica::Replica;
use replication::feed::{Backlog, Ranges};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use sys::{Counter, Stamp, UnixMs};
use tokio::sync::Notify;

/// What a connection is given at a time.
const FEED_BYTES: usize = 256 << 10;

/// A request that is no effect, of one word, with an answer of its own from nobody.
const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";
/// Asks replicas how far they are.
const GETACK: &[u8] = b"*3\r\n$8\r\nREPLCONF\r\n$6\r\nGETACK\r\n$1\r\n*\r\n";

/// Who follows.
#[derive(Default)]
pub struct Feeding {
    state: Mutex<State>,
    /// Told whenever a replica has acknowledged something, or is gone.
    pub acknowledged: Notify,
    /// Full copies that were begun.
    pub full_copies: Counter,
    /// Replicas that went on where they were.
    pub continued: Counter,
    /// Those that could not.
    pub refused: Counter,
    /// Bytes that replicas were sent.
    pub sent_bytes: Counter,
    /// Whether the stream is looked at for what a Redis does not know.
    looks_for_foreign: AtomicBool,
}

#[derive(Default)]
struct State {
    /// None: nobody has followed, or not of late.
    backlog: Option<Backlog>,
    /// Of the journal without a log.
    dresser: Dresser,
    /// Whether that is the keyspace's: it is for good.
    has_journal: bool,
    /// The end of what that journal has been told.
    journal_end: u64,
    replicas: Vec<Arc<Replica>>,
    ranges: Ranges,
    /// Those that wait for a full copy.
    waiting: VecDeque<Arc<Replica>>,
    is_copying: bool,
    /// What the stream was called when replicas were looked after last.
    id: Option<ReplicationId>,
    /// When the last of them left, and the offset from which those that left may want to go on.
    left: Option<(UnixMs, u64)>,
    pinged_at: UnixMs,
    /// Where replicas were last asked how far they are.
    asked_at: u64,
    /// How long the backlog may become for those that are behind.
    held_bytes_max: u64,
    /// Between these offsets there is something that a Redis does not know.
    foreign_from: u64,
    foreign_until: u64,
}

impl State {
    /// The stream does not go on where it was: it is another one, or some of it was under way when somebody began to read.
    fn break_off(&mut self, at: u64) {
        if let Some(backlog) = &mut self.backlog {
            backlog.restart(at);
            self.replicas.iter().for_each(|replica| replica.end());
        }
    }

    /// Appends to the backlog.
    fn append(&mut self, bytes: &[u8]) {
        let Some(backlog) = &mut self.backlog else { return };
        backlog.append(bytes);
    }

    /// Notes that there is something between these offsets that a Redis does not know. All between the first and the last of such places that
    /// a replica may still read counts as if it were.
    fn note_foreign(&mut self, from: u64, until: u64) {
        let is_read =
            self.replicas.iter().any(|replica| replica.position().is_some_and(|at| at < self.foreign_until));
        if !is_read {
            self.foreign_from = from;
        }
        self.foreign_until = until;
    }

    fn trim(&mut self) {
        let State { backlog, replicas, held_bytes_max, .. } = self;
        if let Some(backlog) = backlog {
            backlog.trim(|| replicas.iter().filter_map(|one| one.position()).min(), *held_bytes_max);
        }
    }

    /// Wakes those that have read all there was.
    fn wake(&self) {
        self.replicas.iter().for_each(|replica| replica.wake_if_asleep());
    }
}

impl Feeding {
    /// Takes what is durable of the stream, from an offset on.
    pub fn streamed(&self, from: u64, bytes: &[u8]) {
        let has_foreign = self.has_foreign(bytes);
        let mut state = self.state.lock();
        if state.backlog.as_ref().is_none_or(|backlog| backlog.end() != from) {
            state.break_off(from);
        }
        state.append(bytes);
        if has_foreign {
            state.note_foreign(from, from + bytes.len() as u64);
        }
        state.trim();
        state.wake();
    }

    fn has_foreign(&self, bytes: &[u8]) -> bool {
        self.looks_for_foreign.load(Ordering::Relaxed) && foreign::is_in(&[bytes])
    }

    /// Notes where the stream is without a log, by somebody else's account: that of the master that is followed.
    pub fn follow_stream(&self, offset: u64) {
        let mut state = self.state.lock();
        if state.has_journal && state.journal_end != offset {
            state.journal_end = offset;
            state.break_off(offset);
        }
    }

    /// Whether effects go to a journal of this: there can be no other.
    pub fn has_journal(&self) -> bool {
        self.state.lock().has_journal
    }

    /// The end of the stream without a log; None: it has never begun.
    pub fn end_without_log(&self) -> Option<u64> {
        let state = self.state.lock();
        state.has_journal.then_some(state.journal_end)
    }

    /// All replicas, in the order in which they came.
    pub fn replicas(&self) -> Vec<Arc<Replica>> {
        self.state.lock().replicas.clone()
    }
}

/// The offset in the stream of a place in the history.
fn offset_of(engine: &Engine, stamp: Stamp) -> u64 {
    match engine.durability.log() {
        Some(log) => {
            let stream = log.stream();
            stream.offset.wrapping_add(stamp.0.wrapping_sub(stream.at.0))
        }
        None => stamp.0,
    }
}

/// Whether the stream is a master's, in which nothing of this server's own may stand.
fn is_relayed(server: &Server) -> bool {
    server.following.status().is_some()
}

/// The offset behind all that was written.
pub fn end(server: &Server) -> u64 {
    match server.engine.durability.log() {
        // What is here only is in between.
        Some(log) if is_relayed(server) => log.stream().offset,
        Some(log) => offset_of(&server.engine, Stamp(log.appended().0)),
        None => server.stream().offset,
    }
}

/// Puts a request into the stream that has no effect.
fn say(server: &Server, request: &[u8]) {
    if is_relayed(server) {
        return;
    }
    match server.engine.durability.log() {
        Some(log) if log.writable().is_ok() && !log.is_full() => {
            let time = server.engine.clock.now();
            let unit = Unit { database: 0, ends_in: 0, time, stream: request, is_followed: false };
            log.append_unit(&unit, Vec::new());
            log.nudge();
        }
        Some(_) => {}
        None => {
            let mut state = server.feeding.state.lock();
            if state.backlog.is_some() {
                state.append(request);
                state.journal_end += request.len() as u64;
                state.trim();
                state.wake();
            }
        }
    }
}

/// Asks all replicas how far they are, unless they have been asked by somebody behind this offset.
pub fn ask(server: &Server, offset: u64) {
    let end = end(server);
    let is_asked = {
        let mut state = server.feeding.state.lock();
        let is_asked = state.replicas.is_empty() || state.asked_at >= offset && state.asked_at > 0;
        if !is_asked {
            state.asked_at = end;
        }
        is_asked
    };
    if !is_asked {
        say(server, GETACK);
    }
}
