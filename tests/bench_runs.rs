//! `tarn bench` as a user runs it: as a program, against real servers, to its exit code and its JSON.

use crate::tarn;
use bench::Measurement;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use testkit::ask::wait_until;
use testkit::{Program, Server};

/// The program under test with the words behind `bench`.
pub fn bench(words: &str) -> Command {
    let Program::Tarn(path) = tarn() else { unreachable!("the program under test is Tarn") };
    let mut command = Command::new(path);
    command.arg("bench").args(words.split_whitespace()).stdin(Stdio::null());
    command
}

pub fn ran(words: &str) -> Output {
    bench(words).output().unwrap()
}

/// What a failing run says; it must be one sentence.
fn complaint(words: &str) -> String {
    let output = ran(words);
    assert_eq!(output.status.code(), Some(1), "{words}");
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(text.lines().count(), 1, "{words}: {text}");
    text.trim().to_owned()
}

fn server(directives: &[&str]) -> Server {
    Server::start(tarn(), &[directives, &["--edition", "memory"]].concat()).unwrap()
}

fn port(server: &Server) -> u16 {
    server.address().port()
}

/// A file of the server's directory.
fn file(server: &Server, name: &str) -> PathBuf {
    server.dir().join(name)
}

/// Runs to its good end and returns what its JSON says.
fn measured(server: &Server, words: &str) -> Vec<Measurement> {
    let json = file(server, "bench.json");
    let (load, rest) = words.split_once(' ').unwrap();
    let output = ran(&format!("{load} -h 127.0.0.1 -p {} --json {} {rest}", port(server), json.display()));
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{words}: {shown}{}", String::from_utf8_lossy(&output.stderr));
    let text = std::fs::read_to_string(json).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[test]
fn every_load_runs_against_tarn_and_redis_without_errors() {
    for server in [server(&[]), Server::start(Program::Redis, &[]).unwrap()] {
        let name = server.program().name();
        for words in [
            "kv -n 300 -c 5 -P 3 -r 1000",
            "kv -n 100 -t xadd,ping",
            "kv -n 100 -r 9 -c 2 setex key:__rand_int__ 10 v",
            "kv --ratio 1:3 -c 2 --threads 2 -n 50 --key-pattern G:S --select-db 3",
            "ttl -n 200",
            "eval -n 200",
            "ycsb load -w e --records 500 --fields 3",
            "ycsb run -w a --records 500 -n 300 --fields 3",
            "ycsb run -w b --records 500 -n 300 --fields 3",
            "ycsb run -w d --records 500 -n 300 --fields 3 --threads 2",
            "ycsb run -w e --records 500 -n 300 --fields 3 -c 3 -P 2",
            "ycsb run -w f --records 500 -n 300 --fields 3",
            "ycsb run -w uniform-50-50 --records 500 -n 300 --fields 3 --distribution hotspot",
        ] {
            let measurements = measured(&server, words);
            for measurement in &measurements {
                assert_eq!(measurement.errors_total(), 0, "{name}: {words}: {:?}", measurement.errors);
                assert_eq!(Some(measurement.operations), measurement.operations_asked, "{name}: {words}");
                assert!(
                    measurement.server_usage.as_ref().is_some_and(|usage| usage.rss_bytes > 0),
                    "{name}: {words}"
                );
            }
        }
    }
}

#[test]
fn a_load_leaves_what_it_says_in_the_server() {
    let server = server(&[]);
    measured(&server, "ycsb load --records 1000 --fields 1 -d 10");
    let mut client = server.connect().unwrap();
    assert_eq!(client.call(&["DBSIZE"]).unwrap(), wire::Value::Int(1000));
    assert_eq!(client.call(&["STRLEN", "user6284781860667377211"]).unwrap(), wire::Value::Int(10));
    measured(&server, "ttl -n 100 -c 2 -P 1 --ttl 1000");
    assert_eq!(client.call(&["DBSIZE"]).unwrap(), wire::Value::Int(1100));
}

#[test]
fn a_stopped_server_shows_in_the_tail_and_in_the_series_of_an_open_loop() {
    let server = Server::start(Program::Redis, &[]).unwrap();
    let json = file(&server, "bench.json");
    let words =
        format!("kv -t set -p {} -c 10 --rate 2000 --test-time 4 --json {}", port(&server), json.display());
    let running = bench(&words).stdout(Stdio::null()).spawn().unwrap();
    let signal = |name: &str| {
        let status = Command::new("kill").args([name, &server.pid().to_string()]).status().unwrap();
        assert!(status.success());
    };
    let mut client = server.connect().unwrap();
    wait_until("it has begun", || client.call(&["DBSIZE"]).unwrap() != wire::Value::Int(0));
    signal("-STOP");
    std::thread::sleep(Duration::from_millis(200));
    signal("-CONT");
    assert!(running.wait_with_output().unwrap().status.success());
    let measurements: Vec<Measurement> =
        serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    let measurement = &measurements[0];
    assert!(measurement.all.p999_us >= 150_000.0, "{:?}", measurement.all);
    assert!(measurement.series.iter().any(|second| second.p99_us >= 100_000.0), "{:?}", measurement.series);
}

#[test]
fn a_server_that_dies_ends_the_run_with_what_was_measured() {
    let mut server = server(&[]);
    let json = file(&server, "../bench-died.json");
    let words = format!("kv -t set -p {} --test-time 60 --json {}", port(&server), json.display());
    let running = bench(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut client = server.connect().unwrap();
    wait_until("it has begun", || client.call(&["DBSIZE"]).unwrap() != wire::Value::Int(0));
    server.kill();
    let output = running.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("tarn bench: ") && said.contains("connection"), "{said}");
    assert!(String::from_utf8(output.stdout).unwrap().contains("unfinished"), "results are still printed");
    let text = std::fs::read_to_string(&json).unwrap();
    std::fs::remove_file(json).unwrap();
    let measurements: Vec<Measurement> = serde_json::from_str(&text).unwrap();
    assert!(measurements[0].unfinished.is_some());
}

#[test]
fn an_interrupt_shows_what_was_measured_so_far() {
    let server = server(&[]);
    let words = format!("ycsb run -w c --records 1 --fields 1 -p {} --seconds 60", port(&server));
    server.connect().unwrap().call(&["SET", "user6284781860667377211", "v"]).unwrap();
    let running = bench(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut client = server.connect().unwrap();
    let hits = |client: &mut testkit::Client| match client.call(&["INFO", "stats"]).unwrap() {
        wire::Value::Bulk(text) => !String::from_utf8_lossy(&text).contains("keyspace_hits:0"),
        other => panic!("{other:?}"),
    };
    wait_until("it reads", || hits(&mut client));
    let interrupted = Command::new("kill").args(["-INT", &running.id().to_string()]).status().unwrap();
    assert!(interrupted.success());
    let output = running.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(shown.contains("ycsb-c zipfian") && shown.contains("stopped by the user"), "{shown}");
}

#[test]
fn what_cannot_be_measured_is_said_in_one_sentence() {
    let locked = server(&["--requirepass", "secret"]);
    let port = port(&locked);
    let address = format!("127.0.0.1:{port}");
    assert_eq!(
        complaint("kv -t set -n 10 -p 1"),
        "tarn bench: cannot connect to 127.0.0.1:1: Connection refused (os error 111)"
    );
    let refused = complaint(&format!("kv -t set -n 10 -p {port} -a wrong"));
    assert!(
        refused.starts_with(&format!("tarn bench: {address} refused the password: WRONGPASS")),
        "{refused}"
    );
    let refused = complaint(&format!("kv -t set -n 10 -p {port}"));
    assert!(
        refused.starts_with(&format!("tarn bench: {address} refused the connection: NOAUTH")),
        "{refused}"
    );
    let full = complaint(&format!("kv -t set -n 10 -p {port} -a secret --json /dev/full"));
    assert_eq!(full, "tarn bench: cannot write /dev/full: No space left on device (os error 28)");
    let failing = complaint(&format!("kv -n 10 -p {port} -a secret nonsense"));
    assert!(failing.starts_with("tarn bench: no operation succeeded: ERR unknown command"), "{failing}");
}

#[test]
fn targets_without_an_end_fill_no_memory() {
    for piece in [&[b'+'; 65536][..], &b"*1\r\n".repeat(10000), &b"*9999999\r\n:1\r\n:2\r\n".repeat(5000)] {
        let piece = piece.to_vec();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                while std::io::Write::write_all(&mut stream, &piece).is_ok() {}
            }
        });
        let complaint = complaint(&format!("kv -h 127.0.0.1 -p {port} -n 10 -c 1 -t set"));
        let expected =
            ["does not speak the Redis protocol", "sends a reply without an end", "no reply within"];
        assert!(expected.iter().any(|text| complaint.contains(text)), "{complaint}");
    }
}
