//! Slots that go to another shard, as the master of the one that has them sees it: what they hold is copied, then requests to them are held back, then somebody else
//! has them. `docs/cluster.md` tells the whole of it, and why nothing is lost.
//!
//! What is to be done stands in the topology, and nowhere else: a server that restarts, or becomes master, goes on from there.
//! - a move away that is *copying* is an attempt to be made ([`giving`]); it says how it ended to the config servers ([`telling`]);
//! - while one is *switching*, requests to its slots wait ([`topology::Routes`]); an attempt that nobody here has made has come to nothing;
//! - what is left of slots that are another shard's is cleared away ([`clearing`]);
//! - libraries of functions that were restored before this server had begun its shard are loaded.
//!
//! Thread rule: one thread. A shard takes part in one move at a time.

mod clearing;
mod giving;
mod pacing;
mod telling;

use crate::clustered::{Part, View};
use crate::replay::Replay;
use crate::server::Server;
use crate::shard::Address;
use command::Error;
use engine::apply::Rejection;
use giving::Giving;
use keyspace::DbIndex;
use replication::insync::Role;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use telemetry::log;
use telling::{Config, Retry};
use topology::{Move, Stage};
use wire::RequestBuf;

/// How long nothing may happen before it looks whether there is something to do.
const IDLE: Duration = Duration::from_millis(100);

/// How long it leaves a move alone whose outcome could not be told.
const RETRY: Duration = Duration::from_millis(200);

/// Does what is to be done with slots that move, in a thread of its own, as long as the server runs.
///
/// # Errors
/// Those of the system.
pub fn begin(server: &Arc<Server>, config_servers: Vec<Address>) -> io::Result<()> {
    let server = server.clone();
    let run = move || Moving { server: &server, config: Config::new(&server, config_servers) }.run();
    std::thread::Builder::new().name("slots".to_owned()).spawn(run).map(drop)
}

struct Moving<'m> {
    server: &'m Arc<Server>,
    config: Config<'m>,
}

impl Moving<'_> {
    fn run(&mut self) {
        while !self.server.engine.is_ending() {
            let Some(part) = self.server.clustered.get() else { return };
            let view = part.view();
            let leads = leads(self.server, &view);
            if leads {
                self.load_libraries(part);
            }
            let is_busy = leads && self.step(&view);
            if !is_busy {
                part.wait_for_change(&view, IDLE);
            }
        }
    }

    /// Loads libraries that were kept until this server has begun its shard. One of the same name that somebody has loaded since stays.
    fn load_libraries(&self, part: &Part) {
        let (server, guest) = (self.server, self.server.engine.moving_guest());
        let mut later = Vec::new();
        for code in part.take_libraries() {
            let request = RequestBuf::from_args([&b"FUNCTION"[..], b"LOAD", &code]);
            let mut replay = Replay::new(server, guest);
            let mut batch = server.engine.keyspace.enter(guest);
            // Who leads no more has what its master has, and gets nothing beside it.
            if !leads(server, &part.view()) {
                return;
            }
            let now = server.engine.clock.now();
            let done = replay.apply_within(&mut batch, DbIndex(0), now, &request.as_request());
            batch.release();
            drop(batch);
            match done {
                Ok(_) => {}
                Err(Rejection::Failed(_, Error::InUse)) => later.push(code),
                Err(rejection) => {
                    log!(Notice, "A library of functions that was restored is not loaded: {rejection}")
                }
            }
        }
        if !later.is_empty() {
            part.keep_libraries(later);
        }
    }

    /// Does one thing. False: nothing is to be done now.
    fn step(&mut self, view: &View) -> bool {
        let Some(own) = view.shard() else { return false };
        let mut under_way = view.topology.moves.values().filter(|one| one.from == own && one.is_under_way());
        match under_way.next() {
            // What others left here takes room that is nobody's to free.
            Some(one) if one.stage == Stage::Copying && clearing::step(self.server, view) => {}
            Some(one) if one.stage == Stage::Copying => self.give(one),
            Some(one) => self.fail(one, Retry::Again, "the master was not the one that has copied"),
            None => return clearing::step(self.server, view),
        }
        true
    }

    /// Makes an attempt.
    fn give(&mut self, one: &Move) {
        let Some(epoch) = own_epoch(self.server) else { return };
        let giving = Giving::new(self.server, one, epoch);
        match giving.run(&mut self.config) {
            Ok(()) => {}
            Err(failure) => self.fail(one, failure.retry, &failure.reason),
        }
    }

    /// Says that an attempt has come to nothing, unless it is known already.
    fn fail(&mut self, one: &Move, retry: Retry, reason: &str) {
        if giving::is_current(self.server, one) && self.config.say_failed(one, retry, reason).is_err() {
            std::thread::sleep(RETRY);
        }
    }
}

/// Whether this server is master of its shard, and knows who has which slots.
fn leads(server: &Server, view: &View) -> bool {
    view.leads && own_epoch(server).is_some()
}

/// The epoch in which this server is master of its shard; None: it is not.
fn own_epoch(server: &Server) -> Option<u64> {
    let standing = server.shard.get()?.standing();
    (standing.role == Role::Master && !standing.is_halted).then_some(standing.epoch.0)
}
