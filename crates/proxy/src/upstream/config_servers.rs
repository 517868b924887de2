//! Config servers of a Tarn cluster (`proxy-config-servers`): they name its nodes where none that is known answers, and know whether one that does was left behind.
//!
//! Who has which slot is not taken from them, but asked of the nodes that they name, who know it before they do: so one that is cut off from its store may be
//! listened to, if no other is there, and at last one whose store says less than was told before, if it has just been read: it was put back. One of another
//! cluster is not.
//!
//! Thread rule: whoever asks waits. Every wait has its end.

use super::Node;
use super::identity::ClusterId;
use server::insync::asking::Asking;
use server::insync::dialling::TlsBy;
use server::server::Server;
use server::shard::Address;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use telemetry::log;
use topology::Topology;
use wire::Value;

/// How long it may take to reach one, and each of its answers: for its store it waits two seconds at most.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long it may take to reach one, and each bit of its answer, where nodes answer: whoever follows these waits for it. All of the answer may take [`PATIENCE`].
const CHECKING: Duration = Duration::from_secs(1);
/// How soon they are asked again that were asked in vain: each time they read their store.
pub const ASKED_AGAIN: Duration = Duration::from_secs(1);
/// What comes in the place of a topology, where servers are not heard of.
const SILENT: &[u8] = b"silent";

/// What a config server tells of its cluster.
pub struct Told {
    /// Which one it is.
    pub cluster: String,
    /// Rises with every change.
    pub revision: u64,
    /// The servers that have a place in it, masters first.
    pub nodes: Vec<Node>,
    /// Why this may be old; None: it is no older than the question.
    pub doubt: Option<String>,
}

/// Asks one of them.
///
/// # Errors
/// One sentence: it is not reached, does not take the password, or does not know how the cluster looks.
pub fn ask(host: &Arc<Server>, place: &Node) -> Result<Told, String> {
    said_by(host, place).map_err(|error| config::sentence(&error))
}

fn said_by(host: &Arc<Server>, place: &Node) -> io::Result<Told> {
    let address = Address { host: place.host.clone(), port: place.port };
    let mut asking = Asking::to(host, &address, TlsBy::Cluster, PATIENCE)?;
    // What comes first is no older than the question.
    let (told, doubt) = match asking.ask(&[b"TOPOLOGY", b"FOLLOW", b"0"]) {
        Ok(told) => (told, None),
        Err(error) if error.to_string().starts_with("UNAVAILABLE") => {
            let doubt = error.to_string();
            (asking.ask(&[b"TOPOLOGY", b"GET"]).map_err(|_| error)?, Some(doubt))
        }
        Err(error) => return Err(error),
    };
    match &told {
        Value::Bulk(text) if text.is_empty() => Err(io::Error::other("it knows of no cluster yet")),
        told => Ok(Told { doubt, ..read(host, told)? }),
    }
}

/// What one knows that is later than this revision; None: nothing is.
fn later_by(host: &Arc<Server>, place: &Node, revision: u64) -> io::Result<Option<Told>> {
    let address = Address { host: place.host.clone(), port: place.port };
    let mut asking = Asking::to(host, &address, TlsBy::Cluster, CHECKING)?;
    asking.say(&[b"TOPOLOGY", b"FOLLOW", revision.to_string().as_bytes()])?;
    match asking.receive_long_before(Instant::now() + PATIENCE)? {
        Value::Bulk(text) if text.is_empty() || text.starts_with(SILENT) => Ok(None),
        told => read(host, &told).map(Some),
    }
}

/// Reads what a config server tells.
fn read(host: &Arc<Server>, told: &Value) -> io::Result<Told> {
    let topology = match told {
        Value::Bulk(text) => std::str::from_utf8(text).ok().and_then(Topology::from_text),
        _ => None,
    };
    let topology = topology.ok_or_else(|| io::Error::other("what it says is no topology"))?;
    let nodes = nodes_of(&topology, host.engine.config.tls_cluster());
    Ok(Told { cluster: topology.cluster, revision: topology.revision, nodes, doubt: None })
}

/// Where the servers are that have a place; one that is not to be reached this way is none.
fn nodes_of(topology: &Topology, with_tls: bool) -> Vec<Node> {
    let placed = topology.servers.values().filter(|server| server.place.is_some());
    let (masters, others): (Vec<_>, Vec<_>) = placed.partition(|server| topology.is_master(server));
    let addresses = masters.into_iter().chain(others).map(|server| Address::of(server, with_tls));
    let nodes = addresses.map(|Address { host, port }| Node { host, port });
    nodes.filter(|node| node.port > 0).collect()
}

/// All of them, as they are asked in turn.
pub struct ConfigServers {
    places: Vec<Node>,
    /// Of which cluster they and all nodes have to be.
    pub cluster: Arc<ClusterId>,
    /// The one that is asked first: it was of use last.
    first: usize,
    /// That of the last one that was of use, or what nodes have told since.
    revision: u64,
    /// When nothing came of asking all of them, and why.
    in_vain: Option<(Instant, String)>,
    /// The one that is asked next whether there is anything later.
    turn: usize,
    /// Why each could not tell that, as the log was told last; empty: it could, or was not asked.
    troubles: Vec<String>,
}

impl ConfigServers {
    /// Those at these places, of this cluster.
    pub fn new(places: Vec<Node>, cluster: Arc<ClusterId>) -> ConfigServers {
        let troubles = vec![String::new(); places.len()];
        ConfigServers { places, cluster, first: 0, revision: 0, in_vain: None, turn: 0, troubles }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.places.len()
    }

    /// A node is believed that knows the cluster up to there: one of them that says less was put back, or is behind.
    pub fn note(&mut self, revision: u64) {
        self.revision = self.revision.max(revision);
    }

    /// Asks one after the other until something is found by what one tells: those first that have just read their store, and last those whose store was put back.
    ///
    /// # Errors
    /// Why nothing was, of each of them.
    pub fn find<T>(
        &mut self,
        host: &Arc<Server>,
        mut look: impl FnMut(&Told) -> Result<T, String>,
    ) -> Result<T, String> {
        if let Some((_, why)) = self.in_vain.as_ref().filter(|(at, _)| at.elapsed() < ASKED_AGAIN) {
            return Err(why.clone());
        }
        let (first, count) = (self.first, self.places.len());
        let (mut reasons, mut doubtful, mut put_back) = (Vec::new(), Vec::new(), Vec::new());
        for at in (first..first + count).map(|turn| turn % count) {
            let told = match self.told_by(host, at) {
                Ok(told) if told.revision < self.revision => {
                    reasons.push(format!("{}: {}", self.places[at], self.behind(&told)));
                    // What is not of this moment says nothing of the store.
                    put_back.extend(told.doubt.is_none().then_some((at, told)));
                    continue;
                }
                Ok(told) if told.doubt.is_some() => {
                    doubtful.push((at, told));
                    continue;
                }
                told => told,
            };
            match told.and_then(|told| self.believe(at, &told, &reasons, &mut look)) {
                Ok(found) => return Ok(found),
                Err(why) => reasons.push(format!("{}: {why}", self.places[at])),
            }
        }
        // What they tell may be so all the same: nodes speak for themselves.
        for (at, told) in doubtful.into_iter().chain(put_back) {
            if let Some(doubt) = &told.doubt {
                reasons.push(format!("{}: {doubt}", self.places[at]));
            }
            match self.believe(at, &told, &reasons, &mut look) {
                Ok(found) => return Ok(found),
                Err(why) => reasons.push(format!("{}: {why}", self.places[at])),
            }
        }
        let why = reasons.join("; ");
        self.in_vain = Some((Instant::now(), why.clone()));
        Err(why)
    }

    /// Asks one of them, and looks whether it may be believed.
    fn told_by(&self, host: &Arc<Server>, at: usize) -> Result<Told, String> {
        let told = ask(host, &self.places[at])?;
        self.cluster.look_at(&told.cluster)?;
        match told.nodes.is_empty() {
            true => Err("its cluster has no server with a place yet".to_owned()),
            false => Ok(told),
        }
    }

    fn behind(&self, told: &Told) -> String {
        let (now, before) = (told.revision, self.revision);
        format!("it is behind: it tells of revision {now}, and revision {before} was told of before")
    }

    /// Looks at the nodes that one names. If something is found it was of use, and the log is told of those that were not.
    fn believe<T>(
        &mut self,
        at: usize,
        told: &Told,
        reasons: &[String],
        look: &mut impl FnMut(&Told) -> Result<T, String>,
    ) -> Result<T, String> {
        let found = look(told)?;
        self.cluster.agree(&told.cluster)?;
        for reason in reasons {
            log!(Warning, "A config server is of no use, or may be behind: {reason}");
        }
        let (place, now, before) = (&self.places[at], told.revision, self.revision);
        match now < before {
            true => log!(
                Warning,
                "The config server {place} has told where the cluster's nodes are: its store is at revision {now}, was at {before}, and counts from now on as put back"
            ),
            false => log!(Notice, "The config server {place} has told where the cluster's nodes are"),
        }
        (self.first, self.revision, self.in_vain) = (at, now, None);
        Ok(found)
    }

    /// Asks one of them whether it knows anything later than this revision, of which nodes have told; None: it does not. Another has its turn the next time if it is of no use.
    ///
    /// # Errors
    /// Why it is of none; the log is told once.
    pub fn later_than(&mut self, host: &Arc<Server>, revision: u64) -> Result<Option<Told>, String> {
        let (at, place) = (self.turn, &self.places[self.turn]);
        let told = later_by(host, place, revision).map_err(|error| config::sentence(&error));
        let told = told.and_then(|told| match told {
            Some(told) => self.cluster.look_at(&told.cluster).map(|()| Some(told)),
            None => Ok(None),
        });
        match &told {
            Ok(_) => self.troubles[at].clear(),
            Err(why) => {
                if self.troubles[at] != *why {
                    log!(
                        Warning,
                        "The config server {place} does not say whether nodes were left behind: {why}"
                    );
                    why.clone_into(&mut self.troubles[at]);
                }
                self.turn = (at + 1) % self.places.len();
            }
        }
        told
    }
}

#[cfg(test)]
mod tests;
