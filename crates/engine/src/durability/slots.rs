//! What checkpoints hold of slots, as bytes (`docs/formats/checkpoint.md`): which chunk is what, and the index of a slot whose objects
//! lie in a store.
//!
//! Pure. Invariant: what decodes is within the bytes given, whatever they were.

use keyspace::HashSeed;
use keyspace::residency::index::SlotIndex;
use keyspace::{DbIndex, SLOTS, Slot, Stamp};
use sys::UnixMs;
use value::table::Cold;

/// What a chunk holds: its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ChunkKind {
    /// Slots, all of whose objects are in it.
    Slots = 1,
    /// The code of one library of functions.
    Library = 2,
    /// The seed by which keys have their slots. The first chunk of a checkpoint, and of no use later.
    Seed = 3,
    /// The numbers by which the store knows the databases, in checkpoints of older versions. Comes before slots, which name databases as
    /// commands do.
    Numbers = 4,
    /// Slots, with the index of what lies in the store.
    Index = 5,
    /// A part of a slot that has too much for one chunk.
    Part = 7,
    /// The store's table of segments. The last chunk, if there is a store.
    Store = 6,
    /// Which databases there were when it began. Comes before slots, which name databases by their constant numbers.
    Databases = 8,
}

impl ChunkKind {
    /// Takes a chunk apart. None: it is of no kind that this version knows.
    pub fn of(chunk: &[u8]) -> Option<(ChunkKind, &[u8])> {
        let (kind, body) = chunk.split_first()?;
        let kind = match kind {
            1 => ChunkKind::Slots,
            2 => ChunkKind::Library,
            3 => ChunkKind::Seed,
            4 => ChunkKind::Numbers,
            5 => ChunkKind::Index,
            6 => ChunkKind::Store,
            7 => ChunkKind::Part,
            8 => ChunkKind::Databases,
            _ => return None,
        };
        Some((kind, body))
    }

    /// A chunk of this kind.
    pub fn chunk(self, body: &[u8]) -> Vec<u8> {
        [&[self as u8], body].concat()
    }
}

/// The seed that a checkpoint's first chunk holds.
pub fn seed_in(chunk: &[u8]) -> Option<HashSeed> {
    let (ChunkKind::Seed, seed) = ChunkKind::of(chunk)? else { return None };
    HashSeed::from_bytes(seed)
}

/// The databases as they were when a checkpoint began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Databases {
    /// Whether objects lie in a store.
    pub has_store: bool,
    /// The constant number of each, in the order of the numbers by which commands know them.
    pub numbers: Vec<u32>,
}

impl Databases {
    /// The chunk that says it.
    pub fn chunk(&self) -> Vec<u8> {
        let body = [&[u8::from(self.has_store)][..], &put_numbers(&self.numbers)].concat();
        ChunkKind::Databases.chunk(&body)
    }

    /// Reads what follows a chunk's first byte. None: it is none.
    pub fn of(body: &[u8]) -> Option<Databases> {
        let ([has_store @ 0..=1], numbers) = body.split_first_chunk::<1>()? else { return None };
        let numbers = numbers_of(numbers)?;
        let mut sorted = numbers.clone();
        sorted.sort_unstable();
        let is_right = sorted.into_iter().eq(0..numbers.len() as u32);
        is_right.then_some(Databases { has_store: *has_store == 1, numbers })
    }

    /// The database that commands knew by another number than its constant one.
    pub fn named(&self, number: u32) -> Option<DbIndex> {
        let place = self.numbers.iter().position(|own| *own == number)?;
        u32::try_from(place).ok().map(DbIndex)
    }
}

/// What stands before the content of a [`ChunkKind::Part`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartHeader {
    /// The database's number, as in the checkpoint's other chunks.
    pub database: u32,
    pub slot: Slot,
    /// From 0 on; a 0 begins the slot anew, and what stands before it counts for nothing.
    pub number: u32,
    /// The same in all parts of a slot.
    pub stamp: Stamp,
}

impl PartHeader {
    const BYTES: usize = 18;

    /// Appends it, as the beginning of a chunk.
    pub fn put(&self, out: &mut Vec<u8>) {
        out.push(ChunkKind::Part as u8);
        out.extend_from_slice(&self.database.to_le_bytes());
        out.extend_from_slice(&self.slot.0.to_le_bytes());
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&self.stamp.0.to_le_bytes());
    }

    /// Reads it; gives what follows, too. None: it is none.
    pub fn take(body: &[u8]) -> Option<(PartHeader, &[u8])> {
        let ([a, b, c, d, slot, slot_high, rest @ ..], content) =
            body.split_first_chunk::<{ PartHeader::BYTES }>()?;
        let (number, stamp) = rest.split_first_chunk::<4>()?;
        let header = PartHeader {
            database: u32::from_le_bytes([*a, *b, *c, *d]),
            slot: Slot(u16::from_le_bytes([*slot, *slot_high])),
            number: u32::from_le_bytes(*number),
            stamp: Stamp(u64::from_le_bytes(stamp.try_into().ok()?)),
        };
        (usize::from(header.slot.0) < SLOTS).then_some((header, content))
    }
}

/// Bytes of a timer: its moment (48 bits, milliseconds), and the position's first bits.
const TIMER_BYTES: usize = 10;

/// Appends the index of a slot.
pub fn put_index(out: &mut Vec<u8>, index: &SlotIndex) {
    for number in [index.words.len() as u32, index.timers.len() as u32, index.expiring] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    index.words.iter().for_each(|word| out.extend_from_slice(&word.to_bytes()));
    for (moment, prefix) in &index.timers {
        out.extend_from_slice(&moment.0.to_le_bytes()[..6]);
        out.extend_from_slice(&prefix.to_le_bytes());
    }
}

/// Reads the index of a slot; what follows it is left in `bytes`. None: it is none.
pub fn take_index(bytes: &mut &[u8]) -> Option<SlotIndex> {
    let [words, timers, expiring] = [take_u32(bytes)?, take_u32(bytes)?, take_u32(bytes)?];
    let words = take(bytes, words, Cold::BYTES)?.as_chunks().0.iter();
    let words = words.map(|word| Cold::of_bytes(*word)).collect::<Option<Vec<_>>>()?;
    let timers = take(bytes, timers, TIMER_BYTES)?.as_chunks::<TIMER_BYTES>().0.iter();
    let timers = timers.map(|[a, b, c, d, e, f, prefix @ ..]| {
        (UnixMs(u64::from_le_bytes([*a, *b, *c, *d, *e, *f, 0, 0])), u32::from_le_bytes(*prefix))
    });
    let index = SlotIndex { words, expiring, timers: timers.collect() };
    (expiring as usize <= index.words.len()).then_some(index)
}

fn take<'b>(bytes: &mut &'b [u8], count: u32, each: usize) -> Option<&'b [u8]> {
    bytes.split_off(..(count as usize).checked_mul(each)?)
}

fn take_u32(bytes: &mut &[u8]) -> Option<u32> {
    let (number, rest) = bytes.split_first_chunk::<4>()?;
    *bytes = rest;
    Some(u32::from_le_bytes(*number))
}

fn put_numbers(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// Reads the numbers of databases, which are all of a [`ChunkKind::Numbers`]. None: these are none.
pub fn numbers_of(body: &[u8]) -> Option<Vec<u32>> {
    let (numbers, rest) = body.as_chunks::<4>();
    rest.is_empty().then(|| numbers.iter().map(|number| u32::from_le_bytes(*number)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use value::table::Position;

    #[test]
    fn databases_are_read_as_they_were_written_and_only_if_each_has_a_number_of_its_own() {
        let databases = Databases { has_store: true, numbers: vec![2, 0, 1] };
        let chunk = databases.chunk();
        let (kind, body) = ChunkKind::of(&chunk).unwrap();
        assert_eq!((kind, Databases::of(body)), (ChunkKind::Databases, Some(databases.clone())));
        assert_eq!((databases.named(2), databases.named(3)), (Some(DbIndex(0)), None));
        for end in [0, 2, body.len() - 1] {
            assert_eq!(Databases::of(&body[..end]), None);
        }
        for numbers in [vec![0, 0, 1], vec![1, 2, 3]] {
            let chunk = Databases { numbers, ..databases.clone() }.chunk();
            assert_eq!(Databases::of(&chunk[1..]), None);
        }
        assert_eq!(Databases::of(&[2, 0, 0, 0, 0]), None);
    }

    #[test]
    fn an_index_is_read_as_it_was_written_and_never_beyond_its_bytes() {
        let words = (0..40).map(|n| Cold::new(Position(n << 14), n as u32 + 1)).collect();
        let timers = vec![(UnixMs(1 << 40), 7), (UnixMs(5), u32::MAX)];
        let index = SlotIndex { words, expiring: 2, timers: timers.clone() };
        let mut bytes = Vec::new();
        put_index(&mut bytes, &index);
        let whole = bytes.len();
        bytes.extend_from_slice(b"rest");
        let mut rest = &bytes[..];
        let read = take_index(&mut rest).expect("it was written");
        assert_eq!((rest, read.timers, read.expiring), (&b"rest"[..], timers, 2));
        assert_eq!(read.words.iter().map(|word| word.at).collect::<Vec<_>>(), (1..=40).collect::<Vec<_>>());
        for end in 0..whole {
            assert!(take_index(&mut &bytes[..end]).is_none());
        }
        bytes[..4].fill(0xff);
        assert!(take_index(&mut &bytes[..]).is_none());
    }
}
