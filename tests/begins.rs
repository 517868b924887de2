//! CONFIG SET `appendonly yes` while a server runs: the log begins with a checkpoint. What was there before and what comes after is there
//! behind a kill once that is complete; before, nothing is taken for data that is not all of it. And BGREWRITEAOF of a server without a log.

use crate::departures::signal;
use crate::operators::{files, refused_by, shown_by, text};
use crate::tarn;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use testkit::ask::{ask, call, call_well, shown, wait_until};
use testkit::contents::Contents;
use testkit::{Client, Program, Server};
use wire::Value;

/// Clients that write while the log begins.
const WRITERS: usize = 3;

fn memory(dir: &Path, more: &[&str]) -> Server {
    let directives = [&["--edition", "memory", "--dir", text(dir)], more].concat();
    Server::start(tarn(), &directives).unwrap()
}

fn field(client: &mut Client, name: &str) -> String {
    let info = ask(client, &["INFO", "persistence"]);
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("{name} is not in {info}")).trim_end().to_owned()
}

/// The reply to what was asked before, and a field behind it, which the server has looked up without waiting for anybody between the two.
fn field_behind(client: &mut Client, name: &str) -> [String; 2] {
    client.send_request(&["INFO", "persistence"]).unwrap();
    let [before, info] = [(); 2].map(|()| String::from_utf8(client.read_reply().unwrap()).unwrap());
    let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    [before, value.unwrap_or_default().to_owned()]
}

fn is_complete(client: &mut Client) -> bool {
    ["aof_rewrite_in_progress", "aof_rewrite_scheduled"].iter().all(|name| field(client, name) == "0")
}

/// Values of all kinds, in several databases.
fn fill(client: &mut Client) {
    let long = "x".repeat(300_000);
    for db in ["0", "5"] {
        call_well(client, &["SELECT", db]);
        for number in 0..200 {
            let name = number.to_string();
            call_well(client, &["SET", &format!("string:{name}"), &name]);
            call_well(client, &["RPUSH", &format!("list:{name}"), "a", "b", &name]);
            call_well(client, &["HSET", "hash", &name, "value"]);
            call_well(client, &["ZADD", "zset", &name, &name]);
            call_well(client, &["XADD", "stream", "*", "field", &name]);
        }
        call_well(client, &["SET", "long:0", &long]);
        call_well(client, &["SET", "timed", "value", "EX", "100000"]);
    }
    call_well(client, &["SELECT", "0"]);
    let library = "#!lua name=lib\nredis.register_function('one', function() return 1 end)";
    call_well(client, &["FUNCTION", "LOAD", library]);
}

/// Counts, moves a long value from key to key, and exchanges databases until told to stop.
fn write_on(mut client: Client, writer: usize, stop: &AtomicBool) {
    let mut turn = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        call_well(&mut client, &["INCR", &format!("count:{writer}")]);
        call_well(&mut client, &["LPUSH", &format!("pushed:{}", turn % 50), &turn.to_string()]);
        if writer == 0 {
            let (from, to) = (format!("long:{turn}"), format!("long:{}", turn + 1));
            call_well(&mut client, &["RENAME", &from, &to]);
        }
        if writer == 1 {
            call_well(&mut client, &["SWAPDB", "5", "6"]);
        }
        turn += 1;
    }
}

#[test]
fn a_log_that_begins_amid_traffic_has_what_was_there_and_what_comes() {
    let mut server = Server::start(tarn(), &["--edition", "memory", "--appendfsync", "always"]).unwrap();
    let mut client = server.connect().unwrap();
    fill(&mut client);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _ends = testkit::Ends(&stop);
        for writer in 0..WRITERS {
            let (client, stop) = (server.connect().unwrap(), &stop);
            scope.spawn(move || write_on(client, writer, stop));
        }
        assert_eq!(ask(&mut client, &["CONFIG", "SET", "appendonly", "yes"]), "OK");
        assert_eq!(field(&mut client, "aof_enabled"), "1");
        wait_until("the checkpoint is complete", || is_complete(&mut client));
        call_well(&mut client, &["SET", "later", "1"]);
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(field(&mut client, "aof_last_bgrewrite_status"), "ok");
    let before = Contents::read(&mut client).unwrap();
    let dir = server.dir().to_owned();
    let copy = dir.with_extension("killed");
    server.kill();
    std::fs::create_dir_all(&copy).unwrap();
    for file in files(&dir, "log-", "") {
        std::fs::copy(&file, copy.join(file.file_name().unwrap())).unwrap();
    }
    drop(server);
    let again = memory(&copy, &["--appendonly", "yes"]);
    let after = Contents::read(&mut again.connect().unwrap()).unwrap();
    assert_eq!(before.difference(&after, 0), None);
    assert!(after.len() > 800);
    drop(again);
    std::fs::remove_dir_all(&copy).unwrap();
}

/// What is made while the keys of a log that has just begun are copied: of more keys where the machine is so slow that they were copied before.
fn amid_copying<T>(make: impl Fn(u64) -> Option<T>) -> T {
    [300_000, 1_000_000, 3_000_000].into_iter().find_map(make).expect("it is still in progress")
}

#[test]
fn a_log_that_is_not_complete_is_not_taken_for_all() {
    let (keys, server, dir) = amid_copying(|keys| {
        let server =
            Server::start(tarn(), &["--edition", "memory", "--enable-debug-command", "yes"]).unwrap();
        let mut client = server.connect().unwrap();
        call_well(&mut client, &["SET", "before", "1"]);
        call_well(&mut client, &["SAVE"]);
        call_well(&mut client, &["DEBUG", "POPULATE", &keys.to_string()]);
        assert_eq!(ask(&mut client, &["CONFIG", "SET", "appendonly", "yes", "appendfsync", "always"]), "OK");
        call_well(&mut client, &["SET", "while", "1"]);
        let dir = copied(&server, "cut");
        (field(&mut client, "aof_rewrite_in_progress") == "1").then_some((keys, server, dir))
    });
    let mut client = server.connect().unwrap();
    let directives = ["--edition", "memory", "--appendonly", "yes", "--dir", text(&dir)];
    let refused = Server::start(tarn(), &directives).unwrap_err().to_string();
    assert!(refused.contains("remove all log-*: then what was there before counts"), "{refused}");
    for file in files(&dir, "log-", "") {
        std::fs::remove_file(file).unwrap();
    }
    let again = memory(&dir, &["--appendonly", "yes"]);
    let mut other = again.connect().unwrap();
    assert_eq!([ask(&mut other, &["GET", "before"]), ask(&mut other, &["DBSIZE"])], ["1", "Int(1)"]);
    drop(again);
    std::fs::remove_dir_all(&dir).unwrap();
    // Told to end, a server completes it.
    let dir = server.dir().with_extension("ended");
    let mut server = server;
    let _ = client.call(&["SHUTDOWN", "NOSAVE"]);
    wait_until("it has ended", || server.ended().unwrap().is_some());
    std::fs::create_dir_all(&dir).unwrap();
    for file in files(server.dir(), "log-", "") {
        std::fs::copy(&file, dir.join(file.file_name().unwrap())).unwrap();
    }
    let again = memory(&dir, &["--appendonly", "yes"]);
    assert_eq!(ask(&mut again.connect().unwrap(), &["DBSIZE"]), format!("Int({})", keys + 2));
    drop(again);
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn appendonly_is_refused_where_it_would_not_be_true() {
    let server = Server::start(tarn(), &["--edition", "memory"]).unwrap();
    let mut client = server.connect().unwrap();
    let mut set = |value: &str| ask(&mut client, &["CONFIG", "SET", "appendonly", value]);
    let failed = "ERR CONFIG SET failed (possibly related to argument 'appendonly') - ";
    assert_eq!(set("no"), "OK");
    assert_eq!(set("maybe"), format!("{failed}argument must be 'yes' or 'no'"));
    assert_eq!(set("yes"), "OK");
    assert_eq!(set("yes"), "OK");
    wait_until("the checkpoint is complete", || is_complete(&mut client));
    drop(server);

    // Beside a log that was not read, and in a transaction.
    let server = Server::start(tarn(), &["--edition", "memory"]).unwrap();
    let mut client = server.connect().unwrap();
    // What is only called alike is no log.
    let name = format!("log-{:020}-{:08}.segment", 0, 1);
    std::fs::write(server.dir().join("log-server.txt"), "").unwrap();
    std::fs::write(server.dir().join(&name), "").unwrap();
    let refused = ask(&mut client, &["CONFIG", "SET", "appendonly", "yes"]);
    assert!(refused.contains("holds a log that this server does not have its data from"), "{refused}");
    // Append-only files would be passed over for it at the next start.
    let refused = ask(&mut client, &["BGREWRITEAOF"]);
    assert!(refused.contains("holds a log that this server does not have its data from"), "{refused}");
    std::fs::remove_file(server.dir().join(&name)).unwrap();
    assert_eq!(ask(&mut client, &["BGREWRITEAOF"]), "Background append only file rewriting started");
    wait_until("it is written", || is_complete(&mut client));
    for words in [&["MULTI"][..], &["CONFIG", "SET", "appendonly", "yes"]] {
        call_well(&mut client, words);
    }
    let Value::Array(replies) = call(&mut client, &["EXEC"]) else { panic!("EXEC answers for each") };
    assert!(shown(&replies[0]).ends_with("cannot be set in a transaction"), "{replies:?}");
    assert_eq!(field(&mut client, "aof_enabled"), "0");

    // Nor beside what is moved at the same time, whichever way it goes.
    assert_eq!(ask(&mut client, &["CONFIG", "SET", "appendonly", "yes"]), "OK");
    wait_until("the checkpoint is complete", || is_complete(&mut client));
    for (from, to) in [("1", "no"), ("0", "yes")] {
        let refused = ask(&mut client, &["CONFIG", "SET", "bind", "127.0.0.1 -::1", "appendonly", to]);
        assert!(refused.contains("cannot be set together"), "{refused}");
        assert_eq!(field(&mut client, "aof_enabled"), from);
        assert_eq!(ask(&mut client, &["CONFIG", "SET", "appendonly", to]), "OK");
    }

    let server = Server::start(tarn(), &["--edition", "durable"]).unwrap();
    let mut client = server.connect().unwrap();
    assert_eq!(ask(&mut client, &["CONFIG", "SET", "appendonly", "yes"]), "OK");
    let decided = "this edition has every write on disk before its reply";
    assert_eq!(ask(&mut client, &["CONFIG", "SET", "appendonly", "no"]), format!("{failed}{decided}"));
    assert!(ask(&mut client, &["CONFIG", "SET", "appendfsync", "no"]).ends_with(decided));
}

#[test]
fn a_log_stays_in_its_directory() {
    let server =
        Server::start(tarn(), &["--edition", "durable", "--enable-protected-configs", "yes"]).unwrap();
    let mut client = server.connect().unwrap();
    let refused = ask(&mut client, &["CONFIG", "SET", "dir", "/tmp"]);
    assert!(refused.contains("argument 'dir') - the log stays where it is"), "{refused}");
    assert_eq!(ask(&mut client, &["CONFIG", "SET", "dir", text(server.dir())]), "OK");
}

#[test]
fn a_snapshot_that_was_being_written_when_the_log_began_is_older_than_the_log() {
    let directives = ["--edition", "memory", "--enable-debug-command", "yes", "--appendfsync", "always"];
    let mut server = Server::start(tarn(), &directives).unwrap();
    let mut client = server.connect().unwrap();
    call_well(&mut client, &["DEBUG", "POPULATE", "3000"]);
    call_well(&mut client, &["CONFIG", "SET", "rdb-key-save-delay", "300"]);
    call_well(&mut client, &["BGSAVE"]);
    call_well(&mut client, &["CONFIG", "SET", "appendonly", "yes"]);
    wait_until("both are written", || {
        field(&mut client, "rdb_bgsave_in_progress") == "0" && is_complete(&mut client)
    });
    server.kill();
    let again = memory(server.dir(), &["--appendonly", "yes"]);
    assert_eq!(ask(&mut again.connect().unwrap(), &["DBSIZE"]), "Int(3000)");
}

#[test]
fn a_snapshot_that_is_newer_than_the_content_of_append_only_files_is_not_passed_over() {
    let server = Server::start(tarn(), &["--edition", "memory"]).unwrap();
    let mut client = server.connect().unwrap();
    call_well(&mut client, &["SET", "probe", "1"]);
    call_well(&mut client, &["BGREWRITEAOF"]);
    wait_until("it is written", || is_complete(&mut client));
    call_well(&mut client, &["SET", "probe", "2"]);
    call_well(&mut client, &["SAVE"]);
    // As if it had been written for so long that the other was begun and ended meanwhile.
    for base in files(&server.dir().join("appendonlydir"), "", ".rdb") {
        let later = std::time::SystemTime::now() + std::time::Duration::from_secs(5);
        std::fs::File::options().write(true).open(base).unwrap().set_modified(later).unwrap();
    }
    let refused = Server::start(tarn(), &["--edition", "durable", "--dir", text(server.dir())]).unwrap_err();
    assert!(refused.to_string().contains("and only one of them can count"), "{refused}");
}

#[test]
fn without_a_log_bgrewriteaof_writes_append_only_files_that_a_redis_reads() {
    let server = Server::start(tarn(), &["--edition", "memory"]).unwrap();
    let mut client = server.connect().unwrap();
    fill(&mut client);
    for turn in 1..4 {
        call_well(&mut client, &["SET", "turn", &turn.to_string()]);
        assert_eq!(ask(&mut client, &["BGREWRITEAOF"]), "Background append only file rewriting started");
        wait_until("it is written", || is_complete(&mut client));
        assert_eq!(field(&mut client, "aof_last_bgrewrite_status"), "ok");
    }
    let folder = server.dir().join("appendonlydir");
    let manifest = std::fs::read_to_string(folder.join("appendonly.aof.manifest")).unwrap();
    assert_eq!(manifest, "file \"appendonly.aof.3.base.rdb\" seq 3 type b\n");
    assert_eq!(files(&folder, "appendonly.aof", "").len(), 2, "what is replaced is gone");
    let before = Contents::read(&mut client).unwrap();
    for (program, edition) in [(tarn(), &["--edition", "memory"][..]), (Program::Redis, &[])] {
        let dir = server.dir().with_extension(program.name());
        std::fs::create_dir_all(dir.join("appendonlydir")).unwrap();
        for file in files(&folder, "", "") {
            std::fs::copy(&file, dir.join("appendonlydir").join(file.file_name().unwrap())).unwrap();
        }
        let again =
            Server::start(program, &[edition, &["--appendonly", "yes", "--dir", text(&dir)]].concat());
        let mut client = again.as_ref().unwrap().connect().unwrap();
        wait_until("it is loaded", || ask(&mut client, &["PING"]) == "PONG");
        // Redis 7.0 has no words for when fields expire.
        if let Program::Tarn(_) = again.as_ref().unwrap().program() {
            assert_eq!(before.difference(&Contents::read(&mut client).unwrap(), 0), None);
        }
        assert_eq!(ask(&mut client, &["SELECT", "5"]), "OK");
        assert_eq!(ask(&mut client, &["DBSIZE"]), "Int(405)");
        assert_eq!(ask(&mut client, &["SELECT", "0"]), "OK");
        assert_eq!(ask(&mut client, &["DBSIZE"]), "Int(406)");
        assert_eq!(
            [ask(&mut client, &["GET", "turn"]), ask(&mut client, &["STRLEN", "long:0"])],
            ["3", "Int(300000)"]
        );
        drop(again);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}

#[test]
fn append_only_files_are_not_called_a_checkpoint_when_a_log_has_begun_meanwhile() {
    let server = Server::start(tarn(), &["--edition", "memory", "--enable-debug-command", "yes"]).unwrap();
    let mut client = server.connect().unwrap();
    // Copying takes so long that the log begins beside it, as it is told to at once.
    call_well(&mut client, &["DEBUG", "POPULATE", "300000"]);
    let both = [&["BGREWRITEAOF"][..], &["CONFIG", "SET", "appendonly", "yes"]];
    let replies = client.pipeline(&both.map(<[&str]>::to_vec)).unwrap();
    assert_eq!(replies[1], b"+OK\r\n");
    wait_until("the log is complete", || is_complete(&mut client));
    let counts = || {
        let said = server.output();
        ["Append-only file of", "Checkpoint of", "Checkpoint started"]
            .map(|words| said.matches(words).count())
    };
    wait_until("each is told by its name", || counts() == [1, 1, 1]);
}

#[test]
fn a_rewrite_keeps_its_base_though_a_file_of_the_last_one_is_gone() {
    let server = Server::start(tarn(), &["--edition", "memory"]).unwrap();
    let mut client = server.connect().unwrap();
    call_well(&mut client, &["SET", "k", "v"]);
    let directory = server.dir().join("appendonlydir");
    let rewrite = |client: &mut Client| {
        call_well(client, &["BGREWRITEAOF"]);
        wait_until("it is written", || field(client, "aof_rewrite_in_progress") == "0");
        assert_eq!(field(client, "aof_last_bgrewrite_status"), "ok");
    };
    rewrite(&mut client);
    for file in files(&directory, "", ".rdb") {
        std::fs::remove_file(file).unwrap();
    }
    rewrite(&mut client);
    let again = memory(server.dir(), &["--appendonly", "yes"]);
    assert_eq!(ask(&mut again.connect().unwrap(), &["GET", "k"]), "v");
}

/// A copy of all that lies in a server's directory, at this moment.
fn copied(server: &Server, name: &str) -> PathBuf {
    let copy = server.dir().with_extension(name);
    let _ = std::fs::remove_dir_all(&copy);
    for folder in ["", "appendonlydir"] {
        let (from, to) = (server.dir().join(folder), copy.join(folder));
        if !from.is_dir() {
            continue;
        }
        std::fs::create_dir_all(&to).unwrap();
        for file in files(&from, "", "").iter().filter(|path| path.is_file()) {
            // What is being written may go meanwhile.
            let _ = std::fs::copy(file, to.join(file.file_name().unwrap()));
        }
    }
    copy
}

#[test]
fn a_script_that_keeps_the_log_from_its_completion_does_not_let_the_server_end_well() {
    let directives = ["--edition", "memory", "--enable-debug-command", "yes", "--busy-reply-threshold", "50"];
    let mut server = Server::start(tarn(), &directives).unwrap();
    let (mut client, mut script) = (server.connect().unwrap(), server.connect().unwrap());
    call_well(&mut client, &["DEBUG", "POPULATE", "300000"]);
    // In one go, so that it has its key before that is copied; its replies come together.
    script.send_request(&["CONFIG", "SET", "appendonly", "yes"]).unwrap();
    let endless = "redis.call('SET', KEYS[1], '1') while true do end";
    script.send_request(&["EVAL", endless, "1", "key"]).unwrap();
    wait_until("it is slow", || ask(&mut client, &["SCRIPT", "KILL"]).starts_with("UNKILLABLE"));
    assert_eq!(field(&mut client, "aof_rewrite_in_progress"), "1");
    let _ = client.call(&["SHUTDOWN", "NOSAVE"]);
    wait_until("it has ended", || server.ended().unwrap().is_some());
    assert_eq!(server.ended().unwrap().unwrap().code(), Some(1), "{}", server.output());
    server.await_output(&["The log has not become complete"]);
    // What was in memory only is gone, and nothing else is said.
    let again = memory(server.dir(), &["--appendonly", "yes"]);
    assert_eq!(ask(&mut again.connect().unwrap(), &["DBSIZE"]), "Int(0)");
    let said = again.await_output(&["what was in its memory only is gone"]);
    assert!(!said.contains("import"), "{said}");
}

#[test]
fn an_end_waits_for_the_log_to_become_complete() {
    for by_signal in [false, true] {
        let directives = ["--edition", "memory", "--enable-debug-command", "yes"];
        let mut server = Server::start(tarn(), &directives).unwrap();
        let mut client = server.connect().unwrap();
        call_well(&mut client, &["DEBUG", "POPULATE", "300000"]);
        client.send_request(&["CONFIG", "SET", "appendonly", "yes"]).unwrap();
        assert_eq!(field_behind(&mut client, "aof_rewrite_in_progress"), ["+OK\r\n", "1"]);
        match by_signal {
            false => client.send_request(&["SHUTDOWN"]).unwrap(),
            true => signal(&server, "-TERM"),
        }
        wait_until("it has ended", || server.ended().unwrap().is_some());
        assert_eq!(server.ended().unwrap().unwrap().code(), Some(0), "{}", server.output());
        let again = memory(server.dir(), &["--appendonly", "yes"]);
        assert_eq!(ask(&mut again.connect().unwrap(), &["DBSIZE"]), "Int(300000)");
    }
}

#[test]
fn where_a_log_was_not_complete_what_was_saved_counts_and_not_older_append_only_files() {
    let directives = ["--edition", "memory", "--enable-debug-command", "yes", "--appendfsync", "always"];
    let (mut server, empty, written) = amid_copying(|keys| {
        let mut server = Server::start(tarn(), &directives).unwrap();
        let mut client = server.connect().unwrap();
        call_well(&mut client, &["SET", "key", "old"]);
        call_well(&mut client, &["BGREWRITEAOF"]);
        wait_until("it is written", || is_complete(&mut client));
        server.restart().unwrap();
        let mut client = server.connect().unwrap();
        call_well(&mut client, &["SET", "key", "new"]);
        call_well(&mut client, &["SAVE"]);
        call_well(&mut client, &["DEBUG", "POPULATE", &keys.to_string()]);
        call_well(&mut client, &["CONFIG", "SET", "appendonly", "yes"]);
        let empty = copied(&server, "empty");
        call_well(&mut client, &["SET", "while", "1"]);
        let written = copied(&server, "written");
        (field(&mut client, "aof_rewrite_in_progress") == "1").then_some((server, empty, written))
    });
    server.kill();
    assert!(shown_by("check", &[text(&empty)]).contains("A start goes by what was saved before"));
    for edition in ["memory", "durable"] {
        let dir = empty.with_extension(edition);
        let _ = std::fs::remove_dir_all(&dir);
        assert!(
            std::process::Command::new("cp")
                .args(["-a", text(&empty), text(&dir)])
                .status()
                .unwrap()
                .success()
        );
        let mut again =
            Server::start(tarn(), &["--edition", edition, "--appendonly", "yes", "--dir", text(&dir)])
                .unwrap();
        let mut client = again.connect().unwrap();
        assert_eq!([ask(&mut client, &["GET", "key"]), ask(&mut client, &["DBSIZE"])], ["new", "Int(1)"]);
        let said = again.await_output(&["had begun the log in"]);
        assert!(!said.contains("An import was cut short"), "{said}");
        again.restart().unwrap();
        assert_eq!(ask(&mut again.connect().unwrap(), &["GET", "key"]), "new");
        drop(again);
        std::fs::remove_dir_all(&dir).unwrap();
    }
    // Files that were written later are what was saved last.
    let manifest = empty.join("appendonlydir/appendonly.aof.manifest");
    let _ = std::fs::remove_file(empty.join("dump.rdb"));
    assert!(
        manifest.is_file() && shown_by("check", &[text(&empty)]).contains("A start goes by what was saved")
    );
    let again = memory(&empty, &["--appendonly", "yes"]);
    assert_eq!(ask(&mut again.connect().unwrap(), &["GET", "key"]), "old");
    drop(again);
    // What was written since makes a start ask, and what it says leads to what was saved.
    let directives = ["--edition", "memory", "--appendonly", "yes", "--dir", text(&written)];
    let refused = Server::start(tarn(), &directives).unwrap_err().to_string();
    let older = format!("counts; move {} away, too, which is older", written.join("appendonlydir").display());
    let checked = String::from_utf8(crate::imports::run("check", &[text(&written)]).stdout).unwrap();
    for said in [&refused, &checked] {
        assert!(
            said.contains("remove all log-*: then what was there before ") && said.contains(&older),
            "{said}"
        );
    }
    files(&written, "log-", "").iter().for_each(|path| std::fs::remove_file(path).unwrap());
    std::fs::remove_dir_all(written.join("appendonlydir")).unwrap();
    let again = Server::start(tarn(), &directives).unwrap();
    assert_eq!(ask(&mut again.connect().unwrap(), &["GET", "key"]), "new");
    drop(again);
    [empty, written].iter().for_each(|dir| std::fs::remove_dir_all(dir).unwrap());
}

#[test]
fn what_is_left_of_the_first_append_only_files_is_not_taken_for_some() {
    let directives = ["--edition", "memory", "--enable-debug-command", "yes"];
    let mut server = Server::start(tarn(), &directives).unwrap();
    let mut client = server.connect().unwrap();
    let folder = server.dir().join("appendonlydir");
    call_well(&mut client, &["DEBUG", "POPULATE", "2000"]);
    // So long that it is killed before its end.
    call_well(&mut client, &["CONFIG", "SET", "rdb-key-save-delay", "1000000"]);
    call_well(&mut client, &["BGREWRITEAOF"]);
    wait_until("it has begun", || {
        folder.is_dir() && files(&folder, "appendonly.aof.1.base.rdb.", ".tmp").len() == 1
    });
    server.kill();
    assert!(files(&folder, "appendonly.aof.manifest", "").iter().all(|path| text(path).ends_with(".tmp")));
    let starts = |dir: &Path| {
        for directives in [&["--edition", "durable"][..], &["--edition", "memory", "--appendonly", "yes"]] {
            let copy = dir.with_extension("started");
            let _ = std::fs::remove_dir_all(&copy);
            assert!(
                std::process::Command::new("cp")
                    .args(["-a", text(dir), text(&copy)])
                    .status()
                    .unwrap()
                    .success()
            );
            let again = Server::start(tarn(), &[directives, &["--dir", text(&copy)]].concat());
            let size = again.map(|again| ask(&mut again.connect().unwrap(), &["DBSIZE"]));
            std::fs::remove_dir_all(&copy).unwrap();
            assert_eq!(size.map_err(|error| error.to_string()), Ok("Int(0)".to_owned()));
        }
    };
    starts(server.dir());
    // The next one takes their place, and nothing of them stays.
    server.restart().unwrap();
    let mut client = server.connect().unwrap();
    call_well(&mut client, &["SET", "key", "1"]);
    let rewrite = |client: &mut Client| {
        call_well(client, &["BGREWRITEAOF"]);
        wait_until("it is written", || is_complete(client));
        field(client, "aof_last_bgrewrite_status")
    };
    assert_eq!(rewrite(&mut client), "ok");
    assert_eq!(files(&folder, "", "").len(), 2, "{:?}", files(&folder, "", ""));
    server.kill();
    // Killed between the names of the base and of the manifest: it counts for nothing, too, and goes.
    let manifest = folder.join("appendonly.aof.manifest");
    std::fs::rename(&manifest, folder.join("appendonly.aof.manifest.1.1.tmp")).unwrap();
    starts(server.dir());
    server.restart().unwrap();
    assert_eq!(rewrite(&mut server.connect().unwrap()), "ok");
    assert_eq!(files(&folder, "", "").len(), 2, "{:?}", files(&folder, "", ""));
    // A manifest that was there and is gone is another matter, for a start and for whoever would write a new one.
    std::fs::remove_file(&manifest).unwrap();
    assert_eq!(rewrite(&mut server.connect().unwrap()), "err");
    assert!(
        refused_by("import", &[text(server.dir()), "--dir", text(&server.dir().join("to"))])
            .contains("and no manifest")
    );
    assert_eq!(files(&folder, "", ".base.rdb").len(), 1);
}

#[test]
fn append_only_files_that_were_left_aside_are_kept_by_bgrewriteaof() {
    let mut server = Server::start(tarn(), &["--edition", "memory"]).unwrap();
    let folder = server.dir().join("appendonlydir");
    for value in ["old", "new"] {
        let mut client = server.connect().unwrap();
        for _ in 0..2 {
            call_well(&mut client, &["SET", "key", value]);
            call_well(&mut client, &["BGREWRITEAOF"]);
            wait_until("it is written", || is_complete(&mut client));
            assert_eq!(field(&mut client, "aof_last_bgrewrite_status"), "ok");
        }
        if value == "old" {
            assert_eq!(files(&folder, "", "").len(), 2);
            server.restart().unwrap();
            server.await_output(&["is left aside: read it with appendonly yes, or with tarn import"]);
        }
    }
    let kept = files(&folder, "appendonly.aof.before-", ".manifest").pop().expect("the old manifest is kept");
    server.await_output(&[&format!("`tarn import {}` reads them", kept.display())]);
    assert_eq!(files(&folder, "", "").len(), 4, "what this server wrote itself is replaced");
    for (from, value) in [(&kept, "old"), (&folder.join("appendonly.aof.manifest"), "new")] {
        let to = server.dir().join(value);
        shown_by("import", &[text(from), "--dir", text(&to)]);
        let again = memory(&to, &[]);
        assert_eq!(ask(&mut again.connect().unwrap(), &["GET", "key"]), value);
    }
}
