//! Picking members by chance: SRANDMEMBER and SPOP.
//!
//! Random bits come from the caller, so that a seed repeats what is picked. Every
//! member is as likely as any other.

use super::{Intset, Set, SetRef};
use crate::collection::{Thresholds, Type};
use crate::listpack::{Element, Listpack};
use std::collections::HashSet;

/// Up to this many times as many members as remain are moved out one by one (SPOP);
/// beyond, it is cheaper to move those that remain. Redis' number, because it decides
/// on the encoding of what remains.
const POP_FACTOR: usize = 5;

/// SRANDMEMBER picks different members by chance while they are less than this part of
/// the set; beyond, it leaves out the others.
const SAMPLE_PART: usize = 3;

/// What [`Set::pop`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Popped {
    /// The set has no more members than wanted: nothing was done, all are to go.
    All,
    /// Those wanted were shown and taken out.
    Some,
}

impl<'a> SetRef<'a> {
    /// A member. None if there are none.
    pub fn random(self, random: &mut impl FnMut() -> u64) -> Option<Element<'a>> {
        if self.is_empty() {
            return None;
        }
        match self {
            SetRef::Ints(ints) => Some(Element::Int(ints.get(below(random, ints.len())))),
            SetRef::Listpack(listpack) => listpack.get(below(random, listpack.len()) as isize),
            SetRef::Table(members) => members.random(random).map(Element::Bytes),
        }
    }

    /// Calls `visit` for `count` different members, less than there are, in no
    /// particular order.
    pub fn sample(self, count: usize, random: &mut impl FnMut() -> u64, mut visit: impl FnMut(Element<'a>)) {
        let is_few = count < self.len() / SAMPLE_PART;
        match self {
            SetRef::Table(members) if is_few => {
                let mut seen = HashSet::with_capacity(count);
                while seen.len() < count {
                    let text = members.random(&mut *random).expect("there are more members than wanted");
                    if seen.insert(text.as_ptr()) {
                        visit(Element::Bytes(text));
                    }
                }
            }
            _ => {
                // Selection in one pass: each is taken with the chance that the rest needs.
                let (mut left, mut wanted) = (self.len(), count.min(self.len()));
                for element in self.iter() {
                    if below(random, left) < wanted {
                        visit(element);
                        wanted -= 1;
                    }
                    left -= 1;
                }
            }
        }
    }
}

impl Set {
    /// Takes out `count` members picked by chance, and calls `visit` for each.
    pub fn pop(
        &mut self,
        count: usize,
        thresholds: &Thresholds,
        random: &mut impl FnMut() -> u64,
        visit: &mut impl FnMut(Element<'_>),
    ) -> Popped {
        let len = self.len();
        if count >= len {
            return Popped::All;
        }
        let rest = len - count;
        if rest.saturating_mul(POP_FACTOR) > count {
            self.take_out(count, random, visit);
        } else {
            // Those that remain go into a set that begins as small ones do.
            let mut kept = match self {
                Set::Ints(_) => Set::Ints(Intset::new()),
                Set::Listpack(_) | Set::Table(_) => Set::Listpack(Listpack::new()),
            };
            self.take_out(rest, random, &mut |member| {
                kept.insert_element(member, thresholds);
            });
            std::mem::replace(self, kept).as_ref().iter().for_each(visit);
        }
        Popped::Some
    }

    /// Takes out fewer members than there are.
    fn take_out(
        &mut self,
        count: usize,
        random: &mut impl FnMut() -> u64,
        visit: &mut impl FnMut(Element<'_>),
    ) {
        match self {
            Set::Table(members) => {
                (0..count).for_each(|_| members.pop(&mut *random, |text| visit(Element::Bytes(text))));
            }
            Set::Ints(ints) => {
                for _ in 0..count {
                    let member = ints.as_ref().get(below(random, ints.as_ref().len()));
                    visit(Element::Int(member));
                    ints.remove(member);
                }
            }
            Set::Listpack(listpack) => {
                let (mut left, mut wanted) = (listpack.as_ref().len(), count);
                let mut at = listpack.as_ref().first();
                while let Some(here) = at.filter(|_| wanted > 0) {
                    let is_picked = below(random, left) < wanted;
                    left -= 1;
                    at = if is_picked {
                        wanted -= 1;
                        visit(listpack.as_ref().element(here));
                        let next = listpack.remove(here);
                        Some(next).filter(|next| !listpack.as_ref().is_end(*next))
                    } else {
                        listpack.as_ref().next(here)
                    };
                }
            }
        }
    }
}

/// A number in `0..bound`; the bias is below `bound / 2^64`.
#[expect(clippy::cast_possible_truncation, reason = "it is below `bound`")]
fn below(random: &mut impl FnMut() -> u64, bound: usize) -> usize {
    ((u128::from(random()) * bound as u128) >> 64) as usize
}
