//! Who serves a slot, from one seed: two shards of two servers, whose masters change, whose slots go to and fro, and which hear of it late, or from their directories only.
//!
//! What the shards and config servers do is a model here, what a server makes of it is not. At no moment two servers serve a slot.
//!
//!     TARN_STEPS=100000 TARN_SEED=$RANDOM ./test -p server --lib -- --nocapture no_slot_is_served_by_two

use super::{Clustered, Fault, ServerId, Topology, part, standing};
use replication::insync::Role;
use sys::Prng;
use testkit::Budget;
use testkit::seed::found_within;
use topology::{Edition, Move, Place, Server, Shard, ShardId, SlotMap, SlotRange, Stage};

/// What happens in one seed's life.
const EVENTS: u64 = 300;
/// Slots that are looked at.
const LOOKED_AT: [u16; 4] = [0, 100, 5000, 16_383];

/// A server.
struct Node {
    place: Place,
    clustered: Clustered,
    /// What its directory holds.
    kept: Option<Topology>,
    /// How many topologies it has heard of on the connection that it has to a config server; None: it has none.
    heard: Option<usize>,
}

/// What the master of `from` has said of the slots that switch, which the leader has not heard yet.
struct Ready {
    attempt: u32,
    epochs: [u64; 2],
}

struct World {
    prng: Prng,
    planted: Option<Fault>,
    nodes: Vec<Node>,
    /// All that the store ever held.
    history: Vec<Topology>,
    /// The epoch of the master of `to` when the copy began.
    begun: u64,
    ready: Option<Ready>,
    /// How often slots have gone to the other shard.
    moved: u64,
}

fn id(place: Place) -> ServerId {
    ServerId::from_bytes([10 * place.shard.0 as u8 + place.node as u8; 20])
}

fn server(place: Place) -> Server {
    let port = 7000 + place.shard.0 * 10 + place.node as u16;
    Server {
        id: id(place),
        host: "h".to_owned(),
        port,
        tls_port: 0,
        hostname: String::new(),
        zone: String::new(),
        edition: Edition::Memory,
        machine: String::new(),
        place: Some(place),
        is_met: false,
    }
}

impl World {
    fn new(seed: u64, planted: Option<Fault>) -> World {
        let places = [(0, 1), (0, 2), (1, 1), (1, 2)];
        let places = places.map(|(shard, node)| Place { shard: ShardId(shard), node });
        let shard = |id| Shard { id, epoch: 1, master: Some(1), members: [1, 2].into(), beginner: None };
        let first = Topology {
            cluster: "c0ffee".to_owned(),
            revision: 1,
            servers: places.map(|place| (id(place), server(place))).into(),
            shards: [0, 1].map(|number| (ShardId(number), shard(ShardId(number)))).into(),
            slots: SlotMap::even(&[ShardId(0), ShardId(1)]),
            ..Topology::default()
        };
        let node = |place| Node { place, clustered: part(""), kept: None, heard: None };
        let mut world = World {
            prng: Prng::from_seed(seed),
            planted,
            nodes: places.map(node).into(),
            history: vec![first],
            begun: 0,
            ready: None,
            moved: 0,
        };
        for at in 0..world.nodes.len() {
            world.start(at);
            world.connect(at);
        }
        world
    }

    fn chance(&mut self, one_in: u64) -> bool {
        self.prng.below(one_in) == 0
    }

    fn now(&self) -> &Topology {
        self.history.last().expect("there is one")
    }

    fn change(&mut self, change: impl FnOnce(&mut Topology)) {
        let mut next = self.now().clone();
        change(&mut next);
        next.revision += 1;
        self.history.push(next);
    }

    /// Where the master of a shard is, as that has decided.
    fn master(&self, shard: ShardId) -> usize {
        let master = self.now().shards[&shard].master;
        self.nodes
            .iter()
            .position(|node| node.place.shard == shard && Some(node.place.node) == master)
            .expect("it is one of these")
    }

    /// A server's process begins, with what its directory holds. It is what it was in its shard.
    fn start(&mut self, at: usize) {
        let clustered = part("cluster-enabled yes");
        let part = clustered.get().expect("it is on");
        part.state.lock().planted = self.planted;
        part.introduce(id(self.nodes[at].place));
        if let Some(kept) = self.nodes[at].kept.clone() {
            part.publish(kept);
        }
        (self.nodes[at].clustered, self.nodes[at].heard) = (clustered, None);
        self.tell_standing(at);
    }

    fn tell_standing(&self, at: usize) {
        let shard = self.nodes[at].place.shard;
        let Shard { epoch, master, .. } = self.now().shards[&shard].clone();
        let role = if self.master(shard) == at { Role::Master } else { Role::Member };
        let part = self.nodes[at].clustered.get().expect("it is on");
        part.note_standing(&standing(role, epoch, master.expect("there is one")));
    }

    fn publish(&mut self, at: usize, which: usize) {
        let told = self.history[which].clone();
        let is_kept = !self.chance(8);
        let node = &mut self.nodes[at];
        if node.clustered.get().expect("it is on").publish(told.clone()) && is_kept {
            node.kept = Some(told);
        }
    }

    /// What comes first is no older than the question.
    fn connect(&mut self, at: usize) {
        let last = self.history.len() - 1;
        self.publish(at, last);
        self.nodes[at].clustered.get().expect("it is on").confirm();
        self.nodes[at].heard = Some(last);
    }

    fn happen(&mut self) {
        let at = self.prng.below(self.nodes.len() as u64) as usize;
        match (self.prng.below(10), self.nodes[at].heard) {
            (0..=3, Some(heard)) => {
                let last = self.history.len() - 1;
                let next = last.min(heard + 1 + self.prng.below(3) as usize);
                self.publish(at, next);
                self.nodes[at].heard = Some(next);
            }
            // What was on its way on another connection.
            (4, Some(heard)) => {
                let which = self.prng.below(heard as u64 + 1) as usize;
                self.publish(at, which);
            }
            (0..=3, None) => self.connect(at),
            (5, _) if self.chance(3) => self.nodes[at].heard = None,
            (6, _) if self.chance(3) => self.start(at),
            (7, _) if self.chance(3) => self.fail_over(),
            _ => self.move_on(),
        }
    }

    /// The member of a shard that is not master becomes it. The one that was knows that its lease is over before that.
    fn fail_over(&mut self) {
        let shard = ShardId(self.prng.below(2) as u16);
        let before = self.master(shard);
        self.change(|next| {
            let shard = next.shards.get_mut(&shard).expect("it is there");
            (shard.epoch, shard.master) = (shard.epoch + 1, shard.master.map(|node| 3 - node));
        });
        self.tell_standing(before);
        self.tell_standing(self.master(shard));
    }

    /// The next step of the move that there is.
    fn move_on(&mut self) {
        let Some(one) = self.now().moves.values().next().cloned() else {
            let first = if self.chance(2) { 0 } else { 5000 };
            let from = self.now().slots.owner(first).expect("it has one");
            let slots = vec![SlotRange { first, last: first + 200 }];
            let to = ShardId(1 - from.0);
            self.begun = self.now().shards[&to].epoch;
            return self.change(|next| {
                next.last_move += 1;
                let id = next.last_move;
                next.moves.insert(id, Move { id, from, to, attempt: 1, stage: Stage::Copying, slots });
            });
        };
        if one.stage == Stage::Copying {
            let stage = Stage::Switching;
            return self.change(|next| drop(next.moves.insert(one.id, Move { stage, ..one })));
        }
        let epochs = [one.from, one.to].map(|shard| self.now().shards[&shard].epoch);
        match self.ready.take() {
            Some(said) if said.attempt == one.attempt && said.epochs == epochs => {
                self.moved += 1;
                self.change(|next| {
                    let slots = one.slots.iter().flat_map(|range| range.slots());
                    slots.for_each(|slot| next.slots.set(slot, Some(one.to)));
                    next.moves.remove(&one.id);
                });
            }
            None if !self.chance(6) => self.ready = self.say_ready(&one),
            // It has come to nothing.
            _ => {
                self.begun = epochs[1];
                let (attempt, stage) = (one.attempt + 1, Stage::Copying);
                self.change(|next| drop(next.moves.insert(one.id, Move { attempt, stage, ..one })));
            }
        }
    }

    /// What the master says, if it holds these slots' requests back.
    fn say_ready(&self, one: &Move) -> Option<Ready> {
        let view = self.nodes[self.master(one.from)].clustered.get().expect("it is on").view();
        let sees_it = view.topology.moves.get(&one.id) == Some(one);
        let epochs = [self.now().shards[&one.from].epoch, self.begun];
        (view.leads && sees_it).then_some(Ready { attempt: one.attempt, epochs })
    }

    /// Who serves a slot, if they are several.
    fn check(&self) -> Option<String> {
        LOOKED_AT.into_iter().find_map(|slot| {
            let serves = |node: &&Node| {
                let view = node.clustered.get().expect("it is on").view();
                view.leads && view.is_up && view.routes.is_own(slot)
            };
            let places: Vec<Place> = self.nodes.iter().filter(serves).map(|node| node.place).collect();
            (places.len() > 1).then(|| format!("slot {slot} is served by {places:?}"))
        })
    }
}

/// One seed's life: how many moves were done, or what is wrong.
fn live(seed: u64, planted: Option<Fault>) -> Result<u64, String> {
    let mut world = World::new(seed, planted);
    for event in 0..EVENTS {
        world.happen();
        if let Some(wrong) = world.check() {
            return Err(format!("at event {event}: {wrong}"));
        }
    }
    Ok(world.moved)
}

#[test]
fn no_slot_is_served_by_two() {
    let budget = Budget::from_env(1, 40);
    let (mut step, mut moved) = (0, 0);
    while budget.allows(step) {
        let seed = budget.seed + step;
        moved += live(seed, None).unwrap_or_else(|wrong| panic!("TARN_SEED={seed} TARN_STEPS=1: {wrong}"));
        step += 1;
    }
    println!("{step} clusters, in which slots have moved {moved} times");
    assert!(moved > step, "hardly anything moves");
}

#[test]
fn every_mistake_in_who_serves_is_found() {
    for fault in [Fault::ServesUnnamed, Fault::OldTopologyAtRestart, Fault::EarlierIsTaken] {
        found_within(&format!("{fault:?}"), 1..=2000, |seed| live(seed, Some(fault)));
    }
}
