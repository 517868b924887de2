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
    /// A text used by one command only, in full, with its code.
    Text(Cow<'static, str>),
}

impl Error {
    /// An error of one command, given in full with its code (`ERR ...`).
    pub const fn text(line: &'static str) -> Error {
        Error::Text(Cow::Borrowed(line))
    }

    /// The wrong number of arguments for a command, by its full name (`client|list`).
    pub fn arity(name: &str) -> Error {
        Error::Text(format!("ERR wrong number of arguments for '{name}' command").into())
    }

    /// An expiry that is not positive or lies too far away, for the command named.
    pub fn expire_time(name: &str) -> Error {
        Error::Text(format!("ERR invalid expire time in '{name}' command").into())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Error::Syntax => "ERR syntax error",
            Error::NotInteger => "ERR value is not an integer or out of range",
            Error::NotFloat => "ERR value is not a valid float",
            Error::WrongType => "WRONGTYPE Operation against a key holding the wrong kind of value",
            Error::StringTooLong => "ERR string exceeds maximum allowed size (proto-max-bulk-len)",
            Error::Text(line) => line,
        })
    }
}

impl std::error::Error for Error {}
