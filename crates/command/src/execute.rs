//! Runs one data command: finds its keys, locks their slots, calls the handler,
//! and unlocks. The only place that knows how handlers and locks go together.
//!
//! What comes before (arity, permissions, memory) and after (statistics, errors
//! as replies) is the caller's: crate `server`'s dispatch.

use crate::args::{Args, Hashed};
use crate::error::Result;
use crate::row::{Flags, Handler, Keys, Outcome, Row};
use keyspace::{Batch, ExpiredKey, Key, Touch};
use smallvec::SmallVec;
use wire::{Reply, Request};

/// Keys of most commands; beyond, the list is allocated.
type KeyList<'a> = SmallVec<[Key<'a>; 8]>;

/// What running a command came to.
#[derive(Debug)]
pub struct Executed {
    /// What changed, or what the client is to be told instead of a reply.
    pub outcome: Result<Outcome>,
    /// Keys that the command found expired; they are freed by now.
    pub expired: Vec<ExpiredKey>,
}

/// Runs a command whose arity has been checked. On an error the reply may hold
/// a part of an answer, which the caller takes back.
#[inline]
pub fn execute(
    row: &Row,
    batch: &mut Batch<'_>,
    args: &Args<'_>,
    touch: Touch,
    reply: &mut Reply<'_>,
) -> Executed {
    let touch = if row.flags.contains(Flags::NO_TOUCH) { Touch::No } else { touch };
    match row.handler {
        Handler::Read(read) => with_keys(row, args, |keys, args| {
            let view = batch.view(keys, args.now, touch);
            let outcome = read(&view, args, reply).map(|()| Outcome::Unchanged);
            Executed { outcome, expired: view.finish() }
        }),
        Handler::Write(write) => with_keys(row, args, |keys, args| {
            let mut edit = batch.edit(keys, args.now, touch);
            let outcome = write(&mut edit, args, reply);
            Executed { outcome, expired: edit.finish() }
        }),
        Handler::WriteAcross(write, other) => {
            let mut keys = keys_of(row, args);
            if let Some(db) = other(args) {
                let there: KeyList<'_> = keys.iter().map(|key| args.keyspace.key(db, key.bytes)).collect();
                keys.extend(there);
            }
            let mut edit = batch.edit(&keys, args.now, touch);
            let outcome = write(&mut edit, args, reply);
            Executed { outcome, expired: edit.finish() }
        }
        Handler::Exclusive(run) => {
            let outcome = batch.exclusively(args.now, touch, |all| run(all, args, reply));
            Executed { outcome, expired: Vec::new() }
        }
        Handler::Walk(walk) => {
            Executed { outcome: walk(batch, args, reply).map(|()| Outcome::Unchanged), expired: Vec::new() }
        }
    }
}

/// The positions of a request's keys. `positions` is emptied first.
pub fn key_positions(keys: Keys, request: &Request<'_>, positions: &mut Vec<usize>) {
    positions.clear();
    match keys {
        Keys::None => {}
        Keys::Range { first, last, step } => positions.extend(range(first, last, step, request.len())),
        Keys::Movable(find) => find(request, positions),
    }
}

fn range(first: usize, last: isize, step: usize, len: usize) -> impl Iterator<Item = usize> {
    let end = if last < 0 { len.saturating_add_signed(last) } else { last as usize };
    (first..=end.min(len - 1)).step_by(step)
}

/// Calls `run` with the request's keys, and with arguments that know their hashes.
#[inline]
fn with_keys<T>(row: &Row, args: &Args<'_>, run: impl FnOnce(&[Key<'_>], &Args<'_>) -> T) -> T {
    match row.keys {
        Keys::Range { first, last, .. } if last == first as isize => {
            let keys = [args.key(first)];
            run(&keys, &Args { hashed: Hashed::new(first, 1, &keys), ..*args })
        }
        Keys::Range { first, step, .. } => {
            let keys = keys_of(row, args);
            run(&keys, &Args { hashed: Hashed::new(first, step, &keys), ..*args })
        }
        Keys::None | Keys::Movable(_) => run(&keys_of(row, args), args),
    }
}

fn keys_of<'a>(row: &Row, args: &Args<'a>) -> KeyList<'a> {
    match row.keys {
        Keys::None => KeyList::new(),
        Keys::Range { first, last, step } => {
            range(first, last, step, args.len()).map(|position| args.key(position)).collect()
        }
        Keys::Movable(find) => {
            let mut positions = Vec::new();
            find(&args.request, &mut positions);
            positions.into_iter().map(|position| args.key(position)).collect()
        }
    }
}
