//! The naive parser: it sees the whole stream at once, copies every argument and keeps no state.

use wire::{Authenticated, Limits};

/// What a stream means: its complete requests, the bytes they take, and the error line that follows them, if
/// any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meaning {
    pub requests: Vec<Vec<Vec<u8>>>,
    pub taken: usize,
    pub error: Option<Vec<u8>>,
}

/// A mistake planted in the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    /// Arguments of 10 bytes lose their last one.
    ShortArgument,
    /// One argument too many for strangers.
    StrangerCountOffByOne,
    /// One byte too many for strangers.
    StrangerLengthOffByOne,
    /// A length with a leading zero is accepted.
    LeadingZero,
    /// A line may be one byte longer.
    LineOffByOne,
    /// An empty request counts as one.
    EmptyRequest,
    /// The byte after `\r` must be `\n`.
    StrictLineEnd,
    /// A closing quote may be followed by anything.
    LaxQuotes,
}

pub const FAULTS: &[Fault] = &[
    Fault::ShortArgument,
    Fault::StrangerCountOffByOne,
    Fault::StrangerLengthOffByOne,
    Fault::LeadingZero,
    Fault::LineOffByOne,
    Fault::EmptyRequest,
    Fault::StrictLineEnd,
    Fault::LaxQuotes,
];

/// Why no request was read.
enum Stop {
    Partial,
    Error(Vec<u8>),
}

pub fn meaning(stream: &[u8], limits: &Limits, fault: Fault) -> Meaning {
    let mut meaning = Meaning { requests: vec![], taken: 0, error: None };
    while meaning.taken < stream.len() {
        let rest = &stream[meaning.taken..];
        let read = if rest[0] == b'*' { array(rest, limits, fault) } else { inline(rest, fault) };
        match read {
            Ok((request, used)) => {
                meaning.taken += used;
                if !request.is_empty() || fault == Fault::EmptyRequest {
                    meaning.requests.push(request);
                }
            }
            Err(Stop::Partial) => return meaning,
            Err(Stop::Error(reason)) => {
                meaning.error = Some([b"ERR Protocol error: ", &reason[..]].concat());
                return meaning;
            }
        }
    }
    meaning
}

fn line<'a>(rest: &'a [u8], end: u8, too_long: &str, fault: Fault) -> Result<&'a [u8], Stop> {
    let max = 65_536 + usize::from(fault == Fault::LineOffByOne);
    match rest.iter().position(|&byte| byte == end) {
        Some(len) if len <= max => Ok(&rest[..len]),
        None if rest.len() <= max => Err(Stop::Partial),
        _ => Err(Stop::Error(too_long.into())),
    }
}

/// A line that starts with a type byte and holds a number; with the bytes it takes.
fn number_line<'a>(rest: &'a [u8], too_long: &str, fault: Fault) -> Result<(&'a [u8], usize), Stop> {
    let line = line(rest, b'\r', too_long, fault)?;
    let Some(second) = rest.get(line.len() + 1) else { return Err(Stop::Partial) };
    if fault == Fault::StrictLineEnd && *second != b'\n' {
        return Err(Stop::Error("line end".into()));
    }
    Ok((line, line.len() + 2))
}

/// A number is what prints again as the same text.
fn number(text: &[u8], fault: Fault) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?;
    let number: i64 = text.parse().ok()?;
    (number.to_string() == text || fault == Fault::LeadingZero).then_some(number)
}

fn array(rest: &[u8], limits: &Limits, fault: Fault) -> Result<(Vec<Vec<u8>>, usize), Stop> {
    let stranger = limits.authenticated == Authenticated::No;
    let (count_line, mut at) = number_line(rest, "too big mbulk count string", fault)?;
    let count = match number(&count_line[1..], fault) {
        Some(count) if count <= 2_147_483_647 => count,
        _ => return Err(Stop::Error("invalid multibulk length".into())),
    };
    if stranger && count > 10 + i64::from(fault == Fault::StrangerCountOffByOne) {
        return Err(Stop::Error("unauthenticated multibulk length".into()));
    }
    let mut args = vec![];
    for _ in 0..count {
        let (length_line, used) = number_line(&rest[at..], "too big bulk count string", fault)?;
        if rest[at] != b'$' {
            // A line end would end the reply.
            let got = if b"\r\n".contains(&rest[at]) { b' ' } else { rest[at] };
            return Err(Stop::Error([b"expected '$', got '", &[got][..], b"'"].concat()));
        }
        let length = match number(&length_line[1..], fault) {
            Some(length) if length >= 0 && length as u64 <= limits.bulk_bytes_max => length as usize,
            _ => return Err(Stop::Error("invalid bulk length".into())),
        };
        if stranger && length > 16_384 + usize::from(fault == Fault::StrangerLengthOffByOne) {
            return Err(Stop::Error("unauthenticated bulk length".into()));
        }
        at += used;
        if rest.len() - at < length.saturating_add(2) {
            return Err(Stop::Partial);
        }
        let kept = if fault == Fault::ShortArgument && length == 10 { 9 } else { length };
        args.push(rest[at..at + kept].to_vec());
        at += length + 2;
    }
    Ok((args, at))
}

fn inline(rest: &[u8], fault: Fault) -> Result<(Vec<Vec<u8>>, usize), Stop> {
    let line = line(rest, b'\n', "too big inline request", fault)?;
    match words(line, fault) {
        Some(words) => Ok((words, line.len() + 1)),
        None => Err(Stop::Error("unbalanced quotes in request".into())),
    }
}

/// A state machine over single bytes.
fn words(line: &[u8], fault: Fault) -> Option<Vec<Vec<u8>>> {
    #[derive(PartialEq)]
    enum State {
        Between,
        Plain,
        Double,
        Single,
        Closed,
    }
    let blank = |byte: u8| byte == b' ' || (9..=13).contains(&byte);
    let (mut state, mut words, mut word) = (State::Between, vec![], vec![]);
    let mut at = 0;
    while at < line.len() {
        let byte = line[at];
        at += 1;
        match state {
            State::Closed if !blank(byte) && fault != Fault::LaxQuotes => return None,
            State::Between if blank(byte) => {}
            State::Closed if blank(byte) => {
                words.push(std::mem::take(&mut word));
                state = State::Between;
            }
            State::Plain if blank(byte) && byte != 11 && byte != 12 => {
                words.push(std::mem::take(&mut word));
                state = State::Between;
            }
            State::Between | State::Plain | State::Closed => match byte {
                b'"' => state = State::Double,
                b'\'' => state = State::Single,
                _ => {
                    word.push(byte);
                    state = State::Plain;
                }
            },
            State::Double if byte == b'"' => state = State::Closed,
            State::Double if byte == b'\\' && at < line.len() => {
                let hex = line.get(at + 1..at + 3).and_then(|pair| std::str::from_utf8(pair).ok());
                let hex = hex.filter(|pair| pair.bytes().all(|byte| byte.is_ascii_hexdigit()));
                match (line[at], hex) {
                    (b'x', Some(pair)) => {
                        word.push(u8::from_str_radix(pair, 16).expect("both are hex digits"));
                        at += 2;
                    }
                    (b'n', _) => word.push(10),
                    (b'r', _) => word.push(13),
                    (b't', _) => word.push(9),
                    (b'b', _) => word.push(8),
                    (b'a', _) => word.push(7),
                    (other, _) => word.push(other),
                }
                at += 1;
            }
            State::Single if byte == b'\'' => state = State::Closed,
            State::Single if byte == b'\\' && line.get(at) == Some(&b'\'') => {
                word.push(b'\'');
                at += 1;
            }
            State::Double | State::Single => word.push(byte),
        }
    }
    match state {
        State::Double | State::Single => return None,
        State::Plain | State::Closed => words.push(word),
        State::Between => {}
    }
    Some(words)
}
