//! FLUSHALL, FLUSHDB, SWAPDB: whole databases emptied or exchanged.
//!
//! Thread rule: the handlers have the keyspace alone. Taking the keys away is
//! quick; freeing them is what takes long, so it is done when the other workers
//! are back: by the command before it answers, or with ASYNC by a thread of its own.

use super::existing_db;
use crate::args::Args;
use crate::category::Categories;
use crate::effects;
use crate::error::{Error, Result};
use crate::row::Handler::Exclusive;
use crate::row::{Flags, Group, Outcome, Row, row};
use keyspace::{Cleared, DbIndex};
use wire::Reply;

const ON_ALL: &[&str] = &["request_policy:all_shards", "response_policy:all_succeeded"];

/// Rows of this file.
pub const ROWS: &[Row] = &[
    row("flushall", -1, Exclusive(flushall))
        .flags(Flags::DANGEROUS.union(Flags::EMPTIES_DATABASE).union(Flags::EMPTIES_ALL))
        .group(Group::Server)
        .in_categories(Categories::KEYSPACE)
        .since("1.0.0")
        .complexity("O(N) in the number of keys of all databases.")
        .syntax("[ASYNC | SYNC]")
        .summary("Deletes all keys of all databases.")
        .tips(ON_ALL),
    row("flushdb", -1, Exclusive(flushdb))
        .flags(Flags::DANGEROUS.union(Flags::EMPTIES_DATABASE))
        .group(Group::Server)
        .in_categories(Categories::KEYSPACE)
        .since("1.0.0")
        .complexity("O(N) in the number of keys of the database.")
        .syntax("[ASYNC | SYNC]")
        .summary("Deletes all keys of the session's database.")
        .tips(ON_ALL),
    row("swapdb", 3, Exclusive(swapdb))
        .flags(Flags::FAST.union(Flags::DANGEROUS))
        .group(Group::Server)
        .in_categories(Categories::KEYSPACE)
        .since("4.0.0")
        .complexity("O(N) in the number of sessions that watch or wait for keys of the two.")
        .syntax("index1 index2")
        .summary("Exchanges two databases, for all sessions at once."),
];

/// Keys that are cheaper to free than a thread is to start.
const FREED_IN_PLACE_MAX: u64 = 1000;

/// Who frees what a flush took away.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Freeing {
    /// The command, before it answers.
    Here,
    /// A thread of its own.
    InBackground,
}

impl Freeing {
    fn parse(args: &Args<'_>) -> Result<Freeing> {
        match args.len() {
            1 if args.settings.flushes_in_background() => Ok(Freeing::InBackground),
            1 => Ok(Freeing::Here),
            2 if args.is(1, "sync") => Ok(Freeing::Here),
            2 if args.is(1, "async") => Ok(Freeing::InBackground),
            _ => Err(Error::Syntax),
        }
    }

    /// Frees keys. How many there were.
    fn free(self, all: &mut keyspace::Exclusive<'_>, cleared: Vec<Cleared>) -> u64 {
        let keys = cleared.iter().map(Cleared::keys).sum();
        if self == Freeing::InBackground && keys > FREED_IN_PLACE_MAX {
            // Without a thread to be had the closure is dropped, and frees them here.
            let _ = std::thread::Builder::new().name("flush".into()).spawn(move || {
                // Nobody waits for it, and it may have a worker's core.
                sys::process::yield_to_other_threads();
                drop(cleared);
            });
        } else {
            all.free_afterwards(cleared);
        }
        keys
    }
}

/// FLUSHALL [ASYNC | SYNC]
fn flushall(all: &mut keyspace::Exclusive<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let freeing = Freeing::parse(args)?;
    let cleared = (0..args.keyspace.databases()).map(|number| all.clear(DbIndex(number))).collect();
    Ok(answer(freeing.free(all, cleared), args, reply))
}

/// FLUSHDB [ASYNC | SYNC]
fn flushdb(all: &mut keyspace::Exclusive<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let freeing = Freeing::parse(args)?;
    let cleared = vec![all.clear(args.db)];
    Ok(answer(freeing.free(all, cleared), args, reply))
}

fn answer(keys: u64, args: &Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    reply.ok();
    if keys > 0 {
        return Outcome::Changed;
    }
    // No change, but replicas hear of it, as in Redis: what they have need not be what is here.
    effects::log_request(args);
    Outcome::Unchanged
}

/// SWAPDB index1 index2. Both are read before either is looked for. Not in a cluster.
fn swapdb(all: &mut keyspace::Exclusive<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    if args.keyspace.has_cluster_slots() {
        // It would swap what one shard has, and leave the others as they are.
        return Err(Error::text("ERR SWAPDB is not allowed in cluster mode"));
    }
    let number = |position: usize| -> Option<i32> {
        value::number::parse_i64(args.bytes(position)).and_then(|number| i32::try_from(number).ok())
    };
    let one = number(1).ok_or(Error::FIRST_DB_INDEX)?;
    let other = number(2).ok_or(Error::SECOND_DB_INDEX)?;
    let (one, other) = (existing_db(args, one)?, existing_db(args, other)?);
    reply.ok();
    if one == other {
        return Ok(Outcome::Unchanged);
    }
    all.swap(one, other);
    Ok(Outcome::Changed)
}
