//! Long collections beside a checkpoint: however often they are written while it goes over them, their slots are copied at the first go, and
//! whoever starts from it finds what was there. `TARN_SEED` and `TARN_STEPS` repeat and lengthen it.

use crate::shown::Shown;
use crate::site::Site;
use engine::durability::checkpoint::{Interval, Pace, write_beside};
use engine::full_copy::{self, Wanted};
use keyspace::{DbIndex, SLOTS, Stamp, Touch, ValueRef};
use sys::file::simulated::{Disk, Survival};
use sys::{Clock, Prng, UnixMs};
use testkit::generate::{Request, words};
use testkit::seed::Budget;
use value::collection::Thresholds;
use value::rdb::file::FileReader;
use value::rdb::{Restored, dump, restore};
use value::stream::Reads;

const KEYS: [&str; 6] = ["list", "hash", "fields", "set", "zset", "stream"];

/// Elements of each.
const ELEMENTS: u64 = 1000;

/// At an interval so much is written.
const WRITES: u64 = 3;

fn clock() -> Clock {
    Clock::simulated(UnixMs(1_700_000_000_000))
}

fn shown(site: &Site) -> Vec<Option<Shown>> {
    KEYS.iter().map(|key| site.shown(0, key.as_bytes())).collect()
}

/// Adds to what is there, mostly, so that it matters how often it is done.
fn write(prng: &mut Prng) -> Request {
    let number = prng.below(ELEMENTS).to_string();
    let key = KEYS[prng.below(KEYS.len() as u64) as usize];
    let line = match (key, prng.below(8)) {
        (_, 0) if prng.one_in(40) => format!("DEL {key}"),
        (_, 0) if prng.one_in(40) => format!("RENAME {key} {}", KEYS[prng.below(6) as usize]),
        (_, 0) if prng.one_in(20) => format!("PEXPIRE {key} 90000000"),
        ("list", 1) => "LPOP list".to_owned(),
        ("list", 2) => format!("LSET list {} set-{number}", prng.below(90)),
        ("list", 3) => format!("LPUSH list {number}"),
        ("list", _) => format!("RPUSH list {number}-{number}"),
        ("hash", 1 | 2) => format!("HDEL hash f{number}"),
        ("hash", 3) => format!("HSET hash f{number} {}", number.repeat(9)),
        ("hash", _) => format!("HINCRBY hash f{number} 1"),
        ("fields", 1) => format!("HPEXPIRE fields 90000000 FIELDS 1 f{number}"),
        ("fields", 2) => format!("HPERSIST fields FIELDS 1 f{number}"),
        ("fields", _) => format!("HINCRBY fields f{number} 7"),
        ("set", 1..4) => format!("SREM set m{number}"),
        ("set", 4) => "SPOP set 2".to_owned(),
        ("set", _) => format!("SADD set m{number}"),
        ("zset", 1 | 2) => format!("ZREM zset m{number}"),
        ("zset", 3) => "ZPOPMIN zset".to_owned(),
        ("zset", _) => format!("ZINCRBY zset 1.5 m{number}"),
        (_, 1 | 2) => format!("XTRIM stream MAXLEN {}", ELEMENTS + prng.below(90)),
        (_, 3) => "XREADGROUP GROUP g c COUNT 1 STREAMS stream >".to_owned(),
        _ => format!("XADD stream * f {number}"),
    };
    words(&line.split(' ').collect::<Vec<_>>())
}

fn fill(site: &mut Site) {
    for number in 0..ELEMENTS {
        for line in [
            format!("RPUSH list {}", format!("{number}-").repeat(5)),
            format!("HSET hash f{number} {number}"),
            format!("HSET fields f{number} {number}"),
            format!("SADD set m{number}"),
            format!("ZADD zset {number} m{number}"),
            format!("XADD stream * f {number}"),
        ] {
            let (reply, _) = site.run(&[words(&line.split(' ').collect::<Vec<_>>())]);
            assert!(!reply.starts_with(b"-"), "{line}");
        }
        site.log().flush();
    }
    site.run(&[words(&["XGROUP", "CREATE", "stream", "g", "0"])]);
}

/// Writes a checkpoint, and to the collections all the while, at one of so many intervals.
fn checkpoint(site: &mut Site, prng: &mut Prng, often: u64) {
    let (server, log) = (site.server.clone(), site.log());
    write_beside(&server.engine, &log, server.engine.guest(), Pace::Full, &mut |interval| match interval {
        Interval::BetweenSlots if prng.one_in(often) => {
            (0..WRITES).for_each(|_| drop(site.run(&[write(prng)])));
        }
        Interval::BetweenSlots => {}
        Interval::BeforeSync => log.flush(),
    })
    .unwrap();
}

/// What somebody finds who starts from what is on the disk.
fn after_a_cut(site: Site, disk: &mut Disk, seed: u64) -> Site {
    site.log().flush();
    drop(site);
    *disk = disk.power_cut(seed, Survival::Nothing);
    Site::open("durable", disk, seed, &clock(), 2).unwrap()
}

#[test]
fn a_long_collection_that_is_written_between_its_parts_is_not_begun_anew() {
    const SEED: u64 = 1;
    for key in KEYS {
        let (clock, mut disk) = (clock(), Disk::new(SEED));
        let mut site = Site::open("durable", &disk, SEED, &clock, 1).unwrap();
        fill(&mut site);
        site.run(&[words(&["COPY", key, "other"])]);
        KEYS.iter().for_each(|key| drop(site.run(&[words(&["DEL", key])])));
        let slot = usize::from(site.server.engine.keyspace.key(DbIndex(0), b"other").slot.0);
        let (server, log) = (site.server.clone(), site.log());
        let mut intervals = 0;
        write_beside(
            &server.engine,
            &log,
            server.engine.guest(),
            Pace::Full,
            &mut |interval| match interval {
                Interval::BetweenSlots => {
                    intervals += 1;
                    if (slot..slot + 100).contains(&intervals) {
                        let at = 4_000_000_000_000 + intervals;
                        site.run(&[words(&["PEXPIREAT", "other", &at.to_string()])]);
                    }
                }
                Interval::BeforeSync => log.flush(),
            },
        )
        .unwrap();
        // It has more than so many parts.
        assert!(intervals > SLOTS + 20, "{key}: {intervals} intervals");
        let live = site.shown(0, b"other");
        assert!(after_a_cut(site, &mut disk, SEED).shown(0, b"other") == live, "{key}");
    }
}

#[test]
fn long_collections_that_are_written_beside_a_checkpoint_are_what_they_were() {
    let budget = Budget::from_env(1, 2);
    let mut done = 0;
    while budget.allows(done) {
        // An odd seed: pieces are short, and so what is long.
        let seed = 2 * (budget.seed + done) + 1;
        let (mut prng, clock, mut disk) = (Prng::from_seed(seed), clock(), Disk::new(seed));
        let mut site = Site::open("durable", &disk, seed, &clock, 1).unwrap();
        fill(&mut site);
        for life in 0..3 {
            let often = 20 + prng.below(200);
            checkpoint(&mut site, &mut prng, often);
            let live = shown(&site);
            site = after_a_cut(site, &mut disk, seed);
            assert!(shown(&site) == live, "seed {seed}, life {life}");
            KEYS.iter().for_each(|key| drop(site.run(&[words(&["DEL", key])])));
            fill(&mut site);
        }
        done += 1;
    }
}

/// A collection of this name as others read it, however it came to be.
fn loaded(restored: Restored) -> Vec<u8> {
    let Restored::Collection(collection) = restored else { panic!("it is a collection") };
    dump(collection.as_ref())
}

/// The same of one that is there.
fn payload(site: &Site, key: &str) -> Vec<u8> {
    let keyspace = &site.server.engine.keyspace;
    let (key, batch) = (keyspace.key(DbIndex(0), key.as_bytes()), keyspace.enter(0));
    let view = batch.view(&[key], UnixMs(0), Touch::No);
    let ValueRef::Collection(collection) = view.peek(&key).unwrap().value() else {
        panic!("it is a collection")
    };
    dump(collection)
}

#[test]
fn a_full_copy_has_a_long_collection_as_it_was_when_its_slot_was_copied() {
    const SEED: u64 = 1;
    for key in KEYS {
        let (clock, disk) = (clock(), Disk::new(SEED));
        let mut site = Site::open("durable", &disk, SEED, &clock, 1).unwrap();
        fill(&mut site);
        // So much that it is handed on in several pieces.
        let mut prng = Prng::from_seed(SEED);
        let noise = |prng: &mut Prng| (0..24).map(|_| format!("{:016x}", prng.next_u64())).collect();
        let long: Vec<String> = (0..1500).map(|_| noise(&mut prng)).collect();
        for (number, text) in long.iter().enumerate() {
            let (length, score) = (text.len().to_string(), format!("{}", text.as_bytes()[0]));
            site.run(&[match key {
                "list" => words(&["RPUSH", key, text]),
                "set" => words(&["SADD", key, text]),
                "zset" => words(&["ZADD", key, &score, text]),
                "stream" => words(&["XADD", key, "*", &length, text]),
                _ => words(&["HSET", key, &length, text]),
            }]);
            if key == "hash" || key == "fields" {
                site.run(&[words(&["HSET", key, text, text])]);
            }
            if number % 100 == 0 {
                site.log().flush();
            }
        }
        let expected = restore(&payload(&site, key), &Thresholds::DEFAULT).unwrap();
        KEYS.iter().filter(|other| **other != key).for_each(|other| {
            site.run(&[words(&["DEL", other])]);
        });
        let (server, mut file) = (site.server.clone(), Vec::new());
        let beginning = full_copy::begin(&server.engine, || Stamp(site.log().appended().0));
        let wanted = Wanted { reads: Reads::Redis72, knows_field_times: true, keys: true, functions: false };
        let mut pieces = 0;
        full_copy::write(&server.engine, &beginning, wanted, &full_copy::Facts::NONE, &mut |piece| {
            file.extend_from_slice(&piece);
            pieces += 1;
            (0..200).for_each(|_| drop(site.run(&[write(&mut prng)])));
            site.run(&[words(&["DEL", key])]);
            Ok(())
        })
        .unwrap();
        assert!(pieces > 1, "{key} is too short");
        let entry = FileReader::open(&file[..]).unwrap().next_entry(&Thresholds::DEFAULT).unwrap().unwrap();
        assert_eq!(entry.key, key.as_bytes());
        assert!(loaded(entry.value) == loaded(expected), "{key}");
    }
}
