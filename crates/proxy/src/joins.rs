//! Several servers' replies made one, as one server would have given it. Pure: bytes to bytes; nothing is changed of what servers said, so that both
//! protocols keep their forms.

use std::io::Write;
use wire::number::parse_int;
use wire::skip_reply;

/// How replies become one. An error of any of them is the reply to all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Join {
    /// Their numbers added up.
    Sum,
    /// The first: all are the same.
    First,
    /// One array of elements, each from the array of its server, in the order of the request: which server's the next one is.
    Places(Vec<u16>),
    /// One array of all their elements.
    Concat,
    /// One that is not null, if there is one; those from this one on are looked at first.
    AnyOne(usize),
    /// One array of 0 and 1: 1 where all have that.
    Both,
    /// The number of one server, and so much more.
    Corrected(i64),
    /// A cursor of one server and its elements: the cursor becomes one of all. This is the server of so many.
    Cursor(usize, usize),
}

/// The error that stands for replies that do not go together.
const UNLIKE: &[u8] = b"-ERR proxy: the shards' replies are not of one kind\r\n";

impl Join {
    /// What the client gets.
    pub fn of(&self, parts: &[Vec<u8>]) -> Vec<u8> {
        match parts.iter().find(|part| part.first() == Some(&b'-')) {
            Some(error) => error.clone(),
            None => self.of_values(parts).unwrap_or_else(|| UNLIKE.to_vec()),
        }
    }

    fn of_values(&self, parts: &[Vec<u8>]) -> Option<Vec<u8>> {
        match self {
            Join::First => parts.first().cloned(),
            Join::Sum => {
                let mut numbers = parts.iter().map(|part| number(part));
                let sum = numbers.try_fold(0i64, |sum, number| sum.checked_add(number?))?;
                Some(format!(":{sum}\r\n").into_bytes())
            }
            Join::Corrected(by) => {
                let number = number(parts.first()?)?.saturating_add(*by).max(0);
                Some(format!(":{number}\r\n").into_bytes())
            }
            Join::AnyOne(from) => {
                let in_turn = parts.iter().cycle().skip(*from).take(parts.len());
                in_turn.clone().find(|part| !is_null(part)).or(parts.first()).cloned()
            }
            Join::Concat => {
                let arrays = parts.iter().map(|part| elements(part)).collect::<Option<Vec<_>>>()?;
                Some(array(&arrays.concat()))
            }
            Join::Places(places) => {
                let arrays = parts.iter().map(|part| elements(part)).collect::<Option<Vec<_>>>()?;
                let mut rests: Vec<_> = arrays.iter().map(|array| array.iter()).collect();
                let picked = places.iter().map(|part| rests.get_mut(usize::from(*part))?.next().copied());
                Some(array(&picked.collect::<Option<Vec<_>>>()?))
            }
            Join::Both => {
                let arrays = parts.iter().map(|part| elements(part)).collect::<Option<Vec<_>>>()?;
                let first = arrays.first()?;
                let both = |at: usize| arrays.iter().all(|array| array.get(at) == Some(&&b":1\r\n"[..]));
                let joined: Vec<&[u8]> =
                    (0..first.len()).map(|at| if both(at) { &b":1\r\n"[..] } else { b":0\r\n" }).collect();
                Some(array(&joined))
            }
            Join::Cursor(node, nodes) => {
                let [cursor, keys] = elements(parts.first()?)?[..] else { return None };
                let cursor = joined_cursor(text(cursor)?, *node, *nodes)?.to_string();
                let cursor = format!("${}\r\n{cursor}\r\n", cursor.len());
                Some(array(&[cursor.as_bytes(), keys]))
            }
        }
    }
}

/// Which server a cursor of all is of, and its own; None: it is none of ours.
pub fn own_cursor(text: &[u8], nodes: usize) -> Option<(usize, u64)> {
    let cursor: u64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    Some(((cursor % nodes as u64) as usize, cursor / nodes as u64))
}

/// The cursor of all that stands for one of a server: behind the end of one stands the beginning of the next.
fn joined_cursor(own: u64, node: usize, nodes: usize) -> Option<u64> {
    match own {
        0 if node + 1 == nodes => Some(0),
        0 => Some((node + 1) as u64),
        _ => own.checked_mul(nodes as u64)?.checked_add(node as u64),
    }
}

fn is_null(reply: &[u8]) -> bool {
    reply.starts_with(b"$-1") || reply.starts_with(b"_") || reply.starts_with(b"*-1")
}

fn number(reply: &[u8]) -> Option<i64> {
    parse_int(reply.strip_prefix(b":")?.strip_suffix(b"\r\n")?)
}

/// The number in a string.
fn text(reply: &[u8]) -> Option<u64> {
    let end = reply.iter().position(|byte| *byte == b'\n')?;
    std::str::from_utf8(reply.get(end + 1..)?.strip_suffix(b"\r\n")?).ok()?.parse().ok()
}

/// The elements of an array.
fn elements(reply: &[u8]) -> Option<Vec<&[u8]>> {
    let end = reply.iter().position(|byte| *byte == b'\n')? + 1;
    let count = parse_int(reply[..end].strip_prefix(b"*")?.strip_suffix(b"\r\n")?)?;
    let (mut rest, mut found) = (&reply[end..], Vec::new());
    for _ in 0..count.max(0) {
        let (element, behind) = rest.split_at(skip_reply(rest).ok()??);
        found.push(element);
        rest = behind;
    }
    Some(found)
}

fn array(elements: &[&[u8]]) -> Vec<u8> {
    let mut reply = Vec::with_capacity(16 + elements.iter().map(|element| element.len()).sum::<usize>());
    write!(reply, "*{}\r\n", elements.len()).expect("memory takes it");
    elements.iter().for_each(|element| reply.extend_from_slice(element));
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(join: &Join, parts: &[&str]) -> String {
        let parts: Vec<Vec<u8>> = parts.iter().map(|part| part.as_bytes().to_vec()).collect();
        String::from_utf8(join.of(&parts)).unwrap()
    }

    #[test]
    fn replies_become_what_one_server_would_say() {
        assert_eq!(joined(&Join::Sum, &[":1\r\n", ":2\r\n", ":0\r\n"]), ":3\r\n");
        assert_eq!(joined(&Join::Corrected(-2), &[":3\r\n"]), ":1\r\n");
        assert_eq!(joined(&Join::First, &["+OK\r\n", "+OK\r\n"]), "+OK\r\n");
        assert_eq!(
            joined(&Join::Concat, &["*1\r\n$1\r\na\r\n", "*0\r\n", "*2\r\n$1\r\nb\r\n$0\r\n\r\n"]),
            "*3\r\n$1\r\na\r\n$1\r\nb\r\n$0\r\n\r\n"
        );
        assert_eq!(
            joined(&Join::Places(vec![1, 0, 1]), &["*1\r\n$-1\r\n", "*2\r\n$1\r\nb\r\n$1\r\nc\r\n"]),
            "*3\r\n$1\r\nb\r\n$-1\r\n$1\r\nc\r\n"
        );
        assert_eq!(joined(&Join::AnyOne(1), &["$1\r\na\r\n", "_\r\n", "$-1\r\n"]), "$1\r\na\r\n");
        assert_eq!(joined(&Join::AnyOne(0), &["$-1\r\n", "$-1\r\n"]), "$-1\r\n");
        assert_eq!(joined(&Join::Both, &["*2\r\n:1\r\n:1\r\n", "*2\r\n:0\r\n:1\r\n"]), "*2\r\n:0\r\n:1\r\n");
    }

    #[test]
    fn an_error_is_the_reply_to_all() {
        assert_eq!(joined(&Join::Sum, &[":1\r\n", "-MISCONF no\r\n"]), "-MISCONF no\r\n");
        assert_eq!(joined(&Join::Sum, &[":1\r\n", "$1\r\na\r\n"]).as_bytes(), UNLIKE);
        assert_eq!(joined(&Join::Places(vec![0, 0]), &["*1\r\n$1\r\na\r\n"]).as_bytes(), UNLIKE);
        assert_eq!(joined(&Join::Sum, &[":9223372036854775807\r\n", ":1\r\n"]).as_bytes(), UNLIKE);
    }

    #[test]
    fn cursors_lead_through_all_servers() {
        let (mut cursor, mut seen) = ("0".to_owned(), Vec::new());
        // Each has two steps: 0, then 96, then its end.
        loop {
            let (node, own) = own_cursor(cursor.as_bytes(), 3).unwrap();
            seen.push((node, own));
            let next = if own == 0 { "96" } else { "0" };
            let reply =
                joined(&Join::Cursor(node, 3), &[&format!("*2\r\n${}\r\n{next}\r\n*0\r\n", next.len())]);
            cursor = reply.lines().nth(2).unwrap().to_owned();
            if cursor == "0" {
                break;
            }
        }
        assert_eq!(seen, [(0, 0), (0, 96), (1, 0), (1, 96), (2, 0), (2, 96)]);
        assert_eq!(own_cursor(b"x", 3), None);
        let far = joined(&Join::Cursor(1, 3), &["*2\r\n$20\r\n18446744073709551615\r\n*0\r\n"]);
        assert_eq!(far.as_bytes(), UNLIKE);
    }
}
