//! The words of a JSON text: what `cjson.decode` reads one after the other.
//!
//! What is accepted, and where an error is said to be, is as in the library that Redis has: a zero byte ends the text.

use super::number;

/// A word.
#[derive(Clone, Copy)]
pub(crate) enum Token<'a> {
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    Colon,
    Comma,
    End,
    /// A string as it stands in the text.
    Plain(&'a [u8]),
    /// A string with escapes; what it stands for is in [`Scanner::unescaped`].
    Escaped,
    Number(f64),
    Bool(bool),
    Null,
    Wrong(&'static str),
}

impl Token<'_> {
    /// As errors name it.
    pub fn name(self) -> &'static str {
        match self {
            Token::ObjectBegin => "T_OBJ_BEGIN",
            Token::ObjectEnd => "T_OBJ_END",
            Token::ArrayBegin => "T_ARR_BEGIN",
            Token::ArrayEnd => "T_ARR_END",
            Token::Colon => "T_COLON",
            Token::Comma => "T_COMMA",
            Token::End => "T_END",
            Token::Plain(_) | Token::Escaped => "T_STRING",
            Token::Number(_) => "T_NUMBER",
            Token::Bool(_) => "T_BOOLEAN",
            Token::Null => "T_NULL",
            Token::Wrong(message) => message,
        }
    }
}

/// Reads a text.
pub(crate) struct Scanner<'a, 'u> {
    pub text: &'a [u8],
    /// Behind the last word.
    pub at: usize,
    /// Where the last word begins, or is wrong.
    pub token_at: usize,
    pub allows_invalid: bool,
    pub unescaped: &'u mut Vec<u8>,
}

impl<'a> Scanner<'a, '_> {
    /// The next word.
    #[inline]
    pub fn token(&mut self) -> Token<'a> {
        let mut at = self.at;
        let byte = loop {
            match self.text.get(at) {
                Some(b' ' | b'\t' | b'\n' | b'\r') => at += 1,
                Some(byte) => break *byte,
                None => break 0,
            }
        };
        self.token_at = at;
        self.at = at;
        let single = match byte {
            b'"' => return self.string(),
            b'-' | b'0'..=b'9' => return self.number(),
            b'{' => Token::ObjectBegin,
            b'}' => Token::ObjectEnd,
            b'[' => Token::ArrayBegin,
            b']' => Token::ArrayEnd,
            b':' => Token::Colon,
            b',' => Token::Comma,
            0 => return Token::End,
            _ => return self.word(),
        };
        self.at = at + 1;
        single
    }

    fn word(&mut self) -> Token<'a> {
        let rest = &self.text[self.at..];
        let (token, length) = if rest.starts_with(b"true") {
            (Token::Bool(true), 4)
        } else if rest.starts_with(b"false") {
            (Token::Bool(false), 5)
        } else if rest.starts_with(b"null") {
            (Token::Null, 4)
        } else if self.allows_invalid && is_invalid_number(rest) {
            return self.any_number();
        } else {
            return Token::Wrong("invalid token");
        };
        self.at += length;
        token
    }

    #[inline]
    fn number(&mut self) -> Token<'a> {
        /// Digits that a float has room for.
        const DIGITS_MAX: usize = 15;
        let rest = &self.text[self.at..];
        let sign = usize::from(rest[0] == b'-');
        let (mut whole, mut length) = (0, sign);
        while let Some(digit @ b'0'..=b'9') = rest.get(length)
            && length < sign + DIGITS_MAX
        {
            whole = whole * 10 + i64::from(digit - b'0');
            length += 1;
        }
        let begins_with_zero = length > sign + 1 && rest[sign] == b'0';
        if length == sign || begins_with_zero {
            return self.any_number();
        }
        let mut divisor = 1.0;
        if let [b'.', b'0'..=b'9', ..] = rest[length..] {
            length += 1;
            // A sign and a point stand before and between the digits.
            while let Some(digit @ b'0'..=b'9') = rest.get(length)
                && length < sign + 1 + DIGITS_MAX
            {
                whole = whole * 10 + i64::from(digit - b'0');
                divisor *= 10.0;
                length += 1;
            }
        }
        if let Some(b'0'..=b'9' | b'.' | b'e' | b'E' | b'x' | b'X') = rest.get(length) {
            return self.any_number();
        }
        self.at += length;
        // Both are exact, so this is the nearest float.
        let number = whole as f64 / divisor;
        Token::Number(if sign == 1 { -number } else { number })
    }

    fn any_number(&mut self) -> Token<'a> {
        let rest = &self.text[self.at..];
        if !self.allows_invalid && is_invalid_number(rest) {
            return Token::Wrong("invalid number");
        }
        match number::read(rest) {
            Some((number, length)) => {
                self.at += length;
                Token::Number(number)
            }
            None => Token::Wrong("invalid number"),
        }
    }

    #[inline]
    fn string(&mut self) -> Token<'a> {
        let begin = self.at + 1;
        let rest = &self.text[begin..];
        let length = plain_length(rest);
        if rest.get(length) == Some(&b'"') {
            self.at = begin + length + 1;
            return Token::Plain(&rest[..length]);
        }
        self.escaped_string(begin)
    }

    fn escaped_string(&mut self, begin: usize) -> Token<'a> {
        self.unescaped.clear();
        let mut at = begin;
        let message = loop {
            let rest = &self.text[at..];
            let length = plain_length(rest);
            self.unescaped.extend_from_slice(&rest[..length]);
            at += length;
            match rest.get(length) {
                Some(b'"') => {
                    self.at = at + 1;
                    return Token::Escaped;
                }
                Some(b'\\') => match self.escape(at) {
                    Ok(length) => at += length,
                    Err(message) => break message,
                },
                _ => break "unexpected end of string",
            }
        };
        self.token_at = at;
        Token::Wrong(message)
    }

    /// Decodes an escape; how many bytes it takes.
    fn escape(&mut self, at: usize) -> Result<usize, &'static str> {
        let byte = match self.text.get(at + 1) {
            Some(b'b') => 8,
            Some(b't') => b'\t',
            Some(b'n') => b'\n',
            Some(b'f') => 12,
            Some(b'r') => b'\r',
            Some(byte @ (b'"' | b'\\' | b'/')) => *byte,
            Some(b'u') => return self.unicode(at).ok_or("invalid unicode escape code"),
            _ => return Err("invalid escape code"),
        };
        self.unescaped.push(byte);
        Ok(2)
    }

    fn unicode(&mut self, at: usize) -> Option<usize> {
        let first = self.code(at)?;
        let (code, length) = match first {
            0xD800..0xDC00 => {
                let second = self.code(at + 6).filter(|code| (0xDC00..0xE000).contains(code))?;
                (0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00), 12)
            }
            0xDC00..0xE000 => return None,
            code => (code, 6),
        };
        let mut buffer = [0; 4];
        self.unescaped.extend_from_slice(char::from_u32(code)?.encode_utf8(&mut buffer).as_bytes());
        Some(length)
    }

    fn code(&self, at: usize) -> Option<u32> {
        let digits = self.text.get(at..at + 6)?.strip_prefix(b"\\u")?;
        digits.iter().try_fold(0, |code, digit| Some(code << 4 | (*digit as char).to_digit(16)?))
    }
}

/// Bytes before the first that is not just itself in a string.
#[inline]
fn plain_length(text: &[u8]) -> usize {
    text.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0)).unwrap_or(text.len())
}

/// Numbers that C's `strtod` reads and JSON does not have: infinite ones, NaN, in hexadecimal, or with
/// zeros or a plus sign before them.
fn is_invalid_number(text: &[u8]) -> bool {
    let text = match text {
        [b'+', ..] => return true,
        [b'-', rest @ ..] => rest,
        _ => text,
    };
    match text {
        [b'0', b'x' | b'X' | b'0'..=b'9', ..] => true,
        [b'0'..=b'9', ..] => false,
        _ => number::begins(text, b"inf") || number::begins(text, b"nan"),
    }
}
