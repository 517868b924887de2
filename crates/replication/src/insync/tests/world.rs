//! A whole shard in one thread: nodes with their disks and clocks, and the store of decisions, on a stage (`testkit::stage`). Everything
//! follows from the seed.

use super::super::{
    Action, Answer, Decision, Decisions, Epoch, Event, Life, LinkId, Loss, Member, MemberId, Message, Moment,
    NodeId, Register, Request, Restored, Ticket, Version, Writes,
};
use super::disk::{Disk, Record};
use super::linear::Operation;
use super::plan::Plan;
use log::Lsn;
use std::collections::BTreeSet;
use sys::Prng;
use testkit::network::{self, End, Network};
use testkit::stage::{Deed, Happening, Relief, Stage, Staged};

mod clients;
mod long;

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
    StepIsDone { link: LinkId },
    Asked { operation: usize },
}

/// Something that happens beside what comes to a process.
pub enum Beside {
    ReachesStore { end: End, ticket: Ticket, request: Request },
    Dialled { dialler: End, target: usize },
}

/// What a client learns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
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
    life: u64,
    clock_offset: u64,
    waiting: Vec<Waiting>,
    /// Up to where the log was compared with what is committed.
    compared: usize,
    halted: bool,
    /// A long request that comes.
    coming: Option<long::Coming>,
    /// Steps within such ones.
    steps: u64,
}

/// The way to the store of one process of one node.
struct StoreLine<'a> {
    world: &'a mut World,
    end: End,
}

impl Decisions for StoreLine<'_> {
    fn submit(&mut self, ticket: Ticket, request: Request) {
        let world = &mut *self.world;
        if !world.stage.has_store(self.end.node) {
            if world.stage.prng.one_in(2) {
                let answer = Event::Answered { ticket, answer: Answer::Unreached };
                world.stage.soon(500, Happening::Arrives(self.end, Arrival::Event(answer)));
            }
            return;
        }
        let is_late = world.stage.prng.one_in(world.plan.store_loss_one_in);
        let delay_max = if is_late { 2_000_000 } else { world.plan.store_delay_max };
        let delay = world.stage.prng.below(delay_max);
        world.stage.soon(delay, Happening::Own(Beside::ReachesStore { end: self.end, ticket, request }));
    }
}

/// The shard.
pub struct World {
    pub plan: Plan,
    pub stage: Stage<World>,
    pub nodes: Vec<Node>,
    pub store: Register,
    pub operations: Vec<Operation>,
    /// Everything that was ever committed, in order.
    pub committed: Vec<Record>,
    /// Promotions, as a measure of what was tried.
    pub promotions: u64,
    pub cuts: u64,
    /// The last two masters. Whoever was one may still think that it is.
    leaders: [usize; 2],
    /// The register of the last write that was acknowledged.
    written: u64,
    lives: u64,
    values: u64,
}

impl World {
    /// A shard at its beginning.
    pub fn new(seed: u64, plan: Plan) -> World {
        let mut prng = Prng::from_seed(seed ^ 0x7461_726e);
        let nodes = (0..plan.nodes)
            .map(|_| Node {
                member: None,
                disk: Disk::default(),
                life: 0,
                clock_offset: prng.below(1 << 40),
                waiting: Vec::new(),
                compared: 0,
                halted: false,
                coming: None,
                steps: 0,
            })
            .collect();
        let network = Network::new(plan.network_delay_max);
        let tick = plan.options.heartbeat.as_micros() as u64 / 2;
        let mut world = World {
            stage: Stage::new(prng, plan.fate.clone(), network, plan.clients, tick),
            plan,
            nodes,
            store: Register::default(),
            operations: Vec::new(),
            committed: Vec::new(),
            promotions: 0,
            cuts: 0,
            leaders: [0; 2],
            written: 0,
            lives: 0,
            values: 0,
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
        self.stage.begin(1_000);
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

    /// A node's own time.
    pub fn local(&self, node: usize) -> Moment {
        Moment(self.nodes[node].clock_offset + self.stage.elapsed(node))
    }

    fn step(&mut self, node: usize, event: Event, records: Vec<Record>) {
        let now = self.local(node);
        if self.stage.traces && event != Event::Tick {
            self.stage.trace(|| format!("{node} <- {event:?}"));
        }
        let Some(member) = &mut self.nodes[node].member else { return };
        let actions = member.step(event, now);
        let mut records = Some(records);
        for action in actions {
            self.stage.trace(|| format!("{node} -> {action:?}"));
            self.carry_out(node, action, &mut records);
        }
        self.open_gate(node);
    }

    fn carry_out(&mut self, node: usize, action: Action, records: &mut Option<Vec<Record>>) {
        let end = self.stage.end(node);
        match action {
            Action::Dial { node: NodeId(target) } => {
                let target = target as usize;
                let delay = self.stage.network.delay(node, target, &mut self.stage.prng);
                self.stage.soon(2 * delay, Happening::Own(Beside::Dialled { dialler: end, target }));
            }
            Action::Close { link } => {
                self.forget_coming(node, link);
                self.close(node, link.0);
            }
            Action::Send { link, message } => self.say(node, link, message),
            Action::Append { start, end } => {
                let records = records.take().unwrap_or_default();
                let log = &self.nodes[node].disk.log;
                if log.len() as u64 != start.0 || records.len() as u64 != end.0 - start.0 {
                    return self
                        .stage
                        .fail(format!("{node} is to append {start}..{end} at {}", records.len()));
                }
                records.into_iter().for_each(|record| self.nodes[node].disk.append(record));
                self.sync(node);
            }
            Action::BeginEpoch { beginning, origin } => {
                self.nodes[node].disk.append(Record::Begin {
                    epoch: beginning.epoch,
                    origin,
                    is_lossy: beginning.is_lossy,
                    by: beginning.by,
                });
                self.appended(node);
            }
            Action::Cut { end } => self.cut(node, end.0 as usize),
            Action::Persist { epoch } => {
                let delay = self.stage.disk_delay(node, self.plan.disk_delay_max);
                self.stage.soon(delay, Happening::Arrives(end, Arrival::Persisted { epoch }));
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
                    self.stage.reply(one.operation, Outcome::Unknown);
                }
            }
            Action::BeginNewLife => {
                self.stop(node, true);
                self.begin_life(node);
                self.stage.soon(1_000, Happening::Over(Relief::Starts(node)));
            }
            // To the others it is one that has ended; the test has told it so.
            Action::Leave | Action::StandDown { .. } => {}
            Action::Halt { why } => {
                self.nodes[node].halted = true;
                self.stage.fail(format!("{node} halts: {why:?}"));
            }
        }
    }

    fn say(&mut self, node: usize, link: LinkId, message: Message) {
        let records = match &message {
            Message::Records { start, end, .. } => {
                self.nodes[node].disk.log[start.0 as usize..end.0 as usize].to_vec()
            }
            _ => Vec::new(),
        };
        self.send(node, link.0, (message, records));
    }

    fn cut(&mut self, node: usize, at: usize) {
        self.cuts += 1;
        let (end, delay) = (self.stage.end(node), self.stage.disk_delay(node, self.plan.disk_delay_max));
        let is_possible = !self.stage.prng.one_in(self.plan.cut_impossible_one_in);
        if is_possible {
            self.nodes[node].disk.begin_cut(at);
            self.nodes[node].compared = self.nodes[node].compared.min(at);
            self.drop_waiting(node);
        }
        let generation = self.nodes[node].disk.generation;
        self.stage.soon(delay, Happening::Arrives(end, Arrival::Cut { generation, end: at, is_possible }));
    }

    fn appended(&mut self, node: usize) {
        let end = Lsn(self.nodes[node].disk.log.len() as u64);
        self.step(node, Event::Appended { end }, Vec::new());
        self.sync(node);
    }

    fn sync(&mut self, node: usize) {
        let end = self.stage.end(node);
        let delay =
            if self.plan.is_memory[node] { 0 } else { self.stage.disk_delay(node, self.plan.disk_delay_max) };
        let disk = &mut self.nodes[node].disk;
        let generation = disk.generation;
        if let Some(reached) = disk.begin_sync() {
            self.stage.soon(delay, Happening::Arrives(end, Arrival::Synced { generation, end: reached }));
        }
    }

    fn dialled(&mut self, dialler: End, target: usize) {
        if !self.stage.is_current(dialler) {
            return;
        }
        if !self.stage.is_way(dialler.node, target) {
            return;
        }
        let event = if self.stage.nodes[target].is_up {
            Event::Connected { link: LinkId(self.stage.network.connect(dialler, self.stage.end(target))) }
        } else {
            Event::Closed { link: None }
        };
        self.arrive(dialler, Arrival::Event(event));
    }

    fn reach_store(&mut self, end: End, ticket: Ticket, request: Request) {
        if !self.stage.has_store(end.node) {
            return;
        }
        let before =
            self.store.current().map_or_else(Vec::new, |before| before.members.iter().copied().collect());
        let answer = self.store.answer(request);
        if let Answer::Done(decision) = &answer {
            let is_out = |member: &&MemberId| !decision.members.contains(member);
            self.look_at_removal(&before.iter().filter(is_out).copied().collect::<Vec<_>>());
            self.tell_of(decision.epoch);
        }
        self.stage.trace(|| format!("store: {:?}", self.store.current()));
        if !self.stage.prng.one_in(self.plan.store_loss_one_in) {
            let delay = self.stage.prng.below(self.plan.store_delay_max);
            let event = Event::Answered { ticket, answer };
            self.stage.soon(delay, Happening::Arrives(end, Arrival::Event(event)));
        }
    }

    /// Whoever follows the store tells nodes of what was decided, or not.
    fn tell_of(&mut self, epoch: Epoch) {
        for node in 0..self.nodes.len() {
            if self.stage.has_store(node) && !self.stage.prng.one_in(self.plan.store_loss_one_in) {
                let delay = self.stage.prng.below(self.plan.store_delay_max);
                let told = Arrival::Event(Event::Decided { epoch });
                self.stage.soon(delay, Happening::Arrives(self.stage.end(node), told));
            }
        }
    }

    pub fn promote(&mut self, node: usize, loss: Loss) {
        let end = self.stage.end(node);
        self.arrive(end, Arrival::Event(Event::Promote { loss }));
    }

    /// A node has no place in the shard any more.
    pub fn remove(&mut self, node: usize) {
        let end = self.stage.end(node);
        self.arrive(end, Arrival::Event(Event::Removed));
    }

    /// The master hands over, if it is at rest.
    pub fn hand_over(&mut self) {
        if let Some(master) = self.master() {
            let end = self.stage.end(master);
            // Again and again, as it is told in a server.
            for times in 0..20 {
                let told = Arrival::Event(Event::HandOver { to: None });
                self.stage.soon(times * 500, Happening::Arrives(end, told));
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
            return self.stage.fail(format!("{node} calls committed up to {end} what differs at {at:?}"));
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
}

impl Staged for World {
    type Payload = (Message, Vec<Record>);
    type Arrival = Arrival;
    type Reply = Outcome;
    type Happening = Beside;

    fn stage(&mut self) -> &mut Stage<World> {
        &mut self.stage
    }

    fn arrival(&self, from: usize, link: u64, parcel: Parcel) -> Arrival {
        Arrival::Message { link: LinkId(link), from: self.id(from), parcel }
    }

    fn take(&mut self, node: usize, arrival: Arrival) {
        match arrival {
            Arrival::Event(event) => self.step(node, event, Vec::new()),
            Arrival::Message { link, from, parcel: Parcel::Sent((message, records)) } => {
                self.hear(node, link, from, message, records);
            }
            Arrival::Message { link, parcel: Parcel::Closed, .. } => {
                self.forget_coming(node, link);
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
            Arrival::StepIsDone { link } => self.take_step(node, link),
            Arrival::Asked { operation } => self.serve(node, operation),
        }
    }

    fn miss(&mut self, arrival: Arrival) {
        if let Arrival::Asked { operation } = arrival {
            self.stage.reply(operation, Outcome::Refused);
        }
    }

    fn tick(&mut self, node: usize) {
        self.step(node, Event::Tick, Vec::new());
    }

    fn start(&mut self, node: usize) {
        if self.plan.is_memory[node] && self.stage.nodes[node].process > 0 {
            self.begin_life(node);
        }
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
        self.stage.trace(|| format!("{} starts", member.id()));
        self.nodes[node].member = Some(member);
        self.nodes[node].compared = 0;
        self.stage.rise(node);
    }

    fn end(&mut self, node: usize, is_power_cut: bool) {
        let stopped = &mut self.nodes[node];
        stopped.member = None;
        stopped.waiting.clear();
        stopped.coming = None;
        stopped.disk.restart(is_power_cut, &mut self.stage.prng);
        self.stage.trace(|| format!("{node} stops, keeps {}", self.nodes[node].disk.log.len()));
    }

    fn client_acts(&mut self, client: usize) {
        self.ask_something(client);
    }

    fn client_hears(&mut self, client: usize, operation: usize, outcome: Outcome) {
        self.note_outcome(client, operation, outcome);
    }

    fn carry_out(&mut self, deed: Deed) {
        match deed {
            Deed::Promote(node) => self.promote(node, Loss::Refused),
            Deed::HandOver => self.hand_over(),
            // The log is a model, which is always in order.
            Deed::Checkpoint(..) => {}
        }
    }

    fn happen(&mut self, own: Beside) {
        match own {
            Beside::ReachesStore { end, ticket, request } => self.reach_store(end, ticket, request),
            Beside::Dialled { dialler, target } => self.dialled(dialler, target),
        }
    }
}
