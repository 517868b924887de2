//! What is asked of a source beside its stream: who its masters are, how far its stream is, and to hold its writers.

use super::holding::no_master;
use crate::connection::Connection;
use crate::copying::Own;
use crate::ending::{Ending, Orders, stopped, unreached};
use crate::place::{Entry, Place};
use crate::target::{Slots, all_places, has_slot_under_way, ranges};
use log::ReplicationId;
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use wire::Value;

/// Offsets that are remembered: an hour's.
const OFFSETS_MAX: usize = 3600;
/// How long what a source has said of its stream is told as what it is.
const OFFSET_KEPT: Duration = Duration::from_secs(5);

/// Masters and their slots, and all nodes of their cluster that may know more later.
type Sources = (Vec<(Place, Own)>, Vec<Place>);

/// The masters of what is at a place.
///
/// # Errors
/// It cannot be asked, or some slots have no master.
pub fn find_sources(place: &Place, entry: &Entry, orders: &Orders) -> Result<Sources, Ending> {
    let mut look = || orders.look();
    let wrong = |error: io::Error| match orders.fail_if_over() {
        Err(ending) => ending,
        Ok(()) => unreached(&error, format!("the source {place}: {}", config::sentence(&error))),
    };
    let mut connection = Connection::open(place, entry, &mut look).map_err(wrong)?;
    let is_node = connection.field("cluster", "cluster_enabled", &mut look).map_err(wrong)?;
    if is_node.as_deref() != Some("1") {
        let mut field = |name: &str| connection.field("replication", name, &mut look).map_err(wrong);
        if field("role")?.as_deref() == Some("slave") {
            let (host, port) = (field("master_host")?, field("master_port")?);
            let master = host.zip(port).map_or_else(String::new, |(host, port)| format!(", {host}:{port}"));
            return stopped(format!("the source {place} is a replica: say --from its master{master}"));
        }
        return Ok((vec![(place.clone(), Own(None))], Vec::new()));
    }
    let reply = connection.ask_line("CLUSTER SLOTS", &mut look).map_err(wrong)?;
    let mut slots = Slots::of_one(place.clone());
    slots.take(&reply, place).map_err(|why| Ending::Later(format!("the source {place}: {why}")))?;
    if slots.unowned() > 0 {
        let why = format!("the source {place} knows no master of {} slots", slots.unowned());
        return Err(Ending::Later(why));
    }
    let masters = slots.masters().into_iter();
    let masters = masters.map(|node| (slots.places[node].clone(), Own(Some(slots.ranges(node))))).collect();
    // Where one master has all slots only its replicas tell who has taken its place.
    let mut nodes = all_places(&reply, place);
    nodes.push(place.clone());
    Ok((masters, nodes))
}

/// What the stream of whoever is at a place is called, and was called up to some moment: a replica that takes its master's place keeps that name. None where
/// it does not say.
pub fn stream_names(place: &Place, entry: &Entry, orders: &Orders) -> Vec<ReplicationId> {
    let mut look = || orders.look();
    let Ok(mut connection) = Connection::open(place, entry, &mut look) else { return Vec::new() };
    let mut name = |field| connection.field("replication", field, &mut look).ok()??.parse().ok();
    let names: [Option<ReplicationId>; 2] = [name("master_replid"), name("master_replid2")];
    names.into_iter().flatten().filter(|name| *name != ReplicationId::NONE).collect()
}

/// Looks whether each part's slots are one master's still, and all of that master's, as a node says; None: it does not know of all slots now.
pub fn are_parts(slots: &Slots, parts: &[&Own]) -> Option<bool> {
    let is_as_it_was = |own: &&Own| {
        let Some(ranges) = &own.0 else { return true };
        let owner = ranges.first().and_then(|(first, _)| slots.owner(*first));
        owner.is_some_and(|node| slots.ranges(node) == *ranges)
    };
    (slots.unowned() == 0).then(|| parts.iter().all(is_as_it_was))
}

/// Looks whether each part's slots are of the node that the part asks, by what nodes are called. Servers that do not tell names are believed.
pub fn are_theirs(owners: &[(i64, i64, Vec<u8>)], parts: &[(Own, Vec<u8>)]) -> bool {
    parts.iter().all(|(own, name)| {
        let first = own.0.as_ref().and_then(|ranges| ranges.first()).map(|(first, _)| i64::from(*first));
        let has = |(from, to): (i64, i64)| first.is_some_and(|first| (from..=to).contains(&first));
        let owner = owners.iter().find(|(from, to, _)| has((*from, *to)));
        owner.is_some_and(|(_, _, owner)| owner == name || owner.len() != name.len())
    })
}

/// A source that is asked.
pub struct Beside {
    /// Where its part has it now.
    at: Arc<Mutex<Place>>,
    /// Where the connection goes.
    place: Place,
    entry: Entry,
    /// Its slots.
    pub own: Own,
    connection: Option<Connection>,
    /// How far its stream was, and when.
    offsets: VecDeque<(Instant, u64)>,
}

impl Beside {
    pub fn new(at: Arc<Mutex<Place>>, place: Place, entry: Entry, own: Own) -> Beside {
        Beside { at, place, entry, own, connection: None, offsets: VecDeque::new() }
    }

    /// A connection to where its part has it now.
    ///
    /// # Errors
    /// It is not reached.
    pub fn connection(&mut self, orders: &Orders) -> io::Result<&mut Connection> {
        let at = self.at.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if at != self.place {
            (self.place, self.connection) = (at, None);
        }
        if self.connection.is_none() {
            self.connection = Some(Connection::open(&self.place, &self.entry, &mut || orders.look())?);
        }
        Ok(self.connection.as_mut().expect("it was opened"))
    }

    /// Asks something.
    ///
    /// # Errors
    /// It is not reached.
    pub fn ask(&mut self, line: &str, orders: &Orders) -> io::Result<Value> {
        let asked = self.connection(orders)?.ask_line(line, &mut || orders.look());
        if asked.is_err() {
            self.connection = None;
        }
        asked
    }

    /// How far its stream is now.
    ///
    /// # Errors
    /// It does not say.
    pub fn offset(&mut self, orders: &Orders) -> io::Result<u64> {
        let mut look = || orders.look();
        let field = self.connection(orders)?.field("replication", "master_repl_offset", &mut look);
        match field {
            Ok(field) => {
                field.and_then(|text| text.parse().ok()).ok_or_else(|| io::ErrorKind::InvalidData.into())
            }
            Err(error) => {
                self.connection = None;
                Err(error)
            }
        }
    }

    /// The same, of what is a master still.
    ///
    /// # Errors
    /// It does not say, or is none.
    pub fn offset_of_master(&mut self, orders: &Orders) -> Result<u64, Ending> {
        let offset = self.offset(orders).map_err(|error| self.wrong(&config::sentence(&error)))?;
        let mut look = || orders.look();
        let role = self.connection(orders).and_then(|asked| asked.field("replication", "role", &mut look));
        match role.map_err(|error| self.wrong(&config::sentence(&error)))?.as_deref() {
            Some("master") => Ok(offset),
            _ => stopped(no_master(&self.place)),
        }
    }

    /// Remembers how far its stream is, if it says so.
    pub fn note_offset(&mut self, orders: &Orders) {
        if let Ok(offset) = self.offset(orders) {
            self.offsets.push_back((Instant::now(), offset));
            if self.offsets.len() > OFFSETS_MAX {
                self.offsets.pop_front();
            }
        }
    }

    /// How many bytes and seconds the target is behind, by what is remembered; None: the source has said nothing of late.
    pub fn lag(&self, applied: u64) -> Option<(u64, u64)> {
        let (at, last) = self.offsets.back()?;
        if at.elapsed() > OFFSET_KEPT {
            return None;
        }
        let since = self.offsets.iter().find(|(_, offset)| *offset > applied);
        let seconds = since.map_or(Duration::ZERO, |(at, _)| at.elapsed());
        Some((last.saturating_sub(applied), seconds.as_secs()))
    }

    /// Who has which slots, as it says, and all nodes that it names.
    ///
    /// # Errors
    /// It does not say.
    pub fn slots(&mut self, orders: &Orders) -> Result<(Slots, Vec<Place>), Ending> {
        let said =
            self.ask("CLUSTER SLOTS", orders).map_err(|error| self.wrong(&config::sentence(&error)))?;
        let mut slots = Slots::of_one(self.place.clone());
        slots.take(&said, &self.place).map_err(|why| self.wrong(&why))?;
        Ok((slots, all_places(&said, &self.place)))
    }

    /// What the masters are called that have each range of slots, as it says.
    ///
    /// # Errors
    /// It does not say.
    pub fn owners(&mut self, orders: &Orders) -> Result<Vec<(i64, i64, Vec<u8>)>, Ending> {
        let said =
            self.ask("CLUSTER SLOTS", orders).map_err(|error| self.wrong(&config::sentence(&error)))?;
        ranges(&said).ok_or_else(|| self.wrong("it does not say who has which slots"))
    }

    /// What it is called in its cluster.
    ///
    /// # Errors
    /// It does not say.
    pub fn name(&mut self, orders: &Orders) -> Result<Vec<u8>, Ending> {
        match self.ask("CLUSTER MYID", orders).map_err(|error| self.wrong(&config::sentence(&error)))? {
            Value::Bulk(name) => Ok(name),
            _ => Err(self.wrong("it does not say what it is called")),
        }
    }

    /// Whether a slot comes to it or goes from it just now: its keys are here and there.
    ///
    /// # Errors
    /// It does not say.
    pub fn has_slot_under_way(&mut self, orders: &Orders) -> Result<bool, Ending> {
        match self.ask("CLUSTER NODES", orders).map_err(|error| self.wrong(&config::sentence(&error)))? {
            Value::Bulk(lines) => Ok(has_slot_under_way(&String::from_utf8_lossy(&lines))),
            _ => Err(self.wrong("it does not say whether slots are on their way")),
        }
    }

    /// Databases that have keys.
    ///
    /// # Errors
    /// It does not say.
    pub fn databases(&mut self, orders: &Orders) -> Result<BTreeSet<u32>, Ending> {
        let said = self.ask("INFO keyspace", orders);
        let said = said.map_err(|error| self.wrong(&config::sentence(&error)))?;
        let Value::Bulk(text) = said else {
            return Err(self.wrong("it does not say which databases it has"));
        };
        let text = String::from_utf8_lossy(&text).into_owned();
        let number = |line: &str| line.strip_prefix("db")?.split_once(':')?.0.parse().ok();
        Ok(text.lines().filter_map(number).collect())
    }

    /// Where it is now.
    pub fn place(&self) -> Place {
        self.at.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What is wrong with it, for the operator.
    pub fn wrong(&self, why: &str) -> Ending {
        Ending::Stopped(format!("the source {}: {why}", self.place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_as_they_were_only_if_their_masters_have_neither_less_nor_more() {
        let place = |port| Place { host: "a".to_owned(), port };
        let own = |ranges: &[(u16, u16)]| Own(Some(ranges.to_vec()));
        let (first, second) = (own(&[(0, 8191)]), own(&[(8192, 16_383)]));
        let mut slots = Slots::of_one(place(1));
        (8192..16_384).for_each(|slot| slots.give(slot, &place(2)));
        assert_eq!(are_parts(&slots, &[&first, &second]), Some(true));
        slots.give(7, &place(3));
        assert_eq!(are_parts(&slots, &[&first, &second]), Some(false));
        // Another has taken the first one's place.
        (0..8192).for_each(|slot| slots.give(slot, &place(3)));
        assert_eq!(are_parts(&slots, &[&first, &second]), Some(true));
        assert_eq!(are_parts(&slots, &[&Own(None)]), Some(true));
    }

    #[test]
    fn slots_are_a_parts_only_if_its_own_node_has_them() {
        let own = |first, last| Own(Some(vec![(first, last)]));
        let parts = [(own(0, 8191), b"aa".to_vec()), (own(8192, 16_383), b"bb".to_vec())];
        let owners = |first: &str, second: &str| {
            [(0, 8191, first.as_bytes().to_vec()), (8192, 16_383, second.as_bytes().to_vec())]
        };
        assert!(are_theirs(&owners("aa", "bb"), &parts));
        assert!(!are_theirs(&owners("aa", "cc"), &parts) && !are_theirs(&owners("bb", "aa"), &parts));
        assert!(are_theirs(&owners("a host, and a port", "another"), &parts), "no names are told");
    }

    #[test]
    fn what_a_source_said_long_ago_is_not_told_as_what_it_is() {
        let place = Place { host: "a".to_owned(), port: 1 };
        let at = Arc::new(Mutex::new(place.clone()));
        let mut beside = Beside::new(at, place, Entry::default(), Own(None));
        assert_eq!(beside.lag(7), None);
        beside.offsets.push_back((Instant::now(), 9));
        assert_eq!(beside.lag(7), Some((2, 0)));
        beside.offsets[0].0 = Instant::now().checked_sub(OFFSET_KEPT * 2).unwrap();
        assert_eq!(beside.lag(9), None);
    }
}
