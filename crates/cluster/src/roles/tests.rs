//! Words that make no sense are refused with a sentence, before anything is begun.

use super::{config_server, operator};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn what_makes_no_sense_is_refused_with_a_sentence() {
    for (line, part) in [
        ("", "--store is needed"),
        ("--store", "needs a value"),
        ("--store file:x", "dir:PATH or etcd:URL"),
        ("--store etcd:", "dir:PATH or etcd:URL"),
        ("--store etcd:ftp://x", "is no address of etcd"),
        ("--store etcd:http://x --store-cert a", "go together"),
        ("--store etcd:http://x:1 --store-ca /nowhere", "cannot read /nowhere"),
        ("--port x", "wants a number"),
        ("--store etcd:http://x:1 --port 0", "wants a --tls-port"),
        ("--store etcd:http://x:1 --tls-cluster yes", "wants a --tls-port"),
        ("--store etcd:http://x:1 --tls-cert-file a", "wants a --tls-port"),
        ("--store etcd:http://x:1 --tls-port 7900", "are the same"),
        ("--store etcd:http://x:1 --tls-port 7901", "Either tls-ca-cert-file or tls-ca-cert-dir"),
        ("--tls-cluster maybe", "is yes or no"),
        ("--tls-auth-clients maybe", "is yes, no or optional"),
        ("--tls-ports 1", "no option --tls-ports"),
        ("--port 65536", "wants a number"),
        ("--copies 0", "1 to 9 copies"),
        ("--copies 10", "1 to 9 copies"),
        ("--copies 1000", "1 to 9 copies"),
        ("--copies x", "is no number"),
        ("--copies 1", "--store is needed"),
        ("--copies 9", "--store is needed"),
        ("--shards 65535", "shards"),
        ("--shards x", "is no number"),
        ("--leader-lease 10", "wants a number"),
        ("--replace-after 7", "8 seconds or more"),
        ("--replace-after 7999ms", "8 seconds or more"),
        ("--replace-after 10m", "8 seconds or more"),
        ("--what 1", "no option --what"),
        ("-p 1", "no option -p"),
        ("word", "one word too many"),
        ("--store etcd:http://x:1 --cluster-name a/b", "--cluster-name"),
        ("--store etcd:http://x:1 --announce :1", "--announce wants"),
        ("--store etcd:http://x:1 --bind 0.0.0.0", "--announce HOST is needed"),
        ("--store etcd:http://x:1 --bind :: --bind 127.0.0.1", "--announce HOST is needed"),
        ("--store etcd:http://x:1 --announce [::]:7900", "--announce HOST is needed"),
    ] {
        let refused = config_server::run(&words(line)).expect_err(line);
        assert!(refused.contains(part) && !refused.contains('\n'), "{line}: {refused}");
    }
    for (line, part) in [
        ("", "what is to be done"),
        ("down", "no command"),
        ("switch", "wants other words"),
        ("remove-shard", "wants other words"),
        ("promote 0", "wants other words"),
        ("promote 0 x", "say --accept-loss"),
        ("promote 0 x --gone", "needs a value"),
        ("status --tls", "no authority is named"),
        ("status --tls --cacert /nowhere", "tls-ca-cert-file /nowhere"),
        ("status --cert a", "go with --tls"),
        ("move-slots 1", "wants other words"),
        ("rebalance 1", "wants other words"),
        ("rebalance --by", "needs a value"),
        ("cancel-move", "wants other words"),
        ("status now", "wants other words"),
        ("status --config a:b", "--config wants"),
        ("status --config", "needs a value"),
        ("status --loud", "no option --loud"),
        ("status --config 127.0.0.1:1", "is not reached"),
        ("up --shards 0", "wants a number"),
        ("up --shards 65535", "not so many numbers of shards"),
        ("up --copies 0 --dir /nowhere/at/all", "1 to 9 copies"),
        ("up --copies 10 --dir /nowhere/at/all", "1 to 9 copies"),
        ("up --copies 1000 --dir /nowhere/at/all", "1 to 9 copies"),
        ("up --copies 70000 --dir /nowhere/at/all", "1 to 9 copies"),
        ("up --copies x --dir /nowhere/at/all", "is no number"),
        ("up --copies 9 --config-port 7026 --dir /nowhere/at/all", "is one of the servers'"),
        ("up --edition big", "--edition is"),
        ("up --port 65000 --shards 1000 --dir /nowhere/at/all", "there are no 2000 ports"),
        ("up --config-port 7003 --dir /nowhere/at/all", "is one of the servers'"),
        ("up word", "one word too many"),
    ] {
        let refused = operator::run(&words(line)).expect_err(line);
        assert!(refused.contains(part) && !refused.contains('\n'), "{line}: {refused}");
    }
}

/// What was meant to be looked at only is not done, nor is what was meant for elsewhere.
#[test]
fn an_option_of_another_command_is_refused_before_anybody_is_asked() {
    for line in [
        "remove-shard 2 --dry-run",
        "move-slots 1 0-99 --dry-run",
        "move-slots 1 0-99 --to 2",
        "promote 0 x --accept-loss --dry-run",
        "restore DIR --dry-run",
        "restore DIR --no-wait",
        "backup DIR --json",
        "remove-server x --accept-loss",
        "switch 0 --from x",
        "switch 0 --gone x",
        "rebalance --json",
        "set copies 2 --force",
        "add-shard --by keys",
        "cancel-move 1 --force",
        "status --server-user x",
        "status --verify",
        "topology --json",
    ] {
        let words = words(&format!("{line} --config 127.0.0.1:1"));
        let stray = words.iter().rev().skip(2).find(|word| word.starts_with("--")).expect("there is one");
        assert_eq!(operator::run(&words), Err(format!("'{}' takes no {stray}; see --help", words[0])));
    }
    for line in ["status --json", "moves --json", "switch 0 --to x", "remove-server x --force", "add-shard"] {
        let refused = operator::run(&words(&format!("{line} --config 127.0.0.1:1"))).expect_err(line);
        assert!(refused.contains("is not reached"), "{line}: {refused}");
    }
}

/// Another config server is asked where there is one.
#[test]
fn a_status_that_lacks_what_the_leader_hears_is_not_the_best() {
    for (status, is_of_now) in [
        (r#"{ "store": "ok", "is_of_leader": true }"#, true),
        (r#"{ "store": "ok" }"#, true),
        (r#"{ "store": "ok", "is_of_leader": false }"#, false),
        (r#"{ "store": "it is away", "is_of_leader": true }"#, false),
    ] {
        assert_eq!(operator::is_of_now(status), is_of_now, "{status}");
    }
}

/// A config server that tells its users bit by bit, with a pause in front of each.
fn slow_config_server(bits: u64, pause: Duration) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
    let place = listener.local_addr().expect("it has one").to_string();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let (Ok(mut socket), mut buffer) = (socket, [0; 1024]) else { continue };
            while let Ok(count @ 1..) = socket.read(&mut buffer) {
                if buffer[..count].ends_with(b"PING\r\n") {
                    let _ = socket.write_all(b"+PONG\r\n");
                    continue;
                }
                let line = "user alice on\n";
                let _ = socket.write_all(format!("${}\r\n", bits * line.len() as u64).as_bytes());
                for _ in 0..bits {
                    std::thread::sleep(pause);
                    // Who asked may have gone.
                    let _ = socket.write_all(line.as_bytes());
                }
                let _ = socket.write_all(b"\r\n");
            }
        }
    });
    place
}

#[test]
fn a_long_list_of_users_may_take_as_long_as_some_of_it_comes() {
    // Longer together than an answer may take that another config server could give.
    let place = slow_config_server(12, Duration::from_millis(400));
    let listed = operator::run(&words(&format!("users list --config {place},127.0.0.1:1")));
    assert_eq!(listed, Ok(()));
}
