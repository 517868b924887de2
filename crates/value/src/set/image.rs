//! Sets in RDB files and DUMP payloads.
//!
//! Written are the two types that every Redis reads: an intset as its bytes, anything
//! else as members one by one. Read is also the listpack of Redis 7.2. The encoding
//! of what is read follows Redis' rules for loading, which are not those for adding.
//!
//! Bytes come from outside: nothing here trusts a length or a structure.

use super::edit::ints_max;
use super::{Intset, Members, Set, SetRef};
use crate::collection::{Thresholds, Type};
use crate::listpack::Listpack;
use crate::number::{IntBuffer, parse_i64};
use crate::rdb::{Drain, Reader, RestoreError, write_length, write_string};

const TYPE_MEMBERS: u8 = 2;
const TYPE_INTSET: u8 = 11;
const TYPE_LISTPACK: u8 = 20;

impl SetRef<'_> {
    /// Appends its RDB type byte and image.
    pub(crate) fn write_image(self, out: &mut Vec<u8>, drain: Drain<'_>) {
        if let SetRef::Ints(ints) = self {
            out.push(TYPE_INTSET);
            write_string(out, ints.bytes());
            return;
        }
        out.push(TYPE_MEMBERS);
        write_length(out, self.len() as u64);
        let mut digits = IntBuffer::new();
        self.iter().for_each(|member| {
            write_string(out, member.bytes(&mut digits));
            drain(out);
        });
    }
}

impl Set {
    /// The RDB types of compact encodings, which hold their bytes as they were.
    pub(crate) const COMPACT_IMAGE_TYPES: &'static [u8] = &[TYPE_INTSET, TYPE_LISTPACK];
    /// The RDB types that [`Set::read_image`] reads.
    pub(crate) const IMAGE_TYPES: &'static [u8] = &[TYPE_MEMBERS, TYPE_INTSET, TYPE_LISTPACK];

    /// Reads an image of the RDB type given.
    pub(crate) fn read_image(
        image_type: u8,
        image: &mut Reader<'_>,
        thresholds: &Thresholds,
    ) -> Result<Set, RestoreError> {
        match image_type {
            TYPE_MEMBERS => read_members(image, thresholds),
            TYPE_INTSET => {
                let ints = Intset::validated(image.string()?).ok_or(RestoreError::BadFormat)?;
                let mut set = Set::Ints(ints);
                if set.len() > thresholds.set_max_intset_entries {
                    set.become_table();
                }
                Ok(set)
            }
            _ => read_listpack(image.string()?, thresholds),
        }
    }

    /// Adds a member that an image has. An error if it had it before.
    fn load(&mut self, text: &[u8], sizes: &Sizes, thresholds: &Thresholds) -> Result<(), RestoreError> {
        if let Set::Ints(ints) = self {
            if let Some(member) = parse_i64(text) {
                return ints.insert(member).then_some(()).ok_or(RestoreError::BadFormat);
            }
            if ints.as_ref().len() < thresholds.set_max_listpack_entries
                && sizes.longest <= thresholds.set_max_listpack_value
                && Listpack::may_grow(0, sizes.sum)
            {
                self.become_listpack();
            } else {
                self.become_table();
            }
        }
        if self.as_ref().contains(text) {
            return Err(RestoreError::BadFormat);
        }
        if let Set::Listpack(listpack) = self {
            let has_room = listpack.as_ref().len() < thresholds.set_max_listpack_entries
                && text.len() <= thresholds.set_max_listpack_value
                && Listpack::may_grow(listpack.as_ref().bytes().len(), text.len());
            if has_room {
                listpack.push_back(text);
                return Ok(());
            }
            self.become_table();
        }
        if let Set::Table(members) = self {
            members.insert(text);
        }
        Ok(())
    }

    fn become_listpack(&mut self) {
        let mut listpack = Listpack::new();
        self.as_ref().iter().for_each(|member| listpack.push_element(member));
        *self = Set::Listpack(listpack);
    }
}

/// Sizes of all members read so far.
#[derive(Default)]
struct Sizes {
    longest: usize,
    sum: usize,
}

fn read_members(image: &mut Reader<'_>, thresholds: &Thresholds) -> Result<Set, RestoreError> {
    let len = image.length()?;
    if len == 0 {
        return Err(RestoreError::BadFormat);
    }
    let is_many = len > ints_max(thresholds) as u64;
    let mut set = if is_many { Set::Table(Members::default()) } else { Set::Ints(Intset::new()) };
    let mut sizes = Sizes::default();
    for _ in 0..len {
        let text = image.string()?;
        sizes.longest = sizes.longest.max(text.len());
        sizes.sum += text.len();
        set.load(&text, &sizes, thresholds)?;
    }
    Ok(set)
}

fn read_listpack(bytes: Vec<u8>, thresholds: &Thresholds) -> Result<Set, RestoreError> {
    let listpack = Listpack::validated(bytes).ok_or(RestoreError::BadFormat)?;
    let count = listpack.as_ref().len();
    // A table finds members that come twice.
    let mut members = Members::default();
    let mut digits = IntBuffer::new();
    let are_different = listpack.as_ref().iter().all(|member| members.insert(member.bytes(&mut digits)));
    if count == 0 || !are_different {
        return Err(RestoreError::BadFormat);
    }
    Ok(if count > thresholds.set_max_listpack_entries {
        Set::Table(members)
    } else {
        Set::Listpack(listpack)
    })
}
