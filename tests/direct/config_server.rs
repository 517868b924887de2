//! A config server that does what a test says, for as long as the test has it: places are given in the order in which servers come, and decisions lie in memory.

use replication::insync::Decision;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use topology::{Place, Server, Shard, ShardId, SlotMap, Topology};
use wire::{Decoder, Value};

/// The cluster's id.
const CLUSTER: &str = "c0ffeec0ffeec0ffeec0ffeec0ffeec0ffeec0ff";

/// How often whoever follows is told that nothing has changed.
const HEARTBEAT: Duration = Duration::from_millis(500);

struct State {
    topology: Topology,
    decisions: BTreeMap<u16, Decision>,
    copies: usize,
    is_over: bool,
}

/// The config server.
pub struct ConfigServer {
    address: SocketAddr,
    shared: Arc<(Mutex<State>, Condvar)>,
}

impl ConfigServer {
    /// One of a cluster whose shards have so many servers.
    pub fn begin(copies: usize) -> ConfigServer {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("it listens");
        let address = listener.local_addr().expect("it listens");
        let topology = Topology { cluster: CLUSTER.to_owned(), revision: 1, ..Topology::default() };
        let state = State { topology, decisions: BTreeMap::new(), copies, is_over: false };
        let shared = Arc::new((Mutex::new(state), Condvar::new()));
        let known = shared.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let shared = known.clone();
                if shared.0.lock().unwrap().is_over {
                    return;
                }
                // Whoever goes away has heard enough.
                std::thread::spawn(move || serve(&shared, stream));
            }
        });
        ConfigServer { address, shared }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it tells.
    pub fn topology(&self) -> Topology {
        self.shared.0.lock().unwrap().topology.clone()
    }

    /// The slots have these owners from now on.
    pub fn give(&self, slots: SlotMap) {
        let mut state = self.shared.0.lock().unwrap();
        state.topology.slots = slots;
        state.topology.revision += 1;
        self.shared.1.notify_all();
    }
}

impl Drop for ConfigServer {
    fn drop(&mut self) {
        self.shared.0.lock().unwrap().is_over = true;
        self.shared.1.notify_all();
        // Has it look.
        let _ = TcpStream::connect(self.address);
    }
}

fn serve(shared: &(Mutex<State>, Condvar), mut stream: TcpStream) -> io::Result<()> {
    let (mut decoder, mut bytes) = (Decoder::new(), [0; 16 << 10]);
    loop {
        let count = stream.read(&mut bytes)?;
        if count == 0 {
            return Ok(());
        }
        decoder.feed(&bytes[..count]);
        while let Some(request) = decoder.decode().map_err(io::Error::other)? {
            let words = words_of(request);
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            if let ["TOPOLOGY", "FOLLOW", revision] = words.as_slice() {
                return tell(shared, &mut stream, revision.parse().unwrap_or(0));
            }
            let reply = shared.0.lock().unwrap().answer(&words);
            shared.1.notify_all();
            stream.write_all(reply.as_bytes())?;
        }
    }
}

fn words_of(request: Value) -> Vec<String> {
    let Value::Array(words) = request else { return Vec::new() };
    let text = |word| match word {
        Value::Bulk(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        _ => String::new(),
    };
    words.into_iter().map(text).collect()
}

/// Tells every later topology, until the other side goes or the test is over.
fn tell(shared: &(Mutex<State>, Condvar), stream: &mut TcpStream, mut known: u64) -> io::Result<()> {
    loop {
        let state = shared.0.lock().unwrap();
        let is_silent = |state: &mut State| !state.is_over && state.topology.revision <= known;
        let (state, waited) = shared.1.wait_timeout_while(state, HEARTBEAT, is_silent).unwrap();
        if state.is_over {
            return Ok(());
        }
        let text = if waited.timed_out() { String::new() } else { state.topology.to_text() };
        known = state.topology.revision;
        drop(state);
        stream.write_all(bulk(&text).as_bytes())?;
    }
}

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

impl State {
    fn answer(&mut self, words: &[&str]) -> String {
        match words {
            ["SERVER", "JOIN", _, line] => match Server::from_line(line) {
                Some(server) => {
                    self.place(server);
                    format!("+id {CLUSTER}\r\n")
                }
                None => "-ERR that is no server\r\n".to_owned(),
            },
            ["SERVER", "HERE", ..] => "+OK\r\n".to_owned(),
            ["DECISION", "GET", shard] => {
                let decision = shard.parse().ok().and_then(|shard| self.decisions.get(&shard));
                decision.map_or("$-1\r\n".to_owned(), |decision| bulk(&decision.to_line()))
            }
            ["DECISION", "SET", shard, version, line] => {
                let parsed = (shard.parse().ok(), version.parse().ok(), Decision::from_line(line));
                let (Some(shard), Some(version), Some(decision)) = parsed else {
                    return "-ERR that is no decision\r\n".to_owned();
                };
                let (is_taken, now) = self.decide(shard, version, decision);
                let now = now.map_or("$-1\r\n".to_owned(), |decision| bulk(&decision.to_line()));
                format!("*2\r\n:{}\r\n{now}", u8::from(is_taken))
            }
            _ => "-ERR that is not said to a config server\r\n".to_owned(),
        }
    }

    /// A server has its place from the first time on that it comes.
    fn place(&mut self, server: Server) {
        let servers = &mut self.topology.servers;
        let index = servers.len();
        let (shard, node) = (index / self.copies, index % self.copies + 1);
        let given =
            Place { shard: ShardId(u16::try_from(shard).unwrap()), node: u32::try_from(node).unwrap() };
        let place = servers.get(&server.id).map_or(Some(given), |known| known.place);
        servers.insert(server.id, Server { place, ..server });
        self.topology.shards.entry(given.shard).or_insert_with(|| Shard {
            id: given.shard,
            epoch: 0,
            master: None,
            members: [].into(),
            beginner: Some(1),
        });
        self.topology.revision += 1;
    }

    /// Takes a decision, if it follows what there is. Whether it does, and what there is then.
    fn decide(&mut self, number: u16, version: u64, decision: Decision) -> (bool, Option<&Decision>) {
        if self.decisions.get(&number).map_or(0, |known| known.version.0) != version {
            return (false, self.decisions.get(&number));
        }
        if let Some(shard) = self.topology.shards.get_mut(&ShardId(number)) {
            shard.epoch = decision.epoch.0;
            shard.master = Some(decision.master.node.0);
            shard.members = decision.members.iter().map(|member| member.node.0).collect();
            shard.beginner = None;
        }
        self.topology.revision += 1;
        self.decisions.insert(number, decision);
        (true, self.decisions.get(&number))
    }
}
