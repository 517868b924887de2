//! What a replica shows while a full copy comes, and where that breaks off.

use crate::replicas::follow;
use crate::{info, tarn};
use std::time::{Duration, Instant};
use testkit::ask::{ask, call, text, wait_until};
use testkit::relay::Way;
use testkit::{Client, Relay, Server};
use wire::Value;

fn field(client: &mut Client, name: &str) -> String {
    let all = ask(client, &["INFO", "replication"]);
    let line = all.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_default().to_owned()
}

/// What a replica shows while its copy comes, whatever `repl-diskless-load` says: what it had, also where the copy breaks off. Then the copy takes
/// the place of all, while clients are told LOADING.
#[test]
fn what_was_there_is_served_while_a_copy_comes() {
    for setting in ["disabled", "on-empty-db", "swapdb"] {
        let master =
            Server::start(tarn(), &["--edition", "memory", "--enable-debug-command", "yes"]).unwrap();
        call(&mut master.connect().unwrap(), &["DEBUG", "POPULATE", "3000", "new", "1000"]);
        let relay = Relay::to(master.address()).unwrap();
        let replica =
            Server::start(tarn(), &["--edition", "memory", "--repl-diskless-load", setting]).unwrap();
        let mut client = replica.connect().unwrap();
        call(&mut client, &["SET", "old", "data"]);
        let is_coming = |client: &mut Client| {
            let is_on = info(client, "master_sync_in_progress") == 1;
            is_on && field(client, "master_sync_read_bytes").parse::<u64>().is_ok_and(|bytes| bytes > 0)
        };
        relay.throttle(Way::Back, 200_000);
        call(&mut client, &["REPLICAOF", "127.0.0.1", &relay.address().port().to_string()]);
        for is_last in [false, true] {
            wait_until("a copy comes", || is_coming(&mut client));
            assert_eq!(call(&mut client, &["GET", "old"]), text("data"), "{setting}");
            assert_eq!((info(&mut client, "loading"), info(&mut client, "async_loading")), (0, 0));
            assert!(is_coming(&mut client), "it was asked in time");
            match is_last {
                false => {
                    relay.cut();
                    wait_until("it breaks off", || info(&mut client, "master_sync_in_progress") == 0);
                    assert_eq!(call(&mut client, &["GET", "old"]), text("data"), "{setting}");
                    relay.mend();
                    relay.throttle(Way::Back, 200_000);
                }
                true => relay.mend(),
            }
        }
        let mut was_told = false;
        wait_until("the copy is there", || match call(&mut client, &["GET", "old"]) {
            Value::Error(line) => {
                assert!(line.starts_with(b"LOADING"));
                was_told = true;
                false
            }
            reply => reply == Value::Null,
        });
        assert_eq!(call(&mut client, &["DBSIZE"]), Value::Int(3000));
        println!("{setting}: LOADING was {}seen", if was_told { "" } else { "not " });
    }
}

/// A server that follows makes a copy: it says to its master that it is there, and an order for something else ends the copy.
#[test]
fn who_makes_a_copy_of_what_it_follows_stays_with_its_master_and_obeys() {
    for edition in ["memory", "durable"] {
        let directives = ["--edition", "memory", "--enable-debug-command", "yes"];
        let master = Server::start(tarn(), &directives).unwrap();
        let mut first = master.connect().unwrap();
        call(&mut first, &["DEBUG", "POPULATE", "20000"]);
        let middle = Server::start(tarn(), &["--edition", edition, "--enable-debug-command", "yes"]).unwrap();
        let mut client = middle.connect().unwrap();
        follow(&mut client, &master);
        wait_until("it has a copy", || field(&mut client, "master_link_status") == "up");
        call(&mut client, &["CONFIG", "SET", "rdb-key-save-delay", "1000"]);
        let last = Server::start(tarn(), &["--edition", "memory"]).unwrap();
        follow(&mut last.connect().unwrap(), &middle);
        wait_until("a copy is made", || info(&mut client, "rdb_bgsave_in_progress") == 1);
        // What its master has heard lately, of one that has stood still for a while.
        let lag = |first: &mut Client| {
            let line = field(first, "slave0");
            line.rsplit_once("lag=").map_or(99, |(_, lag)| lag.parse().unwrap_or(99))
        };
        let begun = Instant::now();
        wait_until("it is heard", || begun.elapsed() > Duration::from_secs(3) && lag(&mut first) <= 1);
        assert_eq!((info(&mut client, "rdb_bgsave_in_progress"), info(&mut first, "sync_full")), (1, 1));
        call(&mut first, &["SET", "new", "1"]);
        assert_eq!(call(&mut client, &["REPLICAOF", "NO", "ONE"]), Value::Simple(b"OK".to_vec()));
        assert_eq!(call(&mut client, &["SET", "own", "1"]), Value::Simple(b"OK".to_vec()));
        assert!(
            middle.output().contains("this server is to follow its master no more"),
            "{}",
            middle.output()
        );
    }
}
