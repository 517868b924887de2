//! Replicas that have left and may come again: from where on each of them will want the stream.
//!
//! One thread at a time. Invariant: a server has one place at the most; those that have not said which server they are share one.

use super::replica::Identity;
use std::collections::BTreeMap;
use sys::UnixMs;

/// Servers that are remembered. Of more the one that left first is given up.
const PLACES_MAX: usize = 64;

/// Those that have left.
#[derive(Default)]
pub struct Away {
    /// When the last one did; None: one has come since, or none ever has.
    since: Option<UnixMs>,
    /// When each left, and the offset behind what it has.
    places: BTreeMap<Identity, (UnixMs, u64)>,
}

impl Away {
    /// One has left. `has`: the offset behind what it has, if that is known; else it is where it came from.
    pub fn leave(&mut self, who: Identity, has: Option<u64>, now: UnixMs) {
        self.since = Some(now);
        has.into_iter().for_each(|has| self.put(who.clone(), has, now));
    }

    /// One has come, and goes on from this offset, or gets a copy.
    pub fn come(&mut self, who: Identity, from: Option<u64>, now: UnixMs) {
        self.since = None;
        match from {
            // Its connection may end before it says that it has more.
            Some(from) => self.put(who, from, now),
            None => self.forget(who),
        }
    }

    fn put(&mut self, who: Identity, has: u64, now: UnixMs) {
        self.places.insert(named(who), (now, has));
        if self.places.len() > PLACES_MAX
            && let Some(first) =
                self.places.iter().min_by_key(|(_, place)| **place).map(|(who, _)| who.clone())
        {
            self.places.remove(&first);
        }
    }

    /// What is known of it is known of somebody who is there.
    pub fn forget(&mut self, who: Identity) {
        self.places.remove(&named(who));
    }

    /// The same of all that left before this.
    pub fn forget_before(&mut self, then: UnixMs) {
        self.places.retain(|_, (left_at, _)| *left_at >= then);
    }

    /// From where on the first of them will want the stream.
    pub fn first(&self) -> Option<u64> {
        self.places.values().map(|(_, has)| *has).min()
    }

    /// When the last one left, unless one has come since.
    pub fn since(&self) -> Option<UnixMs> {
        self.since
    }
}

/// Connections that have not said which server they are come as others.
fn named(who: Identity) -> Identity {
    match who {
        Identity::Connection(_) => Identity::Connection(0),
        named => named,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(port: u16) -> Identity {
        Identity::At("127.0.0.1".to_owned(), port)
    }

    #[test]
    fn each_has_a_place_of_its_own_until_it_is_back_or_gone_for_good() {
        let mut away = Away::default();
        away.leave(server(1), Some(100), UnixMs(10));
        away.leave(server(2), Some(50), UnixMs(20));
        assert_eq!((away.first(), away.since()), (Some(50), Some(UnixMs(20))));
        // It goes on from there, and leaves before it has said anything.
        away.come(server(2), Some(50), UnixMs(30));
        away.leave(server(2), None, UnixMs(40));
        assert_eq!(away.first(), Some(50));
        away.come(server(2), Some(50), UnixMs(50));
        away.forget(server(2));
        assert_eq!((away.first(), away.since()), (Some(100), None));
        away.come(server(3), None, UnixMs(60));
        assert_eq!(away.first(), Some(100));
        away.forget_before(UnixMs(11));
        assert_eq!(away.first(), None);
    }

    #[test]
    fn those_without_a_name_share_a_place_and_there_are_so_many_at_most() {
        let mut away = Away::default();
        away.leave(Identity::Connection(7), Some(5), UnixMs(1));
        away.come(Identity::Connection(8), None, UnixMs(2));
        assert_eq!(away.first(), None);
        (1..1000).for_each(|port| away.leave(server(port), Some(u64::from(port)), UnixMs(u64::from(port))));
        assert_eq!(away.places.len(), PLACES_MAX);
        assert_eq!(away.first(), Some(1000 - PLACES_MAX as u64));
    }
}
