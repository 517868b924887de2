//! BITOP: strings combined bit by bit.
//!
//! Thread rule: as for all handlers.
//!
//! Invariants:
//! 1. The result is as long as the longest string; shorter ones count as filled
//!    up with zeros.

use crate::args::Args;
use crate::error::{Error, Result};
use crate::row::Outcome;
use crate::string::Text;
use keyspace::{Edit, Expiry, NewValue};
use wire::Reply;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    And,
    Or,
    Xor,
    Not,
}

impl Operation {
    fn parse(args: &Args<'_>) -> Result<Operation> {
        let all = [
            ("AND", Operation::And),
            ("OR", Operation::Or),
            ("XOR", Operation::Xor),
            ("NOT", Operation::Not),
        ];
        let found = all.into_iter().find(|(word, _)| args.is(1, word));
        found.map(|(_, operation)| operation).ok_or(Error::Syntax)
    }

    /// Combines `other` into what has been combined so far.
    fn combine(self, result: &mut Vec<u8>, other: &[u8]) {
        if result.len() < other.len() {
            result.resize(other.len(), 0);
        }
        let (shared, rest) = result.split_at_mut(other.len());
        let pairs = shared.iter_mut().zip(other);
        match self {
            Operation::And => {
                pairs.for_each(|(byte, other)| *byte &= other);
                rest.fill(0);
            }
            Operation::Or => pairs.for_each(|(byte, other)| *byte |= other),
            Operation::Xor => pairs.for_each(|(byte, other)| *byte ^= other),
            Operation::Not => unreachable!("NOT has one string"),
        }
    }
}

/// BITOP <AND | OR | XOR | NOT> destkey key [key ...]
pub(super) fn bitop(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let operation = Operation::parse(args)?;
    if operation == Operation::Not && args.len() != 4 {
        return Err(Error::text("ERR BITOP NOT must be called with a single source key."));
    }
    let mut result: Option<Vec<u8>> = None;
    let mut digits = itoa::Buffer::new();
    for position in 3..args.len() {
        let object = edit.get(&args.key(position));
        edit.count_read(object.is_some());
        let bytes = Text::of(object)?.map_or(&b""[..], |text| text.bytes(&mut digits));
        match &mut result {
            None => result = Some(bytes.to_vec()),
            Some(result) => operation.combine(result, bytes),
        }
    }
    let mut result = result.unwrap_or_default();
    if operation == Operation::Not {
        result.iter_mut().for_each(|byte| *byte = !*byte);
    }
    reply.int(result.len() as i64);
    let target = args.key(2);
    if result.is_empty() {
        return Ok(if edit.remove(&target) { Outcome::Changed } else { Outcome::Unchanged });
    }
    edit.set(&target, NewValue::Edited(&result), Expiry::Clear);
    Ok(Outcome::Changed)
}
