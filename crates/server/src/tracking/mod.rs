//! Client tracking: clients cache what they read, and the server tells them when
//! it is not so any more.
//!
//! Two ways. A client that tracks its reads is put down in the [`table`] for the keys of
//! each of its reading commands, before they run; who modifies a key takes the entry
//! out and posts an invalidation to those that are in it. A broadcasting client is
//! told of every modified key with one of its prefixes, once a batch.
//!
//! Thread rule: a reader is put down before it locks its keys' slots, and changes are
//! told under those locks. An invalidation goes by mail: what came before the moment of
//! a command leaves before its reply, what came later behind it. Whoever was told of
//! anything between being put down and that moment may have been taken out of the table,
//! and is told to forget what the reply says ([`forget_again`]). So none is missed, and
//! none comes before the reply that it is about.
//!
//! Invariants:
//! 1. `Interest::TRACKED` is on as long as a client tracks, so that nothing of this
//!    costs anything otherwise.
//! 2. A client is in `prefixes` exactly for its own prefixes.

mod broadcast;
mod message;
mod table;

pub use broadcast::end_batch;

use crate::client::{Client, Kept, Traits};
use crate::pubsub::Subscribers;
use crate::server::Server;
use crate::session::Session;
use command::table::Command;
use command::{Flags, execute::key_positions};
use keyspace::Interest;
use message::Invalid;
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use table::Table;
use wire::Request;

/// A session's tracking.
pub struct Tracker {
    /// What it is told of.
    pub mode: Mode,
    /// The client that gets its messages in its place.
    pub redirection: Option<u64>,
    /// Whether it is told of its own changes.
    pub own_changes: OwnChanges,
    /// Whether CLIENT CACHING was said before this command.
    pub is_singled_out: bool,
}

/// What a session is told of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Keys that it has read.
    Reads(Reads),
    /// All keys with one of these prefixes.
    Broadcast(BTreeSet<Box<[u8]>>),
}

/// Which reads are put down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// All.
    All,
    /// Those after CLIENT CACHING YES.
    OptIn,
    /// Those not after CLIENT CACHING NO.
    OptOut,
}

/// Whether a session is told of what it changes itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnChanges {
    /// It is.
    Told,
    /// It knows (NOLOOP).
    Known,
}

/// Who tracks what.
pub struct Tracking {
    clients: RwLock<HashMap<u64, Arc<Client>>>,
    table: Table,
    prefixes: RwLock<BTreeMap<Box<[u8]>, Subscribers>>,
    prefix_count: AtomicUsize,
    workers: Box<[Running]>,
}

/// What a worker is doing, on a cache line of its own.
#[repr(align(64))]
#[derive(Default)]
struct Running {
    /// The tracking client whose command runs; 0 if none does.
    client: AtomicU64,
    /// Whether it caches what that command reads.
    is_reading: AtomicBool,
    /// Modified keys that are to be broadcast.
    modified: Mutex<broadcast::Kept>,
}

impl Tracking {
    /// Nobody tracks. So many workers will run commands.
    pub fn new(workers: usize) -> Tracking {
        Tracking {
            clients: RwLock::default(),
            table: Table::default(),
            prefixes: RwLock::default(),
            prefix_count: AtomicUsize::new(0),
            workers: (0..workers).map(|_| Running::default()).collect(),
        }
    }

    /// How many clients track.
    pub fn client_count(&self) -> usize {
        self.clients.read().len()
    }

    /// How many keys are in the table.
    pub fn key_count(&self) -> usize {
        self.table.keys()
    }

    /// How many pairs of a key and a client are in the table.
    pub fn item_count(&self) -> usize {
        self.table.items()
    }

    /// How many prefixes are broadcast.
    pub fn prefix_count(&self) -> usize {
        self.prefix_count.load(Ordering::Acquire)
    }
}

/// Begins a session's tracking, or changes how it tracks. Prefixes add to those it has.
pub fn enable(server: &Server, session: &mut Session, mode: Mode, redirection: Option<u64>, own: OwnChanges) {
    let (tracking, client) = (&server.tracking, &session.client);
    client.set_trait(Traits::BROKEN_REDIRECTION, false);
    client.set_trait(Traits::BROADCAST, matches!(mode, Mode::Broadcast(_)));
    client.set_trait(Traits::NO_LOOP, own == OwnChanges::Known);
    client.redirection.store(redirection.unwrap_or(0), Ordering::Relaxed);
    if !client.traits().contains(Traits::TRACKING) {
        client.set_trait(Traits::TRACKING, true);
        let mut clients = tracking.clients.write();
        clients.insert(client.id, client.clone());
        server.engine.keyspace.set_interest(Interest::TRACKED, true);
    }
    let mode = match (mode, session.tracking.take().map(|tracker| tracker.mode)) {
        (Mode::Broadcast(mut new), old) => {
            tracking.join(&new, client);
            if let Some(Mode::Broadcast(old)) = old {
                new.extend(old);
            }
            client.note_kept(Kept::Prefixes, 0);
            new.iter().for_each(|prefix| client.note_kept_name(Kept::Prefixes, prefix, true));
            Mode::Broadcast(new)
        }
        (mode @ Mode::Reads(_), _) => mode,
    };
    session.tracking = Some(Box::new(Tracker { mode, redirection, own_changes: own, is_singled_out: false }));
}

/// Ends a session's tracking, if it tracks. Entries of the table go when their keys change.
pub fn disable(server: &Server, session: &mut Session) {
    let Some(tracker) = session.tracking.take() else { return };
    let (tracking, client) = (&server.tracking, &session.client);
    if let Mode::Broadcast(prefixes) = &tracker.mode {
        tracking.leave(prefixes, client);
        client.note_kept(Kept::Prefixes, 0);
    }
    client.set_trait(
        Traits::TRACKING | Traits::BROADCAST | Traits::BROKEN_REDIRECTION | Traits::NO_LOOP,
        false,
    );
    let mut clients = tracking.clients.write();
    clients.remove(&client.id);
    if clients.is_empty() {
        server.engine.keyspace.set_interest(Interest::TRACKED, false);
        tracking.table.clear();
    }
}

/// Called before a command of a tracking session runs: what it is going to read is put
/// down for it.
pub fn begin_command(
    server: &Server,
    worker: usize,
    session: &Session,
    command: &Command,
    request: &Request<'_>,
) {
    let is_reading = session.tracking.as_ref().is_some_and(|tracker| tracker.caches(command));
    let running = &server.tracking.workers[worker];
    running.client.store(session.client.id, Ordering::Relaxed);
    running.is_reading.store(is_reading, Ordering::Relaxed);
    if is_reading {
        remember(server, session.client.id, command, request);
    }
}

/// Called after it.
pub fn end_command(server: &Server, worker: usize) {
    server.tracking.workers[worker].client.store(0, Ordering::Relaxed);
}

/// Tells a session to forget what it has just read: the change that it was told of in front of the reply may have been of one of
/// these keys, of which it would hear nothing more.
pub fn forget_again(server: &Server, session: &Session, command: &Command, request: &Request<'_>) {
    if session.tracking.as_ref().is_some_and(|tracker| tracker.caches(command)) {
        let mut positions = Vec::new();
        key_positions(command.row.keys, request, &mut positions);
        let keys: Vec<&[u8]> = positions.into_iter().map(|position| request.arg(position)).collect();
        if !keys.is_empty() {
            Invalid::keys(&keys).send(server, &session.client);
        }
    }
}

impl Tracker {
    /// Whether the session caches what a command reads.
    pub fn caches(&self, command: &Command) -> bool {
        let is_put_down = match self.mode {
            Mode::Broadcast(_) => false,
            Mode::Reads(Reads::All) => true,
            Mode::Reads(Reads::OptIn) => self.is_singled_out,
            Mode::Reads(Reads::OptOut) => !self.is_singled_out,
        };
        // What a script reads is put down when it reads it.
        is_put_down && command.is(Flags::READONLY) && !command.runs_script()
    }
}

/// Puts a client down as a reader of the keys of a request.
pub fn remember(server: &Server, client: u64, command: &Command, request: &Request<'_>) {
    let mut positions = Vec::new();
    key_positions(command.row.keys, request, &mut positions);
    for position in positions {
        server.tracking.table.add(request.arg(position), client);
    }
    keep_within_limit(server);
}

/// What a key of the table may take on average, with its readers: `tracking-table-max-keys` bounds the bytes, too, since keys
/// may be as long as a request.
const KEY_BYTES_USUAL: usize = 256;
/// However few keys there may be, so much is for them.
const TABLE_BYTES_LEAST: usize = 1 << 20;

/// Takes keys out of the table, whichever, down to `tracking-table-max-keys`; those who
/// read them are told to forget them.
pub fn keep_within_limit(server: &Server) {
    let most = server.engine.config.tracking_table_max_keys();
    let table = &server.tracking.table;
    let bytes_most = most.saturating_mul(KEY_BYTES_USUAL).max(TABLE_BYTES_LEAST);
    while most > 0 && (table.keys() > most || table.bytes() > bytes_most) {
        let Some((key, ids)) = table.take_any() else { return };
        tell(server, &key, &ids, 0);
    }
}

/// A key was modified, or its time was up. Called with its slot locked.
///
/// As in Redis, who finds a key's time up knows that it is gone (NOLOOP); but a broadcast is told to it, as that is nobody's doing.
pub fn invalidate(server: &Server, worker: usize, key: &[u8], is_over: bool) {
    let tracking = &server.tracking;
    let running = &tracking.workers[worker];
    let origin = running.client.load(Ordering::Relaxed);
    if tracking.prefix_count() > 0 {
        let origin = if is_over { 0 } else { origin };
        broadcast::note(server, worker, key, origin);
    }
    let Some(ids) = tracking.table.take(key) else { return };
    tell(server, key, &ids, origin);
    if is_over && running.is_reading.load(Ordering::Relaxed) && ids.contains(&origin) {
        // It caches that the key is not there, and is told if it comes back.
        tracking.table.add(key, origin);
    }
}

/// Tells clients to forget a key.
fn tell(server: &Server, key: &[u8], ids: &[u64], origin: u64) {
    let message = Invalid::keys(&[key]);
    let clients = server.tracking.clients.read();
    for client in ids.iter().filter_map(|id| clients.get(id)) {
        let traits = client.traits();
        let knows = traits.contains(Traits::NO_LOOP) && client.id == origin;
        // What it read before it began to broadcast is of no interest any more.
        if !knows && !traits.contains(Traits::BROADCAST) {
            message.send(server, client);
        }
    }
}

/// Called after all keys of a database went away: every client has to forget everything.
pub fn invalidate_all(server: &Server) {
    let tracking = &server.tracking;
    let clients = tracking.clients.read();
    if clients.is_empty() {
        return;
    }
    tracking.table.clear();
    let mut clients: Vec<_> = clients.values().collect();
    clients.sort_by_key(|client| client.id);
    clients.iter().for_each(|client| Invalid::everything(client.protocol()).send(server, client));
}
