//! LCS: the longest common subsequence of two strings, and where it lies in them.
//!
//! The lengths of the classic table differ by nought or one from each cell to the next in its row, so a
//! row is kept as one bit per column and computed 64 columns at a time (Hyyro's recurrence). The same
//! bits tell which way to walk back. Pure, any thread.
//!
//! 1. Among equally long subsequences the one that Redis finds is found: from the end, a common byte is
//!    taken at once; else the first string is shortened only if that keeps a strictly longer rest.
//! 2. Inputs are refused by the size of the table that Redis would need; the memory used is at most a
//!    sixteenth of that.

#![expect(clippy::cast_possible_truncation, reason = "`check_size` has compared the lengths with 32 bits")]

use std::ops::RangeInclusive;

/// Why two strings are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LcsError {
    /// One has 2^32 - 2 bytes or more: "String too long for LCS".
    StringTooLong,
    /// "Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len".
    MemoryExceeded,
}

/// A run of bytes that both strings have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    /// Where it is in the first string.
    pub left: RangeInclusive<u32>,
    /// Where it is in the second string.
    pub right: RangeInclusive<u32>,
}

impl Match {
    /// Its length in bytes.
    pub fn bytes(&self) -> u32 {
        self.left.end() - self.left.start() + 1
    }
}

/// A longest common subsequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lcs {
    /// The subsequence itself.
    pub text: Vec<u8>,
    /// The runs that it is made of, last one first. MINMATCHLEN leaves out the short ones.
    pub matches: Vec<Match>,
}

/// The length of the longest common subsequence. `bytes_max` is `proto-max-bulk-len`.
pub fn lcs_len(left: &[u8], right: &[u8], bytes_max: u64) -> Result<u32, LcsError> {
    check_size(left, right, bytes_max)?;
    let masks = Masks::new(left, right);
    let mut row = masks.first_row();
    for &byte in left {
        masks.next_row(byte, &mut row);
    }
    let columns = right.len() as u32;
    // Bits beyond the last column stay set.
    let ones: u32 = row.iter().map(|word| word.count_ones()).sum();
    Ok(columns - (ones - (row.len() as u32 * 64 - columns)))
}

/// The longest common subsequence. `bytes_max` is `proto-max-bulk-len`.
pub fn lcs(left: &[u8], right: &[u8], bytes_max: u64) -> Result<Lcs, LcsError> {
    check_size(left, right, bytes_max)?;
    let masks = Masks::new(left, right);
    let mut row = masks.first_row();
    let mut rows = Vec::with_capacity(row.len() * left.len());
    for &byte in left {
        masks.next_row(byte, &mut row);
        rows.extend_from_slice(&row);
    }
    Ok(walk_back(left, right, &rows, row.len()))
}

fn check_size(left: &[u8], right: &[u8], bytes_max: u64) -> Result<(), LcsError> {
    const LEN_MAX: usize = u32::MAX as usize - 2;
    if left.len() > LEN_MAX || right.len() > LEN_MAX {
        return Err(LcsError::StringTooLong);
    }
    let cells = (left.len() as u128 + 1) * (right.len() as u128 + 1);
    if cells * size_of::<u32>() as u128 > u128::from(bytes_max) {
        return Err(LcsError::MemoryExceeded);
    }
    Ok(())
}

/// For each byte of the first string, the columns where the second one has it.
struct Masks {
    words: usize,
    /// One mask after another; `NO_MASK` marks bytes that the first string does not have, which never
    /// ask for theirs. So there are no more masks than rows.
    masks: Vec<u64>,
    starts: [usize; 256],
}

const NO_MASK: usize = usize::MAX;

impl Masks {
    fn new(left: &[u8], right: &[u8]) -> Self {
        let words = right.len().div_ceil(64);
        let mut starts = [NO_MASK; 256];
        let mut count = 0;
        for &byte in left {
            let start = &mut starts[usize::from(byte)];
            if *start == NO_MASK {
                *start = count * words;
                count += 1;
            }
        }
        let mut masks = vec![0; count * words];
        for (column, &byte) in right.iter().enumerate() {
            let start = starts[usize::from(byte)];
            if start != NO_MASK {
                masks[start + column / 64] |= 1 << (column % 64);
            }
        }
        Self { words, masks, starts }
    }

    /// The row before the first byte: no length grows anywhere. A clear bit is a column where it does.
    fn first_row(&self) -> Vec<u64> {
        vec![u64::MAX; self.words]
    }

    fn next_row(&self, byte: u8, row: &mut [u64]) {
        let start = self.starts[usize::from(byte)];
        let mut carry = false;
        for (word, mask) in row.iter_mut().zip(&self.masks[start..start + self.words]) {
            let common = *word & mask;
            let (sum, first) = word.overflowing_add(common);
            let (sum, second) = sum.overflowing_add(u64::from(carry));
            *word = sum | (*word & !mask);
            carry = first || second;
        }
    }
}

fn walk_back(left: &[u8], right: &[u8], rows: &[u64], words: usize) -> Lcs {
    let (mut text, mut matches) = (Vec::new(), Vec::new());
    let mut open: Option<Match> = None;
    let (mut at_left, mut at_right) = (left.len(), right.len());
    while at_left > 0 && at_right > 0 {
        let (row, column) = (at_left - 1, at_right - 1);
        if left[row] == right[column] {
            text.push(left[row]);
            let (row, column) = (row as u32, column as u32);
            open = Some(match open.take() {
                Some(run) => Match { left: row..=*run.left.end(), right: column..=*run.right.end() },
                None => Match { left: row..=row, right: column..=column },
            });
            (at_left, at_right) = (at_left - 1, at_right - 1);
            continue;
        }
        matches.extend(open.take());
        let grows_here = rows[row * words + column / 64] >> (column % 64) & 1 == 0;
        if grows_here {
            // The length here is more than one column before, hence that of the row above.
            at_left -= 1;
        } else {
            at_right -= 1;
        }
    }
    matches.extend(open);
    text.reverse();
    Lcs { text, matches }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 512 * 1024 * 1024;

    #[test]
    fn documented_example_is_met() {
        let found = lcs(b"ohmytext", b"mynewtext", LIMIT).unwrap();
        assert_eq!(found.text, b"mytext");
        let expected = [Match { left: 4..=7, right: 5..=8 }, Match { left: 2..=3, right: 0..=1 }];
        assert_eq!(found.matches, expected);
        assert_eq!(found.matches[0].bytes(), 4);
        assert_eq!(lcs_len(b"ohmytext", b"mynewtext", LIMIT), Ok(6));
    }

    #[test]
    fn strings_with_nothing_in_common_have_an_empty_subsequence() {
        for (left, right) in [("", ""), ("a", ""), ("", "a"), ("abc", "xyz")] {
            let found = lcs(left.as_bytes(), right.as_bytes(), LIMIT).unwrap();
            assert!(found.text.is_empty() && found.matches.is_empty());
            assert_eq!(lcs_len(left.as_bytes(), right.as_bytes(), LIMIT), Ok(0));
        }
    }

    #[test]
    fn table_beyond_the_limit_is_refused() {
        let string = vec![b'a'; 99];
        assert_eq!(lcs_len(&string, &string, 40_000), Ok(99));
        assert_eq!(lcs_len(&string, &string, 39_999), Err(LcsError::MemoryExceeded));
        assert_eq!(lcs(&string, &string, 39_999), Err(LcsError::MemoryExceeded));
    }

    #[test]
    fn long_strings_take_no_quadratic_memory_or_minutes() {
        let left: Vec<u8> = (0..11_000u32).map(|index| (index * 7 % 13) as u8).collect();
        let right: Vec<u8> = (0..11_000u32).map(|index| (index * 5 % 11) as u8).collect();
        let found = lcs(&left, &right, LIMIT).unwrap();
        assert_eq!(found.text.len() as u32, lcs_len(&left, &right, LIMIT).unwrap());
    }
}
