//! What a key holds, as clients see it: how it is asked for, and replies in an order of their own, so that two servers' can be compared.

use value::number::parse_f64;
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
        // Member and score by turns.
        (b"zset", Value::Array(words)) => {
            let shown = |(at, word): (usize, &Value)| if at % 2 == 1 { score(word) } else { word.clone() };
            Value::Array(words.iter().enumerate().map(shown).collect())
        }
        _ => reply.clone(),
    }
}

/// A score in a form of its own: Redis 7.0 writes 17 digits, others as few as say it. Zero has no sign.
fn score(word: &Value) -> Value {
    let number = match word {
        Value::Bulk(text) => parse_f64(text),
        _ => None,
    };
    number.map_or_else(|| word.clone(), |number| Value::Bulk(format!("{:?}", number + 0.0).into_bytes()))
}

/// What XINFO GROUPS says that is compared: names, how many are pending, and up to where each has read. Not how many consumers there are: XCLAIM and
/// XAUTOCLAIM make one even if they claim nothing, and not every source's stream tells that.
pub fn groups(reply: &Value) -> Vec<Vec<Value>> {
    const COMPARED: [&[u8]; 3] = [b"name", b"pending", b"last-delivered-id"];
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

    fn bulk(text: &str) -> Value {
        Value::Bulk(text.as_bytes().to_vec())
    }

    fn is_same(kind: &[u8], a: &[&str], b: &[&str]) -> bool {
        let words = |words: &[&str]| Value::Array(words.iter().map(|word| bulk(word)).collect());
        ordered(kind, &words(a)) == ordered(kind, &words(b))
    }

    #[test]
    fn the_order_of_sets_and_hashes_does_not_count() {
        assert!(is_same(b"set", &["a", "b"], &["b", "a"]));
        assert!(is_same(b"hash", &["f", "1", "g", "2"], &["g", "2", "f", "1"]));
        assert!(!is_same(b"hash", &["f", "1", "g", "2"], &["f", "2", "g", "1"]));
        assert!(!is_same(b"list", &["a", "b"], &["b", "a"]));
    }

    #[test]
    fn scores_are_compared_as_numbers_and_members_as_they_are() {
        for (long, short) in [
            ("0.29999999999999999", "0.3"),
            ("3.1400000000000001", "3.14"),
            ("-0", "0"),
            ("1e+20", "100000000000000000000"),
            ("4.9406564584124654e-324", "5e-324"),
            ("-inf", "-inf"),
        ] {
            assert!(is_same(b"zset", &["a", long], &["a", short]), "{long}");
        }
        assert!(!is_same(b"zset", &["a", "0.30000000000000004"], &["a", "0.3"]));
        assert!(!is_same(b"zset", &["a", "inf"], &["a", "-inf"]));
        assert!(!is_same(b"zset", &["0.30", "1"], &["0.3", "1"]));
    }

    #[test]
    fn consumers_that_have_nothing_do_not_count() {
        let group = |consumers, pending| {
            let words = [
                bulk("name"),
                bulk("g"),
                bulk("consumers"),
                Value::Int(consumers),
                bulk("pending"),
                Value::Int(pending),
            ];
            groups(&Value::Array(vec![Value::Array(words.to_vec())]))
        };
        assert_eq!(group(1, 5), group(2, 5));
        assert_ne!(group(1, 5), group(1, 4));
    }
}
