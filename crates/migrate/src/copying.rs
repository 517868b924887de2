//! A source's copy on its way to the target: key by key as it comes, small values many at a time, large ones in pieces.
//!
//! Each key is made what it was, whatever the target has under its name, so that what was lost on the way is said again.

use crate::ending::{Ending, Orders, stopped};
use crate::held::later;
use crate::limits::{COPY_BYTES_MAX, STRING_BYTES_MAX, VALUE_BYTES_MAX};
use crate::screen::Gauge;
use crate::source::{Arriving, Source};
use crate::target::bookmark::PREFIX;
use crate::target::{Job, Target};
use command::pieces::{Pieces, Progress, Words};
use keyspace::ValueRef;
use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use sys::UnixMs;
use value::collection::Thresholds;
use value::rdb::Restored;
use value::rdb::file::{FileEntry, FileError, FileReader};
use wire::key_slot;

/// In which database a stream goes on behind its copy, among what the copy says of itself.
const DATABASE_FACT: &[u8] = b"repl-stream-db";

/// The slots of a source: all of a server's, or those that a node of a cluster has.
#[derive(Clone, Debug, Default)]
pub struct Own(pub Option<Vec<(u16, u16)>>);

impl Own {
    /// Whether a slot is among them.
    pub fn has(&self, slot: u16) -> bool {
        self.0
            .as_ref()
            .is_none_or(|ranges| ranges.iter().any(|(first, last)| (*first..=*last).contains(&slot)))
    }

    /// Fails where a key is of a slot that came from another node.
    ///
    /// # Errors
    /// It is: the nodes' streams do not say in which order what was done here and there.
    pub fn check(&self, slot: u16) -> Result<(), Ending> {
        match self.has(slot) {
            true => Ok(()),
            false => stopped(format!(
                "slot {slot} has moved from one node of the source to another: begin anew when its slots stay where they are"
            )),
        }
    }

    /// As text without spaces.
    pub fn text(&self) -> String {
        let range = |(first, last): &(u16, u16)| format!("{first}-{last}");
        match &self.0 {
            None => "all".to_owned(),
            Some(ranges) => ranges.iter().map(range).collect::<Vec<_>>().join(","),
        }
    }
}

struct Copying<'c> {
    target: &'c mut Target,
    own: &'c Own,
    gauge: &'c Gauge,
    jobs: Vec<Job>,
    bytes: usize,
    words: Words,
}

/// Brings all that a source sends of its copy. Gives the database that is selected in the stream behind it.
///
/// # Errors
/// The source is lost, or the target refuses something.
pub fn copy(
    source: &RefCell<Source>,
    orders: &Orders,
    target: &mut Target,
    (own, gauge): (&Own, &Arc<Gauge>),
) -> Result<u32, Ending> {
    let wrong = |error: FileError| match (orders.fail_if_over(), error) {
        (Err(ending), _) => ending,
        (Ok(()), FileError::Source(error)) => {
            Ending::NeedsCopy(format!("the copy has ended too early: {}", config::sentence(&error)))
        }
        (Ok(()), FileError::CutOff) => Ending::NeedsCopy("the copy has ended too early".to_owned()),
        (Ok(()), error) => Ending::Stopped(format!("the source's copy cannot be read: {error}")),
    };
    let mut arriving = Arriving::of(source, gauge);
    let mut reader = FileReader::open(&mut arriving).map_err(wrong)?;
    reader.set_string_max(STRING_BYTES_MAX);
    let first_facts = reader.facts();
    let mut copying = Copying { target, own, gauge, jobs: Vec::new(), bytes: 0, words: Words::default() };
    while let Some(entry) = reader.next_entry(&Thresholds::DEFAULT).map_err(wrong)? {
        value::rdb::uncompressed(|| copying.key(&entry))?;
    }
    copying.flush()?;
    copying.libraries(reader.take_libraries())?;
    let facts = first_facts.iter().chain(reader.late_facts());
    let selected = facts.rev().find(|(name, _)| name == DATABASE_FACT);
    let selected = selected.and_then(|(_, value)| std::str::from_utf8(value).ok()?.parse().ok());
    let selected = selected.unwrap_or_default();
    // What tells the end of the copy may come later than its last byte, and is not the stream's.
    io::copy(&mut arriving, &mut io::sink()).map_err(|error| wrong(FileError::Source(error)))?;
    Ok(selected)
}

impl Copying<'_> {
    fn key(&mut self, entry: &FileEntry) -> Result<(), Ending> {
        let database = u32::try_from(entry.database)
            .map_err(|_| Ending::Stopped("the number of a database is none".to_owned()))?;
        self.target.ensure_database(database)?;
        check_name(&entry.key)?;
        let slot = key_slot(&entry.key);
        self.own.check(slot)?;
        let expires_at = entry.expires_at_ms.map(later);
        let mut job = Job::new(database, slot);
        match &entry.value {
            Restored::String(bytes) if bytes.len() <= VALUE_BYTES_MAX => {
                let at = expires_at.map(|at| at.to_string());
                let mut words = vec![&b"SET"[..], &entry.key, bytes];
                words.extend(at.iter().flat_map(|at| [&b"PXAT"[..], at.as_bytes()]));
                job.push(&words);
            }
            Restored::String(bytes) => return self.long(entry, ValueRef::Bytes(bytes), job),
            Restored::Collection(collection) => {
                return self.long(entry, ValueRef::Collection(collection.as_ref()), job);
            }
        }
        self.add(job)
    }

    fn add(&mut self, job: Job) -> Result<(), Ending> {
        self.bytes += job.requests.len();
        self.jobs.push(job);
        self.gauge.keys.fetch_add(1, Ordering::Relaxed);
        match self.bytes >= COPY_BYTES_MAX {
            true => self.flush(),
            false => Ok(()),
        }
    }

    fn flush(&mut self) -> Result<(), Ending> {
        self.bytes = 0;
        self.target.ask(&mut std::mem::take(&mut self.jobs))
    }

    /// A value that may take several requests. Where a connection is lost between them it is begun anew.
    fn long(&mut self, entry: &FileEntry, value: ValueRef<'_>, mut job: Job) -> Result<(), Ending> {
        let expires_at = entry.expires_at_ms.map(|at| UnixMs(later(at)));
        let pieces =
            Pieces::of_value(&entry.key, value, expires_at, VALUE_BYTES_MAX).for_readers(self.target.reads);
        let say = |progress, words: &mut Words, job: &mut Job| {
            pieces.say_next(progress, words, &mut |words| job.push(&words.iter().collect::<Vec<_>>()))
        };
        let progress = say(Progress::Nothing, &mut self.words, &mut job);
        if progress == Progress::Everything {
            return self.add(job);
        }
        self.flush()?;
        loop {
            let mut progress = Progress::Nothing;
            let mut is_whole = true;
            while is_whole && progress != Progress::Everything {
                let mut piece = Job::new(job.database, job.slot);
                while piece.requests.len() < COPY_BYTES_MAX && progress != Progress::Everything {
                    progress = say(progress, &mut self.words, &mut piece);
                }
                is_whole = self.target.try_once(piece)?;
            }
            if is_whole {
                self.gauge.keys.fetch_add(1, Ordering::Relaxed);
                return Ok(());
            }
        }
    }

    fn libraries(&mut self, codes: Vec<Vec<u8>>) -> Result<(), Ending> {
        for code in codes {
            everywhere(self.target, &[b"FUNCTION", b"LOAD", b"REPLACE", &code])?;
        }
        Ok(())
    }
}

/// Fails where a key of the source's is called as only those are that an import keeps in its target.
///
/// # Errors
/// It is: one of both would be lost.
pub fn check_name(key: &[u8]) -> Result<(), Ending> {
    match key.starts_with(PREFIX.as_bytes()) {
        true => stopped(format!(
            "the source has a key {}, and keys called so are what an import keeps in its target: rename it, or remove it if it is what an import into the source has left",
            crate::connection::shown(key)
        )),
        false => Ok(()),
    }
}

/// Has every server of a target do something that may be done twice.
///
/// # Errors
/// One of them refuses it.
pub fn everywhere(target: &mut Target, words: &[&[u8]]) -> Result<(), Ending> {
    let nodes = target.masters();
    for node in nodes {
        if let wire::Value::Error(line) = target.tell_node(node, words)? {
            // It was deleted before the connection was lost.
            let is_deletion = words.get(1).is_some_and(|word| word.eq_ignore_ascii_case(b"DELETE"));
            if !(is_deletion && line.ends_with(b"Library not found")) {
                let name = words[..words.len().min(2)].join(&b' ');
                let (name, line) = (crate::connection::shown(&name), crate::connection::shown(&line));
                return stopped(format!("the target refuses {name}: {line}"));
            }
        }
    }
    Ok(())
}
