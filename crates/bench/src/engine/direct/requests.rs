//! Requests in a buffer, one by one, and the slot of each one's key.
//!
//! They were written by a feed of this crate, so they are whole and well formed.

use wire::key_slot;
use wire::number::parse_int;

/// Commands without a key, which any master answers.
const KEYLESS: &[&[u8]] = &[
    b"PING",
    b"ECHO",
    b"WAIT",
    b"INFO",
    b"TIME",
    b"DBSIZE",
    b"PUBLISH",
    b"SCRIPT",
    b"FUNCTION",
    b"CLIENT",
    b"CONFIG",
    b"COMMAND",
    b"SCAN",
    b"KEYS",
    b"FLUSHALL",
    b"FLUSHDB",
    b"LASTSAVE",
    b"CLUSTER",
];
/// Commands whose keys are counted by their second argument.
const COUNTED: &[&[u8]] = &[b"EVAL", b"EVALSHA", b"EVAL_RO", b"EVALSHA_RO", b"FCALL", b"FCALL_RO"];
/// Arguments in which a key is looked for.
const WORDS: usize = 4;

/// The first request of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct First {
    /// How long it is.
    pub bytes: usize,
    /// The slot of its first key, if it has one.
    pub slot: Option<u16>,
}

/// Finds the end and the slot of the first request.
pub fn first(bytes: &[u8]) -> First {
    let mut at = 0;
    let Some(count) = header(bytes, &mut at, b'*') else {
        // A line of words, which only PING is sent as.
        let end = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |end| end + 1);
        return First { bytes: end, slot: None };
    };
    let mut words: [&[u8]; WORDS] = [&[]; WORDS];
    for number in 0..count {
        let Some(length) = header(bytes, &mut at, b'$') else { break };
        let word = bytes.get(at..at + length).unwrap_or_default();
        at += length + 2;
        if let Some(place) = words.get_mut(number) {
            *place = word;
        }
    }
    First { bytes: at.min(bytes.len()), slot: key(&words[..count.min(WORDS)]).map(key_slot) }
}

/// The first key of a request: its first argument, but for commands that are known to be otherwise.
fn key<'a>(words: &[&'a [u8]]) -> Option<&'a [u8]> {
    let (name, arguments) = words.split_first()?;
    let is_of = |list: &[&[u8]]| list.iter().any(|known| name.eq_ignore_ascii_case(known));
    if is_of(KEYLESS) {
        return None;
    }
    if is_of(COUNTED) {
        let is_counted = arguments.get(1).is_some_and(|count| *count != b"0");
        return arguments.get(2).copied().filter(|_| is_counted);
    }
    arguments.first().copied()
}

/// Reads a line of a sign and a number, and goes behind it.
fn header(bytes: &[u8], at: &mut usize, sign: u8) -> Option<usize> {
    let rest = bytes.get(*at..)?.strip_prefix(&[sign])?;
    let end = rest.iter().position(|byte| *byte == b'\r')?;
    let number = usize::try_from(parse_int(&rest[..end])?).ok()?;
    *at += 1 + end + 2;
    Some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::encode_request;

    fn of(words: &[&str]) -> First {
        let mut bytes = Vec::new();
        encode_request(&mut bytes, &words.iter().map(|word| word.as_bytes()).collect::<Vec<_>>());
        let length = bytes.len();
        bytes.extend_from_slice(b"*1\r\n$4\r\nPING\r\n");
        let first = first(&bytes);
        assert_eq!(first.bytes, length, "{words:?}");
        first
    }

    #[test]
    fn the_key_decides_and_its_hash_tag_if_it_has_one() {
        for (words, slot) in [
            (&["SET", "foo", "bar"][..], Some(12_182)),
            (&["get", "foo"], Some(12_182)),
            (&["SET", "{foo}bar", ""], Some(12_182)),
            (&["MSET", "x{foo}", "1", "y{foo}", "2", "z{foo}", "3"], Some(12_182)),
            (&["EVAL", "return 1", "1", "foo", "x"], Some(12_182)),
            (&["EVAL", "return 1", "0", "foo"], None),
            (&["EVALSHA", "abc", "0"], None),
            (&["WAIT", "1", "0"], None),
            (&["ping"], None),
            (&["SET", "123456789", ""], Some(0x31c3)),
        ] {
            assert_eq!(of(words).slot, slot, "{words:?}");
        }
        assert_eq!(first(b"PING\r\nPING\r\n"), First { bytes: 6, slot: None });
    }
}
