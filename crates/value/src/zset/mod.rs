//! Sorted sets.

use crate::collection::{Collection, CollectionRef, Encoding, Form, Thresholds, Type};
use crate::rdb::{Reader, RestoreError};

/// A zset.
#[derive(Clone, Debug)]
pub enum Zset {
    /// Compact.
    Packed(Vec<u8>),
}

/// A zset to be read.
#[derive(Clone, Copy, Debug)]
pub enum ZsetRef<'a> {
    /// Compact.
    Packed(&'a [u8]),
}

impl Type for Zset {
    type Ref<'a> = ZsetRef<'a>;

    fn compact(&self) -> Option<(Form, &[u8])> {
        let Zset::Packed(bytes) = self;
        Some((Form::Zset, bytes))
    }

    fn into_compact(self) -> Option<Vec<u8>> {
        let Zset::Packed(bytes) = self;
        Some(bytes)
    }

    fn from_compact(_form: Form, bytes: Vec<u8>) -> Zset {
        Zset::Packed(bytes)
    }

    fn as_ref(&self) -> ZsetRef<'_> {
        let Zset::Packed(bytes) = self;
        ZsetRef::Packed(bytes)
    }

    fn len(&self) -> usize {
        self.as_ref().len()
    }

    fn read(collection: CollectionRef<'_>) -> Option<ZsetRef<'_>> {
        match collection {
            CollectionRef::Zset(it) => Some(it),
            _ => None,
        }
    }

    fn edit(collection: &mut Collection) -> Option<&mut Zset> {
        match collection {
            Collection::Zset(it) => Some(it),
            _ => None,
        }
    }
}

impl<'a> ZsetRef<'a> {
    /// Appends its RDB type byte and image.
    pub(crate) fn write_image(self, _out: &mut Vec<u8>) {}

    /// The zset whose compact encoding these bytes are.
    pub fn from_compact(bytes: &'a [u8]) -> ZsetRef<'a> {
        ZsetRef::Packed(bytes)
    }

    /// How many elements it has.
    #[allow(clippy::len_without_is_empty)] // A zset in the keyspace is never empty.
    pub fn len(self) -> usize {
        let ZsetRef::Packed(bytes) = self;
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
    pub fn to_owned(self) -> Zset {
        let ZsetRef::Packed(bytes) = self;
        Zset::Packed(bytes.to_vec())
    }
}

impl Zset {
    /// The RDB types that [`Zset::read_image`] reads.
    pub(crate) const IMAGE_TYPES: &'static [u8] = &[];

    /// Reads an image of the RDB type given.
    pub(crate) fn read_image(
        _image_type: u8,
        _image: &mut Reader<'_>,
        _thresholds: &Thresholds,
    ) -> Result<Zset, RestoreError> {
        Err(RestoreError::BadFormat)
    }
}
