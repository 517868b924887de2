//! Why a connection to a master was given up: one sentence for the log and for `INFO`.

use std::fmt;

/// Bytes of what the master said that a sentence quotes at most.
const QUOTED_BYTES_MAX: usize = 256;

/// Why the connection has to be closed. It is retried from the last place that was reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending(String);

impl Ending {
    /// With these words.
    pub(super) fn new(sentence: impl Into<String>) -> Ending {
        Ending(sentence.into())
    }

    /// With these words, and what the master said, made printable.
    pub(super) fn quoting(words: &str, line: &[u8]) -> Ending {
        Ending(format!("{words}{}", printable(line)))
    }

    /// The sentence.
    #[must_use]
    pub fn sentence(&self) -> &str {
        &self.0
    }
}

/// The beginning of what a master said, with a question mark for whatever a log should not hold.
pub(super) fn printable(line: &[u8]) -> String {
    let quoted = &line[..line.len().min(QUOTED_BYTES_MAX)];
    quoted.iter().map(|&byte| if matches!(byte, b' '..=b'~') { char::from(byte) } else { '?' }).collect()
}

impl fmt::Display for Ending {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Ending {}
