//! Who waits for what slow runs hold, in the order in which they came.
//!
//! Without them whoever needs what several slow scripts hold would be held back by one after the other, as new ones begin meanwhile,
//! and never run. What may hold keys for long waits for those who came before and need some of the same, once nothing is in their way
//! but what began later than their claims: as long as they could not run anyway, nobody waits for them. What is over soon never does.
//!
//! Invariants:
//! 1. A session has one claim at the most: for its next request, until that has its keys, or has run, or was refused.
//! 2. Claims wait for earlier ones only.
//! 3. So a claim waits for what ran when it was put up, for what began until that was over, and for earlier claims.

use super::Run;
use keyspace::Holding;
use net::client::Client;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// The number of a claim: an earlier one is less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClaimId(u64);

/// What a claim has come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Standing {
    /// The claim that it waits for.
    pub behind: Option<ClaimId>,
    /// It needs nothing any more but a worker that is free.
    pub needs_worker: bool,
}

/// What a request needs of the keyspace.
#[derive(Clone, Debug)]
pub struct Needs {
    /// These slots, or all.
    pub slots: Holding,
    /// It goes on without what a MIGRATE holds.
    pub passes_migrations: bool,
}

impl Needs {
    /// Whether a run is in its way.
    pub fn is_hindered_by(&self, run: &Run) -> bool {
        self.slots.is_hindered_by(&run.holding.lock()) && (run.is_script() || !self.passes_migrations)
    }
}

/// A request that is held back.
pub(super) struct Claim {
    /// None: a thread of the server's own, which looks again and again whether it is its turn.
    client: Option<Arc<Client>>,
    /// What it needs.
    pub needs: Needs,
    /// When it was put up.
    pub since: Instant,
    standing: Standing,
}

/// All claims.
#[derive(Default)]
pub(super) struct Claims {
    by_id: BTreeMap<ClaimId, Claim>,
    /// How many there have been.
    count: u64,
}

impl Claims {
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// Whose claims they are, the earliest first.
    pub fn clients(&self) -> Vec<Arc<Client>> {
        self.by_id.values().filter_map(|claim| claim.client.clone()).collect()
    }

    /// The last claim.
    pub fn put_up(&mut self, client: Option<&Arc<Client>>, needs: &Needs, standing: Standing) -> ClaimId {
        self.count += 1;
        let id = ClaimId(self.count);
        let (client, needs) = (client.cloned(), needs.clone());
        let claim = Claim { client, needs, since: Instant::now(), standing };
        self.by_id.insert(id, claim);
        id
    }

    pub fn set(&mut self, id: ClaimId, standing: Standing) {
        if let Some(claim) = self.by_id.get_mut(&id) {
            claim.standing = standing;
        }
    }

    /// Takes a claim back. Gives those who waited for it.
    pub fn take_back(&mut self, id: ClaimId) -> Vec<Arc<Client>> {
        self.by_id.remove(&id);
        let later = self.by_id.range(id..).map(|(_, claim)| claim);
        later
            .filter(|claim| claim.standing.behind == Some(id))
            .filter_map(|claim| claim.client.clone())
            .collect()
    }

    /// The claim that a request has to wait for which wants this and may hold it for long, of those that `is_due` says are waited for.
    /// `own` is its own claim; without one it is the last. Of several it is the latest, which waits for most of the others itself,
    /// so that few are woken for nothing.
    pub fn before(
        &self,
        own: Option<ClaimId>,
        wanted: &Holding,
        is_due: impl Fn(&Claim) -> bool,
    ) -> Option<ClaimId> {
        let known = own.and_then(|own| self.by_id.get(&own)?.standing.behind);
        let is_before = |claim: &Claim| claim.needs.slots.is_hindered_by(wanted) && is_due(claim);
        let find = || self.earlier(own).rev().find(|(_, claim)| is_before(claim)).map(|(id, _)| *id);
        known.filter(|known| self.by_id.get(known).is_some_and(is_before)).or_else(find)
    }

    /// The claim that a request has to wait for which needs one of so many free workers: the first, if there are as many.
    pub fn before_for_workers(&self, own: Option<ClaimId>, free_workers: usize) -> Option<ClaimId> {
        let mut waiting = self.earlier(own).filter(|(_, claim)| claim.standing.needs_worker);
        let (first, _) = waiting.next()?;
        (1 + waiting.count() >= free_workers).then_some(*first)
    }

    fn earlier(&self, own: Option<ClaimId>) -> impl DoubleEndedIterator<Item = (&ClaimId, &Claim)> {
        self.by_id.range(..own.unwrap_or(ClaimId(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyspace::{DbIndex, KeyHasher, Keyspace, Options};
    use sys::UnixMs;

    struct Fixture {
        keyspace: Keyspace,
        claims: Claims,
    }

    impl Fixture {
        fn new() -> Fixture {
            let hasher = KeyHasher::from_seed(1);
            let now = UnixMs(0);
            let options = Options { databases: 1, workers: 1, guests: 0, hasher, seed: 2, now };
            Fixture { keyspace: Keyspace::new(options), claims: Claims::default() }
        }

        fn slots_of(&self, keys: &[&str]) -> Holding {
            let keys: Vec<_> = keys.iter().map(|key| self.keyspace.key(DbIndex(0), key.as_bytes())).collect();
            Holding::of(&self.keyspace, &keys)
        }

        fn put_up(&mut self, client: u64, wanted: &Holding, standing: Standing) -> ClaimId {
            let client = Client::new(client, String::new(), String::new(), -1, (0, 0), UnixMs(0));
            let needs = Needs { slots: wanted.clone(), passes_migrations: false };
            self.claims.put_up(Some(&Arc::new(client)), &needs, standing)
        }

        /// The claim before, if all are due.
        fn before(&self, own: Option<ClaimId>, wanted: &Holding) -> Option<ClaimId> {
            self.claims.before(own, wanted, |_| true)
        }
    }

    const NOTHING: Standing = Standing { behind: None, needs_worker: false };
    const WORKER: Standing = Standing { behind: None, needs_worker: true };

    #[test]
    fn who_comes_later_waits_for_the_latest_who_needs_some_of_the_same() {
        let mut fixture = Fixture::new();
        let (a, b, ab) = (fixture.slots_of(&["a"]), fixture.slots_of(&["b"]), fixture.slots_of(&["a", "b"]));
        let first = fixture.put_up(1, &a, NOTHING);
        assert_eq!(fixture.before(Some(first), &a), None);
        assert_eq!(fixture.before(None, &b), None);
        let second = fixture.put_up(2, &ab, Standing { behind: Some(first), ..NOTHING });
        assert_eq!(fixture.before(None, &b), Some(second));
        assert_eq!(fixture.claims.before(None, &b, |_| false), None, "it could not run anyway");
        assert_eq!(fixture.before(None, &Holding::all()), Some(second));
        assert_eq!(fixture.before(Some(second), &ab), Some(first), "what it waits for already");
        let woken = fixture.claims.take_back(first);
        assert_eq!(woken.iter().map(|client| client.id).collect::<Vec<_>>(), [2]);
        assert_eq!(fixture.before(Some(second), &ab), None);
        assert!(fixture.claims.take_back(second).is_empty());
        assert!(fixture.claims.is_empty());
    }

    #[test]
    fn who_needs_all_has_even_those_wait_who_need_nothing() {
        let mut fixture = Fixture::new();
        let nothing = fixture.slots_of(&[]);
        let all = fixture.put_up(1, &Holding::all(), NOTHING);
        assert_eq!(fixture.before(None, &nothing), Some(all));
    }

    #[test]
    fn as_many_as_there_are_free_workers_have_them_before_who_comes_later() {
        let mut fixture = Fixture::new();
        let [a, b, c] = ["a", "b", "c"].map(|key| fixture.slots_of(&[key]));
        assert_eq!(fixture.claims.before_for_workers(None, 1), None);
        fixture.put_up(1, &a, NOTHING);
        let first = fixture.put_up(2, &b, WORKER);
        assert_eq!(fixture.claims.before_for_workers(Some(first), 1), None);
        assert_eq!(fixture.claims.before_for_workers(None, 2), None);
        let second = fixture.put_up(3, &c, Standing { behind: Some(first), ..WORKER });
        assert_eq!(fixture.claims.before_for_workers(Some(second), 1), Some(first));
        assert_eq!(fixture.claims.before_for_workers(None, 2), Some(first));
        assert_eq!(fixture.claims.before_for_workers(None, 3), None);
    }
}
