//! The log as a replication stream: its payload bytes, in their order, are what a replica reads. Bytes: `docs/formats/log.md`.
//!
//! Pure. What a record did is data (`Effects` in the format's words); so that Redis' replicas can follow, SELECT stands before a
//! record of another database than the one before ended in, and MULTI and EXEC round one of several requests. The frame says so
//! by marks, and readers that only apply effects never see it.

use crate::Lsn;
use crate::block::Head;
use std::fmt;
use std::str::FromStr;
use sys::{Prng, UnixMs};

const MULTI: &[u8] = b"*1\r\n$5\r\nMULTI\r\n";
const EXEC: &[u8] = b"*1\r\n$4\r\nEXEC\r\n";
/// SELECT up to the length of its word.
const SELECT: &[u8] = b"*2\r\n$6\r\nSELECT\r\n$";
/// The longest front: SELECT of a number of eight digits, and MULTI.
const FRONT_BYTES_MAX: usize = 48;

/// Where a record's requests run, as the stream has to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The database of the first request.
    pub database: u32,
    /// The database of the last.
    pub ends_in: u32,
    /// Whether there are several requests, also a SELECT between them: they are one transaction for a replica.
    pub is_several: bool,
}

impl Span {
    /// Of one request.
    #[inline]
    pub fn of(database: u32) -> Span {
        Span { database, ends_in: database, is_several: false }
    }
}

/// What is done on a server that follows a master.
#[derive(Clone, Copy, Debug)]
pub struct Unit<'a> {
    /// The database in which its first effect runs.
    pub database: u32,
    /// The database that is selected in the master's stream behind it.
    pub ends_in: u32,
    /// When it is done.
    pub time: UnixMs,
    /// What the master's stream has: whole requests. Empty for what is in nobody's stream.
    pub stream: &'a [u8],
    /// Whether the master wanted it, who says which time is up.
    pub is_followed: bool,
}

impl Unit<'_> {
    pub(crate) fn head(&self) -> Head {
        let head = Head::own(self.database, Dress::default(), self.time);
        Head { is_followed: self.is_followed, ..head }
    }
}

/// What stands round a record's effects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dress {
    /// A SELECT of the record's database, in front of its effects.
    pub selects: bool,
    /// MULTI and EXEC.
    pub is_several: bool,
}

impl Dress {
    /// Whether anything does.
    #[inline]
    pub fn is_none(self) -> bool {
        !self.selects && !self.is_several
    }

    /// What comes before the effects of a record that begins in this database.
    pub fn front(self, database: u32) -> Front {
        let mut front = Front { bytes: [0; FRONT_BYTES_MAX], len: 0 };
        if self.is_several {
            front.push(MULTI);
        }
        if self.selects {
            front.push_select(database);
        }
        front
    }

    /// The same as it was once.
    #[cold]
    fn former_front(self, database: u32) -> Front {
        let mut front = Dress { is_several: false, ..self }.front(database);
        front.push(Dress { selects: false, ..self }.front(database).as_slice());
        front
    }

    /// What comes behind them.
    #[inline]
    pub fn back(self) -> &'static [u8] {
        if self.is_several { EXEC } else { &[] }
    }

    /// The effects in a whole payload; None if that does not look as it should.
    #[inline]
    pub fn undress(self, database: u32, payload: &[u8]) -> Option<&[u8]> {
        if self.is_none() {
            return Some(payload);
        }
        let inner = payload.strip_prefix(self.front(database).as_slice());
        let inner = inner.or_else(|| payload.strip_prefix(self.former_front(database).as_slice()));
        inner?.strip_suffix(self.back())
    }
}

/// Dresses records for a stream that is kept without a log, as the log does.
#[derive(Debug, Default)]
pub struct Dresser {
    /// The database that who reads the stream has selected, if that is known.
    selected: Option<u32>,
}

impl Dresser {
    /// Shows a record's bytes in the stream: its effects, which may lie in several parts, with what has to stand round them.
    pub fn show(&mut self, span: Span, effects: &[&[u8]], mut take: impl FnMut(&[u8])) {
        let dress = self.dress(span);
        take(dress.front(span.database).as_slice());
        effects.iter().for_each(|part| take(part));
        take(dress.back());
    }

    /// What has to stand round a record's effects for who reads the stream.
    #[inline]
    pub(crate) fn dress(&mut self, span: Span) -> Dress {
        let before = self.selected.replace(span.ends_in);
        Dress { selects: before != Some(span.database), is_several: span.is_several }
    }

    /// The database that who reads the stream has selected, if that is known.
    pub fn selected(&self) -> Option<u32> {
        self.selected
    }

    /// The next record selects its database, whichever is selected: somebody begins to read there.
    #[inline]
    pub fn forget(&mut self) {
        self.selected = None;
    }
}

/// Bytes in front of a record's effects.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Front {
    bytes: [u8; FRONT_BYTES_MAX],
    len: usize,
}

impl Front {
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    fn push_select(&mut self, database: u32) {
        let count = database.checked_ilog10().unwrap_or(0) + 1;
        self.push(SELECT);
        self.push(&[digit(count)]);
        self.push(b"\r\n");
        (0..count).rev().for_each(|place| self.push(&[digit(database / 10u32.pow(place) % 10)]));
        self.push(b"\r\n");
    }
}

fn digit(number: u32) -> u8 {
    u8::try_from(number).map_or(b'?', |number| b'0' + number)
}

/// The name of a history of data among servers that replicate it: forty hexadecimal digits (INFO's master_replid).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReplicationId(pub(crate) [u8; ReplicationId::BYTES]);

impl ReplicationId {
    pub(crate) const BYTES: usize = 20;
    /// Nobody's: that of what is no stream.
    pub const NONE: ReplicationId = ReplicationId([0; ReplicationId::BYTES]);

    /// One that nobody has.
    pub fn new() -> ReplicationId {
        let mut prng = Prng::from_entropy();
        let mut bytes = [0; ReplicationId::BYTES];
        bytes
            .chunks_mut(8)
            .for_each(|chunk| chunk.copy_from_slice(&prng.next_u64().to_le_bytes()[..chunk.len()]));
        ReplicationId(bytes)
    }
}

impl Default for ReplicationId {
    fn default() -> ReplicationId {
        ReplicationId::new()
    }
}

impl fmt::Display for ReplicationId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl FromStr for ReplicationId {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<ReplicationId, &'static str> {
        const WRONG: &str = "a replication id has forty hexadecimal digits";
        let mut bytes = [0; ReplicationId::BYTES];
        if text.len() != 2 * bytes.len() || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(WRONG);
        }
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).map_err(|_| WRONG)?;
        }
        Ok(ReplicationId(bytes))
    }
}

/// Which stream a log is, seen from a place in it. Where nothing but what was executed here is in it, every payload byte is one of the
/// stream's, and an offset is an Lsn and a constant; where a master elsewhere is followed, effects come between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    /// Its name.
    pub id: ReplicationId,
    /// A place in the log.
    pub at: Lsn,
    /// Bytes of the stream before that place, as Redis counts them.
    pub offset: u64,
    /// The name that it had before, and the offset up to which that holds.
    pub former: Option<(ReplicationId, u64)>,
    /// The database that is selected there: whoever goes on with the stream has no other unless it selects one. Behind what was written here
    /// in several databases it may be any of them: what comes next selects its own. None: that is not known.
    pub selected: Option<u32>,
    /// It is that of a master elsewhere, which `selected` is known of.
    pub is_masters: bool,
}

impl Stream {
    /// One that begins at a place in the log: offsets are its Lsns. Its first record selects its database.
    pub fn begin(at: Lsn) -> Stream {
        Stream {
            id: ReplicationId::new(),
            at,
            offset: at.0,
            former: None,
            selected: Some(0),
            is_masters: false,
        }
    }

    /// What has the name of none.
    pub fn none(at: Lsn) -> Stream {
        Stream { id: ReplicationId::NONE, at, offset: 0, former: None, selected: None, is_masters: false }
    }

    /// The same, seen from a place so many bytes of it further on, behind which this database is selected; None: there is no record of it
    /// in between.
    #[must_use]
    pub fn moved(self, at: Lsn, bytes: u64, selected: Option<u32>) -> Stream {
        let offset = self.offset.wrapping_add(bytes);
        Stream { at, offset, selected: selected.or(self.selected), ..self }
    }

    /// What goes on behind a master's stream when its follower becomes a master: a new name, and the former one up to here.
    #[must_use]
    pub fn succeeded(self) -> Stream {
        Stream { id: ReplicationId::new(), former: Some((self.id, self.offset)), is_masters: false, ..self }
    }

    /// The same stream, which its master calls otherwise from here on.
    #[must_use]
    pub fn called(self, id: ReplicationId) -> Stream {
        Stream { id, former: Some((self.id, self.offset)), ..self }
    }

    /// The same bytes under a new name; what it was called before is forgotten.
    #[must_use]
    pub fn renamed(self) -> Stream {
        Stream { id: ReplicationId::new(), former: None, is_masters: false, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effects_are_dressed_and_undressed() {
        let dress = Dress { selects: true, is_several: true };
        let front = dress.front(1205);
        assert_eq!(
            front.as_slice().escape_ascii().to_string(),
            r"*1\r\n$5\r\nMULTI\r\n*2\r\n$6\r\nSELECT\r\n$4\r\n1205\r\n"
        );
        let whole = [front.as_slice(), b"effects", dress.back()].concat();
        assert_eq!(dress.undress(1205, &whole), Some(&b"effects"[..]));
        let former = [dress.former_front(1205).as_slice(), b"effects", dress.back()].concat();
        assert!(former.starts_with(b"*2\r\n$6\r\nSELECT") && former.len() == whole.len());
        assert_eq!(dress.undress(1205, &former), Some(&b"effects"[..]), "as logs were once");
        assert_eq!(dress.undress(120, &whole), None);
        assert_eq!(dress.undress(1205, &whole[..whole.len() - 1]), None);
        assert_eq!(Dress::default().undress(3, b"as it is"), Some(&b"as it is"[..]));
        let zero = Dress { selects: true, is_several: false };
        assert_eq!(zero.front(0).as_slice(), b"*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n");
        let highest = crate::limits::DATABASES_MAX - 1;
        assert!(dress.front(highest).as_slice().len() <= FRONT_BYTES_MAX);
    }

    #[test]
    fn an_id_is_forty_digits() {
        let id = ReplicationId::new();
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_ne!(id, ReplicationId::new());
        for wrong in ["", "12", &"g".repeat(40), &"0".repeat(41), &"é".repeat(20)] {
            assert!(wrong.parse::<ReplicationId>().is_err(), "{wrong}");
        }
    }
}
