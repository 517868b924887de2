//! SCAN in front of a cluster: slot by slot, each with its owner. Pure.
//!
//! A cursor is the number of the first slot that was not listed, plus one, so that it means the same however slots move. Of each slot all keys are listed at once
//! (`CLUSTER GETKEYSINSLOT`); what MATCH and TYPE leave is picked here.
//!
//! Invariant: every key is listed that is there all the time. Behind each list stands a look at a key of the slot that nobody has, over the same connection. A
//! node that says that there is none has had the whole slot before. One that sends elsewhere for that (`-ASK`) has a part of it, and keys
//! leave it for the other only: the other's list comes later, and has the rest. One that says that the slot has moved is not believed.

use crate::joins::{Part, Step, array, elements, number, text_of};
use crate::links::redirect::{self, Redirection};
use crate::upstream::{NodeNo, Routes};
use std::collections::VecDeque;
use std::sync::{Arc, LazyLock};
use value::glob::{Case, glob_match};
use wire::{Request, SLOTS, encode_request, key_slot};

/// Keys of a slot that are listed.
const KEYS_MAX: usize = 100_000;
/// Slots that are asked for together, where those before had next to nothing.
const SLOTS_AT_ONCE: usize = 1024;
/// The most keys that are looked for in one request, whatever it says: their types may be asked for, each by a part, of which there are 65,535 at most.
const COUNT_MAX: usize = 10_000;
/// How often something is asked for one request before it ends with what there is.
const ROUNDS_MAX: usize = 64;

/// A key of each slot that nobody has.
static UNUSED: LazyLock<Vec<String>> = LazyLock::new(|| {
    let mut keys = vec![String::new(); SLOTS];
    let mut missing = SLOTS;
    for key in (0u64..).map(|number| format!("tarn-proxy:no-such-key:{number}")) {
        let place = &mut keys[usize::from(key_slot(key.as_bytes()))];
        if place.is_empty() {
            *place = key;
            missing -= 1;
        }
        if missing == 0 {
            break;
        }
    }
    keys
});

/// How a slot's keys are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// Of its owner.
    Owner,
    /// Of an owner that has so many, and did not list them: a Tarn's, of a slot that an operator has marked.
    Marked(usize),
    /// Of whom they are moving to.
    Target,
}

/// How far a request has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotScan {
    routes: Arc<Routes>,
    pattern: Option<Vec<u8>>,
    type_name: Option<Vec<u8>>,
    /// How many keys are enough.
    count: usize,
    /// The first slot that was not asked for.
    next: usize,
    /// The first that was asked for last, and how many.
    last: (usize, usize),
    /// What was asked, in the order of the parts.
    asked: Vec<(u16, NodeNo, Asked)>,
    rounds: usize,
    /// How many keys were looked at.
    listed: usize,
    found: Vec<Vec<u8>>,
    /// Their types are asked for, and this is the slot to go on with.
    ends_at: Option<usize>,
}

impl SlotScan {
    /// Begins to answer a request that is in order, and what is to be asked first. None: a slot is nobody's.
    pub fn begin(routes: &Arc<Routes>, request: &Request<'_>) -> Option<(SlotScan, Vec<Part>)> {
        let cursor = std::str::from_utf8(request.arg(1)).ok().and_then(|text| text.parse().ok());
        let option = |name: &str| {
            let mut places = (2..request.len().saturating_sub(1)).step_by(2).rev();
            let at = places.find(|at| request.arg(*at).eq_ignore_ascii_case(name.as_bytes()))?;
            Some(request.arg(at + 1).to_vec())
        };
        let mut scan = SlotScan {
            routes: routes.clone(),
            pattern: option("match"),
            type_name: option("type"),
            count: crate::scans::count(request).min(COUNT_MAX),
            // One that nobody was given is near the end.
            next: cursor.unwrap_or(0usize).saturating_sub(1).min(SLOTS - 1),
            last: (0, 0),
            asked: Vec::new(),
            rounds: 0,
            listed: 0,
            found: Vec::new(),
            ends_at: None,
        };
        let first = scan.ask_next(1)?;
        Some((scan, first))
    }

    /// All that was asked for is there. None: that is no such answer.
    pub fn step(&mut self, parts: &[Vec<u8>]) -> Option<Step> {
        if let Some(next) = self.ends_at {
            return Some(self.end_typed(next, parts));
        }
        let (mut again, mut parts) = (Vec::new(), parts.iter());
        for (slot, node, asked) in std::mem::take(&mut self.asked) {
            let (keys, held, look) = (parts.next()?, parts.next()?, parts.next()?);
            if let Some(error) = [keys, held].into_iter().find(|part| part.starts_with(b"-")) {
                return Some(Step::Whole(error.clone()));
            }
            let listed = self.take_keys(slot, keys, asked)?;
            if listed >= KEYS_MAX {
                let error = format!("-ERR proxy: slot {slot} has more than {KEYS_MAX} keys\r\n");
                return Some(Step::Whole(error.into_bytes()));
            }
            let count = usize::try_from(number(held)?).ok()?;
            self.listed += listed;
            // Somebody may have made such a key: who says so has the slot.
            let is_there = look == b":0\r\n" || look == b":1\r\n";
            match (&look[..], asked) {
                // It has the slot by now, or not yet.
                (line, Asked::Target) if is_there || line.starts_with(b"-MOVED ") => {}
                (_, Asked::Owner) if is_there && listed == 0 && count > 0 => {
                    again.push((slot, node, Asked::Marked(count)));
                }
                _ if is_there => {}
                (line, _) => match self.redirected(line, node) {
                    Some((to, true)) => again.push((slot, to, Asked::Target)),
                    Some((to, false)) => again.push((slot, to, Asked::Owner)),
                    // It is asked for when it is known who that is.
                    None if line.starts_with(b"-MOVED ") || line.starts_with(b"-ASK ") => {
                        return Some(self.end(usize::from(slot).min(self.last.0)));
                    }
                    None => return Some(Step::Whole(line.to_vec())),
                },
            }
        }
        Some(self.go_on(again))
    }

    fn go_on(&mut self, again: Vec<(u16, NodeNo, Asked)>) -> Step {
        self.rounds += 1;
        if !again.is_empty() {
            return match self.rounds < ROUNDS_MAX {
                true => Step::More(self.ask(again)),
                false => self.end(self.last.0),
            };
        }
        if self.listed >= self.count || self.next >= SLOTS || self.rounds >= ROUNDS_MAX {
            return self.end(self.next);
        }
        let slots = (self.last.1 * 2).min(SLOTS_AT_ONCE);
        match self.ask_next(slots) {
            Some(parts) => Step::More(parts),
            None => Step::Whole(b"-CLUSTERDOWN Hash slot not served\r\n".to_vec()),
        }
    }

    fn ask_next(&mut self, slots: usize) -> Option<Vec<Part>> {
        let end = (self.next + slots).min(SLOTS);
        self.last = (self.next, slots);
        let of = |slot: usize| Some((slot as u16, self.routes.of(slot as u16)?, Asked::Owner));
        let asked = (self.next..end).map(of).collect::<Option<Vec<_>>>()?;
        self.next = end;
        Some(self.ask(asked))
    }

    fn ask(&mut self, asked: Vec<(u16, NodeNo, Asked)>) -> Vec<Part> {
        let mut parts = Vec::with_capacity(asked.len() * 3);
        for (slot, node, how) in &asked {
            let mut ask = |words: &[&[u8]]| {
                let mut bytes = Vec::new();
                encode_request(&mut bytes, words);
                // Where it is sent elsewhere, that is what is wanted to be known.
                parts.push((*node, None, bytes));
            };
            let number = slot.to_string();
            match how {
                Asked::Owner | Asked::Target => {
                    ask(&[b"CLUSTER", b"GETKEYSINSLOT", number.as_bytes(), KEYS_MAX.to_string().as_bytes()]);
                }
                Asked::Marked(count) => {
                    let cursor = (u64::from(*slot) << 48).to_string();
                    ask(&[b"SCAN", cursor.as_bytes(), b"COUNT", (count + 1000).to_string().as_bytes()]);
                }
            }
            ask(&[b"CLUSTER", b"COUNTKEYSINSLOT", number.as_bytes()]);
            ask(&[b"EXISTS", UNUSED[usize::from(*slot)].as_bytes()]);
        }
        self.asked = asked;
        parts
    }

    /// Notes those keys of a slot that are wanted; gives how many there are.
    fn take_keys(&mut self, slot: u16, reply: &[u8], asked: Asked) -> Option<usize> {
        let listed = match asked {
            Asked::Owner | Asked::Target => elements(reply)?,
            Asked::Marked(_) => elements(elements(reply)?.get(1)?)?,
        };
        for key in &listed {
            let name = text_of(key)?;
            let is_matched = |pattern: &Vec<u8>| glob_match(pattern, name, Case::Sensitive);
            if key_slot(name) == slot && self.pattern.as_ref().is_none_or(is_matched) {
                self.found.push(key.to_vec());
            }
        }
        Some(listed.len())
    }

    /// Where a slot is by what a node says, if that is known by a number, and whether that is so for one request.
    fn redirected(&self, line: &[u8], said_by: NodeNo) -> Option<(NodeNo, bool)> {
        let (node, is_asking) = match redirect::read(line, &self.routes.nodes[usize::from(said_by)])? {
            Redirection::Moved(_, node) => (node, false),
            Redirection::Ask(_, node) => (node, true),
        };
        let number = self.routes.nodes.iter().position(|known| *known == node)? as NodeNo;
        Some((number, is_asking))
    }

    /// What the client gets, or the types that it wants to choose by.
    fn end(&mut self, next: usize) -> Step {
        if self.type_name.is_none() || self.found.is_empty() {
            return Step::Whole(reply(next, &self.found));
        }
        self.ends_at = Some(next);
        let part = |key: &Vec<u8>| {
            let name = text_of(key).unwrap_or_default();
            let slot = key_slot(name);
            let mut bytes = Vec::new();
            encode_request(&mut bytes, &[b"TYPE", name]);
            (self.routes.of(slot).unwrap_or_default(), Some(slot), bytes)
        };
        // A part has a number of 16 bits.
        let asked = self.found.len().min(usize::from(u16::MAX));
        match asked == self.found.len() {
            true => Step::More(self.found.iter().map(part).collect()),
            false => Step::Whole(b"-ERR proxy: too many keys at once for SCAN with TYPE\r\n".to_vec()),
        }
    }

    fn end_typed(&mut self, next: usize, types: &[Vec<u8>]) -> Step {
        if let Some(error) = types.iter().find(|reply| reply.starts_with(b"-")) {
            return Step::Whole(error.clone());
        }
        let wanted = self.type_name.take().unwrap_or_default();
        let is_one = |reply: &[u8]| {
            let name = reply.strip_prefix(b"+").and_then(|name| name.strip_suffix(b"\r\n"));
            name.is_some_and(|name| name.eq_ignore_ascii_case(&wanted))
        };
        let mut queue: VecDeque<bool> = types.iter().map(|reply| is_one(reply)).collect();
        self.found.retain(|_| queue.pop_front().unwrap_or(false));
        Step::Whole(reply(next, &self.found))
    }
}

/// The reply with these keys, and with a cursor from this slot on.
fn reply(next: usize, found: &[Vec<u8>]) -> Vec<u8> {
    let keys = array(&found.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let cursor = if next < SLOTS { next + 1 } else { 0 }.to_string();
    let cursor = format!("${}\r\n{cursor}\r\n", cursor.len());
    array(&[cursor.as_bytes(), &keys])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::Upstream;
    use wire::RequestBuf;

    /// Two nodes, between which a slot may move.
    struct Nodes {
        moving: u16,
        source: Vec<&'static str>,
        target: Vec<&'static str>,
        /// What the source says of a key that nobody has.
        look: &'static str,
    }

    fn array_of(keys: &[&str]) -> Vec<u8> {
        let mut bytes = format!("*{}\r\n", keys.len());
        keys.iter().for_each(|key| bytes += &format!("${}\r\n{key}\r\n", key.len()));
        bytes.into_bytes()
    }

    impl Nodes {
        fn answer(&mut self, (node, _, bytes): &Part) -> Vec<u8> {
            let text = std::str::from_utf8(bytes).unwrap();
            let words: Vec<&str> = text.lines().filter(|line| !line.starts_with(['*', '$'])).collect();
            let is_moving = |slot: &str| slot == self.moving.to_string();
            match (words[0], words[1]) {
                ("CLUSTER", "GETKEYSINSLOT") if is_moving(words[2]) && *node == 0 => {
                    let said = array_of(&self.source);
                    // The last key leaves when it was not listed, or after that.
                    self.target.extend(self.source.pop());
                    said
                }
                ("CLUSTER", "GETKEYSINSLOT") if is_moving(words[2]) => array_of(&self.target),
                ("CLUSTER", "GETKEYSINSLOT") => array_of(&[]),
                ("CLUSTER", _) => b":0\r\n".to_vec(),
                ("EXISTS", key) if key_slot(key.as_bytes()) == self.moving => match *node {
                    0 => self.look.as_bytes().to_vec(),
                    _ => b"-MOVED 1 a:1\r\n".to_vec(),
                },
                ("EXISTS", _) => b":0\r\n".to_vec(),
                ("TYPE", "{06S}one") => b"+list\r\n".to_vec(),
                _ => b"+string\r\n".to_vec(),
            }
        }

        /// All keys that are listed, and the last cursor.
        fn scan(&mut self, line: &str) -> (String, Vec<String>) {
            let routes = Upstream::fixed("0-9999=a:1,10000-16383=b:1").unwrap().routes();
            let request = RequestBuf::from_args(line.split(' '));
            let (mut scan, mut asked) = SlotScan::begin(&routes, &request.as_request()).unwrap();
            loop {
                let replies: Vec<Vec<u8>> = asked.iter().map(|part| self.answer(part)).collect();
                match scan.step(&replies).unwrap() {
                    Step::More(more) => asked = more,
                    Step::Wait(..) => panic!("it does not wait"),
                    Step::Whole(reply) if reply.starts_with(b"-") => {
                        return (String::from_utf8(reply).unwrap(), Vec::new());
                    }
                    Step::Whole(reply) => {
                        let [cursor, keys] = elements(&reply).unwrap()[..] else { panic!() };
                        let told =
                            |reply: &&[u8]| String::from_utf8(text_of(reply).unwrap().to_vec()).unwrap();
                        return (told(&cursor), elements(keys).unwrap().iter().map(told).collect());
                    }
                }
            }
        }
    }

    /// `06S` is of slot 0.
    fn nodes(look: &'static str) -> Nodes {
        let moving = key_slot(b"06S");
        assert_eq!(moving, 0);
        Nodes { moving, source: vec!["{06S}one", "{06S}two"], target: vec!["{06S}gone"], look }
    }

    #[test]
    fn keys_of_a_slot_that_moves_are_listed_by_both() {
        let listed = |look: &'static str| {
            let (cursor, mut keys) = nodes(look).scan("SCAN 0 COUNT 100");
            keys.sort();
            keys.dedup();
            (cursor, keys.join(" "))
        };
        let text = |text: &str| text.to_owned();
        assert_eq!(listed(":0\r\n"), (text("0"), text("{06S}one {06S}two")));
        assert_eq!(listed("-ASK 1 b:1\r\n"), (text("0"), text("{06S}gone {06S}one {06S}two")));
        // Who that is will be known, and the slot is asked for again: 0 would be the end.
        assert_eq!(listed("-ASK 1 c:1\r\n").0, "1");
        assert!(listed("-UNANSWERED x\r\n").0.starts_with("-UNANSWERED"));
    }

    #[test]
    fn what_match_and_type_leave_is_picked() {
        assert_eq!(nodes(":0\r\n").scan("SCAN 0 MATCH *two").1, ["{06S}two"]);
        assert_eq!(nodes(":0\r\n").scan("SCAN 0 TYPE LIST").1, ["{06S}one"]);
        let slot = usize::from(nodes("").moving);
        let (cursor, keys) = nodes(":0\r\n").scan(&format!("SCAN {} COUNT 1", slot + 1));
        assert_eq!((cursor, keys.len()), ((slot + 2).to_string(), 2));
        assert_eq!(nodes(":0\r\n").scan(&format!("SCAN {}", slot + 2)), ("0".to_owned(), Vec::new()));
    }
}
