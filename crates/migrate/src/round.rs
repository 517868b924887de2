//! What has come of a stream, as jobs for the target: one for a server, one for each slot of a cluster that something is written to.
//!
//! Invariants:
//! 1. Within a lane everything is in the order of the stream.
//! 2. A round ends between two units of the stream. In a server a unit is done as a whole.

use crate::copying::{Own, check_name, everywhere};
use crate::ending::{Ending, stopped};
use crate::held::hold;
use crate::limits::{ROUND_BYTES_MAX, ROUND_REQUESTS_MAX};
use crate::target::bookmark::{CUT_OVER, state_key};
use crate::target::{Job, Kind, Target};
use crate::words::{Act, act, split};
use replication::link::{Role, Unit, UnitKind, UnitRequest, Words};
use std::collections::{BTreeSet, HashMap};
use wire::{Request, key_slot};

/// What a round has to know of the migration.
pub struct Way {
    /// The source, as keys name it.
    pub source: String,
    /// Its slots.
    pub own: Own,
    /// Whether it is the only one, and the target has nothing else: it may be emptied.
    pub is_alone: bool,
    /// Whether slots may have been written to by a run before this one.
    pub goes_on: bool,
}

/// Jobs that gather.
pub struct Round<'t> {
    pub target: &'t mut Target,
    way: Way,
    jobs: Vec<Job>,
    lanes: HashMap<(u32, u16), usize>,
    /// The database that is selected within a server's job.
    inside: u32,
    /// Databases whose slots' marks were read.
    read: BTreeSet<u32>,
    requests: usize,
    bytes: usize,
    words: Words,
    /// Requests applied, of all rounds.
    pub applied: u64,
    /// Those that do more than take keys away, of all rounds and this one.
    pub changes: u64,
}

impl<'t> Round<'t> {
    pub fn new(target: &'t mut Target, way: Way) -> Round<'t> {
        Round {
            target,
            way,
            jobs: Vec::new(),
            lanes: HashMap::new(),
            inside: 0,
            read: BTreeSet::new(),
            requests: 0,
            bytes: 0,
            words: Words::default(),
            applied: 0,
            changes: 0,
        }
    }

    /// Whether it is time to have it done.
    pub fn is_full(&self) -> bool {
        self.requests >= ROUND_REQUESTS_MAX || self.bytes >= ROUND_BYTES_MAX
    }

    /// Adds a unit of the stream.
    ///
    /// # Errors
    /// The target cannot do it.
    pub fn add(&mut self, unit: &Unit<'_>) -> Result<(), Ending> {
        let is_whole = unit.kind() == UnitKind::Transaction;
        let mut words = std::mem::take(&mut self.words);
        let mut walk = unit.walk(&mut words);
        while let Some(group) = walk.next_group() {
            for request in group.requests().filter(|request| request.role == Role::Command) {
                self.take(&request, (unit, is_whole))?;
            }
        }
        self.words = words;
        if let (Kind::One, Some(job)) = (self.target.kind, self.jobs.first_mut()) {
            (job.end, job.selected) = (Some(unit.end().offset), unit.end().database);
        }
        Ok(())
    }

    /// Has all of it done.
    ///
    /// # Errors
    /// The target refuses something, or it is not known what it has.
    pub fn carry_out(&mut self) -> Result<(), Ending> {
        self.select_inside(0);
        let mut jobs = std::mem::take(&mut self.jobs);
        self.lanes.clear();
        self.target.apply(&mut jobs)?;
        self.applied += std::mem::take(&mut self.requests) as u64;
        self.bytes = 0;
        Ok(())
    }

    fn take(&mut self, one: &UnitRequest<'_>, (unit, is_whole): (&Unit<'_>, bool)) -> Result<(), Ending> {
        let act = act(&one.request);
        if let Act::Everywhere(words) = &act {
            if !is_whole {
                self.carry_out()?;
            }
            everywhere(self.target, &words.iter().map(Vec::as_slice).collect::<Vec<_>>())?;
            return if is_whole { Ok(()) } else { self.keep_place(unit) };
        }
        if act == Act::Nothing {
            return Ok(());
        }
        let is = |name: &[u8]| one.request.get(0).is_some_and(|own| own.eq_ignore_ascii_case(name));
        if ![&b"del"[..], b"unlink", b"hdel"].into_iter().any(is) {
            self.changes += 1;
        }
        self.ensure_database(one.database)?;
        if act == Act::Whole {
            // MOVE, and COPY to another database.
            (1..one.request.len().min(3)).try_for_each(|at| check_name(one.request.arg(at)))?;
        }
        if let Act::Keys(positions) = &act {
            positions.iter().try_for_each(|at| check_name(one.request.arg(*at)))?;
            positions.iter().try_for_each(|at| self.way.own.check(key_slot(one.request.arg(*at))))?;
        } else if self.way.own.0.is_some() {
            return self.refuse(one, "it is not known which of the source's slots it is about");
        }
        match self.target.kind {
            Kind::One => self.take_for_server(one, &act, unit),
            Kind::Slots | Kind::Bare => self.take_for_slots(one, &act),
        }
    }

    /// Keeps that all is done up to the end of a unit. Functions that were deleted later may stand in each other's way if all of it is done again.
    fn keep_place(&mut self, unit: &Unit<'_>) -> Result<(), Ending> {
        let end = unit.end();
        self.target.write_state(|state| (state.offset, state.database) = (end.offset, end.database))
    }

    fn take_for_server(&mut self, one: &UnitRequest<'_>, act: &Act, unit: &Unit<'_>) -> Result<(), Ending> {
        if *act == Act::Empties && !self.way.is_alone {
            return self.refuse(one, "it would take away what the target had before");
        }
        if matches!(act, Act::Swaps(_)) && !self.way.is_alone {
            return self.refuse(
                one,
                "the databases that it exchanges hold what the target had before, or what comes from others",
            );
        }
        if self.jobs.is_empty() {
            self.jobs.push(Job { end: Some(unit.end().offset), ..Job::new(0, 0) });
        }
        self.select_inside(one.database);
        self.push(0, one);
        if let Act::Swaps(databases) = act {
            databases.iter().try_for_each(|database| self.ensure_database(*database))?;
            if databases.contains(&0) {
                // What is of the migration's own has gone along.
                for database in databases {
                    self.select_inside(*database);
                    let key = state_key(&self.way.source);
                    self.jobs[0].push(&[b"DEL", key.as_bytes(), CUT_OVER.as_bytes()]);
                }
            }
        }
        Ok(())
    }

    fn take_for_slots(&mut self, one: &UnitRequest<'_>, act: &Act) -> Result<(), Ending> {
        let Act::Keys(positions) = act else {
            return self.refuse(one, "it is not about keys of one slot");
        };
        let slot = key_slot(one.request.arg(positions[0]));
        if positions.iter().all(|at| key_slot(one.request.arg(*at)) == slot) {
            if let Some(lane) = self.lane(one, slot) {
                self.push(lane, one);
            }
            return Ok(());
        }
        let Some(parts) = split(&one.request) else {
            return self.refuse(one, "its keys are of several slots");
        };
        for (slot, words) in parts {
            if let Some(lane) = self.lane(one, slot) {
                self.jobs[lane].push(&words.iter().map(Vec::as_slice).collect::<Vec<_>>());
                self.requests += 1;
                self.bytes += one.bytes.len();
            }
        }
        Ok(())
    }

    /// The job of a slot, which ends with this request; None: it has it already.
    fn lane(&mut self, one: &UnitRequest<'_>, slot: u16) -> Option<usize> {
        if self.target.has(one.database, slot, one.end) {
            return None;
        }
        let jobs = &mut self.jobs;
        let lane = *self.lanes.entry((one.database, slot)).or_insert_with(|| {
            jobs.push(Job::new(one.database, slot));
            jobs.len() - 1
        });
        jobs[lane].end = Some(one.end);
        Some(lane)
    }

    fn push(&mut self, lane: usize, one: &UnitRequest<'_>) {
        self.requests += 1;
        self.bytes += one.bytes.len();
        let job = &mut self.jobs[lane];
        match said(&one.request) {
            Some(words) => job.push(&words.iter().map(Vec::as_slice).collect::<Vec<_>>()),
            None => job.push_bytes(one.bytes),
        }
    }

    /// Has what follows in a server's job be of a database.
    fn select_inside(&mut self, database: u32) {
        if let (Kind::One, Some(job)) = (self.target.kind, self.jobs.first_mut())
            && self.inside != database
        {
            job.push(&[b"SELECT", database.to_string().as_bytes()]);
            self.inside = database;
        }
    }

    fn ensure_database(&mut self, database: u32) -> Result<(), Ending> {
        self.target.ensure_database(database)?;
        if self.way.goes_on && self.read.insert(database) {
            self.target.read_lanes(&[database])?;
        }
        Ok(())
    }

    fn refuse(&self, one: &UnitRequest<'_>, why: &str) -> Result<(), Ending> {
        let shown = |at: usize| one.request.get(at).map(crate::connection::shown).unwrap_or_default();
        let name = format!("{} {}", shown(0), shown(1));
        let name = name.trim_end();
        stopped(format!(
            "the source has done {name} (offset {}), and that cannot be done at this target: {why}; nothing behind it is applied",
            one.end
        ))
    }
}

/// A request as the target is to be told it, where that is not as it came.
fn said(request: &Request<'_>) -> Option<Vec<Vec<u8>>> {
    let held = hold(request);
    let is_asking = request.get(0).is_some_and(|name| name.eq_ignore_ascii_case(b"restore-asking"));
    if !is_asking {
        return held;
    }
    let mut words = held.unwrap_or_else(|| request.iter().map(<[u8]>::to_vec).collect());
    words[0] = b"RESTORE".to_vec();
    Some(words)
}
