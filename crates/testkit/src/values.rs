//! What the generator puts where a syntax names an argument: mostly fitting
//! values that collide and sit at the edges, sometimes anything odd.
//!
//! Invariants:
//! 1. No time to live lies between now and the end of a test: either hours away or past.
//! 2. Keys come from a small set, so that commands meet each other's work.

mod collections;
mod streams;

use crate::settings;
use command::Group;
use sys::Prng;

/// The keys. Some share a hash tag, one is empty, one is binary.
pub const KEYS: &[&[u8]] =
    &[b"k1", b"k2", b"k3", b"k4", b"k5", b"{t}a", b"{t}b", b"key:with:colons", b"", b"\x00\xffbin\r\n"];

/// Databases that the generator selects; a few, so that they collide.
pub const DATABASES: u64 = 3;

/// Texts that are numbers, nearly numbers, or at the edge of some range.
const ODD: &[&[u8]] = &[
    b"",
    b" ",
    b"-",
    b"+",
    b"0",
    b"-0",
    b"+1",
    b" 1",
    b"1 ",
    b"01",
    b"-1",
    b"0x10",
    b"1e3",
    b"1.5",
    b"-1.5",
    b"1.",
    b".5",
    b"nan",
    b"inf",
    b"-inf",
    b"Infinity",
    b"1e400",
    b"9223372036854775807",
    b"9223372036854775808",
    b"-9223372036854775808",
    b"-9223372036854775809",
    b"18446744073709551615",
    b"18446744073709551616",
    b"9223372036854775",
    b"9223372036854776",
    b"-9223372036854775",
    b"-9223372036854776",
    b"4294967295",
    b"4294967296",
    b"2147483647",
    b"2147483648",
    b"-2147483648",
    b"-2147483649",
    b"1\x00",
    b"\x00",
    b"\xff\xfe",
    b"a b",
    b"*",
    b"?",
    b"[a-",
    b"\\",
    b"\r\n",
    b"1,5",
    b"--1",
    b"99999999999999999999999999999999999999999999999999999999999999999999999999999",
];

/// One of `choices`.
pub fn pick<T: Copy>(prng: &mut Prng, choices: &[T]) -> T {
    choices[prng.below(choices.len() as u64) as usize]
}

/// A key of the small set.
pub fn key(prng: &mut Prng) -> Vec<u8> {
    // The first ones are asked for more often, so that something is usually there.
    let count = if prng.one_in(3) { KEYS.len() } else { 4 };
    KEYS[prng.below(count as u64) as usize].to_vec()
}

/// Something that hardly any argument expects.
pub fn odd(prng: &mut Prng) -> Vec<u8> {
    match prng.below(12) {
        0 => bytes(prng, 300),
        1 => key(prng),
        _ => pick(prng, ODD).to_vec(),
    }
}

/// A value for the argument that a syntax calls `name`, in a request of `command`, which is of the family `group`.
pub fn argument(prng: &mut Prng, group: Group, command: &str, name: &str) -> Vec<u8> {
    let name = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
    let own = streams::argument(prng, command, name);
    if let Some(word) = own.or_else(|| collections::argument(prng, group, command, name)) {
        return word;
    }
    match name {
        "key" | "newkey" | "source" | "destination" | "destkey" | "sourcekey" => {
            collections::key_of(prng, group)
        }
        "increment" if command.ends_with("float") => float(prng),
        "score" | "min" | "max" | "longitude" | "latitude" | "radius" | "weight" | "float" => float(prng),
        "increment" | "decrement" => edge_integer(prng),
        "seconds" | "milliseconds" | "ttl" => time_to_live(prng),
        "unix-time-seconds" | "unix-time-milliseconds" => moment(prng),
        "offset" if command.starts_with("bitfield") => bitfield_offset(prng),
        "offset" => offset(prng),
        "start" | "end" | "stop" | "index" | "rank" if command != "select" => index(prng),
        "db" | "destination-db" | "index" => integer(prng, -1, 17),
        "bit" => pick(prng, &[b"0", b"1", b"0", b"1", b"0", b"1", b"2"]).to_vec(),
        "count" | "len" | "min-match-len" | "numkeys" | "limit" | "number" => integer(prng, -2, 20),
        "timeout" => pick::<&[u8]>(prng, &[b"0.001", b"0.002", b"1e-3", b"-1", b"x"]).to_vec(),
        "encoding" => encoding(prng),
        "operation" => pick::<&[u8]>(prng, &[b"AND", b"or", b"XOR", b"NOT", b"not", b"NAND"]).to_vec(),
        "pattern" => pattern(prng),
        "cursor" => pick::<&[u8]>(prng, &[b"0", b"0", b"0", b"0", b"1", b"abc", b"-1"]).to_vec(),
        "type" => {
            pick::<&[u8]>(prng, &[b"string", b"STRING", b"list", b"hash", b"set", b"zset", b"stream", b"x"])
                .to_vec()
        }
        "serialized-value" => serialized(prng),
        "parameter" if command == "config|get" => settings::pattern(prng),
        "parameter" => settings::name(prng),
        "username" => pick::<&[u8]>(prng, &[b"default", b"default", b"nobody", b"Default"]).to_vec(),
        "protover" => pick::<&[u8]>(prng, &[b"2", b"3", b"2", b"3", b"1", b"4", b"x"]).to_vec(),
        "connection-name" | "clientname" | "libname" | "libver" => label(prng),
        "event" => pick::<&[u8]>(prng, &[b"command", b"fast-command", b"fork", b"nosuch"]).to_vec(),
        "channel" | "shardchannel" => pick::<&[u8]>(prng, &[b"c1", b"c2", b"news", b""]).to_vec(),
        "field" | "member" | "element" | "pivot" => short(prng),
        _ => value(prng),
    }
}

/// A member or another small value, of the many that one request may add.
pub fn one_of_many(prng: &mut Prng, group: Group, command: &str, name: &str) -> Vec<u8> {
    match name {
        "field" | "member" | "element" => collections::numbered(prng),
        _ => argument(prng, group, command, name),
    }
}

pub use collections::{ascending, fit_range, fit_texts, fit_weights};
pub use streams::balance as balance_streams;

/// A string value: numbers, short texts, and lengths around the changes of encoding.
pub fn value(prng: &mut Prng) -> Vec<u8> {
    match prng.below(100) {
        0..20 => edge_integer(prng),
        20..30 => float(prng),
        30..60 => short(prng),
        60..70 => vec![b'x'; pick(prng, &[19, 20, 21, 22])],
        70..80 => vec![b'y'; pick(prng, &[43, 44, 45, 46, 64])],
        80..88 => bytes(prng, 40),
        88..94 => bytes(prng, 400),
        94..99 => odd(prng),
        _ => vec![b'z'; pick(prng, &[16_383, 32_768, 65_535, 65_536, 65_537])],
    }
}

const SHORT: &[&[u8]] = &[b"a", b"b", b"c", b"foo", b"bar", b"hello", b"ab", b"", b"foobar", b"1", b"10"];

fn short(prng: &mut Prng) -> Vec<u8> {
    pick(prng, SHORT).to_vec()
}

/// A name for a connection, of which some hold what names must not hold.
fn label(prng: &mut Prng) -> Vec<u8> {
    pick::<&[u8]>(prng, &[b"app", b"lib-1.0", b"a b", b"", b"a\nb", b"caf\xc3\xa9", b"~", b"!"]).to_vec()
}

fn bytes(prng: &mut Prng, len_max: u64) -> Vec<u8> {
    (0..prng.below(len_max + 1)).map(|_| prng.next_u64() as u8).collect()
}

fn integer(prng: &mut Prng, low: i64, high: i64) -> Vec<u8> {
    let number = low + prng.below((high - low + 1) as u64) as i64;
    number.to_string().into_bytes()
}

fn edge_integer(prng: &mut Prng) -> Vec<u8> {
    const EDGES: &[i64] =
        &[0, 1, -1, i64::MAX, i64::MIN, i64::MAX - 1, i64::MIN + 1, 9_999, 10_000, 1 << 31, 1 << 32];
    if prng.one_in(4) { pick(prng, EDGES).to_string().into_bytes() } else { integer(prng, -1_000, 1_000) }
}

fn float(prng: &mut Prng) -> Vec<u8> {
    const FLOATS: &[&[u8]] = &[
        b"0",
        b"1.5",
        b"-1.5",
        b"0.1",
        b"3.0e3",
        b"5.0e-3",
        b"1e17",
        b"1e-17",
        b"123456789.123456789",
        b"-0.0",
        b"inf",
        b"1e308",
        b"-1e308",
        b"0.30000000000000004",
        b"10",
        b"(1",
        b"-inf",
        b"100000000000000000000",
        b"2.5e0",
    ];
    match prng.below(3) {
        0 => pick(prng, FLOATS).to_vec(),
        1 => integer(prng, -100, 100),
        _ => format!("{:.*}", prng.below(6) as usize, (prng.unit() - 0.5) * 2_000.0).into_bytes(),
    }
}

/// Hours at the least, whether counted in seconds or in milliseconds; or past.
fn time_to_live(prng: &mut Prng) -> Vec<u8> {
    const PAST: &[i64] = &[0, -1, -1_000_000_000];
    match prng.below(10) {
        0 => pick(prng, PAST).to_string().into_bytes(),
        // Never the same twice: with GT and LT a tie would be decided by the clock.
        _ => integer(prng, 50_000_000, 900_000_000),
    }
}

/// A moment long past or in some decades, whether counted in seconds or in milliseconds.
fn moment(prng: &mut Prng) -> Vec<u8> {
    const MOMENTS: &[i64] =
        &[4_102_444_800, 4_102_444_800_000, 253_402_300_799, 99_999_999_999_999, 1, 0, -1, 1_500_000_000];
    pick(prng, MOMENTS).to_string().into_bytes()
}

fn offset(prng: &mut Prng) -> Vec<u8> {
    match prng.below(20) {
        0 => integer(prng, -5, 0),
        1 => integer(prng, 0, 20_000),
        _ => integer(prng, 0, 80),
    }
}

fn bitfield_offset(prng: &mut Prng) -> Vec<u8> {
    let offset = offset(prng);
    if prng.one_in(3) { [b"#".as_slice(), &offset].concat() } else { offset }
}

fn index(prng: &mut Prng) -> Vec<u8> {
    if prng.one_in(10) { integer(prng, -100_000, 100_000) } else { integer(prng, -10, 10) }
}

fn encoding(prng: &mut Prng) -> Vec<u8> {
    let sign = pick(prng, &["u", "i", "i", "u", "U", "x"]);
    let bits = if prng.one_in(2) { pick(prng, &[1, 8, 16, 32, 62, 63, 64]) } else { prng.below(67) };
    format!("{sign}{bits}").into_bytes()
}

fn pattern(prng: &mut Prng) -> Vec<u8> {
    const PATTERNS: &[&[u8]] = &[
        b"*", b"k*", b"k?", b"k[12]", b"k[^1]", b"k[1-3]", b"k[3-1]", b"", b"{t}*", b"\\k1", b"k[", b"*:*",
        b"**", b"?1", b"k\\", b"k[\\1]", b"*1*", b"[hsz]?", b"1*", b"[a-c]*",
    ];
    pick(prng, PATTERNS).to_vec()
}

/// Dumps of a text, an integer and a compressible text as Redis 7.0 makes them, and damaged ones.
fn serialized(prng: &mut Prng) -> Vec<u8> {
    const DUMPS: &[&[u8]] = &[
        b"\x00\x05\x68\x65\x6c\x6c\x6f\x0a\x00\x63\x72\xdf\x76\x65\x34\x20\x0a",
        b"\x00\xc0\x7b\x0a\x00\x48\xe2\x53\xe1\x00\x7a\x67\xb9",
        b"\x00\xc3\x09\x40\x64\x01\x7a\x7a\xe0\x57\x00\x01\x7a\x7a\x0a\x00\x96\xf7\xdc\x87\xfe\xfd\x1c\xe4",
        b"",
        b"x",
    ];
    let mut dump = pick(prng, DUMPS).to_vec();
    if prng.one_in(4) && !dump.is_empty() {
        let at = prng.below(dump.len() as u64) as usize;
        dump[at] ^= 1 << prng.below(8);
    }
    dump
}
