//! What a client that tracks is owed and caches: it is put down for the keys before the request is sent, and may be told that they have changed before the
//! reply is there that it is about. Then it is told so again behind the reply. One that broadcasts is put down for nothing, but is told again, too.

use command::Flags;
use command::execute::key_positions;
use command::table::Command;
use net::client::{Client, Clients, Traits};
use notify::tracking::{Mode, Tracker, Tracking};
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
    /// Whether a client asks for nothing further before what it is owed is there: it has asked for much, or is to be told again.
    pub fn is_held(&self, client: &Client) -> bool {
        !self.keys.is_empty() && (self.keys.len() >= KEYS_MAX || self.is_overtaken(client))
    }

    fn is_overtaken(&self, client: &Client) -> bool {
        client.overtaking.load(Ordering::Acquire) != self.overtaking
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
        if !command.is(Flags::READONLY) && !command.runs_script() {
            return;
        }
        let prefixes = match &tracker.mode {
            Mode::Broadcast(prefixes) => Some(prefixes),
            Mode::Reads(_) if tracker.puts_down() => None,
            Mode::Reads(_) => return,
        };
        if self.keys.is_empty() {
            self.overtaking = client.overtaking.load(Ordering::Acquire);
        }
        if prefixes.is_none() {
            tracking.remember(clients, client.id, command, request);
        }
        let mut positions = Vec::new();
        key_positions(command.row.keys, request, &mut positions);
        let is_told_of = |key: &&[u8]| {
            prefixes.is_none_or(|prefixes| prefixes.iter().any(|prefix| key.starts_with(prefix)))
        };
        let keys = positions.into_iter().map(|at| request.arg(at)).filter(is_told_of);
        self.keys.extend(keys.map(Box::from));
    }

    /// All that was owed has come: tells a client to forget what it reads there, if it was told of anything meanwhile, or could not be.
    pub fn end(&mut self, clients: &Clients, client: &Arc<Client>, is_whole: bool) {
        let is_overtaken = self.is_overtaken(client);
        let keys = std::mem::take(&mut self.keys);
        if !keys.is_empty() && (!is_whole || is_overtaken) {
            notify::tracking::forget(clients, client, &keys);
        }
    }
}
