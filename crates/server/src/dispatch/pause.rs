//! CLIENT PAUSE: until when sessions wait, and with which commands.
//!
//! A pause begins while nobody is in the keyspace: what was checked before it has taken effect, and nothing of that kind takes effect
//! afterwards. Until it ends nothing goes by itself either.
//!
//! Invariant: the server's attention flag changes under the lock of the state, so that
//! a pause that begins while another is found to be over is not overlooked.

use crate::server::Server;
use engine::Attention;
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

/// The pause in force. Sessions look at it only while the server's attention flag is set.
#[derive(Debug, Default)]
pub struct Pause {
    state: Mutex<Option<(Paused, UnixMs)>>,
}

impl Pause {
    /// Begins a pause; no other batch is in the keyspace. One that is on already is only made stricter or longer, as
    /// in Redis.
    pub fn begin(server: &Server, what: Paused, now: UnixMs, until: UnixMs) {
        let mut state = server.pause.state.lock();
        *state = Some(match *state {
            Some((before, end)) if now < end => (before.max(what), end.max(until)),
            _ => (what, until),
        });
        server.engine.set_attention(Attention::PAUSED, true);
        server.engine.keyspace.keep_all(true);
    }

    /// Ends the pause and wakes those who wait for it.
    pub fn end(server: &Server) {
        let was_on = {
            let mut state = server.pause.state.lock();
            Pause::forget(server);
            state.take().is_some()
        };
        if was_on {
            server.clients.wake_all();
        }
    }

    /// What is held back at `now` and until when. A pause that is over is forgotten.
    pub fn at(server: &Server, now: UnixMs) -> Option<(Paused, UnixMs)> {
        let mut state = server.pause.state.lock();
        if state.is_some_and(|(_, until)| until <= now) {
            *state = None;
            Pause::forget(server);
        }
        *state
    }

    /// The state is locked.
    fn forget(server: &Server) {
        server.engine.set_attention(Attention::PAUSED, false);
        server.engine.keyspace.keep_all(false);
    }
}
