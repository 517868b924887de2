//! What one client's keys hold: a very small model of the commands that the load sends, and the same read from a server.
//!
//! Part of the ledger; one owner, no server but in `read`.
//!
//! 1. A key's name says its kind: `c3:hash:0` is client 3's first hash. Keys of one kind are never used as another.
//! 2. Of keys that all clients write, a state holds what this client put there: its elements of the list, its field of
//!    the hash. What it added to counters is kept apart, since a counter does not show who added.
//! 3. The state before a crash may know less than the one after: which member an unanswered SPOP took, and the exact
//!    moment at which a key expires. `admits` allows for these and for nothing else.

use super::{Unit, now_ms};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::ops::RangeInclusive;
use testkit::Client;
use wire::Value;

/// The kinds of keys that each client has.
pub const KINDS: &[&str] = &["text", "count", "list", "hash", "set", "zset", "stream"];
/// Keys of each kind that a client has.
pub const KEYS_PER_KIND: usize = 2;
/// Counters that all clients add to.
pub const COUNTERS: &[&str] = &["shared:counter:0", "shared:counter:1"];
/// A list to which all clients push elements that begin with their names.
pub const LIST: &str = "shared:list";
/// A hash in which each client has a field of its name.
pub const FIELDS: &str = "shared:hash";

/// How much a server's clock, which it may read once for several requests, may lag behind ours, milliseconds.
const CLOCK_LAG_MS: u64 = 50;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Content {
    Text(String),
    List(Vec<String>),
    /// Of hashes, sorted sets (scores), streams (by id) and sets (empty).
    Fields(BTreeMap<String, String>),
}

#[derive(Clone, Debug)]
struct Entry {
    content: Content,
    /// When it expires, in milliseconds since 1970.
    expires_at: Option<RangeInclusive<u64>>,
    /// Members that SPOP took without saying which.
    popped: usize,
}

impl Entry {
    fn new(content: Content) -> Entry {
        Entry { content, expires_at: None, popped: 0 }
    }

    /// Whether a crash may have made `found` of it.
    fn admits(&self, found: &Entry) -> bool {
        let is_due = match (&self.expires_at, &found.expires_at) {
            (Some(range), Some(at)) => range.contains(at.start()),
            (None, None) => true,
            _ => false,
        };
        let is_same = match (&self.content, &found.content) {
            (Content::Fields(fields), Content::Fields(found)) if self.popped > 0 => {
                let is_subset = found.iter().all(|(name, text)| fields.get(name) == Some(text));
                is_subset && found.len() + self.popped == fields.len()
            }
            (content, found) => content == found,
        };
        is_due && is_same
    }
}

/// What one client's keys hold.
#[derive(Clone, Debug, Default)]
pub struct State {
    entries: BTreeMap<String, Entry>,
    /// What was added to shared counters since the last audit.
    pub added: BTreeMap<String, i64>,
}

impl State {
    /// What a server has for a client.
    pub fn read(client: &mut Client, name: &str) -> State {
        let own = KINDS.iter().flat_map(|kind| (0..KEYS_PER_KIND).map(move |n| format!("{name}:{kind}:{n}")));
        let keys = own.chain([format!("{name}:seq"), LIST.to_owned(), FIELDS.to_owned()]);
        let mut entries = BTreeMap::new();
        for key in keys {
            if let Some(content) = content(client, &key, name) {
                let moment = client.call(&["PEXPIRETIME", &key]).expect("a server that is up");
                let expires_at = match moment {
                    Value::Int(at) if at >= 0 => Some(at as u64..=at as u64),
                    _ => None,
                };
                entries.insert(key, Entry { content, expires_at, popped: 0 });
            }
        }
        State { entries, added: BTreeMap::new() }
    }

    /// Executes a unit, whose replies are there or not.
    pub fn apply(&mut self, unit: &Unit, replies: Option<&[Value]>) {
        for (at, write) in unit.writes.iter().enumerate() {
            let words: Vec<&str> = write.iter().map(String::as_str).collect();
            self.write(&words, replies.map(|replies| &replies[at]), unit.sent_ms);
        }
    }

    /// Whether a crash may have made `found` of it.
    pub fn admits(&self, found: &State) -> bool {
        self.entries.len() == found.entries.len()
            && self
                .entries
                .iter()
                .zip(&found.entries)
                .all(|((key, entry), (found_key, found))| key == found_key && entry.admits(found))
    }

    /// The key was deleted for all clients.
    pub fn forget(&mut self, key: &str) {
        self.entries.remove(key);
    }

    fn write(&mut self, words: &[&str], reply: Option<&Value>, sent_ms: u64) {
        match *words {
            ["SET", key, text] => {
                self.entries.insert(key.to_owned(), Entry::new(Content::Text(text.to_owned())));
            }
            ["INCR", key] if COUNTERS.contains(&key) => *self.added.entry(key.to_owned()).or_default() += 1,
            ["INCR", key] => self.increment(key),
            ["LPUSH", key, element] => match self.content(key, || Content::List(Vec::new())) {
                Content::List(elements) => elements.insert(0, element.to_owned()),
                other => panic!("{key} is no list: {other:?}"),
            },
            ["HSET", key, name, text] | ["ZADD", key, text, name] | ["XADD", key, name, "f", text] => {
                self.fields(key).insert(name.to_owned(), text.to_owned());
            }
            ["SADD", key, member] => {
                self.fields(key).insert(member.to_owned(), String::new());
            }
            ["SPOP", key] => self.pop(key, reply),
            ["EXPIRE", key, seconds] => {
                if let Some(entry) = self.entries.get_mut(key) {
                    let ttl_ms = seconds.parse::<u64>().expect("the load sends numbers") * 1000;
                    entry.expires_at = Some(sent_ms + ttl_ms - CLOCK_LAG_MS..=now_ms() + ttl_ms);
                }
            }
            ["DEL", key] => {
                self.entries.remove(key);
            }
            _ => panic!("the model does not know {words:?}"),
        }
    }

    fn increment(&mut self, key: &str) {
        match self.content(key, || Content::Text("0".to_owned())) {
            Content::Text(text) => {
                *text = (text.parse::<i64>().expect("counters hold numbers") + 1).to_string();
            }
            other => panic!("{key} is no counter: {other:?}"),
        }
    }

    fn pop(&mut self, key: &str, reply: Option<&Value>) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let Content::Fields(members) = &mut entry.content else { panic!("{key} is no set") };
        match reply {
            Some(Value::Bulk(member)) => {
                members.remove(&String::from_utf8_lossy(member).into_owned());
            }
            Some(other) => panic!("SPOP {key} was answered with {other:?}, and there are {members:?}"),
            None => entry.popped += 1,
        }
        if members.len() == entry.popped {
            self.entries.remove(key);
        }
    }

    fn content(&mut self, key: &str, empty: fn() -> Content) -> &mut Content {
        &mut self.entries.entry(key.to_owned()).or_insert_with(|| Entry::new(empty())).content
    }

    fn fields(&mut self, key: &str) -> &mut BTreeMap<String, String> {
        match self.content(key, || Content::Fields(BTreeMap::new())) {
            Content::Fields(fields) => fields,
            other => panic!("{key} has no fields: {other:?}"),
        }
    }
}

/// What a server has at `key` of the client `name`.
fn content(client: &mut Client, key: &str, name: &str) -> Option<Content> {
    let mut ask = |request: &[&str]| texts(client.call(request).expect("a server that is up"));
    let kind = key.split(':').nth(1).expect("keys have parts");
    let fields = |texts: Vec<String>| {
        let pairs = texts.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone()));
        Some(Content::Fields(pairs.collect())).filter(|_| !texts.is_empty())
    };
    match kind {
        "text" | "count" | "seq" => ask(&["GET", key]).pop().map(Content::Text),
        "list" => {
            let mut elements = ask(&["LRANGE", key, "0", "-1"]);
            if key == LIST {
                elements.retain(|element| element.split(':').next() == Some(name));
            }
            Some(Content::List(elements)).filter(|content| *content != Content::List(Vec::new()))
        }
        "hash" if key == FIELDS => {
            let text = ask(&["HGET", key, name]);
            fields(text.into_iter().flat_map(|text| [name.to_owned(), text]).collect())
        }
        "hash" => fields(ask(&["HGETALL", key])),
        "set" => fields(ask(&["SMEMBERS", key]).into_iter().flat_map(|name| [name, String::new()]).collect()),
        "zset" => fields(ask(&["ZRANGE", key, "0", "-1", "WITHSCORES"])),
        // Each entry is an id and one field with its value.
        "stream" => {
            let flat = ask(&["XRANGE", key, "-", "+"]);
            fields(flat.chunks_exact(3).flat_map(|entry| [entry[0].clone(), entry[2].clone()]).collect())
        }
        other => panic!("{key}: there are no keys of the kind {other}"),
    }
}

/// The number at `key`; 0 if there is none.
pub fn number(client: &mut Client, key: &str) -> i64 {
    let found = texts(client.call(&["GET", key]).expect("a server that is up")).pop();
    found.map_or(0, |text| text.parse().expect("counters hold numbers"))
}

/// All texts of a reply, nested or not, in their order.
fn texts(reply: Value) -> Vec<String> {
    match reply {
        Value::Null | Value::NullArray => Vec::new(),
        Value::Bulk(text) => vec![String::from_utf8_lossy(&text).into_owned()],
        Value::Array(replies) => replies.into_iter().flat_map(texts).collect(),
        other => panic!("a reply to no question of ours: {other:?}"),
    }
}

/// The keys in which two states differ, for a complaint.
pub fn show(title: &str, expected: &State, found: &State) -> String {
    /// Letters of one side.
    const LENGTH_MAX: usize = 400;
    let keys: BTreeSet<&String> = expected.entries.keys().chain(found.entries.keys()).collect();
    let mut text = format!("  {title}:\n");
    for key in keys {
        let sides = [expected, found].map(|state| state.entries.get(key));
        let is_same = match sides {
            [Some(expected), Some(found)] => expected.admits(found),
            _ => false,
        };
        if !is_same {
            let [expected, found] = sides.map(|entry| match entry {
                None => "nothing".to_owned(),
                Some(entry) => format!("{entry:?}").chars().take(LENGTH_MAX).collect(),
            });
            let _ = writeln!(text, "    {key}: {expected}\n      there is: {found}");
        }
    }
    text
}
