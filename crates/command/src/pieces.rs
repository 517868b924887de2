//! A key as a sequence of requests that make it so, none of them much longer than a given length: for whoever logs or copies values
//! that are too large to be said in one word.
//!
//! The position between two requests is a plain value, so that whoever copies a key may let its slot go in between, as long as
//! nothing in it changes.
//!
//! Invariants:
//! 1. Each request works on this one key, and a Redis 7.0 replica understands it.
//! 2. All of them together make the key what it is, whatever it was before, in the order of its elements.

use crate::generic::dump::exact_payload;
use keyspace::{Object, ValueRef};
use sys::UnixMs;
use value::collection::CollectionRef;
use value::hash::HashRef;
use value::list::{End, ListRef};
use value::listpack::Element;
use value::number::{IntBuffer, format_f64, format_i64};
use value::rdb;
use value::set::SetRef;
use value::stream::Reads;
use value::stream::{IdText, Order, Stream, StreamId};
use value::table::Position;
use value::zset::ZsetRef;
use value::zset::image::is_minus_zero;
use wire::{encode_arg, encode_request_header};

/// Fields and members that are looked at in one step.
const STEP: usize = 16;

/// What an element costs beside its bytes, roughly.
const ELEMENT_BYTES: usize = 16;
/// What an entry takes that was delivered and not acknowledged: for its group id, moment and count, for its consumer the id again.
const PENDING_BYTES: usize = 41;

/// The words of a request, one behind the other.
#[derive(Debug, Default)]
pub struct Words {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Words {
    fn begin(&mut self, words: &[&[u8]]) {
        self.bytes.clear();
        self.ends.clear();
        words.iter().for_each(|word| self.push(word));
    }

    fn push(&mut self, word: &[u8]) {
        self.bytes.extend_from_slice(word);
        self.ends.push(self.bytes.len());
    }

    fn push_element(&mut self, element: Element<'_>) {
        match element {
            Element::Bytes(bytes) => self.push(bytes),
            Element::Int(number) => self.push(format_i64(number, &mut IntBuffer::new())),
        }
    }

    fn push_int(&mut self, number: u64) {
        self.push(itoa::Buffer::new().format(number).as_bytes());
    }

    /// A number as ZADD reads it, bit for bit.
    fn push_score(&mut self, score: f64) {
        match score {
            zero if zero == 0.0 && zero.is_sign_negative() => self.push(b"-0"),
            score => self.push(format_f64(score).as_bytes()),
        }
    }

    /// The words.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.ends.iter().enumerate().map(|(index, end)| {
            let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
            &self.bytes[start..*end]
        })
    }
}

/// Takes requests.
pub type Say<'s> = &'s mut dyn FnMut(&Words);

/// Which requests of a key have been said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Progress {
    /// None.
    #[default]
    Nothing,
    /// Up to this offset, index, rank or position.
    Up(u64),
    /// The entries of a stream before this id.
    Before(StreamId),
    /// All elements.
    Elements,
    /// All.
    Everything,
}

/// Whether an object is so large that it is said in pieces: as one request it would take more than so many bytes.
pub fn is_large(object: Object<'_>, bytes_max: usize) -> bool {
    is_said_in_pieces(object.value(), bytes_max)
}

/// Whether it is a hash some of whose fields have times to live.
pub(crate) fn has_field_times(object: Object<'_>) -> bool {
    matches!(object.value(), ValueRef::Collection(CollectionRef::Hash(hash)) if hash.next_expiry().is_some())
}

fn is_said_in_pieces(value: ValueRef<'_>, bytes_max: usize) -> bool {
    // What is compact is kept small by the thresholds, and its order is known to its bytes only.
    !is_compact(value) && takes_more(value, bytes_max) && is_addable(value)
}

fn is_compact(value: ValueRef<'_>) -> bool {
    matches!(
        value,
        ValueRef::Collection(
            CollectionRef::List(ListRef::Packed(_))
                | CollectionRef::Hash(HashRef::Packed(_))
                | CollectionRef::Set(SetRef::Ints(_) | SetRef::Listpack(_))
                | CollectionRef::Zset(ZsetRef::Packed(_))
        )
    )
}

/// Whether all requests that say an object, or the one that does, take more than so many bytes, roughly. What is looked at is no more than
/// these bytes.
pub fn is_long(object: Object<'_>, bytes_max: usize) -> bool {
    match object.value() {
        // It lies in its block as a whole.
        value if is_compact(value) => object.bytes(1) > bytes_max,
        value => takes_more(value, bytes_max),
    }
}

fn takes_more(value: ValueRef<'_>, bytes_max: usize) -> bool {
    let mut left = bytes_max;
    let mut is_beyond = |bytes: usize| {
        left = left.saturating_sub(bytes + ELEMENT_BYTES);
        left == 0
    };
    match value {
        ValueRef::Int(_) => false,
        ValueRef::Bytes(bytes) => bytes.len() > bytes_max,
        ValueRef::Collection(CollectionRef::List(list)) => list.iter().any(|one| is_beyond(length(one))),
        ValueRef::Collection(CollectionRef::Set(set)) => set.iter().any(|one| is_beyond(length(one))),
        ValueRef::Collection(CollectionRef::Zset(zset)) => {
            zset.iter(0..usize::MAX).any(|(member, _)| is_beyond(length(member)))
        }
        ValueRef::Collection(CollectionRef::Hash(hash)) => {
            let (mut cursor, mut is_large) = (0, false);
            loop {
                cursor = hash.scan(cursor, STEP, UnixMs(0), |name, value| {
                    is_large |= is_beyond(length(name) + length(value));
                });
                if is_large || cursor == 0 {
                    break is_large;
                }
            }
        }
        ValueRef::Collection(CollectionRef::Stream(stream)) => {
            let mut entries = stream.entries.range(StreamId::MIN, StreamId::MAX, Order::Ascending);
            let bytes = |(name, value)| length(name) + length(value) + ELEMENT_BYTES;
            let pending: usize = stream.groups().map(|(_, group)| group.pending_count()).sum();
            is_beyond(pending * PENDING_BYTES)
                || entries.any(|entry| is_beyond(entry.fields().map(bytes).sum()))
        }
    }
}

/// Sorted sets of more members are made native by their members alone, whatever thresholds are usual.
const PACKED_MEMBERS_MAX: usize = 1024;

/// Whether a value can be made of pieces: a stream's entries and counters may be such as XADD and XSETID do not make, if it was restored;
/// and a small sorted set would be packed, and know no -0.
fn is_addable(value: ValueRef<'_>) -> bool {
    let stream = match value {
        ValueRef::Collection(CollectionRef::Zset(zset)) => {
            return zset.len() > PACKED_MEMBERS_MAX || minus_zeros(zset).next().is_none();
        }
        ValueRef::Collection(CollectionRef::Stream(stream)) => stream,
        _ => return true,
    };
    let entries = &stream.entries;
    let mut all = entries.range(StreamId::MIN, StreamId::MAX, Order::Ascending);
    entries.max_deleted_id() <= entries.last_id()
        && entries.entries_added() >= entries.len()
        && i64::try_from(entries.entries_added()).is_ok()
        && all.all(|entry| entry.field_count() > 0 && !entry.id.is_zero())
}

/// The members whose score is -0.
fn minus_zeros(zset: ZsetRef<'_>) -> impl Iterator<Item = Element<'_>> {
    zset.iter(0..usize::MAX).filter(|(_, score)| is_minus_zero(*score)).map(|(member, _)| member)
}

fn length(element: Element<'_>) -> usize {
    match element {
        Element::Bytes(bytes) => bytes.len(),
        Element::Int(_) => 0,
    }
}

/// A key and its value, of which the requests are said.
#[derive(Clone, Copy)]
pub struct Pieces<'a> {
    key: &'a [u8],
    value: ValueRef<'a>,
    expires_at: Option<UnixMs>,
    bytes_max: usize,
    reads: Reads,
    /// However small it is, it is said element by element.
    by_elements: bool,
}

impl<'a> Pieces<'a> {
    /// Requests of at most so many bytes and one element.
    pub fn new(key: &'a [u8], object: Object<'a>, bytes_max: usize) -> Pieces<'a> {
        Pieces::of_value(key, object.value(), object.expires_at(), bytes_max)
    }

    /// The same of a value without its object.
    pub fn of_value(
        key: &'a [u8],
        value: ValueRef<'a>,
        expires_at: Option<UnixMs>,
        bytes_max: usize,
    ) -> Pieces<'a> {
        Pieces { key, value, expires_at, bytes_max, reads: Reads::Redis72, by_elements: false }
    }

    /// Says it in a form that these readers know.
    pub fn for_readers(self, reads: Reads) -> Pieces<'a> {
        Pieces { reads, ..self }
    }

    /// Says a collection element by element, however small it is.
    pub fn by_elements(self) -> Pieces<'a> {
        Pieces { by_elements: true, ..self }
    }

    /// Says the next request, or the next few; gives how far that goes.
    pub fn say_next(&self, progress: Progress, words: &mut Words, say: Say<'_>) -> Progress {
        match (progress, self.value) {
            (Progress::Elements | Progress::Everything, _) => self.say_expiry(words, say),
            (Progress::Nothing, _) if !self.by_elements && !is_said_in_pieces(self.value, self.bytes_max) => {
                self.say_whole(words, say)
            }
            (_, ValueRef::Bytes(bytes)) => self.say_string(bytes, progress, words, say),
            (_, ValueRef::Collection(collection)) => self.say_elements(collection, progress, words, say),
            (_, ValueRef::Int(_)) => self.say_whole(words, say),
        }
    }

    /// The same as bytes of requests.
    pub fn encode_next(&self, progress: Progress, words: &mut Words, out: &mut Vec<u8>) -> Progress {
        self.say_next(progress, words, &mut |words| {
            let words = words.iter();
            encode_request_header(out, words.len());
            words.for_each(|word| encode_arg(out, word));
        })
    }

    /// What is small, in one request.
    fn say_whole(&self, words: &mut Words, say: Say<'_>) -> Progress {
        let at = self.expires_at.map_or(0, |at| at.0);
        words.begin(&[b"RESTORE", self.key]);
        words.push_int(at);
        words.push(&exact_payload(self.value, self.reads));
        words.push(b"REPLACE");
        words.push(b"ABSTTL");
        say(words);
        Progress::Everything
    }

    fn say_expiry(&self, words: &mut Words, say: Say<'_>) -> Progress {
        if let Some(at) = self.expires_at {
            words.begin(&[b"PEXPIREAT", self.key]);
            words.push_int(at.0);
            say(words);
        }
        Progress::Everything
    }

    fn say_string(&self, bytes: &[u8], progress: Progress, words: &mut Words, say: Say<'_>) -> Progress {
        let (name, from) = match progress {
            Progress::Up(from) => (&b"APPEND"[..], from as usize),
            _ => (&b"SET"[..], 0),
        };
        let to = bytes.len().min(from + self.bytes_max);
        words.begin(&[name, self.key, &bytes[from..to]]);
        say(words);
        if to == bytes.len() { Progress::Elements } else { Progress::Up(to as u64) }
    }

    fn say_elements(
        &self,
        collection: CollectionRef<'_>,
        progress: Progress,
        words: &mut Words,
        say: Say<'_>,
    ) -> Progress {
        let from = match progress {
            Progress::Up(from) => from,
            Progress::Before(id) => return self.say_entries(collection, id, words, say),
            _ => {
                if let CollectionRef::Stream(stream) = collection {
                    return self.say_groups(stream, words, say);
                }
                words.begin(&[b"DEL", self.key]);
                say(words);
                0
            }
        };
        let next = match collection {
            CollectionRef::List(list) => self.list(list, from, words),
            CollectionRef::Zset(zset) => self.zset(zset, from, words),
            CollectionRef::Set(set) => self.set(set, from, words),
            CollectionRef::Hash(hash) => self.hash(hash, from, words),
            CollectionRef::Stream(_) => unreachable!("its progress is an id"),
        };
        say(words);
        match collection {
            CollectionRef::Hash(hash) => self.say_field_expiries(hash, words, say),
            CollectionRef::Zset(zset) if next.is_none() => self.say_minus_zeros(zset, words, say),
            _ => {}
        }
        next.map_or(Progress::Elements, Progress::Up)
    }

    fn list(&self, list: ListRef<'_>, from: u64, words: &mut Words) -> Option<u64> {
        words.begin(&[b"RPUSH", self.key]);
        let mut next = from;
        for element in list.walk(from as usize, usize::MAX, End::Head) {
            words.push_element(element);
            next += 1;
            if words.bytes.len() >= self.bytes_max {
                break;
            }
        }
        Some(next).filter(|next| *next < list.len() as u64)
    }

    fn zset(&self, zset: ZsetRef<'_>, from: u64, words: &mut Words) -> Option<u64> {
        words.begin(&[b"ZADD", self.key]);
        let mut next = from;
        for (member, score) in zset.iter(from as usize..usize::MAX) {
            words.push_score(score);
            words.push_element(member);
            next += 1;
            if words.bytes.len() >= self.bytes_max {
                break;
            }
        }
        Some(next).filter(|next| *next < zset.len() as u64)
    }

    /// Members that were said while the set may have been packed still have lost the sign of their score.
    fn say_minus_zeros(&self, zset: ZsetRef<'_>, words: &mut Words, say: Say<'_>) {
        for member in minus_zeros(zset) {
            words.begin(&[b"ZREM", self.key]);
            words.push_element(member);
            say(words);
            words.begin(&[b"ZADD", self.key]);
            words.push_score(-0.0);
            words.push_element(member);
            say(words);
        }
    }

    fn set(&self, set: SetRef<'_>, from: u64, words: &mut Words) -> Option<u64> {
        words.begin(&[b"SADD", self.key]);
        let mut next = Some(Position(from));
        while let Some(at) = next.filter(|_| words.bytes.len() < self.bytes_max) {
            next = set.scan(at, STEP, |member| words.push_element(member));
        }
        next.map(|position| position.0)
    }

    fn hash(&self, hash: HashRef<'_>, from: u64, words: &mut Words) -> Option<u64> {
        words.begin(&[b"HSET", self.key]);
        let mut next = from;
        loop {
            next = hash.scan(next, STEP, UnixMs(0), |name, value| {
                words.push_element(name);
                words.push_element(value);
            });
            if next == 0 || words.bytes.len() >= self.bytes_max {
                return Some(next).filter(|next| *next > 0);
            }
        }
    }

    /// When the fields expire that an HSET has just set. No replica of Redis 7.0 knows that, in whatever form.
    fn say_field_expiries(&self, hash: HashRef<'_>, words: &mut Words, say: Say<'_>) {
        if hash.next_expiry().is_none() {
            return;
        }
        let fields = words.iter().skip(2).step_by(2);
        let expiring = fields.filter_map(|name| {
            let at = hash.expires_at(name, UnixMs(0)).flatten()?;
            Some((name.to_vec(), at))
        });
        for (name, at) in expiring.collect::<Vec<_>>() {
            words.begin(&[b"HPEXPIREAT", self.key]);
            words.push_int(at.0);
            for word in [&b"FIELDS"[..], b"1", &name] {
                words.push(word);
            }
            say(words);
        }
    }

    /// The groups come first, in a stream that has no entries yet: what they know of entries that are gone is said by no command.
    fn say_groups(&self, stream: &Stream, words: &mut Words, say: Say<'_>) -> Progress {
        words.begin(&[b"RESTORE", self.key, b"0"]);
        words.push(&rdb::dump_groups(stream, self.reads));
        words.push(b"REPLACE");
        say(words);
        Progress::Before(StreamId::MIN)
    }

    fn say_entries(
        &self,
        collection: CollectionRef<'_>,
        from: StreamId,
        words: &mut Words,
        say: Say<'_>,
    ) -> Progress {
        let CollectionRef::Stream(stream) = collection else { unreachable!("only streams have ids") };
        let mut said = 0;
        for entry in stream.entries.range(from, StreamId::MAX, Order::Ascending) {
            if said >= self.bytes_max {
                return Progress::Before(entry.id);
            }
            words.begin(&[b"XADD", self.key, IdText::of(entry.id).as_bytes()]);
            for (name, value) in entry.fields() {
                words.push_element(name);
                words.push_element(value);
            }
            said += words.bytes.len();
            say(words);
        }
        self.say_counters(stream, words, say);
        Progress::Elements
    }

    fn say_counters(&self, stream: &Stream, words: &mut Words, say: Say<'_>) {
        let entries = &stream.entries;
        words.begin(&[b"XSETID", self.key, IdText::of(entries.last_id()).as_bytes()]);
        if self.reads == Reads::Redis50 {
            return say(words);
        }
        words.push(b"ENTRIESADDED");
        words.push_int(entries.entries_added());
        words.push(b"MAXDELETEDID");
        words.push(IdText::of(entries.max_deleted_id()).as_bytes());
        say(words);
    }
}
