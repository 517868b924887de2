//! Access control: who may run which commands, on which keys and channels.
//!
//! A [`User`] is a value that never changes; the [`Registry`] maps names to users, and
//! a change replaces a user and raises the registry's version. A session keeps its user
//! in an [`Access`], and looks its name up again when the version has moved on.
//!
//! It knows no session and no server: who asks hands its `Access` down, and counts and logs what was denied.
//!
//! Dispatch asks [`Access::is_unrestricted`] before every command: one load and one comparison
//! say that the session may do everything. All others go through [`admit`].
//!
//! Thread rule: everything here may be called from any thread; an `Access` belongs to
//! its session.
//!
//! 1. No rule that was accepted contains a space outside of parentheses, so that a user
//!    written as a line reads back as the same user; but for a selector given as one word,
//!    of whose rules one ends as selectors do ([`reads_back`]).

#![forbid(unsafe_code)]

mod access;
mod channels;
mod commands;
mod file;
mod kept;
mod log;
mod registry;
mod rules;
mod selector;
mod sort;
mod user;

pub use access::{Access, Denial, admit, admit_queued, admit_waiting};
pub use commands::category;
pub use file::{LoadError, SaveError, load_at_start, new_channels};
pub use kept::{Kept, reads_back};
pub use log::{AclLog, Attempt, Entry, Reason, Setting};
pub use registry::Registry;
pub use rules::{RuleError, SetUserError};
pub use selector::{NewChannels, Selector};
pub use user::{DEFAULT_USER, Denied, User, UserFlags, is_valid_name};

#[cfg(test)]
mod tests;
