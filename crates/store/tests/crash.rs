//! The store on a simulated disk: whatever is cut, torn, refused or damaged, every record to which the last complete checkpoint's
//! index refers is there and right, and damage is an error, never a value.
//!
//! A workload drives the store from a seed as its owner would: it writes records of all sizes through chunks, several at once,
//! overwrites and removes them, cleans, and takes checkpoints step by step with all that in between. `TARN_SEED` and `TARN_STEPS`
//! (seeds to try) repeat and lengthen it.

#![allow(clippy::unwrap_used)] // Tests may.

mod owner;

use owner::{SEGMENT_PAGES, Work, dir, options, verify};
use store::{ReadError, Store, Wrong};
use sys::Prng;
use sys::file::Fs;
use sys::file::simulated::{Disk, Faults, Survival};
use testkit::seed::Budget;

/// As many seeds as the environment says.
fn seeds(count: u64) -> impl Iterator<Item = u64> {
    let budget = Budget::from_env(1, count);
    (0..).take_while(move |done| budget.allows(*done)).map(move |done| budget.seed + done)
}

/// All ways in which the power can leave a disk; the seed is for those by chance.
fn survivals(seed: u64) -> [(u64, Survival); 4] {
    [(seed, Survival::Nothing), (seed, Survival::All), (seed, Survival::Chance), (seed + 1, Survival::Chance)]
}

/// Works for so many steps, or until the power goes.
fn run(disk: &Disk, seed: u64, steps: u64) -> Option<Work> {
    let mut work = Work::create(disk, seed)?;
    for _ in 0..steps {
        work.step();
    }
    Some(work)
}

#[test]
fn a_power_cut_at_every_change_of_the_disk_leaves_the_last_checkpoint_whole() {
    let (mut cases, mut checkpoints) = (0, 0);
    for seed in seeds(5) {
        let whole = Disk::new(seed);
        let work = run(&whole, seed, 150).unwrap();
        checkpoints += work.checkpoints;
        for cut in 0..=whole.changes() {
            let disk = Disk::with_faults(seed, Faults { cut_at_change: Some(cut), ..Faults::default() });
            let Some(work) = run(&disk, seed, 150) else { continue };
            for (seed, survival) in survivals(seed * 1000 + cut) {
                let found = verify(&disk.power_cut(seed, survival), &work.complete, seed);
                assert!(found.is_ok(), "TARN_SEED={seed} cut {cut} {survival:?}: {}", found.unwrap_err());
                cases += 1;
            }
        }
    }
    println!("{cases} power cuts, {checkpoints} checkpoints");
    assert!(checkpoints > 5);
}

#[test]
fn a_crash_after_a_crash_after_a_crash_leaves_the_last_checkpoint_whole() {
    let mut reused = 0;
    for seed in seeds(60) {
        let mut prng = Prng::from_seed(seed);
        let mut disk = Disk::new(seed);
        let mut complete = None;
        for life in 0..8 {
            let work = match complete.take() {
                None => Work::create(&disk, seed),
                Some(complete) => Some(Work::open(&disk, seed * 100 + life, complete).unwrap()),
            };
            disk.set_faults(Faults { cut_at_change: Some(60 + prng.below(300)), ..Faults::default() });
            let Some(mut work) = work else { break };
            let steps = 50 + prng.below(150);
            (0..steps).for_each(|_| work.step());
            reused += work.reused();
            complete = work.complete.take();
            drop(work);
            disk = disk.power_cut(prng.next_u64(), Survival::Chance);
            let found = verify(&disk, &complete, seed * 100 + life + 50);
            assert!(found.is_ok(), "TARN_SEED={seed} life {life}: {}", found.unwrap_err());
            if complete.is_none() {
                break;
            }
        }
    }
    assert!(reused > 100, "files are used again: {reused}");
}

#[test]
fn errors_and_a_full_disk_lose_nothing_and_pass() {
    let (mut failed_syncs, mut failed_writes) = (0, 0);
    for seed in seeds(150) {
        let mut prng = Prng::from_seed(seed);
        let often = |prng: &mut Prng| if prng.one_in(2) { 0 } else { 5 + prng.below(40) };
        let faults = Faults {
            write_error_one_in: often(&mut prng),
            short_write_one_in: often(&mut prng),
            sync_error_one_in: often(&mut prng),
            space_bytes: prng.one_in(2).then(|| 300_000 + prng.below(1_000_000)),
            ..Faults::default()
        };
        let disk = Disk::new(seed);
        let mut work = Work::create(&disk, seed).unwrap();
        (0..20).for_each(|_| work.step());
        disk.set_faults(faults);
        for _ in 0..200 {
            work.step();
        }
        failed_syncs += work.failed_syncs;
        failed_writes += work.failed_writes;
        for (cut_seed, survival) in survivals(seed * 1000) {
            let found = verify(&disk.power_cut(cut_seed, survival), &work.complete, cut_seed);
            assert!(found.is_ok(), "TARN_SEED={seed} {survival:?}: {}", found.unwrap_err());
        }
        // Once the disk does its work again, all of it can be read, cleaned and kept.
        disk.set_faults(Faults::default());
        work.read_all();
        let before = work.checkpoints;
        work.going = None;
        // A segment is not cleaned while a chunk is on its way to it.
        work.write_held();
        for _ in 0..200 {
            work.clean();
            work.continue_checkpoint();
            if work.checkpoints > before {
                break;
            }
        }
        assert!(work.checkpoints > before, "TARN_SEED={seed}: {:?}", work.store.sync());
        work.read_all();
        let found = verify(&disk.power_cut(seed, Survival::Nothing), &work.complete, seed);
        assert!(found.is_ok(), "TARN_SEED={seed}: {}", found.unwrap_err());
    }
    println!("{failed_syncs} failed checkpoints, {failed_writes} failed writes");
    assert!(failed_syncs > 10 && failed_writes > 10);
}

#[test]
fn a_bit_turned_over_is_found_and_never_read_as_a_value() {
    let (mut refused, mut harmless, mut cases) = (0, 0, 0);
    for seed in seeds(6) {
        let disk = Disk::new(seed);
        let mut work = run(&disk, seed, 150).unwrap();
        work.checkpoint();
        let complete = work.complete.take().unwrap();
        let mut prng = Prng::from_seed(seed);
        for path in
            disk.names(dir()).into_iter().filter(|path| path.extension().is_some_and(|end| end == "store"))
        {
            let bits = disk.content(&path).unwrap().len() as u64 * 8;
            for _ in 0..bits.min(30) {
                let damaged = disk.power_cut(seed, Survival::Nothing);
                damaged.flip(&path, prng.below(bits));
                let fs = Fs::Simulated(damaged.clone());
                let report = store::check(&fs, dir(), &complete.table).unwrap();
                let found: u64 = report.segments.iter().map(|segment| segment.damaged_pages).sum();
                let store = Store::open(&fs, dir(), &options(seed), &complete.table).unwrap();
                let mut errors = 0;
                for (key, entry) in &complete.index {
                    match store.read(entry.database(), key, entry.page) {
                        Ok(record) => assert_eq!(record.unwrap().image, entry.image(), "TARN_SEED={seed}"),
                        Err(ReadError::Damage(_)) => errors += 1,
                        Err(other) => panic!("{other}"),
                    }
                }
                assert!(errors == 0 || found > 0, "TARN_SEED={seed}: reading finds what looking does not");
                assert!(found <= 1);
                refused += u32::from(errors > 0);
                harmless += u32::from(errors == 0);
                cases += 1;
            }
        }
    }
    println!("{cases} flips, {refused} seen by reads, {harmless} not");
    assert!(refused > 20 && harmless > 20);
}

#[test]
fn what_lay_there_before_a_write_that_got_lost_is_damage() {
    let (mut cases, mut stale) = (0, 0);
    for seed in seeds(20) {
        let disk = Disk::new(seed);
        let mut work = run(&disk, seed, 120).unwrap();
        let before: Vec<_> = disk.names(dir()).into_iter().map(|path| (disk.content(&path), path)).collect();
        (0..300).for_each(|_| work.step());
        work.write_held();
        work.checkpoint();
        let complete = work.complete.take().unwrap();
        for (key, entry) in &complete.index {
            let (no, at) =
                (entry.page.get() / SEGMENT_PAGES, (entry.page.get() % SEGMENT_PAGES) as usize * 4096);
            let path = dir().join(format!("{no:010}.store"));
            let old = before.iter().find(|(_, name)| *name == path).and_then(|(content, _)| content.as_ref());
            let mut content = disk.content(&path).unwrap();
            let Some(old) =
                old.and_then(|old| old.get(at..at + 4096)).filter(|old| **old != content[at..at + 4096])
            else {
                continue;
            };
            content[at..at + 4096].copy_from_slice(old);
            let lossy = disk.power_cut(seed, Survival::Nothing);
            lossy.place(&path, content);
            let store = Store::open(&Fs::Simulated(lossy), dir(), &options(seed), &complete.table).unwrap();
            let read = store.read(entry.database(), key, entry.page);
            let Err(ReadError::Damage(damage)) = read else { panic!("TARN_SEED={seed}: {read:?}") };
            stale += u32::from(damage.wrong == Wrong::Stale);
            cases += 1;
        }
    }
    println!("{cases} writes lost, {stale} of them over an earlier use of the file");
    assert!(stale > 100);
}

#[test]
fn a_disk_that_does_not_read_is_told_from_damage() {
    let disk = Disk::new(1);
    let mut work = run(&disk, 1, 150).unwrap();
    work.checkpoint();
    disk.set_faults(Faults { read_error_one_in: 3, ..Faults::default() });
    let mut errors = 0;
    for (key, entry) in &work.index {
        match work.store.read(entry.database(), key, entry.page) {
            Ok(record) => assert_eq!(record.unwrap().image, entry.image()),
            Err(ReadError::Disk { .. }) => errors += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert!(errors > 3);
}

/// The canary: a disk that reports syncs and does none must be noticed.
#[test]
fn completing_a_checkpoint_before_a_sync_is_noticed() {
    let mut noticed = 0;
    for seed in 0..20 {
        let disk = Disk::with_faults(seed, Faults { lies: true, ..Faults::default() });
        let work = run(&disk, seed, 150).unwrap();
        noticed += u32::from(verify(&disk.power_cut(seed, Survival::Chance), &work.complete, seed).is_err());
    }
    assert!(noticed > 15, "{noticed} of 20");
}
