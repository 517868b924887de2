//! A cluster whose slots go to and fro while something else is looked at.

use super::SHARDS;
use crate::clusters::cluster::{Cluster, wait_until};
use crate::clusters::rounds::tags_of_each;
use std::net::SocketAddr;
use sys::Prng;
use testkit::generate::words;
use topology::{Stage, Topology};
use wire::{Value, key_slot};

/// Hash tags for each shard: a few, so that requests meet each other's work.
const TAGS_EACH: usize = 2;
/// Most slots that go to another shard at a time beside those of the tags.
const MORE_SLOTS_MAX: u16 = 200;

/// The cluster.
pub struct Moving {
    pub cluster: Cluster,
    /// Its masters, as they were when it began.
    pub nodes: Vec<SocketAddr>,
    pub tags: Vec<String>,
    /// How often slots were told to go elsewhere.
    pub moves: u64,
}

impl Moving {
    /// One of so many servers for each shard, with these directives.
    pub fn begin(copies: usize, directives: &[&str]) -> Moving {
        let cluster = Cluster::begin(usize::from(SHARDS), copies, directives);
        let topology = cluster.topology().expect("it is there");
        let place = |shard| {
            let master = topology.master_of(shard).expect("each shard has one").id;
            cluster.place_of(master).parse().expect("it is an address")
        };
        let nodes = topology.shards.keys().map(|shard| place(*shard)).collect();
        let tags = tags_of_each(TAGS_EACH, &topology);
        Moving { cluster, nodes, tags, moves: 0 }
    }

    pub fn topology(&self) -> Topology {
        let mut told = None;
        wait_until("the config server answers", || {
            told = self.cluster.topology();
            told.is_some()
        });
        told.expect("it has been waited for")
    }

    /// Where a slot is served, as the config server says.
    pub fn owner(&self, topology: &Topology, slot: u16) -> SocketAddr {
        let owner = topology.slots.owner(slot).expect("each slot has one");
        let master = topology.master_of(owner).expect("each shard has one").id;
        self.cluster.place_of(master).parse().expect("it is an address")
    }

    /// Has slots of some tags go to a shard, and others with them, if none are on their way.
    pub fn begin_move(&mut self, prng: &mut Prng) -> Result<String, String> {
        if self.is_moving()? {
            return Ok("a move goes on".into());
        }
        let to = prng.below(u64::from(SHARDS)).to_string();
        let mut slots: Vec<String> = Vec::new();
        for tag in &self.tags {
            if prng.one_in(2) {
                slots.push(key_slot(tag.as_bytes()).to_string());
            }
        }
        if prng.one_in(2) {
            let first = prng.below(wire::SLOTS as u64 - u64::from(MORE_SLOTS_MAX));
            slots.push(format!("{first}-{}", first + prng.below(u64::from(MORE_SLOTS_MAX))));
        }
        let request: Vec<&str> =
            ["CLUSTER", "MOVE-SLOTS", "-", &to].into_iter().chain(slots.iter().map(String::as_str)).collect();
        if slots.is_empty() {
            return Ok("no slot is to move".into());
        }
        match self.cluster.ask_config(&request) {
            Some(Value::Simple(said)) => {
                self.moves += u64::from(said.starts_with(b"moves"));
                Ok(request.join(" "))
            }
            // On a busy machine nobody may lead for a moment.
            None => Ok("nobody answers just now".into()),
            Some(Value::Error(line)) if is_for_now(&line) => Ok("nobody leads just now".into()),
            other => Err(format!("{}: {other:?}", request.join(" "))),
        }
    }

    /// Whether slots are on their way.
    fn is_moving(&self) -> Result<bool, String> {
        let topology = self.topology();
        match topology.moves.values().find(|one| matches!(one.stage, Stage::Failed(_))) {
            Some(failed) => Err(format!("a move has failed: {failed:?}")),
            None => Ok(!topology.moves.is_empty()),
        }
    }

    /// Waits until no slot is on its way, and every node knows who has those that are looked at.
    pub fn settle(&self) -> Result<Topology, String> {
        let mut moving = Ok(true);
        wait_until("no slot is on its way", || {
            moving = self.is_moving();
            moving != Ok(true)
        });
        moving?;
        let topology = self.topology();
        for node in &self.nodes {
            let mut client = testkit::Client::connect(*node).expect("it serves");
            for tag in &self.tags {
                let owner = self.owner(&topology, key_slot(tag.as_bytes()));
                let expected = match owner == *node {
                    true => ":0\r\n".to_owned(),
                    false => moved_to(tag, owner),
                };
                let exists = [words(&["EXISTS", &format!("nobody's{{{tag}}}")])];
                wait_until("all know who has which slot", || {
                    client.pipeline(&exists).expect("it answers") == [expected.as_bytes()]
                });
            }
        }
        Ok(topology)
    }
}

/// What who has a slot no more says.
pub fn moved_to(tag: &str, owner: SocketAddr) -> String {
    format!("-MOVED {} {owner}\r\n", key_slot(tag.as_bytes()))
}

/// Whether a config server says that nobody can do it just now.
fn is_for_now(line: &[u8]) -> bool {
    ["NOLEADER", "UNAVAILABLE", "UNREACHED"].iter().any(|word| line.starts_with(word.as_bytes()))
}
