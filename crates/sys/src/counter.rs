//! A counter that many threads add to and few read: one cache line a thread.

use crate::thread::{self, CELLS, SHARED};
use std::sync::atomic::{AtomicI64, Ordering};

/// One thread's part of a count, on a cache line of its own.
#[repr(align(64))]
#[derive(Debug, Default)]
struct Cell(AtomicI64);

/// Adding touches only the thread's own cache line; reading sums them all.
/// A sum taken while others add is a value that was true at some moment for each
/// thread, not for all at one moment.
#[derive(Debug)]
pub struct Counter {
    cells: Box<[Cell]>,
    /// What the sum was at the last reset. Cells are never written by a thread
    /// that does not own them, so a reset cannot set them to zero.
    base: AtomicI64,
}

impl Default for Counter {
    fn default() -> Self {
        Counter { cells: (0..CELLS).map(|_| Cell::default()).collect(), base: AtomicI64::new(0) }
    }
}

impl Counter {
    /// Adds `by`, which may be negative.
    #[inline]
    pub fn add(&self, by: i64) {
        let cell = thread::cell();
        add_to_cell(&self.cells[cell].0, cell, by);
    }

    /// The sum since the last reset. Never below 0, which a sum taken in the
    /// middle of a move could be.
    pub fn get(&self) -> u64 {
        (self.sum() - self.base.load(Ordering::Relaxed)).max(0) as u64
    }

    /// Begins again at zero.
    pub fn reset(&self) {
        self.base.store(self.sum(), Ordering::Relaxed);
    }

    fn sum(&self) -> i64 {
        self.cells[..thread::cells_in_use()].iter().map(|cell| cell.0.load(Ordering::Relaxed)).sum()
    }
}

/// Adds to the cell numbered `cell`, which is the calling thread's.
#[inline]
pub(crate) fn add_to_cell(value: &AtomicI64, cell: usize, by: i64) {
    if cell == SHARED {
        value.fetch_add(by, Ordering::Relaxed);
    } else {
        // One writer: a plain load and store lose nothing.
        value.store(value.load(Ordering::Relaxed) + by, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_threads_than_cells_lose_no_count() {
        let counter = Counter::default();
        std::thread::scope(|scope| {
            for _ in 0..2 * CELLS {
                scope.spawn(|| (0..1000).for_each(|_| counter.add(1)));
            }
        });
        assert_eq!(counter.get(), 2 * CELLS as u64 * 1000);
        counter.reset();
        counter.add(3);
        assert_eq!(counter.get(), 3);
    }
}
