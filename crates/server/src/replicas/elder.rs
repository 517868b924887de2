//! Looks at the stream that a replica of Redis 5.0 to 6.2 is sent (`repl-rdb-version 9`) for what it does not know
//! ([`command::elder`]): the bytes that would make such a request whole are not sent, and the link ends.
//!
//! Thread rule: one at a time, whoever sends to the replica.

use command::elder;
use replication::link::limits::UNIT_BYTES_MAX_DEFAULT;
use replication::link::{MasterStream, Place, Role, Words};
use std::io;

/// What was looked at of one replica's stream.
#[derive(Debug, Default)]
pub struct Elder {
    stream: Option<MasterStream>,
    words: Words,
}

/// Something that such a replica does not know.
#[derive(Debug, PartialEq, Eq)]
pub struct Unknown {
    /// Where the unit with it begins.
    pub from: u64,
    /// What it is.
    pub name: String,
}

impl Unknown {
    /// Why a link with it ends.
    pub fn into_error(self) -> io::Error {
        let name = self.name;
        io::Error::other(format!(
            "the stream has {name}, which a replica before Redis 7.0 cannot know (repl-rdb-version)"
        ))
    }
}

impl Elder {
    /// Takes the next bytes, which begin at this offset: the first of all at a place between two units.
    ///
    /// # Errors
    /// They end something that is not for it.
    pub fn take(&mut self, from: u64, bytes: &[u8]) -> Result<(), Unknown> {
        let begin = || MasterStream::new(Place { offset: from, database: 0 }, UNIT_BYTES_MAX_DEFAULT);
        let stream = self.stream.get_or_insert_with(begin);
        stream.feed(bytes);
        loop {
            let begun = stream.place().offset;
            let unit = match stream.next_unit() {
                Ok(Some(unit)) => unit,
                Ok(None) => return Ok(()),
                Err(ending) => return Err(Unknown { from: begun, name: ending.to_string() }),
            };
            let mut walk = unit.walk(&mut self.words);
            while let Some(group) = walk.next_group() {
                let commands = group.requests().filter(|request| request.role == Role::Command);
                for request in commands {
                    if let Some(name) = elder::unknown(&request.request) {
                        return Err(Unknown { from: begun, name });
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[u8] =
        b"*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n*1\r\n$4\r\nPING\r\n";
    const NEWER: &[u8] =
        b"*1\r\n$5\r\nMULTI\r\n*3\r\n$4\r\nCOPY\r\n$1\r\nk\r\n$1\r\nl\r\n*1\r\n$4\r\nEXEC\r\n";

    #[test]
    fn what_is_newer_is_found_however_it_is_cut_before_it_is_whole() {
        crate::commands::install();
        let all = [KNOWN, NEWER].concat();
        for length in 1..all.len() {
            let (mut elder, mut sent) = (Elder::default(), 0);
            let found = all.chunks(length).find_map(|piece| match elder.take(7 + sent as u64, piece) {
                Ok(()) => {
                    sent += piece.len();
                    None
                }
                Err(unknown) => Some(unknown),
            });
            let from = 7 + KNOWN.len() as u64;
            assert_eq!(found, Some(Unknown { from, name: "COPY".to_owned() }));
            assert!(sent < all.len());
        }
    }
}
