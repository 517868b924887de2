//! A server without a log goes on with its stream over a restart by its RDB file, so that nothing is copied: masters, replicas and those who
//! follow these, among Tarns and real servers.

use crate::{info, tarn};
use testkit::ask::{ask, call, ok, wait_until};
use testkit::replicated::{Chain, Counts, Ending, Member};
use testkit::{Client, Program};
use wire::Value;

fn memory(directives: &[&str]) -> Member {
    let own = ["--edition", "memory", "--repl-rdb-version", "10", "--enable-debug-command", "yes"];
    Member::new(tarn(), &[&own[..], directives].concat())
}

fn redis() -> Member {
    Member::new(Program::Redis, &[])
}

fn field(client: &mut Client, name: &str) -> String {
    let all = ask(client, &["INFO", "replication"]);
    let line = all.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_default().to_owned()
}

/// Writes to several databases, the last of which is not the first.
fn write(chain: &Chain, name: &str) {
    let mut client = chain.server(0).connect().unwrap();
    for database in ["0", "3", "9"] {
        assert_eq!(call(&mut client, &["SELECT", database]), ok());
        call(&mut client, &["INCR", "count"]);
        call(&mut client, &["RPUSH", "list", name]);
    }
}

fn same(chain: &Chain) {
    chain.await_agreement().unwrap();
    chain.difference(false, false).unwrap().unwrap();
}

#[test]
fn replicas_of_a_master_that_was_restarted_go_on() {
    for replica in [memory(&[]), redis()] {
        let mut chain = Chain::start(&[memory(&[]), replica, memory(&[])]).unwrap();
        // Also where nothing was written.
        for name in ["nothing", "a", "b"] {
            if name != "nothing" {
                write(&chain, name);
            }
            chain.await_agreement().unwrap();
            let before = field(&mut chain.server(0).connect().unwrap(), "master_replid");
            let counts = chain.counts(1).unwrap();
            chain.restart(0, Ending::Save).unwrap();
            same(&chain);
            let mut client = chain.server(0).connect().unwrap();
            assert_ne!(field(&mut client, "master_replid"), before);
            assert_eq!(field(&mut client, "master_replid2"), before);
            assert_eq!(chain.counts(0).unwrap(), Counts { full: 0, partial: 1 }, "{}", chain.name());
            assert_eq!(chain.counts(1).unwrap().full, counts.full, "{}", chain.name());
        }
        write(&chain, "behind");
        same(&chain);
        call(&mut chain.server(0).connect().unwrap(), &["CONFIG", "RESETSTAT"]);
        assert_eq!(chain.counts(0).unwrap(), Counts::default());
    }
}

#[test]
fn a_replica_that_was_restarted_goes_on() {
    for master in [memory(&[]), redis()] {
        let mut chain = Chain::start(&[master, memory(&[]), memory(&[])]).unwrap();
        write(&chain, "a");
        chain.await_agreement().unwrap();
        for name in ["b", "c"] {
            let full = chain.counts(0).unwrap().full;
            chain.restart(1, Ending::Save).unwrap();
            // It has another database selected than at the beginning.
            write(&chain, name);
            same(&chain);
            assert_eq!(chain.counts(0).unwrap().full, full, "{}", chain.name());
        }
    }
}

#[test]
fn what_was_up_meanwhile_is_taken_away_by_the_stream() {
    let mut chain = Chain::start(&[memory(&[]), memory(&[])]).unwrap();
    write(&chain, "a");
    let mut client = chain.server(0).connect().unwrap();
    assert_eq!(call(&mut client, &["DEBUG", "SET-ACTIVE-EXPIRE", "0"]), ok());
    for number in 0..50 {
        call(&mut client, &["SELECT", &(number % 3).to_string()]);
        assert_eq!(call(&mut client, &["SET", &format!("k{number}"), "v", "PX", "1"]), ok());
    }
    chain.await_agreement().unwrap();
    wait_until("they are over", || call(&mut client, &["EXISTS", "k49", "k46"]) == Value::Int(0));
    call(&mut client, &["SET", "last", "v", "PX", "1"]);
    chain.await_agreement().unwrap();
    chain.restart(0, Ending::Save).unwrap();
    same(&chain);
    assert_eq!(chain.counts(0).unwrap(), Counts { full: 0, partial: 1 });
    let sizes = |at: usize| {
        let mut client = chain.server(at).connect().unwrap();
        ["0", "1", "2"].map(|database| {
            call(&mut client, &["SELECT", database]);
            ask(&mut client, &["DBSIZE"])
        })
    };
    assert_eq!(sizes(0), sizes(1));
    assert!(info(&mut chain.server(0).connect().unwrap(), "rdb_last_load_keys_expired") > 0);
}

#[test]
fn a_file_that_is_older_than_what_replicas_have_takes_nothing_up() {
    let mut chain = Chain::start(&[memory(&[]), memory(&[])]).unwrap();
    write(&chain, "a");
    chain.await_agreement().unwrap();
    assert_eq!(call(&mut chain.server(0).connect().unwrap(), &["SAVE"]), ok());
    write(&chain, "lost");
    chain.await_agreement().unwrap();
    chain.restart(0, Ending::Kill).unwrap();
    same(&chain);
    assert_eq!(chain.counts(0).unwrap(), Counts { full: 1, partial: 0 });
}

#[test]
fn a_file_that_is_of_no_one_moment_names_no_place() {
    let mut chain = Chain::start(&[memory(&[]), memory(&[])]).unwrap();
    write(&chain, "a");
    chain.await_agreement().unwrap();
    let mut client = chain.server(0).connect().unwrap();
    call(&mut client, &["BGSAVE"]);
    wait_until("it is saved", || info(&mut client, "rdb_saves") == 1);
    chain.await_agreement().unwrap();
    chain.restart(0, Ending::Kill).unwrap();
    same(&chain);
    assert_eq!(chain.counts(0).unwrap(), Counts { full: 1, partial: 0 });
}
