//! Users that are kept elsewhere, for several processes: all of them come as lines, whenever one has changed, and take the place of those that were known.
//!
//! A line that makes no sense here may be a later version's. Then the user stays what it was, and one that is new is left off.

use crate::file::{Place, new_channels, parse_line};
use crate::registry::{Registry, Users};
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
        let mut users = self.users.write();
        let mut kept = Kept { revision, ..Kept::default() };
        let (mut fresh, mut told) = (Users::new(), Vec::new());
        let known = self.kept.lock().clone();
        let is_first = known.is_none();
        let before = known.map(|kept| kept.unread).unwrap_or_default();
        for (index, line) in lines.split(|byte| *byte == b'\n').enumerate() {
            if line.is_empty() {
                continue;
            }
            let name = line.split(|byte| *byte == b' ').nth(1).unwrap_or_default().to_vec();
            let mut one = Users::new();
            let wrong = parse_line(line, &Place { path: PLACE, line: index + 1 }, channels, &mut one);
            if wrong.is_empty() {
                fresh.extend(one);
                continue;
            }
            if !before.contains(&name) {
                let shown = String::from_utf8_lossy(&name).into_owned();
                told.push(format!(
                    "The user '{shown}' stays what it was here, or is left off: {}",
                    wrong.concat()
                ));
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
