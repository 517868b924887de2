//! A store of decisions in etcd, over its JSON gateway (`/v3/...`): no code is made from its protocol at build time.
//!
//! 1. A change is sent once. Only when it is sure that it was not carried out (nobody was reached, or etcd has refused it) is another member asked.
//! 2. Reads and changes go through etcd's consensus, so a member that is cut off answers none.
//! 3. A watch that is quiet is compared with such a read, and goes on at the member that has answered it, so one that is cut off leaves nobody behind for long.

mod forms;
mod gateway;
mod watching;

pub use gateway::Options;

use super::{Change, Entry, Latest, LeaseId, Outcome, Reading, Revision, Store, Unavailable, Watch};
use forms::{Range, number};
use gateway::{Certainty, Failure, Gateway};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use watching::Watching;

/// The store.
pub struct Etcd {
    gateway: Arc<Gateway>,
}

impl Etcd {
    /// A way to etcd. Whether it answers shows with the first call.
    ///
    /// # Errors
    /// A sentence: an endpoint, a certificate or a key makes no sense.
    pub fn new(options: Options) -> Result<Etcd, String> {
        Ok(Etcd { gateway: Arc::new(Gateway::new(options)?) })
    }

    fn range(&self, range: &Range) -> Result<Reading, Unavailable> {
        let answer = self.gateway.ask("/v3/kv/range", &range.to_json())?;
        forms::reading(&answer).ok_or_else(senseless)
    }
}

fn senseless() -> Unavailable {
    Unavailable("etcd says something that is no answer".to_owned())
}

impl From<Failure> for Unavailable {
    fn from(failure: Failure) -> Unavailable {
        Unavailable(failure.sentence)
    }
}

impl Store for Etcd {
    fn read(&self, prefix: &str) -> Result<Reading, Unavailable> {
        self.range(&Range::prefix(prefix))
    }

    fn get(&self, key: &str) -> Result<Option<Entry>, Unavailable> {
        let reading = self.range(&Range::key(key))?;
        Ok(reading.entries.into_iter().next().filter(|entry| entry.key == key))
    }

    fn latest(&self, prefix: &str) -> Result<Latest, Unavailable> {
        let Reading { revision, entries } = self.range(&Range::last(prefix))?;
        let changed = entries.first().map_or(Revision(0), |entry| entry.revision);
        Ok(Latest { changed, store: revision })
    }

    fn change(&self, change: &Change) -> Outcome {
        match self.gateway.change("/v3/kv/txn", &forms::transaction(change)) {
            Ok(answer) => match forms::revision(&answer) {
                Some(revision) if answer["succeeded"] == Value::Bool(true) => Outcome::Done(revision),
                Some(_) if matches!(answer["succeeded"], Value::Null | Value::Bool(false)) => {
                    Outcome::Conflict
                }
                _ => Outcome::Unknown(senseless().0),
            },
            Err(Failure { sentence, certainty: Certainty::NotDone, .. }) => Outcome::Unreached(sentence),
            Err(Failure { sentence, .. }) => Outcome::Unknown(sentence),
        }
    }

    fn watch(&self, prefix: &str, after: Revision) -> Result<Box<dyn Watch>, Unavailable> {
        Ok(Box::new(Watching::begin(&self.gateway, prefix, after)?))
    }

    fn grant(&self, length: Duration) -> Result<LeaseId, Unavailable> {
        let seconds = length.as_millis().div_ceil(1000).to_string();
        let answer = self.gateway.change("/v3/lease/grant", &json!({ "TTL": seconds }))?;
        number(&answer["ID"]).filter(|id| *id > 0).map(LeaseId).ok_or_else(senseless)
    }

    fn renew(&self, lease: LeaseId) -> Result<bool, Unavailable> {
        let answer = self.gateway.ask("/v3/lease/keepalive", &json!({ "ID": lease.0.to_string() }))?;
        let result = &answer["result"];
        (number(&result["ID"]) == Some(lease.0)).then_some(()).ok_or_else(senseless)?;
        Ok(number(&result["TTL"]).is_some_and(|seconds| seconds > 0))
    }

    fn release(&self, lease: LeaseId) -> Result<(), Unavailable> {
        match self.gateway.ask("/v3/lease/revoke", &json!({ "ID": lease.0.to_string() })) {
            Err(failure) if !failure.is_unknown_lease() => Err(failure.into()),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    fn place(&self) -> String {
        format!("etcd at {}", self.gateway.shown())
    }
}
