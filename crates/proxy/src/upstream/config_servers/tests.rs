//! Config servers and nodes that say what they are told to, and a proxy's host that asks them.

use super::super::cluster::{Asking as Follower, Named};
use super::super::{Routes, Upstream};
use super::*;
use config::{Config, Startup};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use wire::Decoder;

const FRESH: &str = "TOPOLOGY FOLLOW 0";
const KNOWN: &str = "TOPOLOGY GET";
const BEHIND: &str = "-UNAVAILABLE the store of decisions gives no answer to rely on\r\n";

fn host(directives: &str) -> Arc<Server> {
    server::commands::install();
    let text = format!("edition memory\n{directives}\n");
    let Ok(Startup::Serve { config, .. }) = Config::from_text(text.as_bytes()) else {
        panic!("{directives}")
    };
    server::assembly::new(*config, 1)
}

/// Somebody who answers each request, or says nothing.
fn somebody(answer: impl Fn(&str) -> Option<String> + Send + 'static) -> Node {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let word = |word: &Value| match word {
        Value::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        other => panic!("{other:?}"),
    };
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let (mut socket, mut decoder, mut buffer) = (socket.unwrap(), Decoder::new(), [0; 4096]);
            while let Ok(count @ 1..) = socket.read(&mut buffer) {
                decoder.feed(&buffer[..count]);
                while let Some(Value::Array(words)) = decoder.decode().unwrap() {
                    let line = words.iter().map(word).collect::<Vec<_>>().join(" ");
                    // Who asked may have gone.
                    let _ = socket.write_all(answer(&line).unwrap_or_default().as_bytes());
                }
            }
        }
    });
    Node { host: "127.0.0.1".to_owned(), port }
}

fn nobody() -> Node {
    Node { host: "127.0.0.1".to_owned(), port: 1 }
}

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

/// What a config server says of a shard with these servers, of which the last is master, and of one that waits for a place.
fn topology(cluster: &str, revision: u64, ports: &[u16]) -> String {
    let mut text = format!("tarn-topology 1 {cluster} {revision}\n");
    for (number, port) in (1..).zip(ports) {
        text += &format!("server {number:040x} 127.0.0.1 {port} 0 - - memory 0 {number}\n");
    }
    text += &format!("server {:040x} 127.0.0.1 9 0 - - memory -\n", 99);
    bulk(&(text + &format!("shard 0 1 {} - -\nslots 0-16383=0\nend\n", ports.len())))
}

fn config_server(told: String) -> Node {
    somebody(move |line| (line == FRESH).then(|| told.clone()))
}

/// The sentence about a config server that is of no use.
fn why(host: &Arc<Server>, place: &Node) -> String {
    ask(host, place).map(drop).expect_err("it is of no use")
}

#[test]
fn nodes_are_the_servers_with_places_and_masters_come_first() {
    let place = somebody(|line| match line {
        "AUTH secret" => Some("+OK\r\n".to_owned()),
        FRESH => Some(topology("c0ffee", 7, &[7001, 7002])),
        _ => None,
    });
    let told = ask(&host("masterauth secret"), &place).unwrap();
    assert_eq!((told.cluster.as_str(), told.revision, told.doubt), ("c0ffee", 7, None));
    assert_eq!(told.nodes.iter().map(|node| node.port).collect::<Vec<_>>(), [7002, 7001]);
}

#[test]
fn what_is_of_no_use_is_one_sentence() {
    let host = host("masterauth secret");
    let with_password = |answer: Option<&'static str>| {
        somebody(move |line| match line {
            "AUTH secret" => Some("+OK\r\n".to_owned()),
            _ => answer.map(str::to_owned),
        })
    };
    for (answer, sentence) in [
        (Some("$0\r\n\r\n"), "it knows of no cluster yet"),
        (Some("$3\r\nabc\r\n"), "what it says is no topology"),
        (Some("+OK\r\n"), "what it says is no topology"),
        (Some("-ERR unknown command\r\n"), "ERR unknown command"),
        (Some(BEHIND), "UNAVAILABLE the store of decisions gives no answer to rely on"),
        (None, "timed out"),
    ] {
        let told = why(&host, &with_password(answer));
        assert!(told.contains(sentence), "{answer:?}: {told}");
    }
    let refuses = somebody(|_| Some("-WRONGPASS invalid username-password pair\r\n".to_owned()));
    assert!(why(&host, &refuses).starts_with("WRONGPASS"));
    assert_eq!(why(&host, &nobody()), "Connection refused");
}

#[test]
fn one_that_is_behind_is_heard_last() {
    let behind = || {
        somebody(|line| match line {
            FRESH => Some(BEHIND.to_owned()),
            KNOWN => Some(topology("c0ffee", 7, &[7001])),
            _ => None,
        })
    };
    let (host, fresh) = (host(""), config_server(topology("c0ffee", 8, &[7002])));
    let first = |told: &Told| Ok(told.nodes[0].port);
    let mut all = ConfigServers::new(vec![behind(), fresh], Arc::default());
    assert_eq!(all.find(&host, first), Ok(7002));
    let mut all = ConfigServers::new(vec![behind(), nobody()], Arc::default());
    assert_eq!(all.find(&host, first), Ok(7001), "what it knows is better than nothing");
    assert!(ask(&host, &behind()).is_ok_and(|told| told.doubt.is_some()));
}

#[test]
fn a_store_that_was_put_back_is_believed_where_nobody_tells_more() {
    let (host, revision) = (host(""), Arc::new(AtomicU64::new(8)));
    let (now, other) = (revision.clone(), AtomicU64::new(8));
    let place = somebody(move |line| {
        (line == FRESH).then(|| topology("c0ffee", now.load(Ordering::SeqCst), &[7001]))
    });
    // It is cut off from its store once it has told something.
    let cut_off = somebody(move |line| match line {
        FRESH if other.swap(3, Ordering::SeqCst) == 8 => Some(topology("c0ffee", 8, &[7002])),
        FRESH => Some(BEHIND.to_owned()),
        _ => Some(topology("c0ffee", 3, &[7002])),
    });
    let mut all = ConfigServers::new(vec![cut_off, place], Arc::default());
    let port = |told: &Told| Ok::<_, String>(told.nodes[0].port);
    assert_eq!(all.find(&host, port), Ok(7002));
    revision.store(7, Ordering::SeqCst);
    assert_eq!(all.find(&host, port), Ok(7001), "what was not just read is no word of the store");
    let at = |told: &Told| Ok::<_, String>(told.revision);
    revision.store(5, Ordering::SeqCst);
    assert_eq!(all.find(&host, at), Ok(5));
    revision.store(6, Ordering::SeqCst);
    assert_eq!(all.find(&host, at), Ok(6));
}

#[test]
fn another_cluster_and_what_was_before_are_not_believed() {
    let host = host("");
    let places = ["c0ffee", "decaf", "c0ffee", "c0ffee"].iter().zip([8, 9, 7, 8]);
    let places = places.map(|(cluster, revision)| config_server(topology(cluster, revision, &[7001])));
    let mut all = ConfigServers::new(places.collect(), Arc::default());
    assert_eq!(all.find(&host, |_| Ok(())), Ok(()));
    let refused = all.find(&host, |_| Err::<(), _>("no node is there".to_owned())).unwrap_err();
    let said =
        [": no node is there", ": it is of another cluster (decaf)", ": it is behind", ": no node is there"];
    let mut rest = refused.as_str();
    for part in said {
        let at = rest.find(part).unwrap_or_else(|| panic!("{part} is not in {refused}"));
        rest = &rest[at + part.len()..];
    }
}

#[test]
fn who_was_of_use_is_asked_first_and_who_was_not_is_not_asked_at_once_again() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    let empty = somebody(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        Some("$0\r\n\r\n".to_owned())
    });
    let (host, good) = (host(""), config_server(topology("c0ffee", 8, &[7001])));
    let mut all = ConfigServers::new(vec![empty, good], Arc::default());
    for _ in 0..3 {
        assert_eq!(all.find(&host, |_| Ok(())), Ok(()));
    }
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    let mut refuse = || all.find(&host, |_| Err::<(), _>("no node is there".to_owned()));
    // A busy machine may take so long for the three that they are asked again; then it is tried anew.
    let before = loop {
        let (before, began) = (asked.load(Ordering::SeqCst), Instant::now());
        let told = [refuse(), refuse(), refuse()];
        let is_in_time = began.elapsed() < ASKED_AGAIN;
        assert!(told.iter().all(|one| one.is_err() && *one == told[0]), "{told:?}");
        if is_in_time {
            break before;
        }
        std::thread::sleep(ASKED_AGAIN);
    };
    assert_eq!(asked.load(Ordering::SeqCst), before + 1);
    std::thread::sleep(ASKED_AGAIN);
    assert!(refuse().is_err());
    assert_eq!(asked.load(Ordering::SeqCst), before + 2);
}

/// A node that has all slots as long as it is there.
fn node(is_gone: &Arc<AtomicBool>) -> Node {
    let is_gone = is_gone.clone();
    somebody(move |line| match (line, is_gone.load(Ordering::SeqCst)) {
        ("CLUSTER INFO", false) => Some(bulk("cluster_state:ok\r\ntarn_cluster_id:c0ffee\r\n")),
        ("CLUSTER INFO", true) => Some(bulk("cluster_state:fail\r\n")),
        _ => Some("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$0\r\n\r\n:1\r\n".to_owned()),
    })
}

#[test]
fn config_servers_are_asked_where_no_node_that_is_known_tells() {
    let gone = [0; 2].map(|_| Arc::new(AtomicBool::new(false)));
    let nodes = gone.each_ref().map(node);
    let (asked, ports) = (Arc::new(AtomicUsize::new(0)), nodes.each_ref().map(|node| node.port));
    let (counted, moved) = (asked.clone(), gone[0].clone());
    let place = somebody(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        let port = ports[usize::from(moved.load(Ordering::SeqCst))];
        Some(topology("c0ffee", 7, &[port]))
    });
    let named = Named { nodes: vec![nodes[0].clone()], config_servers: vec![place] };
    let mut follower = Follower::new(named, &Arc::default(), host(""));
    let routes = follower.ask(&Routes::empty(true)).unwrap();
    assert_eq!((routes.masters.len(), asked.load(Ordering::SeqCst)), (1, 0));
    gone[0].store(true, Ordering::SeqCst);
    assert!(follower.ask(&routes).is_ok());
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    gone[1].store(true, Ordering::SeqCst);
    let refused = follower.ask(&routes).unwrap_err();
    assert!(refused.contains("its cluster is down; nor does a node that a config server names"), "{refused}");
}

/// A node that knows the cluster up to there, if it is there (0: it is not), and says that all slots are whose port this is.
fn node_that(knows: &Arc<AtomicU64>, owner: u16) -> Node {
    let knows = knows.clone();
    somebody(move |line| match (line, knows.load(Ordering::SeqCst)) {
        ("CLUSTER INFO", 0) => Some(bulk("cluster_state:fail\r\n")),
        ("CLUSTER INFO", revision) => {
            let own = format!("tarn_cluster_id:c0ffee\r\ntarn_topology_revision:{revision}\r\n");
            Some(bulk(&format!("cluster_state:ok\r\n{own}")))
        }
        _ => Some(format!("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$0\r\n\r\n:{owner}\r\n")),
    })
}

/// A config server whose store is at this revision.
fn config_server_at(revision: &Arc<AtomicU64>, node: u16) -> Node {
    let revision = revision.clone();
    somebody(move |line| {
        let (known, now) = (line.strip_prefix("TOPOLOGY FOLLOW ")?, revision.load(Ordering::SeqCst));
        Some(match now.cmp(&known.parse().ok()?) {
            std::cmp::Ordering::Greater => topology("c0ffee", now, &[node]),
            std::cmp::Ordering::Equal => "$0\r\n\r\n".to_owned(),
            std::cmp::Ordering::Less => "-PAST the store was put back\r\n".to_owned(),
        })
    })
}

/// The port of who has the slots.
fn owner(routes: &Routes) -> u16 {
    routes.nodes[usize::from(routes.of(0).unwrap())].port
}

#[test]
fn a_node_that_was_left_behind_does_not_have_the_last_word() {
    let [left, other, store] = [5, 7, 7].map(|revision| Arc::new(AtomicU64::new(revision)));
    let nodes = [node_that(&left, 1), node_that(&other, 2)];
    let place = config_server_at(&store, nodes[1].port);
    let named = Named { nodes: vec![nodes[0].clone()], config_servers: vec![nobody(), place] };
    let mut follower = Follower::new(named, &Arc::default(), host(""));
    let routes = follower.ask(&Routes::empty(true)).unwrap();
    assert_eq!(owner(&routes), 1);
    assert!(follower.check(&routes).is_none(), "nobody is there");
    let routes = follower.check(&routes).expect("it was left behind");
    assert_eq!(owner(&routes), 2);
    assert!(follower.check(&routes).is_none(), "nothing is later");
    // Nor is it listened to when the others are gone for a moment.
    other.store(0, Ordering::SeqCst);
    let refused = follower.ask(&routes).unwrap_err();
    assert!(refused.contains(": it was left behind: it knows the cluster up to revision 5"), "{refused}");
    left.store(7, Ordering::SeqCst);
    assert_eq!(follower.ask(&routes).map(|routes| owner(&routes)), Ok(1));
}

#[test]
fn nodes_that_know_less_are_believed_where_the_store_was_put_back() {
    let [known, store] = [9, 9].map(|revision| Arc::new(AtomicU64::new(revision)));
    let node = node_that(&known, 1);
    let place = config_server_at(&store, node.port);
    let named = Named { nodes: vec![node], config_servers: vec![place] };
    let mut follower = Follower::new(named, &Arc::default(), host(""));
    let routes = follower.ask(&Routes::empty(true)).unwrap();
    known.store(4, Ordering::SeqCst);
    assert!(follower.ask(&routes).is_err());
    store.store(3, Ordering::SeqCst);
    std::thread::sleep(ASKED_AGAIN);
    assert!(follower.ask(&routes).is_ok());
    // From then on that counts.
    known.store(3, Ordering::SeqCst);
    store.store(5, Ordering::SeqCst);
    assert!(follower.ask(&routes).is_err());
}

#[test]
fn a_proxy_does_not_begin_with_a_node_that_was_left_behind() {
    let [left, other, store] = [5, 7, 7].map(|revision| Arc::new(AtomicU64::new(revision)));
    let nodes = [node_that(&left, 1), node_that(&other, 2)];
    let place = config_server_at(&store, nodes[1].port);
    let named = Named { nodes: vec![nodes[0].clone()], config_servers: vec![nobody(), place] };
    let begin = |named: Named| Upstream::cluster(named, &host("")).map(|upstream| owner(&upstream.routes()));
    assert_eq!(begin(named), Ok(2));
    // Where none of them tells, what nodes say counts.
    let named = Named { nodes: vec![nodes[0].clone()], config_servers: vec![nobody(), nobody()] };
    assert_eq!(begin(named), Ok(1));
}

#[test]
fn a_store_that_was_put_back_is_believed_last_where_nodes_have_told_of_more() {
    let [known, other, back, store] = [9, 9, 9, 9].map(|revision| Arc::new(AtomicU64::new(revision)));
    let nodes = [node_that(&known, 1), node_that(&other, 2)];
    let places = [config_server_at(&back, nodes[0].port), config_server_at(&store, nodes[1].port)];
    let named = Named { nodes: vec![nodes[0].clone()], config_servers: places.to_vec() };
    let mut follower = Follower::new(named, &Arc::default(), host(""));
    let routes = follower.ask(&Routes::empty(true)).unwrap();
    assert_eq!(owner(&routes), 1);
    known.store(4, Ordering::SeqCst);
    back.store(3, Ordering::SeqCst);
    assert_eq!(
        follower.ask(&routes).map(|routes| owner(&routes)),
        Ok(2),
        "no config server had to tell before"
    );
}

#[test]
fn a_config_server_whose_store_was_put_back_is_told_of_by_who_looks() {
    let [known, back, store] = [9, 3, 9].map(|revision| Arc::new(AtomicU64::new(revision)));
    let node = node_that(&known, 1);
    let places = [&back, &store].map(|revision| config_server_at(revision, node.port));
    let named = Named { nodes: vec![node], config_servers: places.to_vec() };
    let host = host("");
    let upstream = Upstream::cluster(named, &host).unwrap();
    let look = |place: &Node| crate::check::ask(&host, &upstream, place);
    assert!(look(&places[0]).is_err_and(|why| why.contains("it was put back")));
    assert!(look(&places[1]).is_ok_and(|what| what.contains("revision 9")));
}

#[test]
fn those_that_never_come_to_an_end_hold_up_no_start() {
    let asked = Arc::new(AtomicUsize::new(0));
    let drips = || {
        let (listener, asked) = (TcpListener::bind("127.0.0.1:0").unwrap(), asked.clone());
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            asked.fetch_add(1, Ordering::SeqCst);
            let _ = socket.write_all(b"$1000000\r\n");
            while socket.write_all(b"x").is_ok() {
                std::thread::sleep(CHECKING / 5);
            }
        });
        Node { host: "127.0.0.1".to_owned(), port }
    };
    let named = Named { nodes: Vec::new(), config_servers: (0..20).map(|_| drips()).collect() };
    let mut follower = Follower::new(named, &Arc::default(), host(""));
    assert!(follower.check_by_any(&Routes::empty(true)).is_none());
    // Each has all the time that an answer may take, and after the second there is none left.
    assert!((1..=5).contains(&asked.load(Ordering::SeqCst)));
}
