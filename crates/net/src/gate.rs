//! Holds replies back until what they reveal is on disk, and on as many replicas as it must be.
//!
//! A session's replies carry what they show ([`Shown`]): up to where in the history its batch has seen what was written, and whether it has
//! written itself. Those whose stamp is not committed wait with their connection (`connection`), which waits here. Who moves the gate (the
//! log's flusher, a replica's acknowledgement) rings a bell for each worker whose connections wait; the worker then wakes those whose turn
//! it is.
//!
//! While there are too few replicas, reads go by the disk alone, and what was written is failed: nobody is told that it was done. In a shard
//! reads go by what all members have, then, too.
//!
//! Writers that somebody has to keep up with can be slowed ([`Gate::slow`]): answers to what they write wait, too, until that is so far.
//!
//! In a shard the master may show something only while it holds time to read ([`Gate::lend`]), and when its reign ends, or a follower's log is cut,
//! a generation ends ([`Gate::begin_generation`]): what waits from before it is never shown, and its connections end; but for what could have gone before it ended, and was
//! only on its way.
//!
//! Thread rule: a [`Queue`] belongs to a worker. Any thread moves the gate and rings; only such threads wait for each other.
//!
//! Invariants:
//! 1. While the gate holds, it is open as far as the log is durable, and no further.
//! 2. For what was written it is open as far as replicas have it, and no further, also while these are too few.
//! 3. Who queues up looks at the gate once more afterwards; who moves the gate looks for bells afterwards. One of the two
//!    sees the other.

use crate::client::Client;
use parking_lot::Mutex;
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::time::Instant;
use sys::{Clock, Shown, Stamp};
use tokio::sync::Notify;

/// The gate, shared by all.
pub struct Gate {
    /// What it goes by. Locked by who moves it.
    state: Mutex<State>,
    /// Up to where replies may go out that only show something.
    open: AtomicU64,
    /// The same for those to what was written.
    open_for_writes: AtomicU64,
    /// While there are too few replicas: behind this, nothing that was written is acknowledged.
    fails_behind: AtomicU64,
    /// Until when anything may be shown, in microseconds by `time`; [`u64::MAX`]: for as long as one likes.
    lent_until: AtomicU64,
    time: Time,
    /// Counts what never goes on from what was before.
    generation: AtomicU64,
    /// How the last one has ended.
    ended: Mutex<Ended>,
    bells: Box<[Bell]>,
    /// Told whenever the log is durable further than before.
    pub committed: Notify,
}

/// What times are told by: never the machine's wall clock, which may be set.
enum Time {
    /// The machine's monotonic clock, from then on.
    Since(Instant),
    /// One that a test moves.
    Of(Clock),
}

/// What the gate goes by.
struct State {
    /// What is on disk.
    durable: Stamp,
    /// Whether replies wait for the disk.
    is_holding: bool,
    /// What as many replicas have as must have it; [`Stamp::LAST`]: none must.
    replicated: Stamp,
    /// Whether there are too few replicas.
    is_short: bool,
    /// Whether there are too few members, and up to where what was written is acknowledged all the same.
    frozen: Option<Stamp>,
    /// Up to where who keeps up with writers lets them be answered; [`Stamp::LAST`]: nobody slows them.
    slowed: Stamp,
}

/// Up to where what was shown in a generation could go when it ended.
#[derive(Default)]
struct Ended {
    generation: Option<u64>,
    written: Stamp,
    read: Stamp,
}

/// A worker's bell, on a cache line of its own.
#[derive(Default)]
#[repr(align(64))]
struct Bell {
    is_awaited: AtomicBool,
    rung: Notify,
}

impl Gate {
    /// A gate that holds nothing back, for so many workers. A clock that a test moves is its clock, too.
    pub fn new(workers: usize, clock: &Clock) -> Gate {
        let (durable, replicated) = (Stamp(0), Stamp::LAST);
        Gate {
            state: Mutex::new(State {
                durable,
                is_holding: false,
                replicated,
                is_short: false,
                frozen: None,
                slowed: Stamp::LAST,
            }),
            open: AtomicU64::new(Stamp::LAST.0),
            open_for_writes: AtomicU64::new(Stamp::LAST.0),
            fails_behind: AtomicU64::new(Stamp::LAST.0),
            lent_until: AtomicU64::new(u64::MAX),
            time: match clock {
                Clock::Real => Time::Since(Instant::now()),
                simulated @ Clock::Simulated(_) => Time::Of(simulated.clone()),
            },
            generation: AtomicU64::new(0),
            ended: Mutex::default(),
            bells: (0..workers).map(|_| Bell::default()).collect(),
            committed: Notify::new(),
        }
    }

    /// Whether replies may go out that show something up to this stamp.
    #[inline]
    pub fn is_open(&self, stamp: Stamp) -> bool {
        stamp <= self.open_to()
    }

    /// Up to where such replies may go out.
    #[inline]
    pub fn open_to(&self) -> Stamp {
        Stamp(self.open.load(Ordering::Acquire))
    }

    /// Whether replies that show this may go out.
    #[inline]
    pub fn is_open_for(&self, shown: Shown) -> bool {
        let is_open = match shown.is_write {
            true => shown.up_to.0 <= self.open_for_writes.load(Ordering::Acquire),
            false => self.is_open(shown.up_to),
        };
        is_open && (shown == Shown::NOTHING || self.has_time())
    }

    #[inline]
    fn has_time(&self) -> bool {
        let until = self.lent_until.load(Ordering::Acquire);
        until == u64::MAX || self.now_us() < until
    }

    fn now_us(&self) -> u64 {
        match &self.time {
            Time::Since(origin) => u64::try_from(origin.elapsed().as_micros()).unwrap_or(u64::MAX - 1),
            Time::Of(clock) => clock.now_us(),
        }
    }

    /// Microseconds since whatever [`Gate::lend`] counts from.
    pub fn time_us(&self) -> u64 {
        self.now_us()
    }

    /// Anything may be shown until then, and no longer; [`u64::MAX`]: for as long as one likes.
    pub fn lend(&self, until_us: u64) {
        let before = self.lent_until.swap(until_us, Ordering::AcqRel);
        if before != u64::MAX && until_us > before && self.now_us() >= before {
            self.ring();
        }
    }

    /// In which generation what is shown now belongs.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// What is held is never shown, nor what is being made. Nobody writes or reads until it returns.
    pub fn begin_generation(&self) {
        let mut ended = self.ended.lock();
        let open = |open: &AtomicU64| Stamp(open.load(Ordering::Acquire));
        // What is committed stays so, and what was read was so while there was time to read.
        let read = if self.has_time() { open(&self.open) } else { Stamp(0) };
        *ended = Ended { generation: Some(self.generation()), written: open(&self.open_for_writes), read };
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether what was made in a generation that is over could go before it ended.
    #[cold]
    pub fn was_open_for(&self, generation: u64, shown: Shown) -> bool {
        let ended = self.ended.lock();
        let up_to = if shown.is_write { ended.written } else { ended.read };
        ended.generation == Some(generation) && self.generation() == generation + 1 && shown.up_to <= up_to
    }

    /// There are too few members, or no longer: what was written and is not committed is failed.
    pub fn freeze(&self, on: bool) {
        self.change(|state| {
            let durable = if state.is_holding { state.durable } else { Stamp::LAST };
            state.frozen = on.then(|| state.frozen.unwrap_or(durable.min(state.replicated)));
        });
    }

    /// Whether what was written up to there is not to be acknowledged: replicas are too few, and have not got it.
    pub fn has_failed(&self, shown: Shown) -> bool {
        shown.is_write && shown.up_to.0 > self.fails_behind.load(Ordering::Acquire)
    }

    /// Notes that the log is durable up to here.
    pub fn commit(&self, durable: Stamp) {
        self.change(|state| state.durable = state.durable.max(durable));
    }

    /// Holds replies back that show what is not durable, or no longer.
    pub fn hold(&self, on: bool) {
        self.change(|state| state.is_holding = on);
    }

    /// Notes that enough replicas have what was written up to here; [`Stamp::LAST`]: none need it.
    pub fn replicate(&self, up_to: Stamp) {
        self.change(|state| state.replicated = state.replicated.max(up_to));
    }

    /// Nothing is known of what replicas have. Only while they are too few, so that what was written is failed, or while nobody reads or writes.
    pub fn forget_replicas(&self) {
        self.change(|state| state.replicated = Stamp(0));
    }

    /// There are too few replicas, or no longer.
    pub fn set_short(&self, on: bool) {
        self.change(|state| state.is_short = on);
    }

    /// Answers to what was written behind this wait, though it is committed; [`Stamp::LAST`]: no longer. Who reads does not wait for it.
    pub fn slow(&self, up_to: Stamp) {
        self.change(|state| state.slowed = up_to);
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock();
        change(&mut state);
        let durable = if state.is_holding { state.durable } else { Stamp::LAST };
        let committed = durable.min(state.replicated);
        let (open, open_for_writes, fails_behind) = match (state.frozen, state.is_short) {
            (Some(frozen), _) => (committed, committed.min(frozen), frozen),
            (None, true) => (durable, committed, state.replicated),
            (None, false) => (committed, committed, Stamp::LAST),
        };
        // Who finds that it is open behind what it wrote finds the whole of it.
        self.open_for_writes.store(open_for_writes.min(state.slowed).0, Ordering::Release);
        self.fails_behind.store(fails_behind.0, Ordering::Release);
        self.open.store(open.0, Ordering::Release);
        drop(state);
        self.ring();
    }

    /// Whether who waits for this has something to do.
    fn lets_go(&self, shown: Shown) -> bool {
        self.is_open_for(shown) || self.has_failed(shown)
    }

    /// Tells those who wait to look again.
    fn ring(&self) {
        fence(Ordering::SeqCst);
        for bell in &self.bells {
            if bell.is_awaited.load(Ordering::Relaxed) && bell.is_awaited.swap(false, Ordering::Relaxed) {
                bell.rung.notify_one();
            }
        }
    }
}

/// The connections of one worker that wait at the gate. Who only reads does not wait behind who writes, who may have been slowed.
#[derive(Default)]
pub struct Queue {
    readers: RefCell<BinaryHeap<Reverse<Waiting>>>,
    writers: RefCell<BinaryHeap<Reverse<Waiting>>>,
}

/// One of them, in the order of stamps.
struct Waiting(Shown, Arc<Client>);

impl Queue {
    /// Wakes a session when the gate is open for this, or it has failed.
    pub fn wait(&self, gate: &Gate, worker: usize, shown: Shown, client: &Arc<Client>) {
        let queue = if shown.is_write { &self.writers } else { &self.readers };
        queue.borrow_mut().push(Reverse(Waiting(shown, client.clone())));
        gate.bells[worker].is_awaited.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if gate.lets_go(shown) {
            gate.bells[worker].rung.notify_one();
        }
    }

    /// Wakes sessions whenever the bell rings, for as long as the worker lives.
    pub async fn attend(&self, gate: &Gate, worker: usize) {
        loop {
            gate.bells[worker].rung.notified().await;
            for queue in [&self.readers, &self.writers] {
                wake_first(&mut queue.borrow_mut(), gate, worker);
            }
        }
    }
}

/// Wakes those whose turn it is.
fn wake_first(queue: &mut BinaryHeap<Reverse<Waiting>>, gate: &Gate, worker: usize) {
    while let Some(Reverse(first)) = queue.peek() {
        if gate.lets_go(first.0) {
            // The gate may be closed again when the session looks: it queues up once more then.
            first.1.set_at_gate(false);
            first.1.wake();
            queue.pop();
            continue;
        }
        gate.bells[worker].is_awaited.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if !gate.lets_go(first.0) {
            break;
        }
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Waiting) -> bool {
        self.0.up_to == other.0.up_to
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Waiting) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Waiting) -> std::cmp::Ordering {
        self.0.up_to.cmp(&other.0.up_to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::{Wake, Waker};
    use sys::UnixMs;

    /// A session that finds the gate closed again when it is woken.
    struct Closes(Arc<Gate>);

    impl Wake for Closes {
        fn wake(self: Arc<Self>) {
            self.0.hold(true);
        }
    }

    fn client(id: u64) -> Arc<Client> {
        Arc::new(Client::new(id, String::new(), String::new(), -1, (0, 0), UnixMs(0)))
    }

    /// Has the worker look once who may go, if its bell has rung.
    fn look(queue: &Queue, gate: &Gate) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            tokio::select! { biased; () = queue.attend(gate, 0) => {}, () = tokio::task::yield_now() => {} }
        });
    }

    #[test]
    fn what_could_go_before_a_generation_ended_may_go_still_and_nothing_else() {
        let gate = Gate::new(1, &Clock::Real);
        gate.hold(true);
        gate.replicate(Stamp(0));
        gate.commit(Stamp(5));
        let write = |at| Shown { up_to: Stamp(at), is_write: true };
        let generation = gate.generation();
        assert!(!gate.was_open_for(generation, write(1)), "it has not ended");
        gate.begin_generation();
        let was_open = |shown| gate.was_open_for(generation, shown);
        assert!(was_open(write(5)) && was_open(Shown::read(Stamp(5))));
        assert!(!was_open(write(6)) && !was_open(Shown::read(Stamp(6))));
        // What comes to be committed later may be another's by then.
        gate.commit(Stamp(9));
        assert!(!was_open(write(6)));
        gate.lend(0);
        let generation = gate.generation();
        gate.begin_generation();
        assert!(gate.was_open_for(generation, write(9)));
        assert!(!gate.was_open_for(generation, Shown::read(Stamp(9))), "there was no time to read");
        assert!(!gate.was_open_for(generation - 1, write(5)), "two have ended since");
    }

    #[test]
    fn who_is_woken_while_the_gate_is_open_for_a_moment_can_queue_up_again() {
        let gate = Arc::new(Gate::new(1, &Clock::Real));
        let client = client(1);
        client.set_waker(&Waker::from(Arc::new(Closes(gate.clone()))));
        gate.hold(true);
        let queue = Queue::default();
        client.set_at_gate(true);
        queue.wait(&gate, 0, Shown::read(Stamp(5)), &client);
        look(&queue, &gate);
        assert!(client.is_at_gate(), "it is not open");
        // `appendfsync` was "everysec" for a moment.
        gate.hold(false);
        look(&queue, &gate);
        assert!(!gate.is_open(Stamp(5)) && !client.is_at_gate());
        queue.wait(&gate, 0, Shown::read(Stamp(5)), &client);
        gate.commit(Stamp(5));
        look(&queue, &gate);
        assert!(queue.readers.borrow().is_empty());
    }

    #[test]
    fn what_was_written_waits_for_replicas_and_fails_where_they_are_too_few() {
        let gate = Gate::new(1, &Clock::Real);
        let (read, write) = (|at| Shown::read(Stamp(at)), |at| Shown { up_to: Stamp(at), is_write: true });
        assert!(gate.is_open_for(write(9)) && !gate.has_failed(write(9)));
        gate.hold(true);
        gate.set_short(true);
        gate.forget_replicas();
        gate.replicate(Stamp(3));
        gate.set_short(false);
        gate.commit(Stamp(5));
        assert!(gate.is_open_for(write(3)) && gate.is_open_for(read(3)));
        assert!(!gate.is_open_for(write(4)) && !gate.is_open_for(read(4)) && !gate.has_failed(write(4)));
        gate.set_short(true);
        assert!(gate.is_open_for(read(5)) && !gate.is_open_for(read(6)));
        assert!(!gate.is_open_for(write(4)) && gate.has_failed(write(4)) && !gate.has_failed(write(3)));
        // They have got it after all.
        gate.replicate(Stamp(4));
        gate.set_short(false);
        assert!(gate.is_open_for(write(4)) && !gate.is_open_for(write(5)) && !gate.has_failed(write(5)));
        // What replicas have need not be on disk here.
        gate.replicate(Stamp(8));
        assert!(gate.is_open_for(write(5)) && !gate.is_open_for(write(6)));
        gate.replicate(Stamp::LAST);
        assert!(!gate.is_open_for(write(6)));
        gate.hold(false);
        assert!(gate.is_open_for(write(99)));
    }

    #[test]
    fn with_too_few_members_reads_go_on_and_what_waits_fails() {
        let gate = Gate::new(1, &Clock::Real);
        let (read, write) = (|at| Shown::read(Stamp(at)), |at| Shown { up_to: Stamp(at), is_write: true });
        gate.forget_replicas();
        gate.replicate(Stamp(3));
        gate.freeze(true);
        assert!(gate.is_open_for(write(3)) && gate.has_failed(write(4)) && !gate.is_open_for(read(4)));
        gate.replicate(Stamp(5));
        assert!(gate.is_open_for(read(5)) && gate.has_failed(write(4)) && !gate.is_open_for(write(4)));
        gate.freeze(true);
        assert!(gate.has_failed(write(4)), "it is frozen where it was");
        gate.freeze(false);
        assert!(gate.is_open_for(write(5)) && !gate.has_failed(write(6)) && !gate.is_open_for(read(6)));
    }

    #[test]
    fn who_reads_does_not_wait_behind_who_is_slowed() {
        let gate = Gate::new(1, &Clock::Real);
        gate.hold(true);
        gate.slow(Stamp(3));
        let queue = Queue::default();
        let (writer, reader) = (client(1), client(2));
        [&writer, &reader].iter().for_each(|client| client.set_at_gate(true));
        queue.wait(&gate, 0, Shown { up_to: Stamp(5), is_write: true }, &writer);
        queue.wait(&gate, 0, Shown::read(Stamp(7)), &reader);
        gate.commit(Stamp(9));
        look(&queue, &gate);
        assert!(writer.is_at_gate() && !reader.is_at_gate());
        gate.slow(Stamp::LAST);
        look(&queue, &gate);
        assert!(!writer.is_at_gate());
    }

    #[test]
    fn who_writes_can_be_slowed_and_who_reads_is_not() {
        let gate = Gate::new(1, &Clock::Real);
        let (read, write) = (|at| Shown::read(Stamp(at)), |at| Shown { up_to: Stamp(at), is_write: true });
        gate.slow(Stamp(3));
        assert!(gate.is_open_for(write(3)) && !gate.is_open_for(write(4)) && gate.is_open_for(read(9)));
        assert!(!gate.has_failed(write(4)), "it only waits");
        // It has not more say than the disk.
        gate.hold(true);
        gate.commit(Stamp(2));
        assert!(!gate.is_open_for(write(3)));
        gate.commit(Stamp(9));
        gate.slow(Stamp(5));
        assert!(gate.is_open_for(write(5)) && !gate.is_open_for(write(6)));
        gate.slow(Stamp::LAST);
        assert!(gate.is_open_for(write(9)) && !gate.is_open_for(write(10)));
    }

    #[test]
    fn what_shows_something_needs_time_to_read() {
        let gate = Gate::new(1, &Clock::Real);
        gate.lend(0);
        assert!(!gate.is_open_for(Shown::read(Stamp(1))) && gate.is_open_for(Shown::NOTHING));
        gate.lend(gate.time_us() + 60_000_000);
        assert!(gate.is_open_for(Shown::read(Stamp(1))));
        gate.lend(u64::MAX);
        assert!(gate.is_open_for(Shown::read(Stamp(1))));
    }
}
