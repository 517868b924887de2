//! Splitting a line into words by Redis' quoting rules, and the quoted form of any bytes.
//!
//! The rules serve inline requests and redis.conf; the quoted form appears in MONITOR, CLIENT LIST and
//! rewritten configuration files. A word is plain, `"double quoted"` (with `\n \r \t \a \b \xHH`, and a
//! backslash before anything else standing for that byte) or `'single quoted'` (with `\'` only). A closing
//! quote must be followed by a blank or the end of the line; an opening quote may follow plain bytes. Pure
//! functions.

use crate::request::Span;

/// A line whose quotes do not match, or with bytes directly after a closing quote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnbalancedQuotes;

impl std::fmt::Display for UnbalancedQuotes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("unbalanced quotes")
    }
}

impl std::error::Error for UnbalancedQuotes {}

/// The words of a line, unquoted. A line of blanks has none; `""` is one empty word.
pub fn split_words(line: &[u8]) -> Result<Vec<Vec<u8>>, UnbalancedQuotes> {
    let mut bytes = Vec::new();
    let mut spans = Vec::new();
    split_into(line, &mut bytes, &mut spans)?;
    Ok(spans.iter().map(|span| bytes[span.start..span.end].to_vec()).collect())
}

/// Appends the unquoted words of `line` to `bytes` and where each lies in `bytes` to `spans`. After an error
/// both may hold words of the line.
pub(crate) fn split_into(
    line: &[u8],
    bytes: &mut Vec<u8>,
    spans: &mut Vec<Span>,
) -> Result<(), UnbalancedQuotes> {
    let mut rest = line;
    loop {
        while let [blank, tail @ ..] = rest
            && is_blank(*blank)
        {
            rest = tail;
        }
        if rest.is_empty() {
            return Ok(());
        }
        let start = bytes.len();
        rest = read_word(rest, bytes)?;
        spans.push(Span { start, end: bytes.len() });
    }
}

/// What C's `isspace` takes for a blank.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

/// Appends one word; returns what follows it. Inside a word only four of the six blanks end it, as in Redis.
fn read_word<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Result<&'a [u8], UnbalancedQuotes> {
    loop {
        match rest {
            [] | [b' ' | b'\t' | b'\n' | b'\r', ..] => return Ok(rest),
            [b'"', tail @ ..] => return after_quote(read_double_quoted(tail, word)?),
            [b'\'', tail @ ..] => return after_quote(read_single_quoted(tail, word)?),
            [byte, tail @ ..] => {
                word.push(*byte);
                rest = tail;
            }
        }
    }
}

fn after_quote(rest: &[u8]) -> Result<&[u8], UnbalancedQuotes> {
    match rest {
        [byte, ..] if !is_blank(*byte) => Err(UnbalancedQuotes),
        _ => Ok(rest),
    }
}

fn read_double_quoted<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Result<&'a [u8], UnbalancedQuotes> {
    loop {
        rest = match rest {
            [] => return Err(UnbalancedQuotes),
            [b'"', tail @ ..] => return Ok(tail),
            [b'\\', b'x', high, low, tail @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                word.push(hex_digit(*high) << 4 | hex_digit(*low));
                tail
            }
            [b'\\', escaped, tail @ ..] => {
                word.push(unescape(*escaped));
                tail
            }
            [byte, tail @ ..] => {
                word.push(*byte);
                tail
            }
        };
    }
}

fn read_single_quoted<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Result<&'a [u8], UnbalancedQuotes> {
    loop {
        rest = match rest {
            [] => return Err(UnbalancedQuotes),
            [b'\'', tail @ ..] => return Ok(tail),
            [b'\\', b'\'', tail @ ..] => {
                word.push(b'\'');
                tail
            }
            [byte, tail @ ..] => {
                word.push(*byte);
                tail
            }
        };
    }
}

fn hex_digit(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit - b'A' + 10,
    }
}

fn unescape(escaped: u8) -> u8 {
    match escaped {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 0x08,
        b'a' => 0x07,
        other => other,
    }
}

/// The bytes in double quotes, printable ASCII as it is and all else escaped; [`split_words`] reads it back.
pub fn quote(bytes: &[u8]) -> String {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let mut quoted = String::with_capacity(bytes.len() + 2);
    quoted.push('"');
    for &byte in bytes {
        match byte {
            b'\\' | b'"' => quoted.extend(['\\', char::from(byte)]),
            b'\n' => quoted.push_str("\\n"),
            b'\r' => quoted.push_str("\\r"),
            b'\t' => quoted.push_str("\\t"),
            0x07 => quoted.push_str("\\a"),
            0x08 => quoted.push_str("\\b"),
            b' '..=b'~' => quoted.push(char::from(byte)),
            _ => {
                let (high, low) = (HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]);
                quoted.extend(['\\', 'x', char::from(high), char::from(low)]);
            }
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each line was sent to a live redis-server 7.0.15 as an inline request.
    #[test]
    fn words_are_split_as_redis_splits_them() {
        let cases: &[(&[u8], &[&[u8]])] = &[
            (b"", &[]),
            (b" \t\r\n\x0b\x0c", &[]),
            (b" \t ping \t", &[b"ping"]),
            (b"\rping", &[b"ping"]),
            (b"\x0bping", &[b"ping"]),
            (b"echo\x0ba", &[b"echo\x0ba"]),
            (b"echo \x0ba", &[b"echo", b"a"]),
            (b"echo a\rb", &[b"echo", b"a", b"b"]),
            (b"echo \"a\rb\"", &[b"echo", b"a\rb"]),
            (b"echo \"\" ''", &[b"echo", b"", b""]),
            (br#"echo "a\x41\n\q""#, &[b"echo", b"aA\nq"]),
            (br#"echo "a\r\t\a\b\x0""#, &[b"echo", b"a\r\t\x07\x08x0"]),
            (br#"echo "\xAf\xg1""#, &[b"echo", b"\xafxg1"]),
            (br"echo 'a\'b\x41\n'", &[b"echo", br"a'b\x41\n"]),
            (br"echo \x41", &[b"echo", br"\x41"]),
            (b"echo a\"b\"", &[b"echo", b"ab"]),
            (b"echo a'b'", &[b"echo", b"ab"]),
            (b"echo \"a\"\x0bb", &[b"echo", b"a", b"b"]),
            (b"echo \xff\xfe", &[b"echo", b"\xff\xfe"]),
        ];
        for (line, words) in cases {
            assert_eq!(split_words(line).unwrap(), *words, "{}", line.escape_ascii());
        }
    }

    #[test]
    fn unbalanced_quotes_are_refused_as_redis_refuses_them() {
        let cases: &[&[u8]] = &[
            b"echo \"a",
            b"echo 'a",
            b"echo \"a\"b",
            b"echo 'a'b",
            b"echo ab\"c",
            b"\"\\\"",
            b"'\\'",
            b"\"\\",
        ];
        for line in cases {
            assert_eq!(split_words(line), Err(UnbalancedQuotes), "{}", line.escape_ascii());
        }
    }

    #[test]
    fn quoted_bytes_read_back_as_one_word() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(split_words(quote(&all).as_bytes()).unwrap(), [all]);
        assert_eq!(quote(b"a\"b\\\n\r\t\x07\x08\x00\xff~ "), r#""a\"b\\\n\r\t\a\b\x00\xff~ ""#);
        assert_eq!(quote(b""), "\"\"");
    }
}
