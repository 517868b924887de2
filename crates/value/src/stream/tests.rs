//! Streams against what Redis does with the same calls.

use super::*;

const LIMITS: NodeLimits = NodeLimits { bytes_max: 4096, entries_max: 100 };

fn words<'a>(words: &'a [&'a [u8]]) -> impl Iterator<Item = &'a [u8]> + Clone {
    words.iter().copied()
}

fn id(ms: u64) -> StreamId {
    StreamId::new(ms, 0)
}

fn stream_of(count: u64) -> Stream {
    let mut stream = Stream::new();
    for ms in 1..=count {
        stream.entries.append(id(ms), words(&[b"field", b"12"]), LIMITS).unwrap();
    }
    stream
}

fn ids(stream: &Stream) -> Vec<u64> {
    stream.entries.range(StreamId::MIN, StreamId::MAX, Order::Ascending).map(|entry| entry.id.ms).collect()
}

fn image_of(stream: &Stream) -> Vec<u8> {
    crate::rdb::dump(CollectionRef::Stream(stream))
}

fn restored(payload: &[u8]) -> Result<Stream, RestoreError> {
    match crate::rdb::restore(payload, &Thresholds::default())? {
        crate::rdb::Restored::Collection(Collection::Stream(stream)) => Ok(stream),
        other => panic!("no stream: {other:?}"),
    }
}

#[test]
fn nodes_are_full_where_those_of_redis_are() {
    let stream = stream_of(250);
    assert_eq!((stream.entries.len(), stream.entries.node_count()), (250, 3));
    let mut bytes = Stream::new();
    for ms in 1..=10 {
        bytes.entries.append(id(ms), words(&[b"f", &[b'x'; 1500]]), LIMITS).unwrap();
    }
    assert_eq!(bytes.entries.node_count(), 5);
}

#[test]
fn entries_come_in_both_orders_with_their_fields() {
    let mut stream = stream_of(3);
    stream.entries.append(id(4), words(&[b"other", b"x", b"field", b"-5"]), LIMITS).unwrap();
    let last = stream.entries.range(StreamId::MIN, StreamId::MAX, Order::Descending).next().unwrap();
    let fields: Vec<_> = last.fields().collect();
    assert_eq!(fields[0], (Element::Bytes(b"other"), Element::Bytes(b"x")));
    assert_eq!(fields[1], (Element::Bytes(b"field"), Element::Int(-5)));
    let descending = stream.entries.range(id(2), id(3), Order::Descending).map(|entry| entry.id.ms);
    assert_eq!(descending.collect::<Vec<_>>(), [3, 2]);
    assert!(stream.entries.range(id(3), id(2), Order::Ascending).next().is_none());
}

#[test]
fn trimming_whole_nodes_leaves_what_is_not_one() {
    let mut stream = stream_of(250);
    assert_eq!(stream.entries.trim(Trim::WholeNodes(Bound::MaxLen(60), 0)), 100);
    assert_eq!(stream.entries.trim(Trim::Exact(Bound::MaxLen(60))), 90);
    assert_eq!((stream.entries.first_id(), stream.entries.node_count()), (id(191), 2));
    assert_eq!(stream.entries.trim(Trim::WholeNodes(Bound::MinId(id(201)), 5)), 0);
    assert_eq!(stream.entries.trim(Trim::WholeNodes(Bound::MinId(id(201)), 0)), 10);
    assert_eq!(stream.entries.trim(Trim::Exact(Bound::MinId(id(250)))), 49);
    assert_eq!(ids(&stream), [250]);
}

#[test]
fn deleting_the_last_entry_of_a_node_removes_the_node() {
    let mut stream = stream_of(101);
    assert!(stream.entries.delete(id(101)) && !stream.entries.delete(id(101)));
    assert_eq!((stream.entries.node_count(), stream.entries.last_id()), (1, id(101)));
    for ms in 1..=100 {
        assert!(stream.entries.delete(id(ms)));
        assert_eq!(stream.entries.first_id(), if ms == 100 { StreamId::MIN } else { id(ms + 1) });
    }
    assert_eq!((stream.entries.node_count(), stream.entries.max_deleted_id()), (0, id(101)));
}

#[test]
fn ids_that_do_not_ascend_are_refused() {
    let mut stream = stream_of(1);
    let entries = &mut stream.entries;
    let refused = Err(AppendError::IdTooSmall);
    assert_eq!(entries.append(id(1), words(&[b"a", b"b"]), LIMITS), refused);
    assert_eq!(entries.next_id(NewId::AutoSeq(1), 0), Some(StreamId::new(1, 1)));
    assert_eq!(entries.next_id(NewId::Auto, 0), Some(StreamId::new(1, 1)));
    assert_eq!(entries.next_id(NewId::Auto, 7), Some(id(7)));
    entries.set_last_id(StreamId::MAX, None, StreamId::MIN).unwrap();
    assert_eq!((entries.next_id(NewId::Auto, 7), entries.next_id(NewId::AutoSeq(u64::MAX), 0)), (None, None));
}

#[test]
fn images_read_back_and_cut_or_changed_ones_do_no_harm() {
    let mut stream = stream_of(120);
    stream.entries.delete(id(7));
    let mut group = Group::new(id(5), Some(5));
    let consumer = group.create_consumer(b"c", 99).unwrap();
    group.deliver(id(3), Pending { consumer, delivered_at: 98, deliveries: 2 });
    assert!(stream.create_group(b"g", group));
    let payload = image_of(&stream);
    let back = restored(&payload).unwrap();
    assert_eq!((image_of(&back), ids(&back)), (payload.clone(), ids(&stream)));
    let body = &payload[..payload.len() - 10];
    for cut in 0..body.len() {
        assert!(restored(&signed(&body[..cut])).is_err(), "{cut}");
    }
}

/// A payload of this body.
fn signed(body: &[u8]) -> Vec<u8> {
    let mut payload = [body, &10u16.to_le_bytes()].concat();
    let crc = crate::crc64::crc64(0, &payload);
    payload.extend_from_slice(&crc.to_le_bytes());
    payload
}

#[test]
fn radix_nodes_are_counted_as_in_redis() {
    let count = |ids: &[StreamId]| {
        let mut stream = Stream::new();
        for id in ids {
            stream
                .entries
                .append(*id, words(&[b"f", b"v"]), NodeLimits { bytes_max: 1, entries_max: 1 })
                .unwrap();
        }
        stream.entries.radix_node_count()
    };
    assert_eq!(count(&[]), 1);
    assert_eq!(count(&[id(1)]), 2);
    assert_eq!(count(&[id(1), id(2)]), 6);
    assert_eq!(count(&[id(1), StreamId::new(1, 1)]), 4);
}
