//! The log as a stream for replicas: what stands round effects, what the stream is called, and what readers of effects see of that.

#![allow(clippy::unwrap_used)] // Tests may.

mod nobody;

use log::{Log, Lsn, Options, Recovery, Span, Target, restore};
use nobody::Nobody;
use std::path::Path;
use std::sync::Arc;
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
    assert_eq!(stream.len() as u64, at.0);
    (effects, stream)
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
        select(12) + MULTI + "c" + EXEC,
        "d".into(),
        MULTI.to_owned() + "e" + EXEC,
        "f".into(),
        select(3) + "g",
        MULTI.to_owned() + &line + &line + EXEC,
        select(5) + MULTI + &line + EXEC,
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
            recovery.begin_beside_clients()
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
