//! Applies effects: what a log says was done is done again in the keyspace.
//!
//! No session, rights, limits or directives have a say in it, and no clock but the record's: an effect that was logged once has
//! the same effect at every later time. What each concerns is `command::effects::Scope`'s matter; whatever is not on that list is
//! refused, and never run on all slots for want of a key.
//!
//! One thread owns an [`Applier`]; several, each with a worker's number of its own, may apply at the same time.
//!
//! 1. Nothing is allocated for an effect on one key, once the first few were applied.
//! 2. The keyspace is left between two effects, so that another thread can have it alone.

use crate::Engine;
use crate::scripts::libraries;
use command::table::Command;
use command::transfer::Transfer;
use command::{Args, Error, Row, execute};
use keyspace::{Batch, DbIndex, Key, Stamp, Touch};
use std::fmt;
use sys::UnixMs;
use value::number::parse_i64;
use wire::{Protocol, Reply, Request};

/// Bytes that are kept for replies, which nobody reads.
const REPLY_BYTES_KEPT_MAX: usize = 1 << 20;

/// Bytes of a name that are shown.
const SHOWN_BYTES_MAX: usize = 128;

/// Why an effect was not applied.
#[derive(Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is none that this version knows.
    Unknown(String),
    /// It has too few words, or too many.
    Arity(&'static str),
    /// It has no key in its place, or several, or is no such effect with these words.
    NoKey(&'static str),
    /// It names a database that is not there.
    Database(String),
    /// This was its answer: state and log do not belong together.
    Failed(&'static str, Error),
    /// It is of a key that is not there, or that is later than it: state and log do not belong together.
    NoSource(&'static str),
    /// Its libraries cannot be loaded.
    Libraries(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Unknown(name) => write!(f, "'{name}' is nothing that a log of this version holds"),
            Refusal::Arity(name) => write!(f, "wrong number of arguments for '{name}'"),
            Refusal::NoKey(name) => write!(f, "'{name}' does not name its key as an effect does"),
            Refusal::Database(number) => write!(f, "there is no database {number} (see `databases`)"),
            Refusal::Failed(name, error) => write!(f, "'{name}' was answered with '{error}'"),
            Refusal::NoSource(name) => write!(f, "'{name}' is of a key that is not there as it was"),
            Refusal::Libraries(why) => write!(f, "libraries of functions cannot be loaded: {why}"),
        }
    }
}

impl Refusal {
    /// For an effect that is on no list.
    #[cold]
    pub fn unknown(effect: &Request<'_>) -> Refusal {
        let name = effect.get(0).unwrap_or_default();
        Refusal::Unknown(name[..name.len().min(SHOWN_BYTES_MAX)].escape_ascii().to_string())
    }
}

/// What is done to whole databases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDatabases {
    /// These are emptied: one, or all.
    Flush(Option<DbIndex>),
    /// These two are exchanged.
    Swap(DbIndex, DbIndex),
}

impl OnDatabases {
    /// What such an effect in a database says.
    ///
    /// # Errors
    /// It is none, or of a database that is not there.
    pub fn of(engine: &Engine, db: DbIndex, effect: &Request<'_>) -> Result<OnDatabases, Refusal> {
        let is = |name: &[u8]| effect.arg(0).eq_ignore_ascii_case(name);
        if is(b"flushall") {
            return Ok(OnDatabases::Flush(None));
        } else if is(b"flushdb") {
            return Ok(OnDatabases::Flush(Some(db)));
        } else if !is(b"swapdb") || effect.len() != 3 {
            return Err(Refusal::unknown(effect));
        }
        Ok(OnDatabases::Swap(database(engine, effect.arg(1))?, database(engine, effect.arg(2))?))
    }
}

/// The database whose number a word is.
///
/// # Errors
/// There is none.
pub fn database(engine: &Engine, word: &[u8]) -> Result<DbIndex, Refusal> {
    let number = parse_i64(word).and_then(|number| u32::try_from(number).ok());
    let there = number.filter(|number| *number < engine.keyspace.databases()).map(DbIndex);
    there.ok_or_else(|| Refusal::Database(word[..word.len().min(SHOWN_BYTES_MAX)].escape_ascii().to_string()))
}

/// An effect on two keys, and these: the source and the target.
pub type Placed<'a> = (Transfer<'a>, [Key<'a>; 2]);

/// Finds the keys of such an effect in a database.
///
/// # Errors
/// It is none, or names a database that is not there.
pub fn placed<'a>(
    engine: &Engine,
    db: DbIndex,
    row: &'static Row,
    effect: &Request<'a>,
) -> Result<Placed<'a>, Refusal> {
    let effect = Transfer::of(effect).ok_or(Refusal::NoKey(row.name))?;
    let other = effect.database.map_or(Ok(db), |number| database(engine, number))?;
    let keyspace = &engine.keyspace;
    Ok((effect, [keyspace.key(db, effect.source), keyspace.key(other, effect.target)]))
}

/// Applies effects one by one, in the place of a worker that does not run yet.
pub struct Applier<'s> {
    engine: &'s Engine,
    worker: usize,
    reply: Vec<u8>,
}

impl<'s> Applier<'s> {
    /// In the place of the worker of this number, which must be there.
    pub fn new(engine: &'s Engine, worker: usize) -> Applier<'s> {
        Applier { engine, worker, reply: Vec::new() }
    }

    /// A stay in the keyspace.
    pub fn enter(&self) -> Batch<'s> {
        self.engine.keyspace.enter(self.worker)
    }

    /// Applies an effect on one key of a database. Keys whose time was up at `now` are gone.
    ///
    /// # Errors
    /// If it has no such effect; the key is as it was then.
    #[inline]
    pub fn on_key(
        &mut self,
        batch: &mut Batch<'_>,
        row: &'static Row,
        (db, now): (DbIndex, UnixMs),
        effect: &Request<'_>,
    ) -> Result<(), Refusal> {
        if !row.accepts(effect.len()) {
            return Err(Refusal::Arity(row.name));
        }
        self.reply.clear();
        let args = Args::new(*effect, &self.engine.keyspace, (db, now), &self.engine.settings).of_log();
        let mut reply = Reply::new(&mut self.reply, Protocol::Resp2);
        let executed = execute(row, batch, &args, Touch::No, &mut reply);
        if self.reply.capacity() > REPLY_BYTES_KEPT_MAX {
            self.reply = Vec::new();
        }
        executed.map(|_| ()).map_err(|error| Refusal::Failed(row.name, error))
    }

    /// Applies an effect on two keys, in a record that ends at `end`, as far as what is in place is not later. Nobody else is in the
    /// keyspace.
    ///
    /// # Errors
    /// The source is not there, or cannot be read.
    pub fn transfer(
        &self,
        row: &'static Row,
        (effect, [source, target]): &Placed<'_>,
        end: Stamp,
    ) -> Result<(), Refusal> {
        let batch = self.enter();
        let is_due = |key: &Key<'_>| batch.stamp_of(key) < end;
        let applied = match (is_due(source), is_due(target)) {
            (true, true) => effect.apply(&batch, source, target),
            (true, false) => effect.apply_to_source(&batch, source),
            // A copy of the source that holds the effect is behind one of the target that does not: no checkpoint has that.
            (false, true) => Ok(false),
            (false, false) => Ok(true),
        };
        match applied {
            Ok(true) => Ok(()),
            Ok(false) => Err(Refusal::NoSource(row.name)),
            Err(error) => Err(Refusal::Failed(row.name, error)),
        }
    }

    /// Applies what a record that ends at `end` did to whole databases. What was put in place later than that stays.
    pub fn on_databases(&self, what: OnDatabases, now: UnixMs, end: Stamp) {
        self.enter().exclusively(now, Touch::No, |all| match what {
            OnDatabases::Swap(one, other) => all.swap(one, other),
            OnDatabases::Flush(only) => {
                let databases = self.engine.databases().filter(|db| only.is_none_or(|only| only == *db));
                let cleared = databases.map(|db| all.clear_before(db, end)).collect();
                all.free_afterwards(cleared);
            }
        });
    }

    /// Puts the libraries of a FUNCTION RESTORE in the place of all others. One that adds none changes nothing: it is there to be waited for.
    ///
    /// # Errors
    /// It is another request, or they cannot be loaded.
    pub fn libraries(&self, command: &Command, effect: &Request<'_>) -> Result<(), Refusal> {
        if effect.len() == 3 && libraries::are_none(effect.arg(2)) {
            return Ok(());
        }
        if effect.len() != 4 || !effect.arg(3).eq_ignore_ascii_case(b"flush") {
            return Err(Refusal::Arity(command.row.name));
        }
        libraries::replace(self.engine, effect.arg(2))
            .map_err(|why| Refusal::Libraries(why.escape_ascii().to_string()))
    }
}
