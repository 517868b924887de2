//! Random values, written as replies in both protocols and decoded again.

use crate::prng::Prng;
use wire::{DecodeError, Decoder, Protocol, Reply, Value, skip_reply};

const ALPHABET: &[u8] = b"+-:,#(_$*=!~>%|0123456789\r\n\r\ntf";

fn value(prng: &mut Prng, depth: usize) -> Value {
    let text = |prng: &mut Prng| {
        let len = prng.length().min(2000);
        prng.bytes(len)
    };
    let len = if prng.one_in(20) { 9 + prng.below(4) } else { prng.below(4) };
    let pairs =
        |prng: &mut Prng| (0..len).map(|_| (value(prng, depth + 1), value(prng, depth + 1))).collect();
    let values = |prng: &mut Prng| (0..len).map(|_| value(prng, depth + 1)).collect();
    match prng.below(if depth < 4 { 15 } else { 10 }) {
        0 => Value::Simple(b"OK".to_vec()),
        1 => Value::Error(b"ERR some text".to_vec()),
        2 => Value::Int(prng.next() as i64 >> prng.below(64)),
        3 => Value::Bulk(text(prng)),
        4 => Value::Null,
        5 => Value::NullArray,
        6 => Value::Double(double(prng)),
        7 => Value::Bool(prng.one_in(2)),
        8 => Value::Verbatim(*b"txt", text(prng)),
        9 => Value::BigNumber(b"123456789012345678901234567890".to_vec()),
        10 => Value::Array(values(prng)),
        11 => Value::Map(pairs(prng)),
        12 => Value::Set(values(prng)),
        13 => Value::Push(values(prng)),
        _ => Value::Attribute(
            vec![(value(prng, depth + 1), value(prng, depth + 1))],
            Box::new(value(prng, depth + 1)),
        ),
    }
}

fn double(prng: &mut Prng) -> f64 {
    let value = match prng.below(3) {
        0 => f64::from_bits(prng.next()),
        1 => prng.below(100_000) as f64 / 100.0,
        _ => *prng.pick(&[0.0, -0.0, 1e17, 4e18, -1e300, f64::INFINITY, f64::NEG_INFINITY]),
    };
    if value.is_nan() { 0.5 } else { value }
}

fn write(value: &Value, reply: &mut Reply<'_>, prng: &mut Prng) {
    let deferred = prng.one_in(2);
    match value {
        Value::Simple(text) if text == b"OK" && deferred => reply.ok(),
        Value::Simple(text) => reply.simple(text),
        Value::Error(line) => reply.error(line),
        Value::Int(int) => reply.int(*int),
        Value::Bulk(bytes) => reply.bulk(bytes),
        Value::Null => reply.null(),
        Value::NullArray => reply.null_array(),
        Value::Double(double) => reply.double(*double),
        Value::Bool(bool) => reply.bool(*bool),
        Value::Verbatim(_, text) => reply.verbatim("txt", text),
        Value::BigNumber(digits) => reply.big_number(digits),
        Value::Array(values) if deferred => {
            let array = reply.deferred_array();
            write_all(values, reply, prng);
            reply.end(array, values.len());
        }
        Value::Array(values) => {
            reply.array(values.len());
            write_all(values, reply, prng);
        }
        Value::Set(values) if deferred => {
            let set = reply.deferred_set();
            write_all(values, reply, prng);
            reply.end(set, values.len());
        }
        Value::Set(values) => {
            reply.set(values.len());
            write_all(values, reply, prng);
        }
        Value::Push(values) => {
            reply.push(values.len());
            write_all(values, reply, prng);
        }
        Value::Map(pairs) if deferred => {
            let map = reply.deferred_map();
            write_pairs(pairs, reply, prng);
            reply.end(map, pairs.len());
        }
        Value::Map(pairs) => {
            reply.map(pairs.len());
            write_pairs(pairs, reply, prng);
        }
        Value::Attribute(pairs, inner) => {
            reply.attribute(pairs.len(), |reply| write_pairs(pairs, reply, prng));
            write(inner, reply, prng);
        }
    }
}

fn write_all(values: &[Value], reply: &mut Reply<'_>, prng: &mut Prng) {
    for value in values {
        let mark = reply.mark();
        reply.error("ERR taken back");
        reply.rollback(mark);
        write(value, reply, prng);
    }
}

fn write_pairs(pairs: &[(Value, Value)], reply: &mut Reply<'_>, prng: &mut Prng) {
    for (key, value) in pairs {
        write(key, reply, prng);
        write(value, reply, prng);
    }
}

/// What a client in this protocol sees of a value.
fn seen(value: &Value, protocol: Protocol) -> Value {
    let all = |values: &[Value]| values.iter().map(|value| seen(value, protocol)).collect::<Vec<_>>();
    let flat = |pairs: &[(Value, Value)]| {
        pairs.iter().flat_map(|(key, value)| [seen(key, protocol), seen(value, protocol)]).collect()
    };
    let both = |pairs: &[(Value, Value)]| {
        pairs.iter().map(|(key, value)| (seen(key, protocol), seen(value, protocol))).collect()
    };
    match (protocol, value) {
        (_, Value::Array(values)) => Value::Array(all(values)),
        (Protocol::Resp2, Value::Set(values) | Value::Push(values)) => Value::Array(all(values)),
        (Protocol::Resp2, Value::Map(pairs)) => Value::Array(flat(pairs)),
        (Protocol::Resp2, Value::Bool(bool)) => Value::Int(i64::from(*bool)),
        (Protocol::Resp2, Value::Verbatim(_, text) | Value::BigNumber(text)) => Value::Bulk(text.clone()),
        (Protocol::Resp2, Value::Attribute(_, inner)) => seen(inner, protocol),
        (Protocol::Resp2, Value::Double(double)) => {
            let mut text = Vec::new();
            wire::number::write_double(&mut text, *double);
            Value::Bulk(text)
        }
        (Protocol::Resp3, Value::NullArray) => Value::Null,
        (Protocol::Resp3, Value::Set(values)) => Value::Set(all(values)),
        (Protocol::Resp3, Value::Push(values)) => Value::Push(all(values)),
        (Protocol::Resp3, Value::Map(pairs)) => Value::Map(both(pairs)),
        (Protocol::Resp3, Value::Attribute(pairs, inner)) => {
            Value::Attribute(both(pairs), Box::new(seen(inner, protocol)))
        }
        _ => value.clone(),
    }
}

/// The values in `stream` to a decoder that gets it cut, and the error behind them.
fn decoded(stream: &[u8], cuts: &[usize]) -> (Vec<Value>, usize, Option<DecodeError>) {
    let mut decoder = Decoder::new();
    let (mut values, mut start, mut taken) = (vec![], 0, 0);
    for &cut in cuts {
        decoder.feed(&stream[start..cut]);
        start = cut;
        loop {
            match decoder.decode() {
                Ok(Some(value)) => values.push(value),
                Ok(None) => break,
                Err(error) => return (values, taken, Some(error)),
            }
            taken = cut - decoder.buffered_bytes();
        }
    }
    (values, taken, None)
}

pub fn written_values_come_back(prng: &mut Prng) {
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        let values: Vec<Value> = (0..1 + prng.below(5)).map(|_| value(prng, 0)).collect();
        let mut stream = Vec::new();
        let mut ends = Vec::new();
        for value in &values {
            write(value, &mut Reply::new(&mut stream, protocol), prng);
            ends.push(stream.len());
        }
        let expected: Vec<Value> = values.iter().map(|value| seen(value, protocol)).collect();
        let cuts = prng.cuts(stream.len());
        assert_eq!(decoded(&stream, &cuts), (expected, stream.len(), None));
        let mut at = 0;
        for end in ends {
            assert_eq!(skip_reply(&stream[at..]), Ok(Some(end - at)));
            assert_eq!(skip_reply(&stream[at..end - 1]), Ok(None));
            at = end;
        }
    }
}

pub fn mutated_bytes_are_safe(prng: &mut Prng) {
    let mut stream = Vec::new();
    for _ in 0..1 + prng.below(3) {
        let value = value(prng, 1);
        write(&value, &mut Reply::new(&mut stream, Protocol::Resp3), prng);
    }
    prng.mutate(&mut stream, ALPHABET);
    let whole = decoded(&stream, &[stream.len()]);
    let cuts = prng.cuts(stream.len());
    // Compared as text, because not-a-number does not equal itself.
    assert_eq!(format!("{:?}", decoded(&stream, &cuts)), format!("{whole:?}"), "{}", stream.escape_ascii());
    let mut at = 0;
    for _ in &whole.0 {
        let used = skip_reply(&stream[at..]).expect("it was decoded").expect("it was complete");
        assert!(used > 0);
        at += used;
    }
    assert!(at <= stream.len());
    if whole.2.is_none() {
        assert_eq!(skip_reply(&stream[at..]).map(|end| end.is_none()), Ok(true));
    }
}
