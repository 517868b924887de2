//! Has as many workers active as the load asks for, and busy connections at those.
//!
//! At least `threads-min` are active; where these are all, nothing is measured. Otherwise, while anybody is busy, one task of the spare
//! worker measures some fifty times a second how busy all are ([`super::load`]), asks how many workers that takes ([`super::demand`]),
//! and moves connections that were busy of late: from workers that are not active any more, and from those that have no time left to
//! those that have. Connections that say nothing stay where they are. While nobody is busy it sleeps, until a worker finds that it
//! goes round fast ([`Rounds`]), or somebody who looks now and then that workers are busy though they do not: with commands that take
//! long, or with so many that they never rest ([`Glance`]).

use super::Placement;
use super::demand::{Demand, FULL, Sample};
use super::load::Meter;
use crate::client::{Client, Clients};
use config::Config;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use sys::{TickClock, Ticks};
use telemetry::stats::ServerCounts;
use tokio::sync::Notify;

/// How often it measures.
const SAMPLE_TIME: Duration = Duration::from_millis(20);
/// So many samples in a row that are quiet end the watch.
const QUIET_SAMPLES: u32 = 25;
/// What all workers together use in a quiet sample at the most.
const QUIET: f64 = 0.3;
/// What a worker uses that has a busy connection.
const USED: f64 = 0.02;
/// By how much two workers must differ for connections to move from one to the other.
const UNEVEN: f64 = 0.4;
/// So many samples pass before connections move again because workers differ: what moved shows by then.
const EVEN_OUT_AFTER: u32 = 5;
/// Connections moved at once, at most: each costs two workers some microseconds.
const MOVED_MAX: usize = 128;

/// What a glance is about, at least.
const GLANCE_TIME: Duration = Duration::from_millis(50);

/// So many rounds of a worker, without more than [`FAST`] between them, are a load.
const ROUNDS: u32 = 16;
/// See there.
const FAST: Duration = Duration::from_millis(1);

/// Whether somebody measures.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// Somebody measures, or need not: whoever is busy does not call.
    is_on: AtomicBool,
    wanted: Notify,
    /// How often connections were moved for the load.
    moves: AtomicU64,
}

/// Counts how often a worker has looked for something to do. Its thread's own.
#[derive(Default)]
pub struct Rounds {
    counted: AtomicU32,
    began_ticks: AtomicU64,
}

impl Rounds {
    /// The worker has done all that there was.
    #[inline]
    pub fn count(&self, placement: &Placement, ticks: &TickClock) {
        let counted = self.counted.load(Ordering::Relaxed).saturating_add(1);
        self.counted.store(counted, Ordering::Relaxed);
        if counted >= ROUNDS && !placement.watch.is_on.load(Ordering::Relaxed) {
            self.look(placement, ticks);
        }
    }

    #[cold]
    fn look(&self, placement: &Placement, ticks: &TickClock) {
        let now = ticks.now();
        let rounds = self.counted.swap(0, Ordering::Relaxed);
        let began = Ticks(self.began_ticks.swap(now.0, Ordering::Relaxed));
        if ticks.nanos_between(began, now) < FAST.as_nanos() as u64 * u64::from(rounds) {
            placement.watch.wanted.notify_one();
        }
    }
}

/// Looks how busy all workers were since it looked last. Its thread's own.
pub struct Glance {
    at: Instant,
    used: Duration,
}

impl Glance {
    /// Begins with a server whose workers have done nothing.
    pub fn begin() -> Glance {
        Glance { at: Instant::now(), used: Duration::ZERO }
    }

    /// Has the load followed if there is one. To be called some times a second while anything happens.
    pub fn take(&mut self, placement: &Placement) {
        if placement.watch.is_on.load(Ordering::Relaxed) {
            return;
        }
        let now = Instant::now();
        if self.is_time(now) && self.is_busy(now, placement.threads.used(placement.spare())) {
            placement.watch.wanted.notify_one();
        }
    }

    /// Of a moment it would tell nothing: workers that were just rung for have worked all of it.
    fn is_time(&self, now: Instant) -> bool {
        now.duration_since(self.at) >= GLANCE_TIME
    }

    fn is_busy(&mut self, at: Instant, used: Duration) -> bool {
        let before = std::mem::replace(self, Glance { at, used });
        let busy = used.saturating_sub(before.used);
        busy.as_secs_f64() >= QUIET * at.duration_since(before.at).as_secs_f64()
    }
}

impl Placement {
    /// The calling thread is this worker's.
    pub fn is_mine(&self, worker: usize) {
        self.threads.is_mine(worker);
    }

    /// Has the number of active workers looked at: the least has changed.
    pub fn look_at_load(&self) {
        self.watch.wanted.notify_one();
    }

    /// How often a connection was moved because of the load.
    pub fn moves(&self) -> u64 {
        self.watch.moves.load(Ordering::Relaxed)
    }
}

/// Follows the load, with what that takes.
pub struct Scaling<'a> {
    /// Which worker has which connections.
    pub placement: &'a Placement,
    /// Whose connections they are.
    pub clients: &'a Clients,
    /// Says how many workers are active at the least.
    pub config: &'a Config,
    /// What the workers have done.
    pub counts: &'a ServerCounts,
}

impl Scaling<'_> {
    /// Follows the load for the life of the server. Runs on the spare worker.
    pub async fn run(&self) {
        let placement = self.placement;
        if placement.spare() < 2 {
            return;
        }
        let mut demand = Demand::new();
        placement.active.store(self.least(), Ordering::Relaxed);
        loop {
            // Where all are active anyway, nobody needs to call.
            let is_settled = || placement.active() == placement.spare() && self.least() == placement.spare();
            placement.watch.is_on.store(is_settled(), Ordering::Relaxed);
            placement.watch.wanted.notified().await;
            if is_settled() {
                continue;
            }
            placement.watch.is_on.store(true, Ordering::Relaxed);
            self.watch(&mut demand).await;
        }
    }

    /// How many are active whatever the load is.
    fn least(&self) -> usize {
        self.config.threads_min().clamp(1, self.placement.spare())
    }

    /// Until nobody is busy.
    async fn watch(&self, demand: &mut Demand) {
        let placement = self.placement;
        let mut meter = Meter::begin(&placement.threads, placement.spare(), self.counts);
        let (mut quiet, mut since_even) = (0, 0);
        while quiet < QUIET_SAMPLES {
            tokio::time::sleep(SAMPLE_TIME).await;
            let sample = meter.sample(&placement.threads, self.counts);
            let (asked, least) = (demand.step(&sample), self.least());
            let active = asked.max(least);
            let before = placement.active.swap(active, Ordering::Relaxed);
            self.gather(&sample, active);
            since_even += 1;
            if active > before && active == least {
                self.spread(active);
            } else if active > before || since_even >= EVEN_OUT_AFTER {
                since_even = 0;
                self.even_out(&sample, active);
            }
            let is_quiet = active == before && sample.busy.iter().sum::<f64>() < QUIET;
            quiet = if is_quiet { quiet + 1 } else { 0 };
        }
    }

    /// Brings busy connections of workers that are not active to those that are.
    fn gather(&self, sample: &Sample, active: usize) {
        let is_stray = |worker: usize| worker >= active && sample.busy[worker] >= USED;
        if !(active..sample.busy.len()).any(is_stray) {
            return;
        }
        let strays = self.busy_clients(|client| is_stray(client.home()));
        let mut targets: Vec<usize> = (0..active).collect();
        targets.sort_by(|one, other| sample.busy[*one].total_cmp(&sample.busy[*other]));
        for (client, target) in strays.iter().take(MOVED_MAX).zip(targets.iter().cycle()) {
            self.send(client, *target);
        }
    }

    /// Has all active workers serve as many connections, whatever these do.
    fn spread(&self, active: usize) {
        for (client, target) in self.clients.all().iter().zip((0..active).cycle()) {
            if client.home() != target {
                self.send(client, target);
            }
        }
    }

    /// Gives a part of what a worker without time has to one that has some: the fullest to the emptiest, and so on.
    fn even_out(&self, sample: &Sample, active: usize) {
        let mut workers: Vec<usize> = (0..active.min(sample.busy.len())).collect();
        workers.sort_by(|one, other| sample.busy[*other].total_cmp(&sample.busy[*one]));
        for rank in 0..workers.len() / 2 {
            let (full, empty) = (workers[rank], workers[workers.len() - 1 - rank]);
            let (much, little) = (sample.busy[full], sample.busy[empty]);
            if much < FULL || much - little < UNEVEN {
                return;
            }
            let clients = self.busy_clients(|client| client.home() == full);
            // One that fills a worker alone would make the other the full one, and come back.
            let clients = lightest_first(clients, |client| client.commands());
            // Half of the difference is what both have the same with; who is alone with its load keeps its worker.
            let part = (clients.len() as f64 * (much - little) / much / 2.0).ceil() as usize;
            for client in clients.iter().take(part.min(clients.len().saturating_sub(1)).min(MOVED_MAX)) {
                self.send(client, empty);
            }
        }
    }

    fn send(&self, client: &Client, worker: usize) {
        client.settle_at(worker);
        self.placement.watch.moves.fetch_add(1, Ordering::Relaxed);
    }

    /// Clients that sent something of late, of those of which `wanted` holds.
    fn busy_clients(&self, wanted: impl Fn(&Client) -> bool) -> Vec<Arc<Client>> {
        let since = self.clients.clock().now().0.saturating_sub(2 * SAMPLE_TIME.as_millis() as u64);
        let mut clients = self.clients.all();
        clients.retain(|client| wanted(client) && client.active_at_ms.load(Ordering::Relaxed) >= since);
        clients
    }
}

/// Those first that have done the least. What they have done grows meanwhile, so each is asked once: a sort whose keys change while it compares them
/// may panic.
fn lightest_first<T>(mut all: Vec<T>, done: impl Fn(&T) -> u64) -> Vec<T> {
    all.sort_by_cached_key(done);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_put_in_order_while_they_do_more() {
        let asked = std::cell::Cell::new(0);
        for _ in 0..10_000 {
            // As workers count meanwhile: a key is another each time that it is looked at.
            let counts: Vec<_> = (0..50).map(|number| std::cell::Cell::new(number * 7 % 50)).collect();
            let ordered = lightest_first((0..50).collect(), |one: &usize| {
                asked.set(asked.get() + 1);
                counts[*one].replace(counts[*one].get() + asked.get() % 61)
            });
            assert_eq!(ordered.len(), 50);
        }
    }

    #[test]
    fn workers_that_use_much_time_are_busy_however_slowly_they_go_round() {
        let mut glance = Glance::begin();
        let ms = Duration::from_millis;
        let began = glance.at;
        assert!(!glance.is_time(began + ms(1)) && glance.is_time(began + ms(100)));
        assert!(!glance.is_busy(began + ms(100), ms(20)));
        assert!(glance.is_busy(began + ms(200), ms(110)));
        assert!(!glance.is_busy(began + ms(700), ms(115)));
        // Two workers that are busy a little are as busy as one.
        assert!(glance.is_busy(began + ms(800), ms(150)));
    }
}
