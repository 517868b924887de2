//! Hashes.

use crate::collection::{Collection, CollectionRef, Encoding, Form, Thresholds, Type};
use crate::rdb::{Reader, RestoreError};

/// A hash.
#[derive(Clone, Debug)]
pub enum Hash {
    /// Compact.
    Packed(Vec<u8>),
}

/// A hash to be read.
#[derive(Clone, Copy, Debug)]
pub enum HashRef<'a> {
    /// Compact.
    Packed(&'a [u8]),
}

impl Type for Hash {
    type Ref<'a> = HashRef<'a>;

    fn compact(&self) -> Option<(Form, &[u8])> {
        let Hash::Packed(bytes) = self;
        Some((Form::Hash, bytes))
    }

    fn into_compact(self) -> Option<Vec<u8>> {
        let Hash::Packed(bytes) = self;
        Some(bytes)
    }

    fn from_compact(_form: Form, bytes: Vec<u8>) -> Hash {
        Hash::Packed(bytes)
    }

    fn as_ref(&self) -> HashRef<'_> {
        let Hash::Packed(bytes) = self;
        HashRef::Packed(bytes)
    }

    fn len(&self) -> usize {
        self.as_ref().len()
    }

    fn read(collection: CollectionRef<'_>) -> Option<HashRef<'_>> {
        match collection {
            CollectionRef::Hash(it) => Some(it),
            _ => None,
        }
    }

    fn edit(collection: &mut Collection) -> Option<&mut Hash> {
        match collection {
            Collection::Hash(it) => Some(it),
            _ => None,
        }
    }
}

impl<'a> HashRef<'a> {
    /// Appends its RDB type byte and image.
    pub(crate) fn write_image(self, _out: &mut Vec<u8>) {}

    /// The hash whose compact encoding these bytes are.
    pub fn from_compact(bytes: &'a [u8]) -> HashRef<'a> {
        HashRef::Packed(bytes)
    }

    /// How many elements it has.
    #[allow(clippy::len_without_is_empty)] // A hash in the keyspace is never empty.
    pub fn len(self) -> usize {
        let HashRef::Packed(bytes) = self;
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
    pub fn to_owned(self) -> Hash {
        let HashRef::Packed(bytes) = self;
        Hash::Packed(bytes.to_vec())
    }
}

impl Hash {
    /// The RDB types that [`Hash::read_image`] reads.
    pub(crate) const IMAGE_TYPES: &'static [u8] = &[];

    /// Reads an image of the RDB type given.
    pub(crate) fn read_image(
        _image_type: u8,
        _image: &mut Reader<'_>,
        _thresholds: &Thresholds,
    ) -> Result<Hash, RestoreError> {
        Err(RestoreError::BadFormat)
    }
}
