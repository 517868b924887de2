//! Images of hashes in RDB files and DUMP payloads.
//!
//! | type | what follows |
//! |---|---|
//! | 4 | count, then each field and value |
//! | 9 | a zipmap (Redis 2.4) |
//! | 13 | a ziplist of fields and values (up to Redis 6.2) |
//! | 16 | a listpack of fields and values |
//! | 22, 24 | count, then each field's time, name and value; 24 with the first expiry in front (Redis 7.4) |
//! | 23, 25 | a listpack of fields, values and times; 25 with the first expiry in front (Redis 7.4) |
//!
//! A time is 0 where there is none; in type 24 it counts from one millisecond before the first expiry.
//!
//! 1. Types 4, 16 and, for hashes with expiries, 24 are written; all of them are read.
//! 2. No image, however hostile, makes reading panic or take more memory than its bytes can hold, and a hash
//!    that is read has no field twice and is not empty.

use super::{FieldExpiry, Fields, Hash, HashRef, Set, pairs};
use crate::collection::{Thresholds, Type};
use crate::listpack::{Element, Listpack};
use crate::number::IntBuffer;
use crate::rdb::{Drain, Reader, RestoreError, write_length, write_string};
use std::collections::HashSet;
use sys::UnixMs;

const TYPE_FIELDS: u8 = 4;
const TYPE_ZIPMAP: u8 = 9;
const TYPE_ZIPLIST: u8 = 13;
const TYPE_LISTPACK: u8 = 16;
const TYPE_TIMED_FIELDS_EARLY: u8 = 22;
const TYPE_TIMED_LISTPACK_EARLY: u8 = 23;
const TYPE_TIMED_FIELDS: u8 = 24;
const TYPE_TIMED_LISTPACK: u8 = 25;

/// Before every moment of expiry: an image keeps fields whose time is up.
const NO_TIME: UnixMs = UnixMs(0);

impl HashRef<'_> {
    /// Appends the type's byte and the image.
    pub(crate) fn write_image(self, out: &mut Vec<u8>, drain: Drain<'_>) {
        match self {
            HashRef::Packed(listpack) => {
                out.push(TYPE_LISTPACK);
                write_string(out, listpack.bytes());
            }
            HashRef::Table(fields) => match fields.first_expiry() {
                None => write_fields(out, fields, drain),
                Some(first) => write_timed_fields(out, fields, first, drain),
            },
        }
    }

    /// The same as any version reads it: fields and values one by one, unless some expire.
    pub(crate) fn write_plain_image(self, out: &mut Vec<u8>, drain: Drain<'_>) {
        let HashRef::Packed(listpack) = self else { return self.write_image(out, drain) };
        out.push(TYPE_FIELDS);
        write_length(out, self.len() as u64);
        let digits = &mut IntBuffer::new();
        for element in listpack.iter() {
            write_string(out, element.bytes(digits));
            drain(out);
        }
    }
}

fn write_fields(out: &mut Vec<u8>, fields: &Fields, drain: Drain<'_>) {
    out.push(TYPE_FIELDS);
    write_length(out, fields.len() as u64);
    for field in fields.iter() {
        write_string(out, field.name);
        write_string(out, field.value);
        drain(out);
    }
}

fn write_timed_fields(out: &mut Vec<u8>, fields: &Fields, first: UnixMs, drain: Drain<'_>) {
    out.push(TYPE_TIMED_FIELDS);
    out.extend_from_slice(&first.0.to_le_bytes());
    write_length(out, fields.len() as u64);
    for field in fields.iter() {
        write_length(out, field.expires_at.map_or(0, |at| at.0 - first.0 + 1));
        write_string(out, field.name);
        write_string(out, field.value);
        drain(out);
    }
}

impl Hash {
    /// The RDB types of compact encodings, which hold their bytes as they were.
    pub(crate) const COMPACT_IMAGE_TYPES: &'static [u8] = &[TYPE_LISTPACK];
    /// The RDB types that [`Hash::read_image`] reads.
    pub(crate) const IMAGE_TYPES: &'static [u8] = &[
        TYPE_FIELDS,
        TYPE_ZIPMAP,
        TYPE_ZIPLIST,
        TYPE_LISTPACK,
        TYPE_TIMED_FIELDS_EARLY,
        TYPE_TIMED_LISTPACK_EARLY,
        TYPE_TIMED_FIELDS,
        TYPE_TIMED_LISTPACK,
    ];

    /// Reads an image of the RDB type given.
    pub(crate) fn read_image(
        image_type: u8,
        image: &mut Reader<'_>,
        thresholds: &Thresholds,
    ) -> Result<Hash, RestoreError> {
        let bad = || RestoreError::BadFormat;
        let hash = match image_type {
            TYPE_FIELDS => read_fields(image, thresholds)?,
            TYPE_ZIPMAP => of_zipmap(&image.string()?, thresholds).ok_or_else(bad)?,
            TYPE_ZIPLIST => {
                let listpack = crate::ziplist::to_listpack(&image.string()?).ok_or_else(bad)?;
                of_listpack(listpack, thresholds)?
            }
            TYPE_LISTPACK => of_listpack(Listpack::validated(image.string()?).ok_or_else(bad)?, thresholds)?,
            TYPE_TIMED_FIELDS | TYPE_TIMED_FIELDS_EARLY => read_timed_fields(image_type, image, thresholds)?,
            TYPE_TIMED_LISTPACK | TYPE_TIMED_LISTPACK_EARLY => {
                if image_type == TYPE_TIMED_LISTPACK {
                    image.array::<8>()?;
                }
                let listpack = Listpack::validated(image.string()?).ok_or_else(bad)?;
                of_timed_listpack(&listpack, thresholds)?
            }
            _ => return Err(bad()),
        };
        if hash.is_empty() { Err(bad()) } else { Ok(hash) }
    }

    /// Adds a field; refused if it is there already.
    fn add(
        &mut self,
        name: &[u8],
        value: &[u8],
        expires_at: Option<UnixMs>,
        thresholds: &Thresholds,
    ) -> Result<(), RestoreError> {
        if self.set(name, value, FieldExpiry::Clear, thresholds, NO_TIME) == Set::Replaced {
            return Err(RestoreError::BadFormat);
        }
        if expires_at.is_some() {
            self.set_expiry(name, expires_at);
        }
        Ok(())
    }
}

fn read_fields(image: &mut Reader<'_>, thresholds: &Thresholds) -> Result<Hash, RestoreError> {
    let mut hash = Hash::default();
    for _ in 0..image.length()? {
        let (name, value) = (image.string()?, image.string()?);
        hash.add(&name, &value, None, thresholds)?;
    }
    Ok(hash)
}

fn read_timed_fields(
    image_type: u8,
    image: &mut Reader<'_>,
    thresholds: &Thresholds,
) -> Result<Hash, RestoreError> {
    let first = match image_type {
        TYPE_TIMED_FIELDS => u64::from_le_bytes(image.array()?),
        _ => 1,
    };
    let mut hash = Hash::default();
    for _ in 0..image.length()? {
        let expires_at = match image.length()? {
            0 => None,
            after => Some(moment(first.checked_add(after - 1))?),
        };
        let (name, value) = (image.string()?, image.string()?);
        hash.add(&name, &value, expires_at, thresholds)?;
    }
    Ok(hash)
}

fn moment(ms: Option<u64>) -> Result<UnixMs, RestoreError> {
    ms.filter(|ms| i64::try_from(*ms).is_ok()).map(UnixMs).ok_or(RestoreError::BadFormat)
}

/// As in Redis only the number of fields decides whether a listpack stays one.
fn of_listpack(listpack: Listpack, thresholds: &Thresholds) -> Result<Hash, RestoreError> {
    let count = listpack.as_ref().len();
    let mut names = HashSet::new();
    if !count.is_multiple_of(2) || !pairs(listpack.as_ref()).all(|(name, _)| names.insert(name.to_vec())) {
        return Err(RestoreError::BadFormat);
    }
    let mut hash = Hash::Packed(listpack);
    if count / 2 > thresholds.hash_max_listpack_entries {
        hash.become_table();
    }
    Ok(hash)
}

fn of_timed_listpack(listpack: &Listpack, thresholds: &Thresholds) -> Result<Hash, RestoreError> {
    let mut hash = Hash::default();
    let mut elements = listpack.as_ref().iter();
    while let Some(name) = elements.next() {
        let (Some(value), Some(Element::Int(at))) = (elements.next(), elements.next()) else {
            return Err(RestoreError::BadFormat);
        };
        let expires_at = match at {
            0 => None,
            at => Some(moment(u64::try_from(at).ok())?),
        };
        hash.add(&name.to_vec(), &value.to_vec(), expires_at, thresholds)?;
    }
    Ok(hash)
}

/// A zipmap: a count, then lengths with their bytes, the value's followed by the number of unused bytes behind
/// it, and an end mark.
fn of_zipmap(bytes: &[u8], thresholds: &Thresholds) -> Option<Hash> {
    const END: u8 = 0xff;
    let (_count, mut rest) = bytes.split_first()?;
    let mut hash = Hash::default();
    while rest != [END] {
        let name_bytes = zipmap_length(&mut rest)?;
        let name = rest.split_off(..name_bytes)?;
        let value_bytes = zipmap_length(&mut rest)?;
        let unused = usize::from(*rest.split_off_first()?);
        let value = rest.split_off(..value_bytes)?;
        rest.split_off(..unused)?;
        hash.add(name, value, None, thresholds).ok()?;
    }
    Some(hash)
}

fn zipmap_length(rest: &mut &[u8]) -> Option<usize> {
    match *rest.split_off_first()? {
        short @ 0..254 => Some(usize::from(short)),
        254 => {
            let (length, after) = rest.split_first_chunk()?;
            *rest = after;
            Some(u32::from_le_bytes(*length) as usize)
        }
        _ => None,
    }
}
