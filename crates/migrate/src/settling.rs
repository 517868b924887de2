//! The end of an import, when nothing comes any more: times to live are put right, and what was kept in the target goes.

use crate::ending::{Ending, stopped};
use crate::held::meant;
use crate::limits::PAGE_KEYS;
use crate::target::bookmark::PREFIX;
use crate::target::{Job, Target};
use std::collections::BTreeSet;
use wire::{Value, key_slot};

/// Goes over all keys of some databases, some at a time.
///
/// # Errors
/// The target does not say, or those of `look`.
pub fn scan(
    target: &mut Target,
    databases: &BTreeSet<u32>,
    pattern: &str,
    mut look: impl FnMut(&mut Target, u32, Vec<Vec<u8>>) -> Result<(), Ending>,
) -> Result<(), Ending> {
    let count = PAGE_KEYS.to_string();
    for node in target.masters() {
        for database in databases {
            let mut cursor = b"0".to_vec();
            loop {
                let words: [&[u8]; 6] =
                    [b"SCAN", &cursor, b"MATCH", pattern.as_bytes(), b"COUNT", count.as_bytes()];
                let mut job = Job { node: Some(node), ..Job::question(*database, 0, &words) };
                target.ask(std::slice::from_mut(&mut job))?;
                let (next, keys) = match job.replies.first().and_then(page) {
                    Some(page) => page,
                    None => return stopped(format!("the target does not show its keys: {:?}", job.replies)),
                };
                look(target, *database, keys)?;
                if next == b"0" {
                    break;
                }
                cursor = next;
            }
        }
    }
    Ok(())
}

/// The next cursor, and keys.
pub fn page(reply: &Value) -> Option<(Vec<u8>, Vec<Vec<u8>>)> {
    let Value::Array(parts) = reply else { return None };
    let [Value::Bulk(cursor), Value::Array(keys)] = parts.as_slice() else { return None };
    let keys = keys.iter().map(|key| match key {
        Value::Bulk(key) => Some(key.clone()),
        _ => None,
    });
    Some((cursor.clone(), keys.collect::<Option<_>>()?))
}

/// Gives all keys the times to live that the source means. Gives how many have one.
///
/// # Errors
/// The target refuses it.
pub fn put_times_right(target: &mut Target, databases: &BTreeSet<u32>) -> Result<u64, Ending> {
    let mut count = 0;
    scan(target, databases, "*", |target, database, keys| {
        let question = |key: &Vec<u8>| Job::question(database, key_slot(key), &[b"PEXPIRETIME", key]);
        let mut jobs: Vec<Job> = keys.iter().map(question).collect();
        target.ask(&mut jobs)?;
        let mut changes = Vec::new();
        for (key, job) in keys.iter().zip(&jobs) {
            match job.replies.first() {
                Some(Value::Int(at)) => {
                    if let Some(at) = meant(*at) {
                        let mut change = Job::new(database, key_slot(key));
                        change.push(&[b"PEXPIREAT", key, at.to_string().as_bytes()]);
                        changes.push(change);
                    }
                }
                other => return stopped(format!("the target does not say when a key is over: {other:?}")),
            }
        }
        count += changes.len() as u64;
        target.ask(&mut changes)
    })?;
    Ok(count)
}

/// Takes away what the import has kept in the target, but for its sources' states.
///
/// # Errors
/// The target refuses it.
pub fn remove_marks(target: &mut Target, databases: &BTreeSet<u32>, states: &[String]) -> Result<(), Ending> {
    scan(target, databases, &format!("{PREFIX}*"), |target, database, mut keys| {
        keys.retain(|key| database != 0 || !states.iter().any(|state| state.as_bytes() == key.as_slice()));
        let removal = |key: &Vec<u8>| {
            let mut job = Job::new(database, key_slot(key));
            job.push(&[b"DEL", key]);
            job
        };
        target.ask(&mut keys.iter().map(removal).collect::<Vec<_>>())
    })
}
