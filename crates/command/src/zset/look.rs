//! Looking members up: ZCARD, ZSCORE, ZMSCORE, ZRANK, ZRANDMEMBER, ZSCAN.
//!
//! Thread rule: as for all handlers.

use super::{Scores, reply_member, reply_score, text};
use crate::args::Args;
use crate::error::{Error, Result};
use crate::generic::scan::{ScanOptions, cursor, reply_scanned};
use crate::limits::RANDOM_REPEATED_MAX;
use crate::parse::int;
use keyspace::View;
use std::collections::HashSet;
use value::number::{IntBuffer, format_f64, format_f64_17g};
use value::zset::{Direction, Zset, ZsetRef};
use wire::Reply;

/// ZCARD key
pub(super) fn zcard(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let len = view.read::<Zset>(&args.key(1))?.map_or(0, ZsetRef::len);
    reply.int(len as i64);
    Ok(())
}

/// ZSCORE key member
pub(super) fn zscore(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let zset = view.read::<Zset>(&args.key(1))?;
    match zset.and_then(|zset| zset.score(args.bytes(2))) {
        Some(score) => reply_score(reply, score),
        None => reply.null(),
    }
    Ok(())
}

/// ZMSCORE key member [member ...]
pub(super) fn zmscore(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let zset = view.read::<Zset>(&args.key(1))?;
    reply.array(args.len() - 2);
    for position in 2..args.len() {
        match zset.and_then(|zset| zset.score(args.bytes(position))) {
            Some(score) => reply_score(reply, score),
            None => reply.null(),
        }
    }
    Ok(())
}

/// ZRANK key member [WITHSCORE]
pub(super) fn zrank(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    reply_rank(view, args, Direction::Forward, reply)
}

/// ZREVRANK key member [WITHSCORE]
pub(super) fn zrevrank(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    reply_rank(view, args, Direction::Backward, reply)
}

fn reply_rank(view: &View<'_>, args: &Args<'_>, direction: Direction, reply: &mut Reply<'_>) -> Result<()> {
    let with_score = match args.len() {
        3 => false,
        4 if args.is(3, "withscore") => true,
        4 => return Err(Error::Syntax),
        _ => return Err(Error::arity(&String::from_utf8_lossy(args.bytes(0)).to_ascii_lowercase())),
    };
    let zset = view.read::<Zset>(&args.key(1))?;
    let Some((zset, (rank, score))) = zset.and_then(|zset| Some(zset).zip(zset.rank(args.bytes(2)))) else {
        if with_score {
            reply.null_array();
        } else {
            reply.null();
        }
        return Ok(());
    };
    if with_score {
        reply.array(2);
    }
    reply.int(match direction {
        Direction::Forward => rank,
        Direction::Backward => zset.len() - 1 - rank,
    } as i64);
    if with_score {
        reply_score(reply, score);
    }
    Ok(())
}

/// ZRANDMEMBER key [count [WITHSCORES]]
pub(super) fn zrandmember(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    if args.len() == 2 {
        let zset = view.read::<Zset>(&args.key(1))?;
        match zset.and_then(|zset| zset.at(random_rank(view, zset.len()))) {
            Some((member, _)) => reply_member(reply, member),
            None => reply.null(),
        }
        return Ok(());
    }
    let count = int(args.bytes(2))?;
    if count == i64::MIN {
        return Err(Error::OUTSIDE_POSITIVE_INT64);
    }
    let scores = match args.len() {
        3 => Scores::Without,
        4 if args.is(3, "withscores") => Scores::With,
        _ => return Err(Error::Syntax),
    };
    if scores == Scores::With && count.unsigned_abs() > (i64::MAX / 2) as u64 || count < -RANDOM_REPEATED_MAX
    {
        return Err(Error::text("ERR value is out of range"));
    }
    let Some(zset) = view.read::<Zset>(&args.key(1))?.filter(|_| count != 0) else {
        reply.array(0);
        return Ok(());
    };
    let len = zset.len();
    let at = |rank: usize| zset.at(rank).expect("ranks are picked below the length");
    match usize::try_from(count) {
        Ok(count) if count >= len => scores.reply(reply, zset.iter(0..len).rev()),
        Ok(count) => {
            let ranks = different_ranks(view, len, count);
            scores.reply(reply, ranks.into_iter().map(at));
        }
        Err(_) => {
            let repeated = count.unsigned_abs() as usize;
            scores.reply(reply, (0..repeated).map(|_| at(random_rank(view, len))));
        }
    }
    Ok(())
}

fn random_rank(view: &View<'_>, len: usize) -> usize {
    ((u128::from(view.random()) * len as u128) >> 64) as usize
}

/// So many ranks below `len`, every choice as likely as any other (Floyd's method: Bentley, 1987).
fn different_ranks(view: &View<'_>, len: usize, count: usize) -> Vec<usize> {
    let mut picked = HashSet::with_capacity(count);
    let mut ranks = Vec::with_capacity(count);
    for last in len - count..len {
        let rank = random_rank(view, last + 1);
        let rank = if picked.insert(rank) { rank } else { last };
        picked.insert(rank);
        ranks.push(rank);
    }
    ranks
}

/// ZSCAN key cursor [MATCH pattern] [COUNT count]
pub(super) fn zscan(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let cursor = cursor(args.bytes(2)).ok_or(Error::CURSOR)?;
    let zset = view.read::<Zset>(&args.key(1))?;
    let Some(zset) = zset else {
        // The options of a scan of nothing are not looked at.
        reply_scanned(reply, |_, _| 0);
        return Ok(());
    };
    let options = ScanOptions::of_members(args, 3)?;
    reply_scanned(reply, |members, count| {
        let mut digits = IntBuffer::new();
        zset.scan(cursor.0, options.count, |member, score| {
            if options.matches(text(member, &mut digits)) {
                reply_member(members, member);
                // Redis shows scores of large sorted sets in another form than those of small ones.
                let score = match zset {
                    ZsetRef::Packed(_) => format_f64(score),
                    ZsetRef::Native(_) => format_f64_17g(score),
                };
                members.bulk(score.as_bytes());
                *count += 2;
            }
        })
    });
    Ok(())
}
