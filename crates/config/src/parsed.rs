//! The value of a directive: parsing its words and writing them back as Redis writes them.
//!
//! Parsing knows the kind of the row only. What Redis keeps as one number is one number here (yes/no, integers, memory,
//! the index of a word, bits), so that `Config` can mirror it in an atomic.

use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use crate::row::{Kind, Row, SHUTDOWN_WORDS};
use crate::special;

/// A parsed value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Yes/no, integers, memory, the index of a word, bits; a percentage is negative.
    Number(i64),
    /// Text and paths.
    Text(Vec<u8>),
    /// Several words.
    Words(Vec<Vec<u8>>),
    /// The words of each line.
    Lines(Vec<Vec<Vec<u8>>>),
    /// Pairs of seconds and changes.
    Save(Vec<(i64, i64)>),
    /// The limits of normal, replica and pubsub clients, in this order.
    OutputLimits([OutputLimit; 3]),
    /// `oom-score-adj-values`.
    OomScores([i64; 3]),
    /// Percentages.
    Percentiles(Vec<f64>),
    /// The master to follow.
    ReplicaOf(Option<(String, u16)>),
}

/// How much output may wait for one client before it is disconnected; 0 stands for no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputLimit {
    /// Disconnect at once above this.
    pub hard_bytes: u64,
    /// Disconnect when above this for longer than `soft_s`.
    pub soft_bytes: u64,
    /// Seconds.
    pub soft_s: u64,
}

/// Why a value is refused, in Redis' words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadValue(pub String);

impl From<&str> for BadValue {
    fn from(text: &str) -> BadValue {
        BadValue(text.to_owned())
    }
}

/// A parsed value, or why there is none.
pub type Parsed = Result<Value, BadValue>;

/// Parses the words of a line of the configuration file. `before` is the value so far, for directives whose lines
/// add up; `None` where the line replaces whatever there was.
pub fn parse(row: &Row, words: &[&[u8]], before: Option<Value>) -> Parsed {
    match row.kind {
        Kind::Words => special::parse_words(words),
        Kind::Lines { words_min } => special::parse_lines(words_min, words, before),
        Kind::Save => special::parse_save(words, before),
        Kind::OutputLimits => special::parse_output_limits(words, before),
        Kind::ShutdownFlags => special::parse_shutdown_flags(words),
        Kind::OomScores => special::parse_oom_scores(words),
        Kind::Percentiles => special::parse_percentiles(words),
        Kind::ReplicaOf => special::parse_replica_of(words),
        _ => match words {
            [word] => parse_one(row, word),
            _ => Err("wrong number of arguments".into()),
        },
    }
}

fn parse_one(row: &Row, word: &[u8]) -> Parsed {
    let number = match row.kind {
        Kind::Bool => parse_bool(word)?,
        Kind::Int { min, max } => {
            let number = decimal(word).ok_or("argument couldn't be parsed into an integer")?;
            within(number, min, max)?
        }
        Kind::Octal => parse_octal(word)?,
        Kind::Memory { min, max } => {
            let bytes = memory(word).ok_or("argument must be a memory value")?;
            within(i64::try_from(bytes).unwrap_or(BEYOND_EVERY_LIMIT), min, max)?
        }
        Kind::MemoryOrPercent => parse_memory_or_percent(word)?,
        Kind::Enum(words) => index_of_word(words, word).ok_or_else(|| one_of(words))? as i64,
        Kind::KeyspaceEvents => special::parse_keyspace_events(word)?,
        Kind::Text(check) => return check(word).map(|()| Value::Text(word.to_vec())).map_err(BadValue::from),
        _ => return absolute(word).map(Value::Text),
    };
    Ok(Value::Number(row.adjust.map_or(number, |adjust| adjust(number))))
}

/// Stands for a number of bytes that is too large to be kept: no directive allows it.
const BEYOND_EVERY_LIMIT: i64 = i64::MIN;

fn parse_bool(word: &[u8]) -> Result<i64, BadValue> {
    match index_of_word(&["no", "yes"], word) {
        Some(index) => Ok(index as i64),
        None => Err("argument must be 'yes' or 'no'".into()),
    }
}

fn parse_octal(word: &[u8]) -> Result<i64, BadValue> {
    const MAX: i64 = 0o777;
    let digits = std::str::from_utf8(word).ok().filter(|text| !text.starts_with('+'));
    let Some(number) = digits.and_then(|text| i64::from_str_radix(text, 8).ok()) else {
        return Err("argument couldn't be parsed as an octal number".into());
    };
    match (0..=MAX).contains(&number) {
        true => Ok(number),
        false => Err(BadValue(format!("argument must be between 0 and {MAX:o} inclusive"))),
    }
}

fn parse_memory_or_percent(word: &[u8]) -> Result<i64, BadValue> {
    const REFUSED: &str = "argument must be a memory or percent value";
    match word.strip_suffix(b"%") {
        None => memory(word).and_then(|bytes| i64::try_from(bytes).ok()).ok_or_else(|| REFUSED.into()),
        Some(digits) => match decimal(digits) {
            Some(percent @ 0..=100) => Ok(-percent),
            Some(101..) => Err("percentage argument must be less or equal to 100".into()),
            _ => Err(REFUSED.into()),
        },
    }
}

fn within(number: i64, min: i64, max: i64) -> Result<i64, BadValue> {
    match (min..=max).contains(&number) {
        true => Ok(number),
        false => Err(BadValue(format!("argument must be between {min} and {max} inclusive"))),
    }
}

/// The refusal of a word that is none of those allowed.
pub(super) fn one_of(words: &[&str]) -> BadValue {
    BadValue(format!("argument(s) must be one of the following: {}", words.join(", ")))
}

pub(super) fn index_of_word(words: &[&str], word: &[u8]) -> Option<usize> {
    words.iter().position(|known| known.as_bytes().eq_ignore_ascii_case(word))
}

/// An integer written the one canonical way: no plus, no leading zero, no space.
pub(super) fn decimal(word: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(word).ok()?;
    let number: i64 = text.parse().ok()?;
    let mut canonical = itoa::Buffer::new();
    (canonical.format(number) == text).then_some(number)
}

/// Bytes with an optional unit: k, m and g count in thousands, kb, mb and gb in powers of two. Nothing at all is zero;
/// more than fits is the most that does.
pub fn memory(word: &[u8]) -> Option<u64> {
    let unit_at = word.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(word.len());
    let (digits, unit) = word.split_at(unit_at);
    let factor = match unit.to_ascii_lowercase().as_slice() {
        b"" | b"b" => 1,
        b"k" => 1_000,
        b"kb" => 1 << 10,
        b"m" => 1_000_000,
        b"mb" => 1 << 20,
        b"g" => 1_000_000_000,
        b"gb" => 1 << 30,
        _ => return None,
    };
    let add = |bytes: u64, digit: &u8| bytes.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
    Some(digits.iter().fold(0, add).saturating_mul(factor))
}

/// Writes a value as CONFIG GET answers it.
pub fn format(row: &Row, value: &Value) -> Vec<u8> {
    match (row.kind, value) {
        (Kind::Bool, Value::Number(number)) => if *number == 0 { "no" } else { "yes" }.into(),
        (Kind::Octal, Value::Number(number)) => format!("{number:o}").into(),
        (Kind::Enum(words), Value::Number(number)) => words[*number as usize].into(),
        (Kind::MemoryOrPercent, Value::Number(percent @ ..0)) => format!("{}%", -percent).into(),
        (Kind::KeyspaceEvents, Value::Number(bits)) => special::format_keyspace_events(*bits).into(),
        (Kind::ShutdownFlags, Value::Number(bits)) => special::format_shutdown_flags(*bits).into(),
        (_, Value::Number(number)) => number.to_string().into(),
        (_, Value::Text(text)) => text.clone(),
        (_, Value::Words(words)) => words.join(&b' '),
        (_, Value::Lines(lines)) => {
            lines.iter().map(|line| line.join(&b' ')).collect::<Vec<_>>().join(&b'\n')
        }
        (_, Value::Save(points)) => {
            joined(points.iter().map(|(seconds, changes)| format!("{seconds} {changes}")))
        }
        (_, Value::OutputLimits(limits)) => special::format_output_limits(limits).into(),
        (_, Value::OomScores(scores)) => joined(scores.iter().map(i64::to_string)),
        (_, Value::Percentiles(list)) => {
            joined(list.iter().map(|percent| special::format_percentile(*percent)))
        }
        (_, Value::ReplicaOf(None)) => Vec::new(),
        (_, Value::ReplicaOf(Some((host, port)))) => format!("{host} {port}").into(),
    }
}

fn joined(words: impl Iterator<Item = String>) -> Vec<u8> {
    words.collect::<Vec<_>>().join(" ").into()
}

/// A directory as seen from the root, so that it stays the same one wherever the process goes.
fn absolute(path: &[u8]) -> Result<Vec<u8>, BadValue> {
    let given = Path::new(OsStr::from_bytes(path));
    match std::path::absolute(given) {
        Ok(absolute) => Ok(absolute.into_os_string().into_vec()),
        Err(_) => Err("No such file or directory".into()),
    }
}

/// The bit of one of `SHUTDOWN_WORDS`.
pub(super) fn shutdown_bit(word: &[u8]) -> Result<i64, BadValue> {
    match index_of_word(SHUTDOWN_WORDS, word) {
        None => Err(one_of(SHUTDOWN_WORDS)),
        Some(0) => Ok(0),
        Some(index) => Ok(1 << (index - 1)),
    }
}
