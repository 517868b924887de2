//! What the rest of the server can see of a session, and how it reaches it.
//!
//! A session runs on one worker and owns its state alone. Its `Client` is the part
//! that others may look at (CLIENT LIST, INFO) and signal (CLIENT KILL, MONITOR
//! lines, the end of a pause). The session stores what it did once a batch, in
//! relaxed atomics: readers get a recent picture, not a consistent one.

mod class;
pub mod eviction;
mod limits;
mod line;
mod mail;
mod registry;

pub use class::class_from_name;
pub use mail::{
    BehindReply, Letters, answer, begin_group, close_for_its_reply, deliver, end_group, has_sealed,
    open_seals,
};
pub use registry::Clients;

use acl::DEFAULT_USER;
use command::table::CommandId;
use config::ClientClass;
use mail::Mail;
use parking_lot::Mutex;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::task::{Wake, Waker};
use sys::{Stamp, UnixMs};

/// What a connection takes beside its buffers: its task, its socket's entries in the
/// runtime and in the registry, and this. Measured by `an_idle_connection_takes_little_memory`.
pub const CLIENT_BYTES: usize = 1280;

/// What TLS adds to that: keys, and what the two agreed on. Measured by `an_idle_connection_with_tls_takes_little_memory`.
pub const TLS_CLIENT_BYTES: usize = 3840;

/// What a name takes beside its bytes: its places with the session and in the table where others find it,
/// which both are half empty at worst.
const NAME_BYTES: usize = 160;

/// What a session keeps names of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Keys that it watches.
    Watched,
    /// Channels and patterns that it listens to.
    Subscriptions,
    /// Prefixes that it is told of.
    Prefixes,
    /// A request that waits, and its keys.
    Waiting,
}

const KEPT_KINDS: usize = 4;

bitflags::bitflags! {
    /// What a session is asked to look at when it wakes up.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Signal: u32 {
        /// Close the connection; replies that are not out are lost.
        const KILL = 1 << 0;
        /// There is mail.
        const MAIL = 1 << 1;
        /// Close the connection when what was answered is out.
        const DRAIN = 1 << 2;
        /// The session need not wait any more: what it waited for is in its mail.
        const UNBLOCKED = 1 << 3;
        /// The worker that the session belongs to is free again.
        const GO_HOME = 1 << 4;
        /// Something that the session waits for or listens to may be another server's now.
        const MOVED = 1 << 5;
    }
}

bitflags::bitflags! {
    /// CLIENT LIST's flags that hold for longer than a command.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Traits: u32 {
        /// Gets every command (MONITOR).
        const MONITOR = 1 << 0;
        /// Connected by a Unix socket.
        const UNIX_SOCKET = 1 << 1;
        /// Not to be evicted for its memory (CLIENT NO-EVICT).
        const NO_EVICT = 1 << 2;
        /// Does not touch keys' access clocks (CLIENT NO-TOUCH).
        const NO_TOUCH = 1 << 3;
        /// Waits for the end of a pause, or for its turn where too much was moved.
        const PAUSED = 1 << 4;
        /// Closes once its replies are out.
        const CLOSING = 1 << 5;
        /// Has subscriptions.
        const SUBSCRIBED = 1 << 6;
        /// Is a replica.
        const REPLICA = 1 << 7;
        /// Waits for a key or for time to pass.
        const BLOCKED = 1 << 8;
        /// Is between MULTI and EXEC.
        const MULTI = 1 << 9;
        /// Watches a key that has changed.
        const DISTURBED = 1 << 10;
        /// May read from replicas of a cluster (READONLY).
        const READS_REPLICAS = 1 << 11;
        /// Is told of changes of keys that it caches.
        const TRACKING = 1 << 20;
        /// Is told of all keys with its prefixes instead.
        const BROADCAST = 1 << 21;
        /// Is not told of its own changes.
        const NO_LOOP = 1 << 22;
        /// The client that stands in for it is gone.
        const BROKEN_REDIRECTION = 1 << 23;
        /// Speaks TLS.
        const TLS = 1 << 24;
        /// Has yet to agree on keys.
        const HANDSHAKE = 1 << 25;
        /// Is the master that is followed.
        const MASTER = 1 << 26;
        /// Brings slots of another shard, or of a backup.
        const BRINGS = 1 << 27;
        /// Is owed replies that come from elsewhere.
        const OWED = 1 << 28;
    }
}

/// Texts that few clients have.
#[derive(Clone, Debug, Default)]
pub struct Labels {
    /// CLIENT SETNAME.
    pub name: Vec<u8>,
    /// CLIENT SETINFO LIB-NAME.
    pub lib_name: Vec<u8>,
    /// CLIENT SETINFO LIB-VER.
    pub lib_version: Vec<u8>,
}

impl Wake for Client {
    fn wake(self: Arc<Client>) {
        Client::wake(&self);
    }

    fn wake_by_ref(self: &Arc<Client>) {
        Client::wake(self);
    }
}

/// The shared side of one session.
pub struct Client {
    /// Unique in the life of the server, counting up from 1.
    pub id: u64,
    /// The other end's address, `ip:port`, or the socket's path and `:0`.
    pub address: String,
    /// This end's address.
    pub local_address: String,
    /// The file descriptor.
    pub fd: i32,
    /// When it connected.
    pub connected_at: UnixMs,
    /// The worker that it runs on.
    worker: AtomicUsize,
    /// The worker that it belongs to, and comes back to when another had to serve it meanwhile.
    home: AtomicUsize,
    /// Empty as long as it is the default user.
    user: Mutex<Option<Box<[u8]>>>,
    /// Empty as long as there is no label.
    labels: Mutex<Option<Box<Labels>>>,
    /// Standing flags.
    traits: AtomicU32,
    /// Its database.
    pub db: AtomicU32,
    /// 2 or 3; changed by [`Client::speak`].
    protocol: AtomicU32,
    /// How many channels, patterns and shard channels it has subscribed to.
    pub subscriptions: [AtomicU32; 3],
    /// The client that gets its invalidations; 0 is itself.
    pub redirection: AtomicU64,
    /// Invalidations of its own that may have come in front of the reply that they are about: they went to that one, or while it was owed replies that come
    /// from elsewhere.
    pub overtaking: AtomicU64,
    /// When it last sent something.
    pub active_at_ms: AtomicU64,
    /// The last command, or `usize::MAX`.
    last_command: AtomicUsize,
    /// Bytes of requests that have not been run.
    pub input_bytes: AtomicUsize,
    /// Bytes allocated for requests.
    pub input_capacity: AtomicUsize,
    /// Bytes of replies that are not out.
    pub output_bytes: AtomicUsize,
    /// Bytes allocated for them.
    pub output_capacity: AtomicUsize,
    /// In how many pieces they are.
    pub output_chunks: AtomicU32,
    /// Requests queued since MULTI; -1 outside of a transaction.
    pub queued: AtomicI64,
    /// Bytes that they take.
    pub queued_bytes: AtomicUsize,
    /// How many keys it watches.
    pub watched: AtomicUsize,
    /// Bytes that these take, and what it listens to, tracks and waits for.
    kept: [AtomicUsize; KEPT_KINDS],
    /// Since when the output has been above its soft limit; 0 if it is not.
    pub over_soft_limit_since_ms: AtomicU64,
    signals: AtomicU32,
    /// It is in a worker's queue at the gate, and will be woken.
    is_at_gate: AtomicBool,
    waker: Mutex<Option<Waker>>,
    mail: Mail,
    commands: AtomicI64,
    /// Up to where in the history there is what it has written.
    written: AtomicU64,
}

impl Client {
    /// The shared side of a session that has just connected.
    pub fn new(
        id: u64,
        address: String,
        local_address: String,
        fd: i32,
        (worker, home): (usize, usize),
        now: UnixMs,
    ) -> Client {
        Client {
            id,
            address,
            local_address,
            fd,
            connected_at: now,
            worker: AtomicUsize::new(worker),
            home: AtomicUsize::new(home),
            user: Mutex::default(),
            labels: Mutex::default(),
            traits: AtomicU32::new(0),
            db: AtomicU32::new(0),
            protocol: AtomicU32::new(2),
            subscriptions: Default::default(),
            redirection: AtomicU64::new(0),
            overtaking: AtomicU64::new(0),
            active_at_ms: AtomicU64::new(now.0),
            last_command: AtomicUsize::new(usize::MAX),
            input_bytes: AtomicUsize::new(0),
            input_capacity: AtomicUsize::new(0),
            output_bytes: AtomicUsize::new(0),
            output_capacity: AtomicUsize::new(0),
            output_chunks: AtomicU32::new(0),
            queued: AtomicI64::new(-1),
            queued_bytes: AtomicUsize::new(0),
            watched: AtomicUsize::new(0),
            kept: Default::default(),
            over_soft_limit_since_ms: AtomicU64::new(0),
            signals: AtomicU32::new(0),
            is_at_gate: AtomicBool::new(false),
            waker: Mutex::default(),
            mail: Mail::default(),
            commands: AtomicI64::new(0),
            written: AtomicU64::new(0),
        }
    }

    /// The worker that it runs on.
    pub fn worker(&self) -> usize {
        self.worker.load(Ordering::Relaxed)
    }

    /// It runs on this worker from now on.
    pub fn set_worker(&self, worker: usize) {
        self.worker.store(worker, Ordering::Relaxed);
    }

    /// The worker that it belongs to, and comes back to when another had to serve it meanwhile.
    pub fn home(&self) -> usize {
        self.home.load(Ordering::Relaxed)
    }

    /// It belongs to this worker from now on, and goes there as soon as it can.
    pub fn settle_at(&self, home: usize) {
        self.home.store(home, Ordering::Relaxed);
        self.signal(Signal::GO_HOME);
    }

    /// The standing flags.
    #[inline]
    pub fn traits(&self) -> Traits {
        Traits::from_bits_truncate(self.traits.load(Ordering::Relaxed))
    }

    /// Whether it comes from this machine.
    pub fn is_local(&self) -> bool {
        let ip = self.address.rsplit_once(':').map_or("", |(ip, _)| ip);
        let ip = ip.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        self.traits().contains(Traits::UNIX_SOCKET) || ip.is_ok_and(|ip| ip.to_canonical().is_loopback())
    }

    /// Sets or takes away a standing flag.
    pub fn set_trait(&self, flag: Traits, on: bool) {
        if on {
            self.traits.fetch_or(flag.bits(), Ordering::Relaxed);
        } else {
            self.traits.fetch_and(!flag.bits(), Ordering::Relaxed);
        }
    }

    /// Whether it will be woken when replies that are held may go out.
    #[inline]
    pub fn is_at_gate(&self) -> bool {
        self.is_at_gate.load(Ordering::Relaxed)
    }

    /// Notes that it will be, or has been.
    pub fn set_at_gate(&self, on: bool) {
        self.is_at_gate.store(on, Ordering::Relaxed);
    }

    /// Notes that a key which it watches has changed.
    pub fn mark_disturbed(&self) {
        self.traits.fetch_or(Traits::DISTURBED.bits(), Ordering::Release);
    }

    /// Whether a key that it watches has changed.
    pub fn is_disturbed(&self) -> bool {
        self.traits.load(Ordering::Acquire) & Traits::DISTURBED.bits() != 0
    }

    /// The command that its latest request named; None: it named none.
    pub fn last_command(&self) -> Option<CommandId> {
        match self.last_command.load(Ordering::Relaxed) {
            usize::MAX => None,
            id => Some(CommandId(id)),
        }
    }

    /// Notes which command it runs, for a line that is written before its batch ends.
    pub fn note_command(&self, command: CommandId) {
        self.last_command.store(command.0, Ordering::Relaxed);
    }

    /// Notes what a batch did, and what the last of its requests named.
    #[inline]
    pub fn note_batch(&self, last: Option<CommandId>, commands: i64, now: UnixMs) {
        self.last_command.store(last.map_or(usize::MAX, |id| id.0), Ordering::Relaxed);
        self.active_at_ms.store(now.0, Ordering::Relaxed);
        self.commands.fetch_add(commands, Ordering::Relaxed);
    }

    /// How many commands it has run.
    pub fn commands(&self) -> u64 {
        self.commands.load(Ordering::Relaxed) as u64
    }

    /// Up to where in the history there is what it has written; 0: it has written nothing.
    pub fn written(&self) -> Stamp {
        Stamp(self.written.load(Ordering::Relaxed))
    }

    /// Notes what its session has written. Others do not meanwhile.
    #[inline]
    pub fn note_written(&self, up_to: Stamp) {
        self.written.store(up_to.max(self.written()).0, Ordering::Relaxed);
    }

    /// The same while it waits, when others may write for it.
    pub fn note_written_waiting(&self, up_to: Stamp) {
        self.written.fetch_max(up_to.0, Ordering::Relaxed);
    }

    /// What the client calls itself.
    pub fn labels(&self) -> Labels {
        self.labels.lock().as_deref().cloned().unwrap_or_default()
    }

    /// Changes a label.
    pub fn label(&self, change: impl FnOnce(&mut Labels)) {
        change(self.labels.lock().get_or_insert_default());
    }

    /// The name of the user whose rights it has.
    pub fn user(&self) -> Vec<u8> {
        self.user.lock().as_deref().unwrap_or(DEFAULT_USER.as_bytes()).to_vec()
    }

    /// Whether it has this user's rights.
    pub fn is_user(&self, name: &[u8]) -> bool {
        self.user.lock().as_deref().unwrap_or(DEFAULT_USER.as_bytes()) == name
    }

    /// Its session has the rights of this user from now on.
    pub fn set_user(&self, name: &[u8]) {
        let is_default = name == DEFAULT_USER.as_bytes();
        *self.user.lock() = if is_default { None } else { Some(name.into()) };
    }

    /// Which limits apply to it.
    #[inline]
    pub fn class(&self) -> ClientClass {
        let traits = self.traits();
        if traits.contains(Traits::REPLICA) {
            ClientClass::Replica
        } else if traits.contains(Traits::SUBSCRIBED) {
            ClientClass::Pubsub
        } else {
            ClientClass::Normal
        }
    }

    /// What it takes of the server's memory.
    pub fn memory_bytes(&self) -> usize {
        self.own_bytes()
            + self.input_capacity.load(Ordering::Relaxed)
            + self.output_capacity.load(Ordering::Relaxed)
            + self.kept_bytes()
            + self.mail_bytes()
    }

    fn own_bytes(&self) -> usize {
        CLIENT_BYTES + if self.traits().contains(Traits::TLS) { TLS_CLIENT_BYTES } else { 0 }
    }

    /// What its session keeps beside its buffers: a transaction's requests, and the names of what it watches, listens to,
    /// tracks and waits for, here and where others find them.
    #[inline]
    pub fn kept_bytes(&self) -> usize {
        let names: usize = self.kept.iter().map(|bytes| bytes.load(Ordering::Relaxed)).sum();
        names + self.queued_bytes.load(Ordering::Relaxed)
    }

    /// What it keeps of this kind.
    pub fn kept_of(&self, kind: Kept) -> usize {
        self.kept[kind as usize].load(Ordering::Relaxed)
    }

    /// It keeps so much of this kind now.
    pub fn note_kept(&self, kind: Kept, bytes: usize) {
        self.kept[kind as usize].store(bytes, Ordering::Relaxed);
    }

    /// It keeps one more name of this kind, or one less.
    pub fn note_kept_name(&self, kind: Kept, name: &[u8], is_kept: bool) {
        let bytes = name.len() + NAME_BYTES;
        match is_kept {
            true => self.kept[kind as usize].fetch_add(bytes, Ordering::Relaxed),
            false => self.kept[kind as usize].fetch_sub(bytes, Ordering::Relaxed),
        };
    }

    /// Called by a task of the session before it first waits; its waker stays the same for its whole life.
    pub fn set_waker(&self, waker: &Waker) {
        *self.waker.lock() = Some(waker.clone());
    }

    /// Wakes the session up whichever task runs it then: it may move to another worker.
    pub fn waker(self: &Arc<Client>) -> Waker {
        Waker::from(self.clone())
    }

    /// Asks the session to do something, and wakes it up.
    pub fn signal(&self, signal: Signal) {
        self.signals.fetch_or(signal.bits(), Ordering::Release);
        self.wake();
    }

    /// Wakes the session up to look at the state of things again.
    pub fn wake(&self) {
        // Without a waker the task has not run yet, and will look by itself.
        if let Some(waker) = &*self.waker.lock() {
            waker.wake_by_ref();
        }
    }

    /// Whether its connection is about to be closed.
    pub fn is_killed(&self) -> bool {
        self.signals.load(Ordering::Acquire) & Signal::KILL.bits() != 0
    }

    /// Takes the signals that have come, but for that of mail: [`Client::take_mail`]
    /// takes that.
    #[inline]
    pub fn take_signals(&self) -> Signal {
        let other_than_mail = Signal::from_bits_truncate(self.signals.load(Ordering::Acquire)) - Signal::MAIL;
        if other_than_mail.is_empty() {
            return Signal::empty();
        }
        let before = self.signals.fetch_and(Signal::MAIL.bits(), Ordering::AcqRel);
        Signal::from_bits_truncate(before) - Signal::MAIL
    }
}
