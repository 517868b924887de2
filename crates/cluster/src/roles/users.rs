//! `tarn cluster users`: who may use the proxies of a cluster.

use crate::control::is_password;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::fmt::Write;

/// A user's line as it is told to config servers: with its passwords' hashes in their place.
///
/// # Errors
/// One sentence: a password stands where none can be.
pub fn hashed(line: &str) -> Result<String, String> {
    let word = |word: &str| match word.strip_prefix('>') {
        Some(password) if !password.contains(|letter: char| letter.is_ascii_control()) => {
            Ok(format!("#{}", digest(password)))
        }
        _ if is_password(word.trim_start_matches(|letter: char| letter.is_ascii_control())) => {
            Err("a password stands as >PASSWORD by itself, outside of parentheses".to_owned())
        }
        _ => Ok(word.to_owned()),
    };
    let words = line.split(' ').map(word).collect::<Result<Vec<_>, String>>()?;
    Ok(words.join(" "))
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
        let told = hashed("user alice on >secret ~* +@all ~>y");
        assert_eq!(told, Ok(format!("user alice on #{hash} ~* +@all ~>y")));
        for line in ["user a on (>secret)", "user a on <secret", "user a on \t>secret", "user a on >se\tcret"]
        {
            assert!(hashed(line).is_err(), "{line}");
        }
        // Within a selector it means nothing, and is refused where it is read.
        assert!(hashed("user a on (~x >secret +get)").is_ok_and(|told| !told.contains("secret")));
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
