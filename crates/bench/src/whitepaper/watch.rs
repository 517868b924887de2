//! Watches what a server takes of memory and disk while a workload runs, beside the load and the rounds.
//!
//! A thread of its own looks at the server's resident memory every 100 ms, as the kernel tells it, from before the warm-up to
//! the end. What its store did is the difference between its INFO before and after. A server on another machine is
//! not watched; one that is gone at the end has only what the thread saw.

use crate::client::Client;
use crate::plan::Target;
use crate::report::Residence;
use crate::usage;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How often the memory is looked at: what a server takes for less long is a peak that no neighbour notices.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A server that is being watched.
pub struct Watched {
    process: Option<u32>,
    before: Counts,
    has_ended: Arc<AtomicBool>,
    looks: Option<JoinHandle<Looks>>,
}

/// What the thread saw.
#[derive(Default)]
struct Looks {
    count: u64,
    rss_bytes_max: u64,
}

/// What a server has done since its start, as far as it or the kernel says.
#[derive(Default)]
struct Counts {
    commands: Option<u64>,
    cold_reads: Option<u64>,
    disk_read_bytes: Option<u64>,
    disk_written_bytes: Option<u64>,
}

impl Watched {
    /// Begins to watch; none if the server cannot be reached, which the measurement will say better.
    pub fn begin(target: &Target) -> Option<Watched> {
        let mut client = Client::connect(target).ok()?;
        let info = client.info();
        let process = usage::local_process(&client, &info);
        let has_ended = Arc::new(AtomicBool::new(false));
        let looks = process.and_then(|process| {
            let has_ended = has_ended.clone();
            thread::Builder::new().name("watch".to_owned()).spawn(move || look(process, &has_ended)).ok()
        });
        Some(Watched { process, before: Counts::of(&info, process), has_ended, looks })
    }

    /// Ends and tells what was seen of the server of that name.
    pub fn end(mut self, server: &str, target: &Target) -> Residence {
        self.has_ended.store(true, Ordering::Relaxed);
        let looks = self.looks.take().and_then(|looks| {
            looks.thread().unpark();
            looks.join().ok()
        });
        let info = Client::connect(target).map(|mut client| client.info()).unwrap_or_default();
        let after = Counts::of(&info, self.process);
        let since = |after: Option<u64>, before: Option<u64>| Some(after?.saturating_sub(before?));
        let cold_reads = since(after.cold_reads, self.before.cold_reads);
        let commands = since(after.commands, self.before.commands);
        let hit_ratio = cold_reads.zip(commands.filter(|commands| *commands > 0));
        Residence {
            server: server.to_owned(),
            looks: looks.as_ref().map_or(0, |looks| looks.count),
            rss_bytes_max: looks.map(|looks| looks.rss_bytes_max).filter(|bytes| *bytes > 0),
            cold_reads,
            hit_ratio: hit_ratio.map(|(cold, all)| 1.0 - cold.min(all) as f64 / all as f64),
            disk_read_bytes: since(after.disk_read_bytes, self.before.disk_read_bytes),
            disk_written_bytes: since(after.disk_written_bytes, self.before.disk_written_bytes),
            store: store_fields(&info),
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.has_ended.store(true, Ordering::Relaxed);
    }
}

fn look(process: u32, has_ended: &AtomicBool) -> Looks {
    let mut looks = Looks::default();
    loop {
        // The last look comes after the end: a short load may have filled all of its memory since the one before.
        let is_last = has_ended.load(Ordering::Relaxed);
        looks.count += 1;
        looks.rss_bytes_max = looks.rss_bytes_max.max(usage::resident_bytes(process));
        if is_last {
            return looks;
        }
        thread::park_timeout(LOOK_EVERY);
    }
}

impl Counts {
    fn of(info: &str, process: Option<u32>) -> Counts {
        let field = |name| usage::field(info, name)?.parse().ok();
        let accounts = process.map(|process| fs::read_to_string(format!("/proc/{process}/io")));
        let accounts = accounts.and_then(Result::ok).unwrap_or_default();
        let account = |name| usage::field(&accounts, name)?.parse().ok();
        Counts {
            commands: field("total_commands_processed"),
            cold_reads: field("store_cold_reads"),
            disk_read_bytes: account("read_bytes"),
            disk_written_bytes: account("write_bytes"),
        }
    }
}

/// What INFO says of a store, in its order.
fn store_fields(info: &str) -> Vec<(String, String)> {
    let fields = info.lines().filter_map(|line| line.trim().split_once(':'));
    let of_store = fields.filter(|(name, _)| name.starts_with("store_") && !name.ends_with("_human"));
    of_store.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_fields_of_the_store_are_kept() {
        let info = "used_memory:7\r\nstore_bytes:9\r\nstore_bytes_human:9B\r\nstore_hit_ratio:0.5000\r\n";
        let kept = store_fields(info);
        assert_eq!(
            kept,
            [("store_bytes", "9"), ("store_hit_ratio", "0.5000")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
        );
    }

    #[test]
    fn this_process_is_seen_by_its_memory_and_its_disk() {
        let process = std::process::id();
        let has_ended = AtomicBool::new(false);
        let looks = thread::scope(|scope| {
            let looks = scope.spawn(|| look(process, &has_ended));
            has_ended.store(true, Ordering::Relaxed);
            looks.thread().unpark();
            looks.join().unwrap()
        });
        assert!(looks.count > 0 && looks.rss_bytes_max > 0);
        let counts = Counts::of("store_cold_reads:3\r\n", Some(process));
        assert!(counts.disk_written_bytes.is_some() && counts.commands.is_none());
        assert_eq!(counts.cold_reads, Some(3));
    }

    #[test]
    fn a_server_that_is_not_there_is_not_watched() {
        assert!(Watched::begin(&Target { port: 1, ..Target::default() }).is_none());
    }
}
