//! A failover by hand (FAILOVER): writes are paused until a replica has all there is, then this server follows it, and says with its PSYNC
//! that the other is to be master.
//!
//! 1. The pause is on from before the first look at what the target has until the target has answered, or this server is master again:
//!    what is acknowledged was written before, and is at the target.
//! 2. A link that breaks is tried again until the failover is given up. A target that may have heard that it is to be master, and says then
//!    that it is one, is followed as one: else there would be two.
//!
//! Thread rule: the state of the failover is locked before that of what is followed.

use super::{Order, follow};
use crate::failover::{Stage, State};
use crate::followed::Master;
use crate::pause::{Paused, Purpose};
use crate::replicas::replica::{Replica, Stage as ReplicaStage};
use crate::server::Server;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use sys::UnixMs;
use telemetry::log;

/// How often it looks whether the target has all there is.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// What a replica answers that is master already.
const IS_MASTER: &str = "PSYNC FAILOVER can't be sent to a master";

/// What FAILOVER asks for.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Who is to be master; None: whoever is first to have all.
    pub target: Option<Master>,
    /// For how long it may wait for that.
    pub timeout_ms: Option<u64>,
    /// The target is to be master then, whatever it has.
    pub is_forced: bool,
}

/// Begins a failover; there is none, and nobody else is in the keyspace.
pub fn begin(server: &Arc<Server>, request: Request, now: UnixMs) {
    match &request.target {
        Some(target) => log!(Notice, "FAILOVER requested to {}.", Name(target)),
        None => log!(Notice, "FAILOVER requested to any replica."),
    }
    let mut state = server.failover.state.lock();
    *state = State {
        stage: Stage::Waiting,
        number: state.number + 1,
        target: request.target,
        until: request.timeout_ms.map(|timeout| UnixMs(now.0.saturating_add(timeout))),
        is_forced: request.is_forced,
        is_in_doubt: false,
        given_up_by: None,
    };
    let for_ever = UnixMs(i64::MAX as u64);
    server.pause.begin(&server.engine, Purpose::Failover, Paused::Writes, now, for_ever);
    let (waiting, number) = (server.clone(), state.number);
    let work = move || wait(&waiting, number);
    if let Err(error) = std::thread::Builder::new().name("failover".to_owned()).spawn(work) {
        give_up(server, &mut state, &format_args!("Can't start the thread that waits for replicas: {error}"));
    }
}

/// Waits until the target has all there is, or the time is up.
fn wait(server: &Arc<Server>, number: u64) {
    let mut state = server.failover.state.lock();
    while state.number == number && state.stage == Stage::Waiting && !server.engine.is_ending() {
        let is_late = state.until.is_some_and(|until| until <= server.engine.clock.now());
        match (is_late, state.target.clone().filter(|_| state.is_forced)) {
            (true, Some(target)) => {
                log!(Notice, "FAILOVER to {} time out exceeded, failing over.", Name(&target));
                return hand_over(server, &mut state, target);
            }
            (true, None) => return give_up(server, &mut state, &"Replica never caught up before timeout"),
            (false, _) => {}
        }
        if let Some(target) = find_synced(server, &state) {
            log!(Notice, "Failover target {} is synced, failing over.", Name(&target));
            return hand_over(server, &mut state, target);
        }
        server.failover.changed.wait_for(&mut state, LOOK_AGAIN);
    }
}

/// The replica at an address.
pub fn find(server: &Server, target: &Master) -> Option<Arc<Replica>> {
    let is = |replica: &Arc<Replica>| is_at(replica, target);
    server.feeding.replicas().into_iter().find(is)
}

fn is_at(replica: &Replica, target: &Master) -> bool {
    replica.said.port == target.port && replica.host().eq_ignore_ascii_case(&target.host)
}

/// The target, if it has all that was written; without one, whoever has.
fn find_synced(server: &Server, state: &State) -> Option<Master> {
    let end = crate::feeding::end(server);
    let is_synced = |replica: &Arc<Replica>| {
        replica.stage() == ReplicaStage::Online
            && replica.acknowledged() == end
            && match &state.target {
                Some(target) => is_at(replica, target),
                // Whoever says no port cannot be found again.
                None => replica.said.port != 0,
            }
    };
    let replica = server.feeding.replicas().into_iter().find(is_synced)?;
    Some(Master { host: replica.host(), port: replica.said.port })
}

/// This server is master no more; the link tells the target that it is.
fn hand_over(server: &Arc<Server>, state: &mut State, target: Master) {
    state.stage = Stage::HandingOver;
    state.target = Some(target.clone());
    follow(server, Some(target));
}

/// Ends a failover without another master. When this returns it may be under way still.
fn give_up(server: &Arc<Server>, state: &mut State, why: &dyn fmt::Display) {
    match &state.target {
        Some(target) => log!(Notice, "FAILOVER to {} aborted: {why}", Name(target)),
        None => log!(Notice, "FAILOVER to any replica aborted: {why}"),
    }
    match state.stage {
        // The pause lasts until it is master again.
        Stage::HandingOver => {
            state.stage = Stage::GivenUp;
            follow(server, None);
        }
        Stage::Waiting => end(server, state),
        Stage::None | Stage::GivenUp => {}
    }
}

fn end(server: &Server, state: &mut State) {
    state.stage = Stage::None;
    server.pause.end(&server.engine, &server.net.clients, Purpose::Failover);
    server.failover.changed.notify_all();
}

/// FAILOVER ABORT of a client. None: there is nothing to give up. May be called again and again until it is done.
pub fn abort(server: &Arc<Server>, client: u64) -> Option<Order> {
    let mut state = server.failover.state.lock();
    match (state.stage, state.given_up_by) {
        (Stage::None, Some(by)) if by == client => {
            state.given_up_by = None;
            Some(Order::Done)
        }
        (Stage::None, _) => None,
        (Stage::GivenUp, _) => {
            state.given_up_by = Some(client);
            Some(Order::Underway)
        }
        (Stage::Waiting | Stage::HandingOver, _) => {
            give_up(server, &mut state, &"Failover manually aborted");
            if state.stage == Stage::None {
                return Some(Order::Done);
            }
            state.given_up_by = Some(client);
            Some(Order::Underway)
        }
    }
}

/// Whether who is asked for the stream is to be master.
pub(super) fn is_handing_over(server: &Server) -> bool {
    server.failover.stage() == Stage::HandingOver
}

/// The link broke after the target was asked, and before it answered.
pub(super) fn note_doubt(server: &Server) {
    let mut state = server.failover.state.lock();
    state.is_in_doubt |= state.stage == Stage::HandingOver;
}

/// The target is master, and sends what comes behind all there is here, or all it has.
pub(super) fn note_accepted(server: &Server) {
    let mut state = server.failover.state.lock();
    if state.stage == Stage::HandingOver {
        end(server, &mut state);
    }
}

/// The target has answered otherwise.
pub(super) fn note_refused(server: &Arc<Server>, answer: &str) {
    let mut state = server.failover.state.lock();
    if state.stage != Stage::HandingOver {
        return;
    }
    if state.is_in_doubt && answer.contains(IS_MASTER) {
        log!(Notice, "Failover target is master already, and is followed");
        return end(server, &mut state);
    }
    give_up(server, &mut state, &"Failover target rejected psync request");
}

/// This server is master.
pub(super) fn note_master(server: &Server) {
    let mut state = server.failover.state.lock();
    if state.stage == Stage::GivenUp {
        end(server, &mut state);
    }
}

/// Host and port.
struct Name<'a>(&'a Master);

impl fmt::Display for Name<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.0.host, self.0.port)
    }
}
