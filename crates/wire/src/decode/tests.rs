use super::*;

fn decode(bytes: &[u8]) -> Result<Option<Value>, DecodeError> {
    let mut decoder = Decoder::new();
    decoder.feed(bytes);
    decoder.decode()
}

fn bulk(text: &str) -> Value {
    Value::Bulk(text.into())
}

#[test]
fn every_type_is_decoded() {
    let cases: &[(&[u8], Value)] = &[
        (b"+OK\r\n", Value::Simple(b"OK".to_vec())),
        (b"-ERR no\r\n", Value::Error(b"ERR no".to_vec())),
        (b"!6\r\nERR no\r\n", Value::Error(b"ERR no".to_vec())),
        (b":-12\r\n", Value::Int(-12)),
        (b":+12\r\n", Value::Int(12)),
        (b"$4\r\na\r\nb\r\n", bulk("a\r\nb")),
        (b"$0\r\n\r\n", bulk("")),
        (b"$-1\r\n", Value::Null),
        (b"_\r\n", Value::Null),
        (b"*-1\r\n", Value::NullArray),
        (b"*0\r\n", Value::Array(vec![])),
        (b"*2\r\n*1\r\n:1\r\n~1\r\n:2\r\n", {
            Value::Array(vec![Value::Array(vec![Value::Int(1)]), Value::Set(vec![Value::Int(2)])])
        }),
        (b"%1\r\n$1\r\nk\r\n*0\r\n", Value::Map(vec![(bulk("k"), Value::Array(vec![]))])),
        (b"%0\r\n", Value::Map(vec![])),
        (b">1\r\n+x\r\n", Value::Push(vec![Value::Simple(b"x".to_vec())])),
        (b",1.5e-7\r\n", Value::Double(1.5e-7)),
        (b",-inf\r\n", Value::Double(f64::NEG_INFINITY)),
        (b"#t\r\n", Value::Bool(true)),
        (b"#f\r\n", Value::Bool(false)),
        (b"=7\r\ntxt:a\nb\r\n", Value::Verbatim(*b"txt", b"a\nb".to_vec())),
        (b"(123456789012345678901\r\n", Value::BigNumber(b"123456789012345678901".to_vec())),
        (b"|0\r\n:1\r\n", Value::Int(1)),
        (b"*1\r\n|1\r\n+k\r\n:9\r\n:1\r\n", {
            let attributes = vec![(Value::Simple(b"k".to_vec()), Value::Int(9))];
            Value::Array(vec![Value::Attribute(attributes, Box::new(Value::Int(1)))])
        }),
    ];
    for (bytes, value) in cases {
        assert_eq!(decode(bytes).as_ref(), Ok(&Some(value.clone())), "{}", bytes.escape_ascii());
        assert_eq!(skip_reply(bytes), Ok(Some(bytes.len())), "{}", bytes.escape_ascii());
        for cut in 0..bytes.len() {
            assert_eq!(decode(&bytes[..cut]), Ok(None));
            assert_eq!(skip_reply(&bytes[..cut]), Ok(None));
        }
    }
}

#[test]
fn malformed_replies_are_refused() {
    let deep = b"*1\r\n".repeat(REPLY_DEPTH_MAX + 1);
    let cases: &[(&[u8], DecodeError)] = &[
        (b"x", DecodeError::UnknownType(b'x')),
        (b"\r\n", DecodeError::UnknownType(b'\r')),
        (b":1\n", DecodeError::MalformedLine),
        (b":x\r\n", DecodeError::MalformedLine),
        (b"$-2\r\n", DecodeError::MalformedLine),
        (b"*99999999999999\r\n", DecodeError::MalformedLine),
        (b"%-1\r\n", DecodeError::MalformedLine),
        (b"$9223372036854775807\r\n", DecodeError::BulkTooLong),
        (b"$1\r\nabc", DecodeError::MissingLineEnd),
        (b"#x\r\n", DecodeError::MalformedLine),
        (b"_x\r\n", DecodeError::MalformedLine),
        (b",abc\r\n", DecodeError::MalformedLine),
        (b"=3\r\nabc\r\n", DecodeError::MalformedLine),
        (&deep, DecodeError::TooDeep),
    ];
    for (bytes, error) in cases {
        assert_eq!(decode(bytes), Err(*error), "{}", bytes.escape_ascii());
    }
    assert_eq!(decode(&vec![b'+'; REPLY_LINE_BYTES_MAX]), Err(DecodeError::LineTooLong));
}

#[test]
fn replies_follow_each_other_and_used_bytes_are_dropped() {
    let mut decoder = Decoder::new();
    for round in 0..10_000 {
        decoder.feed(b"+OK\r\n:1\r\n$5\r\nhe");
        assert_eq!(decoder.decode(), Ok(Some(Value::Simple(b"OK".to_vec()))));
        assert_eq!(decoder.decode(), Ok(Some(Value::Int(1))));
        assert_eq!(decoder.decode(), Ok(None));
        decoder.feed(b"llo\r\n");
        assert_eq!(decoder.decode(), Ok(Some(bulk("hello"))));
        assert_eq!((decoder.decode(), decoder.buffered_bytes()), (Ok(None), 0), "{round}");
    }
    assert!(decoder.buf.capacity() < 1000);
}

/// With quadratic work this takes minutes.
#[test]
fn large_replies_in_small_pieces_cost_linear_time() {
    let mut bytes = b"*400000\r\n".to_vec();
    for _ in 0..400_000 {
        bytes.extend_from_slice(b"$1\r\na\r\n");
    }
    let mut decoder = Decoder::new();
    let mut values = Vec::new();
    for piece in bytes.chunks(100) {
        decoder.feed(piece);
        values.extend(decoder.decode().unwrap());
    }
    assert_eq!(values, [Value::Array(vec![bulk("a"); 400_000])]);
}
