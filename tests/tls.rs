//! TLS: real clients, certificates that come and go, and those who do not keep to the protocol. docs/security.md names the bounds,
//! which crates/server/tests/sessions/tls.rs holds.

mod migrated;
mod refused;

use crate::root;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Output};
use testkit::ask::{accept, ask, shown, wait_until};
use testkit::tls::{Files, Identity, SecureClient};
use testkit::{Program, Server};
use wire::Value;

/// A server with TLS, its files, and one who may come in.
pub struct Site {
    files: Files,
    client: Identity,
    server: Server,
    port: u16,
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    testkit::free_port().unwrap()
}

impl Site {
    fn start(program: Program, directives: &[&str]) -> Site {
        let (files, port) = (Files::new().unwrap(), free_port());
        let client = files.authority.issue("client");
        client.write(files.dir(), "client").unwrap();
        let mut words = vec!["--tls-port".to_owned(), port.to_string()];
        words.extend(files.directives().into_iter().flat_map(|(name, value)| [format!("--{name}"), value]));
        if let Program::Tarn(_) = program {
            words.extend(["--edition", "memory", "--loglevel", "verbose"].map(str::to_owned));
        }
        let words: Vec<&str> = words.iter().map(String::as_str).chain(directives.iter().copied()).collect();
        let server = Server::start(program, &words).unwrap();
        Site { files, client, server, port }
    }

    fn tarn(directives: &[&str]) -> Site {
        Site::start(crate::tarn(), directives)
    }

    fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    fn connect(&self) -> SecureClient {
        SecureClient::connect(self.address(), Some(&self.client)).unwrap()
    }

    fn path(&self, name: &str) -> String {
        self.files.path(name)
    }

    /// Runs one of Redis' programs with TLS.
    fn run(&self, program: &str, args: &[&str]) -> Output {
        let mut command = Command::new(program);
        command.args(["-p", &self.port.to_string(), "--tls", "--cacert", &self.path("ca.crt")]);
        command.args(["--cert", &self.path("client.crt"), "--key", &self.path("client.key")]);
        command.args(args).output().unwrap()
    }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned()
}

fn tell(client: &mut SecureClient, words: &[&str]) -> String {
    flat(&client.call(words).unwrap())
}

/// A reply as text, a line for each part.
fn flat(reply: &Value) -> String {
    match reply {
        Value::Int(number) => number.to_string(),
        Value::Array(parts) => parts.iter().map(flat).collect::<Vec<_>>().join("\n"),
        other => shown(other),
    }
}

#[test]
fn real_clients_speak_tls() {
    let site = Site::tarn(&[]);
    for version in [&[][..], &["-3"], &["--tls-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256"]] {
        assert_eq!(text(&site.run("redis-cli", &[version, &["SET", "k", "a b"]].concat())), "OK\n");
        assert_eq!(text(&site.run("redis-cli", &[version, &["GET", "k"]].concat())), "a b\n");
    }
    let report =
        text(&site.run("redis-benchmark", &["-n", "5000", "-P", "16", "-q", "-t", "ping,set,get,mset"]));
    assert!(report.contains("MSET (10 keys): ") && !report.contains("Error"), "{report}");
    let python = std::env::var("TARN_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let mut walk = testkit::process::bounded(python);
    walk.arg(root().join("tests/clients/smoke.py")).arg(site.port.to_string());
    walk.args([site.path("ca.crt"), site.path("client.crt"), site.path("client.key")]);
    let output = walk.output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
}

#[test]
fn a_load_speaks_tls() {
    let site = Site::tarn(&[]);
    let Program::Tarn(path) = crate::tarn() else { unreachable!("it is Tarn") };
    let bench = |files: &[&str]| {
        let mut command = Command::new(&path);
        command.args(["bench", "kv", "-p", &site.port.to_string(), "-n", "20000", "-P", "16", "-q"]);
        command.args(["-t", "set,get", "-d", "3000", "-c", "10"]).args(files).output().unwrap()
    };
    let (ca, certificate, key) = (site.path("ca.crt"), site.path("client.crt"), site.path("client.key"));
    for whom in [&["--cacert", &ca][..], &["--tls"]] {
        let output = bench(&[whom, &["--cert", &certificate, "--key", &key]].concat());
        let report = text(&output);
        assert!(output.status.success() && report.contains("GET: "), "{report}");
    }
    for wrong in [&["--tls"][..], &["--cacert", &certificate, "--cert", &certificate, "--key", &key], &[]] {
        let output = bench(wrong);
        assert!(!output.status.success(), "{}", text(&output));
    }
}

#[test]
fn a_report_measures_a_peer_that_speaks_tls() {
    let site = Site::tarn(&[]);
    let Program::Tarn(path) = crate::tarn() else { unreachable!("it is Tarn") };
    let (peer, out) = (format!("there=rediss://127.0.0.1:{}", site.port), site.path("report"));
    let (ca, certificate, key) = (site.path("ca.crt"), site.path("client.crt"), site.path("client.key"));
    let shortest = ["whitepaper", "--quick", "--scale", "0.01", "--chapters", "ttl", "--out", &out];
    let files = ["--peer", &peer, "--cacert", &ca, "--cert", &certificate, "--key", &key];
    let output = Command::new(&path).args([&shortest[..], &files].concat()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let page = std::fs::read_to_string(format!("{out}/report.md")).unwrap();
    assert!(page.contains("| there, measured |"), "{page}");
    let without = ["--peer", &peer, "--cert", &certificate, "--key", &key, "--cacert", &certificate];
    let output = Command::new(&path).args([&shortest[..], &without].concat()).output().unwrap();
    assert!(!output.status.success() && text(&output).contains("TLS"), "{}", text(&output));
}

#[test]
fn large_requests_and_replies_come_through_whole() {
    let site = Site::tarn(&["--threads", "1"]);
    let mut client = site.connect();
    let value: Vec<u8> = (0..5_000_000u32).map(|number| (number / 7) as u8).collect();
    assert_eq!(shown(&client.call(&[&b"SET"[..], b"k", &value]).unwrap()), "OK");
    // Nobody reads for a while: the replies are more than what sockets hold.
    client.send(&b"GET k\r\n".repeat(10)).unwrap();
    assert_eq!(tell(&mut site.connect(), &["STRLEN", "k"]), "5000000");
    for _ in 0..10 {
        assert!(matches!(client.read_value().unwrap(), Value::Bulk(found) if found == value));
    }
    // A request in many small pieces.
    for piece in b"*3\r\n$3\r\nSET\r\n$1\r\ns\r\n$5\r\npiece\r\n".chunks(2) {
        client.send(piece).unwrap();
    }
    assert_eq!(shown(&client.read_value().unwrap()), "OK");
    assert_eq!(tell(&mut client, &["GET", "s"]), "piece");
}

#[test]
fn who_says_that_nothing_more_comes_gets_its_replies_and_the_same_word() {
    let site = Site::tarn(&[]);
    let mut client = site.connect();
    client.send(&b"PING\r\n".repeat(1000)).unwrap();
    client.say_end().unwrap();
    assert_eq!(client.read_to_end().unwrap(), b"+PONG\r\n".repeat(1000));
    // After QUIT, and after CLIENT KILL, the server says so of itself.
    let mut client = site.connect();
    client.send(b"QUIT\r\n").unwrap();
    assert_eq!(client.read_to_end().unwrap(), b"+OK\r\n");
    let mut client = site.connect();
    let id = tell(&mut client, &["CLIENT", "ID"]);
    assert_eq!(tell(&mut site.connect(), &["CLIENT", "KILL", "ID", &id]), "1");
    assert_eq!(client.read_to_end().unwrap(), b"");
}

#[test]
fn connections_with_tls_move_between_workers() {
    let site = Site::tarn(&["--threads", "2"]);
    let mut clients: Vec<SecureClient> = (0..8).map(|_| site.connect()).collect();
    let mut runner = site.connect();
    // Who waited for it would be answered by nobody.
    let endless = "while true do redis.call('GET', KEYS[1]) end";
    runner.send(format!("EVAL \"{endless}\" 1 k\r\n").as_bytes()).unwrap();
    for round in 0..50 {
        for (number, client) in clients.iter_mut().enumerate() {
            let value = format!("{round} {number}").repeat(3000);
            client.send(format!("ECHO \"{value}\"\r\n").as_bytes()).unwrap();
            assert_eq!(shown(&client.read_value().unwrap()), value);
        }
    }
    wait_until("the script is ended", || tell(&mut clients[0], &["SCRIPT", "KILL"]) == "OK");
    let ended = flat(&runner.read_value().unwrap());
    assert!(ended.starts_with("ERR Script killed"), "{ended}");
    clients.iter_mut().for_each(|client| assert_eq!(tell(client, &["PING"]), "PONG"));
}

#[test]
fn sessions_are_gone_on_with_by_tickets() {
    let site = Site::tarn(&[]);
    let mut first = site.connect();
    assert_eq!(tell(&mut first, &["PING"]), "PONG");
    let mut second = first.again(site.address()).unwrap();
    assert_eq!(tell(&mut second, &["PING"]), "PONG");
    assert!(second.is_resumed());
    // Tickets of before a change are worth nothing.
    assert_eq!(tell(&mut second, &["CONFIG", "SET", "tls-session-caching", "no"]), "OK");
    let mut third = second.again(site.address()).unwrap();
    assert_eq!(tell(&mut third, &["PING"]), "PONG");
    let mut fourth = third.again(site.address()).unwrap();
    assert_eq!(tell(&mut fourth, &["PING"]), "PONG");
    assert!(!third.is_resumed() && !fourth.is_resumed());
}

#[test]
fn certificates_are_read_again_when_told() {
    let site = Site::tarn(&[]);
    let mut client = site.connect();
    let shown_by = |site: &Site| site.connect().server_certificate().unwrap();
    let first = shown_by(&site);
    site.files.authority.issue("server").write(site.files.dir(), "server").unwrap();
    assert_eq!(shown_by(&site), first, "nobody has been told");
    assert_eq!(tell(&mut client, &["CONFIG", "SET", "tls-cert-file", &site.path("server.crt")]), "OK");
    let second = shown_by(&site);
    assert_ne!(second, first);
    site.files.authority.issue("server").write(site.files.dir(), "server").unwrap();
    let pid = site.server.pid().to_string();
    assert!(Command::new("kill").args(["-HUP", &pid]).status().unwrap().success());
    wait_until("the new certificate is shown", || shown_by(&site) != second);
    // A file that does not go with the other leaves what is there.
    let third = shown_by(&site);
    std::fs::write(site.path("server.key"), &site.client.key).unwrap();
    assert!(Command::new("kill").args(["-HUP", &pid]).status().unwrap().success());
    wait_until("the log says so", || site.server.output().contains("TLS stays as it is"));
    assert_eq!(shown_by(&site), third);
    assert_eq!(tell(&mut client, &["PING"]), "PONG");
}

#[test]
fn a_certificate_says_which_user_a_client_is() {
    let site = Site::tarn(&["--tls-auth-clients-user", "CN"]);
    let mut client = site.connect();
    assert_eq!(tell(&mut client, &["ACL", "WHOAMI"]), "default");
    let log = tell(&mut client, &["ACL", "LOG"]);
    assert!(log.contains("tls-cert") && log.contains("client"), "{log}");
    assert!(tell(&mut client, &["INFO", "stats"]).contains("acl_access_denied_tls_cert:1\r\n"));
    assert_eq!(tell(&mut client, &["ACL", "SETUSER", "client", "on", "+@all", "-flushall", "~*"]), "OK");
    assert_eq!(tell(&mut site.connect(), &["ACL", "WHOAMI"]), "client");
    assert!(tell(&mut site.connect(), &["FLUSHALL"]).starts_with("NOPERM"));
    assert_eq!(tell(&mut client, &["CONFIG", "SET", "requirepass", "secret"]), "OK");
    assert_eq!(tell(&mut site.connect(), &["ACL", "WHOAMI"]), "client");
    // Who is switched off, and where nobody asks, is whoever comes without a name.
    assert_eq!(tell(&mut client, &["ACL", "SETUSER", "client", "off"]), "OK");
    assert!(tell(&mut site.connect(), &["PING"]).starts_with("NOAUTH"));
    assert_eq!(tell(&mut client, &["ACL", "SETUSER", "client", "on"]), "OK");
    assert_eq!(tell(&mut client, &["CONFIG", "SET", "tls-auth-clients-user", "off"]), "OK");
    assert!(tell(&mut site.connect(), &["PING"]).starts_with("NOAUTH"));
}

#[test]
fn the_port_moves_and_closes_and_opens_again() {
    let mut site = Site::tarn(&[]);
    let mut client = site.connect();
    let info = tell(&mut client, &["INFO", "server"]);
    let line = format!("name=tls,bind=127.0.0.1,port={}", site.port);
    assert!(info.contains(&line) && info.contains("name=tcp,"), "{info}");
    let (first, second) = (site.port, free_port());
    assert_eq!(tell(&mut client, &["CONFIG", "SET", "tls-port", &second.to_string()]), "OK");
    site.port = second;
    assert_eq!(tell(&mut site.connect(), &["PING"]), "PONG");
    assert!(SecureClient::connect(([127, 0, 0, 1], first).into(), None).is_err());
    assert_eq!(tell(&mut client, &["PING"]), "PONG");
    // The two ports change places: what listens is the same, what is spoken is not.
    let plain = site.server.address().port();
    let (plain_word, tls_word) = (plain.to_string(), second.to_string());
    assert_eq!(tell(&mut client, &["CONFIG", "SET", "port", &tls_word, "tls-port", &plain_word]), "OK");
    site.port = plain;
    assert_eq!(tell(&mut site.connect(), &["PING"]), "PONG");
    let mut plainly = testkit::Client::connect(([127, 0, 0, 1], second).into()).unwrap();
    assert_eq!(ask(&mut plainly, &["PING"]), "PONG");
    assert_eq!(tell(&mut client, &["CONFIG", "SET", "tls-port", "0"]), "OK");
    assert!(SecureClient::connect(site.address(), None).is_err());
    assert_eq!(tell(&mut client, &["PING"]), "PONG");
}

/// A storm of newcomers: those who are served already go on being served.
#[test]
fn handshakes_do_not_starve_those_who_are_served() {
    const NEWCOMERS: usize = 2000;
    let site = Site::tarn(&["--threads", "1", "--tls-session-caching", "no", "--maxclients", "5000"]);
    let mut client = site.connect();
    let hello = hello_of(&site);
    let mut newcomers = Vec::new();
    for _ in 0..NEWCOMERS {
        newcomers.push(std::net::TcpStream::connect(site.address()).unwrap());
    }
    newcomers.iter_mut().for_each(|stream| stream.write_all(&hello).unwrap());
    let answered = std::thread::spawn(move || {
        newcomers.iter_mut().for_each(|stream| stream.read_exact(&mut [0]).unwrap());
    });
    let mut count = 0;
    while !answered.is_finished() {
        assert_eq!(tell(&mut client, &["PING"]), "PONG");
        count += 1;
    }
    answered.join().unwrap();
    // Were they served as they come, there would be a look at the sockets after every sixty of them or so.
    assert!(count > 100, "{count} requests beside {NEWCOMERS} handshakes");
}

/// What a client says first.
fn hello_of(site: &Site) -> Vec<u8> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, identity) = (listener.local_addr().unwrap(), site.client.clone());
    let client = std::thread::spawn(move || drop(SecureClient::connect(address, Some(&identity))));
    let mut bytes = vec![0; 4096];
    let mut stream = accept(&listener);
    let count = stream.read(&mut bytes).unwrap();
    drop(stream);
    client.join().unwrap();
    bytes.truncate(count);
    bytes
}
