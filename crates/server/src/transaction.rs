//! A session's transaction: requests queued between MULTI and EXEC, and the keys that
//! it watches.

use crate::client::{Client, Traits};
use crate::dispatch::table::{self, Command, CommandId};
use crate::server::Server;
use command::Flags;
use keyspace::{Batch, Key, KeyName, Touch};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use sys::UnixMs;
use wire::{Request, RequestBuf};

/// Requests between MULTI and EXEC.
#[derive(Default)]
pub struct Transaction {
    queue: Vec<Queued>,
    /// A request was refused, so EXEC will be.
    pub is_doomed: bool,
    /// The flags of all commands queued.
    pub flags: Option<Flags>,
    bytes: usize,
}

/// A request that EXEC will run.
pub struct Queued {
    id: CommandId,
    words: RequestBuf,
}

impl Queued {
    /// Its command.
    pub fn command(&self) -> &'static Command {
        table::get(self.id)
    }

    /// Its words.
    pub fn request(&self) -> Request<'_> {
        self.words.as_request()
    }
}

impl Transaction {
    /// Adds a request, whose command has these flags for it.
    pub fn push(&mut self, command: &'static Command, flags: Flags, request: &Request<'_>, client: &Client) {
        self.bytes += request.iter().map(|word| word.len() + size_of::<usize>()).sum::<usize>();
        self.queue.push(Queued { id: command.id, words: RequestBuf::from_args(request.iter()) });
        self.flags = Some(self.flags.unwrap_or(Flags::empty()) | flags);
        client.queued.store(self.queue.len() as i64, Ordering::Relaxed);
        client.queued_bytes.store(self.bytes, Ordering::Relaxed);
    }

    /// Whether a command with one of these flags is queued.
    pub fn has(&self, flags: Flags) -> bool {
        self.flags.is_some_and(|all| all.intersects(flags))
    }

    /// The requests, in order.
    pub fn queue(&self) -> &[Queued] {
        &self.queue
    }

    /// The same, to be run.
    pub fn into_queue(self) -> Vec<Queued> {
        self.queue
    }
}

/// The keys that a session watches.
#[derive(Default)]
pub struct Watched {
    keys: Vec<KeyName>,
}

impl Watched {
    /// Watches a key, once.
    pub fn add(
        &mut self,
        server: &Server,
        batch: &Batch<'_>,
        client: &Arc<Client>,
        key: Key<'_>,
        now: UnixMs,
    ) {
        let name: KeyName = (key.db, key.bytes.into());
        if self.keys.contains(&name) {
            return;
        }
        // A key whose time is up goes now, so that its going later is no change.
        free_if_expired(batch, key, now);
        server.watches.add(&server.keyspace, name.clone(), client);
        self.keys.push(name);
        client.watched.store(self.keys.len(), Ordering::Relaxed);
    }

    /// The keys, for EXEC to hold.
    pub fn keys<'a>(&'a self, server: &'a Server) -> impl Iterator<Item = Key<'a>> {
        self.keys.iter().map(|(db, key)| server.keyspace.key(*db, key))
    }

    /// Whether a watched key has changed, or its time is up by now. The keys' slots are held.
    pub fn is_disturbed(&self, server: &Server, batch: &Batch<'_>, client: &Client, now: UnixMs) -> bool {
        for key in self.keys(server) {
            // A key whose time came since goes here, which marks the client.
            free_if_expired(batch, key, now);
        }
        client.is_disturbed()
    }

    /// Watches nothing any more.
    pub fn clear(&mut self, server: &Server, client: &Client) {
        client.set_trait(Traits::DISTURBED, false);
        if !self.keys.is_empty() {
            server.watches.remove(&server.keyspace, client, &self.keys);
            self.keys.clear();
            client.watched.store(0, Ordering::Relaxed);
        }
    }
}

fn free_if_expired(batch: &Batch<'_>, key: Key<'_>, now: UnixMs) {
    let view = batch.view(&[key], now, Touch::No);
    view.peek(&key);
    view.finish();
}
