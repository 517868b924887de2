//! What happens without a client asking, ten times a second on every worker:
//! expired keys are freed, eviction that was cut short goes on, and memory that
//! is no longer used goes back to the system; on the spare worker also clients
//! that were silent or unread for too long are closed.

use crate::blocking;
use crate::client::{Client, Traits, eviction};
use crate::dispatch::checks;
use crate::dispatch::pause::Pause;
use crate::durability;
use crate::log;
use crate::residency;
use crate::server::{Attention, Server};
use crate::snapshot;
use crate::tracking;
use crate::worker::Worker;
use keyspace::Progress;
use std::mem;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;
use sys::UnixMs;

/// The longest that a worker frees expired keys before it looks at its clients again.
const SWEEP_STEP: Duration = Duration::from_micros(500);

/// Memory that became free goes back to the system when it is at least this much
/// and an eighth of what was used.
const RELEASE_BYTES_MIN: u64 = 32 << 20;

/// Runs for the life of worker number `index`.
pub async fn run(worker: Rc<Worker>, index: usize) {
    let mut ticks = 0u64;
    let mut freed = Freed::default();
    // What is done once for all is done where no script runs.
    let is_first = index == worker.server.placement.spare();
    loop {
        let hz = u64::from(worker.server.config.hz().max(1));
        tokio::time::sleep(Duration::from_millis(1000 / hz)).await;
        ticks += 1;
        if is_first && worker.server.attention().contains(Attention::PAUSED) {
            // Forgets one that is over, whether or not a client asks.
            Pause::at(&worker.server, worker.server.clock.now());
        }
        if worker.server.attention().contains(Attention::LOADING) {
            continue;
        }
        sweep(&worker.server, index).await;
        go_on_evicting(&worker.server, index);
        if ticks.is_multiple_of(hz) {
            freed.give_back(&worker.server, index);
        }
        if is_first {
            sample(&worker.server);
        }
        if is_first {
            snapshot::begin_if_due(&worker.server, index, ticks.is_multiple_of(hz));
        }
        if is_first && ticks.is_multiple_of(hz) {
            durability::begin_if_due(&worker.server);
        }
        if is_first && ticks.is_multiple_of(hz) {
            close_overdue_clients(&worker.server);
        }
    }
}

/// Frees the keys of this worker's slots whose time is up. However many there
/// are, clients are served in between. During a pause nothing changes by itself.
async fn sweep(server: &Arc<Server>, worker: usize) {
    while !server.attention().contains(Attention::PAUSED) && sweep_step(server, worker) == Progress::More {
        tokio::task::yield_now().await;
    }
}

fn sweep_step(server: &Arc<Server>, worker: usize) -> Progress {
    // A worker that waited for a slow script could not serve those who want to end it.
    let is_slow = server.attention().contains(Attention::SLOW_SCRIPT);
    let batch = if is_slow { None } else { server.keyspace.try_enter(worker, Duration::ZERO) };
    let Some(mut batch) = batch else { return Progress::Done };
    let began = server.ticks.now();
    let budget = server.ticks.ticks_in(SWEEP_STEP);
    let has_budget = || server.ticks.now().0.saturating_sub(began.0) < budget;
    let progress = batch.sweep_expired(server.clock.now(), has_budget, |_, _| {});
    if batch.has_ready() {
        blocking::serve(server, &mut batch, worker, server.clock.now());
    }
    tracking::end_batch(server, worker);
    residency::fetch::look_up_all(server, worker, batch.take_shadowed());
    server.note_latency("expire-cycle", began);
    progress
}

/// A batch evicts only so much before it serves its client.
fn go_on_evicting(server: &Server, worker: usize) {
    if server.attention().difference(Attention::MONITORS) == Attention::MEMORY_CEILING
        && checks::is_memory_full(server)
        && server.residency.refusal().is_none()
    {
        // Where the policy allows nothing to be freed, the next write is told.
        let Some(mut batch) = server.keyspace.try_enter(worker, Duration::ZERO) else { return };
        let _ = checks::make_room(server, &batch, server.clock.now());
        if batch.has_ready() {
            blocking::serve(server, &mut batch, worker, server.clock.now());
        }
        tracking::end_batch(server, worker);
    }
}

/// How a worker gives memory back that is no longer used: once much is free every worker collects what
/// others freed of its pages; a second later, when all have, a thread of its own hands
/// it to the system, which takes too long for a worker.
#[derive(Default)]
struct Freed {
    /// The most that was used since memory was last given back.
    held_bytes: u64,
    is_collected: bool,
}

impl Freed {
    /// To be called once a second.
    fn give_back(&mut self, server: &Server, worker: usize) {
        if mem::take(&mut self.is_collected) && worker == 0 {
            let work = || {
                sys::process::yield_to_other_threads();
                sys::memory::release();
            };
            // Without a thread it stays with the allocator, for what is stored next.
            let _ = thread::Builder::new().name("release".to_owned()).spawn(work);
        }
        let used = sys::memory::used_bytes();
        let is_much = self.held_bytes.saturating_sub(used) >= RELEASE_BYTES_MIN.max(self.held_bytes / 8);
        if !is_much && !residency::is_tight(server) {
            self.held_bytes = self.held_bytes.max(used);
            return;
        }
        sys::memory::collect();
        *self = Freed { held_bytes: used, is_collected: true };
    }
}

fn sample(server: &Server) {
    let counts = &server.counts;
    let totals = [counts.commands.get(), counts.input_bytes.get(), counts.output_bytes.get()];
    server.samples.take(server.clock.now(), totals);
    server.samples.note_used_bytes(sys::memory::used_bytes());
}

fn close_overdue_clients(server: &Server) {
    let now = server.clock.now();
    for client in server.clients.all() {
        match reason_to_close(server, &client, now) {
            None => continue,
            Some(Overdue::Silent) => log!(Verbose, "Closing idle client {}", client.line(now)),
            Some(Overdue::Unread) => {
                server.counts.output_limit_disconnections.add(1);
                log!(
                    Warning,
                    "Client closed because it was above the soft limit of client-output-buffer-limit for too \
                     long: {}",
                    client.line(now)
                );
            }
        }
        server.clients.kill(&client);
    }
    // The limit itself may have changed.
    eviction::keep_within_limit(server);
}

/// Why a client is closed.
enum Overdue {
    /// It sent and read nothing for longer than `timeout`.
    Silent,
    /// Its replies were above the soft limit for too long.
    Unread,
}

fn reason_to_close(server: &Server, client: &Client, now: UnixMs) -> Option<Overdue> {
    // Who only listens, or is held back by the server itself, has no reason to speak.
    const MAY_BE_SILENT: Traits = Traits::MONITOR
        .union(Traits::SUBSCRIBED)
        .union(Traits::REPLICA)
        .union(Traits::PAUSED)
        .union(Traits::BLOCKED);
    let timeout_ms = u64::from(server.config.timeout_s()) * 1000;
    let idle_ms = now.0.saturating_sub(client.active_at_ms.load(Ordering::Relaxed));
    if timeout_ms > 0 && idle_ms > timeout_ms && !client.traits().intersects(MAY_BE_SILENT) {
        return Some(Overdue::Silent);
    }
    let limit = server.config.output_limit(client.class());
    let since = client.over_soft_limit_since_ms.load(Ordering::Relaxed);
    let over_ms = now.0.saturating_sub(since);
    (since > 0 && limit.soft_bytes > 0 && over_ms > limit.soft_s * 1000).then_some(Overdue::Unread)
}
