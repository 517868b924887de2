//! Reads a checkpoint, by as many threads as want a chunk.

use super::{CHUNK_HEADER_BYTES, ChunkHeader, ChunkKind, HEADER_BYTES, MAGIC, TRAILER_BYTES, VERSION};
use crate::{Lsn, Refusal};
use parking_lot::Mutex;
use std::io;
use std::path::{Path, PathBuf};
use sys::UnixMs;
use sys::file::{File, Fs, Mode};

/// A complete checkpoint.
#[derive(Debug)]
pub struct Checkpoint {
    path: PathBuf,
    file: File,
    pub(crate) mark: Mark,
    /// The chunk that is read next.
    next: Mutex<Next>,
    /// Whether the log does not reach back to what is older.
    pub(crate) is_needed: bool,
}

/// Where a chunk lies. They are in the order in which they were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChunkPlace {
    index: u64,
    offset: u64,
}

#[derive(Debug)]
struct Next {
    offset: u64,
    index: u64,
}

impl Next {
    const FIRST: Next = Next { offset: HEADER_BYTES as u64, index: 0 };
}

/// What a complete checkpoint says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub history: u64,
    pub start: Lsn,
    pub end: Lsn,
    pub time: UnixMs,
    pub chunks: u64,
    /// Of the whole file.
    pub bytes: u64,
}

/// Why a file is no complete checkpoint.
#[derive(Debug)]
pub(crate) enum NotWhole {
    Disk(io::Error),
    Magic,
    Newer(u32),
    Damaged { offset: u64 },
}

impl Checkpoint {
    /// Opens a checkpoint and reads both ends.
    pub(crate) fn open(fs: &Fs, path: &Path) -> Result<Checkpoint, NotWhole> {
        let file = fs.open(path, Mode::Read).map_err(NotWhole::Disk)?;
        let bytes = file.len().map_err(NotWhole::Disk)?;
        let mut header = [0; HEADER_BYTES];
        let read = file.read_full_at(&mut header, 0).map_err(NotWhole::Disk)?;
        let (history, start, time) = decode_header(&header[..read])?;
        let trailer_bytes = (CHUNK_HEADER_BYTES + TRAILER_BYTES) as u64;
        let damaged = || NotWhole::Damaged { offset: bytes };
        let trailer_at = bytes.checked_sub(trailer_bytes).ok_or_else(damaged)?;
        let (chunk, body) = read_chunk(&file, trailer_at).map_err(NotWhole::Disk)?.ok_or_else(damaged)?;
        let u64_at = |at: usize| u64::from_le_bytes(body[at..at + 8].try_into().expect("eight bytes"));
        let is_right = chunk.kind == ChunkKind::Trailer as u32
            && body.len() == TRAILER_BYTES
            && u64_at(0) == chunk.index
            && u64_at(16) == trailer_at;
        if !is_right {
            return Err(damaged());
        }
        let mark = Mark { history, start, end: Lsn(u64_at(8)), time, chunks: chunk.index, bytes };
        Ok(Checkpoint { path: path.to_owned(), file, mark, next: Mutex::new(Next::FIRST), is_needed: true })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where it begins: the log must be replayed from here on.
    pub fn start(&self) -> Lsn {
        self.mark.start
    }

    /// Where it ends: no part of it holds effects from here on.
    pub fn end(&self) -> Lsn {
        self.mark.end
    }

    /// When it was begun.
    pub fn time(&self) -> UnixMs {
        self.mark.time
    }

    /// How many chunks it has.
    pub fn chunks(&self) -> u64 {
        self.mark.chunks
    }

    /// Length of the file, bytes.
    pub fn bytes(&self) -> u64 {
        self.mark.bytes
    }

    /// The chunk with this number, from 0 on, which [`Checkpoint::next_chunk`] gives too; None behind the last. Goes through the
    /// headers of all before it.
    ///
    /// # Errors
    /// As of [`Checkpoint::next_chunk`].
    pub fn chunk(&self, number: u64) -> Result<Option<Vec<u8>>, Refusal> {
        if number >= self.mark.chunks {
            return Ok(None);
        }
        let mut at = HEADER_BYTES as u64;
        for index in 0..number {
            at += self.header(at, index)?.chunk_bytes();
        }
        let header = self.header(at, number)?;
        self.body(at, &header).map(Some)
    }

    fn header(&self, at: u64, index: u64) -> Result<ChunkHeader, Refusal> {
        let header = read_header(&self.file, at).map_err(Refusal::disk(&self.path))?;
        let is_it = |header: &ChunkHeader| header.kind == ChunkKind::Content as u32 && header.index == index;
        header.filter(is_it).ok_or_else(|| self.damaged(at))
    }

    fn body(&self, at: u64, header: &ChunkHeader) -> Result<Vec<u8>, Refusal> {
        let body = read_body(&self.file, at, header).map_err(Refusal::disk(&self.path))?;
        body.ok_or_else(|| self.damaged(at))
    }

    fn damaged(&self, offset: u64) -> Refusal {
        Refusal::CheckpointDamaged { path: self.path.clone(), offset, is_needed: self.is_needed }
    }

    /// Has [`Checkpoint::next_chunk`] begin again with the first.
    pub fn begin_again(&self) {
        *self.next.lock() = Next::FIRST;
    }

    /// A chunk that was given out before, once more.
    ///
    /// # Errors
    /// As of [`Checkpoint::next_chunk`].
    pub fn chunk_at(&self, place: ChunkPlace) -> Result<Vec<u8>, Refusal> {
        let header = self.header(place.offset, place.index)?;
        self.body(place.offset, &header)
    }

    /// The next chunk for whoever asks, each once; None when all are given out. The calling thread reads and checks it.
    ///
    /// # Errors
    /// Damage, or that the disk does not read. Nothing of this checkpoint may be used then.
    pub fn next_chunk(&self) -> Result<Option<Vec<u8>>, Refusal> {
        Ok(self.next_placed_chunk()?.map(|(_, chunk)| chunk))
    }

    /// The same, and where it lies.
    ///
    /// # Errors
    /// As of [`Checkpoint::next_chunk`].
    pub fn next_placed_chunk(&self) -> Result<Option<(ChunkPlace, Vec<u8>)>, Refusal> {
        let mut next = self.next.lock();
        if next.index == self.mark.chunks {
            return Ok(None);
        }
        let at = next.offset;
        let place = ChunkPlace { index: next.index, offset: at };
        let header = self.header(at, next.index)?;
        next.offset += header.chunk_bytes();
        next.index += 1;
        drop(next);
        self.body(at, &header).map(|body| Some((place, body)))
    }
}

fn decode_header(bytes: &[u8]) -> Result<(u64, Lsn, UnixMs), NotWhole> {
    if !bytes.starts_with(&MAGIC) {
        return Err(NotWhole::Magic);
    }
    let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    if bytes.len() < HEADER_BYTES || u32_at(56) != crc32c::crc32c(&bytes[..56]) {
        return Err(NotWhole::Damaged { offset: 0 });
    }
    match u32_at(8) {
        1..=VERSION => Ok((u64_at(16), Lsn(u64_at(24)), UnixMs(u64_at(32)))),
        newer => Err(NotWhole::Newer(newer)),
    }
}

fn read_header(file: &File, at: u64) -> io::Result<Option<ChunkHeader>> {
    let mut bytes = [0; CHUNK_HEADER_BYTES];
    let read = file.read_full_at(&mut bytes, at)?;
    Ok(if read == bytes.len() { ChunkHeader::decode(&bytes) } else { None })
}

fn read_body(file: &File, at: u64, header: &ChunkHeader) -> io::Result<Option<Vec<u8>>> {
    let mut body = vec![0; header.body_bytes as usize];
    let read = file.read_full_at(&mut body, at + CHUNK_HEADER_BYTES as u64)?;
    let is_right = read == body.len() && crc32c::crc32c(&body) == header.body_crc;
    Ok(is_right.then_some(body))
}

fn read_chunk(file: &File, at: u64) -> io::Result<Option<(ChunkHeader, Vec<u8>)>> {
    let Some(header) = read_header(file, at)?.filter(|header| header.body_bytes as usize == TRAILER_BYTES)
    else {
        return Ok(None);
    };
    Ok(read_body(file, at, &header)?.map(|body| (header, body)))
}
