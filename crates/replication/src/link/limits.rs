//! The named limits of the link, each with its reason.
//!
//! Each bounds what a master, or whoever answers in its place, can make this side keep. What depends on the data (how large a
//! transaction or an RDB may be) is given by the owner; here are the values to begin with.

/// Longest line in bytes before the RDB begins: a reply of the handshake, or the RDB's length. Redis reads 255 and 1023 bytes;
/// an error that tells of a user's rights may be longer.
pub const LINE_BYTES_MAX: usize = 4096;

/// Longest unit of the stream in bytes: one request, or all from MULTI to EXEC. It is kept until it is whole. Redis' replica
/// sets no bound; a client's request is at most 1 GB there, and a transaction holds several, mostly small. With 16 bytes for each word of
/// its longest request, which are noted when that is applied, a unit may be twice as much: 1 GB is at most 179 million words.
pub const UNIT_BYTES_MAX_DEFAULT: usize = 2 << 30;

/// Highest offset at which a stream may begin: no server has sent so much, and what it sends behind it cannot be more than can be counted.
pub const OFFSET_MAX: u64 = 1 << 62;

/// Largest RDB in bytes: above the memory of any machine, so that it refuses lengths which can only be garbage.
pub const RDB_BYTES_MAX_DEFAULT: u64 = 1 << 46;

/// Buffer of the stream in bytes that stays allocated between units. One large transaction must not keep its memory for good.
pub const STREAM_BYTES_KEPT_MAX: usize = 1 << 20;

/// Most words of a request: Redis reads their number into a C `int`.
pub const ARGUMENTS_MAX: usize = i32::MAX as usize;

/// Words of a unit whose places are noted at a time, unless a request has more: 1 MiB of notes.
pub const GROUP_WORDS_MAX: usize = 1 << 16;

/// Units that are handed out at a time, where each is one short request: as many as are prepared together when they are applied. More would
/// ask for more memory lines than the first-level cache holds.
pub const RUN_UNITS_MAX: usize = 32;

/// Bytes and words of such units together: where a log is full, that much more comes to it at most.
pub const RUN_BYTES_MAX: usize = 64 << 10;
