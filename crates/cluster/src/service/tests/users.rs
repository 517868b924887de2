//! Users of proxies, as a config server is told of them and tells them.

use super::super::desk::{Desk, Followed, Published};
use super::super::requests::{self, Flow, Session};
use super::super::{Event, Keeper, watcher};
use super::*;
use crate::store::Changed;
use std::rc::Rc;
use tokio::sync::{mpsc, watch};

fn said(config: &Config, words: &[&str]) -> Value {
    config.client().call(words).expect("it answers")
}

fn follow_users(client: &mut Client, revision: u64) -> Value {
    client.call(&["USERS", "FOLLOW", &revision.to_string()]).expect("it answers")
}

/// What comes next that is no sign of life: the revision, and the lines.
fn next(first: Option<Value>, client: &mut Client) -> (u64, Vec<String>) {
    let mut value = first;
    loop {
        match value.take().unwrap_or_else(|| client.read_value().expect("it goes on")) {
            Value::Bulk(text) if text.is_empty() => {}
            Value::Bulk(text) => {
                let text = String::from_utf8(text).expect("it is text");
                let mut lines = text.lines().map(str::to_owned);
                let head = lines.next().expect("it has a head");
                let words: Vec<&str> = head.split(' ').collect();
                assert_eq!((words[0], words[2]), ("users", "c".repeat(40).as_str()));
                return (words[1].parse().expect("a revision"), lines.collect());
            }
            other => panic!("{other:?}"),
        }
    }
}

fn revision_of(value: &Value) -> u64 {
    let Value::Simple(line) = value else { panic!("{value:?}") };
    let line = String::from_utf8_lossy(line);
    line.strip_prefix("revision ").and_then(|word| word.parse().ok()).expect("a revision")
}

#[test]
fn who_follows_is_told_of_each_change() {
    let config = Config::start();
    let mut follower = config.client();
    let first = follow_users(&mut follower, 0);
    assert_eq!(next(Some(first), &mut follower).1, Vec::<String>::new());
    let alice = "user alice on #00 ~* +@all";
    let revision = revision_of(&said(&config, &["USERS", "SET", alice]));
    assert_eq!(next(None, &mut follower), (revision, vec![alice.to_owned()]));
    // What is so already is no change.
    assert_eq!(revision_of(&said(&config, &["USERS", "SET", alice])), revision);
    let bob = "user b/ob off";
    let later = revision_of(&said(&config, &["USERS", "SET", bob, "IF-AT", &revision.to_string()]));
    assert_eq!(next(None, &mut follower), (later, vec![alice.to_owned(), bob.to_owned()]));
    let late = said(&config, &["USERS", "SET", "user alice off", "IF-AT", &revision.to_string()]);
    assert!(is_error(&late, "CHANGED"), "{late:?}");
    // Nor does who takes it for another cluster's change anything.
    let (own, other) = ("c".repeat(40), "d".repeat(40));
    for words in
        [&["USERS", "SET", "user alice off", "OF", &other][..], &["USERS", "DEL", "alice", "OF", &other]]
    {
        let refused = said(&config, words);
        assert!(is_error(&refused, "WRONGCLUSTER"), "{refused:?}");
    }
    let gone = revision_of(&said(&config, &["USERS", "DEL", "alice", "OF", &own]));
    assert_eq!(next(None, &mut follower), (gone, vec![bob.to_owned()]));
    assert!(is_error(&said(&config, &["USERS", "DEL", "alice"]), "NOUSER"));
    let told = ask(&mut config.client(), &["USERS", "GET"]);
    assert!(told.ends_with(&format!("\n{bob}\n")), "{told}");
    for wrong in [
        &["USERS"][..],
        &["USERS", "SET"],
        &["USERS", "SET", "alice on"],
        &["USERS", "SET", "user alice on >secret"],
        &["USERS", "SET", "user alice on\nuser bob on"],
        &["USERS", "SET", alice, "IF-AT", "x"],
        &["USERS", "SET", alice, "OF"],
        &["USERS", "DEL", "alice", "BY", &own],
        &["USERS", "DEL", "a b"],
        &["USERS", "FOLLOW", "x"],
    ] {
        assert!(is_error(&said(&config, wrong), "ERR"), "{wrong:?}");
    }
    assert!(matches!(said(&config, &["USERS", "HELP"]), Value::Array(_)));
    // Also that somebody is gone is known to have happened.
    let known = config.way.latest(PREFIX).expect("it is reached").changed.0;
    assert_eq!(known, gone);
    // Topologies are no news of users, and users none of topologies.
    assert_eq!(follow(&mut config.client(), known), Value::Bulk(Vec::new()));
    assert_eq!(follow_users(&mut config.client(), known), Value::Bulk(Vec::new()));
    assert!(is_error(&follow_users(&mut config.client(), known + 1), "PAST"));
}

#[test]
fn what_cannot_be_read_is_told_and_stays() {
    let config = Config::start();
    let put = |name: &str, value: &str| {
        let put = Write::Put { key: format!("{PREFIX}users/{name}"), value: value.to_owned(), lease: None };
        let done = config.way.change(&Change { compares: Vec::new(), writes: vec![put] });
        assert!(matches!(done, Outcome::Done(_)));
    };
    let mut follower = config.client();
    let first = follow_users(&mut follower, 0);
    next(Some(first), &mut follower);
    put("alice", "spoilt by somebody");
    assert_eq!(next(None, &mut follower).1, ["unreadable alice"]);
    put("%zz", "user zz on");
    assert_eq!(next(None, &mut follower).1, ["unreadable alice"]);
    let words: [&[&str]; 2] = [&["USERS", "SET", "user alice on"], &["USERS", "DEL", "alice"]];
    for words in words {
        let refused = said(&config, words);
        let Value::Error(why) = &refused else { panic!("{refused:?}") };
        assert!(String::from_utf8_lossy(why).contains("users/alice that makes no sense"), "{refused:?}");
    }
    put("alice", "user alice on");
    assert_eq!(next(None, &mut follower).1, ["user alice on"]);
    assert!(revision_of(&said(&config, &["USERS", "SET", "user alice off"])) > 0);
}

#[test]
fn who_is_cut_off_from_the_store_tells_nothing_of_users() {
    let config = Config::start();
    let mut follower = config.client();
    let first = follow_users(&mut follower, 0);
    next(Some(first), &mut follower);
    config.cut(true);
    let end = loop {
        match follower.read_value().expect("it says why it ends") {
            Value::Bulk(_) => {}
            end => break end,
        }
    };
    assert!(is_error(&end, "UNAVAILABLE"), "{end:?}");
    assert!(is_error(&said(&config, &["USERS", "GET"]), "UNAVAILABLE"));
    config.cut(false);
    wait_until("it tells again", || matches!(follow_users(&mut config.client(), 0), Value::Bulk(_)));
    assert!(matches!(said(&config, &["USERS", "GET"]), Value::Bulk(_)));
}

/// As if another config server had made the change.
#[test]
fn who_asks_for_users_is_not_told_what_was_so_before() {
    let config = Config::start();
    config.mute(true);
    let put =
        Write::Put { key: format!("{PREFIX}users/alice"), value: "user alice on".to_owned(), lease: None };
    let done = config.way.change(&Change { compares: Vec::new(), writes: vec![put] });
    assert!(matches!(done, Outcome::Done(_)));
    assert!(is_error(&said(&config, &["USERS", "GET"]), "UNAVAILABLE"));
    config.mute(false);
    wait_until("it is told", || match said(&config, &["USERS", "GET"]) {
        Value::Bulk(text) => {
            assert!(text.ends_with(b"\nuser alice on\n"), "{}", text.escape_ascii());
            true
        }
        _ => false,
    });
}

#[test]
fn users_that_take_long_to_be_sent_hold_no_topology_back() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Arc::new(Embedded::open(Fs::Real, dir.path()).expect("nobody else has it"));
    let keeping = async {
        let (letters, _incoming) = mpsc::channel(1);
        let (publish, published) = watch::channel(Published::default());
        let desk = Rc::new(Desk::new(settings(1, None), store, letters, published.clone()));
        // More than can be sent for minutes.
        desk.followers.of(Followed::Users).set(1 << 40);
        let mut keeper = Keeper::new(&desk, publish);
        let entry =
            |key: &str, value: String| Entry { key: format!("{PREFIX}{key}"), value, revision: Revision(1) };
        let reading = Reading { revision: Revision(1), entries: vec![entry("cluster", "c".repeat(40))] };
        keeper.step(Event::Read(reading));
        keeper.publish_news();
        let first = published.borrow().users.clone();
        assert_eq!((first.seen, first.revision), (Some(Revision(1)), 1));
        let mut changes = |revision, key: &str, value: String| {
            let changed = vec![Changed { key: format!("{PREFIX}{key}"), value: Some(value) }];
            keeper.step(Event::Changed { revision: Revision(revision), changed });
            keeper.publish_news();
        };
        changes(2, "users/alice", "user alice on".to_owned());
        changes(3, &format!("servers/{}", id('b')), record('b'));
        let told = published.borrow().clone();
        assert_eq!((told.revision, told.seen), (3, Some(Revision(3))));
        assert!(told.text.contains(&id('b')));
        assert_eq!((told.users.seen, told.users.text), (first.seen, first.text), "they wait");
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    tokio::task::LocalSet::new().block_on(&runtime.expect("there is room"), keeping);
}

#[test]
fn who_asks_for_users_is_told_while_those_who_follow_have_to_wait() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Arc::new(Embedded::open(Fs::Real, dir.path()).expect("nobody else has it"));
    let serving = async {
        let (letters, incoming) = mpsc::channel(16);
        let (publish, mut published) = watch::channel(Published::default());
        let desk = Rc::new(Desk::new(settings(1, None), store.clone(), letters, published.clone()));
        // More than can be sent for minutes.
        desk.followers.of(Followed::Users).set(1 << 40);
        watcher::begin(&desk).expect("there is a thread");
        let mut keeper = Keeper::new(&desk, publish);
        tokio::task::spawn_local(async move { keeper.run(incoming).await });
        let is_told = published.wait_for(|now| !now.users.text.is_empty()).await;
        let first = is_told.expect("it is told that there are none").users.clone();
        let put = Write::Put {
            key: format!("{PREFIX}users/alice"),
            value: "user alice on".to_owned(),
            lease: None,
        };
        let done = store.change(&Change { compares: Vec::new(), writes: vec![put] });
        assert!(matches!(done, Outcome::Done(_)));
        let mut session = Session::new(&desk);
        let mut ask = async |words: &[&str]| {
            let words = words.iter().map(|word| word.as_bytes().to_vec()).collect();
            let mut out = Vec::new();
            let flow = requests::answer(&desk, &mut session, words, &mut out).await;
            (flow, String::from_utf8(out).expect("it is text"))
        };
        let (_, told) = ask(&["USERS", "GET"]).await;
        assert!(told.starts_with('$') && told.contains("\nuser alice on\n"), "{told}");
        let (flow, told) = ask(&["USERS", "FOLLOW", &first.revision.to_string()]).await;
        let Flow::Follow { users: Some(users), .. } = flow else { panic!("{told}") };
        assert!(users.revision > first.revision && users.text.ends_with("\nuser alice on\n"));
        let (flow, told) = ask(&["USERS", "FOLLOW", &users.revision.to_string()]).await;
        assert!(matches!(flow, Flow::Follow { .. }), "{told}");
        assert_eq!(published.borrow().users.revision, first.revision, "they wait");
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    tokio::task::LocalSet::new().block_on(&runtime.expect("there is room"), serving);
}

#[test]
fn a_config_server_that_begins_anew_knows_the_users() {
    let dir = tempfile::tempdir().expect("a directory");
    let alice = "user alice on ~*";
    let before = {
        let config = Config::start_in(dir.path(), None);
        revision_of(&said(&config, &["USERS", "SET", alice]))
    };
    let config = {
        let mut opened = None;
        wait_until("the one before has ended", || {
            opened = Embedded::open(Fs::Real, dir.path()).ok();
            opened.is_some()
        });
        drop(opened);
        Config::start_in(dir.path(), None)
    };
    let mut follower = config.client();
    let first = follow_users(&mut follower, 0);
    let (revision, lines) = next(Some(first), &mut follower);
    assert!(revision == before && lines == [alice], "{revision} {lines:?}");
}
