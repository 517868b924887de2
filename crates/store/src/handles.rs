//! Which segments' files are open: at most so many, those that were used last; a file is opened again when it is needed.
//!
//! A descriptor is the process' and scarce: a large store has more segments than there are. Who reads takes no lock but its segment's own; only
//! who has to open a file comes here. Invariants:
//! 1. A file is closed only while nobody holds it, so that whoever counts who holds a segment's file is right with one that is closed.
//! 2. A segment that is filled, or of which something is not synced, stays open: what is refused of what was written to it is told to who
//!    has it open. So there may be more open for a moment; [`Shared::sync_pinned`] makes them fewer.
//! 3. Who holds many files at once takes none beyond the share ([`Shared::place_within_share`]); who needs one to go on opens it in any case,
//!    and what is too much is closed again ([`Shared::keep_to_share`]).

use crate::number::SegmentNo;
use crate::segment::{Segment, State};
use crate::shared::Shared;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicUsize, fence};
use sys::file::File;

#[derive(Debug)]
pub(crate) struct Handles {
    /// How many may be open.
    most: AtomicUsize,
    /// Those that are, and some that were, from the one that is looked at next.
    open: Mutex<VecDeque<SegmentNo>>,
    /// Too many are open because of what is not synced.
    are_pinned: AtomicBool,
}

impl Handles {
    pub fn new(most: usize) -> Handles {
        Handles {
            most: AtomicUsize::new(most),
            open: Mutex::new(VecDeque::new()),
            are_pinned: AtomicBool::new(false),
        }
    }

    pub fn set_most(&self, most: usize) {
        self.most.store(most, Relaxed);
    }

    /// Notes a file that was opened.
    pub fn note_opened(&self, no: SegmentNo) {
        self.open.lock().push_back(no);
    }
}

impl Shared {
    /// Closes files until one more may be open. False: too many are held, and there would be more than may be.
    pub(crate) fn make_room_for_handle(&self) -> bool {
        let others = self.handles.most.load(Relaxed).max(1) - 1;
        self.close_down_to(others);
        self.handles.open.lock().len() <= others
    }

    /// Closes what was held when there were too many, and is not any more.
    pub(crate) fn keep_to_share(&self) {
        let most = self.handles.most.load(Relaxed).max(1);
        if self.handles.open.lock().len() > most {
            self.close_down_to(most);
        }
        self.sync_pinned();
    }

    /// Closes some although they may be open, for whoever finds no descriptor left. False: there are none that can be.
    pub(crate) fn give_handles_back(&self) -> bool {
        /// As good as one, and not again at once.
        const AT_ONCE: usize = 4;
        let before = self.handles.open.lock().len();
        self.close_down_to(before.saturating_sub(AT_ONCE)) > 0
    }

    /// How many were closed.
    pub(crate) fn close_down_to(&self, count: usize) -> usize {
        let mut open = self.handles.open.lock();
        let mut closed = Vec::new();
        // Twice round: the first time, those stay that were used since they were looked at last.
        let mut looks = 2 * open.len();
        while open.len() > count && looks > 0 {
            looks -= 1;
            let Some(no) = open.pop_front() else { break };
            match self.segments.get(no).map(Segment::try_close) {
                None | Some(Closing::WasClosed) => {}
                Some(Closing::Done(file)) => closed.push(file),
                Some(Closing::Refused) => open.push_back(no),
            }
        }
        if open.len() > count {
            self.handles.are_pinned.store(true, Release);
        }
        // None is closed under the lock.
        drop(open);
        closed.len()
    }

    /// Syncs what is full where too many files are open because of that. For who writes, and holds no lock.
    pub(crate) fn sync_pinned(&self) {
        if !self.handles.are_pinned.load(Relaxed) || !self.handles.are_pinned.swap(false, AcqRel) {
            return;
        }
        // Who syncs just now does the same.
        let Some(_turn) = self.syncing.try_lock() else { return };
        let full = self.segments.iter().filter(|(_, segment)| segment.state() == State::Full);
        for (no, segment) in full {
            // The next checkpoint hears of a sync that fails, and so does who asks which segment is to be cleaned.
            let _ = self.sync_segment(no, segment);
        }
    }
}

enum Closing {
    Done(Arc<File>),
    WasClosed,
    Refused,
}

impl Segment {
    /// Its file, if that is open.
    #[inline]
    pub fn opened(&self) -> Option<Arc<File>> {
        let file = self.file.read();
        let file = file.as_ref()?;
        if !self.was_used.load(Relaxed) {
            self.was_used.store(true, Relaxed);
        }
        Some(Arc::clone(file))
    }

    fn try_close(&self) -> Closing {
        // Who opens it just now needs it.
        let Some(mut file) = self.file.try_write() else { return Closing::Refused };
        let Some(open) = &*file else { return Closing::WasClosed };
        let is_held = Arc::strong_count(open) > 1;
        // What who held it has noted is seen.
        fence(Acquire);
        let is_needed = is_held
            || self.was_used.swap(false, Relaxed)
            || self.state() == State::Open
            || self.is_unsynced.load(Acquire);
        match file.take_if(|_| !is_needed) {
            Some(open) => Closing::Done(open),
            None => Closing::Refused,
        }
    }
}
