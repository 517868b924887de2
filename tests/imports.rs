//! `tarn import` and `tarn export` with files of a real Redis: what it had is what another Redis finds in Tarn's file.

use crate::operators::{shown_by, text};
use crate::tarn;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::SystemTime;
use testkit::ask::{call_well, wait_until};
use testkit::generate::{Generator, Request, words};
use testkit::{Client, Program, Server, spec};
use wire::Value;

const LIBRARY: &str = "#!lua name=mine\nredis.register_function('put', function(k, a) return redis.call('SET', k[1], a[1]) end)";

/// Requests that make a key of every type, in several databases.
const KEYS: &[&[&str]] = &[
    &["SET", "string", "text"],
    &["SET", "expiring", "x", "EX", "100000"],
    &["HSET", "hash", "f", "v", "n", "1"],
    &["HINCRBYFLOAT", "hash", "n", "1.5"],
    &["SADD", "set", "a", "b", "c", "d", "e"],
    &["SPOP", "set", "2"],
    &["ZADD", "zset", "1.5", "a", "2", "b"],
    &["XADD", "stream", "*", "f", "v"],
    &["XADD", "stream", "*", "f", "w"],
    &["XGROUP", "CREATE", "stream", "group", "0"],
    &["XREADGROUP", "GROUP", "group", "c", "COUNT", "1", "STREAMS", "stream", ">"],
    &["PFADD", "hll", "a", "b"],
    &["FUNCTION", "LOAD", LIBRARY],
    &["FCALL", "put", "1", "by-function", "x"],
    &["EVAL", "redis.call('INCR', KEYS[1]); return redis.call('EXPIRE', KEYS[1], 9999)", "1", "by-script"],
    &["PUBLISH", "channel", "message"],
    &["MULTI"],
    &["SET", "in-transaction", "1"],
    &["SELECT", "3"],
    &["RPUSH", "list", "a", "1", "b"],
    &["EXEC"],
    &["SWAPDB", "3", "4"],
    &["SET", "third", "1"],
];

pub fn redis(directives: &[&str]) -> Server {
    Server::start(Program::Redis, &[&["--appendonly", "yes", "--appendfsync", "always"], directives].concat())
        .unwrap()
}

pub fn fill(client: &mut Client) {
    KEYS.iter().for_each(|request| drop(call_well(client, request)));
}

pub fn rewrite(client: &mut Client) {
    call_well(client, &["BGREWRITEAOF"]);
    wait_until("it is written", || {
        let Value::Bulk(figures) = call_well(client, &["INFO", "persistence"]) else {
            panic!("INFO gives a text")
        };
        String::from_utf8_lossy(&figures).contains("aof_rewrite_in_progress:0")
    });
}

/// All that a Redis holds: keys, what they hold, when they expire, groups of streams, and functions.
fn contents(server: &Server) -> Vec<String> {
    let mut client = server.connect().unwrap();
    let mut found = vec![show(&call_well(&mut client, &["FUNCTION", "LIST", "WITHCODE"]))];
    for db in 0..16 {
        call_well(&mut client, &["SELECT", &db.to_string()]);
        let Value::Array(keys) = call_well(&mut client, &["KEYS", "*"]) else { panic!("KEYS gives a list") };
        let mut keys: Vec<Vec<u8>> = keys
            .into_iter()
            .map(|key| if let Value::Bulk(key) = key { key } else { panic!("{key:?}") })
            .collect();
        keys.sort();
        for key in keys {
            let mut ask = |words: &[&str]| {
                let mut request: Request = words.iter().map(|word| word.as_bytes().to_vec()).collect();
                request.push(key.clone());
                client.call(&request).unwrap()
            };
            let digest = ask(&["DEBUG", "DIGEST-VALUE"]);
            let expiry = ask(&["PEXPIRETIME"]);
            let stream = match ask(&["TYPE"]) {
                Value::Simple(name) if name == b"stream" => {
                    client.call(&[b"XINFO", &b"STREAM"[..], &key, b"FULL"]).map(without_moments).unwrap()
                }
                other => other,
            };
            found.push(format!(
                "{db} {}: {} {} {}",
                key.escape_ascii(),
                show(&digest),
                show(&expiry),
                show(&stream)
            ));
        }
    }
    found
}

fn show(value: &Value) -> String {
    match value {
        Value::Bulk(text) | Value::Simple(text) => text.escape_ascii().to_string(),
        Value::Array(values) => format!("[{}]", values.iter().map(show).collect::<Vec<_>>().join(" ")),
        other => format!("{other:?}"),
    }
}

/// Fails with what is in one of them only.
fn assert_same(found: &[String], expected: &[String], what: &str) {
    let differs = |one: &[String], other: &[String]| -> Vec<String> {
        one.iter().filter(|line| !other.contains(line)).cloned().collect()
    };
    let (extra, missing) = (differs(found, expected), differs(expected, found));
    assert!(extra.is_empty() && missing.is_empty(), "{what}:\nfound:    {extra:#?}\nexpected: {missing:#?}");
}

/// The reply without when a consumer was last seen, which is the moment of loading, and how a radix tree looks.
fn without_moments(value: Value) -> Value {
    let Value::Array(values) = value else { return value };
    let mut kept = Vec::new();
    let mut values = values.into_iter();
    while let Some(value) = values.next() {
        let is_left_out = matches!(&value, Value::Bulk(name)
            if [&b"seen-time"[..], b"radix-tree-keys", b"radix-tree-nodes"].contains(&&name[..]));
        match is_left_out {
            true => drop(values.next()),
            false => kept.push(without_moments(value)),
        }
    }
    Value::Array(kept)
}

/// Runs a role with words.
pub fn run(role: &str, words: &[&str]) -> Output {
    let Program::Tarn(path) = tarn() else { unreachable!("the program under test is Tarn") };
    testkit::process::bounded(path).arg(role).args(words).output().unwrap()
}

/// What a failing run says: one sentence.
pub fn complaint(role: &str, words: &[&str]) -> String {
    let output = run(role, words);
    assert_eq!(output.status.code(), Some(1), "{role} {words:?}");
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    text.trim().to_owned()
}

/// A fresh Redis without data, stopped: its directory can be filled.
pub fn empty_redis() -> Server {
    let mut server = Server::start(Program::Redis, &[]).unwrap();
    server.kill();
    server
}

/// What a Redis finds in what Tarn makes of `from`.
fn carried_over(from: &Path) -> Vec<String> {
    let mut target = empty_redis();
    let dir = target.dir().join("tarn");
    shown_by("import", &[text(from), "--dir", text(&dir)]);
    shown_by("export", &["--dir", text(&dir), "--to", text(&target.dir().join("dump.rdb"))]);
    target.restart().unwrap();
    contents(&target)
}

pub fn append_only_dir(server: &Server) -> PathBuf {
    server.dir().join("appendonlydir")
}

/// The newest increment of a server.
pub fn increment(server: &Server) -> PathBuf {
    let names = std::fs::read_dir(append_only_dir(server)).unwrap().map(|entry| entry.unwrap().path());
    names.filter(|path| text(path).ends_with(".incr.aof")).max().unwrap()
}

#[test]
fn append_only_directories_of_a_redis_come_over() {
    let variants: &[&[&str]] =
        &[&[], &["--aof-timestamp-enabled", "yes"], &["--aof-use-rdb-preamble", "no", "--databases", "16"]];
    for directives in variants {
        for rewrites in [false, true] {
            let mut source = redis(directives);
            let mut client = source.connect().unwrap();
            fill(&mut client);
            if rewrites {
                rewrite(&mut client);
                call_well(&mut client, &["SELECT", "5"]);
                call_well(&mut client, &["RPUSH", "behind", "the", "base"]);
                call_well(&mut client, &["DEL", "third"]);
            }
            // Some of what it knows of groups is not in its log either.
            source.restart().unwrap();
            let before = contents(&source);
            source.kill();
            for from in [source.dir().to_owned(), append_only_dir(&source)] {
                assert_same(&carried_over(&from), &before, &format!("{directives:?} {rewrites}"));
            }
        }
    }
}

#[test]
fn generated_commands_come_over() {
    let mut source = redis(&[]);
    let mut client = source.connect().unwrap();
    let specs: Vec<_> = spec::data_specs()
        .into_iter()
        .filter(|spec| {
            !spec.name.starts_with("flush") && !spec.name.starts_with("bl") && !spec.name.starts_with("bz")
        })
        .collect();
    let mut generator = Generator::new(&specs, 7);
    let requests: Vec<Request> = (0..6_000)
        .map(|_| generator.request())
        .filter(|request| !request.iter().any(|word| word.eq_ignore_ascii_case(b"block")))
        .filter(|request| !request[0].to_ascii_lowercase().starts_with(b"br"))
        .collect();
    for (index, some) in requests.chunks(1_000).enumerate() {
        client.pipeline(&[words(&["SELECT", &(index % 3).to_string()])]).unwrap();
        client.pipeline(some).unwrap();
        if index == 2 {
            rewrite(&mut client);
        }
    }
    let before = contents(&source);
    assert!(before.len() > 10, "{before:?}");
    source.kill();
    assert_same(&carried_over(source.dir()), &before, "generated");
}

#[test]
fn single_files_of_older_versions_come_over() {
    for preamble in ["yes", "no"] {
        let mut source = redis(&["--aof-use-rdb-preamble", preamble]);
        let mut client = source.connect().unwrap();
        fill(&mut client);
        rewrite(&mut client);
        call_well(&mut client, &["SET", "last", "1"]);
        let before = contents(&source);
        source.kill();
        // As they were up to Redis 6: the requests stand behind the base.
        let bases = std::fs::read_dir(append_only_dir(&source)).unwrap().map(|entry| entry.unwrap().path());
        let base = bases.filter(|path| text(path).contains(".base.")).max().unwrap();
        let whole = [std::fs::read(base).unwrap(), std::fs::read(increment(&source)).unwrap()].concat();
        let mut older = empty_redis();
        let file = older.dir().join("appendonly.aof");
        std::fs::write(&file, whole).unwrap();
        assert_same(&carried_over(&file), &before, preamble);
        assert_same(&carried_over(older.dir()), &before, preamble);
        older.kill();
    }
}

#[test]
fn keys_whose_time_came_while_nobody_ran_do_not_come_back() {
    let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis();
    // A moment that comes after the last of it is written, however slow the machine is.
    let (mut margin, mut soon, mut source) = (750, 0, redis(&[]));
    while now() >= soon {
        (margin, source) = (2 * margin, redis(&[]));
        let mut client = source.connect().unwrap();
        soon = now() + margin;
        call_well(&mut client, &["CONFIG", "SET", "auto-aof-rewrite-percentage", "0"]);
        call_well(&mut client, &["SET", "stays", "1"]);
        call_well(&mut client, &["SET", "base", "1", "PXAT", &soon.to_string()]);
        rewrite(&mut client);
        call_well(&mut client, &["SET", "goes", "1", "PXAT", &soon.to_string()]);
        call_well(&mut client, &["APPEND", "goes", "2"]);
        call_well(&mut client, &["APPEND", "base", "2"]);
    }
    source.kill();
    wait_until("their time is up", || now() > soon);
    let found = carried_over(source.dir());
    assert!(found.len() == 2 && found[1].starts_with("0 stays:"), "{found:?}");
}

#[test]
fn an_end_in_the_middle_of_something_is_left_out_or_refused() {
    let mut source = redis(&[]);
    let mut client = source.connect().unwrap();
    call_well(&mut client, &["SET", "whole", "1"]);
    let before = contents(&source);
    call_well(&mut client, &["MULTI"]);
    call_well(&mut client, &["SET", "whole", "2"]);
    call_well(&mut client, &["SET", "another", "3"]);
    call_well(&mut client, &["EXEC"]);
    source.kill();
    let path = increment(&source);
    let content = std::fs::read(&path).unwrap();
    let multi = content.windows(5).position(|bytes| bytes == b"MULTI").unwrap() - "*1\r\n$5\r\n".len();
    for len in [content.len() - 1, content.len() - 14, content.len() - 20, multi + 15, multi + 3] {
        std::fs::write(&path, &content[..len]).unwrap();
        assert_same(&carried_over(source.dir()), &before, &len.to_string());
        let target = source.dir().join("refused");
        let words = [text(source.dir()), "--dir", text(&target), "--aof-load-truncated", "no"];
        let refused = complaint("import", &words);
        assert!(refused.contains("Unexpected end of file reading the append only file"), "{refused}");
        assert!(refused.contains(&format!("whole up to offset {multi};")), "{refused}");
    }
}

#[test]
fn damage_and_missing_files_are_refused_with_their_place() {
    let mut source = redis(&["--auto-aof-rewrite-percentage", "0"]);
    let mut client = source.connect().unwrap();
    call_well(&mut client, &["SET", "a", "1"]);
    call_well(&mut client, &["SET", "b", "1"]);
    source.kill();
    let target = source.dir().join("target");
    let refused = || complaint("import", &[text(source.dir()), "--dir", text(&target)]);
    let path = increment(&source);
    let content = std::fs::read(&path).unwrap();
    let mut damaged = content.clone();
    damaged[23] = b'?';
    std::fs::write(&path, &damaged).unwrap();
    let sentence = refused();
    assert!(sentence.contains("Bad file format reading the append only file"), "{sentence}");
    assert!(sentence.contains(&format!("{}: it is damaged at offset 23;", path.display())), "{sentence}");
    let unknown = [&content[..], b"*2\r\n$8\r\nJSON.SET\r\n$1\r\nx\r\n"].concat();
    std::fs::write(&path, &unknown).unwrap();
    let sentence = refused();
    assert!(
        sentence.contains(&format!("offset {}: unknown command 'JSON.SET'", content.len())),
        "{sentence}"
    );
    let far = [&content[..], b"*2\r\n$6\r\nSELECT\r\n$2\r\n20\r\n"].concat();
    std::fs::write(&path, &far).unwrap();
    assert!(refused().ends_with("'select' was answered with 'ERR DB index is out of range'"));
    std::fs::remove_file(&path).unwrap();
    assert!(refused().contains("which is not there"));
    std::fs::write(append_only_dir(&source).join("appendonly.aof.manifest"), "file x\n").unwrap();
    assert!(refused().ends_with("line 1: Invalid AOF manifest file format"));
    assert!(!target.exists(), "nothing was written");
}

#[test]
fn only_the_last_file_may_be_cut_off() {
    let mut source = redis(&[]);
    let mut client = source.connect().unwrap();
    call_well(&mut client, &["SET", "a", "1"]);
    source.kill();
    let path = increment(&source);
    let content = std::fs::read(&path).unwrap();
    std::fs::write(&path, &content[..content.len() - 1]).unwrap();
    std::fs::write(append_only_dir(&source).join("appendonly.aof.2.incr.aof"), &content).unwrap();
    let manifest = append_only_dir(&source).join("appendonly.aof.manifest");
    let lines = std::fs::read_to_string(&manifest).unwrap() + "file appendonly.aof.2.incr.aof seq 2 type i\n";
    std::fs::write(&manifest, lines).unwrap();
    let refused = complaint("import", &[text(source.dir()), "--dir", text(&source.dir().join("target"))]);
    assert!(refused.contains("is not the last file"), "{refused}");
}

#[test]
fn nothing_is_overwritten_without_being_told_to() {
    let source = Server::start(Program::Redis, &[]).unwrap();
    let mut client = source.connect().unwrap();
    call_well(&mut client, &["SET", "a", "1"]);
    call_well(&mut client, &["SAVE"]);
    let dump = source.dir().join("dump.rdb");
    let refused = complaint("import", &[text(&dump), "--dir", text(source.dir())]);
    assert!(refused.contains("dump.rdb is there already"), "{refused}");
    let dir = source.dir().join("tarn");
    let told = shown_by("import", &[text(&dump), "--dir", text(&dir)]);
    assert!(told.starts_with(&format!("Loaded the RDB file {}: 1 keys", dump.display())), "{told}");
    assert!(told.ends_with(&format!("Wrote 1 keys to {}\n", dir.join("dump.rdb").display())), "{told}");
    let to = source.dir().join("out.rdb");
    let words = ["--dir", text(&dir), "--to", text(&to)];
    shown_by("export", &words);
    assert!(complaint("export", &words).contains("out.rdb is there already: --force replaces it"));
    shown_by("export", &[&words[..], &["--force"]].concat());
    let empty = source.dir().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let refused = complaint("export", &["--dir", text(&empty), "--to", text(&source.dir().join("x.rdb"))]);
    assert!(refused.ends_with("holds no data"), "{refused}");
    let refused = complaint("import", &[text(&empty), "--dir", text(&source.dir().join("y"))]);
    assert!(refused.ends_with("there is no RDB file and no append-only file"), "{refused}");
}

#[test]
fn roles_around_directories_explain_themselves() {
    for (role, word) in
        [("import", "FROM --dir DIR"), ("export", "--force"), ("check", "DIR"), ("restore", "--into NEWDIR")]
    {
        let help = shown_by(role, &["--help"]);
        assert!(help.starts_with(&format!("Usage: tarn {role} ")) && help.contains(word), "{help}");
        let refused = complaint(role, &["--nonsense"]);
        assert!(refused.starts_with(&format!("tarn {role}: ")), "{refused}");
    }
    let here = std::env::temp_dir().join(format!("tarn-no-log-{}", std::process::id()));
    std::fs::create_dir_all(&here).unwrap();
    assert!(complaint("check", &[text(&here)]).contains("there is no log in"));
    assert!(
        complaint("restore", &[text(&here), "--to", "1", "--into", text(&here)])
            .contains("goes back that far")
    );
    std::fs::remove_dir_all(&here).unwrap();
}

#[test]
fn a_log_is_exported_as_far_as_it_was_acknowledged() {
    let mut source = Server::start(tarn(), &["--edition", "durable"]).unwrap();
    let mut client = source.connect().unwrap();
    fill(&mut client);
    source.kill();
    let mut target = empty_redis();
    let to = target.dir().join("dump.rdb");
    let told = shown_by("export", &["--dir", text(source.dir()), "--to", text(&to)]);
    assert!(told.contains("Loaded the log of "), "{told}");
    target.restart().unwrap();
    let found = contents(&target);
    assert!(found.len() == 13 && found[0].contains("mine"), "{found:#?}");
    // The second of two effects of one record.
    assert!(found[2].starts_with("0 by-script: ") && !found[2].contains("Int(-1)"), "{}", found[2]);
    let report = shown_by("check", &[text(source.dir())]);
    assert!(report.contains(".segment: segment, LSN 0 to "), "{report}");
    let copy = target.dir().join("copy");
    let told = shown_by("restore", &[text(source.dir()), "--to", "@4000000000", "--into", text(&copy)]);
    assert!(told.contains("the log ends at LSN "), "{told}");
    shown_by("export", &["--dir", text(&copy), "--to", text(&to), "--force"]);
    target.restart().unwrap();
    assert_same(&contents(&target), &found, "the copy");
    let refused = complaint("import", &[text(&to), "--dir", text(&copy)]);
    assert!(refused.contains("holds a log"), "{refused}");
}

#[test]
fn what_one_record_does_to_a_slot_and_to_all_is_replayed_in_order() {
    let mut source = Server::start(tarn(), &["--edition", "durable"]).unwrap();
    let mut client = source.connect().unwrap();
    let transactions: [&[&[&str]]; 3] = [
        &[&["SET", "gone", "1"], &["FLUSHALL"], &["SET", "kept", "1"], &["INCR", "kept"]],
        &[&["SET", "swapped", "1"], &["SWAPDB", "0", "1"], &["SET", "swapped", "5"], &["INCR", "swapped"]],
        &[&["SELECT", "1"], &["APPEND", "kept", "0"], &["SELECT", "0"], &["APPEND", "swapped", "0"]],
    ];
    for requests in transactions {
        call_well(&mut client, &["MULTI"]);
        requests.iter().for_each(|request| drop(call_well(&mut client, request)));
        call_well(&mut client, &["EXEC"]);
    }
    source.kill();
    let mut target = empty_redis();
    shown_by("export", &["--dir", text(source.dir()), "--to", text(&target.dir().join("dump.rdb"))]);
    target.restart().unwrap();
    let mut client = target.connect().unwrap();
    let mut ask = |request: &[&str]| show(&call_well(&mut client, request));
    assert_eq!((ask(&["DBSIZE"]).as_str(), ask(&["GET", "swapped"]).as_str()), ("Int(1)", "60"));
    ask(&["SELECT", "1"]);
    assert_eq!(ask(&["MGET", "kept", "swapped", "gone"]), "[20 1 Null]");
}

#[test]
fn a_server_goes_on_where_a_redis_stopped() {
    let mut source = redis(&[]);
    let mut client = source.connect().unwrap();
    fill(&mut client);
    rewrite(&mut client);
    call_well(&mut client, &["SET", "behind", "the base"]);
    source.restart().unwrap();
    let mut expected = contents(&source);
    source.kill();
    let mut server = Server::start(tarn(), &["--edition", "durable"]).unwrap();
    server.kill();
    for name in std::fs::read_dir(server.dir()).unwrap() {
        std::fs::remove_file(name.unwrap().path()).unwrap();
    }
    crate::starts::copy_all(&append_only_dir(&source), &append_only_dir(&server));
    server.restart().unwrap();
    server.await_output(&["Loaded the append-only files of "]);
    call_well(&mut server.connect().unwrap(), &["DEL", "behind"]);
    // Its own log counts from now on, and not what the Redis left.
    server.restart().unwrap();
    assert!(!server.output().contains("Loaded the append-only files of "), "{}", server.output());
    server.kill();
    let mut target = empty_redis();
    shown_by("export", &["--dir", text(server.dir()), "--to", text(&target.dir().join("dump.rdb"))]);
    target.restart().unwrap();
    expected.retain(|line| !line.starts_with("0 behind: "));
    assert_same(&contents(&target), &expected, "what went on");
    // A damaged file ends the start, with the sentence.
    for name in std::fs::read_dir(server.dir()).unwrap().map(|name| name.unwrap().path()) {
        drop(std::fs::remove_file(name));
    }
    std::fs::write(append_only_dir(&server).join("appendonly.aof.manifest"), "nonsense\n").unwrap();
    let error = server.restart().unwrap_err().to_string();
    assert!(error.contains("line 1: Invalid AOF manifest file format"), "{error}");
}
