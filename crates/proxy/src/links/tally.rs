//! How many of a link's requests are of which client and slot, for who asks that often: where one request was sent elsewhere many may be, and those that are under way
//! may be many, too. It is made when somebody asks, and kept while somebody goes on asking, so that requests of a link that sends nothing elsewhere are not counted.
//!
//! Invariant: while it is there it has counted all that are under way.

use super::conversation::Key;
use std::collections::HashMap;

/// Whose requests, and of which slot.
pub type Sequence = (Key, Option<u16>);

/// Nothing, or all of them.
#[derive(Default)]
pub struct Tally(Option<Counted>);

struct Counted {
    counts: HashMap<Sequence, usize>,
    /// Behind so many replies it is given up.
    left: usize,
}

impl Tally {
    /// Whether any are under way of this sequence. All are told if they were not counted.
    pub fn has(&mut self, sequence: Sequence, all: impl ExactSizeIterator<Item = Sequence>) -> bool {
        let under_way = all.len();
        let counted = self.0.get_or_insert_with(|| {
            let mut counts = HashMap::new();
            all.for_each(|one| *counts.entry(one).or_default() += 1);
            Counted { counts, left: 0 }
        });
        // Counting costs as much as these do.
        counted.left = under_way;
        counted.counts.contains_key(&sequence)
    }

    /// One more is under way.
    #[inline]
    pub fn add(&mut self, sequence: Sequence) {
        if let Some(counted) = &mut self.0 {
            *counted.counts.entry(sequence).or_default() += 1;
        }
    }

    /// One less is.
    #[inline]
    pub fn take(&mut self, sequence: Sequence) {
        if self.0.is_some() {
            self.take_counted(sequence);
        }
    }

    fn take_counted(&mut self, sequence: Sequence) {
        let Some(counted) = &mut self.0 else { return };
        if let Some(count) = counted.counts.get_mut(&sequence) {
            *count -= 1;
            if *count == 0 {
                counted.counts.remove(&sequence);
            }
        }
        match counted.left.checked_sub(1) {
            Some(left) => counted.left = left,
            None => self.forget(),
        }
    }

    /// Nothing is under way, or others are.
    pub fn forget(&mut self) {
        self.0 = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::collections::VecDeque;
    use sys::Prng;

    /// Requests under way, and how often all of them were looked at.
    #[derive(Default)]
    struct Naive {
        requests: VecDeque<Sequence>,
        looks: Cell<usize>,
    }

    impl Naive {
        fn all(&self) -> impl ExactSizeIterator<Item = Sequence> {
            self.requests.iter().copied().inspect(|_| self.looks.set(self.looks.get() + 1))
        }
    }

    #[test]
    fn it_says_what_looking_at_all_of_them_says() {
        let seed = 1;
        println!("seed {seed}");
        let mut prng = Prng::from_seed(seed);
        let (mut naive, mut tally) = (Naive::default(), Tally::default());
        for _ in 0..20_000 {
            let sequence = (Key::NOBODY, Some(prng.below(9) as u16).filter(|slot| *slot > 0));
            match prng.below(5) {
                0 | 1 => {
                    naive.requests.push_back(sequence);
                    tally.add(sequence);
                }
                2 | 3 => {
                    if let Some(answered) = naive.requests.pop_front() {
                        tally.take(answered);
                    }
                }
                _ => assert_eq!(tally.has(sequence, naive.all()), naive.requests.contains(&sequence)),
            }
        }
    }

    #[test]
    fn who_asks_with_every_reply_has_them_looked_at_once() {
        const UNDER_WAY: u16 = 16_384;
        let (mut naive, mut tally) = (Naive::default(), Tally::default());
        naive.requests.extend((0..UNDER_WAY).map(|slot| (Key::NOBODY, Some(slot))));
        while let Some(answered) = naive.requests.pop_front() {
            tally.take(answered);
            assert!(!tally.has(answered, naive.all()));
        }
        assert!(naive.looks.get() <= usize::from(UNDER_WAY), "{} were looked at", naive.looks.get());
        // Nobody has asked for so many replies.
        tally.add((Key::NOBODY, None));
        (0..2).for_each(|_| tally.take((Key::NOBODY, None)));
        assert!(tally.0.is_none());
    }
}
