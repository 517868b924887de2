//! SORT and SORT_RO: the elements of a list, set or sorted set in order.
//!
//! Only strings exist, which cannot be sorted: a key that is there has the wrong
//! type, and one that is not there is an empty list.

use crate::args::Args;
use crate::category::Categories;
use crate::error::{Error, Result};
use crate::generic::remove;
use crate::key_use::{KeySpec, OVERWRITES, READS};
use crate::parse::int;
use crate::row::Handler::{Read, Write};
use crate::row::{Flags, Group, Keys, Outcome, Row, row};
use keyspace::{Edit, View};
use wire::{Reply, Request};

/// The categories of the types that are sorted.
const SORTED_TYPES: Categories = Categories::SET.union(Categories::SORTEDSET).union(Categories::LIST);

/// Rows of this file.
pub const ROWS: &[Row] = &[
    row("sort", -2, Write(sort))
        .flags(Flags::DENYOOM.union(Flags::MOVABLEKEYS).union(Flags::DANGEROUS).union(Flags::PROTECTED))
        .in_categories(SORTED_TYPES)
        .keys(Keys::Movable(sort_keys))
        .key_specs(&[KeySpec::at(1, READS), KeySpec::unknown(READS), KeySpec::unknown(OVERWRITES)])
        .group(Group::Generic)
        .since("1.0.0")
        .complexity("O(N+M*log(M)) for N elements of which M are returned, O(N) unsorted.")
        .syntax(
            "key [BY pattern] [LIMIT offset count] [GET pattern [GET pattern ...]] [ASC | DESC] [ALPHA] \
             [STORE destination]",
        )
        .summary("Sorts the elements of a list, set or sorted set, and may store the result."),
    row("sort_ro", -2, Read(sort_ro))
        .flags(Flags::MOVABLEKEYS.union(Flags::DANGEROUS).union(Flags::PROTECTED))
        .in_categories(SORTED_TYPES)
        .keys(Keys::FIRST)
        .key_specs(&[KeySpec::at(1, READS), KeySpec::unknown(READS)])
        .group(Group::Generic)
        .since("7.0.0")
        .complexity("O(N+M*log(M)) for N elements of which M are returned, O(N) unsorted.")
        .syntax("key [BY pattern] [LIMIT offset count] [GET pattern [GET pattern ...]] [ASC | DESC] [ALPHA]")
        .summary("Sorts the elements of a list, set or sorted set."),
];

/// Words that an option takes after its name. None: it is no option of SORT.
fn operands(option: &[u8]) -> Option<usize> {
    let is = |name: &str| option.eq_ignore_ascii_case(name.as_bytes());
    if is("asc") || is("desc") || is("alpha") {
        Some(0)
    } else if is("by") || is("get") || is("store") {
        Some(1)
    } else if is("limit") {
        Some(2)
    } else {
        None
    }
}

/// SORT's keys: the source, and the destination of its last STORE.
fn sort_keys(request: &Request<'_>, positions: &mut Vec<usize>) {
    positions.push(1);
    let mut store = None;
    let mut position = 2;
    while let Some(option) = request.get(position) {
        if option.eq_ignore_ascii_case(b"store") && position + 1 < request.len() {
            store = Some(position + 1);
        }
        position += 1 + operands(option).unwrap_or(0);
    }
    positions.extend(store);
}

/// Which of the two commands it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    MayStore,
    ReadOnly,
}

/// Checks the options, and tells the position of the key to store into.
fn parse(args: &Args<'_>, form: Form) -> Result<Option<usize>> {
    let mut store = None;
    let mut position = 2;
    while position < args.len() {
        let operands = operands(args.bytes(position)).ok_or(Error::Syntax)?;
        if position + operands >= args.len() {
            return Err(Error::Syntax);
        }
        if args.is(position, "limit") {
            int(args.bytes(position + 1))?;
            int(args.bytes(position + 2))?;
        } else if args.is(position, "store") {
            if form == Form::ReadOnly {
                return Err(Error::Syntax);
            }
            store = Some(position + 1);
        }
        position += 1 + operands;
    }
    Ok(store)
}

/// SORT key [BY pattern] [LIMIT offset count] [GET pattern ...] [ASC | DESC] [ALPHA] [STORE destination]
fn sort(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let store = parse(args, Form::MayStore)?;
    if edit.get_as_reader(&args.key(1)).is_some() {
        return Err(Error::WrongType);
    }
    let Some(store) = store else {
        reply.array(0);
        return Ok(Outcome::Unchanged);
    };
    reply.int(0);
    // Nothing to store: the destination goes away.
    Ok(if remove(edit, &args.key(store)) { Outcome::Changed } else { Outcome::Unchanged })
}

/// SORT_RO key [BY pattern] [LIMIT offset count] [GET pattern ...] [ASC | DESC] [ALPHA]
fn sort_ro(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    parse(args, Form::ReadOnly)?;
    if view.get(&args.key(1)).is_some() {
        return Err(Error::WrongType);
    }
    reply.array(0);
    Ok(())
}
