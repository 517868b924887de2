//! From where a master's stream is gone on with, and what has to hold for that: what is here, what the members of a shard have agreed
//! upon, and what the master offers.
//!
//! Thread rule: the thread that has the link.

use super::{Wanted, begin_stream_by};
use crate::server::Server;
use ::log::{ReplicationId, Stream};
use engine::durability;
use std::io;
use telemetry::log;

/// The stream of which all is here up to its offset, and what is selected there; None: there is nothing to go on from, or whoever did would not
/// know its database. In editions with a log all of it is on disk.
pub fn known_stream(server: &Server) -> io::Result<Option<Stream>> {
    let engine = &server.engine;
    // Without a log it is where the master was followed, or replicas have read along.
    let is_counted = engine.durability.log().is_some() || server.feeding.is_counted();
    durability::sync(engine)?;
    let stream = server.stream();
    let is_known =
        stream.id != ReplicationId::NONE && (is_counted || stream.is_masters) && stream.selected.is_some();
    Ok(Some(stream).filter(|_| is_known))
}

/// # Errors
/// What is here does not end where the members of the shard have agreed that it goes on, or where it had come since.
pub fn check_place(server: &Server, order: u64, offset: u64, wanted: Wanted) -> io::Result<()> {
    let followed = server.following.status().map_or(0, |status| status.offset);
    match wanted.takes_copy || offset == wanted.from.max(followed) {
        true => Ok(()),
        false => {
            if let Some(shard) = server.shard.get() {
                shard.records_are_gone(order);
            }
            Err(io::Error::other(format!(
                "What is here ends at offset {offset}, and was to be gone on with from {}",
                wanted.from.max(followed)
            )))
        }
    }
}

/// In a shard a copy is taken only if that was agreed upon, and only of the epoch's stream: this one is not.
#[cold]
pub fn refuse_copy(server: &Server, order: u64, wanted: Option<Wanted>, offered: ReplicationId) -> io::Error {
    if let Some(shard) = server.shard.get()
        && wanted.is_some_and(|wanted| wanted.id == offered)
    {
        shard.records_are_gone(order);
    }
    io::Error::other(format!(
        "The master offers a copy of {offered}, which is not what this node wants of it"
    ))
}

/// Goes on with the stream that is here, `before`, by a master that may call it otherwise.
///
/// # Errors
/// It has another name than the members of the shard have agreed upon, and those of the disk.
pub fn go_on(
    server: &Server,
    order: u64,
    (before, wanted): (Stream, Option<Wanted>),
    renamed: Option<ReplicationId>,
) -> io::Result<Stream> {
    if let Some(wanted) = wanted
        && renamed.is_some_and(|id| id != wanted.id)
    {
        return Err(io::Error::other("The master's stream has another name than the epoch's"));
    }
    let id = wanted.map(|wanted| wanted.id).or(renamed).filter(|id| *id != before.id);
    let stream = Stream { is_masters: true, ..id.map_or(before, |id| before.called(id)) };
    if stream != before {
        log!(Notice, "Master replication ID changed to {}", stream.id);
        begin_stream_by(server, order, stream)?;
    }
    Ok(stream)
}
