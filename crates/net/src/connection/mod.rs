//! A connection's life: bytes in, requests run, bytes out, on one worker's thread.
//!
//! One task per connection, written as a poll function so that a quiet connection
//! keeps no buffer: bytes are read into the worker's buffer, run from there, and
//! answered from the worker's output buffer, all without waiting in between. Only
//! what is left over stays with the connection: the beginning of a request that
//! has not arrived in full, and replies that the socket did not take.
//!
//! As in Redis, requests go on being read and run while replies pile up: clients
//! may send a whole pipeline before they read. `client-output-buffer-limit` and
//! `client-query-buffer-limit` bound what that costs. Who has not said who it is while there is a password gets next to
//! nothing: a chunk of replies, a read of requests, and all such clients together a few megabytes.
//!
//! A connection lies in its [`Place`], from where the worker can move it to another one when its own is occupied (see
//! [`crate::placement`]): between two polls everything that it is lies there, and a [`Moved`] is all of it.
//!
//! Invariants:
//! 1. Replies leave in the order of their requests: nothing is written past
//!    `pending`.
//! 2. `input` begins with the first byte that has not been run.

mod counted;
mod fed;
mod held;
mod input;
pub mod pending;
mod waiting;

use crate::client::{Client, Signal, Traits};
use crate::desk::{Buffers, Desk};
use crate::service::{Closing, OUTPUT_FLUSH_BYTES, Service, Session, Stop};
use crate::stream::{Stream, Unwatched};
use config::LogLevel as Level;
use counted::Noted;
use input::Input;
use pending::Pending;
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use sys::Shown;
use telemetry::log;
use telemetry::logger;
use tokio::time::Sleep;
use wire::{Authenticated, Limits, Parser};

/// How many times in a row a connection reads before it lets others go on.
const READS_IN_A_ROW: usize = 4;
/// Requests parsed at once.
const REQUESTS_MAX: usize = 1024;
/// The least room that a growing input buffer offers to a read.
const READ_BYTES_MIN: usize = 16 << 10;
/// The most that an input buffer grows ahead of bytes that have been announced.
const READ_BYTES_AHEAD: usize = 1 << 20;
/// Replies sent in a row before the connection lets others go on.
const SENT_BYTES_IN_A_ROW: usize = 1 << 20;
/// The most that is thrown away of what a client sends after its session has ended.
const UNREAD_BYTES_MAX: usize = 1 << 20;

/// The most that waits of replies to a client that has yet to authenticate: what Redis' fixed buffer holds.
const STRANGER_OUTPUT_BYTES_MAX: u64 = 16 << 10;
/// The most that is kept of what such a client sends: no more than one read brings, so that only a single request of this
/// length meets it.
const STRANGER_INPUT_BYTES_MAX: usize = 64 << 10;
/// Unwraps a ready poll; returns from the function if it is pending.
macro_rules! ready_or_pending {
    ($poll:expr) => {
        match $poll {
            Poll::Ready(value) => value,
            Poll::Pending => return Ok(Poll::Pending),
        }
    };
}

/// Why a connection's task is over.
enum End {
    /// The connection goes on at the worker that it belongs to.
    GoesHome,
    /// The client went away, or was told to.
    Closed,
    /// The client was put out, for this reason.
    Dropped(&'static str),
    /// The same before it had authenticated: anybody can bring that about, and must not fill the server's log by it.
    StrangerDropped(&'static str),
    /// The socket failed.
    Failed(io::Error),
    /// No keys were agreed on.
    HandshakeFailed(io::Error),
}

/// One connection.
pub struct Connection<S: Service> {
    stream: Stream,
    session: S::Session,
    parser: Parser,
    /// Bytes that have not been run yet.
    input: Input,
    /// What `input` had allocated that is being run.
    running_bytes: usize,
    /// Replies that the socket has not taken.
    pending: Pending,
    /// In which generation of the gate they were made.
    generation: u64,
    /// A pause that the next request waits for.
    pause: Option<Pin<Box<Sleep>>>,
    /// The end of the time that a request waits at the most, if it has one.
    wait: Option<Pin<Box<Sleep>>>,
    /// The client sends nothing more.
    is_half_closed: bool,
    /// It was told to go on at the worker that it belongs to.
    is_called_home: bool,
    /// Bytes may have come to `input` that were not parsed.
    has_unseen: bool,
    /// What the server counts as this connection's buffers.
    noted: Noted,
}

/// Where a connection lies at its worker. Empty: it has moved.
pub struct Place<S: Service>(RefCell<Option<Connection<S>>>);

/// What became of a connection that was to leave its worker.
pub enum Leaving<S: Service> {
    /// It is being served, or is not there any more.
    Stays,
    /// It could not be taken away, and has ended.
    Lost,
    /// It is on its way.
    Moves(Box<Moved<S>>),
}

/// How a connection's task has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// The connection has ended.
    ToItsEnd,
    /// It goes on at the worker that it belongs to, and waits to be sent there.
    UntilItGoesHome,
    /// It has moved already.
    UntilItMoved,
}

/// A connection on its way from one worker to another.
pub struct Moved<S: Service> {
    socket: Unwatched,
    session: S::Session,
    parser: Parser,
    input: Input,
    pending: Pending,
    generation: u64,
    is_half_closed: bool,
    noted: Noted,
}

impl<S: Service> Place<S> {
    /// For a connection that has just come.
    ///
    /// # Errors
    /// Its socket cannot be watched; the session has ended.
    pub fn new(service: &S, socket: Unwatched, client: &Arc<Client>) -> io::Result<Place<S>> {
        let session = service.begin(client);
        let (parser, input, pending) = (Parser::new(), Input::default(), Pending::default());
        let (generation, noted) = (service.net().gate.generation(), Noted::default());
        let moved =
            Moved { socket, session, parser, input, pending, generation, is_half_closed: false, noted };
        Place::of(service, moved)
    }

    /// For one that another worker had.
    ///
    /// # Errors
    /// Its socket cannot be watched; the session has ended.
    pub fn of(service: &S, moved: Moved<S>) -> io::Result<Place<S>> {
        let Moved { socket, mut session, parser, input, pending, generation, is_half_closed, noted } = moved;
        let stream = Stream::watch(socket).inspect_err(|_| end_session(service, &mut session, noted))?;
        let (pause, wait) = (None, None);
        // It has queued up at another worker's gate, if at any.
        session.client().set_at_gate(false);
        Ok(Place(RefCell::new(Some(Connection {
            stream,
            session,
            parser,
            input,
            running_bytes: 0,
            pending,
            generation,
            pause,
            wait,
            is_half_closed,
            is_called_home: false,
            has_unseen: true,
            noted,
        }))))
    }

    /// Takes the connection away from its worker, unless it is being served at this moment. Its task ends.
    pub fn leave(&self, service: &S) -> Leaving<S> {
        let Ok(mut place) = self.0.try_borrow_mut() else { return Leaving::Stays };
        let Some(mut connection) = place.take_if(|connection| !connection.session.is_tied()) else {
            return Leaving::Stays;
        };
        connection.leave_pause();
        // What this worker reads for it comes when its thread is free: where it goes it asks again.
        connection.session.forget_fetch();
        connection.session.client().wake();
        let Connection {
            stream, mut session, parser, input, pending, generation, is_half_closed, noted, ..
        } = connection;
        match stream.into_unwatched() {
            Ok(socket) => {
                let moved =
                    Moved { socket, session, parser, input, pending, generation, is_half_closed, noted };
                Leaving::Moves(Box::new(moved))
            }
            Err(error) => {
                log!(Warning, "Client {} closed because it cannot move: {error}", session.client().id);
                end_session(service, &mut session, noted);
                Leaving::Lost
            }
        }
    }
}

impl<S: Service> Moved<S> {
    /// Whose connection it is.
    pub fn client(&self) -> &Arc<Client> {
        self.session.client()
    }

    /// Ends a connection that nobody can take.
    pub fn lose(mut self, service: &S) {
        end_session(service, &mut self.session, self.noted);
    }
}

/// Serves a connection until it ends or moves.
pub async fn serve<S: Service>(desk: &Desk<S>, place: &Place<S>) -> Served {
    let mut is_new_here = true;
    let end = poll_fn(|context| {
        let mut connection = place.0.borrow_mut();
        let Some(connection) = connection.as_mut() else { return Poll::Ready(None) };
        if is_new_here {
            connection.session.client().set_waker(context.waker());
            connection.begin_wait(desk, context);
            is_new_here = false;
        }
        connection.poll(desk, context).map(Some)
    })
    .await;
    let service = &*desk.service;
    let reason = match end {
        None => return Served::UntilItMoved,
        Some(End::GoesHome) => return Served::UntilItGoesHome,
        Some(End::Closed) => None,
        Some(End::Dropped(reason)) => Some((Level::Warning, format!("Client closed because {reason}"))),
        Some(End::StrangerDropped(reason)) => {
            Some((Level::Verbose, format!("Client closed because {reason}")))
        }
        Some(End::Failed(error)) => Some((Level::Verbose, format!("Error on connection: {error}"))),
        Some(End::HandshakeFailed(error)) => {
            Some((Level::Verbose, format!("Error accepting a client connection: {error}")))
        }
    };
    let Some(mut connection) = place.0.borrow_mut().take() else {
        return Served::UntilItMoved;
    };
    if let Some((level, reason)) = reason.filter(|(level, _)| logger::is_on(*level)) {
        let client = connection.session.client();
        logger::write(level, format_args!("{reason}: {}", client.line(service.net().clients.clock().now())));
    }
    connection.stream.say_end();
    end_session(service, &mut connection.session, connection.noted);
    Served::ToItsEnd
}

fn end_session<S: Service>(service: &S, session: &mut S::Session, noted: Noted) {
    let net = service.net();
    net.clients.buffer_bytes.add(-(noted.bytes as i64));
    net.clients.stranger_bytes.add(-(noted.stranger_bytes as i64));
    service.end(session);
    net.placement.leave(session.client().worker());
    net.clients.remove(session.client().id);
}

/// Asks for another turn, after all others that are ready and after the worker has
/// looked who else is. Waking up at once would let a few busy connections keep a worker
/// from its sockets and timers for dozens of turns.
fn wake_after_others(context: &mut Context<'_>) {
    let is_ready = pin!(tokio::task::yield_now()).poll(context).is_ready();
    debug_assert!(!is_ready, "the first poll only registers the task");
}

impl<S: Service> Connection<S> {
    fn poll(&mut self, desk: &Desk<S>, context: &mut Context<'_>) -> Poll<End> {
        if let Some(end) = self.follow_signals(desk) {
            return Poll::Ready(end);
        }
        let buffers = &mut *desk.buffers.borrow_mut();
        let turned = self.turn(desk, buffers, context);
        let noted = self.note_buffers(&desk.service);
        match noted.and(turned) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(end)) | Err(end) => Poll::Ready(end),
        }
    }

    /// Does all that can be done now.
    fn turn(
        &mut self,
        desk: &Desk<S>,
        buffers: &mut Buffers,
        context: &mut Context<'_>,
    ) -> Result<Poll<End>, End> {
        self.follow_generation(desk)?;
        self.flush(desk, buffers, context)?;
        if self.session.closing() != Closing::No {
            if self.session.owes() {
                self.feed(desk, buffers, context)?;
            }
            return Ok(self.end_when_sent(buffers));
        }
        if self.stream.is_handshaking() {
            ready_or_pending!(self.shake_hands(desk, buffers, context)?);
        }
        if self.session.client().has_mail() {
            let letters = self.session.client().take_mail();
            for (bytes, shows) in letters.stretches(desk.service.latest()) {
                buffers.output.extend_from_slice(bytes);
                self.write_out(desk, buffers, context, shows)?;
            }
        }
        self.feed(desk, buffers, context)?;
        if self.is_fetching() {
            return self.watch_while_held(desk, buffers, context);
        }
        self.leave_pause();
        if !self.leave_wait(desk, context) {
            return self.watch_while_held(desk, buffers, context);
        }
        if self.is_held_back(desk, buffers, context)? {
            // What a client has sent before it went has its turn.
            let is_over = self.is_finished() && self.input.is_empty();
            return Ok(if is_over { self.end_when_sent(buffers) } else { Poll::Pending });
        }
        if !self.input.is_empty() && (!self.parser.is_partial() || self.has_unseen) {
            // Requests that a pause held back come before new ones.
            self.has_unseen = false;
            self.run_input(desk, buffers, context)?;
        }
        for _ in 0..READS_IN_A_ROW {
            if self.is_finished() {
                return Ok(self.end_when_sent(buffers));
            }
            if self.is_half_closed {
                return Ok(Poll::Pending);
            }
            if self.pause.is_some() || self.session.waits().is_some() || self.is_fetching() {
                return self.watch_while_held(desk, buffers, context);
            }
            ready_or_pending!(self.read_and_run(desk, buffers, context)?);
        }
        wake_after_others(context);
        Ok(Poll::Pending)
    }

    /// Agrees on keys with a client that has just come. What it has said at the same time waits in `input`.
    fn shake_hands(
        &mut self,
        desk: &Desk<S>,
        buffers: &mut Buffers,
        context: &mut Context<'_>,
    ) -> Result<Poll<()>, End> {
        let Stream::Secure(stream) = &mut self.stream else { return Ok(Poll::Ready(())) };
        let (client, input) = (self.session.client(), &mut self.input);
        let shaken = stream.poll_handshake(
            context,
            &mut buffers.sealed,
            |context, waits| desk.handshakes.may_go_on(client.id, context, waits),
            |piece| input.end().extend_from_slice(piece),
        );
        ready_or_pending!(shaken).map_err(End::HandshakeFailed)?;
        client.set_trait(Traits::HANDSHAKE, false);
        desk.service.meet(&mut self.session, stream.session());
        Ok(Poll::Ready(()))
    }

    /// Whether nothing more will be read or run.
    fn is_finished(&self) -> bool {
        self.session.closing() != Closing::No
            || self.is_half_closed && self.pause.is_none() && !self.is_fetching() && !self.session.owes()
    }

    /// Whether what the next requests need is still being read from disk.
    fn is_fetching(&self) -> bool {
        self.session.is_fetching()
    }

    /// Ends the connection of a session that is over as soon as its replies are out.
    fn end_when_sent(&mut self, buffers: &mut Buffers) -> Poll<End> {
        if self.session.closing() == Closing::Now {
            return Poll::Ready(End::Closed);
        }
        if !self.pending.is_empty() || self.stream.unsent_bytes() > 0 || self.session.owes() {
            return Poll::Pending;
        }
        self.stream.finish(&mut buffers.input, UNREAD_BYTES_MAX);
        Poll::Ready(End::Closed)
    }

    /// Counts a read. One of nothing is the end of what the client sends.
    fn note_read(&mut self, desk: &Desk<S>, bytes: usize) {
        self.is_half_closed = bytes == 0;
        desk.service.counts().reads.add(i64::from(bytes > 0));
        desk.service.counts().input_bytes.add(bytes as i64);
    }

    fn follow_signals(&mut self, desk: &Desk<S>) -> Option<End> {
        let service = &*desk.service;
        let signals = self.session.client().take_signals();
        if signals.is_empty() && !self.is_called_home {
            return None;
        }
        if signals.contains(Signal::KILL) {
            return Some(End::Closed);
        }
        if signals.contains(Signal::MOVED) {
            service.look_again(&mut self.session);
        }
        if signals.contains(Signal::DRAIN) && self.session.closing() == Closing::No {
            let letters = self.session.client().take_mail();
            for (bytes, shows) in letters.stretches(service.latest()) {
                let from = self.pending.len();
                self.pending.extend(bytes);
                self.pending.hold(from, shows);
            }
            self.session.close(Closing::AfterReplies);
        }
        if signals.contains(Signal::UNBLOCKED) {
            self.session.wait_is_over();
            self.wait = None;
        }
        self.is_called_home |= signals.contains(Signal::GO_HOME);
        let goes_home = !self.session.is_tied()
            && std::mem::take(&mut self.is_called_home)
            && service.net().placement.may_leave(desk.index, self.session.client().home())
            && self.session.closing() == Closing::No;
        goes_home.then_some(End::GoesHome)
    }

    fn read_and_run(
        &mut self,
        desk: &Desk<S>,
        buffers: &mut Buffers,
        context: &mut Context<'_>,
    ) -> Result<Poll<()>, End> {
        let is_fresh = self.input.is_empty();
        let read = if is_fresh {
            ready_or_pending!(self.stream.poll_read(context, &mut buffers.input, &mut buffers.sealed))
        } else {
            let room = self.room_wanted();
            let sealed = &mut buffers.sealed;
            ready_or_pending!(self.stream.poll_read_to_end_of(context, self.input.end(), room, sealed))
        };
        let bytes = read.map_err(End::Failed)?;
        self.note_read(desk, bytes);
        if self.is_half_closed {
            return Ok(Poll::Ready(()));
        }
        if is_fresh {
            let input = std::mem::take(&mut buffers.input);
            let result = self.run_bytes(desk, buffers, &input[..bytes], context);
            buffers.input = input;
            let taken = result?;
            self.input.end().extend_from_slice(&buffers.input[taken..bytes]);
        } else {
            self.run_input(desk, buffers, context)?;
        }
        self.check_input_limit(&desk.service)?;
        Ok(Poll::Ready(()))
    }

    /// What a session keeps of its requests counts as if it had not been run yet.
    fn check_input_limit(&self, service: &S) -> Result<(), End> {
        let bytes = self.input.len() + self.session.client().kept_bytes();
        if bytes == 0 {
            return Ok(());
        }
        let is_stranger = self.trust(service) == Authenticated::No;
        let end = if is_stranger && bytes > STRANGER_INPUT_BYTES_MAX {
            End::StrangerDropped("it sent too long a request before it authenticated")
        } else if bytes > service.config().client_query_buffer_limit() {
            End::Dropped("it reached the limit of client-query-buffer-limit")
        } else {
            return Ok(());
        };
        service.counts().query_limit_disconnections.add(1);
        Err(end)
    }

    /// How much to make room for: what the request that is arriving still needs,
    /// but never much ahead of what has arrived.
    fn room_wanted(&self) -> usize {
        let missing = self.parser.bytes_wanted().map_or(0, |bytes| bytes.saturating_sub(self.input.len()));
        missing.clamp(READ_BYTES_MIN, READ_BYTES_AHEAD.max(self.input.len()))
    }

    /// Runs what is in the connection's own buffer.
    fn run_input(
        &mut self,
        desk: &Desk<S>,
        buffers: &mut Buffers,
        context: &mut Context<'_>,
    ) -> Result<(), End> {
        // What has arrived counts before it is run: whose request alone is too much goes with it.
        self.note_buffers(&desk.service)?;
        if self.session.client().is_killed() {
            return Err(End::Closed);
        }
        let mut input = std::mem::take(&mut self.input);
        self.running_bytes = input.capacity();
        let taken = self.run_bytes(desk, buffers, &input, context)?;
        self.running_bytes = 0;
        input.note_run(taken);
        self.input = input;
        Ok(())
    }

    /// Parses and runs requests from the front of `bytes` and writes the replies;
    /// returns how many bytes are done with.
    fn run_bytes(
        &mut self,
        desk: &Desk<S>,
        buffers: &mut Buffers,
        bytes: &[u8],
        context: &mut Context<'_>,
    ) -> Result<usize, End> {
        let mut at = 0;
        loop {
            let limits =
                Limits { bulk_bytes_max: desk.bulk_bytes_max(), authenticated: self.trust(&desk.service) };
            // What follows AUTH is parsed under other limits.
            let requests_max = if limits.authenticated == Authenticated::Yes { REQUESTS_MAX } else { 1 };
            buffers.requests.clear();
            let parsed = self.parser.parse(&bytes[at..], &limits, &mut buffers.requests, requests_max);
            let held_at = self.run_requests(desk, buffers, &bytes[at..], context)?;
            if let Some(held_at) = held_at {
                // What the parser has seen behind this is looked at again later.
                self.parser.restart();
                return Ok(at + held_at);
            }
            match parsed {
                // Nothing that follows a QUIT is answered.
                _ if self.session.closing() != Closing::No => return Ok(bytes.len()),
                Err(_) if self.session.owes() => {
                    // It is answered behind them.
                    self.session.wait_for_owed();
                    self.parser.restart();
                    let requests = &buffers.requests;
                    return Ok(at + requests.len().checked_sub(1).map_or(0, |last| requests.bytes_end(last)));
                }
                Err(error) => {
                    log!(
                        Verbose,
                        "Protocol error ({}) of client {}",
                        error.line().escape_ascii(),
                        self.session.client().line(desk.service.net().clients.clock().now())
                    );
                    let line = error.line();
                    desk.service.counts().note_error(&line);
                    buffers.output.extend(b"-");
                    buffers.output.extend(line);
                    buffers.output.extend(b"\r\n");
                    self.session.close(Closing::AfterReplies);
                    self.write_out(desk, buffers, context, Shown::NOTHING)?;
                    return Ok(bytes.len());
                }
                Ok(taken) => {
                    if taken > 0 && buffers.requests.is_empty() {
                        desk.service.note_blank(&self.session);
                    }
                    at += taken;
                }
            }
            if buffers.requests.len() < requests_max {
                return Ok(at);
            }
        }
    }

    /// Which limits apply to what the client sends: those for strangers only where there
    /// is a password.
    #[inline]
    fn trust(&self, service: &S) -> Authenticated {
        match service.is_unauthenticated(&self.session) {
            true => Authenticated::No,
            false => Authenticated::Yes,
        }
    }

    /// Runs the parsed requests. Some: a pause holds back those from this byte on.
    fn run_requests(
        &mut self,
        desk: &Desk<S>,
        buffers: &mut Buffers,
        bytes: &[u8],
        context: &mut Context<'_>,
    ) -> Result<Option<usize>, End> {
        let mut next = 0;
        while next < buffers.requests.len() {
            let (stop, shown) = S::run(
                &mut desk.runner.borrow_mut(),
                &mut self.session,
                &buffers.requests,
                bytes,
                next,
                &mut buffers.output,
            );
            self.write_out(desk, buffers, context, shown)?;
            match stop {
                Stop::Done | Stop::Closing => return Ok(None),
                Stop::Flush { next: from } => {
                    self.note_unsent(&desk.service)?;
                    next = from;
                }
                Stop::Paused { next, until } => {
                    self.begin_pause(desk, until, context);
                    return Ok(Some(if next == 0 { 0 } else { buffers.requests.bytes_end(next - 1) }));
                }
                Stop::Fetching { next } => {
                    return Ok(Some(if next == 0 { 0 } else { buffers.requests.bytes_end(next - 1) }));
                }
                Stop::Blocked { next } => {
                    self.begin_wait(desk, context);
                    return Ok(Some(buffers.requests.bytes_end(next - 1)));
                }
            }
        }
        Ok(None)
    }

    /// Replies that have not been sent count before more of them are made: one read may ask for any number, of any length.
    fn note_unsent(&mut self, service: &S) -> Result<(), End> {
        if self.pending.is_empty() {
            return Ok(());
        }
        self.note_buffers(service)?;
        if self.session.client().is_killed() { Err(End::Closed) } else { Ok(()) }
    }

    /// Writes the worker's output buffer, or keeps what the socket does not take, and what shows something that the gate
    /// is not open for.
    fn write_out(
        &mut self,
        desk: &Desk<S>,
        buffers: &mut Buffers,
        context: &mut Context<'_>,
        shown: Shown,
    ) -> Result<(), End> {
        if buffers.output.is_empty() {
            return Ok(());
        }
        let mut sent = 0;
        let gate = &desk.service.net().gate;
        let is_of_before = gate.generation() != self.generation && shown != Shown::NOTHING;
        if is_of_before && !gate.was_open_for(self.generation, shown) {
            buffers.output.clear();
            return Err(End::Closed);
        }
        let is_open = is_of_before || gate.is_open_for(shown);
        if self.pending.is_empty() && is_open {
            while sent < buffers.output.len() {
                if sent >= SENT_BYTES_IN_A_ROW {
                    context.waker().wake_by_ref();
                    break;
                }
                match self.stream.poll_write(context, &buffers.output[sent..], &mut buffers.sealed) {
                    Poll::Ready(Ok(bytes)) => sent += bytes,
                    Poll::Ready(Err(error)) => {
                        buffers.output.clear();
                        return Err(End::Failed(error));
                    }
                    Poll::Pending => break,
                }
            }
            desk.service.counts().writes.add(1);
            desk.service.counts().output_bytes.add(sent as i64);
        }
        if sent == buffers.output.len() {
            buffers.output.clear();
            buffers.output.shrink_to(2 * OUTPUT_FLUSH_BYTES);
            return Ok(());
        }
        let from = self.pending.len();
        self.pending.absorb(&mut buffers.output, sent);
        buffers.output.shrink_to(2 * OUTPUT_FLUSH_BYTES);
        // What is behind something that is held is told apart from it, should that fail.
        if !is_open || self.pending.held_for().is_some() {
            self.pending.hold(from, shown);
            self.wait_at_gate(desk);
        }
        self.check_output_limit(&desk.service)
    }

    /// Sends replies that are waiting.
    fn flush(&mut self, desk: &Desk<S>, buffers: &mut Buffers, context: &mut Context<'_>) -> Result<(), End> {
        if let Poll::Ready(Err(error)) = self.stream.poll_flush(context) {
            return Err(End::Failed(error));
        }
        if self.pending.is_empty() {
            // What TLS answers by itself counts as well.
            return if self.stream.unsent_bytes() > 0 {
                self.check_output_limit(&desk.service)
            } else {
                Ok(())
            };
        }
        self.leave_gate(desk);
        let mut sent = 0;
        while !self.pending.front().is_empty() {
            if sent >= SENT_BYTES_IN_A_ROW {
                wake_after_others(context);
                break;
            }
            match self.stream.poll_write(context, self.pending.front(), &mut buffers.sealed) {
                Poll::Ready(Ok(bytes)) => {
                    self.pending.sent(bytes);
                    sent += bytes;
                }
                Poll::Ready(Err(error)) => return Err(End::Failed(error)),
                Poll::Pending => break,
            }
        }
        if sent > 0 {
            // Who reads slowly is not silent.
            let now = desk.service.net().clients.clock().now();
            self.session.client().active_at_ms.store(now.0, Ordering::Relaxed);
            desk.service.counts().writes.add(1);
            desk.service.counts().output_bytes.add(sent as i64);
        }
        self.check_output_limit(&desk.service)
    }

    fn check_output_limit(&mut self, service: &S) -> Result<(), End> {
        let client = self.session.client();
        let limit = service.config().output_limit(client.class());
        let bytes = (self.pending.len() + self.stream.unsent_bytes()) as u64;
        if bytes > STRANGER_OUTPUT_BYTES_MAX && self.trust(service) == Authenticated::No {
            service.net().clients.output_limit_disconnections.add(1);
            return Err(End::StrangerDropped("it did not read what it was told before it authenticated"));
        }
        if limit.hard_bytes > 0 && bytes >= limit.hard_bytes {
            service.net().clients.output_limit_disconnections.add(1);
            return Err(End::Dropped("it reached the hard limit of client-output-buffer-limit"));
        }
        // How long it has been above the soft limit is checked by the server's tick.
        let is_over = limit.soft_bytes > 0 && bytes >= limit.soft_bytes;
        let since = &client.over_soft_limit_since_ms;
        if !is_over {
            since.store(0, Ordering::Relaxed);
        } else if since.load(Ordering::Relaxed) == 0 {
            since.store(service.net().clients.clock().now().0, Ordering::Relaxed);
        }
        Ok(())
    }
}
