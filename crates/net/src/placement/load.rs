//! How busy workers and the machine are, by the kernel's own accounts: what a thread counted of itself would not know how long it
//! did not run.
//!
//! Thread rule: one thread measures; workers say once who they are.

use super::demand::Sample;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use sys::process;
use telemetry::stats::ServerCounts;

/// The system's numbers of the workers' threads.
#[derive(Debug)]
pub(super) struct Threads(Box<[OnceLock<u32>]>);

impl Threads {
    /// For so many workers.
    pub(super) fn new(workers: usize) -> Threads {
        Threads((0..workers).map(|_| OnceLock::new()).collect())
    }

    /// The calling thread is this worker's.
    pub(super) fn is_mine(&self, worker: usize) {
        // A worker has one thread for its whole life.
        let _ = self.0[worker].set(process::thread_id());
    }

    /// What the first `workers` of them have used of the processor, together.
    pub(super) fn used(&self, workers: usize) -> Duration {
        (0..workers).map(|worker| self.cpu_time(worker)).sum()
    }

    fn cpu_time(&self, worker: usize) -> Duration {
        self.0[worker].get().map_or(Duration::ZERO, |thread| process::thread_cpu_time(*thread))
    }
}

/// What was measured last.
#[derive(Debug)]
pub(super) struct Meter {
    at: Instant,
    busy: Vec<Duration>,
    idle: Duration,
    requests: u64,
    reads: u64,
}

impl Meter {
    /// Begins with the first `workers` of them, and with what `counts` holds by now.
    pub(super) fn begin(threads: &Threads, workers: usize, counts: &ServerCounts) -> Meter {
        Meter {
            at: Instant::now(),
            busy: (0..workers).map(|worker| threads.cpu_time(worker)).collect(),
            idle: process::machine_idle_time(),
            requests: counts.commands.get(),
            reads: counts.reads.get(),
        }
    }

    /// What happened since it was asked last.
    pub(super) fn sample(&mut self, threads: &Threads, counts: &ServerCounts) -> Sample {
        let now = Meter::begin(threads, self.busy.len(), counts);
        let elapsed = now.at.duration_since(self.at).as_secs_f64().max(1e-3);
        let share = |now: Duration, before: Duration| now.saturating_sub(before).as_secs_f64() / elapsed;
        let busy =
            now.busy.iter().zip(&self.busy).map(|(now, before)| share(*now, *before).min(1.0)).collect();
        let (requests, reads) =
            (now.requests.saturating_sub(self.requests), now.reads.saturating_sub(self.reads));
        let requests_per_read = requests as f64 / reads.max(1) as f64;
        let sample = Sample { busy, idle_cores: share(now.idle, self.idle), requests_per_read };
        *self = now;
        sample
    }
}
