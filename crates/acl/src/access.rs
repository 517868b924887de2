//! What a session may do: its user as of some version of the registry, and the checks
//! that dispatch, EXEC and scripts make before a command. Who makes one notes what is denied.

use crate::log::{Attempt, Reason, Setting};
use crate::registry::Registry;
use crate::sort;
use crate::user::{Denied, User};
use command::table::Command;
use command::{Error, Flags};
use std::sync::Arc;
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
    unrestricted_at: u64,
}

impl Access {
    /// The rights of a new connection: the default user's, once it has authenticated if
    /// that takes a password.
    pub fn newcomer(registry: &Registry) -> Access {
        let user = registry.default_user();
        let authenticated = if user.is_open() { Authenticated::Yes } else { Authenticated::No };
        Access { user, authenticated, version: NEVER, unrestricted_at: NEVER }
    }

    /// The rights of somebody who has authenticated.
    pub fn of(user: Arc<User>) -> Access {
        Access { user, authenticated: Authenticated::Yes, version: NEVER, unrestricted_at: NEVER }
    }

    /// The server's own rights, for what was allowed when it was done: all, whatever users there are.
    pub fn of_server() -> Access {
        Access { version: APART, ..Access::of(Arc::new(User::everybody())) }
    }

    /// Whether the session may run anything. The one question asked before every command.
    #[inline]
    pub fn is_unrestricted(&self, registry: &Registry) -> bool {
        self.unrestricted_at == registry.version()
    }

    /// Whether the session has to authenticate first.
    #[inline]
    pub fn is_unauthenticated(&self, registry: &Registry) -> bool {
        self.authenticated == Authenticated::No && !registry.is_open()
    }

    /// The user, as last looked at.
    pub fn user(&self) -> &Arc<User> {
        &self.user
    }

    /// Takes note of changes. A user who is gone leaves somebody unauthenticated behind, whose
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
        self.unrestricted_at =
            if self.user.is_unrestricted() && !self.is_unauthenticated(registry) { version } else { NEVER };
    }
}

/// Why a request may not run.
#[derive(Clone, Debug)]
pub enum Denial {
    /// The session has to authenticate first.
    Unauthenticated,
    /// The user's rules say so: this is counted and logged.
    ByRules(Arc<User>, Denied),
    /// So does an option of the request that reads what its keys do not tell; the client gets this.
    ByOption(Error),
}

/// Whether a session may run a request, whose arity is right.
///
/// # Errors
/// Why it may not.
#[cold]
pub fn admit(
    registry: &Registry,
    access: &mut Access,
    command: &Command,
    request: &Request<'_>,
    setting: Setting,
) -> Result<(), Denial> {
    access.look_again(registry);
    if access.is_unauthenticated(registry) && !command.is(Flags::NO_AUTH) {
        return Err(Denial::Unauthenticated);
    }
    let user = access.user();
    user.check(command, request).map_err(|denied| Denial::ByRules(user.clone(), denied))?;
    match setting {
        // What is only queued is looked at when it runs.
        Setting::Transaction => Ok(()),
        Setting::TopLevel | Setting::Script => {
            sort::refusal(user, command, request).map_or(Ok(()), |error| Err(Denial::ByOption(error)))
        }
    }
}

/// Whether a session may still run a request that it queued for EXEC.
///
/// # Errors
/// Why it may not.
#[inline]
pub fn admit_queued(
    registry: &Registry,
    access: &mut Access,
    command: &Command,
    request: &Request<'_>,
) -> Result<(), Denial> {
    match access.is_unrestricted(registry) {
        true => Ok(()),
        // It is run now as if it had come by itself.
        false => admit(registry, access, command, request, Setting::TopLevel),
    }
}

/// Whether a request of the user of this name that was admitted under another version, and has waited for a key
/// since, may still run. The session is on another worker.
///
/// # Errors
/// Why it may not.
pub fn admit_waiting(
    registry: &Registry,
    user: impl FnOnce() -> Vec<u8>,
    version: u64,
    command: &Command,
    request: &Request<'_>,
) -> Result<(), Denial> {
    if version == registry.version() {
        return Ok(());
    }
    // Without its user the connection is being closed.
    let user = registry.get(&user()).ok_or(Denial::Unauthenticated)?;
    user.check(command, request).map_err(|denied| Denial::ByRules(user, denied))
}

const NOAUTH: Error = Error::text("NOAUTH Authentication required.");

impl Denial {
    /// What the client is told.
    pub fn error(self, command: &Command) -> Error {
        match self {
            Denial::Unauthenticated => NOAUTH,
            Denial::ByRules(user, Denied::Command) => {
                let after = format!(" has no permissions to run the '{}' command", command.row.name);
                Error::quoting("NOPERM User ", user.name(), &after)
            }
            Denial::ByRules(_, Denied::Key(_)) => Error::text("NOPERM No permissions to access a key"),
            Denial::ByRules(_, Denied::Channel(_)) => {
                Error::text("NOPERM No permissions to access a channel")
            }
            Denial::ByOption(error) => error,
        }
    }

    /// What stands in the place of the reply of a request that was queued for EXEC.
    pub fn error_of_queued(self, command: &Command) -> Error {
        let Denial::ByRules(_, denied) = self else { return self.error(command) };
        let reason = match denied {
            Denied::Command => "no permission to execute the command or subcommand",
            Denied::Key(_) => "no permission to touch the specified keys",
            Denied::Channel(_) => "no permission to access one of the channels used as arguments",
        };
        Error::line(format!(
            "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. \
             This command is no longer allowed for the following reason: {reason}"
        ))
    }

    /// The attempt that is noted; None: this is none of the rules' business.
    pub fn attempt<'a>(
        &'a self,
        command: &Command,
        request: &Request<'a>,
        setting: Setting,
    ) -> Option<Attempt<'a>> {
        let Denial::ByRules(user, denied) = self else { return None };
        let (reason, object) = match denied {
            Denied::Command => (Reason::Command, command.row.name.as_bytes()),
            Denied::Key(position) => (Reason::Key, request.arg(*position)),
            Denied::Channel(position) => (Reason::Channel, request.arg(*position)),
        };
        Some(Attempt { reason, setting, object, user: user.name() })
    }
}
