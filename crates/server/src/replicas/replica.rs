//! One server that follows this one, as it is known here: what it said of itself, how far it is, and what waits for it.
//!
//! Thread rule: a thread that has something for it puts it into the outbox and waits there for room; its connection takes it out. How far
//! it is can be looked at by anybody.

use super::elder::Elder;
use super::foreign::Foreign;
use net::client::Client;
use parking_lot::{Condvar, Mutex, MutexGuard};
use replication::insync::NodeId;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use sys::UnixMs;

/// Bytes that wait in an outbox, besides the last piece.
const OUTBOX_BYTES_MAX: usize = 1 << 20;

/// How long a piece in an outbox is at most, and how much a replica has to take within its time.
const PIECE_BYTES: usize = 256 << 10;

/// How often who waits for a replica looks whether it is still there.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Reads from no place of the backlog.
const NOWHERE: u64 = u64::MAX;

/// What a replica has said of itself before it asked to follow (REPLCONF).
#[derive(Clone, Debug, Default)]
pub struct Said {
    /// The port at which it listens; 0 if it has said none.
    pub port: u16,
    /// Its address, if that is not the connection's.
    pub address: Option<Vec<u8>>,
    /// It can find the end of a copy whose length it is not told.
    pub knows_eof: bool,
    /// It knows `+CONTINUE` with a name of the stream.
    pub knows_psync2: bool,
    /// It is a Tarn.
    pub is_tarn: bool,
    /// The number that it has in its shard; of a replica that has asked to follow: in this server's.
    pub node: Option<NodeId>,
    /// It knows that what it would go on from is of one moment.
    pub is_whole: bool,
    /// It may be a Redis from before 7.0 (`repl-rdb-version 9`), by what is configured when it asks.
    pub may_be_elder: bool,
    /// It wants a copy and nothing behind it.
    pub rdb_only: bool,
    /// It wants no keys in it.
    pub leaves_keys: bool,
    /// It wants no libraries of functions in it.
    pub leaves_functions: bool,
    /// It was the master, and has asked this server to take its place (PSYNC ... FAILOVER): when first.
    pub asked_at: Option<UnixMs>,
    /// That was granted.
    pub is_successor: bool,
}

/// How it has asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// PSYNC: it tells how far it is.
    Psync,
    /// SYNC: it does not.
    Sync,
}

/// How far a replica has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Stage {
    /// It waits for a full copy, or is sent one that is made on the way.
    Waits,
    /// It is sent one that was made.
    Copies,
    /// It reads the stream.
    Online,
}

/// A server that follows this one.
pub struct Replica {
    /// Its connection.
    pub client: Arc<Client>,
    /// What it has said of itself.
    pub said: Said,
    /// How it has asked.
    pub form: Form,
    /// It may be a Redis from before 7.0: what it is sent is looked at.
    pub elder: Option<Mutex<Elder>>,
    /// It may be a Redis from before 7.4, and is looked at for that.
    pub foreign: Option<Mutex<Foreign>>,
    stage: AtomicU8,
    /// Of the first byte of the stream that it has not been given.
    position: AtomicU64,
    acknowledged: AtomicU64,
    acknowledged_durable: AtomicU64,
    acknowledged_at_ms: AtomicU64,
    /// It has been given all there was.
    is_asleep: AtomicBool,
    outbox: Mutex<Outbox>,
    changed: Condvar,
    /// Since when it has been above the soft limit; 0: it is not.
    pub over_soft_since_ms: AtomicU64,
}

#[derive(Default)]
struct Outbox {
    pieces: VecDeque<Vec<u8>>,
    bytes: usize,
    /// What comes behind is in the backlog.
    goes_on: bool,
    /// Nothing comes behind: it is closed.
    ends: bool,
    /// Its connection is gone.
    is_gone: bool,
    has_acknowledged: bool,
    /// When it last said anything.
    alive_at: Option<Instant>,
    /// An empty line may be sent now, which says that this server is still there.
    takes_blank: bool,
}

/// Which server a replica is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Identity {
    /// It has said no port: its connection's number. 0: any such.
    Connection(u64),
    /// Its host and port.
    At(String, u16),
    /// A node of this server's shard, wherever it is: others may know it by a name, or by where its connections seem to come from.
    Node(NodeId),
}

/// What a connection is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// Something from the outbox, or nothing for now.
    OfOutbox,
    /// What is in the backlog from here on.
    Backlog(u64),
    /// It is to be closed.
    Nothing,
}

impl Replica {
    /// One that has just asked.
    pub fn new(client: Arc<Client>, said: Said, form: Form, now: UnixMs) -> Replica {
        Replica {
            client,
            elder: said.may_be_elder.then(Mutex::default),
            foreign: (!said.is_tarn).then(Mutex::default),
            said,
            form,
            stage: AtomicU8::new(Stage::Waits as u8),
            position: AtomicU64::new(NOWHERE),
            acknowledged: AtomicU64::new(0),
            acknowledged_durable: AtomicU64::new(0),
            acknowledged_at_ms: AtomicU64::new(now.0),
            is_asleep: AtomicBool::new(false),
            outbox: Mutex::new(Outbox { takes_blank: true, ..Outbox::default() }),
            changed: Condvar::new(),
            over_soft_since_ms: AtomicU64::new(0),
        }
    }

    /// How far it has come.
    pub fn stage(&self) -> Stage {
        match self.stage.load(Ordering::Acquire) {
            0 => Stage::Waits,
            1 => Stage::Copies,
            _ => Stage::Online,
        }
    }

    /// It has come so far.
    pub fn set_stage(&self, stage: Stage) {
        self.stage.store(stage as u8, Ordering::Release);
    }

    /// The offset of the first byte that it has not been given; None: it does not read the stream yet.
    pub fn position(&self) -> Option<u64> {
        Some(self.position.load(Ordering::Acquire)).filter(|position| *position != NOWHERE)
    }

    /// It has been given all before this offset.
    pub fn set_position(&self, offset: u64) {
        self.position.store(offset, Ordering::Release);
    }

    /// Up to where it has acknowledged the stream.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Acquire)
    }

    /// Up to where it has it on disk, as it says.
    pub fn acknowledged_durable(&self) -> u64 {
        self.acknowledged_durable.load(Ordering::Acquire)
    }

    /// When it did, or said that it is there.
    pub fn acknowledged_at(&self) -> UnixMs {
        UnixMs(self.acknowledged_at_ms.load(Ordering::Relaxed))
    }

    /// Notes what it has acknowledged.
    pub fn acknowledge(&self, offset: u64, durable: Option<u64>, now: UnixMs) {
        self.acknowledged.fetch_max(offset, Ordering::AcqRel);
        if let Some(durable) = durable {
            self.acknowledged_durable.fetch_max(durable, Ordering::AcqRel);
        }
        self.note_alive(now);
        self.outbox.lock().has_acknowledged = true;
        self.changed.notify_all();
    }

    /// Notes that it is there: it acknowledges something, or says an empty line while it is busy with its copy.
    pub fn note_alive(&self, now: UnixMs) {
        self.acknowledged_at_ms.store(now.0, Ordering::Relaxed);
        self.outbox.lock().alive_at = Some(Instant::now());
    }

    /// Its host, as it said or as it is seen.
    pub fn host(&self) -> String {
        if let Some(address) = &self.said.address {
            return String::from_utf8_lossy(address).into_owned();
        }
        let address = &self.client.address;
        let host = address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host);
        host.trim_start_matches('[').trim_end_matches(']').to_owned()
    }

    /// Host and port, for the log.
    pub fn name(&self) -> String {
        match self.said.port {
            0 => self.client.address.clone(),
            port => format!("{}:{port}", self.host()),
        }
    }

    /// Gives its connection what is next.
    pub fn give(&self, out: &mut Vec<u8>, bytes: usize) -> Given {
        let mut outbox = self.outbox.lock();
        while out.len() < bytes
            && let Some(piece) = outbox.pieces.pop_front()
        {
            outbox.bytes -= piece.len();
            match out.is_empty() {
                true => *out = piece,
                false => out.extend_from_slice(&piece),
            }
        }
        if !out.is_empty() {
            self.changed.notify_all();
            return Given::OfOutbox;
        }
        match (outbox.ends, outbox.goes_on) {
            (true, _) => Given::Nothing,
            (false, true) => Given::Backlog(self.position.load(Ordering::Acquire)),
            (false, false) => Given::OfOutbox,
        }
    }

    /// Bytes that wait in its outbox.
    pub fn outbox_bytes(&self) -> usize {
        self.outbox.lock().bytes
    }

    /// It has been given all there was: who adds something wakes it. Called with what it reads from locked.
    pub fn sleep(&self) {
        self.is_asleep.store(true, Ordering::Release);
    }

    /// There is more for it than it had been given.
    pub fn wake_if_asleep(&self) {
        if self.is_asleep.load(Ordering::Acquire) && self.is_asleep.swap(false, Ordering::AcqRel) {
            self.client.wake();
        }
    }

    /// Puts something into the outbox, however much there is: short lines only.
    pub fn say(&self, line: &[u8]) {
        let mut outbox = self.outbox.lock();
        outbox.bytes += line.len();
        outbox.pieces.push_back(line.to_vec());
        drop(outbox);
        self.client.wake();
    }

    /// Says that this server is still there, where that can be said.
    pub fn say_blank(&self) {
        let is_quiet = {
            let outbox = self.outbox.lock();
            outbox.takes_blank && outbox.pieces.is_empty()
        };
        if is_quiet {
            self.say(b"\n");
        }
    }

    /// Whether that can be said.
    pub fn take_blanks(&self, on: bool) {
        self.outbox.lock().takes_blank = on;
    }

    /// Puts bytes into the outbox as soon as there is room. Longer ones are cut into pieces, so that nobody waits for long until some of them are
    /// taken.
    ///
    /// # Errors
    /// If it is gone, or to be, or has taken less than a piece for so long.
    pub fn send(&self, bytes: Vec<u8>, patience: Duration) -> io::Result<()> {
        self.send_while(bytes, patience, &|| Ok(()))
    }

    /// The same, while `may_go_on` is asked again and again.
    ///
    /// # Errors
    /// As there, or if `may_go_on` fails.
    pub fn send_while(
        &self,
        bytes: Vec<u8>,
        patience: Duration,
        may_go_on: &dyn Fn() -> io::Result<()>,
    ) -> io::Result<()> {
        self.send_pieces(bytes, &Waiting { patience, may_load: false, may_go_on })
    }

    /// The same to one that may be loading its copy, and reads nothing then: its time runs from where it last said anything.
    ///
    /// # Errors
    /// As [`Replica::send`].
    pub fn send_behind_copy(&self, bytes: Vec<u8>, patience: Duration) -> io::Result<()> {
        self.send_pieces(bytes, &Waiting { patience, may_load: true, may_go_on: &|| Ok(()) })
    }

    fn send_pieces(&self, bytes: Vec<u8>, waiting: &Waiting<'_>) -> io::Result<()> {
        match bytes.len() {
            0 => Ok(()),
            1..=PIECE_BYTES => self.send_piece(bytes, waiting),
            _ => bytes.chunks(PIECE_BYTES).try_for_each(|piece| self.send_piece(piece.to_vec(), waiting)),
        }
    }

    fn send_piece(&self, piece: Vec<u8>, waiting: &Waiting<'_>) -> io::Result<()> {
        let Waiting { patience, may_load, may_go_on } = *waiting;
        let mut outbox = self.outbox.lock();
        let (mut since, mut before) = (Instant::now(), outbox.bytes);
        while outbox.bytes >= OUTBOX_BYTES_MAX && !outbox.is_gone && !outbox.ends {
            self.changed.wait_for(&mut outbox, LOOK_AGAIN);
            MutexGuard::unlocked(&mut outbox, may_go_on)?;
            if outbox.bytes + PIECE_BYTES <= before {
                (since, before) = (Instant::now(), outbox.bytes);
            } else if outbox.alive_at.filter(|_| may_load).map_or(since, |at| at.max(since)).elapsed()
                > patience
            {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "it does not read (repl-timeout)"));
            }
        }
        if outbox.is_gone || outbox.ends {
            return Err(gone());
        }
        outbox.bytes += piece.len();
        outbox.pieces.push_back(piece);
        drop(outbox);
        self.client.wake();
        Ok(())
    }

    /// Waits until it has acknowledged anything: it has loaded its copy. `may_go_on` is asked again and again, and told for how long it has said
    /// nothing.
    ///
    /// # Errors
    /// If it is gone, or `may_go_on` fails.
    pub fn wait_for_acknowledgement(
        &self,
        mut may_go_on: impl FnMut(Duration) -> io::Result<()>,
    ) -> io::Result<()> {
        let began = Instant::now();
        loop {
            let alive_at = self.outbox.lock().alive_at;
            may_go_on(alive_at.map_or(began, |at| at.max(began)).elapsed())?;
            let mut outbox = self.outbox.lock();
            if outbox.is_gone {
                return Err(gone());
            }
            if outbox.has_acknowledged {
                return Ok(());
            }
            self.changed.wait_for(&mut outbox, LOOK_AGAIN);
        }
    }

    /// What comes behind the outbox is in the backlog from this offset on, or no more for now.
    pub fn go_on(&self, from: Option<u64>) {
        if let Some(from) = from {
            self.set_position(from);
            self.set_stage(Stage::Online);
        }
        self.outbox.lock().goes_on = from.is_some();
        self.client.wake();
    }

    /// Nothing comes behind the outbox.
    pub fn end(&self) {
        self.outbox.lock().ends = true;
        self.changed.notify_all();
        self.client.wake();
    }

    /// Whether nothing does.
    pub fn is_ended(&self) -> bool {
        self.outbox.lock().ends
    }

    /// Its connection is gone, and what waited for it.
    pub fn leave(&self) {
        *self.outbox.lock() = Outbox { is_gone: true, ..Outbox::default() };
        self.changed.notify_all();
    }

    /// Whether it reads this stream, and is not about to be parted with.
    pub fn reads_stream(&self) -> bool {
        let outbox = self.outbox.lock();
        self.stage() == Stage::Online && !outbox.is_gone && !outbox.ends
    }

    /// Which server it is.
    pub fn identity(&self) -> Identity {
        match (self.said.node, self.said.port) {
            (Some(node), _) => Identity::Node(node),
            (None, 0) => Identity::Connection(self.client.id),
            (None, port) => Identity::At(self.host(), port),
        }
    }

    /// Whether it is.
    pub fn is_gone(&self) -> bool {
        self.outbox.lock().is_gone
    }
}

/// How somebody waits for room in an outbox.
struct Waiting<'w> {
    /// For how long.
    patience: Duration,
    /// Whether the replica may be loading its copy.
    may_load: bool,
    /// Is asked again and again, with nothing locked.
    may_go_on: &'w dyn Fn() -> io::Result<()>,
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "it is gone")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replica() -> Replica {
        let client = Arc::new(Client::new(1, String::new(), String::new(), -1, (0, 0), UnixMs(0)));
        Replica::new(client, Said::default(), Form::Psync, UnixMs(0))
    }

    #[test]
    fn a_node_is_who_it_says_that_it_is_wherever_it_is_and_any_other_server_is_where_it_is() {
        let who = |node: Option<u32>, port: u16| {
            let said =
                Said { node: node.map(NodeId), port, address: Some(b"gate".to_vec()), ..Said::default() };
            Replica { said, ..replica() }.identity()
        };
        assert_ne!(who(Some(2), 7000), who(Some(3), 7000), "two behind one address");
        assert_eq!(who(Some(2), 7000), who(Some(2), 7001), "one that is elsewhere now");
        assert_eq!(who(None, 7000), Identity::At("gate".to_owned(), 7000));
        assert_eq!(who(None, 0), Identity::Connection(1));
    }

    #[test]
    fn who_waits_for_one_that_does_not_read_is_asked_whether_that_goes_on() {
        let (replica, patience) = (replica(), Duration::from_secs(60));
        replica.send(vec![0; OUTBOX_BYTES_MAX], patience).expect("there is room");
        // The connection may come for what is in the outbox while it is asked.
        let may_go_on = || match replica.outbox_bytes() {
            0 => Ok(()),
            bytes => Err(io::Error::other(format!("{bytes} bytes wait"))),
        };
        let refused = replica.send_while(vec![1], patience, &may_go_on).expect_err("nobody takes anything");
        assert_eq!(refused.to_string(), format!("{OUTBOX_BYTES_MAX} bytes wait"));
    }

    #[test]
    fn who_is_ended_is_sent_what_it_had_of_this_stream_and_nothing_more() {
        let (replica, patience) = (replica(), Duration::from_secs(60));
        replica.send(b"of this stream".to_vec(), patience).expect("there is room");
        assert!(!replica.is_ended());
        replica.end();
        // A thread that sends it what it lacks reads on, into the stream that comes next.
        assert!(replica.is_ended() && replica.send(b"of another".to_vec(), patience).is_err());
        let mut out = Vec::new();
        assert_eq!((replica.give(&mut out, 100), &out[..]), (Given::OfOutbox, &b"of this stream"[..]));
        out.clear();
        assert_eq!(replica.give(&mut out, 100), Given::Nothing);
    }
}
