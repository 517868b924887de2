//! Naive models of what the crate computes: slow, short, and written from the definitions.

use value::bits::{Bit, BitOp, IndexRange, IndexUnit, Search};
use value::glob::Case;
use value::lcs::{Lcs, Match};

/// Tries every length of every star.
pub fn glob(pattern: &[u8], text: &[u8], case: Case) -> bool {
    if text.is_empty() {
        return pattern.is_empty();
    }
    let Some(&first) = pattern.first() else {
        return false;
    };
    if first == b'*' {
        let rest = &pattern[1..];
        let all_stars = rest.iter().all(|&byte| byte == b'*');
        return all_stars || (0..text.len()).any(|eaten| glob(rest, &text[eaten..], case));
    }
    let (members, rest) = element(pattern, case);
    let at_end = text.len() == 1 && rest.iter().all(|&byte| byte == b'*');
    members[usize::from(text[0])] && (at_end || glob(rest, &text[1..], case))
}

/// The set of bytes that the first element matches, and the pattern after it.
fn element(pattern: &[u8], case: Case) -> ([bool; 256], &[u8]) {
    let mut members = [false; 256];
    let lower = |byte: u8| if case == Case::Insensitive { byte.to_ascii_lowercase() } else { byte };
    let mut add = |low: u8, high: u8| {
        let (low, high) = if low as i8 > high as i8 { (high, low) } else { (low, high) };
        for byte in 0..=255u8 {
            let inside = lower(low) as i8 <= lower(byte) as i8 && lower(byte) as i8 <= lower(high) as i8;
            members[usize::from(byte)] |= inside;
        }
    };
    match pattern {
        [b'?', rest @ ..] => ([true; 256], rest),
        [b'\\', escaped, rest @ ..] => {
            add(*escaped, *escaped);
            (members, rest)
        }
        [b'[', class @ ..] => {
            let negated = class.first() == Some(&b'^');
            let mut rest = if negated { &class[1..] } else { class };
            let mut exact = Vec::new();
            loop {
                rest = match rest {
                    [] => break,
                    [b'\\', escaped, rest @ ..] => {
                        exact.push(*escaped);
                        rest
                    }
                    [b']', ..] => break,
                    [low, b'-', high, rest @ ..] => {
                        add(*low, *high);
                        rest
                    }
                    [literal, rest @ ..] => {
                        add(*literal, *literal);
                        rest
                    }
                };
            }
            exact.iter().for_each(|&byte| members[usize::from(byte)] = true);
            (members.map(|member| member != negated), rest.get(1..).unwrap_or(&[]))
        }
        [literal, rest @ ..] => {
            add(*literal, *literal);
            (members, rest)
        }
        [] => (members, &[]),
    }
}

pub fn crc64(mut crc: u64, bytes: &[u8]) -> u64 {
    for &byte in bytes {
        for bit in 0..8 {
            let low = (crc ^ u64::from(byte >> bit)) & 1;
            crc = (crc >> 1) ^ (low * 0x95ac_9329_ac4b_c9b5);
        }
    }
    crc
}

pub fn lzf_decompress(stream: &[u8]) -> Option<Vec<u8>> {
    let mut input = stream.iter().map(|&byte| usize::from(byte));
    let mut out = Vec::new();
    while let Some(header) = input.next() {
        if header < 32 {
            for _ in 0..=header {
                out.push(input.next()? as u8);
            }
        } else {
            let count = 2 + if header >= 224 { 7 + input.next()? } else { header / 32 };
            let distance = header % 32 * 256 + input.next()? + 1;
            for _ in 0..count {
                out.push(*out.get(out.len().checked_sub(distance)?)?);
            }
        }
    }
    Some(out)
}

pub fn bit(bytes: &[u8], offset: u64) -> Bit {
    let byte = bytes.get((offset / 8) as usize).copied().unwrap_or(0);
    if byte >> (7 - offset % 8) & 1 == 1 { Bit::One } else { Bit::Zero }
}

fn offsets(bytes: &[u8], range: IndexRange) -> Vec<u64> {
    let width = if range.unit == IndexUnit::Byte { 8 } else { 1 };
    let total = bytes.len() as i64 * 8 / width;
    let absolute = |index: i64| if index < 0 { (total + index).max(0) } else { index };
    let end = absolute(range.end).min(total - 1);
    let start = absolute(range.start).min(total);
    (start * width..(end + 1) * width).map(|offset| offset as u64).collect()
}

pub fn bitcount(bytes: &[u8], range: IndexRange) -> u64 {
    if range.start < 0 && range.end < 0 && range.start > range.end {
        return 0;
    }
    offsets(bytes, range).iter().filter(|&&offset| bit(bytes, offset) == Bit::One).count() as u64
}

pub fn bitpos(bytes: &[u8], wanted: Bit, search: Search) -> Option<u64> {
    let (range, is_open) = match search {
        Search::From(start) => (IndexRange { start, end: -1, unit: IndexUnit::Byte }, true),
        Search::Within(range) => (range, false),
    };
    let mut offsets = offsets(bytes, range);
    if is_open && !offsets.is_empty() {
        offsets.push(bytes.len() as u64 * 8);
    }
    offsets.into_iter().find(|&offset| bit(bytes, offset) == wanted)
}

pub fn bitop(op: BitOp, inputs: &[&[u8]]) -> Vec<u8> {
    let len = inputs.iter().map(|input| input.len()).max().unwrap_or(0);
    let byte = |index: usize| {
        let mut bytes = inputs.iter().map(|input| input.get(index).copied().unwrap_or(0));
        let first = bytes.next().unwrap_or(0);
        bytes.fold(if op == BitOp::Not { !first } else { first }, |sum, byte| match op {
            BitOp::And => sum & byte,
            BitOp::Or => sum | byte,
            BitOp::Xor | BitOp::Not => sum ^ byte,
        })
    };
    (0..len).map(byte).collect()
}

pub fn field_get(bytes: &[u8], offset: u64, width: u64, signed: bool) -> i64 {
    let mut value = 0i128;
    for at in offset..offset + width {
        value = value * 2 + i128::from(bit(bytes, at) == Bit::One);
    }
    if signed && value >> (width - 1) == 1 {
        value -= 1 << width;
    }
    value as i64
}

/// The classic table, and Redis' walk back through it.
pub fn lcs(left: &[u8], right: &[u8]) -> Lcs {
    let mut table = vec![vec![0u32; right.len() + 1]; left.len() + 1];
    for (row, byte) in left.iter().enumerate() {
        for (column, other) in right.iter().enumerate() {
            table[row + 1][column + 1] = if byte == other {
                table[row][column] + 1
            } else {
                table[row][column + 1].max(table[row + 1][column])
            };
        }
    }
    let (mut row, mut column) = (left.len(), right.len());
    let mut found = Lcs { text: Vec::new(), matches: Vec::new() };
    let mut is_contiguous = false;
    while row > 0 && column > 0 {
        if left[row - 1] == right[column - 1] {
            (row, column) = (row - 1, column - 1);
            found.text.insert(0, left[row]);
            let (start, other) = (row as u32, column as u32);
            match found.matches.last_mut() {
                Some(run) if is_contiguous => {
                    *run = Match { left: start..=*run.left.end(), right: other..=*run.right.end() };
                }
                _ => found.matches.push(Match { left: start..=start, right: other..=other }),
            }
            is_contiguous = true;
        } else {
            is_contiguous = false;
            if table[row - 1][column] > table[row][column - 1] {
                row -= 1;
            } else {
                column -= 1;
            }
        }
    }
    found
}
