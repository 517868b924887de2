//! Compares the values of all keys of the source and the target while nobody writes to either.

use crate::connection::{Connection, shown};
use crate::ending::{Ending, Orders, pause, stopped};
use crate::limits::{COMPARED_BYTES_MAX, DIFFERENCES_TOLD_MAX, PAGE_KEYS, PAUSE, VALUE_BYTES_UNKNOWN};
use crate::settling::{page, scan};
use crate::target::bookmark::PREFIX;
use crate::target::{Job, Target};
use crate::values::{groups, ordered, question};
use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use wire::{Value, encode_request, key_slot};

/// How often a key that differs is looked at again: it may be over at one of both first.
const LOOKS: usize = 3;

/// A source that is asked.
pub struct Asked<'s> {
    pub connection: &'s mut Connection,
    /// Whether it has a slot.
    pub has: Box<dyn Fn(u16) -> bool + 's>,
}

/// What came of it.
#[derive(Default)]
pub struct Found {
    /// Keys that were compared.
    pub keys: u64,
    /// Keys that differ.
    pub different: u64,
    /// Some of them.
    pub told: Vec<String>,
}

/// A key, as one side shows it.
type Shown = Vec<Value>;

/// Compares all keys. Those of the target's own count where it `is_alone`.
///
/// # Errors
/// One of them does not answer, or it is to end.
pub fn compare(
    sources: &mut [Asked<'_>],
    target: &mut Target,
    (databases, is_alone): (&BTreeSet<u32>, bool),
    orders: &Orders,
) -> Result<Found, Ending> {
    let mut found = Found::default();
    for source in sources.iter_mut() {
        for database in databases {
            compare_database(source, target, *database, orders, &mut found)?;
        }
    }
    if is_alone {
        find_more(sources, target, databases, orders, &mut found)?;
    }
    Ok(found)
}

fn lost(error: &io::Error) -> Ending {
    Ending::Stopped(format!("the source cannot be compared: {}", config::sentence(error)))
}

fn compare_database(
    source: &mut Asked<'_>,
    target: &mut Target,
    database: u32,
    orders: &Orders,
    found: &mut Found,
) -> Result<(), Ending> {
    let count = PAGE_KEYS.to_string();
    let mut cursor = b"0".to_vec();
    select(source, database, orders)?;
    loop {
        let words: [&[u8]; 4] = [b"SCAN", &cursor, b"COUNT", count.as_bytes()];
        let replies = ask(source, &[words.to_vec()], orders)?;
        let (next, mut keys) = match replies.first().and_then(page) {
            Some(page) => page,
            None => return stopped("the source does not show its keys"),
        };
        keys.retain(|key| !key.starts_with(PREFIX.as_bytes()));
        found.keys += keys.len() as u64;
        for look in 0..LOOKS {
            keys = different(source, target, database, keys, orders)?;
            if keys.is_empty() {
                break;
            }
            if look + 1 < LOOKS {
                pause(PAUSE, &mut || orders.look()).map_err(|_| Ending::Interrupted)?;
            }
        }
        for key in keys {
            found.tell(database, &key, "differs");
        }
        if next == b"0" {
            return Ok(());
        }
        cursor = next;
    }
}

impl Found {
    fn tell(&mut self, database: u32, key: &[u8], how: &str) {
        self.different += 1;
        if self.told.len() < DIFFERENCES_TOLD_MAX {
            self.told.push(format!("{} of database {database} {how}", shown(key)));
        }
    }
}

fn select(source: &mut Asked<'_>, database: u32, orders: &Orders) -> Result<(), Ending> {
    if source.connection.database != database {
        let number = database.to_string();
        ask(source, &[vec![b"SELECT", number.as_bytes()]], orders)?;
        source.connection.database = database;
    }
    Ok(())
}

/// Several questions to a source in one write.
fn ask(source: &mut Asked<'_>, questions: &[Vec<&[u8]>], orders: &Orders) -> Result<Vec<Value>, Ending> {
    let mut bytes = Vec::new();
    questions.iter().for_each(|words| encode_request(&mut bytes, words));
    let mut look = || orders.look();
    source.connection.say(&bytes, &mut look).map_err(|error| lost(&error))?;
    questions.iter().map(|_| source.connection.hear(&mut look).map_err(|error| lost(&error))).collect()
}

/// Which of these keys are not the same. So many of them are looked at together as their values are no more than some megabytes.
fn different(
    source: &mut Asked<'_>,
    target: &mut Target,
    database: u32,
    keys: Vec<Vec<u8>>,
    orders: &Orders,
) -> Result<Vec<Vec<u8>>, Ending> {
    let types: Vec<Vec<&[u8]>> = keys.iter().map(|key| vec![&b"TYPE"[..], key]).collect();
    let types: Vec<Vec<u8>> = ask(source, &types, orders)?
        .into_iter()
        .map(|reply| match reply {
            Value::Simple(kind) => kind,
            _ => Vec::new(),
        })
        .collect();
    let sizes: Vec<Vec<&[u8]>> = keys.iter().map(|key| vec![&b"MEMORY"[..], b"USAGE", key]).collect();
    let sizes: Vec<usize> = ask(source, &sizes, orders)?
        .into_iter()
        .map(|reply| match reply {
            Value::Int(bytes) => usize::try_from(bytes).unwrap_or_default(),
            Value::Error(_) => VALUE_BYTES_UNKNOWN,
            _ => 0,
        })
        .collect();
    let mut found = Vec::new();
    for batch in batches(&sizes) {
        let (keys, types) = (&keys[batch.clone()], &types[batch]);
        found.extend(different_together(source, target, database, (keys, types), orders)?);
    }
    Ok(found)
}

/// Values of these sizes, as they are looked at together.
fn batches(sizes: &[usize]) -> Vec<Range<usize>> {
    let mut batches: Vec<Range<usize>> = Vec::new();
    let mut bytes = 0_usize;
    for (at, size) in sizes.iter().enumerate() {
        bytes = bytes.saturating_add(*size);
        match batches.last_mut() {
            Some(batch) if bytes <= COMPARED_BYTES_MAX => batch.end = at + 1,
            _ => {
                batches.push(at..at + 1);
                bytes = *size;
            }
        }
    }
    batches
}

fn different_together(
    source: &mut Asked<'_>,
    target: &mut Target,
    database: u32,
    (keys, types): (&[Vec<u8>], &[Vec<u8>]),
    orders: &Orders,
) -> Result<Vec<Vec<u8>>, Ending> {
    let mut questions: Vec<Vec<&[u8]>> = Vec::new();
    for (key, kind) in keys.iter().zip(types) {
        let Some(words) = question(kind, key) else {
            // It is over.
            questions.push(vec![b"EXISTS", key]);
            questions.push(vec![b"TYPE", key]);
            continue;
        };
        questions.push(words);
        questions.push(match kind.as_slice() {
            b"stream" => vec![b"XINFO", b"GROUPS", key],
            _ => vec![b"TYPE", key],
        });
    }
    let times: Vec<Vec<&[u8]>> = keys.iter().map(|key| vec![&b"PEXPIRETIME"[..], key]).collect();
    let there = (ask(source, &questions, orders)?, ask(source, &times, orders)?);
    let here = (
        ask_target(target, database, (keys, 2), &questions)?,
        ask_target(target, database, (keys, 1), &times)?,
    );
    let side = |side: &(Vec<Value>, Vec<Value>), at: usize| -> Shown {
        let kind = types[at].as_slice();
        let mut shown = vec![ordered(kind, &side.0[2 * at])];
        match kind {
            b"stream" => shown.extend(groups(&side.0[2 * at + 1]).into_iter().flatten()),
            _ => shown.push(side.0[2 * at + 1].clone()),
        }
        shown
    };
    // A source older than Redis 7.0 does not tell a moment.
    let same_time = |at: usize| matches!(there.1[at], Value::Error(_)) || there.1[at] == here.1[at];
    let is_same = |at: usize| side(&there, at) == side(&here, at) && same_time(at);
    let numbers: Vec<usize> = (0..keys.len()).filter(|at| !is_same(*at)).collect();
    Ok(numbers.into_iter().map(|at| keys[at].clone()).collect())
}

/// The same of a target, so many of them for each key.
fn ask_target(
    target: &mut Target,
    database: u32,
    (keys, each): (&[Vec<u8>], usize),
    questions: &[Vec<&[u8]>],
) -> Result<Vec<Value>, Ending> {
    let question =
        |(at, words): (usize, &Vec<&[u8]>)| Job::question(database, key_slot(&keys[at / each]), words);
    let mut jobs: Vec<Job> = questions.iter().enumerate().map(question).collect();
    target.ask(&mut jobs)?;
    Ok(jobs.into_iter().map(|mut job| job.replies.pop().unwrap_or(Value::Null)).collect())
}

/// Looks for keys that only the target has.
fn find_more(
    sources: &mut [Asked<'_>],
    target: &mut Target,
    databases: &BTreeSet<u32>,
    orders: &Orders,
    found: &mut Found,
) -> Result<(), Ending> {
    scan(target, databases, "*", |target, database, mut keys| {
        keys.retain(|key| !key.starts_with(PREFIX.as_bytes()));
        for source in sources.iter_mut() {
            select(source, database, orders)?;
            let own: Vec<&Vec<u8>> = keys.iter().filter(|key| (source.has)(key_slot(key))).collect();
            let questions: Vec<Vec<&[u8]>> =
                own.iter().map(|key| vec![&b"EXISTS"[..], key.as_slice()]).collect();
            let replies = ask(source, &questions, orders)?;
            let missing = own.iter().zip(replies).filter(|(_, reply)| *reply != Value::Int(1));
            let missing: Vec<&Vec<u8>> = missing.map(|(key, _)| *key).collect();
            for key in missing {
                // It may be over at both.
                let mut question = Job::question(database, key_slot(key), &[b"EXISTS", key]);
                target.ask(std::slice::from_mut(&mut question))?;
                if question.replies == [Value::Int(1)] {
                    found.tell(database, key, "is not at the source");
                }
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_values_are_compared_alone() {
        let large = COMPARED_BYTES_MAX + 1;
        assert_eq!(batches(&[1, 2, large, 3, 4]), [0..2, 2..3, 3..5]);
        assert_eq!(batches(&[large, usize::MAX, 1]), [0..1, 1..2, 2..3]);
        assert_eq!(batches(&[]), []);
    }
}
