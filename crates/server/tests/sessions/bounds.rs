//! What a client can make the server keep: next to nothing before it has authenticated, and nothing that does not count
//! afterwards (docs/security.md).

use crate::harness::{PATIENCE, Peer, TestServer};
use net::client::Traits;
use std::io::{Read, Write};
use std::sync::atomic::Ordering;
use std::time::Instant;

const MIB: usize = 1 << 20;
const PASSWORD: &str = "requirepass secret";

fn request(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    wire::encode_request(&mut bytes, words);
    bytes
}

/// Sends without minding that the server may close meanwhile.
fn send_all(peer: &mut Peer, bytes: &[u8]) {
    let _ = peer.stream.write_all(bytes);
}

#[test]
fn strangers_who_do_not_read_are_closed() {
    let server = TestServer::start(PASSWORD);
    let mut stranger = server.connect();
    stranger.send(&["PING"]);
    assert!(stranger.text().starts_with("NOAUTH"));
    // Each answer has the wrong word in it.
    let long = request(&[b"HELLO", b"3", &vec![b'x'; 16_000]]);
    for _ in 0..2000 {
        send_all(&mut stranger, &long);
    }
    server.wait_until("it is closed", || server.server.net.placement.connections() == 0);
    assert_eq!(server.server.net.clients.output_limit_disconnections.get(), 1);
    assert_eq!(server.server.net.clients.stranger_bytes.get(), 0);
    // Who has authenticated has the limits of others.
    let mut known = server.connect();
    assert_eq!(known.ask("AUTH secret"), "OK");
    for _ in 0..2000 {
        known.stream.write_all(&long).unwrap();
    }
    for _ in 0..2000 {
        assert!(known.text().starts_with("ERR Syntax error in HELLO option"));
    }
}

#[test]
fn strangers_who_send_long_requests_are_closed() {
    let server = TestServer::start(PASSWORD);
    let mut stranger = server.connect();
    let word = [b"$16000\r\n".as_slice(), &[b'x'; 16_000], b"\r\n"].concat();
    send_all(&mut stranger, b"*10\r\n");
    (0..9).for_each(|_| send_all(&mut stranger, &word));
    server.wait_until("it is closed", || server.server.counts.query_limit_disconnections.get() == 1);
    // What comes at once with the password is not a stranger's.
    let mut known = server.connect();
    let value = vec![b'v'; MIB];
    known
        .stream
        .write_all(&[request(&[b"AUTH", b"secret"]), request(&[b"SET", b"k", &value])].concat())
        .unwrap();
    assert_eq!(known.texts(2), ["OK", "OK"]);
}

#[test]
fn strangers_together_have_little() {
    const STRANGERS: usize = 400;
    let server = TestServer::start(PASSWORD);
    let word = [b"$16000\r\n".as_slice(), &[b'x'; 16_000], b"\r\n"].concat();
    let part = [b"*10\r\n".to_vec(), word.clone(), word.clone(), word].concat();
    let mut strangers: Vec<Peer> = (0..STRANGERS).map(|_| server.connect()).collect();
    strangers.iter_mut().for_each(|stranger| send_all(stranger, &part));
    server.wait_until("some are closed", || server.server.net.placement.connections() < STRANGERS);
    assert!(server.server.net.clients.stranger_bytes.get() <= 17 * MIB as u64);
    // Newcomers whose requests arrive at once are served all the same.
    let mut known = server.connect();
    assert_eq!(known.ask("AUTH secret"), "OK");
    assert_eq!(known.ask("PING"), "PONG");
    drop(strangers);
    server.wait_until("nothing is left", || server.server.net.clients.stranger_bytes.get() == 0);
}

/// Makes a session keep `count` names of 100,000 bytes in one of the ways there are.
fn keep(peer: &mut Peer, way: &str, count: usize) {
    let name = |number: usize| [format!("{number:08}").into_bytes(), vec![b'x'; 100_000]].concat();
    let names: Vec<Vec<u8>> = (0..count).map(name).collect();
    let mut words: Vec<&[u8]> = way.split(' ').map(str::as_bytes).collect();
    let is_one_by_one = matches!(way, "SET" | "CLIENT TRACKING ON BCAST");
    if is_one_by_one {
        for name in &names {
            let tail: &[&[u8]] = if way == "SET" { &[name, b"1"] } else { &[b"PREFIX", name] };
            send_all(peer, &request(&[&words[..], tail].concat()));
        }
        return;
    }
    words.extend(names.iter().map(Vec::as_slice));
    if way == "BLPOP" {
        words.push(b"0");
    }
    send_all(peer, &request(&words));
}

/// Ways to make a session keep names, and what comes before.
const WAYS: [(&str, &str); 6] = [
    ("MULTI", "SET"),
    ("PING", "WATCH"),
    ("PING", "SUBSCRIBE"),
    ("PING", "PSUBSCRIBE"),
    ("HELLO 3", "CLIENT TRACKING ON BCAST"),
    ("PING", "BLPOP"),
];

#[test]
fn what_a_session_keeps_counts_for_maxmemory_clients() {
    for (before, way) in WAYS {
        let server = TestServer::start("maxmemory-clients 16mb");
        let (mut greedy, mut other) = (server.connect(), server.connect());
        assert_eq!(other.ask("PING"), "PONG");
        let id = greedy.id();
        greedy.ask(before);
        keep(&mut greedy, way, 40);
        let client = server.server.net.clients.get(id).unwrap();
        server.wait_until(way, || client.kept_bytes() > 4_000_000);
        let list = other.ask(&format!("CLIENT LIST ID {id}"));
        let total: usize = list.split("tot-mem=").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
        assert!((4_000_000..16 * MIB).contains(&total), "{way}: {list}");
        if matches!(way, "SET" | "WATCH") {
            assert!(!list.contains("multi-mem=0 "), "{way}: {list}");
        }
        // A second time as much as is allowed; who waits already sends no more that is run.
        let mut next = server.connect();
        next.ask(before);
        keep(&mut next, way, 140);
        server.wait_until(way, || server.server.net.clients.evicted.get() > 0);
        assert_eq!(other.ask("PING"), "PONG", "{way}");
        drop((greedy, next));
        server.wait_until(way, || server.server.net.clients.buffer_bytes.get() == 0);
    }
}

#[test]
fn what_is_read_of_a_client_that_waits_counts_before_there_is_much_more() {
    let server = TestServer::start("maxmemory-clients 128kb");
    let mut greedy = server.connect();
    // The socket is full by the time that it waits.
    let waits = [request(&[b"EVAL", b"for i = 1, 1000000 do end", b"0"]), request(&[b"BLPOP", b"k", b"0"])];
    send_all(&mut greedy, &[waits.concat(), vec![b'\n'; 64 * MIB]].concat());
    server.wait_until("it is closed", || server.server.net.placement.connections() == 0);
    assert_eq!(server.server.net.clients.evicted.get(), 1);
    // It is looked at behind a few reads, of which each has room for as much as is there already.
    let read = server.server.counts.input_bytes.get();
    assert!(read < 3 * MIB as u64, "{read} bytes");
}

#[test]
fn what_a_session_keeps_counts_for_the_query_buffer_limit() {
    for (before, way) in WAYS {
        let server = TestServer::start("client-query-buffer-limit 1mb");
        let mut greedy = server.connect();
        greedy.ask(before);
        // None of the requests is too long alone.
        for first in 0..4 {
            let is_again = matches!(way, "WATCH" | "SUBSCRIBE" | "PSUBSCRIBE");
            keep(&mut greedy, way, if is_again { 3 * (first + 1) } else { 4 });
        }
        if way != "BLPOP" && way != "CLIENT TRACKING ON BCAST" {
            server.wait_until(way, || server.server.counts.query_limit_disconnections.get() == 1);
        }
    }
}

#[test]
fn what_a_session_keeps_is_given_back() {
    let server = TestServer::start("");
    let mut peer = server.connect();
    let id = peer.id();
    let client = server.server.net.clients.get(id).unwrap();
    for (begins, ends) in [
        (&["MULTI", "SET a b"][..], "DISCARD"),
        (&["MULTI", "SET a b"], "EXEC"),
        (&["WATCH a b c"], "UNWATCH"),
        (&["WATCH a b c"], "RESET"),
        (&["SUBSCRIBE a"], "UNSUBSCRIBE"),
        (&["PSUBSCRIBE a", "SUBSCRIBE b"], "RESET"),
        (&["SSUBSCRIBE a"], "SUNSUBSCRIBE a"),
        (&["HELLO 3", "CLIENT TRACKING ON BCAST PREFIX a PREFIX b"], "CLIENT TRACKING OFF"),
        (&["BLPOP a b c 0.01"], "PING"),
    ] {
        for begin in begins {
            peer.ask(begin);
        }
        let waits = begins[0].starts_with("BLPOP");
        assert_eq!(client.kept_bytes() > 0, !waits, "{begins:?}");
        peer.ask(ends);
        assert_eq!(client.kept_bytes(), 0, "{ends}");
        peer.ask("RESET");
    }
    assert_eq!(client.queued.load(Ordering::Relaxed), -1);
}

#[test]
fn a_doomed_transaction_keeps_nothing() {
    let server = TestServer::start("");
    let mut peer = server.connect();
    let id = peer.id();
    assert_eq!(peer.ask("MULTI"), "OK");
    assert!(peer.ask("NOSUCH").starts_with("ERR"));
    (0..100).for_each(|_| assert_eq!(peer.ask("SET a b"), "QUEUED"));
    assert_eq!(server.server.net.clients.get(id).unwrap().kept_bytes(), 0);
    assert!(peer.ask("EXEC").starts_with("EXECABORT"));
}

/// The directives that bound a reply.
const REPLY_LIMITS: [&str; 2] = ["client-output-buffer-limit normal 1mb 0 0", "maxmemory-clients 2mb"];

#[test]
fn replies_to_one_read_are_made_up_to_the_limit_only() {
    let server = TestServer::start("maxmemory-clients 16mb");
    let mut peer = server.connect();
    peer.stream.write_all(&request(&[b"SET", b"long", &vec![b'x'; MIB]])).unwrap();
    assert_eq!(peer.text(), "OK");
    let mut greedy = server.connect();
    send_all(&mut greedy, &request(&[b"GET", b"long"]).repeat(500));
    server.wait_until("it is closed", || server.server.net.clients.evicted.get() == 1);
    assert_eq!(peer.ask("PING"), "PONG");
    // The socket takes a few megabytes.
    let made = server.server.counts.commands.get();
    assert!(made < 100, "{made} requests were run");
}

#[test]
fn a_reply_beyond_the_limit_is_not_computed_to_its_end() {
    for directive in REPLY_LIMITS {
        let server = TestServer::start(directive);
        let mut peer = server.connect();
        assert_eq!(peer.ask("SADD s a b c"), "3");
        assert_eq!(peer.ask("HSET h a 1 b 2"), "2");
        assert_eq!(peer.ask("ZADD z 1 a 2 b"), "2");
        // As long as a reply can be: a hundred million members, which would take minutes here.
        for request in ["SRANDMEMBER s", "HRANDFIELD h", "ZRANDMEMBER z"] {
            let mut greedy = server.connect();
            assert_eq!(greedy.ask(&format!("{request} -134217728")), "END", "{directive}: {request}");
        }
        assert_eq!(peer.ask("PING"), "PONG");
        assert_eq!(server.server.net.clients.output_limit_disconnections.get(), 3);
    }
}

#[test]
fn a_reply_that_was_waited_for_is_cut_short_as_well() {
    for directive in REPLY_LIMITS {
        let server = TestServer::start(directive);
        let (mut greedy, mut other) = (server.connect(), server.connect());
        let id = greedy.id();
        let client = server.server.net.clients.get(id).unwrap();
        let words = format!("XREAD BLOCK 0 STREAMS {}{}", "s ".repeat(400), "$ ".repeat(400));
        greedy.send(&[&words]);
        server.wait_until("it waits", || client.traits().contains(Traits::BLOCKED));
        assert!(other.ask(&format!("XADD s * f {}", "x".repeat(60_000))).contains('-'));
        // Nothing was sent of what would have been 24 MB.
        assert_eq!(greedy.stream.read(&mut [0; 100]).unwrap_or(0), 0, "{directive}");
        assert_eq!(server.server.net.clients.output_limit_disconnections.get(), 1, "{directive}");
        assert_eq!(other.ask("PING"), "PONG");
    }
}

#[test]
fn a_set_given_a_thousand_times_is_intersected_once() {
    let server = TestServer::start("");
    let mut peer = server.connect();
    let members: Vec<String> = (0..5000).map(|number| format!("member:{number}")).collect();
    assert_eq!(peer.ask(&format!("SADD s {}", members.join(" "))), "5000");
    let often = "s ".repeat(2000);
    assert_eq!(peer.ask(&format!("SINTERCARD 2000 {often}")), "5000");
    assert_eq!(peer.ask(&format!("SINTERSTORE t {often}")), "5000");
    assert_eq!(peer.ask(&format!("SUNIONSTORE t {often} s")), "5000");
}

#[test]
fn clients_without_a_limit_of_their_own_stay_below_maxmemory() {
    let server = TestServer::start("maxmemory 64mb");
    let mut other = server.connect();
    assert_eq!(other.ask(&format!("SETRANGE mib {} x", MIB - 1)), MIB.to_string());
    let mut greedy: Vec<Peer> = (0..4).map(|_| server.connect()).collect();
    for peer in &mut greedy {
        send_all(peer, "GET mib\r\n".repeat(30).as_bytes());
    }
    server.wait_until("somebody is evicted", || server.server.net.clients.evicted.get() > 0);
    server.wait_until("it is enough", || server.server.net.clients.buffer_bytes.get() <= 64 * MIB as u64);
    assert_eq!(other.ask("PING"), "PONG");
}

#[test]
fn a_client_who_spares_itself_is_not_bounded_by_all_others() {
    let server = TestServer::start("maxmemory-clients 1mb");
    let mut peer = server.connect();
    assert_eq!(peer.ask("CLIENT NO-EVICT ON"), "OK");
    assert_eq!(peer.ask(&format!("SETRANGE big {} x", 4 * MIB - 1)), (4 * MIB).to_string());
    assert_eq!(peer.ask("GET big").len(), 4 * MIB);
}

#[test]
fn names_of_clients_are_short() {
    let server = TestServer::start("");
    let mut peer = server.connect();
    let long = "n".repeat(4097);
    for request in ["CLIENT SETNAME", "CLIENT SETINFO LIB-NAME", "CLIENT SETINFO LIB-VER", "HELLO 3 SETNAME"]
    {
        assert!(
            peer.ask(&format!("{request} {long}")).contains("cannot be longer than 4096 bytes"),
            "{request}"
        );
    }
    assert_eq!(peer.ask(&format!("CLIENT SETNAME {}", &long[1..])), "OK");
}

#[test]
fn keys_that_clients_cache_take_little_however_long_they_are() {
    let server = TestServer::start("tracking-table-max-keys 1000");
    let mut peer = server.connect();
    assert_eq!(peer.ask("CLIENT TRACKING ON"), "OK");
    for number in 0..40 {
        let key = [format!("{number:08}").into_bytes(), vec![b'k'; 100_000]].concat();
        peer.stream.write_all(&request(&[b"GET", &key])).unwrap();
        assert_eq!(peer.text(), "NULL");
    }
    let kept = server.server.tracking.key_count();
    assert!((5..=10).contains(&kept), "{kept} keys of 100 KB in a megabyte");
}

#[test]
fn scripts_that_eval_brings_take_little_however_long_they_are() {
    let server = TestServer::start("");
    let mut peer = server.connect();
    for number in 0..24 {
        let text = [format!("return {number} --").into_bytes(), vec![b'x'; 4 * MIB]].concat();
        peer.stream.write_all(&request(&[b"EVAL", &text, b"0"])).unwrap();
        assert_eq!(peer.text(), number.to_string());
    }
    let bytes = server.server.engine.scripts.bytes();
    assert!((40 * MIB..68 * MIB).contains(&bytes), "{bytes}");
    assert!(server.server.engine.scripts.evicted.get() > 0);
}

#[test]
fn requests_of_browsers_are_told_of_once_a_minute() {
    let counts = telemetry::stats::ServerCounts::default();
    let told: Vec<bool> =
        [1000, 1001, 60_999, 61_000, 61_001].map(|ms| counts.notes_http(sys::UnixMs(ms))).to_vec();
    assert_eq!(told, [true, false, false, true, false]);
}

#[test]
fn watching_a_hundred_thousand_keys_is_no_work() {
    let server = TestServer::start("");
    let mut peer = server.connect();
    let names: Vec<String> = (0..100_000).map(|number| format!("k{number}")).collect();
    let mut words: Vec<&[u8]> = vec![b"WATCH"];
    words.extend(names.iter().map(String::as_bytes));
    let id = peer.id();
    for _ in 0..2 {
        peer.stream.write_all(&request(&words)).unwrap();
        assert_eq!(peer.text(), "OK");
    }
    assert_eq!(server.server.net.clients.get(id).unwrap().watched.load(Ordering::Relaxed), 100_000);
}

#[test]
fn scripts_that_are_loaded_have_a_bound() {
    let server = TestServer::start("");
    let mut peer = server.connect();
    let mut refused = 0;
    for number in 0..18 {
        let text = [format!("return {number} --").into_bytes(), vec![b'x'; 16 * MIB]].concat();
        peer.stream.write_all(&request(&[b"SCRIPT", b"LOAD", &text])).unwrap();
        refused += usize::from(peer.text().starts_with("OOM too many scripts"));
    }
    assert_eq!(refused, 3);
    assert_eq!(peer.ask("SCRIPT FLUSH"), "OK");
    assert_eq!(peer.ask("SCRIPT LOAD \"return 1\"").len(), 40);
}

#[test]
fn a_flush_of_scripts_takes_the_interpreters_of_all_workers_away() {
    let server = TestServer::start("");
    let mut peers: Vec<Peer> = (0..8).map(|_| server.connect()).collect();
    let bytes = || server.server.engine.interpreter_bytes.get();
    for peer in &mut peers {
        assert_eq!(peer.ask("EVAL \"local s = string.rep('x', 1000000) return #s\" 0"), "1000000");
    }
    assert!(bytes() > 1_000_000);
    assert_eq!(peers[0].ask("SCRIPT FLUSH"), "OK");
    let began = Instant::now();
    while bytes() > 0 {
        assert!(began.elapsed() < PATIENCE, "{}", bytes());
        std::thread::yield_now();
    }
    // Libraries of functions are no scripts, and keep what they hold.
    let library =
        "#!lua name=l\nlocal n = 0\nredis.register_function('f', function() n = n + 1 return n end)";
    for peer in &mut peers {
        peer.stream.write_all(&request(&[b"FUNCTION", b"LOAD", b"REPLACE", library.as_bytes()])).unwrap();
        assert_eq!(peer.text(), "l");
    }
    assert_eq!(peers[0].ask("FCALL f 0"), "1");
    assert_eq!(peers[0].ask("SCRIPT FLUSH"), "OK");
    assert_eq!(peers[0].ask("FCALL f 0"), "2");
}

#[test]
fn commands_that_there_are_not_are_not_counted_by_name() {
    let server = TestServer::start("");
    let mut peer = server.connect();
    let lines = |peer: &mut Peer| peer.ask("INFO commandstats").lines().count();
    let before = lines(&mut peer);
    for number in 0..1000 {
        assert!(peer.ask(&format!("NOSUCH{number} CONFIG{number}")).starts_with("ERR unknown command"));
        assert!(peer.ask(&format!("CONFIG NOSUCH{number}")).starts_with("ERR unknown subcommand"));
    }
    // INFO and CONFIG have been counted since.
    let after = lines(&mut peer);
    assert!(after <= before + 2, "{before} lines became {after}");
}

/// The most memory that this process had so far.
fn peak_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse::<usize>().unwrap() << 10
}

#[test]
fn what_sort_looks_up_is_not_copied() {
    let server = TestServer::start("client-output-buffer-limit normal 4mb 0 0");
    let mut peer = server.connect();
    assert_eq!(peer.ask(&format!("SETRANGE w_a {} x", MIB - 1)), MIB.to_string());
    assert_eq!(peer.ask(&format!("RPUSH l{}", " a".repeat(1500))), "1500");
    let before = peak_bytes();
    for options in ["BY w_* ALPHA LIMIT 0 1", "BY w_* ALPHA DESC LIMIT 3 1 GET #"] {
        assert_eq!(peer.ask(&format!("SORT l {options}")), "Array([Bulk([97])])");
    }
    assert_eq!(peer.ask("SORT l BY nosort GET w_*"), "END");
    assert!(peak_bytes() - before < 700 * MIB, "a copy for each element would be 1,500 MB");
}

#[test]
fn a_client_that_is_listed_often_is_listed_up_to_the_limit() {
    let server = TestServer::start(REPLY_LIMITS[0]);
    let mut peer = server.connect();
    let label = "n".repeat(4096);
    for way in ["SETNAME", "SETINFO LIB-NAME", "SETINFO LIB-VER"] {
        assert_eq!(peer.ask(&format!("CLIENT {way} {label}")), "OK");
    }
    let (id, before) = (peer.id().to_string(), peak_bytes());
    let mut words = vec!["CLIENT", "LIST", "ID"];
    words.extend(std::iter::repeat_n(id.as_str(), 120_000));
    peer.send_words(&words);
    assert_eq!(peer.text(), "END");
    assert!(peak_bytes() - before < 700 * MIB, "all of it would be 1,400 MB");
}

#[test]
fn a_debugger_populates_with_values_as_long_as_any() {
    let server = TestServer::start("enable-debug-command yes");
    let mut peer = server.connect();
    let error = peer.ask("DEBUG POPULATE 1 k 9223372036854775807");
    assert_eq!(error, "ERR string exceeds maximum allowed size (proto-max-bulk-len)");
    assert_eq!(peer.ask("DEBUG POPULATE 1 k 10"), "OK");
}

#[test]
fn who_is_closed_already_is_not_counted_again() {
    let server = TestServer::start("");
    let mut peer = server.connect();
    let client = server.server.net.clients.get(peer.id()).unwrap();
    let clients = &server.server.net.clients;
    assert_eq!([clients.kill(&client), clients.kill(&client)], [true, false]);
    net::client::deliver(&server.server.net.clients, &client, |mail, _| {
        mail.extend_from_slice(&[b'x'; 1000])
    });
    assert_eq!(client.mail_bytes(), 0, "nobody will read it");
}

#[test]
fn scripts_are_given_replies_up_to_a_bound() {
    let server = TestServer::start("");
    let mut peer = server.connect();
    assert_eq!(peer.ask(&format!("SETRANGE w {} x", MIB - 1)), MIB.to_string());
    let script = "local t = {'MGET'} for i = 2, 530 do t[i] = 'w' end return redis.pcall(unpack(t)).err";
    assert_eq!(
        peer.ask(&format!("EVAL \"{script}\" 0")),
        "ERR the reply is longer than a script may be given"
    );
}

/// The files below a folder whose code has a text in it.
fn files_with(text: &str, folder: &std::path::Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            files_with(text, &path, found);
        } else if std::fs::read_to_string(&path).unwrap().contains(text) {
            found.push(path.file_name().unwrap().to_string_lossy().into_owned());
        }
    }
}

#[test]
fn no_command_makes_a_reply_that_nothing_bounds() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    files_with("Reply::new(", &root.join("src/commands"), &mut found);
    files_with("Reply::new(", &root.join("../command/src"), &mut found);
    found.sort();
    // Bounded by a script's limit; a short one that nobody is sent; two numbers.
    assert_eq!(found, ["host.rs", "reload.rs", "wait.rs"]);
}
