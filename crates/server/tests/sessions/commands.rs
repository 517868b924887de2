//! The connection group's replies, as Redis gives them.

use crate::harness::TestServer;
use wire::Value;

/// Requests and replies of Redis 7.0.15.
const CASES: &[(&str, &str)] = &[
    ("PING", "PONG"),
    ("PING a", "a"),
    ("PING a b", "ERR wrong number of arguments for 'ping' command"),
    ("ECHO", "ERR wrong number of arguments for 'echo' command"),
    ("SELECT a", "ERR value is not an integer or out of range"),
    ("SELECT -1", "ERR DB index is out of range"),
    ("SELECT 16", "ERR DB index is out of range"),
    ("HELLO 3 foo", "ERR Syntax error in HELLO option 'foo'"),
    ("HELLO 2 SETNAME", "ERR Syntax error in HELLO option 'SETNAME'"),
    ("HELLO 2 SETNAME \"a b\"", "ERR Client names cannot contain spaces, newlines or special characters."),
    ("AUTH a b c", "ERR syntax error"),
    ("CLIENT", "ERR wrong number of arguments for 'client' command"),
    ("CLIENT FOO", "ERR unknown subcommand 'FOO'. Try CLIENT HELP."),
    ("CLIENT ID 3", "ERR wrong number of arguments for 'client|id' command"),
    ("CLIENT GETREDIR", "-1"),
    ("CLIENT LIST TYPE foo", "ERR Unknown client type 'foo'"),
    ("CLIENT LIST TYPE", "ERR syntax error"),
    ("CLIENT LIST ID", "ERR syntax error"),
    ("CLIENT LIST ID a", "ERR Invalid client ID"),
    ("CLIENT LIST ID 0", ""),
    ("CLIENT LIST ID 999 888", ""),
    ("CLIENT LIST TYPE pubsub", ""),
    ("CLIENT LIST TYPE master", ""),
    ("CLIENT LIST FOO BAR", "ERR syntax error"),
    ("CLIENT LIST TYPE normal ID 1", "ERR syntax error"),
    ("CLIENT GETNAME", "NULL"),
    ("CLIENT SETNAME \"a b\"", "ERR Client names cannot contain spaces, newlines or special characters."),
    ("CLIENT SETNAME \"\"", "OK"),
    ("CLIENT SETNAME abc", "OK"),
    ("CLIENT GETNAME", "abc"),
    ("CLIENT KILL", "ERR wrong number of arguments for 'client|kill' command"),
    ("CLIENT KILL foo", "ERR No such client"),
    ("CLIENT KILL ID", "ERR No such client"),
    ("CLIENT KILL ID x", "ERR client-id should be greater than 0"),
    ("CLIENT KILL ID 0", "ERR client-id should be greater than 0"),
    ("CLIENT KILL ID 999", "0"),
    ("CLIENT KILL TYPE foo", "ERR Unknown client type 'foo'"),
    ("CLIENT KILL TYPE normal", "0"),
    ("CLIENT KILL USER nobody", "ERR No such user 'nobody'"),
    ("CLIENT KILL USER default", "0"),
    ("CLIENT KILL SKIPME foo", "ERR syntax error"),
    ("CLIENT KILL ADDR a LADDR b", "0"),
    ("CLIENT KILL ID 99 FOO", "ERR syntax error"),
    ("CLIENT PAUSE x", "ERR timeout is not an integer or out of range"),
    ("CLIENT PAUSE -1", "ERR timeout is negative"),
    ("CLIENT PAUSE 10 foo", "ERR CLIENT PAUSE mode must be WRITE or ALL"),
    (
        "CLIENT PAUSE 10 write all",
        "ERR unknown subcommand or wrong number of arguments for 'PAUSE'. Try CLIENT HELP.",
    ),
    ("CLIENT PAUSE 9223372036854775807", "ERR timeout is out of range"),
    ("CLIENT UNPAUSE", "OK"),
    ("CLIENT NO-EVICT foo", "ERR syntax error"),
    ("CLIENT NO-TOUCH foo", "ERR syntax error"),
    ("CLIENT REPLY foo", "ERR syntax error"),
    ("CLIENT REPLY on", "OK"),
    ("CLIENT SETINFO lib-name tarn-rs", "OK"),
    ("CLIENT SETINFO LIB-VER 1.2", "OK"),
    ("CLIENT SETINFO foo 1", "ERR Unrecognized option 'foo'"),
    (
        "CLIENT SETINFO lib-name \"a b\"",
        "ERR lib-name cannot contain spaces, newlines or special characters.",
    ),
    ("RESET a", "ERR wrong number of arguments for 'reset' command"),
    ("QUIT foo", "OK"),
];

#[test]
fn replies_are_those_of_redis() {
    let server = TestServer::start("");
    let mut peer = server.connect();
    for (request, reply) in CASES {
        assert_eq!(peer.ask(request), *reply, "{request}");
    }
    assert_eq!(peer.text(), "END");
}

#[test]
fn client_list_has_all_fields_in_order() {
    const FIELDS: &str = "id addr laddr fd name age idle flags db sub psub ssub multi qbuf qbuf-free argv-mem \
                          multi-mem rbs rbp obl oll omem tot-mem events cmd user redir resp lib-name lib-ver";
    let server = TestServer::start("");
    let (mut one, mut two) = (server.connect(), server.connect());
    let (first, second) = (one.id(), two.id());
    one.send(&["CLIENT SETNAME one", "CLIENT SETINFO LIB-NAME lib", "SELECT 2"]);
    one.texts(3);
    let list = one.ask("CLIENT LIST");
    let lines: Vec<&str> = list.lines().collect();
    assert_eq!(lines.len(), 2);
    let names: Vec<&str> = lines[0].split(' ').map(|field| field.split('=').next().unwrap()).collect();
    assert_eq!(names.join(" "), FIELDS);
    let begin =
        format!("id={first} addr={} laddr={} fd=", one.stream.local_addr().unwrap(), server.address());
    assert!(lines[0].starts_with(&begin), "{list}");
    assert!(lines[0].contains(" name=one age=") && lines[0].contains(" flags=N db=2 "), "{list}");
    assert!(
        lines[0].ends_with(" events=r cmd=client|list user=default redir=-1 resp=2 lib-name=lib lib-ver=")
    );
    assert!(lines[1].starts_with(&format!("id={second} ")) && lines[1].contains(" cmd=client|id "), "{list}");
    assert_eq!(one.ask(&format!("CLIENT LIST ID {second} 77 {first}")).lines().count(), 2);
    assert_eq!(one.ask("CLIENT LIST TYPE NORMAL").lines().count(), 2);
    let info = one.ask("CLIENT INFO");
    assert!(info.contains(" cmd=client|info ") && info.contains(" argv-mem=10 "), "{info}");
    assert!(lines[0].contains(" argv-mem=10 ") && lines[1].contains(" argv-mem=0 "), "{list}");
}

#[test]
fn replies_are_sent_as_client_reply_says() {
    let server = TestServer::start("");
    let mut peer = server.connect();
    peer.send(&["CLIENT REPLY SKIP", "ECHO 1", "ECHO 2", "CLIENT REPLY OFF", "ECHO 3", "NOSUCH"]);
    peer.send(&["CLIENT REPLY SKIP", "ECHO 4", "ECHO 5", "CLIENT REPLY ON", "ECHO 6"]);
    assert_eq!(peer.texts(3), ["2", "OK", "6"]);
    assert!(peer.is_silent());
}

#[test]
fn http_requests_close_the_connection_before_anything_else_runs() {
    let server = TestServer::start("");
    for first in ["POST /page HTTP/1.1", "host: 127.0.0.1:6379"] {
        let mut peer = server.connect();
        peer.send(&[first, "SET attack 1"]);
        assert_eq!(peer.text(), "END");
        assert_eq!(server.connect().ask("EXISTS attack"), "0");
    }
}

#[test]
fn what_a_client_does_that_touches_nothing_is_no_use_of_its_keys() {
    let clock = sys::Clock::simulated(sys::UnixMs(1_700_000_000_000));
    let server = TestServer::start_at(clock.clone(), "");
    let (mut quiet, mut other) = (server.connect(), server.connect());
    assert_eq!(quiet.ask("CLIENT NO-TOUCH ON"), "OK");
    let lines = [
        // By the quiet one, whether that is a use; and by others.
        ("GET s", false, true),
        ("SET s w", false, true),
        ("INCR n", false, true),
        ("RPUSH l x", false, true),
        ("SADD t a", false, true),
        ("SADD t b", false, true),
        ("ZADD z 1 a", false, true),
        ("HSETNX h a v", false, true),
        ("SUNIONSTORE t t", false, true),
        ("TOUCH s", true, true),
        ("TTL s", false, false),
    ];
    for (line, by_quiet, by_others) in lines {
        for (peer, is_use) in [(&mut quiet, by_quiet), (&mut other, by_others)] {
            for setup in
                ["FLUSHALL", "SET s v", "SET n 1", "RPUSH l a", "SADD t a", "ZADD z 1 a", "HSET h a b"]
            {
                server.connect().ask(setup);
            }
            clock.advance_ms(10_000);
            peer.ask(line);
            let key = line.split(' ').nth(1).unwrap();
            let idle = server.connect().ask(&format!("OBJECT IDLETIME {key}"));
            assert_eq!(idle, if is_use { "0" } else { "10" }, "{line}");
        }
    }
    server.connect().ask("SET s v");
    clock.advance_ms(10_000);
    quiet.send_words(&["EVAL", "return redis.call('touch', KEYS[1])", "1", "s"]);
    assert_eq!(quiet.text(), "1");
    assert_eq!(server.connect().ask("OBJECT IDLETIME s"), "10", "a script touches nothing");
    quiet.send(&["MULTI", "TOUCH s", "EXEC"]);
    assert_eq!(quiet.texts(2), ["OK", "QUEUED"]);
    assert_eq!(quiet.reply(), Some(Value::Array(vec![Value::Int(1)])));
    assert_eq!(server.connect().ask("OBJECT IDLETIME s"), "0");
}

#[test]
fn a_key_that_takes_over_a_value_has_not_been_used_before() {
    for (policy, look, moved) in
        [("noeviction", "OBJECT IDLETIME t", "0"), ("allkeys-lfu", "OBJECT FREQ t", "5")]
    {
        let clock = sys::Clock::simulated(sys::UnixMs(1_700_000_000_000));
        let server = TestServer::start_at(clock.clone(), &format!("maxmemory-policy {policy}"));
        let mut quiet = server.connect();
        for line in ["RENAME s t", "COPY s t REPLACE", "MOVE t 1"] {
            quiet.ask("CLIENT NO-TOUCH OFF");
            for setup in ["FLUSHALL", "SET s v", "SET t v"] {
                quiet.ask(setup);
            }
            (0..30).for_each(|_| drop(quiet.ask(&format!("GET {}", line.split(' ').nth(1).unwrap()))));
            clock.advance_ms(10_000);
            quiet.ask("CLIENT NO-TOUCH ON");
            quiet.ask(line);
            if line.starts_with("MOVE") {
                quiet.ask("SELECT 1");
            }
            assert_eq!(quiet.ask(look), moved, "{policy} {line}");
            quiet.ask("SELECT 0");
        }
    }
}
