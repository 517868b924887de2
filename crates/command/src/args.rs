//! A request as a handler sees it: arguments by position, keys with their
//! hashes, the moment of execution and the limits in force.

use crate::settings::Settings;
use crate::wait::Waiting;
use keyspace::{DbIndex, Effects, Key, Keyspace};
use sys::UnixMs;
use wire::Request;

/// One request being executed.
#[derive(Clone, Copy)]
pub struct Args<'a> {
    /// The words of the request; word 0 is the command's name.
    pub request: Request<'a>,
    /// For hashing keys.
    pub keyspace: &'a Keyspace,
    /// The session's database.
    pub db: DbIndex,
    /// The moment at which this request runs; the same throughout.
    pub now: UnixMs,
    /// Limits and thresholds in force.
    pub settings: &'a Settings,
    /// Keys that were hashed ahead.
    pub hashed: Hashed<'a>,
    /// Whether the request may wait for its keys.
    pub waiting: Waiting<'a>,
    /// Where effects go, if they are logged: set by [`crate::execute`](fn@crate::execute).
    pub effects: Option<&'a Effects>,
    /// Who wants it.
    pub origin: Origin,
}

/// Who wants a request to be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A client, now.
    Client,
    /// A script of a client's.
    Script,
    /// A log: it says what was done once, and no limit or directive of today has a say in it.
    Log,
}

/// Keys whose hashes are known already: those at positions `first`, `first +
/// step`, ... of a request, in the session's database.
#[derive(Clone, Copy)]
pub struct Hashed<'a> {
    first: usize,
    step: usize,
    keys: &'a [Key<'a>],
}

impl<'a> Hashed<'a> {
    /// No key is.
    pub const NONE: Hashed<'static> = Hashed { first: 0, step: 1, keys: &[] };

    /// The keys from position `first` on, `step` apart.
    ///
    /// # Panics
    /// If `step` is 0.
    pub fn new(first: usize, step: usize, keys: &'a [Key<'a>]) -> Hashed<'a> {
        assert!(step > 0, "keys stand at different positions");
        Hashed { first, step, keys }
    }

    /// The key at a position, if it was hashed.
    #[inline]
    fn get(&self, position: usize) -> Option<Key<'a>> {
        let distance = position.wrapping_sub(self.first);
        let index = if self.step == 1 { distance } else { distance / self.step };
        self.keys.get(index).filter(|_| index * self.step == distance).copied()
    }
}

impl<'a> Args<'a> {
    /// A request that may not wait, of which nothing is logged or hashed ahead.
    pub fn new(
        request: Request<'a>,
        keyspace: &'a Keyspace,
        (db, now): (DbIndex, UnixMs),
        settings: &'a Settings,
    ) -> Args<'a> {
        let (hashed, waiting, effects) = (Hashed::NONE, Waiting::Never, None);
        Args { request, keyspace, db, now, settings, hashed, waiting, effects, origin: Origin::Client }
    }

    /// The same request as an effect that a log holds.
    pub fn of_log(self) -> Args<'a> {
        Args { origin: Origin::Log, ..self }
    }

    /// The same request as one that a script makes.
    pub fn of_script(self) -> Args<'a> {
        Args { origin: Origin::Script, ..self }
    }

    /// Whether a script makes it, whose results must not depend on how a value is kept.
    #[inline]
    pub fn is_of_script(&self) -> bool {
        self.origin == Origin::Script
    }

    /// Whether it is an effect that a log holds.
    #[inline]
    pub fn is_of_log(&self) -> bool {
        self.origin == Origin::Log
    }

    /// The moment at which it runs, for what notes that: `now` but for what a master wants, at which no time is up.
    pub fn present(&self) -> UnixMs {
        self.keyspace.present(self.now)
    }

    /// The longest string that the request may build, in bytes.
    pub fn string_bytes_max(&self) -> u64 {
        match self.origin {
            Origin::Client | Origin::Script => self.settings.string_bytes_max(),
            Origin::Log => u64::MAX,
        }
    }

    /// When a sparse HyperLogLog becomes a dense one, in bytes. A log says so where it was not bound to happen.
    pub(crate) fn sparse_bytes_max(&self) -> usize {
        match self.origin {
            Origin::Client | Origin::Script => self.settings.thresholds().hll_sparse_max_bytes,
            Origin::Log => usize::MAX,
        }
    }

    /// How many words the request has, the command's name counted.
    #[allow(clippy::len_without_is_empty)] // A request has at least its name.
    pub fn len(&self) -> usize {
        self.request.len()
    }

    /// Word `position`; 0 is the command's name.
    ///
    /// # Panics
    /// If there is no such word: a handler relies on its row's arity.
    #[inline]
    pub fn bytes(&self, position: usize) -> &'a [u8] {
        self.request.arg(position)
    }

    /// Word `position` as a key of the session's database.
    #[inline]
    pub fn key(&self, position: usize) -> Key<'a> {
        match self.hashed.get(position) {
            Some(key) => key,
            None => self.keyspace.key(self.db, self.bytes(position)),
        }
    }

    /// Word `position` as a key of another database.
    pub fn key_in(&self, db: DbIndex, position: usize) -> Key<'a> {
        self.keyspace.key(db, self.bytes(position))
    }

    /// Whether word `position` is `word`, in any case.
    pub fn is(&self, position: usize, word: &str) -> bool {
        self.bytes(position).eq_ignore_ascii_case(word.as_bytes())
    }
}
