//! How many databases there must be for what a checkpoint and a log hold, and the sentence for a start that has fewer.

use super::copied::{self, named};
use super::recovery::UNLIMITED;
use super::slots::{ChunkKind, Databases, PartHeader};
use crate::Engine;
use ::log::{Record, Recovery};
use command::transfer::Transfer;
use std::fmt;
use std::io;
use std::path::Path;
use value::number::parse_i64;
use wire::{Batch, Parser, Request};

/// Something is in a database that is not there.
#[derive(Debug)]
pub struct TooFew;

impl fmt::Display for TooFew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("there are fewer databases than what was written needs (see `databases`)")
    }
}

impl std::error::Error for TooFew {}

impl From<TooFew> for io::Error {
    fn from(too_few: TooFew) -> io::Error {
        io::Error::other(too_few)
    }
}

/// How many databases a start has that is not told.
pub const BY_DEFAULT: u32 = 16;

/// Why a start with so many databases refuses a directory; None if there are enough.
///
/// # Errors
/// That it cannot be read.
pub fn too_few(dir: &Path, recovery: &Recovery, databases: u32) -> io::Result<Option<String>> {
    let needed = needed(recovery)?;
    Ok((needed > databases).then(|| {
        format!(
            "{} was written with more databases than there are now: `databases` is {databases}, and must be {needed} or more; start with \
             `--databases {needed}`",
            dir.display(),
        )
    }))
}

/// Says how many databases are needed where there are [`TooFew`]; other errors stay as they are.
#[cold]
pub fn explained(engine: &Engine, recovery: &Recovery, error: io::Error) -> io::Error {
    if !error.get_ref().is_some_and(|inner| inner.is::<TooFew>()) {
        return error;
    }
    match too_few(&engine.dir(), recovery, engine.keyspace.databases()) {
        Ok(sentence) => sentence.map_or(error, io::Error::other),
        // What cannot be read is what must be mended first.
        Err(unreadable) => unreadable,
    }
}

/// How many there must be for a chunk of a checkpoint that has these; 0 if it is of none.
pub fn needed_by(chunk: &[u8], databases: Option<&Databases>) -> u32 {
    let number = match ChunkKind::of(chunk) {
        Some((ChunkKind::Slots | ChunkKind::Index, body)) => {
            body.first_chunk::<4>().map(|number| u32::from_le_bytes(*number))
        }
        Some((ChunkKind::Part, body)) => PartHeader::take(body).map(|(header, _)| header.database),
        Some((ChunkKind::Numbers, body)) => return (body.len() / size_of::<u32>()) as u32,
        // A store knows all of them.
        Some((ChunkKind::Databases, _)) => {
            return databases.filter(|all| all.has_store).map_or(0, |all| all.numbers.len() as u32);
        }
        _ => None,
    };
    let db = number.and_then(|number| named(databases, number));
    db.map_or(0, |db| db.0.saturating_add(1))
}

/// The same for all that a start reads.
fn needed(recovery: &Recovery) -> io::Result<u32> {
    let mut needed = 0;
    if let Some(checkpoint) = recovery.checkpoint() {
        let databases = copied::databases_in(checkpoint)?;
        checkpoint.begin_again();
        while let Some(chunk) = checkpoint.next_chunk().map_err(io::Error::other)? {
            needed = needed.max(needed_by(&chunk, databases.as_ref()));
        }
    }
    let mut blocks = recovery.replay();
    let (mut parser, mut effects) = (Parser::new(), Batch::new());
    while let Some(block) = blocks.next_block().map_err(io::Error::other)? {
        for record in block.records() {
            needed = needed.max(needed_by_record(&record, &mut parser, &mut effects));
        }
    }
    Ok(needed)
}

fn needed_by_record(record: &Record<'_>, parser: &mut Parser, effects: &mut Batch) -> u32 {
    effects.clear();
    let parsed = parser.parse(record.payload, &UNLIMITED, effects, usize::MAX);
    let named =
        effects.iter(record.payload).filter(|_| parsed.is_ok()).flat_map(|effect| databases_in(&effect));
    named.fold(record.database, u32::max).saturating_add(1)
}

/// The databases that an effect names beside the one in which it is.
fn databases_in(effect: &Request<'_>) -> Vec<u32> {
    let is = |name: &[u8]| effect.arg(0).eq_ignore_ascii_case(name);
    let number = |word| parse_i64(word).and_then(|number| u32::try_from(number).ok());
    let words = if is(b"select") || is(b"swapdb") { effect.len() } else { 1 };
    let of_transfer = Transfer::of(effect).and_then(|transfer| transfer.database);
    effect.iter().take(words).skip(1).chain(of_transfer).filter_map(number).collect()
}
