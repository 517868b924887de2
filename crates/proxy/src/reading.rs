//! What a client that tracks is owed and caches: it is put down for the keys before the request is sent, and may be told that they have changed before the
//! reply is there that it is about. Then it is told so again behind the reply.

use command::execute::key_positions;
use command::table::Command;
use net::client::{Client, Clients, Traits};
use notify::tracking::{Tracker, Tracking};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use wire::Request;

/// The most keys that may be put down before what is owed is there.
const KEYS_MAX: usize = 4096;

/// One client's.
#[derive(Default)]
pub struct Reading {
    /// The keys of what it is owed.
    keys: Vec<Box<[u8]>>,
    /// How many invalidations may have come too early when the first of them was put down.
    overtaking: u64,
}

impl Reading {
    /// Whether no more can be put down before what is owed is there.
    pub fn is_full(&self) -> bool {
        self.keys.len() >= KEYS_MAX
    }

    /// Puts a client down for what a request is about to read, if it caches that. It is marked as owed ([`Traits::OWED`]).
    pub fn put_down(
        &mut self,
        (tracking, clients): (&Tracking, &Clients),
        (client, tracker): (&Client, &Tracker),
        (command, request): (&Command, &Request<'_>),
    ) {
        debug_assert!(client.traits().contains(Traits::OWED));
        // A script reads the keys that it names.
        let caches = if command.runs_script() { tracker.puts_down() } else { tracker.caches(command) };
        if !caches {
            return;
        }
        if self.keys.is_empty() {
            self.overtaking = client.overtaking.load(Ordering::Acquire);
        }
        tracking.remember(clients, client.id, command, request);
        let mut positions = Vec::new();
        key_positions(command.row.keys, request, &mut positions);
        self.keys.extend(positions.into_iter().map(|at| Box::from(request.arg(at))));
    }

    /// All that was owed has come: tells a client to forget what it reads there, if it was told of anything meanwhile, or could not be.
    pub fn end(&mut self, clients: &Clients, client: &Arc<Client>, is_whole: bool) {
        let keys = std::mem::take(&mut self.keys);
        if !keys.is_empty() && (!is_whole || client.overtaking.load(Ordering::Acquire) != self.overtaking) {
            notify::tracking::forget(clients, client, &keys);
        }
    }
}
