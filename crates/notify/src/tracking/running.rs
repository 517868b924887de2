//! What a worker is doing: whose command runs on it, what that reads, and what its client will be told of itself.

use super::broadcast;
use super::message::Invalid;
use net::client::Client;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// What a client is told of its own changes, beyond which it is told to forget everything: a script may change keys for as long as it runs.
const OWN_MAX: usize = 1024;
/// The same in bytes.
const OWN_BYTES_MAX: usize = 1 << 20;

/// What a worker keeps from one command to the next.
const FRESH_KEPT_MAX: usize = 64;

/// What a worker is doing, on a cache line of its own.
#[repr(align(64))]
#[derive(Default)]
pub(super) struct Running {
    /// The tracking client whose command runs; 0 if none does.
    pub client: AtomicU64,
    /// Whether it caches what that command reads.
    pub is_reading: AtomicBool,
    /// What that command puts its client down for that it was not down for before.
    pub fresh: Mutex<Fresh>,
    /// What the client is to be told of that it has done itself, behind all of it.
    pub own: Mutex<Own>,
    /// Modified keys that are to be broadcast.
    pub modified: Mutex<broadcast::Kept>,
}

/// Keys of a command.
#[derive(Default)]
pub(super) struct Fresh {
    keys: Vec<Arc<[u8]>>,
    /// They are once one was looked for.
    are_sorted: bool,
}

impl Fresh {
    pub(super) fn add(&mut self, key: Arc<[u8]>) {
        self.keys.push(key);
        self.are_sorted = false;
    }

    pub(super) fn has(&mut self, key: &[u8]) -> bool {
        if !self.are_sorted {
            self.keys.sort_unstable();
            self.are_sorted = true;
        }
        self.keys.binary_search_by(|known| (**known).cmp(key)).is_ok()
    }

    pub(super) fn clear(&mut self) {
        match self.keys.capacity() {
            ..=FRESH_KEPT_MAX => self.keys.clear(),
            _ => self.keys = Vec::new(),
        }
    }
}

/// What a client is told of its own changes.
#[derive(Default)]
pub(super) struct Own {
    invalid: Vec<Invalid>,
    bytes: usize,
    /// They were too many, and it is told to forget everything.
    is_everything: bool,
}

impl Own {
    pub(super) fn add(&mut self, invalid: Invalid, client: &Client) {
        if self.is_everything {
            return;
        }
        self.bytes += invalid.bytes();
        self.invalid.push(invalid);
        if self.invalid.len() > OWN_MAX || self.bytes > OWN_BYTES_MAX {
            self.invalid = vec![Invalid::everything(client.protocol())];
            self.is_everything = true;
        }
    }

    pub(super) fn into_invalid(self) -> impl Iterator<Item = Invalid> {
        self.invalid.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sys::UnixMs;

    #[test]
    fn fresh_keys_are_found_and_many_are_not_kept() {
        let mut fresh = Fresh::default();
        for count in [1, 1000] {
            (0..count).rev().for_each(|number: u32| fresh.add(number.to_string().into_bytes().into()));
            assert!((0..count).all(|number| fresh.has(number.to_string().as_bytes())) && !fresh.has(b"x"));
            fresh.clear();
            assert!(!fresh.has(b"0") && fresh.keys.capacity() <= FRESH_KEPT_MAX);
        }
    }

    #[test]
    fn who_changes_too_much_itself_is_told_to_forget_everything() {
        let client = Client::new(1, String::new(), String::new(), -1, (0, 0), UnixMs(0));
        for (key, most) in [(vec![b'k'; 1], OWN_MAX), (vec![b'k'; OWN_BYTES_MAX / 4], 3)] {
            let mut own = Own::default();
            (0..most).for_each(|_| own.add(Invalid::keys(&[&key]), &client));
            assert_eq!((own.invalid.len(), own.is_everything), (most, false));
            (0..9).for_each(|_| own.add(Invalid::keys(&[&key]), &client));
            assert_eq!(own.into_invalid().count(), 1);
        }
    }
}
