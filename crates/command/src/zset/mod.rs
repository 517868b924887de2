//! Sorted sets: the rows of Redis' sorted-set group, and what its files share.
//!
//! Adding and taking out by name is in `add`, looking up in `look`, ranges in `range`
//! (with their bounds in `bounds`), the ends in `pop`, and unions, intersections and
//! differences in `combine`.
//!
//! Thread rule: handlers run on any worker, with their keys' slots locked.
//!
//! Invariants:
//! 1. A handler parses its arguments before its first edit.
//! 2. A sorted set that has become empty is taken away by the guard that edited it.

pub(crate) mod add;
mod bounds;
mod combine;
mod look;
mod pop;
mod range;

use crate::args::Args;
use crate::generic::remove_for_nothing;
use crate::key_use::{DELETES, EXCHANGES, KeySpec, LOOKS, OVERWRITES, READS, TAKES};
use crate::row::Handler::{BlockingWrite, Read, Write};
use crate::row::{Flags, Group, Handler, Keys, Row};
use keyspace::{Class, Edit, Expiry};
use value::listpack::Element;
use value::number::{IntBuffer, format_f64};
use value::zset::Zset;
use wire::{Protocol, Reply, Request};

const FAST: Flags = Flags::FAST;
const DENYOOM: Flags = Flags::DENYOOM;
const MOVABLE: Flags = Flags::MOVABLEKEYS;
const SLOW: Flags = Flags::empty();

const LOG: &str = "O(log(N)), N being the number of members";
const RANGE_COST: &str = "O(log(N)+M), N being the number of members and M those in the range";
const POP_COST: &str = "O(log(N)*M), N being the number of members and M those taken";
const UNION_COST: &str = "O(N)+O(M*log(M)), N being the members of all sets and M those of the result";
const INTER_COST: &str = "O(N*K)+O(M*log(M)), N being the members of the smallest of K sets and M those of \
                          the result";
const DIFF_COST: &str = "O(L)+O(M*log(M)), L being the members of all sets and M those of the result";

/// A destination, and as many sources as the word behind it says.
const STORE_SPECS: &[KeySpec] = &[KeySpec::at(1, OVERWRITES), KeySpec::numkeys(2, READS)];

/// The sorted-set group.
pub const ROWS: &[Row] = &[
    row("bzmpop", -5, BlockingWrite(pop::bzmpop), Flags::BLOCKING.union(MOVABLE))
        .keys(Keys::Movable(keys_counted_at_2))
        .key_specs(&[KeySpec::numkeys(2, TAKES)])
        .since("7.0.0")
        .complexity(POP_COST)
        .syntax("timeout numkeys key [key ...] <MIN | MAX> [COUNT count]")
        .summary("Takes members off an end of the first sorted set that has any; waits if none has."),
    row("bzpopmax", -3, BlockingWrite(pop::bzpopmax), FAST.union(Flags::BLOCKING))
        .keys(Keys::Range { first: 1, last: -2, step: 1 })
        .key_flags(&[TAKES])
        .since("5.0.0")
        .complexity(LOG)
        .syntax("key [key ...] timeout")
        .summary("Takes the member with the highest score off the first sorted set that has any, or waits."),
    row("bzpopmin", -3, BlockingWrite(pop::bzpopmin), FAST.union(Flags::BLOCKING))
        .keys(Keys::Range { first: 1, last: -2, step: 1 })
        .key_flags(&[TAKES])
        .since("5.0.0")
        .complexity(LOG)
        .syntax("key [key ...] timeout")
        .summary("Takes the member with the lowest score off the first sorted set that has any, or waits."),
    row("zadd", -4, Write(add::zadd), DENYOOM.union(FAST))
        .element(3)
        .complexity("O(log(N)) for each member added, N being the number of members")
        .syntax("key [NX | XX] [GT | LT] [CH] [INCR] score member [score member ...]")
        .summary("Adds members with their scores, or gives members other scores."),
    row("zcard", 2, Read(look::zcard), FAST)
        .complexity("O(1)")
        .syntax("key")
        .key_flags(&[LOOKS])
        .summary("Tells how many members there are."),
    row("zcount", 4, Read(range::zcount), FAST)
        .since("2.0.0")
        .complexity(LOG)
        .syntax("key min max")
        .summary("Counts the members with scores in a range."),
    row("zdiff", -3, Read(combine::zdiff), MOVABLE)
        .keys(Keys::Movable(keys_counted_at_1))
        .key_specs(&[KeySpec::numkeys(1, READS)])
        .since("6.2.0")
        .complexity(DIFF_COST)
        .syntax("numkeys key [key ...] [WITHSCORES]")
        .summary("Replies with the members of the first sorted set that are in none of the others."),
    row("zdiffstore", -4, Write(combine::zdiffstore), DENYOOM.union(MOVABLE))
        .keys(Keys::Movable(destination_and_keys))
        .key_specs(STORE_SPECS)
        .since("6.2.0")
        .complexity(DIFF_COST)
        .syntax("destination numkeys key [key ...]")
        .summary("Stores the members of the first sorted set that are in none of the others."),
    row("zincrby", 4, Write(add::zincrby), DENYOOM.union(FAST))
        .element(3)
        .complexity(LOG)
        .syntax("key increment member")
        .key_flags(&[EXCHANGES])
        .summary("Adds to a member's score, which counts as 0 if the member is not there."),
    row("zinter", -3, Read(combine::zinter), MOVABLE)
        .keys(Keys::Movable(keys_counted_at_1))
        .key_specs(&[KeySpec::numkeys(1, READS)])
        .since("6.2.0")
        .complexity(INTER_COST)
        .syntax(
            "numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE <SUM | MIN | MAX>] [WITHSCORES]",
        )
        .summary("Replies with the members that all of the sorted sets have."),
    row("zintercard", -3, Read(combine::zintercard), MOVABLE)
        .keys(Keys::Movable(keys_counted_at_1))
        .key_specs(&[KeySpec::numkeys(1, READS)])
        .since("7.0.0")
        .complexity("O(N*K), N being the members of the smallest of K sets")
        .syntax("numkeys key [key ...] [LIMIT limit]")
        .summary("Counts the members that all of the sorted sets have."),
    row("zinterstore", -4, Write(combine::zinterstore), DENYOOM.union(MOVABLE))
        .keys(Keys::Movable(destination_and_keys))
        .key_specs(STORE_SPECS)
        .since("2.0.0")
        .complexity(INTER_COST)
        .syntax(
            "destination numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE <SUM | MIN | MAX>]",
        )
        .summary("Stores the members that all of the sorted sets have."),
    row("zlexcount", 4, Read(range::zlexcount), FAST)
        .since("2.8.9")
        .complexity(LOG)
        .syntax("key min max")
        .summary("Counts the members in a range of members."),
    row("zmpop", -4, Write(pop::zmpop), MOVABLE)
        .keys(Keys::Movable(keys_counted_at_1))
        .key_specs(&[KeySpec::numkeys(1, TAKES)])
        .since("7.0.0")
        .complexity(POP_COST)
        .syntax("numkeys key [key ...] <MIN | MAX> [COUNT count]")
        .summary("Takes members off an end of the first sorted set that has any."),
    row("zmscore", -3, Read(look::zmscore), FAST)
        .since("6.2.0")
        .complexity("O(N), N being the number of members asked for")
        .syntax("key member [member ...]")
        .summary("Replies with the scores of several members."),
    row("zpopmax", -2, Write(pop::zpopmax), FAST)
        .since("5.0.0")
        .complexity(POP_COST)
        .syntax("key [count]")
        .key_flags(&[TAKES])
        .summary("Takes off the members with the highest scores."),
    row("zpopmin", -2, Write(pop::zpopmin), FAST)
        .since("5.0.0")
        .complexity(POP_COST)
        .syntax("key [count]")
        .key_flags(&[TAKES])
        .summary("Takes off the members with the lowest scores."),
    row("zrandmember", -2, Read(look::zrandmember), SLOW)
        .since("6.2.0")
        .complexity("O(N), N being the number of members in the reply")
        .syntax("key [count [WITHSCORES]]")
        .summary("Replies with members picked by chance.")
        .tips(&["nondeterministic_output"]),
    row("zrange", -4, Read(range::zrange), SLOW)
        .complexity(RANGE_COST)
        .syntax("key start stop [BYSCORE | BYLEX] [REV] [LIMIT offset count] [WITHSCORES]")
        .summary("Replies with the members in a range of ranks, scores or members."),
    row("zrangebylex", -4, Read(range::zrangebylex), SLOW)
        .since("2.8.9")
        .complexity(RANGE_COST)
        .syntax("key min max [LIMIT offset count]")
        .summary("Replies with the members in a range of members."),
    row("zrangebyscore", -4, Read(range::zrangebyscore), SLOW)
        .since("1.0.5")
        .complexity(RANGE_COST)
        .syntax("key min max [WITHSCORES] [LIMIT offset count]")
        .summary("Replies with the members with scores in a range."),
    row("zrangestore", -5, Write(range::zrangestore), DENYOOM)
        .keys(Keys::TWO)
        .key_flags(&[OVERWRITES, READS])
        .since("6.2.0")
        .complexity(RANGE_COST)
        .syntax("destination source min max [BYSCORE | BYLEX] [REV] [LIMIT offset count]")
        .summary("Stores the members in a range of ranks, scores or members."),
    row("zrank", -3, Read(look::zrank), FAST)
        .element(2)
        .since("2.0.0")
        .complexity(LOG)
        .syntax("key member [WITHSCORE]")
        .summary("Tells how many members come before one."),
    row("zrem", -3, Write(add::zrem), FAST)
        .element(2)
        .complexity("O(M*log(N)), N being the number of members and M those to be taken out")
        .syntax("key member [member ...]")
        .key_flags(&[DELETES])
        .summary("Takes members out."),
    row("zremrangebylex", 4, Write(range::zremrangebylex), SLOW)
        .since("2.8.9")
        .complexity(RANGE_COST)
        .syntax("key min max")
        .key_flags(&[DELETES])
        .summary("Takes out the members in a range of members."),
    row("zremrangebyrank", 4, Write(range::zremrangebyrank), SLOW)
        .since("2.0.0")
        .complexity(RANGE_COST)
        .syntax("key start stop")
        .key_flags(&[DELETES])
        .summary("Takes out the members in a range of ranks."),
    row("zremrangebyscore", 4, Write(range::zremrangebyscore), SLOW)
        .complexity(RANGE_COST)
        .syntax("key min max")
        .key_flags(&[DELETES])
        .summary("Takes out the members with scores in a range."),
    row("zrevrange", -4, Read(range::zrevrange), SLOW)
        .complexity(RANGE_COST)
        .syntax("key start stop [WITHSCORES]")
        .summary("Replies with the members in a range of ranks counted from the highest score."),
    row("zrevrangebylex", -4, Read(range::zrevrangebylex), SLOW)
        .since("2.8.9")
        .complexity(RANGE_COST)
        .syntax("key max min [LIMIT offset count]")
        .summary("Replies with the members in a range of members, from the last to the first."),
    row("zrevrangebyscore", -4, Read(range::zrevrangebyscore), SLOW)
        .since("2.2.0")
        .complexity(RANGE_COST)
        .syntax("key max min [WITHSCORES] [LIMIT offset count]")
        .summary("Replies with the members with scores in a range, from the highest to the lowest."),
    row("zrevrank", -3, Read(look::zrevrank), FAST)
        .element(2)
        .since("2.0.0")
        .complexity(LOG)
        .syntax("key member [WITHSCORE]")
        .summary("Tells how many members come behind one."),
    row("zscan", -3, Read(look::zscan), SLOW)
        .since("2.8.0")
        .complexity("O(1) per call, O(N) for all calls of a scan over N members")
        .syntax("key cursor [MATCH pattern] [COUNT count]")
        .summary("Goes over the members with their scores, some at each call.")
        .tips(&["nondeterministic_output"]),
    row("zscore", 3, Read(look::zscore), FAST)
        .element(2)
        .complexity("O(1)")
        .syntax("key member")
        .summary("Replies with a member's score."),
    row("zunion", -3, Read(combine::zunion), MOVABLE)
        .keys(Keys::Movable(keys_counted_at_1))
        .key_specs(&[KeySpec::numkeys(1, READS)])
        .since("6.2.0")
        .complexity(UNION_COST)
        .syntax(
            "numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE <SUM | MIN | MAX>] [WITHSCORES]",
        )
        .summary("Replies with the members that any of the sorted sets has."),
    row("zunionstore", -4, Write(combine::zunionstore), DENYOOM.union(MOVABLE))
        .keys(Keys::Movable(destination_and_keys))
        .key_specs(STORE_SPECS)
        .since("2.0.0")
        .complexity(UNION_COST)
        .syntax(
            "destination numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE <SUM | MIN | MAX>]",
        )
        .summary("Stores the members that any of the sorted sets has."),
];

/// A row of the group; its one key is argument 1 unless it says otherwise.
const fn row(name: &'static str, arity: i32, handler: Handler, flags: Flags) -> Row {
    crate::row::row(name, arity, handler)
        .flags(flags)
        .keys(Keys::FIRST)
        .group(Group::SortedSet)
        .since("1.2.0")
}

/// The keys that word 1 counts and that follow it.
fn keys_counted_at_1(request: &Request<'_>, positions: &mut Vec<usize>) {
    counted_keys(request, 1, positions);
}

/// The keys that word 2 counts and that follow it.
fn keys_counted_at_2(request: &Request<'_>, positions: &mut Vec<usize>) {
    counted_keys(request, 2, positions);
}

/// Key 1, and the keys that word 2 counts and that follow it.
fn destination_and_keys(request: &Request<'_>, positions: &mut Vec<usize>) {
    positions.push(1);
    counted_keys(request, 2, positions);
}

/// No keys if the number is none or more than there are words.
fn counted_keys(request: &Request<'_>, at: usize, positions: &mut Vec<usize>) {
    let number = request.get(at).and_then(value::number::parse_i64).and_then(|n| usize::try_from(n).ok());
    if let Some(number) = number.filter(|number| *number <= request.len().saturating_sub(at + 1)) {
        positions.extend(at + 1..=at + number);
    }
}

/// Replies with a score.
pub(crate) fn reply_score(reply: &mut Reply<'_>, score: f64) {
    match reply.protocol() {
        Protocol::Resp2 => reply.bulk(format_f64(score).as_bytes()),
        Protocol::Resp3 => reply.double(score),
    }
}

/// Replies with a member.
pub(crate) fn reply_member(reply: &mut Reply<'_>, member: Element<'_>) {
    match member {
        Element::Bytes(bytes) => reply.bulk(bytes),
        Element::Int(number) => reply.bulk_int(number),
    }
}

/// Whether a reply's members come with their scores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Scores {
    /// They come alone.
    #[default]
    Without,
    /// Each is followed by its score, in RESP3 as a pair.
    With,
    /// Each and its score are a pair in either protocol.
    Paired,
}

impl Scores {
    /// Replies with members, of which there are as many as the iterator says.
    fn reply<'a>(self, reply: &mut Reply<'_>, members: impl ExactSizeIterator<Item = (Element<'a>, f64)>) {
        let is_paired = self == Scores::Paired || self == Scores::With && reply.protocol() == Protocol::Resp3;
        let is_flat = self == Scores::With && !is_paired;
        reply.array(members.len() * if is_flat { 2 } else { 1 });
        for (member, score) in members {
            if reply.is_over() {
                break;
            }
            if is_paired {
                reply.array(2);
            }
            reply_member(reply, member);
            if self != Scores::Without {
                reply_score(reply, score);
            }
        }
    }
}

/// Puts a sorted set made of others under a key, or takes the key away if the sorted set is
/// empty. Tells whether anything changed.
pub(crate) fn store(
    edit: &mut Edit<'_>,
    args: &Args<'_>,
    at: usize,
    zset: Zset,
    event: &'static str,
) -> bool {
    use keyspace::Type;
    let key = args.key(at);
    if !zset.is_empty() {
        edit.put_collection(&key, zset, Expiry::Clear);
        edit.note(Class::ZSET, event, &key);
        return true;
    }
    remove_for_nothing(edit, &key)
}

/// The text of a member.
pub(crate) fn text<'b>(member: Element<'b>, digits: &'b mut IntBuffer) -> &'b [u8] {
    member.bytes(digits)
}
