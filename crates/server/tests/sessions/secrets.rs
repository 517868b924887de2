//! Passwords in requests, as the rows tell where they lie: nobody is shown them.

use command::table;
use telemetry::redaction::shown;
use wire::RequestBuf;

fn shown_line(line: &str) -> String {
    server::commands::install();
    let request = RequestBuf::from_args(line.split(' '));
    let request = request.as_request();
    let words = shown(table::find_for(&request).expect(line), &request);
    String::from_utf8(words.join(&b' ')).unwrap()
}

#[test]
fn requests_within_requests_are_hidden_however_deep_they_are() {
    let line = "COMMAND GETKEYS ".repeat(200_000) + "AUTH secret";
    let words = shown_line(&line);
    let mut words = words.split(' ');
    assert_eq!(
        [words.next(), words.next(), words.next(), words.next()].map(Option::unwrap),
        ["COMMAND", "GETKEYS", "COMMAND", "GETKEYS"]
    );
    assert!(words.all(|word| word == "(redacted)"));
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
