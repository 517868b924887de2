//! A whole shard in one thread: nodes with their disks and clocks, the network, the store of decisions and clients, driven by a
//! queue of what happens next. Everything follows from the seed.

use super::super::{
    Action, Answer, Decision, Decisions, Epoch, Event, Life, LinkId, Member, MemberId, Message, Moment,
    NodeId, Register, Request, Restored, Ticket, Version, Writes,
};
use super::disk::{Disk, Record};
use super::linear::Operation;
use super::plan::Plan;
use log::Lsn;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use sys::Prng;
use testkit::network::{self, End, Network};

mod clients;
mod disturbances;

/// A message with its records, or that the other side has closed the link.
pub type Parcel = network::Parcel<(Message, Vec<Record>)>;

/// Something that comes to a process of a node.
#[derive(Clone, Debug)]
pub enum Arrival {
    Event(Event),
    Message { link: LinkId, from: MemberId, parcel: Parcel },
    Synced { generation: u64, end: usize },
    Cut { generation: u64, end: usize, is_possible: bool },
    Persisted { epoch: Epoch },
    Asked { operation: usize },
}

/// Something that happens.
#[derive(Clone, Debug)]
enum Happening {
    Arrives(End, Arrival),
    Ticks(End),
    Starts(usize),
    Resumes(End),
    ReachesStore { end: End, ticket: Ticket, request: Request },
    Dialled { dialler: End, target: usize },
    ClientActs { client: usize },
    ClientHears { client: usize, operation: usize, outcome: Outcome },
    Disturbance,
    WayOpens { from: usize, to: usize },
    DiskIsFast { node: usize },
    StoreIsBack,
    ReachesStoreAgain { node: usize },
}

/// What a client learns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// It was not carried out, and never will be.
    Refused,
    /// It was written.
    Written,
    /// This was read.
    Read(Option<u64>),
    /// Nobody can say.
    Unknown,
}

/// A reply that waits for the gate.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    operation: usize,
    /// What the reply shows ends here.
    stamp: usize,
    outcome: Outcome,
    is_at_master: bool,
}

/// A node.
#[derive(Debug)]
pub struct Node {
    pub member: Option<Member>,
    pub disk: Disk,
    pub is_paused: bool,
    pub is_disk_slow: bool,
    /// Whether the store of decisions is out of its reach.
    is_storeless: bool,
    process: u64,
    life: u64,
    clock_offset: u64,
    inbox: VecDeque<Arrival>,
    waiting: Vec<Waiting>,
    /// Up to where the log was compared with what is committed.
    compared: usize,
    halted: bool,
}

impl Node {
    pub fn is_up(&self) -> bool {
        self.member.is_some()
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Client {
    /// The operation under way, and the node that served last.
    operation: Option<usize>,
    favourite: usize,
}

/// The way to the store of one process of one node.
struct StoreLine<'a> {
    world: &'a mut World,
    end: End,
}

impl Decisions for StoreLine<'_> {
    fn submit(&mut self, ticket: Ticket, request: Request) {
        let world = &mut *self.world;
        if !world.has_store(self.end.node) {
            if world.prng.one_in(2) {
                let answer = Event::Answered { ticket, answer: Answer::Unreached };
                world.soon(500, Happening::Arrives(self.end, Arrival::Event(answer)));
            }
            return;
        }
        let is_late = world.prng.one_in(world.plan.store_loss_one_in);
        let delay_max = if is_late { 2_000_000 } else { world.plan.store_delay_max };
        let delay = world.prng.below(delay_max);
        world.soon(delay, Happening::ReachesStore { end: self.end, ticket, request });
    }
}

/// The shard.
pub struct World {
    pub plan: Plan,
    pub prng: Prng,
    pub now: u64,
    pub nodes: Vec<Node>,
    pub store: Register,
    pub operations: Vec<Operation>,
    /// Everything that was ever committed, in order.
    pub committed: Vec<Record>,
    pub violation: Option<String>,
    /// Promotions, as a measure of what was tried.
    pub promotions: u64,
    pub cuts: u64,
    /// The last two masters. Whoever was one may still think that it is.
    leaders: [usize; 2],
    /// The register of the last write that was acknowledged.
    written: u64,
    is_store_up: bool,
    network: Network<(Message, Vec<Record>)>,
    queue: BTreeMap<(u64, u64), Happening>,
    happened: u64,
    lives: u64,
    values: u64,
    clients: Vec<Client>,
    traces: bool,
}

impl World {
    /// A shard at its beginning.
    pub fn new(seed: u64, plan: Plan) -> World {
        let mut prng = Prng::from_seed(seed ^ 0x7461_726e);
        let nodes = (0..plan.nodes)
            .map(|_| Node {
                member: None,
                disk: Disk::default(),
                is_paused: false,
                is_disk_slow: false,
                is_storeless: false,
                process: 0,
                life: 0,
                clock_offset: prng.below(1 << 40),
                inbox: VecDeque::new(),
                waiting: Vec::new(),
                compared: 0,
                halted: false,
            })
            .collect();
        let mut world = World {
            network: Network::new(plan.network_delay_max),
            clients: vec![Client::default(); plan.clients],
            plan,
            prng,
            now: 0,
            nodes,
            store: Register::default(),
            operations: Vec::new(),
            committed: Vec::new(),
            violation: None,
            promotions: 0,
            cuts: 0,
            leaders: [0; 2],
            written: 0,
            is_store_up: true,
            queue: BTreeMap::new(),
            happened: 0,
            lives: 0,
            values: 0,
            traces: std::env::var_os("TARN_TRACE").is_some(),
        };
        world.set_up();
        world
    }

    fn set_up(&mut self) {
        (0..self.nodes.len()).for_each(|node| self.begin_life(node));
        let ids: Vec<MemberId> = (0..self.nodes.len()).map(|node| self.id(node)).collect();
        let count = if self.plan.begins_whole { ids.len() } else { 1 };
        self.store = Register::with(Decision {
            version: Version(1),
            epoch: Epoch(0),
            master: ids[0],
            members: ids[..count].iter().copied().collect(),
            is_lossy: false,
        });
        (0..self.nodes.len()).for_each(|node| self.start(node));
        (0..self.clients.len()).for_each(|client| self.soon(1_000, Happening::ClientActs { client }));
        self.disturb_later();
    }

    fn begin_life(&mut self, node: usize) {
        self.lives += 1;
        self.nodes[node].life = self.lives;
        let generation = self.nodes[node].disk.generation + 1;
        self.nodes[node].disk = Disk::empty(generation);
    }

    pub fn id(&self, node: usize) -> MemberId {
        MemberId { node: NodeId(node as u32), life: Life(self.nodes[node].life) }
    }

    fn end(&self, node: usize) -> End {
        End { node, process: self.nodes[node].process }
    }

    fn soon(&mut self, delay: u64, happening: Happening) {
        self.at(self.now + delay + 1, happening);
    }

    fn at(&mut self, at: u64, happening: Happening) {
        self.happened += 1;
        self.queue.insert((at, self.happened), happening);
    }

    pub fn trace(&self, what: impl FnOnce() -> String) {
        if self.traces {
            println!("{:>9} {}", self.now, what());
        }
    }

    pub fn fail(&mut self, what: String) {
        self.trace(|| format!("VIOLATION {what}"));
        self.violation.get_or_insert(what);
    }

    /// A node's own time.
    pub fn local(&self, node: usize) -> Moment {
        let ran = self.now as i64 + self.now as i64 * self.plan.clock_ppm[node] / 1_000_000;
        Moment(self.nodes[node].clock_offset + ran as u64)
    }

    /// Runs until `until`, or until something is wrong.
    pub fn run(&mut self, until: u64) {
        while self.violation.is_none() {
            let Some(entry) = self.queue.first_entry().filter(|entry| entry.key().0 <= until) else { break };
            let ((at, _), happening) = entry.remove_entry();
            self.now = at;
            self.happen(happening);
        }
        self.now = self.now.max(until);
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Arrives(end, arrival) => self.arrive(end, arrival),
            Happening::Ticks(end) => {
                if self.is_current(end) {
                    let period = self.plan.options.heartbeat.as_micros() as u64 / 2;
                    self.soon(period, Happening::Ticks(end));
                    if !self.nodes[end.node].is_paused {
                        self.step(end.node, Event::Tick, Vec::new());
                    }
                }
            }
            Happening::Starts(node) => self.start(node),
            Happening::Resumes(end) => self.resume(end),
            Happening::ReachesStore { end, ticket, request } => self.reach_store(end, ticket, request),
            Happening::Dialled { dialler, target } => self.dialled(dialler, target),
            Happening::ClientActs { client } => self.client_acts(client),
            Happening::ClientHears { client, operation, outcome } => {
                self.client_hears(client, operation, outcome)
            }
            Happening::Disturbance => {
                if self.now < self.plan.disturbed_until && !self.plan.disturbances.is_empty() {
                    self.disturb();
                    self.disturb_later();
                }
            }
            Happening::WayOpens { from, to } => {
                for (at, end, link, parcel) in self.network.open(from, to, self.now, &mut self.prng) {
                    let (link, from) = (LinkId(link), self.id(from));
                    self.at(at, Happening::Arrives(end, Arrival::Message { link, from, parcel }));
                }
            }
            Happening::DiskIsFast { node } => self.nodes[node].is_disk_slow = false,
            Happening::StoreIsBack => self.is_store_up = true,
            Happening::ReachesStoreAgain { node } => self.nodes[node].is_storeless = false,
        }
    }

    fn is_current(&self, end: End) -> bool {
        self.nodes[end.node].process == end.process && self.nodes[end.node].is_up()
    }

    pub fn start(&mut self, node: usize) {
        if self.nodes[node].is_up() {
            return;
        }
        if self.plan.is_memory[node] && self.nodes[node].process > 0 {
            self.begin_life(node);
        }
        self.nodes[node].process += 1;
        let restored = Restored {
            epoch: self.nodes[node].disk.epoch,
            history: self.nodes[node].disk.history(),
            end: Lsn(self.nodes[node].disk.log.len() as u64),
        };
        let now = self.local(node);
        let mut member = Member::new(self.id(node), self.plan.options, restored, now);
        if let Some(fault) = self.plan.fault {
            member.plant(fault, now);
        }
        self.trace(|| format!("{} starts", member.id()));
        self.nodes[node].member = Some(member);
        self.nodes[node].compared = 0;
        let end = self.end(node);
        self.soon(0, Happening::Ticks(end));
    }

    pub fn stop(&mut self, node: usize, is_power_cut: bool) {
        if !self.nodes[node].is_up() {
            return;
        }
        let end = self.end(node);
        for (link, at, other) in self.network.gone(end, !is_power_cut, self.now, &mut self.prng) {
            self.at(
                at,
                Happening::Arrives(other, Arrival::Event(Event::Closed { link: Some(LinkId(link)) })),
            );
        }
        let stopped = &mut self.nodes[node];
        stopped.member = None;
        stopped.is_paused = false;
        stopped.inbox.clear();
        stopped.waiting.clear();
        stopped.disk.restart(is_power_cut, &mut self.prng);
        self.trace(|| format!("{node} stops, keeps {}", self.nodes[node].disk.log.len()));
    }

    fn resume(&mut self, end: End) {
        if !self.is_current(end) || !self.nodes[end.node].is_paused {
            return;
        }
        self.trace(|| format!("{} resumes", end.node));
        self.nodes[end.node].is_paused = false;
        while let Some(arrival) = self.nodes[end.node].inbox.pop_front() {
            self.take(end.node, arrival);
            if !self.is_current(end) {
                return;
            }
        }
    }

    fn arrive(&mut self, end: End, arrival: Arrival) {
        if !self.is_current(end) {
            if let Arrival::Asked { operation } = arrival {
                self.reply(operation, Outcome::Refused);
            }
            return;
        }
        if self.nodes[end.node].is_paused {
            self.nodes[end.node].inbox.push_back(arrival);
        } else {
            self.take(end.node, arrival);
        }
    }

    fn take(&mut self, node: usize, arrival: Arrival) {
        match arrival {
            Arrival::Event(event) => self.step(node, event, Vec::new()),
            Arrival::Message { link, from, parcel: Parcel::Sent((message, records)) } => {
                self.step(node, Event::Received { link, from, message }, records);
            }
            Arrival::Message { link, parcel: Parcel::Closed, .. } => {
                self.step(node, Event::Closed { link: Some(link) }, Vec::new());
            }
            Arrival::Synced { generation, end } => {
                if self.nodes[node].disk.generation == generation {
                    self.nodes[node].disk.end_sync(end);
                    self.step(node, Event::Durable { end: Lsn(end as u64) }, Vec::new());
                    self.sync(node);
                }
            }
            Arrival::Cut { generation, end, is_possible } => {
                if !is_possible {
                    self.step(node, Event::CutImpossible, Vec::new());
                } else if self.nodes[node].disk.generation == generation {
                    self.nodes[node].disk.end_cut(end);
                    self.step(node, Event::Cut, Vec::new());
                    self.sync(node);
                }
            }
            Arrival::Persisted { epoch } => {
                self.nodes[node].disk.epoch = epoch;
                self.step(node, Event::Persisted { epoch }, Vec::new());
            }
            Arrival::Asked { operation } => self.serve(node, operation),
        }
    }

    fn step(&mut self, node: usize, event: Event, records: Vec<Record>) {
        let now = self.local(node);
        if self.traces && event != Event::Tick {
            self.trace(|| format!("{node} <- {event:?}"));
        }
        let Some(member) = &mut self.nodes[node].member else { return };
        let actions = member.step(event, now);
        let mut records = Some(records);
        for action in actions {
            self.trace(|| format!("{node} -> {action:?}"));
            self.carry_out(node, action, &mut records);
        }
        self.open_gate(node);
    }

    fn carry_out(&mut self, node: usize, action: Action, records: &mut Option<Vec<Record>>) {
        let end = self.end(node);
        match action {
            Action::Dial { node: NodeId(target) } => {
                let target = target as usize;
                let delay = self.network.delay(node, target, &mut self.prng);
                self.soon(2 * delay, Happening::Dialled { dialler: end, target });
            }
            Action::Close { link } => {
                if let Some((at, other)) = self.network.close(link.0, node, self.now, &mut self.prng) {
                    let closed = Event::Closed { link: Some(link) };
                    self.at(at, Happening::Arrives(other, Arrival::Event(closed)));
                }
            }
            Action::Send { link, message } => self.send(node, link, message),
            Action::Append { start, end } => {
                let records = records.take().unwrap_or_default();
                let log = &self.nodes[node].disk.log;
                if log.len() as u64 != start.0 || records.len() as u64 != end.0 - start.0 {
                    return self.fail(format!("{node} is to append {start}..{end} at {}", records.len()));
                }
                records.into_iter().for_each(|record| self.nodes[node].disk.append(record));
                self.sync(node);
            }
            Action::BeginEpoch { beginning, origin } => {
                self.nodes[node].disk.append(Record::Begin {
                    epoch: beginning.epoch,
                    origin,
                    is_lossy: beginning.is_lossy,
                });
                self.appended(node);
            }
            Action::Cut { end } => self.cut(node, end.0 as usize),
            Action::Persist { epoch } => {
                let delay = self.disk_delay(node);
                self.soon(delay, Happening::Arrives(end, Arrival::Persisted { epoch }));
            }
            Action::Ask { ticket, request } => StoreLine { world: self, end }.submit(ticket, request),
            Action::Commit { end } => self.compare(node, end.0 as usize),
            Action::Lead { .. } => {
                self.promotions += 1;
                self.leaders = [self.leaders[1], node];
            }
            Action::StepDown => self.drop_waiting(node),
            Action::RefuseWaitingWrites => {
                let is_write = |one: &mut Waiting| one.outcome == Outcome::Written;
                for one in self.nodes[node].waiting.extract_if(.., is_write).collect::<Vec<_>>() {
                    self.reply(one.operation, Outcome::Unknown);
                }
            }
            Action::BeginNewLife => {
                self.stop(node, true);
                self.begin_life(node);
                self.soon(1_000, Happening::Starts(node));
            }
            // To the others it is one that has ended; the test has told it so.
            Action::Leave => {}
            Action::Halt { cut, committed } => {
                self.nodes[node].halted = true;
                self.fail(format!("{node} halts: the logs part at {cut}, {committed} is committed"));
            }
        }
    }

    fn send(&mut self, node: usize, link: LinkId, message: Message) {
        let records = match &message {
            Message::Records { start, end, .. } => {
                self.nodes[node].disk.log[start.0 as usize..end.0 as usize].to_vec()
            }
            _ => Vec::new(),
        };
        let sent = {
            let parcel = Parcel::Sent((message, records));
            self.network.send(link.0, node, parcel, self.now, &mut self.prng)
        };
        if let Some((at, end, parcel)) = sent {
            let from = self.id(node);
            self.at(at, Happening::Arrives(end, Arrival::Message { link, from, parcel }));
        }
    }

    fn cut(&mut self, node: usize, at: usize) {
        self.cuts += 1;
        let (end, delay) = (self.end(node), self.disk_delay(node));
        let is_possible = !self.prng.one_in(self.plan.cut_impossible_one_in);
        if is_possible {
            self.nodes[node].disk.begin_cut(at);
            self.nodes[node].compared = self.nodes[node].compared.min(at);
            self.drop_waiting(node);
        }
        let generation = self.nodes[node].disk.generation;
        self.soon(delay, Happening::Arrives(end, Arrival::Cut { generation, end: at, is_possible }));
    }

    fn appended(&mut self, node: usize) {
        let end = Lsn(self.nodes[node].disk.log.len() as u64);
        self.step(node, Event::Appended { end }, Vec::new());
        self.sync(node);
    }

    fn sync(&mut self, node: usize) {
        let end = self.end(node);
        let delay = if self.plan.is_memory[node] { 0 } else { self.disk_delay(node) };
        let disk = &mut self.nodes[node].disk;
        let generation = disk.generation;
        if let Some(reached) = disk.begin_sync() {
            self.soon(delay, Happening::Arrives(end, Arrival::Synced { generation, end: reached }));
        }
    }

    fn disk_delay(&mut self, node: usize) -> u64 {
        let delay = 20 + self.prng.below(self.plan.disk_delay_max);
        if self.nodes[node].is_disk_slow { delay + 1_000_000 } else { delay }
    }

    fn dialled(&mut self, dialler: End, target: usize) {
        if !self.is_current(dialler) {
            return;
        }
        let is_way = self.network.is_open(dialler.node, target) && self.network.is_open(target, dialler.node);
        if !is_way {
            return;
        }
        let event = if self.nodes[target].is_up() {
            Event::Connected { link: LinkId(self.network.connect(dialler, self.end(target))) }
        } else {
            Event::Closed { link: None }
        };
        self.arrive(dialler, Arrival::Event(event));
    }

    fn has_store(&self, node: usize) -> bool {
        self.is_store_up && !self.nodes[node].is_storeless
    }

    fn reach_store(&mut self, end: End, ticket: Ticket, request: Request) {
        if !self.has_store(end.node) {
            return;
        }
        let answer = self.store.answer(request);
        if let Answer::Done(decision) = &answer {
            self.tell_of(decision.epoch);
        }
        self.trace(|| format!("store: {:?}", self.store.current()));
        if !self.prng.one_in(self.plan.store_loss_one_in) {
            let delay = self.prng.below(self.plan.store_delay_max);
            let event = Event::Answered { ticket, answer };
            self.soon(delay, Happening::Arrives(end, Arrival::Event(event)));
        }
    }

    /// Whoever follows the store tells nodes of what was decided, or not.
    fn tell_of(&mut self, epoch: Epoch) {
        for node in 0..self.nodes.len() {
            if self.has_store(node) && !self.prng.one_in(self.plan.store_loss_one_in) {
                let delay = self.prng.below(self.plan.store_delay_max);
                let told = Arrival::Event(Event::Decided { epoch });
                self.soon(delay, Happening::Arrives(self.end(node), told));
            }
        }
    }

    /// What a node calls committed must be what was committed before, and more of it.
    fn compare(&mut self, node: usize, end: usize) {
        let compared = self.nodes[node].compared.min(end);
        let log = &self.nodes[node].disk.log[..end];
        let known = self.committed.len().min(end);
        if compared < known && log[compared..known] != self.committed[compared..known] {
            let at = (compared..known).find(|at| log[*at] != self.committed[*at]);
            return self.fail(format!("{node} calls committed up to {end} what differs at {at:?}"));
        }
        let more = log[known..].to_vec();
        self.committed.extend(more);
        self.nodes[node].compared = end;
    }

    /// Who is master and serves writes and reads, by the decision of the store.
    pub fn master(&self) -> Option<usize> {
        let decision = self.store.current()?;
        let node = decision.master.node.0 as usize;
        let member = self.nodes[node].member.as_ref()?;
        let serves = member.id() == decision.master
            && member.epoch() == decision.epoch
            && member.writes() == Writes::Taken
            && member.reads_until().is_some_and(|until| self.local(node) < until);
        serves.then_some(node)
    }

    /// Nodes whose data is a member's.
    pub fn living_members(&self) -> Vec<usize> {
        let members: BTreeSet<MemberId> =
            self.store.current().map(|decision| decision.members.clone()).unwrap_or_default();
        (0..self.nodes.len()).filter(|node| members.contains(&self.id(*node))).collect()
    }

    /// Whether all nodes are members and hold the same, all of it committed.
    pub fn is_at_rest(&self) -> bool {
        let Some(master) = self.master() else { return false };
        let log = &self.nodes[master].disk.log;
        let is_whole = self.living_members().len() == self.nodes.len()
            && self.store.current().is_some_and(|decision| decision.members.len() == self.nodes.len());
        let all_same = self.nodes.iter().all(|node| node.disk.synced == *log);
        is_whole && all_same && self.committed == *log
    }

    /// Whether any process is on its way to start.
    pub fn all_up(&self) -> bool {
        self.nodes.iter().all(Node::is_up)
    }
}
