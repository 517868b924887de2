//! Positions in the history of all that was written.

/// A position in the history of all effects. 0 is before the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp(pub u64);

impl Stamp {
    /// After all others.
    pub const LAST: Stamp = Stamp(u64::MAX);
}
