//! A master's side of Redis' own protocol, as far as it is bytes: what of the stream is kept ([`backlog`]), how a request of the stream is
//! left out without moving the offsets of what follows ([`padding`]), and which offsets belong to one replica alone ([`ranges`]).
//!
//! Pure: no sockets, no threads, no clock. Who follows, and from where, is the server's.

pub mod backlog;
pub mod padding;
pub mod ranges;

pub use backlog::Backlog;
pub use padding::pad;
pub use ranges::Ranges;
