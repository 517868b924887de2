//! Named limits of the value types, each with its reason.
//!
//! A limit that Redis has is Redis' own, so that the same input is refused by both; the others bound
//! the work or the memory that one hostile argument can ask for.

/// Longest text of a 64-bit signed integer: a sign and 19 digits.
pub const I64_TEXT_BYTES_MAX: usize = 20;

/// A text of this many bytes or more is not accepted as an INCRBYFLOAT number, as in Redis. It also
/// bounds the big-integer arithmetic of one parse to a few thousand digits.
pub const EXTENDED_TEXT_BYTES_MAX: usize = 5 * 1024;

/// Longest value that Redis stores beside its object header, hence reports as `embstr`.
pub const EMBSTR_BYTES_MAX: usize = 44;

/// A pattern may try this many separate `*` before it is taken to match nothing, as in Redis, where the
/// limit guards the stack.
pub const GLOB_STARS_MAX: usize = 1000;

/// One byte of an LZF stream stands for at most this many: three bytes make a copy of 264. A declared
/// length beyond it is refused before anything is allocated.
pub const LZF_EXPANSION_MAX: usize = 88;

/// Longest integer text that an RDB file stores as a binary integer: a sign and ten digits.
pub const RDB_INTEGER_TEXT_BYTES_MAX: usize = 11;

/// Strings longer than this are compressed in RDB files if that saves anything.
pub const RDB_COMPRESS_BYTES_MIN: usize = 20;

/// A listpack grows to at most this size, as in Redis; the header's 32 bits could say four times as much.
pub const LISTPACK_BYTES_MAX: usize = 1 << 30;

/// The most words of one segment of a table before it is split in two: growing a segment of this size
/// moves 64 KB, some 15 microseconds, and splitting it visits each of its blocks, about a millisecond.
/// Below 110 million keys in a database no slot is that full, unless all keys share a hash tag.
pub const TABLE_SEGMENT_WORDS_MAX: usize = 8 << 10;

/// The most halvings of a table. Timers of keys know 32 bits of a position: 20 of a tag and these.
/// Beyond 25 million blocks in one table its segments grow on instead.
pub const TABLE_DEPTH_MAX: u8 = 12;

/// How many random indices of a table are tried before its blocks are counted instead.
pub const TABLE_RANDOM_TRIES_MAX: usize = 64;

/// A list node whose limit is a number of elements takes at most this many bytes, as in Redis.
pub const LIST_NODE_COUNTED_BYTES_MAX: usize = 8192;

/// Nodes that a quicklist keeps side by side: inserting one moves 4 KB at most.
pub const LIST_CHUNK_NODES_MAX: usize = 128;
/// The most timers that are kept in one heap. Growing a heap of this size, dividing it, or rebuilding it
/// takes less than a millisecond or so.
pub const TIMERS_ONE_HEAP_MAX: usize = 16 << 10;

/// Random picks of a hash's field that may meet one whose time is up before the fields are counted instead.
pub const RANDOM_FIELD_TRIES_MAX: usize = 32;
/// Longest text of a stream entry's id: two numbers of 20 digits and a hyphen.
pub const STREAM_ID_TEXT_BYTES_MAX: usize = 41;

const _: () = assert!(I64_TEXT_BYTES_MAX < EMBSTR_BYTES_MAX);
