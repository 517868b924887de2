//! `proxy-bandwidth-limit`: how many bytes a second are sent to clients and taken from them, together.
//!
//! What is moved is counted as it always is, and weighed against the time that has passed. Where it was too much, clients that have sent something wait in a queue,
//! and are read no further; nobody is closed, and what was begun is ended, so that a reply is never torn. When the time has made up for it, the first of them
//! have their turns: as many as the bytes that may be moved are enough for, by what a turn has moved of late.
//!
//! Thread rule: shared. It is looked on the thread of all that listens, whose turns come late where too much is to be done for all, or for long by no fault of its own: then
//! a worker looks that asks, so that what is moved is bounded by those who move it.
//!
//! Invariants:
//! 1. Who waits is served in the order in which it came, and nobody overtakes those who wait.
//! 2. Who waits has a turn at the latest when what was moved too much, [`DEBT_S`] seconds' worth at most, and what those before it move is made up for.

use crate::limits::{CREDIT_PART, DEBT_S, TURNS_MAX};
use crate::serve::Proxy;
use net::client::{Client, Traits};
use net::service::Service;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

/// How often turns are given.
const TICK: Duration = Duration::from_millis(5);
/// How often it is looked whether it is bounded.
const LOOK: Duration = Duration::from_millis(100);
/// Who asks looks where nobody has for so long.
const LATE_MS: u64 = 50;
/// What a turn is taken to move before one has.
const TURN_BYTES: u64 = 16 << 10;
const NANOS: u128 = 1_000_000_000;

/// The bound, and who is held back by it.
pub struct Bandwidth {
    state: Mutex<State>,
    begun: Instant,
    /// How many milliseconds behind that it was looked last, and it was bounded; 0: it was not.
    looked_ms: AtomicU64,
    /// Whether more was moved than may be when it was looked last, or somebody waits or has a turn.
    is_short: AtomicBool,
    /// Somebody waits.
    begins: Notify,
    /// For how long clients were held back, all together.
    held_back_ms: AtomicU64,
    /// One was at least.
    has_held_back: AtomicBool,
}

impl Default for Bandwidth {
    fn default() -> Bandwidth {
        Bandwidth {
            state: Mutex::default(),
            begun: Instant::now(),
            looked_ms: AtomicU64::new(0),
            is_short: AtomicBool::new(false),
            begins: Notify::default(),
            held_back_ms: AtomicU64::new(0),
            has_held_back: AtomicBool::new(false),
        }
    }
}

/// What becomes of a client that was held back.
enum Turn {
    /// It waits since then.
    Waits(Instant),
    /// It is its turn.
    Comes,
}

struct State {
    /// Bytes a second; 0: it is not bounded.
    limit: u64,
    /// What had been moved then.
    moved: u64,
    at: Instant,
    /// How much more was moved than may be; below 0: less.
    debt: i64,
    /// Who waits, and some who have gone away.
    queue: VecDeque<Arc<Client>>,
    turns: HashMap<u64, Turn>,
    /// What a turn moves.
    turn_bytes: u64,
    /// How many were given last, and what had been moved then.
    given: (u64, u64),
}

/// What is bounded, and by what.
pub struct Figures {
    /// How many bytes were moved.
    moved: u64,
    /// How many may be a second; 0: any number.
    limit: u64,
}

impl Figures {
    /// Those of this moment.
    pub fn of(proxy: &Proxy) -> Figures {
        let counts = proxy.counts();
        let moved = counts.input_bytes.get() + counts.output_bytes.get();
        Figures { moved, limit: proxy.host.engine.config.proxy_bandwidth_limit() }
    }
}

impl Default for State {
    fn default() -> State {
        State {
            limit: 0,
            moved: 0,
            at: Instant::now(),
            debt: 0,
            queue: VecDeque::new(),
            turns: HashMap::new(),
            turn_bytes: TURN_BYTES,
            given: (0, 0),
        }
    }
}

impl State {
    /// So much was moved, at this moment, and so much may be a second.
    fn look(&mut self, limit: u64, moved: u64, now: Instant) {
        if self.limit == 0 || limit == 0 {
            (self.moved, self.at, self.debt) = (moved, now, 0);
        }
        self.limit = limit;
        if limit == 0 {
            return;
        }
        // It begins again at zero with CONFIG RESETSTAT.
        let more = moved.saturating_sub(self.moved);
        let passed = now.saturating_duration_since(self.at).as_nanos();
        let paid = passed.saturating_mul(u128::from(limit)) / NANOS;
        // What is less than a byte is not lost.
        let left = passed - (paid * NANOS).div_ceil(u128::from(limit)).min(passed);
        self.at = now.checked_sub(Duration::from_nanos(u64::try_from(left).unwrap_or(0))).unwrap_or(now);
        self.moved = moved;
        let bound = |bytes: u128| i64::try_from(bytes).unwrap_or(i64::MAX / 4).min(i64::MAX / 4);
        let (limit, debt) = (bound(u128::from(limit)), self.debt + bound(u128::from(more)));
        self.debt = (debt - bound(paid)).clamp(-(limit / CREDIT_PART), limit.saturating_mul(DEBT_S));
    }

    fn is_short(&self) -> bool {
        self.debt > 0 || !self.queue.is_empty()
    }

    /// How many turns are given now.
    fn turns_now(&mut self) -> usize {
        if self.limit == 0 {
            return usize::MAX;
        }
        if self.debt > 0 {
            return 0;
        }
        // What is moved when nobody waits is no turn's.
        let (turns, before) = std::mem::take(&mut self.given);
        if let Some(each) = self.moved.saturating_sub(before).checked_div(turns) {
            self.turn_bytes = ((3 * self.turn_bytes + each) / 4).max(1);
        }
        let enough = self.debt.unsigned_abs() / self.turn_bytes;
        usize::try_from(enough).unwrap_or(TURNS_MAX).clamp(1, TURNS_MAX)
    }

    /// Takes the first of those who wait, whose turns come; gives how long they have waited, together.
    fn take_turns(&mut self, now: Instant) -> (Vec<Arc<Client>>, Duration) {
        if self.queue.is_empty() {
            self.given = (0, 0);
        }
        let (mut left, mut waited, mut taken) = (self.turns_now(), Duration::ZERO, Vec::new());
        while let Some(client) = self.queue.front() {
            // Who has gone away needs none.
            let Some(turn) = self.turns.get_mut(&client.id) else {
                self.queue.pop_front();
                continue;
            };
            let since = if let Turn::Waits(since) = turn { *since } else { now };
            let has_waited = now.saturating_duration_since(since);
            // What is moved beside turns may be more than all that may be: then there is one now and then.
            let is_due = taken.is_empty() && has_waited >= Duration::from_secs(DEBT_S.unsigned_abs());
            if left == 0 && !is_due {
                break;
            }
            *turn = Turn::Comes;
            waited += has_waited;
            left = left.saturating_sub(1);
            taken.extend(self.queue.pop_front());
        }
        if self.limit == 0 {
            // Nobody asks any more whose turn it is.
            self.turns.clear();
        }
        if !taken.is_empty() {
            self.given = (taken.len() as u64, self.moved);
        }
        (taken, waited)
    }
}

impl Bandwidth {
    /// Whether a client that sends something may have to wait, or its turn has come. What was moved by now is asked for where nobody has looked for long.
    #[inline]
    pub fn is_short(&self, figures: impl FnOnce() -> Figures) -> bool {
        let looked_ms = self.looked_ms.load(Ordering::Relaxed);
        if looked_ms > 0 {
            self.look_if_late(looked_ms, Instant::now(), figures);
        }
        self.is_short.load(Ordering::Relaxed)
    }

    fn look_if_late(&self, looked_ms: u64, now: Instant, figures: impl FnOnce() -> Figures) {
        let now_ms = self.ms_at(now);
        let is_late = now_ms.saturating_sub(looked_ms) > LATE_MS;
        let order = Ordering::Relaxed;
        // One does for all.
        if is_late && self.looked_ms.compare_exchange(looked_ms, now_ms, order, order).is_ok() {
            self.look(figures, now);
        }
    }

    fn ms_at(&self, now: Instant) -> u64 {
        let ms = now.saturating_duration_since(self.begun).as_millis();
        u64::try_from(ms).unwrap_or(u64::MAX).max(1)
    }

    /// Whether a client that has sent something is held back. It is woken when its turn comes.
    pub fn holds_back(&self, client: &Arc<Client>) -> bool {
        let mut state = self.state.lock();
        match state.turns.get(&client.id) {
            Some(Turn::Waits(_)) => true,
            Some(Turn::Comes) => {
                state.turns.remove(&client.id);
                false
            }
            // What a connection says first is served: who looks whether the proxy is there is told so.
            None if state.is_short() && client.commands() > 0 => {
                // Nor is it silent.
                client.set_trait(Traits::PAUSED, true);
                state.turns.insert(client.id, Turn::Waits(Instant::now()));
                state.queue.push_back(client.clone());
                self.has_held_back.store(true, Ordering::Relaxed);
                self.begins.notify_one();
                true
            }
            None => false,
        }
    }

    /// A client has gone away.
    pub fn forget(&self, client: &Client) {
        if self.has_held_back.load(Ordering::Relaxed) {
            self.state.lock().turns.remove(&client.id);
        }
    }

    /// For how many milliseconds clients were held back, and how many are.
    pub fn told(&self) -> (u64, usize) {
        let state = self.state.lock();
        let waits = state.turns.values().filter(|turn| matches!(turn, Turn::Waits(_))).count();
        (self.held_back_ms.load(Ordering::Relaxed), waits)
    }

    /// Looks what was moved, and gives turns. Whether it is to be looked again soon: it is bounded.
    fn look(&self, figures: impl FnOnce() -> Figures, now: Instant) -> bool {
        let (taken, waited, limit) = {
            let mut state = self.state.lock();
            // Nobody else has looked since.
            let (Figures { moved, limit }, now) = (figures(), now.max(state.at));
            state.look(limit, moved, now);
            let (taken, waited) = state.take_turns(now);
            // Whoever has a turn has to ask for it.
            let is_short = limit > 0 && (state.is_short() || !state.turns.is_empty());
            self.is_short.store(is_short, Ordering::Relaxed);
            self.looked_ms.store(if limit > 0 { self.ms_at(now) } else { 0 }, Ordering::Relaxed);
            (taken, waited, limit)
        };
        let ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
        self.held_back_ms.fetch_add(ms, Ordering::Relaxed);
        for client in taken {
            client.set_trait(Traits::PAUSED, false);
            client.wake();
        }
        // What is moved until it is looked is moved in any case.
        limit > 0
    }
}

/// Gives turns for as long as there is a proxy.
pub async fn follow(proxy: Arc<Proxy>) {
    let bandwidth = &proxy.bandwidth;
    while !proxy.is_ending() {
        match bandwidth.look(|| Figures::of(&proxy), Instant::now()) {
            true => sleep(TICK).await,
            // Whether somebody waits or the time is up: it is looked again.
            false => drop(timeout(LOOK, bandwidth.begins.notified()).await),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sys::UnixMs;

    fn client(id: u64) -> Arc<Client> {
        let nowhere = || "127.0.0.1:1".to_owned();
        Arc::new(Client::new(id, nowhere(), nowhere(), 0, (0, 0), UnixMs(0)))
    }

    #[test]
    fn what_was_moved_too_much_is_made_up_for_by_time_and_is_bounded() {
        let (mut state, began) = (State::default(), Instant::now());
        let at = |ms| began + Duration::from_millis(ms);
        state.look(1000, 5_000_000, at(0));
        assert_eq!(state.debt, 0, "what was before it was bounded does not count");
        state.look(1000, 5_002_000, at(0));
        assert_eq!(state.debt, 2000);
        // However often it is looked, no time is lost.
        (1..=1500).for_each(|ms| state.look(1000, 5_002_000, at(ms)));
        assert_eq!(state.debt, 500);
        state.look(1000, 5_002_000, at(60_000));
        assert_eq!(state.debt, -100, "what was not used is not kept for long");
        state.look(1000, 9_000_000, at(60_000));
        assert_eq!(state.debt, 1000 * DEBT_S);
        state.look(1000, 100, at(60_000));
        assert_eq!(state.debt, 1000 * DEBT_S, "counts begin again");
        state.look(0, 200, at(60_001));
        assert!(!state.is_short());
    }

    #[test]
    fn who_moves_looks_where_nobody_else_does() {
        let (bandwidth, now) = (Bandwidth::default(), Instant::now());
        let figures = |moved| move || Figures { moved, limit: 1000 };
        let at = |ms| now + Duration::from_millis(ms);
        let is_short = || bandwidth.is_short.load(Ordering::Relaxed);
        let look_if_late = |ms, moved| {
            let looked_ms = bandwidth.looked_ms.load(Ordering::Relaxed);
            bandwidth.look_if_late(looked_ms, at(ms), figures(moved));
        };
        bandwidth.look(figures(0), at(1));
        look_if_late(40, 5000);
        assert!(!is_short(), "it was looked just before");
        look_if_late(100, 5000);
        assert!(is_short(), "nobody has looked since");
        bandwidth.state.lock().queue.push_back(client(1));
        bandwidth.state.lock().turns.insert(1, Turn::Waits(at(100)));
        look_if_late(6000, 5000);
        assert!(matches!(bandwidth.state.lock().turns.get(&1), Some(Turn::Comes)));
        bandwidth.look(|| Figures { moved: 5000, limit: 0 }, at(6010));
        assert!(!bandwidth.is_short(|| panic!("it is not bounded")));
    }

    #[test]
    fn turns_come_in_order_and_not_to_those_who_have_gone_away() {
        let (mut state, now) = (State::default(), Instant::now());
        state.look(1000, 0, now);
        state.look(1000, 500, now);
        for id in [3, 1, 2] {
            state.queue.push_back(client(id));
            state.turns.insert(id, Turn::Waits(now));
        }
        state.turns.remove(&3);
        assert!(state.take_turns(now).0.is_empty() && state.queue.len() == 2, "not yet");
        let later = now + Duration::from_millis(500);
        state.look(1000, 500, later);
        assert_eq!(state.take_turns(later).1, Duration::from_millis(500));
        let comes = |state: &State, id| matches!(state.turns.get(&id), Some(Turn::Comes));
        assert!(comes(&state, 1) && !comes(&state, 2), "one at a time where a turn moves more than may be");
        state.look(1000, 9_000, later);
        assert!(state.take_turns(later).0.is_empty() && !comes(&state, 2));
        // What is moved beside turns is more than may be for ever.
        let late = now + Duration::from_secs(10);
        state.look(1000, 90_000, late);
        assert!(state.debt > 0 && state.take_turns(late).0.len() == 1 && comes(&state, 2));
        state.look(0, 90_000, late);
        state.take_turns(late);
        assert!(state.turns.is_empty() && state.queue.is_empty(), "nobody waits where it is not bounded");
    }
}
