//! Which servers a client has written to, for its WAIT. Pure.

use crate::upstream::NodeNo;

/// The last place stands for this server and all behind it.
const PLACES: u32 = u64::BITS;
const ALL: u64 = u64::MAX;

/// The servers that a client has written to, or more than these: all of them where slots have gone elsewhere meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// A bit for each.
    to: u64,
    /// By these routes.
    version: u64,
}

impl Written {
    /// A server is written to, by routes of this version.
    #[inline]
    pub fn note(&mut self, node: NodeNo, version: u64) {
        if self.version != version {
            self.to = if self.to == 0 { 0 } else { ALL };
            self.version = version;
        }
        self.to |= 1 << u32::from(node).min(PLACES - 1);
    }

    /// Any server may have been written to.
    pub fn note_any(&mut self) {
        self.to = ALL;
    }

    /// Whether none was written to.
    pub fn is_nothing(self) -> bool {
        self.to == 0
    }

    /// Whether a server may have been written to, by routes of this version.
    pub fn has(self, node: NodeNo, version: u64) -> bool {
        let to = if self.version == version || self.is_nothing() { self.to } else { ALL };
        to & (1 << u32::from(node).min(PLACES - 1)) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_told_apart_while_slots_stay_where_they_are() {
        let mut written = Written::default();
        assert!(written.is_nothing() && !written.has(0, 0) && !written.has(0, 1));
        written.note(2, 5);
        assert!(written.has(2, 5) && !written.has(1, 5) && !written.is_nothing());
        assert!(written.has(1, 6), "it may be the successor of the one that was written to");
        let mut later = written;
        later.note(3, 6);
        assert!(later.has(3, 6) && later.has(1, 6));
        written.note(200, 5);
        assert!(written.has(63, 5) && written.has(900, 5) && !written.has(62, 5));
        written.note_any();
        assert!(written.has(1, 5));
    }
}
