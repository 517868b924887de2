//! A whole shard in one thread: nodes, the network, the store of decisions and clients, driven by a queue of what happens next.
//! Everything follows from the seed.

use super::super::dialling;
use super::clients::Client;
use super::history::{History, Operation};
use super::node::{Node, Process, Side};
use super::plan::{Disturbance, Plan};
use super::stretch::{Feed, Said, Stretch};
use crate::feeding;
use crate::shard::{Letter, Outbox};
use engine::durability::checkpoint::{self, Pace};
use engine::durability::retire;
use replication::insync::{
    Answer, Decision, Epoch, Event, LinkId, Loss, MemberId, Register, Request, Role, Ticket, Version,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use sys::file::simulated::{Disk, Faults, Survival};
use sys::{Clock, Prng, UnixMs};
use testkit::network::{End, Network, Parcel};

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
    WordIsDue,
    Asked { operation: usize },
}

/// Something that happens.
pub enum Happening {
    Arrives(End, Arrival),
    Ticks(End),
    Starts(usize),
    Resumes(End),
    ReachesStore { end: End, ticket: Ticket, request: Request },
    ClientActs { client: usize },
    ClientHears { client: usize, operation: usize, reply: Option<Vec<u8>> },
    Disturbance,
    WayOpens { from: usize, to: usize },
    DiskIsFast { node: usize },
    ReachesStoreAgain { node: usize },
}

/// What was tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    pub acknowledged: u64,
    pub reads: u64,
    pub promotions: u64,
    pub rewinds: u64,
    pub copies: u64,
    /// Power cuts, in the middle of a write or not.
    pub cuts: u64,
    pub checkpoints: u64,
}

impl Figures {
    pub fn add(&mut self, other: &Figures) {
        self.acknowledged += other.acknowledged;
        self.reads += other.reads;
        self.promotions += other.promotions;
        self.rewinds += other.rewinds;
        self.copies += other.copies;
        self.cuts += other.cuts;
        self.checkpoints += other.checkpoints;
    }
}

/// How long it is tried to reach a node.
const DIALLING: u64 = 900_000;

/// The first pause before a stream is asked for again.
const PAUSE: u64 = 50_000;

/// The shard.
pub struct World {
    pub plan: Plan,
    pub prng: Prng,
    pub now: u64,
    pub nodes: Vec<Node>,
    pub operations: Vec<Operation>,
    pub clients: Vec<Client>,
    pub values: u64,
    /// The last master.
    pub leader: usize,
    pub violation: Option<String>,
    pub figures: Figures,
    store: Register,
    epoch: Epoch,
    /// Everything of the stream that was ever committed.
    committed: Vec<u8>,
    network: Network<Payload>,
    queue: BTreeMap<(u64, u64), Happening>,
    happened: u64,
    traces: bool,
    /// What nodes count moments from.
    origin: Instant,
}

impl World {
    pub fn new(seed: u64, plan: Plan) -> World {
        let mut prng = Prng::from_seed(seed ^ 0x7461_726e);
        let nodes = (0..plan.nodes)
            .map(|_| Node {
                disk: Disk::with_faults(prng.next_u64(), plan.disk.clone()),
                clock: Clock::simulated(UnixMs(1_700_000_000_000 + prng.below(1 << 20))),
                process: 0,
                up: None,
                is_paused: false,
                is_storeless: false,
                is_disk_slow: false,
                inbox: VecDeque::new(),
                read: (0, Vec::new()),
            })
            .collect();
        let mut world = World {
            network: Network::new(plan.network_delay_max),
            clients: vec![Client::default(); plan.clients],
            plan,
            prng,
            now: 0,
            nodes,
            operations: Vec::new(),
            values: 0,
            leader: 0,
            violation: None,
            figures: Figures::default(),
            store: Register::default(),
            epoch: Epoch(0),
            committed: Vec::new(),
            queue: BTreeMap::new(),
            happened: 0,
            traces: std::env::var_os("TARN_TRACE").is_some(),
            origin: Instant::now(),
        };
        (0..world.nodes.len()).for_each(|node| world.start(node));
        if let Some(first) = &world.nodes[0].up {
            let master = first.shard.standing().id;
            let members = BTreeSet::from([master]);
            let (version, epoch) = (Version(1), Epoch(0));
            world.store = Register::with(Decision { version, epoch, master, members, is_lossy: false });
        }
        (0..world.clients.len()).for_each(|client| world.soon(100_000, Happening::ClientActs { client }));
        world.disturb_later();
        world
    }

    pub fn end(&self, node: usize) -> End {
        End { node, process: self.nodes[node].process }
    }

    pub fn soon(&mut self, delay: u64, happening: Happening) {
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
                        self.settle(end.node, true);
                    }
                }
            }
            Happening::Starts(node) => self.start(node),
            Happening::Resumes(end) => self.resume(end),
            Happening::ReachesStore { end, ticket, request } => self.reach_store(end, ticket, request),
            Happening::ClientActs { client } => self.client_acts(client),
            Happening::ClientHears { client, operation, reply } => {
                self.client_hears(client, operation, reply)
            }
            Happening::Disturbance => {
                if self.now < self.plan.disturbed_until {
                    self.disturb();
                    self.disturb_later();
                }
            }
            Happening::WayOpens { from, to } => {
                for (at, end, link, parcel) in self.network.open(from, to, self.now, &mut self.prng) {
                    self.at(at, Happening::Arrives(end, Arrival::Parcel { link, parcel }));
                }
            }
            Happening::DiskIsFast { node } => self.nodes[node].is_disk_slow = false,
            Happening::ReachesStoreAgain { node } => self.nodes[node].is_storeless = false,
        }
    }

    fn is_current(&self, end: End) -> bool {
        self.nodes[end.node].process == end.process && self.nodes[end.node].up.is_some()
    }

    /// Moves a node's clock to its own time.
    fn set_clock(&self, node: usize) {
        let ran = self.now as i64 + self.now as i64 * self.plan.clock_ppm[node] / 1_000_000;
        self.nodes[node].clock.set_us(1_700_000_000_000_000 + (node as u64) * 1_000_000 + ran as u64);
    }

    fn start(&mut self, node: usize) {
        if self.nodes[node].up.is_some() {
            return;
        }
        self.set_clock(node);
        self.nodes[node].process += 1;
        let seed = self.prng.next_u64();
        match Process::start(&self.nodes[node], node, &self.plan, seed) {
            Ok(process) => self.nodes[node].up = Some(process),
            Err(error) => return self.fail(error),
        }
        self.trace(|| format!("{node} starts"));
        let end = self.end(node);
        self.soon(0, Happening::Ticks(end));
    }

    /// A process ends; with `power`, as its machine does.
    fn stop(&mut self, node: usize, power: bool) {
        let end = self.end(node);
        if self.nodes[node].up.is_none() {
            return;
        }
        for (link, at, other) in self.network.gone(end, !power, self.now, &mut self.prng) {
            let parcel = Parcel::Closed;
            self.at(at, Happening::Arrives(other, Arrival::Parcel { link, parcel }));
        }
        let (seed, is_torn, changes) = (self.prng.next_u64(), self.prng.one_in(2), self.prng.below(4));
        let survival =
            [Survival::Nothing, Survival::Chance, Survival::Chance, Survival::All][(seed % 4) as usize];
        let stopped = &mut self.nodes[node];
        let process = stopped.up.take();
        (stopped.is_paused, stopped.process) = (false, stopped.process + 1);
        stopped.inbox.clear();
        if power {
            if let Some(process) = process.as_ref().filter(|_| is_torn) {
                // In the middle of what its flusher does.
                let at = stopped.disk.changes() + changes;
                stopped.disk.set_faults(Faults { cut_at_change: Some(at), ..self.plan.disk.clone() });
                process.log().flush();
            }
            drop(process);
            stopped.disk = stopped.disk.power_cut(seed, survival);
            stopped.disk.set_faults(self.plan.disk.clone());
            self.figures.cuts += 1;
        }
        self.trace(|| format!("{node} stops{}", if power { " without power" } else { "" }));
    }

    fn resume(&mut self, end: End) {
        if !self.is_current(end) || !self.nodes[end.node].is_paused {
            return;
        }
        self.trace(|| format!("{} resumes", end.node));
        self.nodes[end.node].is_paused = false;
        while let Some(arrival) = self.nodes[end.node].inbox.pop_front() {
            self.arrive(end, arrival);
        }
    }

    fn arrive(&mut self, end: End, arrival: Arrival) {
        if !self.is_current(end) {
            if let Arrival::Asked { operation } = arrival {
                self.reply(operation, None);
            }
            return;
        }
        let node = end.node;
        if self.nodes[node].is_paused {
            return self.nodes[node].inbox.push_back(arrival);
        }
        self.set_clock(node);
        match arrival {
            Arrival::Parcel { link, parcel: Parcel::Sent(payload) } => self.take(node, link, payload),
            Arrival::Parcel { link, parcel: Parcel::Closed } => self.lose(node, link),
            Arrival::Event(event) => self.post(node, Letter::Happened(event)),
            Arrival::Dialled { link, outbox, target } => self.reach(node, link, outbox, target),
            Arrival::Follows { order } => self.follow(node, order),
            Arrival::Flushes => {
                if let Some(process) = &mut self.nodes[node].up {
                    process.is_flushing = false;
                    process.log().flush();
                }
            }
            Arrival::WordIsDue => {
                if let Some(process) = &mut self.nodes[node].up {
                    process.has_word = false;
                }
            }
            Arrival::Asked { operation } => self.serve(node, operation),
        }
        self.settle(node, false);
    }

    fn post(&self, node: usize, letter: Letter) {
        if let Some(process) = &self.nodes[node].up {
            process.shard.post(letter);
        }
    }

    /// Has the driver do what there is to do, and sees to what follows.
    fn settle(&mut self, node: usize, mut is_tick: bool) {
        self.set_clock(node);
        loop {
            let here = &mut self.nodes[node];
            let Some(process) = &mut here.up else { return };
            let letters = process.shard.take(Instant::now());
            let is_any = !letters.is_empty();
            if self.traces {
                letters.iter().for_each(|letter| println!("{:>9} {node} <- {}", self.now, told(letter)));
            }
            let instant = self.origin + Duration::from_micros(here.clock.now_us());
            process.driver.turn(letters, || instant, |_| std::mem::take(&mut is_tick));
            let next = process.driver.next_word().map(|next| next.saturating_duration_since(instant));
            let next = next.filter(|_| !std::mem::replace(&mut process.has_word, true));
            if process.server.engine.is_ending() {
                self.stop(node, false);
                return self.soon(10_000, Happening::Starts(node));
            }
            if let Some(next) = next {
                let end = self.end(node);
                self.soon(next.as_micros() as u64 + 20, Happening::Arrives(end, Arrival::WordIsDue));
            }
            self.pump(node);
            if !is_any {
                break;
            }
        }
        self.open_gate(node);
        self.compare(node);
    }

    /// Takes what the driver and the log want done by others.
    fn pump(&mut self, node: usize) {
        let end = self.end(node);
        let Some(process) = &mut self.nodes[node].up else { return };
        let notes = std::mem::take(&mut *process.notes.lock());
        let mut asked = Vec::new();
        while let Some(question) = process.shard.questions.take(Duration::ZERO) {
            asked.push(question);
        }
        let former = process.stretch.take_if(|stretch| !process.server.following.is_in_force(stretch.order));
        let follows =
            notes.follows.last().copied().filter(|(order, ..)| process.server.following.is_in_force(*order));
        if let Some((order, master, wanted)) = follows {
            process.stretch = Some(Stretch::new(order, master.0 as usize, wanted));
        }
        let (mut said, mut closed) = (Vec::new(), Vec::new());
        for (link, side) in &mut process.sides {
            match side {
                Side::Dialled { outbox, .. } => match outbox.take() {
                    Some(bytes) => said.push((*link, Payload::Words(bytes))),
                    None => closed.push(*link),
                },
                Side::Accepted { session } => {
                    said.push((*link, Payload::Words(session.client.take_mail().as_bytes().to_vec())));
                    if session.client.is_killed() {
                        closed.push(*link);
                    }
                }
            }
        }
        for (link, more) in process.feed() {
            match more {
                Some(more) => said.push((link, Payload::Stream(more))),
                None => {
                    process.feeds.remove(&link);
                    closed.push(link);
                }
            }
        }
        let is_due = !process.is_flushing && process.log().durable() < process.log().appended();
        process.is_flushing |= is_due;
        closed.iter().for_each(|link| process.end_side(*link));
        closed.extend(former.and_then(|former| former.link));
        for (link, payload) in said {
            if !matches!(&payload, Payload::Words(bytes) if bytes.is_empty()) {
                self.send(node, link, payload);
            }
        }
        closed.into_iter().for_each(|link| self.close(node, link));
        if is_due {
            let delay = self.disk_delay(node);
            self.soon(delay, Happening::Arrives(end, Arrival::Flushes));
        }
        for (target, link, outbox) in notes.dials {
            let target = target.0 as usize;
            let is_way = self.network.is_open(node, target) && self.network.is_open(target, node);
            let delay = if is_way { 2 * self.network.delay(node, target, &mut self.prng) } else { DIALLING };
            self.soon(delay, Happening::Arrives(end, Arrival::Dialled { link, outbox, target }));
        }
        if let Some((order, ..)) = follows {
            self.soon(100, Happening::Arrives(end, Arrival::Follows { order }));
        }
        asked.into_iter().for_each(|(ticket, request)| self.ask_store(end, ticket, request));
    }

    fn disk_delay(&mut self, node: usize) -> u64 {
        let delay = 20 + self.prng.below(self.plan.disk_delay_max);
        if self.nodes[node].is_disk_slow { delay + 500_000 } else { delay }
    }

    fn send(&mut self, node: usize, link: u64, payload: Payload) {
        let sent = self.network.send(link, node, Parcel::Sent(payload), self.now, &mut self.prng);
        if let Some((at, end, parcel)) = sent {
            self.at(at, Happening::Arrives(end, Arrival::Parcel { link, parcel }));
        }
    }

    fn close(&mut self, node: usize, link: u64) {
        if let Some((at, other)) = self.network.close(link, node, self.now, &mut self.prng) {
            let parcel = Parcel::Closed;
            self.at(at, Happening::Arrives(other, Arrival::Parcel { link, parcel }));
        }
    }

    /// A node that was dialled takes the link or not.
    fn reach(&mut self, node: usize, link: LinkId, outbox: Arc<Outbox>, target: usize) {
        let reached = self.introduce(node, target);
        let Some(process) = &mut self.nodes[node].up else { return };
        if !process.shard.links.is_newest(link) {
            process.shard.links.forget(link);
            return;
        }
        match reached {
            Some((connection, of)) => {
                process.sides.insert(connection, Side::Dialled { link, outbox, of, rest: Vec::new() });
                process.shard.post(Letter::Happened(Event::Connected { link }));
            }
            None => {
                process.shard.links.forget(link);
                process.shard.post(Letter::Happened(Event::Closed { link: None }));
            }
        }
    }

    /// INSYNC LINK, and the answer to it.
    fn introduce(&mut self, node: usize, target: usize) -> Option<(u64, MemberId)> {
        let is_way = self.network.is_open(node, target) && self.network.is_open(target, node);
        let (from, end) = (self.end(node), self.end(target));
        let own = self.nodes[node].up.as_ref()?.shard.standing().id;
        self.set_clock(target);
        let is_there = is_way && !self.nodes[target].is_paused;
        let process = self.nodes[target].up.as_mut().filter(|_| is_there)?;
        let mut session = process.session();
        process.server.net.clients.add(session.client.clone());
        let words = dialling::introduction(&process.shard.settings, own);
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let (_, answer, _) = process.ask(&mut session, &words);
        let life = std::str::from_utf8(&answer).ok()?.trim_end().strip_prefix("+life ")?.parse().ok()?;
        let connection = self.network.connect(from, end);
        process.sides.insert(connection, Side::Accepted { session });
        let of = MemberId {
            node: replication::insync::NodeId(target as u32),
            life: replication::insync::Life(life),
        };
        Some((connection, of))
    }

    fn take(&mut self, node: usize, link: u64, payload: Payload) {
        let Some(process) = &mut self.nodes[node].up else { return };
        let done = match payload {
            Payload::Words(bytes) => process.hear(link, &bytes),
            Payload::Stream(said) => {
                if let Some(feed) = process.feeds.get_mut(&link) {
                    match feed.answer(&process.server, &said) {
                        Ok(answer) => return self.send(node, link, Payload::Stream(answer)),
                        Err(_) => {
                            process.feeds.remove(&link);
                            false
                        }
                    }
                } else if let Some(stretch) = process.stretch.as_mut().filter(|it| it.link == Some(link)) {
                    match stretch.take(&process.server, said) {
                        Ok(is_copy) => {
                            self.figures.copies += u64::from(is_copy);
                            true
                        }
                        Err(error) => {
                            self.trace(|| format!("{node} follows no more: {error}"));
                            self.close(node, link);
                            return self.lose(node, link);
                        }
                    }
                } else {
                    true
                }
            }
        };
        if !done {
            self.close(node, link);
            self.lose(node, link);
        }
    }

    /// A connection has ended.
    fn lose(&mut self, node: usize, link: u64) {
        let end = self.end(node);
        let Some(process) = &mut self.nodes[node].up else { return };
        process.feeds.remove(&link);
        process.end_side(link);
        if let Some(stretch) = process.stretch.as_mut().filter(|stretch| stretch.link == Some(link)) {
            stretch.part(&process.server);
            let (order, pause) = (stretch.order, PAUSE << stretch.failed);
            self.soon(pause, Happening::Arrives(end, Arrival::Follows { order }));
        }
    }

    /// Connects to the master whose stream is wanted, and asks for it.
    fn follow(&mut self, node: usize, order: u64) {
        let end = self.end(node);
        let wanted = |stretch: &&mut Stretch| stretch.order == order && stretch.link.is_none();
        let Some(process) = &mut self.nodes[node].up else { return };
        let Some(stretch) = process.stretch.as_mut().filter(wanted) else { return };
        let target = stretch.node;
        let is_way = self.network.is_open(node, target) && self.network.is_open(target, node);
        if !is_way || self.nodes[target].is_paused || self.nodes[target].up.is_none() {
            return self.soon(PAUSE, Happening::Arrives(end, Arrival::Follows { order }));
        }
        let link = self.network.connect(end, self.end(target));
        if let Some(master) = &mut self.nodes[target].up {
            master.feeds.insert(link, Feed::new());
        }
        let Some(process) = &mut self.nodes[node].up else { return };
        let Some(stretch) = process.stretch.as_mut().filter(wanted) else { return };
        match stretch.begin(&process.server, link) {
            Ok(said) => self.send(node, link, Payload::Stream(said)),
            Err(error) => {
                self.trace(|| format!("{node} does not ask: {error}"));
                self.close(node, link);
                self.lose(node, link);
            }
        }
    }

    fn ask_store(&mut self, end: End, ticket: Ticket, request: Request) {
        if self.nodes[end.node].is_storeless {
            return;
        }
        let delay = self.prng.below(self.plan.store_delay_max);
        self.soon(delay, Happening::ReachesStore { end, ticket, request });
    }

    fn reach_store(&mut self, end: End, ticket: Ticket, request: Request) {
        if self.nodes[end.node].is_storeless {
            return;
        }
        let answer = self.store.answer(request);
        if let Answer::Done(decision) = &answer {
            self.trace(|| format!("store: {decision:?}"));
            self.figures.promotions += u64::from(decision.epoch > self.epoch);
            self.epoch = decision.epoch;
            self.leader = decision.master.node.0 as usize;
        }
        if !self.prng.one_in(20) {
            let delay = self.prng.below(self.plan.store_delay_max);
            self.soon(delay, Happening::Arrives(end, Arrival::Event(Event::Answered { ticket, answer })));
        }
    }

    fn disturb_later(&mut self) {
        let wait = self.prng.below(2 * self.plan.disturbed_every);
        self.soon(wait, Happening::Disturbance);
    }

    fn disturb(&mut self) {
        let kinds = &self.plan.disturbances;
        let kind = kinds[self.prng.below(kinds.len() as u64) as usize];
        let count = self.nodes.len() as u64;
        let node = self.prng.below(count) as usize;
        let other = (node + 1 + self.prng.below(count - 1) as usize) % self.nodes.len();
        let spell = self.prng.below(self.plan.spell_max);
        self.trace(|| format!("DISTURBANCE {kind:?} of {node} ({other}) for {spell}"));
        match kind {
            Disturbance::Kill | Disturbance::PowerCut => {
                self.stop_for(node, kind == Disturbance::PowerCut, spell)
            }
            Disturbance::Pause => {
                if self.nodes[node].up.is_some() && !self.nodes[node].is_paused {
                    self.nodes[node].is_paused = true;
                    let end = self.end(node);
                    self.soon(spell, Happening::Resumes(end));
                }
            }
            Disturbance::Isolate => {
                if self.prng.one_in(2) {
                    self.nodes[node].is_storeless = true;
                    self.soon(spell, Happening::ReachesStoreAgain { node });
                }
                for other in (0..self.nodes.len()).filter(|other| *other != node) {
                    self.cut_way(node, other, spell);
                    self.cut_way(other, node, spell);
                }
            }
            Disturbance::CutOneWay => self.cut_way(node, other, spell),
            Disturbance::Break => {
                if let Some((link, ends)) = self.network.break_one(self.now, &mut self.prng) {
                    for (at, end) in ends {
                        let parcel = Parcel::Closed;
                        self.at(at, Happening::Arrives(end, Arrival::Parcel { link, parcel }));
                    }
                }
            }
            Disturbance::SlowDisk => {
                self.nodes[node].is_disk_slow = true;
                self.soon(spell, Happening::DiskIsFast { node });
            }
            Disturbance::Checkpoint => self.write_checkpoint(node, spell),
            Disturbance::Promote => {
                let end = self.end(node);
                self.arrive(end, Arrival::Event(Event::Promote { loss: Loss::Refused }));
            }
        }
    }

    fn stop_for(&mut self, node: usize, power: bool, spell: u64) {
        if self.nodes[node].up.is_some() {
            self.stop(node, power);
            let down = if self.prng.one_in(2) { spell } else { 1_000 };
            self.soon(down, Happening::Starts(node));
        }
    }

    /// Writes a checkpoint, and perhaps the power goes in the middle of it.
    fn write_checkpoint(&mut self, node: usize, spell: u64) {
        let cut = self.prng.one_in(3).then(|| self.prng.below(30));
        self.set_clock(node);
        let here = &mut self.nodes[node];
        let Some(process) = here.up.as_ref().filter(|_| !here.is_paused) else { return };
        let (engine, log) = (&process.server.engine, process.log());
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

    fn cut_way(&mut self, from: usize, to: usize, spell: u64) {
        self.network.cut(from, to);
        self.soon(spell, Happening::WayOpens { from, to });
    }

    /// Ends all disturbances at once.
    pub fn heal(&mut self) {
        self.trace(|| "HEALED".to_owned());
        for from in 0..self.nodes.len() {
            (self.nodes[from].is_disk_slow, self.nodes[from].is_storeless) = (false, false);
            for to in (0..self.nodes.len()).filter(|to| *to != from) {
                self.soon(0, Happening::WayOpens { from, to });
            }
            self.soon(0, Happening::Starts(from));
            let end = self.end(from);
            self.soon(0, Happening::Resumes(end));
        }
    }

    /// What a node calls committed must be what was committed before, and more of it.
    fn compare(&mut self, node: usize) {
        let here = &mut self.nodes[node];
        let Some(process) = &mut here.up else { return };
        let breaks =
            (process.server.feeding.rewinds.get(), process.server.following.copies.load(Ordering::Relaxed));
        self.figures.rewinds += breaks.0.abs_diff(process.breaks.0);
        if breaks.1 != process.breaks.1 {
            here.read = (process.server.stream().offset, Vec::new());
        }
        process.breaks = breaks;
        let standing = process.shard.standing();
        if standing.is_halted {
            return self.fail(format!("{node} halts"));
        }
        let (end, from) = (standing.committed.0, process.compared.min(standing.committed.0));
        here.read_on();
        let known = self.committed.len() as u64;
        let theirs = &self.nodes[node].read;
        // What was there before a copy was taken, nobody can ask this node for.
        let from = from.max(theirs.0);
        let bytes = self.nodes[node].stream(from, end);
        let compared = from + bytes.len() as u64;
        let differs = bytes
            .iter()
            .zip(from..)
            .find(|(byte, place)| *place < known && self.committed.get(*place as usize) != Some(byte));
        if let Some((_, at)) = differs {
            return self.fail(format!("{node} calls committed up to {end} what differs at {at}"));
        }
        if from <= known && compared > known {
            let more = self.nodes[node].stream(known, end).to_vec();
            self.committed.extend(more);
        }
        if let Some(process) = &mut self.nodes[node].up {
            process.compared = compared.min(end);
        }
    }

    /// How all nodes stand.
    pub fn standing(&self) -> String {
        let stands = |node: &Node| {
            node.up.as_ref().map(|process| {
                let standing = process.shard.standing();
                let (offset, compared) = (process.server.stream().offset, process.compared);
                (standing.role, standing.epoch, standing.end, standing.committed, offset, compared)
            })
        };
        let all: Vec<_> = self.nodes.iter().map(stands).collect();
        format!("{all:?}, {} committed, {:?}", self.committed.len(), self.store.current())
    }

    /// Whether all nodes are members and have the same, all of it committed.
    pub fn is_at_rest(&self) -> bool {
        let Some(decision) = self.store.current() else { return false };
        let all: Vec<&Process> = self.nodes.iter().filter_map(|node| node.up.as_ref()).collect();
        if all.len() < self.nodes.len() || decision.members.len() < all.len() {
            return false;
        }
        let end = self.committed.len() as u64;
        all.iter().all(|process| {
            let standing = process.shard.standing();
            let is_in_role = match standing.id == decision.master {
                true => standing.role == Role::Master && feeding::end_of_written(&process.server) == end,
                false => standing.role == Role::Member,
            };
            is_in_role
                && standing.epoch == decision.epoch
                && standing.committed.0 == end
                && process.server.stream().offset == end
        })
    }

    /// All nodes show what the stream came to.
    pub fn compare_all(&mut self) {
        if self.violation.is_some() {
            return;
        }
        let history = match History::of(&self.committed) {
            Ok(history) => history,
            Err(wrong) => return self.fail(wrong),
        };
        let keys: BTreeSet<Vec<u8>> = self.operations.iter().map(|operation| operation.key.clone()).collect();
        let mut wrong = None;
        for (number, node) in self.nodes.iter_mut().enumerate() {
            let Some(process) = &mut node.up else { continue };
            let mut session = process.session();
            for key in &keys {
                let words: Vec<&[u8]> =
                    if key[0] == b'l' { vec![b"LRANGE", key, b"0", b"-1"] } else { vec![b"GET", key] };
                let (_, shown, _) = process.ask(&mut session, &words);
                if shown != history.last(key) {
                    let show = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                    let (key, shown, due) = (show(key), show(&shown), show(&history.last(key)));
                    wrong.get_or_insert(format!("{number} has {shown:?} at {key}, and not {due:?}"));
                }
            }
            session.end(&process.server);
        }
        if let Some(wrong) = wrong {
            self.fail(wrong);
        }
    }

    /// What clients saw is what one after the other could have seen.
    pub fn judge(&self) -> Result<Figures, String> {
        match History::of(&self.committed)?.complaint(&self.operations) {
            Some(complaint) => Err(complaint),
            None => Ok(self.figures),
        }
    }
}

fn told(letter: &Letter) -> String {
    match letter {
        Letter::Happened(event) => format!("{event:?}"),
        Letter::CopyNeeds { offset, .. } => format!("the copy needs {offset}"),
        Letter::RecordsGone { .. } => "the records are gone".to_owned(),
        Letter::Begin => "begin".to_owned(),
        Letter::HandOver { .. } => "hand over".to_owned(),
    }
}

impl Process {
    /// Takes what was said on a link. False: it is over.
    fn hear(&mut self, link: u64, bytes: &[u8]) -> bool {
        let Some(mut side) = self.sides.remove(&link) else { return true };
        let is_fine = match &mut side {
            Side::Dialled { link, of, rest, .. } => {
                rest.extend_from_slice(bytes);
                loop {
                    match dialling::take_line(rest) {
                        Ok(Some(line)) => {
                            if dialling::take(&self.shard, (*link, *of), &line).is_err() {
                                break false;
                            }
                        }
                        Ok(None) => break true,
                        Err(_) => break false,
                    }
                }
            }
            Side::Accepted { session } => self.run(session, bytes).1.is_empty(),
        };
        self.sides.insert(link, side);
        is_fine
    }
}
