//! Servers behind a proxy that say what no server says, or take nothing; and clients that want more than others.

use super::slow::{introduced, place};
use crate::tarn_path;
use socket2::SockRef;
use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;
use testkit::ask::{accept, ask, is_error, shown, text};
use testkit::{Program, Server};
use wire::{Decoder, Value};

/// Reads until somebody has said this at last.
fn await_word(socket: &mut TcpStream, word: &[u8]) {
    let mut said = Vec::new();
    while !said.ends_with(word) {
        let mut piece = [0; 1 << 10];
        let read = socket.read(&mut piece).unwrap();
        assert!(read > 0, "it is said: {}", said.escape_ascii());
        said.extend_from_slice(&piece[..read]);
    }
}

#[test]
fn an_error_that_has_line_ends_is_one_line() {
    let good = Server::start(Program::Redis, &[]).unwrap();
    let (listener, place) = place();
    // Slots of b and foo: 3,300 and 12,182.
    let shards = format!("{},{place}", good.address());
    let proxy = Server::start(Program::Proxy(tarn_path()), &["--proxy-shards", &shards]).unwrap();
    let mut client = proxy.connect().unwrap();
    ask(&mut client, &["HELLO", "3"]);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut socket = accept(&listener);
            let said = b"!17\r\nNO\r\n+OK\r\n$2\r\nno\r\n\r\n";
            assert!(socket.read(&mut [0; 1 << 10]).unwrap() > 0);
            socket.write_all(said).unwrap();
        });
        client.send_request(&["GET", "foo"]).unwrap();
        client.send_request(&["SET", "b", "v"]).unwrap();
        client.send_request(&["GET", "b"]).unwrap();
        let refused = client.read_value().unwrap();
        assert!(is_error(&refused, "ERR") && shown(&refused).contains("NO  +OK  $2  no"), "{refused:?}");
        let others = [client.read_value().unwrap(), client.read_value().unwrap()];
        assert_eq!(others, [Value::Simple(b"OK".to_vec()), text("v")]);
    });
}

#[test]
fn who_takes_nothing_of_what_is_to_be_listened_to_is_lost() {
    let (listener, place) = place();
    let words = ["--proxy-shards", &place, "--proxy-shard-timeout", "1"];
    let proxy = Server::start(Program::Proxy(tarn_path()), &words).unwrap();
    let mut client = proxy.connect().unwrap();
    // More than the systems keep of what nobody takes.
    let channels: Vec<String> = (0..100).map(|number| format!("{number:060000}")).collect();
    let words: Vec<&str> = ["SUBSCRIBE"].into_iter().chain(channels.iter().map(String::as_str)).collect();
    client.send_request(&words).unwrap();
    let stands_still = introduced(&listener);
    // It is tried again then, in vain.
    let again = accept(&listener);
    drop((stands_still, again, listener));
    let reply = client.read_value().unwrap();
    assert!(is_error(&reply, "ERR proxy: no connection"), "{}", shown(&reply));
}

#[test]
fn what_is_said_of_many_channels_waits_for_answers() {
    let (listener, place) = place();
    let proxy = Server::start(Program::Proxy(tarn_path()), &["--proxy-shards", &place]).unwrap();
    let mut client = proxy.connect().unwrap();
    let channels: Vec<String> = (0..3000).map(|number| format!("channel {number:04}")).collect();
    let words: Vec<&str> = ["SUBSCRIBE"].into_iter().chain(channels.iter().map(String::as_str)).collect();
    client.send_request(&words).unwrap();
    let mut socket = introduced(&listener);
    let (mut decoder, mut piece) = (Decoder::new(), vec![0; 1 << 20]);
    let (mut asked, mut unanswered) = (BTreeSet::new(), Vec::new());
    while asked.len() < channels.len() {
        let read = socket.read(&mut piece).unwrap();
        assert!(read > 0, "it is told more");
        decoder.feed(&piece[..read]);
        while let Some(Value::Array(words)) = decoder.decode().unwrap() {
            let Value::Bulk(channel) = &words[1] else { panic!("{words:?}") };
            let channel = String::from_utf8(channel.clone()).unwrap();
            unanswered.push(format!("*3\r\n$9\r\nsubscribe\r\n${}\r\n{channel}\r\n:1\r\n", channel.len()));
            asked.insert(channel);
        }
        assert!(unanswered.len() <= 1024, "{} at once", unanswered.len());
        if unanswered.len() == 1024 || asked.len() == channels.len() {
            let answers = unanswered.concat();
            socket.write_all(answers.as_bytes()).unwrap();
            unanswered.clear();
        }
    }
    for channel in &channels {
        let Value::Array(told) = client.read_value().unwrap() else { panic!("it does not listen") };
        assert_eq!(told[1], text(channel));
    }
}

#[test]
fn no_connection_is_made_for_who_has_gone_away() {
    let (listener, place) = place();
    let words = ["--proxy-shards", &place, "--threads", "1"];
    let proxy = Server::start(Program::Proxy(tarn_path()), &words).unwrap();
    let waits = || {
        let mut client = proxy.connect().unwrap();
        client.send_request(&["BLPOP", "k", "0"]).unwrap();
        (client, accept(&listener))
    };
    // Whose connection is answered nothing at all has an end after a while, and the first one's comes first.
    let ends_first = || {
        let ((_stays, first), (goes, mut second)) = (waits(), waits());
        SockRef::from(goes.stream()).set_linger(Some(Duration::ZERO)).unwrap();
        drop(goes);
        let _ = second.read_to_end(&mut Vec::new());
        first.set_nonblocking(true).unwrap();
        let mut pieces = std::iter::repeat_with(|| (&first).read(&mut [0; 1 << 10]));
        let end = pieces.find(|piece| !matches!(piece, Ok(1..)));
        matches!(end, Some(Err(error)) if error.kind() == ErrorKind::WouldBlock)
    };
    assert!((0..3).any(|_| ends_first()), "it goes on for nobody");
}

#[test]
fn who_would_be_owed_too_much_is_closed_before_all_of_it_is_there() {
    let (listener, place) = place();
    let words =
        ["--proxy-shards", &place, "--client-output-buffer-limit", "normal 2mb 0 0", "--threads", "1"];
    let proxy = Server::start(Program::Proxy(tarn_path()), &words).unwrap();
    let mut client = proxy.connect().unwrap();
    client.send_request(&["GET", "long"]).unwrap();
    let mut socket = introduced(&listener);
    await_word(&mut socket, b"long\r\n");
    let half = vec![b'v'; 4 << 20];
    socket.write_all(format!("${}\r\n", 2 * half.len()).as_bytes()).unwrap();
    socket.write_all(&half).unwrap();
    assert_eq!(client.read_to_close().unwrap(), b"");
    // Whose reply comes behind it gets that.
    let mut other = proxy.connect().unwrap();
    other.send_request(&["GET", "other"]).unwrap();
    socket.write_all(&half).unwrap();
    await_word(&mut socket, b"other\r\n");
    socket.write_all(b"\r\n$2\r\nv2\r\n").unwrap();
    assert_eq!(other.read_value().unwrap(), text("v2"));
}
