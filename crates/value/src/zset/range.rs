//! Ranges of scores and of members.
//!
//! Each says of an element whether it lies before the range and whether behind. Along
//! a sorted set the first holds up to some place and the second from some place on,
//! so that both ends are found by bisection.
//!
//! Thread rule: plain values.

/// An end of a range of scores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScoreBound {
    /// The score; infinite where there is no end.
    pub score: f64,
    /// Whether the score itself is outside.
    pub is_exclusive: bool,
}

/// Scores between two.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScoreRange {
    /// The lower end.
    pub min: ScoreBound,
    /// The upper end.
    pub max: ScoreBound,
}

impl ScoreRange {
    /// Whether a score lies before the range.
    pub fn is_before(&self, score: f64) -> bool {
        if self.min.is_exclusive { score <= self.min.score } else { score < self.min.score }
    }

    /// Whether a score lies behind the range.
    pub fn is_behind(&self, score: f64) -> bool {
        if self.max.is_exclusive { score >= self.max.score } else { score > self.max.score }
    }
}

/// An end of a range of members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LexBound<'a> {
    /// Before all members: `-`.
    Lowest,
    /// Behind all members: `+`.
    Highest,
    /// At this member, which is inside: `[`.
    Inclusive(&'a [u8]),
    /// At this member, which is outside: `(`.
    Exclusive(&'a [u8]),
}

/// Members between two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LexRange<'a> {
    /// The lower end.
    pub min: LexBound<'a>,
    /// The upper end.
    pub max: LexBound<'a>,
}

impl LexRange<'_> {
    /// Whether a member lies before the range.
    pub fn is_before(&self, member: &[u8]) -> bool {
        match self.min {
            LexBound::Lowest => false,
            LexBound::Highest => true,
            LexBound::Inclusive(min) => member < min,
            LexBound::Exclusive(min) => member <= min,
        }
    }

    /// Whether a member lies behind the range.
    pub fn is_behind(&self, member: &[u8]) -> bool {
        match self.max {
            LexBound::Lowest => true,
            LexBound::Highest => false,
            LexBound::Inclusive(max) => member > max,
            LexBound::Exclusive(max) => member >= max,
        }
    }

    /// Whether the ends leave nothing between them.
    pub fn is_empty(&self) -> bool {
        use LexBound::{Exclusive, Highest, Inclusive, Lowest};
        match (self.min, self.max) {
            (Highest, _) | (_, Lowest) => true,
            (Lowest, _) | (_, Highest) => false,
            (Inclusive(min), Inclusive(max)) => min > max,
            (Inclusive(min) | Exclusive(min), Inclusive(max) | Exclusive(max)) => min >= max,
        }
    }
}
