//! Pages on disk whose checksums are right and whose content is anything: reading, going through segments and looking at them give
//! values or damage, and never panic, hang or take memory for what a length claims.
//!
//! No disk makes such pages, but a fault of this program might. `TARN_SEED` and `TARN_STEPS` repeat and lengthen it.

#![allow(clippy::unwrap_used)] // Tests may.

use std::ops::ControlFlow;
use std::path::Path;
use store::{Compression, Found, Image, Options, PageNo, Record, Room, Store};
use sys::Prng;
use sys::file::Fs;
use sys::file::simulated::{Disk, Survival};
use testkit::seed::Budget;

const PAGE: usize = 4096;

fn dir() -> &'static Path {
    Path::new("/store")
}

fn options() -> Options {
    Options { segment_pages: 16, compression: Compression::Lz4, ..Options::new(1) }
}

/// Keys, and where their records lie.
type Places = Vec<(Vec<u8>, PageNo)>;

/// A store with records of all kinds, where they lie, and its table.
fn store() -> (Disk, Places, Vec<u8>) {
    let disk = Disk::new(1);
    let store = Store::create(&Fs::Simulated(disk.clone()), dir(), &options()).unwrap();
    let mut prng = Prng::from_seed(1);
    let mut pages = Places::new();
    for (index, bytes) in [100, 200, 3000, 6000, 12_000, 60_000, 9, 900, 100_000].into_iter().enumerate() {
        let key = if index == 4 { vec![1; 5000] } else { vec![index as u8; 5] };
        let image: Vec<u8> =
            (0..bytes).map(|_| if index % 2 == 0 { 7 } else { prng.next_u64() as u8 }).collect();
        let image = Image::Plain(&image);
        let record = Record { database: 300, key: &key, expires_at: None, kind: 0, flags: 0, image };
        let page = match store.room_for(&record) {
            Room::Parts => store.write_parts(&record).unwrap(),
            room => {
                let mut chunk = store.chunk(room).unwrap();
                let page = chunk.add(&record).unwrap();
                chunk.write().unwrap();
                page
            }
        };
        pages.push((key, page));
    }
    let table = store.table(store.begin_checkpoint()).unwrap();
    (disk, pages, table)
}

/// Changes some bytes of one page and makes its checksum right.
fn forge(content: &mut [u8], prng: &mut Prng) {
    let at = prng.below((content.len() / PAGE) as u64) as usize * PAGE;
    let page = &mut content[at..at + PAGE];
    for _ in 0..=prng.below(3) {
        let byte = match prng.below(4) {
            0 => 5 + prng.below(3),
            1 => 28 + prng.below(2),
            2 => 32 + prng.below(40),
            _ => 32 + prng.below(PAGE as u64 - 32),
        };
        page[byte as usize] = match prng.below(4) {
            0 => 255,
            1 => 0,
            2 => page[byte as usize].wrapping_add(1),
            _ => prng.next_u64() as u8,
        };
    }
    let crc = crc32c::crc32c(&page[4..]);
    page[..4].copy_from_slice(&crc.to_le_bytes());
}

#[test]
fn forged_pages_give_values_or_damage() {
    let budget = Budget::from_env(1, 3000);
    let (disk, pages, table) = store();
    let (mut values, mut refused) = (0, 0);
    for step in (0..).take_while(|step| budget.allows(*step)) {
        let mut prng = Prng::from_seed(budget.seed + step);
        let forged = disk.power_cut(0, Survival::All);
        let files = forged.names(dir());
        let files: Vec<_> =
            files.iter().filter(|path| path.extension().is_some_and(|end| end == "store")).collect();
        let path = files[prng.below(files.len() as u64) as usize];
        let mut content = forged.content(path).unwrap();
        forge(&mut content, &mut prng);
        forged.place(path, content);
        let fs = Fs::Simulated(forged.clone());
        store::check(&fs, dir(), &table).unwrap();
        let store = Store::open(&fs, dir(), &options(), &table).unwrap();
        for (key, page) in &pages {
            match store.read(300, key, *page) {
                Ok(_) => values += 1,
                Err(_) => refused += 1,
            }
        }
        for segment in 1..=files.len() as u32 {
            let mut visited = 0;
            let walked = store.records_of(store::SegmentNo(segment), |_, found| {
                visited += 1;
                match found {
                    Found::Here(record) => drop(record.to_owned()),
                    Found::Continues(rest) => drop(store.read_rest(rest)),
                }
                ControlFlow::Continue(())
            });
            assert!(walked.is_ok() && visited < 16 * 600, "TARN_SEED={} TARN_STEPS=1", budget.seed + step);
        }
    }
    println!("{values} values, {refused} refused");
    assert!(values > 1000 && refused > 100);
}
