//! Units, their places and their databases.

use super::*;

/// A unit, as far as tests compare it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Seen {
    pub kind: UnitKind,
    pub bytes: Vec<u8>,
    pub begin: Place,
    pub end: Place,
    /// Of each request: the last argument, the database, the place behind it and its role.
    pub requests: Vec<(String, u32, u64, Role)>,
}

pub(super) fn seen(unit: &Unit<'_>) -> Seen {
    let (mut requests, mut joined, mut words) = (Vec::new(), Vec::new(), Words::default());
    let mut walk = unit.walk(&mut words);
    while let Some(group) = walk.next_group() {
        for one in group.requests() {
            let last = one.request.arg(one.request.len() - 1).escape_ascii().to_string();
            requests.push((last, one.database, one.end, one.role));
            assert_eq!(one.request.as_sent(), Some(one.bytes));
            joined.extend_from_slice(one.bytes);
        }
    }
    assert!(joined == unit.bytes() || unit.kind() == UnitKind::Blank);
    assert_eq!(unit.end().offset - unit.begin().offset, unit.bytes().len() as u64);
    Seen { kind: unit.kind(), bytes: unit.bytes().to_vec(), begin: unit.begin(), end: unit.end(), requests }
}

pub(super) const BEGIN: Place = Place { offset: 1000, database: 3 };

/// All units of some bytes in these pieces, the place behind the last one, and how it ended.
pub(super) fn play(bytes: &[u8], cutting: &[usize], unit_max: usize) -> (Vec<Seen>, Place, Option<Ending>) {
    let mut stream = MasterStream::new(BEGIN, unit_max);
    let mut units = Vec::new();
    for piece in pieces(bytes, cutting) {
        stream.feed(piece);
        loop {
            let before = stream.place();
            match stream.next_unit() {
                Ok(Some(unit)) => {
                    // Given back it comes again.
                    let first = seen(&unit);
                    stream.give_back();
                    assert_eq!(stream.place(), before);
                    units.push(seen(&stream.next_unit().unwrap().unwrap()));
                    assert_eq!(units.last(), Some(&first));
                }
                Ok(None) => break,
                Err(ending) => {
                    assert_eq!(stream.next_unit().unwrap_err(), ending);
                    assert_eq!(stream.waiting_bytes(), 0);
                    return (units, stream.place(), Some(ending));
                }
            }
        }
        assert!(stream.waiting_bytes() <= unit_max + piece.len());
    }
    (units, stream.place(), None)
}

/// The same by runs where there are some, of each of which as much is done as `done` says, which it is told the length of.
pub(super) fn play_by_runs(
    bytes: &[u8],
    cutting: &[usize],
    unit_max: usize,
    mut done: impl FnMut(usize) -> usize,
) -> (Vec<Seen>, Place, Option<Ending>) {
    let mut stream = MasterStream::new(BEGIN, unit_max);
    let mut units = Vec::new();
    for piece in pieces(bytes, cutting) {
        stream.feed(piece);
        loop {
            let before = stream.place();
            if let Some(run) = stream.next_run() {
                let (count, mut end) = (run.count(), run.begin());
                assert_eq!((end, run.database()), (before.offset, Some(before.database)));
                for one in run.commands().take(done(count)) {
                    units.push(seen_in_run(&one, end));
                    end = one.end;
                }
                stream.take_back(end);
                assert_eq!(stream.place(), Place { offset: end, ..before });
                continue;
            }
            match stream.next_unit() {
                Ok(Some(unit)) => units.push(seen(&unit)),
                Ok(None) => break,
                Err(ending) => {
                    assert!(stream.next_run().is_none());
                    return (units, stream.place(), Some(ending));
                }
            }
        }
    }
    (units, stream.place(), None)
}

/// A unit that came in a run.
fn seen_in_run(one: &UnitRequest<'_>, begin: u64) -> Seen {
    assert_eq!(one.request.as_sent(), Some(one.bytes));
    assert_eq!(one.end - begin, one.bytes.len() as u64);
    let last = one.request.arg(one.request.len() - 1).escape_ascii().to_string();
    let place = |offset| Place { offset, database: one.database };
    Seen {
        kind: UnitKind::Command,
        bytes: one.bytes.to_vec(),
        begin: place(begin),
        end: place(one.end),
        requests: vec![(last, one.database, one.end, one.role)],
    }
}

/// The same however the bytes come, and whether or not they are taken by runs, of which all is done or some.
fn play_all(bytes: &[u8]) -> (Vec<Seen>, Option<Ending>) {
    let whole = play(bytes, &[bytes.len()], 10_000);
    let mut prng = Prng::from_seed(6);
    for cutting in cuttings(bytes.len(), &mut Prng::from_seed(4)) {
        assert_eq!(play(bytes, &cutting, 10_000), whole, "{cutting:?}");
        assert_eq!(play_by_runs(bytes, &cutting, 10_000, |count| count), whole, "{cutting:?}");
        let some = |count: usize| usize::try_from(prng.below(count as u64 + 1)).unwrap();
        assert_eq!(play_by_runs(bytes, &cutting, 10_000, some), whole, "{cutting:?}");
    }
    assert_eq!(whole.1, whole.0.last().map_or(BEGIN, |unit| unit.end));
    (whole.0, whole.2)
}

fn kinds(units: &[Seen]) -> Vec<UnitKind> {
    units.iter().map(|unit| unit.kind).collect()
}

#[test]
fn a_stream_is_cut_into_units() {
    let lines = [
        "SET a 1",
        "SELECT 5",
        "PING",
        "multi",
        "INCR b",
        "SELECT 7",
        "SET c 2",
        "EXEC",
        "REPLCONF GETACK *",
        "SET d 3",
    ];
    let bytes = requests(&lines);
    let (units, ending) = play_all(&bytes);
    assert_eq!(ending, None);
    use UnitKind::{Command, GetAck, Ping, Select, Transaction};
    assert_eq!(kinds(&units), [Command, Select, Ping, Transaction, GetAck, Command]);
    let joined: Vec<u8> = units.iter().flat_map(|unit| unit.bytes.clone()).collect();
    assert_eq!(joined, bytes);
    let databases: Vec<u32> = units.iter().map(|unit| unit.end.database).collect();
    assert_eq!(databases, [3, 5, 5, 7, 7, 7]);
    let mut at = units[3].begin.offset;
    let inside = ["multi", "INCR b", "SELECT 7", "SET c 2", "EXEC"].map(|line| {
        at += requests(&[line]).len() as u64;
        at
    });
    let expected = [
        ("multi", 5, Role::Multi),
        ("b", 5, Role::Command),
        ("7", 7, Role::Select),
        ("2", 7, Role::Command),
        ("EXEC", 7, Role::Exec),
    ];
    let expected: Vec<_> =
        expected.iter().zip(inside).map(|(one, end)| (one.0.to_owned(), one.1, end, one.2)).collect();
    assert_eq!(units[3].requests, expected);
}

#[test]
fn commands_that_have_come_together_are_a_run_up_to_what_is_none() {
    use limits::{RUN_BYTES_MAX, RUN_UNITS_MAX};
    let mut stream = MasterStream::new(BEGIN, 1 << 20);
    let sets = |count: usize| requests(&["SET a 1"]).repeat(count);
    let large = format!("SET a {}", "x".repeat(RUN_BYTES_MAX));
    let others = ["SELECT 4", "PING", "REPLCONF GETACK *", &large];
    stream.feed(&sets(2 * RUN_UNITS_MAX + 1));
    for other in others {
        stream.feed(&[requests(&[other]), sets(3)].concat());
    }
    let behind = [requests(&["MULTI", "SET a 1", "EXEC"]), sets(1), requests(&["SET b 1"])].concat();
    stream.feed(&behind[..behind.len() - 1]);
    let run = |stream: &mut MasterStream| stream.next_run().map(|run| run.count());
    for count in [RUN_UNITS_MAX, RUN_UNITS_MAX, 1] {
        assert_eq!(run(&mut stream), Some(count));
    }
    for _ in others {
        assert_eq!(run(&mut stream), None);
        assert!(stream.next_unit().unwrap().is_some());
        assert_eq!(run(&mut stream), Some(3));
    }
    assert_eq!(run(&mut stream), None);
    assert_eq!(stream.next_unit().unwrap().unwrap().kind(), UnitKind::Transaction);
    assert_eq!(run(&mut stream), Some(1));
    // What has not come whole is no run, also once it was looked at.
    assert!(run(&mut stream).is_none() && stream.next_unit().unwrap().is_none());
    stream.feed(b"\n");
    assert_eq!(run(&mut stream), None);
    assert_eq!(stream.next_unit().unwrap().unwrap().kind(), UnitKind::Command);
    assert_eq!((stream.waiting_bytes(), stream.place().database), (0, 4));
}

#[test]
fn what_asks_for_an_acknowledgement_is_answered_with_the_offset_before_it() {
    let mut stream = MasterStream::new(Place { offset: 100, database: 0 }, 1000);
    stream.feed(&requests(&["PING", "replconf getack *", "PING"]));
    assert_eq!(stream.next_unit().unwrap().unwrap().acknowledged(), None);
    let unit = stream.next_unit().unwrap().unwrap();
    assert_eq!((unit.acknowledged(), unit.end().offset), (Some(114), 114 + unit.bytes().len() as u64));
    assert_eq!(stream.waiting_bytes(), 14);
}

#[test]
fn commands_are_what_is_to_be_applied() {
    let mut stream = MasterStream::new(BEGIN, 1000);
    stream.feed(&requests(&["MULTI", "SELECT 0", "PING", "SET a 1", "SET b 2", "EXEC"]));
    let unit = stream.next_unit().unwrap().unwrap();
    let mut words = Words::default();
    let mut walk = unit.walk(&mut words);
    let group = walk.next_group().unwrap();
    let names: Vec<&[u8]> = group.commands().map(|one| one.request.arg(1)).collect();
    assert_eq!(names, [b"a", b"b"]);
    assert!(group.is_all);
    assert!(walk.next_group().is_none());
}

#[test]
fn a_transaction_that_is_cut_leaves_the_place_before_it() {
    let bytes = requests(&["SET a 1", "MULTI", "SELECT 9", "SET b 2", "EXEC"]);
    let first = requests(&["SET a 1"]).len();
    for length in first..bytes.len() {
        let (units, place, ending) = play(&bytes[..length], &[length], 1000);
        assert_eq!((units.len(), ending), (1, None));
        assert_eq!(place, Place { offset: 1000 + first as u64, database: 3 }, "{length}");
        // It is resumed there, and comes whole.
        let mut resumed = MasterStream::new(place, 1000);
        resumed.feed(&bytes[first..]);
        assert_eq!(resumed.next_unit().unwrap().unwrap().kind(), UnitKind::Transaction);
        assert_eq!(resumed.place(), Place { offset: 1000 + bytes.len() as u64, database: 9 });
    }
}

#[test]
fn a_line_end_between_units_counts_and_means_nothing() {
    let bytes = [b"\n", &requests(&["PING"])[..], b"\r\n\n", &requests(&["PING"])].concat();
    let (units, ending) = play_all(&bytes);
    use UnitKind::{Blank, Ping};
    assert_eq!((kinds(&units), ending), (vec![Blank, Ping, Blank, Blank, Ping], None));
    assert_eq!(units[4].end.offset, 1000 + bytes.len() as u64);
}

#[test]
fn what_masters_do_not_send_is_a_corrupt_stream() {
    let bad = |lines: &[&str]| requests(lines);
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (b"SET a 1\r\n".to_vec(), "this is no request"),
        (b"\rPING".to_vec(), "this is no request"),
        (b"*0\r\n".to_vec(), "this is no request"),
        (b"*-1\r\n".to_vec(), "this is no request"),
        (b"+OK\r\n".to_vec(), "this is no request"),
        (b"*1\r\n+OK\r\n".to_vec(), "expected '$', got '+'"),
        (b"*x".to_vec(), "this is no request"),
        (b"*1x\r\n".to_vec(), "invalid multibulk length"),
        (b"*1\r\n$-1\r\n".to_vec(), "invalid bulk length"),
        (b"*1\r\n$4\r\nPINGxx".to_vec(), "not in the form"),
        (b"*1\r\n$4\rxPING\r\n".to_vec(), "not in the form"),
        (bad(&["EXEC"]), "EXEC without MULTI"),
        (bad(&["MULTI", "MULTI"]), "MULTI inside of a transaction"),
        (bad(&["MULTI", "REPLCONF GETACK *"]), "GETACK inside of a transaction"),
        (bad(&["MULTI", "DISCARD"]), "DISCARD"),
        (bad(&["MULTI x"]), "has an argument"),
        (bad(&["SELECT"]), "SELECT names no database"),
        (bad(&["SELECT -1"]), "SELECT names no database"),
        (bad(&["SELECT 16777216"]), "SELECT names no database"),
        ([&bad(&["MULTI"])[..], b"\n"].concat(), "this is no request"),
    ];
    for (bytes, reason) in cases {
        let before = requests(&["SET a 1"]);
        let (units, ending) = play_all(&[&before[..], &bytes].concat());
        let sentence = ending.unwrap_or_else(|| panic!("{}", bytes.escape_ascii())).to_string();
        assert_eq!(units.len(), 1);
        assert!(sentence.starts_with("The master's stream is corrupt at offset 10"), "{sentence}");
        assert!(sentence.contains(reason), "{sentence}");
    }
}

#[test]
fn a_unit_above_the_bound_is_refused_before_it_is_kept() {
    let large = format!("SET a {}", "x".repeat(200));
    let one = requests(&[&large]);
    assert_eq!(play(&one, &[one.len()], one.len()).0.len(), 1);
    let many = requests(&["MULTI", &large, &large, "EXEC"]);
    let declared = b"*2\r\n$3\r\nSET\r\n$999999999999\r\n";
    for (bytes, bound) in [(&one[..], one.len() - 1), (&many, 400), (declared, 400)] {
        for cutting in cuttings(bytes.len(), &mut Prng::from_seed(5)) {
            let (units, place, ending) = play(bytes, &cutting, bound);
            assert_eq!((units.len(), place), (0, BEGIN));
            assert_eq!(play_by_runs(bytes, &cutting, bound, |count| count), (units, place, ending.clone()));
            let sentence = ending.expect("it is above the bound").to_string();
            assert!(sentence.contains(&format!("of more than {bound} bytes at offset 1000")), "{sentence}");
        }
    }
}

#[test]
fn a_long_stream_keeps_no_more_than_its_partial_unit() {
    let bytes = requests(&["SET a 1", "MULTI", "SET b 2", "EXEC"]).repeat(20_000);
    let mut stream = MasterStream::new(BEGIN, 1000);
    let mut units = 0;
    for piece in bytes.chunks(777) {
        stream.feed(piece);
        while stream.next_unit().unwrap().is_some() {
            units += 1;
        }
        assert!(stream.waiting_bytes() < 100);
        assert!(stream.kept_bytes() < 10_000, "{}", stream.kept_bytes());
    }
    assert_eq!((units, stream.place().offset), (40_000, 1000 + bytes.len() as u64));
}

/// What a stream keeps at most while these bytes come in pieces, and the memory for going over the unit that they are.
fn memory_of(bytes: &[u8], requests: usize) -> (usize, usize) {
    let mut stream = MasterStream::new(BEGIN, 1 << 30);
    let (mut kept_bytes, mut counted, mut words) = (0, 0, Words::default());
    for piece in bytes.chunks(100_000) {
        stream.feed(piece);
        if let Some(unit) = stream.next_unit().unwrap() {
            let mut walk = unit.walk(&mut words);
            while let Some(group) = walk.next_group() {
                counted += group.requests().count();
            }
        }
        kept_bytes = kept_bytes.max(stream.kept_bytes());
    }
    assert_eq!(counted, requests);
    (kept_bytes, words.allocated_bytes())
}

#[test]
fn a_unit_of_many_small_words_takes_hardly_more_than_its_bytes() {
    for one in [&requests(&["SET a 1"])[..], b"*1\r\n$0\r\n\r\n"] {
        let count = 4_000_000 / one.len();
        let bytes = [requests(&["MULTI"]), one.repeat(count), requests(&["EXEC"])].concat();
        let (kept, noted) = memory_of(&bytes, count + 2);
        assert!(kept < bytes.len() * 13 / 10 + 100_000, "{kept} for {}", bytes.len());
        assert!(noted < 8 << 20, "{noted}");
    }
}

#[test]
fn a_request_of_many_small_words_is_bounded_with_what_is_noted_of_them() {
    let request = |words: usize| [format!("*{words}\r\n").as_bytes(), &b"$0\r\n\r\n".repeat(words)].concat();
    // 606 bytes, and 1600 for the places of 100 words.
    let large = request(100);
    for (bound, is_taken) in [(1103, true), (1102, false)] {
        for cutting in cuttings(large.len(), &mut Prng::from_seed(6)) {
            let (units, _, ending) = play(&large, &cutting, bound);
            assert_eq!((units.len() == 1, ending.is_none()), (is_taken, is_taken), "{bound}");
        }
    }
    // Notes are of one request at a time.
    let many = [requests(&["MULTI"]), request(40).repeat(20), requests(&["EXEC"])].concat();
    assert_eq!(play(&many, &[many.len()], many.len()).0.len(), 1);
    let mut stream = MasterStream::new(BEGIN, 1102);
    stream.feed(b"*100\r\n");
    assert!(stream.next_unit().is_err(), "it is refused before it has come");
    let (_, noted) = memory_of(&request(200_000), 1);
    assert!(noted < 200_000 * 16 + (3 << 20), "{noted}");
}
