//! What is published at other nodes of the cluster: a node listens at all others, and tells its own subscribers.
//!
//! It says `CLUSTER HEAR` on an ordinary connection, and gets each message that a client publishes there, under the same limits as a replica, and no sooner than a
//! subscriber there would: when what had been written before is committed. Nobody passes on what he has heard, so each node has a message once; who is not
//! connected misses it, as subscribers do. (Redis Cluster has the publisher's node send it to all others over its bus.)
//!
//! Thread rule: a thread that sees to it that there is one for each other node, which has the connection.

use crate::clustered::{Link, Part, View};
use crate::insync::asking::Asking;
use crate::insync::dialling::TlsBy;
use crate::server::Server;
use crate::shard::Address;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use sys::UnixMs;
use telemetry::log;
use topology::ServerId;
use wire::Value;

/// How long it may take to reach a node.
const PATIENCE: Duration = Duration::from_secs(3);

/// A node that says nothing for so long is asked whether it is there.
const SILENCE: Duration = Duration::from_secs(1);

/// How long the answer to that may take: it stands behind messages, which wait for what was written before to be committed.
const ANSWER: Duration = Duration::from_secs(15);

/// Before a node that was not reached is tried again.
const RETRY: Duration = Duration::from_millis(100);

/// How often who listens looks whether that is still wanted: there is one for each other node.
const LOOK: Duration = Duration::from_millis(500);

/// How often it looks whether the nodes are still the same, at the latest.
const IDLE: Duration = Duration::from_secs(1);

/// What a thread needs that waits for one connection.
const STACK_BYTES: usize = 256 << 10;

/// Listens at all other nodes as long as the server runs.
///
/// # Errors
/// Those of the system.
pub fn begin(server: &Arc<Server>) -> io::Result<()> {
    let server = server.clone();
    let run = move || Hearing { server: &server, heard: BTreeMap::new() }.run();
    std::thread::Builder::new().name("nodes".to_owned()).spawn(run).map(drop)
}

struct Hearing<'h> {
    server: &'h Arc<Server>,
    /// At whom somebody listens, where, and whether that is still wanted.
    heard: BTreeMap<ServerId, (Address, Arc<AtomicBool>)>,
}

impl Hearing<'_> {
    fn run(&mut self) {
        while !self.server.engine.is_ending() {
            let Some(part) = self.server.clustered.get() else { return };
            let view = part.view();
            self.follow(&view);
            part.wait_for_change(&view, IDLE);
        }
    }

    /// Has one listen at each node that there is, and at nobody else.
    fn follow(&mut self, view: &View) {
        let with_tls = self.server.engine.config.tls_cluster();
        let others = view.topology.servers.values().filter(|other| Some(other.id) != view.id);
        let wanted: BTreeMap<_, _> = others.map(|other| (other.id, Address::of(other, with_tls))).collect();
        self.heard.retain(|id, (address, is_wanted)| {
            let stays = wanted.get(id) == Some(address);
            if !stays {
                is_wanted.store(false, Ordering::Relaxed);
                note(self.server, *id, None);
            }
            stays
        });
        for (id, address) in wanted {
            if !self.heard.contains_key(&id) {
                let is_wanted = Arc::new(AtomicBool::new(true));
                let node = Node {
                    id,
                    server: self.server.clone(),
                    address: address.clone(),
                    is_wanted: is_wanted.clone(),
                };
                let thread = std::thread::Builder::new().name("node".to_owned()).stack_size(STACK_BYTES);
                // Without a thread it is tried again when it looks next.
                if thread.spawn(move || node.run()).is_ok() {
                    self.heard.insert(id, (address, is_wanted));
                }
            }
        }
    }
}

/// Notes since when a node is heard, or that it is not, for CLUSTER LINKS.
fn note(server: &Server, id: ServerId, since: Option<UnixMs>) {
    if let Some(part) = server.clustered.get() {
        part.note_link(Link::To(id), since);
    }
}

/// Another node.
struct Node {
    id: ServerId,
    server: Arc<Server>,
    address: Address,
    is_wanted: Arc<AtomicBool>,
}

impl Node {
    fn run(self) {
        let (mut last, mut heard_at) = (String::new(), Instant::now());
        while self.goes_on() {
            let Err(error) = self.listen(&mut last, &mut heard_at);
            if !self.goes_on() {
                return;
            }
            note(&self.server, self.id, None);
            let trouble = error.to_string();
            // One that has just begun does not know yet where it is.
            if trouble != last && heard_at.elapsed() > PATIENCE {
                let Address { host, port } = &self.address;
                log!(
                    Warning,
                    "What is published at the cluster's node {host}:{port} is not heard: {trouble}"
                );
                last = trouble;
            }
            std::thread::sleep(RETRY);
        }
    }

    fn goes_on(&self) -> bool {
        self.is_wanted.load(Ordering::Relaxed) && !self.server.engine.is_ending()
    }

    /// Connects, and tells subscribers what comes. Forgets the last trouble once it listens, and notes when something was heard last.
    fn listen(&self, trouble: &mut String, heard_at: &mut Instant) -> io::Result<std::convert::Infallible> {
        let mut asking = Asking::to(&self.server, &self.address, TlsBy::Cluster, PATIENCE)?;
        let view = self.server.clustered.get().map(Part::view).unwrap_or_default();
        let (own, other) = (view.id.map(|id| id.to_string()).unwrap_or_default(), self.id.to_string());
        // Said again it asks whether the node is there: whatever state that is in, it is answered.
        let words =
            [&b"CLUSTER"[..], b"HEAR", view.topology.cluster.as_bytes(), own.as_bytes(), other.as_bytes()];
        asking.ask(&words)?;
        asking.look_every(LOOK)?;
        trouble.clear();
        *heard_at = Instant::now();
        note(&self.server, self.id, Some(self.server.engine.clock.now()));
        let mut spoke = Instant::now();
        let mut asked = false;
        while self.goes_on() {
            match asking.receive_before(spoke + if asked { ANSWER } else { SILENCE }) {
                // Another may listen in this one's place.
                Ok(_) if !self.goes_on() => break,
                Ok(value) => self.take(value)?,
                Err(error) if error.kind() == ErrorKind::TimedOut && !asked => {
                    asking.say(&words)?;
                    asked = true;
                    continue;
                }
                Err(error) => return Err(error),
            }
            (spoke, asked) = (Instant::now(), false);
            *heard_at = spoke;
        }
        Err(ErrorKind::ConnectionAborted.into())
    }

    fn take(&self, value: Value) -> io::Result<()> {
        let unknown = || io::Error::other("what it says is no message");
        match value {
            // The answer to the question whether it is there.
            Value::Simple(_) => Ok(()),
            Value::Array(words) => match words.as_slice() {
                [Value::Bulk(kind), Value::Bulk(channel), Value::Bulk(message)] if kind == b"message" => {
                    self.server.pubsub.publish_here(&self.server.net.clients, channel, message);
                    Ok(())
                }
                _ => Err(unknown()),
            },
            _ => Err(unknown()),
        }
    }
}
