//! An entry: the block of one member of a native collection, behind a table's word.
//!
//! ```text
//! | header: HEADER bytes | length: 1 byte, or 0xff and 4 bytes | bytes |
//! ```
//!
//! The bytes are what the entry is found by and what goes with it; the header has a
//! fixed size and changes in place (a score, the length of a field before its value).
//! The block takes a size class of the allocator, which its length determines, so it
//! needs no field for its capacity.
//!
//! Thread rule: an entry belongs to its table, and with it to one thread at a time.
//!
//! Invariant: a block's address is a multiple of 16 and below 2^47.

#![allow(unsafe_code)] // The layout of entries; fuzzed by the tests of tables and of the native collections.

use crate::table::{Handle, SharedWords};
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::{self, NonNull};
use sys::memory::size_class;

/// Lengths below this take one byte.
const LONG: u8 = 0xff;

/// The handle of an entry. Copying the handle does not copy the entry; the table
/// that holds it frees it.
#[derive(Debug, PartialEq, Eq)]
pub struct Entry<const HEADER: usize>(NonNull<u8>);

impl<const HEADER: usize> Clone for Entry<HEADER> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<const HEADER: usize> Copy for Entry<HEADER> {}

// SAFETY: an entry is plain memory without thread affinity; whoever has its table
// has all accesses to it, and copies of the table read only what is not changed then.
unsafe impl<const HEADER: usize> Send for Entry<HEADER> {}
// SAFETY: as above; a shared entry is only read.
unsafe impl<const HEADER: usize> Sync for Entry<HEADER> {}

impl<const HEADER: usize> Entry<HEADER> {
    /// Allocates an entry whose bytes are the parts joined, less than 4 GB of them.
    #[inline]
    pub fn new(header: [u8; HEADER], parts: &[&[u8]]) -> Entry<HEADER> {
        let len = parts.iter().map(|part| part.len()).sum();
        let layout = layout(block_bytes(HEADER, len));
        // SAFETY: the layout is never empty: a block has at least its length.
        let Some(block) = NonNull::new(unsafe { alloc(layout) }) else { handle_alloc_error(layout) };
        // SAFETY: `block_bytes` has room for the header, the length and the parts one
        // after the other, and nobody else knows the block yet.
        unsafe {
            ptr::copy_nonoverlapping(header.as_ptr(), block.as_ptr(), HEADER);
            let mut end = write_length(block.add(HEADER), len);
            for part in parts {
                ptr::copy_nonoverlapping(part.as_ptr(), end.as_ptr(), part.len());
                end = end.add(part.len());
            }
        }
        Entry(block)
    }

    /// The bytes.
    ///
    /// # Safety
    /// The entry must stay alive and its bytes unchanged for `'a`: a borrow of its
    /// table sees to that.
    #[inline]
    pub unsafe fn bytes<'a>(self) -> &'a [u8] {
        let (offset, len) = self.span();
        // SAFETY: the bytes lie within the block, which the caller keeps alive.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().add(offset), len) }
    }

    /// The bytes, to be changed in place.
    ///
    /// # Safety
    /// The caller has the only access to the entry for `'a`.
    #[inline]
    pub unsafe fn bytes_mut<'a>(self) -> &'a mut [u8] {
        let (offset, len) = self.span();
        // SAFETY: as in `bytes`.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_ptr().add(offset), len) }
    }

    /// The header.
    ///
    /// # Safety
    /// The entry must be alive.
    #[inline]
    pub unsafe fn header(self) -> [u8; HEADER] {
        // SAFETY: every block begins with its header.
        unsafe { self.0.cast::<[u8; HEADER]>().read() }
    }

    /// Changes the header.
    ///
    /// # Safety
    /// The entry must be alive, and the caller must have the only access to its header.
    #[inline]
    pub unsafe fn set_header(self, header: [u8; HEADER]) {
        // SAFETY: every block begins with its header.
        unsafe { self.0.cast::<[u8; HEADER]>().write(header) }
    }

    /// Bytes of memory that the entry takes.
    ///
    /// # Safety
    /// The entry must be alive.
    pub unsafe fn memory_bytes(self) -> usize {
        size_class(block_bytes(HEADER, self.span().1))
    }

    /// Where the bytes begin in the block, and how many they are.
    #[inline]
    fn span(self) -> (usize, usize) {
        // SAFETY: the header is followed by a byte of length, and that, if it says
        // so, by four more, in every block.
        unsafe {
            let first = self.0.add(HEADER);
            match first.read() {
                LONG => (HEADER + 5, first.add(1).cast::<u32>().read_unaligned() as usize),
                len => (HEADER + 1, usize::from(len)),
            }
        }
    }
}

// SAFETY: blocks are aligned to 16 and lie in the lower half of the address space
// (asserted when a word is made), and the address is the handle.
unsafe impl<const HEADER: usize> Handle for Entry<HEADER> {
    type Words = SharedWords;

    #[inline]
    fn address(self) -> u64 {
        self.0.as_ptr() as u64
    }

    #[inline]
    unsafe fn from_address(address: u64) -> Self {
        // SAFETY: the caller's address is that of a live block, hence not null.
        Entry(unsafe { NonNull::new_unchecked(address as *mut u8) })
    }

    unsafe fn free(self) {
        let layout = layout(block_bytes(HEADER, self.span().1));
        // SAFETY: the block was allocated with this layout, which its length determines.
        unsafe { dealloc(self.0.as_ptr(), layout) }
    }
}

/// Writes a length. Returns where the bytes begin.
///
/// # Safety
/// The block must have room for the length at `at`.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "it was compared with a byte before")]
unsafe fn write_length(at: NonNull<u8>, len: usize) -> NonNull<u8> {
    // SAFETY: the caller has room for it.
    unsafe {
        if len < usize::from(LONG) {
            at.write(len as u8);
            return at.add(1);
        }
        at.write(LONG);
        let len = u32::try_from(len).expect("a request is shorter than 4 GB");
        at.add(1).cast::<u32>().write_unaligned(len);
        at.add(5)
    }
}

#[inline]
fn block_bytes(header: usize, len: usize) -> usize {
    header + len + if len < usize::from(LONG) { 1 } else { 5 }
}

#[inline]
fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(size_class(bytes), 16).expect("a block is far smaller than isize::MAX")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_keep_header_and_bytes_of_every_length() {
        for len in (0..600).chain([65_536, 1 << 20]) {
            let bytes: Vec<u8> = (0..len).map(|index| index as u8).collect();
            let entry = Entry::<8>::new(7u64.to_le_bytes(), &[&bytes[..len / 3], &bytes[len / 3..]]);
            assert_eq!(entry.address() % 16, 0);
            // SAFETY: the entry is alive and known here only.
            unsafe {
                entry.set_header(8u64.to_le_bytes());
                assert_eq!(entry.bytes(), &bytes[..]);
                entry.bytes_mut().fill(1);
                assert!(entry.bytes().iter().all(|byte| *byte == 1));
                assert_eq!(u64::from_le_bytes(entry.header()), 8);
                assert!(entry.memory_bytes() > 8 + len);
                entry.free();
            }
        }
    }

    #[test]
    fn a_short_entry_without_header_takes_one_byte_more_than_its_bytes() {
        let entry = Entry::<0>::new([], &[&[b'x'; 15]]);
        // SAFETY: the entry is alive and known here only.
        unsafe {
            assert_eq!(entry.memory_bytes(), 16);
            entry.free();
        }
    }
}
