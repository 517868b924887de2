//! Who a server is in its cluster: one that was removed, one whose directory was copied, and one that could not take part in any shard.

use crate::clusters::cluster::{Cluster, wait_until};
use crate::clusters::guided::Guided;
use crate::direct::refused_in_cluster;
use crate::{root, tarn_path};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use testkit::ask::{call, is_error, ok, text};
use testkit::{Client, free_port};
use topology::{ServerId, ShardId};
use wire::Value;

/// What `INSYNC STATUS` says of a server.
fn role(cluster: &Cluster, id: ServerId) -> String {
    let mut client = cluster.connect(id).expect("it is up");
    let Value::Array(words) = call(&mut client, &["INSYNC", "STATUS"]) else {
        panic!("it is no node of a shard")
    };
    let role = words.chunks(2).find(|pair| pair[0] == text("role")).map(|pair| pair[1].clone());
    match role {
        Some(Value::Bulk(role)) => String::from_utf8_lossy(&role).into_owned(),
        other => panic!("{other:?} is no role"),
    }
}

#[test]
fn a_server_that_was_removed_is_no_member_and_never_master() {
    let mut cluster = Cluster::begin(1, 3, &["--edition", "durable"]);
    let topology = cluster.topology().expect("it is there");
    let master = topology.master_of(ShardId(0)).expect("there is one").id;
    // The first member is whom a master hands over to.
    let removed =
        topology.servers.values().filter(|server| server.id != master).min_by_key(|server| server.place);
    let removed = removed.expect("there are two").id;
    let mut guided = Guided::new(&cluster);
    assert_eq!(guided.call("k", &["SET", "k", "1"]).unwrap(), ok());
    let words = ["CLUSTER", "REMOVE-SERVER", &removed.to_string(), "FORCE"];
    cluster.order(&words, |now| !now.servers.contains_key(&removed));
    wait_until("it takes no part", || role(&cluster, removed) == "halted");
    wait_until("it is no member", || {
        cluster.topology().is_some_and(|topology| topology.shards[&ShardId(0)].members.len() == 2)
    });
    cluster.terminate(master);
    assert_eq!(guided.call("k", &["GET", "k"]).unwrap(), text("1"));
    assert_eq!(guided.call("k", &["SET", "k", "2"]).unwrap(), ok());
    let now = cluster.topology().expect("it is there").master_of(ShardId(0)).map(|server| server.id);
    assert!(now.is_some() && now != Some(removed) && now != Some(master));
    assert_eq!(role(&cluster, removed), "halted");
}

/// A server over a copy of another's directory. It ends with its handle.
struct Copied {
    child: Child,
    port: u16,
    log: std::path::PathBuf,
}

impl Copied {
    fn of(dir: &Path, to: &Path, config: &str) -> Copied {
        let copied =
            Command::new("cp").arg("-a").arg(dir).arg(to.join("data")).status().expect("it can be copied");
        assert!(copied.success());
        let (port, log) = (free_port().expect("there is one"), to.join("said"));
        let said = std::fs::File::create(&log).expect("there is room");
        let child = Command::new(tarn_path())
            .args(["server", "--edition", "durable", "--bind", "127.0.0.1", "--port", &port.to_string()])
            .args(["--cluster-enabled", "yes", "--cluster-config-servers", config, "--dir"])
            .arg(to.join("data"))
            .current_dir(root())
            .stdin(Stdio::null())
            .stdout(said)
            .spawn()
            .expect("it starts");
        Copied { child, port, log }
    }

    fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_copied_directory_takes_no_part_while_the_server_lives() {
    let cluster = Cluster::begin(1, 2, &["--edition", "durable"]);
    let mut guided = Guided::new(&cluster);
    assert_eq!(guided.call("k", &["SET", "k", "v"]).unwrap(), ok());
    let topology = cluster.topology().expect("it is there");
    let replica = topology.replicas_of(ShardId(0)).next().expect("there is one").id;
    let dir = tempfile::tempdir().expect("a directory");
    let copied = Copied::of(&cluster.dir(replica), dir.path(), &cluster.place());
    wait_until("it is refused", || copied.said().contains("DUPLICATE"));
    assert!(!copied.said().contains("This server is node"), "{}", copied.said());
    let mut client = Client::connect(([127, 0, 0, 1], copied.port).into()).expect("it is up");
    assert!(is_error(&call(&mut client, &["INSYNC", "STATUS"]), "ERR This server is not a node of a shard"));
    assert_eq!(role(&cluster, replica), "member");
    assert_eq!(guided.call("k", &["GET", "k"]).unwrap(), text("v"));
}

#[test]
fn who_was_not_heard_of_while_a_copy_of_it_came_takes_no_part_any_more() {
    let cluster = Cluster::begin(1, 2, &["--edition", "durable"]);
    let mut guided = Guided::new(&cluster);
    assert_eq!(guided.call("k", &["SET", "k", "v"]).unwrap(), ok());
    let topology = cluster.topology().expect("it is there");
    let replica = topology.replicas_of(ShardId(0)).next().expect("there is one").id;
    cluster.signal(replica, "-STOP");
    let dir = tempfile::tempdir().expect("a directory");
    let copied = Copied::of(&cluster.dir(replica), dir.path(), &cluster.place());
    wait_until("it has the place", || copied.said().contains("This server is node"));
    cluster.signal(replica, "-CONT");
    wait_until("the first takes no part", || role(&cluster, replica) == "halted");
    assert_eq!(guided.call("k", &["GET", "k"]).unwrap(), text("v"));
    assert_eq!(guided.call("k", &["SET", "k", "w"]).unwrap(), ok());
    let mut client = Client::connect(([127, 0, 0, 1], copied.port).into()).expect("it is up");
    wait_until(
        "the copy is a member",
        || matches!(call(&mut client, &["INSYNC", "STATUS"]), Value::Array(words) if words.contains(&text("member"))),
    );
}

#[test]
fn a_server_whose_log_is_not_synced_with_each_write_is_given_no_place() {
    let dir = tempfile::tempdir().expect("a directory");
    let words = ["--edition", "memory", "--appendonly", "yes"];
    refused_in_cluster(dir.path(), &words, "its log wants `appendfsync always`");
}

#[test]
fn an_operator_is_told_when_nobody_has_what_was_acknowledged() {
    let mut cluster = Cluster::begin(1, 2, &["--edition", "memory"]);
    let all: Vec<ServerId> = cluster.topology().expect("it is there").servers.keys().copied().collect();
    let status = |cluster: &Cluster| match cluster.ask_config(&["CLUSTER", "STATUS"]) {
        Some(Value::Bulk(table)) => String::from_utf8_lossy(&table).into_owned(),
        other => panic!("{other:?} is no table"),
    };
    assert!(status(&cluster).contains("serves all keys"), "{}", status(&cluster));
    // What they held was in memory.
    all.iter().for_each(|id| cluster.kill(*id));
    all.iter().for_each(|id| cluster.restart(*id));
    wait_until("it is told", || {
        status(&cluster).contains("NO SERVER THAT LIVES HOLDS WHAT WAS ACKNOWLEDGED")
    });
    let shown = status(&cluster);
    assert!(shown.contains("DOES NOT SERVE ALL KEYS") && !shown.contains("  master"), "{shown}");
}
