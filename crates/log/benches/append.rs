//! What appending costs under the slots' locks, alone and with another thread at it; and what reading back costs.
//!
//! `cargo bench -p log@0.1.0`. The clock stands still while what was appended is handed to the operating system.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use log::{Failure, Flushing, Log, Lsn, Observer, Options, Span, SyncPolicy};
use std::hint::black_box;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use sys::UnixMs;
use sys::file::Fs;

struct Nobody;

impl Observer for Nobody {
    fn committed(&self, _: Lsn) {}
    fn failed(&self, _: &Failure) {}
    fn resumed(&self) {}
}

/// A directory that goes away.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        Scratch(std::env::temp_dir().join(format!("tarn-log-bench-{}", std::process::id())))
    }

    fn open(&self) -> Log {
        let options = Options { flushing: Flushing::ByHand, sync: SyncPolicy::Never, ..Options::default() };
        log::recover(&Fs::Real, &self.0)
            .expect("it is new")
            .open(&options, Arc::new(Nobody))
            .expect("there is room")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).expect("it is there");
    }
}

/// Appends between two hand-overs.
const AT_ONCE: u64 = 10_000;

fn append_many(log: &Log, payload: &[u8], count: u64) -> Duration {
    let mut spent = Duration::ZERO;
    let mut left = count;
    while left > 0 {
        let now = left.min(AT_ONCE);
        let begun = Instant::now();
        for _ in 0..now {
            black_box(log.append_effects(Span::of(0), UnixMs(1), black_box(payload)));
        }
        spent += begun.elapsed();
        left -= now;
        log.flush();
    }
    spent
}

fn append(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("append");
    group.throughput(Throughput::Elements(1)).sample_size(10);
    group.warm_up_time(Duration::from_millis(200)).measurement_time(Duration::from_secs(1));
    for bytes in [30usize, 100, 1000] {
        let payload = vec![b'x'; bytes];
        let scratch = Scratch::new();
        let log = scratch.open();
        group.bench_function(format!("{bytes} bytes"), |bencher| {
            bencher.iter_custom(|count| append_many(&log, &payload, count));
        });
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    if !log.is_full() {
                        log.append_effects(Span::of(1), UnixMs(1), &payload);
                    }
                }
            });
            group.bench_function(format!("{bytes} bytes, one of two threads"), |bencher| {
                bencher.iter_custom(|count| append_many(&log, &payload, count));
            });
            stop.store(true, Ordering::Relaxed);
        });
    }
    group.finish();
}

/// A mutex and a copy into a vector, which is the floor of this design; and an addition to one counter, which is the
/// floor of a ring with reservations, before it has copied a byte or told anybody that the bytes are there.
fn floors(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("floor");
    group.sample_size(10).measurement_time(Duration::from_secs(1));
    let payload = [b'x'; 100];
    let vector = parking_lot::Mutex::new(Vec::<u8>::with_capacity(1 << 18));
    group.bench_function("mutex and copy", |bencher| {
        bencher.iter(|| {
            let mut vector = vector.lock();
            if vector.len() + 116 > vector.capacity() {
                vector.clear();
            }
            vector.extend_from_slice(black_box(&payload));
        });
    });
    let (reserved, published) = (std::sync::atomic::AtomicU64::new(0), std::sync::atomic::AtomicU64::new(0));
    group.bench_function("reserve and publish", |bencher| {
        bencher.iter(|| {
            let at = reserved.fetch_add(100, Ordering::AcqRel);
            published.fetch_add(black_box(100), Ordering::AcqRel);
            black_box(at)
        });
    });
    group.finish();
}

/// From appending to being told, by the log's own threads, on the disk of the temporary directory: what a lone client
/// waits for.
fn commit(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("commit");
    group.sample_size(20).measurement_time(Duration::from_secs(2));
    let scratch = Scratch::new();
    let recovery = log::recover(&Fs::Real, &scratch.0).expect("it is new");
    let log = recovery.open(&Options::default(), Arc::new(Nobody)).expect("there is room");
    group.bench_function("one record of 100 bytes", |bencher| {
        bencher.iter(|| {
            let end = log.append_effects(Span::of(0), UnixMs(1), black_box(&[b'x'; 100]));
            log.nudge();
            while log.durable() < end {
                std::thread::yield_now();
            }
        });
    });
    group.finish();
}

fn replay(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("replay");
    let scratch = Scratch::new();
    let log = scratch.open();
    let payload = [b'x'; 100];
    const RECORDS: u64 = 500_000;
    append_many(&log, &payload, RECORDS);
    log.close().expect("the disk takes it");
    let recovery = log::recover(&Fs::Real, &scratch.0).expect("it is whole");
    group.throughput(Throughput::Elements(RECORDS)).sample_size(10);
    group.bench_function("100 bytes", |bencher| {
        bencher.iter(|| {
            let (mut blocks, mut sum) = (recovery.replay(), 0);
            while let Some(block) = blocks.next_block().expect("it is whole") {
                sum += block.records().map(|record| record.payload.len()).sum::<usize>();
            }
            assert_eq!(sum as u64, RECORDS * 100);
        });
    });
    group.finish();
}

criterion_group!(benches, append, floors, commit, replay);
criterion_main!(benches);
