//! A proxy that may open few files: who waits has a connection to a server to itself, and takes none that everybody's requests go over, nor a client's place.

use crate::tarn_path;
use std::os::unix::fs::PermissionsExt;
use std::thread;
use testkit::ask::{ask, call, call_line, is_error, ok, shown, text, wait_until};
use testkit::{Program, Server};
use wire::Value;

/// What is left for clients, beside what a proxy in front of one server keeps for itself.
const LEFT: usize = 80;

/// A program that runs the proxy with this limit, which it may not raise.
fn limited(dir: &std::path::Path, limit: usize) -> std::path::PathBuf {
    let script = dir.join("limited");
    let tarn = tarn_path();
    let text = format!(
        "#!/bin/sh\nulimit -n {limit}\n[ $(id -u) = 0 ] || exec {tarn} \"$@\"\nexec setpriv --bounding-set -sys_resource {tarn} \"$@\"\n",
        tarn = tarn.display()
    );
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    script
}

#[test]
fn who_waits_takes_no_descriptor_from_those_who_do_not() {
    let dir = tempfile::tempdir().unwrap();
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let program = Program::Proxy(limited(dir.path(), 32 + 12 * workers + LEFT));
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
