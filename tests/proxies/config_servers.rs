//! A proxy that is told of config servers: they name the nodes of its cluster, where it knows of none, or none that it knows is there any more.

use super::check;
use super::clusters::proxy_of;
use crate::clusters::cluster::{Cluster, Kind, wait_until};
use crate::departures::signal;
use crate::tarn_path;
use testkit::ask::{call, ok, text};
use testkit::{Client, Program, Server};
use topology::{ServerId, ShardId};
use wire::Value;

/// Nobody listens there.
const NOBODY: &str = "127.0.0.1:1";
/// Keys, in all shards.
const KEYS: usize = 20;

fn begin(config_servers: &str) -> std::io::Result<Server> {
    Server::start(Program::Proxy(tarn_path()), &["--proxy-config-servers", config_servers])
}

fn servers_of(cluster: &Cluster) -> Vec<ServerId> {
    cluster.topology().unwrap().servers.keys().copied().collect()
}

fn set_all(client: &mut Client) {
    for number in 0..KEYS {
        wait_until("it is set", || call(client, &["SET", &format!("k{number}"), "v"]) == ok());
    }
}

fn wait_until_read(client: &mut Client) {
    for number in 0..KEYS {
        wait_until("it is read", || call(client, &["GET", &format!("k{number}")]) == text("v"));
    }
}

#[test]
fn servers_that_are_all_elsewhere_are_found() {
    let mut cluster = Cluster::begin(2, 1, &["--edition", "durable"]);
    let ids = servers_of(&cluster);
    let proxy = begin(&format!("{NOBODY},{}", cluster.place())).unwrap();
    let mut client = proxy.connect().unwrap();
    set_all(&mut client);
    for _ in 0..2 {
        ids.iter().for_each(|id| cluster.kill(*id));
        ids.iter().for_each(|id| cluster.restart(*id));
        wait_until_read(&mut client);
    }
    // Who knows the nodes needs nobody to name them.
    cluster.config.kill(0);
    set_all(&mut client);
    wait_until_read(&mut client);
    proxy.await_output(&[&format!("behind: {NOBODY}: Connection refused")]);
}

/// Has a server have a place in the only shard, and waits until it holds everything.
fn place(cluster: &Cluster, id: ServerId) {
    cluster.order(&["CLUSTER", "PLACE-SERVER", &id.to_string(), "0"], |now| {
        now.servers.get(&id).is_some_and(|server| server.place.is_some())
    });
    wait_until("it holds everything", || {
        cluster.topology().is_some_and(|now| now.servers.get(&id).is_some_and(|one| now.is_member(one)))
    });
}

#[test]
fn a_proxy_goes_on_where_config_servers_and_servers_are_others() {
    let mut cluster = Cluster::begin_as(Kind::OverEtcd, (1, 2), &["--edition", "durable"]);
    let before = servers_of(&cluster);
    let proxy = begin(&cluster.place()).unwrap();
    set_all(&mut proxy.connect().unwrap());
    cluster.config.kill(0);
    // It hears nothing while all servers are replaced.
    signal(&proxy, "-STOP");
    let after = [0; 2].map(|_| cluster.add(&["--edition", "durable"]));
    after.iter().for_each(|id| place(&cluster, *id));
    cluster.switch(ShardId(0), after[0]);
    for id in before {
        let words = ["CLUSTER", "REMOVE-SERVER", &id.to_string()];
        cluster.order(&words, |now| !now.servers.contains_key(&id));
        cluster.kill(id);
    }
    signal(&proxy, "-CONT");
    let mut client = proxy.connect().unwrap();
    wait_until_read(&mut client);
    set_all(&mut client);
    // The one that was asked last goes, too, and the servers are elsewhere once more.
    cluster.config.mend();
    cluster.config.kill(1);
    after.iter().for_each(|id| cluster.kill(*id));
    after.iter().for_each(|id| cluster.restart(*id));
    wait_until_read(&mut client);
    set_all(&mut client);
}

#[test]
fn who_is_of_another_cluster_is_not_believed() {
    let [mut own, other] = [0; 2].map(|_| Cluster::begin(1, 1, &["--edition", "memory"]));
    let [id, stranger] = [&own, &other].map(|cluster| servers_of(cluster)[0]);
    let (node, places) = (own.place_of(id), other.place());
    let proxy = proxy_of(&node, &["--proxy-config-servers", &places]);
    let mut client = proxy.connect().unwrap();
    set_all(&mut client);
    let (is_sound, told) = check(&["--proxy-cluster", &node, "--proxy-config-servers", &places]);
    assert!(!is_sound && told.contains("config server  OF NO USE: it is of another cluster"), "{told}");
    own.kill(id);
    wait_until("the config server was asked", || {
        assert!(matches!(call(&mut client, &["SET", "k", "v"]), Value::Error(_)));
        proxy.output().contains("a config server names: ")
    });
    proxy.await_output(&["it is of another cluster"]);
    let keys = call(&mut other.connect(stranger).unwrap(), &["DBSIZE"]);
    assert_eq!(keys, Value::Int(0), "nothing went to the other cluster");
}

#[test]
fn config_servers_that_are_of_no_use_are_told_of() {
    let cluster = Cluster::begin(1, 1, &["--edition", "memory"]);
    let (place, node) = (cluster.place(), cluster.place_of(servers_of(&cluster)[0]));
    let (is_sound, told) = check(&["--proxy-config-servers", &place]);
    assert!(is_sound && told.contains("config server  of cluster "), "{told}");
    let (is_sound, told) = check(&["--proxy-config-servers", &format!("{NOBODY},{node},{place}")]);
    assert!(!is_sound && told.contains("16384 slots  Tarn"), "{told}");
    assert!(!told.contains("has told where the cluster's nodes are"), "that is said in a log: {told}");
    for why in ["Connection refused", "ERR unknown command 'TOPOLOGY'"] {
        assert!(told.contains(&format!("config server  OF NO USE: {why}")), "{told}");
    }
    let waits = Cluster::begin_awaiting((1, 1), &["--edition", "memory"]);
    for (places, why) in [
        (
            NOBODY,
            "no config server names a node that tells who has which slot: 127.0.0.1:1: Connection refused",
        ),
        (node.as_str(), "ERR unknown command"),
        (&waits.place(), "no config server names a node"),
        ("here", "`proxy-config-servers`: `here` is no `host:port`"),
    ] {
        let told = begin(places).map(drop).expect_err("it does not begin").to_string();
        assert!(told.contains(why), "{places}: {told}");
    }
}
