//! `tarn config` and `tarn cluster` as processes: what is said to a config server, by a client that knows only the protocol.

use crate::tarn_path;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use testkit::ask::{ask, is_error, wait_until};
use testkit::process::Deadline;
use testkit::{Client, free_port};
use topology::{ShardId, Topology};
use wire::Value;

/// A config server. It ends with its handle.
struct Config {
    child: Child,
    address: SocketAddr,
}

impl Config {
    fn start(store: &Path, more: &[&str]) -> Config {
        let port = free_port().expect("there is a port");
        let mut child = Command::new(tarn_path())
            .args(["config", "--store", &format!("dir:{}", store.display()), "--port", &port.to_string()])
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("tarn can be run");
        let _deadline = Deadline::of(&child);
        let lines = BufReader::new(child.stdout.take().expect("it was piped")).lines();
        let mut lines = lines.map_while(Result::ok);
        let is_ready = lines.any(|line| line.contains("Ready to accept connections"));
        assert!(is_ready, "the config server does not come up");
        // Nobody reads on: its log is short.
        std::mem::forget(lines);
        Config { child, address: (Ipv4Addr::LOCALHOST, port).into() }
    }

    fn client(&self) -> Client {
        Client::connect(self.address).expect("it listens")
    }

    fn end(mut self) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").arg(&id).status().expect("kill can be run").success());
        let _deadline = Deadline::of(&self.child);
        assert!(self.child.wait().expect("it ends").success(), "SIGTERM ends it well");
    }
}

impl Drop for Config {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn id(digit: char) -> String {
    digit.to_string().repeat(40)
}

fn record(digit: char, port: u16) -> String {
    format!("server {} 127.0.0.1 {port} 0 - - memory -", id(digit))
}

fn call(client: &mut Client, words: &[&str]) -> Value {
    client.call(words).expect("it answers")
}

fn topology(value: &Value) -> Topology {
    let Value::Bulk(text) = value else { panic!("{value:?} is no topology") };
    let text = std::str::from_utf8(text).expect("it is text");
    Topology::from_text(text).unwrap_or_else(|| panic!("{text} is no topology"))
}

/// The next topology, and no sign of life, nor who is silent.
fn next_topology(client: &mut Client) -> Topology {
    loop {
        let value = client.read_value().expect("it goes on");
        if !matches!(&value, Value::Bulk(text) if text.is_empty() || text.starts_with(b"silent")) {
            return topology(&value);
        }
    }
}

/// Once there is a cluster, two servers join it and are given places.
fn with_two_servers(config: &Config) -> String {
    let mut client = config.client();
    wait_until("there is a cluster", || {
        ask(&mut client, &["SERVER", "JOIN", "-", &record('a', 7001)]).contains("id ")
    });
    let joined = ask(&mut client, &["SERVER", "JOIN", "-", &record('b', 7002)]);
    let cluster = joined.rsplit(' ').next().unwrap_or_default().trim_matches(['"', '\r', '\n']).to_owned();
    wait_until("both have a place", || {
        for digit in ['a', 'b'] {
            assert_eq!(
                call(&mut client, &["SERVER", "HERE", &id(digit), "role=member offset=1"]),
                Value::Simple(b"OK".to_vec())
            );
        }
        topology(&call(&mut client, &["TOPOLOGY", "GET"])).servers_of(ShardId(0)).count() == 2
    });
    cluster
}

fn decision(version: u64, members: &str) -> String {
    use replication::insync::{Decision, Epoch, Life, MemberId, NodeId, Version};
    let member = |node: u32| MemberId { node: NodeId(node), life: Life(5) };
    let members = members.split(',').map(|node| member(node.parse().expect("a number"))).collect();
    let (version, epoch) = (Version(version), Epoch(1));
    Decision { version, epoch, master: member(1), members, is_lossy: false }.to_line()
}

#[test]
fn a_shard_begins_and_has_all_slots() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = Config::start(dir.path(), &[]);
    let mut follower = config.client();
    follower.send_request(&["TOPOLOGY", "FOLLOW", "0"]).expect("it is sent");
    let cluster = with_two_servers(&config);
    let mut client = config.client();
    let begun = topology(&call(&mut client, &["TOPOLOGY", "GET"]));
    assert_eq!((begun.cluster.as_str(), begun.shards[&ShardId(0)].beginner), (cluster.as_str(), Some(1)));
    assert_eq!(begun.slots.count(), 0);

    assert_eq!(call(&mut client, &["DECISION", "GET", "0"]), Value::Null);
    assert!(is_error(&call(&mut client, &["DECISION", "GET", "1"]), "NOSHARD"));
    let set =
        |client: &mut Client, before: &str, line: &str| call(client, &["DECISION", "SET", "0", before, line]);
    let (first, second) = (decision(1, "1"), decision(2, "1,2"));
    let bulk = |line: &str| Value::Bulk(line.as_bytes().to_vec());
    assert_eq!(set(&mut client, "1", &second), Value::Array(vec![Value::Int(0), Value::Null]));
    assert_eq!(set(&mut client, "0", &first), Value::Array(vec![Value::Int(1), bulk(&first)]));
    assert_eq!(set(&mut client, "0", &first), Value::Array(vec![Value::Int(0), bulk(&first)]));
    for (before, line) in [("0", second.as_str()), ("1", "decision 2"), ("1", "none 0 2"), ("x", &second)] {
        assert!(is_error(&set(&mut client, before, line), "ERR"), "{before} {line}");
    }
    assert_eq!(set(&mut client, "1", &second), Value::Array(vec![Value::Int(1), bulk(&second)]));
    assert_eq!(call(&mut client, &["DECISION", "GET", "0"]), bulk(&second));

    // Who follows is told all of it, in order, and at the end the same as who asks.
    let mut last = next_topology(&mut follower);
    while last.slots.count() == 0 || last.shards[&ShardId(0)].members.len() < 2 {
        let next = next_topology(&mut follower);
        assert!(next.revision > last.revision);
        last = next;
    }
    assert_eq!(last, topology(&call(&mut client, &["TOPOLOGY", "GET"])));
    assert_eq!((last.slots.count(), last.shards[&ShardId(0)].master), (wire::SLOTS, Some(1)));
    config.end();

    // All of it is kept.
    let again = Config::start(dir.path(), &[]);
    let mut client = again.client();
    let mut found = Value::Null;
    wait_until("the store was read", || {
        found = call(&mut client, &["TOPOLOGY", "GET"]);
        matches!(found, Value::Bulk(_))
    });
    let found = topology(&found);
    assert_eq!((&found.servers, &found.shards, &found.slots), (&last.servers, &last.shards, &last.slots));
    assert!(found.revision >= last.revision);
}

/// What a config server answers that leads and has seen the store lately: on a disk that stands still it may say for a while that it does not.
fn answered(client: &mut Client, words: &[&str]) -> Value {
    let mut answer = Value::Null;
    wait_until("it leads, and has seen the store", || {
        answer = call(client, words);
        !["NOLEADER", "UNAVAILABLE", "UNREACHED"].iter().any(|code| is_error(&answer, code))
    });
    answer
}

#[test]
fn strangers_and_doubles_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = Config::start(dir.path(), &["--shards", "1"]);
    let cluster = with_two_servers(&config);
    let mut client = config.client();
    let mut join = |of: &str, record: &str| answered(&mut client, &["SERVER", "JOIN", of, record]);
    assert_eq!(join(&cluster, &record('a', 7001)), Value::Simple(format!("id {cluster}").into_bytes()));
    assert!(is_error(&join(&id('9'), &record('c', 7003)), "WRONGCLUSTER"));
    assert!(is_error(&join(&cluster, &record('a', 7009)), "DUPLICATE"));
    let on = |machine: &str| format!("{} @{machine}", record('b', 7002));
    assert!(matches!(join(&cluster, &on("one")), Value::Simple(_)), "it had not said its machine");
    assert!(is_error(&join(&cluster, &on("two")), "DUPLICATE"), "a copy says the address that it has copied");
    assert!(matches!(join(&cluster, &on("one")), Value::Simple(_)));
    for wrong in
        ["", "server", "server x 127.0.0.1 7001 0 - - memory -", &record('c', 7003).replace("memory", "huge")]
    {
        assert!(is_error(&join("-", wrong), "ERR"), "{wrong}");
    }
    let here = answered(&mut client, &["SERVER", "HERE", &id('d'), ""]);
    assert!(is_error(&here, "NOSERVER"));
    let last = answered(&mut client, &["CLUSTER", "REMOVE-SERVER", &id('a')]);
    assert!(is_error(&last, "ERR"));
    assert_eq!(
        answered(&mut client, &["CLUSTER", "REMOVE-SERVER", &id('a'), "FORCE"]),
        Value::Simple(b"OK".to_vec())
    );
    assert!(is_error(&answered(&mut client, &["SERVER", "JOIN", &cluster, &record('a', 7001)]), "REMOVED"));
    // Who leads since just now has heard of nobody, and takes all for living.
    drop((client, config));
    let config = Config::start(dir.path(), &[]);
    let double = answered(&mut config.client(), &["SERVER", "JOIN", &cluster, &record('b', 7009)]);
    assert!(is_error(&double, "DUPLICATE"), "{double:?}");
    let second = Command::new(tarn_path())
        .args(["config", "--store", &format!("dir:{}", dir.path().display()), "--port", "1"])
        .output()
        .expect("tarn can be run");
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(!second.status.success() && said.contains("another process"), "{said}");
}

#[test]
fn who_knows_no_password_gets_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = Config::start(dir.path(), &["--requirepass", "secret"]);
    let mut client = config.client();
    for words in [
        &["PING"][..],
        &["TOPOLOGY", "GET"],
        &["TOPOLOGY", "FOLLOW", "0"],
        &["CLUSTER", "STATUS"],
        &["CONFIG-SERVER", "PASSED", "CLUSTER", "ADD-SHARD"],
        &["HELLO", "3"],
    ] {
        assert!(is_error(&call(&mut client, words), "NOAUTH"), "{words:?}");
    }
    assert!(is_error(&call(&mut client, &["AUTH", "guess"]), "WRONGPASS"));
    assert!(is_error(&call(&mut client, &["AUTH", "someone", "guess"]), "WRONGPASS"));
    // Servers say the name that they have for each other, too.
    assert_eq!(call(&mut client, &["AUTH", "someone", "secret"]), Value::Simple(b"OK".to_vec()));
    assert_eq!(call(&mut client, &["AUTH", "secret"]), Value::Simple(b"OK".to_vec()));
    assert_eq!(call(&mut client, &["PING"]), Value::Simple(b"PONG".to_vec()));
    assert!(matches!(call(&mut client, &["HELLO", "3", "AUTH", "default", "secret"]), Value::Map(_)));
}

#[test]
fn what_makes_no_sense_harms_nobody() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = Config::start(dir.path(), &[]);
    let mut client = config.client();
    for words in [
        &["SERVER"][..],
        &["SERVER", "JOIN"],
        &["SERVER", "HERE", "x", "y"],
        &["DECISION", "GET", "x"],
        &["DECISION", "SET", "0", "0"],
        &["TOPOLOGY"],
        &["TOPOLOGY", "FOLLOW", "-1"],
        &["CLUSTER"],
        &["CLUSTER", "SWITCH", "70000"],
        &["CLUSTER", "SET", "copies"],
        &["CONFIG-SERVER"],
        &["CONFIG-SERVER", "PASSED"],
        &["CONFIG-SERVER", "HEARD", "a"],
        &["CONFIG-SERVER", "PASSED", "CONFIG-SERVER", "PASSED", "X"],
        &["GET", "key"],
        &["FLUSHALL"],
    ] {
        assert!(is_error(&call(&mut client, words), "ERR"), "{words:?}");
    }
    // Nor what says a hundred thousand times that it was passed on.
    let mut nested = ["CONFIG-SERVER", "PASSED"].repeat(100_000);
    nested.push("PING");
    assert!(is_error(&call(&mut client, &nested), "ERR"));
    for bytes in
        [&b"*1\r\n$-5\r\n"[..], b"*99999999999\r\n", b"\x00\xff\r\n", b"*2\r\n$3\r\nGET\r\n$9999999999\r\n"]
    {
        let mut other = config.client();
        other.send(bytes).expect("it is sent");
        other.close_write().expect("it can be closed");
        let _ = other.read_to_close();
    }
    assert_eq!(call(&mut client, &["PING"]), Value::Simple(b"PONG".to_vec()));
    let info = ask(&mut client, &["INFO"]);
    assert!(info.contains("store_status:ok"), "{info}");
}

/// `tarn cluster up`, and all that it has said until it was ready.
struct Up(Child);

impl Up {
    fn start(words: &[&str]) -> Up {
        let mut child = Command::new(tarn_path())
            .args(["cluster", "up"])
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("tarn can be run");
        let _deadline = Deadline::of(&child);
        let lines = BufReader::new(child.stdout.take().expect("it was piped")).lines();
        let mut lines = lines.map_while(Result::ok);
        assert!(lines.any(|line| line.starts_with("Ctrl-C ends")), "the cluster does not come up");
        std::mem::forget(lines);
        Up(child)
    }

    fn signal(&mut self, signal: &str) -> bool {
        let id = self.0.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().expect("kill can be run").success());
        let _deadline = Deadline::of(&self.0);
        self.0.wait().expect("it ends").success()
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        if self.0.try_wait().is_ok_and(|ended| ended.is_none()) {
            self.signal("-TERM");
        }
    }
}

#[test]
fn a_cluster_is_begun_once_and_goes_on_whatever_became_of_who_began_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let place = dir.path().display().to_string();
    let [port, config, proxy] = [(); 3].map(|()| free_port().expect("there is one").to_string());
    let words = ["--dir", &place, "--shards", "1", "--copies", "1", "--edition", "durable"];
    let words = [&words[..], &["--port", &port, "--config-port", &config, "--proxy-port", &proxy]].concat();
    let client_at = |port: &str| {
        let address = (Ipv4Addr::LOCALHOST, port.parse().expect("a port"));
        Client::connect_loaded(address.into()).expect("it serves")
    };
    let client = || client_at(&port);
    let mut first = Up::start(&words);
    assert_eq!(call(&mut client(), &["SET", "k", "v"]), Value::Simple(b"OK".to_vec()));
    let complain = |words: &[&str]| {
        let output = Command::new(tarn_path()).args(["cluster", "up"]).args(words).output();
        let output = output.expect("tarn can be run");
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(complain(&words).contains("another `tarn cluster up` has it"));
    let [other, third] = ["other", "third"].map(|name| dir.path().join(name).display().to_string());
    let said = complain(&["--dir", &other, "--proxy-port", &port]);
    assert!(said.contains("cannot be had"), "{said}");
    let said = complain(&["--dir", &third, "--proxy-port", &port, "--port", &port]);
    assert!(said.contains("is a server's"), "{said}");

    first.signal("-KILL");
    let mut again = Up::start(&words);
    assert_eq!(call(&mut client(), &["GET", "k"]), Value::Bulk(b"v".to_vec()));
    assert_eq!(call(&mut client_at(&proxy), &["GET", "k"]), Value::Bulk(b"v".to_vec()));
    assert!(again.signal("-TERM"), "it ends well");
    for port in [&port, &proxy] {
        assert!(Client::connect((Ipv4Addr::LOCALHOST, port.parse().expect("a port")).into()).is_err());
    }
}

#[test]
fn a_cluster_goes_on_after_all_of_it_has_ended() {
    for edition in ["memory", "capacity"] {
        let dir = tempfile::tempdir().expect("a directory");
        let place = dir.path().display().to_string();
        // Two in a row for the servers.
        let config = free_port().expect("there is one");
        let next = || free_port().expect("there is one");
        let in_a_row = std::iter::repeat_with(|| (next(), next())).find(|(one, other)| *other == one + 1);
        let (port, _) = in_a_row.expect("it goes on until there are two");
        let (port, config) = (port.to_string(), config.to_string());
        let words = ["--dir", &place, "--shards", "1", "--copies", "2", "--edition", edition];
        let proxy = next().to_string();
        let words =
            [&words[..], &["--port", &port, "--config-port", &config, "--proxy-port", &proxy]].concat();
        let words = [&words[..], &["--", "--requirepass", "secret"]].concat();
        let client_at = |port: &str| {
            let address = (Ipv4Addr::LOCALHOST, port.parse().expect("a port"));
            let mut client = Client::connect(address.into()).expect("it serves");
            assert_eq!(call(&mut client, &["AUTH", "secret"]), Value::Simple(b"OK".to_vec()));
            client
        };
        let client = || client_at(&port);
        let mut first = Up::start(&words);
        // Whichever server is master of the one shard.
        let mut known = client();
        if let Value::Error(moved) = call(&mut known, &["SET", "k", "v"]) {
            let other =
                String::from_utf8_lossy(&moved).rsplit(' ').next().and_then(|place| place.parse().ok());
            known = Client::connect(other.expect("it says where")).expect("it serves");
            assert_eq!(call(&mut known, &["AUTH", "secret"]), Value::Simple(b"OK".to_vec()));
            assert_eq!(call(&mut known, &["SET", "k", "v"]), Value::Simple(b"OK".to_vec()));
        }
        assert!(first.signal("-TERM"), "it ends well");
        let mut again = Up::start(&words);
        wait_until("what was acknowledged is there", || {
            let mut client = client();
            call(&mut client, &["READONLY"]);
            call(&mut client, &["GET", "k"]) == Value::Bulk(b"v".to_vec())
        });
        assert_eq!(call(&mut client_at(&proxy), &["GET", "k"]), Value::Bulk(b"v".to_vec()));
        assert!(again.signal("-TERM"), "it ends well");
    }
}

/// What is printed until somebody can connect, and how many clients there can be then.
fn begun_with(limit: &str, words: &[&str]) -> (Config, String) {
    let port = free_port().expect("there is a port");
    let script = format!("ulimit -S -n {limit} && exec \"$@\"");
    let mut child = Command::new("sh")
        .args(["-c", &script, "sh"])
        .arg(tarn_path())
        .args(["config", "--port", &port.to_string()])
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("there is a shell");
    let _deadline = Deadline::of(&child);
    let mut lines = BufReader::new(child.stdout.take().expect("it was piped")).lines();
    let mut printed = String::new();
    while !printed.contains("Ready to accept connections") {
        let line = lines.next().expect("it goes on until it is ready").expect("it is text");
        printed = printed + &line + "\n";
    }
    std::mem::forget(lines);
    (Config { child, address: (Ipv4Addr::LOCALHOST, port).into() }, printed)
}

#[test]
fn a_config_server_has_files_for_its_clients() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = format!("dir:{}", dir.path().display());
    let (config, printed) = begun_with("64", &["--store", &store, "--maxclients", "200"]);
    assert!(!printed.contains("maxclients"), "{printed}");
    let mut clients: Vec<Client> = (0..150).map(|_| config.client()).collect();
    for client in &mut clients {
        assert_eq!(ask(client, &["PING"]), "PONG");
    }
    drop(clients);
    drop(config);
    // Where it cannot be raised there are fewer, and they are told.
    let (config, printed) = begun_with("64 && ulimit -H -n 64", &["--store", &store, "--maxclients", "200"]);
    assert!(is_privileged() || printed.contains("maxclients is lowered from 200 to "), "{printed}");
    assert_eq!(ask(&mut config.client(), &["PING"]), "PONG");
}

/// Whether limits hold for nobody here.
fn is_privileged() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout == b"0\n")
}

#[test]
fn a_config_server_that_others_cannot_reach_says_so() {
    let etcd = testkit::etcd::Etcd::start(1);
    let store = format!("etcd:http://{}", etcd.address(0));
    let said = |words: &[&str]| {
        let (_config, printed) = begun_with("1024", &[&["--store", &store][..], words].concat());
        printed.contains("which nobody on another machine reaches")
    };
    assert!(said(&[]));
    assert!(said(&["--bind", "127.0.0.1", "--bind", "127.0.0.2"]));
    assert!(!said(&["--announce", "config.example"]));
    let dir = tempfile::tempdir().expect("a directory");
    let alone = format!("dir:{}", dir.path().display());
    assert!(!begun_with("1024", &["--store", &alone]).1.contains("which nobody on another machine reaches"));
}
