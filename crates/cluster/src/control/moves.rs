//! Slots on their way from one shard to another: what operators and masters say of moves, and what becomes of it.
//!
//! Whatever is said waits in a queue until the next change of the store is made, and is looked at by what is known then. If that change comes to nothing it is looked at anew.
//! So each answer says what is so. A word about an attempt that is over changes nothing.

use super::emptying;
use super::left_open::{Again, Felt};
use super::plan::Draft;
use super::rebalance::{self, Load, Measure};
use super::view::{Standing, View, key};
use super::{Control, SILENT, Ticket, senseless};
use crate::store::Changed;
use replication::insync::Moment;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use topology::{Move, ServerId, ShardId, SlotRange, Stage};

/// A move that comes to nothing so often has failed.
pub const ATTEMPTS_MAX: u32 = 10;
/// How long the second attempt waits. Each later one waits twice as long as the one before,
pub(super) const PAUSE: Duration = Duration::from_millis(100);
/// and this at most: it is longer than a shard needs for another master.
pub(super) const PAUSE_MAX: Duration = Duration::from_secs(10);
/// What is answered where no slot is to go anywhere.
const NOTHING: &str = "nothing is to be moved";
/// So many moves that have failed are remembered, the last ones.
const FAILED_MAX: usize = 100;
/// And so many that are over: whoever has ordered one may look a moment too late.
const OVER_MAX: usize = 100;
/// The most letters of a reason.
const REASON_LETTERS_MAX: usize = 300;

/// Slots that are to go to a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shift {
    /// The shard that all of them have to be of; None: whosever they are.
    pub from: Option<ShardId>,
    /// The shard that gets them.
    pub to: ShardId,
    /// Which.
    pub slots: Vec<SlotRange>,
}

/// What is said of moves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Slots are to go.
    Begin {
        /// Which, and where.
        shifts: Vec<Shift>,
        /// The moves that were written down for it already.
        begun: BTreeSet<u64>,
    },
    /// A move is to end without any change; one that has failed is forgotten.
    Cancel(u64),
    /// Slots are to go from shards that have more than their part to those that have less.
    Rebalance {
        /// More of what.
        by: Measure,
        /// Whether it is only told what would be done.
        is_dry: bool,
    },
    /// A shard is to go, when its slots have gone to others.
    RemoveShard(ShardId),
    /// A server is to go with its shard, of which it is the only one, and which has no slots.
    RemoveShardOf(ServerId),
    /// A master says how its move goes.
    Said {
        /// Which move.
        id: u64,
        /// Which attempt at it.
        attempt: u32,
        /// What it says.
        word: Word,
    },
}

/// How a move goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// All but the last bit is copied.
    CaughtUp(Epochs),
    /// The slots' requests are held back, and all that they have done is committed by both shards.
    Ready(Epochs),
    /// The attempt has come to nothing, for this reason, and so would all others.
    FailedForGood(String),
    /// The attempt has come to nothing, for this reason.
    Failed(String),
    /// How far it is: `key=value` words.
    Progress(String),
}

/// Under which masters something was said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epochs {
    /// That of the shard that has the slots.
    pub from: u64,
    /// That of the shard that gets them.
    pub to: u64,
}

/// The moves that a change of the store takes away.
pub(super) fn taken_away(view: &View, changed: &[Changed], prefix: &str) -> Vec<Move> {
    let gone = changed.iter().filter(|one| one.value.is_none());
    let ids =
        gone.filter_map(|one| one.key.strip_prefix(prefix)?.strip_prefix("moves/")?.parse::<u64>().ok());
    ids.filter_map(|id| view.moves.get(&id).cloned()).collect()
}

/// A request that waits to be looked at.
#[derive(Clone, Debug)]
struct Asked {
    ticket: Ticket,
    request: Request,
    /// Whether it was looked at before, and may have been carried out then, or in part.
    felt: Felt,
}

/// What is known of moves beside the store.
#[derive(Debug, Default)]
pub struct Moves {
    asked: Vec<Asked>,
    /// By move: the attempt, and how far it is.
    progress: BTreeMap<u64, (u32, String)>,
    /// By move that is switching: the attempt, and the epochs under which it began to.
    switching: BTreeMap<u64, (u32, Epochs)>,
    /// By move that waits: the attempt, and since when.
    waiting: BTreeMap<u64, (u32, Moment)>,
    /// By move: the last attempt that came to nothing as long as this one leads, and why.
    failures: BTreeMap<u64, (u32, String)>,
    /// The last moves that were seen to go, and whether their slots had come to where they were to be.
    over: VecDeque<(u64, bool)>,
}

impl Moves {
    /// Gives what is answered where something may have been done; None: nothing was. Masters say again what they have said, until it is over.
    pub fn give_up(&mut self) -> Vec<(Ticket, Option<String>)> {
        let answer = |one: Asked| {
            let left_open = match one.request {
                Request::Said { .. } => None,
                _ => one.felt.left_open("what was ordered", Again::AsItIs),
            };
            (one.ticket, left_open)
        };
        std::mem::take(&mut self.asked).into_iter().map(answer).collect()
    }

    /// What has become of a move that is not there any more; None: nobody here has seen it go.
    fn has_come(&self, id: u64) -> Option<bool> {
        self.over.iter().rev().find(|(over, _)| *over == id).map(|(_, has_come)| *has_come)
    }

    /// The last moves that are not there any more, and whether each was done, or given up.
    pub fn over(&self) -> impl Iterator<Item = (u64, bool)> {
        self.over.iter().copied()
    }

    /// These have just gone.
    pub(super) fn are_over(&mut self, ended: Vec<Move>, after: &View) {
        for one in ended.into_iter().filter(|one| !after.moves.contains_key(&one.id)) {
            let mut slots = one.each_slot();
            let has_come = is_unfinished(&one) && slots.all(|slot| after.slots.owner(slot) == Some(one.to));
            self.over.push_back((one.id, has_come));
        }
        let too_many = self.over.len().saturating_sub(OVER_MAX);
        self.over.drain(..too_many);
    }

    /// How far an attempt is, in the words of its master; empty: nothing was said yet.
    pub fn progress(&self, one: &Move) -> &str {
        self.progress.get(&one.id).filter(|(attempt, _)| *attempt == one.attempt).map_or("", |(_, said)| said)
    }

    /// Since when an attempt waits.
    pub(super) fn waits_since(&mut self, one: &Move, now: Moment) -> Moment {
        self.waiting.entry(one.id).or_insert((one.attempt, now)).1
    }

    /// That an attempt at a move has come to nothing, and why, if that was seen here; None: it is the first.
    pub fn last_failure(&self, one: &Move) -> Option<String> {
        let last = one.attempt.checked_sub(1).filter(|last| *last > 0 && is_unfinished(one))?;
        Some(match self.failures.get(&one.id) {
            Some((attempt, why)) => format!("attempt {attempt} came to nothing: {why}"),
            None => format!("attempt {last} came to nothing"),
        })
    }

    fn forget_what_is_over(&mut self, moves: &BTreeMap<u64, Move>) {
        let stage =
            |id: &u64, attempt: u32| moves.get(id).filter(|one| one.attempt == attempt).map(|one| &one.stage);
        self.progress.retain(|id, _| moves.contains_key(id));
        self.failures.retain(|id, _| moves.contains_key(id));
        // One that begins to switch is written down a moment after it was said.
        self.switching.retain(|id, (attempt, _)| {
            matches!(stage(id, *attempt), Some(Stage::Copying | Stage::Switching))
        });
        self.waiting.retain(|id, (attempt, _)| stage(id, *attempt) == Some(&Stage::Waiting));
    }
}

/// What follows from a request when a change is done.
#[derive(Debug)]
pub struct Followed {
    ticket: Ticket,
    request: Request,
    then: Following,
    felt: Felt,
}

#[derive(Debug)]
pub(super) enum Following {
    Answer(String),
    Refuse(String),
    /// There was no room for all of it.
    Go(Request),
}

/// What becomes of a request.
pub(super) enum Step {
    /// Nothing is changed.
    Answer(Result<String, String>),
    /// It is in the change.
    Follow(Following),
}

pub(super) fn refuse(text: impl std::fmt::Display) -> Step {
    Step::Answer(Err(format!("ERR {text}")))
}

fn over(id: u64, attempt: u32) -> String {
    format!("NOMOVE attempt {attempt} at move {id} is over; the topology says what is so")
}

fn is_over(id: u64, attempt: u32) -> Step {
    Step::Answer(Err(over(id, attempt)))
}

fn not_seen(what: impl std::fmt::Display) -> Step {
    Step::Answer(Err(format!("UNREACHED this config server has not seen {what} yet; ask again")))
}

impl Control {
    /// What masters have said of moves, and what waits.
    pub(super) fn moves(&self) -> &Moves {
        &self.moves
    }

    pub(super) fn asks_of_moves(&mut self, ticket: Ticket, request: Request, now: Moment) {
        if !self.leads() {
            return self.refuse_to_lead(ticket);
        }
        if let Request::Said { id, attempt, word: Word::Progress(figures) } = request {
            self.moves.progress.insert(id, (attempt, figures));
            let rate = self.view().and_then(|view| view.policy).map_or(0, |policy| policy.move_rate);
            return self.answer(ticket, Ok(format!("rate {rate}")));
        }
        self.moves.asked.push(Asked { ticket, request, felt: Felt::No });
        self.not_before = now;
    }

    /// What follows from requests whose change is done.
    pub(super) fn follow_requests(&mut self, followed: Vec<Followed>) {
        for Followed { ticket, then, .. } in followed {
            match then {
                Following::Answer(text) => self.answer(ticket, Ok(text)),
                Following::Refuse(text) => self.answer(ticket, Err(text)),
                Following::Go(request) => self.moves.asked.push(Asked { ticket, request, felt: Felt::Maybe }),
            }
        }
    }

    /// Their change has come to nothing, or may have.
    pub(super) fn ask_again(&mut self, followed: Vec<Followed>, may_be_done: bool) {
        self.moves.asked.extend(followed.into_iter().map(|one| Asked {
            ticket: one.ticket,
            request: one.request,
            felt: one.felt.or(may_be_done),
        }));
    }

    /// What was said of moves, and what is due by itself.
    pub(super) fn plan_moves(&mut self, draft: &mut Draft, now: Moment) {
        self.moves.forget_what_is_over(&draft.after.moves);
        for asked in std::mem::take(&mut self.moves.asked) {
            if draft.is_full() {
                self.moves.asked.push(asked);
                continue;
            }
            let Asked { ticket, request, felt } = asked;
            match self.look_at(draft, request.clone(), now) {
                Step::Answer(answer) => self.answer(ticket, answer),
                Step::Follow(then) => draft.then.moves.push(Followed { ticket, request, then, felt }),
            }
        }
        draft.bound_failed();
        let unfinished = draft.after.moves.values().filter(|one| is_unfinished(one));
        for one in unfinished.cloned().collect::<Vec<_>>() {
            if draft.is_full() {
                return;
            }
            if draft.after.why_stands_still(&one).is_some() {
                continue;
            }
            if let Some(why) = why_impossible(&draft.after, &one) {
                draft.fail_move(one, &why);
            } else if one.stage == Stage::Switching {
                self.plan_switching(draft, one, now);
            } else if one.stage == Stage::Waiting {
                self.plan_waiting(draft, one, now);
            }
        }
    }

    /// Whoever was to say that it is ready is master no more, or is not heard of: requests to the slots, and those that change whole databases at either
    /// shard, wait for it.
    fn plan_switching(&mut self, draft: &mut Draft, one: Move, now: Moment) {
        let Some(epochs) = epochs(&draft.after, &one) else { return };
        // A leader that has just begun goes by what it finds.
        let (_, begun) = *self.moves.switching.entry(one.id).or_insert((one.attempt, epochs));
        let is_silent = |shard: ShardId| {
            let master = draft.after.master_of(shard);
            master.is_none_or(|master| self.silence(master.id, now) >= SILENT)
        };
        if begun != epochs {
            self.try_again(draft, one, "another became master of one of the shards");
        } else if let Some(shard) = [one.from, one.to].into_iter().find(|shard| is_silent(*shard)) {
            self.try_again(draft, one, &format!("shard {shard} has no master that is heard of"));
        }
    }

    pub(super) fn moves_mut(&mut self) -> &mut Moves {
        &mut self.moves
    }

    fn try_again(&mut self, draft: &mut Draft, one: Move, why: &str) {
        let shown: String = why.chars().take(REASON_LETTERS_MAX).collect();
        self.moves.failures.insert(one.id, (one.attempt, shown));
        draft.try_move_again(one, why);
    }

    /// Whether a shard has a master, and that was heard of lately.
    pub(super) fn has_living_master(&self, view: &View, shard: ShardId, now: Moment) -> bool {
        view.master_of(shard).is_some_and(|master| self.lives(master.id, now))
    }

    fn look_at(&mut self, draft: &mut Draft, request: Request, now: Moment) -> Step {
        match request {
            Request::Begin { shifts, begun } => begin(draft, shifts, begun),
            Request::Cancel(id) if draft.after.is_senseless(&key::moving(id)) => {
                refuse(senseless::mend(&key::moving(id)))
            }
            Request::Cancel(id) if draft.after.moves.contains_key(&id) => {
                draft.end_move(id);
                draft.then.notes.push(format!("Move {id} is given up, as it was ordered"));
                Step::Follow(Following::Answer("OK".to_owned()))
            }
            Request::Cancel(id) => Step::Answer(self.cancelled(id, draft.after.last_move)),
            Request::Rebalance { by, is_dry } => {
                if let Some(why) = draft.after.why_no_move().or(draft.after.why_senseless("shards/")) {
                    return refuse(why);
                }
                // Who asks again is told of those that go on.
                let begun =
                    draft.after.moves.values().filter(|one| is_unfinished(one)).map(|one| one.id).collect();
                match self.rebalanced(&draft.after, by, now) {
                    Err(why) => refuse(why),
                    Ok(shifts) if is_dry => Step::Answer(Ok(told(&shifts))),
                    Ok(shifts) => begin(draft, shifts, begun),
                }
            }
            Request::RemoveShard(shard) => emptying::remove_shard(draft, shard, Request::RemoveShard(shard)),
            Request::RemoveShardOf(id) => emptying::remove_shard_of(draft, id),
            Request::Said { id, attempt, word } => match draft.after.moves.get(&id).cloned() {
                None if draft.after.is_senseless(&key::moving(id)) => {
                    Step::Answer(Err(format!("UNREACHED {}", senseless::mend(&key::moving(id)))))
                }
                None if id > draft.after.last_move => not_seen(format_args!("move {id}")),
                Some(one) if attempt > one.attempt => {
                    not_seen(format_args!("attempt {attempt} at move {id}"))
                }
                Some(one) if attempt == one.attempt => self.take_word(draft, one, word, now),
                _ => is_over(id, attempt),
            },
        }
    }

    /// What is answered to who cancels a move that is not there: he may say it again, since the first answer was lost.
    fn cancelled(&self, id: u64, last: u64) -> Result<String, String> {
        match self.moves.has_come(id) {
            Some(false) => Ok("OK".to_owned()),
            Some(true) => {
                Err(format!("NOMOVE move {id} is done: its slots have come to where they were to be"))
            }
            None if id == 0 || id > last => Err(format!("NOMOVE there was no move {id}")),
            None => Err(format!(
                "NOMOVE move {id} is over, and nobody knows whether it was done or given up: the status shows whose the slots are"
            )),
        }
    }

    /// What a master says of the attempt that there is.
    fn take_word(&mut self, draft: &mut Draft, one: Move, word: Word, at: Moment) -> Step {
        let (id, attempt) = (one.id, one.attempt);
        if let Some(why) = draft.after.why_stands_still(&one) {
            return Step::Answer(Err(format!("UNREACHED {why}")));
        }
        let done = || Step::Follow(Following::Answer("OK".to_owned()));
        let (said, is_ready) = match word {
            Word::CaughtUp(epochs) => (epochs, false),
            Word::Ready(epochs) => (epochs, true),
            Word::Failed(reason) | Word::FailedForGood(reason) if !one.is_under_way() => {
                let _ = reason;
                return is_over(id, attempt);
            }
            Word::Failed(reason) => {
                self.try_again(draft, one, &reason);
                return done();
            }
            Word::FailedForGood(reason) => {
                draft.fail_move(one, &reason);
                return done();
            }
            Word::Progress(_) => return Step::Answer(Ok("OK".to_owned())),
        };
        let Some(now) = epochs(&draft.after, &one) else { return is_over(id, attempt) };
        if said.from > now.from || said.to > now.to {
            return not_seen("these epochs");
        }
        match (&one.stage, is_ready) {
            // It may be cut off from config servers only, and would not hear that requests are held back for it.
            (Stage::Copying, false) if said == now && !self.has_living_master(&draft.after, one.to, at) => {
                Step::Answer(Err(format!(
                    "UNREACHED the master of shard {} is not heard of; ask again",
                    one.to
                )))
            }
            (Stage::Copying, false) if said == now => {
                self.moves.switching.insert(id, (attempt, said));
                draft.put_move(Move { stage: Stage::Switching, ..one });
                done()
            }
            (Stage::Switching, false) if said == now => Step::Answer(Ok("OK".to_owned())),
            (Stage::Switching, true) if said == now => {
                draft.give_slots(&one);
                done()
            }
            // What it has copied is worth nothing: somebody has to begin anew.
            (Stage::Copying | Stage::Switching, _) if said != now => {
                self.try_again(draft, one, "another became master of one of the shards");
                Step::Follow(Following::Refuse(over(id, attempt)))
            }
            _ => is_over(id, attempt),
        }
    }

    /// What is to go where, so that all shards have the same.
    fn rebalanced(&self, view: &View, by: Measure, now: Moment) -> Result<Vec<Shift>, String> {
        let loads = self.loads(view, by, now)?;
        let moves = view.moves.values().filter(|one| is_unfinished(one));
        Ok(rebalance::shifts(&loads, &view.slots, &moves.collect::<Vec<_>>(), by))
    }

    /// What each shard has, as its master says. What one has said that is silent since is old, and its shard may have another by now.
    pub(super) fn loads(&self, view: &View, by: Measure, now: Moment) -> Result<Vec<Load>, String> {
        view.begun()
            .map(|shard| {
                let amount = match by {
                    Measure::Slots => Some(view.slots.count_of(shard) as u64),
                    _ => view
                        .master_of(shard)
                        .filter(|master| self.lives(master.id, now))
                        .and_then(|master| self.said_number(master.id, by.name())),
                };
                let amount = amount.ok_or_else(|| {
                    format!("the master of shard {shard} has not said lately how many {} it has", by.name())
                })?;
                Ok(Load { shard, amount })
            })
            .collect()
    }
}

/// What would be done, a line each.
fn told(shifts: &[Shift]) -> String {
    if shifts.is_empty() {
        return NOTHING.to_owned();
    }
    let line = |shift: &Shift| {
        let count: usize = shift.slots.iter().map(|range| range.len()).sum();
        let from = shift.from.map_or("-".to_owned(), |from| from.to_string());
        format!("{count} slots from shard {from} to shard {}: {}", shift.to, shown(&shift.slots))
    };
    shifts.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Slots as people write them.
pub fn shown(slots: &[SlotRange]) -> String {
    let one = |range: &SlotRange| match range.len() {
        1 => range.first.to_string(),
        _ => format!("{}-{}", range.first, range.last),
    };
    slots.iter().map(one).collect::<Vec<_>>().join(" ")
}

pub(super) fn is_unfinished(one: &Move) -> bool {
    !matches!(one.stage, Stage::Failed(_))
}

/// The epochs of both shards; None: one has not begun.
fn epochs(view: &View, one: &Move) -> Option<Epochs> {
    let epoch = |shard: ShardId| match view.shards.get(&shard)? {
        Standing::Begun(decision) => Some(decision.epoch.0),
        Standing::Unbegun(_) => None,
    };
    Some(Epochs { from: epoch(one.from)?, to: epoch(one.to)? })
}

fn why_impossible(view: &View, one: &Move) -> Option<String> {
    if let Some(shard) = [one.from, one.to].into_iter().find(|shard| !view.shards.contains_key(shard)) {
        return Some(format!("there is no shard {shard} any more"));
    }
    let slots = one.each_slot();
    let lost = slots.into_iter().find(|slot| view.slots.owner(*slot) != Some(one.from));
    lost.map(|slot| format!("slot {slot} is not shard {}'s any more", one.from))
}

/// Writes moves down, one for each shard that has some of the slots. Slots that are where they are to be, or on their way there, stay as they are.
pub(super) fn begin(draft: &mut Draft, shifts: Vec<Shift>, mut begun: BTreeSet<u64>) -> Step {
    let mut parts = Parts::new();
    for shift in &shifts {
        if let Err(why) = part(&draft.after, shift, &mut parts, &mut begun) {
            return Step::Answer(Err(why));
        }
    }
    if parts.is_empty() {
        return Step::Answer(Ok(answer(&begun)));
    }
    if let Some(why) = draft.after.why_no_move() {
        return refuse(why);
    }
    for ((from, to), slots) in parts {
        draft.forget_failed(&slots);
        if draft.is_full() {
            // Some may be where they are to be when it goes on.
            let shifts = shifts.into_iter().map(|shift| Shift { from: None, ..shift }).collect();
            return Step::Follow(Following::Go(Request::Begin { shifts, begun }));
        }
        match draft.begin_move((from, to), &slots) {
            Ok(id) => begun.insert(id),
            Err(why) => return refuse(why),
        };
    }
    Step::Follow(Following::Answer(answer(&begun)))
}

fn answer(begun: &BTreeSet<u64>) -> String {
    if begun.is_empty() {
        return NOTHING.to_owned();
    }
    begun.iter().fold("moves".to_owned(), |text, id| format!("{text} {id}"))
}

/// Slots, by the shard that has them and the one that gets them.
type Parts = BTreeMap<(ShardId, ShardId), Vec<u16>>;

/// Adds the slots that a shift has to take.
fn part(view: &View, shift: &Shift, parts: &mut Parts, begun: &mut BTreeSet<u64>) -> Result<(), String> {
    let Shift { from, to, slots } = shift;
    let to = *to;
    let spoilt = |shard: ShardId| view.why_spoilt(&key::shard(shard)).map(|why| format!("ERR {why}"));
    if let Some(why) = view.why_spoilt(key::SLOTS) {
        return Err(format!("ERR {why}"));
    }
    if let Some(why) = [Some(to), *from].into_iter().flatten().find_map(spoilt) {
        return Err(why);
    }
    match view.shards.get(&to) {
        None => return Err(format!("NOSHARD the cluster has no shard {to}")),
        Some(Standing::Unbegun(_)) => return Err(format!("ERR shard {to} has not begun yet")),
        Some(Standing::Begun(_)) => {}
    }
    if let Some(from) = from.filter(|from| !view.shards.contains_key(from)) {
        return Err(format!("NOSHARD the cluster has no shard {from}"));
    }
    if *from == Some(to) {
        return Err(format!("ERR shard {to} cannot give slots to itself"));
    }
    let slots: BTreeSet<u16> = slots.iter().flat_map(|range| range.slots()).collect();
    if slots.is_empty() {
        return Err("ERR no slot is said".to_owned());
    }
    let on_their_way: BTreeMap<u16, &Move> = view
        .moves
        .values()
        .filter(|one| is_unfinished(one))
        .flat_map(|one| one.each_slot().map(move |slot| (slot, one)))
        .collect();
    for slot in slots {
        let owner = view.slots.owner(slot).ok_or_else(|| format!("ERR slot {slot} is nobody's"))?;
        // What has come is what was wanted, whoever had it.
        if let Some(from) = from.filter(|from| *from != owner && owner != to) {
            return Err(format!("ERR slot {slot} is shard {owner}'s, and not shard {from}'s"));
        }
        match on_their_way.get(&slot) {
            Some(one) if one.to == to => {
                begun.insert(one.id);
            }
            Some(one) => {
                let (id, other) = (one.id, one.to);
                return Err(format!("ERR slot {slot} is on its way to shard {other} already (move {id})"));
            }
            None if owner == to => {}
            None if spoilt(owner).is_some() => return Err(spoilt(owner).unwrap_or_default()),
            None => parts.entry((owner, to)).or_default().push(slot),
        }
    }
    Ok(())
}

impl Draft {
    pub(super) fn put_move(&mut self, one: Move) {
        self.write(key::moving(one.id), Some(one.to_line()), None);
        self.after.moves.insert(one.id, one);
    }

    pub(super) fn end_move(&mut self, id: u64) {
        self.write(key::moving(id), None, None);
        self.after.moves.remove(&id);
    }

    /// What has failed with any of these slots is forgotten, as far as there is room.
    fn forget_failed(&mut self, slots: &[u16]) {
        let is_over = |one: &&Move| !is_unfinished(one) && slots.iter().any(|slot| one.contains(*slot));
        let over = self.after.moves.values().filter(is_over);
        self.end_moves(over.map(|one| one.id).collect());
    }

    /// Whatever has failed before the last ones is forgotten, as far as there is room.
    fn bound_failed(&mut self) {
        let failed: Vec<u64> =
            self.after.moves.values().filter(|one| !is_unfinished(one)).map(|one| one.id).collect();
        let over = failed.len().saturating_sub(FAILED_MAX);
        self.end_moves(failed[..over].to_vec());
    }

    fn end_moves(&mut self, ids: Vec<u64>) {
        for id in ids {
            if self.is_full() {
                return;
            }
            self.end_move(id);
        }
    }

    /// Gives the number. What has failed with any of these slots is forgotten by then.
    fn begin_move(&mut self, (from, to): (ShardId, ShardId), slots: &[u16]) -> Result<u64, String> {
        let id = self.after.next_move()?;
        self.write(key::LAST_MOVE.to_owned(), Some(id.to_string()), None);
        self.after.last_move = id;
        let (attempt, stage, slots) = (1, Stage::Waiting, rebalance::ranges(slots));
        let one = Move { id, from, to, attempt, stage, slots };
        self.then.notes.push(format!("Move {id}: {} slots go from shard {from} to shard {to}", one.count()));
        self.put_move(one);
        Ok(id)
    }

    fn fail_move(&mut self, one: Move, why: &str) {
        let why: String = why.chars().take(REASON_LETTERS_MAX).collect();
        let why = if why.is_empty() { "no reason was said".to_owned() } else { why };
        self.then.notes.push(format!("Move {} has failed: {why}", one.id));
        self.put_move(Move { stage: Stage::Failed(why), ..one });
    }

    /// Begins anew, if that was not done too often.
    fn try_move_again(&mut self, one: Move, why: &str) {
        if one.attempt >= ATTEMPTS_MAX {
            let why = format!("{ATTEMPTS_MAX} attempts have come to nothing, the last one because: {why}");
            return self.fail_move(one, &why);
        }
        let next = one.attempt + 1;
        self.then.notes.push(format!("Move {} begins anew (attempt {next}): {why}", one.id));
        self.put_move(Move { attempt: next, stage: Stage::Waiting, ..one });
    }

    /// The slots are the other shard's from now on, if both shards' decisions are what is known: READY was said under their epochs.
    fn give_slots(&mut self, one: &Move) {
        for decision in [key::shard(one.from), key::shard(one.to)] {
            self.compares.entry(decision.clone()).or_insert(self.after.revision_of(&decision));
        }
        for slot in one.each_slot() {
            self.after.slots.set(slot, Some(one.to));
        }
        self.write(key::SLOTS.to_owned(), Some(self.after.slots.to_line()), None);
        let (id, count) = (one.id, one.count());
        self.then.notes.push(format!("Move {id} is done: shard {} has {count} slots more", one.to));
        self.end_move(id);
    }
}
