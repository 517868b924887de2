//! Reads segments: blocks in order, each checked, put together to whole records.
//!
//! One thread a reader; several may read the same log. Reading never writes. Invariants:
//! 1. A segment's blocks count up to where the next segment of the chain begins, whatever follows there.
//! 2. What is given out is complete: never a part of a record, never a byte whose checksum was not right.

use crate::block::{self, Block, HEADER_BYTES, Joiner};
use crate::limits::{BLOCK_ALIGN, BLOCK_BYTES_MAX};
use crate::restore::way_to;
use crate::segment::{self, FIRST_BLOCK};
use crate::{Lsn, Refusal};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use sys::file::{File, Fs, Mode};

/// Bytes read at once: several blocks, so that reading small ones is not a call each.
const WINDOW_BYTES: usize = 4 * BLOCK_BYTES_MAX;

/// A segment's blocks as they lie there.
#[derive(Debug)]
pub(crate) struct Segment {
    pub header: segment::Header,
    file: File,
    bytes: u64,
    window: Vec<u8>,
    window_at: u64,
    /// Where the next block should be.
    pub position: u64,
    /// With which Lsn.
    pub lsn: Lsn,
}

/// What lies where a block should be.
#[derive(Debug)]
pub(crate) enum Found {
    /// A block.
    Block(block::Header, Vec<u8>),
    /// A block's header, and not what it was written for.
    Torn,
    /// Nothing of this segment.
    Nothing,
}

impl Segment {
    pub fn open(fs: &Fs, path: &Path, header: segment::Header) -> io::Result<Segment> {
        let file = fs.open(path, Mode::Read)?;
        Ok(Segment {
            bytes: file.len()?,
            header,
            file,
            window: Vec::new(),
            window_at: 0,
            position: FIRST_BLOCK,
            lsn: header.start,
        })
    }

    /// `count` bytes from `at` on; fewer at the end of the file.
    fn window(&mut self, at: u64, count: usize) -> io::Result<&[u8]> {
        let has_it = at >= self.window_at && at + count as u64 <= self.window_at + self.window.len() as u64;
        if !has_it {
            let rest = usize::try_from(self.bytes.saturating_sub(at)).unwrap_or(usize::MAX);
            self.window.resize(WINDOW_BYTES.max(count).min(rest), 0);
            let read = self.file.read_full_at(&mut self.window, at)?;
            self.window.truncate(read);
            self.window_at = at;
        }
        let from = usize::try_from(at - self.window_at).expect("it is within the window");
        Ok(&self.window[from..(from + count).min(self.window.len())])
    }

    fn header_at(&mut self, at: u64) -> io::Result<Option<block::Header>> {
        let number = self.header.number;
        let header = block::Header::decode(self.window(at, HEADER_BYTES)?);
        Ok(header.filter(|header| header.segment == number))
    }

    /// The block at the position; moves on if there is one.
    pub fn next(&mut self) -> io::Result<Found> {
        let at = self.position;
        let lsn = self.lsn;
        let Some(header) = self.header_at(at)?.filter(|header| header.lsn == lsn) else {
            return Ok(Found::Nothing);
        };
        if header.stride() > BLOCK_BYTES_MAX {
            return Ok(Found::Torn);
        }
        let block = self.window(at, HEADER_BYTES + header.body_bytes as usize)?;
        let body = &block[HEADER_BYTES.min(block.len())..];
        if body.len() < header.body_bytes as usize || !header.matches(body) {
            return Ok(Found::Torn);
        }
        let body = body.to_owned();
        self.position += header.stride() as u64;
        self.lsn = header.end();
        Ok(Found::Block(header, body))
    }

    /// Length of the file.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether the file is shorter than it was when it was begun.
    pub fn is_cut(&self) -> bool {
        self.header.is_cut_at(self.bytes)
    }

    /// Whether a later block of this segment says that more was durable than is intact up to the position.
    pub fn has_proof_of_loss(&mut self) -> io::Result<bool> {
        let (lsn, mut at) = (self.lsn, self.position + BLOCK_ALIGN as u64);
        while at < self.bytes {
            if self.header_at(at)?.is_some_and(|header| header.synced > lsn) {
                return Ok(true);
            }
            at += BLOCK_ALIGN as u64;
        }
        Ok(false)
    }
}

/// A segment of the log, and up to where it counts.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub path: PathBuf,
    pub header: segment::Header,
    pub end: Lsn,
}

/// The log from some place to its end, block by block.
#[derive(Debug)]
pub struct Blocks {
    fs: Fs,
    links: Arc<[Link]>,
    next_link: usize,
    segment: Option<Segment>,
    joiner: Joiner,
    from: Lsn,
    end: Lsn,
    /// Where to look for a way to what lies before damage.
    dir: Option<PathBuf>,
}

impl Blocks {
    /// All records of the chain from `from` up to `end`, both where a record begins.
    pub(crate) fn new(fs: &Fs, links: Arc<[Link]>, from: Lsn, end: Lsn) -> Blocks {
        // Of several that begin there, the last: those before it hold nothing.
        let next_link = links.iter().rposition(|link| link.header.start <= from).unwrap_or(0);
        Blocks {
            fs: fs.clone(),
            links,
            next_link,
            segment: None,
            joiner: Joiner::new(from),
            from,
            end,
            dir: None,
        }
    }

    /// The same, saying of damage also up to where the directory can be restored.
    pub(crate) fn of_dir(self, dir: &Path) -> Blocks {
        Blocks { dir: Some(dir.to_owned()), ..self }
    }

    /// Where the reader stops.
    pub fn end(&self) -> Lsn {
        self.end
    }

    /// The next block; None at the end.
    ///
    /// # Errors
    /// Damage, or that the disk does not read. Nothing of this log may be used then.
    pub fn next_block(&mut self) -> Result<Option<Block>, Refusal> {
        let next = self.read_block();
        next.map_err(|refusal| match &self.dir {
            Some(dir) => refusal.with_way(|lsn| way_to(&self.fs, dir, lsn)),
            None => refusal,
        })
    }

    fn read_block(&mut self) -> Result<Option<Block>, Refusal> {
        loop {
            if self.segment.is_none() && !self.open_next()? {
                return Ok(None);
            }
            let link = &self.links[self.next_link - 1];
            let limit = link.end.min(self.end);
            let segment = self.segment.as_mut().expect("it was opened");
            if segment.lsn >= limit {
                self.segment = None;
                continue;
            }
            let (offset, lsn) = (segment.position, segment.lsn);
            let damaged = |what| Refusal::Damaged { path: link.path.clone(), offset, lsn, what, way: None };
            let found = segment.next().map_err(Refusal::disk(&link.path))?;
            let (header, body) = match found {
                // Where the reader stops may be within a block; where the next segment begins may not.
                Found::Block(header, body) if header.end() <= link.end => (header, body),
                Found::Block(..) => return Err(damaged("a block goes on where the next segment begins")),
                Found::Torn => return Err(damaged("a checksum is wrong")),
                Found::Nothing => return Err(damaged("there is no block")),
            };
            let block = self.joiner.push(&header, body).map_err(damaged)?;
            if block.is_some() {
                return Ok(block);
            }
        }
    }

    fn open_next(&mut self) -> Result<bool, Refusal> {
        let Some(link) = self.links.get(self.next_link) else { return Ok(false) };
        if link.header.start >= self.end || self.from >= self.end {
            return Ok(false);
        }
        self.next_link += 1;
        let opened = Segment::open(&self.fs, &link.path, link.header);
        self.segment = Some(opened.map_err(Refusal::disk(&link.path))?);
        Ok(true)
    }
}
