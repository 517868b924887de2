//! Writes a checkpoint: under a temporary name, synced bit by bit, and named when it is complete.

use super::Mark;
use super::{ChunkHeader, ChunkKind, HEADER_BYTES, MAGIC, TRAILER_BYTES, VERSION, path};
use crate::Lsn;
use crate::limits::{CHECKPOINT_SYNC_BYTES, CHUNK_BYTES_MAX};
use std::io;
use std::path::{Path, PathBuf};
use sys::UnixMs;
use sys::file::{File, Fs, Mode};

/// A checkpoint in the making. Dropped before it is finished, it leaves nothing.
#[derive(Debug)]
pub struct CheckpointWriter {
    fs: Fs,
    file: File,
    dir: PathBuf,
    temporary: Option<PathBuf>,
    history: u64,
    start: Lsn,
    time: UnixMs,
    written: u64,
    unsynced: u64,
    chunks: u64,
    scratch: Vec<u8>,
}

impl CheckpointWriter {
    pub(crate) fn begin(
        fs: &Fs,
        dir: &Path,
        history: u64,
        start: Lsn,
        time: UnixMs,
    ) -> io::Result<CheckpointWriter> {
        let temporary = path(dir, start).with_extension("checkpoint.tmp");
        let file = fs.open(&temporary, Mode::Truncate)?;
        let mut writer = CheckpointWriter {
            fs: fs.clone(),
            file,
            dir: dir.to_owned(),
            temporary: Some(temporary),
            history,
            start,
            time,
            written: 0,
            unsynced: 0,
            chunks: 0,
            scratch: Vec::new(),
        };
        let header = encode_header(history, start, time);
        writer.put(&header)?;
        Ok(writer)
    }

    /// Where it begins: replaying starts there.
    pub fn start(&self) -> Lsn {
        self.start
    }

    /// Bytes so far.
    pub fn bytes(&self) -> u64 {
        self.written
    }

    /// Appends a chunk, to be read as a whole by one thread. At most `CHUNK_BYTES_MAX` bytes; some 100 KB to 1 MB are
    /// best.
    ///
    /// # Errors
    /// If the disk refuses, or the chunk is too long. The checkpoint cannot be finished then.
    pub fn chunk(&mut self, content: &[u8]) -> io::Result<()> {
        if content.len() > CHUNK_BYTES_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.put_chunk(ChunkKind::Content, content)?;
        self.chunks += 1;
        if self.unsynced >= CHECKPOINT_SYNC_BYTES {
            self.file.sync_data()?;
            self.unsynced = 0;
        }
        Ok(())
    }

    /// Completes it; it is the newest checkpoint when this returns. The log must be durable up to `end`, where it ended
    /// when the last chunk was copied.
    pub(crate) fn complete(mut self, end: Lsn) -> io::Result<Mark> {
        let mut trailer = [0; TRAILER_BYTES];
        trailer[..8].copy_from_slice(&self.chunks.to_le_bytes());
        trailer[8..16].copy_from_slice(&end.0.to_le_bytes());
        trailer[16..].copy_from_slice(&self.written.to_le_bytes());
        self.put_chunk(ChunkKind::Trailer, &trailer)?;
        self.file.sync_data()?;
        let temporary = self.temporary.as_ref().expect("only completing takes it");
        self.fs.rename(temporary, &path(&self.dir, self.start))?;
        self.temporary = None;
        self.fs.sync_dir(&self.dir)?;
        let Self { history, start, time, chunks, written: bytes, .. } = self;
        Ok(Mark { history, start, end, time, chunks, bytes })
    }

    fn put_chunk(&mut self, kind: ChunkKind, body: &[u8]) -> io::Result<()> {
        let header = ChunkHeader::of(kind, self.chunks, body).encode();
        let mut bytes = std::mem::take(&mut self.scratch);
        bytes.clear();
        bytes.extend_from_slice(&header);
        bytes.extend_from_slice(body);
        let put = self.put(&bytes);
        self.scratch = bytes;
        put
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_at(bytes, self.written)?;
        self.written += bytes.len() as u64;
        self.unsynced += bytes.len() as u64;
        Ok(())
    }
}

impl Drop for CheckpointWriter {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // If it stays, the next start removes it.
            let _ = self.fs.remove(temporary);
        }
    }
}

/// A checkpoint's first bytes.
fn encode_header(history: u64, start: Lsn, time: UnixMs) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[16..24].copy_from_slice(&history.to_le_bytes());
    bytes[24..32].copy_from_slice(&start.0.to_le_bytes());
    bytes[32..40].copy_from_slice(&time.0.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..56]);
    bytes[56..60].copy_from_slice(&crc.to_le_bytes());
    bytes
}
