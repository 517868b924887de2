//! How long the slowest single command takes while one slot grows to millions of
//! keys, as when all keys of a cluster share a hash tag, and shrinks again.
//!
//! `cargo bench -p keyspace --bench huge_slot [keys]`

use keyspace::{DbIndex, Expiry, Key, KeyHasher, Keyspace, NewValue, Options, Slot, Touch};
use std::time::{Duration, Instant};
use sys::UnixMs;
use sys::memory::CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const NOW: UnixMs = UnixMs(1_700_000_000_000);

fn main() {
    let keys = std::env::args().find_map(|arg| arg.parse().ok()).unwrap_or(5_000_000);
    let hasher = KeyHasher::from_seed(1);
    for (what, expiry) in
        [("without expiry", Expiry::Clear), ("with expiry", Expiry::At(UnixMs(NOW.0 + 1_000_000)))]
    {
        let options = Options { databases: 1, workers: 1, hasher: hasher.clone(), seed: 2, now: NOW };
        let keyspace = Keyspace::new(options);
        run(what, "insert", keys, |number| {
            edit(&keyspace, number, |edit, key| edit.set(key, NewValue::Int(number as i64), expiry));
        });
        run(what, "remove", keys, |number| edit(&keyspace, number, |edit, key| drop(edit.take(key))));
    }
}

fn edit(keyspace: &Keyspace, number: u64, work: impl FnOnce(&mut keyspace::Edit<'_>, &Key<'_>)) {
    let name = number.to_le_bytes();
    let key = Key { slot: Slot(0), ..keyspace.key(DbIndex(0), &name) };
    let batch = keyspace.enter(0);
    let mut edit = batch.edit(&[key], NOW, Touch::Yes);
    work(&mut edit, &key);
    edit.finish();
}

fn run(what: &str, name: &str, keys: u64, mut work: impl FnMut(u64)) {
    let mut slowest = [(Duration::ZERO, 0); 5];
    let begin = Instant::now();
    for number in 0..keys {
        let start = Instant::now();
        work(number);
        let took = start.elapsed();
        if took > slowest[4].0 {
            slowest[4] = (took, number);
            slowest.sort_by(|a, b| b.cmp(a));
        }
    }
    let mean = begin.elapsed() / keys as u32;
    println!("{name} {what}: {keys} keys, mean {mean:?}, slowest (at key) {slowest:?}");
}
