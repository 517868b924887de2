//! Who holds keys for long: scripts and functions that are slow, and MIGRATEs that wait for another server.
//!
//! Nobody waits for one with a worker's thread (see [`crate::dispatch::reach`]).
//!
//! Thread rule: any thread. What a run holds is locked behind the list of those that are slow.

use crate::server::{Attention, Server};
use keyspace::Holding;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// What runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A script.
    Script,
    /// The function of this name.
    Function(Vec<u8>),
    /// MIGRATE, which ends by itself.
    Migration,
}

/// A run of a script, of a function or of MIGRATE, as others see it.
pub struct Run {
    /// What runs.
    pub what: What,
    /// The words of the request.
    pub words: Vec<Vec<u8>>,
    /// When it began.
    pub began: Instant,
    /// It has changed something.
    pub wrote: AtomicBool,
    /// Somebody wants it to end.
    pub is_killed: AtomicBool,
    /// What it holds of the keyspace.
    pub holding: Mutex<Holding>,
}

impl Run {
    /// Whether it is a script or a function.
    pub fn is_script(&self) -> bool {
        self.what != What::Migration
    }
}

/// All who hold keys for long.
#[derive(Default)]
pub struct Holders {
    slow: Mutex<Vec<Arc<Run>>>,
}

impl Holders {
    /// The slow scripts and functions.
    pub fn scripts(&self) -> Vec<Arc<Run>> {
        self.slow.lock().iter().filter(|run| run.is_script()).cloned().collect()
    }

    /// Who is in the way of somebody, if `is_in_the_way` says so of what it holds: the script that has run longest, or else a MIGRATE.
    pub fn in_the_way(&self, is_in_the_way: impl Fn(&Holding) -> bool) -> Option<Arc<Run>> {
        let slow = self.slow.lock();
        let in_the_way = slow.iter().filter(|run| is_in_the_way(&run.holding.lock()));
        in_the_way.min_by_key(|run| (!run.is_script(), run.began)).cloned()
    }

    /// Shows a run that takes long: who needs what it holds asks from now on before it waits.
    pub fn add(&self, server: &Server, run: &Arc<Run>) {
        let mut slow = self.slow.lock();
        slow.push(run.clone());
        show(server, &slow);
    }

    /// A slow run holds more than before.
    pub fn note_holding_more(&self, server: &Server) {
        show(server, &self.slow.lock());
    }

    /// A slow run is over. All are woken, as nobody knows who waits for it: each looks, and goes to sleep again if there is nothing to do.
    pub fn remove(&self, server: &Server, run: &Arc<Run>) {
        let mut slow = self.slow.lock();
        slow.retain(|known| !Arc::ptr_eq(known, run));
        show(server, &slow);
        drop(slow);
        server.clients.wake_all();
        // Workers have put off what they could not hold.
        server.bells.ring_all();
    }
}

fn show(server: &Server, slow: &[Arc<Run>]) {
    server.set_attention(Attention::SLOW_SCRIPT, !slow.is_empty());
    server.keyspace.set_slow_holders(slow.iter().map(|run| run.holding.lock().clone()).collect());
}
