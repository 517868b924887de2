//! MONITOR: sessions that are shown every command before it runs.
//!
//! A worker writes the line into the mail of each monitoring session, which may
//! be on any worker. Nothing of this is touched while nobody monitors: the server's
//! attention flag says so.

use crate::client::{self, Client, Traits};
use crate::server::Server;
use crate::session::Session;
use command::Flags;
use command::table::Command;
use engine::Attention;
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

/// Shows a session every command from now on.
pub fn join(server: &Server, client: &Arc<Client>) {
    let mut clients = server.monitors.clients.lock();
    if clients.iter().all(|known| known.id != client.id) {
        clients.push(client.clone());
    }
    client.set_trait(Traits::MONITOR, true);
    server.engine.set_attention(Attention::MONITORS, true);
}

/// Shows a session no more commands (RESET, end of the session): lines that are in
/// its mail are dropped, for what follows are replies. One that does not monitor is
/// left alone.
pub fn leave(server: &Server, client: &Client) {
    if !client.traits().contains(Traits::MONITOR) {
        return;
    }
    let mut clients = server.monitors.clients.lock();
    clients.retain(|known| known.id != client.id);
    client.drop_mail();
    client.set_trait(Traits::MONITOR, false);
    server.engine.set_attention(Attention::MONITORS, !clients.is_empty());
}

/// Shows a command that is about to run, unless it is one for administrators.
#[cold]
pub fn show(server: &Server, session: &Session, command: &Command, request: &Request<'_>) {
    if !command.row.flags.intersects(Flags::ADMIN | Flags::SKIP_MONITOR) {
        show_script(server, session, command, request);
    }
}

/// Shows a script that is about to run. Its place is before what it calls, so it is shown where it begins.
#[cold]
pub fn show_script(server: &Server, session: &Session, command: &Command, request: &Request<'_>) {
    let line = line(server, session, &redaction::shown(command, request));
    for client in server.monitors.clients.lock().iter() {
        client::deliver(server, client, |mail, _| mail.extend_from_slice(&line));
    }
}

/// As Redis writes it: `+1700000000.123456 [0 127.0.0.1:1234] "SET" "a" "b"`.
fn line(server: &Server, session: &Session, words: &[&[u8]]) -> Vec<u8> {
    let now_us = server.engine.clock.now_us();
    let kind = if session.client.traits().contains(Traits::UNIX_SOCKET) { "unix:" } else { "" };
    // A Unix socket's address ends with a port of 0, which is not shown here.
    let address = &session.client.address;
    let address = if kind.is_empty() { address } else { address.trim_end_matches(":0") };
    let (kind, address) = if session.runs_script { ("", "lua") } else { (kind, address) };
    let mut line = Vec::with_capacity(64);
    let (seconds, micros, db) = (now_us / 1_000_000, now_us % 1_000_000, session.db.0);
    write!(line, "+{seconds}.{micros:06} [{db} {kind}{address}]").expect("a vector takes every byte");
    for word in words {
        line.push(b' ');
        line.extend_from_slice(wire::quote(word).as_ref());
    }
    line.extend_from_slice(b"\r\n");
    line
}
