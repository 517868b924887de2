//! The data types, their encodings and the codecs of their images.
//!
//! Everything here is a pure function or a plain type over values: no keys, no clock, no disk, no
//! sockets, and no shared state, so every item may be used from any thread. The command handlers call
//! it between parsing their arguments and editing a slot.
//!
//! 1. Input bytes come from clients: nothing here panics on them, and the memory that a call takes is
//!    bounded by its input and by a limit named in [`limits`].
//! 2. What a client can see (texts of numbers, choices between equal candidates, DUMP payloads) is byte
//!    for byte what Redis 7.2 produces.

#![forbid(unsafe_code)]

mod bignum;
pub mod extended;
pub mod limits;
mod magnitude;
pub mod number;
pub mod string;
