//! Who waits through a proxy, and is woken, has company, or goes away, in whatever moment that is: what comes is looked for by one, a wake is never lost, and who
//! sends no more is told what a server would tell it.

use super::clusters::{begin_move, proxy_of};
use super::group_reads::begin_groups;
use super::own::await_blocked;
use super::{Proxied, rest_of};
use crate::bench_cluster::redis_cluster;
use crate::departures::signal;
use crate::tarn;
use std::io::Write;
use testkit::ask::{ask, call, call_line, is_error, shown, text, wait_until};
use testkit::{Client, Program, Server};
use wire::Value;

/// How many wait for the same.
const CROWD: usize = 40;

fn id_of(client: &mut Client) -> String {
    shown(&call_line(client, "CLIENT ID")).trim_start_matches("Int(").trim_end_matches(')').to_owned()
}

/// Waits until so many clients of a proxy wait for something.
fn await_waiting(looks: &mut Client, count: usize) {
    wait_until("they wait", || ask(looks, &["CLIENT", "LIST"]).matches("flags=b").count() == count);
}

/// Requests that wait for something of two servers: one for entries, one for what comes to them, and one for what is taken.
fn requests(keys: &[String; 2]) -> [String; 3] {
    let [a, b] = keys;
    [
        format!("XREADGROUP GROUP g one BLOCK 0 STREAMS {a} {b} > >"),
        format!("XREAD BLOCK 0 STREAMS {a} {b} $ $"),
        format!("BLPOP {{{a}}}list {{{b}}}list 0"),
    ]
}

fn send_line(client: &mut Client, line: &str) {
    client.send_request(&line.split(' ').collect::<Vec<_>>()).unwrap();
}

#[test]
fn who_is_woken_while_it_is_looked_what_there_is_waits_no_more() {
    let proxied = Proxied::of((&tarn(), &[]), 2, &[]);
    let (mut waits, mut other) = (proxied.proxy.connect().unwrap(), proxied.proxy.connect().unwrap());
    let keys = [0, 1].map(|shard| proxied.key(shard));
    begin_groups(&mut other, &keys);
    let id = id_of(&mut waits);
    for request in requests(&keys) {
        for how in [&[][..], &["ERROR"]] {
            signal(&proxied.shards[1], "-STOP");
            send_line(&mut waits, &request);
            await_waiting(&mut other, 1);
            let wake = [&["CLIENT", "UNBLOCK", &id], how].concat();
            assert_eq!(call(&mut other, &wake), Value::Int(1), "{request}");
            signal(&proxied.shards[1], "-CONT");
            match (waits.read_value().unwrap(), how.is_empty()) {
                (Value::NullArray, true) => {}
                (told, is_silent) => assert!(!is_silent && is_error(&told, "UNBLOCKED"), "{}", shown(&told)),
            }
        }
    }
    assert_eq!(call(&mut other, &["CLIENT", "UNBLOCK", &id]), Value::Int(0));
    let wrong = call(&mut other, &["CLIENT", "UNBLOCK", &id, "SOMEHOW"]);
    assert!(is_error(&wrong, "ERR CLIENT UNBLOCK reason"), "{}", shown(&wrong));
}

#[test]
fn who_is_woken_while_it_is_sent_elsewhere_waits_no_more() {
    let nodes = redis_cluster();
    let proxy = proxy_of(&nodes[0].address().to_string(), &["--databases", "1"]);
    let (mut waits, mut other) = (proxy.connect().unwrap(), proxy.connect().unwrap());
    let target = begin_move(&nodes, "q");
    // There is a connection to the target.
    assert_eq!(call(&mut other, &["RPUSH", "{q}list", "e"]), Value::Int(1));
    let taken = Value::Array(vec![text("{q}list"), text("e")]);
    assert_eq!(call(&mut waits, &["BLPOP", "{q}list", "0"]), taken);
    let id = id_of(&mut waits);
    signal(&nodes[target], "-STOP");
    send_line(&mut waits, "BLPOP {q}list 0");
    let place = nodes[target].address();
    let is_asked = |line: &str| line.contains(&format!("addr={place},")) && line.contains(",under_way=1,");
    wait_until("it is sent there", || ask(&mut other, &["INFO", "shards"]).lines().any(is_asked));
    assert_eq!(call(&mut other, &["CLIENT", "UNBLOCK", &id]), Value::Int(1));
    signal(&nodes[target], "-CONT");
    assert_eq!(waits.read_value().unwrap(), Value::NullArray);
}

/// How often servers were asked this, all together.
fn asked(proxied: &Proxied, command: &str) -> usize {
    let field = format!("cmdstat_{command}:calls=");
    let calls = |server: &Server| {
        let stats = ask(&mut server.connect().unwrap(), &["INFO", "commandstats"]);
        let line = stats.lines().find_map(|line| line.strip_prefix(&field)).map(str::to_owned);
        line.map_or(0, |line| line.split(',').next().unwrap().parse::<usize>().unwrap())
    };
    proxied.shards.iter().map(calls).sum()
}

/// Has many wait for the same of three servers, and gives them something, one after the other; each is told once. How often servers were asked this meanwhile.
fn asked_by_a_crowd(
    command: &str,
    request: impl Fn(&[String; 3]) -> String,
    give: impl Fn(&mut Client, &str),
    is_left: impl Fn(&mut Client, &str) -> bool,
) -> usize {
    let proxied = Proxied::of((&tarn(), &[]), 3, &["--threads", "2"]);
    let keys = [0, 1, 2].map(|shard| proxied.key(shard));
    let mut other = proxied.proxy.connect().unwrap();
    let mut crowd: Vec<Client> = (0..CROWD).map(|_| proxied.proxy.connect().unwrap()).collect();
    begin_groups(&mut other, &keys);
    crowd.iter_mut().for_each(|client| send_line(client, &request(&keys)));
    await_waiting(&mut other, CROWD);
    let before = asked(&proxied, command);
    for (number, key) in (1..=CROWD).zip(keys.iter().cycle()) {
        give(&mut other, key);
        await_waiting(&mut other, CROWD - number);
        assert!(!is_left(&mut other, key), "it was given to who was told");
    }
    for client in &mut crowd {
        let told = client.read_value().unwrap();
        assert!(matches!(told, Value::Array(_)), "{}", shown(&told));
    }
    asked(&proxied, command) - before
}

#[test]
fn what_comes_is_looked_for_by_one_of_those_who_wait_for_the_same() {
    let asked = asked_by_a_crowd(
        "xinfo|groups",
        |[a, b, c]| format!("XREADGROUP GROUP g one COUNT 1 BLOCK 0 STREAMS {a} {b} {c} > > >"),
        |client, key| drop(ask(client, &["XADD", key, "*", "f", "x"])),
        |_, _| false,
    );
    // Each time: one of each worker, and the next behind one of them, at three servers. All of them would be 2,400 times.
    assert!(asked < CROWD * 3 * 5, "{asked}");
    let asked = asked_by_a_crowd(
        "bexists",
        |[a, b, c]| format!("BLPOP {{{a}}}l {{{b}}}l {{{c}}}l 0"),
        |client, key| assert_eq!(call(client, &["RPUSH", &format!("{{{key}}}l"), "x"]), Value::Int(1)),
        |client, key| call(client, &["EXISTS", &format!("{{{key}}}l")]) != Value::Int(0),
    );
    assert!(asked < CROWD * 3 * 2 * 6, "{asked}");
}

#[test]
fn who_waits_behind_others_is_woken_has_its_time_and_may_go_away() {
    let proxied = Proxied::of((&tarn(), &[]), 2, &["--threads", "1"]);
    let keys = [0, 1].map(|shard| proxied.key(shard));
    let mut other = proxied.proxy.connect().unwrap();
    begin_groups(&mut other, &keys);
    for (request, give) in [
        (format!("BLPOP {{{0}}}list {{{1}}}list", keys[0], keys[1]), format!("RPUSH {{{}}}list x", keys[1])),
        (
            format!("XREADGROUP GROUP g one COUNT 1 STREAMS {0} {1} > > BLOCK", keys[0], keys[1]),
            format!("XADD {} * f x", keys[1]),
        ),
    ] {
        let wait = |time: &str| {
            let mut client = proxied.proxy.connect().unwrap();
            let line = match request.strip_suffix(" BLOCK") {
                Some(line) => line.replace("STREAMS", &format!("BLOCK {time} STREAMS")),
                None => format!("{request} {time}"),
            };
            send_line(&mut client, &line);
            client
        };
        let mut waiting: Vec<Client> = Vec::new();
        for count in 1..=5 {
            waiting.push(wait("0"));
            await_waiting(&mut other, count);
        }
        // Its time is up though the first waits on.
        let time = if request.starts_with("BLPOP") { "0.05" } else { "50" };
        assert_eq!(wait(time).read_value().unwrap(), Value::NullArray);
        let id = {
            let listed = ask(&mut other, &["CLIENT", "LIST"]);
            let address = waiting[3].stream().local_addr().unwrap().to_string();
            let line = listed.lines().find(|line| line.contains(&format!("addr={address} "))).unwrap();
            line.split(['=', ' ']).nth(1).unwrap().to_owned()
        };
        assert_eq!(call(&mut other, &["CLIENT", "UNBLOCK", &id, "ERROR"]), Value::Int(1));
        assert!(is_error(&waiting.remove(3).read_value().unwrap(), "UNBLOCKED"));
        // One in the middle and the first go away: what comes is given to those who are left.
        drop((waiting.remove(2), waiting.remove(0)));
        await_waiting(&mut other, 2);
        for _ in 0..2 {
            assert!(!is_error(&call_line(&mut other, &give), "ERR"));
        }
        for mut client in waiting {
            assert!(matches!(client.read_value().unwrap(), Value::Array(_)), "{request}");
        }
    }
}

#[test]
fn who_waits_behind_others_is_told_that_a_server_is_lost() {
    let proxied = Proxied::of((&tarn(), &[]), 2, &["--threads", "1"]);
    let keys = [0, 1].map(|shard| proxied.key(shard));
    let mut other = proxied.proxy.connect().unwrap();
    begin_groups(&mut other, &keys);
    let [entries, _, list] = requests(&keys);
    let mut waiting: Vec<Client> = (0..6).map(|_| proxied.proxy.connect().unwrap()).collect();
    for (client, request) in waiting.iter_mut().zip([&entries, &list].into_iter().cycle()) {
        send_line(client, request);
    }
    // Two at the servers, the others behind them.
    [0, 1].iter().for_each(|shard| await_blocked(&proxied, *shard, 2));
    await_waiting(&mut other, 6);
    signal(&proxied.shards[1], "-KILL");
    for client in &mut waiting {
        let told = client.read_value().unwrap();
        assert!(matches!(told, Value::Error(_)), "{}", shown(&told));
    }
}

#[test]
fn who_sends_no_more_is_told_what_is_there_and_nothing_that_it_would_wait_for() {
    let proxied = Proxied::of((&tarn(), &[]), 2, &[]);
    let alone = Server::start(Program::Redis, &[]).unwrap();
    let keys = [0, 1].map(|shard| proxied.key(shard));
    let key = &keys[1];
    let of_one = [
        format!("BLPOP {{{key}}}list 0"),
        format!("XREAD BLOCK 0 STREAMS {key} 0"),
        format!("XREADGROUP GROUP g one BLOCK 0 STREAMS {key} >"),
    ];
    let of_several = requests(&keys).map(|request| request.replace("$ $", "0 0"));
    let requests: Vec<String> = of_several.into_iter().chain(of_one).collect();
    let servers = [&proxied.proxy, &alone];
    for server in servers {
        begin_groups(&mut server.connect().unwrap(), &keys);
    }
    for is_filled in [false, true] {
        for (number, request) in (1..).zip(&requests) {
            let answers = servers.map(|server| {
                let mut client = server.connect().unwrap();
                for fill in [format!("XADD {key} {number}-1 f x"), format!("RPUSH {{{key}}}list x")] {
                    assert!(!is_filled || !is_error(&call_line(&mut client, &fill), "ERR"));
                }
                client.stream().write_all(format!("{request}\r\n").as_bytes()).unwrap();
                client.close_write().unwrap();
                rest_of(&client)
            });
            assert_eq!(answers[0], answers[1], "{request}");
            assert_eq!(answers[0].is_empty(), !is_filled, "{request}");
        }
    }
}

#[test]
fn who_sends_no_more_is_told_what_is_wrong() {
    let proxied = Proxied::of((&tarn(), &[]), 2, &[]);
    let keys = [0, 1].map(|shard| proxied.key(shard)).join(" ");
    for line in [format!("BLMPOP x 2 {keys} LEFT"), format!("BZMPOP x 2 {keys} MIN")] {
        let mut client = proxied.proxy.connect().unwrap();
        client.stream().write_all(format!("{line}\r\n").as_bytes()).unwrap();
        client.close_write().unwrap();
        let told = client.read_value().unwrap();
        assert!(is_error(&told, "ERR timeout is not a float"), "{line}: {}", shown(&told));
    }
}
