use super::*;

/// What `write` makes of both protocols.
fn both(write: impl Fn(&mut Reply<'_>)) -> (String, String) {
    let text = |protocol| {
        let mut out = Vec::new();
        write(&mut Reply::new(&mut out, protocol));
        String::from_utf8(out).unwrap()
    };
    (text(Protocol::Resp2), text(Protocol::Resp3))
}

fn same(write: impl Fn(&mut Reply<'_>)) -> String {
    let (resp2, resp3) = both(write);
    assert_eq!(resp2, resp3);
    resp2
}

fn pair(resp2: &str, resp3: &str) -> (String, String) {
    (resp2.into(), resp3.into())
}

/// The forms are those of DEBUG PROTOCOL on a live redis-server 7.0.15.
#[test]
fn each_type_has_its_form_in_both_protocols() {
    assert_eq!(same(|reply| reply.ok()), "+OK\r\n");
    assert_eq!(same(|reply| reply.simple("PONG")), "+PONG\r\n");
    assert_eq!(same(|reply| reply.bulk(b"a\r\nb")), "$4\r\na\r\nb\r\n");
    assert_eq!(same(|reply| reply.bulk(b"")), "$0\r\n\r\n");
    assert_eq!(same(|reply| reply.bulk_int(-123)), "$4\r\n-123\r\n");
    assert_eq!(both(|reply| reply.null()), pair("$-1\r\n", "_\r\n"));
    assert_eq!(both(|reply| reply.null_array()), pair("*-1\r\n", "_\r\n"));
    assert_eq!(both(|reply| reply.map(3)), pair("*6\r\n", "%3\r\n"));
    assert_eq!(both(|reply| reply.set(3)), pair("*3\r\n", "~3\r\n"));
    assert_eq!(both(|reply| reply.push(3)), pair("*3\r\n", ">3\r\n"));
    assert_eq!(both(|reply| reply.double(3.25)), pair("$4\r\n3.25\r\n", ",3.25\r\n"));
    assert_eq!(both(|reply| reply.double(f64::NEG_INFINITY)), pair("$4\r\n-inf\r\n", ",-inf\r\n"));
    assert_eq!(both(|reply| reply.bool(true)), pair(":1\r\n", "#t\r\n"));
    assert_eq!(both(|reply| reply.bool(false)), pair(":0\r\n", "#f\r\n"));
    assert_eq!(both(|reply| reply.verbatim("txt", b"a\nb")), pair("$3\r\na\nb\r\n", "=7\r\ntxt:a\nb\r\n"));
    assert_eq!(both(|reply| reply.verbatim("markdown", b"")), pair("$0\r\n\r\n", "=4\r\nmar:\r\n"));
    assert_eq!(both(|reply| reply.big_number(b"123")), pair("$3\r\n123\r\n", "(123\r\n"));
    let attribute = both(|reply| {
        reply.attribute(1, |reply| {
            reply.bulk(b"k");
            reply.int(90);
        });
        reply.ok();
    });
    assert_eq!(attribute, pair("+OK\r\n", "|1\r\n$1\r\nk\r\n:90\r\n+OK\r\n"));
}

#[test]
fn headers_are_right_around_every_change_of_width() {
    for number in (0..2000).chain([9_999, 10_000, 1 << 20, i64::MAX as usize]) {
        assert_eq!(same(|reply| reply.array(number)), format!("*{number}\r\n"));
        assert_eq!(same(|reply| reply.int(number as i64)), format!(":{number}\r\n"));
        assert_eq!(
            same(|reply| reply.int(-(number as i64))),
            format!(":-{number}\r\n").replace(":-0\r", ":0\r")
        );
    }
    assert_eq!(same(|reply| reply.int(i64::MIN)), format!(":{}\r\n", i64::MIN));
}

#[test]
fn line_ends_never_leave_an_error_or_a_simple_string() {
    assert_eq!(same(|reply| reply.error("ERR a\r\nb\n\r\n")), "-ERR a  b\r\n");
    assert_eq!(same(|reply| reply.error(b"ERR got '\r'")), "-ERR got ' '\r\n");
    assert_eq!(same(|reply| reply.error("")), "-\r\n");
    assert_eq!(same(|reply| reply.simple("a\r\nb\n")), "+a  b \r\n");
}

#[test]
fn rollback_takes_back_to_the_mark_and_no_further() {
    let mut out = b"before".to_vec();
    let mut reply = Reply::new(&mut out, Protocol::Resp2);
    reply.ok();
    let mark = reply.mark();
    reply.array(3);
    reply.bulk(b"x");
    assert_eq!(reply.since(mark), b"*3\r\n$1\r\nx\r\n");
    reply.rollback(mark);
    reply.error("ERR no");
    assert_eq!(out, b"before+OK\r\n-ERR no\r\n");
}

#[test]
fn deferred_lengths_fit_at_every_width() {
    for len in [0, 1, 4, 5, 9, 10, 99, 100, 1000, 1500, 10_000] {
        let write = |known: bool| {
            both(move |reply| {
                reply.ok();
                let deferred = (!known).then(|| reply.deferred_map());
                if known {
                    reply.map(len);
                }
                for index in 0..len {
                    reply.int(index as i64);
                    let inner = reply.deferred_array();
                    (0..index % 20).for_each(|_| reply.bool(true));
                    reply.end(inner, index % 20);
                }
                deferred.into_iter().for_each(|deferred| reply.end(deferred, len));
                reply.bulk(b"after");
            })
        };
        assert_eq!(write(true), write(false), "{len}");
    }
    let set = both(|reply| {
        let deferred = reply.deferred_set();
        reply.ok();
        reply.end(deferred, 1);
    });
    assert_eq!(set, pair("*1\r\n+OK\r\n", "~1\r\n+OK\r\n"));
}

#[test]
fn hello_can_switch_the_protocol_before_it_answers() {
    let mut out = Vec::new();
    let mut reply = Reply::new(&mut out, Protocol::Resp2);
    reply.set_protocol(Protocol::Resp3);
    reply.reborrow().map(1);
    assert_eq!(reply.protocol(), Protocol::Resp3);
    assert_eq!(out, b"%1\r\n");
}
