//! One entry of a listpack: how an element is encoded, and how a position is decoded.
//!
//! An entry is a head (the encoding, with the length of a string or the bytes of an integer), the bytes of
//! a string, and the entry's length so far, written so that it can be read backwards. Pure, any thread.
//!
//! 1. An element is written in the shortest encoding that holds it, and a canonical integer never as a text.
//! 2. Decoding trusts its bytes; hostile ones go through [`Extent::checked`] first.

use crate::number::{IntBuffer, format_i64, parse_i64};

const STRING_6: u8 = 0x80;
const INT_13: u8 = 0xc0;
const STRING_12: u8 = 0xe0;
const STRING_32: u8 = 0xf0;
const INT_16: u8 = 0xf1;
const INT_24: u8 = 0xf2;
const INT_32: u8 = 0xf3;
const INT_64: u8 = 0xf4;

/// The longest head: the encoding's byte and a 64-bit integer.
const HEAD_BYTES_MAX: usize = 9;

/// An element of a listpack: an integer, or any other text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element<'a> {
    /// Stands for its canonical decimal text.
    Int(i64),
    /// A text as it is.
    Bytes(&'a [u8]),
}

impl<'a> Element<'a> {
    /// The element that a text is stored as.
    #[inline]
    pub fn of(text: &'a [u8]) -> Self {
        parse_i64(text).map_or(Self::Bytes(text), Self::Int)
    }

    /// The element's text. The buffer is used for that of an integer only.
    #[inline]
    pub fn bytes<'b>(self, digits: &'b mut IntBuffer) -> &'b [u8]
    where
        'a: 'b,
    {
        match self {
            Self::Int(value) => format_i64(value, digits),
            Self::Bytes(bytes) => bytes,
        }
    }

    /// Whether this is the element's text. To compare one text with many elements, use a [`Needle`].
    pub fn is(self, text: &[u8]) -> bool {
        match self {
            Self::Int(value) => parse_i64(text) == Some(value),
            Self::Bytes(bytes) => bytes == text,
        }
    }

    /// The length of the text in bytes.
    #[expect(clippy::len_without_is_empty, reason = "an element is a text, not a container")]
    pub fn len(self) -> usize {
        self.bytes(&mut IntBuffer::new()).len()
    }

    /// The text in a vector of its own.
    pub fn to_vec(self) -> Vec<u8> {
        self.bytes(&mut IntBuffer::new()).to_vec()
    }

    /// The element's integer, if its text is a canonical one.
    pub fn int(self) -> Option<i64> {
        match self {
            Self::Int(value) => Some(value),
            Self::Bytes(bytes) => parse_i64(bytes),
        }
    }
}

impl From<i64> for Element<'_> {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

/// A text to be compared with many elements: whether it is an integer is found out once.
#[derive(Clone, Copy, Debug)]
pub struct Needle<'a> {
    text: &'a [u8],
    int: Option<i64>,
}

impl<'a> Needle<'a> {
    /// Of a text.
    pub fn new(text: &'a [u8]) -> Self {
        Self { text, int: parse_i64(text) }
    }

    /// Whether the element has this text.
    #[inline]
    pub fn is(self, element: Element<'_>) -> bool {
        match element {
            Element::Int(value) => self.int == Some(value),
            Element::Bytes(bytes) => bytes == self.text,
        }
    }
}

/// An element ready to be written.
pub(crate) struct Encoded<'a> {
    head: [u8; HEAD_BYTES_MAX],
    head_bytes: usize,
    body: &'a [u8],
}

impl<'a> Encoded<'a> {
    #[inline]
    pub fn of(element: Element<'a>) -> Self {
        match element {
            Element::Int(value) => Self::int(value),
            Element::Bytes(bytes) => Self::text(bytes),
        }
    }

    #[inline]
    fn int(value: i64) -> Self {
        let low = value.to_le_bytes();
        match value {
            0..=0x7f => Self::new(&[low[0]], b""),
            -0x1000..=0xfff => Self::new(&[INT_13 | low[1] & 0x1f, low[0]], b""),
            -0x8000..=0x7fff => Self::new(&[INT_16, low[0], low[1]], b""),
            -0x80_0000..=0x7f_ffff => Self::new(&[INT_24, low[0], low[1], low[2]], b""),
            -0x8000_0000..=0x7fff_ffff => Self::new(&[INT_32, low[0], low[1], low[2], low[3]], b""),
            _ => {
                let [a, b, c, d, e, f, g, h] = low;
                Self::new(&[INT_64, a, b, c, d, e, f, g, h], b"")
            }
        }
    }

    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "lengths were compared before; of a back length seven bits are meant"
    )]
    fn text(body: &'a [u8]) -> Self {
        let low = (body.len() as u32).to_le_bytes();
        match body.len() {
            0..0x40 => Self::new(&[STRING_6 | low[0]], body),
            0x40..0x1000 => Self::new(&[STRING_12 | low[1], low[0]], body),
            _ => Self::new(&[STRING_32, low[0], low[1], low[2], low[3]], body),
        }
    }

    #[inline]
    fn new(bytes: &[u8], body: &'a [u8]) -> Self {
        let mut head = [0; HEAD_BYTES_MAX];
        head[..bytes.len()].copy_from_slice(bytes);
        Self { head, head_bytes: bytes.len(), body }
    }

    /// The size of the whole entry.
    #[inline]
    pub fn bytes(&self) -> usize {
        let length = self.head_bytes + self.body.len();
        length + backlen_bytes(length)
    }

    /// Writes the entry into a place of exactly its size.
    #[inline]
    pub fn write(&self, place: &mut [u8]) {
        let length = self.head_bytes + self.body.len();
        place[..self.head_bytes].copy_from_slice(&self.head[..self.head_bytes]);
        place[self.head_bytes..length].copy_from_slice(self.body);
        write_backlen(length, &mut place[length..]);
    }
}

/// Where the parts of an entry end, counted from its beginning.
#[derive(Clone, Copy)]
pub(crate) struct Extent {
    /// Bytes of the head.
    head: usize,
    /// Bytes of head and body: what the backward length says.
    length: usize,
}

impl Extent {
    /// Of the trusted entry that these bytes begin with.
    #[inline]
    pub fn of(bytes: &[u8]) -> Self {
        match bytes[0] {
            0..=0x7f => Self { head: 1, length: 1 },
            first @ STRING_6..=0xbf => Self { head: 1, length: 1 + usize::from(first & 0x3f) },
            INT_13..=0xdf => Self { head: 2, length: 2 },
            first @ STRING_12..=0xef => {
                Self { head: 2, length: 2 + (usize::from(first & 0xf) << 8 | usize::from(bytes[1])) }
            }
            STRING_32 => {
                let length = u32::from_le_bytes([bytes[1], bytes[2], bytes[3], bytes[4]]);
                Self { head: 5, length: 5 + length as usize }
            }
            INT_16 => Self { head: 3, length: 3 },
            INT_24 => Self { head: 4, length: 4 },
            INT_32 => Self { head: 5, length: 5 },
            _ => Self { head: HEAD_BYTES_MAX, length: HEAD_BYTES_MAX },
        }
    }

    /// Of the entry that hostile bytes begin with, or `None` if they do not begin with a whole one.
    pub fn checked(bytes: &[u8]) -> Option<Self> {
        let head_bytes = match bytes.first()? {
            0xf5.. => return None,
            STRING_12..=0xef => 2,
            &STRING_32 => 5,
            _ => 1,
        };
        if bytes.len() < head_bytes {
            return None;
        }
        let extent = Self::of(bytes);
        let mut backlen = [0; BACKLEN_BYTES_MAX];
        let backlen = &mut backlen[..backlen_bytes(extent.length)];
        write_backlen(extent.length, backlen);
        (bytes.get(extent.length..extent.entry())? == backlen).then_some(extent)
    }

    /// The size of the whole entry.
    #[inline]
    pub fn entry(self) -> usize {
        self.length + backlen_bytes(self.length)
    }

    /// The element of the entry that these bytes begin with.
    #[inline]
    pub fn element(self, bytes: &[u8]) -> Element<'_> {
        let int = |value: i64| Element::Int(value);
        match bytes[0] {
            first @ 0..=0x7f => int(first.into()),
            first @ INT_13..=0xdf => {
                let raw = u16::from(first & 0x1f) << 8 | u16::from(bytes[1]);
                int(((raw << 3) as i16 >> 3).into())
            }
            STRING_6..=0xbf | STRING_12..=STRING_32 => Element::Bytes(&bytes[self.head..self.length]),
            INT_16 => int(i16::from_le_bytes([bytes[1], bytes[2]]).into()),
            INT_24 => int((i32::from_le_bytes([0, bytes[1], bytes[2], bytes[3]]) >> 8).into()),
            INT_32 => int(i32::from_le_bytes([bytes[1], bytes[2], bytes[3], bytes[4]]).into()),
            _ => {
                let value: [u8; 8] = bytes[1..9].try_into().expect("eight bytes were asked for");
                int(i64::from_le_bytes(value))
            }
        }
    }
}

/// Seven bits a byte hold the length of an entry in a listpack of at most 4 GB.
const BACKLEN_BYTES_MAX: usize = 5;

/// The size of a backward length. The bounds are the format's own, odd as they are.
#[inline]
fn backlen_bytes(length: usize) -> usize {
    match length {
        0..=127 => 1,
        128..16_383 => 2,
        16_383..2_097_151 => 3,
        2_097_151..268_435_455 => 4,
        _ => 5,
    }
}

/// Writes a length into all of the place, lowest seven bits last; each byte but the first has its high bit set.
#[inline]
#[expect(
    clippy::cast_possible_truncation,
    reason = "lengths were compared before; of a back length seven bits are meant"
)]
fn write_backlen(length: usize, place: &mut [u8]) {
    let mut rest = length;
    for byte in place.iter_mut().rev() {
        *byte = rest as u8 | 0x80;
        rest >>= 7;
    }
    place[0] &= 0x7f;
}

/// The size of the whole entry that ends these bytes.
#[inline]
pub(crate) fn entry_before(bytes: &[u8]) -> usize {
    let (mut length, mut shift) = (0, 0);
    for (&byte, size) in bytes.iter().rev().zip(1..) {
        length |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return length + size;
        }
        shift += 7;
    }
    unreachable!("an entry's backward length has a first byte")
}
