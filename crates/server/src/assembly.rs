//! Puts a server together, and has its parts follow the configuration: at the start and after each change of it.
//!
//! Parts that act on directives do not read them themselves, so that none of them knows the configuration while it works; what is to
//! be told to whom is here.

use crate::feeding::{resuming, upkeep};
use crate::server::Server;
use ::log::SyncPolicy;
use config::Config;
use engine::{Engine, durability};
use keyspace::{HashSeed, Interest};
use notify::audience::Audience;
use std::sync::Arc;
use sys::Clock;
use sys::file::Fs;

/// A server with an empty keyspace, to be run by `workers` workers, the last of which is
/// the spare one.
///
/// # Panics
/// If the table of commands has not been told of the server's own.
pub fn new(config: Config, workers: usize) -> Arc<Server> {
    let seed = durability::seed_of_checkpoint(&config, &Fs::Real);
    let seed = seed.unwrap_or_else(|| new_seed(&config));
    with_seed(config, workers, Clock::Real, seed)
}

/// The same, by another clock, and for an empty directory.
///
/// # Panics
/// As [`new`].
pub fn with_clock(config: Config, workers: usize, clock: Clock) -> Arc<Server> {
    let seed = new_seed(&config);
    with_seed(config, workers, clock, seed)
}

/// What a directory begins with.
fn new_seed(config: &Config) -> HashSeed {
    match config.cluster_enabled() {
        true => HashSeed::tagged_from_entropy(),
        false => HashSeed::from_entropy(),
    }
}

/// A server whose keys have their slots by this seed: that of the checkpoint that it will load, if there is one.
///
/// # Panics
/// As [`new`].
pub fn with_seed(config: Config, workers: usize, clock: Clock, hash_seed: HashSeed) -> Arc<Server> {
    let server = Arc::new(Server::new(Engine::new(config, workers, clock, hash_seed), workers));
    server.engine.keyspace.set_observer(Box::new(audience(&server)));
    let known = Arc::downgrade(&server);
    server.engine.snapshots.ask_for_place(move || resuming::place(&*known.upgrade()?));
    follow_config(&server);
    server
}

/// Those who are told of changes of keys.
fn audience(server: &Server) -> Audience {
    Audience {
        clients: server.net.clients.clone(),
        watches: server.watches.clone(),
        tracking: server.tracking.clone(),
        events: server.events.clone(),
        pubsub: server.pubsub.clone(),
    }
}

/// Hands what the configuration says on to those who do not read it themselves.
pub fn follow_config(server: &Server) {
    let (engine, config) = (&*server.engine, &server.engine.config);
    server.acl.follow_requirepass(&config.requirepass());
    engine.follow_config(server.switches.list_plain_bytes_min());
    upkeep::follow_config(server);
    server.net.clients.follow(config);
    server.follow_bounds();
    engine.keyspace.set_interest(Interest::EVENTS, server.events.follow(config));
    if let Some(sync) = durability::follow_config(engine) {
        server.net.gate.hold(sync == SyncPolicy::Always);
    }
    server.tracking.follow(config, &server.net.clients);
    if let Some(part) = server.clustered.get() {
        part.follow(config);
    }
    server.net.placement.look_at_load();
    telemetry::logger::set_level(config.log_level());
}
