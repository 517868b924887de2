//! Adding entries, taking them away from the front, and setting the last id.

use super::id;
use crate::args::Args;
use crate::error::{Error, Result};
use crate::parse::int;
use crate::row::Outcome;
use keyspace::{Class, Edit, Key};
use value::stream::{AppendError, Bound, IdText, NewId, NodeLimits, SetIdError, Stream, StreamId, Trim};
use wire::Reply;

/// What XADD does about a key that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IfMissing {
    Make,
    Leave,
}

/// How entries are to be taken away, as far as the words have said it.
#[derive(Default)]
struct TrimWords {
    bound: Option<Bound>,
    is_approximate: bool,
    limit: Option<u64>,
}

impl TrimWords {
    /// Reads MAXLEN, MINID or LIMIT with their words at a position; tells how many they are, or 0 if it is
    /// none of them.
    fn take(&mut self, args: &Args<'_>, position: usize) -> Result<usize> {
        let more = args.len() - 1 - position;
        let is_maxlen = args.is(position, "MAXLEN");
        if more > 0 && (is_maxlen || args.is(position, "MINID")) {
            if self.bound.is_some() {
                return Err(Error::TRIM_TWICE);
            }
            let sign = args.bytes(position + 1);
            let words = if more > 1 && matches!(sign, b"~" | b"=") { 3 } else { 2 };
            self.is_approximate = words == 3 && sign == b"~";
            let threshold = args.bytes(position + words - 1);
            self.bound = Some(match is_maxlen {
                true => Bound::MaxLen(u64::try_from(int(threshold)?).map_err(|_| Error::TRIM_MAXLEN)?),
                false => Bound::MinId(id(threshold)?),
            });
            return Ok(words);
        }
        if more > 0 && args.is(position, "LIMIT") {
            let limit = int(args.bytes(position + 1))?;
            self.limit = Some(u64::try_from(limit).map_err(|_| Error::TRIM_LIMIT)?);
            return Ok(2);
        }
        Ok(0)
    }

    /// What they come to. A Redis that tells its followers or its log what it trimmed writes `=` and the bound that it came to in
    /// the place of `~`, and leaves LIMIT, which counts no more.
    fn finish(self, args: &Args<'_>, limits: NodeLimits) -> Result<Option<Trim>> {
        let Some(bound) = self.bound else {
            return match self.limit {
                None => Ok(None),
                // Redis does not see that it was given, but that `~` was not.
                Some(0) => Err(Error::TRIM_LIMIT_EXACT),
                Some(_) => Err(Error::TRIM_LIMIT_ALONE),
            };
        };
        match (self.is_approximate, self.limit) {
            (true, limit) => Ok(Some(Trim::WholeNodes(bound, limit.unwrap_or_else(|| usual_limit(limits))))),
            (false, limit) if limit.is_none() || args.is_of_log() => Ok(Some(Trim::Exact(bound))),
            (false, _) => Err(Error::TRIM_LIMIT_EXACT),
        }
    }
}

/// How many entries are taken away at most when the client does not say: a hundred nodes.
fn usual_limit(limits: NodeLimits) -> u64 {
    /// Where nodes have no limit.
    const UNLIMITED: u64 = 10_000;
    const MAX: u64 = 1_000_000;
    match limits.entries_max.saturating_mul(100) {
        0 => UNLIMITED,
        limit => limit.min(MAX),
    }
}

fn node_limits(args: &Args<'_>) -> NodeLimits {
    let thresholds = args.settings.thresholds();
    NodeLimits {
        bytes_max: thresholds.stream_node_max_bytes as u64,
        entries_max: thresholds.stream_node_max_entries as u64,
    }
}

/// The words of XADD.
struct Addition {
    id: NewId,
    first_word: usize,
    if_missing: IfMissing,
    trim: Option<Trim>,
}

impl Addition {
    fn parse(args: &Args<'_>, limits: NodeLimits) -> Result<Addition> {
        let mut trim = TrimWords::default();
        let mut if_missing = IfMissing::Make;
        let mut new_id = None;
        let mut position = 2;
        while position < args.len() && new_id.is_none() {
            let word = args.bytes(position);
            let taken = if word == b"*" { 0 } else { trim.take(args, position)? };
            position += taken.max(1);
            if taken > 0 {
                continue;
            }
            if word.eq_ignore_ascii_case(b"NOMKSTREAM") {
                if_missing = IfMissing::Leave;
            } else {
                new_id = Some(NewId::parse(word).map_err(|_| Error::STREAM_ID)?);
            }
        }
        let trim = trim.finish(args, limits)?;
        let words = args.len() - position.min(args.len());
        let Some(id) = new_id.filter(|_| words >= 2 && words.is_multiple_of(2)) else {
            return Err(Error::arity("xadd"));
        };
        if id == NewId::Exact(StreamId::MIN) {
            return Err(Error::XADD_ZERO);
        }
        Ok(Addition { id, first_word: position, if_missing, trim })
    }
}

/// XADD key [NOMKSTREAM] [MAXLEN | MINID [= | ~] threshold [LIMIT count]] id field value [field value ...]
pub(super) fn xadd(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let limits = node_limits(args);
    let addition = Addition::parse(args, limits)?;
    let key = args.key(1);
    let mut stream = match addition.if_missing {
        IfMissing::Make => edit.open_or_new(&key, Stream::new)?,
        IfMissing::Leave => match edit.open::<Stream>(&key)? {
            Some(stream) => stream,
            None => {
                reply.null();
                return Ok(Outcome::Unchanged);
            }
        },
    };
    if stream.entries.last_id() == StreamId::MAX {
        return Err(Error::XADD_EXHAUSTED);
    }
    let id = stream.entries.next_id(addition.id, args.present().0).ok_or(Error::XADD_TOO_SMALL)?;
    let words = (addition.first_word..args.len()).map(|position| args.bytes(position));
    stream.entries.append(id, words, limits).map_err(|error| match error {
        AppendError::IdTooSmall => Error::XADD_TOO_SMALL,
        AppendError::TooLong => Error::XADD_TOO_LONG,
    })?;
    super::reply_id(id, reply);
    stream.note(Class::STREAM, "xadd");
    if args.is_logged() {
        let id = IdText::of(id);
        let words: Vec<&[u8]> = [b"XADD", key.bytes, id.as_bytes()]
            .into_iter()
            .chain((addition.first_word..args.len()).map(|position| args.bytes(position)))
            .collect();
        args.log_as(&words);
    }
    if let Some(trim) = addition.trim
        && stream.entries.trim(trim) > 0
    {
        stream.note(Class::STREAM, "xtrim");
        log_trimmed(args, &key, stream.entries.len());
    }
    Ok(Outcome::Changed)
}

/// Where an approximate trim stops depends on how entries lie in memory: what is left is logged.
fn log_trimmed(args: &Args<'_>, key: &Key<'_>, left: u64) {
    args.log_as_with(&[b"XTRIM", key.bytes, b"MAXLEN", b"="], left as i64);
}

/// XTRIM key MAXLEN | MINID [= | ~] threshold [LIMIT count]
pub(super) fn xtrim(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let mut words = TrimWords::default();
    let mut position = 2;
    while position < args.len() {
        let taken = words.take(args, position)?;
        if taken == 0 {
            return Err(Error::Syntax);
        }
        position += taken;
    }
    if words.bound.is_none() && words.limit.is_none_or(|limit| limit == 0) {
        return Err(Error::TRIM_UNBOUND);
    }
    let trim = words.finish(args, node_limits(args))?.ok_or(Error::TRIM_UNBOUND)?;
    let key = args.key(1);
    let Some(mut stream) = edit.open::<Stream>(&key)? else {
        reply.int(0);
        return Ok(Outcome::Unchanged);
    };
    let removed = stream.entries.trim(trim);
    reply.int(removed as i64);
    if removed == 0 {
        return Ok(Outcome::Unchanged);
    }
    stream.note(Class::STREAM, "xtrim");
    log_trimmed(args, &key, stream.entries.len());
    Ok(Outcome::Changed)
}

/// XSETID key last-id [ENTRIESADDED entries-added] [MAXDELETEDID max-deleted-id]
pub(super) fn xsetid(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let last_id = id(args.bytes(2))?;
    let (mut entries_added, mut max_deleted_id) = (None, StreamId::MIN);
    let mut position = 3;
    while position < args.len() {
        let has_operand = position + 1 < args.len();
        if has_operand && args.is(position, "ENTRIESADDED") {
            let added = int(args.bytes(position + 1))?;
            entries_added = Some(u64::try_from(added).map_err(|_| Error::XSETID_ADDED)?);
        } else if has_operand && args.is(position, "MAXDELETEDID") {
            max_deleted_id = id(args.bytes(position + 1))?;
            if last_id < max_deleted_id {
                return Err(Error::XSETID_BELOW_GIVEN);
            }
        } else {
            return Err(Error::Syntax);
        }
        position += 2;
    }
    let key = args.key(1);
    let Some(mut stream) = edit.open::<Stream>(&key)? else { return Err(Error::NO_SUCH_KEY) };
    stream.entries.set_last_id(last_id, entries_added, max_deleted_id).map_err(|error| match error {
        SetIdError::BelowDeleted => Error::XSETID_BELOW_DELETED,
        SetIdError::BelowLastEntry => Error::XSETID_BELOW_TOP,
        SetIdError::BelowLength => Error::XSETID_BELOW_LENGTH,
    })?;
    drop(stream);
    edit.note(Class::STREAM, "xsetid", &key);
    reply.ok();
    Ok(Outcome::Changed)
}
