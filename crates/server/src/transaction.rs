//! A session's transaction: requests queued between MULTI and EXEC.

use command::Flags;
use command::table::{self, Command, CommandId};
use net::client::Client;
use std::sync::atomic::Ordering;
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
