//! Servers that have their slots for ever: what `proxy-shards` says.

use super::{NOBODY, Node, Routes};
use wire::SLOTS;

/// Reads `host:port` of each server, with commas between them; all have as many slots, or each has those that stand in front of it as
/// `first-last=`.
///
/// # Errors
/// What is wrong with it.
pub fn parse(text: &str) -> Result<Routes, String> {
    let words: Vec<&str> = text.split(',').map(str::trim).collect();
    let mut routes = Routes::empty(false);
    for (number, word) in words.iter().enumerate() {
        let (range, address) = match word.split_once('=') {
            Some((range, address)) => (slot_range(range)?, address),
            None => (SLOTS * number / words.len()..SLOTS * (number + 1) / words.len(), *word),
        };
        let number = routes.number(Node::parse(address)?).ok_or("there are too many servers")?;
        for slot in range {
            if std::mem::replace(&mut routes.slots[slot], number) != NOBODY {
                return Err(format!("slot {slot} is given to two servers"));
            }
        }
    }
    routes.note_masters();
    match routes.slots.iter().position(|node| *node == NOBODY) {
        Some(slot) => Err(format!("slot {slot} is given to no server")),
        None => Ok(routes),
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
