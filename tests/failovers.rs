//! FAILOVER among Tarns and real servers: what clients were told was done is there under the next master, however often masters change; and
//! one that comes to nothing changes nothing.

use crate::{info, tarn};
use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use testkit::ask::{ask, call, is_error, ok, shown, wait_until};
use testkit::relay::{Relay, Way};
use testkit::{Client, Program, Server};
use wire::Value;

/// Clients that write while masters change.
const WRITERS: usize = 3;

/// Changes of the master, of one test.
const CHANGES: usize = 4;

/// What each writer has been told is done before the master changes.
const WRITES: u64 = 30;

fn start(program: Program, directives: &[&str]) -> Server {
    let own: &[&str] = match program {
        Program::Tarn(_) | Program::Proxy(_) => {
            &["--repl-rdb-version", "10", "--enable-debug-command", "yes"]
        }
        Program::Redis | Program::Valkey => {
            &["--enable-debug-command", "yes", "--repl-diskless-sync-delay", "0"]
        }
    };
    Server::start(program, &[own, directives].concat()).expect("it starts")
}

fn edition(name: &str) -> Server {
    start(tarn(), &["--edition", name])
}

fn redis() -> Server {
    start(Program::Redis, &[])
}

fn field(client: &mut Client, name: &str) -> String {
    let Value::Bulk(all) = call(client, &["INFO", "everything"]) else { panic!("INFO is text") };
    let all = String::from_utf8_lossy(&all).into_owned();
    let line = all.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_default().to_owned()
}

fn state(client: &mut Client) -> String {
    field(client, "master_failover_state")
}

fn port(address: SocketAddr) -> String {
    address.port().to_string()
}

fn fail_over_to(master: &mut Client, target: SocketAddr, options: &[&str]) -> Value {
    let port = port(target);
    call(master, &[&["FAILOVER", "TO", "127.0.0.1", &port], options].concat())
}

fn offset(client: &mut Client) -> String {
    field(client, "master_repl_offset")
}

/// Has a server follow another, and waits until the link is up and the other knows it.
fn follow(replica: &Server, master: &Server) {
    let (mut here, mut there) = (master.connect().unwrap(), replica.connect().unwrap());
    call(&mut there, &["REPLICAOF", "127.0.0.1", &port(master.address())]);
    let listens = format!("port={},state=online", replica.address().port());
    let lists = |client: &mut Client| ask(client, &["INFO", "replication"]).contains(&listens);
    wait_until("the link is up", || field(&mut there, "master_link_status") == "up" && lists(&mut here));
}

/// Waits until a failover has made this server the master and the other its replica.
fn await_change(from: &mut Client, to: &mut Client) {
    wait_until("the failover is over", || state(from) == "no-failover" && field(to, "role") == "master");
    assert_eq!(field(from, "role"), "slave");
    wait_until("the link is up", || field(from, "master_link_status") == "up");
}

fn signal(server: &Server, signal: &str) {
    assert!(Command::new("kill").args([signal, &server.pid().to_string()]).status().unwrap().success());
}

/// A server that stands still while this is there.
struct Stopped<'a>(&'a Server);

impl<'a> Stopped<'a> {
    fn new(server: &'a Server) -> Stopped<'a> {
        signal(server, "-STOP");
        Stopped(server)
    }
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        signal(self.0, "-CONT");
    }
}

/// Writes one key after the other to whoever is master, and counts those of which it was told that they are written.
fn write(servers: [SocketAddr; 2], name: usize, written: &AtomicU64, is_over: &AtomicBool) -> Vec<String> {
    let mut clients = servers.map(|address| Client::connect(address).expect("it listens"));
    let (mut done, mut at) = (Vec::new(), 0);
    for number in 0.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let key = format!("{name}:{number}");
        match call(&mut clients[at], &["SET", &key, "v"]) {
            Value::Simple(_) => {
                written.fetch_add(1, Ordering::Relaxed);
                done.push(key);
            }
            refused if is_error(&refused, "READONLY") => at = 1 - at,
            // Not acknowledged: the new master has not heard of its replica yet (`min-sync-replicas`).
            short if is_error(&short, "NOREPLICAS") => {}
            other => panic!("{other:?}"),
        }
    }
    done
}

/// Changes masters to and fro while clients write.
fn change_under_writes(first: Server, second: Server) {
    follow(&second, &first);
    let addresses = [first.address(), second.address()];
    let mut clients = [first.connect().unwrap(), second.connect().unwrap()];
    let full = clients.each_mut().map(|client| info(client, "sync_full"));
    let (is_over, written) = (AtomicBool::new(false), [const { AtomicU64::new(0) }; WRITERS]);
    let done: Vec<String> = thread::scope(|scope| {
        let ends = testkit::Ends(&is_over);
        let writers: Vec<_> = (0..WRITERS)
            .map(|name| (name, &written[name], &is_over))
            .map(|(name, written, is_over)| scope.spawn(move || write(addresses, name, written, is_over)))
            .collect();
        for change in 0..CHANGES {
            let before = written.each_ref().map(|count| count.load(Ordering::Relaxed));
            wait_until("all write", || {
                written
                    .iter()
                    .zip(before)
                    .all(|(count, before)| count.load(Ordering::Relaxed) >= before + WRITES)
            });
            let [from, to] = &mut clients;
            let (from, to) = if change % 2 == 0 { (from, to) } else { (to, from) };
            let answer = fail_over_to(from, addresses[(change + 1) % 2], &[]);
            assert_eq!(answer, ok(), "{}\n{}", first.last_lines(), second.last_lines());
            await_change(from, to);
        }
        drop(ends);
        writers.into_iter().flat_map(|writer| writer.join().expect("it writes")).collect()
    });
    for client in &mut clients {
        wait_until("the last is there", || call(client, &["EXISTS", done.last().unwrap()]) == Value::Int(1));
    }
    for key in &done {
        assert_eq!(call(&mut clients[0], &["EXISTS", key]), Value::Int(1), "{key} is lost");
    }
    wait_until("the offsets are the same", || offset(&mut clients[0]) == offset(&mut clients[1]));
    let digests = clients.each_mut().map(|client| ask(client, &["DEBUG", "DIGEST"]));
    assert_eq!(digests[0], digests[1]);
    let full_now = clients.each_mut().map(|client| info(client, "sync_full"));
    assert_eq!(full_now, full, "{}\n{}", first.last_lines(), second.last_lines());
}

#[test]
fn durable_tarns_change_without_loss() {
    change_under_writes(edition("durable"), edition("durable"));
}

#[test]
fn memory_tarns_change_without_loss() {
    change_under_writes(edition("memory"), edition("memory"));
}

#[test]
fn tarns_whose_writes_wait_for_replicas_change_without_loss() {
    for edition in ["durable", "memory"] {
        let waits =
            || start(tarn(), &["--edition", edition, "--min-sync-replicas", "1", "--sync-timeout", "10000"]);
        change_under_writes(waits(), waits());
    }
}

#[test]
fn tarns_that_sync_now_and_then_change_without_loss() {
    let logged = || start(tarn(), &["--edition", "memory", "--appendonly", "yes"]);
    change_under_writes(logged(), logged());
}

#[test]
fn a_durable_tarn_and_a_redis_change_without_loss() {
    change_under_writes(edition("durable"), redis());
}

#[test]
fn a_redis_and_a_memory_tarn_change_without_loss() {
    change_under_writes(redis(), edition("memory"));
}

#[test]
fn a_valkey_and_a_capacity_tarn_change_without_loss() {
    change_under_writes(start(Program::Valkey, &[]), edition("capacity"));
}

#[test]
fn what_is_refused_is_refused_in_redis_words() {
    let requests = |other: &str| -> Vec<Vec<String>> {
        let lines = [
            "FAILOVER ABORT",
            "FAILOVER",
            "FAILOVER FORCE TIMEOUT 100",
            "FAILOVER TO 127.0.0.1 PORT FORCE",
            "FAILOVER TO invalidhost PORT",
            "FAILOVER TO 127.0.0.1 invalidport",
            "FAILOVER TO 127.0.0.1 -1",
            "FAILOVER TO 127.0.0.1 0",
            "FAILOVER TO 127.0.0.1 70000",
            "FAILOVER TO 127.0.0.1",
            "FAILOVER TIMEOUT 0",
            "FAILOVER TIMEOUT -1",
            "FAILOVER TIMEOUT x",
            "FAILOVER TIMEOUT",
            "FAILOVER TIMEOUT 1 TIMEOUT 1",
            "FAILOVER TO a 1 TO b 2",
            "FAILOVER ABORT TIMEOUT 1",
            "FAILOVER NOW",
            "PSYNC 0123456789012345678901234567890123456789 1 FAILOVER",
        ];
        let words = |line: &&str| line.replace("PORT", other).split(' ').map(str::to_owned).collect();
        lines.iter().map(words).collect()
    };
    let answers = |first: Server, second: Server| -> Vec<String> {
        let (mut master, mut replica) = (first.connect().unwrap(), second.connect().unwrap());
        let requests = requests(&port(second.address()));
        let ask_all =
            |client: &mut Client| requests.iter().map(|words| ask(client, words)).collect::<Vec<_>>();
        // Without a replica nothing can be forced or handed over; with one, what would begin one is left out.
        let alone = ask_all(&mut master);
        follow(&second, &first);
        let of_replica = ask_all(&mut replica);
        let followed: Vec<String> = requests
            .iter()
            .filter(|words| words.join(" ") != "FAILOVER")
            .map(|words| ask(&mut master, words))
            .collect();
        [alone, of_replica, followed].concat()
    };
    let (of_tarn, of_redis) = (answers(edition("memory"), edition("memory")), answers(redis(), redis()));
    assert_eq!(of_tarn, of_redis);
}

/// A master and its replica.
fn pair(edition_name: &str) -> (Server, Server) {
    let (master, replica) = (edition(edition_name), edition(edition_name));
    follow(&replica, &master);
    (master, replica)
}

#[test]
fn a_failover_that_waits_holds_writes_until_it_is_given_up() {
    for name in ["memory", "durable"] {
        let (master, replica) = pair(name);
        let (mut client, mut admin) = (master.connect().unwrap(), master.connect().unwrap());
        let stopped = Stopped::new(&replica);
        assert_eq!(call(&mut client, &["SET", "a", "1"]), ok());
        assert_eq!(fail_over_to(&mut admin, replica.address(), &["TIMEOUT", "60000"]), ok());
        assert_eq!(state(&mut admin), "waiting-for-sync");
        client.send_request(&["SET", "a", "2"]).unwrap();
        wait_until("the write waits", || info(&mut admin, "paused_clients") == 1);
        assert_eq!(call(&mut admin, &["CLIENT", "UNPAUSE"]), ok());
        assert_eq!(call(&mut admin, &["CLIENT", "PAUSE", "1", "WRITE"]), ok());
        assert_eq!(call(&mut admin, &["CLIENT", "UNPAUSE"]), ok());
        assert_eq!(shown(&call(&mut admin, &["GET", "a"])), "1");
        wait_until("the write waits still", || info(&mut admin, "paused_clients") == 1);
        for (request, error) in [
            (&["FAILOVER"][..], "FAILOVER already in progress."),
            (&["REPLICAOF", "NO", "ONE"], "REPLICAOF not allowed while failing over."),
            (&["PSYNC", "?", "-1"], "NOMASTERLINK Can't SYNC while failing over"),
        ] {
            assert!(ask(&mut admin, request).contains(error), "{request:?}");
        }
        assert_eq!(call(&mut admin, &["FAILOVER", "ABORT"]), ok());
        assert_eq!(state(&mut admin), "no-failover");
        assert_eq!(client.read_value().unwrap(), ok());
        drop(stopped);
        let mut there = replica.connect().unwrap();
        wait_until("the replica goes on", || shown(&call(&mut there, &["GET", "a"])) == "2");
        assert_eq!(field(&mut admin, "role"), "master");
    }
}

#[test]
fn a_failover_whose_time_is_up_ends_by_itself() {
    let (master, replica) = pair("durable");
    let mut client = master.connect().unwrap();
    let stopped = Stopped::new(&replica);
    assert_eq!(call(&mut client, &["SET", "a", "1"]), ok());
    assert_eq!(fail_over_to(&mut client, replica.address(), &["TIMEOUT", "100"]), ok());
    // It waits for the end of the pause.
    assert_eq!(call(&mut client, &["SET", "a", "2"]), ok());
    assert_eq!(state(&mut client), "no-failover");
    master.await_output(&["aborted: Replica never caught up before timeout"]);
    drop(stopped);
    assert_eq!(info(&mut client, "sync_partial_ok"), 0);
}

#[test]
fn a_target_that_is_forced_has_what_had_come() {
    let (master, replica) = pair("memory");
    let (mut client, mut there) = (master.connect().unwrap(), replica.connect().unwrap());
    let stopped = Stopped::new(&replica);
    assert_eq!(call(&mut client, &["SET", "a", "1"]), ok());
    assert_eq!(fail_over_to(&mut client, replica.address(), &["TIMEOUT", "50", "FORCE"]), ok());
    wait_until("the time is up", || state(&mut client) == "failover-in-progress");
    assert_eq!(field(&mut client, "role"), "slave");
    assert!(is_error(&call(&mut client, &["SET", "a", "2"]), "READONLY"));
    drop(stopped);
    await_change(&mut client, &mut there);
    assert_eq!(shown(&call(&mut there, &["GET", "a"])), "1");
}

#[test]
fn a_target_that_refuses_changes_nothing() {
    for name in ["memory", "durable"] {
        let (master, replica) = pair(name);
        let (mut client, mut writer) = (master.connect().unwrap(), master.connect().unwrap());
        let mut there = replica.connect().unwrap();
        let full = info(&mut client, "sync_full");
        call(&mut there, &["ACL", "SETUSER", "default", "-psync"]);
        assert_eq!(call(&mut client, &["SET", "a", "1"]), ok());
        assert_eq!(fail_over_to(&mut client, replica.address(), &[]), ok());
        // Held back until this server is master again, or refused for as long as it is none.
        wait_until("it is written", || !is_error(&call(&mut writer, &["SET", "a", "2"]), "READONLY"));
        wait_until("it is over", || state(&mut client) == "no-failover");
        assert_eq!(field(&mut client, "role"), "master");
        master.await_output(&["aborted: Failover target rejected psync request"]);
        wait_until("the replica goes on", || shown(&call(&mut there, &["GET", "a"])) == "2");
        assert_eq!(info(&mut client, "sync_full"), full, "{}", master.last_lines());
    }
}

/// A master, and a replica that it can reach by a relay only.
fn pair_behind_relay() -> (Server, Server, Relay) {
    let master = edition("durable");
    let replica = edition("durable");
    let relay = Relay::to(replica.address()).unwrap();
    let announced = port(relay.address());
    call(&mut replica.connect().unwrap(), &["CONFIG", "SET", "replica-announce-port", &announced]);
    call(&mut replica.connect().unwrap(), &["REPLICAOF", "127.0.0.1", &port(master.address())]);
    let listed = format!("port={announced},state=online");
    let mut client = master.connect().unwrap();
    wait_until("the link is up", || ask(&mut client, &["INFO", "replication"]).contains(&listed));
    (master, replica, relay)
}

#[test]
fn a_target_that_cannot_be_reached_is_tried_until_the_failover_is_given_up() {
    let (master, replica, relay) = pair_behind_relay();
    let mut client = master.connect().unwrap();
    assert_eq!(call(&mut client, &["SET", "a", "1"]), ok());
    relay.stop(Way::Back);
    assert_eq!(fail_over_to(&mut client, relay.address(), &[]), ok());
    wait_until("it asks", || state(&mut client) == "failover-in-progress" && relay.passed(Way::There) > 0);
    relay.cut();
    wait_until("it asks again", || relay.accepted() > 1);
    assert_eq!(state(&mut client), "failover-in-progress");
    assert!(is_error(&call(&mut client, &["SET", "a", "2"]), "READONLY"));
    assert_eq!(call(&mut client, &["FAILOVER", "ABORT"]), ok());
    assert_eq!((state(&mut client).as_str(), field(&mut client, "role").as_str()), ("no-failover", "master"));
    assert_eq!(call(&mut client, &["SET", "a", "2"]), ok());
    let mut there = replica.connect().unwrap();
    wait_until("the replica goes on", || shown(&call(&mut there, &["GET", "a"])) == "2");
    assert_eq!(info(&mut client, "sync_full"), 1);
}

#[test]
fn a_target_whose_answer_was_lost_is_master_all_the_same() {
    let (master, replica, relay) = pair_behind_relay();
    let (mut client, mut there) = (master.connect().unwrap(), replica.connect().unwrap());
    assert_eq!(call(&mut client, &["SET", "a", "1"]), ok());
    // The answers to PING and to three REPLCONFs at most; that to PSYNC breaks off.
    relay.cut_behind(Way::Back, "+PONG\r\n+OK\r\n+OK\r\n+CONT".len() as u64);
    assert_eq!(fail_over_to(&mut client, relay.address(), &[]), ok());
    wait_until("it asks again", || relay.accepted() > 1);
    assert_eq!(field(&mut there, "role"), "master");
    assert_eq!(state(&mut client), "failover-in-progress");
    relay.mend();
    await_change(&mut client, &mut there);
    assert_eq!(call(&mut there, &["SET", "b", "2"]), ok());
    wait_until("the former master follows", || shown(&call(&mut client, &["GET", "b"])) == "2");
    assert_eq!(info(&mut there, "sync_full"), 0);
}

#[test]
fn who_waits_for_a_key_is_told_that_the_master_changes() {
    let (master, replica) = pair("durable");
    let (mut client, mut waiting) = (master.connect().unwrap(), master.connect().unwrap());
    let mut there = replica.connect().unwrap();
    waiting.send_request(&["BLPOP", "l", "0"]).unwrap();
    wait_until("it waits", || info(&mut client, "blocked_clients") == 1);
    assert_eq!(call(&mut client, &["FAILOVER"]), ok());
    await_change(&mut client, &mut there);
    let told = waiting.read_to_close().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&told),
        "-UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)\r\n"
    );
    assert_eq!(call(&mut there, &["RPUSH", "l", "1"]), Value::Int(1));
    wait_until("it comes", || call(&mut client, &["LLEN", "l"]) == Value::Int(1));
}

#[test]
fn replicas_of_the_former_master_go_on_under_the_next() {
    for name in ["memory", "durable"] {
        let (first, second, third) = (edition(name), edition(name), redis());
        follow(&second, &first);
        follow(&third, &first);
        let (mut former, mut next) = (first.connect().unwrap(), second.connect().unwrap());
        assert_eq!(call(&mut former, &["SET", "a", "1"]), ok());
        assert_eq!(fail_over_to(&mut former, second.address(), &[]), ok());
        await_change(&mut former, &mut next);
        assert_eq!(call(&mut next, &["SET", "b", "2"]), ok());
        follow(&third, &second);
        let mut there = third.connect().unwrap();
        wait_until("it has both", || call(&mut there, &["EXISTS", "a", "b"]) == Value::Int(2));
        assert_eq!((info(&mut next, "sync_full"), info(&mut next, "sync_partial_ok")), (0, 2), "{name}");
    }
}

#[test]
fn what_was_written_before_the_first_replica_came_is_not_passed_over() {
    let (master, successor, other) = (redis(), edition("memory"), redis());
    follow(&successor, &master);
    follow(&other, &master);
    let mut client = successor.connect().unwrap();
    assert_eq!(call(&mut client, &["REPLICAOF", "NO", "ONE"]), ok());
    assert_eq!(call(&mut client, &["SET", "a", "1"]), ok());
    follow(&other, &successor);
    let mut there = other.connect().unwrap();
    assert_eq!(shown(&call(&mut there, &["GET", "a"])), "1");
}

#[test]
fn a_replica_whose_request_is_answered_is_closed() {
    let master = edition("memory");
    let mut client = master.connect().unwrap();
    for (request, is_closed) in [
        (&["PING"][..], true),
        (&["RESET"], true),
        (&["SUBSCRIBE", "c"], true),
        (&["CLIENT", "REPLY", "ON"], true),
        (&["CLIENT", "REPLY", "OFF"], false),
        (&["CLIENT", "REPLY", "SKIP"], false),
        (&["PSYNC", "?", "-1"], false),
        (&["REPLCONF", "ACK", "0"], false),
        (&["NOSUCH"], true),
    ] {
        let mut replica = master.connect().unwrap();
        call(&mut replica, &["REPLCONF", "capa", "psync2"]);
        replica.send_request(&["PSYNC", "?", "-1"]).unwrap();
        wait_until("it is a replica", || info(&mut client, "connected_slaves") == 1);
        let listed = ask(&mut client, &["CLIENT", "LIST", "TYPE", "replica"]);
        assert!(listed.contains("flags=S "), "{listed}");
        assert_eq!(info(&mut client, "connected_clients"), 1);
        replica.send_request(request).unwrap();
        // What is silent lets a PING of the same client be read.
        if !is_closed {
            let before = info(&mut client, "total_commands_processed");
            replica.send_request(&["REPLCONF", "ACK", "1"]).unwrap();
            wait_until("it is read", || info(&mut client, "total_commands_processed") >= before + 2);
            assert_eq!(info(&mut client, "connected_slaves"), 1, "{request:?}");
            drop(replica);
        }
        wait_until("it is gone", || info(&mut client, "connected_slaves") == 0);
    }
}
