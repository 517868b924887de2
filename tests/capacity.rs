//! The capacity edition as a client sees it: more data than memory, all of it there, under one ceiling.

use crate::imports::run;
use crate::replicas::{agree, field, follow, master};
use crate::subject;
use crate::{info, tarn};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use sys::Prng;
use testkit::ask::wait_until;
use testkit::{Client, Program, Server};
use wire::Value;

const CEILING_BYTES: u64 = 24 << 20;
/// The program itself, and what the allocator holds back.
const RESIDENT_SLACK_BYTES: u64 = 64 << 20;
/// With a kilobyte each, some four times as much as fits.
const KEYS: u64 = 60_000;
const PIPELINE: usize = 500;

fn start(directives: &[&str]) -> Server {
    let ceiling = CEILING_BYTES.to_string();
    let mut all = vec!["--edition", "capacity", "--maxmemory", &ceiling];
    all.extend(directives);
    Server::start(tarn(), &all).unwrap()
}

/// Asserts what the ceiling promises of the process's memory.
fn assert_under_ceiling(client: &mut Client) {
    let resident = info(client, "used_memory_rss");
    let used = info(client, "used_memory");
    assert!(
        resident <= CEILING_BYTES / 20 * 21 + RESIDENT_SLACK_BYTES,
        "{resident} bytes are resident, {used} used"
    );
}

fn ask(client: &mut Client, requests: &[Vec<String>]) -> Vec<Vec<u8>> {
    requests.chunks(PIPELINE).flat_map(|some| client.pipeline(some).unwrap()).collect()
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn value_of(key: u64, version: u64) -> String {
    format!("{key}-{version}-").repeat(60)
}

/// Overwrites, deletes and reads strings at random, and compares every answer with a model.
fn churn(client: &mut Client, prng: &mut Prng, model: &mut HashMap<u64, u64>, steps: usize) {
    let (mut requests, mut expected) = (Vec::new(), Vec::new());
    for _ in 0..steps {
        let key = prng.below(KEYS);
        let name = format!("key:{key}");
        let there = model.get(&key).map(|version| value_of(key, *version));
        match prng.below(10) {
            0..4 => {
                requests.push(words(&["GET", &name]));
                expected.push(
                    there.map_or("$-1\r\n".to_owned(), |value| format!("${}\r\n{value}\r\n", value.len())),
                );
            }
            4..8 => {
                let version = prng.below(1000);
                model.insert(key, version);
                requests.push(words(&["SET", &name, &value_of(key, version)]));
                expected.push("+OK\r\n".to_owned());
            }
            8 => {
                requests.push(words(&["STRLEN", &name]));
                expected.push(format!(":{}\r\n", there.map_or(0, |value| value.len())));
            }
            _ => {
                requests.push(words(&["DEL", &name]));
                expected.push(format!(":{}\r\n", u8::from(model.remove(&key).is_some())));
            }
        }
    }
    for ((request, reply), expected) in requests.iter().zip(ask(client, &requests)).zip(expected) {
        assert!(reply == expected.as_bytes(), "{request:?}: {}", reply.escape_ascii());
    }
}

#[test]
fn more_data_than_memory_is_all_there_and_survives_a_kill() {
    let seed = sys::prng::entropy_seed();
    println!("seed {seed}");
    let (mut prng, mut model) = (Prng::from_seed(seed), HashMap::new());
    let mut server = start(&[]);
    let mut client = server.connect().unwrap();
    let sets = |key: u64| words(&["SET", &format!("key:{key}"), &value_of(key, 0)]);
    let replies = ask(&mut client, &(0..KEYS).map(sets).collect::<Vec<_>>());
    assert!(replies.iter().all(|reply| reply == b"+OK\r\n"));
    model.extend((0..KEYS).map(|key| (key, 0)));
    for _ in 0..6 {
        churn(&mut client, &mut prng, &mut model, 10_000);
        assert_under_ceiling(&mut client);
    }
    assert!(info(&mut client, "store_records") > KEYS / 2 && info(&mut client, "store_cold_reads") > 10_000);
    assert_eq!(client.call(&["DBSIZE"]).unwrap(), Value::Int(model.len() as i64));
    server.kill();
    server.restart().unwrap();
    let mut client = subject::connect(&server);
    assert_eq!(client.call(&["DBSIZE"]).unwrap(), Value::Int(model.len() as i64));
    churn(&mut client, &mut prng, &mut model, 20_000);
    assert_under_ceiling(&mut client);
}

#[test]
fn a_start_after_a_stop_reads_where_data_lies_and_not_the_data() {
    let mut server = start(&[]);
    let mut client = server.connect().unwrap();
    let name = |key: u64| format!("key:{key}");
    let sets = |key: u64| match key % 3 {
        0 => words(&["SET", &name(key), &value_of(key, 0), "PXAT", &(4_000_000_000_000 + key).to_string()]),
        _ => words(&["SET", &name(key), &value_of(key, 0)]),
    };
    ask(&mut client, &(0..KEYS).map(sets).collect::<Vec<_>>());
    let fields = words(&["HSET", "h", "f", "v"]);
    let expires = words(&["HPEXPIREAT", "h", "4000000000000", "FIELDS", "1", "f"]);
    ask(&mut client, &[fields, expires, words(&["SWAPDB", "0", "1"]), words(&["SET", "other", "1"])]);
    subject::stop(&mut server, client);
    let dir = server.dir().to_str().unwrap().to_owned();
    let checked = run("check", &[&dir]);
    let text = String::from_utf8(checked.stdout).unwrap();
    assert!(checked.status.success() && text.contains("are intact."), "{text}");
    assert_refused("restore", &[&dir, "--to", "1", "--into", &format!("{dir}/new")], "capacity edition");
    let durable = ["--dir", &dir, "--port", "0", "--edition", "durable", "--logfile", "/dev/stderr"];
    assert_refused("server", &durable, "--edition capacity");
    let rdb = format!("{dir}/out.rdb");
    let exported = run("export", &["--dir", &dir, "--to", &rdb]);
    assert!(String::from_utf8(exported.stdout).unwrap().contains(&format!("Wrote {} keys", KEYS + 2)));

    server.restart().unwrap();
    let mut client = subject::connect(&server);
    assert!(info(&mut client, "store_bytes_read") < 8 << 20, "a start reads no data");
    assert_eq!(client.call(&["GET", "other"]).unwrap(), Value::Bulk(b"1".to_vec()));
    client.call(&["SELECT", "1"]).unwrap();
    assert_eq!(client.call(&["DBSIZE"]).unwrap(), Value::Int(KEYS as i64 + 1));
    let asked = (0..KEYS).step_by(7).map(|key| words(&["PEXPIRETIME", &name(key)])).collect::<Vec<_>>();
    for (key, reply) in (0..KEYS).step_by(7).zip(ask(&mut client, &asked)) {
        let at = if key % 3 == 0 { 4_000_000_000_000 + key as i64 } else { -1 };
        assert_eq!(String::from_utf8(reply).unwrap(), format!(":{at}\r\n"));
    }
    assert_eq!(
        client.pipeline(&[words(&["HPEXPIRETIME", "h", "FIELDS", "1", "f"])]).unwrap()[0],
        b"*1\r\n:4000000000000\r\n"
    );
    let mut model = (0..KEYS).map(|key| (key, 0)).collect();
    churn(&mut client, &mut Prng::from_seed(3), &mut model, 20_000);
    assert_under_ceiling(&mut client);
    subject::stop(&mut server, client);
    damage_store(&server);
    let checked = run("check", &[&dir]);
    assert!(!checked.status.success() && String::from_utf8(checked.stdout).unwrap().contains("DAMAGED"));
}

fn assert_refused(role: &str, words: &[&str], why: &str) {
    let output = run(role, words);
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && text.contains(why), "{role} {words:?}: {text}");
}

/// Changes a byte in the first page of every segment of the store.
fn damage_store(server: &Server) {
    for entry in std::fs::read_dir(server.dir().join("store")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "store") {
            let mut bytes = std::fs::read(&path).unwrap();
            bytes[100] ^= 1;
            std::fs::write(&path, bytes).unwrap();
        }
    }
}

#[test]
fn collections_of_every_type_come_back_from_disk() {
    const COLLECTIONS: usize = 300;
    let server = start(&["--eager-spill", "yes"]);
    let mut client = server.connect().unwrap();
    let mut requests = Vec::new();
    for number in 0..COLLECTIONS {
        for element in 0..40 {
            let text = format!("{element}").repeat(1 + number % 9);
            requests.push(words(&["HSET", &format!("h{number}"), &text, &text]));
            requests.push(words(&["RPUSH", &format!("l{number}"), &text]));
            requests.push(words(&["SADD", &format!("s{number}"), &text]));
            requests.push(words(&["ZADD", &format!("z{number}"), &element.to_string(), &text]));
            requests.push(words(&["XADD", &format!("x{number}"), &format!("{}-1", element + 1), "f", &text]));
        }
    }
    assert!(ask(&mut client, &requests).iter().all(|reply| !reply.starts_with(b"-")));
    let lengths = ["HLEN h", "LLEN l", "SCARD s", "ZCARD z", "XLEN x"];
    let requests: Vec<Vec<String>> = (0..COLLECTIONS)
        .flat_map(|number| {
            lengths.map(|length| format!("{length}{number}").split(' ').map(str::to_owned).collect())
        })
        .collect();
    for (request, reply) in requests.iter().zip(ask(&mut client, &requests)) {
        assert!(reply == b":40\r\n", "{request:?}: {}", reply.escape_ascii());
    }
    assert!(info(&mut client, "store_objects_spilled") > COLLECTIONS as u64);
}

#[test]
fn writes_are_refused_once_not_even_the_index_fits() {
    let server = Server::start(tarn(), &["--edition", "capacity", "--maxmemory", "5mb"]).unwrap();
    let mut client = server.connect().unwrap();
    let sets = |key: u64| words(&["SET", &format!("key:{key}"), "v"]);
    let replies = ask(&mut client, &(0..200_000).map(sets).collect::<Vec<_>>());
    let there = replies.iter().filter(|reply| *reply == b"+OK\r\n").count();
    let refusal: &[u8] = b"-OOM command not allowed when used memory > 'maxmemory'.\r\n";
    assert!(there > 20_000, "{there}");
    assert!(replies.iter().all(|reply| reply == b"+OK\r\n" || reply == refusal));
    assert!(replies.iter().any(|reply| reply == refusal));
    // All else goes on.
    assert_eq!(client.call(&["GET", "key:7"]).unwrap(), Value::Bulk(b"v".to_vec()));
    assert_eq!(client.call(&["DEL", "key:7"]).unwrap(), Value::Int(1));
}

#[test]
fn where_not_even_the_index_fits_keys_are_evicted_if_the_policy_says_so() {
    for policy in ["allkeys-lru", "volatile-ttl"] {
        let directives = ["--edition", "capacity", "--maxmemory", "5mb", "--maxmemory-policy", policy];
        let mut server = Server::start(tarn(), &directives).unwrap();
        let mut client = subject::connect(&server);
        let sets = |key: u64| words(&["SET", &format!("key:{key}"), "v", "EX", &(10_000 + key).to_string()]);
        let replies = ask(&mut client, &(0..40_000).map(sets).collect::<Vec<_>>());
        assert!(replies.iter().all(|reply| reply == b"+OK\r\n"));
        // It goes on by itself otherwise.
        assert_eq!(
            client.call(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).unwrap(),
            Value::Simple(b"OK".to_vec())
        );
        let (evicted, Value::Int(left)) =
            (info(&mut client, "evicted_keys"), client.call(&["DBSIZE"]).unwrap())
        else {
            panic!("DBSIZE is a number");
        };
        assert!(evicted > 1000, "{evicted}");
        assert_eq!(left, 40_000 - evicted as i64);
        server.kill();
        server.restart().unwrap();
        let mut client = subject::connect(&server);
        let Value::Int(found) = client.call(&["DBSIZE"]).unwrap() else { panic!("DBSIZE is a number") };
        assert!((left / 2..=left).contains(&found), "{found} of {left}");
    }
}

#[test]
fn without_a_ceiling_nothing_leaves_memory() {
    let server = start(&[]);
    let mut client = server.connect().unwrap();
    assert_eq!(client.call(&["CONFIG", "SET", "maxmemory", "0"]).unwrap(), Value::Simple(b"OK".to_vec()));
    let sets = |key: u64| words(&["SET", &format!("key:{key}"), &value_of(key, 0)]);
    let replies = ask(&mut client, &(0..KEYS).map(sets).collect::<Vec<_>>());
    assert!(replies.iter().all(|reply| reply == b"+OK\r\n"));
    assert!(info(&mut client, "used_memory") > CEILING_BYTES);
    assert_eq!(info(&mut client, "store_objects_spilled"), 0);
}

/// Waits until it is known of all keys whether they were there before.
fn wait_until_resolved(client: &mut Client) {
    wait_until("no key is unresolved", || info(client, "store_keys_shadowing") == 0);
}

#[test]
fn set_over_cold_keys_reads_nothing_before_it_is_needed() {
    let mut server = start(&[]);
    let mut client = server.connect().unwrap();
    let name = |key: u64| format!("key:{key}");
    let sets = |key: u64| words(&["SET", &name(key), &value_of(key, 0), "PX", "10000000"]);
    ask(&mut client, &(0..KEYS).map(sets).collect::<Vec<_>>());
    // The first ones were sent away for the last ones.
    let (cold, read) = (KEYS / 8, info(&mut client, "store_cold_reads"));
    let replaces = |key: u64| match key % 4 {
        0 => words(&["SET", &name(key), &value_of(key, 1)]),
        1 => words(&["SET", &name(key), &value_of(key, 1), "ex", "1000"]),
        2 => words(&["PSETEX", &name(key), "1000000", &value_of(key, 1)]),
        _ => words(&["MSET", &name(key), &value_of(key, 1), &name(key), &value_of(key, 1)]),
    };
    let replies = ask(&mut client, &(0..cold).map(replaces).collect::<Vec<_>>());
    assert!(replies.iter().all(|reply| reply == b"+OK\r\n"));
    assert_eq!(client.call(&["DBSIZE"]).unwrap(), Value::Int(KEYS as i64));
    let gets: Vec<_> = (cold - 200..cold).map(|key| words(&["GET", &name(key)])).collect();
    for (key, reply) in (cold - 200..cold).zip(ask(&mut client, &gets)) {
        let value = value_of(key, 1);
        assert_eq!(reply, format!("${}\r\n{value}\r\n", value.len()).into_bytes());
    }
    assert!(info(&mut client, "store_cold_reads") < read + cold / 20, "{read}");
    let mut model: HashMap<u64, u64> = (0..KEYS).map(|key| (key, u64::from(key < cold))).collect();
    // These need to know at once.
    let others = |key: u64| match key % 8 {
        0 | 1 => words(&["DEL", &name(key)]),
        2 => words(&["UNLINK", &name(key)]),
        3 => words(&["PEXPIREAT", &name(key), "1"]),
        4 => words(&["EXPIRE", &name(key), "1000"]),
        5 => words(&["APPEND", &name(key), ""]),
        6 => words(&["RENAME", &name(key), &name(key)]),
        _ => words(&["STRLEN", &name(key)]),
    };
    let replies = ask(&mut client, &(0..cold).map(others).collect::<Vec<_>>());
    assert!(replies.iter().all(|reply| !reply.starts_with(b"-") && reply != b":0\r\n"));
    model.retain(|key, _| *key >= cold || key % 8 > 3);
    wait_until_resolved(&mut client);
    assert_eq!(client.call(&["DBSIZE"]).unwrap(), Value::Int(model.len() as i64));
    let mut prng = Prng::from_seed(7);
    churn(&mut client, &mut prng, &mut model, 20_000);
    server.kill();
    server.restart().unwrap();
    let mut client = subject::connect(&server);
    churn(&mut client, &mut prng, &mut model, 20_000);
    wait_until_resolved(&mut client);
    assert_eq!(client.call(&["DBSIZE"]).unwrap(), Value::Int(model.len() as i64));
}

#[test]
fn databases_that_are_exchanged_while_objects_are_sent_away_lose_nothing() {
    const KEYS: usize = 400;
    const ROUNDS: usize = 150;
    let mut server = start(&["--eager-spill", "yes", "--databases", "4"]);
    let mut client = subject::connect(&server);
    let mut swapper = subject::connect(&server);
    let increments: Vec<_> = (0..KEYS).map(|key| words(&["INCR", &format!("counter:{key}")])).collect();
    for round in 0..ROUNDS {
        let replies = ask(&mut client, &increments);
        assert!(replies.iter().all(|reply| reply.starts_with(b":")));
        let (one, other) = (["0", "1"][round % 2], ["1", "2", "3"][round % 3]);
        if one != other {
            swapper.call(&["SWAPDB", one, other]).unwrap();
        }
    }
    assert_sums(&mut client, KEYS, ROUNDS);
    assert!(info(&mut client, "store_objects_spilled") > KEYS as u64);
    server.kill();
    server.restart().unwrap();
    assert_sums(&mut subject::connect(&server), KEYS, ROUNDS);
}

/// Each counter was raised so many times, whichever database it was in at the time.
fn assert_sums(client: &mut Client, counters: usize, sum: usize) {
    let mut sums = vec![0; counters];
    for db in 0..4 {
        client.call(&["SELECT", &db.to_string()]).unwrap();
        let gets: Vec<_> = (0..counters).map(|key| words(&["GET", &format!("counter:{key}")])).collect();
        for (sum, reply) in sums.iter_mut().zip(ask(client, &gets)) {
            let digits = String::from_utf8(reply).unwrap();
            *sum += digits.lines().nth(1).map_or(0, |digits| digits.parse::<usize>().unwrap());
        }
    }
    client.call(&["SELECT", "0"]).unwrap();
    assert_eq!(sums, vec![sum; counters]);
}

/// Sets one key of a megabyte again and again, 800 times.
const ENDLESS: &str =
    "local v = string.rep('x', 1048576) for i = 1, 800 do redis.call('SET', KEYS[1], v .. i) end";

/// Copies a value of which the log has the names only.
const COPIES: &str = "for i = 1, 1000 do redis.call('COPY', 'a', 'copy:' .. i) end";

/// Gives one name after the other to a large value.
const RENAMES: &str = "for i = 1, 400 do redis.call('RENAME', 'a', 'b') redis.call('RENAME', 'b', 'a') end";

#[test]
fn what_one_script_or_transaction_writes_stays_within_the_ceiling() {
    const CEILING: u64 = 64 << 20;
    let mut server = Server::start(tarn(), &["--edition", "capacity", "--maxmemory", "64mb"]).unwrap();
    let mut client = subject::connect(&server);
    let value = "y".repeat(1 << 20);
    client.call(&["SET", "a", &value]).unwrap();
    let (pid, is_over) = (server.pid(), AtomicBool::new(false));
    let most = std::thread::scope(|scope| {
        let _ends = testkit::Ends(&is_over);
        let sampler = scope.spawn(|| {
            let mut most = 0;
            while !is_over.load(Ordering::Relaxed) {
                most = most.max(testkit::process::resident_bytes(pid).unwrap());
                std::thread::yield_now();
            }
            most
        });
        // Of a value that goes from key to key the log has the names.
        assert_eq!(client.call(&["EVAL", RENAMES, "0"]).unwrap(), Value::Null);
        for script in [vec!["EVAL", ENDLESS, "1", "k"], vec!["EVAL", COPIES, "0"]] {
            let Value::Error(text) = client.call(&script).unwrap() else {
                panic!("{script:?} was not refused")
            };
            assert!(text.starts_with(b"OOM "), "{}", text.escape_ascii());
        }
        let sets = (0..40).map(|number| vec!["SET".to_owned(), "t".to_owned(), format!("{value}{number}")]);
        let transaction = std::iter::once(words(&["MULTI"])).chain(sets).chain([words(&["EXEC"])]);
        let replies = client.pipeline(&transaction.collect::<Vec<_>>()).unwrap();
        let reply = replies.last().unwrap();
        let is_refused = |line: &&[u8]| line.starts_with(b"-OOM ");
        assert!(reply.split(|byte| *byte == b'\n').any(|line| is_refused(&line)), "{}", reply.escape_ascii());
        is_over.store(true, Ordering::Relaxed);
        sampler.join().unwrap()
    });
    assert!(most <= CEILING / 20 * 21 + RESIDENT_SLACK_BYTES, "{most} bytes were resident");
    let shown = |client: &mut Client| {
        ["k", "t", "a", "b"].map(|key| client.call(&["GETRANGE", key, "1048570", "-1"]).unwrap())
    };
    let before = shown(&mut client);
    server.kill();
    assert_eq!(shown(&mut subject::restart(&mut server)), before);
}

/// Long before all that is live is counted anew by itself.
const RECOUNTED: Duration = Duration::from_secs(20);

#[test]
fn what_a_flush_took_away_counts_as_dead_at_once() {
    let server = start(&["--eager-spill", "yes"]);
    let mut client = server.connect().unwrap();
    let live = |client: &mut Client| info(client, "store_bytes_live");
    for flush in [&["FLUSHALL"][..], &["FLUSHALL", "SYNC"], &["FLUSHDB", "ASYNC"]] {
        let sets = (0..5000).map(|key| words(&["SET", &format!("key:{key}"), &value_of(key, 0)]));
        assert!(ask(&mut client, &sets.collect::<Vec<_>>()).iter().all(|reply| reply == b"+OK\r\n"));
        wait_until("they are on disk", || live(&mut client) > 1 << 20);
        // Nobody counts them but as it flushes: the next time is far.
        client.call(flush).unwrap();
        let flushed = Instant::now();
        wait_until("they are dead", || live(&mut client) == 0);
        assert!(flushed.elapsed() < RECOUNTED, "{flush:?}: {:?}", flushed.elapsed());
    }
    // What is left is counted with what went.
    client.call(&["SELECT", "1"]).unwrap();
    let sets = (0..500).map(|key| words(&["SET", &format!("key:{key}"), &value_of(key, 0)]));
    ask(&mut client, &sets.collect::<Vec<_>>());
    wait_until("they are on disk", || info(&mut client, "store_records") >= 500);
    let few = live(&mut client);
    client.call(&["SELECT", "0"]).unwrap();
    let sets = (0..5000).map(|key| words(&["SET", &format!("key:{key}"), &value_of(key, 0)]));
    ask(&mut client, &sets.collect::<Vec<_>>());
    wait_until("they are on disk", || info(&mut client, "store_records") >= 5500);
    client.call(&["FLUSHDB"]).unwrap();
    let flushed = Instant::now();
    wait_until("they are dead", || (few / 2..few * 2).contains(&live(&mut client)));
    assert!(flushed.elapsed() < RECOUNTED, "{:?}", flushed.elapsed());
}

#[test]
fn a_hash_with_a_long_value_comes_back_as_compact_as_it_went() {
    let server = start(&["--eager-spill", "yes", "--hash-max-listpack-value", "100000"]);
    let mut client = server.connect().unwrap();
    for (round, bytes) in (1..).zip([65_528, 65_535, 65_536, 70_000]) {
        let (key, value) = (format!("h{bytes}"), "x".repeat(bytes));
        client.call(&["HSET", &key, "z", "1", "long", &value, "a", "2"]).unwrap();
        wait_until("it is on disk", || info(&mut client, "store_records") >= round);
        let replies = ask(&mut client, &[words(&["OBJECT", "ENCODING", &key]), words(&["HKEYS", &key])]);
        assert_eq!(replies, [&b"$8\r\nlistpack\r\n"[..], b"*3\r\n$1\r\nz\r\n$4\r\nlong\r\n$1\r\na\r\n"]);
    }
}

/// What its master has sorted a replica sorts, though what it looks at for that is more than one command of a client's may look at.
#[test]
fn a_replica_sorts_what_its_master_has_sorted_however_much_it_looks_at() {
    const FEW: u64 = 9000;
    let above = Server::start(Program::Redis, &["--enable-debug-command", "yes"]).unwrap();
    let replica = start(&["--eager-spill", "yes", "--enable-debug-command", "yes"]);
    let [mut here, mut there] = [&above, &replica].map(|server| server.connect().unwrap());
    follow(&mut there, &above);
    wait_until("it follows", || field(&mut there, "master_link_status").as_deref() == Some("up"));
    let names: Vec<String> = (0..FEW).map(|key| key.to_string()).collect();
    here.call(&["RPUSH", "all"].into_iter().chain(names.iter().map(String::as_str)).collect::<Vec<_>>())
        .unwrap();
    let value = |key: u64| format!("{:05}{}", key * 7919 % FEW, "x".repeat(1000));
    ask(
        &mut here,
        &(0..FEW).map(|key| words(&["SET", &format!("o:{key}"), &value(key)])).collect::<Vec<_>>(),
    );
    let hash = |key: u64| {
        words(&["HSET", &format!("h:{key}"), "weight", &(key % 97).to_string(), "rest", &value(key)])
    };
    ask(&mut here, &(0..FEW).map(hash).collect::<Vec<_>>());
    agree(&above, &replica);
    wait_until("all is on disk", || info(&mut there, "store_records") >= 2 * FEW);
    let sort = ["SORT", "all", "BY", "o:*", "ALPHA", "GET", "o:*", "LIMIT", "0", "10"];
    let beyond = there.call(&[&["SORT_RO"], &sort[1..]].concat()).unwrap();
    assert!(matches!(&beyond, Value::Error(text) if text.ends_with(b"of maxmemory")), "{beyond:?}");
    let stored = |count: i64, request: &[&str], client: &mut Client| {
        assert_eq!(client.call(request).unwrap(), Value::Int(count));
    };
    stored(10, &[&sort[..], &["STORE", "by:texts"]].concat(), &mut here);
    let by_weight =
        ["SORT", "all", "BY", "h:*->weight", "GET", "#", "GET", "h:*->weight", "GET", "h:*->none"];
    stored(3 * FEW as i64, &[&by_weight[..], &["STORE", "by:weight"]].concat(), &mut here);
    agree(&above, &replica);
    assert_eq!(field(&mut there, "master_link_status").as_deref(), Some("up"));
    let output = replica.output();
    assert!(!output.contains("so that the data differs") && !output.contains("cannot be done"), "{output}");
}

/// What a replica cannot do, as its store cannot be read, it does not acknowledge, and goes on when the disk is what it was.
#[test]
fn a_replica_acknowledges_nothing_that_its_store_keeps_it_from() {
    const FEW: u64 = 2000;
    let (above, replica) =
        (master("durable", &[]), start(&["--eager-spill", "yes", "--enable-debug-command", "yes"]));
    let [mut here, mut there] = [&above, &replica].map(|server| server.connect().unwrap());
    follow(&mut there, &above);
    wait_until("it follows", || field(&mut there, "master_link_status").as_deref() == Some("up"));
    let value = "x".repeat(1000);
    ask(&mut here, &(0..FEW).map(|key| words(&["SET", &format!("key:{key}"), &value])).collect::<Vec<_>>());
    wait_until("all is on disk", || info(&mut there, "store_records") >= FEW);
    let offset = |client: &mut Client, name: &str| field(client, name).unwrap().parse::<u64>().unwrap();
    for appends in [1, 2] {
        agree(&above, &replica);
        let dir = replica.dir().join("store");
        let paths = || std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path());
        let segments: Vec<_> =
            paths().filter(|path| path.extension().is_some_and(|end| end == "store")).collect();
        let whole: Vec<_> = segments.iter().map(|path| std::fs::read(path).unwrap()).collect();
        for (path, bytes) in segments.iter().zip(&whole) {
            let damaged: Vec<u8> =
                bytes.iter().enumerate().map(|(at, byte)| byte ^ u8::from(at % 4096 == 100)).collect();
            std::fs::write(path, damaged).unwrap();
        }
        // As one command each, and as a part of a transaction that has written before.
        for key in 0..FEW {
            let lines = [
                words(&["MULTI"]),
                words(&["SET", "other", "1"]),
                words(&["APPEND", &format!("key:{key}"), "y"]),
            ];
            match appends {
                1 => drop(here.pipeline(&lines[2..]).unwrap()),
                _ => drop(here.pipeline(&[&lines[..], &[words(&["EXEC"])]].concat()).unwrap()),
            }
        }
        let told = || replica.output().matches("cannot be done here, as the store cannot be read").count();
        wait_until("it has given up", || told() == appends);
        assert_eq!(field(&mut there, "master_link_status").as_deref(), Some("down"));
        assert!(offset(&mut there, "slave_repl_offset") < offset(&mut here, "master_repl_offset"));
        for (path, bytes) in segments.iter().zip(&whole) {
            std::fs::write(path, bytes).unwrap();
        }
        follow(&mut there, &above);
        agree(&above, &replica);
    }
    assert!(!replica.output().contains("so that the data differs"), "{}", replica.last_lines());
}
