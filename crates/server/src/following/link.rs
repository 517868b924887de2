//! The link to the master: connects, shakes hands, has a full copy or the rest of the stream, and follows; when it breaks, again.
//!
//! Thread rule: one thread, which has the link for as long as its order is in force. It waits for the other server only with a look at
//! that, and every wait has an end (`repl-timeout`).

use super::applying::Applier;
use super::copy::{self, Arriving, Coming, Spool};
use super::pauses::{Ending, Pauses};
use super::rest::{Rest, done};
use super::{Wanted, agreeing, handing_over, rewinding};
use crate::followed::{Connection, Phase, Status};
use crate::server::Server;
use ::log::{Lsn, ReplicationId, Stream};
use config::DisklessLoad;
use engine::durability;
use engine::replacement::{self, Beside, Checked, Loaded};
use net::connect::Outgoing;
use replication::insync::Moment;
use replication::link::limits::RDB_BYTES_MAX_DEFAULT;
use replication::link::{Ask, Form, Handshake, Outcome, Replica, Report, Reports, Transfer, acknowledgement};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::thread;
use std::time::{Duration, Instant};
use telemetry::log;

/// How often it looks whether there is something to report.
pub(super) const PATIENCE: Duration = Duration::from_millis(100);

/// The same where something is left to be done.
const UNDONE_POLL: Duration = Duration::from_millis(5);

/// While what the master sends is held back, so much of it is kept here; what comes then stays where it is.
const PAUSED_BYTES_MAX: usize = 16 << 20;

/// Bytes that are read at once.
const READ_BYTES: usize = 256 << 10;

/// Follows the master for as long as the order is in force.
pub fn run(server: &Arc<Server>, order: u64) {
    durability::gather();
    let mut applier = Applier::new(server);
    // What the master sends behind the place that was reached makes no sense: only all of it helps.
    let mut asks_for_all = false;
    let mut pauses = Pauses::default();
    let is_on = || server.following.is_in_force(order) && !server.engine.is_ending();
    while is_on() {
        let Some(status) = server.following.status() else { return };
        let ended = attempt(server, order, (&status, asks_for_all), &mut applier);
        applier.rest();
        let now = server.engine.clock.now();
        server.following.change(order, |status| {
            if status.phase == Phase::Connected {
                status.down_since = Some(now);
            }
            status.phase = Phase::Connect;
        });
        server.following.forget_connection(order);
        let Err(ending) = ended;
        let error = ending.error();
        asks_for_all = match error.kind() {
            ErrorKind::InvalidData => true,
            // It is still to be taken, if somebody says so.
            ErrorKind::PermissionDenied => asks_for_all,
            _ => false,
        };
        if !is_on() {
            return;
        }
        log!(Warning, "{error}");
        let pause = pauses.behind(&ending, server.shard.is_on());
        if ending.needs_copy() {
            log!(
                Notice,
                "The master is asked for another copy in {} s, or at the next REPLICAOF or CONFIG SET",
                pause.as_secs()
            );
        }
        if server.following.rest(order, pause) {
            pauses.begin_anew();
        }
    }
}

fn attempt(
    server: &Arc<Server>,
    order: u64,
    (status, asks_for_all): (&Status, bool),
    applier: &mut Applier<'_>,
) -> Result<std::convert::Infallible, Ending> {
    let mut may_go_back = !asks_for_all;
    let (mut link, agreed) = loop {
        let mut link = Link::connect(server, order, status)?;
        match link.shake_hands(asks_for_all, may_go_back)? {
            Agreed::Parted(place) => {
                drop(link);
                server.following.forget_connection(order);
                may_go_back = false;
                rewinding::go_back(server, place, &mut || look(server, order))?;
            }
            agreed => break (link, agreed),
        }
    };
    let stream = match agreed {
        Agreed::Copy(stream) => {
            may_be_replaced(server, &stream, asks_for_all)?;
            link.copy(stream)?
        }
        Agreed::Rest(stream) => stream,
        Agreed::Parted(_) => return Err(io::Error::other("The master was not asked for anything").into()),
    };
    server.following.keep_history(order, stream.id);
    link.follow(stream, applier).map_err(Ending::Stream)
}

/// # Errors
/// What is here is not given up for a copy of this stream. `is_other`: what the master has behind the place that was reached made no sense.
fn may_be_replaced(server: &Server, offered: &Stream, is_other: bool) -> io::Result<()> {
    let history = server.following.state.lock().history;
    let Some(history) = history.filter(|_| server.engine.config.min_sync_replicas() > 0) else {
        return Ok(());
    };
    if server.shard.is_on() {
        // It is as its members have agreed.
        return Ok(());
    }
    let has = server.stream().offset;
    let what = match history == offered.id {
        false => format!("The master has begun another history ({})", offered.id),
        // It was put back from a copy, or its disk has lost something.
        true if offered.offset < has => {
            format!("The master has less than what is here, up to offset {} and not {has}", offered.offset)
        }
        true if is_other => format!("What the master has is not what is here up to offset {has}"),
        true => return Ok(()),
    };
    Err(io::Error::new(
        ErrorKind::PermissionDenied,
        format!(
            "{what}, and what is here of {history} may be all there is of it: a copy is taken only if REPLICAOF says so once more \
             (min-sync-replicas)"
        ),
    ))
}

/// What a handshake came to.
enum Agreed {
    /// A full copy comes, and behind it this stream.
    Copy(Stream),
    /// The rest of this stream comes.
    Rest(Stream),
    /// Nothing comes: the master has the stream of this name up to this offset only.
    Parted((ReplicationId, u64)),
}

/// A connection to the master.
struct Link<'s> {
    server: &'s Arc<Server>,
    order: u64,
    outgoing: Outgoing,
    /// What has come, up to `filled`, and is not used from `used` on. It is as long as it was at most: nothing is zeroed again.
    received: Vec<u8>,
    filled: usize,
    used: usize,
    /// There may be more of what has come than was read.
    has_more: bool,
    reports: Reports,
    began: Instant,
    heard: Instant,
}

impl<'s> Link<'s> {
    fn connect(server: &'s Arc<Server>, order: u64, status: &Status) -> io::Result<Link<'s>> {
        let (host, port) = (status.master.host.clone(), status.master.port);
        log!(Notice, "Connecting to MASTER {host}:{port}");
        server.following.change(order, |status| status.phase = Phase::Connecting);
        let context = match server.engine.config.tls_replication() {
            true => {
                let context = server.net.tls.contexts().and_then(|contexts| contexts.client.clone());
                Some(context.ok_or_else(|| {
                    io::Error::other(
                        "tls-replication is yes, and there are no certificates to speak TLS with",
                    )
                })?)
            }
            false => None,
        };
        let deadline = Instant::now() + timeout(server);
        let outgoing = Outgoing::connect(host, port, context, deadline, &mut || look(server, order))
            .map_err(|error| {
                io::Error::new(error.kind(), format!("Error condition on socket for SYNC: {error}"))
            })?;
        outgoing.set_patience(PATIENCE)?;
        let id = server.net.clients.next_id();
        let connection = Connection::new(outgoing.ender()?, id, server.engine.clock.now());
        server.following.keep_connection(order, connection);
        let now = Instant::now();
        log!(Notice, "MASTER <-> REPLICA sync started");
        Ok(Link {
            server,
            order,
            outgoing,
            received: Vec::new(),
            filled: 0,
            used: 0,
            has_more: false,
            reports: Reports::new(),
            began: now,
            heard: now,
        })
    }

    fn now(&self) -> Moment {
        Moment(u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX))
    }

    fn look(&self) -> io::Result<()> {
        look(self.server, self.order)
    }

    /// What is there and not used.
    fn rest(&self) -> &[u8] {
        &self.received[self.used..self.filled]
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let (server, order) = (self.server, self.order);
        self.outgoing.set_deadline(Instant::now() + timeout(server));
        self.outgoing.write_all(bytes, &mut || look(server, order))
    }

    fn forget_used(&mut self) {
        self.received.copy_within(self.used..self.filled, 0);
        (self.filled, self.used) = (self.filled - self.used, 0);
    }

    /// Reads what comes within a short time. False: nothing.
    fn read(&mut self) -> io::Result<bool> {
        self.forget_used();
        let had = self.filled;
        let end = had + READ_BYTES;
        if self.received.len() < end {
            self.received.resize(end, 0);
        }
        let (server, order) = (self.server, self.order);
        self.outgoing.set_deadline(Instant::now() + PATIENCE);
        let read = self.outgoing.read(&mut self.received[had..end], &mut || look(server, order));
        let count = *read.as_ref().unwrap_or(&0);
        self.has_more = count == READ_BYTES;
        self.filled = had + count;
        match read {
            Ok(0) => Err(io::Error::new(ErrorKind::UnexpectedEof, "Connection with master lost.")),
            Ok(_) => {
                self.heard = Instant::now();
                let now = self.server.engine.clock.now();
                self.server.following.change(self.order, |status| status.heard_at = now);
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::TimedOut => self.check_silence().map(|()| false),
            Err(error) => Err(io::Error::new(error.kind(), format!("Connection with master lost: {error}"))),
        }
    }

    /// What was waited for in vain, in Redis' words.
    fn what_was_silent(&self) -> &'static str {
        match self.server.following.status().map(|status| status.phase) {
            Some(Phase::Connected) => "MASTER timeout: no data nor PING received...",
            Some(Phase::Sync) => {
                "Timeout receiving bulk data from MASTER... If the problem persists try to set the 'repl-timeout' parameter in redis.conf to \
                 a larger value."
            }
            _ => "Timeout connecting to the MASTER...",
        }
    }

    fn shake_hands(&mut self, asks_for_all: bool, may_go_back: bool) -> io::Result<Agreed> {
        self.server.following.change(self.order, |status| status.phase = Phase::Handshake);
        let wanted = self.server.following.wanted(self.order);
        let before = agreeing::known_stream(self.server)?.filter(|_| !asks_for_all);
        // Within what came behind its copy nobody but the copy's own master knows what is here, who makes another then.
        let before =
            before.filter(|before| wanted.is_some() || self.server.following.is_whole_at(before.offset));
        if let (Some(before), Some(wanted)) = (before, wanted) {
            agreeing::check_place(self.server, self.order, before.offset, wanted)?;
        }
        let ask = match (before, wanted) {
            (None, _) | (_, Some(Wanted { takes_copy: true, .. })) => Ask::Full,
            (Some(before), None) => Ask::Rest { id: before.id, offset: before.offset },
            // What is here is of it, whatever it was called.
            (Some(before), Some(wanted)) => Ask::Rest { id: wanted.id, offset: before.offset },
        };
        let hands_over = handing_over::is_handing_over(self.server);
        let names = match before
            .filter(|_| wanted.is_none() && may_go_back && !hands_over && rewinding::is_possible(self.server))
        {
            Some(stream) => [(stream.id, stream.offset)].into_iter().chain(stream.former).collect(),
            None => Vec::new(),
        };
        // Who goes on from nothing has nothing that could be whole.
        let goes_on = before.filter(|before| matches!(ask, Ask::Rest { .. }) && before.offset > 0);
        let is_whole = goes_on.is_some_and(|before| self.server.following.knows_whole_at(before.offset));
        let replica = Replica { hands_over, names, is_whole, ..replica(self.server) };
        let (mut handshake, first) = Handshake::begin(replica, ask);
        let outcome = self.exchange(&mut handshake, first);
        if hands_over && handshake.has_asked() {
            match &outcome {
                Ok(Outcome::Full { .. } | Outcome::Partial { .. }) => {
                    handing_over::note_accepted(self.server)
                }
                Ok(Outcome::Later(answer) | Outcome::Refused(answer)) => {
                    handing_over::note_refused(self.server, &answer.to_string());
                }
                Ok(Outcome::Parted { .. }) | Err(_) => handing_over::note_doubt(self.server),
            }
        }
        match (outcome?, before) {
            (Outcome::Full { id, .. }, _)
                if wanted.is_some_and(|wanted| !wanted.takes_copy || wanted.id != id) =>
            {
                Err(agreeing::refuse_copy(self.server, self.order, wanted, id))
            }
            (Outcome::Full { id, offset }, _) => {
                log!(Notice, "Full resync from master: {id}:{offset}");
                Ok(Agreed::Copy(Stream { id, offset, ..Stream::none(Lsn::ZERO) }))
            }
            (Outcome::Partial { renamed }, Some(before)) => {
                log!(Notice, "Successful partial resynchronization with master.");
                agreeing::go_on(self.server, self.order, (before, wanted), renamed).map(Agreed::Rest)
            }
            (Outcome::Parted { id, offset }, _) => Ok(Agreed::Parted((id, offset))),
            (Outcome::Partial { .. }, None) => Err(io::Error::other("The master goes on where nothing was")),
            (Outcome::Later(ending) | Outcome::Refused(ending), _) => Err(io::Error::other(ending)),
        }
    }

    /// Says what a replica says, up to the master's answer to PSYNC.
    fn exchange(&mut self, handshake: &mut Handshake, first: Vec<u8>) -> io::Result<Outcome> {
        self.send(&first)?;
        loop {
            let step = handshake.step(self.rest());
            self.used += step.used;
            step.notes.iter().for_each(|note| log!(Notice, "{note}"));
            self.send(&step.send)?;
            match step.outcome {
                Some(outcome) => return Ok(outcome),
                None => drop(self.read()?),
            }
        }
    }

    /// Takes a full copy, and puts it in the place of all that is here.
    fn copy(&mut self, stream: Stream) -> Result<Stream, Ending> {
        self.server.following.change(self.order, |status| {
            (status.phase, status.copied_bytes, status.copy_bytes) = (Phase::Sync, 0, None);
        });
        let is_loaded = self.is_loaded_as_it_comes();
        if is_loaded {
            log!(Notice, "MASTER <-> REPLICA sync: Loading DB in memory");
        }
        let mut spool = match is_loaded {
            true => None,
            false => Some(Spool::begin(self.server).map_err(cannot_write)?),
        };
        let (engine, path) = (&*self.server.engine, copy::path(self.server));
        let is_wrong = &AtomicBool::new(false);
        let (checked, loaded) = thread::scope(|scope| {
            let (to, coming) = Arriving::channel();
            let work = move || {
                let checked = match is_loaded {
                    true => replacement::load_coming(engine, &path, coming)
                        .map(|(checked, loaded)| (checked, Some(loaded))),
                    false => replacement::check(engine, &path, coming).map(|checked| (checked, None)),
                };
                is_wrong.store(checked.is_err(), Ordering::Release);
                checked
            };
            let check = thread::Builder::new().spawn_scoped(scope, work).map_err(|error| {
                Ending::Copy(io::Error::other(format!(
                    "Can't start the thread that reads the master's copy: {error}"
                )))
            })?;
            let received = self.receive(spool.as_mut(), to, is_wrong);
            // Where something is wrong with the copy it is not received to its end.
            let checked =
                check.join().unwrap_or_else(|_| Err(io::Error::other("The copy was not read through")));
            received.and(checked.map_err(Ending::Copy))
        })?;
        self.load(loaded, checked, stream).map_err(Ending::Copy)
    }

    /// Receives a copy to its end, or until whoever reads it through has found that it is none. What comes behind its own end is kept by nobody.
    fn receive(
        &mut self,
        mut spool: Option<&mut Spool>,
        to: SyncSender<Vec<u8>>,
        is_wrong: &AtomicBool,
    ) -> Result<(), Ending> {
        let (mut transfer, mut reader) = (Transfer::new(RDB_BYTES_MAX_DEFAULT), Some(to));
        loop {
            let taken = transfer.step(&self.received[self.used..self.filled]).map_err(io::Error::other)?;
            for part in taken.parts().into_iter().filter(|part| !part.is_empty()) {
                let Some(to) = &reader else { break };
                spool.as_mut().map_or(Ok(()), |spool| spool.push(part)).map_err(cannot_write)?;
                if to.send(part.to_vec()).is_err() {
                    reader = None;
                }
            }
            if is_wrong.load(Ordering::Acquire) {
                return Ok(());
            }
            self.used += taken.used;
            let (bytes, form) = (transfer.handed_out(), transfer.form());
            self.server.following.change(self.order, |status| {
                status.copied_bytes = bytes;
                status.copy_bytes = match form {
                    Some(Form::Length(bytes)) => Some(bytes),
                    Some(Form::Mark) | None => None,
                };
            });
            if taken.is_complete {
                return Ok(());
            }
            self.report(Report::Loading)?;
            self.read()?;
        }
    }

    /// Puts a copy in the place of all that is here, from its file unless it is loaded.
    fn load(&mut self, loaded: Option<Loaded>, checked: Checked, stream: Stream) -> io::Result<Stream> {
        let (server, order) = (self.server, self.order);
        let (stream, path) = (copy::stream_behind(&checked, stream), copy::path(server));
        let Checked { libraries, whole_from, .. } = checked;
        let beside = match &loaded {
            Some(_) => {
                let beside = self.begin_beside()?;
                // What was written beside the master goes with all that is here, and nobody else takes it away meanwhile.
                self.server.engine.keyspace.remember_beside(true);
                Some(beside)
            }
            None => {
                log!(Notice, "MASTER <-> REPLICA sync: Loading DB in memory");
                self.begin_beside_if_shown(stream.id)?
            }
        };
        let coming = match (loaded, &beside) {
            (_, None) => Coming::File(&path, libraries),
            (Some(loaded), Some(beside)) => Coming::Loaded(Box::new(loaded), libraries, beside),
            (None, Some(beside)) => {
                Coming::Loaded(Box::new(self.load_beside(beside, &path)?), libraries, beside)
            }
        };
        // From here on nothing is left undone: that the master is gone shows behind it.
        let mut meanwhile = || {
            let _ = self.report(Report::Loading);
            Ok(())
        };
        let until = whole_from.unwrap_or(stream.offset);
        copy::put_in_place(server, order, (coming, until), stream, &mut meanwhile)
    }

    /// Whether a copy goes into memory as it comes, and not to a file first: there is nothing here that it takes the place of, and if something is
    /// wrong with it nothing is lost.
    fn is_loaded_as_it_comes(&self) -> bool {
        let engine = &self.server.engine;
        engine.residency.store().is_none()
            && !self.server.shard.is_on()
            && engine.databases().all(|db| engine.keyspace.is_empty(db))
    }

    /// Whether what is here is shown until a copy of this stream is loaded (`repl-diskless-load swapdb`): it is of the same history, and there is memory
    /// for two. What clients have written beside the master, and whose time will be up, would change what is here meanwhile.
    fn is_loaded_beside(&self, id: ReplicationId) -> bool {
        let engine = &self.server.engine;
        engine.config.repl_diskless_load() == DisklessLoad::Swapdb
            && self.server.stream().id == id
            && engine.residency.store().is_none()
            && !self.server.shard.is_on()
            && engine.keyspace.remembered_beside() == 0
    }

    /// Says that the copy is loaded beside what is here, if that is shown until then.
    fn begin_beside_if_shown(&mut self, id: ReplicationId) -> io::Result<Option<Beside<'s>>> {
        if !self.is_loaded_beside(id) {
            return Ok(None);
        }
        let beside = self.begin_beside()?;
        // Somebody may have written in between.
        Ok(self.is_loaded_beside(id).then_some(beside))
    }

    fn begin_beside(&mut self) -> io::Result<Beside<'s>> {
        let server = self.server;
        let mut meanwhile = || {
            let _ = self.report(Report::Loading);
            self.look()
        };
        let engine = &server.engine;
        server.holders.claiming_all(engine, || Beside::begin(engine, &mut meanwhile))
    }

    fn load_beside(&mut self, beside: &Beside<'_>, copy: &Path) -> io::Result<Loaded> {
        let mut meanwhile = || {
            // That the master is gone shows behind it.
            let _ = self.report(Report::Loading);
            self.look()
        };
        replacement::load_beside(beside, copy, &mut meanwhile)
    }

    fn report(&mut self, report: Report) -> io::Result<()> {
        let bytes = self.reports.step(self.now(), report);
        self.send(&bytes)
    }

    /// Follows the stream to its end, which is an error.
    fn follow(&mut self, stream: Stream, applier: &mut Applier<'_>) -> io::Result<std::convert::Infallible> {
        let mut rest = Rest::begin(self.server, self.order, stream);
        // A Redis that has sent a copy without a file holds the stream back until it hears that the copy is loaded, and may have been busy.
        let mut is_waiting = true;
        loop {
            is_waiting &= self.used == self.filled;
            let is_done = rest.take(self.rest(), applier)?;
            self.used = self.filled;
            let (applied, durable) = done(self.server);
            let is_asked = rest.is_asked(applied);
            match is_waiting || is_asked {
                true => self.send(&acknowledgement(applied, durable))?,
                false => self.report(Report::Following { applied, durable })?,
            }
            match rest.waiting_bytes() > PAUSED_BYTES_MAX && (!is_done || rest.is_paused()) {
                true => self.read_nothing()?,
                false if is_done => self.read_or_answer(rest.asked())?,
                false => self.read_soon()?,
            }
        }
    }

    /// Reads nothing for a while. What the master has not sent by then is not its fault.
    fn read_nothing(&mut self) -> io::Result<()> {
        self.server.following.rest(self.order, PATIENCE);
        self.heard = Instant::now();
        self.forget_used();
        self.look()
    }

    /// Reads what is there, and is soon back where something is left to be done.
    fn read_soon(&mut self) -> io::Result<()> {
        let (socket, following) = (self.outgoing.socket(), &self.server.following);
        if self.has_more || following.bell.wait(socket, UNDONE_POLL, || false) {
            return self.read().map(drop);
        }
        self.forget_used();
        self.look()?;
        self.check_silence()
    }

    /// # Errors
    /// The master has said nothing for too long.
    fn check_silence(&self) -> io::Result<()> {
        match self.heard.elapsed() > timeout(self.server) {
            true => Err(io::Error::new(ErrorKind::TimedOut, self.what_was_silent())),
            false => Ok(()),
        }
    }

    /// Reads what comes within a short time, unless the stream is done here up to an offset before.
    fn read_or_answer(&mut self, asked: Option<u64>) -> io::Result<()> {
        let is_there = match asked {
            Some(offset) if !self.has_more => {
                let (socket, is_done) = (self.outgoing.socket(), || done(self.server).0 >= offset);
                self.server.following.bell.wait(socket, PATIENCE, is_done)
            }
            _ => true,
        };
        match is_there {
            true => self.read().map(drop),
            false => {
                self.forget_used();
                self.look()
            }
        }
    }
}

fn cannot_write(error: io::Error) -> Ending {
    Ending::Copy(io::Error::new(
        error.kind(),
        format!("The master's copy cannot be written to disk: {error}"),
    ))
}

/// Ends a wait when the order is not in force any more, or the server ends.
pub fn look(server: &Server, order: u64) -> io::Result<()> {
    match server.following.is_in_force(order) && !server.engine.is_ending() {
        true => Ok(()),
        false => Err(io::Error::new(ErrorKind::ConnectionAborted, "the master is followed no more")),
    }
}

fn timeout(server: &Server) -> Duration {
    Duration::from_secs(server.engine.config.repl_timeout_s().max(1))
}

/// What this server says of itself.
fn replica(server: &Server) -> Replica {
    let config = &server.engine.config;
    let given = |text: Vec<u8>| Some(text).filter(|text| !text.is_empty());
    let password = given(config.masterauth());
    let announced = given(config.replica_announce_ip());
    Replica {
        user: given(config.masteruser()),
        password,
        listening_port: match config.replica_announce_port() {
            0 => server.port(),
            port => port,
        },
        announced_address: announced.map(|address| String::from_utf8_lossy(&address).into_owned()),
        version: None,
        names: Vec::new(),
        hands_over: false,
        is_whole: false,
        node: server.shard.get().map(|shard| shard.settings.node.0),
    }
}
