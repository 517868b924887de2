//! What a proxy asks of several servers for one request: the replies are those of one server with all keys.

use super::{Proxied, sorted};
use crate::tarn;
use testkit::Client;
use testkit::ask::{ask, call, call_line, is_error, ok, shown};
use wire::Value;

/// One step of a SCAN: the cursor to go on with, and the keys.
fn scan(client: &mut Client, cursor: &str, options: &[&str]) -> (String, Vec<String>) {
    let reply = call(client, &[&["SCAN", cursor], options].concat());
    let Value::Array(reply) = reply else { panic!("{reply:?}") };
    (shown(&reply[0]), sorted(reply[1].clone()))
}

/// All keys that SCAN lists, each once, in order.
fn scan_all(client: &mut Client, options: &[&str]) -> Vec<String> {
    let (mut cursor, mut seen) = ("0".to_owned(), Vec::new());
    loop {
        let (next, keys) = scan(client, &cursor, options);
        seen.extend(keys);
        if next == "0" {
            break;
        }
        cursor = next;
    }
    seen.sort();
    seen.dedup();
    seen
}

#[test]
fn a_small_keyspace_is_listed_with_one_scan() {
    let proxied = Proxied::begin(3, &[]);
    let mut client = proxied.proxy.connect().unwrap();
    let end = |keys: &[&str]| ("0".to_owned(), keys.iter().map(|key| (*key).to_owned()).collect());
    for protocol in ["3", "2"] {
        ask(&mut client, &["HELLO", protocol]);
        assert_eq!(call(&mut client, &["FLUSHALL"]), ok());
        assert_eq!(scan(&mut client, "0", &[]), end(&[]));
        assert_eq!(call(&mut client, &["MSET", "a", "1", "b", "2", "c", "3", "d", "4"]), ok());
        assert_eq!(call(&mut client, &["LPUSH", "l", "x"]), Value::Int(1));
        assert_eq!(scan(&mut client, "0", &[]), end(&["a", "b", "c", "d", "l"]));
        assert_eq!(scan(&mut client, "0", &["MATCH", "[bl]"]), end(&["b", "l"]));
        assert_eq!(scan(&mut client, "0", &["COUNT", "100", "TYPE", "list"]), end(&["l"]));
        for line in ["SCAN x", "SCAN 0 COUNT 0", "SCAN 0 COUNT x", "SCAN 0 MATCH", "SCAN -1 NOSUCH 1"] {
            assert!(is_error(&call_line(&mut client, line), "ERR"), "{line}");
        }
    }
    let names: Vec<String> = (0..500).map(|number| format!("k{number}")).collect();
    for name in &names {
        assert_eq!(call(&mut client, &["SET", name, ""]), ok());
    }
    let (cursor, found) = scan(&mut client, "0", &[]);
    assert!(cursor != "0" && found.len() < 100, "it goes on while too little was found: {}", found.len());
    assert_eq!(scan_all(&mut client, &["COUNT", "7"]).len(), 505);
    assert_eq!(scan_all(&mut client, &["COUNT", "1000", "MATCH", "k*"]).len(), 500);
}

#[test]
fn a_scan_goes_through_any_number_of_servers() {
    let proxied = Proxied::of((&tarn(), &["--edition", "memory", "--threads", "1"]), 16, &[]);
    let mut client = proxied.proxy.connect().unwrap();
    let names: Vec<String> = (0..1_000).map(|number| format!("k{number}")).collect();
    let pairs: Vec<&str> = names.iter().flat_map(|name| [name.as_str(), "v"]).collect();
    assert_eq!(call(&mut client, &[&["MSET"], &pairs[..]].concat()), ok());
    let mut expected = names.clone();
    expected.sort();
    for count in ["1", "10", "300"] {
        assert_eq!(scan_all(&mut client, &["COUNT", count]), expected, "COUNT {count}");
    }
}
