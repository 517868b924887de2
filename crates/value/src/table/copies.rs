//! Copies of a collection's table, made in no time and read while the table changes.
//!
//! A copy is the words of a moment. The arrays of the segments are shared until the table changes them (`segment::Words`), and the
//! blocks are shared for as long as the copy is there: what its table gives up meanwhile is kept, and freed behind it. So making a copy
//! costs a count for each segment (of some thousands of blocks), and nobody who writes waits for whoever reads it.
//!
//! Memory of a copy: at most the arrays once more, 16 bytes a block, and the blocks that the table has given up since, each of which is in
//! the copy. What came after the copy and goes again is freed at once.
//!
//! Thread rule: a table belongs to one thread at a time, and so does each of its copies, which may be another one. What both know is
//! behind a lock, held for a moment.
//!
//! Invariants:
//! 1. No block of a copy is freed, or changed in what copies read of it, before the copy ends.
//! 2. A block has one owner: its table, or all the copies together that kept it.

use super::{Handle, Orphan, Place, Position, Table};
use parking_lot::Mutex;
use std::fmt;
use std::mem;
use std::ops::Deref;
use std::sync::Arc;

/// The blocks of a collection, or a copy of them.
pub struct Blocks<H: Handle> {
    pub(super) table: Table<H>,
    role: Role<H>,
}

enum Role<H: Handle> {
    /// They are the table's. Its copies, some of which may have ended.
    Owner(Mutex<Vec<Arc<Copied<H>>>>),
    /// They are another's.
    Copy(Arc<Copied<H>>),
}

/// What a table and one of its copies know of each other; None once the copy has ended.
struct Copied<H: Handle>(Mutex<Option<Kept<H>>>);

struct Kept<H: Handle> {
    /// What is in the copy.
    words: Borrowed<H>,
    /// Of that, what the table has given up since.
    blocks: Vec<Arc<Orphan<H>>>,
    /// The table itself, if its collection is gone.
    table: Option<Arc<Table<H>>>,
}

/// Words without a claim to their blocks.
struct Borrowed<H: Handle>(Table<H>);

impl<H: Handle> Drop for Borrowed<H> {
    fn drop(&mut self) {
        self.0.forget();
    }
}

impl<H: Handle> Borrowed<H> {
    fn has(&self, position: Position, block: H) -> bool {
        self.0.find(position, |other| other.address() == block.address()).is_some()
    }
}

impl<H: Handle> Blocks<H> {
    /// A copy of them as they are, to be read.
    pub fn copy(&self) -> Blocks<H> {
        let kept = Kept { words: Borrowed(self.table.alias()), blocks: Vec::new(), table: None };
        let copied = Arc::new(Copied(Mutex::new(Some(kept))));
        match &self.role {
            Role::Owner(copies) => copies.lock().push(copied.clone()),
            Role::Copy(_) => unreachable!("copies are only read and dropped"),
        }
        Blocks { table: self.table.alias(), role: Role::Copy(copied) }
    }

    /// Whether blocks may be changed in what is read of copies: there is none.
    #[inline]
    pub fn may_edit(&mut self) -> bool {
        let Role::Owner(copies) = &mut self.role else { unreachable!("copies are only read and dropped") };
        let copies = copies.get_mut();
        if !copies.is_empty() {
            copies.retain(|copied| copied.0.lock().is_some());
        }
        copies.is_empty()
    }

    /// Takes a block out, which was at this position, and frees it, now or when no copy has it any more.
    #[inline]
    pub fn free(&mut self, place: Place, position: impl FnOnce() -> Position) {
        let orphan = self.table.give_up(place);
        self.release(orphan, position);
    }

    /// Frees a block that is in the table no more, now or when no copy has it any more.
    #[inline]
    pub(super) fn release(&mut self, orphan: Orphan<H>, position: impl FnOnce() -> Position) {
        if !self.may_edit() {
            self.keep(orphan, position());
        }
    }

    #[cold]
    fn keep(&self, orphan: Orphan<H>, position: Position) {
        let Role::Owner(copies) = &self.role else { unreachable!("copies are only read and dropped") };
        let orphan = Arc::new(orphan);
        for copied in &*copies.lock() {
            let mut kept = copied.0.lock();
            if let Some(kept) = kept.as_mut().filter(|kept| kept.words.has(position, orphan.block())) {
                kept.blocks.push(orphan.clone());
            }
        }
    }
}

impl<H: Handle> Table<H> {
    /// Another table of the same words, which is not to free their blocks.
    fn alias(&self) -> Table<H> {
        Table { root: self.root.clone(), directory: self.directory.clone(), owns: self.owns }
    }

    /// Lets go of all blocks without freeing any.
    fn forget(&mut self) {
        self.root = super::Segment::default();
        self.directory = None;
    }
}

impl<H: Handle> Drop for Blocks<H> {
    fn drop(&mut self) {
        match &mut self.role {
            Role::Copy(copied) => {
                self.table.forget();
                // What was kept is freed when the lock is not held any more.
                let _kept = { copied.0.lock().take() };
            }
            Role::Owner(copies) => {
                let copies = mem::take(copies.get_mut());
                if copies.is_empty() {
                    return;
                }
                let table = Arc::new(mem::take(&mut self.table));
                for copied in copies {
                    if let Some(kept) = &mut *copied.0.lock() {
                        kept.table = Some(table.clone());
                    }
                }
            }
        }
    }
}

impl<H: Handle> Default for Blocks<H> {
    fn default() -> Blocks<H> {
        Blocks { table: Table::default(), role: Role::Owner(Mutex::default()) }
    }
}

impl<H: Handle> Deref for Blocks<H> {
    type Target = Table<H>;

    #[inline]
    fn deref(&self) -> &Table<H> {
        &self.table
    }
}

impl<H: Handle> fmt::Debug for Blocks<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} blocks", self.table.len())
    }
}
