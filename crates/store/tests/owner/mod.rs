//! What owns a store in the tests: a naive index, and the steps of the spiller, the cleaner and checkpoints, drawn from a seed.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use store::{
    CheckpointMark, Chunk, Class, Compression, Found, Image, Options, OwnedRecord, PageNo, Record, Room,
    Store,
};
use sys::file::Fs;
use sys::file::simulated::Disk;
use sys::{Prng, UnixMs};

/// Small, so that a workload fills many of them.
pub const SEGMENT_PAGES: u32 = 16;

pub fn dir() -> &'static Path {
    Path::new("/store")
}

pub fn options(seed: u64) -> Options {
    let compression = if seed.is_multiple_of(2) { Compression::None } else { Compression::Lz4 };
    let usual = Options::new(seed);
    let handles = if seed.is_multiple_of(3) { 2 } else { usual.handles };
    Options { segment_pages: SEGMENT_PAGES, compression, handles, ..usual }
}

/// Where the index says that a key lies, and what it must be there.
#[derive(Clone, Debug)]
pub struct Entry {
    pub page: PageNo,
    word: u64,
    bytes: usize,
}

impl Entry {
    pub fn database(&self) -> u32 {
        // Some of them need the longer form. A key may change its database, which no server does: that makes keys that are
        // alike.
        (self.word % 3 * 200) as u32
    }

    fn expires_at(&self) -> Option<UnixMs> {
        self.word.is_multiple_of(5).then_some(UnixMs(self.word))
    }

    pub fn image(&self) -> Vec<u8> {
        if self.word.is_multiple_of(2) {
            return self.word.to_le_bytes().iter().copied().cycle().take(self.bytes).collect();
        }
        let mut prng = Prng::from_seed(self.word);
        (0..self.bytes).map(|_| prng.next_u64() as u8).collect()
    }

    fn is(&self, record: &OwnedRecord) -> bool {
        record.image == self.image()
            && record.database == self.database()
            && record.expires_at == self.expires_at()
            && (record.kind, record.flags) == (self.word as u8, !self.word as u8)
    }
}

pub type Index = BTreeMap<Vec<u8>, Entry>;

/// Keys that were added to a chunk.
type Added = Vec<(Vec<u8>, Entry)>;

/// A checkpoint that was complete: what a start would use.
#[derive(Clone, Debug)]
pub struct Complete {
    pub table: Vec<u8>,
    pub index: Index,
}

/// A checkpoint that is being made.
#[derive(Debug)]
pub struct Going {
    mark: CheckpointMark,
    index: Index,
    phase: u32,
}

#[derive(Debug)]
pub struct Work {
    prng: Prng,
    pub store: Store,
    pub index: Index,
    pub complete: Option<Complete>,
    pub going: Option<Going>,
    /// A chunk that is written when others have been.
    held: Option<(Chunk, Added)>,
    pub checkpoints: u32,
    pub failed_syncs: u32,
    pub failed_writes: u32,
    disk: Disk,
    files: usize,
}

impl Work {
    pub fn create(disk: &Disk, seed: u64) -> Option<Work> {
        let store = Store::create(&Fs::Simulated(disk.clone()), dir(), &options(seed)).ok()?;
        Some(Work::with(store, disk, seed))
    }

    /// Goes on from a checkpoint.
    pub fn open(disk: &Disk, seed: u64, complete: Complete) -> Result<Work, String> {
        let store = Store::open(&Fs::Simulated(disk.clone()), dir(), &options(seed), &complete.table);
        let mut work = Work::with(store.map_err(|refusal| refusal.to_string())?, disk, seed);
        work.index = complete.index.clone();
        if seed.is_multiple_of(2) {
            work.store.forget_counts();
            work.index.values().for_each(|entry| work.store.note_live(entry.page));
        }
        work.complete = Some(complete);
        Ok(work)
    }

    fn with(store: Store, disk: &Disk, seed: u64) -> Work {
        Work {
            prng: Prng::from_seed(seed),
            store,
            index: Index::new(),
            complete: None,
            going: None,
            held: None,
            checkpoints: 0,
            failed_syncs: 0,
            failed_writes: 0,
            disk: disk.clone(),
            files: 0,
        }
    }

    /// How many more segments were written than there are files.
    pub fn reused(&mut self) -> u64 {
        let files = self.disk.names(dir()).len().max(self.files) as u64;
        let written = self.store.stats().bytes_written / (u64::from(SEGMENT_PAGES) * 4096);
        written.saturating_sub(files)
    }

    /// One step: mostly writes, now and then a large record, cleaning, a checkpoint's next step.
    pub fn step(&mut self) {
        match self.prng.below(24) {
            0..=7 => self.put_some(),
            8..=9 => self.put_one_of(6000),
            10 => self.put_one_of(40_000),
            11 => self.hold(),
            12 => self.write_held(),
            13..=14 => self.remove(),
            15..=17 => self.clean(),
            18 => self.read_all(),
            _ => self.continue_checkpoint(),
        }
    }

    fn key(&mut self) -> Vec<u8> {
        let number = self.prng.below(70);
        let mut key = format!("key-{number}").into_bytes();
        if number.is_multiple_of(17) {
            // Longer than a page, and alike to the end.
            key = [vec![b'k'; 5000], key].concat();
        }
        key
    }

    fn entry(&mut self, bytes_max: u64) -> Entry {
        let page = PageNo::new(1).unwrap();
        Entry { page, word: self.prng.next_u64() >> 1, bytes: self.prng.below(bytes_max) as usize }
    }

    fn put_some(&mut self) {
        let count = 1 + self.prng.below(12);
        let wanted: Vec<_> = (0..count).map(|_| (self.key(), self.entry(900))).collect();
        self.put(wanted);
    }

    fn put_one_of(&mut self, bytes_max: u64) {
        let wanted = vec![(self.key(), self.entry(bytes_max))];
        self.put(wanted);
    }

    /// Writes records, and puts them into the index when they are written.
    fn put(&mut self, wanted: Vec<(Vec<u8>, Entry)>) {
        let mut chunk: Option<Chunk> = None;
        let mut added = Vec::new();
        for (key, mut entry) in wanted {
            let image = entry.image();
            let record = record(&key, &entry, &image);
            if self.store.room_for(&record) == Room::Parts {
                match self.store.write_parts(&record) {
                    Ok(page) => {
                        entry.page = page;
                        self.note(key, entry);
                    }
                    Err(_) => self.failed_writes += 1,
                }
                continue;
            }
            let page = chunk.as_mut().and_then(|chunk| chunk.add(&record));
            entry.page = match page {
                Some(page) => page,
                None => {
                    self.write(chunk.take(), std::mem::take(&mut added));
                    let Ok(mut fresh) = self.store.chunk(self.store.room_for(&record)) else {
                        self.failed_writes += 1;
                        return;
                    };
                    let page = fresh.add(&record).unwrap();
                    chunk = Some(fresh);
                    page
                }
            };
            assert!(!self.store.is_written(entry.page), "it is on its way");
            added.push((key, entry));
        }
        self.write(chunk, added);
    }

    fn write(&mut self, chunk: Option<Chunk>, added: Added) -> bool {
        let Some(chunk) = chunk else { return true };
        assert_eq!(chunk.records() as usize, added.len());
        if chunk.write().is_err() {
            self.failed_writes += 1;
            return false;
        }
        added.into_iter().for_each(|(key, entry)| self.note(key, entry));
        true
    }

    fn note(&mut self, key: Vec<u8>, entry: Entry) {
        assert!(self.store.is_written(entry.page));
        if let Some(old) = self.index.insert(key, entry) {
            self.store.note_dead(old.page);
        }
    }

    /// Begins a chunk that others overtake.
    fn hold(&mut self) {
        self.write_held();
        let Ok(mut chunk) = self.store.chunk(Room::Small) else { return };
        let (key, mut entry) = (self.key(), self.entry(100));
        let image = entry.image();
        if let Some(page) = chunk.add(&record(&key, &entry, &image)) {
            entry.page = page;
            self.held = Some((chunk, vec![(key, entry)]));
        }
    }

    pub fn write_held(&mut self) {
        if let Some((chunk, added)) = self.held.take()
            && !self.prng.one_in(4)
        {
            self.write(Some(chunk), added);
        }
    }

    fn remove(&mut self) {
        let key = self.key();
        if let Some(old) = self.index.remove(&key) {
            self.store.note_dead(old.page);
        }
    }

    /// Takes what lives out of a victim, and retires it.
    pub fn clean(&mut self) {
        let Some(victim) = self.store.victim() else { return };
        let (mut living, mut continuing) = (Vec::new(), Vec::new());
        let index = &self.index;
        let is_live = |database, key: &[u8], page| {
            index.get(key).is_some_and(|entry| entry.page == page && entry.database() == database)
        };
        let walked = self.store.records_of(victim, |page, found| {
            match found {
                Found::Here(record) if is_live(record.database, record.key, page) => {
                    living.push((record.key.to_vec(), page));
                }
                Found::Here(_) => {}
                Found::Continues(rest) => continuing.push(rest),
            }
            ControlFlow::Continue(())
        });
        let Ok(damages) = walked else { return };
        assert!(damages.is_empty(), "{damages:?}");
        for rest in continuing {
            let page = rest.page();
            // Of a record that died, parts may be gone already.
            if rest.key().is_some_and(|key| !is_live(rest.database(), key, page)) {
                continue;
            }
            match self.store.read_rest(rest) {
                Ok(record) if is_live(record.database, &record.key, page) => living.push((record.key, page)),
                Ok(_) => {}
                Err(_) => return,
            }
        }
        let wanted = living.iter().map(|(key, _)| (key.clone(), self.index[key].clone())).collect();
        self.put(wanted);
        // A disk that refuses leaves some where they were.
        if living.iter().all(|(key, page)| self.index[key].page != *page) {
            self.store.retire(victim);
        }
    }

    pub fn read_all(&mut self) {
        for (key, entry) in &self.index {
            match self.store.read(entry.database(), key, entry.page) {
                Ok(Some(record)) => assert!(entry.is(&record), "{entry:?}"),
                Ok(None) => panic!("{:?} is not at {entry:?}", String::from_utf8_lossy(key)),
                Err(store::ReadError::Disk { .. }) => {}
                Err(damage) => panic!("{damage}"),
            }
        }
    }

    /// The next step of a checkpoint: one half of the index, the other, the table, the end.
    pub fn continue_checkpoint(&mut self) {
        let Some(mut going) = self.going.take() else {
            let mark = self.store.begin_checkpoint();
            self.going = Some(Going { mark, index: self.half(0), phase: 0 });
            return;
        };
        going.phase += 1;
        match going.phase {
            1 => going.index.append(&mut self.half(1)),
            2 => match self.store.table(going.mark) {
                Ok(table) => self.complete = Some(Complete { table, index: going.index.clone() }),
                Err(_) => {
                    self.failed_syncs += 1;
                    return;
                }
            },
            _ => {
                self.store.end_checkpoint(going.mark);
                self.checkpoints += 1;
                return;
            }
        }
        self.going = Some(going);
    }

    /// A whole checkpoint.
    pub fn checkpoint(&mut self) {
        self.going = None;
        (0..4).for_each(|_| self.continue_checkpoint());
        assert!(self.going.is_none() && self.complete.is_some());
    }

    fn half(&self, which: u8) -> Index {
        let is_in = |key: &Vec<u8>| key.last().is_some_and(|last| last % 2 == which);
        self.index
            .iter()
            .filter(|(key, _)| is_in(key))
            .map(|(key, entry)| (key.clone(), entry.clone()))
            .collect()
    }
}

pub fn record<'a>(key: &'a [u8], entry: &Entry, image: &'a [u8]) -> Record<'a> {
    Record {
        database: entry.database(),
        key,
        expires_at: entry.expires_at(),
        kind: entry.word as u8,
        flags: !entry.word as u8,
        image: Image::Plain(image),
    }
}

/// Whether a disk, as it is after a crash, holds what the last complete checkpoint's index refers to.
pub fn verify(disk: &Disk, complete: &Option<Complete>, seed: u64) -> Result<(), String> {
    let Some(complete) = complete else { return Ok(()) };
    let fs = Fs::Simulated(disk.clone());
    let report = store::check(&fs, dir(), &complete.table).map_err(|refusal| refusal.to_string())?;
    if !report.is_intact() {
        return Err(format!("looking finds damage: {report:?}"));
    }
    let mut work = Work::open(&disk_copy(disk), seed, complete.clone())?;
    let wrong = |key: &[u8], what: String| Err(format!("{}: {what}", String::from_utf8_lossy(key)));
    for (key, entry) in &complete.index {
        match work.store.read(entry.database(), key, entry.page) {
            Ok(Some(record)) if entry.is(&record) => {}
            Ok(found) => return wrong(key, format!("another record: {:?}", found.is_some())),
            Err(error) => return wrong(key, error.to_string()),
        }
    }
    // It can be worked with, and nothing of an earlier use of a file shows up.
    (0..6).for_each(|_| work.step());
    work.read_all();
    assert!(report.segments.iter().all(|segment| matches!(segment.class, Class::Small | Class::Large)));
    Ok(())
}

fn disk_copy(disk: &Disk) -> Disk {
    disk.power_cut(0, sys::file::simulated::Survival::All)
}
