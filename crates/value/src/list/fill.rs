//! How much one node of a list holds: the meaning of `list-max-listpack-size`.
//!
//! A negative setting chooses a size (-1 to -5: 4 to 64 KB), any other a number of elements, in at most
//! [`COUNTED_BYTES_MAX`]. A list is compact as long as one node would hold it. Pure, any thread.

use crate::limits::LIST_NODE_COUNTED_BYTES_MAX as COUNTED_BYTES_MAX;

/// The limit of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// A size in bytes.
    Bytes(usize),
    /// A number of elements, at least one.
    Count(usize),
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
    pub fn from_setting(setting: i32) -> Self {
        match setting {
            1.. => Self::Count(setting as usize),
            0 => Self::Count(1),
            -4..0 => Self::Bytes(2048 << -setting),
            _ => Self::Bytes(65_536),
        }
    }

    /// Whether a listpack of this size and count is more than a node may hold.
    pub fn is_exceeded(self, bytes: usize, count: usize) -> bool {
        match self {
            Self::Bytes(max) => bytes > max,
            Self::Count(max) => bytes > COUNTED_BYTES_MAX || count > max,
        }
    }

    /// The size that a node may grow to.
    pub fn bytes_max(self) -> usize {
        match self {
            Self::Bytes(max) => max,
            Self::Count(_) => COUNTED_BYTES_MAX,
        }
    }

    /// Whether a text needs a plain node of its own.
    pub fn is_large(self, text_bytes: usize) -> bool {
        text_bytes > self.bytes_max()
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
        match self {
            Self::Bytes(max) => bytes <= max / share,
            Self::Count(max) => count <= max / share,
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
            assert_eq!(Fill::from_setting(setting), Fill::Bytes(bytes), "{setting}");
        }
        assert_eq!(Fill::from_setting(0), Fill::Count(1));
        assert_eq!(Fill::from_setting(128), Fill::Count(128));
    }

    #[test]
    fn counted_nodes_have_a_size_limit_too() {
        let fill = Fill::Count(3);
        assert!(!fill.is_exceeded(8192, 3));
        assert!(fill.is_exceeded(8193, 1));
        assert!(fill.is_exceeded(20, 4));
        assert!(fill.is_large(8193));
        assert!(!fill.admits(100, 1, 8192 - 107));
    }
}
