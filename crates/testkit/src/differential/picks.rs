//! Requests whose replies no two servers have in common: members picked at random,
//! and scans in steps. A pick has to be of what was there; a scan, taken to its
//! end, has to show all that is there.
//!
//! Members that were taken (SPOP) are made the same everywhere: the real servers take back what they picked and give
//! what the server under test picked, one for one, so that no value's size or encoding changes on the way.
//!
//! Invariant: a pick is a batch of its own, and outside of transactions.

use super::judge::{self, Queue, Verdict, is};
use super::rules::{self, Side};
use super::{Answer, Difference, Differential};
use crate::client::decode;
use crate::generate::{Request, Step, words};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use wire::Value;

/// Calls of one scan at most; more means that its cursor never ends.
const CALLS_MAX: usize = 20_000;

/// What is picked from, or scanned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// Members of a set, which may be taken out.
    Set,
    /// Fields of a hash.
    Hash,
    /// Members of a sorted set.
    SortedSet,
    /// A key.
    Key,
    /// All elements, call by call; the cursor is this word.
    Scan(usize),
}

impl Pick {
    /// What a request picks, if it does.
    pub fn of(request: &Request) -> Option<Pick> {
        let scans = |cursor: usize| request.get(cursor).is_some_and(|word| word == b"0");
        let name = request.first()?.to_ascii_lowercase();
        Some(match name.as_slice() {
            b"spop" | b"srandmember" if (2..4).contains(&request.len()) => Pick::Set,
            b"hrandfield" if (2..5).contains(&request.len()) => Pick::Hash,
            b"zrandmember" if (2..5).contains(&request.len()) => Pick::SortedSet,
            b"randomkey" if request.len() == 1 => Pick::Key,
            b"scan" if scans(1) => Pick::Scan(1),
            b"hscan" | b"sscan" | b"zscan" if scans(2) => Pick::Scan(2),
            _ => return None,
        })
    }

    /// The request that shows all that may be picked.
    fn everything(self, request: &Request) -> Request {
        let mut ask = words(match self {
            Pick::Set => &["SMEMBERS"],
            Pick::Hash => &["HGETALL"],
            Pick::SortedSet => &["ZRANGE"],
            Pick::Key | Pick::Scan(_) => &["KEYS", "*"],
        });
        ask.extend(request.get(1).cloned());
        if self == Pick::SortedSet {
            ask.extend(words(&["0", "-1", "WITHSCORES"]));
        }
        ask
    }
}

/// Whether a request takes out members that each server picks for itself.
pub fn changes(request: &Request) -> bool {
    is(request, "spop")
}

/// Whether a request changes the encoding of the sorted set that it reads in real servers, for no reason that a client
/// could see, or goes by the order of a set that has none, with which it replies or by which what it makes gets its encoding: such requests are sent only
/// where they do not meet these.
pub fn may_convert(request: &Request) -> bool {
    is(request, "sort") || is(request, "sort_ro") || makes_set(request)
}

/// Whether a request makes a set that begins as one of integers, and becomes what its members want as they come.
fn makes_set(request: &Request) -> bool {
    is(request, "sunionstore") || is(request, "sdiffstore")
}

impl Differential {
    /// Plays a pick, and leaves all servers with the same values.
    pub(super) fn play_pick(&mut self, step: &Step, pick: Pick) -> io::Result<Option<Difference>> {
        if let Pick::Scan(cursor) = pick {
            return self.play_scan(step, cursor);
        }
        let connection = step.connection;
        let everything = self.ask_on(connection, &pick.everything(&step.request))?;
        let answers = self.ask_on(connection, &step.request)?;
        self.have_parted |= !judge::have_same_errors(&answers[1..]);
        let is_right = |(answer, all): (&Answer, &Answer)| {
            let (Some(answer), Some(all)) = (answer, all) else { return false };
            is_pick(&step.request, pick, answer, all)
        };
        let form =
            |answer: &Answer| answer.as_ref().and_then(|reply| decode(reply)).map(|value| form(&value));
        let are_alike = answers.iter().all(|answer| form(answer) == form(&answers[0]));
        let is_error = answers[0].as_ref().is_some_and(|reply| reply[0] == b'-');
        if is_error || !are_alike {
            let verdict = judge::judge(&step.request, &answers, &mut Queue::default());
            let verdict = if is_error || verdict != Verdict::Same { verdict } else { Verdict::Different };
            return self.found(&step.request, answers, verdict);
        }
        if !answers.iter().zip(&everything).all(is_right) {
            return self.found(&step.request, answers, Verdict::Different);
        }
        if changes(&step.request) {
            self.exchange(step, &answers)?;
        }
        Ok(None)
    }

    /// Whether the request would be about a sorted set, or about a set without an order whose members may have equal weights, or of whose first members
    /// depends what it makes.
    pub(super) fn meets_unordered(&mut self, step: &Step) -> io::Result<bool> {
        if makes_set(&step.request) {
            return self.joins_unordered(step);
        }
        let Some(key) = step.request.get(1) else { return Ok(false) };
        let of_key = |words_before: &[&str]| {
            words_before.iter().map(|word| word.as_bytes().to_vec()).chain([key.clone()]).collect::<Request>()
        };
        let answers = self.ask_on(step.connection, &of_key(&["TYPE"]))?;
        let is_any =
            |answers: &[Answer], reply: &[u8]| answers.iter().flatten().any(|answer| answer == reply);
        if is_any(&answers, b"+zset\r\n") {
            return Ok(true);
        }
        let pattern = step.request.windows(2).rfind(|words| words[0].eq_ignore_ascii_case(b"by"));
        let Some(pattern) = pattern.filter(|_| is_any(&answers, b"+set\r\n")) else { return Ok(false) };
        if !pattern[1].contains(&b'*') {
            return Ok(true);
        }
        // Redis 7.0, whose sets have no other encoding, is not the one that is followed.
        let encodings = self.ask_on(step.connection, &of_key(&["OBJECT", "ENCODING"]))?;
        let [tarn, _, valkey] = encodings.as_slice() else { return Ok(true) };
        Ok(is_any(&[tarn.clone(), valkey.clone()], b"$9\r\nhashtable\r\n"))
    }

    /// Whether a set that is made may be a hash table because many integers happen to come first, where a string that comes sooner makes it a listpack, for
    /// as long as it is small: among the sources is a set without an order, or with one that an exchange has changed, and there are fewer integers that can be
    /// alone than there are members of a listpack.
    fn joins_unordered(&mut self, step: &Step) -> io::Result<bool> {
        let mut ask = |request: &[&[u8]]| {
            let request: Request = request.iter().map(|word| word.to_vec()).collect();
            Ok::<Answer, io::Error>(self.ask_on(step.connection, &request)?.swap_remove(0))
        };
        let mut limit = |name: &str| {
            let answer = ask(&[b"CONFIG", b"GET", name.as_bytes()])?;
            let value = answer.as_ref().and_then(|reply| decode(reply));
            let digits =
                value.map(|value| leaves(&value)).and_then(|mut words| words.pop()).unwrap_or_default();
            Ok::<u64, io::Error>(String::from_utf8_lossy(&digits).parse().unwrap_or(u64::MAX))
        };
        if limit("set-max-intset-entries")? >= limit("set-max-listpack-entries")? {
            return Ok(false);
        }
        for key in step.request.iter().skip(2) {
            let encoding = ask(&[b"OBJECT", b"ENCODING", key])?;
            if encoding.is_some_and(|reply| reply.starts_with(b"$") && reply != b"$6\r\nintset\r\n") {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Gives every server what it alone has taken, for what the one under test has taken.
    fn exchange(&mut self, step: &Step, answers: &[Answer]) -> io::Result<()> {
        let taken = |answer: &Answer| -> BTreeSet<Vec<u8>> {
            let value = answer.as_ref().and_then(|reply| decode(reply));
            value.map(|value| leaves(&value).into_iter().collect()).unwrap_or_default()
        };
        let wanted = taken(&answers[0]);
        let Some(any) = wanted.first().cloned() else { return Ok(()) };
        // What the real servers have picked otherwise; the same number of exchanges for each.
        let others: Vec<BTreeSet<Vec<u8>>> = answers.iter().map(taken).collect();
        let pairs = others.iter().map(|other| other.difference(&wanted).count()).max().unwrap_or(0);
        let call = |name: &str, member: &Vec<u8>| vec![name.into(), step.request[1].clone(), member.clone()];
        for (node, other) in self.nodes.iter_mut().zip(others) {
            let mut back: Vec<Vec<u8>> = other.difference(&wanted).cloned().collect();
            let mut out: Vec<Vec<u8>> = wanted.difference(&other).cloned().collect();
            back.resize(pairs, any.clone());
            out.resize(pairs, any.clone());
            for (back, out) in back.iter().zip(&out) {
                for request in [call("SADD", back), call("SREM", out)] {
                    node.ask(step.connection, &request)?;
                }
            }
        }
        Ok(())
    }

    /// Scans to the end on every server, and compares all that they show.
    fn play_scan(&mut self, step: &Step, cursor: usize) -> io::Result<Option<Difference>> {
        let mut first = Vec::new();
        let mut shown = Vec::new();
        for node in &mut self.nodes {
            let answer = node.ask(step.connection, &step.request)?;
            let mut elements = BTreeSet::new();
            let mut next = answer.as_ref().and_then(|reply| scanned(reply, &step.request, &mut elements));
            let mut calls = 0;
            while let Some(at) = next.take_if(|at| at != b"0") {
                calls += 1;
                if calls > CALLS_MAX {
                    elements.insert(vec![b"(no end)".to_vec()]);
                    break;
                }
                let mut request = step.request.clone();
                request[cursor] = at;
                let answer = node.ask(step.connection, &request)?;
                next = answer.as_ref().and_then(|reply| scanned(reply, &request, &mut elements));
            }
            first.push(answer);
            shown.push(elements);
        }
        self.have_parted |= !judge::have_same_errors(&first[1..]);
        let verdict = judge::judge(&step.request, &first, &mut Queue::default());
        // Where real servers differ, a rule may say that Redis is right.
        let parted = shown.iter().skip(2).position(|elements| *elements != shown[1]).map(|at| at + 2);
        let right = parted.and_then(|other| rules::right_side(&step.request, &first[1], &first[other]));
        let is_right = match (parted, right) {
            (Some(other), Some(Side::Valkey)) => shown[0] == shown[other],
            (Some(_), None) => false,
            _ => shown[0] == shown[1],
        };
        if verdict == Verdict::Same && !is_right {
            let shown = shown.into_iter().map(|elements| Some(format!("{elements:?}").into_bytes()));
            return self.found(&step.request, shown.collect(), Verdict::Different);
        }
        self.found(&step.request, first, verdict)
    }

    fn found(
        &mut self,
        request: &Request,
        answers: Vec<Answer>,
        verdict: Verdict,
    ) -> io::Result<Option<Difference>> {
        if verdict == Verdict::Same { Ok(None) } else { self.difference(request, answers, verdict).map(Some) }
    }

    fn ask_on(&mut self, connection: usize, request: &Request) -> io::Result<Vec<Answer>> {
        self.nodes.iter_mut().map(|node| node.ask(connection, request)).collect()
    }
}

/// Keeps the elements of a scan's reply; its cursor, or None if there is none.
fn scanned(reply: &[u8], request: &Request, elements: &mut BTreeSet<Vec<Vec<u8>>>) -> Option<Vec<u8>> {
    let Some(Value::Array(parts)) = decode(reply) else { return None };
    let [Value::Bulk(cursor), list] = parts.as_slice() else { return None };
    let has_pairs = is(request, "hscan") || is(request, "zscan");
    let mut list = leaves(list);
    if is(request, "zscan") {
        // Redis 7.0 writes them with more digits. The first reply is compared as it is.
        list.iter_mut().skip(1).step_by(2).for_each(|score| *score = shortest(score));
    }
    elements.extend(list.chunks(if has_pairs { 2 } else { 1 }).map(<[_]>::to_vec));
    Some(cursor.clone())
}

fn shortest(score: &[u8]) -> Vec<u8> {
    let number = std::str::from_utf8(score).ok().and_then(|text| text.parse::<f64>().ok());
    number.map_or(score.to_vec(), |number| number.to_string().into_bytes())
}

/// What a reply is made of, without what is in it. A set and an array are different things.
fn form(value: &Value) -> String {
    match value {
        Value::Array(values) => format!("[{}]", values.iter().map(form).collect::<String>()),
        Value::Set(values) => format!("{{{}}}", values.len()),
        Value::Map(pairs) => format!("<{}>", pairs.len()),
        Value::Bulk(_) => "b".into(),
        Value::Double(_) => "d".into(),
        other => format!("{other:?}"),
    }
}

/// All strings and numbers of a value, in their order.
fn leaves(value: &Value) -> Vec<Vec<u8>> {
    match value {
        Value::Array(values) | Value::Set(values) => values.iter().flat_map(leaves).collect(),
        Value::Map(pairs) => {
            pairs.iter().flat_map(|(key, value)| [leaves(key), leaves(value)].concat()).collect()
        }
        Value::Bulk(text) => vec![text.clone()],
        Value::Null => Vec::new(),
        other => vec![format!("{other:?}").into_bytes()],
    }
}

/// Whether an answer holds nothing but what is there: with its value if asked for, and once if asked for so.
fn is_pick(request: &Request, pick: Pick, answer: &[u8], everything: &[u8]) -> bool {
    let (Some(answer), Some(everything)) = (decode(answer), decode(everything)) else { return false };
    let has_pairs = matches!(pick, Pick::Hash | Pick::SortedSet);
    let everything = leaves(&everything);
    let all: BTreeMap<&Vec<u8>, Option<&Vec<u8>>> =
        everything.chunks(if has_pairs { 2 } else { 1 }).map(|pair| (&pair[0], pair.get(1))).collect();
    let picked = leaves(&answer);
    let picked: Vec<&[Vec<u8>]> = picked.chunks(if request.len() == 4 { 2 } else { 1 }).collect();
    let is_there =
        |pair: &&[Vec<u8>]| all.get(&pair[0]).is_some_and(|value| pair.len() == 1 || *value == pair.get(1));
    let may_repeat = request.get(2).is_some_and(|count| count.starts_with(b"-"));
    let different: BTreeSet<_> = picked.iter().collect();
    picked.iter().all(is_there) && (may_repeat || different.len() == picked.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_right(request: &[&str], answer: &str, everything: &str) -> bool {
        let request = words(request);
        let pick = Pick::of(&request).unwrap();
        is_pick(&request, pick, answer.as_bytes(), everything.as_bytes())
    }

    #[test]
    fn only_what_is_there_can_be_picked_and_only_once() {
        let all = "*2\r\n$1\r\na\r\n$1\r\nb\r\n";
        assert!(is_right(&["SRANDMEMBER", "k"], "$1\r\nb\r\n", all));
        assert!(!is_right(&["SRANDMEMBER", "k"], "$1\r\nc\r\n", all));
        assert!(!is_right(&["SPOP", "k", "2"], "*2\r\n$1\r\na\r\n$1\r\na\r\n", all));
        assert!(is_right(&["SRANDMEMBER", "k", "-2"], "*2\r\n$1\r\na\r\n$1\r\na\r\n", all));
    }

    #[test]
    fn fields_come_with_their_own_values() {
        let all = "%2\r\n$1\r\na\r\n$1\r\n1\r\n$1\r\nb\r\n$1\r\n2\r\n";
        let ask = ["HRANDFIELD", "k", "1", "WITHVALUES"];
        assert!(is_right(&ask, "*1\r\n*2\r\n$1\r\nb\r\n$1\r\n2\r\n", all));
        assert!(!is_right(&ask, "*1\r\n*2\r\n$1\r\nb\r\n$1\r\n1\r\n", all));
    }
}
