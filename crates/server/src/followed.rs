//! The master that is followed, if there is one: what is told of the link to it, and what is wanted. Who acts on it is above
//! (`following`).

use ::log::ReplicationId;
use engine::full_copy::OneMoment;
use net::client::{Client, Traits};
use parking_lot::{Condvar, Mutex, MutexGuard};
use replication::feed::Ranges;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use sys::{Bell, UnixMs};

/// Another server's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Master {
    /// Its name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
}

/// How far the link is, with Redis' words for ROLE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// It is to be tried.
    #[default]
    Connect,
    /// It is being tried.
    Connecting,
    /// Who is who is being agreed upon.
    Handshake,
    /// A full copy comes, or is loaded.
    Sync,
    /// The stream is followed.
    Connected,
}

impl Phase {
    /// The word that ROLE has for it.
    pub fn word(self) -> &'static str {
        match self {
            Phase::Connect => "connect",
            Phase::Connecting => "connecting",
            Phase::Handshake => "handshake",
            Phase::Sync => "sync",
            Phase::Connected => "connected",
        }
    }
}

/// What is told of the link.
#[derive(Clone, Debug)]
pub struct Status {
    /// The master.
    pub master: Master,
    /// How far the link is.
    pub phase: Phase,
    /// When something came from the master last.
    pub heard_at: UnixMs,
    /// Since when there is no stream to follow.
    pub down_since: Option<UnixMs>,
    /// Bytes of a full copy that have come.
    pub copied_bytes: u64,
    /// All of them, if that is known.
    pub copy_bytes: Option<u64>,
    /// Bytes of the stream that are done here.
    pub offset: u64,
    /// Bytes of it that have come.
    pub read: u64,
}

impl Status {
    /// That of a link that is to be tried.
    pub fn begin(master: Master, now: UnixMs) -> Status {
        Status {
            master,
            phase: Phase::Connect,
            heard_at: now,
            down_since: None,
            copied_bytes: 0,
            copy_bytes: None,
            offset: 0,
            read: 0,
        }
    }
}

/// What is wanted of a master's stream in a shard, where the members have agreed upon it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Its name.
    pub id: ReplicationId,
    /// From where on it is gone on with: what is here ends there.
    pub from: u64,
    /// Nothing of what is here is of it: a copy is taken.
    pub takes_copy: bool,
}

/// The master that is followed.
#[derive(Debug, Default)]
pub struct Following {
    /// What is wanted, and what is known. Held for a moment only.
    pub state: Mutex<State>,
    /// Somebody waits for the end of a thread, or the pause before the next try.
    pub changed: Condvar,
    /// Held by the thread that has the link.
    pub thread: Mutex<()>,
    /// Held while something of the master's is done.
    pub applying: Mutex<()>,
    /// The copy of one moment that is being made for replicas: what of it is to be changed by the master is copied before.
    copying: Mutex<Option<Arc<OneMoment>>>,
    /// Rung for the thread that has the link.
    pub bell: DiskBell,
    /// Steps that were done within units of the master's that are not done as a whole: bytes that came of one while its end had not come, commands of a transaction that
    /// were looked at or done. Each is counted once, however often a unit is tried. Only the thread that has the link counts.
    pub steps: AtomicU64,
    /// How many copies were put in the place of all that was here. Changes only while something of the master's is done.
    pub copies: AtomicU64,
    /// Offsets between the beginning and the end of the copy that is here, and of one that is about to take its place: what is here is of no
    /// one moment in between, nor is what it has of the stream anybody else's. Locked for a moment only, and nothing with it.
    pub taken: Mutex<Ranges>,
    /// Where in the stream the file stands that a start took up: a copy that a tool took of a master is of no one moment, and does not say so.
    pub of_file: OnceLock<u64>,
}

/// Rings when the log is durable further than before, for one who waits for that and for the master at once.
#[derive(Debug, Default)]
pub struct DiskBell {
    bell: OnceLock<Bell>,
    is_awaited: AtomicBool,
}

impl DiskBell {
    /// Waits until the log is durable further than when `is_done` was asked, or a socket has something, but no longer than `patience`.
    /// Whether the socket has something; true also where that is not known.
    pub fn wait(&self, socket: &impl AsFd, patience: Duration, is_done: impl FnOnce() -> bool) -> bool {
        let Some(bell) = self.bell() else { return true };
        bell.silence();
        self.is_awaited.store(true, Ordering::SeqCst);
        !is_done() && bell.wait_beside(socket, patience).unwrap_or(true)
    }

    fn bell(&self) -> Option<&Bell> {
        if self.bell.get().is_none() {
            // Without a descriptor to spare it is waited for the socket alone.
            let _ = self.bell.set(Bell::new().ok()?);
        }
        self.bell.get()
    }

    /// The log is durable further than before.
    #[inline]
    pub fn ring(&self) {
        if self.is_awaited.load(Ordering::SeqCst)
            && self.is_awaited.swap(false, Ordering::SeqCst)
            && let Some(bell) = self.bell.get()
        {
            bell.ring();
        }
    }
}

/// What is known of the link, and what is wanted of it.
#[derive(Debug, Default)]
pub struct State {
    /// What is told of it; None: there is no master.
    pub status: Option<Status>,
    /// Of the newest order: threads that carry out an older one end.
    pub order: u64,
    /// Whether the newest order is carried out, as far as it concerns what clients may do.
    pub is_carried_out: bool,
    /// Tries again to start a thread for the newest order, where that could not be done.
    pub retry: Option<Retry>,
    /// The connection.
    pub connection: Option<Connection>,
    /// The stream that was followed by this order, or before a start. A master that offers a copy of another one has lost what it had:
    /// where others count on what is here (`min-sync-replicas`), that is not given up for it without a new order.
    pub history: Option<ReplicationId>,
    /// What is wanted of its stream, where it is not the link's to find out.
    pub wanted: Option<Wanted>,
}

/// The connection to the master, for others than the thread that speaks on it.
#[derive(Debug)]
pub struct Connection {
    /// Ends it.
    ender: TcpStream,
    /// Its number among those of clients.
    id: u64,
    /// Since when it is there.
    since: UnixMs,
}

impl Connection {
    /// A connection that has just been made.
    pub fn new(ender: TcpStream, id: u64, since: UnixMs) -> Connection {
        Connection { ender, id, since }
    }

    /// Ends it in both directions. Whether it was there until now.
    pub fn end(&self) -> bool {
        self.ender.shutdown(Shutdown::Both).is_ok()
    }

    /// The master as one of the clients, as Redis has it: named by number, addresses and type, and `(superuser)` for its user.
    fn client(&self, heard_at: UnixMs, db: u32) -> Client {
        let text = |address: io::Result<SocketAddr>| address.map_or(String::new(), |one| one.to_string());
        let (its, own) = (text(self.ender.peer_addr()), text(self.ender.local_addr()));
        let client = Client::new(self.id, its, own, self.ender.as_raw_fd(), (0, 0), self.since);
        client.set_trait(Traits::MASTER, true);
        client.set_user(b"(superuser)");
        client.db.store(db, Ordering::Relaxed);
        client.active_at_ms.store(heard_at.0, Ordering::Relaxed);
        client
    }
}

impl Master {
    /// Whether it is the same address: names have no case.
    pub fn is_same(&self, other: &Master) -> bool {
        self.host.eq_ignore_ascii_case(&other.host) && self.port == other.port
    }
}

/// Something to be done again.
pub struct Retry(pub Box<dyn FnOnce() + Send>);

impl std::fmt::Debug for Retry {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Retry")
    }
}

impl Following {
    /// What is told of the link; None: this server is a master.
    pub fn status(&self) -> Option<Status> {
        self.state.lock().status.clone()
    }

    /// Whether what is here is of one moment, where the stream is at this offset.
    pub fn is_whole_at(&self, offset: u64) -> bool {
        !self.taken.lock().cover(offset)
    }

    /// Whether that is known, and others need not look whether it could be otherwise.
    pub fn knows_whole_at(&self, offset: u64) -> bool {
        self.is_whole_at(offset) && self.of_file.get() != Some(&offset)
    }

    /// Whether clients may not be shown what there is: the link is down, and nothing old is to be served.
    pub fn is_stale(&self) -> bool {
        self.state.lock().status.as_ref().is_some_and(|status| status.phase != Phase::Connected)
    }

    /// Nothing of the master's is done while this is held: what there is, is of one moment, and a multiple of the master's requests. Whoever
    /// wants that may change what there is, so that a copy of one moment is given up.
    pub fn stand_still(&self) -> MutexGuard<'_, ()> {
        let still = self.applying.lock();
        self.give_up_copy();
        still
    }

    fn give_up_copy(&self) {
        if let Some(copy) = self.copying.lock().take() {
            copy.give_up();
        }
    }

    /// The same, unless something of the master's is still being done when patience is over.
    pub fn try_stand_still(&self, patience: Duration) -> Option<MutexGuard<'_, ()>> {
        let still = self.applying.try_lock_for(patience)?;
        self.give_up_copy();
        Some(still)
    }

    /// So many steps more were done within something.
    #[inline]
    pub fn note_steps(&self, more: u64) {
        self.steps.store(self.steps.load(Ordering::Relaxed) + more, Ordering::Relaxed);
    }

    /// A copy of this moment begins. To be called while nothing of the master's is done.
    pub fn begin_copying(&self, copy: Arc<OneMoment>) -> Copying<'_> {
        *self.copying.lock() = Some(copy.clone());
        Copying { following: self, copy }
    }

    /// The copy that is being made, for who does something of the master's.
    pub fn copying(&self) -> Option<Arc<OneMoment>> {
        self.copying.lock().clone()
    }

    /// Changes what is told, unless another order came. False: it did.
    pub fn change(&self, order: u64, change: impl FnOnce(&mut Status)) -> bool {
        let mut state = self.state.lock();
        if state.order != order {
            return false;
        }
        if let Some(status) = &mut state.status {
            change(status);
        }
        true
    }

    /// Notes which stream is followed.
    pub fn keep_history(&self, order: u64, id: ReplicationId) {
        let mut state = self.state.lock();
        if state.order == order {
            state.history = Some(id);
        }
    }

    /// What is wanted of the stream by an order.
    pub fn wanted(&self, order: u64) -> Option<Wanted> {
        let state = self.state.lock();
        state.wanted.filter(|_| state.order == order)
    }

    /// Whether an order is the newest.
    pub fn is_in_force(&self, order: u64) -> bool {
        self.state.lock().order == order
    }

    /// A copy that was taken by an order is whole: no other is taken in its place.
    pub fn wants_no_copy(&self, order: u64) {
        let mut state = self.state.lock();
        if state.order == order
            && let Some(wanted) = &mut state.wanted
        {
            wanted.takes_copy = false;
        }
    }

    /// Tries again what could not be begun. To be called once a second.
    pub fn look_after(&self) {
        let retry = self.state.lock().retry.take();
        if let Some(Retry(retry)) = retry {
            retry();
        }
    }

    /// Keeps what ends the connection when another order comes.
    pub fn keep_connection(&self, order: u64, connection: Connection) {
        let mut state = self.state.lock();
        match state.order == order {
            true => state.connection = Some(connection),
            false => _ = connection.end(),
        }
    }

    /// The master whose stream is followed, as a client that is in this database; None: no stream is.
    pub fn master_client(&self, db: u32) -> Option<Client> {
        let state = self.state.lock();
        let status = state.status.as_ref().filter(|status| status.phase == Phase::Connected)?;
        Some(state.connection.as_ref()?.client(status.heard_at, db))
    }

    /// Ends the connection if that is wanted of the master as a client; the next try follows as after any other end. False: there is
    /// none, or it is not.
    pub fn end_link_if(&self, is_wanted: impl FnOnce(&Client) -> bool) -> bool {
        let state = self.state.lock();
        let Some(connection) = &state.connection else { return false };
        is_wanted(&connection.client(connection.since, 0)) && connection.end()
    }

    /// The connection is over.
    pub fn forget_connection(&self, order: u64) {
        let mut state = self.state.lock();
        if state.order == order {
            state.connection = None;
        }
    }

    /// Waits, but not beyond the end of an order. Whether that ended before the time was up: something is to be tried now.
    pub fn rest(&self, order: u64, time: Duration) -> bool {
        let mut state = self.state.lock();
        state.order != order || !self.changed.wait_for(&mut state, time).timed_out()
    }

    /// What is waited for may be different now: who rests goes on.
    pub fn try_now(&self) {
        self.changed.notify_all();
    }
}

/// A copy of one moment is being made for as long as this is there.
pub struct Copying<'f> {
    following: &'f Following,
    copy: Arc<OneMoment>,
}

impl Drop for Copying<'_> {
    fn drop(&mut self) {
        self.copy.end();
        self.following.copying.lock().take_if(|copy| Arc::ptr_eq(copy, &self.copy));
    }
}
