//! Transcripts of masters, cut in every way, cut short and damaged: each machine says the same however the bytes come, ends
//! where they are no protocol, and keeps no more than it may.
//!
//! `TARN_SEED` and `TARN_STEPS` repeat and lengthen the seeded ones.

mod damage;
mod handshake;
mod stream;
mod transfer;

use super::*;
use sys::Prng;

/// Forty hexadecimal digits.
const ID: &str = "0123456789abcdef0123456789abcdef01234567";
/// Others.
const OTHER_ID: &str = "fedcba9876543210fedcba9876543210fedcba98";

/// Ways to cut so many bytes: whole, in two at every place, byte by byte, and some by chance. Each is a list of lengths.
fn cuttings(bytes: usize, prng: &mut Prng) -> Vec<Vec<usize>> {
    let mut cuttings = vec![vec![bytes], vec![1; bytes]];
    cuttings.extend((0..=bytes).map(|at| vec![at, bytes - at]));
    cuttings.extend((0..20).map(|_| random_cutting(bytes, prng)));
    cuttings
}

/// One of them, by chance.
fn random_cutting(bytes: usize, prng: &mut Prng) -> Vec<usize> {
    let longest = [2, 7, 60, 3000][usize::try_from(prng.below(4)).unwrap()];
    let mut left = bytes;
    let mut cutting = Vec::new();
    while left > 0 {
        let length = (1 + usize::try_from(prng.below(longest)).unwrap()).min(left);
        cutting.push(length);
        left -= length;
    }
    cutting
}

/// The pieces of some bytes.
fn pieces<'a>(mut bytes: &'a [u8], cutting: &[usize]) -> Vec<&'a [u8]> {
    let pieces = cutting.iter().map(|&length| {
        let (piece, rest) = bytes.split_at(length);
        bytes = rest;
        piece
    });
    pieces.collect()
}

/// Requests as a master writes them, each of words with blanks between them.
fn requests(lines: &[&str]) -> Vec<u8> {
    let mut out = Vec::new();
    for line in lines {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        wire::encode_request(&mut out, &words);
    }
    out
}
