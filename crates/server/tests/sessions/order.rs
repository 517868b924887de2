//! The order of what a client is told and what it is shown: messages, invalidations and replies come as if everything happened one
//! after the other.

use crate::harness::{Peer, TestServer};
use log::{Flushing, Options};
use server::durable;
use std::sync::atomic::{AtomicBool, Ordering};
use sys::file::Fs;
use wire::Value;

/// A peer on another worker than this one, or on the same.
fn peer_at(server: &TestServer, other: &mut Peer, is_same: bool) -> Peer {
    let worker_of = |peer: &mut Peer| {
        let id = peer.id();
        server.server.net.clients.get(id).unwrap().worker()
    };
    let wanted = worker_of(other);
    let mut passed = Vec::new();
    loop {
        let mut peer = server.connect();
        if (worker_of(&mut peer) == wanted) == is_same {
            return peer;
        }
        passed.push(peer);
    }
}

/// The number in a text.
fn number(value: &Value) -> u64 {
    match value {
        Value::Bulk(text) => String::from_utf8_lossy(text).parse().unwrap(),
        Value::Null => 0,
        other => panic!("{other:?}"),
    }
}

/// Somebody sets a key and publishes to what, in one transaction; whoever hears it and reads the key finds the number that it was
/// told last, always.
fn what_is_told_and_what_is_shown_agree(server: &TestServer, transaction: &[&str]) {
    const ROUNDS: u64 = 1500;
    const IN_A_ROW: usize = 20;
    let mut reader = server.connect();
    let mut writer = peer_at(server, &mut reader, false);
    reader.ask("HELLO 3");
    reader.ask("SUBSCRIBE c");
    writer.ask("SET y 0");
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for round in 1..=ROUNDS {
                let lines: Vec<String> =
                    transaction.iter().map(|line| line.replace('#', &round.to_string())).collect();
                writer.send(&lines.iter().map(String::as_str).collect::<Vec<_>>());
                writer.texts(lines.len());
            }
        });
        let (mut told, mut answers) = (0, 0);
        while told < ROUNDS {
            reader.send(&["GET y"; IN_A_ROW]);
            while answers < IN_A_ROW {
                match reader.reply().unwrap() {
                    Value::Push(message) => told = number(&message[2]),
                    shown => {
                        assert_eq!(number(&shown), told, "what is shown, and what was told last");
                        answers += 1;
                    }
                }
            }
            answers = 0;
        }
    });
}

const TOLD_LAST: &[&str] = &["MULTI", "SET y #", "SET z 1", "PUBLISH c #", "EXEC"];
const TOLD_FIRST: &[&str] = &["MULTI", "PUBLISH c #", "SET z 1", "SET y #", "EXEC"];

#[test]
fn a_message_comes_before_whatever_shows_what_came_after_it() {
    let server = TestServer::start("");
    what_is_told_and_what_is_shown_agree(&server, TOLD_LAST);
    what_is_told_and_what_is_shown_agree(&server, TOLD_FIRST);
}

#[test]
fn the_message_of_a_transaction_comes_before_whatever_shows_what_it_did() {
    let server = TestServer::start_durable("edition durable", Flushing::Threads);
    what_is_told_and_what_is_shown_agree(&server, TOLD_LAST);
    what_is_told_and_what_is_shown_agree(&server, TOLD_FIRST);
}

#[test]
fn an_invalidation_comes_before_the_first_reply_that_shows_another_value() {
    const ROUNDS: u64 = 3000;
    const IN_A_ROW: usize = 20;
    let server = TestServer::start("");
    let mut cache = server.connect();
    let mut writer = peer_at(&server, &mut cache, false);
    cache.ask("HELLO 3");
    assert_eq!(cache.ask("CLIENT TRACKING ON"), "OK");
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for _ in 0..ROUNDS {
                writer.ask("INCR x");
            }
        });
        let (mut cached, mut last) = (None, 0);
        while last < ROUNDS {
            cache.send(&["GET x"; IN_A_ROW]);
            for _ in 0..IN_A_ROW {
                let shown = loop {
                    match cache.reply().unwrap() {
                        Value::Push(_) => cached = None,
                        shown => break number(&shown),
                    }
                };
                assert!(
                    cached.is_none_or(|cached| cached == shown),
                    "{cached:?} was valid, and {shown} is shown"
                );
                assert!(last <= shown);
                (cached, last) = (Some(shown), shown);
            }
        }
    });
    // What is cached now is told of when it changes.
    let mut writer = server.connect();
    cache.send(&["GET x"]);
    while matches!(cache.reply().unwrap(), Value::Push(_)) {}
    writer.ask("INCR x");
    assert!(matches!(cache.reply(), Some(Value::Push(_))));
}

#[test]
fn nothing_of_a_channel_comes_behind_its_confirmation_though_transactions_publish() {
    const ROUNDS: usize = 30;
    let server = TestServer::start_durable("edition durable", Flushing::Threads);
    let mut listener = server.connect();
    let mut publisher = peer_at(&server, &mut listener, false);
    listener.ask("HELLO 3");
    // The channel in question is the last of many: there is time for messages while the others are left.
    let names: Vec<String> = (0..300).map(|number| format!("d{number}")).chain(["c".to_owned()]).collect();
    listener.ask("SUBSCRIBE stays");
    // A message is sealed for a while.
    let transaction =
        [["MULTI", "PUBLISH d0 m", "PUBLISH c m"].as_slice(), &["SET k v"; 40], &["EXEC"]].concat();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ending = testkit::Ends(&is_over);
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                publisher.send(&transaction);
                publisher.texts(transaction.len());
            }
        });
        for _ in 0..ROUNDS {
            listener.send(&[
                &format!("SUBSCRIBE {}", names.join(" ")),
                &format!("UNSUBSCRIBE {}", names.join(" ")),
                "ECHO done",
            ]);
            let (mut left, mut is_done) = (Vec::new(), false);
            while !is_done {
                match listener.reply().unwrap() {
                    Value::Push(words) if words[0] == Value::Bulk(b"unsubscribe".to_vec()) => {
                        left.push(words[1].clone());
                    }
                    Value::Push(words) if words[0] == Value::Bulk(b"message".to_vec()) => {
                        assert!(!left.contains(&words[1]), "{words:?} comes behind its confirmation");
                    }
                    Value::Push(_) => {}
                    other => is_done = other == Value::Bulk(b"done".to_vec()),
                }
            }
            assert_eq!(left.len(), names.len());
        }
    });
}

/// A directory of its own, which goes with it.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("tarn-sessions-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn what_is_on_disk_comes_though_the_worker_that_began_to_read_it_is_occupied() {
    let folder = Folder::new("moved");
    let directives = format!(
        "edition capacity\nmaxmemory 64mb\neager-spill yes\nenable-debug-command yes\ndir {}",
        folder.0.display()
    );
    let server = TestServer::start_after(&directives, |server| {
        durable::open_with(server, &Fs::Real, 1, Options::default()).unwrap();
    });
    let spilled = &server.server.engine.residency.counts.spilled;
    let mut sleeper = server.connect();
    let mut reader = peer_at(&server, &mut sleeper, true);
    let mut scripter = peer_at(&server, &mut sleeper, true);
    let mut warden = peer_at(&server, &mut sleeper, false);
    for round in 0..5 {
        let before = spilled.load(Ordering::Relaxed);
        assert_eq!(warden.ask(&format!("SET cold{round} v")), "OK");
        server.wait_until("it is on disk only", || spilled.load(Ordering::Relaxed) > before);
        sleeper.send(&["DEBUG SLEEP 0.05"]);
        let keyspace = &server.server.engine.keyspace;
        server.wait_until("its worker sleeps", || keyspace.try_enter(server.server.engine.guest()).is_none());
        // Both come to that worker at once: it begins to read, and then has no time.
        reader.send(&[&format!("GET cold{round}")]);
        scripter.send_words(&["EVAL", "while true do end", "0"]);
        assert_eq!(reader.text(), "v", "while the script runs");
        assert_eq!(sleeper.text(), "OK");
        while warden.ask("SCRIPT KILL") != "OK" {}
        assert!(scripter.text().contains("killed by user"));
        server.wait_until("all are back", || {
            server.server.net.clients.all().iter().all(|client| client.worker() == client.home())
        });
    }
}

#[test]
fn who_has_messages_of_a_script_that_is_not_over_waits_for_it_or_is_told_that_it_is_busy() {
    let server = TestServer::start_durable("edition durable\nbusy-reply-threshold 100", Flushing::Threads);
    let mut listener = server.connect();
    let mut scripter = peer_at(&server, &mut listener, false);
    let mut warden = server.connect();
    listener.ask("HELLO 3");
    listener.ask("SUBSCRIBE c");
    scripter.send_words(&["EVAL", "redis.call('publish', 'c', 'm') while true do end", "0"]);
    let client = server.server.net.clients.get(listener.id()).unwrap();
    server.wait_until("the message is there", || client.has_sealed_mail());
    assert!(listener.ask("GET k").starts_with("BUSY "));
    assert_eq!(listener.ask("ECHO on"), "on", "what shows nothing goes on");
    listener.send(&["GET k"]);
    while warden.ask("SCRIPT KILL") != "OK" {}
    let told = Value::Push(["message", "c", "m"].map(|word| Value::Bulk(word.into())).to_vec());
    let (mut first, mut second) = (listener.reply().unwrap(), listener.reply().unwrap());
    if matches!(&first, Value::Error(_)) {
        (first, second) = (second, Value::Null);
    }
    assert_eq!((first, second), (told, Value::Null), "the message comes first");
}

#[test]
fn who_has_begun_to_leave_a_channel_leaves_it_though_it_loses_the_right_meanwhile() {
    let server = TestServer::start_durable("edition durable", Flushing::Threads);
    let mut listener = server.connect();
    let mut scripter = peer_at(&server, &mut listener, false);
    let mut warden = server.connect();
    warden.ask("ACL SETUSER u on nopass +@all ~* &*");
    listener.ask("HELLO 3 AUTH u x");
    let id = listener.id();
    listener.ask("SUBSCRIBE d");
    for (prefix, left_then) in [("", 1), ("P", 1), ("S", 0)] {
        listener.ask(&format!("{prefix}SUBSCRIBE c"));
        scripter.send_words(&["EVAL", "redis.call('publish', 'd', 'm') while true do end", "0"]);
        let client = server.server.net.clients.get(id).unwrap();
        server.wait_until("the message is there", || client.has_sealed_mail());
        // It is closed, and waits for the message.
        let leaving = format!("{prefix}UNSUBSCRIBE c");
        listener.send(&[&leaving]);
        let is_left = || {
            let is_there = std::cell::Cell::new(false);
            server.server.pubsub.for_each(|_, name, _| is_there.set(is_there.get() | (name == b"c")));
            !is_there.get()
        };
        server.wait_until("it is being left", is_left);
        warden.ask("ACL SETUSER u -unsubscribe -punsubscribe -sunsubscribe");
        while warden.ask("SCRIPT KILL") != "OK" {}
        assert!(scripter.text().contains("killed by user"));
        for last in [Value::Bulk(b"m".to_vec()), Value::Int(left_then)] {
            let told = listener.reply().unwrap();
            assert!(
                matches!(&told, Value::Push(words) if words.last() == Some(&last)),
                "{leaving}: {told:?}"
            );
        }
        assert!(listener.ask(&leaving).starts_with("NOPERM "), "the next one is checked");
        warden.ask("ACL SETUSER u +@all");
    }
}
