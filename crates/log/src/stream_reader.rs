//! Reads the stream out of segments, for a replica that was away for longer than what is kept in memory.
//!
//! One thread a reader; beside the flusher, which writes behind what is read. A segment that is retired meanwhile is found to be
//! damaged, unless it was kept ([`crate::Log::keep_stream_from`]).

use crate::block::stream_in;
use crate::directory::Directory;
use crate::reader::{Found, Segment};
use crate::segment::Header;
use crate::{Lsn, Refusal};
use std::collections::VecDeque;
use std::path::PathBuf;
use sys::file::Fs;

/// The stream from an offset on, up to what was durable when it was opened.
#[derive(Debug)]
pub struct StreamReader {
    fs: Fs,
    dir: PathBuf,
    /// Those to come.
    headers: VecDeque<Header>,
    segment: Option<Segment>,
    /// Of the next block.
    offset: u64,
    from: u64,
    end: u64,
    end_lsn: Lsn,
}

impl StreamReader {
    /// One from `from` on; None if no segment has that.
    pub(crate) fn open(directory: &Directory, from: u64) -> Result<Option<StreamReader>, Refusal> {
        let Some(stream) = directory.stream().filter(|stream| from <= stream.offset) else { return Ok(None) };
        let mut headers = VecDeque::from(directory.live_of_stream());
        let offset = |header: &Header| header.stream.map_or(u64::MAX, |stream| stream.offset);
        // One may begin where another does, and hold nothing.
        while headers.get(1).is_some_and(|next| offset(next) <= from) {
            headers.pop_front();
        }
        let Some(offset) = headers.front().map(offset).filter(|offset| *offset <= from) else {
            return Ok(None);
        };
        let (fs, dir) = (directory.fs.clone(), directory.path.clone());
        let (end, end_lsn) = (stream.offset, stream.at);
        Ok(Some(StreamReader { fs, dir, headers, segment: None, offset, from, end, end_lsn }))
    }

    /// The next bytes; None at the end.
    ///
    /// # Errors
    /// That the disk does not read, or damage.
    pub fn next_bytes(&mut self) -> Result<Option<Vec<u8>>, Refusal> {
        while self.offset < self.end {
            let Some(bytes) = self.next_block()? else { return Ok(None) };
            let before = self.offset;
            self.offset += bytes.len() as u64;
            if self.offset > self.from {
                let skipped = usize::try_from(self.from.saturating_sub(before)).unwrap_or(usize::MAX);
                return Ok(Some(bytes[skipped..].to_vec()));
            }
        }
        Ok(None)
    }

    fn next_block(&mut self) -> Result<Option<Vec<u8>>, Refusal> {
        loop {
            let Some(mut segment) = self.segment.take() else {
                let Some(header) = self.headers.pop_front() else { return Ok(None) };
                let path = header.path(&self.dir);
                self.segment = Some(Segment::open(&self.fs, &path, header).map_err(Refusal::disk(&path))?);
                continue;
            };
            let limit = self.headers.front().map_or(self.end_lsn, |next| next.start);
            if segment.lsn >= limit {
                continue;
            }
            let path = segment.header.path(&self.dir);
            let (offset, lsn) = (segment.position, segment.lsn);
            let damaged = |what| Refusal::Damaged { path: path.clone(), offset, lsn, what, way: None };
            let bytes = match segment.next().map_err(Refusal::disk(&path))? {
                Found::Block(_, body) => stream_in(&body).collect::<Vec<_>>().concat(),
                Found::Torn => return Err(damaged("a checksum is wrong")),
                Found::Nothing => return Err(damaged("there is no block")),
            };
            self.segment = Some(segment);
            return Ok(Some(bytes));
        }
    }
}
