//! Looking back in the log, and going on from there: what is found where a stream was at an offset, and what a crash leaves while other data
//! take the place of what was written behind it.

#![allow(clippy::unwrap_used)] // Tests may.

mod nobody;

use log::{Log, Lsn, Options, Recovery, ReplicationId, Retention, Stream};
use nobody::Nobody;
use std::path::Path;
use std::sync::Arc;
use sys::file::Fs;
use sys::file::simulated::{Disk, Faults, Survival};
use sys::{Clock, UnixMs};

const DIR: &str = "/log";
/// Of each record.
const BYTES: u64 = 3000;

fn options() -> Options {
    let clock = Clock::simulated(UnixMs(1_000_000));
    Options { segment_bytes: 16 * 1024, flushing: log::Flushing::ByHand, clock, ..Options::default() }
}

fn try_open(fs: &Fs) -> Option<Log> {
    log::recover(fs, Path::new(DIR)).ok()?.open(&options(), Arc::new(Nobody)).ok()
}

/// Appends records of this byte, each durable by itself.
fn write(log: &Log, byte: u8, count: u64) {
    for _ in 0..count {
        log.append(0, UnixMs(1), &[byte].repeat(BYTES as usize));
        log.flush();
    }
}

fn checkpoint(log: &Log, content: &[u8]) -> Option<()> {
    let mut checkpoint = log.begin_checkpoint(log.appended()).ok()?;
    checkpoint.chunk(content).ok()?;
    log.flush();
    log.finish_checkpoint(checkpoint, log.appended()).ok()
}

/// The content of what it begins with, and the first byte of each record behind.
type Contents = (Vec<u8>, Vec<u8>);

fn contents(recovery: &Recovery) -> Contents {
    let first = recovery.checkpoint().and_then(|one| one.next_chunk().unwrap());
    let (mut records, mut blocks) = (Vec::new(), recovery.replay());
    while let Some(block) = blocks.next_block().unwrap() {
        records.extend(block.records().filter(|one| one.end() <= recovery.end()).map(|one| one.payload[0]));
    }
    (first.unwrap_or_default(), records)
}

/// What a log held at an offset: where that is, and the same as [`contents`].
fn look_back(log: &Log, id: ReplicationId, offset: u64) -> Option<(u64, Contents)> {
    let (recovery, stream) = log.look_back(Some(id), offset).unwrap()?;
    assert_eq!((stream.id, stream.at), (id, recovery.end()));
    Some((stream.offset, contents(&recovery)))
}

#[test]
fn the_last_record_is_found_that_ends_before_an_offset() {
    let log = try_open(&Fs::Simulated(Disk::new(1))).unwrap();
    let id = log.stream().id;
    write(&log, b'a', 10);
    let begun = log.stream().offset;
    // Of the log alone.
    assert_eq!(look_back(&log, id, 3 * BYTES), Some((3 * BYTES, (vec![], b"aaa".to_vec()))));
    assert_eq!(look_back(&log, id, 4 * BYTES - 1), Some((3 * BYTES, (vec![], b"aaa".to_vec()))));
    checkpoint(&log, b"ten").unwrap();
    write(&log, b'b', 8);
    // One is of use from its end on.
    assert_eq!(look_back(&log, id, 9 * BYTES).unwrap().1.0, b"");
    assert_eq!(look_back(&log, id, begun), Some((begun, (b"ten".to_vec(), vec![]))));
    assert_eq!(
        look_back(&log, id, begun + 2 * BYTES + 5),
        Some((begun + 2 * BYTES, (b"ten".to_vec(), b"bb".to_vec())))
    );
    assert_eq!(look_back(&log, ReplicationId::new(), begun), None);
    // Under another name the former one holds up to where that begins.
    let (parted, succeeded) = (log.stream().offset, log.stream().succeeded());
    log.begin_stream(Some(succeeded)).unwrap();
    write(&log, b'c', 2);
    assert_eq!(look_back(&log, id, u64::MAX).unwrap().0, parted);
    assert_eq!(look_back(&log, succeeded.id, parted + BYTES).unwrap().0, parted + BYTES);
    // What is no stream is not gone back over.
    log.begin_stream(None).unwrap();
    log.begin_stream(Some(Stream { offset: 7, ..succeeded })).unwrap();
    assert_eq!(look_back(&log, id, begun), None);
}

#[test]
fn what_is_before_the_oldest_checkpoint_that_is_kept_is_not_found() {
    let log = try_open(&Fs::Simulated(Disk::new(1))).unwrap();
    let id = log.stream().id;
    write(&log, b'a', 10);
    checkpoint(&log, b"first").unwrap();
    write(&log, b'b', 10);
    log.keep_before(Some(Lsn(15 * BYTES)));
    for name in [&b"second"[..], b"third"] {
        checkpoint(&log, name).unwrap();
        assert!(!log.is_checkpoint_committed());
        log.retire(Retention::None).unwrap();
        write(&log, b'c', 10);
    }
    assert_eq!(look_back(&log, id, 15 * BYTES).unwrap().1, (b"first".to_vec(), b"bbbbb".to_vec()));
    assert_eq!(look_back(&log, id, 9 * BYTES), None);
    // The second is of no use any more.
    let at_30 = look_back(&log, id, 30 * BYTES).unwrap().1;
    assert_eq!(at_30, (b"third".to_vec(), vec![]));
    assert_eq!(look_back(&log, id, 29 * BYTES).unwrap().1.0, b"first");
    log.keep_before(None);
    assert!(log.is_checkpoint_committed());
    log.retire(Retention::None).unwrap();
    assert_eq!(look_back(&log, id, 29 * BYTES), None);
    assert_eq!(look_back(&log, id, 31 * BYTES).unwrap().1, (b"third".to_vec(), b"c".to_vec()));
}

/// How far going back came that a crash ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd)]
enum Came {
    #[default]
    Nowhere,
    /// All was written that is to be cut.
    Ahead,
    /// The checkpoint with what is left is complete.
    Kept,
    /// What the new master wrote has come.
    Further,
}

/// What was there before is cut behind the second of the records of `b`, and one of `n` comes.
fn go_back(disk: &Disk, came: &mut Came, id: &mut ReplicationId) -> Option<()> {
    let log = try_open(&Fs::Simulated(disk.clone()))?;
    *id = log.stream().id;
    write(&log, b'a', 4);
    checkpoint(&log, b"four")?;
    write(&log, b'b', 6);
    log.writable().ok()?;
    *came = Came::Ahead;
    let (_, stream) = log.look_back(Some(*id), 6 * BYTES).ok()??;
    log.append_unit(
        &log::Unit { database: 0, ends_in: 0, time: UnixMs(1), stream: &[], is_followed: false },
        vec![b"nothing".to_vec()],
    );
    log.flush();
    log.expect_stream(stream).ok()?;
    checkpoint(&log, b"six")?;
    *came = Came::Kept;
    log.begin_stream(Some(stream)).ok()?;
    write(&log, b'n', 1);
    log.writable().ok()?;
    *came = Came::Further;
    Some(())
}

#[test]
fn a_power_cut_at_every_change_of_the_disk_leaves_what_was_or_what_is_left() {
    let (whole, mut id) = (Disk::new(1), ReplicationId::NONE);
    go_back(&whole, &mut Came::default(), &mut id).unwrap();
    let mut outcomes = [0; 2];
    for cut in 0..=whole.changes() {
        let (mut came, mut id) = (Came::default(), ReplicationId::NONE);
        let disk = Disk::with_faults(1, Faults { cut_at_change: Some(cut), ..Faults::default() });
        go_back(&disk, &mut came, &mut id);
        if came == Came::Nowhere {
            continue;
        }
        for (seed, survival) in [(1, Survival::Nothing), (1, Survival::All), (2, Survival::Chance)] {
            let fs = Fs::Simulated(disk.power_cut(seed, survival));
            let found = contents(&log::recover(&fs, Path::new(DIR)).unwrap());
            let log = try_open(&fs).unwrap();
            let stream = log.stream();
            assert_eq!(stream.id, id, "cut {cut} {survival:?}");
            if found.0 == b"four" {
                assert!(came == Came::Ahead, "cut {cut} {survival:?}");
                assert!(found.1.starts_with(b"bbbbbb"), "cut {cut} {survival:?}: {found:?}");
                assert_eq!(stream.offset, 10 * BYTES, "cut {cut} {survival:?}");
                // It can be tried again.
                assert_eq!(look_back(&log, id, 6 * BYTES).unwrap().1, (b"four".to_vec(), b"bb".to_vec()));
                outcomes[0] += 1;
            } else {
                assert_eq!(found.0, b"six");
                assert_eq!(stream.offset, (6 + found.1.len() as u64) * BYTES, "cut {cut} {survival:?}");
                assert!(came < Came::Further || found.1 == b"n", "cut {cut} {survival:?}: {found:?}");
                outcomes[1] += 1;
            }
        }
    }
    assert!(outcomes.iter().all(|&count| count > 3), "{outcomes:?}");
}
