//! A master's side of Redis' replication: who follows this server, and what each is sent.
//!
//! A connection that has said PSYNC or SYNC is a replica. What it is sent comes from its outbox, which a thread fills (a full copy,
//! [`copying`] and [`sending`], or a part of the stream that only segments hold, [`behind`]), and then from the backlog, which its own connection reads.
//! The backlog is filled with what is durable by the log's flusher, or, without a log, by a journal of its own ([`crate::replicas`]), in
//! whose place a log may come ([`handover`]).
//!
//! Thread rule: one lock, of the state; nothing else is locked while it is held but an outbox, a copy, or what the stream is called, and slots
//! may be locked when it is taken.
//!
//! Invariants:
//! 1. Nobody is sent a byte of the stream that is not in the backlog or in a segment: where there is a log, it has been made durable
//!    as the log's policy says.
//! 2. What a replica takes of memory is its outbox, which has a bound, and what the backlog keeps for it (`client-output-buffer-limit`).
//! 3. While nobody follows, and nobody has of late, nothing of this is touched by commands.

pub mod behind;
pub mod copying;
mod filter;
pub mod handover;
pub mod joining;
pub mod resuming;
mod sending;
pub mod slot_stream;
pub mod synced;
pub mod unfinished;
pub mod unsynced;
pub mod upkeep;

pub use crate::replicas::copies::remove_left;

use crate::followed::Phase;
use crate::replicas::State;
use crate::replicas::synced::Floor;
use crate::server::Server;
use ::log::{Span, SyncPolicy, Unit};
use engine::{Attention, Engine, durability};
use keyspace::DbIndex;
use net::client::Client;
use sys::Stamp;

/// A request that is no effect, of one word, with an answer of its own from nobody.
const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";
/// Asks replicas how far they are.
const GETACK: &[u8] = b"*3\r\n$8\r\nREPLCONF\r\n$6\r\nGETACK\r\n$1\r\n*\r\n";

/// The offset in the stream of a place in the history.
pub fn offset_of(engine: &Engine, stamp: Stamp) -> u64 {
    match engine.durability.log() {
        Some(log) => {
            let stream = log.stream();
            stream.offset.wrapping_add(stamp.0.wrapping_sub(stream.at.0))
        }
        None => stamp.0,
    }
}

/// The place in the history of an offset in the stream: as [`offset_of`], the other way round.
pub fn stamp_of(engine: &Engine, offset: u64) -> Stamp {
    Stamp(offset.wrapping_sub(offset_of(engine, Stamp(0))))
}

/// Whether the stream is a master's, in which nothing of this server's own may stand. It is until one of its own has begun, also when no master
/// is followed any more.
fn is_relayed(server: &Server) -> bool {
    server.engine.attention().contains(Attention::FOLLOWING)
}

/// The offset behind all that was written.
pub fn end(server: &Server) -> u64 {
    match server.engine.durability.log() {
        // What is here only is in between.
        Some(log) if is_relayed(server) => log.stream().offset,
        _ => end_of_written(server),
    }
}

/// The same where what is here only is not in between: also where a master was followed, or is, and nothing was written beside it.
pub fn end_of_written(server: &Server) -> u64 {
    place_of_end(server).offset
}

/// Where that is in the history, too.
fn place_of_end(server: &Server) -> Floor {
    match server.engine.durability.log() {
        Some(log) => {
            let stamp = Stamp(log.appended().0);
            Floor { offset: offset_of(&server.engine, stamp), stamp }
        }
        None => {
            let offset = server.stream().offset;
            Floor { offset, stamp: Stamp(offset) }
        }
    }
}

/// The offset behind what was written up to a place in the history, 0 if nothing was. What stands before this server's own stream, in which a
/// master's was followed last, may have been somewhere else; so it counts as what stands where its own begins.
pub fn offset_behind(server: &Server, written: Stamp) -> u64 {
    if written == Stamp(0) {
        return 0;
    }
    let end = place_of_end(server);
    let own_begins = server.stream().former.map_or(0, |(_, offset)| offset);
    let behind = end.stamp.0.saturating_sub(written.0);
    end.offset.saturating_sub(behind).max(own_begins.min(end.offset))
}

/// The offset behind all that any replica can have been sent. On a follower what is sent may be done and not be durable.
pub fn sent_end(server: &Server) -> u64 {
    let in_backlog = server.feeding.state.lock().backlog.as_ref().map_or(0, |backlog| backlog.end());
    let followed = server.following.status().map_or(0, |status| status.offset);
    end(server).max(in_backlog).max(followed)
}

/// The offset that others are told as this server's: of what replicas are sent, which is what is on disk, or, where the log's policy
/// does not sync at once, all that was written.
pub fn told(server: &Server) -> u64 {
    let log = server.engine.durability.log();
    if log.is_none_or(|log| log.sync_policy() == SyncPolicy::Always) {
        return server.stream().offset;
    }
    match server.following.status() {
        Some(status) if status.phase == Phase::Connected => status.offset,
        _ => end(server),
    }
}

/// Has what this thread has written, and has gathered, go on: to the disk, or to replicas. Called by a worker that has nothing to do, or is at
/// something that takes long; it tells how many connections it has.
pub fn pass_gathered(server: &Server, connections: impl FnOnce() -> u32) {
    if durability::take_gathered(connections) {
        match server.engine.durability.log() {
            Some(log) => log.nudge(),
            None => server.feeding.state.lock().wake(),
        }
    }
}

/// Puts a request into the stream that has no effect. False: there is none that takes it now.
fn say(server: &Server, request: &[u8]) -> bool {
    let Some(_held_off) = server.failover.hold_off() else { return false };
    !is_relayed(server) && append(server, None, request, is_own)
}

/// Whether the stream without a log is this server's own: nobody may have noted since it was asked that a master is followed.
fn is_own(state: &State) -> bool {
    !state.is_following
}

/// Puts the first request of a reign into the stream, which says nothing but that it begins. False: there is nobody who takes it now.
pub fn begin_reign(server: &Server) -> bool {
    append(server, None, PING, |_| true)
}

/// Appends what has no effect; who reads byte by byte finds it in that database, if there is one to find it in. Without a log it is asked whether it
/// may.
fn append(server: &Server, database: Option<DbIndex>, request: &[u8], may: fn(&State) -> bool) -> bool {
    match server.engine.durability.log() {
        Some(log) if log.writable().is_ok() && !log.is_full() => {
            let time = server.engine.clock.now();
            match database {
                Some(database) => log.append_told(database.0, time, request),
                None => {
                    let unit = Unit { database: 0, ends_in: 0, time, stream: request, is_followed: false };
                    log.append_unit(&unit, Vec::new())
                }
            };
            log.nudge();
            true
        }
        Some(_) => false,
        None => {
            let mut state = server.feeding.state.lock();
            if state.taken_over_at.is_some() {
                drop(state);
                // The log has come meanwhile; while it is about to, nobody needs this.
                return server.engine.durability.log().is_some() && append(server, database, request, may);
            }
            let is_taken = state.backlog.is_some() && may(&state);
            if is_taken {
                state.append(request);
                state.journal_end += request.len() as u64;
                state.trim();
                state.wake();
            }
            is_taken
        }
    }
}

/// Whether somebody reads the stream, and it is this server's own.
pub fn is_read(server: &Server) -> bool {
    server.feeding.is_followed() && !is_relayed(server)
}

/// Passes on what a client has published in a database, which is nothing that is kept: whole requests. Who waits for what it has written
/// waits for that, too.
pub fn pass_on(server: &Server, (client, database): (&Client, DbIndex), requests: &[u8]) {
    let Some(_held_off) = server.failover.hold_off() else { return };
    if is_relayed(server) {
        return;
    }
    pass_on_to_stream(server, database, requests);
    client.note_written_waiting(place_of_end(server).stamp);
}

fn pass_on_to_stream(server: &Server, database: DbIndex, requests: &[u8]) {
    if server.engine.durability.log().is_none() {
        // Who reads byte by byte finds it in its database, as in Redis.
        let state = &mut *server.feeding.state.lock();
        if state.taken_over_at.is_none() && is_own(state) && dress(state, database, requests) {
            return state.wake();
        }
    }
    append(server, Some(database), requests, is_own);
}

/// Puts requests for a database into the stream that is kept without a log. False: none is.
fn dress(state: &mut State, database: DbIndex, requests: &[u8]) -> bool {
    let State { dresser, backlog, journal_end, .. } = state;
    let Some(backlog) = backlog else { return false };
    dresser.show(Span::of(database.0), &[requests], |bytes| backlog.append(bytes));
    *journal_end = backlog.end();
    state.trim();
    true
}

/// Whether somebody waits for replicas to have all there is. Each question is one more thing for them to have, and they say how far they
/// are by themselves, too.
fn is_awaited(server: &Server) -> bool {
    server.failover.is_on() || server.departure.is_waiting()
}

/// Asks all replicas how far they are, unless they have been asked by somebody behind this offset.
pub fn ask(server: &Server, offset: u64) {
    if is_awaited(server) {
        return;
    }
    let is_asked = {
        let state = server.feeding.state.lock();
        state.replicas.is_empty() || state.asked_at >= offset && state.asked_at > 0
    };
    if !is_asked {
        ask_again(server);
    }
}

/// The same for all that is written, unless nothing was since they were asked.
fn ask_behind(server: &Server, end: u64) {
    let is_asked = {
        let state = server.feeding.state.lock();
        state.replicas.is_empty() || state.asked_end >= end && state.asked_end > 0
    };
    if !is_asked {
        ask_again(server);
    }
}

/// Asks them in any case.
fn ask_again(server: &Server) {
    let at = end(server);
    if say(server, GETACK) {
        // Where somebody else has written in between, its end is further on, and it is asked once more.
        let end = at + GETACK.len() as u64;
        let mut state = server.feeding.state.lock();
        (state.asked_at, state.asked_end) = (state.asked_at.max(at), state.asked_end.max(end));
    }
}

/// The end of what was written, less the request that asked for it.
fn asked_for(server: &Server) -> u64 {
    let end = end(server);
    let state = server.feeding.state.lock();
    if state.asked_end == end { state.asked_at } else { end }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::followed::Master;
    use crate::following::{self, Order};
    use crate::{assembly, commands};
    use config::{Config, Startup};
    use sys::UnixMs;

    #[test]
    fn nothing_of_its_own_stands_in_a_masters_stream_that_is_followed_no_more() {
        commands::install();
        let Ok(Startup::Serve { config, .. }) = Config::from_text(b"edition memory") else {
            panic!("it is a file of one line")
        };
        let server = assembly::new(*config, 2);
        joining::keep_relayed(&server);
        // What carries out the orders waits, so that no stream of its own begins yet.
        let held = server.following.thread.lock();
        let nobody = Master { host: "nobody.invalid".to_owned(), port: 0 };
        assert_eq!(following::follow(&server, Some(nobody)), Order::Done);
        following::become_follower(&server);
        assert_eq!(following::follow(&server, None), Order::Underway);
        let before = server.stream();
        assert!(!say(&server, GETACK) && !is_read(&server));
        let client = Client::new(1, String::new(), String::new(), 0, (0, 0), UnixMs(0));
        pass_on(&server, (&client, DbIndex(0)), PING);
        assert_eq!(server.stream(), before);
        drop(held);
        while following::follow(&server, None) != Order::Done {
            std::thread::yield_now();
        }
        assert_eq!(server.stream().former, Some((before.id, before.offset)));
        assert!(say(&server, GETACK));
        assert_eq!(server.stream().offset, before.offset + GETACK.len() as u64);
    }
}
