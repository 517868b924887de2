//! What a server does for its engine's log: it holds replies back until what they show is durable, and runs what a start finds in it.
//!
//! Thread rule: the log's flusher tells how far it is.

use crate::replay::Replay;
use crate::server::Server;
use ::log::Options;
use engine::durability::{self, Above, Beginning, Watcher};
use engine::import::{self, Found, Preference};
use keyspace::Stamp;
use std::io;
use std::path::Path;
use std::sync::{Arc, Weak};
use sys::file::Fs;

/// Passes on what the log tells.
struct Durable(Weak<Server>);

impl Watcher for Durable {
    fn committed(&self, up_to: Stamp) {
        if let Some(server) = self.0.upgrade() {
            server.net.gate.commit(up_to);
            server.net.gate.committed.notify_waiters();
            server.following.bell.ring();
            server.shard.note_durable();
        }
    }

    fn streamed(&self, from: u64, bytes: &[u8]) {
        if let Some(server) = self.0.upgrade() {
            server.feeding.streamed(from, bytes);
        }
    }

    fn hold(&self, on: bool) {
        if let Some(server) = self.0.upgrade() {
            server.net.gate.hold(on);
        }
    }
}

fn watcher(server: &Arc<Server>) -> Arc<dyn Watcher> {
    Arc::new(Durable(Arc::downgrade(server)))
}

/// As [`durability::open`].
///
/// # Errors
/// One sentence for the operator: a server must not start without the data that it was meant to have.
pub fn open(server: &Arc<Server>, fs: &Fs, threads: usize) -> io::Result<()> {
    let above = Above { watcher: watcher(server), apply: &mut Replay::new(server, 0) };
    durability::open(&server.engine, above, fs, threads)
}

/// As [`durability::open_with`].
///
/// # Errors
/// Those of [`open`].
pub fn open_with(server: &Arc<Server>, fs: &Fs, threads: usize, options: Options) -> io::Result<()> {
    let above = Above { watcher: watcher(server), apply: &mut Replay::new(server, 0) };
    durability::open_with(&server.engine, above, fs, threads, options)
}

/// As [`durability::begin_amid_traffic`].
///
/// # Errors
/// A sentence for the client: there is no log then.
pub fn begin_amid_traffic(server: &Arc<Server>, beginning: Beginning) -> io::Result<()> {
    durability::begin_amid_traffic(&server.engine, watcher(server), beginning)
}

/// As [`import::load_foreign`].
///
/// # Errors
/// One sentence for the operator.
pub fn load_foreign(server: &Arc<Server>, preference: Preference) -> io::Result<Option<Found>> {
    import::load_foreign(&server.engine, &mut Replay::new(server, 0), preference)
}

/// As [`import::load_from`].
///
/// # Errors
/// As [`load_foreign`], and if there is nothing there.
pub fn load_from(server: &Arc<Server>, from: &Path) -> io::Result<Found> {
    import::load_from(&server.engine, &mut Replay::new(server, 0), from)
}

#[cfg(test)]
mod tests;
