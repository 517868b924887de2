//! RENAME, RENAMENX, COPY, MOVE: an object under another key or in another
//! database. The expiry goes along; what was at the target is gone with its own.
//!
//! COPY and MOVE name a second database: `execute` locks their keys in both.

use super::db_index;
use crate::args::Args;
use crate::error::{Error, Result};
use crate::key_use::{EXCHANGES, KeyFlags, OVERWRITES, READS, TAKES};
use crate::row::Handler::{Write, WriteAcross};
use crate::row::{Flags, Group, Keys, Outcome, Row, row};
use keyspace::{Class, DbIndex, Edit, Key};
use wire::Reply;

/// Rows of this file.
pub const ROWS: &[Row] = &[
    row("copy", -3, WriteAcross(copy, copy_db))
        .flags(Flags::DENYOOM)
        .keys(Keys::TWO)
        .group(Group::Generic)
        .since("6.2.0")
        .complexity("O(1) for a string, O(N) for a collection of N elements.")
        .syntax("source destination [DB destination-db] [REPLACE]")
        .key_flags(&[READS, OVERWRITES])
        .summary("Copies the value and expiry of a key to another key."),
    row("move", 3, WriteAcross(move_key, move_db))
        .flags(Flags::FAST)
        .keys(Keys::FIRST)
        .group(Group::Generic)
        .since("1.0.0")
        .complexity("O(1)")
        .syntax("key db")
        .key_flags(&[EXCHANGES])
        .summary("Moves a key to another database, unless that has it already."),
    row("rename", 3, Write(rename))
        .keys(Keys::TWO)
        .group(Group::Generic)
        .since("1.0.0")
        .complexity("O(1), plus the cost of deleting what the new name held.")
        .syntax("key newkey")
        .key_flags(&[TAKES, OVERWRITES])
        .summary("Gives a key another name, in place of whatever has that name."),
    row("renamenx", 3, Write(renamenx))
        .flags(Flags::FAST)
        .keys(Keys::TWO)
        .group(Group::Generic)
        .since("1.0.0")
        .complexity("O(1)")
        .syntax("key newkey")
        .key_flags(&[TAKES, KeyFlags::OW.union(KeyFlags::INSERT)])
        .summary("Gives a key another name, unless that is taken."),
];

/// The events of source and target where a key is renamed.
const RENAMED: [&str; 2] = ["rename_from", "rename_to"];
/// The same where it goes to another database.
const MOVED: [&str; 2] = ["move_from", "move_to"];

/// Moves the object of a key that is there, with its expiry, to where `target` is. That is said of these two keys alone: MOVE and COPY lock
/// others, which do not change.
fn transfer(
    edit: &mut Edit<'_>,
    args: &Args<'_>,
    (source, target): (&Key<'_>, &Key<'_>),
    [from, to]: [&'static str; 2],
) {
    let expires_at = edit.get(source).and_then(|object| object.expires_at());
    let object = edit.take(source).expect("the caller has found the key");
    edit.put(target, object, expires_at);
    edit.note(Class::GENERIC, from, source);
    edit.note(Class::GENERIC, to, target);
    args.log_transfer(edit, source, target, false);
}

/// RENAME key newkey
fn rename(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let (source, target) = (args.key(1), args.key(2));
    if edit.get(&source).is_none() {
        return Err(Error::NO_SUCH_KEY);
    }
    reply.ok();
    if source.bytes == target.bytes {
        return Ok(Outcome::Unchanged);
    }
    transfer(edit, args, (&source, &target), RENAMED);
    Ok(Outcome::Changed)
}

/// RENAMENX key newkey
fn renamenx(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let (source, target) = (args.key(1), args.key(2));
    if edit.get(&source).is_none() {
        return Err(Error::NO_SUCH_KEY);
    }
    if source.bytes == target.bytes || edit.get(&target).is_some() {
        reply.int(0);
        return Ok(Outcome::Unchanged);
    }
    transfer(edit, args, (&source, &target), RENAMED);
    reply.int(1);
    Ok(Outcome::Changed)
}

/// What COPY does about a target that is there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum IfPresent {
    Leave,
    Replace,
}

/// Parses COPY's words from position 3 on. A later DB wins, a wrong one errs at once.
fn copy_options(args: &Args<'_>) -> Result<(DbIndex, IfPresent)> {
    let (mut db, mut if_present) = (args.db, IfPresent::Leave);
    let mut position = 3;
    while position < args.len() {
        if args.is(position, "replace") {
            if_present = IfPresent::Replace;
            position += 1;
        } else if args.is(position, "db") && position + 1 < args.len() {
            db = db_index(args, position + 1)?;
            position += 2;
        } else {
            return Err(Error::Syntax);
        }
    }
    Ok((db, if_present))
}

/// COPY's other database. None leaves the mistake to the handler.
fn copy_db(args: &Args<'_>) -> Option<DbIndex> {
    copy_options(args).ok().map(|(db, _)| db).filter(|db| *db != args.db)
}

/// COPY source destination [DB destination-db] [REPLACE]
fn copy(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let (db, if_present) = copy_options(args)?;
    let (source, target) = (args.key(1), args.key_in(db, 2));
    if db == args.db && source.bytes == target.bytes {
        return Err(Error::SAME_OBJECT);
    }
    let found = edit.get_as_reader(&source).map(|object| object.expires_at());
    let Some(expires_at) = found else {
        reply.int(0);
        return Ok(Outcome::Unchanged);
    };
    if if_present == IfPresent::Leave && edit.get(&target).is_some() {
        reply.int(0);
        return Ok(Outcome::Unchanged);
    }
    let copy = edit.copy(&source).expect("the source was found above");
    edit.put(&target, copy, expires_at);
    edit.note(Class::GENERIC, "copy_to", &target);
    args.log_transfer(edit, &source, &target, true);
    reply.int(1);
    Ok(Outcome::Changed)
}

/// MOVE's other database. None leaves the mistake to the handler.
fn move_db(args: &Args<'_>) -> Option<DbIndex> {
    db_index(args, 2).ok().filter(|db| *db != args.db)
}

/// MOVE key db
fn move_key(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let db = db_index(args, 2)?;
    if db == args.db {
        return Err(Error::SAME_OBJECT);
    }
    let (source, target) = (args.key(1), args.key_in(db, 1));
    if edit.get(&source).is_none() || edit.get(&target).is_some() {
        reply.int(0);
        return Ok(Outcome::Unchanged);
    }
    transfer(edit, args, (&source, &target), MOVED);
    reply.int(1);
    Ok(Outcome::Changed)
}
