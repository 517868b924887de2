//! The part of a server in a cluster, if it has one: who it is there, what the cluster looks like, and where the requests of each slot go.
//!
//! Whoever follows the config servers gives it topologies ([`Part::publish`]), and the driver of the server's own shard says how that stands
//! ([`Part::note_standing`]), which is fresher. What comes of both is a [`View`], made anew with each change and never changed.
//!
//! Thread rule: any thread. A worker keeps the view it has seen, and looks for a newer one once for each batch, inside the keyspace.
//!
//! Invariants:
//! 1. A topology is never taken for a later one.
//! 2. A server serves a slot only while its own shard has it, and has said that this node is its master; and not before config servers have told that,
//!    too. So what it knows of slots is no older than its reign, and no older than its run, whatever lies in its directory.

mod fault;

use crate::shard::Standing;
use config::Config;
use fault::Fault;
use parking_lot::{Condvar, Mutex};
use replication::insync::Role;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use sys::UnixMs;
use topology::{Move, Place, Routes, Server, ServerId, ShardId, Topology};

/// The part of a server in a cluster; None: it stands alone, for ever.
pub struct Clustered(Option<Box<Part>>);

impl Clustered {
    /// As the directives say.
    #[must_use]
    pub fn of(config: &Config) -> Clustered {
        Clustered(config.cluster_enabled().then(|| Box::new(Part::of(config))))
    }

    /// The part; None: the server stands alone.
    #[inline]
    #[must_use]
    pub fn get(&self) -> Option<&Part> {
        self.0.as_deref()
    }

    /// Whether the server is a node of a cluster, or is to become one.
    #[inline]
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }
}

/// What a server knows of its cluster.
pub struct Part {
    /// Of the view: rises with each.
    version: AtomicU64,
    /// The one for which waiting sessions have been looked after.
    settled: AtomicU64,
    /// Counts how often a request has waited for who has its slot to be seen.
    pub waits: AtomicU64,
    state: Mutex<State>,
    /// Told of each new view.
    changed: Condvar,
    /// Slots that CLUSTER SETSLOT has marked as migrating.
    marked: Mutex<BTreeSet<u16>>,
    /// Between which nodes and this one messages go, and since when.
    links: Mutex<BTreeMap<Link, UnixMs>>,
    /// Libraries of functions that are loaded when this server begins a shard: each one's code.
    libraries: Mutex<Vec<Vec<u8>>>,
}

/// A connection on which what is published is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Link {
    /// This node hears what is published at that one.
    To(ServerId),
    /// That one hears what is published here, on the connection of the client with this number.
    From(ServerId, u64),
}

#[derive(Default)]
struct State {
    id: Option<ServerId>,
    /// The server's own record, as it introduces itself.
    record: Option<Server>,
    /// As config servers have told it.
    told: Arc<Topology>,
    has_been_told: bool,
    /// Config servers have told in this run that it is so, or have been told something later.
    is_confirmed: bool,
    /// Config servers have told that this server has no place any more.
    is_removed: bool,
    /// Of whom config servers have not heard for a while, as they said last.
    silent: Arc<BTreeSet<ServerId>>,
    /// As the own shard has told it.
    own: Option<Own>,
    settings: Settings,
    view: Arc<View>,
    /// The mistake that a test has planted.
    planted: Option<Fault>,
}

/// What directives say of when a cluster is down, and of the server itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Settings {
    wants_all_slots: bool,
    /// The name by which it is reached, which it knows before anybody tells it.
    hostname: String,
}

/// How the server's own shard stands, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Own {
    leads: bool,
    /// The highest epoch seen.
    epoch: u64,
    /// The decision: its epoch, and master and members by their numbers.
    decision: Option<(u64, u32, Vec<u32>)>,
}

/// The cluster at one moment, as a server sees it.
#[derive(Clone, Debug)]
pub struct View {
    /// Who the server is; None: it has not introduced itself yet.
    pub id: Option<ServerId>,
    /// What the cluster looks like. The server's own shard is as its own nodes know it.
    pub topology: Topology,
    /// Where requests go.
    pub routes: Routes,
    /// Whether this server is master of its shard, as that has said last and config servers know. The engine's attention says sooner that it is not.
    pub leads: bool,
    /// Whether the cluster is up: no slot is nobody's, unless one may be.
    pub is_up: bool,
    /// Whether this server has heard of config servers in this run how the cluster looks.
    pub is_confirmed: bool,
    /// Whether they have told that it was removed.
    pub is_removed: bool,
    /// Of whom config servers have not heard for a while. Nothing but what clients are told depends on it.
    pub silent: Arc<BTreeSet<ServerId>>,
    /// Since when it is so who leads the shard.
    pub since: Instant,
    /// Since when it is so which slots are about to come to it.
    coming_since: Instant,
}

/// How long a request waits for a slot that is about to come. Whoever had it may have heard sooner that it is here.
const COMING_MAX: Duration = Duration::from_secs(5);

impl Default for View {
    fn default() -> View {
        View {
            id: None,
            topology: Topology::default(),
            routes: Routes::default(),
            leads: false,
            is_up: false,
            is_confirmed: false,
            is_removed: false,
            silent: Arc::default(),
            since: Instant::now(),
            coming_since: Instant::now(),
        }
    }
}

impl View {
    /// This server's record.
    #[must_use]
    pub fn own(&self) -> Option<&Server> {
        self.topology.servers.get(&self.id?)
    }

    /// The shard in which this server has its place.
    #[must_use]
    pub fn shard(&self) -> Option<ShardId> {
        self.routes.own().map(|place| place.shard)
    }

    /// The master of this server's shard, if that is another server.
    #[must_use]
    pub fn other_master(&self) -> Option<&Server> {
        self.topology.master_of(self.shard()?).filter(|master| Some(master.id) != self.id)
    }

    /// Whether it is about to be seen whether a slot is this server's: to whom it belongs by what has been told sends its clients here, perhaps. Where that
    /// is not heard for a while, this server may be cut off from those who tell it, and the other one serves.
    #[must_use]
    pub fn awaits(&self, slot: u16) -> bool {
        self.leads && self.routes.is_coming(slot) && self.coming_since.elapsed() < COMING_MAX
    }

    fn master(&self) -> Option<ServerId> {
        self.topology.master_of(self.shard()?).map(|master| master.id)
    }
}

/// The view that a worker has seen last.
#[derive(Default)]
pub struct Seen {
    version: u64,
    view: Option<Arc<View>>,
}

impl Seen {
    /// The view as it is now; None: the server stands alone.
    #[inline]
    pub fn renew(&mut self, clustered: &Clustered) -> Option<&Arc<View>> {
        let part = clustered.get()?;
        if self.version != part.version.load(Ordering::Acquire) || self.view.is_none() {
            self.take(part);
        }
        self.view.as_ref()
    }

    #[cold]
    fn take(&mut self, part: &Part) {
        let state = part.state.lock();
        self.version = part.version.load(Ordering::Acquire);
        self.view = Some(state.view.clone());
    }
}

/// No view has this number.
const UNSETTLED: u64 = u64::MAX;

impl Part {
    fn of(config: &Config) -> Part {
        let part = Part {
            version: AtomicU64::new(0),
            settled: AtomicU64::new(0),
            waits: AtomicU64::new(0),
            state: Mutex::default(),
            changed: Condvar::new(),
            marked: Mutex::default(),
            links: Mutex::default(),
            libraries: Mutex::default(),
        };
        part.follow(config);
        part
    }

    /// Who the server is, which it has kept in its directory, or has drawn. Before any client is served.
    pub fn introduce(&self, id: ServerId) {
        let mut state = self.state.lock();
        state.id = Some(id);
        self.renew(&mut state);
    }

    /// Where the server is, as it introduces itself to config servers: what it tells of itself as long as nobody has told it its place.
    pub fn note_record(&self, record: Server) {
        let record = Some(Server { place: None, ..record });
        let mut state = self.state.lock();
        if state.record != record {
            state.record = record;
            self.renew(&mut state);
        }
    }

    /// Takes a topology. False: it is not later than the one that there is, and nothing has changed.
    pub fn publish(&self, topology: Topology) -> bool {
        let mut state = self.state.lock();
        let is_earlier = topology.revision <= state.told.revision;
        if state.has_been_told && is_earlier && !Fault::is(state.planted, Fault::EarlierIsTaken) {
            return false;
        }
        state.has_been_told = true;
        state.told = Arc::new(topology);
        self.renew(&mut state);
        true
    }

    /// Config servers have said in this run that the topology is as they have told it last. False: it was known.
    pub fn confirm(&self) -> bool {
        let mut state = self.state.lock();
        if std::mem::replace(&mut state.is_confirmed, true) {
            return false;
        }
        self.renew(&mut state);
        true
    }

    /// This server has no place any more, whatever was told before.
    pub fn note_removed(&self) {
        let mut state = self.state.lock();
        if !std::mem::replace(&mut state.is_removed, true) {
            self.renew(&mut state);
        }
    }

    /// Of these servers config servers have not heard for a while.
    pub fn note_silent(&self, silent: BTreeSet<ServerId>) {
        let mut state = self.state.lock();
        if *state.silent != silent {
            state.silent = Arc::new(silent);
            self.renew(&mut state);
        }
    }

    /// The topology as config servers have told it last; None: they have told none yet.
    #[must_use]
    pub fn told(&self) -> Option<Arc<Topology>> {
        let state = self.state.lock();
        state.has_been_told.then(|| state.told.clone())
    }

    /// Takes note of how the server's own shard stands. Called often: what changes nothing costs little.
    pub fn note_standing(&self, standing: &Standing) {
        let decision = standing.decision.as_ref().map(|decision| {
            let members = decision.members.iter().map(|member| member.node.0).collect();
            (decision.epoch.0, decision.master.node.0, members)
        });
        let leads = standing.role == Role::Master && !standing.is_halted;
        let own = Some(Own { leads, epoch: standing.epoch.0, decision });
        let mut state = self.state.lock();
        if state.own != own {
            state.own = own;
            self.renew(&mut state);
        }
    }

    /// Takes over what the configuration says.
    pub fn follow(&self, config: &Config) {
        let settings = Settings {
            wants_all_slots: config.cluster_require_full_coverage(),
            hostname: String::from_utf8_lossy(&config.cluster_announce_hostname()).into_owned(),
        };
        let mut state = self.state.lock();
        if state.settings != settings {
            state.settings = settings;
            self.renew(&mut state);
        }
    }

    /// Whether anything has changed since this was asked last.
    pub fn takes_change(&self) -> bool {
        let version = self.version.load(Ordering::Acquire);
        // What is looked at then is looked at behind that.
        self.settled.swap(version, Ordering::AcqRel) != version
    }

    /// Has the change that there was last be taken once more: somebody began to wait, or to listen, by a view of before it while others were looked at.
    pub fn unsettle(&self) {
        self.settled.store(UNSETTLED, Ordering::Release);
    }

    /// For how long this server's shard has said that it is master while config servers have not told so yet; None: it does not wait for that.
    #[must_use]
    pub fn awaits_word_for(&self) -> Option<Duration> {
        let state = self.state.lock();
        let leads = state.own.as_ref().is_some_and(|own| own.leads);
        (leads && !state.view.leads).then(|| state.view.since.elapsed())
    }

    /// Whether a topology is of a store that has forgotten moves which this server knows of: whose the slots are is not what it says.
    #[must_use]
    pub fn is_forgetful(&self, topology: &Topology) -> bool {
        let told = self.state.lock().told.clone();
        // No number is given twice, and no move goes back.
        let goes_back = |one: &Move| match told.moves.get(&one.id) {
            None => one.id <= told.last_move,
            Some(known) => one.progress() < known.progress(),
        };
        topology.last_move < told.last_move
            || topology.revision > told.revision && topology.moves.values().any(goes_back)
    }

    /// Waits until there is another view than this, but not for longer than that.
    pub fn wait_for_change(&self, seen: &Arc<View>, longest: Duration) {
        let mut state = self.state.lock();
        if Arc::ptr_eq(&state.view, seen) {
            self.changed.wait_for(&mut state, longest);
        }
    }

    /// Marks a slot as migrating, or not any more. Nothing but what GETKEYSINSLOT says depends on it.
    pub fn mark_migrating(&self, slot: u16, is_migrating: bool) {
        let mut marked = self.marked.lock();
        let _ = if is_migrating { marked.insert(slot) } else { marked.remove(&slot) };
    }

    /// Whether a slot is marked.
    #[must_use]
    pub fn is_marked(&self, slot: u16) -> bool {
        self.marked.lock().contains(&slot)
    }

    /// There is a link from now on, or not any more.
    pub fn note_link(&self, link: Link, since: Option<UnixMs>) {
        let mut links = self.links.lock();
        let _ = match since {
            Some(since) => links.insert(link, since),
            None => links.remove(&link),
        };
    }

    /// Keeps libraries until this server begins a shard.
    pub fn keep_libraries(&self, codes: Vec<Vec<u8>>) {
        *self.libraries.lock() = codes;
    }

    /// The libraries that were kept, once.
    pub fn take_libraries(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.libraries.lock())
    }

    /// All links, and since when they are there.
    #[must_use]
    pub fn links(&self) -> BTreeMap<Link, UnixMs> {
        self.links.lock().clone()
    }

    /// The view as it is now.
    #[must_use]
    pub fn view(&self) -> Arc<View> {
        self.state.lock().view.clone()
    }

    /// Who the server is; None: it has not introduced itself yet.
    #[must_use]
    pub fn id(&self) -> Option<ServerId> {
        self.state.lock().id
    }

    /// The server's place; None: it waits for one.
    #[must_use]
    pub fn place(&self) -> Option<Place> {
        self.state.lock().view.routes.own()
    }

    fn renew(&self, state: &mut State) {
        let view = View::new(state);
        state.view = Arc::new(view);
        self.version.fetch_add(1, Ordering::Release);
        self.changed.notify_all();
    }
}

impl View {
    fn new(state: &State) -> View {
        let mut topology = Topology::clone(&state.told);
        let id = state.id;
        if let Some(record) = state.record.as_ref().filter(|record| Some(record.id) == id) {
            // Of itself it knows before anybody tells it.
            topology.servers.entry(record.id).or_insert_with(|| record.clone());
        }
        if let Some(own) = id.and_then(|id| topology.servers.get_mut(&id)) {
            own.hostname.clone_from(&state.settings.hostname);
        }
        if let Some(own) = id.and_then(|id| topology.servers.get_mut(&id)).filter(|_| state.is_removed) {
            // As one that knows the others, and is to be no new one among them.
            (own.place, own.is_met) = (None, true);
        }
        let place = id.and_then(|id| topology.servers.get(&id)).and_then(|server| server.place);
        let is_confirmed = state.is_confirmed || Fault::is(state.planted, Fault::OldTopologyAtRestart);
        let serves_unnamed = Fault::is(state.planted, Fault::ServesUnnamed);
        let leads = place.zip(state.own.as_ref()).is_some_and(|(place, own)| {
            is_confirmed && own.leads && (serves_unnamed || is_told_so(&topology, place, own))
        });
        if let Some((place, own)) = place.zip(state.own.as_ref()) {
            correct(&mut topology, place, own);
        }
        let routes = Routes::new(&topology, id);
        let is_whole = routes.are_whole() || !state.settings.wants_all_slots;
        let is_up = state.has_been_told && is_confirmed && is_whole;
        let (before, silent) = (&state.view, state.silent.clone());
        let (since, coming_since, is_removed) = (before.since, before.coming_since, state.is_removed);
        let mut view = View {
            id,
            topology,
            routes,
            leads,
            is_up,
            is_confirmed,
            is_removed,
            silent,
            since,
            coming_since,
        };
        if view.routes.coming() != before.routes.coming() {
            view.coming_since = Instant::now();
        }
        if view.leads != state.view.leads || view.master() != state.view.master() {
            view.since = Instant::now();
        }
        view
    }
}

/// Whether config servers know that the server at this place is master in the epoch that its shard is in.
fn is_told_so(told: &Topology, place: Place, own: &Own) -> bool {
    let shard = told.shards.get(&place.shard);
    shard.is_some_and(|shard| shard.epoch == own.epoch && shard.master == Some(place.node))
}

/// Has a topology say of the own shard what its nodes know, where that is later. Within an epoch only the master changes who its members are, and other
/// nodes may hear of it from config servers only.
fn correct(topology: &mut Topology, place: Place, own: &Own) {
    let Some(shard) = topology.shards.get_mut(&place.shard) else { return };
    if let Some((epoch, master, members)) = &own.decision
        && (*epoch > shard.epoch || own.leads && *epoch == shard.epoch)
    {
        shard.epoch = *epoch;
        shard.master = Some(*master);
        shard.members = members.iter().copied().collect();
    }
}

#[cfg(test)]
mod tests;
