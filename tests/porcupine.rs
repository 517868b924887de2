//! Histories of what clients did, and Porcupine, which says whether one is linearizable: a checker in Go with a program of its own in
//! `tests/porcupine`.
//!
//! Every operation is noted with the moments before its request and behind its reply; one without a reply stays open.

use serde_json::json;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Instant;
use testkit::Client;
use wire::Value;

/// What Porcupine says.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
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
///
/// # Panics
/// If that takes longer than five minutes for a key.
pub fn judge(history: &str) -> Verdict {
    decide_within("300", history).expect("porcupine comes to an end")
}

/// The same; None: it takes longer than half a minute for a key.
pub fn decide(history: &str) -> Option<Verdict> {
    decide_within("30", history)
}

fn decide_within(seconds: &str, history: &str) -> Option<Verdict> {
    let mut tool = Command::new(porcupine());
    let mut tool = tool.arg(seconds).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    // It prints nothing before it has read all.
    tool.stdin.take().expect("stdin was piped").write_all(history.as_bytes()).unwrap();
    let output = tool.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    print!("{said}");
    match output.status.code() {
        Some(0) => Some(Verdict::Legal),
        Some(1) => Some(Verdict::Illegal),
        Some(3) => None,
        code => panic!("porcupine ended with {code:?}: {said}"),
    }
}

/// Operations of one connection after another, in JSON lines.
pub struct Notes<'a> {
    /// The clock of the history.
    pub began: &'a Instant,
    /// Whose they are.
    pub client: u64,
    /// What was noted.
    pub lines: String,
}

impl Notes<'_> {
    pub fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    /// Sends a request and notes down what came of it.
    pub fn call(
        &mut self,
        client: &mut Client,
        op: &str,
        key: &str,
        value: Option<&str>,
    ) -> std::io::Result<()> {
        let request: Vec<&str> = [op, key].into_iter().chain(value).collect();
        let call = self.now();
        let reply = client.call(&request);
        self.note(op, (key, value), call, reply.as_ref().ok());
        reply.map(|_| ())
    }

    /// Notes down what was asked at a moment and is answered now; None: nobody knows what came of it.
    pub fn note(&mut self, op: &str, (key, value): (&str, Option<&str>), call: u64, reply: Option<&Value>) {
        let mut line = json!({ "client": self.client, "op": op, "key": key, "value": value, "call": call });
        if let Some(reply) = reply {
            line["return"] = self.now().into();
            match reply {
                Value::Bulk(text) => line["value"] = String::from_utf8_lossy(text).into(),
                Value::Int(number) => line["value"] = number.to_string().into(),
                Value::Simple(_) | Value::Null => {}
                other => panic!("{op} {key} was answered with {other:?}"),
            }
        }
        let _ = writeln!(self.lines, "{line}");
    }
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
        // One that was shown and taken back, or before it was asked for.
        (vec![set.clone(), open_set.clone(), get(Some("b"), 30), get(Some("a"), 40)], Verdict::Illegal),
        (vec![set.clone(), get(Some("b"), 12), open_set], Verdict::Illegal),
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
    // As many without an answer as leave a checker no end that looks at each order of them.
    let open: Vec<String> = (0..64).map(|number| line("set", Some(&number.to_string()), 20, None)).collect();
    let seen = [get(Some("7"), 30), get(Some("11"), 40), get(Some("a"), 50)].concat();
    assert_eq!(decide(&[&set, &*open.concat(), &seen].concat()), Some(Verdict::Illegal));
}
