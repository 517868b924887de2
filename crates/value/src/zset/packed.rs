//! Small sorted sets: a listpack of members and scores in turn, in order.
//!
//! A score that is a whole number of less than 62 bits is an integer in the listpack,
//! any other a text, as in Redis. All operations walk; the thresholds keep that short.
//!
//! Thread rule: pure functions.
//!
//! Invariant: the listpack has an even number of elements, every second of which is a score.

use super::{Direction, LexRange, ScoreRange};
use crate::listpack::{Element, Iter, Listpack, ListpackRef, Position};
use crate::number::{IntBuffer, format_f64, parse_f64};
use std::ops::Range;

/// Whole scores up to this one are stored as integers.
const INTEGER_MAX: f64 = (i64::MAX / 2) as f64;

/// What an element of the listpack means as a score.
#[inline]
pub(super) fn score_of(element: Element<'_>) -> f64 {
    match element {
        Element::Int(score) => score as f64,
        // Whatever got here was a score once (images are checked), so that it parses.
        Element::Bytes(text) => parse_f64(text).unwrap_or(0.0),
    }
}

/// Calls `with` with the element that a score is stored as.
#[expect(clippy::cast_possible_truncation, reason = "it was compared before")]
fn with_score<T>(score: f64, with: impl FnOnce(Element<'_>) -> T) -> T {
    if score.abs() <= INTEGER_MAX && score.trunc() == score {
        with(Element::Int(score as i64))
    } else {
        with(Element::Bytes(format_f64(score).as_bytes()))
    }
}

/// Where a member stands, and its score.
pub(super) fn find(listpack: ListpackRef<'_>, member: &[u8]) -> Option<(Position, f64)> {
    let at = listpack.find(member, listpack.first()?, 2)?;
    Some((at, score_at(listpack, at)))
}

fn score_at(listpack: ListpackRef<'_>, member: Position) -> f64 {
    let score = listpack.next(member).expect("a score follows every member");
    score_of(listpack.element(score))
}

/// The elements of a member and its score at a rank.
pub(super) fn at(listpack: ListpackRef<'_>, rank: usize) -> Option<(Element<'_>, f64)> {
    let at = listpack.seek(isize::try_from(rank).ok()?.checked_mul(2)?)?;
    Some((listpack.element(at), score_at(listpack, at)))
}

/// How many members come before one, and its score.
pub(super) fn rank(listpack: ListpackRef<'_>, member: &[u8]) -> Option<(usize, f64)> {
    let mut pairs = Pairs::new(listpack, 0..listpack.len() / 2).enumerate();
    pairs.find(|(_, (element, _))| element.is(member)).map(|(rank, (_, score))| (rank, score))
}

/// Appends a member that comes behind all others.
pub(super) fn push(listpack: &mut Listpack, member: &[u8], score: f64) {
    listpack.push_back(member);
    with_score(score, |element| listpack.push_element(element));
}

/// Inserts a member that is not there.
pub(super) fn insert(listpack: &mut Listpack, member: &[u8], score: f64) {
    let mut digits = IntBuffer::new();
    let view = listpack.as_ref();
    let mut place = view.first();
    while let Some(at) = place {
        let score_place = view.next(at).expect("a score follows every member");
        let other = score_of(view.element(score_place));
        if other > score || other == score && view.element(at).bytes(&mut digits) > member {
            listpack.insert_before(at, member);
            let behind = listpack.as_ref().next(at).expect("a score follows every member");
            with_score(score, |element| listpack.insert_element(behind, element));
            return;
        }
        place = view.next(score_place);
    }
    push(listpack, member, score);
}

/// Takes out the member at a position.
pub(super) fn remove(listpack: &mut Listpack, at: Position) {
    listpack.remove_range(at, 2);
}

/// Takes out the members of some ranks.
pub(super) fn remove_range(listpack: &mut Listpack, ranks: Range<usize>) {
    let Some(at) = isize::try_from(ranks.start).ok().and_then(|rank| listpack.as_ref().seek(rank * 2)) else {
        return;
    };
    listpack.remove_range(at, ranks.len().saturating_mul(2));
}

/// The first rank in a range of scores and the one behind the last.
pub(super) fn ranks_by_score(listpack: ListpackRef<'_>, range: &ScoreRange) -> (usize, usize) {
    let pairs = Pairs::new(listpack, 0..listpack.len() / 2);
    let start = pairs.clone().take_while(|(_, score)| range.is_before(*score)).count();
    let end = pairs.take_while(|(_, score)| !range.is_behind(*score)).count();
    (start, end)
}

/// The same by members. Going forward, the range begins with the first member that does
/// not lie before it; going backward, it ends with the last that does not lie behind.
pub(super) fn ranks_by_lex(
    listpack: ListpackRef<'_>,
    range: &LexRange<'_>,
    direction: Direction,
) -> (usize, usize) {
    let mut digits = IntBuffer::new();
    let mut is_before = |element: Element<'_>| range.is_before(element.bytes(&mut digits));
    let mut digits = IntBuffer::new();
    let mut is_behind = |element: Element<'_>| range.is_behind(element.bytes(&mut digits));
    let len = listpack.len() / 2;
    let pairs = Pairs::new(listpack, 0..len);
    let (Some((first, _)), Some((last, _))) = (pairs.clone().next(), pairs.clone().next_back()) else {
        return (0, 0);
    };
    if is_before(last) || is_behind(first) {
        return (0, 0);
    }
    match direction {
        Direction::Forward => {
            let start = pairs.clone().take_while(|(member, _)| is_before(*member)).count();
            let inside = pairs.skip(start).take_while(|(member, _)| !is_behind(*member)).count();
            (start, start + inside)
        }
        Direction::Backward => {
            let behind = pairs.clone().rev().take_while(|(member, _)| is_behind(*member)).count();
            let inside = pairs.rev().skip(behind).take_while(|(member, _)| !is_before(*member)).count();
            (len - behind - inside, len - behind)
        }
    }
}

/// Members with scores, from either end.
#[derive(Clone)]
pub struct Pairs<'a> {
    elements: Iter<'a>,
    left: usize,
}

impl<'a> Pairs<'a> {
    /// Those of some ranks, which exist.
    pub(super) fn new(listpack: ListpackRef<'a>, ranks: Range<usize>) -> Pairs<'a> {
        let mut elements = listpack.iter();
        for _ in 0..ranks.start * 2 {
            elements.next();
        }
        let len = listpack.len() / 2;
        for _ in ranks.end * 2..len * 2 {
            elements.next_back();
        }
        Pairs { elements, left: ranks.len() }
    }

    /// How many there are to come.
    pub(super) fn len(&self) -> usize {
        self.left
    }
}

impl<'a> Iterator for Pairs<'a> {
    type Item = (Element<'a>, f64);

    fn next(&mut self) -> Option<Self::Item> {
        let pair = (self.elements.next()?, score_of(self.elements.next()?));
        self.left -= 1;
        Some(pair)
    }
}

impl DoubleEndedIterator for Pairs<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let score = score_of(self.elements.next_back()?);
        let member = self.elements.next_back()?;
        self.left -= 1;
        Some((member, score))
    }
}
