//! What as many replicas have as must have a write before it is acknowledged (`min-sync-replicas`), as far as it is known without the
//! server. Who acts on it is above (`feeding/synced`).
//!
//! Thread rule: any thread; one lock, of the standing. Who has it may take that of [`super::State`], not the other way round.

use super::Feeding;
use super::replica::{Form, Identity, Replica};
use ::log::ReplicationId;
use parking_lot::Mutex;
use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use sys::Stamp;

/// The standing, and what workers look at first.
#[derive(Default)]
pub struct Synced {
    /// Whether any replicas must have what is written.
    is_wanted: AtomicBool,
    /// How it stands.
    pub standing: Mutex<Standing>,
}

/// How it stands.
#[derive(Debug, Default)]
pub struct Standing {
    /// How many replicas must have what is written.
    pub wanted: usize,
    /// Whether there are too few.
    pub is_short: bool,
    /// From where on acknowledgements count; None: they do not yet.
    pub floor: Option<Floor>,
    /// Up to where as many as must have it had the stream of this name when they were asked last: what was acknowledged is before that.
    pub acknowledged: Option<(ReplicationId, u64)>,
    /// What replicas have not got, and since when.
    pub lacking: Option<Lacking>,
}

/// A place of which it is known where it is in the stream and in the history. What stands before it may be of another stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Floor {
    /// Its offset in the stream.
    pub offset: u64,
    /// Its stamp in the history.
    pub stamp: Stamp,
}

/// What replicas have not got.
#[derive(Clone, Copy, Debug)]
pub struct Lacking {
    /// Up to which offset.
    pub offset: u64,
    /// Since when.
    pub since: Instant,
}

impl Floor {
    /// Where an offset is in the history, if it is not before this.
    pub fn stamp_of(self, offset: u64) -> Option<Stamp> {
        offset.checked_sub(self.offset).map(|further| Stamp(self.stamp.0 + further))
    }
}

impl Synced {
    /// Whether any replicas must have what is written.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Relaxed)
    }

    /// So many must.
    pub fn want(&self, standing: &mut Standing, replicas: usize) {
        standing.wanted = replicas;
        self.is_wanted.store(replicas > 0, Ordering::Relaxed);
    }
}

impl Feeding {
    /// Up to which offset so many replicas have the stream; `durable`: on disk. None: there are fewer.
    pub fn offset_of_all_of(&self, replicas: usize, durable: bool) -> Option<u64> {
        let counts = |replica: &&Arc<Replica>| replica.form == Form::Psync && replica.reads_stream();
        let has = |replica: &Arc<Replica>| {
            let up_to = if durable { replica.acknowledged_durable() } else { replica.acknowledged() };
            // It has nothing that it was not given, whatever it says.
            (replica.identity(), up_to.min(replica.position().unwrap_or_default()))
        };
        let mut all: Vec<(Identity, u64)> =
            self.state.lock().replicas.iter().filter(counts).map(has).collect();
        // Whose connection is dead may have come again: it is one replica.
        all.sort_unstable_by(|one, other| one.0.cmp(&other.0).then(other.1.cmp(&one.1)));
        all.dedup_by(|later, first| later.0 == first.0);
        all.sort_unstable_by_key(|(_, offset)| Reverse(*offset));
        all.get(replicas.checked_sub(1)?).map(|(_, offset)| *offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_before_the_floor_does_not_count() {
        let floor = Floor { offset: 100, stamp: Stamp(7) };
        assert_eq!(floor.stamp_of(99), None);
        assert_eq!(floor.stamp_of(100), Some(Stamp(7)));
        assert_eq!(floor.stamp_of(103), Some(Stamp(10)));
    }
}
