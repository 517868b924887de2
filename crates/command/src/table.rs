//! All commands, found by name: the data commands' rows, and those of the server's own that it tells of at its start
//! ([`install`]), in one table.
//!
//! What is known of a command is in its row, so that users, statistics, the slow log and the rest need this table and no
//! handler. The server's own handlers are above: the table knows them by number.
//!
//! Thread rule: told once, then read by all.

use crate::effects::Scope;
use crate::row::{Flags, Handler, Keys, Reach, Row};
use crate::{FAMILIES, KeyFlags};
use std::sync::OnceLock;
use wire::Request;

/// What runs a command.
#[derive(Clone, Copy)]
pub enum Runs {
    /// This crate, with locked keys.
    Data(&'static Row<Handler>),
    /// The server, with its session: its handler of this number (see [`install`]).
    Server(usize),
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

static TABLE: OnceLock<Table> = OnceLock::new();

/// Makes the table of the data commands and of these families of the server's own. Gives the handlers of the latter, each at its
/// [number](Runs::Server).
///
/// # Panics
/// If there is a table already.
pub fn install<H: Copy>(families: &[&'static [Row<H>]]) -> Vec<H> {
    let (table, handlers) = Table::new(families);
    assert!(TABLE.set(table).is_ok(), "commands are told once");
    handlers
}

/// # Panics
/// If nobody has told of the server's own commands: what was asked then would be answered wrongly.
#[inline]
fn table() -> &'static Table {
    TABLE.get().expect("a program tells of its commands before it asks for one")
}

/// The command with this name, in any case.
#[inline]
pub fn find(name: &[u8]) -> Option<&'static Command> {
    let table = table();
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
    &table().commands[id.0]
}

/// How many places there are.
pub fn command_count() -> usize {
    table().commands.len()
}

/// Every command and subcommand.
pub fn all() -> &'static [Command] {
    &table().commands
}

/// The commands without their subcommands, family by family.
pub fn top_level() -> impl ExactSizeIterator<Item = &'static Command> {
    table().top_level.iter().map(|id| get(*id))
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

    /// Whether it is one of the server's own that may look at keys which it does not name, as DEBUG and INFO do.
    pub fn looks_around(&self) -> bool {
        let may = matches!(self.row.reach, Reach::Around | Reach::All | Reach::Script(_));
        matches!(self.row.handler, Runs::Server(_)) && may
    }

    /// Whether it runs a script or a function.
    #[inline]
    pub fn runs_script(&self) -> bool {
        matches!(self.row.reach, Reach::Script(_))
    }

    /// Whether it is EXEC.
    #[inline]
    pub fn is_exec(&self) -> bool {
        self.row.reach == Reach::Queue
    }

    /// Whether its requests name keys. Those of shard channels, which only have the slots of keys, do not count.
    pub fn names_keys(&self) -> bool {
        let names_channels = self.row.key_flags_of(0).contains(KeyFlags::NOT_KEY);
        !matches!(self.row.keys, Keys::None) && !names_channels
    }
}

impl Table {
    fn new<H: Copy>(families: &[&'static [Row<H>]]) -> (Table, Vec<H>) {
        let mut table = Table { commands: Vec::new(), buckets: Box::default(), top_level: Vec::new() };
        for row in FAMILIES.iter().flat_map(|family| family.iter()) {
            table.add(row, &mut Runs::Data);
        }
        let mut handlers = Vec::new();
        for row in families.iter().flat_map(|family| family.iter()) {
            table.add(row, &mut |row| {
                handlers.push(row.handler);
                Runs::Server(handlers.len() - 1)
            });
        }
        table.index();
        (table, handlers)
    }

    fn add<H: Copy>(&mut self, row: &'static Row<H>, runs: &mut impl FnMut(&'static Row<H>) -> Runs) {
        let container = self.add_one(row, runs(row));
        self.top_level.push(container);
        for row in row.subcommands {
            let id = self.add_one(row, runs(row));
            self.commands[container.0].subcommands.push(id);
        }
    }

    fn add_one<H: Copy>(&mut self, row: &'static Row<H>, runs: Runs) -> CommandId {
        let id = CommandId(self.commands.len());
        let first_key = match (row.keys, runs) {
            (Keys::Range { first, .. }, Runs::Data(_)) => first,
            // Behind a script and the number of its keys.
            (Keys::Movable(_), Runs::Server(_)) if matches!(row.reach, Reach::Script(_)) => 3,
            _ => 0,
        };
        self.commands.push(Command {
            id,
            row: row.with_handler(runs),
            first_key,
            effect: match runs {
                Runs::Data(row) => Scope::of(row),
                Runs::Server(_) => row.effect,
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
