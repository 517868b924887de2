//! Replies of stream commands that hold the present moment: as an id, as a moment, or as the time since one.
//!
//! Pure: two replies in, a verdict out. Everything else in them has to be equal.

use wire::Value;

/// How far apart servers may be, in milliseconds.
const APART_MS: u64 = 20_000;
/// Numbers from here on are moments, or ids made of one.
const MOMENT_MS_MIN: u64 = 1_500_000_000_000;
/// First bytes of the payloads of streams.
const PAYLOAD_TYPES: [u8; 3] = [15, 19, 21];

/// Whether two replies are the same but for moments.
pub(super) fn are_alike(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && are_lists_alike(a, b),
        (Value::Map(a), Value::Map(b)) => {
            a.len() == b.len()
                && a.iter().zip(b).all(|((key, a), (other, b))| {
                    are_alike(key, other) && (are_alike(a, b) || is_since(key) && are_near(a, b))
                })
        }
        (Value::Int(a), Value::Int(b)) => a == b || both_moments(*a as u64, *b as u64),
        (Value::Bulk(a), Value::Bulk(b)) => {
            a == b || moment_of_id(a).zip(moment_of_id(b)).is_some_and(|(a, b)| both_moments(a, b))
        }
        _ => a == b,
    }
}

fn are_lists_alike(a: &[Value], b: &[Value]) -> bool {
    // XPENDING: id, consumer, idle time, deliveries.
    let is_pending = matches!(a, [Value::Bulk(_), Value::Bulk(_), Value::Int(_), Value::Int(_)]);
    (0..a.len()).all(|at| {
        let may_be_near = is_pending && at == 2 || at > 0 && is_since(&a[at - 1]);
        are_alike(&a[at], &b[at]) || may_be_near && are_near(&a[at], &b[at])
    })
}

/// Whether a name's value is the time since something.
fn is_since(name: &Value) -> bool {
    matches!(name, Value::Bulk(name) if name == b"idle" || name == b"inactive")
}

/// Negative numbers stand for no time.
fn are_near(a: &Value, b: &Value) -> bool {
    matches!((a, b), (Value::Int(a), Value::Int(b)) if *a >= 0 && *b >= 0 && a.abs_diff(*b) <= APART_MS)
}

fn both_moments(a: u64, b: u64) -> bool {
    a >= MOMENT_MS_MIN && b >= MOMENT_MS_MIN && a.abs_diff(b) <= APART_MS
}

fn moment_of_id(text: &[u8]) -> Option<u64> {
    let (ms, seq) = std::str::from_utf8(text).ok()?.split_once('-')?;
    seq.parse::<u64>().ok()?;
    ms.parse().ok()
}

/// Whether both are payloads of streams.
pub(super) fn are_payloads(a: &Value, b: &Value) -> bool {
    let is_payload = |value: &Value| matches!(value, Value::Bulk(payload) if payload.first().is_some_and(|kind| PAYLOAD_TYPES.contains(kind)));
    is_payload(a) && is_payload(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::Bulk(text.as_bytes().to_vec())
    }

    #[test]
    fn only_moments_may_differ() {
        let pending = |idle, deliveries| {
            Value::Array(vec![bulk("1-1"), bulk("c"), Value::Int(idle), Value::Int(deliveries)])
        };
        assert!(are_alike(&pending(3, 1), &pending(5, 1)));
        assert!(!are_alike(&pending(3, 1), &pending(3, 2)));
        assert!(are_alike(&bulk("1700000000000-0"), &bulk("1700000000500-1")));
        assert!(!are_alike(&bulk("4-1"), &bulk("4-2")));
        let named = |name, number| Value::Array(vec![bulk(name), Value::Int(number)]);
        assert!(are_alike(&named("idle", 1), &named("idle", 2)));
        assert!(!are_alike(&named("inactive", -1), &named("inactive", 2)));
        assert!(!are_alike(&named("pending", 1), &named("pending", 2)));
    }
}
