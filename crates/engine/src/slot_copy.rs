//! What some slots hold, as requests that make each key, while traffic runs: for another server that is to have these slots.
//!
//! As a full copy ([`crate::full_copy`]) it is of no one moment: it says of each stretch of a slot with which stamp it was copied ([`Copied`]). A slot is let go
//! after each stretch, so that nobody waits for much of it; long collections are frozen, and said in pieces afterwards.
//!
//! Invariants:
//! 1. A stretch holds what was written to its keys up to its stamp, and nothing later.
//! 2. Memory is a stretch, and what is written to long values while they are said. With a store (capacity edition) a stretch is a slot.
//! 3. Nothing is compressed.

use crate::Engine;
use crate::frozen::FrozenKey;
use crate::full_copy::{Beginning, begin_tour, fail_if_ending};
use command::pieces::{Pieces, Progress, Words};
use keyspace::{DbIndex, Key, Object, Position, Slot, SlotView, Stamp, Tour, ValueRef};
use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};
use sys::UnixMs;
use value::number::{IntBuffer, format_i64};
use value::rdb;
use wire::{encode_arg, encode_request_header};

/// A slot is let go when so much was copied of it.
const STRETCH_BYTES: usize = 64 << 10;

/// And when that has taken so long.
const STRETCH: Duration = Duration::from_micros(300);

/// What is handed on at a time.
const PIECE_BYTES: usize = 128 << 10;

/// What was copied, and up to which stamp.
#[derive(Default)]
pub struct Copied {
    numbers: Vec<u32>,
    /// Those that are copied, in ascending order.
    slots: Vec<Slot>,
    /// By constant number of the database, and slot: where each stretch ends, and its stamp. The last one's end is [`END`].
    stretches: BTreeMap<(u32, u16), Vec<(u64, Stamp)>>,
    /// All slots below this one, in the order of databases and slots.
    until: Option<(u32, u16)>,
    keys: u64,
}

/// The end of a slot.
const END: u64 = u64::MAX;

impl Copied {
    /// Up to where the copy of a key goes; of one that is to be copied yet, or is not, up to where nobody has written.
    pub fn of(&self, key: &Key<'_>) -> Stamp {
        if self.slots.binary_search(&key.slot).is_err() {
            return Stamp::LAST;
        }
        let number = self.numbers.get(key.db.0 as usize).copied().unwrap_or(key.db.0);
        let Some(stretches) = self.stretches.get(&(number, key.slot.0)) else {
            // Of a database that was not in use it is copied that there is nothing.
            let is_passed = self.until.is_some_and(|until| (number, key.slot.0) < until);
            return if is_passed { Stamp(0) } else { Stamp::LAST };
        };
        let stretch = stretches.iter().find(|(end, _)| key.position.0 < *end || *end == END);
        stretch.map_or(Stamp::LAST, |(_, stamp)| *stamp)
    }

    /// How many keys were copied.
    pub fn keys(&self) -> u64 {
        self.keys
    }
}

/// Takes what is copied.
pub trait Taker {
    /// Takes requests for a database: whole ones, in their order.
    ///
    /// # Errors
    /// They cannot be handed on: the copy ends.
    fn take(&mut self, db: DbIndex, requests: Vec<u8>) -> io::Result<()>;

    /// Called when a slot is copied and nothing of it is left to be handed on.
    ///
    /// # Errors
    /// The copy ends.
    fn passed(&mut self, copied: &Copied) -> io::Result<()>;
}

/// Copies slots, which stand in ascending order, of all databases. `guest` is the number under which it enters the keyspace.
///
/// # Errors
/// Something cannot be read, or the server ends; and those of `taker`.
pub fn copy(
    engine: &Engine,
    guest: usize,
    beginning: &Beginning,
    slots: &[Slot],
    taker: &mut impl Taker,
) -> io::Result<Copied> {
    let tour = begin_tour(engine)?;
    let copied = Copied { numbers: beginning.numbers.clone(), slots: slots.to_vec(), ..Copied::default() };
    let mut copying = Copying { engine, guest, tour, copied, words: Words::default(), taker };
    rdb::uncompressed(|| {
        (0..engine.keyspace.databases()).try_for_each(|number| copying.database(number, slots))
    })?;
    Ok(copying.copied)
}

struct Copying<'c, T> {
    engine: &'c Engine,
    guest: usize,
    tour: Tour<'c>,
    copied: Copied,
    words: Words,
    taker: &'c mut T,
}

/// What was copied of a slot in one go.
struct Stretch {
    next: Option<Position>,
    stamp: Stamp,
    requests: Vec<u8>,
    long: Vec<FrozenKey>,
    keys: u64,
}

impl<T: Taker> Copying<'_, T> {
    fn database(&mut self, number: u32, slots: &[Slot]) -> io::Result<()> {
        if self.tour.passes_unused(number) {
            self.copied.until = Some((number + 1, 0));
            return self.taker.passed(&self.copied);
        }
        let name = self.copied.numbers.iter().position(|own| *own == number);
        let db = DbIndex(u32::try_from(name.unwrap_or_default()).unwrap_or_default());
        for slot in slots {
            self.tour.enter(number, *slot);
            let mut from = Some(Position(0));
            while let Some(position) = from {
                fail_if_ending(self.engine)?;
                from = self.stretch(db, (number, *slot), position)?;
            }
            self.tour.leave(number, *slot);
            self.copied.until = Some((number, slot.0 + 1));
            self.taker.passed(&self.copied)?;
        }
        self.copied.until = Some((number + 1, 0));
        Ok(())
    }

    /// Copies on from a position; gives where to go on.
    fn stretch(
        &mut self,
        db: DbIndex,
        (number, slot): (u32, Slot),
        from: Position,
    ) -> io::Result<Option<Position>> {
        let (engine, words) = (self.engine, &mut self.words);
        let batch = engine.keyspace.enter(self.guest);
        let stretch = batch.look_into(number, slot, |view| copy_stretch(engine, view, from, words));
        let unreadable = batch.take_unreadable();
        drop(batch);
        unreadable.map_or(Ok(()), |error| Err(io::Error::other(error)))?;
        let Stretch { next, stamp, requests, long, keys } = stretch;
        let stretches = self.copied.stretches.entry((number, slot.0)).or_default();
        stretches.push((next.map_or(END, |next| next.0), stamp));
        self.copied.keys += keys;
        if !requests.is_empty() {
            self.taker.take(db, requests)?;
        }
        for key in long {
            self.long_value(db, &key)?;
        }
        Ok(next)
    }

    /// Says a long value, which others have meanwhile.
    fn long_value(&mut self, db: DbIndex, key: &FrozenKey) -> io::Result<()> {
        let value = ValueRef::Collection(key.value());
        let pieces = Pieces::of_value(key.key(), value, key.expires_at(), self.engine.settings.piece_bytes());
        let (mut progress, mut requests) = (Progress::Nothing, Vec::new());
        while progress != Progress::Everything {
            progress = pieces.encode_next(progress, &mut self.words, &mut requests);
            if requests.len() >= PIECE_BYTES || progress == Progress::Everything {
                fail_if_ending(self.engine)?;
                self.taker.take(db, std::mem::take(&mut requests))?;
            }
        }
        Ok(())
    }
}

fn copy_stretch(engine: &Engine, view: &SlotView<'_>, from: Position, words: &mut Words) -> Stretch {
    let began = Instant::now();
    let mut stretch =
        Stretch { next: None, stamp: view.stamp(), requests: Vec::new(), long: Vec::new(), keys: 0 };
    if engine.residency.store().is_some() {
        view.visit(|object| copy_object(engine, object, words, &mut stretch));
        return stretch;
    }
    let mut at = Some(from);
    while let Some(position) = at {
        at = view.next(position, |object| copy_object(engine, object, words, &mut stretch));
        if stretch.requests.len() >= STRETCH_BYTES || began.elapsed() >= STRETCH {
            break;
        }
    }
    stretch.next = at;
    stretch
}

fn copy_object(engine: &Engine, object: Object<'_>, words: &mut Words, stretch: &mut Stretch) {
    stretch.keys += 1;
    if let Some(frozen) = FrozenKey::of(engine, object, UnixMs(0)) {
        stretch.long.push(frozen);
        return;
    }
    if say_short_string(object, engine.settings.piece_bytes(), &mut stretch.requests) {
        return;
    }
    let pieces = Pieces::new(object.key(), object, engine.settings.piece_bytes());
    let mut progress = Progress::Nothing;
    while progress != Progress::Everything {
        progress = pieces.encode_next(progress, words, &mut stretch.requests);
    }
}

/// Says a string that is not long, which is neither packed nor checked so: who gets it does so at once. False: it is something else.
fn say_short_string(object: Object<'_>, bytes_max: usize, out: &mut Vec<u8>) -> bool {
    let (digits, moment) = (&mut IntBuffer::new(), &mut IntBuffer::new());
    let value = match object.value() {
        ValueRef::Bytes(bytes) if bytes.len() <= bytes_max => bytes,
        ValueRef::Int(number) => format_i64(number, digits),
        _ => return false,
    };
    let words = [&b"SET"[..], object.key(), value];
    let until = object.expires_at().map(|at| [&b"PXAT"[..], format_i64(at.0 as i64, moment)]);
    encode_request_header(out, words.len() + until.as_ref().map_or(0, |until| until.len()));
    words.into_iter().chain(until.into_iter().flatten()).for_each(|word| encode_arg(out, word));
    true
}
