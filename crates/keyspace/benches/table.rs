//! GET and SET on a million keys, far more than the caches hold: one by one, and
//! in batches of 32 whose keys are prefetched as a worker does it.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use keyspace::{Ahead, Batch, DbIndex, Expiry, Key, KeyHasher, Keyspace, NewValue, Options, Touch};
use std::hint::black_box;
use sys::memory::CountingAllocator;
use sys::{Prng, UnixMs};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const NOW: UnixMs = UnixMs(1_700_000_000_000);
const KEYS: u64 = 1_000_000;
const BATCH: usize = 32;
const DB: DbIndex = DbIndex(0);

fn name(number: u64) -> [u8; 16] {
    let mut name = *b"key:000000000000";
    name[4..12].copy_from_slice(&number.to_be_bytes());
    name
}

fn get(batch: &Batch<'_>, key: &Key<'_>) {
    let view = batch.view(std::slice::from_ref(key), NOW, Touch::Yes);
    black_box(view.get(key).map(|object| object.value()));
    view.finish();
}

fn set(batch: &Batch<'_>, key: &Key<'_>) {
    let mut edit = batch.edit(std::slice::from_ref(key), NOW, Touch::Yes);
    edit.set(key, NewValue::Bytes(&[b'v'; 64]), Expiry::Clear);
    edit.finish();
}

fn prefetch(batch: &Batch<'_>, keys: &[Key<'_>]) {
    keys.iter().for_each(|key| batch.prefetch_slot(key.db, key.slot));
    let ahead = keys.iter().map(|key| Ahead { slot: key.slot, position: key.position, element: None });
    batch.prefetch(DB, ahead);
}

fn benches(criterion: &mut Criterion) {
    let hasher = KeyHasher::from_seed(1);
    let keyspace = Keyspace::new(Options { databases: 1, workers: 1, guests: 0, hasher, seed: 2, now: NOW });
    (0..KEYS).for_each(|number| set(&keyspace.enter(0), &keyspace.key(DB, &name(number))));
    let mut prng = Prng::from_seed(3);
    let mut names = || -> [[u8; 16]; BATCH] { std::array::from_fn(|_| name(prng.below(KEYS))) };
    let mut group = criterion.benchmark_group("million keys");
    group.throughput(Throughput::Elements(BATCH as u64));
    for (what, run) in [("get", get as fn(&Batch<'_>, &Key<'_>)), ("set", set)] {
        group.bench_function(format!("{what} one by one"), |bencher| {
            bencher.iter_batched(
                &mut names,
                |names| names.iter().for_each(|name| run(&keyspace.enter(0), &keyspace.key(DB, name))),
                BatchSize::SmallInput,
            );
        });
        group.bench_function(format!("{what} in prefetched batches"), |bencher| {
            bencher.iter_batched(
                &mut names,
                |names| {
                    let batch = keyspace.enter(0);
                    let keys: [Key<'_>; BATCH] = std::array::from_fn(|i| keyspace.key(DB, &names[i]));
                    prefetch(&batch, &keys);
                    keys.iter().for_each(|key| run(&batch, key));
                },
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

criterion_group!(table, benches);
criterion_main!(table);
