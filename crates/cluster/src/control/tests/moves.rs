//! Moves of slots in whole clusters from one seed: under all that else goes wrong, masters copy, hold requests back, say what they have to, crash, start again and are
//! replaced, and know what the cluster is like late or not any more. Words come late, twice or never.
//!
//! A shard's data is, for some slots, how many writes were acknowledged. What a shard has committed survives its masters; a master that was replaced commits nothing, but
//! does not know it. Held throughout: nobody acknowledges a write in a slot that is another shard's, and whoever does has all that was acknowledged before, once. At the end
//! all moves have ended, and each shard holds its own slots and no others.
//!
//! Faults that are planted are found: [`Fault`].

use super::{PREFIX, World, policy, seeds};
use crate::control::SILENT;
use crate::control::view::key;
use crate::control::{Epochs, Event, Measure, Policy, Request, Shift, Standing, View, Word};
use crate::store::{Change, Write};
use replication::insync::Moment;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use topology::{Move, Server, ShardId, SlotRange, Stage, Topology};

/// Slots whose data is looked at.
const LOOKED_AT: [u16; 12] = [0, 1, 900, 5000, 5461, 5462, 8000, 8001, 10_923, 12_000, 16_000, 16_383];
/// How often a master says the same.
const SAYING: Duration = Duration::from_secs(1);
/// Messages on their way at which a copy has all but the last bit.
const BEHIND: usize = 3;
/// Messages on their way at which clients wait: who writes faster than it is brought there is never caught up with.
const LINE_MAX: usize = 8;

/// What may be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The leader gives slots without a compare of the decisions.
    NoCompareOfDecisions,
    /// A change that gives slots away compares the decisions and nothing else: neither the move, nor the owners, nor who leads.
    LateChangesCount,
    /// A master that starts again holds nothing back.
    HoldIsForgotten,
    /// Copies of several attempts are taken for one.
    AttemptsAreMixed,
    /// What is to be deleted is looked at once, and deleted later, whatever has come meanwhile.
    PurgesBlindly,
    /// READY is said while something is on its way.
    ReadyTooEarly,
    /// Requests are served on while the slots switch.
    HoldsNothing,
}

/// What a shard holds of a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Held {
    writes: u64,
    /// The move, and the attempt, that have brought it.
    brought: Option<(u64, u32)>,
}

type Contents = BTreeMap<u16, Held>;

/// A process that is, or believes to be, master of its shard.
struct Master {
    process: u64,
    shard: ShardId,
    node: u32,
    epoch: u64,
    topology: Topology,
    memory: Contents,
    /// It was master in this epoch before it started again.
    is_restarted: bool,
    copy: Option<Copy>,
    /// What it takes from others: what else is said to be on its way has come to nothing.
    taken: BTreeSet<(u64, u32)>,
    /// What it wants to delete.
    garbage: Vec<u16>,
    said_at: Moment,
}

struct Copy {
    id: u64,
    attempt: u32,
    to: ShardId,
    /// Who takes it, and under which epoch.
    taker: u64,
    taker_epoch: u64,
    left: Vec<u16>,
    copied: BTreeSet<u16>,
    line: VecDeque<Message>,
    is_broken: bool,
}

#[derive(Clone, Copy)]
enum Message {
    Is(u16, u64),
    OneMore(u16),
}

/// A cluster whose slots move.
pub(super) struct Moving {
    world: World,
    fault: Option<Fault>,
    committed: BTreeMap<ShardId, Contents>,
    masters: Vec<Master>,
    /// The epochs in which each shard had a process as master.
    epochs: BTreeSet<(ShardId, u64)>,
    /// What a node of the shard knew last.
    known: BTreeMap<ShardId, Topology>,
    processes: u64,
    acknowledged: BTreeMap<u16, u64>,
    words: Vec<(Moment, Request)>,
    violation: Option<String>,
    /// What the store holds, and how much of its history that is.
    truth: View,
    seen: usize,
    /// What was seen to happen.
    done: u64,
    attempts: u64,
    last_seen: BTreeMap<u64, u32>,
}

impl Master {
    fn shown(&self) -> String {
        let copy = self.copy.as_ref().map(|copy| {
            let (line, left) = (copy.line.len(), copy.left.len());
            format!("move {} attempt {} broken {} {line} {left}", copy.id, copy.attempt, copy.is_broken)
        });
        let (shard, epoch, named, knows) = (self.shard, self.epoch, self.is_named(), self.topology.revision);
        format!(
            "shard {shard} epoch {epoch} named {named} knows {knows} copy {copy:?} taken {:?}",
            self.taken
        )
    }

    fn is_named(&self) -> bool {
        self.topology
            .shards
            .get(&self.shard)
            .is_some_and(|shard| shard.epoch == self.epoch && shard.master == Some(self.node))
    }

    fn owns(&self, slot: u16) -> bool {
        self.topology.slots.owner(slot) == Some(self.shard)
    }

    fn holds_back(&self, slot: u16, fault: Option<Fault>) -> bool {
        let is_forgotten = self.is_restarted && fault == Some(Fault::HoldIsForgotten);
        let mut moves = self.topology.moves.values();
        !is_forgotten
            && fault != Some(Fault::HoldsNothing)
            && moves.any(|one| one.from == self.shard && one.stage == Stage::Switching && one.contains(slot))
    }

    fn serves(&self, slot: u16, fault: Option<Fault>) -> bool {
        self.is_named() && self.owns(slot) && !self.holds_back(slot, fault)
    }

    /// The move in which it gives slots away.
    fn gives(&self) -> Option<Move> {
        self.topology.moves.values().find(|one| one.from == self.shard && one.is_under_way()).cloned()
    }

    /// Whether what it holds of a slot is of use to nobody.
    fn is_garbage(&self, slot: u16) -> bool {
        let brought = self.memory.get(&slot).and_then(|held| held.brought);
        let is_coming = brought.is_some_and(|(id, attempt)| {
            let one = self.topology.moves.get(&id);
            one.is_some_and(|one| one.attempt == attempt && one.is_under_way())
                && (self.is_restarted || self.taken.contains(&(id, attempt)))
        });
        self.is_named() && self.memory.contains_key(&slot) && !self.owns(slot) && !is_coming
    }
}

impl Moving {
    fn new(seed: u64, fault: Option<Fault>) -> Moving {
        Moving::new_as(seed, fault, policy(3))
    }

    fn new_as(seed: u64, fault: Option<Fault>, policy: Policy) -> Moving {
        let mut world = World::new(seed, 3, policy);
        for at in 0..7 {
            world.add_server(if at % 2 == 0 { "z0" } else { "z1" });
        }
        world.lost_one_in = 15;
        if fault == Some(Fault::NoCompareOfDecisions) {
            // It is about what happens while a change is on its way.
            world.slowness = 1_000_000;
        }
        world.weaken = match fault {
            Some(Fault::NoCompareOfDecisions) => Some(|change| without(change, &["shards/"])),
            Some(Fault::LateChangesCount) => Some(|change| without(change, &["moves/", "slots", "leader"])),
            _ => None,
        };
        Moving {
            world,
            fault,
            committed: BTreeMap::new(),
            masters: Vec::new(),
            epochs: BTreeSet::new(),
            known: BTreeMap::new(),
            processes: 0,
            acknowledged: BTreeMap::new(),
            words: Vec::new(),
            violation: None,
            truth: View::default(),
            seen: 0,
            done: 0,
            attempts: 0,
            last_seen: BTreeMap::new(),
        }
    }

    fn violates(&mut self, text: String) {
        self.violation.get_or_insert(text);
    }

    fn below(&mut self, end: u64) -> u64 {
        self.world.random.below(end)
    }

    /// What the store holds now.
    pub(super) fn truth(&mut self) -> &View {
        for (revision, changed) in &self.world.store.history[self.seen..] {
            self.truth.follow(*revision, changed, PREFIX);
        }
        self.seen = self.world.store.history.len();
        &self.truth
    }

    fn decided(&mut self, shard: ShardId) -> Option<(u64, u32)> {
        match self.truth().shards.get(&shard)? {
            Standing::Begun(decision) => Some((decision.epoch.0, decision.master.node.0)),
            Standing::Unbegun(_) => None,
        }
    }

    fn step(&mut self) {
        self.world.step();
        self.begin_and_end_masters();
        for _ in 0..12 {
            if self.masters.is_empty() {
                break;
            }
            let at = self.below(self.masters.len() as u64) as usize;
            match self.below(6) {
                0 => self.look(at),
                1 | 2 => self.write(at),
                3 => self.go_on(at),
                4 => self.deliver(at),
                _ => self.purge(at),
            }
        }
        self.say_words();
        let moves = self.truth().moves.clone();
        self.done += self.last_seen.keys().filter(|id| !moves.contains_key(id)).count() as u64;
        for one in moves.values() {
            self.attempts += u64::from(self.last_seen.get(&one.id) != Some(&one.attempt));
        }
        self.last_seen = moves.values().map(|one| (one.id, one.attempt)).collect();
    }

    pub(super) fn run_for(&mut self, span: Duration) {
        let end = self.world.now.plus(span);
        while self.world.now < end && self.violation.is_none() {
            self.step();
        }
    }

    /// Processes begin where the decision names them, and end with their machines. Who was replaced, or is cut off, goes on for a while.
    fn begin_and_end_masters(&mut self) {
        let placed = self.world.placed();
        let is_up =
            |shard: ShardId, node: u32| placed.get(&shard).and_then(|nodes| nodes.get(&node)) == Some(&true);
        for at in (0..self.masters.len()).rev() {
            let (shard, node, epoch) = {
                let master = &self.masters[at];
                (master.shard, master.node, master.epoch)
            };
            let is_decided = self.decided(shard) == Some((epoch, node));
            let goes = match (is_up(shard, node), is_decided) {
                (true, true) => false,
                (true, false) => self.below(30) == 0,
                (false, _) => self.below(20) == 0,
            };
            if goes || (!self.world.is_rough && !is_decided) {
                self.masters.remove(at);
            }
        }
        let shards: Vec<ShardId> = self.truth().shards.keys().copied().collect();
        for shard in shards {
            let Some((epoch, node)) = self.decided(shard) else { continue };
            let is_there =
                self.masters.iter().any(|one| (one.shard, one.epoch, one.node) == (shard, epoch, node));
            if !is_there && is_up(shard, node) {
                self.begin_master(shard, node, epoch);
            }
        }
    }

    fn begin_master(&mut self, shard: ShardId, node: u32, epoch: u64) {
        let is_restarted = !self.epochs.insert((shard, epoch));
        let topology = match is_restarted {
            true => self.truth().topology(),
            false => self.known.get(&shard).cloned().unwrap_or_default(),
        };
        self.processes += 1;
        self.masters.push(Master {
            process: self.processes,
            shard,
            node,
            epoch,
            topology,
            memory: self.committed.get(&shard).cloned().unwrap_or_default(),
            is_restarted,
            copy: None,
            taken: BTreeSet::new(),
            garbage: Vec::new(),
            said_at: Moment(0),
        });
    }

    /// It is told what the cluster is like, by a config server that may not know it either.
    fn look(&mut self, at: usize) {
        let config = self.below(self.world.configs.len() as u64) as usize;
        let config = &self.world.configs[config];
        if config.paused_until > self.world.now {
            return;
        }
        let master = &mut self.masters[at];
        let Some(view) = config.control.view() else { return };
        if view.cluster.is_empty() || view.topology_revision().0 <= master.topology.revision {
            return;
        }
        master.topology = view.topology();
        self.known.insert(master.shard, master.topology.clone());
        if self.fault == Some(Fault::PurgesBlindly) {
            let found: Vec<u16> = LOOKED_AT.into_iter().filter(|slot| master.is_garbage(*slot)).collect();
            master.garbage.extend(found);
        }
        let goes_on = |copy: &Copy| {
            let one = master.topology.moves.get(&copy.id);
            one.is_some_and(|one| one.attempt == copy.attempt && one.is_under_way())
        };
        if !master.copy.as_ref().is_some_and(goes_on) {
            master.copy = None;
        }
    }

    /// Changes what a shard holds of a slot. Who was replaced cannot.
    fn commit(&mut self, at: usize, slot: u16, held: Option<Held>) -> bool {
        let (shard, epoch) = (self.masters[at].shard, self.masters[at].epoch);
        if self.decided(shard).map(|(epoch, _)| epoch) != Some(epoch) {
            return false;
        }
        for data in [&mut self.masters[at].memory, self.committed.entry(shard).or_default()] {
            match held {
                Some(held) => data.insert(slot, held),
                None => data.remove(&slot),
            };
        }
        true
    }

    fn write(&mut self, at: usize) {
        let slot = LOOKED_AT[self.below(LOOKED_AT.len() as u64) as usize];
        let is_far_behind = |copy: &Copy| copy.line.len() >= LINE_MAX;
        if !self.masters[at].serves(slot, self.fault)
            || self.masters[at].copy.as_ref().is_some_and(is_far_behind)
        {
            return;
        }
        let held = self.masters[at].memory.get(&slot).copied().unwrap_or_default();
        if !self.commit(at, slot, Some(Held { writes: held.writes + 1, ..held })) {
            return;
        }
        let master = &mut self.masters[at];
        let shard = master.shard;
        if let Some(copy) = master.copy.as_mut().filter(|copy| copy.copied.contains(&slot)) {
            copy.line.push_back(Message::OneMore(slot));
        }
        let before =
            self.acknowledged.insert(slot, self.acknowledged.get(&slot).unwrap_or(&0) + 1).unwrap_or(0);
        let owner = self.truth().slots.owner(slot);
        if owner != Some(shard) {
            self.violates(format!("shard {shard} serves slot {slot}, which is {owner:?}'s"));
        }
        if before != held.writes {
            self.violates(format!("slot {slot} has {} writes, and not {before}", held.writes));
        }
    }

    /// The next step of the move in which it gives slots away.
    fn go_on(&mut self, at: usize) {
        let master = &self.masters[at];
        let Some(one) = master.gives().filter(|_| master.is_named()) else { return };
        let Some(copy) = master.copy.as_ref() else {
            match one.stage {
                Stage::Copying => self.begin_copy(at, &one),
                _ => self.says(at, &one, Word::Failed("nothing is known of it".to_owned())),
            }
            return;
        };
        let is_early = self.fault == Some(Fault::ReadyTooEarly);
        let epochs = Epochs { from: master.epoch, to: copy.taker_epoch };
        if copy.is_broken {
            self.says(at, &one, Word::Failed("the connection is lost".to_owned()));
        } else if !copy.left.is_empty() {
            let master = &mut self.masters[at];
            let Some(copy) = &mut master.copy else { return };
            if let Some(slot) = copy.left.pop() {
                copy.copied.insert(slot);
                let writes = master.memory.get(&slot).map_or(0, |held| held.writes);
                copy.line.push_back(Message::Is(slot, writes));
            }
        } else if one.stage == Stage::Switching && (copy.line.is_empty() || is_early) {
            self.says(at, &one, Word::Ready(epochs));
        } else if one.stage == Stage::Copying && copy.line.len() <= BEHIND {
            self.says(at, &one, Word::CaughtUp(epochs));
        }
    }

    fn begin_copy(&mut self, at: usize, one: &Move) {
        let takers = self.masters.iter().enumerate().filter(|(_, taker)| taker.shard == one.to);
        let Some((taker_at, taker)) = takers.max_by_key(|(_, taker)| taker.epoch) else {
            return self.says(at, one, Word::Failed("nobody is there".to_owned()));
        };
        let attempt = (one.id, one.attempt);
        let knows_it = taker.topology.moves.get(&one.id).is_some_and(|known| known.attempt == one.attempt);
        let held =
            || LOOKED_AT.iter().filter(|slot| one.contains(**slot)).filter_map(|slot| taker.memory.get(slot));
        let is_begun = taker.taken.contains(&attempt) || held().any(|held| held.brought == Some(attempt));
        let is_blind = matches!(self.fault, Some(Fault::PurgesBlindly | Fault::AttemptsAreMixed));
        if !is_blind && is_begun {
            return self.says(at, one, Word::Failed("another has begun it".to_owned()));
        }
        if !knows_it || !taker.is_named() || (!is_blind && held().next().is_some()) {
            return;
        }
        let (taker, taker_epoch) = (taker.process, taker.epoch);
        self.masters[taker_at].taken.insert(attempt);
        self.masters[at].copy = Some(Copy {
            id: one.id,
            attempt: one.attempt,
            to: one.to,
            taker,
            taker_epoch,
            left: LOOKED_AT.into_iter().filter(|slot| one.contains(*slot)).collect(),
            copied: BTreeSet::new(),
            line: VecDeque::new(),
            is_broken: false,
        });
    }

    /// What is on its way arrives, and is confirmed.
    fn deliver(&mut self, at: usize) {
        let Some(copy) = self.masters[at].copy.as_ref().filter(|copy| !copy.is_broken) else { return };
        let Some(message) = copy.line.front().copied() else { return };
        let (attempt, process) = ((copy.id, copy.attempt), copy.taker);
        debug_assert_ne!(copy.to, self.masters[at].shard);
        let taker_at = self.masters.iter().position(|master| master.process == process);
        let is_taken = taker_at.is_some_and(|taker_at| {
            let taker = &self.masters[taker_at];
            let known = taker.topology.moves.get(&attempt.0);
            let is_known = known.is_some_and(|one| one.attempt == attempt.1 && one.is_under_way());
            if !is_known && self.fault != Some(Fault::AttemptsAreMixed) {
                return false;
            }
            let (slot, writes) = match message {
                Message::Is(slot, writes) => (slot, writes),
                Message::OneMore(slot) => (slot, taker.memory.get(&slot).map_or(1, |held| held.writes + 1)),
            };
            self.commit(taker_at, slot, Some(Held { writes, brought: Some(attempt) }))
        });
        if let Some(copy) = &mut self.masters[at].copy {
            copy.line.pop_front();
            copy.is_broken |= !is_taken;
        }
    }

    /// It deletes something of what is another's, and came to nothing or has gone.
    fn purge(&mut self, at: usize) {
        let master = &mut self.masters[at];
        let slot = match self.fault {
            Some(Fault::PurgesBlindly) => master.garbage.pop(),
            _ => LOOKED_AT.into_iter().find(|slot| master.is_garbage(*slot)),
        };
        if let Some(slot) = slot {
            self.commit(at, slot, None);
        }
    }

    fn says(&mut self, at: usize, one: &Move, word: Word) {
        let now = self.world.now;
        if now.since(self.masters[at].said_at) < SAYING {
            return;
        }
        self.masters[at].said_at = now;
        let request = Request::Said { id: one.id, attempt: one.attempt, word };
        let is_rough = self.world.is_rough;
        let copies = match self.below(10) {
            0 if is_rough => 0,
            1 if is_rough => 2,
            _ => 1,
        };
        for copy in 0..copies {
            let span = if is_rough { 1000 + 4000 * copy } else { 1 };
            let due = now.plus(Duration::from_millis(self.below(span)));
            self.words.push((due, request.clone()));
        }
    }

    fn say_words(&mut self) {
        let now = self.world.now;
        let (due, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.words).into_iter().partition(|(due, _)| *due <= now);
        self.words = later;
        for (_, request) in due {
            self.world.ask(|ticket| Event::Asks(ticket, request));
        }
    }

    fn order(&mut self) {
        let request = match self.below(8) {
            0 => Request::Rebalance { by: Measure::Slots, is_dry: false },
            1 => {
                let before = self.below(3);
                Request::Cancel(self.truth().last_move.saturating_sub(before))
            }
            _ => {
                let first = self.below(16_000) as u16;
                let last = first.saturating_add(self.below(9000) as u16).min(16_383);
                let (to, slots) = (ShardId(self.below(3) as u16), vec![SlotRange { first, last }]);
                Request::Begin { shifts: vec![Shift { from: None, to, slots }], begun: BTreeSet::new() }
            }
        };
        self.world.ask(|ticket| Event::Asks(ticket, request));
    }

    fn disturb(&mut self) {
        if self.masters.is_empty() || self.below(3) == 0 {
            return self.world.disturb();
        }
        let at = self.below(self.masters.len() as u64) as usize;
        match self.below(3) {
            // It starts again at once.
            0 => drop(self.masters.remove(at)),
            1 => {
                if let Some(copy) = &mut self.masters[at].copy {
                    copy.is_broken = true;
                }
            }
            _ => self.world.disturb(),
        }
    }

    fn unfinished(&mut self) -> usize {
        self.truth().moves.values().filter(|one| !matches!(one.stage, Stage::Failed(_))).count()
    }

    /// Whether each shard holds its own slots and nothing else.
    fn is_clean(&mut self) -> bool {
        let slots = self.truth().slots.clone();
        let mut all =
            self.committed.iter().flat_map(|(shard, data)| data.keys().map(move |slot| (*shard, *slot)));
        all.all(|(shard, slot)| slots.owner(slot) == Some(shard))
    }

    /// A minute in which much goes wrong, then some in which nothing does.
    fn play(seed: u64, fault: Option<Fault>) -> Result<Moving, String> {
        Moving::play_as(seed, fault, policy(3))
    }

    /// The same with other settings.
    pub(super) fn play_as(seed: u64, fault: Option<Fault>, policy: Policy) -> Result<Moving, String> {
        let mut moving = Moving::new_as(seed, fault, policy);
        while !moving.world.is_whole() {
            moving.step();
        }
        moving.world.is_rough = true;
        for _ in 0..60 {
            if moving.below(2) == 0 {
                moving.disturb();
            }
            if moving.below(3) == 0 {
                moving.order();
            }
            moving.run_for(Duration::from_millis(1000));
        }
        moving.world.is_rough = false;
        let now = moving.world.now;
        for node in moving.world.nodes.iter_mut().filter(|node| !node.is_up) {
            (node.is_up, node.up_since) = (true, now);
        }
        while moving.world.nodes.len() < 16 {
            moving.world.add_server("z2");
        }
        let is_over = |moving: &mut Moving| {
            moving.violation.is_some()
                || (moving.unfinished() == 0 && moving.is_clean() && moving.world.is_whole())
        };
        while !is_over(&mut moving) && moving.world.now.since(now) < Duration::from_secs(400) {
            moving.step();
        }
        if moving.violation.is_none() && !is_over(&mut moving) {
            let (clean, moves) = (moving.is_clean(), moving.truth().moves.clone());
            let (whole, leader) = (moving.world.is_whole(), moving.world.leader());
            let masters: Vec<String> = moving.masters.iter().map(Master::shown).collect();
            moving.violates(format!(
                "it does not end: clean {clean}, whole {whole}, leader {leader:?}, {moves:?}, {masters:#?}"
            ));
        }
        let slots = moving.truth().slots.clone();
        for slot in LOOKED_AT {
            let owner = slots.owner(slot).expect("all are somebody's");
            let held =
                moving.committed.get(&owner).and_then(|data| data.get(&slot)).map_or(0, |held| held.writes);
            let wanted = moving.acknowledged.get(&slot).copied().unwrap_or(0);
            if held != wanted {
                moving.violates(format!("slot {slot} has {held} writes, and {wanted} were acknowledged"));
            }
        }
        match moving.violation.take() {
            None => Ok(moving),
            Some(violation) => Err(violation),
        }
    }
}

/// Takes compares of keys out of a change that gives slots away.
fn without(change: &mut Change, keys: &[&str]) {
    let slots = format!("{PREFIX}{}", key::SLOTS);
    if change.writes.iter().any(|write| write.key() == slots) {
        change
            .compares
            .retain(|compare| !keys.iter().any(|key| compare.key.starts_with(&format!("{PREFIX}{key}"))));
    }
}

#[test]
fn slots_move_whatever_happens() {
    let (mut done, mut attempts, mut writes, mut count) = (0, 0, 0, 0);
    for seed in seeds(20) {
        match Moving::play(seed, None) {
            Err(violation) => panic!("TARN_SEED={seed} TARN_STEPS=1: {violation}"),
            Ok(moving) => {
                count += 1;
                done += moving.done;
                attempts += moving.attempts;
                writes += moving.acknowledged.values().sum::<u64>();
            }
        }
    }
    println!("{count} clusters: {done} moves have ended, in {attempts} attempts, under {writes} writes");
    assert!(done >= 5 * count, "hardly anything moves");
}

#[test]
fn a_shard_goes_whatever_happens() {
    const GOING: ShardId = ShardId(1);
    for seed in seeds(8) {
        let mut moving = Moving::new(seed, None);
        while !moving.world.is_whole() {
            moving.step();
        }
        let go =
            |moving: &mut Moving| moving.world.ask(|ticket| Event::Asks(ticket, Request::RemoveShard(GOING)));
        moving.world.is_rough = true;
        for _ in 0..40 {
            match moving.below(5) {
                0 => moving.order(),
                1 => moving.disturb(),
                _ => drop(go(&mut moving)),
            }
            moving.run_for(Duration::from_millis(1000));
        }
        moving.world.is_rough = false;
        let now = moving.world.now;
        for node in moving.world.nodes.iter_mut().filter(|node| !node.is_up) {
            (node.is_up, node.up_since) = (true, now);
        }
        let is_there = |moving: &mut Moving| moving.truth().shards.contains_key(&GOING);
        for _ in 0..200 {
            if !is_there(&mut moving) || moving.violation.is_some() {
                break;
            }
            go(&mut moving);
            moving.run_for(Duration::from_secs(2));
        }
        let shown = format!("TARN_SEED={seed} TARN_STEPS=1: {:?}", moving.truth().moves);
        assert!(moving.violation.is_none(), "{:?} {shown}", moving.violation);
        assert!(!is_there(&mut moving), "it does not go: {shown}");
        moving.world.policy.shards = 2;
        // Nothing begins in its place.
        for _ in 0..4 {
            moving.world.add_server("z2");
        }
        moving.run_for(Duration::from_secs(60));
        moving.committed.remove(&GOING);
        assert_eq!(moving.truth().policy.map(|policy| policy.shards), Some(2), "{shown}");
        assert!(moving.world.is_whole() && moving.is_clean() && moving.unfinished() == 0, "{shown}");
        let slots = moving.truth().slots.clone();
        for slot in LOOKED_AT {
            let owner = slots.owner(slot).expect("all are somebody's");
            let held = moving.committed.get(&owner).and_then(|data| data.get(&slot));
            let wanted = moving.acknowledged.get(&slot).copied().unwrap_or(0);
            assert_eq!(held.map_or(0, |held| held.writes), wanted, "slot {slot}, {shown}");
        }
        // It may be said once more; and not of the last one.
        let (at, ticket) = go(&mut moving).expect("somebody leads");
        moving.run_for(Duration::from_secs(1));
        let answer = moving.world.configs[at].answers.get(&ticket).cloned();
        assert_eq!(answer, Some(Ok("shard 1 is removed".to_owned())), "{shown}");
    }
}

#[test]
fn planted_faults_are_found() {
    for fault in [
        Fault::NoCompareOfDecisions,
        Fault::LateChangesCount,
        Fault::HoldIsForgotten,
        Fault::HoldsNothing,
        Fault::ReadyTooEarly,
        Fault::AttemptsAreMixed,
        Fault::PurgesBlindly,
    ] {
        let found =
            seeds(100).find_map(|seed| Moving::play(seed, Some(fault)).err().map(|what| (seed, what)));
        let (seed, what) = found.unwrap_or_else(|| panic!("{fault:?} is not found"));
        println!("{fault:?}: seed {seed}: {what}");
    }
}

/// Requests to its slots wait for it, and at the other shard those that change whole databases.
#[test]
fn slots_that_switch_are_served_again_once_a_master_is_silent() {
    for silent in [ShardId(0), ShardId(1)] {
        let mut world = World::new(31, 2, policy(2));
        (0..4).for_each(|_| world.add_server(""));
        world.run_until("it is whole", Duration::from_secs(30), World::is_whole);
        let slots = vec![SlotRange { first: 0, last: 0 }];
        let shifts = vec![Shift { from: None, to: ShardId(1), slots }];
        let request = Request::Begin { shifts, begun: BTreeSet::new() };
        world.ask(|ticket| Event::Asks(ticket, request)).expect("somebody leads");
        let stage = |world: &World| {
            let line = world.value("moves/1").map(|(line, ..)| line.clone());
            line.and_then(|line| Move::from_line(&line)).map(|one| (one.stage, one.attempt))
        };
        let copies = |world: &World| stage(world).is_some_and(|(stage, _)| stage == Stage::Copying);
        world.run_until("it begins", Duration::from_secs(10), copies);
        let (line, ..) = world.value("moves/1").expect("it is there").clone();
        let put = Write::Put {
            key: format!("{PREFIX}moves/1"),
            value: line.replace("copying", "switching"),
            lease: None,
        };
        world.store.change(&Change { compares: Vec::new(), writes: vec![put] });
        world.run_for(Duration::from_secs(6));
        assert_eq!(stage(&world), Some((Stage::Switching, 1)), "as long as both are heard of");
        for at in 0..world.nodes.len() {
            let line = world.value(&key::server(world.nodes[at].server.id)).map(|(line, ..)| line.clone());
            let place = line.and_then(|line| Server::from_line(&line)).and_then(|server| server.place);
            world.nodes[at].is_up = place.is_none_or(|place| place.shard != silent);
        }
        world.run_for(SILENT + Duration::from_secs(2));
        assert_eq!(stage(&world), Some((Stage::Waiting, 2)), "shard {silent}");
    }
}
