//! Whether the answers to one request are the same, as far as the rules ask.
//!
//! Pure: answers in, verdict out.

use super::moments;
use super::rules::{self, How, Side};
use super::{Answer, shorten, ties, wording};
use crate::client::decode;
use crate::generate::Request;
use std::fmt;
use wire::{Value, skip_reply};

/// What the answers to one request amount to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As they should be.
    Same,
    /// As they should be, but the real servers hold different things from here on.
    Parted,
    /// The server under test answers otherwise than it should.
    Different,
    /// The real servers differ among themselves, and no rule says which is right.
    OraclesDiffer,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Same => "no difference",
            Verdict::Parted => "THE REAL SERVERS HAVE PARTED",
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

/// Whether the same errors are in each of the answers, by their first words.
pub fn have_same_errors(answers: &[Answer]) -> bool {
    answers.windows(2).all(|pair| error_codes(&pair[0]) == error_codes(&pair[1]))
}

/// The capital letters that errors begin with, sorted. Texts that begin with a dash are taken for errors too, numbers for some without any.
fn error_codes(answer: &Answer) -> Vec<&[u8]> {
    let reply = answer.as_deref().unwrap_or_default();
    let is_start = |at: &usize| *at == 0 || reply[..*at].ends_with(b"\r\n");
    let code = |at: usize| {
        let rest = &reply[at + 1..];
        &rest[..rest.iter().position(|byte| !byte.is_ascii_uppercase()).unwrap_or(rest.len())]
    };
    let dashes = (0..reply.len()).filter(|at| reply[*at] == b'-');
    let mut codes: Vec<&[u8]> = dashes.filter(is_start).map(code).collect();
    codes.sort_unstable();
    codes
}

fn judge_one(request: &Request, answers: &[Answer]) -> Verdict {
    let [subject, oracles @ ..] = answers else { return Verdict::Same };
    let redis = &oracles[0];
    let value = |answer: &Answer| wording::decode(answer.as_ref()?);
    let is_shorter_than =
        |right: &Answer| value(subject).zip(value(right)).is_some_and(|(a, b)| wording::is_shorter(&a, &b));
    if rules::for_request(request).any(|rule| matches!(rule.how, How::Wording))
        && !oracles.iter().all(|oracle| are_alike(request, subject, oracle))
    {
        if is_right_but_for_ties(request, subject, oracles) {
            return Verdict::Same;
        }
        return judge_wording(subject, redis, oracles.last().unwrap_or(redis));
    }
    let Some(other) = oracles.iter().find(|answer| !are_alike(request, redis, answer)) else {
        return match are_alike(request, subject, redis) {
            true => Verdict::Same,
            false if rules::may_be_stale(request, redis) => Verdict::Parted,
            false if rules::may_have_fewer_digits(request) && is_shorter_than(redis) => Verdict::Same,
            false => Verdict::Different,
        };
    };
    let right = match rules::right_side(request, redis, other) {
        Some(Side::Redis) => redis,
        Some(Side::Valkey) => other,
        Some(Side::Either) if are_alike(request, subject, redis) => redis,
        Some(Side::Either) => other,
        None => return Verdict::OraclesDiffer,
    };
    let is_other_form = || rules::are_same_numbers(redis, other) && is_shorter_than(right);
    if !are_alike(request, subject, right) && !is_other_form() {
        return Verdict::Different;
    }
    if rules::have_parted(request, redis, other) { Verdict::Parted } else { Verdict::Same }
}

/// Whether the answer is the one that two others make together.
fn judge_wording(subject: &Answer, redis: &Answer, valkey: &Answer) -> Verdict {
    let value = |answer: &Answer| wording::decode(answer.as_ref()?);
    judge_values(value(subject), value(redis), value(valkey))
}

fn judge_values(subject: Option<Value>, redis: Option<Value>, valkey: Option<Value>) -> Verdict {
    let right = redis.zip(valkey).and_then(|(redis, valkey)| wording::right(&redis, &valkey));
    match (right, subject) {
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
        How::Nested => decode(a).zip(decode(b)).is_some_and(|(a, b)| without_order(&a) == without_order(&b)),
        How::Expiry(second) => {
            let tolerance = second * if super::is_eager() { 15 } else { 2 };
            decode(a).zip(decode(b)).is_some_and(|(a, b)| is_within(&a, &b, tolerance))
        }
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
        How::Right(..)
        | How::Parts(..)
        | How::Stale(_)
        | How::ShorterNumbers
        | How::FewerDigits
        | How::Wording
        | How::TiesAtZero
        | How::Served
        | How::Tells(_) => false,
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

/// Whether a script shows what it should, but for the order that a rule leaves to each server; or, where it sorts so, what one of the real
/// servers shows.
fn is_right_but_for_ties(request: &Request, subject: &Answer, oracles: &[Answer]) -> bool {
    let has_rule = rules::for_request(request).any(|rule| matches!(rule.how, How::TiesAtZero));
    let has_zero = |answer: &Answer| answer.as_deref().is_some_and(ties::has_zero);
    let is_script_here = is(request, "eval") || is(request, "eval_ro");
    let sorts = has_word(request, b"nosort");
    if !has_rule || !oracles.iter().any(has_zero) || is_script_here && !sorts {
        return false;
    }
    let is_part = has_word(request, b"limit");
    let value = |answer: &Answer| wording::decode(answer.as_ref()?);
    let ordered = |answer: &Answer| value(answer).map(|value| ties::in_one_order(&value, is_part));
    let redis = &oracles[0];
    let valkey = oracles.last().unwrap_or(redis);
    judge_values(ordered(subject), ordered(redis), ordered(valkey)) == Verdict::Same
        || sorts
            && oracles
                .iter()
                .any(|oracle| judge_values(value(subject), value(oracle), value(oracle)) == Verdict::Same)
}

/// Whether a word has this, which is in lower case, anywhere.
fn has_word(request: &Request, wanted: &[u8]) -> bool {
    let has = |word: &[u8]| word.windows(wanted.len()).any(|part| part == wanted);
    request.iter().any(|word| has(&word.to_ascii_lowercase()))
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
    fn real_servers_may_part() {
        let broken = "-INVALIDOBJ Corrupted HLL object detected\r\n";
        assert_eq!(verdict(&["PFMERGE", "a", "b"], &[broken, broken, "+OK\r\n"]), Verdict::Parted);
        assert_eq!(verdict(&["PFMERGE", "a", "b"], &["+OK\r\n", broken, "+OK\r\n"]), Verdict::Different);
        assert_eq!(verdict(&["PFMERGE", "a", "b"], &[broken, broken, broken]), Verdict::Same);
        assert_eq!(verdict(&["PFMERGE", "a", "b"], &[broken, "+OK\r\n", broken]), Verdict::OraclesDiffer);
    }

    #[test]
    fn who_waits_is_served_as_by_valkey() {
        let served = |answers: [Option<&str>; 3]| {
            let answers = answers.map(|answer| answer.map(|text| text.as_bytes().to_vec()));
            judge(&words(&["BLPOP", "d", "d", "0"]), &answers, &mut Queue::default())
        };
        let popped = Some("*2\r\n$1\r\nd\r\n$1\r\nx\r\n");
        assert_eq!(served([None, popped, None]), Verdict::Same);
        assert_eq!(served([popped, None, popped]), Verdict::Same);
        assert_eq!(served([popped, popped, None]), Verdict::Different);
        assert_eq!(served([None, Some("-ERR\r\n"), None]), Verdict::OraclesDiffer);
    }

    #[test]
    fn errors_are_the_same_by_their_first_words() {
        let are_same = |one: &str, other: &str| {
            have_same_errors(&[Some(one.as_bytes().to_vec()), Some(other.as_bytes().to_vec())])
        };
        assert!(are_same("-ERR one text\r\n", "-ERR another\r\n"));
        assert!(are_same("*2\r\n-ERR\r\n$2\r\n-5\r\n", "*2\r\n-ERR\r\n$2\r\n-6\r\n"));
        assert!(!are_same("-ERR wrong number\r\n", "-WRONGTYPE wrong kind\r\n"));
        assert!(!are_same("*1\r\n-WRONGTYPE\r\n", "-EXECABORT\r\n"));
        assert!(!are_same("+OK\r\n", "-ERR no\r\n"));
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
    fn what_a_script_sorted_is_as_at_one_real_server_where_members_tie_at_a_zero_byte() {
        let reply = |text: &str| format!("${}\r\n{text}\r\n", text.len());
        let verdict = |script: &str, answers: [&str; 3]| {
            let [subject, redis, valkey] = answers.map(reply);
            verdict(&["EVAL", script, "1", "k"], &[&subject, &redis, &valkey])
        };
        let sorts = "return redis.call('SORT', KEYS[1], 'BY', 'nosort', 'LIMIT', 0, 1)[1]";
        assert_eq!(verdict(sorts, ["1\0", "1", "1\0"]), Verdict::Same);
        assert_eq!(verdict(sorts, ["1", "1", r"1\000"]), Verdict::Same);
        assert_ne!(verdict(sorts, ["2", "1", "1\0"]), Verdict::Same);
        assert_ne!(verdict(sorts, ["1", "1", "2"]), Verdict::Same);
        assert_ne!(verdict("return redis.call('GET', KEYS[1])", ["1", "1", "1\0"]), Verdict::Same);
        assert_ne!(verdict("return redis.call('GET', KEYS[1])", ["1", "1\0", "1\0"]), Verdict::Same);
    }

    #[test]
    fn what_a_script_that_is_not_seen_sorted_has_its_elements_only_in_another_order() {
        let reply = |texts: [&str; 2]| {
            let bulk = |text: &&str| format!("${}\r\n{text}\r\n", text.len());
            format!("*2\r\n{}", texts.iter().map(bulk).collect::<String>())
        };
        let verdict = |answers: [[&str; 2]; 3]| {
            let [subject, redis, valkey] = answers.map(reply);
            verdict(&["FCALL", "f", "0"], &[&subject, &redis, &valkey])
        };
        let (one, other) = (["1", "1\0"], ["1\0", "1"]);
        assert_eq!(verdict([one, other, other]), Verdict::Same);
        assert_eq!(verdict([one, one, other]), Verdict::Same);
        assert_ne!(verdict([["1", "1"], other, other]), Verdict::Same);
        assert_ne!(verdict([one, one, ["2\0", "1"]]), Verdict::Same);
        let (redis, valkey) =
            ("Unknown Redis command called from script", "Unknown command called from script");
        assert_eq!(verdict([["1\0", redis], ["1\0", redis], ["1\0", valkey]]), Verdict::Same);
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

    #[test]
    fn an_error_of_both_real_servers_that_may_come_from_before_gives_the_stream_up() {
        let error = "-ERR One or more scores can't be converted into double\r\n";
        let judge = |name: &str, replies: [&str; 3]| {
            let answers = replies.map(|reply| Some(reply.as_bytes().to_vec()));
            judge_one(&words(&[name, "k", "0"]), &answers)
        };
        assert_eq!(judge("SORT", ["*0\r\n", error, error]), Verdict::Parted);
        assert_eq!(judge("SORT", [error, error, error]), Verdict::Same);
        assert_eq!(judge("SORT", [error, "*0\r\n", "*0\r\n"]), Verdict::Different);
        let scanned =
            |score: &str| format!("*2\r\n$1\r\n0\r\n*2\r\n$1\r\na\r\n${}\r\n{score}\r\n", score.len());
        let (long, short) = (scanned("2.8799999999999999"), scanned("2.88"));
        assert_eq!(judge("ZSCAN", [&short, &long, &long]), Verdict::Same);
        assert_eq!(judge("ZSCAN", [&scanned("2.89"), &long, &long]), Verdict::Different);
        assert_eq!(judge("LPOP", ["*0\r\n", error, error]), Verdict::Different);
    }
}
