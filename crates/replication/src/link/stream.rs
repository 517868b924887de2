//! The stream behind a sync: the master's bytes as units that are applied whole or not at all.
//!
//! A unit is one request, or all from MULTI to EXEC. It is handed out only once its last byte has come, with its exact bytes (a log
//! that keeps them is the same stream for replicas of its own), the place behind it, and the database of each request. Whoever
//! resumes asks for what follows the last unit that was applied: the master sends a transaction that was cut again from its MULTI, as
//! Redis' replica counts as well (`commandProcessed` in `networking.c` of 7.2.6 leaves the offset alone until EXEC).
//!
//! `REPLCONF GETACK *` is a unit: it wants `REPLCONF ACK` of the offset BEFORE it. Redis' replica answers while it executes the
//! request (`replconfCommand` calls `replicationSendAck` in `replication.c`) and counts its bytes afterwards (`commandProcessed`). The
//! replicas of Redis 7.0.15 and Valkey 8.0.1 were seen to do so.
//!
//! A line end between units counts as a byte of the stream and means nothing (`processInlineBuffer`). Everything else that is not a
//! request in the form in which masters write them is a corrupt stream: inline requests, empty ones, a length that does not
//! fit its argument, MULTI in MULTI, EXEC without it, DISCARD.
//!
//! Short commands that stand behind each other can be had as a run, whose words are found in the same go. Each is a unit all the same.
//!
//! Of a unit nothing is kept but its bytes: where its words are is found again when it is gone over, for some requests at a time
//! ([`Unit::walk`]). Notes of many small words would be many times their bytes.
//!
//! Invariants:
//! 1. The bytes of all units, one behind the other, are the bytes that came in; their places follow each other without a gap.
//! 2. Between calls `parsed` bytes of the next unit are whole requests that were judged.
//! 3. After an error no unit is handed out any more.

use super::ending::Ending;
use super::form::{Arriving, Room, Wrong, begin_of};
use super::limits::STREAM_BYTES_KEPT_MAX;
use super::walk::{Group, Walk, Words};
use log::limits::DATABASES_MAX;

/// A place in a stream between two units: all that is needed to go on from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Bytes of the stream before it, as Redis counts them.
    pub offset: u64,
    /// The database that is selected there.
    pub database: u32,
}

/// What a unit is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitKind {
    /// A line end.
    Blank,
    /// SELECT: the place behind the unit has another database.
    Select,
    /// The master's heartbeat.
    Ping,
    /// REPLCONF GETACK: it wants an answer now.
    GetAck,
    /// One request to apply.
    Command,
    /// All from MULTI to EXEC.
    Transaction,
}

/// What a request is for the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The first of a transaction.
    Multi,
    /// The last of a transaction.
    Exec,
    /// It selects a database.
    Select,
    /// A heartbeat.
    Ping,
    /// It asks for an acknowledgement.
    GetAck,
    /// It is to be applied.
    Command,
}

/// Something that is whole: applied as one, or not at all.
#[derive(Clone, Copy, Debug)]
pub struct Unit<'a> {
    kind: UnitKind,
    begin: Place,
    end: Place,
    bytes: &'a [u8],
}

impl<'a> Unit<'a> {
    /// What it is.
    #[must_use]
    pub fn kind(&self) -> UnitKind {
        self.kind
    }

    /// The place in front of it.
    #[must_use]
    pub fn begin(&self) -> Place {
        self.begin
    }

    /// The place behind it: once it is applied, a replica resumes from there.
    #[must_use]
    pub fn end(&self) -> Place {
        self.end
    }

    /// Its exact bytes.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// If it wants an answer: the offset that Redis' replica would acknowledge, which is the one before it. One that has not
    /// applied all so far acknowledges less.
    #[must_use]
    pub fn acknowledged(&self) -> Option<u64> {
        (self.kind == UnitKind::GetAck).then_some(self.begin.offset)
    }

    /// Goes over its requests, MULTI and EXEC among them. A blank has none.
    pub fn walk<'w>(&self, words: &'w mut Words) -> Walk<'w>
    where
        'a: 'w,
    {
        Walk::new(*self, words)
    }
}

/// What a step of reading came to.
enum Reading {
    /// A unit is whole.
    Unit(UnitKind),
    /// A request of a transaction is whole, not yet the transaction.
    Request,
    /// More bytes are needed.
    Partial,
}

/// The stream of one connection, from a place on.
#[derive(Debug)]
pub struct MasterStream {
    /// Received and not yet handed out from `at` on.
    buf: Vec<u8>,
    at: usize,
    /// Bytes behind `at` that are whole requests of the next unit, or the unit that was handed out last.
    parsed: usize,
    /// The request behind these, as far as it was looked at.
    arriving: Arriving,
    /// Whether those are of a transaction that goes on.
    is_open: bool,
    /// In front of the unit at `at`.
    begin: Place,
    /// Behind the whole requests.
    place: Place,
    /// Whether the unit at `at` was handed out.
    is_given: bool,
    bytes_max: usize,
    /// Of the run that was handed out last.
    words: Words,
    ending: Option<Ending>,
}

impl MasterStream {
    /// One that begins at a place: the offset and id of a full sync with the database that the RDB names, or where a partial one
    /// resumes. A unit of more than `unit_bytes_max` bytes is refused, or one that would take twice as many with the notes that its
    /// longest request needs when it is applied (see [`super::limits::UNIT_BYTES_MAX_DEFAULT`]).
    #[must_use]
    pub fn new(place: Place, unit_bytes_max: usize) -> MasterStream {
        MasterStream {
            buf: Vec::new(),
            at: 0,
            parsed: 0,
            arriving: Arriving::default(),
            is_open: false,
            begin: place,
            place,
            is_given: false,
            bytes_max: unit_bytes_max,
            words: Words::default(),
            ending: None,
        }
    }

    /// Takes the next bytes. All units that they complete should be taken before more is fed: what is not taken is kept.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.ending.is_some() {
            return;
        }
        self.drop_given();
        if self.at > self.buf.len() / 2 {
            // At least half is used up, so that moving the rest costs less than having read it.
            self.buf.drain(..self.at);
            self.at = 0;
        }
        if self.buf.len() + bytes.len() > self.buf.capacity() {
            // Not twice as much: that would be kept for nothing where a unit is large.
            self.buf.reserve_exact(bytes.len().max(self.buf.len() / 4));
        }
        self.buf.extend_from_slice(bytes);
    }

    /// The next unit that is whole, or None until more bytes have been fed.
    ///
    /// # Errors
    /// If the stream is corrupt, or the unit too large. The same again at every later call.
    pub fn next_unit(&mut self) -> Result<Option<Unit<'_>>, Ending> {
        self.drop_given();
        if let Some(ending) = &self.ending {
            return Err(ending.clone());
        }
        loop {
            match self.read() {
                Ok(Reading::Unit(kind)) => return Ok(Some(self.give(kind))),
                Ok(Reading::Request) => {}
                Ok(Reading::Partial) => return Ok(None),
                Err(ending) => {
                    self.end_with(&ending);
                    return Err(ending);
                }
            }
        }
    }

    /// Commands that have come whole, each of them a unit, in the database that is selected; they are no more than go at a time. None:
    /// [`MasterStream::next_unit`] says what there is.
    pub fn next_run(&mut self) -> Option<Group<'_>> {
        self.drop_given();
        if self.ending.is_some() || self.is_open || !self.arriving.is_new() {
            return None;
        }
        let room = Room::of(self.bytes_max, 0);
        let bytes = self.words.note_run(&self.buf[self.at..], self.begin.database, room);
        if bytes == 0 {
            return None;
        }
        (self.parsed, self.is_given) = (bytes, true);
        self.place.offset += bytes as u64;
        Some(self.words.run(&self.buf[self.at..self.at + bytes], self.begin.offset))
    }

    /// Of the run that was handed out last, what ends behind this offset is handed out again: nothing was done with it.
    ///
    /// # Panics
    /// If the offset is not one of the run's.
    pub fn take_back(&mut self, offset: u64) {
        let is_of_run = self.is_given && (self.begin.offset..=self.place.offset).contains(&offset);
        assert!(is_of_run, "what is taken back was handed out");
        self.parsed -= usize::try_from(self.place.offset - offset).expect("a run is short");
        self.place.offset = offset;
    }

    /// What was handed out last is handed out again: nothing was done with it.
    pub fn give_back(&mut self) {
        if std::mem::take(&mut self.is_given) {
            (self.parsed, self.place) = (0, self.begin);
        }
    }

    /// The place behind the last unit that was handed out.
    #[must_use]
    pub fn place(&self) -> Place {
        if self.is_given { self.place } else { self.begin }
    }

    /// Bytes that have come and are not of a unit handed out.
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        self.buf.len() - self.at - if self.is_given { self.parsed } else { 0 }
    }

    /// Bytes allocated, for memory limits.
    #[must_use]
    pub fn kept_bytes(&self) -> usize {
        self.buf.capacity() + self.words.allocated_bytes()
    }

    /// Hands out the unit that was read.
    fn give(&mut self, kind: UnitKind) -> Unit<'_> {
        self.is_given = true;
        Unit { kind, begin: self.begin, end: self.place, bytes: &self.buf[self.at..self.at + self.parsed] }
    }

    /// Forgets the unit that was handed out, if one was.
    fn drop_given(&mut self) {
        if !std::mem::take(&mut self.is_given) {
            return;
        }
        self.at += std::mem::take(&mut self.parsed);
        self.begin = self.place;
        if self.at == self.buf.len() {
            self.buf.clear();
            self.buf.shrink_to(STREAM_BYTES_KEPT_MAX);
            self.at = 0;
        }
    }

    /// Keeps nothing but the reason.
    fn end_with(&mut self, ending: &Ending) {
        *self =
            MasterStream { ending: Some(ending.clone()), ..MasterStream::new(self.begin, self.bytes_max) };
    }

    /// Reads one more request, or a blank.
    fn read(&mut self) -> Result<Reading, Ending> {
        let rest = &self.buf[self.at + self.parsed..];
        match front(rest) {
            Front::Request => {}
            Front::Blank(bytes) if !self.is_open => {
                self.parsed = bytes;
                self.place.offset += bytes as u64;
                return Ok(Reading::Unit(UnitKind::Blank));
            }
            Front::Partial => return Ok(Reading::Partial),
            Front::Blank(_) | Front::Garbage => return Err(self.corrupt("this is no request")),
        }
        let room = Room::of(self.bytes_max, self.parsed);
        match self.arriving.look(rest, room) {
            Ok(Some(bytes)) => self.place_request(bytes),
            Ok(None) => Ok(Reading::Partial),
            Err(Wrong::TooLarge) => Err(self.too_large()),
            Err(Wrong::Corrupt(reason)) => Err(self.corrupt(&reason)),
        }
    }

    /// Judges the request that has come whole.
    fn place_request(&mut self, bytes: usize) -> Result<Reading, Ending> {
        let first = self.at + self.parsed;
        let (words, name, argument) = begin_of(&self.buf[first..first + bytes]);
        let (role, database) = role(words, name, argument).map_err(|reason| self.corrupt(reason))?;
        let reading = reading(role, self.is_open).map_err(|reason| self.corrupt(reason))?;
        self.arriving = Arriving::default();
        self.is_open = matches!(reading, Reading::Request);
        self.place.database = database.unwrap_or(self.place.database);
        self.place.offset += bytes as u64;
        self.parsed += bytes;
        Ok(reading)
    }

    fn corrupt(&self, reason: &str) -> Ending {
        Ending::new(format!("The master's stream is corrupt at offset {}: {reason}.", self.place.offset))
    }

    fn too_large(&self) -> Ending {
        Ending::new(format!(
            "The master's stream has a request or transaction of more than {} bytes at offset {}, or one of so many words that it would take \
             twice as much memory.",
            self.bytes_max, self.begin.offset
        ))
    }
}

/// What stands at the front of some bytes.
enum Front {
    /// What may be a request.
    Request,
    /// A line end of so many bytes.
    Blank(usize),
    /// Too little to say.
    Partial,
    Garbage,
}

fn front(bytes: &[u8]) -> Front {
    match bytes {
        [b'*', b'1'..=b'9', ..] => Front::Request,
        [b'\n', ..] => Front::Blank(1),
        [b'\r', b'\n', ..] => Front::Blank(2),
        [] | [b'*' | b'\r'] => Front::Partial,
        _ => Front::Garbage,
    }
}

/// What a request of so many words is for the stream, by its name and the word behind it, and the database that it selects. An error says
/// why masters do not send it.
pub(super) fn role(
    words: usize,
    name: &[u8],
    argument: Option<&[u8]>,
) -> Result<(Role, Option<u32>), &'static str> {
    let is = |word: &[u8]| name.eq_ignore_ascii_case(word);
    let is_alone = words == 1;
    let role = match name.len() {
        4 if is(b"PING") => Role::Ping,
        4 if is(b"EXEC") && is_alone => Role::Exec,
        5 if is(b"MULTI") && is_alone => Role::Multi,
        6 if is(b"SELECT") => {
            let number = argument.filter(|_| words == 2);
            let database = number.and_then(selected).ok_or("SELECT names no database")?;
            return Ok((Role::Select, Some(database)));
        }
        8 if is(b"REPLCONF") && argument.is_some_and(|word| word.eq_ignore_ascii_case(b"GETACK")) => {
            Role::GetAck
        }
        4 | 5 if is(b"EXEC") || is(b"MULTI") => return Err("MULTI or EXEC has an argument"),
        7 if is(b"DISCARD") => return Err("DISCARD is not sent to replicas"),
        _ => Role::Command,
    };
    Ok((role, None))
}

fn selected(number: &[u8]) -> Option<u32> {
    let database = u32::try_from(wire::number::parse_int(number)?).ok()?;
    (database < DATABASES_MAX).then_some(database)
}

/// What a request makes of the unit, which is open if it is one of a transaction. An error says why it cannot stand there.
fn reading(role: Role, is_open: bool) -> Result<Reading, &'static str> {
    Ok(match (role, is_open) {
        (Role::Multi, false) => Reading::Request,
        (Role::Multi, true) => return Err("MULTI inside of a transaction"),
        (Role::Exec, true) => Reading::Unit(UnitKind::Transaction),
        (Role::Exec, false) => return Err("EXEC without MULTI"),
        (Role::GetAck, true) => return Err("REPLCONF GETACK inside of a transaction"),
        (Role::Select | Role::Ping | Role::Command, true) => Reading::Request,
        (Role::Select, false) => Reading::Unit(UnitKind::Select),
        (Role::Ping, false) => Reading::Unit(UnitKind::Ping),
        (Role::GetAck, false) => Reading::Unit(UnitKind::GetAck),
        (Role::Command, false) => Reading::Unit(UnitKind::Command),
    })
}
