//! A former master that wrote what its successor does not have: it goes back to where both have the same, and goes on from there without a
//! full copy; wherever it is killed meanwhile, it is what it was or what it is to be.

mod copies;

use crate::{info, tarn};
use copies::assert_copied;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use testkit::ask::{ask, call, call_line, call_line_well, call_well, is_error, ok, text, wait_until};
use testkit::contents::{Contents, now_ms};
use testkit::relay::Relay;
use testkit::{Client, Server};
use wire::Value;

const EDITIONS: [&str; 2] = ["durable", "capacity"];

fn server(edition: &str) -> Server {
    server_with(edition, &[])
}

fn server_with(edition: &str, directives: &[&str]) -> Server {
    let own = ["--edition", edition, "--enable-debug-command", "yes", "--repl-ping-replica-period", "3600"];
    Server::start(tarn(), &[&own, directives].concat()).expect("it starts")
}

fn order(replica: &Server, port: u16) {
    let mut client = replica.connect_loaded().unwrap();
    let reply = call(&mut client, &["REPLICAOF", "127.0.0.1", &port.to_string()]);
    // Or it does already.
    assert!(matches!(&reply, Value::Simple(line) if line.starts_with(b"OK")), "{reply:?}");
}

/// What INFO says of something.
fn field(client: &mut Client, name: &str) -> String {
    let all = ask(client, &["INFO", "replication"]);
    let line = all.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("{name} is not in {all}")).to_owned()
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

/// How many checkpoints there are on disk.
fn checkpoints(server: &Server) -> usize {
    let names = std::fs::read_dir(server.dir()).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_string_lossy().ends_with(".checkpoint")).count()
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
        Pair::with(edition, &[])
    }

    fn with(edition: &str, directives: &[&str]) -> Pair {
        let (first, second) = (server_with(edition, directives), server_with(edition, directives));
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

    /// The first is told to follow the second, and stands still at this step of going back.
    fn stand_still(&self, step: u8) {
        call_well(&mut self.first.connect().unwrap(), &["DEBUG", "STOP-REWIND", &step.to_string()]);
        order(&self.first, self.second.address().port());
        wait_until("it stands still", || self.first.output().contains("Going back stands still"));
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
        assert_eq!(call(&mut client, &["WAIT", "1", "100000"]), Value::Int(1));
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

#[test]
fn a_former_master_that_was_killed_goes_back_when_it_is_told_to_follow() {
    for edition in EDITIONS {
        let mut pair = Pair::new(edition);
        pair.part();
        pair.first.restart().unwrap();
        pair.come_together(1);
    }
}

#[test]
fn wherever_it_is_killed_it_is_what_it_was_or_what_it_is_to_be() {
    for edition in EDITIONS {
        for step in 1..=4 {
            let mut pair = Pair::new(edition);
            pair.part();
            let before = Contents::read(&mut pair.first.connect().unwrap()).unwrap();
            pair.stand_still(step);
            pair.first.restart().unwrap();
            let mut client = pair.first.connect_loaded().unwrap();
            let after = Contents::read(&mut client).unwrap();
            let is_as_before = before.difference(&after, now_ms(&mut client).unwrap()).is_none();
            assert_eq!(is_as_before, step < 4, "{edition}, step {step}");
            // What was complete needs nothing more.
            pair.come_together(u64::from(step < 4));
        }
    }
}

#[test]
fn masters_that_change_parts_go_back_again_and_again() {
    for edition in EDITIONS {
        let pair = Pair::new(edition);
        pair.part();
        pair.come_together(1);
        let (mut here, mut there) = (pair.first.connect().unwrap(), pair.second.connect().unwrap());
        for round in 1..=3 {
            // The one that follows does not get what is written last, and becomes the master.
            let relay = Relay::to(pair.second.address()).unwrap();
            order(&pair.first, relay.address().port());
            await_all(&pair.first, &pair.second);
            relay.cut();
            write_ahead(&mut there);
            promote(&pair.first);
            order(&pair.second, pair.first.address().port());
            await_all(&pair.second, &pair.first);
            assert_same(&pair.first, &pair.second);
            assert_eq!(info(&mut there, "sync_rewinds"), round, "{edition}: {}", pair.second.last_lines());
            assert_eq!(info(&mut here, "sync_full"), 1, "{edition}: {}", pair.second.last_lines());
            let relay = Relay::to(pair.first.address()).unwrap();
            order(&pair.second, relay.address().port());
            await_all(&pair.second, &pair.first);
            relay.cut();
            write_ahead(&mut here);
            promote(&pair.second);
            pair.come_together(1 + round);
            for server in [&pair.first, &pair.second] {
                assert_eq!(checkpoints(server), 1, "{edition}: what was cut takes no room");
            }
        }
    }
}

#[test]
fn a_replica_of_a_master_that_goes_back_goes_back_with_it() {
    for edition in EDITIONS {
        let pair = Pair::new(edition);
        let third = server(edition);
        order(&third, pair.first.address().port());
        await_all(&third, &pair.first);
        let mut client = pair.first.connect().unwrap();
        write(&mut client, "three");
        checkpoint(&third);
        await_all(&pair.second, &pair.first);
        pair.relay.cut();
        write_ahead(&mut client);
        await_all(&third, &pair.first);
        promote(&pair.second);
        let copies = info(&mut client, "sync_full");
        pair.come_together(1);
        await_all(&third, &pair.first);
        assert_same(&pair.first, &third);
        assert_eq!(
            info(&mut third.connect().unwrap(), "sync_rewinds"),
            1,
            "{edition}: {}",
            third.last_lines()
        );
        assert_eq!(info(&mut client, "sync_full"), copies, "{edition}: {}", third.last_lines());
    }
}

/// As short as they may be, so that there are many.
const SHORT_SEGMENTS: [&str; 2] = ["--log-segment-size", "1mb"];

#[test]
fn where_no_checkpoint_is_before_that_place_there_is_a_copy() {
    for edition in EDITIONS {
        let pair = Pair::with(edition, &SHORT_SEGMENTS);
        pair.relay.cut();
        let mut client = pair.first.connect().unwrap();
        write_ahead(&mut client);
        for number in 0..4 {
            call_well(&mut client, &["SET", &format!("long:{number}"), &"x".repeat(700 << 10)]);
        }
        // What it was made of goes with it.
        checkpoint(&pair.first);
        promote(&pair.second);
        order(&pair.first, pair.second.address().port());
        await_all(&pair.first, &pair.second);
        assert_same(&pair.second, &pair.first);
        assert_eq!(info(&mut pair.second.connect().unwrap(), "sync_full"), 1, "{edition}");
        pair.first.await_output(&["There is no checkpoint before that place"]);
    }
}

/// Has writes wait for a replica from now on, and one be written that does.
fn await_acknowledged(server: &Server) {
    let mut client = server.connect().unwrap();
    call_well(&mut client, &["CONFIG", "SET", "min-sync-replicas", "1"]);
    wait_until("it is taken", || call(&mut client, &["SET", "acknowledged", "1"]) == ok());
}

#[test]
fn a_checkpoint_is_kept_until_replicas_have_what_a_later_one_holds() {
    let pair = Pair::with("durable", &SHORT_SEGMENTS);
    call_well(&mut pair.first.connect().unwrap(), &["CONFIG", "SET", "sync-timeout", "5000"]);
    await_acknowledged(&pair.first);
    pair.relay.cut();
    let writer = pair.first.connect().unwrap();
    std::thread::scope(|scope| {
        // Nobody acknowledges it.
        let mut ahead = writer;
        let writing = scope.spawn(move || ahead.call(&["SET", "large", &"x".repeat(3 << 20)]));
        let mut client = pair.first.connect().unwrap();
        // INFO, which shows it, is answered when it is known that nobody has it.
        wait_until("it is in the log", || info(&mut client, "master_repl_offset") > 3 << 20);
        checkpoint(&pair.first);
        checkpoint(&pair.first);
        assert_eq!(checkpoints(&pair.first), 2, "the one before, and the newest");
        promote(&pair.second);
        pair.come_together(1);
        assert!(!pair.first.output().contains("Acknowledged writes are cut"), "{}", pair.first.last_lines());
        // Its client was never told that it is done.
        assert!(!matches!(writing.join().unwrap(), Ok(Value::Simple(_))));
        checkpoint(&pair.first);
        assert_eq!(checkpoints(&pair.first), 1, "what is here is the master's");
    });
}

#[test]
fn acknowledged_writes_that_are_cut_are_told() {
    let pair = Pair::new("durable");
    // A replica that has all, and is not the one that becomes the master.
    let third = server("durable");
    order(&third, pair.first.address().port());
    await_all(&third, &pair.first);
    pair.relay.cut();
    await_acknowledged(&pair.first);
    promote(&pair.second);
    pair.come_together(1);
    pair.first.await_output(&["Acknowledged writes are cut: replicas had the stream up to"]);
}

#[test]
fn what_the_store_holds_is_gone_back_to_however_it_was_cleaned() {
    let directives = ["--maxmemory", "24mb", "--eager-spill", "yes"];
    let pair = Pair::with("capacity", &directives);
    let mut client = pair.first.connect().unwrap();
    let values = |client: &mut Client, value: &str| {
        for number in 0..4000 {
            let value = format!("{value}{}", "v".repeat(2000));
            client.send_request(&["SET", &format!("cold:{number}"), &value]).unwrap();
        }
        (0..4000).for_each(|_| assert_eq!(client.read_value().unwrap(), ok()));
    };
    values(&mut client, "old");
    await_all(&pair.second, &pair.first);
    checkpoint(&pair.first);
    call_well(&mut client, &["SET", "after", "1"]);
    await_all(&pair.second, &pair.first);
    pair.relay.cut();
    // What is written over it has the segments cleaned in which the first values lie. How much that takes depends on how much of
    // it is on its way to the store before it is written over again.
    wait_until("segments are cleaned", || {
        values(&mut client, "ahead");
        info(&mut client, "store_segments_cleaned") > 0
    });
    promote(&pair.second);
    pair.come_together(1);
    let mut pair = pair;
    checkpoint(&pair.first);
    pair.first.restart().unwrap();
    pair.come_together(0);
}

#[test]
fn without_a_log_there_is_a_copy() {
    let pair = [server("memory"), server("durable")];
    let relay = Relay::to(pair[0].address()).unwrap();
    order(&pair[1], relay.address().port());
    await_all(&pair[1], &pair[0]);
    let mut client = pair[0].connect().unwrap();
    write(&mut client, "kept");
    await_all(&pair[1], &pair[0]);
    relay.cut();
    write(&mut client, "ahead");
    promote(&pair[1]);
    order(&pair[0], pair[1].address().port());
    await_all(&pair[0], &pair[1]);
    assert_same(&pair[1], &pair[0]);
    assert_eq!(info(&mut pair[1].connect().unwrap(), "sync_full"), 1);
}

#[test]
fn what_a_master_has_written_and_not_synced_is_not_cut() {
    for appendfsync in ["no", "everysec"] {
        let first = server_with("memory", &["--appendonly", "yes", "--appendfsync", appendfsync]);
        let second = server("durable");
        order(&second, first.address().port());
        await_all(&second, &first);
        let (mut here, mut there) = (first.connect().unwrap(), second.connect().unwrap());
        // Some of it is not on the master's disk when the replica comes again.
        for round in 1..=5 {
            write(&mut here, "kept");
            write(&mut here, "more");
            await_all(&second, &first);
            call_well(&mut there, &["CLIENT", "KILL", "TYPE", "master"]);
            wait_until("it comes again", || {
                info(&mut here, "sync_full") + info(&mut here, "sync_partial_ok") > round
            });
            await_all(&second, &first);
        }
        assert_eq!(info(&mut there, "sync_rewinds"), 0, "{}", second.last_lines());
        assert_eq!(info(&mut here, "sync_full"), 1, "{}", first.last_lines());
        assert_same(&first, &second);
    }
}

#[test]
fn a_copy_that_broke_off_costs_those_who_have_more_nothing_at_a_later_start() {
    let mut first = server("durable");
    let second = server_with("durable", &["--min-sync-replicas", "1"]);
    let relay = Relay::to(first.address()).unwrap();
    order(&second, relay.address().port());
    await_all(&second, &first);
    let mut client = first.connect().unwrap();
    let mut third = first.connect().unwrap();
    call_line_well(&mut third, "REPLCONF capa eof capa psync2");
    let reply = call_line_well(&mut third, "PSYNC ? -1");
    assert!(matches!(&reply, Value::Simple(line) if line.starts_with(b"FULLRESYNC")), "{reply:?}");
    drop(third);
    wait_until("it is gone", || info(&mut client, "connected_slaves") == 1);
    write(&mut client, "kept");
    write(&mut client, "more");
    await_all(&second, &first);
    let id = field(&mut client, "master_replid");
    for _ in 0..2 {
        first.restart().unwrap();
        relay.aim(first.address());
        let mut client = first.connect_loaded().unwrap();
        assert_eq!(field(&mut client, "master_replid"), id);
        call_line_well(&mut client, "SET behind 1");
        await_all(&second, &first);
        assert_eq!(info(&mut client, "sync_full"), 0, "{}", second.last_lines());
    }
    assert_same(&first, &second);
}

/// What a directory holds, to be put back.
fn kept(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.is_file()).map(|path| (path.clone(), std::fs::read(&path).unwrap())).collect()
}

fn put_back(dir: &Path, kept: &[(PathBuf, Vec<u8>)]) {
    std::fs::remove_dir_all(dir).unwrap();
    std::fs::create_dir(dir).unwrap();
    kept.iter().for_each(|(path, bytes)| std::fs::write(path, bytes).unwrap());
}

/// Requests that are as long as those of the same numbers under another name of the same length.
fn count(client: &mut Client, name: &str, numbers: std::ops::Range<u32>) {
    numbers.for_each(|number| drop(call_line_well(client, &format!("SET {name}:{number} {name}"))));
}

#[test]
fn what_replicas_have_and_a_power_cut_took_back_is_of_another_stream() {
    let directives = ["--appendonly", "yes", "--appendfsync", "no"];
    let mut first = server_with("memory", &directives);
    let second = server("durable");
    order(&second, first.address().port());
    await_all(&second, &first);
    let mut client = first.connect().unwrap();
    write(&mut client, "kept");
    await_all(&second, &first);
    let (id, on_disk) = (field(&mut client, "master_replid"), kept(first.dir()));
    count(&mut client, "gone", 100..150);
    await_all(&second, &first);
    first.kill();
    put_back(first.dir(), &on_disk);
    // It syncs at once from now on, as an operator has it who has lost something.
    let dir = first.dir().to_str().unwrap();
    let again = server_with("memory", &["--appendonly", "yes", "--appendfsync", "always", "--dir", dir]);
    let mut client = again.connect().unwrap();
    assert_eq!(field(&mut client, "master_replid2"), id);
    count(&mut client, "here", 100..200);
    order(&second, again.address().port());
    await_all(&second, &again);
    assert_same(&again, &second);
    // What was sent since is on disk: the next start goes on under the same name.
    let id = field(&mut client, "master_replid");
    let mut again = again;
    again.restart().unwrap();
    let mut client = again.connect().unwrap();
    assert_eq!(field(&mut client, "master_replid"), id);
}

#[test]
fn who_has_no_more_than_a_disk_that_is_not_waited_for_goes_on_behind_a_start() {
    let mut first = server_with("memory", &["--appendonly", "yes", "--appendfsync", "no"]);
    let second = server("durable");
    let relay = Relay::to(first.address()).unwrap();
    order(&second, relay.address().port());
    await_all(&second, &first);
    let mut client = first.connect().unwrap();
    write(&mut client, "kept");
    write(&mut client, "more");
    await_all(&second, &first);
    wait_until("the copy is forgotten", || !first.dir().join("replica-copies-unfinished").exists());
    relay.cut();
    first.restart().unwrap();
    // Nobody reads the stream yet, and the disk is not asked to take this.
    let mut client = first.connect_loaded().unwrap();
    call_line_well(&mut client, "SET behind 1");
    relay.aim(first.address());
    relay.mend();
    await_all(&second, &first);
    assert_same(&first, &second);
    assert_eq!(info(&mut client, "sync_full"), 0, "{}", first.last_lines());
}

#[test]
fn who_has_more_than_its_master_keeps_it_where_that_may_be_all_there_is() {
    let mut first = server("durable");
    let second = server_with("durable", &["--min-sync-replicas", "1"]);
    let relay = Relay::to(first.address()).unwrap();
    order(&second, relay.address().port());
    await_all(&second, &first);
    let mut client = first.connect().unwrap();
    write(&mut client, "kept");
    write(&mut client, "more");
    await_all(&second, &first);
    wait_until("the copy is forgotten", || !first.dir().join("replica-copies-unfinished").exists());
    let before = kept(first.dir());
    count(&mut client, "sent", 100..120);
    await_all(&second, &first);
    relay.cut();
    first.kill();
    put_back(first.dir(), &before);
    first.restart().unwrap();
    relay.aim(first.address());
    relay.mend();
    wait_until("it keeps what it has", || second.output().contains("The master has less than what is here"));
    let mut there = second.connect().unwrap();
    assert_eq!(call(&mut there, &["GET", "sent:119"]), text("sent"));
    order(&second, relay.address().port());
    await_all(&second, &first);
    assert_same(&first, &second);
}

#[test]
fn clients_are_told_that_it_is_loading_and_are_shown_nothing() {
    for edition in EDITIONS {
        for step in 1..=4 {
            let pair = Pair::new(edition);
            pair.part();
            pair.stand_still(step);
            let mut client = pair.first.connect().unwrap();
            for line in ["GET shared:0", "SET shared:0 mine", "DBSIZE", "LRANGE list 0 -1", "FCALL g 0"] {
                let reply = call_line(&mut client, line);
                assert!(is_error(&reply, "LOADING"), "{edition}, step {step}, {line}: {reply:?}");
            }
        }
    }
}

#[test]
fn who_watches_caches_or_waits_for_a_key_is_told() {
    for edition in EDITIONS {
        let pair = Pair::new(edition);
        pair.part();
        // One that is there where it is gone back to, and now is not; one that is another there; and one that is not there.
        let watchers = ["hash", "shared:0", "counted"].map(|key| {
            let mut watcher = pair.first.connect().unwrap();
            call_well(&mut watcher, &["WATCH", key]);
            call_well(&mut watcher, &["MULTI"]);
            call_well(&mut watcher, &["GET", "any"]);
            (key, watcher)
        });
        let (mut cacher, mut waiter) = (pair.first.connect().unwrap(), pair.first.connect().unwrap());
        call_well(&mut cacher, &["HELLO", "3"]);
        call_well(&mut cacher, &["CLIENT", "TRACKING", "ON"]);
        call_well(&mut cacher, &["GET", "shared:0"]);
        waiter.send_request(&["BLPOP", "nowhere", "0"]).unwrap();
        let mut client = pair.first.connect().unwrap();
        wait_until("one waits", || info(&mut client, "blocked_clients") == 1);
        order(&pair.first, pair.second.address().port());
        let reply = waiter.read_value().unwrap();
        assert!(is_error(&reply, "UNBLOCKED"), "{edition}: {reply:?}");
        let told = cacher.read_value().unwrap();
        assert!(matches!(told, Value::Push(_)), "{edition}: {told:?}");
        pair.come_together(1);
        for (key, mut watcher) in watchers {
            assert_eq!(call(&mut watcher, &["EXEC"]), Value::NullArray, "{edition}: {key}");
        }
    }
}

#[test]
fn what_was_written_beside_the_stream_behind_that_place_goes_too() {
    for edition in EDITIONS {
        let pair = Pair::with(edition, &["--replica-read-only", "no"]);
        let third = server_with(edition, &["--replica-read-only", "no"]);
        order(&third, pair.first.address().port());
        await_all(&third, &pair.first);
        checkpoint(&third);
        let mut there = third.connect().unwrap();
        call_well(&mut there, &["SET", "beside", "before"]);
        pair.relay.cut();
        write_ahead(&mut pair.first.connect().unwrap());
        await_all(&third, &pair.first);
        call_well(&mut there, &["SET", "beside", "behind"]);
        call_well(&mut there, &["SET", "another", "behind"]);
        promote(&pair.second);
        // The former master, while it has no link to the new one.
        let relay = Relay::to(pair.second.address()).unwrap();
        relay.cut();
        order(&pair.first, relay.address().port());
        call_well(&mut pair.first.connect().unwrap(), &["SET", "beside", "behind"]);
        pair.come_together(1);
        await_all(&third, &pair.first);
        assert_eq!(info(&mut there, "sync_rewinds"), 1, "{edition}: {}", third.last_lines());
        assert_eq!(call(&mut there, &["GET", "beside"]), text("before"), "{edition}");
        assert_eq!(call(&mut there, &["DEL", "beside", "another"]), Value::Int(1), "{edition}");
        assert_same(&pair.first, &third);
    }
}

#[test]
fn a_replica_that_may_be_all_there_is_of_something_is_not_cut_without_an_order() {
    let directives = ["--min-sync-replicas", "1"];
    let third = server_with("durable", &directives);
    let [first, second] = [server("durable"), server("durable")];
    let relays = [&first, &first].map(|server| Relay::to(server.address()).unwrap());
    order(&second, relays[0].address().port());
    order(&third, relays[1].address().port());
    await_all(&second, &first);
    write(&mut first.connect().unwrap(), "kept");
    await_all(&second, &first);
    relays[0].cut();
    call_well(&mut first.connect().unwrap(), &["SET", "ahead", "1"]);
    await_all(&third, &first);
    promote(&second);
    // The one that it follows gives up what it wrote ahead itself.
    order(&first, second.address().port());
    await_all(&first, &second);
    wait_until("it keeps what it has", || third.output().contains("may be all there is of it"));
    let mut client = third.connect().unwrap();
    assert_eq!(call(&mut client, &["GET", "ahead"]), text("1"));
    assert_eq!(info(&mut client, "sync_rewinds"), 0);
    order(&third, second.address().port());
    await_all(&third, &second);
    assert_eq!(info(&mut client, "sync_rewinds"), 1, "{}", third.last_lines());
    assert_same(&second, &third);
}

#[test]
fn a_log_that_has_ended_is_no_way_back() {
    let pair = Pair::with("memory", &["--appendonly", "yes", "--appendfsync", "always"]);
    pair.part();
    call_well(&mut pair.first.connect().unwrap(), &["CONFIG", "SET", "appendonly", "no"]);
    assert_copied(&pair.first, &pair.second);
    assert_eq!(info(&mut pair.first.connect().unwrap(), "sync_rewinds"), 0);
    // It goes on as it was, and takes what comes.
    let mut client = pair.second.connect().unwrap();
    call_well(&mut client, &["SET", "behind", "1"]);
    await_all(&pair.first, &pair.second);
    assert_same(&pair.second, &pair.first);
}
