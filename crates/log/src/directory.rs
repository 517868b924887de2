//! The directory that a log lives in: its segments, the spare ones, and beginning and retiring them.
//!
//! Shared by the flusher, the thread that prepares spares and whoever retires. No lock is held over a call to the disk
//! except by whoever retires. Invariants:
//! 1. A segment has its name only after its header is durable, and is written to only after its name is.
//! 2. Segments of the log are removed from the oldest on, without gaps.
//! 3. Numbers grow; a number is never used twice, not even for a segment that could not be begun.

use crate::limits::SPARE_SEGMENTS;
use crate::segment::{self, FIRST_BLOCK, Header};
use crate::{Failure, Lsn, Operation};
use parking_lot::Mutex;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use sys::file::{AlignedBytes, File, Fs, Mode};
use sys::{Clock, UnixMs};

#[derive(Debug)]
pub(crate) struct Directory {
    pub fs: Fs,
    pub path: PathBuf,
    pub history: u64,
    segment_bytes: u64,
    clock: Clock,
    next_number: AtomicU64,
    /// From the oldest to the one that is written to.
    live: Mutex<Vec<Header>>,
    spares: Mutex<Vec<PathBuf>>,
}

/// What to keep of a log that a checkpoint has made dispensable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Retention {
    /// Nothing.
    #[default]
    None,
    /// What is younger than this.
    Milliseconds(u64),
    /// So many bytes of segments in all.
    Bytes(u64),
}

/// The segment that is written to.
#[derive(Debug)]
pub(crate) struct Current {
    pub file: File,
    pub header: Header,
    pub path: PathBuf,
    /// Where the next block goes.
    pub position: u64,
    /// Length of the file.
    pub bytes: u64,
}

impl Directory {
    pub fn new(
        fs: Fs,
        path: PathBuf,
        history: u64,
        live: Vec<Header>,
        last_number: u64,
        segment_bytes: u64,
        clock: Clock,
    ) -> Directory {
        Directory {
            fs,
            path,
            history,
            segment_bytes,
            clock,
            next_number: AtomicU64::new(last_number + 1),
            live: Mutex::new(live),
            spares: Mutex::new(Vec::new()),
        }
    }

    /// Begins a segment at `start`, behind the one with the number `previous`.
    ///
    /// # Errors
    /// What went wrong; nothing counts as begun then.
    pub fn begin(&self, start: Lsn, previous: u64) -> Result<Current, Failure> {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let time = self.clock.now();
        let header = Header { history: self.history, number, previous, start, time };
        let ready = self.spares.lock().pop();
        let spare = ready.map_or_else(|| self.make_spare(number), Ok)?;
        let path = header.path(&self.path);
        let begun = self.name(&spare, &path, &header);
        match begun {
            Ok(current) => {
                self.live.lock().push(header);
                Ok(current)
            }
            Err(failure) => {
                // Neither counts, should it stay: recovery passes over a segment that the next one supersedes.
                let _ = self.fs.remove(&spare);
                let _ = self.fs.remove(&path);
                Err(failure)
            }
        }
    }

    fn name(&self, spare: &Path, path: &Path, header: &Header) -> Result<Current, Failure> {
        let failed = |operation| move |error: io::Error| Failure::new(operation, path, &error);
        let file = self.fs.open(spare, Mode::Direct).map_err(failed(Operation::Prepare))?;
        let mut bytes = AlignedBytes::zeroed(FIRST_BLOCK as usize);
        header.encode(bytes.as_mut_slice());
        file.write_at(bytes.as_slice(), 0).map_err(failed(Operation::Write))?;
        file.sync_data().map_err(failed(Operation::Sync))?;
        self.fs.rename(spare, path).map_err(failed(Operation::Prepare))?;
        self.fs.sync_dir(&self.path).map_err(failed(Operation::Sync))?;
        let bytes = file.len().map_err(failed(Operation::Prepare))?;
        Ok(Current { file, header: *header, path: path.to_owned(), position: FIRST_BLOCK, bytes })
    }

    fn make_spare(&self, number: u64) -> Result<PathBuf, Failure> {
        let path = self.path.join(format!("spare-{number:08}.tmp"));
        let made = self.fs.open(&path, Mode::Truncate).and_then(|file| file.preallocate(self.segment_bytes));
        match made {
            Ok(()) => Ok(path),
            Err(error) => {
                let _ = self.fs.remove(&path);
                Err(Failure::new(Operation::Prepare, &path, &error))
            }
        }
    }

    /// Makes a spare segment, if there are not enough.
    ///
    /// # Errors
    /// What went wrong. Nobody needs it yet, so that this is no failure of the log.
    pub fn prepare(&self) -> Result<(), Failure> {
        if self.spares.lock().len() < SPARE_SEGMENTS {
            let spare = self.make_spare(self.next_number.fetch_add(1, Ordering::Relaxed))?;
            self.spares.lock().push(spare);
        }
        Ok(())
    }

    /// Whether there are fewer spares than there should be.
    pub fn lacks_spares(&self) -> bool {
        self.spares.lock().len() < SPARE_SEGMENTS
    }

    /// Removes the segments that hold nothing from `needed` on and that `retention` does not keep. Gives their count.
    ///
    /// # Errors
    /// The first; what was removed until then is gone.
    pub fn retire(&self, needed: Lsn, retention: Retention) -> io::Result<usize> {
        let now = self.clock.now();
        let mut live = self.live.lock();
        let mut count = 0;
        while let [oldest, next, ..] = live[..]
            && next.start <= needed
            && !self.is_kept(live.len() as u64, next.time, now, retention)
        {
            let path = oldest.path(&self.path);
            let mut spares = self.spares.lock();
            if spares.len() < SPARE_SEGMENTS && self.is_whole(&path) {
                let spare = self.path.join(format!("spare-{:08}.tmp", oldest.number));
                self.fs.rename(&path, &spare)?;
                spares.push(spare);
            } else {
                match self.fs.remove(&path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
            live.remove(0);
            count += 1;
        }
        if count > 0 {
            self.fs.sync_dir(&self.path)?;
        }
        Ok(count)
    }

    /// Whether the oldest of `count` segments must stay. It is as young as what the next one begins with.
    fn is_kept(&self, count: u64, next_begun: UnixMs, now: UnixMs, retention: Retention) -> bool {
        match retention {
            Retention::None => false,
            Retention::Milliseconds(ms) => now.0.saturating_sub(next_begun.0) < ms,
            Retention::Bytes(bytes) => count * self.segment_bytes <= bytes,
        }
    }

    /// Whether it is as long as segments are now.
    fn is_whole(&self, path: &Path) -> bool {
        let len = self.fs.open(path, Mode::Read).and_then(|file| file.len());
        len.is_ok_and(|len| len == self.segment_bytes)
    }

    /// The segments, from the oldest to the one that is written to.
    pub fn live(&self) -> Vec<Header> {
        self.live.lock().clone()
    }

    /// How many bytes the segments have in all.
    pub fn bytes(&self) -> u64 {
        (self.live.lock().len() + self.spares.lock().len()) as u64 * self.segment_bytes
    }

    /// Where the segment lies that begins with this header.
    pub fn path_of(&self, header: &Header) -> PathBuf {
        segment::path(&self.path, header.start, header.number)
    }
}
