//! Aligned buffers that are used again, so that a read at steady state allocates nothing.
//!
//! One thread; clones share what is kept.

use crate::file::{AlignedBytes, DIRECT_ALIGN};
use std::cell::RefCell;
use std::rc::Rc;

/// One-page buffers that are kept when nobody uses them: as many as a worker's ring usually has entries.
const KEPT_MAX: usize = 128;

/// Buffers of a thread. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Buffers(Rc<RefCell<Vec<AlignedBytes>>>);

impl Buffers {
    /// A buffer of so many pages of [`DIRECT_ALIGN`] bytes, all of them in use, with any content.
    pub fn get(&self, pages: usize) -> AlignedBytes {
        let kept = if pages == 1 { self.0.borrow_mut().pop() } else { None };
        kept.unwrap_or_else(|| AlignedBytes::zeroed(pages * DIRECT_ALIGN))
    }

    /// Takes back a buffer that is not needed any more. Larger ones than a page are freed.
    pub fn give_back(&self, mut buffer: AlignedBytes) {
        let mut kept = self.0.borrow_mut();
        if buffer.capacity() == DIRECT_ALIGN && kept.len() < KEPT_MAX {
            buffer.resize(DIRECT_ALIGN);
            kept.push(buffer);
        }
    }

    /// How many are kept now.
    pub fn kept(&self) -> usize {
        self.0.borrow().len()
    }
}
