//! Every row of recovery's table, on a directory that is brought into that state; and `check` and `restore` over the same.

#![allow(clippy::unwrap_used)] // Tests may.

mod nobody;

use log::{Case, Flushing, Log, Lsn, Options, Refusal, Retention, Span, Target};
use nobody::Nobody;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use sys::file::Fs;
use sys::file::simulated::{Disk, Faults, Survival};
use sys::{Clock, UnixMs};

const RECORD_BYTES: u64 = 1000;

fn dir() -> &'static Path {
    Path::new("/log")
}

fn open(disk: &Disk) -> Log {
    open_at(disk, &Clock::simulated(UnixMs(0)))
}

fn open_at(disk: &Disk, clock: &Clock) -> Log {
    let clock = clock.clone();
    let options =
        Options { segment_bytes: 16 * 1024, flushing: Flushing::ByHand, clock, ..Options::default() };
    let recovery = log::recover(&Fs::Simulated(disk.clone()), dir()).unwrap();
    recovery.open(&options, Arc::new(Nobody)).unwrap()
}

/// Appends records, each in a block of its own, at the times 0, 1, 2 ...
fn fill(log: &Log, count: u64) {
    for _ in 0..count {
        let number = log.appended().0 / RECORD_BYTES;
        log.append(0, UnixMs(number), &[number as u8; RECORD_BYTES as usize]);
        log.flush();
    }
}

fn checkpoint(log: &Log, records_meanwhile: u64) {
    let mut checkpoint = log.begin_checkpoint(log.appended()).unwrap();
    checkpoint.chunk(format!("all before {}", log.appended()).as_bytes()).unwrap();
    fill(log, records_meanwhile);
    log.finish_checkpoint(checkpoint, log.appended()).unwrap();
}

/// A log of ten records in four segments.
fn ten_records() -> Disk {
    let disk = Disk::new(1);
    let log = open(&disk);
    fill(&log, 10);
    log.close().unwrap();
    disk
}

/// A log of twenty records, with checkpoints at 5 and 12 to 14.
fn with_checkpoints() -> Disk {
    let disk = Disk::new(1);
    let clock = Clock::simulated(UnixMs(0));
    let log = open_at(&disk, &clock);
    fill(&log, 5);
    clock.advance_ms(5);
    checkpoint(&log, 0);
    fill(&log, 7);
    clock.advance_ms(7);
    checkpoint(&log, 2);
    fill(&log, 6);
    log.close().unwrap();
    disk
}

fn restore(fs: &Fs, target: Target, to: &Path) -> Result<log::Restored, Refusal> {
    log::restore(fs, dir(), target, to, &Options { segment_bytes: 16 * 1024, ..Options::default() })
}

fn files(disk: &Disk, extension: &str) -> Vec<PathBuf> {
    disk.names(dir())
        .into_iter()
        .filter(|path| path.extension().is_some_and(|end| end == extension))
        .collect()
}

fn remove(disk: &Disk, path: &Path) {
    Fs::Simulated(disk.clone()).remove(path).unwrap();
}

/// The case, or the refusal's sentence; and that nothing was changed either way.
fn recovered(disk: &Disk) -> Result<(Case, Lsn, u64), String> {
    let before = disk.changes();
    let recovery =
        log::recover(&Fs::Simulated(disk.clone()), dir()).map_err(|refusal| refusal.to_string())?;
    let mut blocks = recovery.replay();
    let mut records = 0;
    while let Some(block) = blocks.next_block().map_err(|refusal| refusal.to_string())? {
        records += block.records().count() as u64;
    }
    assert_eq!(disk.changes(), before, "looking changes nothing");
    Ok((recovery.case(), recovery.end(), records))
}

fn assert_refused(disk: &Disk, words: &str) {
    let refused = recovered(disk).unwrap_err();
    assert!(refused.contains(words), "{refused}");
}

#[test]
fn new_an_empty_directory_begins_a_log() {
    assert_eq!(recovered(&Disk::new(1)), Ok((Case::New, Lsn(0), 0)));
}

#[test]
fn whole_a_log_alone_is_replayed_from_its_beginning() {
    assert_eq!(recovered(&ten_records()), Ok((Case::Whole, Lsn(10_000), 10)));
}

#[test]
fn whole_a_log_is_replayed_from_the_newest_checkpoint() {
    assert_eq!(recovered(&with_checkpoints()), Ok((Case::Whole, Lsn(20_000), 8)));
}

#[test]
fn whole_an_unfinished_checkpoint_is_passed_over_and_removed() {
    let disk = with_checkpoints();
    let log = open(&disk);
    let mut unfinished = log.begin_checkpoint(log.appended()).unwrap();
    unfinished.chunk(b"half").unwrap();
    std::mem::forget(unfinished);
    drop(log);
    assert_eq!(files(&disk, "tmp").len(), 1);
    assert_eq!(recovered(&disk), Ok((Case::Whole, Lsn(20_000), 8)));
    drop(open(&disk));
    assert_eq!(files(&disk, "tmp").len(), 0);
}

#[test]
fn torn_tail_what_was_being_written_is_cut() {
    let disk = Disk::new(1);
    let log = open(&disk);
    fill(&log, 2);
    let last = files(&disk, "segment").pop().unwrap();
    drop(log);
    // In the second block, of which nothing later says that it was durable.
    disk.flip(&last, (2 * 4096 + 100) * 8);
    assert_eq!(recovered(&disk), Ok((Case::TornTail, Lsn(1_000), 1)));
    // What is appended next takes its place, also when the old block comes back.
    let log = open(&disk);
    fill(&log, 3);
    drop(log);
    disk.flip(&last, (2 * 4096 + 100) * 8);
    assert_eq!(recovered(&disk), Ok((Case::Whole, Lsn(4_000), 4)));
}

#[test]
fn older_checkpoint_a_damaged_one_is_passed_over_if_the_log_reaches_back() {
    let disk = with_checkpoints();
    let newest = files(&disk, "checkpoint").pop().unwrap();
    let bytes = disk.content(&newest).unwrap().len() as u64;
    disk.flip(&newest, (bytes - 1) * 8);
    assert_eq!(recovered(&disk), Ok((Case::OlderCheckpoint, Lsn(20_000), 15)));
}

#[test]
fn newer_version_is_refused() {
    for extension in ["segment", "checkpoint"] {
        let disk = with_checkpoints();
        let path = files(&disk, extension).pop().unwrap();
        let mut bytes = disk.content(&path).unwrap();
        bytes[8] = 9;
        let crc = crc32c::crc32c(&bytes[..56]).to_le_bytes();
        bytes[56..60].copy_from_slice(&crc);
        disk.place(&path, bytes);
        assert_refused(&disk, "has format version 9, which is newer than this program reads");
    }
}

#[test]
fn not_ours_a_file_that_only_has_the_name_is_refused() {
    // Nothing here has begun a segment with this number; and without the checkpoint there is an older one.
    let segment = dir().join("log-00000000000000020000-00000099.segment");
    for path in [segment, files(&with_checkpoints(), "checkpoint").pop().unwrap()] {
        let disk = with_checkpoints();
        disk.place(&path, vec![b'x'; 5000]);
        assert_refused(&disk, "has the name of a log's file and is none");
    }
}

#[test]
fn header_damaged_beyond_recognition_is_not_taken_for_somebody_elses() {
    for content in [vec![b'x'; 5000], Vec::new()] {
        let disk = with_checkpoints();
        disk.place(&files(&disk, "segment").pop().unwrap(), content.clone());
        assert_refused(&disk, "00000007.segment is damaged: put it back from a copy");
        // Without an older way to all the data a checkpoint is no stranger either.
        let disk = with_checkpoints();
        open(&disk).retire(log::Retention::None).unwrap();
        disk.place(&files(&disk, "checkpoint").pop().unwrap(), content);
        assert_refused(&disk, "is damaged at offset 0, and the log does not reach back to an older one");
    }
}

#[test]
fn last_missing_is_refused() {
    let disk = ten_records();
    remove(&disk, &files(&disk, "segment").pop().unwrap());
    assert_refused(&disk, "the last segment, number 4, is missing; all before LSN 9000 is there");
}

#[test]
fn damaged_middle_is_a_last_segment_that_was_cut_off() {
    for kept in [4096, 8191, 8192, 16 * 1024 - 1] {
        let disk = ten_records();
        let last = files(&disk, "segment").pop().unwrap();
        let bytes = disk.content(&last).unwrap();
        disk.place(&last, bytes[..kept].to_vec());
        assert_refused(&disk, &format!("is damaged at offset {kept}: the file is cut off there"));
        let report = log::check(&Fs::Simulated(disk), dir()).unwrap();
        assert_eq!(report.segments[3].damage, Some((kept as u64, "the file is cut off there")));
    }
}

/// A log that begins behind imported data, whose checkpoint is not written yet.
fn begun_behind_import() -> (Disk, Log) {
    let disk = Disk::new(1);
    let options = Options {
        segment_bytes: 16 * 1024,
        flushing: Flushing::ByHand,
        clock: Clock::simulated(UnixMs(0)),
        ..Options::default()
    };
    let mut recovery = log::recover(&Fs::Simulated(disk.clone()), dir()).unwrap();
    recovery.begin_behind_import();
    let log = recovery.open(&options, Arc::new(Nobody)).unwrap();
    (disk, log)
}

#[test]
fn cut_short_an_import_without_its_checkpoint_is_to_be_done_again() {
    let (disk, log) = begun_behind_import();
    drop(log);
    assert_eq!(recovered(&disk), Ok((Case::CutShort, Lsn(1), 0)));
    // And once more, and then it is completed.
    drop(open(&disk));
    assert_eq!(recovered(&disk), Ok((Case::CutShort, Lsn(1), 0)));
    let log = open(&disk);
    checkpoint(&log, 0);
    drop(log);
    assert_eq!(recovered(&disk), Ok((Case::Whole, Lsn(1), 0)));
    let log = open(&disk);
    fill(&log, 2);
    log.close().unwrap();
    assert_eq!(recovered(&disk), Ok((Case::Whole, Lsn(2_001), 2)));
}

#[test]
fn not_complete_a_log_that_was_begun_beside_clients_is_told_from_an_import() {
    let disk = Disk::new(1);
    let mut recovery = log::recover(&Fs::Simulated(disk.clone()), dir()).unwrap();
    recovery.begin_beside_clients(Lsn::ZERO, None);
    let options = Options { segment_bytes: 16 * 1024, flushing: Flushing::ByHand, ..Options::default() };
    drop(recovery.open(&options, Arc::new(Nobody)).unwrap());
    assert_eq!(recovered(&disk), Ok((Case::NotComplete, Lsn(2), 0)));
    // And once more, then with something in it, and then it is completed.
    drop(open(&disk));
    assert_eq!(recovered(&disk), Ok((Case::NotComplete, Lsn(2), 0)));
    let log = open(&disk);
    fill(&log, 1);
    log.close().unwrap();
    let refused = recovered(&disk).unwrap_err();
    assert!(refused.contains("a running server had begun the log"), "{refused}");
    files(&disk, "segment").iter().chain(&files(&disk, "newest")).for_each(|path| remove(&disk, path));
    let mut recovery = log::recover(&Fs::Simulated(disk.clone()), dir()).unwrap();
    recovery.begin_beside_clients(Lsn::ZERO, None);
    let log = recovery.open(&options, Arc::new(Nobody)).unwrap();
    checkpoint(&log, 2);
    log.close().unwrap();
    assert_eq!(recovered(&disk), Ok((Case::Whole, Lsn(2_002), 2)));
}

#[test]
fn not_complete_a_log_that_was_begun_far_behind_the_beginning_is_told_from_one_whose_checkpoint_is_gone() {
    const FAR: Lsn = Lsn(1 << 40);
    let begun = || {
        let disk = Disk::new(1);
        let mut recovery = log::recover(&Fs::Simulated(disk.clone()), dir()).unwrap();
        recovery.begin_beside_clients(FAR, None);
        let options = Options { segment_bytes: 16 * 1024, flushing: Flushing::ByHand, ..Options::default() };
        let log = recovery.open(&options, Arc::new(Nobody)).unwrap();
        assert_eq!(log.appended(), FAR);
        (disk, log)
    };
    let (disk, log) = begun();
    drop(log);
    for _ in 0..2 {
        assert_eq!(recovered(&disk), Ok((Case::NotComplete, FAR, 0)));
        drop(open(&disk));
    }
    let log = open(&disk);
    fill(&log, 1);
    log.close().unwrap();
    let refused = recovered(&disk).unwrap_err();
    assert!(refused.contains("a running server had begun the log"), "{refused}");
    // Completed, emptied by starts that wrote nothing, and robbed of its checkpoint: nothing says that it was never complete.
    let (disk, log) = begun();
    checkpoint(&log, 2);
    log.close().unwrap();
    let end = FAR.plus(2000);
    assert_eq!(recovered(&disk), Ok((Case::Whole, end, 2)));
    let log = open(&disk);
    checkpoint(&log, 0);
    log.retire(Retention::None).unwrap();
    log.close().unwrap();
    open(&disk).close().unwrap();
    assert_eq!(recovered(&disk), Ok((Case::Whole, end, 0)));
    files(&disk, "checkpoint").iter().for_each(|path| remove(&disk, path));
    let refused = recovered(&disk).unwrap_err();
    assert!(!refused.contains("a running server had begun the log"), "{refused}");
}

#[test]
fn log_late_imported_data_are_never_left_out() {
    let (disk, log) = begun_behind_import();
    checkpoint(&log, 0);
    fill(&log, 2);
    log.close().unwrap();
    let path = files(&disk, "checkpoint").pop().unwrap();
    let content = disk.content(&path).unwrap();
    remove(&disk, &path);
    assert_refused(&disk, "no checkpoint that holds them is there; put the newest one back");
    for bit in [10, 100 * 8, (content.len() as u64 - 1) * 8] {
        disk.place(&path, content.clone());
        disk.flip(&path, bit);
        assert_refused(&disk, "and the log does not reach back to an older one");
    }
}

#[test]
fn header_damaged_is_refused() {
    let disk = ten_records();
    disk.flip(&files(&disk, "segment")[1], 20 * 8);
    assert_refused(&disk, "the header of /log/log-");
}

#[test]
fn mixed_files_of_two_logs_are_refused() {
    let (disk, other) = (ten_records(), ten_records());
    let path = files(&disk, "segment").pop().unwrap();
    disk.place(&path, other.content(&path).unwrap());
    assert_refused(&disk, "belongs to another log");
}

#[test]
fn checkpoint_damaged_without_an_older_way_is_refused() {
    let disk = with_checkpoints();
    let log = open(&disk);
    assert!(log.retire(log::Retention::None).unwrap().segments > 0);
    drop(log);
    let newest = files(&disk, "checkpoint").pop().unwrap();
    disk.flip(&newest, 10 * 8);
    assert_refused(&disk, "and the log does not reach back to an older one");
}

#[test]
fn log_gone_a_checkpoint_alone_is_refused() {
    let disk = with_checkpoints();
    files(&disk, "segment").iter().for_each(|path| remove(&disk, path));
    assert_refused(&disk, "no log from 12000 on");
    let disk = ten_records();
    files(&disk, "segment").iter().for_each(|path| remove(&disk, path));
    assert_refused(&disk, "no log from 0 on, and there was one");
}

#[test]
fn log_late_without_its_first_segments_is_refused() {
    let disk = ten_records();
    let segments = files(&disk, "segment");
    segments[..2].iter().for_each(|path| remove(&disk, path));
    assert_refused(&disk, "the log begins at 6000 and is needed from 0 on");
}

#[test]
fn segment_missing_in_the_middle_is_refused() {
    let disk = ten_records();
    remove(&disk, &files(&disk, "segment")[1]);
    assert_refused(&disk, "segment number 2 is missing");
    // What is before it can be had.
    let fs = Fs::Simulated(disk);
    let restored = restore(&fs, Target::Lsn(Lsn(3_000)), Path::new("/copy")).unwrap();
    assert_eq!(restored.end, Lsn(3_000));
}

#[test]
fn damaged_middle_names_the_place_and_what_is_intact() {
    for segment in 0..4 {
        let disk = ten_records();
        let path = files(&disk, "segment")[segment].clone();
        disk.flip(&path, (4096 + 100) * 8);
        let lsn = segment as u64 * 3_000;
        assert_refused(&disk, "is damaged at offset 4096");
        assert_refused(&disk, &format!("all before LSN {lsn} is intact"));
        let fs = Fs::Simulated(disk.clone());
        let report = log::check(&fs, dir()).unwrap();
        assert!(!report.is_intact());
        assert_eq!(report.segments[segment].damage.unwrap().0, 4096);
        let restored = restore(&fs, Target::Lsn(Lsn(lsn)), Path::new("/copy")).unwrap();
        assert_eq!(restored.end, Lsn(lsn));
    }
}

#[test]
fn log_short_without_its_last_segments_is_refused() {
    let disk = with_checkpoints();
    let segments = files(&disk, "segment");
    let reaches_back = |path: &&PathBuf| path.to_string_lossy().as_ref() < "/log/log-00000000000000010000";
    let count = segments.iter().filter(reaches_back).count();
    segments[count..].iter().for_each(|path| remove(&disk, path));
    // A program that did not say which segment is the newest.
    files(&disk, "newest").iter().for_each(|path| remove(&disk, path));
    assert_refused(&disk, "before the end of the checkpoint at 14000");
}

#[test]
fn a_file_in_place_of_the_directory_is_refused() {
    let disk = Disk::new(1);
    disk.place(dir(), b"text".to_vec());
    let refused = log::recover(&Fs::Simulated(disk), dir()).unwrap_err();
    assert!(matches!(refused, Refusal::NotDirectory(_)));
}

#[test]
fn check_passes_over_the_rest_of_a_record_whose_beginning_was_not_kept() {
    let disk = Disk::new(1);
    let fs = Fs::Simulated(disk.clone());
    let clock = Clock::simulated(UnixMs(0));
    let options = Options { segment_bytes: 1 << 20, flushing: Flushing::ByHand, clock, ..Options::default() };
    for bytes in (600_000..3_000_000).step_by(150_000) {
        let log = log::recover(&fs, dir()).unwrap().open(&options, Arc::new(Nobody)).unwrap();
        log.append(0, UnixMs(1), &vec![1; bytes]);
        log.flush();
        checkpoint(&log, 3);
        log.retire(Retention::None).unwrap();
        log.close().unwrap();
        let report = log::check(&fs, dir()).unwrap();
        assert!(report.is_intact(), "{bytes}: {report:?}");
        assert_eq!(report.verdict.unwrap().0, Case::Whole);
    }
}

#[test]
fn check_finds_damage_in_the_first_block_of_every_segment() {
    const HEADER_BYTES: usize = 40;
    for segment in 0..4 {
        let disk = ten_records();
        let path = files(&disk, "segment")[segment].clone();
        let mut bytes = disk.content(&path).unwrap();
        let block = &mut bytes[4096..];
        let body_bytes = u32::from_le_bytes(block[32..36].try_into().unwrap()) as usize;
        // The first frame says that MULTI and EXEC are there; both checksums are right.
        block[HEADER_BYTES + 7] |= 1 << 3;
        let body_crc = crc32c::crc32c(&block[HEADER_BYTES..HEADER_BYTES + body_bytes]);
        block[4..8].copy_from_slice(&body_crc.to_le_bytes());
        let header_crc = crc32c::crc32c(&block[4..HEADER_BYTES]);
        block[..4].copy_from_slice(&header_crc.to_le_bytes());
        disk.place(&path, bytes);
        let report = log::check(&Fs::Simulated(disk.clone()), dir()).unwrap();
        let damage: Vec<_> = report.segments.iter().map(|segment| segment.damage.is_some()).collect();
        assert_eq!(damage.iter().position(|is_damaged| *is_damaged), Some(segment), "{report:?}");
        assert_refused(&disk, "does not begin or end as its frame says");
    }
}

#[test]
fn check_tells_what_is_there() {
    let disk = with_checkpoints();
    let report = log::check(&Fs::Simulated(disk), dir()).unwrap();
    assert!(report.is_intact(), "{report:?}");
    assert_eq!(report.verdict.unwrap(), (Case::Whole, Lsn(20_000)));
    assert_eq!(report.segments.iter().map(|segment| segment.records).sum::<u64>(), 20);
    assert_eq!(report.segments[0].first_time, Some(UnixMs(0)));
    assert_eq!(report.segments.last().unwrap().last_time.or(Some(UnixMs(19))), Some(UnixMs(19)));
    let ends: Vec<_> =
        report.checkpoints.iter().map(|checkpoint| (checkpoint.start, checkpoint.end)).collect();
    assert_eq!(ends, [(Lsn(5_000), Some(Lsn(5_000))), (Lsn(12_000), Some(Lsn(14_000)))]);
}

#[test]
fn restore_gives_every_moment_that_was_kept() {
    let disk = with_checkpoints();
    let fs = Fs::Simulated(disk.clone());
    for records in 0..=20u64 {
        let time = records.checked_sub(1);
        // Somewhere in the next record, of which there is none behind the last.
        let lsn = Lsn(records * RECORD_BYTES + if records < 20 { 17 } else { 0 });
        let targets = [Some(Target::Lsn(lsn)), time.map(|ms| Target::Time(UnixMs(ms)))];
        for (at, target) in targets.into_iter().flatten().enumerate() {
            let to = PathBuf::from(format!("/copy-{records}-{at}"));
            let restored = restore(&fs, target, &to).unwrap();
            assert_eq!(restored.end, Lsn(records * RECORD_BYTES), "{target:?}");
            let copy = log::recover(&fs, &to).unwrap();
            assert_eq!((copy.case(), copy.end()), (Case::Whole, restored.end));
            let base = copy.checkpoint().map_or(Lsn(0), log::Checkpoint::start);
            let newest = [14, 5]
                .into_iter()
                .find(|end| *end <= records)
                .map_or(0, |end| if end == 14 { 12_000 } else { 5_000 });
            // A checkpoint may have begun a moment after the last record that is wanted.
            assert!(base.0 == newest || matches!(target, Target::Time(_)) && base.0 < newest);
            let mut blocks = copy.replay();
            while let Some(block) = blocks.next_block().unwrap() {
                for record in block.records() {
                    assert_eq!(record.payload[0], (record.lsn.0 / RECORD_BYTES) as u8);
                    assert_eq!(record.time.0, record.lsn.0 / RECORD_BYTES);
                }
            }
        }
    }
    let refused = restore(&fs, Target::Lsn(Lsn(1)), Path::new("/copy-3-0")).unwrap_err();
    assert!(matches!(refused, Refusal::Occupied(_)));
    // A copy of a copy that was cut off by a crash is one too.
    let disk = disk.power_cut(1, Survival::Nothing);
    assert!(log::recover(&Fs::Simulated(disk), Path::new("/copy-20-0")).is_ok());
}

#[test]
fn a_copy_that_is_cut_short_is_never_taken_for_a_log_that_ends_early() {
    let disk = with_checkpoints();
    disk.film();
    let to = Path::new("/copy");
    restore(&Fs::Simulated(disk.clone()), Target::Lsn(Lsn(11_000)), to).unwrap();
    let mut film = disk.take_film();
    film.push(disk);
    let (mut unfinished, mut complete) = (0, 0);
    for (at, disk) in film.iter().enumerate() {
        for survival in [Survival::Nothing, Survival::All, Survival::Chance] {
            let after = Fs::Simulated(disk.power_cut(at as u64, survival));
            match log::recover(&after, to) {
                Ok(copy) if copy.is_new() => assert!(at < 10, "before change {at}"),
                Ok(copy) => {
                    assert_eq!(copy.end(), Lsn(11_000), "before change {at}");
                    complete += 1;
                }
                Err(Refusal::Unfinished(_)) => unfinished += 1,
                Err(other) => panic!("before change {at}: {other}"),
            }
        }
    }
    assert!(unfinished > 0 && complete > 0, "{unfinished} {complete}");
}

#[test]
fn a_copy_that_cannot_be_made_leaves_nothing() {
    let disk = with_checkpoints();
    let fs = Fs::Simulated(disk.clone());
    let to = Path::new("/copy");
    let used: usize = disk.names(dir()).iter().map(|path| disk.content(path).unwrap().len()).sum();
    for room in [0, 1000, 4096, 12 * 1024] {
        disk.set_faults(Faults { space_bytes: Some(used as u64 + room), ..Faults::default() });
        let refused = restore(&fs, Target::Lsn(Lsn(20_000)), to).unwrap_err();
        assert!(matches!(refused, Refusal::Disk { .. }), "{refused}");
        assert_eq!(fs.kind(to).unwrap(), None);
    }
    disk.set_faults(Faults::default());
    // Neither does one of a moment that was never kept.
    let clock = Clock::simulated(UnixMs(1_000));
    open_at(&disk, &clock).retire(log::Retention::None).unwrap();
    for target in [Target::Lsn(Lsn(3_000)), Target::Time(UnixMs(3))] {
        assert!(matches!(restore(&fs, target, to), Err(Refusal::OutOfReach { .. })));
        assert_eq!(fs.kind(to).unwrap(), None);
    }
}

#[test]
fn a_copy_that_fails_takes_nothing_away_that_was_there() {
    let disk = with_checkpoints();
    let fs = Fs::Simulated(disk.clone());
    let to = Path::new("/copy");
    fs.create_dir_all(to).unwrap();
    let names = ["log-server.txt", "log.lock", "log_of_the_house", "logins.rdb"];
    names.iter().for_each(|name| fs.write(&to.join(name), b"precious").unwrap());
    let names_of_all = [disk.names(dir()), disk.names(to)].concat();
    let used: usize = names_of_all.iter().map(|path| disk.content(path).unwrap().len()).sum();
    let space_bytes = Some(used as u64 + 4096);
    disk.set_faults(Faults { space_bytes, ..Faults::default() });
    assert!(matches!(restore(&fs, Target::Lsn(Lsn(20_000)), to), Err(Refusal::Disk { .. })));
    assert_eq!(fs.list(to).unwrap(), names);
    disk.set_faults(Faults::default());
    // What is called alike is in nobody's way either.
    restore(&fs, Target::Lsn(Lsn(20_000)), to).unwrap();
    let copy = log::recover(&fs, to).unwrap();
    copy.open(&Options::default(), Arc::new(Nobody)).unwrap().close().unwrap();
    assert!(names.iter().all(|name| fs.kind(&to.join(name)).unwrap().is_some()));
}

#[test]
fn no_copy_is_made_where_a_log_was_begun_and_cut_short() {
    let disk = with_checkpoints();
    let fs = Fs::Simulated(disk.clone());
    let to = Path::new("/copy");
    let mut begun = log::recover(&fs, to).unwrap();
    begun.begin_behind_import();
    begun.open(&Options::default(), Arc::new(Nobody)).unwrap().close().unwrap();
    let names = fs.list(to).unwrap();
    assert!(matches!(restore(&fs, Target::Lsn(Lsn(20_000)), to), Err(Refusal::Occupied(_))));
    assert_eq!(fs.list(to).unwrap(), names);
    assert_eq!(log::recover(&fs, to).unwrap().case(), Case::CutShort);
}

#[test]
fn files_that_are_called_like_those_of_a_log_are_left_alone() {
    let disk = Disk::new(1);
    let fs = Fs::Simulated(disk.clone());
    fs.create_dir_all(dir()).unwrap();
    let names = [
        "log-1-1.segment",
        "log-1.checkpoint",
        "log-1.newest",
        "log-server.tmp",
        "log-server.txt",
        "spare-parts.tmp",
        "spare-1.tmp",
    ];
    names.iter().for_each(|name| fs.write(&dir().join(name), b"precious").unwrap());
    assert!(!log::is_there(&fs, dir()).unwrap());
    assert_eq!(recovered(&disk), Ok((Case::New, Lsn(0), 0)));
    let log = open_at(&disk, &Clock::simulated(UnixMs(0)));
    fill(&log, 3);
    log.close().unwrap();
    assert!(log::is_there(&fs, dir()).unwrap());
    assert!(names.iter().all(|name| fs.kind(&dir().join(name)).unwrap().is_some()));
}

#[test]
fn a_copy_of_a_time_before_the_log_or_beyond_what_is_intact_is_refused() {
    let disk = Disk::new(1);
    let log = open_at(&disk, &Clock::simulated(UnixMs(100)));
    for at in [100, 200, 300] {
        log.append(0, UnixMs(at), &[1; RECORD_BYTES as usize]);
        log.flush();
    }
    log.close().unwrap();
    let fs = Fs::Simulated(disk.clone());
    let copy = |ms, to| restore(&fs, Target::Time(UnixMs(ms)), Path::new(to)).map(|copy| copy.end);
    assert!(matches!(copy(99, "/before"), Err(Refusal::OutOfReach { .. })));
    assert_eq!(copy(100, "/first").unwrap(), Lsn(1_000));
    assert_eq!(copy(999, "/all").unwrap(), Lsn(3_000));
    disk.flip(&files(&disk, "segment")[0], (2 * 4096 + 100) * 8);
    assert!(matches!(copy(999, "/lost"), Err(Refusal::Damaged { way: Some(Lsn(1_000)), .. })));
    assert_eq!(restore(&fs, Target::Lsn(Lsn(1_000)), Path::new("/intact")).unwrap().end, Lsn(1_000));
}

#[test]
fn a_copy_of_a_time_says_what_is_behind_it_though_its_time_is_not() {
    let disk = Disk::new(1);
    let log = open_at(&disk, &Clock::simulated(UnixMs(100)));
    for at in [100, 200, 90_000, 300, 400] {
        log.append(0, UnixMs(at), &[7; RECORD_BYTES as usize]);
        log.flush();
    }
    log.close().unwrap();
    let fs = Fs::Simulated(disk);
    for (time, end, behind) in
        [(250, 2_000, None), (300, 2_000, Some(4_000)), (400, 2_000, Some(5_000)), (90_000, 5_000, None)]
    {
        let to = PathBuf::from(format!("/copy-{time}"));
        let restored = restore(&fs, Target::Time(UnixMs(time)), &to).unwrap();
        assert_eq!((restored.end, restored.earlier_behind), (Lsn(end), behind.map(Lsn)), "{time}");
    }
}

#[test]
fn a_copy_up_to_an_lsn_that_is_not_there_is_refused_with_the_range_that_is() {
    let disk = with_checkpoints();
    let fs = Fs::Simulated(disk.clone());
    let to = Path::new("/copy");
    let refused = |lsn| {
        let refused = restore(&fs, Target::Lsn(Lsn(lsn)), to).unwrap_err().to_string();
        assert_eq!(fs.kind(to).unwrap(), None);
        refused
    };
    for beyond in [20_001, 20_017, 1_795_339_800, u64::MAX] {
        let said = refused(beyond);
        assert!(said.starts_with(&format!("the log in /log ends before LSN {beyond}; ")), "{said}");
        assert!(said.contains("any LSN from 0 to 20000") && said.contains(&format!("@{beyond}")), "{said}");
    }
    // Behind what is damaged at the end.
    let last = files(&disk, "segment").pop().unwrap();
    let content = disk.content(&last).unwrap();
    disk.flip(&last, (4096 + 100) * 8);
    for lsn in [18_001, 20_000, 20_001] {
        let said = refused(lsn);
        assert!(said.contains("all before LSN 18000 is intact") && said.contains("--to 18000 "), "{said}");
    }
    // Behind one that is missing.
    remove(&disk, &last);
    for lsn in [18_001, 20_000, 20_001] {
        assert!(refused(lsn).contains("the last segment, number 7, is missing"), "{}", refused(lsn));
    }
    disk.place(&last, content);
    let middle = files(&disk, "segment")[4].clone();
    remove(&disk, &middle);
    for lsn in [12_500, 17_000, 20_000, 20_001] {
        assert!(refused(lsn).contains(" is missing, from which "), "{lsn}: {}", refused(lsn));
    }
    // Before what is kept.
    let disk = with_checkpoints();
    let fs = Fs::Simulated(disk.clone());
    open_at(&disk, &Clock::simulated(UnixMs(1_000))).retire(log::Retention::None).unwrap();
    let said = restore(&fs, Target::Lsn(Lsn(3_000)), to).unwrap_err().to_string();
    assert!(said.contains("goes back that far; a copy can be made of any LSN from 14000 to 20000"), "{said}");
    for end in [14_000, 20_000] {
        assert_eq!(restore(&fs, Target::Lsn(Lsn(end)), Path::new(&format!("/{end}"))).unwrap().end, Lsn(end));
    }
}

/// Files of each version, which must open for ever: in `v2` the checkpoint is of the second, in `v3` also the segments. Those of the newest are written by
/// `TARN_WRITE_FIXTURE=1 cargo test -p log@0.1.0 --test recovery every_version`.
#[test]
fn files_of_every_version_open() {
    if std::env::var_os("TARN_WRITE_FIXTURE").is_some() {
        let kept = fixture("v3");
        std::fs::create_dir_all(&kept).unwrap();
        let disk = Disk::new(1);
        let log = open(&disk);
        fill(&log, 3);
        checkpoint(&log, 1);
        log.append(5, UnixMs(77), &[b'z'; 9_000]);
        log.flush();
        // Of two parts, over two segments.
        log.append(6, UnixMs(78), &[b'y'; 20_000]);
        log.append_effects(Span { database: 7, ends_in: 8, is_several: true }, UnixMs(79), b"effects");
        log.flush();
        log.close().unwrap();
        for path in disk.names(dir()) {
            std::fs::write(kept.join(path.file_name().unwrap()), disk.content(&path).unwrap()).unwrap();
        }
    }
    ["v1", "v2"].into_iter().for_each(|version| opens(version, 33_000, &[]));
    opens("v3", 33_000 + 23 + 15 + 7 + 14, &[(7, 79, 7)]);
}

fn fixture(version: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(version)
}

/// The directory opens, and holds these records (database, time and length) behind those that all have.
fn opens(version: &str, end: u64, more: &[(u32, u64, usize)]) {
    let disk = Disk::new(1);
    let fs = Fs::Simulated(disk.clone());
    fs.create_dir_all(dir()).unwrap();
    for file in std::fs::read_dir(fixture(version)).unwrap() {
        let path = file.unwrap().path();
        disk.place(&dir().join(path.file_name().unwrap()), std::fs::read(&path).unwrap());
    }
    assert_eq!(recovered(&disk), Ok((Case::Whole, Lsn(end), 3 + more.len() as u64)));
    let recovery = log::recover(&fs, dir()).unwrap();
    let checkpoint = recovery.checkpoint().unwrap();
    assert_eq!(checkpoint.next_chunk().unwrap().unwrap(), b"all before 3000");
    assert_eq!((checkpoint.start(), checkpoint.end()), (Lsn(3_000), Lsn(4_000)));
    let mut seen = Vec::new();
    let mut blocks = recovery.replay();
    while let Some(block) = blocks.next_block().unwrap() {
        seen.extend(block.records().map(|record| (record.database, record.time.0, record.payload.len())));
    }
    assert_eq!(seen, [&[(0, 3, 1_000), (5, 77, 9_000), (6, 78, 20_000)], more].concat());
    drop(recovery);
    // A copy is a stream if all of it was one.
    let is_stream = more.len() == 1;
    restore(&fs, Target::Lsn(Lsn(end)), Path::new("/copy")).unwrap();
    for path in disk.names(Path::new("/copy")).iter().filter(|path| path.extension().unwrap() == "segment") {
        assert_eq!(disk.content(path).unwrap()[72..92] != [0; 20], is_stream, "{}", path.display());
    }
    assert_eq!(open(&disk).appended(), Lsn(end));
}
