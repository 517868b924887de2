//! One request over and over with random numbers in it, as redis-benchmark sends it, and its list of tests.
//!
//! The request is encoded once, with the WAIT behind it if replicas are waited for. Each time it is copied, and only the digits are written anew.

use super::{Feed, Issued, Template};
use sys::Prng;
use wire::encode_request;

/// What stands for a random number, as long as the digits that replace it.
const PLACEHOLDER: &[u8; DIGITS] = b"__rand_int__";
const DIGITS: usize = 12;

/// A test of redis-benchmark: its name, its title, and its request. `<data>` stands for the value; a request
/// without arguments but a line end is sent as it stands.
pub struct KvTest {
    /// What `-t` calls it.
    pub name: &'static str,
    /// What tables call it.
    pub title: &'static str,
    /// The request, its arguments divided by blanks.
    request: &'static str,
}

const fn test(name: &'static str, title: &'static str, request: &'static str) -> KvTest {
    KvTest { name, title, request }
}

/// redis-benchmark's tests, in its order.
pub const KV_TESTS: &[KvTest] = &[
    test("ping_inline", "PING_INLINE", "PING"),
    test("ping_mbulk", "PING_MBULK", "PING"),
    test("set", "SET", "SET key:__rand_int__ <data>"),
    test("get", "GET", "GET key:__rand_int__"),
    test("incr", "INCR", "INCR counter:__rand_int__"),
    test("lpush", "LPUSH", "LPUSH mylist <data>"),
    test("rpush", "RPUSH", "RPUSH mylist <data>"),
    test("lpop", "LPOP", "LPOP mylist"),
    test("rpop", "RPOP", "RPOP mylist"),
    test("sadd", "SADD", "SADD myset element:__rand_int__"),
    test("hset", "HSET", "HSET myhash element:__rand_int__ <data>"),
    test("spop", "SPOP", "SPOP myset"),
    test("zadd", "ZADD", "ZADD myzset <score> element:__rand_int__"),
    test("zpopmin", "ZPOPMIN", "ZPOPMIN myzset"),
    test("lrange", "LPUSH (needed to benchmark LRANGE)", "LPUSH mylist <data>"),
    test("lrange_100", "LRANGE_100 (first 100 elements)", "LRANGE mylist 0 99"),
    test("lrange_300", "LRANGE_300 (first 300 elements)", "LRANGE mylist 0 299"),
    test("lrange_500", "LRANGE_500 (first 500 elements)", "LRANGE mylist 0 499"),
    test("lrange_600", "LRANGE_600 (first 600 elements)", "LRANGE mylist 0 599"),
    test("mset", "MSET (10 keys)", "MSET <pairs>"),
    test("xadd", "XADD", "XADD mystream * myfield <data>"),
];

/// Keys that one MSET of the test `mset` writes.
const MSET_KEYS: usize = 10;

impl Template {
    /// A test of redis-benchmark by its name in [`KV_TESTS`].
    pub fn kv(name: &str, value_bytes: u64, keyspace: Option<u64>) -> Option<Template> {
        let test = KV_TESTS.iter().find(|test| test.name == name)?;
        let data = vec![b'x'; usize::try_from(value_bytes).ok()?];
        let mut arguments: Vec<Vec<u8>> = Vec::new();
        for word in test.request.split(' ') {
            match word {
                "<data>" => arguments.push(data.clone()),
                "<score>" if keyspace.is_some() => arguments.push(PLACEHOLDER.to_vec()),
                "<score>" => arguments.push(b"0".to_vec()),
                "<pairs>" => {
                    for _ in 0..MSET_KEYS {
                        arguments.push(b"key:__rand_int__".to_vec());
                        arguments.push(data.clone());
                    }
                }
                word => arguments.push(word.as_bytes().to_vec()),
            }
        }
        Some(Template {
            name: test.name.to_owned(),
            arguments,
            keyspace,
            value_bytes,
            is_inline: name == "ping_inline",
            before: None,
            waits_for: 0,
        })
    }

    /// Any request, given as its arguments.
    pub fn of(name: &str, arguments: &[&str], keyspace: Option<u64>) -> Template {
        Template {
            name: name.to_owned(),
            arguments: arguments.iter().map(|argument| argument.as_bytes().to_vec()).collect(),
            keyspace,
            value_bytes: 0,
            is_inline: false,
            before: None,
            waits_for: 0,
        }
    }
}

/// The feed of a [`Template`].
pub struct Repeated {
    request: Vec<u8>,
    issued: Issued,
    /// Where the digits are.
    places: Vec<usize>,
    keyspace: u64,
    prng: Prng,
}

impl Repeated {
    pub fn new(template: &Template, prng: Prng) -> Repeated {
        let mut request = Vec::new();
        if template.is_inline {
            request = template.arguments.join(&b' ');
            request.extend_from_slice(b"\r\n");
        } else {
            let arguments: Vec<&[u8]> = template.arguments.iter().map(Vec::as_slice).collect();
            encode_request(&mut request, &arguments);
        }
        let mut issued = Issued::single(0);
        if template.waits_for > 0 {
            let replicas = template.waits_for.to_string();
            // For as long as it takes: a server that goes silent ends the run.
            encode_request(&mut request, &[b"WAIT", replicas.as_bytes(), b"0"]);
            issued.replies += 1;
        }
        let mut places = Vec::new();
        let mut at = 0;
        while let (Some(_), Some(found)) = (template.keyspace, find(&request[at..])) {
            places.push(at + found);
            at += found + DIGITS;
        }
        Repeated { request, issued, places, keyspace: template.keyspace.unwrap_or(1).max(1), prng }
    }
}

fn find(bytes: &[u8]) -> Option<usize> {
    bytes.windows(DIGITS).position(|window| window == PLACEHOLDER)
}

impl Feed for Repeated {
    #[inline]
    fn issue(&mut self, _connection: usize, out: &mut Vec<u8>) -> Issued {
        let begin = out.len();
        out.extend_from_slice(&self.request);
        for place in &self.places {
            let at = begin + place;
            write_digits(&mut out[at..at + DIGITS], self.prng.below(self.keyspace));
        }
        self.issued
    }
}

/// Writes a number with leading zeros; what does not fit is left out.
#[inline]
pub fn write_digits(place: &mut [u8], mut number: u64) {
    for digit in place.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn issued(template: &Template, seed: u64) -> String {
        let mut out = Vec::new();
        Repeated::new(template, Prng::from_seed(seed)).issue(0, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn keys_are_twelve_digits_below_the_key_space() {
        let set = Template::kv("set", 3, Some(100)).unwrap();
        let text = issued(&set, 1);
        assert!(text.starts_with("*3\r\n$3\r\nSET\r\n$16\r\nkey:0000000000"), "{text}");
        assert!(text.ends_with("\r\n$3\r\nxxx\r\n"), "{text}");
        assert_eq!(text, issued(&set, 1));
        assert_ne!(text, issued(&set, 2));
    }

    #[test]
    fn without_a_key_space_the_key_is_literal() {
        let get = Template::kv("get", 3, None).unwrap();
        assert_eq!(issued(&get, 1), "*2\r\n$3\r\nGET\r\n$16\r\nkey:__rand_int__\r\n");
        assert_eq!(issued(&Template::kv("ping_inline", 3, None).unwrap(), 1), "PING\r\n");
    }

    #[test]
    fn who_waits_for_replicas_gets_two_replies_a_request() {
        let set = Template { waits_for: 2, ..Template::kv("set", 3, Some(100)).unwrap() };
        assert!(issued(&set, 1).ends_with("\r\n$3\r\nxxx\r\n*3\r\n$4\r\nWAIT\r\n$1\r\n2\r\n$1\r\n0\r\n"));
        let replies =
            |template| Repeated::new(template, Prng::from_seed(1)).issue(0, &mut Vec::new()).replies;
        assert_eq!((replies(&set), replies(&Template { waits_for: 0, ..set.clone() })), (2, 1));
    }

    #[test]
    fn every_place_of_a_request_gets_its_own_number() {
        let mset = Template::kv("mset", 3, Some(1_000_000_000_000)).unwrap();
        let text = issued(&mset, 1);
        let keys: std::collections::BTreeSet<_> =
            text.lines().filter(|line| line.starts_with("key:")).collect();
        assert_eq!(keys.len(), MSET_KEYS);
        assert!(text.starts_with("*21\r\n"));
    }
}
