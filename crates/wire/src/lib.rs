//! The wire: bytes to requests, replies to bytes, and key slots.
//!
//! First and last station of a command's path. A worker reads from a socket into a buffer, [`Parser`] finds
//! the requests in it as spans (no argument is copied), the handlers run, and [`Reply`] appends their answers
//! to an output buffer. The other side of the connection (test tools, load generators, replicas) uses
//! [`encode_request`] and [`Decoder`].
//!
//! This crate does no I/O, knows no command name, reads no clock and holds no global state: everything in it
//! belongs to the thread that calls it.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::cast_possible_truncation))]

pub mod decode;
pub mod encode;
pub mod limits;
pub mod number;
pub mod parser;
pub mod protocol_error;
pub mod reply;
pub mod request;
pub mod scan;
pub mod slot;
pub mod words;

pub use decode::{DecodeError, Decoder, Value, skip_reply};
pub use encode::{encode_arg, encode_request, encode_request_header};
pub use parser::{Authenticated, Limits, Parser};
pub use protocol_error::ProtocolError;
pub use reply::{Deferred, Mark, Protocol, Reply};
pub use request::{Batch, Request, RequestBuf, Span};
pub use slot::{SLOTS, key_slot};
pub use words::{UnbalancedQuotes, quote, split_words};
