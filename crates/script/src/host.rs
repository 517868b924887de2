//! What scripts ask of the server, and the way to it from inside the interpreter.
//!
//! The interpreter's functions live as long as it does; a host only for one run. For that time it
//! stands in a scoped thread-local, where [`with`] finds it.

use std::time::Instant;
use wire::{Protocol, Request};

/// The server, as one run of a script sees it.
pub trait Host {
    /// Runs a command, and appends its reply to `out` in `protocol`. A command that fails on its own answers with an
    /// error reply.
    ///
    /// # Errors
    /// The command was not run.
    fn call(&mut self, request: Request<'_>, protocol: Protocol, out: &mut Vec<u8>) -> Result<(), Refusal>;

    /// Whether the user may run a command; None: there is no such command.
    fn may_run(&mut self, request: Request<'_>) -> Option<bool>;

    /// Writes to the server's log; levels count from 0 (debug) to 3 (warning).
    fn log(&mut self, level: u8, line: &[u8]);

    /// The script returns an error; it may have been counted where it came up.
    fn note_error(&mut self, line: &[u8], is_counted: bool);

    /// When the run began.
    fn began(&self) -> Instant;

    /// Called now and then while the script runs.
    fn pulse(&mut self) -> Pulse;
}

/// Why a command was not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The error that the script gets, with its code.
    Error(Vec<u8>),
    /// It needs more keys than are held: the run ends, and the script begins again under other locks.
    Restart,
}

/// Whether a script goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pulse {
    /// It does.
    GoOn,
    /// It ends with this error.
    End(&'static str),
}

scoped_tls_hkt::scoped_thread_local!(
    static mut HOST: for<'a> &'a mut (dyn Host + 'a)
);

/// Runs `work` with `host` in place.
pub(crate) fn in_place_of<T>(host: &mut dyn Host, work: impl FnOnce() -> T) -> T {
    HOST.set(host, work)
}

/// Asks the host; None while there is none (a library is being loaded).
pub(crate) fn with<T>(ask: impl FnOnce(&mut dyn Host) -> T) -> Option<T> {
    HOST.is_set().then(|| HOST.with(|host| ask(host)))
}
