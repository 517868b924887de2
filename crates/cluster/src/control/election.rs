//! Who leads: whoever has its name in `leader`, under a lease of the store's.
//!
//! Whoever leads compares the revision of `leader` with each change, so that nothing depends on clocks but how soon a dead leader is replaced.

use super::view::{Leader, View, key};
use super::{Action, Moment};
use crate::store::{LeaseId, Revision};
use std::time::Duration;

/// After a lease could not be had.
const RETRY: Duration = Duration::from_millis(500);

/// Whether nobody leads, as far as that can be read.
pub fn is_vacant(view: &View) -> bool {
    view.leader.is_none() && !view.is_senseless(key::LEADER)
}

/// How this config server stands.
#[derive(Debug, Default)]
pub struct Election {
    lease: Option<Held>,
    is_asking: bool,
    not_before: Moment,
    /// The revision at which `leader` became this one, and since when it is known here.
    leads: Option<(Revision, Option<Moment>)>,
    is_over: bool,
}

#[derive(Debug)]
struct Held {
    id: LeaseId,
    asked_at: Moment,
    /// Until then nobody else has it: counted from before the last renewal was asked for.
    until: Moment,
    is_renewing: bool,
}

impl Election {
    pub fn leads(&self) -> bool {
        self.leads.is_some()
    }

    /// Since when it leads; never, if it does not.
    pub fn leads_since(&self) -> Moment {
        self.leads.and_then(|(_, since)| since).unwrap_or(Moment(0))
    }

    /// What a leader's change compares `leader` with.
    pub fn revision(&self) -> Option<Revision> {
        self.leads.map(|(revision, _)| revision)
    }

    /// The lease under which it can propose itself.
    pub fn lease(&self) -> Option<LeaseId> {
        self.lease.as_ref().filter(|_| !self.is_over).map(|held| held.id)
    }

    pub fn granted(&mut self, lease: Option<LeaseId>, length: Duration, now: Moment) {
        self.is_asking = false;
        self.not_before = now.plus(RETRY);
        self.lease = lease.map(|id| Held { id, asked_at: now, until: now.plus(length), is_renewing: false });
    }

    pub fn renewed(&mut self, lease: LeaseId, is_held: Option<bool>, length: Duration, now: Moment) {
        let Some(held) = self.lease.as_mut().filter(|held| held.id == lease) else { return };
        held.is_renewing = false;
        match is_held {
            Some(true) => held.until = held.asked_at.plus(length),
            // It is tried again.
            None => held.asked_at = now,
            Some(false) => {
                self.lease = None;
                self.leads = None;
            }
        }
    }

    /// Sees whether it leads. Who cannot renew its lease leads no more, so that nobody tells it what the next leader is to hear.
    pub fn look(&mut self, view: &View, own: &Leader, now: Moment, actions: &mut Vec<Action>) {
        let is_held = self.lease.as_ref().is_some_and(|held| now < held.until);
        let is_own = is_held && view.leader.as_ref() == Some(own);
        let revision = view.revision_of(key::LEADER);
        match (is_own && !self.is_over, self.leads) {
            (true, Some((known, _))) if known == revision => {}
            (true, _) => {
                self.leads = Some((revision, None));
                actions.push(Action::Note("This config server leads".to_owned()));
            }
            (false, Some(_)) => {
                self.leads = None;
                actions.push(Action::Note("This config server leads no more".to_owned()));
            }
            (false, None) => {}
        }
    }

    /// Renews the lease in time, and asks for one when nobody leads.
    pub fn go_on(&mut self, view: &View, length: Duration, now: Moment, actions: &mut Vec<Action>) {
        if let Some((_, since @ None)) = &mut self.leads {
            *since = Some(now);
        }
        if self.is_over {
            return;
        }
        match &mut self.lease {
            Some(held) if !held.is_renewing && now.since(held.asked_at) >= length / 3 => {
                held.is_renewing = true;
                held.asked_at = now;
                actions.push(Action::Renew(held.id));
            }
            None if !self.is_asking && now >= self.not_before && is_vacant(view) => {
                self.is_asking = true;
                actions.push(Action::Grant(length));
            }
            Some(_) | None => {}
        }
    }

    /// The lease that is to be ended.
    pub fn end(&mut self) -> Option<LeaseId> {
        self.is_over = true;
        self.leads = None;
        self.lease.take().map(|held| held.id)
    }
}
