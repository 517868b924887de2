//! What is served to clients: the seam between this crate, which moves bytes and places connections, and whoever knows what requests
//! mean.
//!
//! A connection keeps the service's session of its client and hands it requests that came in one read; it is told why the service stopped
//! there, and up to where in the history the replies show what was written. Everything here is monomorphized: the path of a request knows
//! no indirection.
//!
//! Thread rule: a service is shared by all threads; a session and a runner belong to the worker that has the connection.

use crate::client::Client;
use crate::shared::Shared;
use crate::tls;
use config::Config;
use std::future::Future;
use std::sync::Arc;
use sys::{Shown, Stamp, TickClock, UnixMs};
use telemetry::stats::ServerCounts;

/// Replies that are written out before further requests run, so that a pipeline
/// of large replies does not pile them up.
pub const OUTPUT_FLUSH_BYTES: usize = 256 << 10;

/// Why a service stopped running requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// All requests are answered.
    Done,
    /// The replies so far should be written out; request `next` is the next to run.
    Flush {
        /// Its index.
        next: usize,
    },
    /// A pause holds request `next` back until this moment.
    Paused {
        /// Its index.
        next: usize,
        /// When to try again.
        until: UnixMs,
    },
    /// What the requests from `next` on need is being read from disk.
    Fetching {
        /// Its index.
        next: usize,
    },
    /// The session has to wait; request `next` runs when that is over.
    Blocked {
        /// Its index.
        next: usize,
    },
    /// The session is over; requests that follow are not run.
    Closing,
}

/// Whether the connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    /// It does.
    No,
    /// It ends when the replies so far are out.
    AfterReplies,
    /// It ends without waiting for anything.
    Now,
}

/// When a wait ends at the latest. None: it lasts.
pub type Until = Option<UnixMs>;

/// What a service knows of one client: as much of it as the connection has to look at.
pub trait Session: Send + 'static {
    /// The part that others see.
    fn client(&self) -> &Arc<Client>;

    /// Whether the connection goes on.
    fn closing(&self) -> Closing;

    /// Says so.
    fn close(&mut self, closing: Closing);

    /// Some: it waits, and nothing further runs until that is over.
    fn waits(&self) -> Option<Until>;

    /// That is over.
    fn wait_is_over(&mut self);

    /// Whether what the next requests need is still being read from disk.
    fn is_fetching(&self) -> bool;

    /// What is being read for it is not waited for: it asks again where it goes to.
    fn forget_fetch(&mut self);

    /// Whether it is sent more than what [`Service::run`] answers and messages: see [`Service::feed`].
    fn is_fed(&self) -> bool;

    /// Whether replies to requests that were run are still to come, by [`Service::feed`]. Until then its connection does not end but at once.
    fn owes(&self) -> bool;

    /// Whether its connection stays at its worker.
    fn is_tied(&self) -> bool;

    /// Nothing further is run before what it owes is there: it is fetching until then.
    fn wait_for_owed(&mut self);
}

/// What is served.
pub trait Service: Send + Sync + Sized + 'static {
    /// The state of one client.
    type Session: Session;
    /// What a worker runs requests with.
    type Runner: 'static;

    /// What all who serve clients share.
    fn net(&self) -> &Shared;

    /// The directives.
    fn config(&self) -> &Config;

    /// Where it is counted what happens.
    fn counts(&self) -> &ServerCounts;

    /// Short spans of time.
    fn ticks(&self) -> &TickClock;

    /// Whether clients have to give a password.
    fn requires_password(&self) -> bool;

    /// Whether the end has begun.
    fn is_ending(&self) -> bool;

    /// Returns when the end has begun.
    fn ended(&self) -> impl Future<Output = ()>;

    /// A worker's thread begins.
    fn begin_thread(&self);

    /// A worker's thread has done all that there was to do, or lets others take its place.
    fn rest(&self, worker: usize);

    /// What worker number `worker` does besides serving connections, for as long as it lives.
    fn work(self: Arc<Self>, worker: usize) -> impl Future<Output = ()> + 'static;

    /// What worker number `worker` runs requests with.
    fn runner(self: &Arc<Self>, worker: usize) -> Self::Runner;

    /// The session of a client that has just come.
    fn begin(&self, client: &Arc<Client>) -> Self::Session;

    /// Gives back what a session held in the service: its client is gone. What it owed then comes to nobody.
    fn end(&self, session: &mut Self::Session);

    /// A client has agreed on keys, and may have shown who it is.
    fn meet(&self, session: &mut Self::Session, secure: &tls::Session);

    /// Something of what a session listens to may be another server's now ([`crate::client::Signal::MOVED`]).
    fn look_again(&self, session: &mut Self::Session);

    /// Whether the client has yet to say who it is.
    fn is_unauthenticated(&self, session: &Self::Session) -> bool;

    /// Runs the requests of a batch, which lie in `input`, from index `from` on, and appends replies to `out`. Gives also what of the
    /// history the replies show.
    fn run(
        runner: &mut Self::Runner,
        session: &mut Self::Session,
        requests: &wire::Batch,
        input: &[u8],
        from: usize,
        out: &mut Vec<u8>,
    ) -> (Stop, Shown);

    /// Appends to `out` what a session that is fed is to be sent next, in order; nothing, if there is nothing now: whoever has more for it
    /// wakes its client. It is asked for when the socket has taken all that was sent before. It may end the session.
    fn feed(runner: &mut Self::Runner, session: &mut Self::Session, out: &mut Vec<u8>);

    /// Whether more is moved for clients than may be, so that one that sends something may have to wait for its turn, or has waited and it is its turn.
    #[inline]
    fn is_short(&self, _client: &Arc<Client>) -> bool {
        false
    }

    /// Whether a client that has sent something waits for its turn. It is woken when that comes, and then is not held back once.
    fn holds_back(&self, _client: &Arc<Client>) -> bool {
        false
    }

    /// A client has sent nothing but empty lines.
    fn note_blank(&self, session: &Self::Session);

    /// What a client is told of what it wrote when replicas are too few for it: an error, without its first byte and its end.
    fn unreplicated(&self) -> Vec<u8>;

    /// The end of the history: what was posted to a client without a stamp may show anything before it.
    fn latest(&self) -> Stamp;

    /// The time of a session that waits is up. Either this ends the wait or somebody did before; the reply comes by mail.
    fn time_is_up(&self, worker: usize, session: &Self::Session);

    /// The client of a session that waits has gone away: it waits for nothing any more. False: it was served just before that, and has been
    /// signalled.
    fn give_up_wait(&self, session: &mut Self::Session) -> bool;
}
