//! The log as a stream for replicas: what stands round effects, what the stream is called, and what readers of effects see of that.

#![allow(clippy::unwrap_used)] // Tests may.

mod nobody;

use log::{
    Failure, Log, Lsn, Observer, Options, Recovery, ReplicationId, Span, Stream, SyncPolicy, Target, Unit,
    restore,
};
use nobody::Nobody;
use std::path::Path;
use std::sync::{Arc, Mutex};
use sys::file::Fs;
use sys::file::simulated::Disk;
use sys::{Clock, UnixMs};

const DIR: &str = "/log";

fn options() -> Options {
    let clock = Clock::simulated(UnixMs(1_000_000));
    Options { segment_bytes: 16 * 1024, flushing: log::Flushing::ByHand, clock, ..Options::default() }
}

fn recover(fs: &Fs, dir: &str) -> Recovery {
    log::recover(fs, Path::new(dir)).unwrap()
}

fn open(fs: &Fs) -> Log {
    recover(fs, DIR).open(&options(), Arc::new(Nobody)).unwrap()
}

/// All effects, and all of the stream, from the beginning.
fn read(recovery: &Recovery) -> (Vec<Vec<u8>>, Vec<u8>) {
    let (mut effects, mut stream, mut at) = (Vec::new(), Vec::new(), Lsn::ZERO);
    let mut blocks = recovery.replay();
    while let Some(block) = blocks.next_block().unwrap() {
        for record in block.records() {
            assert_eq!(record.lsn, at);
            at = record.end();
            effects.push(record.payload.to_owned());
            stream.extend_from_slice(record.stream);
        }
    }
    (effects, stream)
}

/// Keeps what it is told of the stream.
#[derive(Default)]
struct Follower(Mutex<Option<(u64, Vec<u8>)>>);

impl Observer for Follower {
    fn streamed(&self, from: u64, bytes: &[u8]) {
        let mut told = self.0.lock().unwrap();
        let (begin, all) = told.get_or_insert((from, Vec::new()));
        assert_eq!(*begin + all.len() as u64, from);
        all.extend_from_slice(bytes);
    }
    fn committed(&self, _: Lsn) {}
    fn failed(&self, _: &Failure) {}
    fn resumed(&self) {}
}

fn append_unit(log: &Log, database: u32, effects: &[&[u8]], stream: &[u8]) -> Lsn {
    let unit = Unit { database, ends_in: 9, time: UnixMs(1), stream, is_followed: true };
    log.append_unit(&unit, effects.iter().map(|part| part.to_vec()).collect())
}

/// The same where both are the same.
fn append_as_sent(log: &Log, bytes: &[u8]) {
    log.append_unit_as_sent(&Unit {
        database: 7,
        ends_in: 7,
        time: UnixMs(1),
        stream: bytes,
        is_followed: true,
    });
}

fn read_stream(log: &Log, from: u64) -> Option<Vec<u8>> {
    let mut reader = log.read_stream(from).unwrap()?;
    let mut all = Vec::new();
    while let Some(bytes) = reader.next_bytes().unwrap() {
        all.extend(bytes);
    }
    Some(all)
}

fn select(db: u32) -> String {
    format!("*2\r\n$6\r\nSELECT\r\n${}\r\n{db}\r\n", db.to_string().len())
}

const MULTI: &str = "*1\r\n$5\r\nMULTI\r\n";
const EXEC: &str = "*1\r\n$4\r\nEXEC\r\n";

#[test]
fn a_replica_reads_where_effects_belong_and_what_belongs_together() {
    let fs = Fs::Simulated(Disk::new(1));
    let log = open(&fs);
    let several = |database, ends_in| Span { database, ends_in, is_several: true };
    let mut ends = vec![
        log.append_effects(Span::of(0), UnixMs(1), b"a"),
        log.append_effects(Span::of(0), UnixMs(1), b"b"),
        log.append_effects(several(12, 3), UnixMs(1), b"c"),
        log.append_effects(Span::of(3), UnixMs(1), b"d"),
        log.append_effects(several(3, 3), UnixMs(1), b"e"),
        log.append(9, UnixMs(1), b"f"),
        log.append_effects(Span::of(3), UnixMs(1), b"g"),
    ];
    // Of several parts, over several segments; and one that does not fit the block that is there.
    let long = vec![b'l'; 20_000];
    ends.push(log.append_parts(several(3, 4), UnixMs(1), vec![long.clone(), Vec::new(), long.clone()]));
    ends.push(log.append_effects(several(5, 5), UnixMs(1), &long));
    ends.push(log.append_effects(Span::of(5), UnixMs(1), b"h"));
    log.flush();
    log.close().unwrap();
    let line = String::from_utf8(long.clone()).unwrap();
    let expected = [
        select(0) + "a",
        "b".into(),
        MULTI.to_owned() + &select(12) + "c" + EXEC,
        select(3) + "d",
        MULTI.to_owned() + "e" + EXEC,
        "f".into(),
        select(3) + "g",
        MULTI.to_owned() + &line + &line + EXEC,
        MULTI.to_owned() + &select(5) + &line + EXEC,
        "h".into(),
    ];
    let (effects, stream) = read(&recover(&fs, DIR));
    assert_eq!(String::from_utf8(stream.clone()).unwrap(), expected.concat());
    let parts = [&long[..], &long[..]].concat();
    let wanted: [&[u8]; 10] = [b"a", b"b", b"c", b"d", b"e", b"f", b"g", &parts, &long, b"h"];
    assert_eq!(effects, wanted);
    // A copy is the same.
    let copied = restore(&fs, Path::new(DIR), Target::Lsn(ends[8]), Path::new("/copy"), &options()).unwrap();
    assert_eq!(copied.end, ends[8]);
    let (effects, copy) = read(&recover(&fs, "/copy"));
    assert_eq!(effects.len(), 9);
    assert!(stream.starts_with(&copy));
    // Whoever goes on knows nothing of what is selected.
    let log = open(&fs);
    log.append_effects(Span::of(5), UnixMs(2), b"i");
    log.close().unwrap();
    let (_, longer) = read(&recover(&fs, DIR));
    assert_eq!(String::from_utf8(longer[stream.len()..].to_vec()).unwrap(), select(5) + "i");
}

#[test]
fn what_is_only_told_is_found_in_its_database() {
    let fs = Fs::Simulated(Disk::new(1));
    let log = open(&fs);
    let from = log.stream().offset;
    let told = |database| {
        log.append_told(database, UnixMs(0), b"told ");
        log.flush();
    };
    told(0);
    told(0);
    told(3);
    log.append_effects(Span::of(3), UnixMs(0), b"done ");
    log.flush();
    let text = String::from_utf8(read_stream(&log, from).unwrap()).unwrap();
    assert_eq!(text, format!("{}told told {}told done ", select(0), select(3)));
    log.close().unwrap();
    // Who replays it has nothing but the effects.
    let (effects, _) = read(&recover(&fs, "/log"));
    assert_eq!(effects.concat(), b"done ");
}

#[test]
fn a_stream_keeps_its_name_and_its_offsets_over_starts() {
    let fs = Fs::Simulated(Disk::new(1));
    let log = open(&fs);
    let first = log.stream();
    assert_eq!((first.offset, first.former), (0, None));
    log.append_effects(Span::of(0), UnixMs(1), b"a");
    log.flush();
    assert_eq!((log.stream().id, log.stream().offset), (first.id, 24));
    drop(log);
    let log = open(&fs);
    assert_eq!((log.stream().id, log.stream().offset), (first.id, 24));
    // A new name stays, also if nothing is written under it, and offsets go on.
    log.rename_stream();
    let second = log.stream();
    assert_ne!(second.id, first.id);
    log.flush();
    log.close().unwrap();
    for _ in 0..3 {
        let log = open(&fs);
        assert_eq!((log.stream().id, log.stream().offset), (second.id, 24));
    }
    let log = open(&fs);
    log.append(0, UnixMs(1), &[b'x'; 100]);
    log.rename_stream();
    let third = log.stream();
    log.append(0, UnixMs(1), &[b'x'; 10]);
    log.flush();
    assert_eq!((log.stream().id, log.stream().offset), (third.id, 134));
    drop(log);
    let log = open(&fs);
    assert_eq!((log.stream().id, log.stream().offset), (third.id, 134));
}

#[test]
fn nobody_is_told_of_more_than_is_on_disk() {
    let fs = Fs::Simulated(Disk::new(1));
    let log = open(&fs);
    log.append(0, UnixMs(1), b"abc");
    assert_eq!(log.stream().offset, 0);
    log.flush();
    assert_eq!(log.stream().offset, 3);
}

#[test]
fn a_log_that_was_not_completed_is_no_stream_that_goes_on() {
    let fs = Fs::Simulated(Disk::new(1));
    let begin = |beside: bool| {
        let mut recovery = recover(&fs, DIR);
        if beside {
            recovery.begin_beside_clients(Lsn::ZERO, None)
        } else {
            recovery.begin_behind_import()
        }
        let log = recovery.open(&options(), Arc::new(Nobody)).unwrap();
        let id = log.stream().id;
        log.close().unwrap();
        id
    };
    let ids = [begin(false), begin(false), begin(true)];
    assert!(ids[0] != ids[1] && ids[1] != ids[2], "{ids:?}");
}

#[test]
fn a_stream_that_was_kept_in_memory_goes_on_in_a_log_that_begins_beside_clients() {
    let fs = Fs::Simulated(Disk::new(1));
    let stream = Stream { offset: 777, selected: Some(3), ..Stream::begin(Lsn::ZERO).succeeded() };
    for behind in [Lsn(777), Lsn(9000)] {
        let mut recovery = recover(&fs, DIR);
        recovery.begin_beside_clients(behind, Some(stream));
        let log = recovery.open(&options(), Arc::new(Nobody)).unwrap();
        assert_eq!(log.stream(), Stream { at: behind, ..stream });
        log.append(0, UnixMs(1), b"abc");
        log.flush();
        assert_eq!(log.stream().offset, 780);
        let checkpoint = log.begin_checkpoint(behind).unwrap();
        log.finish_checkpoint(checkpoint, log.appended()).unwrap();
        log.close().unwrap();
        let recovery = recover(&fs, DIR);
        let log = recovery.open(&options(), Arc::new(Nobody)).unwrap();
        let after = Stream { at: behind.plus(3), offset: 780, selected: Some(0), ..stream };
        assert_eq!(log.stream(), after);
        assert!(log.read_stream(776).unwrap().is_none());
        let bytes = log.read_stream(777).unwrap().unwrap().next_bytes().unwrap();
        assert_eq!(bytes.as_deref(), Some(&b"abc"[..]));
        log.close().unwrap();
        for name in fs.list(Path::new(DIR)).unwrap() {
            fs.remove(&Path::new(DIR).join(name)).unwrap();
        }
    }
}

#[test]
fn a_copy_is_another_stream() {
    let fs = Fs::Simulated(Disk::new(1));
    let log = open(&fs);
    let end = log.append(0, UnixMs(1), b"abc");
    log.flush();
    let id = log.stream().id;
    log.close().unwrap();
    restore(&fs, Path::new(DIR), Target::Lsn(end), Path::new("/copy"), &options()).unwrap();
    let copy = recover(&fs, "/copy").open(&options(), Arc::new(Nobody)).unwrap();
    assert_ne!(copy.stream().id, id);
    assert_eq!(copy.stream().offset, 3);
}

#[test]
fn a_masters_bytes_are_the_stream_and_what_they_did_is_applied() {
    for sync in [SyncPolicy::Always, SyncPolicy::EverySecond] {
        let fs = Fs::Simulated(Disk::new(1));
        let follower = Arc::new(Follower::default());
        let options = Options { sync, ..options() };
        let log = recover(&fs, DIR).open(&options, follower.clone()).unwrap();
        let long = vec![b'l'; 20_000];
        // What the effects were, and what the stream says: alike, apart, one of them only, in one block, in several and over segments.
        let units: [(&[u8], &[u8]); 10] = [
            (b"same", b"same"),
            (&long, &long),
            (b"effects", b"one request"),
            (b"", b"PING"),
            (b"of nobody's stream", b""),
            (&long, b"short"),
            (b"short", &long),
            (&long, &long[1..]),
            (b"", &long),
            (&long, b""),
        ];
        log.append_effects(Span::of(0), UnixMs(1), b"before");
        log.flush();
        log.set_streamed(true);
        let mut stream = select(0).into_bytes();
        stream.extend(b"before");
        let told_from = stream.len() as u64;
        for (effects, bytes) in units {
            // Cut anywhere.
            let (one, two) = effects.split_at(effects.len() / 2);
            match effects == bytes {
                true => append_as_sent(&log, bytes),
                false => drop(append_unit(&log, 7, &[one, two], bytes)),
            }
            append_unit(&log, 7, &[one, two], b"again");
            stream.extend(bytes);
            stream.extend(b"again");
            log.flush();
        }
        log.request_sync();
        log.flush();
        assert_eq!(
            follower.0.lock().unwrap().take(),
            Some((told_from, stream[told_from as usize..].to_vec()))
        );
        let end = log.stream();
        assert_eq!(end.offset, stream.len() as u64);
        assert_eq!(read_stream(&log, 0).as_deref(), Some(&stream[..]));
        for from in [1, told_from, told_from + 3, 20_000, 50_001, stream.len() as u64] {
            assert_eq!(read_stream(&log, from).as_deref(), Some(&stream[from as usize..]), "{from}");
        }
        assert_eq!(read_stream(&log, stream.len() as u64 + 1), None);
        log.close().unwrap();
        // All records are there as they were, and so is the place in the stream; a copy has both, too.
        let copied = restore(&fs, Path::new(DIR), Target::Lsn(end.at), Path::new("/copy"), &options).unwrap();
        assert_eq!(copied.end, end.at);
        let wanted = units.iter().flat_map(|(effects, _)| [*effects, *effects]);
        for dir in [DIR, "/copy"] {
            let (effects, found) = read(&recover(&fs, dir));
            assert_eq!(found, stream);
            assert!(effects.iter().skip(1).map(Vec::as_slice).eq(wanted.clone()));
        }
        let log = open(&fs);
        assert_eq!((log.stream().id, log.stream().offset), (end.id, end.offset));
    }
}

#[test]
fn whoever_is_cut_off_in_a_unit_has_none_of_it() {
    let long = vec![b'l'; 20_000];
    for (effects, bytes) in [(&b"effects"[..], &b"one request"[..]), (&long, b"short"), (b"short", &long)] {
        let fs = Fs::Simulated(Disk::new(1));
        let log = open(&fs);
        append_unit(&log, 0, &[b"first"], b"1");
        log.flush();
        append_unit(&log, 0, &[effects], bytes);
        log.flush();
        drop(log);
        let names = fs.list(Path::new(DIR)).unwrap();
        let mut segments: Vec<_> = names
            .iter()
            .filter(|name| name.to_str().is_some_and(|name| name.ends_with(".segment")))
            .collect();
        segments.sort_unstable();
        // The last block of the last segment that has one is not what was written.
        let blocks = |name: &std::ffi::OsString| {
            let bytes = fs.read(&Path::new(DIR).join(name), 1 << 20).unwrap();
            let of_block = bytes.chunks(4096).skip(1).rposition(|chunk| chunk.iter().any(|byte| *byte != 0));
            of_block.map(|index| (bytes, (index + 1) * 4096))
        };
        let (path, (mut content, at)) =
            segments.iter().rev().find_map(|name| Some((Path::new(DIR).join(name), blocks(name)?))).unwrap();
        content[at..at + 4096].fill(0);
        fs.write(&path, &content).unwrap();
        let recovery = recover(&fs, DIR);
        let (effects, stream) = read(&recovery);
        assert_eq!((effects.len(), &stream[..]), (1, &b"1"[..]));
        let log = recovery.open(&options(), Arc::new(Nobody)).unwrap();
        assert_eq!(log.stream().offset, 1);
    }
}

#[test]
fn a_log_becomes_another_stream_where_a_copy_took_the_place_of_all() {
    let fs = Fs::Simulated(Disk::new(1));
    let log = open(&fs);
    log.append(0, UnixMs(1), b"abc");
    // Not behind what is not on disk.
    assert!(log.begin_stream(None).is_err());
    log.flush();
    // What is in nobody's stream is in no way.
    append_unit(&log, 0, &[b"beside"], &[]);
    log.begin_stream(None).unwrap();
    assert_eq!((log.stream().id, read_stream(&log, 0)), (ReplicationId::NONE, None));
    assert_eq!(log.durable(), log.appended());
    drop(log);
    // Whoever starts then has nothing to go on from.
    let log = open(&fs);
    let other = log.stream().id;
    assert_ne!(other, ReplicationId::NONE);
    let adopted = Stream { offset: 1000, selected: Some(3), is_masters: true, ..Stream::begin(Lsn::ZERO) };
    log.begin_stream(None).unwrap();
    log.begin_stream(Some(adopted)).unwrap();
    append_unit(&log, 0, &[], b"PING");
    log.flush();
    assert_eq!(read_stream(&log, 1001).as_deref(), Some(&b"ING"[..]));
    assert_eq!(read_stream(&log, 3), None);
    // Under a new name the old one's bytes are still there.
    let renamed = log.stream().called(ReplicationId::new());
    assert_eq!((renamed.former, renamed.selected), (Some((adopted.id, 1004)), Some(9)));
    log.begin_stream(Some(renamed)).unwrap();
    append_unit(&log, 0, &[], b"!");
    log.flush();
    drop(log);
    let log = open(&fs);
    assert_eq!(
        (log.stream().id, log.stream().offset, log.stream().former),
        (renamed.id, 1005, renamed.former)
    );
    assert_eq!(read_stream(&log, 1000).as_deref(), Some(&b"PING!"[..]));
    assert_eq!(log.stream().selected, Some(9));
    assert!(log.stream().is_masters);
    log.begin_stream(Some(log.stream().succeeded())).unwrap();
    drop(log);
    // Whoever goes on with the master's stream after all has to know.
    let log = open(&fs);
    assert_eq!((log.stream().is_masters, log.stream().selected), (false, Some(9)));
    log.append_effects(Span::of(5), UnixMs(1), b"*1\r\n$7\r\nFLUSHDB\r\n");
    log.flush();
    assert_eq!(log.stream().selected, Some(5));
    drop(log);
    assert_eq!(open(&fs).stream().selected, Some(5));
}

#[test]
fn behind_several_databases_the_next_record_selects_its_own() {
    let log = open(&Fs::Simulated(Disk::new(1)));
    let several = Span { database: 1, ends_in: 2, is_several: true };
    let request = b"*1\r\n$7\r\nFLUSHDB\r\n";
    log.append_effects(several, UnixMs(1), request);
    log.append_effects(Span::of(2), UnixMs(1), request);
    log.append_effects(Span::of(2), UnixMs(1), request);
    log.flush();
    let stream = read_stream(&log, 0).unwrap();
    let selects = |database: &str| {
        let request = format!("SELECT\r\n$1\r\n{database}\r\n");
        stream.windows(request.len()).filter(|window| *window == request.as_bytes()).count()
    };
    assert_eq!((selects("1"), selects("2")), (1, 1));
}
