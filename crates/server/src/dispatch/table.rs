//! All commands, found by name: the data commands' rows and the server's own, in
//! one table. The only list of families.

use crate::commands;
use crate::dispatch::Context;
use command::effects::Scope;
use command::row::Row;
use command::{Flags, Group, Handler, KeyFlags, Keys};
use std::sync::LazyLock;
use wire::{Reply, Request};

/// A command of the server itself: it works on its session or on the server.
pub type ServerHandler = fn(&mut Context<'_, '_>, &mut Reply<'_>) -> command::Result<()>;

/// Families of the server's own commands.
const FAMILIES: &[&[Row<ServerHandler>]] = commands::FAMILIES;

/// What runs a command.
#[derive(Clone, Copy)]
pub enum Runs {
    /// Crate `command`, with locked keys.
    Data(&'static Row<Handler>),
    /// The server, with its session.
    Server(ServerHandler),
}

/// A command's place in the table; subcommands have places of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CommandId(pub usize);

/// A command or subcommand as dispatch sees it.
pub struct Command {
    /// Its place in the table.
    pub id: CommandId,
    /// Its row.
    pub row: Row<Runs>,
    /// The position of the key to be hashed ahead; 0 if there is none.
    pub first_key: usize,
    /// What a request of it concerns where a log holds it; None: none does.
    pub effect: Option<Scope>,
    /// Subcommands by place.
    pub subcommands: Vec<CommandId>,
}

struct Table {
    commands: Vec<Command>,
    /// Open addressing by `hash`; 0 is empty, else a place plus one.
    buckets: Box<[u16]>,
    /// Top-level commands in the order of their families.
    top_level: Vec<CommandId>,
}

static TABLE: LazyLock<Table> = LazyLock::new(Table::new);

/// The command with this name, in any case.
#[inline]
pub fn find(name: &[u8]) -> Option<&'static Command> {
    let table = &*TABLE;
    let mask = table.buckets.len() - 1;
    let mut bucket = hash(name) & mask;
    loop {
        let place = table.buckets[bucket];
        if place == 0 {
            return None;
        }
        let command = &table.commands[usize::from(place) - 1];
        if command.row.name.as_bytes().eq_ignore_ascii_case(name) {
            return Some(command);
        }
        bucket = (bucket + 1) & mask;
    }
}

/// The command that a request means: the subcommand if its first argument names
/// one, else the command itself.
#[inline]
pub fn find_for(request: &Request<'_>) -> Option<&'static Command> {
    find_within(find(request.arg(0))?, request)
}

/// The same of a command: its subcommand, or itself.
#[inline]
pub fn find_within(command: &'static Command, request: &Request<'_>) -> Option<&'static Command> {
    if command.subcommands.is_empty() || request.len() < 2 {
        return Some(command);
    }
    Some(find_subcommand(command, request.arg(1)).unwrap_or(command))
}

/// A container's subcommand by its short name.
pub fn find_subcommand(container: &Command, name: &[u8]) -> Option<&'static Command> {
    container
        .subcommands
        .iter()
        .map(|id| get(*id))
        .find(|sub| sub.short_name().as_bytes().eq_ignore_ascii_case(name))
}

/// The command or subcommand with this full name (`client|list`), in any case.
pub fn find_full(name: &[u8]) -> Option<&'static Command> {
    find_full_by(name, find)
}

/// The same where commands have the names by which `find` finds them.
pub fn find_full_by(
    name: &[u8],
    find: impl Fn(&[u8]) -> Option<&'static Command>,
) -> Option<&'static Command> {
    match name.iter().position(|byte| *byte == b'|') {
        Some(bar) => find_subcommand(find(&name[..bar])?, &name[bar + 1..]),
        None => find(name),
    }
}

/// The command at a place.
pub fn get(id: CommandId) -> &'static Command {
    &TABLE.commands[id.0]
}

/// How many places there are.
pub fn command_count() -> usize {
    TABLE.commands.len()
}

/// Every command and subcommand.
pub fn all() -> &'static [Command] {
    &TABLE.commands
}

/// The commands without their subcommands, family by family.
pub fn top_level() -> impl ExactSizeIterator<Item = &'static Command> {
    TABLE.top_level.iter().map(|id| get(*id))
}

impl Command {
    /// `list` for `client|list`.
    pub fn short_name(&self) -> &'static str {
        self.row.name.rsplit('|').next().unwrap_or(self.row.name)
    }

    /// Whether a flag is set.
    #[inline]
    pub fn is(&self, flag: Flags) -> bool {
        self.row.flags.contains(flag)
    }

    /// Whether it is one of the server's own that may look at keys which it does not name, as DBSIZE and INFO do. Those that do not
    /// are enumerated: commands of the session, of messages and transactions, and TIME and its like.
    pub fn looks_around(&self) -> bool {
        let row = &self.row;
        let is_about_keys = row.flags.intersects(Flags::READONLY | Flags::WRITE) || !self.is(Flags::FAST);
        let looks_at_none = match row.group {
            // It waits until nobody looks at any.
            Group::Connection if row.name == "client|pause" => false,
            Group::Connection | Group::Pubsub | Group::Transactions => true,
            Group::Server => !is_about_keys,
            Group::Scripting => false,
            _ => self.names_keys(),
        };
        matches!(row.handler, Runs::Server(_)) && !looks_at_none
    }

    /// Whether its requests name keys. Those of shard channels, which only have the slots of keys, do not count.
    pub fn names_keys(&self) -> bool {
        let names_channels = self.row.key_flags_of(0).contains(KeyFlags::NOT_KEY);
        !matches!(self.row.keys, Keys::None) && !names_channels
    }
}

impl Table {
    fn new() -> Table {
        let mut table = Table { commands: Vec::new(), buckets: Box::default(), top_level: Vec::new() };
        for row in command::FAMILIES.iter().flat_map(|family| family.iter()) {
            table.add(row, &|row| Runs::Data(row));
        }
        for row in FAMILIES.iter().flat_map(|family| family.iter()) {
            table.add(row, &|row| Runs::Server(row.handler));
        }
        table.index();
        table
    }

    fn add<H: Copy>(&mut self, row: &'static Row<H>, runs: &impl Fn(&'static Row<H>) -> Runs) {
        let container = self.add_one(row, runs);
        self.top_level.push(container);
        for row in row.subcommands {
            let id = self.add_one(row, runs);
            self.commands[container.0].subcommands.push(id);
        }
    }

    fn add_one<H: Copy>(
        &mut self,
        row: &'static Row<H>,
        runs: &impl Fn(&'static Row<H>) -> Runs,
    ) -> CommandId {
        let id = CommandId(self.commands.len());
        let first_key = match (row.keys, runs(row)) {
            (Keys::Range { first, .. }, Runs::Data(_)) => first,
            // Behind a script and the number of its keys.
            (Keys::Movable(_), Runs::Server(_)) if row.group == Group::Scripting => 3,
            _ => 0,
        };
        self.commands.push(Command {
            id,
            row: row.with_handler(runs(row)),
            first_key,
            effect: match (runs(row), row.name) {
                (Runs::Data(row), _) => Scope::of(row),
                (Runs::Server(_), "select") => Some(Scope::Selection),
                (Runs::Server(_), "function|restore") => Some(Scope::Libraries),
                (Runs::Server(_), _) => None,
            },
            subcommands: Vec::new(),
        });
        id
    }

    fn index(&mut self) {
        let size = (self.top_level.len() * 4).next_power_of_two();
        self.buckets = vec![0; size].into_boxed_slice();
        for id in &self.top_level {
            let mut bucket = hash(self.commands[id.0].row.name.as_bytes()) & (size - 1);
            while self.buckets[bucket] != 0 {
                bucket = (bucket + 1) & (size - 1);
            }
            self.buckets[bucket] = u16::try_from(id.0 + 1).expect("there are fewer than 65,535 commands");
        }
    }
}

/// A hash of the length and the first and last eight bytes, blind to case: the
/// bit that tells upper from lower case is set in every byte.
#[inline]
fn hash(name: &[u8]) -> usize {
    const LOWER: u64 = 0x2020_2020_2020_2020;
    let (head, tail) = match name.len() {
        8.. => (word(&name[..8]), word(&name[name.len() - 8..])),
        _ => {
            let mut bytes = [0; 8];
            bytes[..name.len()].copy_from_slice(name);
            (u64::from_le_bytes(bytes), 0)
        }
    };
    let mixed = ((head | LOWER) ^ (tail | LOWER).rotate_left(23)).wrapping_add(name.len() as u64);
    (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize
}

#[inline]
fn word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("the caller gives eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use command::Shows;

    #[test]
    fn every_command_is_found_in_any_case() {
        for command in top_level() {
            let upper = command.row.name.to_uppercase();
            assert_eq!(find(command.row.name.as_bytes()).unwrap().id, command.id);
            assert_eq!(find(upper.as_bytes()).unwrap().id, command.id);
        }
        assert!(find(b"").is_none() && find(b"nosuchcommand").is_none());
    }

    /// Families of which every command shows its session, the process or the configuration; and others of which these do.
    const SHOW_NOTHING: &[&str] = &[
        "acl",
        "acl|*",
        "asking",
        "auth",
        "bgrewriteaof",
        "bgsave",
        "client",
        "client|*",
        "cluster",
        "cluster|*",
        "command",
        "command|*",
        "config",
        "config|*",
        "discard",
        "echo",
        "failover",
        "function",
        "function|help",
        "function|kill",
        "hello",
        "lastsave",
        "latency",
        "latency|*",
        "lolwut",
        "memory",
        "memory|doctor",
        "memory|help",
        "memory|malloc-stats",
        "memory|purge",
        "module",
        "module|*",
        "monitor",
        "multi",
        "ping",
        "psubscribe",
        "psync",
        "publish",
        "pubsub",
        "pubsub|*",
        "punsubscribe",
        "quit",
        "readonly",
        "readwrite",
        "replconf",
        "replicaof",
        "reset",
        "role",
        "save",
        "script",
        "script|*",
        "select",
        "shutdown",
        "slaveof",
        "slowlog",
        "slowlog|help",
        "slowlog|len",
        "slowlog|reset",
        "spublish",
        "ssubscribe",
        "subscribe",
        "sunsubscribe",
        "sync",
        "time",
        "unsubscribe",
        "unwatch",
        "wait",
        "waitaof",
    ];

    /// The server's own commands that note what they look at: by the slots that they lock, or in so many words.
    const NOTE_WHAT_THEY_SHOW: &[&str] = &[
        "eval",
        "eval_ro",
        "evalsha",
        "evalsha_ro",
        "exec",
        "fcall",
        "fcall_ro",
        "function|dump",
        "function|list",
        "function|stats",
        "info",
        "memory|usage",
        "migrate",
        "watch",
    ];

    /// What keys there are is no business of those who show nothing, whatever their family.
    const SHOW_KEYS: &[&str] = &["cluster|countkeysinslot", "cluster|getkeysinslot"];

    #[test]
    fn a_reply_waits_for_everything_unless_its_row_is_known_to_look_at_less() {
        let is_in = |list: &[&str], name: &str| {
            let family = name.split_once('|').map(|(family, _)| format!("{family}|*"));
            list.iter().any(|known| *known == name || family.as_deref() == Some(*known))
        };
        for command in all() {
            let name = command.row.name;
            let expected = match command.row.handler {
                Runs::Data(row) if matches!(row.handler, Handler::Walk(_) | Handler::Exclusive(_)) => {
                    Shows::Everything
                }
                Runs::Data(_) => Shows::WhatItNotes,
                Runs::Server(_) if is_in(SHOW_KEYS, name) => Shows::Everything,
                Runs::Server(_) if is_in(NOTE_WHAT_THEY_SHOW, name) => Shows::WhatItNotes,
                Runs::Server(_) if is_in(SHOW_NOTHING, name) => Shows::Nothing,
                Runs::Server(_) => Shows::Everything,
            };
            assert_eq!(command.row.shows, expected, "{name}");
        }
        let known = SHOW_NOTHING.iter().chain(NOTE_WHAT_THEY_SHOW).chain(SHOW_KEYS);
        for name in known {
            let name = name.strip_suffix("|*").unwrap_or(name);
            assert!(find_full(name.as_bytes()).is_some(), "{name}");
        }
    }

    #[test]
    fn names_are_unique_and_lower_case() {
        let mut names: Vec<&str> = all().iter().map(|command| command.row.name).collect();
        assert!(names.iter().all(|name| !name.bytes().any(|byte| byte.is_ascii_uppercase())));
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
