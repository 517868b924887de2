//! Clears what this server holds of slots that are another shard's: what was left there when they went, or has come in a move that came to nothing.
//!
//! Only the master of a shard does, by writes as any, so that its replicas do the same. What a move brings is left alone, and so is whatever a move has brought
//! that is switching: it may be this shard's already.
//!
//! Thread rule: the thread of [`super`].

use crate::arrivals::Known;
use crate::clustered::View;
use crate::replay::Replay;
use crate::server::Server;
use keyspace::{DbIndex, NO_TIME_IS_UP, SLOTS, Slot};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use topology::{ShardId, Stage, Topology};
use wire::RequestBuf;

/// Keys that are removed in one stay in the keyspace.
const KEYS: usize = 64;

/// How long it clears in a row. Then it rests for as long.
const STEP: Duration = Duration::from_millis(2);

/// Whether the keys of a slot are nobody's here.
fn is_left_over(topology: &Topology, own: ShardId, known: &Known, slot: Slot) -> bool {
    let comes = || {
        let mut moves = topology.moves.values().filter(|one| one.to == own && one.is_under_way());
        moves.any(|one| {
            one.contains(slot.0) && (one.stage == Stage::Switching || known.has(one.id, one.attempt))
        })
    };
    topology.slots.owner(slot.0).is_some_and(|owner| owner != own) && !comes()
}

/// Clears some of what is left over. False: there is nothing.
pub fn step(server: &Arc<Server>, view: &View) -> bool {
    let (engine, Some(own)) = (&server.engine, view.shard()) else { return false };
    let began = Instant::now();
    let mut replay = Replay::new(server, engine.moving_guest());
    let mut has_cleared = false;
    for db in engine.databases() {
        for slot in used(server, (view, own, db)) {
            while clear_some(server, &mut replay, (own, db, slot)) {
                has_cleared = true;
                if began.elapsed() >= STEP {
                    thread::sleep(STEP);
                    return true;
                }
            }
        }
    }
    has_cleared
}

/// Slots of a database that have keys which are nobody's here.
fn used(server: &Server, (view, own, db): (&View, ShardId, DbIndex)) -> Vec<Slot> {
    let keyspace = &server.engine.keyspace;
    let batch = keyspace.enter(server.engine.moving_guest());
    if batch.hidden(db).0 == 0 {
        return Vec::new();
    }
    let hidden = (0..SLOTS as u16).map(Slot).filter(|slot| keyspace.is_hidden(*slot));
    let known = server.arrivals.lock();
    let left = hidden.filter(|slot| is_left_over(&view.topology, own, &known, *slot));
    left.filter(|slot| batch.try_count_slot(db, *slot).is_some_and(|count| count > 0)).collect()
}

/// Removes some keys of a slot, if they are nobody's here still. False: there are none.
fn clear_some(
    server: &Arc<Server>,
    replay: &mut Replay<'_>,
    (own, db, slot): (ShardId, DbIndex, Slot),
) -> bool {
    let engine = &server.engine;
    let Some(part) = server.clustered.get() else { return false };
    let mut batch = engine.keyspace.enter(engine.moving_guest());
    // Nobody is let in meanwhile who would bring such a slot.
    let known = server.arrivals.lock();
    let view = part.view();
    let is_left = super::leads(server, &view)
        && view.shard() == Some(own)
        && is_left_over(&view.topology, own, &known, slot);
    if !is_left {
        return false;
    }
    let mut names = BTreeSet::new();
    let _ = batch.try_visit_slot(db, slot, KEYS, NO_TIME_IS_UP, |object| {
        names.insert(object.key().to_vec());
    });
    for name in &names {
        let request = RequestBuf::from_args([&b"UNLINK"[..], name]);
        let _ = replay.apply_within(&mut batch, db, NO_TIME_IS_UP, &request.as_request());
    }
    let is_written = !names.is_empty();
    drop(known);
    batch.release();
    drop(batch);
    if is_written && let Some(log) = engine.durability.log() {
        log.nudge();
    }
    is_written
}
