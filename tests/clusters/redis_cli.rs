//! `redis-cli --cluster`, unchanged, at clusters of real processes: what it does there, and what it is refused with which sentence.

use super::cluster::{self, Cluster, PATIENT};
use super::guided::Guided;
use super::rounds::tags;
use crate::operators::shown_by;
use crate::tarn;
use std::io::Write;
use std::process::Stdio;
use testkit::Server;
use testkit::ask::{ask, call, ok, text};
use topology::{ServerId, ShardId, Topology};
use wire::Value;

const MEMORY: &[&str] = &["--edition", "memory", PATIENT[0], PATIENT[1], PATIENT[2], PATIENT[3]];

/// A library with one function, which says where it is from.
fn library(name: &str, says: &str) -> String {
    format!("#!lua name={name}\nredis.register_function('{name}', function() return '{says}' end)")
}

/// Whether it has done it, and what it has shown.
fn manage(words: &[&str]) -> (bool, String) {
    manage_and_say(words, "")
}

/// The same where it asks something.
fn manage_and_say(words: &[&str], answer: &str) -> (bool, String) {
    let mut command = testkit::process::bounded("redis-cli");
    command.arg("--cluster").args(words);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("there is redis-cli");
    let mut input = child.stdin.take().expect("it reads");
    // Who asks nothing may have ended.
    let _ = input.write_all(answer.as_bytes());
    drop(input);
    let output = child.wait_with_output().expect("it ends");
    let shown = [output.stdout.as_slice(), &output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&shown).into_owned())
}

/// What it shows when it has done it.
fn managed(words: &[&str]) -> String {
    let (is_done, shown) = manage(words);
    assert!(is_done, "{words:?}: {shown}");
    shown
}

/// What it shows as soon as it has done it: nodes that have not heard yet what the cluster is say otherwise for a moment.
fn managed_soon(words: &[&str], shows: impl Fn(&str) -> bool) {
    cluster::wait_until(&format!("{words:?} goes well"), || {
        let (is_done, shown) = manage(words);
        is_done && shows(&shown)
    });
}

/// Waits until all nodes that one knows say the same, and it knows this one, too.
fn wait_until_agreed(place: &str, id: ServerId) {
    let id = id.to_string();
    managed_soon(&["check", place], |shown| {
        shown.contains("[OK] All 16384 slots covered.") && shown.contains(&id)
    });
}

/// Has it delete a node. That may be done though its answer came too late.
fn delete(cluster: &Cluster, place: &str, id: ServerId) {
    let named = id.to_string();
    cluster::wait_until("it is deleted", || {
        manage(&["del-node", place, &named]).0 || !topology(cluster).servers.contains_key(&id)
    });
}

fn topology(cluster: &Cluster) -> Topology {
    let mut now = None;
    cluster::wait_until("the config server answers", || {
        now = cluster.topology();
        now.is_some()
    });
    now.expect("it has answered")
}

fn master(cluster: &Cluster, shard: u16) -> ServerId {
    topology(cluster).master_of(ShardId(shard)).expect("there is one").id
}

/// A server more, which has been told that it waits for a place.
fn add(cluster: &mut Cluster) -> ServerId {
    let id = cluster.add(MEMORY);
    let mut waiting = cluster.connect_loaded(id);
    cluster::wait_until("it has been told how the cluster looks", || {
        ask(&mut waiting, &["CLUSTER", "INFO"]).starts_with("cluster_state:ok")
    });
    id
}

/// Slots go from one node to another, one by one.
fn reshard(place: &str, count: usize, from: ServerId, to: ServerId) -> String {
    wait_until_agreed(place, to);
    let (count, from, to) = (count.to_string(), from.to_string(), to.to_string());
    let ends = ["reshard", place, "--cluster-from", &from, "--cluster-to", &to];
    managed(&[&ends[..], &["--cluster-slots", &count, "--cluster-yes"]].concat())
}

fn libraries(client: &mut testkit::Client) -> Vec<String> {
    // It shows nothing while it takes its place.
    let Value::Array(all) = call(client, &["FUNCTION", "LIST"]) else { return Vec::new() };
    let name = |library: &Value| match library {
        Value::Array(words) => match &words[1] {
            Value::Bulk(name) => String::from_utf8_lossy(name).into_owned(),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    let mut names: Vec<String> = all.iter().map(name).collect();
    names.sort();
    names
}

#[test]
fn it_checks_tells_calls_and_rebalances() {
    let cluster = Cluster::begin(2, 1, MEMORY);
    let place = cluster.place_of(master(&cluster, 0));
    let checked = managed(&["check", &place]);
    assert!(checked.contains("[OK] All 16384 slots covered."), "{checked}");
    let told = managed(&["info", &place]);
    assert_eq!(told.matches("8192 slots").count(), 2, "{told}");
    let called = managed(&["call", &place, "ECHO", "heard"]);
    assert_eq!(called.matches(": heard").count(), 2, "{called}");
    let alone = Server::start(tarn(), MEMORY).expect("it starts");
    let mut client = alone.connect_loaded().expect("it serves");
    for number in 0..20 {
        assert_eq!(call(&mut client, &["SET", &format!("k{number}"), "v"]), ok());
    }
    let imported = managed(&["import", &place, "--cluster-from", &alone.address().to_string()]);
    assert_eq!(ask(&mut client, &["DBSIZE"]), "Int(0)", "{imported}");
    let mut guided = Guided::new(&cluster);
    assert!(
        (0..20)
            .map(|number| format!("k{number}"))
            .all(|key| guided.call(&key, &["GET", &key]).unwrap() == text("v"))
    );
    let dir = tempfile::tempdir().expect("there is room for it");
    managed(&["backup", &place, &dir.path().display().to_string()]);
    assert_eq!(std::fs::read_dir(dir.path()).expect("it is there").count(), 3);
    // Nothing is wrong, so there is nothing to do.
    assert!(managed(&["fix", &place]).contains("[OK] All 16384 slots covered."));
    shown_by("cluster", &["move-slots", "1", "0-7", "--config", &cluster.place()]);
    managed_soon(&["rebalance", &place, "--cluster-threshold", "0.01"], |_| {
        let slots = topology(&cluster).slots;
        [0, 1].map(|shard| slots.count_of(ShardId(shard))) == [8192, 8192]
    });
}

#[test]
fn it_adds_a_master_which_begins_its_shard_with_its_first_slots_and_deletes_it() {
    let mut cluster = Cluster::begin(1, 1, MEMORY);
    let first = master(&cluster, 0);
    let place = cluster.place_of(first);
    let mut client = cluster.connect(first).expect("it is up");
    assert_eq!(call(&mut client, &["FUNCTION", "LOAD", &library("one", "first")]), text("one"));
    let new = add(&mut cluster);
    let (id, new_place) = (new.to_string(), cluster.place_of(new));
    // Nobody has met it yet.
    assert!(!managed(&["check", &place]).contains(&id));
    let shown = managed(&["add-node", &new_place, &place]);
    assert!(shown.contains("[OK] New node added correctly."), "{shown}");
    managed_soon(&["check", &place], |shown| shown.contains(&format!("M: {id} {new_place}")));
    cluster::wait_until("it is not added twice", || {
        let (is_done, shown) = manage(&["add-node", &new_place, &place]);
        !is_done && shown.contains("is not empty")
    });
    let tags = tags(20, |slot| slot < 16);
    let mut guided = Guided::new(&cluster);
    for tag in &tags {
        assert_eq!(guided.call(tag, &["SET", tag, "v"]).unwrap(), ok());
    }
    let shown = reshard(&place, 8, first, new);
    let now = topology(&cluster);
    assert_eq!([0, 1].map(|shard| now.slots.count_of(ShardId(shard))), [16_376, 8], "{shown}");
    assert_eq!(master(&cluster, 1), new);
    let mut client = cluster.connect(new).expect("it is up");
    cluster::wait_until("it is its shard's", || libraries(&mut client) == ["one"]);
    for tag in &tags {
        assert_eq!(guided.call(tag, &["GET", tag]).unwrap(), text("v"));
    }
    wait_until_agreed(&place, new);
    let (is_done, shown) = manage(&["del-node", &place, &id]);
    assert!(!is_done && shown.contains("is not empty! Reshard data away and try again."), "{shown}");
    reshard(&place, 8, new, first);
    delete(&cluster, &place, new);
    let now = topology(&cluster);
    assert_eq!((now.shards.len(), now.servers.len(), now.slots.count_of(ShardId(0))), (1, 1, 16_384));
    managed_soon(&["check", &place], |shown| !shown.contains(&id));
    // As every server that was removed, it comes back with an empty directory only.
    let (is_done, shown) = manage(&["add-node", &new_place, &place]);
    assert!(!is_done && shown.contains("is not empty"), "{shown}");
    let (host, port) = place.split_once(':').expect("it is an address");
    cluster::wait_until("it has heard of it", || {
        // Its reign ends while it is asked, and with that a connection on which a reply is held back.
        let refused =
            cluster.connect(new).and_then(|mut client| client.call(&["CLUSTER", "MEET", host, port]));
        let text = "was removed from the cluster; it may come back with an empty directory";
        matches!(refused, Ok(Value::Error(line)) if String::from_utf8_lossy(&line).contains(text))
    });
}

/// As redis-cli brings them to a node before it adds it.
#[test]
fn a_server_that_waits_keeps_what_is_restored_until_it_begins_a_shard() {
    let mut cluster = Cluster::begin(1, 1, MEMORY);
    let mut client = cluster.connect(master(&cluster, 0)).expect("it is up");
    assert_eq!(call(&mut client, &["FUNCTION", "LOAD", &library("one", "first")]), text("one"));
    let Value::Bulk(payload) = call(&mut client, &["FUNCTION", "DUMP"]) else { panic!("it is dumped") };
    assert_eq!(call(&mut client, &["FUNCTION", "FLUSH"]), ok());
    let restore = |client: &mut testkit::Client| call(client, &[b"FUNCTION", &b"RESTORE"[..], &payload]);
    let (new, replica) = (add(&mut cluster), add(&mut cluster));
    let mut waiting = cluster.connect(new).expect("it is up");
    let wrong = ask(&mut waiting, &["FUNCTION", "RESTORE", "x"]);
    assert_eq!(wrong, "ERR DUMP payload version or checksum are wrong");
    let refused = ask(&mut waiting, &["FUNCTION", "LOAD", &library("one", "first")]);
    assert!(refused.starts_with("READONLY"), "{refused}");
    assert_eq!(restore(&mut waiting), ok());
    assert_eq!(libraries(&mut waiting), Vec::<String>::new());
    let words = ["CLUSTER", "ADD-SHARD", "WITH", &new.to_string()];
    cluster.order(&words, |now| now.shards.contains_key(&ShardId(1)));
    cluster::wait_until("they are loaded", || libraries(&mut waiting) == ["one"]);
    assert_eq!(topology(&cluster).slots.count_of(ShardId(1)), 0);
    // Who follows has what its master has.
    let mut following = cluster.connect(replica).expect("it is up");
    assert_eq!(restore(&mut following), ok());
    let words = ["CLUSTER", "PLACE-SERVER", &replica.to_string(), "0"];
    cluster.order(&words, |now| now.servers[&replica].place.is_some());
    cluster::wait_until("it is a member", || topology(&cluster).shards[&ShardId(0)].members.len() == 2);
    cluster.switch(ShardId(0), replica);
    cluster::wait_until("it is master", || {
        ask(&mut following, &["FUNCTION", "LOAD", &library("two", "own")]) == "two"
    });
    assert_eq!(libraries(&mut following), ["two"]);
}

#[test]
fn it_adds_replicas_and_deletes_them() {
    let mut cluster = Cluster::begin(1, 1, MEMORY);
    let first = master(&cluster, 0);
    let place = cluster.place_of(first);
    let mut client = cluster.connect(first).expect("it is up");
    assert_eq!(call(&mut client, &["SET", "k", "v"]), ok());
    // It finds the master itself: others that wait are none.
    let (replica, spare) = (add(&mut cluster), add(&mut cluster));
    let shown = managed(&["add-node", &cluster.place_of(replica), &place, "--cluster-slave"]);
    assert!(shown.contains("[OK] New node added correctly."), "{shown}");
    cluster::wait_until("it is a member", || topology(&cluster).shards[&ShardId(0)].members.len() == 2);
    delete(&cluster, &place, replica);
    let now = topology(&cluster);
    assert!(!now.servers.contains_key(&replica));
    cluster::wait_until("the shard goes on without it", || {
        topology(&cluster).shards[&ShardId(0)].members.len() == 1
    });
    // A replica of a master that has no slots: that one begins its shard first.
    wait_until_agreed(&place, first);
    managed(&["add-node", &cluster.place_of(spare), &place]);
    wait_until_agreed(&place, spare);
    let other = add(&mut cluster);
    let spare_id = spare.to_string();
    let of_spare = ["--cluster-slave", "--cluster-master-id", &spare_id];
    managed(&[&["add-node", &cluster.place_of(other), &place], &of_spare[..]].concat());
    cluster::wait_until("it is a member", || {
        topology(&cluster).shards.get(&ShardId(1)).is_some_and(|shard| shard.members.len() == 2)
    });
    assert_eq!(master(&cluster, 1), spare);
    // redis-cli would have the replica follow another master first.
    cluster::wait_until("it knows its place", || {
        let mut client = cluster.connect(other).expect("it is up");
        ask(&mut client, &["CLUSTER", "NODES"]).contains(&format!("slave {spare_id}"))
    });
    let (is_done, shown) = manage(&["del-node", &place, &spare_id]);
    assert!(!is_done && shown.contains("This node keeps its place in its shard"), "{shown}");
    // The replica has taken its place.
    cluster::wait_until("it is removed", || !topology(&cluster).servers.contains_key(&spare));
    managed_soon(&["check", &place], |shown| shown.contains(&format!("M: {other}")));
    delete(&cluster, &place, other);
    let now = topology(&cluster);
    assert_eq!((now.shards.len(), now.servers.len()), (1, 1));
    assert_eq!(call(&mut client, &["GET", "k"]), text("v"));
}

#[test]
fn it_is_told_who_gives_slots_that_are_nobodys() {
    let cluster = Cluster::begin_awaiting((1, 1), MEMORY);
    cluster::wait_until("the shard has begun", || {
        cluster.topology().is_some_and(|topology| topology.master_of(ShardId(0)).is_some())
    });
    let place = cluster.place_of(master(&cluster, 0));
    cluster::wait_until("its master knows it", || {
        manage(&["check", &place]).1.contains("[ERR] Not all 16384 slots are covered by nodes.")
    });
    cluster::wait_until("it shows what it has", || {
        let mut client = cluster.connect(master(&cluster, 0)).expect("it is up");
        matches!(call(&mut client, &["CLUSTER", "GETKEYSINSLOT", "0", "1"]), Value::Array(_))
    });
    let (_, shown) = manage_and_say(&["fix", &place], "yes\n");
    assert!(
        shown.contains("The config servers give slots that are nobody's to shards by themselves"),
        "{shown}"
    );
    assert_eq!(topology(&cluster).slots.count(), 0);
}

/// What is called on one shard can be called on one that has just come.
#[test]
fn a_shard_gets_libraries_of_functions_before_its_first_slots() {
    let directives = [&["--edition", "durable"], &PATIENT[..]].concat();
    let mut cluster = Cluster::begin(1, 2, &directives);
    let first = master(&cluster, 0);
    let mut client = cluster.connect(first).expect("it is up");
    for name in ["one", "two", "three"] {
        assert_eq!(call(&mut client, &["FUNCTION", "LOAD", &library(name, "first")]), text(name));
    }
    let place = cluster.place();
    shown_by("cluster", &["add-shard", "--config", &place]);
    for _ in 0..2 {
        cluster.add(&directives);
    }
    cluster.wait_until_whole();
    let new = master(&cluster, 1);
    let mut client = cluster.connect(new).expect("it is up");
    assert_eq!(libraries(&mut client), Vec::<String>::new());
    // What is there stays.
    assert_eq!(call(&mut client, &["FUNCTION", "LOAD", &library("two", "own")]), text("two"));
    shown_by("cluster", &["rebalance", "--config", &place]);
    let now = topology(&cluster);
    assert_eq!(now.slots.count_of(ShardId(1)), 8192);
    assert_eq!(libraries(&mut client), ["one", "three", "two"]);
    let slot = now.slots.ranges_of(ShardId(1)).next().expect("it has some").first;
    let key = (0..).map(|number| format!("k{number}")).find(|key| wire::key_slot(key.as_bytes()) == slot);
    let key = key.expect("there is one");
    for (name, says) in [("one", "first"), ("two", "own")] {
        cluster::wait_until("it has heard that the slot is its own", || {
            call(&mut client, &["FCALL", name, "1", &key]) == text(says)
        });
    }
    let replica = now.replicas_of(ShardId(1)).next().expect("there is one").id;
    let mut reader = cluster.connect(replica).expect("it is up");
    cluster::wait_until("the replica has them", || libraries(&mut reader).len() == 3);
    // From then on it is for the operator.
    assert_eq!(call(&mut client, &["FUNCTION", "DELETE", "one"]), ok());
    shown_by("cluster", &["move-slots", "1", "0-9", "--config", &place]);
    assert_eq!(topology(&cluster).slots.count_of(ShardId(1)), 8202);
    assert_eq!(libraries(&mut client), ["three", "two"]);
}
