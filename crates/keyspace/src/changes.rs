//! What an access changed, for those who want to know: watchers, caches kept by
//! tracking, subscribers of keyspace events, and sessions that wait for a key.
//!
//! An access notes changes only while somebody is interested ([`Interest`]), and
//! tells them to the one [`Observer`] before it unlocks its slots. What somebody
//! has seen of a key is therefore never newer than what watchers know of it.

use crate::Keyspace;
use crate::ids::DbIndex;
use std::sync::atomic::{AtomicU32, Ordering};

bitflags::bitflags! {
    /// Who is interested in changes.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Interest: u32 {
        /// Sessions watch keys: they want to know which were modified.
        const WATCHED = 1 << 0;
        /// So do clients that cache what they read.
        const TRACKED = 1 << 1;
        /// Somebody wants to know by what events keys changed.
        const EVENTS = 1 << 2;
        /// Sessions wait for keys.
        const WAITING = 1 << 3;
        /// Keys that clients write beside a master, and that expire, are remembered (see [`crate::beside`]).
        const BESIDE = 1 << 4;
    }
}

bitflags::bitflags! {
    /// Classes of keyspace events, as in `notify-keyspace-events`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Class: u32 {
        /// `g`: commands for any type.
        const GENERIC = 1 << 0;
        /// `$`: strings.
        const STRING = 1 << 1;
        /// `l`: lists.
        const LIST = 1 << 2;
        /// `s`: sets.
        const SET = 1 << 3;
        /// `h`: hashes.
        const HASH = 1 << 4;
        /// `z`: sorted sets.
        const ZSET = 1 << 5;
        /// `x`: a key's time was up.
        const EXPIRED = 1 << 6;
        /// `e`: memory was full.
        const EVICTED = 1 << 7;
        /// `t`: streams.
        const STREAM = 1 << 8;
        /// `m`: a read did not find its key.
        const MISS = 1 << 9;
        /// `n`: a key was made.
        const NEW = 1 << 10;
    }
}

/// One change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The key's database.
    pub db: DbIndex,
    /// Its bytes.
    pub key: Box<[u8]>,
    /// What happened.
    pub what: What,
}

/// What happened to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Its value or expiry is not what it was, or it came or went.
    Modified,
    /// It went, and its time was up before: which is nobody's doing, and nothing new for whoever had seen that.
    Over,
    /// It was taken away, and its time was up before: somebody's doing, but nothing new for whoever had seen that.
    Cleared,
    /// Nothing that watchers or caches would see, but whoever waits for it has to look again.
    Ready,
    /// The event that subscribers are told.
    Event(Class, &'static str),
}

/// Gets to know every change.
pub trait Observer: Send + Sync {
    /// Told by `worker` while the keys' slots are locked. It may take locks of its
    /// own, but none under which anyone enters the keyspace.
    fn observe(&self, worker: usize, changes: &[Change]);

    /// Told before all keys of a database go away (FLUSHDB) or others take their place
    /// (SWAPDB), with the keyspace held. `is_there` tells whether a key is, before or after.
    fn observe_database(&self, worker: usize, db: DbIndex, is_there: &dyn Fn(&[u8]) -> bool);

    /// Called where there is a journal when a batch comes to hold slots: what the observer is told by this thread until
    /// [`Observer::end_group`] is not in the journal yet.
    fn begin_group(&self) {}

    /// Called by the same thread when it is, and before the slots are let go.
    fn end_group(&self) {}
}

/// The interest at present: in the lower half who is interested, in the upper what is muted of that.
#[derive(Debug, Default)]
pub(crate) struct Interests(AtomicU32);

const MUTED_SHIFT: u32 = 16;
const _: () = assert!(Interest::all().bits() >> MUTED_SHIFT == 0);

impl Interests {
    #[inline]
    pub(crate) fn get(&self) -> Interest {
        let bits = self.0.load(Ordering::Relaxed);
        Interest::from_bits_truncate(bits & !(bits >> MUTED_SHIFT))
    }

    pub(crate) fn mute(&self, what: Interest, on: bool) {
        let bits = what.bits() << MUTED_SHIFT;
        match on {
            true => self.0.fetch_or(bits, Ordering::Relaxed),
            false => self.0.fetch_and(!bits, Ordering::Relaxed),
        };
    }

    pub(crate) fn set(&self, flag: Interest, on: bool) {
        if on {
            self.0.fetch_or(flag.bits(), Ordering::Relaxed);
        } else {
            self.0.fetch_and(!flag.bits(), Ordering::Relaxed);
        }
    }
}

impl Keyspace {
    /// Has nobody told of what is done once more, who is interested or not, until that is over.
    pub fn mute(&self, on: bool) {
        self.interests.mute(Interest::EVENTS | Interest::WAITING | Interest::BESIDE, on);
    }
}
