//! What is done about a command that took long: it is shown to the slow log and to the latency monitor.

use crate::server::Server;
use command::table::Command;
use net::client::Client;
use telemetry::slowlog::{self, Slow};
use wire::Request;

/// Notes a command that took `ticks`, if that is long.
#[inline]
pub fn note_if_slow(server: &Server, client: &Client, command: &Command, request: &Request<'_>, ticks: u64) {
    if ticks >= server.slow_ticks() {
        note(server, Some(client), command, request, ticks);
    }
}

/// The same for one that a script calls: it is nobody's.
#[inline]
pub fn note_if_slow_in_script(server: &Server, command: &Command, request: &Request<'_>, ticks: u64) {
    if ticks >= server.slow_ticks() {
        note(server, None, command, request, ticks);
    }
}

/// Notes a command that took `ticks`, which is at least [`Server::slow_ticks`].
#[cold]
fn note(server: &Server, client: Option<&Client>, command: &Command, request: &Request<'_>, ticks: u64) {
    let micros = server.ticks.nanos(ticks) / 1000;
    let slow = Slow { command, request, micros, at: server.engine.clock.now() };
    slowlog::note_latency(&server.latency, &server.engine.config, &slow);
    server.slowlog.note(&server.engine.config, &slow, || {
        client.map(|client| (client.address.clone(), client.labels().name)).unwrap_or_default()
    });
}
