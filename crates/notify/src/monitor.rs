//! MONITOR: sessions that are shown every command before it runs.
//!
//! A worker writes the line into the mail of each monitoring session, which may
//! be on any worker. Nothing of this is touched while nobody monitors: who shows commands
//! keeps a flag of that.
//!
//! Thread rule: one lock, of the list. Whether anybody monitors is noted while it is held, so
//! that of a session that comes and one that goes the later has the last word.

use command::Flags;
use command::table::Command;
use keyspace::DbIndex;
use net::client::{self, Client, Clients, Traits};
use parking_lot::Mutex;
use std::io::Write;
use std::sync::Arc;
use telemetry::redaction;
use wire::Request;

/// The sessions that monitor.
#[derive(Default)]
pub struct Monitors {
    clients: Mutex<Vec<Arc<Client>>>,
}

/// Whose command is shown.
pub struct Caller<'a> {
    /// The client.
    pub client: &'a Client,
    /// The database that it has selected.
    pub db: DbIndex,
    /// Whether a script of its calls the command.
    pub runs_script: bool,
}

impl Monitors {
    /// Shows a session every command from now on. `note` is told that somebody monitors.
    pub fn join(&self, client: &Arc<Client>, note: impl FnOnce(bool)) {
        let mut clients = self.clients.lock();
        if clients.iter().all(|known| known.id != client.id) {
            clients.push(client.clone());
        }
        client.set_trait(Traits::MONITOR, true);
        note(true);
    }

    /// Shows a session no more commands (RESET, end of the session): lines that are in
    /// its mail are dropped, for what follows are replies. One that does not monitor is
    /// left alone. `note` is told whether anybody else monitors.
    pub fn leave(&self, client: &Client, note: impl FnOnce(bool)) {
        if !client.traits().contains(Traits::MONITOR) {
            return;
        }
        let mut clients = self.clients.lock();
        clients.retain(|known| known.id != client.id);
        client.drop_mail();
        client.set_trait(Traits::MONITOR, false);
        note(!clients.is_empty());
    }

    /// Shows a command that is about to run, unless it is one for administrators.
    #[cold]
    pub fn show(&self, clients: &Clients, caller: &Caller<'_>, command: &Command, request: &Request<'_>) {
        if !command.row.flags.intersects(Flags::ADMIN | Flags::SKIP_MONITOR) {
            self.show_script(clients, caller, command, request);
        }
    }

    /// Shows a script that is about to run. Its place is before what it calls, so it is shown where it begins.
    #[cold]
    pub fn show_script(
        &self,
        clients: &Clients,
        caller: &Caller<'_>,
        command: &Command,
        request: &Request<'_>,
    ) {
        let line = line(clients.clock().now_us(), caller, &redaction::shown(command, request));
        for client in self.clients.lock().iter() {
            client::deliver(clients, client, |mail, _| mail.extend_from_slice(&line));
        }
    }
}

/// As Redis writes it: `+1700000000.123456 [0 127.0.0.1:1234] "SET" "a" "b"`.
fn line(now_us: u64, caller: &Caller<'_>, words: &[&[u8]]) -> Vec<u8> {
    let kind = if caller.client.traits().contains(Traits::UNIX_SOCKET) { "unix:" } else { "" };
    // A Unix socket's address ends with a port of 0, which is not shown here.
    let address = &caller.client.address;
    let address = if kind.is_empty() { address } else { address.trim_end_matches(":0") };
    let (kind, address) = if caller.runs_script { ("", "lua") } else { (kind, address) };
    let mut line = Vec::with_capacity(64);
    let (seconds, micros, db) = (now_us / 1_000_000, now_us % 1_000_000, caller.db.0);
    write!(line, "+{seconds}.{micros:06} [{db} {kind}{address}]").expect("a vector takes every byte");
    for word in words {
        line.push(b' ');
        line.extend_from_slice(wire::quote(word).as_ref());
    }
    line.extend_from_slice(b"\r\n");
    line
}
