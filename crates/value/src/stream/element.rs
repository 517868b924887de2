//! Elements of a node's listpack, written at its end and read at an offset.
//!
//! An entry is a dozen elements that are added together. So a node writes them straight behind each other
//! and sets the listpack's header once, where the general listpack does it for each. The encoding itself is
//! the listpack's. Pure functions over bytes.

pub use crate::listpack::Element;
use crate::listpack::entry::{Encoded, Extent, entry_before};

/// Appends a text, as an integer if it is one.
#[inline]
pub(super) fn write_text(out: &mut Vec<u8>, text: &[u8]) {
    write(out, Element::of(text));
}

/// Appends an integer.
#[inline]
pub(super) fn write_int(out: &mut Vec<u8>, number: i64) {
    write(out, Element::Int(number));
}

#[inline]
fn write(out: &mut Vec<u8>, element: Element<'_>) {
    let encoded = Encoded::of(element);
    let start = out.len();
    out.resize(start + encoded.bytes(), 0);
    encoded.write(&mut out[start..]);
}

/// The element at an offset and the offset of the next one.
#[inline]
pub(super) fn read(bytes: &[u8], at: usize) -> (Element<'_>, usize) {
    let extent = Extent::of(&bytes[at..]);
    (extent.element(&bytes[at..]), at + extent.entry())
}

/// The offset of the element behind the one at an offset.
#[inline]
pub(super) fn next(bytes: &[u8], at: usize) -> usize {
    at + Extent::of(&bytes[at..]).entry()
}

/// As [`read`], of bytes that may be anything.
pub(super) fn read_checked(bytes: &[u8], at: usize) -> Option<(Element<'_>, usize)> {
    let rest = bytes.get(at..)?;
    let extent = Extent::checked(rest)?;
    Some((extent.element(rest), at + extent.entry()))
}

/// The offset of the element that ends before an offset.
#[inline]
pub(super) fn previous(bytes: &[u8], at: usize) -> usize {
    at - entry_before(&bytes[..at])
}
