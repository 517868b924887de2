//! Slots that have too much for one chunk of a checkpoint: copied and loaded part by part, large values in pieces.
//!
//! The parts of a slot hold requests that make its keys, in the form in which the log holds large values (`command::pieces`). The slot is
//! let go between two parts, so that nobody waits for the whole of it; they count only if nothing was written to it meanwhile, which its
//! stamp tells. Long collections are taken at the first part as they are then ([`crate::frozen`]), and are the last: whatever is written to
//! them meanwhile, the slot need not be begun anew for them. Bytes: `docs/formats/checkpoint.md`.
//!
//! Invariants:
//! 1. The parts that count show the slot at one moment, and hold its stamp.
//! 2. Memory is bounded by a chunk, the longest element and what is written to long collections meanwhile, however much the slot holds.

use super::apply::Applier;
use super::copied::Copied;
use super::slots::{ChunkKind, PartHeader, take_index};
use crate::Engine;
use crate::frozen::{FrozenKey, short_bytes_max};
use crate::residency;
use ::log::ChunkPlace;
use command::pieces::{self, Pieces, Progress, Words};
use command::table::{self, Runs};
use keyspace::{DbIndex, Object, Position, Slot, SlotView, Stamp, ValueRef};
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use sys::UnixMs;
use wire::{Authenticated, Batch, Limits, Parser};

/// Pieces in a chunk; a slot with more than some chunks of them is copied in parts.
const CHUNK_PIECES: usize = 4;
const SLOT_PIECES: usize = 64;

/// How long things are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lengths {
    piece: usize,
    /// When a part is full.
    pub part: usize,
    /// What a slot may have in one chunk, and one value of it.
    pub slot: usize,
    value: usize,
}

impl Lengths {
    pub fn of(engine: &Engine) -> Lengths {
        let piece = engine.settings.piece_bytes();
        let (part, slot) = (CHUNK_PIECES * piece, SLOT_PIECES * piece);
        Lengths { piece, part, slot, value: short_bytes_max(engine) }
    }

    /// Whether an object alone is a reason to copy its slot in parts.
    pub fn is_too_long(self, object: Object<'_>) -> bool {
        pieces::is_large(object, self.value)
    }
}

/// How far a slot has been copied.
pub(super) struct Cursor {
    from: Position,
    /// Objects at that position that are copied.
    done: usize,
    /// What of the next is.
    progress: Progress,
    words: Words,
    /// What is left to [`LongParts`].
    frozen: Vec<FrozenKey>,
}

impl Default for Cursor {
    fn default() -> Cursor {
        Cursor {
            from: Position(0),
            done: 0,
            progress: Progress::Nothing,
            words: Words::default(),
            frozen: Vec::new(),
        }
    }
}

impl Cursor {
    /// Takes the long collections of a slot as they are now. They count as copied.
    pub fn freeze_long(&mut self, engine: &Engine, view: &SlotView<'_>, keys: &mut u64) {
        // There none is taken, and all would be read.
        if engine.residency.store().is_some() {
            return;
        }
        view.visit(|object| self.frozen.extend(FrozenKey::of(engine, object, UnixMs(0))));
        *keys += self.frozen.len() as u64;
    }

    /// Appends requests until the part is full; counts the keys that are complete. True: that was the last.
    pub fn copy(
        &mut self,
        view: &SlotView<'_>,
        lengths: Lengths,
        is_elsewhere: impl Fn(&Object<'_>) -> bool,
        out: &mut Vec<u8>,
        keys: &mut u64,
    ) -> bool {
        let end = out.len() + lengths.part;
        let frozen = std::mem::take(&mut self.frozen);
        let is_elsewhere = |object: &Object<'_>| {
            frozen.iter().any(|frozen| frozen.key() == object.key()) || is_elsewhere(object)
        };
        let is_last = self.copy_others(view, lengths, is_elsewhere, (out, end), keys);
        self.frozen = frozen;
        is_last
    }

    fn copy_others(
        &mut self,
        view: &SlotView<'_>,
        lengths: Lengths,
        is_elsewhere: impl Fn(&Object<'_>) -> bool,
        (out, end): (&mut Vec<u8>, usize),
        keys: &mut u64,
    ) -> bool {
        loop {
            let mut number = 0;
            let next = view.next(self.from, |object| {
                let is_next = number == self.done;
                number += 1;
                if is_next && (is_elsewhere(&object) || self.copy_object(object, lengths.piece, out, end)) {
                    *keys += u64::from(!is_elsewhere(&object));
                    self.done += 1;
                }
            });
            if self.done < number {
                return false;
            }
            self.done = 0;
            match next {
                None => return true,
                Some(position) => self.from = position,
            }
            if out.len() >= end {
                return false;
            }
        }
    }

    /// Goes on with an object. False: the part is full before its end.
    fn copy_object(&mut self, object: Object<'_>, piece: usize, out: &mut Vec<u8>, end: usize) -> bool {
        let pieces = Pieces::new(object.key(), object, piece);
        say(&pieces, &mut self.progress, &mut self.words, out, end)
    }

    /// The parts that follow when all else of the slot is copied: this is the first one's number.
    pub fn long_parts(self, place: (u32, Slot), stamp: Stamp, number: u32) -> LongParts {
        let keys = self.frozen.into_iter().collect();
        LongParts { place, stamp, number, keys, progress: Progress::Nothing, words: Words::default() }
    }
}

/// Appends a key's requests. False: there are so many bytes before its end.
fn say(
    pieces: &Pieces<'_>,
    progress: &mut Progress,
    words: &mut Words,
    out: &mut Vec<u8>,
    end: usize,
) -> bool {
    while out.len() < end {
        *progress = pieces.encode_next(*progress, words, out);
        if *progress == Progress::Everything {
            *progress = Progress::Nothing;
            return true;
        }
    }
    false
}

/// The last parts of a slot: its long collections, as they were at its stamp.
pub(super) struct LongParts {
    place: (u32, Slot),
    stamp: Stamp,
    number: u32,
    keys: VecDeque<FrozenKey>,
    progress: Progress,
    words: Words,
}

impl LongParts {
    /// Makes the next part. False: there is none.
    pub fn copy_next(&mut self, lengths: Lengths, out: &mut Vec<u8>) -> bool {
        if self.keys.is_empty() {
            return false;
        }
        begin(out, self.place, self.number, self.stamp);
        self.number += 1;
        let end = out.len() + lengths.part;
        while let Some(key) = self.keys.front() {
            let value = ValueRef::Collection(key.value());
            let pieces = Pieces::of_value(key.key(), value, key.expires_at(), lengths.piece);
            if !say(&pieces, &mut self.progress, &mut self.words, out, end) {
                break;
            }
            self.keys.pop_front();
        }
        true
    }
}

/// Where a part lies, and what it says of itself.
type Placed = (ChunkPlace, PartHeader);

/// The parts that were met while a checkpoint's chunks were loaded, and wait until all else is there.
#[derive(Default)]
pub(super) struct Parts(Mutex<BTreeMap<(u32, u16), Vec<Placed>>>);

impl Parts {
    /// Notes a part. None: it is none.
    pub fn note(&self, place: ChunkPlace, body: &[u8]) -> Option<()> {
        let (header, _) = PartHeader::take(body)?;
        self.0.lock().entry((header.database, header.slot.0)).or_default().push((place, header));
        Some(())
    }

    /// Takes a slot's parts that count, in their order; None when there are no more.
    pub fn take(&self) -> Option<Vec<Placed>> {
        let (_, mut parts) = self.0.lock().pop_first()?;
        parts.sort_by_key(|(place, _)| *place);
        let first = parts.iter().rposition(|(_, header)| header.number == 0).unwrap_or(0);
        Some(parts.split_off(first))
    }
}

/// Puts a slot in its place that is in parts; gives how many requests that took.
///
/// # Errors
/// If they are not right, or cannot be read.
pub(super) fn load(copied: &Copied<'_>, worker: usize, parts: &[Placed]) -> io::Result<u64> {
    let (engine, checkpoint) = (copied.engine, copied.checkpoint);
    let wrong = || {
        io::Error::other(format!("{} holds a part of a slot that is not right", checkpoint.path().display()))
    };
    let Some((_, PartHeader { database, slot, stamp, .. })) = parts.first() else { return Ok(0) };
    let db = copied.db(*database).ok_or_else(wrong)?;
    let (mut applier, mut requests) = (Applier::new(engine, worker), 0);
    for (expected, (place, header)) in parts.iter().enumerate() {
        let number = header.number as usize;
        if number != expected || header.stamp != *stamp {
            return Err(wrong());
        }
        let chunk = checkpoint.chunk_at(*place).map_err(io::Error::other)?;
        let (_, content) =
            ChunkKind::of(&chunk).and_then(|(_, body)| PartHeader::take(body)).ok_or_else(wrong)?;
        residency::wait_for_room(engine);
        let content = if number == 0 {
            load_index(engine, worker, (db, *slot), content).ok_or_else(wrong)?
        } else {
            content
        };
        requests += run(&mut applier, db, content).ok_or_else(wrong)?;
        engine.fail_start_if_ending()?;
    }
    engine.keyspace.enter(worker).restore_stamp(db, *slot, *stamp);
    Ok(requests)
}

/// Where there is a store, the first part begins with the index of what lies there.
fn load_index<'c>(
    engine: &Engine,
    worker: usize,
    (db, slot): (DbIndex, Slot),
    mut content: &'c [u8],
) -> Option<&'c [u8]> {
    let index = take_index(&mut content)?;
    if !index.words.is_empty() {
        engine.residency.store()?;
        let mut index = index;
        engine.keyspace.enter(worker).restore_index(db, slot, &mut index);
    }
    Some(content)
}

/// Runs the requests of a part. They expire nothing: what is over is over for whoever replays the log, or for clients.
fn run(applier: &mut Applier<'_>, db: DbIndex, content: &[u8]) -> Option<u64> {
    const UNLIMITED: Limits = Limits { bulk_bytes_max: u64::MAX, authenticated: Authenticated::Yes };
    let mut requests = Batch::new();
    let parsed = Parser::new().parse(content, &UNLIMITED, &mut requests, usize::MAX);
    (parsed.ok()? == content.len()).then_some(())?;
    let mut count = 0;
    for request in requests.iter(content) {
        let Runs::Data(row) = table::find_for(&request)?.row.handler else { return None };
        applier.on_key(&mut applier.enter(), row, (db, UnixMs(0)), &request).ok()?;
        count += 1;
    }
    Some(count)
}

/// A part with nothing in it but its header.
pub(super) fn begin(out: &mut Vec<u8>, (database, slot): (u32, Slot), number: u32, stamp: keyspace::Stamp) {
    out.clear();
    PartHeader { database, slot, number, stamp }.put(out);
}
