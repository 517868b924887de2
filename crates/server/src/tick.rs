//! What happens without a client asking: expired keys are freed, eviction that was cut short goes on, memory that
//! is no longer used goes back to the system, and clients that were silent or unread for too long are closed.
//!
//! The spare worker keeps the time, `hz` times a second while anything happens and twice a second while nothing does, or
//! sooner if a key comes due. The others sleep until it rings for them, so that an idle server is idle.

use crate::blocking;
use crate::clustered::Part;
use crate::dispatch::{checks, ownership};
use crate::feeding::{synced, upkeep};
use crate::refusals;
use crate::server::Server;
use engine::Attention;
use engine::durability;
use engine::residency;
use engine::scripts::interpreter;
use engine::snapshot;
use keyspace::Progress;
use net::client::{Client, Traits, eviction};
use net::placement::scaling::Glance;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};
use sys::UnixMs;
use telemetry::{log, rounds};

/// The longest that a worker frees expired keys before it looks at its clients again.
const SWEEP_STEP: Duration = Duration::from_micros(500);

/// How long a worker that is to serve somebody waits before it looks again whether it may enter the keyspace.
const GATE_PAUSE: Duration = Duration::from_millis(1);

/// Memory that became free goes back to the system when it is at least this much
/// and an eighth of what was used.
const RELEASE_BYTES_MIN: u64 = 32 << 20;

/// How long a client may take to agree on keys: all that comes of it before that is no request.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);

/// How often an idle server looks around.
const IDLE_PAUSE: Duration = Duration::from_millis(500);
/// For how long nothing must have happened before a server is idle.
const IDLE_AFTER: Duration = Duration::from_secs(1);

/// Runs for the life of worker number `index`.
pub async fn run(server: &Arc<Server>, index: usize) {
    // What is done once for all is done where no script runs.
    if index == server.net.placement.spare() {
        return keep_time(server, index).await;
    }
    let mut collected = 0;
    loop {
        server.bells.rung(index).await;
        if !server.engine.attention().contains(Attention::LOADING) {
            look_around(server, index, &mut collected).await;
        }
    }
}

/// What every worker does for its part of the keys and of the memory.
async fn look_around(server: &Arc<Server>, worker: usize, collected: &mut u64) {
    serve_put_off(server, worker).await;
    sweep(server, worker).await;
    go_on_evicting(server, worker);
    interpreter::let_go_of_flushed(&server.engine);
    let collections = server.bells.collections();
    if mem::replace(collected, collections) != collections {
        sys::memory::collect();
    }
}

async fn keep_time(server: &Arc<Server>, index: usize) {
    let mut pace = Pace::new();
    let mut glance = Glance::begin();
    let mut freed = Freed::default();
    let mut collected = 0;
    loop {
        tokio::select! {
            () = tokio::time::sleep(pace.pause(server)) => {}
            () = server.bells.rung(index) => {}
        }
        let began = server.ticks.now();
        if server.engine.attention().contains(Attention::PAUSED) {
            // Forgets one that is over, whether or not a client asks.
            server.pause.at(&server.engine, server.engine.clock.now());
        }
        let is_second = pace.step(server);
        if server.engine.attention().contains(Attention::LOADING) {
            continue;
        }
        glance.take(&server.net.placement);
        if server.clustered.get().is_some_and(Part::takes_change) {
            ownership::settle(server, index);
        }
        synced::look_after(server);
        if server.switches.rests() {
            rest(server, index).await;
            continue;
        }
        if is_second {
            freed.give_back(server);
        }
        if is_work_due(server) {
            // Not this one, which looks around anyway: it would be rung at once again, and let nobody else here run.
            server.bells.ring_all_but(index);
        }
        look_around(server, index, &mut collected).await;
        sample(server);
        durability::KeyCounts::note(&server.engine, || server.net.gate.open_to());
        snapshot::begin_if_due(&server.engine, index, is_second);
        if is_second {
            durability::begin_if_due(&server.engine);
            server.engine.durability.log().inspect(|log| log.let_unused_go());
            upkeep::look_after(server);
            server.following.look_after();
            free_beside(server, index);
            close_overdue_clients(server);
        }
        server.net.rounds[index].note_tick(server.ticks.now().0.saturating_sub(began.0));
    }
}

/// What is done while tests have the server do nothing by itself: what clients asked for, or wait for.
async fn rest(server: &Arc<Server>, index: usize) {
    serve_put_off(server, index).await;
    snapshot::begin_if_due(&server.engine, index, false);
}

/// Whether keys are due, or have to be evicted.
fn is_work_due(server: &Server) -> bool {
    let is_due = || server.engine.keyspace.next_sweep_ms(server.engine.clock.now()) == Some(0);
    let may_sweep = !server.engine.attention().contains(Attention::PAUSED) && !server.switches.rests();
    may_sweep && is_due() || is_evicting(server)
}

/// How fast the time goes.
struct Pace {
    second_began: Instant,
    /// Commands that had been run when it looked last.
    commands: u64,
    busy_at: Instant,
}

impl Pace {
    fn new() -> Pace {
        Pace { second_began: Instant::now(), commands: 0, busy_at: Instant::now() }
    }

    /// How long to sleep now.
    fn pause(&self, server: &Server) -> Duration {
        let busy = Duration::from_millis(1000 / u64::from(server.engine.config.hz().max(1)));
        if !server.engine.is_idle() {
            return busy;
        }
        let due = server.engine.keyspace.next_sweep_ms(server.engine.clock.now()).map(Duration::from_millis);
        due.unwrap_or(IDLE_PAUSE).min(IDLE_PAUSE).max(busy)
    }

    /// Looks whether anything happens. Tells once a second that a second has passed.
    fn step(&mut self, server: &Server) -> bool {
        let commands = server.counts.commands.get();
        let is_busy = server.engine.attention().contains(Attention::LOADING) || is_work_due(server);
        if mem::replace(&mut self.commands, commands) != commands || is_busy {
            self.busy_at = Instant::now();
        }
        server.engine.set_idle(self.busy_at.elapsed() >= IDLE_AFTER);
        let is_second = self.second_began.elapsed() >= Duration::from_secs(1);
        if is_second {
            self.second_began = Instant::now();
        }
        is_second
    }
}

/// Serves those who wait for keys that this worker could not hold when it was their turn (see [`blocking::serve`]), also while
/// nothing is swept or evicted: that they were made ready was before.
async fn serve_put_off(server: &Arc<Server>, worker: usize) {
    let mut batch = loop {
        match server.engine.keyspace.try_enter(worker) {
            Some(batch) => break batch,
            // The end of a slow script is rung for, and whoever keeps the time comes here again.
            None if worker == server.net.placement.spare() => return,
            None if server.engine.keyspace.has_any_slow_holder() => return,
            None => tokio::time::sleep(GATE_PAUSE).await,
        }
    };
    if batch.has_ready() {
        blocking::serve(server, &mut batch, worker, server.engine.clock.now());
        server.tracking.end_batch(&server.net.clients, worker);
    }
}

/// Frees the keys of this worker's slots whose time is up. However many there
/// are, clients are served in between. During a pause nothing changes by itself.
async fn sweep(server: &Arc<Server>, worker: usize) {
    let may_sweep = || !server.engine.attention().contains(Attention::PAUSED) && !server.switches.rests();
    while may_sweep() && sweep_step(server, worker) == Progress::More {
        tokio::task::yield_now().await;
    }
}

fn sweep_step(server: &Arc<Server>, worker: usize) -> Progress {
    let Some(mut batch) = server.engine.keyspace.try_enter(worker) else { return Progress::Done };
    let began = server.ticks.now();
    let budget = server.ticks.ticks_in(SWEEP_STEP);
    let has_budget = || server.ticks.now().0.saturating_sub(began.0) < budget;
    let progress = batch.sweep_expired(server.engine.clock.now(), has_budget, |_, _| {});
    if batch.has_ready() {
        blocking::serve(server, &mut batch, worker, server.engine.clock.now());
    }
    server.tracking.end_batch(&server.net.clients, worker);
    residency::fetch::look_up_all(&server.engine, worker, batch.take_shadowed());
    server.note_latency("expire-cycle", began);
    progress
}

/// Frees the keys that clients have written beside the master and whose time is up, of which that says nothing.
fn free_beside(server: &Arc<Server>, worker: usize) {
    let keyspace = &server.engine.keyspace;
    if keyspace.remembered_beside() == 0 || server.engine.attention().contains(Attention::PAUSED) {
        return;
    }
    let Some(mut batch) = keyspace.try_enter(worker) else { return };
    if server.engine.attention().contains(Attention::LOADING_BESIDE) {
        // What is written now may come behind the copy that takes the place of all. Whoever was here before has left since that was said.
        return;
    }
    let now = server.engine.clock.now();
    batch.sweep_beside(now);
    if batch.has_ready() {
        blocking::serve(server, &mut batch, worker, now);
    }
    server.tracking.end_batch(&server.net.clients, worker);
}

/// Whether memory is full and keys may be evicted.
fn is_evicting(server: &Server) -> bool {
    server.engine.attention().difference(Attention::MONITORS) == Attention::MEMORY_CEILING
        && !server.switches.rests()
        && refusals::is_memory_full(&server.engine, &server.feeding)
        && server.engine.residency.refusal().is_none()
}

/// A batch evicts only so much before it serves its client.
fn go_on_evicting(server: &Server, worker: usize) {
    if is_evicting(server) {
        // Where the policy allows nothing to be freed, the next write is told.
        let Some(mut batch) = server.engine.keyspace.try_enter(worker) else { return };
        let _ = checks::make_room(server, &batch, server.engine.clock.now());
        if batch.has_ready() {
            blocking::serve(server, &mut batch, worker, server.engine.clock.now());
        }
        server.tracking.end_batch(&server.net.clients, worker);
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
    fn give_back(&mut self, server: &Server) {
        if mem::take(&mut self.is_collected) {
            let work = || {
                sys::process::yield_to_other_threads();
                sys::memory::release();
            };
            // Without a thread it stays with the allocator, for what is stored next.
            let _ = thread::Builder::new().name("release".to_owned()).spawn(work);
        }
        let used = sys::memory::used_bytes();
        let is_much = self.held_bytes.saturating_sub(used) >= RELEASE_BYTES_MIN.max(self.held_bytes / 8);
        if !is_much && !residency::is_tight(&server.engine) {
            self.held_bytes = self.held_bytes.max(used);
            return;
        }
        server.bells.ring_for_collection();
        *self = Freed { held_bytes: used, is_collected: true };
    }
}

fn sample(server: &Server) {
    let counts = &server.counts;
    let rounds = rounds::totals(&server.net.rounds);
    let totals = [
        counts.commands.get(),
        counts.input_bytes.get(),
        counts.output_bytes.get(),
        rounds.rounds,
        server.ticks.nanos(rounds.ticks) / 1000,
    ];
    server.samples.take(server.engine.clock.now(), totals);
    server.samples.note_used_bytes(sys::memory::used_bytes());
}

fn close_overdue_clients(server: &Server) {
    let now = server.engine.clock.now();
    for client in server.net.clients.all() {
        match reason_to_close(server, &client, now) {
            None => continue,
            Some(Overdue::Silent) => log!(Verbose, "Closing idle client {}", client.line(now)),
            Some(Overdue::Handshake) => {
                log!(Verbose, "Closing a client that did not finish its handshake {}", client.line(now));
            }
            Some(Overdue::Unread) => {
                server.net.clients.output_limit_disconnections.add(1);
                log!(
                    Warning,
                    "Client closed because it was above the soft limit of client-output-buffer-limit for too \
                     long: {}",
                    client.line(now)
                );
            }
        }
        server.net.clients.kill(&client);
    }
    // The limit itself may have changed.
    eviction::keep_within_limit(&server.net.clients);
}

/// Why a client is closed.
enum Overdue {
    /// It sent and read nothing for longer than `timeout`.
    Silent,
    /// It has been agreeing on keys for longer than [`HANDSHAKE_TIME`].
    Handshake,
    /// Its replies were above the soft limit for too long.
    Unread,
}

fn reason_to_close(server: &Server, client: &Client, now: UnixMs) -> Option<Overdue> {
    // Who only listens, or is held back by the server itself, has no reason to speak; nor has who brings slots, while others bring theirs or the store of decisions is away.
    const MAY_BE_SILENT: Traits = Traits::MONITOR
        .union(Traits::SUBSCRIBED)
        .union(Traits::REPLICA)
        .union(Traits::PAUSED)
        .union(Traits::BLOCKED)
        .union(Traits::OWED)
        .union(Traits::BRINGS);
    let connected_ms = now.0.saturating_sub(client.connected_at.0);
    if client.traits().contains(Traits::HANDSHAKE) && connected_ms > HANDSHAKE_TIME.as_millis() as u64 {
        return Some(Overdue::Handshake);
    }
    let timeout_ms = u64::from(server.engine.config.timeout_s()) * 1000;
    let idle_ms = now.0.saturating_sub(client.active_at_ms.load(Ordering::Relaxed));
    if timeout_ms > 0 && idle_ms > timeout_ms && !client.traits().intersects(MAY_BE_SILENT) {
        return Some(Overdue::Silent);
    }
    let limit = server.engine.config.output_limit(client.class());
    let since = client.over_soft_limit_since_ms.load(Ordering::Relaxed);
    let over_ms = now.0.saturating_sub(since);
    (since > 0 && limit.soft_bytes > 0 && over_ms > limit.soft_s * 1000).then_some(Overdue::Unread)
}
