//! Servers behind a proxy that are spoken to by TLS.

use crate::tarn_path;
use std::process::Command;
use testkit::ask::{ask, call, ok, text, wait_until};
use testkit::tls::Files;
use testkit::{Program, Server, free_port};
use wire::Value;

/// The directives by which a server, or a proxy, has these.
pub(super) fn words(files: &Files) -> Vec<String> {
    files.directives().into_iter().flat_map(|(name, value)| [format!("--{name}"), value]).collect()
}

#[test]
fn servers_are_spoken_to_by_tls() {
    let files = Files::new().unwrap();
    for program in [Program::Redis, crate::tarn()] {
        let ports = [free_port().unwrap(), free_port().unwrap()];
        let shards = ports.map(|port| {
            let own = [words(&files), vec!["--tls-port".to_owned(), port.to_string()]].concat();
            Server::start(program.clone(), &own.iter().map(String::as_str).collect::<Vec<_>>()).unwrap()
        });
        let places = ports.map(|port| format!("127.0.0.1:{port}")).join(",");
        let own = [vec!["--proxy-shards".to_owned(), places], words(&files)].concat();
        let own: Vec<&str> = own.iter().map(String::as_str).chain(["--tls-cluster", "yes"]).collect();
        let proxy = Server::start(Program::Proxy(tarn_path()), &own).unwrap();
        let mut client = proxy.connect().unwrap();
        let long = "x".repeat(3_000_000);
        for number in 0..200 {
            client.send_request(&["SET", &format!("k{number}"), &format!("{number}")]).unwrap();
        }
        (0..200).for_each(|_| assert_eq!(client.read_value().unwrap(), ok()));
        assert_eq!(call(&mut client, &["SET", "long", &long]), ok());
        assert_eq!(call(&mut client, &["GET", "long"]), text(&long));
        assert_eq!(call(&mut client, &["DBSIZE"]), Value::Int(201));
        assert_eq!(call(&mut client, &["BLPOP", "none", "0.01"]), Value::NullArray);
        let mut listener = proxy.connect().unwrap();
        listener.send_request(&["SUBSCRIBE", "c"]).unwrap();
        listener.read_value().unwrap();
        assert_eq!(call(&mut client, &["PUBLISH", "c", "said"]), Value::Int(1));
        assert_eq!(listener.read_value().unwrap(), Value::Array(["message", "c", "said"].map(text).to_vec()));
        for shard in &shards {
            wait_until("keys are there", || ask(&mut shard.connect().unwrap(), &["DBSIZE"]) != "0");
        }
    }
}

#[test]
fn tls_without_certificates_is_told_of() {
    for shards in ["--proxy-shards", "--proxy-cluster"] {
        let words = ["proxy", shards, "127.0.0.1:1", "--tls-cluster", "yes"];
        let done = Command::new(tarn_path()).args(words).output().unwrap();
        let told = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(!done.status.success() && told.contains("tls-ca-cert-file"), "{told}");
    }
}

#[test]
fn what_is_wrong_with_a_certificate_is_told() {
    let [files, others] = [0; 2].map(|_| Files::new().unwrap());
    let port = free_port().unwrap().to_string();
    let own = [words(&files), vec!["--tls-port".to_owned(), port.clone()]].concat();
    let own: Vec<&str> = own.iter().map(String::as_str).collect();
    let _shard = Server::start(Program::Redis, &own).unwrap();
    let place = format!("127.0.0.1:{port}");
    let own = words(&others);
    let own = [
        &["--proxy-shards", &place, "--tls-cluster", "yes"],
        &own.iter().map(String::as_str).collect::<Vec<_>>()[..],
    ]
    .concat();
    let proxy = Server::start(Program::Proxy(tarn_path()), &own).unwrap();
    let told = ask(&mut proxy.connect().unwrap(), &["GET", "k"]);
    assert!(told.contains("invalid peer certificate"), "{told}");
    proxy.await_output(&["No connection to", "invalid peer certificate"]);
}
