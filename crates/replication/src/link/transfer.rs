//! The RDB of a full sync, between the answer to PSYNC and the stream.
//!
//! It comes in one of two forms (`readSyncBulkPayload` in `replication.c` of Redis 7.2.6): `$<length>\r\n` and so many bytes, or
//! `$EOF:<mark>\r\n`, bytes of a length that the master does not know yet, and the mark of forty bytes again. Line ends before
//! it keep the connection alive while the master writes its file; an error line ends it.
//!
//! The bytes of the RDB are handed out as slices of what came in. Only the beginning of a mark may be held back, at most 39
//! bytes: they are released, as a second slice, once they prove to be RDB.
//!
//! Behind the form with a mark the master sends its stream only after the first acknowledgement; behind the other one, at once.
//!
//! Stricter than Redis: the mark has forty bytes and no more, and a length is a number above 0.
//!
//! Invariants:
//! 1. What is held back is a proper beginning of the mark, and the longest end of the bytes taken so far that is one.
//! 2. Nothing behind the RDB is taken: those bytes are the stream's.

use super::ending::Ending;
use super::line::Line;

/// Bytes of a mark.
const MARK_BYTES: usize = 40;

type Mark = [u8; MARK_BYTES];

/// How the end of the RDB is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// So many bytes.
    Length(u64),
    /// A mark stands behind it: the master streams the RDB without a file of its own.
    Mark,
}

/// What one call made of the bytes.
#[derive(Clone, Copy, Debug)]
pub struct Taken<'a> {
    /// Bytes that were taken from the front of what came in.
    pub used: usize,
    /// Whether the RDB is complete with these.
    pub is_complete: bool,
    held: Held,
    fresh: &'a [u8],
}

impl Taken<'_> {
    /// Bytes of the RDB, in order: the first part was held back by an earlier call, the second is of what came in. Each may be
    /// empty.
    #[must_use]
    pub fn parts(&self) -> [&[u8]; 2] {
        [self.held.as_slice(), self.fresh]
    }
}

/// Bytes that may be the beginning of the mark.
#[derive(Clone, Copy, Debug)]
struct Held {
    bytes: Mark,
    count: usize,
}

impl Held {
    const NONE: Held = Held { bytes: [0; MARK_BYTES], count: 0 };

    /// The first `count` bytes of the mark.
    fn of(mark: &Mark, count: usize) -> Held {
        Held { bytes: *mark, count }
    }

    fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.count]
    }
}

/// Where it stands.
#[derive(Debug)]
enum State {
    /// The line that tells the form is to come.
    Announcement(Line),
    /// So many bytes are to come.
    Counted(u64),
    /// The mark is to come; so many bytes of it may have come already.
    Marked {
        mark: Box<Mark>,
        held: usize,
    },
    Complete,
}

/// The transfer on one connection.
#[derive(Debug)]
pub struct Transfer {
    state: State,
    form: Option<Form>,
    handed_out: u64,
    bytes_max: u64,
}

impl Transfer {
    /// One that begins. An RDB of more than `bytes_max` bytes is refused (see [`super::limits::RDB_BYTES_MAX_DEFAULT`]).
    #[must_use]
    pub fn new(bytes_max: u64) -> Transfer {
        Transfer { state: State::Announcement(Line::default()), form: None, handed_out: 0, bytes_max }
    }

    /// Which form the RDB has, once the master has said so.
    #[must_use]
    pub fn form(&self) -> Option<Form> {
        self.form
    }

    /// Bytes of the RDB that were handed out.
    #[must_use]
    pub fn handed_out(&self) -> u64 {
        self.handed_out
    }

    /// Takes what the master sent: all of it, or up to the end of the RDB.
    ///
    /// # Errors
    /// If the master gave up, does not send an RDB or sends too large a one. The transfer is of no further use.
    pub fn step<'a>(&mut self, received: &'a [u8]) -> Result<Taken<'a>, Ending> {
        let mut begun = 0;
        while let State::Announcement(line) = &mut self.state {
            let (used, line) = line.take(&received[begun..])?;
            begun += used;
            let Some(line) = line else {
                return Ok(Taken { used: begun, is_complete: false, held: Held::NONE, fresh: &[] });
            };
            if !line.is_empty() {
                self.announce(&line)?;
            }
        }
        let mut taken = self.take_rdb(&received[begun..]);
        taken.used += begun;
        self.handed_out += taken.parts().iter().map(|part| part.len() as u64).sum::<u64>();
        if self.handed_out > self.bytes_max {
            return Err(too_large(self.bytes_max));
        }
        Ok(taken)
    }

    /// Reads the line that tells the form.
    fn announce(&mut self, line: &[u8]) -> Result<(), Ending> {
        let Some(form) = line.strip_prefix(b"$") else {
            return Err(match line.strip_prefix(b"-") {
                Some(error) => Ending::quoting("MASTER aborted replication with an error: ", error),
                None => Ending::quoting("Bad protocol from MASTER, the first byte is not '$': ", line),
            });
        };
        if let Some(mark) = form.strip_prefix(b"EOF:") {
            let mark = mark.try_into().map_err(|_| {
                Ending::quoting("Bad protocol from MASTER, the mark of an RDB is none: ", line)
            })?;
            self.state = State::Marked { mark: Box::new(mark), held: 0 };
            self.form = Some(Form::Mark);
            return Ok(());
        }
        let length = wire::number::parse_int(form).and_then(|length| u64::try_from(length).ok());
        match length {
            Some(length) if length > self.bytes_max => Err(too_large(self.bytes_max)),
            Some(length) if length > 0 => {
                self.state = State::Counted(length);
                self.form = Some(Form::Length(length));
                Ok(())
            }
            _ => Err(Ending::quoting("Bad protocol from MASTER, the length of an RDB is none: ", line)),
        }
    }

    fn take_rdb<'a>(&mut self, received: &'a [u8]) -> Taken<'a> {
        let taken = match &mut self.state {
            State::Counted(left) => take_counted(left, received),
            State::Marked { mark, held } => take_marked(mark, held, received),
            State::Announcement(_) | State::Complete => {
                Taken { used: 0, is_complete: true, held: Held::NONE, fresh: &[] }
            }
        };
        if taken.is_complete {
            self.state = State::Complete;
        }
        taken
    }
}

fn too_large(bytes_max: u64) -> Ending {
    Ending::new(format!("The master's RDB is larger than the {bytes_max} bytes that are allowed."))
}

fn take_counted<'a>(left: &mut u64, received: &'a [u8]) -> Taken<'a> {
    let used = usize::try_from(*left).map_or(received.len(), |left| left.min(received.len()));
    *left -= used as u64;
    Taken { used, is_complete: *left == 0, held: Held::NONE, fresh: &received[..used] }
}

/// Hands out what is surely RDB, up to the mark or to what may be its beginning. `held` bytes of the mark stand before `received`.
fn take_marked<'a>(mark: &Mark, held: &mut usize, received: &'a [u8]) -> Taken<'a> {
    let was_held = *held;
    if let Some(begin) = find_mark(mark, was_held, received) {
        // `begin` counts from the first byte held.
        let fresh = &received[..begin.saturating_sub(was_held)];
        *held = 0;
        let released = Held::of(mark, was_held.min(begin));
        return Taken { used: begin + MARK_BYTES - was_held, is_complete: true, held: released, fresh };
    }
    *held = beginning_at_end(mark, was_held, received);
    let rdb = was_held + received.len() - *held;
    let released = Held::of(mark, was_held.min(rdb));
    Taken {
        used: received.len(),
        is_complete: false,
        held: released,
        fresh: &received[..rdb.saturating_sub(was_held)],
    }
}

/// Where the mark begins in the bytes held (the first of the mark) and those behind them.
fn find_mark(mark: &Mark, held: usize, received: &[u8]) -> Option<usize> {
    let across = Across::of(mark, held, &received[..received.len().min(MARK_BYTES - 1)]);
    let begins_held = (0..held).find(|&begin| across.as_slice()[begin..].starts_with(mark));
    begins_held.or_else(|| memchr::memmem::find(received, mark).map(|begin| held + begin))
}

/// How long the longest beginning of the mark is, but not all of it, with which the bytes held and those behind them end.
fn beginning_at_end(mark: &Mark, held: usize, received: &[u8]) -> usize {
    let last = &received[received.len().saturating_sub(MARK_BYTES - 1)..];
    // What was held counts only where nothing between it and the end is left out.
    let held = if last.len() == received.len() { held } else { 0 };
    let across = Across::of(mark, held, last);
    let bytes = across.as_slice();
    let longest = bytes.len().min(MARK_BYTES - 1);
    (0..=longest).rev().find(|&count| bytes.ends_with(&mark[..count])).unwrap_or(0)
}

/// The first bytes of a mark and others behind them, side by side.
struct Across {
    bytes: [u8; 2 * MARK_BYTES],
    count: usize,
}

impl Across {
    /// Less than a mark's length of each.
    fn of(mark: &Mark, held: usize, behind: &[u8]) -> Across {
        let mut bytes = [0; 2 * MARK_BYTES];
        let count = held + behind.len();
        bytes[..held].copy_from_slice(&mark[..held]);
        bytes[held..count].copy_from_slice(behind);
        Across { bytes, count }
    }

    fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.count]
    }
}
