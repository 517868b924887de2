//! How far a migration has come, as the target itself keeps it: keys whose names begin with [`PREFIX`].
//!
//! `tarn-migrate:state:SOURCE` says of each source what it is about ([`State`]). In a server it is written with each part of the stream, in the same
//! transaction, and says exactly up to where the stream is applied. In a cluster it lags behind, and `tarn-migrate:{TAG}:SOURCE` says so of each slot:
//! the number of the copy, and an offset.

use log::ReplicationId;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::str::FromStr;
use wire::{SLOTS, key_slot};

/// What all keys of a migration's own begin with.
pub const PREFIX: &str = "tarn-migrate:";
/// The key by which the end is asked for.
pub const CUT_OVER: &str = "tarn-migrate:cut-over";
/// What it holds until the import has seen it,
pub const ASKED: &[u8] = b"asked";
/// afterwards,
pub const TAKEN: &[u8] = b"taken";
/// and when the attempt that has seen it has come to nothing: who asks then is heard by nobody.
pub const ENDED: &[u8] = b"ended";
/// The source that every import has: who has the first slot.
pub const FIRST_SOURCE: &str = "0";

/// What a migration is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The copy is not whole.
    Copying,
    /// The stream is applied.
    Following,
    /// What is there cannot be gone on from: an error in the stream, or the end has begun.
    Spoilt,
}

/// How far a source's data have come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// What it is about.
    pub stage: Stage,
    /// Which process writes.
    pub owner: u64,
    /// The number of the copy.
    pub copy: u64,
    /// The name of the source's stream.
    pub id: ReplicationId,
    /// Up to where that is applied.
    pub offset: u64,
    /// The database that is selected there.
    pub database: u32,
    /// Whether the target was empty: all that is in it came from here.
    pub is_alone: bool,
    /// The slots of the source.
    pub slots: String,
    /// The processes that the target's masters were.
    pub runs: BTreeSet<String>,
    /// Where the source was.
    pub source: String,
}

impl State {
    /// As a key's value.
    pub fn text(&self) -> String {
        let stage = match self.stage {
            Stage::Copying => "copying",
            Stage::Following => "follows",
            Stage::Spoilt => "spoilt",
        };
        let alone = if self.is_alone { "alone" } else { "beside" };
        let State { owner, copy, id, offset, database, slots, source, .. } = self;
        let runs = self.runs.iter().map(String::as_str).collect::<Vec<_>>().join(",");
        let mut text = String::new();
        // A string takes whatever is written.
        let _ = write!(
            text,
            "{stage} {owner:x} {copy:x} {id} {offset} {database} {alone} {slots} {runs} {source}"
        );
        text
    }

    /// Reads one.
    pub fn read(text: &[u8]) -> Option<State> {
        let mut words = std::str::from_utf8(text).ok()?.split(' ');
        let stage = match words.next()? {
            "copying" => Stage::Copying,
            "follows" => Stage::Following,
            // A version before this one has held times to live by another span: it is not known which of them are held.
            "spoilt" | "following" => Stage::Spoilt,
            _ => return None,
        };
        Some(State {
            stage,
            owner: u64::from_str_radix(words.next()?, 16).ok()?,
            copy: u64::from_str_radix(words.next()?, 16).ok()?,
            id: ReplicationId::from_str(words.next()?).ok()?,
            offset: words.next()?.parse().ok()?,
            database: words.next()?.parse().ok()?,
            is_alone: words.next()? == "alone",
            slots: words.next()?.to_owned(),
            runs: words.next()?.split(',').filter(|run| !run.is_empty()).map(str::to_owned).collect(),
            source: words.next().unwrap_or_default().to_owned(),
        })
    }
}

/// Where the state of a source is kept.
pub fn state_key(source: &str) -> String {
    format!("{PREFIX}state:{source}")
}

/// For each slot something in braces that makes a key one of it.
pub struct Tags(Vec<u32>);

impl Tags {
    /// Finds them.
    pub fn find() -> Tags {
        let mut tags = vec![u32::MAX; SLOTS];
        let mut left = SLOTS;
        for number in 0..u32::MAX {
            if left == 0 {
                break;
            }
            let tag = &mut tags[usize::from(key_slot(number.to_string().as_bytes()))];
            if *tag == u32::MAX {
                *tag = number;
                left -= 1;
            }
        }
        Tags(tags)
    }

    /// The key of a slot for a source.
    pub fn key(&self, slot: u16, source: &str) -> String {
        format!("{PREFIX}{{{}}}:{source}", self.0[usize::from(slot)])
    }
}

/// What is in a slot's key.
pub fn lane_text(copy: u64, offset: u64) -> String {
    format!("{copy:x} {offset}")
}

/// Up to where a slot is applied, if its key is of this copy.
pub fn lane_offset(text: &[u8], copy: u64) -> Option<u64> {
    let (of, offset) = std::str::from_utf8(text).ok()?.split_once(' ')?;
    (u64::from_str_radix(of, 16).ok()? == copy).then(|| offset.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_read_as_it_was_written() {
        let state = State {
            stage: Stage::Following,
            owner: 0xfeed,
            copy: 7,
            id: ReplicationId::from_str(&"ab".repeat(20)).unwrap(),
            offset: 1 << 40,
            database: 3,
            is_alone: true,
            slots: "all".to_owned(),
            runs: ["a1", "b2"].map(str::to_owned).into(),
            source: "10.0.0.9:6379".to_owned(),
        };
        let without = State { runs: BTreeSet::new(), ..state.clone() };
        assert_eq!(State::read(without.text().as_bytes()), Some(without));
        assert_eq!(State::read(state.text().as_bytes()), Some(state.clone()));
        let before = state.text().replace("follows", "following");
        assert_eq!(State::read(before.as_bytes()), Some(State { stage: Stage::Spoilt, ..state }));
        assert_eq!(State::read(b"follows 1 2"), None);
        assert_eq!((lane_offset(b"7 99", 7), lane_offset(b"7 99", 8)), (Some(99), None));
    }

    #[test]
    fn every_slot_has_a_key() {
        let tags = Tags::find();
        assert!((0..16_384u16).all(|slot| key_slot(tags.key(slot, "s").as_bytes()) == slot));
    }
}
