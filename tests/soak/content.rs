//! The values of the model: every type in its plainest form, with what a reader must be shown of it.

use super::expect::Expect;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The id of a stream's entry.
pub type Id = (u64, u64);

/// What is at a key.
#[derive(Clone, Debug)]
pub enum Content {
    Text(String),
    Hash(BTreeMap<String, String>),
    List(VecDeque<String>),
    Set(BTreeSet<String>),
    /// Scores in quarters, which are exact in binary and in decimal digits.
    Zset(BTreeMap<String, i64>),
    Stream(Stream),
}

/// A stream; each entry has one field, `f`.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    pub entries: BTreeMap<Id, String>,
    pub last: Id,
    pub added: i64,
}

impl Content {
    /// What TYPE answers.
    pub fn kind(&self) -> &'static str {
        match self {
            Content::Text(_) => "string",
            Content::Hash(_) => "hash",
            Content::List(_) => "list",
            Content::Set(_) => "set",
            Content::Zset(_) => "zset",
            Content::Stream(_) => "stream",
        }
    }

    /// Elements; a string's bytes.
    pub fn len(&self) -> usize {
        match self {
            Content::Text(text) => text.len(),
            Content::Hash(fields) => fields.len(),
            Content::List(elements) => elements.len(),
            Content::Set(members) => members.len(),
            Content::Zset(scores) => scores.len(),
            Content::Stream(stream) => stream.entries.len(),
        }
    }

    /// Whether the key goes with its last element.
    pub fn is_gone(&self) -> bool {
        self.len() == 0 && !matches!(self, Content::Text(_) | Content::Stream(_))
    }

    /// What must come to the requests of [`whole`], in their order.
    pub fn whole(&self) -> Vec<Expect> {
        match self {
            Content::Text(text) => vec![Expect::text(text)],
            Content::Hash(fields) => vec![Expect::Pairs(fields.clone().into_iter().collect())],
            Content::List(elements) => vec![Expect::texts(elements.iter())],
            Content::Set(members) => vec![Expect::Members(members.iter().cloned().collect())],
            Content::Zset(scores) => {
                let pairs = ranked(scores).into_iter().flat_map(|(score, member)| {
                    [Expect::text(member), Expect::Text(Some(score_text(score)))]
                });
                vec![Expect::Array(pairs.collect())]
            }
            Content::Stream(stream) => {
                let field = |name, value| Expect::Field(name, Box::new(value));
                vec![
                    Expect::Array(stream.entries.iter().map(entry).collect()),
                    field("length", Expect::Int(stream.entries.len() as i64)),
                    field("last-generated-id", Expect::Text(Some(id_text(stream.last)))),
                    field("entries-added", Expect::Int(stream.added)),
                ]
            }
        }
    }
}

/// The requests that show all of a key of the kind that TYPE said; none if there is no such key.
pub fn whole(kind: &str, key: &str) -> Vec<Vec<String>> {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    match kind {
        "string" => vec![words(&["GET", key])],
        "hash" => vec![words(&["HGETALL", key])],
        "list" => vec![words(&["LRANGE", key, "0", "-1"])],
        "set" => vec![words(&["SMEMBERS", key])],
        "zset" => vec![words(&["ZRANGE", key, "0", "-1", "WITHSCORES"])],
        "stream" => {
            let about = words(&["XINFO", "STREAM", key]);
            vec![words(&["XRANGE", key, "-", "+"]), about.clone(), about.clone(), about]
        }
        _ => Vec::new(),
    }
}

/// Scores and members in the order of the sorted set.
pub fn ranked(scores: &BTreeMap<String, i64>) -> Vec<(i64, &String)> {
    let mut all: Vec<(i64, &String)> = scores.iter().map(|(member, score)| (*score, member)).collect();
    all.sort_unstable();
    all
}

/// A score as the server writes it.
pub fn score_text(quarters: i64) -> String {
    (quarters as f64 / 4.0).to_string()
}

pub fn id_text(id: Id) -> String {
    format!("{}-{}", id.0, id.1)
}

/// An entry as XRANGE shows it.
pub fn entry((id, value): (&Id, &String)) -> Expect {
    Expect::Array(vec![
        Expect::Text(Some(id_text(*id))),
        Expect::Array(vec![Expect::text("f"), Expect::text(value)]),
    ])
}
