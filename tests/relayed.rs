//! Who follows a Tarn that follows another gets a copy that is made while the stream of the one in the middle goes on, and has what all others
//! have: whatever is written meanwhile, and whatever becomes of the links.

use crate::replicas::{agree, follow, request};
use crate::{info, tarn};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use sys::Prng;
use testkit::ask::{ask, call, ok, text, wait_until};
use testkit::{Client, Program, Relay, Server};
use wire::Value;

/// Keys that are there before, and how long each takes of a copy, in microseconds, until that is let go.
const BALLAST: usize = 3000;
const DELAY: &str = "200000";

/// So many bytes of the stream are done, at least, while a copy is made.
const MEANWHILE: u64 = 50_000;

/// Whoever writes lets the middle catch up behind so many requests.
const IN_A_ROW: usize = 20;

/// Elements of what is long.
const ELEMENTS: usize = 20_000;

/// Keys whose time is up meanwhile.
const SHORT_LIVED: usize = 200;

fn field(client: &mut Client, name: &str) -> String {
    let all = ask(client, &["INFO", "replication"]);
    let line = all.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_default().to_owned()
}

fn is_up(client: &mut Client) -> bool {
    field(client, "master_link_status") == "up"
}

fn head(edition: Option<&str>) -> Server {
    let common =
        ["--enable-debug-command", "yes", "--repl-diskless-sync-delay", "0", "--repl-backlog-size", "64mb"];
    match edition {
        None => Server::start(Program::Redis, &common).unwrap(),
        Some(edition) => {
            let own = ["--edition", edition, "--repl-rdb-version", "10", "--enable-debug-command", "yes"];
            Server::start(tarn(), &own).unwrap()
        }
    }
}

fn middle(edition: &str) -> Server {
    let mut directives =
        vec!["--edition", edition, "--repl-rdb-version", "10", "--enable-debug-command", "yes"];
    if edition == "capacity" {
        directives.extend(["--eager-spill", "yes"]);
    }
    Server::start(tarn(), &directives).unwrap()
}

/// A server at the end of a chain.
fn last(of_redis: bool) -> Server {
    match of_redis {
        true => Server::start(Program::Redis, &["--enable-debug-command", "yes"]).unwrap(),
        false => Server::start(tarn(), &["--edition", "memory", "--enable-debug-command", "yes"]).unwrap(),
    }
}

/// Fills the head: many keys, in two databases, and long collections.
fn fill(client: &mut Client) {
    for from in (0..BALLAST).step_by(1000) {
        let pairs: Vec<String> =
            (from..from + 1000).flat_map(|key| [format!("key:{key}"), "v".to_owned()]).collect();
        call(client, &[&["MSET"], &pairs.iter().map(String::as_str).collect::<Vec<_>>()[..]].concat());
    }
    let fields: Vec<String> = (0..ELEMENTS).map(|number| format!("f{number}")).collect();
    for words in fields.chunks(1000) {
        let list =
            [&["RPUSH", "long:list"], &words.iter().map(String::as_str).collect::<Vec<_>>()[..]].concat();
        call(client, &list);
        let pairs: Vec<&str> = words.iter().flat_map(|word| [word.as_str(), "1"]).collect();
        call(client, &[&["HSET", "long:hash"], &pairs[..]].concat());
    }
    call(client, &["SELECT", "5"]);
    (0..300).for_each(|number| drop(call(client, &["SET", &format!("five:{number}"), "v"])));
    call(client, &["SELECT", "0"]);
}

/// Writes values of all types, at random, no faster than is followed.
fn write_all_types(server: &Server, seed: u64, is_over: &AtomicBool) {
    let (mut client, mut prng) = (server.connect().expect("it listens"), Prng::from_seed(seed));
    while !is_over.load(Ordering::Relaxed) {
        for _ in 0..IN_A_ROW {
            let request = request(&mut prng);
            let words: Vec<&str> = request.iter().map(String::as_str).collect();
            client.call(&words).expect("it answers");
        }
        client.call(&["WAIT", "1", "1000"]).expect("it answers");
    }
}

/// Writes to what is long, and keys whose time is soon up, alone and in transactions.
fn write_long(server: &Server, is_over: &AtomicBool) {
    let mut client = server.connect().expect("it listens");
    let mut number = 0;
    while !is_over.load(Ordering::Relaxed) {
        number += 1;
        let (at, short) = ((number * 7 % ELEMENTS).to_string(), format!("short:{}", number % SHORT_LIVED));
        call(&mut client, &["HINCRBY", "long:hash", &format!("f{at}"), "1"]);
        call(&mut client, &["LSET", "long:list", &at, "set"]);
        call(&mut client, &["SET", &short, "v", "PX", &(1 + number % 300).to_string()]);
        for request in [
            &["MULTI"][..],
            &["INCR", "counted"],
            &["SELECT", "5"],
            &["RENAME", &format!("five:{}", number % 300), "five:other"],
            &["MSET", "five:one", &at, "five:two", &at],
            &["SELECT", "0"],
            &["EXEC"],
        ] {
            client.call(request).expect("it answers");
        }
        client.call(&["WAIT", "1", "1000"]).expect("it answers");
    }
}

/// Waits until nothing is left whose time is up.
fn outlive(client: &mut Client) {
    let names: Vec<String> = (0..SHORT_LIVED).map(|number| format!("short:{number}")).collect();
    let request: Vec<&str> = ["EXISTS"].into_iter().chain(names.iter().map(String::as_str)).collect();
    wait_until("their time is up", || call(client, &request) == Value::Int(0));
}

/// Has one server follow another that follows, whose copy takes as long as it is held up.
fn begin_copy(of: &mut Client, middle: &Server, last: &Server) {
    assert_eq!(call(of, &["CONFIG", "SET", "rdb-key-save-delay", DELAY]), ok());
    follow(&mut last.connect().unwrap(), middle);
    wait_until("a copy is made", || info(of, "rdb_bgsave_in_progress") == 1);
}

/// The copy is still being made, and has its way from here on, to the one who gets it.
fn let_go(of: &mut Client, there: &mut Client) {
    assert_eq!(info(of, "rdb_bgsave_in_progress"), 1);
    assert_eq!(call(of, &["CONFIG", "SET", "rdb-key-save-delay", "0"]), ok());
    wait_until("the link is up", || is_up(there));
}

fn copy_beside_stream(of_head: Option<&str>, edition: &str, is_redis: bool) {
    let (head, middle, last) = (head(of_head), middle(edition), last(is_redis));
    let (mut first, mut client) = (head.connect().unwrap(), middle.connect().unwrap());
    fill(&mut first);
    follow(&mut client, &head);
    wait_until("the link is up", || is_up(&mut client));
    let is_over = AtomicBool::new(false);
    let mut done = 0;
    thread::scope(|scope| {
        let _ends = testkit::Ends(&is_over);
        for seed in 0..2 {
            let (head, is_over) = (&head, &is_over);
            scope.spawn(move || write_all_types(head, seed, is_over));
        }
        scope.spawn(|| write_long(&head, &is_over));
        wait_until("they write", || info(&mut first, "total_commands_processed") > 1000);
        begin_copy(&mut client, &middle, &last);
        let begun = info(&mut client, "master_repl_offset");
        wait_until("the stream goes on", || {
            done = info(&mut client, "master_repl_offset") - begun;
            done > MEANWHILE
        });
        let_go(&mut client, &mut last.connect().unwrap());
    });
    outlive(&mut first);
    agree(&head, &middle);
    agree(&head, &last);
    assert_eq!((info(&mut first, "sync_full"), info(&mut client, "sync_full")), (1, 1));
    println!("{of_head:?} > {edition} > {is_redis}: {done} bytes were done before the copy was made");
}

#[test]
fn a_chain_from_redis_to_redis_is_copied_while_it_is_written_to() {
    for edition in ["memory", "durable", "capacity"] {
        copy_beside_stream(None, edition, true);
    }
}

#[test]
fn a_chain_of_tarns_is_copied_while_it_is_written_to() {
    for (head, edition) in [("durable", "memory"), ("memory", "durable"), ("durable", "capacity")] {
        copy_beside_stream(Some(head), edition, false);
    }
}

/// What concerns whole databases waits until the copy is made, whose stream goes on behind that.
#[test]
fn what_concerns_all_keys_waits_for_a_copy() {
    let requests: [&[&[&str]]; 4] = [
        &[&["FLUSHALL"]],
        &[&["SWAPDB", "0", "5"]],
        &[&["MULTI"], &["SET", "own", "1"], &["FLUSHDB"], &["SET", "other", "1"], &["EXEC"]],
        &[&["FUNCTION", "LOAD", "#!lua name=one\nredis.register_function('f', function() return 1 end)"]],
    ];
    for edition in ["memory", "durable"] {
        let (head, middle) = (head(None), middle(edition));
        let (mut first, mut client) = (head.connect().unwrap(), middle.connect().unwrap());
        follow(&mut client, &head);
        wait_until("the link is up", || is_up(&mut client));
        for (round, requests) in requests.iter().enumerate() {
            fill(&mut first);
            wait_until("it has all", || {
                info(&mut client, "master_repl_offset") == info(&mut first, "master_repl_offset")
            });
            let last = last(true);
            begin_copy(&mut client, &middle, &last);
            call(&mut first, &["SET", "before", "1"]);
            wait_until("it goes on", || call(&mut client, &["GET", "before"]) == text("1"));
            requests.iter().for_each(|request| drop(call(&mut first, request)));
            call(&mut first, &["INCR", "behind"]);
            let mut there = last.connect().unwrap();
            let_go(&mut client, &mut there);
            agree(&head, &middle);
            agree(&head, &last);
            assert_eq!(ask(&mut first, &["FUNCTION", "LIST"]), ask(&mut there, &["FUNCTION", "LIST"]));
            assert_eq!(info(&mut client, "sync_full"), round as u64 + 1, "{requests:?}");
            call(&mut first, &["FLUSHALL"]);
        }
    }
}

/// The link to the master breaks meanwhile, and the one in the middle goes on where it was: the copy is still of the moment at which it began.
#[test]
fn a_copy_outlives_the_link_to_the_master() {
    for edition in ["memory", "durable"] {
        let (head, middle, last) = (head(None), middle(edition), last(true));
        let relay = Relay::to(head.address()).unwrap();
        let (mut first, mut client) = (head.connect().unwrap(), middle.connect().unwrap());
        fill(&mut first);
        call(&mut client, &["REPLICAOF", "127.0.0.1", &relay.address().port().to_string()]);
        wait_until("the link is up", || is_up(&mut client));
        begin_copy(&mut client, &middle, &last);
        relay.cut();
        wait_until("it is down", || !is_up(&mut client));
        (0..500).for_each(|number| drop(call(&mut first, &["APPEND", &format!("key:{number}"), "more"])));
        relay.mend();
        wait_until("it goes on", || is_up(&mut client));
        call(&mut first, &["SET", "behind", "1"]);
        wait_until("it has all", || call(&mut client, &["GET", "behind"]) == text("1"));
        let_go(&mut client, &mut last.connect().unwrap());
        agree(&head, &last);
        assert_eq!((info(&mut first, "sync_full"), info(&mut client, "sync_full")), (1, 1));
        assert_eq!(info(&mut first, "sync_partial_ok"), 1);
    }
}

/// The one in the middle is killed meanwhile: it goes on, and who follows it gets another copy.
#[test]
fn who_is_killed_amid_a_copy_gives_another() {
    let (head, last) = (head(None), last(true));
    let of_head = ["--replicaof", "127.0.0.1", &head.address().port().to_string()];
    let mut middle = Server::start(
        tarn(),
        &[
            &["--edition", "durable", "--repl-rdb-version", "10", "--enable-debug-command", "yes"][..],
            &of_head,
        ]
        .concat(),
    )
    .unwrap();
    let (mut first, mut client) = (head.connect().unwrap(), middle.connect().unwrap());
    fill(&mut first);
    wait_until("the link is up", || is_up(&mut client));
    let is_over = AtomicBool::new(false);
    let mut there = last.connect().unwrap();
    thread::scope(|scope| {
        let _ends = testkit::Ends(&is_over);
        scope.spawn(|| write_long(&head, &is_over));
        begin_copy(&mut client, &middle, &last);
        let begun = info(&mut client, "master_repl_offset");
        wait_until("the stream goes on", || info(&mut client, "master_repl_offset") > begun + 10_000);
        middle.kill();
        middle.restart().unwrap();
        wait_until("it is there again", || middle.connect().is_ok_and(|mut client| is_up(&mut client)));
        follow(&mut there, &middle);
        wait_until("the link is up", || is_up(&mut there));
    });
    outlive(&mut first);
    agree(&head, &middle);
    agree(&head, &last);
    assert_eq!(info(&mut first, "sync_full"), 1);
}
