//! What can be chosen about a store.

use crate::limits::{
    HANDLES_DEFAULT, SEGMENT_PAGES_DEFAULT, SPACE_AMPLIFICATION_DEFAULT, SPARE_SEGMENTS_DEFAULT,
};
pub use crate::pack::Compression;

/// Which records lie together in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Class {
    /// Several to a page.
    Small = 0,
    /// Extents and parts. Apart from the others, so that the mean length of a segment's records says something.
    Large = 1,
}

/// What can be chosen about a store.
#[derive(Clone, Debug)]
pub struct Options {
    /// Pages of a segment: a power of two from `SEGMENT_PAGES_MIN` to `SEGMENT_PAGES_MAX`, others are rounded. Counts when a
    /// store is created; one that is opened keeps what its table says.
    pub segment_pages: u32,
    /// What is done to images from now on.
    pub compression: Compression,
    /// Free segments whose files are kept to be used again.
    pub spare_segments: usize,
    /// Bytes that the store may take for each byte that is live, in hundredths, above 100.
    pub space_amplification: u32,
    /// How many files it has open at most, but for those that somebody holds or that it has just written.
    pub handles: usize,
    /// For the generations of segments. Must be another in every run (`sys::prng::entropy_seed()`), but for tests.
    pub seed: u64,
}

impl Options {
    /// The usual, with this seed.
    pub fn new(seed: u64) -> Options {
        Options {
            segment_pages: SEGMENT_PAGES_DEFAULT,
            compression: Compression::None,
            spare_segments: SPARE_SEGMENTS_DEFAULT,
            space_amplification: SPACE_AMPLIFICATION_DEFAULT,
            handles: HANDLES_DEFAULT,
            seed,
        }
    }
}
