//! Whole clusters from one seed: config servers that are killed, stand still and lose the store, over a store in memory; servers that come, go and return; operators.
//!
//! What shards do among themselves is a model here: a master takes those into its decision that live, and one of the members takes its place when it is dead.

mod balancing;
mod given_up;
mod losing;
mod meeting;
mod moves;
mod senseless;
mod settings;
mod users;
mod waiting;

use super::view::key;
use super::{Action, Control, Event, Leader, Options, Order, Policy, Restored, Standing, Ticket, View};
use crate::store::{Change, Changed, Entry, LeaseId, Outcome, Reading, Revision, Write};
use replication::insync::{Decision, Epoch, Life, Loss, MemberId, Moment, NodeId, Version};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};
use sys::Prng;
use topology::{Edition, Place, Server, ServerId, ShardId, SlotMap};

const PREFIX: &str = "/tarn/test/";
/// What passes between two looks at the world.
const STEP: Duration = Duration::from_millis(50);

/// Of all servers, unless it is said otherwise.
const LIFE: u64 = 7;
/// What etcd takes in one transaction.
const OPERATIONS_MAX: usize = 128;
/// Why a store takes no changes.
const FULL: &str = "there is no room";

/// The store: one process that never fails; the ways to it do.
#[derive(Default)]
struct Model {
    revision: Revision,
    entries: BTreeMap<String, (String, Revision, Option<LeaseId>)>,
    history: Vec<(Revision, Vec<Changed>)>,
    /// When each lease is over, and how long it is.
    leases: BTreeMap<LeaseId, (Moment, Duration)>,
    granted: u64,
    changes: u64,
}

impl Model {
    fn change(&mut self, change: &Change) -> Outcome {
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

    fn read(&self) -> Reading {
        let entries = self.entries.iter().map(|(key, (value, revision, _))| Entry {
            key: key.clone(),
            value: value.clone(),
            revision: *revision,
        });
        Reading { revision: self.revision, entries: entries.collect() }
    }

    fn expire(&mut self, now: Moment) {
        let over: Vec<LeaseId> =
            self.leases.iter().filter(|(_, (end, _))| *end <= now).map(|(id, _)| *id).collect();
        for lease in over {
            self.release(lease);
        }
    }

    fn release(&mut self, lease: LeaseId) {
        self.leases.remove(&lease);
        let held = self.entries.iter().filter(|(_, (_, _, of))| *of == Some(lease));
        let writes: Vec<Write> = held.map(|(key, _)| Write::Delete { key: key.clone() }).collect();
        if !writes.is_empty() {
            self.change(&Change { compares: Vec::new(), writes });
        }
    }
}

/// A config server.
struct Config {
    control: Control,
    /// What it has asked for and when that reaches the store.
    sent: VecDeque<(Moment, Action)>,
    /// Changes that it has seen; None: it reads all first.
    seen: Option<usize>,
    /// It stands still until then.
    paused_until: Moment,
    /// It does not reach the store until then.
    cut_until: Moment,
    answers: BTreeMap<Ticket, Result<String, String>>,
    tickets: u64,
}

struct Node {
    server: Server,
    is_up: bool,
    /// How much of its shard's log it says that it has.
    offset: u64,
    /// Another than decisions name: it has lost what it had.
    life: u64,
    has_joined: bool,
    /// Since when it is up, if it is.
    up_since: Moment,
}

struct World {
    random: Prng,
    now: Moment,
    store: Model,
    configs: Vec<Config>,
    nodes: Vec<Node>,
    policy: Policy,
    /// Who ever had which place.
    places: BTreeMap<Place, ServerId>,
    /// Who was removed because an operator wanted it.
    unwanted: BTreeSet<ServerId>,
    checked: usize,
    births: u64,
    /// Whether everything takes its time and may fail.
    is_rough: bool,
    /// For how many microseconds the store may take while everything is rough.
    slowness: u64,
    /// Of so many changes one is of unknown outcome while everything is rough.
    lost_one_in: u64,
    /// Changes that are done when nobody waits for them any more.
    late: Vec<(Moment, Change)>,
    /// The store answers, and takes no changes.
    is_full: bool,
    /// The store takes changes, and does not come to say so.
    is_mute: bool,
    /// Masters that agree to hand over give up.
    gives_up: bool,
    /// Somebody has written into the store by hand.
    is_spoilt: bool,
    /// Has changes be less than they ought to.
    weaken: Option<fn(&mut Change)>,
    /// How many keys each slot holds, if that is said.
    weigh: Option<fn(u16) -> u64>,
}

fn policy(shards: u16) -> Policy {
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
    fn whole(seed: u64, servers: usize) -> World {
        let mut world = World::new(seed, 2, policy(1));
        for _ in 0..servers {
            world.add_server("");
        }
        world.run_until("it is whole", Duration::from_secs(20), World::is_whole);
        world
    }

    fn new(seed: u64, configs: usize, policy: Policy) -> World {
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

    fn config(&mut self) -> Config {
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

    fn add_server(&mut self, zone: &str) {
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

    fn chance(&mut self, one_in: u64) -> bool {
        self.random.below(one_in) == 0
    }

    fn step(&mut self) {
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

    fn run_for(&mut self, span: Duration) {
        let end = self.now.plus(span);
        while self.now < end {
            self.step();
        }
    }

    fn run_until(&mut self, what: &str, span: Duration, is_so: impl Fn(&World) -> bool) -> Duration {
        let begun = self.now;
        while !is_so(self) {
            assert!(self.now.since(begun) < span, "in {span:?} it does not come to this: {what}");
            self.step();
        }
        self.now.since(begun)
    }

    fn run_config(&mut self, at: usize) {
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

    fn tell(&mut self, at: usize, event: Event) {
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
    fn carry_out(&mut self, action: Action, is_cut: bool) -> Option<Event> {
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
    fn leader(&self) -> Option<usize> {
        (0..self.configs.len()).find(|at| {
            let config = &self.configs[*at];
            config.control.leads() && config.paused_until <= self.now
        })
    }

    fn ask(&mut self, question: impl FnOnce(Ticket) -> Event) -> Option<(usize, Ticket)> {
        let at = self.leader()?;
        self.configs[at].tickets += 1;
        let ticket = Ticket(self.configs[at].tickets);
        self.tell(at, question(ticket));
        Some((at, ticket))
    }

    /// Once a second each server says that it is there; one that was not written down introduces itself.
    fn run_servers(&mut self) {
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
    fn keys(&self, id: ServerId) -> u64 {
        let Some(weigh) = self.weigh else { return 0 };
        let own = self.value(&key::server(id)).and_then(|(line, _, _)| Server::from_line(line));
        let Some(place) = own.and_then(|own| own.place) else { return 0 };
        let leads = self.standing(place.shard).and_then(|standing| standing.master()) == Some(place.node);
        let slots = self.value(key::SLOTS).and_then(|(line, _, _)| topology::SlotMap::from_line(line));
        let Some(slots) = slots.filter(|_| leads) else { return 0 };
        slots.ranges_of(place.shard).flat_map(|range| range.slots()).map(weigh).sum()
    }

    fn value(&self, key: &str) -> Option<&(String, Revision, Option<LeaseId>)> {
        self.store.entries.get(&format!("{PREFIX}{key}"))
    }

    fn standing(&self, shard: ShardId) -> Option<Standing> {
        self.value(&key::shard(shard)).and_then(|(line, _, _)| Standing::from_line(line))
    }

    fn shards(&self) -> Vec<ShardId> {
        let prefix = format!("{PREFIX}shards/");
        let keys = self.store.entries.range(prefix.clone()..).take_while(|(key, _)| key.starts_with(&prefix));
        keys.filter_map(|(key, _)| key[prefix.len()..].parse().ok().map(ShardId)).collect()
    }

    /// The servers of each shard in the store, by their numbers: whether they are up.
    fn placed(&self) -> BTreeMap<ShardId, BTreeMap<u32, bool>> {
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

    fn decide(&mut self, shard: ShardId, next: Decision) {
        let key = key::shard(shard);
        let revision = self.value(&key).expect("it is there").1;
        let key = format!("{PREFIX}{key}");
        let compares = vec![crate::store::Compare { key: key.clone(), revision }];
        let writes = vec![Write::Put { key, value: next.to_line(), lease: None }];
        assert!(matches!(self.store.change(&Change { compares, writes }), Outcome::Done(_)));
    }

    /// What shards do among themselves, now and then.
    fn run_shards(&mut self) {
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

    fn promote(&mut self, id: ServerId, loss: Loss) -> Result<(), String> {
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
    fn check(&mut self) {
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
    fn check_removal(&self, id: ServerId) {
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
    fn is_whole(&self) -> bool {
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

    fn disturb(&mut self) {
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

fn decision(version: u64, epoch: u64, master: u32, members: &BTreeSet<u32>) -> Decision {
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
fn after(now: &Decision, up: &BTreeSet<u32>) -> Option<Decision> {
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

/// How many seeds are played, and which is the first.
fn seeds(count: u64) -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("TARN_SEED").unwrap_or(1);
    first..first + number("TARN_STEPS").unwrap_or(count)
}

#[test]
fn a_cluster_comes_to_be() {
    let mut world = World::new(1, 2, policy(3));
    for zone in ["a", "a", "b", "b", "a", "b", "b"] {
        world.add_server(zone);
    }
    let took = world.run_until("all slots are served", Duration::from_secs(20), World::is_whole);
    println!("a cluster of 3 shards serves after {took:?}");
    let zones = |shard: ShardId| {
        let of = |place: &Place| world.nodes.iter().find(|node| node.server.id == world.places[place]);
        let places = world.places.keys().filter(|place| place.shard == shard);
        places.filter_map(|place| of(place).map(|node| node.server.zone.clone())).collect::<BTreeSet<_>>()
    };
    for shard in 0..3 {
        assert_eq!(zones(ShardId(shard)).len(), 2, "shard {shard}");
    }
    assert_eq!(world.places.len(), 6);
}

#[test]
fn what_is_lost_is_replaced_and_what_may_be_needed_is_not() {
    let mut world = World::whole(2, 3);
    // The master is lost: its shard goes on with the other, and gets the spare in time.
    let master = world.standing(ShardId(0)).and_then(|standing| standing.master()).expect("there is one");
    let lost = world.places[&Place { shard: ShardId(0), node: master }];
    let at = world.nodes.iter().position(|node| node.server.id == lost).expect("it is there");
    world.nodes[at].is_up = false;
    world.run_for(Duration::from_secs(15));
    assert!(!world.is_whole(), "it was replaced too early");
    world.run_until("the spare has its place", Duration::from_secs(15), World::is_whole);
    // It comes back, and is told that it was removed.
    let server = world.nodes[at].server.clone();
    let (config, ticket) =
        world.ask(|ticket| Event::Joins { ticket, cluster: String::new(), server }).expect("somebody leads");
    let answer = world.configs[config].answers[&ticket].clone();
    assert!(answer.is_err_and(|why| why.starts_with("REMOVED")));
    // All of the shard is lost: nobody is removed, though there is a spare.
    world.add_server("");
    world.run_for(Duration::from_secs(3));
    for node in &mut world.nodes[..3] {
        node.is_up = false;
    }
    world.run_for(Duration::from_secs(60));
    assert_eq!(world.placed()[&ShardId(0)].len(), 2);
}

/// A process that dies again and again, and comes with another id each time, leaves nothing.
#[test]
fn spares_that_are_gone_are_forgotten_and_may_come_back() {
    let mut world = World::whole(11, 4);
    world.run_for(Duration::from_secs(1));
    let spare =
        |world: &World| world.nodes.iter().position(|node| !is_placed(world, node)).expect("there is one");
    let (at, count) = (spare(&world), |world: &World| {
        let prefix = format!("{PREFIX}servers/");
        world.store.entries.keys().filter(|key| key.starts_with(&prefix)).count()
    });
    assert_eq!(count(&world), 4);
    world.nodes[at].is_up = false;
    world.run_for(Duration::from_secs(18));
    assert_eq!(count(&world), 4, "it may come back");
    world.run_for(Duration::from_secs(4));
    assert_eq!(count(&world), 3);
    let id = world.nodes[at].server.id;
    assert!(world.value(&key::removed(id)).is_none());
    (world.nodes[at].is_up, world.nodes[at].up_since) = (true, world.now);
    world.run_for(Duration::from_secs(2));
    assert_eq!(count(&world), 4);
}

fn is_placed(world: &World, node: &Node) -> bool {
    let line = world.value(&key::server(node.server.id));
    line.and_then(|(line, _, _)| Server::from_line(line)).is_some_and(|server| server.place.is_some())
}

/// Also when nobody waits for its answer any more.
#[test]
fn orders_under_way_are_shown() {
    let mut world = World::whole(12, 2);
    world.run_for(Duration::from_secs(1));
    let goes = world.nodes[0].server.id;
    world.unwanted.insert(goes);
    world.add_server("");
    world.run_for(Duration::from_secs(2));
    let orders = |world: &World| {
        let leader = world.leader().expect("somebody leads");
        world.configs[leader].control.status(world.now)["orders"].clone()
    };
    assert_eq!(orders(&world), serde_json::json!([]));
    world.ask(|ticket| Event::Wants(ticket, Order::Remove(goes, super::Force::No)));
    let told = orders(&world);
    assert_eq!(told[0]["order"], format!("remove-server {goes}"), "{told}");
    assert!(told[0]["left_ms"].as_u64().is_some_and(|left| left > 3_500_000), "{told}");
    let none = |world: &World| orders(world) == serde_json::json!([]);
    world.run_until("it is carried out", Duration::from_secs(30), none);
    assert!(world.is_whole());
}

/// However little was once written down.
#[test]
fn who_was_heard_of_is_not_replaced() {
    let mut world = World::new(5, 1, Policy { replace_after: Duration::ZERO, ..policy(1) });
    for _ in 0..3 {
        world.add_server("");
    }
    world.run_until("it is whole", Duration::from_secs(20), World::is_whole);
    world.run_for(Duration::from_secs(3));
    let before = world.placed();
    let master = world.standing(ShardId(0)).and_then(|standing| standing.master()).expect("there is one");
    let replica = before[&ShardId(0)].keys().find(|node| **node != master).expect("there is one");
    let id = world.places[&Place { shard: ShardId(0), node: *replica }];
    let at = world.nodes.iter().position(|node| node.server.id == id).expect("it is there");
    world.nodes[at].is_up = false;
    let is_alone = |world: &World| world.standing(ShardId(0)).is_some_and(|now| now.members().len() == 1);
    world.run_until("it is no member", Duration::from_secs(2), is_alone);
    world.run_for(Duration::from_secs(1));
    (world.nodes[at].is_up, world.nodes[at].up_since) = (true, world.now);
    world.run_until("it is whole again", Duration::from_secs(5), World::is_whole);
    assert_eq!(world.placed(), before);
    assert_eq!(world.places.len(), 2, "the third server is a spare still");
}

#[test]
fn spans_are_in_seconds_if_nothing_else_is_said() {
    for (text, milliseconds) in [("600", 600_000), ("600s", 600_000), ("8000ms", 8000)] {
        assert_eq!(Policy::read_replace_after(text), Ok(Duration::from_millis(milliseconds)), "{text}");
    }
    for text in ["", "s", "7", "7999ms", "-600", "1h", "600 s", "18446744073709551615"] {
        assert!(Policy::read_replace_after(text).is_err(), "{text}");
    }
}

#[test]
fn one_shard_more_is_one_shard_more_whatever_becomes_of_the_answer() {
    let mut world = World::whole(9, 2);
    world.run_for(Duration::from_secs(1));
    let wanted = |world: &World| {
        let policy = world.value(key::POLICY).and_then(|(line, _, _)| Policy::from_line(line));
        policy.expect("there are settings").shards
    };
    let add =
        |world: &mut World| world.ask(|ticket| Event::Wants(ticket, Order::AddShard)).expect("one leads");
    world.is_mute = true;
    let asked = [add(&mut world), add(&mut world)];
    world.run_for(Duration::from_secs(1));
    world.is_mute = false;
    world.run_for(Duration::from_secs(2));
    for (at, ticket) in asked {
        assert_eq!(world.configs[at].answers.get(&ticket), Some(&Ok("OK".to_owned())));
    }
    assert_eq!(wanted(&world), 3, "each of the two wanted one more");
    add(&mut world);
    world.run_for(Duration::from_secs(1));
    assert_eq!(wanted(&world), 4);
}

#[test]
fn operators_are_obeyed() {
    let mut world = World::whole(3, 2);
    // The leader sees it a moment later.
    world.run_for(Duration::from_secs(1));
    let order = |world: &mut World, order: Order, span: u64| {
        let (at, ticket) = world.ask(|ticket| Event::Wants(ticket, order)).expect("somebody leads");
        world.run_for(Duration::from_secs(span));
        world.configs[at].answers.get(&ticket).cloned()
    };
    let master = |world: &World| world.standing(ShardId(0)).and_then(|standing| standing.master());
    let before = master(&world);
    let switched = order(&mut world, Order::Switch(ShardId(0), None), 2);
    assert!(matches!(switched, Some(Ok(_))), "{switched:?}");
    assert_ne!(master(&world), before);
    assert!(order(&mut world, Order::Switch(ShardId(9), None), 1).is_some_and(|answer| answer.is_err()));
    // The only one that could go is needed.
    let now = world.places[&Place { shard: ShardId(0), node: master(&world).expect("there is one") }];
    let refused = order(&mut world, Order::Remove(now, super::Force::No), 5).expect("it is answered");
    assert!(refused.is_err_and(|why| why.contains("no server waits")));
    world.unwanted.insert(now);
    world.add_server("");
    world.run_for(Duration::from_secs(3));
    assert_eq!(order(&mut world, Order::Remove(now, super::Force::No), 10), Some(Ok("OK".to_owned())));
    assert!(world.is_whole());
    assert_ne!(world.places[&Place { shard: ShardId(0), node: master(&world).expect("there is one") }], now);
    // Another shard, as soon as there are servers.
    world.policy.shards = 2;
    assert_eq!(order(&mut world, Order::AddShard, 3), Some(Ok("OK".to_owned())));
    for _ in 0..2 {
        world.add_server("");
    }
    world.run_for(Duration::from_secs(6));
    assert_eq!(world.shards().len(), 2);
    let set = |name: &str, value: &str| Order::Set(name.to_owned(), value.to_owned());
    let told = order(&mut world, set("copies", "1"), 2).expect("it is answered").expect("it is done");
    assert_eq!(told, "OK: no server is removed by that: shard 0 has 2, and `remove-server ID` has one go");
    assert_eq!(order(&mut world, set("copies", "2"), 2), Some(Ok("OK".to_owned())));
    let few = order(&mut world, set("shards", "1"), 2).expect("it is answered");
    assert!(
        few.is_err_and(|why| why.contains("there are (2) cannot") && why.contains("`remove-shard SHARD`"))
    );
    assert_eq!(order(&mut world, set("shards", "2"), 2), Some(Ok("OK".to_owned())));
    for (name, value) in
        [("copies", "0"), ("copies", "x"), ("colour", "1"), ("shards", "70000"), ("replace-after", "7")]
    {
        assert!(
            order(&mut world, set(name, value), 1).is_some_and(|answer| answer.is_err()),
            "{name} {value}"
        );
    }
}

#[test]
fn slots_wait_for_a_backup_that_the_latest_restore_has_brought() {
    let mut world = World::new(5, 2, Policy { restore: 1, ..policy(1) });
    for _ in 0..2 {
        world.add_server("");
    }
    let order = |world: &mut World, order: Order| {
        let (at, ticket) = world.ask(|ticket| Event::Wants(ticket, order)).expect("somebody leads");
        world.run_for(Duration::from_secs(2));
        world.configs[at].answers.get(&ticket).cloned().expect("it is answered")
    };
    world.run_for(Duration::from_secs(20));
    let slots = |world: &World| world.configs[0].control.view().map_or(0, |view| view.slots.count());
    assert_eq!(slots(&world), 0);
    // Who begin at the same time are told different numbers.
    let (at, one) = world.ask(|ticket| Event::Wants(ticket, Order::BeginRestore)).expect("somebody leads");
    let (_, another) = world.ask(|ticket| Event::Wants(ticket, Order::BeginRestore)).expect("somebody leads");
    world.run_for(Duration::from_secs(2));
    let told = |ticket| world.configs[at].answers.get(&ticket).cloned();
    assert_eq!(
        (told(one), told(another)),
        (Some(Ok("restore 2".to_owned())), Some(Ok("restore 3".to_owned())))
    );
    let to = |shard| Restored {
        slots: topology::SlotMap::even(&[ShardId(shard)]),
        epochs: BTreeMap::from([(ShardId(0), 1)]),
    };
    let late = Restored { epochs: BTreeMap::from([(ShardId(0), 9)]), ..to(0) };
    assert!(order(&mut world, Order::EndRestore(3, late)).is_err_and(|why| why.contains("other masters")));
    assert!(order(&mut world, Order::EndRestore(2, to(0))).is_err_and(|why| why.contains("since")));
    assert!(order(&mut world, Order::EndRestore(3, to(9))).is_err_and(|why| why.contains("not begun")));
    assert_eq!(order(&mut world, Order::EndRestore(3, to(0))), Ok("OK".to_owned()));
    assert_eq!(slots(&world), wire::SLOTS);
    for late in [Order::EndRestore(3, to(0)), Order::BeginRestore] {
        assert!(order(&mut world, late).is_err_and(|why| why.contains("awaits no backup")));
    }
}

/// A master by promotion has what was brought to the one before; who has given something up may not.
#[test]
fn slots_go_to_no_shard_that_may_have_lost_what_was_brought() {
    let brought = Restored { slots: SlotMap::default(), epochs: BTreeMap::from([(ShardId(0), 4)]) };
    let mut view = View::default();
    assert!(brought.why_lost(&view).is_some(), "it is gone");
    let member = MemberId { node: NodeId(1), life: Life(1) };
    for (epoch, is_lossy, has_it) in [
        (4, false, true),
        (4, true, true),
        (5, false, true),
        (5, true, false),
        (6, false, false),
        (3, false, false),
    ] {
        let (version, epoch, members) = (Version(9), Epoch(epoch), BTreeSet::from([member]));
        let decision = Decision { version, epoch, master: member, members, is_lossy };
        view.shards.insert(ShardId(0), Standing::Begun(decision));
        assert_eq!(brought.why_lost(&view).is_none(), has_it, "epoch {epoch:?}, {is_lossy}");
    }
}

/// The master to which a backup was brought is another's before the slots have owners.
#[test]
fn a_failover_before_its_end_is_no_harm_to_a_restore() {
    let mut world = World::new(5, 2, Policy { restore: 1, ..policy(1) });
    for _ in 0..2 {
        world.add_server("");
    }
    world.run_for(Duration::from_secs(20));
    let decision = |world: &World| match world.standing(ShardId(0)) {
        Some(Standing::Begun(decision)) => decision,
        other => panic!("{other:?}"),
    };
    let before = decision(&world);
    let id = world.places[&Place { shard: ShardId(0), node: before.master.node.0 }];
    let at = world.nodes.iter().position(|node| node.server.id == id).expect("it is one of these");
    world.nodes[at].is_up = false;
    world.run_until("another is master", Duration::from_secs(20), |world| {
        decision(world).master != before.master
    });
    let slots = SlotMap::even(&[ShardId(0)]);
    let brought = Restored { slots, epochs: BTreeMap::from([(ShardId(0), before.epoch.0)]) };
    let (end, now) = (Order::EndRestore(1, brought), world.now);
    let (at, ticket) = world.ask(|ticket| Event::Wants(ticket, end)).expect("somebody leads");
    world.run_for(Duration::from_secs(2));
    assert_eq!(world.configs[at].answers.get(&ticket).cloned(), Some(Ok("OK".to_owned())), "{now:?}");
}

#[test]
fn who_is_of_another_edition_or_away_gets_no_place_by_an_order() {
    let mut world = World::new(8, 1, policy(1));
    for _ in 0..5 {
        world.add_server("");
    }
    world.nodes[3].server.edition = Edition::Durable;
    world.run_until("it is whole", Duration::from_secs(20), World::is_whole);
    world.run_for(Duration::from_secs(1));
    let placed = world.placed();
    let has_place = |id: &ServerId| world.places.values().any(|placed| placed == id);
    let of = |edition: Edition| move |server: &&Server| server.edition == edition;
    let spares: Vec<Server> = world.nodes.iter().map(|node| node.server.clone()).collect();
    let mut spares = spares.iter().filter(|server| !has_place(&server.id));
    let other = spares.clone().find(of(Edition::Durable)).expect("it waits").id;
    let same: Vec<ServerId> = spares.by_ref().filter(of(Edition::Memory)).map(|server| server.id).collect();
    let at = world.nodes.iter().position(|node| node.server.id == same[0]).expect("it is there");
    world.nodes[at].is_up = false;
    world.run_for(Duration::from_secs(6));
    let place = |world: &mut World, id: ServerId| {
        let order = Order::Place(id, ShardId(0));
        let (at, ticket) = world.ask(|ticket| Event::Wants(ticket, order)).expect("somebody leads");
        world.run_for(Duration::from_secs(2));
        world.configs[at].answers.get(&ticket).cloned().expect("it is answered")
    };
    assert!(place(&mut world, other).is_err_and(|why| why.contains("durable edition")));
    assert!(place(&mut world, same[0]).is_err_and(|why| why.contains("not heard of")));
    assert_eq!(world.placed(), placed);
    assert_eq!(place(&mut world, same[1]), Ok("OK".to_owned()));
    assert_eq!(world.placed()[&ShardId(0)].len(), 3);
}

#[test]
fn a_master_that_is_to_go_is_asked_again_to_hand_over() {
    let mut world = World::new(7, 1, Policy { copies: 3, ..policy(1) });
    for _ in 0..4 {
        world.add_server("");
    }
    world.run_until("it is whole", Duration::from_secs(20), World::is_whole);
    world.run_for(Duration::from_secs(1));
    for is_done_by_another in [false, true] {
        let now = world.standing(ShardId(0)).expect("it has begun");
        let master = now.master().expect("there is one");
        let id = world.places[&Place { shard: ShardId(0), node: master }];
        world.unwanted.insert(id);
        world.gives_up = true;
        let order = Order::Remove(id, super::Force::Yes);
        let (at, ticket) = world.ask(|ticket| Event::Wants(ticket, order)).expect("somebody leads");
        world.run_for(Duration::from_secs(1));
        assert_eq!(world.configs[at].answers.get(&ticket), None);
        match is_done_by_another {
            false => world.gives_up = false,
            true => {
                // The one of which it was not asked: of those that are alike the last is.
                let members = now.members();
                let other = members.iter().find(|node| **node != master).expect("there is one");
                let Standing::Begun(now) = now else { panic!("it has begun") };
                let next = decision(now.version.0 + 1, now.epoch.0 + 1, *other, &members);
                world.decide(ShardId(0), next);
            }
        }
        let is_answered = |world: &World| world.configs[at].answers.contains_key(&ticket);
        world.run_until("it may go", Duration::from_secs(20), is_answered);
        assert_eq!(world.configs[at].answers[&ticket], Ok("OK".to_owned()));
        world.run_for(Duration::from_secs(3));
    }
}

#[test]
fn settings_that_are_changed_at_the_same_time_all_count() {
    let mut world = World::new(6, 1, policy(1));
    world.run_until("it has settings", Duration::from_secs(10), |world| world.value(key::POLICY).is_some());
    world.run_for(Duration::from_secs(1));
    let set = |name: &str, value: &str| Order::Set(name.to_owned(), value.to_owned());
    let mut asked = Vec::new();
    let orders = [Order::AddShard, set("copies", "3"), set("move-rate", "777"), Order::AddShard];
    for order in orders {
        asked.extend(world.ask(|ticket| Event::Wants(ticket, order)));
    }
    // And while the first of them are under way.
    world.step();
    asked.extend(world.ask(|ticket| Event::Wants(ticket, set("replace-after", "60"))));
    world.run_for(Duration::from_secs(2));
    assert_eq!(asked.len(), 5);
    for (at, ticket) in asked {
        assert_eq!(world.configs[at].answers.get(&ticket), Some(&Ok("OK".to_owned())));
    }
    let (line, _, _) = world.value(key::POLICY).expect("it is there");
    let wanted =
        Policy { copies: 3, shards: 3, replace_after: Duration::from_secs(60), move_rate: 777, ..policy(1) };
    assert_eq!(Policy::from_line(line), Some(wanted));
}

#[test]
fn clusters_come_through_whatever_happens() {
    for seed in seeds(20) {
        let mut world = World::new(seed, 3, policy(2));
        for at in 0..6 {
            world.add_server(if at % 2 == 0 { "z0" } else { "z1" });
        }
        world.is_rough = true;
        for _ in 0..120 {
            world.step();
            if world.chance(2) {
                world.disturb();
            }
            world.run_for(Duration::from_millis(500));
        }
        world.is_rough = false;
        let now = world.now;
        for node in world.nodes.iter_mut().filter(|node| !node.is_up) {
            (node.is_up, node.up_since) = (true, now);
        }
        while world.nodes.len() < 16 {
            world.add_server("z2");
        }
        let whole = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            world.run_until("all is well again", Duration::from_secs(120), World::is_whole)
        }));
        assert!(whole.is_ok(), "TARN_SEED={seed} TARN_STEPS=1");
    }
}

#[test]
fn nobody_yields_and_nobody_waits_while_the_store_takes_no_changes() {
    let mut world = World::whole(11, 2);
    world.run_for(Duration::from_secs(1));
    let before = world.standing(ShardId(0));
    world.is_full = true;
    let master = before.as_ref().and_then(Standing::master).expect("there is one");
    let id = world.places[&Place { shard: ShardId(0), node: master }];
    let (at, switch) =
        world.ask(|ticket| Event::Wants(ticket, Order::Switch(ShardId(0), None))).expect("somebody leads");
    let (_, remove) = world
        .ask(|ticket| Event::Wants(ticket, Order::Remove(id, super::Force::No)))
        .expect("it leads still");
    let mut server = world.nodes[0].server.clone();
    server.id = ServerId::from_bytes([9; 20]);
    let (_, join) =
        world.ask(|ticket| Event::Joins { ticket, cluster: String::new(), server }).expect("it leads still");
    world.run_for(Duration::from_secs(12));
    let told = |world: &World, ticket| world.configs[at].answers.get(&ticket).cloned();
    for ticket in [switch, join] {
        let answer = told(&world, ticket).expect("it is answered");
        assert!(answer.is_err_and(|why| why.contains(FULL)));
    }
    assert_eq!(told(&world, remove), None, "it waits for a copy as long as it takes");
    assert_eq!(world.standing(ShardId(0)), before);
    assert_eq!(world.configs[at].control.refusal(), Some(FULL));
    world.unwanted.insert(id);
    world.is_full = false;
    let is_well = |world: &World| world.configs[at].control.refusal().is_none();
    world.run_until("that it takes changes is seen", Duration::from_secs(3), is_well);
}

#[test]
fn that_a_store_takes_changes_again_is_seen_though_nothing_is_due() {
    let mut world = World::whole(12, 2);
    world.run_for(Duration::from_secs(1));
    world.is_full = true;
    let set = Order::Set("copies".to_owned(), "2".to_owned());
    let (at, _) = world.ask(|ticket| Event::Wants(ticket, set)).expect("somebody leads");
    world.run_for(Duration::from_secs(12));
    assert_eq!(world.configs[at].control.refusal(), Some(FULL));
    let (before, changes) = (world.value(key::POLICY).cloned(), world.store.changes);
    world.is_full = false;
    world.run_for(Duration::from_secs(12));
    assert_eq!(world.configs[at].control.refusal(), None);
    assert_eq!(world.store.changes, changes + 1);
    assert_eq!(world.value(key::POLICY).map(|(line, ..)| line), before.as_ref().map(|(line, ..)| line));
}

#[test]
fn all_keys_are_served_though_a_shard_without_slots_is_away() {
    let mut world = World::whole(13, 2);
    world.policy.shards = 2;
    let (at, _) = world.ask(|ticket| Event::Wants(ticket, Order::AddShard)).expect("somebody leads");
    for _ in 0..2 {
        world.add_server("");
    }
    world.run_until("it has begun", Duration::from_secs(20), |world| {
        matches!(world.standing(ShardId(1)), Some(Standing::Begun(_)))
    });
    world.nodes[2..].iter_mut().for_each(|node| node.is_up = false);
    world.run_for(Duration::from_secs(6));
    let serves = |world: &mut World, figures: &str| {
        let master = world.standing(ShardId(0)).and_then(|standing| standing.master());
        let place = Place { shard: ShardId(0), node: master.expect("there is one") };
        let event = Event::Here { id: world.places[&place], at: world.now, figures: figures.to_owned() };
        world.tell(at, event);
        world.configs[at].control.serves(world.now)
    };
    assert!(serves(&mut world, "role=master"));
    assert!(!serves(&mut world, "role=master serves=0"));
}

#[test]
fn what_makes_no_sense_is_told_whether_it_is_read_or_seen() {
    let mut control = World::new(9, 1, policy(1)).configs.remove(0).control;
    let (now, revision) = (Moment(1), Revision(1));
    let begins = |action: &Action, key: &str| {
        match action {
        Action::Note(text) => text.starts_with(&format!(
            "An operator is needed: the store holds something in {key} that makes no sense: mend or remove it; "
        )),
        _ => false,
    }
    };
    let entry = |key: &str| Entry { key: format!("{PREFIX}{key}"), value: "x".to_owned(), revision };
    let reading = Reading { revision, entries: vec![entry("note"), entry("a\nb")] };
    let told = control.step(Event::Read(reading), now);
    assert!(begins(&told[0], "a\\nb") && begins(&told[1], "note"), "{told:?}");
    let changed = vec![Changed { key: format!("{PREFIX}slots"), value: Some("y".to_owned()) }];
    let told = control.step(Event::Changed { revision: Revision(2), changed }, now);
    assert!(begins(&told[0], "slots") && !told.iter().any(|one| begins(one, "note")), "once: {told:?}");
}

/// Half the masters of a large cluster at once. Reports what that takes of the leader.
#[test]
fn a_large_cluster_loses_half_of_its_masters() {
    let shards = std::env::var("TARN_SHARDS").ok().and_then(|text| text.parse::<u16>().ok()).unwrap_or(100);
    let mut world = World::new(4, 1, policy(shards));
    for at in 0..2 * shards {
        world.add_server(if at % 2 == 0 { "a" } else { "b" });
    }
    let begun = Instant::now();
    let took = world.run_until("it is whole", Duration::from_secs(120), World::is_whole);
    println!(
        "{shards} shards serve after {took:?}, {} changes, {:?} of CPU",
        world.store.changes,
        begun.elapsed()
    );
    let placed = world.placed();
    let lost: Vec<ServerId> = (0..shards / 2 - 1)
        .filter_map(|shard| {
            let shard = ShardId(shard);
            let master = world.standing(shard)?.master()?;
            placed.get(&shard)?.get(&master)?;
            Some(world.places[&Place { shard, node: master }])
        })
        .collect();
    assert_eq!(lost.len(), usize::from(shards / 2 - 1));
    for node in &mut world.nodes {
        node.is_up &= !lost.contains(&node.server.id);
    }
    let changes = world.store.changes;
    let is_led = |world: &World| {
        let placed = world.placed();
        world.shards().iter().all(|shard| {
            let master = world.standing(*shard).and_then(|standing| standing.master());
            master.is_some_and(|master| placed[shard].get(&master) == Some(&true))
        })
    };
    let took = world.run_until("each shard has a master", Duration::from_secs(30), is_led);
    println!("{} masters are replaced after {took:?}, {} changes", lost.len(), world.store.changes - changes);
    // What a second of nothing costs the leader: as many servers say that they are there.
    let event = |world: &World, at: usize| Event::Here {
        id: world.nodes[at].server.id,
        at: world.now,
        figures: "role=master epoch=1 offset=1".to_owned(),
    };
    let begun = Instant::now();
    for second in 0..10 {
        for at in 0..world.nodes.len() {
            let event = event(&world, at);
            let now = world.now.plus(Duration::from_micros(second * 1_000_000 + at as u64 * 500));
            world.configs[0].control.step(event, now);
        }
    }
    println!("a second of {} servers costs the leader {:?}", world.nodes.len(), begun.elapsed() / 10);
}
