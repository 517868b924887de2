//! What a member is told, and what it wants done.
//!
//! Actions are carried out in their order. None of them may be left out but those on a link that has closed.

use super::decisions::{Answer, Request, Ticket, Version};
use super::history::Beginning;
use super::identity::{Epoch, LinkId, MemberId, NodeId};
use super::message::Message;
use log::Lsn;
use std::fmt;

/// Whether a promotion may give up acknowledged writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Only a member becomes master.
    Refused,
    /// Anybody does. An operator says so, who knows that no member will come back: by this decision, if that was looked at, and by no other.
    Accepted(Option<Version>),
}

/// Why a node that a command, or its master, wants to be master does not become it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The decision does not name it as a member: it was silent for too long, say, and has not been added again.
    NoMember,
    /// The decision is not the one that the operator looked at.
    OtherDecision,
    /// Nobody has begun the shard.
    NoDecision,
    /// The store of decisions was not reached.
    StoreUnreached,
    /// It takes part no more.
    Halted,
}

impl fmt::Display for Obstacle {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Obstacle::NoMember => "by the decision it is no member of the in-sync set",
            Obstacle::OtherDecision => "the decision is another one by now",
            Obstacle::NoDecision => "nobody has begun the shard",
            Obstacle::StoreUnreached => "the store of decisions was not reached",
            Obstacle::Halted => "it takes part no more",
        })
    }
}

/// What happened at a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Time went by. Comes at least twice in a heartbeat, after what was received before it.
    Tick,
    /// The node that was dialled last has answered.
    Connected {
        /// The link to it.
        link: LinkId,
    },
    /// A link has ended, or the node that was dialled last was not reached.
    Closed {
        /// The link, if there was one.
        link: Option<LinkId>,
    },
    /// A message has come.
    Received {
        /// On which link.
        link: LinkId,
        /// Who is on its other side.
        from: MemberId,
        /// What it says.
        message: Message,
    },
    /// The master's own log has grown: by clients' writes, or by [`Action::BeginEpoch`].
    Appended {
        /// Where it ends.
        end: Lsn,
    },
    /// The log ends further on than was told: that is what was appended until this node's reign ended. Comes before anything else then.
    Found {
        /// Where it ends.
        end: Lsn,
    },
    /// The master has nothing of the log any more from the own end on.
    RecordsGone,
    /// The own log is durable up to here. Not told of what was cut since.
    Durable {
        /// Up to where.
        end: Lsn,
    },
    /// So many steps were done in all within requests of the master's that are not done as a whole, while everything before them was durable: bytes of one that
    /// comes, commands of one that is being done. The next acknowledgement tells it.
    Progressed {
        /// How many.
        steps: u64,
    },
    /// [`Action::Cut`] is done, and durable.
    Cut,
    /// [`Action::Cut`] cannot be done: nothing that the node keeps goes back so far.
    CutImpossible,
    /// [`Action::Persist`] is done.
    Persisted {
        /// The epoch that is durable.
        epoch: Epoch,
    },
    /// The store of decisions has answered.
    Answered {
        /// Which request.
        ticket: Ticket,
        /// What it says.
        answer: Answer,
    },
    /// This node, if it is master, is to hand over to a member. Nothing is appended before it has come to nothing or to [`Action::StepDown`]: it is
    /// told again as long as neither has come.
    HandOver {
        /// To which node; None: to any.
        to: Option<NodeId>,
    },
    /// Whoever follows the store of decisions says that there is this epoch.
    Decided {
        /// The epoch.
        epoch: Epoch,
    },
    /// This node has no place in the shard any more.
    Removed,
    /// A command wants this node to be master.
    Promote {
        /// At which price.
        loss: Loss,
    },
}

/// What a node does because of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Connect to a node, and give up the attempt before this one if there is one under way.
    Dial {
        /// The node.
        node: NodeId,
    },
    /// End a link.
    Close {
        /// The link.
        link: LinkId,
    },
    /// Send a message; with [`Message::Records`], the log's bytes from its start to its end as well.
    Send {
        /// On which link.
        link: LinkId,
        /// What to say.
        message: Message,
    },
    /// Append the bytes that came with the message at hand. [`Event::Durable`] tells when they are.
    Append {
        /// Where they begin: the log's end.
        start: Lsn,
        /// Where they end.
        end: Lsn,
    },
    /// Append a record that says that an epoch begins, and tell of it by [`Event::Appended`] before anything else is appended.
    BeginEpoch {
        /// The epoch and the place, which is the log's end.
        beginning: Beginning,
        /// The origin of the log's history, which the record names, too.
        origin: u64,
    },
    /// Remove everything behind this place from the log and from the data, and say [`Event::Cut`] or [`Event::CutImpossible`]. What waits
    /// for the gate to show something from there ends without a reply.
    Cut {
        /// Where the log ends then.
        end: Lsn,
    },
    /// Keep this as the highest epoch that the node has acted in; say [`Event::Persisted`].
    Persist {
        /// The epoch.
        epoch: Epoch,
    },
    /// Ask the store of decisions.
    Ask {
        /// What its answer is known by.
        ticket: Ticket,
        /// What to ask.
        request: Request,
    },
    /// Everything up to here is committed: the gate opens so far.
    Commit {
        /// Up to where.
        end: Lsn,
    },
    /// This node is master, and may append clients' writes.
    Lead {
        /// Its epoch.
        epoch: Epoch,
    },
    /// Members are too few from now on, or will be if a proposal is carried out: writes that wait for the gate end with `-NOREPLICAS`. They are
    /// in the log, and reads may show them, but they are not where `min-sync-replicas` wants them.
    RefuseWaitingWrites,
    /// This node is not master any more. Nothing is appended from now on, and what waits for the gate ends without a reply.
    StepDown,
    /// What is here cannot be brought in line with the master's log: begin another life, without data.
    BeginNewLife,
    /// This node takes part no more: it follows nobody, is nobody's member, and never master.
    Leave,
    /// What [`Event::Promote`] or its master wanted comes to nothing, and is not tried again: somebody may be told.
    StandDown {
        /// Why.
        obstacle: Obstacle,
    },
    /// Something contradicts what this node knows: a promise is broken somewhere. This node keeps its data and follows nobody, so that the data
    /// can be saved.
    Halt {
        /// What does.
        why: Contradiction,
    },
}

/// What cannot be, by all that a node knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contradiction {
    /// The master's log lacks what this node knows to be committed, and no operator accepted that.
    Lacking {
        /// Where the logs part.
        cut: Lsn,
        /// Up to where the node's own is committed.
        committed: Lsn,
    },
    /// Two have begun an epoch of one number, one of them in this node's log: the store of decisions has forgotten a decision.
    Forgotten {
        /// The epoch.
        epoch: Epoch,
    },
}
