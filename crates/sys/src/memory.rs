//! The program's allocator: mimalloc, with every byte counted.
//!
//! `maxmemory`, `INFO memory` and the eviction read these counts, so each
//! allocation counts with the bytes that it occupies (its size class), not with
//! those that were asked for. Counting touches one cache line of the calling
//! thread and takes no lock.

#![allow(unsafe_code)] // A global allocator is an unsafe trait by nature.

use crate::counter::add_to_cell;
use crate::thread::{self, CELLS};
use libmimalloc_sys::{
    mi_free, mi_malloc, mi_malloc_aligned, mi_realloc, mi_realloc_aligned, mi_zalloc, mi_zalloc_aligned,
};
use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicI64, Ordering};

/// Install with `#[global_allocator]` in a binary; where it is not installed all
/// counts stay zero.
pub struct CountingAllocator;

#[repr(align(64))]
struct Cell {
    bytes: AtomicI64,
    calls: AtomicI64,
}

static CELLS_BY_THREAD: [Cell; CELLS] =
    [const { Cell { bytes: AtomicI64::new(0), calls: AtomicI64::new(0) } }; CELLS];

/// Bytes in use by the whole program, size classes counted in full.
pub fn used_bytes() -> u64 {
    // Asked for before each write while there is a ceiling: cells never used are left out.
    CELLS_BY_THREAD[..thread::cells_in_use()]
        .iter()
        .map(|cell| cell.bytes.load(Ordering::Relaxed))
        .sum::<i64>()
        .max(0) as u64
}

/// What the calling thread has allocated more than it freed, which is negative for one that frees what others allocated: a
/// difference of two is what happened between them, as far as the thread has a cell of its own.
pub fn bytes_of_this_thread() -> i64 {
    CELLS_BY_THREAD[thread::cell()].bytes.load(Ordering::Relaxed)
}

/// How many allocations and reallocations the calling thread's cell has seen:
/// a test takes the difference around what it measures.
pub fn allocations_of_this_thread() -> u64 {
    CELLS_BY_THREAD[thread::cell()].calls.load(Ordering::Relaxed) as u64
}

/// Lets freed memory go back to the system by [`release`] alone. Otherwise the
/// allocator does that by itself, in whatever thread happens to allocate when its
/// delay is over: handing back some hundred megabytes stops that one for tens of milliseconds.
pub fn release_only_when_told() {
    /// mimalloc's `mi_option_purge_delay`, in milliseconds.
    const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;
    const TEN_YEARS_MS: i64 = 10 * 365 * 24 * 3600 * 1000;
    // SAFETY: sets a number that the allocator reads.
    unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, TEN_YEARS_MS) };
}

/// Has [`release`] give back every free piece of 64 KB. Otherwise pieces of 2 MB are given back as a whole only, so that they can
/// be huge pages: with a ceiling far below what is stored that is most of what is free. Goes with
/// [`pages::without_huge_pages`](crate::pages::without_huge_pages).
pub fn release_small_pieces() {
    /// mimalloc's `mi_option_minimal_purge_size`, in kilobytes.
    const MINIMAL_PURGE_SIZE: libmimalloc_sys::mi_option_t = 44;
    const PIECE_KB: i64 = 64;
    // SAFETY: sets a number that the allocator reads.
    unsafe { libmimalloc_sys::mi_option_set(MINIMAL_PURGE_SIZE, PIECE_KB) };
}

/// Takes back what other threads freed of the calling thread's pages, so that those without any block
/// in use can be [released](release). Looks at the pages that have room: few, whatever is stored.
pub fn collect() {
    // SAFETY: the function takes no pointer and may be called at any time by any
    // thread; it works on the calling thread's own heap.
    unsafe { libmimalloc_sys::mi_collect(false) };
}

/// Gives pages without any block in use back to the system, those of all threads: takes about
/// 100 microseconds a megabyte.
pub fn release() {
    // SAFETY: as in `collect`.
    unsafe { libmimalloc_sys::mi_collect(true) };
}

/// The allocator's version, such as 2.2.4.
pub fn allocator_version() -> String {
    // SAFETY: the function only returns a constant.
    let version = unsafe { libmimalloc_sys::mi_version() };
    format!("{}.{}.{}", version / 10_000, version / 100 % 100, version % 100)
}

/// The bytes that an allocation of `bytes` really takes: multiples of 16 up to
/// 128, then four steps a doubling, as in jemalloc and mimalloc. An object that
/// fills its class wastes nothing.
#[inline]
pub const fn size_class(bytes: usize) -> usize {
    if bytes <= 128 {
        return if bytes <= 16 { 16 } else { (bytes + 15) & !15 };
    }
    let step = 1usize << ((bytes - 1).ilog2() - 2);
    (bytes + step - 1) & !(step - 1)
}

fn count(bytes: i64, calls: i64) {
    let number = thread::cell();
    add_to_cell(&CELLS_BY_THREAD[number].bytes, number, bytes);
    add_to_cell(&CELLS_BY_THREAD[number].calls, number, calls);
}

/// Whether blocks of this size lie so in any case. mimalloc 3 makes a block longer for an alignment that it is asked for,
/// whether or not it needs to: what just fills its class would get one of the next.
fn is_aligned_anyway(size: usize, align: usize) -> bool {
    align <= ALIGN_OF_ALL && align <= size
}

/// How blocks of at least this size are aligned: mimalloc's `MI_MAX_ALIGN_SIZE`.
const ALIGN_OF_ALL: usize = 16;

// SAFETY: every call is passed on to mimalloc, which keeps the contract of
// `GlobalAlloc`; the counting around it allocates nothing (the
// thread's number is a constant-initialised thread local without a destructor).
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let (size, align) = (layout.size(), layout.align());
        count(size_class(size) as i64, 1);
        // SAFETY: the functions take any size and any power of two.
        let block = match is_aligned_anyway(size, align) {
            true => unsafe { mi_malloc(size) },
            false => unsafe { mi_malloc_aligned(size, align) },
        };
        block.cast()
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let (size, align) = (layout.size(), layout.align());
        count(size_class(size) as i64, 1);
        // SAFETY: as above.
        let block = match is_aligned_anyway(size, align) {
            true => unsafe { mi_zalloc(size) },
            false => unsafe { mi_zalloc_aligned(size, align) },
        };
        block.cast()
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(-(size_class(layout.size()) as i64), 0);
        // SAFETY: `block` came from this allocator.
        unsafe { mi_free(block.cast()) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(size_class(new_size) as i64 - size_class(layout.size()) as i64, 1);
        // SAFETY: `block` came from this allocator.
        let block = match is_aligned_anyway(new_size, layout.align()) {
            true => unsafe { mi_realloc(block.cast(), new_size) },
            false => unsafe { mi_realloc_aligned(block.cast(), new_size, layout.align()) },
        };
        block.cast()
    }
}

#[cfg(test)]
mod tests {
    use super::{CountingAllocator, is_aligned_anyway, size_class};
    use std::alloc::{GlobalAlloc, Layout};

    #[test]
    fn size_classes_are_four_to_a_doubling() {
        let classes: Vec<usize> =
            [1, 16, 17, 128, 129, 161, 192, 225, 257, 1025, 65_537].map(size_class).into();
        assert_eq!(classes, [16, 16, 32, 128, 160, 192, 192, 256, 320, 1280, 81_920]);
    }

    #[test]
    fn a_size_class_is_its_own_class() {
        (1..100_000).for_each(|bytes| assert_eq!(size_class(size_class(bytes)), size_class(bytes)));
    }
    #[test]
    fn a_block_takes_its_size_class_and_is_aligned() {
        for size in [1, 8, 16, 24, 48, 112, 144, 160, 161, 192, 320, 640, 1280, 8192] {
            for align in [1, 8, 16, 64] {
                let layout = Layout::from_size_align(size, align).unwrap();
                // SAFETY: the layout is not empty, and what is allocated with it is freed with it.
                unsafe {
                    let block = CountingAllocator.alloc(layout);
                    assert_eq!(block.addr() % align, 0);
                    let taken = libmimalloc_sys::mi_usable_size(block.cast());
                    let is_right = (size..=size_class(size)).contains(&taken);
                    assert!(is_right || !is_aligned_anyway(size, align), "{size} bytes take {taken}");
                    let block = CountingAllocator.realloc(block, layout, size * 3);
                    assert_eq!(block.addr() % align, 0);
                    CountingAllocator.dealloc(block, Layout::from_size_align(size * 3, align).unwrap());
                }
            }
        }
    }
}
