//! The ceiling of memory as a client sees it: with a policy that evicts no write is
//! refused, without one the writes that need memory are, and nothing else is.

use crate::{info, tarn};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use testkit::ask::{PATIENCE, wait_until};
use testkit::{Client, Program, Server};
use wire::Value;

const CEILING_BYTES: u64 = 8 << 20;
/// What the requests and replies of one pipeline, and keys until the next command, may add.
const SLACK_BYTES: u64 = 4 << 20;
/// Three times as much as fits.
const KEYS: usize = 120_000;
const PIPELINE: usize = 1000;

fn start(policy: &str) -> Server {
    let ceiling = CEILING_BYTES.to_string();
    Server::start(tarn(), &["--edition", "memory", "--maxmemory", &ceiling, "--maxmemory-policy", policy])
        .unwrap()
}

/// Sets `KEYS` keys of 100 bytes, each with the words given behind the value; the replies.
fn fill(client: &mut Client, options: &[&str]) -> Vec<Vec<u8>> {
    let value = "x".repeat(100);
    let request = |number: usize| {
        let key = format!("key:{number}");
        [&["SET", &key, &value], options].concat().into_iter().map(str::to_owned).collect::<Vec<String>>()
    };
    (0..KEYS)
        .step_by(PIPELINE)
        .flat_map(|first| {
            let requests: Vec<_> = (first..first + PIPELINE).map(request).collect();
            client.pipeline(&requests).unwrap()
        })
        .collect()
}

#[test]
fn eviction_refuses_no_write_and_holds_the_ceiling() {
    let expiring: &[&str] = &["EX", "1000"];
    for (policy, options) in [
        ("allkeys-lru", &[][..]),
        ("allkeys-lfu", &[]),
        ("allkeys-random", &[]),
        ("volatile-lru", expiring),
        ("volatile-lfu", expiring),
        ("volatile-random", expiring),
        ("volatile-ttl", expiring),
    ] {
        let server = start(policy);
        let mut client = server.connect().unwrap();
        let replies = fill(&mut client, options);
        let refused = replies.iter().filter(|reply| reply.as_slice() != b"+OK\r\n").count();
        assert_eq!(refused, 0, "{policy}");
        assert!(info(&mut client, "used_memory") < CEILING_BYTES + SLACK_BYTES, "{policy}");
        assert!(info(&mut client, "evicted_keys") > 0, "{policy}");
    }
}

#[test]
fn what_waits_for_the_log_evicts_no_key() {
    // So little memory for the log that of its blocks hardly any is kept for reuse.
    let words = ["--edition", "durable", "--maxmemory", "4mb", "--maxmemory-policy", "allkeys-random"];
    let server = Server::start(tarn(), &words).unwrap();
    let mut client = server.connect().unwrap();
    let value = "x".repeat(5000);
    let write = |number: usize| vec!["SET".to_owned(), format!("key:{}", number % 50), value.clone()];
    let requests: Vec<_> = (0..400).map(write).collect();
    client.pipeline(&requests).unwrap();
    wait_until("all is on disk", || info(&mut client, "mem_not_counted_for_evict") == 0);
    // Less than a block.
    let ceiling = info(&mut client, "used_memory") + (200 << 10);
    client.call(&["CONFIG", "SET", "maxmemory", &ceiling.to_string()]).unwrap();
    for _ in 0..30 {
        client.pipeline(&requests).unwrap();
    }
    assert_eq!(info(&mut client, "evicted_keys"), 0);
}

#[test]
fn what_is_used_and_what_of_it_counts_are_of_one_moment() {
    // Its blocks come and go with each of these writes, and each is longer than the slack.
    const SLACK_BYTES: u64 = 200 << 10;
    let own = ["--edition", "memory", "--appendonly", "yes", "--maxmemory", "64mb"];
    let server = Server::start(tarn(), &own).unwrap();
    let (mut client, mut other) = (server.connect().unwrap(), server.connect().unwrap());
    let is_over = AtomicBool::new(false);
    let mut counted = || {
        let section = testkit::ask::ask(&mut other, &["INFO", "memory"]);
        let of = |name: &str| -> u64 {
            let line = section.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.parse().unwrap()
        };
        of("used_memory:") - of("mem_not_counted_for_evict:")
    };
    thread::scope(|scope| {
        let _ends = testkit::Ends(&is_over);
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                client.call(&["SET", "a", "1"]).unwrap();
            }
        });
        let all: Vec<u64> = (0..3000).map(|_| counted()).collect();
        is_over.store(true, Ordering::Relaxed);
        // What is there from some moment on is no matter.
        let is_alone = |three: &&[u64]| [0, 2].iter().all(|at| three[1].abs_diff(three[*at]) > SLACK_BYTES);
        let alone: Vec<&[u64]> = all.windows(3).filter(is_alone).collect();
        assert!(alone.is_empty(), "{alone:?}");
    });
}

#[test]
fn empty_blocks_of_the_log_evict_no_key_and_go() {
    const KEYS: usize = 300;
    let own = ["--edition", "durable", "--maxmemory-policy", "allkeys-lru"];
    let server = Server::start(tarn(), &own).unwrap();
    let mut client = server.connect().unwrap();
    let mut ask = |words: &[&str]| testkit::ask::ask(&mut client, words);
    let value = "x".repeat(1000);
    (0..KEYS).for_each(|key| drop(ask(&["SET", &key.to_string(), &value])));
    // Many blocks that wait for the disk at once, and are empty behind it.
    assert_eq!(ask(&["SET", "long", &"x".repeat(6 << 20)]), "OK");
    assert_eq!(ask(&["SET", "long", "x"]), "OK");
    let mut other = server.connect().unwrap();
    let not_counted = info(&mut other, "mem_not_counted_for_evict");
    let ceiling = info(&mut other, "used_memory") - not_counted + (200 << 10);
    assert_eq!(ask(&["CONFIG", "SET", "maxmemory", &ceiling.to_string()]), "OK");
    assert_eq!(ask(&["SET", "another", "x"]), "OK");
    wait_until("they have gone", || info(&mut other, "mem_not_counted_for_evict") == 0);
    assert!(info(&mut other, "used_memory") <= ceiling);
    assert_eq!(ask(&["DBSIZE"]), format!("Int({})", KEYS + 2));
    assert_eq!(info(&mut other, "evicted_keys"), 0);
}

#[test]
fn what_an_eviction_writes_to_the_log_evicts_no_more() {
    // As many as are over the ceiling, and some for what is not keys.
    const OVER: u64 = 40;
    let server =
        Server::start(tarn(), &["--edition", "durable", "--maxmemory-policy", "allkeys-lru"]).unwrap();
    let mut client = server.connect().unwrap();
    for round in 0..20 {
        let mut ask = |words: &[&str]| testkit::ask::ask(&mut client, words);
        assert_eq!(ask(&["CONFIG", "SET", "maxmemory", "0"]), "OK");
        for key in 0..300 {
            assert_eq!(ask(&["SET", &format!("{key}{}", "x".repeat(1000)), "x"]), "OK");
        }
        assert_eq!(ask(&["CONFIG", "RESETSTAT"]), "OK");
        let ceiling = info(&mut client, "used_memory") - OVER * 1000;
        client.call(&["CONFIG", "SET", "maxmemory", &ceiling.to_string()]).unwrap();
        client.call(&["SET", "another", "x"]).unwrap();
        let evicted = info(&mut client, "evicted_keys");
        assert!((OVER / 2..3 * OVER).contains(&evicted), "round {round}: {evicted}");
    }
}

#[test]
fn without_eviction_only_writes_that_need_memory_are_refused() {
    for (policy, options) in [("noeviction", &[][..]), ("volatile-lru", &[])] {
        let server = start(policy);
        let mut client = server.connect().unwrap();
        let replies = fill(&mut client, options);
        let refusal = b"-OOM command not allowed when used memory > 'maxmemory'.\r\n";
        assert!(replies.iter().any(|reply| reply.as_slice() == refusal), "{policy}");
        assert!(info(&mut client, "used_memory") < CEILING_BYTES + SLACK_BYTES, "{policy}");
        assert!(matches!(client.call(&["GET", "key:0"]).unwrap(), Value::Bulk(_)), "{policy}");
        assert_eq!(client.call(&["DEL", "key:0"]).unwrap(), Value::Int(1), "{policy}");
    }
}

#[test]
fn resetstat_forgets_what_was_freed_in_the_background() {
    let server = Server::start(tarn(), &["--edition", "memory"]).unwrap();
    let mut client = server.connect().unwrap();
    let members: Vec<String> = (0..1000).map(|number| format!("member:{number}")).collect();
    let words: Vec<&str> = ["SADD", "set"].into_iter().chain(members.iter().map(String::as_str)).collect();
    client.call(&words).unwrap();
    client.call(&["UNLINK", "set"]).unwrap();
    wait_until("it is freed", || info(&mut client, "lazyfreed_objects") > 0);
    client.call(&["CONFIG", "RESETSTAT"]).unwrap();
    assert_eq!(info(&mut client, "lazyfreed_objects"), 0);
}

#[test]
fn an_evicted_key_is_told_of_in_front_of_the_reply_for_which_it_made_room() {
    for program in [tarn(), Program::Redis] {
        let edition: &[&str] = if let Program::Tarn(_) = program { &["--edition", "memory"] } else { &[] };
        let server = Server::start(program, edition).unwrap();
        let mut client = server.connect().unwrap();
        let mut ask = |words: &[&str], reply: &[u8]| {
            client.send_request(words).unwrap();
            let read = client.read_reply().unwrap();
            assert!(read.starts_with(reply), "{words:?}: {}", read.escape_ascii());
        };
        ask(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"], b"+OK");
        ask(&["HELLO", "3"], b"%");
        ask(&["CLIENT", "TRACKING", "ON"], b"+OK");
        ask(&["SET", "k", "v"], b"+OK");
        ask(&["GET", "k"], b"$1");
        // Memory is full from the first command on, and the second one comes with it.
        let both = b"CONFIG SET maxmemory 1\r\nPING\r\n";
        client.send(both).unwrap();
        let replies = [(); 3].map(|()| client.read_reply().unwrap());
        assert_eq!(replies.each_ref().map(|reply| reply[0]), *b"+>+", "{replies:?}");
        assert_eq!(replies[2], b"+PONG\r\n");
    }
}

#[test]
fn nothing_but_what_ends_a_transaction_is_taken_into_one_while_memory_is_full() {
    for program in [tarn(), Program::Redis] {
        let edition: &[&str] = if let Program::Tarn(_) = program { &["--edition", "memory"] } else { &[] };
        let server = Server::start(program, edition).unwrap();
        let mut client = server.connect().unwrap();
        let mut ask = |line: &str, reply: &str| {
            let words: Vec<&str> = line.split(' ').collect();
            client.send_request(&words).unwrap();
            let read = client.read_reply().unwrap();
            assert!(read.starts_with(reply.as_bytes()), "{line}: {}", read.escape_ascii());
        };
        ask("CONFIG SET maxmemory 1", "+OK");
        ask("MULTI", "+OK");
        ask("GET k", "-OOM command not allowed when used memory > 'maxmemory'.");
        ask("CONFIG SET maxmemory 0", "-OOM");
        ask("EXEC", "-EXECABORT Transaction discarded because of previous errors.");
        for (last, reply) in [("DISCARD", "+OK"), ("EXEC", "*0"), ("RESET", "+RESET"), ("QUIT", "+OK")] {
            ask("MULTI", "+OK");
            ask(last, reply);
        }
    }
}

/// What is taken when a script is through, more than before. What its client brought is gone by then.
fn kept_after(server: &Server, words: &[&[u8]]) -> u64 {
    let mut watching = server.connect().unwrap();
    let before = info(&mut watching, "used_memory");
    server.connect().unwrap().call(words).unwrap();
    let until = Instant::now() + PATIENCE;
    loop {
        let kept = info(&mut watching, "used_memory").saturating_sub(before);
        if kept < SLACK_BYTES || Instant::now() > until {
            return kept;
        }
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_script_that_is_through_takes_no_memory_any_more() {
    let settings = ["--edition", "memory", "--threads", "1", "--maxmemory", "100mb"];
    let roomy = ["--maxmemory-clients", "300mb"];
    let server = Server::start(tarn(), &[&settings[..], &roomy].concat()).unwrap();
    server.connect().unwrap().call(&["SADD", "set", "member"]).unwrap();
    let long = vec![b'x'; 30 << 20];
    for script in [
        // A command that fails, one that cannot be, and more than a request may have.
        "return redis.call('APPEND', KEYS[1], ARGV[1])",
        "return redis.call(ARGV[1])",
        "local t, x = {}, ('x'):rep(100000) for i = 1, 7000 do t[i] = x end return redis.call('RPUSH', 'l', unpack(t))",
        // Words as each kind of script gets them.
        "return #ARGV[1]",
        "local words = ARGV return #words[1]",
        "local words = _G.ARGV return #words[1]",
        "error('x')",
        // The room in which strings are joined.
        "return #string.rep('x', 80000000)",
    ] {
        let kept = kept_after(&server, &[b"EVAL", script.as_bytes(), b"1", b"set", &long]);
        assert!(kept < SLACK_BYTES, "{kept} bytes after {script}");
    }
}

#[test]
fn code_that_does_not_compile_takes_no_memory_any_more() {
    let settings = ["--edition", "memory", "--threads", "1", "--maxmemory", "100mb"];
    let server = Server::start(tarn(), &[&settings[..], &["--maxmemory-clients", "300mb"]].concat()).unwrap();
    server.connect().unwrap().call(&["EVAL", "return 1", "0"]).unwrap();
    let long = vec![b'x'; 30 << 20];
    let library = [b"#!lua name=long\n", &long[..]].concat();
    for words in
        [&[&b"SCRIPT"[..], b"LOAD", &long][..], &[b"EVAL", &long, b"0"], &[b"FUNCTION", b"LOAD", &library]]
    {
        let kept = kept_after(&server, words);
        assert!(kept < SLACK_BYTES, "{kept} bytes after {}", words[0].escape_ascii());
    }
}

#[test]
fn lines_that_a_script_logs_take_no_more_memory_than_the_log_shows() {
    let threads = ["--threads", "2", "--threads-min", "2", "--busy-reply-threshold", "600000"];
    let server = Server::start(tarn(), &[&["--edition", "memory"], &threads[..]].concat()).unwrap();
    let (mut client, mut watching) = (server.connect().unwrap(), server.connect().unwrap());
    let before = info(&mut watching, "used_memory");
    // It goes on behind the lines for so long that somebody looks meanwhile.
    let text = "local x = ('x'):rep(4e6) for i = 1, 63 do redis.log(redis.LOG_WARNING, x, x) end
        local ends = redis.call('TIME')[1] + 3 while redis.call('TIME')[1] + 0 < ends do end";
    client.send_request(&["EVAL", text, "0"]).unwrap();
    let mut most = 0;
    wait_until("it is over", || {
        most = most.max(info(&mut watching, "used_memory"));
        !client.read_arrived().unwrap().0.is_empty()
    });
    let taken = most.saturating_sub(before);
    assert!(taken < 32 << 20, "{taken} bytes");
}
