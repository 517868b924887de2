//! MIGRATE with TLS, which it speaks where `tls-cluster` is on, as a Redis does.

use super::{Site, flat};
use testkit::ask::ask;
use testkit::{Client, Program};

/// Has a site speak with others by the files of this one.
fn speak_with(from: &Site, to: &Site) -> Client {
    let mut client = from.server.connect().unwrap();
    let (ca, certificate, key) = (to.path("ca.crt"), to.path("client.crt"), to.path("client.key"));
    let files = ["tls-client-cert-file", &certificate, "tls-client-key-file", &key];
    let set = [&["CONFIG", "SET", "tls-cluster", "yes", "tls-ca-cert-file", &ca][..], &files].concat();
    assert_eq!(ask(&mut client, &set), "OK");
    client
}

fn migrate(client: &mut Client, port: u16, keys: &[&str]) -> String {
    let port = port.to_string();
    let request = [&["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"], keys].concat();
    ask(client, &request)
}

#[test]
fn keys_go_to_other_servers_over_tls() {
    for program in [crate::tarn(), Program::Redis] {
        let (from, to) = (Site::tarn(&[]), Site::start(program, &[]));
        let mut client = speak_with(&from, &to);
        let large = "x".repeat(3_000_000);
        assert_eq!(ask(&mut client, &["MSET", "a", "1", "large", &large]), "OK");
        assert_eq!(migrate(&mut client, to.port, &["a", "large"]), "OK");
        let mut there = to.connect();
        assert_eq!(flat(&there.call(&["STRLEN", "large"]).unwrap()), "3000000");
        assert_eq!(flat(&there.call(&["GET", "a"]).unwrap()), "1");
        assert_eq!(ask(&mut client, &["GET", "a"]), "Null");
    }
}

#[test]
fn who_cannot_be_trusted_gets_no_keys() {
    let (to, other) = (Site::tarn(&[]), Site::tarn(&[]));
    let sites = [Site::tarn(&[]), Site::start(Program::Redis, &[])];
    let [ours, theirs] = sites.each_ref().map(|from| {
        let mut client = speak_with(from, &to);
        assert_eq!(ask(&mut client, &["SET", "k", "v"]), "OK");
        // TLS is spoken there, by somebody whom nobody vouches for; it is not spoken there; nobody is there.
        let ports = [other.port, to.server.address().port(), super::free_port()];
        let said = ports.map(|port| migrate(&mut client, port, &["k"]));
        assert_eq!(ask(&mut client, &["GET", "k"]), "v");
        said
    });
    assert_eq!(ours, theirs);
    assert!(ours.iter().all(|said| said.starts_with("IOERR error or timeout")), "{ours:?}");
}
