//! The ledger: every key after every record, and what clients were told.
//!
//! Invariants:
//! 1. A version of a key is noted at the end of the record that made it; versions are ascending.
//! 2. A reply counts as told once the gate is open for its stamp. What it tells of is in the record that `needs` names,
//!    whatever the stamp says.

use crate::shown::Shown;
use crate::site::{DATABASES, Site};
use keyspace::Stamp;
use std::collections::BTreeMap;

/// What a step appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One record.
    Whole,
    /// Any number of records that only remove keys or fields, each of its own slot: a sweep, an eviction.
    Removals,
    /// A write and requests that it served, each a record: between them the keys of [`SERVED`] are neither as before nor
    /// as after.
    Served,
}

/// The keys on which requests are served.
pub const SERVED: [&str; 2] = ["w1", "w2"];

/// Which keys a step may have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Those that it names.
    Named,
    /// Any.
    All,
}

type Name = (u32, Vec<u8>);

/// The names and codes of libraries of functions.
type Libraries = Vec<(Vec<u8>, Vec<u8>)>;

#[derive(Default)]
pub struct History {
    versions: BTreeMap<Name, Vec<(u64, Option<Shown>)>>,
    libraries: Vec<(u64, Libraries)>,
    /// Where each step ended, what it was, and how it is called.
    steps: Vec<(u64, Kind, String)>,
    /// Replies that are held back: up to which stamp, and what they tell of.
    held: Vec<(Stamp, u64, String)>,
    /// The end of the last record that clients know of, and from which reply.
    pub told: (u64, String),
}

impl History {
    /// Begins with what a site holds.
    pub fn begin(site: &Site, names: impl Iterator<Item = Name>) -> History {
        let mut history = History::default();
        let end = site.log().appended().0;
        history.steps.push((end, Kind::Whole, "the start".to_owned()));
        history.libraries.push((end, site.libraries()));
        history.told = (end, "the start".to_owned());
        for (db, name) in names {
            let shown = site.shown(db, &name);
            history.versions.insert((db, name), vec![(end, shown)]);
        }
        history
    }

    /// All keys there ever were.
    pub fn names(&self) -> impl Iterator<Item = Name> {
        self.versions.keys().cloned()
    }

    /// Notes a step that has ended and that names these keys, in whatever database.
    ///
    /// # Errors
    /// If something has changed that is in no record.
    pub fn note(
        &mut self,
        site: &Site,
        kind: Kind,
        keys: &[Vec<u8>],
        reach: Reach,
        what: impl FnOnce() -> String,
    ) -> Result<(), String> {
        let end = site.log().appended().0;
        let has_appended = end > self.end();
        for key in keys {
            for db in 0..DATABASES {
                self.versions.entry((db, key.clone())).or_default();
            }
        }
        let of_all = |key: &Vec<u8>| (0..DATABASES).map(|db| (db, key.clone())).collect::<Vec<_>>();
        let names: Vec<Name> = match reach {
            Reach::Named => keys.iter().flat_map(of_all).collect(),
            Reach::All => self.names().collect(),
        };
        let what = what();
        for name in names {
            let shown = site.shown(name.0, &name.1);
            let versions = self.versions.entry(name.clone()).or_default();
            let before = versions.last().and_then(|(_, shown)| shown.as_ref());
            if before == shown.as_ref() {
                continue;
            }
            if !has_appended {
                return Err(format!("{name:?} changed without a record in {what}"));
            }
            versions.push((end, shown));
        }
        if has_appended {
            self.steps.push((end, kind, what));
        }
        let libraries = site.libraries();
        if self.libraries.last().is_none_or(|(_, last)| *last != libraries) {
            self.libraries.push((end, libraries));
        }
        self.check_count(site)
    }

    fn check_count(&self, site: &Site) -> Result<(), String> {
        let known = self.versions.values().filter(|all| all.last().is_some_and(|(_, shown)| shown.is_some()));
        match (known.count() as u64, site.keys()) {
            (known, there) if known == there => Ok(()),
            (known, there) => {
                let step = self.steps.last();
                Err(format!("{there} keys are there, {known} are known, after {step:?}"))
            }
        }
    }

    /// Where it begins.
    pub fn start(&self) -> u64 {
        self.steps[0].0
    }

    /// Where the last step ended.
    pub fn end(&self) -> u64 {
        self.steps.last().unwrap().0
    }

    /// The end of the record that last changed a key.
    pub fn changed(&self, db: u32, key: &[u8]) -> u64 {
        let versions = self.versions.get(&(db, key.to_vec()));
        versions.and_then(|versions| versions.last()).map_or(0, |(lsn, _)| *lsn)
    }

    /// Notes a reply that is held back up to a stamp.
    pub fn hold(&mut self, stamp: Stamp, needs: u64, what: String) {
        self.held.push((stamp, needs, what));
    }

    /// Lets out the replies for which the gate is open.
    pub fn let_out(&mut self, site: &Site) {
        let gate = &site.server.net.gate;
        let (out, held) =
            std::mem::take(&mut self.held).into_iter().partition(|(stamp, _, _)| gate.is_open(*stamp));
        self.held = held;
        for (_, needs, what) in Vec::<(Stamp, u64, String)>::into_iter(out) {
            if needs > self.told.0 {
                self.told = (needs, what);
            }
        }
    }

    /// Whether a log that ends there holds all that clients were told.
    pub fn check_end(&self, end: u64) -> Result<(), String> {
        match &self.told {
            (told, what) if end < *told => Err(format!("the log ends at {end}, {told} was told by {what}")),
            _ => Ok(()),
        }
    }

    /// Whether a record that ends there is a whole step, or one of several removals.
    pub fn check_record(&self, end: u64) -> Result<(), String> {
        let number = self.steps.partition_point(|(step, _, _)| *step < end);
        match self.steps.get(number) {
            Some((step, kind, _)) if *step == end || *kind != Kind::Whole => Ok(()),
            Some((_, _, what)) => Err(format!("a record ends at {end}, within {what}")),
            None => Err(format!("a record ends at {end}, {} was appended", self.end())),
        }
    }

    /// Whether what was recovered is what there was when the log ended where it ends now.
    pub fn check(&self, site: &Site) -> Result<(), String> {
        let end = site.log().appended().0;
        self.check_end(end)?;
        let number = self.steps.partition_point(|(step, _, _)| *step < end);
        let Some((step, kind, what)) = self.steps.get(number) else {
            return Err(format!("the log ends at {end}, {} was appended", self.end()));
        };
        // Where removals were cut short, each key is as before or as after.
        let (before, after) = match kind {
            _ if *step == end => (end, end),
            Kind::Removals | Kind::Served => (self.steps[number - 1].0, *step),
            Kind::Whole => return Err(format!("the log ends at {end}, within {what}")),
        };
        let mut count = 0;
        for (name, versions) in &self.versions {
            let found = site.shown(name.0, &name.1);
            let old = version(versions, before);
            count += u64::from(old.is_some());
            let is_served = before < end && *kind == Kind::Served;
            let is_right = is_served && SERVED.iter().any(|key| key.as_bytes() == name.1)
                || found.as_ref() == old
                || found.as_ref() == version(versions, after);
            if !is_right {
                return Err(format!("at {end} {name:?} is\n{found:?}, was\n{old:?} after {what}"));
            }
        }
        let is_counted = if before == after { site.keys() == count } else { site.keys() <= count };
        if *kind != Kind::Served && !is_counted {
            return Err(format!("at {end} there are {} keys, there were {count}", site.keys()));
        }
        let libraries = self.libraries.iter().rev().find(|(lsn, _)| *lsn <= end).map(|(_, all)| all);
        match libraries == Some(&site.libraries()) {
            true => Ok(()),
            false => Err(format!("at {end} the libraries are {:?}", site.libraries())),
        }
    }
}

fn version(versions: &[(u64, Option<Shown>)], at: u64) -> Option<&Shown> {
    versions.iter().rev().find(|(lsn, _)| *lsn <= at).and_then(|(_, shown)| shown.as_ref())
}
