//! Blocks, what one write puts down, and the records in them. Bytes: `docs/formats/log.md`.
//!
//! Pure functions over bytes, any thread. Invariants:
//! 1. A block's checksum covers its segment's number and its Lsn: bytes of another segment, or of another place in the same
//!    one, are never taken for it. Zeros are no block.
//! 2. A block holds whole frames. A record that needs more than one block is one frame in each, all but the last marked
//!    as continued, all but the first as continuing.
//! 3. A record whose effects are not what the stream says has both: first frames that are not of the stream, then frames that are
//!    no effects. Two that fit one block stand there side by side.

use crate::Lsn;
use crate::limits::{BLOCK_ALIGN, DATABASES_MAX};
use crate::stream::Dress;
use sys::UnixMs;
use sys::file::AlignedBytes;
use sys::prefetch::{LINE_BYTES, prefetch_to_write};

/// Bytes before a block's frames.
pub(crate) const HEADER_BYTES: usize = 40;
/// Bytes before a frame's payload.
pub(crate) const FRAME_BYTES: usize = 16;
/// A frame's mark that the next frame carries on its record.
const CONTINUED: u32 = 1 << 24;
/// A frame's mark that it carries on the record of the frame before.
const CONTINUING: u32 = 1 << 25;
/// A frame's mark that its record's payload begins with a SELECT of the frame's database.
const SELECTS: u32 = 1 << 26;
/// A frame's mark that its record's effects stand between MULTI and EXEC.
const SEVERAL: u32 = 1 << 27;
/// A frame's mark that its payload is no part of the stream.
const HIDDEN: u32 = 1 << 28;
/// A frame's mark that its payload is of the stream only, and no effects.
const MUTE: u32 = 1 << 29;
/// A frame's mark that a master elsewhere says which time is up: at its record's time none is.
const FOLLOWED: u32 = 1 << 30;
/// All marks that have a meaning.
const KNOWN_MARKS: u32 = CONTINUED | CONTINUING | SELECTS | SEVERAL | HIDDEN | MUTE | FOLLOWED;
/// How far ahead of a record the block's memory is fetched: some records, which take longer than a miss.
const PREFETCH_AHEAD_BYTES: usize = 512;
/// Lines fetched for a record at most: for a longer one the processor goes on by itself.
const PREFETCH_LINES_MAX: usize = 8;
const DATABASE_MASK: u32 = DATABASES_MAX - 1;
const _: () = assert!(CONTINUED == DATABASES_MAX);

/// Which part of a record a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Whole,
    First,
    Middle,
    Last,
}

impl Part {
    /// The part between its record's ends.
    pub fn of(is_first: bool, is_last: bool) -> Part {
        match (is_first, is_last) {
            (true, true) => Part::Whole,
            (true, false) => Part::First,
            (false, false) => Part::Middle,
            (false, true) => Part::Last,
        }
    }

    fn marks(self) -> u32 {
        match self {
            Part::Whole => 0,
            Part::First => CONTINUED,
            Part::Middle => CONTINUED | CONTINUING,
            Part::Last => CONTINUING,
        }
    }

    fn from_marks(marks: u32) -> Part {
        Part::of(marks & CONTINUING == 0, marks & CONTINUED == 0)
    }
}

/// For whom the bytes of a frame are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Use {
    /// They are effects, and what a replica reads.
    #[default]
    Both,
    /// They are effects, of which the stream has others or none.
    Effects,
    /// They are what a replica reads, and say nothing to who applies effects.
    Stream,
}

impl Use {
    fn marks(self) -> u32 {
        match self {
            Use::Both => 0,
            Use::Effects => HIDDEN,
            Use::Stream => MUTE,
        }
    }

    /// None: the marks contradict each other.
    fn from_marks(marks: u32) -> Option<Use> {
        match (marks & HIDDEN != 0, marks & MUTE != 0) {
            (false, false) => Some(Use::Both),
            (true, false) => Some(Use::Effects),
            (false, true) => Some(Use::Stream),
            (true, true) => None,
        }
    }

    /// Whether frames for this may stand behind frames for another in one record.
    fn follows(self, before: Use) -> bool {
        self == before || (before, self) == (Use::Effects, Use::Stream)
    }
}

/// What is said of a record before its payload; of one in several frames, by each of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    /// The database in which it begins.
    pub database: u32,
    /// What stands round its effects.
    pub dress: Dress,
    /// For whom its bytes are.
    pub used_for: Use,
    /// Whether a master elsewhere says which time is up.
    pub is_followed: bool,
    /// When it was executed.
    pub time: UnixMs,
}

impl Head {
    /// Of effects of its own.
    pub fn own(database: u32, dress: Dress, time: UnixMs) -> Head {
        Head { database, dress, used_for: Use::Both, is_followed: false, time }
    }

    /// A frame's second word.
    #[inline]
    fn marks(&self, part: Part) -> u32 {
        assert!(self.database < DATABASES_MAX, "databases are far fewer");
        let selects = if self.dress.selects { SELECTS } else { 0 };
        let several = if self.dress.is_several { SEVERAL } else { 0 };
        let followed = if self.is_followed { FOLLOWED } else { 0 };
        self.database | part.marks() | selects | several | self.used_for.marks() | followed
    }
}

/// What a block's header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// The segment's number.
    pub segment: u64,
    /// Of the first payload byte.
    pub lsn: Lsn,
    /// All before this was durable when the block was written.
    pub synced: Lsn,
    /// Bytes of all frames.
    pub body_bytes: u32,
    /// Bytes of all payloads.
    pub payload_bytes: u32,
    body_crc: u32,
}

impl Header {
    /// Reads a header; None if there is none.
    pub fn decode(bytes: &[u8]) -> Option<Header> {
        let bytes = bytes.get(..HEADER_BYTES)?;
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        if u32_at(0) != crc32c::crc32c(&bytes[4..]) {
            return None;
        }
        Some(Header {
            body_crc: u32_at(4),
            segment: u64_at(8),
            lsn: Lsn(u64_at(16)),
            synced: Lsn(u64_at(24)),
            body_bytes: u32_at(32),
            payload_bytes: u32_at(36),
        })
    }

    /// Bytes from this block's beginning to the next one's.
    pub fn stride(&self) -> usize {
        (HEADER_BYTES + self.body_bytes as usize).next_multiple_of(BLOCK_ALIGN)
    }

    /// Where the next block begins.
    pub fn end(&self) -> Lsn {
        self.lsn.plus(u64::from(self.payload_bytes))
    }

    /// Whether the frames are those that the header was written for.
    pub fn matches(&self, body: &[u8]) -> bool {
        crc32c::crc32c(body) == self.body_crc
    }
}

/// Frames in memory that become a block when they are written.
#[derive(Debug)]
pub(crate) struct Unwritten {
    bytes: AlignedBytes,
    /// Of the first payload byte.
    pub lsn: Lsn,
    /// After the last payload byte.
    pub end: Lsn,
    /// Payload bytes that are no part of the stream.
    hidden_bytes: u64,
    /// The database that is selected in the stream behind its frames, if some are of it.
    pub selected: Option<u32>,
    /// Bytes of all frames, once it was sealed.
    sealed_body: Option<usize>,
}

impl Unwritten {
    /// An empty block.
    pub fn new(capacity: usize) -> Unwritten {
        let bytes = AlignedBytes::with_capacity(capacity);
        let mut block = Unwritten {
            bytes,
            lsn: Lsn::ZERO,
            end: Lsn::ZERO,
            hidden_bytes: 0,
            selected: None,
            sealed_body: None,
        };
        block.restart(Lsn::ZERO);
        block
    }

    /// Memory that it takes.
    pub fn allocated_bytes(&self) -> usize {
        self.bytes.allocated_bytes()
    }

    /// Empties it; the next frame begins at `lsn`.
    pub fn restart(&mut self, lsn: Lsn) {
        self.bytes.resize(0);
        self.bytes.resize(HEADER_BYTES);
        (self.lsn, self.end) = (lsn, lsn);
        (self.hidden_bytes, self.selected) = (0, None);
        self.sealed_body = None;
    }

    /// Payload bytes that are of the stream.
    pub fn stream_bytes(&self) -> u64 {
        self.end.0 - self.lsn.0 - self.hidden_bytes
    }

    /// What it holds of the stream, piece by piece. It was sealed.
    pub fn stream(&self) -> impl Iterator<Item = &[u8]> {
        let body_bytes = self.sealed_body.unwrap_or(self.bytes.len() - HEADER_BYTES);
        stream_in(&self.bytes.as_slice()[HEADER_BYTES..HEADER_BYTES + body_bytes])
    }

    /// Whether it holds no frame.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes.len() == HEADER_BYTES
    }

    /// Payload bytes that one more frame could have.
    #[inline]
    pub fn room(&self) -> usize {
        (self.bytes.capacity() - self.bytes.len()).saturating_sub(FRAME_BYTES)
    }

    /// Appends a frame. There must be room.
    #[inline]
    pub fn push(&mut self, head: &Head, payload: &[u8], part: Part) {
        self.push_frame(head, payload.len(), part);
        self.bytes.extend(payload);
        self.prefetch_ahead(FRAME_BYTES + payload.len());
    }

    /// Appends a whole record with what stands round its effects. There must be room.
    pub fn push_dressed(&mut self, head: &Head, effects: &[u8]) {
        let (front, back) = (head.dress.front(head.database), head.dress.back());
        let bytes = front.as_slice().len() + effects.len() + back.len();
        self.push_frame(head, bytes, Part::Whole);
        [front.as_slice(), effects, back].into_iter().for_each(|piece| self.bytes.extend(piece));
        self.prefetch_ahead(FRAME_BYTES + bytes);
    }

    #[inline]
    fn push_frame(&mut self, head: &Head, payload_bytes: usize, part: Part) {
        let mut frame = [0; FRAME_BYTES];
        frame[..4].copy_from_slice(&u32_of(payload_bytes).to_le_bytes());
        frame[4..8].copy_from_slice(&head.marks(part).to_le_bytes());
        frame[8..].copy_from_slice(&head.time.0.to_le_bytes());
        self.bytes.extend(&frame);
        self.end = self.end.plus(payload_bytes as u64);
        if head.used_for == Use::Effects {
            self.hidden_bytes += payload_bytes as u64;
        } else {
            self.selected = Some(head.database);
        }
    }

    /// Fetches memory for as many bytes as were just pushed, somewhat ahead of them: whoever unlocks the block waits for
    /// the lines that were written.
    #[inline]
    fn prefetch_ahead(&self, pushed_bytes: usize) {
        let from = self.bytes.as_slice().as_ptr().addr() + self.bytes.len() + PREFETCH_AHEAD_BYTES;
        let lines = pushed_bytes.div_ceil(LINE_BYTES).min(PREFETCH_LINES_MAX);
        (0..lines).for_each(|line| prefetch_to_write(from + line * LINE_BYTES));
    }

    /// The block as it goes to disk, padded with zeros. Can be called again, for another segment; nothing can be pushed
    /// any more.
    pub fn sealed(&mut self, segment: u64, synced: Lsn) -> &[u8] {
        let body_bytes = *self.sealed_body.get_or_insert(self.bytes.len() - HEADER_BYTES);
        self.bytes.resize(HEADER_BYTES + body_bytes);
        let bytes = self.bytes.as_mut_slice();
        let body_crc = crc32c::crc32c(&bytes[HEADER_BYTES..]);
        let payload_bytes = u32::try_from(self.end.0 - self.lsn.0).expect("a block is shorter");
        bytes[4..8].copy_from_slice(&body_crc.to_le_bytes());
        bytes[8..16].copy_from_slice(&segment.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.lsn.0.to_le_bytes());
        bytes[24..32].copy_from_slice(&synced.0.to_le_bytes());
        bytes[32..36].copy_from_slice(&u32_of(body_bytes).to_le_bytes());
        bytes[36..40].copy_from_slice(&payload_bytes.to_le_bytes());
        let header_crc = crc32c::crc32c(&bytes[4..HEADER_BYTES]);
        bytes[..4].copy_from_slice(&header_crc.to_le_bytes());
        self.bytes.resize(self.stride());
        self.bytes.as_slice()
    }

    /// Bytes that it takes on disk.
    pub fn stride(&self) -> usize {
        let used = self.sealed_body.map_or(self.bytes.len(), |body_bytes| HEADER_BYTES + body_bytes);
        used.next_multiple_of(BLOCK_ALIGN)
    }
}

/// Whole records that were read: a block, or several if a record needs them.
#[derive(Clone, Debug, Default)]
pub struct Block {
    lsn: Lsn,
    end: Lsn,
    /// A record of several frames: the first of this block.
    joined: Option<Joined>,
    frames: Vec<u8>,
}

/// The frames of a record, put together.
#[derive(Clone, Debug)]
struct Joined {
    lsn: Lsn,
    first: Frame,
    last: Use,
    ends_in: u32,
    payload: Vec<u8>,
    /// Bytes in front that are no part of the stream.
    hidden: usize,
}

impl Joined {
    fn begin(lsn: Lsn, first: Frame, payload: &[u8]) -> Joined {
        let hidden = if first.used_for == Use::Effects { payload.len() } else { 0 };
        Joined {
            lsn,
            first,
            last: first.used_for,
            ends_in: first.database,
            payload: payload.to_owned(),
            hidden,
        }
    }

    fn push(&mut self, frame: &Frame, payload: &[u8]) -> Result<(), &'static str> {
        if !frame.is_of_one_record_with(&self.first) || !frame.used_for.follows(self.last) {
            return Err("the parts of a record are not of one database and one form");
        }
        self.last = frame.used_for;
        self.ends_in = frame.database;
        self.payload.extend_from_slice(payload);
        if frame.used_for == Use::Effects {
            self.hidden += payload.len();
        }
        Ok(())
    }

    /// Its effects, and what it is of the stream.
    fn parts(&self) -> Option<(&[u8], &[u8])> {
        match (self.first.used_for, self.last) {
            (Use::Both, _) => Some((self.first.undress(&self.payload)?, &self.payload)),
            _ => Some(self.payload.split_at(self.hidden)),
        }
    }
}

impl Block {
    /// Of the first payload byte.
    pub fn lsn(&self) -> Lsn {
        self.lsn
    }

    /// After the last payload byte.
    pub fn end(&self) -> Lsn {
        self.end
    }

    /// Its records in order.
    pub fn records(&self) -> Records<'_> {
        Records { lsn: self.lsn, joined: self.joined.as_ref(), frames: &self.frames }
    }
}

/// The records of a [`Block`], in order.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    lsn: Lsn,
    joined: Option<&'a Joined>,
    frames: &'a [u8],
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    #[inline]
    fn next(&mut self) -> Option<Record<'a>> {
        const CHECKED: &str = "it was looked at when the block was read";
        if let Some(joined) = self.joined.take() {
            let (payload, stream) = joined.parts().expect(CHECKED);
            return Some(self.record((&joined.first, joined.ends_in), payload, stream, joined.payload.len()));
        }
        let (frame, whole) = self.frame()?;
        let mut ends_in = frame.database;
        let (payload, stream) = match (frame.used_for, frame.part) {
            (Use::Both, _) => (frame.undress(whole).expect(CHECKED), whole),
            (Use::Stream, _) => (&whole[..0], whole),
            (Use::Effects, Part::Whole) => (whole, &whole[..0]),
            // What the stream has of it stands behind.
            (Use::Effects, _) => {
                let (other, stream) = self.frame().expect(CHECKED);
                ends_in = other.database;
                (whole, stream)
            }
        };
        let bytes = match frame.used_for {
            Use::Effects => payload.len() + stream.len(),
            Use::Both | Use::Stream => whole.len(),
        };
        Some(self.record((&frame, ends_in), payload, stream, bytes))
    }
}

impl<'a> Records<'a> {
    #[inline]
    fn frame(&mut self) -> Option<(Frame, &'a [u8])> {
        let frame = Frame::decode(self.frames)?;
        let (payload, rest) = self.frames[FRAME_BYTES..].split_at(frame.payload_bytes);
        self.frames = rest;
        Some((frame, payload))
    }

    #[inline]
    fn record(
        &mut self,
        (frame, ends_in): (&Frame, u32),
        payload: &'a [u8],
        stream: &'a [u8],
        bytes: usize,
    ) -> Record<'a> {
        let lsn = self.lsn;
        self.lsn = lsn.plus(bytes as u64);
        let Frame { database, time, dress, used_for, is_followed, .. } = *frame;
        Record { lsn, database, time, is_followed, payload, stream, bytes, dress, used_for, ends_in }
    }
}

/// What stands before a payload.
#[derive(Clone, Copy, Debug)]
struct Frame {
    payload_bytes: usize,
    database: u32,
    part: Part,
    dress: Dress,
    used_for: Use,
    is_followed: bool,
    has_unknown_marks: bool,
    time: UnixMs,
}

impl Frame {
    #[inline]
    fn decode(bytes: &[u8]) -> Option<Frame> {
        let bytes = bytes.get(..FRAME_BYTES)?;
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        Some(Frame {
            payload_bytes: u32_at(0) as usize,
            database: u32_at(4) & DATABASE_MASK,
            part: Part::from_marks(u32_at(4)),
            dress: Dress { selects: u32_at(4) & SELECTS != 0, is_several: u32_at(4) & SEVERAL != 0 },
            used_for: Use::from_marks(u32_at(4)).unwrap_or_default(),
            is_followed: u32_at(4) & FOLLOWED != 0,
            has_unknown_marks: u32_at(4) & !(DATABASE_MASK | KNOWN_MARKS) != 0
                || Use::from_marks(u32_at(4)).is_none(),
            time: UnixMs(u64::from_le_bytes(bytes[8..].try_into().expect("eight bytes"))),
        })
    }

    /// Whether the next frame carries on its record.
    fn goes_on(&self) -> bool {
        matches!(self.part, Part::First | Part::Middle)
    }

    /// Whether it is the effects of a record of which the other is what the stream has.
    fn is_first_of_pair_with(&self, other: &Frame) -> bool {
        self.part == Part::First
            && (self.used_for, other.used_for) == (Use::Effects, Use::Stream)
            && self.is_of_one_record_with(other)
    }

    /// Whether both may be parts of the same record, which say the same of it.
    fn is_of_one_record_with(&self, other: &Frame) -> bool {
        // What is of the stream only says which database is selected behind it.
        (self.used_for != other.used_for || self.database == other.database)
            && (self.dress, self.is_followed) == (other.dress, other.is_followed)
    }

    /// The effects in a whole payload.
    #[inline]
    fn undress<'a>(&self, payload: &'a [u8]) -> Option<&'a [u8]> {
        self.dress.undress(self.database, payload)
    }
}

/// What is said of frames that are not where they may be.
const MISPLACED: &str = "a part of a record is not where it belongs";

/// What is said of a record whose payload does not begin or end as its frame says.
const MISDRESSED: &str = "a record does not begin or end as its frame says";

/// Puts blocks' bodies together to whole records.
#[derive(Debug, Default)]
pub(crate) struct Joiner {
    /// What lies before this is left out: a place where a record begins.
    from: Lsn,
    /// The record that the last body left unfinished.
    open: Option<Joined>,
    /// What comes first may be the rest of a record whose beginning is not there.
    is_behind_cut: bool,
}

impl Joiner {
    /// A joiner of the records from `from` on.
    pub fn new(from: Lsn) -> Joiner {
        Joiner { from, ..Joiner::default() }
    }

    /// One that passes over the rest of a record whose beginning is not there, if that comes first.
    pub fn behind_cut() -> Joiner {
        Joiner { is_behind_cut: true, ..Joiner::default() }
    }

    /// Where the record begins that is not finished yet.
    pub fn open_since(&self) -> Option<Lsn> {
        self.open.as_ref().map(|open| open.lsn)
    }

    /// Takes the next body, whose checksum was right. None while a record goes on in the next body.
    ///
    /// # Errors
    /// With what is wrong: frames that do not fill the body, or do not begin where the record before them ends.
    pub fn push(&mut self, header: &Header, mut body: Vec<u8>) -> Result<Option<Block>, &'static str> {
        check(header, &body)?;
        let lsn = self.leave_out(header.lsn, &mut body);
        let Some(first) = Frame::decode(&body) else {
            // A mark without frames, or nothing that is wanted.
            return Ok(None);
        };
        let (own, rest) = body[FRAME_BYTES..].split_at(first.payload_bytes);
        if std::mem::take(&mut self.is_behind_cut) && matches!(first.part, Part::Middle | Part::Last) {
            self.is_behind_cut = first.part == Part::Middle;
            let lsn = lsn.plus(first.payload_bytes as u64);
            let whole = Block { lsn, end: header.end(), joined: None, frames: rest.to_owned() };
            return Ok(Some(whole).filter(|block| !block.frames.is_empty()));
        }
        let open = self.open.take();
        // Of two frames side by side the first is none that goes on in another block.
        let is_whole = first.part == Part::Whole || first.part == Part::First && !rest.is_empty();
        match (first.part, open) {
            (_, None) if is_whole => Ok(Some(Block { lsn, end: header.end(), joined: None, frames: body })),
            (Part::First, None) => {
                self.open = Some(Joined::begin(lsn, first, own));
                Ok(None)
            }
            (Part::Middle, Some(mut open)) => {
                open.push(&first, own)?;
                self.open = Some(open);
                Ok(None)
            }
            (Part::Last, Some(mut open)) => {
                open.push(&first, own)?;
                open.parts().ok_or(MISDRESSED)?;
                let (lsn, frames) = (open.lsn, rest.to_owned());
                Ok(Some(Block { lsn, end: header.end(), joined: Some(open), frames }))
            }
            _ => Err("the parts of a record do not follow each other"),
        }
    }

    /// Takes away the frames before `from`; they may be the rest of a record whose beginning is not there any more.
    fn leave_out(&self, mut lsn: Lsn, body: &mut Vec<u8>) -> Lsn {
        let mut at = 0;
        while lsn < self.from
            && let Some(frame) = Frame::decode(&body[at..])
        {
            at += FRAME_BYTES + frame.payload_bytes;
            lsn = lsn.plus(frame.payload_bytes as u64);
        }
        body.drain(..at);
        lsn
    }
}

/// Whether a record begins where a body does; None if there is none in it.
pub(crate) fn begins_record(body: &[u8]) -> Option<bool> {
    Frame::decode(body).map(|frame| matches!(frame.part, Part::Whole | Part::First))
}

/// The database that is selected in the stream behind the frames of a body; None if none is of it.
pub(crate) fn selected_in(mut body: &[u8]) -> Option<u32> {
    let mut selected = None;
    while let Some(frame) = Frame::decode(body) {
        if frame.used_for != Use::Effects {
            selected = Some(frame.database);
        }
        body = body[FRAME_BYTES..].get(frame.payload_bytes..).unwrap_or_default();
    }
    selected
}

/// What the frames of a body hold of the stream.
pub(crate) fn stream_in(mut body: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        loop {
            let frame = Frame::decode(body)?;
            let (payload, rest) = body[FRAME_BYTES..].split_at_checked(frame.payload_bytes)?;
            body = rest;
            if frame.used_for != Use::Effects {
                return Some(payload);
            }
        }
    })
}

/// Whether the frames fill the body, and only a body's only frame is continued, or one of two that belong together.
fn check(header: &Header, body: &[u8]) -> Result<(), &'static str> {
    let (mut rest, mut payload_bytes) = (body, 0u64);
    let mut before: Option<Frame> = None;
    while !rest.is_empty() {
        let frame = Frame::decode(rest).ok_or("a frame is cut off")?;
        let behind = &rest[FRAME_BYTES..];
        let payload = behind.get(..frame.payload_bytes).ok_or("a frame is longer than its block")?;
        rest = &behind[frame.payload_bytes..];
        if frame.has_unknown_marks {
            return Err("a frame has marks that this version does not know");
        }
        if frame.part == Part::Whole && frame.used_for == Use::Both {
            frame.undress(payload).ok_or(MISDRESSED)?;
        }
        payload_bytes += frame.payload_bytes as u64;
        let is_in_place = match (frame.part, &before) {
            (Part::Whole, Some(before)) => !before.goes_on(),
            (Part::Whole, None) | (Part::First, None) | (Part::Middle, None) | (Part::Last, None) => true,
            (Part::First, Some(before)) => !before.goes_on() && frame.used_for == Use::Effects,
            (Part::Last, Some(before)) => before.is_first_of_pair_with(&frame),
            (Part::Middle, Some(_)) => false,
        };
        if !is_in_place {
            return Err(MISPLACED);
        }
        before = Some(frame);
    }
    // What goes on behind the body is all of it.
    if before.is_some_and(|last| last.goes_on() && last.payload_bytes as u64 != payload_bytes) {
        return Err(MISPLACED);
    }
    let is_right = payload_bytes == u64::from(header.payload_bytes);
    if is_right { Ok(()) } else { Err("the frames are not as long as the block says") }
}

/// A record: what one command, transaction or script did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Where it begins.
    pub lsn: Lsn,
    /// The database in which it begins.
    pub database: u32,
    /// When it was executed.
    pub time: UnixMs,
    /// Whether it was executed for a master elsewhere, which says which time is up: for its effects none is.
    pub is_followed: bool,
    /// Its effects: requests in RESP, mostly one; none where it moves the stream on only.
    pub payload: &'a [u8],
    /// What a replica reads: the effects with what stands round them, or what they came from at a master elsewhere.
    pub stream: &'a [u8],
    bytes: usize,
    dress: Dress,
    used_for: Use,
    /// The database that its frames for the stream name.
    pub(crate) ends_in: u32,
}

impl Record<'_> {
    /// What its frame says of it.
    pub(crate) fn head(&self) -> Head {
        let Record { database, dress, used_for, is_followed, time, .. } = *self;
        Head { database, dress, used_for, is_followed, time }
    }

    /// Where it ends: the Lsn that appending it gave.
    pub fn end(&self) -> Lsn {
        self.lsn.plus(self.bytes as u64)
    }
}

/// A length within a block. It is written with every record.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "a block is shorter")]
fn u32_of(bytes: usize) -> u32 {
    debug_assert!(u32::try_from(bytes).is_ok(), "a block is shorter");
    bytes as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_round_effects_is_what_the_frame_says_or_the_block_is_damaged() {
        let head = |selects, is_several| Head::own(3, Dress { selects, is_several }, UnixMs(1));
        let body_of = |push: &dyn Fn(&mut Unwritten)| {
            let mut block = Unwritten::new(4096);
            push(&mut block);
            let sealed = block.sealed(1, Lsn::ZERO);
            let header = Header::decode(sealed).expect("it is one");
            (header, sealed[HEADER_BYTES..HEADER_BYTES + header.body_bytes as usize].to_vec())
        };
        let joined = |(header, body): (Header, Vec<u8>)| Joiner::default().push(&header, body);
        let block = joined(body_of(&|block| block.push_dressed(&head(true, true), b"x"))).unwrap().unwrap();
        assert_eq!(block.records().next().unwrap().payload, b"x");
        for (selects, is_several) in [(true, false), (false, true), (true, true)] {
            let found = joined(body_of(&|block| block.push(&head(selects, is_several), b"x", Part::Whole)));
            assert_eq!(found.unwrap_err(), MISDRESSED);
        }
        let (header, mut body) = body_of(&|block| block.push(&head(false, false), b"x", Part::Whole));
        body[7] |= 1 << 7;
        assert!(joined((header, body)).unwrap_err().contains("does not know"));
    }
}
