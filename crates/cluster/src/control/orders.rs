//! What operators want: each order goes on, step by step, until it is carried out, refused, or has waited for too long. An order that has not ended when the leader does is
//! given again by who has given it: he is told whether something of it may have been done.

use super::left_open::{self, Again, Felt};
use super::losing::Losing;
use super::rebalance::Measure;
use super::users::{self, UserChange};
use super::view::{Standing, View, key};
use super::{Action, Control, Policy, SILENT, STORE_REFUSES, Ticket};
use replication::insync::{Loss, Moment};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;
use topology::{Server, ServerId, ShardId, SlotMap};

/// How long a switch may take.
const SWITCHING: Duration = Duration::from_secs(10);
/// How long it may take until somebody who has agreed to it is master, before it is asked for again: a master that hands over gives up after a second.
const HANDING_OVER: Duration = Duration::from_secs(3);
/// How long a stand-in may take for its copy.
const COPYING: Duration = Duration::from_secs(3600);

const AWAITS_NO_BACKUP: &str = "this cluster awaits no backup: a backup is restored into a new one, whose config servers were begun with `--await-restore yes`";
const NO_MORE_SHARDS: &str = "there are not so many numbers of shards";

/// What an operator wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// One shard more, as soon as there are servers for it.
    AddShard,
    /// Another setting: its name and value.
    Set(String, String),
    /// Another master for a shard: this one, or the best member.
    Switch(ShardId, Option<ServerId>),
    /// A server that waits for a place is to have one in this shard.
    Place(ServerId, ShardId),
    /// Who speaks Redis Cluster is to be told of a server that waits for a place.
    Meet(ServerId),
    /// A server that waits for a place is to begin a shard, without waiting for others.
    Begin(ServerId),
    /// A server is to go; by force also if nobody can stand in for it.
    Remove(ServerId, Force),
    /// A shard whose members are gone for good is to begin anew with what another server has.
    Lose(Losing),
    /// Somebody is about to bring a backup.
    BeginRestore,
    /// He who began the restore of this number has brought all of it.
    EndRestore(u64, Restored),
    /// A user of the proxies is to be another, or to go.
    User(UserChange),
}

impl Order {
    /// Whether it may be said once more though it was done.
    fn again(&self) -> Again {
        match self {
            Order::AddShard | Order::Switch(..) | Order::EndRestore(..) => Again::IfUndone,
            Order::Set(..)
            | Order::Place(..)
            | Order::Meet(_)
            | Order::Begin(_)
            | Order::Remove(..)
            | Order::Lose(_)
            | Order::User(_)
            | Order::BeginRestore => Again::AsItIs,
        }
    }

    /// In the words of the operator's tool.
    fn shown(&self) -> String {
        match self {
            Order::AddShard => "add-shard".to_owned(),
            Order::Set(name, value) => format!("set {name} {value}"),
            Order::Switch(shard, None) => format!("switch {shard}"),
            Order::Switch(shard, Some(to)) => format!("switch {shard} --to {to}"),
            Order::Place(id, shard) => format!("place-server {id} {shard}"),
            Order::Meet(id) => format!("meet-server {id}"),
            Order::Begin(id) => format!("add-shard with {id}"),
            Order::Remove(id, Force::No) => format!("remove-server {id}"),
            Order::Remove(id, Force::Yes) => format!("remove-server {id} --force"),
            Order::Lose(losing) => format!("promote {} {} --accept-loss", losing.shard, losing.heir),
            Order::BeginRestore | Order::EndRestore(..) => "restore".to_owned(),
            Order::User(change) => change.shown(),
        }
    }
}

/// A backup that was brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The slots' owners.
    pub slots: SlotMap,
    /// In which epoch of each shard it was all there, if that is told.
    pub epochs: BTreeMap<ShardId, u64>,
}

impl Restored {
    /// Why a shard may not have what was brought to it. Another master by promotion has all that the one before had committed; whatever else has happened meanwhile may have
    /// been an operator's consent to lose something.
    pub(super) fn why_lost(&self, view: &View) -> Option<String> {
        self.epochs.iter().find_map(|(shard, epoch)| {
            let has_it = match view.shards.get(shard) {
                Some(Standing::Begun(now)) => {
                    now.epoch.0 == *epoch || (now.epoch.0.checked_sub(1) == Some(*epoch) && !now.is_lossy)
                }
                _ => false,
            };
            (!has_it).then(|| {
                format!("shard {shard} has had other masters since the backup was brought: begin it again")
            })
        })
    }
}

/// Whether a shard may be left with fewer copies than it is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Force {
    /// It may.
    Yes,
    /// It may not.
    No,
}

/// One setting. It is put to those that there are when it is written down: others may be changed at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Servers of each shard.
    Copies(u32),
    /// How many shards are wanted.
    Shards(u16),
    /// How long a server may be away.
    ReplaceAfter(Duration),
    /// Bytes that a move takes in a second.
    MoveRate(u64),
    /// What shards are to have the same of by themselves.
    AutoRebalance(Option<Measure>),
    /// By how many percent they may differ before that.
    RebalanceThreshold(u32),
    /// Another attempt at restoring a backup.
    NextRestore,
}

/// The least and the most that `rebalance-threshold` can be: what is measured is never quite the same.
const THRESHOLD_PERCENT: RangeInclusive<u32> = 5..=1000;

impl Setting {
    /// A setting that an operator may give, by its name.
    ///
    /// # Errors
    /// One sentence: there is none of this name, or it cannot be that.
    pub fn read(name: &str, value: &str) -> Result<Setting, String> {
        let number = || value.parse::<u64>().map_err(|_| format!("'{value}' is no number"));
        match name {
            "copies" => match u32::try_from(number()?) {
                Ok(copies @ 1..=9) => Ok(Setting::Copies(copies)),
                _ => Err("a shard has 1 to 9 copies".to_owned()),
            },
            "shards" => match u16::try_from(number()?) {
                Ok(shards) if shards < ShardId::END.0 => Ok(Setting::Shards(shards)),
                _ => Err(NO_MORE_SHARDS.to_owned()),
            },
            "replace-after" => Ok(Setting::ReplaceAfter(Policy::read_replace_after(value)?)),
            "move-rate" => Ok(Setting::MoveRate(number()?)),
            "auto-rebalance" => match (value, Measure::named(value)) {
                ("no", _) => Ok(Setting::AutoRebalance(None)),
                (_, Some(measure)) => Ok(Setting::AutoRebalance(Some(measure))),
                _ => Err("auto-rebalance is no, slots, keys, bytes or ops".to_owned()),
            },
            "rebalance-threshold" => match u32::try_from(number()?) {
                Ok(percent) if THRESHOLD_PERCENT.contains(&percent) => {
                    Ok(Setting::RebalanceThreshold(percent))
                }
                _ => Err("rebalance-threshold is 5 to 1000 (percent)".to_owned()),
            },
            _ => Err(format!(
                "there is no setting '{name}': copies, shards, replace-after (seconds), move-rate (bytes a second), auto-rebalance (no, slots, keys, bytes, ops), rebalance-threshold (percent)"
            )),
        }
    }

    /// The settings with this one.
    pub fn put_to(self, policy: Policy) -> Policy {
        match self {
            Setting::Copies(copies) => Policy { copies, ..policy },
            Setting::Shards(shards) => Policy { shards, ..policy },
            Setting::ReplaceAfter(replace_after) => Policy { replace_after, ..policy },
            Setting::MoveRate(move_rate) => Policy { move_rate, ..policy },
            Setting::AutoRebalance(auto_rebalance) => Policy { auto_rebalance, ..policy },
            Setting::RebalanceThreshold(rebalance_threshold) => Policy { rebalance_threshold, ..policy },
            Setting::NextRestore => Policy { restore: policy.restore + 1, ..policy },
        }
    }
}

/// What carries an order, or a step of it, out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// Another setting.
    Policy(Setting),
    /// One shard more is wanted: how many that are, once it was drafted. Where nobody knows whether that was done it is not one more again.
    OneShardMore(Option<u16>),
    /// Nothing is different, but the store has taken a change.
    Tried,
    /// A server goes.
    Remove(ServerId),
    /// A spare gets a place, beside a server that is to go, or to be master.
    Place(ServerId, ShardId),
    /// Who speaks Redis Cluster is told of a spare.
    Meet(ServerId),
    /// A spare begins a shard.
    Begin(ServerId),
    /// A backup is restored: by whom, and who has which slots.
    Restored(u64, Restored),
    /// Members that are gone for good go, now that their shard has another master; what is told then.
    Bury(Vec<ServerId>, String),
    /// A user is another, or goes.
    User(UserChange),
}

#[derive(Clone, Debug)]
pub(super) enum Stage {
    /// It was not looked at yet.
    New,
    /// The next change carries this out.
    Ready(Done),
    /// The change is under way.
    Under,
    /// The store takes changes: a master that yields before that is sure may have no heir.
    Tried,
    /// It was told so and agreed; the decision is to say so. Since when.
    Switching(ShardId, u32, Moment),
    /// A spare is to become a member.
    Copying(ServerId),
    /// The same as switching, at a price: what is known of it.
    Losing(String),
}

impl Stage {
    /// What is waited for.
    fn shown(&self) -> String {
        match self {
            Stage::New => "it waits for its turn, or for a server that is on its way in".to_owned(),
            Stage::Ready(_) | Stage::Under | Stage::Tried => "it is written down".to_owned(),
            Stage::Switching(shard, node, _) => format!("node {node} is to be master of shard {shard}"),
            Stage::Copying(id) => format!("server {id} gets its copy"),
            Stage::Losing(_) => "another is to be master".to_owned(),
        }
    }
}

#[derive(Clone, Debug)]
struct Underway {
    order: Order,
    stage: Stage,
    deadline: Moment,
    /// Whether something of it may have been done by what is under way no more.
    felt: Felt,
}

impl Underway {
    /// Whether something of it may have been done by now.
    fn felt_by_now(&self) -> Felt {
        self.felt.or(matches!(self.stage, Stage::Under))
    }

    /// The order, within a sentence.
    fn quoted(&self) -> String {
        format!("`{}`", self.order.shown())
    }

    /// What is answered where it comes to nothing. One of users that may have been done is not refused: what speaks against it may have come later.
    fn refused(&self, line: String) -> String {
        match (&self.order, self.felt_by_now()) {
            (Order::User(_), Felt::Maybe) => {
                let why = line.split_once(' ').map_or(line.as_str(), |(_, why)| why);
                left_open::unknown(why, &self.quoted(), self.order.again())
            }
            _ => line,
        }
    }
}

/// Whether what is under way is waited for by who leads no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// What becomes of a change is told when it is known.
    WhenKnown,
    /// The process ends.
    AtOnce,
}

/// All orders that are not carried out.
#[derive(Debug, Default)]
pub struct Orders(BTreeMap<Ticket, Underway>);

impl Orders {
    pub fn take_ready(&mut self) -> Vec<(Ticket, Done)> {
        let mut ready = Vec::new();
        for (ticket, under) in &mut self.0 {
            if let Stage::Ready(done) = &under.stage {
                ready.push((*ticket, done.clone()));
                under.stage = Stage::Under;
            }
        }
        ready
    }

    pub fn put_back(&mut self, ticket: Ticket, done: Done) {
        if let Some(under) = self.0.get_mut(&ticket) {
            under.stage = Stage::Ready(done);
        }
    }

    /// What waits for something, for people: an order goes on when nobody waits for its answer any more.
    pub fn under_way(&self, now: Moment) -> impl Iterator<Item = Value> {
        self.0.values().map(move |under| {
            json!({
                "order": under.order.shown(),
                "stage": under.stage.shown(),
                "left_ms": u64::try_from(under.deadline.since(now).as_millis()).unwrap_or(u64::MAX),
            })
        })
    }

    /// Has an order be looked at anew.
    pub fn reconsider(&mut self, ticket: Ticket) {
        if let Some(under) = self.0.get_mut(&ticket) {
            under.stage = Stage::New;
        }
    }

    /// Nobody knows what has become of a change with which this was to be carried out.
    pub fn may_be_done(&mut self, ticket: Ticket, done: &Done) {
        if let Some(under) = self.0.get_mut(&ticket) {
            under.felt = under.felt.or(*done != Done::Tried);
        }
    }

    /// Gives up those of which no change is under way, or all, and gives what is answered where something may have been done; None: nothing was.
    pub fn give_up(&mut self, ends: Ends) -> Vec<(Ticket, Option<String>)> {
        let is_given_up = |under: &Underway| ends == Ends::AtOnce || !matches!(under.stage, Stage::Under);
        self.0
            .extract_if(.., |_, under| is_given_up(under))
            .map(|(ticket, under)| {
                (ticket, under.felt_by_now().left_open(&under.quoted(), under.order.again()))
            })
            .collect()
    }
}

/// What is to become of an order.
pub(super) enum Next {
    Wait,
    Stage(Stage),
    Promote(ServerId, Loss, Stage),
    End(Result<String, String>),
}

pub(super) fn refuse(text: impl Into<String>) -> Next {
    Next::End(Err(format!("ERR {}", text.into())))
}

impl Control {
    pub(super) fn wants(&mut self, ticket: Ticket, order: Order, now: Moment) {
        if !self.leads() {
            return self.refuse_to_lead(ticket);
        }
        let patience = if matches!(order, Order::Remove(..)) { COPYING } else { SWITCHING };
        let deadline = now.plus(patience);
        self.orders.0.insert(ticket, Underway { order, stage: Stage::New, deadline, felt: Felt::No });
        self.not_before = now;
    }

    pub(super) fn promoted(&mut self, ticket: Ticket, result: Result<(), String>, _now: Moment) {
        if let Err(line) = result
            && self.orders.0.remove(&ticket).is_some()
        {
            self.answer(ticket, Err(line));
        }
    }

    /// Orders whose change is done.
    pub(super) fn conclude(&mut self, orders: Vec<(Ticket, Done)>) {
        for (ticket, done) in orders {
            let Some(under) = self.orders.0.get_mut(&ticket) else { continue };
            let told = match (done, &under.order) {
                (Done::Place(id, _), Order::Remove(..)) => {
                    (under.stage, under.felt) = (Stage::Copying(id), Felt::Maybe);
                    continue;
                }
                (Done::Tried, _) => {
                    under.stage = Stage::Tried;
                    continue;
                }
                (Done::Place(..), Order::Lose(_)) => {
                    (under.stage, under.felt) = (Stage::New, Felt::Maybe);
                    continue;
                }
                (Done::Bury(_, told), _) => told,
                (Done::User(_), _) => self.view.as_ref().map(users::told).unwrap_or_default(),
                (Done::Policy(Setting::NextRestore), _) => {
                    format!(
                        "restore {}",
                        self.view.as_ref().and_then(|view| view.policy).map_or(0, |policy| policy.restore)
                    )
                }
                (Done::Policy(Setting::Copies(copies)), _) => {
                    self.view.as_ref().map_or_else(String::new, |view| told_of_copies(view, copies))
                }
                (
                    Done::Policy(_)
                    | Done::OneShardMore(_)
                    | Done::Remove(_)
                    | Done::Place(..)
                    | Done::Meet(_)
                    | Done::Begin(_)
                    | Done::Restored(..),
                    _,
                ) => "OK".to_owned(),
            };
            self.orders.0.remove(&ticket);
            self.answer(ticket, Ok(told));
        }
    }

    pub(super) fn go_on_with_orders(&mut self, now: Moment) {
        let tickets: Vec<Ticket> = self.orders.0.keys().copied().collect();
        for ticket in tickets {
            let Some((under, view)) = self.orders.0.get(&ticket).zip(self.view.as_ref()) else { continue };
            let next = match now >= under.deadline {
                true => {
                    let why = self.refusal().map(|why| format!(". {STORE_REFUSES}: {why}"));
                    let why = why.unwrap_or_default();
                    refuse(format!("it took too long and is given up; what was done of it holds{why}"))
                }
                false => self.next(under, view, now),
            };
            let next = match next {
                Next::End(Err(line)) => Next::End(Err(under.refused(line))),
                next => next,
            };
            self.take_step(ticket, next);
        }
    }

    fn take_step(&mut self, ticket: Ticket, next: Next) {
        match next {
            Next::Wait => {}
            Next::Stage(stage) => {
                if let Some(under) = self.orders.0.get_mut(&ticket) {
                    under.stage = stage;
                }
            }
            Next::Promote(id, loss, stage) => {
                if let Some(under) = self.orders.0.get_mut(&ticket) {
                    (under.stage, under.felt) = (stage, Felt::Maybe);
                    self.actions.push(Action::Promote(ticket, id, loss));
                }
            }
            Next::End(answer) => {
                self.orders.0.remove(&ticket);
                self.answer(ticket, answer);
            }
        }
    }

    fn next(&self, under: &Underway, view: &View, now: Moment) -> Next {
        match (&under.order, &under.stage) {
            // Whether it may go is looked at once more just before it does.
            (Order::Remove(id, force), Stage::Ready(Done::Remove(_))) => {
                match self.next_of_removal(view, *id, *force, &Stage::New, now) {
                    Next::Wait => Next::Stage(Stage::New),
                    other => other,
                }
            }
            // So is who is gone.
            (Order::Lose(losing), Stage::Ready(Done::Bury(_, told))) => {
                match self.next_of_losing(view, losing, &Stage::Losing(told.clone()), now) {
                    Next::Wait => Next::Stage(Stage::Losing(told.clone())),
                    other => other,
                }
            }
            (_, Stage::Ready(_) | Stage::Under) => Next::Wait,
            (Order::User(change), _) if let Some(line) = change.why_elsewhere(view) => Next::End(Err(line)),
            (order, Stage::New) if let Some(why) = why_impossible(view, order) => refuse(why),
            (Order::Lose(losing), stage) => self.next_of_losing(view, losing, stage, now),
            (Order::Switch(..), Stage::Switching(shard, node, _)) => match master(view, *shard) {
                Some(master) if master == *node => {
                    Next::End(Ok(format!("node {node} is master of shard {shard}")))
                }
                _ => Next::Wait,
            },
            (Order::Switch(shard, to), stage) => self.next_of_switch(view, *shard, *to, stage, now),
            (Order::Remove(id, _), Stage::Switching(shard, _, since)) => {
                let goes = view.servers.get(id).and_then(|server| server.place).map(|place| place.node);
                // Whoever is master instead of it: then it may go.
                match master(view, *shard) == goes && now.since(*since) < HANDING_OVER {
                    true => Next::Wait,
                    false => Next::Stage(Stage::New),
                }
            }
            (Order::Remove(id, force), stage) => self.next_of_removal(view, *id, *force, stage, now),
            (Order::Place(id, shard), _) => self.next_of_placing(view, *id, *shard, now),
            (Order::Meet(id), _) => next_of_meeting(view, *id),
            (Order::Begin(id), _) => self.next_of_beginning(view, *id, now),
            (Order::AddShard, _) => match view.policy {
                None => Next::Wait,
                Some(policy) if policy.shards >= ShardId::END.0 - 1 => refuse(NO_MORE_SHARDS),
                Some(_) => Next::Stage(Stage::Ready(Done::OneShardMore(None))),
            },
            (Order::BeginRestore, _) => match view.policy {
                None => Next::Wait,
                Some(policy) if policy.restore == 0 => refuse(AWAITS_NO_BACKUP),
                Some(_) => Next::Stage(Stage::Ready(Done::Policy(Setting::NextRestore))),
            },
            (Order::EndRestore(number, brought), _) => match view.policy {
                None => Next::Wait,
                Some(policy) if policy.restore == 0 => refuse(AWAITS_NO_BACKUP),
                Some(policy) if policy.restore != *number => refuse("another restore has begun since"),
                Some(_)
                    if !brought.slots.ranges().all(|(_, owner)| view.begun().any(|begun| begun == owner)) =>
                {
                    refuse("a shard that is to have slots is not there, or has not begun")
                }
                Some(_) => match brought.why_lost(view) {
                    Some(why) => refuse(why),
                    None => Next::Stage(Stage::Ready(Done::Restored(*number, brought.clone()))),
                },
            },
            (Order::User(change), _) => change.next(view, under.felt),
            (Order::Set(name, value), _) => next_of_setting(view, name, value),
        }
    }

    fn next_of_placing(&self, view: &View, id: ServerId, shard: ShardId, now: Moment) -> Next {
        let Some(server) = view.servers.get(&id) else {
            return refuse(format!("there is no server {id}"));
        };
        if !view.shards.contains_key(&shard) {
            return refuse(format!("there is no shard {shard}"));
        }
        if let Some(place) = server.place {
            return match place.shard == shard {
                true => Next::End(Ok("OK".to_owned())),
                false => refuse(format!("server {id} has a place already")),
            };
        }
        if self.silence(id, now) >= SILENT {
            return refuse(format!("server {id} is not heard of"));
        }
        let edition = view.placed_in(shard).values().next().map(|other| other.edition);
        match edition.filter(|edition| *edition != server.edition) {
            Some(edition) => refuse(format!(
                "server {id} is of the {} edition, and shard {shard} of the {} edition",
                server.edition.name(),
                edition.name()
            )),
            None => place(view, id, shard),
        }
    }

    fn next_of_beginning(&self, view: &View, id: ServerId, now: Moment) -> Next {
        let Some(server) = view.servers.get(&id) else { return unknown(view, id) };
        if let Some(place) = server.place {
            let standing = view.shards.get(&place.shard);
            let has_begun_it = match standing {
                Some(Standing::Unbegun(node)) => *node == place.node,
                _ => standing.and_then(Standing::master) == Some(place.node),
            };
            return match has_begun_it {
                true => Next::End(Ok("OK".to_owned())),
                false => refuse(format!("server {id} has a place already")),
            };
        }
        if self.silence(id, now) >= SILENT {
            return refuse(format!("server {id} is not heard of"));
        }
        match (view.policy, view.next_shard()) {
            (None, _) => Next::Wait,
            (Some(_), None) => refuse(NO_MORE_SHARDS),
            (Some(_), Some(_)) => Next::Stage(Stage::Ready(Done::Begin(id))),
        }
    }

    fn next_of_switch(
        &self,
        view: &View,
        shard: ShardId,
        to: Option<ServerId>,
        stage: &Stage,
        now: Moment,
    ) -> Next {
        let Some(Standing::Begun(decision)) = view.shards.get(&shard) else {
            return refuse(format!("there is no shard {shard} that has begun"));
        };
        let placed = view.placed_in(shard);
        let members = decision.members.iter().filter_map(|member| placed.get(&member.node.0));
        let others: Vec<&Server> = members
            .filter(|server| server.place.map(|place| place.node) != Some(decision.master.node.0))
            .copied()
            .collect();
        let chosen = match to {
            None => self.best(&others, now),
            Some(id) => others.iter().find(|server| server.id == id).map(|server| server.id),
        };
        // Who leads since a moment ago has not heard everybody yet.
        if let Some(away) = chosen.filter(|id| self.silence(*id, now) >= SILENT) {
            return refuse(format!("server {away} is not heard of"));
        }
        let place = chosen.and_then(|chosen| view.servers.get(&chosen)?.place);
        match (chosen.zip(place), to) {
            (Some(_), _) if !matches!(stage, Stage::Tried) => Next::Stage(Stage::Ready(Done::Tried)),
            (Some((chosen, place)), _) => {
                Next::Promote(chosen, Loss::Refused, Stage::Switching(place.shard, place.node, now))
            }
            (None, Some(id)) => {
                refuse(format!("server {id} is no member of shard {shard}, or is its master already"))
            }
            (None, None) if others.iter().any(|server| self.silence(server.id, now) < SILENT) => Next::Wait,
            (None, None) => refuse(format!("shard {shard} has no other member that lives")),
        }
    }

    /// Why a master does not go of whose shard no other member lives, and what may be done.
    fn why_needed(&self, id: ServerId, shard: ShardId, now: Moment) -> String {
        match self.lives(id, now) {
            true => format!(
                "server {id} is the only member of shard {shard} that lives: let another server get a copy first, or have the shard go with it (remove-shard {shard})"
            ),
            false => format!(
                "server {id} is master of shard {shard}, and neither it nor another member is heard of: start one; if all are gone for good, promote another server (promote {shard} ID --accept-loss)"
            ),
        }
    }

    /// The one with the most of the log, of those that live.
    fn best(&self, servers: &[&Server], now: Moment) -> Option<ServerId> {
        let living = servers.iter().filter(|server| self.lives(server.id, now));
        let best = living.max_by_key(|server| self.said_number(server.id, "offset").unwrap_or(0));
        best.map(|server| server.id)
    }

    fn next_of_removal(&self, view: &View, id: ServerId, force: Force, stage: &Stage, now: Moment) -> Next {
        if view.removed.contains(&id) {
            return Next::End(Ok("OK".to_owned()));
        }
        let Some(server) = view.servers.get(&id) else {
            return refuse(format!("there is no server {id}"));
        };
        let Some(place) = server.place else { return Next::Stage(Stage::Ready(Done::Remove(id))) };
        let standing = view.shards.get(&place.shard);
        if standing.and_then(Standing::master) == Some(place.node) {
            return match self.next_of_switch(view, place.shard, None, stage, now) {
                Next::End(Err(_)) => refuse(self.why_needed(id, place.shard, now)),
                next => next,
            };
        }
        let members = standing.map(Standing::members).unwrap_or_default();
        let placed = view.placed_in(place.shard);
        let copies = view.policy.map_or(1, |policy| policy.copies as usize);
        let has_enough =
            placed.iter().filter(|(node, _)| members.contains(node) && **node != place.node).count()
                >= copies;
        match (stage, force) {
            (_, Force::Yes) => Next::Stage(Stage::Ready(Done::Remove(id))),
            (_, Force::No) if has_enough => Next::Stage(Stage::Ready(Done::Remove(id))),
            (Stage::Copying(stand_in), Force::No) if view.servers.contains_key(stand_in) => Next::Wait,
            // One that is on its way in is waited for.
            (_, Force::No) if placed.len() > copies => Next::Wait,
            (_, Force::No) => match self.stand_in(view, server, now) {
                Some(spare) => self::place(view, spare, place.shard),
                None => refuse(format!(
                    "shard {} would have fewer than {copies} copies, and no server waits to stand in; add one, or say FORCE",
                    place.shard
                )),
            },
        }
    }
}

/// What has to do with an order and makes no sense in the store.
fn why_impossible(view: &View, order: &Order) -> Option<String> {
    let shard = |shard: &ShardId| view.why_spoilt(&key::shard(*shard));
    let server = |id: &ServerId| view.why_spoilt(&key::server(*id));
    match order {
        // Before a master yields the store is tried with the settings.
        Order::AddShard | Order::Set(..) | Order::BeginRestore => view.why_spoilt(key::POLICY),
        Order::Switch(of, _) => view.why_spoilt(key::POLICY).or_else(|| shard(of)),
        Order::Place(id, of) => server(id).or_else(|| shard(of)),
        Order::Meet(id) => server(id),
        // While nobody is told anything proxies would not hear of it.
        Order::User(change) => view.why_spoilt(&change.key()).or_else(|| view.why_untold()),
        Order::Begin(id) => {
            view.why_spoilt(key::POLICY).or_else(|| server(id)).or_else(|| view.why_no_shard())
        }
        Order::Remove(id, _) => view.why_spoilt(key::POLICY).or_else(|| server(id)).or_else(|| {
            view.servers.get(id).and_then(|server| server.place).and_then(|place| shard(&place.shard))
        }),
        Order::Lose(losing) => server(&losing.heir).or_else(|| shard(&losing.shard)),
        Order::EndRestore(..) => {
            let keys = view.why_spoilt(key::POLICY).or_else(|| view.why_spoilt(key::SLOTS));
            keys.or_else(|| view.why_senseless("shards/"))
        }
    }
}

/// What is answered to who has said how many copies there are to be: what is there goes by itself nowhere.
fn told_of_copies(view: &View, copies: u32) -> String {
    let has_more = |shard: &&ShardId| view.placed_in(**shard).len() as u64 > u64::from(copies);
    match view.shards.keys().find(has_more) {
        None => "OK".to_owned(),
        Some(shard) => format!(
            "OK: no server is removed by that: shard {shard} has {}, and `remove-server ID` has one go",
            view.placed_in(*shard).len()
        ),
    }
}

fn next_of_setting(view: &View, name: &str, value: &str) -> Next {
    match Setting::read(name, value) {
        Ok(Setting::Shards(shards)) if usize::from(shards) < view.shards.len() => refuse(format!(
            "fewer than the shards that there are ({}) cannot be wanted: `remove-shard SHARD` has one go, and its slots to others",
            view.shards.len()
        )),
        Ok(setting) => Next::Stage(Stage::Ready(Done::Policy(setting))),
        Err(why) => refuse(why),
    }
}

fn next_of_meeting(view: &View, id: ServerId) -> Next {
    match view.servers.get(&id) {
        None => unknown(view, id),
        Some(server) if server.place.is_some() || server.is_met => Next::End(Ok("OK".to_owned())),
        Some(_) => Next::Stage(Stage::Ready(Done::Meet(id))),
    }
}

/// Nothing can be done with a server that is not there.
fn unknown(view: &View, id: ServerId) -> Next {
    match view.removed.contains(&id) {
        true => refuse(format!(
            "server {id} was removed from the cluster; it may come back with an empty directory"
        )),
        false => refuse(format!("there is no server {id}")),
    }
}

/// Gives a server a place, if there is a number for it.
pub(super) fn place(view: &View, id: ServerId, shard: ShardId) -> Next {
    match view.next_number(shard) {
        Ok(_) => Next::Stage(Stage::Ready(Done::Place(id, shard))),
        Err(why) => refuse(why),
    }
}

fn master(view: &View, shard: ShardId) -> Option<u32> {
    view.shards.get(&shard).and_then(Standing::master)
}
