//! A first start that loads what a Redis left: whenever it is cut short, the next start has all of it, from the files or from the log.

use crate::site::WORKERS;
use config::{Config, Startup};
use engine::durability;
use keyspace::HashSeed;
use log::{Flushing, Options};
use server::assembly;
use server::durable;
use server::server::Server;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use sys::file::Fs;
use sys::file::simulated::{Disk, Faults, Survival};
use sys::{Clock, UnixMs};
use wire::{encode_arg, encode_request_header};

const KEYS: u64 = 300;

/// A directory of the machine with an append-only file, beside which the log lies on a simulated disk. Removed when dropped.
struct Left(PathBuf);

impl Left {
    fn new(name: &str) -> Left {
        let dir = std::env::temp_dir().join(format!("tarn-imported-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let mut requests = Vec::new();
        for key in 0..KEYS {
            encode_request_header(&mut requests, 3);
            [b"SET", format!("key:{key}").as_bytes(), b"value"]
                .iter()
                .for_each(|word| encode_arg(&mut requests, word));
        }
        std::fs::write(dir.join("appendonly.aof"), requests).unwrap();
        Left(dir)
    }

    fn file(&self) -> PathBuf {
        self.0.join("appendonly.aof")
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

fn open(edition: &str, dir: &Path, disk: &Disk) -> io::Result<Arc<Server>> {
    let text =
        format!("port 0\nedition {edition}\ndatabases 1\nthreads 2\nloglevel warning\ndir {}", dir.display());
    let Ok(Startup::Serve { config, .. }) = Config::from_text(text.as_bytes()) else { panic!("{text}") };
    let fs = Fs::Simulated(disk.clone());
    let seed = durability::seed_of_checkpoint(&config, &fs).unwrap_or_else(|| HashSeed::from_number(7));
    let clock = Clock::simulated(UnixMs(1_700_000_000_000));
    server::commands::install();
    let server = assembly::with_seed(*config, WORKERS, clock, seed);
    let options = Options { segment_bytes: 24 * 1024, flushing: Flushing::ByHand, ..Options::default() };
    durable::open_with(&server, &fs, 2, options)?;
    Ok(server)
}

fn keys(server: &Server) -> u64 {
    server.engine.databases().map(|db| server.engine.keyspace.len(db)).sum()
}

/// The first start, filmed; gives the disk as it was before each change and at the end.
fn filmed(edition: &str, left: &Left) -> Vec<Disk> {
    let disk = Disk::new(1);
    disk.film();
    assert_eq!(keys(&open(edition, &left.0, &disk).unwrap()), KEYS);
    let mut film = disk.take_film();
    film.push(disk);
    film
}

#[test]
fn an_import_that_is_cut_short_at_any_change_of_the_disk_is_whole_after_the_next_start() {
    for edition in ["durable", "capacity"] {
        let left = Left::new(edition);
        let film = filmed(edition, &left);
        let mut seen: Vec<Disk> = Vec::new();
        // What the store writes is much of the same.
        for (at, disk) in film.iter().enumerate().rev().step_by(1 + film.len() / 100) {
            for survival in [Survival::All, Survival::Chance] {
                let after = disk.power_cut(at as u64, survival);
                if seen.iter().any(|known| known.holds_the_same(&after)) {
                    continue;
                }
                // A start writes: a copy is remembered.
                seen.push(after.power_cut(0, Survival::All));
                let server = open(edition, &left.0, &after).unwrap();
                assert_eq!(keys(&server), KEYS, "{edition}, before change {at}, {survival:?}");
                drop(server);
                // And once more: what is there now must be on the disk.
                let after = after.power_cut(0, Survival::Nothing);
                std::fs::rename(left.file(), left.0.join("aside")).unwrap();
                let server = open(edition, &left.0, &after).unwrap();
                std::fs::rename(left.0.join("aside"), left.file()).unwrap();
                assert_eq!(
                    keys(&server),
                    KEYS,
                    "{edition}, before change {at}, {survival:?}, without the file"
                );
            }
        }
        println!("{edition}: {} different disks", seen.len());
    }
}

#[test]
fn an_import_that_was_cut_short_is_not_taken_for_an_empty_log_when_its_file_is_gone() {
    let left = Left::new("gone");
    let film = filmed("durable", &left);
    std::fs::remove_file(left.file()).unwrap();
    let (mut refused, mut complete) = (0, 0);
    for disk in &film {
        let after = disk.power_cut(1, Survival::All);
        let has_segment =
            after.names(&left.0).iter().any(|path| path.to_string_lossy().ends_with(".segment"));
        match open("durable", &left.0, &after) {
            Ok(server) if has_segment => {
                assert_eq!(keys(&server), KEYS);
                complete += 1;
            }
            // Nothing was begun: this is a first start.
            Ok(server) => assert_eq!(keys(&server), 0),
            Err(error) => {
                let sentence = error.to_string();
                assert!(
                    sentence.contains("was cut short") && sentence.contains("appendonly.aof"),
                    "{sentence}"
                );
                refused += 1;
            }
        }
    }
    assert!(refused > 0 && complete > 0, "{refused} {complete}");
}

#[test]
fn an_import_for_which_the_disk_is_too_small_is_done_when_there_is_room() {
    let left = Left::new("full");
    let mut failures = 0;
    for space in (0..).map(|step| step * 8 * 1024) {
        let disk = Disk::with_faults(1, Faults { space_bytes: Some(space), ..Faults::default() });
        let is_done = open("durable", &left.0, &disk).is_ok();
        disk.set_faults(Faults::default());
        assert_eq!(keys(&open("durable", &left.0, &disk).unwrap()), KEYS, "after {space} bytes");
        if is_done {
            break;
        }
        failures += 1;
    }
    assert!(failures > 2, "{failures}");
}
