//! Reading the configuration at start: the arguments after `tarn server`, the file, standard input and the files that
//! they include.
//!
//! As in Redis, the file comes first, then standard input, then a line for each option; later lines win. A bad value
//! of a known directive ends the start, and so does an option that is no directive. An unknown directive of a file is
//! named in a warning and skipped, so that the file of another Redis starts a Tarn, unless it says `ignore-unknown-directives no`.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::parsed::{BadValue, Value, parse};
use crate::row::{Effect, Flags, Kind};
use crate::table::{TABLE, find, index_of};
use crate::words::{AppendFsync, Edition};
use crate::{Config, file};

/// What some editors begin a file with, so that its first directive would be none.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// How deep files may include files; deeper means that they include each other.
const INCLUDE_DEPTH_MAX: usize = 16;

/// What `tarn server` was asked to do.
pub enum Startup {
    /// Serve with this configuration.
    Serve {
        /// The configuration.
        config: Box<Config>,
        /// What the operator should know, a sentence each: unknown directives, and those that have no meaning here.
        warnings: Vec<String>,
    },
    /// Print what there is to say.
    Help,
    /// Print the version.
    Version,
}

/// Where a directive stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// In the file that was named at the start.
    File,
    /// In a file that another one includes.
    Included(PathBuf),
    /// On standard input.
    Stdin,
    /// Among the options of the command line.
    Options,
}

impl fmt::Display for Source {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Source::File => out.write_str("the configuration file"),
            Source::Included(path) => write!(out, "the configuration file {}", path.display()),
            Source::Stdin => out.write_str("the configuration on standard input"),
            Source::Options => out.write_str("the options of the command line"),
        }
    }
}

/// Why the server cannot start; `Display` gives the text for standard error.
#[derive(Debug)]
pub enum ConfigError {
    /// A file cannot be read.
    Unreadable {
        /// Which one.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A line cannot be accepted.
    BadLine {
        /// Where it stands.
        source: Source,
        /// Counted from 1.
        number: usize,
        /// As written; of options, as a file would have it.
        line: String,
        /// In Redis' words where Redis has some.
        reason: String,
    },
    /// The configuration is well-formed but asks for what this version does not serve.
    NotServed(String),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        match self {
            ConfigError::Unreadable { path, error } => {
                write!(
                    out,
                    "Fatal error, can't open config file '{}': {}",
                    path.display(),
                    file::sentence(error)
                )
            }
            ConfigError::BadLine { source: Source::Options, line, reason, .. } => {
                write!(out, "Tarn cannot start with the option '{line}': {reason}")
            }
            ConfigError::BadLine { source, number, line, reason } => write!(
                out,
                "\n*** FATAL CONFIG FILE ERROR (Tarn {}) ***\n\
                 Reading {source}, at line {number}\n>>> '{line}'\n{reason}",
                env!("CARGO_PKG_VERSION"),
            ),
            ConfigError::NotServed(sentence) => out.write_str(sentence),
        }
    }
}

impl std::error::Error for ConfigError {}

impl Config {
    /// Reads the arguments that follow `tarn server`, and every file that they name.
    pub fn from_args(args: &[String]) -> Result<Startup, ConfigError> {
        Config::from_args_and(args, b"")
    }

    /// The same, and behind all of it the lines of `last`, which count more than what was asked for.
    pub fn from_args_and(args: &[String], last: &[u8]) -> Result<Startup, ConfigError> {
        match args.first().map(String::as_str) {
            Some("-h" | "--help") => return Ok(Startup::Help),
            Some("-v" | "--version") => return Ok(Startup::Version),
            _ => {}
        }
        let (path, options) = match args.split_first() {
            Some((first, rest)) if !first.starts_with('-') => (Some(PathBuf::from(first)), rest),
            _ => (None, args),
        };
        let mut loading = Loading::new();
        if let Some(path) = &path {
            loading.read_file(path, &Source::File, 0)?;
        }
        let (options, reads_stdin) = without_dash(options, path.is_none());
        if reads_stdin {
            let unreadable = |error| ConfigError::Unreadable { path: PathBuf::from("-"), error };
            loading.read_text(&file::read_stdin().map_err(unreadable)?, &Source::Stdin, 0)?;
        }
        loading.read_text(&lines_of_options(options), &Source::Options, 0)?;
        loading.read_text(last, &Source::Options, 0)?;
        loading.finish(path.map(|path| std::path::absolute(&path).unwrap_or(path)))
    }

    /// Reads a configuration from text, as if it were a file. For tests and for servers inside a program.
    pub fn from_text(text: &[u8]) -> Result<Startup, ConfigError> {
        let mut loading = Loading::new();
        loading.read_text(text, &Source::File, 0)?;
        loading.finish(None)
    }
}

/// The options without the dash that stands for standard input: the first of all arguments, or the last one.
fn without_dash(options: &[String], may_be_first: bool) -> (&[String], bool) {
    match options {
        [first, rest @ ..] if may_be_first && first == "-" => (rest, true),
        [rest @ .., last] if last == "-" => (rest, true),
        _ => (options, false),
    }
}

/// Turns `--name value ...` into lines. The word after a name is its value even when it begins with two dashes, unless the
/// name is that of `save`, which may have none. Words in front of the first name are a line of their own.
fn lines_of_options(options: &[String]) -> Vec<u8> {
    let mut text = Vec::new();
    let mut lacks_value = false;
    for (at, option) in options.iter().enumerate() {
        if lacks_value || !option.starts_with("--") {
            text.push(b' ');
            text.extend_from_slice(wire::quote(option.as_bytes()).as_bytes());
            lacks_value = false;
            continue;
        }
        text.push(b'\n');
        text.extend_from_slice(&option.as_bytes()[2..]);
        // Name and value may come as one argument.
        lacks_value = wire::split_words(option.as_bytes()).is_ok_and(|words| words.len() == 1);
        let is_followed = options.get(at + 1).is_some_and(|next| !next.starts_with("--"));
        if option.eq_ignore_ascii_case("--save") && !is_followed {
            text.extend_from_slice(b" \"\"");
            lacks_value = false;
        }
    }
    text
}

/// The default of every directive, in the order of the table.
pub(super) fn default_values() -> Vec<Value> {
    TABLE
        .iter()
        .map(|row| match row.kind {
            Kind::Lines { .. } => Value::Lines(Vec::new()),
            Kind::ReplicaOf => Value::ReplicaOf(None),
            _ => {
                let mut words: Vec<&[u8]> = row.default.split(' ').map(str::as_bytes).collect();
                if matches!(row.kind, Kind::Text(_)) {
                    words = vec![row.default.as_bytes()];
                }
                parse(row, &words, None).expect("a test parses every default")
            }
        })
        .collect()
}

/// The values so far while lines are read.
struct Loading {
    values: Vec<Value>,
    is_set: Vec<bool>,
    warnings: Vec<String>,
    /// What is no directive, and where it stands.
    unknown: Vec<String>,
    /// What is said of the first of them where they are not to be ignored.
    refusal: Option<ConfigError>,
}

/// A line for an error's text. Of one that may hold a secret, only what it is about.
fn shown(line: &[u8]) -> String {
    let end = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
    let (quoted, rest) = line.split_at(end);
    let name = quoted.trim_ascii_start();
    let name = name.strip_prefix(b"\"").map_or(name, |name| name.strip_suffix(b"\"").unwrap_or(name));
    let is_secret = name.eq_ignore_ascii_case(b"user")
        || find(name).is_some_and(|index| TABLE[index].flags.contains(Flags::SENSITIVE));
    match is_secret && !rest.is_empty() {
        true => format!("{} (redacted)", String::from_utf8_lossy(quoted)),
        false => String::from_utf8_lossy(line).into_owned(),
    }
}

impl Loading {
    fn new() -> Loading {
        let values = default_values();
        Loading {
            is_set: vec![false; values.len()],
            values,
            warnings: Vec::new(),
            unknown: Vec::new(),
            refusal: None,
        }
    }

    fn read_text(&mut self, text: &[u8], source: &Source, depth: usize) -> Result<(), ConfigError> {
        for (index, line) in text.split(|&byte| byte == b'\n').enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            let bad = |BadValue(reason)| ConfigError::BadLine {
                source: source.clone(),
                number: index + 1,
                line: shown(line),
                reason,
            };
            let words =
                wire::split_words(line).map_err(|_| bad("Unbalanced quotes in configuration line".into()))?;
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            match words.as_slice() {
                [] => {}
                [name, pattern] if name.eq_ignore_ascii_case(b"include") => {
                    if depth == INCLUDE_DEPTH_MAX {
                        return Err(bad("Files include each other without end".into()));
                    }
                    self.read_included(pattern, depth + 1)?;
                }
                // Neither is unknown: what they would set is not there.
                [name, ..] if name.eq_ignore_ascii_case(b"include") => {
                    return Err(bad("wrong number of arguments".into()));
                }
                [name, ..] if name.starts_with(BYTE_ORDER_MARK) => {
                    return Err(bad("The file begins with a byte order mark: remove it".into()));
                }
                [name, values @ ..] => match find(name) {
                    Some(index) => self.read_directive(index, values).map_err(bad)?,
                    None => {
                        let refusal = bad("Bad directive or wrong number of arguments".into());
                        if *source == Source::Options {
                            return Err(refusal);
                        }
                        self.note_unknown(name, source, index + 1);
                        self.refusal.get_or_insert(refusal);
                    }
                },
            }
        }
        Ok(())
    }

    fn read_included(&mut self, pattern: &[u8], depth: usize) -> Result<(), ConfigError> {
        for path in file::expand(pattern) {
            self.read_file(&path, &Source::Included(path.clone()), depth)?;
        }
        Ok(())
    }

    fn read_file(&mut self, path: &Path, source: &Source, depth: usize) -> Result<(), ConfigError> {
        let unreadable = |error| ConfigError::Unreadable { path: path.to_owned(), error };
        self.read_text(&file::read(path).map_err(unreadable)?, source, depth)
    }

    fn note_unknown(&mut self, name: &[u8], source: &Source, line_number: usize) {
        let name = String::from_utf8_lossy(name);
        self.unknown.push(match source {
            Source::File => format!("`{name}` (line {line_number})"),
            _ => format!("`{name}` (line {line_number} of {source})"),
        });
    }

    fn read_directive(&mut self, index: usize, words: &[&[u8]]) -> Result<(), BadValue> {
        let row = &TABLE[index];
        if words.is_empty() && !row.kind.takes_several_words() {
            return Err("wrong number of arguments".into());
        }
        // An option's value is one argument that may hold several words: `--save "900 1"`.
        let split: Vec<&[u8]> = match words {
            [word] if row.kind.takes_several_words() && !word.is_empty() => {
                word.split(|&byte| byte == b' ').filter(|part| !part.is_empty()).collect()
            }
            _ => words.to_vec(),
        };
        // Lines of one directive add up, except that the first of them replaces the default. Output limits are
        // set class by class over the default.
        let adds_up = self.is_set[index] || matches!(row.kind, Kind::OutputLimits);
        // There may be thousands: none is copied.
        let before = adds_up.then(|| std::mem::replace(&mut self.values[index], Value::Lines(Vec::new())));
        self.values[index] = parse(row, &split, before)?;
        self.is_set[index] = true;
        Ok(())
    }

    /// The durable edition syncs before every reply, whatever a file says that was written for Redis.
    fn warn_of_less(&mut self) {
        let decided = [("appendonly", 1), ("appendfsync", AppendFsync::Always as i64)];
        for (name, number) in decided {
            let index = index_of(name);
            if self.is_set[index] && self.values[index] != Value::Number(number) {
                self.warnings.push(format!(
                    "`{name}` has no effect: this edition has every write on disk before its reply; use `edition \
                     memory` for anything less"
                ));
            }
        }
    }

    fn finish(mut self, path: Option<PathBuf>) -> Result<Startup, ConfigError> {
        let Value::Number(edition) = self.values[index_of("edition")] else {
            unreachable!("the edition is one of several words");
        };
        match Edition::from_number(edition) {
            Edition::Memory => {}
            Edition::Durable => self.warn_of_less(),
            Edition::Capacity => {
                self.warn_of_less();
                if self.values[index_of("maxmemory")] == Value::Number(0) {
                    let warning =
                        "without `maxmemory` nothing goes to disk to make room: set it to what may be used";
                    self.warnings.push(warning.to_owned());
                }
            }
        }
        for ((row, value), default) in TABLE.iter().zip(&self.values).zip(default_values()) {
            if let Effect::NoMeaning(reason) = row.effect
                && *value != default
            {
                self.warnings.push(format!("`{}` has no effect: {reason}", row.name));
            }
        }
        if self.values[index_of("ignore-unknown-directives")] == Value::Number(0)
            && let Some(refusal) = self.refusal
        {
            return Err(refusal);
        }
        // Last, where it is seen: it may be a slip of the pen.
        if !self.unknown.is_empty() {
            self.warnings.push(format!("Not directives of Tarn, and ignored: {}", self.unknown.join(", ")));
        }
        let config = Box::new(Config::from_values(self.values, path));
        Ok(Startup::Serve { config, warnings: self.warnings })
    }
}
