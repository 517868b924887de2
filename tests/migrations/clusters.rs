//! Imports from clusters, and into them, where a transaction has one slot; and through a proxy, which has no transactions of others.

use super::{Import, Load, redis, tarn_server, word};
use crate::bench_cluster::redis_cluster;
use crate::clusters::cluster::Cluster;
use crate::clusters::guided::Guided;
use crate::proxies::Proxied;
use crate::tarn;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::Command;
use sys::Prng;
use testkit::ask::{ask, call, call_line_well, call_well, ok, shown, wait_until};
use testkit::{Budget, Client, Program, Server, free_port};
use wire::{Value, key_slot};

/// Keys that are counted up, by each client.
const KEYS: u64 = 300;

/// Requests of one key each, or that can be taken apart, some of which may not be done twice.
pub(super) fn counting(random: &mut Prng, number: usize) -> Vec<Vec<String>> {
    let line = |line: String| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let key = |random: &mut Prng| word(random, "key", KEYS);
    let mut requests: Vec<Vec<String>> = (0..15)
        .map(|_| {
            let (a, b) = (random.below(50), random.below(50));
            line(match random.below(6) {
                0 => format!("MSET text{a} {number} text{b} {number}"),
                1 => format!("DEL text{a} text{b}"),
                2 => format!("RPUSH list{a} {b}"),
                3 => format!("SET short{a} {b} PX {}", 1 + random.below(200)),
                _ => format!("INCR {}", key(random)),
            })
        })
        .collect();
    requests.push(line("MULTI".to_owned()));
    requests.push(line(format!("INCR {}", key(random))));
    requests.push(line(format!("INCR {}", key(random))));
    requests.push(line("EXEC".to_owned()));
    requests.push(line("WAIT 1 20".to_owned()));
    requests
}

/// All keys with what they hold, of servers that share them.
pub(super) fn contents(clients: &mut [Client]) -> BTreeMap<String, String> {
    let mut contents = BTreeMap::new();
    for client in clients {
        let Value::Array(keys) = call(client, &["KEYS", "*"]) else { panic!("keys are a list") };
        for key in keys.iter().map(shown) {
            let kind = ask(client, &["TYPE", &key]);
            let value = match kind.as_str() {
                "string" => ask(client, &["GET", &key]),
                "list" => format!("{:?}", call(client, &["LRANGE", &key, "0", "-1"])),
                // It is over.
                "none" => continue,
                other => panic!("{other}"),
            };
            let at = ask(client, &["PEXPIRETIME", &key]);
            contents.insert(key, format!("{value} {at}"));
        }
    }
    contents.retain(|key, _| !key.starts_with("short"));
    contents
}

pub(super) fn connect(places: &[SocketAddr]) -> Vec<Client> {
    places.iter().map(|place| Client::connect(*place).unwrap()).collect()
}

/// The masters of a cluster of Tarn's.
fn masters(cluster: &Cluster) -> Vec<SocketAddr> {
    let topology = cluster.topology().unwrap();
    let masters = topology.servers.values().filter(|server| topology.is_master(server));
    masters.map(|server| cluster.place_of(server.id).parse().unwrap()).collect()
}

/// Ends all connections of imports to these servers, whatever is under way on them.
fn cut(places: &[SocketAddr]) {
    for client in &mut connect(places) {
        for line in
            ask(client, &["CLIENT", "LIST"]).lines().filter(|line| line.contains("name=tarn-migrate:"))
        {
            let id = line.split(' ').find_map(|word| word.strip_prefix("id=")).unwrap();
            call(client, &["CLIENT", "KILL", "ID", id]);
        }
    }
}

#[test]
fn a_server_is_imported_into_a_cluster_and_nothing_is_done_twice() {
    let budget = Budget::from_env(21, 1);
    let source = redis(&["--repl-backlog-size", "64mb"]);
    let cluster = Cluster::begin(2, 1, &["--edition", "memory"]);
    let places = masters(&cluster);
    call_line_well(&mut source.connect().unwrap(), "SET before 1 EX 5000");
    let load = Load::begin(&[source.address(); 3], budget.seed, counting);
    let mut import = Import::begin(source.address(), places[0], &["--verify"]);
    import.await_stream();
    for round in 0..20 {
        load.await_more(5);
        cut(&places);
        if round == 10 {
            import.signal("-KILL");
            import.wait();
            import = Import::begin(source.address(), places[1], &["--verify"]);
            import.await_words("it goes on from there");
        }
    }
    let output = import.cut_over();
    assert!(!output.contains("copied anew"), "{output}");
    let (there, here) = (contents(&mut connect(&[source.address()])), contents(&mut connect(&places)));
    assert_eq!(there, here);
    assert!(there.len() > 100, "there is something to compare");
    load.end(&[&source]);
}

#[test]
fn what_a_cluster_cannot_do_at_once_ends_it_by_name() {
    let source = redis(&[]);
    let cluster = Cluster::begin(2, 1, &["--edition", "memory"]);
    let place = masters(&cluster)[0];
    let mut client = source.connect().unwrap();
    for (line, named) in [
        ("RENAME key1 key2", "the source has done RENAME key1"),
        ("FLUSHALL", "the source has done FLUSHALL"),
        ("SWAPDB 0 1", "the source has done SWAPDB 0"),
    ] {
        call_line_well(&mut client, "SET key1 1");
        let mut import = Import::begin(source.address(), place, &["--anew"]);
        import.await_stream();
        call_line_well(&mut client, line);
        assert!(!import.wait().success());
        import.await_words(named);
    }
}

#[test]
fn each_master_of_a_cluster_is_imported_into_one_server() {
    let budget = Budget::from_env(22, 1);
    let (sources, target) = (redis_cluster(), tarn_server());
    for source in &sources {
        call_line_well(&mut source.connect().unwrap(), "CONFIG SET repl-diskless-sync-delay 0");
    }
    let places: Vec<SocketAddr> = sources.iter().map(Server::address).collect();
    // Keys of the first node, and of the second.
    let load = Load::begin(&places, budget.seed, |random, number| {
        let is_its = |key: &String| usize::from(key_slot(key.as_bytes())) * 2 / wire::SLOTS == number;
        let keys: Vec<String> = (0..40).map(|_| word(random, "key", KEYS)).filter(is_its).collect();
        let lines = keys.iter().map(|key| format!("INCR {key}")).chain(["WAIT 1 20".to_owned()]);
        lines.map(|line| line.split(' ').map(str::to_owned).collect()).collect()
    });
    load.await_more(20);
    let mut import = Import::begin(places[0], target.address(), &["--verify"]);
    import.await_stream();
    for _ in 0..10 {
        load.await_more(5);
        cut(&[target.address()]);
    }
    let output = import.cut_over();
    assert!(!output.contains("copied anew"), "{output}");
    let (there, here) = (contents(&mut connect(&places)), contents(&mut connect(&[target.address()])));
    assert_eq!(there, here);
    load.end(&sources.iter().collect::<Vec<_>>());
}

#[test]
fn slots_that_move_between_sources_end_it() {
    let (sources, target) = (redis_cluster(), tarn_server());
    let mut clients: Vec<Client> = sources.iter().map(|source| source.connect().unwrap()).collect();
    for client in &mut clients {
        call_line_well(client, "CONFIG SET repl-diskless-sync-delay 0");
    }
    let key = (0..).map(|number| format!("key{number}")).find(|key| key_slot(key.as_bytes()) < 8192).unwrap();
    let slot = key_slot(key.as_bytes()).to_string();
    call_line_well(&mut clients[0], &format!("SET {key} 1"));
    let mut import = Import::begin(sources[0].address(), target.address(), &[]);
    import.await_stream();
    let ids: Vec<String> = clients.iter_mut().map(|client| ask(client, &["CLUSTER", "MYID"])).collect();
    call_line_well(&mut clients[1], &format!("CLUSTER SETSLOT {slot} IMPORTING {}", ids[0]));
    call_line_well(&mut clients[0], &format!("CLUSTER SETSLOT {slot} MIGRATING {}", ids[1]));
    let port = sources[1].address().port();
    call_line_well(&mut clients[0], &format!("MIGRATE 127.0.0.1 {port} {key} 0 5000"));
    assert!(!import.wait().success());
    import.await_words(&format!("slot {slot} has moved"));
}

/// Adds a master without slots to a Redis Cluster.
pub(super) fn add_master(servers: &mut Vec<Server>) {
    let bus = free_port().unwrap().to_string();
    let words = ["--cluster-enabled", "yes", "--cluster-port", &bus, "--repl-diskless-sync-delay", "0"];
    let added = Server::start(Program::Redis, &words).unwrap();
    let port = added.address().port().to_string();
    call_well(&mut servers[0].connect().unwrap(), &["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
    servers.push(added);
    let places: Vec<SocketAddr> = servers.iter().map(Server::address).collect();
    let known = format!("cluster_known_nodes:{}", servers.len());
    wait_until("all know all", || {
        connect(&places).iter_mut().all(|client| {
            let info = ask(client, &["CLUSTER", "INFO"]);
            info.contains(&known) && info.contains("cluster_state:ok")
        })
    });
}

#[test]
fn slots_that_move_to_a_master_that_nobody_follows_end_it() {
    let (mut sources, target) = (redis_cluster(), tarn_server());
    add_master(&mut sources);
    let places: Vec<SocketAddr> = sources.iter().map(Server::address).collect();
    let mut clients = connect(&places);
    for client in &mut clients {
        call_line_well(client, "CONFIG SET repl-diskless-sync-delay 0");
    }
    let key = (0..).map(|number| format!("key{number}")).find(|key| key_slot(key.as_bytes()) < 8192).unwrap();
    let slot = key_slot(key.as_bytes());
    call_line_well(&mut clients[0], &format!("SET {key} 1"));
    let mut import = Import::begin(places[0], target.address(), &["--verify"]);
    import.await_stream();
    // On its way it is the first one's still, which says only DEL of its key.
    let ids: Vec<String> = clients.iter_mut().map(|client| ask(client, &["CLUSTER", "MYID"])).collect();
    call_line_well(&mut clients[2], &format!("CLUSTER SETSLOT {slot} IMPORTING {}", ids[0]));
    call_line_well(&mut clients[0], &format!("CLUSTER SETSLOT {slot} MIGRATING {}", ids[2]));
    call_line_well(&mut clients[0], &format!("MIGRATE 127.0.0.1 {} {key} 0 5000", places[2].port()));
    import.ask_to_cut_over();
    assert!(!import.wait().success(), "{}", import.output());
    import.await_words("slots of the source move");
    let mut import = Import::begin(places[1], target.address(), &[]);
    import.await_stream();
    move_slot(&places, slot, (0, 2));
    import.await_words("slots of the source move");
    assert!(!import.wait().success());
}

/// A cluster of one master and its replica, with their clients.
fn master_and_replica() -> ((Server, Client), (Server, Client)) {
    let start = |bus: &str| {
        let words = ["--cluster-enabled", "yes", "--cluster-port", bus, "--repl-diskless-sync-delay", "0"];
        Server::start(Program::Redis, &words).unwrap()
    };
    let buses = [free_port().unwrap().to_string(), free_port().unwrap().to_string()];
    let (master, replica) = (start(&buses[0]), start(&buses[1]));
    let (mut there, mut next) = (master.connect().unwrap(), replica.connect().unwrap());
    call_line_well(&mut there, "CLUSTER ADDSLOTSRANGE 0 16383");
    call_line_well(&mut there, &format!("CLUSTER MEET 127.0.0.1 {} {}", replica.address().port(), buses[1]));
    let id = ask(&mut there, &["CLUSTER", "MYID"]);
    let port = replica.address().port().to_string();
    wait_until("it is a replica", || call(&mut next, &["CLUSTER", "REPLICATE", &id]) == ok());
    wait_until("it follows, and is known", || {
        ask(&mut next, &["INFO", "replication"]).contains("master_link_status:up")
            && format!("{:?}", call(&mut there, &["CLUSTER", "SLOTS"])).contains(&port)
    });
    wait_until("it takes writes", || call(&mut there, &["SET", "before", "1"]) == ok());
    ((master, there), (replica, next))
}

#[test]
fn a_replica_that_takes_the_place_of_the_only_master_is_found() {
    let ((mut master, mut there), (_replica, mut next)) = master_and_replica();
    let target = tarn_server();
    let mut import = Import::begin(master.address(), target.address(), &["--verify"]);
    import.await_stream();
    call_line_well(&mut there, "SET key 1");
    assert_eq!(call(&mut there, &["WAIT", "2", "100000"]), Value::Int(2));
    master.kill();
    call_line_well(&mut next, "CLUSTER FAILOVER TAKEOVER");
    wait_until("it takes writes", || call(&mut next, &["SET", "key", "2"]) == ok());
    import.await_words("goes on from offset");
    let output = import.cut_over();
    assert!(!output.contains("copied anew"), "{output}");
    assert_eq!(contents(&mut [next]), contents(&mut connect(&[target.address()])));
}

#[test]
fn a_replica_that_takes_the_place_of_a_master_before_its_copy_is_copied_from() {
    let ((mut master, mut there), (replica, mut next)) = master_and_replica();
    assert_eq!(call(&mut there, &["WAIT", "1", "100000"]), Value::Int(1));
    let target = tarn_server();
    master.kill();
    let mut import = Import::begin(replica.address(), target.address(), &["--verify"]);
    import.await_words("it is tried again");
    call_line_well(&mut next, "CLUSTER FAILOVER TAKEOVER");
    wait_until("it takes writes", || call(&mut next, &["SET", "key", "2"]) == ok());
    import.await_stream();
    import.cut_over();
    assert_eq!(contents(&mut [next]), contents(&mut connect(&[target.address()])));
}

/// Moves a slot between nodes of a Redis Cluster, as its own tool does.
pub(super) fn move_slot(places: &[SocketAddr], slot: u16, (from, to): (usize, usize)) {
    let mut clients = connect(places);
    let ids: Vec<String> = clients.iter_mut().map(|client| ask(client, &["CLUSTER", "MYID"])).collect();
    let (slot, port) = (slot.to_string(), places[to].port().to_string());
    call_line_well(&mut clients[to], &format!("CLUSTER SETSLOT {slot} IMPORTING {}", ids[from]));
    call_line_well(&mut clients[from], &format!("CLUSTER SETSLOT {slot} MIGRATING {}", ids[to]));
    wait_until("the slot is empty", || {
        let Value::Array(keys) = call(&mut clients[from], &["CLUSTER", "GETKEYSINSLOT", &slot, "100"]) else {
            panic!("keys are a list")
        };
        for key in &keys {
            call(&mut clients[from], &["MIGRATE", "127.0.0.1", &port, &shown(key), "0", "20000", "REPLACE"]);
        }
        keys.is_empty()
    });
    for client in [to, from] {
        assert_eq!(call(&mut clients[client], &["CLUSTER", "SETSLOT", &slot, "NODE", &ids[to]]), ok());
    }
}

#[test]
fn slots_of_a_target_that_move_are_followed() {
    let (source, targets) = (redis(&[]), redis_cluster());
    let places: Vec<SocketAddr> = targets.iter().map(Server::address).collect();
    let load = Load::begin(&[source.address(); 2], 23, counting);
    let mut import = Import::begin(source.address(), places[0], &["--verify"]);
    import.await_stream();
    load.await_more(10);
    let mut clients = connect(&places);
    for number in 0..5 {
        let slot = key_slot(format!("key{number}").as_bytes());
        let from = usize::from(slot) * 2 / wire::SLOTS;
        move_slot(&places, slot, (from, 1 - from));
    }
    let output = import.cut_over();
    assert!(!output.contains("copied anew"), "{output}");
    let (there, here) = (contents(&mut connect(&[source.address()])), contents(&mut clients));
    assert_eq!(there, here);
    load.end(&[&source]);
}

#[test]
fn an_error_of_the_target_is_kept_whatever_else_is_under_way() {
    let (source, targets) = (redis(&[]), redis_cluster());
    let places: Vec<SocketAddr> = targets.iter().map(Server::address).collect();
    let mut client = source.connect().unwrap();
    let key = (0..).map(|number| format!("key{number}")).find(|key| key_slot(key.as_bytes()) < 8192).unwrap();
    call_line_well(&mut client, "SET before 1");
    let mut import = Import::begin(source.address(), places[0], &[]);
    import.await_stream();
    let mut here = connect(&places);
    call_line_well(&mut here[0], &format!("SET {key} text"));
    // All of them come at once, and many are behind it on its connection and on the other.
    let mut lines = vec![format!("RPUSH {key} 1")];
    lines.extend((0..300).map(|number| format!("SET other{number} 1")));
    let requests: Vec<Vec<String>> =
        lines.iter().map(|line| line.split(' ').map(str::to_owned).collect()).collect();
    client.pipeline(&requests).unwrap();
    assert!(!import.wait().success());
    import.await_words(&format!("the target refuses RPUSH {key}"));
    import.await_words("the next run begins a new copy");
    let mut import = Import::begin(source.address(), places[0], &["--verify", "--until-caught-up"]);
    import.await_words("what an earlier copy has left in the target is removed");
    assert!(import.wait().success(), "{}", import.output());
    assert_eq!(contents(&mut [client]), contents(&mut here));
}

#[test]
fn a_target_behind_a_proxy_is_copied_to_anew_when_a_connection_is_lost() {
    let budget = Budget::from_env(24, 1);
    let source = redis(&[]);
    let proxied = Proxied::of((&Program::Redis, &[]), 2, &[]);
    let load = Load::begin(&[source.address(); 2], budget.seed, counting);
    let mut import = Import::begin(source.address(), proxied.proxy.address(), &["--verify"]);
    import.await_words("the target is a proxy");
    import.await_stream();
    load.await_more(10);
    cut(&[proxied.proxy.address()]);
    import.await_words("copied anew");
    import.await_stream_behind("what an earlier copy has left in the target is removed");
    load.await_more(10);
    import.cut_over();
    let places: Vec<SocketAddr> = proxied.shards.iter().map(Server::address).collect();
    let (there, here) = (contents(&mut connect(&[source.address()])), contents(&mut connect(&places)));
    assert_eq!(there, here);
    load.end(&[&source]);
}

#[test]
fn servers_behind_a_proxy_may_be_older_than_it_says_to_be() {
    let (source, proxied) = (redis(&[]), Proxied::of((&Program::Redis, &[]), 2, &[]));
    let mut client = source.connect().unwrap();
    for line in ["XADD stream 1-1 f v", "XGROUP CREATE stream g 0"] {
        call_line_well(&mut client, line);
    }
    let to = proxied.proxy.address();
    let mut import = Import::begin(source.address(), to, &["--verify", "--until-caught-up"]);
    assert!(import.wait().success(), "{}", import.output());
    import.await_words("the values of 1 keys are the same");
}

#[test]
fn groups_that_are_used_scores_and_far_moments_come_through_a_proxy() {
    let (source, proxied) = (redis(&[]), Proxied::of((&tarn(), &["--edition", "memory"]), 2, &[]));
    let mut client = source.connect().unwrap();
    for line in ["ZADD scores 0.3 a 3.14 b -0 c", "SET early v", "PEXPIREAT early 253402300799999"] {
        call_line_well(&mut client, line);
    }
    let to = proxied.proxy.address();
    let mut import = Import::begin(source.address(), to, &["--verify"]);
    import.await_stream();
    for line in [
        "XADD stream 1-1 f v",
        "XGROUP CREATE stream g 0",
        "XREADGROUP GROUP g reader STREAMS stream >",
        "XGROUP CREATECONSUMER stream g idle",
        "XGROUP SETID stream g 0",
        "SET late v",
        "EXPIRE late 100000000000",
    ] {
        call_line_well(&mut client, line);
    }
    let output = import.cut_over();
    assert!(output.contains("the values of 4 keys are the same"), "{output}");
    let mut here = Client::connect(to).unwrap();
    assert_eq!(call(&mut here, &["PEXPIRETIME", "early"]), Value::Int(253_402_300_799_999));
    for question in [&["PEXPIRETIME", "late"][..], &["XPENDING", "stream", "g"]] {
        assert_eq!(call(&mut here, question), call(&mut client, question));
    }
}

#[test]
fn a_cluster_is_imported_into_a_cluster() {
    let sources = redis_cluster();
    for source in &sources {
        call_line_well(&mut source.connect().unwrap(), "CONFIG SET repl-diskless-sync-delay 0");
    }
    let cluster = Cluster::begin(3, 1, &["--edition", "memory"]);
    let places: Vec<SocketAddr> = sources.iter().map(Server::address).collect();
    for number in 0..500 {
        let key = format!("key{number}");
        let node = usize::from(key_slot(key.as_bytes())) * 2 / wire::SLOTS;
        call_line_well(&mut sources[node].connect().unwrap(), &format!("SET {key} {number} EX 5000"));
    }
    let mut import = Import::begin(places[1], masters(&cluster)[0], &["--verify", "--until-caught-up"]);
    assert!(import.wait().success(), "{}", import.output());
    let there = contents(&mut connect(&places));
    assert_eq!(there, contents(&mut connect(&masters(&cluster))));
    let mut guided = Guided::new(&cluster);
    assert_eq!(shown(&guided.call("key7", &["GET", "key7"]).unwrap()), "7");
    let ended = Command::new(crate::tarn_path()).args(["migrate", "--help"]).output().unwrap();
    assert!(ended.status.success());
}
