//! A selector: commands, keys and channels that go together. A user has one of its own
//! and any number in parentheses; a command may run if one of them allows all of it.

use crate::channels;
use crate::commands::{CommandRules, Sign};
use crate::rules::{RuleError, has_space, is};
use crate::user::Denied;
use bitflags::bitflags;
use command::KeyFlags;
use command::execute::{key_positions, positions_by_keywords};
use command::key_flags::{flags_of, named_by_count};
use command::table::Command;
use value::glob::{Case, glob_match};
use wire::Request;

bitflags! {
    /// What a pattern allows with the keys that match.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Permission: u8 {
        /// `%R`
        const READ = 1;
        /// `%W`
        const WRITE = 2;
    }
}

/// Which channels a new selector may use (`acl-pubsub-default`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewChannels {
    /// All.
    All,
    /// None.
    None,
}

/// Everything, or what matches one of these.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Allowed<P> {
    All,
    Only(Vec<P>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct KeyPattern {
    permission: Permission,
    pattern: Vec<u8>,
}

/// One selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    commands: CommandRules,
    keys: Allowed<KeyPattern>,
    channels: Allowed<Vec<u8>>,
}

impl Selector {
    /// No commands, no keys.
    pub fn new(channels: NewChannels) -> Selector {
        let channels = match channels {
            NewChannels::All => Allowed::All,
            NewChannels::None => Allowed::Only(Vec::new()),
        };
        Selector { commands: CommandRules::none(), keys: Allowed::Only(Vec::new()), channels }
    }

    /// The selector of a rule in parentheses.
    pub fn parse(rule: &[u8], channels: NewChannels) -> Result<Selector, RuleError> {
        let mut selector = Selector::new(channels);
        let inner = rule.strip_prefix(b"(").and_then(|rest| rest.strip_suffix(b")")).unwrap_or_default();
        // Redis takes unbalanced quotes for nothing at all, which is the safe side.
        for word in wire::split_words(inner).unwrap_or_default() {
            selector.apply(&word)?;
        }
        Ok(selector)
    }

    /// Applies one rule about commands, keys or channels.
    pub fn apply(&mut self, rule: &[u8]) -> Result<(), RuleError> {
        match rule {
            _ if is(rule, "allkeys") || rule == b"~*" => self.keys = Allowed::All,
            _ if is(rule, "resetkeys") => self.keys = Allowed::Only(Vec::new()),
            _ if is(rule, "allchannels") || rule == b"&*" => self.channels = Allowed::All,
            _ if is(rule, "resetchannels") => self.channels = Allowed::Only(Vec::new()),
            _ if is(rule, "allcommands") || is(rule, "+@all") => {
                self.commands = CommandRules::all_or_none(Sign::Allow);
            }
            _ if is(rule, "nocommands") || is(rule, "-@all") => self.commands = CommandRules::none(),
            [b'~', pattern @ ..] => self.allow_keys(Permission::all(), pattern)?,
            [b'%', ..] if self.keys == Allowed::All => return Err(RuleError::KeyAfterAll),
            [b'%', rest @ ..] => {
                let (permission, pattern) = permission_and_pattern(rest).ok_or(RuleError::Syntax)?;
                self.allow_keys(permission, pattern)?;
            }
            [b'&', pattern @ ..] => self.allow_channels(pattern)?,
            [b'+', b'@', category @ ..] => self.commands.change_category(Sign::Allow, category)?,
            [b'-', b'@', category @ ..] => self.commands.change_category(Sign::Deny, category)?,
            [b'+', name @ ..] => match name.iter().rposition(|byte| *byte == b'|') {
                Some(bar) => self.commands.allow_part(&name[..bar], &name[bar + 1..])?,
                None => self.commands.change_command(Sign::Allow, name)?,
            },
            [b'-', name @ ..] => self.commands.change_command(Sign::Deny, name)?,
            _ => return Err(RuleError::Syntax),
        }
        Ok(())
    }

    fn allow_keys(&mut self, permission: Permission, pattern: &[u8]) -> Result<(), RuleError> {
        let Allowed::Only(patterns) = &mut self.keys else { return Err(RuleError::KeyAfterAll) };
        if has_space(pattern) {
            return Err(RuleError::Syntax);
        }
        match patterns.iter_mut().find(|known| known.pattern == pattern) {
            Some(known) => known.permission |= permission,
            None => patterns.push(KeyPattern { permission, pattern: pattern.to_vec() }),
        }
        Ok(())
    }

    fn allow_channels(&mut self, pattern: &[u8]) -> Result<(), RuleError> {
        let Allowed::Only(patterns) = &mut self.channels else { return Err(RuleError::ChannelAfterAll) };
        if has_space(pattern) {
            return Err(RuleError::Syntax);
        }
        if !patterns.iter().any(|known| known == pattern) {
            patterns.push(pattern.to_vec());
        }
        Ok(())
    }

    /// Whether it allows everything, whatever comes.
    pub fn is_all(&self) -> bool {
        self.commands.is_all() && self.keys == Allowed::All && self.channels == Allowed::All
    }

    /// Whether it allows a request. Where words are missing, as scripts may ask, those that are there count.
    pub fn check(&self, command: &Command, request: &Request<'_>) -> Result<(), Denied> {
        if !self.commands.allow(command, request) {
            return Err(Denied::Command);
        }
        self.check_keys(command, request)?;
        for channel in channels::of(command, request) {
            if !self.allows_channel(request.arg(channel.position), channel.is_pattern) {
                return Err(Denied::Channel(channel.position));
            }
        }
        Ok(())
    }

    fn check_keys(&self, command: &Command, request: &Request<'_>) -> Result<(), Denied> {
        let Allowed::Only(patterns) = &self.keys else { return Ok(()) };
        // Shard channels need permission as channels.
        if !command.names_keys() {
            return Ok(());
        }
        let mut positions = Vec::new();
        key_positions(command.row.keys, request, &mut positions);
        if positions.is_empty() {
            // Not a request that would run; still, its keys are named.
            positions.extend(positions_by_keywords(&command.row, request).into_iter().flatten());
            positions.extend(named_by_count(command, request));
        }
        let given = positions.into_iter().filter(|position| *position < request.len());
        for (number, position) in given.enumerate() {
            let needed = needed_for(flags_of(command, request, number));
            let allows = |pattern: &KeyPattern| {
                pattern.permission.contains(needed)
                    && glob_match(&pattern.pattern, request.arg(position), Case::Sensitive)
            };
            if !patterns.iter().any(allows) {
                return Err(Denied::Key(position));
            }
        }
        Ok(())
    }

    /// Whether a channel may be used; subscribing to a pattern needs the very pattern.
    pub fn allows_channel(&self, channel: &[u8], is_pattern: bool) -> bool {
        match &self.channels {
            Allowed::All => true,
            Allowed::Only(known) if is_pattern => known.iter().any(|pattern| pattern == channel),
            Allowed::Only(known) => known.iter().any(|pattern| glob_match(pattern, channel, Case::Sensitive)),
        }
    }

    /// Whether it lets every key be read.
    pub fn reads_every_key(&self) -> bool {
        match &self.keys {
            Allowed::All => true,
            Allowed::Only(patterns) => patterns
                .iter()
                .any(|known| known.permission.contains(Permission::READ) && known.pattern == b"*"),
        }
    }

    /// The rules about commands, as ACL GETUSER shows them.
    pub fn commands_text(&self) -> Vec<u8> {
        let mut text = Vec::new();
        self.commands.describe(&mut text);
        text
    }

    /// The rules about keys.
    pub fn keys_text(&self) -> Vec<u8> {
        let Allowed::Only(patterns) = &self.keys else { return b"~*".to_vec() };
        let words: Vec<Vec<u8>> = patterns
            .iter()
            .map(|known| {
                let sign: &[u8] = match known.permission {
                    Permission::READ => b"%R~",
                    Permission::WRITE => b"%W~",
                    _ => b"~",
                };
                [sign, &known.pattern].concat()
            })
            .collect();
        words.join(&b' ')
    }

    /// The rules about channels.
    pub fn channels_text(&self) -> Vec<u8> {
        let Allowed::Only(patterns) = &self.channels else { return b"&*".to_vec() };
        let words: Vec<Vec<u8>> = patterns.iter().map(|pattern| [b"&", &pattern[..]].concat()).collect();
        words.join(&b' ')
    }

    /// All rules, in the order of ACL LIST.
    pub fn describe(&self, out: &mut Vec<u8>) {
        let keys = self.keys_text();
        if !keys.is_empty() {
            out.extend_from_slice(&keys);
            out.push(b' ');
        }
        if let Allowed::Only(_) = self.channels {
            out.extend_from_slice(b"resetchannels ");
        }
        let channels = self.channels_text();
        if !channels.is_empty() {
            out.extend_from_slice(&channels);
            out.push(b' ');
        }
        self.commands.describe(out);
    }
}

/// What is needed to do this with a key. Only knowing whether it is there needs nothing
/// but a pattern that matches.
fn needed_for(flags: KeyFlags) -> Permission {
    let mut needed = Permission::empty();
    if flags.contains(KeyFlags::ACCESS) {
        needed |= Permission::READ;
    }
    if flags.intersects(KeyFlags::INSERT | KeyFlags::DELETE | KeyFlags::UPDATE) {
        needed |= Permission::WRITE;
    }
    needed
}

/// Takes `RW~pattern` apart: each letter at most once, at least one of them.
fn permission_and_pattern(rest: &[u8]) -> Option<(Permission, &[u8])> {
    let mut permission = Permission::empty();
    for (at, byte) in rest.iter().enumerate() {
        let letter = match byte.to_ascii_uppercase() {
            b'R' => Permission::READ,
            b'W' => Permission::WRITE,
            b'~' if !permission.is_empty() => return Some((permission, &rest[at + 1..])),
            _ => return None,
        };
        if permission.contains(letter) {
            return None;
        }
        permission |= letter;
    }
    None
}
