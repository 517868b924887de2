//! Where clients wait, for those who wake them: at which servers, and by which number they are known there.
//!
//! Thread rule: shared.

use crate::links::own::Lane;
use crate::upstream::NodeNo;
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// All that wait.
#[derive(Default)]
pub struct Waits(Mutex<BTreeMap<Lane, (NodeNo, i64)>>);

impl Waits {
    /// A client waits at a server, by this number there.
    pub fn begin(&self, lane: Lane, at: (NodeNo, i64)) {
        self.0.lock().insert(lane, at);
    }

    /// It does not wait any more.
    pub fn end(&self, lane: Lane) {
        self.0.lock().remove(&lane);
    }

    /// Where a client waits.
    pub fn of(&self, client: u64) -> Vec<(NodeNo, i64)> {
        self.0.lock().range(Lane::all_of(client)).map(|(_, at)| *at).collect()
    }
}
