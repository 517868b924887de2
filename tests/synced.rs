//! `min-sync-replicas`: a write is answered when enough replicas have it, and what was answered outlives its master.

use crate::tarn;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use sys::Prng;
use testkit::ask::{ask, call, ok, text, wait_until};
use testkit::client::decode;
use testkit::relay::{Relay, Way};
use testkit::{Client, Program, Server};
use wire::Value;

const WRITERS: u64 = 4;
/// `sync-timeout` where writes are to be taken, or several are to be under way before it ends.
const PATIENT_MS: &str = "8000";
/// And where one is to end.
const HASTY_MS: u64 = 400;

fn server(program: Program, edition: &str, directives: &[&str]) -> Server {
    let own = match &program {
        Program::Tarn(_) => vec!["--edition", edition, "--repl-rdb-version", "10"],
        _ => vec!["--appendonly", "no"],
    };
    let directives: Vec<&str> = own.iter().chain(directives).copied().collect();
    let server = Server::start(program, &directives).expect("it starts");
    server.connect_loaded().expect("it loads");
    server
}

fn follow(client: &mut Client, port: u16) {
    assert_eq!(call(client, &["REPLICAOF", "127.0.0.1", &port.to_string()]), ok());
}

fn is_taken(client: &mut Client) -> bool {
    call(client, &["SET", "asked", "1"]) == ok()
}

fn error(value: &Value) -> String {
    let Value::Error(line) = value else { panic!("{value:?} is no error") };
    String::from_utf8_lossy(line).into_owned()
}

fn a_write_waits_for_its_replica(master: &str, replica: (Program, &str)) {
    let master = server(tarn(), master, &["--min-sync-replicas", "1", "--sync-timeout", PATIENT_MS]);
    let (mut writer, mut other) = (master.connect().unwrap(), master.connect().unwrap());
    let refused = error(&call(&mut writer, &["SET", "k", "1"]));
    assert_eq!(refused, "NOREPLICAS Not enough good replicas to write.");
    assert_eq!(call(&mut writer, &["GET", "k"]), Value::Null);
    let relay = Relay::to(master.address()).expect("it listens");
    let replica = server(replica.0, replica.1, &[]);
    let mut there = replica.connect().unwrap();
    follow(&mut there, relay.address().port());
    wait_until("the replica has everything", || is_taken(&mut writer));
    for round in 0..50 {
        let round = round.to_string();
        wait_until("it is written", || call(&mut writer, &["SET", "k", &round]) == ok());
        assert_eq!(call(&mut there, &["GET", "k"]), text(&round));
    }
    // What the replica acknowledges does not arrive any more.
    be_patient(&mut other, &HASTY_MS.to_string());
    relay.stop(Way::There);
    let began = Instant::now();
    let waited = error(&call(&mut writer, &["INCR", "n"]));
    assert!(began.elapsed() >= Duration::from_millis(HASTY_MS), "it waited for {:?} only", began.elapsed());
    assert!(waited.starts_with("NOREPLICAS Not enough good replicas have what was written"), "{waited}");
    let refused = error(&call(&mut other, &["INCR", "n"]));
    assert_eq!(refused, "NOREPLICAS Not enough good replicas to write.");
    assert_eq!(call(&mut other, &["GET", "n"]), text("1"), "reads go on");
    assert_eq!(info(&mut other, "min_sync_status"), "short");
    be_patient(&mut other, PATIENT_MS);
    relay.mend();
    wait_until("the replica has everything again", || is_taken(&mut other));
    each_write_that_waits_fails(&relay, &master, [&mut writer, &mut other]);
    assert_eq!(info(&mut other, "min_sync_status"), "ok");
    assert_eq!(call(&mut other, &["INCR", "n"]), Value::Int(2));
    assert_eq!(call(&mut there, &["GET", "n"]), text("2"));
    // Without the directive nobody is waited for.
    relay.stop(Way::There);
    let waiting = thread::scope(|scope| {
        let waiting = scope.spawn(|| call(&mut writer, &["INCR", "n"]));
        wait_until("it is under way", || info(&mut other, "master_repl_offset") != "0");
        call(&mut other, &["CONFIG", "SET", "min-sync-replicas", "0"]);
        waiting.join().expect("it is answered")
    });
    assert_eq!(waiting, Value::Int(3));
}

/// So long a write waits from now on.
fn be_patient(client: &mut Client, ms: &str) {
    assert_eq!(call(client, &["CONFIG", "SET", "sync-timeout", ms]), ok());
}

/// How often a server has done a command.
fn times(client: &mut Client, command: &str) -> u64 {
    let stats = ask(client, &["INFO", "commandstats"]);
    let begin = format!("cmdstat_{}:calls=", command.to_lowercase());
    let line = stats.lines().find_map(|line| line.strip_prefix(&begin));
    line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
}

/// Writes, reads between them, a client that is given what another one writes, and one that reads it.
fn each_write_that_waits_fails(relay: &Relay, master: &Server, [writer, other]: [&mut Client; 2]) {
    let (mut reader, mut witness) = (master.connect().unwrap(), master.connect().unwrap());
    relay.stop(Way::There);
    other.send_request(&["BLPOP", "list", "90"]).unwrap();
    reader.send_request(&["XREAD", "BLOCK", "90000", "STREAMS", "stream", "$"]).unwrap();
    wait_until("both wait", || ask(&mut witness, &["INFO", "clients"]).contains("blocked_clients:2"));
    let requests = [
        &["INCR", "m"][..],
        &["GET", "m"],
        &["INCR", "m"],
        &["LPUSH", "list", "v"],
        &["XADD", "stream", "1-1", "f", "v"],
        &["WAIT", "1", "1"],
        &["PING"],
    ];
    // Each by itself: what was read in one go is held as one. Of WAIT it is not told that it was done.
    for request in requests {
        let before = times(&mut witness, request[0]);
        writer.send_request(request).unwrap();
        wait_until(&format!("{request:?} is done"), || {
            request[0] == "WAIT" || times(&mut witness, request[0]) > before
        });
    }
    let refused = "NOREPLICAS Not enough good replicas have what was written";
    for request in requests {
        let reply = writer.read_value().unwrap();
        match request[0] {
            "INCR" | "LPUSH" | "XADD" => {
                assert!(error(&reply).starts_with(refused), "{request:?}: {reply:?}")
            }
            "GET" => assert_eq!(reply, text("1")),
            "WAIT" => assert_eq!(reply, Value::Int(0)),
            _ => assert_eq!(reply, Value::Simple(b"PONG".to_vec())),
        }
    }
    assert!(error(&other.read_value().unwrap()).starts_with(refused), "who was given it is told the same");
    let read = reader.read_value().unwrap();
    assert!(matches!(read, Value::Array(_)), "who only reads has written nothing: {read:?}");
    relay.mend();
    wait_until("the replica has everything again", || is_taken(other));
    // What is read in one go fails as far as it was written.
    relay.stop(Way::There);
    let lines = ["SET m 7", "PING", "SADD e x", "SADD e x", "SELECT 0", "GET m"];
    let packet = lines.map(|line| line.split(' ').collect::<Vec<_>>());
    let replies = writer.pipeline(&packet).unwrap();
    for (request, reply) in packet.iter().zip(replies) {
        let reply = decode(&reply).expect("replies are whole");
        match request[0] {
            "SET" | "SADD" => assert!(error(&reply).starts_with(refused), "{request:?}: {reply:?}"),
            "GET" => assert_eq!(reply, text("7")),
            "SELECT" => assert_eq!(reply, ok()),
            _ => assert_eq!(reply, Value::Simple(b"PONG".to_vec())),
        }
    }
    relay.mend();
    wait_until("the replica has everything again", || is_taken(other));
}

fn info(client: &mut Client, name: &str) -> String {
    let Value::Bulk(all) = call(client, &["INFO", "replication"]) else { panic!("INFO is text") };
    let all = String::from_utf8_lossy(&all).into_owned();
    let line = all.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("{name} is not in {all}")).to_owned()
}

#[test]
fn a_write_is_answered_when_its_replica_has_it_on_disk() {
    a_write_waits_for_its_replica("durable", (tarn(), "durable"));
}

#[test]
fn a_write_is_answered_when_its_replica_has_it_in_memory() {
    a_write_waits_for_its_replica("memory", (tarn(), "memory"));
}

#[test]
fn a_redis_can_be_the_replica_that_must_have_it() {
    a_write_waits_for_its_replica("memory", (Program::Redis, ""));
}

/// Writes until the connection breaks; what was answered is noted.
fn write(server: SocketAddr, writer: u64, counter: &AtomicU64, answered: &Mutex<BTreeMap<String, u64>>) {
    let Ok(mut client) = Client::connect(server) else { return };
    loop {
        let value = counter.fetch_add(1, Ordering::Relaxed);
        let key = format!("w{writer}:{}", value % 50);
        match client.call(&["SET", &key, &value.to_string()]) {
            Ok(Value::Simple(_)) => drop(answered.lock().unwrap().insert(key, value)),
            Ok(Value::Error(_)) => {}
            Ok(other) => panic!("{other:?}"),
            Err(_) => return,
        }
    }
}

/// Kills masters under load, has their replicas promoted, and the others follow.
fn nothing_answered_is_lost(edition: &str, rounds: u64) {
    let own = ["--min-sync-replicas", "1"];
    let (mut master, mut replica) = (server(tarn(), edition, &own), server(tarn(), edition, &own));
    let (counter, answered) = (AtomicU64::new(1), Mutex::new(BTreeMap::new()));
    let mut prng = Prng::from_seed(8001);
    for round in 0..rounds {
        follow(&mut replica.connect_loaded().unwrap(), master.address().port());
        let mut client = master.connect_loaded().unwrap();
        wait_until("the replica has everything", || is_taken(&mut client));
        let moment = Duration::from_millis(50 + prng.below(300));
        thread::scope(|scope| {
            let (address, counter, answered) = (master.address(), &counter, &answered);
            for writer in 0..WRITERS {
                scope.spawn(move || write(address, writer, counter, answered));
            }
            // The moment is what this is about; there is no event to wait for.
            thread::sleep(moment);
            master.kill();
        });
        let mut promoted = replica.connect().unwrap();
        call(&mut promoted, &["REPLICAOF", "NO", "ONE"]);
        for (key, value) in answered.lock().unwrap().iter() {
            let Value::Bulk(has) = call(&mut promoted, &["GET", key]) else {
                panic!("round {round}: {key} is gone, which was {value}")
            };
            let has: u64 = String::from_utf8_lossy(&has).parse().expect("a number");
            assert!(has >= *value, "round {round}: {key} is {has}, and {value} was answered");
        }
        master.restart().expect("it starts");
        std::mem::swap(&mut master, &mut replica);
    }
    assert!(!answered.lock().unwrap().is_empty(), "something was answered");
}

#[test]
fn a_master_that_begins_again_with_nothing_does_not_empty_its_replica() {
    let own = ["--min-sync-replicas", "1"];
    let (mut master, replica) = (server(tarn(), "memory", &own), server(tarn(), "memory", &own));
    let relay = Relay::to(master.address()).expect("it listens");
    let (mut here, mut there) = (master.connect().unwrap(), replica.connect().unwrap());
    follow(&mut there, relay.address().port());
    wait_until("the replica has everything", || is_taken(&mut here));
    for key in 0..100 {
        assert_eq!(call(&mut here, &["SET", &format!("k{key}"), "v"]), ok());
    }
    master.kill();
    master.restart().expect("it starts");
    relay.aim(master.address());
    let refuses = || replica.output().contains("another history");
    wait_until("the copy is refused", refuses);
    assert_eq!(call(&mut there, &["DBSIZE"]), Value::Int(101));
    let mut here = master.connect().unwrap();
    assert!(error(&call(&mut here, &["SET", "k", "v"])).starts_with("NOREPLICAS"));
    // Somebody says that it is to be so.
    call(&mut there, &["REPLICAOF", "127.0.0.1", &relay.address().port().to_string()]);
    wait_until("the replica has everything", || is_taken(&mut here));
    assert_eq!(call(&mut there, &["DBSIZE"]), Value::Int(1));
}

/// So many rounds unless `TARN_ROUNDS` says how many.
fn rounds() -> u64 {
    std::env::var("TARN_ROUNDS").map_or(4, |rounds| rounds.parse().expect("a number of rounds"))
}

#[test]
fn nothing_answered_is_lost_with_a_master_on_disk() {
    nothing_answered_is_lost("durable", rounds());
}

#[test]
fn nothing_answered_is_lost_with_a_master_in_memory() {
    nothing_answered_is_lost("memory", rounds());
}
