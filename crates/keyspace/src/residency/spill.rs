//! Sending objects away: who was not used of late gives its memory back.
//!
//! A sweep goes round and round over the slots. An object that was used again since it came is *proven*, and stays as many rounds as it
//! was used, six at the most; the others, newcomers, go. So that hardly anything but newcomers goes while there are many, rounds
//! count for the proven only while few are seen: whoever is looked at once, as by a scan, does not take the place of what is used.
//! (CLOCK with a counter; Corbató, "A paging experiment with the Multics system", 1968; with the two parts of S3-FIFO, Yang et al.,
//! SOSP 2023, kept by looking instead of queues. In a simulation with YCSB's zipfian keys and memory for a tenth of them both miss as
//! often, and CLOCK alone a tenth more.) One that lies on disk as it is goes at once. Any other is shown to who writes
//! ([`Batch::spill`]), and goes when it has been written ([`Batch::let_go`]) unless it has changed meanwhile.
//!
//! Thread rule: one sweep at a time has copies that are on their way, and they are written before it comes to the same slot again;
//! other threads may change what it has seen.

use super::record;
use crate::ids::{DbIndex, POSITION_BITS, Position, Slot};
use crate::keyspace::Batch;
use crate::limits::SPILL_RESOLVES_MAX;
use crate::locks::{self, SlotId};
use crate::object::Block;
use crate::slot::SlotKeys;
use crate::table::Place;
use std::mem;
use std::time::{Duration, Instant};
use sys::UnixMs;
use sys::prefetch::prefetch;
use value::table::{COLD_BITS_MIN, Handle, TAG_BITS};

/// How many objects ahead of the one looked at are fetched.
const PREFETCH: usize = 8;

/// How large a share of newcomers among the objects that a sweep has seen of late counts as many, in parts of [`WHOLE`]. With less, the
/// proven are counted down and go: more rounds, for hardly fewer misses.
const NEWCOMERS_MANY: u32 = WHOLE / 5 * 2;
const WHOLE: u32 = 1 << 20;

/// The share is one of about so many objects, the last ones seen.
const SEEN_OF_LATE: u32 = 2048;

/// Takes copies to the disk.
pub trait Carrier {
    /// Whether what lies at a place can be read.
    fn is_written(&self, at: u32) -> bool;

    /// Takes a copy of an object, or does not.
    fn take(&mut self, copied: Copied<'_>) -> Fate;
}

/// A copy to be written.
#[derive(Clone, Copy, Debug)]
pub struct Copied<'a> {
    /// Which database it is in, whatever number that has now.
    pub db: u32,
    /// Its key.
    pub key: &'a [u8],
    /// When it expires.
    pub expires_at: Option<UnixMs>,
    /// All else.
    pub image: &'a [u8],
}

/// What becomes of an object that was shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Its copy will lie there.
    LeavesTo(u32),
    /// It stays in memory.
    Stays,
    /// There is no place for it or others now.
    Waits,
}

/// What became of a slot's objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spilled {
    /// Objects that have gone.
    pub gone: usize,
    /// Objects that will go when they are written.
    pub leaving: usize,
    /// Whether there was no place for more copies.
    pub is_full: bool,
}

/// Which objects a sweep sends away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Aim {
    /// Those that were not used of late.
    #[default]
    Unused,
    /// All.
    All,
    /// None: what does not lie on disk is copied, and stays in memory as well.
    Copies,
}

/// A sweep's memory of what it has copied.
#[derive(Debug, Default)]
pub struct Sweep {
    /// Which objects go.
    pub aim: Aim,
    leaving: Vec<Leaving>,
    image: Vec<u8>,
    /// Where a slot's objects are, with the addresses of their blocks.
    seen: Vec<(Place, u64)>,
    /// Keys of a slot that are to be resolved before they can go.
    shadowing: Vec<Box<[u8]>>,
    /// How many of the objects that it has seen of late were newcomers, and could go.
    newcomers: Share,
    /// What went or will go in this round.
    sent: usize,
    /// Whether nothing did in the round before: then it neither spares the proven nor waits until others have found out what is shadowed.
    was_fruitless: bool,
}

/// A share that follows what was seen of late, in parts of [`WHOLE`].
#[derive(Clone, Copy, Debug)]
struct Share(u32);

impl Default for Share {
    fn default() -> Share {
        Share(WHOLE)
    }
}

impl Share {
    fn note(&mut self, is_one: bool) {
        self.0 = self.0 - self.0 / SEEN_OF_LATE + if is_one { WHOLE / SEEN_OF_LATE } else { 0 };
    }
}

/// An object that may go once its copy is on disk.
#[derive(Clone, Copy, Debug)]
struct Leaving {
    slot: SlotId,
    position: Position,
    /// The address of its block: nothing else may be meant.
    block: u64,
    /// Where its copy lies.
    at: u32,
}

/// What becomes of one object.
enum Outcome {
    Gone,
    Leaving(Position, u32),
    Kept,
    Full,
}

impl Batch<'_> {
    /// Lets go of a slot's objects that were not used of late. Those that are not on disk are shown to the carrier.
    /// The database is meant by its constant number: copies on their way are told apart by it.
    pub fn spill(&self, db: u32, slot: Slot, sweep: &mut Sweep, carrier: &mut impl Carrier) -> Spilled {
        let mut spilled = Spilled::default();
        let id = (db, slot);
        if slot == Slot(0) {
            sweep.was_fruitless = mem::take(&mut sweep.sent) == 0;
        }
        let Some(mut keys) = self.keyspace.slot_with_keys(id).and_then(locks::lock_soon) else {
            return spilled;
        };
        let is_elsewhere = |leaving: &Leaving| leaving.slot != id;
        debug_assert!(sweep.leaving.iter().all(is_elsewhere), "copies are written before their slot's turn");
        let first = sweep.leaving.len();
        let mut seen = mem::take(&mut sweep.seen);
        seen.extend(keys.table().places().map(|(place, object)| (place, object.address())));
        let position_of = |key: &[u8]| self.keyspace.position(key);
        for (index, (place, _)) in seen.iter().enumerate() {
            // Most objects are looked at and stay: waiting for their memory is what that costs.
            seen.get(index + PREFETCH).into_iter().for_each(|(_, address)| prefetch(*address as usize));
            let place = *place;
            match sweep.one(&mut keys, id.0, (place, position_of), first, carrier) {
                Outcome::Gone => {
                    sweep.newcomers.note(true);
                    spilled.gone += 1;
                }
                Outcome::Kept => {}
                Outcome::Leaving(position, at) => {
                    sweep.newcomers.note(true);
                    let block = keys.block(place);
                    block.set_leaving(true);
                    sweep.leaving.push(Leaving { slot: id, position, block: block.address(), at });
                    spilled.leaving += 1;
                }
                Outcome::Full => {
                    spilled.is_full = true;
                    break;
                }
            }
        }
        seen.clear();
        sweep.seen = seen;
        sweep.sent += spilled.gone + spilled.leaving;
        self.resolve(id, &mut keys, &mut sweep.shadowing);
        spilled
    }

    /// Finds out what these keys are shadowing, so that they can go another time. What cannot be read stays in memory.
    fn resolve(&self, id: SlotId, keys: &mut SlotKeys, names: &mut Vec<Box<[u8]>>) {
        let reader = self.keyspace.slot_reader(id);
        for name in names.drain(..) {
            let key = self.keyspace.key(DbIndex(0), &name);
            if let Some(Ok(change)) = reader.map(|reader| reader.resolve(keys, &key)) {
                self.keyspace.database_at(id.0).note_found(id.1, keys, change);
            }
        }
    }

    /// Lets go of objects whose copies are written, or notes where those lie, unless they have changed or gone meanwhile. With
    /// `is_written` false they stay as if they had never been copied. Gives how long it waited for their slots.
    pub fn let_go(&self, sweep: &mut Sweep, is_written: bool) -> Duration {
        let mut waited = Duration::ZERO;
        for of_slot in sweep.leaving.chunk_by(|a, b| a.slot == b.slot) {
            let asked = Instant::now();
            let mut keys = locks::lock(self.keyspace.keys_of_slot(of_slot[0].slot));
            waited += asked.elapsed();
            for one in of_slot {
                match find_leaving(&mut keys, one) {
                    None if is_written => self.keyspace.note_dead(Some(one.at)),
                    None => {}
                    Some(place) if !is_written => keys.block(place).set_leaving(false),
                    Some(place) if sweep.aim == Aim::Copies => keys.settle(place, one.at),
                    Some(place) => keys.chill(place, one.position, one.at),
                }
            }
        }
        sweep.leaving.clear();
        waited
    }
}

impl Sweep {
    /// One that has seen nothing.
    pub fn new(aim: Aim) -> Sweep {
        Sweep { aim, ..Sweep::default() }
    }

    /// Whether copies are on their way.
    pub fn has_leaving(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// Whether it was used so that it stays.
    fn keeps(&mut self, block: Block) -> bool {
        let is_proven = block.is_proven();
        if is_proven {
            self.newcomers.note(false);
            if self.newcomers.0 <= NEWCOMERS_MANY || self.was_fruitless {
                block.take_use();
            }
        }
        is_proven
    }

    /// Decides on one object; `first` is where this slot's copies begin.
    fn one(
        &mut self,
        keys: &mut SlotKeys,
        db: u32,
        (place, position_of): (Place, impl Fn(&[u8]) -> Position),
        first: usize,
        carrier: &mut impl Carrier,
    ) -> Outcome {
        let block = keys.block(place);
        if block.is_leaving() || block.fields_expire() || self.aim == Aim::Unused && self.keeps(block) {
            return Outcome::Kept;
        }
        if block.is_shadowing() {
            if self.was_fruitless && self.aim != Aim::Copies && self.shadowing.len() < SPILL_RESOLVES_MAX {
                self.shadowing.push(keys.object(place).key().into());
            }
            return Outcome::Kept;
        }
        if let Some(at) = block.at() {
            if self.aim == Aim::Copies || !carrier.is_written(at) {
                return Outcome::Kept;
            }
            let position = position_of(keys.object(place).key());
            keys.chill(place, position, at);
            return Outcome::Gone;
        }
        let position = position_of(keys.object(place).key());
        // Two that look alike cannot be told apart in one page: the second goes another time.
        let mut near =
            self.leaving[first..].iter().rev().take_while(|other| have_one_tag(other.position, position));
        if near.any(|other| look_alike(other.position, position)) {
            return Outcome::Kept;
        }
        let object = keys.object(place);
        self.image.clear();
        record::write(object, &mut self.image);
        let (key, expires_at) = (object.key(), object.expires_at());
        match carrier.take(Copied { db, key, expires_at, image: &self.image }) {
            Fate::LeavesTo(at) => Outcome::Leaving(position, at),
            Fate::Stays => Outcome::Kept,
            Fate::Waits => Outcome::Full,
        }
    }
}

/// Whether cold words of these positions could not be told apart in one slot.
pub(super) fn look_alike(one: Position, other: Position) -> bool {
    share(one, other, COLD_BITS_MIN)
}

/// Whether they stand side by side in a table.
fn have_one_tag(one: Position, other: Position) -> bool {
    share(one, other, TAG_BITS)
}

fn share(one: Position, other: Position, bits: u32) -> bool {
    (one.0 ^ other.0) >> (POSITION_BITS - bits) == 0
}

fn find_leaving(keys: &mut SlotKeys, leaving: &Leaving) -> Option<Place> {
    let place = keys.table().find_block(leaving.position, leaving.block)?;
    keys.block(place).is_leaving().then_some(place)
}
