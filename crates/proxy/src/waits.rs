//! Who waits, and where, for those who wake them: at which servers, by which number it is known there. A wake counts from the moment in which a client has asked to
//! that in which it is answered, wherever its request is meanwhile: what it was called by is said where it waits next, if it does.
//!
//! Thread rule: shared.

use crate::links::own::Lane;
use crate::upstream::NodeNo;
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// All that wait.
#[derive(Default)]
pub struct Waits(Mutex<State>);

#[derive(Default)]
struct State {
    /// Clients whose requests wait, or may.
    waiting: BTreeMap<u64, Waiting>,
    /// Where they do.
    lanes: BTreeMap<Lane, Place>,
}

struct Waiting {
    ends: Ends,
    called: Option<Called>,
}

#[derive(Default)]
struct Place {
    /// None: it has been asked, and has not begun yet.
    at: Option<(NodeNo, i64)>,
    /// It was woken there.
    is_called: bool,
}

/// Who ends the wait of a client that is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// The servers at which it waits, since they may just have done what it waits for.
    There,
    /// Its worker: nothing is done at servers while it waits.
    Here,
}

/// What a client is told that is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Called {
    /// That there was nothing.
    Timeout,
    /// An error.
    Error,
}

impl Called {
    /// What stands behind the number of a client that is woken so.
    pub fn word(self) -> &'static str {
        match self {
            Called::Timeout => "TIMEOUT",
            Called::Error => "ERROR",
        }
    }
}

impl Waits {
    /// A client waits, or may.
    pub fn begin(&self, client: u64, ends: Ends) {
        self.0.lock().waiting.insert(client, Waiting { ends, called: None });
    }

    /// It does not any more.
    pub fn end(&self, client: u64) {
        self.0.lock().waiting.remove(&client);
    }

    /// A client is about to wait at a server.
    pub fn expect_at(&self, lane: Lane) {
        self.0.lock().lanes.insert(lane, Place::default());
    }

    /// It waits there, by this number. Some: it was called before, and is to be woken there now.
    pub fn begin_at(&self, lane: Lane, at: (NodeNo, i64)) -> Option<Called> {
        let state = &mut *self.0.lock();
        let called = state.waiting.get(&lane.client).filter(|waiting| waiting.ends == Ends::There);
        let called = called.and_then(|waiting| waiting.called);
        state.lanes.insert(lane, Place { at: Some(at), is_called: called.is_some() });
        called
    }

    /// It does not wait there any more. True: it may be woken there still.
    pub fn end_at(&self, lane: Lane) -> bool {
        self.0.lock().lanes.remove(&lane).is_some_and(|place| place.is_called)
    }

    /// Whether a client waits wherever it has asked for that at servers, if it is to be woken there.
    pub fn has_begun(&self, client: u64) -> bool {
        let state = self.0.lock();
        let is_there = state.waiting.get(&client).is_some_and(|waiting| waiting.ends == Ends::There);
        !is_there || state.lanes.range(Lane::all_of(client)).all(|(_, place)| place.at.is_some())
    }

    /// What a client is to be told by its worker, since it was called.
    pub fn called_here(&self, client: u64) -> Option<Called> {
        self.0.lock().waiting.get(&client).filter(|waiting| waiting.ends == Ends::Here)?.called
    }

    /// Wakes a client of which no server knows that it waits: its worker does the rest, now or when one does. False: one knows it, and is to be told. None: it does not
    /// wait.
    pub fn call_here(&self, client: u64, called: Called) -> Option<bool> {
        let state = &mut *self.0.lock();
        let waiting = state.waiting.get_mut(&client)?;
        let mut places = state.lanes.range(Lane::all_of(client));
        let is_known = waiting.ends == Ends::There && places.any(|(_, place)| place.at.is_some());
        if !is_known {
            waiting.called = Some(called);
        }
        Some(!is_known)
    }

    /// Wakes a client at these servers, where it has these numbers. None: it does not wait at any.
    pub fn call(&self, client: u64, called: Called) -> Option<Vec<(NodeNo, i64)>> {
        let state = &mut *self.0.lock();
        let waiting = state.waiting.get_mut(&client).filter(|waiting| waiting.ends == Ends::There)?;
        waiting.called = Some(called);
        let woken = state.lanes.range_mut(Lane::all_of(client)).filter_map(|(_, place)| {
            place.is_called = place.at.is_some();
            place.at
        });
        Some(woken.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_counts_wherever_a_request_is() {
        let (waits, lane) = (Waits::default(), Lane::of_keys(7));
        assert_eq!((waits.call(7, Called::Error), waits.call_here(7, Called::Error)), (None, None));
        waits.begin(7, Ends::There);
        waits.expect_at(lane);
        // It is not known yet at the server.
        assert!(!waits.has_begun(7));
        assert_eq!(waits.call_here(7, Called::Error), Some(true));
        assert_eq!(waits.begin_at(lane, (1, 12)), Some(Called::Error));
        assert!(waits.has_begun(7));
        // It is sent elsewhere from there.
        assert_eq!(waits.call_here(7, Called::Timeout), Some(false));
        assert_eq!(waits.call(7, Called::Timeout), Some(vec![(1, 12)]));
        waits.expect_at(lane);
        assert_eq!(waits.begin_at(lane, (2, 40)), Some(Called::Timeout));
        assert!(waits.end_at(lane), "it may be woken late");
        waits.end(7);
        waits.begin(7, Ends::There);
        assert_eq!((waits.begin_at(lane, (2, 40)), waits.end_at(lane)), (None, false));
        // Nothing of servers is waited for while it is looked what there is.
        waits.begin(8, Ends::Here);
        assert_eq!(waits.called_here(8), None);
        assert_eq!((waits.call(8, Called::Error), waits.called_here(8)), (None, None));
        assert_eq!(waits.call_here(8, Called::Timeout), Some(true));
        assert_eq!((waits.called_here(8), waits.called_here(7)), (Some(Called::Timeout), None));
        waits.begin(8, Ends::Here);
        assert_eq!(waits.called_here(8), None);
    }
}
