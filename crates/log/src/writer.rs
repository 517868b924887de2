//! Takes blocks to the disk: writes, syncs, goes on to the next segment, and starts anew after a failure.
//!
//! Owned by whoever flushes; the only one that writes to segments. Invariants:
//! 1. What is not durable is held in memory, in order: `held`, of which the first `written` are in the current segment.
//! 2. A segment is left only when all that was written to it is durable, or for good: after any failure nothing is ever
//!    written to it or synced again, and what is held goes to a fresh segment that begins where the durable part ends.
//! 3. `durable` grows only by a sync that came back without error, or, while the log rests, by what is passed by.

use crate::block::Unwritten;
use crate::directory::{Current, Directory};
use crate::limits::UNSYNCED_BYTES_MAX;
use crate::segment::FIRST_BLOCK;
use crate::{Failure, Lsn, Operation};
use std::collections::VecDeque;
use std::sync::Arc;

/// How far to take what is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// To the operating system.
    Written,
    /// To the disk.
    Durable,
}

#[derive(Debug)]
pub(crate) struct Writer {
    directory: Arc<Directory>,
    current: Option<Current>,
    /// The segment that the next one goes on from.
    previous: u64,
    pub held: VecDeque<Unwritten>,
    written: usize,
    /// Of those released and those held behind them, so many were told to who follows the stream.
    told: usize,
    unsynced_bytes: usize,
    durable: Lsn,
    /// Nothing is written to files for now: what is held counts as durable.
    rests: bool,
    /// Whose records are durable, for reuse.
    released: Vec<Unwritten>,
    /// Syncs that came back without error.
    pub syncs: u64,
}

impl Writer {
    /// A writer of the log that is durable up to `durable` and ends in the segment `previous`.
    pub fn new(directory: Arc<Directory>, durable: Lsn, previous: u64) -> Writer {
        Writer {
            directory,
            current: None,
            previous,
            held: VecDeque::new(),
            written: 0,
            told: 0,
            unsynced_bytes: 0,
            durable,
            rests: false,
            released: Vec::new(),
            syncs: 0,
        }
    }

    /// Up to where the log is durable.
    pub fn durable(&self) -> Lsn {
        self.durable
    }

    /// Up to where the log is written.
    pub fn written(&self) -> Lsn {
        self.written.checked_sub(1).map_or(self.durable, |last| self.held[last].end)
    }

    /// Whether something is held that is not written.
    pub fn has_unwritten(&self) -> bool {
        self.written < self.held.len()
    }

    /// Begins a segment whatever room there is: the first, so that a log that was opened can be found, or one that says what the
    /// stream is called from now on. All that was written must be durable.
    ///
    /// # Errors
    /// If that cannot be done.
    pub fn begin(&mut self) -> Result<(), Failure> {
        self.next_segment()
    }

    /// Takes what is held as far as asked.
    ///
    /// # Errors
    /// What went wrong. All that is held will go to a fresh segment with the next call.
    pub fn advance(&mut self, until: Until) -> Result<(), Failure> {
        if self.rests {
            self.pass_by();
            return Ok(());
        }
        let advanced = self.write_held(until).and_then(|()| match until {
            Until::Durable => self.sync(),
            Until::Written => Ok(()),
        });
        if advanced.is_err() {
            self.abandon();
        }
        advanced
    }

    /// Takes what is held to the disk, as the last of it, and leaves the segment for good; from then on nothing is written.
    ///
    /// # Errors
    /// What went wrong: some of what is held is in no file then, and will be in none.
    pub fn rest(&mut self) -> Result<(), Failure> {
        let ended = self.advance(Until::Durable).and_then(|()| self.seal());
        self.abandon();
        self.rests = true;
        self.pass_by();
        ended
    }

    /// Writes again from here on, to a first segment that goes on from none: what was passed by is nowhere.
    ///
    /// # Errors
    /// If it cannot be begun: the log goes on resting.
    pub fn begin_again(&mut self) -> Result<(), Failure> {
        self.pass_by();
        self.directory.set_beside_clients(true);
        (self.rests, self.previous) = (false, 0);
        let begun = self.next_segment();
        self.rests = begun.is_err();
        begun
    }

    fn pass_by(&mut self) {
        if !self.held.is_empty() {
            self.written = self.held.len();
            self.release();
        }
    }

    fn write_held(&mut self, until: Until) -> Result<(), Failure> {
        if self.held.is_empty() && self.current.is_none() {
            // After a failure: whether the log goes on shows in whether there can be a segment.
            self.next_segment()?;
        }
        while let Some(block) = self.held.get(self.written) {
            let bytes = block.stride();
            if self.current.as_ref().is_none_or(|current| current.position + bytes as u64 > current.bytes) {
                self.sync()?;
                self.next_segment()?;
            }
            let is_only = self.held.len() == 1;
            let current = self.current.as_mut().expect("a segment was begun");
            // With a sync that failed, this one's beginning would be the durable part's end all the same.
            let sealed = self.held[self.written].sealed(current.header.number, self.durable);
            let (file, at) = (&current.file, current.position);
            let path = &current.path;
            let failed = |operation| move |error| Failure::new(operation, path, &error);
            if until == Until::Durable && is_only {
                file.write_synced_at(sealed, at).map_err(failed(Operation::Sync))?;
            } else {
                file.write_at(sealed, at).map_err(failed(Operation::Write))?;
            }
            current.position += bytes as u64;
            self.written += 1;
            self.unsynced_bytes += bytes;
            if until == Until::Durable && is_only {
                self.release();
            } else if self.unsynced_bytes >= UNSYNCED_BYTES_MAX {
                self.sync()?;
            }
        }
        Ok(())
    }

    /// Makes durable what was written.
    fn sync(&mut self) -> Result<(), Failure> {
        if self.written > 0
            && let Some(current) = &self.current
        {
            current.file.sync_data().map_err(|error| Failure::new(Operation::Sync, &current.path, &error))?;
            self.release();
        }
        Ok(())
    }

    /// What was written is durable now.
    fn release(&mut self) {
        self.durable = self.written();
        let stream_bytes = self.held.iter().take(self.written).map(Unwritten::stream_bytes).sum();
        let selected = self.held.iter().take(self.written).rev().find_map(|block| block.selected);
        self.directory.advance_stream(self.durable, stream_bytes, selected);
        self.released.extend(self.held.drain(..self.written));
        self.written = 0;
        self.unsynced_bytes = 0;
        self.syncs += 1;
    }

    /// Tells what there is of the stream that was not told, as far as it is durable, or written: from which offset on, and the bytes.
    pub fn tell(&mut self, until: Until, mut teller: impl FnMut(u64, &[u8])) {
        let Some(stream) = self.directory.stream() else { return self.tell_nobody() };
        let unwritten = match until {
            Until::Durable => self.held.len(),
            Until::Written => self.held.len() - self.written,
        };
        let released: u64 = self.released.iter().map(Unwritten::stream_bytes).sum();
        let mut offset = stream.offset - released;
        let blocks = self.released.iter().chain(&self.held);
        for (index, block) in blocks.take(self.released.len() + self.held.len() - unwritten).enumerate() {
            if index < self.told {
                offset += block.stream_bytes();
                continue;
            }
            for piece in block.stream() {
                teller(offset, piece);
                offset += piece.len() as u64;
            }
            self.told += 1;
        }
    }

    /// Nobody follows: what there is now is told to nobody later.
    pub fn tell_nobody(&mut self) {
        self.told = self.released.len() + self.written;
    }

    /// Takes away those that are released, for reuse.
    pub fn take_released(&mut self) -> impl Iterator<Item = Unwritten> {
        self.told = self.told.saturating_sub(self.released.len());
        self.released.drain(..)
    }

    fn next_segment(&mut self) -> Result<(), Failure> {
        assert_eq!(self.written, 0, "a segment is left with all of it durable");
        if self.rests {
            return Ok(());
        }
        self.current = None;
        let current = self.directory.begin(self.durable, self.previous)?;
        self.previous = current.header.number;
        self.current = Some(current);
        Ok(())
    }

    /// Leaves the segment for good: nobody knows what of it is on disk.
    fn abandon(&mut self) {
        self.current = None;
        self.written = 0;
        self.unsynced_bytes = 0;
    }

    /// Writes a mark behind the last block that says it was durable, so that damage to it can be told from a torn write.
    /// Only when nothing is held.
    ///
    /// # Errors
    /// Those of the disk; nothing is lost then.
    pub fn seal(&mut self) -> Result<(), Failure> {
        if self.rests {
            return Ok(());
        }
        let mut mark = Unwritten::new(crate::limits::BLOCK_ALIGN);
        mark.restart(self.durable);
        let has_room = |current: &&mut Current| current.position + mark.stride() as u64 <= current.bytes;
        match self.current.as_mut() {
            Some(current) if current.position == FIRST_BLOCK => return Ok(()),
            Some(current) if has_room(&current) => {}
            // Where the next segment begins is a mark too.
            _ => return self.next_segment(),
        }
        let current = self.current.as_mut().expect("it was just looked at");
        let sealed = mark.sealed(current.header.number, self.durable);
        let done = current.file.write_synced_at(sealed, current.position);
        current.position += sealed.len() as u64;
        let failed = done.map_err(|error| Failure::new(Operation::Sync, &current.path, &error));
        if failed.is_err() {
            self.abandon();
        }
        failed
    }
}
