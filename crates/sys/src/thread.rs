//! A small number for each thread, for counters that are split by thread.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many cells a counter split by thread has. All threads beyond share the
/// last one, [`SHARED`].
pub const CELLS: usize = 64;

/// The cell that several threads may write to. Every other cell has one writer,
/// so that adding to it needs no locked instruction.
pub const SHARED: usize = CELLS - 1;

static NEXT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    // `CELLS` stands for "not numbered yet".
    static CELL: Cell<usize> = const { Cell::new(CELLS) };
}

/// This thread's cell, in `0..CELLS`.
#[inline]
pub fn cell() -> usize {
    CELL.with(|cell| match cell.get() {
        CELLS => number(cell),
        number => number,
    })
}

/// How many cells are in use: no thread writes beyond.
#[inline]
pub fn cells_in_use() -> usize {
    (NEXT.load(Ordering::Relaxed)).min(CELLS)
}

#[cold]
fn number(cell: &Cell<usize>) -> usize {
    let number = NEXT.fetch_add(1, Ordering::Relaxed).min(SHARED);
    cell.set(number);
    number
}
