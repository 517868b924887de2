//! Collections as they were at a moment, read by another thread while they change: each is what it was, whatever is done meanwhile and
//! whoever ends first. `TARN_SEED` picks the run, `TARN_STEPS` says how many collections of each type are tried.

#![allow(clippy::unwrap_used)] // Tests may.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use sys::{Prng, UnixMs};
use value::collection::{Collection, CollectionRef, Frozen, Thresholds, Type};
use value::hash::{FieldExpiry, Hash};
use value::list::{End, Fill, List, Side};
use value::rdb::dump_exactly;
use value::set::Set;
use value::stream::{Group, NodeLimits, Order, Reads, Stream, StreamId};
use value::zset::Zset;

/// Elements, so many that a table has several segments and a tree three levels; miri has time for few.
const ELEMENTS: u64 = if cfg!(miri) { 300 } else { 12_000 };
/// Moments that are kept of a collection.
const MOMENTS: u64 = 12;
/// Changes between two of them, at most.
const CHANGES: u64 = if cfg!(miri) { 60 } else { 3000 };
const NOW: UnixMs = UnixMs(1_700_000_000_000);
const THRESHOLDS: Thresholds = Thresholds::DEFAULT;

/// Makes a collection without elements.
type Make = fn() -> Collection;
/// Changes one element.
type Change = fn(&mut Collection, &mut Prng);

fn env_number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// Short and long texts, and numbers.
fn text(prng: &mut Prng) -> Vec<u8> {
    let number = prng.below(ELEMENTS);
    match number % 5 {
        0 => number.to_string().into_bytes(),
        1 => format!("{number}:").repeat(6).into_bytes(),
        _ => format!("element-{number}").into_bytes(),
    }
}

fn change_hash(hash: &mut Collection, prng: &mut Prng) {
    let Collection::Hash(hash) = hash else { panic!("it is a hash") };
    let name = text(prng);
    match prng.below(10) {
        0..2 => drop(hash.remove(&name, NOW)),
        2 => hash.set_expiry(&name, Some(UnixMs(NOW.0 + 1 + prng.below(1000)))),
        3 => hash.set_expiry(&name, None),
        4 if prng.one_in(50) => drop(hash.remove_expired(UnixMs(NOW.0 + prng.below(1000)), 20, |_| {})),
        // Values of the same length are written where the old ones are.
        _ => drop(hash.set(&name, &prng.below(100).to_le_bytes(), FieldExpiry::Keep, &THRESHOLDS, NOW)),
    }
}

fn change_set(set: &mut Collection, prng: &mut Prng) {
    let Collection::Set(set) = set else { panic!("it is a set") };
    let member = text(prng);
    match prng.below(10) {
        0..3 => drop(set.remove(&member)),
        _ => drop(set.insert(&member, &THRESHOLDS)),
    }
}

fn change_zset(zset: &mut Collection, prng: &mut Prng) {
    let Collection::Zset(zset) = zset else { panic!("it is a sorted set") };
    let (member, score) = (text(prng), prng.below(1000) as f64 / 4.0 - 50.0);
    match prng.below(10) {
        0..2 => drop(zset.remove(&member)),
        2 if prng.one_in(20) => {
            let from = prng.below(ELEMENTS) as usize;
            zset.remove_range(from.min(zset.len())..(from + 30).min(zset.len()));
        }
        _ => drop(zset.update(&member, &THRESHOLDS, |_| Ok::<_, ()>(Some(score)))),
    }
}

fn change_list(list: &mut Collection, prng: &mut Prng) {
    let Collection::List(list) = list else { panic!("it is a list") };
    let (text, end) = (text(prng), if prng.one_in(2) { End::Head } else { End::Tail });
    let index = prng.below(ELEMENTS) as usize;
    match prng.below(10) {
        0 => list.pop(1 + prng.below(3) as usize, end),
        2 | 3 => drop(list.set(index, &text)),
        4 if prng.one_in(20) => drop(list.insert(&text, Side::After, b"inserted")),
        5 if prng.one_in(20) => list.remove_range(index, prng.below(20) as usize),
        6 if prng.one_in(50) => drop(list.remove_matches(&text, 2, end)),
        _ => {
            list.grow(Fill::of(&THRESHOLDS), text.len(), 1);
            list.push(&text, end);
        }
    }
}

fn change_stream(stream: &mut Collection, prng: &mut Prng) {
    let Collection::Stream(stream) = stream else { panic!("it is a stream") };
    let entries = &mut stream.entries;
    match prng.below(10) {
        0 | 1 => {
            let id = StreamId::new(1 + prng.below(ELEMENTS), 0);
            let found = entries.range(id, StreamId::MAX, Order::Ascending).next().map(|entry| entry.id);
            found.map(|id| entries.delete(id));
        }
        2 => {
            let last = entries.last_id();
            if let Some((group, _)) = stream.group_mut(b"group") {
                group.last_id = last;
            } else {
                stream.create_group(b"group", Group::new(last, None));
            }
        }
        _ => {
            let id = StreamId::new(entries.last_id().ms + 1 + prng.below(3), 0);
            let limits = NodeLimits { bytes_max: 4096, entries_max: 100 };
            entries.append(id, [&b"field"[..], &text(prng)].into_iter(), limits).unwrap();
        }
    }
}

const TYPES: &[(&str, Make, Change)] = &[
    ("hash", || Hash::default().into(), change_hash),
    ("set", || Set::new_for(b"text", 0, &THRESHOLDS).into(), change_set),
    ("zset", || Zset::for_members(0, 0, &THRESHOLDS).into(), change_zset),
    ("list", || List::new().into(), change_list),
    ("stream", || Collection::Stream(Stream::new()), change_stream),
];

fn image(collection: CollectionRef<'_>) -> Vec<u8> {
    dump_exactly(collection, Reads::Redis72)
}

/// A moment, and what the collection was then.
type Moment = (Frozen, Vec<u8>);

/// Reads moments in any order, some of them several times, and ends them. How many those were.
fn read(moments: &Receiver<Moment>, prng: &mut Prng) -> u64 {
    let (mut held, mut ended) = (Vec::new(), 0);
    loop {
        match moments.recv() {
            Ok(moment) => held.push(moment),
            Err(_) if held.is_empty() => return ended,
            Err(_) => {}
        }
        if held.is_empty() {
            continue;
        }
        let at = prng.below(held.len() as u64) as usize;
        let (frozen, expected): &Moment = &held[at];
        assert!(image(frozen.as_ref()) == *expected, "it is not what it was");
        if prng.one_in(2) {
            held.swap_remove(at);
            ended += 1;
        }
    }
}

fn change_while_read(seed: u64, make: Make, change: Change, moments: &Sender<Moment>) {
    let mut prng = Prng::from_seed(seed);
    let mut collection = make();
    for _ in 0..ELEMENTS + prng.below(ELEMENTS) {
        change(&mut collection, &mut prng);
    }
    for _ in 0..MOMENTS {
        for _ in 0..prng.below(CHANGES) {
            change(&mut collection, &mut prng);
        }
        let expected = image(collection.as_ref());
        moments.send((collection.as_ref().freeze().unwrap(), expected)).unwrap();
        // Sometimes the collection goes before what is kept of it.
        if prng.one_in(6) {
            collection = make();
            (0..ELEMENTS).for_each(|_| change(&mut collection, &mut prng));
        }
    }
}

#[test]
fn what_is_kept_of_a_moment_stays_what_it_was_while_the_collection_changes() {
    let (first, runs) = (env_number("TARN_SEED", 1), env_number("TARN_STEPS", 1));
    println!("TARN_SEED={first}");
    for seed in first..first + runs {
        for (name, make, change) in TYPES {
            println!("{name}, seed {seed}");
            let (sender, receiver) = channel();
            let reader = thread::spawn(move || read(&receiver, &mut Prng::from_seed(!seed)));
            change_while_read(seed, *make, *change, &sender);
            drop(sender);
            assert_eq!(reader.join().unwrap(), MOMENTS);
        }
    }
}

#[test]
fn what_is_compact_is_not_kept_so() {
    let mut set = Set::new_for(b"text", 0, &THRESHOLDS);
    set.insert(b"text", &THRESHOLDS);
    assert!(Collection::from(set).as_ref().freeze().is_none());
    assert!(Collection::from(Hash::default()).as_ref().freeze().is_none());
}
