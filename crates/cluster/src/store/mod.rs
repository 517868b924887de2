//! The store of decisions: a few thousand keys of text, changed by transactions on their revisions, and watched.
//!
//! [`Store`] is what config servers need of it. [`embedded`] keeps it in a directory of one process, [`etcd`] in etcd. What holds of both
//! stands in one test (`tests`).
//!
//! Calls block, for no longer than the implementation's deadline. Any thread may call.

pub mod embedded;
pub mod etcd;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

/// Rises with every change of anything in the store. 0 is before the first, and of a key: it is not there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

/// What holds keys for as long as somebody renews it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub u64);

/// A key and what it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub key: String,
    /// One line of text.
    pub value: String,
    /// When it was last changed.
    pub revision: Revision,
}

/// All keys that begin with something, as they were at one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Which one.
    pub revision: Revision,
    /// By name.
    pub entries: Vec<Entry>,
}

/// How far a store had come when it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latest {
    /// When a key of those that were asked about was changed last; 0: there is none.
    pub changed: Revision,
    /// The revision of the whole store, which others may write to as well.
    pub store: Revision,
}

/// A key and the revision that it must have. 0: it must not be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compare {
    /// Its name.
    pub key: String,
    /// When it must have been changed last.
    pub revision: Revision,
}

/// What becomes of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// It holds this from now on.
    Put {
        /// Its name.
        key: String,
        /// One line of text.
        value: String,
        /// It goes when this lease is over; None: it stays.
        lease: Option<LeaseId>,
    },
    /// It goes.
    Delete {
        /// Its name.
        key: String,
    },
}

impl Write {
    /// The key that it is about.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Write::Put { key, .. } | Write::Delete { key } => key,
        }
    }
}

/// One transaction: if all compares hold all writes are done, else none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// What must hold.
    pub compares: Vec<Compare>,
    /// What is done; no key twice.
    pub writes: Vec<Write>,
}

/// What became of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is done, durably, and made this revision.
    Done(Revision),
    /// A compare did not hold, and nothing was done.
    Conflict,
    /// Nobody can say whether it is done, or will be later. Why, as a sentence.
    Unknown(String),
    /// It is not done and never will be. Why, as a sentence.
    Unreached(String),
}

/// The store does not answer, or says what makes no sense: why, as a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unavailable(pub String);

impl fmt::Display for Unavailable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// A key that has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Its name.
    pub key: String,
    /// What it holds now; None: it is gone.
    pub value: Option<String>,
}

/// What a watch has seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// All that one revision has changed of what is watched.
    Changes {
        /// Which one.
        revision: Revision,
        /// In the order of the change.
        changed: Vec<Changed>,
    },
    /// Nothing, for as long as it was waited.
    Quiet,
    /// What came next is not known any more, or the store has gone back behind what was seen: read all again, and watch from there.
    Compacted,
}

/// Changes, one after another, none left out.
pub trait Watch: Send {
    /// Waits for the next one, for no longer than about `patience`.
    ///
    /// # Errors
    /// The store does not answer. Watch again from the last revision that was seen.
    fn next(&mut self, patience: Duration) -> Result<Seen, Unavailable>;
}

/// A way to a store of decisions.
pub trait Store: Send + Sync {
    /// All keys that begin with `prefix`. Whatever was done before the call is there.
    ///
    /// # Errors
    /// The store does not answer.
    fn read(&self, prefix: &str) -> Result<Reading, Unavailable>;

    /// One key; None: it is not there. Whatever was done before the call is seen.
    ///
    /// # Errors
    /// The store does not answer.
    fn get(&self, key: &str) -> Result<Option<Entry>, Unavailable>;

    /// When a key that begins with `prefix` and is there was changed last. Whatever was done before the call counts.
    ///
    /// # Errors
    /// The store does not answer.
    fn latest(&self, prefix: &str) -> Result<Latest, Unavailable>;

    /// Does a change, once at most.
    fn change(&self, change: &Change) -> Outcome;

    /// Watches the keys that begin with `prefix`, from behind a revision on.
    ///
    /// # Errors
    /// The store does not answer.
    fn watch(&self, prefix: &str, after: Revision) -> Result<Box<dyn Watch>, Unavailable>;

    /// A lease that is over when nobody has renewed it for so long.
    ///
    /// # Errors
    /// The store does not answer.
    fn grant(&self, length: Duration) -> Result<LeaseId, Unavailable>;

    /// Renews a lease. Whether it still was one.
    ///
    /// # Errors
    /// The store does not answer.
    fn renew(&self, lease: LeaseId) -> Result<bool, Unavailable>;

    /// Ends a lease, and with it the keys that it holds.
    ///
    /// # Errors
    /// The store does not answer.
    fn release(&self, lease: LeaseId) -> Result<(), Unavailable>;

    /// What and where it is, for the log.
    fn place(&self) -> String;
}
