//! Runs one data command: finds its keys, locks their slots, calls the handler,
//! and unlocks. The only place that knows how handlers and locks go together.
//!
//! What comes before (arity, permissions, memory) and after (statistics, errors
//! as replies) is the caller's: crate `server`'s dispatch.

use crate::args::{Args, Hashed};
use crate::effects;
use crate::error::{Error, Result};
use crate::key_use::{Begin, Find};
use crate::row::{Flags, Handler, Keys, Outcome, Row, WriteHandler};
use crate::wait::{Wait, Waiting};
use keyspace::{Batch, Edit, Key, Purpose, Ticket, Touch, View};
use smallvec::SmallVec;
use wire::{Reply, Request};

/// Keys of most commands; beyond, the list is allocated.
type KeyList<'a> = SmallVec<[Key<'a>; 8]>;

/// Runs a command whose arity has been checked. On an error the reply may hold
/// a part of an answer, which the caller takes back.
///
/// A command that changed a key for which somebody waits leaves its slots held in
/// the batch ([`Batch::has_ready`]): the caller serves them and releases.
///
/// # Errors
/// What the client is to be told instead of a reply; [`Error::InUse`] before anything was done.
#[inline]
pub fn execute(
    row: &Row,
    batch: &mut Batch<'_>,
    args: &Args<'_>,
    touch: Touch,
    reply: &mut Reply<'_>,
) -> Result<Outcome> {
    let touch = match touch {
        Touch::Yes if row.flags.contains(Flags::NO_TOUCH) => Touch::No,
        // In a script it is the script that touches, which is not meant to.
        Touch::Never if row.flags.contains(Flags::TOUCHES) && !args.is_of_script() => Touch::Yes,
        touch => touch,
    };
    let outcome = match batch.effects() {
        None => run(row, batch, args, touch, reply),
        effects => run(row, batch, &Args { effects, ..*args }, touch, reply),
    };
    readable(batch).and(outcome)
}

/// Whether all that was looked for could be read. A handler does not run without its keys; one that found other keys unreadable has
/// changed nothing.
///
/// # Errors
/// What could not be read.
#[inline]
pub fn readable(batch: &Batch<'_>) -> Result<()> {
    match batch.take_unreadable() {
        None => Ok(()),
        Some(error) => Err(Error::Unreadable(format!("ERR {error}").into_bytes().into())),
    }
}

/// The keys of a command, to be read.
#[inline]
fn view<'b>(batch: &'b Batch<'_>, keys: &[Key<'_>], args: &Args<'_>, touch: Touch) -> Result<View<'b>> {
    let view = batch.try_view(keys, args.now, touch).ok_or(Error::InUse)?;
    readable(batch).map(|()| view)
}

/// The same, to be changed.
#[inline]
fn edit<'b>(
    row: &Row,
    batch: &'b Batch<'_>,
    keys: &[Key<'_>],
    args: &Args<'_>,
    touch: Touch,
) -> Result<Edit<'b>> {
    let edit = match batch.has_shelf() && purpose(row, &args.request) == Purpose::Replace {
        true => batch.try_replace(keys, args.now, touch),
        false => batch.try_edit(keys, args.now, touch),
    };
    let mut edit = edit.ok_or(Error::InUse)?;
    if row.flags.contains(Flags::READONLY) {
        // It edits what it caches in a value, and may do so where nobody may write.
        edit.remove_nothing_kept();
    }
    readable(batch).map(|()| edit)
}

/// What a request wants its keys for.
pub fn purpose<H>(row: &Row<H>, request: &Request<'_>) -> Purpose {
    match row.replaces {
        Some(replaces) if replaces(request) => Purpose::Replace,
        _ if row.flags.contains(Flags::WRITE) => Purpose::Change,
        _ => Purpose::Read,
    }
}

#[inline]
fn run(
    row: &Row,
    batch: &mut Batch<'_>,
    args: &Args<'_>,
    touch: Touch,
    reply: &mut Reply<'_>,
) -> Result<Outcome> {
    match row.handler {
        Handler::Read(read) => with_keys(row, args, |keys, args| {
            let view = view(batch, keys, args, touch)?;
            args.now = view.now();
            let outcome = read(&view, args, reply).map(|()| Outcome::Unchanged);
            view.finish();
            outcome
        }),
        Handler::Write(write) => with_keys(row, args, |keys, args| {
            let mut edit = edit(row, batch, keys, args, touch)?;
            args.now = edit.now();
            let outcome = write(&mut edit, args, reply);
            finish(row, edit, keys, args, outcome)
        }),
        Handler::BlockingRead(read) => {
            let view = view(batch, &keys_at_hand(row, batch, args), args, touch)?;
            let args = &Args { now: view.now(), ..*args };
            let outcome = read(&view, args, reply);
            let outcome = wait_for_keys(outcome, args, reply, |ticket, keys, wait| {
                view.wait(ticket, keys, wait.wants, wait.also_when_gone);
            });
            view.finish();
            outcome
        }
        Handler::BlockingWrite(write) => run_blocking_write(write, row, batch, args, touch, reply),
        Handler::WriteAcross(write, _) => run_write(write, row, batch, args, touch, reply),
        Handler::ReadAround(read, _) => with_all_if_needed(row, batch, args, |batch, args| {
            let view = view(batch, &keys_of(row, args), args, touch)?;
            let args = &Args { now: view.now(), ..*args };
            let outcome = read(&view, args, reply).map(|()| Outcome::Unchanged);
            view.finish();
            outcome
        }),
        Handler::WriteAround(write, _) => with_all_if_needed(row, batch, args, |batch, args| {
            run_write(write, row, batch, args, touch, reply)
        }),
        Handler::Exclusive(run) => with_all_if_needed(row, batch, args, |batch, args| {
            batch.exclusively(args.now, touch, |all| {
                let outcome = run(all, args, reply);
                if outcome == Ok(Outcome::Changed) {
                    effects::log_request(args);
                }
                outcome
            })
        }),
        Handler::Walk(walk) => walk(batch, args, reply).map(|()| Outcome::Unchanged),
    }
}

/// Runs a write that may have to wait for some of its keys.
fn run_blocking_write(
    write: WriteHandler,
    row: &Row,
    batch: &Batch<'_>,
    args: &Args<'_>,
    touch: Touch,
    reply: &mut Reply<'_>,
) -> Result<Outcome> {
    let keys = keys_at_hand(row, batch, args);
    let mut edit = edit(row, batch, &keys, args, touch)?;
    let args = &Args { now: edit.now(), ..*args };
    let outcome = write(&mut edit, args, reply);
    let outcome = wait_for_keys(outcome, args, reply, |ticket, waited_for, wait| {
        let is_beside = |key: &&Key<'_>| !waited_for.iter().any(|other| other.bytes == key.bytes);
        let beside: KeyList<'_> = keys.iter().filter(is_beside).copied().collect();
        if !beside.is_empty() {
            edit.wait_beside(ticket, &beside);
        }
        edit.wait(ticket, waited_for, wait.wants, wait.also_when_gone);
    });
    finish(row, edit, &keys, args, outcome)
}

/// Runs a write that takes its keys from the request itself.
fn run_write(
    write: WriteHandler,
    row: &Row,
    batch: &Batch<'_>,
    args: &Args<'_>,
    touch: Touch,
    reply: &mut Reply<'_>,
) -> Result<Outcome> {
    let keys = keys_of(row, args);
    let mut edit = edit(row, batch, &keys, args, touch)?;
    let args = &Args { now: edit.now(), ..*args };
    let outcome = write(&mut edit, args, reply);
    // What it found beside its keys is part of what it has done.
    let outcome = readable(batch).and(outcome);
    finish(row, edit, &keys, args, outcome)
}

/// Logs what a write came down to, and unlocks.
#[inline]
fn finish(
    row: &Row,
    edit: Edit<'_>,
    keys: &[Key<'_>],
    args: &Args<'_>,
    outcome: Result<Outcome>,
) -> Result<Outcome> {
    if args.is_logged() {
        if effects::is_as_requested(keys, &outcome) && args.may_say(&args.request) {
            edit.finish_as(args.db, args.request);
            return outcome;
        }
        effects::log_write(row, &edit, keys, args, &outcome);
    }
    edit.finish();
    outcome
}

/// Whether a command can only run with the whole keyspace held, or locks slots on its own.
pub fn needs_all(row: &Row, args: &Args<'_>) -> bool {
    match row.handler {
        Handler::Exclusive(_) | Handler::Walk(_) => true,
        Handler::ReadAround(_, reaches_out) | Handler::WriteAround(_, reaches_out) => reaches_out(args),
        Handler::Read(_)
        | Handler::Write(_)
        | Handler::BlockingRead(_)
        | Handler::BlockingWrite(_)
        | Handler::WriteAcross(..) => false,
    }
}

/// The names of all keys that a request locks.
pub fn keys_locked<'a>(row: &Row, args: &Args<'a>, into: &mut Vec<Key<'a>>) {
    into.extend(keys_of(row, args));
}

/// Holds the whole keyspace around `run` if the request reaches for keys that it does not name.
fn with_all_if_needed<T>(
    row: &Row,
    batch: &mut Batch<'_>,
    args: &Args<'_>,
    run: impl FnOnce(&mut Batch<'_>, &Args<'_>) -> Result<T>,
) -> Result<T> {
    let takes_all = needs_all(row, args) && !batch.holds_all();
    if takes_all && !batch.try_hold_all() {
        return Err(Error::InUse);
    }
    let result = match takes_all {
        true => run(batch, &Args { now: batch.moment(args.now), ..*args }),
        false => run(batch, args),
    };
    if takes_all && !batch.has_ready() {
        batch.release();
    }
    result
}

/// Queues the session up if the handler found that it must wait, while the slots are still
/// locked. Where a session may not wait, it gets the null that it would get in the end.
fn wait_for_keys(
    outcome: Result<Outcome>,
    args: &Args<'_>,
    reply: &mut Reply<'_>,
    queue_up: impl FnOnce(Ticket, &[Key<'_>], &Wait),
) -> Result<Outcome> {
    let Ok(Outcome::Blocked(wait)) = outcome else { return outcome };
    match args.waiting {
        Waiting::Never => {
            wait.null.write(reply);
            return Ok(Outcome::Unchanged);
        }
        Waiting::Already => {}
        Waiting::Begins(sessions) => {
            let keys: KeyList<'_> = wait.keys.iter().map(|position| args.key(*position)).collect();
            queue_up(sessions.ticket(), &keys, &wait);
            sessions.begin_wait(&wait, args, &keys);
        }
    }
    Ok(Outcome::Blocked(wait))
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

/// The positions of the keys of a command of which some stand behind a keyword, wherever that is: how a client finds them that knows nothing of a command but
/// its key specifications. None of other commands, and where too little stands behind a keyword of which the first half of the rest are keys.
pub fn positions_by_keywords<H>(row: &Row<H>, request: &Request<'_>) -> Option<Vec<usize>> {
    let mut positions = Vec::new();
    let mut has_keyword = false;
    for spec in row.key_specs {
        match (spec.begin, spec.find) {
            (Begin::Index(at), _) => positions.push(at),
            (Begin::Keyword(word, from), Find::Range { last, step: 1, limit }) if from > 0 => {
                has_keyword = true;
                // The last word is not looked at: nothing stands behind it.
                let mut places = from as usize..request.len().saturating_sub(1);
                let keyword = places.find(|at| request.arg(*at).eq_ignore_ascii_case(word.as_bytes()));
                let Some(first) = keyword.map(|at| at + 1) else { continue };
                match (last, limit) {
                    (0, _) => positions.push(first),
                    (-1, 2) if request.len() - first > 1 => {
                        positions.extend(first..first + (request.len() - first) / 2);
                    }
                    _ => return None,
                }
            }
            _ => return None,
        }
    }
    has_keyword.then_some(positions)
}

/// The positions of a range of keys (see [`Keys::Range`]) in a request of this many words.
pub fn range(first: usize, last: isize, step: usize, len: usize) -> impl Iterator<Item = usize> {
    let end = if last < 0 { len.saturating_add_signed(last) } else { last as usize };
    (first..=end.min(len - 1)).step_by(step)
}

/// Calls `run` with the request's keys, and with arguments that know their hashes, to which it may give a later moment.
#[inline]
fn with_keys<T>(row: &Row, args: &Args<'_>, run: impl FnOnce(&[Key<'_>], &mut Args<'_>) -> T) -> T {
    match row.keys {
        Keys::Range { first, last, .. } if last == first as isize => {
            let keys = [args.key(first)];
            run(&keys, &mut Args { hashed: Hashed::new(first, 1, &keys), ..*args })
        }
        Keys::Range { first, step, .. } => {
            let keys = keys_of(row, args);
            run(&keys, &mut Args { hashed: Hashed::new(first, step, &keys), ..*args })
        }
        Keys::None | Keys::Movable(_) => run(&keys_of(row, args), &mut { *args }),
    }
}

/// The keys of a command that may have to wait. If it is run again for a session that waits, those whose slots are held: nothing has
/// come to the others, or whoever brings it serves the session.
fn keys_at_hand<'a>(row: &Row, batch: &Batch<'_>, args: &Args<'a>) -> KeyList<'a> {
    let mut keys = keys_of(row, args);
    if let Waiting::Already = args.waiting {
        keys.retain(|key| batch.holds(std::slice::from_ref(key)));
    }
    keys
}

fn keys_of<'a>(row: &Row, args: &Args<'a>) -> KeyList<'a> {
    let mut keys: KeyList<'a> = match row.keys {
        Keys::None => KeyList::new(),
        Keys::Range { first, last, step } => {
            range(first, last, step, args.len()).map(|position| args.key(position)).collect()
        }
        Keys::Movable(find) => {
            let mut positions = Vec::new();
            find(&args.request, &mut positions);
            positions.into_iter().map(|position| args.key(position)).collect()
        }
    };
    if let Handler::WriteAcross(_, other) = row.handler
        && let Some(db) = other(args)
    {
        let there: KeyList<'_> = keys.iter().map(|key| args.keyspace.key(db, key.bytes)).collect();
        keys.extend(there);
    }
    keys
}
