//! Schedules: turns of a few clients, of which most wait for keys, and all make keys
//! ready for one another. In some schedules every wait lasts until it is ended, in the
//! others every wait is short.
//!
//! Invariants:
//! 1. The first client never waits, so that somebody can always go on.
//! 2. Ids of entries and all else that a reply shows follow from the requests alone.

use super::{Request, Step, words};
use crate::spec::Spec;
use crate::values::pick;
use sys::Prng;

/// Clients of a schedule at most.
pub const SEATS: usize = 5;
/// Turns of a schedule.
const TURNS: u64 = 80;
/// The word that stands for a client that leaves.
const LEAVES: &[u8] = b"(leaves)";

/// A wait that nobody needs to end, in seconds and in milliseconds.
const SHORT: &str = "0.003";
const SHORT_MS: &str = "3";

/// Keys that results are stored at. They hold no other type: real servers do not look after those who wait for a key
/// whose value of another type is replaced by a result. Who waits for two keys names them first: where the first of two
/// has changed its type, Redis 7.0 serves from the other and 7.2 errs.
const LIST_RESULT: &str = "d";
const SORTED_SET_RESULT: &str = "w";
const LISTS: &[&str] = &["a", "b", "c", LIST_RESULT];
const SORTED_SETS: &[&str] = &["y", "z", SORTED_SET_RESULT];
const STREAMS: &[&str] = &["s", "t"];
const KEYS: &[&str] = &["a", "b", "c", "y", "z", "s"];

/// A list of x, y and z as Redis 7.0 dumps it.
const LIST_DUMP: &[u8] =
    b"\x12\x01\x02\x10\x10\x00\x00\x00\x03\x00\x81\x78\x02\x81\x79\x02\x81\x7a\x02\xff\x0a\x00\xe1\x73\x33\x63\x78\x6c\x71\x1b";

/// Whether a request has a wait in it that ends on its own.
pub fn waits_shortly(request: &Request) -> bool {
    let name = request.first().map(|word| word.to_ascii_lowercase()).unwrap_or_default();
    let is_short = |word: Option<&Vec<u8>>| word.is_some_and(|word| word == SHORT.as_bytes());
    match name.as_slice() {
        b"blmpop" | b"bzmpop" => is_short(request.get(1)),
        b"xread" | b"xreadgroup" => request.iter().any(|word| word == SHORT_MS.as_bytes()),
        _ => name.starts_with(b"b") && is_short(request.last()),
    }
}

/// Whether a step means that its client disconnects.
pub fn leaves(request: &Request) -> bool {
    request.first().is_some_and(|word| word == LEAVES)
}

/// Whether a request is about a key of its client alone.
pub fn is_private(request: &Request) -> bool {
    request.get(1).is_some_and(|key| matches!(key.as_slice(), [b'q', b'0'..=b'9']))
}

/// The schedule of a seed, of commands that are among `specs`.
pub fn generate(specs: &[Spec], seed: u64) -> Vec<Step> {
    let names = specs.iter().map(|spec| spec.name.clone()).collect();
    let mut prng = Prng::from_seed(seed);
    let seats = 3 + prng.below(SEATS as u64 - 2) as usize;
    let is_timed = prng.one_in(4);
    let has_messages = prng.one_in(3);
    let pattern = pick(&mut prng, &["c*", "__key*__:*", "c[12]", "*"]);
    let mut schedule =
        Schedule { prng, names, seats, is_timed, has_messages, pattern, steps: Vec::new(), batch: 0 };
    schedule.begin();
    for _ in 0..TURNS {
        schedule.turn();
    }
    schedule.steps
}

struct Schedule {
    prng: Prng,
    /// Commands that there are.
    names: Vec<String>,
    seats: usize,
    is_timed: bool,
    has_messages: bool,
    /// The one that clients subscribe to: real servers go through several in the order of a table.
    pattern: &'static str,
    steps: Vec<Step>,
    batch: usize,
}

impl Schedule {
    fn begin(&mut self) {
        if self.has_messages {
            let classes = pick(&mut self.prng, &["KEA", "Kl$zt", "Eg", "KEAmn", ""]);
            self.send(0, vec![words(&["CONFIG", "SET", "notify-keyspace-events", classes])]);
        }
        for seat in 0..self.seats {
            if self.prng.one_in(2) {
                self.send(seat, vec![words(&["HELLO", "3"])]);
            }
        }
        self.send(0, vec![words(&["XGROUP", "CREATE", "s", "g", "0", "MKSTREAM"])]);
    }

    fn turn(&mut self) {
        let seat = self.prng.below(self.seats as u64) as usize;
        let may_wait = seat > 0;
        let requests = match self.prng.below(20) {
            0 if may_wait => vec![vec![LEAVES.to_vec()]],
            1 if may_wait => vec![self.waiting(), self.private(seat), self.private(seat)],
            2 if may_wait => vec![self.private(seat)],
            3..9 if may_wait => vec![self.waiting()],
            9 | 10 => self.transaction(),
            11 | 12 if self.has_messages => vec![self.message(may_wait)],
            13 => vec![self.about_clients()],
            _ => vec![self.serving()],
        };
        self.send(seat, requests);
    }

    fn send(&mut self, connection: usize, requests: Vec<Request>) {
        for request in requests {
            let name = String::from_utf8_lossy(&request[0]).to_ascii_lowercase();
            let is_known = self.names.iter().any(|known| known.split('|').next() == Some(&name));
            if leaves(&request) || is_known {
                self.steps.push(Step { connection, batch: self.batch, request });
            }
        }
        self.batch += 1;
    }

    fn any(&mut self) -> Request {
        if self.prng.one_in(2) { self.waiting() } else { self.serving() }
    }

    /// MULTI to EXEC, in which nothing waits, and now and then with a fault.
    fn transaction(&mut self) -> Vec<Request> {
        let mut requests = vec![words(&["MULTI"])];
        for _ in 0..self.prng.below(5) {
            let request = self.any();
            // Who waits for a result's key names it first, and is served from it since 7.2 though another became ready before.
            let is_of_result =
                |word: &Vec<u8>| word == LIST_RESULT.as_bytes() || word == SORTED_SET_RESULT.as_bytes();
            if requests.len() == 1 || !request.iter().any(is_of_result) {
                requests.push(request);
            }
        }
        if self.prng.one_in(10) {
            requests.push(words(&["LPUSH"]));
        }
        requests.push(words(&[pick(&mut self.prng, &["EXEC", "EXEC", "EXEC", "EXEC", "DISCARD"])]));
        if self.prng.one_in(4) {
            requests.insert(0, words(&["WATCH", pick(&mut self.prng, KEYS)]));
        }
        requests
    }

    fn about_clients(&mut self) -> Request {
        let seat = format!("@{}", self.prng.below(self.seats as u64));
        match self.prng.below(6) {
            0 => words(&["SELECT", pick(&mut self.prng, &["0", "0", "1"])]),
            1 => words(&["SWAPDB", "0", "1"]),
            2 => words(&["CLIENT", "UNBLOCK", &seat, "ERROR"]),
            3 => words(&["CLIENT", "UNBLOCK", &seat, "TIMEOUT"]),
            4 => words(&["WATCH", pick(&mut self.prng, KEYS)]),
            _ => words(&["CLIENT", "UNBLOCK", &seat]),
        }
    }

    fn message(&mut self, may_subscribe: bool) -> Request {
        let channel = pick(&mut self.prng, &["c1", "c2", "__keyspace@0__:a", "__keyevent@0__:lpush"]);
        match self.prng.below(if may_subscribe { 10 } else { 3 }) {
            0 | 1 => words(&["PUBLISH", channel, "text"]),
            2 => words(&["SPUBLISH", channel, "text"]),
            3 | 4 => words(&["SUBSCRIBE", channel]),
            5 => words(&["SUBSCRIBE", channel, "c2", "c2"]),
            6 | 7 => words(&["PSUBSCRIBE", self.pattern]),
            // With a name: without one, real servers go by tables that differ from start to start.
            8 => words(&[pick(&mut self.prng, &["UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE"]), "c2"]),
            _ => words(&["SSUBSCRIBE", channel]),
        }
    }

    /// A request about a key of one client alone. What is sent behind a request that waits has to be: in which order
    /// several clients go on that were served at once is nobody's promise.
    fn private(&mut self, seat: usize) -> Request {
        let key = format!("q{seat}");
        match self.prng.below(4) {
            0 | 1 => words(&["RPUSH", &key, self.text()]),
            2 => words(&["BLPOP", &key, if self.is_timed { SHORT } else { "0" }]),
            _ => words(&["LRANGE", &key, "0", "-1"]),
        }
    }

    /// A request that waits if nothing is there for it.
    fn waiting(&mut self) -> Request {
        let (timeout, timeout_ms) = if self.is_timed { (SHORT, SHORT_MS) } else { ("0", "0") };
        let (list, other) = (self.key(LISTS), self.key(LISTS));
        let zset = self.key(SORTED_SETS);
        let side = pick(&mut self.prng, &["LEFT", "RIGHT"]);
        let other_side = pick(&mut self.prng, &["LEFT", "RIGHT"]);
        let extreme = pick(&mut self.prng, &["MIN", "MAX"]);
        let count = pick(&mut self.prng, &["1", "2", "5"]);
        let consumer = pick(&mut self.prng, &["alice", "bob"]);
        let stream = self.key(STREAMS);
        match self.prng.below(16) {
            0 | 1 => words(&["BLPOP", list, timeout]),
            2 => words(&["BLPOP", LIST_RESULT, list, timeout]),
            3 => words(&["BRPOP", LIST_RESULT, list, timeout]),
            4 | 5 => words(&["BLMOVE", list, other, side, other_side, timeout]),
            6 => words(&["BRPOPLPUSH", list, other, timeout]),
            7 => words(&["BLMPOP", timeout, "2", LIST_RESULT, list, side, "COUNT", count]),
            8 => words(&["BZPOPMIN", zset, timeout]),
            9 => words(&["BZPOPMAX", SORTED_SET_RESULT, zset, timeout]),
            10 => words(&["BZMPOP", timeout, "2", SORTED_SET_RESULT, zset, extreme, "COUNT", count]),
            11 => words(&["XREAD", "BLOCK", timeout_ms, "STREAMS", "s", "t", "$", "$"]),
            12 => words(&["XREAD", "COUNT", count, "BLOCK", timeout_ms, "STREAMS", stream, "$"]),
            13 | 14 => {
                let mut request = words(&["XREADGROUP", "GROUP", "g", consumer, "COUNT", count]);
                request.extend(words(&["BLOCK", timeout_ms, "STREAMS", "s", ">"]));
                request
            }
            _ => words(&["BLMPOP", timeout, "1", list, side]),
        }
    }

    /// A request that makes something ready, or takes it away.
    fn serving(&mut self) -> Request {
        match self.prng.below(10) {
            0..4 => self.serving_list(),
            4 | 5 => self.serving_sorted_set(),
            6 | 7 => self.serving_stream(),
            _ => self.serving_any(),
        }
    }

    fn serving_list(&mut self) -> Request {
        let text = self.text();
        let (list, other) = (self.key(LISTS), self.key(LISTS));
        let side = pick(&mut self.prng, &["LEFT", "RIGHT"]);
        match self.prng.below(16) {
            0..5 => words(&[pick(&mut self.prng, &["LPUSH", "RPUSH"]), list, text]),
            5 | 6 => words(&["RPUSH", list, text, "six", "seven"]),
            7 => words(&["LPUSHX", list, text]),
            8 => words(&["LMOVE", list, other, side, "LEFT"]),
            9 => words(&["RPOPLPUSH", list, other]),
            10 => words(&["SORT", list, "ALPHA", "STORE", LIST_RESULT]),
            11 => self.restore(list),
            12 => words(&["LPOP", list]),
            13 => words(&["LREM", list, "0", text]),
            14 => words(&["LINSERT", list, "BEFORE", text, "new"]),
            _ => words(&["LTRIM", list, "1", "0"]),
        }
    }

    fn serving_sorted_set(&mut self) -> Request {
        let text = self.text();
        let (zset, other) = (self.key(SORTED_SETS), self.key(SORTED_SETS));
        match self.prng.below(9) {
            0..3 => words(&["ZADD", zset, "1", text]),
            3 => words(&["ZADD", zset, "1", "one", "2", "two", "3", text]),
            4 => words(&["ZUNIONSTORE", SORTED_SET_RESULT, "2", zset, other]),
            5 => words(&["ZINCRBY", zset, "1", text]),
            6 => words(&["GEOADD", zset, "13.4", "38.1", text]),
            7 => words(&["ZPOPMIN", zset]),
            _ => words(&["ZREM", zset, "one", text]),
        }
    }

    fn serving_stream(&mut self) -> Request {
        let text = self.text();
        let stream = self.key(STREAMS);
        match self.prng.below(8) {
            0..4 => words(&["XADD", stream, "5-*", "f", text]),
            4 => words(&["XADD", stream, "MAXLEN", "1", "5-*", "f", text]),
            5 => words(&["XGROUP", "DESTROY", "s", "g"]),
            6 => words(&["XGROUP", "CREATE", "s", "g", "0", "MKSTREAM"]),
            _ => words(&["XTRIM", stream, "MAXLEN", "2"]),
        }
    }

    fn serving_any(&mut self) -> Request {
        let text = self.text();
        let (any, another) = (self.key(KEYS), self.key(KEYS));
        match self.prng.below(14) {
            0..3 => words(&["RENAME", any, another]),
            3 => words(&["RENAMENX", any, another]),
            4 => words(&["COPY", any, another, "REPLACE"]),
            5 => words(&["COPY", any, another, "DB", "1"]),
            6 => words(&["MOVE", any, pick(&mut self.prng, &["0", "1"])]),
            7..9 => words(&["DEL", any]),
            9 => words(&["SET", any, text]),
            10 => words(&["PEXPIRE", any, "-1"]),
            11 if self.prng.one_in(3) => words(&[pick(&mut self.prng, &["FLUSHDB", "FLUSHALL"])]),
            12 => words(&["PERSIST", any]),
            _ => words(&["TYPE", any]),
        }
    }

    fn restore(&mut self, key: &str) -> Request {
        let mut request = words(&["RESTORE", key, "0"]);
        request.push(LIST_DUMP.to_vec());
        if self.prng.one_in(2) {
            request.push(b"REPLACE".to_vec());
        }
        request
    }

    fn text(&mut self) -> &'static str {
        pick(&mut self.prng, &["1", "2", "3", "four", "five"])
    }

    /// One of `own`, now and then any.
    fn key(&mut self, own: &[&'static str]) -> &'static str {
        let keys = if self.prng.one_in(12) { KEYS } else { own };
        pick(&mut self.prng, keys)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_client_never_waits_outside_of_a_transaction() {
        let names = ["blpop", "brpop", "blmove", "lpush", "set", "del", "rename", "multi", "exec", "discard"];
        let specs: Vec<Spec> = names.iter().map(|name| Spec::new(name, -2, "")).collect();
        for seed in 0..20 {
            let steps = generate(&specs, seed);
            assert!(steps.len() > 20);
            let mut is_queueing = false;
            for step in steps.iter().filter(|step| step.connection == 0) {
                match step.request[0].as_slice() {
                    b"MULTI" => is_queueing = true,
                    b"EXEC" | b"DISCARD" => is_queueing = false,
                    word => assert!(is_queueing || !word.starts_with(b"B"), "{:?}", step.request),
                }
            }
        }
    }
}
