//! Cases recorded from a real Redis and played back in process.
//!
//! A file of cases has lines of five kinds: `## name_of_the_case`, a command as in
//! redis-cli, `= reply` after each command, `@ directive`, and `#` for remarks.
//! Every case starts with an empty keyspace. Directives: `@ resp3`, and
//! `@ string-bytes-max N`.
//!
//! With `TARN_ORACLE=host:port` the replies in the file are written anew from that
//! server, which is emptied by it, instead of being compared.

use super::{Run, render_bytes};
use std::io::{Read, Write};
use std::net::TcpStream;
use wire::{Protocol, encode_request, skip_reply, split_words};

/// Plays all cases of a file of `tests/fixtures`, or records them.
pub fn play(file: &str) {
    let path = std::env::var("TARN_CASES")
        .unwrap_or(format!("{}/tests/fixtures/{file}", env!("CARGO_MANIFEST_DIR")));
    let cases = std::fs::read_to_string(&path).expect("the file of cases is there");
    match std::env::var("TARN_ORACLE") {
        Ok(oracle) => std::fs::write(&path, record(&cases, &oracle)).expect("the file can be written"),
        Err(_) => compare(&cases),
    }
}

fn compare(cases: &str) {
    let (mut run, mut case, mut last, mut wrong) = (Run::default(), "", ("", String::new()), Vec::new());
    for line in cases.lines() {
        match line.split_once(' ') {
            Some(("##", name)) => (run, case) = (Run::default(), name),
            Some(("@", directive)) => obey(&mut run, directive),
            Some(("=", reply)) if reply != last.1 => {
                wrong.push(format!("{case}: {}\n  expected {reply}\n  got      {}", last.0, last.1))
            }
            Some(("=", _)) => {}
            _ if line.is_empty() || line.starts_with('#') => {}
            _ => last = (line, run.run(line)),
        }
    }
    assert!(wrong.is_empty(), "{} replies differ:\n{}", wrong.len(), wrong[..wrong.len().min(20)].join("\n"));
}

fn obey(run: &mut Run, directive: &str) {
    match directive.split_once(' ') {
        None if directive == "resp3" => run.protocol = Protocol::Resp3,
        Some(("string-bytes-max", bytes)) => {
            run.settings.set_string_bytes_max(bytes.parse().expect("a number of bytes"))
        }
        _ => panic!("unknown directive {directive}"),
    }
}

fn record(cases: &str, oracle: &str) -> String {
    let mut stream = TcpStream::connect(oracle).expect("the oracle listens");
    let mut ask = |line: &str| {
        let words = split_words(line.as_bytes()).expect("quotes of a case's command match");
        ask(&mut stream, &words)
    };
    let mut recorded = String::new();
    for line in cases.lines().filter(|line| !line.starts_with("= ")) {
        recorded += line;
        recorded.push('\n');
        match line.split_once(' ') {
            Some(("##", _)) => {
                for reset in ["HELLO 2", "FLUSHALL", "CONFIG SET proto-max-bulk-len 536870912"] {
                    ask(reset);
                }
            }
            Some(("@", "resp3")) => drop(ask("HELLO 3")),
            Some(("@", directive)) => {
                drop(ask(&directive.replace("string-bytes-max", "CONFIG SET proto-max-bulk-len")))
            }
            _ if line.is_empty() || line.starts_with('#') => {}
            _ => recorded += &format!("= {}\n", render_bytes(&ask(line))),
        }
    }
    recorded
}

fn ask(stream: &mut TcpStream, words: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    encode_request(&mut out, &words.iter().map(|word| &word[..]).collect::<Vec<_>>());
    stream.write_all(&out).expect("the oracle reads");
    let (mut reply, mut piece) = (Vec::new(), [0; 4096]);
    while skip_reply(&reply).expect("the oracle's reply is well formed").is_none() {
        let count = stream.read(&mut piece).expect("the oracle answers");
        assert_ne!(count, 0, "the oracle hung up");
        reply.extend_from_slice(&piece[..count]);
    }
    reply
}
