//! Keeps what is resident near what is used: moves objects out of the allocator's emptiest pages, so that these can be given back.
//!
//! It runs in the spiller's thread, whose own pages take what is moved, and looks every few seconds. Workers collect what was freed of their
//! pages while the process [is tight](super::is_tight).

use super::for_each_slot;
use crate::Engine;
use keyspace::residency::density::Census;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How often it looks, and while much more is resident than should be.
const LOOK_EVERY: Duration = Duration::from_secs(5);
const LOOK_EVERY_TIGHT: Duration = Duration::from_secs(1);

/// So much more: two thirds of what the ceiling's promise leaves.
const TIGHT_BYTES: u64 = 42 << 20;

/// Bytes of objects that are moved at once: they lie in memory twice until their pages are given back.
const MOVED_BYTES_MAX: u64 = 24 << 20;

/// Less is not worth a round.
const GAIN_BYTES_MIN: u64 = 2 << 20;

pub(super) struct Density {
    looked_at: Instant,
}

impl Density {
    pub(super) fn new() -> Density {
        Density { looked_at: Instant::now() }
    }

    /// Moves some objects if more is resident than should be.
    pub(super) fn improve_if_due(&mut self, engine: &Engine, ceiling: u64) {
        if self.looked_at.elapsed() < LOOK_EVERY_TIGHT {
            return;
        }
        let excess = sys::process::resident_bytes().saturating_sub(ceiling);
        if excess == 0 || excess < TIGHT_BYTES && self.looked_at.elapsed() < LOOK_EVERY {
            return;
        }
        self.looked_at = Instant::now();
        let mut census = Census::default();
        for_each_slot(engine, |batch, db, slot| batch.count_density(db, slot, &mut census));
        let mut sparse = census.sparse(excess, MOVED_BYTES_MAX);
        if sparse.gain >= GAIN_BYTES_MIN {
            for_each_slot(engine, |batch, db, slot| batch.move_sparse(db, slot, &mut sparse));
            engine.residency.counts.stretches_emptied.fetch_add(sparse.stretches(), Ordering::Relaxed);
        }
        // What others freed of this thread's own pages.
        sys::memory::collect();
    }
}
