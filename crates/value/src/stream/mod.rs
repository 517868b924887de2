//! Streams: entries with ascending ids, and the groups of consumers that read them.
//!
//! A stream is always in its native form, also when it is empty: it stays until its key is deleted. The
//! entries are in [`entries`], the groups in [`group`]; they know nothing of each other, so that entries can
//! be read while a group changes. There is no clock here: callers bring the moment. Plain data; any thread.

mod element;
mod entries;
mod group;
mod id;
mod image;
mod node;
mod progress;
mod radix;
mod range;
mod trim;

pub use element::Element;
pub use entries::{AppendError, Entries, NodeLimits, SetIdError};
pub use group::{Consumer, ConsumerId, Group, Moment, Pending};
pub use id::{IdText, InvalidId, NewId, StreamId};
pub use image::Reads;
pub use node::{Entry, Fields};
pub use range::{Order, Range};
pub use trim::{Bound, Trim};

use std::collections::BTreeMap;

use crate::collection::{Collection, CollectionRef, Form, Thresholds, Type};
use crate::rdb::{Drain, Reader, RestoreError};

/// A stream.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    /// What was added to it.
    pub entries: Entries,
    /// In the order of the names' bytes.
    groups: BTreeMap<Box<[u8]>, Group>,
}

impl Stream {
    /// A stream without entries and groups.
    pub fn new() -> Stream {
        Stream::default()
    }

    /// How many groups there are.
    pub fn group_count(&self) -> usize {
        self.groups.len()
    }

    /// The groups, in the order of their names' bytes.
    pub fn groups(&self) -> impl Iterator<Item = (&[u8], &Group)> + '_ {
        self.groups.iter().map(|(name, group)| (&**name, group))
    }

    /// A group.
    pub fn group(&self, name: &[u8]) -> Option<&Group> {
        self.groups.get(name)
    }

    /// A group, to be changed, and the entries to be read meanwhile.
    pub fn group_mut(&mut self, name: &[u8]) -> Option<(&mut Group, &Entries)> {
        Some((self.groups.get_mut(name)?, &self.entries))
    }

    /// Makes a group. False: the name is taken.
    pub fn create_group(&mut self, name: &[u8], group: Group) -> bool {
        if self.groups.contains_key(name) {
            return false;
        }
        self.groups.insert(name.into(), group);
        true
    }

    /// Removes a group with all that is pending in it. False: there is none of this name.
    pub fn remove_group(&mut self, name: &[u8]) -> bool {
        self.groups.remove(name).is_some()
    }
}

/// What the keyspace and the codec of images ask for.
impl Stream {
    /// The RDB types that [`Stream::read_image`] reads.
    pub(crate) const IMAGE_TYPES: &'static [u8] = image::TYPES;

    /// Reads an image of the RDB type given.
    pub(crate) fn read_image(
        image_type: u8,
        image: &mut Reader<'_>,
        _thresholds: &Thresholds,
    ) -> Result<Stream, RestoreError> {
        image::read(image_type, image)
    }

    /// Appends its RDB type byte and image.
    pub(crate) fn write_image(&self, reads: Reads, out: &mut Vec<u8>, drain: Drain<'_>) {
        image::write(self, reads, out, drain);
    }

    /// The same without its entries.
    pub(crate) fn write_groups_image(&self, reads: Reads, out: &mut Vec<u8>) {
        image::write_groups(self, reads, out);
    }

    /// Bytes of memory outside the key's block, estimated from at most `samples` nodes, groups and consumers
    /// of each (0: all).
    pub fn allocated_bytes(&self, samples: usize) -> usize {
        let samples = if samples == 0 { usize::MAX } else { samples };
        let groups = self.groups.iter().map(|(name, group)| name.len() + group.allocated_bytes(samples));
        self.entries.allocated_bytes(samples) + estimate(groups, samples)
    }

    /// How many separate allocations it has, roughly.
    pub fn pieces(&self) -> usize {
        self.entries.node_count() + self.groups.values().map(Group::pieces).sum::<usize>()
    }
}

/// A sum that is estimated from the first few of its terms.
fn estimate(terms: impl ExactSizeIterator<Item = usize>, samples: usize) -> usize {
    let count = terms.len();
    let taken = count.min(samples);
    let sum: usize = terms.take(taken).sum();
    sum.checked_div(taken).unwrap_or(0) * count
}

impl Type for Stream {
    type Ref<'a> = &'a Stream;
    const DIES_EMPTY: bool = false;

    fn compact(&self) -> Option<(Form, &[u8])> {
        None
    }

    fn into_compact(self) -> Option<Vec<u8>> {
        None
    }

    fn from_compact(_form: Form, _bytes: Vec<u8>) -> Stream {
        unreachable!("a stream has no compact encoding")
    }

    fn as_ref(&self) -> &Stream {
        self
    }

    fn len(&self) -> usize {
        usize::try_from(self.entries.len()).unwrap_or(usize::MAX)
    }

    fn read(collection: CollectionRef<'_>) -> Option<&Stream> {
        match collection {
            CollectionRef::Stream(it) => Some(it),
            _ => None,
        }
    }

    fn edit(collection: &mut Collection) -> Option<&mut Stream> {
        match collection {
            Collection::Stream(it) => Some(it),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
