//! JSON to Lua's values.

use mlua::{Lua, Value};

/// What is accepted.
#[derive(Clone, Copy)]
pub(super) struct Rules {
    pub depth_max: i64,
    pub allows_invalid: bool,
}

/// Why nothing was decoded.
pub(super) enum Failed {
    Text(String),
    Lua(mlua::Error),
}

impl From<mlua::Error> for Failed {
    fn from(error: mlua::Error) -> Failed {
        Failed::Lua(error)
    }
}

type Result<T> = std::result::Result<T, Failed>;

enum Token {
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    Colon,
    Comma,
    End,
    String(Vec<u8>),
    Number(f64),
    Bool(bool),
    Null,
    Wrong(&'static str),
}

impl Token {
    fn name(&self) -> &'static str {
        match self {
            Token::ObjectBegin => "T_OBJ_BEGIN",
            Token::ObjectEnd => "T_OBJ_END",
            Token::ArrayBegin => "T_ARR_BEGIN",
            Token::ArrayEnd => "T_ARR_END",
            Token::Colon => "T_COLON",
            Token::Comma => "T_COMMA",
            Token::End => "T_END",
            Token::String(_) => "T_STRING",
            Token::Number(_) => "T_NUMBER",
            Token::Bool(_) => "T_BOOLEAN",
            Token::Null => "T_NULL",
            Token::Wrong(message) => message,
        }
    }
}

struct Decoder<'a> {
    lua: &'a Lua,
    text: &'a [u8],
    at: usize,
    /// Where the last token begins.
    token_at: usize,
    depth: i64,
    rules: Rules,
}

/// Decodes a whole text.
pub(super) fn decode(lua: &Lua, text: &[u8], rules: Rules) -> Result<Value> {
    // Text in UTF-16 or UTF-32 begins so.
    if text.len() >= 2 && (text[0] == 0 || text[1] == 0) {
        return Err(Failed::Text("JSON parser does not support UTF-16 or UTF-32".into()));
    }
    let mut decoder = Decoder { lua, text, at: 0, token_at: 0, depth: 0, rules };
    let token = decoder.token();
    let value = decoder.value(token)?;
    match decoder.token() {
        Token::End => Ok(value),
        other => Err(decoder.expected("the end", &other)),
    }
}

impl Decoder<'_> {
    fn expected(&self, what: &str, found: &Token) -> Failed {
        Failed::Text(format!("Expected {what} but found {} at character {}", found.name(), self.token_at + 1))
    }

    fn descend(&mut self) -> Result<()> {
        self.depth += 1;
        if self.depth > self.rules.depth_max {
            return Err(Failed::Text(format!(
                "Found too many nested data structures ({}) at character {}",
                self.depth, self.at
            )));
        }
        Ok(())
    }

    fn value(&mut self, token: Token) -> Result<Value> {
        match token {
            Token::String(text) => Ok(Value::String(self.lua.create_string(text)?)),
            Token::Number(number) => Ok(Value::Number(number)),
            Token::Bool(value) => Ok(Value::Boolean(value)),
            Token::Null => Ok(Value::NULL),
            Token::ObjectBegin => self.object(),
            Token::ArrayBegin => self.array(),
            other => Err(self.expected("value", &other)),
        }
    }

    fn object(&mut self) -> Result<Value> {
        self.descend()?;
        let table = self.lua.create_table()?;
        let mut token = self.token();
        if !matches!(token, Token::ObjectEnd) {
            loop {
                let Token::String(key) = token else {
                    return Err(self.expected("object key string", &token));
                };
                match self.token() {
                    Token::Colon => {}
                    other => return Err(self.expected("colon", &other)),
                }
                let next = self.token();
                let value = self.value(next)?;
                table.raw_set(self.lua.create_string(key)?, value)?;
                match self.token() {
                    Token::ObjectEnd => break,
                    Token::Comma => token = self.token(),
                    other => return Err(self.expected("comma or object end", &other)),
                }
            }
        }
        self.depth -= 1;
        Ok(Value::Table(table))
    }

    fn array(&mut self) -> Result<Value> {
        self.descend()?;
        let table = self.lua.create_table()?;
        let mut token = self.token();
        let mut count = 0;
        if !matches!(token, Token::ArrayEnd) {
            loop {
                let value = self.value(token)?;
                count += 1;
                table.raw_seti(count, value)?;
                match self.token() {
                    Token::ArrayEnd => break,
                    Token::Comma => token = self.token(),
                    other => return Err(self.expected("comma or array end", &other)),
                }
            }
        }
        self.depth -= 1;
        Ok(Value::Table(table))
    }

    fn token(&mut self) -> Token {
        while matches!(self.text.get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
        self.token_at = self.at;
        let Some(byte) = self.text.get(self.at) else { return Token::End };
        let single = match byte {
            b'{' => Token::ObjectBegin,
            b'}' => Token::ObjectEnd,
            b'[' => Token::ArrayBegin,
            b']' => Token::ArrayEnd,
            b':' => Token::Colon,
            b',' => Token::Comma,
            b'"' => return self.string(),
            b'-' | b'+' | b'0'..=b'9' => return self.number(),
            _ => return self.word(),
        };
        self.at += 1;
        single
    }

    fn word(&mut self) -> Token {
        let rest = &self.text[self.at..];
        for (word, token) in
            [(&b"true"[..], Token::Bool(true)), (b"false", Token::Bool(false)), (b"null", Token::Null)]
        {
            if rest.starts_with(word) {
                self.at += word.len();
                return token;
            }
        }
        if self.rules.allows_invalid && is_invalid_number(rest) {
            return self.number();
        }
        Token::Wrong("invalid token")
    }

    fn number(&mut self) -> Token {
        let rest = &self.text[self.at..];
        if !self.rules.allows_invalid && is_invalid_number(rest) {
            return Token::Wrong("invalid number");
        }
        match c_number(rest) {
            Some((number, length)) => {
                self.at += length;
                Token::Number(number)
            }
            None => Token::Wrong("invalid number"),
        }
    }

    fn string(&mut self) -> Token {
        let mut out = Vec::new();
        let mut at = self.at + 1;
        loop {
            let Some(&byte) = self.text.get(at) else {
                self.token_at = at;
                return Token::Wrong("unexpected end of string");
            };
            match byte {
                b'"' => break,
                b'\\' => match self.escape(at, &mut out) {
                    Ok(length) => at += length,
                    Err(message) => {
                        self.token_at = at;
                        return Token::Wrong(message);
                    }
                },
                _ => {
                    out.push(byte);
                    at += 1;
                }
            }
        }
        self.at = at + 1;
        Token::String(out)
    }

    /// Decodes an escape; how many bytes it takes.
    fn escape(&self, at: usize, out: &mut Vec<u8>) -> std::result::Result<usize, &'static str> {
        let byte = match self.text.get(at + 1) {
            Some(b'b') => 8,
            Some(b't') => b'\t',
            Some(b'n') => b'\n',
            Some(b'f') => 12,
            Some(b'r') => b'\r',
            Some(byte @ (b'"' | b'\\' | b'/')) => *byte,
            Some(b'u') => return self.unicode(at, out).ok_or("invalid unicode escape code"),
            _ => return Err("invalid escape code"),
        };
        out.push(byte);
        Ok(2)
    }

    fn unicode(&self, at: usize, out: &mut Vec<u8>) -> Option<usize> {
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
        out.extend_from_slice(char::from_u32(code)?.encode_utf8(&mut buffer).as_bytes());
        Some(length)
    }

    fn code(&self, at: usize) -> Option<u32> {
        let digits = self.text.get(at..at + 6)?.strip_prefix(b"\\u")?;
        digits.iter().try_fold(0, |code, digit| Some(code << 4 | (*digit as char).to_digit(16)?))
    }
}

/// Numbers that C's `strtod` reads and JSON does not have: infinite ones, NaN, in hexadecimal, or with
/// zeros before them.
fn is_invalid_number(text: &[u8]) -> bool {
    let text = match text {
        [b'+', ..] => return true,
        [b'-', rest @ ..] => rest,
        _ => text,
    };
    match text {
        [b'0', b'x' | b'X', ..] => true,
        [b'0', b'0'..=b'9', ..] => true,
        [b'0'..=b'9', ..] => false,
        _ => {
            let begins =
                |word: &[u8]| text.len() >= word.len() && text[..word.len()].eq_ignore_ascii_case(word);
            begins(b"inf") || begins(b"nan")
        }
    }
}

/// The number at the beginning of a text as C's `strtod` reads it, and how long it is.
fn c_number(text: &[u8]) -> Option<(f64, usize)> {
    let sign = usize::from(matches!(text.first(), Some(b'-' | b'+')));
    let negative = text.first() == Some(&b'-');
    let body = &text[sign..];
    let signed = |value: f64| if negative { -value } else { value };
    for (word, value) in [(&b"infinity"[..], f64::INFINITY), (b"inf", f64::INFINITY), (b"nan", f64::NAN)] {
        if body.len() >= word.len() && body[..word.len()].eq_ignore_ascii_case(word) {
            return Some((signed(value), sign + word.len()));
        }
    }
    if let [b'0', b'x' | b'X', digits @ ..] = body {
        let length = digits.iter().take_while(|digit| digit.is_ascii_hexdigit()).count();
        if length > 0 {
            let value = digits[..length].iter().fold(0.0, |value, digit| {
                value * 16.0 + f64::from((*digit as char).to_digit(16).unwrap_or(0))
            });
            return Some((signed(value), sign + 2 + length));
        }
    }
    let digits = |from: usize| body[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut length = digits(0);
    let mut has_digits = length > 0;
    if body.get(length) == Some(&b'.') {
        let fraction = digits(length + 1);
        has_digits |= fraction > 0;
        length += 1 + fraction;
    }
    if !has_digits {
        return None;
    }
    if matches!(body.get(length), Some(b'e' | b'E')) {
        let exponent_sign = usize::from(matches!(body.get(length + 1), Some(b'-' | b'+')));
        let exponent = body
            .get(length + 1 + exponent_sign..)
            .map_or(0, |rest| rest.iter().take_while(|byte| byte.is_ascii_digit()).count());
        if exponent > 0 {
            length += 1 + exponent_sign + exponent;
        }
    }
    let number: f64 = std::str::from_utf8(&body[..length]).ok()?.parse().ok()?;
    Some((signed(number), sign + length))
}
