//! How much one node of a list holds: the meaning of `list-max-listpack-size`.
//!
//! A negative setting chooses a size (-1 to -5: 4 to 64 KB), any other a number of elements, in at most
//! [`COUNTED_BYTES_MAX`]. A list is compact as long as one node would hold it. Texts that no node would hold, or that
//! tests say are too long for one, lie in nodes of their own. Pure, any thread.

use crate::collection::Thresholds;
use crate::limits::LIST_NODE_COUNTED_BYTES_MAX as COUNTED_BYTES_MAX;

/// The limit of a node. Every list that has several nodes has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fill {
    limit: Limit,
    plain_bytes_min: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limit {
    /// A size in bytes.
    Bytes(u32),
    /// A number of elements, at least one.
    Count(u32),
}

/// What a list of a single node must fit to become compact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// The limit itself: a list that was just loaded.
    Whole,
    /// Half the limit: one that has shrunk, so that it does not change to and fro.
    Half,
}

/// What is added to an element's length to estimate its entry.
pub(super) const ENTRY_OVERHEAD_BYTES: usize = 8;

impl Fill {
    /// Of a value of `list-max-listpack-size`.
    #[inline]
    pub fn from_setting(setting: i32) -> Self {
        match setting {
            0.. => Self::count(setting.unsigned_abs().max(1)),
            -4..0 => Self::bytes(2048 << -setting),
            _ => Self::bytes(65_536),
        }
    }

    /// What a setting means, and from which length on texts lie by themselves.
    #[inline]
    pub fn of(thresholds: &Thresholds) -> Self {
        let plain_bytes_min = u32::try_from(thresholds.list_plain_bytes_min).unwrap_or(u32::MAX);
        Self { plain_bytes_min, ..Self::from_setting(thresholds.list_max_listpack_size) }
    }

    /// Nodes of so many bytes.
    pub const fn bytes(max: u32) -> Self {
        Self { limit: Limit::Bytes(max), plain_bytes_min: u32::MAX }
    }

    /// Nodes of so many elements.
    pub const fn count(max: u32) -> Self {
        Self { limit: Limit::Count(max), plain_bytes_min: u32::MAX }
    }

    /// Whether a listpack of this size and count is more than a node may hold.
    pub fn is_exceeded(self, bytes: usize, count: usize) -> bool {
        match self.limit {
            Limit::Bytes(max) => bytes > max as usize,
            Limit::Count(max) => bytes > COUNTED_BYTES_MAX || count > max as usize,
        }
    }

    /// The size that a node may grow to.
    pub fn bytes_max(self) -> usize {
        match self.limit {
            Limit::Bytes(max) => max as usize,
            Limit::Count(_) => COUNTED_BYTES_MAX,
        }
    }

    /// Whether a text needs a plain node of its own.
    pub fn is_large(self, text_bytes: usize) -> bool {
        text_bytes > self.bytes_max() || text_bytes >= self.plain_bytes_min as usize
    }

    /// Whether a text may join the elements of a node.
    pub fn admits(self, bytes: usize, count: usize, text_bytes: usize) -> bool {
        !self.is_large(text_bytes) && !self.is_exceeded(bytes + text_bytes + ENTRY_OVERHEAD_BYTES, count + 1)
    }

    /// Whether a list's only node is small enough for the list to become compact.
    pub fn is_compact(self, bytes: usize, count: usize, room: Room) -> bool {
        let share = match room {
            Room::Whole => 1,
            Room::Half => 2,
        };
        match self.limit {
            Limit::Bytes(max) => bytes <= max as usize / share,
            Limit::Count(max) => count <= max as usize / share,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_mean_sizes_or_counts() {
        let fills = [(-1, 4096), (-2, 8192), (-3, 16_384), (-4, 32_768), (-5, 65_536), (i32::MIN, 65_536)];
        for (setting, bytes) in fills {
            assert_eq!(Fill::from_setting(setting), Fill::bytes(bytes), "{setting}");
        }
        assert_eq!(Fill::from_setting(0), Fill::count(1));
        assert_eq!(Fill::from_setting(128), Fill::count(128));
    }

    #[test]
    fn counted_nodes_have_a_size_limit_too() {
        let fill = Fill::count(3);
        assert!(!fill.is_exceeded(8192, 3));
        assert!(fill.is_exceeded(8193, 1));
        assert!(fill.is_exceeded(20, 4));
        assert!(fill.is_large(8193));
        assert!(!fill.admits(100, 1, 8192 - 107));
    }

    #[test]
    fn tests_say_from_when_on_texts_lie_by_themselves() {
        let fill = Fill::of(&Thresholds { list_plain_bytes_min: 10, ..Thresholds::default() });
        assert_eq!((fill.is_large(9), fill.is_large(10)), (false, true));
        assert_eq!(fill.bytes_max(), 8192);
    }
}
