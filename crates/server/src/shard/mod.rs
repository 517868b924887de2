//! The shard that this server is a node of, if it is of one: what the directives say of it, what is told to who drives its state machine, and how it stands. Who
//! acts on it is above (`insync`).
//!
//! Thread rule: any thread leaves word ([`Shard::post`], [`Shard::note`]) and never waits.

mod links;
mod questions;
mod settings;

pub use links::{Links, Outbox, say_line};
pub use questions::Questions;
pub use settings::{Address, Settings, Store, address, options};

use ::log::Lsn;
use parking_lot::{Condvar, Mutex, RwLock};
use replication::insync::{Decision, Epoch, Event, LinkId, MemberId, NodeId, Obstacle, Role, Writes};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// The shard of a server, if it is a node of one.
#[derive(Default)]
pub struct Place(OnceLock<Arc<Shard>>);

impl Place {
    /// The server becomes a node of this one. False: it is of one already.
    pub fn enter(&self, shard: Arc<Shard>) -> bool {
        self.0.set(shard).is_ok()
    }

    /// The shard; None: the server is of none.
    #[inline]
    pub fn get(&self) -> Option<&Arc<Shard>> {
        self.0.get()
    }

    /// Whether there is one.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.0.get().is_some()
    }

    /// The log is durable further than before.
    #[inline]
    pub fn note_durable(&self) {
        if let Some(shard) = self.get()
            && shard.watched.load(Ordering::Relaxed) >= Watched::Durable as u8
        {
            shard.note();
        }
    }

    /// What is here of a master's stream has come further.
    #[inline]
    pub fn note_done(&self) {
        if let Some(shard) = self.get()
            && shard.watches_all()
        {
            shard.note();
        }
    }

    /// Something may have been written: `end` tells where the log ends, if that is asked.
    #[inline]
    pub fn note_end(&self, end: impl FnOnce() -> u64) {
        if let Some(shard) = self.get()
            && shard.watches_all()
        {
            let end = end();
            if shard.noted_end.swap(end, Ordering::Relaxed) != end {
                shard.note();
            }
        }
    }

    /// Whether writes need more members than there are.
    pub fn is_short(&self) -> bool {
        self.get().is_some_and(|shard| shard.is_short.load(Ordering::Relaxed))
    }

    /// Whether nothing may be shown: it is not known what of it is committed.
    pub fn hides_all(&self) -> bool {
        self.get().is_some_and(|shard| shard.hides_all.load(Ordering::Relaxed))
    }
}

/// Of what the driver wants to hear at once. With each tick it looks at everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Watched {
    /// Nothing here moves anything by itself.
    Nothing,
    /// What is durable.
    Durable,
    /// What is done, too: without a log that is all there is.
    All,
}

/// A shard, as this node has part in it.
pub struct Shard {
    /// As what it has begun its part.
    pub settings: Settings,
    /// Where its nodes are now.
    nodes: RwLock<BTreeMap<NodeId, Address>>,
    /// Links to other nodes.
    pub links: Links,
    /// What is asked of the store of decisions.
    pub questions: Questions,
    inbox: Mutex<Inbox>,
    changed: Condvar,
    /// A [`Watched`].
    watched: AtomicU8,
    /// Where the log was when the driver was told last that it has grown.
    noted_end: AtomicU64,
    is_short: AtomicBool,
    hides_all: AtomicBool,
    standing: Mutex<Standing>,
}

#[derive(Default)]
struct Inbox {
    letters: VecDeque<Letter>,
    /// It is to be looked how far the log is.
    is_noted: bool,
}

/// What the driver is told.
pub enum Letter {
    /// Something for the state machine.
    Happened(Event),
    /// The copy is whole when the stream is here up to there.
    CopyNeeds {
        /// On which link that was said.
        link: LinkId,
        /// Up to where.
        offset: u64,
    },
    /// The master cannot go on from what is here, by this order (see `followed`).
    RecordsGone {
        /// The order.
        order: u64,
    },
    /// An operator has this node begin the shard with the data that it has.
    Begin,
    /// This node is to be master no more, and another is: this one, or any.
    HandOver {
        /// Which.
        to: Option<NodeId>,
        /// If that cannot be until then, it stays master.
        until: Instant,
    },
}

/// How a node stands, as it is told to whoever asks.
#[derive(Clone, Debug)]
pub struct Standing {
    /// Who it is.
    pub id: MemberId,
    /// What it is.
    pub role: Role,
    /// The highest epoch seen.
    pub epoch: Epoch,
    /// Whether it takes writes.
    pub writes: Writes,
    /// Up to where all members have everything.
    pub committed: Lsn,
    /// Where its own log ends.
    pub end: Lsn,
    /// The newest decision known.
    pub decision: Option<Decision>,
    /// It found a promise broken, and takes part no more.
    pub is_halted: bool,
    /// What is here may be a copy that is not whole.
    pub is_torn: bool,
    /// Nothing of what is here is the shard's.
    pub is_foreign: bool,
    /// What has become of the newest wish that it be master.
    pub promotion: Promotion,
}

/// What has become of a wish that a node be master, by command or by its master's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promotion {
    /// There was none since it was started, or it has come true.
    None,
    /// It is asked for, or waited until nobody reads on what this node lent.
    UnderWay,
    /// It has come to nothing.
    Refused(Obstacle),
}

impl Shard {
    /// One with this part of ours, of which nothing is known yet.
    pub fn new(settings: Settings, id: MemberId, epoch: Epoch) -> Shard {
        let standing = Standing {
            id,
            role: Role::Nobody,
            epoch,
            writes: Writes::NotMaster,
            committed: Lsn::ZERO,
            end: Lsn::ZERO,
            decision: None,
            is_halted: false,
            is_torn: false,
            is_foreign: true,
            promotion: Promotion::None,
        };
        Shard {
            nodes: RwLock::new(settings.nodes.clone()),
            settings,
            links: Links::default(),
            questions: Questions::default(),
            inbox: Mutex::default(),
            changed: Condvar::new(),
            watched: AtomicU8::new(Watched::All as u8),
            noted_end: AtomicU64::new(0),
            is_short: AtomicBool::new(false),
            hides_all: AtomicBool::new(true),
            standing: Mutex::new(standing),
        }
    }

    /// The driver wants to hear of this. It looks once more after it has said so.
    pub fn watch(&self, watched: Watched) {
        self.watched.store(watched as u8, Ordering::Relaxed);
    }

    fn watches_all(&self) -> bool {
        self.watched.load(Ordering::Relaxed) == Watched::All as u8
    }

    fn note(&self) {
        let mut inbox = self.inbox.lock();
        if !std::mem::replace(&mut inbox.is_noted, true) {
            self.changed.notify_one();
        }
    }

    /// Tells the driver.
    pub fn post(&self, letter: Letter) {
        self.inbox.lock().letters.push_back(letter);
        self.changed.notify_one();
    }

    /// Takes what has come, for which it is waited until then.
    pub fn take(&self, until: Instant) -> VecDeque<Letter> {
        let mut inbox = self.inbox.lock();
        if inbox.letters.is_empty() && !inbox.is_noted {
            self.changed.wait_until(&mut inbox, until);
        }
        inbox.is_noted = false;
        std::mem::take(&mut inbox.letters)
    }

    /// Something for the state machine has happened.
    pub fn happened(&self, event: Event) {
        self.post(Letter::Happened(event));
    }

    /// The master of this order has not got the stream from here on any more.
    pub fn records_are_gone(&self, order: u64) {
        self.post(Letter::RecordsGone { order });
    }

    /// Begins the shard with what this node has, if nobody has begun it.
    pub fn begin_shard(&self) {
        self.post(Letter::Begin);
    }

    /// Another node is to be master, if this one is. It is as it was before if that has not come about for so long.
    pub fn hand_over(&self, to: Option<NodeId>, patience: Duration) {
        self.post(Letter::HandOver { to, until: Instant::now() + patience });
    }

    /// Whether this node is master, and another member could be: this one, or any.
    pub fn can_hand_over(&self, to: Option<NodeId>) -> bool {
        let standing = self.standing.lock();
        let is_heir = |member: &MemberId| *member != standing.id && to.is_none_or(|to| member.node == to);
        let has_heir = standing.decision.as_ref().is_some_and(|known| known.members.iter().any(is_heir));
        standing.role == Role::Master && !standing.is_halted && has_heir
    }

    /// The link's client, or the connection to its other side, is gone.
    pub fn lost(&self, link: LinkId) {
        if self.links.forget(link) {
            self.happened(Event::Closed { link: Some(link) });
        }
    }

    /// Lets others know how it stands. Whether it has too few members now and had not before, or the other way round.
    pub fn publish(&self, standing: Standing, hides_all: bool) -> bool {
        let is_short = standing.writes == Writes::TooFewMembers;
        *self.standing.lock() = standing;
        self.hides_all.store(hides_all, Ordering::Relaxed);
        self.is_short.swap(is_short, Ordering::Relaxed) != is_short
    }

    /// Where a node is; None: it is none of the shard's.
    pub fn address_of(&self, node: NodeId) -> Option<Address> {
        self.nodes.read().get(&node).cloned()
    }

    /// All others.
    pub fn others(&self) -> Vec<NodeId> {
        let nodes = self.nodes.read();
        nodes.keys().copied().filter(|node| *node != self.settings.node).collect()
    }

    /// Which of the others a replica is: it says so, or, of a former version, it is where one of them is. None: none of them.
    pub fn node_of(&self, said: Option<NodeId>, host: &str, port: u16) -> Option<NodeId> {
        let nodes = self.nodes.read();
        let mut others = nodes.iter().filter(|(node, _)| **node != self.settings.node);
        let is_it = |(node, address): &(&NodeId, &Address)| match said {
            Some(said) => **node == said,
            None => address.port == port && address.host.eq_ignore_ascii_case(host),
        };
        others.find(is_it).map(|(node, _)| *node)
    }

    /// The nodes are there from now on.
    pub fn set_nodes(&self, nodes: BTreeMap<NodeId, Address>) {
        *self.nodes.write() = nodes;
    }

    /// How it stands.
    pub fn standing(&self) -> Standing {
        self.standing.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use replication::insync::{Life, Options};

    fn shard() -> Shard {
        let address = |host: &str, port| Address { host: host.to_owned(), port };
        let nodes = [(1, address("own", 7)), (2, address("gate", 7)), (3, address("gate", 8))];
        let settings = Settings {
            name: "tested".to_owned(),
            node: NodeId(1),
            nodes: nodes.into_iter().map(|(node, address)| (NodeId(node), address)).collect(),
            store: Store::Server(address("store", 9)),
            options: Options::default(),
        };
        Shard::new(settings, MemberId { node: NodeId(1), life: Life(5) }, Epoch(0))
    }

    #[test]
    fn a_replica_is_the_node_that_it_says_or_of_a_former_version_the_one_that_is_where_it_is() {
        let shard = shard();
        assert_eq!(shard.others(), [NodeId(2), NodeId(3)]);
        let node_of = |said: Option<u32>, host, port| shard.node_of(said.map(NodeId), host, port);
        assert_eq!(node_of(Some(3), "10.0.0.1", 40_000), Some(NodeId(3)), "wherever it seems to be");
        assert_eq!(node_of(Some(3), "gate", 7), Some(NodeId(3)));
        assert_eq!(node_of(None, "GATE", 7), Some(NodeId(2)));
        for (said, host, port) in
            [(Some(1), "x", 1), (Some(4), "gate", 7), (None, "gate", 9), (None, "own", 7)]
        {
            assert_eq!(node_of(said, host, port), None, "{said:?} {host} {port}");
        }
    }

    #[test]
    fn a_node_that_is_not_taken_is_told_of_once_and_once_more_when_that_is_another_reason() {
        let links = Links::default();
        let first = [(2, Some(4)), (2, Some(4)), (3, Some(4)), (2, Some(3)), (2, None), (2, Some(3))]
            .map(|(node, databases)| links.is_first_refusal(NodeId(node), databases));
        assert_eq!(first, [true, false, true, true, true, true]);
    }
}
