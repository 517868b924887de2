//! CONFIG GET and CONFIG SET.
//!
//! A CONFIG SET takes effect as a whole or not at all: every name and value is checked before the first one is stored,
//! and if the server cannot act on the change, the old values come back.

use std::fmt;
use value::text::until_zero;

use value::glob::{Case, glob_match};

use crate::parsed::{BadValue, Value, format, parse};
use crate::row::{Flags, Kind, Row};
use crate::table::{TABLE, find};
use crate::words::{Access, Edition};
use crate::{Config, file};

/// A directive whose value is no longer what it was.
#[derive(Clone, Copy)]
pub struct ChangedDirective {
    /// Its row.
    pub row: &'static Row,
}

impl ChangedDirective {
    /// Its name in the table.
    pub fn name(self) -> &'static str {
        self.row.name
    }
}

impl fmt::Debug for ChangedDirective {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str(self.row.name)
    }
}

/// Where a CONFIG SET comes from; protected directives may be open to this machine only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A connection from this machine.
    Local,
    /// Any other.
    Remote,
}

/// Why a CONFIG SET is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetError {
    /// No such directive.
    Unknown {
        /// As the client wrote it.
        name: Vec<u8>,
    },
    /// A directive cannot be set, or not to this.
    Failed {
        /// As the client wrote it.
        name: Vec<u8>,
        /// In Redis' words.
        reason: String,
    },
}

impl SetError {
    /// The reply, from `ERR` on.
    pub fn line(&self) -> Vec<u8> {
        let (before, name, after) = match self {
            SetError::Unknown { name } => {
                ("ERR Unknown option or number of arguments for CONFIG SET - '", name, "'".to_owned())
            }
            SetError::Failed { name, reason } => {
                ("ERR CONFIG SET failed (possibly related to argument '", name, format!("') - {reason}"))
            }
        };
        [before.as_bytes(), until_zero(name), after.as_bytes()].concat()
    }
}

impl fmt::Display for SetError {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str(&String::from_utf8_lossy(&self.line()))
    }
}

impl std::error::Error for SetError {}

/// The server could not act on a change: which directive, and why in a sentence for the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CannotApply {
    /// Its name in the table.
    pub name: &'static str,
    /// The sentence.
    pub reason: String,
}

/// Why a durable edition refuses less.
const DECIDED: &str = "this edition has every write on disk before its reply";

impl Config {
    /// CONFIG GET: names and values for any number of names and glob patterns, each name once. A name without pattern
    /// characters is answered as it was asked.
    pub fn get<P: AsRef<[u8]>>(&self, patterns: &[P]) -> Vec<(Vec<u8>, Vec<u8>)> {
        let values = self.values.read();
        let mut found: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        let mut add = |name: &[u8], index: usize| {
            if !found.iter().any(|(known, _)| known.eq_ignore_ascii_case(name)) {
                let value = self.decided_by_edition(index).map(<[u8]>::to_vec);
                found.push((name.to_vec(), value.unwrap_or_else(|| format(&TABLE[index], &values[index]))));
            }
        };
        for pattern in patterns.iter().map(AsRef::as_ref) {
            if !pattern.iter().any(|byte| b"[*?".contains(byte)) {
                if let Some(index) =
                    find(pattern).filter(|&index| !TABLE[index].flags.contains(Flags::FILE_ONLY))
                {
                    add(pattern, index);
                }
                continue;
            }
            for (index, row) in TABLE.iter().enumerate() {
                if row.flags.intersects(Flags::FILE_ONLY | Flags::HIDDEN) {
                    continue;
                }
                for name in std::iter::once(row.name).chain(row.alias) {
                    if glob_match(pattern, name.as_bytes(), Case::Insensitive) {
                        add(name.as_bytes(), index);
                    }
                }
            }
        }
        found
    }

    /// What durable editions do whatever a directive says: who asks wants to know that.
    fn decided_by_edition(&self, index: usize) -> Option<&'static [u8]> {
        match TABLE[index].name {
            _ if self.edition() == Edition::Memory => None,
            "appendonly" => Some(b"yes"),
            "appendfsync" => Some(b"always"),
            _ => None,
        }
    }

    /// CONFIG SET of any number of names and values. Returns the directives whose value changed; the caller acts on
    /// them. Where acting can fail, use `set_and_apply`.
    pub fn set<N, V>(&self, pairs: &[(N, V)], origin: Origin) -> Result<Vec<ChangedDirective>, SetError>
    where
        N: AsRef<[u8]>,
        V: AsRef<[u8]>,
    {
        self.set_and_apply(pairs, origin, |_| Ok(()))
    }

    /// As `set`, and lets `apply` act on the change while it is already readable. If `apply` fails, the old values come
    /// back and `apply` is not called again: it must leave things as they were.
    pub fn set_and_apply<N, V>(
        &self,
        pairs: &[(N, V)],
        origin: Origin,
        apply: impl FnOnce(&[ChangedDirective]) -> Result<(), CannotApply>,
    ) -> Result<Vec<ChangedDirective>, SetError>
    where
        N: AsRef<[u8]>,
        V: AsRef<[u8]>,
    {
        let _changing = self.changing.lock();
        let mut indices = Vec::with_capacity(pairs.len());
        for (at, (name, _)) in pairs.iter().enumerate() {
            let index = self.settable(name.as_ref(), origin)?;
            // A directive may stand beside its alias: the last one counts.
            if pairs[..at].iter().any(|(other, _)| other.as_ref().eq_ignore_ascii_case(name.as_ref())) {
                return Err(failed(name.as_ref(), "duplicate parameter"));
            }
            indices.push(index);
        }
        let mut changes = Vec::new();
        for (&index, (name, text)) in indices.iter().zip(pairs) {
            let value = self
                .parse_set(index, text.as_ref())
                .map_err(|BadValue(reason)| failed(&name.as_ref().to_ascii_lowercase(), reason))?;
            if let Some(decided) = self.decided_by_edition(index) {
                if format(&TABLE[index], &value) != decided {
                    return Err(failed(name.as_ref(), DECIDED));
                }
                continue;
            }
            changes.retain(|(changed, _)| *changed != index);
            if self.values.read()[index] != value {
                if TABLE[index].flags.contains(Flags::FIXED) {
                    return Err(failed(name.as_ref(), "can't set immutable config"));
                }
                changes.push((index, value));
            }
        }
        let changed: Vec<_> =
            changes.iter().map(|(index, _)| ChangedDirective { row: &TABLE[*index] }).collect();
        let before = self.swap(changes);
        match apply(&changed) {
            Ok(()) => Ok(changed),
            Err(CannotApply { name, reason }) => {
                self.swap(before);
                Err(failed(name.as_bytes(), reason))
            }
        }
    }

    /// The directive of a name, if CONFIG SET may change it.
    fn settable(&self, name: &[u8], origin: Origin) -> Result<usize, SetError> {
        let known = find(name).filter(|&index| !TABLE[index].flags.contains(Flags::FILE_ONLY));
        let Some(index) = known else {
            return Err(SetError::Unknown { name: name.to_vec() });
        };
        let flags = TABLE[index].flags;
        if flags.contains(Flags::IMMUTABLE) {
            return Err(failed(name, "can't set immutable config"));
        }
        let is_open = match self.enable_protected_configs() {
            Access::Yes => true,
            Access::Local => origin == Origin::Local,
            Access::No => false,
        };
        if flags.contains(Flags::PROTECTED) && !is_open {
            return Err(failed(name, "can't set protected config"));
        }
        Ok(index)
    }

    fn parse_set(&self, index: usize, text: &[u8]) -> Result<Value, BadValue> {
        let row = &TABLE[index];
        let words: Vec<&[u8]> = match row.kind.takes_several_words() {
            true if text.is_empty() => Vec::new(),
            true => text.split(|&byte| byte == b' ').collect(),
            false => vec![text],
        };
        let values = self.values.read();
        // Classes that are not named keep their limits; anything else is replaced.
        let before = matches!(row.kind, Kind::OutputLimits).then_some(&values[index]);
        let value = parse(row, &words, before.cloned())?;
        if matches!(row.kind, Kind::Directory) {
            file::check_directory(text).map_err(|error| BadValue(file::sentence(&error)))?;
        }
        Ok(value)
    }

    /// Stores values and returns those that they replace.
    fn swap(&self, mut changes: Vec<(usize, Value)>) -> Vec<(usize, Value)> {
        let mut values = self.values.write();
        for (index, value) in &mut changes {
            self.mirror(*index, value);
            std::mem::swap(&mut values[*index], value);
        }
        changes
    }
}

fn failed(name: &[u8], reason: impl Into<String>) -> SetError {
    SetError::Failed { name: name.to_vec(), reason: reason.into() }
}
