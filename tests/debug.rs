//! DEBUG as test suites use it: digests that are Redis' own, and reloads that lose nothing in any edition.

use crate::tarn;
use testkit::ask::{ask, wait_until};
use testkit::{Client, Program, Server, free_port};
use wire::Value;

const LIBRARY: &str = "#!lua name=mine\nredis.register_function('answer', function() return 42 end)";

/// Requests that make a key of every type, small and large, in two databases.
fn requests() -> Vec<Vec<String>> {
    let lines = "SET text some|SET number 17|SET expiring x PX 100000000|RPUSH list a 1 b|SADD ints 3 1 2|SADD set b a|\
                 ZADD zset 1.5 a 2 b -inf c inf d 1e100 e 0.25 f 3 g|HSET hash f v n 1|XADD stream 1-1 f v|XADD stream 1-2 f v g w|\
                 XADD stream 2-1 other 1|XDEL stream 1-2|XGROUP CREATE stream group 0|SELECT 3|SET elsewhere 1|SELECT 0";
    let mut requests: Vec<Vec<String>> =
        lines.split('|').map(|line| line.split_whitespace().map(str::to_owned).collect()).collect();
    let many = |name: &str, key: &str, item: fn(usize) -> Vec<String>| {
        let words = [name.to_owned(), key.to_owned()].into_iter();
        words.chain((0..300).flat_map(item)).collect::<Vec<String>>()
    };
    requests.push(many("RPUSH", "long", |n| vec![format!("element-{n}")]));
    requests.push(many("SADD", "table", |n| vec![format!("member-{n}")]));
    requests.push(many("ZADD", "tree", |n| vec![format!("{n}.5"), format!("member-{n}")]));
    requests.push(many("HSET", "fields", |n| vec![format!("field-{n}"), format!("{n}")]));
    requests
}

fn fill(client: &mut Client) {
    for request in requests() {
        let reply = client.call(&request).unwrap();
        assert!(!matches!(reply, Value::Error(_)), "{request:?}: {reply:?}");
    }
}

fn start(edition: &str) -> Server {
    Server::start(tarn(), &["--edition", edition, "--enable-debug-command", "yes"]).unwrap()
}

const EDITIONS: [&str; 3] = ["memory", "durable", "capacity"];

#[test]
fn digests_are_those_of_redis_in_every_edition() {
    let keys = [
        "text", "number", "expiring", "list", "ints", "set", "zset", "hash", "stream", "long", "table",
        "tree", "fields", "missing",
    ];
    let digests = |server: &Server| {
        let mut client = server.connect().unwrap();
        fill(&mut client);
        let words: Vec<&str> = ["DEBUG", "DIGEST-VALUE"].into_iter().chain(keys).collect();
        (ask(&mut client, &["DEBUG", "DIGEST"]), client.call(&words).unwrap())
    };
    let of_redis = digests(&Server::start(Program::Redis, &[]).unwrap());
    for edition in EDITIONS {
        assert_eq!(digests(&start(edition)), of_redis, "{edition}");
    }
}

#[test]
fn every_directive_can_be_written_into_the_file() {
    let owner = Server::start(tarn(), &["--edition", "memory"]).unwrap();
    let file = owner.dir().join("every.conf");
    let data = owner.dir().join("data");
    std::fs::write(&file, "enable-debug-command yes\n# mine\nedition memory\n").unwrap();
    let Program::Tarn(program) = tarn() else { panic!("it is Tarn") };
    let mut port = free_port().unwrap();
    let start = |port: u16| {
        let mut command = std::process::Command::new(&program);
        command.arg("server").arg(&file).args(["--port", &port.to_string(), "--dir"]).arg(&data);
        command.stdout(std::process::Stdio::null()).spawn().unwrap()
    };
    let mut former = None;
    // The second time the file has all of them already.
    for _ in 0..2 {
        let mut child = start(port);
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], port));
        wait_until("it is served", || Client::connect_loaded(address).is_ok());
        let mut client = Client::connect(address).unwrap();
        // All but the port.
        let all = ask(&mut client, &["CONFIG", "GET", "[^p]*", "p[^o]*"]);
        assert_eq!(ask(&mut client, &["DEBUG", "CONFIG-REWRITE-FORCE-ALL"]), "OK");
        assert_eq!(former.replace(all.clone()).unwrap_or(all.clone()), all);
        child.kill().unwrap();
        child.wait().unwrap();
        port = free_port().unwrap();
    }
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.starts_with("enable-debug-command yes\n# mine\nedition memory\n"), "{text}");
    for name in ["hz 10", "save \"\"", "oom-score-adj-values 0 200 800", "maxmemory 0"] {
        assert_eq!(text.lines().filter(|line| *line == name).count(), 1, "{name}: {text}");
    }
}

#[test]
fn digests_do_not_depend_on_encodings() {
    let server = start("memory");
    let mut client = server.connect().unwrap();
    fill(&mut client);
    let before = ask(&mut client, &["DEBUG", "DIGEST"]);
    for name in ["hash", "set", "zset"] {
        assert_eq!(ask(&mut client, &["CONFIG", "SET", &format!("{name}-max-listpack-entries"), "0"]), "OK");
    }
    assert_eq!(ask(&mut client, &["CONFIG", "SET", "list-max-listpack-size", "1"]), "OK");
    assert_eq!(ask(&mut client, &["DEBUG", "RELOAD"]), "OK");
    assert_eq!(ask(&mut client, &["OBJECT", "ENCODING", "hash"]), "hashtable");
    assert_eq!(ask(&mut client, &["DEBUG", "DIGEST"]), before);
}

#[test]
fn a_reload_keeps_everything_in_every_edition() {
    for edition in EDITIONS {
        let mut server = start(edition);
        let mut client = server.connect().unwrap();
        fill(&mut client);
        client.call(&["FUNCTION", "LOAD", LIBRARY]).unwrap();
        let before = ask(&mut client, &["DEBUG", "DIGEST"]);
        assert_eq!(ask(&mut client, &["DEBUG", "RELOAD"]), "OK", "{edition}");
        assert_eq!(ask(&mut client, &["DEBUG", "DIGEST"]), before, "{edition}");
        assert_eq!(ask(&mut client, &["FCALL", "answer", "0"]), "Int(42)");
        if edition == "memory" {
            continue;
        }
        assert_eq!(ask(&mut client, &["DEBUG", "LOADAOF"]), "OK", "{edition}");
        assert_eq!(ask(&mut client, &["SET", "behind", "1"]), "OK");
        let after = ask(&mut client, &["DEBUG", "DIGEST"]);
        server.kill();
        server.restart().unwrap();
        let mut client = server.connect().unwrap();
        assert_eq!(ask(&mut client, &["DEBUG", "DIGEST"]), after, "{edition}");
        assert_eq!(ask(&mut client, &["FCALL", "answer", "0"]), "Int(42)");
    }
}

#[test]
fn an_older_file_takes_the_place_of_the_data_and_of_the_log() {
    for edition in ["durable", "capacity"] {
        let mut server = start(edition);
        let mut client = server.connect().unwrap();
        fill(&mut client);
        client.call(&["FUNCTION", "LOAD", LIBRARY]).unwrap();
        assert_eq!(ask(&mut client, &["SAVE"]), "OK");
        let saved = ask(&mut client, &["DEBUG", "DIGEST"]);
        client.call(&["SET", "later", "1"]).unwrap();
        client.call(&["DEL", "text"]).unwrap();
        client.call(&["FUNCTION", "FLUSH"]).unwrap();
        assert_eq!(ask(&mut client, &["DEBUG", "RELOAD", "NOSAVE"]), "OK");
        assert_eq!(ask(&mut client, &["DEBUG", "DIGEST"]), saved, "{edition}");
        assert_eq!(ask(&mut client, &["DEBUG", "LOADAOF"]), "OK");
        server.kill();
        server.restart().unwrap();
        let mut client = server.connect().unwrap();
        assert_eq!(ask(&mut client, &["DEBUG", "DIGEST"]), saved, "{edition}");
        assert_eq!(ask(&mut client, &["FCALL", "answer", "0"]), "Int(42)");
    }
}

#[test]
fn a_log_whose_values_lie_in_the_store_is_compared_where_they_lie() {
    let own = ["--edition", "capacity", "--eager-spill", "yes", "--enable-debug-command", "yes"];
    let server = Server::start(tarn(), &own).unwrap();
    let mut client = server.connect().unwrap();
    fill(&mut client);
    let long = "x".repeat(5_000);
    let write = |client: &mut Client, round: u64| {
        for number in 0..300 {
            client
                .call(&["SET", &format!("long:{}", number % 200), &format!("{round}{number}{long}")])
                .unwrap();
            client.call(&["RPUSH", &format!("list:{number}"), "a", "b", "c"]).unwrap();
        }
    };
    for round in 0..3 {
        write(&mut client, round);
        let in_store = |client: &mut Client| crate::info(client, "store_bytes_live") > 500_000;
        wait_until("values lie in the store", || in_store(&mut client));
        assert_eq!(ask(&mut client, &["DEBUG", "LOADAOF"]), "OK", "{}", server.last_lines());
        if round == 1 {
            assert!(ask(&mut client, &["BGREWRITEAOF"]).ends_with("started"));
            wait_until("it is written", || crate::info(&mut client, "aof_rewrite_in_progress") == 0);
            assert_eq!(ask(&mut client, &["DEBUG", "LOADAOF"]), "OK", "{}", server.last_lines());
        }
    }
}

#[test]
fn a_file_that_does_not_fit_changes_nothing() {
    let server = start("memory");
    let mut client = server.connect().unwrap();
    const REFUSED: &str = "ERR Error trying to load the RDB dump, check server logs.";
    assert_eq!(ask(&mut client, &["DEBUG", "RELOAD", "NOSAVE"]), REFUSED);
    fill(&mut client);
    let before = ask(&mut client, &["DEBUG", "DIGEST"]);
    assert_eq!(ask(&mut client, &["DEBUG", "RELOAD", "NOFLUSH"]), REFUSED);
    assert_eq!(ask(&mut client, &["DEBUG", "RELOAD", "NOFLUSH", "MERGE"]), "OK");
    assert_eq!(ask(&mut client, &["DEBUG", "DIGEST"]), before);
    let path = server.dir().join("dump.rdb");
    let mut bytes = std::fs::read(&path).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    assert_eq!(ask(&mut client, &["DEBUG", "RELOAD", "NOSAVE"]), REFUSED);
    assert_eq!(ask(&mut client, &["DEBUG", "DIGEST"]), before);
    assert_eq!(ask(&mut client, &["DEBUG", "SET-SKIP-CHECKSUM-VALIDATION", "1"]), "OK");
    assert_eq!(ask(&mut client, &["DEBUG", "RELOAD", "NOSAVE"]), "OK");
    assert_eq!(ask(&mut client, &["DEBUG", "DIGEST"]), before);
    assert_eq!(
        ask(&mut client, &["DEBUG", "LOADAOF"]),
        "ERR Error trying to load the AOF files, check server logs."
    );
}

#[test]
fn switches_do_what_they_say() {
    let server = start("memory");
    let mut client = server.connect().unwrap();
    let mut ask = |request: &[&str]| ask(&mut client, request);
    const SLEEP: &str = "return redis.call('debug', 'sleep', '0')";
    assert!(ask(&["EVAL", SLEEP, "0"]).starts_with("ERR This Redis command is not allowed from script"));
    assert_eq!(ask(&["DEBUG", "SET-DISABLE-DENY-SCRIPTS", "1"]), "OK");
    assert_eq!(ask(&["EVAL", SLEEP, "0"]), "OK");
    const RELOAD: &str = "return redis.call('debug', 'reload')";
    assert!(ask(&["EVAL", RELOAD, "0"]).starts_with("ERR This Redis command is not allowed from script"));
    // A text that is long lies in a node of its own, beside others that are not.
    assert_eq!(ask(&["DEBUG", "QUICKLIST-PACKED-THRESHOLD", "5b"]), "OK");
    assert_eq!(ask(&["CONFIG", "SET", "list-max-listpack-size", "2"]), "OK");
    assert_eq!(ask(&["RPUSH", "l", "a", "bb", "longer", "c", "d"]), "Int(5)");
    assert_eq!(ask(&["LSET", "l", "0", "as long"]), "OK");
    assert_eq!(ask(&["DEBUG", "RELOAD"]), "OK");
    assert_eq!(ask(&["LINDEX", "l", "0"]), "as long");
    assert_eq!(
        ask(&["DEBUG", "QUICKLIST-PACKED-THRESHOLD", "5gb"]),
        "ERR argument must be a memory value bigger than 1 and smaller than 4gb"
    );
    // What is over stays, and is still to be seen by who looks closely; SCAN frees it.
    assert_eq!(ask(&["DEBUG", "PAUSE-CRON", "1"]), "OK");
    assert_eq!(ask(&["SET", "over", "1", "PXAT", "1"]), "OK");
    assert_eq!(ask(&["SET", "over", "1", "PX", "1"]), "OK");
    assert_eq!(ask(&["DEBUG", "SLEEP", "0.002"]), "OK");
    assert!(ask(&["DEBUG", "OBJECT", "over"]).starts_with("Value at:"));
    assert_eq!(ask(&["DBSIZE"]), "Int(2)");
    ask(&["SCAN", "0", "COUNT", "100"]);
    assert_eq!(ask(&["DBSIZE"]), "Int(1)");
    assert_eq!(ask(&["DEBUG", "OBJECT", "over"]), "ERR no such key");
    let name = ask(&["INFO", "replication"]);
    assert_eq!(ask(&["DEBUG", "CHANGE-REPL-ID"]), "OK");
    assert_ne!(ask(&["INFO", "replication"]), name);
    for unknown in ["JMAP", "ZIPLIST", "SDSLEN"] {
        let line =
            format!("ERR unknown subcommand or wrong number of arguments for '{unknown}'. Try DEBUG HELP.");
        assert_eq!(ask(&["DEBUG", unknown]), line);
    }
}

#[test]
fn reloads_are_no_part_of_a_transaction_and_wait_for_a_log_that_goes_on() {
    let mut server = start("durable");
    let mut client = server.connect().unwrap();
    let refused = "ERR DEBUG RELOAD and LOADAOF are not for transactions and scripts";
    for action in [&["RELOAD"][..], &["RELOAD", "NOSAVE", "NOFLUSH", "MERGE"], &["LOADAOF"]] {
        let words = [&["DEBUG"], action].concat();
        for request in [&["MULTI"][..], &["SET", "one", "1"], &words, &["SET", "two", "2"]] {
            client.call(request).unwrap();
        }
        let Value::Array(replies) = client.call(&["EXEC"]).unwrap() else { panic!("EXEC answers for each") };
        assert_eq!(replies[1], Value::Error(refused.into()), "{action:?}");
    }
    // What a file does not hold to the last bit stays as it is: it would be another after a crash.
    for number in 0..200 {
        client.call(&["ZADD", "zeros", "1", &number.to_string()]).unwrap();
    }
    client.call(&["ZADD", "zeros", "-0", "one"]).unwrap();
    client.call(&["ZREMRANGEBYSCORE", "zeros", "1", "1"]).unwrap();
    assert_eq!(ask(&mut client, &["ZSCORE", "zeros", "one"]), "-0");
    for _ in 0..2 {
        assert_eq!(ask(&mut client, &["DEBUG", "RELOAD"]), "OK");
        assert_eq!(ask(&mut client, &["ZSCORE", "zeros", "one"]), "-0");
        assert_eq!(ask(&mut client, &["DEBUG", "LOADAOF"]), "OK");
        server.kill();
        server.restart().unwrap();
        client = server.connect().unwrap();
    }
}

#[test]
fn a_file_is_merged_as_a_whole_or_refused() {
    let mut server = Server::start(
        tarn(),
        &["--edition", "durable", "--enable-debug-command", "yes", "--maxmemory", "40mb"],
    )
    .unwrap();
    let mut client = server.connect().unwrap();
    assert_eq!(ask(&mut client, &["DEBUG", "POPULATE", "200000"]), "OK");
    assert_eq!(ask(&mut client, &["SAVE"]), "OK");
    let before = ask(&mut client, &["DEBUG", "DIGEST"]);
    // More than an eighth of the memory in one record.
    let refused = "ERR Error trying to load the RDB dump, check server logs.";
    assert_eq!(ask(&mut client, &["DEBUG", "RELOAD", "NOSAVE"]), refused);
    assert_eq!(ask(&mut client, &["DEBUG", "DIGEST"]), before);
    assert_eq!(ask(&mut client, &["CONFIG", "SET", "maxmemory", "400mb"]), "OK");
    assert_eq!(ask(&mut client, &["DEBUG", "RELOAD", "NOSAVE"]), "OK");
    server.kill();
    server.restart().unwrap();
    assert_eq!(ask(&mut server.connect().unwrap(), &["DEBUG", "DIGEST"]), before);
}
