//! The moment that all shards have in common: writes are held back at all masters, each says how far its stream goes, and they go on.
//!
//! At the moment at which the last master has answered HOLD, none of them does a write; each proves it afterwards by its answer to POSITION, which it gives only if writes
//! were held back all the time since, and only while nobody else can be master of its shard. So what was acknowledged before that moment, by anybody, is before the
//! positions, and nothing else is. No clock has a part in it.

use super::Reach;
use crate::asking::Asking;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use topology::{ShardId, Topology};
use wire::Value;

/// Writes are held back for so long at most, if nobody lets them go on before: so many times as long as it may take until all hold them back.
const HOLDINGS: u32 = 2;
/// What is there already is taken, however late it is.
const GLANCE: Duration = Duration::from_millis(20);
/// How long an answer may take that waits for what was written to be committed.
const PATIENCE: Duration = Duration::from_secs(2);

/// How far a shard's stream goes at the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    pub stream: String,
    pub offset: u64,
    pub epoch: u64,
}

/// A moment.
pub struct Cut {
    pub topology: Topology,
    pub positions: BTreeMap<ShardId, Position>,
}

/// Finds one. `holding`: how long it may take until all hold writes back; one that takes longer, as behind a script, is no reason to have all others wait.
///
/// # Errors
/// There is none now: a shard has no master, or another one, or slots are on their way.
pub fn make(reach: &Reach, shards: &[ShardId], holding: Duration) -> Result<Cut, String> {
    let before = reach.topology()?;
    look_at_slots(&before, shards)?;
    let mut held = Vec::new();
    for shard in shards {
        let master = before.master_of(*shard).ok_or_else(|| format!("shard {shard} has no master"))?;
        held.push(Held { shard: *shard, asking: reach.server(master)?, cut: None });
    }
    let positions = hold(&mut held, holding);
    // Whatever came of it.
    release(&mut held);
    let positions = positions?;
    let after = reach.topology()?;
    look_at_slots(&after, shards)?;
    if before.slots != after.slots || before.last_move != after.last_move {
        return Err("slots have just gone from one shard to another".to_owned());
    }
    Ok(Cut { topology: after, positions })
}

/// Where slots are on their way it is not known for sure whose they are at the moment.
fn look_at_slots(topology: &Topology, shards: &[ShardId]) -> Result<(), String> {
    if let Some(id) = topology.moves.values().find(|one| one.is_under_way()).map(|one| one.id) {
        return Err(format!("move {id} of slots is under way (`tarn cluster moves`, `cancel-move`)"));
    }
    match topology.slots.ranges().all(|(_, owner)| shards.contains(&owner)) {
        true => Ok(()),
        false => Err("a shard has slots that had none when the backup began: begin it again".to_owned()),
    }
}

struct Held {
    shard: ShardId,
    asking: Asking,
    cut: Option<String>,
}

/// Asks all of them before any answer is waited for: a moment is as short as the slowest.
fn hold(held: &mut [Held], holding: Duration) -> Result<BTreeMap<ShardId, Position>, String> {
    let longest = (HOLDINGS * holding).as_millis().to_string();
    let words = [&b"CLUSTER"[..], b"CUT", b"HOLD", longest.as_bytes()];
    held.iter_mut().try_for_each(|one| one.asking.say(&words, PATIENCE))?;
    let (mut refused, until) = (Ok(()), Instant::now() + holding);
    for one in held.iter_mut() {
        let why = match one.asking.receive(until.saturating_duration_since(Instant::now()).max(GLANCE)) {
            Ok(Value::Int(cut)) => {
                one.cut = Some(cut.to_string());
                continue;
            }
            Ok(_) => "its master does not say what it holds".to_owned(),
            Err(why) => why,
        };
        // The first is whom the others wait for.
        refused = refused.and_then(|()| Err(format!("shard {}: {why}", one.shard)));
    }
    refused?;
    for one in held.iter_mut() {
        let cut = one.cut.clone().unwrap_or_default();
        one.asking.say(&[&b"CLUSTER"[..], b"CUT", b"POSITION", cut.as_bytes()], PATIENCE)?;
    }
    held.iter_mut()
        .map(|one| {
            let answer = one.asking.receive(PATIENCE).map_err(|why| format!("shard {}: {why}", one.shard))?;
            let position = position(&answer);
            let position =
                position.ok_or_else(|| format!("shard {}: its master says no position", one.shard))?;
            Ok((one.shard, position))
        })
        .collect()
}

fn position(answer: &Value) -> Option<Position> {
    let Value::Array(words) = answer else { return None };
    let [Value::Bulk(stream), Value::Int(offset), Value::Int(epoch)] = words.as_slice() else { return None };
    let stream = String::from_utf8(stream.clone()).ok()?;
    Some(Position { stream, offset: u64::try_from(*offset).ok()?, epoch: u64::try_from(*epoch).ok()? })
}

/// Who does not hear of it lets writes go on by himself.
fn release(held: &mut [Held]) {
    for one in held.iter_mut() {
        if one.cut.is_none()
            && let Ok(Value::Int(cut)) = one.asking.receive(GLANCE)
        {
            one.cut = Some(cut.to_string());
        }
        if let Some(cut) = &one.cut {
            let _ = one.asking.say(&[&b"CLUSTER"[..], b"CUT", b"RELEASE", cut.as_bytes()], PATIENCE);
        }
    }
    for one in held.iter_mut().filter(|one| one.cut.is_some()) {
        let _ = one.asking.receive(PATIENCE);
    }
}
