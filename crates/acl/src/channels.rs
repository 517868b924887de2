//! Which words of a request are channels.
//!
//! UNSUBSCRIBE and its kin name channels too, but who leaves needs no permission.

use command::Channels;
use command::table::Command;
use wire::Request;

/// A channel, or a pattern of channels, in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channel {
    /// Which word it is.
    pub position: usize,
    /// Whether it is a pattern.
    pub is_pattern: bool,
}

/// The channels for which a request needs permission.
pub fn of(command: &Command, request: &Request<'_>) -> impl Iterator<Item = Channel> + use<> {
    let (last, is_pattern) = match command.row.channels {
        Channels::None => (0, false),
        // Scripts may ask about requests that are too short.
        Channels::First => (1.min(request.len() - 1), false),
        Channels::All => (request.len() - 1, false),
        Channels::Patterns => (request.len() - 1, true),
    };
    (1..=last).map(move |position| Channel { position, is_pattern })
}
