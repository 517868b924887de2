//! All of an import: what it begins with, its sources' parts side by side, how far they are, and the end.
//!
//! Thread rule: the thread of the program, with connections of its own beside those of each source's thread.

mod asking;
mod beside;
mod cut_over;
mod holding;

pub use asking::ask_to_cut_over;

use crate::copying::Own;
use crate::ending::{Ending, Orders, pause, stopped};
use crate::following::{Task, run as follow};
use crate::limits::{LONG_PAUSE, PAUSE};
use crate::options::Options;
use crate::place::{Entry, Place};
use crate::screen::{Gauge, say, show};
use crate::target::bookmark::{ASKED, CUT_OVER, Stage, State, Tags};
use crate::target::{Kind, Slots, Target, is_anothers};
use crate::words::know_commands;
use beside::{Beside, are_parts, find_sources, stream_names};
use log::ReplicationId;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use sys::Prng;

/// How often it is shown how far it is.
const SHOWN_EVERY: Duration = Duration::from_secs(1);
/// How often it is looked whether the end is asked for.
const ASKED_EVERY: Duration = Duration::from_millis(500);
/// Seconds that the target may be behind when the end begins: so long, or a little longer, writers wait for what is missing.
const NEARLY_SECONDS: u64 = 1;

/// Imports.
///
/// # Errors
/// Why it ended before its end.
pub fn run(options: &Options) -> Result<(), String> {
    know_commands();
    let mut orders = Orders::default();
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, orders.interrupted.clone())
            .map_err(|error| format!("signals cannot be waited for: {error}"))?;
    }
    let tags = Arc::new(Tags::find());
    let owner = Prng::from_entropy().next_u64();
    let mut is_again = false;
    let (mut seen, mut said) = (Seen::default(), String::new());
    loop {
        match attempt(options, &orders, &tags, (owner, is_again), &mut seen) {
            Ok(()) => return Ok(()),
            Err(Ending::Interrupted) => {
                return Err("it was ended before it began".to_owned());
            }
            Err(Ending::NeedsCopy(why)) => say(&format!("{why}: everything is copied anew")),
            Err(Ending::Later(why)) if is_again => {
                if said != why {
                    say(&format!("{why}; the new copy is tried again"));
                }
                said = why;
            }
            Err(Ending::Stopped(why) | Ending::Later(why)) => return Err(why),
        }
        orders = orders.anew();
        is_again = true;
        // An operator may end it meanwhile, which the next attempt finds.
        let _ = pause(LONG_PAUSE, &mut || orders.look());
    }
}

/// Nodes of both sides that were seen so far: what was named may be gone when a new copy begins.
#[derive(Default)]
struct Seen {
    from: Vec<Place>,
    to: Vec<Place>,
}

/// Opens what is at a place; where that is not reached, what was seen of the same cluster. Gives where it was.
fn open_any<T>(
    place: &Place,
    seen: &[Place],
    mut open: impl FnMut(&Place) -> Result<T, Ending>,
) -> Result<(Place, T), Ending> {
    let named = open(place);
    if let Err(Ending::Later(_)) = named {
        for other in seen.iter().filter(|other| *other != place) {
            if let Ok(opened) = open(other) {
                return Ok((other.clone(), opened));
            }
        }
    }
    named.map(|opened| (place.clone(), opened))
}

/// A source's part.
struct Part {
    name: String,
    beside: Beside,
    gauge: Arc<Gauge>,
    thread: Option<JoinHandle<Result<(), Ending>>>,
}

/// All that runs.
struct Course<'c> {
    options: &'c Options,
    orders: Orders,
    target: Target,
    parts: Vec<Part>,
    /// All nodes of the source's cluster that were seen.
    peers: Arc<Mutex<Vec<Place>>>,
    is_alone: bool,
    owner: u64,
    began: Instant,
    /// Whether the end was asked for.
    is_asked: bool,
    /// How long nothing may go on while the end is made.
    silence_max: Option<Duration>,
}

impl Drop for Course<'_> {
    fn drop(&mut self) {
        self.orders.gives_up.store(true, Ordering::Relaxed);
        self.parts.iter_mut().filter_map(|part| part.thread.take()).for_each(|thread| drop(thread.join()));
    }
}

fn attempt(
    options: &Options,
    orders: &Orders,
    tags: &Arc<Tags>,
    (owner, is_again): (u64, bool),
    seen: &mut Seen,
) -> Result<(), Ending> {
    let ((from, from_entry), (to, to_entry)) = (&options.from, &options.to);
    let find = |place: &Place| find_sources(place, from_entry, orders);
    let (_, (sources, peers)) = open_any(from, &seen.from, find)?;
    seen.from.clone_from(&peers);
    let open = |place: &Place| Target::open(place, to_entry, orders, tags);
    let (to, mut target) = open_any(to, &seen.to, open)?;
    seen.to = target.places();
    let peers = Arc::new(Mutex::new(peers));
    target.warn_of_eviction()?;
    let (states, is_alone) = beginnings(&mut target, &sources, (options, orders), (owner, is_again))?;
    target.write_for_nobody();
    // What another was asked for before does not count.
    target.remove(CUT_OVER)?;
    if target.kind == Kind::Bare {
        say(
            "the target is a proxy: where a connection to it is lost everything is copied anew, and so does the next run",
        );
    }
    let is_only = sources.len() == 1;
    let mut course = Course {
        options,
        orders: orders.clone(),
        target,
        parts: Vec::new(),
        peers: peers.clone(),
        is_alone,
        owner,
        began: Instant::now(),
        is_asked: false,
        silence_max: None,
    };
    for ((place, own), state) in sources.into_iter().zip(states) {
        let gauge = Arc::new(Gauge::default());
        let at = Arc::new(Mutex::new(place.clone()));
        let name = name_of(&own);
        let task = Task {
            name: name.clone(),
            source: place.clone(),
            at: at.clone(),
            source_entry: from_entry.clone(),
            peers: peers.clone(),
            own: own.clone(),
            target: to.clone(),
            target_entry: to_entry.clone(),
            kind: course.target.kind,
            state,
            is_only,
            orders: orders.clone(),
            gauge: gauge.clone(),
            tags: tags.clone(),
        };
        let begun = thread::Builder::new().name("source".to_owned()).spawn(move || follow(task));
        let thread = begun.map_err(|error| Ending::Stopped(format!("no thread can be begun: {error}")))?;
        let beside = Beside::new(at, place, from_entry.clone(), own);
        course.parts.push(Part { name, beside, gauge, thread: Some(thread) });
    }
    course.run((&to, to_entry), tags)
}

/// A source, as keys of the target name it.
fn name_of(own: &Own) -> String {
    own.0.as_ref().and_then(|ranges| ranges.first()).map_or(0, |(first, _)| *first).to_string()
}

/// What each source's part begins with, and whether the target has nothing but what comes from here. It is this process' from then on.
fn beginnings(
    target: &mut Target,
    sources: &[(Place, Own)],
    (options, orders): (&Options, &Orders),
    (owner, is_again): (u64, bool),
) -> Result<(Vec<State>, bool), Ending> {
    let mut found = Vec::new();
    for (_, own) in sources {
        found.push(target.state_of(&name_of(own))?);
    }
    if is_again && found.iter().flatten().any(|state| state.owner != owner) {
        return is_anothers();
    }
    if !is_again && !options.anew {
        check_source(sources, &found, |place| stream_names(place, &options.from.1, orders))?;
    }
    if !is_again && !options.anew && is_followed(sources, &found) {
        let states = take_over(target, sources, found.into_iter().flatten(), owner)?;
        let is_alone = states.iter().all(|state| state.is_alone);
        say("the target has an import of this source that is followed: it goes on from there");
        return Ok((states, is_alone));
    }
    let has_begun = found.iter().any(Option::is_some);
    if !has_begun {
        // What nobody is there to hear is no key of the target's.
        target.remove(CUT_OVER)?;
    }
    let was_alone = has_begun && found.iter().flatten().all(|state| state.is_alone);
    let is_alone = match () {
        () if was_alone => true,
        () if is_again && has_begun => {
            return stopped(
                "everything has to be copied anew, into a target that had keys of its own: what the source has deleted since would stay there. \
                 The same command does it all the same",
            );
        }
        () if !has_begun && target.is_empty()? => true,
        () if options.into_nonempty => false,
        () => return stopped("the target has keys: empty it, or say --into-nonempty"),
    };
    let copy = Prng::from_entropy().next_u64();
    let state = |source| new_copy(source, (owner, copy), is_alone);
    let states: Vec<(String, State)> =
        sources.iter().map(|source| (name_of(&source.1), state(source))).collect();
    for ((name, state), found) in states.iter().zip(&found) {
        let before = found.as_ref().map(|found| (found.owner, found.copy));
        target.claim(name, state.clone(), &mut |now| {
            let now = now.map(|now| (now.owner, now.copy));
            match now == before || now == Some((owner, copy)) {
                true => Ok(Some(state.clone())),
                false => is_anothers(),
            }
        })?;
    }
    if was_alone {
        say("what an earlier copy has left in the target is removed");
        target.clear(&states)?;
    }
    Ok((states.into_iter().map(|(_, state)| state).collect(), is_alone))
}

/// The state of a source of which nothing is copied yet.
fn new_copy((place, own): &(Place, Own), (owner, copy): (u64, u64), is_alone: bool) -> State {
    State {
        stage: Stage::Copying,
        owner,
        copy,
        id: ReplicationId::NONE,
        offset: 0,
        database: 0,
        is_alone,
        slots: own.text(),
        runs: BTreeSet::new(),
        source: place.to_string(),
    }
}

/// Whether the target has one import of these sources, which can be gone on from.
fn is_followed(sources: &[(Place, Own)], found: &[Option<State>]) -> bool {
    sources.iter().zip(found).all(|((_, own), state)| {
        state.as_ref().is_some_and(|state| {
            state.stage == Stage::Following
                && state.slots == own.text()
                && found.iter().flatten().all(|other| other.copy == state.copy)
        })
    })
}

/// Fails where what the target has is from elsewhere: at another place, and of another stream. One of a cluster's nodes that is known is enough.
fn check_source(
    sources: &[(Place, Own)],
    found: &[Option<State>],
    names: impl Fn(&Place) -> Vec<ReplicationId>,
) -> Result<(), Ending> {
    let known: Vec<(&Place, &State)> =
        sources.iter().zip(found).filter_map(|((place, _), state)| Some((place, state.as_ref()?))).collect();
    let is_its = |(place, state): &(&Place, &State)| {
        state.source.is_empty() || state.source == place.to_string() || names(place).contains(&state.id)
    };
    match known.first() {
        Some((place, state)) if !known.iter().any(is_its) => stopped(format!(
            "the target has an import from {}, and {place} is another source: --anew begins a new copy from here, in place of what came from there",
            state.source
        )),
        _ => Ok(()),
    }
}

/// Goes on with what is followed, by this process: as it is when nobody else writes any more.
fn take_over(
    target: &mut Target,
    sources: &[(Place, Own)],
    found: impl Iterator<Item = State>,
    owner: u64,
) -> Result<Vec<State>, Ending> {
    let mut states = Vec::new();
    for ((place, own), state) in sources.iter().zip(found) {
        let copy = state.copy;
        let of_this = |state: State| State { owner, source: place.to_string(), ..state };
        let claimed = target.claim(&name_of(own), of_this(state), &mut |now| match now {
            Some(now) if now.copy == copy && now.stage == Stage::Following => Ok(Some(of_this(now))),
            _ => stopped("the import into this target has ended, or has begun anew, meanwhile"),
        })?;
        states.push(claimed);
    }
    Ok(states)
}

/// What is done to a slot that is elsewhere is not seen, and that it has left a master looks like DEL.
fn slots_have_moved<T>() -> Result<T, Ending> {
    stopped(
        "slots of the source move, or have moved, to another master: run it again when its slots stay where they are",
    )
}

impl Course<'_> {
    /// Watches until the end, and has nobody believe that a request for it is heard where there is none.
    fn run(&mut self, (to, to_entry): (&Place, &Entry), tags: &Arc<Tags>) -> Result<(), Ending> {
        let ended = self.watch();
        if ended.is_err() && self.is_asked {
            asking::forget(to, to_entry, tags, self.owner);
        }
        match ended {
            Err(Ending::Interrupted) => stopped(self.interrupted()),
            ended => ended,
        }
    }

    fn watch(&mut self) -> Result<(), Ending> {
        let ended = self.watch_until();
        if self.is_asked && matches!(ended, Err(Ending::NeedsCopy(_))) {
            say(
                "the cut-over that was asked for is not made: ask for it again when the new copy is followed",
            );
        }
        ended
    }

    fn watch_until(&mut self) -> Result<(), Ending> {
        let (mut shown, mut asked) = (None::<Instant>, Instant::now());
        loop {
            self.check_parts()?;
            if shown.is_none_or(|shown| shown.elapsed() >= SHOWN_EVERY) {
                shown = Some(Instant::now());
                self.look_at_sources();
                self.look_at_slots()?;
                show(&self.line());
            }
            // Somebody else may ask, too.
            if asked.elapsed() >= ASKED_EVERY {
                asked = Instant::now();
                self.fail_if_anothers()?;
                self.look_whether_asked()?;
            }
            if (self.is_asked || self.options.until_caught_up) && self.is_nearly_there() {
                return self.cut_over();
            }
            let orders = self.orders.clone();
            pause(PAUSE, &mut || orders.look()).map_err(|_| Ending::Interrupted)?;
        }
    }

    /// Looks whether the end is asked for; who asks is told that it is heard.
    fn look_whether_asked(&mut self) -> Result<(), Ending> {
        if self.target.value(CUT_OVER)?.is_some_and(|value| value == ASKED) {
            self.is_asked = true;
            asking::take(&mut self.target)?;
            say("the cut-over is asked for");
        }
        Ok(())
    }

    /// A part to which nothing comes does not find out that another process has taken over.
    fn fail_if_anothers(&mut self) -> Result<(), Ending> {
        for part in &self.parts {
            match self.target.state_of(&part.name)? {
                Some(state) if state.owner != self.owner => return is_anothers(),
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether all parts go on.
    fn check_parts(&mut self) -> Result<(), Ending> {
        let ended =
            self.parts.iter_mut().find(|part| part.thread.as_ref().is_some_and(JoinHandle::is_finished));
        let Some(thread) = ended.and_then(|part| part.thread.take()) else { return Ok(()) };
        self.orders.gives_up.store(true, Ordering::Relaxed);
        match thread.join() {
            Ok(Ok(())) => stopped("a source's part has ended before its time"),
            Ok(Err(ending)) => Err(ending),
            Err(_) => stopped("a source's part has failed"),
        }
    }

    /// What an operator who ends it is told.
    fn interrupted(&self) -> &'static str {
        match () {
            () if self.orders.ends.load(Ordering::Relaxed) => {
                "it was ended in the cut-over; the next run begins a new copy"
            }
            () if !self.is_following() => {
                "it was ended before the copy was whole; the next run begins a new copy"
            }
            () if self.target.kind == Kind::Bare => {
                "it was ended before the cut-over; through a proxy the next run begins a new copy"
            }
            () => "it was ended before the cut-over; the same command goes on from there",
        }
    }

    fn look_at_sources(&mut self) {
        for part in &mut self.parts {
            part.beside.note_offset(&self.orders);
        }
    }

    /// Looks whether the slots of a source cluster are its masters' still, as the first of them says that is reached.
    fn look_at_slots(&mut self) -> Result<(), Ending> {
        if self.parts.iter().any(|part| part.beside.own.0.is_none()) {
            return Ok(());
        }
        let orders = self.orders.clone();
        let said = self.parts.iter_mut().find_map(|part| part.beside.slots(&orders).ok());
        let Some((slots, nodes)) = said else { return Ok(()) };
        // Replicas come and go.
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        for node in nodes {
            if !peers.contains(&node) {
                peers.push(node);
            }
        }
        drop(peers);
        match self.has_moved(&slots) {
            Some(true) => slots_have_moved(),
            Some(false) | None => Ok(()),
        }
    }

    /// Whether any slot is another's now; None: it is not known of all.
    fn has_moved(&self, slots: &Slots) -> Option<bool> {
        let parts: Vec<&Own> = self.parts.iter().map(|part| &part.beside.own).collect();
        are_parts(slots, &parts).map(|is_as_it_was| !is_as_it_was)
    }

    fn is_following(&self) -> bool {
        self.parts.iter().all(|part| part.gauge.is_following.load(Ordering::Relaxed))
    }

    fn is_nearly_there(&self) -> bool {
        self.is_following()
            && self.parts.iter().all(|part| {
                part.beside
                    .lag(part.gauge.applied.load(Ordering::Relaxed))
                    .is_some_and(|(_, seconds)| seconds <= NEARLY_SECONDS)
            })
    }

    /// How far it is.
    fn line(&self) -> String {
        let sum = |of: fn(&Gauge) -> u64| self.parts.iter().map(|part| of(&part.gauge)).sum::<u64>();
        let keys = sum(|gauge| gauge.keys.load(Ordering::Relaxed));
        let bytes = sum(|gauge| gauge.copied_bytes.load(Ordering::Relaxed));
        let requests = sum(|gauge| gauge.requests.load(Ordering::Relaxed));
        let following = self.parts.iter().filter(|part| part.gauge.is_following.load(Ordering::Relaxed));
        let lags: Vec<(u64, u64)> = following
            .filter_map(|part| part.beside.lag(part.gauge.applied.load(Ordering::Relaxed)))
            .collect();
        let lag = lags.iter().fold((0, 0), |(bytes, seconds), lag| (bytes + lag.0, seconds.max(lag.1)));
        let lag = match lags.len() == self.parts.len() {
            true => format!("{} bytes and {} s behind", lag.0, lag.1),
            false if self.is_following() => "the source does not answer how far it is".to_owned(),
            false => "the copy goes on".to_owned(),
        };
        let seconds = self.began.elapsed().as_secs();
        format!(
            "{seconds} s: {keys} keys copied ({bytes} bytes), {requests} requests of the stream applied, {lag}"
        )
    }
}
