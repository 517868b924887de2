//! `tarn cluster users`: who may use the proxies of a cluster.

use crate::control::outside_of_selectors;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::fmt::Write;

/// A user's line as it is told to config servers: with its passwords' hashes in their place.
pub fn hashed(line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let outside: Vec<*const str> = outside_of_selectors(&words).map(std::ptr::from_ref).collect();
    let word = |word: &&str| match word.strip_prefix('>') {
        Some(password) if outside.contains(&std::ptr::from_ref(*word)) => format!("#{}", digest(password)),
        _ => (*word).to_owned(),
    };
    words.iter().map(word).collect::<Vec<_>>().join(" ")
}

fn digest(password: &str) -> String {
    Sha256::digest(password).iter().fold(String::new(), |mut hex, byte| {
        // Writing to a string does not fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// What config servers tell of users, for people: the lines; or as JSON.
pub fn shown(told: &str, is_json: bool) -> String {
    let mut lines = told.lines();
    let head = lines.next().unwrap_or_default();
    if !is_json {
        return lines.collect::<Vec<_>>().join("\n");
    }
    let revision = head.split(' ').nth(1).and_then(|word| word.parse::<u64>().ok());
    let user = |line: &str| -> Value {
        let mut words = line.splitn(3, ' ');
        let (kind, name, rules) = (words.next(), words.next(), words.next());
        match kind {
            Some("user") => json!({ "name": name, "rules": rules }),
            _ => json!({ "name": name, "rules": null }),
        }
    };
    json!({ "revision": revision, "users": lines.map(user).collect::<Vec<_>>() }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_do_not_leave_the_tool() {
        let hash = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
        assert_eq!(hashed("user alice on >secret ~* +@all"), format!("user alice on #{hash} ~* +@all"));
        assert_eq!(hashed("user a on (~x >secret +get) ~>y"), "user a on (~x >secret +get) ~>y");
    }

    #[test]
    fn users_are_shown() {
        let told = "users 7 ccc\nuser alice on ~*\nunreadable bob\n";
        assert_eq!(shown(told, false), "user alice on ~*\nunreadable bob");
        let json: Value = serde_json::from_str(&shown(told, true)).unwrap();
        assert_eq!(json["revision"], 7);
        assert_eq!(json["users"][0], json!({ "name": "alice", "rules": "on ~*" }));
        assert_eq!(json["users"][1]["rules"], Value::Null);
    }
}
