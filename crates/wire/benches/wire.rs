//! Micro benchmarks of the hot path: parsing pipelines of 50 requests and writing replies. `cargo bench -p wire`.
//! Divide the parse figures by 50 for the cost of one request.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use wire::{Batch, Limits, Parser, Protocol, Reply, encode_request, key_slot, skip_reply};

const PIPELINE: usize = 50;

fn pipeline(args: impl Fn(usize) -> Vec<Vec<u8>>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for index in 0..PIPELINE {
        let args = args(index);
        let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
        encode_request(&mut bytes, &args);
    }
    bytes
}

fn key(index: usize) -> Vec<u8> {
    format!("key:{index:012}").into_bytes()
}

/// A length that no branch predictor learns.
fn scattered(index: usize, max: usize) -> usize {
    (index.wrapping_mul(2_654_435_761) >> 7) % max
}

fn bench_parse(c: &mut Criterion) {
    let mut group = c.benchmark_group("parse");
    group.throughput(Throughput::Elements(PIPELINE as u64));
    let inputs = [
        ("short_set", pipeline(|_| vec![b"SET".to_vec(), b"key".to_vec(), b"value".to_vec()])),
        ("set_64", pipeline(|index| vec![b"SET".to_vec(), key(index), vec![b'v'; 64]])),
        ("set_4096", pipeline(|index| vec![b"SET".to_vec(), key(index), vec![b'v'; 4096]])),
        ("set_scattered", {
            pipeline(|index| {
                vec![
                    b"SET".to_vec(),
                    vec![b'k'; 5 + scattered(index, 20)],
                    vec![b'v'; scattered(index + 99, 3000)],
                ]
            })
        }),
        ("get", pipeline(|index| vec![b"GET".to_vec(), key(index)])),
        ("mset_20", pipeline(|_| [vec![b"MSET".to_vec()], vec![b"12345678".to_vec(); 40]].concat())),
    ];
    for (name, bytes) in &inputs {
        let (mut parser, mut batch) = (Parser::new(), Batch::new());
        let limits = Limits::default();
        group.bench_function(*name, |b| {
            b.iter(|| {
                batch.clear();
                parser.parse(black_box(bytes), &limits, &mut batch, usize::MAX)
            })
        });
        group.bench_function(format!("{name}_and_read_args"), |b| {
            b.iter(|| {
                batch.clear();
                let taken = parser.parse(black_box(bytes), &limits, &mut batch, usize::MAX);
                let args: usize = batch.iter(bytes).map(|request| request.arg(1).len() + request.len()).sum();
                (taken, args)
            })
        });
    }
}

fn bench_reply(c: &mut Criterion) {
    let mut group = c.benchmark_group("reply");
    group.throughput(Throughput::Elements(PIPELINE as u64));
    let value = vec![b'v'; 4096];
    let mut out = Vec::with_capacity(1 << 20);
    let mut bench = |name: &str, write: &dyn Fn(&mut Reply<'_>, usize)| {
        group.bench_function(name, |b| {
            b.iter(|| {
                out.clear();
                for index in 0..PIPELINE {
                    let mut reply = Reply::new(black_box(&mut out), Protocol::Resp2);
                    write(&mut reply, index);
                }
                out.len()
            })
        });
    };
    bench("ok", &|reply, _| reply.ok());
    bench("null", &|reply, _| reply.null());
    bench("bulk_8", &|reply, _| reply.bulk(&value[..8]));
    bench("bulk_64", &|reply, _| reply.bulk(&value[..64]));
    bench("bulk_scattered", &|reply, index| reply.bulk(&value[..scattered(index, 100)]));
    bench("bulk_4096", &|reply, _| reply.bulk(&value));
    bench("int_small", &|reply, index| reply.int(index as i64));
    bench("int_large", &|reply, index| reply.int(1_000_000 + index as i64));
    bench("double", &|reply, index| reply.double(index as f64 + 0.1));
    bench("deferred_array_of_20", &|reply, _| {
        let deferred = reply.deferred_array();
        (0..20).for_each(|_| reply.bulk(&value[..8]));
        reply.end(deferred, 20);
    });
}

fn bench_client_side(c: &mut Criterion) {
    let mut out = Vec::new();
    (0..PIPELINE).for_each(|_| Reply::new(&mut out, Protocol::Resp2).bulk(&[b'v'; 64]));
    c.bench_function("skip_reply/bulk_64", |b| {
        b.iter(|| {
            let mut at = 0;
            while let Ok(Some(used)) = skip_reply(&black_box(&out)[at..]) {
                at += used;
            }
            at
        })
    });
    c.bench_function("key_slot/16_bytes", |b| b.iter(|| key_slot(black_box(b"key:000000000001"))));
}

criterion_group!(benches, bench_parse, bench_reply, bench_client_side);
criterion_main!(benches);
