//! Members taken off an end: ZPOPMIN, ZPOPMAX, ZMPOP, and those that wait for one.
//!
//! Thread rule: as for all handlers.

use super::range::remove_ranks;
use super::{Scores, counted_keys, reply_member, reply_score};
use crate::args::Args;
use crate::error::{Error, Result};
use crate::parse::{Options, int_within, timeout};
use crate::row::Outcome;
use crate::wait::{Null, Wait};
use keyspace::{Edit, TypeName};
use std::ops::Range;
use value::zset::{Zset, ZsetRef};
use wire::Reply;

/// The end to take from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Min,
    Max,
}

impl End {
    fn event(self) -> &'static str {
        match self {
            End::Min => "zpopmin",
            End::Max => "zpopmax",
        }
    }

    /// The ranks of the members at this end.
    fn ranks(self, count: usize, len: usize) -> Range<usize> {
        let count = count.min(len);
        match self {
            End::Min => 0..count,
            End::Max => len - count..len,
        }
    }

    /// Replies with the members of some ranks, those at this end first.
    fn reply(self, zset: ZsetRef<'_>, ranks: Range<usize>, scores: Scores, reply: &mut Reply<'_>) {
        match self {
            End::Min => scores.reply(reply, zset.iter(ranks)),
            End::Max => scores.reply(reply, zset.iter(ranks).rev()),
        }
    }

    /// Takes the members of some ranks at this end out of the sorted set that word `at` names.
    fn take(
        self,
        edit: &mut Edit<'_>,
        args: &Args<'_>,
        at: usize,
        ranks: Range<usize>,
        len: usize,
    ) -> Result<Outcome> {
        args.log_as_with(&[self.event().as_bytes(), args.bytes(at)], ranks.len() as i64);
        remove_ranks(edit, args, at, ranks, len, self.event())
    }
}

/// ZPOPMIN key [count]
pub(super) fn zpopmin(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    pop(edit, args, End::Min, reply)
}

/// ZPOPMAX key [count]
pub(super) fn zpopmax(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    pop(edit, args, End::Max, reply)
}

fn pop(edit: &mut Edit<'_>, args: &Args<'_>, end: End, reply: &mut Reply<'_>) -> Result<Outcome> {
    let count = match args.len() {
        2 => None,
        3 => {
            let text = "ERR value is out of range, must be positive";
            Some(int_within(args.bytes(2), 0..=i64::MAX, text)? as usize)
        }
        _ => return Err(Error::Syntax),
    };
    let Some(zset) = edit.read::<Zset>(&args.key(1))? else {
        reply.array(0);
        return Ok(Outcome::Unchanged);
    };
    let (len, ranks) = (zset.len(), end.ranks(count.unwrap_or(1), zset.len()));
    match (count, zset.at(ranks.start)) {
        // A single member and its score are no pair within an array, whatever the protocol.
        (None, Some((member, score))) => {
            reply.array(2);
            reply_member(reply, member);
            reply_score(reply, score);
        }
        _ => end.reply(zset, ranks.clone(), Scores::With, reply),
    }
    end.take(edit, args, 1, ranks, len)
}

/// ZMPOP numkeys key [key ...] <MIN | MAX> [COUNT count]
pub(super) fn zmpop(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let (keys, end, count) = parse_mpop(args, 1)?;
    let popped = pop_first(edit, args, &keys, end, count, reply)?;
    if popped.is_none() {
        reply.null_array();
    }
    Ok(popped.unwrap_or(Outcome::Unchanged))
}

/// BZMPOP timeout numkeys key [key ...] <MIN | MAX> [COUNT count]
pub(super) fn bzmpop(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let (keys, end, count) = parse_mpop(args, 2)?;
    let until = timeout(args.bytes(1), args.now)?;
    match pop_first(edit, args, &keys, end, count, reply)? {
        Some(outcome) => Ok(outcome),
        None => Ok(wait_for(keys, until)),
    }
}

/// BZPOPMIN key [key ...] timeout
pub(super) fn bzpopmin(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    pop_or_wait(edit, args, End::Min, reply)
}

/// BZPOPMAX key [key ...] timeout
pub(super) fn bzpopmax(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    pop_or_wait(edit, args, End::Max, reply)
}

fn pop_or_wait(edit: &mut Edit<'_>, args: &Args<'_>, end: End, reply: &mut Reply<'_>) -> Result<Outcome> {
    let last = args.len() - 1;
    let until = timeout(args.bytes(last), args.now)?;
    for at in 1..last {
        let key = args.key(at);
        if !edit.reaches(&key) {
            continue;
        }
        let Some(zset) = edit.read::<Zset>(&key)? else { continue };
        let (len, ranks) = (zset.len(), end.ranks(1, zset.len()));
        let (member, score) = zset.at(ranks.start).expect("a sorted set in the keyspace is not empty");
        reply.array(3);
        reply.bulk(key.bytes);
        reply_member(reply, member);
        reply_score(reply, score);
        return end.take(edit, args, at, ranks, len);
    }
    Ok(wait_for((1..last).collect(), until))
}

fn wait_for(keys: Vec<usize>, until: Option<sys::UnixMs>) -> Outcome {
    Outcome::Blocked(Box::new(Wait {
        keys: keys.into(),
        wants: TypeName::Zset,
        also_when_gone: false,
        until,
        null: Null::Array,
        rewritten: Vec::new(),
    }))
}

/// The keys, the end and the number of a request whose word `at` is the number of keys.
fn parse_mpop(args: &Args<'_>, at: usize) -> Result<(Vec<usize>, End, usize)> {
    int_within(args.bytes(at), 1..=i64::MAX, "ERR numkeys should be greater than 0")?;
    let mut keys = Vec::new();
    counted_keys(&args.request, at, &mut keys);
    let Some(last) = keys.last() else { return Err(Error::Syntax) };
    let mut options = Options::from(args, last + 1);
    let end = if options.take("MIN") {
        End::Min
    } else if options.take("MAX") {
        End::Max
    } else {
        return Err(Error::Syntax);
    };
    let mut count = None;
    while options.more() {
        match options.take_with_value("COUNT") {
            Some(word) if count.is_none() => {
                count = Some(int_within(word, 1..=i64::MAX, "ERR count should be greater than 0")?);
            }
            _ => options.refuse(),
        }
    }
    options.finish()?;
    Ok((keys, end, count.unwrap_or(1) as usize))
}

/// Takes members off the first of the keys that is there, and replies with its name and them.
fn pop_first(
    edit: &mut Edit<'_>,
    args: &Args<'_>,
    keys: &[usize],
    end: End,
    count: usize,
    reply: &mut Reply<'_>,
) -> Result<Option<Outcome>> {
    for &at in keys {
        let key = args.key(at);
        if !edit.reaches(&key) {
            continue;
        }
        let Some(zset) = edit.read::<Zset>(&key)? else { continue };
        let (len, ranks) = (zset.len(), end.ranks(count, zset.len()));
        reply.array(2);
        reply.bulk(key.bytes);
        end.reply(zset, ranks.clone(), Scores::Paired, reply);
        return end.take(edit, args, at, ranks, len).map(Some);
    }
    Ok(None)
}
