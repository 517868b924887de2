//! Arguments of stream commands: ids that lie close together, a few groups and consumers, and idle times of
//! which none is near.
//!
//! Most new ids ask for the next number of one of a few milliseconds, so that most are added and ids named
//! elsewhere are often there. An id made of the present moment differs between servers, so it is rare.

use super::{integer, pick};
use sys::Prng;

/// A value for an argument of a stream command; none if it is none of its own kind.
pub(super) fn argument(prng: &mut Prng, command: &str, name: &str) -> Option<Vec<u8>> {
    if !command.starts_with('x') {
        return None;
    }
    Some(match name {
        "id" if command == "xadd" => new_id(prng),
        "id" if command == "xreadgroup" && !prng.one_in(4) => b">".to_vec(),
        "id" if command == "xread" => read_id(prng),
        "id" | "lastid" => id(prng),
        // Above what may have been added or deleted: where it is not, Redis 7.0 goes a way of its own.
        "last-id" => format!("{}-{}", MILLISECONDS + 1, NUMBERS + prng.below(NUMBERS)).into_bytes(),
        "max-deleted-id" => format!("{MILLISECONDS}-{}", prng.below(NUMBERS)).into_bytes(),
        "start" | "end" => edge(prng),
        "threshold" if prng.one_in(2) => integer(prng, 0, 12),
        "threshold" => id(prng),
        "group" => pick::<&[u8]>(prng, &[b"g", b"g", b"g", b"h", b"", b"nosuch"]).to_vec(),
        "consumer" => pick::<&[u8]>(prng, &[b"alice", b"alice", b"bob", b"carol", b"bobby", b""]).to_vec(),
        "entries-added" | "entries-read" => integer(prng, -2, 40),
        "min-idle-time" => {
            pick::<&[u8]>(prng, &[b"0", b"0", b"0", b"1800000", b"99999999999", b"-1"]).to_vec()
        }
        "ms" => pick::<&[u8]>(prng, &[b"0", b"3600000", b"-5", b"9223372036854775807"]).to_vec(),
        // Nobody adds an entry meanwhile: a longer wait would only last longer.
        "milliseconds" => pick::<&[u8]>(prng, &[b"1", b"2", b"1", b"-1", b"x"]).to_vec(),
        _ => return None,
    })
}

/// Makes the ids of XREAD as many as the keys, most of the time.
pub fn balance(prng: &mut Prng, name: &str, request: &mut Vec<Vec<u8>>) {
    let Some(at) = request.iter().position(|word| word.eq_ignore_ascii_case(b"streams")) else { return };
    let words = request.len() - at - 1;
    if words.is_multiple_of(2) || prng.one_in(10) {
        return;
    }
    request.truncate(request.len() - words % 2);
    let keys = words / 2;
    for word in &mut request[at + 1 + keys..] {
        *word = argument(prng, name, "id").expect("it has ids");
    }
    for word in &mut request[at + 1..at + 1 + keys] {
        *word = super::collections::key_of(prng, command::Group::Stream);
    }
}

const MILLISECONDS: u64 = 4;

/// Numbers within the last millisecond, which most ids fall into.
const NUMBERS: u64 = 24;

fn new_id(prng: &mut Prng) -> Vec<u8> {
    match prng.below(24) {
        0 => b"*".to_vec(),
        1..=3 => id(prng),
        4 => pick::<&[u8]>(
            prng,
            &[b"0-*", b"0-0", b"0", b"-", b"+", b"18446744073709551615-*", b"4--1", b"4- 9"],
        )
        .to_vec(),
        5..=8 => format!("{}-*", 1 + prng.below(MILLISECONDS + 1)).into_bytes(),
        _ => format!("{MILLISECONDS}-*").into_bytes(),
    }
}

fn id(prng: &mut Prng) -> Vec<u8> {
    match prng.below(20) {
        0 => pick::<&[u8]>(
            prng,
            &[b"-", b"+", b"$", b">", b"5-5", b"18446744073709551615-18446744073709551615"],
        )
        .to_vec(),
        1 => format!("{}", prng.below(MILLISECONDS + 2)).into_bytes(),
        2..=6 => format!("{}-{}", prng.below(MILLISECONDS + 1), prng.below(4)).into_bytes(),
        _ => format!("{MILLISECONDS}-{}", prng.below(NUMBERS)).into_bytes(),
    }
}

fn read_id(prng: &mut Prng) -> Vec<u8> {
    if prng.one_in(6) { b"$".to_vec() } else { id(prng) }
}

fn edge(prng: &mut Prng) -> Vec<u8> {
    match prng.below(5) {
        0 => b"-".to_vec(),
        1 => b"+".to_vec(),
        2 => [b"(".as_slice(), &id(prng)].concat(),
        _ => id(prng),
    }
}
