//! A cluster to test: its config servers, the store of their decisions, and its servers.

use super::config_servers::ConfigServers;
use super::links::Links;
use crate::tarn;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use testkit::{Client, Server};
use topology::{ServerId, ShardId, Topology};
use wire::Value;

/// How long anything may take that has no reason to fail.
const PATIENCE: Duration = Duration::from_secs(240);

/// How long a client waits for a reply that may ask somebody else then, or the same once more.
pub const REPLY_WITHIN: Duration = Duration::from_secs(3);

/// How long config servers may say that they cannot tell.
const TOLD_WITHIN: Duration = Duration::from_secs(10);

/// For servers of which none is to be replaced or left behind because the machine has no time for it.
pub const PATIENT: [&str; 4] = ["--shard-silence", "8000", "--shard-lease", "8100"];

/// Where servers are that say to be elsewhere, and where the others are.
#[derive(Default)]
pub struct Places(Mutex<Vec<Place>>);

#[derive(Clone, Copy)]
struct Place {
    announced: SocketAddr,
    own: SocketAddr,
}

impl Places {
    /// One server's, any of them by number.
    pub fn any(&self, number: usize) -> SocketAddr {
        let places = self.0.lock().expect("nobody panics with it");
        places[number % places.len()].own
    }

    /// Where to find whom others are sent to at this address.
    pub fn own(&self, announced: SocketAddr) -> SocketAddr {
        let places = self.0.lock().expect("nobody panics with it");
        places.iter().find(|place| place.announced == announced).map_or(announced, |place| place.own)
    }
}

/// What runs a cluster.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// One config server, with the store in its directory.
    Embedded,
    /// Two config servers over three members of etcd, and between any two processes links that can be cut.
    OverEtcd,
}

/// A server of the cluster.
struct Node {
    server: Server,
    links: Option<Links>,
    is_down: bool,
}

impl Node {
    fn announced(&self) -> SocketAddr {
        self.links.as_ref().map_or(self.server.address(), Links::address)
    }
}

/// A cluster.
pub struct Cluster {
    pub config: ConfigServers,
    nodes: BTreeMap<ServerId, Node>,
    last: Mutex<Topology>,
    /// Where clients may ask.
    pub places: Arc<Places>,
    copies: usize,
}

impl Cluster {
    /// Begins a cluster with so many shards of so many copies, all servers with these directives.
    pub fn begin(shards: usize, copies: usize, directives: &[&str]) -> Cluster {
        Cluster::begin_as(Kind::Embedded, (shards, copies), directives)
    }

    /// The same, of any kind.
    pub fn begin_as(kind: Kind, sizes: (usize, usize), directives: &[&str]) -> Cluster {
        let cluster = Cluster::begin_servers(kind, sizes, (directives, "no"));
        cluster.wait_until_whole();
        cluster
    }

    /// One whose slots have no owners before a backup is restored.
    pub fn begin_awaiting(sizes: (usize, usize), directives: &[&str]) -> Cluster {
        Cluster::begin_awaiting_as(Kind::Embedded, sizes, directives)
    }

    /// The same, of any kind.
    pub fn begin_awaiting_as(kind: Kind, sizes: (usize, usize), directives: &[&str]) -> Cluster {
        let cluster = Cluster::begin_servers(kind, sizes, (directives, "yes"));
        cluster.note_places();
        cluster
    }

    fn begin_servers(
        kind: Kind,
        (shards, copies): (usize, usize),
        (directives, awaits): (&[&str], &str),
    ) -> Cluster {
        let (shown, copied) = (shards.to_string(), copies.to_string());
        let words = ["--shards", &shown, "--copies", &copied, "--await-restore", awaits];
        let config = ConfigServers::begin(kind, &words);
        let mut cluster = Cluster {
            config,
            nodes: BTreeMap::new(),
            last: Mutex::default(),
            places: Arc::default(),
            copies,
        };
        for _ in 0..shards * copies {
            cluster.start_server(kind, directives);
        }
        cluster
    }

    fn start_server(&mut self, kind: Kind, directives: &[&str]) -> ServerId {
        let links = (kind == Kind::OverEtcd).then(|| Links::to(&self.config.addresses()));
        let own = match &links {
            Some(links) => links.directives(),
            None => vec!["--cluster-config-servers".to_owned(), self.place()],
        };
        let own = ["--cluster-enabled", "yes"].into_iter().chain(own.iter().map(String::as_str));
        let all: Vec<&str> = own.chain(directives.iter().copied()).collect();
        let server = Server::start(tarn(), &all).expect("a server starts");
        if let Some(links) = &links {
            links.aim(server.address());
        }
        let id = id_of(&server);
        self.nodes.insert(id, Node { server, links, is_down: false });
        id
    }

    /// Starts one server more, and waits until the cluster knows it.
    pub fn add(&mut self, directives: &[&str]) -> ServerId {
        let id = self.start_server(Kind::Embedded, directives);
        self.note_places();
        wait_until("the server has come", || {
            self.topology().is_some_and(|topology| topology.servers.contains_key(&id))
        });
        id
    }

    /// Where a server is, as others are told.
    pub fn place_of(&self, id: ServerId) -> String {
        self.nodes[&id].announced().to_string()
    }

    /// Where the config servers are, for the operator's tool.
    pub fn place(&self) -> String {
        self.config.addresses().iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(",")
    }

    /// Asks the config servers; None: there is no answer.
    pub fn ask_config(&self, words: &[&str]) -> Option<Value> {
        self.config.ask(words)
    }

    /// Orders something once more until it is answered well, or is done though there was no answer.
    pub fn order(&self, words: &[&str], is_done: impl Fn(&Topology) -> bool) {
        wait_until("it is done as it was ordered", || {
            matches!(self.ask_config(words), Some(Value::Simple(_)))
                || self.topology().is_some_and(|now| is_done(&now))
        });
    }

    /// Has this server be master of its shard, and waits until that is known.
    pub fn switch(&self, shard: ShardId, heir: ServerId) {
        let is_master = |now: &Topology| now.master_of(shard).is_some_and(|now| now.id == heir);
        let words = ["CLUSTER", "SWITCH", &shard.to_string(), "TO", &heir.to_string()];
        self.order(&words, is_master);
        // Whoever is asked may hear of it a moment after the one that leads.
        wait_until("it is master", || self.topology().is_some_and(|now| is_master(&now)));
    }

    /// What the cluster looks like now. Config servers that cannot say it just then, as on a disk that stands still, are asked again for a while.
    pub fn topology(&self) -> Option<Topology> {
        let began = Instant::now();
        loop {
            let told = self.told_topology();
            if told.is_some() || began.elapsed() > TOLD_WITHIN {
                return told;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn told_topology(&self) -> Option<Topology> {
        let Value::Bulk(text) = self.ask_config(&["TOPOLOGY", "GET"])? else { return None };
        let topology = Topology::from_text(std::str::from_utf8(&text).ok()?)?;
        *self.last.lock().expect("nobody panics with it") = topology.clone();
        Some(topology)
    }

    /// What it looked like when somebody asked last.
    pub fn topology_before(&self) -> Topology {
        self.last.lock().expect("nobody panics with it").clone()
    }

    /// Tells clients where servers are.
    fn note_places(&self) {
        let nodes = self.nodes.values();
        let places = nodes.map(|node| Place { announced: node.announced(), own: node.server.address() });
        *self.places.0.lock().expect("nobody panics with it") = places.collect();
    }

    /// Waits until all slots have an owner, and all servers are members of their shards, say so, and have been told it all.
    pub fn wait_until_whole(&self) {
        self.note_places();
        wait_until("the cluster is whole", || {
            self.topology().is_some_and(|topology| self.is_whole(&topology))
        });
    }

    fn is_whole(&self, topology: &Topology) -> bool {
        let has_members = topology
            .shards
            .values()
            .all(|shard| shard.members.len() == self.copies && topology.master_of(shard.id).is_some());
        has_members
            && topology.slots.count() == wire::SLOTS
            && topology.servers.len() == self.nodes.len()
            && topology.servers.values().all(|server| self.is_in_place(topology, server))
    }

    fn is_in_place(&self, topology: &Topology, server: &topology::Server) -> bool {
        let role = if topology.is_master(server) { "master" } else { "member" };
        let Ok(mut client) = self.connect(server.id) else { return false };
        if client.stream().set_read_timeout(Some(REPLY_WITHIN)).is_err() {
            return false;
        }
        let Ok(Value::Array(words)) = client.call(&["INSYNC", "STATUS"]) else { return false };
        let Ok(Value::Bulk(told)) = client.call(&["CLUSTER", "INFO"]) else { return false };
        let is_so = |pair: &[Value]| matches!(pair, [Value::Bulk(name), Value::Bulk(is)] if name == b"role" && is == role.as_bytes());
        words.chunks(2).any(is_so)
            && told.starts_with(b"cluster_state:ok")
            && self.nodes[&server.id].announced().port() == server.port
    }

    /// A connection to a server.
    pub fn connect(&self, id: ServerId) -> std::io::Result<Client> {
        Client::connect(self.nodes[&id].server.address())
    }

    /// Where a server's data is.
    pub fn dir(&self, id: ServerId) -> PathBuf {
        self.nodes[&id].server.dir().to_owned()
    }

    /// A connection to a server that may still be loading.
    pub fn connect_loaded(&self, id: ServerId) -> Client {
        self.nodes[&id].server.connect_loaded().expect("it loads")
    }

    /// What a server has written.
    pub fn output(&self, id: ServerId) -> String {
        self.nodes[&id].server.output()
    }

    /// The links of a server, if it has some that can be cut.
    pub fn links(&self, id: ServerId) -> Option<&Links> {
        self.nodes[&id].links.as_ref()
    }

    /// Kills a server's process.
    pub fn kill(&mut self, id: ServerId) {
        let node = self.nodes.get_mut(&id).expect("it is there");
        node.server.kill();
        node.is_down = true;
    }

    /// Has a server's process end, and waits until it has.
    pub fn terminate(&mut self, id: ServerId) {
        self.signal(id, "-TERM");
        self.wait_until_ended(id);
    }

    /// Waits until a server's process has ended that was told to.
    pub fn wait_until_ended(&mut self, id: ServerId) {
        let node = self.nodes.get_mut(&id).expect("it is there");
        wait_until("it ends", || {
            node.server.ended().expect("it can be asked").is_some_and(|status| status.success())
        });
        node.is_down = true;
    }

    /// Starts it again, at another port.
    pub fn restart(&mut self, id: ServerId) {
        let node = self.nodes.get_mut(&id).expect("it is there");
        node.server.restart().expect("it starts again");
        if let Some(links) = &node.links {
            links.aim(node.server.address());
        }
        node.is_down = false;
        self.note_places();
    }

    /// Sends a server's process a signal.
    pub fn signal(&self, id: ServerId, signal: &str) {
        let node = &self.nodes[&id];
        if !node.is_down {
            let pid = node.server.pid().to_string();
            assert!(Command::new("kill").args([signal, &pid]).status().expect("there is kill").success());
        }
    }

    /// Takes back all that was done to anybody.
    pub fn mend(&mut self) {
        self.config.mend();
        let ids: Vec<ServerId> = self.nodes.keys().copied().collect();
        for id in ids {
            self.signal(id, "-CONT");
            if let Some(links) = self.links(id) {
                links.mend();
            }
            if self.nodes[&id].is_down {
                self.restart(id);
            }
        }
    }

    /// The last that each server has printed.
    pub fn last_lines(&self) -> String {
        let last = |(id, node): (&ServerId, &Node)| format!("{id}:\n{}\n", node.server.last_lines());
        self.nodes.iter().map(last).collect()
    }
}

/// A server's id, as it says itself.
fn id_of(server: &Server) -> ServerId {
    let mut client = server.connect_loaded().expect("it loads");
    let Ok(Value::Bulk(id)) = client.call(&["CLUSTER", "MYID"]) else { panic!("it does not say who it is") };
    std::str::from_utf8(&id).ok().and_then(|id| id.parse().ok()).expect("it is an id")
}

/// Waits until something is so.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
