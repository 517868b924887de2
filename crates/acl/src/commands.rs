//! Which commands a selector allows: a bit per command, and the rules that led there.
//!
//! The bits decide; the rules are kept only to be shown again (ACL LIST), each command or
//! category at most once, in the order in which they were last given.

use crate::rules::{RuleError, has_space};
use command::table::{self, Command, CommandId};
use command::{Categories, Flags};
use std::collections::BTreeMap;
use wire::Request;

/// Whether a rule gives or takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// `+`
    Allow,
    /// `-`
    Deny,
}

/// The commands of one selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandRules {
    /// A bit for each place in the table of commands.
    allowed: Box<[u64]>,
    /// What the rules began with: `+@all` or `-@all`.
    base: Sign,
    /// `+@all`, and no command was taken away since.
    has_all: bool,
    /// First arguments with which commands are allowed that are not allowed as such.
    first_args: BTreeMap<CommandId, Vec<Vec<u8>>>,
    /// What was given since the last `@all`, names in lower case.
    rules: Vec<(Sign, Vec<u8>)>,
}

impl CommandRules {
    /// No command.
    pub fn none() -> CommandRules {
        CommandRules::all_or_none(Sign::Deny)
    }

    /// `+@all` or `-@all`.
    pub fn all_or_none(sign: Sign) -> CommandRules {
        let word = if sign == Sign::Allow { u64::MAX } else { 0 };
        CommandRules {
            allowed: vec![word; table::command_count().div_ceil(64)].into(),
            base: sign,
            has_all: sign == Sign::Allow,
            first_args: BTreeMap::new(),
            rules: Vec::new(),
        }
    }

    /// Whether every command is allowed, those of the future too.
    pub fn is_all(&self) -> bool {
        self.has_all
    }

    /// Whether a command is allowed, perhaps by its first argument.
    pub fn allow(&self, command: &Command, request: &Request<'_>) -> bool {
        if self.has_all || command.is(Flags::NO_AUTH) || self.bit(command.id) {
            return true;
        }
        let Some(first_args) = self.first_args.get(&command.id) else { return false };
        request.get(1).is_some_and(|given| first_args.iter().any(|arg| arg.eq_ignore_ascii_case(given)))
    }

    fn bit(&self, id: CommandId) -> bool {
        self.allowed[id.0 / 64] & (1 << (id.0 % 64)) != 0
    }

    fn set_bit(&mut self, id: CommandId, sign: Sign) {
        let bit = 1 << (id.0 % 64);
        match sign {
            Sign::Allow => self.allowed[id.0 / 64] |= bit,
            Sign::Deny => {
                self.allowed[id.0 / 64] &= !bit;
                self.has_all = false;
            }
        }
    }

    /// `+@category` and `-@category`, without sign and `@`.
    pub fn change_category(&mut self, sign: Sign, name: &[u8]) -> Result<(), RuleError> {
        let category = category(name).ok_or(RuleError::Unknown)?;
        self.note(sign, [b"@", name].concat());
        let members = table::all().iter().filter(|command| command.row.categories().contains(category));
        members.for_each(|command| self.change(sign, command));
        Ok(())
    }

    /// `-command`, `-command|subcommand`, and `+command` without a bar.
    pub fn change_command(&mut self, sign: Sign, name: &[u8]) -> Result<(), RuleError> {
        let command = table::find_full(name).ok_or(RuleError::Unknown)?;
        self.change(sign, command);
        self.note(sign, command.row.name.into());
        Ok(())
    }

    /// `+command|subcommand`, or `+command|argument` for a command without subcommands.
    pub fn allow_part(&mut self, name: &[u8], part: &[u8]) -> Result<(), RuleError> {
        let command = table::find_full(name).ok_or(RuleError::Unknown)?;
        if command.row.name.contains('|') {
            return Err(RuleError::FirstArgumentOfSubcommand);
        }
        if part.is_empty() || has_space(part) {
            return Err(RuleError::Syntax);
        }
        if command.subcommands.is_empty() {
            let first_args = self.first_args.entry(command.id).or_default();
            if !first_args.iter().any(|known| known.eq_ignore_ascii_case(part)) {
                first_args.push(part.to_vec());
            }
        } else {
            let subcommand = table::find_subcommand(command, part).ok_or(RuleError::Unknown)?;
            self.change(Sign::Allow, subcommand);
        }
        self.note(Sign::Allow, [name, b"|", part].concat());
        Ok(())
    }

    /// Gives or takes a command with its subcommands.
    fn change(&mut self, sign: Sign, command: &Command) {
        self.first_args.remove(&command.id);
        self.set_bit(command.id, sign);
        command.subcommands.iter().for_each(|id| self.set_bit(*id, sign));
    }

    /// Keeps a rule in place of those that it makes void: the same one, and those about
    /// the command's subcommands.
    fn note(&mut self, sign: Sign, name: Vec<u8>) {
        let name = name.to_ascii_lowercase();
        self.rules.retain(|(_, known)| {
            known.strip_prefix(name.as_slice()).is_none_or(|rest| !rest.is_empty() && rest[0] != b'|')
        });
        self.rules.push((sign, name));
    }

    /// The rules as ACL GETUSER shows them.
    pub fn describe(&self, out: &mut Vec<u8>) {
        let sign = |sign| if sign == Sign::Allow { b'+' } else { b'-' };
        out.push(sign(self.base));
        out.extend_from_slice(b"@all");
        for (given, name) in &self.rules {
            out.extend_from_slice(&[b' ', sign(*given)]);
            out.extend_from_slice(name);
        }
    }
}

/// The category with this name, in any case.
pub fn category(name: &[u8]) -> Option<Categories> {
    Categories::all()
        .iter_names()
        .find(|(known, _)| known.as_bytes().eq_ignore_ascii_case(name))
        .map(|(_, category)| category)
}
