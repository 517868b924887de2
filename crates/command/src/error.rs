//! What a command can answer instead of its reply: the exact texts of Redis,
//! all in this file.

use std::borrow::Cow;
use std::fmt;
use value::text::until_zero;

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
    /// A slow script has what it needs. Nothing was done; it may run again.
    InUse,
    /// What is on disk only cannot be read: this line says why. Nothing was done.
    Unreadable(Box<[u8]>),
    /// The reply holds an error, which has been counted.
    Replied,
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

    /// A stream's reader, by its name as given, may not say in a script how long to wait.
    pub fn block_in_script(name: &[u8]) -> Error {
        Error::quoting("ERR ", name, " command is not allowed with BLOCK option from scripts")
    }

    /// The line to be sent, its code first.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Error::Syntax => b"ERR syntax error",
            Error::NotInteger => b"ERR value is not an integer or out of range",
            Error::NotFloat => b"ERR value is not a valid float",
            Error::WrongType => b"WRONGTYPE Operation against a key holding the wrong kind of value",
            Error::StringTooLong => b"ERR string exceeds maximum allowed size (proto-max-bulk-len)",
            Error::InUse => {
                b"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."
            }
            Error::Unreadable(line) => line,
            Error::Replied => b"ERR",
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
    /// A command on fields of a hash does not say which.
    pub const FIELDS_MISSING: Error =
        Error::text("ERR Mandatory argument FIELDS is missing or not at the right position");
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
    /// SORT by numbers over what is none.
    pub const SORT_SCORE: Error = Error::text("ERR One or more scores can't be converted into double");
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

/// Texts of commands that may wait.
impl Error {
    /// A timeout that is no number.
    pub const TIMEOUT_NOT_FLOAT: Error = Error::text("ERR timeout is not a float or out of range");
    /// A timeout in milliseconds that is no number.
    pub const TIMEOUT_NOT_INTEGER: Error = Error::text("ERR timeout is not an integer or out of range");
    /// A timeout below zero.
    pub const TIMEOUT_NEGATIVE: Error = Error::text("ERR timeout is negative");
    /// A timeout that ends beyond the last moment.
    pub const TIMEOUT_OUT_OF_RANGE: Error = Error::text("ERR timeout is out of range");
}

/// Texts of the list commands.
impl Error {
    /// LSET of an element that is not there.
    pub const INDEX_OUT_OF_RANGE: Error = Error::text("ERR index out of range");
    /// LPOS with a rank of zero.
    pub const RANK_ZERO: Error = Error::text(
        "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use negative \
         to start from the end of the list",
    );
    /// An integer whose sign cannot be changed.
    pub const OUTSIDE_SYMMETRIC_INT64: Error = Error::text(
        "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
    );
}

/// Texts of the streams.
impl Error {
    /// A word that is no id of a stream's entry.
    pub const STREAM_ID: Error = Error::text("ERR Invalid stream ID specified as stream command argument");
    /// An interval that begins behind the highest id.
    pub const INTERVAL_START: Error = Error::text("ERR invalid start ID for the interval");
    /// An interval that ends before the lowest id.
    pub const INTERVAL_END: Error = Error::text("ERR invalid end ID for the interval");
    /// XADD of 0-0.
    pub const XADD_ZERO: Error = Error::text("ERR The ID specified in XADD must be greater than 0-0");
    /// XADD of an id that is not above the last one.
    pub const XADD_TOO_SMALL: Error =
        Error::text("ERR The ID specified in XADD is equal or smaller than the target stream top item");
    /// XADD after the highest id.
    pub const XADD_EXHAUSTED: Error =
        Error::text("ERR The stream has exhausted the last possible ID, unable to add more items");
    /// XADD of more than a node may hold.
    pub const XADD_TOO_LONG: Error = Error::text("ERR Elements are too large to be stored");
    /// Two bounds for trimming.
    pub const TRIM_TWICE: Error =
        Error::text("ERR syntax error, MAXLEN and MINID options at the same time are not compatible");
    /// A negative MAXLEN.
    pub const TRIM_MAXLEN: Error = Error::text("ERR The MAXLEN argument must be >= 0.");
    /// A negative LIMIT.
    pub const TRIM_LIMIT: Error = Error::text("ERR The LIMIT argument must be >= 0.");
    /// LIMIT without a bound.
    pub const TRIM_LIMIT_ALONE: Error =
        Error::text("ERR syntax error, LIMIT cannot be used without specifying a trimming strategy");
    /// LIMIT with exact trimming.
    pub const TRIM_LIMIT_EXACT: Error =
        Error::text("ERR syntax error, LIMIT cannot be used without the special ~ option");
    /// XTRIM without a bound.
    pub const TRIM_UNBOUND: Error =
        Error::text("ERR syntax error, XTRIM must be called with a trimming strategy");
    /// XSETID's ENTRIESADDED is negative.
    pub const XSETID_ADDED: Error = Error::text("ERR entries_added must be positive");
    /// XSETID's id is below its MAXDELETEDID.
    pub const XSETID_BELOW_GIVEN: Error =
        Error::text("ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id");
    /// XSETID's id is below one that was deleted.
    pub const XSETID_BELOW_DELETED: Error =
        Error::text("ERR The ID specified in XSETID is smaller than current max_deleted_entry_id");
    /// XSETID's id is below the last entry.
    pub const XSETID_BELOW_TOP: Error =
        Error::text("ERR The ID specified in XSETID is smaller than the target stream top item");
    /// XSETID's ENTRIESADDED is below the number of entries.
    pub const XSETID_BELOW_LENGTH: Error =
        Error::text("ERR The entries_added specified in XSETID is smaller than the target stream length");
    /// XREAD with GROUP.
    pub const XREAD_GROUP: Error =
        Error::text("ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead.");
    /// XREAD with NOACK.
    pub const XREAD_NOACK: Error =
        Error::text("ERR The NOACK option is only supported by XREADGROUP. You called XREAD instead.");
    /// XREAD of `>`.
    pub const XREAD_NEW: Error = Error::text(
        "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option.",
    );
    /// XREADGROUP without GROUP.
    pub const XREADGROUP_NO_GROUP: Error = Error::text("ERR Missing GROUP option for XREADGROUP");
    /// XREADGROUP of `$`.
    pub const XREADGROUP_LAST: Error = Error::text(
        "ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the history of this \
         consumer by specifying a proper ID, or use the > ID to get new messages. The $ ID would just return \
         an empty result set.",
    );
    /// XGROUP over a key that is not there.
    pub const XGROUP_NO_KEY: Error = Error::text(
        "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the \
         MKSTREAM option to create an empty stream automatically.",
    );
    /// A negative ENTRIESREAD other than -1.
    pub const XGROUP_ENTRIES_READ: Error = Error::text("ERR value for ENTRIESREAD must be positive or -1");
    /// A group of that name is there.
    pub const BUSY_GROUP: Error = Error::text("BUSYGROUP Consumer Group name already exists");
    /// XAUTOCLAIM with more entries than any memory holds.
    pub const XAUTOCLAIM_TOO_MANY: Error =
        Error::text("ERR Insufficient memory, failed allocating transient memory, COUNT too high.");

    /// XREAD with unequal numbers of keys and ids, by the command's name.
    pub fn unbalanced_streams(name: &str, sign: char) -> Error {
        Error::line(format!(
            "ERR Unbalanced '{name}' list of streams: for each stream key an ID or '{sign}' must be specified."
        ))
    }

    /// No such key or group.
    pub fn no_group(key: &[u8], group: &[u8], after: &str) -> Error {
        let (key, group) = (until_zero(key), until_zero(group));
        Error::line(
            [b"NOGROUP No such key '", key, b"' or consumer group '", group, b"'", after.as_bytes()].concat(),
        )
    }

    /// No such group in a stream that is there.
    pub fn no_group_in(group: &[u8], key: &[u8]) -> Error {
        let (key, group) = (until_zero(key), until_zero(group));
        Error::line([b"NOGROUP No such consumer group '", group, b"' for key name '", key, b"'"].concat())
    }

    /// A subcommand with words that it does not know.
    pub fn subcommand_syntax(container: &str, word: &[u8]) -> Error {
        const SHOWN_BYTES_MAX: usize = 128;
        let word = &word[..word.len().min(SHOWN_BYTES_MAX)];
        Error::quoting(
            "ERR unknown subcommand or wrong number of arguments for '",
            word,
            &format!("'. Try {container} HELP."),
        )
    }
}
