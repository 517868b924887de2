//! The limits and thresholds that handlers look at. The server owns the
//! configuration and stores changes here; handlers only read.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Settings shared by all workers. Each is read alone, so relaxed order is enough.
#[derive(Debug)]
pub struct Settings {
    string_bytes_max: AtomicU64,
    flushes_in_background: AtomicBool,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            string_bytes_max: AtomicU64::new(512 << 20),
            flushes_in_background: AtomicBool::new(false),
        }
    }
}

impl Settings {
    /// The longest string that a command may build (`proto-max-bulk-len`), in bytes.
    pub fn string_bytes_max(&self) -> u64 {
        self.string_bytes_max.load(Ordering::Relaxed)
    }

    /// Sets [`Settings::string_bytes_max`].
    pub fn set_string_bytes_max(&self, bytes: u64) {
        self.string_bytes_max.store(bytes, Ordering::Relaxed);
    }

    /// Whether FLUSHALL and FLUSHDB are asynchronous unless told otherwise
    /// (`lazyfree-lazy-user-flush`).
    pub fn flushes_in_background(&self) -> bool {
        self.flushes_in_background.load(Ordering::Relaxed)
    }

    /// Sets [`Settings::flushes_in_background`].
    pub fn set_flushes_in_background(&self, on: bool) {
        self.flushes_in_background.store(on, Ordering::Relaxed);
    }
}
