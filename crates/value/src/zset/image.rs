//! RDB images of sorted sets.
//!
//! Written: a packed set is its listpack (type 17), a native one its members and binary
//! scores from the last to the first (type 5). Read: these, the older form with scores as
//! texts (type 3) and the ziplist (type 12). Where a score is -0 we write type 3 for ourselves, and read it as a native set.
//!
//! Thread rule: pure functions.
//!
//! 1. What is read is checked in full: order, scores, and that members differ; a payload that is not a
//!    sorted set is refused, and takes no more memory than its own length.

use super::{Zset, ZsetRef};
use crate::collection::Thresholds;
use crate::listpack::{Element, Listpack};
use crate::number::{IntBuffer, format_f64, parse_f64};
use crate::rdb::{Drain, Reader, RestoreError, write_length, write_string};
use crate::ziplist;
use std::collections::HashSet;

const TYPE_TEXT_SCORES: u8 = 3;
const TYPE_BINARY_SCORES: u8 = 5;
const TYPE_ZIPLIST: u8 = 12;
const TYPE_LISTPACK: u8 = 17;

/// Type 3 has these in place of a score's length.
const TEXT_NAN: u8 = 253;
const TEXT_INFINITY: u8 = 254;
const TEXT_NEGATIVE_INFINITY: u8 = 255;

impl ZsetRef<'_> {
    /// Appends its RDB type byte and image.
    pub(crate) fn write_image(self, out: &mut Vec<u8>, drain: Drain<'_>) {
        if let ZsetRef::Packed(listpack) = self {
            out.push(TYPE_LISTPACK);
            return write_string(out, listpack.bytes());
        }
        self.write_plain_image(out, drain);
    }

    /// The same as every version since Redis 4.0 reads it: members and binary scores.
    pub(crate) fn write_plain_image(self, out: &mut Vec<u8>, drain: Drain<'_>) {
        let write_score = |score: f64, out: &mut Vec<u8>| out.extend_from_slice(&score.to_le_bytes());
        self.write_pairs(TYPE_BINARY_SCORES, out, write_score, drain);
    }

    /// The same for our own use: the scores are texts where one of them is -0, so that it is that for who reads it.
    pub(crate) fn write_exact_image(self, out: &mut Vec<u8>, drain: Drain<'_>) {
        let is_packed = matches!(self, ZsetRef::Packed(_));
        if is_packed || !self.iter(0..self.len()).any(|(_, score)| is_minus_zero(score)) {
            return self.write_image(out, drain);
        }
        self.write_pairs(TYPE_TEXT_SCORES, out, write_text_score, drain);
    }

    fn write_pairs(
        self,
        image_type: u8,
        out: &mut Vec<u8>,
        write_score: fn(f64, &mut Vec<u8>),
        drain: Drain<'_>,
    ) {
        out.push(image_type);
        write_length(out, self.len() as u64);
        for (member, score) in self.iter(0..self.len()).rev() {
            write_string(out, member.bytes(&mut IntBuffer::new()));
            write_score(score, out);
            drain(out);
        }
    }
}

/// Whether a score is -0, which a packed set does not tell from 0, as in Redis.
pub fn is_minus_zero(score: f64) -> bool {
    score == 0.0 && score.is_sign_negative()
}

fn write_text_score(score: f64, out: &mut Vec<u8>) {
    if score.is_infinite() {
        return out.push(if score > 0.0 { TEXT_INFINITY } else { TEXT_NEGATIVE_INFINITY });
    }
    let text = format_f64(score);
    out.push(u8::try_from(text.as_bytes().len()).expect("a number has fewer characters"));
    out.extend_from_slice(text.as_bytes());
}

impl Zset {
    /// The RDB types of compact encodings, which hold their bytes as they were.
    pub(crate) const COMPACT_IMAGE_TYPES: &'static [u8] = &[TYPE_LISTPACK];
    /// The RDB types that [`Zset::read_image`] reads.
    pub(crate) const IMAGE_TYPES: &'static [u8] =
        &[TYPE_TEXT_SCORES, TYPE_BINARY_SCORES, TYPE_ZIPLIST, TYPE_LISTPACK];

    /// Reads an image of the RDB type given.
    pub(crate) fn read_image(
        image_type: u8,
        image: &mut Reader<'_>,
        thresholds: &Thresholds,
    ) -> Result<Zset, RestoreError> {
        match image_type {
            TYPE_LISTPACK => {
                let listpack = Listpack::validated(image.string()?);
                from_listpack(listpack.ok_or(RestoreError::BadFormat)?, thresholds)
            }
            TYPE_ZIPLIST => {
                let listpack = ziplist::to_listpack(&image.string()?);
                from_listpack(listpack.ok_or(RestoreError::BadFormat)?, thresholds)
            }
            _ => read_pairs(image_type, image, thresholds),
        }
    }
}

/// A listpack from outside as a sorted set.
fn from_listpack(listpack: Listpack, thresholds: &Thresholds) -> Result<Zset, RestoreError> {
    let view = listpack.as_ref();
    if view.is_empty() || !view.len().is_multiple_of(2) {
        return Err(RestoreError::BadFormat);
    }
    let mut members = HashSet::new();
    let mut previous: Option<(f64, Vec<u8>)> = None;
    let mut elements = view.iter();
    while let (Some(member), Some(score)) = (elements.next(), elements.next()) {
        let score = match score {
            Element::Int(score) => score as f64,
            Element::Bytes(text) => parse_f64(text).ok_or(RestoreError::BadFormat)?,
        };
        let member = member.to_vec();
        let is_behind = previous
            .as_ref()
            .is_none_or(|(before, other)| *before < score || *before == score && *other < member);
        if !is_behind || !members.insert(member.clone()) {
            return Err(RestoreError::BadFormat);
        }
        previous = Some((score, member));
    }
    let is_long = members.len() > thresholds.zset_max_listpack_entries;
    let mut zset = Zset::Packed(listpack);
    if is_long {
        zset.make_native();
    }
    Ok(zset)
}

/// Members with their scores, in any order.
fn read_pairs(image_type: u8, image: &mut Reader<'_>, thresholds: &Thresholds) -> Result<Zset, RestoreError> {
    let count = image.length()?;
    if count == 0 {
        return Err(RestoreError::BadFormat);
    }
    // Grows with what is really there: the count may be a lie.
    let mut members = Vec::new();
    for _ in 0..count {
        let member = image.string()?;
        let score = match image_type {
            TYPE_BINARY_SCORES => f64::from_le_bytes(image.array()?),
            _ => read_text_score(image)?,
        };
        if score.is_nan() {
            return Err(RestoreError::BadFormat);
        }
        members.push((member, score));
    }
    let different: HashSet<&[u8]> =
        members.iter().map(|(member, _): &(Vec<u8>, f64)| member.as_slice()).collect();
    if different.len() != members.len() {
        return Err(RestoreError::BadFormat);
    }
    let keeps_scores =
        image_type == TYPE_TEXT_SCORES && members.iter().any(|(_, score)| is_minus_zero(*score));
    Ok(if keeps_scores { Zset::native_of(members) } else { Zset::from_members(members, thresholds) })
}

fn read_text_score(image: &mut Reader<'_>) -> Result<f64, RestoreError> {
    match image.byte()? {
        TEXT_NAN => Err(RestoreError::BadFormat),
        TEXT_INFINITY => Ok(f64::INFINITY),
        TEXT_NEGATIVE_INFINITY => Ok(f64::NEG_INFINITY),
        length => parse_f64(image.take(length.into())?).ok_or(RestoreError::BadFormat),
    }
}
