//! For unit tests: a keyspace and the shortest way to put keys into it.

use crate::{DbIndex, Expiry, KeyHasher, Keyspace, NewValue, Options, Touch};
use sys::UnixMs;

pub(crate) const NOW: UnixMs = UnixMs(1_700_000_000_000);
pub(crate) const DB: DbIndex = DbIndex(0);

/// `NOW` and some seconds more.
pub(crate) fn seconds_later(seconds: u64) -> UnixMs {
    UnixMs(NOW.0 + seconds * 1000)
}

pub(crate) fn new_keyspace(workers: usize) -> Keyspace {
    let hasher = KeyHasher::from_seed(1);
    Keyspace::new(Options { databases: 2, workers, guests: 0, hasher, seed: 2, now: NOW })
}

/// Sets a key at a moment.
pub(crate) fn set(keyspace: &Keyspace, number: u32, now: UnixMs, expiry: Expiry) {
    let name = number.to_be_bytes();
    let key = keyspace.key(DB, &name);
    let batch = keyspace.enter(0);
    let mut edit = batch.edit(&[key], now, Touch::Yes);
    edit.set(&key, NewValue::Int(1), expiry);
    edit.finish();
}

/// Reads a key at a moment.
pub(crate) fn get(keyspace: &Keyspace, number: u32, now: UnixMs) -> bool {
    let name = number.to_be_bytes();
    let key = keyspace.key(DB, &name);
    let batch = keyspace.enter(0);
    let view = batch.view(&[key], now, Touch::Yes);
    let found = view.get(&key).is_some();
    view.finish();
    found
}

/// The number of a key that `set` has made.
pub(crate) fn number(key: &[u8]) -> u32 {
    u32::from_be_bytes(key.try_into().expect("keys of unit tests have 4 bytes"))
}
