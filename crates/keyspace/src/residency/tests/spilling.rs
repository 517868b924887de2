//! A keyspace that sends its objects to a shelf in memory.

use super::*;
use std::rc::Rc;

/// How many records share a place.
pub(super) const PAGE_RECORDS: usize = 8;

pub(super) type Page = Vec<(u32, Record)>;

/// A shelf in memory.
#[derive(Default)]
pub(super) struct Pages {
    pub(super) pages: Mutex<HashMap<u32, Page>>,
    /// How many records of a page died.
    pub(super) dead: Mutex<HashMap<u32, usize>>,
    pub(super) is_broken: AtomicBool,
    /// How often pages were looked at.
    pub(super) visits: AtomicUsize,
    /// There is one more for everybody who keeps what lies in pages.
    keepers: Arc<()>,
}

impl Shelf for Arc<Pages> {
    fn visit(
        &self,
        at: u32,
        is_meant: &mut dyn FnMut(u32, &[u8]) -> bool,
        take: &mut dyn FnMut(Record) -> ControlFlow<()>,
    ) -> Result<(), Unreadable> {
        self.visits.fetch_add(1, Ordering::Relaxed);
        if self.is_broken.load(Ordering::Relaxed) {
            return Err(Unreadable("the disk is gone".to_owned()));
        }
        let pages = self.pages.lock();
        let page = pages.get(&at).ok_or_else(|| Unreadable(format!("there is no page {at}")))?;
        let meant = page.iter().filter(|(db, record)| is_meant(*db, &record.key));
        let _ = meant.map(|(_, record)| record.clone()).try_for_each(take);
        Ok(())
    }

    fn keep(&self) -> Box<dyn Any + Send> {
        Box::new(self.keepers.clone())
    }

    fn note_dead(&self, at: u32) {
        *self.dead.lock().entry(at).or_default() += 1;
    }

    fn note_cleared(&self, _: u64) {}
}

/// A keyspace and its shelf.
pub(super) struct Spilling {
    pub(super) keyspace: Rc<Keyspace>,
    pub(super) pages: Arc<Pages>,
    pub(super) next_page: u32,
    /// Copied and not written yet.
    pub(super) chunk: Vec<(u32, u32, Record)>,
    pub(super) sweep: Sweep,
    /// Slots that were spilled since the last write.
    pub(super) visited: HashSet<Slot>,
}

/// Records for pages that are not written yet.
pub(super) struct Chunk<'a> {
    pub(super) pages: &'a Pages,
    pub(super) first: u32,
    pub(super) records: &'a mut Vec<(u32, u32, Record)>,
}

impl Carrier for Chunk<'_> {
    fn is_written(&self, at: u32) -> bool {
        self.pages.pages.lock().contains_key(&at)
    }

    fn take(&mut self, copied: Copied<'_>) -> Fate {
        let at = self.first + (self.records.len() / PAGE_RECORDS) as u32;
        let Copied { db, key, expires_at, image } = copied;
        self.records.push((at, db, Record { key: key.to_vec(), expires_at, image: image.to_vec() }));
        Fate::LeavesTo(at)
    }
}

pub(super) fn keyspace_of(hasher: &KeyHasher) -> Keyspace {
    let hasher = hasher.clone();
    Keyspace::new(Options { databases: 2, workers: 1, guests: 0, hasher, seed: 2, now: NOW })
}

impl Spilling {
    pub(super) fn new() -> Spilling {
        Spilling::of(keyspace_of(&KeyHasher::from_seed(7)))
    }

    pub(super) fn of(keyspace: Keyspace) -> Spilling {
        let pages = Arc::new(Pages::default());
        keyspace.set_shelf(Box::new(pages.clone()));
        let (chunk, visited) = (Vec::new(), HashSet::new());
        Spilling { keyspace: Rc::new(keyspace), pages, next_page: 0, chunk, sweep: Sweep::default(), visited }
    }

    /// Sends objects of a slot away, as far as they have not been used.
    pub(super) fn spill(&mut self, slot: Slot) {
        if !self.visited.insert(slot) {
            return;
        }
        let mut carrier = Chunk { pages: &self.pages, first: self.next_page, records: &mut self.chunk };
        self.keyspace.enter(0).spill(DB.0, slot, &mut self.sweep, &mut carrier);
    }

    /// Writes what was copied, or fails to.
    pub(super) fn write(&mut self, succeeds: bool) {
        self.next_page += (self.chunk.len() / PAGE_RECORDS) as u32 + 1;
        for (at, db, record) in self.chunk.drain(..).filter(|_| succeeds) {
            self.pages.pages.lock().entry(at).or_default().push((db, record));
        }
        self.keyspace.enter(0).let_go(&mut self.sweep, succeeds);
        self.visited.clear();
    }

    /// Sends away what can go in a round.
    pub(super) fn round(&mut self) {
        (0..crate::SLOTS as u16).for_each(|slot| self.spill(Slot(slot)));
        self.write(true);
    }

    /// Sends away all that can go.
    pub(super) fn spill_all(&mut self) {
        // Of those that look alike one goes in a round.
        for round in 0..60 {
            self.round();
            let is_resolved = self.keyspace.shadowing() == 0;
            if round >= 4 && is_resolved && self.cold() as u64 == self.keyspace.len(DB) {
                return;
            }
        }
    }

    pub(super) fn any_page(&self, random: u64) -> Option<(u32, Page)> {
        let pages = self.pages.pages.lock();
        let at = pages.keys().copied().nth(random as usize % pages.len().max(1))?;
        Some((at, pages[&at].clone()))
    }

    /// Moves what lives in some page to another, and forgets the page unless somebody keeps it.
    pub(super) fn clean(&mut self, random: u64) {
        let Some((from, page)) = self.any_page(random) else { return };
        self.write(true);
        let (to, batch) = (self.next_page, self.keyspace.enter(0));
        self.next_page += 1;
        let mut kept: Page = Vec::new();
        for (db, record) in page {
            if batch.lies_at(db, &record.key, from) {
                if kept.iter().any(|(_, other)| batch.look_alike(&other.key, &record.key)) {
                    batch.recall(db, &record.key, from).unwrap();
                }
                kept.push((db, record));
            }
        }
        self.pages.pages.lock().insert(to, kept.clone());
        for (db, record) in kept {
            batch.move_kept(db, &record.key, from, to);
        }
        if Arc::strong_count(&self.pages.keepers) == 1 {
            self.pages.pages.lock().remove(&from);
        }
    }

    /// Reads what was not read for those that were replaced.
    pub(super) fn see_shadowed(&self) {
        let batch = self.keyspace.enter(0);
        for cold in batch.take_shadowed() {
            let pages = self.pages.pages.lock();
            let Some(page) = pages.get(&cold.at) else { continue };
            let seen = |(db, record): &'_ (u32, Record)| (*db, record.key.clone(), record.expires_at);
            let seen: Vec<_> = page.iter().map(seen).collect();
            drop(pages);
            let seen: Vec<Seen<'_>> = seen
                .iter()
                .map(|(db, key, expires_at)| Seen { db: *db, key, expires_at: *expires_at })
                .collect();
            batch.note_seen(&cold, &seen);
        }
    }

    /// Puts all objects elsewhere in memory, but for those of which copies are on their way.
    pub(super) fn relocate(&self) {
        for slot in (0..crate::SLOTS as u16).map(Slot) {
            let mut keys = crate::locks::lock(self.keyspace.keys_of_slot((0, slot)));
            let places: Vec<_> = keys.table().places().map(|(place, _)| place).collect();
            places.into_iter().for_each(|place| keys.relocate(place));
        }
    }

    /// A keyspace over the same pages, made of what a checkpoint holds.
    pub(super) fn made_again(&self) -> Keyspace {
        let again = keyspace_of(self.keyspace.frame().hasher);
        again.set_shelf(Box::new(self.pages.clone()));
        let (batch, here) = (again.enter(0), self.keyspace.enter(0));
        for slot in (0..crate::SLOTS as u16).map(Slot) {
            let (mut index, mut shown) = (SlotIndex::default(), Vec::new());
            here.copy_index(
                DB.0,
                slot,
                |_| true,
                &mut index,
                |object| {
                    shown.push((object.key().to_vec(), object.copied(), object.expires_at()));
                },
            );
            batch.restore_index(DB, slot, &mut index);
            for (name, object, expires_at) in shown {
                let key = again.key(DB, &name);
                let mut edit = batch.edit(&[key], NOW, Touch::No);
                edit.put(&key, object, expires_at);
                edit.finish();
            }
        }
        drop(batch);
        again
    }

    /// Asserts that counts are what the slots say.
    pub(super) fn check(&self) {
        let (mut words, mut expiring, mut shadowing) = (0, 0, 0);
        for slot in (0..crate::SLOTS as u16).map(Slot) {
            let keys = crate::locks::lock(self.keyspace.keys_of_slot((0, slot)));
            keys.table().check();
            words += keys.table().len();
            expiring += keys.expiring();
            let reader = self.keyspace.slot_reader((0, slot)).unwrap();
            let mut there = 0;
            keys.table().scan_entries(crate::ids::Position(0), usize::MAX, |entry| {
                there += usize::from(match entry {
                    Entry::Block(object) => object.expires_at().is_some(),
                    Entry::Cold(cold) => reader.load_cold(cold).unwrap().object().expires_at().is_some(),
                });
            });
            assert_eq!(keys.expiring(), there);
            shadowing += keys.shadowing();
        }
        let counted = self.keyspace.database(DB);
        let none = crate::slot::Change::default();
        assert_eq!(counted.shadowing(none), shadowing as u64);
        assert_eq!(
            (counted.len(none), counted.expiring(none)),
            ((words - shadowing) as u64, expiring as u64)
        );
    }

    pub(super) fn cold(&self) -> usize {
        let objects = |slot: u16| {
            let keys = crate::locks::lock(self.keyspace.keys_of_slot((0, Slot(slot))));
            keys.table().len() - keys.table().iter().count()
        };
        (0..crate::SLOTS as u16).map(objects).sum()
    }
}
