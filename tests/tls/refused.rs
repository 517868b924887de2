//! Who is not served: clients without the right certificate, or any sense; and servers that cannot have what they were told.

use super::{Site, free_port, tell, text};
use crate::tarn;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use testkit::Program;
use testkit::ask::{PATIENCE, ask, wait_until};
use testkit::tls::{Authority, Files, Identity, SecureClient};

/// What a client without a right to is told.
fn refusal(site: &Site, identity: Option<&Identity>) -> String {
    let told = SecureClient::connect(site.address(), identity).and_then(|mut client| client.call(&["PING"]));
    told.unwrap_err().to_string()
}

#[test]
fn clients_need_a_certificate_of_the_authority() {
    let site = Site::tarn(&[]);
    let refused = |identity| refusal(&site, identity);
    assert!(refused(None).contains("CertificateRequired"), "{}", refused(None));
    let stranger = Authority::new("another").issue("client");
    assert!(refused(Some(&stranger)).contains("UnknownCA"), "{}", refused(Some(&stranger)));
    let late = site.files.authority.issue_expired("client");
    assert!(refused(Some(&late)).contains("CertificateExpired"), "{}", refused(Some(&late)));
    let mut client = site.connect();
    assert_eq!(tell(&mut client, &["CONFIG", "SET", "tls-auth-clients", "optional"]), "OK");
    let mut without = SecureClient::connect(site.address(), None).unwrap();
    assert_eq!(tell(&mut without, &["PING"]), "PONG");
    assert!(refused(Some(&stranger)).contains("UnknownCA"));
    assert_eq!(tell(&mut client, &["CONFIG", "SET", "tls-auth-clients", "no"]), "OK");
    let mut without = SecureClient::connect(site.address(), Some(&stranger)).unwrap();
    assert_eq!(tell(&mut without, &["PING"]), "PONG");
    assert_eq!(tell(&mut client, &["PING"]), "PONG");
}

#[test]
fn those_who_do_not_speak_tls_are_told_in_tls_and_closed() {
    let site = Site::tarn(&[]);
    let mut noise = vec![0x16, 3, 1, 0x40, 0];
    noise.extend((0..0x4000u32).map(|number| (number * 7) as u8));
    let huge = [0x16, 3, 1, 0xff, 0xff].to_vec();
    for said in [
        &b"PING\r\n"[..],
        b"*1\r\n$4\r\nPING\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        &noise,
        &huge,
        b"\x15\x03\x03\x00\x02\x02\x28",
    ] {
        let mut stream = TcpStream::connect(site.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let _ = stream.write_all(said);
        let mut told = Vec::new();
        // Closed with bytes unread it may be reset.
        let _ = stream.read_to_end(&mut told);
        assert!(told.is_empty() || told[0] == 0x15, "{told:?}");
    }
    // And those who do, where it is not spoken.
    assert!(SecureClient::connect(site.server.address(), None).is_err());
    assert_eq!(tell(&mut site.connect(), &["PING"]), "PONG");
}

#[test]
fn connections_that_break_off_leave_nothing() {
    let site = Site::tarn(&[]);
    let hello = super::hello_of(&site);
    for length in [0, 1, 5, 6, 100, hello.len() - 1, hello.len()] {
        let mut stream = TcpStream::connect(site.address()).unwrap();
        stream.write_all(&hello[..length]).unwrap();
    }
    let client = site.connect();
    client.socket().shutdown(std::net::Shutdown::Both).unwrap();
    let mut other = site.connect();
    wait_until("all others are gone", || {
        tell(&mut other, &["INFO", "clients"]).contains("connected_clients:1\r\n")
    });
}

#[test]
fn an_authority_is_no_client() {
    let site = Site::tarn(&[]);
    let told = refusal(&site, Some(&site.files.authority.itself()));
    assert!(told.contains("alert"), "{told}");
}

#[test]
fn those_who_are_too_many_are_closed_without_a_word() {
    let site = Site::tarn(&["--maxclients", "1"]);
    let _client = site.connect();
    let mut stream = TcpStream::connect(site.address()).unwrap();
    let mut told = Vec::new();
    stream.read_to_end(&mut told).unwrap();
    assert_eq!(told, b"");
}

/// What the two servers answer to a change of TLS that cannot be.
#[test]
fn changes_that_cannot_be_are_refused_as_redis_refuses_them() {
    let (ours, theirs) = (Site::tarn(&[]), Site::start(Program::Redis, &[]));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    for change in [
        &["tls-port", &port][..],
        &["tls-cert-file", "/nowhere"],
        &["tls-key-file", "/nowhere"],
        &["tls-ca-cert-file", "/nowhere"],
        &["tls-ca-cert-file", ""],
        &["tls-cert-file", ""],
        &["tls-protocols", "SSLv2"],
        &["tls-ciphers", "NOSUCH"],
        &["tls-auth-clients", "perhaps"],
        &["tls-auth-clients", "no", "tls-key-file", "/nowhere"],
        &["tls-port", "65536"],
    ] {
        let request = [&["CONFIG", "SET"], change].concat();
        let [our, their] = [&ours, &theirs].map(|site| ask(&mut site.server.connect().unwrap(), &request));
        assert_eq!(our, their, "{change:?}");
        assert!(our.starts_with("ERR CONFIG SET failed"), "{change:?}: {our}");
        assert_eq!(tell(&mut ours.connect(), &["PING"]), "PONG", "{change:?}");
    }
    for (name, value) in [("tls-cert-file", "server.crt"), ("tls-ca-cert-file", "ca.crt")] {
        let answer = tell(&mut ours.connect(), &["CONFIG", "GET", name]);
        assert!(answer.contains(&ours.path(value)), "{answer}");
    }
}

#[test]
fn what_is_changed_is_kept_by_config_rewrite() {
    let files = Files::new().unwrap();
    let client = files.authority.issue("client");
    std::fs::write(files.path("tarn.conf"), "edition memory\n").unwrap();
    let path = |name: &str| files.path(name);
    let port = free_port();
    let mut words = vec![path("tarn.conf"), "--port".into(), "0".into(), "--dir".into(), path("data")];
    words.extend(["--unixsocket".into(), path("socket")]);
    let start = |words: &[String]| {
        let mut command = Command::new(program());
        command.arg("server").args(words).stdout(std::process::Stdio::null());
        command.spawn().unwrap()
    };
    let mut first = start(&words);
    let cli = |args: &[&str]| {
        text(
            &testkit::process::bounded("redis-cli")
                .args(["-s", &path("socket")])
                .args(args)
                .output()
                .unwrap(),
        )
    };
    wait_until("it is served", || cli(&["PING"]) == "PONG\n");
    let port_word = port.to_string();
    let (ca, certificate, key) = (path("ca.crt"), path("server.crt"), path("server.key"));
    let set = ["CONFIG", "SET", "tls-ca-cert-file", &ca, "tls-cert-file", &certificate];
    assert_eq!(cli(&[&set[..], &["tls-key-file", &key, "tls-port", &port_word]].concat()), "OK\n");
    assert_eq!(cli(&["CONFIG", "REWRITE"]), "OK\n");
    first.kill().unwrap();
    first.wait().unwrap();
    let mut second = start(&words);
    let address = ([127, 0, 0, 1], port).into();
    wait_until("TLS is served", || SecureClient::connect(address, Some(&client)).is_ok());
    second.kill().unwrap();
    second.wait().unwrap();
}

fn program() -> std::path::PathBuf {
    match tarn() {
        Program::Tarn(path) => path,
        _ => unreachable!("it is Tarn"),
    }
}

#[test]
fn a_start_that_cannot_have_tls_says_why_and_ends() {
    let files = Files::new().unwrap();
    let path = |name: &str| files.path(name);
    files.authority.issue("client").write(files.dir(), "client").unwrap();
    std::fs::write(path("empty"), "").unwrap();
    let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIB\n-----END ENCRYPTED PRIVATE KEY-----\n";
    std::fs::write(path("encrypted.key"), encrypted).unwrap();
    assert!(Command::new("mkfifo").arg(path("pipe")).status().unwrap().success());
    let strange = "-----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY-----\n";
    std::fs::write(path("strange.key"), strange).unwrap();
    let key = std::fs::read_to_string(path("server.key")).unwrap();
    std::fs::write(path("line.key"), key.replace('\n', "")).unwrap();
    let all = [
        ("cert-file", path("server.crt")),
        ("key-file", path("server.key")),
        ("ca-cert-file", path("ca.crt")),
    ];
    for (name, value, sentence) in [
        ("cert-file", String::new(), "No tls-cert-file configured!"),
        ("key-file", String::new(), "No tls-key-file configured!"),
        ("ca-cert-file", String::new(), "Either tls-ca-cert-file or tls-ca-cert-dir must be specified"),
        ("cert-file", path("nowhere"), "No such file"),
        ("cert-file", path("empty"), "there is no certificate in it"),
        ("key-file", path("empty"), "there is no private key in it"),
        ("key-file", path("client.key"), "do not go together"),
        ("key-file", path("encrypted.key"), "the key is encrypted"),
        ("cert-file", path("pipe"), "that is no file"),
        ("key-file", path("strange.key"), "there is no use for such a key"),
        ("key-file", path("line.key"), "its line breaks may be lost"),
        ("ca-cert-file", path("server.key"), "there is no certificate in it"),
        ("protocols", "TLSv1.1".to_owned(), "cannot be had"),
        ("ciphers", "RC4".to_owned(), "leaves no suite"),
    ] {
        let mut command = Command::new(program());
        command.args(["server", "--port", "0", "--dir", &path("data"), "--edition", "memory"]);
        command.args(["--tls-port", &free_port().to_string()]);
        for (each, usual) in &all {
            command.args([&format!("--tls-{each}"), if *each == name { &value } else { usual }]);
        }
        if !all.iter().any(|(each, _)| *each == name) {
            command.args([&format!("--tls-{name}"), &value]);
        }
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{name} {value}");
        let said = text(&output);
        let line = said.lines().find(|line| line.contains("Failed to configure TLS: ")).unwrap_or(&said);
        assert!(line.contains(sentence), "{name} {value}: {said}");
    }
}
