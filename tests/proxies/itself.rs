//! A proxy that is named as one of the servers behind it: what it passed on would come back to it, without end.

use super::clusters::proxy_of;
use super::to_and_fro::{Said, talk};
use crate::tarn_path;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use testkit::ask::{ask, call, is_error, shown, wait_until};
use testkit::{Program, Server, free_port, process};

/// What `tarn proxy` says with these words, and whether that is an error.
fn said(words: &[&str]) -> (String, bool) {
    let output = process::bounded(tarn_path()).arg("proxy").args(words).output().unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    (out + &err, !output.status.success())
}

#[test]
fn a_proxy_that_is_named_as_a_server_behind_it_does_not_begin() {
    let port = free_port().unwrap().to_string();
    for directive in ["--proxy-shards", "--proxy-cluster", "--proxy-config-servers"] {
        for place in [format!("127.0.0.1:{port}"), format!("10.0.0.1:1,localhost:{port}")] {
            let (text, is_refused) = said(&["--port", &port, directive, &place]);
            assert!(is_refused && text.contains("this proxy itself"), "{directive} {place}: {text}");
        }
    }
    let place = format!("0-8191=10.0.0.1:1,8192-16383=0.0.0.0:{port}");
    let (text, is_refused) = said(&["--port", &port, "--bind", "*", "--proxy-shards", &place]);
    assert!(is_refused && text.contains("this proxy itself"), "{text}");
}

#[test]
fn a_server_elsewhere_is_not_taken_for_itself_where_any_address_can_be_listened_at() {
    // As where an address goes from machine to machine. Not everybody may make a network of its own to say so in.
    let any = "echo 1 > /proc/sys/net/ipv4/ip_nonlocal_bind";
    let apart = |script: &str, words: &[&str]| {
        process::bounded("unshare")
            .args(["--user", "--map-root-user", "--net", "sh", "-c", script])
            .args(words)
            .output()
    };
    if !apart(any, &[]).is_ok_and(|output| output.status.success()) {
        return eprintln!("skipped: there is no network of its own");
    }
    let run = format!("{any} && exec \"$0\" proxy --port 6400 --bind \"*\" --proxy-cluster \"$1\"");
    let said = |place: &str| {
        let output = apart(&run, &[tarn_path().to_str().unwrap(), place]).unwrap();
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat()
    };
    let text = said("192.0.2.1:6400");
    assert!(!text.contains("this proxy itself") && text.contains("192.0.2.1:6400"), "{text}");
    let text = said("127.0.0.2:6400");
    assert!(text.contains("this proxy itself"), "{text}");
}

#[test]
fn a_check_says_so_where_a_proxy_is_and_not_where_a_server_is() {
    let shard = Server::start(Program::Redis, &[]).unwrap();
    let proxy = Server::start(Program::Proxy(tarn_path()), &["--proxy-shards", &shard.address().to_string()])
        .unwrap();
    let check = |server: &Server| {
        let (port, place) = (server.address().port().to_string(), server.address().to_string());
        said(&["--check", "--bind", "127.0.0.1", "--port", &port, "--proxy-shards", &place])
    };
    let (text, is_refused) = check(&proxy);
    assert!(is_refused && text.contains("this proxy itself"), "{text}");
    // Its port is the directives' default, maybe.
    let (text, is_refused) = check(&shard);
    assert!(!is_refused && text.contains("a master"), "{text}");
}

#[test]
fn requests_do_not_go_round_where_a_cluster_tells_that_the_proxy_has_a_slot() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (node, owner) = (listener.local_addr().unwrap(), Arc::new(AtomicU16::new(0)));
    owner.store(node.port(), Ordering::SeqCst);
    let told = owner.clone();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let told = told.clone();
            thread::spawn(move || {
                talk(stream, |line| {
                    let port = told.load(Ordering::SeqCst);
                    Said::Reply(match line {
                        "CLUSTER INFO" => "$18\r\ncluster_state:ok\r\n\r\n".to_owned(),
                        "CLUSTER SLOTS" => {
                            format!("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:{port}\r\n")
                        }
                        "INFO server" => "$0\r\n\r\n".to_owned(),
                        "SELECT 0" => "+OK\r\n".to_owned(),
                        _ => format!("-MOVED 0 127.0.0.1:{port}\r\n"),
                    })
                })
            });
        }
    });
    let proxy = proxy_of(&node.to_string(), &["--databases", "1"]);
    owner.store(proxy.address().port(), Ordering::SeqCst);
    let mut client = proxy.connect().unwrap();
    let mut told = None;
    // Of slot 0.
    wait_until("it is found out", || {
        let reply = call(&mut client, &["GET", "3560"]);
        let is_found = is_error(&reply, "ERR") && shown(&reply).contains("this proxy itself");
        told = Some(reply);
        is_found
    });
    // Nobody is connected but who asks.
    wait_until("it has let itself go", || ask(&mut client, &["CLIENT", "LIST"]).lines().count() == 1);
    assert!(told.is_some_and(|reply| is_error(&reply, "ERR proxy: no connection to the shard")));
}
