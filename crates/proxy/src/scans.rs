//! SCAN over all servers, one after the other. Pure.
//!
//! A client's cursor is a server's place among all and that server's own cursor. One request goes on to the next server while too little was found, so that
//! a small keyspace is listed with few requests, as by one server.
//!
//! A Tarn's cursor has 62 bits, which leaves room for the places of two servers in a number below 2^63, beyond which some clients do not read. With
//! more servers the lowest bits of long ones are left out. That makes them earlier ones, since a Tarn's cursor is a slot and a position in
//! it, and goes up: some elements are listed again, and none is left out. All other servers' cursors are below the size of a table, and are kept as they are.
//!
//! Invariant: the cursor that a client is given is past the one that it came with. Where leaving bits out would undo a step, another one is made at once.

use crate::joins::{Part, Step, array, elements, text};
use crate::upstream::{NodeNo, Routes};
use wire::{Request, RequestBuf, encode_arg, encode_request_header};

/// Elements of an answer, where no COUNT is given.
const COUNT: usize = 10;
/// Cursors below this are kept as they are.
const EXACT: u64 = 1 << 48;
/// Cursors of servers are below this.
const CURSOR_MAX: u64 = 1 << 62;
/// Most steps for one request at one server: more would be needed where so many keys had the same bits but for those that are left out.
const STEPS_MAX: usize = 1024;

/// How far a request has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    /// The servers in their order.
    nodes: Vec<NodeNo>,
    /// Which of them is asked.
    at: usize,
    /// Where the client's cursor was, there.
    from: u64,
    /// How often it was asked.
    steps: usize,
    words: RequestBuf,
    /// How many elements are enough.
    count: usize,
    /// Those that were found.
    found: Vec<Vec<u8>>,
}

impl Scan {
    /// Begins to answer a request, and what is to be asked first. None: its cursor is none.
    pub fn begin(routes: &Routes, request: &Request<'_>) -> Option<(Scan, Part)> {
        let nodes = routes.masters.clone();
        let (at, from) = Cursors::of(nodes.len())?.apart(request.arg(1))?;
        let words = RequestBuf::from_args(request.iter());
        let scan = Scan { nodes, at, from, steps: 0, words, count: count(request), found: Vec::new() };
        let first = scan.ask(from);
        Some((scan, first))
    }

    /// A server has answered. None: that is no such answer.
    pub fn step(&mut self, reply: &[u8]) -> Option<Step> {
        let [cursor, keys] = elements(reply)?[..] else { return None };
        self.found.extend(elements(keys)?.into_iter().map(<[u8]>::to_vec));
        self.steps += 1;
        let cursors = Cursors::of(self.nodes.len())?;
        match text(cursor)? {
            0 if self.at + 1 == self.nodes.len() => Some(self.end(0)),
            0 => {
                (self.at, self.from, self.steps) = (self.at + 1, 0, 0);
                match self.found.len() < self.count {
                    true => Some(Step::More(vec![self.ask(0)])),
                    false => Some(self.end(cursors.joined(self.at, 0)?)),
                }
            }
            own => {
                let joined = cursors.joined(self.at, own)?;
                let (_, given_back) = cursors.parts(joined);
                match given_back == own || given_back > self.from {
                    true => Some(self.end(joined)),
                    false if self.steps < STEPS_MAX => Some(Step::More(vec![self.ask(own)])),
                    false => None,
                }
            }
        }
    }

    /// The request to the server whose turn it is.
    fn ask(&self, own: u64) -> Part {
        let request = self.words.as_request();
        let mut bytes = Vec::new();
        encode_request_header(&mut bytes, request.len());
        encode_arg(&mut bytes, request.arg(0));
        encode_arg(&mut bytes, own.to_string().as_bytes());
        request.iter().skip(2).for_each(|arg| encode_arg(&mut bytes, arg));
        (self.nodes[self.at], None, bytes)
    }

    fn end(&mut self, cursor: u64) -> Step {
        let found = std::mem::take(&mut self.found);
        let keys = array(&found.iter().map(Vec::as_slice).collect::<Vec<_>>());
        let cursor = cursor.to_string();
        let cursor = format!("${}\r\n{cursor}\r\n", cursor.len());
        Step::Whole(array(&[cursor.as_bytes(), &keys]))
    }
}

/// What COUNT says; what is wrong with it the server says.
pub fn count(request: &Request<'_>) -> usize {
    let mut options = (2..request.len().saturating_sub(1)).step_by(2).rev();
    let said = options.find(|at| request.arg(*at).eq_ignore_ascii_case(b"count"));
    let number = said.and_then(|at| std::str::from_utf8(request.arg(at + 1)).ok()?.parse().ok());
    number.unwrap_or(COUNT)
}

/// The form of cursors over so many servers.
struct Cursors {
    nodes: u64,
    /// How many bits of long ones are left out.
    left_out: u32,
}

impl Cursors {
    /// None: there are none, or too many of them.
    fn of(nodes: usize) -> Option<Cursors> {
        let nodes = u64::try_from(nodes).ok().filter(|nodes| (1..=wire::SLOTS as u64).contains(nodes))?;
        // What is below 2^bits fits in front of a server's place.
        let bits = 63 - nodes.next_power_of_two().trailing_zeros();
        Some(Cursors { nodes, left_out: if bits < 62 { 63 - bits } else { 0 } })
    }

    /// Reads a client's: which server it is of, and that one's own.
    fn apart(&self, text: &[u8]) -> Option<(usize, u64)> {
        Some(self.parts(std::str::from_utf8(text).ok()?.parse().ok()?))
    }

    fn parts(&self, cursor: u64) -> (usize, u64) {
        let (node, own) = ((cursor % self.nodes) as usize, cursor / self.nodes);
        match own.checked_sub(EXACT) {
            None => (node, own),
            // One that nobody was given may be any.
            Some(above) => (
                node,
                above.checked_mul(1 << self.left_out).map_or(u64::MAX, |above| above.saturating_add(EXACT)),
            ),
        }
    }

    /// None: no server has such a cursor.
    fn joined(&self, node: usize, own: u64) -> Option<u64> {
        let own = Some(own).filter(|own| *own < CURSOR_MAX)?;
        let kept = own.checked_sub(EXACT).map_or(own, |above| (above >> self.left_out) + EXACT);
        kept.checked_mul(self.nodes)?.checked_add(node as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::Upstream;
    use std::collections::BTreeSet;
    use std::sync::Arc;
    use sys::Prng;

    /// Servers as they scan.
    struct Servers {
        nodes: usize,
        routes: Arc<Routes>,
        /// The keys of each, by their own cursors.
        keys: Vec<BTreeSet<(u64, usize)>>,
        asked: usize,
    }

    impl Servers {
        fn new(keys: Vec<BTreeSet<(u64, usize)>>) -> Servers {
            let places: Vec<String> = (1..=keys.len()).map(|port| format!("a:{port}")).collect();
            let routes = Upstream::fixed(&places.join(",")).unwrap().routes();
            Servers { nodes: keys.len(), routes, keys, asked: 0 }
        }

        /// Asks until there is a reply: its cursor, and its keys.
        fn scan(&mut self, line: &str) -> Result<(u64, Vec<usize>), String> {
            let request = RequestBuf::from_args(line.split(' '));
            let (mut scan, mut next) = Scan::begin(&self.routes, &request.as_request()).ok_or("no cursor")?;
            self.asked = 0;
            loop {
                self.asked += 1;
                let reply = self.answer(&next);
                match scan.step(&reply).ok_or("not one reply")? {
                    Step::More(mut more) => next = more.remove(0),
                    Step::Wait(..) => panic!("it does not wait"),
                    Step::Whole(reply) => {
                        let [cursor, keys] = elements(&reply).unwrap()[..] else { panic!() };
                        assert!(text(cursor).unwrap() < 1 << 63);
                        let keys = elements(keys).unwrap();
                        let numbers = keys.into_iter().map(|key| text(key).unwrap() as usize);
                        return Ok((text(cursor).unwrap(), numbers.collect()));
                    }
                }
            }
        }

        /// As a Tarn does: keys from a cursor on, in order.
        fn answer(&self, (node, _, bytes): &Part) -> Vec<u8> {
            let text = std::str::from_utf8(bytes).unwrap();
            let words: Vec<&str> = text.lines().filter(|line| !line.starts_with(['*', '$'])).collect();
            let (from, count): (u64, usize) = (words[1].parse().unwrap(), words[3].parse().unwrap());
            let mut rest = self.keys[usize::from(*node)].range((from, 0)..);
            let found: Vec<String> = rest.by_ref().take(count).map(|(_, key)| key.to_string()).collect();
            let next = rest.next().map_or(0, |(at, _)| *at).to_string();
            let string = |text: &String| format!("${}\r\n{text}\r\n", text.len());
            let found: String = found.iter().map(string).chain([String::new()]).collect::<String>();
            let found_count = found.lines().count() / 2;
            format!("*2\r\n{}*{found_count}\r\n{found}", string(&next)).into_bytes()
        }
    }

    fn seen_by(servers: &mut Servers, count: usize) -> BTreeSet<usize> {
        let (mut cursor, mut seen, mut last) = (0, BTreeSet::new(), None);
        loop {
            let (next, keys) = servers.scan(&format!("SCAN {cursor} COUNT {count}")).unwrap();
            seen.extend(keys);
            if next == 0 {
                return seen;
            }
            let cursors = Cursors::of(servers.nodes).unwrap();
            assert!(last.is_none_or(|last| last < cursors.parts(next)), "it gets on");
            last = Some(cursors.parts(next));
            cursor = next;
        }
    }

    #[test]
    fn all_keys_of_any_number_of_servers_are_listed_and_scans_end() {
        let seed = 1;
        println!("seed {seed}");
        let mut prng = Prng::from_seed(seed);
        for nodes in [1, 2, 3, 4, 5, 16, 700] {
            let mut keys = vec![BTreeSet::new(); nodes];
            for key in 0..1_000 {
                // Anywhere, and many of them so near to each other that the bits differ that are left out.
                let at = match key % 3 {
                    0 => prng.below(CURSOR_MAX - 1) + 1,
                    1 => CURSOR_MAX - 1 - prng.below(20),
                    _ => prng.below(100) + 1,
                };
                let near = prng.below(nodes as u64) as usize;
                keys[if key % 3 == 1 { nodes - 1 } else { near }].insert((at, key));
            }
            // Two cannot share a place, as those of one tag are listed together.
            for keys in &mut keys {
                let mut places = BTreeSet::new();
                keys.retain(|(at, _)| places.insert(*at));
            }
            let all: BTreeSet<usize> = keys.iter().flatten().map(|(_, key)| *key).collect();
            let mut servers = Servers::new(keys);
            for count in [1, 3, 10, 5_000] {
                assert_eq!(seen_by(&mut servers, count), all, "{nodes} servers, COUNT {count}");
            }
        }
    }

    #[test]
    fn servers_are_asked_until_there_is_enough() {
        let keys = |keys: &[(u64, usize)]| keys.iter().copied().collect();
        let some = [keys(&[(5, 0)]), keys(&[]), keys(&[(1, 1), (2, 2), (3, 3)]), keys(&[(7, 4)])];
        let mut servers = Servers::new(some.to_vec());
        assert_eq!(servers.scan("SCAN 0 COUNT 10").unwrap(), (0, vec![0, 1, 2, 3, 4]));
        assert_eq!(servers.asked, 4, "once round");
        // The third is at its end, and the fourth begins.
        assert_eq!(servers.scan("SCAN 0 COUNT 3").unwrap(), (3, vec![0, 1, 2, 3]));
        assert_eq!(servers.scan("SCAN 3 COUNT 3").unwrap(), (0, vec![4]));
        assert_eq!(servers.scan("SCAN 0 COUNT 2").unwrap(), (4 * 3 + 2, vec![0, 1, 2]));
        assert_eq!(servers.scan("SCAN 14 COUNT 1").unwrap(), (3, vec![3]));
        assert!(servers.scan("SCAN x COUNT 2").is_err() && servers.scan("SCAN -1 COUNT 2").is_err());
        assert!(servers.scan(&format!("SCAN {} COUNT 2", u64::MAX)).is_ok());
    }

    #[test]
    fn the_last_count_counts() {
        let of = |line: &str| count(&RequestBuf::from_args(line.split(' ')).as_request());
        assert_eq!(of("SCAN 0 COUNT 5 MATCH COUNT count 7"), 7);
        assert_eq!(of("SCAN 0 MATCH COUNT"), COUNT);
        assert_eq!(of("SCAN 0 COUNT"), COUNT);
    }
}
