//! How likely the kernel ends this process when the machine's memory is full.
//!
//! Thread rule: any thread; changes follow one another.

use parking_lot::Mutex;
use std::fs;
use std::io;
use std::path::PathBuf;

/// What the process is wanted to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// What it had before it was changed here; if it was not, whatever it has.
    AsItWas,
    /// So much more than it had before it was changed here.
    Relative(i64),
    /// This.
    Absolute(i64),
}

/// The process' score.
#[derive(Debug)]
pub struct OomScore {
    path: PathBuf,
    /// What it was before it was changed here, while it is.
    base: Mutex<Option<i64>>,
}

impl Default for OomScore {
    /// The calling process'.
    fn default() -> OomScore {
        OomScore::at("/proc/self/oom_score_adj".into())
    }
}

impl OomScore {
    /// The score that is in this file.
    pub fn at(path: PathBuf) -> OomScore {
        OomScore { path, base: Mutex::new(None) }
    }

    /// Has the score be this, as near as the kernel's bounds allow.
    ///
    /// # Errors
    /// The kernel's: who is not privileged cannot go below what was set by who was.
    pub fn set(&self, wanted: Wanted) -> io::Result<()> {
        const BOUND: i64 = 1000;
        let mut base = self.base.lock();
        let before = match *base {
            Some(before) => before,
            None if wanted == Wanted::AsItWas => return Ok(()),
            None => self.read()?,
        };
        let score = match wanted {
            Wanted::AsItWas => before,
            Wanted::Relative(more) => before + more,
            Wanted::Absolute(score) => score,
        };
        *base = (wanted != Wanted::AsItWas).then_some(before);
        fs::write(&self.path, format!("{}\n", score.clamp(-BOUND, BOUND)))
    }

    fn read(&self) -> io::Result<i64> {
        let text = fs::read_to_string(&self.path)?;
        text.trim().parse().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_was_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("score");
        let score = OomScore::at(path.clone());
        let is = |value: &str| fs::read_to_string(&path).unwrap().trim() == value;
        assert!(score.set(Wanted::Relative(1)).is_err());
        fs::write(&path, "22\n").unwrap();
        score.set(Wanted::AsItWas).unwrap();
        assert!(is("22"));
        for (wanted, value) in [
            (Wanted::Relative(9), "31"),
            (Wanted::Absolute(9), "9"),
            (Wanted::Relative(2000), "1000"),
            (Wanted::Absolute(-2000), "-1000"),
            (Wanted::AsItWas, "22"),
        ] {
            score.set(wanted).unwrap();
            assert!(is(value), "{wanted:?}");
        }
        // Nobody here has changed it any more.
        fs::write(&path, "5\n").unwrap();
        score.set(Wanted::AsItWas).unwrap();
        assert!(is("5"));
        score.set(Wanted::Relative(1)).unwrap();
        assert!(is("6"));
    }
}
