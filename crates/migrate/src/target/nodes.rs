//! The servers of a target, and who has which slot: what CLUSTER SLOTS says, and what MOVED says since.

use crate::place::{Place, place_of};
use wire::{SLOTS, Value};

/// The owner of slots that nobody has.
const NOBODY: u16 = u16::MAX;

/// Who has which slot, by numbers that stay.
#[derive(Clone, Debug)]
pub struct Slots {
    /// All servers that are known.
    pub places: Vec<Place>,
    owners: Box<[u16]>,
}

/// What an error asks a client to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Redirection {
    /// The slot is another's, for good.
    Moved(u16, Place),
    /// This request is to be made elsewhere, behind an ASKING.
    Ask(Place),
}

impl Slots {
    /// All slots are one server's.
    pub fn of_one(place: Place) -> Slots {
        Slots { places: vec![place], owners: vec![0; SLOTS].into_boxed_slice() }
    }

    /// Takes over what a node answers to CLUSTER SLOTS; known servers keep their numbers.
    ///
    /// # Errors
    /// A sentence, and nothing is changed.
    pub fn take(&mut self, reply: &Value, asked: &Place) -> Result<(), String> {
        let strange = || "what CLUSTER SLOTS answers cannot be read".to_owned();
        let ranges = match reply {
            Value::Array(ranges) => ranges,
            Value::Error(line) => return Err(crate::connection::shown(line)),
            _ => return Err(strange()),
        };
        let mut owners = vec![NOBODY; SLOTS].into_boxed_slice();
        for range in ranges {
            let (first, last, place) = owner_of(range, asked).ok_or_else(strange)?;
            let number = self.number(&place).ok_or_else(|| "there are too many servers".to_owned())?;
            owners.get_mut(first..=last).ok_or_else(strange)?.fill(number);
        }
        self.owners = owners;
        Ok(())
    }

    /// The number of a server, which is known from now on.
    pub fn number(&mut self, place: &Place) -> Option<u16> {
        let known = self.places.iter().position(|known| known == place);
        let at = known.unwrap_or_else(|| {
            self.places.push(place.clone());
            self.places.len() - 1
        });
        u16::try_from(at).ok().filter(|number| *number != NOBODY)
    }

    /// Gives a slot to a server.
    pub fn give(&mut self, slot: u16, place: &Place) {
        if let (Some(number), true) = (self.number(place), usize::from(slot) < SLOTS) {
            self.owners[usize::from(slot)] = number;
        }
    }

    /// Who has a slot.
    pub fn owner(&self, slot: u16) -> Option<usize> {
        let owner = *self.owners.get(usize::from(slot))?;
        (owner != NOBODY).then_some(usize::from(owner))
    }

    /// Those that have slots.
    pub fn masters(&self) -> Vec<usize> {
        let mut masters: Vec<usize> =
            (0..=u16::MAX).take(SLOTS).filter_map(|slot| self.owner(slot)).collect();
        masters.sort_unstable();
        masters.dedup();
        masters
    }

    /// Slots of a server, of which the first and the last of each range.
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

    /// How many slots are nobody's.
    pub fn unowned(&self) -> usize {
        self.owners.iter().filter(|owner| **owner == NOBODY).count()
    }
}

fn owner_of(range: &Value, asked: &Place) -> Option<(usize, usize, Place)> {
    let Value::Array(parts) = range else { return None };
    let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = parts.as_slice() else {
        return None;
    };
    let place = place_of_node(master, asked)?;
    Some((usize::try_from(*first).ok()?, usize::try_from(*last).ok()?, place))
}

fn place_of_node(node: &[Value], asked: &Place) -> Option<Place> {
    let [name, Value::Int(port), ..] = node else { return None };
    let host = match name {
        Value::Bulk(name) if !name.is_empty() && name != b"?" => String::from_utf8_lossy(name).into_owned(),
        Value::Bulk(_) | Value::Null => asked.host.clone(),
        _ => return None,
    };
    Some(Place { host, port: u16::try_from(*port).ok()? })
}

/// All nodes that CLUSTER SLOTS names, masters and replicas.
pub fn all_places(reply: &Value, asked: &Place) -> Vec<Place> {
    let parts = |value: &Value| match value {
        Value::Array(parts) => parts.clone(),
        _ => Vec::new(),
    };
    let nodes = parts(reply).iter().flat_map(&parts).map(|node| parts(&node)).collect::<Vec<_>>();
    let mut places: Vec<Place> = Vec::new();
    for place in nodes.iter().filter_map(|node| place_of_node(node, asked)) {
        if !places.contains(&place) {
            places.push(place);
        }
    }
    places
}

/// Reads an error's line as a redirection of who was asked there.
pub fn redirection(line: &[u8], asked: &Place) -> Option<Redirection> {
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    let kind = words.next().filter(|word| matches!(*word, "MOVED" | "ASK"))?;
    let slot = words.next()?.parse::<u16>().ok()?;
    let text = words.next()?;
    let place = match text.rsplit_once(':')? {
        ("", port) => Place { host: asked.host.clone(), port: port.parse().ok()? },
        // An IPv6 address stands there without brackets.
        (host, port) if host.contains(':') => Place { host: host.to_owned(), port: port.parse().ok()? },
        _ => place_of(text)?,
    };
    Some(if kind == "MOVED" { Redirection::Moved(slot, place) } else { Redirection::Ask(place) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(port: u16) -> Place {
        Place { host: "a".to_owned(), port }
    }

    fn line(first: i64, last: i64, host: Value, port: i64) -> Value {
        Value::Array(vec![Value::Int(first), Value::Int(last), Value::Array(vec![host, Value::Int(port)])])
    }

    #[test]
    fn slots_are_their_masters() {
        let mut slots = Slots::of_one(place(1));
        let named = Value::Bulk(b"b".to_vec());
        let reply = Value::Array(vec![line(0, 9, named, 2), line(10, 20, Value::Null, 1)]);
        slots.take(&reply, &place(1)).unwrap();
        assert_eq!((slots.owner(3), slots.owner(10), slots.owner(21)), (Some(1), Some(0), None));
        assert_eq!((slots.masters(), slots.ranges(0)), (vec![0, 1], vec![(10, 20)]));
        assert_eq!(slots.unowned(), 16_384 - 21);
        for wrong in [Value::Int(1), Value::Array(vec![line(5, 16_384, Value::Null, 1)])] {
            assert!(slots.take(&wrong, &place(1)).is_err());
        }
        assert_eq!(slots.owner(3), Some(1));
    }

    #[test]
    fn replicas_are_places_too() {
        let node = |port| Value::Array(vec![Value::Bulk(b"a".to_vec()), Value::Int(port)]);
        let range =
            |nodes: [Value; 2]| Value::Array([vec![Value::Int(0), Value::Int(1)], nodes.to_vec()].concat());
        let reply = Value::Array(vec![range([node(1), node(2)]), range([node(1), node(3)])]);
        assert_eq!(all_places(&reply, &place(9)), [place(1), place(2), place(3)]);
        assert_eq!(all_places(&Value::Null, &place(9)), []);
    }

    #[test]
    fn errors_say_where_else() {
        let read = |line: &str| redirection(line.as_bytes(), &place(9));
        assert_eq!(read("MOVED 3 b:2"), Some(Redirection::Moved(3, Place { host: "b".to_owned(), port: 2 })));
        assert_eq!(read("ASK 3 :2"), Some(Redirection::Ask(place(2))));
        assert!(matches!(read("MOVED 3 ::1:7000"), Some(Redirection::Moved(3, at)) if at.host == "::1"));
        assert_eq!(read("ERR no"), None);
    }
}
