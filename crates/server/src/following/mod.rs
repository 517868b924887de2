//! The master that this server follows, if it follows one: REPLICAOF, what is told of the link to it, and what follows for clients.
//!
//! A thread of its own has the link ([`link`]): it connects, shakes hands, goes back to where the master has the stream, too
//! ([`rewinding`]), takes a full copy ([`copy`]) or the rest of the stream, and does what the master wants ([`applying`]). What it does goes into the log as one record with the master's bytes.
//!
//! 1. From REPLICAOF on clients' writes are refused before anything of the master's is done; whoever waits for a key is sent away before.
//! 2. There is one link at a time: the next thread waits for the one before to end.
//! 3. A follower's log is its master's stream. It becomes a stream of its own when REPLICAOF NO ONE takes effect, and not before all of
//!    the master's is durable; the former name holds up to there.

pub mod agreeing;
pub mod applying;
pub mod copy;
pub mod handing_over;
pub mod link;
pub mod pauses;
pub mod rest;
pub mod rewinding;
pub mod taken;

use crate::blocking::{self, Cut};
use crate::feeding::{synced, unsynced};
pub use crate::followed::Wanted;
use crate::followed::{Master, Phase, Retry, State, Status};
use crate::server::Server;
use ::log::{ReplicationId, Stream, SyncPolicy};
use engine::{Attention, durability, replacement};
use keyspace::KeepsAll;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use telemetry::log;

/// How often a server that is to be a master tries to begin a stream of its own, while its disk refuses.
const RETRY: Duration = Duration::from_millis(200);

/// What became of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// It is carried out, as far as clients can tell.
    Done,
    /// That was so before.
    Already,
    /// It is being carried out: ask again.
    Underway,
}

/// Follows another server, or none. May be called again and again until it is done.
pub fn follow(server: &Arc<Server>, master: Option<Master>) -> Order {
    order(server, master, None)
}

/// The same. `history`: no copy is taken of another stream than this where replicas have to have what is written (see
/// [`crate::followed::State::history`]).
fn order(server: &Arc<Server>, master: Option<Master>, history: Option<ReplicationId>) -> Order {
    let mut state = server.following.state.lock();
    let is_same = match (&state.status, &master) {
        (Some(status), Some(master)) => status.master.is_same(master),
        (before, wanted) => before.is_none() && wanted.is_none(),
    };
    if is_same {
        if state.status.as_ref().is_some_and(|status| status.phase != Phase::Connected) {
            state.history = history;
            server.following.changed.notify_all();
        }
        return match state.is_carried_out || master.is_some() || state.order == 0 {
            true if master.is_none() => Order::Done,
            true => Order::Already,
            false => Order::Underway,
        };
    }
    let now = server.engine.clock.now();
    state.order += 1;
    (state.is_carried_out, state.retry) = (false, None);
    end_former(server, &mut state);
    server.engine.config.set_replicaof(master.clone().map(|master| (master.host, master.port)));
    let is_follower = master.is_some();
    (state.history, state.wanted) = (history, None);
    state.status = master.map(|master| Status::begin(master, now));
    if is_follower {
        server.engine.set_attention(Attention::FOLLOWING, true);
    }
    let order = state.order;
    drop(state);
    follow_oom_score(server);
    synced::begin_anew(server);
    begin_to_carry_out(server, order, is_follower);
    match is_follower {
        true => Order::Done,
        false => Order::Underway,
    }
}

/// The order before has another one behind it.
fn end_former(server: &Server, state: &mut State) {
    state.connection.take().into_iter().for_each(|connection| _ = connection.end());
    server.following.changed.notify_all();
}

/// Follows nobody, as one that is no master: in a shard whose master is not known, or whose stream is not followed yet. Who had the link does nothing more of
/// what its master wants once this is held that keeps it from that.
pub fn stand_by(server: &Server) {
    let nobody = Master { host: String::new(), port: 0 };
    stand_behind(server, nobody, None);
}

/// The same behind a master of which something is wanted. Gives the number of the order, which nobody carries out yet.
pub fn stand_behind(server: &Server, master: Master, wanted: Option<Wanted>) -> u64 {
    let now = server.engine.clock.now();
    let mut state = server.following.state.lock();
    state.order += 1;
    (state.is_carried_out, state.retry, state.history, state.wanted) = (true, None, None, wanted);
    end_former(server, &mut state);
    state.status = Some(Status::begin(master, now));
    server.engine.set_attention(Attention::FOLLOWING, true);
    let order = state.order;
    drop(state);
    follow_oom_score(server);
    order
}

/// Another role may have another score. Where the kernel refuses it the log says so, and nothing else changes.
fn follow_oom_score(server: &Server) {
    let _ = server.follow_oom_score();
}

/// Follows a master's stream of this name, as the members of a shard have agreed. Gives the number of the order.
pub fn follow_stream(server: &Arc<Server>, master: Master, wanted: Wanted) -> u64 {
    let order = stand_behind(server, master, Some(wanted));
    begin_to_carry_out(server, order, true);
    order
}

fn begin_to_carry_out(server: &Arc<Server>, order: u64, is_follower: bool) {
    let carrier = server.clone();
    let work = move || carry_out(&carrier, order, is_follower);
    if let Err(error) = std::thread::Builder::new().name("follow".to_owned()).spawn(work) {
        log!(Warning, "Can't start the thread that follows the master, which is tried again: {error}");
        try_later(server, order, is_follower);
    }
}

fn try_later(server: &Arc<Server>, order: u64, is_follower: bool) {
    let mut state = server.following.state.lock();
    if state.order == order {
        let server = server.clone();
        state.retry = Some(Retry(Box::new(move || begin_to_carry_out(&server, order, is_follower))));
    }
}

/// Begins to follow whom the configuration names. Once, after the start has loaded the data.
pub fn begin(server: &Arc<Server>) {
    copy::remove_left(&server.engine.dir());
    let Some((host, port)) = server.engine.config.replicaof() else {
        return begin_as_master(server);
    };
    let stream = server.stream();
    let history = Some(stream.id).filter(|id| stream.is_masters && *id != ReplicationId::NONE);
    order(server, Some(Master { host, port }), history);
}

/// What is written from now on is no master's, and is not under the name of what was. Nor is it where replicas may have been sent what a power cut
/// has taken back here: what is written in its place is another stream. They have the same up to where what is here ends.
fn begin_as_master(server: &Server) {
    let Some(log) = server.engine.durability.log() else { return };
    let stream = log.stream();
    let may_lack = log.sync_policy() != SyncPolicy::Always || unsynced::is_noted(server);
    if stream.id == ReplicationId::NONE || !stream.is_masters && !may_lack {
        return;
    }
    let begun = durability::sync(&server.engine)
        .and_then(|()| log.begin_stream(Some(succeeded(server, log.stream()))));
    match begun {
        Ok(()) => unsynced::forget(server),
        Err(error) => {
            log!(Warning, "The stream's own name is not on disk yet: {error}");
            server.rename_stream();
        }
    }
}

fn carry_out(server: &Arc<Server>, order: u64, is_follower: bool) {
    let _only = server.following.thread.lock();
    if !server.following.is_in_force(order) {
        return;
    }
    if is_follower {
        become_follower(server);
        for waiter in blocking::end_all(server) {
            blocking::tell(server, server.engine.following_guest(), &waiter, Cut::Demoted);
        }
        let mut state = server.following.state.lock();
        // Another order may have come meanwhile, which is not carried out by this one.
        state.is_carried_out |= state.order == order;
        drop(state);
        link::run(server, order);
    } else {
        become_master(server, order);
    }
}

/// From now on nothing goes into the stream but what a master sends. With `thread` of [`crate::followed::Following`] held.
pub fn become_follower(server: &Server) {
    let engine = &server.engine;
    engine.keyspace.keep_all(KeepsAll::Following, true);
    // Those who were let in before clients' writes were refused have left.
    let begin = || {
        engine.durability.set_following(true);
        server.feeding.set_following(true);
        engine.keyspace.remember_beside(true);
    };
    server.holders.claiming_all(engine, || replacement::alone_behind_scripts(engine, |_| begin()));
}

/// Begins a stream of its own, and lets clients write.
fn become_master(server: &Arc<Server>, order: u64) {
    while let Err(error) = begin_own_stream(server) {
        log!(Warning, "Can't begin a stream of its own yet: {error}");
        server.following.rest(order, RETRY);
        if !server.following.is_in_force(order) || server.engine.is_ending() {
            return;
        }
    }
    let engine = &server.engine;
    write_own_stream(server);
    let mut state = server.following.state.lock();
    if state.order == order {
        state.is_carried_out = true;
        engine.set_attention(Attention::FOLLOWING, false);
        log!(Notice, "MASTER MODE enabled");
    }
    drop(state);
    handing_over::note_master(server);
    server.net.clients.wake_all();
}

/// What is written goes into the stream.
fn write_own_stream(server: &Server) {
    let engine = &server.engine;
    engine.durability.set_following(false);
    server.feeding.set_following(false);
    engine.keyspace.remember_beside(false);
    engine.keyspace.keep_all(KeepsAll::Following, false);
}

/// Lets clients write into the stream that was begun, as the members of a shard have agreed. With `thread` held.
pub fn open_to_writes(server: &Server) {
    write_own_stream(server);
    let mut state = server.following.state.lock();
    state.order += 1;
    (state.status, state.is_carried_out, state.wanted) = (None, true, None);
    server.engine.set_attention(Attention::FOLLOWING, false);
    drop(state);
    follow_oom_score(server);
    server.net.clients.wake_all();
}

fn begin_own_stream(server: &Server) -> io::Result<()> {
    unsynced::note(server)?;
    durability::sync(&server.engine)?;
    begin_stream(server, succeeded(server, server.stream()))
}

/// What goes on behind a master's stream. The former name holds only where what is here is of one moment: nobody else has the same at that place.
fn succeeded(server: &Server, stream: Stream) -> Stream {
    match server.following.is_whole_at(stream.offset) {
        true => stream.succeeded(),
        false => stream.renamed(),
    }
}

/// Has what is written from now on be this stream. All that was written is durable, and nobody writes until it returns; no log begins
/// meanwhile.
///
/// # Errors
/// Those of the disk, and that not all is durable.
pub fn begin_stream(server: &Server, stream: Stream) -> io::Result<()> {
    let _still = server.following.stand_still();
    begin_stream_still(server, stream)
}

/// The same, unless the order is not in force any more.
fn begin_stream_by(server: &Server, order: u64, stream: Stream) -> io::Result<()> {
    let _still = server.following.stand_still();
    link::look(server, order)?;
    begin_stream_still(server, stream)
}

fn begin_stream_still(server: &Server, stream: Stream) -> io::Result<()> {
    let begun = match server.engine.durability.log() {
        Some(log) => log.begin_stream(Some(stream)),
        None => {
            server.set_stream(stream);
            Ok(())
        }
    };
    // Nobody is sent a byte of it under another name.
    server.feeding.end_all(server.stream().id);
    begun
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{assembly, commands};
    use config::{Config, Startup};
    use engine::replacement;
    use std::time::Instant;
    use value::rdb::file::{FileValue, FileWriter};

    #[test]
    fn an_order_without_a_thread_gets_one_later() {
        commands::install();
        let Ok(Startup::Serve { config, .. }) = Config::from_text(b"edition memory") else {
            panic!("it is a file of one line")
        };
        let server = assembly::new(*config, 2);
        // As where the thread could not be started.
        server.following.state.lock().order = 1;
        try_later(&server, 1, false);
        assert_eq!(follow(&server, None), Order::Underway);
        let began = Instant::now();
        while follow(&server, None) != Order::Done {
            server.following.look_after();
            assert!(began.elapsed() < Duration::from_secs(120), "nobody carries it out");
            std::thread::yield_now();
        }
        let master = |host: &str| Some(Master { host: host.to_owned(), port: 0 });
        assert_eq!(follow(&server, master("Nobody.invalid")), Order::Done);
        assert_eq!(follow(&server, master("nobody.INVALID")), Order::Already);
        follow(&server, None);
    }

    #[test]
    fn keys_of_a_copy_are_the_masters_while_it_is_loaded() {
        commands::install();
        let Ok(Startup::Serve { config, .. }) = Config::from_text(b"edition memory") else {
            panic!("it is a file of one line")
        };
        let server = assembly::new(*config, 2);
        let engine = &server.engine;
        become_follower(&server);
        let mut writer = FileWriter::new();
        writer.database(0, 2000, 2000);
        let times_up = Some(1);
        (0..2000).for_each(|number| {
            writer.entry(format!("key:{number}").as_bytes(), FileValue::String(b"1"), times_up, None);
        });
        let path = std::env::temp_dir().join(format!("tarn-copy-{}.rdb", std::process::id()));
        std::fs::write(&path, writer.finish()).unwrap();
        let checked = replacement::check(engine, &path, std::fs::File::open(&path).unwrap()).unwrap();
        let mut calls = 0;
        let alone = replacement::Alone::begin(engine, &mut || Ok(())).unwrap();
        let replaced = replacement::replace(
            &alone,
            (&path, checked.libraries),
            Stream::begin(::log::Lsn(7)),
            &mut || {
                calls += 1;
                // Whatever was remembered would go before the master says so.
                assert_eq!(engine.keyspace.remembered_beside(), 0);
                Ok(())
            },
        );
        std::fs::remove_file(&path).unwrap();
        replaced.unwrap();
        assert!(calls > 0);
        assert_eq!(engine.keyspace.len(keyspace::DbIndex(0)), 2000);
    }
}
