//! Goes over the requests of a unit: finds their words in its bytes, for so many at a time that their notes stay small.
//!
//! Invariant: what is noted at a time is of at most [`GROUP_WORDS_MAX`] words, or of one request.

use super::form::{begin_of, count, word};
use super::limits::{GROUP_WORDS_MAX, STREAM_BYTES_KEPT_MAX};
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

    /// Bytes allocated.
    #[cfg(test)]
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

    /// Those to apply, in order.
    pub fn commands(self) -> impl Iterator<Item = UnitRequest<'g>> {
        self.requests().filter(|request| request.role == Role::Command)
    }
}
