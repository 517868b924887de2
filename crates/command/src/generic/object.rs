//! OBJECT: how a value is stored, and how often or recently it was used.
//!
//! Nothing here changes a key's access clock.

use super::VARIES;
use crate::args::Args;
use crate::error::{Error, Result};
use crate::key_use::LOOKS;
use crate::row::Handler::{Read, Walk};
use crate::row::{Flags, Group, Keys, Row, row};
use keyspace::{Batch, Keyspace, Object, ValueRef, View};
use wire::Reply;

/// Rows of this file.
pub const ROWS: &[Row] = &[Row::new("object", -2, Flags::PROTECTED, Walk(unknown))
    .group(Group::Generic)
    .since("2.2.3")
    .complexity("Depends on the subcommand.")
    .summary("Looks at how a value is stored and used.")
    .subcommands(SUBCOMMANDS)];

const SUBCOMMANDS: &[Row] = &[
    subcommand("object|encoding", Read(encoding))
        .since("2.2.3")
        .key_flags(&[LOOKS])
        .summary("Tells how the value of a key is encoded."),
    subcommand("object|freq", Read(freq))
        .since("4.0.0")
        .key_flags(&[LOOKS])
        .summary("Tells how often a key is used, on a logarithmic scale."),
    Row::new("object|help", 2, Flags::LOADING.union(Flags::STALE), Walk(help))
        .group(Group::Generic)
        .since("6.2.0")
        .complexity("O(1)")
        .summary("Lists the subcommands."),
    subcommand("object|idletime", Read(idletime))
        .since("2.2.3")
        .key_flags(&[LOOKS])
        .summary("Tells how many seconds ago a key was last used."),
    subcommand("object|refcount", Read(refcount))
        .since("2.2.3")
        .key_flags(&[LOOKS])
        .summary("Tells how many references to its value Redis would count."),
];

/// The columns that the subcommands over a key share.
const fn subcommand(name: &'static str, handler: crate::row::Handler) -> Row {
    row(name, 3, handler)
        .flags(Flags::NO_TOUCH)
        .keys(Keys::SECOND)
        .group(Group::Generic)
        .complexity("O(1)")
        .syntax("key")
        .tips(VARIES)
}

/// OBJECT with a word that is no subcommand.
fn unknown(_: &Batch<'_>, args: &Args<'_>, _: &mut Reply<'_>) -> Result<()> {
    Err(Error::unknown_subcommand("object", args.bytes(1)))
}

/// OBJECT ENCODING key
fn encoding(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    match view.get_quietly(&args.key(2)) {
        Some(object) => reply.bulk(object.encoding().name().as_bytes()),
        None => reply.null(),
    }
    Ok(())
}

/// OBJECT FREQ key
fn freq(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let policy = args.keyspace.policy();
    match view.get_quietly(&args.key(2)) {
        Some(_) if !policy.eviction().counts_frequency() => return Err(Error::NO_FREQUENCY),
        Some(object) => reply.int(i64::from(object.frequency(policy, args.now))),
        None => reply.null(),
    }
    Ok(())
}

/// OBJECT IDLETIME key
fn idletime(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    match view.get_quietly(&args.key(2)) {
        Some(_) if args.keyspace.policy().eviction().counts_frequency() => return Err(Error::NO_IDLE_TIME),
        Some(object) => reply.int(object.idle_seconds(args.now) as i64),
        None => reply.null(),
    }
    Ok(())
}

/// OBJECT REFCOUNT key
fn refcount(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    match view.get_quietly(&args.key(2)) {
        Some(object) => reply.int(references(object, args.keyspace)),
        None => reply.null(),
    }
    Ok(())
}

/// The references that Redis would count. Tarn shares no values; Redis shares the
/// integers below 10000, whose count says "shared", unless values carry the clocks
/// that eviction goes by. Redis decides when a value is set, this when it is asked.
pub fn references(object: Object<'_>, keyspace: &Keyspace) -> i64 {
    use keyspace::Eviction::{AllLfu, AllLru, ExpiringLfu, ExpiringLru};
    const SHARED: i64 = i32::MAX as i64;
    let policy = keyspace.policy();
    let clocks_count = policy.memory_bytes_max() > 0
        && matches!(policy.eviction(), AllLru | ExpiringLru | AllLfu | ExpiringLfu);
    match object.value() {
        ValueRef::Int(0..=9999) if !clocks_count => SHARED,
        _ => 1,
    }
}

/// OBJECT HELP
fn help(_: &Batch<'_>, _: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    const LINES: &[&str] = &[
        "OBJECT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "ENCODING <key>",
        "    How the value is stored.",
        "FREQ <key>",
        "    How often the key is used, on a logarithmic scale (LFU policies).",
        "IDLETIME <key>",
        "    Seconds since the key was last used (other policies).",
        "REFCOUNT <key>",
        "    How many references to the value Redis would count.",
        "HELP",
        "    This list.",
    ];
    reply.array(LINES.len());
    LINES.iter().for_each(|line| reply.simple(line));
    Ok(())
}
