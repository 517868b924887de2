//! A log in ordinary life: appending, syncing, closing, finding everything again.

#![allow(clippy::unwrap_used)] // Tests may.

mod nobody;

use log::{Case, Failure, Flushing, Log, Lsn, Observer, Options, Recovery, Refusal, Retention, SyncPolicy};
use nobody::Nobody;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use sys::file::Fs;
use sys::file::simulated::{Disk, Faults};
use sys::{Clock, UnixMs};

fn dir() -> PathBuf {
    PathBuf::from("/log")
}

fn options(segment_bytes: u64) -> Options {
    let clock = Clock::simulated(UnixMs(1_000_000));
    Options { segment_bytes, flushing: Flushing::ByHand, clock, ..Options::default() }
}

fn open(fs: &Fs, dir: &Path, options: &Options) -> Log {
    log::recover(fs, dir).unwrap().open(options, Arc::new(Nobody)).unwrap()
}

/// All records from the start: database, time, payload.
fn records(recovery: &Recovery) -> Vec<(u32, u64, Vec<u8>)> {
    let mut blocks = recovery.replay();
    let mut records = Vec::new();
    let mut at = recovery.start();
    while let Some(block) = blocks.next_block().unwrap() {
        assert_eq!(block.lsn(), at);
        for record in block.records() {
            assert_eq!(record.lsn, at);
            at = record.end();
            records.push((record.database, record.time.0, record.payload.to_owned()));
        }
        assert_eq!(block.end(), at);
    }
    assert_eq!(at, recovery.end());
    records
}

#[test]
fn what_was_appended_is_found_again_over_many_segments_and_starts() {
    let fs = Fs::Simulated(Disk::new(1));
    let mut expected = Vec::new();
    for round in 0..4u64 {
        let log = open(&fs, &dir(), &options(16 * 1024));
        for n in 0..300u64 {
            let payload = vec![b'a' + (n % 26) as u8; 1 + (n * 37 % 400) as usize];
            let end = log.append(n as u32 % 16, UnixMs(n), &payload);
            expected.push((n as u32 % 16, n, payload));
            if n % 7 == round {
                log.flush();
                assert_eq!(log.durable(), end);
            }
        }
        // Larger than a segment.
        let payload: Vec<u8> = (0..100_000u32).map(|n| n as u8).collect();
        log.append(3, UnixMs(9), &payload);
        expected.push((3, 9, payload));
        log.append(4, UnixMs(10), b"after");
        expected.push((4, 10, b"after".to_vec()));
        assert!(log.status().segments > 3);
        log.close().unwrap();
        let recovery = log::recover(&fs, &dir()).unwrap();
        assert_eq!(recovery.case(), Case::Whole);
        assert!(records(&recovery) == expected, "round {round}");
    }
}

#[test]
fn starting_again_and_again_leaves_one_segment() {
    let fs = Fs::Simulated(Disk::new(1));
    for _ in 0..5 {
        let log = open(&fs, &dir(), &options(16 * 1024));
        assert_eq!(log.status().segments, 1);
    }
}

#[test]
fn a_second_server_is_refused_until_the_first_is_gone() {
    let fs = Fs::Simulated(Disk::new(1));
    let log = open(&fs, &dir(), &options(16 * 1024));
    assert!(matches!(log::recover(&fs, &dir()), Err(Refusal::InUse(_))));
    drop(log);
    assert!(log::recover(&fs, &dir()).is_ok());
}

#[test]
fn a_checkpoint_makes_the_log_before_it_dispensable() {
    let fs = Fs::Simulated(Disk::new(1));
    let log = open(&fs, &dir(), &options(16 * 1024));
    let fill = |count: u64| {
        for n in 0..count {
            log.append(0, UnixMs(n), &[b'x'; 500]);
            log.flush();
        }
    };
    fill(20);
    let start = log.appended();
    let mut checkpoint = log.begin_checkpoint(start).unwrap();
    checkpoint.chunk(b"first").unwrap();
    fill(1);
    checkpoint.chunk(b"second").unwrap();
    log.append(0, UnixMs(5), b"late");
    let end = log.appended();
    assert!(log.durable() < end);
    log.flush();
    log.finish_checkpoint(checkpoint, end).unwrap();
    let retired = log.retire(Retention::None).unwrap();
    assert!(retired.segments > 3, "{retired:?}");
    assert_eq!(log.status().segments, 2);
    fill(10);
    drop(log);
    let recovery = log::recover(&fs, &dir()).unwrap();
    assert_eq!(recovery.case(), Case::Whole);
    let checkpoint = recovery.checkpoint().unwrap();
    assert_eq!((checkpoint.start(), checkpoint.end(), checkpoint.chunks()), (start, end, 2));
    assert_eq!(checkpoint.next_chunk().unwrap().unwrap(), b"first");
    assert_eq!(checkpoint.next_chunk().unwrap().unwrap(), b"second");
    assert_eq!(checkpoint.next_chunk().unwrap(), None);
    assert_eq!(records(&recovery).len(), 12);
}

#[test]
fn everysec_syncs_once_a_second_and_on_request() {
    let fs = Fs::Simulated(Disk::new(1));
    let options = Options { sync: SyncPolicy::EverySecond, ..options(64 * 1024) };
    let log = open(&fs, &dir(), &options);
    log.append(0, UnixMs(1), b"one");
    log.flush();
    assert_eq!((log.written(), log.durable()), (Lsn(3), Lsn(0)));
    options.clock.advance_ms(1000);
    log.flush();
    assert_eq!(log.durable(), Lsn(3));
    log.append(0, UnixMs(1), b"two");
    log.flush();
    assert_eq!(log.durable(), Lsn(3));
    log.request_sync();
    log.flush();
    assert_eq!(log.durable(), Lsn(6));
    log.append(0, UnixMs(1), b"three");
    log.set_sync_policy(SyncPolicy::Always);
    log.flush();
    assert_eq!(log.durable(), log.appended());
}

#[test]
fn what_waits_for_the_disk_is_kept_to_what_memory_there_is() {
    let fs = Fs::Simulated(Disk::new(1));
    let record = [7; 100 << 10];
    for sync in [SyncPolicy::Always, SyncPolicy::EverySecond] {
        let log = open(&fs, &dir(), &Options { sync, ..options(64 << 20) });
        log.set_buffer_bytes_max(2 << 20);
        let is_full_after = |records: usize| {
            (0..records).any(|_| {
                log.append(0, UnixMs(1), &record);
                log.is_full()
            })
        };
        assert!(!is_full_after(10));
        assert!(is_full_after(20), "{sync:?}");
        log.flush();
        assert!(!log.is_full(), "{sync:?}: it syncs before what is written and not synced fills the buffer");
        log.set_buffer_bytes_max(usize::MAX);
        assert!(!is_full_after(50), "it may hold as much as the option says again");
        log.close().unwrap();
    }
}

#[test]
fn little_at_a_time_does_not_fill_the_buffer_where_syncs_are_rare() {
    let fs = Fs::Simulated(Disk::new(1));
    for sync in [SyncPolicy::EverySecond, SyncPolicy::Never] {
        let log = open(&fs, &dir(), &Options { sync, ..options(64 << 20) });
        for bytes_max in [usize::MAX, 4 << 20] {
            log.set_buffer_bytes_max(bytes_max);
            for turn in 0..400 {
                log.append(0, UnixMs(1), b"little");
                log.flush();
                assert!(!log.is_full(), "{sync:?}: full after {turn} turns");
            }
        }
        log.close().unwrap();
    }
}

#[test]
fn the_threads_of_a_log_on_a_real_disk_make_all_of_it_durable() {
    let dir = std::env::temp_dir().join(format!("tarn-log-{}", std::process::id()));
    let log = open(&Fs::Real, &dir, &Options { segment_bytes: 1 << 20, ..Options::default() });
    std::thread::scope(|scope| {
        for thread in 0..2u32 {
            let log = &log;
            scope.spawn(move || {
                for n in 0..2000 {
                    log.append(thread, UnixMs(n), &[b'x'; 1000]);
                    if n % 10 == 0 {
                        log.nudge();
                    }
                }
            });
        }
    });
    let end = log.appended();
    assert_eq!(end, Lsn(4_000_000));
    log.nudge();
    while log.durable() < end {
        std::thread::yield_now();
    }
    drop(log);
    let recovery = log::recover(&Fs::Real, &dir).unwrap();
    assert_eq!(records(&recovery).len(), 4000);
    drop(recovery);
    std::fs::remove_dir_all(&dir).unwrap();
}

/// Lets go of the only handle of a log when it is told something.
struct LastHolder {
    log: Mutex<Option<Log>>,
    has_let_go: Sender<()>,
}

impl Observer for LastHolder {
    fn committed(&self, _: Lsn) {
        let log = self.log.lock().unwrap().take();
        if log.is_some() {
            drop(log);
            self.has_let_go.send(()).unwrap();
        }
    }

    fn failed(&self, _: &Failure) {}
    fn resumed(&self) {}
}

#[test]
fn who_is_told_may_let_go_of_the_log() {
    let fs = Fs::Simulated(Disk::new(1));
    let (has_let_go, let_go) = mpsc::channel();
    let holder = Arc::new(LastHolder { log: Mutex::new(None), has_let_go });
    let options = Options { flushing: Flushing::Threads, ..options(16 * 1024) };
    let mut held = holder.log.lock().unwrap();
    let log = log::recover(&fs, &dir()).unwrap().open(&options, Arc::clone(&holder) as _).unwrap();
    log.append(0, UnixMs(1), b"x");
    log.nudge();
    *held = Some(log);
    drop(held);
    let_go.recv_timeout(Duration::from_secs(60)).unwrap();
}

#[test]
fn without_a_descriptor_no_segment_is_filled_and_thrown_away_for_each_try() {
    let disk = Disk::new(1);
    let clock = Clock::simulated(UnixMs(1_000_000));
    let options = Options { clock: clock.clone(), ..options(64 * 1024) };
    let log = open(&Fs::Simulated(disk.clone()), &dir(), &options);
    disk.set_faults(Faults { lacks_descriptors: true, ..Faults::default() });
    log.append(0, UnixMs(1), &vec![b'x'; 200_000]);
    let spares = || {
        let names = disk.names(&dir());
        names.into_iter().filter(|path| path.extension().is_some_and(|end| end == "tmp")).collect::<Vec<_>>()
    };
    log.flush();
    let first = spares();
    assert_eq!((first.len(), log.writable().is_err()), (1, true));
    for _ in 0..10 {
        clock.advance_ms(10_000);
        log.flush();
        assert_eq!(spares(), first);
    }
    disk.set_faults(Faults::default());
    clock.advance_ms(10_000);
    log.flush();
    assert_eq!((log.writable(), log.durable()), (Ok(()), log.appended()));
    log.close().unwrap();
    let found = records(&log::recover(&Fs::Simulated(disk), &dir()).unwrap());
    assert_eq!(found, [(0, 1, vec![b'x'; 200_000])]);
}

#[test]
fn a_clock_that_is_set_back_keeps_the_log_from_nothing() {
    let disk = Disk::new(1);
    let clock = Clock::simulated(UnixMs(10_000_000));
    let sync = SyncPolicy::EverySecond;
    let options = Options { clock: clock.clone(), sync, ..options(64 * 1024) };
    let log = open(&Fs::Simulated(disk.clone()), &dir(), &options);
    let append = || log.append(0, UnixMs(1), b"x");
    append();
    clock.advance_ms(2000);
    log.flush();
    assert_eq!(log.durable(), log.appended());
    clock.set_us(1_000_000_000);
    append();
    log.flush();
    assert_eq!(log.durable(), log.appended(), "a sync is due");
    clock.set_us(9_000_000_000);
    disk.set_faults(Faults { sync_error_one_in: 1, ..Faults::default() });
    append();
    log.flush();
    assert!(log.writable().is_err());
    disk.set_faults(Faults::default());
    clock.set_us(1_000_000_000);
    log.flush();
    assert_eq!((log.writable(), log.durable()), (Ok(()), log.appended()), "another try is due");
}
