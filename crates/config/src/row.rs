//! One row of the table of directives: what a directive is called, what values it takes, its default, and whether
//! it does anything in Tarn.
//!
//! A row is a constant; `table` holds them all. Parsing, CONFIG GET, CONFIG SET, CONFIG REWRITE and the start-up
//! warnings read rows and know no directive by name (the few that act together are named in `accessors`).

use bitflags::bitflags;

/// A directive.
#[derive(Clone, Copy)]
pub struct Row {
    /// The name it is written under by CONFIG REWRITE; lower case.
    pub name: &'static str,
    /// Its older name, which is read and answered alike.
    pub alias: Option<&'static str>,
    /// Which values it takes.
    pub kind: Kind,
    /// The default, in the syntax of the configuration file.
    pub default: &'static str,
    /// When it may change, and how it is shown.
    pub flags: Flags,
    /// Whether it does anything.
    pub effect: Effect,
    /// Brings a number into the range that is really used, as Redis does silently for a few directives.
    pub adjust: Option<fn(i64) -> i64>,
}

/// The values that a directive takes.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// `yes` or `no`.
    Bool,
    /// A decimal integer within the limits, both included.
    Int {
        /// Smallest value.
        min: i64,
        /// Largest value.
        max: i64,
    },
    /// File permissions in octal, up to 777.
    Octal,
    /// Bytes, written with or without a unit (`100mb`), within the limits.
    Memory {
        /// Smallest value.
        min: i64,
        /// Largest value.
        max: i64,
    },
    /// Bytes, or a percentage of `maxmemory` (kept as a negative number).
    MemoryOrPercent,
    /// One of these words; kept as its index.
    Enum(&'static [&'static str]),
    /// Any text that passes the check.
    Text(TextCheck),
    /// A directory; CONFIG GET answers with its absolute path.
    Directory,
    /// Any number of words (`bind`).
    Words,
    /// A line that may be repeated, with at least so many words; every line is kept (`user`, `rename-command`).
    Lines {
        /// Fewest words after the name.
        words_min: usize,
    },
    /// Pairs of seconds and changes.
    Save,
    /// Client class, hard limit, soft limit, soft seconds; four words a class.
    OutputLimits,
    /// A string of event class letters; kept as bits.
    KeyspaceEvents,
    /// Any of `SHUTDOWN_WORDS`; kept as bits.
    ShutdownFlags,
    /// Three integers from -2000 to 2000.
    OomScores,
    /// Percentages.
    Percentiles,
    /// Host and port, or `no one`.
    ReplicaOf,
}

/// Refuses a text, with Redis' sentence.
pub type TextCheck = fn(&[u8]) -> Result<(), &'static str>;

/// The words of `shutdown-on-sigterm` and `shutdown-on-sigint`; the first one is no bit, the others are bit 0 up.
pub const SHUTDOWN_WORDS: &[&str] = &["default", "save", "nosave", "now", "force"];

bitflags! {
    /// When a directive may change, and how it is shown.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Flags: u8 {
        /// Set at start only.
        const IMMUTABLE = 1;
        /// CONFIG SET changes it only where `enable-protected-configs` allows it.
        const PROTECTED = 2;
        /// A secret: its value must not appear in the slow log, MONITOR or the log.
        const SENSITIVE = 4;
        /// CONFIG GET shows it only when asked for by its whole name.
        const HIDDEN = 8;
        /// It exists in configuration files only; CONFIG GET and SET do not know it.
        const FILE_ONLY = 16;
        /// CONFIG SET does not change it while data is loaded.
        const NOT_WHILE_LOADING = 32;
        /// Set at start only, but CONFIG SET takes the value that it has: no Redis has it, and tools that set all that they got from
        /// CONFIG GET know which ones to leave out.
        const FIXED = 64;
    }
}

/// Whether a directive does anything in Tarn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It does what Redis' documentation says.
    Works,
    /// It works, and this is what it does here.
    Here(&'static str),
    /// It is accepted and remembered but changes nothing, and this is why.
    NoMeaning(&'static str),
}

impl Kind {
    /// Whether one argument of CONFIG SET stands for several words of the file.
    pub fn takes_several_words(self) -> bool {
        matches!(
            self,
            Kind::Words
                | Kind::Lines { .. }
                | Kind::Save
                | Kind::OutputLimits
                | Kind::ShutdownFlags
                | Kind::OomScores
                | Kind::Percentiles
                | Kind::ReplicaOf
        )
    }
}

impl Row {
    /// Adds the older name.
    pub const fn alias(mut self, alias: &'static str) -> Row {
        self.alias = Some(alias);
        self
    }

    /// Adds flags.
    pub const fn flags(mut self, flags: Flags) -> Row {
        self.flags = self.flags.union(flags);
        self
    }

    /// Makes it settable at start only.
    pub const fn at_start(self) -> Row {
        self.flags(Flags::IMMUTABLE)
    }

    /// Tarn's own, and set at start only.
    pub const fn fixed(self) -> Row {
        self.flags(Flags::FIXED)
    }

    /// Says what it does here, where Redis' documentation does not.
    pub const fn here(mut self, what: &'static str) -> Row {
        self.effect = Effect::Here(what);
        self
    }

    /// Sets the silent correction of its number.
    pub const fn adjust(mut self, adjust: fn(i64) -> i64) -> Row {
        self.adjust = Some(adjust);
        self
    }

    /// Whether the directive answers to this name, in any case.
    pub fn is_named(&self, name: &[u8]) -> bool {
        self.name.as_bytes().eq_ignore_ascii_case(name)
            || self.alias.is_some_and(|alias| alias.as_bytes().eq_ignore_ascii_case(name))
    }
}

/// A row of a directive that does nothing yet.
pub(super) const fn absent(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    reason: &'static str,
) -> Row {
    let mut row = works(name, kind, default);
    row.effect = Effect::NoMeaning(reason);
    row
}

/// A row of a directive that does what it says.
pub(super) const fn works(name: &'static str, kind: Kind, default: &'static str) -> Row {
    Row { name, alias: None, kind, default, flags: Flags::empty(), effect: Effect::Works, adjust: None }
}

pub(super) const BOOL: Kind = Kind::Bool;
/// Any text.
pub(super) const TEXT: Kind = Kind::Text(|_| Ok(()));
/// Zero to the largest 32-bit integer.
pub(super) const INT: Kind = int(0, i32::MAX as i64);
/// Zero to the largest 64-bit integer.
pub(super) const LONG: Kind = int(0, i64::MAX);
pub(super) const PORT: Kind = int(0, 65_535);
/// Any amount of memory.
pub(super) const MEMORY: Kind = Kind::Memory { min: 0, max: i64::MAX };

pub(super) const fn int(min: i64, max: i64) -> Kind {
    Kind::Int { min, max }
}

pub(super) const fn memory_from(min: i64) -> Kind {
    Kind::Memory { min, max: i64::MAX }
}
