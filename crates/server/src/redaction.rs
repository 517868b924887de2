//! Which words of a request must not be shown to anybody: passwords, in the slow
//! log and to MONITOR.
//!
//! Each command's words are read as its handler reads them, so that a name that looks like an option hides nothing and
//! shifts nothing. Where the handler would give up, everything from there on is hidden: it may be a password in the wrong
//! place.

use command::table::Command;
use config::TABLE;
use wire::Request;

const SHOWN_INSTEAD: &[u8] = b"(redacted)";
/// Position of MIGRATE's first option.
const MIGRATE_OPTIONS: usize = 6;
/// Position of HELLO's first option.
const HELLO_OPTIONS: usize = 2;

/// The words of a request with its secrets replaced.
pub fn shown<'a>(command: &Command, request: &Request<'a>) -> Vec<&'a [u8]> {
    let mut words: Vec<&[u8]> = request.iter().collect();
    hide_secrets(command.row.name, &mut words);
    words
}

/// Hides the secrets of a request for the command of this name.
fn hide_secrets(name: &str, words: &mut [&[u8]]) {
    match name {
        "auth" => hide(words, 1, usize::MAX),
        "acl|setuser" | "acl|deluser" | "acl|getuser" => hide(words, 2, usize::MAX),
        // What it would be allowed to do is a request of any kind.
        "acl|dryrun" => hide_secrets_of_request(words, 3),
        "command|getkeys" | "command|getkeysandflags" => hide_secrets_of_request(words, 2),
        "config|set" => hide_config_values(words),
        "hello" => hide_behind(words, HELLO_OPTIONS, &[(b"auth", 2, true), (b"setname", 1, false)]),
        "migrate" => hide_behind(
            words,
            MIGRATE_OPTIONS,
            &[
                (b"copy", 0, false),
                (b"replace", 0, false),
                (b"auth", 1, true),
                (b"auth2", 2, true),
                (b"keys", usize::MAX, false),
            ],
        ),
        _ => {}
    }
}

fn hide(words: &mut [&[u8]], from: usize, count: usize) {
    words.iter_mut().skip(from).take(count).for_each(|word| *word = SHOWN_INSTEAD);
}

/// An option: its name, how many words belong to it, and whether these are secrets.
type Spec<'n> = (&'n [u8], usize, bool);

/// Reads options from a position on. What is no option, or lacks words, is hidden with all that follows.
fn hide_behind(words: &mut [&[u8]], from: usize, options: &[Spec<'_>]) {
    let mut at = from;
    while at < words.len() {
        let known = options.iter().find(|(name, ..)| words[at].eq_ignore_ascii_case(name));
        let Some((_, count, is_secret)) = known else { return hide(words, at, usize::MAX) };
        let lacks = *count != usize::MAX && at + count >= words.len();
        if *is_secret || lacks {
            hide(words, at + 1, *count);
        }
        at = at.saturating_add(1).saturating_add(*count);
    }
}

/// Hides the secrets of the request that begins at a position. If that holds a request itself, all of that one: how deep they lie
/// in each other is the client's choice.
fn hide_secrets_of_request(words: &mut [&[u8]], from: usize) {
    let Some(request) = words.get_mut(from..).filter(|request| !request.is_empty()) else { return };
    let mut name = String::from_utf8_lossy(request[0]).to_ascii_lowercase();
    if let (Some(sub), "acl" | "config" | "command") = (request.get(1), name.as_str()) {
        name = format!("{name}|{}", String::from_utf8_lossy(sub).to_ascii_lowercase());
    }
    match name.as_str() {
        "acl|dryrun" | "command|getkeys" | "command|getkeysandflags" => hide(request, 2, usize::MAX),
        _ => hide_secrets(&name, request),
    }
}

/// Shows values of directives that are known not to be secret, and no others.
fn hide_config_values(words: &mut [&[u8]]) {
    if !words.len().is_multiple_of(2) {
        return hide(words, 2, usize::MAX);
    }
    for name in (2..words.len()).step_by(2) {
        let is_harmless =
            |row: &config::Row| row.is_named(words[name]) && !row.flags.contains(config::Flags::SENSITIVE);
        if !TABLE.iter().any(is_harmless) {
            hide(words, name + 1, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_within_requests_are_hidden_however_deep_they_are() {
        let mut words: Vec<&[u8]> = Vec::new();
        (0..200_000).for_each(|_| words.extend([b"command".as_slice(), b"getkeys"]));
        words.extend([b"auth".as_slice(), b"secret"]);
        hide_secrets("command|getkeys", &mut words);
        assert!(words[4..].iter().all(|word| *word == SHOWN_INSTEAD));
    }
    use command::table;
    use wire::RequestBuf;

    fn shown_line(line: &str) -> String {
        crate::commands::install();
        let request = RequestBuf::from_args(line.split(' '));
        let request = request.as_request();
        let words = shown(table::find_for(&request).expect(line), &request);
        String::from_utf8(words.join(&b' ')).unwrap()
    }

    #[test]
    fn names_that_look_like_options_shift_nothing() {
        for (line, expected) in [
            ("HELLO 3 SETNAME auth AUTH u PW", "HELLO 3 SETNAME auth AUTH (redacted) (redacted)"),
            ("HELLO 3 auth u PW setname auth", "HELLO 3 auth (redacted) (redacted) setname auth"),
            ("HELLO 3 SETNAME auth", "HELLO 3 SETNAME auth"),
            ("MIGRATE h 1 auth 0 9 AUTH PW", "MIGRATE h 1 auth 0 9 AUTH (redacted)"),
            ("MIGRATE auth2 1 k 0 9 auth2 u PW", "MIGRATE auth2 1 k 0 9 auth2 (redacted) (redacted)"),
            ("MIGRATE h 1 k 0 9 AUTH copy AUTH PW", "MIGRATE h 1 k 0 9 AUTH (redacted) AUTH (redacted)"),
            (
                "MIGRATE h 1 k 0 9 COPY AUTH PW KEYS auth k2",
                "MIGRATE h 1 k 0 9 COPY AUTH (redacted) KEYS auth k2",
            ),
            ("CONFIG SET maxmemory 1 requirepass PW", "CONFIG SET maxmemory 1 requirepass (redacted)"),
            ("CONFIG SET requirepass requirepass", "CONFIG SET requirepass (redacted)"),
            ("SET requirepass auth", "SET requirepass auth"),
        ] {
            assert_eq!(shown_line(line), expected);
        }
    }

    #[test]
    fn words_in_the_wrong_place_are_hidden() {
        for line in [
            "HELLO AUTH u PW",
            "HELLO 3 AUTH PW",
            "HELLO 3 SETNAME a u PW",
            "MIGRATE h 1 k 0 9 AUHT PW",
            "MIGRATE h 1 k 0 9 AUTH2 PW",
            "CONFIG SET requirepas PW",
            "CONFIG SET maxmemory requirepass PW",
            "AUTH a b PW",
            "ACL DRYRUN u AUTH u PW",
            "ACL DRYRUN u MIGRATE h 1 k 0 9 AUTH PW",
            "ACL DRYRUN u CONFIG SET requirepass PW",
            "ACL SETUSER u >PW",
            "COMMAND GETKEYS MIGRATE h 1 auth 0 9 AUTH PW",
            "COMMAND GETKEYSANDFLAGS COMMAND GETKEYS AUTH PW",
        ] {
            let shown = shown_line(line);
            assert!(!shown.contains("PW") && shown.contains("(redacted)"), "{shown}");
        }
    }
}
