//! Servers change parts: who was a master follows, who followed becomes one, and what clients do meanwhile.

use crate::{info, tarn};
use testkit::ask::{ask, call, ok, text, wait_until};
use testkit::{Client, Program, Server};
use wire::Value;

fn tarn_of(edition: &str) -> Server {
    let own = ["--edition", edition, "--enable-debug-command", "yes", "--repl-ping-replica-period", "3600"];
    Server::start(tarn(), &own).expect("it starts")
}

fn says(client: &mut Client, line: &str) -> bool {
    ask(client, &["INFO", "replication"]).contains(line)
}

/// Has one follow another, and waits until it has all.
fn follow(replica: &Server, master: &Server) {
    let (mut there, mut here) = (replica.connect().unwrap(), master.connect().unwrap());
    call(&mut there, &["REPLICAOF", "127.0.0.1", &master.address().port().to_string()]);
    wait_until("the link is up", || says(&mut there, "master_link_status:up"));
    wait_until("the offsets agree", || {
        info(&mut here, "master_repl_offset") == info(&mut there, "slave_repl_offset")
    });
}

fn promote(server: &Server) {
    assert_eq!(call(&mut server.connect().unwrap(), &["REPLICAOF", "NO", "ONE"]), ok());
}

fn full_copies(server: &Server) -> u64 {
    info(&mut server.connect().unwrap(), "sync_full")
}

#[test]
fn no_copy_is_needed_where_parts_are_changed() {
    for edition in ["memory", "durable"] {
        let (first, second, third) = (tarn_of(edition), tarn_of(edition), tarn_of(edition));
        let mut client = first.connect().unwrap();
        follow(&second, &first);
        follow(&third, &first);
        call(&mut client, &["SET", "a", "1"]);
        assert_eq!(call(&mut client, &["WAIT", "2", "100000"]), Value::Int(2));
        // From one replica of a master to another.
        follow(&third, &second);
        assert_eq!((full_copies(&first), full_copies(&second)), (2, 0), "{edition}");
        // The former master follows the new one.
        promote(&second);
        follow(&first, &second);
        let mut client = second.connect().unwrap();
        call(&mut client, &["SET", "b", "2"]);
        assert_eq!(call(&mut client, &["WAIT", "2", "100000"]), Value::Int(2), "{edition}");
        assert_eq!(full_copies(&second), 0, "{edition}: {}", second.last_lines());
        assert_eq!(call(&mut first.connect().unwrap(), &["GET", "b"]), text("2"));
    }
}

/// Between which offsets a copy was made for a run that left nothing else is nothing to the stream that begins then.
#[test]
fn a_copy_that_is_gone_keeps_nobody_from_going_on() {
    let (mut master, replica) = (tarn_of("memory"), tarn_of("memory"));
    master.kill();
    std::fs::write(master.dir().join("copy-whole-from"), "0 1000000\n").unwrap();
    master.restart().unwrap();
    let mut client = master.connect().unwrap();
    follow(&replica, &master);
    call(&mut client, &["CLIENT", "KILL", "TYPE", "replica"]);
    call(&mut client, &["SET", "behind", "1"]);
    assert_eq!(call(&mut client, &["WAIT", "1", "100000"]), Value::Int(1));
    assert_eq!(full_copies(&master), 1, "{}", master.last_lines());
}

/// Between which offsets copies were given is nothing to another stream that comes by the same numbers.
#[test]
fn copies_in_one_stream_keep_nobody_from_going_on_with_another() {
    let [master, middle, given, last] = [(); 4].map(|()| tarn_of("memory"));
    let mut client = middle.connect().unwrap();
    for number in 0..100 {
        call(&mut client, &["SET", &format!("key:{number}"), "v"]);
    }
    assert_eq!(call(&mut client, &["CONFIG", "SET", "rdb-key-save-delay", "20000"]), ok());
    call(&mut given.connect().unwrap(), &["REPLICAOF", "127.0.0.1", &middle.address().port().to_string()]);
    wait_until("a copy is made", || info(&mut client, "rdb_bgsave_in_progress") == 1);
    call(&mut client, &["SET", "during", &"x".repeat(100_000)]);
    assert_eq!(call(&mut client, &["CONFIG", "SET", "rdb-key-save-delay", "0"]), ok());
    follow(&given, &middle);
    promote(&given);

    follow(&middle, &master);
    follow(&last, &master);
    let mut above = master.connect().unwrap();
    call(&mut above, &["SET", "other", &"x".repeat(10_000)]);
    assert_eq!(call(&mut above, &["WAIT", "2", "100000"]), Value::Int(2));
    follow(&last, &middle);
    assert_eq!(full_copies(&middle), 1, "{}", middle.last_lines());
}

#[test]
fn a_new_master_says_which_database_it_writes_to() {
    let (first, second, third) = (tarn_of("memory"), tarn_of("memory"), tarn_of("memory"));
    let mut client = first.connect().unwrap();
    follow(&third, &first);
    call(&mut client, &["SELECT", "9"]);
    call(&mut client, &["SET", "mine", "1"]);
    follow(&first, &second);
    let mut other = second.connect().unwrap();
    call(&mut other, &["SELECT", "3"]);
    call(&mut other, &["SET", "its", "1"]);
    follow(&first, &second);
    follow(&third, &first);
    promote(&first);
    call(&mut client, &["SET", "again", "1"]);
    follow(&third, &first);
    let mut there = third.connect().unwrap();
    call(&mut there, &["SELECT", "9"]);
    assert_eq!(call(&mut there, &["GET", "again"]), text("1"));
}

/// A master says its database once; who was promoted in between, or started without it, has not heard it since.
#[test]
fn who_follows_again_knows_its_masters_database() {
    for edition in ["memory", "durable", "capacity"] {
        let (master, mut replica) = (tarn_of(edition), tarn_of(edition));
        let mut client = master.connect().unwrap();
        call(&mut client, &["SELECT", "3"]);
        follow(&replica, &master);
        call(&mut client, &["SET", "a", "1"]);
        assert_eq!(call(&mut client, &["WAIT", "1", "100000"]), Value::Int(1));
        promote(&replica);
        follow(&replica, &master);
        call(&mut client, &["SET", "b", "1"]);
        assert_eq!(call(&mut client, &["WAIT", "1", "100000"]), Value::Int(1));
        promote(&replica);
        if edition != "memory" {
            replica.kill();
            replica.restart().unwrap();
        }
        follow(&replica, &master);
        call(&mut client, &["SET", "c", "1"]);
        assert_eq!(call(&mut client, &["WAIT", "1", "100000"]), Value::Int(1));
        let mut there = replica.connect().unwrap();
        call(&mut there, &["SELECT", "3"]);
        assert_eq!(call(&mut there, &["DBSIZE"]), Value::Int(3), "{edition}");
        // Without a log nobody knows that nothing was written under the other name.
        let copies = if edition == "memory" { 3 } else { 1 };
        assert_eq!(full_copies(&master), copies, "{edition}: {}", replica.last_lines());
    }
}

#[test]
fn what_is_written_beside_a_master_is_in_no_stream_and_goes_when_its_time_is_up() {
    for edition in ["memory", "durable"] {
        let (master, middle, last) = (tarn_of(edition), tarn_of(edition), tarn_of(edition));
        follow(&middle, &master);
        follow(&last, &middle);
        let mut between = middle.connect().unwrap();
        call(&mut between, &["CONFIG", "SET", "replica-read-only", "no"]);
        assert_eq!(call(&mut between, &["SET", "own", "1"]), ok());
        assert_eq!(call(&mut between, &["SET", "short", "1", "PX", "2000"]), ok());
        assert_eq!(info(&mut between, "slave_expires_tracked_keys"), 1);
        call(&mut master.connect().unwrap(), &["SET", "theirs", "1"]);
        wait_until("it is through", || call(&mut last.connect().unwrap(), &["GET", "theirs"]) == text("1"));
        assert_eq!(call(&mut last.connect().unwrap(), &["DBSIZE"]), Value::Int(1), "{edition}");
        assert_eq!(full_copies(&middle), 1, "{edition}: {}", middle.last_lines());
        wait_until("its time is up", || call(&mut between, &["DBSIZE"]) == Value::Int(2));
        assert_eq!(info(&mut between, "slave_expires_tracked_keys"), 0);
    }
}

#[test]
fn who_waits_on_a_server_that_begins_to_follow_is_sent_away() {
    let (master, server) = (tarn_of("memory"), tarn_of("memory"));
    let requests =
        [&["BLPOP", "k", "0"][..], &["WAIT", "1", "0"], &["XREAD", "BLOCK", "0", "STREAMS", "s", "$"]];
    let mut waiting: Vec<Client> = requests.map(|_| server.connect().unwrap()).into();
    waiting.iter_mut().zip(requests).for_each(|(client, request)| client.send_request(request).unwrap());
    let mut client = server.connect().unwrap();
    wait_until("they wait", || info(&mut client, "blocked_clients") == 3);
    follow(&server, &master);
    for mut client in waiting {
        let answer = String::from_utf8(client.read_to_close().unwrap()).unwrap();
        assert!(answer.starts_with("-UNBLOCKED force unblock from blocking operation, "), "{answer}");
    }
    call(&mut master.connect().unwrap(), &["RPUSH", "k", "a"]);
    wait_until("it is here", || call(&mut client, &["LLEN", "k"]) == Value::Int(1));
}

/// A link to a master that is followed is listed as a client, with the fields that Redis tells of its own, and ended as one.
#[test]
fn a_link_to_a_master_is_listed_and_ended_as_a_client_is() {
    let (master, replica) = (Server::start(Program::Redis, &[]).unwrap(), tarn_of("memory"));
    let mut client = replica.connect().unwrap();
    assert_eq!(ask(&mut client, &["CLIENT", "LIST", "TYPE", "master"]), "");
    follow(&replica, &master);
    let mut here = master.connect().unwrap();
    let address = format!("127.0.0.1:{}", master.address().port());
    let listed = ask(&mut client, &["CLIENT", "LIST", "TYPE", "master"]);
    let id = listed.strip_prefix("id=").and_then(|rest| rest.split(' ').next()).expect(&listed).to_owned();
    for part in [format!(" addr={address} laddr=127.0.0.1:"), " flags=M db=0 ".to_owned()] {
        assert!(listed.contains(&part), "{listed}");
    }
    assert!(listed.contains(" user=(superuser) ") && listed.lines().count() == 1, "{listed}");
    assert_eq!(ask(&mut client, &["CLIENT", "LIST", "ID", &id]), listed);
    assert_eq!(ask(&mut client, &["CLIENT", "LIST"]).matches(" flags=M ").count(), 1);
    assert_eq!(ask(&mut client, &["CLIENT", "LIST", "TYPE", "normal"]).lines().count(), 1);
    let requests = [
        &["CLIENT", "KILL", "TYPE", "master"][..],
        &["CLIENT", "KILL", &address],
        &["CLIENT", "KILL", "ADDR", &address],
    ];
    for (times, request) in (1..).zip(requests) {
        let done = if request.len() == 3 { ok() } else { Value::Int(1) };
        assert_eq!(call(&mut client, request), done);
        wait_until("it is back", || info(&mut here, "sync_partial_ok") == times);
        wait_until("the link is up", || says(&mut client, "master_link_status:up"));
    }
    assert_eq!(call(&mut client, &["CLIENT", "KILL", "TYPE", "replica"]), Value::Int(0));
    let listed = ask(&mut client, &["CLIENT", "LIST", "TYPE", "master"]);
    let now = listed.strip_prefix("id=").and_then(|rest| rest.split(' ').next()).expect(&listed);
    assert_ne!(now, id);
    assert_eq!(call(&mut client, &["CLIENT", "KILL", "ID", &id]), Value::Int(0));
    assert_eq!(call(&mut client, &["CLIENT", "KILL", "ID", now]), Value::Int(1));
    wait_until("it is back", || info(&mut here, "sync_partial_ok") == 4);
    assert_eq!(info(&mut here, "sync_full"), 1);
}

#[test]
fn counting_leaves_what_the_master_has_not_ended() {
    let (master, replica) = (tarn_of("memory"), tarn_of("memory"));
    let mut here = master.connect().unwrap();
    call(&mut here, &["DEBUG", "SET-ACTIVE-EXPIRE", "0"]);
    follow(&replica, &master);
    call(&mut here, &["PFADD", "k", "a", "b"]);
    call(&mut here, &["PEXPIRE", "k", "1"]);
    let mut there = replica.connect().unwrap();
    wait_until("it is here, and over", || {
        call(&mut there, &["DBSIZE"]) == Value::Int(1) && call(&mut there, &["EXISTS", "k"]) == Value::Int(0)
    });
    assert_eq!(call(&mut there, &["PFCOUNT", "k"]), Value::Int(0));
    assert_eq!(call(&mut there, &["DBSIZE"]), Value::Int(1));
    // What a master sends is counted as what clients send.
    assert!(ask(&mut there, &["INFO", "commandstats"]).contains("cmdstat_pexpireat:calls=1,"));
}

#[test]
fn who_asks_for_a_reply_is_no_replica() {
    let master = tarn_of("memory");
    for (request, name) in [(&["PING"][..], "ping"), (&["XINFO", "HELP"], "xinfo|help")] {
        let mut client = master.connect().unwrap();
        client.send_request(&["SYNC"]).unwrap();
        client.send_request(request).unwrap();
        client.read_to_close().unwrap();
        let line = format!("Replica generated a reply to command '{name}', disconnecting it: ");
        wait_until("it is said", || master.output().contains(&line));
    }
    let mut client = master.connect().unwrap();
    assert!(ask(&mut client, &["PSYNC", "?", "here"]).contains("value is not an integer"));
    wait_until("it is said", || master.output().contains("asks for synchronization but with a wrong offset"));
}

#[test]
fn scripts_show_no_more_of_old_data_than_commands_do() {
    let server = tarn_of("memory");
    let mut client = server.connect().unwrap();
    call(&mut client, &["SET", "x", "1"]);
    call(&mut client, &["CONFIG", "SET", "replica-serve-stale-data", "no"]);
    // Nobody is there.
    call(&mut client, &["REPLICAOF", "127.0.0.1", "1"]);
    let cases = [
        ("return redis.call('get','x')", "MASTERDOWN Link with MASTER is down and "),
        ("#!lua flags=no-writes\nreturn 1", "MASTERDOWN Link with MASTER is down and "),
        ("#!lua flags=allow-stale,no-writes\nreturn redis.call('get','x')", "on a stale replica"),
        ("#!lua flags=allow-stale,no-writes\nreturn redis.call('echo','shown')", "shown"),
    ];
    for (script, answer) in cases {
        let said = ask(&mut client, &["EVAL", script, "1", "x"]);
        assert!(said.contains(answer), "{script}: {said}");
    }
}

#[test]
fn what_is_published_on_a_master_reaches_who_listens_on_its_replicas() {
    for edition in ["memory", "durable"] {
        let (master, middle) = (tarn_of(edition), tarn_of("memory"));
        let last = Server::start(Program::Redis, &[]).unwrap();
        call(&mut middle.connect().unwrap(), &["CONFIG", "SET", "repl-rdb-version", "10"]);
        follow(&middle, &master);
        follow(&last, &middle);
        let mut listening = [&middle, &last].map(|server| server.connect().unwrap());
        for listener in &mut listening {
            call(listener, &["SUBSCRIBE", "news"]);
        }
        let mut client = master.connect().unwrap();
        call(&mut client, &["SELECT", "2"]);
        call(&mut client, &["SET", "a", "1"]);
        assert_eq!(call(&mut client, &["PUBLISH", "news", "told"]), Value::Int(0));
        call(&mut client, &["SET", "b", "1"]);
        let message = Value::Array(["message", "news", "told"].map(text).into());
        for listener in &mut listening {
            assert_eq!(listener.read_value().unwrap(), message, "{edition}");
        }
        assert_eq!(call(&mut client, &["WAIT", "1", "100000"]), Value::Int(1));
        wait_until("it is through", || {
            let mut there = last.connect().unwrap();
            call(&mut there, &["SELECT", "2"]);
            call(&mut there, &["DBSIZE"]) == Value::Int(2)
        });
    }
}
