//! Lua 5.1's patterns: whether and where one matches, with what it captures.
//!
//! The interpreter's own matcher calls itself once for each item of a pattern, as deep as the pattern is long, and tries for as long as
//! it takes. This one gives the same answers, but goes only so deep, and asks now and then whether to go on.
//!
//! Pure.

use crate::limits::PATTERN_DEPTH_MAX;

/// Captures that a pattern may have.
const CAPTURES_MAX: usize = 32;

/// What makes `find` look for a pattern instead of for the text itself.
const SPECIALS: &[u8] = b"^$*+?.([%-";

/// What stands before a byte that means something else.
pub(crate) const ESCAPE: u8 = b'%';

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    /// The pattern is wrong, in the words of Lua's own library.
    Wrong(&'static str),
    /// It was not to go on.
    Stopped,
}

use Failed::Wrong;

type Result<T> = std::result::Result<T, Failed>;

/// Something that is captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Captured {
    /// A part of the text.
    Part(usize, usize),
    /// A place in it, counted from 0.
    Position(usize),
}

#[derive(Clone, Copy)]
struct Capture {
    begin: usize,
    length: Length,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Length {
    Unfinished,
    Position,
    Bytes(usize),
}

/// Counts what is done, and asks whether to go on.
pub(crate) trait Meter {
    /// So much was done: about as much as so many of the interpreter's instructions. False: no more.
    fn spend(&mut self, work: usize) -> bool;
}

/// The pattern up to its first zero byte, where it ends for the interpreter.
pub(crate) fn visible(pattern: &[u8]) -> &[u8] {
    &pattern[..pattern.iter().position(|byte| *byte == 0).unwrap_or(pattern.len())]
}

/// Whether a text is looked for as it is.
pub(crate) fn is_plain(pattern: &[u8]) -> bool {
    !visible(pattern).iter().any(|byte| SPECIALS.contains(byte))
}

/// Where `wanted` begins first in a text.
pub(crate) fn find_plain(text: &[u8], wanted: &[u8], meter: &mut impl Meter) -> Result<Option<usize>> {
    /// Bytes that are compared, or passed over, in the time of one instruction.
    const BYTES_PER_INSTRUCTION: usize = 64;
    let Some((first, rest)) = wanted.split_first() else { return Ok(Some(0)) };
    let Some(last) = text.len().checked_sub(wanted.len()) else { return Ok(None) };
    let mut at = 0;
    while at <= last {
        let Some(passed) = text[at..=last].iter().position(|byte| byte == first) else { return Ok(None) };
        at += passed;
        if text[at + 1..at + wanted.len()] == *rest {
            return Ok(Some(at));
        }
        at += 1;
        if !meter.spend(1 + (passed + rest.len()) / BYTES_PER_INSTRUCTION) {
            return Err(Failed::Stopped);
        }
    }
    Ok(None)
}

/// Looks for matches of one pattern in one text.
pub(crate) struct Matcher<'a, M> {
    text: &'a [u8],
    pattern: &'a [u8],
    meter: M,
    captures: [Capture; CAPTURES_MAX],
    count: usize,
    depth: usize,
}

impl<'a, M: Meter> Matcher<'a, M> {
    /// With a [`visible`] pattern, without the mark that ties it to the beginning.
    pub fn new(text: &'a [u8], pattern: &'a [u8], meter: M) -> Matcher<'a, M> {
        let captures = [Capture { begin: 0, length: Length::Unfinished }; CAPTURES_MAX];
        Matcher { text, pattern, meter, captures, count: 0, depth: 0 }
    }

    /// The end of the match that begins at a place.
    pub fn match_at(&mut self, at: usize) -> Result<Option<usize>> {
        self.count = 0;
        self.depth = 0;
        self.rest(at, 0)
    }

    /// How many captures a match has.
    pub fn captures(&self) -> usize {
        self.count
    }

    /// How many values a match gives: its captures, or the whole of it.
    pub fn values(&self) -> usize {
        self.count.max(1)
    }

    /// A capture of the match from `begin` to `end`, counted from 0. Without captures the first is the whole match.
    pub fn captured(&self, index: usize, (begin, end): (usize, usize)) -> Result<Captured> {
        if index >= self.count {
            return match index {
                0 => Ok(Captured::Part(begin, end)),
                _ => Err(Wrong("invalid capture index")),
            };
        }
        let Capture { begin, length } = self.captures[index];
        match length {
            Length::Unfinished => Err(Wrong("unfinished capture")),
            Length::Position => Ok(Captured::Position(begin)),
            Length::Bytes(bytes) => Ok(Captured::Part(begin, begin + bytes)),
        }
    }

    /// The pattern's byte at a place; zero behind its end.
    fn item(&self, at: usize) -> u8 {
        self.pattern.get(at).copied().unwrap_or(0)
    }

    fn spend(&mut self, work: usize) -> Result<()> {
        if self.meter.spend(work) { Ok(()) } else { Err(Failed::Stopped) }
    }

    /// Matches the pattern from an item on, one level deeper.
    fn rest(&mut self, at: usize, item: usize) -> Result<Option<usize>> {
        if self.depth == PATTERN_DEPTH_MAX {
            return Err(Wrong("pattern too complex"));
        }
        self.depth += 1;
        let end = self.items(at, item)?;
        self.depth -= 1;
        Ok(end)
    }

    fn items(&mut self, mut at: usize, mut item: usize) -> Result<Option<usize>> {
        loop {
            self.spend(1)?;
            let next = match (self.item(item), self.item(item + 1)) {
                (0, _) => return Ok(Some(at)),
                (b'(', b')') => return self.open(at, item + 2, Length::Position),
                (b'(', _) => return self.open(at, item + 1, Length::Unfinished),
                (b')', _) => return self.close(at, item + 1),
                (b'$', 0) => return Ok((at == self.text.len()).then_some(at)),
                (ESCAPE, b'b') => self.balanced(at, item + 2)?.map(|at| (at, item + 4)),
                (ESCAPE, b'f') => self.frontier(at, item + 2)?.map(|item| (at, item)),
                (ESCAPE, digit) if digit.is_ascii_digit() => {
                    self.repeated(at, digit)?.map(|at| (at, item + 2))
                }
                _ => match self.single(at, item)? {
                    Step::Next(at, item) => Some((at, item)),
                    Step::Done(end) => return Ok(end),
                },
            };
            match next {
                Some(next) => (at, item) = next,
                None => return Ok(None),
            }
        }
    }

    /// An item that stands for one byte, and what is behind it.
    fn single(&mut self, at: usize, item: usize) -> Result<Step> {
        let end = self.item_end(item)?;
        let is_match = self.matches(at, item, end);
        Ok(match self.item(end) {
            b'?' => {
                if is_match && let Some(found) = self.rest(at + 1, end + 1)? {
                    return Ok(Step::Done(Some(found)));
                }
                Step::Next(at, end + 1)
            }
            b'*' => Step::Done(self.longest(at, item, end)?),
            b'+' if is_match => Step::Done(self.longest(at + 1, item, end)?),
            b'+' => Step::Done(None),
            b'-' => Step::Done(self.shortest(at, item, end)?),
            _ if is_match => Step::Next(at + 1, end),
            _ => Step::Done(None),
        })
    }

    /// Behind an item that stands for one byte.
    fn item_end(&self, item: usize) -> Result<usize> {
        match self.item(item) {
            ESCAPE if self.item(item + 1) == 0 => Err(Wrong("malformed pattern (ends with '%')")),
            ESCAPE => Ok(item + 2),
            b'[' => self.set_end(item + 1),
            _ => Ok(item + 1),
        }
    }

    /// Behind the bracket that ends a set; one that comes first is a member.
    fn set_end(&self, begin: usize) -> Result<usize> {
        let mut item = begin + usize::from(self.item(begin) == b'^');
        loop {
            let byte = self.item(item);
            if byte == 0 {
                return Err(Wrong("malformed pattern (missing ']')"));
            }
            item += 1;
            if byte == ESCAPE && self.item(item) != 0 {
                item += 1;
            }
            if self.item(item) == b']' {
                return Ok(item + 1);
            }
        }
    }

    /// Whether the text's byte at a place is one that the item from `item` to `end` stands for.
    fn matches(&self, at: usize, item: usize, end: usize) -> bool {
        let Some(&byte) = self.text.get(at) else { return false };
        match self.item(item) {
            b'.' => true,
            ESCAPE => is_of_class(byte, self.item(item + 1)),
            b'[' => self.is_in_set(byte, item, end - 1),
            literal => literal == byte,
        }
    }

    /// Whether a byte is in the set that begins and ends with these brackets.
    fn is_in_set(&self, byte: u8, begin: usize, end: usize) -> bool {
        let is_negated = self.item(begin + 1) == b'^';
        let mut item = begin + 1 + usize::from(is_negated);
        while item < end {
            let is_range = self.item(item + 1) == b'-' && item + 2 < end;
            let (is_there, next) = match self.item(item) {
                ESCAPE => (is_of_class(byte, self.item(item + 1)), item + 2),
                first if is_range => ((first..=self.item(item + 2)).contains(&byte), item + 3),
                member => (member == byte, item + 1),
            };
            if is_there {
                return !is_negated;
            }
            item = next;
        }
        is_negated
    }

    /// As many as there are, then fewer, until the rest matches.
    fn longest(&mut self, at: usize, item: usize, end: usize) -> Result<Option<usize>> {
        let mut count = 0;
        while self.matches(at + count, item, end) {
            count += 1;
            self.spend(1)?;
        }
        loop {
            if let Some(found) = self.rest(at + count, end + 1)? {
                return Ok(Some(found));
            }
            if count == 0 {
                return Ok(None);
            }
            count -= 1;
        }
    }

    /// As few as it takes.
    fn shortest(&mut self, mut at: usize, item: usize, end: usize) -> Result<Option<usize>> {
        loop {
            if let Some(found) = self.rest(at, end + 1)? {
                return Ok(Some(found));
            }
            if !self.matches(at, item, end) {
                return Ok(None);
            }
            at += 1;
        }
    }

    fn open(&mut self, at: usize, item: usize, length: Length) -> Result<Option<usize>> {
        let Some(capture) = self.captures.get_mut(self.count) else { return Err(Wrong("too many captures")) };
        *capture = Capture { begin: at, length };
        self.count += 1;
        let found = self.rest(at, item)?;
        if found.is_none() {
            self.count -= 1;
        }
        Ok(found)
    }

    fn close(&mut self, at: usize, item: usize) -> Result<Option<usize>> {
        let is_open = |capture: &Capture| capture.length == Length::Unfinished;
        let Some(index) = self.captures[..self.count].iter().rposition(is_open) else {
            return Err(Wrong("invalid pattern capture"));
        };
        self.captures[index].length = Length::Bytes(at - self.captures[index].begin);
        let found = self.rest(at, item)?;
        if found.is_none() {
            self.captures[index].length = Length::Unfinished;
        }
        Ok(found)
    }

    /// Behind the bytes that a capture has, if they come again.
    fn repeated(&mut self, at: usize, digit: u8) -> Result<Option<usize>> {
        let index = usize::from(digit).wrapping_sub(usize::from(b'1'));
        let capture =
            self.captures[..self.count].get(index).filter(|capture| capture.length != Length::Unfinished);
        let Some(&Capture { begin, length }) = capture else { return Err(Wrong("invalid capture index")) };
        // A place has no bytes, and is never found again.
        let Length::Bytes(bytes) = length else { return Ok(None) };
        self.spend(bytes / 64)?;
        let part = &self.text[begin..begin + bytes];
        Ok(self.text[at..].starts_with(part).then_some(at + bytes))
    }

    /// Behind the byte that balances the one at a place.
    fn balanced(&mut self, at: usize, item: usize) -> Result<Option<usize>> {
        let (opens, closes) = (self.item(item), self.item(item + 1));
        if opens == 0 || closes == 0 {
            return Err(Wrong("unbalanced pattern"));
        }
        if self.text.get(at) != Some(&opens) {
            return Ok(None);
        }
        let mut depth = 1;
        for index in at + 1..self.text.len() {
            let byte = self.text[index];
            if byte == closes {
                depth -= 1;
                if depth == 0 {
                    return Ok(Some(index + 1));
                }
            } else if byte == opens {
                depth += 1;
            }
            self.spend(1)?;
        }
        Ok(None)
    }

    /// Behind a set of which the byte before a place is none, and the one at it is.
    fn frontier(&self, at: usize, item: usize) -> Result<Option<usize>> {
        if self.item(item) != b'[' {
            return Err(Wrong("missing '[' after '%f' in pattern"));
        }
        let end = self.item_end(item)?;
        let before = if at == 0 { 0 } else { self.text[at - 1] };
        let byte = self.text.get(at).copied().unwrap_or(0);
        let is_there = !self.is_in_set(before, item, end - 1) && self.is_in_set(byte, item, end - 1);
        Ok(is_there.then_some(end))
    }
}

/// What an item leads to.
enum Step {
    /// To the next, at a place of the text.
    Next(usize, usize),
    /// To the end of the match, or to none.
    Done(Option<usize>),
}

/// Whether a byte is of a class, by its letter; a capital stands for all others.
fn is_of_class(byte: u8, class: u8) -> bool {
    let is_there = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => byte.is_ascii_whitespace() || byte == 0x0b,
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        b'z' => byte == 0,
        _ => return byte == class,
    };
    is_there == class.is_ascii_lowercase()
}
