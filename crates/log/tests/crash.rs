//! The log on a simulated disk: whatever is cut, torn, refused or damaged, a start finds all that was acknowledged, in
//! order, and no part of a record.
//!
//! A workload drives the log by hand from a seed and keeps a ledger of what it appended and of what was said to be durable.
//! The power goes at every change of the disk, or within every byte of the last group; then the log is recovered and
//! compared with the ledger. `TARN_SEED` and `TARN_STEPS` (seeds to try) repeat and lengthen it.

#![allow(clippy::unwrap_used)] // Tests may.

mod nobody;

use log::{CheckpointWriter, Flushing, Log, Lsn, Options, Refusal, Retention, SyncPolicy};
use nobody::Nobody;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use sys::file::Fs;
use sys::file::simulated::{Disk, Faults, Survival};
use sys::{Clock, Prng, UnixMs};
use testkit::seed::Budget;

const SEGMENT_BYTES: u64 = 24 * 1024;

fn dir() -> &'static Path {
    Path::new("/log")
}

/// As many seeds as the environment says.
fn seeds(count: u64) -> impl Iterator<Item = u64> {
    let budget = Budget::from_env(1, count);
    (0..).take_while(move |done| budget.allows(*done)).map(move |done| budget.seed + done)
}

/// What was appended, and what was promised.
#[derive(Clone, Debug, Default)]
struct Ledger {
    /// Where each record begins, and its payload.
    records: Vec<(Lsn, Vec<u8>)>,
    /// The log said that it is durable up to here.
    durable: Lsn,
    /// Where checkpoints began that were reported complete.
    checkpoint: Option<Lsn>,
}

impl Ledger {
    /// Where the last record ends that is durable as a whole: a large one becomes durable bit by bit.
    fn promised(&self) -> Lsn {
        let ends = self.records.iter().map(|(lsn, payload)| lsn.0 + payload.len() as u64);
        Lsn(ends.take_while(|end| *end <= self.durable.0).last().unwrap_or(0))
    }
}

/// A log under work.
struct Work {
    prng: Prng,
    log: Option<Log>,
    ledger: Ledger,
    clock: Clock,
    checkpoint: Option<CheckpointWriter>,
}

fn options(clock: &Clock) -> Options {
    let flushing = Flushing::ByHand;
    Options { segment_bytes: SEGMENT_BYTES, flushing, clock: clock.clone(), ..Options::default() }
}

impl Work {
    /// Opens the log on a disk. None if the disk refuses.
    fn begin(disk: &Disk, seed: u64) -> Option<Work> {
        let clock = Clock::simulated(UnixMs(1_700_000_000_000));
        let recovery = log::recover(&Fs::Simulated(disk.clone()), dir()).ok()?;
        let log = recovery.open(&options(&clock), Arc::new(Nobody)).ok()?;
        let prng = Prng::from_seed(seed);
        Some(Work { prng, log: Some(log), ledger: Ledger::default(), clock, checkpoint: None })
    }

    fn log(&self) -> &Log {
        self.log.as_ref().unwrap()
    }

    fn append(&mut self, bytes: usize) {
        let begin = self.log().appended();
        let word = self.prng.next_u64().to_le_bytes();
        let payload: Vec<u8> = word.iter().copied().cycle().take(bytes.max(1)).collect();
        let end = self.log().append(7, self.clock.now(), &payload);
        assert_eq!(end.0 - begin.0, payload.len() as u64);
        self.ledger.records.push((begin, payload));
    }

    fn flush(&mut self) {
        self.log().flush();
        let durable = self.log().durable();
        assert!(durable >= self.ledger.durable, "what was durable stays durable");
        self.ledger.durable = durable;
    }

    /// One step: mostly records and syncs, now and then a large one, a checkpoint, another policy.
    fn step(&mut self) {
        match self.prng.below(20) {
            0..=7 => {
                let bytes = self.prng.below(700) as usize;
                self.append(bytes);
            }
            8 => {
                let bytes = self.prng.below(3 * SEGMENT_BYTES) as usize;
                self.append(bytes);
            }
            9..=15 => self.flush(),
            16 => self.clock.advance_ms(1 + self.prng.below(1200)),
            17 => {
                let policies = [SyncPolicy::Always, SyncPolicy::EverySecond, SyncPolicy::Never];
                // Mostly the one that promises most.
                let policy = policies[self.prng.below(6).saturating_sub(3) as usize];
                self.log().set_sync_policy(policy);
            }
            18 => self.continue_checkpoint(),
            _ => {
                let retention = match self.prng.below(3) {
                    0 => Retention::None,
                    1 => Retention::Milliseconds(2000),
                    _ => Retention::Bytes(4 * SEGMENT_BYTES),
                };
                // A disk that refuses leaves more than is needed.
                let _ = self.log().retire(retention);
            }
        }
    }

    fn continue_checkpoint(&mut self) {
        let Some(mut checkpoint) = self.checkpoint.take() else {
            self.checkpoint = self.log().begin_checkpoint(self.log().appended()).ok();
            return;
        };
        let content = checkpoint.start().0.to_le_bytes().repeat(50);
        if checkpoint.chunk(&content).is_err() {
            return;
        }
        let end = self.log().appended();
        self.log().request_sync();
        self.flush();
        let start = checkpoint.start();
        if self.log().finish_checkpoint(checkpoint, end).is_ok() {
            self.ledger.checkpoint = Some(start);
        }
    }
}

/// Whether a disk, as it is after a crash, holds what the ledger promises. Gives where the log ends.
fn verify(disk: &Disk, ledger: &Ledger) -> Result<Lsn, String> {
    let recovery =
        log::recover(&Fs::Simulated(disk.clone()), dir()).map_err(|refusal| refusal.to_string())?;
    if recovery.end() < ledger.promised() {
        return Err(format!("the log ends at {}, {} was durable", recovery.end(), ledger.promised()));
    }
    if recovery.checkpoint().map(log::Checkpoint::start) < ledger.checkpoint {
        return Err("a checkpoint is gone".to_owned());
    }
    if let Some(checkpoint) = recovery.checkpoint() {
        while let Some(chunk) = checkpoint.next_chunk().map_err(|refusal| refusal.to_string())? {
            assert_eq!(chunk, checkpoint.start().0.to_le_bytes().repeat(50));
        }
    }
    let first = ledger.records.partition_point(|(lsn, _)| *lsn < recovery.start());
    let mut expected = ledger.records[first..].iter();
    let mut at = recovery.start();
    let mut blocks = recovery.replay();
    while let Some(block) = blocks.next_block().map_err(|refusal| refusal.to_string())? {
        for record in block.records() {
            let (lsn, payload) = expected.next().ok_or("there is more than was appended")?;
            if (record.lsn, record.payload) != (*lsn, payload.as_slice()) || record.database != 7 {
                return Err(format!("the record at {lsn} is another one"));
            }
            at = record.end();
        }
    }
    if at == recovery.end() {
        Ok(at)
    } else {
        Err(format!("reading ends at {at}, not at {}", recovery.end()))
    }
}

/// Runs a workload of `steps` until the disk's power goes, and gives what was promised until then.
fn run(disk: &Disk, seed: u64, steps: u64) -> Ledger {
    let Some(mut work) = Work::begin(disk, seed) else { return Ledger::default() };
    for _ in 0..steps {
        if work.log().writable().is_err() {
            break;
        }
        work.step();
    }
    work.ledger
}

/// All ways in which the power can leave a disk; the seed is for those by chance.
fn survivals(seed: u64) -> [(u64, Survival); 4] {
    [(seed, Survival::Nothing), (seed, Survival::All), (seed, Survival::Chance), (seed + 1, Survival::Chance)]
}

#[test]
fn a_power_cut_at_every_change_of_the_disk_loses_nothing_acknowledged() {
    let mut cases = 0;
    for seed in seeds(12) {
        let whole = Disk::new(seed);
        run(&whole, seed, 60);
        for cut in 0..=whole.changes() {
            let faults = Faults { cut_at_change: Some(cut), ..Faults::default() };
            let disk = Disk::with_faults(seed, faults);
            let ledger = run(&disk, seed, 60);
            for (seed, survival) in survivals(seed * 1000 + cut) {
                let found = verify(&disk.power_cut(seed, survival), &ledger);
                assert!(found.is_ok(), "TARN_SEED={seed} cut {cut} {survival:?}: {}", found.unwrap_err());
                cases += 1;
            }
        }
    }
    println!("{cases} power cuts");
}

#[test]
fn a_power_cut_behind_segments_for_which_there_was_no_descriptor_loses_nothing_acknowledged() {
    let mut cases = 0;
    for seed in seeds(20) {
        let disk = Disk::new(seed);
        let mut work = Work::begin(&disk, seed).unwrap();
        work.append(SEGMENT_BYTES as usize / 2);
        work.flush();
        disk.set_faults(Faults { lacks_descriptors: true, ..Faults::default() });
        work.append(SEGMENT_BYTES as usize);
        for _ in 0..1 + seed % 3 {
            work.clock.advance_ms(10_000);
            work.flush();
            assert!(work.log().writable().is_err());
        }
        let ledger = work.ledger.clone();
        assert!(ledger.promised() > Lsn::ZERO);
        disk.set_faults(Faults::default());
        disk.film();
        work.clock.advance_ms(10_000);
        work.flush();
        assert_eq!(work.log().durable(), work.log().appended());
        for (cut, frame) in disk.take_film().iter().enumerate() {
            for survival_seed in (0..8).map(|turn| seed * 1000 + 10 * cut as u64 + turn) {
                let found = verify(&frame.power_cut(survival_seed, Survival::Chance), &ledger);
                assert!(found.is_ok(), "TARN_SEED={seed} cut {cut}: {}", found.unwrap_err());
                cases += 1;
            }
        }
    }
    println!("{cases} power cuts");
}

#[test]
fn what_a_killed_program_wrote_and_did_not_sync_outlives_a_power_cut_behind_the_next_start() {
    for seed in seeds(20) {
        let disk = Disk::new(seed);
        let mut killed = Work::begin(&disk, seed).unwrap();
        killed.log().set_sync_policy(SyncPolicy::Never);
        for bytes in [100, 9000, 200, 30_000, 1, 5000, 700] {
            killed.append(bytes);
            killed.flush();
        }
        let mut ledger = killed.ledger.clone();
        drop(killed);
        let mut next = Work::begin(&disk, seed + 1).unwrap();
        let end = next.log().appended();
        ledger.records.retain(|(lsn, payload)| lsn.0 + payload.len() as u64 <= end.0);
        assert_eq!(ledger.records.len(), 7, "the system has what was written");
        next.ledger = ledger;
        next.append(100);
        next.flush();
        for (seed, survival) in survivals(seed) {
            let found = verify(&disk.power_cut(seed, survival), &next.ledger);
            assert!(found.is_ok(), "TARN_SEED={seed} {survival:?}: {}", found.unwrap_err());
        }
    }
}

#[test]
fn a_tear_at_every_byte_of_the_last_group_loses_nothing_acknowledged() {
    let mut cases = 0;
    for seed in seeds(4) {
        let disk = Disk::new(seed);
        let mut work = Work::begin(&disk, seed).unwrap();
        (0..20 + seed % 7).for_each(|_| work.step());
        work.log().request_sync();
        work.flush();
        assert_eq!(work.log().durable(), work.log().appended());
        (0..6).for_each(|n| work.append(n * 137));
        // The write goes through, its sync does not.
        disk.set_faults(Faults { cut_at_change: Some(disk.changes() + 1), ..Faults::default() });
        work.log().request_sync();
        work.flush();
        let segments: Vec<PathBuf> = disk.names(dir());
        let torn = segments.iter().map(|path| disk.unsynced_bytes(path)).max().unwrap();
        if torn < 4096 {
            // The segment was full: what failed was to begin the next.
            continue;
        }
        for bytes in 0..=torn {
            let found = verify(&disk.power_cut(seed, Survival::Bytes(bytes)), &work.ledger);
            let end = found.unwrap_or_else(|wrong| panic!("TARN_SEED={seed} tear at {bytes}: {wrong}"));
            assert!(bytes < torn || end == work.log().appended(), "a write that was finished is there");
            cases += 1;
        }
    }
    assert!(cases > 4096);
    println!("{cases} tears");
}

/// Goes through failures until the disk is well again.
fn work_through_faults(seed: u64, prng: &mut Prng) -> Option<(Disk, Work)> {
    let often = |prng: &mut Prng| if prng.one_in(2) { 0 } else { 10 + prng.below(60) };
    let faults = Faults {
        write_error_one_in: often(prng),
        short_write_one_in: often(prng),
        sync_error_one_in: often(prng),
        space_bytes: prng.one_in(2).then(|| 2 * SEGMENT_BYTES + prng.below(8 * SEGMENT_BYTES)),
        ..Faults::default()
    };
    let disk = Disk::new(seed);
    let mut work = Work::begin(&disk, seed)?;
    disk.set_faults(faults);
    for _ in 0..120 {
        work.step();
        if work.log().writable().is_err() {
            // What other workers had begun to execute still comes.
            if work.prng.one_in(4) {
                work.append(100);
            }
            work.clock.advance_ms(600);
            work.flush();
        }
    }
    Some((disk, work))
}

#[test]
fn errors_and_a_full_disk_lose_nothing_acknowledged_and_pass() {
    for seed in seeds(300) {
        let mut prng = Prng::from_seed(seed);
        let Some((disk, mut work)) = work_through_faults(seed, &mut prng) else { continue };
        // A cut in the middle of it all.
        for (cut_seed, survival) in survivals(seed * 1000) {
            let found = verify(&disk.power_cut(cut_seed, survival), &work.ledger);
            assert!(found.is_ok(), "TARN_SEED={seed} {survival:?}: {}", found.unwrap_err());
        }
        // And everything is written once the disk does its work again.
        disk.set_faults(Faults::default());
        work.clock.advance_ms(600);
        work.log().request_sync();
        work.flush();
        assert_eq!(work.log().writable(), Ok(()), "TARN_SEED={seed}");
        assert_eq!(work.log().durable(), work.log().appended(), "TARN_SEED={seed}");
        work.append(50);
        work.log().request_sync();
        work.flush();
        let end = work.log().appended();
        let found = verify(&disk.power_cut(seed, Survival::Nothing), &work.ledger);
        assert_eq!(found, Ok(end), "TARN_SEED={seed}");
    }
}

#[test]
fn a_crash_after_a_crash_after_a_crash_loses_nothing_acknowledged() {
    for seed in seeds(150) {
        let mut prng = Prng::from_seed(seed);
        let mut disk = Disk::new(seed);
        let mut ledger = Ledger::default();
        for life in 0..8 {
            disk.set_faults(Faults { cut_at_change: Some(prng.below(80)), ..Faults::default() });
            if let Some(mut work) = Work::begin(&disk, seed * 100 + life) {
                work.ledger = ledger;
                while work.log().writable().is_ok() {
                    work.step();
                }
                ledger = work.ledger.clone();
            }
            disk = disk.power_cut(prng.next_u64(), Survival::Chance);
            let end = verify(&disk, &ledger);
            let end = end.unwrap_or_else(|wrong| panic!("TARN_SEED={seed} life {life}: {wrong}"));
            // What is there after a crash has been seen, and must stay.
            let kept = ledger.records.partition_point(|(lsn, _)| *lsn < end);
            ledger.records.truncate(kept);
            ledger.durable = end;
        }
    }
}

#[test]
fn a_bit_turned_over_before_the_tail_is_refused_or_harmless() {
    let (mut refused, mut harmless) = (0, 0);
    for seed in seeds(6) {
        let disk = Disk::new(seed);
        let mut work = Work::begin(&disk, seed).unwrap();
        (0..60).for_each(|_| work.step());
        work.log.take().unwrap().close().unwrap();
        work.ledger.durable =
            work.ledger.records.last().map_or(Lsn::ZERO, |(lsn, last)| Lsn(lsn.0 + last.len() as u64));
        assert!(verify(&disk, &work.ledger).is_ok());
        let mut prng = Prng::from_seed(seed);
        for path in disk.names(dir()) {
            let bits = disk.power_cut(seed, Survival::Nothing).content(&path).map_or(0, |bytes| bytes.len())
                as u64
                * 8;
            for _ in 0..bits.min(200) {
                let damaged = disk.power_cut(seed, Survival::Nothing);
                damaged.flip(&path, prng.below(bits));
                match verify(&damaged, &work.ledger) {
                    Ok(_) => harmless += 1,
                    Err(wrong) => {
                        let is_refusal =
                            wrong.contains("damaged") || wrong.contains("is none") || wrong.contains("gone");
                        assert!(is_refusal, "TARN_SEED={seed} {}: {wrong}", path.display());
                        refused += 1;
                    }
                }
            }
        }
    }
    assert!(refused > 0 && harmless > 0);
    println!("{refused} refused, {harmless} harmless");
}

#[test]
fn a_disk_that_does_not_read_is_refused_and_can_be_tried_again() {
    for seed in 0..50 {
        let disk = Disk::new(seed);
        let ledger = run(&disk, seed, 60);
        let disk = disk.power_cut(seed, Survival::Chance);
        disk.set_faults(Faults { read_error_one_in: 5, ..Faults::default() });
        if let Err(refusal) = log::recover(&Fs::Simulated(disk.clone()), dir()) {
            assert!(matches!(refusal, Refusal::Disk { .. }), "{refusal}");
        }
        disk.set_faults(Faults::default());
        assert_eq!(verify(&disk, &ledger).err(), None, "seed {seed}");
    }
}

/// The canary: a disk that reports syncs and does none must be noticed.
#[test]
fn acknowledging_before_a_sync_is_noticed() {
    let mut noticed = 0;
    for seed in 0..20 {
        let disk = Disk::with_faults(seed, Faults { lies: true, ..Faults::default() });
        let ledger = run(&disk, seed, 60);
        noticed += u32::from(verify(&disk.power_cut(seed, Survival::Chance), &ledger).is_err());
    }
    assert!(noticed > 15, "{noticed} of 20");
}
