//! Whether the answers to one request are the same, as far as the rules ask.
//!
//! Pure: answers in, verdict out.

use super::moments;
use super::rules::{self, How, Side};
use super::{Answer, shorten, wording};
use crate::client::decode;
use crate::generate::Request;
use std::fmt;
use wire::{Value, skip_reply};

/// What the answers to one request amount to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As they should be.
    Same,
    /// The server under test answers otherwise than it should.
    Different,
    /// The real servers differ among themselves, and no rule says which is right.
    OraclesDiffer,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Same => "no difference",
            Verdict::Different => "DIFFERENCE",
            Verdict::OraclesDiffer => "THE REAL SERVERS DIFFER, and no rule says which is right,",
        })
    }
}

/// A connection's transaction, as its replies tell.
#[derive(Clone, Debug, Default)]
pub struct Queue {
    /// Whether there is one.
    pub is_open: bool,
    requests: Vec<Request>,
}

/// Judges the answers, of which the first comes from the server under test and the second from Redis. `queue` is that
/// of their connection, and is kept up to date.
pub fn judge(request: &Request, answers: &[Answer], queue: &mut Queue) -> Verdict {
    let verdict = if is(request, "exec") {
        judge_exec(request, answers, &queue.requests)
    } else {
        judge_one(request, answers)
    };
    let reply = answers[0].as_deref().unwrap_or_default();
    if reply == b"+QUEUED\r\n" {
        queue.requests.push(request.clone());
    } else if is(request, "multi") && reply[..1.min(reply.len())] == *b"+" {
        queue.is_open = true;
    } else if ["exec", "discard", "reset"].into_iter().any(|name| is(request, name)) && request.len() == 1 {
        *queue = Queue::default();
    }
    verdict
}

/// Whether as many errors are in each of the answers.
pub fn have_same_errors(answers: &[Answer]) -> bool {
    let count = |answer: &Answer| {
        let reply = answer.as_deref().unwrap_or_default();
        usize::from(reply.starts_with(b"-")) + reply.windows(3).filter(|bytes| bytes == b"\r\n-").count()
    };
    answers.windows(2).all(|pair| count(&pair[0]) == count(&pair[1]))
}

fn judge_one(request: &Request, answers: &[Answer]) -> Verdict {
    let [subject, oracles @ ..] = answers else { return Verdict::Same };
    let redis = &oracles[0];
    if rules::for_request(request).any(|rule| matches!(rule.how, How::Wording))
        && !oracles.iter().all(|oracle| are_alike(request, subject, oracle))
    {
        return judge_wording(subject, redis, oracles.last().unwrap_or(redis));
    }
    let Some(other) = oracles.iter().find(|answer| !are_alike(request, redis, answer)) else {
        return if are_alike(request, subject, redis) { Verdict::Same } else { Verdict::Different };
    };
    let right = match rules::right_side(request, redis, other) {
        Some(Side::Redis) => redis,
        Some(Side::Valkey) => other,
        Some(Side::Either) if are_alike(request, subject, redis) => redis,
        Some(Side::Either) => other,
        None => return Verdict::OraclesDiffer,
    };
    let is_other_form = || {
        let value = |answer: &Answer| wording::decode(answer.as_ref()?);
        rules::are_same_numbers(redis, other)
            && value(subject).zip(value(right)).is_some_and(|(a, b)| wording::is_shorter(&a, &b))
    };
    if are_alike(request, subject, right) || is_other_form() { Verdict::Same } else { Verdict::Different }
}

/// Whether the answer is the one that two others make together.
fn judge_wording(subject: &Answer, redis: &Answer, valkey: &Answer) -> Verdict {
    let value = |answer: &Answer| wording::decode(answer.as_ref()?);
    let right = value(redis).zip(value(valkey)).and_then(|(redis, valkey)| wording::right(&redis, &valkey));
    match (right, value(subject)) {
        (None, _) => Verdict::OraclesDiffer,
        (Some(right), Some(subject)) if wording::is_shorter(&subject, &right) => Verdict::Same,
        _ => Verdict::Different,
    }
}

/// The replies inside EXEC's, each by the rules of its own request.
fn judge_exec(request: &Request, answers: &[Answer], queued: &[Request]) -> Verdict {
    let parts: Option<Vec<Vec<&[u8]>>> = answers.iter().map(|answer| elements(answer.as_deref()?)).collect();
    let parts = match parts {
        Some(parts) if parts.iter().all(|replies| replies.len() == queued.len()) => parts,
        _ => return judge_one(request, answers),
    };
    for (at, request) in queued.iter().enumerate() {
        let answers: Vec<Answer> = parts.iter().map(|replies| Some(replies[at].to_vec())).collect();
        let verdict = judge_one(request, &answers);
        if verdict != Verdict::Same {
            return verdict;
        }
    }
    Verdict::Same
}

/// The replies that an array consists of, or None if it is none.
fn elements(reply: &[u8]) -> Option<Vec<&[u8]>> {
    let mut rest = reply.strip_prefix(b"*")?;
    rest = &rest[rest.iter().position(|byte| *byte == b'\n')? + 1..];
    let mut found = Vec::new();
    while !rest.is_empty() {
        let len = skip_reply(rest).ok().flatten()?;
        found.push(&rest[..len]);
        rest = &rest[len..];
    }
    Some(found)
}

/// Whether two answers are the same as far as the rules for this request ask.
fn are_alike(request: &Request, a: &Answer, b: &Answer) -> bool {
    if a == b {
        return true;
    }
    let (Some(a), Some(b)) = (a, b) else { return false };
    rules::for_request(request).any(|rule| match rule.how {
        How::Unordered => unordered(a).is_some_and(|a| Some(a) == unordered(b)),
        How::TiesAtZero => decode(a).zip(decode(b)).is_some_and(|(a, b)| {
            let are_same_parts = has_limit(request) || without_order(&a) == without_order(&b);
            are_same_parts && up_to_zero(&a) == up_to_zero(&b)
        }),
        How::Nested => decode(a).zip(decode(b)).is_some_and(|(a, b)| without_order(&a) == without_order(&b)),
        How::Within(tolerance) => decode(a).zip(decode(b)).is_some_and(|(a, b)| is_within(&a, &b, tolerance)),
        How::Shape => a[0] == b[0],
        How::Scan => is_same_scan(request, a, b),
        How::WithoutTail(len) => same_bulk_without_tail(a, b, len),
        How::CollectionPayload => is_of_collection(a) && is_of_collection(b),
        How::Moments => decode(a).zip(decode(b)).is_some_and(|(a, b)| moments::are_alike(&a, &b)),
        How::StreamPayload => decode(a).zip(decode(b)).is_some_and(|(a, b)| moments::are_payloads(&a, &b)),
        How::Either(one, other) => {
            [a, b].iter().all(|reply| [one, other].iter().any(|part| rules::has_part(reply, part)))
        }
        How::Right(..) | How::ShorterNumbers | How::Wording => false,
    })
}

/// An aggregate's elements in an order of their own; whatever it is made of must be the same.
fn unordered(reply: &[u8]) -> Option<(u8, Vec<String>)> {
    let elements: Vec<String> = match decode(reply)? {
        Value::Array(values) | Value::Set(values) => {
            values.iter().map(|value| format!("{value:?}")).collect()
        }
        Value::Map(pairs) => pairs.iter().map(|pair| format!("{pair:?}")).collect(),
        _ => return None,
    };
    let mut sorted = elements;
    sorted.sort_unstable();
    Some((reply[0], sorted))
}

/// A value as a text that is the same for all orders of its elements.
fn without_order(value: &Value) -> String {
    let sorted = |mut parts: Vec<String>| {
        parts.sort_unstable();
        format!("[{}]", parts.join(","))
    };
    match value {
        Value::Array(values) | Value::Set(values) => sorted(values.iter().map(without_order).collect()),
        Value::Map(pairs) => sorted(
            pairs.iter().map(|(key, value)| without_order(key) + "=" + &without_order(value)).collect(),
        ),
        other => format!("{other:?}"),
    }
}

/// Whether something in a script may take a part of what is sorted.
fn has_limit(request: &Request) -> bool {
    request.iter().any(|word| word.to_ascii_lowercase().windows(5).any(|part| part == b"limit"))
}

/// A value with its texts up to their first byte 0.
fn up_to_zero(value: &Value) -> Value {
    let all = |values: &[Value]| values.iter().map(up_to_zero).collect();
    match value {
        Value::Bulk(text) => Value::Bulk(text.split(|byte| *byte == 0).next().unwrap_or_default().to_vec()),
        Value::Array(values) => Value::Array(all(values)),
        Value::Set(values) => Value::Set(all(values)),
        Value::Map(pairs) => {
            Value::Map(pairs.iter().map(|(key, value)| (up_to_zero(key), up_to_zero(value))).collect())
        }
        other => other.clone(),
    }
}

fn is_within(a: &Value, b: &Value, tolerance: i64) -> bool {
    match (a, b) {
        // Negative numbers are answers of another kind (no key, no time to live).
        (Value::Int(a), Value::Int(b)) => *a >= 0 && *b >= 0 && a.abs_diff(*b) <= tolerance.unsigned_abs(),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a == b || is_within(a, b, tolerance))
        }
        _ => a == b,
    }
}

/// Where a scan went through everything at once, its elements; otherwise its form.
fn is_same_scan(request: &Request, a: &[u8], b: &[u8]) -> bool {
    let parts = |reply| match decode(reply) {
        Some(Value::Array(parts)) if parts.len() == 2 => Some(parts),
        _ => None,
    };
    let (Some(a), Some(b)) = (parts(a), parts(b)) else { return false };
    let zero = Value::Bulk(b"0".to_vec());
    // SCAN's cursor is word 1, those of HSCAN, SSCAN and ZSCAN are word 2.
    let begins = request.iter().skip(1).take(2).any(|cursor| cursor == b"0");
    let is_whole = begins && a[0] == zero && b[0] == zero;
    let sorted = |value: &Value| match value {
        Value::Array(values) => {
            let mut shown: Vec<String> = values.iter().map(|value| format!("{value:?}")).collect();
            shown.sort_unstable();
            shown
        }
        _ => Vec::new(),
    };
    !is_whole || sorted(&a[1]) == sorted(&b[1])
}

fn same_bulk_without_tail(a: &[u8], b: &[u8], tail: usize) -> bool {
    match (decode(a), decode(b)) {
        (Some(Value::Bulk(a)), Some(Value::Bulk(b))) => {
            a.len() == b.len() && a.len() >= tail && a[..a.len() - tail] == b[..b.len() - tail]
        }
        _ => false,
    }
}

/// Whether a DUMP payload is that of something else than a string, whose type is 0.
fn is_of_collection(reply: &[u8]) -> bool {
    matches!(decode(reply), Some(Value::Bulk(payload)) if payload.first().is_some_and(|kind| *kind != 0))
}

/// Whether a request is for the command `name`, in any case.
pub fn is(request: &Request, name: &str) -> bool {
    request.first().is_some_and(|word| word.eq_ignore_ascii_case(name.as_bytes()))
}

/// An error without what follows its first words; of any other reply, its type.
fn kind(reply: &[u8]) -> &[u8] {
    const ERROR_BYTES: usize = 24;
    if reply[0] == b'-' { &reply[..reply.len().min(ERROR_BYTES)] } else { &reply[..1] }
}

/// A short name of what a difference is about, by which shrinking stays with the same one.
pub fn signature(request: &Request, answers: &[(&'static str, Answer)], verdict: Verdict) -> String {
    let has_subcommands = rules::is_container(request);
    let words = request.iter().take(if has_subcommands { 2 } else { 1 });
    let name = words.map(|word| word.to_ascii_lowercase()).collect::<Vec<_>>().join(b" ".as_slice());
    let kinds: Vec<&[u8]> = answers
        .iter()
        .map(|(_, answer)| answer.as_ref().map_or(b"".as_slice(), |reply| kind(reply)))
        .collect();
    let kinds = kinds.join(b" ".as_slice()).escape_ascii().to_string();
    format!("{} {} {verdict:?}", shorten(&name.escape_ascii().to_string()), kinds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::words;

    fn verdict(request: &[&str], answers: &[&str]) -> Verdict {
        let answers: Vec<Answer> = answers.iter().map(|text| Some(text.as_bytes().to_vec())).collect();
        judge(&words(request), &answers, &mut Queue::default())
    }

    #[test]
    fn replies_differ_by_a_byte() {
        assert_eq!(verdict(&["GET", "k"], &["$1\r\na\r\n", "$1\r\na\r\n"]), Verdict::Same);
        assert_eq!(verdict(&["GET", "k"], &["$1\r\nb\r\n", "$1\r\na\r\n"]), Verdict::Different);
        assert_eq!(verdict(&["GET", "k"], &["$-1\r\n", "_\r\n"]), Verdict::Different);
    }

    #[test]
    fn real_servers_that_differ_need_a_rule() {
        let answers = ["$1\r\na\r\n", "$1\r\na\r\n", "$1\r\nb\r\n"];
        assert_eq!(verdict(&["GET", "k"], &answers), Verdict::OraclesDiffer);
    }

    #[test]
    fn order_of_keys_does_not_matter_but_their_number_does() {
        assert_eq!(verdict(&["keys", "*"], &["*2\r\n+a\r\n+b\r\n", "*2\r\n+b\r\n+a\r\n"]), Verdict::Same);
        assert_eq!(
            verdict(&["keys", "*"], &["*2\r\n+a\r\n+a\r\n", "*2\r\n+b\r\n+a\r\n"]),
            Verdict::Different
        );
    }

    #[test]
    fn what_a_script_sorted_may_change_places_only_up_to_a_zero_byte() {
        let replies = |texts: [&str; 2]| format!("*2\r\n$2\r\n{}\r\n$2\r\n{}\r\n", texts[0], texts[1]);
        let verdict = |one, other| {
            let (one, other) = (replies(one), replies(other));
            verdict(&["EVAL", "return redis.call('SORT', KEYS[1])", "1", "k"], &[&one, &one, &other])
        };
        assert_eq!(verdict(["1\0", "1\0"], ["1\0", "1\0"]), Verdict::Same);
        assert_eq!(verdict(["1\0", "1\x01"], ["1\0", "1\x01"]), Verdict::Same);
        assert_eq!(verdict(["a\0", "a\0"], ["a\0", "b\0"]), Verdict::OraclesDiffer);
        assert_eq!(verdict(["\0a", "\0b"], ["\0b", "\0a"]), Verdict::Same);
        assert_eq!(verdict(["1a", "1b"], ["1b", "1a"]), Verdict::OraclesDiffer);
    }

    #[test]
    fn times_may_differ_a_little_but_not_their_absence() {
        assert_eq!(verdict(&["TTL", "k"], &[":1000\r\n", ":1001\r\n"]), Verdict::Same);
        assert_eq!(verdict(&["TTL", "k"], &[":-1\r\n", ":0\r\n"]), Verdict::Different);
        assert_eq!(verdict(&["TTL", "k"], &[":1000\r\n", ":2000\r\n"]), Verdict::Different);
    }

    #[test]
    fn replies_inside_exec_follow_the_rules_of_their_requests() {
        let requests = vec![words(&["TTL", "k"]), words(&["GET", "k"])];
        let mut queue = Queue { is_open: true, requests };
        let answers = ["*2\r\n:5\r\n$1\r\na\r\n", "*2\r\n:6\r\n$1\r\na\r\n"];
        let answers: Vec<Answer> = answers.iter().map(|text| Some(text.as_bytes().to_vec())).collect();
        assert_eq!(judge(&words(&["EXEC"]), &answers, &mut queue), Verdict::Same);
        assert!(!queue.is_open && queue.requests.is_empty());
    }
}
