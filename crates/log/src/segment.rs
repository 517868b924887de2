//! Segments: their names and headers. Bytes: `docs/formats/log.md`.
//!
//! Pure. A segment's name repeats its beginning and number for people and for sorting; its header is what counts, and
//! recovery refuses a segment whose name and header differ.

use crate::Lsn;
use crate::limits::{BLOCK_ALIGN, DATABASES_MAX};
use crate::stream::{ReplicationId, Stream};
use std::path::{Path, PathBuf};
use sys::UnixMs;

/// Where the first block begins.
pub(crate) const FIRST_BLOCK: u64 = BLOCK_ALIGN as u64;
/// What a header counts a segment's length in, bytes.
const LENGTH_UNIT: u64 = BLOCK_ALIGN as u64;
/// The format that this program writes.
const VERSION: u32 = 2;
/// One in which frames have nothing round their effects, and headers do not name a stream.
const VERSION_WITHOUT_STREAM: u32 = 1;
const MAGIC: [u8; 8] = *b"TARNLOG\n";
/// Bytes that have their places in every version.
const COMMON_BYTES: usize = 60;
/// Where the stream is described, and bytes of that.
const STREAM_AT: usize = 64;
const STREAM_BYTES: usize = 68;
/// Marks: the stream had another name before; see [`Header::is_beside_clients`].
const HAS_FORMER: u32 = 1;
const BESIDE_CLIENTS: u32 = 2;
/// Beside the database that is selected: the stream is no other master's. A program that did not say so left 0 for the database.
const OWN: u32 = 1 << 31;

/// A segment's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// Drawn when the log began; all segments and checkpoints of a directory have the same.
    pub history: u64,
    /// Segments are numbered from 1 on, in the order in which they were begun.
    pub number: u64,
    /// The segment that this one goes on from; 0 for none.
    pub previous: u64,
    /// Of the first payload byte. What an earlier segment holds from here on is not part of the log.
    pub start: Lsn,
    /// When it was begun.
    pub time: UnixMs,
    /// Length of the file, which it has from its birth on, in units of [`BLOCK_ALIGN`]; 0 in a file of a program that did not say.
    pub length: u32,
    /// Which stream it is from its beginning on; None in a file of a program that knew of none, and in a copy of such files.
    pub stream: Option<Stream>,
    /// It is no stream, and was begun for data that was to take the place of all: once there is a checkpoint with them, it is this one.
    pub coming: Option<Stream>,
    /// It is the first of a log that a server began beside its clients, whose data was in memory before.
    pub is_beside_clients: bool,
}

/// Why a header cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadHeader {
    /// The file does not begin as a segment does.
    Magic,
    /// It was written by a newer program: its version.
    Newer(u32),
    /// The checksum is wrong.
    Damaged,
}

impl Header {
    /// The first [`FIRST_BLOCK`] bytes of a segment.
    pub fn encode(&self, bytes: &mut [u8]) {
        bytes.fill(0);
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.length.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.history.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.number.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.previous.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.start.0.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.time.0.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..56]);
        bytes[56..COMMON_BYTES].copy_from_slice(&crc.to_le_bytes());
        let none = self.coming.map_or(Stream::none(self.start), nameless);
        let marks = if self.is_beside_clients { BESIDE_CLIENTS } else { 0 };
        encode_stream(&self.stream.unwrap_or(none), marks, &mut bytes[STREAM_AT..STREAM_AT + STREAM_BYTES]);
    }

    /// Reads a segment's beginning.
    ///
    /// # Errors
    /// If it is none of a version that this program reads.
    pub fn decode(bytes: &[u8]) -> Result<Header, BadHeader> {
        if !bytes.starts_with(&MAGIC) {
            return Err(BadHeader::Magic);
        }
        let (all, bytes) = (bytes, bytes.get(..COMMON_BYTES).ok_or(BadHeader::Damaged)?);
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        if u32_at(56) != crc32c::crc32c(&bytes[..56]) {
            return Err(BadHeader::Damaged);
        }
        let (stream, coming, marks) = match u32_at(8) {
            VERSION => {
                let (stream, marks) =
                    decode_stream(Lsn(u64_at(40)), all.get(STREAM_AT..)).ok_or(BadHeader::Damaged)?;
                match stream.id == ReplicationId::NONE {
                    true => (None, named(stream), marks),
                    false => (Some(stream), None, marks),
                }
            }
            VERSION_WITHOUT_STREAM => (None, None, 0),
            newer => return Err(BadHeader::Newer(newer)),
        };
        Ok(Header {
            history: u64_at(16),
            number: u64_at(24),
            previous: u64_at(32),
            start: Lsn(u64_at(40)),
            time: UnixMs(u64_at(48)),
            length: u32_at(12),
            stream,
            coming,
            is_beside_clients: marks & BESIDE_CLIENTS != 0,
        })
    }

    /// The length of a file of so many bytes, as a header says it.
    pub fn length_of(bytes: u64) -> u32 {
        u32::try_from(bytes / LENGTH_UNIT).unwrap_or(0)
    }

    /// Whether a file of so many bytes is shorter than it was when it was begun.
    pub fn is_cut_at(&self, bytes: u64) -> bool {
        bytes < u64::from(self.length) * LENGTH_UNIT
    }

    /// Where the segment lies.
    pub fn path(&self, dir: &Path) -> PathBuf {
        path(dir, self.start, self.number)
    }
}

/// What a header says of a stream that is not there yet: its name stands where a former one does.
fn nameless(coming: Stream) -> Stream {
    Stream { id: ReplicationId::NONE, former: Some((coming.id, coming.offset)), ..coming }
}

/// The stream of which a header says so; None if it speaks of none.
fn named(nameless: Stream) -> Option<Stream> {
    nameless.former.map(|(id, _)| Stream { id, former: None, ..nameless })
}

fn encode_stream(stream: &Stream, marks: u32, bytes: &mut [u8]) {
    let (former, until) = stream.former.map_or(([0; ReplicationId::BYTES], 0), |(id, until)| (id.0, until));
    bytes[..8].copy_from_slice(&stream.offset.to_le_bytes());
    bytes[8..28].copy_from_slice(&stream.id.0);
    bytes[28..48].copy_from_slice(&former);
    bytes[48..56].copy_from_slice(&until.to_le_bytes());
    let marks = if stream.former.is_some() { marks | HAS_FORMER } else { marks };
    bytes[56..60].copy_from_slice(&marks.to_le_bytes());
    let own = if stream.is_masters { 0 } else { OWN };
    bytes[60..64].copy_from_slice(&stream.selected.map_or(0, |database| own | (database + 1)).to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..STREAM_BYTES - 4]);
    bytes[STREAM_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
}

fn decode_stream(at: Lsn, bytes: Option<&[u8]>) -> Option<(Stream, u32)> {
    let bytes = bytes?.get(..STREAM_BYTES)?;
    let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let id_at =
        |at: usize| ReplicationId(bytes[at..at + ReplicationId::BYTES].try_into().expect("twenty bytes"));
    let is_right = u32_at(STREAM_BYTES - 4) == crc32c::crc32c(&bytes[..STREAM_BYTES - 4]);
    let marks = u32_at(56);
    let selected = (u32_at(60) & !OWN).checked_sub(1).filter(|database| *database < DATABASES_MAX);
    let stream = Stream {
        id: id_at(8),
        at,
        offset: u64_at(0),
        former: (marks & HAS_FORMER != 0).then(|| (id_at(28), u64_at(48))),
        selected,
        is_masters: selected.is_some() && u32_at(60) & OWN == 0,
    };
    is_right.then_some((stream, marks))
}

/// Where the segment lies that begins at `start`.
pub(crate) fn path(dir: &Path, start: Lsn, number: u64) -> PathBuf {
    dir.join(format!("log-{:020}-{number:08}.segment", start.0))
}

/// What says by its name that a segment was begun, and that no later one was.
pub(crate) fn newest_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("log-{number:08}.newest"))
}

/// The number of the segment that such a name says; None if it is none.
pub(crate) fn parse_newest(name: &str) -> Option<u64> {
    number(name.strip_prefix("log-")?.strip_suffix(".newest")?, NUMBER_DIGITS)
}

/// What a segment's name says: where it begins, and its number. None if it is no segment's name.
pub(crate) fn parse_name(name: &str) -> Option<(Lsn, u64)> {
    let (start, number) = name.strip_prefix("log-")?.strip_suffix(".segment")?.split_once('-')?;
    Some((Lsn(self::number(start, LSN_DIGITS)?), self::number(number, NUMBER_DIGITS)?))
}

/// Whether a file of this name is a spare segment.
pub(crate) fn is_spare(name: &str) -> bool {
    let digits = name.strip_prefix("spare-").and_then(|name| name.strip_suffix(".tmp"));
    digits.is_some_and(|digits| number(digits, NUMBER_DIGITS).is_some())
}

/// Digits of an Lsn in a name.
pub(crate) const LSN_DIGITS: usize = 20;
/// At least as many has a segment's number in a name.
const NUMBER_DIGITS: usize = 8;

/// A number as it stands in names, with zeros before it up to so many digits: other files are somebody else's, whatever they are called.
pub(crate) fn number(text: &str, digits: usize) -> Option<u64> {
    let number = text.parse::<u64>().ok()?;
    (format!("{number:0digits$}") == text).then_some(number)
}
