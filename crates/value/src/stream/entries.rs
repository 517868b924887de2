//! The entries of a stream, in nodes, with its counters.
//!
//! Nodes end where Redis ends them, so that trimming by whole nodes removes the same entries and DUMP
//! copies the nodes.
//!
//! 1. Ids ascend over all nodes, and none is above `last_id`.
//! 2. `length` is the number of live entries, `first_id` the id of the first one; 0-0 if there is none.
//! 3. No node is without any entry, but one may be without a live one.

use std::collections::BTreeMap;

use super::id::{NewId, StreamId};
use super::node::{Entry, Node};
use super::range::{Order, Range};
use crate::limits::LISTPACK_BYTES_MAX;

/// When a node is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeLimits {
    /// `stream-node-max-bytes`; 0 is as many as possible.
    pub bytes_max: u64,
    /// `stream-node-max-entries`; 0 is as many as fit.
    pub entries_max: u64,
}

/// Why an entry is not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendError {
    /// The id is not above the last one.
    IdTooSmall,
    /// The words are longer than a node may be.
    TooLong,
}

/// Why the last id and the counters cannot be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetIdError {
    /// An id above it was deleted.
    BelowDeleted,
    /// It is below the last entry.
    BelowLastEntry,
    /// More entries are there than are said to have been added.
    BelowLength,
}

/// The entries of a stream, and what is remembered of those that are gone.
#[derive(Clone, Debug, Default)]
pub struct Entries {
    pub(super) nodes: BTreeMap<StreamId, Node>,
    pub(super) length: u64,
    pub(super) last_id: StreamId,
    pub(super) first_id: StreamId,
    pub(super) max_deleted_id: StreamId,
    pub(super) entries_added: u64,
}

impl Entries {
    /// How many entries there are.
    pub fn len(&self) -> u64 {
        self.length
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The highest id that was ever given, or set.
    pub fn last_id(&self) -> StreamId {
        self.last_id
    }

    /// The id of the first entry; 0-0 if there is none.
    pub fn first_id(&self) -> StreamId {
        self.first_id
    }

    /// The highest id that was deleted by name; 0-0 if none was.
    pub fn max_deleted_id(&self) -> StreamId {
        self.max_deleted_id
    }

    /// How many entries were ever added.
    pub fn entries_added(&self) -> u64 {
        self.entries_added
    }

    /// How many nodes the entries lie in.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// The id of the last entry that is there.
    pub fn last_entry_id(&self) -> Option<StreamId> {
        self.range(StreamId::MIN, StreamId::MAX, Order::Descending).next().map(|entry| entry.id)
    }

    /// Whether there is an entry above an id.
    #[inline]
    pub fn has_above(&self, id: StreamId) -> bool {
        // Most readers are told no by the first test.
        self.length > 0 && self.last_id > id && self.last_entry_id().is_some_and(|last| last > id)
    }

    /// The entry of an id.
    pub fn entry(&self, id: StreamId) -> Option<Entry<'_>> {
        self.range(id, id, Order::Ascending).next()
    }

    /// The id that an entry added now gets. It need not be free: [`Stream::append`] checks that.
    pub fn next_id(&self, id: NewId, now_ms: u64) -> Option<StreamId> {
        match id {
            NewId::Exact(id) => Some(id),
            NewId::AutoSeq(ms) if ms == self.last_id.ms => {
                Some(StreamId::new(ms, self.last_id.seq.checked_add(1)?))
            }
            NewId::AutoSeq(ms) => Some(StreamId::new(ms, 0)),
            NewId::Auto if now_ms > self.last_id.ms => Some(StreamId::new(now_ms, 0)),
            NewId::Auto => self.last_id.next(),
        }
    }

    /// Adds an entry: `words` are names and values in turns, an even number of them and at least two.
    ///
    /// # Errors
    /// [`AppendError`]; then nothing changes.
    #[inline]
    pub fn append<'w>(
        &mut self,
        id: StreamId,
        words: impl Iterator<Item = &'w [u8]> + Clone,
        limits: NodeLimits,
    ) -> Result<(), AppendError> {
        if id <= self.last_id {
            return Err(AppendError::IdTooSmall);
        }
        let bytes: usize = words.clone().map(<[u8]>::len).sum();
        if bytes > LISTPACK_BYTES_MAX {
            return Err(AppendError::TooLong);
        }
        match self.nodes.last_entry() {
            Some(mut last) if limits.admit(last.get(), bytes) => {
                let node_id = *last.key();
                let (ms, seq) = (id.ms.wrapping_sub(node_id.ms), id.seq.wrapping_sub(node_id.seq));
                last.get_mut().append(ms, seq, words);
            }
            last => {
                if let Some(mut full) = last {
                    full.get_mut().seal();
                }
                self.nodes.insert(id, Node::new(words));
            }
        }
        self.length += 1;
        self.entries_added = self.entries_added.wrapping_add(1);
        self.last_id = id;
        if self.length == 1 {
            self.first_id = id;
        }
        Ok(())
    }

    /// Deletes an entry. False: it is not there.
    pub fn delete(&mut self, id: StreamId) -> bool {
        let Some((node_id, node)) = self.nodes.range_mut(..=id).next_back() else { return false };
        let node_id = *node_id;
        if node.counts().live == 1 {
            // The last live entry takes its node along.
            if node.entries(node_id).next().is_none_or(|entry| entry.id != id) {
                return false;
            }
            self.nodes.remove(&node_id);
        } else if !node.delete(node_id, id) {
            return false;
        }
        self.length -= 1;
        self.max_deleted_id = self.max_deleted_id.max(id);
        if id == self.first_id {
            self.find_first();
        }
        true
    }

    /// Finds the first entry anew.
    pub(super) fn find_first(&mut self) {
        let first = self.range(StreamId::MIN, StreamId::MAX, Order::Ascending).next();
        self.first_id = first.map_or(StreamId::MIN, |entry| entry.id);
    }

    /// The entries from `start` to `end`, both included.
    #[inline]
    pub fn range(&self, start: StreamId, end: StreamId, order: Order) -> Range<'_> {
        Range::new(&self.nodes, start, end, order)
    }

    /// Sets the last id, and where given the count of entries ever added and the highest id deleted (0-0 is
    /// not given).
    ///
    /// # Errors
    /// [`SetIdError`]; then nothing changes.
    pub fn set_last_id(
        &mut self,
        id: StreamId,
        entries_added: Option<u64>,
        max_deleted_id: StreamId,
    ) -> Result<(), SetIdError> {
        if id < self.max_deleted_id {
            return Err(SetIdError::BelowDeleted);
        }
        if self.last_entry_id().is_some_and(|last| id < last) {
            return Err(SetIdError::BelowLastEntry);
        }
        if entries_added.is_some_and(|added| self.length > added) {
            return Err(SetIdError::BelowLength);
        }
        self.last_id = id;
        self.entries_added = entries_added.unwrap_or(self.entries_added);
        if !max_deleted_id.is_zero() {
            self.max_deleted_id = max_deleted_id;
        }
        Ok(())
    }
}

impl Entries {
    /// Bytes of memory, estimated from at most `samples` nodes.
    pub(super) fn allocated_bytes(&self, samples: usize) -> usize {
        let nodes = self.nodes.values().map(|node| size_of::<(StreamId, Node)>() + node.memory_bytes());
        super::estimate(nodes, samples)
    }
}

impl NodeLimits {
    /// Whether a node takes another entry of so many bytes.
    #[inline]
    fn admit(self, node: &Node, bytes: usize) -> bool {
        let bytes_max = match self.bytes_max {
            0 => LISTPACK_BYTES_MAX,
            bytes_max => usize::try_from(bytes_max).unwrap_or(usize::MAX).min(LISTPACK_BYTES_MAX),
        };
        if node.len_bytes() + bytes >= bytes_max {
            return false;
        }
        let counts = node.counts();
        self.entries_max == 0 || counts.live + counts.deleted < self.entries_max
    }
}
