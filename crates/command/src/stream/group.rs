//! XGROUP: making, changing and removing groups and their consumers; and XACK.

use super::{help_row, id, ids, moment, reply_help, subcommand, unknown_subcommand};
use crate::args::Args;
use crate::error::{Error, Result};
use crate::key_use::{DELETES, INSERTS};
use crate::parse::int;
use crate::row::Handler::{Walk, Write};
use crate::row::{Flags, Outcome, Row};
use keyspace::{Batch, Class, Edit};
use value::stream::{Group, Stream, StreamId};
use wire::Reply;

pub(super) const SUBCOMMANDS: &[Row] = &[
    subcommand("xgroup|create", -5, Write(create))
        .flags(Flags::DENYOOM)
        .syntax("key group <id | $> [MKSTREAM] [ENTRIESREAD entries-read]")
        .key_flags(&[INSERTS])
        .summary("Makes a consumer group."),
    subcommand("xgroup|createconsumer", 5, Write(create_consumer))
        .counts_from_now(|_| true)
        .flags(Flags::DENYOOM)
        .since("6.2.0")
        .syntax("key group consumer")
        .key_flags(&[INSERTS])
        .summary("Makes a consumer in a group."),
    subcommand("xgroup|delconsumer", 5, Write(remove_consumer))
        .syntax("key group consumer")
        .key_flags(&[DELETES])
        .summary("Removes a consumer; replies with the number of entries that were pending with it."),
    subcommand("xgroup|destroy", 4, Write(destroy))
        .complexity("O(N), N being the number of pending entries")
        .syntax("key group")
        .key_flags(&[DELETES])
        .summary("Removes a consumer group."),
    help_row("xgroup|help", Walk(help)),
    subcommand("xgroup|setid", -5, Write(set_id))
        .syntax("key group <id | $> [ENTRIESREAD entries-read]")
        .summary("Sets the last id that a group has delivered."),
];

/// XGROUP with a word that is no subcommand.
pub(super) fn unknown(batch: &Batch<'_>, args: &Args<'_>, _: &mut Reply<'_>) -> Result<()> {
    unknown_subcommand(batch, "xgroup", args)
}

/// XGROUP HELP
fn help(_: &Batch<'_>, _: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    const LINES: &[&str] = &[
        "CREATE <key> <group> <id|$> [MKSTREAM] [ENTRIESREAD <entries-read>]",
        "    Make a group that has read up to an id. MKSTREAM makes the key if it is not there.",
        "CREATECONSUMER <key> <group> <consumer>",
        "    Make a consumer in a group.",
        "DELCONSUMER <key> <group> <consumer>",
        "    Remove a consumer.",
        "DESTROY <key> <group>",
        "    Remove a group.",
        "SETID <key> <group> <id|$> [ENTRIESREAD <entries-read>]",
        "    Set up to where a group has read.",
    ];
    reply_help("XGROUP", LINES, reply);
    Ok(())
}

/// Which options a subcommand takes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Takes {
    /// MKSTREAM and ENTRIESREAD.
    Both,
    /// ENTRIESREAD.
    EntriesRead,
}

/// The options of CREATE and SETID.
struct Options {
    makes_stream: bool,
    entries_read: Option<i64>,
}

impl Options {
    /// Stands for a count that is not known.
    const UNKNOWN: i64 = -1;

    fn parse(args: &Args<'_>, takes: Takes) -> Result<Options> {
        let mut options = Options { makes_stream: false, entries_read: None };
        let mut position = 5;
        while position < args.len() {
            if takes == Takes::Both && args.is(position, "MKSTREAM") {
                options.makes_stream = true;
                position += 1;
            } else if args.is(position, "ENTRIESREAD") && position + 1 < args.len() {
                let read = int(args.bytes(position + 1))?;
                // A payload may bring any count, and a log tells it.
                if read < Options::UNKNOWN && !args.is_of_log() {
                    return Err(Error::XGROUP_ENTRIES_READ);
                }
                options.entries_read = Some(read).filter(|read| *read != Options::UNKNOWN);
                position += 2;
            } else {
                return Err(Error::subcommand_syntax("XGROUP", args.bytes(1)));
            }
        }
        Ok(options)
    }
}

/// The id that a group begins behind.
fn group_id(text: &[u8], last_id: StreamId) -> Result<StreamId> {
    if text == b"$" { Ok(last_id) } else { id(text) }
}

/// XGROUP CREATE key group id [MKSTREAM] [ENTRIESREAD entries-read]
fn create(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let options = Options::parse(args, Takes::Both)?;
    let key = args.key(2);
    let mut stream = if options.makes_stream {
        edit.open_or_new(&key, Stream::new)?
    } else {
        edit.open::<Stream>(&key)?.ok_or(Error::XGROUP_NO_KEY)?
    };
    // More words than these are only possible by repeating an option.
    const WORDS_MAX: usize = 8;
    if args.len() > WORDS_MAX {
        return Err(Error::subcommand_syntax("XGROUP", args.bytes(1)));
    }
    let last_id = group_id(args.bytes(4), stream.entries.last_id())?;
    if !stream.create_group(args.bytes(3), Group::new(last_id, options.entries_read)) {
        return Err(Error::BUSY_GROUP);
    }
    if stream.is_new() {
        stream.touch();
    }
    drop(stream);
    edit.note(Class::STREAM, "xgroup-create", &key);
    reply.ok();
    Ok(Outcome::Changed)
}

/// XGROUP SETID key group id [ENTRIESREAD entries-read]
fn set_id(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let options = Options::parse(args, Takes::EntriesRead)?;
    let key = args.key(2);
    let mut stream = edit.open::<Stream>(&key)?.ok_or(Error::XGROUP_NO_KEY)?;
    let last_of_stream = stream.entries.last_id();
    let (group, _) = group_mut(&mut stream, args)?;
    const WORDS: [usize; 2] = [5, 7];
    if !WORDS.contains(&args.len()) {
        return Err(Error::subcommand_syntax("XGROUP", args.bytes(1)));
    }
    group.last_id = match args.bytes(4) {
        b"$" => last_of_stream,
        text => StreamId::parse_edge(text, 0).map_err(|_| Error::STREAM_ID)?,
    };
    group.entries_read = options.entries_read;
    drop(stream);
    edit.note(Class::STREAM, "xgroup-setid", &key);
    reply.ok();
    Ok(Outcome::Changed)
}

/// The group named at position 3 of XGROUP.
fn group_mut<'s>(
    stream: &'s mut Stream,
    args: &Args<'_>,
) -> Result<(&'s mut Group, &'s value::stream::Entries)> {
    stream.group_mut(args.bytes(3)).ok_or_else(|| Error::no_group_in(args.bytes(3), args.bytes(2)))
}

/// XGROUP DESTROY key group
fn destroy(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let key = args.key(2);
    let mut stream = edit.open::<Stream>(&key)?.ok_or(Error::XGROUP_NO_KEY)?;
    if !stream.remove_group(args.bytes(3)) {
        reply.int(0);
        return Ok(Outcome::Unchanged);
    }
    // It ends the wait of the group's readers, and is no change for those who watch the key.
    stream.note_for_waiters(Class::STREAM, "xgroup-destroy");
    reply.int(1);
    Ok(Outcome::Changed)
}

/// XGROUP CREATECONSUMER key group consumer
fn create_consumer(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let key = args.key(2);
    let mut stream = edit.open::<Stream>(&key)?.ok_or(Error::XGROUP_NO_KEY)?;
    let (group, _) = group_mut(&mut stream, args)?;
    let created = group.create_consumer(args.bytes(4), moment(args.present())).is_some();
    drop(stream);
    reply.int(i64::from(created));
    if !created {
        return Ok(Outcome::Unchanged);
    }
    edit.note(Class::STREAM, "xgroup-createconsumer", &key);
    Ok(Outcome::Changed)
}

/// XGROUP DELCONSUMER key group consumer
fn remove_consumer(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let key = args.key(2);
    let mut stream = edit.open::<Stream>(&key)?.ok_or(Error::XGROUP_NO_KEY)?;
    let (group, _) = group_mut(&mut stream, args)?;
    let removed = group.remove_consumer(args.bytes(4));
    drop(stream);
    reply.int(removed.unwrap_or(0) as i64);
    if removed.is_none() {
        return Ok(Outcome::Unchanged);
    }
    edit.note(Class::STREAM, "xgroup-delconsumer", &key);
    Ok(Outcome::Changed)
}

/// XACK key group id [id ...]
pub(super) fn xack(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let key = args.key(1);
    // Looked up as a read, which counts as a use of the key.
    let found = edit.read_as_reader::<Stream>(&key)?;
    if found.is_none_or(|stream| stream.group(args.bytes(2)).is_none()) {
        reply.int(0);
        return Ok(Outcome::Unchanged);
    }
    let ids = ids(args, 3)?;
    let mut stream = edit.open::<Stream>(&key)?.expect("the key was found above");
    let (group, _) = stream.group_mut(args.bytes(2)).expect("the group was found above");
    let acknowledged = ids.into_iter().filter(|id| group.acknowledge(*id)).count();
    reply.int(acknowledged as i64);
    Ok(if acknowledged == 0 { Outcome::Unchanged } else { Outcome::Changed })
}
