//! What a client needs a connection to a server of its own for: to wait for a key, and to watch some.

use super::{Proxied, keys_of};
use crate::tarn_path;
use std::net::TcpListener;
use testkit::ask::{ask, call, call_line, is_error, ok, shown, text, wait_until};
use testkit::{Client, Program, Server};
use wire::Value;

fn queued() -> Value {
    Value::Simple(b"QUEUED".to_vec())
}

/// Waits until so many clients wait for keys at the server of a key.
pub(super) fn await_blocked(proxied: &Proxied, shard: usize, count: usize) {
    let mut client = proxied.shards[shard].connect().unwrap();
    let wanted = format!("blocked_clients:{count}\r\n");
    wait_until("clients wait", || ask(&mut client, &["INFO", "clients"]).contains(&wanted));
}

#[test]
fn who_waits_for_a_key_holds_up_nobody_else() {
    let proxied = Proxied::begin(2, &[]);
    let (list, other) = (proxied.key(0), proxied.key(1));
    let mut waiting: Vec<Client> = (0..5).map(|_| proxied.proxy.connect().unwrap()).collect();
    for (number, client) in waiting.iter_mut().enumerate() {
        client.send_request(&["BLPOP", &list, "0"]).unwrap();
        // What is asked behind it is done behind it.
        client.send_request(&["SET", &other, &number.to_string()]).unwrap();
        await_blocked(&proxied, 0, number + 1);
    }
    let mut client = proxied.proxy.connect().unwrap();
    assert_eq!(call(&mut client, &["GET", &other]), Value::Null);
    assert!(ask(&mut client, &["CLIENT", "LIST"]).contains("flags=b"));
    for (number, waiting) in waiting.iter_mut().enumerate() {
        assert_eq!(call(&mut client, &["RPUSH", &list, &number.to_string()]), Value::Int(1));
        let popped = waiting.read_value().unwrap();
        assert_eq!(popped, Value::Array(vec![text(&list), text(&number.to_string())]));
        assert_eq!(waiting.read_value().unwrap(), ok());
        assert_eq!(call(&mut client, &["GET", &other]), text(&number.to_string()));
    }
    assert!(!ask(&mut client, &["CLIENT", "LIST"]).contains("flags=b"));
    // One that waits for nothing long gets its null, in the client's protocol.
    assert_eq!(call(&mut client, &["BRPOP", &list, "0.01"]), Value::NullArray);
    client.send_request(&["HELLO", "3"]).unwrap();
    client.read_value().unwrap();
    assert_eq!(call(&mut client, &["BRPOP", &list, "0.01"]), Value::Null);
    assert!(is_error(&call(&mut client, &["BLPOP", &list, &other, "0"]), "CROSSSLOT"));
    assert!(is_error(&call(&mut client, &["BLPOP", &list, "x"]), "ERR timeout is not a float"));
    assert_eq!(call(&mut client, &["XREAD", "STREAMS", &list, "0"]), Value::Null);
}

#[test]
fn what_somebody_waited_for_who_went_away_is_nobody_elses_loss() {
    let proxied = Proxied::begin(1, &[]);
    for _ in 0..3 {
        let mut gone = proxied.proxy.connect().unwrap();
        gone.send_request(&["BLPOP", "list", "0"]).unwrap();
        await_blocked(&proxied, 0, 1);
        drop(gone);
        await_blocked(&proxied, 0, 0);
        let mut killed = proxied.proxy.connect().unwrap();
        let Value::Int(id) = call(&mut killed, &["CLIENT", "ID"]) else { panic!("no id") };
        killed.send_request(&["BLPOP", "list", "0"]).unwrap();
        await_blocked(&proxied, 0, 1);
        let mut client = proxied.proxy.connect().unwrap();
        assert_eq!(call(&mut client, &["CLIENT", "KILL", "ID", &id.to_string()]), Value::Int(1));
        await_blocked(&proxied, 0, 0);
        assert!(killed.read_value().is_err());
    }
    let mut client = proxied.proxy.connect().unwrap();
    assert_eq!(call(&mut client, &["RPUSH", "list", "a"]), Value::Int(1));
    assert_eq!(call(&mut client, &["LRANGE", "list", "0", "-1"]), Value::Array(vec![text("a")]));
    assert_eq!(keys_of(&proxied.shards[0]), Value::Int(1));
}

#[test]
fn who_waits_for_a_key_of_a_shard_that_is_lost_is_told() {
    let mut proxied = Proxied::begin(2, &[]);
    let list = proxied.key(0);
    let mut waiting = proxied.proxy.connect().unwrap();
    waiting.send_request(&["BLPOP", &list, "0"]).unwrap();
    await_blocked(&proxied, 0, 1);
    proxied.shards[0].kill();
    assert!(is_error(&waiting.read_value().unwrap(), "UNANSWERED"));
    assert!(is_error(&call(&mut waiting, &["BLPOP", &list, "0"]), "ERR proxy: no connection"));
    assert_eq!(call(&mut waiting, &["SET", &proxied.key(1), "v"]), ok());
}

#[test]
fn a_transaction_may_be_longer_than_what_a_server_takes_at_once() {
    const REQUESTS: usize = 40;
    for program in [Program::Redis, Program::Tarn(tarn_path())] {
        let proxied = Proxied::of((&program, &[]), 1, &[]);
        let (mut client, value) = (proxied.proxy.connect().unwrap(), "v".repeat(1 << 20));
        for is_watched in [false, true] {
            let watch = if is_watched { &["WATCH", "k"][..] } else { &["PING"] };
            client.send_request(watch).unwrap();
            client.send_request(&["MULTI"]).unwrap();
            for number in 0..REQUESTS {
                client.send_request(&["SET", &format!("{{k}}{number}"), &value]).unwrap();
            }
            client.send_request(&["EXEC"]).unwrap();
            let before = (0..REQUESTS + 2).map(|_| client.read_value().unwrap());
            assert_eq!(before.filter(|reply| *reply == queued()).count(), REQUESTS);
            let done = client.read_value().unwrap();
            assert_eq!(done, Value::Array(vec![ok(); REQUESTS]), "{}", shown(&done));
        }
    }
}

/// Changes a key by another client, if it is to be disturbed, and executes a transaction.
fn watched(proxied: &Proxied, client: &mut Client, key: &str, is_disturbed: bool) -> Value {
    assert_eq!(call(client, &["WATCH", key]), ok());
    if is_disturbed {
        assert_eq!(call(&mut proxied.proxy.connect().unwrap(), &["SET", key, "disturbed"]), ok());
    }
    assert_eq!(call(client, &["MULTI"]), ok());
    assert_eq!(call(client, &["SET", key, "by transaction"]), queued());
    call(client, &["EXEC"])
}

#[test]
fn a_transaction_is_executed_if_what_it_watches_is_as_it_was() {
    let proxied = Proxied::begin(2, &[]);
    let (key, other) = (proxied.key(0), proxied.key(1));
    let mut client = proxied.proxy.connect().unwrap();
    for _ in 0..3 {
        assert_eq!(watched(&proxied, &mut client, &key, false), Value::Array(vec![ok()]));
        assert_eq!(watched(&proxied, &mut client, &key, true), Value::NullArray);
        assert_eq!(call(&mut client, &["GET", &key]), text("disturbed"));
    }
    // Its own writes count, too, and what is done between by other ways.
    assert_eq!(call(&mut client, &["WATCH", &key]), ok());
    assert_eq!(call(&mut client, &["SET", &key, "own"]), ok());
    assert_eq!(call(&mut client, &["SET", &other, "own"]), ok());
    assert_eq!(call(&mut client, &["MULTI"]), ok());
    assert_eq!(call(&mut client, &["GET", &key]), queued());
    assert_eq!(call(&mut client, &["EXEC"]), Value::NullArray);
    // What ends a watch ends it.
    for line in ["UNWATCH", "MULTI;DISCARD", "MULTI;EXEC", "RESET", "MULTI;NOSUCH;EXEC"] {
        assert_eq!(call(&mut client, &["WATCH", &key]), ok());
        for word in line.split(';') {
            call_line(&mut client, word);
        }
        assert_eq!(call(&mut proxied.proxy.connect().unwrap(), &["SET", &key, "v"]), ok());
        assert_eq!(call(&mut client, &["MULTI"]), ok());
        assert_eq!(call(&mut client, &["SET", &other, line]), queued());
        assert_eq!(call(&mut client, &["EXEC"]), Value::Array(vec![ok()]), "{line}");
    }
    // Of one slot all of it.
    assert_eq!(call(&mut client, &["WATCH", &key]), ok());
    assert!(is_error(&call(&mut client, &["WATCH", &other]), "CROSSSLOT"));
    assert_eq!(call(&mut client, &["MULTI"]), ok());
    assert!(is_error(&call(&mut client, &["SET", &other, "v"]), "CROSSSLOT"));
    assert!(is_error(&call(&mut client, &["EXEC"]), "EXECABORT"));
    // Whoever has come to speak otherwise has watched by another connection.
    for line in ["SELECT 3", "HELLO 3"] {
        assert_eq!(call(&mut client, &["WATCH", &key]), ok());
        client.send_request(&line.split(' ').collect::<Vec<_>>()).unwrap();
        client.read_value().unwrap();
        for is_executed in [false, true] {
            assert_eq!(call(&mut client, &["MULTI"]), ok());
            assert_eq!(call(&mut client, &["HSET", &key, line, "v"]), queued());
            assert_eq!(matches!(call(&mut client, &["EXEC"]), Value::Array(_)), is_executed, "{line}");
        }
    }
    assert_eq!(call(&mut client, &["SELECT", "0"]), ok());
    assert_eq!(call(&mut client, &["TYPE", &key]), Value::Simple(b"string".to_vec()));
    // Nothing is known of what happened while the connection was lost.
    assert_eq!(call(&mut client, &["WATCH", &key]), ok());
    let mut shard = proxied.shards[0].connect().unwrap();
    assert_ne!(call_line(&mut shard, "CLIENT KILL TYPE normal SKIPME yes"), Value::Int(0));
    assert_eq!(call(&mut client, &["MULTI"]), ok());
    assert_eq!(call(&mut client, &["SET", &key, "lost"]), queued());
    assert_eq!(call(&mut client, &["EXEC"]), Value::Null);
    assert_ne!(call(&mut client, &["GET", &key]), text("lost"));
}

#[test]
fn a_wait_at_another_server_ends_what_was_watched_and_nobody_inherits_it() {
    let proxied = Proxied::begin(2, &["--threads", "1"]);
    let (key, list) = (proxied.key(0), proxied.key(1));
    let (mut client, mut other) = (proxied.proxy.connect().unwrap(), proxied.proxy.connect().unwrap());
    assert_eq!(call(&mut client, &["WATCH", &key]), ok());
    assert_eq!(call(&mut other, &["RPUSH", &list, "1"]), Value::Int(1));
    assert!(matches!(call(&mut client, &["BLPOP", &list, "0"]), Value::Array(_)));
    // The next one to that server gets no connection that watches for somebody else.
    assert_eq!(call(&mut other, &["WATCH", &format!("{{{key}}}2")]), ok());
    assert_eq!(call(&mut proxied.proxy.connect().unwrap(), &["SET", &key, "v"]), ok());
    assert_eq!(call(&mut other, &["MULTI"]), ok());
    assert_eq!(call(&mut other, &["PING"]), queued());
    assert!(matches!(call(&mut other, &["EXEC"]), Value::Array(_)));
    // Nobody can say any more whether it has changed.
    assert_eq!(call(&mut client, &["WATCH", &format!("{{{key}}}2")]), ok());
    for wanted in [Value::NullArray, Value::Array(vec![ok()])] {
        assert_eq!(call(&mut client, &["MULTI"]), ok());
        assert_eq!(call(&mut client, &["SET", &key, "w"]), queued());
        assert_eq!(call(&mut client, &["EXEC"]), wanted);
    }
}

#[test]
fn no_request_goes_to_another_database_than_its_own() {
    let proxied = Proxied::of((&testkit::Program::Redis, &["--databases", "1"]), 1, &["--threads", "1"]);
    let mut client = proxied.proxy.connect().unwrap();
    assert_eq!(call(&mut client, &["RPUSH", "list", "a"]), Value::Int(1));
    assert_eq!(call(&mut client, &["WATCH", "k"]), ok());
    assert_eq!(call(&mut client, &["SELECT", "5"]), ok());
    assert!(!matches!(call(&mut client, &["BLPOP", "list", "0.01"]), Value::Array(_)));
    assert_eq!(call(&mut client, &["MULTI"]), ok());
    assert_eq!(call(&mut client, &["SET", "k", "v"]), queued());
    assert!(!matches!(call(&mut client, &["EXEC"]), Value::Array(_)));
    let mut other = proxied.proxy.connect().unwrap();
    assert_eq!(call(&mut other, &["SELECT", "5"]), ok());
    assert!(!matches!(call(&mut other, &["BLPOP", "list", "0.01"]), Value::Array(_)));
    assert_eq!(keys_of(&proxied.shards[0]), Value::Int(1));
}

#[test]
fn a_watch_that_could_not_be_had_executes_nothing() {
    let mut proxied = Proxied::begin(2, &[]);
    let key = proxied.key(0);
    let mut client = proxied.proxy.connect().unwrap();
    proxied.shards[0].kill();
    assert!(is_error(&call(&mut client, &["WATCH", &key]), "ERR proxy: no connection"));
    assert_eq!(call(&mut client, &["MULTI"]), ok());
    assert_eq!(call(&mut client, &["SET", &key, "w"]), queued());
    assert_eq!(call(&mut client, &["EXEC"]), Value::NullArray);
}

#[test]
fn connections_that_nobody_needs_any_more_serve_others() {
    let proxied = Proxied::begin(1, &["--threads", "1"]);
    let mut clients: Vec<Client> = (0..10).map(|_| proxied.proxy.connect().unwrap()).collect();
    for round in 0..20 {
        for client in &mut clients {
            assert_eq!(watched(&proxied, client, "k", round % 2 == 0) == Value::NullArray, round % 2 == 0);
            assert_eq!(call(client, &["WATCH", "k"]), ok());
            assert_eq!(call(client, &["UNWATCH"]), ok());
            if round == 0 {
                assert_eq!(call(client, &["BLPOP", "none", "0.001"]), Value::NullArray);
            }
        }
    }
    let mut direct = proxied.shards[0].connect().unwrap();
    let came = ask(&mut direct, &["INFO", "stats"]);
    let came = came.lines().find_map(|line| line.strip_prefix("total_connections_received:")).unwrap();
    assert!(came.trim().parse::<u32>().unwrap() < 20, "{came} connections");
}

#[test]
fn who_waits_is_woken_by_the_number_that_it_has_here() {
    for program in [Program::Redis, Program::Tarn(tarn_path())] {
        let proxied = Proxied::of((&program, &[]), 2, &[]);
        let mut waker = proxied.proxy.connect().unwrap();
        let unblock = |waker: &mut Client, id: &str, words: &[&str]| {
            call(waker, &[&["CLIENT", "UNBLOCK", id], words].concat())
        };
        // Numbers at the server are others than here.
        let others: Vec<Client> = (0..5).map(|_| proxied.shards[0].connect().unwrap()).collect();
        for protocol in ["2", "3"] {
            let mut client = proxied.proxy.connect().unwrap();
            ask(&mut client, &["HELLO", protocol]);
            let id = shown(&call_line(&mut client, "CLIENT ID"));
            let id = id.trim_start_matches("Int(").trim_end_matches(')');
            assert_eq!(unblock(&mut waker, id, &[]), Value::Int(0));
            let list = proxied.key(0);
            let none = if protocol == "3" { Value::Null } else { Value::NullArray };
            let waiting: [(&[&str], Value); 3] = [
                (&["BLPOP", &list, "0"], none.clone()),
                (&["BLMOVE", &list, &list, "LEFT", "LEFT", "0"], none),
                (&["WAIT", "1", "0"], Value::Int(0)),
            ];
            for (words, answer) in waiting {
                client.send_request(words).unwrap();
                await_blocked(&proxied, 0, 1);
                assert!(is_error(&unblock(&mut waker, id, &["now"]), "ERR CLIENT UNBLOCK reason"));
                // The proxy knows it a moment later than the server.
                wait_until("it is woken", || unblock(&mut waker, id, &[]) == Value::Int(1));
                assert_eq!(client.read_value().unwrap(), answer, "{words:?}");
                wait_until("it is known", || unblock(&mut waker, id, &[]) == Value::Int(0));
            }
            client.send_request(&["BLPOP", &list, "0"]).unwrap();
            await_blocked(&proxied, 0, 1);
            wait_until("it is woken", || unblock(&mut waker, id, &["error"]) == Value::Int(1));
            assert!(is_error(&client.read_value().unwrap(), "UNBLOCKED"));
        }
        drop(others);
        assert!(is_error(&unblock(&mut waker, "x", &[]), "ERR value is not an integer"));
    }
}

#[test]
fn a_pause_holds_back_clients_of_the_proxy() {
    let proxied = Proxied::begin(2, &[]);
    let (mut pauses, mut client) = (proxied.proxy.connect().unwrap(), proxied.proxy.connect().unwrap());
    let key = proxied.key(1);
    assert_eq!(call_line(&mut pauses, "CLIENT PAUSE 100000 WRITE"), ok());
    assert_eq!(call(&mut client, &["GET", &key]), Value::Null);
    client.send_request(&["SET", &key, "v"]).unwrap();
    client.send_request(&["GET", &key]).unwrap();
    assert_eq!(call(&mut pauses, &["GET", &key]), Value::Null);
    assert_eq!(call_line(&mut pauses, "CLIENT UNPAUSE"), ok());
    assert_eq!((client.read_value().unwrap(), client.read_value().unwrap()), (ok(), text("v")));
    // Of all: it ends by itself.
    assert_eq!(call_line(&mut pauses, "CLIENT PAUSE 50"), ok());
    client.send_request(&["GET", &key]).unwrap();
    client.send_request(&["MULTI"]).unwrap();
    assert_eq!((client.read_value().unwrap(), client.read_value().unwrap()), (text("v"), ok()));
}

#[test]
fn what_directives_say_of_data_and_replicas_refuses_nothing() {
    // A file may be a server's, too.
    let words = ["--maxmemory", "1mb", "--min-replicas-to-write", "1", "--min-sync-replicas", "1"];
    let proxied = Proxied::begin(2, &words);
    let mut client = proxied.proxy.connect().unwrap();
    let mut execute = || {
        assert_eq!(call_line(&mut client, "MULTI"), ok());
        assert_eq!(
            [call_line(&mut client, "SET k v"), call_line(&mut client, "GET k")],
            [queued(), queued()]
        );
        assert_eq!(call_line(&mut client, "EXEC"), Value::Array(vec![ok(), text("v")]));
    };
    execute();
    let mut other = proxied.proxy.connect().unwrap();
    assert_eq!(call_line(&mut other, "CONFIG SET min-replicas-to-write 2 maxmemory 1000000"), ok());
    execute();
}

/// A client that was told that nothing is watched does not say that it watches nothing any more, and its connection goes on to others.
#[test]
fn who_could_not_watch_a_key_may_watch_another() {
    let mut proxied = Proxied::begin(2, &[]);
    let [gone, key] = [0, 1].map(|shard| proxied.key(shard));
    proxied.shards[0].kill();
    let mut client = proxied.proxy.connect().unwrap();
    for is_changed in [false, true] {
        assert!(is_error(&call(&mut client, &["WATCH", &gone]), "ERR proxy: no connection to the shard"));
        assert_eq!(call(&mut client, &["WATCH", &key]), ok());
        // What was watched before stays so.
        assert!(is_error(&call(&mut client, &["WATCH", &gone]), "CROSSSLOT"));
        if is_changed {
            assert_eq!(call(&mut proxied.proxy.connect().unwrap(), &["SET", &key, "2"]), ok());
        }
        assert_eq!(call(&mut client, &["MULTI"]), ok());
        assert_eq!(call(&mut client, &["SET", &key, "1"]), queued());
        let done = if is_changed { Value::NullArray } else { Value::Array(vec![ok()]) };
        assert_eq!(call(&mut client, &["EXEC"]), done);
    }
}

#[test]
fn who_sends_no_more_is_not_kept_for_a_server_that_is_not_reached() {
    // Its system takes connections, and nobody answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = silent.local_addr().unwrap().to_string();
    let proxy = Server::start(Program::Proxy(tarn_path()), &["--proxy-shards", &place]).unwrap();
    let mut client = proxy.connect().unwrap();
    client.send_request(&["BLPOP", "k", "0"]).unwrap();
    client.close_write().unwrap();
    // Who is kept until the server is given up is told that.
    let told = client.read_value();
    assert!(told.is_err(), "{told:?}");
}
