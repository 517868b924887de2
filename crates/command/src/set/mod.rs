//! Sets: the rows of Redis' set group, and the handlers for members of one set.
//! Those for several sets are in `combine`, those that pick by chance in `random`.
//!
//! Thread rule: handlers run on any worker, with their keys' slots locked.
//!
//! Invariants:
//! 1. No key holds an empty set: a set goes away with its last member.
//! 2. Encodings change where Redis changes them, in `value::set`; no handler knows them.

mod combine;
mod random;
mod scan;

use crate::args::Args;
use crate::error::Result;
use crate::key_use::{DELETES, INSERTS, KeySpec, LOOKS, OVERWRITES, READS, TAKES, UPDATES};
use crate::row::Handler::{Read, Write};
use crate::row::{Flags, Group, Handler, Keys, Outcome, Row};
use keyspace::{Class, Edit, View};
use value::listpack::Element;
use value::number::IntBuffer;
use value::set::Set;
use wire::Reply;

/// Tips of commands whose members come in no order.
const UNORDERED: &[&str] = &["nondeterministic_output_order"];
/// Tips of commands whose reply changes from one call to the next.
const VARIES: &[&str] = &["nondeterministic_output"];

/// The set group.
pub const ROWS: &[Row] = &[
    row("sadd", -3, Write(sadd), Flags::DENYOOM.union(Flags::FAST))
        .element(2)
        .complexity("O(1) for each member, O(N) for N members.")
        .syntax("key member [member ...]")
        .key_flags(&[INSERTS])
        .summary("Adds members to a set and tells how many it did not have."),
    row("scard", 2, Read(scard), Flags::FAST)
        .syntax("key")
        .key_flags(&[LOOKS])
        .summary("Tells how many members a set has."),
    row("sdiff", -2, Read(combine::sdiff), Flags::empty())
        .keys(Keys::ALL)
        .complexity("O(N) in the members of all sets.")
        .syntax("key [key ...]")
        .summary("Lists the members of the first set that none of the others has.")
        .tips(UNORDERED),
    row("sdiffstore", -3, Write(combine::sdiffstore), Flags::DENYOOM)
        .keys(Keys::ALL)
        .complexity("O(N) in the members of all sets.")
        .syntax("destination key [key ...]")
        .key_flags(&[OVERWRITES, READS])
        .summary("Stores the members of the first set that none of the others has."),
    row("sinter", -2, Read(combine::sinter), Flags::empty())
        .keys(Keys::ALL)
        .complexity("O(N*M) at worst, N being the members of the smallest set and M the number of sets.")
        .syntax("key [key ...]")
        .summary("Lists the members that all sets have.")
        .tips(UNORDERED),
    row("sintercard", -3, Read(combine::sintercard), Flags::MOVABLEKEYS)
        .keys(Keys::Movable(combine::sintercard_keys))
        .key_specs(&[KeySpec::numkeys(1, READS)])
        .since("7.0.0")
        .complexity("O(N*M) at worst, N being the members of the smallest set and M the number of sets.")
        .syntax("numkeys key [key ...] [LIMIT limit]")
        .summary("Counts the members that all sets have, up to a limit."),
    row("sinterstore", -3, Write(combine::sinterstore), Flags::DENYOOM)
        .keys(Keys::ALL)
        .complexity("O(N*M) at worst, N being the members of the smallest set and M the number of sets.")
        .syntax("destination key [key ...]")
        .key_flags(&[UPDATES, READS])
        .summary("Stores the members that all sets have."),
    row("sismember", 3, Read(sismember), Flags::FAST)
        .element(2)
        .syntax("key member")
        .key_flags(&[LOOKS])
        .summary("Tells whether a set has a member."),
    row("smembers", 2, Read(smembers), Flags::empty())
        .complexity("O(N) in the members of the set.")
        .syntax("key")
        .summary("Lists the members of a set.")
        .tips(UNORDERED),
    row("smismember", -3, Read(smismember), Flags::FAST)
        .element(2)
        .since("6.2.0")
        .complexity("O(N) for N members asked for.")
        .syntax("key member [member ...]")
        .summary("Tells for each of several members whether a set has it."),
    row("smove", 4, Write(smove), Flags::FAST)
        .keys(Keys::TWO)
        .syntax("source destination member")
        .key_flags(&[TAKES, INSERTS])
        .summary("Moves a member from one set to another."),
    row("spop", -2, Write(random::spop), Flags::FAST)
        .complexity("O(1) for one member, O(N) for N members.")
        .syntax("key [count]")
        .key_flags(&[TAKES])
        .summary("Takes members out of a set, picked by chance.")
        .tips(VARIES),
    row("srandmember", -2, Read(random::srandmember), Flags::empty())
        .complexity("O(1) for one member, O(N) for N members.")
        .syntax("key [count]")
        .summary("Shows members of a set, picked by chance.")
        .tips(VARIES),
    row("srem", -3, Write(srem), Flags::FAST)
        .element(2)
        .complexity("O(N) for N members.")
        .syntax("key member [member ...]")
        .key_flags(&[DELETES])
        .summary("Takes members out of a set and tells how many it had."),
    row("sscan", -3, Read(scan::sscan), Flags::empty())
        .since("2.8.0")
        .complexity("O(1) per call, O(N) for all calls of a scan over N members.")
        .syntax("key cursor [MATCH pattern] [COUNT count]")
        .summary("Goes over the members of a set, some at each call.")
        .tips(VARIES),
    row("sunion", -2, Read(combine::sunion), Flags::empty())
        .keys(Keys::ALL)
        .complexity("O(N) in the members of all sets.")
        .syntax("key [key ...]")
        .summary("Lists the members that any of the sets has.")
        .tips(UNORDERED),
    row("sunionstore", -3, Write(combine::sunionstore), Flags::DENYOOM)
        .keys(Keys::ALL)
        .complexity("O(N) in the members of all sets.")
        .syntax("destination key [key ...]")
        .key_flags(&[OVERWRITES, READS])
        .summary("Stores the members that any of the sets has."),
];

/// A row of the group; its one key is argument 1 unless it says otherwise.
const fn row(name: &'static str, arity: i32, handler: Handler, flags: Flags) -> Row {
    crate::row::row(name, arity, handler).flags(flags).keys(Keys::FIRST).group(Group::Set)
}

/// Replies with a member.
fn reply_member(reply: &mut Reply<'_>, member: Element<'_>) {
    reply.bulk(member.bytes(&mut IntBuffer::new()));
}

/// SADD key member [member ...]
fn sadd(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let (key, thresholds, members) = (args.key(1), args.settings.thresholds(), args.len() - 2);
    let mut set = edit.open_or_new(&key, || Set::new_for(args.bytes(2), members, &thresholds))?;
    set.prepare_for(members, &thresholds);
    let added = (2..args.len()).filter(|position| set.insert(args.bytes(*position), &thresholds)).count();
    reply.int(added as i64);
    if added == 0 {
        return Ok(Outcome::Unchanged);
    }
    set.note(Class::SET, "sadd");
    Ok(Outcome::Changed)
}

/// SREM key member [member ...]
fn srem(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let key = args.key(1);
    let Some(mut set) = edit.open::<Set>(&key)? else {
        reply.int(0);
        return Ok(Outcome::Unchanged);
    };
    let removed = (2..args.len()).filter(|position| set.remove(args.bytes(*position))).count();
    reply.int(removed as i64);
    if removed == 0 {
        return Ok(Outcome::Unchanged);
    }
    set.note(Class::SET, "srem");
    Ok(Outcome::Changed)
}

/// SMOVE source destination member
fn smove(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let (source, target, member) = (args.key(1), args.key(2), args.bytes(3));
    let thresholds = args.settings.thresholds();
    let Some(is_member) = edit.read::<Set>(&source)?.map(|set| set.contains(member)) else {
        reply.int(0);
        return Ok(Outcome::Unchanged);
    };
    edit.read::<Set>(&target)?;
    reply.int(i64::from(is_member));
    if !is_member || source.bytes == target.bytes {
        return Ok(Outcome::Unchanged);
    }
    if let Some(mut set) = edit.open::<Set>(&source)? {
        set.remove(member);
        set.note(Class::SET, "srem");
    }
    let mut set = edit.open_or_new(&target, || Set::new_for(member, 1, &thresholds))?;
    if set.insert(member, &thresholds) {
        set.note(Class::SET, "sadd");
    }
    args.log_as(&[b"SREM", source.bytes, member]);
    args.log_as(&[b"SADD", target.bytes, member]);
    Ok(Outcome::Changed)
}

/// SISMEMBER key member
fn sismember(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let set = view.read::<Set>(&args.key(1))?;
    reply.int(i64::from(set.is_some_and(|set| set.contains(args.bytes(2)))));
    Ok(())
}

/// SMISMEMBER key member [member ...]
fn smismember(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let set = view.read::<Set>(&args.key(1))?;
    reply.array(args.len() - 2);
    for position in 2..args.len() {
        reply.int(i64::from(set.is_some_and(|set| set.contains(args.bytes(position)))));
    }
    Ok(())
}

/// SCARD key
fn scard(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    reply.int(view.read::<Set>(&args.key(1))?.map_or(0, |set| set.len()) as i64);
    Ok(())
}

/// SMEMBERS key
fn smembers(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let set = view.read::<Set>(&args.key(1))?;
    reply.set(set.map_or(0, |set| set.len()));
    set.into_iter().flat_map(|set| set.iter()).for_each(|member| reply_member(reply, member));
    Ok(())
}
