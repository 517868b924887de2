//! The requests of an append-only file, one by one, with where each begins.
//!
//! A request is an array of bulk strings, as clients send them; a line that begins with `#` between two requests is a remark
//! (`#TS:1700000000`). The file is read through a window that grows to the longest request; nothing is copied out of it.
//!
//! 1. What is read depends on the bytes alone, not on how they come in.
//! 2. A length that the file cannot hold is an early end, and takes no memory.

use std::io;
use sys::file::File;
use wire::{Request, Span};

/// The window's first size, and what it grows by at least.
const WINDOW_BYTES: usize = 1 << 20;
/// Longest line before its end: a count or a length. Redis reads no more of one.
const LINE_BYTES_MAX: usize = 128;
/// Longest remark.
const REMARK_BYTES_MAX: usize = 64 << 10;

/// What comes next in a file.
pub enum Next<'a> {
    /// A request.
    Request(Request<'a>),
    /// The end, behind a whole request.
    End,
    /// The end, in the middle of something.
    CutOff,
    /// Something that is no request, at this offset.
    Damaged(u64),
}

/// Reads a file.
pub struct Requests {
    file: File,
    /// Length of the file when it was opened, bytes.
    len: u64,
    window: Vec<u8>,
    /// Offset of the window's first byte in the file.
    offset: u64,
    /// How many bytes of the window are done with.
    at: usize,
    spans: Vec<Span>,
}

/// What was found at the front of some bytes.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// A request of so many bytes.
    Request(usize),
    /// A remark of so many bytes.
    Remark(usize),
    /// At least so many bytes are needed.
    Needs(u64),
    /// At this place there is nothing that may be there.
    Damaged(usize),
}

impl Requests {
    /// From an offset on.
    ///
    /// # Errors
    /// Those of the system.
    pub fn new(file: File, offset: u64) -> io::Result<Requests> {
        let len = file.len()?;
        Ok(Requests { file, len, window: Vec::new(), offset, at: 0, spans: Vec::new() })
    }

    /// Where the next request begins, bytes.
    pub fn position(&self) -> u64 {
        self.offset + self.at as u64
    }

    /// The next request.
    ///
    /// # Errors
    /// Those of the system.
    pub fn next(&mut self) -> io::Result<Next<'_>> {
        loop {
            let rest = self.len.saturating_sub(self.position());
            if rest == 0 {
                return Ok(Next::End);
            }
            match step(&self.window[self.at..], &mut self.spans) {
                Step::Request(bytes) => {
                    let begin = self.at;
                    self.at += bytes;
                    return Ok(Next::Request(Request::new(&self.window[begin..], &self.spans)));
                }
                Step::Remark(bytes) => self.at += bytes,
                Step::Needs(bytes) if bytes > rest => return Ok(Next::CutOff),
                Step::Needs(bytes) => {
                    if !self.fill(bytes)? {
                        return Ok(Next::CutOff);
                    }
                }
                Step::Damaged(at) => return Ok(Next::Damaged(self.position() + at as u64)),
            }
        }
    }

    /// Reads on until `bytes` bytes are there, or more; false if the file has become shorter.
    fn fill(&mut self, bytes: u64) -> io::Result<bool> {
        self.window.drain(..self.at);
        self.offset += self.at as u64;
        self.at = 0;
        let have = self.window.len();
        // Doubled, so that a long request is not looked through again for every piece of it.
        let wanted = bytes.max(have as u64 * 2).max(WINDOW_BYTES as u64).min(self.len - self.offset);
        self.window.resize(usize::try_from(wanted).map_err(|_| io::ErrorKind::OutOfMemory)?, 0);
        let count = self.file.read_full_at(&mut self.window[have..], self.offset + have as u64)?;
        self.window.truncate(have + count);
        Ok(self.window.len() as u64 >= bytes)
    }
}

/// Finds a request or a remark at the front of `bytes`.
fn step(bytes: &[u8], spans: &mut Vec<Span>) -> Step {
    match bytes.first() {
        None => return Step::Needs(1),
        Some(b'*') => {}
        Some(b'#') => {
            return match bytes.iter().take(REMARK_BYTES_MAX).position(|byte| *byte == b'\n') {
                Some(end) => Step::Remark(end + 1),
                None if bytes.len() >= REMARK_BYTES_MAX => Step::Damaged(0),
                None => Step::Needs(bytes.len() as u64 + 1),
            };
        }
        Some(_) => return Step::Damaged(0),
    }
    spans.clear();
    let (words, mut at) = match header(bytes, 0, b'*') {
        Ok((words, at)) if words > 0 => (words, at),
        Ok(_) => return Step::Damaged(0),
        Err(step) => return step,
    };
    for _ in 0..words {
        let (length, start) = match header(bytes, at, b'$') {
            Ok(found) => found,
            Err(step) => return step,
        };
        let (end, needed) = (start as u64 + length, start as u64 + length + 2);
        if needed > bytes.len() as u64 {
            return Step::Needs(needed);
        }
        // Within `bytes`, so that it fits.
        let end = end as usize;
        if &bytes[end..end + 2] != b"\r\n" {
            return Step::Damaged(end);
        }
        spans.push(Span { start, end });
        at = end + 2;
    }
    Step::Request(at)
}

/// Reads `sign`, a number and a line end at `at`; returns the number and what lies behind.
fn header(bytes: &[u8], at: usize, sign: u8) -> Result<(u64, usize), Step> {
    let line = &bytes[at..];
    match line.first() {
        None => return Err(Step::Needs(at as u64 + 1)),
        Some(found) if *found != sign => return Err(Step::Damaged(at)),
        Some(_) => {}
    }
    // Below this no number overflows, and every length is within what offsets reach.
    const NUMBER_MAX: u64 = 1 << 48;
    let mut number = 0;
    for (index, byte) in line.iter().enumerate().skip(1).take(LINE_BYTES_MAX) {
        match byte {
            b'0'..=b'9' if number < NUMBER_MAX => number = number * 10 + u64::from(byte - b'0'),
            b'\r' if index > 1 => {
                return match line.get(index + 1) {
                    Some(b'\n') => Ok((number, at + index + 2)),
                    Some(_) => Err(Step::Damaged(at)),
                    None => Err(Step::Needs((at + index + 2) as u64)),
                };
            }
            _ => return Err(Step::Damaged(at)),
        }
    }
    match line.len() > LINE_BYTES_MAX {
        true => Err(Step::Damaged(at)),
        false => Err(Step::Needs(bytes.len() as u64 + 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use sys::file::Fs;
    use sys::file::simulated::Disk;

    /// What is read of a file: requests, then how it ends.
    fn read(content: &[u8]) -> (Vec<String>, String) {
        let fs = Fs::Simulated(Disk::new(1));
        let path = Path::new("/a.aof");
        fs.write(path, content).unwrap();
        let mut requests = Requests::new(fs.open(path, sys::file::Mode::Read).unwrap(), 0).unwrap();
        let mut found = Vec::new();
        loop {
            let position = requests.position();
            let end = match requests.next().unwrap() {
                Next::Request(request) => {
                    found.push(format!("{position}: {request:?}"));
                    continue;
                }
                Next::End => "end".to_owned(),
                Next::CutOff => format!("cut off behind {}", requests.position()),
                Next::Damaged(at) => format!("damaged at {at}"),
            };
            return (found, end);
        }
    }

    const TWO: &[u8] = b"#TS:1\r\n*1\r\n$4\r\nPING\r\n#x\r\n*2\r\n$3\r\nGET\r\n$0\r\n\r\n";

    #[test]
    fn requests_are_found_between_remarks() {
        let (found, end) = read(TWO);
        assert_eq!(found, [r#"0: ["PING"]"#, r#"21: ["GET", ""]"#]);
        assert_eq!(end, "end");
        assert_eq!(read(b"").1, "end");
    }

    #[test]
    fn every_cut_is_an_early_end_behind_the_last_whole_request() {
        for len in 0..TWO.len() {
            let (found, end) = read(&TWO[..len]);
            let whole = usize::from(len >= 21);
            assert_eq!(found.len(), whole, "{len}");
            // Where a remark or a request ends.
            let whole_until = [25, 21, 7, 0].into_iter().find(|end| *end <= len).unwrap();
            match whole_until == len {
                true => assert_eq!(end, "end", "{len}"),
                false => assert_eq!(end, format!("cut off behind {whole_until}"), "{len}"),
            }
        }
    }

    #[test]
    fn what_is_no_request_is_damage_with_its_place() {
        for (content, at) in [
            (&b"*1\r\n$4\r\nPING\r\nxxx"[..], 14),
            (b"*1\r\n$3\r\nPING\r\n", 11),
            (b"*1\r\n:4\r\nPING\r\n", 4),
            (b"*0\r\n", 0),
            (b"*-1\r\n", 0),
            (b"*\r\n", 0),
            (b"*1\n$4\r\n", 0),
            (b"*99999999999999999999\r\n", 0),
            (b"\0\0\0\0", 0),
        ] {
            assert_eq!(read(content).1, format!("damaged at {at}"), "{}", content.escape_ascii());
        }
        assert_eq!(read(b"*1\r\n$999999999999\r\nPING\r\n").1, "cut off behind 0");
    }

    #[test]
    fn requests_longer_than_the_window_are_read() {
        let long = "v".repeat(3 * WINDOW_BYTES);
        let one = format!("*2\r\n$3\r\nSET\r\n${}\r\n{long}\r\n", long.len());
        let (found, end) = read(one.repeat(3).as_bytes());
        assert_eq!((found.len(), end.as_str()), (3, "end"));
        assert!(found.iter().all(|request| request.len() > long.len()));
    }
}
