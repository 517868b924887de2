//! Rules as words, before anything is known of their meaning: how the words of a selector
//! in parentheses come together, and the sentences for what is wrong.

use command::Error;
use value::text::until_zero;

/// Why a rule is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleError {
    /// It names a command or category that does not exist.
    Unknown,
    /// It is no rule.
    Syntax,
    /// A key pattern where every key is allowed.
    KeyAfterAll,
    /// A channel where every channel is allowed.
    ChannelAfterAll,
    /// The password to be removed is not there.
    NoSuchPassword,
    /// A hash that is not 64 lower-case hexadecimal digits.
    BadHash,
    /// `+config|get|x`.
    FirstArgumentOfSubcommand,
    /// Two lines about one user.
    DuplicateUser,
}

impl RuleError {
    /// The sentence in replies and logs.
    pub fn sentence(self) -> &'static str {
        match self {
            RuleError::Unknown => "Unknown command or category name in ACL",
            RuleError::Syntax => "Syntax error",
            RuleError::KeyAfterAll => {
                "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any \
                 effect. Try 'resetkeys' to start with an empty list of patterns"
            }
            RuleError::ChannelAfterAll => {
                "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have \
                 any effect. Try 'resetchannels' to start with an empty list of channels"
            }
            RuleError::NoSuchPassword => "The password you are trying to remove from the user does not exist",
            RuleError::BadHash => {
                "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters"
            }
            RuleError::FirstArgumentOfSubcommand => "Allowing first-arg of a subcommand is not supported",
            RuleError::DuplicateUser => {
                "Duplicate user found. A user can only be defined once in config files"
            }
        }
    }
}

/// Why ACL SETUSER changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetUserError {
    /// This word opens a parenthesis that is not closed.
    Unmatched(Vec<u8>),
    /// This rule is refused.
    Rule(Vec<u8>, RuleError),
}

impl SetUserError {
    /// The reply.
    pub fn reply(&self) -> Error {
        match self {
            SetUserError::Unmatched(word) => {
                Error::quoting("ERR Unmatched parenthesis in acl selector starting at '", word, "'.")
            }
            SetUserError::Rule(rule, error) => {
                let after = format!("': {}", error.sentence());
                Error::quoting("ERR Error in ACL SETUSER modifier '", rule, &after)
            }
        }
    }
}

/// Joins the words of each selector in parentheses to one; other words stay as they are.
///
/// # Errors
/// The word that opens a parenthesis which is not closed.
pub fn join_selectors<W: AsRef<[u8]>>(words: &[W]) -> Result<Vec<Vec<u8>>, Vec<u8>> {
    let mut joined: Vec<Vec<u8>> = Vec::with_capacity(words.len());
    let mut open: Option<(&[u8], Vec<u8>)> = None;
    for word in words.iter().map(AsRef::as_ref) {
        let closes = word.last() == Some(&b')');
        open = match open.take() {
            None if word.first() == Some(&b'(') && !closes => Some((word, word.to_vec())),
            None => {
                joined.push(word.to_vec());
                None
            }
            Some((first, mut selector)) => {
                selector.push(b' ');
                selector.extend_from_slice(word);
                if closes {
                    joined.push(selector);
                    None
                } else {
                    Some((first, selector))
                }
            }
        };
    }
    match open {
        Some((first, _)) => Err(first.to_vec()),
        None => Ok(joined),
    }
}

/// Whether a word would fall apart, or end, in a line of rules.
pub fn has_space(word: &[u8]) -> bool {
    word.iter().any(|byte| b" \t\n\x0b\x0c\r\0".contains(byte))
}

/// Whether a rule is this word, in any case.
pub fn is(rule: &[u8], word: &str) -> bool {
    rule.eq_ignore_ascii_case(word.as_bytes())
}

/// A rule as it may be shown: up to a zero byte, as Redis prints it.
pub fn shown(rule: &[u8]) -> String {
    String::from_utf8_lossy(until_zero(rule)).into_owned()
}
