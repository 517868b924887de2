//! What an operator does to a cluster of real processes that does not mend itself, or is to be smaller.

use super::cluster::{self, Cluster, Kind};
use super::config_servers::ConfigServers;
use super::error;
use super::guided::Guided;
use crate::imports::run;
use crate::operators::{refused_by, shown_by};
use std::sync::atomic::{AtomicBool, Ordering};
use testkit::Client;
use testkit::ask::{ask, call, is_error, ok, text};
use topology::{ServerId, ShardId};
use wire::Value;

const SHARD: ShardId = ShardId(0);

#[test]
fn a_shard_whose_members_are_gone_begins_anew_with_a_copy_that_is_behind() {
    let mut cluster = Cluster::begin(1, 2, &["--edition", "durable"]);
    let place = cluster.place();
    let topology = cluster.topology().expect("it is there");
    let master = topology.master_of(SHARD).expect("there is one").id;
    let replica = topology.replicas_of(SHARD).next().expect("there is one").id;
    let mut guided = Guided::new(&cluster);
    assert_eq!(guided.call("kept", &["SET", "kept", "1"]).unwrap(), ok());
    cluster.kill(replica);
    cluster::wait_until("the master goes on alone", || {
        cluster.topology().is_some_and(|topology| topology.shards[&SHARD].members.len() == 1)
    });
    assert_eq!(guided.call("lost", &["SET", "lost", "1"]).unwrap(), ok());
    cluster.kill(master);
    cluster.restart(replica);
    let heir = replica.to_string();
    let ask = |more: &[&str]| {
        let words = ["promote", "0", &heir, "--config", &place];
        [&words[..], more].concat().into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let refused = |more: &[&str]| {
        let words = ask(more);
        refused_by("cluster", &words.iter().map(String::as_str).collect::<Vec<_>>())
    };
    assert!(refused(&[]).contains("say --accept-loss"));
    let gone = master.to_string();
    cluster::wait_until("it is told who would be given up", || {
        refused(&["--accept-loss"]).contains("each is to be named behind GONE")
    });
    assert!(refused(&["--accept-loss", "--gone", &heir]).contains("is no member"));
    let mut client = cluster.connect(replica).expect("it is up");
    assert!(matches!(call(&mut client, &["GET", "kept"]), Value::Error(_)));
    let words = ask(&["--accept-loss", "--gone", &gone]);
    let told = shown_by("cluster", &words.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(told.contains(&format!("server {heir} is master of shard 0; it has the log up to")), "{told}");
    let mut client = cluster.connect(replica).expect("it is up");
    cluster::wait_until("it serves", || call(&mut client, &["GET", "kept"]) == text("1"));
    assert_eq!(call(&mut client, &["GET", "lost"]), Value::Null);
    assert_eq!(call(&mut client, &["SET", "new", "1"]), ok());
    // The other one comes back all the same. It keeps what it has, and shows nothing of it.
    cluster.restart(master);
    let mut former = cluster.connect_loaded(master);
    cluster::wait_until("it has found nobody who takes it", || {
        cluster.output(master).contains("REMOVED this server was removed from the cluster")
    });
    for command in [&["READONLY"][..], &["GET", "lost"], &["SET", "lost", "2"]] {
        let answer = call(&mut former, command);
        assert!(command.len() == 1 || matches!(answer, Value::Error(_)), "{command:?}: {answer:?}");
    }
    let epoch = || cluster.topology().expect("it is there").shards[&SHARD].epoch;
    assert_eq!(cluster.topology().and_then(|topology| Some(topology.master_of(SHARD)?.id)), Some(replica));
    let before = epoch();
    assert_eq!(call(&mut client, &["INCR", "new"]), Value::Int(2));
    assert_eq!(epoch(), before);
}

/// What the operator's tool shows, also if it is nothing because it has failed.
fn told(words: &[&str]) -> String {
    String::from_utf8_lossy(&run("cluster", words).stdout).into_owned()
}

/// Of several config servers that are named, the first stands still, or is cut off from the store.
#[test]
fn an_operator_is_answered_by_whichever_config_server_can() {
    let mut servers = ConfigServers::begin(Kind::OverEtcd, &["--copies", "1"]);
    for is_cut in [false, true] {
        cluster::wait_until("one leads", || servers.leader().is_some());
        let former = servers.leader().expect("one leads");
        let addresses = servers.addresses();
        let (first, other) = (addresses[former].to_string(), addresses[1 - former].to_string());
        let places = format!("{first},{other}");
        match is_cut {
            true => servers.cut_off(former),
            false => servers.stop(former),
        }
        let at = |place: &str, words: &[&str]| told(&[words, &["--config", place]].concat());
        cluster::wait_until("the other one leads", || {
            let status = at(&places, &["status", "--json"]);
            status.contains(&format!(r#""leader":"{other}""#)) && status.contains(r#""store":"ok""#)
        });
        // It may lose the lead for a moment at any time.
        cluster::wait_until("it shows the cluster", || at(&places, &["status"]).starts_with("cluster "));
        cluster::wait_until("it shows moves", || at(&places, &["moves"]).contains("no slots"));
        cluster::wait_until("it takes orders", || at(&places, &["set", "copies", "2"]) == "OK\n");
        if is_cut {
            cluster::wait_until("the first says that it is alone", || {
                at(&first, &["status"]).starts_with("THE STORE OF DECISIONS IS NOT WELL")
            });
        }
        servers.mend();
    }
}

/// What it shows of who lives is what has been said to it, and to nobody else.
#[test]
fn a_config_server_that_does_not_reach_the_leading_one_says_so() {
    let mut servers = ConfigServers::begin(Kind::OverEtcd, &["--leader-lease", "30000"]);
    cluster::wait_until("one leads", || servers.leader().is_some());
    let leader = servers.leader().expect("one leads");
    let (first, other) =
        (servers.addresses()[leader].to_string(), servers.addresses()[1 - leader].to_string());
    let status = |more: &[&str]| told(&[&["status", "--config", &other], more].concat());
    let is_of_leader = r#""is_of_leader":true"#;
    cluster::wait_until("the other one knows, and asks it", || {
        let json = status(&["--json"]);
        json.contains(&format!(r#""leader":"{first}""#)) && json.contains(is_of_leader)
    });
    servers.stop(leader);
    cluster::wait_until("it says that it does not reach it", || {
        status(&[]).starts_with("THE CONFIG SERVER THAT LEADS IS NOT REACHED")
    });
    let json = status(&["--json"]);
    assert!(!json.is_empty() && !json.contains(is_of_leader), "{json}");
    servers.mend();
    cluster::wait_until("it is reached again", || status(&["--json"]).contains(is_of_leader));
    cluster::wait_until("it shows the cluster", || status(&[]).starts_with("cluster "));
}

/// It was passed on to a config server that stands still, and leads no more a few seconds later.
#[test]
fn what_the_leader_does_not_answer_any_more_is_not_waited_for() {
    // So long that it is asked while it leads.
    let mut servers = ConfigServers::begin(Kind::OverEtcd, &["--leader-lease", "8000"]);
    cluster::wait_until("one leads", || servers.leader().is_some());
    let leader = servers.leader().expect("one leads");
    let other = servers.addresses()[1 - leader];
    let mut client = Client::connect(other).expect("it listens");
    cluster::wait_until("the other one knows", || {
        let told = call(&mut client, &["CLUSTER", "STATUS", "JSON"]);
        matches!(told, Value::Bulk(text) if String::from_utf8_lossy(&text).contains(r#""is_of_leader":true"#))
    });
    servers.stop(leader);
    let answer = client.call(&["CLUSTER", "SET", "copies", "2"]).expect("it is answered");
    assert!(is_error(&answer, "UNKNOWN the config server that leads is another now"), "{answer:?}");
    cluster::wait_until("the other one leads", || servers.leader() == Some(1 - leader));
    cluster::wait_until("it takes orders", || call(&mut client, &["CLUSTER", "SET", "copies", "2"]) == ok());
}

/// Both were started again, and what they held was in memory: there is nobody to name.
#[test]
fn a_shard_whose_data_is_gone_begins_anew_empty() {
    let mut cluster = Cluster::begin(1, 2, &["--edition", "memory"]);
    let place = cluster.place();
    let mut guided = Guided::new(&cluster);
    assert_eq!(guided.call("lost", &["SET", "lost", "1"]).unwrap(), ok());
    let all: Vec<ServerId> = cluster.topology().expect("it is there").servers.keys().copied().collect();
    all.iter().for_each(|id| cluster.kill(*id));
    all.iter().for_each(|id| cluster.restart(*id));
    let heir = all[1].to_string();
    let words = ["promote", "0", &heir, "--accept-loss", "--config", &place];
    // The config server hears of them again first. Who names nobody only looks.
    let epoch = || cluster.topology().expect("it is there").shards[&SHARD].epoch;
    let before = epoch();
    cluster::wait_until("it is told that there is nobody to name", || {
        let told = refused_by("cluster", &words);
        told.contains("nobody is to be named") && told.contains("it has the log up to")
    });
    assert_eq!(epoch(), before);
    let told = shown_by("cluster", &[&words[..], &["--gone", "none"]].concat());
    assert!(told.contains(&format!("server {heir} is master of shard 0")), "{told}");
    cluster.wait_until_whole();
    let topology = cluster.topology().expect("it is there");
    assert_eq!(topology.master_of(SHARD).map(|master| master.id), Some(all[1]));
    let mut guided = Guided::new(&cluster);
    assert_eq!(guided.call("lost", &["GET", "lost"]).unwrap(), Value::Null);
    assert_eq!(guided.call("new", &["SET", "new", "1"]).unwrap(), ok());
}

/// Clients go on all the while, and take nothing but an answer.
#[test]
fn a_shard_is_removed_unnoticed() {
    let cluster = Cluster::begin(2, 1, &["--edition", "memory"]);
    let place = cluster.place();
    let mut guided = Guided::patient(&cluster);
    let keys: Vec<String> = (0..200).map(|number| format!("k{number}")).collect();
    for key in &keys {
        assert_eq!(guided.call(key, &["SET", key, "0"]).unwrap(), ok());
    }
    let is_over = AtomicBool::new(false);
    let former = cluster.topology().expect("it is there");
    let former: Vec<ServerId> = former.servers_of(ShardId(1)).map(|server| server.id).collect();
    let count = std::thread::scope(|scope| {
        let (keys, is_over) = (&keys, &is_over);
        let client = scope.spawn(move || {
            let mut count = 0;
            while !is_over.load(Ordering::Relaxed) {
                count += 1;
                for key in keys {
                    assert_eq!(
                        guided.call_once(key, &["INCR", key]).expect("it is carried out"),
                        Value::Int(count)
                    );
                }
            }
            count
        });
        let until = testkit::Ends(is_over);
        // Whoever looks no longer finds it going on.
        let begun = shown_by("cluster", &["remove-shard", "1", "--no-wait", "--config", &place]);
        assert!(begun.starts_with("moves 1"), "{begun}");
        let shown = shown_by("cluster", &["remove-shard", "1", "--config", &place]);
        assert!(shown.contains("shard 1 is removed, and so are its servers: "), "{shown}");
        drop(until);
        client.join().expect("all was answered")
    });
    assert!(count > 0);
    let topology = cluster.topology().expect("it is there");
    assert_eq!(topology.shards.keys().copied().collect::<Vec<_>>(), [SHARD]);
    assert_eq!(topology.slots.count_of(SHARD), wire::SLOTS);
    assert!(former.iter().all(|id| !topology.servers.contains_key(id)));
    let Some(Value::Bulk(status)) = cluster.ask_config(&["CLUSTER", "STATUS", "JSON"]) else {
        panic!("it is there")
    };
    let status: serde_json::Value = serde_json::from_slice(&status).expect("it is JSON");
    assert_eq!(status["policy"]["shards"], 1);
    // A server of it knows whom to ask.
    let mut client = cluster.connect(former[0]).expect("it is up");
    cluster::wait_until("it has heard of it", || {
        error(&call(&mut client, &["GET", "k1"])).starts_with("MOVED")
    });
    assert!(shown_by("cluster", &["remove-shard", "1", "--config", &place]).contains("is removed"));
    assert!(refused_by("cluster", &["remove-shard", "0", "--config", &place]).contains("is the last one"));
    assert!(refused_by("cluster", &["remove-shard", "7", "--config", &place]).contains("NOSHARD"));
}

#[test]
fn all_nodes_know_by_which_name_one_of_them_is_reached_from_now_on() {
    let cluster = Cluster::begin(2, 1, &["--edition", "memory"]);
    let topology = cluster.topology().expect("it is there");
    let ids: Vec<ServerId> = topology.servers.keys().copied().collect();
    let mut nodes: Vec<_> = ids.iter().map(|id| cluster.connect(*id).expect("it is up")).collect();
    for name in ["one.example", "another.example", ""] {
        assert_eq!(call(&mut nodes[0], &["CONFIG", "SET", "cluster-announce-hostname", name]), ok());
        let line = match name.is_empty() {
            true => format!("{} {}@", ids[0], cluster.place_of(ids[0])),
            false => format!(",{name} "),
        };
        // The node itself knows at once.
        assert!(ask(&mut nodes[0], &["CLUSTER", "NODES"]).contains(&line), "{line}");
        for node in &mut nodes {
            cluster::wait_until("it is told", || {
                let told = ask(node, &["CLUSTER", "NODES"]);
                told.contains(&line) && told.matches(".example").count() == usize::from(!name.is_empty())
            });
        }
    }
    // Where it is is another matter: it lives at its address.
    let refused = call(&mut nodes[0], &["CONFIG", "SET", "cluster-announce-port", "1"]);
    assert!(is_error(&refused, "ERR CONFIG SET failed"), "{refused:?}");
}
