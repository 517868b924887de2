//! CLIENT PAUSE: until when sessions wait, and with which commands.

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

/// The pause in force. Sessions look at it only while the attention flag is set.
#[derive(Debug, Default)]
pub struct Pause {
    state: Mutex<Option<(Paused, UnixMs)>>,
}

impl Pause {
    /// Begins a pause. One that is on already is only made stricter or longer, as
    /// in Redis.
    pub fn begin(&self, what: Paused, until: UnixMs) {
        let mut state = self.state.lock();
        *state = Some(match *state {
            Some((before, end)) => (before.max(what), end.max(until)),
            None => (what, until),
        });
    }

    /// Ends the pause.
    pub fn end(&self) {
        *self.state.lock() = None;
    }

    /// What is held back at `now` and until when.
    pub fn at(&self, now: UnixMs) -> Option<(Paused, UnixMs)> {
        self.state.lock().filter(|(_, until)| now < *until)
    }
}
