//! Looks at the stream that a Redis before 7.4 is sent for what it does not know: times of hashes' fields.
//!
//! Thread rule: one at a time, whoever sends to the replica. A value may hold the same bytes as such a request has; it is taken for one then,
//! which ends a link and spoils nothing.

use memchr::memmem;

/// Requests that give fields times, or take them away. A hash that has some is never said by RESTORE.
const REQUESTS: [&[u8]; 2] = [b"$10\r\nHPEXPIREAT\r\n", b"$8\r\nHPERSIST\r\n"];

/// So much of the longest may have come without its end.
const TAIL_BYTES: usize = REQUESTS[0].len() - 1;

/// What was looked at last of one replica's stream.
#[derive(Debug, Default)]
pub struct Foreign {
    end: u64,
    tail: Vec<u8>,
}

impl Foreign {
    /// Whether these bytes, which begin at an offset, end such a request.
    pub fn is_in(&mut self, from: u64, bytes: &[u8]) -> bool {
        if self.end != from {
            self.tail.clear();
        }
        self.tail.extend_from_slice(&bytes[..bytes.len().min(TAIL_BYTES)]);
        let found = has_any(&self.tail) || has_any(bytes);
        if bytes.len() >= TAIL_BYTES {
            self.tail.clear();
            self.tail.extend_from_slice(&bytes[bytes.len() - TAIL_BYTES..]);
        } else {
            self.tail.drain(..self.tail.len().saturating_sub(TAIL_BYTES));
        }
        self.end = from + bytes.len() as u64;
        found
    }
}

fn has_any(bytes: &[u8]) -> bool {
    REQUESTS.iter().any(|request| memmem::find(bytes, request).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_fields_are_found_among_other_requests_however_they_are_cut() {
        let stream = b"*1\r\n$4\r\nPING\r\n*6\r\n$10\r\nHPEXPIREAT\r\n$1\r\nk\r\n";
        for length in 1..=stream.len() {
            let mut looked = Foreign::default();
            let pieces = stream.chunks(length).enumerate();
            let mut found = pieces.map(|(at, piece)| looked.is_in(7 + (at * length) as u64, piece));
            assert!(found.any(|found| found), "in pieces of {length} bytes");
        }
        assert!(!Foreign::default().is_in(0, b"*3\r\n$3\r\nSET\r\n$10\r\nHPEXPIREAT!"));
    }

    #[test]
    fn what_does_not_follow_is_no_part_of_it() {
        let mut looked = Foreign::default();
        assert!(!looked.is_in(0, b"$10\r\nHPEXP"));
        assert!(!looked.is_in(100, b"IREAT\r\n"));
    }
}
