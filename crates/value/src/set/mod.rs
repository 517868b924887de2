//! Sets.

use crate::collection::{Collection, CollectionRef, Encoding, Form, Thresholds, Type};
use crate::rdb::{Reader, RestoreError};

/// A set.
#[derive(Clone, Debug)]
pub enum Set {
    /// Compact.
    Packed(Vec<u8>),
}

/// A set to be read.
#[derive(Clone, Copy, Debug)]
pub enum SetRef<'a> {
    /// Compact.
    Packed(&'a [u8]),
}

impl Type for Set {
    type Ref<'a> = SetRef<'a>;

    fn compact(&self) -> Option<(Form, &[u8])> {
        let Set::Packed(bytes) = self;
        Some((Form::Set, bytes))
    }

    fn into_compact(self) -> Option<Vec<u8>> {
        let Set::Packed(bytes) = self;
        Some(bytes)
    }

    fn from_compact(_form: Form, bytes: Vec<u8>) -> Set {
        Set::Packed(bytes)
    }

    fn as_ref(&self) -> SetRef<'_> {
        let Set::Packed(bytes) = self;
        SetRef::Packed(bytes)
    }

    fn len(&self) -> usize {
        self.as_ref().len()
    }

    fn read(collection: CollectionRef<'_>) -> Option<SetRef<'_>> {
        match collection {
            CollectionRef::Set(it) => Some(it),
            _ => None,
        }
    }

    fn edit(collection: &mut Collection) -> Option<&mut Set> {
        match collection {
            Collection::Set(it) => Some(it),
            _ => None,
        }
    }
}

impl<'a> SetRef<'a> {
    /// Appends its RDB type byte and image.
    pub(crate) fn write_image(self, _out: &mut Vec<u8>) {}

    /// The set whose compact encoding these bytes are.
    pub fn from_compact(_form: Form, bytes: &'a [u8]) -> SetRef<'a> {
        SetRef::Packed(bytes)
    }

    /// How many elements it has.
    #[allow(clippy::len_without_is_empty)] // A set in the keyspace is never empty.
    pub fn len(self) -> usize {
        let SetRef::Packed(bytes) = self;
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
    pub fn to_owned(self) -> Set {
        let SetRef::Packed(bytes) = self;
        Set::Packed(bytes.to_vec())
    }
}

impl Set {
    /// The RDB types that [`Set::read_image`] reads.
    pub(crate) const IMAGE_TYPES: &'static [u8] = &[];

    /// Reads an image of the RDB type given.
    pub(crate) fn read_image(
        _image_type: u8,
        _image: &mut Reader<'_>,
        _thresholds: &Thresholds,
    ) -> Result<Set, RestoreError> {
        Err(RestoreError::BadFormat)
    }
}
