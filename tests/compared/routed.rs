//! A client of a cluster as bytes: one connection to each node, all in the same state, and whatever is sent to a slot goes where it is served.
//!
//! Invariant: requests run in the order in which they are given, and each once: what was refused because its slot is elsewhere is sent there, and what follows
//! it was refused, too.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use testkit::differential::Twist;
use testkit::generate::Request;
use wire::key_slot;

/// How long it goes where it is sent: while two nodes hear of a move one after the other, they send it to and fro.
const PATIENCE: Duration = Duration::from_secs(180);

/// The client.
pub struct Routed {
    nodes: BTreeMap<SocketAddr, testkit::Client>,
    /// Where slots were served last.
    known: BTreeMap<u16, SocketAddr>,
    twist: Option<Twist>,
    /// How often it was sent elsewhere.
    pub redirections: u64,
}

impl Routed {
    /// One that is connected to these, and knows no slots yet. The fault, if there is one, is made in all requests.
    pub fn new(nodes: &[SocketAddr], twist: Option<Twist>) -> Routed {
        let connect = |node: &SocketAddr| (*node, testkit::Client::connect(*node).expect("it serves"));
        Routed { nodes: nodes.iter().map(connect).collect(), known: BTreeMap::new(), twist, redirections: 0 }
    }

    /// The replies of one node.
    pub fn at(&mut self, node: SocketAddr, requests: &[&Request]) -> Result<Vec<Vec<u8>>, String> {
        let client = self.nodes.get_mut(&node).ok_or_else(|| format!("{node} is no node"))?;
        let Some(twist) = self.twist else { return pipeline(client, requests) };
        let mut twisted: Vec<Request> = requests.iter().map(|request| (*request).clone()).collect();
        twisted.iter_mut().for_each(twist);
        pipeline(client, &twisted.iter().collect::<Vec<_>>())
    }

    /// The replies of all nodes to a request without keys.
    pub fn everywhere(&mut self, request: &Request) -> Result<Vec<Vec<u8>>, String> {
        let nodes: Vec<SocketAddr> = self.nodes.keys().copied().collect();
        let mut replies = Vec::new();
        for node in nodes {
            replies.extend(self.at(node, &[request])?);
        }
        Ok(replies)
    }

    /// The replies to requests whose keys have this tag, or that have none.
    pub fn pipeline(&mut self, tag: &str, requests: &[Request]) -> Result<Vec<Vec<u8>>, String> {
        let slot = key_slot(tag.as_bytes());
        let mut replies: Vec<Option<Vec<u8>>> = vec![None; requests.len()];
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            let missing: Vec<usize> = (0..requests.len()).filter(|at| replies[*at].is_none()).collect();
            let asked: Vec<&Request> = missing.iter().map(|at| &requests[*at]).collect();
            let came = self.at(self.place(slot), &asked)?;
            let refused = came.iter().position(|reply| is_moved(reply));
            let Some(first) = refused else {
                missing.iter().zip(came).for_each(|(at, reply)| replies[*at] = Some(reply));
                return Ok(replies.into_iter().flatten().collect());
            };
            self.go(slot, &came[first])?;
            for (number, (at, reply)) in missing.iter().zip(came).enumerate() {
                // Behind one that was refused others may have been answered with what is wrong with them only.
                let is_done = number < first || !is_moved(&reply);
                if number > first && is_done && reply[0] != b'-' {
                    return Err(format!(
                        "a request was done behind one that was sent elsewhere: {}",
                        requests[*at][0].escape_ascii()
                    ));
                }
                replies[*at] = is_done.then_some(reply);
            }
        }
        Err(format!("slot {slot} is served nowhere"))
    }

    /// The replies to a transaction whose first keys have this tag. One that was refused because these are elsewhere is sent there as a whole.
    pub fn transaction(&mut self, tag: &str, requests: &[Request]) -> Result<Vec<Vec<u8>>, String> {
        let slot = key_slot(tag.as_bytes());
        let all: Vec<&Request> = requests.iter().collect();
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            let replies = self.at(self.place(slot), &all)?;
            let refusal = format!("-MOVED {slot} ");
            match replies.iter().find(|reply| reply.starts_with(refusal.as_bytes())) {
                Some(refused) => self.go(slot, refused)?,
                None => return Ok(replies),
            }
        }
        Err(format!("slot {slot} is served nowhere"))
    }

    fn place(&self, slot: u16) -> SocketAddr {
        let any = || *self.nodes.keys().next().expect("there is one");
        self.known.get(&slot).copied().unwrap_or_else(any)
    }

    /// Goes where it is sent.
    fn go(&mut self, slot: u16, reply: &[u8]) -> Result<(), String> {
        self.redirections += 1;
        let line = String::from_utf8_lossy(reply).into_owned();
        let words: Vec<&str> = line.trim_end().split(' ').collect();
        let [_, named, place] = words[..] else { return Err(line) };
        let place = place.parse().ok().filter(|place| self.nodes.contains_key(place));
        let place =
            place.filter(|_| named == slot.to_string()).ok_or_else(|| format!("slot {slot}: {line}"))?;
        self.known.insert(slot, place);
        Ok(())
    }
}

fn is_moved(reply: &[u8]) -> bool {
    reply.starts_with(b"-MOVED ")
}

/// Sends requests in one write, and reads a reply to each.
pub fn pipeline(client: &mut testkit::Client, requests: &[&Request]) -> Result<Vec<Vec<u8>>, String> {
    let mut bytes = Vec::new();
    for request in requests {
        let words: Vec<&[u8]> = request.iter().map(Vec::as_slice).collect();
        wire::encode_request(&mut bytes, &words);
    }
    let told = |error: std::io::Error| format!("no answer: {error}");
    client.send(&bytes).map_err(told)?;
    requests.iter().map(|_| client.read_reply().map_err(told)).collect()
}
