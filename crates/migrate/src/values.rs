//! What a key holds, as clients see it: how it is asked for, and replies in an order of their own, so that two servers' can be compared.

use wire::Value;

/// The request that shows all that a key of a type holds; None: nobody knows the type.
pub fn question<'k>(kind: &[u8], key: &'k [u8]) -> Option<Vec<&'k [u8]>> {
    Some(match kind {
        b"string" => vec![b"GET", key],
        b"list" => vec![b"LRANGE", key, b"0", b"-1"],
        b"hash" => vec![b"HGETALL", key],
        b"set" => vec![b"SMEMBERS", key],
        b"zset" => vec![b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"],
        b"stream" => vec![b"XRANGE", key, b"-", b"+"],
        _ => return None,
    })
}

/// A reply as it is compared.
pub fn ordered(kind: &[u8], reply: &Value) -> Value {
    match (kind, reply) {
        (b"set", Value::Array(members)) => {
            let mut members = members.clone();
            members.sort_by_key(|member| format!("{member:?}"));
            Value::Array(members)
        }
        (b"hash", Value::Array(words)) => {
            let mut fields: Vec<Value> = words.chunks(2).map(|pair| Value::Array(pair.to_vec())).collect();
            fields.sort_by_key(|field| format!("{field:?}"));
            Value::Array(fields)
        }
        _ => reply.clone(),
    }
}

/// What XINFO GROUPS says that is compared: names, how many are pending, and up to where each has read.
pub fn groups(reply: &Value) -> Vec<Vec<Value>> {
    const COMPARED: [&[u8]; 4] = [b"name", b"consumers", b"pending", b"last-delivered-id"];
    let Value::Array(groups) = reply else { return Vec::new() };
    let compared = |group: &Value| {
        let Value::Array(words) = group else { return Vec::new() };
        let is_compared = |name: &Value| matches!(name, Value::Bulk(name) if COMPARED.contains(&&name[..]));
        words.chunks(2).filter(|pair| is_compared(&pair[0])).flat_map(<[Value]>::to_vec).collect()
    };
    groups.iter().map(compared).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_sets_and_hashes_does_not_count() {
        let words = |words: &[&str]| {
            Value::Array(words.iter().map(|word| Value::Bulk(word.as_bytes().to_vec())).collect())
        };
        let same = |kind: &[u8], a: &[&str], b: &[&str]| ordered(kind, &words(a)) == ordered(kind, &words(b));
        assert!(same(b"set", &["a", "b"], &["b", "a"]));
        assert!(same(b"hash", &["f", "1", "g", "2"], &["g", "2", "f", "1"]));
        assert!(!same(b"hash", &["f", "1", "g", "2"], &["f", "2", "g", "1"]));
        assert!(!same(b"list", &["a", "b"], &["b", "a"]));
    }
}
