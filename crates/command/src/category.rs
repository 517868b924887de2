//! ACL categories: what `+@write` and COMMAND INFO name, derived from a row.
//!
//! Thread rule: pure functions of a row; any thread.
//!
//! A row says by hand only what its group and flags do not imply, as in Redis.

use crate::row::{Flags, Group, Row};

bitflags::bitflags! {
    /// ACL categories, in the order and with the names of Redis (in lower case, behind an `@`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Categories: u32 {
        /// Keys whatever they hold.
        const KEYSPACE = 1 << 0;
        /// Only reads data.
        const READ = 1 << 1;
        /// Changes data.
        const WRITE = 1 << 2;
        /// Sets.
        const SET = 1 << 3;
        /// Sorted sets.
        const SORTEDSET = 1 << 4;
        /// Lists.
        const LIST = 1 << 5;
        /// Hashes.
        const HASH = 1 << 6;
        /// Strings.
        const STRING = 1 << 7;
        /// Bitmaps.
        const BITMAP = 1 << 8;
        /// HyperLogLogs.
        const HYPERLOGLOG = 1 << 9;
        /// Positions on the earth.
        const GEO = 1 << 10;
        /// Streams.
        const STREAM = 1 << 11;
        /// Publish and subscribe.
        const PUBSUB = 1 << 12;
        /// For administrators.
        const ADMIN = 1 << 13;
        /// Constant or logarithmic time.
        const FAST = 1 << 14;
        /// Everything that is not fast.
        const SLOW = 1 << 15;
        /// May block the session.
        const BLOCKING = 1 << 16;
        /// To be thought about twice.
        const DANGEROUS = 1 << 17;
        /// The connection itself.
        const CONNECTION = 1 << 18;
        /// Transactions.
        const TRANSACTION = 1 << 19;
        /// Scripts.
        const SCRIPTING = 1 << 20;
    }
}

impl<H> Row<H> {
    /// The categories that a row belongs to.
    pub fn categories(&self) -> Categories {
        let mut all = self.more_categories;
        if !self.flags.contains(Flags::PROTECTED) {
            all |= of_group(self.group);
        }
        for (flag, implied) in IMPLIED {
            if self.flags.contains(flag) {
                all |= implied;
            }
        }
        if all.contains(Categories::SCRIPTING) {
            all -= Categories::READ;
        }
        all | if self.flags.contains(Flags::FAST) { Categories::FAST } else { Categories::SLOW }
    }
}

const IMPLIED: [(Flags, Categories); 6] = [
    (Flags::WRITE, Categories::WRITE),
    (Flags::READONLY, Categories::READ),
    (Flags::ADMIN, Categories::ADMIN.union(Categories::DANGEROUS)),
    (Flags::PUBSUB, Categories::PUBSUB),
    (Flags::BLOCKING, Categories::BLOCKING),
    (Flags::DANGEROUS, Categories::DANGEROUS),
];

fn of_group(group: Group) -> Categories {
    match group {
        Group::Generic => Categories::KEYSPACE,
        Group::String => Categories::STRING,
        Group::Bitmap => Categories::BITMAP,
        Group::List => Categories::LIST,
        Group::Hash => Categories::HASH,
        Group::Set => Categories::SET,
        Group::SortedSet => Categories::SORTEDSET,
        Group::Geo => Categories::GEO,
        Group::Stream => Categories::STREAM,
        Group::HyperLogLog => Categories::HYPERLOGLOG,
        Group::Pubsub => Categories::PUBSUB,
        Group::Transactions => Categories::TRANSACTION,
        Group::Scripting => Categories::SCRIPTING,
        Group::Connection => Categories::CONNECTION,
        Group::Cluster | Group::Server => Categories::empty(),
    }
}
