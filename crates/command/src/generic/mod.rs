//! Commands on any key, whatever it holds, and on the keyspace as a whole:
//! Redis' generic group and the keyspace commands of its server group.
//!
//! Each file holds rows next to their handlers. Thread rule: handlers run on any
//! worker; those of `scan` lock slot by slot, those of `flush` have the keyspace
//! alone, all others run with their keys' slots locked.
//!
//! 1. A handler parses its whole request before its first edit.
//! 2. What only asks about a key (TTL, TYPE, EXISTS, OBJECT) leaves its access
//!    clock alone: its row has NO_TOUCH. It still counts as a hit or a miss.

pub mod dump;
pub mod expire;
pub mod flush;
pub mod key;
pub mod object;
pub mod presence;
pub mod rename;
pub mod scan;
pub mod sort;

use crate::args::Args;
use crate::error::{Error, Result};
use crate::parse::int;
use keyspace::{Class, DbIndex, Edit, Key};

/// Tips of commands that proxies split by key and whose replies add up.
const SPLIT_AND_SUM: &[&str] = &["request_policy:multi_shard", "response_policy:agg_sum"];
/// Tips of commands whose reply changes from one call to the next.
const VARIES: &[&str] = &["nondeterministic_output"];

/// Word `position` as the number of a database that exists.
fn db_index(args: &Args<'_>, position: usize) -> Result<DbIndex> {
    let number = i32::try_from(int(args.bytes(position))?).map_err(|_| Error::OUTSIDE_INT32)?;
    existing_db(args, number)
}

/// The database of this number, if there is one.
fn existing_db(args: &Args<'_>, number: i32) -> Result<DbIndex> {
    match u32::try_from(number) {
        Ok(number) if number < args.keyspace.databases() => Ok(DbIndex(number)),
        _ => Err(Error::DB_INDEX),
    }
}

/// Takes a key away since what was to be stored there is empty. One whose time is up is taken away by that, and not by its time. False:
/// it was not there.
pub(crate) fn remove_for_nothing(edit: &mut Edit<'_>, key: &Key<'_>) -> bool {
    let was_there = edit.remove_as_it_lies(key);
    if was_there {
        edit.note(Class::GENERIC, "del", key);
    }
    was_there
}

/// Takes a key away as DEL does. False: it was not there.
pub(crate) fn remove(edit: &mut Edit<'_>, key: &Key<'_>) -> bool {
    let was_there = edit.remove(key);
    if was_there {
        edit.note(Class::GENERIC, "del", key);
    }
    was_there
}
