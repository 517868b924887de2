use super::*;
use crate::request::RequestBuf;

const STRANGER: Limits = Limits { bulk_bytes_max: BULK_BYTES_MAX_DEFAULT, authenticated: Authenticated::No };

/// Parses all of `bytes` in one call.
fn parse(bytes: &[u8], limits: &Limits) -> (Vec<RequestBuf>, Result<usize, ProtocolError>) {
    let mut batch = Batch::new();
    let taken = Parser::new().parse(bytes, limits, &mut batch, usize::MAX);
    (batch.iter(bytes).map(RequestBuf::from).collect(), taken)
}

fn error_of(bytes: &[u8], limits: &Limits) -> String {
    let (_, taken) = parse(bytes, limits);
    taken.expect_err("a protocol error").line().escape_ascii().to_string()
}

fn request(args: &[&str]) -> RequestBuf {
    RequestBuf::from_args(args)
}

#[test]
fn pipeline_becomes_requests_in_order() {
    let bytes = b"*1\r\n$4\r\nPING\r\nECHO \"a b\"\r\n*2\r\n$3\r\nGET\r\n$0\r\n\r\n*1\r\n$4\r\nPI";
    let (requests, taken) = parse(bytes, &Limits::default());
    assert_eq!(requests, [request(&["PING"]), request(&["ECHO", "a b"]), request(&["GET", ""])]);
    assert_eq!(taken, Ok(bytes.len() - "*1\r\n$4\r\nPI".len()));
}

#[test]
fn empty_requests_are_taken_and_skipped() {
    for skipped in ["\r\n", "\n", " \t\r\n", "*0\r\n", "*-1\r\n", "*-9223372036854775808\r\n", "\r\n*0\r\n\n"]
    {
        let bytes = format!("{skipped}*1\r\n$4\r\nPING\r\n");
        assert_eq!(parse(bytes.as_bytes(), &Limits::default()), (vec![request(&["PING"])], Ok(bytes.len())));
        assert_eq!(parse(skipped.as_bytes(), &Limits::default()), (vec![], Ok(skipped.len())));
    }
}

#[test]
fn only_as_many_requests_as_asked_for_are_judged() {
    let bytes = b"PING\r\nPING\r\n*x\r\n";
    let (mut parser, mut batch) = (Parser::new(), Batch::new());
    assert_eq!(parser.parse(bytes, &Limits::default(), &mut batch, 0), Ok(0));
    assert_eq!(parser.parse(bytes, &Limits::default(), &mut batch, 2), Ok(12));
    assert_eq!(batch.len(), 2);
    let refused = parser.parse(&bytes[12..], &Limits::default(), &mut batch, 1);
    assert_eq!(refused, Err(ProtocolError::InvalidMultibulkLength));
}

#[test]
fn requests_before_an_error_are_in_the_batch() {
    let (requests, taken) = parse(b"PING\r\n*2\r\n$4\r\nECHO\r\n$x\r\n", &Limits::default());
    assert_eq!((requests, taken), (vec![request(&["PING"])], Err(ProtocolError::InvalidBulkLength)));
}

/// Each was sent to a live redis-server 7.0.15; these are its words.
#[test]
fn protocol_errors_are_those_of_redis() {
    let multibulk = "ERR Protocol error: invalid multibulk length";
    let bulk = "ERR Protocol error: invalid bulk length";
    let quotes = "ERR Protocol error: unbalanced quotes in request";
    let cases: &[(&[u8], &str)] = &[
        (b"*abc\r\n", multibulk),
        (b"*\r\n", multibulk),
        (b"*+1\r\n", multibulk),
        (b"*01\r\n", multibulk),
        (b"* 1\r\n", multibulk),
        (b"*1 \r\n", multibulk),
        (b"*-0\r\n", multibulk),
        (b"*-01\r\n", multibulk),
        (b"*1\n$4\r\nPING\r\n", multibulk),
        (b"*2147483648\r\n", multibulk),
        (b"*9999999999999999999999\r\n", multibulk),
        (b"*-9223372036854775809\r\n", multibulk),
        (b"*1\r\n$abc\r\n", bulk),
        (b"*1\r\n$\r\n", bulk),
        (b"*1\r\n$-1\r\n", bulk),
        (b"*1\r\n$-0\r\n", bulk),
        (b"*1\r\n$04\r\n", bulk),
        (b"*1\r\n$+4\r\n", bulk),
        (b"*1\r\n$ 4\r\n", bulk),
        (b"*1\r\n$4 \r\n", bulk),
        (b"*1\r\n$4\n\rPING\r\n", bulk),
        (b"*1\r\n$536870913\r\n", bulk),
        (b"*1\r\n$99999999999999999999\r\n", bulk),
        (b"*1\r\nxabc\r\n", "ERR Protocol error: expected \\'$\\', got \\'x\\'"),
        (b"*1\r$4\r\n", "ERR Protocol error: expected \\'$\\', got \\'4\\'"),
        (b"*1\r\n\xff\r\n", "ERR Protocol error: expected \\'$\\', got \\'\\xff\\'"),
        (b"*1\r\n\x01\r\n", "ERR Protocol error: expected \\'$\\', got \\'\\x01\\'"),
        (b"*1\r\n\r\n", "ERR Protocol error: expected \\'$\\', got \\' \\'"),
        (b"echo \"a\"b\r\n", quotes),
        (b"echo 'a\r\n", quotes),
        (b"\"\n", quotes),
    ];
    for (bytes, line) in cases {
        assert_eq!(error_of(bytes, &Limits::default()), *line, "{}", bytes.escape_ascii());
    }
}

#[test]
fn lines_without_end_are_refused_after_64_kb() {
    let cases: &[(&[u8], u8, &str)] = &[
        (b"*", b'1', "too big mbulk count string"),
        (b"*1\r\n$", b'1', "too big bulk count string"),
        (b"*1\r\nx", b'x', "too big bulk count string"),
        (b"a", b'a', "too big inline request"),
    ];
    for (start, fill, reason) in cases {
        let line_start = start.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        let mut bytes = start.to_vec();
        bytes.resize(line_start + LINE_BYTES_MAX, *fill);
        assert!(parse(&bytes, &Limits::default()).1.is_ok());
        bytes.push(*fill);
        assert_eq!(error_of(&bytes, &Limits::default()), format!("ERR Protocol error: {reason}"));
    }
}

#[test]
fn the_longest_inline_line_is_taken() {
    let mut bytes = b"echo ".to_vec();
    bytes.resize(LINE_BYTES_MAX, b'a');
    bytes.push(b'\n');
    let (requests, taken) = parse(&bytes, &Limits::default());
    assert_eq!((requests.len(), taken), (1, Ok(bytes.len())));
    bytes.insert(5, b'a');
    assert_eq!(error_of(&bytes, &Limits::default()), "ERR Protocol error: too big inline request");
}

#[test]
fn line_ends_are_as_lax_as_in_redis() {
    for bytes in [&b"*1\r\n$4\r\nPINGxx"[..], b"*1\rx$4\r\nPING\r\n", b"*1\r\n$4\rxPING\r\n", b"PING\r\r\n"] {
        assert_eq!(parse(bytes, &Limits::default()), (vec![request(&["PING"])], Ok(bytes.len())));
    }
}

#[test]
fn strangers_may_send_small_requests_only() {
    let count = "ERR Protocol error: unauthenticated multibulk length";
    let length = "ERR Protocol error: unauthenticated bulk length";
    assert!(parse(b"*10\r\n", &STRANGER).1.is_ok());
    assert_eq!(error_of(b"*11\r\n", &STRANGER), count);
    assert_eq!(error_of(b"*2147483647\r\n", &STRANGER), count);
    assert_eq!(error_of(b"*2147483648\r\n", &STRANGER), "ERR Protocol error: invalid multibulk length");
    assert!(parse(b"*1\r\n$16384\r\n", &STRANGER).1.is_ok());
    assert_eq!(error_of(b"*1\r\n$16385\r\n", &STRANGER), length);
    assert_eq!(error_of(b"*1\r\n$536870913\r\n", &STRANGER), "ERR Protocol error: invalid bulk length");
    let (requests, _) = parse(b"a b c d e f g h i j k l\r\n", &STRANGER);
    assert_eq!(requests[0].as_request().len(), 12, "Redis does not count inline words");
}

#[test]
fn configured_bulk_limit_holds_below_and_above_the_short_lengths() {
    for max in [1u64, 9, 10, 99, 100, 999, 1000, 2_000_000_000] {
        let limits = Limits { bulk_bytes_max: max, authenticated: Authenticated::Yes };
        assert!(parse(format!("*1\r\n${max}\r\n").as_bytes(), &limits).1.is_ok());
        let above = format!("*1\r\n${}\r\n", max + 1);
        assert_eq!(error_of(above.as_bytes(), &limits), "ERR Protocol error: invalid bulk length");
    }
    let unlimited = Limits { bulk_bytes_max: u64::MAX, authenticated: Authenticated::Yes };
    assert!(parse(b"*1\r\n$9223372036854775807\r\nx", &unlimited).1.is_ok());
}

#[test]
fn declared_lengths_reserve_no_memory() {
    let (mut parser, mut batch) = (Parser::new(), Batch::new());
    let bytes = b"*2147483647\r\n$536870912\r\nabc";
    assert_eq!(parser.parse(bytes, &Limits::default(), &mut batch, 1), Ok(0));
    assert_eq!(parser.allocated_bytes(), 0);
    assert_eq!(parser.bytes_wanted(), Some("*2147483647\r\n$536870912\r\n\r\n".len() + 536_870_912));
    assert!(parser.is_partial());
}

/// With quadratic work this takes minutes.
#[test]
fn million_arguments_in_pieces_cost_linear_time() {
    let mut bytes = b"*1000000\r\n".to_vec();
    for _ in 0..1_000_000 {
        bytes.extend_from_slice(b"$1\r\na\r\n");
    }
    let (mut parser, mut batch) = (Parser::new(), Batch::new());
    let mut arrived = 0;
    while arrived < bytes.len() {
        assert!(batch.is_empty() && batch.spans.is_empty());
        arrived = (arrived + 1024).min(bytes.len());
        let taken = parser.parse(&bytes[..arrived], &Limits::default(), &mut batch, 10);
        assert_eq!(taken, Ok(if arrived == bytes.len() { arrived } else { 0 }));
    }
    assert_eq!(batch.request(0, &bytes).len(), 1_000_000);
    assert_eq!((parser.allocated_bytes(), parser.is_partial()), (0, false));
}

#[test]
fn each_request_tells_where_its_bytes_end() {
    let bytes = b"*1\r\n$4\r\nPING\r\n\r\nPING\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";
    let (mut parser, mut batch) = (Parser::new(), Batch::new());
    assert_eq!(parser.parse(&bytes[..30], &Limits::default(), &mut batch, 9), Ok(21));
    assert_eq!((batch.bytes_end(0), batch.bytes_end(1)), (14, 21));
    batch.clear();
    assert_eq!(parser.parse(&bytes[21..], &Limits::default(), &mut batch, 9), Ok(bytes.len() - 21));
    assert_eq!(batch.bytes_end(0), bytes.len() - 21);
}

#[test]
fn restarted_parser_reads_again_from_an_earlier_request() {
    let bytes = b"PING\nPING\n*2\r\n$3\r\nGET\r\n$1\r\nk";
    let (mut parser, mut batch) = (Parser::new(), Batch::new());
    assert_eq!(parser.parse(bytes, &Limits::default(), &mut batch, 9), Ok(10));
    let stopped_at = batch.bytes_end(0);
    batch.clear();
    parser.restart();
    let rest = [&bytes[stopped_at..], b"\r\n"].concat();
    assert_eq!(parser.parse(&rest, &Limits::default(), &mut batch, 9), Ok(rest.len()));
    assert_eq!((batch.len(), batch.request(1, &rest).arg(1)), (2, &b"k"[..]));
}

#[test]
fn partial_requests_of_two_sessions_share_one_batch() {
    let (mut first, mut second, mut batch) = (Parser::new(), Parser::new(), Batch::new());
    let limits = Limits::default();
    let (one, two) = (b"*2\r\n$4\r\nECHO\r\n$3\r\none\r\n", b"PING\r\n*2\r\n$4\r\nECHO\r\n$3\r\ntwo\r\n");
    assert_eq!(first.parse(&one[..16], &limits, &mut batch, 9), Ok(0));
    assert_eq!(second.parse(&two[..20], &limits, &mut batch, 9), Ok(6));
    assert_eq!(batch.len(), 1);
    batch.clear();
    assert_eq!(second.parse(&two[6..], &limits, &mut batch, 9), Ok(two.len() - 6));
    assert_eq!(batch.request(0, &two[6..]).arg(1), b"two");
    batch.clear();
    assert_eq!(first.parse(one, &limits, &mut batch, 9), Ok(one.len()));
    assert_eq!(batch.request(0, one).arg(1), b"one");
}
