//! A failover by hand, if there is one: how far it is, and who is to be master. Who acts on it is above (`following`).
//!
//! Thread rule: one lock, of the state. What is put into the stream for replicas alone is put there under it, so that nothing comes
//! between the look at what the target has and the end of this server's reign. It is locked before the state of `followed`.

use crate::followed::Master;
use parking_lot::{Condvar, Mutex, MutexGuard};
use sys::UnixMs;

/// How far a failover is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stage {
    /// There is none.
    #[default]
    None,
    /// Writes are paused until the target has all there is.
    Waiting,
    /// This server follows the target, which is to become master.
    HandingOver,
    /// It is given up: this server becomes master again.
    GivenUp,
}

/// What is known of a failover.
#[derive(Debug, Default)]
pub struct State {
    /// How far it is.
    pub stage: Stage,
    /// Counts failovers: who waits for an older one has nothing to do any more.
    pub number: u64,
    /// Who is to be master; None: whoever is first to have all.
    pub target: Option<Master>,
    /// Until when it waits for that; None: for as long as it takes.
    pub until: Option<UnixMs>,
    /// The target is to be master then, whatever it has.
    pub is_forced: bool,
    /// The target was asked, and the link broke before its answer: it may be master already.
    pub is_in_doubt: bool,
    /// The client that gave the last one up, and waits for its end.
    pub given_up_by: Option<u64>,
}

/// A failover by hand.
#[derive(Debug, Default)]
pub struct Failover {
    /// What is known. Held for a moment only.
    pub state: Mutex<State>,
    /// It is over, or somebody waits for the next look.
    pub changed: Condvar,
}

impl Failover {
    /// How far it is.
    pub fn stage(&self) -> Stage {
        self.state.lock().stage
    }

    /// Whether there is one.
    pub fn is_on(&self) -> bool {
        self.stage() != Stage::None
    }

    /// Redis' word for INFO.
    pub fn word(&self) -> &'static str {
        match self.stage() {
            Stage::None => "no-failover",
            Stage::Waiting => "waiting-for-sync",
            Stage::HandingOver | Stage::GivenUp => "failover-in-progress",
        }
    }

    /// Lets something be put into the stream for replicas alone while this is held; None: nothing may be any more.
    pub fn hold_off(&self) -> Option<MutexGuard<'_, State>> {
        Some(self.state.lock()).filter(|state| matches!(state.stage, Stage::None | Stage::Waiting))
    }

    /// Whether heartbeats are left out: a failover that has an end can do without, and each of them is one more thing to wait for.
    pub fn is_quiet(&self) -> bool {
        let state = self.state.lock();
        state.stage != Stage::None && state.until.is_some()
    }
}
