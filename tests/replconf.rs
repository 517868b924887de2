//! What replicas say and ask, at random: REPLCONF is answered as by a Redis, and PSYNC goes on exactly where there is what it asks for.
//!
//!     TARN_SEED=4711 TARN_STEPS=100000 ./test --test tests -- --nocapture replconf::

use crate::{info, tarn};
use std::io::Read;
use sys::Prng;
use testkit::ask::{call, wait_until};
use testkit::{Budget, Client, Program, Server};
use wire::Value;

fn pick<'a>(prng: &mut Prng, from: &[&'a str]) -> &'a str {
    from[usize::try_from(prng.below(from.len() as u64)).unwrap()]
}

/// A word that may be anything.
fn any_word(prng: &mut Prng) -> Vec<u8> {
    const NUMBERS: &[&str] = &[
        "0",
        "1",
        "2",
        "-1",
        "007",
        "65535",
        "65536",
        "2147483648",
        "-9223372036854775808",
        "9223372036854775807",
        "9223372036854775808",
        "1e3",
        " 1",
        "0x1",
    ];
    const WORDS: &[&str] = &[
        "",
        "eof",
        "EOF",
        "psync2",
        "tarn",
        "functions",
        "functions FUNCTIONS",
        "functions keys",
        "\"functions\"",
        "\"",
        "'a",
        "\t ",
        "?",
        "127.0.0.1",
        "*",
    ];
    match prng.below(4) {
        0 => pick(prng, NUMBERS).into(),
        1 | 2 => pick(prng, WORDS).into(),
        _ => {
            let length = [3, 30, 255, 256, 3000][usize::try_from(prng.below(5)).unwrap()];
            (0..prng.below(length)).map(|_| b'!' + prng.next_u64().to_le_bytes()[0] % 90).collect()
        }
    }
}

/// REPLCONF with options that there are, and some that there are not.
fn replconf(prng: &mut Prng) -> Vec<Vec<u8>> {
    const OPTIONS: &[&str] = &[
        "listening-port",
        "LISTENING-PORT",
        "ip-address",
        "capa",
        "ack",
        "getack",
        "rdb-only",
        "rdb-filter-only",
        "fack",
        "bogus",
        "",
    ];
    let mut words = vec![b"REPLCONF".to_vec()];
    for _ in 0..prng.below(4) {
        words.push(pick(prng, OPTIONS).into());
        words.push(any_word(prng));
    }
    if prng.one_in(10) {
        words.push(any_word(prng));
    }
    words
}

/// The reply to a request, or None where there is none.
fn reply(client: &mut Client, words: &[Vec<u8>]) -> Option<Vec<u8>> {
    client.send_request(words).unwrap();
    client.send_request(&["ECHO", "behind"]).unwrap();
    let first = client.read_reply().unwrap();
    if first == b"$6\r\nbehind\r\n" {
        return None;
    }
    assert_eq!(client.read_reply().unwrap(), b"$6\r\nbehind\r\n");
    Some(first)
}

#[test]
fn what_replicas_say_of_themselves_is_answered_as_by_a_redis() {
    let servers = [
        Server::start(tarn(), &["--edition", "memory"]).unwrap(),
        Server::start(Program::Redis, &[]).unwrap(),
    ];
    let mut clients = servers.each_ref().map(|server| server.connect().unwrap());
    let budget = Budget::from_env(1, 3000);
    let mut done = 0;
    while budget.allows(done) {
        let words = replconf(&mut Prng::from_seed(budget.seed + done));
        let replies = clients.each_mut().map(|client| reply(client, &words));
        let shown: Vec<_> = words.iter().map(|word| word.escape_ascii().to_string()).collect();
        assert_eq!(
            replies[0],
            replies[1],
            "{shown:?}: repeat with TARN_SEED={} TARN_STEPS=1",
            budget.seed + done
        );
        done += 1;
    }
}

/// The first line that a new replica is sent on this connection.
fn answer(client: &mut Client, words: &[Vec<u8>]) -> String {
    client.send_request(words).unwrap();
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") || line.len() == 2 {
        let mut byte = [0];
        assert_eq!(client.stream().read(&mut byte).expect("it answers"), 1, "{}", line.escape_ascii());
        // Line ends before it say that the server is there.
        line.extend((byte[0] != b'\n' || !line.is_empty()).then_some(byte[0]));
    }
    String::from_utf8_lossy(&line).into_owned()
}

fn field(client: &mut Client, name: &str) -> String {
    let Value::Bulk(text) = call(client, &["INFO", "replication"]) else { panic!("INFO is text") };
    let text = String::from_utf8_lossy(&text).into_owned();
    text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().to_owned()
}

#[test]
fn a_stream_goes_on_exactly_where_there_is_what_is_asked_for() {
    for edition in ["memory", "durable"] {
        let master =
            Server::start(tarn(), &["--edition", edition, "--repl-ping-replica-period", "3600"]).unwrap();
        let mut client = master.connect().unwrap();
        // Somebody has to follow for a stream to be there, and have its copy, in the time of which nobody else can go on.
        let mut follower = master.connect().unwrap();
        let first = answer(&mut follower, &["PSYNC", "?", "-1"].map(|word| word.as_bytes().to_vec()));
        wait_until("it is copied", || field(&mut client, "slave0").contains("state=online"));
        let id = first.split(' ').nth(1).unwrap().to_owned();
        let start = first.trim_end().rsplit(' ').next().unwrap().parse::<u64>().unwrap();
        (0..50).for_each(|number| drop(call(&mut client, &["SET", "b", &number.to_string()])));
        let end = info(&mut client, "master_repl_offset");
        let budget = Budget::from_env(1, 120);
        let mut done = 0;
        while budget.allows(done) {
            let seed = budget.seed + done;
            let prng = &mut Prng::from_seed(seed);
            let name = match prng.below(4) {
                0 | 1 => id.clone().into_bytes(),
                2 => id.to_uppercase().into_bytes(),
                _ => any_word(prng),
            };
            let number = start + prng.below(end - start + 60);
            let offset = if prng.one_in(4) { any_word(prng) } else { number.to_string().into_bytes() };
            let parsed = wire::number::parse_int(&offset);
            // The byte that it asks for is there, or is the next, and not of the copy's time.
            let is_there = parsed
                .and_then(|byte| u64::try_from(byte).ok())
                .is_some_and(|byte| byte > start && byte <= end + 1);
            let goes_on = is_there && name.eq_ignore_ascii_case(id.as_bytes());
            let words = [b"PSYNC".to_vec(), name, offset];
            let line = answer(&mut master.connect().unwrap(), &words);
            let expected = match (parsed, goes_on) {
                (None, _) => "-ERR value is not an integer or out of range",
                (_, true) => "+CONTINUE",
                (_, false) => "+FULLRESYNC",
            };
            let shown: Vec<_> = words.iter().map(|word| word.escape_ascii().to_string()).collect();
            assert!(
                line.starts_with(expected),
                "{shown:?}, of {start} to {end}: {line}; repeat with TARN_SEED={seed} TARN_STEPS=1"
            );
            done += 1;
        }
        assert_eq!(call(&mut client, &["PING"]), Value::Simple(b"PONG".to_vec()));
    }
}
