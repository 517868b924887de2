//! Config servers of a Tarn cluster (`proxy-config-servers`): they name its nodes where none that is known answers.
//!
//! Who has which slot is not taken from them, but asked of the nodes that they name, who know it before they do: so one that is cut off from its store may be
//! listened to, if no other is there. One of another cluster, or one that tells less than was told before, is not.
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
/// How soon they are asked again that were asked in vain: each time they read their store.
pub const ASKED_AGAIN: Duration = Duration::from_secs(1);

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
    let topology = match &told {
        Value::Bulk(text) if text.is_empty() => return Err(io::Error::other("it knows of no cluster yet")),
        Value::Bulk(text) => std::str::from_utf8(text).ok().and_then(Topology::from_text),
        _ => None,
    };
    let topology = topology.ok_or_else(|| io::Error::other("what it says is no topology"))?;
    let nodes = nodes_of(&topology, host.engine.config.tls_cluster());
    Ok(Told { cluster: topology.cluster, revision: topology.revision, nodes, doubt })
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
    /// That of the last one that was of use.
    revision: u64,
    /// When nothing came of asking all of them, and why.
    in_vain: Option<(Instant, String)>,
}

impl ConfigServers {
    /// Those at these places, of this cluster.
    pub fn new(places: Vec<Node>, cluster: Arc<ClusterId>) -> ConfigServers {
        ConfigServers { places, cluster, first: 0, revision: 0, in_vain: None }
    }

    /// Asks one after the other until something is found by the nodes that one names, of which it says of which cluster they are.
    ///
    /// # Errors
    /// Why nothing was, of each of them.
    pub fn find<T>(
        &mut self,
        host: &Arc<Server>,
        mut look: impl FnMut(&[Node], &str) -> Result<T, String>,
    ) -> Result<T, String> {
        if let Some((_, why)) = self.in_vain.as_ref().filter(|(at, _)| at.elapsed() < ASKED_AGAIN) {
            return Err(why.clone());
        }
        let (first, count) = (self.first, self.places.len());
        let (mut reasons, mut doubtful) = (Vec::new(), Vec::new());
        for at in (first..first + count).map(|turn| turn % count) {
            let told = match self.told_by(host, at) {
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
        for (at, told) in doubtful {
            let place = format!("{}: {}", self.places[at], told.doubt.as_deref().unwrap_or_default());
            reasons.push(place);
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
        if told.revision < self.revision {
            return Err(format!(
                "it is behind: it tells of revision {}, and revision {} was told of before",
                told.revision, self.revision
            ));
        }
        match told.nodes.is_empty() {
            true => Err("its cluster has no server with a place yet".to_owned()),
            false => Ok(told),
        }
    }

    /// Looks at the nodes that one names. If something is found it was of use, and the log is told of those that were not.
    fn believe<T>(
        &mut self,
        at: usize,
        told: &Told,
        reasons: &[String],
        look: &mut impl FnMut(&[Node], &str) -> Result<T, String>,
    ) -> Result<T, String> {
        let found = look(&told.nodes, &told.cluster)?;
        self.cluster.agree(&told.cluster)?;
        (self.first, self.revision, self.in_vain) = (at, told.revision, None);
        for reason in reasons {
            log!(Warning, "A config server is of no use, or may be behind: {reason}");
        }
        log!(Notice, "The config server {} has told where the cluster's nodes are", self.places[at]);
        Ok(found)
    }
}

#[cfg(test)]
mod tests;
