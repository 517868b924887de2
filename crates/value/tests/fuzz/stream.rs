//! Streams against a plain list of entries and plain maps of what is pending, by every operation and with
//! nodes of different sizes; and images of streams, damaged at will.

use std::collections::BTreeMap;

use value::collection::{Collection, CollectionRef, Thresholds};
use value::crc64::crc64;
use value::rdb::{RestoreError, Restored, dump, restore};
use value::stream::{AppendError, Bound, Group, NewId, NodeLimits, Order, Pending, Stream, StreamId, Trim};

use super::{Prng, fuzz};

type Words = Vec<Vec<u8>>;

#[derive(Default)]
struct Model {
    entries: Vec<(StreamId, Words)>,
    last_id: StreamId,
    max_deleted_id: StreamId,
    added: u64,
}

fn id(prng: &mut Prng) -> StreamId {
    match prng.below(30) {
        0 => prng.pick(&[StreamId::MIN, StreamId::MAX]),
        _ => StreamId::new(prng.below(12) as u64, prng.below(12) as u64),
    }
}

fn words(prng: &mut Prng) -> Words {
    let names: Words = match prng.below(3) {
        0 => vec![b"a".to_vec(), b"b".to_vec()],
        1 => vec![b"12".to_vec()],
        _ => (0..1 + prng.below(3)).map(|_| prng.bytes_of(b"ab1", 0..=2)).collect(),
    };
    let value = |prng: &mut Prng| match prng.below(16) {
        0..4 => (prng.next() as i64 >> prng.below(64)).to_string().into_bytes(),
        4 => {
            let length = prng.pick(&[63, 64, 127, 4095, 4096]);
            prng.bytes_of(b"x", length..=length)
        }
        _ => prng.bytes_of(b"abc", 0..=9),
    };
    names.into_iter().flat_map(|name| [name, value(prng)]).collect()
}

fn shown(stream: &Stream, start: StreamId, end: StreamId, order: Order) -> Vec<(StreamId, Words)> {
    let entries = stream.entries.range(start, end, order);
    let words = |fields: value::stream::Fields<'_>| {
        fields.flat_map(|(name, value)| [name.to_vec(), value.to_vec()]).collect()
    };
    entries.map(|entry| (entry.id, words(entry.fields()))).collect()
}

fn assert_same(stream: &Stream, model: &Model, prng: &mut Prng) {
    let entries = &stream.entries;
    assert_eq!(entries.len(), model.entries.len() as u64);
    assert_eq!(entries.first_id(), model.entries.first().map_or(StreamId::MIN, |(id, _)| *id));
    assert_eq!(entries.last_entry_id(), model.entries.last().map(|(id, _)| *id));
    assert_eq!((entries.last_id(), entries.max_deleted_id()), (model.last_id, model.max_deleted_id));
    assert_eq!(entries.entries_added(), model.added);
    let (start, end) = (id(prng), id(prng));
    let within: Vec<_> = model.entries.iter().filter(|(id, _)| (start..=end).contains(id)).cloned().collect();
    assert_eq!(shown(stream, start, end, Order::Ascending), within);
    let backwards: Vec<_> = within.into_iter().rev().collect();
    assert_eq!(shown(stream, start, end, Order::Descending), backwards);
}

fn append(stream: &mut Stream, model: &mut Model, limits: NodeLimits, prng: &mut Prng) {
    let asked = match prng.below(4) {
        0 => NewId::Exact(id(prng)),
        1 => NewId::AutoSeq(prng.below(12) as u64),
        _ => NewId::Auto,
    };
    let now_ms = prng.below(12) as u64;
    let words = words(prng);
    let Some(id) = stream.entries.next_id(asked, now_ms) else { return };
    let result = stream.entries.append(id, words.iter().map(Vec::as_slice), limits);
    if id <= model.last_id {
        assert_eq!(result, Err(AppendError::IdTooSmall));
        return;
    }
    assert_eq!(result, Ok(()));
    model.entries.push((id, words));
    (model.last_id, model.added) = (id, model.added + 1);
}

fn trim(stream: &mut Stream, model: &mut Model, prng: &mut Prng) {
    let bound = match prng.below(2) {
        0 => Bound::MaxLen(prng.below(30) as u64),
        _ => Bound::MinId(id(prng)),
    };
    let beyond = match bound {
        Bound::MaxLen(len) => model.entries.len().saturating_sub(len as usize),
        Bound::MinId(min) => model.entries.iter().filter(|(id, _)| *id < min).count(),
    };
    let removed = if prng.below(2) == 0 {
        let removed = stream.entries.trim(Trim::Exact(bound)) as usize;
        assert_eq!(removed, beyond);
        removed
    } else {
        let limit = prng.below(3) as u64 * 10;
        let removed = stream.entries.trim(Trim::WholeNodes(bound, limit)) as usize;
        assert!(removed <= beyond && (limit == 0 || removed <= limit as usize));
        removed
    };
    model.entries.drain(..removed);
}

fn entries_step(prng: &mut Prng) {
    let limits = NodeLimits {
        bytes_max: prng.pick(&[0, 40, 200, 4096]),
        entries_max: prng.pick(&[0, 1, 2, 3, 100, 300]),
    };
    let (mut stream, mut model) = (Stream::new(), Model::default());
    for _ in 0..prng.below(200) {
        match prng.below(8) {
            0..5 => append(&mut stream, &mut model, limits, prng),
            5 | 6 => {
                let id = match model.entries.len() {
                    0 => id(prng),
                    count => {
                        let any = prng.below(count);
                        prng.pick(&[model.entries[any].0, model.entries[0].0])
                    }
                };
                let at = model.entries.iter().position(|(other, _)| *other == id);
                assert_eq!(stream.entries.delete(id), at.is_some());
                if let Some(at) = at {
                    model.entries.remove(at);
                    model.max_deleted_id = model.max_deleted_id.max(id);
                }
            }
            _ if prng.below(4) == 0 => trim(&mut stream, &mut model, prng),
            _ => {}
        }
        assert_same(&stream, &model, prng);
    }
    let back = restored(&dump(CollectionRef::Stream(&stream))).expect("an image reads back");
    assert_same(&back, &model, prng);
}

fn restored(payload: &[u8]) -> Result<Stream, RestoreError> {
    match restore(payload, &Thresholds::default())? {
        Restored::Collection(Collection::Stream(stream)) => Ok(stream),
        other => panic!("no stream: {other:?}"),
    }
}

fn group_step(prng: &mut Prng) {
    let mut group = Group::new(StreamId::MIN, None);
    let mut model: BTreeMap<StreamId, Vec<u8>> = BTreeMap::new();
    for _ in 0..prng.below(200) {
        let (name, id) = (prng.bytes_of(b"ab", 1..=2), id(prng));
        match prng.below(8) {
            0 => {
                let owned = model.values().filter(|owner| **owner == name).count();
                let was_there = group.find_consumer(&name).is_some();
                assert_eq!(group.remove_consumer(&name), was_there.then_some(owned));
                model.retain(|_, owner| *owner != name);
            }
            1 | 2 => assert_eq!(group.acknowledge(id), model.remove(&id).is_some()),
            _ => {
                let made = group.create_consumer(&name, 7);
                let consumer = made.or_else(|| group.find_consumer(&name)).expect("made or there");
                group.deliver(id, Pending { consumer, delivered_at: 7, deliveries: 1 });
                model.insert(id, name);
            }
        }
        let pending = group.pending_from(StreamId::MIN);
        let owners = pending.map(|(id, pending)| (id, group.consumer(pending.consumer).name().to_vec()));
        assert!(owners.eq(model.iter().map(|(id, owner)| (*id, owner.clone()))));
        for (_, consumer) in group.consumers() {
            let owned = model.iter().filter(|(_, owner)| *owner == consumer.name()).map(|(id, _)| *id);
            assert!(consumer.pending_from(StreamId::MIN).eq(owned));
        }
    }
}

/// An image with some bytes changed, and a footer that fits.
fn damaged_step(prng: &mut Prng) {
    let limits = NodeLimits { bytes_max: 200, entries_max: 5 };
    let (mut stream, mut model) = (Stream::new(), Model::default());
    for _ in 0..prng.below(20) {
        append(&mut stream, &mut model, limits, prng);
    }
    let mut group = Group::new(StreamId::new(1, 1), Some(1));
    let consumer = group.create_consumer(b"c", 5).expect("the name is free");
    for (id, _) in model.entries.iter().take(3) {
        group.deliver(*id, Pending { consumer, delivered_at: 5, deliveries: 1 });
    }
    stream.create_group(b"g", group);
    let mut payload = dump(CollectionRef::Stream(&stream));
    payload.truncate(payload.len() - 8);
    let body = payload.len() - 2;
    for _ in 0..1 + prng.below(3) {
        let at = prng.below(body);
        let any = prng.next() as u8;
        payload[at] = prng.pick(&[0, 1, 2, 0x7f, 0x80, 0xc3, 0xf0, 0xf4, 0xff, any]);
    }
    payload[0] = prng.pick(&[15, 19, 19, 19, 21]);
    let crc = crc64(0, &payload);
    payload.extend_from_slice(&crc.to_le_bytes());
    let Ok(mut taken) = restored(&payload) else { return };
    // Whatever was taken has to bear every use.
    let ids: Vec<StreamId> =
        taken.entries.range(StreamId::MIN, StreamId::MAX, Order::Descending).map(|entry| entry.id).collect();
    assert_eq!(ids.len() as u64, taken.entries.len());
    shown(&taken, StreamId::MIN, StreamId::MAX, Order::Ascending);
    for (_, group) in taken.groups() {
        taken.entries.lag(group);
    }
    taken.entries.radix_node_count();
    let mut after = Model { last_id: taken.entries.last_id(), ..Model::default() };
    append(&mut taken, &mut after, limits, prng);
    taken.entries.trim(Trim::Exact(Bound::MaxLen(1)));
    assert!(ids.iter().filter(|id| taken.entries.delete(**id)).count() <= 1);
}

#[test]
fn stream_entries_are_those_of_a_plain_list() {
    fuzz(300, entries_step);
}

#[test]
fn pending_entries_are_those_of_a_plain_map() {
    fuzz(300, group_step);
}

#[test]
fn damaged_stream_images_do_no_harm() {
    fuzz(1_000, damaged_step);
}
