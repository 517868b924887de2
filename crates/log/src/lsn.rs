//! Positions in the log.

use std::fmt;

/// A position in the history of all payload bytes since the beginning of the log; what surrounds payloads on disk
/// does not count. A record that was appended up to an Lsn is durable when the log is durable up to that Lsn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

impl Lsn {
    /// Where history begins.
    pub const ZERO: Lsn = Lsn(0);

    /// The position `bytes` further on.
    #[inline]
    #[must_use]
    pub fn plus(self, bytes: u64) -> Lsn {
        Lsn(self.0 + bytes)
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}
