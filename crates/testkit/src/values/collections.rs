//! Arguments of the commands of lists, sets, hashes, sorted sets and positions: keys of pools of their own,
//! members that meet each other, scores with ties, ranges by score and by text, and numbers of keys that are right.
//!
//! Invariants:
//! 1. Every type has a few keys of its own, so that most commands find a value of their type; now and then a
//!    command is given another's.
//! 2. Members are few, or numbered where many are added at once, so that values grow past the limits of their encodings.

use super::{KEYS, SHORT, float, integer, key, odd, pick};
use command::Group;
use sys::Prng;

const HYPERLOGLOGS: &[&[u8]] = &[b"p1", b"p2", b"{t}p"];
const LISTS: &[&[u8]] = &[b"l1", b"l2", b"{t}l"];
const HASHES: &[&[u8]] = &[b"h1", b"h2"];
const SETS: &[&[u8]] = &[b"s1", b"s2", b"s3", b"{t}s"];
const SORTED_SETS: &[&[u8]] = &[b"z1", b"z2", b"z3"];
const POSITIONS: &[&[u8]] = &[b"g1", b"g2", b"z1"];
const STREAMS: &[&[u8]] = &[b"x1", b"x2"];
const POOLS: &[&[&[u8]]] = &[KEYS, HYPERLOGLOGS, LISTS, HASHES, SETS, SORTED_SETS, POSITIONS, STREAMS];

/// A key for a command of a family.
pub(super) fn key_of(prng: &mut Prng, group: Group) -> Vec<u8> {
    let own = match group {
        Group::List => LISTS,
        Group::Hash => HASHES,
        Group::Set => SETS,
        // Their combinations take sets too.
        Group::SortedSet if prng.one_in(8) => SETS,
        Group::SortedSet => SORTED_SETS,
        Group::Geo => POSITIONS,
        Group::Stream => STREAMS,
        Group::HyperLogLog => HYPERLOGLOGS,
        Group::String | Group::Bitmap => KEYS,
        _ => pick(prng, POOLS),
    };
    let pool = if prng.one_in(16) { pick(prng, POOLS) } else { own };
    if pool == KEYS { key(prng) } else { pick(prng, pool).to_vec() }
}

/// A value for an argument of a collection's command; none if it is none of its own kind.
pub(super) fn argument(prng: &mut Prng, group: Group, command: &str, name: &str) -> Option<Vec<u8>> {
    Some(match (group, name) {
        (_, "timeout") if command.starts_with('b') => timeout(prng),
        (Group::SortedSet, "min" | "max") if command.ends_with("bylex") || command == "zlexcount" => {
            text_edge(prng)
        }
        (Group::SortedSet, "min" | "max") => score_edge(prng),
        (Group::SortedSet, "score" | "increment") => score(prng),
        (Group::SortedSet, "weight") => {
            pick::<&[u8]>(prng, &[b"1", b"2", b"-1", b"0", b"0.5", b"inf", b"-inf", b"x"]).to_vec()
        }
        (Group::SortedSet | Group::Geo, "offset") => integer(prng, -1, 6),
        (Group::Geo, "longitude") => place(prng, &[13.361389, 15.087269, 0.0, 179.99, -180.0, 2.35, 181.0]),
        (Group::Geo, "latitude") => place(prng, &[38.115556, 37.502669, 0.0, 85.05, -85.06, 48.85, -12.5]),
        (Group::Geo, "radius" | "width" | "height") => pick::<&[u8]>(
            prng,
            &[b"0", b"1", b"50", b"200", b"166.27", b"5000", b"1e5", b"-1", b"x", b"40000"],
        )
        .to_vec(),
        // The same element several times, and few of them meant.
        (Group::List, "element" | "pivot") if prng.one_in(2) => integer(prng, 0, 3),
        (Group::List, "count") if command == "lrem" && !prng.one_in(8) => integer(prng, -2, 2),
        (Group::List, "num-matches" | "len") => integer(prng, -1, 8),
        (Group::List, "rank") => integer(prng, -4, 4),
        (Group::List, "index") if prng.one_in(8) => integer(prng, -600, 600),
        (Group::Hash, "increment") if command == "hincrby" && !prng.one_in(4) => integer(prng, -50, 50),
        (Group::Hash, "value") if prng.one_in(3) => integer(prng, -50, 50),
        (Group::List | Group::Set | Group::SortedSet | Group::Hash | Group::HyperLogLog, "count")
            if prng.one_in(12) =>
        {
            pick::<&[u8]>(prng, &[b"1000", b"-600", b"9223372036854775807", b"-9223372036854775808", b"0"])
                .to_vec()
        }
        (_, "field" | "member" | "element" | "pivot" | "value") if is_collection(group) => member(prng),
        _ => return None,
    })
}

fn is_collection(group: Group) -> bool {
    matches!(
        group,
        Group::List | Group::Set | Group::SortedSet | Group::Hash | Group::Geo | Group::HyperLogLog
    )
}

/// One of a few members: small numbers, short texts, texts around the limits of the compact encodings.
pub(super) fn member(prng: &mut Prng) -> Vec<u8> {
    match prng.below(100) {
        0..45 => integer(prng, 0, 24),
        45..75 => pick(prng, SHORT).to_vec(),
        75..82 => numbered(prng),
        82..88 => {
            let mut text = vec![b'x'; pick(prng, &[63, 64, 64, 64, 65])];
            text[0] = pick(prng, b"abc");
            text
        }
        88..91 => integer(prng, -70_000, 70_000),
        91..93 => vec![pick(prng, b"vw"); pick(prng, &[200, 2_000, 5_000])],
        93..96 => float(prng),
        _ => odd(prng),
    }
}

/// One of a thousand members.
pub(super) fn numbered(prng: &mut Prng) -> Vec<u8> {
    let number = prng.below(1_000);
    // One kind of member at a time would be needed for a set of integers to grow: even numbers are texts rarely.
    if prng.one_in(64) { format!("m{number}").into_bytes() } else { number.to_string().into_bytes() }
}

/// A ZADD of thousands of members in ascending order, as of moments or numbers that count up, so that all levels of a tree have their
/// last nodes filled as far as it happens to be; or one that gives some of those at the end other places.
pub fn ascending(prng: &mut Prng) -> Vec<Vec<u8>> {
    /// Fills a tree's inner nodes, and a little more.
    const MEMBERS: std::ops::Range<u64> = 3_220..3_800;
    let key = SORTED_SETS[prng.below(2) as usize].to_vec();
    let mut request = vec![b"ZADD".to_vec(), key];
    let mut add =
        |score: String, member: u64| request.extend([score.into_bytes(), member.to_string().into_bytes()]);
    let end = MEMBERS.start + prng.below(MEMBERS.end - MEMBERS.start);
    if prng.one_in(4) {
        (0..end).for_each(|member| add(member.to_string(), member));
    } else {
        (0..8).for_each(|_| {
            let member = end - 1 - prng.below(MEMBERS.end - MEMBERS.start);
            add(format!("{}.5", prng.below(2 * end)), member);
        });
    }
    request
}

/// A score: small ones with many ties, and those at the edges.
pub(super) fn score(prng: &mut Prng) -> Vec<u8> {
    const EDGES: &[&[u8]] = &[
        b"inf",
        b"-inf",
        b"+inf",
        b"1e300",
        b"-1e300",
        b"0.1",
        b"-0",
        b"1e-300",
        b"4503599627370496.5",
        b"9007199254740993",
        b"3.0",
        b"nan",
        b"1e400",
        b"x",
    ];
    match prng.below(10) {
        0..6 => integer(prng, 0, 5),
        6 => integer(prng, -1_000, 1_000),
        7 => format!("{}.{}", prng.below(4), prng.below(100)).into_bytes(),
        8 => pick(prng, EDGES).to_vec(),
        _ => integer(prng, 0, 0),
    }
}

/// An end of a range of scores.
pub(super) fn score_edge(prng: &mut Prng) -> Vec<u8> {
    match prng.below(8) {
        0 => b"-inf".to_vec(),
        1 => b"+inf".to_vec(),
        2 | 3 => [b"(".as_slice(), &score(prng)].concat(),
        _ => score(prng),
    }
}

/// An end of a range of texts.
pub(super) fn text_edge(prng: &mut Prng) -> Vec<u8> {
    match prng.below(8) {
        0 => b"-".to_vec(),
        1 => b"+".to_vec(),
        2..4 => [b"(".as_slice(), &member(prng)].concat(),
        4..7 => [b"[".as_slice(), &member(prng)].concat(),
        _ => member(prng),
    }
}

/// Some place, or one that lies beside it.
fn place(prng: &mut Prng, places: &[f64]) -> Vec<u8> {
    let place = pick(prng, places);
    if prng.one_in(3) { format!("{:.4}", place + prng.unit()) } else { place.to_string() }.into_bytes()
}

/// How long a command may wait where nobody will end the wait.
fn timeout(prng: &mut Prng) -> Vec<u8> {
    pick::<&[u8]>(prng, &[b"0.001", b"0.002", b".001", b"1e-3", b"-1", b"x", b"1e400", b"0.0011"]).to_vec()
}

/// Puts ranges of the kind that ZRANGE's options name into it.
pub fn fit_range(prng: &mut Prng, request: &mut [Vec<u8>]) {
    let first = if request[0].eq_ignore_ascii_case(b"zrangestore") { 3 } else { 2 };
    let has = |word: &[u8]| request.iter().skip(first + 2).any(|other| other.eq_ignore_ascii_case(word));
    let edge = match (has(b"byscore"), has(b"bylex")) {
        (true, _) => score_edge,
        (_, true) => text_edge,
        _ => return,
    };
    for word in request.iter_mut().skip(first).take(2) {
        if !prng.one_in(20) {
            *word = edge(prng);
        }
    }
}

/// Sends ranges by text to sorted sets of which all members have the same score, for others have no order by text; and
/// some other requests there, which leave it so.
pub fn fit_texts(prng: &mut Prng, request: &mut Vec<Vec<u8>>) {
    const ALIKE: &[&[u8]] = &[b"y1", b"y2"];
    let name = request[0].to_ascii_lowercase();
    let is_by_text = name.ends_with(b"bylex") || name == b"zlexcount";
    let is_range = name.starts_with(b"zrange") && !is_by_text && !name.ends_with(b"byscore");
    let (at, is_meant) = match name.as_slice() {
        b"zrangestore" => (2, has_word(request, b"bylex")),
        _ if is_range => (1, has_word(request, b"bylex")),
        b"zadd" | b"zrem" | b"zpopmin" | b"zcard" => (1, prng.one_in(3)),
        _ => (1, true),
    };
    if !is_meant || request.len() <= at {
        return;
    }
    request[at] = pick(prng, ALIKE).to_vec();
    if name == b"zadd" {
        let members: Vec<Vec<u8>> = request.drain(2..).skip(1).step_by(2).collect();
        request.extend(members.into_iter().flat_map(|member| [b"0".to_vec(), member]));
    }
}

fn has_word(request: &[Vec<u8>], wanted: &[u8]) -> bool {
    request.iter().any(|word| word.eq_ignore_ascii_case(wanted))
}

/// Makes weights as many as keys.
pub fn fit_weights(prng: &mut Prng, request: &mut Vec<Vec<u8>>) {
    let Some(at) = request.iter().position(|word| word.eq_ignore_ascii_case(b"weights")) else { return };
    let is_number =
        |word: &&Vec<u8>| std::str::from_utf8(word).is_ok_and(|text| text.parse::<usize>().is_ok());
    let keys = request.iter().skip(1).take(2).find(is_number);
    let Some(keys) = keys.and_then(|word| std::str::from_utf8(word).ok()?.parse::<usize>().ok()) else {
        return;
    };
    if keys > 16 || prng.one_in(20) {
        return;
    }
    let is_option = |word: &Vec<u8>| {
        [b"aggregate".as_slice(), b"withscores"].iter().any(|name| word.eq_ignore_ascii_case(name))
    };
    let end = request[at + 1..].iter().position(is_option).map_or(request.len(), |end| at + 1 + end);
    let weights: Vec<Vec<u8>> =
        (0..keys).map(|_| argument(prng, Group::SortedSet, "", "weight").expect("it has weights")).collect();
    request.splice(at + 1..end, weights);
}
