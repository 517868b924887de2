//! Large sets: adding, looking up, and the intersection of two sets of 10,000 members
//! of which half are in both.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use std::ops::{ControlFlow, Range};
use sys::Prng;
use sys::memory::CountingAllocator;
use value::collection::{Thresholds, Type};
use value::set::{Set, intersection};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fn name(number: u64) -> Vec<u8> {
    format!("member:{number:09}").into_bytes()
}

fn set_of(numbers: Range<u64>) -> Set {
    let thresholds = Thresholds::default();
    let mut set = Set::new_for(b"member", usize::MAX, &thresholds);
    numbers.for_each(|number| {
        set.insert(&name(number), &thresholds);
    });
    set
}

fn benches(criterion: &mut Criterion) {
    const LARGE: u64 = 1_000_000;
    const PICKS: usize = 1000;
    let (a, b) = (set_of(0..10_000), set_of(5_000..15_000));
    criterion.bench_function("intersection of two sets of 10,000", |bencher| {
        bencher.iter(|| {
            let mut count = 0;
            intersection(&[a.as_ref(), b.as_ref()], |member| {
                count += usize::from(black_box(member).int().is_none());
                ControlFlow::Continue(())
            });
            count
        });
    });
    let large = set_of(0..LARGE);
    let mut prng = Prng::from_seed(1);
    let mut names = || -> Vec<Vec<u8>> { (0..PICKS).map(|_| name(prng.below(LARGE))).collect() };
    let mut group = criterion.benchmark_group("set of a million");
    group.throughput(Throughput::Elements(PICKS as u64));
    group.bench_function("contains", |bencher| {
        bencher.iter_batched(
            &mut names,
            |names| names.iter().filter(|name| large.as_ref().contains(name)).count(),
            BatchSize::SmallInput,
        );
    });
    group.bench_function("insert into a new one", |bencher| {
        bencher.iter_batched(
            || (0..PICKS as u64).map(name).collect::<Vec<_>>(),
            |names| {
                let mut set = Set::new_for(b"member", usize::MAX, &Thresholds::default());
                names.iter().for_each(|name| {
                    set.insert(name, &Thresholds::default());
                });
                set
            },
            BatchSize::SmallInput,
        );
    });
}

criterion_group!(all, benches);
criterion_main!(all);
