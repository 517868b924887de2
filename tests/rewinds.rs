//! A former master that wrote what its successor does not have: it goes back to where both have the same, and goes on from there without a
//! full copy; wherever it is killed meanwhile, it is what it was or what it is to be.

use crate::{info, tarn};
use testkit::ask::{ask, call, call_line_well, call_well, ok, text, wait_until};
use testkit::contents::{Contents, now_ms};
use testkit::relay::Relay;
use testkit::{Client, Server};
use wire::Value;

const EDITIONS: [&str; 2] = ["durable", "capacity"];

fn server(edition: &str) -> Server {
    let own = ["--edition", edition, "--enable-debug-command", "yes", "--repl-ping-replica-period", "3600"];
    Server::start(tarn(), &own).expect("it starts")
}

fn order(replica: &Server, port: u16) {
    let mut client = replica.connect_loaded().unwrap();
    assert_eq!(call(&mut client, &["REPLICAOF", "127.0.0.1", &port.to_string()]), ok());
}

fn says(client: &mut Client, line: &str) -> bool {
    ask(client, &["INFO", "replication"]).contains(line)
}

/// Waits until one follows another and has all.
fn await_all(replica: &Server, master: &Server) {
    let mut here = master.connect().unwrap();
    wait_until("the link is up and the offsets agree", || {
        let Ok(mut there) = replica.connect() else { return false };
        says(&mut there, "master_link_status:up")
            && info(&mut here, "master_repl_offset") == info(&mut there, "slave_repl_offset")
    });
}

fn checkpoint(server: &Server) {
    let mut client = server.connect_loaded().unwrap();
    call_well(&mut client, &["BGREWRITEAOF"]);
    wait_until("it is written", || {
        ask(&mut client, &["INFO", "persistence"]).contains("aof_rewrite_in_progress:0")
    });
}

/// Writes keys of several types and databases, of this name and under names that all of them share.
fn write(client: &mut Client, name: &str) {
    for number in 0..40 {
        call_line_well(client, &format!("SET {name}:{number} {name}"));
        call_line_well(client, &format!("SET shared:{number} {name}"));
        call_line_well(client, &format!("RPUSH list {name}{number}"));
        call_line_well(client, &format!("HSET hash f{number} {name}"));
    }
    call_line_well(client, "SELECT 3");
    call_line_well(client, &format!("SADD set {name} b c"));
    call_line_well(client, "MULTI");
    call_line_well(client, "INCR counted");
    call_line_well(client, &format!("ZADD zset 1 {name}"));
    call_line_well(client, "EXEC");
    call_line_well(client, "SELECT 0");
}

/// What only a master writes that nobody follows: it changes, removes and exchanges what was there.
fn write_ahead(client: &mut Client) {
    write(client, "ahead");
    call_line_well(client, "DEL shared:1 hash kept:2");
    call_line_well(client, "RENAME kept:3 renamed");
    call_well(client, &["SET", "large", &"x".repeat(600 << 10)]);
    call_line_well(client, "SWAPDB 0 3");
    call_well(
        client,
        &["FUNCTION", "LOAD", "#!lua name=ahead\nredis.register_function('g', function() return 1 end)"],
    );
    call_line_well(client, "SET shared:0 exchanged");
    call_line_well(client, "SELECT 3");
    call_line_well(client, "FLUSHDB");
    call_line_well(client, "SELECT 0");
}

fn assert_same(one: &Server, other: &Server) {
    let (mut here, mut there) = (one.connect().unwrap(), other.connect().unwrap());
    let (ours, theirs) = (Contents::read(&mut here).unwrap(), Contents::read(&mut there).unwrap());
    assert!(ours.len() > 100, "there is something to compare");
    assert_eq!(ours.difference(&theirs, now_ms(&mut there).unwrap()), None, "{}", other.last_lines());
}

/// A master and its replica, behind a relay that cuts them off from each other.
struct Pair {
    first: Server,
    second: Server,
    relay: Relay,
}

impl Pair {
    /// Both have the same, most of it behind a checkpoint of the first one's.
    fn new(edition: &str) -> Pair {
        let (first, second) = (server(edition), server(edition));
        let relay = Relay::to(first.address()).expect("there is a port");
        order(&second, relay.address().port());
        await_all(&second, &first);
        let mut client = first.connect().unwrap();
        write(&mut client, "kept");
        call_well(
            &mut client,
            &["FUNCTION", "LOAD", "#!lua name=kept\nredis.register_function('f', function() return 1 end)"],
        );
        checkpoint(&first);
        write(&mut client, "later");
        await_all(&second, &first);
        // From here on the copy that it was sent counts as finished, whatever becomes of the first.
        wait_until("the copy is forgotten", || !first.dir().join("replica-copies-unfinished").exists());
        Pair { first, second, relay }
    }

    /// The first writes what the second never gets, which becomes the master.
    fn part(&self) {
        self.relay.cut();
        write_ahead(&mut self.first.connect().unwrap());
        promote(&self.second);
    }

    /// The first follows the second, and has all that it has.
    fn come_together(&self, rewinds: u64) {
        order(&self.first, self.second.address().port());
        await_all(&self.first, &self.second);
        assert_same(&self.second, &self.first);
        let (mut here, mut there) = (self.first.connect().unwrap(), self.second.connect().unwrap());
        assert_eq!(info(&mut there, "sync_full"), 0, "{}", self.first.last_lines());
        assert_eq!(info(&mut here, "sync_rewinds"), rewinds, "{}", self.first.last_lines());
    }
}

fn promote(server: &Server) {
    let mut client = server.connect().unwrap();
    assert_eq!(call(&mut client, &["REPLICAOF", "NO", "ONE"]), ok());
    write(&mut client, "new");
}

#[test]
fn what_a_former_master_wrote_ahead_is_cut_and_it_goes_on_without_a_copy() {
    for edition in EDITIONS {
        let mut pair = Pair::new(edition);
        pair.part();
        pair.come_together(1);
        // What comes is taken, and is there after a kill.
        let mut client = pair.second.connect().unwrap();
        call_well(&mut client, &["SET", "behind", "1"]);
        assert_eq!(call(&mut client, &["WAIT", "1", "20000"]), Value::Int(1));
        pair.first.restart().unwrap();
        assert_eq!(
            call(&mut pair.first.connect_loaded().unwrap(), &["GET", "behind"]),
            text("1"),
            "{edition}"
        );
        pair.come_together(0);
        checkpoint(&pair.first);
        pair.first.restart().unwrap();
        pair.come_together(0);
    }
}
