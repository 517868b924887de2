//! What is behind the proxy: which server has which slots.

use std::fmt;
use wire::SLOTS;

/// A server's number.
pub type NodeNo = u16;

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
}

impl fmt::Display for Node {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.host, self.port)
    }
}

/// Servers that have their slots for ever.
#[derive(Debug)]
pub struct Layout {
    /// The servers.
    pub nodes: Vec<Node>,
    slots: Box<[NodeNo]>,
}

impl Layout {
    /// Reads `proxy-shards`: `host:port` of each server, with commas between them; all have as many slots, or each has those that stand in front of
    /// it as `first-last=`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Layout, String> {
        let words: Vec<&str> = text.split(',').map(str::trim).collect();
        let mut nodes = Vec::new();
        let mut slots = vec![None; SLOTS];
        for (number, word) in words.iter().enumerate() {
            let (range, address) = match word.split_once('=') {
                Some((range, address)) => (slot_range(range)?, address),
                None => (SLOTS * number / words.len()..SLOTS * (number + 1) / words.len(), *word),
            };
            let node = address_of(address)?;
            let number = nodes.iter().position(|known| *known == node).unwrap_or(nodes.len());
            if number == nodes.len() {
                nodes.push(node);
            }
            let number = NodeNo::try_from(number).map_err(|_| "there are too many servers".to_owned())?;
            for slot in range {
                if slots[slot].replace(number).is_some() {
                    return Err(format!("slot {slot} is given to two servers"));
                }
            }
        }
        match slots.iter().position(Option::is_none) {
            Some(slot) => Err(format!("slot {slot} is given to no server")),
            None => Ok(Layout { nodes, slots: slots.into_iter().flatten().collect() }),
        }
    }

    /// Who has a slot.
    #[inline]
    pub fn of(&self, slot: u16) -> NodeNo {
        self.slots[usize::from(slot)]
    }
}

fn slot_range(text: &str) -> Result<std::ops::Range<usize>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let number = |text: &str| text.parse::<usize>().ok().filter(|slot| *slot < SLOTS);
    match (number(first), number(last)) {
        (Some(first), Some(last)) if first <= last => Ok(first..last + 1),
        _ => Err(format!("`{text}` is no range of slots")),
    }
}

fn address_of(text: &str) -> Result<Node, String> {
    let parsed = text.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
    match parsed {
        Some((host, port)) if !host.is_empty() && port > 0 => {
            Ok(Node { host: host.trim_matches(['[', ']']).to_owned(), port })
        }
        _ => Err(format!("`{text}` is no `host:port`")),
    }
}
