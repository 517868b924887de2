//! Opening, refusing, using files again, records of every size and the pace of cleaning; on the simulated disk and on a real one.

#![allow(clippy::unwrap_used)] // Tests may.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use store::{
    Compression, Damage, Found, Image, Options, Page, PageNo, ReadError, Record, Refusal, Room, Store, Wrong,
};
use sys::file::Fs;
use sys::file::simulated::{Disk, Faults};
use sys::{Prng, UnixMs};

fn options() -> Options {
    Options { segment_pages: 16, ..Options::new(1) }
}

fn dir() -> &'static Path {
    Path::new("/store")
}

fn simulated() -> (Disk, Fs) {
    let disk = Disk::new(1);
    (disk.clone(), Fs::Simulated(disk))
}

fn record<'a>(key: &'a [u8], image: &'a [u8]) -> Record<'a> {
    Record { database: 0, key, expires_at: None, kind: 1, flags: 2, image: Image::Plain(image) }
}

fn noise(bytes: usize, seed: u64) -> Vec<u8> {
    let mut prng = Prng::from_seed(seed);
    (0..bytes).map(|_| prng.next_u64() as u8).collect()
}

/// Writes one record, whatever it needs.
fn write(store: &Store, key: &[u8], image: &[u8]) -> PageNo {
    let record = record(key, image);
    match store.room_for(&record) {
        Room::Parts => store.write_parts(&record).unwrap(),
        room => {
            let mut chunk = store.chunk(room).unwrap();
            let page = chunk.add(&record).unwrap();
            chunk.write().unwrap();
            page
        }
    }
}

/// Writes a segment full of small records, and gives their pages.
fn fill_segment(store: &Store) -> Vec<PageNo> {
    (0..16).map(|key: u32| write(store, &key.to_le_bytes(), &noise(3900, u64::from(key)))).collect()
}

fn checkpoint(store: &Store) -> Vec<u8> {
    let mark = store.begin_checkpoint();
    let table = store.table(mark).unwrap();
    store.end_checkpoint(mark);
    table
}

/// Records of all sizes around the limits, on either disk.
fn write_and_read(fs: &Fs, dir: &Path, compression: Compression) {
    let options = Options { compression, ..options() };
    let store = Store::create(fs, dir, &options).unwrap();
    let room = 4096 - 32;
    let sizes =
        [0, 1, 100, room - 12, room - 11, room - 10, room, 2 * room, 4 * room - 15, 4 * room, 100_000];
    let mut written = Vec::new();
    for (index, bytes) in sizes.into_iter().enumerate() {
        for image in [noise(bytes, index as u64), vec![index as u8; bytes]] {
            let key = format!("k{:03}", written.len());
            let page = write(&store, key.as_bytes(), &image);
            assert!(store.is_written(page));
            written.push((key, image, page));
        }
    }
    let long_key = noise(9000, 99);
    let page = write(&store, &long_key, b"of a long key");
    let mut other_key = long_key.clone();
    *other_key.last_mut().unwrap() ^= 1;
    assert_eq!(store.read(0, &other_key, page).unwrap(), None);
    assert_eq!(store.read(0, &long_key, page).unwrap().unwrap().image, b"of a long key");
    let table = checkpoint(&store);
    drop(store);
    assert!(store::check(fs, dir, &table).unwrap().is_intact());
    let store = Store::open(fs, dir, &Options { seed: 2, ..options }, &table).unwrap();
    for (key, image, page) in &written {
        let record = store.read(0, key.as_bytes(), *page).unwrap().unwrap();
        assert_eq!((&record.image, record.kind, record.flags), (image, 1, 2), "{key}");
        assert_eq!(store.read(1, key.as_bytes(), *page).unwrap(), None);
    }
    assert_eq!(store.stats().bytes_written, 0);
    assert!(store.stats().bytes_read > 0);
}

#[test]
fn records_of_every_size_come_back_on_both_disks() {
    let scratch = tempfile::tempdir().unwrap();
    for compression in [Compression::None, Compression::Lz4] {
        write_and_read(&simulated().1, dir(), compression);
        write_and_read(&Fs::Real, &scratch.path().join(format!("{compression:?}")), compression);
    }
}

#[test]
fn compression_saves_space_and_is_told_by_each_record() {
    let (_, fs) = simulated();
    let packing = Options { compression: Compression::Lz4, ..options() };
    let store = Store::create(&fs, dir(), &packing).unwrap();
    let page = write(&store, b"key", &[7; 100_000]);
    assert!(store.stats().bytes_written < 60_000, "{:?}", store.stats());
    let table = checkpoint(&store);
    drop(store);
    let store = Store::open(&fs, dir(), &options(), &table).unwrap();
    assert_eq!(store.read(0, b"key", page).unwrap().unwrap().image, [7; 100_000]);
}

#[test]
fn a_list_of_parts_that_is_longer_than_a_page_is_read_too() {
    let (_, fs) = simulated();
    let store = Store::create(&fs, dir(), &options()).unwrap();
    let image = noise(9_000_000, 5);
    let page = write(&store, b"huge", &image);
    write(&store, b"other", &noise(100_000, 6));
    assert!(store.read(0, b"huge", page).unwrap().unwrap().image == image);
    let table = checkpoint(&store);
    drop(store);
    let store = Store::open(&fs, dir(), &options(), &table).unwrap();
    assert!(store.read(0, b"huge", page).unwrap().unwrap().image == image);
    let before = store.stats().records_live;
    store.note_dead(page);
    assert!(store.stats().records_live < before - 500, "its parts died with it");
}

#[test]
fn what_cannot_be_written_is_told_before() {
    let (_, fs) = simulated();
    let store = Store::create(&fs, dir(), &options()).unwrap();
    let key = vec![1; 20_000];
    assert_eq!(store.room_for(&record(&key, b"")), Room::TooLong);
    assert_eq!(store.room_for(&record(b"key", b"")), Room::Small);
    assert_eq!(store.room_for(&record(b"key", &[0; 5000])), Room::Large { pages: 2 });
    assert_eq!(store.room_for(&record(b"key", &[0; 20_000])), Room::Parts);
}

#[test]
fn what_is_not_written_is_not_found() {
    let (_, fs) = simulated();
    let store = Store::create(&fs, dir(), &options()).unwrap();
    let mut chunk = store.chunk(Room::Small).unwrap();
    let page = chunk.add(&record(b"key", b"image")).unwrap();
    assert!(!store.is_written(page));
    let Err(ReadError::Damage(Damage { wrong, .. })) = store.read(0, b"key", page) else {
        panic!("it is read")
    };
    assert_eq!(wrong, Wrong::Unwritten);
    drop(chunk);
    assert!(!store.is_written(page));
    assert_eq!(write(&store, b"other", b""), page, "the place is given to the next");
    assert_eq!(store.read(0, b"key", page).unwrap(), None);
    for number in [1, 15, 17 * 16, u32::MAX] {
        let page = PageNo::new(number).unwrap();
        assert!(!store.is_written(page));
        assert!(store.read(0, b"key", page).is_err(), "{number}");
        assert!(Page::parse(&[0; 4096], page, &store).is_err());
        store.note_dead(page);
    }
}

#[test]
fn a_freed_file_is_used_again_and_never_before_a_checkpoint() {
    let (disk, fs) = simulated();
    let store = Store::create(&fs, dir(), &options()).unwrap();
    let pages = fill_segment(&store);
    fill_segment(&store);
    let first = store.segment_of(pages[0]);
    checkpoint(&store);
    pages.iter().for_each(|page| store.note_dead(*page));
    assert_eq!(store.victim(), Some(first));
    let mark = store.begin_checkpoint();
    store.retire(first);
    store.table(mark).unwrap();
    store.end_checkpoint(mark);
    assert!(
        store.read(0, &0u32.to_le_bytes(), pages[0]).unwrap().is_some(),
        "the checkpoint may refer to it"
    );
    assert_eq!((store.stats().segments_retired, store.stats().segments_free), (1, 0));
    // A reader that still holds the file keeps it from being used.
    let (held, offset) = store.place_of(pages[3]).unwrap();
    checkpoint(&store);
    assert_eq!((store.stats().segments_retired, store.stats().segments_free), (0, 1));
    assert!(store.read(0, &0u32.to_le_bytes(), pages[0]).is_err());
    assert!(fill_segment(&store).iter().all(|page| store.segment_of(*page) != first));
    let mut bytes = [0; 4096];
    assert_eq!((held.read_full_at(&mut bytes, offset).unwrap(), offset), (4096, 3 * 4096));
    drop(held);
    let files = disk.names(dir()).len();
    let again = write(&store, b"new", b"");
    assert_eq!((store.segment_of(again), disk.names(dir()).len()), (first, files));
    // What the earlier use left is seen as such.
    let wrong = Page::parse(&bytes, pages[3], &store).unwrap_err().wrong;
    assert_eq!(wrong, Wrong::Unwritten);
    fill_segment(&store);
    assert!(store.is_written(pages[3]));
    assert_eq!(Page::parse(&bytes, pages[3], &store).unwrap_err().wrong, Wrong::Stale);
}

#[test]
fn what_somebody_keeps_is_freed_when_it_is_let_go_and_due() {
    let (_disk, fs) = simulated();
    let store = Store::create(&fs, dir(), &options()).unwrap();
    let [kept, later] = [fill_segment(&store), fill_segment(&store)];
    fill_segment(&store);
    let counts = || (store.stats().segments_retired, store.stats().segments_free);
    checkpoint(&store);
    let keepers = [store.keep(), store.keep()];
    store.retire(store.segment_of(kept[0]));
    checkpoint(&store);
    store.retire(store.segment_of(later[0]));
    assert_eq!(counts(), (2, 0));
    let mut shown = Vec::new();
    store.read_in_order(&kept, &mut |page, read| {
        assert_eq!(read.unwrap().no(), page);
        shown.push(page);
    });
    assert_eq!(shown, kept);
    let [first, second] = keepers;
    drop(first);
    assert_eq!(counts(), (2, 0), "another keeps it");
    drop(second);
    assert_eq!(counts(), (1, 1), "no checkpoint has ended since the later one was retired");
    let mut errors = 0;
    store.read_in_order(&kept, &mut |_, read| errors += usize::from(read.is_err()));
    assert_eq!(errors, kept.len());
    checkpoint(&store);
    assert_eq!(counts(), (0, 2));
}

#[test]
fn pages_are_read_in_order_however_far_apart_they_are_and_past_those_that_are_damaged() {
    let (disk, fs) = simulated();
    let store = Store::create(&fs, dir(), &options()).unwrap();
    let pages: Vec<PageNo> = (0..6).flat_map(|_| fill_segment(&store)).collect();
    for step in [1, 2, 7, 9, 40] {
        let wanted: Vec<PageNo> = pages.iter().copied().step_by(step).collect();
        let mut shown = Vec::new();
        store.read_in_order(&wanted, &mut |page, read| {
            let read = read.unwrap();
            assert!(read.no() == page && read.records().count() == 1);
            shown.push(page);
        });
        assert_eq!(shown, wanted, "every {step}");
    }
    let (_, offset) = store.place_of(pages[5]).unwrap();
    disk.flip(&dir().join("0000000001.store"), (offset + 100) * 8);
    let mut damaged = Vec::new();
    store.read_in_order(&pages, &mut |page, read| damaged.extend(read.is_err().then_some(page)));
    assert_eq!(damaged, [pages[5]]);
}

#[test]
fn more_free_files_than_spare_ones_are_removed() {
    let (disk, fs) = simulated();
    let store = Store::create(&fs, dir(), &Options { spare_segments: 1, ..options() }).unwrap();
    let victims: Vec<_> = (0..5).map(|_| store.segment_of(fill_segment(&store)[0])).collect();
    write(&store, b"key", b"");
    victims.iter().for_each(|victim| store.retire(*victim));
    let table = checkpoint(&store);
    let stores = |disk: &Disk| disk.names(dir()).iter().filter(|path| path.extension().is_some()).count();
    assert_eq!(stores(&disk), 2);
    drop(store);
    // And at a start.
    for no in 50..60 {
        disk.place(&dir().join(format!("{no:010}.store")), vec![9; 4096]);
    }
    disk.place(&dir().join("other.file"), vec![1]);
    let store = Store::open(&fs, dir(), &Options { spare_segments: 2, ..options() }, &table).unwrap();
    assert_eq!((stores(&disk), store.stats().segments_free), (4, 2));
    for _ in 0..4 {
        fill_segment(&store).iter().for_each(|page| assert!(store.is_written(*page)));
    }
}

#[test]
fn nobody_waits_for_the_removal_of_what_is_freed_together() {
    let (disk, fs) = simulated();
    let store = Store::create(&fs, dir(), &Options { spare_segments: 1, ..options() }).unwrap();
    let victims: Vec<_> = (0..5).map(|_| store.segment_of(fill_segment(&store)[0])).collect();
    write(&store, b"key", b"");
    let keeper = store.keep();
    victims.iter().for_each(|victim| store.retire(*victim));
    checkpoint(&store);
    assert_eq!(store.stats().segments_retired, 5);
    disk.hang(true);
    std::thread::scope(|scope| {
        scope.spawn(|| drop(keeper));
        disk.wait_until_hanging();
        let (tell, told) = mpsc::channel();
        let asking = &store;
        scope.spawn(move || tell.send(asking.stats()));
        let stats = told.recv_timeout(Duration::from_secs(60));
        disk.hang(false);
        let stats = stats.expect("nobody who asks waits for the disk");
        assert_eq!((stats.segments_retired, stats.segments_free), (0, 1));
    });
    let files = |disk: &Disk| disk.names(dir()).iter().filter(|path| path.extension().is_some()).count();
    assert_eq!(files(&disk), 2);
    // The numbers are there again.
    (0..5).for_each(|_| drop(fill_segment(&store)));
    assert_eq!(files(&disk), 6);
}

#[test]
fn a_full_disk_refuses_chunks_and_takes_them_in_files_that_are_there() {
    let (disk, fs) = simulated();
    let store = Store::create(&fs, dir(), &options()).unwrap();
    let pages: Vec<_> = (0..3).flat_map(|_| fill_segment(&store)).collect();
    disk.set_faults(Faults { space_bytes: Some(3 * 65_536 + 5000), ..Faults::default() });
    let (names, image) = (disk.names(dir()).len(), noise(30_000, 1));
    for round in 0..10 {
        let mut chunk = store.chunk(Room::Small).unwrap();
        while chunk.add(&record(&chunk.records().to_le_bytes(), &image[..3000])).is_some() {}
        let error = chunk.write().unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
        assert!(error.to_string().starts_with("writing /store/0000000004.store: "), "{error}");
        assert!(disk.names(dir()).len() <= names + 1, "round {round}: files pile up");
        assert!(store.read(0, &3u32.to_le_bytes(), pages[3]).unwrap().is_some(), "reading goes on");
    }
    store.retire(store.segment_of(pages[0]));
    checkpoint(&store);
    let again = fill_segment(&store);
    assert!(again.iter().all(|page| store.segment_of(*page) == store.segment_of(pages[0])));
    assert!(store.read(0, &3u32.to_le_bytes(), again[3]).unwrap().is_some());
}

#[test]
fn what_chunks_leave_over_is_filled_by_others() {
    let (_, fs) = simulated();
    let store = Store::create(&fs, dir(), &Options { segment_pages: 512, ..options() }).unwrap();
    let image = noise(40 * 4064 - 100, 1);
    // Of one length, they take no more than they need, though several chunks are on their way.
    let mut chunks = Vec::new();
    for key in 0..8u32 {
        let key = key.to_le_bytes();
        let record = record(&key, &image);
        let mut chunk = store.chunk(store.room_for(&record)).unwrap();
        assert!(chunk.add(&record).is_some());
        chunks.push(chunk);
    }
    chunks.into_iter().for_each(|chunk| chunk.write().unwrap());
    assert_eq!(store.stats().bytes_in_use, 8 * 40 * 4096);
    // Of several lengths, the first chunk leaves something.
    let large = |pages: usize| record(b"key", &image[..pages * 4064 - 100]);
    let mut first = store.chunk(Room::Large { pages: 10 }).unwrap();
    first.add(&large(10)).unwrap();
    let second = store.chunk(Room::Large { pages: 40 }).unwrap();
    first.write().unwrap();
    let mut third = store.chunk(Room::Large { pages: 20 }).unwrap();
    let page = third.add(&large(20)).unwrap();
    third.write().unwrap();
    assert_eq!(page.get() % 512, 8 * 40 + 10);
    assert!(store.read(0, b"key", page).unwrap().is_some());
    drop(second);
    let live = store.stats().records_live;
    assert_eq!(live, 10);
}

#[test]
fn damage_is_told_by_cleaning_and_its_segment_left_alone() {
    let (disk, fs) = simulated();
    let store = Store::create(&fs, dir(), &options()).unwrap();
    let pages = fill_segment(&store);
    write(&store, b"key", b"");
    pages[..14].iter().for_each(|page| store.note_dead(*page));
    let victim = store.victim().unwrap();
    disk.flip(&dir().join("0000000001.store"), (5 * 4096 + 100) * 8);
    let mut visited = 0;
    let damages = store.records_of(victim, |_, _| {
        visited += 1;
        ControlFlow::Continue(())
    });
    let damages = damages.unwrap();
    assert_eq!((visited, damages.len(), store.victim()), (15, 1, None));
    assert_eq!(
        damages[0].to_string(),
        "page 21 of segment 1 is damaged, /store/0000000001.store at offset 20480: its checksum is wrong"
    );
}

#[test]
fn a_start_is_refused_with_what_is_wrong() {
    let (disk, fs) = simulated();
    let store = Store::create(&fs, dir(), &options()).unwrap();
    fill_segment(&store);
    let table = checkpoint(&store);
    let refused = |fs: &Fs, table: &[u8]| Store::open(fs, dir(), &options(), table).unwrap_err();
    assert!(matches!(refused(&fs, &table), Refusal::InUse(_)));
    drop(store);
    assert!(matches!(refused(&fs, &table[..table.len() - 1]), Refusal::Table(_)));
    assert!(matches!(refused(&fs, b""), Refusal::Table(_)));
    let mut newer = table[..table.len() - 4].to_vec();
    newer[8] = 2;
    newer.extend_from_slice(&crc32c::crc32c(&newer).to_le_bytes());
    assert!(matches!(refused(&fs, &newer), Refusal::NewerTable(2)));
    let path = dir().join("0000000001.store");
    let content = disk.content(&path).unwrap();
    disk.place(&path, content[..4096 * 15].to_vec());
    let refusal = refused(&fs, &table);
    assert!(matches!(refusal, Refusal::Short { bytes: 61_440, needed: 65_536, .. }), "{refusal}");
    fs.remove(&path).unwrap();
    assert!(matches!(refused(&fs, &table), Refusal::Missing(_)));
    let report = store::check(&fs, dir(), &table).unwrap();
    assert!(!report.is_intact() && report.segments[0].missing.is_some());
    disk.place(&path, content);
    assert!(Store::open(&fs, dir(), &options(), &table).is_ok());
}

/// `TARN_WRITE_FIXTURE=1 cargo test -p store --test open first_version` writes the files anew, with a new version of the format.
#[test]
fn files_of_the_first_version_open() {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/v1");
    let image = |index: usize| noise([100, 3000, 6000, 20_000][index], index as u64);
    let keys = [&b"small"[..], b"most of a page", b"extent", b"parts"];
    if std::env::var_os("TARN_WRITE_FIXTURE").is_some() {
        std::fs::create_dir_all(&kept).unwrap();
        let (disk, fs) = simulated();
        let store = Store::create(&fs, dir(), &options()).unwrap();
        let pages: Vec<_> = (0..4).map(|index| write(&store, keys[index], &image(index)).get()).collect();
        assert_eq!(pages, FIXTURE_PAGES);
        let packing = Options { compression: Compression::Lz4, ..options() };
        let table = checkpoint(&store);
        drop(store);
        let store = Store::open(&fs, dir(), &packing, &table).unwrap();
        let expiring =
            Record { database: 300, expires_at: Some(UnixMs(77)), ..record(b"packed", &[7; 1000]) };
        let mut chunk = store.chunk(Room::Small).unwrap();
        assert_eq!(chunk.add(&expiring).map(PageNo::get), Some(FIXTURE_PACKED));
        chunk.write().unwrap();
        std::fs::write(kept.join("table"), checkpoint(&store)).unwrap();
        for path in disk.names(dir()).iter().filter(|path| path.extension().is_some_and(|end| end == "store"))
        {
            std::fs::write(kept.join(path.file_name().unwrap()), disk.content(path).unwrap()).unwrap();
        }
    }
    let (disk, fs) = simulated();
    fs.create_dir_all(dir()).unwrap();
    for file in std::fs::read_dir(&kept).unwrap() {
        let path = file.unwrap().path();
        disk.place(&dir().join(path.file_name().unwrap()), std::fs::read(&path).unwrap());
    }
    let table = std::fs::read(kept.join("table")).unwrap();
    assert!(store::check(&fs, dir(), &table).unwrap().is_intact());
    let store = Store::open(&fs, dir(), &options(), &table).unwrap();
    for (index, page) in FIXTURE_PAGES.into_iter().enumerate() {
        let read = store.read(0, keys[index], PageNo::new(page).unwrap()).unwrap().unwrap();
        assert_eq!((read.image, read.kind, read.flags), (image(index), 1, 2));
    }
    let packed = store.read(300, b"packed", PageNo::new(FIXTURE_PACKED).unwrap()).unwrap().unwrap();
    assert_eq!((packed.image, packed.expires_at), (vec![7; 1000], Some(UnixMs(77))));
}

/// Where the records of the first version's files lie.
const FIXTURE_PAGES: [u32; 4] = [16, 17, 32, 39];
const FIXTURE_PACKED: u32 = 48;

/// Cleans until there is no want of it, moving what lives; the model knows where each key lies.
fn clean(store: &Store, places: &mut [PageNo]) {
    while store.wants_cleaning() {
        let Some(victim) = store.victim() else { break };
        let mut living = Vec::new();
        let damages = store.records_of(victim, |page, found| {
            let Found::Here(record) = found else { panic!("all are small") };
            let key = u32::from_le_bytes(record.key.try_into().unwrap());
            if places[key as usize] == page {
                living.push((key, record.to_owned().unwrap()));
            }
            ControlFlow::Continue(())
        });
        assert_eq!(damages.unwrap(), []);
        let mut chunk = store.chunk(Room::Small).unwrap();
        for (key, record) in living {
            let page = chunk.add(&record.as_record()).unwrap_or_else(|| {
                std::mem::replace(&mut chunk, store.chunk(Room::Small).unwrap()).write().unwrap();
                chunk.add(&record.as_record()).unwrap()
            });
            store.note_dead(std::mem::replace(&mut places[key as usize], page));
        }
        chunk.write().unwrap();
        store.retire(victim);
    }
    if store.wants_checkpoint() {
        checkpoint(store);
    }
}

#[test]
fn uniform_overwrites_stay_within_the_space_and_the_writes_allowed() {
    let (_, fs) = simulated();
    let store = Store::create(&fs, dir(), &Options { segment_pages: 64, ..Options::new(3) }).unwrap();
    let mut prng = Prng::from_seed(3);
    let keys = 200_000u32;
    let mut places: Vec<PageNo> = Vec::new();
    let mut chunk = store.chunk(Room::Small).unwrap();
    let mut most = 0;
    let mut put = |key: u32, places: &mut Vec<PageNo>| {
        let bytes = key.to_le_bytes();
        let image = [key as u8; 110];
        let record = record(&bytes, &image);
        let mut is_full = false;
        let page = chunk.add(&record).unwrap_or_else(|| {
            is_full = true;
            std::mem::replace(&mut chunk, store.chunk(Room::Small).unwrap()).write().unwrap();
            chunk.add(&record).unwrap()
        });
        match places.get_mut(key as usize) {
            Some(place) => store.note_dead(std::mem::replace(place, page)),
            None => places.push(page),
        }
        is_full
    };
    for key in 0..keys {
        put(key, &mut places);
    }
    let before = store.stats().bytes_written;
    let overwrites = 4 * keys;
    for count in 0..overwrites {
        if put(prng.below(u64::from(keys)) as u32, &mut places) {
            clean(&store, &mut places);
            if count > keys {
                most = most.max(store.stats().bytes_total);
            }
        }
    }
    let live = store.stats().bytes_live;
    assert!(live.abs_diff(u64::from(keys) * 126) < live / 20, "{live} is nearly right");
    let amplification = most as f64 / live as f64;
    let written = (store.stats().bytes_written - before) as f64 / (f64::from(overwrites) * 126.0);
    println!("{amplification:.2} times the space, {written:.2} times the writes");
    assert!(amplification < 1.55, "{amplification}");
    assert!(written < 2.6, "{written}");
}

#[test]
fn threads_write_read_clean_and_checkpoint_at_once() {
    let scratch = tempfile::tempdir().unwrap();
    let store =
        Store::create(&Fs::Real, scratch.path(), &Options { segment_pages: 64, ..Options::new(9) }).unwrap();
    let written = Arc::new(AtomicU64::new(0));
    let writers: Vec<_> = (0..3u32)
        .map(|thread| {
            let (store, written) = (store.clone(), Arc::clone(&written));
            std::thread::spawn(move || {
                let mut pages = Vec::new();
                for round in 0..60u32 {
                    let mut chunk = store.chunk(Room::Small).unwrap();
                    let mut added = Vec::new();
                    for index in 0..200u32 {
                        let key = [thread.to_le_bytes(), round.to_le_bytes(), index.to_le_bytes()].concat();
                        let Some(page) = chunk.add(&record(&key, &noise(400, u64::from(index)))) else {
                            break;
                        };
                        added.push((key, u64::from(index), page));
                    }
                    chunk.write().unwrap();
                    written.fetch_add(added.len() as u64, Ordering::Relaxed);
                    for (key, seed, page) in &added {
                        assert!(store.is_written(*page));
                        let read = store.read(0, key, *page).unwrap().unwrap();
                        assert_eq!(read.image, noise(400, *seed));
                    }
                    pages.extend(added);
                }
                pages
            })
        })
        .collect();
    while writers.iter().any(|writer| !writer.is_finished()) {
        checkpoint(&store);
        store.stats();
        store.victim();
    }
    let pages: Vec<_> = writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect();
    assert_eq!(pages.len() as u64, written.load(Ordering::Relaxed));
    assert_eq!(store.stats().records_written, pages.len() as u64);
    let table = checkpoint(&store);
    drop(store);
    let store = Store::open(&Fs::Real, scratch.path(), &Options::new(10), &table).unwrap();
    for (key, seed, page) in pages {
        assert_eq!(store.read(0, &key, page).unwrap().unwrap().image, noise(400, seed));
    }
}

/// How many files below a directory this process has open.
fn open_files(dir: &Path) -> usize {
    let links = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    links.filter_map(|link| std::fs::read_link(link.path()).ok()).filter(|path| path.starts_with(dir)).count()
}

#[test]
fn few_files_are_open_however_many_segments_there_are() {
    const MOST: usize = 4;
    const SEGMENTS: usize = 40;
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().canonicalize().unwrap();
    let options = Options { handles: MOST, spare_segments: 100, ..options() };
    let store = Store::create(&Fs::Real, &dir, &options).unwrap();
    // The one that is written to, and the lock's.
    let bound = MOST + 2;
    let mut pages = Vec::new();
    for _ in 0..SEGMENTS {
        pages.push(fill_segment(&store));
        assert!(open_files(&dir) <= bound, "{} files are open", open_files(&dir));
    }
    store.sync().unwrap();
    let read = |pages: &[PageNo], key: u32| {
        store.read(0, &key.to_le_bytes(), pages[key as usize]).unwrap().unwrap().image
            == noise(3900, u64::from(key))
    };
    for round in 0..3 {
        assert!(pages.iter().all(|pages| read(pages, round)));
        assert!(open_files(&dir) <= bound, "{} files are open", open_files(&dir));
    }
    // Who holds a file keeps it, and its segment is not used again.
    let held: Vec<_> = pages[..2 * MOST].iter().map(|pages| store.place_of(pages[0]).unwrap().0).collect();
    assert!(pages.iter().all(|pages| read(pages, 0)));
    let (again, _) = store.place_of(pages[0][0]).unwrap();
    assert!(Arc::ptr_eq(&again, &held[0]));
    assert!(open_files(&dir) <= bound + held.len());
    drop((again, held));
    // What was held beyond is closed, and who could hold many takes no more than may be open.
    store.keep_to_share();
    let wanted: Vec<_> = pages.iter().filter_map(|pages| store.place_within_share(pages[0])).collect();
    assert!(!wanted.is_empty() && wanted.len() <= MOST && open_files(&dir) <= bound);
    let held: Vec<_> = pages[..2 * MOST].iter().map(|pages| store.place_of(pages[0]).unwrap().0).collect();
    assert!(open_files(&dir) > bound);
    drop((wanted, held));
    store.keep_to_share();
    assert!(open_files(&dir) <= bound, "{} files are open", open_files(&dir));
    store.set_handles(1);
    assert!(pages.iter().all(|pages| read(pages, 0)));
    assert!(open_files(&dir) <= 3);
    // All of it is there for who opens it again.
    let table = checkpoint(&store);
    drop(store);
    assert!(store::check(&Fs::Real, &dir, &table).unwrap().is_intact());
}

#[test]
fn threads_read_what_others_close() {
    let temp = tempfile::tempdir().unwrap();
    let options = Options { handles: 2, ..options() };
    let store = Store::create(&Fs::Real, temp.path(), &options).unwrap();
    let pages: Vec<_> = (0..12).map(|_| fill_segment(&store)).collect();
    store.sync().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (store, pages) = (&store, &pages);
            scope.spawn(move || {
                let mut prng = Prng::from_seed(thread);
                for _ in 0..2000 {
                    let (segment, key) = (prng.below(12) as usize, prng.below(16) as u32);
                    let record = store.read(0, &key.to_le_bytes(), pages[segment][key as usize]).unwrap();
                    assert_eq!(record.unwrap().image, noise(3900, u64::from(key)));
                }
            });
        }
    });
}
