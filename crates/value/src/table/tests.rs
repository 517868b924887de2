//! The table against a naive model, with so many entries that it is split, and the
//! fairness of random picks.

use super::*;
use crate::entry::Entry;
use crate::limits::TABLE_SEGMENT_WORDS_MAX;
use std::collections::{BTreeMap, HashMap, HashSet};
use sys::Prng;

type Member = Entry<0>;

fn bytes_of<'a>(entry: Member) -> &'a [u8] {
    // SAFETY: the tests look at entries only while their table holds them.
    unsafe { entry.bytes() }
}

fn number(entry: Member) -> u64 {
    u64::from_le_bytes(bytes_of(entry).try_into().expect("eight bytes"))
}

/// Few distinct positions, so that many entries share one.
fn crowded(bytes: &[u8]) -> Position {
    Position(position_of(bytes).0 & !0xfff_ffff)
}

struct Fuzz {
    table: Table<Member>,
    model: HashSet<u64>,
    /// Where those are that are not in memory.
    cold: HashMap<u64, u32>,
    /// One change in so many sends an entry away; 0: none does.
    chills: u64,
    hash: fn(&[u8]) -> Position,
    scan: Option<Position>,
    owed: HashSet<u64>,
    prng: Prng,
}

impl Fuzz {
    fn position(&self, number: u64) -> Position {
        (self.hash)(&number.to_le_bytes())
    }

    fn find(&self, number: u64) -> Option<Place> {
        let is_it = |entry| bytes_of(entry) == number.to_le_bytes();
        let place = self.table.find(self.position(number), is_it);
        let cold = self.cold.get(&number).map(|at| {
            let mut candidates = self.table.find_cold(self.position(number));
            candidates.find(|(_, there)| there == at).expect("a cold entry may be found").0
        });
        assert!(place.is_none() || cold.is_none());
        place.or(cold)
    }

    fn insert(&mut self, number: u64) {
        assert_eq!(self.find(number).is_some(), !self.model.insert(number));
        if self.model.len() > self.table.len() {
            let (position, hash) = (self.position(number), self.hash);
            if self.chills > 0 && self.prng.one_in(self.chills) {
                let at = self.new_cold(number);
                return self.table.insert_cold(Cold::new(position, at), |entry| hash(bytes_of(entry)));
            }
            let entry = Entry::new([], &[&number.to_le_bytes()]);
            // SAFETY: the entry is new and given up to the table.
            unsafe { self.table.insert(position, entry, |entry| hash(bytes_of(entry))) };
        }
    }

    fn remove(&mut self, number: u64) {
        let place = self.find(number);
        assert_eq!(place.is_some(), self.model.remove(&number));
        self.owed.remove(&number);
        match (place, self.cold.remove(&number)) {
            (Some(place), Some(at)) => assert_eq!(self.table.take_cold(place), at),
            // SAFETY: the table has given the entry up.
            (Some(place), None) => unsafe { self.table.take(place).free() },
            (None, at) => assert_eq!(at, None),
        }
    }

    fn replace(&mut self, number: u64) {
        let Some(place) = self.find(number) else { return };
        let entry = Entry::new([], &[&number.to_le_bytes()]);
        if self.cold.contains_key(&number) {
            if self.prng.one_in(2) {
                let at = self.new_cold(number);
                // SAFETY: the table has none of its own.
                unsafe { entry.free() };
                return self.table.move_cold(place, at);
            }
            self.cold.remove(&number);
            // SAFETY: the new entry is given up to the table.
            return unsafe { self.table.warm(place, entry) };
        }
        // SAFETY: the new entry is given up to the table, which gives up the old one.
        unsafe { self.table.replace(place, entry).free() };
    }

    /// Sends an entry away.
    fn chill(&mut self, number: u64) {
        let Some(place) = self.find(number).filter(|_| !self.cold.contains_key(&number)) else { return };
        let (position, at) = (self.position(number), self.new_cold(number));
        // SAFETY: the table has given the entry up.
        unsafe { self.table.chill(place, position, at).free() };
    }

    /// A place outside of memory that no other entry has.
    fn new_cold(&mut self, number: u64) -> u32 {
        let at = (self.prng.next_u64() << 20) as u32 | number as u32;
        self.cold.insert(number, at);
        at
    }

    fn scan(&mut self) {
        let from = self.scan.unwrap_or_else(|| {
            assert!(self.owed.is_empty(), "a scan left out {:?}", self.owed.iter().next());
            self.owed = self.model.clone();
            Position(0)
        });
        let enough = self.prng.below(600) as usize;
        let (mut seen, owed) = (0, &mut self.owed);
        let at: HashMap<u32, u64> = self.cold.iter().map(|(number, at)| (*at, *number)).collect();
        let hash = self.hash;
        let number_of = |cold: Cold| {
            let number = at[&cold.at];
            assert!(cold.may_be(hash(&number.to_le_bytes())));
            assert!(!cold.may_be(Position(hash(&number.to_le_bytes()).0 ^ 1 << (POSITION_BITS - 1))));
            number
        };
        self.scan = self.table.scan_entries(from, enough, |entry| {
            seen += 1;
            match entry {
                super::Entry::Block(entry) => owed.remove(&number(entry)),
                super::Entry::Cold(cold) => owed.remove(&number_of(cold)),
            };
        });
        assert!(self.scan.is_none() || seen >= enough);
    }

    fn check(&mut self) {
        self.table.check();
        assert_eq!(self.table.len(), self.model.len());
        let warm = self.model.iter().copied().filter(|number| !self.cold.contains_key(number));
        assert_eq!(self.table.iter().map(number).collect::<HashSet<_>>(), warm.collect());
        let prng = &mut self.prng;
        match self.cold.is_empty().then(|| self.table.random(|| prng.next_u64())) {
            Some(Some(entry)) => assert!(self.model.contains(&number(entry))),
            Some(None) => assert!(self.model.is_empty()),
            None => {}
        }
        for number in &self.model {
            let prefix = (self.position(*number).0 >> (POSITION_BITS - PREFIX_BITS)) as u32;
            let is_it = |entry| bytes_of(entry) == number.to_le_bytes();
            assert!(match self.cold.get(number) {
                Some(at) => self.table.cold_with_prefix(prefix).any(|(_, there)| there == *at),
                None => self.table.with_prefix(prefix).any(|(_, entry)| is_it(entry)),
            });
        }
    }

    fn run(seed: u64, hash: fn(&[u8]) -> Position, numbers: u64, chills: u64) {
        println!("seed {seed}");
        let prng = Prng::from_seed(seed);
        let (table, model, owed, cold) = (Table::new(), HashSet::new(), HashSet::new(), HashMap::new());
        let mut fuzz = Fuzz { table, model, cold, chills, hash, scan: None, owed, prng };
        for phase in 0..6 {
            for _ in 0..numbers {
                let number = fuzz.prng.below(numbers);
                if chills > 0 && fuzz.prng.one_in(chills) {
                    fuzz.chill(number);
                }
                match fuzz.prng.below(10) {
                    0 => fuzz.replace(number),
                    choice if (choice < 8) == (phase % 2 == 0) => fuzz.insert(number),
                    _ => fuzz.remove(number),
                }
                if fuzz.prng.one_in(500) {
                    fuzz.scan();
                }
            }
            if phase == 3 {
                (0..numbers).for_each(|number| fuzz.remove(number));
            }
            fuzz.check();
        }
    }
}

#[test]
fn table_agrees_with_a_naive_model() {
    Fuzz::run(sys::prng::entropy_seed(), position_of, 5 * TABLE_SEGMENT_WORDS_MAX as u64, 0);
    (0..20).for_each(|_| Fuzz::run(sys::prng::entropy_seed(), position_of, 100, 0));
}

#[test]
fn entries_that_share_a_position_are_kept_apart() {
    Fuzz::run(sys::prng::entropy_seed(), crowded, 5000, 0);
}

#[test]
fn entries_that_are_not_in_memory_are_found_scanned_and_moved_by_splits() {
    for chills in [2, 20] {
        Fuzz::run(sys::prng::entropy_seed(), position_of, 5 * TABLE_SEGMENT_WORDS_MAX as u64, chills);
        (0..20).for_each(|_| Fuzz::run(sys::prng::entropy_seed(), position_of, 100, chills));
        Fuzz::run(sys::prng::entropy_seed(), crowded, 5000, chills);
    }
}

/// Positions that begin with many equal bits: splits bring nothing apart.
fn narrow(bytes: &[u8]) -> Position {
    Position(position_of(bytes).0 >> 14)
}

#[test]
fn segment_outgrows_its_size_where_cold_words_cannot_be_split_further() {
    Fuzz::run(sys::prng::entropy_seed(), narrow, 3 * TABLE_SEGMENT_WORDS_MAX as u64, 3);
}

/// Positions of which all lie at the beginning: words pile up far from their homes.
fn gathered(bytes: &[u8]) -> Position {
    Position(position_of(bytes).0 >> 5)
}

#[test]
fn words_that_lie_far_from_their_homes_are_found() {
    Fuzz::run(sys::prng::entropy_seed(), gathered, 3 * TABLE_SEGMENT_WORDS_MAX as u64, 0);
    (0..20).for_each(|_| Fuzz::run(sys::prng::entropy_seed(), gathered, 100, 0));
}

#[test]
fn a_table_is_made_from_another_in_its_order() {
    for numbers in [100, 5_000, 100_000] {
        let (table, mut copy) = (table_of(numbers), Table::<Member>::new());
        for entry in table.iter() {
            let entry = Entry::new([], &[bytes_of(entry)]);
            let position = position_of(bytes_of(entry));
            assert_eq!(copy.find(position, |other| number(other) == number(entry)), None);
            // SAFETY: the entry is new and given up to the table.
            unsafe { copy.insert(position, entry, |entry| position_of(bytes_of(entry))) };
        }
        copy.check();
        for wanted in 0..numbers {
            let position = position_of(&wanted.to_le_bytes());
            assert!(copy.find(position, |entry| number(entry) == wanted).is_some());
        }
    }
}

fn table_of(numbers: u64) -> Table<Member> {
    let mut table = Table::new();
    for number in 0..numbers {
        let entry = Entry::new([], &[&number.to_le_bytes()]);
        // SAFETY: the entry is new and given up to the table.
        unsafe {
            table.insert(position_of(bytes_of(entry)), entry, |entry| position_of(bytes_of(entry)));
        }
    }
    table
}

/// Asserts that picks are as even as chance has it, by chi squared over groups of `group` numbers.
fn assert_even(table: &Table<Member>, numbers: u64, group: u64) {
    let (mut prng, mut counts) = (Prng::from_seed(5), BTreeMap::new());
    let picks = 200 * (numbers / group);
    for _ in 0..picks {
        let entry = table.random(|| prng.next_u64()).expect("there are entries");
        *counts.entry(number(entry) / group).or_insert(0u64) += 1;
    }
    let groups = (numbers / group) as f64;
    let chi: f64 = (0..numbers / group)
        .map(|group| (counts.get(&group).copied().unwrap_or(0) as f64 - 200.0).powi(2) / 200.0)
        .sum();
    assert!((chi - groups).abs() < 6.0 * (2.0 * groups).sqrt(), "chi squared {chi} of {groups} groups");
}

#[test]
fn random_picks_are_even_in_small_tables_and_split_ones() {
    for numbers in [1, 2, 7, 100] {
        assert_even(&table_of(numbers), numbers, 1);
    }
    assert_even(&table_of(50_000), 50_000, 50);
}

#[test]
fn random_picks_are_even_where_most_entries_are_gone() {
    let mut table = table_of(50_000);
    for number in 100..50_000u64 {
        let bytes = number.to_le_bytes();
        let place = table.find(position_of(&bytes), |entry| bytes_of(entry) == bytes).expect("it is there");
        // SAFETY: the table has given the entry up.
        unsafe { table.take(place).free() };
    }
    assert_even(&table, 100, 1);
}

#[test]
fn memory_follows_the_number_of_entries() {
    let mut table = table_of(100_000);
    let bytes = table.bytes();
    assert!((800_000..1_600_000).contains(&bytes), "{bytes}");
    table.clear();
    assert_eq!((table.bytes(), table.len()), (0, 0));
}

#[test]
fn a_table_made_again_of_its_cold_words_finds_all() {
    let never = |_: Member| -> Position { unreachable!("nothing is in memory") };
    let mut table: Table<Member> = Table::default();
    let position = |number: u32| position_of(&number.to_le_bytes());
    for number in 0..100_000 {
        table.insert_cold(Cold::new(position(number), number), never);
    }
    let mut words = Vec::new();
    table.scan_entries(Position(0), usize::MAX, |entry| match entry {
        super::cold::Entry::Cold(cold) => words.push(cold),
        super::cold::Entry::Block(_) => unreachable!("nothing is in memory"),
    });
    assert!(words.iter().any(|word| word.bits() == 30), "splits have left no more");
    words.sort_by_key(Cold::bits);
    let mut again: Table<Member> = Table::default();
    for word in words {
        let read = Cold::of_bytes(word.to_bytes()).expect("it was written down");
        assert_eq!((read.at, read.bits()), (word.at, word.bits().min(34)));
        again.insert_cold(read, never);
    }
    for number in 0..100_000 {
        assert!(again.find_cold(position(number)).any(|(_, at)| at == number));
    }
    assert!(Cold::of_bytes([0; Cold::BYTES]).is_none());
    assert!(Cold::of_bytes([0xff; Cold::BYTES]).is_none());
}
