//! What a shard's decisions come to for this server's clients and its stream: a reign begins and ends, somebody is followed, or nobody.
//!
//! Thread rule: the driver's thread. Where it takes the place of the thread that has the link to a master (`following.thread`), that one has ended.

use crate::blocking::{self, Cut};
use crate::dispatch::ownership;
use crate::feeding::{self, joining, synced, upkeep};
use crate::followed::Master;
use crate::following::{self, rewinding};
use crate::pause::{Paused, Purpose};
use crate::replicas::replica::Identity;
use crate::server::Server;
use crate::shard::Address;
use ::log::{ReplicationId, Stream};
use engine::replacement::{self, Alone, Failure};
use engine::{Attention, durability};
use replication::insync::NodeId;
use std::io;
use std::sync::Arc;
use std::time::Instant;
use sys::{Stamp, UnixMs};
use telemetry::log;

/// What is here is no master's yet, and nobody writes: the start.
pub fn begin_as_nobody(server: &Arc<Server>) {
    following::stand_by(server);
    synced::follow_config(server);
    let _only = server.following.thread.lock();
    following::become_follower(server);
    server.net.gate.forget_replicas();
    server.following.state.lock().is_carried_out = true;
}

/// This server is master no more. When it returns nobody writes, and what waited at the gate is shown to nobody. Gives where the stream ends.
pub fn end(server: &Arc<Server>) -> u64 {
    following::stand_by(server);
    let _only = server.following.thread.lock();
    following::become_follower(server);
    let waited = blocking::end_all(server);
    let end = feeding::end_of_written(server);
    begin_generation(server);
    for waiter in waited {
        // Behind that, or what it is told would end its connection.
        let how = ownership::ask_again(server, &waiter).map_or(Cut::Demoted, Cut::Elsewhere);
        blocking::tell(server, server.engine.following_guest(), &waiter, how);
    }
    server.following.state.lock().is_carried_out = true;
    end
}

/// Clients' writes wait from now on: another is to be master. This one is still.
pub fn hold_writes(server: &Server) {
    let (now, for_ever) = (server.engine.clock.now(), UnixMs(i64::MAX as u64));
    server.pause.begin(&server.engine, Purpose::Failover, Paused::Writes, now, for_ever);
}

/// They go on, or hear that another is master.
pub fn let_writes_go(server: &Server) {
    server.pause.end(&server.engine, &server.net.clients, Purpose::Failover);
}

/// Whether all that was let in before writes were held has taken effect, and nobody waits for a reply to it.
pub fn is_quiet(server: &Server) -> bool {
    let engine = &server.engine;
    let _only = server.following.thread.lock();
    let is_slow = || engine.keyspace.has_any_slow_holder();
    let Some(mut batch) = engine.keyspace.enter_unless(engine.following_guest(), is_slow) else {
        return false;
    };
    if !batch.try_hold_all() {
        return false;
    }
    batch.release();
    drop(batch);
    let waits = |client: &Arc<net::client::Client>| client.is_at_gate() || client.has_mail();
    !server.net.clients.all().iter().any(waits)
}

/// What is held at the gate is shown to nobody, and what comes is counted from here. Nobody writes.
pub fn begin_generation(server: &Server) {
    let gate = &server.net.gate;
    gate.begin_generation();
    gate.forget_replicas();
    gate.freeze(false);
    for client in server.net.clients.all() {
        if client.has_mail() {
            // What was posted for somebody goes with its connection.
            server.net.clients.kill(&client);
        } else if client.is_at_gate() {
            // It finds out when it looks whether that ends it.
            client.set_at_gate(false);
            client.wake();
        }
    }
}

/// Follows a master's stream of this name.
pub fn follow(server: &Arc<Server>, master: &Address, wanted: following::Wanted) -> u64 {
    let master = Master { host: master.host.clone(), port: master.port };
    following::follow_stream(server, master, wanted)
}

/// Has what is written from now on be the stream of this name, with a first request that says nothing. Gives where that ends. Clients do not
/// write yet.
///
/// # Errors
/// Those of the disk.
pub fn begin_stream(server: &Arc<Server>, id: ReplicationId) -> io::Result<u64> {
    // Whoever had the link is at its end.
    let _only = server.following.thread.lock();
    durability::sync(&server.engine)?;
    let before = server.stream();
    if before.id != id {
        let former = Some((before.id, before.offset)).filter(|(id, _)| *id != ReplicationId::NONE);
        following::begin_stream(server, Stream { id, former, is_masters: false, ..before })?;
    }
    joining::keep_relayed(server);
    if !feeding::begin_reign(server) {
        return Err(io::Error::other("the log takes nothing"));
    }
    Ok(feeding::end_of_written(server))
}

/// Has the stream be kept for other nodes of the shard, of which this server does not know how far they are: the former master, and who was away
/// by then, come from where the reign begins, or from a little before.
pub fn keep_for(server: &Server, others: Vec<NodeId>) {
    let from = feeding::end_of_written(server).saturating_sub(server.engine.config.repl_backlog_size());
    upkeep::keep_for(server, others.into_iter().map(Identity::Node), from);
}

/// Clients write from now on.
pub fn begin(server: &Arc<Server>) {
    let _only = server.following.thread.lock();
    following::open_to_writes(server);
    log!(Notice, "MASTER MODE enabled");
}

/// Takes back what is here behind this offset of the stream. False: what the log holds does not go back so far, or cannot be read.
pub fn go_back(server: &Arc<Server>, offset: u64) -> bool {
    let (engine, began, before) = (&server.engine, Instant::now(), server.stream());
    let looked = durability::sync(engine)
        .and_then(|()| replacement::look_back(engine, (None, offset), || super::look(server)));
    let past = match looked {
        Ok(Some(past)) if past.stream.offset == offset => past,
        Ok(_) => return false,
        Err(error) => {
            log!(Warning, "The data cannot go back to offset {offset}: {error}");
            return false;
        }
    };
    let _only = server.following.thread.lock();
    let look = &mut || super::look(server);
    let alone = match server.holders.claiming_all(engine, || Alone::begin(engine, look)) {
        Ok(alone) => alone,
        Err(error) => {
            log!(Warning, "The data cannot go back to offset {offset}: {error}");
            return false;
        }
    };
    let _still = server.following.stand_still();
    let done = replacement::rewind(engine, &alone, &past, &|_| ());
    match &done {
        Ok(()) => rewinding::note_done(server, before, past.stream, began),
        Err(failure) => log!(Warning, "The data cannot go back to offset {offset}: {failure}"),
    }
    if matches!(done, Err(Failure::Torn(_))) {
        // The directory holds what was there before.
        server.stop(1);
    }
    done.is_ok()
}

/// What is written up to there is on every member, and never taken back.
pub fn keep_before(server: &Server, committed: Stamp) {
    synced::keep_before(server, Some(committed));
}

/// Nothing of what is here is served any more, and nothing is taken.
pub fn halt(server: &Arc<Server>) {
    server.engine.set_attention(Attention::FOLLOWING, true);
}
