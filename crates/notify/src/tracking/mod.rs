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
//! and is told to forget what the reply says ([`Tracker::forget_again`]). So none is missed, and
//! none comes before the reply that it is about; but one that is redirected may, on the other's connection. What a client has done itself
//! it is told of when all of its command is done, with the transaction or the script that it is part of: behind its messages.
//!
//! Invariants:
//! 1. `Interest::TRACKED` is on as long as a client tracks, so that nothing of this
//!    costs anything otherwise.
//! 2. A client is in `prefixes` exactly for its own prefixes.

mod broadcast;
mod message;
mod running;
mod table;

use crate::pubsub::Subscribers;
use command::table::Command;
use command::{Flags, execute::key_positions};
use config::Config;
use keyspace::{Interest, Keyspace};
use message::Invalid;
use net::client::{Client, Clients, Kept, Traits};
use parking_lot::{Mutex, RwLock};
use running::{Own, Running};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
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
    /// Whether there are any. Changes with them locked.
    is_on: AtomicBool,
    table: Table,
    prefixes: RwLock<BTreeMap<Box<[u8]>, Subscribers>>,
    prefix_count: AtomicUsize,
    /// How many keys the table may hold, as the configuration last had it; 0 is any number.
    keys_max: AtomicUsize,
    workers: Box<[Running]>,
}

/// What a worker was doing when it began to serve a client that has waited.
pub struct Served {
    /// The tracking client whose command ran; 0 if none did.
    around: u64,
    /// What that one is to be told of that it has done itself.
    own: Own,
}

/// What was so when a command of a tracking client began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Before {
    /// How many invalidations of the client may have come too early.
    overtaking: u64,
    /// The client whose transaction or script the command is part of; 0 if it stands alone.
    around: u64,
}

impl Tracking {
    /// Nobody tracks. So many workers will run commands.
    pub fn new(workers: usize) -> Tracking {
        Tracking {
            clients: RwLock::default(),
            is_on: AtomicBool::new(false),
            table: Table::default(),
            prefixes: RwLock::default(),
            prefix_count: AtomicUsize::new(0),
            keys_max: AtomicUsize::new(0),
            workers: (0..workers).map(|_| Running::default()).collect(),
        }
    }

    /// Whether any client tracks.
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
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
    #[inline]
    pub fn prefix_count(&self) -> usize {
        self.prefix_count.load(Ordering::Acquire)
    }

    /// Begins a session's tracking, or changes how it tracks: `tracker` becomes what is wanted. Prefixes add to those it has.
    pub fn enable(
        &self,
        keyspace: &Keyspace,
        client: &Arc<Client>,
        tracker: &mut Option<Box<Tracker>>,
        wanted: Tracker,
    ) {
        let Tracker { mode, redirection, own_changes, .. } = wanted;
        client.set_trait(Traits::BROKEN_REDIRECTION, false);
        client.set_trait(Traits::BROADCAST, matches!(mode, Mode::Broadcast(_)));
        client.set_trait(Traits::NO_LOOP, own_changes == OwnChanges::Known);
        client.redirection.store(redirection.unwrap_or(0), Ordering::Relaxed);
        if !client.traits().contains(Traits::TRACKING) {
            client.set_trait(Traits::TRACKING, true);
            let mut clients = self.clients.write();
            clients.insert(client.id, client.clone());
            self.is_on.store(true, Ordering::Relaxed);
            keyspace.set_interest(Interest::TRACKED, true);
        }
        let mode = match (mode, tracker.take().map(|tracker| tracker.mode)) {
            (Mode::Broadcast(mut new), old) => {
                self.join(&new, client);
                if let Some(Mode::Broadcast(old)) = old {
                    new.extend(old);
                }
                client.note_kept(Kept::Prefixes, 0);
                new.iter().for_each(|prefix| client.note_kept_name(Kept::Prefixes, prefix, true));
                Mode::Broadcast(new)
            }
            (mode @ Mode::Reads(_), _) => mode,
        };
        *tracker = Some(Box::new(Tracker { mode, ..wanted }));
    }

    /// Ends a session's tracking, if it tracks. Entries of the table go when their keys change.
    pub fn disable(&self, keyspace: &Keyspace, client: &Arc<Client>, tracker: &mut Option<Box<Tracker>>) {
        let Some(tracker) = tracker.take() else { return };
        if let Mode::Broadcast(prefixes) = &tracker.mode {
            self.leave(prefixes, client);
            client.note_kept(Kept::Prefixes, 0);
        }
        client.set_trait(
            Traits::TRACKING | Traits::BROADCAST | Traits::BROKEN_REDIRECTION | Traits::NO_LOOP,
            false,
        );
        let mut clients = self.clients.write();
        clients.remove(&client.id);
        if clients.is_empty() {
            keyspace.set_interest(Interest::TRACKED, false);
            self.is_on.store(false, Ordering::Relaxed);
            self.table.clear();
        }
    }

    /// Called before a command of a tracking session runs: what it is going to read is put
    /// down for it. Gives what [`Tracking::end_command`] wants to know.
    pub fn begin_command(
        &self,
        clients: &Clients,
        worker: usize,
        (client, tracker): (&Client, &Tracker),
        command: &Command,
        request: &Request<'_>,
    ) -> Before {
        let overtaking = client.overtaking.load(Ordering::Acquire);
        let is_reading = tracker.caches(command);
        let running = &self.workers[worker];
        let around = running.client.swap(client.id, Ordering::Relaxed);
        running.is_reading.store(is_reading, Ordering::Relaxed);
        if is_reading {
            let mut fresh = running.fresh.lock();
            self.put_down(clients, client.id, command, request, |key| fresh.add(key));
        }
        Before { overtaking, around }
    }

    /// Called after it; there is no tracker if it ended the session's tracking.
    pub fn end_command(
        &self,
        clients: &Clients,
        worker: usize,
        (client, tracker): (&Arc<Client>, Option<&Tracker>),
        before: Before,
        (command, request): (&Command, &Request<'_>),
    ) {
        let running = &self.workers[worker];
        running.client.store(before.around, Ordering::Relaxed);
        if running.is_reading.load(Ordering::Relaxed) {
            running.is_reading.store(false, Ordering::Relaxed);
            running.fresh.lock().clear();
        }
        // What was told to another since this one was put down has no place in its own mail that shows when it was.
        if let Some(tracker) = tracker
            && client.overtaking.load(Ordering::Acquire) != before.overtaking
        {
            tracker.forget_again(clients, client, command, request);
        }
        if before.around == 0 {
            // Behind messages that the whole of it has led to, as in Redis.
            let own = std::mem::take(&mut *running.own.lock());
            own.into_invalid().for_each(|invalid| invalid.send(clients, client));
        }
    }

    /// Called before the request of a client that has waited is run in its place. Gives what [`Tracking::end_served`] wants to know; none where
    /// nobody tracks.
    pub fn begin_served(&self, worker: usize, client: &Client) -> Option<Served> {
        self.is_on().then(|| {
            let running = &self.workers[worker];
            let around = running.client.swap(client.id, Ordering::Relaxed);
            Served { around, own: std::mem::take(&mut *running.own.lock()) }
        })
    }

    /// Called behind the reply to it, if there is one.
    pub fn end_served(&self, clients: &Clients, worker: usize, client: &Arc<Client>, served: Option<Served>) {
        let Some(Served { around, own }) = served else { return };
        let running = &self.workers[worker];
        running.client.store(around, Ordering::Relaxed);
        let own = std::mem::replace(&mut *running.own.lock(), own);
        own.into_invalid().for_each(|invalid| invalid.send(clients, client));
    }

    /// Puts a client down as a reader of the keys of a request.
    pub fn remember(&self, clients: &Clients, client: u64, command: &Command, request: &Request<'_>) {
        self.put_down(clients, client, command, request, |_| {});
    }

    /// The same, and tells for which of the keys it was not down before.
    fn put_down(
        &self,
        clients: &Clients,
        client: u64,
        command: &Command,
        request: &Request<'_>,
        note_fresh: impl FnMut(Arc<[u8]>),
    ) {
        let mut positions = Vec::new();
        key_positions(command.row.keys, request, &mut positions);
        positions
            .into_iter()
            .filter_map(|position| self.table.add(request.arg(position), client))
            .for_each(note_fresh);
        self.keep_within_limit(clients);
    }

    /// Takes over what the configuration says: at the start and after each change of it.
    pub fn follow(&self, config: &Config, clients: &Clients) {
        self.keys_max.store(config.tracking_table_max_keys(), Ordering::Relaxed);
        self.keep_within_limit(clients);
    }

    /// Takes keys out of the table, whichever, down to `tracking-table-max-keys`; those who
    /// read them are told to forget them.
    fn keep_within_limit(&self, clients: &Clients) {
        let most = self.keys_max.load(Ordering::Relaxed);
        let table = &self.table;
        let bytes_most = most.saturating_mul(KEY_BYTES_USUAL).max(TABLE_BYTES_LEAST);
        while most > 0 && (table.keys() > most || table.bytes() > bytes_most) {
            let Some((key, ids)) = table.take_any() else { return };
            self.tell(clients, &key, &ids, Origin::NOBODY);
        }
    }

    /// A key was modified, or its time was up. Called with its slot locked.
    ///
    /// As in Redis, who finds a key's time up knows that it is gone (NOLOOP); but a broadcast is told to it, as that is nobody's doing.
    pub fn invalidate(&self, clients: &Clients, worker: usize, key: &[u8], is_over: bool) {
        let running = &self.workers[worker];
        let origin = running.client.load(Ordering::Relaxed);
        if self.prefix_count() > 0 {
            let origin = if is_over { 0 } else { origin };
            self.note(clients, worker, key, origin);
        }
        let Some(mut ids) = self.table.take(key) else { return };
        let reader = is_over && running.is_reading.load(Ordering::Relaxed) && ids.contains(&origin);
        if reader && running.fresh.lock().has(key) {
            // It has not read what was there.
            ids.retain(|id| *id != origin);
        }
        self.tell(clients, key, &ids, Origin { client: origin, own: Some(&running.own) });
        if reader {
            // It caches that the key is not there, and is told if it comes back.
            self.table.add(key, origin);
        }
    }

    /// Tells clients to forget a key.
    fn tell(&self, clients: &Clients, key: &[u8], ids: &[u64], origin: Origin<'_>) {
        let message = Invalid::keys(&[key]);
        let tracking = self.clients.read();
        for client in ids.iter().filter_map(|id| tracking.get(id)) {
            let traits = client.traits();
            let knows = traits.contains(Traits::NO_LOOP) && client.id == origin.client;
            // What it read before it began to broadcast is of no interest any more.
            if !knows && !traits.contains(Traits::BROADCAST) {
                origin.send(message.clone(), clients, client);
            }
        }
    }

    /// Called after all keys of a database went away: every client has to forget everything. `worker` runs the command that
    /// did it.
    pub fn invalidate_all(&self, clients: &Clients, worker: Option<usize>) {
        let tracking = self.clients.read();
        if tracking.is_empty() {
            return;
        }
        self.table.clear();
        let origin = worker.map_or(Origin::NOBODY, |worker| {
            let running = &self.workers[worker];
            Origin { client: running.client.load(Ordering::Relaxed), own: Some(&running.own) }
        });
        in_order(&tracking).iter().for_each(|client| {
            origin.send(Invalid::everything(client.protocol()), clients, client);
        });
    }

    /// Called after keys have become somebody else's, all that are such: nobody hears here any more of what becomes of them. Whom changes are
    /// broadcast to may have read any of them.
    pub fn forget_all(&self, clients: &Clients, is_such: impl Fn(&[u8]) -> bool) {
        let tracking = self.clients.read();
        if tracking.is_empty() {
            return;
        }
        let mut gone: HashMap<u64, Vec<Arc<[u8]>>> = HashMap::new();
        self.table.take_all(is_such, |key, ids| {
            ids.into_iter().for_each(|id| gone.entry(id).or_default().push(key.clone()));
        });
        for client in in_order(&tracking) {
            let keys = gone.remove(&client.id).unwrap_or_default();
            let is_broadcast = client.traits().contains(Traits::BROADCAST);
            match is_broadcast || keys.len() > KEYS_TOLD_MAX {
                true => Invalid::everything(client.protocol()).send(clients, client),
                false if keys.is_empty() => {}
                false => {
                    let keys: Vec<&[u8]> = keys.iter().map(|key| &**key).collect();
                    Invalid::keys(&keys).send(clients, client);
                }
            }
        }
    }
}

/// Tells a client that tracks to forget keys.
pub fn forget(clients: &Clients, client: &Arc<Client>, keys: &[Box<[u8]>]) {
    let keys: Vec<&[u8]> = keys.iter().map(|key| &**key).collect();
    Invalid::keys(&keys).send(clients, client);
}

/// The clients in the order in which they came.
fn in_order(tracking: &HashMap<u64, Arc<Client>>) -> Vec<&Arc<Client>> {
    let mut all: Vec<_> = tracking.values().collect();
    all.sort_by_key(|client| client.id);
    all
}

/// Who is to forget more keys at once is told to forget everything.
const KEYS_TOLD_MAX: usize = 1000;

/// Who did what others are told of.
#[derive(Clone, Copy)]
struct Origin<'a> {
    /// The tracking client; 0 if it was none.
    client: u64,
    /// Where what it is to be told itself waits for its command to end.
    own: Option<&'a Mutex<Own>>,
}

impl Origin<'_> {
    const NOBODY: Origin<'static> = Origin { client: 0, own: None };

    fn send(&self, invalid: Invalid, clients: &Clients, client: &Arc<Client>) {
        match self.own {
            Some(own) if client.id == self.client => own.lock().add(invalid, client),
            _ => invalid.send(clients, client),
        }
    }
}

/// What a key of the table may take on average, with its readers: `tracking-table-max-keys` bounds the bytes, too, since keys
/// may be as long as a request.
const KEY_BYTES_USUAL: usize = 256;
/// However few keys there may be, so much is for them.
const TABLE_BYTES_LEAST: usize = 1 << 20;

impl Tracker {
    /// Whether what is read now is put down.
    pub fn puts_down(&self) -> bool {
        match self.mode {
            Mode::Broadcast(_) => false,
            Mode::Reads(Reads::All) => true,
            Mode::Reads(Reads::OptIn) => self.is_singled_out,
            Mode::Reads(Reads::OptOut) => !self.is_singled_out,
        }
    }

    /// Whether the session caches what a command reads.
    pub fn caches(&self, command: &Command) -> bool {
        // What a script reads is put down when it reads it.
        self.puts_down() && command.is(Flags::READONLY) && !command.runs_script()
    }

    /// Tells its session to forget what it has just read: the change that it was told of in front of the reply may have been of one
    /// of these keys, of which it would hear nothing more.
    pub fn forget_again(
        &self,
        clients: &Clients,
        client: &Arc<Client>,
        command: &Command,
        request: &Request<'_>,
    ) {
        if self.caches(command) {
            let mut positions = Vec::new();
            key_positions(command.row.keys, request, &mut positions);
            let keys: Vec<&[u8]> = positions.into_iter().map(|position| request.arg(position)).collect();
            if !keys.is_empty() {
                Invalid::keys(&keys).send(clients, client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use command::table;
    use config::Config;
    use keyspace::{KeyHasher, Options};
    use sys::{Clock, UnixMs};
    use wire::RequestBuf;

    #[test]
    fn a_read_that_is_overtaken_is_forgotten_also_where_another_is_told() {
        let (tracking, clients) = (Tracking::new(2), Clients::new(Clock::Real));
        let hasher = KeyHasher::from_seed(1);
        let options = Options { databases: 1, workers: 2, guests: 0, hasher, seed: 1, now: UnixMs(1) };
        let keyspace = Keyspace::new(options);
        clients.follow(&Config::defaults());
        let [reader, listener] =
            [1, 2].map(|id| Arc::new(Client::new(id, String::new(), String::new(), -1, (0, 0), UnixMs(0))));
        [&reader, &listener].into_iter().for_each(|client| clients.add(client.clone()));
        listener.set_trait(Traits::SUBSCRIBED, true);
        let told = || String::from_utf8_lossy(listener.take_mail().as_bytes()).matches("key").count();
        let wanted = Tracker {
            mode: Mode::Reads(Reads::All),
            redirection: Some(listener.id),
            own_changes: OwnChanges::Told,
            is_singled_out: false,
        };
        let mut tracker = None;
        tracking.enable(&keyspace, &reader, &mut tracker, wanted);
        let tracker = tracker.as_deref().expect("it tracks");
        table::install::<()>(&[]);
        let request = RequestBuf::from_args(["GET", "key"]);
        let request = request.as_request();
        let get = table::find(b"get").expect("it is there");
        let begin = || tracking.begin_command(&clients, 0, (&reader, tracker), get, &request);
        let end =
            |before| tracking.end_command(&clients, 0, (&reader, Some(tracker)), before, (get, &request));
        // Nothing comes in between.
        end(begin());
        assert_eq!((told(), tracking.key_count()), (0, 1));
        tracking.invalidate(&clients, 1, b"key", false);
        assert_eq!((told(), tracking.key_count()), (1, 0));
        // Something does: what it reads then is in no table.
        let before = begin();
        tracking.invalidate(&clients, 1, b"key", false);
        assert_eq!((told(), tracking.key_count()), (1, 0));
        end(before);
        assert_eq!(told(), 1);
    }
}
