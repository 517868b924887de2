//! Checkpoints: everything the keyspace held, copied slot by slot, so that the log before it is not needed.
//!
//! This is the container: chunks of bytes whose content the caller knows, framed and checked, and a trailer without which
//! the whole counts for nothing. Bytes: `docs/formats/checkpoint.md`.
//!
//! A checkpoint is copied while commands run: it begins at one Lsn and ends at another, and holds all effects before the
//! first, and for each of its parts those up to some Lsn between the two. The log from the first on must be replayed
//! over it, and must reach the second.

mod reader;
mod writer;

pub use reader::{Checkpoint, ChunkPlace};
pub(crate) use reader::{Mark, NotWhole};
pub use writer::CheckpointWriter;

use crate::{Lsn, segment};
use std::path::{Path, PathBuf};

const MAGIC: [u8; 8] = *b"TARNCKP\n";
/// What is written. Those before it are read, too; what a chunk's body says is the caller's matter in all of them.
const VERSION: u32 = 2;
/// Bytes of the file's header.
const HEADER_BYTES: usize = 64;
/// Bytes before each chunk, and before the trailer.
const CHUNK_HEADER_BYTES: usize = 24;
/// Bytes of the trailer behind its header.
const TRAILER_BYTES: usize = 24;

/// What follows a chunk's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum ChunkKind {
    Content = 1,
    Trailer = 2,
}

/// What stands before a chunk.
#[derive(Clone, Copy, Debug)]
struct ChunkHeader {
    kind: u32,
    body_bytes: u32,
    body_crc: u32,
    /// Chunks before this one.
    index: u64,
}

impl ChunkHeader {
    fn of(kind: ChunkKind, index: u64, body: &[u8]) -> ChunkHeader {
        let body_bytes = u32::try_from(body.len()).expect("chunks are shorter");
        ChunkHeader { kind: kind as u32, body_bytes, body_crc: crc32c::crc32c(body), index }
    }

    /// Bytes of the chunk with this header.
    fn chunk_bytes(&self) -> u64 {
        CHUNK_HEADER_BYTES as u64 + u64::from(self.body_bytes)
    }

    fn encode(&self) -> [u8; CHUNK_HEADER_BYTES] {
        let mut bytes = [0; CHUNK_HEADER_BYTES];
        bytes[4..8].copy_from_slice(&self.body_crc.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.body_bytes.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.kind.to_le_bytes());
        bytes[16..].copy_from_slice(&self.index.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[4..]);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; CHUNK_HEADER_BYTES]) -> Option<ChunkHeader> {
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let is_right = u32_at(0) == crc32c::crc32c(&bytes[4..]);
        let index = u64::from_le_bytes(bytes[16..].try_into().expect("eight bytes"));
        is_right.then(|| ChunkHeader { kind: u32_at(12), body_bytes: u32_at(8), body_crc: u32_at(4), index })
    }
}

/// Where the checkpoint lies that begins at `start`.
pub(crate) fn path(dir: &Path, start: Lsn) -> PathBuf {
    dir.join(format!("log-{:020}.checkpoint", start.0))
}

/// Where a checkpoint's name says that it begins; None if it is no checkpoint's name.
pub(crate) fn parse_name(name: &str) -> Option<Lsn> {
    let start = name.strip_prefix("log-")?.strip_suffix(".checkpoint")?;
    segment::number(start, segment::LSN_DIGITS).map(Lsn)
}
