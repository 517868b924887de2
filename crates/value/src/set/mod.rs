//! Sets: different texts in no order.
//!
//! A set is an intset while all its members are integers, a listpack while they are
//! few and short, and a table otherwise. It changes at Redis' thresholds and never
//! back: a set that has shrunk keeps its encoding. Plain values, any thread.
//!
//! 1. No member is in a set twice, in whatever encoding.
//! 2. A member that is a canonical integer is found by its text in every encoding.

mod combine;
mod edit;
mod image;
mod intset;
mod members;
mod pick;
#[cfg(test)]
mod tests;

pub use combine::{difference, intersection, stored_difference, stored_intersection, stored_union, union};
pub use intset::{Intset, IntsetRef};
pub use members::Members;
pub use pick::Popped;

use crate::collection::{Collection, CollectionRef, Encoding, Form, Type};
use crate::listpack::{self, Element, Listpack, ListpackRef};
use crate::number::parse_i64;
use crate::table::Position;
use sys::memory::size_class;

/// An owned set.
#[derive(Clone, Debug)]
pub enum Set {
    /// Integers, ascending.
    Ints(Intset),
    /// Few short texts, in the order in which they came.
    Listpack(Listpack),
    /// Anything.
    Table(Members),
}

/// A set to be read.
#[derive(Clone, Copy, Debug)]
pub enum SetRef<'a> {
    /// Integers, ascending.
    Ints(IntsetRef<'a>),
    /// Few short texts, in the order in which they came.
    Listpack(ListpackRef<'a>),
    /// Anything.
    Table(&'a Members),
}

impl Type for Set {
    type Ref<'a> = SetRef<'a>;

    fn compact(&self) -> Option<(Form, &[u8])> {
        match self.as_ref() {
            SetRef::Ints(ints) => Some((Form::SetOfInts, ints.bytes())),
            SetRef::Listpack(listpack) => Some((Form::Set, listpack.bytes())),
            SetRef::Table(_) => None,
        }
    }

    fn into_compact(self) -> Option<Vec<u8>> {
        match self {
            Set::Ints(ints) => Some(ints.into_bytes()),
            Set::Listpack(listpack) => Some(listpack.into_bytes()),
            Set::Table(_) => None,
        }
    }

    fn from_compact(form: Form, bytes: Vec<u8>) -> Set {
        match form {
            Form::SetOfInts => Set::Ints(Intset::from_bytes(bytes)),
            _ => Set::Listpack(Listpack::from_bytes(bytes)),
        }
    }

    #[inline]
    fn as_ref(&self) -> SetRef<'_> {
        match self {
            Set::Ints(ints) => SetRef::Ints(ints.as_ref()),
            Set::Listpack(listpack) => SetRef::Listpack(listpack.as_ref()),
            Set::Table(members) => SetRef::Table(members),
        }
    }

    fn len(&self) -> usize {
        self.as_ref().len()
    }

    fn read(collection: CollectionRef<'_>) -> Option<SetRef<'_>> {
        match collection {
            CollectionRef::Set(set) => Some(set),
            _ => None,
        }
    }

    fn edit(collection: &mut Collection) -> Option<&mut Set> {
        match collection {
            Collection::Set(set) => Some(set),
            _ => None,
        }
    }
}

impl<'a> SetRef<'a> {
    /// Where it lies: the same for two of the same set, and for no others while they are borrowed.
    pub fn address(&self) -> usize {
        match self {
            SetRef::Ints(ints) => ints.bytes().as_ptr().addr(),
            SetRef::Listpack(listpack) => listpack.bytes().as_ptr().addr(),
            SetRef::Table(members) => std::ptr::from_ref(*members).addr(),
        }
    }

    /// The set whose compact encoding these bytes are.
    pub fn from_compact(form: Form, bytes: &'a [u8]) -> SetRef<'a> {
        match form {
            Form::SetOfInts => SetRef::Ints(IntsetRef::new(bytes)),
            _ => SetRef::Listpack(ListpackRef::new(bytes)),
        }
    }

    /// How many members there are.
    #[inline]
    pub fn len(self) -> usize {
        match self {
            SetRef::Ints(ints) => ints.len(),
            SetRef::Listpack(listpack) => listpack.len(),
            SetRef::Table(members) => members.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// OBJECT ENCODING's answer.
    pub fn encoding(self) -> Encoding {
        match self {
            SetRef::Ints(_) => Encoding::Intset,
            SetRef::Listpack(_) => Encoding::Listpack,
            SetRef::Table(_) => Encoding::Hashtable,
        }
    }

    /// Whether a text is a member.
    #[inline]
    pub fn contains(self, text: &[u8]) -> bool {
        match self {
            SetRef::Ints(ints) => parse_i64(text).is_some_and(|member| ints.contains(member)),
            SetRef::Listpack(listpack) => {
                listpack.first().is_some_and(|first| listpack.find(text, first, 1).is_some())
            }
            SetRef::Table(members) => members.contains(text),
        }
    }

    /// All members: integers ascending, few in the order in which they came, else in no order.
    #[inline]
    pub fn iter(self) -> Iter<'a> {
        match self {
            SetRef::Ints(ints) => Iter::Ints(ints.iter()),
            SetRef::Listpack(listpack) => Iter::Listpack(listpack.iter()),
            SetRef::Table(members) => Iter::Table(members.iter()),
        }
    }

    /// Calls `visit` for some members and returns where to go on, or None at the end
    /// (SSCAN). Compact sets are visited as a whole, others until `enough` were.
    pub fn scan(self, from: Position, enough: usize, mut visit: impl FnMut(Element<'a>)) -> Option<Position> {
        match self {
            SetRef::Table(members) => members.scan(from, enough, |text| visit(Element::Bytes(text))),
            _ => {
                self.iter().for_each(visit);
                None
            }
        }
    }

    /// Bytes of memory outside the key's block, estimated from at most `samples` members (0: all).
    pub fn allocated_bytes(self, samples: usize) -> usize {
        match self {
            SetRef::Ints(ints) => size_class(ints.bytes().len()),
            SetRef::Listpack(listpack) => size_class(listpack.bytes().len()),
            SetRef::Table(members) => members.bytes(samples),
        }
    }

    /// How many separate allocations it has.
    pub fn pieces(self) -> usize {
        match self {
            SetRef::Ints(_) | SetRef::Listpack(_) => 1,
            SetRef::Table(members) => members.len(),
        }
    }

    /// A copy of its own.
    pub fn to_owned(self) -> Set {
        match self {
            SetRef::Ints(ints) => Set::Ints(Intset::from_bytes(ints.bytes().to_vec())),
            SetRef::Listpack(listpack) => Set::Listpack(Listpack::from_bytes(listpack.bytes().to_vec())),
            SetRef::Table(members) => Set::Table(members.clone()),
        }
    }
}

/// The members of a set. Those of a table are texts even where they are integers.
#[derive(Clone)]
pub enum Iter<'a> {
    /// Of an intset.
    Ints(intset::Iter<'a>),
    /// Of a listpack.
    Listpack(listpack::Iter<'a>),
    /// Of a table.
    Table(members::Iter<'a>),
}

impl<'a> Iterator for Iter<'a> {
    type Item = Element<'a>;

    #[inline]
    fn next(&mut self) -> Option<Element<'a>> {
        match self {
            Iter::Ints(ints) => ints.next().map(Element::Int),
            Iter::Listpack(elements) => elements.next(),
            Iter::Table(texts) => texts.next().map(Element::Bytes),
        }
    }
}
