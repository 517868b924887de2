//! CLIENT PAUSE: until when sessions wait, and with which commands.
//!
//! A pause begins while nobody is in the keyspace: what was checked before it has taken effect, and nothing of that kind takes effect
//! afterwards. Until it ends nothing goes by itself either.
//!
//! Invariant: the engine's attention flag changes under the lock of the state, so that
//! a pause that begins while another is found to be over is not overlooked.

use engine::{Attention, Engine};
use keyspace::KeepsAll;
use net::client::Clients;
use parking_lot::Mutex;
use sys::UnixMs;

/// What a pause holds back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Paused {
    /// Commands that change data.
    Writes,
    /// All commands.
    All,
}

/// The pause in force. Sessions look at it only while the engine's attention flag is set.
#[derive(Debug, Default)]
pub struct Pause {
    state: Mutex<Option<(Paused, UnixMs)>>,
}

impl Pause {
    /// Begins a pause; no other batch is in the keyspace. One that is on already is only made stricter or longer, as
    /// in Redis.
    pub fn begin(&self, engine: &Engine, what: Paused, now: UnixMs, until: UnixMs) {
        let mut state = self.state.lock();
        *state = Some(match *state {
            Some((before, end)) if now < end => (before.max(what), end.max(until)),
            _ => (what, until),
        });
        show(engine, true);
    }

    /// Ends the pause and wakes those who wait for it.
    pub fn end(&self, engine: &Engine, clients: &Clients) {
        let was_on = {
            let mut state = self.state.lock();
            show(engine, false);
            state.take().is_some()
        };
        if was_on {
            clients.wake_all();
        }
    }

    /// What is held back at `now` and until when. A pause that is over is forgotten.
    pub fn at(&self, engine: &Engine, now: UnixMs) -> Option<(Paused, UnixMs)> {
        let mut state = self.state.lock();
        if state.is_some_and(|(_, until)| until <= now) {
            *state = None;
            show(engine, false);
        }
        *state
    }
}

/// Has commands look at the pause, or not. Its state is locked.
fn show(engine: &Engine, is_on: bool) {
    engine.set_attention(Attention::PAUSED, is_on);
    engine.keyspace.keep_all(KeepsAll::Pause, is_on);
}
