//! Where the data go: a server, the masters of a cluster, or what is behind a proxy. Does [`Job`]s, however often a connection is lost or a slot is elsewhere.
//!
//! What is of the stream is done once. Each job of it is a transaction that also writes how far the stream is applied with it ([`bookmark`]). Who lost the
//! connection in the middle reaches the server anew, has it end all connections of the same name, so that nothing is under way any more, and reads
//! whether it was done.
//!
//! Thread rule: one thread.
//!
//! Invariants:
//! 1. Of a lane (a server, or a database's slot in a cluster) there is one job of the stream under way at most.
//! 2. What was answered is known: a server that comes back with less, or as another process that may have less, ends it ([`Ending::NeedsCopy`]).
//! 3. One process writes ([`owning`]).

pub mod bookmark;
mod job;
mod layout;
mod nodes;
mod opening;
mod owning;
mod turn;

pub use job::Job;
pub use layout::{Layout, has_slot_under_way, ranges};
pub use nodes::{Slots, all_places};
pub use owning::is_anothers;

use crate::connection::{Connection, shown};
use crate::ending::{Ending, Orders, pause, stopped};
use crate::limits::PAUSE;
use crate::place::{Entry, Place};
use bookmark::{Stage, State, Tags, lane_offset, lane_text, state_key};
use std::cell::Cell;
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use value::stream::Reads;
use wire::{SLOTS, Value, key_slot};

/// What a target can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A server: a transaction may have any keys.
    One,
    /// A cluster: a transaction has keys of one slot.
    Slots,
    /// A proxy: it is not known what becomes of what is under way when a connection is lost.
    Bare,
}

/// Why something was not done.
enum Trouble {
    /// The connection is lost, or was not had.
    Lost(io::Error),
    /// It is not to be tried again.
    Ending(Ending),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Trouble {
        Trouble::Lost(error)
    }
}

impl From<Ending> for Trouble {
    fn from(ending: Ending) -> Trouble {
        Trouble::Ending(ending)
    }
}

/// Whoever writes a source's data.
struct Writer {
    /// The source, as keys name it.
    source: String,
    state: State,
    /// Up to where each slot is applied, by database and slot.
    lanes: HashMap<(u32, u16), u64>,
    /// Whether the state was looked at since a connection was made.
    is_confirmed: bool,
}

/// Whoever ends an import. It writes as long as the target is its process', though in no source's name.
struct Ender {
    /// The sources, as keys name them.
    sources: Vec<String>,
    owner: u64,
    /// Whether it was looked since a connection was made.
    is_confirmed: bool,
}

/// A target.
pub struct Target {
    entry: Entry,
    orders: Orders,
    look: Box<dyn FnMut() -> io::Result<()>>,
    /// What it can do.
    pub kind: Kind,
    /// The newest form of values that it reads.
    pub reads: Reads,
    slots: Slots,
    connections: Vec<Option<Connection>>,
    /// The process behind each place, as it was at first.
    processes: HashMap<Place, String>,
    /// What its connections are called.
    name: String,
    tags: Arc<Tags>,
    writer: Option<Writer>,
    ender: Option<Ender>,
    /// Whether connections of who ends an import are ended, too, where one is made.
    claims: bool,
    /// Whether something of the stream was done whose answer was lost: that it was done is known, and not whether a command of it had an error.
    pub has_unheard: bool,
    /// Databases that are known to be there.
    databases: BTreeSet<u32>,
    /// Nodes that have said in this turn that a slot is elsewhere.
    moved_from: BTreeSet<usize>,
    /// What was said last of what does not go on.
    said: Option<String>,
    /// Since when what was asked is not answered, or when it was.
    heard: Rc<Cell<Instant>>,
    /// How long it may be.
    silence_max: Option<Duration>,
}

impl Target {
    /// Has it looked at meanwhile whether there is something else to do.
    pub fn set_look(&mut self, look: Box<dyn FnMut() -> io::Result<()>>) {
        self.look = look;
    }

    /// Has it fail if it gives no answer for so long.
    pub fn limit_silence(&mut self, span: Duration) {
        self.silence_max = Some(span);
        self.heard.set(Instant::now());
        let (heard, orders) = (self.heard.clone(), self.orders.clone());
        self.look = Box::new(move || match heard.get().elapsed() > span {
            true => Err(io::ErrorKind::TimedOut.into()),
            false => orders.look(),
        });
    }

    /// Whether it is to end, or has been silent for too long.
    fn fail_if_over(&self) -> Result<(), Ending> {
        self.orders.fail_if_over()?;
        match self.silence_max.filter(|max| self.heard.get().elapsed() > *max) {
            Some(max) => stopped(format!("the target has given no answer for {} s", max.as_secs())),
            None => Ok(()),
        }
    }

    /// Whether no database has a key. Those of a migration count.
    ///
    /// # Errors
    /// It does not say.
    pub fn is_empty(&mut self) -> Result<bool, Ending> {
        if self.kind == Kind::Bare {
            let mut job = Job::question(0, 0, &[b"DBSIZE"]);
            self.ask(std::slice::from_mut(&mut job))?;
            return Ok(job.replies == [Value::Int(0)]);
        }
        for node in self.slots.masters() {
            let text = match self.ask_node(node, &[b"INFO", b"keyspace"])? {
                Value::Bulk(text) => text,
                _ => return stopped("the target does not say whether it has keys"),
            };
            if text.windows(4).any(|four| four == b"keys") {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Where requests go that concern all there is.
    pub fn masters(&self) -> Vec<usize> {
        self.slots.masters()
    }

    /// All nodes that are known.
    pub fn places(&self) -> Vec<Place> {
        self.slots.places.clone()
    }

    /// Asks a node itself.
    ///
    /// # Errors
    /// It is to end; a node that is not reached is tried again.
    pub fn ask_node(&mut self, node: usize, words: &[&[u8]]) -> Result<Value, Ending> {
        self.heard.set(Instant::now());
        loop {
            self.check_has_slots(node)?;
            let asked = self.node(node).and_then(|()| {
                let connection = self.connections[node].as_mut().expect("it was opened");
                Ok(connection.ask(words, &mut *self.look)?)
            });
            match asked {
                Ok(value) => return Ok(value),
                Err(Trouble::Ending(ending)) => return Err(ending),
                Err(Trouble::Lost(error)) => self.lost(node, &error)?,
            }
            self.rest()?;
        }
    }

    /// Nobody waits for a node that is about nothing of the target's any more.
    fn check_has_slots(&self, node: usize) -> Result<(), Ending> {
        match self.kind == Kind::Slots && !self.masters().contains(&node) {
            true if self.writer.is_some() => Err(self.may_have_less(node)),
            true => stopped(format!("the target {} has no slots any more", self.place(node))),
            false => Ok(()),
        }
    }

    /// Has a node use a database for what it is asked itself.
    ///
    /// # Errors
    /// As [`Target::ask_node`], or it has no such database.
    pub fn select(&mut self, node: usize, database: u32) -> Result<(), Ending> {
        let reply = self.ask_node(node, &[b"SELECT", database.to_string().as_bytes()])?;
        if let Some(connection) = self.connections[node].as_mut() {
            connection.database = database;
        }
        match reply {
            Value::Error(line) => stopped(format!("the target has no database {database}: {}", shown(&line))),
            _ => Ok(()),
        }
    }

    /// Makes sure that a database is there before anything is sent to it.
    ///
    /// # Errors
    /// It is not.
    pub fn ensure_database(&mut self, database: u32) -> Result<(), Ending> {
        if database > 0 && !self.databases.contains(&database) {
            for node in self.masters() {
                self.select(node, database)?;
            }
            self.databases.insert(database);
        }
        Ok(())
    }

    /// Asks what may be asked twice, wherever the slots are.
    ///
    /// # Errors
    /// One of them is refused for good, or it is to end.
    pub fn ask(&mut self, jobs: &mut [Job]) -> Result<(), Ending> {
        self.heard.set(Instant::now());
        let mut left: Vec<usize> = (0..jobs.len()).collect();
        loop {
            let turn = self.turn(jobs, &left)?;
            left = [turn.again, turn.lost].concat();
            left.sort_unstable();
            if left.is_empty() {
                self.said = None;
                return Ok(());
            }
            self.rest()?;
        }
    }

    /// Does jobs of the stream, each once. Those of one lane are one.
    ///
    /// # Errors
    /// One of them is refused, or it is not known what the target has.
    pub fn apply(&mut self, jobs: &mut [Job]) -> Result<(), Ending> {
        let mut left: Vec<usize> = (0..jobs.len()).collect();
        while !left.is_empty() {
            let turn = self.turn(jobs, &left)?;
            for at in left.iter().filter(|at| !turn.again.contains(at) && !turn.lost.contains(at)) {
                self.note_applied(&jobs[*at]);
            }
            left = turn.again;
            for at in turn.lost {
                if !self.was_applied(&jobs[at])? {
                    left.push(at);
                } else {
                    self.has_unheard = true;
                    self.note_applied(&jobs[at]);
                }
            }
            if !left.is_empty() {
                self.rest()?;
            }
        }
        self.said = None;
        Ok(())
    }

    fn note_applied(&mut self, job: &Job) {
        let (Some(writer), Some(end)) = (&mut self.writer, job.end) else { return };
        match self.kind {
            Kind::One => (writer.state.offset, writer.state.database) = (end, job.selected),
            Kind::Slots => drop(writer.lanes.insert((job.database, job.slot), end)),
            Kind::Bare => {}
        }
    }

    /// Whether a job was done before its connection was lost. Nothing of it is under way any more.
    fn was_applied(&mut self, job: &Job) -> Result<bool, Ending> {
        let Some(writer) = &self.writer else { return Ok(false) };
        let Some(end) = job.end else { return Ok(false) };
        let (copy, key) = (writer.state.copy, self.tags.key(job.slot, &writer.source));
        match self.kind {
            Kind::Bare => Err(opening::behind_proxy()),
            Kind::One => Ok(self.read_state()?.is_some_and(|state| state.offset >= end)),
            Kind::Slots => {
                let mut question = Job::question(job.database, job.slot, &[b"GET", key.as_bytes()]);
                self.ask(std::slice::from_mut(&mut question))?;
                let there = match question.replies.first() {
                    Some(Value::Bulk(text)) => lane_offset(text, copy),
                    _ => None,
                };
                Ok(there.is_some_and(|there| there >= end))
            }
        }
    }

    /// Reads what a source's state is, or whose this target writes.
    ///
    /// # Errors
    /// It is to end.
    pub fn read_state(&mut self) -> Result<Option<State>, Ending> {
        let Some(source) = self.writer.as_ref().map(|writer| writer.source.clone()) else { return Ok(None) };
        self.state_of(&source)
    }

    /// The same of any source.
    ///
    /// # Errors
    /// It is to end.
    pub fn state_of(&mut self, source: &str) -> Result<Option<State>, Ending> {
        match self.value(&state_key(source))? {
            Some(text) => Ok(State::read(&text)),
            None => Ok(None),
        }
    }

    /// What a key of a migration's own holds.
    ///
    /// # Errors
    /// It is to end.
    pub fn value(&mut self, key: &str) -> Result<Option<Vec<u8>>, Ending> {
        let mut job = Job::question(0, key_slot(key.as_bytes()), &[b"GET", key.as_bytes()]);
        self.ask(std::slice::from_mut(&mut job))?;
        Ok(match job.replies.pop() {
            Some(Value::Bulk(text)) => Some(text),
            _ => None,
        })
    }

    /// Reads up to where each slot is applied, in these databases: for whoever goes on.
    ///
    /// # Errors
    /// It is to end.
    pub fn read_lanes(&mut self, databases: &[u32]) -> Result<(), Ending> {
        let Some(writer) = self.writer.as_ref().filter(|_| self.kind == Kind::Slots) else { return Ok(()) };
        let (source, copy) = (writer.source.clone(), writer.state.copy);
        for database in databases {
            let question = |slot: u16| {
                let key = self.tags.key(slot, &source);
                Job::question(*database, slot, &[b"GET", key.as_bytes()])
            };
            let mut jobs: Vec<Job> = (0..=u16::MAX).take(SLOTS).map(question).collect();
            self.ask(&mut jobs)?;
            for job in &jobs {
                if let (Some(Value::Bulk(text)), Some(writer)) = (job.replies.first(), &mut self.writer)
                    && let Some(offset) = lane_offset(text, copy)
                {
                    writer.lanes.insert((*database, job.slot), offset);
                }
            }
        }
        Ok(())
    }

    /// Looks whether the target has what it had answered for.
    ///
    /// # Errors
    /// It has less, or another process writes.
    pub fn check_marks(&mut self) -> Result<(), Ending> {
        if let Some(writer) = &mut self.writer {
            writer.is_confirmed = false;
        }
        self.confirm()?;
        let Some(known) = self.writer.as_ref().map(|writer| writer.lanes.clone()) else { return Ok(()) };
        let databases: BTreeSet<u32> = known.keys().map(|(database, _)| *database).collect();
        self.writer.iter_mut().for_each(|writer| writer.lanes.clear());
        self.read_lanes(&databases.into_iter().collect::<Vec<_>>())?;
        let is_less = |(lane, end): (&(u32, u16), &u64)| {
            self.writer.as_ref().is_some_and(|writer| writer.lanes.get(lane).is_none_or(|there| there < end))
        };
        match known.iter().any(is_less) {
            true => Err(Ending::NeedsCopy("the target has less than it had answered".to_owned())),
            false => Ok(()),
        }
    }

    /// Whether what ends at this offset of the stream was applied to a slot before this run.
    pub fn has(&self, database: u32, slot: u16, end: u64) -> bool {
        self.writer
            .as_ref()
            .and_then(|writer| writer.lanes.get(&(database, slot)))
            .is_some_and(|applied| *applied >= end)
    }

    /// The key and the value that say up to where the stream is applied with a job.
    fn mark(&self, job: &Job) -> Option<(String, String)> {
        let (writer, end) = (self.writer.as_ref()?, job.end?);
        match self.kind {
            Kind::Bare => None,
            Kind::Slots => Some((self.tags.key(job.slot, &writer.source), lane_text(writer.state.copy, end))),
            Kind::One => {
                let state = State { offset: end, database: job.selected, ..writer.state.clone() };
                Some((state_key(&writer.source), state.text()))
            }
        }
    }

    /// Says what does not go on, once, and rests before the next try.
    fn rest(&mut self) -> Result<(), Ending> {
        let paused = pause(PAUSE, &mut *self.look);
        self.fail_if_over()?;
        paused.map_err(|_| Ending::Interrupted)
    }

    fn tell(&mut self, why: String) {
        if self.said.as_ref() != Some(&why) {
            crate::screen::say(&format!("{why}; it is tried again"));
            self.said = Some(why);
        }
    }

    fn is_following(&self) -> bool {
        self.writer.as_ref().is_some_and(|writer| writer.state.stage == Stage::Following)
    }
}

impl Target {
    /// Does a job that may be half done when its connection is lost. False: it has to be begun anew.
    ///
    /// # Errors
    /// It is refused for good, or it is to end.
    pub fn try_once(&mut self, job: Job) -> Result<bool, Ending> {
        let mut jobs = [job];
        loop {
            let turn = self.turn(&mut jobs, &[0])?;
            if turn.again.is_empty() && turn.lost.is_empty() {
                return Ok(true);
            }
            self.rest()?;
            if !turn.lost.is_empty() || jobs[0].count > 1 {
                return Ok(false);
            }
        }
    }
}

impl Target {
    /// Takes away a key of a migration's own.
    ///
    /// # Errors
    /// It is to end.
    pub fn remove(&mut self, key: &str) -> Result<(), Ending> {
        let mut job = Job::new(0, key_slot(key.as_bytes()));
        job.push(&[b"DEL", key.as_bytes()]);
        self.ask(std::slice::from_mut(&mut job))
    }
}
