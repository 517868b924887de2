//! Streams as RDB images: nodes as they are, then the counters, then the groups.
//!
//! Three types are read: that of Redis 5 (no counters), 7.0 and 7.2 (when a consumer was last active). For others the second is
//! written, which Redis 7.0 and all later ones read, or the first where older ones are to; for ourselves the third.
//!
//! 1. No image makes reading panic, whatever it holds: nodes are gone through element by element before
//!    they are taken, and ids, counts and owners have to agree.
//! 2. Memory taken is bounded by the image's length.

use super::Stream;
use super::element::{Element, read_checked};
use super::entries::Entries;
use super::group::{Group, Moment, Pending};
use super::id::StreamId;
use super::node::{DELETED, END, HEADER_BYTES, Node, SAME_FIELDS};
use crate::limits::LISTPACK_BYTES_MAX;
use crate::rdb::{Drain, Reader, RestoreError, keep, write_length, write_string};

/// Of Redis 5: without counters.
const TYPE_LISTPACKS: u8 = 15;
/// Of Redis 7.0: with counters.
const TYPE_LISTPACKS_2: u8 = 19;
/// Of Redis 7.2: with the moments at which consumers were last active.
const TYPE_LISTPACKS_3: u8 = 21;

/// The RDB types that are read.
pub(super) const TYPES: &[u8] = &[TYPE_LISTPACKS, TYPE_LISTPACKS_2, TYPE_LISTPACKS_3];

/// Stands for "none" among moments and counts.
const NONE: i64 = -1;

type Result<T> = std::result::Result<T, RestoreError>;

/// Who is to read an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// Redis 5.0 and later ones: values in the types that were there before listpacks, streams without counters.
    Redis50,
    /// Redis 7.0 and later ones.
    Redis70,
    /// Redis 7.2 and later ones.
    Redis72,
}

/// Appends type byte and image.
pub(super) fn write(stream: &Stream, reads: Reads, out: &mut Vec<u8>, drain: Drain<'_>) {
    write_with(&stream.entries, stream, reads, out, drain);
}

/// The same of a stream with these groups to which nothing was added yet.
pub(super) fn write_groups(stream: &Stream, reads: Reads, out: &mut Vec<u8>) {
    write_with(&Entries::default(), stream, reads, out, &mut keep);
}

fn write_with(entries: &Entries, stream: &Stream, reads: Reads, out: &mut Vec<u8>, drain: Drain<'_>) {
    out.push(match reads {
        Reads::Redis50 => TYPE_LISTPACKS,
        Reads::Redis70 => TYPE_LISTPACKS_2,
        Reads::Redis72 => TYPE_LISTPACKS_3,
    });
    write_length(out, entries.nodes.len() as u64);
    for (id, node) in &entries.nodes {
        write_string(out, &id.to_bytes());
        write_string(out, node.as_bytes());
        drain(out);
    }
    write_length(out, entries.length);
    write_id(out, entries.last_id);
    if reads != Reads::Redis50 {
        write_id(out, entries.first_id);
        write_id(out, entries.max_deleted_id);
        write_length(out, entries.entries_added);
    }
    write_length(out, stream.group_count() as u64);
    for (name, group) in stream.groups() {
        write_string(out, name);
        write_group(out, reads, group);
        drain(out);
    }
}

fn write_id(out: &mut Vec<u8>, id: StreamId) {
    write_length(out, id.ms);
    write_length(out, id.seq);
}

fn write_group(out: &mut Vec<u8>, reads: Reads, group: &Group) {
    write_id(out, group.last_id);
    if reads != Reads::Redis50 {
        write_length(out, group.entries_read.unwrap_or(NONE) as u64);
    }
    write_length(out, group.pending_count() as u64);
    for (id, pending) in group.pending_from(StreamId::MIN) {
        out.extend_from_slice(&id.to_bytes());
        out.extend_from_slice(&pending.delivered_at.to_le_bytes());
        write_length(out, pending.deliveries);
    }
    write_length(out, group.consumer_count() as u64);
    for (_, consumer) in group.consumers() {
        write_string(out, consumer.name());
        out.extend_from_slice(&consumer.seen_at.to_le_bytes());
        if reads == Reads::Redis72 {
            out.extend_from_slice(&consumer.active_at.unwrap_or(NONE).to_le_bytes());
        }
        write_length(out, consumer.pending_count() as u64);
        for id in consumer.pending_from(StreamId::MIN) {
            out.extend_from_slice(&id.to_bytes());
        }
    }
}

/// Reads an image of one of [`TYPES`].
pub(super) fn read(image_type: u8, image: &mut Reader<'_>) -> Result<Stream> {
    let mut stream = Stream { entries: read_entries(image_type, image)?, ..Stream::default() };
    for _ in 0..image.length()? {
        let name = image.string()?;
        let group = read_group(image_type, image, &stream.entries)?;
        check(stream.create_group(&name, group))?;
    }
    Ok(stream)
}

fn check(holds: bool) -> Result<()> {
    if holds { Ok(()) } else { Err(RestoreError::BadFormat) }
}

fn read_entries(image_type: u8, image: &mut Reader<'_>) -> Result<Entries> {
    let mut entries = Entries::default();
    let mut live = 0u64;
    let mut highest: Option<StreamId> = None;
    for _ in 0..image.length()? {
        let id = image.string()?.try_into().map_err(|_| RestoreError::BadFormat)?;
        let id = StreamId::from_bytes(id);
        let bytes = image.string()?;
        check(highest.is_none_or(|highest| highest < id))?;
        let checked = check_node(&bytes, id).ok_or(RestoreError::BadFormat)?;
        highest = Some(checked.last_id);
        live += checked.live;
        entries.nodes.insert(id, Node::from_checked(bytes));
    }
    entries.length = image.length()?;
    check(entries.length == live)?;
    entries.last_id = read_id(image)?;
    check(highest.is_none_or(|highest| highest <= entries.last_id))?;
    entries.find_first();
    entries.entries_added = entries.length;
    if image_type != TYPE_LISTPACKS {
        // The first id was found above; a wrong one would only spoil the counts of groups.
        read_id(image)?;
        entries.max_deleted_id = read_id(image)?;
        entries.entries_added = image.length()?;
    }
    Ok(entries)
}

fn read_id(image: &mut Reader<'_>) -> Result<StreamId> {
    Ok(StreamId::new(image.length()?, image.length()?))
}

fn read_raw<const N: usize>(image: &mut Reader<'_>) -> Result<[u8; N]> {
    let mut raw = [0; N];
    for byte in &mut raw {
        *byte = image.byte()?;
    }
    Ok(raw)
}

fn read_raw_id(image: &mut Reader<'_>) -> Result<StreamId> {
    read_raw(image).map(StreamId::from_bytes)
}

fn read_moment(image: &mut Reader<'_>) -> Result<Moment> {
    read_raw(image).map(Moment::from_le_bytes)
}

fn read_group(image_type: u8, image: &mut Reader<'_>, entries: &Entries) -> Result<Group> {
    let last_id = read_id(image)?;
    let entries_read = match image_type {
        TYPE_LISTPACKS => entries.number_of(last_id),
        _ => Some(image.length()? as i64).filter(|read| *read != NONE),
    };
    let mut group = Group::new(last_id, entries_read);
    let mut deliveries = Vec::new();
    for _ in 0..image.length()? {
        deliveries.push((read_raw_id(image)?, read_moment(image)?, image.length()?));
    }
    check(deliveries.is_sorted_by(|a, b| a.0 < b.0))?;
    let mut owned = 0;
    for _ in 0..image.length()? {
        let name = image.string()?;
        let seen_at = read_moment(image)?;
        let consumer = group.create_consumer(&name, seen_at).ok_or(RestoreError::BadFormat)?;
        let active_at = match image_type {
            TYPE_LISTPACKS_3 => read_moment(image)?,
            _ => seen_at,
        };
        group.consumer_mut(consumer).active_at = Some(active_at).filter(|at| *at != NONE);
        for _ in 0..image.length()? {
            let id = read_raw_id(image)?;
            let at = deliveries.binary_search_by_key(&id, |(id, ..)| *id);
            let (_, delivered_at, deliveries) = deliveries[at.map_err(|_| RestoreError::BadFormat)?];
            check(group.pending(id).is_none())?;
            group.deliver(id, Pending { consumer, delivered_at, deliveries });
            owned += 1;
        }
    }
    // What is pending is pending with somebody.
    check(owned == deliveries.len())?;
    Ok(group)
}

/// What a node was found to hold.
struct Checked {
    live: u64,
    last_id: StreamId,
}

/// Goes through a node of an image. None: it is not well formed.
fn check_node(bytes: &[u8], node_id: StreamId) -> Option<Checked> {
    let length = u32::from_le_bytes(*bytes.first_chunk()?);
    let end = bytes.len().checked_sub(1)?;
    // One longer than a node may get would only fail much later.
    let is_framed = length as usize == bytes.len() && bytes[end] == END && end >= HEADER_BYTES;
    if !is_framed || bytes.len() > 2 * LISTPACK_BYTES_MAX {
        return None;
    }
    let mut walk = NodeCheck { bytes: &bytes[..end], at: HEADER_BYTES, elements: 0 };
    let (live, deleted) = (walk.count()?, walk.count()?);
    let names = walk.count()?;
    walk.skip(names)?;
    (walk.int()? == 0).then_some(())?;
    let (mut found_live, mut found_deleted) = (0, 0);
    let mut last_id: Option<StreamId> = None;
    while walk.at < end {
        let (id, is_deleted) = walk.entry(node_id, names)?;
        let is_above = last_id.map_or(id == node_id, |last| last < id);
        is_above.then_some(())?;
        last_id = Some(id);
        *(if is_deleted { &mut found_deleted } else { &mut found_live }) += 1;
    }
    let counted = u16::from_le_bytes([bytes[4], bytes[5]]);
    let is_counted = counted == u16::MAX || u64::from(counted) == walk.elements;
    let agrees = found_live == live && found_deleted == deleted && is_counted;
    Some(Checked { live, last_id: last_id.filter(|_| agrees)? })
}

/// A walk through the elements of a node that may be damaged.
struct NodeCheck<'a> {
    bytes: &'a [u8],
    at: usize,
    elements: u64,
}

impl NodeCheck<'_> {
    fn int(&mut self) -> Option<i64> {
        let (element, next) = read_checked(self.bytes, self.at)?;
        (self.at, self.elements) = (next, self.elements + 1);
        match element {
            Element::Int(number) => Some(number),
            Element::Bytes(_) => None,
        }
    }

    fn count(&mut self) -> Option<u64> {
        self.int().and_then(|number| u64::try_from(number).ok())
    }

    fn skip(&mut self, count: u64) -> Option<()> {
        for _ in 0..count {
            let (_, next) = read_checked(self.bytes, self.at)?;
            (self.at, self.elements) = (next, self.elements + 1);
        }
        Some(())
    }

    fn entry(&mut self, node_id: StreamId, names: u64) -> Option<(StreamId, bool)> {
        // Flags are marked in place, so they have to be one byte that holds nothing else.
        let flags = *self.bytes.get(self.at).filter(|flags| **flags <= DELETED | SAME_FIELDS)?;
        self.skip(1)?;
        let before = self.elements - 1;
        let ms = node_id.ms.wrapping_add(self.int()? as u64);
        let seq = node_id.seq.wrapping_add(self.int()? as u64);
        if flags & SAME_FIELDS != 0 {
            self.skip(names)?;
        } else {
            let fields = self.count()?;
            self.skip(fields.checked_mul(2)?)?;
        }
        let elements = self.elements - before;
        (self.count()? == elements).then_some((StreamId::new(ms, seq), flags & DELETED != 0))
    }
}
