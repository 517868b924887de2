//! Users from files: the lines of `user` in the configuration, and the file of `aclfile`,
//! which ACL LOAD and ACL SAVE read and write.
//!
//! A file is taken as a whole or not at all; every line that is wrong is named.

use crate::registry::{Registry, Users};
use crate::rules::{RuleError, join_selectors, shown};
use crate::selector::NewChannels;
use crate::user::{User, is_valid_name};
use config::Config;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;
use sys::file::Fs;
use telemetry::log;

/// Longer files are refused; this is thousands of users.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// Why users were not loaded; the sentence for log and reply.
#[derive(Debug, PartialEq, Eq)]
pub struct LoadError(pub String);

/// Why users were not saved.
#[derive(Debug)]
pub enum SaveError {
    /// There is no `aclfile`.
    NoFile,
    /// The disk refused.
    Disk(io::Error),
}

/// Loads the users that the configuration tells of. Called once, before the first client.
///
/// # Errors
/// A sentence for the operator; the server must not start with other rights than meant.
pub fn load_at_start(registry: &Registry, config: &Config) -> io::Result<()> {
    let lines = config.users();
    if !lines.is_empty() && path(config).is_some() {
        return Err(io::Error::other(
            "Users are defined both by 'user' lines of the configuration and by an 'aclfile'. Either may be meant \
             to hold all of them: define users in one place only.",
        ));
    }
    let critical = |LoadError(sentence)| io::Error::other(format!("Can't load the users: {sentence}"));
    load_lines(registry, &lines, new_channels(config)).map_err(critical)?;
    match path(config) {
        Some(_) => registry.load(config).map_err(critical),
        None => Ok(()),
    }
}

/// Makes the users of the configuration's lines: a name and its rules each.
fn load_lines(registry: &Registry, lines: &[Vec<Vec<u8>>], channels: NewChannels) -> Result<(), LoadError> {
    let mut users = registry.all();
    let mut seen: Vec<&[u8]> = Vec::new();
    for line in lines {
        let Some((name, rules)) = line.split_first() else { continue };
        let wrong = |error: RuleError| {
            LoadError(format!("Error in user declaration '{}': {}", shown(name), error.sentence()))
        };
        if seen.contains(&name.as_slice()) {
            return Err(wrong(RuleError::DuplicateUser));
        }
        seen.push(name);
        if !is_valid_name(name) {
            return Err(LoadError("Spaces not allowed in ACL usernames".to_owned()));
        }
        let mut user = User::new(name, channels);
        for rule in join_selectors(rules).map_err(|_| wrong(RuleError::Syntax))? {
            user.apply(&rule, channels).map_err(|error| {
                let (rule, name, sentence) = (shown(&rule), shown(name), error.sentence());
                LoadError(format!("Error loading ACL rule '{rule}' for the user named '{name}': {sentence}"))
            })?;
        }
        users.insert(name.clone(), Arc::new(user));
    }
    registry.replace(users);
    Ok(())
}

/// Which channels new users may use.
pub fn new_channels(config: &Config) -> NewChannels {
    if config.acl_pubsub_default_is_all() { NewChannels::All } else { NewChannels::None }
}

/// The path of `aclfile`, seen from the server's directory.
fn path(config: &Config) -> Option<PathBuf> {
    let name = config.aclfile();
    if name.is_empty() { None } else { Some(config.dir().join(OsString::from_vec(name))) }
}

impl Registry {
    /// ACL LOAD: the users of `aclfile` instead of all others.
    ///
    /// # Errors
    /// The file cannot be read, or lines of it are wrong; nothing changed.
    ///
    /// # Panics
    /// If there is no `aclfile`.
    pub fn load(&self, config: &Config) -> Result<(), LoadError> {
        let path = path(config).expect("the caller has looked whether there is a file");
        let shown_path = shown(&config.aclfile());
        let text = Fs::Real.read(&path, FILE_BYTES_MAX).map_err(|error| {
            LoadError(format!(
                "Error loading ACLs, opening file '{shown_path}': {}",
                config::sentence(&error)
            ))
        })?;
        let users = parse(&text, &shown_path, new_channels(config))?;
        self.replace(users);
        Ok(())
    }

    /// ACL SAVE: writes the users to `aclfile`, which is whole at every moment.
    ///
    /// # Errors
    /// See [`SaveError`].
    pub fn save(&self, config: &Config) -> Result<(), SaveError> {
        let path = path(config).ok_or(SaveError::NoFile)?;
        let _saving = self.saving.lock();
        Fs::Real.replace(&path, &self.lines().concat()).map_err(|error| {
            log!(Warning, "Can't save the users to {}: {error}", path.display());
            SaveError::Disk(error)
        })
    }

    /// A name and rules for each user, as words of the configuration's `user` lines.
    pub fn config_lines(&self) -> Vec<Vec<Vec<u8>>> {
        let words = |user: &Arc<User>| {
            let rules = user.describe();
            let rules = rules.split(|byte| *byte == b' ').map(<[u8]>::to_vec);
            std::iter::once(user.name().to_vec()).chain(rules).collect()
        };
        self.all().values().map(words).collect()
    }

    /// A line for each user, as in a file.
    pub fn lines(&self) -> Vec<Vec<u8>> {
        self.all().values().map(|user| [&user.line()[..], b"\n"].concat()).collect()
    }
}

/// Reads the text of a file. Every error is told, with what happened to the rules at last.
pub fn parse(text: &[u8], path: &str, channels: NewChannels) -> Result<Users, LoadError> {
    let mut users = Users::new();
    let mut errors = String::new();
    for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if !line.is_empty() {
            let place = Place { path, line: index + 1 };
            errors.extend(parse_line(line, &place, channels, &mut users));
        }
    }
    if errors.is_empty() {
        return Ok(users);
    }
    errors
        .push_str("WARNING: ACL errors detected, no change to the previously active ACL rules was performed");
    Err(LoadError(errors))
}

/// Where a line stands, for those who have to mend it.
pub(super) struct Place<'a> {
    pub(super) path: &'a str,
    pub(super) line: usize,
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.path, self.line)
    }
}

/// Adds the user of a line; returns what is wrong with it, sentence by sentence.
pub(super) fn parse_line(
    line: &[u8],
    place: &Place<'_>,
    channels: NewChannels,
    users: &mut Users,
) -> Vec<String> {
    let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let [b"user", name, rules @ ..] = words.as_slice() else {
        return vec![format!("{place} should start with user keyword followed by the username. ")];
    };
    if !is_valid_name(name) {
        return vec![format!("'{place}: username '{}' contains invalid characters. ", shown(name))];
    }
    if users.contains_key(*name) {
        return vec![format!("WARNING: Duplicate user '{}' found on line {}. ", shown(name), place.line)];
    }
    let rules: Vec<&[u8]> =
        rules.iter().map(|word| word.trim_ascii()).filter(|word| !word.is_empty()).collect();
    let mut user = User::new(name, channels);
    let wrong = match join_selectors(&rules) {
        Ok(rules) => apply_all(&mut user, &rules, place, channels),
        Err(_) => vec![format!("{place}: Unmatched parenthesis in selector definition.")],
    };
    users.insert(name.to_vec(), Arc::new(user));
    wrong
}

/// Names that are unknown are no secret; other rules may be, and the first of them that is
/// wrong explains those that follow.
fn apply_all(user: &mut User, rules: &[Vec<u8>], place: &Place<'_>, channels: NewChannels) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut is_explained = false;
    for rule in rules {
        match user.apply(rule, channels) {
            Err(RuleError::Unknown) => {
                let (rule, sentence) = (shown(rule), RuleError::Unknown.sentence());
                wrong.push(format!("{place}: Error in applying operation '{rule}': {sentence}. "));
            }
            Err(error) if !is_explained => {
                is_explained = true;
                wrong.push(format!("{place}: {}. ", error.sentence()));
            }
            Ok(()) | Err(_) => {}
        }
    }
    wrong
}
