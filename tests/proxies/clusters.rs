//! A proxy in front of clusters, whose slots move and whose masters fail: who asks it sees nothing of that but, at worst, an error that says so.

use super::across::{scan, scan_all};
use super::{check, sorted};
use crate::bench_cluster::redis_cluster;
use crate::clusters::cluster::{Cluster, Kind, wait_until};
use crate::clusters::faults;
use crate::slot_moves::move_and_wait;
use crate::tarn_path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use sys::Prng;
use testkit::ask::{ask, call, is_error, shown, text};
use testkit::{Budget, Client, Program, Relay, Server};
use topology::{ServerId, ShardId};
use wire::Value;

/// Keys of each client.
const KEYS: usize = 100;
/// Sets of which all elements but one are their own.
const SETS: usize = 40;
/// Requests in one write.
const PIPELINE: usize = 40;

/// Does something through a proxy in front of a cluster, with keys of several slots; what it calls meanwhile has their slots go to and fro.
pub fn while_slots_move(does: impl FnOnce(&Server, &[String], &dyn Fn())) {
    let cluster = Cluster::begin(3, 1, &["--edition", "memory"]);
    let id = *cluster.topology_before().servers.keys().next().unwrap();
    let proxy = proxy_of(&cluster.place_of(id), &[]);
    let keys = ["a", "b", "c", "d"].map(str::to_owned);
    does(&proxy, &keys, &|| {
        for (to, slots) in [("0", "8192-16383"), ("1", "0-16383"), ("2", "0-9000")] {
            move_and_wait(&cluster, to.parse().unwrap(), slots);
        }
    });
}

pub(super) fn proxy_of(place: &str, directives: &[&str]) -> Server {
    Server::start(Program::Proxy(tarn_path()), &[&["--proxy-cluster", place], directives].concat()).unwrap()
}

/// What a client has counted: of each key what it was told, and how often it was not told.
struct Counted {
    told: Vec<i64>,
    unknown: Vec<i64>,
    errors: Vec<String>,
    requests: usize,
}

/// Counts keys up through the proxy, a pipeline at a time, and reads each in the same pipeline, until it is told to end. What it reads is what it was told.
fn count(proxy: &Server, number: usize, is_over: &AtomicBool) -> Counted {
    let mut client = proxy.connect().unwrap();
    let mut counted =
        Counted { told: vec![0; KEYS], unknown: vec![0; KEYS], errors: Vec::new(), requests: 0 };
    let mut at = 0;
    while !is_over.load(Ordering::Relaxed) {
        let keys: Vec<usize> = (0..PIPELINE).map(|step| (at + step * step) % KEYS).collect();
        at += 1;
        for key in &keys {
            let name = format!("c{number}:{key}");
            client.send_request(&["INCR", &name]).unwrap();
            client.send_request(&["GET", &name]).unwrap();
        }
        for key in keys {
            let (count, read) = (client.read_value().unwrap(), client.read_value().unwrap());
            counted.requests += 2;
            match &count {
                Value::Int(count) => {
                    let (before, most) = (counted.told[key], counted.told[key] + counted.unknown[key]);
                    assert!(
                        (before + 1..=most + 1).contains(count),
                        "c{number}:{key}: {count} behind {before}"
                    );
                    counted.unknown[key] -= count - 1 - before;
                    counted.told[key] = *count;
                }
                Value::Error(_) => {
                    counted.unknown[key] += 1;
                    counted.errors.push(shown(&count));
                }
                other => panic!("{other:?}"),
            }
            match &read {
                Value::Bulk(text) => {
                    let read: i64 = String::from_utf8_lossy(text).parse().unwrap();
                    let most = counted.told[key] + counted.unknown[key];
                    assert!(
                        (counted.told[key]..=most).contains(&read),
                        "c{number}:{key} is {read} of {most}"
                    );
                }
                Value::Null => assert_eq!(counted.told[key], 0),
                Value::Error(_) => counted.errors.push(shown(&read)),
                other => panic!("{other:?}"),
            }
        }
    }
    counted
}

/// Asks for what sets of many slots have in common, which is always the same, until it is told to end. Gives what it was told that was an error.
fn intersect(proxy: &Server, is_over: &AtomicBool) -> Vec<String> {
    let mut client = proxy.connect().unwrap();
    let names: Vec<String> = (0..SETS).map(|number| format!("set:{number}")).collect();
    let (mut errors, mut asked) = (Vec::new(), 0);
    for name in &names {
        wait_until("it is added", || {
            let reply = call(&mut client, &["SADD", name, "common", name]);
            errors.extend(Some(&reply).filter(|reply| matches!(reply, Value::Error(_))).map(shown));
            matches!(reply, Value::Int(_))
        });
    }
    let words: Vec<&str> = names.iter().map(String::as_str).collect();
    let request = [&["SINTER"], &words[..]].concat();
    while !is_over.load(Ordering::Relaxed) || asked == 0 {
        asked += 1;
        match listed(&mut client, &["MATCH", "set:*", "COUNT", "300"]) {
            Ok(seen) => assert_eq!(seen.len(), SETS, "{:?}", names.iter().find(|name| !seen.contains(name))),
            Err(error) => errors.push(error),
        }
        match call(&mut client, &request) {
            error @ Value::Error(_) => errors.push(shown(&error)),
            found => assert_eq!(found, Value::Array(vec![text("common")])),
        }
    }
    errors
}

/// The keys that SCAN lists, or an error.
fn listed(client: &mut Client, options: &[&str]) -> Result<Vec<String>, String> {
    let (mut cursor, mut seen) = ("0".to_owned(), Vec::new());
    loop {
        match call(client, &[&["SCAN", &cursor], options].concat()) {
            Value::Array(reply) => {
                seen.extend(sorted(reply[1].clone()));
                cursor = shown(&reply[0]);
            }
            error => return Err(shown(&error)),
        }
        if cursor == "0" {
            seen.sort();
            seen.dedup();
            return Ok(seen);
        }
    }
}

/// Has three clients count, and one intersect, while something happens; gives what they were told that was an error.
fn counted_while(proxy: &Server, happens: impl FnOnce()) -> Vec<String> {
    let is_over = AtomicBool::new(false);
    let (counted, mut errors): (Vec<Counted>, Vec<String>) = thread::scope(|scope| {
        let _ends = testkit::Ends(&is_over);
        let (proxy, is_over) = (&proxy, &is_over);
        let clients: Vec<_> =
            (0..3).map(|number| scope.spawn(move || count(proxy, number, is_over))).collect();
        let other = scope.spawn(move || intersect(proxy, is_over));
        // Whatever comes of it: nobody goes on for ever.
        let happened = std::panic::catch_unwind(std::panic::AssertUnwindSafe(happens));
        is_over.store(true, Ordering::Relaxed);
        if let Err(panic) = happened {
            std::panic::resume_unwind(panic);
        }
        (clients.into_iter().map(|client| client.join().unwrap()).collect(), other.join().unwrap())
    });
    let mut client = proxy.connect().unwrap();
    for (number, one) in counted.iter().enumerate() {
        assert!(one.requests > 0);
        for key in 0..KEYS {
            let mut read = Value::Null;
            wait_until("it is answered", || {
                read = call(&mut client, &["GET", &format!("c{number}:{key}")]);
                !matches!(read, Value::Error(_))
            });
            let read = if read == Value::Null { 0 } else { shown(&read).parse::<i64>().unwrap() };
            let most = one.told[key] + one.unknown[key];
            assert!(
                (one.told[key]..=most).contains(&read),
                "c{number}:{key} is {read}, told {}",
                one.told[key]
            );
        }
    }
    errors.extend(counted.into_iter().flat_map(|one| one.errors));
    errors
}

#[test]
fn a_redis_cluster_is_resharded_under_load() {
    let nodes = redis_cluster();
    let proxy = proxy_of(&nodes[0].address().to_string(), &["--databases", "1"]);
    let ids: Vec<String> =
        nodes.iter().map(|node| ask(&mut node.connect().unwrap(), &["CLUSTER", "MYID"])).collect();
    let errors = counted_while(&proxy, || {
        for (from, to) in [(0, 1), (1, 0)] {
            let done = testkit::process::bounded("redis-cli")
                .args([
                    "--cluster",
                    "reshard",
                    &nodes[0].address().to_string(),
                    "--cluster-yes",
                    "--cluster-slots",
                    "600",
                ])
                .args(["--cluster-from", &ids[from], "--cluster-to", &ids[to]])
                .output()
                .unwrap();
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
        }
    });
    assert_eq!(errors, Vec::<String>::new());
}

#[test]
fn slots_of_a_tarn_cluster_move_under_load() {
    let cluster = Cluster::begin(3, 1, &["--edition", "memory"]);
    let id = *cluster.topology().unwrap().servers.keys().next().unwrap();
    let proxy = proxy_of(&cluster.place_of(id), &[]);
    let errors = counted_while(&proxy, || {
        for (to, slots) in
            [("0", "5000-9000"), ("1", "0-3000"), ("2", "2000-8000"), ("0", "0-16383"), ("1", "8192-16383")]
        {
            move_and_wait(&cluster, to.parse().unwrap(), slots);
        }
    });
    assert_eq!(errors, Vec::<String>::new());
    let mut client = proxy.connect().unwrap();
    assert_eq!(call(&mut client, &["MSET", "a", "1", "b", "2", "c", "3"]), testkit::ask::ok());
    assert_eq!(call(&mut client, &["EXISTS", "a", "b", "c", "d"]), Value::Int(3));
}

#[test]
fn masters_of_a_tarn_cluster_fail_under_load() {
    let mut cluster = Cluster::begin(3, 2, &["--edition", "durable"]);
    let topology = cluster.topology().unwrap();
    let seeds: Vec<String> = topology.servers.keys().map(|id| cluster.place_of(*id)).collect();
    let proxy = proxy_of(&seeds.join(","), &[]);
    let errors = counted_while(&proxy, || {
        for shard in [ShardId(0), ShardId(1)] {
            cluster.wait_until_whole();
            let master = cluster.topology_before().master_of(shard).unwrap().id;
            cluster.kill(master);
            wait_until("another is master", || {
                let topology = cluster.topology();
                topology
                    .is_some_and(|topology| topology.master_of(shard).is_some_and(|other| other.id != master))
            });
            cluster.restart(master);
            wait_until("it is served", || {
                let mut client = proxy.connect().unwrap();
                (0..30).all(|key| !matches!(call(&mut client, &["GET", &format!("k{key}")]), Value::Error(_)))
            });
        }
    });
    assert_known(&errors);
}

/// A shard of two servers, the master first, behind a proxy that was told of that one.
fn shard_of_two() -> (Cluster, [ServerId; 2], Server) {
    let cluster = Cluster::begin(1, 2, &["--edition", "memory"]);
    cluster.wait_until_whole();
    let topology = cluster.topology_before();
    let master = topology.master_of(ShardId(0)).unwrap().id;
    let heir = *topology.servers.keys().find(|id| **id != master).unwrap();
    let proxy = proxy_of(&cluster.place_of(master), &[]);
    (cluster, [master, heir], proxy)
}

#[test]
fn a_script_is_run_by_who_has_become_master() {
    let (cluster, [_, heir], proxy) = shard_of_two();
    let mut client = proxy.connect().unwrap();
    let script = "return redis.call('INCR', KEYS[1])";
    assert_eq!(call(&mut client, &["EVAL", script, "1", "k"]), Value::Int(1));
    cluster.switch(ShardId(0), heir);
    // Nothing else has told of it.
    assert_eq!(call(&mut client, &["EVAL", script, "1", "k"]), Value::Int(2));
}

#[test]
fn who_waits_does_so_on_at_who_has_become_master() {
    let (cluster, [master, heir], proxy) = shard_of_two();
    let mut waiting = [proxy.connect().unwrap(), cluster.connect(master).unwrap()];
    let mut waits_for_time = cluster.connect(master).unwrap();
    waiting.iter_mut().for_each(|client| client.send_request(&["BLPOP", "l", "0"]).unwrap());
    waits_for_time.send_request(&["WAIT", "9", "0"]).unwrap();
    let [mut before, mut after] = [master, heir].map(|id| cluster.connect(id).unwrap());
    let wait = |client: &mut Client, count| {
        let wanted = format!("blocked_clients:{count}\r\n");
        wait_until("they wait", || ask(client, &["INFO", "clients"]).contains(&wanted));
    };
    wait(&mut before, 3);
    cluster.switch(ShardId(0), heir);
    let told = waits_for_time.read_to_close().unwrap();
    assert!(told.starts_with(b"-UNBLOCKED "), "{:?}", String::from_utf8_lossy(&told));
    // It is told to ask once more, and then who is master.
    let [proxied, direct] = &mut waiting;
    assert!(is_error(&direct.read_value().unwrap(), &format!("MOVED 11562 {}", cluster.place_of(master))));
    let moved = format!("MOVED 11562 {}", cluster.place_of(heir));
    assert!(is_error(&call(direct, &["BLPOP", "l", "0"]), &moved));
    wait(&mut after, 1);
    assert_eq!(call(&mut after, &["RPUSH", "l", "x"]), Value::Int(1));
    let popped = Value::Array(["l", "x"].map(text).into());
    assert_eq!(proxied.read_value().unwrap(), popped);
}

/// What clients may be told while masters fail.
fn assert_known(errors: &[String]) {
    let is_known = |error: &&String| {
        ["UNANSWERED", "ERR proxy: no connection", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MOVED"]
            .iter()
            .any(|word| error.starts_with(word))
    };
    assert_eq!(errors.iter().find(|error| !is_known(error)), None);
    println!("{} errors", errors.len());
}

/// Masters and their replicas are killed, stand still and are cut off, and now and then who leads the config servers or etcd with them. TARN_STEPS: so many
/// times.
#[test]
fn nothing_acknowledged_through_a_proxy_is_lost_or_done_twice() {
    let budget = Budget::from_env(1, 2);
    let mut cluster = Cluster::begin_as(Kind::OverEtcd, (3, 2), &["--edition", "durable"]);
    let topology = cluster.topology_before();
    let seeds: Vec<String> = topology.servers.keys().map(|id| cluster.place_of(*id)).collect();
    let proxy = proxy_of(&seeds.join(","), &["--proxy-shard-timeout", "2"]);
    let (mut prng, mut faults, mut steps) = (Prng::from_seed(budget.seed), 0, 0);
    let errors = counted_while(&proxy, || {
        while budget.allows(steps) {
            faults += faults::strike(&mut cluster, &mut prng).0.len();
            steps += 1;
        }
    });
    assert_known(&errors);
    println!("{faults} faults in {steps} rounds");
}

#[test]
fn slots_that_nobody_has_are_told_of() {
    let bus = testkit::free_port().unwrap().to_string();
    let words = ["--cluster-enabled", "yes", "--cluster-port", &bus, "--cluster-require-full-coverage", "no"];
    let node = Server::start(Program::Redis, &words).unwrap();
    let mut client = node.connect().unwrap();
    let place = node.address().to_string();
    let look = || check(&["--proxy-cluster", &place, "--databases", "1"]);
    for (first, last, is_whole) in [("0", "16379", false), ("16380", "16383", true)] {
        assert_eq!(call(&mut client, &["CLUSTER", "ADDSLOTSRANGE", first, last]), testkit::ask::ok());
        wait_until("it serves", || ask(&mut client, &["CLUSTER", "INFO"]).contains("cluster_state:ok"));
        let (is_sound, told) = look();
        assert_eq!(is_sound, is_whole, "{told}");
        assert_eq!(!is_whole, told.contains("4 slots: NOT SERVED: nobody has them"), "{told}");
    }
    let (is_sound, told) = check(&["--proxy-shards", &place]);
    assert!(!is_sound && told.contains("NOT SERVED: it is a node of a cluster"), "{told}");
}

#[test]
fn the_log_says_that_nobody_tells_who_has_which_slot_and_when_somebody_does_again() {
    let relay = Relay::to(([127, 0, 0, 1], 1).into()).unwrap();
    let (bus, port) = (testkit::free_port().unwrap().to_string(), relay.address().port().to_string());
    let words = ["--cluster-enabled", "yes", "--cluster-port", &bus, "--cluster-announce-ip", "127.0.0.1"];
    let words = [&words[..], &["--cluster-announce-port", &port]].concat();
    let mut node = Server::start(Program::Redis, &words).unwrap();
    relay.aim(node.address());
    let mut client = node.connect().unwrap();
    assert_eq!(call(&mut client, &["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]), testkit::ask::ok());
    wait_until("it serves", || ask(&mut client, &["CLUSTER", "INFO"]).contains("cluster_state:ok"));
    // With such a one nodes are asked again after a second.
    let words = ["--databases", "1", "--proxy-config-servers", "127.0.0.1:1"];
    let proxy = proxy_of(&relay.address().to_string(), &words);
    assert_eq!(call(&mut proxy.connect().unwrap(), &["SET", "k", "v"]), testkit::ask::ok());
    node.kill();
    proxy.await_output(&["No node of the cluster tells who has which slot"]);
    node.restart().unwrap();
    relay.aim(node.address());
    proxy.await_output(&["Nodes of the cluster tell again who has which slot"]);
}

#[test]
fn a_cluster_that_is_none_is_told_of() {
    let server = Server::start(Program::Redis, &[]).unwrap();
    let place = server.address().to_string();
    let done = Command::new(tarn_path()).args(["proxy", "--proxy-cluster", &place]).output().unwrap();
    let told = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(!done.status.success() && told.contains("cluster support disabled"), "{told}");
    let nodes = redis_cluster();
    let proxy = proxy_of(&nodes[0].address().to_string(), &[]);
    let mut client: Client = proxy.connect().unwrap();
    assert!(is_error(&call(&mut client, &["SCAN", "x"]), "ERR invalid cursor"));
    assert!(is_error(&call(&mut client, &["SCAN", "0", "COUNT"]), "ERR syntax error"));
    for protocol in ["3", "2"] {
        ask(&mut client, &["HELLO", protocol]);
        assert_eq!(scan(&mut client, "0", &[]), ("0".to_owned(), Vec::new()));
    }
    for key in ["a", "b", "c"] {
        assert_eq!(call(&mut client, &["SET", key, "v"]), testkit::ask::ok());
    }
    assert_eq!(call(&mut client, &["LPUSH", "l", "v"]), Value::Int(1));
    let listed = |keys: &[&str]| ("0".to_owned(), keys.iter().map(|key| (*key).to_owned()).collect());
    assert_eq!(scan(&mut client, "0", &[]), listed(&["a", "b", "c", "l"]));
    assert_eq!(scan(&mut client, "0", &["MATCH", "[bl]"]), listed(&["b", "l"]));
    assert_eq!(scan(&mut client, "0", &["TYPE", "List", "COUNT", "100"]), listed(&["l"]));
    assert_eq!(scan(&mut client, "16384", &[]).1, Vec::<String>::new());
    let mut seen = scan_all(&mut client, &["COUNT", "1"]);
    seen.sort();
    assert_eq!(seen, ["a", "b", "c", "l"]);
    assert_eq!(call(&mut client, &["SELECT", "1"]), testkit::ask::ok());
    assert!(shown(&call(&mut client, &["GET", "k"])).contains("SELECT is not allowed in cluster mode"));
}

/// Has the slot of a key move from the one of two nodes that has it to the other, whose number is given.
pub(super) fn begin_move(nodes: &[Server], key: &str) -> usize {
    let mut clients: Vec<Client> = nodes.iter().map(|node| node.connect().unwrap()).collect();
    let is_owner = |client: &mut Client| !is_error(&call(client, &["GET", key]), "MOVED");
    let source = clients.iter_mut().position(is_owner).unwrap();
    let target = 1 - source;
    let ids: Vec<String> = clients.iter_mut().map(|client| ask(client, &["CLUSTER", "MYID"])).collect();
    let slot = wire::key_slot(key.as_bytes()).to_string();
    for (at, state, other) in [(target, "IMPORTING", source), (source, "MIGRATING", target)] {
        let done = call(&mut clients[at], &["CLUSTER", "SETSLOT", &slot, state, &ids[other]]);
        assert_eq!(done, testkit::ask::ok());
    }
    target
}

#[test]
fn a_slot_that_is_half_elsewhere_is_listed_whole() {
    let nodes = redis_cluster();
    let proxy = proxy_of(&nodes[0].address().to_string(), &[]);
    let mut client = proxy.connect().unwrap();
    let keys = ["{q}1", "{q}2", "{q}3", "{q}4"];
    for key in keys {
        assert_eq!(call(&mut client, &["SET", key, "v"]), testkit::ask::ok());
    }
    let target = begin_move(&nodes, "q");
    let mut clients: Vec<Client> = nodes.iter().map(|node| node.connect().unwrap()).collect();
    let source = 1 - target;
    let port = nodes[target].address().port().to_string();
    let moved = ["MIGRATE", "127.0.0.1", &port, "", "0", "60000", "KEYS", keys[0], keys[2]];
    assert_eq!(call(&mut clients[source], &moved), testkit::ask::ok());
    assert_eq!(scan_all(&mut client, &[]), keys);
    assert_eq!(scan_all(&mut client, &["COUNT", "1", "TYPE", "string"]), keys);
    assert_eq!(call(&mut client, &["SET", "other", "v"]), testkit::ask::ok());
    assert_eq!(
        call(&mut client, &["LCS", keys[0], "other", "LEN"]),
        Value::Int(1),
        "its copy is fetched there"
    );
    assert_eq!(call(&mut client, &["EVAL", "return redis.call('GET', KEYS[1])", "1", keys[2]]), text("v"));
    // Who waits for a key waits where it would be.
    let mut waits = proxy.connect().unwrap();
    waits.send_request(&["BLPOP", "{q}list", "0"]).unwrap();
    wait_until("it waits there", || {
        ask(&mut clients[target], &["INFO", "clients"]).contains("blocked_clients:1")
    });
    assert_eq!(call(&mut client, &["RPUSH", "{q}list", "e"]), Value::Int(1));
    assert_eq!(waits.read_value().unwrap(), Value::Array(vec![text("{q}list"), text("e")]));
    // And is woken there.
    let id = shown(&call(&mut waits, &["CLIENT", "ID"]));
    let id = id.trim_start_matches("Int(").trim_end_matches(')');
    waits.send_request(&["BLPOP", "{q}list", "0"]).unwrap();
    wait_until("it is woken", || call(&mut client, &["CLIENT", "UNBLOCK", id]) == Value::Int(1));
    assert_eq!(waits.read_value().unwrap(), Value::NullArray);
    // Even by the name that is looked for to find out who has a slot.
    let looked_for = "tarn-proxy:no-such-key:0";
    assert_eq!(call(&mut client, &["SET", looked_for, "v"]), testkit::ask::ok());
    assert_eq!(scan_all(&mut client, &["MATCH", "tarn-*"]), [looked_for]);
}
