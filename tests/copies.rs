//! What a replica shows while a full copy comes, and where that breaks off.

use crate::replicas::follow;
use crate::{info, tarn};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};
use testkit::ask::{accept, ask, call, text, wait_until};
use testkit::relay::Way;
use testkit::{Client, Relay, Server};
use value::rdb::file::{FileValue, FileWriter};
use wire::Value;

fn field(client: &mut Client, name: &str) -> String {
    let all = ask(client, &["INFO", "replication"]);
    let line = all.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_default().to_owned()
}

/// What a replica shows while a copy of another history comes, whatever `repl-diskless-load` says: what it had, also where the copy breaks off. Then
/// the copy takes the place of all, while clients are told LOADING.
#[test]
fn what_was_there_is_served_while_a_copy_comes() {
    for setting in ["disabled", "on-empty-db", "swapdb"] {
        let master =
            Server::start(tarn(), &["--edition", "memory", "--enable-debug-command", "yes"]).unwrap();
        call(&mut master.connect().unwrap(), &["DEBUG", "POPULATE", "3000", "new", "1000"]);
        let relay = Relay::to(master.address()).unwrap();
        let replica =
            Server::start(tarn(), &["--edition", "memory", "--repl-diskless-load", setting]).unwrap();
        let mut client = replica.connect().unwrap();
        call(&mut client, &["SET", "old", "data"]);
        let is_coming = |client: &mut Client| {
            let is_on = info(client, "master_sync_in_progress") == 1;
            is_on && field(client, "master_sync_read_bytes").parse::<u64>().is_ok_and(|bytes| bytes > 0)
        };
        relay.throttle(Way::Back, 200_000);
        call(&mut client, &["REPLICAOF", "127.0.0.1", &relay.address().port().to_string()]);
        for is_last in [false, true] {
            wait_until("a copy comes", || is_coming(&mut client));
            assert_eq!(call(&mut client, &["GET", "old"]), text("data"), "{setting}");
            assert_eq!((info(&mut client, "loading"), info(&mut client, "async_loading")), (0, 0));
            assert!(is_coming(&mut client), "it was asked in time");
            match is_last {
                false => {
                    relay.cut();
                    wait_until("it breaks off", || info(&mut client, "master_sync_in_progress") == 0);
                    assert_eq!(call(&mut client, &["GET", "old"]), text("data"), "{setting}");
                    relay.mend();
                    relay.throttle(Way::Back, 200_000);
                }
                true => relay.mend(),
            }
        }
        let mut was_told = false;
        wait_until("the copy is there", || match call(&mut client, &["GET", "old"]) {
            Value::Error(line) => {
                assert!(line.starts_with(b"LOADING"));
                was_told = true;
                false
            }
            reply => reply == Value::Null,
        });
        assert_eq!(call(&mut client, &["DBSIZE"]), Value::Int(3000));
        println!("{setting}: LOADING was {}seen", if was_told { "" } else { "not " });
    }
}

/// What is loaded as it comes is shown whole or not at all, and breaks off without harm.
#[test]
fn an_empty_server_loads_what_comes_without_a_file() {
    for edition in ["memory", "durable"] {
        let master =
            Server::start(tarn(), &["--edition", "memory", "--enable-debug-command", "yes"]).unwrap();
        let mut first = master.connect().unwrap();
        call(&mut first, &["SELECT", "2"]);
        call(&mut first, &["DEBUG", "POPULATE", "3000", "key", "1000"]);
        call(
            &mut first,
            &[
                "FUNCTION",
                "LOAD",
                "#!lua name=f\nredis.register_function{function_name='g', callback=function() return 7 end, flags={'no-writes'}}",
            ],
        );
        let relay = Relay::to(master.address()).unwrap();
        relay.throttle(Way::Back, 200_000);
        let mut replica = Server::start(tarn(), &["--edition", edition]).unwrap();
        let mut client = replica.connect().unwrap();
        call(&mut client, &["SELECT", "2"]);
        call(&mut client, &["REPLICAOF", "127.0.0.1", &relay.address().port().to_string()]);
        let is_coming = |client: &mut Client| {
            field(client, "master_sync_read_bytes").parse::<u64>().is_ok_and(|bytes| bytes > 100_000)
        };
        wait_until("a copy comes", || is_coming(&mut client));
        assert_eq!(call(&mut client, &["DBSIZE"]), Value::Int(0), "{edition}");
        assert!(!replica.dir().join("temp-sync.rdb.tmp").exists());
        relay.cut();
        wait_until("it breaks off", || info(&mut client, "master_sync_in_progress") == 0);
        assert_eq!(call(&mut client, &["DBSIZE"]), Value::Int(0), "{edition}");
        relay.mend();
        wait_until("the copy is there", || match call(&mut client, &["DBSIZE"]) {
            Value::Int(0) => false,
            keys => {
                assert_eq!(keys, Value::Int(3000), "{edition}");
                true
            }
        });
        assert_eq!(call(&mut client, &["FCALL_RO", "g", "0"]), Value::Int(7), "{edition}");
        call(&mut first, &["SET", "behind", "1"]);
        assert_eq!(call(&mut first, &["WAIT", "1", "100000"]), Value::Int(1));
        if edition == "durable" {
            replica.kill();
            replica.restart().unwrap();
            client = replica.connect().unwrap();
            call(&mut client, &["SELECT", "2"]);
        }
        assert_eq!(call(&mut client, &["DBSIZE"]), Value::Int(3001), "{edition}");
    }
}

/// On a server that takes writes beside its master, who waits for a key is served when a copy brings it, loaded from a file or as it comes.
#[test]
fn who_waits_for_a_key_is_served_by_a_copy_that_brings_it() {
    for (edition, is_empty) in [("memory", true), ("memory", false), ("durable", true), ("durable", false)] {
        let [former, master] =
            [(); 2].map(|()| Server::start(tarn(), &["--edition", "memory"]).expect("it starts"));
        let mut first = master.connect().unwrap();
        call(&mut first, &["RPUSH", "list", "a", "b"]);
        call(&mut first, &["ZADD", "set", "1", "a"]);
        if !is_empty {
            call(&mut former.connect().unwrap(), &["SET", "former", "1"]);
        }
        let relay = Relay::to(former.address()).unwrap();
        let replica = Server::start(tarn(), &["--edition", edition, "--replica-read-only", "no"]).unwrap();
        let mut client = replica.connect().unwrap();
        call(&mut client, &["REPLICAOF", "127.0.0.1", &relay.address().port().to_string()]);
        wait_until("it follows", || field(&mut client, "master_link_status") == "up");
        let requests = [&["BLPOP", "list", "0"][..], &["BZPOPMIN", "set", "0"], &["BLPOP", "none", "0"]];
        let mut waiting: Vec<Client> = requests.map(|_| replica.connect().unwrap()).into();
        waiting.iter_mut().zip(requests).for_each(|(one, request)| one.send_request(request).unwrap());
        wait_until("they wait", || info(&mut client, "blocked_clients") == 3);
        // Behind the same address there is another history.
        relay.cut();
        relay.aim(master.address());
        relay.mend();
        let bulks =
            |words: &[&str]| Value::Array(words.iter().map(|word| Value::Bulk((*word).into())).collect());
        assert_eq!(waiting[0].read_value().unwrap(), bulks(&["list", "a"]), "{edition}, {is_empty}");
        assert_eq!(waiting[1].read_value().unwrap(), bulks(&["set", "a", "1"]), "{edition}, {is_empty}");
        assert_eq!(info(&mut client, "blocked_clients"), 1);
        assert_eq!(call(&mut client, &["LRANGE", "list", "0", "-1"]), bulks(&["b"]));
    }
}

/// Clients write beside the master while its copy is loaded, keys of its names whose time is up meanwhile: nothing of that touches its data, now or after
/// a start.
#[test]
fn what_is_written_beside_a_copy_that_is_loaded_as_it_comes_takes_nothing_of_it_away() {
    const KEYS: u64 = 40_000;
    let master = Server::start(tarn(), &["--edition", "memory", "--enable-debug-command", "yes"]).unwrap();
    let mut first = master.connect().unwrap();
    call(&mut first, &["DEBUG", "POPULATE", &KEYS.to_string(), "key", "100"]);
    let relay = Relay::to(master.address()).unwrap();
    relay.throttle(Way::Back, 4_000_000);
    let mut replica = Server::start(tarn(), &["--edition", "durable", "--replica-read-only", "no"]).unwrap();
    let mut client = replica.connect().unwrap();
    call(&mut client, &["REPLICAOF", "127.0.0.1", &relay.address().port().to_string()]);
    let mut number = 0;
    wait_until("the copy is there", || {
        (0..50).for_each(|_| {
            number += 1;
            let (key, time) = (format!("key:{}", number % 5_000), (1 + number % 40).to_string());
            call(&mut client, &["SET", &key, "beside", "PX", &time]);
        });
        field(&mut client, "master_link_status") == "up"
    });
    assert!(number > 100, "too little was written: {number}");
    // What is written behind it is a client's doing.
    wait_until("its time is up", || ask(&mut client, &["INFO", "keyspace"]).contains("expires=0"));
    let there = call(&mut client, &["DBSIZE"]);
    replica.kill();
    replica.restart().unwrap();
    let mut client = replica.connect().unwrap();
    assert_eq!(call(&mut client, &["DBSIZE"]), there);
}

/// A server that follows makes a copy: it says to its master that it is there, and an order for something else ends the copy.
#[test]
fn who_makes_a_copy_of_what_it_follows_stays_with_its_master_and_obeys() {
    for edition in ["memory", "durable"] {
        let directives = ["--edition", "memory", "--enable-debug-command", "yes"];
        let master = Server::start(tarn(), &directives).unwrap();
        let mut first = master.connect().unwrap();
        call(&mut first, &["DEBUG", "POPULATE", "20000"]);
        let middle = Server::start(tarn(), &["--edition", edition, "--enable-debug-command", "yes"]).unwrap();
        let mut client = middle.connect().unwrap();
        follow(&mut client, &master);
        wait_until("it has a copy", || field(&mut client, "master_link_status") == "up");
        call(&mut client, &["CONFIG", "SET", "rdb-key-save-delay", "20000"]);
        let last = Server::start(tarn(), &["--edition", "memory"]).unwrap();
        follow(&mut last.connect().unwrap(), &middle);
        wait_until("a copy is made", || info(&mut client, "rdb_bgsave_in_progress") == 1);
        // What its master has heard lately, of one that has stood still for a while.
        let lag = |first: &mut Client| {
            let line = field(first, "slave0");
            line.rsplit_once("lag=").map_or(99, |(_, lag)| lag.parse().unwrap_or(99))
        };
        let begun = Instant::now();
        wait_until("it is heard", || begun.elapsed() > Duration::from_secs(3) && lag(&mut first) <= 1);
        assert_eq!((info(&mut client, "rdb_bgsave_in_progress"), info(&mut first, "sync_full")), (1, 1));
        call(&mut first, &["SET", "new", "1"]);
        assert_eq!(call(&mut client, &["REPLICAOF", "NO", "ONE"]), Value::Simple(b"OK".to_vec()));
        assert_eq!(call(&mut client, &["SET", "own", "1"]), Value::Simple(b"OK".to_vec()));
        let why = "this server is to follow its master no more";
        wait_until("it says why there is no copy", || middle.output().contains(why));
    }
}

/// A copy of the history that a replica has already is loaded beside what it has, where `repl-diskless-load` says so: what it had is shown until then, and
/// all of the copy from then on, functions and expiries with it; with a log also behind a crash.
#[test]
fn what_was_there_is_served_until_a_copy_of_the_same_history_is_loaded() {
    for edition in ["memory", "durable"] {
        let master = Server::start(
            tarn(),
            &["--edition", "memory", "--enable-debug-command", "yes", "--repl-backlog-size", "16384"],
        )
        .unwrap();
        let relay = Relay::to(master.address()).unwrap();
        let port = relay.address().port().to_string();
        let args =
            ["--edition", edition, "--repl-diskless-load", "swapdb", "--replicaof", "127.0.0.1", &port];
        let mut replica = Server::start(tarn(), &args).unwrap();
        let (mut above, mut client) = (master.connect().unwrap(), replica.connect().unwrap());
        let library = |reply: &str| {
            format!(
                "#!lua name=lib\nredis.register_function{{function_name='f', callback=function() return '{reply}' end, flags={{'no-writes'}}}}"
            )
        };
        call(&mut above, &["FUNCTION", "LOAD", &library("old")]);
        call(&mut above, &["MSET", "kept", "old", "gone", "old"]);
        call(&mut above, &["WAIT", "1", "0"]);
        wait_until("the first copy is there", || call(&mut client, &["GET", "gone"]) == text("old"));

        let [mut watcher, mut cacher] = [(); 2].map(|()| replica.connect().unwrap());
        call(&mut watcher, &["WATCH", "gone"]);
        call(&mut watcher, &["MULTI"]);
        call(&mut cacher, &["HELLO", "3"]);
        call(&mut cacher, &["CLIENT", "TRACKING", "ON"]);
        call(&mut cacher, &["GET", "gone"]);
        relay.cut();
        wait_until("the link is down", || field(&mut client, "master_link_status") == "down");
        call(&mut above, &["FUNCTION", "LOAD", "REPLACE", &library("new")]);
        call(&mut above, &["DEBUG", "POPULATE", "100000", "more", "20"]);
        call(&mut above, &["SET", "fleeting", &"x".repeat(40_000), "PX", "1"]);
        call(&mut above, &["SET", "kept", "new", "EX", "10000"]);
        call(&mut above, &["DEL", "gone"]);
        call(&mut above, &["SELECT", "3"]);
        call(&mut above, &["SET", "elsewhere", "new"]);
        call(&mut above, &["SELECT", "0"]);
        relay.mend();

        let mut was_beside = 0;
        wait_until("the copy is there", || {
            was_beside += info(&mut client, "async_loading");
            call(&mut client, &["MULTI"]);
            for request in [&["GET", "kept"][..], &["GET", "gone"], &["FCALL_RO", "f", "0"], &["DBSIZE"]] {
                call(&mut client, request);
            }
            let Value::Array(shown) = call(&mut client, &["EXEC"]) else {
                panic!("{edition}: it was refused")
            };
            let is_new = shown[1] == Value::Null;
            let expected = if is_new { "new" } else { "old" };
            assert_eq!([&shown[0], &shown[2]], [&text(expected); 2], "{edition}");
            assert_eq!(shown[3] == Value::Int(2), !is_new, "{edition}: {:?}", shown[3]);
            is_new
        });
        println!("{edition}: async_loading was seen {was_beside} times");
        assert_eq!(call(&mut watcher, &["EXEC"]), Value::NullArray, "{edition}");
        assert!(matches!(cacher.read_value().unwrap(), Value::Push(_)), "{edition}");
        assert_eq!(info(&mut above, "sync_full"), 2, "{edition}");
        let is_whole = |client: &mut Client| {
            call(client, &["SELECT", "3"]);
            let is_elsewhere = call(client, &["GET", "elsewhere"]) == text("new");
            call(client, &["SELECT", "0"]);
            is_elsewhere
                && matches!(call(client, &["TTL", "kept"]), Value::Int(9_000..=10_000))
                && call(client, &["FCALL_RO", "f", "0"]) == text("new")
        };
        assert!(is_whole(&mut client), "{edition}");
        call(&mut above, &["SET", "behind", "it"]);
        wait_until("what came behind it is there", || call(&mut client, &["GET", "behind"]) == text("it"));
        assert_eq!(info(&mut client, "async_loading"), 0);
        if edition == "durable" {
            relay.cut();
            replica.kill();
            replica.restart().unwrap();
            let mut client = replica.connect().unwrap();
            wait_until("it serves again", || call(&mut client, &["GET", "behind"]) == text("it"));
            assert!(is_whole(&mut client));
            assert_eq!(call(&mut client, &["GET", "gone"]), Value::Null);
        }
    }
}

/// A master whose copy goes on and on behind its end: what comes there is kept nowhere, and the copy is taken when its mark has come.
#[test]
fn what_comes_behind_the_end_of_a_copy_is_kept_nowhere() {
    const BEHIND: usize = 64 << 20;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let replica = Server::start(tarn(), &["--edition", "memory"]).unwrap();
    let mut client = replica.connect().unwrap();
    // Where nothing is there it goes to no file.
    call(&mut client, &["SET", "old", "data"]);
    let port = listener.local_addr().unwrap().port().to_string();
    assert_eq!(call(&mut client, &["REPLICAOF", "127.0.0.1", &port]), Value::Simple(b"OK".to_vec()));
    let mut master = accept(&listener);
    let (mark, mut said) = ("m".repeat(40), Vec::new());
    while !said.windows(5).any(|word| word == b"PSYNC") {
        let mut some = [0; 1024];
        let count = master.read(&mut some).unwrap();
        assert!(count > 0, "it goes on with the handshake");
        said.extend_from_slice(&some[..count]);
        let is_first = said.windows(4).any(|word| word == b"PING") && said.len() == count;
        let words = some[..count].split(|byte| *byte == b'*').count() - 1;
        let answer = if is_first { "+PONG\r\n" } else { "+OK\r\n" };
        if !said.windows(5).any(|word| word == b"PSYNC") {
            (0..words).for_each(|_| master.write_all(answer.as_bytes()).unwrap());
        }
    }
    let mut writer = FileWriter::new();
    writer.database(0, 1, 0);
    writer.entry(b"key", FileValue::String(b"value"), None, None);
    let head = format!("+FULLRESYNC {} 0\r\n$EOF:{mark}\r\n", "a".repeat(40));
    master.write_all(&[head.as_bytes(), &writer.finish()].concat()).unwrap();
    let piece = vec![b'x'; 1 << 20];
    (0..BEHIND / piece.len()).for_each(|_| master.write_all(&piece).unwrap());
    wait_until("it has come", || info(&mut client, "master_sync_read_bytes") >= BEHIND as u64);
    let spooled = std::fs::metadata(replica.dir().join("temp-sync.rdb.tmp")).unwrap().len();
    assert!(spooled < BEHIND as u64 / 4, "{spooled} bytes are on disk");
    master.write_all(mark.as_bytes()).unwrap();
    wait_until("the copy is taken", || call(&mut client, &["GET", "key"]) == text("value"));
}

/// Pauses behind copies that could not be taken, in seconds, as the log tells them.
fn pauses(server: &Server) -> Vec<u64> {
    let output = server.output();
    let told = output.lines().filter_map(|line| line.split_once("The master is asked for another copy in "));
    told.map(|(_, rest)| rest.split(' ').next().unwrap().parse().unwrap()).collect()
}

/// A replica with too few databases has its master make copies less and less often, until somebody says something.
#[test]
fn a_copy_that_cannot_be_taken_is_asked_for_less_and_less_often() {
    let master = Server::start(tarn(), &["--edition", "memory"]).unwrap();
    let mut client = master.connect().unwrap();
    call(&mut client, &["SELECT", "5"]);
    call(&mut client, &["SET", "key", "value"]);
    let replica = Server::start(tarn(), &["--edition", "memory", "--databases", "2"]).unwrap();
    let port = master.address().port().to_string();
    let order = ["REPLICAOF", "127.0.0.1", &port];
    call(&mut replica.connect().unwrap(), &order);
    wait_until("it has tried three times", || pauses(&replica).len() >= 3);
    assert_eq!(pauses(&replica)[..3], [1, 2, 4]);
    for words in [&order[..], &["CONFIG", "SET", "repl-timeout", "61"]] {
        let before = pauses(&replica).len();
        call(&mut replica.connect().unwrap(), words);
        wait_until("it has tried at once", || pauses(&replica)[before..].contains(&1));
    }
    call(&mut client, &["FLUSHALL"]);
    call(&mut replica.connect().unwrap(), &order);
    wait_until("it follows", || field(&mut replica.connect().unwrap(), "master_link_status") == "up");
}
