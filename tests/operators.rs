//! What operators do to a running server and to its directory: ending it with a full disk, killing it while it imports, changing the
//! edition on one directory. Nothing that was there is passed over in silence.

use crate::imports::run;
use crate::tarn;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;
use testkit::ask::{PATIENCE, ask, wait_until};
use testkit::{Client, Server};
use wire::Value;

pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

pub fn signal(pid: u32, name: &str) {
    assert!(Command::new("kill").args([name, &pid.to_string()]).status().unwrap().success());
}

/// Files of a directory whose names begin and end like this.
pub fn files(dir: &Path, begin: &str, end: &str) -> Vec<PathBuf> {
    let names = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let is_meant = |name: String| name.starts_with(begin) && name.ends_with(end);
    names
        .filter(|entry| is_meant(entry.file_name().into_string().unwrap()))
        .map(|entry| entry.path())
        .collect()
}

pub fn move_all(paths: &[PathBuf], to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    paths.iter().for_each(|path| std::fs::rename(path, to.join(path.file_name().unwrap())).unwrap());
}

fn memory(dir: &Path) -> Server {
    Server::start(tarn(), &["--edition", "memory", "--save", "3600 1", "--dir", text(dir)]).unwrap()
}

#[test]
fn a_server_that_cannot_save_stays_when_it_is_told_to_end() {
    let mut server = Server::start(tarn(), &["--edition", "memory", "--save", "3600 1"]).unwrap();
    let mut client = server.connect().unwrap();
    assert_eq!(ask(&mut client, &["SET", "key", "1"]), "OK");
    // A folder of that name, which no file can replace.
    let way = server.dir().join("dump.rdb");
    std::fs::create_dir_all(way.join("in-the-way")).unwrap();
    for count in 1..3 {
        signal(server.pid(), "-TERM");
        wait_until("it has tried", || server.output().matches("can't exit").count() == count);
        assert_eq!(ask(&mut client, &["INCR", "key"]), format!("Int({})", count + 1));
    }
    let complaint = format!("Can't save {}", way.display());
    server.await_output(&[&complaint]);
    std::fs::remove_dir_all(&way).unwrap();
    // And twice, as `timeout` does.
    signal(server.pid(), "-TERM");
    signal(server.pid(), "-TERM");
    wait_until("it has ended", || server.ended().unwrap().is_some());
    assert!(server.ended().unwrap().unwrap().success(), "{}", server.output());
    server.restart().unwrap();
    assert_eq!(ask(&mut server.connect().unwrap(), &["GET", "key"]), "3");
}

#[test]
fn the_kernel_is_told_how_willingly_to_end_the_server() {
    let server = Server::start(tarn(), &["--edition", "memory"]).unwrap();
    let mut client = server.connect().unwrap();
    let path = format!("/proc/{}/oom_score_adj", server.pid());
    let score = || std::fs::read_to_string(&path).unwrap().trim().parse::<i64>().unwrap();
    let mut tell = |request: &[&str], expected: i64| {
        assert_eq!(ask(&mut client, request), "OK", "{request:?}");
        assert_eq!(score(), expected, "{request:?}");
    };
    // What nobody is refused: to be ended more willingly than before.
    let base = score();
    tell(&["CONFIG", "SET", "oom-score-adj-values", "10 20 30"], base);
    tell(&["CONFIG", "SET", "oom-score-adj", "yes"], (base + 10).min(1000));
    tell(&["REPLICAOF", "127.0.0.1", "1"], (base + 20).min(1000));
    tell(&["REPLICAOF", "NO", "ONE"], (base + 10).min(1000));
    tell(&["CONFIG", "SET", "oom-score-adj-values", "2000 20 30", "oom-score-adj", "absolute"], 1000);
    tell(&["CONFIG", "SET", "oom-score-adj", "no"], base);
    // A change that fails for another reason takes it back.
    tell(&["CONFIG", "SET", "oom-score-adj", "relative"], 1000);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let refused = ask(&mut client, &["CONFIG", "SET", "oom-score-adj", "no", "port", &port]);
    assert!(refused.contains("Unable to listen"), "{refused}");
    assert_eq!(score(), 1000);
}

#[test]
fn a_second_sigterm_does_not_cut_the_saving_short() {
    let mut server = Server::start(tarn(), &["--edition", "memory", "--save", "3600 1"]).unwrap();
    let mut client = server.connect().unwrap();
    let value = "x".repeat(1000);
    let requests: Vec<_> =
        (0..20_000).map(|key| testkit::generate::words(&["SET", &key.to_string(), &value])).collect();
    client.pipeline(&requests).unwrap();
    for _ in 0..5 {
        signal(server.pid(), "-TERM");
    }
    wait_until("it has ended", || server.ended().unwrap().is_some());
    assert!(server.ended().unwrap().unwrap().success(), "{}", server.output());
    server.restart().unwrap();
    assert_eq!(ask(&mut server.connect().unwrap(), &["DBSIZE"]), "Int(20000)");
}

/// Starts a server in a directory and kills it when a file of this kind is there; gives whether it was.
pub fn kill_at(server: &Server, dir: &Path, begin: &str, end: &str) -> bool {
    let testkit::Program::Tarn(path) = server.program() else {
        unreachable!("the program under test is Tarn")
    };
    let mut command = Command::new(path);
    command.args([
        "server",
        "--port",
        "0",
        "--bind",
        "127.0.0.1",
        "--edition",
        "durable",
        "--dir",
        text(dir),
    ]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let begun = Instant::now();
    let mut is_there = false;
    while !is_there && begun.elapsed() < PATIENCE {
        is_there = !files(dir, begin, end).is_empty();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    is_there
}

#[test]
fn an_import_that_is_killed_is_done_again() {
    const KEYS: usize = 20_000;
    let mut source = Server::start(tarn(), &["--edition", "memory", "--save", "3600 1"]).unwrap();
    let mut client = source.connect().unwrap();
    let requests: Vec<_> =
        (0..KEYS).map(|key| testkit::generate::words(&["SET", &format!("key:{key}"), "value"])).collect();
    client.pipeline(&requests).unwrap();
    assert_eq!(ask(&mut client, &["SAVE"]), "OK");
    source.kill();
    let moments = [
        ("spare-", ".tmp"),
        ("log-", ".segment"),
        ("log-", ".newest"),
        ("log-", ".checkpoint.tmp"),
        ("log-", ".checkpoint"),
    ];
    for (begin, end) in moments {
        let dir = source.dir().join(format!("at{end}"));
        shown_by("import", &[text(&source.dir().join("dump.rdb")), "--dir", text(&dir)]);
        assert!(kill_at(&source, &dir, begin, end), "{begin}*{end} was never there");
        let again = Server::start(tarn(), &["--edition", "durable", "--dir", text(&dir)]).unwrap();
        let mut client = again.connect().unwrap();
        assert_eq!(ask(&mut client, &["DBSIZE"]), format!("Int({KEYS})"), "killed at {begin}*{end}");
        assert_eq!(ask(&mut client, &["SET", "key:0", "changed"]), "OK");
        drop(again);
        // What counts from now on is the log, wherever the file is.
        std::fs::remove_file(dir.join("dump.rdb")).unwrap();
        let again = Server::start(tarn(), &["--edition", "durable", "--dir", text(&dir)]).unwrap();
        let mut client = again.connect().unwrap();
        assert_eq!(ask(&mut client, &["DBSIZE"]), format!("Int({KEYS})"));
        assert_eq!(ask(&mut client, &["GET", "key:0"]), "changed");
    }
}

/// What a good run of a role shows.
pub fn shown_by(role: &str, words: &[&str]) -> String {
    let output = run(role, words);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{role} {words:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// What a failing run of a role says.
pub fn refused_by(role: &str, words: &[&str]) -> String {
    let output = run(role, words);
    assert_eq!(output.status.code(), Some(1), "{role} {words:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn what_the_memory_edition_has_saved_beside_a_log_is_not_passed_over() {
    let mut durable = Server::start(tarn(), &["--edition", "durable"]).unwrap();
    let dir = durable.dir().to_owned();
    let mut client = durable.connect().unwrap();
    assert_eq!(ask(&mut client, &["SET", "durable", "1"]), "OK");
    // Its own file holds nothing that the log does not.
    assert_eq!(ask(&mut client, &["SAVE"]), "OK");
    durable.restart().unwrap();
    durable.kill();
    shown_by("export", &["--dir", text(&dir), "--to", text(&dir.join("dump.rdb")), "--force"]);
    durable.restart().unwrap();
    durable.kill();
    let in_memory = memory(&dir);
    let mut client = in_memory.connect().unwrap();
    assert_eq!(ask(&mut client, &["SET", "memory", "1"]), "OK");
    assert_eq!(ask(&mut client, &["SAVE"]), "OK");
    drop(in_memory);
    let refused = durable.restart().unwrap_err().to_string();
    assert!(refused.contains("dump.rdb was written after the end of the log in "), "{refused}");
    assert!(
        refused_by("import", &[text(&dir), "--dir", text(&dir.join("copy"))]).contains("holds a Tarn's log")
    );
    assert!(!dir.join("copy").exists());
    // Either way that the sentence names leads on, and keeps what the other had.
    let aside = dir.join("aside");
    move_all(&[dir.join("dump.rdb")], &aside);
    durable.restart().unwrap();
    let mut client = durable.connect().unwrap();
    assert_eq!(ask(&mut client, &["EXISTS", "durable", "memory"]), "Int(1)");
    durable.kill();
    move_all(&files(&dir, "log-", ""), &dir.join("log"));
    move_all(&[aside.join("dump.rdb")], &dir);
    durable.restart().unwrap();
    let mut client = durable.connect().unwrap();
    assert_eq!(ask(&mut client, &["EXISTS", "durable", "memory"]), "Int(2)");
    durable.restart().unwrap();
}

/// Some thousand keys, all of them in the store, and a server that has ended in peace.
fn with_store(keys: usize) -> Server {
    let mut server =
        Server::start(tarn(), &["--edition", "capacity", "--maxmemory", "24mb", "--eager-spill", "yes"])
            .unwrap();
    let mut client = server.connect().unwrap();
    let value = "x".repeat(300);
    let set = |key: usize| testkit::generate::words(&["SET", &format!("key:{key}"), &value]);
    client.pipeline(&(0..keys).map(set).collect::<Vec<_>>()).unwrap();
    assert_eq!(ask(&mut client, &["BGREWRITEAOF"]), "Background append only file rewriting started");
    let persistence = |client: &mut Client| ask(client, &["INFO", "persistence"]);
    wait_until("the checkpoint is written", || {
        persistence(&mut client).contains("aof_rewrite_in_progress:0")
    });
    assert!(persistence(&mut client).contains("aof_last_bgrewrite_status:ok"));
    server.kill();
    server
}

/// Goes over all keys; gives how many there are.
fn scan(client: &mut Client) -> usize {
    let (mut cursor, mut seen) = ("0".to_owned(), 0);
    loop {
        let Value::Array(reply) = client.call(&["SCAN", &cursor, "COUNT", "500"]).unwrap() else {
            panic!("SCAN goes on")
        };
        let [Value::Bulk(next), Value::Array(keys)] = &reply[..] else { panic!("{reply:?}") };
        seen += keys.len();
        cursor = String::from_utf8(next.clone()).unwrap();
        if cursor == "0" {
            return seen;
        }
    }
}

#[test]
fn what_is_sound_beside_a_damaged_page_of_the_store_has_a_way_out() {
    const KEYS: usize = 5_000;
    let mut server = with_store(KEYS);
    let dir = server.dir().to_owned();
    let segment = files(&dir.join("store"), "", ".store").into_iter().next().unwrap();
    let whole = std::fs::read(&segment).unwrap();
    let mut damaged = whole.clone();
    // In the middle of a page that is in use.
    let page = (0..whole.len() / 4096).rfind(|page| whole[page * 4096 + 2000] == b'x').unwrap() / 2;
    damaged[page * 4096 + 2000] ^= 1;
    std::fs::write(&segment, &damaged).unwrap();
    server.restart().unwrap();
    let mut client = server.connect().unwrap();
    let sound = scan(&mut client);
    assert!((KEYS - 20..KEYS).contains(&sound), "{sound}");
    assert!(ask(&mut client, &["SAVE"]).starts_with("ERR"));
    assert!(ask(&mut client, &["INFO", "memory"]).contains("store_failed_reads:"));
    wait_until("the log has told of it", || {
        let said = server.output();
        said.contains("of the store cannot be read: ") && said.contains("tarn export --skip-damaged")
    });
    server.kill();
    let to = dir.join("out.rdb");
    let words = ["--dir", text(&dir), "--to", text(&to)];
    let refused = refused_by("export", &words);
    assert!(refused.contains("`tarn export --skip-damaged` writes what can be read"), "{refused}");
    assert!(!to.exists());
    let checked = String::from_utf8(run("check", &[text(&dir)]).stdout).unwrap();
    assert!(checked.contains("A start replays it all") && checked.contains("--skip-damaged"), "{checked}");
    skip_damaged(&words, &to, sound, KEYS);
    // Without the segment a start is refused, `check` says why, and all else has the same way out.
    std::fs::rename(&segment, dir.join("aside")).unwrap();
    let refused = server.restart().unwrap_err().to_string();
    let checked = String::from_utf8(run("check", &[text(&dir)]).stdout).unwrap();
    let sentence = checked.lines().last().unwrap().strip_prefix("A start refuses this: ").unwrap().to_owned();
    let (sentence, _) = sentence.split_once("; `tarn export").unwrap();
    assert!(refused.contains(sentence), "{refused}, {checked}");
    std::fs::remove_file(&to).unwrap();
    let told = run("export", &[&words[..], &["--skip-damaged"]].concat());
    assert!(String::from_utf8(told.stdout).unwrap().contains("LEFT OUT "));
    // And with it there again, nothing is missing.
    std::fs::write(&segment, &whole).unwrap();
    server.restart().unwrap();
    assert_eq!(scan(&mut server.connect().unwrap()), KEYS);
}

/// Writes what can be read, and finds it in what was written.
fn skip_damaged(words: &[&str], to: &Path, sound: usize, all: usize) {
    let told = run("export", &[words, &["--skip-damaged"]].concat());
    let said = String::from_utf8(told.stdout).unwrap();
    assert_eq!(told.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("Wrote {sound} keys to ")), "{said}");
    assert!(said.contains(&format!("LEFT OUT {} keys", all - sound)) && said.contains("page "), "{said}");
    let mut reader = Server::start(tarn(), &["--edition", "memory", "--dbfilename", "none.rdb"]).unwrap();
    reader.kill();
    std::fs::copy(to, reader.dir().join("none.rdb")).unwrap();
    reader.restart().unwrap();
    assert_eq!(ask(&mut reader.connect().unwrap(), &["DBSIZE"]), format!("Int({sound})"));
}

#[test]
fn a_moment_can_be_looked_at_as_it_was_after_times_have_come() {
    let mut source =
        Server::start(tarn(), &["--edition", "durable", "--enable-debug-command", "yes"]).unwrap();
    let mut client = source.connect().unwrap();
    // Nobody removes what nobody asks for.
    assert_eq!(ask(&mut client, &["DEBUG", "SET-ACTIVE-EXPIRE", "0"]), "OK");
    assert_eq!(ask(&mut client, &["SET", "later", "1", "EX", "100000"]), "OK");
    // Its time comes behind the last record, however slow the machine is.
    let mut margin = 50;
    while ask(&mut client, &["EXISTS", "session"]) == "Int(0)" {
        margin *= 2;
        assert_eq!(ask(&mut client, &["SET", "session", "1", "PX", &margin.to_string()]), "OK");
        assert_eq!(ask(&mut client, &["SET", "always", "1"]), "OK");
    }
    let at = Command::new("date").arg("+@%s%3N").output().unwrap().stdout;
    let at = String::from_utf8(at).unwrap();
    wait_until("its time has come", || ask(&mut client, &["EXISTS", "session"]) == "Int(0)");
    assert_eq!(ask(&mut client, &["SET", "always", "2"]), "OK");
    let copy = source.dir().join("copy");
    let told = shown_by("restore", &[text(source.dir()), "--to", at.trim(), "--into", text(&copy)]);
    assert!(told.contains("--keep-expired"), "{told}");
    source.kill();
    let to = source.dir().join("moment.rdb");
    shown_by("export", &["--dir", text(&copy), "--to", text(&to), "--keep-expired"]);
    let reader = Server::start(
        tarn(),
        &["--edition", "memory", "--dbfilename", "moment.rdb", "--dir", text(source.dir())],
    );
    let mut client = reader.as_ref().unwrap().connect().unwrap();
    assert_eq!(
        ask(&mut client, &["MGET", "session", "always"]),
        format!("{:?}", Value::Array(vec![Value::Bulk(b"1".to_vec()), Value::Bulk(b"1".to_vec()),]))
    );
    assert_eq!(ask(&mut client, &["TTL", "session"]), "Int(-1)");
    assert_ne!(ask(&mut client, &["TTL", "later"]), "Int(-1)");
    let refused =
        refused_by("export", &["--dir", text(reader.unwrap().dir()), "--to", "x", "--keep-expired"]);
    assert!(refused.contains("there is no log in "), "{refused}");
}

#[test]
fn a_directory_on_a_read_only_file_system_can_be_exported_checked_and_copied() {
    let mut source = Server::start(tarn(), &["--edition", "durable"]).unwrap();
    assert_eq!(ask(&mut source.connect().unwrap(), &["SET", "key", "1"]), "OK");
    source.kill();
    // Without the file that locks hang on, which cannot be made there.
    std::fs::remove_file(source.dir().join("log.lock")).unwrap();
    let away = Server::start(tarn(), &["--edition", "memory"]).unwrap();
    let place = away.dir().join("mounted");
    std::fs::create_dir(&place).unwrap();
    let mount =
        |words: &[&str]| Command::new("mount").args(words).output().is_ok_and(|done| done.status.success());
    if !mount(&["--bind", text(source.dir()), text(&place)]) {
        println!("skipped: nothing can be mounted here");
        return;
    }
    let _mounted = Mounted(place.clone());
    if !mount(&["-o", "remount,ro,bind", text(&place)]) {
        println!("skipped: nothing can be made read-only here");
        return;
    }
    let to = away.dir().join("out.rdb");
    assert!(shown_by("export", &["--dir", text(&place), "--to", text(&to)]).contains("Wrote 1 keys"));
    shown_by("check", &[text(&place)]);
    shown_by("restore", &[text(&place), "--to", "@4000000000", "--into", text(&away.dir().join("copy"))]);
}

/// Unmounted when dropped.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        drop(Command::new("umount").arg(&self.0).status());
    }
}
