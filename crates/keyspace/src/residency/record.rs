//! An object as bytes: what a record holds beside its key and its expiry.
//!
//! ```text
//! 0        4
//! | meta u32 | value |
//! ```
//!
//! `meta` is the kind and the access clock of the object's block. The value is what the block holds (an integer in 8 bytes,
//! a string's bytes, a compact collection), or of a native collection its image as RDB files have it. Little-endian.

use crate::object::{Block, NewValue, Object, Stored, ValueRef};
use sys::UnixMs;
use value::collection::{Collection, Thresholds};
use value::rdb::{is_compact_image, of_image, write_exactly};

const META_BYTES: usize = 4;

/// Native collections come back as they went, however few elements they have now.
const AS_THEY_WERE: Thresholds = Thresholds {
    hash_max_listpack_entries: 0,
    set_max_intset_entries: 0,
    set_max_listpack_entries: 0,
    zset_max_listpack_entries: 0,
    ..Thresholds::DEFAULT
};

/// So do compact ones, which have images where they are too long for a block, however long they are.
const COMPACT_AS_THEY_WERE: Thresholds = Thresholds {
    hash_max_listpack_entries: usize::MAX,
    hash_max_listpack_value: usize::MAX,
    set_max_intset_entries: usize::MAX,
    set_max_listpack_entries: usize::MAX,
    set_max_listpack_value: usize::MAX,
    zset_max_listpack_entries: usize::MAX,
    zset_max_listpack_value: usize::MAX,
    ..Thresholds::DEFAULT
};

/// Appends an object's image.
pub(super) fn write(object: Object<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(&object.stored_meta().to_le_bytes());
    match object.value() {
        ValueRef::Int(number) => out.extend_from_slice(&number.to_le_bytes()),
        ValueRef::Bytes(bytes) => out.extend_from_slice(bytes),
        ValueRef::Collection(collection) => match object.compact() {
            Some((_, bytes)) => out.extend_from_slice(bytes),
            None => write_exactly(collection, out),
        },
    }
}

/// The object of an image. None: the image is none.
pub(super) fn read(key: &[u8], expires_at: Option<UnixMs>, image: &[u8]) -> Option<Block> {
    let (meta, value) = image.split_first_chunk::<META_BYTES>()?;
    let (stored, clock) = Stored::from_meta(u32::from_le_bytes(*meta))?;
    let value = match stored {
        Stored::Int => NewValue::Int(i64::from_le_bytes(value.try_into().ok()?)),
        Stored::Whole => NewValue::Bytes(value),
        Stored::Edited => NewValue::Edited(value),
        Stored::Compact(form) => NewValue::Compact(form, value),
        Stored::Native => {
            let thresholds = if is_compact_image(value) { &COMPACT_AS_THEY_WERE } else { &AS_THEY_WERE };
            let collection = of_image(value, thresholds).ok()?;
            return Some(of_collection(key, collection, expires_at, clock));
        }
    };
    Some(Block::new(key, value, expires_at, clock))
}

fn of_collection(key: &[u8], collection: Collection, expires_at: Option<UnixMs>, clock: u32) -> Block {
    Block::of_native(key, Box::new(collection), expires_at, clock)
}
