//! The configuration of `tarn server`: what the directives of the file and the command line came down to.
//!
//! One `Config` is shared by all threads. Every number (limits, switches, enumerations) is mirrored in an atomic, so
//! that reading one in a command's path is one relaxed load; texts and lists are read under a lock, away from it.
//! Everything known about a directive is its row in `table`; `load` reads a start's arguments and files, `change` is
//! CONFIG GET and CONFIG SET, `rewrite` CONFIG REWRITE.
//!
//! 1. `values[i]` and `numbers[i]` belong to `TABLE[i]`; a number is the same in both once a change has been made.
//! 2. Changes are made one at a time: whoever writes holds `changing`.

#![forbid(unsafe_code)]

mod accessors;
mod change;
mod file;
mod load;
mod parsed;
mod retention;
mod rewrite;
mod row;
mod special;
mod table;
#[cfg(test)]
mod tests;
mod words;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};

pub use accessors::{ClientClass, ClientsMemory};
pub use change::{CannotApply, ChangedDirective, Origin, SetError};
pub use file::sentence;
pub use load::{ConfigError, Source, Startup};
pub use parsed::{OutputLimit, Value, memory as memory_bytes};
pub use rewrite::{Appended, RewriteError};
pub use row::{Effect, Flags, Kind, Row, SHUTDOWN_WORDS};
pub use special::{KeyspaceEvents, ShutdownFlags};
pub use table::TABLE;
pub use words::{
    Access, AppendFsync, BusyScope, DisklessLoad, Edition, LogLevel, MaxmemoryPolicy, OomScoreAdj, ReadFrom,
    StoreCompression, Supervision, SyslogFacility, TlsAuthClients, UsersFrom,
};

use table::COUNT;

/// The most databases that `databases` may ask for.
pub const DATABASES_MAX: u32 = 1 << 20;

/// The live configuration; shared by all threads.
pub struct Config {
    numbers: [AtomicI64; COUNT],
    /// Hard bytes, soft bytes and soft seconds of each client class.
    output_limits: [[AtomicU64; 3]; 3],
    values: RwLock<Vec<Value>>,
    changing: Mutex<()>,
    file: Option<PathBuf>,
}

impl Config {
    /// The configuration of a server started without file or options.
    pub fn defaults() -> Config {
        Config::from_values(load::default_values(), None)
    }

    /// One of its own with the same values, and without a file.
    pub fn copy(&self) -> Config {
        Config::from_values(self.values.read().clone(), None)
    }

    fn from_values(values: Vec<Value>, file: Option<PathBuf>) -> Config {
        assert_eq!(values.len(), COUNT);
        let config = Config {
            numbers: std::array::from_fn(|_| AtomicI64::new(0)),
            output_limits: Default::default(),
            values: RwLock::new(Vec::new()),
            changing: Mutex::new(()),
            file,
        };
        for (index, value) in values.iter().enumerate() {
            config.mirror(index, value);
        }
        *config.values.write() = values;
        config
    }

    /// The file that the server was started with; the one that CONFIG REWRITE writes.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Whether a directive may not be set while data is loaded.
    pub fn is_kept_while_loading(name: &[u8]) -> bool {
        table::find(name).is_some_and(|index| TABLE[index].flags.contains(Flags::NOT_WHILE_LOADING))
    }

    fn mirror(&self, index: usize, value: &Value) {
        match value {
            Value::Number(number) => self.numbers[index].store(*number, Ordering::Relaxed),
            Value::OutputLimits(limits) => {
                for (cells, limit) in self.output_limits.iter().zip(limits) {
                    cells[0].store(limit.hard_bytes, Ordering::Relaxed);
                    cells[1].store(limit.soft_bytes, Ordering::Relaxed);
                    cells[2].store(limit.soft_s, Ordering::Relaxed);
                }
            }
            _ => {}
        }
    }

    fn number(&self, index: usize) -> i64 {
        self.numbers[index].load(Ordering::Relaxed)
    }
}
