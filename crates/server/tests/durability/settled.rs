//! What happened to keys by themselves stands in the log before what others do to them, and does not gather while the disk
//! takes nothing.

use crate::shown::Content;
use crate::site::Site;
use engine::residency::by_hand;
use keyspace::Progress;
use log::Lsn;
use sys::file::simulated::{Disk, Faults, Survival};
use sys::{Clock, UnixMs};
use testkit::generate::words;

const NOW: UnixMs = UnixMs(1_700_000_000_000);

fn requests(lines: &[&str]) -> Vec<Vec<Vec<u8>>> {
    lines.iter().map(|line| words(&line.split(' ').collect::<Vec<_>>())).collect()
}

/// The text of a key that a start finds on what a power cut leaves.
fn text_after_a_cut(disk: &Disk, clock: &Clock, db: u32, key: &[u8]) -> Option<String> {
    let site = Site::open("durable", &disk.power_cut(1, Survival::Nothing), 1, clock, 1).unwrap();
    site.shown(db, key).map(|shown| match shown.content {
        Content::Bytes(text) => String::from_utf8(text).unwrap(),
        other => panic!("{other:?}"),
    })
}

#[test]
fn an_exchange_of_databases_does_not_delete_what_it_brings_under_the_name_of_an_expired_key() {
    let (clock, disk) = (Clock::simulated(NOW), Disk::new(1));
    let mut site = Site::open("durable", &disk, 1, &clock, 1).unwrap();
    site.wait(words(&["BLPOP", "k", "0"]));
    site.run(&requests(&["SET k short PX 10", "SELECT 1", "SET k live"]));
    clock.advance_ms(1000);
    site.run(&requests(&["SWAPDB 0 1"]));
    site.log().flush();
    assert_eq!(text_after_a_cut(&disk, &clock, 0, b"k").as_deref(), Some("live"));
}

#[test]
fn commands_of_the_server_that_meet_an_expired_key_leave_nothing_to_be_said_later() {
    let looks =
        ["DEBUG OBJECT k", "MEMORY USAGE k", "OBJECT ENCODING k", "WATCH k", "MIGRATE 127.0.0.1 1 k 0 10"];
    for look in looks {
        let (clock, disk) = (Clock::simulated(NOW), Disk::new(1));
        let mut site = Site::open("durable", &disk, 1, &clock, 1).unwrap();
        site.run(&requests(&["SET k short PX 10"]));
        clock.advance_ms(1000);
        site.run(&requests(&[look]));
        // Another worker's write comes first.
        let key = site.server.engine.keyspace.key(keyspace::DbIndex(0), b"k");
        let batch = site.server.engine.keyspace.enter(1);
        let mut edit = batch.edit(&[key], clock.now(), keyspace::Touch::Yes);
        edit.set(&key, keyspace::NewValue::from_bytes(b"acknowledged"), keyspace::Expiry::Clear);
        edit.say(&key, &[b"SET", b"k", b"acknowledged"]);
        edit.finish();
        drop(batch);
        site.run(&requests(&["SET other v"]));
        site.log().flush();
        assert_eq!(text_after_a_cut(&disk, &clock, 0, b"k").as_deref(), Some("acknowledged"), "{look}");
    }
}

#[test]
fn what_expires_does_not_gather_while_the_log_has_failed() {
    let (clock, disk) = (Clock::simulated(NOW), Disk::new(1));
    let mut site = Site::open("durable", &disk, 1, &clock, 1).unwrap();
    let lines: Vec<String> = (0..500).map(|number| format!("SET k:{number} v PX 10")).collect();
    site.run(&requests(&lines.iter().map(String::as_str).collect::<Vec<_>>()));
    site.log().flush();
    site.run(&requests(&["SET last v"]));
    disk.set_faults(Faults { write_error_one_in: 1, ..Faults::default() });
    site.log().flush();
    assert!(site.log().writable().is_err());
    let before: Lsn = site.log().appended();
    clock.advance_ms(60_000);
    let look = |site: &mut Site| {
        let (out, _) = site.run(&requests(&["GET k:1", "EXISTS k:2 k:3"]));
        assert_eq!(String::from_utf8_lossy(&out), "$-1\r\n:0\r\n");
        for worker in 0..crate::site::WORKERS {
            let batch = site.server.engine.keyspace.enter(worker);
            let swept = batch.sweep_expired(clock.now(), || true, |_, _| {});
            assert_eq!(swept, Progress::Done);
        }
    };
    look(&mut site);
    assert_eq!((site.log().appended(), site.keys()), (before, 501));
    disk.set_faults(Faults::default());
    while site.log().writable().is_err() {
        clock.advance_ms(1000);
        site.log().flush();
    }
    look(&mut site);
    assert_eq!(site.keys(), 1, "they go when there is room");
}

#[test]
fn a_watched_key_that_cannot_be_read_fails_who_watches_it_and_no_command() {
    let (clock, disk) = (Clock::simulated(NOW), Disk::new(1));
    let mut site = Site::open("capacity", &disk, 1, &clock, 1).unwrap();
    let broken = Faults { read_error_one_in: 1, ..Faults::default() };
    let mut ask = |disk: &Disk, faults: &Faults, lines: &[&str]| {
        by_hand::spill(&site.server.engine, &mut || {}).unwrap();
        disk.set_faults(faults.clone());
        let (out, _) = site.run(&requests(lines));
        disk.set_faults(Faults::default());
        site.log().flush();
        String::from_utf8(out).unwrap()
    };
    let sound = Faults::default();
    ask(&disk, &sound, &["SET k v", "SET other v"]);
    let refused = ask(&disk, &broken, &["WATCH k", "MULTI", "PING", "EXEC"]);
    assert!(refused.starts_with("-ERR "), "{refused}");
    assert!(
        refused.ends_with("+OK\r\n+QUEUED\r\n*1\r\n+PONG\r\n"),
        "what is not watched stops nobody: {refused}"
    );
    assert_eq!(ask(&disk, &sound, &["WATCH k"]), "+OK\r\n");
    let failed = ask(&disk, &broken, &["MULTI", "PING", "SET new v", "EXEC", "PING"]);
    assert!(failed.starts_with("+OK\r\n+QUEUED\r\n+QUEUED\r\n-ERR "), "{failed}");
    assert!(failed.ends_with("\r\n+PONG\r\n"), "{failed}");
    assert_eq!(
        ask(&disk, &sound, &["EXISTS new", "MULTI", "GET k", "EXEC"]),
        ":0\r\n+OK\r\n+QUEUED\r\n*1\r\n$1\r\nv\r\n"
    );
}
