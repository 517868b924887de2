//! What a cold read costs beside the disk: checking a page and finding a key in it; and what the spiller pays for a record.
//!
//! `cargo bench -p store`. Records of 16-byte keys and 100-byte values; the writes go to a disk in memory.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use std::path::Path;
use store::{Image, Options, Page, PageNo, Record, Room, Store};
use sys::file::Fs;
use sys::file::simulated::Disk;

fn store() -> Store {
    let fs = Fs::Simulated(Disk::new(1));
    Store::create(&fs, Path::new("/bench"), &Options::new(1)).expect("the disk is empty")
}

fn record<'a>(key: &'a [u8], image: &'a [u8]) -> Record<'a> {
    Record { database: 0, key, expires_at: None, kind: 0, flags: 0, image: Image::Plain(image) }
}

fn key(number: u64) -> [u8; 16] {
    let mut key = *b"user:00000000000";
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

/// A page full of records, and the number of the last one.
fn page(store: &Store) -> (Vec<u8>, PageNo, u64) {
    let mut chunk = store.chunk(Room::Small).expect("there is room");
    let mut number = 0;
    let first = chunk.add(&record(&key(0), &[7; 100])).expect("it is empty");
    while chunk.add(&record(&key(number + 1), &[7; 100])) == Some(first) {
        number += 1;
    }
    chunk.write().expect("there is space");
    let (file, offset) = store.place_of(first).expect("it was written");
    let mut bytes = vec![0; 4096];
    file.read_full_at(&mut bytes, offset).expect("it can be read");
    (bytes, first, number)
}

fn reading(criterion: &mut Criterion) {
    let store = store();
    let (bytes, no, last) = page(&store);
    let parsed = || Page::parse(black_box(&bytes), no, &store).expect("it is right");
    criterion.bench_function("checksum alone", |bench| bench.iter(|| crc32c::crc32c(black_box(&bytes[4..]))));
    criterion.bench_function("parse", |bench| bench.iter(|| black_box(parsed())));
    let page = parsed();
    for (name, number) in [("find the first", 0), ("find the last", last), ("find none", last + 1)] {
        let key = key(number);
        criterion.bench_function(name, |bench| bench.iter(|| page.find(0, black_box(&key)).is_some()));
    }
    criterion.bench_function("is written", |bench| bench.iter(|| store.is_written(black_box(no))));
    criterion.bench_function("place of", |bench| bench.iter(|| store.place_of(black_box(no)).is_ok()));
}

fn adding(criterion: &mut Criterion) {
    let store = store();
    let mut group = criterion.benchmark_group("chunk");
    group.throughput(Throughput::Elements(1));
    let (image, mut number) = ([7; 100], 0);
    let mut chunk = store.chunk(Room::Small).expect("there is room");
    group.bench_function("add", |bench| {
        bench.iter(|| {
            number += 1;
            if chunk.add(&record(&key(number), &image)).is_none() {
                // Its pages are given back: nothing is written.
                drop(std::mem::replace(&mut chunk, store.chunk(Room::Small).expect("there is room")));
            }
        });
    });
    group.finish();
}

criterion_group!(benches, reading, adding);
criterion_main!(benches);
