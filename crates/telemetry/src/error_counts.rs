//! How many error replies there were of each kind: INFO's `errorstat_` lines.
//!
//! Any worker counts, under one lock: errors are not what a server is fast at. The
//! number of kinds is limited, since scripts and users can make up their own.

use parking_lot::Mutex;
use std::collections::BTreeMap;

/// Kinds counted one by one; further ones are not counted by kind.
const KINDS_MAX: usize = 128;
/// An error without a code of at most this length counts as `ERR`.
const CODE_BYTES_MAX: usize = 31;

/// Counts by code (`ERR`, `WRONGTYPE` ...).
#[derive(Debug, Default)]
pub struct ErrorCounts {
    by_code: Mutex<BTreeMap<String, u64>>,
}

impl ErrorCounts {
    /// Counts the error with this line, which begins with its code.
    pub fn note(&self, line: &[u8]) {
        let end = line.iter().take(CODE_BYTES_MAX + 1).position(|byte| *byte == b' ').unwrap_or(0);
        let code = std::str::from_utf8(&line[..end]).ok().filter(|code| !code.is_empty()).unwrap_or("ERR");
        let mut by_code = self.by_code.lock();
        if let Some(count) = by_code.get_mut(code) {
            *count += 1;
        } else if by_code.len() < KINDS_MAX {
            by_code.insert(code.to_owned(), 1);
        }
    }

    /// All counts, sorted by code.
    pub fn all(&self) -> Vec<(String, u64)> {
        self.by_code.lock().iter().map(|(code, count)| (code.clone(), *count)).collect()
    }

    /// Begins again.
    pub fn reset(&self) {
        self.by_code.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_count_by_their_code_and_codes_are_limited() {
        let counts = ErrorCounts::default();
        ["ERR no", "ERR other", "WRONGTYPE x", "nocode", ""]
            .iter()
            .for_each(|line| counts.note(line.as_bytes()));
        assert_eq!(counts.all(), [("ERR".to_owned(), 4), ("WRONGTYPE".to_owned(), 1)]);
        (0..1000).for_each(|code| counts.note(format!("E{code} x").as_bytes()));
        assert_eq!(counts.all().len(), KINDS_MAX);
        counts.reset();
        assert!(counts.all().is_empty());
    }
}
