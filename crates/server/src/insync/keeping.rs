//! What a node with a log keeps beside it: which life its data is, the highest epoch that it has acted in, and the epochs of its log.
//!
//! It is written before anything that it tells of: before a reign's first record, before the first byte of a master's log. So it may
//! name epochs that the log never came to, which is seen by where the log ends.

use ::log::Lsn;
use replication::insync::{Epoch, History, Kept, Life, Restored};
use std::io;
use std::path::{Path, PathBuf};
use sys::Prng;
use sys::file::Fs;

/// The file's name in the server's directory.
const NAME: &str = "insync";

/// The longest file that is read.
const BYTES_MAX: u64 = 16 << 20;

/// The file; None: there is no log, and what is here ends with the process.
pub struct Keeping {
    path: Option<(Fs, PathBuf)>,
    /// What it says.
    pub kept: Kept,
    lives: Prng,
}

impl Keeping {
    /// What was kept of the data in a directory; of what was not, that it is another life, one of `lives`. `dir` is none where there is no log.
    ///
    /// # Errors
    /// The file cannot be read, or is damaged: who this node is cannot be guessed.
    pub fn open(dir: Option<(Fs, PathBuf)>, mut lives: Prng) -> io::Result<Keeping> {
        let path = dir.map(|(fs, dir)| (fs, dir.join(NAME)));
        let is_there = match &path {
            Some((fs, path)) => fs.kind(path)?.is_some(),
            None => false,
        };
        let kept = match &path {
            Some((fs, path)) if is_there => read(fs, path)?,
            _ => Kept {
                life: one_of(&mut lives),
                epoch: Epoch(0),
                is_torn: false,
                whole_from: Lsn::ZERO,
                history: History::default(),
            },
        };
        Ok(Keeping { path, kept, lives })
    }

    /// A life that nobody has.
    pub fn new_life(&mut self) -> Life {
        one_of(&mut self.lives)
    }

    /// What a member goes on from whose log ends there.
    pub fn restored(&self, end: Lsn) -> Restored {
        Restored { epoch: self.kept.epoch, history: self.kept.history.clone().until(end), end }
    }

    /// Keeps something else.
    ///
    /// # Errors
    /// Those of the disk: the former is kept then.
    pub fn keep(&mut self, kept: Kept) -> io::Result<()> {
        if let Some((fs, path)) = &self.path {
            fs.replace(path, format!("{}\n", kept.to_line()).as_bytes())?;
        }
        self.kept = kept;
        Ok(())
    }
}

fn one_of(lives: &mut Prng) -> Life {
    // 0 is the origin of what has none.
    Life(lives.next_u64().max(1))
}

fn read(fs: &Fs, path: &Path) -> io::Result<Kept> {
    let bytes = fs.read(path, BYTES_MAX)?;
    let line = std::str::from_utf8(&bytes).ok().map(str::trim_end);
    line.and_then(Kept::from_line).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!(
                "{} is damaged, so that it is not known what the data is of; without the file the server begins as a node that has nothing",
                path.display()
            ),
        )
    })
}
