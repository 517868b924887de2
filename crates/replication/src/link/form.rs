//! The form in which masters write requests: an array of bulk strings with no more digits than numbers need.
//!
//! Pure. What has come of a request is looked at up to where it is whole, and nothing is noted of its words.

use super::ending::printable;
use super::limits::ARGUMENTS_MAX;
use super::walk::WORD_BYTES;
use wire::Span;

/// The shortest word: its length, no bytes, and both line ends.
const WORD_BYTES_MIN: usize = b"$0\r\n\r\n".len();

/// The longest number in digits: any that may be more is none that fits.
const DIGITS_MAX: usize = 19;

/// What a line says that begins with a sign and holds a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Header {
    /// The number, and how long the line is with its end.
    Whole { number: usize, bytes: usize },
    /// It has not come to its end.
    Partial,
    /// There is another sign.
    OtherSign(u8),
    /// There is no such number.
    NoNumber,
    /// It ends otherwise.
    OtherEnd,
}

/// Reads the line at the front of some bytes.
#[inline]
pub(super) fn header(bytes: &[u8], sign: u8) -> Header {
    match bytes.first() {
        None => return Header::Partial,
        Some(&other) if other != sign => return Header::OtherSign(other),
        Some(_) => {}
    }
    let mut number = 0usize;
    for (count, byte) in bytes[1..].iter().enumerate() {
        match byte {
            // None, or one with a zero in front.
            b'0'..=b'9' if count == DIGITS_MAX || count == 1 && number == 0 => return Header::NoNumber,
            b'0'..=b'9' => {
                let with = number.checked_mul(10).and_then(|tens| tens.checked_add(usize::from(byte - b'0')));
                match with {
                    Some(with) => number = with,
                    None => return Header::NoNumber,
                }
            }
            b'\r' if count > 0 => {
                return match bytes.get(count + 2) {
                    None => Header::Partial,
                    Some(b'\n') => Header::Whole { number, bytes: count + 3 },
                    Some(_) => Header::OtherEnd,
                };
            }
            _ => return Header::NoNumber,
        }
    }
    Header::Partial
}

/// How much more a unit may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Its bytes.
    bytes: usize,
    /// Its bytes, and the notes of its longest request.
    all: usize,
}

impl Room {
    /// Behind so many bytes of a unit that may have `bytes_max`.
    pub fn of(bytes_max: usize, before: usize) -> Room {
        Room {
            bytes: bytes_max.saturating_sub(before),
            all: bytes_max.saturating_mul(2).saturating_sub(before),
        }
    }

    pub fn has(self, bytes: usize, words: usize) -> bool {
        bytes <= self.bytes && bytes.saturating_add(words.saturating_mul(WORD_BYTES)) <= self.all
    }
}

/// Why what has come is no request of a master's.
#[derive(Debug)]
pub(super) enum Wrong {
    /// It is, or will be, more than there is room for.
    TooLarge,
    /// It has another form.
    Corrupt(String),
}

/// A request that is arriving: up to where it was looked at.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Arriving {
    /// Where the next word begins; 0: how many there are is not known yet.
    at: usize,
    words: usize,
    words_left: usize,
}

impl Arriving {
    /// Whether nothing was looked at.
    pub fn is_new(&self) -> bool {
        self.at == 0
    }

    /// Looks at what has come, from its first byte on. Gives its length when it is whole.
    ///
    /// # Errors
    /// If it cannot become one, as soon as that shows.
    pub fn look(&mut self, bytes: &[u8], room: Room) -> Result<Option<usize>, Wrong> {
        if self.at == 0 && !self.look_at_count(bytes, room)? {
            return Ok(None);
        }
        while self.words_left > 0 {
            if !self.look_at_word(bytes, room)? {
                return Ok(None);
            }
        }
        Ok(Some(self.at))
    }

    fn look_at_count(&mut self, bytes: &[u8], room: Room) -> Result<bool, Wrong> {
        match header(bytes, b'*') {
            Header::Whole { number, bytes } if (1..=ARGUMENTS_MAX).contains(&number) => {
                *self = Arriving { at: bytes, words: number, words_left: number };
                self.check(bytes, number, room)?;
                Ok(true)
            }
            Header::Partial => self.check(bytes.len(), 0, room).map(|()| false),
            Header::OtherEnd => Err(other_form()),
            Header::Whole { .. } | Header::OtherSign(_) | Header::NoNumber => {
                Err(Wrong::Corrupt("invalid multibulk length".to_owned()))
            }
        }
    }

    fn look_at_word(&mut self, bytes: &[u8], room: Room) -> Result<bool, Wrong> {
        let rest = &bytes[self.at..];
        match header(rest, b'$') {
            Header::Whole { number, bytes: header } => {
                let end = self.at.saturating_add(header).saturating_add(number).saturating_add(2);
                self.check(end, self.words_left - 1, room)?;
                match bytes.get(end - 2..end) {
                    None => return Ok(false),
                    Some(b"\r\n") => {}
                    Some(_) => return Err(other_form()),
                }
                (self.at, self.words_left) = (end, self.words_left - 1);
                Ok(true)
            }
            Header::Partial => self.check(bytes.len(), 0, room).map(|()| false),
            Header::OtherEnd => Err(other_form()),
            Header::NoNumber => Err(Wrong::Corrupt("invalid bulk length".to_owned())),
            Header::OtherSign(other) => {
                Err(Wrong::Corrupt(format!("expected '$', got '{}'", printable(&[other]))))
            }
        }
    }

    /// Whether there is room for what is known of it: so many bytes, and the least that so many words behind them are.
    fn check(&self, bytes: usize, words_behind: usize, room: Room) -> Result<(), Wrong> {
        let least = bytes.saturating_add(words_behind.saturating_mul(WORD_BYTES_MIN));
        if room.has(least, self.words) { Ok(()) } else { Err(Wrong::TooLarge) }
    }
}

fn other_form() -> Wrong {
    Wrong::Corrupt("a request is not in the form in which masters write them".to_owned())
}

/// Notes where the words of the request are that begins at `begin`, in one go. Gives its end; None, and some of its words may be noted, if it is
/// longer than `bytes_max`, has not come whole, or is none: [`Arriving::look`] says which.
pub(super) fn note_whole(
    bytes: &[u8],
    begin: usize,
    bytes_max: usize,
    spans: &mut Vec<Span>,
) -> Option<usize> {
    let (words, mut at) = line(bytes, begin, b'*')?;
    // Each of them takes more bytes than one.
    if words == 0 || words > bytes_max {
        return None;
    }
    for _ in 0..words {
        let (length, start) = line(bytes, at, b'$')?;
        let end = start.checked_add(length)?;
        at = end.checked_add(2)?;
        if at - begin > bytes_max || bytes.get(end..at)? != b"\r\n" {
            return None;
        }
        spans.push(Span { start, end });
    }
    Some(at)
}

/// The number of the line that begins there, and where the next begins; None where [`header`] has another answer.
#[inline]
fn line(bytes: &[u8], at: usize, sign: u8) -> Option<(usize, usize)> {
    let rest = bytes.get(at..)?;
    match *rest {
        [first, digit @ b'0'..=b'9', b'\r', b'\n', ..] if first == sign => {
            Some((usize::from(digit - b'0'), at + 4))
        }
        _ => match header(rest, sign) {
            Header::Whole { number, bytes } => Some((number, at + bytes)),
            _ => None,
        },
    }
}

/// How many words a request has that was looked at, the first, and the second.
pub(super) fn begin_of(request: &[u8]) -> (usize, &[u8], Option<&[u8]>) {
    let (words, at) = count(request);
    let (name, at) = word(request, at);
    let argument = (words > 1).then(|| word(request, at).0);
    (words, &request[name.0..name.1], argument.map(|argument| &request[argument.0..argument.1]))
}

/// How many words a request has that was looked at, and where the first begins.
pub(super) fn count(request: &[u8]) -> (usize, usize) {
    match header(request, b'*') {
        Header::Whole { number, bytes } => (number, bytes),
        _ => unreachable!("a request is gone over once it was looked at"),
    }
}

/// Where the bytes are of the word that begins there, and where the next begins.
#[inline]
pub(super) fn word(request: &[u8], at: usize) -> ((usize, usize), usize) {
    match header(&request[at..], b'$') {
        Header::Whole { number, bytes } => {
            let begin = at + bytes;
            ((begin, begin + number), begin + number + 2)
        }
        _ => unreachable!("a request is gone over once it was looked at"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_far_as_it_has_come() {
        let whole = |number, bytes| Header::Whole { number, bytes };
        let cases: [(&[u8], Header); 14] = [
            (b"", Header::Partial),
            (b"$", Header::Partial),
            (b"$1", Header::Partial),
            (b"$12\r", Header::Partial),
            (b"$0\r\nrest", whole(0, 4)),
            (b"$1205\r\n", whole(1205, 7)),
            (b"$9223372036854775807\r\n", whole(9_223_372_036_854_775_807, 22)),
            (b"$00", Header::NoNumber),
            (b"$01", Header::NoNumber),
            (b"$\r", Header::NoNumber),
            (b"$-1", Header::NoNumber),
            (b"$12345678901234567890", Header::NoNumber),
            (b"$1\rx", Header::OtherEnd),
            (b"*1", Header::OtherSign(b'*')),
        ];
        for (bytes, expected) in cases {
            assert_eq!(header(bytes, b'$'), expected, "{}", bytes.escape_ascii());
        }
    }
}
