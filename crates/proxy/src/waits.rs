//! Where clients wait, for those who wake them: at which servers, and by which number they are known there.
//!
//! Thread rule: shared.

use crate::links::own::Lane;
use crate::upstream::NodeNo;
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// All that wait.
#[derive(Default)]
pub struct Waits(Mutex<BTreeMap<Lane, Waiting>>);

struct Waiting {
    at: (NodeNo, i64),
    /// Somebody has had it woken.
    is_called: bool,
}

impl Waits {
    /// A client waits at a server, by this number there.
    pub fn begin(&self, lane: Lane, at: (NodeNo, i64)) {
        self.0.lock().insert(lane, Waiting { at, is_called: false });
    }

    /// It does not wait any more. True: it may be woken there still.
    pub fn end(&self, lane: Lane) -> bool {
        self.0.lock().remove(&lane).is_some_and(|waiting| waiting.is_called)
    }

    /// Whether a client waits.
    pub fn is_waiting(&self, client: u64) -> bool {
        self.0.lock().range(Lane::all_of(client)).next().is_some()
    }

    /// Where a client waits that is about to be woken.
    pub fn call(&self, client: u64) -> Vec<(NodeNo, i64)> {
        let called = |(_, waiting): (&Lane, &mut Waiting)| {
            waiting.is_called = true;
            waiting.at
        };
        self.0.lock().range_mut(Lane::all_of(client)).map(called).collect()
    }
}
