//! What the committed stream says, and whether what clients saw could have happened one operation after the other in just that order.
//!
//! The stream gives each write of a key its place, the n-th at 2n, and what a read of the key shows behind it, at 2n + 1. The history is
//! linearizable, in that order, if no operation that ended before another began has a later place.

use std::collections::BTreeMap;
use wire::{Limits, Parser};

/// What a client asked for, and what it learned.
#[derive(Clone, Debug)]
pub struct Operation {
    pub key: Vec<u8>,
    /// What only this write has; None: it reads.
    pub token: Option<u64>,
    pub began: u64,
    /// When the reply came, and what it was.
    pub ended: Option<(u64, Vec<u8>)>,
    /// Whether the master answered; replicas may show what is old.
    pub is_at_master: bool,
}

/// The course of a key's values.
#[derive(Default)]
struct Course {
    /// Replies to a read behind each write, and before the first.
    states: Vec<Vec<u8>>,
    places: BTreeMap<u64, usize>,
    elements: Vec<Vec<u8>>,
}

/// What a stream came to.
pub struct History(BTreeMap<Vec<u8>, Course>);

impl History {
    pub fn of(stream: &[u8]) -> Result<History, String> {
        let mut history = History(BTreeMap::new());
        let mut batch = wire::Batch::new();
        let parsed = Parser::new().parse(stream, &Limits::default(), &mut batch, usize::MAX);
        if parsed.ok() != Some(stream.len()) {
            return Err("what is committed is no stream of requests".to_owned());
        }
        for request in batch.iter(stream) {
            let words: Vec<&[u8]> = request.iter().collect();
            history.take(&words)?;
        }
        Ok(history)
    }

    fn take(&mut self, words: &[&[u8]]) -> Result<(), String> {
        let name = words[0].to_ascii_lowercase();
        if [&b"ping"[..], b"select", b"multi", b"exec"].contains(&name.as_slice()) {
            return Ok(());
        }
        let course = self
            .0
            .entry(words[1].to_vec())
            .or_insert_with(|| Course { states: vec![nothing(words[1])], ..Course::default() });
        let last = words[words.len() - 1].to_vec();
        let token = match name.as_slice() {
            b"set" if words[1][0] == b's' => {
                course.elements = vec![words[2].to_vec()];
                token_of(words[2])
            }
            b"append" | b"rpush" => {
                course.elements.push(last.clone());
                token_of(&last)
            }
            b"incr" | b"incrby" | b"set" => {
                course.elements.push(Vec::new());
                Some(course.states.len() as u64)
            }
            _ => return Err(format!("{:?} is in the stream", String::from_utf8_lossy(&words.concat()))),
        };
        let state = shown(words[1], &course.elements);
        course.states.push(state);
        let place = course.states.len() - 1;
        match token.map(|token| course.places.insert(token, place)) {
            Some(None) => Ok(()),
            _ => Err(format!("{} is written twice", String::from_utf8_lossy(&last))),
        }
    }

    /// What a read of a key shows at the end.
    pub fn last(&self, key: &[u8]) -> Vec<u8> {
        self.0.get(key).and_then(|course| course.states.last().cloned()).unwrap_or_else(|| nothing(key))
    }

    /// What is wrong with what clients saw.
    pub fn complaint(&self, operations: &[Operation]) -> Option<String> {
        let mut moments: Vec<(u64, bool, usize)> = Vec::new();
        let mut places = vec![0; operations.len()];
        for (index, operation) in operations.iter().enumerate() {
            let Some((ended, reply)) = &operation.ended else { continue };
            let Some(place) = self.place(operation, reply) else {
                return Some(format!("{operation:?} is not in the committed stream"));
            };
            places[index] = place;
            if operation.is_at_master {
                moments.push((operation.began, false, index));
                moments.push((*ended, true, index));
            }
        }
        moments.sort_unstable();
        let mut ended: BTreeMap<&[u8], (usize, usize)> = BTreeMap::new();
        let mut least = vec![(0, 0); operations.len()];
        for (_, is_end, index) in moments {
            let (operation, place) = (&operations[index], places[index]);
            if !is_end {
                least[index] = ended.get(&*operation.key).copied().unwrap_or_default();
                continue;
            }
            let latest = ended.entry(&operation.key).or_default();
            *latest = (*latest).max((place, index));
            let (before, other) = least[index];
            if place < before || operation.token.is_some() && place == before {
                return Some(format!(
                    "{operation:?} is seen before {:?}, which had ended when it began",
                    operations[other]
                ));
            }
        }
        None
    }

    fn place(&self, operation: &Operation, reply: &[u8]) -> Option<usize> {
        let course = self.0.get(&operation.key);
        match operation.token {
            // A count says itself which it was.
            Some(_) if operation.key[0] == b'c' => {
                let text = std::str::from_utf8(reply).ok()?.trim();
                let count = text.strip_prefix(':')?.parse().ok()?;
                course?.places.get(&count).map(|place| 2 * place)
            }
            Some(token) => course?.places.get(&token).map(|place| 2 * place),
            None if course.is_none() => (reply == nothing(&operation.key)).then_some(1),
            None => course?.states.iter().position(|state| state == reply).map(|place| 2 * place + 1),
        }
    }
}

fn nothing(key: &[u8]) -> Vec<u8> {
    if key[0] == b'l' { b"*0\r\n".to_vec() } else { b"$-1\r\n".to_vec() }
}

fn shown(key: &[u8], elements: &[Vec<u8>]) -> Vec<u8> {
    let bulk = |bytes: &[u8]| [format!("${}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
    match key[0] {
        b'l' => {
            let all: Vec<u8> = elements.iter().flat_map(|element| bulk(element)).collect();
            [format!("*{}\r\n", elements.len()).as_bytes(), &all].concat()
        }
        b'c' => bulk(elements.len().to_string().as_bytes()),
        _ => bulk(&elements.concat()),
    }
}

fn token_of(word: &[u8]) -> Option<u64> {
    std::str::from_utf8(word).ok()?.trim_matches(',').parse().ok()
}

#[test]
fn what_is_lost_stale_or_taken_back_is_found() {
    let mut stream = Vec::new();
    for words in
        [&["SELECT", "0"][..], &["SET", "s", "1"], &["SET", "s", "2"], &["INCR", "c"], &["RPUSH", "l", "7"]]
    {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        wire::encode_request(&mut stream, &words);
    }
    let history = History::of(&stream).unwrap();
    let write = |token, began, ended| Operation {
        key: b"s".to_vec(),
        token: Some(token),
        began,
        ended: Some((ended, b"+OK\r\n".to_vec())),
        is_at_master: true,
    };
    let read = |reply: &str, began, ended| Operation {
        token: None,
        ended: Some((ended, reply.as_bytes().to_vec())),
        ..write(0, began, ended)
    };
    let is_fine = |operations: &[Operation]| history.complaint(operations).is_none();
    assert!(is_fine(&[
        write(1, 0, 5),
        read("$1\r\n1\r\n", 6, 7),
        write(2, 6, 20),
        read("$1\r\n1\r\n", 8, 9)
    ]));
    assert!(!is_fine(&[write(1, 0, 5), read("$-1\r\n", 6, 7)]), "stale");
    assert!(!is_fine(&[read("$1\r\n2\r\n", 0, 5), read("$1\r\n1\r\n", 6, 7)]), "back again");
    assert!(!is_fine(&[write(3, 0, 5)]), "lost");
    assert!(!is_fine(&[read("$1\r\n3\r\n", 0, 5)]), "taken back");
    assert_eq!(history.last(b"l"), b"*1\r\n$1\r\n7\r\n");
    assert_eq!(history.last(b"c"), b"$1\r\n1\r\n");
}
