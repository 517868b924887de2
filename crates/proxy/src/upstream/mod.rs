//! What is behind the proxy: which server has which slots, at this moment.
//!
//! Servers are numbered as they become known, and keep their numbers, so that links can be held by number; one that has no slots any more keeps its
//! number, too.
//!
//! Thread rule: shared. A worker has the routes that it has seen last, and looks once a batch whether there are newer ones.

mod asking;
mod cluster;
pub mod config_servers;
mod identity;
mod layout;

pub use asking::{ask, introduce};
pub use cluster::Named;
pub use identity::ClusterId;

use crate::losses::Losses;
use cluster::Asking;
pub use cluster::field;
use parking_lot::{Mutex, RwLock};
use server::server::Server;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Instant;
use wire::{SLOTS, key_slot};

/// A server's number.
pub type NodeNo = u16;

const _: () = assert!(NODES_MAX <= NOBODY as usize);

/// The owner of slots that nobody has.
const NOBODY: NodeNo = NodeNo::MAX;

/// The most servers that are ever known, as many as a cluster can have masters: each keeps its number, and a node that is not sound may tell of others all the time.
const NODES_MAX: usize = SLOTS;
/// What is told of one more.
const TOO_MANY: &str = "more servers were told of, one after the other, than are kept: a new process of the proxy forgets those that are gone";
/// The longest name of a host, as names of domains are bounded.
const HOST_BYTES_MAX: usize = 255;

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    /// Its name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
}

impl fmt::Display for Node {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.host, self.port)
    }
}

impl Node {
    /// Reads `host:port`.
    ///
    /// # Errors
    /// It is none.
    pub fn parse(text: &str) -> Result<Node, String> {
        let parsed = text.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
        match parsed {
            Some((host, port))
                if (1..=HOST_BYTES_MAX).contains(&host.len())
                    && !host.contains(char::is_control)
                    && port > 0 =>
            {
                Ok(Node { host: host.trim_matches(['[', ']']).to_owned(), port })
            }
            _ => Err(format!("`{text}` is no `host:port`")),
        }
    }

    /// Reads `host:port` of several, with commas between them; of none, if nothing is said.
    ///
    /// # Errors
    /// One is none.
    pub fn parse_all(text: &str) -> Result<Vec<Node>, String> {
        match text.is_empty() {
            true => Ok(Vec::new()),
            false => text.split(',').map(|word| Node::parse(word.trim())).collect(),
        }
    }
}

/// Who has which slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Routes {
    /// Later ones have a greater one.
    pub version: u64,
    /// When they became so.
    pub since: Instant,
    /// All servers that were ever known, by number.
    pub nodes: Vec<Node>,
    /// Those that have slots.
    pub masters: Vec<NodeNo>,
    /// The servers are nodes of a cluster: they take no request of several slots, and slots move.
    pub is_cluster: bool,
    slots: Box<[NodeNo]>,
}

impl Routes {
    /// Nobody has a slot.
    fn empty(is_cluster: bool) -> Routes {
        let slots = vec![NOBODY; SLOTS].into_boxed_slice();
        Routes {
            version: 0,
            since: Instant::now(),
            nodes: Vec::new(),
            masters: Vec::new(),
            is_cluster,
            slots,
        }
    }

    /// Who has a slot.
    #[inline]
    pub fn of(&self, slot: u16) -> Option<NodeNo> {
        Some(self.slots[usize::from(slot)]).filter(|node| *node != NOBODY)
    }

    /// Who has a key, and in a cluster its slot: a node takes one at a time.
    pub fn owner_of(&self, key: &[u8]) -> Option<(NodeNo, Option<u16>)> {
        let slot = key_slot(key);
        Some((self.of(slot)?, Some(slot).filter(|_| self.is_cluster)))
    }

    /// How many slots a server has.
    pub fn slots_of(&self, node: NodeNo) -> usize {
        self.slots.iter().filter(|owner| **owner == node).count()
    }

    /// How many slots nobody has.
    pub fn unserved(&self) -> usize {
        self.slots_of(NOBODY)
    }

    /// The number of a server, which it has from now on; None: there are too many.
    fn number(&mut self, node: Node) -> Option<NodeNo> {
        let known = self.nodes.iter().position(|known| *known == node);
        let number = known.unwrap_or(self.nodes.len());
        let number = NodeNo::try_from(number).ok().filter(|_| number < NODES_MAX)?;
        if known.is_none() {
            self.nodes.push(node);
        }
        Some(number)
    }

    /// The same of many, in their order.
    fn number_all<'n>(&mut self, nodes: impl Iterator<Item = &'n Node>) -> Vec<Option<NodeNo>> {
        let known = self.nodes.iter().cloned().zip(0..);
        let mut numbers: HashMap<Node, NodeNo> = known.collect();
        let mut number = |node: &Node| {
            if let Some(number) = numbers.get(node) {
                return Some(*number);
            }
            let number = NodeNo::try_from(self.nodes.len()).ok().filter(|_| self.nodes.len() < NODES_MAX)?;
            self.nodes.push(node.clone());
            numbers.insert(node.clone(), number);
            Some(number)
        };
        nodes.map(&mut number).collect()
    }

    /// Notes who has slots, by all of them.
    fn note_masters(&mut self) {
        let mut masters: Vec<NodeNo> = self.slots.iter().copied().filter(|node| *node != NOBODY).collect();
        masters.sort_unstable();
        masters.dedup();
        self.masters = masters;
    }
}

/// What is behind the proxy.
pub struct Upstream {
    current: RwLock<Arc<Routes>>,
    version: AtomicU64,
    /// Nodes that the cluster has named last, replicas among them.
    named: RwLock<Vec<Node>>,
    /// When servers were lost.
    pub losses: Losses,
    /// Which cluster it is, where config servers are named.
    pub cluster: Arc<ClusterId>,
    /// Up to which revision nodes knew it when this began; 0: they have not said it.
    pub known_at_first: u64,
    /// Has whoever follows a cluster ask at once.
    hurry: Option<Mutex<SyncSender<()>>>,
}

impl Upstream {
    /// Servers that have their slots for ever, as `proxy-shards` says.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn fixed(text: &str) -> Result<Upstream, String> {
        Ok(Upstream::new(layout::parse(text)?, None))
    }

    /// A cluster, known by some of its nodes, by its config servers, or by both. It is asked for its slots now, and followed.
    ///
    /// # Errors
    /// Why no node tells its slots.
    pub fn cluster(named: Named, host: &Arc<Server>) -> Result<Arc<Upstream>, String> {
        let cluster = Arc::default();
        let mut asking = Asking::new(named, &cluster, host.clone());
        let mut routes = asking.ask(&Routes::empty(true))?;
        // Who was left behind sends nobody astray, not for a moment.
        if let Some(later) = asking.check_by_any(&routes) {
            routes.follow(&later);
        }
        let (hurry, hurried) = sync_channel(1);
        let known_at_first = asking.known().unwrap_or(0);
        let upstream = Upstream::new(routes, Some(Mutex::new(hurry)));
        let upstream = Arc::new(Upstream { cluster, known_at_first, ..upstream });
        upstream.note_named(asking.named());
        let followed = Arc::downgrade(&upstream);
        std::thread::Builder::new()
            .name("follow".to_owned())
            .spawn(move || asking.follow(&followed, &hurried))
            .map_err(|error| error.to_string())?;
        Ok(upstream)
    }

    fn new(mut routes: Routes, hurry: Option<Mutex<SyncSender<()>>>) -> Upstream {
        routes.version = 1;
        Upstream {
            current: RwLock::new(Arc::new(routes)),
            version: AtomicU64::new(1),
            named: RwLock::default(),
            losses: Losses::default(),
            cluster: Arc::default(),
            known_at_first: 0,
            hurry,
        }
    }

    /// The routes of this moment.
    pub fn routes(&self) -> Arc<Routes> {
        self.current.read().clone()
    }

    /// Whether these are older than the routes of this moment.
    #[inline]
    pub fn is_past(&self, seen: &Routes) -> bool {
        self.version.load(Ordering::Acquire) != seen.version
    }

    /// How many losses there were by now, for who writes by routes of this version. Where these are past, as if there had been none: who is no master any more
    /// may be written to by them still.
    pub fn losses_at(&self, version: u64) -> u64 {
        let current = self.current.read();
        if current.version == version { self.losses.count() } else { 0 }
    }

    /// Takes other routes, unless nothing is different.
    fn replace(&self, change: impl FnOnce(&mut Routes)) {
        let mut current = self.current.write();
        let mut next = Routes::clone(&current);
        change(&mut next);
        if next != **current {
            (next.version, next.since) = (current.version + 1, Instant::now());
            // Who has no slots any more is no master, maybe, of which a copy goes on without what that one had.
            let lost = current.masters.iter().filter(|node| !next.masters.contains(node));
            lost.for_each(|node| self.losses.note_demoted(*node));
            self.version.store(next.version, Ordering::Release);
            *current = Arc::new(next);
        }
    }

    /// A server says that a slot is this one's; gives its number. Who follows the cluster asks for the others.
    pub fn note_moved(&self, slot: u16, node: Node) -> Option<NodeNo> {
        // Most who say so say it again.
        let current = self.routes();
        if let Some(owner) = current.of(slot).filter(|owner| current.nodes[usize::from(*owner)] == node) {
            return Some(owner);
        }
        let mut number = None;
        self.replace(|routes| {
            number = routes.number(node);
            if let Some(number) = number {
                routes.slots[usize::from(slot)] = number;
                routes.note_masters();
            }
        });
        self.hurry();
        number
    }

    /// A server says that one request is this one's; gives its number.
    pub fn note_node(&self, node: Node) -> Option<NodeNo> {
        let known = self.current.read().nodes.iter().position(|known| *known == node);
        if let Some(known) = known {
            return NodeNo::try_from(known).ok();
        }
        let mut number = None;
        self.replace(|routes| number = routes.number(node));
        number
    }

    /// The cluster has named these nodes.
    fn note_named(&self, nodes: &[Node]) {
        let mut named = self.named.write();
        named.clear();
        named.extend_from_slice(nodes);
    }

    /// The number of a server that is known, or that the cluster has named, as the replica that has become master by now; None: it may be anybody.
    pub fn number_of(&self, node: &Node) -> Option<NodeNo> {
        let is_ours = self.current.read().nodes.contains(node) || self.named.read().contains(node);
        if is_ours { self.note_node(node.clone()) } else { None }
    }

    /// Has the cluster asked for its slots soon.
    pub fn hurry(&self) {
        if let Some(hurry) = &self.hurry {
            // One that waits already is enough.
            let _ = hurry.lock().try_send(());
        }
    }
}
