//! Elements of a node's listpack, written at its end and read at an offset.
//!
//! An entry is a dozen elements that are appended together, so the node writes them straight behind each
//! other and sets the listpack's header once; a general listpack would do it element by element. Pure
//! functions over bytes.
//!
//! 1. Reading never goes beyond the bytes: damaged ones give none.
//! 2. A text that is an integer's canonical spelling is written as that integer, as in Redis.

use crate::number::parse_i64;

/// An element as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element<'a> {
    /// An integer, standing for its digits.
    Int(i64),
    /// Any other text.
    Bytes(&'a [u8]),
}

impl Element<'_> {
    /// Whether it stands for this text.
    #[inline]
    pub fn is(self, text: &[u8]) -> bool {
        match self {
            Element::Bytes(bytes) => bytes == text,
            Element::Int(number) => itoa::Buffer::new().format(number).as_bytes() == text,
        }
    }
}

const TEXT_6: u8 = 0x80;
const INT_13: u8 = 0xc0;
const TEXT_12: u8 = 0xe0;
const TEXT_32: u8 = 0xf0;
const INT_16: u8 = 0xf1;
const INT_24: u8 = 0xf2;
const INT_32: u8 = 0xf3;
const INT_64: u8 = 0xf4;

/// Appends a text.
#[inline]
pub fn write_text(out: &mut Vec<u8>, text: &[u8]) {
    if let Some(number) = parse_i64(text) {
        return write_int(out, number);
    }
    let start = out.len();
    match text.len() {
        len @ 0..64 => out.push(TEXT_6 | len as u8),
        len @ 64..4096 => out.extend_from_slice(&[TEXT_12 | (len >> 8) as u8, len as u8]),
        len => {
            let len = u32::try_from(len).expect("an entry is no longer than a node may be");
            out.push(TEXT_32);
            out.extend_from_slice(&len.to_le_bytes());
        }
    }
    out.extend_from_slice(text);
    write_back_length(out, start);
}

/// Appends an integer.
#[inline]
pub fn write_int(out: &mut Vec<u8>, number: i64) {
    if let 0..128 = number {
        out.extend_from_slice(&[number as u8, 1]);
        return;
    }
    let start = out.len();
    match number {
        -0x1000..0x1000 => {
            let bits = number as u16 & 0x1fff;
            out.extend_from_slice(&[INT_13 | (bits >> 8) as u8, bits as u8]);
        }
        -0x8000..0x8000 => write_bytes_of(out, INT_16, number, 2),
        -0x80_0000..0x80_0000 => write_bytes_of(out, INT_24, number, 3),
        -0x8000_0000..0x8000_0000 => write_bytes_of(out, INT_32, number, 4),
        _ => write_bytes_of(out, INT_64, number, 8),
    }
    write_back_length(out, start);
}

fn write_bytes_of(out: &mut Vec<u8>, kind: u8, number: i64, bytes: usize) {
    out.push(kind);
    out.extend_from_slice(&number.to_le_bytes()[..bytes]);
}

/// Appends the length of the element that begins at `start`, in the form that is read backwards.
fn write_back_length(out: &mut Vec<u8>, start: usize) {
    let length = out.len() - start;
    let bytes = back_length_bytes(length);
    for place in (0..bytes).rev() {
        let group = (length >> (7 * place)) as u8 & 127;
        // All but the first say that there is more before them.
        out.push(if place + 1 == bytes { group } else { group | 128 });
    }
}

/// How many bytes the length takes behind an element. The limits are Redis', each one below a power of two.
fn back_length_bytes(length: usize) -> usize {
    match length {
        0..=127 => 1,
        128..16_383 => 2,
        16_383..2_097_151 => 3,
        2_097_151..268_435_455 => 4,
        _ => 5,
    }
}

/// The element at an offset and the offset of the next one.
#[inline]
pub fn read(bytes: &[u8], at: usize) -> Option<(Element<'_>, usize)> {
    let kind = *bytes.get(at)?;
    let (element, length) = match kind {
        0..TEXT_6 => return Some((Element::Int(i64::from(kind)), at + 2)),
        TEXT_6..INT_13 => text(bytes, at, 1, usize::from(kind & 0x3f))?,
        INT_13..TEXT_12 => {
            let bits = u16::from(kind & 0x1f) << 8 | u16::from(*bytes.get(at + 1)?);
            (Element::Int(i64::from((bits << 3) as i16 >> 3)), 2)
        }
        TEXT_12..TEXT_32 => {
            text(bytes, at, 2, usize::from(kind & 0x0f) << 8 | usize::from(*bytes.get(at + 1)?))?
        }
        TEXT_32 => {
            let length = u32::from_le_bytes(bytes.get(at + 1..at + 5)?.try_into().ok()?);
            text(bytes, at, 5, length as usize)?
        }
        INT_16 => (integer(bytes, at, 2)?, 3),
        INT_24 => (integer(bytes, at, 3)?, 4),
        INT_32 => (integer(bytes, at, 4)?, 5),
        INT_64 => (integer(bytes, at, 8)?, 9),
        _ => return None,
    };
    Some((element, at + length + back_length_bytes(length)))
}

fn text(bytes: &[u8], at: usize, header: usize, length: usize) -> Option<(Element<'_>, usize)> {
    let text = bytes.get(at + header..at + header + length)?;
    Some((Element::Bytes(text), header + length))
}

fn integer(bytes: &[u8], at: usize, count: usize) -> Option<Element<'_>> {
    let mut all = [0; 8];
    all[8 - count..].copy_from_slice(bytes.get(at + 1..at + 1 + count)?);
    Some(Element::Int(i64::from_le_bytes(all) >> (64 - 8 * count)))
}

/// As [`read`], but the length behind the element must be right, so that it can be read backwards.
pub fn read_checked(bytes: &[u8], at: usize) -> Option<(Element<'_>, usize)> {
    let (element, next) = read(bytes, at)?;
    if next > bytes.len() || previous(bytes, next) != Some(at) {
        return None;
    }
    Some((element, next))
}

/// The offset of the element that ends before an offset.
#[inline]
pub fn previous(bytes: &[u8], at: usize) -> Option<usize> {
    let mut length = 0;
    for count in 0..5 {
        let byte = *bytes.get(at.checked_sub(count + 1)?)?;
        length |= usize::from(byte & 127) << (7 * count);
        if byte & 128 == 0 {
            // An overlong form would not be the one that `read` expects.
            let is_canonical = back_length_bytes(length) == count + 1;
            return if is_canonical { at.checked_sub(length + count + 1) } else { None };
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_read_back_in_both_directions() {
        let edges = [0, 127, 128, -1, 4095, 4096, -4096, -4097, 32_767, 32_768, -32_768, -32_769];
        let wide = [8_388_607, 8_388_608, -8_388_608, -8_388_609, 2_147_483_647, 2_147_483_648];
        let far = [-2_147_483_648, -2_147_483_649, i64::MAX, i64::MIN];
        for number in edges.into_iter().chain(wide).chain(far) {
            let mut bytes = vec![9; 3];
            write_text(&mut bytes, number.to_string().as_bytes());
            assert_eq!(read_checked(&bytes, 3), Some((Element::Int(number), bytes.len())), "{number}");
        }
        for len in [0, 1, 63, 64, 125, 126, 4095, 4096, 16_377, 16_378, 2_097_145, 2_097_146] {
            let text = vec![b'x'; len];
            let mut bytes = Vec::new();
            write_text(&mut bytes, &text);
            assert_eq!(read_checked(&bytes, 0), Some((Element::Bytes(&text), bytes.len())), "{len}");
        }
    }

    #[test]
    fn damaged_elements_are_none() {
        for bytes in
            [&b"\xff"[..], b"\x85abc", b"\xf0\xff\xff\xff\xffa", b"\xf4\x01", b"\xc0", b"", b"\xf5\x01"]
        {
            assert_eq!(read(bytes, 0), None, "{}", bytes.escape_ascii());
        }
        for bytes in [&b"\x05\x02"[..], b"\x05\x81", b"\x81a\x03", b"\x05"] {
            assert_eq!(read_checked(bytes, 0), None, "{}", bytes.escape_ascii());
        }
    }
}
