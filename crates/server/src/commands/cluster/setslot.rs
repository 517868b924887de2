//! CLUSTER SETSLOT, with which redis-cli moves a slot: IMPORTING and MIGRATING, then key after key, then NODE. Here the last word is the whole move, and the others only
//! have redis-cli find no keys before it says that. A node that was met and waits for a place begins a shard with its first slot.

use super::forward::{begin_with, later, order};
use super::{telling, view};
use crate::dispatch::Context;
use crate::server::Server;
use command::{Error, Result, parse};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use topology::{ShardId, Stage};
use wire::{Reply, SLOTS};

/// How long it may take until a move that is written down shows here.
const SHOWING: Duration = Duration::from_secs(10);
/// How long is waited at once.
const LOOKING: Duration = Duration::from_millis(100);

/// CLUSTER SETSLOT slot IMPORTING|MIGRATING|NODE node-id, CLUSTER SETSLOT slot STABLE
pub(super) fn set_slot(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let known = view(context)?;
    if known.other_master().is_some() {
        return Err(Error::text("ERR You can use SETSLOT only with masters."));
    }
    let slot = parse::int(context.request.arg(2)).ok().and_then(|slot| u16::try_from(slot).ok());
    let slot = slot.filter(|slot| usize::from(*slot) < SLOTS);
    let slot = slot.ok_or(Error::text("ERR Invalid or out of range slot"))?;
    let action = context.request.arg(3).to_ascii_lowercase();
    let id = context.request.get(4).filter(|_| context.request.len() == 5);
    let is_own = known.routes.has(slot);
    let stranger = |id: &[u8]| Error::quoting("ERR I don't know about node ", id, "");
    match (action.as_slice(), id) {
        (b"stable", None) if context.request.len() == 4 => mark(context.server, slot, false),
        (b"migrating", Some(_)) if !is_own => {
            return Err(Error::line(format!("ERR I'm not the owner of hash slot {slot}")));
        }
        (b"importing", Some(_)) if is_own => {
            return Err(Error::line(format!("ERR I'm already the owner of hash slot {slot}")));
        }
        (b"migrating" | b"importing", Some(id)) => {
            telling::node(&known, id).map_err(|_| stranger(id))?;
            mark(context.server, slot, is_own);
        }
        (b"node", Some(id)) => {
            let node = telling::node(&known, id)?;
            let shard = node.place.map(|place| place.shard).filter(|_| known.topology.is_master(node));
            if shard.is_none() && !node.is_met {
                return Err(Error::text("ERR Target node is not a master"));
            }
            mark(context.server, slot, false);
            if shard.is_some() && known.topology.slots.owner(slot) == shard {
                reply.ok();
                return Ok(());
            }
            let id = node.id;
            return later(context, move |server| {
                let shard = shard.map_or_else(|| begin_with(server, id), Ok)?;
                give(server, slot, shard)
            });
        }
        _ => {
            return Err(Error::text(
                "ERR Invalid CLUSTER SETSLOT action or number of arguments. Try CLUSTER HELP",
            ));
        }
    }
    reply.ok();
    Ok(())
}

fn mark(server: &Server, slot: u16, is_migrating: bool) {
    if let Some(part) = server.clustered.get() {
        part.mark_migrating(slot, is_migrating);
    }
}

/// Has a slot move, and waits until that is over.
fn give(server: &Arc<Server>, slot: u16, to: ShardId) -> std::result::Result<(), String> {
    let Some(part) = server.clustered.get() else { return Ok(()) };
    let is_failed = |stage: &Stage| matches!(stage, Stage::Failed(_));
    let before = part.view();
    let moves = before.topology.moves.values().filter(|one| is_failed(&one.stage));
    let stale: BTreeSet<u64> = moves.map(|one| one.id).collect();
    let (shard, number) = (to.to_string(), slot.to_string());
    order(server, &[b"CLUSTER", b"MOVE-SLOTS", b"-", shard.as_bytes(), number.as_bytes()])?;
    let (asked, mut is_seen) = (Instant::now(), false);
    while !server.engine.is_ending() {
        let view = part.view();
        if view.topology.slots.owner(slot) == Some(to) {
            return Ok(());
        }
        let mut moves =
            view.topology.moves.values().filter(|one| one.contains(slot) && !stale.contains(&one.id));
        match moves.next().map(|one| (one.id, &one.stage)) {
            Some((id, Stage::Failed(why))) => return Err(format!("ERR move {id} has failed: {why}")),
            Some(_) => is_seen = true,
            None if is_seen => return Err(format!("ERR the move of slot {slot} was given up")),
            None if asked.elapsed() > SHOWING => break,
            None => {}
        }
        part.wait_for_change(&view, LOOKING);
    }
    Err(format!("ERR nobody can say what has become of the move of slot {slot}"))
}
