//! A Redis Cluster, or Tarn's: asked for its slots when the proxy begins, every few seconds, and whenever a node says that a slot is elsewhere.

use super::{NOBODY, Node, NodeNo, Routes, Upstream};
use net::connect::{Outgoing, encode_authentication};
use std::io::{self, ErrorKind};
use std::sync::Weak;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};
use telemetry::log;
use wire::{Decoder, SLOTS, Value, encode_request};

/// How often it is asked where nothing says that slots are elsewhere.
const ASKED_EVERY: Duration = Duration::from_secs(10);
/// How soon it is asked again at the soonest.
const ASKED_AGAIN: Duration = Duration::from_millis(50);
/// How long one node may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// Whoever asks.
pub struct Asking {
    /// Nodes that were named.
    pub seeds: Vec<Node>,
    /// What they want to be told: nothing, a password, or a name and one.
    pub credentials: Vec<Vec<u8>>,
}

impl Asking {
    /// Asks one node after the other, masters first, until one tells who has which slot; all servers keep the numbers that they have.
    ///
    /// # Errors
    /// Why the last of them did not.
    pub fn ask(&self, known: &Routes) -> Result<Routes, String> {
        let masters = known.masters.iter().map(|number| &known.nodes[usize::from(*number)]);
        let mut reason = "no node is named".to_owned();
        for node in masters.chain(&self.seeds) {
            let asked = self.ask_one(node).map_err(|error| config::sentence(&error));
            match asked.and_then(|reply| take(&reply, known, node)) {
                Ok(routes) => return Ok(routes),
                Err(why) => reason = format!("{node}: {why}"),
            }
        }
        Err(reason)
    }

    fn ask_one(&self, node: &Node) -> io::Result<Value> {
        let deadline = Instant::now() + PATIENCE;
        let look = &mut || Ok(());
        let mut outgoing = Outgoing::connect(node.host.clone(), node.port, None, deadline, look)?;
        let (mut said, mut owed) = (Vec::new(), 1);
        if !self.credentials.is_empty() {
            let words: Vec<&[u8]> = self.credentials.iter().map(Vec::as_slice).collect();
            encode_authentication(&mut said, &words);
            owed += 1;
        }
        encode_request(&mut said, &[b"CLUSTER", b"SLOTS"]);
        outgoing.write_all(&said, look)?;
        let (mut decoder, mut buffer) = (Decoder::new(), [0; 16 << 10]);
        loop {
            let bytes = outgoing.read(&mut buffer, look)?;
            if bytes == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            decoder.feed(&buffer[..bytes]);
            while let Some(reply) = decoder.decode().map_err(|_| io::Error::from(ErrorKind::InvalidData))? {
                owed -= 1;
                if owed == 0 || matches!(reply, Value::Error(_)) {
                    return Ok(reply);
                }
            }
        }
    }

    /// Follows the cluster for as long as there is a proxy.
    pub fn follow(&self, upstream: &Weak<Upstream>, hurried: &Receiver<()>) {
        let mut is_told = false;
        loop {
            std::thread::sleep(ASKED_AGAIN);
            if hurried.recv_timeout(ASKED_EVERY) == Err(RecvTimeoutError::Disconnected) {
                return;
            }
            let Some(upstream) = upstream.upgrade() else { return };
            let known = upstream.routes();
            match self.ask(&known) {
                Ok(routes) => {
                    is_told = false;
                    // What was learnt meanwhile keeps its number.
                    upstream.replace(|current| current.follow(&routes));
                }
                Err(reason) if !std::mem::replace(&mut is_told, true) => {
                    log!(Warning, "No node of the cluster tells who has which slot: {reason}");
                }
                Err(_) => {}
            }
        }
    }
}

impl Routes {
    /// Gives slots to whom they have there.
    fn follow(&mut self, told: &Routes) {
        let numbers: Vec<NodeNo> =
            told.nodes.iter().map(|node| self.number(node.clone()).unwrap_or(NOBODY)).collect();
        for (slot, owner) in self.slots.iter_mut().zip(&told.slots) {
            *slot = numbers.get(usize::from(*owner)).copied().unwrap_or(NOBODY);
        }
        self.note_masters();
    }
}

/// Reads what CLUSTER SLOTS says. A node that names no address for itself is where it was asked.
fn take(reply: &Value, known: &Routes, asked: &Node) -> Result<Routes, String> {
    let ranges = match reply {
        Value::Array(ranges) => ranges,
        Value::Error(line) => return Err(String::from_utf8_lossy(line).into_owned()),
        _ => return Err("it does not say who has which slot".to_owned()),
    };
    let mut routes = known.clone();
    routes.slots.fill(NOBODY);
    for range in ranges {
        let owned = owner_of(range, asked).ok_or("it does not say who has which slot")?;
        let number = routes.number(owned.2).ok_or("there are too many servers")?;
        routes.slots[owned.0..owned.1].fill(number);
    }
    routes.note_masters();
    match routes.masters.is_empty() {
        true => Err("nobody has a slot".to_owned()),
        false => Ok(routes),
    }
}

/// From which slot on, up to which, and whose.
fn owner_of(range: &Value, asked: &Node) -> Option<(usize, usize, Node)> {
    let Value::Array(parts) = range else { return None };
    let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = &parts[..] else { return None };
    let [host, Value::Int(port), ..] = &master[..] else { return None };
    let host = match host {
        Value::Bulk(host) if !host.is_empty() && host != b"?" => String::from_utf8_lossy(host).into_owned(),
        Value::Bulk(_) | Value::Null => asked.host.clone(),
        _ => return None,
    };
    let (first, last) = (usize::try_from(*first).ok()?, usize::try_from(*last).ok()?);
    let is_range = first <= last && last < SLOTS;
    is_range.then_some((first, last + 1, Node { host, port: u16::try_from(*port).ok()? }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(ranges: &[(i64, i64, &str, i64)]) -> Value {
        let range = |(first, last, host, port): &(i64, i64, &str, i64)| {
            let master = vec![Value::Bulk(host.as_bytes().to_vec()), Value::Int(*port)];
            Value::Array(vec![Value::Int(*first), Value::Int(*last), Value::Array(master)])
        };
        Value::Array(ranges.iter().map(range).collect())
    }

    #[test]
    fn servers_keep_their_numbers() {
        let asked = Node::parse("10.0.0.9:7000").unwrap();
        let first =
            take(&slots(&[(0, 99, "a", 1), (100, 16_383, "", 7000)]), &Routes::empty(true), &asked).unwrap();
        assert_eq!((first.of(99), first.of(100)), (Some(0), Some(1)));
        assert_eq!(first.nodes[1], asked);
        let next = take(&slots(&[(0, 49, "b", 1), (50, 99, "10.0.0.9", 7000)]), &first, &asked).unwrap();
        assert_eq!((next.of(0), next.of(50), next.of(100)), (Some(2), Some(1), None));
        assert_eq!(next.masters, [1, 2]);
    }

    #[test]
    fn what_says_nothing_of_slots_is_refused() {
        let asked = Node::parse("a:1").unwrap();
        for reply in [
            Value::Error(b"ERR This instance has cluster support disabled".to_vec()),
            Value::Array(Vec::new()),
            Value::Int(1),
            slots(&[(5, 4, "a", 1)]),
            slots(&[(0, 16_384, "a", 1)]),
            slots(&[(0, 1, "a", 70_000)]),
        ] {
            assert!(take(&reply, &Routes::empty(true), &asked).is_err(), "{reply:?}");
        }
    }
}
