//! A log that a running server ends and begins again: positions go on, files do not. Until the log that began again has its first
//! checkpoint, a start finds the one that ended, whole; from then on it finds the other, whenever the power goes.

#![allow(clippy::unwrap_used)] // Tests may.

mod nobody;

use log::{Case, Flushing, Log, Lsn, Options, Retention};
use nobody::Nobody;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use sys::UnixMs;
use sys::file::Fs;
use sys::file::simulated::{Disk, Faults, Survival};

const RECORD_BYTES: u64 = 1000;
/// Of the log that ends, with its checkpoint behind the fourth.
const RECORDS: u64 = 10;
const SEGMENT_BYTES: u64 = 16 * 1024;

fn dir() -> &'static Path {
    Path::new("/log")
}

fn open(disk: &Disk) -> Log {
    let options = Options { segment_bytes: SEGMENT_BYTES, flushing: Flushing::ByHand, ..Options::default() };
    let recovery = log::recover(&Fs::Simulated(disk.clone()), dir()).unwrap();
    recovery.open(&options, Arc::new(Nobody)).unwrap()
}

fn fill(log: &Log, count: u64) {
    for _ in 0..count {
        let number = log.appended().0 / RECORD_BYTES;
        log.append(0, UnixMs(number), &[number as u8; RECORD_BYTES as usize]);
        log.flush();
    }
}

fn checkpoint(log: &Log, records_meanwhile: u64) -> std::io::Result<()> {
    let mut checkpoint = log.begin_checkpoint(log.appended()).unwrap();
    checkpoint.chunk(format!("all before {}", log.appended()).as_bytes()).unwrap();
    fill(log, records_meanwhile);
    log.finish_checkpoint(checkpoint, log.appended())
}

/// The numbers of the records that a start would replay.
fn found(disk: &Disk) -> Result<(Case, Vec<u64>), String> {
    let recovery =
        log::recover(&Fs::Simulated(disk.clone()), dir()).map_err(|refusal| refusal.to_string())?;
    let (mut blocks, mut numbers) = (recovery.replay(), Vec::new());
    while let Some(block) = blocks.next_block().map_err(|refusal| refusal.to_string())? {
        numbers.extend(block.records().map(|record| record.time.0));
    }
    Ok((recovery.case(), numbers))
}

fn with_records() -> (Disk, Log) {
    let disk = Disk::new(1);
    let log = open(&disk);
    fill(&log, 4);
    checkpoint(&log, 0).unwrap();
    fill(&log, RECORDS - 4);
    (disk, log)
}

fn files(disk: &Disk, extension: &str) -> Vec<PathBuf> {
    let is_one = |path: &PathBuf| path.extension().is_some_and(|end| end == extension);
    disk.names(dir()).into_iter().filter(is_one).collect()
}

fn ended() -> Result<(Case, Vec<u64>), String> {
    Ok((Case::Whole, (4..RECORDS).collect()))
}

#[test]
fn what_is_appended_to_a_log_that_rests_is_durable_at_once_and_nowhere() {
    let (disk, log) = with_records();
    log.append(0, UnixMs(RECORDS), &[0; RECORD_BYTES as usize]);
    log.rest().unwrap();
    assert!(log.rests());
    let changes = disk.changes();
    fill(&log, 40);
    log.rename_stream();
    log.flush();
    assert_eq!((log.durable(), log.stream().at), (log.appended(), log.appended()));
    assert_eq!(disk.changes(), changes);
    assert!(log.read_stream(log.stream().offset - 1).unwrap().is_none());
    assert!(checkpoint(&log, 1).is_err());
    drop(log);
    assert_eq!(found(&disk), Ok((Case::Whole, (4..=RECORDS).collect())));
}

#[test]
fn a_log_that_began_again_counts_with_its_first_checkpoint() {
    let (disk, log) = with_records();
    let early = log.begin_checkpoint(log.appended()).unwrap();
    log.rest().unwrap();
    fill(&log, 3);
    log.begin_again().unwrap();
    fill(&log, 20);
    let refused = log.finish_checkpoint(early, Lsn(RECORDS * RECORD_BYTES)).unwrap_err();
    assert_eq!(refused.to_string(), "the log has ended");
    assert!(log.lacks_checkpoint());
    drop(log);
    assert_eq!(found(&disk), ended());
    // It goes on from what had ended, and what was not completed is gone.
    let log = open(&disk);
    fill(&log, 1);
    log.close().unwrap();
    assert_eq!(found(&disk), Ok((Case::Whole, (4..=RECORDS).collect())));

    let log = open(&disk);
    log.rest().unwrap();
    fill(&log, 3);
    log.begin_again().unwrap();
    fill(&log, 1);
    checkpoint(&log, 2).unwrap();
    assert!(!log.lacks_checkpoint());
    let segments = files(&disk, "segment").len();
    log.retire(Retention::None).unwrap();
    assert!(files(&disk, "segment").len() < segments);
    // Only what is in segments is read from there.
    let (end, begun) = (log.stream().offset, log.status().oldest.0);
    assert!(log.read_stream(begun - 1).unwrap().is_none());
    assert!(log.read_stream(end - 1).unwrap().unwrap().next_bytes().unwrap().is_some());
    drop(log);
    let behind = RECORDS + 1 + 3 + 1;
    assert_eq!(found(&disk), Ok((Case::Whole, (behind..behind + 2).collect())));
    let log = open(&disk);
    fill(&log, 1);
    log.close().unwrap();
    assert_eq!(found(&disk), Ok((Case::Whole, (behind..behind + 3).collect())));
}

#[test]
fn wherever_the_power_goes_one_of_the_two_logs_is_there_whole() {
    let (disk, log) = with_records();
    disk.film();
    log.rest().unwrap();
    fill(&log, 3);
    log.begin_again().unwrap();
    fill(&log, 2);
    // Ended before it was complete, and begun once more.
    log.rest().unwrap();
    fill(&log, 2);
    log.begin_again().unwrap();
    fill(&log, 12);
    let first = log.appended().0 / RECORD_BYTES;
    checkpoint(&log, 2).unwrap();
    log.retire(Retention::None).unwrap();
    fill(&log, 2);
    let (mut former, mut later) = (0, 0);
    for (step, cut) in disk.take_film().into_iter().enumerate() {
        for survival in [Survival::Nothing, Survival::All, Survival::Chance] {
            let disk = cut.power_cut(step as u64, survival);
            let is_former = is_former(&disk, first);
            // A start that is cut short changes nothing of that.
            disk.film();
            drop(open(&disk));
            for again in disk.take_film() {
                assert_eq!(self::is_former(&again.power_cut(3, survival), first), is_former, "step {step}");
            }
            match is_former {
                true => former += 1,
                false => later += 1,
            }
        }
    }
    assert!(former > 10 && later > 3, "{former} {later}");
}

/// Whether the log is there that ended; else that which began again is.
fn is_former(disk: &Disk, first: u64) -> bool {
    let (case, numbers) = found(disk).unwrap();
    assert!(matches!(case, Case::Whole | Case::TornTail), "{case:?}");
    let is_former = numbers.first().is_some_and(|number| *number == 4);
    match is_former {
        true => assert_eq!(numbers, (4..RECORDS).collect::<Vec<_>>()),
        false => assert_eq!(numbers, (first..first + numbers.len() as u64).collect::<Vec<_>>()),
    }
    assert!(is_former || numbers.len() >= 2, "{numbers:?}");
    is_former
}

#[test]
fn a_log_for_which_there_is_no_room_rests_on() {
    let (disk, log) = with_records();
    log.rest().unwrap();
    let full = Faults { space_bytes: Some(0), ..Faults::default() };
    log.drop_spares();
    disk.set_faults(full);
    fill(&log, 3);
    assert!(log.begin_again().is_err());
    assert!(log.rests() && log.writable().is_ok());
    disk.set_faults(Faults::default());
    log.begin_again().unwrap();
    checkpoint(&log, 1).unwrap();
    drop(log);
    assert_eq!(found(&disk), Ok((Case::Whole, vec![RECORDS + 3])));
}
