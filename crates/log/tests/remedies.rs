//! Whatever is wrong with a directory: a start says it, `check` says the same, and what it says to do is of use.
//!
//! From a seed: a log of some shape, one damage to it, and then each sentence is followed to the letter. `TARN_SEED` and
//! `TARN_STEPS` (damages to try) repeat and lengthen it.

#![allow(clippy::unwrap_used)] // Tests may.

mod nobody;

use log::{Case, Flushing, Log, Lsn, Options, Recovery, Refusal, Retention, Target};
use nobody::Nobody;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use sys::file::Fs;
use sys::file::simulated::Disk;
use sys::{Clock, Prng, UnixMs};
use testkit::seed::Budget;

fn dir() -> &'static Path {
    Path::new("/log")
}

fn options() -> Options {
    let clock = Clock::simulated(UnixMs(0));
    Options { segment_bytes: 16 * 1024, flushing: Flushing::ByHand, clock, ..Options::default() }
}

fn fs(disk: &Disk) -> Fs {
    Fs::Simulated(disk.clone())
}

/// A log with records that say where they stand, over several segments and starts, perhaps behind an import, perhaps with checkpoints.
fn some_log(prng: &mut Prng) -> Disk {
    let disk = Disk::new(1);
    let is_imported = prng.one_in(3);
    for start in 0..1 + prng.below(3) {
        let mut recovery = log::recover(&fs(&disk), dir()).unwrap();
        if start == 0 && is_imported {
            match prng.one_in(2) {
                true => recovery.begin_behind_import(),
                false => recovery.begin_beside_clients(Lsn(prng.below(2) * 5000), None),
            }
        }
        let log = recovery.open(&options(), Arc::new(Nobody)).unwrap();
        if start == 0 && is_imported {
            checkpoint(&log, prng, 0);
        }
        fill(&log, prng, 12);
        if prng.one_in(2) {
            checkpoint(&log, prng, 4);
            fill(&log, prng, 6);
        }
        if prng.one_in(4) {
            log.retire(Retention::None).unwrap();
        }
        log.close().unwrap();
    }
    disk
}

fn fill(log: &Log, prng: &mut Prng, count_max: u64) {
    for _ in 0..prng.below(count_max + 1) {
        let at = log.appended().0;
        let count = if prng.one_in(8) { 20_000 } else { 8 + prng.below(1500) as usize };
        log.append(0, UnixMs(at), &at.to_le_bytes().repeat(count.div_ceil(8)));
        log.flush();
    }
}

fn checkpoint(log: &Log, prng: &mut Prng, meanwhile: u64) {
    let mut checkpoint = log.begin_checkpoint(log.appended()).unwrap();
    for _ in 0..1 + prng.below(3) {
        checkpoint.chunk(&log.appended().0.to_le_bytes().repeat(50)).unwrap();
    }
    fill(log, prng, meanwhile);
    log.finish_checkpoint(checkpoint, log.appended()).unwrap();
}

/// Reads all that a start reads, and finds it right.
fn read_all(recovery: &Recovery) -> Result<(Case, Lsn), Refusal> {
    while let Some(chunk) = recovery.checkpoint().map_or(Ok(None), log::Checkpoint::next_chunk)? {
        assert_eq!(chunk.len(), 400);
    }
    let mut blocks = recovery.replay();
    let mut at = recovery.start();
    while let Some(block) = blocks.next_block()? {
        for record in block.records() {
            assert_eq!(record.lsn, at, "nothing is left out");
            assert!(record.payload.starts_with(&at.0.to_le_bytes()), "every record is in its place");
            at = record.end();
        }
    }
    assert_eq!(at, recovery.end());
    Ok((recovery.case(), recovery.end()))
}

fn started(disk: &Disk, dir: &Path) -> Result<(Case, Lsn), Refusal> {
    read_all(&log::recover(&fs(disk), dir)?)
}

/// One file is damaged in one way; gives which and how.
fn damage(disk: &Disk, prng: &mut Prng) -> (PathBuf, &'static str) {
    let files = disk.names(dir()).into_iter().filter(|path| {
        path.extension().is_some_and(|end| ["segment", "checkpoint"].iter().any(|known| *known == end))
    });
    let files: Vec<PathBuf> = files.collect();
    let path = files[prng.below(files.len() as u64) as usize].clone();
    let bytes = disk.content(&path).unwrap();
    let what = match prng.below(6) {
        0 => {
            fs(disk).remove(&path).unwrap();
            "removed"
        }
        1 => {
            disk.place(&path, bytes[..prng.below(bytes.len() as u64) as usize].to_vec());
            "cut off"
        }
        2 => {
            disk.place(&path, vec![0; bytes.len()]);
            "zeros"
        }
        3 => {
            disk.flip(&path, prng.below(64 * 8));
            "a bit of its header"
        }
        _ => {
            disk.flip(&path, prng.below(bytes.len() as u64 * 8));
            "a bit"
        }
    };
    (path, what)
}

/// Does what the sentence says; where that leads to less than all, the sentence has said how far.
fn follow(disk: &Disk, refusal: &Refusal, whole: (Case, Lsn), damaged: &Path, content: &[u8]) {
    let put_back = |path: &Path| {
        disk.place(path, content.to_vec());
        assert_eq!(started(disk, dir()).unwrap().1, whole.1, "all is there again");
    };
    let said = refusal.to_string();
    match refusal {
        Refusal::Damaged { path, way, .. } | Refusal::HeaderDamaged { path, way, .. } => {
            take_what_is_intact(disk, *way, &said);
            assert!(said.contains("put it back from a copy"), "{said}");
            put_back(path);
        }
        Refusal::SegmentMissing { way, .. } | Refusal::LastMissing { way, .. } => {
            take_what_is_intact(disk, *way, &said);
        }
        Refusal::CheckpointDamaged { path, is_needed: false, .. } | Refusal::NotOurs(path) => {
            assert!(said.contains("move the file away") || said.contains("move it away"), "{said}");
            fs(disk).remove(path).unwrap();
            assert_eq!(started(disk, dir()).unwrap().1, whole.1, "nothing is lost");
        }
        Refusal::CheckpointDamaged { path, is_needed: true, .. } => {
            assert!(said.contains("put the file back"), "{said}");
            put_back(path);
        }
        Refusal::ImportGone | Refusal::NotComplete | Refusal::LogGone { .. } | Refusal::LogLate { .. } => {
            assert!(said.contains("back from a copy"), "{said}");
            put_back(damaged);
        }
        other => panic!("one damage does not lead to this: {other}"),
    }
}

fn take_what_is_intact(disk: &Disk, way: Option<Lsn>, said: &str) {
    let Some(lsn) = way else {
        assert!(!said.contains("restore"), "{said}");
        return;
    };
    assert!(said.contains(&format!("`tarn restore DIR --to {lsn} --into NEWDIR`")), "{said}");
    let to = Path::new("/copy");
    let restored = log::restore(&fs(disk), dir(), Target::Lsn(lsn), to, &options());
    let restored = restored.unwrap_or_else(|wrong| panic!("{said}: {wrong}"));
    assert_eq!(restored.end, lsn);
    assert_eq!(started(disk, to).unwrap().1, lsn);
}

#[test]
fn a_start_and_check_say_the_same_of_any_damage_and_what_they_say_to_do_is_of_use() {
    let budget = Budget::from_env(1, 1500);
    let (mut done, mut refused, mut harmless) = (0, 0, 0);
    while budget.allows(done) {
        let seed = budget.seed + done;
        println!("TARN_SEED={seed} TARN_STEPS=1");
        done += 1;
        let mut prng = Prng::from_seed(seed);
        let disk = some_log(&mut prng);
        let whole = started(&disk, dir()).unwrap();
        let before: Vec<_> =
            disk.names(dir()).into_iter().map(|path| (disk.content(&path).unwrap(), path)).collect();
        let (path, what) = damage(&disk, &mut prng);
        println!("{}: {what}", path.display());
        let verdict = log::check(&fs(&disk), dir()).unwrap().verdict;
        match (started(&disk, dir()), verdict) {
            (Ok(found), Ok(checked)) => {
                assert_eq!(found, checked);
                assert_eq!(found.1, whole.1, "nothing is left out in silence");
                harmless += 1;
            }
            (Err(refusal), Err(checked)) => {
                assert_eq!(refusal.to_string(), checked.to_string());
                let content = before.iter().find(|(_, before)| *before == path).unwrap();
                follow(&disk, &refusal, whole, &path, &content.0);
                refused += 1;
            }
            (found, checked) => panic!("a start: {found:?}; check: {checked:?}"),
        }
        // Put back, it is as it was.
        for (content, path) in &before {
            disk.place(path, content.clone());
        }
        assert_eq!(started(&disk, dir()).unwrap(), whole);
    }
    println!("{done} damages: {refused} refused, {harmless} harmless");
    assert!(done < 100 || refused > done / 3);
}

/// Files of another log are moved away, and newest segments put back: as the sentences say.
#[test]
fn files_of_two_logs_are_told_apart_and_a_log_that_ends_early_is_put_back() {
    let log_of = |seed, records: u64| {
        let disk = Disk::new(seed);
        let log = log::recover(&fs(&disk), dir()).unwrap().open(&options(), Arc::new(Nobody)).unwrap();
        for at in 0..records {
            log.append(0, UnixMs(at), &log.appended().0.to_le_bytes().repeat(200));
            log.flush();
        }
        let (prng, end) = (&mut Prng::from_seed(seed), log.appended());
        checkpoint(&log, prng, 0);
        log.append(0, UnixMs(records), &end.0.to_le_bytes().repeat(200));
        log.flush();
        log.close().unwrap();
        disk
    };
    let other = log_of(2, 40);
    for stranger in other.names(dir()) {
        if !stranger.extension().is_some_and(|end| end == "segment" || end == "checkpoint") {
            continue;
        }
        let disk = log_of(1, 20);
        let whole = started(&disk, dir()).unwrap();
        if disk.content(&stranger).is_some() {
            continue;
        }
        disk.place(&stranger, other.content(&stranger).unwrap());
        let refusal = started(&disk, dir()).unwrap_err();
        let said = refusal.to_string();
        assert!(said.contains("; move the one away that was put here by mistake"), "{said}");
        let Refusal::Mixed { path, native } = refusal else { panic!("{said}") };
        assert!(path == stranger || native == stranger, "{said}");
        fs(&disk).remove(&stranger).unwrap();
        assert_eq!(started(&disk, dir()).unwrap(), whole);
    }
    let disk = log_of(3, 20);
    let whole = started(&disk, dir()).unwrap();
    let is_late = |path: &PathBuf| {
        let name = path.to_string_lossy();
        name.ends_with(".newest") || name.ends_with(".segment") && *name > *"/log/log-00000000000000005000"
    };
    let late: Vec<_> = disk.names(dir()).into_iter().filter(is_late).collect();
    let contents: Vec<_> = late.iter().map(|path| disk.content(path).unwrap()).collect();
    late.iter().for_each(|path| fs(&disk).remove(path).unwrap());
    let refusal = started(&disk, dir()).unwrap_err();
    assert!(matches!(refusal, Refusal::LogShort { .. }), "{refusal}");
    assert!(refusal.to_string().contains("put the newest segments back from a copy"), "{refusal}");
    late.iter().zip(contents).for_each(|(path, content)| disk.place(path, content));
    assert_eq!(started(&disk, dir()).unwrap(), whole);
}
