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
    /// None: it has been asked, and has not begun yet.
    at: Option<(NodeNo, i64)>,
    /// Somebody has had it woken.
    is_called: bool,
}

impl Waits {
    /// A client is about to wait at a server.
    pub fn expect(&self, lane: Lane) {
        self.0.lock().insert(lane, Waiting { at: None, is_called: false });
    }

    /// It waits there, by this number.
    pub fn begin(&self, lane: Lane, at: (NodeNo, i64)) {
        self.0.lock().insert(lane, Waiting { at: Some(at), is_called: false });
    }

    /// Whether somebody has had it woken where it waits.
    pub fn is_called(&self, lane: Lane) -> bool {
        self.0.lock().get(&lane).is_some_and(|waiting| waiting.is_called)
    }

    /// It does not wait any more. True: it may be woken there still.
    pub fn end(&self, lane: Lane) -> bool {
        self.0.lock().remove(&lane).is_some_and(|waiting| waiting.is_called)
    }

    /// Whether a client waits, and can be woken wherever it does.
    pub fn is_waiting(&self, client: u64) -> bool {
        let waits = self.0.lock();
        let mut waits = waits.range(Lane::all_of(client)).map(|(_, waiting)| waiting.at.is_some()).peekable();
        waits.peek().is_some() && waits.all(|has_begun| has_begun)
    }

    /// Where a client waits that is about to be woken.
    pub fn call(&self, client: u64) -> Vec<(NodeNo, i64)> {
        let called = |(_, waiting): (&Lane, &mut Waiting)| {
            waiting.is_called = waiting.at.is_some();
            waiting.at
        };
        self.0.lock().range_mut(Lane::all_of(client)).filter_map(called).collect()
    }
}
