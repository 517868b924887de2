//! Asking the processor to fetch memory before it is needed.
//!
//! On a command's path this comes first: a worker that has parsed a batch names
//! its keys, and the misses of one command overlap with those of the next. Walks
//! over many blocks name those some way ahead, and so does who fills memory that an
//! atomic instruction follows.

#![allow(unsafe_code)] // One instruction that Rust only knows as unsafe.

/// Bytes of a cache line.
pub const LINE_BYTES: usize = 64;

/// Fetches the cache line of an address, which may be any number.
#[inline(always)]
pub fn prefetch(address: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing into the program and never faults,
    // whatever the address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::without_provenance(address));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{0}]", in(reg) address, options(nostack, readonly, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}

/// The same for a line that is going to be written: no other core keeps it.
#[inline(always)]
pub fn prefetch_to_write(address: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as above.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_ET0>(std::ptr::without_provenance(address));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("prfm pstl1keep, [{0}]", in(reg) address, options(nostack, readonly, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}
