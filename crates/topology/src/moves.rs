//! Slots on their way from one shard to another.
//!
//! The owner of the slots is the shard that they leave until the move is over, and the shard to which they go from then on: in one change.

use crate::ids::ShardId;
use crate::slots::SlotRange;

/// How far a move is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Others come first: a shard takes part in one move at a time.
    Waiting,
    /// What the slots hold is copied, while they are served where they were.
    Copying,
    /// Who gives the slots away answers no request for them until it knows whether they are gone.
    Switching,
    /// It has ended without any change, for this reason.
    Failed(String),
}

/// A move of slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// Which: no other ever has this number.
    pub id: u64,
    /// The shard that has the slots.
    pub from: ShardId,
    /// The shard that gets them.
    pub to: ShardId,
    /// Rises with each beginning anew. What was said of an earlier attempt counts for nothing.
    pub attempt: u32,
    /// How far it is.
    pub stage: Stage,
    /// The slots: at least one, from the lowest on, as few ranges as there can be.
    pub slots: Vec<SlotRange>,
}

impl Move {
    /// How many slots move.
    #[must_use]
    pub fn count(&self) -> usize {
        self.slots.iter().map(|range| range.len()).sum()
    }

    /// Whether a slot moves.
    #[must_use]
    pub fn contains(&self, slot: u16) -> bool {
        self.slots.iter().any(|range| range.contains(slot))
    }

    /// Each slot that moves, from the lowest on.
    pub fn each_slot(&self) -> impl Iterator<Item = u16> + '_ {
        self.slots.iter().flat_map(|range| range.slots())
    }

    /// How far it has come: it never goes back.
    #[must_use]
    pub fn progress(&self) -> (u32, u8) {
        let stage = match self.stage {
            Stage::Waiting => 0,
            Stage::Copying => 1,
            Stage::Switching => 2,
            Stage::Failed(_) => 3,
        };
        (self.attempt, stage)
    }

    /// Whether it is under way: both shards have to do with it now.
    #[must_use]
    pub fn is_under_way(&self) -> bool {
        matches!(self.stage, Stage::Copying | Stage::Switching)
    }
}
