//! What a copy of a collection of five million elements costs those who change it: how long it takes to keep it as it is, and the slowest
//! change behind that, of many at random places, while what was kept is there.
//!
//! `cargo bench -p value --bench freeze` prints a line for each type, milliseconds.

use std::hint::black_box;
use std::time::{Duration, Instant};
use sys::memory::CountingAllocator;
use sys::{Prng, UnixMs};
use value::collection::{Collection, CollectionRef, Thresholds, Type};
use value::hash::{FieldExpiry, Hash};
use value::list::{End, Fill, List};
use value::set::Set;
use value::zset::Zset;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const ELEMENTS: u64 = 5_000_000;
const CHANGES: u64 = 200_000;
const NOW: UnixMs = UnixMs(1);

fn name(number: u64) -> Vec<u8> {
    format!("member:{number:09}").into_bytes()
}

fn report<T: Type>(what: &str, mut value: T, mut change: impl FnMut(&mut T, u64)) {
    let mut prng = Prng::from_seed(1);
    let mut alone = Duration::ZERO;
    for _ in 0..CHANGES {
        let (number, began) = (prng.below(ELEMENTS), Instant::now());
        change(&mut value, number);
        alone = alone.max(began.elapsed());
    }
    let mut collection: Collection = value.into();
    let began = Instant::now();
    let frozen = CollectionRef::freeze(collection.as_ref()).expect("it is long");
    let kept = began.elapsed();
    let value = T::edit(&mut collection).expect("it is of this type");
    let mut slowest = Duration::ZERO;
    for _ in 0..CHANGES {
        let (number, began) = (prng.below(ELEMENTS), Instant::now());
        change(value, number);
        slowest = slowest.max(began.elapsed());
    }
    black_box(&frozen);
    let ms = |span: Duration| span.as_secs_f64() * 1e3;
    println!(
        "{what}: kept in {:.3} ms; slowest of {CHANGES} changes {:.3} ms, {:.3} ms where nothing is kept",
        ms(kept),
        ms(slowest),
        ms(alone)
    );
}

fn main() {
    let thresholds = Thresholds::default();
    let mut hash = Hash::default();
    (0..ELEMENTS).for_each(|number| {
        hash.set(&name(number), b"value", FieldExpiry::Clear, &thresholds, NOW);
    });
    report("hash", hash, |hash, number| {
        hash.set(&name(number), b"other", FieldExpiry::Clear, &thresholds, NOW);
    });
    let mut set = Set::new_for(b"member", usize::MAX, &thresholds);
    (0..ELEMENTS).for_each(|number| {
        set.insert(&name(number), &thresholds);
    });
    report("set", set, |set, number| {
        set.remove(&name(number));
        set.insert(&name(number), &thresholds);
    });
    let zset =
        Zset::from_members((0..ELEMENTS).map(|number| (name(number), number as f64)).collect(), &thresholds);
    report("sorted set", zset, |zset, number| {
        let _ = zset.update(&name(number), &thresholds, |score| Ok::<_, ()>(score.map(|score| score + 1e6)));
    });
    let mut list = List::new();
    (0..ELEMENTS).for_each(|number| {
        let name = name(number);
        list.grow(Fill::of(&thresholds), name.len(), 1);
        list.push(&name, End::Tail);
    });
    report("list", list, |list, number| {
        list.set(usize::try_from(number).unwrap_or(0), b"other");
    });
}
