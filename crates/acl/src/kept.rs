//! Users that are kept elsewhere, for several processes: all of them come as lines, whenever one has changed, and take the place of those that were known.
//!
//! A line that makes no sense here may be a later version's. Then the user stays what it was, and one that is new is left off.

use crate::file::{Place, new_channels, parse_line};
use crate::registry::{Registry, Users};
use crate::selector::NewChannels;
use crate::user::{DEFAULT_USER, User};
use config::Config;
use std::collections::BTreeSet;
use std::sync::Arc;

/// How errors name the place of a line.
const PLACE: &str = "users of the cluster";

/// What is known of users that are kept elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Up to where they are known.
    pub revision: u64,
    /// The names of users whose lines cannot be read here.
    pub unread: BTreeSet<Vec<u8>>,
    /// Whether the default user is one of them, and not what `requirepass` says.
    pub has_default: bool,
}

impl Registry {
    /// What is known of users that are kept elsewhere; None: they are not.
    pub fn kept(&self) -> Option<Kept> {
        self.kept.lock().clone()
    }

    /// Takes these users instead of all others: a line for each, as ACL LIST shows it. A default user that is not among them is as it is at first, with the password that
    /// `requirepass` says. Gives a sentence for each line that could be read until now and cannot be any more.
    pub fn take_kept(&self, revision: u64, lines: &[u8], config: &Config) -> Vec<String> {
        let channels = new_channels(config);
        // Whoever is to be let in waits for what follows, and they are many lines.
        let read = read(lines, channels);
        let mut users = self.users.write();
        let mut kept = Kept { revision, ..Kept::default() };
        let (mut fresh, mut told) = (Users::new(), Vec::new());
        let known = self.kept.lock().clone();
        let is_first = known.is_none();
        let before = known.map(|kept| kept.unread).unwrap_or_default();
        for Line { name, user } in read {
            let wrong = match user {
                Ok(user) => {
                    fresh.insert(name, user);
                    continue;
                }
                Err(wrong) => wrong,
            };
            if !before.contains(&name) {
                let shown = String::from_utf8_lossy(&name).into_owned();
                told.push(format!("The user '{shown}' stays what it was here, or is left off: {wrong}"));
            }
            let former = match is_first {
                // What a process begins with is nobody's will: whoever may not be let in is not.
                true if name == DEFAULT_USER.as_bytes() => Some(Arc::new(User::new(&name, channels))),
                true => None,
                false => users.get(&name).cloned(),
            };
            fresh.extend(former.map(|user| (name.clone(), user)));
            kept.unread.insert(name);
        }
        kept.has_default = fresh.contains_key(DEFAULT_USER.as_bytes());
        if !kept.has_default {
            let mut user = User::everybody();
            user.set_password(&config.requirepass());
            fresh.insert(DEFAULT_USER.into(), Arc::new(user));
        }
        *self.kept.lock() = Some(kept);
        *users = fresh;
        self.changed(users);
        told
    }
}

/// What a line says.
struct Line {
    /// Of whom.
    name: Vec<u8>,
    /// Who that is, or what is wrong with the line.
    user: Result<Arc<User>, String>,
}

/// Reads users, a line each.
fn read(lines: &[u8], channels: NewChannels) -> Vec<Line> {
    let lines = lines.split(|byte| *byte == b'\n').enumerate().filter(|(_, line)| !line.is_empty());
    let one = |(index, line): (usize, &[u8])| {
        let name = line.split(|byte| *byte == b' ').nth(1).unwrap_or_default().to_vec();
        Line { name, user: read_one(line, index + 1, channels) }
    };
    lines.map(one).collect()
}

fn read_one(line: &[u8], number: usize, channels: NewChannels) -> Result<Arc<User>, String> {
    let mut users = Users::new();
    let wrong = parse_line(line, &Place { path: PLACE, line: number }, channels, &mut users);
    match users.into_values().next() {
        Some(user) if wrong.is_empty() => Ok(user),
        _ => Err(wrong.concat()),
    }
}

/// Whether who reads a user's line has the same user. A selector that is given as one word may hold rules that end as selectors do: in a line it ends there.
pub fn reads_back(user: &User, config: &Config) -> bool {
    let read = read_one(&user.line(), 1, new_channels(config));
    read.is_ok_and(|read| read.name() == user.name() && read.describe() == user.describe())
}
