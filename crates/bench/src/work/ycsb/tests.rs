//! The workloads: their mixes, their keys, and that a seed repeats them.

use super::*;

fn feed(workload: &Ycsb, seed: u64) -> Transactions {
    let share = Share::divide(1, 1, Some(1000))[0];
    Transactions::new(workload, &share, Inserted::new(1), share.prng(seed))
}

/// The requests and kinds of a run in which each reply is at once there.
fn operations(workload: &Ycsb, seed: u64, count: usize) -> (Vec<u8>, Vec<Issued>) {
    let mut feed = feed(workload, seed);
    let mut out = Vec::new();
    let mut all = Vec::new();
    for _ in 0..count {
        let mut step = Some(feed.issue(0, &mut out));
        while let Some(issued) = step {
            all.push(issued);
            step = match issued.then {
                Then::Nothing => None,
                then => feed.follow(then, b"*1\r\n$5\r\nuser1\r\n", &mut out),
            };
        }
    }
    (out, all)
}

#[test]
fn the_same_seed_gives_the_same_operations() {
    for name in ["a", "b", "c", "d", "e", "f", "uniform-read", "zipfian-read", "uniform-50-50"] {
        let workload = Ycsb::named(name, 10_000).unwrap();
        let (a, b) = (operations(&workload, 7, 2000), operations(&workload, 7, 2000));
        assert!(a == b, "{name}");
        assert!(a.0 != operations(&workload, 8, 2000).0, "{name}");
    }
}

#[test]
fn threads_have_operations_of_their_own() {
    let shares = Share::divide(2, 2, None);
    assert_ne!(shares[0].prng(1).next_u64(), shares[1].prng(1).next_u64());
}

#[test]
fn mixes_are_as_defined() {
    for (name, expected) in [
        ("a", [0.5, 0.5, 0.0, 0.0, 0.0]),
        ("b", [0.95, 0.05, 0.0, 0.0, 0.0]),
        ("c", [1.0, 0.0, 0.0, 0.0, 0.0]),
        ("d", [0.95, 0.0, 0.05, 0.0, 0.0]),
        ("e", [0.0, 0.0, 0.05, 0.95, 0.0]),
        ("f", [0.5, 0.0, 0.0, 0.0, 0.5]),
    ] {
        const COUNT: usize = 20_000;
        let mut feed = feed(&Ycsb { fields: 1, ..Ycsb::named(name, 1000).unwrap() }, 3);
        let mut counts = [0usize; 5];
        for _ in 0..COUNT {
            let issued = feed.issue(0, &mut Vec::new());
            counts[usize::from(issued.kind)] += 1;
            if let Then::Inserted(number) = issued.then {
                feed.acknowledge(number);
            }
        }
        for (count, expected) in counts.iter().zip(expected) {
            let share = *count as f64 / COUNT as f64;
            assert!((share - expected).abs() < 0.015, "{name}: {counts:?}");
        }
    }
}

fn words(request: &[u8]) -> Vec<String> {
    let text = String::from_utf8(request.to_vec()).unwrap();
    text.split("\r\n")
        .filter(|line| !line.starts_with(['*', '$']) && !line.is_empty())
        .map(str::to_owned)
        .collect()
}

#[test]
fn keys_are_those_of_ycsb() {
    let mut records =
        Records::new(&Ycsb { fields: 1, ..Ycsb::named("a", 10).unwrap() }, &mut Prng::from_seed(1));
    records.name(0);
    assert_eq!(records.key, b"user6284781860667377211");
    records.name(1);
    assert_eq!(records.key, b"user8517097267634966620");
    records.workload.is_ordered = true;
    records.workload.key_digits = 8;
    records.name(42);
    assert_eq!(records.key, b"user00000042");
    assert_eq!(java_hash(b"user00000042"), -2_006_513_335);
}

#[test]
fn one_field_is_a_string_and_more_are_a_hash() {
    let mut workload = Ycsb { field_bytes: 4, is_ordered: true, ..Ycsb::named("a", 10).unwrap() };
    let mut prng = Prng::from_seed(1);
    let mut out = Vec::new();
    let mut hashes = Records::new(&workload, &mut prng);
    hashes.noise.fill(b'v');
    assert_eq!(hashes.write_insert(7, &mut prng, &mut out), 1);
    let inserted = words(&out);
    assert_eq!(inserted.len(), 2 + 2 * 10);
    assert_eq!(inserted[..4], ["HMSET", "user7", "field0", "vvvv"]);
    out.clear();
    hashes.write_update(7, &mut prng, &mut out);
    assert_eq!(words(&out).len(), 4);

    workload.fields = 1;
    workload.is_indexed = true;
    let mut strings = Records::new(&workload, &mut prng);
    strings.noise.fill(b'v');
    out.clear();
    assert_eq!(strings.write_insert(7, &mut prng, &mut out), 2);
    let hash = java_hash(b"user7").to_string();
    assert_eq!(words(&out), ["SET", "user7", "vvvv", "ZADD", "_indices", &hash, "user7"]);
    out.clear();
    strings.write_scan(7, 9, &mut out);
    assert_eq!(words(&out), ["ZRANGEBYSCORE", "_indices", &hash, "+inf", "LIMIT", "0", "9"]);
}

#[test]
fn a_load_writes_each_record_once_over_all_threads() {
    let workload = Ycsb { fields: 1, field_bytes: 1, is_ordered: true, ..Ycsb::named("c", 100).unwrap() };
    let mut keys = Vec::new();
    for share in Share::divide(3, 3, Some(100)) {
        let mut load = Load::new(&workload, &share, share.prng(1));
        for _ in 0..share.part_of(100) {
            let mut out = Vec::new();
            load.issue(0, &mut out);
            let key = String::from_utf8_lossy(&out).lines().nth(4).unwrap().to_owned();
            keys.push(key["user".len()..].parse::<u64>().unwrap());
        }
    }
    keys.sort_unstable();
    assert_eq!(keys, (0..100).collect::<Vec<_>>());
}

#[test]
fn inserts_that_are_not_answered_are_not_read() {
    let workload = Ycsb {
        mix: Mix { read: 0.5, insert: 0.5, ..Ycsb::named("d", 100).unwrap().mix },
        ..Ycsb::named("d", 100).unwrap()
    };
    let mut feed = feed(&workload, 1);
    for _ in 0..3 {
        feed.insert(&mut Vec::new());
    }
    feed.acknowledge(1);
    feed.acknowledge(2);
    assert!((0..1000).all(|_| feed.choose_record() < 100), "the first insert is still open");
    feed.acknowledge(0);
    assert_eq!((0..1000).map(|_| feed.choose_record()).max(), Some(102));
}

#[test]
fn latest_is_zipfian_from_the_newest_record() {
    const DRAWS: usize = 200_000;
    let mut feed = feed(&Ycsb::named("d", 1000).unwrap(), 1);
    let mut counts = [0usize; 1000];
    (0..DRAWS).for_each(|_| counts[feed.choose_record() as usize] += 1);
    let newest = counts[999] as f64 / DRAWS as f64;
    let expected = 1.0 / super::super::zeta(1000, 0.99);
    assert!((newest / expected - 1.0).abs() < 0.03, "{newest} by {expected}");
    assert!(counts[999] > counts[998] && counts[998] > counts[900] && counts[900] > counts[1]);
}
