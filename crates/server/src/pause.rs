//! Pauses: until when sessions wait, and with which commands. CLIENT PAUSE orders one, and a failover and the server's end order their
//! own, which end by themselves only. Who takes a backup of a whole cluster holds writes back for a moment, and has to know that nobody has ended that.
//!
//! A pause begins while nobody is in the keyspace: what was checked before it has taken effect, and nothing of that kind takes effect
//! afterwards. (That of the server's end waits for this once it has begun.) Until it ends nothing goes by itself either.
//!
//! Invariant: the engine's attention flag changes under the lock of the state, so that
//! a pause that begins while another is found to be over is not overlooked.

use engine::{Attention, Engine};
use keyspace::KeepsAll;
use net::client::Clients;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use sys::UnixMs;

/// What a pause holds back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Paused {
    /// Commands that change data.
    Writes,
    /// All commands.
    All,
}

/// Who has ordered a pause, and ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// CLIENT PAUSE.
    Client,
    /// The server's end, which waits for replicas.
    End,
    /// A failover.
    Failover,
    /// A cut through the shards of a cluster ([`Pause::hold`]).
    Cut,
}

const PURPOSES: usize = 4;

/// What is held back, and until when.
type Order = Option<(Paused, UnixMs)>;

#[derive(Debug, Default)]
struct State {
    orders: [Order; PURPOSES],
    /// When the cut ends whatever the wall clock says: nobody else ends what has held writes back for a backup that is no more.
    cut_ends: Option<Instant>,
}

/// The pauses in force. Sessions look at them only while the engine's attention flag is set.
#[derive(Debug, Default)]
pub struct Pause {
    state: Mutex<State>,
    /// The number of the last cut; changed while the state is locked.
    cuts: AtomicU64,
}

impl Pause {
    /// Holds writes back for a cut, and for no longer than that. Gives the number by which it is known; None: another cut is on.
    pub fn hold(&self, engine: &Engine, now: UnixMs, longest: Duration) -> Option<u64> {
        let mut state = self.state.lock();
        if state.is_cut(now, Instant::now()) {
            return None;
        }
        let until = UnixMs(now.0.saturating_add(millis(longest)));
        state.orders[Purpose::Cut as usize] = Some((Paused::Writes, until));
        state.cut_ends = Some(Instant::now() + longest);
        show(engine, true);
        Some(self.cuts.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Whether writes have been held back for this cut without a break since it began.
    pub fn is_held(&self, cut: u64, now: UnixMs) -> bool {
        let state = self.state.lock();
        state.is_cut(now, Instant::now()) && self.cuts.load(Ordering::Relaxed) == cut
    }

    /// Holds nothing back for this cut any more.
    pub fn release(&self, engine: &Engine, clients: &Clients, cut: u64) {
        if self.cuts.load(Ordering::Relaxed) == cut {
            self.end(engine, clients, Purpose::Cut);
        }
    }

    /// Begins a pause. One that is on already for this purpose is only made stricter or longer, as in Redis.
    pub fn begin(&self, engine: &Engine, purpose: Purpose, what: Paused, now: UnixMs, until: UnixMs) {
        let mut state = self.state.lock();
        let order = &mut state.orders[purpose as usize];
        *order = Some(match *order {
            Some((before, end)) if now < end => (before.max(what), end.max(until)),
            _ => (what, until),
        });
        show(engine, true);
    }

    /// Ends what was ordered for a purpose, and wakes those who wait for it.
    pub fn end(&self, engine: &Engine, clients: &Clients, purpose: Purpose) {
        let was_on = {
            let mut state = self.state.lock();
            let was_on = state.orders[purpose as usize].take().is_some();
            show(engine, state.orders.iter().any(Option::is_some));
            was_on
        };
        if was_on {
            clients.wake_all();
        }
    }

    /// Whether what a master wants is held back, too, as long as clients' writes are. A failover, in which the master changes, holds nothing of
    /// the new one's back.
    pub fn holds_stream(&self, now: UnixMs) -> bool {
        let state = self.state.lock();
        let is_on = |purpose: Purpose| state.orders[purpose as usize].is_some_and(|(_, until)| now < until);
        is_on(Purpose::Client) || is_on(Purpose::End)
    }

    /// What is held back at `now` and until when to look again. What is over is forgotten.
    pub fn at(&self, engine: &Engine, now: UnixMs) -> Order {
        let mut state = self.state.lock();
        let instant = Instant::now();
        if !state.is_cut(now, instant) {
            state.orders[Purpose::Cut as usize] = None;
        }
        state.orders.iter_mut().for_each(|order| *order = order.filter(|(_, until)| now < *until));
        let order = state.in_force(now, instant);
        if order.is_none() {
            show(engine, false);
        }
        order
    }
}

impl State {
    /// The strictest of all orders, for as long as none of them ends.
    fn in_force(&self, now: UnixMs, instant: Instant) -> Order {
        let strictest = self.orders.iter().flatten().map(|(what, _)| *what).max()?;
        let until = self.orders.iter().flatten().map(|(_, until)| *until).min()?;
        let cut = self.cut_ends.filter(|_| self.is_cut(now, instant));
        let left = cut.map(|ends| ends.saturating_duration_since(instant));
        // Behind its end, and not in the middle of its last millisecond.
        let cut_until = left.map(|left| UnixMs(now.0.saturating_add(millis(left) + 1)));
        Some((strictest, cut_until.map_or(until, |end| end.min(until))))
    }

    /// Whether writes are held back for a cut. A wall clock that is put back does not make it longer.
    fn is_cut(&self, now: UnixMs, instant: Instant) -> bool {
        let is_over = self.cut_ends.is_none_or(|ends| ends <= instant);
        !is_over && self.orders[Purpose::Cut as usize].is_some_and(|(_, until)| now < until)
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// Has commands look at the pause, or not. Its state is locked.
fn show(engine: &Engine, is_on: bool) {
    engine.set_attention(Attention::PAUSED, is_on);
    engine.keyspace.keep_all(KeepsAll::Pause, is_on);
}
