//! One source's part: its copy, if there is to be one, and its stream, until all is done.
//!
//! Thread rule: a thread for each source, which has connections of its own to the target.

use crate::connection::Connection;
use crate::copying::{Own, copy};
use crate::ending::{Ending, Orders, pause, stopped};
use crate::limits::LONG_PAUSE;
use crate::place::{Entry, Place};
use crate::round::{Round, Way};
use crate::screen::{Gauge, say};
use crate::source::{Agreed, Source, Unlinked, sentence};
use crate::target::bookmark::{Stage, State, Tags};
use crate::target::{Kind, Slots, Target};
use replication::link::limits::UNIT_BYTES_MAX_DEFAULT;
use replication::link::{Ask, MasterStream, UnitKind};
use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often a cluster's state is written while its slots say more.
const STATE_WRITTEN_EVERY: Duration = Duration::from_secs(1);

/// What one source is about.
pub struct Task {
    /// As keys name it.
    pub name: String,
    /// Where it is.
    pub source: Place,
    /// The same, for others: it may be another node meanwhile.
    pub at: Arc<Mutex<Place>>,
    /// How to get in there.
    pub source_entry: Entry,
    /// Nodes of its cluster, masters and replicas, that were seen so far.
    pub peers: Arc<Mutex<Vec<Place>>>,
    /// Its slots.
    pub own: Own,
    /// Where its data go.
    pub target: Place,
    /// How to get in there.
    pub target_entry: Entry,
    /// What it was found to be.
    pub kind: Kind,
    /// What it begins with: a copy, or the rest of a stream.
    pub state: State,
    /// Whether it is the only source.
    pub is_only: bool,
    pub orders: Orders,
    pub gauge: Arc<Gauge>,
    pub tags: Arc<Tags>,
}

/// Does it, until it is told that all is done.
///
/// # Errors
/// Why it ended before.
pub fn run(mut task: Task) -> Result<(), Ending> {
    let mut target = Target::open(&task.target, &task.target_entry, &task.orders, &task.tags)?;
    if target.kind != task.kind {
        return Err(Ending::NeedsCopy("the target is another kind of server than it was".to_owned()));
    }
    target.write_for(&task.name, task.state.clone());
    // It was claimed, and may have come further until then.
    task.state = target.adopt()?;
    let goes_on = task.state.stage == Stage::Following;
    // What the run before had sent last it may not have heard of.
    task.gauge.has_unheard.store(goes_on, Ordering::Relaxed);
    let ask = match goes_on {
        true => Ask::Rest { id: task.state.id, offset: task.state.offset },
        false => Ask::Full,
    };
    let (source, agreed) = link(&mut task, ask)?;
    let source = Rc::new(RefCell::new(source));
    target.set_look(looking(&source, &task.orders));
    match agreed {
        Agreed::Rest(id) => task.state.id = id,
        Agreed::Copy(..) if goes_on => return Err(no_rest(&task)),
        Agreed::Copy(id, offset) => {
            // By which another run knows what is copied, though it asks for it elsewhere.
            let place = task.source.to_string();
            target.write_state(|state| (state.id, state.source) = (id, place))?;
            task.state.database = copy(&source, &task.orders, &mut target, (&task.own, &task.gauge))?;
            (task.state.id, task.state.offset) = (id, offset);
        }
    }
    let stage = stage_of(target.kind);
    let State { id, offset, database, .. } = task.state;
    target.write_state(|state| {
        (state.stage, state.id, state.offset, state.database) = (stage, id, offset, database);
    })?;
    task.gauge.applied.store(offset, Ordering::Relaxed);
    source.borrow_mut().applied = Some(offset);
    task.gauge.is_following.store(true, Ordering::Relaxed);
    follow(&mut task, &source, &mut target, goes_on)
}

/// What stands there while a stream is followed: of what is behind a proxy it is not known what of it was done when this process is gone.
fn stage_of(kind: Kind) -> Stage {
    if kind == Kind::Bare { Stage::Spoilt } else { Stage::Following }
}

fn no_rest(task: &Task) -> Ending {
    Ending::NeedsCopy(format!(
        "the source {} does not have its stream any more from offset {} on",
        task.source, task.state.offset
    ))
}

/// While the target is waited for the source hears that somebody is there.
fn looking(source: &Rc<RefCell<Source>>, orders: &Orders) -> Box<dyn FnMut() -> io::Result<()>> {
    let (source, orders) = (source.clone(), orders.clone());
    Box::new(move || {
        if let Ok(mut source) = source.try_borrow_mut() {
            // If it is lost it is found out where it is read.
            let _ = source.report();
        }
        orders.look()
    })
}

/// Follows the stream; a source that is lost is looked for again.
fn follow(
    task: &mut Task,
    source: &Rc<RefCell<Source>>,
    target: &mut Target,
    goes_on: bool,
) -> Result<(), Ending> {
    let way = Way {
        source: task.name.clone(),
        own: task.own.clone(),
        is_alone: task.is_only && task.state.is_alone,
        goes_on,
    };
    let mut round = Round::new(target, way);
    loop {
        let ended = follow_link(task, source, &mut round);
        let Err(error) = ended else { return Ok(()) };
        let error = match error {
            Lost::Ending(ending) => return Err(ending),
            Lost::Source(error) => error,
        };
        task.orders.fail_if_over()?;
        say(&format!("{}; it is looked for again", sentence(&task.source, &error)));
        let (id, offset) = (task.state.id, task.state.offset);
        let (again, agreed) = link(task, Ask::Rest { id, offset })?;
        match agreed {
            Agreed::Copy(..) => return Err(no_rest(task)),
            Agreed::Rest(id) => task.state.id = id,
        }
        say(&format!("the source {} goes on from offset {offset}", task.source));
        *source.borrow_mut() = again;
        let (id, source) = (task.state.id, task.source.to_string());
        round.target.write_state(|state| (state.id, state.source) = (id, source))?;
    }
}

/// Why a stream is followed no further.
enum Lost {
    Source(io::Error),
    Ending(Ending),
}

impl From<Ending> for Lost {
    fn from(ending: Ending) -> Lost {
        Lost::Ending(ending)
    }
}

fn follow_link(task: &mut Task, source: &RefCell<Source>, round: &mut Round<'_>) -> Result<(), Lost> {
    let place = replication::link::Place { offset: task.state.offset, database: task.state.database };
    let mut stream = MasterStream::new(place, UNIT_BYTES_MAX_DEFAULT);
    let mut written = Instant::now();
    loop {
        {
            let mut source = source.borrow_mut();
            let received = source.wait().map_err(Lost::Source)?;
            stream.feed(received);
            let count = received.len();
            source.use_up(count);
        }
        loop {
            let unit = stream.next_unit().map_err(|ending| Ending::Stopped(ending.to_string()))?;
            let is_over = unit.is_none();
            let mut asked = None;
            if let Some(unit) = unit {
                match unit.kind() {
                    UnitKind::GetAck => asked = unit.acknowledged(),
                    UnitKind::Command | UnitKind::Transaction => round.add(&unit)?,
                    UnitKind::Blank | UnitKind::Select | UnitKind::Ping => {}
                }
            }
            if is_over || asked.is_some() || round.is_full() {
                round.carry_out()?;
                note(task, source, &stream, round);
                if let Some(offset) = asked {
                    source.borrow_mut().acknowledge(offset).map_err(Lost::Source)?;
                }
            }
            if is_over {
                break;
            }
        }
        if task.orders.ends.load(Ordering::Relaxed) && !task.gauge.is_ending.load(Ordering::Relaxed) {
            round.target.look_around()?;
            round.target.check_marks()?;
            round.target.write_state(|state| state.stage = Stage::Spoilt)?;
            task.gauge.is_ending.store(true, Ordering::Relaxed);
        }
        let is_over = task.orders.finishes.load(Ordering::Relaxed);
        if round.target.kind == Kind::Slots && (is_over || written.elapsed() > STATE_WRITTEN_EVERY) {
            let State { offset, database, .. } = task.state;
            round.target.write_state(|state| (state.offset, state.database) = (offset, database))?;
            written = Instant::now();
        }
        if is_over {
            round.target.check_marks()?;
            return Ok(());
        }
    }
}

/// All that has come whole is applied.
fn note(task: &mut Task, source: &RefCell<Source>, stream: &MasterStream, round: &Round<'_>) {
    let place = stream.place();
    (task.state.offset, task.state.database) = (place.offset, place.database);
    source.borrow_mut().applied = Some(place.offset);
    task.gauge.requests.store(round.applied, Ordering::Relaxed);
    task.gauge.changes.store(round.changes, Ordering::Relaxed);
    if round.target.has_unheard {
        task.gauge.has_unheard.store(true, Ordering::Relaxed);
    }
    // Who sees that it is applied sees the others, too.
    task.gauge.applied.store(place.offset, Ordering::Release);
}

/// Reaches the source, however long that takes. Where it is a node of a cluster, whoever has its slots now.
fn link(task: &mut Task, ask: Ask) -> Result<(Source, Agreed), Ending> {
    let mut said = String::new();
    loop {
        task.orders.fail_if_over()?;
        match Source::open(&task.source, &task.source_entry, ask, &task.orders) {
            Ok(linked) => return Ok(linked),
            Err(Unlinked::Refused(why)) => return stopped(why),
            Err(Unlinked::Later(why)) => {
                if said != why {
                    say(&format!("{why}; it is tried again"));
                    said = why;
                }
            }
        }
        let orders = task.orders.clone();
        pause(LONG_PAUSE, &mut || orders.look()).map_err(|_| Ending::Interrupted)?;
        if let Some(ranges) = &task.own.0
            && let Some(place) = successor(task, ranges)
        {
            say(&format!("the source's slots {} are at {place} now", task.own.text()));
            *task.at.lock().unwrap_or_else(PoisonError::into_inner) = place.clone();
            task.source = place;
        }
    }
}

/// Who has all slots of a source that is lost, if another does: its stream has the former one's name, too, up to where it took its place.
fn successor(task: &Task, ranges: &[(u16, u16)]) -> Option<Place> {
    let mut orders = || task.orders.look();
    let peers = task.peers.lock().unwrap_or_else(PoisonError::into_inner).clone();
    peers.iter().filter(|seed| **seed != task.source).find_map(|seed| {
        let mut connection = Connection::open(seed, &task.source_entry, &mut orders).ok()?;
        let reply = connection.ask_line("CLUSTER SLOTS", &mut orders).ok()?;
        let mut slots = Slots::of_one(seed.clone());
        slots.take(&reply, seed).ok()?;
        let owner = slots.owner(ranges.first()?.0)?;
        let place = slots.places.get(owner)?.clone();
        let has_all =
            ranges.iter().all(|(first, last)| (*first..=*last).all(|slot| slots.owner(slot) == Some(owner)));
        (has_all && place != task.source).then_some(place)
    })
}
