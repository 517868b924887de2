//! The store's limits, each with its reason.

use crate::page::ROOM;

/// Bytes of a page, the unit of reading: what a disk reads as fast as a single byte, and what direct access aligns to.
pub const PAGE_BYTES: usize = 4096;

/// Pages that are written with one write, unless an extent needs more: 256 KB, at which a disk's bandwidth is nearly reached.
pub const CHUNK_PAGES: u32 = 64;

/// Pages of one read of a longer extent: such reads are issued together, and a disk serves several at once.
pub const RUN_PAGES: u32 = CHUNK_PAGES;

/// Two pages are read with one read if they are so many pages apart at most: what lies between takes no longer than another read.
pub const GAP_PAGES: u32 = 8;

/// Pages of a segment if the option says nothing: 16 MB. Small beside the data, so that cleaning finds segments that are
/// mostly dead; large beside a chunk and an extent.
pub const SEGMENT_PAGES_DEFAULT: u32 = 4096;

/// Pages of a segment at least: an extent may take a quarter of it, and needs two pages to be one.
pub const SEGMENT_PAGES_MIN: u32 = 8;

/// Pages of a segment at most: 4 GB, above which a segment is too much to be cleaned at once.
pub const SEGMENT_PAGES_MAX: u32 = 1 << 20;

/// Pages of an extent at most, as a share of a segment: what is left of a segment when the next extent does not fit is lost, and
/// never more than this. A larger record is cut into parts.
pub const EXTENTS_PER_SEGMENT: u32 = 4;

/// Pages of a chunk with room left in which a record is tried before another page is begun: records of some hundred
/// bytes to half a page lie closer for it.
pub const LOOK_BACK_PAGES: usize = 6;

/// Buffers of chunks kept for reuse.
pub const BUFFERS_MAX: usize = 8;

/// Free segments whose files are kept to be used again, if the option says nothing.
pub const SPARE_SEGMENTS_DEFAULT: usize = 4;

/// Bytes that a store may take for each byte that is live, in hundredths, if the option says nothing.
pub const SPACE_AMPLIFICATION_DEFAULT: u32 = 150;

/// Files of a store that are open, if the option says nothing: what any system lets a process have.
pub const HANDLES_DEFAULT: usize = 256;

/// Segments that may be dead before anything is cleaned or waits for a checkpoint: the open ones and a store that is nearly empty
/// would never be within any share.
pub const SLACK_SEGMENTS: u64 = 4;

/// A segment of which less than this is dead is not worth cleaning, in hundredths: the same bytes would be written again.
pub const DEAD_SHARE_MIN: f64 = 0.05;

/// How much the age of a segment counts: the oldest is worth so much more than a new one that is as dead.
pub const AGE_BONUS: f64 = 0.5;

/// Images below this are never packed, bytes: the token and the length eat what they save.
pub const PACK_BYTES_MIN: usize = 64;

/// How many times its packed length an image has at most: LZ4 packs no tighter.
pub const PACK_RATIO_MAX: u64 = 255;

/// Places of damage that are named of a segment; there may be more.
pub const DAMAGES_MAX: usize = 16;

const _: () = assert!(PAGE_BYTES == sys::file::DIRECT_ALIGN);
const _: () = assert!(SEGMENT_PAGES_MIN / EXTENTS_PER_SEGMENT >= 2);
const _: () = assert!(ROOM < u16::MAX as usize);
const _: () =
    assert!(SEGMENT_PAGES_MAX as u64 / EXTENTS_PER_SEGMENT as u64 * (PAGE_BYTES as u64) < u32::MAX as u64);
