//! The directives that are more than one number or one text: save points, output limits, event classes and the like.
//!
//! Each has a parser from words and, where `parsed::format` needs it, the way back. A single empty word stands for
//! nothing at all, as in `save ""`.

use bitflags::bitflags;

use crate::parsed::{BadValue, OutputLimit, Parsed, Value, decimal, index_of_word, memory, shutdown_bit};
use crate::row::SHUTDOWN_WORDS;

bitflags! {
    /// Which keyspace notifications are published (`notify-keyspace-events`); its bits are `Config`'s own.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct KeyspaceEvents: u32 {
        /// `g`: commands of no type, such as DEL and EXPIRE.
        const GENERIC = 1;
        /// `$`: strings.
        const STRING = 1 << 1;
        /// `l`: lists.
        const LIST = 1 << 2;
        /// `s`: sets.
        const SET = 1 << 3;
        /// `h`: hashes.
        const HASH = 1 << 4;
        /// `z`: sorted sets.
        const ZSET = 1 << 5;
        /// `x`: keys that expired.
        const EXPIRED = 1 << 6;
        /// `e`: keys evicted for memory.
        const EVICTED = 1 << 7;
        /// `t`: streams.
        const STREAM = 1 << 8;
        /// `d`: types of modules.
        const MODULE = 1 << 9;
        /// `n`: new keys; not part of `A`.
        const NEW = 1 << 10;
        /// `K`: publish on `__keyspace@<db>__`.
        const KEYSPACE = 1 << 11;
        /// `E`: publish on `__keyevent@<db>__`.
        const KEYEVENT = 1 << 12;
        /// `m`: reads that missed; not part of `A`.
        const KEY_MISS = 1 << 13;
        /// `A`.
        const ALL = (1 << 10) - 1;
    }
}

bitflags! {
    /// What ends the server is to do (`shutdown-on-sigterm`), in the order of `SHUTDOWN_WORDS`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ShutdownFlags: u8 {
        /// It saves, whatever save points there are.
        const SAVE = 1;
        /// It does not.
        const NOSAVE = 2;
        /// It waits for no replica.
        const NOW = 4;
        /// What cannot be saved does not keep the server.
        const FORCE = 8;
    }
}

/// The letter of each bit of `KeyspaceEvents`, from the lowest; CONFIG GET writes them in this order.
const EVENT_LETTERS: &[u8; 14] = b"g$lshzxetdnKEm";

pub(super) fn parse_keyspace_events(word: &[u8]) -> Result<i64, BadValue> {
    let mut events = KeyspaceEvents::empty();
    for letter in word {
        events |= match EVENT_LETTERS.iter().position(|known| known == letter) {
            Some(bit) => KeyspaceEvents::from_bits_retain(1 << bit),
            None if *letter == b'A' => KeyspaceEvents::ALL,
            None => return Err("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.".into()),
        };
    }
    Ok(i64::from(events.bits()))
}

/// `A` hides `n`, as in Redis.
pub(super) fn format_keyspace_events(bits: i64) -> String {
    let events = KeyspaceEvents::from_bits_truncate(bits as u32);
    let mut letters = String::new();
    let mut shown = events;
    if events.contains(KeyspaceEvents::ALL) {
        letters.push('A');
        shown.remove(KeyspaceEvents::ALL | KeyspaceEvents::NEW);
    }
    for event in shown.iter() {
        letters.push(char::from(EVENT_LETTERS[event.bits().trailing_zeros() as usize]));
    }
    letters
}

/// Nothing, or the words, where a single empty word is nothing.
fn unless_empty<'a, 'b>(words: &'a [&'b [u8]]) -> &'a [&'b [u8]] {
    match words {
        [b""] => &[],
        _ => words,
    }
}

/// As many addresses as Redis takes.
const WORDS_MAX: usize = 16;

pub(super) fn parse_words(words: &[&[u8]]) -> Parsed {
    if words.len() > WORDS_MAX {
        return Err("Too many bind addresses specified.".into());
    }
    Ok(Value::Words(unless_empty(words).iter().map(|word| word.to_vec()).collect()))
}

pub(super) fn parse_lines(words_min: usize, words: &[&[u8]], before: Option<Value>) -> Parsed {
    if words.len() < words_min {
        return Err("wrong number of arguments".into());
    }
    let mut lines = match before {
        Some(Value::Lines(lines)) => lines,
        _ => Vec::new(),
    };
    lines.push(words.iter().map(|word| word.to_vec()).collect());
    Ok(Value::Lines(lines))
}

/// `save ""` forgets what came before it; other lines add up. One without words adds nothing, but stands in the default's place.
pub(super) fn parse_save(words: &[&[u8]], before: Option<Value>) -> Parsed {
    let mut points = match before {
        Some(Value::Save(points)) if *words != [b""] => points,
        _ => Vec::new(),
    };
    let words = unless_empty(words);
    if !words.len().is_multiple_of(2) {
        return Err("Invalid save parameters".into());
    }
    for pair in words.chunks_exact(2) {
        match (integer(pair[0]), integer(pair[1])) {
            (Some(seconds @ 1..), Some(changes @ 0..)) => points.push((seconds, changes)),
            _ => return Err("Invalid save parameters".into()),
        }
    }
    Ok(Value::Save(points))
}

/// A decimal integer that may carry a plus or leading zeros.
fn integer(word: &[u8]) -> Option<i64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

pub(super) fn parse_output_limits(words: &[&[u8]], before: Option<Value>) -> Parsed {
    let words = unless_empty(words);
    if !words.len().is_multiple_of(4) {
        return Err("Wrong number of arguments in buffer limit configuration.".into());
    }
    let mut limits = match before {
        Some(Value::OutputLimits(limits)) => limits,
        _ => [OutputLimit::default(); 3],
    };
    for group in words.chunks_exact(4) {
        let class = index_of_word(&["normal", "replica", "pubsub"], group[0])
            .or_else(|| index_of_word(&["normal", "slave", "pubsub"], group[0]))
            .ok_or("Invalid client class specified in buffer limit configuration.")?;
        limits[class] = parse_output_limit(&group[1..])
            .ok_or("Error in hard, soft or soft_seconds setting in buffer limit configuration.")?;
    }
    Ok(Value::OutputLimits(limits))
}

fn parse_output_limit(words: &[&[u8]]) -> Option<OutputLimit> {
    Some(OutputLimit {
        hard_bytes: memory(words[0])?,
        soft_bytes: memory(words[1])?,
        soft_s: u64::try_from(integer(words[2])?).ok()?,
    })
}

/// Replicas go by their old name here, as in Redis.
pub(super) fn format_output_limits(limits: &[OutputLimit; 3]) -> String {
    let of = |class: &str, limit: &OutputLimit| {
        format!("{class} {} {} {}", limit.hard_bytes, limit.soft_bytes, limit.soft_s)
    };
    [of("normal", &limits[0]), of("slave", &limits[1]), of("pubsub", &limits[2])].join(" ")
}

pub(super) fn parse_shutdown_flags(words: &[&[u8]]) -> Parsed {
    const SAVE_AND_NOSAVE: i64 = 0b11;
    let mut bits = 0;
    for word in words {
        bits |= shutdown_bit(word)?;
    }
    if words.is_empty() {
        return Err(super::parsed::one_of(SHUTDOWN_WORDS));
    }
    match bits & SAVE_AND_NOSAVE == SAVE_AND_NOSAVE {
        true => Err("shutdown options SAVE and NOSAVE can't be used simultaneously".into()),
        false => Ok(Value::Number(bits)),
    }
}

pub(super) fn format_shutdown_flags(bits: i64) -> String {
    let set = |index: &usize| bits & (1 << (index - 1)) != 0;
    let words: Vec<&str> = (1..SHUTDOWN_WORDS.len()).filter(set).map(|index| SHUTDOWN_WORDS[index]).collect();
    match words.is_empty() {
        true => SHUTDOWN_WORDS[0].to_owned(),
        false => words.join(" "),
    }
}

pub(super) fn parse_oom_scores(words: &[&[u8]]) -> Parsed {
    let [first, second, third] = words else { return Err("wrong number of arguments".into()) };
    let mut scores = [0; 3];
    for (score, word) in scores.iter_mut().zip([first, second, third]) {
        *score = decimal(word)
            .filter(|score| (-2000..=2000).contains(score))
            .ok_or("Invalid oom-score-adj-values, elements must be between -2000 and 2000.")?;
    }
    Ok(Value::OomScores(scores))
}

pub(super) fn parse_percentiles(words: &[&[u8]]) -> Parsed {
    let mut percentiles = Vec::new();
    for word in unless_empty(words) {
        let percentile =
            value::number::parse_f64(word).ok_or("Invalid latency-tracking-info-percentiles parameters")?;
        if !(0.0..=100.0).contains(&percentile) {
            return Err("latency-tracking-info-percentiles parameters should sit between [0.0,100.0]".into());
        }
        percentiles.push(percentile);
    }
    Ok(Value::Percentiles(percentiles))
}

/// At most six decimals, without trailing zeros.
pub(super) fn format_percentile(percentile: f64) -> String {
    let fixed = format!("{percentile:.6}");
    fixed.trim_end_matches('0').trim_end_matches('.').to_owned()
}

pub(super) fn parse_replica_of(words: &[&[u8]]) -> Parsed {
    let [host, port] = words else { return Err("wrong number of arguments".into()) };
    if host.eq_ignore_ascii_case(b"no") && port.eq_ignore_ascii_case(b"one") {
        return Ok(Value::ReplicaOf(None));
    }
    match decimal(port).and_then(|port| u16::try_from(port).ok()) {
        Some(port) => Ok(Value::ReplicaOf(Some((String::from_utf8_lossy(host).into_owned(), port)))),
        None => Err("Invalid master port".into()),
    }
}
