//! What a session may do: its user as of some version of the registry, and the checks
//! that dispatch, EXEC and scripts make before a command.

use super::log::{Attempt, Reason, Setting};
use super::registry::Registry;
use super::sort;
use super::user::{Denied, User};
use crate::client::Client;
use crate::server::Server;
use crate::session::Session;
use command::table::Command;
use command::{Error, Flags};
use std::sync::Arc;
use sys::UnixMs;
use wire::{Authenticated, Request};

/// A version that the registry never has.
const NEVER: u64 = u64::MAX;
/// Another: of rights that the registry's users have no part in.
const APART: u64 = u64::MAX - 1;

/// One session's rights.
pub struct Access {
    user: Arc<User>,
    authenticated: Authenticated,
    /// The version that `user` is of.
    version: u64,
    /// The version at which the session may do everything; `NEVER` if it may not.
    free_at: u64,
}

impl Access {
    /// The rights of a new connection: the default user's, once it has authenticated if
    /// that takes a password.
    pub fn newcomer(registry: &Registry) -> Access {
        let user = registry.default_user();
        let authenticated = if user.is_open() { Authenticated::Yes } else { Authenticated::No };
        Access { user, authenticated, version: NEVER, free_at: NEVER }
    }

    /// The rights of somebody who has authenticated.
    pub fn of(user: Arc<User>) -> Access {
        Access { user, authenticated: Authenticated::Yes, version: NEVER, free_at: NEVER }
    }

    /// The server's own rights, for what was allowed when it was done: all, whatever users there are.
    pub fn of_server() -> Access {
        Access { version: APART, ..Access::of(Arc::new(User::everybody())) }
    }

    /// Whether the session may run anything. The one question asked before every command.
    #[inline]
    pub fn is_free(&self, registry: &Registry) -> bool {
        self.free_at == registry.version()
    }

    /// Whether the session has to authenticate first.
    #[inline]
    pub fn is_stranger(&self, registry: &Registry) -> bool {
        self.authenticated == Authenticated::No && !registry.is_open()
    }

    /// The user, as last looked at.
    pub fn user(&self) -> &Arc<User> {
        &self.user
    }

    /// Takes note of changes. A user who is gone leaves a stranger behind, whose
    /// connection is being closed.
    fn look_again(&mut self, registry: &Registry) {
        if self.version == registry.version() || self.version == APART {
            return;
        }
        let (user, version) = registry.get_versioned(self.user.name());
        match user {
            Some(user) => self.user = user,
            None => {
                self.user = registry.default_user();
                self.authenticated = Authenticated::No;
            }
        }
        self.version = version;
        self.free_at = if self.user.is_free() && !self.is_stranger(registry) { version } else { NEVER };
    }
}

/// Whether a session may run a request, whose arity is right; if not, it is logged.
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
    session.access.look_again(&server.acl);
    if session.access.is_stranger(&server.acl) && !command.is(Flags::NO_AUTH) {
        return Err(NOAUTH);
    }
    let user = session.access.user();
    user.check(command, request).map_err(|denied| {
        if setting != Setting::Script {
            session.client.note_command(command.id);
        }
        Refusal { command, request, denied, setting, user }.note(server, &session.client, now);
        refused(user, command, denied)
    })?;
    match setting {
        // What is only queued is looked at when it runs.
        Setting::Transaction => Ok(()),
        Setting::TopLevel | Setting::Script => sort::refusal(user, command, request).map_or(Ok(()), Err),
    }
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
    if session.access.is_free(&server.acl) {
        return Ok(());
    }
    session.access.look_again(&server.acl);
    if session.access.is_stranger(&server.acl) && !command.is(Flags::NO_AUTH) {
        return Err(NOAUTH);
    }
    let user = session.access.user();
    user.check(command, request).map_err(|denied| {
        let setting = Setting::Transaction;
        Refusal { command, request, denied, setting, user }.note(server, &session.client, now);
        let reason = match denied {
            Denied::Command => "no permission to execute the command or subcommand",
            Denied::Key(_) => "no permission to touch the specified keys",
            Denied::Channel(_) => "no permission to access one of the channels used as arguments",
        };
        Error::line(format!(
            "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. \
             This command is no longer allowed for the following reason: {reason}"
        ))
    })?;
    sort::refusal(user, command, request).map_or(Ok(()), Err)
}

/// Whether a request that was admitted under another version, and has waited for a key
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
    if version == server.acl.version() {
        return Ok(());
    }
    // Without its user the connection is being closed.
    let user = server.acl.get(&client.user()).ok_or(NOAUTH)?;
    user.check(command, request).map_err(|denied| {
        let setting = Setting::TopLevel;
        Refusal { command, request, denied, setting, user: &user }.note(server, client, now);
        refused(&user, command, denied)
    })
}

const NOAUTH: Error = Error::text("NOAUTH Authentication required.");

fn refused(user: &User, command: &Command, denied: Denied) -> Error {
    match denied {
        Denied::Command => {
            let after = format!(" has no permissions to run the '{}' command", command.row.name);
            Error::quoting("NOPERM User ", user.name(), &after)
        }
        Denied::Key(_) => Error::text("NOPERM No permissions to access a key"),
        Denied::Channel(_) => Error::text("NOPERM No permissions to access a channel"),
    }
}

/// What was refused to whom.
struct Refusal<'a> {
    command: &'a Command,
    request: &'a Request<'a>,
    denied: Denied,
    setting: Setting,
    user: &'a User,
}

impl Refusal<'_> {
    /// Counts and logs it.
    fn note(&self, server: &Server, client: &Client, now: UnixMs) {
        let counts = &server.counts;
        let name = self.command.row.name.as_bytes();
        let (reason, count, object) = match self.denied {
            Denied::Command => (Reason::Command, &counts.denied_commands, name),
            Denied::Key(position) => (Reason::Key, &counts.denied_keys, self.request.arg(position)),
            Denied::Channel(position) => {
                (Reason::Channel, &counts.denied_channels, self.request.arg(position))
            }
        };
        count.add(1);
        let attempt = Attempt { reason, setting: self.setting, object, user: self.user.name() };
        server.acl.log.note(attempt, || client.line(now), now, server.config.acllog_max_len());
    }
}
