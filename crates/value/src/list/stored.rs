//! A list as the keyspace sees it: compact bytes in a key's block, or a structure of its own.
//!
//! Borrows or owns the list; plain values, any thread.

use super::{List, ListRef};
use crate::collection::{Collection, CollectionRef, Form, Type};
use crate::listpack::{Listpack, ListpackRef};

impl Type for List {
    type Ref<'a> = ListRef<'a>;

    fn compact(&self) -> Option<(Form, &[u8])> {
        match self {
            Self::Packed(listpack) => Some((Form::List, listpack.as_ref().bytes())),
            Self::Quicklist(_) => None,
        }
    }

    fn into_compact(self) -> Option<Vec<u8>> {
        match self {
            Self::Packed(listpack) => Some(listpack.into_bytes()),
            Self::Quicklist(_) => None,
        }
    }

    fn from_compact(_: Form, bytes: Vec<u8>) -> Self {
        Self::Packed(Listpack::from_bytes(bytes))
    }

    #[inline]
    fn as_ref(&self) -> ListRef<'_> {
        match self {
            Self::Packed(listpack) => ListRef::Packed(listpack.as_ref()),
            Self::Quicklist(quicklist) => ListRef::Quicklist(quicklist),
        }
    }

    #[inline]
    fn len(&self) -> usize {
        self.as_ref().len()
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.as_ref().is_empty()
    }

    fn read(collection: CollectionRef<'_>) -> Option<ListRef<'_>> {
        match collection {
            CollectionRef::List(list) => Some(list),
            _ => None,
        }
    }

    fn edit(collection: &mut Collection) -> Option<&mut Self> {
        match collection {
            Collection::List(list) => Some(list),
            _ => None,
        }
    }
}

impl<'a> ListRef<'a> {
    /// The list whose compact encoding these bytes are.
    #[inline]
    pub fn from_compact(bytes: &'a [u8]) -> Self {
        Self::Packed(ListpackRef::new(bytes))
    }

    /// Bytes of memory outside the key's block, estimated from at most `samples` nodes (0: all).
    pub fn allocated_bytes(self, samples: usize) -> usize {
        match self {
            Self::Packed(_) => 0,
            Self::Quicklist(quicklist) => quicklist.allocated_bytes(samples),
        }
    }

    /// How many separate allocations it has.
    pub fn pieces(self) -> usize {
        match self {
            Self::Packed(_) => 0,
            Self::Quicklist(quicklist) => quicklist.nodes(),
        }
    }

    /// A copy of its own.
    pub fn to_owned(self) -> List {
        match self {
            Self::Packed(listpack) => List::Packed(Listpack::from_bytes(listpack.bytes().to_vec())),
            Self::Quicklist(quicklist) => List::Quicklist(quicklist.clone()),
        }
    }
}
