//! Compares all that the servers hold: every database's keys, and each key's type,
//! value, time to live and encoding.
//!
//! The questions are ordinary requests, judged by the same rules as any other.

use super::{Asked, Difference, Differential};
use crate::client::{Client, decode};
use crate::generate::{Request, words};
use std::io;
use wire::Value;

/// Databases of a server as it starts.
const DATABASES: usize = 16;

/// The first difference between the servers' contents, or None.
pub(super) fn compare(servers: &mut Differential) -> io::Result<Option<Difference>> {
    let mut clients = servers.connect()?;
    // RESP3, so that a hash's fields arrive with their values.
    let mut asks = vec![words(&["HELLO", "3"])];
    for client in &mut clients {
        client.pipeline(&asks)?;
    }
    asks.clear();
    for db in 0..DATABASES {
        asks.extend([words(&["SELECT", &db.to_string()]), words(&["KEYS", "*"])]);
    }
    let replies = match servers.ask(&mut clients, &asks)? {
        Asked::Same(replies) => replies,
        Asked::Differs(found) => return Ok(Some(*found)),
    };
    for db in 0..DATABASES {
        let keys = keys_of(&replies[2 * db + 1]);
        if keys.is_empty() {
            continue;
        }
        if let Some(found) = compare_db(servers, &mut clients, db, &keys)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

fn compare_db(
    servers: &mut Differential,
    clients: &mut [Client],
    db: usize,
    keys: &[Vec<u8>],
) -> io::Result<Option<Difference>> {
    let mut asks = vec![words(&["SELECT", &db.to_string()])];
    for key in keys {
        asks.extend([["TYPE"].as_slice(), &["PTTL"], &["OBJECT", "ENCODING"]].map(|ask| with_key(ask, key)));
    }
    let replies = match servers.ask(clients, &asks)? {
        Asked::Same(replies) => replies,
        Asked::Differs(found) => return Ok(Some(*found)),
    };
    let types = replies[1..].iter().step_by(3);
    let asks: Vec<Request> = keys.iter().zip(types).filter_map(|(key, kind)| read_all(key, kind)).collect();
    match servers.ask(clients, &asks)? {
        Asked::Same(_) => Ok(None),
        Asked::Differs(found) => Ok(Some(*found)),
    }
}

/// The request that reads the whole of a key, by the reply of TYPE.
fn read_all(key: &[u8], kind: &[u8]) -> Option<Request> {
    let (before, after): (&str, &[&str]) = match kind {
        b"+string\r\n" => ("GET", &[]),
        b"+list\r\n" => ("LRANGE", &["0", "-1"]),
        b"+hash\r\n" => ("HGETALL", &[]),
        b"+set\r\n" => ("SMEMBERS", &[]),
        b"+zset\r\n" => ("ZRANGE", &["0", "-1", "WITHSCORES"]),
        b"+stream\r\n" => ("XRANGE", &["-", "+"]),
        // It expired in between.
        _ => return None,
    };
    let mut request = with_key(&[before], key);
    request.extend(words(after));
    Some(request)
}

fn with_key(ask: &[&str], key: &[u8]) -> Request {
    let mut request = words(ask);
    request.push(key.to_vec());
    request
}

fn keys_of(reply: &[u8]) -> Vec<Vec<u8>> {
    let Some(Value::Array(keys)) = decode(reply) else { return Vec::new() };
    let mut keys: Vec<Vec<u8>> = keys
        .into_iter()
        .filter_map(|key| if let Value::Bulk(key) = key { Some(key) } else { None })
        .collect();
    keys.sort_unstable();
    keys
}
