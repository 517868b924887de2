//! A shard to test: its nodes, the store of decisions, and relays in front of all of them, which can be cut.

use crate::tarn;
use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use testkit::relay::Relay;
use testkit::{Client, Server};
use wire::Value;

/// How long anything may take that has no reason to fail.
const PATIENCE: Duration = Duration::from_secs(240);

/// How long a client waits for a reply that asks somebody else then.
const REPLY_WITHIN: Duration = Duration::from_secs(3);

/// A node.
pub struct Node {
    /// The server, while it runs.
    pub server: Server,
    /// By which others reach it.
    pub relay: Relay,
    /// By which it reaches the store.
    pub store: Relay,
    /// Whether it was killed.
    pub is_down: bool,
}

/// A shard.
pub struct Shard {
    /// Its nodes, the first of which has number 1.
    pub nodes: Vec<Node>,
    store: Server,
}

/// What a node tells of itself.
pub type Standing = BTreeMap<String, String>;

impl Shard {
    /// Begins a shard whose nodes are of these editions, with one member more than `min_sync` at least.
    pub fn begin(editions: &[&str], min_sync: usize, directives: &[&str]) -> Shard {
        let store = Server::start(tarn(), &["--edition", "durable"]).expect("the store starts");
        store.connect_loaded().expect("the store loads");
        let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let relays: Vec<Relay> = editions.iter().map(|_| Relay::to(nowhere).expect("it listens")).collect();
        let names: Vec<String> =
            (1..).zip(&relays).map(|(number, relay)| format!("{number}={}", relay.address())).collect();
        let names = names.join(",");
        let mut nodes = Vec::new();
        for ((number, relay), edition) in (1..).zip(relays).zip(editions) {
            let to_store = Relay::to(store.address()).expect("it listens");
            let (number, min_sync): (String, String) = (i32::to_string(&number), min_sync.to_string());
            let address = to_store.address().to_string();
            let own = [
                ["--edition", edition],
                ["--shard-name", "tested"],
                ["--shard-node", &number],
                ["--shard-nodes", &names],
                ["--shard-store", &address],
                ["--min-sync-replicas", &min_sync],
            ];
            let all: Vec<&str> = own.as_flattened().iter().chain(directives).copied().collect();
            let server = Server::start(tarn(), &all).expect("a node starts");
            relay.aim(server.address());
            nodes.push(Node { server, relay, store: to_store, is_down: false });
        }
        let shard = Shard { nodes, store };
        let mut first = shard.nodes[0].connect().expect("it is up");
        wait_until("the first node has loaded", || {
            first.call(&["INSYNC", "BEGIN"]).is_ok_and(|reply| reply == Value::Simple(b"OK".to_vec()))
        });
        shard.wait_until_whole();
        shard
    }

    /// Waits until there is a master that takes writes, and all nodes are members that follow it; which one it is.
    pub fn wait_until_whole(&self) -> usize {
        let mut master = None;
        wait_until("the shard is whole", || {
            master = self.master().filter(|(_, standing)| self.is_whole_by(standing));
            master.is_some()
        });
        master.expect("it was waited for").0
    }

    fn is_whole_by(&self, master: &Standing) -> bool {
        let is_member = |node: &Node| {
            node.standing().is_some_and(|own| own["role"] == "member" && own["epoch"] == master["epoch"])
        };
        let members = master["members"].split_whitespace().count();
        members == self.nodes.len()
            && master["writes"] == "taken"
            && self.nodes.iter().filter(|node| is_member(node)).count() + 1 == members
    }

    /// Who says that it is master in the highest epoch.
    pub fn master(&self) -> Option<(usize, Standing)> {
        let all = self.nodes.iter().enumerate().filter_map(|(at, node)| Some((at, node.standing()?)));
        let epoch = |standing: &Standing| standing["epoch"].parse::<u64>().unwrap_or(0);
        all.filter(|(_, standing)| standing["role"] == "master").max_by_key(|(_, standing)| epoch(standing))
    }

    /// What the master of the whole shard answers. A machine without time to spare changes it by itself, and then it is asked again.
    pub fn at_master<T>(&self, mut ask: impl FnMut(&mut Client) -> io::Result<T>) -> T {
        let mut answer = None;
        wait_until("the master answers", || {
            let master = &self.nodes[self.wait_until_whole()];
            answer = connect(master.server.address()).and_then(|mut client| ask(&mut client)).ok();
            answer.is_some()
        });
        answer.expect("it was waited for")
    }

    /// Ends the store of decisions, does something with its directory, and starts it again.
    pub fn with_stopped_store(&mut self, work: impl FnOnce(&Path)) {
        self.store.kill();
        work(self.store.dir());
        self.store.restart().expect("the store starts again");
        self.store.connect_loaded().expect("the store loads");
        self.nodes.iter().for_each(|node| node.store.aim(self.store.address()));
    }

    /// Takes back all that was done to nodes and relays.
    pub fn mend(&mut self) {
        for node in &mut self.nodes {
            node.relay.mend();
            node.store.mend();
            node.signal("-CONT");
            if node.is_down {
                node.restart();
            }
        }
    }
}

impl Node {
    /// A connection to it.
    pub fn connect(&self) -> io::Result<Client> {
        Client::connect(self.server.address())
    }

    /// How it stands, if it can be asked.
    pub fn standing(&self) -> Option<Standing> {
        if self.is_down {
            return None;
        }
        let reply = connect(self.server.address()).ok()?.call(&["INSYNC", "STATUS"]).ok()?;
        let Value::Array(words) = reply else { return None };
        let word = |value: &Value| match value {
            Value::Bulk(text) => String::from_utf8_lossy(text).into_owned(),
            other => panic!("{other:?} in INSYNC STATUS"),
        };
        Some(words.chunks(2).map(|pair| (word(&pair[0]), word(&pair[1]))).collect())
    }

    /// Kills it.
    pub fn kill(&mut self) {
        self.server.kill();
        self.is_down = true;
    }

    /// Starts it again.
    pub fn restart(&mut self) {
        self.server.restart().expect("a node starts again");
        self.relay.aim(self.server.address());
        self.is_down = false;
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: &str) {
        if !self.is_down {
            let pid = self.server.pid().to_string();
            assert!(Command::new("kill").args([signal, &pid]).status().expect("there is kill").success());
        }
    }
}

/// A connection that waits for no reply too long.
pub fn connect(address: SocketAddr) -> io::Result<Client> {
    let client = Client::connect(address)?;
    client.stream().set_read_timeout(Some(REPLY_WITHIN))?;
    Ok(client)
}

/// Waits until something is so.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
