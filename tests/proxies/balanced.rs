//! Two proxies behind HAProxy, by the file that docs/proxy.md shows: one address, whichever of them is there.

use super::Proxied;
use crate::departures::signal;
use crate::{root, tarn_path};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use testkit::ask::{ask, call, ok, text, wait_until};
use testkit::{Client, Program, Server, free_port};
use wire::Value;

/// HAProxy. It ends with its handle.
struct Balancer {
    child: Child,
    port: u16,
    _dir: tempfile::TempDir,
}

impl Balancer {
    fn begin(proxies: [&Server; 2]) -> Balancer {
        let page = std::fs::read_to_string(root().join("docs/proxy.md")).unwrap();
        let file: Vec<&str> = page
            .lines()
            .skip_while(|line| *line != "```haproxy")
            .skip(1)
            .take_while(|line| *line != "```")
            .collect();
        let (dir, port) = (tempfile::tempdir().unwrap(), free_port().unwrap());
        let mut text =
            format!("{}\n", file.join("\n")).replace("10.0.0.10:6379", &format!("127.0.0.1:{port}"));
        for (place, proxy) in ["10.0.0.11:6400", "10.0.0.12:6400"].iter().zip(proxies) {
            assert!(text.contains(place), "{text}");
            text = text.replace(place, &proxy.address().to_string());
        }
        let path = dir.path().join("haproxy.cfg");
        std::fs::write(&path, text).unwrap();
        let child = Command::new("haproxy")
            .arg("-db")
            .arg("-f")
            .arg(&path)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("there is HAProxy");
        let balancer = Balancer { child, port, _dir: dir };
        wait_until("it serves", || balancer.serves());
        balancer
    }

    fn connect(&self) -> std::io::Result<Client> {
        Client::connect(([127, 0, 0, 1], self.port).into())
    }

    fn serves(&self) -> bool {
        let served = self.connect().and_then(|mut client| {
            client.send_request(&["PING"])?;
            client.read_value()
        });
        matches!(served, Ok(Value::Simple(_)))
    }

    /// Counts a key up until it is told to end, over a new connection where one has ended; gives what it was told last, how often it was told nothing, and how often
    /// that was by a connection that had served it.
    fn count(&self, key: &str, is_over: &AtomicBool) -> (i64, i64, i64) {
        let (mut told, mut unknown, mut ends) = (0, 0, 0);
        while !is_over.load(Ordering::Relaxed) {
            let Ok(mut client) = self.connect() else { continue };
            let mut has_served = false;
            while !is_over.load(Ordering::Relaxed) {
                let asked = client.send_request(&["INCR", key]).and_then(|()| client.read_value());
                match asked {
                    Ok(Value::Int(count)) => {
                        assert!((told + 1..=told + 1 + unknown).contains(&count), "{count} behind {told}");
                        unknown -= count - 1 - told;
                        told = count;
                        has_served = true;
                    }
                    Ok(other) => panic!("{other:?}"),
                    Err(_) => {
                        unknown += 1;
                        ends += i64::from(has_served);
                        break;
                    }
                }
            }
        }
        (told, unknown, ends)
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn clients_of_one_address_are_served_while_proxies_come_and_go() {
    let Proxied { shards, proxy } = Proxied::begin(2, &[]);
    let places: Vec<String> = shards.iter().map(|shard| shard.address().to_string()).collect();
    let options = ["--proxy-shards", &places.join(",")];
    let other = Server::start(Program::Proxy(tarn_path()), &options).unwrap();
    let mut proxies = [proxy, other];
    let balancer = Balancer::begin([&proxies[0], &proxies[1]]);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _ends = testkit::Ends(&is_over);
        let (balancer, is_over) = (&balancer, &is_over);
        let clients: Vec<_> = (0..4)
            .map(|number| scope.spawn(move || balancer.count(&format!("n{number}"), is_over)))
            .collect();
        let mut client = balancer.connect().unwrap();
        wait_until("all count", || {
            (0..4).all(|number| ask(&mut client, &["GET", &format!("n{number}")]) != "(nil)")
        });
        // One is brought down as for a new version, and the other is killed when that one is back.
        signal(&proxies[0], "-TERM");
        wait_until("it ends", || proxies[0].ended().unwrap().is_some());
        wait_until("the other serves", || balancer.serves());
        let before: i64 = ask(&mut proxies[1].connect().unwrap(), &["GET", "n0"]).parse().unwrap();
        wait_until("it goes on", || {
            ask(&mut proxies[1].connect().unwrap(), &["GET", "n0"]).parse::<i64>().unwrap() > before
        });
        let address = proxies[0].address();
        let again = Server::start(
            Program::Proxy(tarn_path()),
            &[&options[..], &["--port", &address.port().to_string()]].concat(),
        )
        .unwrap();
        let process = format!("process_id:{}\r", again.pid());
        wait_until("it is served by", || {
            let info = balancer.connect().and_then(|mut client| client.call(&["INFO", "server"]));
            matches!(info, Ok(Value::Bulk(info)) if String::from_utf8_lossy(&info).contains(&process))
        });
        proxies[1].kill();
        wait_until("the first serves", || balancer.serves());
        is_over.store(true, Ordering::Relaxed);
        let mut client = Client::connect(address).unwrap();
        for (number, counted) in clients.into_iter().enumerate() {
            let (told, unknown, ends) = counted.join().unwrap();
            let count: i64 = ask(&mut client, &["GET", &format!("n{number}")]).parse().unwrap();
            assert!((told..=told + unknown).contains(&count), "{count}, told {told}, unknown {unknown}");
            assert!(told > 0 && ends <= 4, "each end of a proxy costs a client one reply at most: {ends}");
        }
    });
}

#[test]
fn a_message_is_heard_at_whichever_proxy() {
    let Proxied { shards, proxy } = Proxied::begin(2, &[]);
    let places: Vec<String> = shards.iter().map(|shard| shard.address().to_string()).collect();
    let other = Server::start(Program::Proxy(tarn_path()), &["--proxy-shards", &places.join(",")]).unwrap();
    let mut listener = proxy.connect().unwrap();
    listener.send_request(&["SUBSCRIBE", "c"]).unwrap();
    listener.read_value().unwrap();
    let mut client = other.connect().unwrap();
    assert_eq!(call(&mut client, &["SET", "k", "v"]), ok());
    assert_eq!(call(&mut client, &["PUBLISH", "c", "said"]), Value::Int(1));
    assert_eq!(listener.read_value().unwrap(), Value::Array(["message", "c", "said"].map(text).to_vec()));
}

#[test]
fn who_comes_while_a_proxy_ends_is_refused_at_once() {
    // Where the machine has no time it has ended before that is seen.
    let is_seen = |_| {
        let mut proxied = Proxied::begin(1, &[]);
        let [mut client, mut other] = [0; 2].map(|_| proxied.proxy.connect().unwrap());
        assert_eq!(call(&mut client, &["SET", "k", "v"]), ok());
        signal(&proxied.shards[0], "-STOP");
        client.send_request(&["GET", "k"]).unwrap();
        wait_until("it is under way", || ask(&mut other, &["INFO", "shards"]).contains("under_way=1"));
        signal(&proxied.proxy, "-TERM");
        wait_until("nobody is let in", || proxied.proxy.connect().is_err());
        proxied.proxy.ended().unwrap().is_none()
    };
    assert!((0..5).any(is_seen));
}

#[test]
fn who_is_served_stays_where_no_more_clients_are_let_in() {
    let Proxied { shards, proxy } = Proxied::begin(1, &["--maxclients", "8"]);
    let options = ["--proxy-shards", &shards[0].address().to_string(), "--maxclients", "8"];
    let proxies = [proxy, Server::start(Program::Proxy(tarn_path()), &options).unwrap()];
    let balancer = Balancer::begin([&proxies[0], &proxies[1]]);
    let mut clients = [0; 4].map(|_| balancer.connect().unwrap());
    clients.iter_mut().for_each(|client| drop(call(client, &["PING"])));
    for proxy in &proxies {
        let (mut client, mut others, mut refused) = (proxy.connect().unwrap(), Vec::new(), 0);
        let refused_by_it = |client: &mut Client| -> usize {
            let info = ask(client, &["INFO", "stats"]);
            let told = info.lines().find_map(|line| line.strip_prefix("rejected_connections:"));
            told.unwrap().parse().unwrap()
        };
        let begun = refused_by_it(&mut client);
        // Twice the check has been refused, as whoever came meanwhile.
        wait_until("the balancer has found it full", || {
            let mut other = proxy.connect().unwrap();
            match other.call(&["PING"]) {
                Ok(Value::Simple(_)) => others.push(other),
                _ => refused += 1,
            }
            refused_by_it(&mut client) >= begun + refused + 3
        });
    }
    for client in &mut clients {
        assert_eq!(call(client, &["PING"]), Value::Simple(b"PONG".to_vec()));
    }
}
