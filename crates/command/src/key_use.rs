//! What commands do with their keys: the key specifications of COMMAND INFO, which
//! clients and proxies route by and ACL key permissions check.
//!
//! Most rows need not say anything: the specification follows from the key
//! positions, and the use from whether the command reads or writes. A row says
//! `key_flags` where a write is no plain update or keys differ in their use, and
//! `key_specs` where the positions are movable.

use crate::row::{Flags, Keys, Row};

bitflags::bitflags! {
    /// What happens to a key, with the names of COMMAND INFO and COMMAND
    /// GETKEYSANDFLAGS in their order.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct KeyFlags: u16 {
        /// Read only.
        const RO = 1 << 0;
        /// Read and written.
        const RW = 1 << 1;
        /// Overwritten, whatever was there.
        const OW = 1 << 2;
        /// Removed.
        const RM = 1 << 3;
        /// What it holds comes back to the client, or is copied.
        const ACCESS = 1 << 4;
        /// Its value changes in a way that depends on the value before or on arguments.
        const UPDATE = 1 << 5;
        /// Something is added, and nothing that was there changes.
        const INSERT = 1 << 6;
        /// Something is taken away.
        const DELETE = 1 << 7;
        /// Not a key, but routed like one.
        const NOT_KEY = 1 << 8;
        /// There may be further keys that this does not find.
        const INCOMPLETE = 1 << 9;
        /// The flags depend on the arguments.
        const VARIABLE_FLAGS = 1 << 10;
    }
}

/// What reading commands do with their keys unless their row says otherwise.
pub const READS: KeyFlags = KeyFlags::RO.union(KeyFlags::ACCESS);
/// What writing commands do with their keys unless their row says otherwise.
pub const UPDATES: KeyFlags = KeyFlags::RW.union(KeyFlags::UPDATE);
/// A plain look at a key that returns nothing of its value (TTL, EXISTS).
pub const LOOKS: KeyFlags = KeyFlags::RO;
/// A value is replaced by another.
pub const OVERWRITES: KeyFlags = KeyFlags::OW.union(KeyFlags::UPDATE);
/// A value is added to.
pub const INSERTS: KeyFlags = KeyFlags::RW.union(KeyFlags::INSERT);
/// A part of a value is taken away.
pub const DELETES: KeyFlags = KeyFlags::RW.union(KeyFlags::DELETE);
/// A part of a value is taken away and returned.
pub const TAKES: KeyFlags = KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::DELETE);
/// A value changes and is returned.
pub const EXCHANGES: KeyFlags = KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::UPDATE);
/// A key is removed with its value.
pub const REMOVES: KeyFlags = KeyFlags::RM.union(KeyFlags::DELETE);

/// Where to begin looking for keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// At this word; the command's name is word 0.
    Index(usize),
    /// Behind this word, looked for from a position; from the end if negative.
    Keyword(&'static str, i64),
    /// Only the command's own rules tell.
    Unknown,
}

/// Which words from there on are keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Find {
    /// Every `step`th up to `last` words further; a negative `last` counts from
    /// the end of the request, and `limit` then says which part of the words
    /// that remain are keys (2 is the first half).
    Range {
        /// The last key.
        last: i64,
        /// From one key to the next.
        step: i64,
        /// 0 or 1 is no limit.
        limit: i64,
    },
    /// A word tells their number.
    Numkeys {
        /// Where it stands.
        number: i64,
        /// Where the first key stands.
        first: i64,
        /// From one key to the next.
        step: i64,
    },
    /// Only the command's own rules tell.
    Unknown,
}

/// One key specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeySpec {
    /// Where to begin.
    pub begin: Begin,
    /// What to find.
    pub find: Find,
    /// What happens to the keys found.
    pub flags: KeyFlags,
}

impl KeySpec {
    /// A key that the command's own rules find (SORT's STORE).
    pub const fn unknown(flags: KeyFlags) -> KeySpec {
        KeySpec { begin: Begin::Unknown, find: Find::Unknown, flags }
    }

    /// The one key at a position.
    pub const fn at(index: usize, flags: KeyFlags) -> KeySpec {
        KeySpec { begin: Begin::Index(index), find: Find::Range { last: 0, step: 1, limit: 0 }, flags }
    }

    /// As many keys as the word at `index` says, right behind it.
    pub const fn numkeys(index: usize, flags: KeyFlags) -> KeySpec {
        KeySpec { begin: Begin::Index(index), find: Find::Numkeys { number: 0, first: 1, step: 1 }, flags }
    }
}

impl<H> Row<H> {
    /// The specifications of the row's keys. With several `key_flags` all but the
    /// last are those of single keys from the first position on, and the last is
    /// that of all keys that remain.
    pub fn key_specifications(&self) -> Vec<KeySpec> {
        let Keys::Range { first, last, step } = self.keys else { return self.key_specs.to_vec() };
        if !self.key_specs.is_empty() {
            return self.key_specs.to_vec();
        }
        let flags = if self.key_flags.is_empty() { &[self.usual_key_flags()][..] } else { self.key_flags };
        let singles = flags.len() - 1;
        let single = |number: usize| KeySpec::at(first + number * step, flags[number]);
        let begin = first + singles * step;
        let last = if last < 0 { last as i64 } else { last as i64 - begin as i64 };
        let rest = KeySpec {
            begin: Begin::Index(begin),
            find: Find::Range { last, step: step as i64, limit: 0 },
            flags: flags[singles],
        };
        (0..singles).map(single).chain([rest]).collect()
    }

    /// What happens to the key at a place among the keys of a request. Where only
    /// specifications tell, keys behind the first count as the last one's.
    pub fn key_flags_of(&self, number: usize) -> KeyFlags {
        let of_keys = self.key_flags.get(number).or(self.key_flags.last()).copied();
        let spec = if number == 0 { self.key_specs.first() } else { self.key_specs.last() };
        of_keys.or(spec.map(|spec| spec.flags)).unwrap_or_else(|| self.usual_key_flags())
    }

    fn usual_key_flags(&self) -> KeyFlags {
        if self.flags.contains(Flags::WRITE) { UPDATES } else { READS }
    }
}
