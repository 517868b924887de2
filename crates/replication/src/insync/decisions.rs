//! The store of decisions: one register per shard, changed by compare-and-set.
//!
//! It is the only thing that needs consensus, and it takes no part in reads and writes. A cluster keeps it in its
//! control plane; here are its terms, and a register in memory that has the same meaning.

use super::identity::{Epoch, MemberId};
use std::collections::BTreeSet;

/// Counts the changes of a shard's decision. 0 is before the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u64);

impl Version {
    /// The version that the next change makes.
    #[must_use]
    pub fn next(self) -> Version {
        Version(self.0 + 1)
    }
}

/// Who is master and who is a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Rises by one with every change.
    pub version: Version,
    /// Rises with every promotion.
    pub epoch: Epoch,
    /// Whose epoch it is; a member.
    pub master: MemberId,
    /// Who holds everything that was acknowledged.
    pub members: BTreeSet<MemberId>,
    /// Whether this epoch began with an operator's consent to lose acknowledged writes.
    pub is_lossy: bool,
}

/// What the store is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// The current decision.
    Read,
    /// That this decision follows the one whose version is one less.
    Propose(Decision),
}

/// What the store says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To [`Request::Read`]: as it is now; `None` for a shard that nobody has set up.
    Current(Option<Decision>),
    /// The proposal is the decision now.
    Done(Decision),
    /// The proposal is too late. This is the decision now, which may be the proposal itself if it was sent twice.
    Conflict(Decision),
    /// The request never reached the store and never will.
    Unreached,
}

/// Tells which request an answer is to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// A way to the store of decisions.
///
/// The answer comes back later as [`Event::Answered`](super::Event::Answered), or never. A request of which nothing is heard may
/// still be carried out at any later time, once; who asks again uses another ticket.
pub trait Decisions {
    /// Sends a request on its way. Does not wait.
    fn submit(&mut self, ticket: Ticket, request: Request);
}

/// A shard's decision in memory: what a store does with a request when it arrives.
#[derive(Clone, Debug, Default)]
pub struct Register {
    current: Option<Decision>,
}

impl Register {
    /// With a first decision, as whoever sets up a shard makes it.
    #[must_use]
    pub fn with(first: Decision) -> Register {
        Register { current: Some(first) }
    }

    /// The decision now.
    #[must_use]
    pub fn current(&self) -> Option<&Decision> {
        self.current.as_ref()
    }

    /// Carries a request out.
    pub fn answer(&mut self, request: Request) -> Answer {
        let Request::Propose(successor) = request else { return Answer::Current(self.current.clone()) };
        let version = self.current.as_ref().map_or(Version(0), |current| current.version);
        match &self.current {
            Some(current) if version.next() != successor.version => Answer::Conflict(current.clone()),
            _ => {
                self.current = Some(successor.clone());
                Answer::Done(successor)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::identity::{Life, NodeId};
    use super::*;

    #[test]
    fn only_the_first_proposal_of_a_version_counts() {
        let master = MemberId { node: NodeId(0), life: Life(1) };
        let decision = |version, epoch| Decision {
            version: Version(version),
            epoch: Epoch(epoch),
            master,
            members: BTreeSet::from([master]),
            is_lossy: false,
        };
        let mut register = Register::with(decision(1, 0));
        assert_eq!(register.answer(Request::Propose(decision(2, 1))), Answer::Done(decision(2, 1)));
        assert_eq!(register.answer(Request::Propose(decision(2, 5))), Answer::Conflict(decision(2, 1)));
        assert_eq!(register.answer(Request::Read), Answer::Current(Some(decision(2, 1))));
        assert_eq!(Register::default().answer(Request::Read), Answer::Current(None));
    }
}
