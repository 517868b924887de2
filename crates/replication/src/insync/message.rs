//! What members say to each other. A replica dials its master; on a link the replica speaks first.
//!
//! ```text
//! replica                                   master
//! Hello {history, end}          ->
//!                               <-          Welcome {history, cut}
//! (epoch durable, tail cut)
//! Acknowledgement               ->
//!                               <-          Records {start, end} ...       also empty, as heartbeats
//! Acknowledgement ...           ->
//!                               <-          Yield                        it is to be master
//! ```
//!
//! Every message carries the epoch. Whoever has seen a higher one answers with a [`Refusal`](Message::Refusal).

use super::history::History;
use super::identity::{Epoch, Moment};
use log::Lsn;
use std::time::Duration;

/// Time to read that a member lends the master.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// When the master asked, by the master's clock: the lease counts from then.
    pub asked_at: Moment,
    /// For how long it holds.
    pub length: Duration,
}

/// How far a replica has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    /// It has received the log up to there: what is said first on a link. Nodes of former versions say nothing else, and that is no sign of life: what they
    /// have received may wait for a disk that stands still.
    Place(Lsn),
    /// So many steps it has done in all within requests that were not whole yet, or not done as a whole. Only that there are more than before means anything.
    Within(u64),
}

/// One message on a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// From a replica: what its log holds.
    Hello {
        /// The highest epoch that it has seen.
        epoch: Epoch,
        /// The epochs of its log.
        history: History,
        /// Where its log ends.
        end: Lsn,
    },
    /// From the master: what its own log holds, and where the replica's parts from it.
    Welcome {
        /// The master's epoch.
        epoch: Epoch,
        /// The epochs of its log; it gets no others on this link.
        history: History,
        /// What the replica has from here on is not in the master's log.
        cut: Lsn,
    },
    /// From the master: the log from `start` to `end`, whose bytes travel with the message. Empty as a heartbeat.
    Records {
        /// The master's epoch.
        epoch: Epoch,
        /// Where the bytes begin.
        start: Lsn,
        /// Where they end.
        end: Lsn,
        /// Up to where everything is committed; may be behind or before these bytes.
        committed: Lsn,
        /// When this left, by the master's clock.
        asked_at: Moment,
        /// Whether the replica is a member in the decision that the master knows.
        is_member: bool,
    },
    /// From a replica: what it has, and for how long it will not ask to be master.
    Acknowledgement {
        /// The epoch in which it follows.
        epoch: Epoch,
        /// How far it is.
        reached: Reached,
        /// Up to where the log is durable.
        durable: Lsn,
        /// Nothing while it wants to be master itself, and before it was asked.
        lease: Option<Lease>,
    },
    /// From a master that is none from before this on: the replica is to take its place, and need wait for nothing that it lent.
    Yield {
        /// The master's epoch.
        epoch: Epoch,
    },
    /// From anybody who does not go along, with the highest epoch that it has seen. Ends the link.
    Refusal {
        /// The highest epoch seen.
        epoch: Epoch,
    },
}

impl Message {
    /// The epoch that it carries.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        match self {
            Message::Hello { epoch, .. }
            | Message::Welcome { epoch, .. }
            | Message::Records { epoch, .. }
            | Message::Acknowledgement { epoch, .. }
            | Message::Yield { epoch }
            | Message::Refusal { epoch } => *epoch,
        }
    }
}
