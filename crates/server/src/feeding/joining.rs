//! How a connection becomes a replica, what it is given from then on, and its end.

use super::behind::{catch_up, read_some};
use super::copying;
use crate::followed::Phase;
use crate::replicas::State;
use crate::replicas::journal::ToBacklog;
use crate::replicas::replica::{Given, Replica};
use crate::server::Server;
use ::log::{ReplicationId, Stream};
use command::{Error, Result};
use engine::{durability, replacement};
use keyspace::Batch;
use net::client::Traits;
use replication::feed::Backlog;
use std::io;
use std::sync::Arc;
use telemetry::log;

/// What a connection is given at a time.
const FEED_BYTES: usize = 256 << 10;

/// The error of a replica that would follow who follows nobody at the moment.
pub const NO_MASTER_LINK: Error = Error::text("NOMASTERLINK Can't SYNC while not connected with my master");

/// The error of who wants a full copy of a shard's node that is not master: what that decides again and again wants nothing of its master's to be
/// done, which gives a copy up.
const IS_MEMBER: Error =
    Error::text("ERR This node of a shard follows its master, and gives no full copies: ask the master");

/// From where a replica would go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// The name of the stream that it has read.
    pub id: Vec<u8>,
    /// The offset behind what it has.
    pub offset: u64,
    /// It knows that what it has there is of one moment.
    pub is_whole: bool,
}

/// # Errors
/// A master is followed, and the link to it is down: what there is here is no place in its stream.
pub fn refuse_without_link(server: &Server) -> Result<()> {
    match server.following.status() {
        Some(status) if status.phase != Phase::Connected => Err(NO_MASTER_LINK),
        _ => Ok(()),
    }
}

/// Makes a connection a replica. `wish`: it would go on from there; else it gets a full copy.
///
/// # Errors
/// Something that is slow has the keyspace: the command is to be run again.
pub fn join(
    server: &Arc<Server>,
    batch: &mut Batch<'_>,
    replica: &Arc<Replica>,
    wish: Option<&Wish>,
) -> Result<()> {
    if server.failover.is_on() {
        return Err(Error::text("NOMASTERLINK Can't SYNC while failing over"));
    }
    refuse_without_link(server)?;
    begin_stream(server, batch)?;
    super::upkeep::end_renamed(server);
    let feeding = &server.feeding;
    let mut state = feeding.state.lock();
    // Not before: whoever is not there yet when another stream begins is not ended with those who read this one.
    let stream = server.stream_beside(&state);
    let is_known = |wish: &&Wish| replica.said.is_tarn || wish.offset >= state.foreign_until;
    let may_go_on = |wish: &&Wish| is_known(wish) && may_go_on(server, &state, &stream, wish);
    let from = wish.filter(may_go_on).map(|wish| wish.offset);
    if from.is_none() && server.shard.is_on() && super::is_relayed(server) {
        return Err(IS_MEMBER);
    }
    let now = server.engine.clock.now();
    if let Some(why) = state.refused.reason(&replica.identity(), now).filter(|_| from.is_none()) {
        // What a Redis takes for a reason to come again, a second later, and not for one to ask in an older way.
        return Err(Error::line(format!("NOMASTERLINK {why}; copies are refused for a while")));
    }
    log!(Notice, "Replica {} asks for synchronization", replica.name());
    replica.client.set_trait(Traits::REPLICA, true);
    state.replicas.push(replica.clone());
    state.away.come(replica.identity(), from, now);
    feeding.note_followers(&state);
    if let Some(from) = from {
        feeding.continued.add(1);
        let line = match replica.said.knows_psync2 {
            true => format!("+CONTINUE {}\r\n", stream.id),
            false => "+CONTINUE\r\n".to_owned(),
        };
        drop(state);
        replica.say(line.as_bytes());
        replica.go_on(Some(from));
        log!(
            Notice,
            "Partial resynchronization request from {} accepted, from offset {from}",
            replica.name()
        );
    } else {
        feeding.refused.add(i64::from(wish.is_some()));
        state.waiting.push_back(replica.clone());
        drop(state);
        copying::begin_next(server);
    }
    super::upkeep::keep_stream(server);
    Ok(())
}

/// Whether the stream can be gone on with from there.
fn may_go_on(server: &Server, state: &State, stream: &Stream, wish: &Wish) -> bool {
    let is = |id: &::log::ReplicationId| id.to_string().as_bytes().eq_ignore_ascii_case(&wish.id);
    let is_known =
        is(&stream.id) || stream.former.as_ref().is_some_and(|(id, until)| is(id) && wish.offset <= *until);
    // What belonged to the copy that is here was left out of the stream in part. Of others' copies there is only one who stands within.
    let is_of_copy =
        !server.following.is_whole_at(wish.offset) || !wish.is_whole && state.ranges.cover(wish.offset);
    if !is_known || is_of_copy {
        return false;
    }
    let in_backlog = state.backlog.as_ref().is_some_and(|backlog| backlog.holds(wish.offset));
    let in_segments = || {
        let log = server.engine.durability.log();
        log.is_some_and(|log| log.read_stream(wish.offset).is_ok_and(|reader| reader.is_some()))
    };
    in_backlog || wish.offset <= stream.offset && in_segments()
}

/// Up to where a stream is the one that this server could go on with, of which somebody has these names: `id:offset`, separated by commas,
/// the offset being how far it has it. `is_whole`: see [`Wish`]. None: it is another one, or no more of it is there.
///
/// # Errors
/// That is not known yet, as with [`join`].
pub fn common(server: &Server, names: &[u8], is_whole: bool) -> Result<Option<(ReplicationId, u64)>> {
    let is_linked = || server.following.status().is_none_or(|status| status.phase == Phase::Connected);
    match server.failover.is_on() || !is_linked() {
        true => Err(NO_MASTER_LINK),
        false => Ok(find_common(server, names, is_whole)),
    }
}

/// By what a PSYNC would go on from: where the log does not sync at once replicas have more than is on disk here.
fn find_common(server: &Server, names: &[u8], is_whole: bool) -> Option<(ReplicationId, u64)> {
    let state = server.feeding.state.lock();
    let stream = server.stream_beside(&state);
    let sent = state.backlog.as_ref().map_or(0, Backlog::end);
    let good_until = |id: ReplicationId| match stream.former {
        _ if id == stream.id => Some(stream.offset.max(sent)),
        Some((former, until)) if former == id => Some(until),
        _ => None,
    };
    let names = std::str::from_utf8(names).ok()?.split(',').take(NAMES_MAX);
    let named = names.filter_map(|name| {
        let (id, offset) = name.split_once(':')?;
        Some((id.parse::<ReplicationId>().ok()?, offset.parse::<u64>().ok()?))
    });
    let (id, offset) = named
        .filter_map(|(id, offset)| Some((id, good_until(id)?.min(offset))))
        .find(|(id, _)| *id != ReplicationId::NONE)?;
    let wish = Wish { id: id.to_string().into_bytes(), offset, is_whole };
    may_go_on(server, &state, &stream, &wish).then_some((id, offset))
}

/// Whether the stream can be gone on with from a place.
pub fn goes_on(server: &Server, wish: &Wish) -> bool {
    let state = server.feeding.state.lock();
    may_go_on(server, &state, &server.stream_beside(&state), wish)
}

/// Names that are looked at: what a server has is called by two at most.
const NAMES_MAX: usize = 2;

/// Has the stream of a master's be kept from here on, though nobody follows this server yet: who follows the same master may follow this
/// one instead some day, and goes on where it is. To be called by whoever does what the master wants, between two requests.
pub fn keep_relayed(server: &Server) {
    let engine = &server.engine;
    if server.feeding.state.lock().backlog.is_some() {
        return;
    }
    if engine.durability.log().is_some() {
        stream_log(server);
        return;
    }
    server
        .holders
        .claiming_all(engine, || replacement::alone_behind_scripts(engine, |_| stream_effects(server)));
    super::upkeep::follow_config(server);
}

fn stream_log(server: &Server) {
    let Some(log) = server.engine.durability.log() else { return };
    log.set_streamed(true);
    let (at, size) = (log.stream().offset, server.engine.config.repl_backlog_size());
    server.feeding.state.lock().backlog.get_or_insert_with(|| Backlog::new(at, size));
    super::upkeep::follow_config(server);
}

/// The same without a log, with all slots held.
fn stream_effects(server: &Server) {
    let (feeding, size) = (&server.feeding, server.engine.config.repl_backlog_size());
    let at = server.stream().offset;
    let mut state = feeding.state.lock();
    if state.backlog.is_some() {
        return;
    }
    let is_first = !state.has_journal;
    state.backlog = Some(Backlog::new(at, size));
    (state.has_journal, state.journal_end) = (true, at);
    state.dresser.forget();
    let is_following = state.is_following;
    drop(state);
    match is_first {
        true => server.engine.keyspace.set_first_journal(Box::new(ToBacklog(feeding.clone()))),
        false => server.engine.keyspace.rest_journal(false),
    }
    if !is_following {
        // What was written before is in no stream.
        server.rename_stream();
    }
}

/// Has the stream be there for whoever follows.
///
/// # Errors
/// Something that is slow has the keyspace: the command is to be run again.
pub fn begin_stream(server: &Arc<Server>, batch: &mut Batch<'_>) -> Result<()> {
    let engine = &server.engine;
    if server.feeding.state.lock().backlog.is_some() {
        return Ok(());
    }
    if engine.durability.log().is_some() {
        let about = |error: io::Error| Error::line(format!("ERR {error}"));
        super::unsynced::note(server).map_err(about)?;
        if super::unsynced::is_noted(server) {
            // The backlog begins with what is written next: what is not on disk before that is in no segment.
            durability::sync(engine).map_err(about)?;
        }
        stream_log(server);
        return Ok(());
    }
    begin_without_log(server, batch)
}

/// Without a log effects go to a journal of the stream's own from now on.
fn begin_without_log(server: &Arc<Server>, batch: &mut Batch<'_>) -> Result<()> {
    // Where the master's stream is, is known between its requests only.
    let Some(_still) = server.following.applying.try_lock() else { return Err(Error::InUse) };
    let holds = !batch.holds_all();
    if holds && !batch.try_hold_all() {
        return Err(Error::InUse);
    }
    stream_effects(server);
    if holds {
        batch.release();
    }
    super::upkeep::follow_config(server);
    Ok(())
}

/// Gives a replica's connection what is next. An error is why it ends.
///
/// # Errors
/// What it needs is not there any more, or is nothing for it.
pub fn feed(server: &Arc<Server>, replica: &Arc<Replica>, out: &mut Vec<u8>) -> io::Result<()> {
    let feeding = &server.feeding;
    match replica.give(out, FEED_BYTES) {
        Given::OfOutbox => {}
        Given::Nothing => return Err(over()),
        Given::Backlog(from) => {
            let state = feeding.state.lock();
            if replica.is_ended() {
                // Of what is there now some is another stream.
                return Err(over());
            }
            let Some(bytes) = read_some(&state.backlog, from) else {
                drop(state);
                return fall_behind(server, replica, from);
            };
            if bytes.is_empty() {
                replica.sleep();
                return Ok(());
            }
            drop(state);
            feeding.look_at(replica, &bytes, from)?;
            replica.set_position(from + bytes.len() as u64);
            *out = bytes;
        }
    }
    feeding.sent_bytes.add(i64::try_from(out.len()).unwrap_or(0));
    Ok(())
}

fn over() -> io::Error {
    io::Error::other("nothing more is for it in this stream")
}

/// A replica is further behind than the backlog.
fn fall_behind(server: &Arc<Server>, replica: &Arc<Replica>, from: u64) -> io::Result<()> {
    if server.engine.durability.kept_log().is_none() {
        server.net.clients.output_limit_disconnections.add(1);
        return Err(io::Error::other(
            "it is further behind than is kept for it (client-output-buffer-limit replica, repl-backlog-size)",
        ));
    }
    catch_up(server, replica, from);
    Ok(())
}
