//! What operators are told at starts, and by the roles around directories: no data is passed over in silence, `tarn check` says what a
//! start says, and what a sentence says to do is done here to the letter.

use crate::imports::run;
use crate::operators::{files, kill_at, move_all, refused_by, shown_by, text};
use crate::tarn;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};
use testkit::ask::{ask, wait_until};
use testkit::{Client, Program, Server};

fn started(dir: &Path, directives: &[&str]) -> Result<Server, String> {
    let words = [&["--edition", "durable", "--dir", text(dir)], directives].concat();
    Server::start(tarn(), &words).map_err(|error| error.to_string())
}

fn client_of(server: &Server) -> Client {
    server.connect().unwrap()
}

fn exists(server: &Server, keys: &[&str]) -> String {
    ask(&mut client_of(server), &[&["EXISTS"], keys].concat())
}

/// An empty directory beside others of a test, which goes with the server that owns it.
fn fresh(owner: &Server, name: &str) -> PathBuf {
    let dir = owner.dir().join(name);
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

/// Copies a directory with all that is in it.
pub fn copy_all(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(|entry| entry.unwrap()) {
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_all(&entry.path(), &to);
        } else {
            let modified = entry.metadata().unwrap().modified().unwrap();
            std::fs::copy(entry.path(), &to).unwrap();
            set_modified(&to, modified);
        }
    }
}

fn set_modified(path: &Path, time: SystemTime) {
    std::fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

/// Moves a directory's log away, and its store if it has one.
fn move_log(dir: &Path, to: &str) {
    let store = [dir.join("store")].into_iter().filter(|store| store.exists());
    let paths: Vec<PathBuf> = files(dir, "log-", "").into_iter().chain(store).collect();
    move_all(&paths, &dir.join(to));
}

/// What `tarn check` says last, which is what a start would do, and that its status fits.
fn checked(dir: &Path) -> String {
    let output = run("check", &[text(dir)]);
    let shown = String::from_utf8(output.stdout).unwrap();
    let last = shown.lines().last().unwrap_or_default().to_owned();
    assert_eq!(output.status.success(), !last.starts_with("A start refuses this: "), "{shown}");
    last
}

fn assert_check_says_the_same(dir: &Path, refused: &str) {
    let said = checked(dir);
    let sentence = said.strip_prefix("A start refuses this: ").unwrap_or_else(|| panic!("{said}, {refused}"));
    assert!(refused.contains(sentence.trim_end_matches('.')), "{refused}, {said}");
}

/// A Redis' directory with an append-only directory and an RDB file that was saved after it was left.
fn with_a_newer_snapshot() -> Server {
    let mut redis =
        Server::start(Program::Redis, &["--appendonly", "yes", "--appendfsync", "always"]).unwrap();
    let mut client = client_of(&redis);
    assert_eq!(ask(&mut client, &["SET", "both", "1"]), "OK");
    assert_eq!(ask(&mut client, &["CONFIG", "SET", "appendonly", "no"]), "OK");
    assert_eq!(ask(&mut client, &["SET", "newer", "1"]), "OK");
    assert_eq!(ask(&mut client, &["SAVE"]), "OK");
    redis.kill();
    let before = SystemTime::now() - Duration::from_secs(3600);
    files(&redis.dir().join("appendonlydir"), "", "").iter().for_each(|path| set_modified(path, before));
    redis
}

#[test]
fn append_only_files_that_are_older_than_a_snapshot_are_not_loaded_in_silence() {
    let redis = with_a_newer_snapshot();
    let place = |name: &str| {
        let dir = redis.dir().with_extension(name);
        let _ = std::fs::remove_dir_all(&dir);
        copy_all(redis.dir(), &dir);
        Removed(dir)
    };
    let refused = started(redis.dir(), &[]).unwrap_err();
    let (aof, dump) = (redis.dir().join("appendonlydir"), redis.dir().join("dump.rdb"));
    assert!(
        refused.contains(&format!("the append-only files of {} were last written 20", aof.display())),
        "{refused}"
    );
    assert!(refused.contains(&format!(", and {} later, 20", dump.display())), "{refused}");
    assert!(files(redis.dir(), "log-", "").is_empty(), "nothing was begun");
    // If the RDB file counts.
    let dir = place("snapshot");
    assert!(refused.contains(&format!("move {} away; ", aof.display())), "{refused}");
    move_all(&[dir.0.join("appendonlydir")], &dir.0.join("aside"));
    assert_eq!(exists(&started(&dir.0, &[]).unwrap(), &["both", "newer"]), "Int(2)");
    // If the others do.
    let dir = place("append-only");
    assert!(refused.contains(&format!("move {} away, or set `appendonly yes`", dump.display())), "{refused}");
    move_all(&[dir.0.join("dump.rdb")], &dir.0.join("aside"));
    assert_eq!(exists(&started(&dir.0, &[]).unwrap(), &["both", "newer"]), "Int(1)");
    let dir = place("as-redis");
    let server = started(&dir.0, &["--appendonly", "yes"]).unwrap();
    assert_eq!(exists(&server, &["both", "newer"]), "Int(1)");
    server.await_output(&[
        "dump.rdb is left aside because `appendonly` is yes, but the append-only files of ",
        &format!("move {} and all `log-*` away", dir.0.join("appendonlydir").display()),
    ]);
    drop(server);
    move_all(&[dir.0.join("appendonlydir")], &dir.0.join("aside"));
    move_all(&files(&dir.0, "log-", ""), &dir.0.join("aside"));
    assert_eq!(exists(&started(&dir.0, &["--appendonly", "yes"]).unwrap(), &["both", "newer"]), "Int(2)");
    // As `tarn import` says.
    let refused = refused_by("import", &[text(redis.dir()), "--dir", text(&redis.dir().join("never"))]);
    for (from, keys) in [(&dump, 2), (&aof, 1)] {
        assert!(refused.contains(&format!("`tarn import {}`", from.display())), "{refused}");
        let to = redis.dir().join(format!("imported-{keys}"));
        assert!(
            shown_by("import", &[text(from), "--dir", text(&to)]).contains(&format!("Wrote {keys} keys to "))
        );
    }
}

/// A directory that goes when this does.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn append_only_files_that_are_newer_count_and_the_snapshot_is_named_with_its_time() {
    let mut redis =
        Server::start(Program::Redis, &["--appendonly", "yes", "--appendfsync", "always"]).unwrap();
    let mut client = client_of(&redis);
    assert_eq!(ask(&mut client, &["SAVE"]), "OK");
    assert_eq!(ask(&mut client, &["SET", "key", "1"]), "OK");
    redis.kill();
    let later = SystemTime::now() + Duration::from_secs(3600);
    files(&redis.dir().join("appendonlydir"), "", "").iter().for_each(|path| set_modified(path, later));
    let server = started(redis.dir(), &[]).unwrap();
    assert_eq!(exists(&server, &["key"]), "Int(1)");
    server.await_output(&["dump.rdb is left aside: it is of 20", "were last written 20"]);
    drop(server);
    let again = started(redis.dir(), &[]).unwrap();
    again.await_output(&["is not read: there is a log, which was written to later"]);
    drop(again);
    // Without a log they are left aside, with their time.
    let server = Server::start(tarn(), &["--edition", "memory", "--dir", text(redis.dir())]).unwrap();
    server.await_output(&["last written 20", "is left aside"]);
}

#[test]
fn an_import_under_another_name_is_told_and_found() {
    let mut source = Server::start(tarn(), &["--edition", "memory"]).unwrap();
    let mut client = client_of(&source);
    assert_eq!(ask(&mut client, &["SET", "key", "1"]), "OK");
    assert_eq!(ask(&mut client, &["SAVE"]), "OK");
    source.kill();
    let dir = source.dir().join("new");
    let told = shown_by(
        "import",
        &[text(&source.dir().join("dump.rdb")), "--dir", text(&dir), "--dbfilename", "x.rdb"],
    );
    assert!(
        told.contains(&format!("Start with `tarn server --dir {} --dbfilename x.rdb`", dir.display())),
        "{told}"
    );
    for edition in ["durable", "capacity", "memory"] {
        let begin = |directives: &[&str]| {
            let words =
                [&["--edition", edition, "--dir", text(&dir), "--maxmemory", "100mb"], directives].concat();
            Server::start(tarn(), &words).unwrap()
        };
        let empty = begin(&[]);
        assert_eq!(exists(&empty, &["key"]), "Int(0)");
        let what = if edition == "capacity" { "all `log-*` and `store`" } else { "all `log-*`" };
        empty.await_output(&[
            &format!("There is no data, and {} has x.rdb, which is not read", dir.display()),
            &format!("end this server, move {what} away, and start with `--dbfilename x.rdb`"),
        ]);
        drop(empty);
        move_log(&dir, "aside");
        let there = begin(&["--dbfilename", "x.rdb"]);
        assert_eq!(exists(&there, &["key"]), "Int(1)");
        drop(there);
        move_log(&dir, "aside again");
    }
}

#[test]
fn a_start_with_too_few_databases_says_how_many_there_must_be() {
    for (edition, with_checkpoint, needed) in
        [("durable", false, 31), ("durable", true, 31), ("capacity", false, 31), ("capacity", true, 64)]
    {
        let directives = ["--edition", edition, "--maxmemory", "100mb", "--databases", "64"];
        let mut server = Server::start(tarn(), &directives).unwrap();
        let mut client = client_of(&server);
        for db in ["20", "5"] {
            assert_eq!(ask(&mut client, &["SELECT", db]), "OK");
            assert_eq!(ask(&mut client, &["SET", "key", "1"]), "OK");
        }
        // What is long is not said again: the log names the database within an effect.
        assert_eq!(ask(&mut client, &["SETRANGE", "long", "200000", "x"]), "Int(200001)");
        assert_eq!(ask(&mut client, &["COPY", "long", "key", "DB", "30"]), "Int(1)");
        if with_checkpoint {
            ask(&mut client, &["BGREWRITEAOF"]);
            wait_until("the checkpoint is written", || {
                ask(&mut client, &["INFO", "persistence"]).contains("aof_rewrite_in_progress:0")
            });
        }
        server.kill();
        let begin = |databases: &str| {
            let directives = ["--edition", edition, "--maxmemory", "100mb", "--dir", text(server.dir())];
            Server::start(tarn(), &[&directives[..], &["--databases", databases]].concat())
        };
        let refused = begin("16").unwrap_err().to_string();
        let remedy =
            format!("`databases` is 16, and must be {needed} or more; start with `--databases {needed}`");
        assert!(refused.contains(&remedy), "{edition} {with_checkpoint}: {refused}");
        let to = server.dir().join("out.rdb");
        let words =
            ["--dir", text(server.dir()), "--to", text(&to), "--edition", edition, "--maxmemory", "100mb"];
        assert!(refused_by("export", &words).contains(&remedy));
        assert_check_says_the_same(server.dir(), &refused);
        let check = |databases: &str| run("check", &[text(server.dir()), "--databases", databases]);
        let fewer = String::from_utf8(check("7").stdout).unwrap();
        assert!(fewer.contains(&format!("`databases` is 7, and must be {needed} or more")), "{fewer}");
        assert!(!check(&(needed - 1).to_string()).status.success());
        assert!(check(&needed.to_string()).status.success());
        assert!(begin(&(needed - 1).to_string()).is_err());
        let again = begin(&needed.to_string()).unwrap();
        let mut client = client_of(&again);
        assert_eq!(ask(&mut client, &["SELECT", "30"]), "OK");
        assert_eq!(ask(&mut client, &["STRLEN", "key"]), "Int(200001)");
    }
}

#[test]
fn check_and_export_refuse_the_newer_snapshot_that_a_start_refuses() {
    let mut durable = Server::start(tarn(), &["--edition", "durable"]).unwrap();
    let dir = durable.dir().to_owned();
    assert_eq!(ask(&mut client_of(&durable), &["SET", "durable", "1"]), "OK");
    durable.kill();
    assert!(checked(&dir).starts_with("A start replays it "));
    let memory = Server::start(tarn(), &["--edition", "memory", "--dir", text(&dir)]).unwrap();
    let mut client = client_of(&memory);
    assert_eq!(ask(&mut client, &["SET", "memory", "1"]), "OK");
    assert_eq!(ask(&mut client, &["SAVE"]), "OK");
    drop(memory);
    let refused = durable.restart().unwrap_err().to_string();
    assert_check_says_the_same(&dir, &refused);
    let to = dir.join("out.rdb");
    let words = ["--dir", text(&dir), "--to", text(&to)];
    assert!(refused_by("export", &words).contains("was written after the end of the log in "));
    assert!(!to.exists());
    // Under another name it is not what a start looks at.
    assert!(run("check", &[text(&dir), "--dbfilename", "other.rdb"]).status.success());
    shown_by("export", &[&words[..], &["--dbfilename", "other.rdb"]].concat());
    std::fs::rename(dir.join("dump.rdb"), dir.join("other.rdb")).unwrap();
    assert!(checked(&dir).starts_with("A start replays it "));
    assert!(!run("check", &[text(&dir), "--dbfilename", "other.rdb"]).status.success());
}

#[test]
fn an_import_that_was_cut_short_and_whose_files_are_gone_is_refused_and_both_ways_on_lead_on() {
    let mut source = Server::start(tarn(), &["--edition", "memory"]).unwrap();
    let mut client = client_of(&source);
    let requests: Vec<_> =
        (0..20_000).map(|key| testkit::generate::words(&["SET", &format!("key:{key}"), "value"])).collect();
    client.pipeline(&requests).unwrap();
    assert_eq!(ask(&mut client, &["SAVE"]), "OK");
    source.kill();
    // A kill may come too late.
    let dir = (0..50)
        .map(|number| fresh(&source, &number.to_string()))
        .find(|dir| {
            std::fs::copy(source.dir().join("dump.rdb"), dir.join("dump.rdb")).unwrap();
            assert!(kill_at(&source, dir, "log-", ".newest"));
            files(dir, "log-", ".checkpoint").is_empty()
        })
        .expect("one of the kills comes before the checkpoint is there");
    assert_eq!(
        checked(&dir),
        "A start does the import again that was cut short before all was written to the log, up to LSN 1."
    );
    let aside = source.dir().join("aside");
    move_all(&[dir.join("dump.rdb")], &aside);
    let refused = started(&dir, &[]).unwrap_err();
    assert_check_says_the_same(&dir, &refused);
    assert!(refused.contains(&format!("or remove all `log-*` from {} to begin", dir.display())), "{refused}");
    let empty = fresh(&source, "empty");
    copy_all(&dir, &empty);
    files(&empty, "log-", "").iter().for_each(|path| std::fs::remove_file(path).unwrap());
    assert_eq!(ask(&mut client_of(&started(&empty, &[]).unwrap()), &["DBSIZE"]), "Int(0)");
    move_all(&[aside.join("dump.rdb")], &dir);
    assert_eq!(ask(&mut client_of(&started(&dir, &[]).unwrap()), &["DBSIZE"]), "Int(20000)");
}

#[test]
fn a_restore_to_what_is_not_there_says_what_is() {
    let mut source = Server::start(tarn(), &["--edition", "durable"]).unwrap();
    let mut client = client_of(&source);
    for value in ["1", "2", "3"] {
        assert_eq!(ask(&mut client, &["SET", "key", value]), "OK");
    }
    source.kill();
    let copy = source.dir().join("copy");
    let restore = |to: &str| refused_by("restore", &[text(source.dir()), "--to", to, "--into", text(&copy)]);
    // Seconds without their mark.
    let refused = restore("1795339800");
    assert!(
        refused.contains("ends before LSN 1795339800; a copy can be made of any LSN from 0 to "),
        "{refused}"
    );
    assert!(refused.contains("written @1795339800)") && !copy.exists(), "{refused}");
    let end = refused.split_once(" from 0 to ").unwrap().1.split_once(',').unwrap().0.to_owned();
    let words = [text(source.dir()), "--to", &end, "--into", text(&copy)];
    assert!(shown_by("restore", &words).contains(&format!("the log ends at LSN {end}")));
    assert!(refused_by("restore", &words).contains("name an empty one"));
    // At its beginning there was nothing.
    let none = source.dir().join("none");
    let told = shown_by("restore", &[text(source.dir()), "--to", "1", "--into", text(&none)]);
    assert!(told.contains("it holds nothing: there was nothing yet"), "{told}");
    // A time may be written as the sentence says; this one is later than all.
    let late = source.dir().join("late");
    shown_by("restore", &[text(source.dir()), "--to", "@4000000000", "--into", text(&late)]);
    assert_eq!(ask(&mut client_of(&started(&late, &[]).unwrap()), &["GET", "key"]), "3");
}

#[test]
fn fields_whose_times_have_come_since_are_kept_as_keys_are() {
    let mut source =
        Server::start(tarn(), &["--edition", "durable", "--enable-debug-command", "yes"]).unwrap();
    let mut client = client_of(&source);
    assert_eq!(ask(&mut client, &["DEBUG", "SET-ACTIVE-EXPIRE", "0"]), "OK");
    let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis();
    let set = |client: &mut Client, key: &str, field: &str, ms: &str| {
        assert!(ask(client, &["HSET", key, field, "1"]).starts_with("Int("));
        ask(client, &["HPEXPIREAT", key, ms, "FIELDS", "1", field]);
    };
    set(&mut client, "some", "later", "4000000000000");
    assert_eq!(ask(&mut client, &["HSET", "some", "always", "1"]), "Int(1)");
    // A moment that comes after the last record, however slow the machine is.
    let (mut margin, mut soon) = (200, 0);
    while now() >= soon {
        margin *= 2;
        soon = now() + margin;
        set(&mut client, "some", "session", &soon.to_string());
        set(&mut client, "all", "session", &soon.to_string());
    }
    source.kill();
    wait_until("the time has come", || now() > soon);
    let to = source.dir().join("moment.rdb");
    shown_by("export", &["--dir", text(source.dir()), "--to", text(&to), "--keep-expired"]);
    let words = ["--edition", "memory", "--dbfilename", "moment.rdb", "--dir", text(source.dir())];
    let reader = Server::start(tarn(), &words).unwrap();
    let mut client = client_of(&reader);
    let values = ask(&mut client, &["HMGET", "some", "session", "later", "always"]);
    assert_eq!(values.matches("Bulk").count(), 3, "{values}, {}", reader.output());
    let times = ask(&mut client, &["HPEXPIRETIME", "some", "FIELDS", "2", "session", "later"]);
    assert_eq!(times, "Array([Int(-1), Int(4000000000000)])");
    assert_eq!(ask(&mut client, &["HGET", "all", "session"]), "1");
    assert_eq!(ask(&mut client, &["HPEXPIRETIME", "all", "FIELDS", "1", "session"]), "Array([Int(-1)])");
}

#[test]
fn what_is_said_of_append_only_files_leads_on() {
    let mut redis = Server::start(
        Program::Redis,
        &["--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0"],
    )
    .unwrap();
    let mut client = client_of(&redis);
    assert_eq!(ask(&mut client, &["SET", "one", "1"]), "OK");
    assert_eq!(ask(&mut client, &["SET", "two", "1"]), "OK");
    redis.kill();
    let dir = fresh(&redis, "data");
    let renew = || {
        std::fs::remove_dir_all(&dir).unwrap();
        copy_all(&redis.dir().join("appendonlydir"), &dir.join("appendonlydir"));
    };
    renew();
    let inside = dir.join("appendonlydir");
    let manifest = inside.join("appendonly.aof.manifest");
    let increment = files(&inside, "", ".incr.aof").pop().unwrap();
    let content = std::fs::read(&increment).unwrap();
    let both = || {
        assert_eq!(exists(&started(&dir, &[]).unwrap(), &["one", "two"]), "Int(2)");
        renew();
    };
    // Without its manifest: put back, or moved away.
    let aside = redis.dir().join("aside");
    move_all(std::slice::from_ref(&manifest), &aside);
    let refused = started(&dir, &[]).unwrap_err();
    assert!(refused.contains("no manifest: put it back, or move the directory away"), "{refused}");
    move_all(&[aside.join("appendonly.aof.manifest")], &inside);
    both();
    std::fs::remove_file(&manifest).unwrap();
    move_all(std::slice::from_ref(&inside), &redis.dir().join("moved"));
    assert_eq!(exists(&started(&dir, &[]).unwrap(), &["one", "two"]), "Int(0)");
    renew();
    // A file that a manifest names is not there.
    std::fs::remove_file(&increment).unwrap();
    assert!(started(&dir, &[]).unwrap_err().contains("which is not there"));
    std::fs::write(&increment, &content).unwrap();
    both();
    // Cut off, and refused: cut where the sentence says, or allowed.
    std::fs::write(&increment, &content[..content.len() - 1]).unwrap();
    let refused = started(&dir, &["--aof-load-truncated", "no"]).unwrap_err();
    assert!(refused.contains("; cut it there, or set aof-load-truncated to yes"), "{refused}");
    let offset = number_behind(&refused, "whole up to offset ");
    assert_eq!(exists(&started(&dir, &["--aof-load-truncated", "yes"]).unwrap(), &["one", "two"]), "Int(1)");
    renew();
    std::fs::write(&increment, &content[..offset]).unwrap();
    assert_eq!(exists(&started(&dir, &["--aof-load-truncated", "no"]).unwrap(), &["one", "two"]), "Int(1)");
    renew();
    // Damaged: put back, or cut.
    let mut damaged = content.clone();
    let second = content.windows(3).position(|word| word == b"two").unwrap() - 4;
    damaged[second] = b'?';
    std::fs::write(&increment, &damaged).unwrap();
    let refused = started(&dir, &[]).unwrap_err();
    assert!(
        refused.contains("; put it back from a copy, or cut it there, which loses all that follows"),
        "{refused}"
    );
    let offset = number_behind(&refused, "damaged at offset ");
    std::fs::write(&increment, &damaged[..offset]).unwrap();
    assert_eq!(exists(&started(&dir, &[]).unwrap(), &["one", "two"]), "Int(1)");
    renew();
    both();
    // A server without a log leaves them aside: with one, or by an import, they are read.
    let memory = |directives: &[&str]| {
        let words = [&["--edition", "memory", "--save", "3600 1", "--dir", text(&dir)], directives].concat();
        Server::start(tarn(), &words).unwrap()
    };
    let without = memory(&[]);
    assert_eq!(exists(&without, &["one", "two"]), "Int(0)");
    without.await_output(&["is left aside: read it with appendonly yes, or with tarn import"]);
    assert_eq!(ask(&mut client_of(&without), &["SAVE"]), "OK");
    drop(without);
    assert_eq!(exists(&memory(&["--appendonly", "yes"]), &["one", "two"]), "Int(2)");
    let by_import = redis.dir().join("by-import");
    assert!(shown_by("import", &[text(&inside), "--dir", text(&by_import)]).contains("Wrote 2 keys"));
    renew();
    // Several manifests: the one that counts is named.
    std::fs::copy(&manifest, inside.join("other.manifest")).unwrap();
    let to = redis.dir().join("to");
    assert!(
        refused_by("import", &[text(&inside), "--dir", text(&to)])
            .contains("several manifests: name the one")
    );
    assert!(shown_by("import", &[text(&manifest), "--dir", text(&to)]).contains("Wrote 2 keys"));
}

fn number_behind(text: &str, words: &str) -> usize {
    let digits = text.split_once(words).unwrap().1;
    digits[..digits.find(|sign: char| !sign.is_ascii_digit()).unwrap()].parse().unwrap()
}

#[test]
fn what_the_roles_say_to_do_instead_leads_on() {
    let mut server = Server::start(tarn(), &["--edition", "durable", "--databases", "64"]).unwrap();
    let mut client = client_of(&server);
    assert_eq!(ask(&mut client, &["SELECT", "20"]), "OK");
    assert_eq!(ask(&mut client, &["SET", "key", "1"]), "OK");
    let dir = server.dir().to_owned();
    let to = dir.join("out.rdb");
    // Whoever has it is to be stopped first.
    let refused = refused_by("export", &["--dir", text(&dir), "--to", text(&to)]);
    assert!(refused.contains("is in use by another server; stop that one first"), "{refused}");
    assert!(started(&dir, &[]).unwrap_err().contains("is in use by another server; stop that one first"));
    server.kill();
    // The role and the start for a directory that `import` refuses.
    let away = Server::start(tarn(), &["--edition", "memory"]).unwrap();
    let new = away.dir().join("new");
    let refused = refused_by("import", &[text(&dir), "--dir", text(&new)]);
    assert!(refused.contains(&format!("`--dir {}`", dir.display())), "{refused}");
    assert!(refused.contains(&format!("`tarn export --dir {} --to FILE.rdb`", dir.display())), "{refused}");
    shown_by("export", &["--dir", text(&dir), "--to", text(&to), "--databases", "64"]);
    assert!(
        refused_by("export", &["--dir", text(&dir), "--to", text(&to), "--databases", "64"])
            .contains("--force replaces it")
    );
    shown_by("export", &["--dir", text(&dir), "--to", text(&to), "--databases", "64", "--force"]);
    // An RDB file with more databases.
    let refused = refused_by("import", &[text(&to), "--dir", text(&new)]);
    assert!(refused.contains("it has a database 20, and `databases` is 16"), "{refused}");
    let told = shown_by("import", &[text(&to), "--dir", text(&new), "--databases", "64"]);
    assert!(
        told.contains(&format!("Start with `tarn server --dir {} --databases 21`", new.display())),
        "{told}"
    );
    assert!(started(&new, &[]).unwrap_err().contains("it has a database 20, and `databases` is 16"));
    let there = started(&new, &["--databases", "21"]).unwrap();
    let mut client = client_of(&there);
    assert_eq!(ask(&mut client, &["SELECT", "20"]), "OK");
    assert_eq!(ask(&mut client, &["GET", "key"]), "1");
    drop(there);
    // A directory with data is refused, another is taken.
    let refused = refused_by("import", &[text(&to), "--dir", text(&new), "--databases", "64"]);
    assert!(refused.contains("name a directory without data"), "{refused}");
    // A copy that was cut short.
    let copy = away.dir().join("copy");
    let words = [text(&dir), "--to", "@4000000000", "--into", text(&copy)];
    shown_by("restore", &words);
    std::fs::write(copy.join("log-copy.unfinished"), "").unwrap();
    let refused = started(&copy, &["--databases", "64"]).unwrap_err();
    assert!(refused.contains("remove the directory, and make the copy again"), "{refused}");
    assert_check_says_the_same(&copy, &refused);
    std::fs::remove_dir_all(&copy).unwrap();
    shown_by("restore", &words);
    started(&copy, &["--databases", "64"]).unwrap();
}

#[test]
fn a_damaged_log_of_a_real_server_is_restored_by_the_words_of_the_refusal() {
    let mut server = Server::start(tarn(), &["--edition", "durable", "--log-segment-size", "1mb"]).unwrap();
    let mut client = client_of(&server);
    let value = "x".repeat(100_000);
    for number in 0..30 {
        assert_eq!(ask(&mut client, &["SET", &format!("key:{number}"), &value]), "OK");
    }
    server.kill();
    let dir = server.dir().to_owned();
    let mut segments = files(&dir, "log-", ".segment");
    segments.sort();
    let mut content = std::fs::read(&segments[1]).unwrap();
    content[500_000] ^= 1;
    std::fs::write(&segments[1], &content).unwrap();
    let refused = server.restart().unwrap_err().to_string();
    assert_check_says_the_same(&dir, &refused);
    // As it stands there, with the two names filled in.
    let words = refused.split_once("`tarn ").unwrap().1.split_once('`').unwrap().0;
    let copy = dir.join("copy");
    let words: Vec<&str> = words
        .split(' ')
        .map(|word| match word {
            "DIR" => text(&dir),
            "NEWDIR" => text(&copy),
            word => word,
        })
        .collect();
    shown_by(words[0], &words[1..]);
    let copied = started(&copy, &[]).unwrap();
    let keys = ask(&mut client_of(&copied), &["DBSIZE"]);
    assert!(keys != "Int(0)" && keys != "Int(30)", "{keys}");
}

#[test]
fn what_is_said_of_a_directory_of_the_capacity_edition_leads_on() {
    let directives = ["--edition", "capacity", "--maxmemory", "100mb"];
    let mut server = Server::start(tarn(), &directives).unwrap();
    let mut client = client_of(&server);
    assert_eq!(ask(&mut client, &["SET", "key", "1"]), "OK");
    ask(&mut client, &["BGREWRITEAOF"]);
    wait_until("the checkpoint is written", || {
        ask(&mut client, &["INFO", "persistence"]).contains("aof_rewrite_in_progress:0")
    });
    assert_eq!(ask(&mut client, &["SAVE"]), "OK");
    server.kill();
    let dir = server.dir();
    let copy = fresh(&server, "copy");
    let refused =
        refused_by("restore", &[text(dir), "--to", "@4000000000", "--into", text(&dir.join("restored"))]);
    assert!(
        refused.contains("copy the whole directory while no server runs, or take RDB files (BGSAVE)"),
        "{refused}"
    );
    files(dir, "log", "")
        .iter()
        .for_each(|path| assert!(std::fs::copy(path, copy.join(path.file_name().unwrap())).is_ok()));
    copy_all(&dir.join("store"), &copy.join("store"));
    let there = Server::start(tarn(), &[&directives[..], &["--dir", text(&copy)]].concat()).unwrap();
    assert_eq!(exists(&there, &["key"]), "Int(1)");
    let alone = fresh(&server, "alone");
    std::fs::copy(dir.join("dump.rdb"), alone.join("dump.rdb")).unwrap();
    assert_eq!(exists(&started(&alone, &[]).unwrap(), &["key"]), "Int(1)");
    // Another edition.
    let refused = started(dir, &[]).unwrap_err();
    let both_ways = "was written by the capacity edition: start it with `--edition capacity`, or take the data over with `tarn export`";
    assert!(refused.contains(both_ways), "{refused}");
    let to = dir.join("out.rdb");
    shown_by("export", &["--dir", text(dir), "--to", text(&to)]);
    server.restart().unwrap();
}

/// Why a start is refused that finds this on its standard input.
fn refused_with_input(words: &[&str], input: &str) -> String {
    let Program::Tarn(path) = tarn() else { unreachable!("the program under test is Tarn") };
    let mut command = Command::new(path);
    command.arg("server").args(words).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{words:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn standard_input_is_read_where_a_dash_stands_in_front_or_at_the_end() {
    for words in [&["-", "--edition", "memory"][..], &["--edition", "memory", "-"]] {
        let refused = refused_with_input(words, "# comment\nport lots\n");
        let expected = "Reading the configuration on standard input, at line 2\n>>> 'port lots'\n";
        assert!(refused.contains(expected), "{words:?}: {refused}");
    }
    // It comes before the options, which win.
    let refused = refused_with_input(&["-", "--maxmemory", "lots"], "maxmemory 1gb");
    assert_eq!(
        refused,
        "Tarn cannot start with the option 'maxmemory \"lots\"': argument must be a memory value\n"
    );
}

#[test]
fn a_start_that_is_refused_leaves_no_directory_behind() {
    let other = Server::start(tarn(), &["--edition", "memory"]).unwrap();
    let within = other.dir().join("new").join("within");
    let taken = other.address().port().to_string();
    for words in [
        &["--prot", "7777"][..],
        &["--maxmemory", "lots"],
        &["--port", &taken],
        &["--unixsocket", "/no/such/socket"],
        &["--aclfile", "/no/such/users"],
        &["--user", "alice", "+nonsense"],
        &["--rename-command", "NONSENSE", "x"],
        &["nonsense"],
    ] {
        let output =
            run("server", &[&["--port", "0", "--bind", "127.0.0.1", "--dir", text(&within)], words].concat());
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(!said.is_empty() && !said.contains("configuration file"), "{said}");
        assert!(!other.dir().join("new").exists(), "{words:?}: {said}");
    }
}

#[test]
fn a_redis_requests_are_replayed_with_rights_that_no_user_has_now() {
    let mut redis =
        Server::start(Program::Redis, &["--appendonly", "yes", "--appendfsync", "always"]).unwrap();
    let mut client = client_of(&redis);
    assert_eq!(ask(&mut client, &["SET", "key", "1"]), "OK");
    redis.kill();
    let dir = fresh(&redis, "data");
    copy_all(&redis.dir().join("appendonlydir"), &dir.join("appendonlydir"));
    let increment = files(&dir.join("appendonlydir"), "", ".incr.aof").pop().unwrap();
    // As Redis 6 logs a script.
    let script = "redis.call('SET', KEYS[1], '2')";
    let mut content = std::fs::read(&increment).unwrap();
    wire::encode_request(&mut content, &[b"EVAL", script.as_bytes(), b"1", b"key"]);
    std::fs::write(&increment, content).unwrap();
    let there = started(&dir, &["--user", "default", "on", "nopass", "~*", "-@all", "+get"]).unwrap();
    assert_eq!(ask(&mut client_of(&there), &["GET", "key"]), "2");
}

#[test]
fn a_server_says_everywhere_how_many_threads_it_has() {
    let server =
        Server::start(tarn(), &["--edition", "memory", "--threads", "3", "--threads-min", "3"]).unwrap();
    server.await_output(&[" 3 worker threads, "]);
    assert_eq!(crate::info(&mut client_of(&server), "worker_threads"), 3);
}

#[test]
fn a_store_whose_log_is_gone_is_not_taken_for_free() {
    let directives = ["--edition", "capacity", "--maxmemory", "30mb"];
    let mut server = Server::start(tarn(), &directives).unwrap();
    let mut client = client_of(&server);
    let value = "x".repeat(10_000);
    for number in 0..4_000 {
        assert_eq!(ask(&mut client, &["SET", &number.to_string(), &value]), "OK");
    }
    let _ = client.call(&["SHUTDOWN"]);
    wait_until("it has ended", || server.ended().unwrap().is_some());
    let (dir, aside) = (server.dir(), server.dir().join("aside"));
    move_all(&files(dir, "log-", ""), &aside);
    // What is only called alike is no part of it.
    std::fs::write(dir.join("log-server.txt"), "").unwrap();
    let again = |edition: &str| {
        Server::start(tarn(), &["--edition", edition, "--maxmemory", "30mb", "--dir", text(dir)])
    };
    for edition in ["capacity", "durable"] {
        let refused = again(edition).unwrap_err().to_string();
        assert!(refused.contains("store holds data of a log that is not in"), "{refused}");
        assert!(refused.contains("put all of its `log-*` back"), "{refused}");
    }
    let refused = refused_by("check", &[text(dir)]);
    assert!(refused.contains("store holds data of a log that is not in"), "{refused}");
    move_all(&files(&aside, "log-", ""), dir);
    let there = again("capacity").unwrap();
    assert_eq!(ask(&mut client_of(&there), &["DBSIZE"]), "Int(4000)");
    assert_eq!(ask(&mut client_of(&there), &["STRLEN", "17"]), "Int(10000)");
    drop(there);
    move_log(dir, "away");
    assert_eq!(ask(&mut client_of(&again("capacity").unwrap()), &["DBSIZE"]), "Int(0)");
}

#[test]
fn what_is_to_be_moved_away_for_a_snapshot_to_count_is_all_named() {
    let redis = with_a_newer_snapshot();
    let dir = fresh(&redis, "data");
    copy_all(&redis.dir().join("appendonlydir"), &dir.join("appendonlydir"));
    drop(started(&dir, &["--appendonly", "yes"]).unwrap());
    let in_memory = Server::start(tarn(), &["--edition", "memory", "--dir", text(&dir)]).unwrap();
    let mut client = client_of(&in_memory);
    assert_eq!(ask(&mut client, &["SET", "saved", "1"]), "OK");
    assert_eq!(ask(&mut client, &["SAVE"]), "OK");
    drop(in_memory);
    let refused = started(&dir, &["--appendonly", "yes"]).unwrap_err();
    let older = dir.join("appendonlydir");
    assert!(
        refused.contains(&format!("move all `log-*` away, and {}, and the next", older.display())),
        "{refused}"
    );
    assert_check_says_the_same(&dir, &refused);
    move_log(&dir, "aside");
    move_all(&[older], &dir.join("aside"));
    let there = started(&dir, &["--appendonly", "yes"]).unwrap();
    assert_eq!(exists(&there, &["saved", "both"]), "Int(1)");
}

/// Has an RDB file of a Tarn say that it is of a later moment, by some years, and its time of change as well.
fn date_ahead(dump: &Path) {
    let mut content = std::fs::read(dump).unwrap();
    let fact = b"tarn-moment";
    let at = content.windows(fact.len()).position(|bytes| bytes == fact).unwrap() + fact.len() + 1;
    assert_eq!(content[at], b'1', "a moment in milliseconds");
    content[at] = b'2';
    // No checksum.
    let end = content.len();
    content[end - 8..].fill(0);
    std::fs::write(dump, content).unwrap();
    set_modified(dump, SystemTime::now() + Duration::from_secs(86_400));
}

#[test]
fn a_snapshot_that_is_dated_ahead_is_loaded_once_and_beside_its_log_no_news() {
    let mut source = Server::start(tarn(), &["--edition", "memory"]).unwrap();
    let mut client = client_of(&source);
    assert_eq!(ask(&mut client, &["SET", "loaded", "1"]), "OK");
    assert_eq!(ask(&mut client, &["SAVE"]), "OK");
    source.kill();
    let dir = fresh(&source, "data");
    let dump = dir.join("dump.rdb");
    std::fs::copy(source.dir().join("dump.rdb"), &dump).unwrap();
    date_ahead(&dump);
    for count in 1..4 {
        let there = started(&dir, &[]).unwrap();
        assert_eq!(ask(&mut client_of(&there), &["INCR", "count"]), format!("Int({count})"));
        assert_eq!(exists(&there, &["loaded"]), "Int(1)");
        drop(there);
        assert!(checked(&dir).starts_with("A start replays it"));
    }
    // Another one is.
    source.restart().unwrap();
    let mut client = client_of(&source);
    assert_eq!(ask(&mut client, &["SET", "other", "1"]), "OK");
    assert_eq!(ask(&mut client, &["SAVE"]), "OK");
    std::fs::copy(source.dir().join("dump.rdb"), &dump).unwrap();
    date_ahead(&dump);
    assert_check_says_the_same(&dir, &started(&dir, &[]).unwrap_err());
}
