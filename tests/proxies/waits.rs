//! WAIT and WAITAOF through a proxy: they wait for the servers that the client has written to, and for no others.

use super::Proxied;
use super::clusters::proxy_of;
use crate::bench_cluster::redis_cluster;
use crate::clusters::cluster::{Cluster, Kind, PATIENT, wait_until as wait_long_until};
use crate::departures::signal;
use crate::slot_moves::move_and_wait;
use crate::tarn_path;
use testkit::ask::{ask, call, call_line, is_error, ok, text, wait_until};
use testkit::{Program, Relay, Server, free_port};
use topology::ShardId;
use wire::{Value, key_slot};

/// A replica of each server.
pub(super) fn followers(proxied: &Proxied, program: &Program) -> Vec<Server> {
    let follow = |shard: &Server| {
        let port = shard.address().port().to_string();
        Server::start(program.clone(), &["--replicaof", &format!("127.0.0.1 {port}")]).unwrap()
    };
    let replicas: Vec<Server> = proxied.shards.iter().map(follow).collect();
    let is_followed = |shard: &Server| {
        ask(&mut shard.connect().unwrap(), &["INFO", "replication"]).contains("state=online")
    };
    wait_until("all are followed", || proxied.shards.iter().all(is_followed));
    replicas
}

fn tarn() -> Program {
    Program::Tarn(tarn_path())
}

#[test]
fn replicas_are_waited_for_of_the_servers_that_were_written_to() {
    for program in [Program::Redis, tarn()] {
        let proxied = Proxied::of((&program, &[]), 3, &[]);
        let mut client = proxied.proxy.connect().unwrap();
        // None has a replica.
        assert_eq!(call_line(&mut client, "WAIT 0 0"), Value::Int(0));
        assert_eq!(call(&mut client, &["SET", &proxied.key(0), "v"]), ok());
        assert_eq!(call_line(&mut client, "WAIT 1 20"), Value::Int(0));
        let replicas = followers(&proxied, &program);
        assert_eq!(call(&mut client, &["SET", &proxied.key(0), "w"]), ok());
        assert_eq!(call_line(&mut client, "WAIT 1 0"), Value::Int(1));
        for protocol in ["2", "3"] {
            let mut client = proxied.proxy.connect().unwrap();
            ask(&mut client, &["HELLO", protocol]);
            signal(&replicas[1], "-STOP");
            // It has written to the first only.
            assert_eq!(call(&mut client, &["SET", &proxied.key(0), "x"]), ok());
            assert_eq!(call_line(&mut client, "WAIT 1 0"), Value::Int(1));
            let mut other = proxied.proxy.connect().unwrap();
            ask(&mut other, &["HELLO", protocol]);
            let (first, second) = (proxied.key(0), proxied.key(1));
            assert_eq!(call(&mut other, &["MSET", &first, "y", &second, "y"]), ok());
            assert_eq!(call_line(&mut other, "WAIT 1 50"), Value::Int(0));
            // Who waits holds up nobody else, and is answered when it is there.
            other.send_request(&["WAIT", "1", "0"]).unwrap();
            other.send_request(&["GET", &second]).unwrap();
            let mut looks = proxied.proxy.connect().unwrap();
            wait_until("it waits", || ask(&mut looks, &["CLIENT", "LIST"]).contains("flags=b"));
            assert_eq!(call(&mut client, &["SET", &second, "z"]), ok());
            signal(&replicas[1], "-CONT");
            assert_eq!(other.read_value().unwrap(), Value::Int(1));
            assert_eq!(other.read_value().unwrap(), text("z"));
        }
        assert!(is_error(&call_line(&mut client, "WAIT x 0"), "ERR value is not an integer"));
        assert!(is_error(&call_line(&mut client, "WAIT 1"), "ERR wrong number"));
    }
}

#[test]
fn what_a_transaction_and_a_script_have_written_counts() {
    let proxied = Proxied::of((&tarn(), &[]), 2, &[]);
    let replicas = followers(&proxied, &tarn());
    signal(&replicas[1], "-STOP");
    let (first, second) = (proxied.key(0), proxied.key(1));
    let writes: [&[&[&str]]; 4] = [
        &[&["MULTI"], &["SET", &second, "v"], &["EXEC"]],
        &[&["WATCH", &second], &["MULTI"], &["SET", &second, "v"], &["EXEC"]],
        &[&["EVAL", "return redis.call('INCR', 'n')", "1", &second]],
        &[&["FLUSHALL"]],
    ];
    for requests in writes {
        let mut client = proxied.proxy.connect().unwrap();
        assert_eq!(call(&mut client, &["SET", &first, "v"]), ok());
        assert_eq!(call_line(&mut client, "WAIT 1 0"), Value::Int(1), "{requests:?}");
        for request in requests {
            client.send_request(request).unwrap();
        }
        client.send_request(&["WAIT", "1", "20"]).unwrap();
        for _ in requests.iter() {
            client.read_value().unwrap();
        }
        assert_eq!(client.read_value().unwrap(), Value::Int(0), "{requests:?}");
    }
    signal(&replicas[1], "-CONT");
}

#[test]
fn both_numbers_of_waitaof_are_the_least() {
    let proxied = Proxied::of((&tarn(), &[]), 2, &[]);
    let mut client = proxied.proxy.connect().unwrap();
    for shard in 0..2 {
        assert_eq!(call(&mut client, &["SET", &proxied.key(shard), "v"]), ok());
    }
    let pair = |local, replicas| Value::Array(vec![Value::Int(local), Value::Int(replicas)]);
    assert_eq!(call_line(&mut client, "WAITAOF 1 0 0"), pair(1, 0));
    let replicas = followers(&proxied, &tarn());
    assert_eq!(call_line(&mut client, "WAITAOF 1 1 0"), pair(1, 1));
    drop(replicas);
    assert!(is_error(&call_line(&mut client, "WAITAOF 2 0 0"), "ERR value is out of range"));
}

#[test]
fn who_waits_is_told_when_a_server_is_lost() {
    let mut proxied = Proxied::begin(2, &[]);
    let mut client = proxied.proxy.connect().unwrap();
    for shard in 0..2 {
        assert_eq!(call(&mut client, &["SET", &proxied.key(shard), "v"]), ok());
    }
    client.send_request(&["WAIT", "1", "0"]).unwrap();
    let waits = |shard: &Server| {
        ask(&mut shard.connect().unwrap(), &["INFO", "clients"]).contains("blocked_clients:1")
    };
    wait_until("both are asked", || proxied.shards.iter().all(waits));
    drop(proxied.shards.remove(1));
    // The other one still waits for a replica.
    let mut shard = proxied.shards[0].connect().unwrap();
    let list = ask(&mut shard, &["CLIENT", "LIST"]);
    let blocked = list.lines().find(|line| line.contains("cmd=wait")).unwrap();
    let id = blocked.split(['=', ' ']).nth(1).unwrap().to_owned();
    assert_eq!(call(&mut shard, &["CLIENT", "UNBLOCK", &id]), Value::Int(1));
    assert!(is_error(&client.read_value().unwrap(), "UNANSWERED"));
    // Whoever goes away is waited for no more.
    let mut other = proxied.proxy.connect().unwrap();
    assert_eq!(call(&mut other, &["SET", &proxied.key(0), "v"]), ok());
    other.send_request(&["WAIT", "1", "0"]).unwrap();
    wait_until("it is asked", || waits(&proxied.shards[0]));
    drop(other);
    wait_until("it is given up", || !waits(&proxied.shards[0]));
}

#[test]
fn what_may_be_lost_with_its_server_is_not_waited_for() {
    let ports: Vec<String> = (0..2).map(|_| free_port().unwrap().to_string()).collect();
    let start = |port: &String| Server::start(Program::Redis, &["--port", port]).unwrap();
    let mut shards: Vec<Option<Server>> = ports.iter().map(|port| Some(start(port))).collect();
    let places: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    let proxy = Server::start(Program::Proxy(tarn_path()), &["--proxy-shards", &places.join(",")]).unwrap();
    let key_of = |shard: usize| {
        let is_its = |key: &String| usize::from(key_slot(key.as_bytes()) >= 8192) == shard;
        (0..).map(|number| format!("k{number}")).find(is_its).unwrap()
    };
    let (first, second) = (key_of(0), key_of(1));
    let mut client = proxy.connect().unwrap();
    assert_eq!(call(&mut client, &["SET", &first, "v"]), ok());
    assert_eq!(call_line(&mut client, "WAIT 0 0"), Value::Int(0));
    let mut begin_anew = |shard: usize| {
        drop(shards[shard].take());
        shards[shard] = Some(start(&ports[shard]));
    };
    let mut other = proxy.connect().unwrap();
    assert_eq!(call(&mut other, &["GET", &second]), Value::Null);
    // It has written nothing there.
    begin_anew(1);
    wait_until("another is met", || call(&mut other, &["GET", &second]) == Value::Null);
    assert_eq!(call_line(&mut client, "WAIT 0 0"), Value::Int(0));
    // Found out by this very request, or by others before it.
    for others_find_out in [false, true] {
        begin_anew(0);
        if others_find_out {
            wait_until("another is met", || call(&mut other, &["GET", &first]) == Value::Null);
        }
        assert!(is_error(&call_line(&mut client, "WAIT 0 0"), "UNANSWERED A shard was lost"));
        // It is told once.
        wait_until("it waits again", || call_line(&mut client, "WAIT 0 0") == Value::Int(0));
        wait_until("it is written", || call(&mut client, &["SET", &first, "v"]) == ok());
        wait_until("it waits", || call_line(&mut client, "WAIT 0 0") == Value::Int(0));
    }
}

#[test]
fn a_replica_that_begins_anew_is_no_loss_though_it_was_a_master() {
    // Its servers keep their addresses.
    let directives = [&["--edition", "durable"], &PATIENT[..]].concat();
    let mut cluster = Cluster::begin_as(Kind::OverEtcd, (2, 2), &directives);
    let topology = cluster.topology_before();
    let seeds: Vec<String> = topology.servers.keys().map(|id| cluster.place_of(*id)).collect();
    let proxy = proxy_of(&seeds.join(","), &["--proxy-read-from", "replica"]);
    // Of both shards.
    let (first, second) = ("bar", "foo");
    let mut reads = proxy.connect().unwrap();
    let master = topology.master_of(ShardId(0)).unwrap().id;
    wait_until("it is written", || call(&mut reads, &["SET", first, "v"]) == ok());
    cluster.kill(master);
    wait_long_until("another is master", || {
        let heir = cluster.topology().and_then(|topology| topology.master_of(ShardId(0)).map(|one| one.id));
        heir.is_some_and(|heir| heir != master)
    });
    let mut read_there = |cluster: &mut Cluster| {
        cluster.restart(master);
        cluster.wait_until_whole();
        let mut replica = cluster.connect(master).unwrap();
        wait_until("the replica is read from", || {
            call(&mut reads, &["GET", first]);
            let stats = ask(&mut replica, &["INFO", "commandstats"]);
            stats.contains("cmdstat_get:") && !stats.contains("cmdstat_get:calls=0,")
        });
    };
    read_there(&mut cluster);
    let mut client = proxy.connect().unwrap();
    // Who writes before that is known may have written to the one that has failed.
    let is_known = format!("addr={},role=master,slots=0,", cluster.place_of(master));
    wait_until("the proxy knows", || ask(&mut client, &["INFO", "shards"]).contains(&is_known));
    for key in [first, second] {
        wait_until("it is written", || call(&mut client, &["SET", key, "v"]) == ok());
    }
    assert_eq!(call_line(&mut client, "WAIT 1 0"), Value::Int(1));
    move_and_wait(&cluster, 1, "0-9");
    cluster.kill(master);
    read_there(&mut cluster);
    assert_eq!(call_line(&mut client, "WAIT 1 0"), Value::Int(1));
}

#[test]
fn what_is_written_when_another_server_was_met_is_written_to_that_one_and_waited_for_there() {
    let servers = [0, 1].map(|_| Server::start(Program::Redis, &[]).unwrap());
    let port = servers[1].address().port().to_string();
    let replica = Server::start(Program::Redis, &["--replicaof", &format!("127.0.0.1 {port}")]).unwrap();
    let mut followed = servers[1].connect().unwrap();
    wait_until("it is followed", || ask(&mut followed, &["INFO", "replication"]).contains("state=online"));
    let relay = Relay::to(servers[0].address()).unwrap();
    let words = ["--proxy-shards", &relay.address().to_string()];
    let proxy = Server::start(Program::Proxy(tarn_path()), &words).unwrap();
    let (mut client, mut other) = (proxy.connect().unwrap(), proxy.connect().unwrap());
    assert_eq!(call_line(&mut client, "SET k v"), ok());
    assert_eq!(call_line(&mut client, "WAIT 0 0"), Value::Int(0));
    // Both of its connections stay open, and lead to the one that was there.
    for (database, to, replicas) in [("1", 1, 1), ("2", 0, 0)] {
        relay.aim(servers[to].address());
        assert_eq!(call(&mut other, &["SELECT", database]), ok());
        assert_eq!(call_line(&mut other, "GET k"), Value::Null);
        assert!(is_error(&call_line(&mut client, "WAIT 0 0"), "UNANSWERED A shard was lost"));
        assert_eq!(call(&mut client, &["SET", "k", database]), ok());
        assert_eq!(call_line(&mut client, &format!("WAIT {replicas} 0")), Value::Int(replicas));
        assert_eq!(call_line(&mut servers[to].connect().unwrap(), "GET k"), text(database));
    }
    drop(replica);
}

#[test]
fn a_server_that_was_asked_for_once_is_waited_for_too() {
    let nodes = redis_cluster();
    let bus = free_port().unwrap().to_string();
    let words = ["--cluster-enabled", "yes", "--cluster-port", &bus];
    let mut target = Server::start(Program::Redis, &words).unwrap();
    let (mut source, mut asked) = (nodes[0].connect().unwrap(), target.connect().unwrap());
    let port = target.address().port().to_string();
    assert_eq!(call(&mut source, &["CLUSTER", "MEET", "127.0.0.1", &port, &bus]), ok());
    let ids = [&mut source, &mut asked].map(|client| ask(client, &["CLUSTER", "MYID"]));
    for client in [&mut source, &mut asked] {
        wait_until("each knows each", || {
            let known = ask(client, &["CLUSTER", "NODES"]);
            ids.iter().all(|id| known.contains(id)) && ask(client, &["CLUSTER", "INFO"]).contains("state:ok")
        });
    }
    // A slot of the first: its keys that are not there go to the target, which has no slots.
    let key = (0..).map(|number| format!("k{number}")).find(|key| key_slot(key.as_bytes()) < 8192).unwrap();
    let slot = key_slot(key.as_bytes()).to_string();
    assert_eq!(call(&mut asked, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &ids[0]]), ok());
    assert_eq!(call(&mut source, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &ids[1]]), ok());
    let proxy = proxy_of(&nodes[0].address().to_string(), &["--databases", "1"]);
    let mut client = proxy.connect().unwrap();
    assert_eq!(call(&mut client, &["SET", &key, "v"]), ok());
    assert_eq!(call(&mut asked, &["DBSIZE"]), Value::Int(1));
    assert_eq!(call_line(&mut client, "WAIT 0 0"), Value::Int(0));
    assert!(ask(&mut asked, &["INFO", "commandstats"]).contains("cmdstat_wait:calls=1,"));
    // What it has may be lost with it, of which the client is told, and which it need not wait for any more.
    target.kill();
    let mut told = Vec::new();
    wait_until("it waits again", || {
        told.push(call_line(&mut client, "WAIT 0 0"));
        told.last() == Some(&Value::Int(0))
    });
    assert!(told.iter().any(|reply| is_error(reply, "UNANSWERED A shard was lost")), "{told:?}");
    assert!(told.len() <= 4, "{told:?}");
}
