//! The world that tests play in: config servers, servers and shards as models, over a store in memory, all by one clock and one seed.

use crate::control::view::key;
use crate::control::{Action, Control, Event, Leader, Options, Order, Policy, Standing, Ticket};
use crate::store::{Change, Changed, Entry, LeaseId, Outcome, Reading, Revision, Write};
use replication::insync::{Decision, Epoch, Life, Loss, MemberId, Moment, NodeId, Version};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use sys::Prng;
use topology::{Edition, Place, Server, ServerId, ShardId};

pub(super) const PREFIX: &str = "/tarn/test/";

/// What passes between two looks at the world.
pub(super) const STEP: Duration = Duration::from_millis(50);

/// Of all servers, unless it is said otherwise.
pub(super) const LIFE: u64 = 7;

/// What etcd takes in one transaction.
pub(super) const OPERATIONS_MAX: usize = 128;

/// Why a store takes no changes.
pub(super) const FULL: &str = "there is no room";

/// The store: one process that never fails; the ways to it do.
#[derive(Default)]
pub(super) struct Model {
    pub(super) revision: Revision,
    pub(super) entries: BTreeMap<String, (String, Revision, Option<LeaseId>)>,
    pub(super) history: Vec<(Revision, Vec<Changed>)>,
    /// When each lease is over, and how long it is.
    pub(super) leases: BTreeMap<LeaseId, (Moment, Duration)>,
    pub(super) granted: u64,
    pub(super) changes: u64,
}

impl Model {
    pub(super) fn change(&mut self, change: &Change) -> Outcome {
        let holds = |key: &str| self.entries.get(key).map_or(Revision(0), |(_, revision, _)| *revision);
        if change.compares.len().max(change.writes.len()) > OPERATIONS_MAX {
            return Outcome::Unreached("too many operations in txn request".to_owned());
        }
        if change.compares.iter().any(|compare| holds(&compare.key) != compare.revision) {
            return Outcome::Conflict;
        }
        self.changes += 1;
        self.revision.0 += 1;
        let mut changed = Vec::new();
        for write in &change.writes {
            let value = match write {
                Write::Put { key, value, lease } => {
                    if lease.is_some_and(|lease| !self.leases.contains_key(&lease)) {
                        return Outcome::Unreached("the lease is over".to_owned());
                    }
                    self.entries.insert(key.clone(), (value.clone(), self.revision, *lease));
                    Some(value.clone())
                }
                Write::Delete { key } => {
                    self.entries.remove(key);
                    None
                }
            };
            changed.push(Changed { key: write.key().to_owned(), value });
        }
        self.history.push((self.revision, changed));
        Outcome::Done(self.revision)
    }

    pub(super) fn read(&self) -> Reading {
        let entries = self.entries.iter().map(|(key, (value, revision, _))| Entry {
            key: key.clone(),
            value: value.clone(),
            revision: *revision,
        });
        Reading { revision: self.revision, entries: entries.collect() }
    }

    pub(super) fn expire(&mut self, now: Moment) {
        let over: Vec<LeaseId> =
            self.leases.iter().filter(|(_, (end, _))| *end <= now).map(|(id, _)| *id).collect();
        for lease in over {
            self.release(lease);
        }
    }

    pub(super) fn release(&mut self, lease: LeaseId) {
        self.leases.remove(&lease);
        let held = self.entries.iter().filter(|(_, (_, _, of))| *of == Some(lease));
        let writes: Vec<Write> = held.map(|(key, _)| Write::Delete { key: key.clone() }).collect();
        if !writes.is_empty() {
            self.change(&Change { compares: Vec::new(), writes });
        }
    }
}

/// A config server.
pub(super) struct Config {
    pub(super) control: Control,
    /// What it has asked for and when that reaches the store.
    pub(super) sent: VecDeque<(Moment, Action)>,
    /// Changes that it has seen; None: it reads all first.
    pub(super) seen: Option<usize>,
    /// It stands still until then.
    pub(super) paused_until: Moment,
    /// It does not reach the store until then.
    pub(super) cut_until: Moment,
    pub(super) answers: BTreeMap<Ticket, Result<String, String>>,
    pub(super) tickets: u64,
}

pub(super) struct Node {
    pub(super) server: Server,
    pub(super) is_up: bool,
    /// How much of its shard's log it says that it has.
    pub(super) offset: u64,
    /// Another than decisions name: it has lost what it had.
    pub(super) life: u64,
    pub(super) has_joined: bool,
    /// Since when it is up, if it is.
    pub(super) up_since: Moment,
}

pub(super) struct World {
    pub(super) random: Prng,
    pub(super) now: Moment,
    pub(super) store: Model,
    pub(super) configs: Vec<Config>,
    pub(super) nodes: Vec<Node>,
    pub(super) policy: Policy,
    /// Who ever had which place.
    pub(super) places: BTreeMap<Place, ServerId>,
    /// Who was removed because an operator wanted it.
    pub(super) unwanted: BTreeSet<ServerId>,
    pub(super) checked: usize,
    pub(super) births: u64,
    /// Whether everything takes its time and may fail.
    pub(super) is_rough: bool,
    /// For how many microseconds the store may take while everything is rough.
    pub(super) slowness: u64,
    /// Of so many changes one is of unknown outcome while everything is rough.
    pub(super) lost_one_in: u64,
    /// Changes that are done when nobody waits for them any more.
    pub(super) late: Vec<(Moment, Change)>,
    /// The store answers, and takes no changes.
    pub(super) is_full: bool,
    /// The store takes changes, and does not come to say so.
    pub(super) is_mute: bool,
    /// Masters that agree to hand over give up.
    pub(super) gives_up: bool,
    /// Somebody has written into the store by hand.
    pub(super) is_spoilt: bool,
    /// Has changes be less than they ought to.
    pub(super) weaken: Option<fn(&mut Change)>,
    /// How many keys each slot holds, if that is said.
    pub(super) weigh: Option<fn(u16) -> u64>,
}

pub(super) fn policy(shards: u16) -> Policy {
    Policy {
        copies: 2,
        shards,
        replace_after: Duration::from_secs(20),
        move_rate: 0,
        restore: 0,
        auto_rebalance: None,
        rebalance_threshold: Policy::REBALANCE_THRESHOLD,
    }
}

impl World {
    /// One shard of two copies with two config servers, whole, after so many servers have come.
    pub(super) fn whole(seed: u64, servers: usize) -> World {
        let mut world = World::new(seed, 2, policy(1));
        for _ in 0..servers {
            world.add_server("");
        }
        world.run_until("it is whole", Duration::from_secs(20), World::is_whole);
        world
    }

    pub(super) fn new(seed: u64, configs: usize, policy: Policy) -> World {
        let mut world = World {
            random: Prng::from_seed(seed),
            now: Moment(1_000_000),
            store: Model::default(),
            configs: Vec::new(),
            nodes: Vec::new(),
            policy,
            places: BTreeMap::new(),
            unwanted: BTreeSet::new(),
            checked: 0,
            births: 0,
            is_rough: false,
            slowness: 300_000,
            lost_one_in: 50,
            late: Vec::new(),
            is_full: false,
            is_mute: false,
            gives_up: false,
            is_spoilt: false,
            weaken: None,
            weigh: None,
        };
        for _ in 0..configs {
            let config = world.config();
            world.configs.push(config);
        }
        world
    }

    pub(super) fn config(&mut self) -> Config {
        self.births += 1;
        let own = Leader { name: format!("c{}", self.births), host: "h".to_owned(), port: 1 };
        let options = Options {
            prefix: PREFIX.to_owned(),
            own,
            cluster: format!("{:040x}", self.births),
            policy: self.policy,
            said: BTreeSet::new(),
            lease: Duration::from_secs(3),
        };
        Config {
            control: Control::new(options),
            sent: VecDeque::new(),
            seen: None,
            paused_until: self.now,
            cut_until: self.now,
            answers: BTreeMap::new(),
            tickets: 0,
        }
    }

    pub(super) fn add_server(&mut self, zone: &str) {
        let number = self.nodes.len() + 1;
        let mut bytes = [0; 20];
        bytes[..8].copy_from_slice(&(number as u64).to_be_bytes());
        let server = Server {
            id: ServerId::from_bytes(bytes),
            host: format!("10.{}.{}.{}", number >> 16, (number >> 8) & 255, number & 255),
            port: 7000,
            tls_port: 0,
            hostname: String::new(),
            zone: zone.to_owned(),
            edition: Edition::Memory,
            machine: String::new(),
            place: None,
            is_met: false,
        };
        self.nodes.push(Node {
            server,
            is_up: true,
            offset: 1,
            life: LIFE,
            has_joined: false,
            up_since: self.now,
        });
    }

    pub(super) fn chance(&mut self, one_in: u64) -> bool {
        self.random.below(one_in) == 0
    }

    pub(super) fn step(&mut self) {
        self.now = self.now.plus(STEP);
        self.store.expire(self.now);
        let now = self.now;
        let (due, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.late).into_iter().partition(|(due, _)| *due <= now);
        self.late = later;
        for (_, change) in due {
            self.store.change(&change);
        }
        for at in 0..self.configs.len() {
            self.run_config(at);
        }
        self.run_servers();
        self.run_shards();
        self.check();
    }

    pub(super) fn run_for(&mut self, span: Duration) {
        let end = self.now.plus(span);
        while self.now < end {
            self.step();
        }
    }

    pub(super) fn run_until(
        &mut self,
        what: &str,
        span: Duration,
        is_so: impl Fn(&World) -> bool,
    ) -> Duration {
        let begun = self.now;
        while !is_so(self) {
            assert!(self.now.since(begun) < span, "in {span:?} it does not come to this: {what}");
            self.step();
        }
        self.now.since(begun)
    }

    pub(super) fn run_config(&mut self, at: usize) {
        if self.configs[at].paused_until > self.now {
            return;
        }
        let is_cut = self.configs[at].cut_until > self.now;
        let mut events = vec![Event::Tick];
        if !is_cut {
            match self.configs[at].seen {
                None => {
                    events.push(Event::Read(self.store.read()));
                    self.configs[at].seen = Some(self.store.history.len());
                }
                Some(seen) => {
                    let news = self.store.history[seen..].iter();
                    events.extend(news.map(|(revision, changed)| Event::Changed {
                        revision: *revision,
                        changed: changed.clone(),
                    }));
                    self.configs[at].seen = Some(self.store.history.len());
                }
            }
        }
        while self.configs[at].sent.front().is_some_and(|(due, _)| *due <= self.now) {
            let (_, action) = self.configs[at].sent.pop_front().expect("there is one");
            events.extend(self.carry_out(action, is_cut));
        }
        for event in events {
            self.tell(at, event);
        }
    }

    pub(super) fn tell(&mut self, at: usize, event: Event) {
        let actions = self.configs[at].control.step(event, self.now);
        for action in actions {
            let delay = if self.is_rough { self.random.below(self.slowness) } else { 5_000 };
            match action {
                Action::Answer(ticket, answer) => drop(self.configs[at].answers.insert(ticket, answer)),
                Action::Promote(ticket, id, loss) => {
                    let result = self.promote(id, loss);
                    self.tell(at, Event::Promoted(ticket, result));
                }
                Action::Note(text) => {
                    assert!(self.is_spoilt || !text.contains("the store holds"), "{text}");
                }
                other => {
                    let due = self.now.plus(Duration::from_micros(delay));
                    self.configs[at].sent.push_back((due, other));
                }
            }
        }
    }

    /// What comes back from the store.
    pub(super) fn carry_out(&mut self, action: Action, is_cut: bool) -> Option<Event> {
        let is_lost = self.is_rough && self.chance(self.lost_one_in);
        match action {
            Action::Change(change) if self.is_mute => {
                self.store.change(&change);
                Some(Event::Answered(Outcome::Unknown("lost".to_owned())))
            }
            Action::Change(_) if is_cut => Some(Event::Answered(Outcome::Unreached("cut off".to_owned()))),
            Action::Change(_) if self.is_full => Some(Event::Answered(Outcome::Unreached(FULL.to_owned()))),
            Action::Change(mut change) => {
                if let Some(weaken) = self.weaken {
                    weaken(&mut change);
                }
                let is_done = !is_lost || self.chance(2);
                let outcome = if is_done { self.store.change(&change) } else { Outcome::Conflict };
                if !is_done && self.chance(2) {
                    let due = self.now.plus(Duration::from_millis(self.random.below(5000)));
                    self.late.push((due, change));
                }
                let outcome = if is_lost { Outcome::Unknown("lost".to_owned()) } else { outcome };
                Some(Event::Answered(outcome))
            }
            Action::Grant(_) if is_cut => Some(Event::Granted(Err("cut off".to_owned()))),
            Action::Grant(length) => {
                self.store.granted += 1;
                let lease = LeaseId(self.store.granted);
                self.store.leases.insert(lease, (self.now.plus(length), length));
                Some(Event::Granted((!is_lost).then_some(lease).ok_or("lost".to_owned())))
            }
            Action::Renew(lease) if is_cut || is_lost => Some(Event::Renewed(lease, None)),
            Action::Renew(lease) => {
                let now = self.now;
                let held = self.store.leases.get_mut(&lease).map(|(end, length)| *end = now.plus(*length));
                Some(Event::Renewed(lease, Some(held.is_some())))
            }
            Action::Release(lease) => {
                self.store.release(lease);
                None
            }
            Action::Answer(..) | Action::Promote(..) | Action::Note(_) => None,
        }
    }

    /// The config server that leads and can be spoken to.
    pub(super) fn leader(&self) -> Option<usize> {
        (0..self.configs.len()).find(|at| {
            let config = &self.configs[*at];
            config.control.leads() && config.paused_until <= self.now
        })
    }

    pub(super) fn ask(&mut self, question: impl FnOnce(Ticket) -> Event) -> Option<(usize, Ticket)> {
        let at = self.leader()?;
        self.configs[at].tickets += 1;
        let ticket = Ticket(self.configs[at].tickets);
        self.tell(at, question(ticket));
        Some((at, ticket))
    }

    /// Once a second each server says that it is there; one that was not written down introduces itself.
    pub(super) fn run_servers(&mut self) {
        let Some(leader) = self.leader() else { return };
        for at in 0..self.nodes.len() {
            let turn = (self.now.0 / 50_000 + at as u64).is_multiple_of(20);
            if !self.nodes[at].is_up {
                continue;
            }
            if !turn {
                continue;
            }
            let server = self.nodes[at].server.clone();
            let known =
                self.configs[leader].control.view().is_some_and(|view| view.servers.contains_key(&server.id));
            self.nodes[at].has_joined = known;
            match known {
                true => {
                    let event = Event::Here {
                        id: server.id,
                        at: self.now,
                        figures: format!(
                            "life={} offset={} keys={}",
                            self.nodes[at].life,
                            self.nodes[at].offset,
                            self.keys(server.id)
                        ),
                    };
                    self.tell(leader, event);
                }
                false => {
                    self.ask(|ticket| Event::Joins { ticket, cluster: String::new(), server });
                }
            }
        }
    }

    /// How many keys a server has, if it is master of its shard.
    pub(super) fn keys(&self, id: ServerId) -> u64 {
        let Some(weigh) = self.weigh else { return 0 };
        let own = self.value(&key::server(id)).and_then(|(line, _, _)| Server::from_line(line));
        let Some(place) = own.and_then(|own| own.place) else { return 0 };
        let leads = self.standing(place.shard).and_then(|standing| standing.master()) == Some(place.node);
        let slots = self.value(key::SLOTS).and_then(|(line, _, _)| topology::SlotMap::from_line(line));
        let Some(slots) = slots.filter(|_| leads) else { return 0 };
        slots.ranges_of(place.shard).flat_map(|range| range.slots()).map(weigh).sum()
    }

    pub(super) fn value(&self, key: &str) -> Option<&(String, Revision, Option<LeaseId>)> {
        self.store.entries.get(&format!("{PREFIX}{key}"))
    }

    pub(super) fn standing(&self, shard: ShardId) -> Option<Standing> {
        self.value(&key::shard(shard)).and_then(|(line, _, _)| Standing::from_line(line))
    }

    pub(super) fn shards(&self) -> Vec<ShardId> {
        let prefix = format!("{PREFIX}shards/");
        let keys = self.store.entries.range(prefix.clone()..).take_while(|(key, _)| key.starts_with(&prefix));
        keys.filter_map(|(key, _)| key[prefix.len()..].parse().ok().map(ShardId)).collect()
    }

    /// The servers of each shard in the store, by their numbers: whether they are up.
    pub(super) fn placed(&self) -> BTreeMap<ShardId, BTreeMap<u32, bool>> {
        let mut placed: BTreeMap<ShardId, BTreeMap<u32, bool>> = BTreeMap::new();
        for node in &self.nodes {
            let line = self.value(&key::server(node.server.id));
            let place = line.and_then(|(line, _, _)| Server::from_line(line)).and_then(|server| server.place);
            if let Some(place) = place {
                placed.entry(place.shard).or_default().insert(place.node, node.is_up);
            }
        }
        placed
    }

    pub(super) fn decide(&mut self, shard: ShardId, next: Decision) {
        let key = key::shard(shard);
        let revision = self.value(&key).expect("it is there").1;
        let key = format!("{PREFIX}{key}");
        let compares = vec![crate::store::Compare { key: key.clone(), revision }];
        let writes = vec![Write::Put { key, value: next.to_line(), lease: None }];
        assert!(matches!(self.store.change(&Change { compares, writes }), Outcome::Done(_)));
    }

    /// What shards do among themselves, now and then.
    pub(super) fn run_shards(&mut self) {
        if !(self.now.0 / 50_000).is_multiple_of(10) {
            return;
        }
        let placed = self.placed();
        for shard in self.shards() {
            let nodes = placed.get(&shard).cloned().unwrap_or_default();
            let up: BTreeSet<u32> =
                nodes.iter().filter(|(_, is_up)| **is_up).map(|(node, _)| *node).collect();
            let Some(standing) = self.standing(shard) else { continue };
            let next = match standing {
                Standing::Unbegun(node) => up.contains(&node).then(|| decision(1, 1, node, &[node].into())),
                Standing::Begun(now) => after(&now, &up),
            };
            if let Some(next) = next {
                self.decide(shard, next);
            }
        }
    }

    pub(super) fn promote(&mut self, id: ServerId, loss: Loss) -> Result<(), String> {
        let line = self.value(&key::server(id)).map(|(line, _, _)| line.clone());
        let place = line.as_deref().and_then(Server::from_line).and_then(|server| server.place);
        let place = place.ok_or("ERR it has no place")?;
        if self.gives_up {
            return Ok(());
        }
        let Some(Standing::Begun(now)) = self.standing(place.shard) else {
            return Err("ERR not begun".to_owned());
        };
        let members: BTreeSet<u32> = now.members.iter().map(|member| member.node.0).collect();
        let members = match loss {
            Loss::Refused if !members.contains(&place.node) => return Err("ERR it is no member".to_owned()),
            Loss::Refused => members,
            // It says yes before it has read the decision.
            Loss::Accepted(version) if version.is_some_and(|version| version != now.version) => return Ok(()),
            Loss::Accepted(_) => {
                self.check_loss(place.shard, &members);
                [place.node].into()
            }
        };
        self.decide(place.shard, decision(now.version.0 + 1, now.epoch.0 + 1, place.node, &members));
        Ok(())
    }

    /// What must hold of each change.
    pub(super) fn check(&mut self) {
        while self.checked < self.store.history.len() {
            let (_, changed) = self.store.history[self.checked].clone();
            self.checked += 1;
            for Changed { key, value } in changed {
                let key = key.strip_prefix(PREFIX).expect("nothing else is changed").to_owned();
                if let Some(server) = value.as_deref().and_then(Server::from_line)
                    && let Some(place) = server.place
                {
                    let had = *self.places.entry(place).or_insert(server.id);
                    assert_eq!(had, server.id, "{place:?} had another before");
                }
                if let (Some(id), None) = (key.strip_prefix("servers/"), &value) {
                    self.check_removal(id.parse().expect("it is an id"));
                }
            }
        }
        let shards = self.shards().len();
        assert!(shards <= usize::from(self.policy.shards), "{shards} shards");
    }

    /// Nobody is removed that may be the only one that has what was acknowledged, or that lives.
    pub(super) fn check_removal(&self, id: ServerId) {
        if self.unwanted.contains(&id) {
            return;
        }
        let place = self.places.iter().find(|(_, of)| **of == id).map(|(place, _)| *place);
        if place.is_some_and(|place| self.standing(place.shard).is_none()) {
            // It went with its shard.
            return;
        }
        let node = self.nodes.iter().find(|node| node.server.id == id).expect("it is one of these");
        // For some seconds nobody may have heard that it is back.
        let lives = node.is_up && self.now.since(node.up_since) > Duration::from_secs(10);
        let lived = self.now.since(node.up_since);
        assert!(!lives, "{id} lives for {lived:?} and is removed");
        for (place, of) in &self.places {
            let members = self.standing(place.shard).map(|standing| standing.members()).unwrap_or_default();
            assert!(*of != id || !members.contains(&place.node), "{id} is a member and is removed");
        }
    }

    /// Whether all that is wanted is there.
    pub(super) fn is_whole(&self) -> bool {
        let placed = self.placed();
        let shards = self.shards();
        let slots = self.value(key::SLOTS).and_then(|(line, _, _)| topology::SlotMap::from_line(line));
        shards.len() == usize::from(self.policy.shards)
            && slots.is_some_and(|slots| slots.count() == wire::SLOTS)
            && shards.iter().all(|shard| {
                let up = placed.get(shard).map_or(0, |nodes| nodes.values().filter(|up| **up).count());
                let members = self.standing(*shard).map_or(0, |standing| standing.members().len());
                up >= self.policy.copies as usize && members >= self.policy.copies as usize
            })
    }

    pub(super) fn disturb(&mut self) {
        let at = self.random.below(self.configs.len() as u64) as usize;
        let span = Duration::from_millis(self.random.below(8000));
        match self.random.below(10) {
            0 => self.configs[at] = self.config(),
            1 => self.configs[at].paused_until = self.now.plus(span),
            2 => self.configs[at].cut_until = self.now.plus(span),
            3 => self.configs[at].seen = None,
            4 | 5 => {
                let at = self.random.below(self.nodes.len() as u64) as usize;
                self.nodes[at].is_up ^= true;
                self.nodes[at].up_since = self.now;
            }
            6 => {
                let at = self.random.below(self.nodes.len() as u64) as usize;
                if !std::mem::replace(&mut self.nodes[at].is_up, true) {
                    self.nodes[at].up_since = self.now;
                }
            }
            7 => {
                let shard = ShardId(self.random.below(u64::from(self.policy.shards)) as u16);
                self.ask(|ticket| Event::Wants(ticket, Order::Switch(shard, None)));
            }
            8 => self.lose_something(),
            _ => {
                let zone = format!("z{}", self.random.below(3));
                if self.nodes.len() < 14 {
                    self.add_server(&zone);
                }
            }
        }
    }
}

pub(super) fn decision(version: u64, epoch: u64, master: u32, members: &BTreeSet<u32>) -> Decision {
    let member = |node: u32| MemberId { node: NodeId(node), life: Life(LIFE) };
    Decision {
        version: Version(version),
        epoch: Epoch(epoch),
        master: member(master),
        members: members.iter().map(|node| member(*node)).collect(),
        is_lossy: false,
    }
}

/// What the shard decides next, if these of its nodes are up.
pub(super) fn after(now: &Decision, up: &BTreeSet<u32>) -> Option<Decision> {
    let master = now.master.node.0;
    let members: BTreeSet<u32> = now.members.iter().map(|member| member.node.0).collect();
    let (version, epoch) = (now.version.0 + 1, now.epoch.0);
    if up.contains(&master) {
        return (members != *up).then(|| decision(version, epoch, master, up));
    }
    let next = members.iter().find(|member| up.contains(member))?;
    let rest = members.iter().copied().filter(|member| *member != master).collect();
    Some(decision(version, epoch + 1, *next, &rest))
}
