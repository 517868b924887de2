//! A node: up to a hundred entries in one listpack, laid out as in Redis.
//!
//! The master entry comes first: how many entries there are, how many of them are deleted, the number of
//! field names, the names, and a zero. An entry is its flags, the distances of its id from the node's id,
//! its values (with their number and names unless those are the master's) and the number of elements
//! before that number, by which a node is read backwards. A deleted entry stays, marked.
//!
//! 1. The bytes are a well-formed node at any time: those of a payload are checked before they become one.
//! 2. The first entry's id is the node's; ids ascend.

use super::element::{Element, next, previous, read, write_int, write_text};
use super::id::StreamId;
use std::sync::Arc;

/// Bytes in front of the first element: the length in bytes and the number of elements.
pub(super) const HEADER_BYTES: usize = 6;
/// The last byte.
pub(super) const END: u8 = 0xff;
/// Stands for a number of elements that does not fit.
const ELEMENTS_UNKNOWN: u16 = u16::MAX;

pub(super) const DELETED: u8 = 1;
pub(super) const SAME_FIELDS: u8 = 2;

/// One node; its id is the key that it is found by. Copies share its bytes until one of them changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    bytes: Arc<Vec<u8>>,
}

/// Live and deleted entries of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counts {
    pub live: u64,
    pub deleted: u64,
}

/// An entry of a stream.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Its id.
    pub id: StreamId,
    bytes: &'a [u8],
    is_deleted: bool,
    /// How many fields it has.
    field_count: usize,
    /// Where the names begin, if they are the master's.
    names_at: Option<usize>,
    /// Where its values, or names and values, begin.
    body_at: usize,
    flags_at: usize,
}

/// The names and values of an entry, in turns.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    bytes: &'a [u8],
    left: usize,
    names_at: Option<usize>,
    at: usize,
}

impl<'a> Entry<'a> {
    /// How many fields it has.
    pub fn field_count(&self) -> usize {
        self.field_count
    }

    /// Its fields with their values.
    #[inline]
    pub fn fields(&self) -> Fields<'a> {
        Fields { bytes: self.bytes, left: self.field_count, names_at: self.names_at, at: self.body_at }
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (Element<'a>, Element<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let name = match &mut self.names_at {
            Some(at) => step(self.bytes, at),
            None => step(self.bytes, &mut self.at),
        };
        Some((name, step(self.bytes, &mut self.at)))
    }
}

/// Reads the element at an offset and goes on to the next.
#[inline]
fn step<'a>(bytes: &'a [u8], at: &mut usize) -> Element<'a> {
    let (element, next) = read(bytes, *at);
    *at = next;
    element
}

#[inline]
fn step_int(bytes: &[u8], at: &mut usize) -> i64 {
    match step(bytes, at) {
        Element::Int(number) => number,
        Element::Bytes(_) => unreachable!("a node is well formed"),
    }
}

#[inline]
fn skip(bytes: &[u8], at: &mut usize, count: usize) {
    for _ in 0..count {
        *at = next(bytes, *at);
    }
}

/// The master entry: what all entries of a node share.
#[derive(Clone, Copy)]
struct Master {
    field_count: usize,
    names_at: usize,
}

impl Node {
    /// A node whose bytes have been checked.
    pub fn from_checked(bytes: Vec<u8>) -> Node {
        Node { bytes: Arc::new(bytes) }
    }

    /// A node that begins with this entry, whose id is the node's.
    pub fn new<'w>(words: impl Iterator<Item = &'w [u8]> + Clone) -> Node {
        let names = words.clone().step_by(2);
        let mut bytes = vec![0; HEADER_BYTES];
        write_int(&mut bytes, 0);
        write_int(&mut bytes, 0);
        let count = names.clone().count();
        write_int(&mut bytes, count as i64);
        names.for_each(|name| write_text(&mut bytes, name));
        write_int(&mut bytes, 0);
        bytes.push(END);
        let mut node = Node::from_checked(bytes);
        node.set_header(count as u64 + 4);
        node.append(0, 0, words);
        node
    }

    /// The listpack.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Its length in bytes, as Redis counts it.
    pub fn len_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Gives back the memory that is kept for further entries.
    pub fn seal(&mut self) {
        Arc::make_mut(&mut self.bytes).shrink_to_fit();
    }

    /// Memory of its own, in bytes.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Vec<u8>>() + 2 * size_of::<usize>() + self.bytes.capacity()
    }

    #[inline]
    pub fn counts(&self) -> Counts {
        let mut at = HEADER_BYTES;
        let live = step_int(&self.bytes, &mut at) as u64;
        Counts { live, deleted: step_int(&self.bytes, &mut at) as u64 }
    }

    /// Appends an entry; the distances of its id from the node's wrap around.
    #[inline]
    pub fn append<'w>(&mut self, ms: u64, seq: u64, words: impl Iterator<Item = &'w [u8]> + Clone) {
        let has_same_names = self.has_names(words.clone().step_by(2));
        let out = Arc::make_mut(&mut self.bytes);
        out.pop();
        write_int(out, i64::from(if has_same_names { SAME_FIELDS } else { 0 }));
        write_int(out, ms as i64);
        write_int(out, seq as i64);
        let mut elements = 3;
        if has_same_names {
            words.skip(1).step_by(2).for_each(|value| {
                write_text(out, value);
                elements += 1;
            });
        } else {
            let count = words.clone().count();
            write_int(out, count as i64 / 2);
            words.for_each(|word| write_text(out, word));
            elements += count as u64 + 1;
        }
        write_int(out, elements as i64);
        out.push(END);
        let live = self.counts().live;
        self.set_counter(HEADER_BYTES, live + 1);
        self.set_header(elements + 1);
    }

    /// Whether the master entry has exactly these names.
    #[inline]
    fn has_names<'w>(&self, mut names: impl Iterator<Item = &'w [u8]>) -> bool {
        let Master { field_count, names_at: mut at } = self.master();
        for _ in 0..field_count {
            match names.next() {
                Some(name) if step(&self.bytes, &mut at).is(name) => {}
                _ => return false,
            }
        }
        names.next().is_none()
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "counts were compared with what they are written in")]
    fn master(&self) -> Master {
        let mut at = HEADER_BYTES;
        skip(&self.bytes, &mut at, 2);
        let field_count = step_int(&self.bytes, &mut at) as usize;
        Master { field_count, names_at: at }
    }

    /// Writes the length in bytes, and counts further elements.
    #[expect(clippy::cast_possible_truncation, reason = "counts were compared with what they are written in")]
    fn set_header(&mut self, more_elements: u64) {
        let length = u32::try_from(self.bytes.len()).expect("a node is at most some GB long");
        let bytes = Arc::make_mut(&mut self.bytes);
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        let elements = u16::from_le_bytes([bytes[4], bytes[5]]);
        let sum = u64::from(elements).saturating_add(more_elements).min(u64::from(ELEMENTS_UNKNOWN));
        bytes[4..6].copy_from_slice(&(sum as u16).to_le_bytes());
    }

    /// Overwrites a counter of the master entry, which may become longer or shorter.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "counts were compared with what they are written in")]
    fn set_counter(&mut self, at: usize, value: u64) {
        let bytes = Arc::make_mut(&mut self.bytes);
        if let (0..128, 0..128) = (bytes[at], value) {
            bytes[at] = value as u8;
            return;
        }
        let end = next(bytes, at);
        let mut element = Vec::with_capacity(12);
        write_int(&mut element, value as i64);
        bytes.splice(at..end, element);
        self.set_header(0);
    }

    /// Marks an entry of this node, which was found at `flags_at`, as deleted. The counters are left.
    fn mark(&mut self, flags_at: usize) {
        Arc::make_mut(&mut self.bytes)[flags_at] |= DELETED;
    }

    /// Moves entries from live to deleted in the counters.
    fn count_deleted(&mut self, count: u64) {
        let Counts { live, deleted } = self.counts();
        self.set_counter(HEADER_BYTES, live - count);
        let at = next(&self.bytes, HEADER_BYTES);
        self.set_counter(at, deleted + count);
    }

    /// Marks the live entry of this id as deleted. False: there is none.
    pub fn delete(&mut self, node_id: StreamId, id: StreamId) -> bool {
        let found = self.entries(node_id).find(|entry| entry.id >= id).filter(|entry| entry.id == id);
        let Some(flags_at) = found.map(|entry| entry.flags_at) else { return false };
        self.mark(flags_at);
        self.count_deleted(1);
        true
    }

    /// Marks live entries from the first on as deleted, until `is_kept` says so of one; that one and all
    /// behind it stay. It is asked about deleted ones too. Tells how many were marked.
    pub fn delete_until(&mut self, node_id: StreamId, mut is_kept: impl FnMut(StreamId, u64) -> bool) -> u64 {
        let mut marked = 0;
        let mut walk = self.walk(node_id);
        while let Some(entry) = walk.next_any(&self.bytes) {
            if is_kept(entry.id, marked) {
                break;
            }
            let (flags_at, is_deleted) = (entry.flags_at, entry.is_deleted);
            if !is_deleted {
                self.mark(flags_at);
                marked += 1;
            }
        }
        if marked > 0 {
            self.count_deleted(marked);
        }
        marked
    }

    fn walk(&self, node_id: StreamId) -> Walk {
        let master = self.master();
        let mut begin = master.names_at;
        skip(&self.bytes, &mut begin, master.field_count + 1);
        Walk { node_id, master, at: begin, end: self.bytes.len() - 1 }
    }

    /// Its live entries, from both ends.
    #[inline]
    pub fn entries(&self, node_id: StreamId) -> NodeEntries<'_> {
        NodeEntries { bytes: &self.bytes, walk: self.walk(node_id) }
    }

    /// The id of its last entry, be it deleted or not.
    pub fn last_id(&self, node_id: StreamId) -> StreamId {
        self.walk(node_id).previous_any(&self.bytes).map_or(node_id, |entry| entry.id)
    }
}

/// A stretch of a node's entries, without the bytes.
#[derive(Clone, Copy)]
struct Walk {
    node_id: StreamId,
    master: Master,
    at: usize,
    end: usize,
}

impl Walk {
    #[inline]
    fn next_any<'a>(&mut self, bytes: &'a [u8]) -> Option<Entry<'a>> {
        if self.at >= self.end {
            return None;
        }
        let (entry, next) = self.entry(bytes, self.at);
        self.at = next;
        Some(entry)
    }

    fn previous_any<'a>(&mut self, bytes: &'a [u8]) -> Option<Entry<'a>> {
        if self.at >= self.end {
            return None;
        }
        let count_at = previous(bytes, self.end);
        let mut count = count_at;
        let elements = step_int(bytes, &mut count);
        let mut flags_at = count_at;
        for _ in 0..elements {
            flags_at = previous(bytes, flags_at);
        }
        self.end = flags_at;
        Some(self.entry_without_end(bytes, flags_at))
    }

    /// The entry at an offset, and the offset behind it.
    #[inline]
    fn entry<'a>(&self, bytes: &'a [u8], flags_at: usize) -> (Entry<'a>, usize) {
        let entry = self.entry_without_end(bytes, flags_at);
        let mut at = entry.body_at;
        let words = if entry.names_at.is_some() { entry.field_count } else { entry.field_count * 2 };
        skip(bytes, &mut at, words + 1);
        (entry, at)
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "counts were compared with what they are written in")]
    fn entry_without_end<'a>(&self, bytes: &'a [u8], flags_at: usize) -> Entry<'a> {
        let mut at = flags_at;
        let flags = step_int(bytes, &mut at) as u8;
        let ms = self.node_id.ms.wrapping_add(step_int(bytes, &mut at) as u64);
        let seq = self.node_id.seq.wrapping_add(step_int(bytes, &mut at) as u64);
        let (field_count, names_at) = if flags & SAME_FIELDS != 0 {
            (self.master.field_count, Some(self.master.names_at))
        } else {
            (step_int(bytes, &mut at) as usize, None)
        };
        let (id, is_deleted) = (StreamId::new(ms, seq), flags & DELETED != 0);
        Entry { id, bytes, is_deleted, field_count, names_at, body_at: at, flags_at }
    }
}

/// The live entries of a node.
#[derive(Clone)]
pub(super) struct NodeEntries<'a> {
    bytes: &'a [u8],
    walk: Walk,
}

impl<'a> Iterator for NodeEntries<'a> {
    type Item = Entry<'a>;

    #[inline]
    fn next(&mut self) -> Option<Entry<'a>> {
        loop {
            let entry = self.walk.next_any(self.bytes)?;
            if !entry.is_deleted {
                return Some(entry);
            }
        }
    }
}

impl DoubleEndedIterator for NodeEntries<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        loop {
            let entry = self.walk.previous_any(self.bytes)?;
            if !entry.is_deleted {
                return Some(entry);
            }
        }
    }
}
