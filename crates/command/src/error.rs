//! What a command can answer instead of its reply: the exact texts of Redis,
//! all in this file.

use std::borrow::Cow;
use std::fmt;

/// A handler's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The client's mistake, or a state that forbids the command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// Something in the arguments does not parse.
    Syntax,
    /// An argument is not a 64-bit integer, or out of the range allowed.
    NotInteger,
    /// An argument or value is not a float.
    NotFloat,
    /// The key holds another type than the command works on.
    WrongType,
    /// An edit would make a string longer than `proto-max-bulk-len` allows.
    StringTooLong,
    /// A text used by one command only, in full, with its code. It may quote bytes of the client, which need not be
    /// UTF-8.
    Text(Cow<'static, [u8]>),
}

impl From<keyspace::WrongType> for Error {
    fn from(_: keyspace::WrongType) -> Error {
        Error::WrongType
    }
}

impl Error {
    /// An error of one command, given in full with its code (`ERR ...`).
    pub const fn text(line: &'static str) -> Error {
        Error::Text(Cow::Borrowed(line.as_bytes()))
    }

    /// As [`Error::text`], for a line made up on the way.
    pub fn line(line: impl Into<Vec<u8>>) -> Error {
        Error::Text(Cow::Owned(line.into()))
    }

    /// A line that quotes a word of the client as Redis prints it, as a C string: up to a zero byte.
    pub fn quoting(before: &str, word: &[u8], after: &str) -> Error {
        Error::line([before.as_bytes(), until_zero(word), after.as_bytes()].concat())
    }

    /// The line to be sent, its code first.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Error::Syntax => b"ERR syntax error",
            Error::NotInteger => b"ERR value is not an integer or out of range",
            Error::NotFloat => b"ERR value is not a valid float",
            Error::WrongType => b"WRONGTYPE Operation against a key holding the wrong kind of value",
            Error::StringTooLong => b"ERR string exceeds maximum allowed size (proto-max-bulk-len)",
            Error::Text(line) => line,
        }
    }

    /// The wrong number of arguments for a command, by its full name (`client|list`).
    pub fn arity(name: &str) -> Error {
        Error::line(format!("ERR wrong number of arguments for '{name}' command"))
    }

    /// An expiry that is not positive or lies too far away, for the command named.
    pub fn expire_time(name: &str) -> Error {
        Error::line(format!("ERR invalid expire time in '{name}' command"))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(self.as_bytes()))
    }
}

impl std::error::Error for Error {}

/// Texts of the generic commands.
impl Error {
    /// A key that has to be there is not.
    pub const NO_SUCH_KEY: Error = Error::text("ERR no such key");
    /// COPY or MOVE onto itself.
    pub const SAME_OBJECT: Error = Error::text("ERR source and destination objects are the same");
    /// A database number beyond `databases`.
    pub const DB_INDEX: Error = Error::text("ERR DB index is out of range");
    /// An integer that does not fit 32 bits.
    pub const OUTSIDE_INT32: Error =
        Error::text("ERR value is out of range, value must between -2147483648 and 2147483647");
    /// The least 64-bit integer where its negative has to be one too.
    pub const OUTSIDE_POSITIVE_INT64: Error = Error::text(
        "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
    );
    /// SWAPDB's first argument is no number.
    pub const FIRST_DB_INDEX: Error = Error::text("ERR invalid first DB index");
    /// SWAPDB's second argument is no number.
    pub const SECOND_DB_INDEX: Error = Error::text("ERR invalid second DB index");
    /// SCAN's cursor is no number.
    pub const CURSOR: Error = Error::text("ERR invalid cursor");
    /// EXPIRE with NX and another condition.
    pub const EXPIRE_NX: Error =
        Error::text("ERR NX and XX, GT or LT options at the same time are not compatible");
    /// EXPIRE with GT and LT.
    pub const EXPIRE_GT_LT: Error = Error::text("ERR GT and LT options at the same time are not compatible");
    /// RESTORE over a key that is there.
    pub const BUSY_KEY: Error = Error::text("BUSYKEY Target key name already exists.");
    /// RESTORE's time to live is negative.
    pub const RESTORE_TTL: Error = Error::text("ERR Invalid TTL value, must be >= 0");
    /// RESTORE's idle time is negative.
    pub const RESTORE_IDLE_TIME: Error = Error::text("ERR Invalid IDLETIME value, must be >= 0");
    /// RESTORE's frequency does not fit 8 bits.
    pub const RESTORE_FREQUENCY: Error = Error::text("ERR Invalid FREQ value, must be >= 0 and <= 255");
    /// RESTORE's payload has a bad footer.
    pub const DUMP_FOOTER: Error = Error::text("ERR DUMP payload version or checksum are wrong");
    /// RESTORE's payload has a good footer and a bad value.
    pub const DUMP_FORMAT: Error = Error::text("ERR Bad data format");
    /// OBJECT FREQ without an LFU policy.
    pub const NO_FREQUENCY: Error = Error::text(
        "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when \
         switching between policies at runtime LRU and LFU data will take some time to adjust.",
    );
    /// OBJECT IDLETIME under an LFU policy.
    pub const NO_IDLE_TIME: Error = Error::text(
        "ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that when switching \
         between policies at runtime LRU and LFU data will take some time to adjust.",
    );

    /// EXPIRE with a word that is no condition.
    pub fn unsupported_option(word: &[u8]) -> Error {
        Error::quoting("ERR Unsupported option ", word, "")
    }

    /// A container command with a word that is none of its subcommands.
    pub fn unknown_subcommand(container: &str, word: &[u8]) -> Error {
        const SHOWN_BYTES_MAX: usize = 128;
        let word = &word[..word.len().min(SHOWN_BYTES_MAX)];
        let container = container.to_ascii_uppercase();
        Error::quoting("ERR unknown subcommand '", word, &format!("'. Try {container} HELP."))
    }
}

/// A client's bytes as Redis prints them into an error: up to a zero byte.
pub fn until_zero(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    &bytes[..end]
}
