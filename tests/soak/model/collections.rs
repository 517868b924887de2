//! Requests that change collections.

use super::super::content::{Content, Id, Stream, ranked, score_text};
use super::super::expect::Expect;
use super::{Model, number, range};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

macro_rules! edits {
    ($($name:ident: $variant:ident($type:ty);)*) => {
        $(fn $name(
            model: &mut Model,
            key: &str,
            missing: Option<Expect>,
            change: impl FnOnce(&mut $type) -> Expect,
        ) -> Expect {
            let empty = missing.is_none().then(|| Content::$variant(<$type>::default()));
            model.edit(key, empty, missing.unwrap_or(Expect::Int(0)), |content| match content {
                Content::$variant(content) => Some(change(content)),
                _ => None,
            })
        })*
    };
}

// Each changes what is at a key; without an answer for a key that is missing, it makes one.
edits! {
    hash: Hash(BTreeMap<String, String>);
    list: List(VecDeque<String>);
    set: Set(BTreeSet<String>);
    zset: Zset(BTreeMap<String, i64>);
    stream: Stream(Stream);
}

impl Model {
    pub(super) fn collections_written(&mut self, words: &[&str]) -> Option<Expect> {
        let [name, key, ref rest @ ..] = *words else { return None };
        match name.as_bytes()[0] {
            b'H' => self.hash_written(name, key, rest),
            b'L' | b'R' => self.list_written(name, key, rest),
            b'S' => self.set_written(name, key, rest),
            b'Z' => self.zset_written(name, key, rest),
            b'X' => self.stream_written(name, key, rest),
            _ => None,
        }
    }

    fn hash_written(&mut self, name: &str, key: &str, rest: &[&str]) -> Option<Expect> {
        Some(match (name, rest) {
            ("HSET", pairs) => hash(self, key, None, |fields| {
                let added =
                    pairs.chunks(2).filter(|pair| fields.insert(owned(pair[0]), owned(pair[1])).is_none());
                Expect::Int(added.count() as i64)
            }),
            ("HDEL", names) => hash(self, key, Some(Expect::Int(0)), |fields| {
                Expect::Int(names.iter().filter(|name| fields.remove(**name).is_some()).count() as i64)
            }),
            ("HINCRBY", [field, by]) => hash(self, key, None, |fields| {
                let Ok(old) = fields.get(*field).map_or(Ok(0), |value| value.parse::<i64>()) else {
                    return Expect::Error("ERR hash value is not an integer");
                };
                let new = old + by.parse::<i64>().expect("the load sends numbers");
                fields.insert(owned(field), new.to_string());
                Expect::Int(new)
            }),
            _ => return None,
        })
    }

    fn list_written(&mut self, name: &str, key: &str, rest: &[&str]) -> Option<Expect> {
        Some(match (name, rest) {
            ("RPUSH" | "LPUSH", elements) => list(self, key, None, |list| {
                for element in elements {
                    if name == "RPUSH" {
                        list.push_back(owned(element))
                    } else {
                        list.push_front(owned(element))
                    }
                }
                Expect::Int(list.len() as i64)
            }),
            ("RPOP" | "LPOP", [count]) => list(self, key, Some(Expect::Text(None)), |list| {
                let count = (number(count) as usize).min(list.len());
                let pop = |_| if name == "RPOP" { list.pop_back() } else { list.pop_front() };
                Expect::Array((0..count).map(pop).map(Expect::Text).collect())
            }),
            ("LSET", [at, element]) => {
                let missing = Expect::Error("ERR no such key");
                list(self, key, Some(missing), |list| match list.get_mut(number(at) as usize) {
                    Some(old) => {
                        *old = owned(element);
                        Expect::ok()
                    }
                    None => Expect::Error("ERR index out of range"),
                })
            }
            ("LTRIM", [first, last]) => list(self, key, Some(Expect::ok()), |list| {
                let kept = range(list.len(), first, last);
                list.truncate(kept.end);
                list.drain(..kept.start);
                Expect::ok()
            }),
            ("LREM", ["0", element]) => list(self, key, Some(Expect::Int(0)), |list| {
                let before = list.len();
                list.retain(|other| other != element);
                Expect::Int((before - list.len()) as i64)
            }),
            ("LMOVE", [target, "LEFT", "RIGHT"]) => {
                let mut moved = None;
                let answer = list(self, key, Some(Expect::Text(None)), |list| {
                    moved = list.pop_front();
                    Expect::Text(moved.clone())
                });
                if let Some(moved) = moved {
                    list(self, target, None, |list| {
                        list.push_back(moved);
                        Expect::ok()
                    });
                }
                answer
            }
            _ => return None,
        })
    }

    fn set_written(&mut self, name: &str, key: &str, rest: &[&str]) -> Option<Expect> {
        Some(match (name, rest) {
            ("SADD", members) => set(self, key, None, |set| {
                Expect::Int(members.iter().filter(|member| set.insert(owned(member))).count() as i64)
            }),
            ("SREM", members) => set(self, key, Some(Expect::Int(0)), |set| {
                Expect::Int(members.iter().filter(|member| set.remove(**member)).count() as i64)
            }),
            ("SMOVE", [target, member]) => {
                let mut is_there = false;
                let answer = set(self, key, Some(Expect::Int(0)), |set| {
                    is_there = set.remove(*member);
                    Expect::Int(i64::from(is_there))
                });
                if is_there {
                    set(self, target, None, |set| Expect::Int(i64::from(set.insert(owned(member)))));
                }
                answer
            }
            ("SUNIONSTORE", sources) => {
                let mut union = BTreeSet::new();
                for source in sources {
                    match self.entry(source).map(|entry| &*entry.content) {
                        None => {}
                        Some(Content::Set(members)) => union.extend(members.iter().cloned()),
                        Some(_) => return Some(Expect::wrong_type()),
                    }
                }
                let count = union.len();
                if count == 0 {
                    self.remove(key);
                } else {
                    self.put(key, Content::Set(union), None);
                }
                Expect::Int(count as i64)
            }
            _ => return None,
        })
    }

    fn zset_written(&mut self, name: &str, key: &str, rest: &[&str]) -> Option<Expect> {
        Some(match (name, rest) {
            ("ZADD", pairs) => zset(self, key, None, |scores| {
                let is_new = |pair: &&[&str]| scores.insert(owned(pair[1]), quarters(pair[0])).is_none();
                Expect::Int(pairs.chunks(2).filter(is_new).count() as i64)
            }),
            ("ZREM", members) => zset(self, key, Some(Expect::Int(0)), |scores| {
                Expect::Int(members.iter().filter(|member| scores.remove(**member).is_some()).count() as i64)
            }),
            ("ZINCRBY", [by, member]) => zset(self, key, None, |scores| {
                let score = scores.entry(owned(member)).or_default();
                *score += quarters(by);
                Expect::Text(Some(score_text(*score)))
            }),
            ("ZPOPMIN", [count]) => zset(self, key, Some(Expect::Array(Vec::new())), |scores| {
                let least: Vec<(i64, String)> = ranked(scores)
                    .into_iter()
                    .take(number(count) as usize)
                    .map(|(score, member)| (score, member.clone()))
                    .collect();
                let pairs = least.into_iter().flat_map(|(score, member)| {
                    scores.remove(&member);
                    [Expect::Text(Some(member)), Expect::Text(Some(score_text(score)))]
                });
                Expect::Array(pairs.collect())
            }),
            ("ZREMRANGEBYRANK", [first, last]) => zset(self, key, Some(Expect::Int(0)), |scores| {
                let gone = range(scores.len(), first, last);
                let gone: BTreeSet<String> =
                    ranked(scores)[gone].iter().map(|(_, member)| (*member).clone()).collect();
                scores.retain(|member, _| !gone.contains(member));
                Expect::Int(gone.len() as i64)
            }),
            _ => return None,
        })
    }

    fn stream_written(&mut self, name: &str, key: &str, rest: &[&str]) -> Option<Expect> {
        Some(match (name, rest) {
            ("XADD", [options @ .., id, "f", value]) => stream(self, key, None, |stream| {
                stream.last = parsed(id);
                stream.added += 1;
                stream.entries.insert(stream.last, owned(value));
                if let ["MAXLEN", "=", count] = options {
                    trim(stream, count);
                }
                Expect::Text(Some((*id).to_owned()))
            }),
            ("XDEL", ids) => stream(self, key, Some(Expect::Int(0)), |stream| {
                Expect::Int(
                    ids.iter().filter(|id| stream.entries.remove(&parsed(id)).is_some()).count() as i64
                )
            }),
            ("XTRIM", ["MAXLEN", "=", count]) => {
                stream(self, key, Some(Expect::Int(0)), |stream| Expect::Int(trim(stream, count)))
            }
            _ => return None,
        })
    }
}

/// Leaves so many entries; how many went.
fn trim(stream: &mut Stream, count: &str) -> i64 {
    let before = stream.entries.len();
    while stream.entries.len() > number(count) as usize {
        stream.entries.pop_first();
    }
    (before - stream.entries.len()) as i64
}

/// The id in a text.
pub(super) fn parsed(id: &str) -> Id {
    let (ms, sequence) = id.split_once('-').expect("ids have two parts");
    (number(ms), number(sequence))
}

/// The score in a text.
pub(super) fn quarters(score: &str) -> i64 {
    (score.parse::<f64>().expect("the load sends numbers") * 4.0) as i64
}

fn owned(word: &str) -> String {
    word.to_owned()
}
