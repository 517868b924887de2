//! The table against a naive model, with so many entries that it is split, and the
//! fairness of random picks.

use super::*;
use crate::entry::Entry;
use crate::limits::TABLE_SEGMENT_WORDS_MAX;
use std::collections::{BTreeMap, HashSet};
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
        self.table.find(self.position(number), |entry| bytes_of(entry) == number.to_le_bytes())
    }

    fn insert(&mut self, number: u64) {
        assert_eq!(self.find(number).is_some(), !self.model.insert(number));
        if self.model.len() > self.table.len() {
            let (position, hash) = (self.position(number), self.hash);
            let entry = Entry::new([], &[&number.to_le_bytes()]);
            // SAFETY: the entry is new and given up to the table.
            unsafe { self.table.insert(position, entry, |entry| hash(bytes_of(entry))) };
        }
    }

    fn remove(&mut self, number: u64) {
        let place = self.find(number);
        assert_eq!(place.is_some(), self.model.remove(&number));
        self.owed.remove(&number);
        if let Some(place) = place {
            // SAFETY: the table has given the entry up.
            unsafe { self.table.take(place).free() };
        }
    }

    fn replace(&mut self, number: u64) {
        if let Some(place) = self.find(number) {
            let entry = Entry::new([], &[&number.to_le_bytes()]);
            // SAFETY: the new entry is given up to the table, which gives up the old one.
            unsafe { self.table.replace(place, entry).free() };
        }
    }

    fn scan(&mut self) {
        let from = self.scan.unwrap_or_else(|| {
            assert!(self.owed.is_empty(), "a scan left out {:?}", self.owed.iter().next());
            self.owed = self.model.clone();
            Position(0)
        });
        let enough = self.prng.below(600) as usize;
        let (mut seen, owed) = (0, &mut self.owed);
        self.scan = self.table.scan(from, enough, |entry| {
            seen += 1;
            owed.remove(&number(entry));
        });
        assert!(self.scan.is_none() || seen >= enough);
    }

    fn check(&mut self) {
        self.table.check();
        assert_eq!(self.table.len(), self.model.len());
        assert_eq!(self.table.iter().map(number).collect::<HashSet<_>>(), self.model);
        let prng = &mut self.prng;
        match self.table.random(|| prng.next_u64()) {
            Some(entry) => assert!(self.model.contains(&number(entry))),
            None => assert!(self.model.is_empty()),
        }
        for number in &self.model {
            let prefix = (self.position(*number).0 >> (POSITION_BITS - PREFIX_BITS)) as u32;
            assert!(self.table.with_prefix(prefix).any(|(_, entry)| bytes_of(entry) == number.to_le_bytes()));
        }
    }

    fn run(seed: u64, hash: fn(&[u8]) -> Position, numbers: u64) {
        println!("seed {seed}");
        let prng = Prng::from_seed(seed);
        let (table, model, owed) = (Table::new(), HashSet::new(), HashSet::new());
        let mut fuzz = Fuzz { table, model, hash, scan: None, owed, prng };
        for phase in 0..6 {
            for _ in 0..numbers {
                let number = fuzz.prng.below(numbers);
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
    Fuzz::run(sys::prng::entropy_seed(), position_of, 5 * TABLE_SEGMENT_WORDS_MAX as u64);
    (0..20).for_each(|_| Fuzz::run(sys::prng::entropy_seed(), position_of, 100));
}

#[test]
fn entries_that_share_a_position_are_kept_apart() {
    Fuzz::run(sys::prng::entropy_seed(), crowded, 5000);
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
