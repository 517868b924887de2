//! A proxy that may open few files: who waits has a connection to a server to itself, and takes none that everybody's requests go over, nor a client's place.

use super::to_and_fro::{Said, talk};
use crate::tarn_path;
use std::net::TcpListener;
use std::process::Command;
use std::thread;
use testkit::ask::{ask, call, call_line, is_error, ok, shown, text, wait_until};
use testkit::{Program, Server};
use wire::{Value, key_slot};

/// What is left for clients, beside what a proxy in front of one server keeps for itself.
const LEFT: usize = 80;

/// A program that runs the proxy with this limit, as `ulimit` is told it, and may not raise a hard one.
fn limited(dir: &std::path::Path, limit: &str) -> std::path::PathBuf {
    let script = dir.join("limited");
    let tarn = tarn_path();
    let text = format!(
        "#!/bin/sh\nulimit {limit}\n[ $(id -u) = 0 ] || exec {tarn} \"$@\"\nexec setpriv --bounding-set -sys_resource {tarn} \"$@\"\n",
        tarn = tarn.display()
    );
    // What this process wrote itself a child of another test might have open still, and then it could not be run.
    let write = "printf %s \"$1\" > \"$0\" && chmod 755 \"$0\"";
    assert!(Command::new("sh").args(["-c", write]).arg(&script).arg(text).status().unwrap().success());
    script
}

#[test]
fn who_waits_takes_no_descriptor_from_those_who_do_not() {
    let dir = tempfile::tempdir().unwrap();
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let program = Program::Proxy(limited(dir.path(), &format!("-n {}", 32 + 12 * workers + LEFT)));
    let shard = Server::start(Program::Redis, &[]).unwrap();
    let words = ["--threads", "1", "--proxy-shards", &shard.address().to_string()];
    let proxy = Server::start(program, &words).unwrap();
    let mut looks = proxy.connect().unwrap();
    let maxclients = call(&mut looks, &["CONFIG", "GET", "maxclients"]);
    assert_eq!(maxclients, Value::Array(vec![text("maxclients"), text("60")]));
    let (clients, places) = (55, LEFT - 60);
    let mut waiting: Vec<_> = (0..clients).map(|_| proxy.connect().unwrap()).collect();
    for client in &mut waiting {
        client.send_request(&["BLPOP", "k", "0"]).unwrap();
    }
    let is_waiting = |looks: &mut _| ask(looks, &["CLIENT", "LIST"]).matches(" flags=b ").count();
    wait_until("the others are told", || is_waiting(&mut looks) == places);
    // The connection that all share is made anew.
    assert_eq!(call(&mut looks, &["SET", "other", "v"]), ok());
    let mut at_shard = shard.connect().unwrap();
    let shared = ask(&mut at_shard, &["CLIENT", "LIST"]);
    let shared = shared.lines().find(|line| line.contains("cmd=set ")).unwrap();
    let id = shared.split(' ').find_map(|field| field.strip_prefix("id=")).unwrap();
    assert_eq!(call(&mut at_shard, &["CLIENT", "KILL", "ID", id]), Value::Int(1));
    wait_until("it is there again", || call(&mut looks, &["GET", "other"]) == text("v"));
    // So are those who come.
    let mut newcomers: Vec<_> = (0..4).map(|_| proxy.connect().unwrap()).collect();
    for newcomer in &mut newcomers {
        assert_eq!(call(newcomer, &["GET", "other"]), text("v"));
    }
    let values: Vec<String> = (0..places).map(|number| number.to_string()).collect();
    let push = format!("RPUSH k {}", values.join(" "));
    assert_eq!(call_line(&mut looks, &push), Value::Int(places as i64));
    let told = waiting.iter_mut().map(|client| client.read_value().unwrap());
    let (refused, given): (Vec<_>, Vec<_>) = told.partition(|reply| is_error(reply, "ERR"));
    assert_eq!((refused.len(), given.len()), (clients - places, places));
    assert!(refused.iter().all(|reply| shown(reply).contains("open files")), "{}", shown(&refused[0]));
    // Who was refused may wait now.
    waiting[0].send_request(&["BLPOP", "k", "0"]).unwrap();
    wait_until("it waits", || is_waiting(&mut looks) == 1);
}

#[test]
fn who_waits_is_let_in_however_many_masters_a_cluster_has() {
    // Each as another address of this machine, where nobody is but one of them.
    const MASTERS: usize = 64;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let node = listener.local_addr().unwrap();
    let slots = wire::SLOTS / MASTERS;
    let range = |number: usize| {
        let (first, host) = (number * slots, format!("127.0.0.{}", number + 1));
        let last = first + slots - 1;
        format!("*3\r\n:{first}\r\n:{last}\r\n*2\r\n${}\r\n{host}\r\n:{}\r\n", host.len(), node.port())
    };
    let told = format!("*{MASTERS}\r\n{}", (0..MASTERS).map(range).collect::<String>());
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let told = told.clone();
            thread::spawn(move || {
                talk(stream, |line| {
                    Said::Reply(match line {
                        "CLUSTER INFO" => "$18\r\ncluster_state:ok\r\n\r\n".to_owned(),
                        "CLUSTER SLOTS" => told.clone(),
                        "INFO server" => "$0\r\n\r\n".to_owned(),
                        "CLIENT ID" => ":7\r\n".to_owned(),
                        "SELECT 0" => "+OK\r\n".to_owned(),
                        _ => "*2\r\n$1\r\nk\r\n$1\r\nv\r\n".to_owned(),
                    })
                })
            });
        }
    });
    // The first one has the key.
    let key = (0..).map(|number: u32| number.to_string()).find(|key| key_slot(key.as_bytes()) < slots as u16);
    let waits = |proxy: &Server| call(&mut proxy.connect().unwrap(), &["BLPOP", &key.clone().unwrap(), "0"]);
    let given = Value::Array(vec![text("k"), text("v")]);
    let dir = tempfile::tempdir().unwrap();
    let proxy = |limit: &str| {
        let program = Program::Proxy(limited(dir.path(), limit));
        Server::start(program, &["--maxclients", "60", "--proxy-cluster", &node.to_string()]).unwrap()
    };
    // It can be raised.
    assert_eq!(waits(&proxy("-Sn 100")), given);
    // It cannot.
    let workers = thread::available_parallelism().map_or(1, usize::from);
    assert_eq!(waits(&proxy(&format!("-n {}", 32 + 12 * workers + LEFT))), given);
}
