//! What all masters of a cluster are to do while one of them is none any more: who is in its place does it, and nobody does it twice.

use super::clusters::proxy_of;
use super::to_and_fro::{Said, talk};
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use testkit::Server;
use testkit::ask::{is_error, ok, shown};

/// Three nodes that are none. Each of the first two has half of the slots, until the third is in the first one's place.
struct Nodes {
    places: Vec<String>,
    /// What they were asked, in the order in which it came: by whom.
    asked: Mutex<Vec<(usize, String)>>,
    is_switched: AtomicBool,
}

const READONLY: &str = "-READONLY You can't write against a read only replica.\r\n";

impl Nodes {
    /// A proxy in front of them. The first one is none any more when it has said so often that it writes nothing.
    fn begin(refusals: usize) -> (Arc<Nodes>, Server) {
        let listeners = [0, 1, 2].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
        let places = listeners.iter().map(|listener| listener.local_addr().unwrap().to_string());
        let nodes = Arc::new(Nodes {
            places: places.collect(),
            asked: Mutex::default(),
            is_switched: AtomicBool::new(false),
        });
        for (number, listener) in listeners.into_iter().enumerate() {
            let nodes = nodes.clone();
            thread::spawn(move || {
                for stream in listener.incoming().map_while(Result::ok) {
                    let nodes = nodes.clone();
                    thread::spawn(move || {
                        talk(stream, |line| Said::Reply(nodes.say(number, line, refusals)))
                    });
                }
            });
        }
        let proxy = proxy_of(&nodes.places[1], &["--databases", "1"]);
        (nodes, proxy)
    }

    fn say(&self, number: usize, line: &str, refusals: usize) -> String {
        match line {
            "CLUSTER INFO" => "$18\r\ncluster_state:ok\r\n\r\n".to_owned(),
            "CLUSTER SLOTS" => {
                let first = if self.is_switched.load(Ordering::SeqCst) { 2 } else { 0 };
                format!("*2\r\n{}{}", self.half(0, first), self.half(1, 1))
            }
            "INFO server" => "$0\r\n\r\n".to_owned(),
            "SELECT 0" => "+OK\r\n".to_owned(),
            line => {
                let mut asked = self.asked.lock().unwrap();
                asked.push((number, line.to_owned()));
                if number > 0 {
                    return "+OK\r\n".to_owned();
                }
                let is_switched = asked.iter().filter(|(by, _)| *by == 0).count() >= refusals;
                self.is_switched.store(is_switched, Ordering::SeqCst);
                READONLY.to_owned()
            }
        }
    }

    /// A half of the slots, and whose it is.
    fn half(&self, half: usize, owner: usize) -> String {
        let (host, port) = self.places[owner].split_once(':').unwrap();
        let (first, last) = (8192 * half, 8192 * half + 8191);
        format!("*3\r\n:{first}\r\n:{last}\r\n*2\r\n${}\r\n{host}\r\n:{port}\r\n", host.len())
    }

    /// What one of them was asked, in this order.
    fn asked_of(&self, number: usize) -> Vec<String> {
        let asked = self.asked.lock().unwrap();
        asked.iter().filter(|(by, _)| *by == number).map(|(_, line)| line.clone()).collect()
    }
}

#[test]
fn what_all_masters_do_is_done_once_by_who_is_in_the_place_of_one_that_is_none_any_more() {
    let (nodes, proxy) = Nodes::begin(3);
    let mut client = proxy.connect().unwrap();
    // Of the slots 12,182 and 866.
    for line in ["SET foo 1", "FLUSHALL", "SET hello 2", "FUNCTION FLUSH"] {
        client.send_request(&line.split(' ').collect::<Vec<_>>()).unwrap();
    }
    let replies = [0; 4].map(|_| client.read_value().unwrap());
    assert!(replies.iter().all(|reply| *reply == ok()), "{replies:?}");
    // It might be master again: it is asked until another is known.
    assert!(nodes.asked_of(0).iter().all(|line| line == "FLUSHALL"));
    assert_eq!(nodes.asked_of(1), ["SET foo 1", "FLUSHALL", "FUNCTION FLUSH"]);
    // Nothing overtakes it.
    assert_eq!(nodes.asked_of(2), ["FLUSHALL", "SET hello 2", "FUNCTION FLUSH"]);
}

#[test]
fn who_is_told_that_nobody_is_in_its_place_may_ask_again() {
    let (nodes, proxy) = Nodes::begin(usize::MAX);
    let mut client = proxy.connect().unwrap();
    client.send_request(&["FLUSHALL"]).unwrap();
    let reply = client.read_value().unwrap();
    assert!(is_error(&reply, "READONLY"), "{}", shown(&reply));
    assert_eq!(nodes.asked_of(1), ["FLUSHALL"]);
}
