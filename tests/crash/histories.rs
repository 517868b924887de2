//! Histories: many clients at few keys, over crashes, checked for linearizability by Porcupine (`tests/porcupine`).
//!
//! Every operation is noted with the moments before its request and behind its reply; one that a crash left without a reply
//! stays open. After each crash every key is read once, so that nothing that was shown before can have gone unnoticed.
//!
//! A reader that is shown a value before it is on disk makes an illegal history as soon as a crash takes the value back.

use crate::subject::{self, Subject};
use serde_json::json;
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use sys::Prng;
use testkit::{Budget, Client, Server};
use wire::Value;

/// Clients at work at a time.
const CLIENTS: u64 = 10;
/// Keys that are set and read.
const REGISTERS: &[&str] = &["r0", "r1", "r2"];
/// Keys that are incremented and read.
const COUNTERS: &[&str] = &["n0", "n1"];
/// Crashes in one history. Each leaves some operations open, and those make checking slow.
const KILLS: u64 = 4;
/// A server runs for up to so long before it is killed, milliseconds.
const ROUND_MS_MAX: u64 = 150;
/// Histories of the edition that is tested.
const HISTORIES: u64 = 5;
/// Histories within which a gate that is open must have been noticed.
const CANARY_HISTORIES: u64 = 30;

/// What Porcupine says.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Legal,
    Illegal,
}

/// The tool, built once.
fn porcupine() -> &'static PathBuf {
    static TOOL: OnceLock<PathBuf> = OnceLock::new();
    TOOL.get_or_init(|| {
        let tool = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("porcupine");
        let mut build = Command::new("go");
        build.args(["build", "-buildvcs=false", "-o"]).arg(&tool).arg(".");
        let built = build.current_dir(crate::root().join("tests/porcupine")).output();
        let built = built.unwrap_or_else(|error| panic!("go: {error}; ./test installs it"));
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        tool
    })
}

/// Has a history checked.
fn judge(history: &str) -> Verdict {
    let mut tool = Command::new(porcupine()).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    // It prints nothing before it has read all.
    tool.stdin.take().expect("stdin was piped").write_all(history.as_bytes()).unwrap();
    let output = tool.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    print!("{said}");
    match output.status.code() {
        Some(0) => Verdict::Legal,
        Some(1) => Verdict::Illegal,
        code => panic!("porcupine ended with {code:?}: {said}"),
    }
}

/// Operations of one connection after another, in JSON lines.
struct Notes<'a> {
    began: &'a Instant,
    client: u64,
    lines: String,
}

impl Notes<'_> {
    fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    /// Sends a request and notes down what came of it.
    fn call(&mut self, client: &mut Client, op: &str, key: &str, value: Option<&str>) -> std::io::Result<()> {
        let request: Vec<&str> = [op, key].into_iter().chain(value).collect();
        let call = self.now();
        let reply = client.call(&request);
        let mut line = json!({ "client": self.client, "op": op, "key": key, "value": value, "call": call });
        if let Ok(reply) = &reply {
            line["return"] = self.now().into();
            match reply {
                Value::Bulk(text) => line["value"] = String::from_utf8_lossy(text).into(),
                Value::Int(number) => line["value"] = number.to_string().into(),
                Value::Simple(_) | Value::Null => {}
                other => panic!("{request:?} was answered with {other:?}"),
            }
        }
        let _ = writeln!(self.lines, "{line}");
        reply.map(|_| ())
    }
}

/// One client at its work, until its server is gone.
fn work(address: SocketAddr, notes: &mut Notes<'_>, prng: &mut Prng, is_killed: &AtomicBool) {
    let mut act = |client: &mut Client, number: u64| {
        let register = REGISTERS[prng.below(REGISTERS.len() as u64) as usize];
        let counter = COUNTERS[prng.below(COUNTERS.len() as u64) as usize];
        match prng.below(6) {
            0 | 1 => notes.call(client, "set", register, Some(&format!("{}.{number}", notes.client))),
            2 | 3 => notes.call(client, "get", register, None),
            4 => notes.call(client, "incr", counter, None),
            _ => notes.call(client, "get", counter, None),
        }
    };
    let ended =
        Client::connect(address).and_then(|mut client| (0..).try_for_each(|number| act(&mut client, number)));
    let is_killed = is_killed.load(Ordering::SeqCst);
    assert!(is_killed, "a connection broke: {ended:?}");
}

/// Lets clients work over some crashes; what they noted down.
fn history(server: &mut Server, prng: &mut Prng, ready: fn(&mut Client)) -> String {
    let (began, mut history, mut next_client) = (Instant::now(), String::new(), 0);
    let mut notes = || {
        next_client += 1;
        Notes { began: &began, client: next_client, lines: String::new() }
    };
    subject::connect(server).call(&[&["DEL"], REGISTERS, COUNTERS].concat()).unwrap();
    for _ in 0..KILLS {
        ready(&mut subject::connect(server));
        let (address, is_killed) = (server.address(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let is_killed = &is_killed;
            let clients: Vec<_> = (0..CLIENTS)
                .map(|_| {
                    let (mut notes, mut prng) = (notes(), Prng::from_seed(prng.next_u64()));
                    scope.spawn(move || {
                        work(address, &mut notes, &mut prng, is_killed);
                        notes.lines
                    })
                })
                .collect();
            // The moment is what this is about; there is no event to wait for.
            std::thread::sleep(Duration::from_micros(prng.below(ROUND_MS_MAX * 1000)));
            is_killed.store(true, Ordering::SeqCst);
            server.kill();
            history.extend(clients.into_iter().map(|client| client.join().expect("a client ends")));
        });
        let (mut client, mut notes) = (subject::restart(server), notes());
        for key in [REGISTERS, COUNTERS].concat() {
            notes.call(&mut client, "get", key, None).unwrap();
        }
        history += &notes.lines;
    }
    history
}

/// Records histories until one is illegal, at most as many as the budget allows; that one.
fn illegal_history(subject: &Subject, budget: Budget, ready: fn(&mut Client)) -> Option<String> {
    let (mut server, mut prng) = (subject.start(), Prng::from_seed(budget.seed));
    let mut done = 0;
    while budget.allows(done) {
        let history = history(&mut server, &mut prng, ready);
        if judge(&history) == Verdict::Illegal {
            return Some(history);
        }
        done += 1;
    }
    None
}

/// Fails if any history is illegal, and says where it lies.
fn all_are_legal(subject: &Subject, budget: Budget) {
    if let Some(history) = illegal_history(subject, budget, |_| ()) {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("illegal.jsonl");
        std::fs::write(&path, history).unwrap();
        panic!("not linearizable (TARN_SEED={}): {}", budget.seed, path.display());
    }
}

#[test]
fn histories_of_durable_tarn_over_crashes_are_linearizable() {
    all_are_legal(&Subject::durable_tarn(), Budget::from_env(1, HISTORIES));
}

#[test]
fn histories_of_redis_over_crashes_are_linearizable() {
    all_are_legal(&Subject::redis("always"), Budget::steps(1, 1));
}

#[test]
fn replies_that_pass_the_gate_too_early_are_noticed() {
    let open_gate = |client: &mut Client| {
        let reply = client.call(&["DEBUG", "READ-GATE", "0"]).unwrap();
        assert_eq!(reply, Value::Simple(b"OK".to_vec()));
    };
    let illegal = illegal_history(&Subject::durable_tarn(), Budget::from_env(1, CANARY_HISTORIES), open_gate);
    assert!(illegal.is_some(), "{CANARY_HISTORIES} histories without a gate were legal");
}

#[test]
fn histories_of_a_redis_that_loses_writes_are_illegal() {
    assert!(illegal_history(&Subject::forgetful_redis(), Budget::steps(1, 1), |_| ()).is_some());
}

/// A line of a history; `end` is None for an operation without an answer.
fn line(op: &str, value: Option<&str>, call: u64, end: Option<u64>) -> String {
    format!(
        "{}\n",
        json!({ "client": call, "op": op, "key": "k", "value": value, "call": call, "return": end })
    )
}

#[test]
fn porcupine_refuses_planted_faults() {
    let set = line("set", Some("a"), 0, Some(10));
    let open_set = line("set", Some("b"), 20, None);
    let get = |value, call| line("get", value, call, Some(call + 5));
    let cases = [
        (vec![set.clone(), get(Some("a"), 11)], Verdict::Legal),
        (vec![set.clone(), get(None, 5)], Verdict::Legal),
        // An answered write that is lost.
        (vec![set.clone(), get(None, 11)], Verdict::Illegal),
        // A write without an answer, that comes true late, or never.
        (vec![set.clone(), open_set.clone(), get(Some("a"), 30), get(Some("b"), 40)], Verdict::Legal),
        (vec![set.clone(), open_set.clone(), get(Some("a"), 30), get(Some("a"), 40)], Verdict::Legal),
        // One that was shown and taken back.
        (vec![set.clone(), open_set, get(Some("b"), 30), get(Some("a"), 40)], Verdict::Illegal),
        (
            vec![line("incr", Some("1"), 0, Some(9)), line("incr", None, 10, None), get(Some("2"), 20)],
            Verdict::Legal,
        ),
        // Two who were given the same number.
        (vec![line("incr", Some("1"), 0, Some(9)), line("incr", Some("1"), 2, Some(8))], Verdict::Illegal),
    ];
    for (lines, verdict) in cases {
        assert_eq!(judge(&lines.concat()), verdict, "{lines:?}");
    }
}
