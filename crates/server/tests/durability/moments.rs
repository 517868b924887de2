//! A full copy of one moment: whoever writes has each slot copied before it changes, and the copy holds what there was when it began, of all types, in
//! several databases, in memory and on disk. `TARN_SEED` and `TARN_STEPS` repeat and lengthen it.

use crate::site::Site;
use engine::full_copy::{self, Beginning, Facts, OneMoment, Wanted};
use engine::residency::by_hand;
use keyspace::{DbIndex, Stamp};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;
use sys::file::simulated::Disk;
use sys::{Clock, Prng, UnixMs};
use testkit::Budget;
use testkit::generate::{Request, words};
use value::collection::Thresholds;
use value::rdb::file::FileReader;
use value::rdb::{Restored, dump};
use value::stream::Reads;

const WANTED: Wanted = Wanted { reads: Reads::Redis72, knows_field_times: true, keys: true, functions: true };

/// Keys of each type in each database; those of the last are few.
const KEYS: u64 = 40;

/// A request in a database, with the keys that it changes, or looks at.
fn write(prng: &mut Prng) -> (u32, Request, Vec<String>) {
    let database = prng.below(3) as u32;
    let forms: &[&str] = &[
        "SET s:K V",
        "APPEND s:K V",
        "SET s:K V PX 90000000",
        "DEL s:K",
        "RPUSH l:K V V V V",
        "LPOP l:K",
        "LMOVE l:K l:L LEFT RIGHT",
        "HSET h:K V V V V",
        "HDEL h:K f1",
        "HPEXPIRE h:K 90000000 FIELDS 1 f2",
        "SADD e:K V V V",
        "SUNIONSTORE e:K e:L e:K",
        "ZADD z:K 1 V 2 V",
        "ZINCRBY z:K 3 f1",
        "XADD x:K * f V",
        "XTRIM x:K MAXLEN 3",
        "RENAME h:K h:L",
        "COPY l:K l:L REPLACE",
        "PEXPIRE z:K 80000000",
        "UNLINK l:K",
    ];
    let form = forms[prng.below(forms.len() as u64) as usize];
    let (one, other) = (prng.below(KEYS).to_string(), prng.below(KEYS).to_string());
    let mut keys = Vec::new();
    let mut request = Vec::new();
    for word in form.split(' ') {
        request.push(match word {
            "V" => format!("v{}", prng.next_u64()).repeat(1 + prng.below(20) as usize),
            _ if word.contains(':') => {
                keys.push(word.replace('K', &one).replace('L', &other));
                keys.last().cloned().unwrap_or_default()
            }
            _ => word.to_owned(),
        });
    }
    let request: Vec<&str> = request.iter().map(String::as_str).collect();
    (database, words(&request), keys)
}

fn run_in(site: &mut Site, database: u32, request: &Request) {
    site.session.select(DbIndex(database));
    site.run(std::slice::from_ref(request));
}

fn fill(site: &mut Site, prng: &mut Prng) {
    for database in [0, 1] {
        for number in 0..KEYS {
            let noise =
                |prng: &mut Prng| format!("{:016x}", prng.next_u64()).repeat(1 + prng.below(30) as usize);
            let most = if prng.one_in(8) { 400 } else { 8 };
            let long = 1 + prng.below(most);
            run_in(site, database, &words(&["SET", &format!("s:{number}"), &noise(prng)]));
            for field in 0..long {
                let (field, text) = (format!("f{field}"), noise(prng));
                run_in(site, database, &words(&["RPUSH", &format!("l:{number}"), &text]));
                run_in(site, database, &words(&["HSET", &format!("h:{number}"), &field, &text]));
                run_in(site, database, &words(&["SADD", &format!("e:{number}"), &text]));
                run_in(site, database, &words(&["ZADD", &format!("z:{number}"), "7", &field]));
                run_in(site, database, &words(&["XADD", &format!("x:{number}"), "*", &field, &text]));
            }
            site.log().flush();
        }
    }
}

type Entries = BTreeMap<(u64, Vec<u8>), (Option<u64>, Vec<u8>)>;

fn entries(file: &[u8]) -> Entries {
    let (mut found, mut reader) = (BTreeMap::new(), FileReader::open(file).unwrap());
    while let Some(entry) = reader.next_entry(&Thresholds::DEFAULT).unwrap() {
        let bytes = match entry.value {
            Restored::String(bytes) => bytes.to_vec(),
            Restored::Collection(collection) => dump(collection.as_ref()),
        };
        let key = (entry.database, entry.key.to_vec());
        assert!(found.insert(key, (entry.expires_at_ms, bytes)).is_none(), "a key came twice");
    }
    found
}

fn copied(site_engine: &engine::Engine, beginning: &Beginning) -> std::io::Result<Vec<u8>> {
    let mut file = Vec::new();
    full_copy::write(site_engine, beginning, WANTED, &Facts::NONE, &mut |piece| {
        file.extend_from_slice(&piece);
        Ok(())
    })?;
    Ok(file)
}

/// Has what keys are in be copied; how often that took long.
fn wait_for(one_moment: &OneMoment, site: &Site, database: u32, keys: &[String]) -> u64 {
    let keyspace = &site.server.engine.keyspace;
    let slots =
        || keys.iter().map(|key| (DbIndex(database), keyspace.key(DbIndex(database), key.as_bytes()).slot));
    let mut waits = 0;
    while !one_moment.is_copied(slots(), Duration::from_millis(100)) {
        waits += 1;
    }
    waits
}

fn copy_beside_writes(edition: &str, seed: u64) {
    let (clock, disk) = (Clock::simulated(UnixMs(1_700_000_000_000)), Disk::new(seed));
    let mut site = Site::open(edition, &disk, seed, &clock, 1).unwrap();
    let mut prng = Prng::from_seed(seed);
    fill(&mut site, &mut prng);
    by_hand::spill(&site.server.engine, &mut || {}).unwrap();
    let code = "#!lua name=one\nredis.register_function('f', function() return 1 end)";
    site.run(&[words(&["FUNCTION", "LOAD", code])]);
    let server = site.server.clone();
    let at = || Stamp(server.engine.durability.log().unwrap().appended().0);
    let before = copied(&server.engine, &full_copy::begin(&server.engine, at)).unwrap();
    let expected = entries(&before);
    assert!(expected.len() as u64 > 11 * KEYS, "{}", expected.len());
    // So that much is written before the copy comes to it in turn.
    site.run(&[words(&["CONFIG", "SET", "rdb-key-save-delay", "200"])]);
    let beginning = full_copy::begin_of_one_moment(&server.engine, at);
    let one_moment = beginning.one_moment.clone().unwrap();
    // Libraries are those of the beginning, too.
    site.run(&[words(&["FUNCTION", "LOAD", &code.replace("one", "two").replace("'f'", "'g'")])]);
    let (mut writes, mut waits) = (0, 0);
    let file = thread::scope(|scope| {
        let copying = scope.spawn(|| copied(&server.engine, &beginning));
        while !copying.is_finished() {
            let (database, request, keys) = write(&mut prng);
            waits += wait_for(&one_moment, &site, database, &keys);
            run_in(&mut site, database, &request);
            writes += 1;
            if prng.one_in(8) {
                site.log().flush();
            }
            if prng.one_in(200) {
                by_hand::spill(&server.engine, &mut || {}).unwrap();
                by_hand::clean(&server.engine).unwrap();
            }
        }
        copying.join().unwrap().unwrap()
    });
    println!("{edition}: {writes} writes beside {} keys, {waits} waits", expected.len());
    let mut reader = FileReader::open(&file[..]).unwrap();
    while reader.next_entry(&Thresholds::DEFAULT).unwrap().is_some() {}
    assert_eq!(reader.take_libraries().len(), 1, "libraries of later are in it");
    let found = entries(&file);
    let differs = expected.iter().find(|(key, value)| found.get(key) != Some(value));
    assert!(
        differs.is_none(),
        "{:?} is not as it was",
        differs.map(|((db, key), _)| (db, key.escape_ascii().to_string()))
    );
    assert_eq!(found.len(), expected.len(), "a key of later is in it");
}

#[test]
fn a_copy_of_one_moment_has_all_as_it_was_however_much_is_written() {
    let budget = Budget::from_env(1, 2);
    let mut done = 0;
    while budget.allows(done) {
        let seed = budget.seed.wrapping_add(done);
        for edition in ["durable", "capacity"] {
            let told = catch_unwind(AssertUnwindSafe(|| copy_beside_writes(edition, seed)));
            assert!(told.is_ok(), "{edition}: repeat with TARN_SEED={seed} TARN_STEPS=1");
        }
        done += 1;
    }
}

/// Who has given a copy up does not wait for it, and nothing comes of it; nobody waits for one that is over.
#[test]
fn a_copy_of_one_moment_is_given_up() {
    let (clock, disk) = (Clock::simulated(UnixMs(1_700_000_000_000)), Disk::new(1));
    let mut site = Site::open("durable", &disk, 1, &clock, 1).unwrap();
    site.run(&[words(&["SET", "key", "1"])]);
    let server = site.server.clone();
    let slot = server.engine.keyspace.key(DbIndex(0), b"key").slot;
    let slots = || [(DbIndex(0), slot), (DbIndex(2), slot)].into_iter();
    let begin = || full_copy::begin_of_one_moment(&server.engine, || Stamp(0));
    let beginning = begin();
    let one_moment = beginning.one_moment.clone().unwrap();
    // Of a database that was not used there is nothing to be copied.
    assert!(one_moment.is_copied(slots().skip(1), Duration::ZERO));
    assert!(!one_moment.is_copied(slots(), Duration::ZERO) && !one_moment.is_over_soon(Duration::ZERO));
    one_moment.give_up();
    assert!(one_moment.is_copied(slots(), Duration::ZERO) && one_moment.is_over_soon(Duration::ZERO));
    assert!(copied(&server.engine, &beginning).is_err());
    let beginning = begin();
    let one_moment = beginning.one_moment.clone().unwrap();
    assert_eq!(entries(&copied(&server.engine, &beginning).unwrap()).len(), 1);
    assert!(one_moment.is_copied(slots(), Duration::ZERO) && one_moment.is_over_soon(Duration::ZERO));
}
