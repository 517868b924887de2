//! A shard is removed: its slots go to the others, and when it has none it goes, with its servers.
//!
//! Each time it is said the next step is made, by what is so then. So it can be left at any moment and said again, to another leader, too; and nothing has to be remembered
//! but the moves.

use super::moves::{self, Following, Request, Step, is_unfinished, refuse};
use super::plan::{Draft, have_lost_slots};
use super::view::key;
use super::{Policy, rebalance, shard_of};
use std::collections::BTreeSet;
use topology::{Move, ServerId, ShardId};

/// Has the shard go of which a server is the only one, if it has no slots: as all stands when it is done, and not when whoever wants it has looked.
pub fn remove_shard_of(draft: &mut Draft, id: ServerId) -> Step {
    let view = &draft.after;
    // It is said again.
    if view.removed.contains(&id) && !view.servers.contains_key(&id) {
        return Step::Answer(Ok(format!("server {id} is removed")));
    }
    let shard = view.servers.get(&id).and_then(shard_of);
    let is_alone = |shard: &ShardId| view.placed_in(*shard).len() == 1 && view.slots.count_of(*shard) == 0;
    match shard.filter(is_alone) {
        Some(shard) => remove_shard(draft, shard, Request::RemoveShardOf(id)),
        None => {
            Step::Answer(Err(format!("NOTALONE server {id} is not the only one of a shard without slots")))
        }
    }
}

/// Has the slots of a shard go to others, or, if it has none, the shard go. `again` is what this was asked for with.
pub fn remove_shard(draft: &mut Draft, shard: ShardId, again: Request) -> Step {
    let view = &draft.after;
    // A shard, a move or an owner that cannot be read may have to do with it.
    let spoilt = ["shards/", "moves/"].into_iter().find_map(|kind| view.why_senseless(kind));
    if let Some(why) = spoilt.or(view.why_spoilt(key::SLOTS)).or(view.why_senseless("servers/")) {
        return refuse(why);
    }
    if !view.shards.contains_key(&shard) {
        return match view.numbers.contains_key(&shard) {
            true => Step::Answer(Ok(format!("shard {shard} is removed"))),
            false => Step::Answer(Err(format!("NOSHARD the cluster has no shard {shard}"))),
        };
    }
    let others: Vec<ShardId> = view.begun().filter(|id| *id != shard).collect();
    if others.is_empty() {
        return refuse(format_args!("shard {shard} is the last one"));
    }
    if have_lost_slots(view) {
        return refuse("who has which slots cannot be read in the store");
    }
    // Nothing comes to it any more.
    let coming = view.moves.values().filter(|one| one.to == shard && is_unfinished(one));
    for id in coming.map(|one| one.id).collect::<Vec<_>>() {
        if draft.is_full() {
            return Step::Follow(Following::Go(again));
        }
        draft.end_move(id);
        draft.then.notes.push(format!("Move {id} is given up, since shard {shard} is to go"));
    }
    let view = &draft.after;
    if view.slots.count_of(shard) == 0 {
        return forget(draft, shard);
    }
    let unfinished: Vec<&Move> = view.moves.values().filter(|one| is_unfinished(one)).collect();
    let begun: BTreeSet<u64> = unfinished.iter().filter(|one| one.from == shard).map(|one| one.id).collect();
    let shifts = rebalance::emptied(shard, &others, &view.slots, &unfinished);
    moves::begin(draft, shifts, begun)
}

/// The shard is there no more. Its servers have data that is nobody's, and come back as new ones only.
fn forget(draft: &mut Draft, shard: ShardId) -> Step {
    let slots = key::SLOTS.to_owned();
    draft.compares.entry(slots).or_insert(draft.after.revision_of(key::SLOTS));
    let placed = draft.after.placed_in(shard);
    let shown: Vec<String> =
        placed.values().map(|server| format!("{} ({})", server.id, server.host)).collect();
    for id in placed.values().map(|server| server.id).collect::<Vec<_>>() {
        draft.remove_server(id);
    }
    let failed = draft.after.moves.values().filter(|one| [one.from, one.to].contains(&shard));
    for id in failed.map(|one| one.id).collect::<Vec<_>>() {
        // Before anything else is done with it.
        if draft.is_full() {
            // By its number: its servers are gone by then.
            return Step::Follow(Following::Go(Request::RemoveShard(shard)));
        }
        draft.end_move(id);
    }
    let count = draft.after.shards.len();
    draft.write(key::shard(shard), None, None);
    draft.after.shards.remove(&shard);
    if let Some(policy) = draft.after.policy.filter(|policy| usize::from(policy.shards) >= count) {
        let policy = Policy { shards: policy.shards - 1, ..policy };
        draft.write(key::POLICY.to_owned(), Some(policy.to_line()), None);
        draft.after.policy = Some(policy);
    }
    let text = format!("shard {shard} is removed, and so are its servers: {}", shown.join(", "));
    draft.then.notes.push(text.clone());
    Step::Follow(Following::Answer(text))
}
