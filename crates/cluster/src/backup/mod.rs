//! The data of all shards of a cluster as of one moment, in a directory; and from there to a new cluster. `docs/cluster.md` ("Backups") tells what is promised, and why it
//! holds.
//!
//! A shard's file is what its master sends any replica ([`copying`]): an RDB, and behind it the stream up to the moment ([`cut`]). So it is an append-only file as well, which
//! `tarn check` and `tarn import` read. What there is of it stands in the [`manifest`], which is written when all the rest is there.

mod bringing;
mod copying;
mod cut;
mod manifest;
mod reading;
mod restoring;
mod taking;
#[cfg(test)]
mod tests;

use crate::asking::{Asking, Entry, Failure, Repeats};
use std::path::Path;
use std::time::{Duration, Instant};
use topology::{Server, Topology};

pub use restoring::{Stand, restore};
pub use taking::{take, verify};

/// How many shards a backup has.
///
/// # Errors
/// It is none.
pub fn count_shards(dir: &Path) -> Result<u16, String> {
    let count = manifest::Manifest::read(dir)?.shards.len();
    u16::try_from(count).map_err(|_| "the backup has more shards than there can be".to_owned())
}

/// How long an answer may take that needs nobody else.
const ANSWERING: Duration = Duration::from_secs(10);

/// How a cluster is reached.
pub struct Reach {
    /// Where config servers are.
    pub places: Vec<(String, u16)>,
    /// What they want to hear.
    pub config: Entry,
    /// What servers want to hear.
    pub servers: Entry,
}

impl Reach {
    /// The cluster as it is at this moment: the store of decisions is read for it.
    ///
    /// # Errors
    /// Nobody can say it.
    pub fn topology(&self) -> Result<Topology, String> {
        let ask = (tell_topology, ANSWERING);
        Asking::first_to(&self.places, &self.config, ask, Repeats::Yes, |_| true).map(|(_, now)| now)
    }

    fn address<'s>(&self, server: &'s Server) -> (&'s str, u16) {
        let port = if self.servers.tls.is_some() { server.tls_port } else { server.port };
        (&server.host, port)
    }

    fn server(&self, server: &Server) -> Result<Asking, String> {
        Asking::to_server(self.address(server), &self.servers)
    }
}

/// Has a config server tell what the cluster looks like.
fn tell_topology(asking: &mut Asking, patience: Duration) -> Result<Topology, Failure> {
    let until = Instant::now() + patience;
    asking.say(&[&b"TOPOLOGY"[..], b"FOLLOW", b"0"], patience).map_err(Failure::Broken)?;
    while Instant::now() < until {
        let wire::Value::Bulk(text) = asking.next(patience)? else { continue };
        let text = String::from_utf8_lossy(&text).into_owned();
        if text.is_empty() || text.starts_with("silent") {
            continue;
        }
        return Topology::from_text(&text).ok_or_else(|| {
            let why = "the config server tells of a cluster in words that this version does not know";
            Failure::Said(why.to_owned())
        });
    }
    Err(Failure::Broken("the config server tells nothing of the cluster".to_owned()))
}
