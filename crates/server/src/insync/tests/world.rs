//! A whole shard in one thread: nodes, and the store of decisions, on a stage (`testkit::stage`). Everything follows from the seed.

use super::history::Operation;
use super::node::{Node, Process};
use super::plan::Plan;
use super::stretch::Said;
use crate::shard::{Letter, Outbox};
use config::Edition;
use engine::durability::checkpoint::{self, Pace};
use engine::durability::retire;
use engine::residency::by_hand;
use replication::insync::{
    Answer, Decision, Epoch, Event, LinkId, Loss, NodeId, Register, Request, Ticket, Version,
};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use sys::file::simulated::{Disk, Faults, Survival};
use sys::{Clock, Prng, UnixMs};
use testkit::network::{End, Network, Parcel};
use testkit::stage::{Deed, Happening, Stage, Staged};

/// What travels on a connection.
#[derive(Clone, Debug)]
pub enum Payload {
    /// What nodes say on a link, byte for byte.
    Words(Vec<u8>),
    /// The stream.
    Stream(Said),
}

/// Something that comes to a process of a node.
pub enum Arrival {
    Parcel { link: u64, parcel: Parcel<Payload> },
    Event(Event),
    Dialled { link: LinkId, outbox: Arc<Outbox>, target: usize },
    Follows { order: u64 },
    Flushes,
    LookIsDue,
    Asked { operation: usize },
}

/// A request to the store of decisions, on its way.
pub struct Question {
    end: End,
    ticket: Ticket,
    request: Request,
}

/// What was tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    pub acknowledged: u64,
    pub reads: u64,
    pub promotions: u64,
    /// Masters that said that another is to be master.
    pub handovers: u64,
    pub rewinds: u64,
    pub copies: u64,
    /// Power cuts, in the middle of a write or not.
    pub cuts: u64,
    pub checkpoints: u64,
    /// Nodes of the memory edition that came back with nothing.
    pub emptied: u64,
    /// Bytes that were sent to a store on disk.
    pub spilled: u64,
    /// Shards of which nothing is left, so that they stand still, as they must.
    pub lost: u64,
    /// The longest time between two writes that were acknowledged.
    pub longest_wait: u64,
}

impl Figures {
    pub fn add(&mut self, other: &Figures) {
        self.acknowledged += other.acknowledged;
        self.reads += other.reads;
        self.promotions += other.promotions;
        self.handovers += other.handovers;
        self.rewinds += other.rewinds;
        self.copies += other.copies;
        self.cuts += other.cuts;
        self.checkpoints += other.checkpoints;
        self.emptied += other.emptied;
        self.spilled += other.spilled;
        self.lost += other.lost;
        self.longest_wait = self.longest_wait.max(other.longest_wait);
    }
}

/// The shard.
pub struct World {
    pub plan: Plan,
    pub stage: Stage<World>,
    pub nodes: Vec<Node>,
    pub operations: Vec<Operation>,
    pub values: u64,
    /// The last master.
    pub leader: usize,
    pub figures: Figures,
    /// When a write was acknowledged last.
    pub acknowledged_at: u64,
    pub store: Register,
    epoch: Epoch,
    /// Everything of the stream that was ever committed.
    pub committed: Vec<u8>,
    /// What nodes count moments from.
    origin: Instant,
}

impl World {
    pub fn new(seed: u64, plan: Plan) -> World {
        let mut prng = Prng::from_seed(seed ^ 0x7461_726e);
        let nodes = plan.editions.iter().map(|edition| Node {
            edition: *edition,
            disk: Disk::with_faults(prng.next_u64(), plan.disk.clone()),
            clock: Clock::simulated(UnixMs(1_700_000_000_000 + prng.below(1 << 20))),
            up: None,
            read: (0, Vec::new()),
        });
        let nodes = nodes.collect();
        let network = Network::new(plan.network_delay_max);
        let tick = plan.options.heartbeat.as_micros() as u64 / 2;
        let mut world = World {
            stage: Stage::new(prng, plan.fate.clone(), network, plan.clients, tick),
            plan,
            nodes,
            operations: Vec::new(),
            values: 0,
            leader: 0,
            figures: Figures::default(),
            acknowledged_at: 0,
            store: Register::default(),
            epoch: Epoch(0),
            committed: Vec::new(),
            origin: Instant::now(),
        };
        (0..world.nodes.len()).for_each(|node| world.start(node));
        if let Some(first) = &world.nodes[0].up {
            let master = first.shard.standing().id;
            let members = BTreeSet::from([master]);
            let (version, epoch) = (Version(1), Epoch(0));
            world.store = Register::with(Decision { version, epoch, master, members, is_lossy: false });
        }
        world.stage.begin(100_000);
        world
    }

    /// Moves a node's clock to its own time.
    pub fn set_clock(&self, node: usize) {
        let elapsed = self.stage.elapsed(node);
        self.nodes[node].clock.set_us(1_700_000_000_000_000 + (node as u64) * 1_000_000 + elapsed);
    }

    /// The moment that a node's clock shows.
    pub fn moment(&self, node: usize) -> Instant {
        self.origin + Duration::from_micros(self.nodes[node].clock.now_us())
    }

    pub fn ask_store(&mut self, end: End, ticket: Ticket, request: Request) {
        if self.stage.has_store(end.node) {
            let delay = self.stage.prng.below(self.plan.store_delay_max);
            self.stage.soon(delay, Happening::Own(Question { end, ticket, request }));
        }
    }

    /// The master is to hand over to somebody, or to one that is named.
    fn hand_over(&mut self) {
        let (node, count) = (self.leader, self.nodes.len() as u64);
        let other = (node as u64 + 1 + self.stage.prng.below(count - 1)) % count;
        let to = self.stage.prng.one_in(2).then_some(NodeId(other as u32));
        let patience = Duration::from_millis(50 + self.stage.prng.below(500));
        let until = self.moment(node) + patience;
        let is_paused = self.stage.nodes[node].is_paused;
        if let Some(process) = self.nodes[node].up.as_ref().filter(|_| !is_paused)
            && process.shard.can_hand_over(to)
        {
            process.shard.post(Letter::HandOver { to, until });
            self.settle(node, false);
        }
    }

    /// Writes a checkpoint, and perhaps the power goes in the middle of it.
    fn write_checkpoint(&mut self, node: usize, spell: u64) {
        let cut = self.stage.prng.one_in(3).then(|| self.stage.prng.below(30));
        self.set_clock(node);
        let here = &self.nodes[node];
        let Some(process) = here.up.as_ref().filter(|_| !self.stage.nodes[node].is_paused) else { return };
        let Some(log) = process.log() else { return };
        let engine = &process.server.engine;
        if let Some(changes) = cut {
            let at = here.disk.changes() + changes;
            here.disk.set_faults(Faults { cut_at_change: Some(at), ..self.plan.disk.clone() });
        }
        if checkpoint::write(engine, log, engine.guest(), Pace::Full).is_ok() {
            retire(engine, log);
            self.figures.checkpoints += 1;
        }
        match cut {
            Some(_) => self.stop_for(node, true, spell),
            None => self.settle(node, false),
        }
    }

    /// Sends what a node of the capacity edition has in memory to its disk, now and then.
    fn spill(&mut self, node: usize) {
        if self.nodes[node].edition != Edition::Capacity || !self.stage.prng.one_in(12) {
            return;
        }
        let cleans = self.stage.prng.one_in(8);
        let Some(process) = &self.nodes[node].up else { return };
        let engine = &process.server.engine;
        let spilled = || engine.residency.counts.image_bytes.load(Ordering::Relaxed);
        let before = spilled();
        let mut done = by_hand::spill(engine, &mut || {});
        if cleans {
            done = done.and_then(|()| by_hand::clean(engine));
        }
        self.figures.spilled += spilled() - before;
        if let Err(error) = done {
            self.stage.fail(format!("{node} cannot spill: {error}"));
        }
    }

    /// What is done to a disk when its power goes.
    fn cut_power(&mut self, node: usize, process: Option<&Process>) {
        let prng = &mut self.stage.prng;
        let (seed, is_torn, changes) = (prng.next_u64(), prng.one_in(2), prng.below(4));
        let survival =
            [Survival::Nothing, Survival::Chance, Survival::Chance, Survival::All][(seed % 4) as usize];
        let stopped = &mut self.nodes[node];
        if let Some((process, log)) = process.filter(|_| is_torn).and_then(|it| Some((it, it.log()?))) {
            // In the middle of what its flusher does, or its spiller.
            let at = stopped.disk.changes() + changes;
            stopped.disk.set_faults(Faults { cut_at_change: Some(at), ..self.plan.disk.clone() });
            log.flush();
            let _ = by_hand::spill(&process.server.engine, &mut || {});
        }
        stopped.disk = stopped.disk.power_cut(seed, survival);
        stopped.disk.set_faults(self.plan.disk.clone());
        self.figures.cuts += 1;
    }
}

impl Staged for World {
    type Payload = Payload;
    type Arrival = Arrival;
    /// None: nobody can say.
    type Reply = Option<Vec<u8>>;
    type Happening = Question;

    fn stage(&mut self) -> &mut Stage<World> {
        &mut self.stage
    }

    fn arrival(&self, _: usize, link: u64, parcel: Parcel<Payload>) -> Arrival {
        Arrival::Parcel { link, parcel }
    }

    fn take(&mut self, node: usize, arrival: Arrival) {
        self.set_clock(node);
        match arrival {
            Arrival::Parcel { link, parcel: Parcel::Sent(payload) } => self.receive(node, link, payload),
            Arrival::Parcel { link, parcel: Parcel::Closed } => self.lose(node, link),
            Arrival::Event(event) => self.post(node, Letter::Happened(event)),
            Arrival::Dialled { link, outbox, target } => self.reach(node, link, outbox, target),
            Arrival::Follows { order } => self.follow(node, order),
            Arrival::Flushes => {
                if let Some(process) = &mut self.nodes[node].up {
                    process.is_flushing = false;
                    process.log().into_iter().for_each(|log| log.flush());
                }
            }
            Arrival::LookIsDue => {
                if let Some(process) = &mut self.nodes[node].up {
                    process.has_look = false;
                }
            }
            Arrival::Asked { operation } => self.serve(node, operation),
        }
        self.settle(node, false);
    }

    fn miss(&mut self, arrival: Arrival) {
        if let Arrival::Asked { operation } = arrival {
            self.stage.reply(operation, None);
        }
    }

    fn tick(&mut self, node: usize) {
        self.set_clock(node);
        self.spill(node);
        self.settle(node, true);
    }

    fn start(&mut self, node: usize) {
        self.set_clock(node);
        let seed = self.stage.prng.next_u64();
        let here = &mut self.nodes[node];
        if here.edition == Edition::Memory {
            here.read = (0, Vec::new());
            self.figures.emptied += u64::from(self.stage.nodes[node].process > 0);
        }
        match Process::start(here, node, &self.plan, seed) {
            Ok(process) => here.up = Some(process),
            Err(error) => return self.stage.fail(error),
        }
        self.stage.trace(|| format!("{node} starts"));
        self.stage.rise(node);
    }

    fn end(&mut self, node: usize, is_power_cut: bool) {
        let process = self.nodes[node].up.take();
        if is_power_cut {
            self.cut_power(node, process.as_ref());
        }
        self.stage.trace(|| format!("{node} stops{}", if is_power_cut { " without power" } else { "" }));
    }

    fn client_acts(&mut self, client: usize) {
        if self.stage.now <= self.plan.fate.until + 300_000 {
            self.ask_something(client);
        }
    }

    fn client_hears(&mut self, client: usize, operation: usize, reply: Option<Vec<u8>>) {
        self.note_reply(client, operation, reply);
    }

    fn carry_out(&mut self, deed: Deed) {
        match deed {
            Deed::Promote(node) => {
                let end = self.stage.end(node);
                self.arrive(end, Arrival::Event(Event::Promote { loss: Loss::Refused }));
            }
            Deed::HandOver => self.hand_over(),
            Deed::Checkpoint(node, spell) => self.write_checkpoint(node, spell),
        }
    }

    /// A request reaches the store, if it does.
    fn happen(&mut self, Question { end, ticket, request }: Question) {
        if !self.stage.has_store(end.node) {
            return;
        }
        let answer = self.store.answer(request);
        if let Answer::Done(decision) = &answer {
            self.stage.trace(|| format!("store: {decision:?}"));
            self.figures.promotions += u64::from(decision.epoch > self.epoch);
            self.epoch = decision.epoch;
            self.leader = decision.master.node.0 as usize;
        }
        if !self.stage.prng.one_in(self.plan.store_loss_one_in) {
            let delay = self.stage.prng.below(self.plan.store_delay_max);
            self.stage
                .soon(delay, Happening::Arrives(end, Arrival::Event(Event::Answered { ticket, answer })));
        }
    }
}
