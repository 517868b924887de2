//! A full copy of the master's data: written to a file of its own as it comes, then put in the place of all that is here.

use crate::server::Server;
use std::io;
use std::path::{Path, PathBuf};
use sys::file::{File, Fs, Mode};

/// The file that a copy is written to. It goes with the last use of it; what a crash leaves goes at the next start.
pub struct Spool {
    file: File,
    path: PathBuf,
    bytes: u64,
}

/// The file's name in the server's directory.
const NAME: &str = "temp-sync.rdb.tmp";

impl Spool {
    /// An empty one.
    pub fn begin(server: &Server) -> io::Result<Spool> {
        let path = server.engine.dir().join(NAME);
        Ok(Spool { file: Fs::Real.open(&path, Mode::Truncate)?, path, bytes: 0 })
    }

    pub fn push(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_at(bytes, self.bytes)?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        // What stays is overwritten by the next copy.
        let _ = Fs::Real.remove(&self.path);
    }
}

/// Removes what a run that was ended has left of a copy.
pub fn remove_left(dir: &Path) {
    let _ = Fs::Real.remove(&dir.join(NAME));
}
