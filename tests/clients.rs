//! The clients that people use work unchanged: `redis-cli`, `redis-benchmark` and
//! redis-py, against a server of this build.
//!
//! redis-py runs from the virtual environment that `./test` sets up; `TARN_PYTHON`
//! names its interpreter.

use crate::{root, tarn};
use std::process::{Command, Output};
use testkit::Server;

fn start() -> Server {
    Server::start(tarn(), &["--edition", "memory"]).unwrap()
}

fn run(program: &str, server: &Server, args: &[&str]) -> Output {
    let port = server.address().port().to_string();
    Command::new(program).args(["-p", &port]).args(args).output().unwrap()
}

fn text(output: &Output) -> String {
    let both = [output.stdout.as_slice(), &output.stderr].concat();
    String::from_utf8_lossy(&both).into_owned()
}

#[test]
fn redis_cli_works_in_both_protocols() {
    let server = start();
    for protocol in ["-2", "-3"] {
        assert_eq!(text(&run("redis-cli", &server, &[protocol, "SET", "k", "a b"])), "OK\n");
        assert_eq!(text(&run("redis-cli", &server, &[protocol, "GET", "k"])), "a b\n");
        assert_eq!(text(&run("redis-cli", &server, &[protocol, "GET", "none"])), "\n");
    }
    assert_eq!(text(&run("redis-cli", &server, &["--scan"])), "k\n");
}

#[test]
fn redis_benchmark_runs_through() {
    let server = start();
    let args = ["-n", "2000", "-c", "10", "-P", "4", "-q", "-t", "ping,set,get,incr,mset"];
    let output = run("redis-benchmark", &server, &args);
    let report = text(&output);
    assert!(output.status.success(), "{report}");
    assert!(
        ["SET: ", "GET: ", "INCR: ", "MSET (10 keys): "].iter().all(|line| report.contains(line)),
        "{report}"
    );
    assert!(!report.contains("Error"), "{report}");
}

#[test]
fn redis_py_works_in_both_protocols() {
    let python = std::env::var("TARN_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let server = start();
    let port = server.address().port().to_string();
    let output = testkit::process::bounded(python)
        .arg(root().join("tests/clients/smoke.py"))
        .arg(port)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output));
}
