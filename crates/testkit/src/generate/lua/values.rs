//! What holes of templates are filled with: numbers, strings and tables at the edges of what they are turned into, formats
//! with their values, JSON and MessagePack, sound and damaged.

use super::Lua;
use crate::values;
use sys::Prng;

const NUMBERS: &[&str] = &[
    "0",
    "1",
    "-1",
    "2",
    "3",
    "10",
    "-0",
    "(0 * -1)",
    "0.1",
    "0.5",
    "-0.5",
    "1.5",
    "2.5",
    "-1.5",
    "3.0",
    "3.99999999999999999",
    "-3.7",
    "127",
    "128",
    "255",
    "256",
    "-129",
    "65535",
    "65536",
    "-32769",
    "1e2",
    "1e14",
    "1e15",
    "1e16",
    "1e17",
    "123456789012345",
    "99999999999999",
    "100000000000000",
    "9007199254740991",
    "9007199254740993",
    "2^31",
    "-2^31",
    "2^31 - 1",
    "2^32",
    "2^32 - 1",
    "2^53",
    "2^63",
    "-2^63",
    "2^64",
    "9223372036854775807",
    "1e100",
    "1e-5",
    "1e-7",
    "1.1e-10",
    "5e-324",
    "1.7976931348623157e308",
    "1/3",
    "100/3",
    "math.pi",
    "math.huge",
    "-math.huge",
    "1/0",
    "0/0",
    "0x10",
    "3.14159265358979",
];

const STRINGS: &[&str] = &[
    "''",
    "'a'",
    "'abc'",
    "'hello world'",
    "'10'",
    "'-7'",
    "'0x1F'",
    "' 5 '",
    "'1e3'",
    "'1.50'",
    "'nan'",
    "'inf'",
    "'-0'",
    "'12345678901234567890'",
    "'a\\0b'",
    "'\\0'",
    "'\\255\\254'",
    "'line\\nnext'",
    "'\\r\\n'",
    "'tab\\t'",
    "'\"quoted\"'",
    "'back\\\\slash'",
    "'/path/'",
    "'(aa)(bb)'",
    "'\\195\\169'",
    "'\\127\\1\\31'",
    "'ERR text'",
    "'err'",
    "'key'",
    "'%d'",
    "[[long\nstring]]",
    "string.rep('x', 31)",
    "string.rep('x', 32)",
    "string.rep('y', 256)",
    // Patterns that take the square of it are done in time everywhere.
    "string.rep('z', 7000)",
];

const FORMATS: &[&str] = &[
    "'%d', $n",
    "'%5d|%-5d|%05d', $i, $i, $i",
    "'%+d % d', $n, $n",
    "'%i %u', $i, $i",
    "'%c%c', $b, 65",
    "'%x %X %#x', $i, $i, $i",
    "'%o', $i",
    "'%e %E', $n, $n",
    "'%f', $n",
    "'%.3f %10.2f', $n, $n",
    "'%.0f', $n",
    "'%g %G', $n, $n",
    "'%.14g', $n",
    "'%.17g', $n",
    "'%q', $s",
    "'%s', $s",
    "'%s %s', $n, $n",
    "'%10s|%-10s|%.2s', $s, $s, $s",
    "'%%'",
    "'%5'",
    "'%y', 1",
    "'%d', $v",
    "'%s', $v",
    "'%s'",
    "'%99d', 1",
    "'%100d', 1",
    "'%.99f', 1",
    "'%.100f', 1",
    "'%----d', 1",
    "'%------d', 1",
    "'%1$d', 1",
    "$s, $n, $n",
];

/// What `struct.pack` takes.
const PACKED: &[&str] = &[
    "'b', $i",
    "'B', $b",
    "'hH', $i, $n",
    "'>i4I4', $n, $n",
    "'<i8', $n",
    "'lL', $n, $n",
    "'fd', $n, $n",
    "'>d', $n",
    "'s', $s",
    "'sb', $s, $i",
    "'c3', $s",
    "'c0', $s",
    "'Bc0', 2, 'ab'",
    "'!4bi', $i, $i",
    "'!8bXd', $i, $n",
    "'>I2c0', #'abc', 'abc'",
    "'i3', $n",
    "'I16', $n",
    "'i9', $i",
    "'x'",
    "'bxb', $i, $i",
    "$u, $n, $n, $s",
    "$u, $v",
    "$u",
];

const TAGGED: &[&str] = &[
    "{ok = 'fine'}",
    "{ok = $s}",
    "{ok = 1}",
    "{err = 'CODE text'}",
    "{err = $s}",
    "{err = 'no code'}",
    "{err = '-DASH text'}",
    "{err = 1}",
    "{err = 'a', ok = 'b'}",
    "{double = $n}",
    "{double = '1.5'}",
    "{double = 1.5, 1, 2}",
    "{big_number = '123456789012345678901234567890'}",
    "{big_number = $s}",
    "{big_number = 5}",
    "{verbatim_string = {format = 'txt', string = $s}}",
    "{verbatim_string = {format = 'markdown', string = 'x'}}",
    "{verbatim_string = {string = 'x'}}",
    "{verbatim_string = 'x'}",
    "{map = {}}",
    "{map = {key = $v}}",
    "{map = {[$n] = $s}}",
    "{map = {$v}}",
    "{map = 1}",
    "{set = {}}",
    "{set = {a = true}}",
    "{set = {[$s] = $v}}",
    "{set = {[1] = $v}}",
    "{set = 'x'}",
    "{format = 'txt', string = 'x'}",
    "redis.error_reply($s)",
    "redis.error_reply('CODE ' .. $s)",
    "redis.error_reply('-CODE ' .. $s)",
    "redis.status_reply($s)",
    "{$v, $T, $v}",
    "{$T, $T}",
    "{1, 2, nil, 4}",
    "{1, 2, [5] = 5}",
    "{x = 1}",
    "{nil}",
    "{[0] = 1}",
    "{[1.5] = 1}",
    "{{{{{}}}}}",
    "cjson.null",
    "function() end",
];

/// Pieces of JSON.
const JSON: &[&str] = &[
    "null",
    "true",
    "false",
    "0",
    "-0",
    "1",
    "-1",
    "1.5",
    "1e3",
    "1E-2",
    "-1.25e+10",
    "1e400",
    "01",
    "+1",
    ".5",
    "1.",
    "0x10",
    "NaN",
    "nan",
    "-inf",
    "Infinity",
    "-Infinity",
    "nul",
    "tru",
    "12345678901234567890",
    "\"\"",
    "\"a\"",
    "\"\\u00e9\"",
    "\"\\ud83d\\ude00\"",
    "\"\\ud83d\"",
    "\"\\ude00\"",
    "\"\\u00zz\"",
    "\"\\u0000\"",
    "\"\\n\\t\\/\\\\\"",
    "\"\\x\"",
    "\"open",
    "\"\x01\"",
    "[]",
    "{}",
    "[1,2,3]",
    "{\"a\":1}",
    "[,]",
    "[1,]",
    "{\"a\"}",
    "{\"a\":}",
    "{1:2}",
    "{\"a\":1,}",
    "]",
    "}",
    ":",
    ",",
    "",
    " ",
    "\t[ 1 , 2 ]\n",
    "{\"1\":1}",
    "[[[[]]]]",
    "9007199254740993",
    "1 2",
    "é",
];

impl Lua<'_, '_> {
    pub(super) fn number(&mut self) -> String {
        match self.generator.prng.below(6) {
            0 => (self.generator.prng.below(2_000) as i64 - 1_000).to_string(),
            1 => format!(
                "{:.*}",
                self.generator.prng.below(8) as usize,
                (self.generator.prng.unit() - 0.5) * 1e4
            ),
            2 if self.one_in(3) => {
                (self.generator.prng.next_u64() >> self.generator.prng.below(64)).to_string()
            }
            _ => self.choose(NUMBERS).to_owned(),
        }
    }

    pub(super) fn small(&mut self) -> String {
        (self.generator.prng.below(24) as i64 - 6).to_string()
    }

    /// A literal, of the shorter ones.
    pub(super) fn plain_string(&mut self) -> &'static str {
        self.choose(&STRINGS[..STRINGS.len() - 5])
    }

    pub(super) fn string(&mut self, depth: usize) -> String {
        match self.generator.prng.below(12) {
            0 => quoted(&values::value(&mut self.generator.prng)),
            1 => quoted(&values::odd(&mut self.generator.prng)),
            2 => {
                let table = if self.one_in(2) { self.names.0 } else { self.names.1 };
                format!("{table}[{}]", 1 + self.generator.prng.below(3))
            }
            3 if depth > 0 => self.call(0),
            4 => self.choose(STRINGS).to_owned(),
            _ => self.plain_string().to_owned(),
        }
    }

    /// Anything.
    pub(super) fn value(&mut self, depth: usize) -> String {
        match self.generator.prng.below(16) {
            0 | 1 => self.string(depth),
            2..=4 => self.number(),
            5 => self.choose(&["true", "false"]).to_owned(),
            6 => "nil".to_owned(),
            7 => self
                .choose(&["a", "b", "c", "KEYS", "ARGV"])
                .replace("KEYS", self.names.0)
                .replace("ARGV", self.names.1),
            8 | 9 if depth > 0 => self.list(depth - 1),
            10 if depth > 0 => self.table(depth - 1),
            11 if depth > 0 => self.call(depth - 1),
            12 if depth > 0 => {
                let value = self.value(depth - 1);
                format!("(function(...) return {value} end)")
            }
            13 => "cjson.null".to_owned(),
            14 if depth > 0 => self.reply_table(depth - 1),
            _ => self.small(),
        }
    }

    /// An array, sometimes with holes.
    pub(super) fn list(&mut self, depth: usize) -> String {
        let count = self.generator.prng.below(6);
        let values: Vec<String> = (0..count)
            .map(|_| match self.generator.prng.below(10) {
                0 => "nil".to_owned(),
                1 | 2 => self.value(depth.saturating_sub(1)),
                3..=6 => self.small(),
                _ => self.string(0),
            })
            .collect();
        format!("{{{}}}", values.join(", "))
    }

    /// A table of any kind.
    pub(super) fn table(&mut self, depth: usize) -> String {
        if self.one_in(3) {
            return self.list(depth);
        }
        let count = self.generator.prng.below(4);
        let fields: Vec<String> = (0..count)
            .map(|at| {
                let value = self.value(depth.saturating_sub(1));
                match self.generator.prng.below(6) {
                    0 => value,
                    1 => format!("[{}] = {value}", self.small()),
                    2 if at == 0 => {
                        format!("[{}] = {value}", self.choose(&["1.5", "true", "'a b'", "''", "100", "1e20"]))
                    }
                    _ => format!("{} = {value}", self.choose(&["x", "y", "err", "ok", "n", "map"])),
                }
            })
            .collect();
        format!("{{{}}}", fields.join(", "))
    }

    /// A table that means a reply.
    pub(super) fn reply_table(&mut self, depth: usize) -> String {
        let plain: &[&str] = &["{1, 'two', {3}}", "{$v, $v}", "$v"];
        let template = if depth == 0 { self.choose(plain) } else { self.choose(TAGGED) };
        self.expand(template, depth.saturating_sub(1))
    }

    /// A format and its values.
    pub(super) fn format(&mut self) -> String {
        let format = self.choose(FORMATS);
        self.expand(format, 0)
    }

    /// A format of `struct` and its values.
    pub(super) fn structure(&mut self) -> String {
        let format = self.choose(PACKED);
        self.expand(format, 0)
    }

    pub(super) fn json(&mut self) -> String {
        let mut text = Vec::new();
        json(&mut self.generator.prng, 3, &mut text);
        if self.one_in(5) && !text.is_empty() {
            let at = self.generator.prng.below(text.len() as u64) as usize;
            text[at] = values::pick(&mut self.generator.prng, b"[]{}\",:\\ 0e-\x00\xff");
        }
        quoted(&text)
    }

    pub(super) fn packed(&mut self) -> String {
        let mut bytes = Vec::new();
        for _ in 0..=self.generator.prng.below(3) {
            message_pack(&mut self.generator.prng, 3, &mut bytes);
        }
        if self.one_in(6) {
            bytes.truncate(self.generator.prng.below(bytes.len() as u64 + 1) as usize);
        }
        quoted(&bytes)
    }
}

fn json(prng: &mut Prng, depth: usize, text: &mut Vec<u8>) {
    match prng.below(6) {
        0 | 1 if depth > 0 => {
            text.push(b'[');
            for at in 0..prng.below(4) {
                if at > 0 {
                    text.push(b',');
                }
                json(prng, depth - 1, text);
            }
            text.push(b']');
        }
        2 | 3 if depth > 0 => {
            text.push(b'{');
            for at in 0..prng.below(4) {
                if at > 0 {
                    text.extend_from_slice(b", ");
                }
                text.extend_from_slice(
                    format!("\"{}\": ", values::pick(prng, &["a", "b", "", "1", "key"])).as_bytes(),
                );
                json(prng, depth - 1, text);
            }
            text.push(b'}');
        }
        // Mostly what is JSON.
        _ if prng.one_in(8) => text.extend_from_slice(values::pick(prng, JSON).as_bytes()),
        _ => {
            const SOUND: &[&str] =
                &["null", "true", "false", "0", "1.5", "-3e2", "\"text\"", "\"\\u00e9\"", "12345678"];
            text.extend_from_slice(values::pick(prng, SOUND).as_bytes());
        }
    }
}

fn message_pack(prng: &mut Prng, depth: usize, bytes: &mut Vec<u8>) {
    let random =
        |prng: &mut Prng, count: usize| (0..count).map(|_| prng.next_u64() as u8).collect::<Vec<u8>>();
    match prng.below(12) {
        0 => bytes.push(prng.below(128) as u8),
        1 => bytes.push(0xe0 | prng.below(32) as u8),
        2 => {
            let len = prng.below(6) as u8;
            bytes.push(0xa0 | len);
            bytes.extend(std::iter::repeat_n(b's', usize::from(len)));
        }
        3 if depth > 0 => {
            let count = prng.below(4);
            bytes.push(0x90 | count as u8);
            (0..count).for_each(|_| message_pack(prng, depth - 1, bytes));
        }
        4 if depth > 0 => {
            let count = prng.below(3);
            bytes.push(0x80 | count as u8);
            for at in 0..count {
                bytes.extend([0xa1, b'k' + at as u8]);
                message_pack(prng, depth - 1, bytes);
            }
        }
        5 => bytes.push(values::pick(prng, &[0xc0, 0xc2, 0xc3, 0xc1, 0xc4, 0xc7, 0xd4, 0xd8])),
        6 | 7 => {
            // Numbers of each width.
            let (tag, width) = values::pick(
                prng,
                &[
                    (0xcc, 1),
                    (0xcd, 2),
                    (0xce, 4),
                    (0xcf, 8),
                    (0xd0, 1),
                    (0xd1, 2),
                    (0xd2, 4),
                    (0xd3, 8),
                    (0xca, 4),
                    (0xcb, 8),
                ],
            );
            bytes.push(tag);
            bytes.extend(random(prng, width));
        }
        8 => {
            let len = prng.below(40) as u8;
            bytes.extend([0xd9, len]);
            bytes.extend(std::iter::repeat_n(b't', usize::from(len)));
        }
        9 => bytes.extend([0xdc, 0, prng.below(3) as u8]),
        10 => bytes.extend(random(prng, 2)),
        _ => bytes.extend([0xda, 0, 2, b'h', b'i']),
    }
}

/// Bytes as a string of Lua.
pub(super) fn quoted(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() + 2);
    text.push('"');
    for byte in bytes {
        match byte {
            b'"' | b'\\' | 0..=31 | 127.. => text.push_str(&format!("\\{byte:03}")),
            _ => text.push(char::from(*byte)),
        }
    }
    text.push('"');
    text
}
