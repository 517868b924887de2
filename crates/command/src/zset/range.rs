//! Ranges by rank, score and member: read, counted, stored and taken out.
//!
//! A request is parsed into a [`Query`], which finds the range of ranks; all else
//! follows from that.
//!
//! Thread rule: as for all handlers.

use super::{Scores, bounds, store};
use crate::args::Args;
use crate::error::{Error, Result};
use crate::parse::{Options, int};
use crate::row::Outcome;
use keyspace::{Class, Edit, View};
use std::ops::Range;
use value::zset::{Direction, LexRange, ScoreRange, Zset, ZsetRef};
use wire::Reply;

/// What a range is one of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    Ranks,
    Scores,
    Members,
}

/// A range, parsed.
#[derive(Clone, Copy, Debug)]
enum Bounds<'a> {
    Ranks(i64, i64),
    Scores(ScoreRange),
    Members(LexRange<'a>),
}

impl<'a> Bounds<'a> {
    fn parse(of: Of, min: &'a [u8], max: &'a [u8]) -> Result<Bounds<'a>> {
        Ok(match of {
            Of::Ranks => Bounds::Ranks(int(min)?, int(max)?),
            Of::Scores => Bounds::Scores(bounds::scores(min, max)?),
            Of::Members => Bounds::Members(bounds::members(min, max)?),
        })
    }

    /// The ranks, counted from the lowest score whatever the direction.
    fn ranks(&self, zset: ZsetRef<'_>, direction: Direction) -> Range<usize> {
        match self {
            Bounds::Ranks(start, stop) => {
                let ranks = rank_range(*start, *stop, zset.len());
                match direction {
                    Direction::Forward => ranks,
                    Direction::Backward => zset.len() - ranks.end..zset.len() - ranks.start,
                }
            }
            Bounds::Scores(range) => zset.ranks_by_score(range),
            Bounds::Members(range) => zset.ranks_by_lex(range, direction),
        }
    }
}

/// From `start` to `stop`, both included and counted from the end if negative.
fn rank_range(start: i64, stop: i64, len: usize) -> Range<usize> {
    let from_end = |rank: i64| if rank < 0 { rank.saturating_add(len as i64) } else { rank };
    let start = from_end(start).max(0).min(len as i64) as usize;
    let end = from_end(stop).saturating_add(1).clamp(0, len as i64) as usize;
    start..end.max(start)
}

/// LIMIT offset count. A negative count is none; a negative offset leaves nothing.
#[derive(Clone, Copy, Debug)]
struct Limit {
    offset: i64,
    count: i64,
}

impl Limit {
    const NONE: Limit = Limit { offset: 0, count: -1 };

    fn cut(self, ranks: Range<usize>, direction: Direction) -> Range<usize> {
        let offset = usize::try_from(self.offset).unwrap_or(usize::MAX).min(ranks.len());
        let count = usize::try_from(self.count).unwrap_or(usize::MAX).min(ranks.len() - offset);
        match direction {
            Direction::Forward => ranks.start + offset..ranks.start + offset + count,
            Direction::Backward => ranks.end - offset - count..ranks.end - offset,
        }
    }
}

/// What the name of a command settles about a range.
#[derive(Clone, Copy, Debug)]
struct Form {
    /// None: options tell, and they may also reverse the direction.
    fixed: Option<(Of, Direction)>,
    /// Position of the first end of the range.
    first: usize,
    /// Whether WITHSCORES may be asked for.
    may_show_scores: bool,
}

impl Form {
    const fn fixed(of: Of, direction: Direction) -> Form {
        Form { fixed: Some((of, direction)), first: 2, may_show_scores: true }
    }
}

/// A request for a range.
#[derive(Clone, Copy, Debug)]
struct Query<'a> {
    bounds: Bounds<'a>,
    direction: Direction,
    limit: Limit,
    scores: Scores,
}

impl<'a> Query<'a> {
    fn parse(args: &Args<'a>, form: Form) -> Result<Query<'a>> {
        let mut options = Options::from(args, form.first + 2);
        let (mut scores, mut limit) = (Scores::Without, Limit::NONE);
        let (mut of, mut direction) = (None, None);
        let may_choose = form.fixed.is_none();
        while options.more() {
            if form.may_show_scores && options.take("WITHSCORES") {
                scores = Scores::With;
            } else if let Some(offset) = options.take_with_two("LIMIT") {
                limit = Limit { offset: int(offset.0)?, count: int(offset.1)? };
            } else if may_choose && direction.is_none() && options.take("REV") {
                direction = Some(Direction::Backward);
            } else if may_choose && of.is_none() && options.take("BYLEX") {
                of = Some(Of::Members);
            } else if may_choose && of.is_none() && options.take("BYSCORE") {
                of = Some(Of::Scores);
            } else {
                options.refuse();
            }
        }
        options.finish()?;
        let (of, direction) =
            form.fixed.unwrap_or((of.unwrap_or(Of::Ranks), direction.unwrap_or(Direction::Forward)));
        if limit.count != -1 && of == Of::Ranks {
            return Err(Error::text(
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
            ));
        }
        if scores == Scores::With && of == Of::Members {
            return Err(Error::text("ERR syntax error, WITHSCORES not supported in combination with BYLEX"));
        }
        let (mut min, mut max) = (args.bytes(form.first), args.bytes(form.first + 1));
        if direction == Direction::Backward && of != Of::Ranks {
            std::mem::swap(&mut min, &mut max);
        }
        // A LIMIT without a count is let through for ranks, and means nothing there.
        let limit = if of == Of::Ranks { Limit::NONE } else { limit };
        Ok(Query { bounds: Bounds::parse(of, min, max)?, direction, limit, scores })
    }

    fn ranks(&self, zset: ZsetRef<'_>) -> Range<usize> {
        self.limit.cut(self.bounds.ranks(zset, self.direction), self.direction)
    }
}

fn reply_range(view: &View<'_>, args: &Args<'_>, form: Form, reply: &mut Reply<'_>) -> Result<()> {
    let query = Query::parse(args, form)?;
    let Some(zset) = view.read::<Zset>(&args.key(1))? else {
        reply.array(0);
        return Ok(());
    };
    let members = zset.iter(query.ranks(zset));
    match query.direction {
        Direction::Forward => query.scores.reply(reply, members),
        Direction::Backward => query.scores.reply(reply, members.rev()),
    }
    Ok(())
}

/// ZRANGE key start stop [BYSCORE | BYLEX] [REV] [LIMIT offset count] [WITHSCORES]
pub(super) fn zrange(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    reply_range(view, args, Form { fixed: None, first: 2, may_show_scores: true }, reply)
}

/// ZREVRANGE key start stop [WITHSCORES]
pub(super) fn zrevrange(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    reply_range(view, args, Form::fixed(Of::Ranks, Direction::Backward), reply)
}

/// ZRANGEBYSCORE key min max [WITHSCORES] [LIMIT offset count]
pub(super) fn zrangebyscore(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    reply_range(view, args, Form::fixed(Of::Scores, Direction::Forward), reply)
}

/// ZREVRANGEBYSCORE key max min [WITHSCORES] [LIMIT offset count]
pub(super) fn zrevrangebyscore(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    reply_range(view, args, Form::fixed(Of::Scores, Direction::Backward), reply)
}

/// ZRANGEBYLEX key min max [LIMIT offset count]
pub(super) fn zrangebylex(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    reply_range(view, args, Form::fixed(Of::Members, Direction::Forward), reply)
}

/// ZREVRANGEBYLEX key max min [LIMIT offset count]
pub(super) fn zrevrangebylex(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    reply_range(view, args, Form::fixed(Of::Members, Direction::Backward), reply)
}

/// ZRANGESTORE destination source min max [BYSCORE | BYLEX] [REV] [LIMIT offset count]
pub(super) fn zrangestore(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let query = Query::parse(args, Form { fixed: None, first: 3, may_show_scores: false })?;
    let source = args.key(2);
    let zset = edit.read_as_reader::<Zset>(&source)?;
    let members = zset.map_or(Vec::new(), |zset| {
        zset.iter(query.ranks(zset)).map(|(member, score)| (member.to_vec(), score)).collect()
    });
    reply.int(members.len() as i64);
    let zset = Zset::from_members(members, &args.settings.thresholds());
    let is_changed = store(edit, args, 1, zset, "zrangestore");
    Ok(if is_changed { Outcome::Changed } else { Outcome::Unchanged })
}

fn count(view: &View<'_>, args: &Args<'_>, of: Of, reply: &mut Reply<'_>) -> Result<()> {
    let bounds = Bounds::parse(of, args.bytes(2), args.bytes(3))?;
    let zset = view.read::<Zset>(&args.key(1))?;
    reply.int(zset.map_or(0, |zset| bounds.ranks(zset, Direction::Forward).len()) as i64);
    Ok(())
}

/// ZCOUNT key min max
pub(super) fn zcount(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    count(view, args, Of::Scores, reply)
}

/// ZLEXCOUNT key min max
pub(super) fn zlexcount(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    count(view, args, Of::Members, reply)
}

fn remove(
    edit: &mut Edit<'_>,
    args: &Args<'_>,
    of: Of,
    event: &'static str,
    reply: &mut Reply<'_>,
) -> Result<Outcome> {
    let bounds = Bounds::parse(of, args.bytes(2), args.bytes(3))?;
    let key = args.key(1);
    let zset = edit.read::<Zset>(&key)?;
    let len = zset.map_or(0, ZsetRef::len);
    let ranks = zset.map_or(0..0, |zset| bounds.ranks(zset, Direction::Forward));
    reply.int(ranks.len() as i64);
    remove_ranks(edit, args, 1, ranks, len, event)
}

/// Takes the members of some ranks out of a sorted set of `len` members. If that is
/// all, the key goes as a whole, however large it is.
pub(super) fn remove_ranks(
    edit: &mut Edit<'_>,
    args: &Args<'_>,
    at: usize,
    ranks: Range<usize>,
    len: usize,
    event: &'static str,
) -> Result<Outcome> {
    let key = args.key(at);
    if ranks.is_empty() {
        return Ok(Outcome::Unchanged);
    }
    if ranks.len() == len {
        edit.remove(&key);
        edit.note(Class::ZSET, event, &key);
        edit.note(Class::GENERIC, "del", &key);
        return Ok(Outcome::Changed);
    }
    let mut zset = edit.open::<Zset>(&key)?.expect("the caller has found it");
    zset.remove_range(ranks);
    zset.note(Class::ZSET, event);
    Ok(Outcome::Changed)
}

/// ZREMRANGEBYRANK key start stop
pub(super) fn zremrangebyrank(
    edit: &mut Edit<'_>,
    args: &Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<Outcome> {
    remove(edit, args, Of::Ranks, "zremrangebyrank", reply)
}

/// ZREMRANGEBYSCORE key min max
pub(super) fn zremrangebyscore(
    edit: &mut Edit<'_>,
    args: &Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<Outcome> {
    remove(edit, args, Of::Scores, "zremrangebyscore", reply)
}

/// ZREMRANGEBYLEX key min max
pub(super) fn zremrangebylex(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    remove(edit, args, Of::Members, "zremrangebylex", reply)
}
