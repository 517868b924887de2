//! Positions in the history of all that was written.

/// A position in the history of all effects. 0 is before the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp(pub u64);

impl Stamp {
    /// After all others.
    pub const LAST: Stamp = Stamp(u64::MAX);
}

/// What replies show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Up to where they show what was written.
    pub up_to: Stamp,
    /// Whether they tell somebody that what he wrote was done.
    pub is_write: bool,
}

impl Shown {
    /// Nothing of what was written.
    pub const NOTHING: Shown = Shown::read(Stamp(0));

    /// What was written by others.
    pub const fn read(up_to: Stamp) -> Shown {
        Shown { up_to, is_write: false }
    }
}
