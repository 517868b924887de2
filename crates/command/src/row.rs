//! The shape of a command: one row says everything about it but what it does,
//! and names the handler that does it.
//!
//! Dispatch, COMMAND, ACL categories, cluster routing, the command generator of
//! the differential tester and the documentation all read these rows.
//!
//! Rows are constants built by chaining, so a row stays a few short lines:
//!
//! ```ignore
//! row("get", 2, Read(get)).flags(Flags::FAST).keys(Keys::FIRST).since("1.0.0")
//!     .group(Group::String).complexity("O(1)").syntax("key")
//!     .summary("Returns the string value of a key."),
//! ```

use crate::args::Args;
use crate::category::Categories;
use crate::effects::Scope;
use crate::error::Result;
use crate::key_use::{KeyFlags, KeySpec};
use crate::wait::Wait;
use keyspace::{Batch, DbIndex, Edit, Exclusive, View};
use wire::Reply;

bitflags::bitflags! {
    /// A command's flags, with the names of Redis' COMMAND INFO in lower case.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Flags: u64 {
        /// Changes data. Set by the handler's kind, never by hand, for data commands.
        const WRITE = 1 << 0;
        /// Only reads data. Set by the handler's kind, never by hand, for data commands.
        const READONLY = 1 << 1;
        /// Refused when memory is full.
        const DENYOOM = 1 << 2;
        /// An administrator's command.
        const ADMIN = 1 << 3;
        /// Publish and subscribe.
        const PUBSUB = 1 << 4;
        /// Not allowed in scripts.
        const NOSCRIPT = 1 << 5;
        /// May block the session.
        const BLOCKING = 1 << 6;
        /// Allowed while data is being loaded.
        const LOADING = 1 << 7;
        /// Allowed on a replica with stale data.
        const STALE = 1 << 8;
        /// Not shown to MONITOR.
        const SKIP_MONITOR = 1 << 9;
        /// Not put into the slow log.
        const SKIP_SLOWLOG = 1 << 10;
        /// In a cluster, treated as if it carried ASKING.
        const ASKING = 1 << 11;
        /// Constant or logarithmic time.
        const FAST = 1 << 12;
        /// Allowed before authentication.
        const NO_AUTH = 1 << 13;
        /// May be replicated although it only reads.
        const MAY_REPLICATE = 1 << 14;
        /// Not allowed in a transaction.
        const NO_MULTI = 1 << 15;
        /// Key positions cannot be told from the row alone.
        const MOVABLEKEYS = 1 << 16;
        /// Allowed while the server is busy with a script.
        const ALLOW_BUSY = 1 << 17;
        /// Not asynchronous loading.
        const NO_ASYNC_LOADING = 1 << 18;
        /// Sent with arguments that must not be logged (passwords).
        const SENSITIVE = 1 << 19;
        /// Part of "@dangerous" beyond what ADMIN implies.
        const DANGEROUS = 1 << 20;
        /// Does not refresh a key's access clock (TTL, OBJECT, TYPE ...).
        const NO_TOUCH = 1 << 21;
        /// May be called without any key although its keys are told by a number.
        const NO_MANDATORY_KEYS = 1 << 24;
        /// Runs at once between MULTI and EXEC instead of being queued.
        const RUNS_IN_MULTI = 1 << 23;
        /// What it answers are messages: these come also if replies are off.
        const ANSWERS_BY_MESSAGE = 1 << 25;
        /// May run while only messages may come.
        const AMONG_MESSAGES = 1 << 26;
        /// Waits for another server while it holds its keys.
        const WAITS_FOR_OTHERS = 1 << 27;
        /// Ends a transaction, so that it is let through where what is queued takes memory that is not there.
        const ENDS_TRANSACTION = 1 << 28;
        /// Asks whether the server is well: refused where writes are since a snapshot failed.
        const ASKS_HEALTH = 1 << 29;
        /// Leaves what CLIENT CACHING said for the command behind it.
        const KEEPS_CACHING = 1 << 30;
        /// Takes away all keys of a database.
        const EMPTIES_DATABASE = 1 << 31;
        /// Takes away all keys there are, which the snapshot's file then says, too.
        const EMPTIES_ALL = 1 << 32;
        /// Needs the data: refused while that is loaded, whatever LOADING tells clients.
        const NEEDS_DATA = 1 << 33;
        /// One of the server's own that a Redis' append-only file may hold.
        const IN_APPEND_ONLY_FILE = 1 << 34;
        /// Is a use of its keys even where the session's commands are none (CLIENT NO-TOUCH).
        const TOUCHES = 1 << 36;
        /// A directive says who may use it: all others are refused before it is asked what their user may do.
        const ON_LEAVE = 1 << 35;
        /// Not in any ACL category that its other flags would imply ("slow" or "fast" apart).
        const PROTECTED = 1 << 22;
    }
}

/// The family that a command belongs to: COMMAND DOCS' "group" and the ACL category.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Any key, whatever it holds.
    Generic,
    /// Strings.
    String,
    /// Strings as arrays of bits.
    Bitmap,
    /// Lists.
    List,
    /// Hashes.
    Hash,
    /// Sets.
    Set,
    /// Sorted sets.
    SortedSet,
    /// Positions on the earth.
    Geo,
    /// Streams.
    Stream,
    /// Estimates of how many different elements there were.
    HyperLogLog,
    /// Publish and subscribe.
    Pubsub,
    /// Transactions.
    Transactions,
    /// Scripts and functions.
    Scripting,
    /// The connection itself.
    Connection,
    /// The cluster.
    Cluster,
    /// The server.
    Server,
}

impl Group {
    /// The name in COMMAND DOCS.
    pub fn name(self) -> &'static str {
        match self {
            Group::Generic => "generic",
            Group::String => "string",
            Group::Bitmap => "bitmap",
            Group::List => "list",
            Group::Hash => "hash",
            Group::Set => "set",
            Group::SortedSet => "sorted-set",
            Group::Geo => "geo",
            Group::Stream => "stream",
            Group::HyperLogLog => "hyperloglog",
            Group::Pubsub => "pubsub",
            Group::Transactions => "transactions",
            Group::Scripting => "scripting",
            Group::Connection => "connection",
            Group::Cluster => "cluster",
            Group::Server => "server",
        }
    }
}

/// Where a request carries its keys.
#[derive(Clone, Copy, Debug)]
pub enum Keys {
    /// It has none.
    None,
    /// Positions `first`, `first + step`, ... up to `last`, which counts from the end if negative.
    Range {
        /// Position of the first key; the command's name is position 0.
        first: usize,
        /// Position of the last key; -1 is the last argument.
        last: isize,
        /// Distance from one key to the next.
        step: usize,
    },
    /// Positions that only the arguments tell.
    Movable(fn(&wire::Request<'_>, &mut Vec<usize>)),
}

impl Keys {
    /// Argument 1 is the one key.
    pub const FIRST: Keys = Keys::Range { first: 1, last: 1, step: 1 };
    /// Argument 2 is the one key.
    pub const SECOND: Keys = Keys::Range { first: 2, last: 2, step: 1 };
    /// Arguments 1 and 2 are keys.
    pub const TWO: Keys = Keys::Range { first: 1, last: 2, step: 1 };
    /// All arguments are keys.
    pub const ALL: Keys = Keys::Range { first: 1, last: -1, step: 1 };
    /// Arguments 1, 3, 5 ... are keys.
    pub const PAIRS: Keys = Keys::Range { first: 1, last: -1, step: 2 };
}

/// Something that a request's words tell.
pub type OfRequest = fn(&wire::Request<'_>) -> bool;
/// What a request does with its keys, where its words tell.
pub type KeyFlagsBy = fn(&wire::Request<'_>) -> Option<KeyFlags>;
/// Whether a request replaces its keys without a look at them.
pub type Replaces = fn(&wire::Request<'_>) -> bool;
/// A command that reads locked keys.
pub type ReadHandler = fn(&View<'_>, &Args<'_>, &mut Reply<'_>) -> Result<()>;
/// A command that may change locked keys. It parses everything before its first edit,
/// so that it runs fully or not at all.
pub type WriteHandler = fn(&mut Edit<'_>, &Args<'_>, &mut Reply<'_>) -> Result<Outcome>;
/// A command that goes over the keyspace and locks what it needs, slot by slot.
pub type WalkHandler = fn(&Batch<'_>, &Args<'_>, &mut Reply<'_>) -> Result<()>;

/// A command that changes the keyspace as a whole, and has it alone.
pub type ExclusiveHandler = fn(&mut Exclusive<'_>, &Args<'_>, &mut Reply<'_>) -> Result<Outcome>;

/// What a command does, and which locks it needs for it. A handler that gets a
/// `View` cannot write: the WRITE and READONLY flags follow from the kind.
#[derive(Clone, Copy)]
pub enum Handler {
    /// Reads the row's keys, whose slots are locked for it.
    Read(ReadHandler),
    /// Changes the row's keys, whose slots are locked for it.
    Write(WriteHandler),
    /// Reads the row's keys, and may have to wait for them (XREAD).
    BlockingRead(fn(&View<'_>, &Args<'_>, &mut Reply<'_>) -> Result<Outcome>),
    /// Changes the row's keys, and may have to wait for them (BLPOP).
    BlockingWrite(WriteHandler),
    /// Reads the row's keys, and if the function says so others that it finds on the way:
    /// then the whole keyspace is held (SORT_RO ... BY).
    ReadAround(ReadHandler, fn(&Args<'_>) -> bool),
    /// The same for changing (SORT ... GET ... STORE).
    WriteAround(WriteHandler, fn(&Args<'_>) -> bool),
    /// Changes the row's keys in the session's database and in the one that the
    /// request names (COPY, MOVE); the function finds that database.
    WriteAcross(WriteHandler, fn(&Args<'_>) -> Option<DbIndex>),
    /// Changes the keyspace as a whole (FLUSHALL, SWAPDB).
    Exclusive(ExclusiveHandler),
    /// Goes over the keyspace slot by slot.
    Walk(WalkHandler),
}

/// What a write came down to, for the log and for those who watch keys.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    /// Nothing changed.
    Unchanged,
    /// The keyspace changed.
    Changed,
    /// Nothing changed or was answered: the session has to wait for a key.
    Blocked(Box<Wait>),
}

/// What a request of one of the server's own commands touches of the keyspace. (Of a data command its keys tell, and its handler.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Nothing: it runs whoever holds the keyspace.
    Nothing,
    /// The slots of the keys that it names.
    Keys,
    /// The same, and it may look at other keys, whose locks it takes itself.
    Around,
    /// Any slot.
    All,
    /// What the requests of its session's transaction touch.
    Queue,
    /// The keys that it names, or any slot unless the script is known to touch no others.
    Script(ScriptBy),
}

/// How a request names the script that it runs, in its first argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptBy {
    /// By its text.
    Text,
    /// By the text's SHA-1.
    Sha,
    /// It is a function of a library.
    Function,
}

/// Which words of a request are channels for which it needs permission. Who leaves one needs none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channels {
    /// None.
    None,
    /// The first argument.
    First,
    /// All arguments.
    All,
    /// All arguments, and they are patterns of channels.
    Patterns,
}

/// Which words of a request nobody may be shown, since they are passwords.
#[derive(Clone, Copy, Debug)]
pub enum Secrets {
    /// None.
    None,
    /// All from this position on.
    From(usize),
    /// Those of the request that begins at this position.
    OfRequest(usize),
    /// Values of directives, unless these are known to be harmless.
    OfDirectives,
    /// Words of the options that begin at this position.
    OfOptions(usize, &'static [OptionWords]),
}

/// An option of which a request may show something.
#[derive(Clone, Copy, Debug)]
pub struct OptionWords {
    /// Its name, in lower case.
    pub name: &'static str,
    /// How many words follow that belong to it; `usize::MAX` is all that there are.
    pub words: usize,
    /// Whether these are secrets.
    pub are_secret: bool,
}

impl OptionWords {
    /// An option whose words may be shown.
    pub const fn shown(name: &'static str, words: usize) -> OptionWords {
        OptionWords { name, words, are_secret: false }
    }

    /// An option whose words are secrets.
    pub const fn secret(name: &'static str, words: usize) -> OptionWords {
        OptionWords { name, words, are_secret: true }
    }
}

/// What a reply shows of what others have written: until that is on disk the reply waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shows {
    /// Anything there is: it waits for all that was appended to the log. So does every row that says nothing else.
    Everything,
    /// What lies in the slots that it locks, and what its handler notes itself.
    WhatItNotes,
    /// Nothing that a crash could take back: its session, the process, the configuration.
    Nothing,
}

impl Shows {
    /// A handler that is given the slots of its keys sees nothing else.
    const fn of(handler: &Handler) -> Shows {
        match handler {
            Handler::Read(_)
            | Handler::Write(_)
            | Handler::BlockingRead(_)
            | Handler::BlockingWrite(_)
            | Handler::ReadAround(..)
            | Handler::WriteAround(..)
            | Handler::WriteAcross(..) => Shows::WhatItNotes,
            Handler::Exclusive(_) | Handler::Walk(_) => Shows::Everything,
        }
    }
}

/// One command. `H` is the kind of handler: data commands have [`Handler`],
/// the server's own commands one over a session.
#[derive(Clone, Copy)]
pub struct Row<H: 'static = Handler> {
    /// Lower case; a subcommand's full name has a bar: `client|list`.
    pub name: &'static str,
    /// How many words a request has, the name counted; negative: at least that many.
    pub arity: i32,
    /// See [`Flags`].
    pub flags: Flags,
    /// Where its keys are.
    pub keys: Keys,
    /// The position of the first element that it looks for in the collection at its first
    /// key, to be fetched ahead; 0 if there is none.
    pub element: usize,
    /// Whether a request gives all its keys strings whatever is there, looks at nothing, and does nothing else; None: never.
    pub replaces: Option<Replaces>,
    /// What happens to the keys, where that is not what `key_use` takes for usual.
    pub key_flags: &'static [KeyFlags],
    /// What this request does with a key, where that depends on its words; None of it: what `key_flags` say.
    pub key_flags_by: Option<KeyFlagsBy>,
    /// Where clients find the keys, if `keys` does not say it.
    pub key_specs: &'static [KeySpec],
    /// What it touches of the keyspace, if it is one of the server's own.
    pub reach: Reach,
    /// Whether a request looks at all keys there are but leaves out those that it cannot lock, or looks at none in spite of its
    /// reach; None: never. Behind a script it is held back all the same, as in Redis.
    pub passes_by: Option<OfRequest>,
    /// Whether a request is allowed while the server is busy, where the flag ALLOW_BUSY is not all there is to it; None: it is.
    pub allow_busy_if: Option<OfRequest>,
    /// Whether a request means something else at another time; None: never.
    pub counts_from_now: Option<OfRequest>,
    /// What a request of one of the server's own concerns where a log holds it; None: none does.
    pub effect: Option<Scope>,
    /// The channels for which it needs permission.
    pub channels: Channels,
    /// Its words that nobody may be shown.
    pub secrets: Secrets,
    /// What its reply shows.
    pub shows: Shows,
    /// ACL categories that neither group nor flags imply.
    pub more_categories: Categories,
    /// Its family.
    pub group: Group,
    /// The Redis version that brought it.
    pub since: &'static str,
    /// Its cost, as in Redis' documentation.
    pub complexity: &'static str,
    /// One sentence.
    pub summary: &'static str,
    /// The arguments after the name, in the notation of redis-cli's help:
    /// `key value [NX | XX] [GET] [EX seconds | PX milliseconds]`.
    pub syntax: &'static str,
    /// Rows of its subcommands; the container itself is only called without one.
    pub subcommands: &'static [Row<H>],
    /// Hints for clients and proxies (COMMAND INFO's "tips").
    pub tips: &'static [&'static str],
    /// What does it.
    pub handler: H,
}

/// Begins a row; flags that the handler implies are set.
pub const fn row(name: &'static str, arity: i32, handler: Handler) -> Row {
    let flags = match handler {
        Handler::Read(_) | Handler::BlockingRead(_) | Handler::ReadAround(..) | Handler::Walk(_) => {
            Flags::READONLY
        }
        Handler::Write(_)
        | Handler::BlockingWrite(_)
        | Handler::WriteAround(..)
        | Handler::WriteAcross(..)
        | Handler::Exclusive(_) => Flags::WRITE,
    };
    let shows = Shows::of(&handler);
    Row::new(name, arity, flags, handler).shows(shows)
}

impl<H> Row<H> {
    /// Begins a row with the flags given.
    pub const fn new(name: &'static str, arity: i32, flags: Flags, handler: H) -> Row<H> {
        Row {
            name,
            arity,
            flags,
            keys: Keys::None,
            element: 0,
            replaces: None,
            key_flags: &[],
            key_flags_by: None,
            key_specs: &[],
            reach: Reach::All,
            passes_by: None,
            allow_busy_if: None,
            counts_from_now: None,
            effect: None,
            channels: Channels::None,
            secrets: Secrets::None,
            shows: Shows::Everything,
            more_categories: Categories::empty(),
            group: Group::Generic,
            since: "1.0.0",
            complexity: "O(1)",
            summary: "",
            syntax: "",
            subcommands: &[],
            tips: &[],
            handler,
        }
    }
}

/// The chain calls. Each sets one column.
impl<H: Copy> Row<H> {
    /// Adds flags to those that the handler implies.
    pub const fn flags(mut self, flags: Flags) -> Self {
        self.flags = self.flags.union(flags);
        self
    }

    /// Sets the key positions.
    pub const fn keys(mut self, keys: Keys) -> Self {
        self.keys = keys;
        self
    }

    /// Sets the position of the first element of a collection that it looks for.
    pub const fn element(mut self, position: usize) -> Self {
        self.element = position;
        self
    }

    /// Sets when the keys are replaced unread.
    pub const fn replaces(mut self, replaces: Replaces) -> Self {
        self.replaces = Some(replaces);
        self
    }

    /// Sets what happens to the keys: one for all, or one for each with the last
    /// for those that remain.
    pub const fn key_flags(mut self, flags: &'static [KeyFlags]) -> Self {
        self.key_flags = flags;
        self
    }

    /// Sets what tells from a request's words what it does with its keys.
    pub const fn key_flags_by(mut self, by: KeyFlagsBy) -> Self {
        self.key_flags_by = Some(by);
        self
    }

    /// Sets what it touches of the keyspace.
    pub const fn reach(mut self, reach: Reach) -> Self {
        self.reach = reach;
        self
    }

    /// Sets which requests leave out what they cannot lock.
    pub const fn passes_by(mut self, passes_by: OfRequest) -> Self {
        self.passes_by = Some(passes_by);
        self
    }

    /// Sets which requests are allowed while the server is busy.
    pub const fn allow_busy_if(mut self, is_allowed: OfRequest) -> Self {
        self.allow_busy_if = Some(is_allowed);
        self
    }

    /// Sets which requests mean something else at another time.
    pub const fn counts_from_now(mut self, counts: OfRequest) -> Self {
        self.counts_from_now = Some(counts);
        self
    }

    /// Sets what it concerns where a log holds it.
    pub const fn effect(mut self, scope: Scope) -> Self {
        self.effect = Some(scope);
        self
    }

    /// Sets the channels for which it needs permission.
    pub const fn channels(mut self, channels: Channels) -> Self {
        self.channels = channels;
        self
    }

    /// Sets the words that nobody may be shown.
    pub const fn secrets(mut self, secrets: Secrets) -> Self {
        self.secrets = secrets;
        self
    }

    /// Sets where clients find movable keys.
    pub const fn key_specs(mut self, specs: &'static [KeySpec]) -> Self {
        self.key_specs = specs;
        self
    }

    /// Sets what the reply shows, where that is not everything.
    pub const fn shows(mut self, shows: Shows) -> Self {
        self.shows = shows;
        self
    }

    /// Adds ACL categories to those that group and flags imply.
    pub const fn in_categories(mut self, categories: Categories) -> Self {
        self.more_categories = self.more_categories.union(categories);
        self
    }

    /// Sets the family.
    pub const fn group(mut self, group: Group) -> Self {
        self.group = group;
        self
    }

    /// Sets the Redis version that brought the command.
    pub const fn since(mut self, since: &'static str) -> Self {
        self.since = since;
        self
    }

    /// Sets the cost.
    pub const fn complexity(mut self, complexity: &'static str) -> Self {
        self.complexity = complexity;
        self
    }

    /// Sets the one sentence.
    pub const fn summary(mut self, summary: &'static str) -> Self {
        self.summary = summary;
        self
    }

    /// Sets the arguments in redis-cli's notation.
    pub const fn syntax(mut self, syntax: &'static str) -> Self {
        self.syntax = syntax;
        self
    }

    /// Sets the subcommands.
    pub const fn subcommands(mut self, subcommands: &'static [Row<H>]) -> Self {
        self.subcommands = subcommands;
        self
    }

    /// Sets the tips.
    pub const fn tips(mut self, tips: &'static [&'static str]) -> Self {
        self.tips = tips;
        self
    }

    /// The same row with another kind of handler, and without its subcommands.
    pub fn with_handler<T>(&self, handler: T) -> Row<T> {
        Row {
            name: self.name,
            arity: self.arity,
            flags: self.flags,
            keys: self.keys,
            element: self.element,
            replaces: self.replaces,
            key_flags: self.key_flags,
            key_flags_by: self.key_flags_by,
            key_specs: self.key_specs,
            reach: self.reach,
            passes_by: self.passes_by,
            allow_busy_if: self.allow_busy_if,
            counts_from_now: self.counts_from_now,
            effect: self.effect,
            channels: self.channels,
            secrets: self.secrets,
            shows: self.shows,
            more_categories: self.more_categories,
            group: self.group,
            since: self.since,
            complexity: self.complexity,
            summary: self.summary,
            syntax: self.syntax,
            subcommands: &[],
            tips: self.tips,
            handler,
        }
    }

    /// Whether a request of `words` words, the name counted, fits the arity.
    pub const fn accepts(&self, words: usize) -> bool {
        if self.arity < 0 {
            words >= self.arity.unsigned_abs() as usize
        } else {
            words == self.arity as usize
        }
    }
}
