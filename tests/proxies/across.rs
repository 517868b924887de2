//! What a proxy asks of several servers for one request: the replies are those of one server with all keys.

use super::{Proxied, answers_alike, beside_one, sorted};
use crate::tarn;
use testkit::ask::{ask, call, call_line, is_error, ok, shown, text, wait_until};
use testkit::{Client, Program, Server};
use wire::{Value, key_slot};

/// One step of a SCAN: the cursor to go on with, and the keys.
pub(super) fn scan(client: &mut Client, cursor: &str, options: &[&str]) -> (String, Vec<String>) {
    let reply = call(client, &[&["SCAN", cursor], options].concat());
    let Value::Array(reply) = reply else { panic!("{reply:?}") };
    (shown(&reply[0]), sorted(reply[1].clone()))
}

/// All keys that SCAN lists, each once, in order.
pub(super) fn scan_all(client: &mut Client, options: &[&str]) -> Vec<String> {
    let (mut cursor, mut seen) = ("0".to_owned(), Vec::new());
    loop {
        let (next, keys) = scan(client, &cursor, options);
        seen.extend(keys);
        if next == "0" {
            break;
        }
        cursor = next;
    }
    seen.sort();
    seen.dedup();
    seen
}

#[test]
fn a_small_keyspace_is_listed_with_one_scan() {
    let proxied = Proxied::begin(3, &[]);
    let mut client = proxied.proxy.connect().unwrap();
    let end = |keys: &[&str]| ("0".to_owned(), keys.iter().map(|key| (*key).to_owned()).collect());
    for protocol in ["3", "2"] {
        ask(&mut client, &["HELLO", protocol]);
        assert_eq!(call(&mut client, &["FLUSHALL"]), ok());
        assert_eq!(scan(&mut client, "0", &[]), end(&[]));
        assert_eq!(call(&mut client, &["MSET", "a", "1", "b", "2", "c", "3", "d", "4"]), ok());
        assert_eq!(call(&mut client, &["LPUSH", "l", "x"]), Value::Int(1));
        assert_eq!(scan(&mut client, "0", &[]), end(&["a", "b", "c", "d", "l"]));
        assert_eq!(scan(&mut client, "0", &["MATCH", "[bl]"]), end(&["b", "l"]));
        assert_eq!(scan(&mut client, "0", &["COUNT", "100", "TYPE", "list"]), end(&["l"]));
        for line in ["SCAN x", "SCAN 0 COUNT 0", "SCAN 0 COUNT x", "SCAN 0 MATCH", "SCAN -1 NOSUCH 1"] {
            assert!(is_error(&call_line(&mut client, line), "ERR"), "{line}");
        }
    }
    let names: Vec<String> = (0..500).map(|number| format!("k{number}")).collect();
    for name in &names {
        assert_eq!(call(&mut client, &["SET", name, ""]), ok());
    }
    let (cursor, found) = scan(&mut client, "0", &[]);
    assert!(cursor != "0" && found.len() < 100, "it goes on while too little was found: {}", found.len());
    assert_eq!(scan_all(&mut client, &["COUNT", "7"]).len(), 505);
    assert_eq!(scan_all(&mut client, &["COUNT", "1000", "MATCH", "k*"]).len(), 500);
}

#[test]
fn a_scan_goes_through_any_number_of_servers() {
    let proxied = Proxied::of((&tarn(), &["--edition", "memory", "--threads", "1"]), 16, &[]);
    let mut client = proxied.proxy.connect().unwrap();
    let names: Vec<String> = (0..1_000).map(|number| format!("k{number}")).collect();
    let pairs: Vec<&str> = names.iter().flat_map(|name| [name.as_str(), "v"]).collect();
    assert_eq!(call(&mut client, &[&["MSET"], &pairs[..]].concat()), ok());
    let mut expected = names.clone();
    expected.sort();
    for count in ["1", "10", "300"] {
        assert_eq!(scan_all(&mut client, &["COUNT", count]), expected, "COUNT {count}");
    }
}

/// Requests whose keys are of several servers, some of them wrong.
const COMPUTED: &[&str] = &[
    "SINTER {a}s {b}s",
    "SINTER {a}s {b}s {c}none",
    "SINTER {b}s {a}s {b}s",
    "SUNION {a}s {b}s {c}n",
    "SDIFF {a}s {b}s {a}none",
    "SDIFF {a}none {b}s",
    "SINTER {a}s {b}z",
    "SINTER {a}text {c}list",
    "SINTERCARD 2 {a}s {b}s",
    "SINTERCARD 2 {a}s {b}s LIMIT 1",
    "SINTERCARD 2 {a}s {b}s LIMIT -1",
    "SINTERCARD 2 {a}s {b}s LIMIT x",
    "SINTERCARD 2 {a}s {b}s {c}n",
    "SINTERCARD 3 {a}s {b}s",
    "SINTERCARD 0 {a}s {b}s",
    "SINTERCARD x {a}s {b}s",
    "ZUNION 2 {a}z {b}z",
    "ZUNION 3 {a}z {b}z {c}n WITHSCORES",
    "ZUNION 2 {a}z {b}z WEIGHTS 2 0.5 AGGREGATE MAX WITHSCORES",
    "ZUNION 2 {a}z {b}z WEIGHTS 2",
    "ZUNION 2 {a}z {b}z AGGREGATE MEAN",
    "ZUNION 2 {a}z {b}text",
    "ZINTER 2 {a}z {b}z WITHSCORES",
    "ZINTER 2 {a}z {c}none WITHSCORES",
    "ZDIFF 2 {a}z {b}z WITHSCORES",
    "ZDIFF 9 {a}z {b}z",
    "ZINTERCARD 2 {a}z {b}z",
    "ZINTERCARD 2 {a}z {b}z LIMIT 1",
    "PFCOUNT {a}hll {b}hll",
    "PFCOUNT {a}hll {b}s",
    "PFCOUNT {a}hll {b}text",
    "LCS {a}text {b}text",
    "LCS {a}text {b}text LEN",
    "LCS {a}text {b}text IDX MINMATCHLEN 2 WITHMATCHLEN",
    "LCS {a}text {b}text IDX LEN",
    "LCS {a}text {b}list",
    "LCS {a}none {b}text",
];

/// What they are about.
const FILLED: &[&str] = &[
    "SADD {a}s a b c d",
    "SADD {b}s b c x",
    "SADD {c}n 1 2 3",
    "ZADD {a}z 1 a 2 b 3.5 c",
    "ZADD {b}z 10 b -1 c 7 d",
    "SET {a}text ohmytext",
    "SET {b}text mynewtext",
    "RPUSH {b}list a",
    "RPUSH {c}list a",
    "PFADD {a}hll a b c",
    "PFADD {b}hll c d e f",
    "SET {c}gone x PX 1",
];

/// A reply, as a text; elements of sets are in no order.
fn told(reply: &Value, request: &str) -> String {
    match reply {
        Value::Array(_) if request.starts_with('S') => sorted(reply.clone()).join(" "),
        Value::Set(elements) => sorted(Value::Array(elements.clone())).join(" "),
        reply => format!("{reply:?}"),
    }
}

#[test]
fn what_reads_keys_of_several_servers_is_answered_as_by_one() {
    for program in [Program::Redis, Program::Valkey, tarn()] {
        let proxied = Proxied::of((&program, &[]), 3, &[]);
        let alone = Server::start(program.clone(), &[]).unwrap();
        let (mut many, mut one) = (proxied.proxy.connect().unwrap(), alone.connect().unwrap());
        let mut shards: Vec<u16> = ["a", "b", "c"].map(|tag| key_slot(tag.as_bytes()) / 5_462).into();
        shards.sort_unstable();
        assert_eq!(shards, [0, 1, 2], "each tag is of a server of its own");
        for line in FILLED {
            assert_eq!(call_line(&mut many, line), call_line(&mut one, line), "{line}");
        }
        for protocol in ["3", "2"] {
            for client in [&mut many, &mut one] {
                ask(client, &["HELLO", protocol]);
            }
            for line in COMPUTED {
                let (many, one) = (call_line(&mut many, line), call_line(&mut one, line));
                assert_eq!(told(&many, line), told(&one, line), "{program:?}, RESP{protocol}: {line}");
            }
        }
        wait_until("its time is up", || call_line(&mut one, "EXISTS {c}gone") == Value::Int(0));
        wait_until("its time is up", || call_line(&mut many, "LCS {c}gone {a}text LEN") == Value::Int(0));
        assert_eq!(call_line(&mut many, "DBSIZE"), call_line(&mut one, "DBSIZE"), "no copy is left");
        // A sorted set of all is longer than what lies in front of it in a queue.
        for line in
            ["SINTER {a}s {b}s", "SET {a}s 1", "SINTERCARD 2 {a}s {b}s", "DEL {a}s", "SUNION {a}s {b}s"]
        {
            many.send_request(&line.split(' ').collect::<Vec<_>>()).unwrap();
        }
        let replies: Vec<Value> = (0..5).map(|_| many.read_value().unwrap()).collect();
        assert_eq!(told(&replies[0], "S"), "b c");
        assert_eq!((&replies[1], &replies[3]), (&ok(), &Value::Int(1)));
        assert!(is_error(&replies[2], "WRONGTYPE"), "in their order: {:?}", replies[2]);
        assert_eq!(told(&replies[4], "S"), "b c x");
    }
}

#[test]
fn copies_have_a_limit() {
    let proxied = Proxied::begin(3, &["--proxy-computed-bytes", "100kb"]);
    let mut client = proxied.proxy.connect().unwrap();
    let long = "x".repeat(60_000);
    let (one, two, three) = (proxied.key(0), proxied.key(1), proxied.key(2));
    assert_eq!(call(&mut client, &["MSET", &one, &format!("{long}1"), &two, "2", &three, "3"]), ok());
    assert_eq!(call(&mut client, &["LCS", &two, &three, "LEN"]), Value::Int(0));
    assert_eq!(call(&mut client, &["SADD", "{s}1", "a"]), Value::Int(1));
    assert_eq!(call(&mut client, &["LCS", &one, &two, "LEN"]), Value::Int(0));
    for count in [10_000, 20_000] {
        let members: Vec<String> = (0..count).map(|number| format!("{count}{number}")).collect();
        let words: Vec<&str> = members.iter().map(String::as_str).collect();
        assert_eq!(
            call(&mut client, &[&["SADD", &format!("set:{count}")], &words[..]].concat()),
            Value::Int(count)
        );
    }
    let reply = call(&mut client, &["SINTERCARD", "3", "set:20000", "{s}1", "set:10000"]);
    assert!(
        shown(&reply).starts_with("ERR proxy: 'sintercard' wants more than `proxy-computed-bytes`"),
        "{reply:?}"
    );
    assert_eq!(call_line(&mut client, "CONFIG SET proxy-computed-bytes 64mb"), ok());
    let reply = call(&mut client, &["SINTERCARD", "3", "set:20000", "{s}1", "set:10000"]);
    assert_eq!(reply, Value::Int(0));
}

#[test]
fn what_is_not_to_be_computed_is_refused() {
    let proxied = Proxied::begin(3, &[]);
    let mut client = proxied.proxy.connect().unwrap();
    for line in ["SINTERSTORE {a}d {a}s {b}s", "PFMERGE {a}hll {b}hll", "ZUNIONSTORE {a}d 1 {b}z"] {
        assert!(is_error(&call_line(&mut client, line), "CROSSSLOT"), "{line}");
    }
    assert_eq!(call_line(&mut client, "MULTI"), ok());
    assert_eq!(call_line(&mut client, "SINTER {a}s {a}t"), Value::Simple(b"QUEUED".to_vec()));
    assert!(is_error(&call_line(&mut client, "SINTER {a}s {b}s"), "CROSSSLOT"));
    assert!(is_error(&call_line(&mut client, "EXEC"), "EXECABORT"));
    let many: Vec<String> = (0..20_000).map(|number| format!("k{number}")).collect();
    let words: Vec<&str> = many.iter().map(String::as_str).collect();
    assert!(is_error(&call(&mut client, &[&["SUNION"], &words[..]].concat()), "CROSSSLOT"));
    let reply = call(&mut client, &[&["SUNION"], &words[..16_000]].concat());
    assert_eq!(reply, Value::Array(Vec::new()));
}

/// Whether FUNCTION STATS tells of a script that runs.
fn names_script(stats: &Value) -> bool {
    match stats {
        Value::Array(elements) => matches!(elements[1], Value::Array(_)),
        Value::Map(pairs) => matches!(pairs[0].1, Value::Map(_)),
        _ => false,
    }
}

#[test]
fn a_script_that_does_not_end_is_ended_through_the_proxy() {
    for program in [Program::Redis, tarn()] {
        let proxied = Proxied::of((&program, &["--lua-time-limit", "10"]), 3, &[]);
        let key = proxied.key(1);
        let mut runs = proxied.proxy.connect().unwrap();
        let (mut other, mut shard) = (proxied.proxy.connect().unwrap(), proxied.shards[1].connect().unwrap());
        assert_eq!(call(&mut other, &["SET", &key, "v"]), ok());
        assert!(is_error(&call_line(&mut other, "SCRIPT KILL"), "NOTBUSY"));
        let endless = "while true do redis.call('GET', keys[1]) end";
        let library = format!("#!lua name=l\nredis.register_function('f', function(keys) {endless} end)");
        assert_eq!(call(&mut other, &["FUNCTION", "LOAD", &library]), text("l"));
        let script = format!("local keys = KEYS {endless}");
        for (protocol, is_function) in [("2", false), ("3", false), ("2", true), ("3", true)] {
            ask(&mut other, &["HELLO", protocol]);
            let (run, kill) = if is_function {
                (["FCALL", "f"], "FUNCTION KILL")
            } else {
                (["EVAL", &script], "SCRIPT KILL")
            };
            runs.send_request(&[run[0], run[1], "1", &key]).unwrap();
            wait_until("the script is a slow one", || is_error(&call(&mut shard, &["GET", &key]), "BUSY"));
            if is_function {
                let stats = call_line(&mut other, "FUNCTION STATS");
                assert!(names_script(&stats), "{stats:?}");
            }
            assert_eq!(call_line(&mut other, kill), ok());
            assert!(matches!(runs.read_value().unwrap(), Value::Error(_)));
        }
        assert!(is_error(&call_line(&mut other, "FUNCTION KILL"), "NOTBUSY"));
    }
}

#[test]
fn all_servers_save() {
    let proxied = Proxied::begin(2, &[]);
    let mut client = proxied.proxy.connect().unwrap();
    assert_eq!(call_line(&mut client, "SAVE"), ok());
    let saved = |shard: &Server| match call(&mut shard.connect().unwrap(), &["LASTSAVE"]) {
        Value::Int(moment) => moment,
        other => panic!("{other:?}"),
    };
    let least = proxied.shards.iter().map(saved).min().unwrap();
    assert_eq!(call_line(&mut client, "LASTSAVE"), Value::Int(least));
    assert_eq!(call_line(&mut client, "MEMORY PURGE"), ok());
    assert!(shown(&call_line(&mut client, "BGSAVE")).starts_with("Background saving started"));
    // However long it took: a fork beside other tests may take seconds.
    let is_done = |shard: &Server| {
        let info = ask(&mut shard.connect().unwrap(), &["INFO", "persistence"]);
        info.contains("rdb_bgsave_in_progress:0") && !info.contains("rdb_last_bgsave_time_sec:-1")
    };
    wait_until("each has done it", || proxied.shards.iter().all(is_done));
    assert!(is_error(&call_line(&mut client, "SAVE now"), "ERR"));
}

#[test]
fn what_was_passed_on_is_measured_and_what_was_slow_is_noted_with_its_shard() {
    let proxied = Proxied::begin(2, &["--slowlog-log-slower-than", "10000000", "--latency-tracking", "yes"]);
    let (mut client, key) = (proxied.proxy.connect().unwrap(), proxied.key(1));
    assert_eq!(call(&mut client, &["SET", &key, "v"]), ok());
    assert!(is_error(&call(&mut client, &["LPUSH", &key, "v"]), "WRONGTYPE"));
    let stats = ask(&mut client, &["INFO", "commandstats"]);
    let of = |name: &str| {
        stats.lines().find(|line| line.starts_with(&format!("cmdstat_{name}:"))).unwrap().to_owned()
    };
    assert!(of("set").contains("calls=1,") && !of("set").contains("usec=0,"), "{}", of("set"));
    assert!(of("lpush").contains("failed_calls=1"), "{}", of("lpush"));
    assert!(ask(&mut client, &["INFO", "errorstats"]).contains("errorstat_WRONGTYPE:count=1"));
    assert!(ask(&mut client, &["INFO", "latencystats"]).contains("latency_percentiles_usec_set:"));
    assert_eq!(call_line(&mut client, "SLOWLOG LEN"), Value::Int(0));
    // It takes as long as it takes; what waits for a key takes no time. Others may be slow, too.
    assert_eq!(call_line(&mut client, "CONFIG SET slowlog-log-slower-than 100000"), ok());
    let spins = "local ended = redis.call('TIME') repeat local now = redis.call('TIME') until \
                 (now[1] - ended[1]) * 1000000 + now[2] - ended[2] > 150000 return 1";
    assert_eq!(call(&mut client, &["EVAL", spins, "1", &key]), Value::Int(1));
    assert_eq!(call(&mut client, &["BLPOP", &proxied.key(0), "0.2"]), Value::NullArray);
    let Value::Array(entries) = call_line(&mut client, "SLOWLOG GET") else { panic!() };
    let words_of = |entry: &Value| match entry {
        Value::Array(entry) => match &entry[3] {
            Value::Array(words) => words.iter().map(shown).collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    let mut noted: Vec<Vec<String>> = entries.iter().map(words_of).collect();
    noted.retain(|words| ["EVAL", "BLPOP"].contains(&&words[0][..]));
    let [words] = &noted[..] else { panic!("{noted:?}") };
    assert_eq!((&words[0][..], &words[3][..]), ("EVAL", &key[..]));
    assert_eq!(words[4], format!("(shard {})", proxied.shards[1].address()));
}

#[test]
fn streams_of_several_servers_are_read_as_of_one() {
    let (_proxied, _alone, mut clients, [first, second, third]) = beside_one(Program::Redis);
    let lines = [
        format!("XADD {first} 1-1 f a"),
        format!("XADD {first} 2-1 f b"),
        format!("XADD {third} 1-1 f c"),
        format!("XREAD STREAMS {first} {second} {third} 0 0 0"),
        format!("XREAD COUNT 1 STREAMS {third} {first} {second} 0 0 0"),
        format!("XREAD STREAMS {first} {third} {first} 1-1 1-1 0"),
        format!("XREAD STREAMS {first} {second} {third} $ $ $"),
        format!("XREAD STREAMS {first} {second} 0"),
        format!("XREAD COUNT x STREAMS {first} {second} 0 0"),
        format!("XREAD STREAMS {first} {second} 0 y"),
    ];
    answers_alike(&mut clients, &lines);
}
