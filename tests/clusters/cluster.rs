//! A cluster to test: its config server and its servers.

use crate::tarn;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use testkit::{Client, Program, Server, free_port};
use topology::{ServerId, Topology};
use wire::Value;

/// How long anything may take that has no reason to fail.
const PATIENCE: Duration = Duration::from_secs(90);

/// How long a client waits for a reply.
const REPLY_WITHIN: Duration = Duration::from_secs(3);

/// A cluster.
pub struct Cluster {
    config: Option<Child>,
    config_address: SocketAddr,
    words: Vec<String>,
    servers: BTreeMap<ServerId, Server>,
    /// Servers whose process was killed.
    down: Vec<ServerId>,
    last: Mutex<Topology>,
    /// Where clients may ask.
    pub addresses: Arc<Mutex<Vec<SocketAddr>>>,
    copies: usize,
    _dir: tempfile::TempDir,
}

impl Cluster {
    /// Begins a cluster with so many shards of so many copies, all servers with these directives.
    pub fn begin(shards: usize, copies: usize, directives: &[&str]) -> Cluster {
        let dir = tempfile::tempdir().expect("there is room for it");
        let port = free_port().expect("there is one");
        let store = format!("dir:{}", dir.path().display());
        let words = ["config", "--store", &store, "--port", &port.to_string()].map(str::to_owned);
        let more = ["--shards", &shards.to_string(), "--copies", &copies.to_string()].map(str::to_owned);
        let config_address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut cluster = Cluster {
            config: None,
            config_address,
            words: words.into_iter().chain(more).collect(),
            servers: BTreeMap::new(),
            down: Vec::new(),
            last: Mutex::default(),
            addresses: Arc::default(),
            copies,
            _dir: dir,
        };
        cluster.start_config();
        let place = config_address.to_string();
        let own = ["--cluster-enabled", "yes", "--cluster-config-servers", &place];
        let all: Vec<&str> = own.iter().chain(directives).copied().collect();
        for _ in 0..shards * copies {
            let server = Server::start(tarn(), &all).expect("a server starts");
            let id = id_of(&server);
            cluster.servers.insert(id, server);
        }
        cluster.wait_until_whole();
        cluster
    }

    /// Where the config server is, for the operator's tool.
    pub fn place(&self) -> String {
        self.config_address.to_string()
    }

    /// Starts the config server.
    pub fn start_config(&mut self) {
        let Program::Tarn(program) = tarn() else { panic!("it is Tarn that is tested") };
        let mut command = Command::new(program);
        command.args(&self.words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.config = Some(command.spawn().expect("it can be run"));
        wait_until("the config server answers", || self.ask_config(&["PING"]).is_some());
    }

    /// Ends the config server at once.
    pub fn end_config(&mut self) {
        if let Some(mut child) = self.config.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Asks the config server; None: there is no answer.
    pub fn ask_config(&self, words: &[&str]) -> Option<Value> {
        let mut client = Client::connect(self.config_address).ok()?;
        client.stream().set_read_timeout(Some(REPLY_WITHIN)).ok()?;
        client.call(words).ok()
    }

    /// What the cluster looks like now.
    pub fn topology(&self) -> Option<Topology> {
        let Value::Bulk(text) = self.ask_config(&["TOPOLOGY", "GET"])? else { return None };
        let topology = Topology::from_text(std::str::from_utf8(&text).ok()?)?;
        *self.last.lock().expect("nobody panics with it") = topology.clone();
        Some(topology)
    }

    /// What it looked like when somebody asked last.
    pub fn topology_before(&self) -> Topology {
        self.last.lock().expect("nobody panics with it").clone()
    }

    /// Waits until all slots have an owner, and all servers are members of their shards and say so.
    pub fn wait_until_whole(&self) {
        wait_until("the cluster is whole", || {
            let addresses = self.servers.values().map(Server::address).collect();
            *self.addresses.lock().expect("nobody panics with it") = addresses;
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
            && topology.servers.len() == self.servers.len()
            && topology.servers.values().all(|server| self.is_in_place(topology, server))
    }

    fn is_in_place(&self, topology: &Topology, server: &topology::Server) -> bool {
        let role = if topology.is_master(server) { "master" } else { "member" };
        let Ok(mut client) = self.connect(server.id) else { return false };
        let Ok(Value::Array(words)) = client.call(&["INSYNC", "STATUS"]) else { return false };
        let is_so = |pair: &[Value]| matches!(pair, [Value::Bulk(name), Value::Bulk(is)] if name == b"role" && is == role.as_bytes());
        words.chunks(2).any(is_so) && self.servers[&server.id].address().port() == server.port
    }

    /// A connection to a server, which waits for no reply too long.
    pub fn connect(&self, id: ServerId) -> std::io::Result<Client> {
        let client = Client::connect(self.servers[&id].address())?;
        client.stream().set_read_timeout(Some(REPLY_WITHIN))?;
        Ok(client)
    }

    /// Where a server's data is.
    pub fn dir(&self, id: ServerId) -> PathBuf {
        self.servers[&id].dir().to_owned()
    }

    /// A connection to a server that may still be loading.
    pub fn connect_loaded(&self, id: ServerId) -> Client {
        self.servers[&id].connect_loaded().expect("it loads")
    }

    /// What a server has written.
    pub fn output(&self, id: ServerId) -> String {
        self.servers[&id].output()
    }

    /// Kills a server's process.
    pub fn kill(&mut self, id: ServerId) {
        self.servers.get_mut(&id).expect("it is there").kill();
        self.down.push(id);
    }

    /// Has a server's process end, and waits until it has.
    pub fn terminate(&mut self, id: ServerId) {
        self.signal(id, "-TERM");
        let server = self.servers.get_mut(&id).expect("it is there");
        wait_until("it ends", || {
            server.ended().expect("it can be asked").is_some_and(|status| status.success())
        });
        self.down.push(id);
    }

    /// Starts it again, at another port.
    pub fn restart(&mut self, id: ServerId) {
        self.servers.get_mut(&id).expect("it is there").restart().expect("it starts again");
        self.down.retain(|other| *other != id);
    }

    /// Sends a server's process a signal.
    pub fn signal(&self, id: ServerId, signal: &str) {
        if !self.down.contains(&id) {
            let pid = self.servers[&id].pid().to_string();
            assert!(Command::new("kill").args([signal, &pid]).status().expect("there is kill").success());
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.end_config();
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
