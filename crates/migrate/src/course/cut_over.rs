//! The end: writers are held, the rest comes, times to live are put right, values are compared, and what was kept in the target goes.
//!
//! It counts only if nothing came of the streams meanwhile; else it is done again, for those who could not be held.

use super::holding::Holding;
use super::{Course, Part};
use crate::ending::{Ending, pause, stopped};
use crate::limits::PAUSE;
use crate::screen::{say, show};
use crate::settling::{put_times_right, remove_marks};
use crate::verifying::{Asked, Found, compare};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// How often it is done again.
const TRIES: usize = 5;

impl Course<'_> {
    /// Ends the import.
    ///
    /// # Errors
    /// It is not over: writers go on at the source.
    pub(super) fn cut_over(&mut self) -> Result<(), Ending> {
        let began = Instant::now();
        let places = self.parts.iter().map(|part| part.beside.place().clone()).collect();
        let holding = Holding::begin(places, &self.options.from.1, self.options.hold);
        let ended = self.settle(&holding);
        match ended {
            Ok((times, found)) => {
                let is_held = holding.end();
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
        for _ in 0..TRIES {
            let held = holding.breaks();
            self.wait_for_rest()?;
            self.orders.ends.store(true, Ordering::Relaxed);
            self.wait_until(|parts| parts.iter().all(|part| part.gauge.is_ending.load(Ordering::Relaxed)))?;
            let before = self.requests();
            let databases = self.databases()?;
            let times = put_times_right(&mut self.target, &databases)?;
            let found = match self.options.verifies {
                true => Some(self.verify(&databases)?),
                false => None,
            };
            self.wait_for_rest()?;
            if self.requests() != before || !holding.has_held_since(held) {
                say("the source was written to meanwhile, or was not held: the end begins anew");
                continue;
            }
            if let Some(found) = found.as_ref().filter(|found| found.different > 0) {
                found.told.iter().for_each(|line| say(line));
                return stopped(format!(
                    "{} of {} keys differ; the next run begins a new copy",
                    found.different, found.keys
                ));
            }
            self.finish(&databases)?;
            return Ok((times, found));
        }
        stopped("clients still write to the source; the next run begins a new copy")
    }

    /// Waits until all is applied that the sources have now.
    fn wait_for_rest(&mut self) -> Result<(), Ending> {
        let mut wanted = Vec::new();
        for part in &mut self.parts {
            let offset = part.beside.offset(&self.orders);
            wanted.push(offset.map_err(|error| part.beside.wrong(&config::sentence(&error)))?);
        }
        self.wait_until(|parts| {
            parts
                .iter()
                .zip(&wanted)
                .all(|(part, wanted)| part.gauge.applied.load(Ordering::Relaxed) >= *wanted)
        })
    }

    fn wait_until(&mut self, is_so: impl Fn(&[Part]) -> bool) -> Result<(), Ending> {
        let mut shown = Instant::now();
        while !is_so(&self.parts) {
            self.check_parts()?;
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

    /// All parts end between two units, and nothing of the import's own stays.
    fn finish(&mut self, databases: &BTreeSet<u32>) -> Result<(), Ending> {
        self.orders.finishes.store(true, Ordering::Relaxed);
        for part in &mut self.parts {
            let ended = part.thread.take().map(std::thread::JoinHandle::join);
            match ended {
                Some(Ok(Ok(()))) | None => {}
                Some(Ok(Err(ending))) => return Err(ending),
                Some(Err(_)) => return stopped("a source's part has failed"),
            }
        }
        remove_marks(&mut self.target, databases)
    }

    fn sum_up(&self, began: Instant, is_held: bool, times: u64, found: Option<&Found>) {
        let sum = |of: fn(&Part) -> u64| self.parts.iter().map(of).sum::<u64>();
        let keys = sum(|part| part.gauge.keys.load(Ordering::Relaxed));
        let verified = match found {
            Some(found) => format!("the values of {} keys are the same", found.keys),
            None => "values were not compared".to_owned(),
        };
        say(&format!(
            "done: {keys} keys copied, {} requests of the stream applied, {times} keys with a time to live; {verified}. The cut-over took {} ms",
            self.requests(),
            began.elapsed().as_millis()
        ));
        if is_held {
            say(&format!(
                "writers are held at the source for {} s more: clients can go to the target now",
                self.options.hold.as_secs()
            ));
        }
    }
}
