//! The users of a cluster's proxies, as the store holds them: a line for each, as ACL LIST shows it, with hashes in the place of passwords.
//!
//! What the rules mean the proxies know, which may be of another version; here only the form of a line is looked at. One that cannot be read stays as it is, and proxies
//! are told of whom it is, so that they keep what they know of that user.

use super::left_open::Felt;
use super::orders::{Done, Next, Stage, refuse};
use super::view::{View, key};
use crate::store::Revision;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

/// The most users.
pub const USERS_MAX: usize = 10_000;
/// The longest line of one.
pub const LINE_BYTES_MAX: usize = 64 << 10;
/// All lines together: they are told as one.
pub const ALL_BYTES_MAX: usize = 16 << 20;
/// The longest name: it is part of a key's.
const NAME_BYTES_MAX: usize = 1024;
/// The most users that one transaction changes: etcd takes 1.5 MB.
pub(super) const AT_ONCE: usize = 8;

/// All users.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Users {
    /// By name; None: what the store holds of it cannot be read. A view is copied often, and they are many.
    lines: Arc<BTreeMap<String, Option<String>>>,
    /// How long all lines are together.
    bytes: usize,
    /// The last revision that has changed one of them.
    pub revision: Revision,
}

impl Users {
    /// Takes over what the store holds of a user. Whether it can be read.
    pub fn take(&mut self, name: &str, value: Option<&str>) -> bool {
        let line = value.map(|value| UserLine::read(value).ok().filter(|line| line.name == name));
        let is_read = !matches!(line, Some(None));
        let lines = Arc::make_mut(&mut self.lines);
        let before = match line {
            Some(line) => {
                self.bytes += line.as_ref().map_or(0, |line| line.text.len());
                lines.insert(name.to_owned(), line.map(|line| line.text))
            }
            None => lines.remove(name),
        };
        self.bytes -= before.flatten().map_or(0, |before| before.len());
        is_read
    }

    /// The line of a user that is there and can be read.
    #[must_use]
    pub fn line(&self, name: &str) -> Option<&str> {
        self.lines.get(name)?.as_deref()
    }

    /// What proxies are told: `users REVISION CLUSTER`, and a line for each user; `unreadable NAME` of one that cannot be read.
    #[must_use]
    pub fn to_text(&self, cluster: &str) -> String {
        let mut text = String::with_capacity(self.bytes + 128);
        // Writing to a string does not fail.
        let _ = writeln!(text, "users {} {cluster}", self.revision.0);
        for (name, line) in &*self.lines {
            let _ = match line {
                Some(line) => writeln!(text, "{line}"),
                None => writeln!(text, "unreadable {name}"),
            };
        }
        text
    }

    /// Why a line cannot be added, or take the place of the one that is there.
    fn why_full(&self, change: &UserChange) -> Option<String> {
        let line = change.line.as_ref()?;
        let before = self.line(&change.name).map_or(0, str::len);
        if self.lines.len() >= USERS_MAX && !self.lines.contains_key(&change.name) {
            return Some(format!("there are {USERS_MAX} users, and no more are kept"));
        }
        let bytes = self.bytes - before + line.len();
        (bytes > ALL_BYTES_MAX)
            .then(|| format!("the lines of all users may be {ALL_BYTES_MAX} bytes long, and not {bytes}"))
    }
}

/// A user's line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserLine {
    /// Whose.
    pub name: String,
    /// `user NAME rule...`.
    pub text: String,
}

impl UserLine {
    /// Reads a line, whatever its rules mean.
    ///
    /// # Errors
    /// One sentence: what is wrong with it.
    pub fn read(text: &str) -> Result<UserLine, String> {
        if text.len() > LINE_BYTES_MAX {
            return Err(format!("a user's line is {LINE_BYTES_MAX} bytes long at most"));
        }
        if text.bytes().any(|byte| byte.is_ascii_control()) {
            return Err("a user's line has no control characters".to_owned());
        }
        let mut words = text.split(' ');
        let (head, name) = (words.next(), words.next().unwrap_or_default());
        let rules: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
        if head != Some("user") || rules.is_empty() {
            return Err("a user's line is `user NAME RULE ...`".to_owned());
        }
        look_at_name(name)?;
        if rules.iter().any(|rule| is_password(rule)) {
            return Err(
                "a password is kept as its hash: # and the 64 hexadecimal digits of its SHA-256".to_owned()
            );
        }
        Ok(UserLine { name: name.to_owned(), text: text.to_owned() })
    }
}

/// Looks whether a user may have this name.
///
/// # Errors
/// One sentence: it may not.
pub fn look_at_name(name: &str) -> Result<(), String> {
    match name {
        "" => Err("a user has a name".to_owned()),
        _ if name.len() > NAME_BYTES_MAX => {
            Err(format!("a user's name is {NAME_BYTES_MAX} bytes long at most"))
        }
        _ if name
            .contains(|letter: char| letter.is_ascii_whitespace() || letter == '\x0b' || letter == '\0') =>
        {
            Err("a user's name has neither spaces nor zero bytes".to_owned())
        }
        _ => Ok(()),
    }
}

/// Whether a word may be a password in clear, or one that is to go: none is within the parentheses of a selector either, whose rules begin with other signs.
pub fn is_password(rule: &str) -> bool {
    rule.trim_start_matches(['(', ' ']).starts_with(['>', '<'])
}

/// A user's name as it stands in a key: what is neither a letter nor a digit of ASCII is `%` and two digits, but for a few signs.
#[must_use]
pub fn escape(name: &str) -> String {
    name.bytes().fold(String::new(), |mut escaped, byte| {
        // Writing to a string does not fail.
        let _ = match byte {
            b'-' | b'_' | b'.' | b'@' | b':' => write!(escaped, "{}", char::from(byte)),
            _ if byte.is_ascii_alphanumeric() => write!(escaped, "{}", char::from(byte)),
            _ => write!(escaped, "%{byte:02x}"),
        };
        escaped
    })
}

/// The name behind [`escape`]; None: it is no user's.
#[must_use]
pub fn unescape(escaped: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::new(), escaped.bytes());
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            _ => byte,
        });
    }
    let name = String::from_utf8(bytes).ok()?;
    (look_at_name(&name).is_ok() && escape(&name) == escaped).then_some(name)
}

/// A user is to be another, or to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserChange {
    /// Which.
    pub name: String,
    /// Its line from now on; None: it goes.
    pub line: Option<String>,
    /// By which revision of the users this was thought of, if another is to forbid it.
    pub known: Option<u64>,
    /// Whose user it is: a cluster's id. Empty: that of whichever is asked.
    pub cluster: String,
}

impl UserChange {
    /// In the words of the operator's tool; rules are nobody's affair.
    pub(super) fn shown(&self) -> String {
        format!("users {} {}", if self.line.is_some() { "set" } else { "del" }, self.name)
    }

    /// Why it is for another cluster than this one; None: it is for this one.
    pub(super) fn why_elsewhere(&self, view: &View) -> Option<String> {
        let (own, its) = (&view.cluster, &self.cluster);
        (!its.is_empty() && its != own)
            .then(|| format!("WRONGCLUSTER this is cluster {own}, and the user is one of {its}"))
    }

    /// What is to become of it by what is known.
    pub(super) fn next(&self, view: &View, felt: Felt) -> Next {
        let users = &view.users;
        if users.line(&self.name) == self.line.as_deref() {
            return Next::End(match (&self.line, felt) {
                // One that has gone since this was wanted was there.
                (Some(_), _) | (None, Felt::Maybe) => Ok(told(view)),
                (None, Felt::No) => Err(format!("NOUSER there is no user '{}'", self.name)),
            });
        }
        if self.known.is_some_and(|known| users.revision.0 > known) {
            return Next::End(Err("CHANGED users were changed since this was thought of".to_owned()));
        }
        match users.why_full(self) {
            Some(why) => refuse(why),
            None => Next::Stage(Stage::Ready(Done::User(self.clone()))),
        }
    }

    /// Its key.
    pub(super) fn key(&self) -> String {
        key::user(&self.name)
    }
}

/// What is answered when a change is done and seen.
pub(super) fn told(view: &View) -> String {
    format!("revision {}", view.users.revision.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_safe_in_keys() {
        for (name, escaped) in
            [("alice", "alice"), ("a/b", "a%2fb"), ("é%", "%c3%a9%25"), ("a.b-c_d@e:f", "a.b-c_d@e:f")]
        {
            assert_eq!(escape(name), escaped);
            assert_eq!(unescape(escaped).as_deref(), Some(name));
        }
        for escaped in ["", "a/b", "a%2Fb", "%61", "%", "%2", "%zz", "%ff", "a%20b", "a b"] {
            assert_eq!(unescape(escaped), None, "{escaped}");
        }
    }

    #[test]
    fn lines_have_a_form() {
        let line = UserLine::read("user alice on #00 ~* (~x +get) +@all").unwrap();
        assert_eq!(line.name, "alice");
        let long = format!("user alice {}", "x".repeat(LINE_BYTES_MAX));
        for wrong in [
            "",
            "user",
            "user alice",
            "user alice ",
            "user  on",
            "users alice on",
            "user alice on\nuser bob on",
            "user alice on\r",
            "user al\0ice on",
            "user alice on >secret",
            "user alice (~x) <secret",
            "user alice on (~x >secret +get)",
            "user alice on (>secret)",
            "user alice on \t>secret",
            &long,
        ] {
            assert!(UserLine::read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn there_is_room_for_so_many() {
        let mut users = Users::default();
        let change = |name: &str, length: usize| UserChange {
            name: name.to_owned(),
            line: Some(format!("user {name} {}", "x".repeat(length))),
            known: None,
            cluster: String::new(),
        };
        for number in 0..USERS_MAX {
            let change = change(&format!("u{number}"), 10);
            assert_eq!(users.why_full(&change), None);
            users.take(&change.name, change.line.as_deref());
        }
        assert!(users.why_full(&change("more", 1)).is_some());
        assert!(users.why_full(&change("u1", 1)).is_none());
        assert!(users.why_full(&change("u1", ALL_BYTES_MAX)).is_some());
        assert!((0..USERS_MAX).all(|number| users.take(&format!("u{number}"), None)));
        assert_eq!((users.bytes, users.lines.len()), (0, 0));
    }
}
