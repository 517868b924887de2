//! The load: what a client asks next, given what its keys hold.
//!
//! A key's number says how large its value becomes, and whether it is *steady*: always a string and always there, so that
//! anybody can hold SCAN against it. A key that expires soon is asked only for what is right before and after its time.

use super::content::Content;
use super::expect::LAG_MS;
use super::model::{Entry, Model};
use std::sync::OnceLock;
use sys::Prng;

/// A key that may expire within this time is about to, milliseconds; no pipeline takes so long.
pub const NEAR_MS: u64 = 40_000;
/// Every so many keys one is steady.
const STEADY_EVERY: usize = 16;
/// Every so many keys one is of some kilobytes.
const MEDIUM_EVERY: usize = 10;
/// Every so many keys one is of 20 to 200 KB, or has thousands of elements.
const LARGE_EVERY: usize = 150;
/// One of so many keys is in use more than others at a time.
const HOT_SHARE: usize = 10;
/// Strings do not grow beyond this, bytes.
const TEXT_BYTES_MAX: usize = 200_000;

pub fn is_steady(number: usize) -> bool {
    number % STEADY_EVERY == 5
}

pub fn is_large(number: usize) -> bool {
    number % LARGE_EVERY == 3
}

macro_rules! words {
    ($($word:expr),+ $(,)?) => { vec![$($word.to_string()),+] };
}

/// One client's load.
#[derive(Debug)]
pub struct Load {
    prng: Prng,
    /// Never the same twice: a lost write cannot hide behind another, and ids grow.
    stamp: u64,
    /// Where the keys begin that are in use more than others.
    hot: usize,
}

impl Load {
    pub fn new(prng: Prng) -> Load {
        Load { prng, stamp: 0, hot: 0 }
    }

    pub fn prng(&mut self) -> &mut Prng {
        &mut self.prng
    }

    /// The first write of a key, or None: one of six keys is not there at first.
    pub fn first(&mut self, model: &Model, number: usize) -> Option<Vec<String>> {
        match () {
            () if is_steady(number) => Some(words!["SET", model.key(number), self.text(number)]),
            () if self.prng.one_in(6) => None,
            () => Some(self.create(model, number)),
        }
    }

    /// The next request, which is sent at that moment. One that may fail is made only if it `may_fail`.
    pub fn next(&mut self, model: &mut Model, now: u64, may_fail: bool) -> Vec<String> {
        let number = self.pick(model);
        let key = model.key(number);
        if is_steady(number) {
            return self.steady(model, &key, number);
        }
        let expiry = model.get(number).and_then(|entry| entry.expiry);
        if expiry.is_some_and(|expiry| expiry.is_surely_over(now)) {
            model.forget(number);
            return words![["EXISTS", "TYPE", "PTTL"][self.below(3)], key];
        }
        match model.get(number) {
            None => self.absent(model, number, may_fail),
            Some(entry) if is_near(entry, now) => self.near(entry, key, number),
            Some(entry) => match self.below(100) {
                0..45 => self.look(entry, key),
                45..75 => self.change(model, number, now),
                75 if may_fail => self.mistake(entry, key),
                _ => self.general(model, number, now),
            },
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.prng.below(bound.max(1) as u64) as usize
    }

    fn fresh(&mut self) -> u64 {
        self.stamp += 1;
        self.stamp
    }

    fn pick(&mut self, model: &Model) -> usize {
        let keys = model.capacity();
        if self.prng.one_in(2) {
            return self.below(keys);
        }
        self.hot += self.below(400) / 399;
        (self.hot + self.below(keys / HOT_SHARE)) % keys
    }

    /// Another key with which requests may do anything, of which this is true.
    fn other(
        &mut self,
        model: &Model,
        not: usize,
        now: u64,
        is_fit: fn(Option<&Content>) -> bool,
    ) -> Option<String> {
        let number = (0..30).map(|_| self.pick(model)).find(|number| {
            let entry = model.get(*number);
            let is_open = entry.is_some_and(|entry| is_near(entry, now));
            *number != not && !is_steady(*number) && !is_open && is_fit(entry.map(|entry| &*entry.content))
        });
        number.map(|number| model.key(number))
    }

    fn text(&mut self, number: usize) -> String {
        let len = match number {
            _ if is_large(number) => 20_000 + self.below(TEXT_BYTES_MAX - 20_000),
            _ if number % MEDIUM_EVERY == 1 => 1000 + self.below(7000),
            _ if self.prng.one_in(8) => return self.below(1_000_000).to_string(),
            _ => 5 + self.below(300),
        };
        self.letters(len)
    }

    /// Letters that begin with what has never been.
    fn letters(&mut self, len: usize) -> String {
        static POOL: OnceLock<String> = OnceLock::new();
        let pool = POOL.get_or_init(|| {
            let mut prng = Prng::from_seed(1);
            (0..2 * TEXT_BYTES_MAX).map(|_| char::from(b'a' + prng.below(26) as u8)).collect()
        });
        let begin = self.below(TEXT_BYTES_MAX);
        format!("{}.{}", self.fresh(), &pool[begin..begin + len])
    }

    /// A short text for an element.
    fn part(&mut self) -> String {
        let len = if self.prng.one_in(50) { 100 } else { 20 };
        let len = self.below(len);
        self.letters(len)
    }

    /// Elements that a collection has at most, about.
    fn cap(number: usize) -> usize {
        match number {
            _ if is_large(number) => 3000,
            _ if number % MEDIUM_EVERY == 1 => 300,
            _ => 15,
        }
    }

    /// The name of a field or member; of some keys all are numbers.
    fn name(&mut self, number: usize) -> String {
        let name = self.below(2 * Load::cap(number));
        if number.is_multiple_of(3) { name.to_string() } else { format!("name-{name}") }
    }

    fn score(&mut self) -> String {
        super::content::score_text(self.below(4000) as i64 - 400)
    }

    /// A write that makes a key where there is none.
    fn create(&mut self, model: &Model, number: usize) -> Vec<String> {
        let key = model.key(number);
        let count = 1 + self.below(Load::cap(number) / 2);
        match self.below(12) {
            0..5 => self.set(key, number),
            5 | 6 => self.grow(words!["HSET", key], number, count),
            7 => self.grow(words!["RPUSH", key], number, count),
            8 => self.grow(words!["SADD", key], number, count),
            9 | 10 => self.grow(words!["ZADD", key], number, count),
            _ => self.entry(key, number),
        }
    }

    /// A write that replaces whatever there was by a string.
    fn set(&mut self, key: String, number: usize) -> Vec<String> {
        let (text, ms) = (self.text(number), self.ttl_ms());
        match self.below(12) {
            0 => words!["SETEX", key, ms.div_ceil(1000), text],
            1 => words!["PSETEX", key, ms, text],
            2 => words!["SET", key, text, "PX", ms],
            3 => words!["SET", key, text, "PXAT", now_ms() + ms],
            _ => words!["SET", key, text],
        }
    }

    fn grow(&mut self, mut words: Vec<String>, number: usize, count: usize) -> Vec<String> {
        for _ in 0..count {
            match &words[0][..] {
                "HSET" => words.extend([self.name(number), self.part()]),
                "ZADD" => words.extend([self.score(), self.name(number)]),
                "SADD" | "SREM" | "HDEL" | "ZREM" => words.push(self.name(number)),
                _ => words.push(self.part()),
            }
        }
        words
    }

    fn entry(&mut self, key: String, number: usize) -> Vec<String> {
        let id = format!("{}-{}", 1000 + self.fresh(), self.below(3));
        let len = self.below(if is_large(number) { 400 } else { 60 });
        let value = self.letters(len);
        if self.prng.one_in(4) {
            return words!["XADD", key, "MAXLEN", "=", Load::cap(number), id, "f", value];
        }
        words!["XADD", key, id, "f", value]
    }

    fn ttl_ms(&mut self) -> u64 {
        self.prng.below(1000)
            + match self.below(10) {
                0..3 => 30,
                3 => 2000,
                4 => 10_000,
                5..7 => 2 * NEAR_MS,
                _ => 100_000_000,
            }
    }

    fn steady(&mut self, model: &Model, key: &str, number: usize) -> Vec<String> {
        let is_long = model.get(number).is_some_and(|entry| entry.content.len() > TEXT_BYTES_MAX / 2);
        let at = self.below(200);
        match self.below(12) {
            0..4 => words!["GET", key],
            4 => words!["GETRANGE", key, at, at + 100],
            5 => words!["STRLEN", key],
            6 if !is_long => words!["APPEND", key, self.part()],
            7 => words!["SETRANGE", key, at, self.part()],
            8 => words!["EXISTS", key],
            9 => words!["GETSET", key, self.text(number)],
            _ => words!["SET", key, self.text(number)],
        }
    }

    fn absent(&mut self, model: &Model, number: usize, may_fail: bool) -> Vec<String> {
        let key = model.key(number);
        match self.below(20) {
            0 => words!["GET", key],
            1 => words!["HGETALL", key],
            2 => words!["TYPE", key],
            3 => words!["DEL", key],
            4 => words!["PERSIST", key],
            5 => words!["LPOP", key, 2],
            6 if may_fail => words!["RENAME", key, model.key(number)],
            7 => words!["INCRBY", key, self.below(1000)],
            8 => words!["SETNX", key, self.text(number)],
            9 => words!["SET", key, self.text(number), "XX"],
            10 => words!["APPEND", key, self.text(number)],
            11 => words!["HINCRBY", key, self.name(number), 7],
            _ => self.create(model, number),
        }
    }

    /// Of a key that is there or not, soon or already.
    fn near(&mut self, entry: &Entry, key: String, number: usize) -> Vec<String> {
        match self.below(12) {
            0 => words![["DEL", "UNLINK"][self.below(2)], key],
            1 => self.set(key, number),
            2 => words!["PEXPIRETIME", key],
            3 => words!["PTTL", key],
            4 => words!["EXISTS", key],
            _ => self.look(entry, key),
        }
    }

    /// A request that reads what is there, whole or in part.
    fn look(&mut self, entry: &Entry, key: String) -> Vec<String> {
        let len = entry.content.len();
        let (first, count) = (self.below(len), self.below(60));
        let number =
            key.rsplit(':').next().and_then(|digits| digits.parse().ok()).expect("keys are numbered");
        let is_whole = self.prng.one_in(if len > 100 { 8 } else { 2 });
        match &*entry.content {
            _ if self.prng.one_in(12) => {
                words![["TYPE", "EXISTS", "PTTL", "PEXPIRETIME"][self.below(4)], key]
            }
            Content::Text(_) => match self.below(6) {
                0 => words!["STRLEN", key],
                1 => words!["GETRANGE", key, first, first + count],
                _ => words!["GET", key],
            },
            Content::Hash(_) if is_whole => words!["HGETALL", key],
            Content::Hash(_) => match self.below(4) {
                0 => words!["HLEN", key],
                1 => words!["HEXISTS", key, self.name(number)],
                2 => words!["HMGET", key, self.name(number), self.name(number)],
                _ => words!["HGET", key, self.name(number)],
            },
            Content::List(_) if is_whole => words!["LRANGE", key, 0, -1],
            Content::List(_) => match self.below(3) {
                0 => words!["LLEN", key],
                1 => words!["LINDEX", key, first],
                _ => words!["LRANGE", key, first, first + count],
            },
            Content::Set(_) if is_whole => words!["SMEMBERS", key],
            Content::Set(_) => match self.below(3) {
                0 => words!["SCARD", key],
                1 => words!["SISMEMBER", key, self.name(number)],
                _ => words!["SMISMEMBER", key, self.name(number), self.name(number)],
            },
            Content::Zset(_) if is_whole => words!["ZRANGE", key, 0, -1, "WITHSCORES"],
            Content::Zset(_) => match self.below(5) {
                0 => words!["ZCARD", key],
                1 => words!["ZSCORE", key, self.name(number)],
                2 => words!["ZRANK", key, self.name(number)],
                3 => words!["ZRANGEBYSCORE", key, 10, 10 + self.below(200), "WITHSCORES"],
                _ => words!["ZRANGE", key, first, first + count, "WITHSCORES"],
            },
            Content::Stream(_) if is_whole => words!["XRANGE", key, "-", "+"],
            Content::Stream(stream) => match stream.entries.keys().nth(first) {
                Some((ms, sequence)) if self.prng.one_in(2) => {
                    words!["XRANGE", key, format!("{ms}-{sequence}"), format!("{}-0", ms + 50)]
                }
                _ => words!["XLEN", key],
            },
        }
    }

    /// A write that its type knows.
    fn change(&mut self, model: &Model, number: usize, now: u64) -> Vec<String> {
        let (key, cap) = (model.key(number), Load::cap(number));
        let content = &*model.get(number).expect("the key is there").content;
        let (len, is_full) = (content.len(), content.len() > cap);
        let count = 1 + self.below(cap / 15);
        let least = if is_full { 5 } else { 0 };
        let choice = least + self.below(9 - least);
        match (content, choice) {
            (Content::Text(text), _) => self.change_text(key, number, text),
            (Content::Hash(_), 0..4) => self.grow(words!["HSET", key], number, count),
            (Content::Hash(_), 4) => {
                words!["HINCRBY", key, format!("count-{}", self.below(9)), self.below(99)]
            }
            (Content::Hash(_), _) => self.grow(words!["HDEL", key], number, 2 * count),
            (Content::List(_), 0..4) => {
                let words = words![["RPUSH", "LPUSH"][self.below(2)], key];
                self.grow(words, number, count)
            }
            (Content::List(_), 4) => words!["LSET", key, self.below(len), self.part()],
            (Content::List(_), 5) => words!["LTRIM", key, self.below(2 * count), -1 - self.below(3) as i64],
            (Content::List(_), 6) => match self.other(model, number, now, is_list) {
                Some(target) => words!["LMOVE", key, target, "LEFT", "RIGHT"],
                None => words!["LREM", key, 0, self.part()],
            },
            (Content::List(_), _) => words![["LPOP", "RPOP"][self.below(2)], key, 1 + self.below(2 * count)],
            (Content::Set(_), 0..5) => self.grow(words!["SADD", key], number, count),
            (Content::Set(_), 5) => match (self.other(model, number, now, is_set), &content) {
                (Some(target), Content::Set(members)) => {
                    let some = members.iter().nth(self.below(len.min(50))).expect("sets have members");
                    words!["SMOVE", key, target, some]
                }
                _ => words!["SCARD", key],
            },
            (Content::Set(_), 6) if cap < 1000 => match self.other(model, number, now, is_set) {
                Some(source) => words!["SUNIONSTORE", key, key, source],
                None => words!["SCARD", key],
            },
            (Content::Set(_), _) => self.grow(words!["SREM", key], number, 2 * count),
            (Content::Zset(_), 0..4) => self.grow(words!["ZADD", key], number, count),
            (Content::Zset(_), 4) => words!["ZINCRBY", key, self.score(), self.name(number)],
            (Content::Zset(_), 5) => words!["ZPOPMIN", key, count],
            (Content::Zset(_), 6) => {
                let first = self.below(len);
                words!["ZREMRANGEBYRANK", key, first, first + count]
            }
            (Content::Zset(_), _) => self.grow(words!["ZREM", key], number, 2 * count),
            (Content::Stream(stream), 5..) if len > 0 => match choice {
                5 | 6 => words!["XTRIM", key, "MAXLEN", "=", self.below(len + 2)],
                _ => {
                    let (ms, sequence) = stream.entries.keys().nth(self.below(len)).expect("one of those");
                    words!["XDEL", key, format!("{ms}-{sequence}"), "1-1"]
                }
            },
            (Content::Stream(_), _) => self.entry(key, number),
        }
    }

    fn change_text(&mut self, key: String, number: usize, text: &str) -> Vec<String> {
        let is_counter = text.len() < 15 && text.parse::<i64>().is_ok();
        let (ms, at) = (self.ttl_ms(), self.below(text.len() + 20));
        match self.below(9) {
            0 | 1 if is_counter => words!["INCRBY", key, self.below(2000) as i64 - 1000],
            0..3 if text.len() < TEXT_BYTES_MAX => words!["APPEND", key, self.part()],
            3 if at < TEXT_BYTES_MAX => words!["SETRANGE", key, at, self.part()],
            4 => words!["GETEX", key, "PX", ms],
            5 => words!["GETEX", key, "PERSIST"],
            6 => words!["SET", key, self.text(number), "KEEPTTL"],
            7 => words!["SET", key, self.text(number), ["NX", "XX"][self.below(2)], "GET"],
            8 if self.prng.one_in(3) => words!["GETDEL", key],
            _ => self.set(key, number),
        }
    }

    /// A request that is answered with an error and changes nothing.
    fn mistake(&mut self, entry: &Entry, key: String) -> Vec<String> {
        match &*entry.content {
            Content::Text(_) => words!["RPUSH", key, "x"],
            Content::Hash(_) => words!["INCRBY", key, 1],
            Content::List(_) => words!["SADD", key, "x"],
            Content::Set(_) => words!["ZADD", key, 1, "x"],
            Content::Zset(_) => words!["HSET", key, "f", "x"],
            Content::Stream(_) => words!["GET", key],
        }
    }

    /// A write that any type knows.
    fn general(&mut self, model: &Model, number: usize, now: u64) -> Vec<String> {
        let (key, ms) = (model.key(number), self.ttl_ms());
        match self.below(16) {
            0 => words!["DEL", key],
            1 => words!["UNLINK", key],
            2 => match self.other(model, number, now, |_| true) {
                Some(other) => words![["DEL", "UNLINK"][self.below(2)], key, other],
                None => words!["DEL", key],
            },
            3 | 4 => words!["RENAME", key, self.target(model, number)],
            5 | 6 => words!["COPY", key, self.target(model, number), "REPLACE"],
            7 => words!["EXPIRE", key, ms.div_ceil(1000)],
            8 => words!["PEXPIRE", key, ms],
            9 => words!["PEXPIREAT", key, now + ms],
            10 if self.prng.one_in(4) => words!["PEXPIREAT", key, now - LAG_MS - 1000],
            11 => words!["PERSIST", key],
            12 => {
                let pairs = (0..2 + self.below(4)).flat_map(|_| {
                    let number = self.pick(model);
                    [model.key(number), self.text(number)]
                });
                words!["MSET"].into_iter().chain(pairs).collect()
            }
            13 => {
                let keys = (0..2 + self.below(8)).map(|_| model.key(self.pick(model)));
                words!["MGET"].into_iter().chain(keys).collect()
            }
            _ => self.set(key, number),
        }
    }

    /// A key that is overwritten whatever it holds.
    fn target(&mut self, model: &Model, not: usize) -> String {
        loop {
            let number = self.pick(model);
            if number != not && !is_steady(number) {
                return model.key(number);
            }
        }
    }
}

/// Whether it is open, or soon will be, whether the key is there.
pub fn is_near(entry: &Entry, now: u64) -> bool {
    entry.expiry.is_some_and(|expiry| !expiry.is_surely_ahead(now + NEAR_MS))
}

fn is_list(content: Option<&Content>) -> bool {
    matches!(content, None | Some(Content::List(_)))
}

fn is_set(content: Option<&Content>) -> bool {
    matches!(content, None | Some(Content::Set(_)))
}

/// The moment, in milliseconds since 1970.
pub fn now_ms() -> u64 {
    sys::clock::Clock::Real.now().0
}
