//! What a script should reply where the real servers differ: 7.2's digits as Valkey writes them, and Redis' words where Valkey 8
//! has changed them. Both may occur in one reply, so it is put together part by part.
//!
//! Pure: two replies in, the right one out.

use crate::client;
use wire::Value;

/// Texts of Valkey 8 and what Redis says instead.
const REWORDED: &[(&str, &str)] = &[
    ("NOSCRIPT No matching script.", "NOSCRIPT No matching script. Please use EVAL."),
    (
        "Wrong number of args calling command from script",
        "Wrong number of args calling Redis command from script",
    ),
    ("Unknown command called from script", "Unknown Redis command called from script"),
    (
        "Command arguments must be strings or integers",
        "Lua redis lib command arguments must be strings or integers",
    ),
    ("at least one argument for this call", "at least one argument for this redis lib call"),
    ("This command is not allowed from script", "This Redis command is not allowed from script"),
    ("set_repl() requires one argument", "set_repl() requires two arguments"),
    ("server.", "redis."),
    ("Invalid log level", "Invalid debug level"),
    // In errors of one line.
    ("\r", " "),
];

/// A reply as a value. C writes what is no number with a sign, which 7.2 does not.
pub(super) fn decode(reply: &[u8]) -> Option<Value> {
    const SIGNED: &[u8] = b",-nan\r\n";
    let mut plain = reply.to_vec();
    while let Some(at) = plain.windows(SIGNED.len()).position(|window| window == SIGNED) {
        plain.remove(at + 1);
    }
    client::decode(&plain)
}

/// Whether two values are the same; what is no number is the same as itself.
pub(super) fn are_same(a: &Value, b: &Value) -> bool {
    a == b || format!("{a:?}") == format!("{b:?}")
}

/// Whether a reply is another one with fewer digits, or with other ones that say the same number: the algorithm of the real servers
/// does not always find the fewest, and of two that are equally near it does not always write the even one.
pub(super) fn is_shorter(a: &Value, b: &Value) -> bool {
    let all = |a: &[Value], b: &[Value]| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_shorter(a, b));
    match (a, b) {
        (Value::Array(a), Value::Array(b)) | (Value::Set(a), Value::Set(b)) => all(a, b),
        (Value::Bulk(short), Value::Bulk(long)) if short != long => {
            short.len() <= long.len() && is_same_number(short, long)
        }
        _ => are_same(a, b),
    }
}

/// The right reply, or None if the replies differ in anything else.
pub(super) fn right(redis: &Value, valkey: &Value) -> Option<Value> {
    if are_same(redis, valkey) {
        return Some(redis.clone());
    }
    match (redis, valkey) {
        (Value::Array(a), Value::Array(b)) => all(a, b).map(Value::Array),
        (Value::Set(a), Value::Set(b)) => all(a, b).map(Value::Set),
        (Value::Map(a), Value::Map(b)) if a.len() == b.len() => {
            let pairs = a.iter().zip(b).map(|(a, b)| Some((right(&a.0, &b.0)?, right(&a.1, &b.1)?)));
            pairs.collect::<Option<Vec<_>>>().map(Value::Map)
        }
        (Value::Bulk(a), Value::Bulk(b)) => right_text(a, b).map(Value::Bulk),
        (Value::Error(a), Value::Error(b)) => right_text(a, b).map(Value::Error),
        (Value::Simple(a), Value::Simple(b)) => right_text(a, b).map(Value::Simple),
        _ => None,
    }
}

fn all(redis: &[Value], valkey: &[Value]) -> Option<Vec<Value>> {
    if redis.len() != valkey.len() {
        return None;
    }
    redis.iter().zip(valkey).map(|(a, b)| right(a, b)).collect()
}

fn right_text(redis: &[u8], valkey: &[u8]) -> Option<Vec<u8>> {
    if is_same_number(redis, valkey) {
        return Some(valkey.to_vec());
    }
    (reworded(redis) == reworded(valkey)).then(|| as_of_7_2(redis))
}

/// A text of Redis 7.0 in the words of 7.2, which counts the arguments of `set_repl` as Valkey does.
fn as_of_7_2(text: &[u8]) -> Vec<u8> {
    const BEFORE: &[u8] = b"ERR redis.set_repl() requires two arguments";
    const AFTER: &[u8] = b"ERR redis.set_repl() requires one argument";
    let mut text = text.to_vec();
    while let Some(at) = text.windows(BEFORE.len()).position(|window| window == BEFORE) {
        text.splice(at..at + BEFORE.len(), AFTER.iter().copied());
        // `cmsgpack` writes the length before it.
        if at > 1 && text[at - 2] == 0xd9 {
            text[at - 1] -= 1;
        }
    }
    text
}

/// Whether both are one number, perhaps in quotes.
fn is_same_number(a: &[u8], b: &[u8]) -> bool {
    if a.strip_prefix(b"-").unwrap_or(a) == b"nan" {
        return b == b"nan";
    }
    let number = |text: &[u8]| {
        let text = std::str::from_utf8(text).ok()?.trim_matches('"');
        text.parse::<f64>().ok().filter(|number| !number.is_nan())
    };
    number(a).is_some_and(|a| Some(a) == number(b))
}

/// A text in which the words of both servers have become the same.
fn reworded(text: &[u8]) -> Vec<u8> {
    let mut text: String = text.iter().map(|byte| char::from(*byte)).collect();
    for (valkey, redis) in REWORDED {
        text = text.replace(redis, valkey);
    }
    without_packed_lengths(&text)
}

/// A text without the lengths that `cmsgpack` writes before errors, which are those of the words.
fn without_packed_lengths(text: &str) -> Vec<u8> {
    const SHORT: char = '\u{d9}';
    let letters: Vec<char> = text.chars().collect();
    let is_length =
        |at: usize| at > 0 && letters[at - 1] == SHORT && letters[at + 1..].starts_with(&['E', 'R', 'R']);
    (0..letters.len()).filter(|at| !is_length(*at)).map(|at| letters[at] as u8).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::Bulk(text.as_bytes().to_vec())
    }

    #[test]
    fn digits_are_those_of_valkey_and_words_those_of_redis() {
        let redis = Value::Array(vec![
            bulk("0.10000000000000001"),
            bulk("ERR Unknown Redis command called from script"),
        ]);
        let valkey = Value::Array(vec![bulk("0.1"), bulk("ERR Unknown command called from script")]);
        let expected = Value::Array(vec![bulk("0.1"), bulk("ERR Unknown Redis command called from script")]);
        assert_eq!(right(&redis, &valkey), Some(expected));
        assert_eq!(right(&bulk("a"), &bulk("b")), None);
        assert!(is_shorter(&bulk("2022.07029"), &bulk("2022.0702900000001")));
        assert!(!is_shorter(&bulk("2022.0702900000001"), &bulk("2022.07029")));
        let packed = |bytes: &[u8]| Value::Bulk(bytes.to_vec());
        let redis = packed(b"\xd9?ERR Lua redis lib command arguments must be strings or integers");
        let valkey = packed(b"\xd91ERR Command arguments must be strings or integers");
        assert_eq!(right(&redis, &valkey), Some(redis));
    }
}
