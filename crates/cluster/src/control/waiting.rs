//! Moves that wait: when each goes on, and, for people, what it waits for until then.

use super::Control;
use super::moves::{PAUSE, PAUSE_MAX};
use super::plan::Draft;
use super::view::View;
use replication::insync::Moment;
use std::time::Duration;
use topology::{Move, Stage};

impl Control {
    /// It goes on once nothing keeps it, and an attempt that came to nothing is some time ago.
    pub(super) fn plan_waiting(&mut self, draft: &mut Draft, one: Move, now: Moment) {
        let since = self.moves_mut().waits_since(&one, now);
        let pause = match one.attempt {
            0 | 1 => Duration::ZERO,
            later => (PAUSE * 2_u32.saturating_pow(later - 2)).min(PAUSE_MAX),
        };
        if self.why_waits(&draft.after, &one, now).is_none() && now.since(since) >= pause {
            draft.put_move(Move { stage: Stage::Copying, ..one });
        }
    }

    /// What keeps a move: what it is about cannot be read, a shard has no master that lives, or takes part in another move; None: nothing.
    pub(super) fn why_waits(&self, view: &View, one: &Move, now: Moment) -> Option<String> {
        let shards = [one.from, one.to];
        // One that cannot be read may be of the same shards.
        if let Some(why) = view.why_stands_still(one).or_else(|| view.why_senseless("moves/")) {
            return Some(why);
        }
        if let Some(shard) = shards.iter().find(|shard| !self.has_living_master(view, **shard, now)) {
            return Some(format!("shard {shard} has no master that is heard of"));
        }
        let mut others = view.moves.values().filter(|other| other.id != one.id && other.is_under_way());
        let first = others.find(|other| [other.from, other.to].iter().any(|it| shards.contains(it)));
        first.map(|first| format!("move {} is first", first.id))
    }
}
