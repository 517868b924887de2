//! A full copy of the master's data: written to a file of its own as it comes, then put in the place of all that is here.

use crate::server::Server;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use sys::file::{File, Fs, Mode};

/// The file that a copy is written to. It goes with the last use of it; what a crash leaves goes at the next start.
pub struct Spool {
    file: File,
    path: PathBuf,
    bytes: u64,
}

/// Pieces of what has come that are not read through yet.
const PIECES: usize = 8;

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

/// What comes of a copy, for whoever reads it through meanwhile.
pub struct Arriving {
    from: Receiver<Vec<u8>>,
    piece: Vec<u8>,
    at: usize,
}

impl Arriving {
    /// The two ends: a few pieces wait between them.
    pub fn channel() -> (SyncSender<Vec<u8>>, Arriving) {
        let (to, from) = sync_channel(PIECES);
        (to, Arriving { from, piece: Vec::new(), at: 0 })
    }
}

impl Read for Arriving {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.at == self.piece.len() {
            // Whoever has the other end says nothing more at the end of the copy, or when it gives up.
            let Ok(piece) = self.from.recv() else { return Ok(0) };
            (self.piece, self.at) = (piece, 0);
        }
        let count = into.len().min(self.piece.len() - self.at);
        into[..count].copy_from_slice(&self.piece[self.at..self.at + count]);
        self.at += count;
        Ok(count)
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
