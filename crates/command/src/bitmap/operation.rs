//! BITOP: strings combined bit by bit; `value::bits` combines.
//!
//! Thread rule: as for all handlers.
//!
//! Invariants:
//! 1. An empty result deletes the target key instead of storing it.

use crate::args::Args;
use crate::error::{Error, Result};
use crate::generic::remove_for_nothing;
use crate::row::Outcome;
use crate::string::Text;
use keyspace::{Class, Edit, Expiry, NewValue};
use smallvec::SmallVec;
use std::borrow::Cow;
use value::bits::{BitOp, bitop as combine};
use wire::Reply;

fn operation(args: &Args<'_>) -> Result<BitOp> {
    let all = [("AND", BitOp::And), ("OR", BitOp::Or), ("XOR", BitOp::Xor), ("NOT", BitOp::Not)];
    let found = all.into_iter().find(|(word, _)| args.is(1, word));
    found.map(|(_, operation)| operation).ok_or(Error::Syntax)
}

/// BITOP <AND | OR | XOR | NOT> destkey key [key ...]
pub(super) fn bitop(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let operation = operation(args)?;
    if operation == BitOp::Not && args.len() != 4 {
        return Err(Error::text("ERR BITOP NOT must be called with a single source key."));
    }
    let mut sources: SmallVec<[Cow<'_, [u8]>; 8]> = SmallVec::new();
    for position in 3..args.len() {
        sources.push(match Text::of(edit.get_as_reader(&args.key(position)))? {
            Some(Text::Bytes(bytes)) => Cow::Borrowed(bytes),
            Some(Text::Int(number)) => Cow::Owned(number.to_string().into_bytes()),
            None => Cow::Borrowed(b""),
        });
    }
    let result = combine(operation, &sources.iter().map(|source| &source[..]).collect::<SmallVec<[_; 8]>>());
    drop(sources);
    reply.int(result.len() as i64);
    let target = args.key(2);
    if result.is_empty() {
        return Ok(if remove_for_nothing(edit, &target) { Outcome::Changed } else { Outcome::Unchanged });
    }
    edit.set(&target, NewValue::Edited(&result), Expiry::Clear);
    edit.note(Class::STRING, "set", &target);
    Ok(Outcome::Changed)
}
