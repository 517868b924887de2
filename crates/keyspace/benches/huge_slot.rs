//! How long the slowest single command takes while one slot grows to millions of
//! keys, as when all keys of a cluster share a hash tag, and shrinks again.
//!
//! The same steps run several times and each counts with its fastest time, so that
//! what is left is this program's doing and not the machine's.
//!
//! `cargo bench -p keyspace --bench huge_slot [keys]`

use keyspace::{DbIndex, Expiry, Key, KeyHasher, Keyspace, NewValue, Options, Slot, Touch};
use std::time::{Duration, Instant};
use sys::UnixMs;
use sys::memory::CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const NOW: UnixMs = UnixMs(1_700_000_000_000);

const RUNS: usize = 4;

fn main() {
    let keys = std::env::args().find_map(|arg| arg.parse().ok()).unwrap_or(5_000_000);
    for (what, expiry) in
        [("without expiry", Expiry::Clear), ("with expiry", Expiry::At(UnixMs(NOW.0 + 1_000_000)))]
    {
        let mut inserts = vec![Duration::MAX; keys];
        let mut removes = inserts.clone();
        for _ in 0..RUNS {
            let hasher = KeyHasher::from_seed(1);
            let keyspace =
                Keyspace::new(Options { databases: 1, workers: 1, guests: 0, hasher, seed: 2, now: NOW });
            time_each(&mut inserts, |number| {
                edit(&keyspace, number, |edit, key| edit.set(key, NewValue::Int(number as i64), expiry));
            });
            time_each(&mut removes, |number| edit(&keyspace, number, |edit, key| drop(edit.take(key))));
        }
        report("insert", what, &inserts);
        report("remove", what, &removes);
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

fn time_each(fastest: &mut [Duration], mut work: impl FnMut(u64)) {
    for (number, fastest) in fastest.iter_mut().enumerate() {
        let start = Instant::now();
        work(number as u64);
        *fastest = start.elapsed().min(*fastest);
    }
}

fn report(name: &str, what: &str, times: &[Duration]) {
    let mean = times.iter().sum::<Duration>() / times.len() as u32;
    let mut slowest: Vec<(Duration, usize)> = times.iter().copied().zip(0..).collect();
    slowest.sort_unstable_by(|a, b| b.cmp(a));
    slowest.truncate(4);
    println!("{name} {what}: {} keys, mean {mean:?}, slowest (at key) {slowest:?}", times.len());
}
