//! What is asked of a source beside its stream: who its masters are, how far its stream is, and to hold its writers.

use crate::connection::Connection;
use crate::copying::Own;
use crate::ending::{Ending, Orders, stopped};
use crate::place::{Entry, Place};
use crate::target::Slots;
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::time::{Duration, Instant};
use wire::Value;

/// Offsets that are remembered: an hour's.
const OFFSETS_MAX: usize = 3600;

/// The masters of what is at a place, and their slots.
///
/// # Errors
/// It cannot be asked, or some slots have no master.
pub fn find_sources(place: &Place, entry: &Entry, orders: &Orders) -> Result<Vec<(Place, Own)>, Ending> {
    let mut look = || orders.look();
    let wrong = |error: io::Error| match orders.fail_if_over() {
        Err(ending) => ending,
        Ok(()) => Ending::Stopped(format!("the source {place}: {}", config::sentence(&error))),
    };
    let mut connection = Connection::open(place, entry, &mut look).map_err(wrong)?;
    let is_node = connection.field("cluster", "cluster_enabled", &mut look).map_err(wrong)?;
    if is_node.as_deref() != Some("1") {
        return Ok(vec![(place.clone(), Own(None))]);
    }
    let reply = connection.ask_line("CLUSTER SLOTS", &mut look).map_err(wrong)?;
    let mut slots = Slots::of_one(place.clone());
    slots.take(&reply, place).map_err(|why| Ending::Stopped(format!("the source {place}: {why}")))?;
    if slots.unowned() > 0 {
        return stopped(format!("the source {place} knows no master of {} slots", slots.unowned()));
    }
    let masters = slots.masters().into_iter();
    Ok(masters.map(|node| (slots.places[node].clone(), Own(Some(slots.ranges(node))))).collect())
}

/// A source that is asked.
pub struct Beside {
    place: Place,
    entry: Entry,
    peers: Vec<Place>,
    /// Its slots.
    pub own: Own,
    connection: Option<Connection>,
    /// How far its stream was, and when.
    offsets: VecDeque<(Instant, u64)>,
}

impl Beside {
    pub fn new(place: Place, entry: Entry, peers: Vec<Place>, own: Own) -> Beside {
        Beside { place, entry, peers, own, connection: None, offsets: VecDeque::new() }
    }

    /// A connection to it. Where it is lost, and another has its slots, to that one.
    ///
    /// # Errors
    /// It is not reached.
    pub fn connection(&mut self, orders: &Orders) -> io::Result<&mut Connection> {
        let mut look = || orders.look();
        if self.connection.is_none() {
            let opened = Connection::open(&self.place, &self.entry, &mut look);
            let connection = match (opened, &self.own.0) {
                (Err(_), Some(ranges)) => {
                    let first = ranges.first().map_or(0, |(first, _)| *first);
                    let owner = self.peers.iter().find_map(|peer| {
                        let mut connection = Connection::open(peer, &self.entry, &mut look).ok()?;
                        let reply = connection.ask_line("CLUSTER SLOTS", &mut look).ok()?;
                        let mut slots = Slots::of_one(peer.clone());
                        slots.take(&reply, peer).ok()?;
                        slots.owner(first).map(|owner| slots.places[owner].clone())
                    });
                    self.place = owner.unwrap_or_else(|| self.place.clone());
                    Connection::open(&self.place, &self.entry, &mut look)?
                }
                (opened, _) => opened?,
            };
            self.connection = Some(connection);
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

    /// Remembers how far its stream is, if it says so.
    pub fn note_offset(&mut self, orders: &Orders) {
        if let Ok(offset) = self.offset(orders) {
            self.offsets.push_back((Instant::now(), offset));
            if self.offsets.len() > OFFSETS_MAX {
                self.offsets.pop_front();
            }
        }
    }

    /// How many bytes and seconds the target is behind, by what is remembered.
    pub fn lag(&self, applied: u64) -> Option<(u64, u64)> {
        let (_, last) = self.offsets.back()?;
        let since = self.offsets.iter().find(|(_, offset)| *offset > applied);
        let seconds = since.map_or(Duration::ZERO, |(at, _)| at.elapsed());
        Some((last.saturating_sub(applied), seconds.as_secs()))
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

    /// Where it is.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// What is wrong with it, for the operator.
    pub fn wrong(&self, why: &str) -> Ending {
        Ending::Stopped(format!("the source {}: {why}", self.place))
    }
}
