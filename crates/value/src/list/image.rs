//! The image of a list in dumps and RDB files.
//!
//! A list is written as its nodes, each with how it is to be read; a compact one is one node. Lists of
//! older versions (a sequence of texts, one ziplist, a sequence of ziplists) are read too. Pure, any thread.
//!
//! 1. What is written is byte for byte what Redis 7.2 writes for the same nodes.
//! 2. No bytes make reading panic, or allocate more than they can hold.

use super::fill::{Fill, Room};
use super::node::{End, Node};
use super::{List, ListRef, Quicklist};
use crate::collection::Thresholds;
use crate::listpack::Listpack;
use crate::number::IntBuffer;
use crate::rdb::{Drain, Reader, RestoreError, write_length, write_string};
use crate::ziplist;

const TYPE_TEXTS: u8 = 1;
const TYPE_ZIPLIST: u8 = 10;
const TYPE_ZIPLISTS: u8 = 14;
const TYPE_NODES: u8 = 18;

const NODE_PLAIN: u64 = 1;
const NODE_PACKED: u64 = 2;

impl ListRef<'_> {
    /// Appends the type's byte and the image.
    pub(crate) fn write_image(self, out: &mut Vec<u8>, drain: Drain<'_>) {
        out.push(TYPE_NODES);
        match self {
            Self::Packed(listpack) => {
                write_length(out, 1);
                write_length(out, NODE_PACKED);
                write_string(out, listpack.bytes());
            }
            Self::Quicklist(quicklist) => {
                write_length(out, quicklist.nodes() as u64);
                for node in quicklist.rope.iter() {
                    write_length(out, if node.is_plain() { NODE_PLAIN } else { NODE_PACKED });
                    write_string(out, node.bytes());
                    drain(out);
                }
            }
        }
    }

    /// The same as any version reads it: the texts.
    pub(crate) fn write_plain_image(self, out: &mut Vec<u8>, drain: Drain<'_>) {
        out.push(TYPE_TEXTS);
        write_length(out, self.len() as u64);
        let digits = &mut IntBuffer::new();
        for element in self.iter() {
            write_string(out, element.bytes(digits));
            drain(out);
        }
    }
}

impl List {
    /// The types that [`List::read_image`] reads.
    pub(crate) const IMAGE_TYPES: &'static [u8] = &[TYPE_TEXTS, TYPE_ZIPLIST, TYPE_ZIPLISTS, TYPE_NODES];

    /// Reads the image that follows a type's byte. An empty list is refused.
    pub(crate) fn read_image(
        image_type: u8,
        image: &mut Reader<'_>,
        thresholds: &Thresholds,
    ) -> Result<Self, RestoreError> {
        let fill = Fill::of(thresholds);
        let mut quicklist = Quicklist::new(fill);
        if image_type == TYPE_ZIPLIST {
            append_texts(&mut quicklist, &old_node(image)?);
        } else {
            for _ in 0..image.length()? {
                match image_type {
                    TYPE_TEXTS => quicklist.push(&image.string()?, End::Tail),
                    TYPE_ZIPLISTS => quicklist.append_listpack(old_node(image)?),
                    TYPE_NODES => read_node(&mut quicklist, image)?,
                    _ => return Err(RestoreError::BadFormat),
                }
            }
        }
        if quicklist.is_empty() {
            return Err(RestoreError::BadFormat);
        }
        let mut list = Self::Quicklist(quicklist);
        // Redis forgets to look whether what was one ziplist is a compact list.
        if image_type != TYPE_ZIPLIST {
            list.settle(fill, Room::Whole);
        }
        Ok(list)
    }
}

fn read_node(quicklist: &mut Quicklist, body: &mut Reader<'_>) -> Result<(), RestoreError> {
    let container = body.length()?;
    let bytes = body.string()?;
    match container {
        NODE_PLAIN if !bytes.is_empty() => quicklist.append(Node::plain(bytes)),
        NODE_PACKED => {
            let listpack = Listpack::validated(bytes).ok_or(RestoreError::BadFormat)?;
            quicklist.append_listpack(listpack);
        }
        _ => return Err(RestoreError::BadFormat),
    }
    Ok(())
}

fn old_node(body: &mut Reader<'_>) -> Result<Listpack, RestoreError> {
    ziplist::to_listpack(&body.string()?).ok_or(RestoreError::BadFormat)
}

fn append_texts(quicklist: &mut Quicklist, listpack: &Listpack) {
    let mut digits = crate::number::IntBuffer::new();
    listpack.as_ref().iter().for_each(|element| quicklist.push(element.bytes(&mut digits), End::Tail));
}
