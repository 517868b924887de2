//! What came behind a full copy is of no one moment until the copy is passed: nobody goes back into it, and nobody goes on with it.

use super::*;

/// A master of many counters, one that follows it, and a third that is being sent a full copy, slowly: each counter is raised once while the
/// copy is on its way, so that it has some of them raised and others not.
struct Midway {
    first: Server,
    second: Server,
    third: Server,
}

const COUNTERS: usize = 2000;

impl Midway {
    /// The third has its copy, and does nothing yet of what came behind it; the first is gone. Gives a client of the third.
    fn paused(edition: &str) -> (Midway, Client) {
        let mut midway = Midway::new(edition);
        let mut paused = midway.third.connect().unwrap();
        call_well(&mut paused, &["CLIENT", "PAUSE", "3600000", "WRITE"]);
        count_up(&mut midway.first.connect().unwrap());
        await_all(&midway.second, &midway.first);
        midway.end_copy();
        midway.first.kill();
        (midway, paused)
    }

    fn new(edition: &str) -> Midway {
        let [first, second] = [server("durable"), server("durable")];
        let third = server_with(edition, &["--save", ""]);
        let mut client = first.connect().unwrap();
        count_up(&mut client);
        order(&second, first.address().port());
        await_all(&second, &first);
        // With this each key takes long; with no delay what is left is copied at once.
        call_well(&mut client, &["CONFIG", "SET", "rdb-key-save-delay", "100000"]);
        order(&third, first.address().port());
        wait_until("the copy is on its way", || {
            ask(&mut third.connect().unwrap(), &["INFO", "replication"]).contains("master_sync_in_progress:1")
        });
        Midway { first, second, third }
    }

    fn end_copy(&self) {
        call_well(&mut self.first.connect().unwrap(), &["CONFIG", "SET", "rdb-key-save-delay", "0"]);
        wait_until("it is loaded", || self.third.output().contains("Finished with success"));
    }
}

fn count_up(client: &mut Client) {
    for number in 0..COUNTERS {
        client.send_request(&["INCR", &format!("count:{number}")]).unwrap();
    }
    (0..COUNTERS).for_each(|_| assert!(matches!(client.read_value().unwrap(), Value::Int(_))));
}

/// One follows another and has the same, for which it took a copy.
pub(super) fn assert_copied(replica: &Server, master: &Server) {
    order(replica, master.address().port());
    await_all(replica, master);
    assert_same(master, replica);
    let mut client = master.connect().unwrap();
    assert_eq!(info(&mut client, "sync_full"), 1, "{}", replica.last_lines());
}

#[test]
fn a_place_within_what_came_behind_a_copy_is_not_gone_back_to() {
    for (edition, restarts) in [("durable", false), ("durable", true), ("capacity", true)] {
        let mut midway = Midway::new(edition);
        let mut client = midway.first.connect().unwrap();
        count_up(&mut client);
        await_all(&midway.second, &midway.first);
        assert_eq!(call(&mut midway.second.connect().unwrap(), &["REPLICAOF", "NO", "ONE"]), ok());
        count_up(&mut client);
        midway.end_copy();
        await_all(&midway.third, &midway.first);
        assert_same(&midway.first, &midway.third);
        midway.first.kill();
        if restarts {
            midway.third.restart().unwrap();
        }
        // The second has less than the third, and what the third had then was of no one moment.
        assert_copied(&midway.third, &midway.second);
    }
}

#[test]
fn who_has_not_passed_its_copy_is_gone_on_with_by_nobody_else() {
    for (edition, restarts) in [("memory", false), ("durable", false), ("durable", true)] {
        let (mut midway, mut paused) = Midway::paused(edition);
        assert_eq!(call(&mut midway.second.connect().unwrap(), &["REPLICAOF", "NO", "ONE"]), ok());
        match restarts {
            true => midway.third.restart().unwrap(),
            false => drop(call_well(&mut paused, &["CLIENT", "UNPAUSE"])),
        }
        assert_copied(&midway.third, &midway.second);
    }
}

#[test]
fn who_becomes_the_master_before_it_has_passed_its_copy_is_copied_from() {
    for edition in ["memory", "durable"] {
        let (midway, mut paused) = Midway::paused(edition);
        assert_eq!(call(&mut paused, &["REPLICAOF", "NO", "ONE"]), ok());
        call_well(&mut paused, &["CLIENT", "UNPAUSE"]);
        assert_copied(&midway.second, &midway.third);
    }
}

/// Who has the stream up to somewhere within what belongs to another's copy goes on from there, if it knows that what it has is whole; who does
/// not know may be the one with the copy.
#[test]
fn who_is_whole_goes_on_wherever_others_stand_with_their_copies() {
    for (edition, breaks_off) in [("durable", false), ("memory", true)] {
        let mut midway = Midway::new(edition);
        count_up(&mut midway.first.connect().unwrap());
        await_all(&midway.second, &midway.first);
        order(&midway.second, 1);
        let mut client = midway.second.connect().unwrap();
        let (id, next) = (field(&mut client, "master_replid"), info(&mut client, "slave_repl_offset") + 1);
        count_up(&mut midway.first.connect().unwrap());
        match breaks_off {
            true => midway.third.kill(),
            false => midway.end_copy(),
        }
        let mut client = midway.first.connect().unwrap();
        wait_until("no copy is made", || info(&mut client, "rdb_bgsave_in_progress") == 0);
        order(&midway.second, midway.first.address().port());
        await_all(&midway.second, &midway.first);
        assert_same(&midway.first, &midway.second);
        assert_eq!(info(&mut client, "sync_full"), 2, "{}", midway.second.last_lines());
        for (said, answer) in [("psync2", "FULLRESYNC "), ("psync2 capa whole", "CONTINUE ")] {
            let mut asking = midway.first.connect().unwrap();
            call_line_well(&mut asking, &format!("REPLCONF capa {said}"));
            let reply = call_line_well(&mut asking, &format!("PSYNC {id} {next}"));
            let begins = |line: &[u8]| line.starts_with(answer.as_bytes());
            assert!(matches!(&reply, Value::Simple(line) if begins(line)), "{said}: {reply:?}");
        }
    }
}

/// What a tool takes of a master says where in the stream it was begun, and is of no one moment: who starts with it does not know that, and may be
/// anybody there.
#[test]
fn who_starts_with_what_a_tool_took_gets_a_copy() {
    let first = server("durable");
    let port = first.address().port().to_string();
    let mut second = server_with("memory", &["--save", "", "--replicaof", "127.0.0.1", &port]);
    let mut client = first.connect().unwrap();
    count_up(&mut client);
    await_all(&second, &first);
    second.kill();
    call_well(&mut client, &["CONFIG", "SET", "rdb-key-save-delay", "100000"]);
    let file = second.dir().join("dump.rdb");
    let mut tool = Command::new("redis-cli");
    tool.args(["-p", &port, "--rdb"]).arg(&file).stdout(Stdio::null()).stderr(Stdio::null());
    let mut tool = tool.spawn().unwrap();
    wait_until("the copy is on its way", || info(&mut client, "rdb_bgsave_in_progress") == 1);
    count_up(&mut client);
    call_well(&mut client, &["CONFIG", "SET", "rdb-key-save-delay", "0"]);
    assert!(tool.wait().unwrap().success());
    second.restart().unwrap();
    await_all(&second, &first);
    assert_same(&first, &second);
    assert_eq!(info(&mut client, "sync_full"), 3, "{}", second.last_lines());
}

/// What belonged to a server's own copy was left out of the stream that it has: nobody goes on with it there.
#[test]
fn the_stretch_of_its_own_copy_is_handed_to_nobody() {
    for restarts in [false, true] {
        let mut midway = Midway::new("durable");
        count_up(&mut midway.first.connect().unwrap());
        await_all(&midway.second, &midway.first);
        order(&midway.second, 1);
        count_up(&mut midway.first.connect().unwrap());
        midway.end_copy();
        await_all(&midway.third, &midway.first);
        midway.first.kill();
        if restarts {
            midway.third.restart().unwrap();
        }
        assert_eq!(call(&mut midway.third.connect_loaded().unwrap(), &["REPLICAOF", "NO", "ONE"]), ok());
        assert_copied(&midway.second, &midway.third);
    }
}
