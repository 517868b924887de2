//! Streams.

use crate::collection::{Collection, CollectionRef, Form, Thresholds, Type};
use crate::rdb::{Reader, RestoreError};

/// A stream.
#[derive(Clone, Debug)]
pub struct Stream {}

impl Type for Stream {
    type Ref<'a> = &'a Stream;
    const DIES_EMPTY: bool = false;

    fn compact(&self) -> Option<(Form, &[u8])> {
        None
    }

    fn into_compact(self) -> Option<Vec<u8>> {
        None
    }

    fn from_compact(_form: Form, _bytes: Vec<u8>) -> Stream {
        unreachable!("a stream has no compact encoding")
    }

    fn as_ref(&self) -> &Stream {
        self
    }

    fn len(&self) -> usize {
        0
    }

    fn read(collection: CollectionRef<'_>) -> Option<&Stream> {
        match collection {
            CollectionRef::Stream(it) => Some(it),
            _ => None,
        }
    }

    fn edit(collection: &mut Collection) -> Option<&mut Stream> {
        match collection {
            Collection::Stream(it) => Some(it),
            _ => None,
        }
    }
}

impl Stream {
    /// The RDB types that [`Stream::read_image`] reads.
    pub(crate) const IMAGE_TYPES: &'static [u8] = &[];

    /// Reads an image of the RDB type given.
    pub(crate) fn read_image(
        _image_type: u8,
        _image: &mut Reader<'_>,
        _thresholds: &Thresholds,
    ) -> Result<Stream, RestoreError> {
        Err(RestoreError::BadFormat)
    }

    /// Appends its RDB type byte and image.
    pub(crate) fn write_image(&self, _out: &mut Vec<u8>) {}

    /// Bytes of memory outside the key's block, estimated from at most `samples` elements (0: all).
    pub fn allocated_bytes(&self, _samples: usize) -> usize {
        0
    }

    /// How many separate allocations it has.
    pub fn pieces(&self) -> usize {
        0
    }
}
