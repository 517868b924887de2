//! Intersections, unions and differences of sets, shown member by member or as a
//! set to be stored.
//!
//! The members of a table are looked up in the other sets a few at a time: all of the
//! group are hashed once, and the lines that their searches begin with and the entries
//! that these find are fetched before the first is compared. What is stored gets the
//! encoding that Redis' way of building it leads to.
//!
//! Thread rule: pure functions.

use super::{Intset, Members, Set, SetRef};
use crate::collection::Thresholds;
use crate::listpack::{Element, Listpack};
use crate::number::{IntBuffer, parse_i64};
use crate::table::{Position, position_of};
use std::cmp::Reverse;
use std::collections::HashSet;
use std::ops::ControlFlow;
use sys::prefetch::prefetch;

/// How many members are looked up together.
const GROUP: usize = 16;

/// Which members pass.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keep {
    InAll,
    InNone,
}

/// Calls `visit` for the members that all sets have, of which there must be one or
/// more, the smallest best first, until it breaks.
pub fn intersection<'a>(sets: &[SetRef<'a>], mut visit: impl FnMut(Element<'a>) -> ControlFlow<()>) {
    if let [first, others @ ..] = sets {
        // The visitor has broken off: there is nothing more to be told.
        let _ = filter(*first, others, Keep::InAll, &mut visit);
    }
}

/// The intersection as SINTERSTORE stores it.
pub fn stored_intersection(sets: &[SetRef<'_>], thresholds: &Thresholds) -> Set {
    let mut result = match sets.first() {
        Some(SetRef::Ints(_)) => Set::Ints(Intset::new()),
        _ => Set::Listpack(Listpack::new()),
    };
    let mut are_ints = true;
    intersection(sets, |member| {
        are_ints = are_ints && member.int().is_some();
        result.insert_element(member, thresholds);
        ControlFlow::Continue(())
    });
    if are_ints {
        result.become_ints(thresholds);
    }
    result
}

/// Calls `visit` for the members of any of the sets, each once; ascending if all are
/// intsets.
pub fn union<'a>(sets: &[SetRef<'a>], mut visit: impl FnMut(Element<'a>)) {
    let all = sets.iter().flat_map(|set| set.iter());
    match sets {
        [set] => set.iter().for_each(visit),
        _ if sets.iter().all(|set| matches!(set, SetRef::Ints(_))) => {
            let mut members: Vec<i64> = all.filter_map(Element::int).collect();
            members.sort_unstable();
            members.dedup();
            members.into_iter().map(Element::Int).for_each(visit);
        }
        _ => {
            let mut seen = HashSet::with_capacity(sets.iter().map(|set| set.len()).sum());
            for member in all {
                if seen.insert(Canonical::of(member)) {
                    visit(member);
                }
            }
        }
    }
}

/// The union as SUNIONSTORE stores it.
pub fn stored_union(sets: &[SetRef<'_>], thresholds: &Thresholds) -> Set {
    let mut result = Set::Ints(Intset::new());
    for member in sets.iter().flat_map(|set| set.iter()) {
        result.insert_element(member, thresholds);
    }
    result
}

/// How a difference is found. Redis' choice, because the encoding of what is stored
/// depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Algorithm {
    /// Each member of the first set is looked up in the others.
    LookUp,
    /// The members of the others are taken out of the first.
    TakeOut,
}

impl Algorithm {
    fn of(first: SetRef<'_>, others: &[SetRef<'_>]) -> Algorithm {
        let look_up = first.len() * (others.len() + 1) / 2;
        let take_out = first.len() + others.iter().map(|set| set.len()).sum::<usize>();
        if look_up <= take_out { Algorithm::LookUp } else { Algorithm::TakeOut }
    }
}

/// Calls `visit` for the members of the first set that none of the others has.
pub fn difference<'a>(first: SetRef<'a>, others: &[SetRef<'_>], mut visit: impl FnMut(Element<'a>)) {
    let mut visit = |member| {
        visit(member);
        ControlFlow::Continue(())
    };
    match Algorithm::of(first, others) {
        Algorithm::LookUp => {
            let _ = filter(first, &by_size(others), Keep::InNone, &mut visit);
        }
        Algorithm::TakeOut => {
            let mut gone = HashSet::with_capacity(others.iter().map(|set| set.len()).sum());
            gone.extend(others.iter().flat_map(|set| set.iter()).map(Canonical::of));
            for member in first.iter().filter(|member| !gone.contains(&Canonical::of(*member))) {
                let _ = visit(member);
            }
        }
    }
}

/// The difference as SDIFFSTORE stores it.
pub fn stored_difference(first: SetRef<'_>, others: &[SetRef<'_>], thresholds: &Thresholds) -> Set {
    let mut result = Set::Ints(Intset::new());
    let mut add = |member: Element<'_>| {
        result.insert_element(member, thresholds);
        ControlFlow::Continue(())
    };
    match Algorithm::of(first, others) {
        Algorithm::LookUp => {
            let _ = filter(first, &by_size(others), Keep::InNone, &mut add);
        }
        Algorithm::TakeOut => {
            first.iter().for_each(|member| {
                let _ = add(member);
            });
            let mut digits = IntBuffer::new();
            for member in others.iter().flat_map(|set| set.iter()) {
                result.remove(member.bytes(&mut digits));
            }
        }
    }
    result
}

/// The largest first: what most likely has a member is asked first.
fn by_size<'a>(sets: &[SetRef<'a>]) -> Vec<SetRef<'a>> {
    let mut sets = sets.to_vec();
    sets.sort_by_key(|set| Reverse(set.len()));
    sets
}

fn filter<'a>(
    first: SetRef<'a>,
    others: &[SetRef<'_>],
    keep: Keep,
    visit: &mut impl FnMut(Element<'a>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    if let (SetRef::Table(members), false) = (first, others.is_empty()) {
        return filter_table(members, others, keep, visit);
    }
    for member in first.iter() {
        let passes = match keep {
            Keep::InAll => others.iter().all(|set| set.contains_element(member)),
            Keep::InNone => !others.iter().any(|set| set.contains_element(member)),
        };
        if passes {
            visit(member)?;
        }
    }
    ControlFlow::Continue(())
}

/// As [`filter`], several members at a time.
#[expect(clippy::cast_possible_truncation, reason = "addresses have 64 bits")]
fn filter_table<'a>(
    first: &'a Members,
    others: &[SetRef<'_>],
    keep: Keep,
    visit: &mut impl FnMut(Element<'a>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let nearest = match others[0] {
        SetRef::Table(members) => Some(members),
        _ => None,
    };
    let mut rest = first.iter();
    let mut group: Vec<(Position, &[u8])> = Vec::with_capacity(GROUP);
    loop {
        group.clear();
        group.extend(rest.by_ref().take(GROUP).map(|text| (position_of(text), text)));
        if group.is_empty() {
            return ControlFlow::Continue(());
        }
        if let Some(members) = nearest {
            group.iter().for_each(|(position, _)| prefetch(members.home_address(*position)));
            let addresses = group.iter().filter_map(|(position, _)| members.likely_address(*position));
            addresses.for_each(|address| prefetch(address as usize));
        }
        for (position, text) in &group {
            let passes = match keep {
                Keep::InAll => others.iter().all(|set| set.contains_at(*position, text)),
                Keep::InNone => !others.iter().any(|set| set.contains_at(*position, text)),
            };
            if passes {
                visit(Element::Bytes(text))?;
            }
        }
    }
}

impl SetRef<'_> {
    fn contains_at(self, position: Position, text: &[u8]) -> bool {
        match self {
            SetRef::Table(members) => members.contains_at(position, text),
            _ => self.contains(text),
        }
    }

    /// Whether it has a member of another set.
    pub fn contains_element(self, element: Element<'_>) -> bool {
        match (self, element) {
            (SetRef::Ints(ints), _) => element.int().is_some_and(|member| ints.contains(member)),
            (_, Element::Bytes(text)) => self.contains(text),
            (_, Element::Int(_)) => self.contains(element.bytes(&mut IntBuffer::new())),
        }
    }
}

/// A member as it is the same in every encoding.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Canonical<'a> {
    Int(i64),
    Text(&'a [u8]),
}

impl<'a> Canonical<'a> {
    fn of(element: Element<'a>) -> Canonical<'a> {
        match element {
            Element::Int(member) => Canonical::Int(member),
            Element::Bytes(text) => parse_i64(text).map_or(Canonical::Text(text), Canonical::Int),
        }
    }
}
