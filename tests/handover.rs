//! CONFIG SET `appendonly yes` on a server that others follow without a log: the log takes over the stream. Nobody is copied anew, nothing that
//! was acknowledged is missing in a replica or behind a kill, and offsets go on.

use crate::replicas::{agree, field, follow, follower, master, request, wait_until, write};
use crate::{info, tarn};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;
use sys::Prng;
use testkit::ask::{ask, call, call_well};
use testkit::seed::Budget;
use testkit::{Client, Program, Server};
use wire::Value;

/// Clients that write values of all kinds while the log begins.
const WRITERS: u64 = 2;

/// Variations that are tried by themselves.
const STEPS: u64 = 4;

fn is_up(replica: &Server) {
    let mut there = replica.connect().unwrap();
    wait_until("the link is up", || field(&mut there, "master_link_status").as_deref() == Some("up"));
}

fn begin_log(client: &mut Client) {
    assert_eq!(ask(client, &["CONFIG", "SET", "appendonly", "yes"]), "OK");
}

/// Has each key of a copy take long, or be copied at once.
fn slow_copies(client: &mut Client, are_slow: bool) {
    let delay = if are_slow { "2000" } else { "0" };
    call_well(client, &["CONFIG", "SET", "rdb-key-save-delay", delay]);
}

fn is_complete(client: &mut Client) -> bool {
    let mut is_zero = |name: &str| field(client, name).as_deref() == Some("0");
    is_zero("aof_rewrite_in_progress") && is_zero("aof_rewrite_scheduled")
}

/// Sends a signal to a server's process.
fn signal(server: &Server, signal: &str) {
    let sent = Command::new("kill").args([signal, &server.pid().to_string()]).status().unwrap();
    assert!(sent.success());
}

/// A server with a log in the directory of one that was killed.
fn started_again(killed: &Server, appendfsync: &str, more: &[&str]) -> Server {
    let dir = killed.dir().to_str().unwrap();
    let own = ["--appendonly", "yes", "--appendfsync", appendfsync, "--dir", dir];
    master("memory", &[&own, more].concat())
}

/// Counts, and notes what was acknowledged, until told to stop or the server is gone.
fn count(mut client: Client, acknowledged: &AtomicU64, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        match client.call(&["INCR", "count"]) {
            Ok(Value::Int(count)) => acknowledged.store(count as u64, Ordering::SeqCst),
            Ok(Value::Error(text)) if text.starts_with(b"NOREPLICAS") => {}
            Ok(other) => panic!("{other:?}"),
            Err(_) => return,
        }
    }
}

/// Writes no faster than a follower answers, which a debug build does slowly.
fn write_at_the_pace_of(follower: &Server, server: &Server, is_over: &AtomicBool) {
    let (mut client, mut pacing) = (server.connect().unwrap(), follower.connect().unwrap());
    let mut prng = Prng::from_seed(8);
    while !is_over.load(Ordering::Relaxed) {
        call(&mut client, &request(&mut prng));
        call(&mut pacing, &["PING"]);
    }
}

/// What varies.
#[derive(Debug)]
struct Variation {
    appendfsync: &'static str,
    keys: u64,
    /// Milliseconds between the beginning of the load and the log.
    before_ms: u64,
    after_ms: u64,
    backlog: &'static str,
    /// The link of a replica is cut at about the same time.
    cuts: bool,
    /// There are replicas no more when the log begins, or there are not yet.
    is_alone: bool,
    kills_under_load: bool,
    /// A write is acknowledged when a replica has it.
    is_synced: bool,
}

impl Variation {
    fn of(prng: &mut Prng) -> Variation {
        Variation {
            appendfsync: ["always", "everysec", "no"][prng.below(3) as usize],
            keys: [10, 3000, 40_000][prng.below(3) as usize],
            before_ms: prng.below(400),
            after_ms: prng.below(600),
            backlog: ["1mb", "10mb"][prng.below(2) as usize],
            cuts: prng.one_in(2),
            is_alone: prng.one_in(4),
            kills_under_load: prng.one_in(2),
            is_synced: prng.one_in(2),
        }
    }
}

#[test]
fn a_log_takes_over_the_stream_under_writes() {
    let budget = Budget::from_env(1, STEPS);
    let mut steps = 0;
    while budget.allows(steps) {
        let seed = budget.seed + steps;
        let variation = Variation::of(&mut Prng::from_seed(seed));
        println!("TARN_SEED={seed} {variation:?}");
        take_over(seed, &variation);
        steps += 1;
    }
}

fn take_over(seed: u64, variation: &Variation) {
    let limits = ["--repl-backlog-size", variation.backlog, "--appendfsync", variation.appendfsync];
    let mut server = master("memory", &limits);
    let mut client = server.connect().unwrap();
    call_well(&mut client, &["DEBUG", "POPULATE", &variation.keys.to_string()]);
    let replicas = [follower(Program::Redis), follower(Program::Valkey)];
    for replica in &replicas {
        follow(&mut replica.connect().unwrap(), &server);
        is_up(replica);
    }
    // A Redis does not say what it has on disk.
    let is_synced = variation.is_synced && variation.appendfsync != "always" && !variation.is_alone;
    if is_synced {
        // Nobody is given up because the machine has no time for it.
        call_well(&mut client, &["CONFIG", "SET", "sync-timeout", "60000"]);
        call_well(&mut client, &["CONFIG", "SET", "min-sync-replicas", "1"]);
        wait_until("writes are taken", || field(&mut client, "min_sync_status").as_deref() == Some("ok"));
    }
    let (is_over, acknowledged) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let ends = testkit::Ends(&is_over);
        for number in 0..WRITERS {
            let (server, is_over) = (&server, &is_over);
            scope.spawn(move || write(server, seed * 10 + number, is_over));
        }
        let counting = server.connect().unwrap();
        scope.spawn(|| count(counting, &acknowledged, &is_over));
        // How long is what varies; there is no event to wait for.
        thread::sleep(Duration::from_millis(variation.before_ms));
        if variation.is_alone {
            call_well(&mut client, &["CLIENT", "KILL", "TYPE", "replica"]);
        }
        begin_log(&mut client);
        call_well(&mut client, &["SET", "behind", "1"]);
        if variation.cuts {
            call_well(&mut client, &["CLIENT", "KILL", "TYPE", "replica"]);
        }
        thread::sleep(Duration::from_millis(variation.after_ms));
        wait_until("the log is complete", || is_complete(&mut client));
        drop(ends);
    });
    if is_synced {
        // Once when it was asked for, and while links were cut.
        let told = "Writes are refused until";
        let refusals = server.await_output(&[told]).matches(told).count();
        assert!(refusals == 1 || variation.cuts, "{}", server.last_lines());
        call_well(&mut client, &["CONFIG", "SET", "min-sync-replicas", "0"]);
    }
    replicas.iter().for_each(|replica| agree(&server, replica));
    assert_eq!(info(&mut client, "sync_full"), 2, "{}", server.last_lines());
    assert_eq!(call(&mut client, &["WAIT", "2", "100000"]), Value::Int(2));
    for replica in &replicas {
        assert_eq!(ask(&mut replica.connect().unwrap(), &["GET", "behind"]), "1");
    }
    let counting = server.connect().unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _ends = testkit::Ends(&is_over);
        if variation.kills_under_load && variation.appendfsync == "always" {
            scope.spawn(|| count(counting, &acknowledged, &is_over));
            thread::sleep(Duration::from_millis(variation.before_ms));
        }
        call_well(&mut client, &["SET", "last", "1"]);
        assert!(ask(&mut client, &["WAITAOF", "1", "0", "100000"]).starts_with("Array([Int(1), "));
        let offset = info(&mut client, "master_repl_offset");
        let digest = ask(&mut client, &["DEBUG", "DIGEST"]);
        server.kill();
        let again = started_again(&server, variation.appendfsync, &[]);
        let mut client = again.connect_loaded().unwrap();
        assert!(info(&mut client, "master_repl_offset") >= offset, "{}", again.last_lines());
        let counted: u64 = ask(&mut client, &["GET", "count"]).parse().unwrap();
        assert!(counted >= acknowledged.load(Ordering::SeqCst), "{counted}");
        if !variation.kills_under_load {
            assert_eq!(ask(&mut client, &["DEBUG", "DIGEST"]), digest);
        }
        call_well(&mut client, &["SET", "again", "1"]);
        for replica in &replicas {
            follow(&mut replica.connect().unwrap(), &again);
            agree(&again, replica);
        }
        if variation.appendfsync == "always" {
            let full = info(&mut client, "sync_full");
            assert_eq!((full, info(&mut client, "sync_partial_ok")), (0, 2), "{}", again.last_lines());
        }
    });
}

/// The worker that begins the log has gathered before it, and so may others have: their replicas wait for what is told by nobody else then.
#[test]
fn what_had_gathered_for_replicas_comes_to_them_when_a_log_begins() {
    let quiet = ["--edition", "memory", "--repl-rdb-version", "10", "--repl-ping-replica-period", "3600"];
    let server = Server::start(tarn(), &quiet).unwrap();
    let mut client = server.connect().unwrap();
    let replica = follower(Program::Redis);
    let mut there = replica.connect().unwrap();
    follow(&mut there, &server);
    is_up(&replica);
    let offset = |client: &mut Client, name: &str| field(client, name).unwrap().parse::<u64>().unwrap();
    wait_until("the replica has read all there is", || {
        offset(&mut there, "slave_repl_offset") == offset(&mut client, "master_repl_offset")
    });
    let replies = client
        .pipeline(&[vec!["SET", "gathered", "1"], vec!["CONFIG", "SET", "appendonly", "yes"]])
        .expect("it is answered");
    assert!(replies.iter().all(|reply| reply == b"+OK\r\n"), "{replies:?}");
    wait_until("the replica has it", || ask(&mut there, &["GET", "gathered"]) == "1");
}

#[test]
fn a_copy_that_is_being_made_goes_on_when_a_log_begins() {
    let mut server = master("memory", &["--appendfsync", "always"]);
    let mut client = server.connect().unwrap();
    call_well(&mut client, &["DEBUG", "POPULATE", "200000"]);
    slow_copies(&mut client, true);
    let replica = follower(Program::Redis);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _ends = testkit::Ends(&is_over);
        scope.spawn(|| write(&server, 3, &is_over));
        follow(&mut replica.connect().unwrap(), &server);
        wait_until("a copy is made", || server.output().contains("Starting a full copy"));
        begin_log(&mut client);
        assert!(!server.output().contains("Synchronization with replica"), "it was too fast");
        slow_copies(&mut client, false);
        is_up(&replica);
    });
    agree(&server, &replica);
    assert_eq!(info(&mut client, "sync_full"), 1, "{}", server.last_lines());
    wait_until("the log is complete", || is_complete(&mut client));
    // The note that a copy was not passed goes with the next acknowledgement.
    let note = server.dir().join("replica-copies-unfinished");
    wait_until("the copy is passed", || !note.exists());
    server.kill();
    let again = started_again(&server, "always", &[]);
    follow(&mut replica.connect().unwrap(), &again);
    agree(&again, &replica);
    assert_eq!(info(&mut again.connect().unwrap(), "sync_full"), 0, "{}", again.last_lines());
}

#[test]
fn a_copy_that_was_not_passed_when_the_server_was_killed_is_not_gone_on_with() {
    let mut server = master("memory", &["--appendfsync", "always"]);
    let mut client = server.connect().unwrap();
    call_well(&mut client, &["DEBUG", "POPULATE", "100000"]);
    slow_copies(&mut client, true);
    let replica = follower(Program::Redis);
    follow(&mut replica.connect().unwrap(), &server);
    wait_until("a copy is made", || server.output().contains("Starting a full copy"));
    call_well(&mut client, &["SET", "during", "1"]);
    call_well(&mut client, &["CLIENT", "KILL", "TYPE", "replica"]);
    slow_copies(&mut client, false);
    call_well(&mut replica.connect().unwrap(), &["REPLICAOF", "NO", "ONE"]);
    let id = field(&mut client, "master_replid").unwrap();
    let end = info(&mut client, "master_repl_offset");
    begin_log(&mut client);
    assert_eq!(field(&mut client, "master_replid").unwrap(), id);
    wait_until("the log is complete", || is_complete(&mut client));
    assert!(server.dir().join("replica-copies-unfinished").exists());
    server.kill();
    let again = started_again(&server, "always", &[]);
    let mut client = again.connect().unwrap();
    assert_eq!(field(&mut client, "master_replid").unwrap(), id);
    // Who stands within the copy gets another one, whoever it is.
    let last = info(&mut client, "master_repl_offset");
    for (offset, answer) in [(end - 1, "FULLRESYNC"), (last, "CONTINUE")] {
        let mut replica = again.connect().unwrap();
        call_well(&mut replica, &["REPLCONF", "capa", "eof", "capa", "psync2"]);
        let reply = ask(&mut replica, &["PSYNC", &id, &(offset + 1).to_string()]);
        assert!(reply.starts_with(answer), "{offset}: {reply}");
    }
}

#[test]
fn a_replica_that_is_far_behind_gets_from_memory_what_no_segment_has() {
    let server = master("memory", &["--repl-backlog-size", "16kb"]);
    let mut client = server.connect().unwrap();
    let replica = follower(Program::Redis);
    follow(&mut replica.connect().unwrap(), &server);
    agree(&server, &replica);
    signal(&replica, "-STOP");
    let value = "v".repeat(100_000);
    for number in 0..400 {
        call_well(&mut client, &["SET", &format!("k{}", number % 7), &value]);
        if number == 300 {
            begin_log(&mut client);
        }
    }
    // Whoever looks after replicas does it once a second, and is to drop nothing of theirs.
    let pings = info(&mut client, "master_repl_offset");
    wait_until("some time has passed", || info(&mut client, "master_repl_offset") > pings + 14);
    call_well(&mut client, &["SET", "last", &value]);
    signal(&replica, "-CONT");
    agree(&server, &replica);
    assert_eq!(info(&mut client, "sync_full"), 1, "{}", server.last_lines());
    let mut held = || info(&mut client, "mem_total_replication_buffers") < (2 << 20);
    wait_until("nothing of it is kept in memory any more", &mut held);
}

#[test]
fn a_follower_without_a_log_gets_one_and_its_masters_stream_goes_on_in_it() {
    for program in [Program::Redis, tarn()] {
        let first = match program {
            Program::Redis => Server::start(Program::Redis, &["--repl-ping-replica-period", "1"]).unwrap(),
            _ => master("memory", &[]),
        };
        let mut middle = master("memory", &["--appendfsync", "always"]);
        let last = follower(Program::Redis);
        let is_over = AtomicBool::new(false);
        let mut here = middle.connect().unwrap();
        thread::scope(|scope| {
            let _ends = testkit::Ends(&is_over);
            scope.spawn(|| write_at_the_pace_of(&middle, &first, &is_over));
            follow(&mut middle.connect().unwrap(), &first);
            is_up(&middle);
            follow(&mut last.connect().unwrap(), &middle);
            is_up(&last);
            begin_log(&mut here);
            wait_until("the log is complete", || is_complete(&mut here));
        });
        for (one, other) in [(&first, &middle), (&middle, &last), (&first, &last)] {
            agree(one, other);
        }
        let mut client = first.connect().unwrap();
        assert_eq!((info(&mut client, "sync_full"), info(&mut here, "sync_full")), (1, 1));
        let name = |client: &mut Client| field(client, "master_replid");
        assert_eq!(name(&mut client), name(&mut here));
        // Killed, it knows where it was, and so does who follows it.
        middle.kill();
        call_well(&mut client, &["SET", "meanwhile", "1"]);
        let master = format!("127.0.0.1 {}", first.address().port());
        let again = started_again(&middle, "always", &["--replicaof", &master]);
        follow(&mut last.connect().unwrap(), &again);
        agree(&first, &again);
        agree(&first, &last);
        assert_eq!(info(&mut client, "sync_full"), 1, "{}", again.last_lines());
        // And becomes a master whose stream is its own.
        let mut here = again.connect().unwrap();
        call_well(&mut here, &["REPLICAOF", "NO", "ONE"]);
        call_well(&mut here, &["SET", "own", "1"]);
        agree(&again, &last);
    }
}

#[test]
fn a_follower_that_nobody_follows_gets_a_log_and_goes_on() {
    let first = Server::start(Program::Redis, &["--repl-ping-replica-period", "1"]).unwrap();
    let middle = master("memory", &["--appendfsync", "always"]);
    let is_over = AtomicBool::new(false);
    let mut here = middle.connect().unwrap();
    thread::scope(|scope| {
        let _ends = testkit::Ends(&is_over);
        scope.spawn(|| write_at_the_pace_of(&middle, &first, &is_over));
        follow(&mut middle.connect().unwrap(), &first);
        is_up(&middle);
        begin_log(&mut here);
        wait_until("the log is complete", || is_complete(&mut here));
        call_well(&mut first.connect().unwrap(), &["CLIENT", "KILL", "TYPE", "replica"]);
    });
    agree(&first, &middle);
    assert_eq!(info(&mut first.connect().unwrap(), "sync_full"), 1, "{}", middle.last_lines());
}

#[test]
fn a_stream_that_nobody_has_followed_of_late_is_not_gone_on_with() {
    let server = master("memory", &["--repl-backlog-ttl", "1"]);
    let mut client = server.connect().unwrap();
    let replica = follower(Program::Redis);
    follow(&mut replica.connect().unwrap(), &server);
    agree(&server, &replica);
    signal(&replica, "-STOP");
    call_well(&mut client, &["CLIENT", "KILL", "TYPE", "replica"]);
    wait_until("the stream is forgotten", || info(&mut client, "repl_backlog_active") == 0);
    call_well(&mut client, &["SET", "in no stream", "1"]);
    begin_log(&mut client);
    signal(&replica, "-CONT");
    call_well(&mut client, &["SET", "in the log", "1"]);
    agree(&server, &replica);
    assert_eq!(info(&mut client, "sync_full"), 2, "{}", server.last_lines());
}

#[test]
fn a_refusal_to_begin_a_log_leaves_the_stream_as_it_was() {
    let server = master("memory", &["--appendfsync", "always"]);
    let mut client = server.connect().unwrap();
    let replica = follower(Program::Redis);
    follow(&mut replica.connect().unwrap(), &server);
    agree(&server, &replica);
    // A log that this server does not have its data from.
    let foreign = server.dir().join(format!("log-{:020}-{:08}.segment", 0, 1));
    std::fs::write(&foreign, "").unwrap();
    assert!(ask(&mut client, &["CONFIG", "SET", "appendonly", "yes"]).contains("holds a log"));
    std::fs::remove_file(&foreign).unwrap();
    call_well(&mut client, &["SET", "a", "1"]);
    agree(&server, &replica);
    begin_log(&mut client);
    call_well(&mut client, &["INCR", "b"]);
    agree(&server, &replica);
    assert_eq!(info(&mut client, "sync_full"), 1, "{}", server.last_lines());
}

#[test]
fn a_log_ends_and_begins_again_under_writes() {
    for appendfsync in ["always", "everysec"] {
        end_and_begin_again(appendfsync);
    }
}

fn end_and_begin_again(appendfsync: &str) {
    let mut server = master("memory", &["--appendonly", "yes", "--appendfsync", appendfsync]);
    let mut client = server.connect().unwrap();
    call_well(&mut client, &["DEBUG", "POPULATE", "3000"]);
    let replicas = [follower(Program::Redis), follower(Program::Valkey)];
    for replica in &replicas {
        follow(&mut replica.connect().unwrap(), &server);
        is_up(replica);
    }
    let id = field(&mut client, "master_replid");
    let (is_over, acknowledged) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let ends = testkit::Ends(&is_over);
        for number in 0..WRITERS {
            let (server, is_over) = (&server, &is_over);
            scope.spawn(move || write(server, number, is_over));
        }
        let counting = server.connect().unwrap();
        scope.spawn(|| count(counting, &acknowledged, &is_over));
        // The second time while the first checkpoint is being written.
        for waits in [true, false, true] {
            let before = acknowledged.load(Ordering::SeqCst);
            assert_eq!(ask(&mut client, &["CONFIG", "SET", "appendonly", "no"]), "OK");
            assert_eq!(info(&mut client, "aof_enabled"), 0);
            wait_until("writes go on", || acknowledged.load(Ordering::SeqCst) > before + 20);
            begin_log(&mut client);
            assert_eq!(info(&mut client, "aof_enabled"), 1);
            if waits {
                wait_until("the log is complete", || is_complete(&mut client));
            }
        }
        drop(ends);
    });
    replicas.iter().for_each(|replica| agree(&server, replica));
    assert_eq!(info(&mut client, "sync_full"), 2, "{}", server.last_lines());
    assert_eq!(field(&mut client, "master_replid"), id);
    call_well(&mut client, &["SET", "last", "1"]);
    assert!(ask(&mut client, &["WAITAOF", "1", "0", "100000"]).starts_with("Array([Int(1), "));
    let digest = ask(&mut client, &["DEBUG", "DIGEST"]);
    server.kill();
    let again = started_again(&server, appendfsync, &[]);
    let mut client = again.connect_loaded().unwrap();
    let counted: u64 = ask(&mut client, &["GET", "count"]).parse().unwrap();
    assert!(counted >= acknowledged.load(Ordering::SeqCst), "{counted}");
    assert_eq!(ask(&mut client, &["DEBUG", "DIGEST"]), digest);
}

#[test]
fn behind_a_kill_a_log_that_ended_is_what_it_was_then() {
    let mut server = master("memory", &["--appendonly", "yes", "--appendfsync", "always"]);
    let (mut client, mut waiting) = (server.connect().unwrap(), server.connect().unwrap());
    call_well(&mut client, &["SET", "before", "1"]);
    let waiter = thread::spawn(move || ask(&mut waiting, &["WAITAOF", "1", "1", "0"]));
    wait_until("it waits", || info(&mut client, "blocked_clients") == 1);
    assert_eq!(ask(&mut client, &["CONFIG", "SET", "appendonly", "no"]), "OK");
    assert!(waiter.join().unwrap().contains("WAITAOF cannot be used when numlocal is set"));
    assert!(ask(&mut client, &["WAITAOF", "1", "0", "0"]).contains("WAITAOF cannot be used"));
    call_well(&mut client, &["SET", "after", "1"]);
    server.kill();
    let mut again = started_again(&server, "always", &[]);
    let mut client = again.connect_loaded().unwrap();
    assert_eq!(call(&mut client, &["EXISTS", "before", "after"]), Value::Int(1));
    // A rewrite has what there is, and the log is as it was then.
    assert_eq!(ask(&mut client, &["CONFIG", "SET", "appendonly", "no"]), "OK");
    call_well(&mut client, &["SET", "meanwhile", "1"]);
    assert!(ask(&mut client, &["BGREWRITEAOF"]).ends_with("started"));
    wait_until("it is written", || is_complete(&mut client));
    assert_eq!(ask(&mut client, &["DEBUG", "LOADAOF"]), "OK");
    assert_eq!(info(&mut client, "aof_enabled"), 0);
    wait_until("it rests", || again.output().matches("The log in").count() == 3);
    call_well(&mut client, &["DEL", "meanwhile"]);
    again.kill();
    let mut again = started_again(&server, "always", &[]);
    let mut client = again.connect_loaded().unwrap();
    assert_eq!(call(&mut client, &["EXISTS", "before", "meanwhile"]), Value::Int(2));
    // Once more in a transaction, and what comes is in it.
    call_well(&mut client, &["MULTI"]);
    for value in ["no", "yes"] {
        assert_eq!(ask(&mut client, &["CONFIG", "SET", "appendonly", value]), "QUEUED");
    }
    call_well(&mut client, &["EXEC"]);
    wait_until("the log is complete", || is_complete(&mut client));
    call_well(&mut client, &["SET", "after", "1"]);
    again.kill();
    let mut once_more = started_again(&server, "always", &[]);
    let mut client = once_more.connect_loaded().unwrap();
    assert_eq!(call(&mut client, &["EXISTS", "before", "after"]), Value::Int(2));
    // Without a log nothing of it is read.
    once_more.kill();
    let without = master("memory", &["--appendonly", "no", "--dir", server.dir().to_str().unwrap()]);
    assert_eq!(call(&mut without.connect_loaded().unwrap(), &["DBSIZE"]), Value::Int(0));
}

#[test]
fn an_edition_that_is_nothing_without_its_log_keeps_it() {
    for edition in ["durable", "capacity"] {
        let server = master(edition, &[]);
        let mut client = server.connect().unwrap();
        let answer = ask(&mut client, &["CONFIG", "SET", "appendonly", "no"]);
        assert!(answer.contains("this edition has every write on disk before its reply"), "{answer}");
        assert_eq!(info(&mut client, "aof_enabled"), 1);
    }
}
