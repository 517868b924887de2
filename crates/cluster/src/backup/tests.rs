//! A backup of a cluster that is played: what a master does at which moment is not left to chance.

use super::{Reach, manifest, taking};
use crate::asking::Entry;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;
use topology::{Edition, Place, Server, ServerId, Shard, ShardId, SlotMap, Topology};
use wire::{Decoder, Value};

/// An RDB without keys, whose sum counts for nothing.
const RDB: &[u8] = b"REDIS0009\xff\0\0\0\0\0\0\0\0";
/// What each master's stream holds between its copy and the moment.
const STREAM: &[u8] = b"*1\r\n$4\r\nPING\r\n";
/// Where each copy stands in its master's stream.
const FROM: u64 = 100;
/// What each stream is called.
const NAME: &str = "c0ffee0000000000000000000000000000000001";

/// What masters do, and have done.
#[derive(Default)]
struct Played {
    /// How many copies of the second shard break off behind the moment, when that of the first has ended there.
    breaks: u32,
    /// Whether masters want another password than they are told.
    is_closed: bool,
    /// The copy of the first shard has ended.
    has_ended: AtomicBool,
    /// How often each shard was copied.
    copies: [AtomicU32; 2],
    /// How often somebody was not let in.
    refused: AtomicU32,
}

/// Serves each connection in a thread of its own, which lives as long as the process.
fn listen(work: impl Fn(TcpStream) + Clone + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
    let port = listener.local_addr().expect("it has one").port();
    thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let work = work.clone();
            thread::spawn(move || work(socket));
        }
    });
    port
}

/// Answers requests until the connection ends: with nothing where there is nothing to be said.
fn answer(mut socket: TcpStream, mut reply: impl FnMut(&[String], &mut TcpStream) -> Option<String>) {
    let (mut decoder, mut buffer) = (Decoder::new(), [0; 4096]);
    while let Ok(count @ 1..) = socket.read(&mut buffer) {
        decoder.feed(&buffer[..count]);
        while let Some(Value::Array(words)) = decoder.decode().expect("it is a request") {
            let word = |value| match value {
                Value::Bulk(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
                other => panic!("{other:?} is no word"),
            };
            let words: Vec<String> = words.into_iter().map(word).collect();
            let Some(line) = reply(&words, &mut socket) else { continue };
            if socket.write_all(line.as_bytes()).is_err() {
                return;
            }
        }
    }
}

impl Played {
    fn master(&self, shard: usize, socket: TcpStream) {
        let mut is_first_copy = false;
        answer(socket, |words, socket| {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let reply = match words.as_slice() {
                ["REPLCONF", "ACK", ..] => return None,
                ["AUTH", ..] if self.is_closed => {
                    self.refused.fetch_add(1, Ordering::SeqCst);
                    "-WRONGPASS invalid username-password pair or user is disabled.".to_owned()
                }
                ["PSYNC", ..] => {
                    is_first_copy = shard == 0;
                    self.copy(shard, socket);
                    return None;
                }
                ["CLUSTER", "CUT", "HOLD", _] => ":1".to_owned(),
                ["CLUSTER", "CUT", "POSITION", _] => {
                    let end = FROM + STREAM.len() as u64;
                    format!("*3\r\n${}\r\n{NAME}\r\n:{end}\r\n:1", NAME.len())
                }
                ["PING"] => "+PONG".to_owned(),
                _ => "+OK".to_owned(),
            };
            Some(reply + "\r\n")
        });
        if is_first_copy {
            self.has_ended.store(true, Ordering::SeqCst);
        }
    }

    fn copy(&self, shard: usize, socket: &mut TcpStream) {
        let before = self.copies[shard].fetch_add(1, Ordering::SeqCst);
        let head = format!("+FULLRESYNC {NAME} {FROM}\r\n${}\r\n", RDB.len());
        let sent = socket.write_all(&[head.as_bytes(), RDB].concat());
        if shard == 1 && before < self.breaks {
            // It says nothing of what is before the moment until the other is whole, and ends then.
            while !self.has_ended.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(1));
            }
            let _ = socket.shutdown(std::net::Shutdown::Both);
        } else {
            let _ = sent.and_then(|()| socket.write_all(STREAM));
        }
    }
}

/// How a cluster of two shards is reached whose masters are played.
fn reach(played: &Arc<Played>) -> Reach {
    let servers = [0, 1].map(|shard| {
        let played = played.clone();
        let port = listen(move |socket| played.master(usize::from(shard), socket));
        Server {
            id: ServerId::from_bytes([shard as u8; 20]),
            host: "127.0.0.1".to_owned(),
            port,
            tls_port: 0,
            hostname: String::new(),
            zone: String::new(),
            edition: Edition::Memory,
            machine: String::new(),
            place: Some(Place { shard: ShardId(shard), node: 1 }),
            is_met: false,
        }
    });
    let shard = |id| Shard { id, epoch: 1, master: Some(1), members: [1].into(), beginner: None };
    let shards: BTreeMap<ShardId, Shard> = [0, 1].map(|id| (ShardId(id), shard(ShardId(id)))).into();
    let told = Topology {
        cluster: "c0ffee".to_owned(),
        revision: 1,
        servers: servers.into_iter().map(|server| (server.id, server)).collect(),
        shards,
        slots: SlotMap::even(&[ShardId(0), ShardId(1)]),
        ..Topology::default()
    };
    let text = told.to_text();
    let config = listen(move |socket| {
        answer(socket, |words, _| match words[0].as_str() {
            "TOPOLOGY" => Some(format!("${}\r\n{text}\r\n", text.len())),
            _ => Some("+OK\r\n".to_owned()),
        });
    });
    let servers = Entry { password: Some("secret".to_owned()), ..Entry::default() };
    Reach { places: vec![("127.0.0.1".to_owned(), config)], config: Entry::default(), servers }
}

#[test]
fn a_copy_that_breaks_off_behind_the_moment_has_another_moment_looked_for() {
    let played = Arc::new(Played { breaks: 2, ..Played::default() });
    let dir = tempfile::tempdir().expect("there is room");
    assert_eq!(taking::take(&reach(&played), dir.path()), Ok(()));
    let manifest = taking::verify(dir.path()).expect("it is whole");
    let end = FROM + STREAM.len() as u64;
    assert!(manifest.shards.iter().all(|one| (one.from, one.until) == (FROM, end)));
    // Whoever had ended at a moment that was none is copied anew, too.
    let copies = [0, 1].map(|shard: usize| played.copies[shard].load(Ordering::SeqCst));
    assert!(copies[0] >= 2 && copies[1] == 3, "{copies:?}");
}

#[test]
fn a_wrong_password_is_said_once() {
    let played = Arc::new(Played { is_closed: true, ..Played::default() });
    let dir = tempfile::tempdir().expect("there is room");
    let refused = taking::take(&reach(&played), dir.path());
    assert!(refused.is_err_and(|why| why.contains("WRONGPASS")));
    assert!(played.refused.load(Ordering::SeqCst) <= 2, "one for each shard");
    assert!(!dir.path().join(manifest::NAME).exists());
}
