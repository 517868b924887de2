//! Requests that change nothing.

use super::super::content::{Content, entry, ranked, score_text};
use super::super::expect::Expect;
use super::collections::{parsed, quarters};
use super::{Entry, Model, range};

impl Model {
    /// What a request that only reads must be answered.
    pub(super) fn read(&self, words: &[&str]) -> Expect {
        if let ["MGET", ref keys @ ..] = *words {
            return Expect::Array(keys.iter().map(|key| self.look("MGET", key, &[])).collect());
        }
        let [name, key, ref rest @ ..] = *words else { panic!("the model does not know {words:?}") };
        self.look(name, key, rest)
    }

    fn look(&self, name: &str, key: &str, rest: &[&str]) -> Expect {
        let found = self.entry(key);
        match found.and_then(|entry| entry.expiry) {
            None => of_entry(name, found, rest),
            Some(expiry) => {
                let [before, after] = [found, None].map(|found| Box::new(of_entry(name, found, rest)));
                Expect::Until(expiry, before, after)
            }
        }
    }
}

fn of_entry(name: &str, found: Option<&Entry>, rest: &[&str]) -> Expect {
    match (name, found) {
        ("EXISTS", _) => Expect::Int(i64::from(found.is_some())),
        ("TYPE", _) => Expect::Simple(found.map_or("none", |entry| entry.content.kind())),
        ("PTTL" | "PEXPIRETIME", None) => Expect::Int(-2),
        ("PTTL" | "PEXPIRETIME", Some(Entry { expiry: None, .. })) => Expect::Int(-1),
        ("PTTL", Some(Entry { expiry: Some(expiry), .. })) => Expect::Left(*expiry),
        ("PEXPIRETIME", Some(Entry { expiry: Some(expiry), .. })) => Expect::Moment(*expiry),
        (_, None) => of_nothing(name, rest),
        (_, Some(entry)) => of_content(name, &entry.content, rest),
    }
}

/// What is answered about a key that is not there.
fn of_nothing(name: &str, rest: &[&str]) -> Expect {
    match name {
        "GET" | "MGET" | "HGET" | "LINDEX" | "ZSCORE" | "ZRANK" => Expect::Text(None),
        "GETRANGE" => Expect::text(""),
        "HMGET" => Expect::Array(rest.iter().map(|_| Expect::Text(None)).collect()),
        "SMISMEMBER" => Expect::Array(rest.iter().map(|_| Expect::Int(0)).collect()),
        "STRLEN" | "HLEN" | "HEXISTS" | "LLEN" | "SISMEMBER" | "SCARD" | "ZCARD" | "XLEN" => Expect::Int(0),
        "HGETALL" | "LRANGE" | "SMEMBERS" | "ZRANGE" | "ZRANGEBYSCORE" | "XRANGE" => {
            Expect::Array(Vec::new())
        }
        _ => panic!("the model does not know {name}"),
    }
}

fn of_content(name: &str, content: &Content, rest: &[&str]) -> Expect {
    let flag = |is_there: bool| Expect::Int(i64::from(is_there));
    match (name, content, rest) {
        ("GET" | "MGET", Content::Text(text), []) => Expect::text(text),
        ("MGET", _, []) => Expect::Text(None),
        ("GETRANGE", Content::Text(text), [first, last]) => {
            Expect::text(&text[range(text.len(), first, last)])
        }
        ("STRLEN", Content::Text(_), [])
        | ("HLEN", Content::Hash(_), [])
        | ("LLEN", Content::List(_), [])
        | ("SCARD", Content::Set(_), [])
        | ("ZCARD", Content::Zset(_), [])
        | ("XLEN", Content::Stream(_), []) => Expect::Int(content.len() as i64),
        ("HGETALL", Content::Hash(_), []) | ("SMEMBERS", Content::Set(_), []) => content.whole().remove(0),
        ("HGET", Content::Hash(fields), [field]) => Expect::Text(fields.get(*field).cloned()),
        ("HMGET", Content::Hash(fields), names) => {
            Expect::Array(names.iter().map(|name| Expect::Text(fields.get(*name).cloned())).collect())
        }
        ("HEXISTS", Content::Hash(fields), [field]) => flag(fields.contains_key(*field)),
        ("LRANGE", Content::List(list), [first, last]) => {
            Expect::texts(list.range(range(list.len(), first, last)))
        }
        ("LINDEX", Content::List(list), [at]) => {
            Expect::Text(list.get(at.parse().expect("the load sends numbers")).cloned())
        }
        ("SISMEMBER", Content::Set(members), [member]) => flag(members.contains(*member)),
        ("SMISMEMBER", Content::Set(members), all) => {
            Expect::Array(all.iter().map(|member| flag(members.contains(*member))).collect())
        }
        ("ZRANGE", Content::Zset(scores), [first, last, "WITHSCORES"]) => {
            scored(&ranked(scores)[range(scores.len(), first, last)])
        }
        ("ZRANGEBYSCORE", Content::Zset(scores), [low, high, "WITHSCORES"]) => {
            let wanted = quarters(low)..=quarters(high);
            let some: Vec<_> =
                ranked(scores).into_iter().filter(|(score, _)| wanted.contains(score)).collect();
            scored(&some)
        }
        ("ZSCORE", Content::Zset(scores), [member]) => {
            Expect::Text(scores.get(*member).map(|score| score_text(*score)))
        }
        ("ZRANK", Content::Zset(scores), [member]) => {
            let rank = ranked(scores).iter().position(|(_, other)| other == member);
            rank.map_or(Expect::Text(None), |rank| Expect::Int(rank as i64))
        }
        ("XRANGE", Content::Stream(stream), ["-", "+"]) => {
            Expect::Array(stream.entries.iter().map(entry).collect())
        }
        ("XRANGE", Content::Stream(stream), [first, last]) => {
            Expect::Array(stream.entries.range(parsed(first)..=parsed(last)).map(entry).collect())
        }
        _ => Expect::wrong_type(),
    }
}

fn scored(ranked: &[(i64, &String)]) -> Expect {
    let pairs = ranked
        .iter()
        .flat_map(|(score, member)| [Expect::text(member), Expect::Text(Some(score_text(*score)))]);
    Expect::Array(pairs.collect())
}
