//! Drives the state machine of a shard's in-sync set (`replication::insync`) by this server's log, links and clients.
//!
//! A thread ([`driver`]) owns the `Member` and hands it what happens: messages ([`dialling`]), decisions ([`deciding`]), how far the log is. What follows for clients
//! and for the stream is in [`reign`]. Data travels as between any master and its replicas; the stream of each epoch has a name that only that epoch's
//! master gives ([`stream_name`]), so that nobody takes another master's bytes for it. Positions of the log are offsets in the stream.
//!
//! Thread rule: the driver's thread. While it looks how far a master's stream has come here, and decides, nothing of that is done (`following.applying`).

pub mod asking;
mod beats;
pub mod deciding;
pub mod dialling;
mod driver;
mod fault;
mod keeping;
mod reign;
mod source;
#[cfg(test)]
mod tests;

use crate::following::Wanted;
use crate::server::Server;
use crate::shard::{Address, Settings, Shard};
use ::log::{ReplicationId, SyncPolicy};
use replication::insync::{History, MemberId, NodeId};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use sys::Prng;

/// The name that the stream has in the last epoch of a log: its digits are the shard's origin, the epoch, and something of whose it is.
fn stream_name(history: &History) -> ReplicationId {
    let by = history.beginnings().last().map_or(0, |last| last.by.0);
    let whose = 0x7a51 ^ (by >> 32) as u32 ^ by as u32;
    let digits = format!("{:016x}{:016x}{whose:08x}", history.origin(), history.last_epoch().0);
    digits.parse().unwrap_or(ReplicationId::NONE)
}

/// Takes part in the shard that the directives name, if they name one. Once, after the start has loaded the data, before any client is served. Whether there is
/// one.
///
/// # Errors
/// One sentence for the operator: it is not known who this node is.
pub fn begin(server: &Arc<Server>) -> io::Result<bool> {
    let settings = Settings::of(&server.engine.config).map_err(io::Error::other)?;
    let Some(settings) = settings else { return Ok(false) };
    reign::begin_as_nobody(server);
    enter(server, settings)?;
    Ok(true)
}

/// Is of no shard yet, and serves nobody until it is.
pub fn begin_without(server: &Arc<Server>) {
    reign::begin_as_nobody(server);
}

/// Looks whether this server can take part in a shard.
///
/// # Errors
/// One sentence for the operator: it cannot.
pub fn look_at_log(server: &Server) -> io::Result<()> {
    open_keeping(server, Prng::from_entropy()).map(drop)
}

/// What is kept beside the log, if there is one; and that one has on disk what it acknowledges. Another life is one of `lives`.
fn open_keeping(server: &Server, lives: Prng) -> io::Result<keeping::Keeping> {
    if server.engine.durability.log().is_some_and(|log| log.sync_policy() != SyncPolicy::Always) {
        return Err(io::Error::other(
            "A node of a shard has on disk what it acknowledges: its log wants `appendfsync always`",
        ));
    }
    let log = server.engine.durability.log();
    keeping::Keeping::open(log.map(|log| (log.fs().clone(), server.engine.dir())), lives)
}

/// Takes part in a shard: as nobody at first, who the server is already. Once.
///
/// # Errors
/// One sentence for the operator: it is not known who this node is.
pub fn enter(server: &Arc<Server>, settings: Settings) -> io::Result<()> {
    let keeping = open_keeping(server, Prng::from_entropy())?;
    let id = MemberId { node: settings.node, life: keeping.kept.life };
    let shard = Arc::new(Shard::new(settings, id, keeping.kept.epoch));
    if !server.shard.enter(shard.clone()) {
        return Err(io::Error::other("the server has begun its part already"));
    }
    spawn("shard-store", (server, &shard), deciding::serve)?;
    spawn("shard", (server, &shard), move |server, shard| {
        driver::Driver::new(server, shard, keeping, Box::new(Threads)).run();
    })
}

/// What the driver has others do, who wait for other servers: threads, or, where a test has whole shards in one thread, this one.
trait Ways {
    /// Dials a node. What comes of it is posted.
    fn dial(&self, server: &Arc<Server>, shard: &Arc<Shard>, node: NodeId, own: MemberId);

    /// Follows a master's stream. Gives the number of the order.
    fn follow(&self, server: &Arc<Server>, master: &Address, wanted: Wanted) -> u64;
}

/// Each has one of its own.
struct Threads;

impl Ways for Threads {
    fn dial(&self, server: &Arc<Server>, shard: &Arc<Shard>, node: NodeId, own: MemberId) {
        dialling::dial(server, shard, node, own);
    }

    fn follow(&self, server: &Arc<Server>, master: &Address, wanted: Wanted) -> u64 {
        reign::follow(server, master, wanted)
    }
}

fn spawn(
    name: &str,
    (server, shard): (&Arc<Server>, &Arc<Shard>),
    work: impl FnOnce(&Arc<Server>, &Arc<Shard>) + Send + 'static,
) -> io::Result<()> {
    let (server, shard) = (server.clone(), shard.clone());
    std::thread::Builder::new().name(name.to_owned()).spawn(move || work(&server, &shard)).map(drop)
}

/// Ends a wait when the server ends.
pub fn look(server: &Server) -> io::Result<()> {
    match server.engine.is_ending() {
        true => Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the server ends")),
        false => Ok(()),
    }
}

/// Between two tries of what the disk refuses.
const RETRY: Duration = Duration::from_millis(200);
