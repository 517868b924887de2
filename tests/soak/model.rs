//! What one client's keys hold, and what every request of the load makes of them and answers.
//!
//! Keys are numbered; a key's name is the client's and the number. Between `begin` and `commit` the model remembers what the
//! keys it touches held before, so that a pipeline that was not answered can be taken back and executed again bit by bit.
//!
//! A request whose effect depends on whether a key has expired must not be applied while that is open: `requests` sees to it.

mod collections;
mod reads;

use super::content::Content;
use super::expect::{Expect, Expiry};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// A living key.
#[derive(Clone, Debug)]
pub struct Entry {
    pub content: Arc<Content>,
    pub expiry: Option<Expiry>,
}

/// One client's keys.
#[derive(Debug)]
pub struct Model {
    name: String,
    entries: Vec<Option<Entry>>,
    /// What was there before `begin`, of what was touched since; None outside of that.
    before: Option<BTreeMap<usize, Option<Entry>>>,
}

impl Model {
    pub fn new(name: &str, keys: usize) -> Model {
        Model { name: name.to_owned(), entries: vec![None; keys], before: None }
    }

    pub fn key(&self, number: usize) -> String {
        format!("{}:{number}", self.name)
    }

    /// How many keys there may be.
    pub fn capacity(&self) -> usize {
        self.entries.len()
    }

    pub fn get(&self, number: usize) -> Option<&Entry> {
        self.entries[number].as_ref()
    }

    pub fn living(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().flatten()
    }

    /// The key was found to have expired.
    pub fn forget(&mut self, number: usize) {
        self.entries[number] = None;
    }

    /// The key was found to expire at this moment.
    pub fn pin(&mut self, number: usize, moment: u64) {
        if let Some(entry) = &mut self.entries[number] {
            entry.expiry = Some(Expiry::at(moment));
        }
    }

    /// From here on changes can be taken back.
    pub fn begin(&mut self) {
        self.before = Some(BTreeMap::new());
    }

    /// All since `begin` was executed by that moment.
    pub fn commit(&mut self, by: u64) {
        for number in self.before.take().into_iter().flat_map(BTreeMap::into_keys) {
            self.close(number, by);
        }
    }

    /// Takes back what was done since `begin`; the keys that it was done to.
    pub fn take_back(&mut self) -> Vec<usize> {
        let before = self.before.take().unwrap_or_default();
        let touched = before.keys().copied().collect();
        before.into_iter().for_each(|(number, entry)| self.entries[number] = entry);
        touched
    }

    /// The key's expiry, if any, was set by that moment.
    pub fn close(&mut self, number: usize, by: u64) {
        if let Some(Entry { expiry: Some(expiry), .. }) = &mut self.entries[number] {
            expiry.close(by);
        }
    }

    /// Executes a request, sent at that moment; what must be answered.
    pub fn apply(&mut self, request: &[String], sent: u64) -> Expect {
        let words: Vec<&str> = request.iter().map(String::as_str).collect();
        self.keys_written(&words, sent)
            .or_else(|| self.texts_written(&words, sent))
            .or_else(|| self.collections_written(&words))
            .unwrap_or_else(|| self.read(&words))
    }

    fn number(&self, key: &str) -> usize {
        let digits = key.strip_prefix(&self.name).and_then(|rest| rest.strip_prefix(':'));
        digits
            .and_then(|digits| digits.parse().ok())
            .unwrap_or_else(|| panic!("{key} is not of {}", self.name))
    }

    fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries[self.number(key)].as_ref()
    }

    fn entry_mut(&mut self, key: &str) -> &mut Option<Entry> {
        let number = self.number(key);
        if let Some(before) = &mut self.before {
            before.entry(number).or_insert_with(|| self.entries[number].clone());
        }
        &mut self.entries[number]
    }

    fn put(&mut self, key: &str, content: Content, expiry: Option<Expiry>) {
        *self.entry_mut(key) = Some(Entry { content: Arc::new(content), expiry });
    }

    /// Removes a key; whether it was there.
    fn remove(&mut self, key: &str) -> bool {
        self.entry_mut(key).take().is_some()
    }

    /// Changes what is at a key, which `empty` is put at before if there is nothing; without that, `missing` is the answer. The
    /// change answers None if the key holds another type.
    fn edit(
        &mut self,
        key: &str,
        empty: Option<Content>,
        missing: Expect,
        change: impl FnOnce(&mut Content) -> Option<Expect>,
    ) -> Expect {
        let slot = self.entry_mut(key);
        if slot.is_none() {
            let Some(empty) = empty else { return missing };
            *slot = Some(Entry { content: Arc::new(empty), expiry: None });
        }
        let entry = slot.as_mut().expect("it was put there");
        let answer = change(Arc::make_mut(&mut entry.content)).unwrap_or_else(Expect::wrong_type);
        if entry.content.is_gone() {
            *slot = None;
        }
        answer
    }

    fn keys_written(&mut self, words: &[&str], sent: u64) -> Option<Expect> {
        Some(match *words {
            // One key may be about to expire, and then either answer is right.
            ["DEL" | "UNLINK", key] => {
                let expiry = self.entry(key).and_then(|entry| entry.expiry);
                let there = Expect::Int(i64::from(self.remove(key)));
                match expiry {
                    Some(expiry) => Expect::Until(expiry, Box::new(there), Box::new(Expect::Int(0))),
                    None => there,
                }
            }
            ["DEL" | "UNLINK", ref keys @ ..] => {
                Expect::Int(keys.iter().filter(|key| self.remove(key)).count() as i64)
            }
            ["RENAME", source, target] => match self.entry_mut(source).take() {
                None => Expect::Error("ERR no such key"),
                moved => {
                    *self.entry_mut(target) = moved;
                    Expect::ok()
                }
            },
            ["COPY", source, target, "REPLACE"] => match self.entry(source).cloned() {
                None => Expect::Int(0),
                copied => {
                    *self.entry_mut(target) = copied;
                    Expect::Int(1)
                }
            },
            ["EXPIRE", key, seconds] => self.expire(key, Expiry::after(number(seconds) * 1000, sent)),
            ["PEXPIRE", key, ms] => self.expire(key, Expiry::after(number(ms), sent)),
            ["PEXPIREAT", key, moment] if number(moment) <= sent => Expect::Int(i64::from(self.remove(key))),
            ["PEXPIREAT", key, moment] => self.expire(key, Expiry::at(number(moment))),
            ["PERSIST", key] => {
                let expiry = self.entry_mut(key).as_mut().and_then(|entry| entry.expiry.take());
                Expect::Int(i64::from(expiry.is_some()))
            }
            _ => return None,
        })
    }

    fn expire(&mut self, key: &str, expiry: Expiry) -> Expect {
        let entry = self.entry_mut(key).as_mut();
        Expect::Int(i64::from(entry.map(|entry| entry.expiry = Some(expiry)).is_some()))
    }

    fn texts_written(&mut self, words: &[&str], sent: u64) -> Option<Expect> {
        let text = |value: &str| Content::Text(value.to_owned());
        Some(match *words {
            ["SET", key, value, ref options @ ..] => return Some(self.set(key, value, options, sent)),
            ["SETEX", key, seconds, value] => {
                self.put(key, text(value), Some(Expiry::after(number(seconds) * 1000, sent)));
                Expect::ok()
            }
            ["PSETEX", key, ms, value] => {
                self.put(key, text(value), Some(Expiry::after(number(ms), sent)));
                Expect::ok()
            }
            ["MSET", ref pairs @ ..] => {
                pairs.chunks(2).for_each(|pair| self.put(pair[0], text(pair[1]), None));
                Expect::ok()
            }
            ["SETNX", key, value] => {
                let is_new = self.entry(key).is_none();
                if is_new {
                    self.put(key, text(value), None);
                }
                Expect::Int(i64::from(is_new))
            }
            ["GETSET", key, value] => return Some(self.set(key, value, &["GET"], sent)),
            ["GETDEL", key] => {
                let shown = self.read(&["GET", key]);
                if !matches!(shown, Expect::Error(_)) {
                    self.remove(key);
                }
                shown
            }
            ["GETEX", key, ref options @ ..] => {
                let shown = self.read(&["GET", key]);
                if let Some(entry) = self.entry_mut(key).as_mut().filter(|entry| is_text(entry)) {
                    entry.expiry = match *options {
                        ["PX", ms] => Some(Expiry::after(number(ms), sent)),
                        ["PXAT", moment] => Some(Expiry::at(number(moment))),
                        ["PERSIST"] => None,
                        _ => panic!("the model does not know {words:?}"),
                    };
                }
                shown
            }
            ["APPEND", key, more] => self.edit_text(key, |text| {
                text.push_str(more);
                Expect::Int(text.len() as i64)
            }),
            ["SETRANGE", key, offset, part] => self.edit_text(key, |text| {
                let begin = number(offset) as usize;
                let end = begin + part.len();
                while text.len() < end {
                    text.push('\0');
                }
                text.replace_range(begin..end, part);
                Expect::Int(text.len() as i64)
            }),
            ["INCRBY", key, by] => self.edit_text(key, |text| {
                let old = if text.is_empty() { Ok(0) } else { text.parse::<i64>() };
                let Ok(old) = old else { return Expect::Error("ERR value is not an integer") };
                let new = old + by.parse::<i64>().expect("the load sends numbers");
                *text = new.to_string();
                Expect::Int(new)
            }),
            _ => return None,
        })
    }

    fn edit_text(&mut self, key: &str, change: impl FnOnce(&mut String) -> Expect) -> Expect {
        let empty = Some(Content::Text(String::new()));
        self.edit(key, empty, Expect::Text(None), |content| match content {
            Content::Text(text) => Some(change(text)),
            _ => None,
        })
    }

    fn set(&mut self, key: &str, value: &str, options: &[&str], sent: u64) -> Expect {
        let old = self.entry(key).cloned();
        let (mut expiry, mut answer, mut is_refused) = (None, Expect::ok(), false);
        let mut rest = options;
        while let [option, after @ ..] = rest {
            rest = after;
            match *option {
                "NX" => is_refused = old.is_some(),
                "XX" => is_refused = old.is_none(),
                "KEEPTTL" => expiry = old.as_ref().and_then(|entry| entry.expiry),
                "GET" if old.as_ref().is_some_and(|entry| !is_text(entry)) => return Expect::wrong_type(),
                "GET" => answer = self.read(&["GET", key]),
                "PX" => expiry = Some(Expiry::after(number(rest[0]), sent)),
                "PXAT" => expiry = Some(Expiry::at(number(rest[0]))),
                _ => panic!("the model does not know SET's {options:?}"),
            }
            if option.starts_with("PX") {
                rest = &rest[1..];
            }
        }
        if is_refused {
            return if options.contains(&"GET") { answer } else { Expect::Text(None) };
        }
        self.put(key, Content::Text(value.to_owned()), expiry);
        answer
    }
}

fn is_text(entry: &Entry) -> bool {
    matches!(*entry.content, Content::Text(_))
}

fn number(digits: &str) -> u64 {
    digits.parse().unwrap_or_else(|_| panic!("the load sends numbers, and not {digits}"))
}

/// Positions of a list of that length between two, both included; negative ones count from its end.
fn range(len: usize, first: &str, last: &str) -> Range<usize> {
    let place = |digits: &str| {
        let at: i64 = digits.parse().expect("the load sends numbers");
        if at < 0 { at + len as i64 } else { at }
    };
    let (first, last) = (place(first).max(0), place(last).min(len as i64 - 1));
    if first > last { 0..0 } else { first as usize..last as usize + 1 }
}
