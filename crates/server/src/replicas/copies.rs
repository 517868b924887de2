//! Full copies in files, of which each may go to several replicas, at the pace of each.
//!
//! Thread rule: one thread makes a copy; that of each replica which gets it waits until it is made, and reads the file.
//!
//! Invariant: the file goes with the last who has the copy.

use super::replica::Replica;
use ::log::ReplicationId;
use engine::full_copy::{Beginning, Stamps, Wanted};
use parking_lot::{Condvar, Mutex};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use sys::file::{File, Fs, Mode};

/// Bytes read at once of a file.
const PIECE_BYTES: usize = 256 << 10;

/// How often who waits for a copy looks whether its replica is still there.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// A copy that is being made, or is there.
pub struct Copy {
    /// What it holds, and for whom.
    pub wanted: Wanted,
    /// The stream behind it, and which of that name: see [`super::State::generation`].
    pub stream: (ReplicationId, u64),
    /// Where it begins in the history.
    pub beginning: Beginning,
    /// The same as an offset.
    pub from: u64,
    /// When it did.
    pub began: Instant,
    making: Mutex<Making>,
    changed: Condvar,
    receivers: Mutex<Vec<Weak<Replica>>>,
    /// Nobody else is to get it.
    is_spoilt: AtomicBool,
    /// One of those that get it has all of it, or is about to.
    was_taken: AtomicBool,
}

enum Making {
    Underway,
    Made(Arc<Made>),
    Failed(io::ErrorKind, String),
}

/// What there is of a copy that is made.
pub struct Made {
    /// Its bytes.
    pub spool: Spool,
    /// Up to where each slot goes.
    pub stamps: Stamps,
    /// The offset of its end.
    pub until: u64,
}

impl Copy {
    /// One that begins now.
    pub fn new(wanted: Wanted, stream: (ReplicationId, u64), beginning: Beginning, from: u64) -> Copy {
        Copy {
            wanted,
            stream,
            beginning,
            from,
            began: Instant::now(),
            making: Mutex::new(Making::Underway),
            changed: Condvar::new(),
            receivers: Mutex::new(Vec::new()),
            is_spoilt: AtomicBool::new(false),
            was_taken: AtomicBool::new(false),
        }
    }

    /// It is made, or is not to be had.
    pub fn finish(&self, made: io::Result<Made>) {
        *self.making.lock() = match made {
            Ok(made) => Making::Made(Arc::new(made)),
            Err(error) => {
                self.spoil();
                Making::Failed(error.kind(), error.to_string())
            }
        };
        self.changed.notify_all();
    }

    /// Waits until it is made, for a replica.
    ///
    /// # Errors
    /// It cannot be made, or the replica is gone.
    pub fn wait(&self, replica: &Replica) -> io::Result<Arc<Made>> {
        let mut making = self.making.lock();
        loop {
            match &*making {
                Making::Made(made) => return Ok(made.clone()),
                Making::Failed(kind, reason) => return Err(io::Error::new(*kind, reason.clone())),
                Making::Underway if replica.is_gone() => {
                    return Err(io::Error::new(io::ErrorKind::BrokenPipe, "it is gone"));
                }
                Making::Underway => drop(self.changed.wait_for(&mut making, LOOK_AGAIN)),
            }
        }
    }

    /// Whether it is still being made.
    pub fn is_underway(&self) -> bool {
        matches!(*self.making.lock(), Making::Underway)
    }

    /// Nobody else gets it: what it leads to is no use.
    pub fn spoil(&self) {
        self.is_spoilt.store(true, Ordering::Release);
    }

    /// Whether that has been said.
    pub fn is_spoilt(&self) -> bool {
        self.is_spoilt.load(Ordering::Acquire)
    }

    /// The last of it goes to one of those that get it.
    pub fn note_taken(&self) {
        self.was_taken.store(true, Ordering::Release);
    }

    /// Whether it is still on its way to all that get it.
    pub fn is_on_its_way(&self) -> bool {
        !self.was_taken.load(Ordering::Acquire)
    }

    /// A replica gets it.
    pub fn add_receiver(&self, replica: &Arc<Replica>) {
        let mut receivers = self.receivers.lock();
        receivers.retain(|known| known.strong_count() > 0);
        receivers.push(Arc::downgrade(replica));
    }

    /// All that have got it, or get it, and are still here.
    pub fn receivers(&self) -> Vec<Arc<Replica>> {
        self.receivers.lock().iter().filter_map(Weak::upgrade).collect()
    }
}

/// With which the names of such files begin.
const NAME_BEGIN: &str = "temp-replica-";

/// Removes what a run that was ended has left of copies on their way to replicas.
pub fn remove_left(dir: &Path) {
    let names = Fs::Real.list(dir).unwrap_or_default();
    let is_left = |name: &&str| name.starts_with(NAME_BEGIN) && name.ends_with(".rdb");
    for name in names.iter().filter_map(|name| name.to_str()).filter(is_left) {
        // What stays does no harm but by its size.
        let _ = Fs::Real.remove(&dir.join(name));
    }
}

/// A copy's file, which goes with this.
pub struct Spool {
    path: PathBuf,
    file: File,
    bytes: u64,
}

impl Spool {
    /// An empty one. No other of this process has its number.
    ///
    /// # Errors
    /// If the disk refuses.
    pub fn begin(dir: &Path, number: u64) -> io::Result<Spool> {
        let path = dir.join(format!("{NAME_BEGIN}{}-{number}.rdb", std::process::id()));
        let file = Fs::Real.open(&path, Mode::CreateNew)?;
        Ok(Spool { path, file, bytes: 0 })
    }

    /// How long it is.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Appends.
    ///
    /// # Errors
    /// If the disk refuses.
    pub fn write(&mut self, piece: &[u8]) -> io::Result<()> {
        self.file.write_at(piece, self.bytes)?;
        self.bytes += piece.len() as u64;
        Ok(())
    }

    /// Some bytes from a place before its end on.
    ///
    /// # Errors
    /// If the disk refuses.
    pub fn read(&self, at: u64) -> io::Result<Vec<u8>> {
        let mut piece = vec![0; PIECE_BYTES.min(usize::try_from(self.bytes - at).unwrap_or(PIECE_BYTES))];
        let read = self.file.read_full_at(&mut piece, at)?;
        if read == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file became shorter"));
        }
        piece.truncate(read);
        Ok(piece)
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = Fs::Real.remove(&self.path);
    }
}
