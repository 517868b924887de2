//! Looks at the stream that a Redis before 7.4 is sent for what it does not know: times of hashes' fields.
//!
//! Thread rule: one at a time, whoever sends to the replica. It is done for every Redis that follows: of a request only the lengths and the first
//! word are looked at, nothing is copied but that word, and what comes in pieces needs no room.
//!
//! Invariants:
//! 1. A value is passed over by its length, whatever its bytes are (`values_that_look_like_requests_are_passed_over`).
//! 2. The first bytes begin at a place between two requests, and so do those that do not follow the last.
//! 3. What is no request by its form is a line: an empty one is padding, and behind any other the next one begins, as for a Redis.

use memchr::memchr;

/// Requests that give fields times, or take them away. A hash that has some is never said by RESTORE. A master that is followed may say others than
/// this server.
const REQUESTS: [&[u8]; 7] =
    [b"HPEXPIREAT", b"HPERSIST", b"HPEXPIRE", b"HEXPIREAT", b"HEXPIRE", b"HSETEX", b"HGETEX"];

/// The longest of them.
const NAME_BYTES_MAX: usize = 10;

/// So much is kept of a line that has not come to its end: more than a length has digits, and than a name has bytes.
const LINE_BYTES_MAX: usize = 24;

/// What stands behind an argument.
const ARGUMENT_END: u64 = 2;

/// What was looked at last of one replica's stream.
#[derive(Debug, Default)]
pub struct Foreign {
    end: u64,
    /// Arguments of the request that begin behind this place.
    arguments: u64,
    /// Whether the first of all is among them.
    has_first: bool,
    at: At,
}

/// Between which bytes of a stream a piece of it has ended.
#[derive(Clone, Copy, Debug)]
enum At {
    /// In a line, or in front of one: how many bytes of it came, as far as they are kept.
    Line { kept: [u8; LINE_BYTES_MAX], bytes: usize },
    /// In an argument: bytes that are left, with its end.
    Argument { left: u64 },
    /// In the first argument of a request, which may be a name: bytes that came, and how long it is.
    Name { kept: [u8; NAME_BYTES_MAX], bytes: usize, length: usize },
}

impl Default for At {
    fn default() -> At {
        At::Line { kept: [0; LINE_BYTES_MAX], bytes: 0 }
    }
}

impl Foreign {
    /// Whether these bytes, which begin at an offset, have the name of such a request.
    pub fn is_in(&mut self, from: u64, bytes: &[u8]) -> bool {
        if self.end != from {
            *self = Foreign::default();
        }
        self.end = from + bytes.len() as u64;
        let mut rest = bytes;
        while !rest.is_empty() {
            let (used, is_found) = match self.at {
                At::Line { kept, bytes } => self.line(rest, kept, bytes),
                At::Argument { left } => (self.argument(rest, left), false),
                At::Name { kept, bytes, length } => self.name(rest, (kept, bytes), length),
            };
            if is_found {
                return true;
            }
            rest = &rest[used..];
        }
        false
    }

    /// Goes on in a line, of which so many bytes came before. Gives how many it has used.
    fn line(&mut self, rest: &[u8], mut kept: [u8; LINE_BYTES_MAX], before: usize) -> (usize, bool) {
        let end = memchr(b'\n', rest);
        let used = end.map_or(rest.len(), |end| end + 1);
        let is_found = match end {
            Some(end) if before == 0 => self.end_line(&rest[..end]),
            _ => {
                let piece = &rest[..end.unwrap_or(rest.len())];
                let fitting = piece.len().min(LINE_BYTES_MAX - before);
                kept[before..before + fitting].copy_from_slice(&piece[..fitting]);
                let bytes = before + fitting;
                match end {
                    Some(_) => self.end_line(&kept[..bytes]),
                    None => {
                        self.at = At::Line { kept, bytes };
                        false
                    }
                }
            }
        };
        (used, is_found)
    }

    /// What a line means, which is here without its end, or as far as it was kept.
    fn end_line(&mut self, line: &[u8]) -> bool {
        self.at = At::default();
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let number =
            |digits: &[u8]| wire::number::parse_int(digits).and_then(|number| u64::try_from(number).ok());
        match line.split_first().and_then(|(kind, digits)| Some((*kind, number(digits)?))) {
            Some((b'*', arguments)) if self.arguments == 0 => {
                (self.arguments, self.has_first) = (arguments, true);
                false
            }
            Some((b'$', bytes)) if self.arguments > 0 => {
                self.arguments -= 1;
                let is_first = std::mem::take(&mut self.has_first);
                self.at = match usize::try_from(bytes) {
                    Ok(length) if is_first && length <= NAME_BYTES_MAX => {
                        At::Name { kept: [0; NAME_BYTES_MAX], bytes: 0, length }
                    }
                    _ => At::Argument { left: bytes + ARGUMENT_END },
                };
                false
            }
            _ => {
                self.arguments = 0;
                let first = line.split(u8::is_ascii_whitespace).find(|word| !word.is_empty());
                first.is_some_and(is_known)
            }
        }
    }

    /// Passes over an argument of which so much is left.
    fn argument(&mut self, rest: &[u8], left: u64) -> usize {
        let used = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
        self.at = match left - used as u64 {
            0 => At::default(),
            left => At::Argument { left },
        };
        used
    }

    /// Goes on in what may be a name.
    fn name(
        &mut self,
        rest: &[u8],
        (mut kept, before): ([u8; NAME_BYTES_MAX], usize),
        length: usize,
    ) -> (usize, bool) {
        let used = (length - before).min(rest.len());
        let bytes = before + used;
        kept[before..bytes].copy_from_slice(&rest[..used]);
        let is_whole = bytes == length;
        self.at = match is_whole {
            true => At::Argument { left: ARGUMENT_END },
            false => At::Name { kept, bytes, length },
        };
        (used, is_whole && is_known(&kept[..length]))
    }
}

fn is_known(name: &[u8]) -> bool {
    REQUESTS.iter().any(|known| known.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use replication::feed::pad;
    use sys::Prng;
    use testkit::Budget;

    /// Whether something is found in a stream that comes in pieces, and in which of them first.
    fn found_in<'p>(pieces: impl Iterator<Item = &'p [u8]>) -> Option<usize> {
        let (mut looked, mut at) = (Foreign::default(), 7);
        pieces.enumerate().find_map(|(number, piece)| {
            let is_found = looked.is_in(at, piece);
            at += piece.len() as u64;
            is_found.then_some(number)
        })
    }

    #[test]
    fn times_of_fields_are_found_among_other_requests_however_they_are_cut() {
        for name in REQUESTS.iter().flat_map(|name| [name.to_vec(), name.to_ascii_lowercase()]) {
            let mut stream = b"*1\r\n$4\r\nPING\r\n\n\nPING\r\n*0\r\n".to_vec();
            wire::encode_request(&mut stream, &[b"MULTI"]);
            let before = stream.len();
            wire::encode_request(&mut stream, &[&name[..], b"k", b"1", b"FIELDS", b"1", b"f"]);
            for length in 1..=stream.len() {
                let found = found_in(stream.chunks(length));
                let whole = before + b"*6\r\n$8\r\n".len() + name.len() + usize::from(name.len() > 9) - 1;
                assert_eq!(found, Some(whole / length), "in pieces of {length} bytes");
            }
        }
        assert_eq!(found_in([&b"PING\r\n  hPersist k FIELDS 1 f\r\n"[..]].into_iter()), Some(0));
    }

    #[test]
    fn values_that_look_like_requests_are_passed_over() {
        let mut stream = Vec::new();
        let value = b"*6\r\n$10\r\nHPEXPIREAT\r\n$8\r\nHPERSIST\r\nHPERSIST k\r\n";
        wire::encode_request(&mut stream, &[&b"SET"[..], b"HPEXPIREAT", value]);
        wire::encode_request(&mut stream, &[&b""[..], b"HPERSIST"]);
        wire::encode_request(&mut stream, &[value]);
        for length in 1..=stream.len() {
            assert_eq!(found_in(stream.chunks(length)), None, "in pieces of {length} bytes");
        }
    }

    #[test]
    fn what_is_no_request_is_a_line_and_the_next_request_begins_behind_it() {
        const NAMED: &[u8] = b"*1\r\n$8\r\nHPERSIST\r\n";
        let long = [b'x'; 100].map(|byte| byte).to_vec();
        for line in [
            &b""[..],
            b"PING",
            b"*-1",
            b"*x",
            b"$5",
            b"*2\r\n:1",
            b"*2\r\n$-1",
            b"*99999999999999999999",
            &long,
        ] {
            let stream = [line, b"\r\n", NAMED].concat();
            for length in 1..=stream.len() {
                assert!(found_in(stream.chunks(length)).is_some(), "behind {}", line.escape_ascii());
            }
        }
        // Nothing that is claimed to be there is waited for in memory, or overflows.
        let mut looked = Foreign::default();
        assert!(!looked.is_in(0, b"*9223372036854775807\r\n$9223372036854775807\r\n"));
        assert!(!looked.is_in(looked.end, NAMED));
    }

    #[test]
    fn what_does_not_follow_begins_with_a_request() {
        const NAMED: &[u8] = b"*1\r\n$8\r\nHPERSIST\r\n";
        let mut looked = Foreign::default();
        assert!(!looked.is_in(0, b"*1\r\n$8\r\nHPER"));
        assert!(!looked.is_in(100, b"SIST\r\n"));
        assert!(!looked.is_in(looked.end, b"*2\r\n$3\r\nGET\r\n$5000\r\n"));
        assert!(looked.is_in(7, NAMED));
    }

    #[test]
    fn requests_are_told_from_values_at_random() {
        let budget = Budget::from_env(1, 500);
        let mut done = 0;
        while budget.allows(done) {
            let seed = budget.seed.wrapping_add(done);
            let (stream, whole) = random_stream(&mut Prng::from_seed(seed));
            let (prng, mut pieces, mut rest) = (&mut Prng::from_seed(!seed), Vec::new(), &stream[..]);
            while !rest.is_empty() {
                let most = [3, 30, 70_000][below(prng, 3)];
                let (piece, behind) = rest.split_at((1 + below(prng, most)).min(rest.len()));
                pieces.push(piece);
                rest = behind;
            }
            let mut end = 0;
            let expected = whole.and_then(|whole| {
                pieces.iter().position(|piece| {
                    end += piece.len();
                    end >= whole
                })
            });
            let found = found_in(pieces.into_iter());
            assert_eq!(found, expected, "repeat with TARN_SEED={seed} TARN_STEPS=1");
            done += 1;
        }
    }

    fn below(prng: &mut Prng, most: usize) -> usize {
        usize::try_from(prng.below(most as u64)).expect("it is less than most")
    }

    /// A stream, and where the name of the first request in it ends that a Redis before 7.4 does not know.
    fn random_stream(prng: &mut Prng) -> (Vec<u8>, Option<usize>) {
        let (mut stream, mut whole) = (Vec::new(), None);
        for _ in 0..prng.below(20) {
            match prng.below(8) {
                0 => pad(&mut stream, below(prng, 50_000)),
                1 => stream.extend_from_slice(b"PING\r\n"),
                2 if prng.one_in(5) => {
                    let name = REQUESTS[below(prng, REQUESTS.len())];
                    let header = format!("*2\r\n${}\r\n", name.len()).len();
                    whole = whole.or(Some(stream.len() + header + name.len()));
                    wire::encode_request(&mut stream, &[name, b"k"]);
                }
                _ => {
                    let words: Vec<_> = (0..1 + prng.below(4)).map(|_| random_word(prng)).collect();
                    let words: Vec<&[u8]> =
                        std::iter::once(&b"APPEND"[..]).chain(words.iter().map(Vec::as_slice)).collect();
                    wire::encode_request(&mut stream, &words);
                }
            }
        }
        (stream, whole)
    }

    /// An argument made of pieces of requests.
    fn random_word(prng: &mut Prng) -> Vec<u8> {
        const PIECES: [&[u8]; 7] =
            [b"\r\n", b"*2\r\n", b"$10\r\nHPEXPIREAT\r\n", b"$8\r\nHPERSIST\r\n", b"hexpire", b"\n", b"$"];
        let mut word = Vec::new();
        (0..prng.below(6)).for_each(|_| word.extend_from_slice(PIECES[below(prng, PIECES.len())]));
        if prng.one_in(10) {
            word.resize(below(prng, 100_000), b'*');
        }
        word
    }
}
