//! The named limits of the wire, each with its reason.
//!
//! Every one bounds what an unknown peer can make this side hold, search or recurse into. Limits that an
//! administrator sets (`proto-max-bulk-len`) are not here: the caller passes them in [`crate::Limits`].

/// Longest distance in bytes from the start of a request line (inline request, `*count`, `$length`) to its
/// end. Redis' PROTO_INLINE_MAX_SIZE; without it a peer that never sends a line end would fill the buffer.
pub const LINE_BYTES_MAX: usize = 64 * 1024;

/// Most arguments of one request: Redis (7.0 and later) takes any count that fits a C `int`. The count
/// reserves no memory, so that the real bound is the caller's limit on the read buffer.
pub const ARGS_MAX: i64 = i32::MAX as i64;

/// Most arguments of a request before the session has authenticated: AUTH and HELLO need fewer.
pub const ARGS_MAX_UNAUTHENTICATED: i64 = 10;

/// Longest argument in bytes before the session has authenticated, so that strangers cannot fill memory.
pub const BULK_BYTES_MAX_UNAUTHENTICATED: u64 = 16 * 1024;

/// Longest argument in bytes unless configured otherwise: the default of `proto-max-bulk-len`.
pub const BULK_BYTES_MAX_DEFAULT: u64 = 512 * 1024 * 1024;

/// Spans that a batch keeps allocated between reads (16 bytes each). A request of a million arguments may
/// grow the batch for once; the worker that parsed it must not keep those 16 MB for good.
pub const BATCH_SPANS_KEPT_MAX: usize = 64 * 1024;

/// Bytes of unquoted inline requests that a batch keeps allocated between reads, for the same reason.
pub const BATCH_INLINE_BYTES_KEPT_MAX: usize = 64 * 1024;

/// Deepest nesting of aggregates that the client side decodes. Redis' replies nest less than ten deep
/// (`COMMAND DOCS` is the deepest); a value is dropped recursively, so that a hostile depth would overflow
/// the stack.
pub const REPLY_DEPTH_MAX: usize = 128;

/// Longest line in bytes (simple string, error, number, length) that the client side accepts in a reply.
pub const REPLY_LINE_BYTES_MAX: usize = 1024 * 1024;

/// Longest string in bytes that the client side accepts in a reply; far above what a server can store in one
/// key.
pub const REPLY_BULK_BYTES_MAX: i64 = 1 << 40;

const _: () = assert!(BULK_BYTES_MAX_UNAUTHENTICATED < BULK_BYTES_MAX_DEFAULT);
const _: () = assert!(ARGS_MAX_UNAUTHENTICATED < ARGS_MAX);
// An inline line must fit what a batch keeps, or every long inline request would allocate anew.
const _: () = assert!(LINE_BYTES_MAX <= BATCH_INLINE_BYTES_KEPT_MAX);
