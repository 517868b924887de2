//! Who follows the servers behind the proxy, and how far each is: a client's reads may go to a replica that has all that the client has written.
//!
//! Servers are asked again and again (INFO). What a master says when it is asked after a client was answered covers all that the client has written to it; a
//! replica of the same history that is as far has it, too. So nothing is noted with a write but when its client was answered.
//!
//! Thread rule: shared. Servers are asked on the thread of all that listens.

use crate::heard::{Line, Waited, patience};
use crate::links::{self, NO_DB, Speech};
use crate::serve::Proxy;
use crate::upstream::{Node, NodeNo};
use config::{ReadFrom, sentence};
use net::service::Service;
use parking_lot::RwLock;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use telemetry::log;
use tokio::task::spawn_local;
use tokio::time::sleep;
use wire::{Protocol, Value, encode_request};

/// How often a server is asked.
const ASKED_EVERY: Duration = Duration::from_millis(50);
/// What a replica has said counts for so long.
const COUNTS_FOR: Duration = Duration::from_secs(1);
/// How many answers of a master are known.
const MARKS_MAX: usize = 64;
/// Before a server that was not reached is tried again.
const AGAIN_AFTER: Duration = Duration::from_millis(200);

/// A master, as it was when it was asked.
#[derive(Default)]
struct Master {
    history: Vec<u8>,
    /// When it was asked, and how far it was then.
    marks: VecDeque<(Instant, u64)>,
    replicas: Vec<NodeNo>,
}

/// A replica, as it has said last.
struct Standing {
    history: Vec<u8>,
    offset: u64,
    at: Instant,
}

#[derive(Default)]
struct State {
    masters: HashMap<NodeNo, Master>,
    replicas: HashMap<NodeNo, Standing>,
}

/// All of them.
#[derive(Default)]
pub struct Replicas(RwLock<State>);

/// What a client has to find where it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// It has written nothing there.
    Nothing,
    /// All that was there when it was answered last.
    AllBefore(Instant),
}

impl Replicas {
    /// The replica that a client reads from; None: it reads from the master. It is the same one while the same ones can be read.
    pub fn reader(
        &self,
        from: ReadFrom,
        master: NodeNo,
        (client, needs): (u64, Needs),
        now: Instant,
    ) -> Option<NodeNo> {
        let state = self.0.read();
        let Master { history, marks, replicas } = state.masters.get(&master)?;
        let needed = match needs {
            Needs::Nothing => 0,
            Needs::AllBefore(moment) => marks.iter().find(|(asked_at, _)| *asked_at > moment)?.1,
        };
        let has_it = |node: &&NodeNo| {
            state.replicas.get(node).is_some_and(|one| {
                one.history == *history && one.offset >= needed && now - one.at < COUNTS_FOR
            })
        };
        let count = replicas.iter().filter(has_it).count();
        let place = match from {
            ReadFrom::Master => return None,
            ReadFrom::Replica => client as usize % count.max(1),
            ReadFrom::Any => (client as usize % (count + 1)).checked_sub(1)?,
        };
        replicas.iter().filter(has_it).nth(place).copied()
    }

    fn is_known(&self, node: NodeNo) -> bool {
        self.0.read().masters.values().any(|master| master.replicas.contains(&node))
    }

    /// A master has said how far it is.
    fn note_master(&self, node: NodeNo, asked_at: Instant, told: Told, replicas: Vec<NodeNo>) {
        let state = &mut *self.0.write();
        let master = state.masters.entry(node).or_default();
        if master.history != told.history {
            *master = Master { history: told.history, ..Master::default() };
        }
        master.marks.push_back((asked_at, told.offset));
        if master.marks.len() > MARKS_MAX {
            master.marks.pop_front();
        }
        master.replicas = replicas;
        state.replicas.remove(&node);
    }

    /// A replica has said how far it is.
    fn note_replica(&self, node: NodeNo, asked_at: Instant, told: Told) {
        let state = &mut *self.0.write();
        state.masters.remove(&node);
        state.replicas.insert(node, Standing { history: told.history, offset: told.offset, at: asked_at });
    }

    /// Nothing is known of a server any more.
    fn forget(&self, node: NodeNo) {
        let state = &mut *self.0.write();
        state.masters.remove(&node);
        state.replicas.remove(&node);
    }
}

/// What a server says of its replication.
#[derive(Debug, Default, PartialEq, Eq)]
struct Told {
    is_master: bool,
    /// It has all that comes from its master.
    is_linked: bool,
    history: Vec<u8>,
    offset: u64,
    replicas: Vec<Node>,
}

impl Told {
    fn read(info: &[u8]) -> Told {
        let mut told = Told::default();
        let (mut own, mut followed) = (0, 0);
        for line in String::from_utf8_lossy(info).lines() {
            let Some((name, value)) = line.split_once(':') else { continue };
            match name {
                "role" => told.is_master = value == "master",
                "master_link_status" => told.is_linked = value == "up",
                "master_replid" => told.history = value.as_bytes().to_vec(),
                "master_repl_offset" => own = value.parse().unwrap_or(0),
                "slave_repl_offset" => followed = value.parse().unwrap_or(0),
                _ if is_replica(name) && value.contains("state=online") => {
                    let field = |wanted: &str| value.split(',').find_map(|field| field.strip_prefix(wanted));
                    let place = field("ip=").zip(field("port=").and_then(|port| port.parse().ok()));
                    told.replicas.extend(place.map(|(host, port)| Node { host: host.to_owned(), port }));
                }
                _ => {}
            }
        }
        told.offset = if told.is_master { own } else { followed };
        told
    }
}

/// Whether a field is of a replica: `slave` and a number.
fn is_replica(name: &str) -> bool {
    name.strip_prefix("slave")
        .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Asks all servers while reads may go to replicas, as long as the proxy runs.
pub async fn follow(proxy: Arc<Proxy>) {
    let mut known = BTreeSet::new();
    while !proxy.is_ending() {
        if is_wanted(&proxy) {
            let routes = proxy.upstream.routes();
            let nodes = 0..routes.nodes.len() as NodeNo;
            for node in nodes.filter(|node| routes.masters.contains(node) || proxy.replicas.is_known(*node)) {
                if known.insert(node) {
                    spawn_local(Asker { proxy: proxy.clone(), node }.run());
                }
            }
        }
        sleep(ASKED_EVERY).await;
    }
}

fn is_wanted(proxy: &Proxy) -> bool {
    proxy.host.engine.config.proxy_read_from() != ReadFrom::Master
}

/// Whoever asks one server.
struct Asker {
    proxy: Arc<Proxy>,
    node: NodeNo,
}

impl Asker {
    async fn run(self) {
        let (proxy, node) = (&self.proxy, self.node);
        let server = proxy.upstream.routes().nodes[usize::from(node)].clone();
        let mut is_told = false;
        loop {
            while !self.is_wanted() {
                sleep(ASKED_EVERY).await;
            }
            let way = Speech { protocol: Protocol::Resp2, db: NO_DB, is_no_touch: false }.to(node);
            let asked = match links::connect(proxy, &server, way).await {
                Ok(socket) => self.ask(Line::new(socket, patience(proxy))).await,
                Err(reason) => Err(reason.to_string()),
            };
            proxy.replicas.forget(node);
            match asked {
                Ok(()) => is_told = false,
                Err(reason) if !std::mem::replace(&mut is_told, true) => {
                    log!(Warning, "How far {server} is in its replication is not known: {reason}");
                }
                Err(_) => {}
            }
            sleep(AGAIN_AFTER).await;
        }
    }

    fn is_wanted(&self) -> bool {
        is_wanted(&self.proxy)
            && (self.proxy.upstream.routes().masters.contains(&self.node)
                || self.proxy.replicas.is_known(self.node))
    }

    /// Asks as long as it is wanted.
    ///
    /// # Errors
    /// It is not answered.
    async fn ask(&self, mut line: Line) -> Result<(), String> {
        let sentence = |error| sentence(&error);
        let mut request = Vec::new();
        encode_request(&mut request, &[b"INFO", b"replication"]);
        while self.is_wanted() {
            let asked_at = Instant::now();
            line.say(&request).await.map_err(sentence)?;
            let answer = loop {
                match line.take().map_err(sentence)? {
                    Some(answer) => break answer,
                    None if line.wait().await.map_err(sentence)? == Waited::Silent => {
                        return Err("it does not answer".to_owned());
                    }
                    None => {}
                }
            };
            match answer {
                Value::Bulk(info) => self.note(asked_at, Told::read(&info)),
                Value::Error(error) => return Err(String::from_utf8_lossy(&error).into_owned()),
                _ => return Err("it does not say how far it is".to_owned()),
            }
            sleep(ASKED_EVERY).await;
        }
        Ok(())
    }

    fn note(&self, asked_at: Instant, mut told: Told) {
        let (replicas, upstream) = (&self.proxy.replicas, &self.proxy.upstream);
        if told.is_master {
            let nodes = std::mem::take(&mut told.replicas);
            let nodes = nodes.into_iter().filter_map(|node| upstream.note_node(node)).collect();
            replicas.note_master(self.node, asked_at, told, nodes);
        } else if told.is_linked {
            replicas.note_replica(self.node, asked_at, told);
        } else {
            replicas.forget(self.node);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(offset: u64) -> Told {
        Told { history: b"h".to_vec(), offset, ..Told::default() }
    }

    #[test]
    fn who_has_written_reads_from_who_has_it() {
        let (replicas, begin) = (Replicas::default(), Instant::now());
        let at = |ms| begin + Duration::from_millis(ms);
        replicas.note_master(0, at(0), told(100), vec![7, 8]);
        replicas.note_replica(7, at(5), told(100));
        let reader = |needs, ms| replicas.reader(ReadFrom::Replica, 0, (4, needs), at(ms));
        assert_eq!(reader(Needs::Nothing, 10), Some(7));
        assert_eq!(reader(Needs::Nothing, 2000), None, "nothing was heard of it for long");
        assert_eq!(replicas.reader(ReadFrom::Any, 0, (4, Needs::Nothing), at(10)), None);
        assert_eq!(replicas.reader(ReadFrom::Any, 0, (5, Needs::Nothing), at(10)), Some(7));
        // Answered at 20: it is not known yet how far the master was.
        assert_eq!(reader(Needs::AllBefore(at(20)), 30), None);
        replicas.note_master(0, at(40), told(150), vec![7, 8]);
        assert_eq!(reader(Needs::AllBefore(at(20)), 50), None);
        assert_eq!(reader(Needs::Nothing, 50), Some(7));
        replicas.note_replica(8, at(55), told(160));
        assert_eq!(reader(Needs::AllBefore(at(20)), 60), Some(8));
        replicas.note_replica(8, at(60), Told { history: b"other".to_vec(), ..told(200) });
        assert_eq!(reader(Needs::AllBefore(at(20)), 70), None);
        // It is a master itself by now.
        replicas.note_master(7, at(70), told(300), Vec::new());
        assert_eq!(reader(Needs::Nothing, 80), None);
    }

    #[test]
    fn what_servers_say_is_read() {
        let master = "# Replication\r\nrole:master\r\nconnected_slaves:2\r\nslave0:ip=10.0.0.1,port=7,state=online,offset=1,lag=0\r\nslave1:ip=10.0.0.2,port=8,state=wait_bgsave,offset=0,lag=0\r\nmaster_replid:abc\r\nmaster_repl_offset:42\r\n";
        let read = Told::read(master.as_bytes());
        assert!(read.is_master && read.offset == 42 && read.history == b"abc");
        assert_eq!(read.replicas, [Node { host: "10.0.0.1".to_owned(), port: 7 }]);
        let replica = "role:slave\r\nmaster_link_status:up\r\nslave_read_repl_offset:9\r\nslave_repl_offset:8\r\nslave_priority:100\r\nmaster_replid:abc\r\nmaster_repl_offset:7\r\n";
        let read = Told::read(replica.as_bytes());
        assert!(!read.is_master && read.is_linked && read.offset == 8 && read.replicas.is_empty());
        assert_eq!(Told::read(b"\xff:\r\n"), Told::default());
    }
}
