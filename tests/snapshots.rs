//! Snapshots over restarts: what was saved is there again, whoever wrote the file, and a snapshot that fails stops writes.

use crate::operators::{files, signal};
use crate::tarn;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use testkit::ask::{ask, call_well, wait_until};
use testkit::generate::words;
use testkit::{Client, Program, Server};
use wire::Value;

const LIBRARY: &str = "#!lua name=mine\nredis.register_function('answer', function() return 42 end)";

/// Requests that make a key of every type.
const KEYS: &[&[&str]] = &[
    &["SET", "string", "text"],
    &["SET", "number", "17"],
    &["SET", "expiring", "x", "PX", "100000000"],
    &["RPUSH", "list", "a", "1", "b"],
    &["SADD", "ints", "1", "2", "3"],
    &["SADD", "set", "a", "b"],
    &["ZADD", "zset", "1.5", "a", "2", "b"],
    &["HSET", "hash", "f", "v", "n", "1"],
    &["XADD", "stream", "1-1", "f", "v"],
    &["XGROUP", "CREATE", "stream", "group", "0"],
    &["XREADGROUP", "GROUP", "group", "c", "STREAMS", "stream", ">"],
    &["PFADD", "hll", "a", "b"],
    &["FUNCTION", "LOAD", LIBRARY],
];

/// Requests that show what is there.
const LOOKS: &[&[&str]] = &[
    &["DBSIZE"],
    &["GET", "string"],
    &["GET", "number"],
    &["GET", "expiring"],
    &["LRANGE", "list", "0", "-1"],
    &["SMEMBERS", "ints"],
    &["SCARD", "set"],
    &["ZRANGE", "zset", "0", "-1", "WITHSCORES"],
    &["HGETALL", "hash"],
    &["XRANGE", "stream", "-", "+"],
    &["XPENDING", "stream", "group"],
    &["PFCOUNT", "hll"],
    &["FCALL", "answer", "0"],
];

fn fill(client: &mut Client) {
    for request in KEYS {
        let reply = client.call(request).unwrap();
        assert!(!matches!(reply, Value::Error(_)), "{request:?}: {reply:?}");
    }
}

fn looks(client: &mut Client) -> Vec<Value> {
    LOOKS.iter().map(|request| client.call(request).unwrap()).collect()
}

fn start(program: Program) -> Server {
    let edition: &[&str] = match program {
        Program::Tarn(_) => &["--edition", "memory", "--save", "3600 1"],
        _ => &["--save", "3600 1"],
    };
    Server::start(program, edition).unwrap()
}

#[test]
fn keys_and_functions_survive_a_restart() {
    let mut server = start(tarn());
    let mut client = server.connect().unwrap();
    fill(&mut client);
    let before = looks(&mut client);
    assert_eq!(ask(&mut client, &["SAVE"]), "OK");
    client.call(&["SET", "after", "1"]).unwrap();
    server.kill();
    server.restart().unwrap();
    assert_eq!(looks(&mut server.connect().unwrap()), before);
}

#[test]
fn files_go_from_redis_to_tarn_and_back() {
    for (from, to) in [(Program::Redis, tarn()), (tarn(), Program::Redis)] {
        let source = start(from);
        let mut client = source.connect().unwrap();
        fill(&mut client);
        let before = looks(&mut client);
        assert_eq!(ask(&mut client, &["SAVE"]), "OK");
        let mut target = start(to);
        target.kill();
        std::fs::copy(source.dir().join("dump.rdb"), target.dir().join("dump.rdb")).unwrap();
        target.restart().unwrap();
        assert_eq!(looks(&mut target.connect().unwrap()), before, "from {}", source.program().name());
    }
}

#[test]
fn writes_stop_after_a_snapshot_that_failed() {
    let server = start(tarn());
    let mut client = server.connect().unwrap();
    let mut ask = |request: &[&str]| ask(&mut client, request);
    assert_eq!(ask(&["SET", "key", "1"]), "OK");
    // A folder of that name, which no file can replace.
    std::fs::create_dir_all(server.dir().join("dump.rdb/in-the-way")).unwrap();
    ask(&["BGSAVE"]);
    let refused = "MISCONF Redis is configured to save RDB snapshots, but it's";
    wait_until("writes are refused", || ask(&["SET", "key", "2"]).starts_with(refused));
    assert!(ask(&["PING"]).starts_with("MISCONF "));
    assert!(ask(&["EVAL", "return redis.call('set', 'key', 1)", "0"]).starts_with("MISCONF "));
    assert!(ask(&["EVAL", "#!lua\nreturn 1", "0"]).starts_with("MISCONF "));
    assert!(["1", "2"].contains(&&*ask(&["GET", "key"])), "reads go on");
    assert_eq!(ask(&["CONFIG", "SET", "stop-writes-on-bgsave-error", "no"]), "OK");
    assert_eq!(ask(&["SET", "key", "3"]), "OK");
    assert_eq!(ask(&["CONFIG", "SET", "stop-writes-on-bgsave-error", "yes"]), "OK");
    assert!(ask(&["SET", "key", "4"]).starts_with("MISCONF "));
    std::fs::remove_dir_all(server.dir().join("dump.rdb")).unwrap();
    assert_eq!(ask(&["SAVE"]), "OK");
    assert_eq!(ask(&["SET", "key", "5"]), "OK");
}

#[test]
fn shutdown_saves_or_not_as_it_was_told() {
    for (word, size) in [("SAVE", "Int(2)"), ("NOSAVE", "Int(1)")] {
        let mut server = start(tarn());
        let mut client = server.connect().unwrap();
        client.call(&["SET", "first", "1"]).unwrap();
        client.call(&["SAVE"]).unwrap();
        client.call(&["SET", "second", "1"]).unwrap();
        // The connection closes without a reply.
        assert!(client.call(&["SHUTDOWN", word]).is_err());
        wait_until("it has ended", || server.ended().unwrap().is_some());
        server.restart().unwrap();
        assert_eq!(ask(&mut server.connect().unwrap(), &["DBSIZE"]), size, "{word}");
    }
}

#[test]
fn a_snapshot_in_the_background_is_given_up_for_a_reload() {
    let (mut server, mut client) = saving_for_long(1000);
    call_well(&mut client, &["SET", "later", "1"]);
    assert_eq!(ask(&mut client, &["DEBUG", "RELOAD"]), "OK");
    assert_eq!(ask(&mut client, &["DBSIZE"]), "Int(1001)");
    assert_eq!(info_field(&mut client, "rdb_bgsave_in_progress"), "0");
    assert_eq!(info_field(&mut client, "rdb_last_bgsave_status"), "ok");
    server.kill();
    server.restart().unwrap();
    assert_eq!(ask(&mut server.connect().unwrap(), &["DBSIZE"]), "Int(1001)");
}

#[test]
fn what_flushall_removed_does_not_come_back_where_there_are_save_points() {
    let alone: &[&[&str]] = &[&["FLUSHALL"]];
    let queued: &[&[&str]] = &[&["MULTI"], &["FLUSHALL"], &["EXEC"]];
    let called: &[&[&str]] = &[&["EVAL", "return redis.call('flushall')", "0"]];
    for requests in [alone, queued, called] {
        for (points, size) in [("3600 1", "Int(0)"), ("", "Int(1)")] {
            let mut server = Server::start(tarn(), &["--edition", "memory", "--save", points]).unwrap();
            let mut client = server.connect().unwrap();
            for request in
                [&["SET", "key", "1"][..], &["SAVE"], &["SET", "other", "1"]].iter().chain(requests)
            {
                client.call(request).unwrap();
            }
            let changes = |client: &mut Client| ask(client, &["INFO", "persistence"]);
            assert_eq!(changes(&mut client).contains("rdb_changes_since_last_save:0\r\n"), size == "Int(0)");
            server.kill();
            server.restart().unwrap();
            assert_eq!(
                ask(&mut server.connect().unwrap(), &["DBSIZE"]),
                size,
                "{requests:?}, save '{points}'"
            );
        }
    }
}

/// A server with some keys, whose snapshot in the background takes as long as nobody else ends it.
fn saving_for_long(keys: usize) -> (Server, Client) {
    let server = Server::start(
        tarn(),
        &[
            "--edition",
            "memory",
            "--save",
            "3600 1",
            "--rdb-key-save-delay",
            "10000000",
            "--threads",
            "2",
            "--threads-min",
            "2",
            "--enable-debug-command",
            "yes",
        ],
    )
    .unwrap();
    let mut client = server.connect().unwrap();
    let set = |key: usize| words(&["SET", &format!("key:{key}"), "value"]);
    client.pipeline(&(0..keys).map(set).collect::<Vec<_>>()).unwrap();
    assert_eq!(ask(&mut client, &["BGSAVE"]), "Background saving started");
    wait_until("it copies", || info_field(&mut client, "current_save_keys_processed") != "0");
    (server, client)
}

fn info_field(client: &mut Client, name: &str) -> String {
    let info = ask(client, &["INFO", "persistence"]);
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap().to_owned()
}

#[test]
fn a_snapshot_in_the_background_is_given_up_for_the_last_one() {
    for request in [&["SHUTDOWN"][..], &["SHUTDOWN", "FORCE"], &["SHUTDOWN", "SAVE", "NOW", "FORCE"], &[]] {
        let (mut server, mut client) = saving_for_long(1000);
        call_well(&mut client, &["SET", "later", "1"]);
        match request {
            [] => signal(server.pid(), "-TERM"),
            request => assert!(client.call(request).is_err(), "{request:?} closes the connection"),
        }
        wait_until("it has ended", || server.ended().unwrap().is_some());
        assert!(server.ended().unwrap().unwrap().success(), "{}", server.output());
        server.await_output(&["The snapshot in the background is given up"]);
        assert_eq!(files(server.dir(), "", ".tmp"), [""; 0].map(Into::<std::path::PathBuf>::into));
        server.restart().unwrap();
        assert_eq!(ask(&mut server.connect().unwrap(), &["DBSIZE"]), "Int(1001)", "{request:?}");
    }
}

#[test]
fn what_flushall_removed_does_not_come_back_with_a_snapshot_that_was_being_written() {
    let (mut server, mut client) = saving_for_long(1000);
    assert_eq!(ask(&mut client, &["FLUSHALL"]), "OK");
    assert_eq!(info_field(&mut client, "rdb_bgsave_in_progress"), "0");
    assert_eq!(info_field(&mut client, "rdb_changes_since_last_save"), "0");
    // The next one begins at once, and what was given up is no failure.
    call_well(&mut client, &["CONFIG", "SET", "rdb-key-save-delay", "0"]);
    call_well(&mut client, &["SET", "after", "1"]);
    assert_eq!(ask(&mut client, &["BGSAVE"]), "Background saving started");
    wait_until("it is written", || info_field(&mut client, "rdb_bgsave_in_progress") == "0");
    assert_eq!(info_field(&mut client, "rdb_last_bgsave_status"), "ok");
    server.kill();
    server.restart().unwrap();
    assert_eq!(ask(&mut server.connect().unwrap(), &["DBSIZE"]), "Int(1)");
}

#[test]
fn a_server_ends_and_saves_whole_files_while_clients_have_snapshots_written() {
    let mut server =
        Server::start(tarn(), &["--edition", "memory", "--save", "3600 1", "--rdbcompression", "no"])
            .unwrap();
    let mut client = server.connect().unwrap();
    for key in ["a", "b", "c", "d"] {
        call_well(&mut client, &["SETRANGE", key, "6000000", "x"]);
    }
    let (acknowledged, snapshots) = (AtomicU64::new(0), AtomicU64::new(0));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ends = testkit::Ends(&is_over);
        let goes_on = || !is_over.load(Ordering::Relaxed);
        let mut clients: Vec<_> = (0..3).map(|_| server.connect().unwrap()).collect();
        let mut writer = clients.pop().unwrap();
        let acknowledged = &acknowledged;
        scope.spawn(move || {
            let mut count = 1;
            while goes_on() && writer.call(&["SET", "count", &count.to_string()]).is_ok() {
                acknowledged.store(count, Ordering::Relaxed);
                count += 1;
            }
        });
        for mut other in clients {
            let snapshots = &snapshots;
            scope.spawn(move || {
                while let Some(Ok(reply)) = goes_on().then(|| other.call(&["BGSAVE"])) {
                    snapshots.fetch_add(u64::from(!matches!(reply, Value::Error(_))), Ordering::Relaxed);
                }
            });
        }
        wait_until("some are written", || snapshots.load(Ordering::Relaxed) > 3);
        signal(server.pid(), "-TERM");
        wait_until("it has ended", || server.ended().unwrap().is_some());
    });
    assert!(server.ended().unwrap().unwrap().success(), "{}", server.output());
    server.restart().unwrap();
    let mut client = server.connect().unwrap();
    assert_eq!(ask(&mut client, &["DBSIZE"]), "Int(5)");
    let count: u64 = ask(&mut client, &["GET", "count"]).parse().unwrap();
    assert!(count >= acknowledged.into_inner(), "{count}");
}

#[test]
fn what_is_left_of_a_snapshot_by_a_kill_goes_with_the_next_start() {
    let (mut server, _) = saving_for_long(10);
    wait_until("its file is there", || files(server.dir(), "dump.rdb.", ".tmp").len() == 1);
    server.kill();
    assert_eq!(files(server.dir(), "dump.rdb", "").len(), 1);
    server.restart().unwrap();
    assert_eq!(files(server.dir(), "dump.rdb", "").len(), 0);
    assert!(!server.output().contains("which is not read"), "{}", server.output());
}

/// A collection of each type, so long that it is taken out of its slot, and what shows that it is of one moment.
fn fill_long(client: &mut Client, elements: usize) {
    for first in (0..elements).step_by(1000) {
        let requests = (first..first + 1000).flat_map(|number| {
            [
                format!("RPUSH list {number}"),
                format!("HSET hash f{number} {number}"),
                format!("SADD set m{number}"),
                format!("ZADD zset {number} m{number}"),
                format!("XADD stream * f {number}"),
            ]
        });
        let requests: Vec<_> = requests.map(|line| words(&line.split(' ').collect::<Vec<_>>())).collect();
        assert!(client.pipeline(&requests).unwrap().iter().all(|reply| !reply.starts_with(b"-")));
    }
}

/// Changes each collection at two places at once.
fn write_pairs(client: &mut Client, number: usize) {
    let lines = [
        "MULTI".to_owned(),
        format!("LPUSH list n{number}"),
        format!("RPUSH list n{number}"),
        format!("HSET hash first {number} last {number}"),
        format!("SADD set n{number}"),
        format!("SREM set n{}", number.wrapping_sub(1)),
        format!("ZADD zset {number} first {number} last"),
        format!("XADD stream * n {number}"),
        format!("XADD stream * n {number}"),
        "EXEC".to_owned(),
    ];
    let requests: Vec<_> = lines.iter().map(|line| words(&line.split(' ').collect::<Vec<_>>())).collect();
    assert!(client.pipeline(&requests).unwrap().iter().all(|reply| !reply.starts_with(b"-")));
}

#[test]
fn long_collections_that_are_written_meanwhile_are_saved_as_of_one_moment() {
    const ELEMENTS: usize = 20_000;
    let directives = ["--edition", "memory", "--save", "3600 1", "--log-piece-size", "1kb"];
    let mut server = Server::start(tarn(), &directives).unwrap();
    let mut client = server.connect().unwrap();
    fill_long(&mut client, ELEMENTS);
    for round in 0..3 {
        write_pairs(&mut client, round * 1_000_000);
        assert_eq!(ask(&mut client, &["BGSAVE"]), "Background saving started");
        let mut number = round * 1_000_000 + 1;
        while number < round * 1_000_000 + 20 || info_field(&mut client, "rdb_bgsave_in_progress") == "1" {
            write_pairs(&mut client, number);
            number += 1;
        }
        assert_eq!(info_field(&mut client, "rdb_last_bgsave_status"), "ok");
        server.kill();
        server.restart().unwrap();
        client = server.connect_loaded().unwrap();
        let first = ask(&mut client, &["HGET", "hash", "first"]);
        assert_eq!(ask(&mut client, &["HGET", "hash", "last"]), first);
        assert_eq!(ask(&mut client, &["LINDEX", "list", "0"]), ask(&mut client, &["LINDEX", "list", "-1"]));
        assert_eq!(
            ask(&mut client, &["ZSCORE", "zset", "first"]),
            ask(&mut client, &["ZSCORE", "zset", "last"])
        );
        let Value::Int(entries) = call_well(&mut client, &["XLEN", "stream"]) else { panic!("a number") };
        assert_eq!(entries % 2, 0);
        let Value::Int(members) = call_well(&mut client, &["SCARD", "set"]) else { panic!("a number") };
        assert_eq!(members as usize, ELEMENTS + 1 + round, "one of each round");
        for request in [&["HLEN", "hash"], &["ZCARD", "zset"]] {
            assert_eq!(call_well(&mut client, request), Value::Int(ELEMENTS as i64 + 2));
        }
    }
}
