//! Which master has which slot: what CLUSTER SLOTS says, and what MOVED says since.
//!
//! Nodes are numbered as they become known and keep their numbers, so that connections can be held by number; a node that has no slots
//! any more keeps its number, too. Each thread of the generator has a map of its own.

use crate::Failure;
use crate::client::Client;
use crate::plan::Target;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use wire::{SLOTS, Value};

/// Nodes that are told apart at most: more than a cluster that one machine can load has.
pub const NODES_MAX: usize = 1024;
/// The owner of slots that nobody has.
const NOBODY: u16 = u16::MAX;

const _: () = assert!(NODES_MAX < NOBODY as usize);

/// A master, or who was one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// As the cluster names it.
    host: String,
    port: u16,
    /// Where to connect to.
    pub address: SocketAddr,
}

/// The masters, and who has which slot.
#[derive(Clone, Debug)]
pub struct Map {
    nodes: Vec<Node>,
    owners: Box<[u16]>,
}

/// What a reply with an error asks a client to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redirection<'a> {
    /// The slot is another's, for good.
    Moved(u16, &'a str, u16),
    /// This request is to be made elsewhere, behind an ASKING.
    Ask(&'a str, u16),
}

impl Map {
    /// Asks a node of the cluster.
    ///
    /// # Errors
    /// One sentence: it is no node of a cluster, or knows no master of some slots.
    pub fn ask(client: &mut Client, target: &Target) -> Result<Map, Failure> {
        let mut map = Map { nodes: Vec::new(), owners: vec![NOBODY; SLOTS].into_boxed_slice() };
        let reply = client.request(&[b"CLUSTER", b"SLOTS"])?;
        if let Value::Error(line) = &reply {
            let line = String::from_utf8_lossy(line);
            return Err(Failure(format!("{target} is no node of a cluster: {line}")));
        }
        map.take(&reply, &target.host).map_err(|why| Failure(format!("{target}: {why}")))?;
        match map.owners.iter().filter(|owner| **owner == NOBODY).count() {
            0 => Ok(map),
            count => Err(Failure(format!("{target} knows no master of {count} of the {SLOTS} slots"))),
        }
    }

    /// Takes over what a node that was reached at `host` answers. A reply that is none changes nothing.
    ///
    /// # Errors
    /// A sentence.
    pub fn take(&mut self, reply: &Value, host: &str) -> Result<(), String> {
        let strange = || "what CLUSTER SLOTS answers cannot be read".to_owned();
        let Value::Array(lines) = reply else { return Err(strange()) };
        let mut owners = vec![NOBODY; SLOTS].into_boxed_slice();
        for line in lines {
            let Value::Array(line) = line else { return Err(strange()) };
            let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = line.as_slice() else {
                return Err(strange());
            };
            let range = usize::try_from(*first).ok().zip(usize::try_from(*last).ok());
            let slots = range.and_then(|(first, last)| owners.get_mut(first..last.checked_add(1)?));
            let slots = slots.ok_or_else(strange)?;
            let (name, port) = match master.as_slice() {
                // No name: where the answer comes from.
                [Value::Bulk(name), Value::Int(port), ..] if name.is_empty() || name == b"?" => {
                    (host.to_owned(), port)
                }
                [Value::Bulk(name), Value::Int(port), ..] => {
                    (String::from_utf8_lossy(name).into_owned(), port)
                }
                [Value::Null, Value::Int(port), ..] => (host.to_owned(), port),
                _ => return Err(strange()),
            };
            let port = u16::try_from(*port).map_err(|_| strange())?;
            slots.fill(self.number(&name, port)?);
        }
        self.owners = owners;
        Ok(())
    }

    /// The number of a node, which is known from now on.
    ///
    /// # Errors
    /// Its name has no address, or there are too many.
    fn number(&mut self, host: &str, port: u16) -> Result<u16, String> {
        let known = self.nodes.iter().position(|node| node.port == port && node.host == host);
        let number = match known {
            Some(number) => number,
            None if self.nodes.len() >= NODES_MAX => return Err(format!("there are over {NODES_MAX} nodes")),
            None => {
                let address = address(host, port).ok_or_else(|| format!("'{host}' has no address"))?;
                self.nodes.push(Node { host: host.to_owned(), port, address });
                self.nodes.len() - 1
            }
        };
        u16::try_from(number).map_err(|_| format!("there are over {NODES_MAX} nodes"))
    }

    /// The node to which a redirection points, and which has the slot from now on, if that is what it says.
    ///
    /// # Errors
    /// A sentence: it cannot be followed.
    pub fn follow(&mut self, redirection: Redirection<'_>, from: usize) -> Result<usize, String> {
        let (Redirection::Moved(_, host, port) | Redirection::Ask(host, port)) = redirection;
        let own = self.nodes.get(from).map(|node| node.host.clone()).unwrap_or_default();
        let number = self.number(if host.is_empty() { &own } else { host }, port)?;
        if let Redirection::Moved(slot, ..) = redirection {
            let owner = self.owners.get_mut(usize::from(slot));
            *owner.ok_or_else(|| format!("there is no slot {slot}"))? = number;
        }
        Ok(usize::from(number))
    }

    /// The node that has a slot.
    pub fn owner(&self, slot: u16) -> Option<usize> {
        let owner = *self.owners.get(usize::from(slot))?;
        (owner != NOBODY).then_some(usize::from(owner))
    }

    /// All nodes that are known, by number.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The numbers of those that have slots.
    pub fn masters(&self) -> Vec<usize> {
        let mut owners: Vec<u16> = self.owners.iter().copied().filter(|owner| *owner != NOBODY).collect();
        owners.sort_unstable();
        owners.dedup();
        owners.into_iter().map(usize::from).collect()
    }

    /// Slots of a node, of which the first and the last of each range.
    pub fn ranges(&self, node: usize) -> Vec<(u16, u16)> {
        let mut ranges: Vec<(u16, u16)> = Vec::new();
        for slot in (0..=u16::MAX).take(SLOTS).filter(|slot| self.owner(*slot) == Some(node)) {
            match ranges.last_mut() {
                Some(range) if range.1 + 1 == slot => range.1 = slot,
                _ => ranges.push((slot, slot)),
            }
        }
        ranges
    }
}

impl Node {
    /// The same server that `target` speaks to, at this node's address.
    pub fn target(&self, target: &Target) -> Target {
        Target { host: self.host.clone(), port: self.port, ..target.clone() }
    }

    /// Its host, as the cluster names it.
    pub fn host(&self) -> &str {
        &self.host
    }
}

impl std::fmt::Display for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.address.fmt(f)
    }
}

fn address(host: &str, port: u16) -> Option<SocketAddr> {
    match host.parse::<IpAddr>() {
        Ok(ip) => Some((ip, port).into()),
        Err(_) => (host, port).to_socket_addrs().ok()?.next(),
    }
}

/// Reads an error's line as a redirection.
pub fn redirection(line: &[u8]) -> Option<Redirection<'_>> {
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    let kind = words.next().filter(|word| matches!(*word, "MOVED" | "ASK"))?;
    let slot = words.next()?.parse::<u16>().ok()?;
    let (host, port) = words.next()?.rsplit_once(':')?;
    let port = port.parse().ok()?;
    Some(if kind == "MOVED" { Redirection::Moved(slot, host, port) } else { Redirection::Ask(host, port) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(first: i64, last: i64, host: Value, port: i64) -> Value {
        let node = Value::Array(vec![host, Value::Int(port), Value::Bulk(b"id".to_vec())]);
        Value::Array(vec![Value::Int(first), Value::Int(last), node])
    }

    fn named(host: &str) -> Value {
        Value::Bulk(host.as_bytes().to_vec())
    }

    fn empty() -> Map {
        Map { nodes: Vec::new(), owners: vec![NOBODY; SLOTS].into_boxed_slice() }
    }

    #[test]
    fn slots_are_their_masters_and_a_node_without_a_name_is_who_was_asked() {
        let mut map = empty();
        let reply = Value::Array(vec![
            line(0, 99, named("127.0.0.1"), 7000),
            line(100, 200, Value::Null, 7001),
            line(201, 201, named(""), 7002),
        ]);
        map.take(&reply, "127.0.0.2").unwrap();
        let address = |slot| map.owner(slot).map(|node| map.nodes()[node].address.to_string());
        assert_eq!(address(99).as_deref(), Some("127.0.0.1:7000"));
        assert_eq!(address(100).as_deref(), Some("127.0.0.2:7001"));
        assert_eq!(address(201).as_deref(), Some("127.0.0.2:7002"));
        assert_eq!(address(202), None);
        assert_eq!((map.masters(), map.ranges(1)), (vec![0, 1, 2], vec![(100, 200)]));
    }

    #[test]
    fn nodes_keep_their_numbers_when_slots_go() {
        let mut map = empty();
        map.take(&Value::Array(vec![line(0, 9, named("127.0.0.1"), 1)]), "").unwrap();
        let moved = redirection(b"MOVED 3 127.0.0.1:2").unwrap();
        assert_eq!(map.follow(moved, 0), Ok(1));
        assert_eq!((map.owner(3), map.owner(4)), (Some(1), Some(0)));
        let ask = redirection(b"ASK 4 :3").unwrap();
        assert_eq!(map.follow(ask, 0), Ok(2), "without a host it is who answered");
        assert_eq!(map.nodes()[2].address.to_string(), "127.0.0.1:3");
        assert_eq!(map.owner(4), Some(0), "ASK is for one request");
        map.take(&Value::Array(vec![line(0, 9, named("127.0.0.1"), 2)]), "").unwrap();
        assert_eq!((map.owner(4), map.masters()), (Some(1), vec![1]));
    }

    #[test]
    fn what_cannot_be_read_changes_nothing() {
        let mut map = empty();
        map.take(&Value::Array(vec![line(0, 9, named("127.0.0.1"), 1)]), "").unwrap();
        for reply in [
            Value::Int(1),
            Value::Array(vec![Value::Int(1)]),
            Value::Array(vec![line(5, 3, named("127.0.0.1"), 1)]),
            Value::Array(vec![line(0, 16_384, named("127.0.0.1"), 1)]),
            Value::Array(vec![line(-1, 3, named("127.0.0.1"), 1)]),
            Value::Array(vec![line(0, i64::MAX, named("127.0.0.1"), 1)]),
            Value::Array(vec![line(0, 3, named("127.0.0.1"), 70_000)]),
        ] {
            assert!(map.take(&reply, "").is_err(), "{reply:?}");
        }
        assert_eq!((map.owner(9), map.owner(10)), (Some(0), None));
        for line in ["MOVED 1", "MOVED x 127.0.0.1:1", "ASK 1 127.0.0.1", "ERR no", "MOVED 1 127.0.0.1:x", ""]
        {
            assert_eq!(redirection(line.as_bytes()), None, "{line}");
        }
        let beyond = redirection(b"MOVED 16384 127.0.0.1:1").unwrap();
        assert!(map.follow(beyond, 0).is_err());
    }
}
