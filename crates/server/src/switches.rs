//! What DEBUG switches for tests. All of it is off unless a test has said so.
//!
//! Thread rule: any thread; each switch is looked at alone.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

/// The switches of one server.
#[derive(Debug)]
pub struct Switches {
    admits_to_scripts: AtomicBool,
    rests: AtomicBool,
    list_plain_bytes_min: AtomicUsize,
    rewind_stop: AtomicU8,
}

impl Default for Switches {
    fn default() -> Switches {
        Switches {
            admits_to_scripts: AtomicBool::new(false),
            rests: AtomicBool::new(false),
            list_plain_bytes_min: AtomicUsize::new(usize::MAX),
            rewind_stop: AtomicU8::new(0),
        }
    }
}

impl Switches {
    /// Whether scripts may call commands that are otherwise not for them (DEBUG SET-DISABLE-DENY-SCRIPTS).
    pub fn admits_to_scripts(&self) -> bool {
        self.admits_to_scripts.load(Ordering::Relaxed)
    }

    /// Sets [`Switches::admits_to_scripts`].
    pub fn set_admits_to_scripts(&self, on: bool) {
        self.admits_to_scripts.store(on, Ordering::Relaxed);
    }

    /// Whether the server does nothing by itself but serve who waits (DEBUG PAUSE-CRON).
    pub fn rests(&self) -> bool {
        self.rests.load(Ordering::Relaxed)
    }

    /// Sets [`Switches::rests`].
    pub fn set_rests(&self, on: bool) {
        self.rests.store(on, Ordering::Relaxed);
    }

    /// At which step of going back to where a master has the same this server stops for good, to be killed there; 0: at none (DEBUG
    /// STOP-REWIND).
    pub fn rewind_stop(&self) -> u8 {
        self.rewind_stop.load(Ordering::Relaxed)
    }

    /// Sets [`Switches::rewind_stop`].
    pub fn set_rewind_stop(&self, step: u8) {
        self.rewind_stop.store(step, Ordering::Relaxed);
    }

    /// From which length on texts of lists lie by themselves, however much a node may hold (DEBUG QUICKLIST-PACKED-THRESHOLD).
    pub fn list_plain_bytes_min(&self) -> usize {
        self.list_plain_bytes_min.load(Ordering::Relaxed)
    }

    /// Sets [`Switches::list_plain_bytes_min`].
    pub fn set_list_plain_bytes_min(&self, bytes: usize) {
        self.list_plain_bytes_min.store(bytes, Ordering::Relaxed);
    }
}
