//! Members by name, changed: ZADD, ZINCRBY, ZREM.
//!
//! Thread rule: as for all handlers.

use super::reply_score;
use crate::args::Args;
use crate::error::{Error, Result};
use crate::parse::Options;
use crate::row::Outcome;
use keyspace::{Class, Edit};
use smallvec::SmallVec;
use std::convert::Infallible;
use value::number::parse_f64;
use value::zset::{Updated, Zset};
use wire::Reply;

/// Which members ZADD looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Presence {
    /// All.
    #[default]
    Any,
    /// Those that are not there: NX.
    Absent,
    /// Those that are there: XX.
    Present,
}

/// Which changes of a score ZADD makes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Change {
    #[default]
    Any,
    /// To a higher score: GT.
    Up,
    /// To a lower score: LT.
    Down,
}

/// The rules of ZADD.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rules {
    pub(crate) presence: Presence,
    pub(crate) change: Change,
    /// The reply counts changed members too: CH.
    pub(crate) counts_changed: bool,
}

impl Rules {
    /// The score that a member gets, None if it stays as it is.
    fn decide(self, old: Option<f64>, new: f64) -> Option<f64> {
        match (old, self.presence) {
            (Some(_), Presence::Absent) | (None, Presence::Present) => None,
            (None, _) => Some(new),
            (Some(old), _) => match self.change {
                Change::Any => Some(new),
                Change::Up => (new > old).then_some(new),
                Change::Down => (new < old).then_some(new),
            },
        }
    }
}

/// The options of ZADD, and where its scores begin.
struct ZaddOptions {
    rules: Rules,
    is_increment: bool,
    first: usize,
}

impl ZaddOptions {
    fn parse(args: &Args<'_>) -> Result<ZaddOptions> {
        let (mut nx, mut xx, mut gt, mut lt, mut ch, mut incr) = (false, false, false, false, false, false);
        let mut options = Options::from(args, 2);
        let mut first = 2;
        while options.more() {
            let mut take = |word, flag: &mut bool| {
                let taken = options.take(word);
                *flag |= taken;
                taken
            };
            let taken = take("NX", &mut nx)
                || take("XX", &mut xx)
                || take("CH", &mut ch)
                || take("INCR", &mut incr)
                || take("GT", &mut gt)
                || take("LT", &mut lt);
            if !taken {
                break;
            }
            first += 1;
        }
        let words = args.len() - first;
        if words == 0 || !words.is_multiple_of(2) {
            return Err(Error::Syntax);
        }
        if nx && xx {
            return Err(Error::text("ERR XX and NX options at the same time are not compatible"));
        }
        if (gt || lt) && nx || gt && lt {
            let text = "ERR GT, LT, and/or NX options at the same time are not compatible";
            return Err(Error::text(text));
        }
        if incr && words > 2 {
            return Err(Error::text("ERR INCR option supports a single increment-element pair"));
        }
        let presence = match (nx, xx) {
            (true, _) => Presence::Absent,
            (_, true) => Presence::Present,
            _ => Presence::Any,
        };
        let change = match (gt, lt) {
            (true, _) => Change::Up,
            (_, true) => Change::Down,
            _ => Change::Any,
        };
        Ok(ZaddOptions { rules: Rules { presence, change, counts_changed: ch }, is_increment: incr, first })
    }
}

/// Members with their scores, in most cases without an allocation.
type Members<'a> = SmallVec<[(&'a [u8], f64); 4]>;

/// A score as an argument.
fn score(word: &[u8]) -> Result<f64> {
    parse_f64(word).ok_or(Error::NotFloat)
}

/// ZADD key [NX | XX] [GT | LT] [CH] [INCR] score member [score member ...]
pub(super) fn zadd(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let options = ZaddOptions::parse(args)?;
    if options.is_increment {
        let increment = score(args.bytes(options.first))?;
        return increase(edit, args, options.rules, increment, args.bytes(options.first + 1), reply);
    }
    // All scores are looked at before the first edit.
    let members: Result<Members<'_>> = (options.first..args.len())
        .step_by(2)
        .map(|position| Ok((args.bytes(position + 1), score(args.bytes(position))?)))
        .collect();
    add(edit, args, options.rules, &members?, reply)
}

/// Adds members or changes their scores, and replies with how many. The texts of
/// scores have been checked.
pub(crate) fn add(
    edit: &mut Edit<'_>,
    args: &Args<'_>,
    rules: Rules,
    members: &[(&[u8], f64)],
    reply: &mut Reply<'_>,
) -> Result<Outcome> {
    let thresholds = args.settings.thresholds();
    let key = args.key(1);
    let mut zset = if rules.presence == Presence::Present {
        let Some(zset) = edit.open::<Zset>(&key)? else {
            reply.int(0);
            return Ok(Outcome::Unchanged);
        };
        zset
    } else {
        edit.open_or_new(&key, || {
            // As in Redis 7.2, which looks no further: a -0 in front of a longer member has lost its sign when that comes.
            let first_bytes = members.first().map_or(0, |(member, _)| member.len());
            Zset::for_members(members.len(), first_bytes, &thresholds)
        })?
    };
    zset.expect_members(members.len(), &thresholds);
    let (mut added, mut changed) = (0, 0);
    for &(member, score) in members {
        let updated: Result<Updated, Infallible> =
            zset.update(member, &thresholds, |old| Ok(rules.decide(old, score)));
        match updated {
            Ok(Updated::Added(_)) => added += 1,
            Ok(Updated::Changed(_)) => changed += 1,
            Ok(Updated::Same(_) | Updated::Nothing) => {}
            Err(never) => match never {},
        }
    }
    reply.int(if rules.counts_changed { added + changed } else { added });
    if added + changed == 0 {
        return Ok(Outcome::Unchanged);
    }
    zset.note(Class::ZSET, "zadd");
    Ok(Outcome::Changed)
}

/// ZINCRBY key increment member
pub(super) fn zincrby(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let increment = score(args.bytes(2))?;
    increase(edit, args, Rules::default(), increment, args.bytes(3), reply)
}

/// Adds to a member's score and replies with the new one; null if the rules forbid it.
fn increase(
    edit: &mut Edit<'_>,
    args: &Args<'_>,
    rules: Rules,
    increment: f64,
    member: &[u8],
    reply: &mut Reply<'_>,
) -> Result<Outcome> {
    let thresholds = args.settings.thresholds();
    let key = args.key(1);
    let mut zset = if rules.presence == Presence::Present {
        let Some(zset) = edit.open::<Zset>(&key)? else {
            reply.null();
            return Ok(Outcome::Unchanged);
        };
        zset
    } else {
        edit.open_or_new(&key, || Zset::for_members(1, member.len(), &thresholds))?
    };
    zset.expect_members(1, &thresholds);
    let updated = zset.update(member, &thresholds, |old| {
        let new = old.map_or(increment, |old| old + increment);
        let is_wanted = old.is_none() || rules.presence != Presence::Absent;
        if new.is_nan() && is_wanted {
            return Err(Error::text("ERR resulting score is not a number (NaN)"));
        }
        Ok(rules.decide(old, new))
    })?;
    match updated {
        Updated::Nothing => reply.null(),
        Updated::Added(score) | Updated::Changed(score) | Updated::Same(score) => reply_score(reply, score),
    }
    if matches!(updated, Updated::Nothing | Updated::Same(_)) {
        return Ok(Outcome::Unchanged);
    }
    zset.note(Class::ZSET, "zincr");
    Ok(Outcome::Changed)
}

/// ZREM key member [member ...]
pub(super) fn zrem(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let Some(mut zset) = edit.open::<Zset>(&args.key(1))? else {
        reply.int(0);
        return Ok(Outcome::Unchanged);
    };
    let removed = (2..args.len()).filter(|position| zset.remove(args.bytes(*position)).is_some()).count();
    reply.int(removed as i64);
    if removed == 0 {
        return Ok(Outcome::Unchanged);
    }
    zset.note(Class::ZSET, "zrem");
    Ok(Outcome::Changed)
}
