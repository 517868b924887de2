//! Streams of requests, good and bad, and the comparison of the parser with the model.

use crate::model::{self, Fault, Meaning};
use crate::prng::Prng;
use wire::{Authenticated, Batch, Limits, Parser, encode_request, quote};

const ALPHABET: &[u8] = b"**$$0123456789-\r\n\r\n\"' \\x\0\x0b";

pub fn limits(prng: &mut Prng) -> Limits {
    let bulk_bytes_max = *prng.pick(&[5, 99, 1000, 70_002, 512 << 20, 512 << 20, u64::MAX]);
    let authenticated = if prng.one_in(3) { Authenticated::No } else { Authenticated::Yes };
    Limits { bulk_bytes_max, authenticated }
}

/// The meaning of `stream` to a parser that gets it up to each of `cuts` in turn.
fn parsed(stream: &[u8], cuts: &[usize], limits: &Limits, requests_max: usize) -> Meaning {
    let (mut parser, mut batch) = (Parser::new(), Batch::new());
    let mut meaning = Meaning { requests: vec![], taken: 0, error: None };
    for &cut in cuts {
        loop {
            let buf = &stream[meaning.taken..cut];
            batch.clear();
            let taken = parser.parse(buf, limits, &mut batch, requests_max);
            assert!(batch.len() <= requests_max);
            for request in batch.iter(buf) {
                assert!(!request.is_empty());
                meaning.requests.push(request.iter().map(<[u8]>::to_vec).collect());
            }
            let ends: Vec<usize> = (0..batch.len()).map(|index| batch.bytes_end(index)).collect();
            assert!(ends.is_sorted_by(|a, b| a < b));
            match taken {
                Ok(0) => break,
                Ok(taken) => {
                    assert!(taken <= buf.len());
                    assert!(ends.last().is_none_or(|&end| end <= taken));
                    meaning.taken += taken;
                }
                Err(error) => {
                    meaning.error = Some(error.line());
                    return meaning;
                }
            }
        }
        let wanted = parser.bytes_wanted();
        assert!(
            wanted.is_none_or(|wanted| wanted > cut - meaning.taken),
            "it wants {wanted:?} bytes and has more"
        );
    }
    meaning
}

/// What the parser and the model do not agree on, if anything.
pub fn compare(prng: &mut Prng, stream: &[u8], limits: &Limits, fault: Fault) -> Result<(), String> {
    let expected = model::meaning(stream, limits, fault);
    let requests_max = *prng.pick(&[1, 2, 3, usize::MAX]);
    let mut ways = vec![("whole", vec![stream.len()]), ("in pieces", prng.cuts(stream.len()))];
    if stream.len() < 2000 {
        ways.push(("byte by byte", (0..=stream.len()).collect()));
    }
    for (way, cuts) in ways {
        let mut found = parsed(stream, &cuts, limits, requests_max);
        if found.error.is_some() {
            // Where an error stands does not matter: the session closes.
            found.taken = expected.taken;
        }
        if found != expected {
            return Err(format!(
                "{way}, {limits:?}, {fault:?}\nstream: {}\nmodel:  {}\nparser: {}",
                shorten(stream.escape_ascii().to_string()),
                shorten(format!("{expected:?}")),
                shorten(format!("{found:?}"))
            ));
        }
    }
    Ok(())
}

fn shorten(mut text: String) -> String {
    text.truncate(2000);
    text
}

/// Any bytes: requests, perhaps mutated, or noise made of the bytes that matter.
pub fn stream(prng: &mut Prng) -> Vec<u8> {
    let mut stream = Vec::new();
    for _ in 0..1 + prng.below(6) {
        match prng.below(12) {
            0..=4 => array_request(prng, &mut stream),
            5..=7 => inline_line(prng, &mut stream),
            8 => stream.extend_from_slice(
                prng.pick::<&[u8]>(&[b"*0\r\n", b"*-1\r\n", b"\r\n", b"*-0\r\n", b"*00\r\n"]),
            ),
            9 => long_line(prng, &mut stream),
            10 => declared_sizes(prng, &mut stream),
            _ => stream.extend((0..prng.below(40)).map(|_| *prng.pick(ALPHABET))),
        }
    }
    if prng.one_in(2) {
        prng.mutate(&mut stream, ALPHABET);
    }
    stream
}

fn array_request(prng: &mut Prng, stream: &mut Vec<u8>) {
    let count = if prng.one_in(8) { 9 + prng.below(110) } else { 1 + prng.below(5) };
    let args: Vec<Vec<u8>> = (0..count)
        .map(|_| {
            let len = if count > 5 { prng.below(12) } else { prng.length() };
            prng.bytes(len)
        })
        .collect();
    encode_request(stream, &args.iter().map(Vec::as_slice).collect::<Vec<_>>());
}

fn inline_line(prng: &mut Prng, stream: &mut Vec<u8>) {
    const PIECES: &[&[u8]] = &[
        b"set", b"\"", b"'", b" ", b"\t", b"\x0b", b"\x0c", b"\r", b"\\", b"\\x4", b"\\x41", b"\\n", b"\\'",
        b"\\\"", b"\0", b"\xff", b"\"a b\"", b"'a b' ", b"a",
    ];
    if prng.one_in(2) {
        for _ in 0..prng.below(10) {
            stream.extend_from_slice(prng.pick::<&[u8]>(PIECES));
        }
    } else {
        for _ in 0..prng.below(5) {
            let len = prng.below(8);
            stream.extend_from_slice(quote(&prng.bytes(len)).as_bytes());
            stream.push(b' ');
        }
    }
    stream.extend_from_slice(prng.pick::<&[u8]>(&[b"\r\n", b"\n"]));
}

/// A line about as long as a line may be.
fn long_line(prng: &mut Prng, stream: &mut Vec<u8>) {
    let (start, fill, end) = *prng.pick::<(&[u8], u8, &[u8])>(&[
        (b"*", b'0', b"\r\n"),
        (b"*1\r\n$", b'0', b"\r\n"),
        (b"*1\r\nx", b'x', b"\r\n"),
        (b"a", b'a', b"\n"),
        (b"a", b'a', b"\r\n"),
    ]);
    let line_start = if start.len() > 1 { 4 } else { 0 };
    let len = stream.len() + line_start + 65_534 + prng.below(5);
    stream.extend_from_slice(start);
    stream.resize(len, fill);
    stream.extend_from_slice(end);
}

/// Sizes at the limits, with little behind them.
fn declared_sizes(prng: &mut Prng, stream: &mut Vec<u8>) {
    const COUNTS: &[&str] =
        &["1", "2", "10", "11", "12", "100", "2147483647", "2147483648", "01", "+1", "9223372036854775808"];
    const LENGTHS: &[&str] = &[
        "0",
        "5",
        "6",
        "99",
        "100",
        "999",
        "1000",
        "1001",
        "16384",
        "16385",
        "16386",
        "70002",
        "70003",
        "536870912",
        "536870913",
        "9223372036854775807",
        "9223372036854775808",
        "-1",
        "007",
        "",
    ];
    let line = format!("*{}\r\n${}\r\n", prng.pick(COUNTS), prng.pick(LENGTHS));
    stream.extend_from_slice(line.as_bytes());
}

/// Requests that were encoded arrive as they were, and nothing is left over.
pub fn intact_requests_come_back(prng: &mut Prng) {
    let mut stream = Vec::new();
    let mut requests = Vec::new();
    for _ in 0..1 + prng.below(20) {
        let args: Vec<Vec<u8>> = (0..1 + prng.below(6))
            .map(|_| {
                let len = prng.length();
                prng.bytes(len)
            })
            .collect();
        if prng.one_in(4) && args.iter().map(Vec::len).sum::<usize>() < 10_000 {
            let words: Vec<String> = args.iter().map(|arg| quote(arg)).collect();
            stream.extend_from_slice(words.join(" ").as_bytes());
            stream.extend_from_slice(b"\r\n");
        } else {
            encode_request(&mut stream, &args.iter().map(Vec::as_slice).collect::<Vec<_>>());
        }
        requests.push(args);
    }
    let expected = Meaning { requests, taken: stream.len(), error: None };
    for _ in 0..3 {
        let cuts = prng.cuts(stream.len());
        let requests_max = *prng.pick(&[1, 7, usize::MAX]);
        let found = parsed(&stream, &cuts, &Limits::default(), requests_max);
        assert!(found == expected, "cut at {cuts:?}: {}", shorten(format!("{found:?}")));
    }
}
