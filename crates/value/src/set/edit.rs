//! Adding to and taking from a set, and the changes of its encoding on the way.
//!
//! The conditions are Redis' own, one by one, so that a set has the encoding that it
//! would have there after the same commands.

use super::{Intset, Members, Set, SetRef};
use crate::collection::{Thresholds, Type};
use crate::limits::I64_TEXT_BYTES_MAX;
use crate::listpack::{Element, Listpack};
use crate::number::{IntBuffer, format_i64, parse_i64};
use crate::table::position_of;

/// Header and end mark of a listpack.
const LISTPACK_FRAME_BYTES: usize = 7;

impl Set {
    /// An empty set for about `hint` members of which `first` is one.
    pub fn new_for(first: &[u8], hint: usize, thresholds: &Thresholds) -> Set {
        if hint <= thresholds.set_max_intset_entries && parse_i64(first).is_some() {
            Set::Ints(Intset::new())
        } else if hint <= thresholds.set_max_listpack_entries {
            Set::Listpack(Listpack::new())
        } else {
            Set::Table(Members::default())
        }
    }

    /// Takes on the encoding for adding about `hint` members.
    pub fn prepare_for(&mut self, hint: usize, thresholds: &Thresholds) {
        let is_too_many = match self {
            Set::Ints(_) => hint > thresholds.set_max_intset_entries,
            Set::Listpack(_) => hint > thresholds.set_max_listpack_entries,
            Set::Table(_) => false,
        };
        if is_too_many {
            self.become_table();
        }
    }

    /// Adds a member. False: it was there.
    pub fn insert(&mut self, text: &[u8], thresholds: &Thresholds) -> bool {
        match self {
            Set::Table(members) => members.insert(text),
            Set::Listpack(_) => self.insert_into_listpack(text, thresholds),
            Set::Ints(ints) => match parse_i64(text) {
                Some(member) => {
                    let is_new = ints.insert(member);
                    if is_new {
                        self.leave_ints_if_many(thresholds);
                    }
                    is_new
                }
                None => {
                    self.insert_beside_ints(text, thresholds);
                    true
                }
            },
        }
    }

    /// Adds a member of another set.
    pub fn insert_element(&mut self, element: Element<'_>, thresholds: &Thresholds) -> bool {
        if let (Set::Ints(ints), Element::Int(member)) = (&mut *self, element) {
            let is_new = ints.insert(member);
            self.leave_ints_if_many(thresholds);
            return is_new;
        }
        self.insert(element.bytes(&mut IntBuffer::new()), thresholds)
    }

    /// Takes a member away. False: it was not there.
    pub fn remove(&mut self, text: &[u8]) -> bool {
        match self {
            Set::Ints(ints) => parse_i64(text).is_some_and(|member| ints.remove(member)),
            Set::Listpack(listpack) => {
                let set = listpack.as_ref();
                let found = set.first().and_then(|first| set.find(text, first, 1));
                found.map(|at| listpack.remove(at)).is_some()
            }
            Set::Table(members) => members.remove(text),
        }
    }

    /// Becomes an intset if that may have so many members, all of which must be integers.
    pub(super) fn become_ints(&mut self, thresholds: &Thresholds) {
        if !matches!(self, Set::Ints(_)) && self.len() <= ints_max(thresholds) {
            let mut members: Vec<i64> =
                self.as_ref().iter().map(|member| member.int().expect("all are integers")).collect();
            members.sort_unstable();
            let mut ints = Intset::new();
            members.into_iter().for_each(|member| {
                ints.insert(member);
            });
            *self = Set::Ints(ints);
        }
    }

    pub(super) fn become_table(&mut self) {
        let mut members = Members::default();
        let mut digits = IntBuffer::new();
        for element in self.as_ref().iter() {
            let text = element.bytes(&mut digits);
            members.insert_new(position_of(text), text);
        }
        *self = Set::Table(members);
    }

    fn insert_into_listpack(&mut self, text: &[u8], thresholds: &Thresholds) -> bool {
        if self.as_ref().contains(text) {
            return false;
        }
        let Set::Listpack(listpack) = self else { unreachable!("the caller has looked") };
        let bytes = listpack.as_ref().bytes().len();
        if listpack.as_ref().len() < thresholds.set_max_listpack_entries
            && text.len() <= thresholds.set_max_listpack_value
            && Listpack::may_grow(bytes, text.len())
        {
            listpack.push_back(text);
        } else {
            self.insert_into_new_table(text);
        }
        true
    }

    /// Adds a text that is no integer to a set of integers.
    fn insert_beside_ints(&mut self, text: &[u8], thresholds: &Thresholds) {
        let SetRef::Ints(ints) = self.as_ref() else { unreachable!("the caller has looked") };
        let len = ints.len();
        let (mut longest, mut bytes) = (0, 0);
        if len > 0 {
            for extreme in [ints.get(0), ints.get(len - 1)] {
                longest = longest.max(format_i64(extreme, &mut IntBuffer::new()).len());
                bytes = bytes.max(LISTPACK_FRAME_BYTES + len * Listpack::entry_bytes(Element::Int(extreme)));
            }
        }
        debug_assert!(longest <= I64_TEXT_BYTES_MAX);
        if len < thresholds.set_max_listpack_entries
            && text.len().max(longest) <= thresholds.set_max_listpack_value
            && Listpack::may_grow(0, bytes.saturating_add(text.len()))
        {
            let mut listpack = Listpack::with_capacity(bytes + text.len());
            ints.iter().for_each(|member| listpack.push_element(Element::Int(member)));
            listpack.push_back(text);
            *self = Set::Listpack(listpack);
        } else {
            self.insert_into_new_table(text);
        }
    }

    fn insert_into_new_table(&mut self, text: &[u8]) {
        self.become_table();
        let Set::Table(members) = self else { unreachable!("it is a table now") };
        members.insert_new(position_of(text), text);
    }

    fn leave_ints_if_many(&mut self, thresholds: &Thresholds) {
        if self.len() > ints_max(thresholds) {
            self.become_table();
        }
    }
}

/// The most members of an intset.
pub(super) fn ints_max(thresholds: &Thresholds) -> usize {
    thresholds.set_max_intset_entries.min(Intset::MEMBERS_MAX)
}
