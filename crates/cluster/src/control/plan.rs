//! What the leader changes next: one transaction of all that is due.

use super::election::is_vacant;
use super::left_open::Felt;
use super::moves::Followed;
use super::orders::{Done, Next, Restored, Setting};
use super::users::{AT_ONCE, UserChange};
use super::view::{Standing, View, key};
use super::{
    Control, IDLE, Joining, Policy, RETRY, SETTLING, STORE_REFUSES, TRYING, Ticket, as_known, shard_of,
};
use crate::store::{Change, Compare, LeaseId, Outcome, Revision, Write};
use replication::insync::Moment;
use std::collections::{BTreeMap, BTreeSet};
use topology::{Place, Server, ServerId, ShardId, SlotMap};

/// The most writes of one transaction. etcd takes 128 operations.
const WRITES_MAX: usize = 60;
/// The most that is compared for one thing that is done: as much as fits beside what the writes of a whole change compare.
const COMPARES_MAX: usize = 60;

/// A change that is under way.
#[derive(Debug)]
pub enum Work {
    /// Its outcome is not known.
    Asked(Then),
    /// It has made a revision, which was not seen yet. Who is told what follows may ask next, and is answered by what is seen.
    Done(Revision, Then),
}

/// What follows when a change is done.
#[derive(Debug, Default)]
pub struct Then {
    /// Who is told that it has joined.
    joined: Vec<Joining>,
    /// Orders that are carried out.
    orders: Vec<(Ticket, Done)>,
    /// What was said of moves.
    pub moves: Vec<Followed>,
    pub notes: Vec<String>,
}

/// A change in the making, and what the store will hold after it.
pub struct Draft {
    pub after: View,
    prefix: String,
    pub compares: BTreeMap<String, Revision>,
    writes: BTreeMap<String, Option<(String, Option<LeaseId>)>>,
    pub then: Then,
    /// How many users it changes.
    users: usize,
}

impl Draft {
    pub fn is_full(&self) -> bool {
        self.writes.len() >= WRITES_MAX
    }

    /// Whether something has to wait for the next change.
    fn has_no_room_for(&self, done: &Done) -> bool {
        let is_late = match done {
            // It may not fit what is changed of it in this one.
            Done::User(change) => self.users >= AT_ONCE || self.writes.contains_key(&change.key()),
            _ => false,
        };
        is_late || self.is_full()
    }

    pub fn write(&mut self, key: String, value: Option<String>, lease: Option<LeaseId>) {
        self.compares.entry(key.clone()).or_insert(self.after.revision_of(&key));
        self.writes.insert(key, value.map(|value| (value, lease)));
    }

    fn put_server(&mut self, server: Server) {
        self.write(key::server(server.id), Some(server.to_line()), None);
        self.after.set_server(server.id, Some(server));
    }

    /// Removes a server, if its shard's decision is what is known: it may have become the only member meanwhile.
    pub fn remove_server(&mut self, id: ServerId) {
        if let Some(shard) = self.after.servers.get(&id).and_then(shard_of) {
            let decision = key::shard(shard);
            self.compares.entry(decision.clone()).or_insert(self.after.revision_of(&decision));
        }
        self.write(key::server(id), None, None);
        self.write(key::removed(id), Some("removed".to_owned()), None);
        self.after.set_server(id, None);
        self.after.removed.insert(id);
    }

    fn put_shard(&mut self, shard: ShardId, standing: Standing) {
        self.write(key::shard(shard), Some(standing.to_line()), None);
        self.after.shards.insert(shard, standing);
    }

    /// Gives a server a place with a number that nobody had.
    fn place(&mut self, id: ServerId, shard: ShardId) -> Option<u32> {
        let node = self.after.next_number(shard).ok()?;
        let server = self.after.servers.get(&id)?.clone();
        self.write(key::number(shard), Some(node.to_string()), None);
        self.after.numbers.insert(shard, node);
        self.put_server(Server { place: Some(Place { shard, node }), is_met: false, ..server });
        self.then.notes.push(format!("Server {id} is node {node} of shard {shard}"));
        Some(node)
    }

    /// Who speaks Redis Cluster is told of a server that waits for a place.
    fn meet(&mut self, id: ServerId) {
        if let Some(server) = self.after.servers.get(&id).filter(|server| server.place.is_none()).cloned() {
            self.put_server(Server { is_met: true, ..server });
        }
    }

    /// Has a server that waits for a place begin a shard, by itself at first. False: it cannot.
    fn begin_with(&mut self, id: ServerId) -> bool {
        let waits = self.after.servers.get(&id).is_some_and(|server| server.place.is_none());
        let Some(policy) = self.after.policy.filter(|_| waits) else { return false };
        let Some(shard) = self.after.next_shard() else { return false };
        let Some(node) = self.place(id, shard) else { return false };
        self.put_shard(shard, Standing::Unbegun(node));
        // It is one of those that are wanted, if some are missing.
        let shards = u16::try_from(self.after.shards.len()).unwrap_or(u16::MAX);
        if shards > policy.shards {
            let policy = Policy { shards, ..policy };
            self.write(key::POLICY.to_owned(), Some(policy.to_line()), None);
            self.after.policy = Some(policy);
        }
        true
    }

    /// A backup is restored by whom has that number: slots have these owners. False: they have some already, or another restores.
    fn restore(&mut self, number: u64, slots: &SlotMap, epochs: &BTreeMap<ShardId, u64>) -> bool {
        let policy = self.after.policy.filter(|policy| policy.restore == number);
        let Some(policy) = policy.filter(|_| self.after.slots.count() == 0) else { return false };
        // As they were looked at, so that nobody consents to a loss in between; as far as one change compares so many.
        for shard in epochs.keys().take(COMPARES_MAX).map(|shard| key::shard(*shard)) {
            let revision = self.after.revision_of(&shard);
            self.compares.entry(shard).or_insert(revision);
        }
        let policy = Policy { restore: 0, ..policy };
        self.write(key::POLICY.to_owned(), Some(policy.to_line()), None);
        self.write(key::SLOTS.to_owned(), Some(slots.to_line()), None);
        (self.after.policy, self.after.slots) = (Some(policy), slots.clone());
        self.then.notes.push("A backup is restored: its slots have owners".to_owned());
        true
    }

    /// A user of proxies is another, or goes.
    fn change_user(&mut self, change: &UserChange) {
        self.write(change.key(), change.line.clone(), None);
        if change.line.is_none() {
            self.write(key::USER_GONE.to_owned(), Some(change.name.clone()), None);
        }
        self.after.users.take(&change.name, change.line.as_deref());
        self.users += 1;
    }

    /// Has the change be one of the store in any case, if nothing else is.
    fn write_policy_again(&mut self) {
        if let Some(policy) = self.after.policy {
            self.write(key::POLICY.to_owned(), Some(policy.to_line()), None);
        }
    }

    fn change(&self) -> Change {
        let is_kept = |name: &String| !self.after.is_senseless(name);
        debug_assert!(self.writes.keys().all(is_kept), "what makes no sense is not written over");
        let key = |name: &String| format!("{}{name}", self.prefix);
        let compares =
            self.compares.iter().map(|(name, revision)| Compare { key: key(name), revision: *revision });
        let writes = self.writes.iter().map(|(name, write)| match write {
            Some((value, lease)) => Write::Put { key: key(name), value: value.clone(), lease: *lease },
            None => Write::Delete { key: key(name) },
        });
        Change { compares: compares.collect(), writes: writes.collect() }
    }
}

/// The place of a server that is there.
fn place_of(view: &View, id: ServerId) -> Option<Option<Place>> {
    view.servers.get(&id).map(|server| server.place)
}

impl Control {
    /// Begins the change that is due, if there is one.
    pub(super) fn begin_work(&mut self, now: Moment) {
        let Some(view) = &self.view else { return };
        let mut draft = Draft {
            after: view.clone(),
            prefix: self.options.prefix.clone(),
            compares: BTreeMap::new(),
            writes: BTreeMap::new(),
            then: Then::default(),
            users: 0,
        };
        if view.is_senseless(key::CLUSTER) {
            // Whose keys these are is not known.
        } else if view.cluster.is_empty() {
            draft.write(key::CLUSTER.to_owned(), Some(self.options.cluster.clone()), None);
        } else if let Some(revision) = self.election.revision() {
            draft.compares.insert(key::LEADER.to_owned(), revision);
            self.plan(&mut draft, now);
            let is_refused = |refusal: &super::Refusal| now.since(refusal.at) >= TRYING;
            if draft.writes.is_empty() && self.refusal.as_ref().is_some_and(is_refused) {
                draft.write_policy_again();
            }
        } else if let Some(lease) = self.election.lease()
            && is_vacant(view)
        {
            draft.write(key::LEADER.to_owned(), Some(self.options.own.to_line()), Some(lease));
        }
        if draft.writes.is_empty() {
            self.not_before = now.plus(IDLE);
            return;
        }
        self.actions.push(super::Action::Change(draft.change()));
        self.work = Some(Work::Asked(draft.then));
    }

    fn plan(&mut self, draft: &mut Draft, now: Moment) {
        if draft.after.policy.is_none() && !draft.after.is_senseless(key::POLICY) {
            draft.write(key::POLICY.to_owned(), Some(self.options.policy.to_line()), None);
            draft.after.policy = Some(self.options.policy);
        }
        // Clients wait for slots that switch.
        self.plan_moves(draft, now);
        while !self.joining.is_empty() && !draft.is_full() {
            let joining = self.joining.remove(0);
            // It may have been removed while it waited for this.
            if draft.after.removed.contains(&joining.server.id) {
                self.answer(joining.ticket, Err(super::REMOVED.to_owned()));
                continue;
            }
            if let Some(why) = draft.after.why_spoilt(&key::server(joining.server.id)) {
                self.answer(joining.ticket, Err(format!("UNAVAILABLE {why}")));
                continue;
            }
            let known = draft.after.servers.get(&joining.server.id);
            let server = as_known(joining.server.clone(), known);
            draft.put_server(server);
            draft.then.joined.push(joining);
        }
        self.plan_orders(draft);
        self.forget_spares(draft, now);
        self.plan_beginners(draft, now);
        self.plan_copies(draft, now);
        self.plan_shards(draft, now);
        plan_slots(draft);
        self.plan_balance(draft, now);
    }

    /// What operators want and can be done at once.
    fn plan_orders(&mut self, draft: &mut Draft) {
        for (ticket, mut done) in self.orders.take_ready() {
            if draft.has_no_room_for(&done) {
                self.orders.put_back(ticket, done);
                continue;
            }
            // Why not is told when it is looked at anew.
            if self.is_outdated(draft, &done) {
                self.orders.reconsider(ticket);
                continue;
            }
            match &mut done {
                // Who is told a number is the only one who is.
                Done::Policy(Setting::NextRestore)
                    if draft
                        .then
                        .orders
                        .iter()
                        .any(|(_, done)| *done == Done::Policy(Setting::NextRestore)) =>
                {
                    self.orders.put_back(ticket, done);
                    continue;
                }
                Done::Policy(setting) => {
                    let policy = setting.put_to(draft.after.policy.unwrap_or(self.options.policy));
                    draft.write(key::POLICY.to_owned(), Some(policy.to_line()), None);
                    draft.after.policy = Some(policy);
                }
                Done::OneShardMore(number) => {
                    if !self.want_one_more(draft, number) {
                        self.conclude(vec![(ticket, done)]);
                        continue;
                    }
                }
                Done::Tried => draft.write_policy_again(),
                Done::Remove(id) => draft.remove_server(*id),
                Done::Restored(number, Restored { slots, epochs }) => {
                    if !draft.restore(*number, slots, epochs) {
                        self.orders.reconsider(ticket);
                        continue;
                    }
                }
                Done::Place(id, shard) => drop(draft.place(*id, *shard)),
                Done::Meet(id) => draft.meet(*id),
                Done::Begin(id) => {
                    if draft.after.why_no_shard().is_some() || !draft.begin_with(*id) {
                        self.orders.reconsider(ticket);
                        continue;
                    }
                }
                Done::User(change) => draft.change_user(change),
                Done::Bury(gone, told) => {
                    gone.iter().for_each(|id| draft.remove_server(*id));
                    draft.then.notes.push(told.clone());
                }
            }
            draft.then.orders.push((ticket, done));
        }
    }

    /// Wants one shard more than there were to be when this was drafted first; false: so it is.
    fn want_one_more(&self, draft: &mut Draft, number: &mut Option<u16>) -> bool {
        let policy = draft.after.policy.unwrap_or(self.options.policy);
        // More than are wanted may be there.
        let there = u16::try_from(draft.after.shards.len()).unwrap_or(u16::MAX);
        let wanted = policy.shards.max(there).saturating_add(1);
        let shards = *number.get_or_insert(wanted.min(ShardId::END.0 - 1));
        let known = self.view.as_ref().and_then(|view| view.policy);
        if known.is_some_and(|known| known.shards >= shards) {
            return false;
        }
        let policy = Policy { shards: policy.shards.max(shards), ..policy };
        draft.write(key::POLICY.to_owned(), Some(policy.to_line()), None);
        draft.after.policy = Some(policy);
        true
    }

    /// Whether an order was looked at before something in the same change that it does not fit.
    fn is_outdated(&self, draft: &Draft, done: &Done) -> bool {
        let after = &draft.after;
        match done {
            Done::Policy(Setting::Shards(shards)) if usize::from(*shards) < after.shards.len() => true,
            Done::Policy(_) | Done::OneShardMore(_) | Done::Tried => after.policy.is_none(),
            Done::Restored(_, brought) => {
                after.policy.is_none() || after.is_senseless(key::SLOTS) || brought.why_lost(after).is_some()
            }
            // Whether its shard has enough copies without it was counted with those that were there.
            Done::Remove(id) => {
                let now = place_of(after, *id);
                let Some(view) = &self.view else { return true };
                let has_lost =
                    |place: Place| after.placed_in(place.shard).len() < view.placed_in(place.shard).len();
                place_of(view, *id) != now || now.flatten().is_some_and(has_lost)
            }
            // The shard may go, and the server may have got another place.
            Done::Place(id, shard) => {
                !after.shards.contains_key(shard)
                    || after.next_number(*shard).is_err()
                    || place_of(after, *id) != Some(None)
            }
            Done::User(change) => {
                after.is_senseless(&change.key()) || !matches!(change.next(after, Felt::No), Next::Stage(_))
            }
            Done::Meet(_) | Done::Begin(_) | Done::Bury(..) => false,
        }
    }

    /// A spare that was away for too long has nothing that anybody needs: it may come back whenever it wants, and until then nobody looks for it.
    fn forget_spares(&self, draft: &mut Draft, now: Moment) {
        let Some(policy) = draft.after.policy else { return };
        let spares = draft.after.servers.values().filter(|server| server.place.is_none());
        let gone = spares.map(|server| server.id).filter(|id| self.is_gone(*id, policy, now));
        for id in gone.collect::<Vec<_>>() {
            if draft.is_full() {
                return;
            }
            draft.write(key::server(id), None, None);
            draft.after.set_server(id, None);
            draft.then.notes.push(format!(
                "Server {id}, which waited for a place, was away for too long and is forgotten"
            ));
        }
    }

    /// A shard whose beginner is gone before it has begun is begun by another.
    fn plan_beginners(&self, draft: &mut Draft, now: Moment) {
        if draft.after.why_senseless("servers/").is_some() {
            return;
        }
        let unbegun: Vec<(ShardId, u32)> = draft
            .after
            .shards
            .iter()
            .filter_map(|(id, standing)| match standing {
                Standing::Unbegun(node) => Some((*id, *node)),
                Standing::Begun(_) => None,
            })
            .collect();
        for (shard, beginner) in unbegun {
            let placed = draft.after.placed_in(shard);
            let is_there = placed.get(&beginner).is_some_and(|server| {
                let is_gone = |policy: Policy| self.is_gone(server.id, policy, now);
                !draft.after.policy.is_some_and(is_gone)
            });
            let other = placed.iter().find(|(_, server)| self.lives(server.id, now)).map(|(node, _)| *node);
            if let Some(other) = other.filter(|_| !is_there && !draft.is_full()) {
                draft.put_shard(shard, Standing::Unbegun(other));
            }
        }
    }

    /// Whether a server was away for so long that another may have its part.
    fn is_gone(&self, id: ServerId, policy: Policy, now: Moment) -> bool {
        !self.lives(id, now) && self.silence(id, now) > policy.replace_after
    }

    /// Servers that wait for a place and live, by their addresses.
    fn spares<'v>(&self, view: &'v View, now: Moment) -> Vec<&'v Server> {
        let mut spares: Vec<&Server> = view
            .servers
            .values()
            .filter(|server| server.place.is_none() && self.lives(server.id, now))
            .collect();
        // Who was met may be meant for a shard of its own.
        spares.sort_by(|a, b| (a.is_met, &a.host, a.port, a.id).cmp(&(b.is_met, &b.host, b.port, b.id)));
        spares
    }

    /// Shards that have too few servers, or have lost one for long, get spares.
    fn plan_copies(&self, draft: &mut Draft, now: Moment) {
        let Some(policy) = draft.after.policy else { return };
        // One whose record cannot be read may have a place in any.
        if draft.after.why_senseless("servers/").is_some() {
            return;
        }
        let shards: Vec<ShardId> = draft.after.shards.keys().copied().collect();
        for shard in shards {
            if draft.is_full() {
                return;
            }
            let standing = draft.after.shards.get(&shard).cloned();
            let members = standing.map(|standing| standing.members()).unwrap_or_default();
            let placed = draft.after.placed_in(shard);
            let edition = placed.values().next().map(|server| server.edition);
            // Who is a member may be the only one that has what was acknowledged.
            let lost = placed
                .iter()
                .find(|(node, server)| !members.contains(node) && self.is_gone(server.id, policy, now));
            let lost = lost.map(|(_, server)| server.id);
            let is_short = (placed.len() as u64) < u64::from(policy.copies);
            if !is_short && lost.is_none() {
                continue;
            }
            let zones: BTreeSet<&str> =
                placed.values().filter(|server| Some(server.id) != lost).map(|server| zone(server)).collect();
            // Who was met is meant for a shard of its own, or for one that is named: another gets it only in the place of a server that is lost.
            let ever = draft.after.numbers.get(&shard).copied().unwrap_or_default();
            let takes_met = lost.is_some() || u64::from(ever) > placed.len() as u64;
            let spares = self.spares(&draft.after, now);
            let fitting = spares
                .iter()
                .filter(|spare| edition.is_none_or(|edition| edition == spare.edition))
                .filter(|spare| takes_met || !spare.is_met);
            let chosen = fitting.min_by_key(|spare| zones.contains(zone(spare))).map(|spare| spare.id);
            if let Some(chosen) = chosen
                && draft.place(chosen, shard).is_some()
                && let Some(lost) = lost.filter(|_| !is_short)
            {
                draft.remove_server(lost);
                draft.then.notes.push(format!(
                    "Server {lost} of shard {shard} was away for too long and is removed from the cluster"
                ));
            }
        }
    }

    /// New shards, as many as are wanted and there are servers for.
    fn plan_shards(&self, draft: &mut Draft, now: Moment) {
        let Some(policy) = draft.after.policy else { return };
        if draft.after.why_no_shard().is_some() {
            return;
        }
        while draft.after.shards.len() < usize::from(policy.shards) && !draft.is_full() {
            let spares = self.spares(&draft.after, now);
            let is_settled = spares
                .iter()
                .all(|spare| self.waiting.get(&spare.id).is_some_and(|since| now.since(*since) >= SETTLING));
            let Some(chosen) = choose(&spares, policy.copies as usize, is_settled) else { return };
            let Some(shard) = draft.after.next_shard() else { return };
            for (at, id) in chosen.into_iter().enumerate() {
                let node = draft.place(id, shard);
                if let Some(node) = node.filter(|_| at == 0) {
                    draft.put_shard(shard, Standing::Unbegun(node));
                }
            }
        }
    }

    /// Tells what follows from a change that is seen, and has another be thought of.
    pub(super) fn tell_what_is_seen(&mut self) {
        let seen = self.view.as_ref().map(|view| view.revision).unwrap_or_default();
        if let Some(Work::Done(_, then)) =
            self.work.take_if(|work| matches!(work, Work::Done(revision, _) if *revision <= seen))
        {
            self.tell(then);
        }
    }

    /// The same for one of which it will not be seen any more who sees to it.
    pub(super) fn tell_what_is_done(&mut self) {
        if let Some(Work::Done(_, then)) = self.work.take_if(|work| matches!(work, Work::Done(..))) {
            self.tell(then);
        }
    }

    /// Answers whoever waits for a change that is under way, of which nobody here will hear what has become.
    pub(super) fn leave_open(&mut self) {
        if let Some(Work::Asked(then)) = self.work.take_if(|work| matches!(work, Work::Asked(_))) {
            self.ask_again(then.moves, true);
        }
    }

    fn tell(&mut self, then: Then) {
        let cluster = self.view.as_ref().map(|view| view.cluster.clone()).unwrap_or_default();
        for joined in then.joined {
            self.answer(joined.ticket, Ok(format!("id {cluster}")));
        }
        self.conclude(then.orders);
        self.follow_requests(then.moves);
    }

    /// Takes what has become of the change that is under way.
    pub(super) fn answered(&mut self, outcome: Outcome, now: Moment) {
        let Some(Work::Asked(then)) = self.work.take() else { return };
        match outcome {
            Outcome::Done(revision) => {
                self.store_takes_changes();
                for note in &then.notes {
                    self.note(note.clone());
                }
                self.work = Some(Work::Done(revision, Then { notes: Vec::new(), ..then }));
                self.tell_what_is_seen();
            }
            Outcome::Conflict | Outcome::Unknown(_) | Outcome::Unreached(_) => {
                // What it was about is thought of anew, by what is known then.
                self.not_before = now.plus(RETRY);
                let may_be_done = matches!(outcome, Outcome::Unknown(_));
                match outcome {
                    Outcome::Unknown(why) | Outcome::Unreached(why) => {
                        // They ask again as long as they want to join.
                        for joined in then.joined {
                            let line = format!("UNAVAILABLE {STORE_REFUSES}: {why}");
                            self.answer(joined.ticket, Err(line));
                        }
                        self.store_refuses(why, now);
                    }
                    _ => {
                        self.store_takes_changes();
                        self.joining.extend(then.joined);
                    }
                }
                self.ask_again(then.moves, may_be_done);
                for (ticket, done) in then.orders {
                    if may_be_done {
                        self.orders.may_be_done(ticket, &done);
                    }
                    self.orders.put_back(ticket, done);
                }
            }
        }
    }
}

/// Whether slots were given and cannot be read, or are gone: that is an operator's matter, since servers delete what is said to be another's.
pub(super) fn have_lost_slots(view: &View) -> bool {
    // What is said to be nobody's may be that of a shard which cannot be read.
    if view.is_senseless(key::SLOTS) || view.why_senseless("shards/").is_some() {
        return true;
    }
    view.slots.count() == 0 && (view.last_move > 0 || view.revision_of(key::SLOTS) != Revision::default())
}

/// Gives slots that nobody has to the shards, once all that are wanted have begun; not where a backup is to be restored, which says who has them.
fn plan_slots(draft: &mut Draft) {
    let Some(policy) = draft.after.policy else { return };
    let begun: Vec<ShardId> = draft.after.begun().collect();
    let has_all = begun.len() == draft.after.shards.len() && begun.len() >= usize::from(policy.shards);
    if policy.restore != 0 || begun.is_empty() || !has_all || draft.after.slots.count() == wire::SLOTS {
        return;
    }
    if have_lost_slots(&draft.after) {
        return;
    }
    let slots = if draft.after.slots.count() == 0 {
        SlotMap::even(&begun)
    } else {
        let mut slots = draft.after.slots.clone();
        let mut counts: BTreeMap<ShardId, usize> =
            begun.iter().map(|shard| (*shard, slots.count_of(*shard))).collect();
        for slot in 0..u16::try_from(wire::SLOTS).unwrap_or(u16::MAX) {
            if slots.owner(slot).is_none()
                && let Some((shard, count)) = counts.iter_mut().min_by_key(|(_, count)| **count)
            {
                slots.set(slot, Some(*shard));
                *count += 1;
            }
        }
        slots
    };
    draft.then.notes.push(format!("{} shards have all slots", begun.len()));
    draft.write(key::SLOTS.to_owned(), Some(slots.to_line()), None);
    draft.after.slots = slots;
}

/// What copies of a shard are to be kept apart by.
pub(super) fn zone(server: &Server) -> &str {
    if server.zone.is_empty() { &server.host } else { &server.zone }
}

/// Servers of one edition for a new shard, each in another zone if that is possible. If it is not, none unless nobody else is to be expected.
fn choose(spares: &[&Server], count: usize, is_settled: bool) -> Option<Vec<ServerId>> {
    let mut editions: Vec<_> = spares.iter().map(|spare| spare.edition).collect();
    editions.dedup();
    editions.into_iter().find_map(|edition| {
        let mut left: Vec<&Server> =
            spares.iter().filter(|spare| spare.edition == edition).copied().collect();
        if left.len() < count {
            return None;
        }
        let (mut chosen, mut used) = (Vec::new(), BTreeSet::new());
        let mut sizes: BTreeMap<&str, usize> = BTreeMap::new();
        for spare in &left {
            *sizes.entry(zone(spare)).or_default() += 1;
        }
        while chosen.len() < count {
            // From the zone with most, so that the last ones are not all in one.
            let best = (0..left.len()).min_by_key(|at| {
                let of = zone(left[*at]);
                (used.contains(of), std::cmp::Reverse(sizes.get(of).copied()))
            })?;
            let server = left.remove(best);
            *sizes.entry(zone(server)).or_default() -= 1;
            if !used.insert(zone(server)) && !is_settled {
                return None;
            }
            chosen.push(server.id);
        }
        Some(chosen)
    })
}

impl Control {
    /// The spare that could stand in for a server of a shard.
    pub(super) fn stand_in(&self, view: &View, for_whom: &Server, now: Moment) -> Option<ServerId> {
        let spares = self.spares(view, now);
        let shard = shard_of(for_whom)?;
        let zones: BTreeSet<&str> = view
            .placed_in(shard)
            .values()
            .filter(|server| server.id != for_whom.id)
            .map(|server| zone(server))
            .collect();
        let fitting = spares.iter().filter(|spare| spare.edition == for_whom.edition);
        fitting.min_by_key(|spare| zones.contains(zone(spare))).map(|spare| spare.id)
    }
}
