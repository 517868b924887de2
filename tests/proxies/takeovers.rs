//! A new process takes over from a proxy under load: nobody gets an error, neither who keeps its connection nor who makes new ones.

use super::Proxied;
use crate::departures::signal;
use crate::tarn_path;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use testkit::ask::{ask, call, call_line, ok, text, wait_until};
use testkit::{Client, Program, Server};
use wire::Value;

/// A proxy that can be taken over, and all that follows it needs.
struct Line {
    proxied: Proxied,
    words: Vec<String>,
    address: SocketAddr,
    dir: tempfile::TempDir,
}

impl Line {
    fn begin(directives: &[&str]) -> Line {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("proxy.sock").to_string_lossy().into_owned();
        let pidfile = dir.path().join("pid").to_string_lossy().into_owned();
        let own = ["--proxy-takeover", &path, "--pidfile", &pidfile];
        let all = [&own[..], directives].concat();
        let proxied = Proxied::of((&Program::Redis, &[]), 2, &all);
        let address = proxied.proxy.address();
        let places: Vec<String> = proxied.shards.iter().map(|shard| shard.address().to_string()).collect();
        let (shards, port) = (places.join(","), address.port().to_string());
        let words = [&all[..], &["--proxy-shards", &shards, "--port", &port]].concat();
        let words = words.into_iter().map(str::to_owned).collect();
        wait_until("it can be taken over", || Path::new(&path).exists());
        Line { proxied, words, address, dir }
    }

    fn next(&self) -> Server {
        let words: Vec<&str> = self.words.iter().map(String::as_str).collect();
        Server::start(Program::Proxy(tarn_path()), &words).unwrap()
    }

    fn connect(&self) -> Client {
        Client::connect(self.address).unwrap()
    }

    fn file(&self, flag: &str) -> &str {
        &self.words[self.words.iter().position(|word| word == flag).unwrap() + 1]
    }
}

fn count(client: &mut Client, key: &str, told: &mut i64) {
    *told += 1;
    assert_eq!(call(client, &["INCR", key]), Value::Int(*told));
}

#[test]
fn nobody_notices_a_takeover() {
    let mut line = Line::begin(&[]);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _ends = testkit::Ends(&is_over);
        let (line, is_over) = (&line, &is_over);
        for number in 0..6 {
            scope.spawn(move || {
                let (key, mut told) = (format!("k{number}"), 0);
                let mut client = line.connect();
                while !is_over.load(Ordering::Relaxed) {
                    // Half of them keep their connections for as long as they can.
                    if number % 2 == 0 || told % 50 == 49 {
                        client = line.connect();
                    }
                    count(&mut client, &key, &mut told);
                }
            });
        }
        let mut generations = Vec::new();
        for _ in 0..4 {
            generations.push(line.next());
            let newest = generations.last().unwrap();
            wait_until("it serves", || newest.output().contains("Taken over"));
            let pid = newest.pid().to_string();
            wait_until("all new connections are its", || {
                ask(&mut line.connect(), &["INFO", "server"]).contains(&format!("process_id:{pid}\r"))
            });
        }
        let mut last = generations.pop().unwrap();
        for mut older in generations {
            wait_until("it ends when nobody is left", || older.ended().unwrap().is_some());
            assert!(older.ended().unwrap().unwrap().success());
        }
        assert!(last.ended().unwrap().is_none());
        // Whoever went before has left the file with the number of the process alone.
        let pid = std::fs::read_to_string(line.file("--pidfile")).unwrap();
        assert_eq!(pid.trim(), last.pid().to_string());
        is_over.store(true, Ordering::Relaxed);
        // Clients end their last requests before it does.
        wait_until("all have gone", || {
            let clients = ask(&mut line.connect(), &["INFO", "clients"]);
            clients.contains("connected_clients:1\r")
        });
    });
    wait_until("the first has ended", || line.proxied.proxy.ended().unwrap().is_some());
}

#[test]
fn a_process_that_does_not_come_up_takes_nothing_over() {
    let line = Line::begin(&[]);
    let mut kept = line.connect();
    // It gets the sockets, and then cannot read its users.
    let mut words = line.words.clone();
    let users = line.dir.path().join("users.acl");
    std::fs::write(&users, "user somebody +nosuchcommand\n").unwrap();
    words.extend(["--aclfile".to_owned(), users.to_string_lossy().into_owned()]);
    let logfile = line.dir.path().join("log");
    words.extend(["--logfile".to_owned(), logfile.to_string_lossy().into_owned()]);
    let mut command = Command::new(tarn_path());
    command
        .arg("proxy")
        .args(&words)
        .args(["--bind", "127.0.0.1"])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    assert!(!command.status().unwrap().success());
    // Whoever has the log of all of them is told why.
    let logged = std::fs::read_to_string(&logfile).unwrap();
    assert!(logged.contains("users.acl"), "{logged}");
    let pid = std::fs::read_to_string(line.file("--pidfile")).unwrap();
    assert_eq!(pid.trim(), line.proxied.proxy.pid().to_string());
    assert_eq!(call_line(&mut kept, "SET k v"), ok());
    assert_eq!(call_line(&mut line.connect(), "GET k"), text("v"));
    wait_until("the next may come", || line.proxied.proxy.output().contains("Nobody has taken over"));
    let next = line.next();
    wait_until("it serves", || next.output().contains("Taken over"));
    assert_eq!(call_line(&mut line.connect(), "GET k"), text("v"));
    assert_eq!(call_line(&mut kept, "GET k"), text("v"));
}

#[test]
fn a_process_that_is_killed_before_it_serves_leaves_the_number_of_the_one_that_does() {
    let line = Line::begin(&[]);
    let (users, logfile) = (line.dir.path().join("users.acl"), line.dir.path().join("log"));
    // Who reads its users waits for somebody to write them: it has the sockets by then.
    assert!(Command::new("mkfifo").arg(&users).status().unwrap().success());
    let mut command = Command::new(tarn_path());
    command.arg("proxy").args(&line.words).args(["--bind", "127.0.0.1", "--aclfile"]).arg(&users);
    command.arg("--logfile").arg(&logfile).stdout(Stdio::null()).stderr(Stdio::null());
    let mut next = Supervised(command.spawn().unwrap());
    let mut writes = std::fs::OpenOptions::new().write(true).open(&users).unwrap();
    stop(&line.proxied.proxy);
    writes.write_all(b"user default on nopass ~* &* +@all\n").unwrap();
    drop(writes);
    let logged = || std::fs::read_to_string(&logfile).unwrap_or_default();
    wait_until("it is about to serve", || logged().contains("Ready to accept connections"));
    next.0.kill().unwrap();
    next.0.wait().unwrap();
    signal(&line.proxied.proxy, "-CONT");
    let pid = std::fs::read_to_string(line.file("--pidfile")).unwrap();
    assert_eq!(pid.trim(), line.proxied.proxy.pid().to_string());
    assert_eq!(call_line(&mut line.connect(), "PING"), Value::Simple(b"PONG".to_vec()));
}

#[test]
fn connections_that_are_kept_have_a_time_and_what_is_no_proxy_is_said() {
    let mut line = Line::begin(&["--proxy-drain-timeout", "1"]);
    let mut kept = line.connect();
    assert_eq!(call_line(&mut kept, "PING"), Value::Simple(b"PONG".to_vec()));
    let mut next = line.next();
    wait_until("the old one ends", || line.proxied.proxy.ended().unwrap().is_some());
    assert!(kept.read_value().is_err());
    signal(&next, "-TERM");
    wait_until("it ends", || next.ended().unwrap().is_some());
    // The file is still there, and nobody listens.
    let last = line.next();
    assert_eq!(call_line(&mut line.connect(), "PING"), Value::Simple(b"PONG".to_vec()));
    drop(last);
    let path = line.file("--proxy-takeover").to_owned();
    std::fs::remove_file(&path).unwrap();
    let other = UnixListener::bind(&path).unwrap();
    let answers = thread::spawn(move || {
        let (mut socket, _) = other.accept().unwrap();
        std::io::Write::write_all(&mut socket, b"+PONG\r\n").unwrap();
    });
    let output = Command::new(tarn_path()).arg("proxy").args(&line.words).output().unwrap();
    answers.join().unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("Taking over by") && said.contains("is no proxy"), "{said}");
}

#[test]
fn a_file_that_is_no_socket_stays_what_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("proxy.conf");
    std::fs::write(&file, "port 0\n").unwrap();
    let words = ["proxy", "--proxy-shards", "127.0.0.1:1", "--port", "0", "--proxy-takeover"];
    let output = testkit::process::bounded(tarn_path()).args(words).arg(&file).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("no socket"), "{said}");
    assert_eq!(std::fs::read(&file).unwrap(), b"port 0\n");
}

#[test]
fn a_proxy_that_drains_can_be_told_how_long() {
    let mut line = Line::begin(&[]);
    let mut kept = line.connect();
    let next = line.next();
    wait_until("it serves", || next.output().contains("Taken over"));
    thread::sleep(Duration::from_millis(1_500));
    assert!(line.proxied.proxy.ended().unwrap().is_none());
    assert!(ask(&mut kept, &["INFO", "shards"]).contains("draining:1\r"));
    assert!(ask(&mut line.connect(), &["INFO", "shards"]).contains("draining:0\r"));
    assert_eq!(call_line(&mut kept, "CONFIG SET proxy-drain-timeout 1"), ok());
    wait_until("the old one ends", || line.proxied.proxy.ended().unwrap().is_some());
}

#[test]
fn a_process_with_other_addresses_takes_nothing_over_nor_does_one_move_that_was_taken_over() {
    let line = Line::begin(&[]);
    let other = testkit::free_port().unwrap().to_string();
    let output = Command::new(tarn_path())
        .arg("proxy")
        .args(&line.words)
        .args(["--bind", "127.0.0.1", "--port", &other])
        .output()
        .unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("What runs listens at"), "{said}");
    let mut kept = line.connect();
    assert_eq!(call_line(&mut kept, "PING"), Value::Simple(b"PONG".to_vec()));
    let next = line.next();
    wait_until("it serves", || next.output().contains("Taken over"));
    assert!(matches!(call(&mut kept, &["CONFIG", "SET", "port", &other]), Value::Error(_)));
    assert_eq!(call_line(&mut line.connect(), "PING"), Value::Simple(b"PONG".to_vec()));
    // Numbers of clients of one are nobody's at the other.
    let id = call_line(&mut kept, "CLIENT ID");
    let Value::Int(id) = id else { panic!("{id:?}") };
    let redirect = ["CLIENT", "TRACKING", "ON", "REDIRECT", &id.to_string()];
    assert!(matches!(call(&mut line.connect(), &redirect), Value::Error(_)));
}

/// A process that is told where its supervisor listens.
struct Supervised(Child);

impl Supervised {
    fn begin(line: &Line, listens_at: &Path) -> Supervised {
        let mut command = Command::new(tarn_path());
        command.arg("proxy").args(&line.words).args(["--bind", "127.0.0.1", "--supervised", "systemd"]);
        command.env("NOTIFY_SOCKET", listens_at).stdout(Stdio::null()).stderr(Stdio::null());
        Supervised(command.spawn().unwrap())
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn who_supervises_is_told_which_process_is_the_main_one() {
    let mut line = Line::begin(&[]);
    let path = line.dir.path().join("notify");
    let told = UnixDatagram::bind(&path).unwrap();
    told.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let next_told = || {
        let mut text = [0; 256];
        let bytes = told.recv(&mut text).unwrap();
        String::from_utf8_lossy(&text[..bytes]).into_owned()
    };
    let is_main =
        |one: &Supervised| format!("MAINPID={}\nSTATUS=Ready to accept connections\nREADY=1", one.0.id());
    let mut first = Supervised::begin(&line, &path);
    assert_eq!(next_told(), is_main(&first));
    wait_until("the one before ends", || line.proxied.proxy.ended().unwrap().is_some());
    let second = Supervised::begin(&line, &path);
    assert_eq!(next_told(), is_main(&second));
    // Its end is not that of the service.
    wait_until("the first ends", || first.0.try_wait().unwrap().is_some());
    assert_eq!(call_line(&mut line.connect(), "PING"), Value::Simple(b"PONG".to_vec()));
    let pid = second.0.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert_eq!(next_told(), "STOPPING=1");
}

#[test]
fn who_supervises_is_told_before_the_next_may_come_and_before_the_one_that_was_ends() {
    let mut line = Line::begin(&[]);
    let path = line.dir.path().join("notify");
    let told = UnixDatagram::bind(&path).unwrap();
    // Whoever tells it something waits.
    let fills = UnixDatagram::unbound().unwrap();
    fills.set_nonblocking(true).unwrap();
    let filled = (0..).take_while(|_| fills.send_to(b"x", &path).is_ok()).count();
    let file = line.file("--proxy-takeover").to_owned();
    let listening = || std::fs::metadata(&file).unwrap().ino();
    let before = listening();
    let next = Supervised::begin(&line, &path);
    wait_until("nobody is left", || line.proxied.proxy.output().contains("0 connections are left, and"));
    assert_eq!(listening(), before, "the next one may come");
    assert!(line.proxied.proxy.ended().unwrap().is_none());
    let mut text = [0; 256];
    for _ in 0..filled {
        assert_eq!(told.recv(&mut text).unwrap(), 1);
    }
    let bytes = told.recv(&mut text).unwrap();
    let said = String::from_utf8_lossy(&text[..bytes]).into_owned();
    assert!(said.starts_with(&format!("MAINPID={}\n", next.0.id())), "{said}");
    wait_until("the next may come", || listening() != before);
    wait_until("the one before ends", || line.proxied.proxy.ended().unwrap().is_some());
    assert!(line.proxied.proxy.ended().unwrap().unwrap().success());
}

/// Has a process stand still, each of its threads.
fn stop(process: &Server) {
    signal(process, "-STOP");
    let threads = format!("/proc/{}/task", process.pid());
    let stands = |thread: &Path| std::fs::read_to_string(thread).unwrap().contains("State:\tT");
    let all = || std::fs::read_dir(&threads).unwrap();
    wait_until("it stands still", || all().all(|thread| stands(&thread.unwrap().path().join("status"))));
}

/// One that says that it takes over.
fn come(line: &Line) -> UnixStream {
    let mut one = UnixStream::connect(line.file("--proxy-takeover")).unwrap();
    let mut greeting = [0; b"tarn proxy takeover 1\n".len()];
    one.read_exact(&mut greeting).unwrap();
    one
}

#[test]
fn one_that_has_gone_takes_nothing_over_and_where_that_is_found_out_late_the_end_says_so() {
    let mut line = Line::begin(&[]);
    let mut gone = come(&line);
    stop(&line.proxied.proxy);
    gone.write_all(b"serves\n").unwrap();
    drop(gone);
    signal(&line.proxied.proxy, "-CONT");
    wait_until("it is noticed", || line.proxied.proxy.output().contains("the other process has ended"));
    assert_eq!(call_line(&mut line.connect(), "PING"), Value::Simple(b"PONG".to_vec()));
    let mut deaf = come(&line);
    deaf.shutdown(Shutdown::Read).unwrap();
    deaf.write_all(b"serves\n").unwrap();
    wait_until("it ends", || line.proxied.proxy.ended().unwrap().is_some());
    assert_eq!(line.proxied.proxy.ended().unwrap().unwrap().code(), Some(1));
}

#[test]
fn a_process_that_comes_while_the_one_before_ends_waits_for_its_end_and_serves() {
    // Where the machine has no time it has ended before that is seen.
    let is_seen = |_| {
        let mut line = Line::begin(&[]);
        let [mut client, mut other] = [0; 2].map(|_| line.connect());
        let key = line.proxied.key(0);
        assert_eq!(call(&mut client, &["SET", &key, "v"]), ok());
        signal(&line.proxied.shards[0], "-STOP");
        client.send_request(&["GET", &key]).unwrap();
        wait_until("it is under way", || ask(&mut other, &["INFO", "shards"]).contains("under_way=1"));
        signal(&line.proxied.proxy, "-TERM");
        wait_until("nobody is let in", || line.proxied.proxy.connect().is_err());
        // It has no sockets to hand over any more.
        let is_there = line.proxied.proxy.ended().unwrap().is_none();
        let mut next = line.next();
        signal(&line.proxied.shards[0], "-CONT");
        wait_until("the old one ends", || line.proxied.proxy.ended().unwrap().is_some());
        assert!(next.ended().unwrap().is_none());
        assert_eq!(call(&mut line.connect(), &["GET", &key]), text("v"));
        is_there
    };
    assert!((0..5).any(is_seen));
}
