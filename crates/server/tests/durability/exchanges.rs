//! Databases that are exchanged again and again while a checkpoint is written: it completes at the first go, and every key is where it
//! was; and checkpoints of older versions, which name databases as commands do.

use crate::older;
use crate::shown::Shown;
use crate::site::{DATABASES, Site, WORKERS, dir};
use engine::durability::checkpoint::{Interval, Pace, write_beside};
use engine::residency::by_hand;
use keyspace::SLOTS;
use std::path::PathBuf;
use sys::file::simulated::{Disk, Survival};
use sys::{Clock, Prng, UnixMs};
use testkit::generate::{Request, words};
use testkit::seed::Budget;

/// Strings, lists and numbers; those of a brace in one slot.
const KEYS: [&str; 9] = ["a", "b", "c", "{x}1", "{x}2", "{x}3", "l1", "l2", "n"];

/// Beside a checkpoint something is done between so many slots, on average.
const SLOTS_APART: u64 = 400;

/// Writes in two databases that it exchanges.
const SCRIPT: &str = "redis.call('SET', 'a', ARGV[1]); redis.call('SWAPDB', 0, ARGV[2]); redis.call('INCR', 'n');\
                      redis.call('SELECT', ARGV[2]); redis.call('APPEND', 'a', ARGV[1])";

fn clock() -> Clock {
    Clock::simulated(UnixMs(1_700_000_000_000))
}

/// All keys of all databases.
fn shown(site: &Site) -> Vec<(u32, &'static str, Option<Shown>)> {
    let places = (0..DATABASES).flat_map(|db| KEYS.map(|key| (db, key)));
    places.map(|(db, key)| (db, key, site.shown(db, key.as_bytes()))).collect()
}

/// Requests that came together: often an exchange, alone, in a transaction or in a script.
fn requests(prng: &mut Prng) -> Vec<Request> {
    let databases = ["0", "1", "2"];
    let (one, other) = (prng.below(3) as usize, prng.below(2) as usize);
    let swap = words(&["SWAPDB", databases[one], databases[(one + 1 + other) % 3]]);
    let text = prng.below(1000).to_string();
    let select = words(&["SELECT", databases[prng.below(3) as usize]]);
    match prng.below(12) {
        0..4 => vec![swap],
        4 | 5 => vec![words(&["EVAL", SCRIPT, "0", &text, ["1", "2"][other]])],
        6 => {
            let exec = words(&["EXEC"]);
            vec![words(&["MULTI"]), write(prng, &text), swap, write(prng, &text), select, exec]
        }
        7 if prng.one_in(8) => vec![select, words(&["FLUSHDB"])],
        _ => vec![select, write(prng, &text), swap],
    }
}

fn write(prng: &mut Prng, text: &str) -> Request {
    let key = KEYS[prng.below(6) as usize];
    match prng.below(8) {
        0 => words(&["DEL", key]),
        1 | 2 => words(&["SET", key, text]),
        // With short pieces a slot with them is copied in parts.
        3 | 4 => words(&["RPUSH", ["l1", "l2"][prng.below(2) as usize], &text.repeat(300), text]),
        5 => words(&["APPEND", key, &text.repeat(200)]),
        6 => transfer(prng, key),
        _ => words(&["INCR", "n"]),
    }
}

/// A key becomes what another one is, which may be long.
fn transfer(prng: &mut Prng, key: &str) -> Request {
    let (other, database) = (KEYS[prng.below(6) as usize], ["0", "1", "2"][prng.below(3) as usize]);
    match prng.below(5) {
        0 | 1 => words(&["RENAME", key, other]),
        2 => words(&["COPY", key, other, "REPLACE"]),
        3 => words(&["COPY", key, other, "DB", database, "REPLACE"]),
        _ => words(&["MOVE", key, database]),
    }
}

/// Writes a checkpoint while databases are exchanged.
fn checkpoint(site: &mut Site, prng: &mut Prng) {
    let (server, log) = (site.server.clone(), site.log());
    let mut slots = 0;
    write_beside(&server.engine, &log, server.engine.guest(), Pace::Full, &mut |interval| match interval {
        Interval::BetweenSlots => {
            slots += 1;
            assert!(slots < 4 * DATABASES as usize * SLOTS, "it begins anew, and never ends");
            if prng.one_in(SLOTS_APART) {
                if prng.one_in(10) {
                    by_hand::spill(&server.engine, &mut || {}).unwrap();
                }
                drop(site.run(&requests(prng)));
            }
        }
        Interval::BeforeSync => log.flush(),
    })
    .unwrap();
}

/// What somebody sees who starts from what is on the disk.
fn after_a_cut(edition: &str, disk: &mut Disk, site: Site, prng: &mut Prng) -> Site {
    site.log().flush();
    drop(site);
    *disk = disk.power_cut(prng.next_u64(), Survival::Nothing);
    Site::open(edition, disk, prng.next_u64(), &clock(), 1 + prng.below(WORKERS as u64) as usize).unwrap()
}

fn exchange_beside_checkpoints(edition: &'static str) {
    let budget = Budget::from_env(1, 6);
    let mut done = 0;
    while budget.allows(done) {
        let seed = budget.seed + done;
        let (mut prng, mut disk) = (Prng::from_seed(seed), Disk::new(seed));
        let mut site = Site::open(edition, &disk, seed, &clock(), 1).unwrap();
        for life in 0..3 {
            (0..60).for_each(|_| drop(site.run(&requests(&mut prng))));
            by_hand::spill(&site.server.engine, &mut || {}).unwrap();
            checkpoint(&mut site, &mut prng);
            (0..prng.below(20)).for_each(|_| drop(site.run(&requests(&mut prng))));
            let live = shown(&site);
            site = after_a_cut(edition, &mut disk, site, &mut prng);
            assert_eq!(shown(&site), live, "TARN_SEED={seed} TARN_STEPS=1, life {life}");
        }
        done += 1;
    }
    println!("{done} seeds");
}

#[test]
fn databases_that_are_exchanged_all_the_time_do_not_keep_a_checkpoint_from_its_end() {
    exchange_beside_checkpoints("durable");
}

#[test]
fn databases_that_are_exchanged_all_the_time_do_not_keep_one_with_a_store_from_its_end() {
    exchange_beside_checkpoints("capacity");
}

/// The newest checkpoint of a disk.
fn newest(disk: &Disk) -> PathBuf {
    let mut names = disk.names(dir());
    names.retain(|path| path.extension().is_some_and(|extension| extension == "checkpoint"));
    names.pop().expect("a checkpoint was written")
}

#[test]
fn checkpoints_of_the_first_version_are_loaded() {
    for (edition, seed) in [("durable", 1), ("durable", 2), ("capacity", 1), ("capacity", 2)] {
        let (mut prng, mut disk) = (Prng::from_seed(seed), Disk::new(seed));
        let mut site = Site::open(edition, &disk, seed, &clock(), 1).unwrap();
        (0..200).for_each(|_| drop(site.run(&requests(&mut prng))));
        by_hand::spill(&site.server.engine, &mut || {}).unwrap();
        (0..20).for_each(|_| drop(site.run(&requests(&mut prng))));
        if seed % 2 == 0 {
            // Then another chunk is the second.
            let code = "#!lua name=one\nredis.register_function('f', function() return 1 end)";
            site.run(&[words(&["FUNCTION", "LOAD", code])]);
        }
        while site.server.engine.keyspace.numbers() == [0, 1, 2] {
            site.run(&[words(&["SWAPDB", "0", "1"])]);
        }
        let numbers = site.server.engine.keyspace.numbers();
        // Where nothing is exchanged meanwhile, both say the same.
        let (server, log) = (site.server.clone(), site.log());
        let flush = &mut |interval| {
            if interval == Interval::BeforeSync {
                log.flush();
            }
        };
        write_beside(&server.engine, &log, server.engine.guest(), Pace::Full, flush).unwrap();
        (0..20).for_each(|_| drop(site.run(&requests(&mut prng))));
        log.flush();
        let live = shown(&site);
        let path = newest(&disk);
        let older = older::checkpoint(&disk.content(&path).unwrap(), &numbers, edition == "capacity");
        disk.place(&path, older);
        drop((site, server, log));
        let site = after(edition, &mut disk, seed);
        assert_eq!(shown(&site), live, "{edition}, seed {seed}");
    }
}

fn after(edition: &str, disk: &mut Disk, seed: u64) -> Site {
    *disk = disk.power_cut(seed, Survival::Nothing);
    Site::open(edition, disk, seed, &clock(), 2).unwrap()
}
