//! Who a client is by its certificate, whether a session may run a request, and what is noted of what is denied: in the counts and in
//! ACL LOG.

use crate::server::Server;
use crate::session::Session;
use acl::{Access, Attempt, Denial, Reason, Setting, UserFlags};
use command::Error;
use command::table::Command;
use net::client::Client;
use net::tls;
use sys::UnixMs;
use wire::Request;

/// Whether a session may run a request, whose arity is right.
///
/// # Errors
/// What the client is told.
#[cold]
pub fn admit(
    server: &Server,
    session: &mut Session,
    command: &Command,
    request: &Request<'_>,
    setting: Setting,
    now: UnixMs,
) -> Result<(), Error> {
    acl::admit(&server.acl, &mut session.access, command, request, setting).map_err(|denial| {
        if setting != Setting::Script && matches!(denial, Denial::ByRules(..)) {
            session.client.note_command(command.id);
        }
        note(server, &denial, (command, request, setting), now, || session.client.line(now));
        denial.error(command)
    })
}

/// Whether a session may still run a request that it queued for EXEC.
///
/// # Errors
/// What stands in the place of the request's reply.
#[inline]
pub fn admit_queued(
    server: &Server,
    session: &mut Session,
    command: &Command,
    request: &Request<'_>,
    now: UnixMs,
) -> Result<(), Error> {
    acl::admit_queued(&server.acl, &mut session.access, command, request).map_err(|denial| {
        note(server, &denial, (command, request, Setting::Transaction), now, || session.client.line(now));
        denial.error_of_queued(command)
    })
}

/// Whether a request that was admitted under another version of all rights, and has waited for a key
/// since, may still run. The session is on another worker.
///
/// # Errors
/// What the client is told.
pub fn admit_waiting(
    server: &Server,
    client: &Client,
    version: u64,
    command: &Command,
    request: &Request<'_>,
    now: UnixMs,
) -> Result<(), Error> {
    acl::admit_waiting(&server.acl, || client.user(), version, command, request).map_err(|denial| {
        note(server, &denial, (command, request, Setting::TopLevel), now, || client.line_served(now));
        denial.error(command)
    })
}

/// Counts and logs what a user's rules deny. `line` shows the client.
fn note(
    server: &Server,
    denial: &Denial,
    (command, request, setting): (&Command, &Request<'_>, Setting),
    now: UnixMs,
    line: impl FnOnce() -> String,
) {
    if let Some(attempt) = denial.attempt(command, request, setting) {
        note_shown(server, attempt, now, line);
    }
}

/// Counts and logs what somebody tried who may not.
pub fn note_attempt(server: &Server, client: &Client, attempt: Attempt<'_>, now: UnixMs) {
    note_shown(server, attempt, now, || client.line(now));
}

fn note_shown(server: &Server, attempt: Attempt<'_>, now: UnixMs, line: impl FnOnce() -> String) {
    let counts = &server.counts;
    match attempt.reason {
        Reason::Command => counts.denied_commands.add(1),
        Reason::Key => counts.denied_keys.add(1),
        Reason::Channel => counts.denied_channels.add(1),
        Reason::Auth => counts.auth_failures.add(1),
        Reason::Certificate => counts.denied_certificates.add(1),
    }
    server.acl.log.note(attempt, line, now, server.engine.config.acllog_max_len());
}

/// Lets a client whose certificate names a user be that user, if the configuration says so. Any other certificate leaves the client what it
/// was, and is noted.
pub fn name_user(server: &Server, session: &mut Session, secure: &tls::Session) {
    if !server.engine.config.tls_auth_clients_user() {
        return;
    }
    let Some(name) = secure.client_certificate().and_then(tls::common_name) else { return };
    if let Some(user) = server.acl.get(&name).filter(|user| user.flags().contains(UserFlags::ON)) {
        return session.act_as(Access::of(user));
    }
    let (reason, setting) = (Reason::Certificate, Setting::TopLevel);
    let attempt = Attempt { reason, setting, object: b"", user: &name };
    note_attempt(server, &session.client, attempt, server.engine.clock.now());
}
