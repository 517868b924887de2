//! The end: writers are held, the rest comes, times to live are put right, values are compared, and what was kept in the target goes.
//!
//! Invariants:
//! 1. It counts only if nothing came of the streams from when the first time was put right until the end: that is not held back any more, and the target may
//!    take it away. Writers who are held are found to be so once more behind all else; of others it is known as long as the streams are followed.
//! 2. Nobody waits at the source for a target that does not answer.
//! 3. All is gone over where it is at the end, by processes that were there from the begin: slots that have moved are gone over again.

use super::beside::are_theirs;
use super::holding::Holding;
use super::{Course, Part, slots_have_moved};
use crate::ending::{Ending, pause, stopped};
use crate::limits::{HOLD, LONG_PAUSE, PAUSE};
use crate::place::Place;
use crate::screen::{say, show};
use crate::settling::{put_times_right, remove_marks};
use crate::target::bookmark::state_key;
use crate::target::{Kind, Layout, is_anothers};
use crate::verifying::{Asked, Found, compare};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Instant;

/// How often writers who are not held are waited for.
const TRIES: usize = 5;

impl Course<'_> {
    /// Ends the import.
    ///
    /// # Errors
    /// It is not over: writers go on at the source.
    pub(super) fn cut_over(&mut self) -> Result<(), Ending> {
        let began = Instant::now();
        let hold = self.options.hold;
        let silence_max = if hold.is_zero() { HOLD } else { hold };
        self.silence_max = Some(silence_max);
        self.target.limit_silence(silence_max);
        let sources = self.parts.iter().map(|part| part.name.clone()).collect();
        self.target.end_for(sources, self.owner);
        let holding = Holding::begin(self.places(), &self.options.from.1, hold)?;
        let ended = self.settle(&holding);
        match ended {
            Ok((times, found)) => {
                let is_held = holding.end()?;
                self.sum_up(began, is_held, times, found.as_ref());
                Ok(())
            }
            Err(ending) => {
                holding.release();
                Err(ending)
            }
        }
    }

    /// Gives how many keys have a time to live, and what came of comparing.
    fn settle(&mut self, holding: &Holding) -> Result<(u64, Option<Found>), Ending> {
        self.check_slots()?;
        self.wait_for_rest()?;
        if !holding.is_held() {
            self.wait_for_quiet()?;
        }
        self.orders.ends.store(true, Ordering::Relaxed);
        self.wait_until(|parts| parts.iter().all(|part| part.gauge.is_ending.load(Ordering::Relaxed)))?;
        let before = self.changes();
        let databases = self.databases()?;
        let mut layout = self.first_layout()?;
        let (mut times, mut found);
        let mut times_before = 0;
        loop {
            times = times_before + put_times_right(&mut self.target, &databases)?;
            found = match self.options.verifies {
                true => Some(self.verify(&databases)?),
                false => None,
            };
            if self.is_still(&mut layout)? {
                break;
            }
            times_before = times;
        }
        self.check_quiet(holding, before)?;
        if let Some(found) = found.as_ref().filter(|found| found.different > 0) {
            found.told.iter().for_each(|line| say(line));
            return stopped(format!(
                "{} of {} keys differ; the next run begins a new copy",
                found.different, found.keys
            ));
        }
        if self.target.kind != Kind::One {
            // In a slot that has moved there and back times may not be put right, though nothing came of it. What is changed here nobody compares any more.
            self.go_over(&databases, &mut layout)?;
            self.check_quiet(holding, before)?;
        }
        self.end_parts()?;
        self.take_marks_away(&databases, &mut layout)?;
        self.check_slots()?;
        // Who waits now may not have done so a moment ago, as where the source was started again.
        if !holding.holds_now(self.places()) || !holding.has_held() || self.changes() != before {
            return was_written_to();
        }
        self.check_owner(true)?;
        Ok((times, found))
    }

    /// Fails if somebody who writes was seen at the source, since it had said so many changes, or was not held.
    fn check_quiet(&mut self, holding: &Holding, before: u64) -> Result<(), Ending> {
        self.wait_for_rest()?;
        match self.changes() == before && holding.has_held() {
            true => Ok(()),
            false => was_written_to(),
        }
    }

    /// Puts times right where slots stay where they are meanwhile.
    fn go_over(&mut self, databases: &BTreeSet<u32>, layout: &mut Layout) -> Result<(), Ending> {
        loop {
            put_times_right(&mut self.target, databases)?;
            if self.is_still(layout)? {
                return Ok(());
            }
        }
    }

    fn take_marks_away(&mut self, databases: &BTreeSet<u32>, layout: &mut Layout) -> Result<(), Ending> {
        let states: Vec<String> = self.parts.iter().map(|part| state_key(&part.name)).collect();
        loop {
            remove_marks(&mut self.target, databases, &states)?;
            if self.is_still(layout)? {
                return Ok(());
            }
            self.go_over(databases, layout)?;
        }
    }

    fn places(&self) -> Vec<Place> {
        self.parts.iter().map(|part| part.beside.place()).collect()
    }

    /// Makes sure that all slots of a source cluster are where they were, and each part's node has its, by what each master says.
    fn check_slots(&mut self) -> Result<(), Ending> {
        let orders = self.orders.clone();
        let mut names = Vec::new();
        for part in self.parts.iter_mut().filter(|part| part.beside.own.0.is_some()) {
            names.push((part.beside.own.clone(), part.beside.name(&orders)?));
        }
        for at in 0..self.parts.len() {
            let beside = &mut self.parts[at].beside;
            if beside.own.0.is_none() {
                continue;
            }
            // Another may have taken its place, and be written to, while the former one still thinks that it is master.
            if !are_theirs(&beside.owners(&orders)?, &names) {
                return slots_have_moved();
            }
            let ((slots, _), is_under_way) = (beside.slots(&orders)?, beside.has_slot_under_way(&orders)?);
            if is_under_way || self.has_moved(&slots) != Some(false) {
                return slots_have_moved();
            }
        }
        Ok(())
    }

    /// Who has which slots. All of them were known to those who wrote.
    fn first_layout(&mut self) -> Result<Layout, Ending> {
        let layout = self.target.layout()?;
        for part in &self.parts {
            let state = self.target.state_of(&part.name)?;
            let runs = state.map(|state| state.runs).unwrap_or_default();
            if layout.runs().into_iter().any(|run| !runs.contains(run)) {
                return Err(Ending::NeedsCopy(
                    "a master of the target was started again, or has taken another's place, and may have less than was answered"
                        .to_owned(),
                ));
            }
        }
        Ok(layout)
    }

    /// Whether all slots are where they were; else where they are now.
    fn is_still(&mut self, layout: &mut Layout) -> Result<bool, Ending> {
        let now = self.target.layout()?;
        let is_still = self.target.is_still(layout, &now)?;
        if !is_still {
            say("slots of the target have moved meanwhile: all is gone over again");
            *layout = now;
        }
        Ok(is_still)
    }

    /// Looks whether the target is this process' still, and takes away that it is.
    fn check_owner(&mut self, removes: bool) -> Result<(), Ending> {
        for part in &self.parts {
            let owner = self.owner;
            let mut is_removed = false;
            self.target.exchange(&part.name, &mut |state| match state {
                Some(state) if state.owner != owner => is_anothers(),
                Some(state) if !removes => Ok(Some(state)),
                Some(_) => {
                    is_removed = true;
                    Ok(None)
                }
                // The answer to that was lost.
                None if is_removed => Ok(None),
                None => {
                    stopped("what was kept of the import in the target is gone; empty it, and begin anew")
                }
            })?;
        }
        Ok(())
    }

    /// Waits until all is applied that the sources have now.
    fn wait_for_rest(&mut self) -> Result<(), Ending> {
        let mut wanted = Vec::new();
        for part in &mut self.parts {
            wanted.push(part.beside.offset_of_master(&self.orders)?);
        }
        self.wait_until(|parts| {
            parts
                .iter()
                .zip(&wanted)
                .all(|(part, wanted)| part.gauge.applied.load(Ordering::Acquire) >= *wanted)
        })
    }

    /// Waits until nothing is written any more by those who are not held. What is there can be gone on from until then.
    fn wait_for_quiet(&mut self) -> Result<(), Ending> {
        for _ in 0..TRIES {
            let before = self.changes();
            let orders = self.orders.clone();
            pause(LONG_PAUSE, &mut || orders.look()).map_err(|_| Ending::Interrupted)?;
            self.wait_for_rest()?;
            if self.changes() == before {
                return Ok(());
            }
        }
        stopped(
            "clients still write to the source: they have to stop, or to be held (--hold). The same command goes on from there",
        )
    }

    fn wait_until(&mut self, is_so: impl Fn(&[Part]) -> bool) -> Result<(), Ending> {
        let mut shown = Instant::now();
        let mut last = (0, Instant::now());
        while !is_so(&self.parts) {
            self.check_parts()?;
            self.fail_if_silent(&mut last)?;
            if shown.elapsed() >= super::SHOWN_EVERY {
                shown = Instant::now();
                self.look_at_sources();
                show(&self.line());
            }
            let orders = self.orders.clone();
            pause(PAUSE / 10, &mut || orders.look()).map_err(|_| Ending::Interrupted)?;
        }
        Ok(())
    }

    /// Fails where nothing has come to the target for too long, since what it was `last`.
    fn fail_if_silent(&self, last: &mut (u64, Instant)) -> Result<(), Ending> {
        let now = self.parts.iter().map(|part| part.gauge.applied.load(Ordering::Relaxed)).sum::<u64>();
        if now != last.0 {
            *last = (now, Instant::now());
        }
        match self.silence_max.filter(|max| last.1.elapsed() > *max) {
            Some(max) => stopped(format!("nothing more has come to the target for {} s", max.as_secs())),
            None => Ok(()),
        }
    }

    /// Requests of the streams that tell of somebody who writes.
    fn changes(&self) -> u64 {
        self.parts.iter().map(|part| part.gauge.changes.load(Ordering::Relaxed)).sum()
    }

    fn requests(&self) -> u64 {
        self.parts.iter().map(|part| part.gauge.requests.load(Ordering::Relaxed)).sum()
    }

    fn databases(&mut self) -> Result<BTreeSet<u32>, Ending> {
        let mut databases = BTreeSet::from([0]);
        for part in &mut self.parts {
            databases.extend(part.beside.databases(&self.orders)?);
        }
        Ok(databases)
    }

    fn verify(&mut self, databases: &BTreeSet<u32>) -> Result<Found, Ending> {
        let mut sources = Vec::new();
        for part in &mut self.parts {
            let own = part.beside.own.clone();
            let lost = |error: std::io::Error| {
                Ending::Stopped(format!("the source cannot be compared: {}", config::sentence(&error)))
            };
            let connection = part.beside.connection(&self.orders).map_err(lost)?;
            sources.push(Asked { connection, has: Box::new(move |slot| own.has(slot)) });
        }
        compare(&mut sources, &mut self.target, (databases, self.is_alone), &self.orders)
    }

    /// All parts end between two units, and have seen that what they wrote is there.
    fn end_parts(&mut self) -> Result<(), Ending> {
        self.orders.finishes.store(true, Ordering::Relaxed);
        let mut last = (0, Instant::now());
        while self.parts.iter().any(|part| part.thread.as_ref().is_some_and(|thread| !thread.is_finished())) {
            self.fail_if_silent(&mut last)?;
            let orders = self.orders.clone();
            pause(PAUSE / 10, &mut || orders.look()).map_err(|_| Ending::Interrupted)?;
        }
        for part in &mut self.parts {
            match part.thread.take().map(JoinHandle::join) {
                Some(Ok(Ok(()))) | None => {}
                Some(Ok(Err(ending))) => return Err(ending),
                Some(Err(_)) => return stopped("a source's part has failed"),
            }
        }
        self.check_owner(false)
    }

    fn sum_up(&self, began: Instant, is_held: bool, times: u64, found: Option<&Found>) {
        let sum = |of: fn(&Part) -> u64| self.parts.iter().map(of).sum::<u64>();
        let keys = sum(|part| part.gauge.keys.load(Ordering::Relaxed));
        let verified = match found {
            Some(found) => format!(
                "the values of {} keys are the same (times to live of fields of hashes were not compared)",
                found.keys
            ),
            None => "values were not compared".to_owned(),
        };
        say(&format!(
            "done: {keys} keys copied, {} requests of the stream applied, {times} keys with a time to live; {verified}. The cut-over took {} ms",
            self.requests(),
            began.elapsed().as_millis()
        ));
        if found.is_none() && self.parts.iter().any(|part| part.gauge.has_unheard.load(Ordering::Relaxed)) {
            say(
                "a connection to the target, or a run, was lost before all of its answers were heard: all was done once, and it is not known whether the target refused a command of that. Only --verify finds out",
            );
        }
        if is_held {
            say(&format!(
                "writers are held at the source for {} s more: clients can go to the target now",
                self.options.hold.as_secs()
            ));
        }
    }
}

fn was_written_to<T>() -> Result<T, Ending> {
    stopped(
        "the source was written to after times to live were put right, or its writers were not held; the next run begins a new copy",
    )
}
