//! How far a group has read, counted in entries, and how many are still before it.
//!
//! The stream counts what was ever added, so a group that has read everything up to some entry knows its
//! number. A deleted entry breaks that: then the number is only known at the edges of the stream. The rules
//! are Redis', so that XINFO gives the same numbers, and none where Redis gives none.

use super::entries::Entries;
use super::group::Group;
use super::id::StreamId;

impl Entries {
    /// How many entries the group has not read yet; none if that is not known.
    pub fn lag(&self, group: &Group) -> Option<i64> {
        if self.entries_added == 0 {
            return Some(0);
        }
        let read = match group.entries_read {
            Some(read) if !self.has_deleted_from(group.last_id) => Some(read),
            _ => self.number_of(group.last_id),
        };
        read.map(|read| (self.entries_added as i64).wrapping_sub(read))
    }

    /// Moves a group on to an entry that it is about to deliver, if it is not there yet.
    pub fn advance(&self, group: &mut Group, id: StreamId) {
        if id <= group.last_id {
            return;
        }
        match group.entries_read {
            Some(read) if !self.has_deleted_from(id) => group.entries_read = Some(read.wrapping_add(1)),
            _ if self.entries_added > 0 => group.entries_read = self.number_of(id),
            _ => {}
        }
        group.last_id = id;
    }

    /// Whether the highest deleted id is this one or one above it, and above the first entry.
    fn has_deleted_from(&self, id: StreamId) -> bool {
        let is_among_entries = !self.max_deleted_id.is_zero() && self.max_deleted_id >= self.first_id;
        self.length > 0 && is_among_entries && id <= self.max_deleted_id
    }

    /// How many entries had been added when the one of this id was; none if that is not known.
    pub(super) fn number_of(&self, id: StreamId) -> Option<i64> {
        let added = self.entries_added as i64;
        if self.entries_added == 0 {
            return Some(0);
        }
        if id == self.last_id || (self.length == 0 && id < self.last_id) {
            return Some(added);
        }
        let is_whole = self.max_deleted_id.is_zero() || self.max_deleted_id < self.first_id;
        if id > self.last_id || !is_whole {
            return None;
        }
        let before_first = added.wrapping_sub(self.length as i64);
        match id.cmp(&self.first_id) {
            std::cmp::Ordering::Less => Some(before_first),
            std::cmp::Ordering::Equal => Some(before_first.wrapping_add(1)),
            std::cmp::Ordering::Greater => None,
        }
    }
}
