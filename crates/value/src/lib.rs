//! The data types, their encodings and the codecs of their images.
//!
//! Everything here is a pure function or a plain type over values: no keys, no clock, no disk, no
//! sockets, and no shared state, so every item may be used from any thread. The command handlers call
//! it between parsing their arguments and editing a slot.
//!
//! Unsafe code is denied but for the blocks that tables own ([`table`], [`entry`]) and one call in [`bits`].
//!
//! 1. Input bytes come from clients: nothing here panics on them, and the memory that a call takes is
//!    bounded by its input and by a limit named in [`limits`].
//! 2. What a client can see (texts of numbers, choices between equal candidates, DUMP payloads) is byte
//!    for byte what Redis 7.2 produces.
#![cfg_attr(not(test), warn(clippy::cast_possible_truncation))]

mod bignum;
pub mod bitfield;
pub mod bits;
pub mod collection;
pub mod crc64;
pub mod entry;
pub mod extended;
pub mod geo;
pub mod glob;
pub mod hash;
pub mod hyperloglog;
pub mod lcs;
pub mod limits;
pub mod list;
pub mod listpack;
pub mod lzf;
mod magnitude;
pub mod number;
pub mod rdb;
pub mod set;
pub mod stream;
pub mod string;
pub mod table;
pub mod text;
pub mod timers;
mod ziplist;
pub mod zset;
