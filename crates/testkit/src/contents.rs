//! All that a server holds, as a client sees it: of every key of every database its type, its value, when it expires and when
//! its fields do, streams with their groups, consumers and what is pending; and the libraries of functions.
//!
//! Two readings of one server are compared with the moment of the later one in mind: what was due to expire by then may be gone.
//! Nothing else may differ. Encodings do not count, nor do times of last use, nor when a consumer was last seen: asking for
//! nothing is no write.

use crate::client::{Client, decode};
use crate::generate::{Request, words};
use std::collections::BTreeMap;
use std::io;
use wire::Value;

/// Databases of a server as it starts.
const DATABASES: u32 = 16;

/// Keys asked about in one write.
const CHUNK_KEYS: usize = 2_000;

/// What HPEXPIRETIME says of a field that is not there, and how often a hash that has one is read again: a few of its fields may
/// expire one after the other.
const NO_FIELD: i64 = -2;
const FIELDS_ASKED_AGAIN: u32 = 5;

/// Names in XINFO STREAM FULL of what depends on memory, or on who asked for nothing.
const NOT_CONTENT: [&[u8]; 3] = [b"radix-tree-keys", b"radix-tree-nodes", b"seen-time"];

/// What is not read of streams.
#[derive(Clone, Copy, Debug, Default)]
pub struct LeftOut {
    /// What a description says under these names.
    pub names: &'static [&'static [u8]],
    /// Consumers to whom nothing is pending.
    pub idle_consumers: bool,
}

/// A reading.
#[derive(Debug)]
pub struct Contents {
    keys: BTreeMap<(u32, Vec<u8>), Held>,
    libraries: Vec<String>,
}

/// One key.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    expires_at: Option<i64>,
    kind: String,
    /// Elements in their order; members of sets and fields of hashes sorted.
    parts: Vec<String>,
    /// Of a hash: when each field expires, -1 for never.
    fields_expire_at: Vec<i64>,
}

impl Contents {
    /// Reads everything. Meanwhile nobody may write.
    ///
    /// # Errors
    /// If the server does not answer.
    pub fn read(client: &mut Client) -> io::Result<Contents> {
        Contents::read_but(client, LeftOut::default())
    }

    /// The same without some of what a description of a stream says.
    ///
    /// # Errors
    /// If the server does not answer.
    pub fn read_but(client: &mut Client, left_out: LeftOut) -> io::Result<Contents> {
        let mut keys = BTreeMap::new();
        for db in 0..DATABASES {
            client.call(&["SELECT", &db.to_string()])?;
            let names = texts(client.call(&["KEYS", "*"])?);
            for names in names.chunks(CHUNK_KEYS) {
                read_keys(client, db, (names, left_out), &mut keys)?;
            }
        }
        client.call(&["SELECT", "0"])?;
        let libraries = match client.call(&["FUNCTION", "LIST", "WITHCODE"])? {
            Value::Array(libraries) => sorted(libraries.iter().map(|library| shown(&unordered(library)))),
            other => return Err(io::Error::other(format!("FUNCTION LIST: {other:?}"))),
        };
        Ok(Contents { keys, libraries })
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// What differs in a later reading, whose end was at `now_ms` by the server's clock; None if nothing does.
    pub fn difference(&self, later: &Contents, now_ms: i64) -> Option<String> {
        if self.libraries != later.libraries {
            return Some(format!("libraries were {:?},\nare {:?}", self.libraries, later.libraries));
        }
        let unknown = later.keys.iter().find(|(name, _)| !self.keys.contains_key(name));
        if let Some(((db, name), held)) = unknown {
            return Some(format!("{} of database {db} was not there, is {held:?}", name.escape_ascii()));
        }
        self.keys.iter().find_map(|((db, name), held)| {
            let found = later.keys.get(&(*db, name.clone()));
            let is_same = match (held.at(now_ms), found) {
                (_, None) => held.may_be_gone(now_ms),
                (left, Some(found)) => left.as_ref() == found.at(now_ms).as_ref(),
            };
            let name = name.escape_ascii();
            (!is_same).then(|| format!("{name} of database {db} was\n{held:?},\nis\n{found:?}\nat {now_ms}"))
        })
    }
}

impl Held {
    /// What is left of it at a moment.
    fn at(&self, now_ms: i64) -> Option<Held> {
        if self.expires_at.is_some_and(|at| at <= now_ms) {
            return None;
        }
        let mut left = self.clone();
        if self.kind == "hash" {
            let is_left =
                |at: &usize| self.fields_expire_at.get(*at).is_none_or(|at| *at < 0 || *at > now_ms);
            let places: Vec<usize> = (0..self.parts.len()).filter(is_left).collect();
            left.parts = places.iter().map(|at| self.parts[*at].clone()).collect();
            left.fields_expire_at =
                places.iter().filter_map(|at| self.fields_expire_at.get(*at).copied()).collect();
        }
        Some(left)
    }

    fn may_be_gone(&self, now_ms: i64) -> bool {
        self.at(now_ms).is_none_or(|left| left.kind == "hash" && left.parts.is_empty())
    }
}

/// How lists, hashes and streams are held, by database and name.
pub type Encodings = BTreeMap<(u32, Vec<u8>), String>;

/// Reads the encodings of all keys that commands alone decide about: SORT and SPOP leave sorted sets and sets otherwise than who
/// follows makes them of the effects, and INCRBYFLOAT strings. Hashes only where no field was over: what was done to one that was is said
/// by what came of it, which may take less. Meanwhile nobody may write.
///
/// # Errors
/// If the server does not answer.
pub fn encodings(client: &mut Client, with_hashes: bool) -> io::Result<Encodings> {
    const TYPES: [&[u8]; 3] = [b"+list\r\n", b"+stream\r\n", b"+hash\r\n"];
    let types = &TYPES[..if with_hashes { 3 } else { 2 }];
    let mut encodings = BTreeMap::new();
    for db in 0..DATABASES {
        client.call(&["SELECT", &db.to_string()])?;
        let names = texts(client.call(&["KEYS", "*"])?);
        let ask = |words: &[&str], name: &[u8]| [crate::generate::words(words), vec![name.to_vec()]].concat();
        let asks: Vec<Request> = names
            .iter()
            .flat_map(|name| [ask(&["TYPE"], name), ask(&["OBJECT", "ENCODING"], name)])
            .collect();
        for (name, replies) in names.into_iter().zip(client.pipeline(&asks)?.chunks(2)) {
            if let Some(Value::Bulk(encoding)) = decode(&replies[1])
                && types.contains(&&replies[0][..])
            {
                encodings.insert((db, name), String::from_utf8_lossy(&encoding).into_owned());
            }
        }
    }
    Ok(encodings)
}

/// The first key of both that is held otherwise, or None.
pub fn difference_of_encodings(a: &Encodings, b: &Encodings) -> Option<String> {
    a.iter().find_map(|(key, encoding)| {
        let other = b.get(key).filter(|other| *other != encoding)?;
        Some(format!("{} of database {} is {encoding} and {other}", key.1.escape_ascii(), key.0))
    })
}

/// The moment by a server's clock, the next millisecond.
///
/// # Errors
/// If the server does not say.
pub fn now_ms(client: &mut Client) -> io::Result<i64> {
    let Value::Array(words) = client.call(&["TIME"])? else { return Err(io::ErrorKind::InvalidData.into()) };
    let number = |at: usize| words.get(at).and_then(text)?.escape_ascii().to_string().parse::<i64>().ok();
    let seconds_and_micros = number(0).zip(number(1)).ok_or(io::ErrorKind::InvalidData)?;
    Ok(seconds_and_micros.0 * 1000 + seconds_and_micros.1 / 1000 + 1)
}

fn read_keys(
    client: &mut Client,
    db: u32,
    (names, left_out): (&[Vec<u8>], LeftOut),
    keys: &mut BTreeMap<(u32, Vec<u8>), Held>,
) -> io::Result<()> {
    let ask = |words: &[&str], name: &[u8]| -> Request {
        let mut request = crate::generate::words(words);
        request.push(name.to_vec());
        request
    };
    let asks: Vec<Request> =
        names.iter().flat_map(|name| [ask(&["TYPE"], name), ask(&["PEXPIRETIME"], name)]).collect();
    let replies = client.pipeline(&asks)?;
    let mut wholes = Vec::new();
    for (name, replies) in names.iter().zip(replies.chunks(2)) {
        let kind = String::from_utf8_lossy(&replies[0]).trim().trim_start_matches('+').to_owned();
        let (before, after): (&[&str], &[&str]) = match kind.as_str() {
            "string" => (&["GET"], &[]),
            "list" => (&["LRANGE"], &["0", "-1"]),
            "hash" => (&["HGETALL"], &[]),
            "set" => (&["SMEMBERS"], &[]),
            "zset" => (&["ZRANGE"], &["0", "-1", "WITHSCORES"]),
            "stream" => (&["XINFO", "STREAM"], &["FULL", "COUNT", "0"]),
            // It expired in between.
            _ => continue,
        };
        let mut request = ask(before, name);
        request.extend(words(after));
        let expires_at = match decode(&replies[1]) {
            Some(Value::Int(at)) if at >= 0 => Some(at),
            _ => None,
        };
        wholes.push((name, kind, expires_at, request));
    }
    let asks: Vec<Request> = wholes.iter().map(|(_, _, _, request)| request.clone()).collect();
    for ((name, kind, expires_at, _), reply) in wholes.into_iter().zip(client.pipeline(&asks)?) {
        let Some(value) = decode(&reply) else { return Err(io::ErrorKind::InvalidData.into()) };
        let (mut parts, mut fields) = parts(&kind, &value, left_out);
        let mut fields_expire_at = moments(client, name, &fields)?;
        // A field's time came between the two questions: both are asked once more. A server that goes on showing a field which
        // it says is not there is not excused.
        for _ in 0..FIELDS_ASKED_AGAIN {
            if !fields_expire_at.contains(&NO_FIELD) {
                break;
            }
            (parts, fields) = self::parts(&kind, &client.call(&ask(&["HGETALL"], name))?, left_out);
            fields_expire_at = moments(client, name, &fields)?;
        }
        // It may have expired in between.
        if !parts.is_empty() {
            keys.insert((db, name.clone()), Held { expires_at, kind, parts, fields_expire_at });
        }
    }
    Ok(())
}

/// A value in parts; of a hash also the names of its fields, in the same order.
fn parts(kind: &str, value: &Value, left_out: LeftOut) -> (Vec<String>, Vec<Vec<u8>>) {
    match (kind, value) {
        ("set", Value::Array(members)) => (sorted(members.iter().map(shown)), Vec::new()),
        ("hash", Value::Array(words)) => {
            let mut pairs: Vec<_> = words.chunks(2).collect();
            pairs.sort_by_key(|pair| shown(&pair[0]));
            let fields = pairs.iter().filter_map(|pair| text(&pair[0])).collect();
            (pairs.iter().map(|pair| format!("{}={}", shown(&pair[0]), shown(&pair[1]))).collect(), fields)
        }
        ("zset", Value::Array(words)) => {
            let pairs = words.chunks(2);
            (pairs.flat_map(|pair| [shown(&pair[0]), score(&pair[1])]).collect(), Vec::new())
        }
        ("stream", value) => (vec![shown(&without(value, left_out))], Vec::new()),
        (_, Value::Array(elements)) => (elements.iter().map(shown).collect(), Vec::new()),
        (_, Value::Null) => (Vec::new(), Vec::new()),
        (_, other) => (vec![shown(other)], Vec::new()),
    }
}

/// A score by its value: servers write one with more digits or with fewer.
fn score(value: &Value) -> String {
    let number = text(value).and_then(|text| String::from_utf8_lossy(&text).parse::<f64>().ok());
    number.map_or_else(|| shown(value), |number| format!("{number:?}"))
}

/// When fields expire; never where the server knows no such thing.
fn moments(client: &mut Client, name: &[u8], fields: &[Vec<u8>]) -> io::Result<Vec<i64>> {
    if fields.is_empty() {
        return Ok(Vec::new());
    }
    let mut request = vec![b"HPEXPIRETIME".to_vec(), name.to_vec(), b"FIELDS".to_vec()];
    request.push(fields.len().to_string().into_bytes());
    request.extend(fields.iter().cloned());
    Ok(match client.call(&request)? {
        Value::Array(moments) => {
            moments.iter().map(|at| if let Value::Int(at) = at { *at } else { -1 }).collect()
        }
        _ => vec![-1; fields.len()],
    })
}

/// A description of a stream without what is left out.
fn without(value: &Value, left_out: LeftOut) -> Value {
    let Value::Array(values) = value else { return value.clone() };
    let mut kept = Vec::new();
    let mut values = values.iter();
    while let Some(value) = values.next() {
        match value {
            Value::Bulk(name) if NOT_CONTENT.contains(&&name[..]) || left_out.names.contains(&&name[..]) => {
                values.next();
            }
            value if left_out.idle_consumers && is_idle_consumer(value) => {}
            value => kept.push(without(value, left_out)),
        }
    }
    Value::Array(kept)
}

/// Whether this describes a consumer to whom nothing is pending.
fn is_idle_consumer(value: &Value) -> bool {
    let Value::Array(values) = value else { return false };
    let has = |name: &[u8]| values.iter().any(|value| matches!(value, Value::Bulk(text) if text == name));
    let pairs = values.windows(2);
    // Groups have a number of entries pending as well, and the last id that was delivered.
    let has_none =
        |pair: &[Value]| matches!(pair, [Value::Bulk(name), Value::Int(0)] if name == b"pel-count");
    has(b"seen-time") && !has(b"last-delivered-id") && pairs.clone().any(has_none)
}

/// A library as FUNCTION LIST describes it, its functions in a fixed order.
fn unordered(value: &Value) -> Value {
    let Value::Array(values) = value else { return value.clone() };
    let mut values: Vec<Value> = values.iter().map(unordered).collect();
    if values.iter().all(|value| matches!(value, Value::Array(_))) {
        values.sort_by_key(shown);
    }
    Value::Array(values)
}

fn texts(value: Value) -> Vec<Vec<u8>> {
    let Value::Array(values) = value else { return Vec::new() };
    values.iter().filter_map(text).collect()
}

fn text(value: &Value) -> Option<Vec<u8>> {
    if let Value::Bulk(text) = value { Some(text.clone()) } else { None }
}

fn sorted(texts: impl Iterator<Item = String>) -> Vec<String> {
    let mut texts: Vec<String> = texts.collect();
    texts.sort_unstable();
    texts
}

/// Readable, and different for different values.
fn shown(value: &Value) -> String {
    match value {
        Value::Bulk(text) => format!("\"{}\"", text.escape_ascii()),
        Value::Array(values) => format!("[{}]", values.iter().map(shown).collect::<Vec<_>>().join(" ")),
        other => format!("{other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(fields: &[(&str, i64)]) -> Held {
        Held {
            expires_at: None,
            kind: "hash".to_owned(),
            parts: fields.iter().map(|(field, _)| (*field).to_owned()).collect(),
            fields_expire_at: fields.iter().map(|(_, at)| *at).collect(),
        }
    }

    fn contents(held: Option<Held>) -> Contents {
        let keys = held.map(|held| ((0, b"k".to_vec()), held)).into_iter().collect();
        Contents { keys, libraries: Vec::new() }
    }

    #[test]
    fn scores_are_compared_by_value() {
        let set = |score: &str| Value::Array(vec![Value::Bulk(b"m".to_vec()), Value::Bulk(score.into())]);
        let parts = |score| parts("zset", &set(score), LeftOut::default()).0;
        assert_eq!(parts("0.29999999999999999"), parts("0.3"));
        assert_ne!(parts("0.30000000000000004"), parts("0.3"));
        assert_ne!(parts("-inf"), parts("inf"));
    }

    #[test]
    fn only_what_was_due_may_be_gone() {
        let text = |expires_at| Held { expires_at, kind: "string".into(), ..hash(&[("v", -1)]) };
        let before = contents(Some(text(Some(50))));
        assert_eq!(before.difference(&contents(None), 50), None);
        assert!(before.difference(&contents(None), 49).is_some());
        assert!(before.difference(&contents(Some(text(None))), 49).is_some());
        assert!(contents(None).difference(&before, 60).is_some());
        let before = contents(Some(hash(&[("a", 50), ("b", -1)])));
        assert_eq!(before.difference(&contents(Some(hash(&[("b", -1)]))), 50), None);
        assert!(before.difference(&contents(Some(hash(&[("b", -1)]))), 49).is_some());
        assert!(before.difference(&contents(Some(hash(&[("a", 50)]))), 50).is_some());
        assert_eq!(contents(Some(hash(&[("a", 50)]))).difference(&contents(None), 50), None);
    }
}
