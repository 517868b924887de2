//! What a replica shows while a full copy comes, and where that breaks off.

use crate::{info, tarn};
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
