//! Ziplists: what listpacks were before Redis 7, read from old dumps and files only.
//!
//! A header (total size, offset of the last entry, count), entries that begin with the length of the one
//! before, and an end mark. Everything that holds a ziplist turns it into a listpack. Pure, any thread.
//!
//! 1. The bytes come from outside: everything is checked, and nothing is allocated but the listpack.

use crate::listpack::{Element, Listpack};

const HEADER_BYTES: usize = 10;
const END: u8 = 0xff;
/// The length of the entry before follows in four bytes.
const LONG_PREVIOUS: u8 = 0xfe;
/// The header's count of a ziplist with more entries than it can say.
const COUNT_UNKNOWN: u16 = u16::MAX;

/// The same elements in a listpack, or `None` if this is not a sound ziplist.
pub(crate) fn to_listpack(bytes: &[u8]) -> Option<Listpack> {
    let (total, rest) = bytes.split_first_chunk()?;
    let (tail, rest) = rest.split_first_chunk()?;
    let (count, _) = rest.split_first_chunk()?;
    let (&end, body) = bytes.split_last()?;
    if u32::from_le_bytes(*total) as usize != bytes.len() || bytes.len() <= HEADER_BYTES || end != END {
        return None;
    }
    let mut listpack = Listpack::with_capacity(bytes.len());
    let (mut at, mut previous, mut found) = (HEADER_BYTES, 0, 0);
    while at < body.len() {
        let mut entry = Cursor { rest: &body[at..] };
        if entry.previous()? != previous {
            return None;
        }
        listpack.push_element(entry.element()?);
        previous = body.len() - at - entry.rest.len();
        at += previous;
        found += 1;
    }
    let count = u16::from_le_bytes(*count);
    let is_counted = count == COUNT_UNKNOWN || usize::from(count) == found;
    let last = if found > 0 { at - previous } else { HEADER_BYTES };
    (is_counted && u32::from_le_bytes(*tail) as usize == last).then_some(listpack)
}

/// What is left of an entry, and of all after it.
struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    fn previous(&mut self) -> Option<usize> {
        match self.array()? {
            [END] => None,
            [LONG_PREVIOUS] => Some(u32::from_le_bytes(self.array()?) as usize),
            [length] => Some(length.into()),
        }
    }

    fn element(&mut self) -> Option<Element<'a>> {
        let [first] = self.array()?;
        let length = match first {
            0..0x40 => usize::from(first),
            0x40..0x80 => usize::from(first & 0x3f) << 8 | usize::from(self.array::<1>()?[0]),
            0x80 => u32::from_be_bytes(self.array()?) as usize,
            0xc0 => return Some(Element::Int(i16::from_le_bytes(self.array()?).into())),
            0xd0 => return Some(Element::Int(i32::from_le_bytes(self.array()?).into())),
            0xe0 => return Some(Element::Int(i64::from_le_bytes(self.array()?))),
            0xf0 => {
                let [low, middle, high] = self.array()?;
                return Some(Element::Int((i32::from_le_bytes([0, low, middle, high]) >> 8).into()));
            }
            0xf1..=0xfd => return Some(Element::Int(i64::from(first & 0xf) - 1)),
            0xfe => return Some(Element::Int(i8::from_le_bytes(self.array()?).into())),
            _ => return None,
        };
        Some(Element::of(self.rest.split_off(..length)?))
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*array)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ziplist of entries that are given without the length of the one before.
    fn ziplist(entries: &[&[u8]]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_BYTES];
        let (mut previous, mut last) = (0, HEADER_BYTES);
        for entry in entries {
            last = bytes.len();
            match u8::try_from(previous) {
                Ok(short @ 0..LONG_PREVIOUS) => bytes.push(short),
                _ => {
                    bytes.push(LONG_PREVIOUS);
                    bytes.extend_from_slice(&(previous as u32).to_le_bytes());
                }
            }
            bytes.extend_from_slice(entry);
            previous = bytes.len() - last;
        }
        bytes.push(END);
        let total = bytes.len() as u32;
        bytes[..4].copy_from_slice(&total.to_le_bytes());
        bytes[4..8].copy_from_slice(&(last as u32).to_le_bytes());
        bytes[8..10].copy_from_slice(&(entries.len() as u16).to_le_bytes());
        bytes
    }

    fn texts(bytes: &[u8]) -> Option<Vec<String>> {
        let listpack = to_listpack(bytes)?;
        Some(listpack.as_ref().iter().map(|element| String::from_utf8(element.to_vec()).unwrap()).collect())
    }

    #[test]
    fn every_encoding_is_read() {
        let medium = [b"\x41\x2c".as_slice(), &[b'm'; 300]].concat();
        let long = [b"\x80\0\0\x40\0".as_slice(), &[b'l'; 16_384]].concat();
        let entries: [&[u8]; 11] = [
            b"\x05hello",
            b"\x0212",
            &medium,
            &long,
            b"\xc0\x00\x80",
            b"\xd0\x00\x00\x00\x80",
            b"\xe0\xff\xff\xff\xff\xff\xff\xff\x7f",
            b"\xf0\xff\xff\xff",
            b"\xf1",
            b"\xfd",
            b"\xfe\x80",
        ];
        let (medium, long) = ("m".repeat(300), "l".repeat(16_384));
        let expected = [
            "hello",
            "12",
            &medium,
            &long,
            "-32768",
            "-2147483648",
            "9223372036854775807",
            "-1",
            "0",
            "12",
            "-128",
        ];
        assert_eq!(texts(&ziplist(&entries)).unwrap(), expected);
        assert_eq!(texts(&ziplist(&[])).unwrap(), [""; 0]);
    }

    #[test]
    fn damaged_ziplists_are_refused() {
        let good = ziplist(&[b"\x05hello", b"\xf1", b"\xfe\x80"]);
        for cut in 0..good.len() {
            assert_eq!(texts(&good[..cut]), None);
            let mut resized = good[..cut].to_vec();
            if let Some(total) = resized.first_chunk_mut() {
                *total = (cut as u32).to_le_bytes();
            }
            assert_eq!(texts(&resized), None);
        }
        for index in 0..HEADER_BYTES {
            let mut bad = good.clone();
            bad[index] ^= 1;
            assert_eq!(texts(&bad), None, "header byte {index}");
        }
        for entry in [b"\xff".as_slice(), b"\xc1", b"\x90\0\0\0\x01a", b"\x3fshort", b"\x80\xff\xff\xff\xffx"]
        {
            assert_eq!(texts(&ziplist(&[entry])), None, "{entry:?}");
        }
    }
}
