//! CLUSTER SLOT-STATS, as Valkey 8 has it with `cluster-slot-stats-enabled no`: how many keys are in the slots of this node's shard.

use super::view;
use crate::clustered::View;
use crate::dispatch::Context;
use command::parse::int;
use command::{Error, Result};
use keyspace::{DbIndex, Slot};
use wire::{Reply, SLOTS};

const UNKNOWN: Error =
    Error::text("ERR unknown subcommand or wrong number of arguments for 'slot-stats'. Try CLUSTER HELP.");
const LIMIT: Error = Error::text("ERR Limit has to lie in between 1 and 16384 (maximum number of slots).");

/// The one thing that is counted.
const METRIC: &[u8] = b"key-count";

/// CLUSTER SLOT-STATS SLOTSRANGE start-slot end-slot | ORDERBY metric [LIMIT limit] [ASC | DESC]
pub(super) fn slot_stats(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let view = view(context)?;
    let request = context.request;
    let word = request.arg(2).to_ascii_lowercase();
    let counted = match word.as_slice() {
        b"slotsrange" if request.len() == 5 => {
            let (first, last) = (slot(request.arg(3))?, slot(request.arg(4))?);
            if first > last {
                return Err(Error::line(format!(
                    "ERR Start slot number {first} is greater than end slot number {last}"
                )));
            }
            count(context, &view, first..=last)?
        }
        b"orderby" if request.arg(3).eq_ignore_ascii_case(METRIC) => {
            let (limit, is_ascending) = order(context)?;
            let mut counted = count(context, &view, 0..=(SLOTS as u16 - 1))?;
            // Slots of as many keys stay in their own order.
            counted
                .sort_by_key(|(_, keys)| if is_ascending { i128::from(*keys) } else { -i128::from(*keys) });
            counted.truncate(limit);
            counted
        }
        b"orderby" => return Err(Error::text("ERR Unrecognized sort metric for ORDERBY.")),
        _ => return Err(UNKNOWN),
    };
    reply.array(counted.len());
    for (slot, keys) in counted {
        reply.array(2);
        reply.int(i64::from(slot));
        reply.map(1);
        reply.bulk(METRIC);
        reply.int(i64::try_from(keys).unwrap_or(i64::MAX));
    }
    Ok(())
}

fn slot(word: &[u8]) -> Result<u16> {
    let number = int(word).ok().and_then(|number| u16::try_from(number).ok());
    number.filter(|slot| usize::from(*slot) < SLOTS).ok_or(Error::text("ERR Invalid or out of range slot"))
}

/// How many are shown, and whether those with the fewest keys come first.
fn order(context: &Context<'_, '_>) -> Result<(usize, bool)> {
    let (mut limit, mut is_ascending) = (None, None);
    let mut words = context.request.iter().skip(4);
    while let Some(word) = words.next() {
        match word.to_ascii_lowercase().as_slice() {
            b"asc" | b"desc" if is_ascending.is_some() => return Err(TWICE),
            word @ (b"asc" | b"desc") => is_ascending = Some(word == b"asc"),
            b"limit" => {
                let word = words.next().ok_or(Error::Syntax)?;
                let number = int(word).ok().and_then(|number| usize::try_from(number).ok());
                let number = number.filter(|number| (1..=SLOTS).contains(number)).ok_or(LIMIT)?;
                if limit.replace(number).is_some() {
                    return Err(TWICE);
                }
            }
            _ => return Err(Error::Syntax),
        }
    }
    Ok((limit.unwrap_or(SLOTS), is_ascending.unwrap_or(false)))
}

const TWICE: Error = Error::text("ERR Multiple filters of the same type are disallowed.");

/// The keys of all databases in those of these slots that are the shard's.
fn count(
    context: &mut Context<'_, '_>,
    view: &View,
    slots: std::ops::RangeInclusive<u16>,
) -> Result<Vec<(u16, u64)>> {
    let own = view.shard();
    let databases = context.batch.keyspace().databases();
    let mut counted = Vec::new();
    for slot in slots.filter(|slot| own.is_some() && view.topology.slots.owner(*slot) == own) {
        let mut keys = 0;
        if !context.batch.keyspace().is_hidden(Slot(slot)) {
            for db in 0..databases {
                keys += context.batch.try_count_slot(DbIndex(db), Slot(slot)).ok_or(Error::InUse)? as u64;
            }
        }
        counted.push((slot, keys));
    }
    Ok(counted)
}
