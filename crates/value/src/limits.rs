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

const _: () = assert!(I64_TEXT_BYTES_MAX < EMBSTR_BYTES_MAX);
