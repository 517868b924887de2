//! One element of COMMAND INFO's reply.

use super::SHOWN_FLAGS;
use command::key_use::{Begin, Find};
use command::table::{self, Command};
use command::{KeyFlags, KeySpec, Keys};
use wire::Reply;

/// Writes what clients need to know about a command: ten elements, the last of
/// which holds the same for its subcommands.
pub(super) fn describe(command: &Command, reply: &mut Reply<'_>) {
    let row = &command.row;
    reply.array(10);
    reply.bulk(row.name.as_bytes());
    reply.int(i64::from(row.arity));
    let flags: Vec<&str> =
        SHOWN_FLAGS.iter().filter(|(flag, _)| row.flags.contains(*flag)).map(|(_, name)| *name).collect();
    reply.set(flags.len());
    flags.iter().for_each(|name| reply.simple(name));
    key_positions(command).into_iter().for_each(|position| reply.int(position));
    let categories = row.categories();
    reply.set(categories.iter().count());
    for (name, _) in categories.iter_names() {
        reply.simple(format!("@{}", name.to_ascii_lowercase()));
    }
    reply.set(row.tips.len());
    row.tips.iter().for_each(|tip| reply.bulk(tip.as_bytes()));
    let specs = row.key_specifications();
    reply.set(specs.len());
    specs.iter().for_each(|spec| key_spec(spec, reply));
    reply.set(command.subcommands.len());
    command.subcommands.iter().for_each(|id| describe(table::get(*id), reply));
}

/// First, last and step, as far as they are the same for every request.
fn key_positions(command: &Command) -> [i64; 3] {
    match (command.row.keys, command.row.key_specs) {
        (Keys::Range { first, last, step }, _) => [first as i64, last as i64, step as i64],
        (
            Keys::Movable(_),
            [KeySpec { begin: Begin::Index(at), find: Find::Range { last, step, .. }, .. }, ..],
        ) => {
            let last = if *last < 0 { *last } else { *at as i64 + last };
            [*at as i64, last, *step]
        }
        _ => [0, 0, 0],
    }
}

/// The names of key flags, as Redis writes them.
pub(super) fn flag_names(flags: KeyFlags, reply: &mut Reply<'_>) {
    const UPPER: KeyFlags = KeyFlags::RO.union(KeyFlags::RW).union(KeyFlags::OW).union(KeyFlags::RM);
    reply.set(flags.iter().count());
    for (name, flag) in flags.iter_names() {
        match UPPER.contains(flag) {
            true => reply.simple(name),
            false => reply.simple(name.to_ascii_lowercase()),
        }
    }
}

fn key_spec(spec: &KeySpec, reply: &mut Reply<'_>) {
    reply.map(3);
    reply.bulk(b"flags");
    flag_names(spec.flags, reply);
    reply.bulk(b"begin_search");
    match spec.begin {
        Begin::Index(index) => part(reply, "index", &[("index", index as i64)]),
        Begin::Keyword(word, from) => {
            typed(reply, "keyword");
            reply.map(2);
            reply.bulk(b"keyword");
            reply.bulk(word.as_bytes());
            reply.bulk(b"startfrom");
            reply.int(from);
        }
        Begin::Unknown => part(reply, "unknown", &[]),
    }
    reply.bulk(b"find_keys");
    match spec.find {
        Find::Range { last, step, limit } => {
            part(reply, "range", &[("lastkey", last), ("keystep", step), ("limit", limit)]);
        }
        Find::Numkeys { number, first, step } => {
            part(reply, "keynum", &[("keynumidx", number), ("firstkey", first), ("keystep", step)]);
        }
        Find::Unknown => part(reply, "unknown", &[]),
    }
}

fn part(reply: &mut Reply<'_>, kind: &str, fields: &[(&str, i64)]) {
    typed(reply, kind);
    reply.map(fields.len());
    for (name, value) in fields {
        reply.bulk(name.as_bytes());
        reply.int(*value);
    }
}

fn typed(reply: &mut Reply<'_>, kind: &str) {
    reply.map(2);
    reply.bulk(b"type");
    reply.bulk(kind.as_bytes());
    reply.bulk(b"spec");
}
