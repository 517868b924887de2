//! What a session may do: its user as of some version of the registry, and the checks
//! that dispatch, EXEC and scripts make before a command.

use super::log::{Attempt, Reason, Setting};
use super::registry::Registry;
use super::sort;
use super::user::{Denied, User};
use crate::dispatch::table::Command;
use crate::server::Server;
use crate::session::Session;
use command::{Error, Flags};
use std::sync::Arc;
use sys::UnixMs;
use wire::{Authenticated, Request};

/// A version that the registry never has.
const NEVER: u64 = u64::MAX;

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
        if self.version == registry.version() {
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
        return Err(Error::text("NOAUTH Authentication required."));
    }
    let user = session.access.user();
    user.check(command, request).map_err(|denied| {
        note(server, session, command, request, denied, setting, now);
        let sentence = match denied {
            Denied::Command => return refused_command(user.name(), command),
            Denied::Key(_) => "NOPERM No permissions to access a key",
            Denied::Channel(_) => "NOPERM No permissions to access a channel",
        };
        Error::text(sentence)
    })?;
    match setting {
        // What is only queued is looked at when it runs.
        Setting::Transaction => Ok(()),
        _ => sort::refusal(user, command, request).map_or(Ok(()), Err),
    }
}

fn refused_command(user: &[u8], command: &Command) -> Error {
    let after = format!(" has no permissions to run the '{}' command", command.row.name);
    Error::quoting("NOPERM User ", user, &after)
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
    session.access.user().check(command, request).map_err(|denied| {
        note(server, session, command, request, denied, Setting::Transaction, now);
        let reason = match denied {
            Denied::Command => "no permission to execute the command or subcommand",
            Denied::Key(_) => "no permission to touch the specified keys",
            Denied::Channel(_) => {
                "no permission to access one of the channels used as arguments to the command"
            }
        };
        Error::line(format!(
            "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. \
             This command is no longer allowed for the following reason: {reason}"
        ))
    })?;
    sort::refusal(session.access.user(), command, request).map_or(Ok(()), Err)
}

/// Counts and logs a refusal.
fn note(
    server: &Server,
    session: &Session,
    command: &Command,
    request: &Request<'_>,
    denied: Denied,
    setting: Setting,
    now: UnixMs,
) {
    let counts = &server.counts;
    let (reason, count, object) = match denied {
        Denied::Command => (Reason::Command, &counts.denied_commands, command.row.name.as_bytes()),
        Denied::Key(position) => (Reason::Key, &counts.denied_keys, request.arg(position)),
        Denied::Channel(position) => (Reason::Channel, &counts.denied_channels, request.arg(position)),
    };
    count.add(1);
    let user = session.access.user().name();
    server.acl.log.note(
        Attempt { reason, setting, object, user },
        || session.client.line(now),
        now,
        server.config.acllog_max_len(),
    );
}
