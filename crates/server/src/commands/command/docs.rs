//! COMMAND DOCS: summary, age, cost and arguments of commands.

use super::syntax::{Argument, Kind, parse};
use crate::dispatch::Context;
use command::Result;
use command::table::{self, Command};
use wire::Reply;

/// COMMAND DOCS [command-name [command-name ...]]
pub(super) fn docs(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let commands: Vec<&Command> = match context.request.len() {
        2 => super::named(context.server),
        _ => {
            let find = |name: &[u8]| context.server.names.find_full(name);
            context.request.iter().skip(2).filter_map(find).collect()
        }
    };
    reply.map(commands.len());
    for command in commands {
        entry(command, reply);
        if reply.is_over() {
            break;
        }
    }
    Ok(())
}

/// A command's name and its description.
fn entry(command: &Command, reply: &mut Reply<'_>) {
    let row = &command.row;
    reply.bulk(row.name.as_bytes());
    let arguments = parse(row.syntax);
    let more = usize::from(!arguments.is_empty()) + usize::from(!command.subcommands.is_empty());
    reply.map(4 + more);
    let texts = [
        ("summary", row.summary),
        ("since", row.since),
        ("group", row.group.name()),
        ("complexity", row.complexity),
    ];
    texts.iter().for_each(|(name, text)| pair(reply, name, text));
    if !arguments.is_empty() {
        reply.bulk(b"arguments");
        let mut keys = Keys { seen: 0, count: count_keys(&arguments), specs: row.key_specifications().len() };
        list(&arguments, &mut keys, reply);
    }
    if !command.subcommands.is_empty() {
        reply.bulk(b"subcommands");
        reply.map(command.subcommands.len());
        command.subcommands.iter().for_each(|id| entry(table::get(*id), reply));
    }
}

fn pair(reply: &mut Reply<'_>, name: &str, text: &str) {
    reply.bulk(name.as_bytes());
    reply.bulk(text.as_bytes());
}

/// Tells which key specification an argument belongs to: the specifications are in
/// the order of the arguments, and the last one has what is left.
struct Keys {
    seen: usize,
    count: usize,
    specs: usize,
}

impl Keys {
    fn next_spec(&mut self) -> usize {
        self.seen += 1;
        match self.seen == self.count && self.count > 1 {
            true => self.specs.saturating_sub(1),
            false => (self.seen - 1).min(self.specs.saturating_sub(1)),
        }
    }
}

fn count_keys(all: &[Argument]) -> usize {
    let keys = |argument: &Argument| match &argument.kind {
        Kind::Word => usize::from(word_type(&argument.name) == "key"),
        Kind::Token => 0,
        Kind::OneOf(parts) | Kind::Block(parts) => count_keys(parts),
    };
    all.iter().map(keys).sum()
}

fn list(all: &[Argument], keys: &mut Keys, reply: &mut Reply<'_>) {
    reply.array(all.len());
    all.iter().for_each(|argument| one(argument, keys, reply));
}

fn one(argument: &Argument, keys: &mut Keys, reply: &mut Reply<'_>) {
    let kind = match &argument.kind {
        Kind::Word if keys.specs == 0 && word_type(&argument.name) == "key" => "string",
        Kind::Word => word_type(&argument.name),
        Kind::Token => "pure-token",
        Kind::OneOf(_) => "oneof",
        Kind::Block(_) => "block",
    };
    let parts = match &argument.kind {
        Kind::OneOf(parts) | Kind::Block(parts) => Some(parts),
        Kind::Word | Kind::Token => None,
    };
    let flags = [
        (argument.optional, "optional"),
        (argument.multiple, "multiple"),
        (argument.multiple_token, "multiple_token"),
    ];
    let flags: Vec<&str> = flags.iter().filter(|(set, _)| *set).map(|(_, name)| *name).collect();
    let has_text = parts.is_none();
    let is_there = [has_text, kind == "key", argument.token.is_some(), !flags.is_empty(), parts.is_some()];
    reply.map(2 + is_there.iter().filter(|there| **there).count());
    pair(reply, "name", &argument.name);
    pair(reply, "type", kind);
    if has_text {
        pair(reply, "display_text", &argument.name);
    }
    if kind == "key" {
        reply.bulk(b"key_spec_index");
        reply.int(keys.next_spec() as i64);
    }
    if let Some(token) = &argument.token {
        pair(reply, "token", token);
    }
    if !flags.is_empty() {
        reply.bulk(b"flags");
        reply.set(flags.len());
        flags.iter().for_each(|flag| reply.simple(flag));
    }
    if let Some(parts) = parts {
        reply.bulk(b"arguments");
        list(parts, keys, reply);
    }
}

/// The type of what a client puts in the place of a word, told from its name.
fn word_type(name: &str) -> &'static str {
    const KEYS: &[&str] =
        &["key", "key1", "key2", "newkey", "destkey", "source", "destination", "sourcekey", "numkey"];
    const INTEGERS: &[&str] = &[
        "seconds",
        "milliseconds",
        "count",
        "offset",
        "index",
        "index1",
        "index2",
        "start",
        "end",
        "stop",
        "db",
        "destination-db",
        "decrement",
        "cursor",
        "ttl",
        "numkeys",
        "bit",
        "frequency",
        "min-match-len",
        "numreplicas",
        "numlocal",
        "rank",
        "len",
        "maxlen",
        "threshold",
        "client-id",
        "protover",
        "port",
        "num-matches",
        "timeout-ms",
        "version",
    ];
    const DOUBLES: &[&str] =
        &["score", "min-score", "max-score", "weight", "longitude", "latitude", "radius"];
    if KEYS.contains(&name) {
        "key"
    } else if INTEGERS.contains(&name) {
        "integer"
    } else if DOUBLES.contains(&name) {
        "double"
    } else if name.starts_with("unix-time") {
        "unix-time"
    } else if name.starts_with("pattern") {
        "pattern"
    } else {
        "string"
    }
}
