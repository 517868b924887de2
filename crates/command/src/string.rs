//! Strings: the rows and handlers of Redis' string group.
//!
//! Thread rule: handlers run on any worker, with their keys' slots locked.

use crate::args::Args;
use crate::error::Result;
use crate::row::Handler::{Read, Write};
use crate::row::{Flags, Group, Keys, Outcome, Row, row};
use keyspace::{Edit, Expiry, NewValue, ValueRef, View};
use wire::Reply;

/// The string group.
pub const ROWS: &[Row] = &[
    row("get", 2, Read(get))
        .flags(Flags::FAST)
        .keys(Keys::FIRST)
        .group(Group::String)
        .syntax("key")
        .summary("Returns the string value of a key."),
    row("set", -3, Write(set))
        .flags(Flags::DENYOOM)
        .keys(Keys::FIRST)
        .group(Group::String)
        .syntax("key value")
        .summary("Sets the string value of a key."),
];

/// GET key
fn get(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    match view.get(&args.key(1)).map(|object| object.value()) {
        Some(ValueRef::Bytes(bytes)) => reply.bulk(bytes),
        Some(ValueRef::Int(number)) => reply.bulk_int(number),
        None => reply.null(),
    }
    Ok(())
}

/// SET key value
fn set(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    edit.set(&args.key(1), NewValue::from_bytes(args.bytes(2)), Expiry::Clear);
    reply.ok();
    Ok(Outcome::Changed)
}
