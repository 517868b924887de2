//! A link's life: it connects, says who it is, writes what was pushed, and gives replies to those whose they are.
//!
//! What happens to requests when it is lost: those of which a byte was handed to the socket may have been executed, and are answered with
//! [`UNANSWERED`]; all others wait for the next connection, which is tried at once. Where that fails they are answered with the reason.

use super::course::{Course, Seen};
use super::elsewhere::REDIRECTIONS_MAX;
use super::measured::NOWHERE;
use super::own::OwnConnection;
use super::socket::Socket;
use super::{Link, LinkTo, Links, NO_DB, Patience, Pushed, SharedLinks, Ticket};
use crate::losses::{Losses, Met};
use crate::serve::Proxy;
use crate::upstream::{self, Node, NodeNo};
use config::LogLevel;
use net::descriptors;
use socket2::SockRef;
use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use telemetry::{log, logger};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::{Sleep, sleep, timeout};
use wire::scan::Scanner;
use wire::{Decoder, Protocol, Value, encode_request};

/// How long a link that cannot connect waits before it tries again.
const AGAIN_AFTER: Duration = Duration::from_millis(100);
/// How long a server is not asked again that has refused CLIENT NO-TOUCH: it does not know it (Redis before 7.2), or the proxy's user may not say it.
const REFUSED_FOR: Duration = Duration::from_secs(10);
/// How long connecting may take, with all that is said first.
const CONNECTING_MAX: Duration = Duration::from_secs(3);
/// What a client is told that waits for what it has written, where that may be lost.
pub const MAY_BE_LOST: &[u8] = b"-UNANSWERED A shard was lost that has been written to: what was written before that may be lost with its server\r\n";
/// How long a replica may owe something before its master is asked.
const REPLICA_SILENCE_MAX: Duration = Duration::from_secs(1);
/// So much of a reply is kept whoever wants it.
const KEPT_BYTES_MAX: usize = 1 << 20;
/// What stands for a reply that nobody wants.
const UNWANTED: &[u8] = b"+\r\n";
/// What clients are told whose requests may have been executed.
const UNANSWERED: &[u8] =
    b"-UNANSWERED The connection to the shard was lost before it answered: it is not known whether this was done\r\n";

/// Runs for the life of the worker. A connection is made when there is something to send.
pub async fn run(links: SharedLinks, at: usize, way: LinkTo, proxy: Arc<Proxy>) {
    let server = &proxy.upstream.routes().nodes[usize::from(way.node)];
    let silence_max = match way.is_replica {
        true => REPLICA_SILENCE_MAX,
        false => Duration::from_secs(u64::from(proxy.host.engine.config.proxy_shard_timeout_s())),
    };
    let mut is_told = false;
    loop {
        let is_asked = poll_fn(|context| links.borrow_mut().links[at].poll_asked(context)).await;
        if !is_asked {
            return links.borrow_mut().note_over(at);
        }
        // Nobody waits for what is over.
        let is_own = links.borrow().links[at].own.is_some();
        let Some(connected) = unless_over(&links, at, connect_within(&proxy, server, way, is_own)).await
        else {
            continue;
        };
        match connected {
            Ok((socket, met, _counted)) => {
                is_told = false;
                links.borrow_mut().refuse_lost(at);
                links.borrow_mut().links[at].is_woken = true;
                let counts = links.borrow().links[at].counts.clone();
                counts.links.add(1);
                let mut talking = Talking::new(socket, met, silence_max);
                let lost = poll_fn(|context| talking.poll(&mut links.borrow_mut(), at, context)).await;
                counts.links.add(-1);
                let is_over = links.borrow().links[at].is_over;
                if !is_over {
                    counts.note_loss(&sentence(&lost));
                }
                let is_missed = !links.borrow().links[at].tickets.is_empty();
                let level = if is_missed { LogLevel::Warning } else { LogLevel::Verbose };
                if logger::is_on(level) {
                    logger::write(
                        level,
                        format_args!("The connection to {server} is lost: {}", sentence(&lost)),
                    );
                }
                // What the system has not delivered is not to be executed behind what goes over the next one. Where it cannot be had, nothing is lost.
                let _ = SockRef::from(talking.socket.tcp()).set_linger(Some(Duration::ZERO));
                let has_answered = talking.has_answered;
                drop(talking);
                links.borrow_mut().lose_written(at);
                if !has_answered {
                    sleep(AGAIN_AFTER).await;
                }
            }
            Err(failure) => {
                if !std::mem::replace(&mut is_told, true) {
                    log!(Warning, "{}", failure.note(server));
                }
                go_without(&links, at, server, &failure).await;
            }
        }
    }
}

/// What comes of something, unless the link is over before that.
async fn unless_over<T>(links: &SharedLinks, at: usize, does: impl Future<Output = T>) -> Option<T> {
    let mut does = pin!(does);
    poll_fn(|context| {
        let is_over = links.borrow().links[at].is_over;
        if is_over { Poll::Ready(None) } else { does.as_mut().poll(context).map(Some) }
    })
    .await
}

/// Has those answered who wait for a connection that cannot be had, until it is tried again.
async fn go_without(links: &SharedLinks, at: usize, server: &Node, failure: &Failure) {
    links.borrow().links[at].counts.note_loss(&failure.to_string());
    let error = failure.reply(server);
    match failure {
        Failure::Lost(_) => {
            // Whoever has its slots by now is asked for them.
            links.borrow().proxy.upstream.hurry();
            links.borrow_mut().refuse_all(at, error.as_bytes());
            sleep(AGAIN_AFTER).await;
        }
        Failure::Refused(_) => refuse_for(REFUSED_FOR, links, at, error.as_bytes()).await,
    }
}

/// Answers all that is asked for a while: the server is there, and would say the same.
async fn refuse_for(time: Duration, links: &SharedLinks, at: usize, error: &[u8]) {
    let refusing = async {
        loop {
            links.borrow_mut().refuse_all(at, error);
            let is_asked = poll_fn(|context| links.borrow_mut().links[at].poll_asked(context)).await;
            if !is_asked {
                return;
            }
        }
    };
    // What is asked behind that is tried.
    let _ = timeout(time, refusing).await;
}

/// Why there is no connection.
pub enum Failure {
    /// The server is not reached, or takes nobody like this proxy.
    Lost(String),
    /// It is, but not by clients that are to touch nothing: what it has said to that.
    Refused(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Lost(reason) => out.write_str(reason),
            Failure::Refused(reason) => write!(out, "it does not take CLIENT NO-TOUCH: {reason}"),
        }
    }
}

impl Failure {
    /// What the log is told.
    fn note(&self, server: &Node) -> String {
        match self {
            Failure::Lost(reason) => format!("No connection to {server}: {reason}"),
            Failure::Refused(reason) => {
                format!(
                    "Clients that are to touch nothing get errors of {server}, which does not take CLIENT NO-TOUCH: {reason}"
                )
            }
        }
    }

    /// What clients are.
    fn reply(&self, server: &Node) -> String {
        match self {
            Failure::Lost(reason) => {
                format!("-ERR proxy: no connection to the shard at {server}: {reason}\r\n")
            }
            Failure::Refused(reason) => {
                format!("-ERR proxy: the shard at {server} does not take CLIENT NO-TOUCH: {reason}\r\n")
            }
        }
    }
}

fn sentence(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "it was closed".to_owned(),
        io::ErrorKind::TimedOut => "nothing is answered".to_owned(),
        // What TLS has against the other side has words of its own.
        io::ErrorKind::InvalidData if error.get_ref().is_none() => "what comes is no reply".to_owned(),
        io::ErrorKind::StaleNetworkFileHandle => "another server is there by now".to_owned(),
        _ => config::sentence(error),
    }
}

/// Connects, says who it is and which protocol it speaks, and selects the database; all of that is answered well before anything is sent for a client.
///
/// # Errors
/// Why that is not so.
pub async fn connect(proxy: &Proxy, server: &Node, way: LinkTo) -> Result<Socket, Failure> {
    connect_to(proxy, server, way).await.map(|(socket, _)| socket)
}

/// The same; one that a client has to itself is counted, and one of so many as there is room for.
async fn connect_within<'p>(
    proxy: &'p Proxy,
    server: &Node,
    way: LinkTo,
    is_own: bool,
) -> Result<(Socket, Option<Met>, Option<OwnConnection<'p>>), Failure> {
    let counted = match is_own {
        true => {
            let servers = proxy.upstream.routes().masters.len();
            let most = descriptors::for_waiting(&proxy.host.engine.config, servers as u64);
            let most = most.map_err(|error| Failure::Lost(config::sentence(&error)))?;
            Some(proxy.own_connections.begin(most).map_err(Failure::Lost)?)
        }
        false => None,
    };
    let (socket, met) = connect_to(proxy, server, way).await?;
    Ok((socket, met, counted))
}

/// The same, and which process is met, if it says so.
async fn connect_to(proxy: &Proxy, server: &Node, way: LinkTo) -> Result<(Socket, Option<Met>), Failure> {
    let connected = timeout(CONNECTING_MAX, introduce(proxy, server, way)).await;
    connected.unwrap_or_else(|_| Err(Failure::Lost("it does not answer".to_owned())))
}

async fn introduce(proxy: &Proxy, server: &Node, way: LinkTo) -> Result<(Socket, Option<Met>), Failure> {
    let failed = |error: io::Error| Failure::Lost(sentence(&error));
    let no_reply = || Failure::Lost("what comes is no reply".to_owned());
    let mut socket = Socket::connect(proxy, server).await.map_err(failed)?;
    let (said, owed, no_touch) = first_words(proxy, way);
    socket.write_all(&said).await.map_err(failed)?;
    socket.flush().await.map_err(failed)?;
    let (mut decoder, mut buffer, mut came, mut met) = (Decoder::new(), [0; 4096], 0, None);
    while came < owed {
        let bytes = socket.read(&mut buffer).await.map_err(failed)?;
        if bytes == 0 {
            return Err(Failure::Lost("it was closed".to_owned()));
        }
        decoder.feed(&buffer[..bytes]);
        while let Some(reply) = decoder.decode().map_err(|_| no_reply())? {
            came += 1;
            match reply {
                _ if came > owed => return Err(no_reply()),
                // The last one: who it is need not be known.
                Value::Bulk(info) | Value::Verbatim(_, info) if came == owed => {
                    met = meet(proxy, way.node, &info)?;
                }
                Value::Error(line) if came < owed => {
                    let line = one_line(&line);
                    return Err(match no_touch == Some(came) && is_refusal(&line) {
                        true => Failure::Refused(line),
                        false => Failure::Lost(line),
                    });
                }
                _ => {}
            }
        }
    }
    match decoder.buffered_bytes() {
        0 => Ok((socket, met)),
        _ => Err(no_reply()),
    }
}

/// What a server says, as a part of a line: an error may have line ends in it (RESP3), behind which others could be told anything.
fn one_line(text: &[u8]) -> String {
    String::from_utf8_lossy(text).replace(['\r', '\n'], " ")
}

/// Whether an error in the place of a reply to CLIENT NO-TOUCH is about that, and not about whoever says it: `-ERR max number of clients reached` stands there, too.
fn is_refusal(line: &str) -> bool {
    line.starts_with("NOPERM") || line.to_ascii_uppercase().contains("NO-TOUCH")
}

/// Notes which process is met, by what INFO says.
///
/// # Errors
/// It is this one: requests would go round without end.
fn meet(proxy: &Proxy, node: NodeNo, info: &[u8]) -> Result<Option<Met>, Failure> {
    const NAME: &[u8] = b"run_id:";
    let process = info.split(|byte| matches!(byte, b'\r' | b'\n')).find_map(|line| line.strip_prefix(NAME));
    match process {
        Some(process) if *process == *proxy.host.run_id.as_bytes() => {
            Err(Failure::Lost("that is this proxy itself".to_owned()))
        }
        process => Ok(process.map(|process| proxy.upstream.losses.meet(node, process))),
    }
}

/// What a link says first, and how many replies there are to it: one at least, so that a connection which only seems to be there is found out. And which of them
/// is the one to CLIENT NO-TOUCH.
fn first_words(proxy: &Proxy, way: LinkTo) -> (Vec<u8>, usize, Option<usize>) {
    let mut said = Vec::new();
    let mut owed = usize::from(upstream::introduce(&proxy.host, &mut said));
    let mut say = |words: &[&[u8]]| {
        encode_request(&mut said, words);
        owed += 1;
        owed
    };
    match way.protocol {
        Protocol::Resp3 => say(&[b"HELLO", b"3"]),
        // A server answers while a script runs.
        Protocol::Resp2 if way.db == NO_DB => say(&[b"HELLO", b"2"]),
        Protocol::Resp2 => 0,
    };
    let no_touch = way.is_no_touch.then(|| say(&[b"CLIENT", b"NO-TOUCH", b"ON"]));
    if way.db != NO_DB {
        say(&[b"SELECT", way.db.to_string().as_bytes()]);
        if way.is_replica && proxy.upstream.routes().is_cluster {
            say(&[b"READONLY"]);
        }
    }
    say(&[b"INFO", b"server"]);
    (said, owed, no_touch)
}

/// One connection of a link.
struct Talking {
    socket: Socket,
    /// Which process it leads to, if that is known.
    met: Option<Met>,
    scanner: Scanner,
    /// The beginning of a reply whose end has not come.
    partial: Vec<u8>,
    /// It was let go: nobody wants it.
    is_unwanted: bool,
    /// How long nothing may come while something is owed; zero: for ever.
    silence_max: Duration,
    /// Ends it.
    alarm: Option<Pin<Box<Sleep>>>,
    /// How far a long request had come when the alarm was set.
    course: Option<Course>,
    /// Something has come since the alarm was set.
    has_heard: bool,
    /// Something has come at all.
    has_answered: bool,
}

impl Talking {
    fn new(socket: Socket, met: Option<Met>, silence_max: Duration) -> Talking {
        Talking {
            socket,
            met,
            scanner: Scanner::default(),
            partial: Vec::new(),
            is_unwanted: false,
            silence_max,
            alarm: None,
            course: None,
            has_heard: false,
            has_answered: false,
        }
    }

    /// Does all that can be done now; ready when the connection is lost.
    fn poll(&mut self, links: &mut Links, at: usize, context: &mut Context<'_>) -> Poll<io::Error> {
        match self.talk(links, at, context) {
            Ok(()) if self.is_silent(&links.links[at], context) => {
                Poll::Ready(io::ErrorKind::TimedOut.into())
            }
            Ok(()) => Poll::Pending,
            Err(error) => Poll::Ready(error),
        }
    }

    fn talk(&mut self, links: &mut Links, at: usize, context: &mut Context<'_>) -> io::Result<()> {
        let link = &mut links.links[at];
        if link.is_over {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        if link.waker.is_none() {
            link.waker = Some(context.waker().clone());
        }
        let losses = &links.proxy.upstream.losses;
        if std::mem::take(&mut link.is_woken) || !link.may_wait() {
            self.write(link, losses, context)?;
        }
        loop {
            let mut buffer = ReadBuf::new(&mut links.buffer);
            match Pin::new(&mut self.socket).poll_read(context, &mut buffer) {
                Poll::Pending => break,
                Poll::Ready(read) => read?,
            }
            let bytes = buffer.filled().len();
            if bytes == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            (self.has_heard, self.has_answered) = (true, true);
            self.give_out(links, at, bytes)?;
        }
        let link = &mut links.links[at];
        if link.gathered > 0 && !link.may_wait() {
            self.write(link, &links.proxy.upstream.losses, context)?;
        }
        Ok(())
    }

    /// Whether nothing has come for too long. One alarm serves for many requests, so that a busy link sets none.
    fn is_silent(&mut self, link: &Link, context: &mut Context<'_>) -> bool {
        // What waits is silent when it is asked.
        let waits =
            |ticket: &Ticket| ticket.pushed.waits.filter(|_| ticket.came + 1 >= ticket.pushed.replies);
        let more = match link.tickets.front().map(waits) {
            None | Some(Some(Patience::ForEver)) => None,
            Some(None) => Some(Duration::ZERO),
            Some(Some(Patience::Until(time))) => Some(time),
        };
        let Some(more) = more.filter(|_| !self.silence_max.is_zero()) else {
            (self.alarm, self.course) = (None, None);
            return false;
        };
        loop {
            let alarm = self.alarm.get_or_insert_with(|| {
                self.has_heard = false;
                self.course = self.course.take().or_else(|| Seen::of(link, &self.socket).map(Course::begin));
                Box::pin(sleep(self.silence_max + more))
            });
            if alarm.as_mut().poll(context).is_pending() {
                return false;
            }
            self.alarm = None;
            if self.has_heard {
                self.course = None;
            } else if !self.is_still_taken(link) {
                return true;
            }
        }
    }

    /// Whether the server has taken more of a long request since the alarm was set.
    fn is_still_taken(&mut self, link: &Link) -> bool {
        let seen = Seen::of(link, &self.socket);
        self.course.as_mut().zip(seen).is_some_and(|(course, seen)| course.goes_on(seen))
    }

    fn write(&mut self, link: &mut Link, losses: &Losses, context: &mut Context<'_>) -> io::Result<()> {
        if link.written < link.requests.len() && self.met.as_mut().is_some_and(|met| met.is_past(losses)) {
            // What it has taken whole it may answer first; what comes behind that goes over the next connection.
            return match link.answered < link.written && !link.is_blocked {
                true => Ok(()),
                false => Err(io::ErrorKind::StaleNetworkFileHandle.into()),
            };
        }
        (link.gathered, link.is_held, link.is_blocked) = (0, false, false);
        // Whoever takes a request that does not fit into what the system keeps is there. What comes behind one that was taken whole says nothing of it.
        let is_taken_bit_by_bit =
            link.tickets.front().is_some_and(|front| link.answered + front.bytes > link.written);
        while link.written < link.requests.len() {
            match Pin::new(&mut self.socket).poll_write(context, &link.requests[link.written..]) {
                Poll::Ready(bytes) => {
                    link.written += bytes?;
                    self.has_heard |= is_taken_bit_by_bit;
                }
                Poll::Pending => {
                    link.is_blocked = true;
                    break;
                }
            }
        }
        // With TLS what was taken may not have left.
        match Pin::new(&mut self.socket).poll_flush(context) {
            Poll::Ready(flushed) => flushed?,
            Poll::Pending => link.is_blocked = true,
        }
        Ok(())
    }

    /// Gives the replies in the first bytes of the buffer to those whose they are.
    fn give_out(&mut self, links: &mut Links, at: usize, bytes: usize) -> io::Result<()> {
        links.moment = links.ticks.now();
        let buffer = std::mem::take(&mut links.buffer);
        let given = self.give_out_of(links, at, &buffer[..bytes]);
        links.buffer = buffer;
        links.links[at].settle();
        given
    }

    fn give_out_of(&mut self, links: &mut Links, at: usize, mut rest: &[u8]) -> io::Result<()> {
        while !rest.is_empty() {
            let (used, kind) = self.scanner.advance(rest).map_err(|_| io::ErrorKind::InvalidData)?;
            let (piece, behind) = rest.split_at(used);
            rest = behind;
            if kind.is_none() {
                self.keep(links, at, piece)?;
                break;
            }
            if std::mem::take(&mut self.is_unwanted) {
                links.take_reply(at, UNWANTED)?;
            } else if self.partial.is_empty() {
                links.take_reply(at, piece)?;
            } else {
                self.partial.extend_from_slice(piece);
                let reply = std::mem::take(&mut self.partial);
                links.take_reply(at, &reply)?;
            }
        }
        Ok(())
    }

    /// Keeps what has come of a reply, unless nobody wants it.
    fn keep(&mut self, links: &mut Links, at: usize, piece: &[u8]) -> io::Result<()> {
        if self.is_unwanted {
            return Ok(());
        }
        self.partial.extend_from_slice(piece);
        if self.partial.len() > KEPT_BYTES_MAX && !links.wants(at, &self.partial)? {
            (self.partial, self.is_unwanted) = (Vec::new(), true);
        }
        Ok(())
    }
}

impl Link {
    /// Ready when there is something to send, which is true, or nothing will ever be.
    fn poll_asked(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        self.is_woken = false;
        if self.waker.is_none() {
            self.waker = Some(context.waker().clone());
        }
        match self.tickets.is_empty() {
            _ if self.is_over => Poll::Ready(false),
            true => Poll::Pending,
            false => Poll::Ready(true),
        }
    }

    /// Nothing is under way any more.
    fn empty(&mut self) -> (VecDeque<Ticket>, Vec<u8>) {
        (self.answered, self.written, self.gathered) = (0, 0, 0);
        (self.is_blocked, self.is_held) = (false, false);
        self.tally.forget();
        self.counts.under_way.add(-(self.tickets.len() as i64));
        (std::mem::take(&mut self.tickets), std::mem::take(&mut self.requests))
    }

    /// Forgets requests that were answered, and wakes those who wait for room.
    fn settle(&mut self) {
        if self.answered == self.requests.len() {
            self.requests.clear();
            self.requests.shrink_to(super::BYTES_MAX / 16);
            (self.answered, self.written) = (0, 0);
        } else if self.answered > self.requests.len() / 2 {
            self.requests.drain(..self.answered);
            self.written -= self.answered;
            self.answered = 0;
        }
        self.wake_waiting();
    }
}

impl Links {
    /// Whether somebody wants a reply of which this has come.
    ///
    /// # Errors
    /// As of [`Links::take_reply`].
    fn wants(&mut self, at: usize, partial: &[u8]) -> io::Result<bool> {
        let asked = self.links[at].tickets.front().filter(|_| !partial.starts_with(b">"));
        let Some(Pushed { whose, reply, .. }) = asked.map(|ticket| ticket.pushed) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let is_wanted = self.conversations.wants(whose, reply.0, partial.len());
        self.note_closed();
        Ok(is_wanted)
    }

    /// A connection is lost: what was written on it is answered with an error, what was not goes over the next one.
    fn lose_written(&mut self, at: usize) {
        self.proxy.upstream.hurry();
        self.moment = self.ticks.now();
        self.refuse_parked(at);
        self.disturb_own(at);
        let link = &mut self.links[at];
        let (mut end, written) = (link.answered, link.written);
        let (tickets, requests) = link.empty();
        let mut again = Vec::new();
        for ticket in tickets {
            let begin = end;
            end += ticket.bytes;
            let was_written = begin < written;
            if ticket.pushed.instead.is_some() {
                // It is only a read.
                again.push((ticket, requests[begin..end].to_vec()));
            } else if let Some(instead) = ticket.pushed.unless_executed.filter(|_| !was_written) {
                self.answer(at, &ticket, instead, NOWHERE);
            } else if !was_written {
                let link = &mut self.links[at];
                link.requests.extend_from_slice(&requests[begin..end]);
                link.tally.add(ticket.sequence());
                link.tickets.push_back(ticket);
                link.gathered += 1;
                link.counts.under_way.add(1);
            } else {
                self.answer(at, &ticket, UNANSWERED, NOWHERE);
            }
        }
        self.links[at].wake_waiting();
        again.into_iter().for_each(|(ticket, request)| self.ask_master(at, ticket, &request));
        self.settle_own(at);
        self.ask_further();
    }

    /// Whether what its client has written before it, and waits for by it, may be lost with the server of a link.
    pub(super) fn is_lost(&self, at: usize, ticket: &Ticket) -> bool {
        let (losses, node) = (&self.proxy.upstream.losses, self.links[at].way.node);
        ticket.pushed.unless_lost.is_some_and(|count| losses.is_any_since(count, |one| one == node))
    }

    /// A connection is there. Who waits for what was written before, and that to a server which is lost since, is told so.
    fn refuse_lost(&mut self, at: usize) {
        if !self.links[at].tickets.iter().any(|ticket| self.is_lost(at, ticket)) {
            return;
        }
        // It is an own link, with this request alone.
        let (tickets, _) = self.links[at].empty();
        for ticket in tickets {
            self.answer(at, &ticket, MAY_BE_LOST, NOWHERE);
        }
        self.settle_own(at);
        self.ask_further();
    }

    /// No connection can be made: what waits for one goes to who has its slot by now, or is answered with this error.
    fn refuse_all(&mut self, at: usize, error: &[u8]) {
        self.moment = self.ticks.now();
        self.look_at_routes();
        self.refuse_parked(at);
        self.disturb_own(at);
        let way = self.links[at].way;
        if self.links[at].tickets.iter().any(|ticket| ticket.pushed.unless_lost.is_some()) {
            self.note_no_master(at);
        }
        let mut end = self.links[at].answered;
        let (tickets, requests) = self.links[at].empty();
        for mut ticket in tickets {
            let begin = end;
            end += ticket.bytes;
            if ticket.pushed.instead.is_some() {
                self.ask_master(at, ticket, &requests[begin..end]);
                continue;
            }
            let owner = match ticket.pushed.slot {
                Some(slot) => self.routes.of(slot),
                None => self.conversations.heir(ticket.pushed.whose, ticket.pushed.reply, &self.routes),
            };
            if let Some(instead) = ticket.pushed.unless_executed {
                self.answer(at, &ticket, instead, NOWHERE);
                continue;
            }
            match owner.filter(|owner| *owner != way.node && ticket.redirections < REDIRECTIONS_MAX) {
                // What was asked for elsewhere for once is not this one's.
                Some(node) if ticket.asking_bytes == 0 => {
                    ticket.redirections += 1;
                    self.conversations.note_redirected(ticket.pushed.whose, None);
                    let to = self.elsewhere(at, LinkTo { node, ..way }, ticket.pushed.watching);
                    self.enqueue(to, &requests[begin..end], ticket);
                }
                _ if self.is_lost(at, &ticket) => self.answer(at, &ticket, MAY_BE_LOST, NOWHERE),
                _ => self.answer(at, &ticket, error, NOWHERE),
            }
        }
        self.links[at].wake_waiting();
        self.settle_own(at);
        self.ask_further();
    }

    /// Nobody knows any more what became of requests behind those that are to be sent elsewhere: these are not done. Where there are none, they are sent in their time.
    fn refuse_parked(&mut self, at: usize) {
        let link = &mut self.links[at];
        let parked = std::mem::take(&mut link.parked);
        let (refused, left): (Vec<_>, Vec<_>) =
            parked.into_iter().partition(|(sequence, _)| link.has_of(*sequence));
        link.parked = left.into_iter().collect();
        for parked in refused.into_iter().flat_map(|(_, all)| all) {
            self.answer(at, &parked.ticket, &parked.error, NOWHERE);
        }
    }
}
