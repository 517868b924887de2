//! The durable server on a simulated disk: whenever the power goes, a start finds all that clients were told, and no part of
//! what was executed together.
//!
//! A workload drives a server by hand from a seed and keeps a ledger of every key after every record. The disk is filmed: for
//! each of its changes the power is cut there, a server recovers from what is left, and its keys are compared with the
//! ledger where its log ends. `TARN_SEED`, `TARN_STEPS` (seeds to try) and `TARN_SECONDS` repeat and lengthen it.

#![allow(clippy::unwrap_used)] // Tests may.

mod copied;
mod exchanges;
mod held;
mod history;
mod imported;
mod long;
mod moments;
mod older;
mod overlaps;
mod settled;
mod shown;
mod site;
mod transfers;
mod work;

use history::History;
use site::{Site, WORKERS, dir};
use sys::file::Fs;
use sys::file::simulated::{Disk, Faults, Survival};
use sys::{Clock, Prng, UnixMs};
use testkit::generate::words;
use testkit::seed::Budget;
use testkit::spec::{Spec, data_specs};
use work::Work;

/// Steps from a start to a power cut after which another server goes on.
const STEPS: u64 = 45;

/// Starts of one seed.
const LIVES: u64 = 3;

/// Recovered disks that are remembered: one that is the same again need not be recovered again.
const REMEMBERED: usize = 6;

/// Cuts the power, recovers, and compares.
struct Cuts {
    edition: &'static str,
    clock: Clock,
    seed: u64,
    prng: Prng,
    recovered: Vec<(Disk, u64)>,
    cases: u64,
    recoveries: u64,
    /// The first of all that was found wrong; nothing is looked at after it.
    wrong: Option<String>,
}

impl Cuts {
    fn new(edition: &'static str, seed: u64, clock: &Clock) -> Cuts {
        let (clock, prng) = (clock.clone(), Prng::from_seed(!seed));
        Cuts { edition, clock, seed, prng, recovered: Vec::new(), cases: 0, recoveries: 0, wrong: None }
    }

    /// The power goes before each of these changes, and leaves what it may leave.
    fn cut_all(&mut self, history: &History, film: Vec<Disk>) {
        for disk in film {
            self.cut(history, &disk, Survival::Nothing);
            self.cut(history, &disk, Survival::All);
            self.cut(history, &disk, Survival::Chance);
            self.cut(history, &disk, Survival::Chance);
        }
    }

    fn cut(&mut self, history: &History, disk: &Disk, survival: Survival) {
        if self.wrong.is_some() {
            return;
        }
        let after = disk.power_cut(self.prng.next_u64(), survival);
        self.cases += 1;
        let known = self.recovered.iter().find(|(known, _)| known.holds_the_same(&after));
        let result = match known {
            Some((_, end)) => history.check_end(*end),
            None => self.recover(history, &after),
        };
        if let Err(wrong) = result {
            self.wrong = Some(format!("{survival:?} survives: {wrong}"));
        }
    }

    /// What was tried, if nothing was wrong.
    fn verdict(&mut self) -> Result<(), String> {
        self.wrong
            .take()
            .map_or(Ok(()), |wrong| Err(format!("TARN_SEED={} TARN_STEPS=1: {wrong}", self.seed)))
    }

    fn recover(&mut self, history: &History, disk: &Disk) -> Result<(), String> {
        self.recoveries += 1;
        // A start writes: a copy is remembered.
        let copy = disk.power_cut(0, Survival::All);
        check_records(history, disk)?;
        let clock = Clock::simulated(UnixMs(self.clock.now().0 + self.prng.below(300)));
        let threads = 1 + self.prng.below(WORKERS as u64) as usize;
        let site = Site::open(self.edition, disk, self.prng.next_u64(), &clock, threads)
            .map_err(|error| error.to_string())?;
        history.check(&site)?;
        if self.recovered.len() == REMEMBERED {
            self.recovered.remove(0);
        }
        self.recovered.push((copy, site.log().appended().0));
        Ok(())
    }
}

/// Whether the log has one record for each step: only then no cut can come between.
fn check_records(history: &History, disk: &Disk) -> Result<(), String> {
    let recovery =
        log::recover(&Fs::Simulated(disk.clone()), dir()).map_err(|refusal| refusal.to_string())?;
    let mut blocks = recovery.replay();
    while let Some(block) = blocks.next_block().map_err(|refusal| refusal.to_string())? {
        block
            .records()
            .map(|record| record.end().0)
            .filter(|end| *end > history.start())
            .try_for_each(|end| history.check_record(end))?;
    }
    Ok(())
}

/// Some lives of a server, one power cut after the other; all cuts on the way are looked at.
fn live(edition: &'static str, seed: u64, specs: &[Spec], faults: &Faults) -> Result<Cuts, String> {
    let clock = Clock::simulated(UnixMs(1_700_000_000_000));
    let mut prng = Prng::from_seed(seed);
    let mut cuts = Cuts::new(edition, seed, &clock);
    let mut disk = Disk::with_faults(seed, faults.clone());
    let mut known = Vec::new();
    for life in 0..LIVES {
        disk.film();
        let site = Site::open(edition, &disk, prng.next_u64(), &clock, 1 + life as usize % WORKERS);
        let site = site.map_err(|error| error.to_string())?;
        let mut work = Work::new(site, &disk, &clock, specs, prng.next_u64(), known.drain(..));
        cuts.cut_all(&work.history, disk.take_film());
        for _ in 0..STEPS {
            let done = work.step(&mut |history, film| cuts.cut_all(history, film));
            done.map_err(|wrong| format!("TARN_SEED={seed} TARN_STEPS=1: {wrong}"))?;
            cuts.verdict()?;
        }
        let after = disk.power_cut(prng.next_u64(), Survival::Chance);
        cuts.cut_all(&work.history, vec![disk]);
        cuts.verdict()?;
        // What is remembered is of another history.
        cuts.recovered.clear();
        known = work.history.names().collect();
        disk = after;
    }
    Ok(cuts)
}

#[test]
fn a_power_cut_at_every_change_of_the_disk_loses_nothing_told_and_tears_no_record() {
    cut_everywhere("durable");
}

#[test]
fn a_power_cut_while_data_goes_to_the_store_or_is_moved_there_loses_nothing_either() {
    cut_everywhere("capacity");
}

fn cut_everywhere(edition: &'static str) {
    let budget = Budget::from_env(1, 16);
    let specs = data_specs();
    let (mut done, mut cases, mut recoveries) = (0, 0, 0);
    while budget.allows(done) {
        let cuts = live(edition, budget.seed + done, &specs, &Faults::default());
        let cuts = cuts.unwrap_or_else(|wrong| panic!("{wrong}"));
        (cases, recoveries) = (cases + cuts.cases, recoveries + cuts.recoveries);
        done += 1;
    }
    println!("{done} seeds, {cases} power cuts, {recoveries} of them on different disks");
}

#[test]
fn a_tear_at_every_byte_of_the_last_group_loses_nothing_told_and_tears_no_record() {
    let budget = Budget::from_env(1, 6);
    let specs = data_specs();
    let (mut done, mut cases, mut recoveries) = (0, 0, 0);
    while budget.allows(done) {
        let seed = budget.seed + done;
        done += 1;
        let clock = Clock::simulated(UnixMs(1_700_000_000_000));
        let disk = Disk::new(seed);
        let site = Site::open("durable", &disk, seed, &clock, 1).unwrap();
        let mut work = Work::new(site, &disk, &clock, &specs, seed, std::iter::empty());
        let wrong = |wrong: String| panic!("TARN_SEED={seed} TARN_STEPS=1: {wrong}");
        (0..20).for_each(|_| work.step(&mut |_, _| {}).unwrap_or_else(wrong));
        work.flush(&mut |_, _| {});
        (0..6).for_each(|_| work.write().unwrap_or_else(wrong));
        // The write goes through, its sync does not.
        disk.set_faults(Faults { cut_at_change: Some(disk.changes() + 1), ..Faults::default() });
        work.flush(&mut |_, _| {});
        let torn = disk.names(dir()).iter().map(|path| disk.unsynced_bytes(path)).max().unwrap();
        let mut cuts = Cuts::new("durable", seed, &clock);
        for bytes in 0..=torn {
            cuts.cut(&work.history, &disk, Survival::Bytes(bytes));
        }
        cuts.verdict().unwrap_or_else(|wrong| panic!("{wrong}"));
        (cases, recoveries) = (cases + cuts.cases, recoveries + cuts.recoveries);
    }
    println!("{done} seeds, {cases} tears, {recoveries} of them on different disks");
}

#[test]
fn functions_survive_a_restart_and_scripts_do_not() {
    let clock = Clock::simulated(UnixMs(1_700_000_000_000));
    let disk = Disk::new(1);
    let mut site = Site::open("durable", &disk, 1, &clock, 1).unwrap();
    let code =
        "#!lua name=one\nredis.register_function('f', function(keys) return redis.call('GET', keys[1]) end)";
    let load = [
        words(&["FUNCTION", "LOAD", code]),
        words(&["SCRIPT", "LOAD", "return 1"]),
        words(&["SET", "k", "v"]),
    ];
    let (out, _) = site.run(&load);
    let name = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";
    assert_eq!(String::from_utf8_lossy(&out), format!("$3\r\none\r\n$40\r\n{name}\r\n+OK\r\n"));
    assert_eq!(site.run(&[words(&["EVALSHA", name, "0"])]).0, b":1\r\n");
    site.log().flush();
    let after = disk.power_cut(1, Survival::Nothing);
    // Interpreters belong to threads.
    let next = std::thread::spawn(move || {
        let mut site = Site::open("durable", &after, 1, &clock, 1).unwrap();
        site.run(&[words(&["FCALL", "f", "1", "k"]), words(&["EVALSHA", name, "0"])]).0
    });
    let expected = "$1\r\nv\r\n-NOSCRIPT No matching script. Please use EVAL.\r\n";
    assert_eq!(String::from_utf8_lossy(&next.join().unwrap()), expected);
}

/// The canary: a disk that reports syncs and does none must be noticed.
#[test]
fn replies_that_come_before_a_sync_are_noticed() {
    let specs = data_specs();
    let faults = Faults { lies: true, ..Faults::default() };
    let noticed = (1..=5).filter(|seed| live("durable", *seed, &specs, &faults).is_err()).count();
    assert_eq!(noticed, 5);
}
