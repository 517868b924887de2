//! Goes over the requests of a unit: finds their words in its bytes, for so many at a time that their notes stay small.
//!
//! Invariant: what is noted at a time is of at most [`GROUP_WORDS_MAX`] words, or of one request.

use super::form::{Room, begin_of, count, note_whole, word};
use super::limits::{GROUP_WORDS_MAX, RUN_BYTES_MAX, RUN_UNITS_MAX, STREAM_BYTES_KEPT_MAX};
use super::stream::{Role, Unit, role};
use wire::{Request, Span};

/// What is noted of a word, bytes.
pub(super) const WORD_BYTES: usize = size_of::<Span>();

/// One request of a unit.
#[derive(Clone, Copy, Debug)]
pub struct UnitRequest<'a> {
    /// Its arguments.
    pub request: Request<'a>,
    /// Its exact bytes.
    pub bytes: &'a [u8],
    /// Bytes of the stream up to its end.
    pub end: u64,
    /// The database in which it runs; of a SELECT, the one that it selects.
    pub database: u32,
    /// What it is for the stream.
    pub role: Role,
}

/// Memory for where words are, to be kept by whoever goes over units.
#[derive(Debug, Default)]
pub struct Words {
    spans: Vec<Span>,
    pieces: Vec<Piece>,
}

impl Words {
    fn clear(&mut self) {
        self.spans.clear();
        self.pieces.clear();
        self.spans.shrink_to(STREAM_BYTES_KEPT_MAX / WORD_BYTES);
        self.pieces.shrink_to(STREAM_BYTES_KEPT_MAX / size_of::<Piece>());
    }

    /// Notes the commands at the front of some bytes that have come whole, up to where something else stands, or as many as go at a time.
    /// Gives the bytes that they are.
    pub(super) fn note_run(&mut self, bytes: &[u8], database: u32, room: Room) -> usize {
        self.clear();
        let mut at = 0;
        while self.pieces.len() < RUN_UNITS_MAX {
            let (begin, span) = (at, self.spans.len());
            let end = note_whole(bytes, begin, RUN_BYTES_MAX - begin, &mut self.spans);
            let Some(end) =
                end.filter(|end| self.is_command(bytes, span) && self.has_room(end - begin, span, room))
            else {
                self.spans.truncate(span);
                break;
            };
            self.pieces.push(Piece { begin, end, span, database, role: Role::Command });
            at = end;
        }
        at
    }

    /// Whether the request whose words begin there, the last that was noted, is to be applied.
    fn is_command(&self, bytes: &[u8], span: usize) -> bool {
        let word = |span: &Span| &bytes[span.start..span.end];
        let words = &self.spans[span..];
        let [name, ..] = words else { return false };
        matches!(role(words.len(), word(name), words.get(1).map(word)), Ok((Role::Command, None)))
    }

    fn has_room(&self, bytes: usize, span: usize, room: Room) -> bool {
        room.has(bytes, self.spans.len() - span)
    }

    /// What was noted by [`Words::note_run`] of these bytes, which begin at an offset of the stream.
    pub(super) fn run<'g>(&'g self, bytes: &'g [u8], offset: u64) -> Group<'g> {
        Group { bytes, offset, words: self, is_all: true }
    }

    /// Bytes allocated.
    pub(super) fn allocated_bytes(&self) -> usize {
        self.spans.capacity() * WORD_BYTES + self.pieces.capacity() * size_of::<Piece>()
    }
}

/// A request.
#[derive(Clone, Copy, Debug)]
struct Piece {
    /// Where its bytes are, counted from the unit's first.
    begin: usize,
    end: usize,
    /// Its first word.
    span: usize,
    database: u32,
    role: Role,
}

/// On its way over a unit.
#[derive(Debug)]
pub struct Walk<'w> {
    unit: Unit<'w>,
    words: &'w mut Words,
    at: usize,
    database: u32,
}

/// Some requests of a unit, one behind the other.
#[derive(Clone, Copy, Debug)]
pub struct Group<'g> {
    bytes: &'g [u8],
    /// Bytes of the stream before the unit.
    offset: u64,
    words: &'g Words,
    /// Whether the unit has no others.
    pub is_all: bool,
}

impl<'w> Walk<'w> {
    pub(super) fn new(unit: Unit<'w>, words: &'w mut Words) -> Walk<'w> {
        Walk { unit, words, at: 0, database: unit.begin().database }
    }

    /// The next requests. None: there are no more.
    pub fn next_group(&mut self) -> Option<Group<'_>> {
        self.words.clear();
        let (bytes, first) = (self.unit.bytes(), self.at);
        // A blank begins otherwise.
        while bytes.get(self.at) == Some(&b'*') {
            let (words, _) = count(&bytes[self.at..]);
            if !self.words.pieces.is_empty() && self.words.spans.len() + words > GROUP_WORDS_MAX {
                break;
            }
            self.note_request();
        }
        let is_any = !self.words.pieces.is_empty();
        let is_all = first == 0 && self.at == bytes.len();
        is_any.then_some(Group { bytes, offset: self.unit.begin().offset, words: self.words, is_all })
    }

    fn note_request(&mut self) {
        let (bytes, begin, span) = (self.unit.bytes(), self.at, self.words.spans.len());
        let (words, name, argument) = begin_of(&bytes[begin..]);
        // They have all come.
        if words > GROUP_WORDS_MAX {
            self.words.spans.reserve_exact(words);
        }
        let (_, header) = count(&bytes[begin..]);
        let mut at = begin + header;
        for _ in 0..words {
            let ((start, end), next) = word(bytes, at);
            self.words.spans.push(Span { start, end });
            at = next;
        }
        let (role, database) = role(words, name, argument).expect("it was judged when it came");
        self.database = database.unwrap_or(self.database);
        self.words.pieces.push(Piece { begin, end: at, span, database: self.database, role });
        self.at = at;
    }
}

impl<'g> Group<'g> {
    /// All of them, in order.
    pub fn requests(self) -> impl Iterator<Item = UnitRequest<'g>> {
        let Group { bytes, offset, words, .. } = self;
        let ends = words.pieces.iter().skip(1).map(|next| next.span).chain([words.spans.len()]);
        words.pieces.iter().zip(ends).map(move |(piece, span_end)| UnitRequest {
            request: Request::new(bytes, &words.spans[piece.span..span_end]),
            bytes: &bytes[piece.begin..piece.end],
            end: offset + piece.end as u64,
            database: piece.database,
            role: piece.role,
        })
    }

    /// How many there are.
    #[must_use]
    pub fn count(self) -> usize {
        self.words.pieces.len()
    }

    /// The offset in the stream of what they belong to.
    #[must_use]
    pub fn begin(self) -> u64 {
        self.offset
    }

    /// The database in which the first of them runs.
    #[must_use]
    pub fn database(self) -> Option<u32> {
        self.words.pieces.first().map(|first| first.database)
    }

    /// Those to apply, in order.
    pub fn commands(self) -> impl Iterator<Item = UnitRequest<'g>> {
        self.requests().filter(|request| request.role == Role::Command)
    }
}
