//! Whose turn it is to replace the snapshot's file: the newest that was begun. A snapshot in the background that another has taken the
//! turn from is given up; what it has written goes, and never takes the place of what the other writes.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use sys::file::{Fs, Replacement};

/// Hands out the turns of one server. Any thread may take one; it waits for no more than a file taking its place.
#[derive(Debug, Default)]
pub struct Turns {
    /// Of the newest turn.
    number: AtomicU64,
    /// The temporary file of the one in the background. Locked while that takes its place, and while a turn is taken.
    written: Mutex<Option<PathBuf>>,
}

/// One snapshot's right to replace the file, until another has it.
#[derive(Clone, Debug)]
pub struct Turn {
    turns: Arc<Turns>,
    number: u64,
}

impl Turns {
    /// The next turn. What has it until now is given up.
    pub fn take(self: &Arc<Turns>) -> Turn {
        let mut written = self.written.lock();
        if let Some(temporary) = written.take() {
            // What stays is removed by the next start.
            let _ = Fs::Real.remove(&temporary);
        }
        let number = self.number.fetch_add(1, Ordering::AcqRel) + 1;
        Turn { turns: self.clone(), number }
    }
}

impl Turn {
    /// Whether another has it.
    pub fn is_over(&self) -> bool {
        self.turns.number.load(Ordering::Acquire) != self.number
    }

    /// Begins the file of a snapshot in the background.
    ///
    /// # Errors
    /// Those of the disk; or the turn is over.
    pub fn begin(&self, path: &Path) -> io::Result<Replacement> {
        let file = Replacement::begin(&Fs::Real, path)?;
        let mut written = self.turns.written.lock();
        self.holds()?;
        *written = Some(file.temporary().to_owned());
        Ok(file)
    }

    /// Says in an error that the turn is over.
    ///
    /// # Errors
    /// If it is.
    pub fn holds(&self) -> io::Result<()> {
        match self.is_over() {
            true => Err(io::Error::new(io::ErrorKind::Interrupted, "another snapshot takes its place")),
            false => Ok(()),
        }
    }

    /// Puts the file in its place, unless the turn is over.
    ///
    /// # Errors
    /// Those of the disk; or the turn is over, and what lies there stays.
    pub fn commit(&self, file: Replacement) -> io::Result<()> {
        // Who takes the next turn does not wait for this.
        file.sync()?;
        let mut written = self.turns.written.lock();
        self.holds()?;
        *written = None;
        file.commit()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_up_never_takes_its_place() {
        let dir = std::env::temp_dir().join(format!("tarn-turn-{}", std::process::id()));
        Fs::Real.create_dir_all(&dir).unwrap();
        let (path, turns) = (dir.join("dump.rdb"), Arc::new(Turns::default()));
        let first = turns.take();
        let mut given_up = first.begin(&path).unwrap();
        given_up.write(b"given up").unwrap();
        let second = turns.take();
        assert_eq!(Fs::Real.list(&dir).unwrap(), [""; 0], "its file is gone at once");
        assert!(first.is_over() && !second.is_over());
        let mut whole = second.begin(&path).unwrap();
        whole.write(b"whole").unwrap();
        second.commit(whole).unwrap();
        assert_eq!(first.commit(given_up).unwrap_err().kind(), io::ErrorKind::Interrupted);
        assert_eq!(first.begin(&path).unwrap_err().kind(), io::ErrorKind::Interrupted);
        assert_eq!(Fs::Real.list(&dir).unwrap(), ["dump.rdb"]);
        assert_eq!(Fs::Real.read(&path, 100).unwrap(), b"whole");
        // What has been put in its place stays there.
        turns.take();
        assert_eq!(Fs::Real.list(&dir).unwrap(), ["dump.rdb"]);
        Fs::Real.remove(&path).and_then(|()| Fs::Real.remove_dir(&dir)).unwrap();
    }
}
