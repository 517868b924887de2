//! The order that SORT puts elements in: by numbers or by texts, their own or those
//! that a pattern finds.
//!
//! Numbers are read as C's `strtod` does; texts are compared by their bytes, up to a
//! zero byte unless the result is stored, as Redis does in the C locale. Equal elements
//! stay as they were. Pure, any thread.

use super::pattern::Pattern;
use crate::error::{Error, Result};
use std::cmp::Ordering;
use std::ops::Range;
use value::listpack::Element;
use value::number::{IntBuffer, format_i64, parse_f64};
use value::text::until_zero;

/// What elements are sorted by.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum By<'a> {
    /// Themselves.
    #[default]
    Itself,
    /// Nothing: they stay as they are.
    Nothing,
    /// What a pattern finds for them.
    Pattern(Pattern<'a>),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Direction {
    #[default]
    Up,
    Down,
}

/// An order.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Order<'a> {
    pub(super) by: By<'a>,
    pub(super) direction: Direction,
    /// ALPHA: what they are sorted by are texts, not numbers.
    pub(super) as_texts: bool,
}

impl<'a> Order<'a> {
    /// The indices of the elements in order; those outside `range` may be anywhere on
    /// their side of it. `find` tells what a pattern finds for the element of an index.
    pub(super) fn sort<'e>(
        &self,
        elements: &[Element<'e>],
        texts: &[&'e [u8]],
        range: &Range<usize>,
        is_stored: bool,
        find: impl Fn(Pattern<'a>, usize) -> Option<Element<'e>>,
    ) -> Result<Vec<u32>> {
        let keys: Vec<Option<Element<'e>>> = match self.by {
            By::Nothing => return Ok((0..texts.len() as u32).collect()),
            By::Itself => elements.iter().map(|element| Some(*element)).collect(),
            By::Pattern(pattern) => (0..texts.len()).map(|at| find(pattern, at)).collect(),
        };
        if self.as_texts {
            let digits = Digits::of(keys.iter().flatten());
            let mut text_of = digits.texts();
            let cut = |text: &'_ [u8]| if is_stored { text.len() } else { until_zero(text).len() };
            let texts: Vec<Option<&[u8]>> = keys
                .iter()
                .map(|key| key.as_ref().map(&mut text_of).map(|text| &text[..cut(text)]))
                .collect();
            return Ok(self.arrange(texts.len(), range, |a, b| texts[a].cmp(&texts[b])));
        }
        let score = |key: &Option<Element<'_>>| match key {
            Some(Element::Int(number)) => Ok(*number as f64),
            Some(Element::Bytes(text)) => score_of(text),
            None => Ok(0.0),
        };
        let scores = keys.iter().map(score).collect::<Result<Vec<f64>>>()?;
        Ok(self.arrange(texts.len(), range, |a, b| {
            scores[a].partial_cmp(&scores[b]).unwrap_or(Ordering::Equal).then_with(|| texts[a].cmp(texts[b]))
        }))
    }

    fn arrange(
        &self,
        len: usize,
        range: &Range<usize>,
        compare: impl Fn(usize, usize) -> Ordering,
    ) -> Vec<u32> {
        let mut order: Vec<u32> = (0..len as u32).collect();
        let compare = |a: &u32, b: &u32| {
            let (first, second) = match self.direction {
                Direction::Up => (a, b),
                Direction::Down => (b, a),
            };
            compare(*first as usize, *second as usize).then(a.cmp(b))
        };
        // Only those that are shown need to be in order.
        let mut shown = &mut order[..];
        if range.end < shown.len() && !range.is_empty() {
            shown.select_nth_unstable_by(range.end, compare);
            shown = &mut shown[..range.end];
        }
        shown.sort_unstable_by(compare);
        order
    }
}

/// The texts of all elements that are integers, one after the other.
pub(super) struct Digits {
    bytes: Vec<u8>,
    /// Where each ends.
    ends: Vec<usize>,
}

impl Digits {
    /// Those of these elements.
    pub(super) fn of<'e>(elements: impl Iterator<Item = &'e Element<'e>>) -> Digits {
        let mut digits = Digits { bytes: Vec::new(), ends: Vec::new() };
        for element in elements {
            if let Element::Int(number) = element {
                digits.bytes.extend_from_slice(format_i64(*number, &mut IntBuffer::new()));
                digits.ends.push(digits.bytes.len());
            }
        }
        digits
    }

    /// Gives the text of each of these elements in turn.
    pub(super) fn texts<'t>(&'t self) -> impl FnMut(&Element<'t>) -> &'t [u8] {
        let (mut ends, mut start) = (self.ends.iter(), 0);
        move |element| match element {
            Element::Bytes(text) => text,
            Element::Int(_) => {
                let end = *ends.next().expect("each integer has its digits");
                &self.bytes[std::mem::replace(&mut start, end)..end]
            }
        }
    }
}

/// A text as a number: blanks may stand before it, and no text is 0.
fn score_of(text: &[u8]) -> Result<f64> {
    let text = until_zero(text);
    if text.is_empty() {
        return Ok(0.0);
    }
    let blanks = text.iter().take_while(|byte| matches!(byte, b' ' | b'\t'..=b'\r')).count();
    parse_f64(&text[blanks..]).ok_or(Error::SORT_SCORE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(order: Order<'_>, texts: &[&'static str], range: Range<usize>) -> Result<Vec<&'static str>> {
        let bytes: Vec<&'static [u8]> = texts.iter().map(|text| text.as_bytes()).collect();
        let elements: Vec<Element<'_>> = bytes.iter().map(|text| Element::of(text)).collect();
        let find = |_, at: usize| (bytes[at].len() > 1).then(|| Element::Bytes(&bytes[at][1..]));
        let order = order.sort(&elements, &bytes, &range, false, find)?;
        Ok(order[range].iter().map(|index| texts[*index as usize]).collect())
    }

    #[test]
    fn numbers_are_read_as_strtod_does() {
        let order = Order::default();
        assert_eq!(
            sorted(order, &["10", " 9", "", "0x1f", "-inf"], 0..5),
            Ok(vec!["-inf", "", " 9", "10", "0x1f"])
        );
        for text in ["1 ", "a", "nan", "1e999", " "] {
            assert_eq!(sorted(order, &[text], 0..1), Err(Error::SORT_SCORE), "{text}");
        }
    }

    #[test]
    fn equal_numbers_are_ordered_by_their_texts() {
        let order = Order::default();
        assert_eq!(sorted(order, &["1.0", "01", "1"], 0..3), Ok(vec!["01", "1", "1.0"]));
    }

    #[test]
    fn texts_end_at_a_zero_byte_and_what_is_missing_comes_first() {
        let order = Order { as_texts: true, ..Order::default() };
        assert_eq!(sorted(order, &["b\0b", "b\0a", "a"], 0..3), Ok(vec!["a", "b\0b", "b\0a"]));
        let by = Order { by: By::Pattern(Pattern::Fixed), ..order };
        assert_eq!(sorted(by, &["ab", "b", "ba"], 0..3), Ok(vec!["b", "ba", "ab"]));
        let down = Order { direction: Direction::Down, ..by };
        assert_eq!(sorted(down, &["ab", "b", "ba"], 0..2), Ok(vec!["ab", "ba"]));
    }
}
