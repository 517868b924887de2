//! Checks of rows that need more than requests and replies.

use crate::imports::run;
use crate::operators::{files, text};
use crate::tarn;
use config::{Config, Startup, TABLE};
use std::process::Command;
use testkit::ask::{ask, call_well, wait_until};
use testkit::{Client, Program, Server};
use wire::Value;

fn memory(directives: &[&str]) -> Server {
    Server::start(tarn(), &[&["--edition", "memory"], directives].concat()).unwrap()
}

/// What a start with such a file warns of.
fn warnings(file: &str) -> Vec<String> {
    match Config::from_text(file.as_bytes()) {
        Ok(Startup::Serve { warnings, .. }) => warnings,
        _ => panic!("a start is refused with {file}"),
    }
}

pub fn defaults() {
    let expected =
        [("bind", "127.0.0.1 -::1"), ("save", ""), ("dir", "./tarn-data"), ("syslog-ident", "tarn")];
    for (name, default) in expected {
        assert_eq!(TABLE.iter().find(|row| row.name == name).unwrap().default, default, "{name}");
    }
}

pub fn a_free_port() {
    let server = memory(&["--port", "0"]);
    let said = server.await_output(&["Listening on 127.0.0.1:"]);
    let port = said.split_once("Listening on 127.0.0.1:").unwrap().1.lines().next().unwrap();
    let address = format!("127.0.0.1:{port}").parse().unwrap();
    assert_eq!(ask(&mut Client::connect(address).unwrap(), &["PING"]), "PONG");
}

pub fn unknown_directives() {
    let all = warnings("nonsense 1\nio-threads 4\nedition memory\nother 2\n");
    assert_eq!(
        all.last().unwrap(),
        "Not directives of Tarn, and ignored: `nonsense` (line 1), `other` (line 4)"
    );
}

pub fn bad_options() {
    let said = |output: std::process::Output| {
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap().replace("\r\n", "\n")
    };
    let ours = said(run("server", &["--maxmemory", "lots"]));
    assert!(ours.starts_with("Tarn cannot start with the option 'maxmemory \"lots\"': "), "{ours}");
    let theirs = said(Command::new("redis-server").args(["--maxmemory", "lots"]).output().unwrap());
    assert!(theirs.contains("FATAL CONFIG FILE ERROR"), "{theirs}");
}

pub fn directives_without_effect() {
    for line in ["daemonize yes", "io-threads 4", "activedefrag yes", "bgsave_cpulist 1", "set-proc-title no"]
    {
        let name = line.split(' ').next().unwrap();
        let all = warnings(&format!("edition memory\n{line}\n"));
        assert!(all.len() == 1 && all[0].starts_with(&format!("`{name}` has no effect: ")), "{all:?}");
    }
}

pub fn a_log_of_its_own() {
    let server = memory(&["--appendonly", "yes"]);
    assert_eq!(ask(&mut server.connect().unwrap(), &["SET", "k", "v"]), "OK");
    assert!(!files(server.dir(), "log-", ".segment").is_empty());
    assert!(!server.dir().join("appendonlydir").exists());
}

pub fn a_checkpoint_in_place_of_a_rewrite() {
    let server = Server::start(tarn(), &["--edition", "durable"]).unwrap();
    let mut client = server.connect().unwrap();
    call_well(&mut client, &["SET", "k", "v"]);
    call_well(&mut client, &["BGREWRITEAOF"]);
    wait_until("a checkpoint is there", || !files(server.dir(), "log-", ".checkpoint").is_empty());
    assert!(!server.dir().join("appendonlydir").exists());
}

pub fn the_durable_edition() {
    let all = warnings("edition durable\nappendonly no\nappendfsync no\n");
    for name in ["appendonly", "appendfsync"] {
        assert!(all.iter().any(|line| line.starts_with(&format!("`{name}` has no effect: "))), "{all:?}");
    }
}

pub fn where_a_redis_files_are_looked_for() {
    let names = ["--appenddirname", "directory", "--appendfilename", "file"];
    let mut redis = Server::start(Program::Redis, &[&["--appendonly", "yes"], &names[..]].concat()).unwrap();
    call_well(&mut redis.connect().unwrap(), &["SET", "k", "v"]);
    call_well(&mut redis.connect().unwrap(), &["CONFIG", "SET", "appendfsync", "always"]);
    call_well(&mut redis.connect().unwrap(), &["SET", "k", "w"]);
    redis.kill();
    let started = |names: &[&str]| {
        let words =
            [&["--edition", "memory", "--appendonly", "yes", "--dir", text(redis.dir())], names].concat();
        Server::start(tarn(), &words).unwrap()
    };
    assert_eq!(ask(&mut started(&names).connect().unwrap(), &["GET", "k"]), "w");
}

pub fn rdb_versions() {
    let server = memory(&[]);
    let mut client = server.connect().unwrap();
    call_well(&mut client, &["HSET", "h", "f", "v"]);
    call_well(&mut client, &["HEXPIRE", "h", "1000", "FIELDS", "1", "f"]);
    call_well(&mut client, &["SAVE"]);
    let path = server.dir().join("dump.rdb");
    assert!(std::fs::read(&path).unwrap().starts_with(b"REDIS0010"));
    let tool = Command::new("redis-check-rdb").arg(&path).output().unwrap();
    assert!(!tool.status.success(), "Redis 7.0 does not know such a hash");
    call_well(&mut client, &["HPERSIST", "h", "FIELDS", "1", "f"]);
    call_well(&mut client, &["SAVE"]);
    let tool = Command::new("redis-check-rdb").arg(&path).output().unwrap();
    assert!(tool.status.success(), "and any other");
}

pub fn long_lines() {
    let server = memory(&[]);
    let mut client = server.connect().unwrap();
    let line = ["GET ", &"x".repeat(70_000), "\r\n"].concat();
    client.send(line.as_bytes()).unwrap();
    let reply = client.read_reply().unwrap();
    assert_eq!(reply.escape_ascii().to_string(), "-ERR Protocol error: too big inline request\\r\\n");
}

pub fn nul_in_a_line() {
    let server = memory(&[]);
    let mut client = server.connect().unwrap();
    client.send(b"*1\x00\r\n$4\r\nPING\r\n").unwrap();
    let reply = client.read_reply().unwrap();
    assert!(reply.starts_with(b"-ERR Protocol error: "), "{}", reply.escape_ascii());
}

pub fn the_table_of_tracked_keys() {
    let server = memory(&[]);
    let (mut reader, mut other) = (server.connect().unwrap(), server.connect().unwrap());
    call_well(&mut reader, &["HELLO", "3"]);
    call_well(&mut reader, &["CLIENT", "TRACKING", "ON"]);
    call_well(&mut reader, &["GET", "k"]);
    assert!(ask(&mut other, &["INFO", "stats"]).contains("tracking_total_keys:1\r"));
    call_well(&mut reader, &["CLIENT", "TRACKING", "OFF"]);
    wait_until("the table is empty", || {
        ask(&mut other, &["INFO", "stats"]).contains("tracking_total_keys:0\r")
    });
}

pub fn the_buffers_of_clients() {
    const BYTES: usize = 5 << 20;
    let header = format!("*1\r\n${BYTES}\r\n");
    for (server, is_tarn) in [(memory(&[]), true), (Server::start(Program::Redis, &[]).unwrap(), false)] {
        let (mut looker, mut sender) = (server.connect().unwrap(), server.connect().unwrap());
        assert_eq!(ask(&mut looker, &["CLIENT", "LIST"]).contains(" rbs=0 rbp=0 obl=0 "), is_tarn);
        sender.send(header.as_bytes()).unwrap();
        sender.send(&vec![b'x'; BYTES]).unwrap();
        let qbuf = format!(" qbuf={} ", BYTES + if is_tarn { header.len() } else { 0 });
        wait_until("all is there", || ask(&mut looker, &["CLIENT", "LIST"]).contains(&qbuf));
    }
}

pub fn replies_that_the_socket_takes() {
    for (server, is_tarn) in [(memory(&[]), true), (Server::start(Program::Redis, &[]).unwrap(), false)] {
        let mut client = server.connect().unwrap();
        call_well(&mut client, &["CONFIG", "SET", "client-output-buffer-limit", "normal 100000 0 0"]);
        call_well(&mut client, &["SET", "k", &"x".repeat(10_000)]);
        let is_served = client.pipeline(&vec![vec!["GET", "k"]; 15]).is_ok();
        assert_eq!(is_served, is_tarn);
    }
}

pub fn fatal_errors() {
    let output = run("server", &["--port", "0", "--bind", "127.0.0.1", "--dir", "/proc/tarn"]);
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(said.contains("Can't create the directory /proc/tarn: ") && !said.contains("chdir"), "{said}");
}

pub fn upstart() {
    let server = memory(&["--supervised", "upstart"]);
    // It is said once clients are served already.
    wait_until("it is said", || server.output().contains("'supervised upstart' has no effect"));
}

pub fn users_who_are_gone() {
    let path = std::env::temp_dir().join(format!("tarn-users-{}", std::process::id()));
    let both = "user gone on nopass ~* &* +@all\nuser stays on nopass ~* &* +@all\n";
    std::fs::write(&path, both).unwrap();
    let server = memory(&["--aclfile", text(&path)]);
    let (mut gone, mut stays) = (server.connect().unwrap(), server.connect().unwrap());
    call_well(&mut gone, &["AUTH", "gone", "x"]);
    call_well(&mut stays, &["AUTH", "stays", "x"]);
    std::fs::write(&path, "user stays on nopass ~* &* +get\n").unwrap();
    call_well(&mut server.connect().unwrap(), &["ACL", "LOAD"]);
    assert!(gone.call(&["PING"]).is_err(), "closed");
    // Redis 7.0 and 7.2 close all but those of the default user.
    assert!(ask(&mut stays, &["PING"]).starts_with("NOPERM"), "goes on with its new rights");
    std::fs::remove_file(&path).unwrap();
}

pub fn waiting_for_what_replaces_another_type() {
    let server = memory(&[]);
    let (mut waiting, mut other) = (server.connect().unwrap(), server.connect().unwrap());
    waiting.send_request(&["BLPOP", "k", "0"]).unwrap();
    wait_until("it waits", || ask(&mut other, &["INFO", "clients"]).contains("blocked_clients:1\r"));
    call_well(&mut other, &["SADD", "k", "member"]);
    call_well(&mut other, &["RPUSH", "list", "1"]);
    call_well(&mut other, &["SORT", "list", "STORE", "k"]);
    assert_eq!(waiting.read_reply().unwrap(), b"*2\r\n$1\r\nk\r\n$1\r\n1\r\n");
}

pub fn streams_that_contradict_themselves() {
    /// Of a stream with one entry and no groups: its length, four pairs of numbers, and how many groups there are.
    const LENGTH_BEFORE_FOOTER: usize = 9;
    let (ours, theirs) = (memory(&[]), Server::start(Program::Redis, &[]).unwrap());
    let mut client = ours.connect().unwrap();
    call_well(&mut client, &["XADD", "s", "1-1", "f", "v"]);
    let Value::Bulk(mut payload) = call_well(&mut client, &["DUMP", "s"]) else { panic!("DUMP gives bytes") };
    payload.truncate(payload.len() - 8);
    let at = payload.len() - 2 - LENGTH_BEFORE_FOOTER;
    assert_eq!(payload[at], 1, "{}", payload.escape_ascii());
    payload[at] = 5;
    payload.extend(value::crc64::crc64(0, &payload).to_le_bytes());
    let request = [&b"RESTORE"[..], b"t", b"0", &payload];
    assert_eq!(ask(&mut client, &request), "ERR Bad data format");
    let mut client = theirs.connect().unwrap();
    assert_eq!(ask(&mut client, &request), "OK");
    assert_eq!(ask(&mut client, &["XLEN", "t"]), "Int(5)");
}

pub fn sizes_of_values() {
    let size = |server: &Server| {
        let mut client = server.connect().unwrap();
        let mut request = vec!["RPUSH".to_owned(), "list".to_owned()];
        request.extend((0..200).map(|element| "x".repeat(10 * element)));
        call_well(&mut client, &request);
        let Value::Int(size) = call_well(&mut client, &["MEMORY", "USAGE", "list", "SAMPLES", "0"]) else {
            panic!("a size is a number")
        };
        size
    };
    let (ours, theirs) = (size(&memory(&[])), size(&Server::start(Program::Redis, &[]).unwrap()));
    assert!(ours < theirs, "{ours} here, {theirs} there");
}
