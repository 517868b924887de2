//! Lists.

use crate::collection::{Collection, CollectionRef, Encoding, Form, Thresholds, Type};
use crate::rdb::{Reader, RestoreError};

/// A list.
#[derive(Clone, Debug)]
pub enum List {
    /// Compact.
    Packed(Vec<u8>),
}

/// A list to be read.
#[derive(Clone, Copy, Debug)]
pub enum ListRef<'a> {
    /// Compact.
    Packed(&'a [u8]),
}

impl Type for List {
    type Ref<'a> = ListRef<'a>;

    fn compact(&self) -> Option<(Form, &[u8])> {
        let List::Packed(bytes) = self;
        Some((Form::List, bytes))
    }

    fn into_compact(self) -> Option<Vec<u8>> {
        let List::Packed(bytes) = self;
        Some(bytes)
    }

    fn from_compact(_form: Form, bytes: Vec<u8>) -> List {
        List::Packed(bytes)
    }

    fn as_ref(&self) -> ListRef<'_> {
        let List::Packed(bytes) = self;
        ListRef::Packed(bytes)
    }

    fn len(&self) -> usize {
        self.as_ref().len()
    }

    fn read(collection: CollectionRef<'_>) -> Option<ListRef<'_>> {
        match collection {
            CollectionRef::List(it) => Some(it),
            _ => None,
        }
    }

    fn edit(collection: &mut Collection) -> Option<&mut List> {
        match collection {
            Collection::List(it) => Some(it),
            _ => None,
        }
    }
}

impl<'a> ListRef<'a> {
    /// Appends its RDB type byte and image.
    pub(crate) fn write_image(self, _out: &mut Vec<u8>) {}

    /// The list whose compact encoding these bytes are.
    pub fn from_compact(bytes: &'a [u8]) -> ListRef<'a> {
        ListRef::Packed(bytes)
    }

    /// How many elements it has.
    #[allow(clippy::len_without_is_empty)] // A list in the keyspace is never empty.
    pub fn len(self) -> usize {
        let ListRef::Packed(bytes) = self;
        bytes.len()
    }

    /// OBJECT ENCODING's answer.
    pub fn encoding(self) -> Encoding {
        Encoding::Listpack
    }

    /// Bytes of memory outside the key's block, estimated from at most `samples` elements (0: all).
    pub fn allocated_bytes(self, _samples: usize) -> usize {
        0
    }

    /// How many separate allocations it has.
    pub fn pieces(self) -> usize {
        0
    }

    /// A copy of its own.
    pub fn to_owned(self) -> List {
        let ListRef::Packed(bytes) = self;
        List::Packed(bytes.to_vec())
    }
}

impl List {
    /// The RDB types that [`List::read_image`] reads.
    pub(crate) const IMAGE_TYPES: &'static [u8] = &[];

    /// Reads an image of the RDB type given.
    pub(crate) fn read_image(
        _image_type: u8,
        _image: &mut Reader<'_>,
        _thresholds: &Thresholds,
    ) -> Result<List, RestoreError> {
        Err(RestoreError::BadFormat)
    }
}
