//! What a shard of nodes in one thread stands on: the time and what happens next, the network, clients, and what befalls nodes, ways, disks and the store of
//! decisions until it is over. What nodes are, and what they do, is [`Staged`]'s; everything follows from the seed.
//!
//! Times are microseconds.

use crate::network::{End, Network, Parcel};
use std::collections::{BTreeMap, VecDeque};
use sys::Prng;

/// One thing that may befall a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disturbance {
    /// A process ends and starts again; what it wrote stays.
    Kill,
    /// The power goes; what was not synced may be gone.
    PowerCut,
    /// A process stands still while its clock goes on.
    Pause,
    /// Nothing passes between two nodes.
    Cut,
    /// Nothing passes from one node to another, but the other way.
    CutOneWay,
    /// A node is cut off from all others, and perhaps from the store of decisions.
    Isolate,
    /// A connection breaks.
    Break,
    /// A link becomes a hundred times as slow.
    Throttle,
    /// A disk takes its time for a sync.
    SlowDisk,
    /// Nobody reaches the store of decisions.
    NoStore,
    /// A command wants a node to be master.
    Promote,
    /// A command wants the master to hand over.
    HandOver,
    /// A node puts its data in order on disk.
    Checkpoint,
}

/// What befalls a shard, how often and until when.
#[derive(Clone, Debug)]
pub struct Fate {
    /// Each is as likely as any other.
    pub disturbances: Vec<Disturbance>,
    /// The mean time between two.
    pub every: u64,
    /// How long each lasts at most.
    pub spell_max: u64,
    /// When they end.
    pub until: u64,
    /// How much faster or slower each node's clock goes, in millionths.
    pub clock_ppm: Vec<i64>,
}

/// The end of a spell.
#[derive(Clone, Copy, Debug)]
pub enum Relief {
    /// A node starts.
    Starts(usize),
    /// A process goes on.
    Resumes(End),
    /// A way is open, and fast.
    WayOpens {
        /// From this node.
        from: usize,
        /// To this one.
        to: usize,
    },
    /// A disk is fast.
    DiskIsFast(usize),
    /// The store of decisions is there.
    StoreIsBack,
    /// A node reaches it.
    StoreIsReached(usize),
}

/// A disturbance that nodes see to themselves.
#[derive(Clone, Copy, Debug)]
pub enum Deed {
    /// A node is to be master.
    Promote(usize),
    /// The master is to hand over.
    HandOver,
    /// A node puts its data in order, and what goes with that may take so long.
    Checkpoint(usize, u64),
}

/// Something that happens.
pub enum Happening<W: Staged> {
    /// Something comes to a process.
    Arrives(End, W::Arrival),
    /// Time goes by for a process.
    Ticks(End),
    /// A client asks for something.
    ClientActs(usize),
    /// A client learns what became of an operation.
    ClientHears {
        /// Which.
        client: usize,
        /// Of what.
        operation: usize,
        /// What.
        reply: W::Reply,
    },
    /// Something befalls the shard.
    Disturbance,
    /// Something is over.
    Over(Relief),
    /// What only such nodes know.
    Own(W::Happening),
}

/// How a node fares.
pub struct Condition<W: Staged> {
    /// Which of its processes is the last.
    pub process: u64,
    /// Whether that one lives.
    pub is_up: bool,
    /// Whether it stands still.
    pub is_paused: bool,
    /// Whether its disk takes long.
    pub is_disk_slow: bool,
    /// Whether the store of decisions is out of its reach.
    pub is_storeless: bool,
    inbox: VecDeque<W::Arrival>,
}

/// A client, which asks for one thing at a time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Client {
    /// The operation under way.
    operation: Option<usize>,
    /// The node that served last.
    pub favourite: usize,
}

/// What is around the nodes.
pub struct Stage<W: Staged> {
    /// The true time.
    pub now: u64,
    /// All chance.
    pub prng: Prng,
    /// All links.
    pub network: Network<W::Payload>,
    /// All nodes.
    pub nodes: Vec<Condition<W>>,
    /// All clients.
    pub clients: Vec<Client>,
    /// What has gone wrong first.
    pub violation: Option<String>,
    fate: Fate,
    is_store_up: bool,
    tick: u64,
    queue: BTreeMap<(u64, u64), Happening<W>>,
    happened: u64,
    /// Whether what happens is printed (`TARN_TRACE`).
    pub traces: bool,
}

impl<W: Staged> Stage<W> {
    /// A quiet beginning without any process. `tick`: how often time goes by for one.
    #[must_use]
    pub fn new(prng: Prng, fate: Fate, network: Network<W::Payload>, clients: usize, tick: u64) -> Stage<W> {
        let condition = |_| Condition {
            process: 0,
            is_up: false,
            is_paused: false,
            is_disk_slow: false,
            is_storeless: false,
            inbox: VecDeque::new(),
        };
        Stage {
            now: 0,
            prng,
            network,
            nodes: (0..fate.clock_ppm.len()).map(condition).collect(),
            clients: vec![Client::default(); clients],
            violation: None,
            fate,
            is_store_up: true,
            tick,
            queue: BTreeMap::new(),
            happened: 0,
            traces: std::env::var_os("TARN_TRACE").is_some(),
        }
    }

    /// Clients begin to ask after `delay`, and disturbances to come.
    pub fn begin(&mut self, delay: u64) {
        (0..self.clients.len()).for_each(|client| self.soon(delay, Happening::ClientActs(client)));
        self.disturb_later();
    }

    /// Has something happen behind a delay.
    pub fn soon(&mut self, delay: u64, happening: Happening<W>) {
        self.at(self.now + delay + 1, happening);
    }

    fn at(&mut self, at: u64, happening: Happening<W>) {
        self.happened += 1;
        self.queue.insert((at, self.happened), happening);
    }

    /// What is next, if it is before `until`: it is that time then.
    fn next(&mut self, until: u64) -> Option<Happening<W>> {
        let entry = self.queue.first_entry().filter(|entry| entry.key().0 <= until)?;
        let ((at, _), happening) = entry.remove_entry();
        self.now = at;
        Some(happening)
    }

    /// Prints what happens, if that is wanted.
    pub fn trace(&self, what: impl FnOnce() -> String) {
        if self.traces {
            println!("{:>9} {}", self.now, what());
        }
    }

    /// Something is wrong.
    pub fn fail(&mut self, what: String) {
        self.trace(|| format!("VIOLATION {what}"));
        self.violation.get_or_insert(what);
    }

    /// A node's last process.
    #[must_use]
    pub fn end(&self, node: usize) -> End {
        End { node, process: self.nodes[node].process }
    }

    /// Whether a process lives.
    #[must_use]
    pub fn is_current(&self, end: End) -> bool {
        self.nodes[end.node].process == end.process && self.nodes[end.node].is_up
    }

    /// Whether all nodes are up.
    #[must_use]
    pub fn all_up(&self) -> bool {
        self.nodes.iter().all(|node| node.is_up)
    }

    /// Whether two nodes hear each other.
    #[must_use]
    pub fn is_way(&self, one: usize, other: usize) -> bool {
        self.network.is_open(one, other) && self.network.is_open(other, one)
    }

    /// Whether a node reaches the store of decisions.
    #[must_use]
    pub fn has_store(&self, node: usize) -> bool {
        self.is_store_up && !self.nodes[node].is_storeless
    }

    /// Nobody reaches the store of decisions until all is healed.
    pub fn lose_store(&mut self) {
        self.is_store_up = false;
    }

    /// How much has gone by on a node's own clock.
    #[must_use]
    pub fn elapsed(&self, node: usize) -> u64 {
        let ran = self.now as i64 + self.now as i64 * self.fate.clock_ppm[node] / 1_000_000;
        ran as u64
    }

    /// How long a node's disk takes.
    pub fn disk_delay(&mut self, node: usize, most: u64) -> u64 {
        let delay = 20 + self.prng.below(most);
        if self.nodes[node].is_disk_slow { delay + 1_000_000 } else { delay }
    }

    /// A process begins at a node.
    pub fn rise(&mut self, node: usize) {
        self.nodes[node].process += 1;
        self.nodes[node].is_up = true;
        let end = self.end(node);
        self.soon(0, Happening::Ticks(end));
    }

    /// A client asks a node, and waits for so long at the most, or a little longer. `unknown` is what it learns then.
    pub fn ask(
        &mut self,
        (client, operation): (usize, usize),
        to: (usize, W::Arrival),
        patience: u64,
        unknown: W::Reply,
    ) {
        let (node, asked) = to;
        self.clients[client] = Client { operation: Some(operation), favourite: node };
        let (end, delay) = (self.end(node), self.prng.below(200));
        self.soon(delay, Happening::Arrives(end, asked));
        let patience = patience / 4 + self.prng.below(patience);
        self.soon(patience, Happening::ClientHears { client, operation, reply: unknown });
    }

    /// A reply leaves for whoever waits for it.
    pub fn reply(&mut self, operation: usize, reply: W::Reply) {
        let delay = self.prng.below(200);
        if let Some(client) = self.clients.iter().position(|client| client.operation == Some(operation)) {
            self.soon(delay, Happening::ClientHears { client, operation, reply });
        }
    }

    /// Nothing comes from one node to another for so long.
    pub fn cut_way(&mut self, from: usize, to: usize, spell: u64) {
        self.network.cut(from, to);
        self.soon(spell, Happening::Over(Relief::WayOpens { from, to }));
    }

    fn cut_both(&mut self, one: usize, other: usize, spell: u64) {
        self.cut_way(one, other, spell);
        self.cut_way(other, one, spell);
    }

    fn isolate(&mut self, node: usize, spell: u64) {
        if self.prng.one_in(2) {
            self.nodes[node].is_storeless = true;
            self.soon(spell, Happening::Over(Relief::StoreIsReached(node)));
        }
        for other in (0..self.nodes.len()).filter(|other| *other != node) {
            self.cut_both(node, other, spell);
        }
    }

    fn pause(&mut self, node: usize, spell: u64) {
        if self.nodes[node].is_up && !self.nodes[node].is_paused {
            self.nodes[node].is_paused = true;
            let end = self.end(node);
            self.soon(spell, Happening::Over(Relief::Resumes(end)));
        }
    }

    fn disturb_later(&mut self) {
        let wait = self.prng.below(2 * self.fate.every);
        self.soon(wait, Happening::Disturbance);
    }

    /// Which disturbance comes, of which node, towards which other, and for how long.
    fn choose(&mut self) -> (Disturbance, usize, usize, u64) {
        let kinds = &self.fate.disturbances;
        let kind = kinds[self.prng.below(kinds.len() as u64) as usize];
        let count = self.nodes.len();
        let node = self.prng.below(count as u64) as usize;
        let other = (node + 1 + self.prng.below(count as u64 - 1) as usize) % count;
        let spell = self.prng.below(self.fate.spell_max);
        self.trace(|| format!("DISTURBANCE {kind:?} of {node} ({other}) for {spell}"));
        (kind, node, other, spell)
    }
}

/// A shard on a stage. What is required is what its nodes do; what is provided, how things come to them.
pub trait Staged: Sized {
    /// What travels on a link.
    type Payload;
    /// What comes to a process.
    type Arrival;
    /// What clients learn.
    type Reply;
    /// What else happens.
    type Happening;

    /// The stage.
    fn stage(&mut self) -> &mut Stage<Self>;

    /// What comes of what a node has sent on a link.
    fn arrival(&self, from: usize, link: u64, parcel: Parcel<Self::Payload>) -> Self::Arrival;

    /// A process that lives, and does not stand still, takes something.
    fn take(&mut self, node: usize, arrival: Self::Arrival);

    /// Something comes for a process that is gone.
    fn miss(&mut self, arrival: Self::Arrival);

    /// Time has gone by for a process.
    fn tick(&mut self, node: usize);

    /// A process begins at a node that has none ([`Stage::rise`]).
    fn start(&mut self, node: usize);

    /// A node's process is gone, perhaps with its machine's power.
    fn end(&mut self, node: usize, is_power_cut: bool);

    /// A client asks for something ([`Stage::ask`]).
    fn client_acts(&mut self, client: usize);

    /// A client learns what became of what it asked for.
    fn client_hears(&mut self, client: usize, operation: usize, reply: Self::Reply);

    /// Carries out what nodes see to themselves.
    fn carry_out(&mut self, deed: Deed);

    /// What only such nodes know happens.
    fn happen(&mut self, own: Self::Happening);

    /// Runs until `until`, or until something is wrong.
    fn run(&mut self, until: u64) {
        while self.stage().violation.is_none() {
            let Some(next) = self.stage().next(until) else { break };
            self.go_on(next);
        }
        let stage = self.stage();
        stage.now = stage.now.max(until);
    }

    /// One thing happens.
    fn go_on(&mut self, happening: Happening<Self>) {
        let stage = self.stage();
        match happening {
            Happening::Arrives(end, arrival) => self.arrive(end, arrival),
            Happening::Ticks(end) => {
                if stage.is_current(end) {
                    let is_paused = stage.nodes[end.node].is_paused;
                    stage.soon(stage.tick, Happening::Ticks(end));
                    if !is_paused {
                        self.tick(end.node);
                    }
                }
            }
            Happening::ClientActs(client) => self.client_acts(client),
            Happening::ClientHears { client, operation, reply } => {
                let waits = stage.clients[client].operation.take_if(|asked| *asked == operation);
                if waits.is_some() {
                    self.client_hears(client, operation, reply);
                }
            }
            Happening::Disturbance => {
                if stage.now < stage.fate.until && !stage.fate.disturbances.is_empty() {
                    self.disturb();
                    self.stage().disturb_later();
                }
            }
            Happening::Over(relief) => self.relieve(relief),
            Happening::Own(own) => self.happen(own),
        }
    }

    /// Something comes to a process.
    fn arrive(&mut self, end: End, arrival: Self::Arrival) {
        let stage = self.stage();
        if !stage.is_current(end) {
            self.miss(arrival);
        } else if stage.nodes[end.node].is_paused {
            stage.nodes[end.node].inbox.push_back(arrival);
        } else {
            self.take(end.node, arrival);
        }
    }

    /// Sends on a link.
    fn send(&mut self, node: usize, link: u64, payload: Self::Payload) {
        let stage = self.stage();
        let sent = stage.network.send(link, node, Parcel::Sent(payload), stage.now, &mut stage.prng);
        if let Some((at, end, parcel)) = sent {
            let arrival = self.arrival(node, link, parcel);
            self.stage().at(at, Happening::Arrives(end, arrival));
        }
    }

    /// Ends a link.
    fn close(&mut self, node: usize, link: u64) {
        let stage = self.stage();
        if let Some((at, end)) = stage.network.close(link, node, stage.now, &mut stage.prng) {
            let arrival = self.arrival(node, link, Parcel::Closed);
            self.stage().at(at, Happening::Arrives(end, arrival));
        }
    }

    /// Ends a node's process, if it has one.
    fn stop(&mut self, node: usize, is_power_cut: bool) {
        let stage = self.stage();
        if !stage.nodes[node].is_up {
            return;
        }
        let end = stage.end(node);
        for (link, at, other) in stage.network.gone(end, !is_power_cut, stage.now, &mut stage.prng) {
            let arrival = self.arrival(node, link, Parcel::Closed);
            self.stage().at(at, Happening::Arrives(other, arrival));
        }
        let stopped = &mut self.stage().nodes[node];
        (stopped.is_up, stopped.is_paused) = (false, false);
        stopped.inbox.clear();
        self.end(node, is_power_cut);
    }

    /// The same, and it starts again: at once or when the spell is over.
    fn stop_for(&mut self, node: usize, is_power_cut: bool, spell: u64) {
        self.stop(node, is_power_cut);
        let stage = self.stage();
        let down = if stage.prng.one_in(2) { spell } else { 1_000 };
        stage.soon(down, Happening::Over(Relief::Starts(node)));
    }

    /// Something befalls the shard.
    fn disturb(&mut self) {
        let stage = self.stage();
        let (kind, node, other, spell) = stage.choose();
        match kind {
            Disturbance::Kill | Disturbance::PowerCut => {
                self.stop_for(node, kind == Disturbance::PowerCut, spell);
            }
            Disturbance::Pause => stage.pause(node, spell),
            Disturbance::Cut => stage.cut_both(node, other, spell),
            Disturbance::CutOneWay => stage.cut_way(node, other, spell),
            Disturbance::Isolate => stage.isolate(node, spell),
            Disturbance::Break => {
                if let Some((link, ends)) = stage.network.break_one(stage.now, &mut stage.prng) {
                    for (at, end) in ends {
                        let arrival = self.arrival(end.node, link, Parcel::Closed);
                        self.stage().at(at, Happening::Arrives(end, arrival));
                    }
                }
            }
            Disturbance::Throttle => {
                stage.network.slow(node, other);
                stage.soon(spell, Happening::Over(Relief::WayOpens { from: node, to: other }));
            }
            Disturbance::SlowDisk => {
                stage.nodes[node].is_disk_slow = true;
                stage.soon(spell, Happening::Over(Relief::DiskIsFast(node)));
            }
            Disturbance::NoStore => {
                stage.is_store_up = false;
                stage.soon(spell, Happening::Over(Relief::StoreIsBack));
            }
            Disturbance::Promote => self.carry_out(Deed::Promote(node)),
            Disturbance::HandOver => self.carry_out(Deed::HandOver),
            Disturbance::Checkpoint => self.carry_out(Deed::Checkpoint(node, spell)),
        }
    }

    /// A spell is over.
    fn relieve(&mut self, relief: Relief) {
        let stage = self.stage();
        match relief {
            Relief::Starts(node) => {
                if !stage.nodes[node].is_up {
                    self.start(node);
                }
            }
            Relief::Resumes(end) => {
                if stage.is_current(end) && std::mem::take(&mut stage.nodes[end.node].is_paused) {
                    stage.trace(|| format!("{} resumes", end.node));
                    while let Some(arrival) = self.stage().nodes[end.node].inbox.pop_front() {
                        self.arrive(end, arrival);
                    }
                }
            }
            Relief::WayOpens { from, to } => {
                for (at, end, link, parcel) in stage.network.open(from, to, stage.now, &mut stage.prng) {
                    let arrival = self.arrival(from, link, parcel);
                    self.stage().at(at, Happening::Arrives(end, arrival));
                }
            }
            Relief::DiskIsFast(node) => stage.nodes[node].is_disk_slow = false,
            Relief::StoreIsBack => stage.is_store_up = true,
            Relief::StoreIsReached(node) => stage.nodes[node].is_storeless = false,
        }
    }

    /// Ends all disturbances at once.
    fn heal(&mut self) {
        let stage = self.stage();
        stage.trace(|| "HEALED".to_owned());
        stage.is_store_up = true;
        for from in 0..stage.nodes.len() {
            (stage.nodes[from].is_disk_slow, stage.nodes[from].is_storeless) = (false, false);
            for to in (0..stage.nodes.len()).filter(|to| *to != from) {
                stage.soon(0, Happening::Over(Relief::WayOpens { from, to }));
            }
            stage.soon(0, Happening::Over(Relief::Starts(from)));
            let end = stage.end(from);
            stage.soon(0, Happening::Over(Relief::Resumes(end)));
        }
    }
}
