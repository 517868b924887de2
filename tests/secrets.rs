//! Passwords stay with those who know them: in whatever form and place a request carries one, whether it succeeds or not, it
//! is found neither in the slow log, nor by MONITOR, nor in ACL LOG, INFO, CLIENT LIST or the latency monitor, nor in what
//! the server writes to its log.

use crate::{specs, tarn};
use std::collections::BTreeSet;
use sys::Prng;
use testkit::{Budget, Client, Server};
use wire::Value;

/// Names that look like options, and other words, in places where anything may stand.
const WORDS: [&str; 10] =
    ["auth", "AUTH2", "setname", "keys", "copy", "replace", "x", "0", "requirepass", "bob"];

/// Forms of requests with a password `PW`; `?` is any word.
const FORMS: [&str; 30] = [
    "AUTH PW",
    "AUTH ? PW",
    "AUTH ? ? PW",
    "HELLO 3 AUTH ? PW",
    "HELLO 2 SETNAME ? AUTH ? PW",
    "HELLO 3 AUTH ? PW SETNAME ?",
    "HELLO AUTH ? PW",
    "HELLO ? AUTH ? PW",
    "HELLO 3 SETNAME ? ? PW",
    "HELLO 3 AUTH PW",
    "MIGRATE 127.0.0.1 1 ? 0 20 AUTH PW",
    "MIGRATE ? 1 ? 0 20 AUTH2 ? PW",
    "MIGRATE 127.0.0.1 1 ? 0 20 COPY AUTH PW REPLACE",
    "MIGRATE 127.0.0.1 1 EMPTY 0 20 AUTH PW KEYS ? ?",
    "MIGRATE 127.0.0.1 1 ? 0 20 AUTH ? AUTH PW",
    "MIGRATE 127.0.0.1 1 ? 0 20 AUHT PW",
    "MIGRATE 127.0.0.1 1 ? ? 20 AUTH PW",
    "CONFIG SET requirepass PW requirepass PW",
    "CONFIG SET maxmemory 0 masterauth PW",
    "CONFIG SET requirepas PW",
    "CONFIG SET requirepass ? PW",
    "CONFIG SET maxmemory ? requirepass PW nosuch",
    "ACL SETUSER ? >PW",
    "ACL SETUSER ? on nopass <PW",
    "ACL SETUSER ? #PW",
    "ACL DRYRUN default AUTH ? PW",
    "ACL DRYRUN default MIGRATE 127.0.0.1 1 ? 0 20 AUTH PW",
    "COMMAND GETKEYS MIGRATE 127.0.0.1 1 ? 0 20 AUTH PW",
    "COMMAND GETKEYS AUTH PW",
    "ACL GETUSER PW",
];

fn words(form: &str, password: &str, prng: &mut Prng) -> Vec<String> {
    form.split(' ')
        .map(|word| match word {
            "?" => WORDS[prng.below(WORDS.len() as u64) as usize].to_owned(),
            "EMPTY" => String::new(),
            word => word.replace("PW", password),
        })
        .collect()
}

fn scripted(words: &[String]) -> Vec<String> {
    let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let script = format!("return redis.pcall({})", quoted.join(","));
    // Every key that it may name is declared.
    let head = ["EVAL".to_owned(), script, WORDS.len().to_string()];
    head.into_iter().chain(WORDS.map(str::to_owned)).collect()
}

/// Everything that the server tells of what others did.
fn told(client: &mut Client) -> String {
    let asked: [&[&str]; 7] = [
        &["SLOWLOG", "GET", "-1"],
        &["ACL", "LOG", "1000"],
        &["INFO", "everything"],
        &["CLIENT", "LIST"],
        &["LATENCY", "LATEST"],
        &["SLOWLOG", "RESET"],
        &["ACL", "LOG", "RESET"],
    ];
    asked.iter().map(|request| format!("{:?}", shown(&client.call(request).unwrap()))).collect()
}

/// A reply as text.
fn shown(value: &Value) -> String {
    match value {
        Value::Array(values) => values.iter().map(|value| shown(value) + "\n").collect(),
        Value::Bulk(text) | Value::Simple(text) | Value::Error(text) => {
            String::from_utf8_lossy(text).into_owned()
        }
        other => format!("{other:?}"),
    }
}

#[test]
fn passwords_are_shown_nowhere() {
    let mut prng = Prng::from_seed(Budget::from_env(1, 1).seed);
    let log_all = ["--edition", "memory", "--loglevel", "debug", "--slowlog-log-slower-than", "0"];
    let more = ["--slowlog-max-len", "100000", "--latency-monitor-threshold", "1"];
    let server = Server::start(tarn(), &[&log_all[..], &more].concat()).unwrap();
    let (mut monitor, mut watcher) = (server.connect().unwrap(), server.connect().unwrap());
    monitor.call(&["MONITOR"]).unwrap();
    for round in 0..4 {
        for (number, form) in FORMS.iter().enumerate() {
            let password = format!("hidden{round}{number}z{}", prng.below(1 << 40));
            let request = words(form, &password, &mut prng);
            let mut client = server.connect().unwrap();
            match round {
                0 => drop(client.call(&request)),
                1 => {
                    client.call(&["MULTI"]).unwrap();
                    client.call(&request).unwrap();
                    client.call(&["EXEC"]).unwrap();
                }
                2 => drop(client.call(&request).and_then(|_| client.call(&["PING"]))),
                // A script's own text is its caller's affair; what it calls is not.
                _ if form.starts_with("MIGRATE") => {
                    let mut script = scripted(&request);
                    script[1] = script[1].replace(&password, "'..string.reverse(ARGV[1])..'");
                    script.push(password.chars().rev().collect());
                    client.call(&script).unwrap();
                }
                _ => {}
            }
            let mut told = told(&mut watcher);
            told += &server.output();
            assert!(!told.contains(&password), "{request:?} is told:\n{told}");
            // Its own password stays what it was.
            drop(watcher.call(&["CONFIG", "SET", "requirepass", ""]));
        }
    }
    watcher.call(&["PING", "the end"]).unwrap();
    let mut seen = String::new();
    while !seen.contains("the end") {
        seen += &String::from_utf8_lossy(&monitor.read_reply().unwrap());
    }
    assert!(!seen.contains("hidden"), "{seen}");
    assert!(seen.contains("(redacted)"));
}

#[test]
fn every_command_that_takes_a_password_has_a_form() {
    let known: BTreeSet<String> =
        FORMS.iter().map(|form| form.split(' ').next().unwrap().to_ascii_lowercase()).collect();
    for spec in specs() {
        let syntax = format!("{:?}", spec.syntax);
        let takes_one = syntax.contains("password") || syntax.contains("rule");
        let name = spec.name.split('|').next().unwrap_or_default();
        assert!(!takes_one || known.contains(name), "{}: {syntax}", spec.name);
    }
}
