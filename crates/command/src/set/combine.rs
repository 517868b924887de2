//! SINTER, SUNION, SDIFF, their storing forms, and SINTERCARD. How sets are combined is
//! `value::set`'s; here are keys, replies and events.
//!
//! A key that is not there is an empty set. A storing form puts its result in place of
//! whatever the destination holds, or takes that away if the result is empty.

use super::reply_member;
use crate::args::Args;
use crate::error::{Error, Result};
use crate::generic::remove_for_nothing;
use crate::parse::{Options, int_within};
use crate::row::Outcome;
use keyspace::{Class, Edit, Expiry, View};
use smallvec::SmallVec;
use std::collections::HashSet;
use std::ops::ControlFlow;
use value::collection::{Thresholds, Type};
use value::set::{self, Set, SetRef};
use wire::{Reply, Request};

/// Sets by their keys; None for keys that are not there.
type Sources<'a> = SmallVec<[Option<SetRef<'a>>; 8]>;
/// Sets that are there.
type Sets<'a> = SmallVec<[SetRef<'a>; 8]>;

/// The sets under the keys from position `first` up to `end`.
fn sources<'a>(view: &'a View<'_>, args: &Args<'_>, first: usize, end: usize) -> Result<Sources<'a>> {
    (first..end).map(|position| Ok(view.read::<Set>(&args.key(position))?)).collect()
}

/// The same for a storing form, whose sources begin at position 2.
fn stored_sources<'a>(edit: &'a Edit<'_>, args: &Args<'_>) -> Result<Sources<'a>> {
    let source = |position| {
        let found = edit.get_as_reader(&args.key(position));
        Ok(found.map(|object| object.read::<Set>()).transpose()?)
    };
    (2..args.len()).map(source).collect()
}

/// The sets of an intersection, the smallest first; none if one of them is empty.
fn intersected<'a>(sources: &Sources<'a>) -> Sets<'a> {
    let sets: Sets<'_> = sources.iter().copied().collect::<Option<_>>().unwrap_or_default();
    let mut sets = distinct(sets);
    sets.sort_by_key(|set| set.len());
    sets
}

/// Each set once: a key that is given a thousand times is no more work than one.
fn distinct(mut sets: Sets<'_>) -> Sets<'_> {
    if sets.len() > 1 {
        let mut seen = HashSet::with_capacity(sets.len());
        sets.retain(|set| seen.insert(set.address()));
    }
    sets
}

/// The first set of a difference and the others. None if the result is empty for certain.
fn subtracted<'a>(sources: &Sources<'a>, args: &Args<'_>, first: usize) -> Option<(SetRef<'a>, Sets<'a>)> {
    let is_itself = |position: usize| args.bytes(position) == args.bytes(first);
    if (first + 1..args.len()).any(is_itself) {
        return None;
    }
    Some((sources[0]?, sources[1..].iter().flatten().copied().collect()))
}

/// SINTER key [key ...]
pub(super) fn sinter(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let sets = intersected(&sources(view, args, 1, args.len())?);
    reply_set(reply, |visit| {
        set::intersection(&sets, visit);
    });
    Ok(())
}

/// SUNION key [key ...]
pub(super) fn sunion(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let sets = distinct(sources(view, args, 1, args.len())?.into_iter().flatten().collect());
    reply_set(reply, |visit| {
        set::union(&sets, |member| {
            // What is behind the end of the reply is passed over quickly.
            let _ = visit(member);
        });
    });
    Ok(())
}

/// SDIFF key [key ...]
pub(super) fn sdiff(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let sources = sources(view, args, 1, args.len())?;
    reply_set(reply, |visit| {
        if let Some((first, others)) = subtracted(&sources, args, 1) {
            set::difference(first, &others, |member| {
                let _ = visit(member);
            });
        }
    });
    Ok(())
}

/// Is shown a member, and says whether more of them are of any use.
type Visit<'v, 'a> = dyn FnMut(value::listpack::Element<'a>) -> ControlFlow<()> + 'v;

/// Replies with the members that `show` passes on.
fn reply_set<'a>(reply: &mut Reply<'_>, show: impl FnOnce(&mut Visit<'_, 'a>)) {
    let deferred = reply.deferred_set();
    let mut count = 0;
    show(&mut |member| {
        reply_member(reply, member);
        count += 1;
        if reply.is_over() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    reply.end(deferred, count);
}

/// SINTERSTORE destination key [key ...]
pub(super) fn sinterstore(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    store(edit, args, reply, "sinterstore", |sources, thresholds| {
        set::stored_intersection(&intersected(sources), thresholds)
    })
}

/// SUNIONSTORE destination key [key ...]
pub(super) fn sunionstore(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    store(edit, args, reply, "sunionstore", |sources, thresholds| {
        let sets = distinct(sources.iter().flatten().copied().collect());
        set::stored_union(&sets, thresholds)
    })
}

/// SDIFFSTORE destination key [key ...]
pub(super) fn sdiffstore(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    store(edit, args, reply, "sdiffstore", |sources, thresholds| match subtracted(sources, args, 2) {
        Some((first, others)) => set::stored_difference(first, &others, thresholds),
        None => set::stored_union(&[], thresholds),
    })
}

/// Puts what `combine` makes of the sources under the destination, key 1, and replies
/// with its size.
fn store(
    edit: &mut Edit<'_>,
    args: &Args<'_>,
    reply: &mut Reply<'_>,
    event: &'static str,
    combine: impl FnOnce(&Sources<'_>, &Thresholds) -> Set,
) -> Result<Outcome> {
    let result = combine(&stored_sources(edit, args)?, &args.settings.thresholds());
    let key = args.key(1);
    reply.int(result.len() as i64);
    if !result.is_empty() {
        edit.put_collection(&key, result, Expiry::Clear);
        edit.note(Class::SET, event, &key);
    } else if !remove_for_nothing(edit, &key) {
        return Ok(Outcome::Unchanged);
    }
    Ok(Outcome::Changed)
}

/// Position of SINTERCARD's first key.
const SINTERCARD_FIRST: usize = 2;

/// The position after SINTERCARD's last key.
fn sintercard_end(request: &Request<'_>) -> Result<usize> {
    let count = int_within(request.arg(1), 1..=i64::MAX, "ERR numkeys should be greater than 0")?;
    if count as u64 > (request.len() - SINTERCARD_FIRST) as u64 {
        return Err(Error::text("ERR Number of keys can't be greater than number of args"));
    }
    Ok(SINTERCARD_FIRST + count as usize)
}

/// SINTERCARD's keys; none if it does not say how many there are.
pub(super) fn sintercard_keys(request: &Request<'_>, positions: &mut Vec<usize>) {
    if request.len() > SINTERCARD_FIRST
        && let Ok(end) = sintercard_end(request)
    {
        positions.extend(SINTERCARD_FIRST..end);
    }
}

/// SINTERCARD numkeys key [key ...] [LIMIT limit]
pub(super) fn sintercard(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let end = sintercard_end(&args.request)?;
    let mut options = Options::from(args, end);
    let mut limit = 0;
    while options.more() {
        match options.take_with_value("LIMIT") {
            Some(text) => limit = int_within(text, 0..=i64::MAX, "ERR LIMIT can't be negative")?,
            None => options.refuse(),
        }
    }
    options.finish()?;
    let sets = intersected(&sources(view, args, SINTERCARD_FIRST, end)?);
    let mut count = 0;
    set::intersection(&sets, |_| {
        count += 1;
        if count == limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    reply.int(count);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use value::collection::Type;

    #[test]
    fn a_set_that_is_given_often_is_looked_at_once() {
        let thresholds = Thresholds::default();
        let made = |members: &[&str]| {
            let mut set = Set::new_for(members[0].as_bytes(), 1, &thresholds);
            for member in members {
                set.insert(member.as_bytes(), &thresholds);
            }
            set
        };
        let (ints, texts, same) = (made(&["1", "2"]), made(&["a", "2", "1"]), made(&["1", "2"]));
        let often = |set: &'static str| match set {
            "ints" => ints.as_ref(),
            "same" => same.as_ref(),
            _ => texts.as_ref(),
        };
        let sources: Sources<'_> = ["ints", "texts", "ints", "same", "texts"]
            .into_iter()
            .cycle()
            .take(2000)
            .map(|set| Some(often(set)))
            .collect();
        let sets = intersected(&sources);
        assert_eq!(sets.iter().map(|set| set.len()).collect::<Vec<_>>(), [2, 2, 3]);
        let mut shown = 0;
        set::intersection(&sets, |_| {
            shown += 1;
            ControlFlow::Continue(())
        });
        assert_eq!(shown, 2);
    }
}
