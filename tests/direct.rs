//! Direct mode: clients of Redis Cluster, unchanged, at real servers, which are told by a config server of this test what the cluster looks like.

mod config_server;

use crate::{root, tarn};
use config_server::ConfigServer;
use std::path::Path;
use std::process::Command;
use testkit::ask::{ask, call, is_error, ok, text, wait_until};
use testkit::{Program, Server};
use topology::{ShardId, SlotMap};
use wire::Value;

struct Cluster {
    config: ConfigServer,
    servers: Vec<Server>,
}

impl Cluster {
    /// So many shards of so many servers, which have all slots in even parts.
    fn begin(shards: u16, copies: usize, directives: &[&str]) -> Cluster {
        let config = ConfigServer::begin(copies);
        let mut cluster = Cluster { config, servers: Vec::new() };
        for _ in 0..usize::from(shards) * copies {
            cluster.add(directives);
        }
        wait_until("each shard has a master and all its members", || {
            let shards = cluster.config.topology().shards;
            shards.values().all(|shard| shard.master.is_some() && shard.members.len() == copies)
        });
        let all: Vec<ShardId> = (0..shards).map(ShardId).collect();
        cluster.config.give(SlotMap::even(&all));
        cluster.wait_until_told();
        cluster
    }

    fn add(&mut self, directives: &[&str]) {
        let address = self.config.address().to_string();
        let own = ["--edition", "memory", "--cluster-enabled", "yes", "--cluster-config-servers", &address];
        let server = Server::start(tarn(), &[&own[..], directives].concat()).expect("it starts");
        self.servers.push(server);
        let expected = self.servers.len();
        wait_until("it has come", || self.config.topology().servers.len() == expected);
    }

    /// Waits until all servers serve what they are to serve.
    fn wait_until_told(&self) {
        let lines = self.config.topology().slots.ranges().count();
        for server in &self.servers {
            let mut client = server.connect_loaded().expect("it serves");
            wait_until("the cluster is up", || {
                let is_up = ask(&mut client, &["CLUSTER", "INFO"]).contains("cluster_state:ok");
                is_up
                    && matches!(call(&mut client, &["CLUSTER", "SLOTS"]), Value::Array(all) if all.len() == lines)
            });
        }
        wait_until("each slot is served", || {
            self.servers.iter().all(|server| {
                let mut client = server.connect_loaded().expect("it serves");
                ["bar", "foo", "b", "a"].iter().all(|key| {
                    let reply = ask(&mut client, &["GET", key]);
                    !reply.contains("CLUSTERDOWN") && !reply.contains("MASTERDOWN")
                })
            })
        });
    }

    fn port(&self, index: usize) -> String {
        self.servers[index].address().port().to_string()
    }

    fn run(&self, program: &str, args: &[&str]) -> String {
        let output = testkit::process::bounded(program)
            .args(["-p", &self.port(0)])
            .args(args)
            .output()
            .expect("it runs");
        let both = [output.stdout.as_slice(), &output.stderr].concat();
        String::from_utf8_lossy(&both).into_owned()
    }
}

#[test]
fn redis_cli_and_redis_benchmark_find_their_way() {
    let cluster = Cluster::begin(2, 1, &[]);
    for key in ["foo", "bar", "a", "b"] {
        assert!(cluster.run("redis-cli", &["-c", "SET", key, "1"]).ends_with("OK\n"));
        assert!(cluster.run("redis-cli", &["-c", "GET", key]).ends_with("1\n"));
    }
    assert_eq!(
        cluster.run("redis-cli", &["GET", "foo"]),
        format!("MOVED 12182 127.0.0.1:{}\n\n", cluster.port(1))
    );
    let args = ["--cluster", "-n", "2000", "-c", "10", "-P", "4", "-q", "-t", "set,get,incr"];
    let report = cluster.run("redis-benchmark", &args);
    assert!(["SET: ", "GET: ", "INCR: "].iter().all(|line| report.contains(line)), "{report}");
    assert!(!report.contains("Error"), "{report}");
    let check = cluster.run("redis-cli", &["--cluster", "check", &format!("127.0.0.1:{}", cluster.port(0))]);
    assert!(check.contains("[OK] All 16384 slots covered."), "{check}");
}

#[test]
fn redis_py_finds_its_way() {
    let python = std::env::var("TARN_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let cluster = Cluster::begin(2, 2, &[]);
    let script = root().join("tests/clients/cluster.py");
    let output =
        testkit::process::bounded(python).arg(script).arg(cluster.port(0)).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&[output.stdout, output.stderr].concat()));
}

#[test]
fn a_slot_that_goes_is_answered_for_by_who_has_it() {
    let cluster = Cluster::begin(2, 1, &[]);
    let mut client = cluster.servers[0].connect_loaded().expect("it serves");
    assert_eq!(call(&mut client, &["SET", "bar", "1"]), ok());
    let mut waiting = cluster.servers[0].connect_loaded().expect("it serves");
    waiting.send_request(&["BLPOP", "{bar}list", "0"]).expect("it is sent");
    let mut slots = cluster.config.topology().slots;
    slots.set(5061, Some(ShardId(1)));
    cluster.config.give(slots);
    let moved = Value::Error(format!("MOVED 5061 127.0.0.1:{}", cluster.port(1)).into_bytes());
    assert_eq!(waiting.read_value().expect("it is told"), moved);
    assert_eq!(call(&mut client, &["GET", "bar"]), moved);
}

/// It is let in by a view that passes before it is among those who wait, whom the next view is told to.
#[test]
fn who_begins_to_wait_or_to_listen_while_its_slot_goes_is_told() {
    let cluster = Cluster::begin(2, 1, &[]);
    let mut others: Vec<_> =
        (0..8).map(|_| cluster.servers[0].connect_loaded().expect("it serves")).collect();
    let (here, mut there) = (cluster.config.topology().slots, cluster.config.topology().slots);
    there.set(5061, Some(ShardId(1)));
    let moved = Value::Error(format!("MOVED 5061 127.0.0.1:{}", cluster.port(1)).into_bytes());
    for round in 0..100 {
        std::thread::scope(|scope| {
            let given = scope.spawn(|| cluster.config.give(there.clone()));
            for (index, client) in others.iter_mut().enumerate() {
                // Somewhere within what it takes until the server hears of it.
                (0..round * 40 * index).for_each(|_| std::hint::spin_loop());
                let request = if index % 2 == 0 {
                    ["BLPOP", "{bar}list", "0"].as_slice()
                } else {
                    &["SSUBSCRIBE", "bar"]
                };
                client.send_request(request).expect("it is sent");
            }
            given.join().expect("it is given");
        });
        for client in &mut others {
            match client.read_value().expect("it is told") {
                Value::Array(_) => {
                    assert!(matches!(client.read_value().expect("it is told"), Value::Array(_)))
                }
                told => assert_eq!(told, moved),
            }
        }
        cluster.config.give(here.clone());
        wait_until("the slot is back", || !ask(&mut others[0], &["GET", "bar"]).contains("MOVED"));
    }
}

#[test]
fn a_node_goes_on_by_what_it_was_told_last() {
    let mut cluster = Cluster::begin(1, 1, &[]);
    let shards = cluster.config.topology().shards.len();
    assert_eq!(shards, 1);
    cluster.config = ConfigServer::begin(1);
    let mut client = cluster.servers[0].connect_loaded().expect("it serves");
    for number in 0..100 {
        let number = number.to_string();
        assert_eq!(call(&mut client, &["SET", &number, &number]), ok());
        assert_eq!(call(&mut client, &["GET", &number]), text(&number));
    }
}

/// Why a directory is refused with data that is not a cluster's.
const NO_CLUSTERS: &str = "is not a cluster's";

/// A start in a cluster over a directory, with more words, is refused for this reason.
pub fn refused_in_cluster(dir: &Path, words: &[&str], reason: &str) {
    let Program::Tarn(path) = tarn() else { panic!("it is a Tarn") };
    let output = Command::new(path)
        .args(["server", "--port", "0", "--cluster-enabled", "yes"])
        .args(["--cluster-config-servers", "127.0.0.1:1", "--dir"])
        .arg(dir)
        .args(words)
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(!output.status.success() && said.contains(reason), "{said}");
}

#[test]
fn a_directory_that_is_no_clusters_is_refused() {
    let mut server = Server::start(tarn(), &["--edition", "durable"]).expect("it starts");
    let mut client = server.connect_loaded().expect("it serves");
    assert_eq!(call(&mut client, &["SET", "k", "1"]), ok());
    server.kill();
    // A log by itself.
    refused_in_cluster(server.dir(), &["--edition", "durable"], NO_CLUSTERS);
    server.restart().expect("it starts again");
    let mut client = server.connect_loaded().expect("it serves");
    assert_eq!(call(&mut client, &["GET", "k"]), text("1"));
    call(&mut client, &["BGREWRITEAOF"]);
    wait_until("there is a checkpoint", || {
        ask(&mut client, &["INFO", "persistence"]).contains("aof_rewrite_in_progress:0")
            && std::fs::read_dir(server.dir())
                .expect("it is there")
                .flatten()
                .any(|file| file.file_name().to_string_lossy().contains("checkpoint"))
    });
    server.kill();
    refused_in_cluster(server.dir(), &["--edition", "durable"], NO_CLUSTERS);

    let mut server = Server::start(tarn(), &["--edition", "memory"]).expect("it starts");
    let mut client = server.connect_loaded().expect("it serves");
    assert_eq!(call(&mut client, &["SET", "k", "1"]), ok());
    assert_eq!(call(&mut client, &["SAVE"]), ok());
    server.kill();
    refused_in_cluster(server.dir(), &["--edition", "memory"], NO_CLUSTERS);
    refused_in_cluster(server.dir(), &["--edition", "durable"], NO_CLUSTERS);
}

/// Waits until each server hears what is published at all others.
fn await_links(cluster: &Cluster) {
    for server in &cluster.servers {
        let mut client = server.connect_loaded().expect("it serves");
        wait_until(
            "it listens at all others",
            || matches!(call(&mut client, &["CLUSTER", "LINKS"]), Value::Array(all) if all.len() == 2 * (cluster.servers.len() - 1)),
        );
    }
}

#[test]
fn what_is_published_is_heard_everywhere_once_and_in_order() {
    let mut cluster = Cluster::begin(2, 2, &[]);
    await_links(&cluster);
    let mut listeners: Vec<_> = cluster
        .servers
        .iter()
        .map(|server| {
            let mut client = server.connect_loaded().expect("it serves");
            client.send_request(&["SUBSCRIBE", "news"]).unwrap();
            client.read_value().unwrap();
            client.send_request(&["PSUBSCRIBE", "n*"]).unwrap();
            client.read_value().unwrap();
            client
        })
        .collect();
    let expect_heard = |listeners: &mut Vec<testkit::Client>, message: &str| {
        for (number, listener) in listeners.iter_mut().enumerate() {
            let words = |words: &[&str]| Value::Array(words.iter().map(|word| text(word)).collect());
            assert_eq!(
                listener.read_value().unwrap(),
                words(&["message", "news", message]),
                "server {number}"
            );
            assert_eq!(
                listener.read_value().unwrap(),
                words(&["pmessage", "n*", "news", message]),
                "server {number}"
            );
        }
    };
    for (number, server) in cluster.servers.iter().enumerate() {
        let mut client = server.connect_loaded().expect("it serves");
        for round in 0..50 {
            let message = format!("{number}.{round}");
            let sent = call(&mut client, &["PUBLISH", "news", &message]);
            assert_eq!(sent, Value::Int(2), "who listens at the node itself is counted, as in Redis");
        }
        // In a transaction and in a script, too.
        assert_eq!(call(&mut client, &["MULTI"]), ok());
        call(&mut client, &["PUBLISH", "news", "multi"]);
        call(&mut client, &["EXEC"]);
        call(&mut client, &["EVAL", "redis.call('PUBLISH', 'news', 'script')", "0"]);
        for round in 0..50 {
            expect_heard(&mut listeners, &format!("{number}.{round}"));
        }
        expect_heard(&mut listeners, "multi");
        expect_heard(&mut listeners, "script");
    }
    // A node that was away hears again.
    let away = cluster.servers.len() - 1;
    cluster.servers[away].restart().expect("it starts again");
    drop(listeners.pop());
    await_links(&cluster);
    let mut client = cluster.servers[away].connect_loaded().expect("it serves");
    client.send_request(&["PUBLISH", "news", "back"]).unwrap();
    client.read_value().unwrap();
    expect_heard(&mut listeners, "back");
}

/// A message leaves its node when what had been written there before is committed. Whoever was told before that it is published would publish what follows elsewhere,
/// where it is heard first; and nobody would hear it at all if the node ended.
#[test]
fn nobody_is_told_that_a_message_is_published_before_it_leaves_its_node() {
    // The one other member is silent, and stays one.
    let silent = ["--shard-silence", "600000"];
    let mut cluster = Cluster::begin(1, 2, &silent);
    let is_master = |server: &Server| {
        let mut client = server.connect_loaded().expect("it serves");
        ask(&mut client, &["INFO", "replication"]).contains("role:master")
    };
    let place = cluster.servers.iter().position(is_master).expect("there is one");
    let mut master = cluster.servers.remove(place);
    let [mut writer, mut publisher, mut asker] =
        [(); 3].map(|()| master.connect_loaded().expect("it serves"));
    crate::departures::signal(&cluster.servers[0], "-STOP");
    writer.send_request(&["SET", "k", "v"]).unwrap();
    let mut wait_for = |command: &str| {
        let line = format!("cmdstat_{command}:calls=1");
        wait_until(&line, || ask(&mut asker, &["INFO", "commandstats"]).contains(&line));
    };
    wait_for("set");
    publisher.send_request(&["PUBLISH", "news", "x"]).unwrap();
    publisher.send_request(&["SPUBLISH", "news", "x"]).unwrap();
    wait_for("spublish");
    master.kill();
    let told = publisher.read_value();
    assert!(told.is_err(), "nobody has heard it: {told:?}");
}

#[test]
fn a_node_of_another_cluster_is_told_of_nothing() {
    let cluster = Cluster::begin(1, 1, &[]);
    let mut client = cluster.servers[0].connect_loaded().expect("it serves");
    let other = "0123456789012345678901234567890123456789";
    let refusal = Value::Error(b"ERR This server is a node of another cluster".to_vec());
    let topology = cluster.config.topology();
    let node = topology.servers.keys().next().expect("there is one").to_string();
    assert_eq!(call(&mut client, &["CLUSTER", "HEAR", other, &node, &node]), refusal);
    let mut hear =
        |node: &str, own: &str| call(&mut client, &["CLUSTER", "HEAR", &topology.cluster, node, own]);
    assert!(is_error(&hear(other, &node), "ERR Unknown node"));
    assert!(is_error(&hear(&node, other), "ERR Unknown node"));
    assert_eq!(hear(&node, &node), ok());
    assert_eq!(hear(&node, &node), ok());
    let mut publisher = cluster.servers[0].connect_loaded().expect("it serves");
    assert_eq!(call(&mut publisher, &["PUBLISH", "c", "m"]), Value::Int(0));
    assert_eq!(client.read_value().unwrap(), Value::Array(vec![text("message"), text("c"), text("m")]));
    assert_eq!(call(&mut client, &["RESET"]), Value::Simple(b"RESET".to_vec()));
    assert_eq!(call(&mut publisher, &["PUBLISH", "c", "m"]), Value::Int(0));
    assert_eq!(call(&mut client, &["PING"]), Value::Simple(b"PONG".to_vec()));
}
