//! A session's transaction: requests queued between MULTI and EXEC, and the keys that
//! it watches.

use crate::client::{Client, Kept, Traits};
use crate::server::Server;
use command::execute::readable;
use command::table::{self, Command, CommandId};
use command::{Error, Flags, Result};
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
    word_bytes: usize,
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
        if self.is_doomed || client.is_disturbed() {
            // It will never run.
            return;
        }
        let words = RequestBuf::from(*request);
        self.word_bytes += words.allocated_bytes();
        self.queue.push(Queued { id: command.id, words });
        self.flags = Some(self.flags.unwrap_or(Flags::empty()) | flags);
        client.queued.store(self.queue.len() as i64, Ordering::Relaxed);
        let queue_bytes = self.queue.capacity() * size_of::<Queued>();
        client.queued_bytes.store(self.word_bytes + queue_bytes, Ordering::Relaxed);
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
    /// For each of them whether it was there.
    were_there: Vec<bool>,
}

impl Watched {
    /// Watches a key, once. Its slot is held.
    ///
    /// # Errors
    /// It cannot be read; it is not watched.
    pub fn add(
        &mut self,
        server: &Server,
        batch: &Batch<'_>,
        client: &Arc<Client>,
        key: Key<'_>,
        now: UnixMs,
    ) -> Result<()> {
        let name: KeyName = (key.db, key.bytes.into());
        // Not by going through its keys, of which there may be a million.
        if !self.keys.is_empty() && server.watches.has(&name, client) {
            return Ok(());
        }
        // One whose time is up goes first, so that its going is no change.
        is_there(batch, key, now)?;
        let view = batch.try_view(&[key], now, Touch::No).ok_or(Error::InUse)?;
        let was_there = view.peek(&key).is_some();
        readable(batch)?;
        // Before anybody can change it.
        server.watches.add(&server.engine.keyspace, name.clone(), client);
        view.finish();
        client.note_kept_name(Kept::Watched, &name.1, true);
        self.keys.push(name);
        self.were_there.push(was_there);
        client.watched.store(self.keys.len(), Ordering::Relaxed);
        Ok(())
    }

    /// The keys, for EXEC to hold.
    pub fn keys<'a>(&'a self, server: &'a Server) -> impl Iterator<Item = Key<'a>> {
        self.keys.iter().map(|(db, key)| server.engine.keyspace.key(*db, key))
    }

    /// Whether a watched key has changed, or its time is up by now. The keys' slots are held.
    ///
    /// # Errors
    /// One of them cannot be read.
    pub fn is_disturbed(
        &self,
        server: &Server,
        batch: &Batch<'_>,
        client: &Client,
        now: UnixMs,
    ) -> Result<bool> {
        let mut is_any_gone = false;
        for (key, was_there) in self.keys(server).zip(&self.were_there) {
            is_any_gone |= *was_there && !is_there(batch, key, now)?;
        }
        Ok(is_any_gone || client.is_disturbed())
    }

    /// Watches nothing any more.
    pub fn clear(&mut self, server: &Server, client: &Client) {
        if !self.keys.is_empty() {
            server.watches.remove(&server.engine.keyspace, client, &self.keys);
            self.keys = Vec::new();
            self.were_there = Vec::new();
            client.watched.store(0, Ordering::Relaxed);
            client.note_kept(Kept::Watched, 0);
        }
        // Only now: whoever changed a key until here has marked the client for what it does not watch any more.
        client.set_trait(Traits::DISTURBED, false);
    }
}

/// Whether a key is there. One whose time is up goes.
fn is_there(batch: &Batch<'_>, key: Key<'_>, now: UnixMs) -> Result<bool> {
    let view = batch.try_view(&[key], now, Touch::No).ok_or(Error::InUse)?;
    let is_there = view.peek(&key).is_some();
    view.finish();
    readable(batch).map(|()| is_there)
}
