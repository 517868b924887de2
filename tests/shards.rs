//! Shards with an in-sync set, as real processes: what was acknowledged outlives whoever acknowledged it, nobody is shown what is taken back, and the shard goes on by
//! itself once faults end.
//!
//!     TARN_STEPS=200 TARN_SEED=$RANDOM ./test --test tests -- --nocapture shards::a_durable_pair

mod rounds;
mod shard;

use crate::starts::copy_all;
use crate::{info, tarn};
use ::log::Lsn;
use replication::insync::{Epoch, History, Kept, Message, Obstacle};
use rounds::{rebirths, rounds};
use shard::{Shard, wait_until};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use testkit::ask::{call, is_error, ok, text};
use testkit::relay::Way;
use testkit::{Budget, Client, Server};
use wire::Value;

fn error(value: &Value) -> String {
    let Value::Error(line) = value else { panic!("{value:?} is no error") };
    String::from_utf8_lossy(line).into_owned()
}

/// For nodes of which none is to be left behind because the machine has no time for it. No master is replaced but by command.
const PATIENT: [&str; 4] = ["--shard-silence", "5000", "--shard-lease", "5100"];

/// A member takes the place of its master by command, and that one follows.
fn goes_to_and_fro(editions: &[&str]) {
    let shard = Shard::begin(editions, editions.len() - 1, &PATIENT);
    for turn in 0..3 {
        let master = shard.wait_until_whole();
        let next = (master + 1) % editions.len();
        let mut client = shard.nodes[master].connect().unwrap();
        let value = turn.to_string();
        assert_eq!(call(&mut client, &["SET", "turn", &value]), ok());
        let mut other = shard.nodes[next].connect().unwrap();
        // What was acknowledged is there; it is shown as soon as it is known to be committed.
        wait_until("a member shows it", || call(&mut other, &["GET", "turn"]) == text(&value));
        assert!(error(&call(&mut other, &["SET", "turn", "x"])).starts_with("READONLY"));
        assert!(
            error(&call(&mut other, &["REPLICAOF", "NO", "ONE"]))
                .starts_with("ERR This server is a node of a shard")
        );
        assert_eq!(call(&mut other, &["INSYNC", "PROMOTE"]), ok());
        wait_until("it is master", || {
            shard.nodes[next].standing().is_some_and(|own| own["role"] == "master")
        });
        wait_until("it shows what was acknowledged", || {
            other.call(&["GET", "turn"]).is_ok_and(|reply| reply == text(&value))
        });
    }
    shard.wait_until_whole();
}

#[test]
fn the_master_of_a_durable_pair_changes_by_command() {
    goes_to_and_fro(&["durable", "durable"]);
}

#[test]
fn the_master_of_a_mixed_triple_changes_by_command() {
    goes_to_and_fro(&["memory", "durable", "capacity"]);
}

#[test]
fn writes_wait_for_members_and_reads_go_on_without() {
    let mut shard = Shard::begin(&["durable", "memory"], 1, &["--shard-failover", "0"]);
    let master = shard.wait_until_whole();
    assert_eq!(master, 0);
    let mut client = shard.nodes[0].connect().unwrap();
    assert_eq!(call(&mut client, &["SET", "k", "1"]), ok());
    shard.nodes[1].kill();
    let mut written = 0;
    wait_until("writes are refused at once", || {
        let refused = error(&call(&mut client, &["INCR", "n"]));
        let is_unknown = refused.starts_with("NOREPLICAS Not enough good replicas have what was written");
        written += i64::from(is_unknown);
        !is_unknown && refused == "NOREPLICAS Not enough good replicas to write."
    });
    let wanted = if written == 0 { Value::Null } else { text(&written.to_string()) };
    assert_eq!(call(&mut client, &["GET", "n"]), wanted, "reads go on, by all members there are");
    shard.nodes[1].restart();
    shard.wait_until_whole();
    assert_eq!(call(&mut client, &["SET", "k", "4"]), ok());
}

/// Clients write as fast as they can while the master changes, and do not wait until it has.
#[test]
fn the_master_changes_while_everybody_writes() {
    let shard = Shard::begin(&["memory", "durable"], 1, &[]);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _ends = testkit::Ends(&is_over);
        for node in &shard.nodes {
            let (address, is_over) = (node.server.address(), &is_over);
            scope.spawn(move || {
                let requests: Vec<[&str; 3]> = vec![["SET", "k", "v"]; 20];
                let requests: Vec<Vec<&str>> = requests.iter().map(|one| one.to_vec()).collect();
                while !is_over.load(Ordering::Relaxed) {
                    let Ok(mut client) = shard::connect(address) else { continue };
                    while !is_over.load(Ordering::Relaxed) && client.pipeline(&requests).is_ok() {}
                }
            });
        }
        for _ in 0..8 {
            let next = 1 - shard.wait_until_whole();
            // Who was silent for too long is no member for a moment, and is refused with that reason: then it is said again.
            let no_member = format!("refused: {}", Obstacle::NoMember);
            let mut is_to_say = true;
            wait_until("it is master", || {
                if is_to_say {
                    let reply = call(&mut shard.nodes[next].connect().unwrap(), &["INSYNC", "PROMOTE"]);
                    is_to_say = matches!(reply, Value::Error(_));
                }
                shard.nodes[next].standing().is_some_and(|own| {
                    is_to_say |= own["promotion"] == no_member;
                    own["role"] == "master"
                })
            });
        }
        shard.wait_until_whole();
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn what_anybody_says_ends_no_reign() {
    let shard = Shard::begin(&["durable", "memory"], 1, &PATIENT);
    let master = shard.wait_until_whole();
    let mut client = shard.nodes[master].connect().unwrap();
    assert_eq!(call(&mut client, &["SET", "k", "1"]), ok());
    let hello = |epoch: u64| Message::Hello { epoch: Epoch(epoch), history: History::default(), end: Lsn(0) };
    let welcome =
        |epoch: u64| Message::Welcome { epoch: Epoch(epoch), history: History::default(), cut: Lsn(0) };
    for node in &shard.nodes {
        // What only who was asked may say is passed over.
        for message in [welcome(1_000_000), welcome(u64::MAX), Message::Yield { epoch: Epoch(1_000_000) }] {
            let mut stranger = node.connect().unwrap();
            assert!(matches!(
                call(&mut stranger, &["INSYNC", "LINK", "tested", "2", "12345"]),
                Value::Simple(_)
            ));
            stranger.send_request(&["INSYNC", "SAY", &message.to_line()]).unwrap();
            // It is heard, or the link has ended.
            let _ = stranger.call(&["INSYNC", "END"]);
        }
        for message in [hello(u64::MAX), Message::Refusal { epoch: Epoch(1_000_000) }] {
            let mut stranger = node.connect().unwrap();
            assert!(
                error(&call(&mut stranger, &["INSYNC", "SAY", "hello"]))
                    .starts_with("ERR This connection is no link")
            );
            let life = call(&mut stranger, &["INSYNC", "LINK", "tested", "2", "12345"]);
            assert!(matches!(life, Value::Simple(_)), "{life:?}");
            stranger.send_request(&["INSYNC", "SAY", &message.to_line()]).unwrap();
            // It is answered, or ends.
            let _ = stranger.read_value();
            let _ = stranger.send_request(&["INSYNC", "SAY", "nonsense 1"]);
        }
    }
    // Nor does a pause of clients part nodes.
    assert_eq!(call(&mut client, &["CLIENT", "PAUSE", "1500", "ALL"]), ok());
    assert_eq!(call(&mut client, &["SET", "k", "2"]), ok(), "with its member");
    assert_eq!(shard.wait_until_whole(), master);
    let standing = shard.nodes[master].standing().unwrap();
    assert_eq!((&*standing["epoch"], &*standing["copy"]), ("1", "whole"));
}

#[test]
fn a_node_that_knows_nothing_answers_at_once() {
    let store = Server::start(tarn(), &["--edition", "durable"]).unwrap();
    let address = store.address().to_string();
    let own =
        ["--edition", "memory", "--shard-name", "s", "--shard-node", "1", "--shard-nodes", "1=127.0.0.1:1"];
    let alone = Server::start(tarn(), &[&own[..], &["--shard-store", &address]].concat()).unwrap();
    let mut client = alone.connect_loaded().unwrap();
    assert_eq!(info(&mut client, "shard_epoch"), 0);
    let copy = |client: &mut Client| match call(client, &["INSYNC", "STATUS"]) {
        Value::Array(words) => {
            let at = words.iter().position(|word| *word == text("copy")).expect("it tells of its copy");
            words[at + 1].clone()
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(copy(&mut client), text("none"), "there is nothing here that could be whole");
    for request in [&["GET", "k"][..], &["EVAL", "return 1", "0"], &["SLOWLOG", "GET"], &["DBSIZE"]] {
        assert!(error(&call(&mut client, request)).starts_with("MASTERDOWN"), "{request:?}");
    }
    assert!(error(&call(&mut client, &["SET", "k", "v"])).starts_with("READONLY"));
    assert_eq!(call(&mut client, &["INSYNC", "BEGIN"]), ok());
    wait_until("it is master", || client.call(&["SET", "k", "v"]).is_ok_and(|reply| reply == ok()));
    assert_eq!(call(&mut client, &["DBSIZE"]), Value::Int(1));
    assert_eq!(copy(&mut client), text("whole"));
}

/// Has the master of a pair write something that only it has, and the other take its place. Gives the client that wrote, and who was master.
fn part(shard: &Shard) -> (testkit::Client, usize) {
    let former = shard.wait_until_whole();
    // There may be no reply to what it writes last.
    let mut client = shard::connect(shard.nodes[former].server.address()).unwrap();
    assert_eq!(call(&mut client, &["SET", "k", "acknowledged"]), ok());
    // What it says does not arrive any more, nor can it ask for another set.
    shard.nodes[former].relay.stop(Way::Back);
    shard.nodes[former].store.cut();
    client.send_request(&["SET", "k", "alone"]).unwrap();
    wait_until("the other is master", || {
        shard.nodes[1 - former].standing().is_some_and(|own| own["role"] == "master")
    });
    (client, former)
}

/// A place of the log that none of these tests comes to.
const FAR: Lsn = Lsn(1 << 50);

/// A node whose copy was whole only behind the place to which the shard goes back cannot go back there: its data are of no one moment. It takes another copy.
#[test]
fn nobody_goes_back_to_before_its_copy_was_whole() {
    let mut shard = Shard::begin(&["durable", "durable"], 1, &["--shard-failover", "700"]);
    let (_, former) = part(&shard);
    let next = 1 - former;
    shard.nodes[former].kill();
    let path = shard.nodes[former].server.dir().join("insync");
    let kept = || Kept::from_line(std::fs::read_to_string(&path).unwrap().trim_end()).expect("it is whole");
    let before = kept();
    assert!(before.whole_from < FAR && !before.is_torn);
    std::fs::write(&path, Kept { whole_from: FAR, ..before.clone() }.to_line() + "\n").unwrap();
    shard.mend();
    assert_eq!(shard.wait_until_whole(), next);
    let mut client = shard.nodes[former].connect().unwrap();
    wait_until("it shows what was acknowledged", || {
        client.call(&["GET", "k"]).is_ok_and(|reply| reply == text("acknowledged"))
    });
    assert_eq!(info(&mut client, "sync_rewinds"), 0, "{}", shard.nodes[former].server.last_lines());
    assert_eq!(info(&mut shard.nodes[next].connect().unwrap(), "sync_full"), 1);
    let after = kept();
    assert_ne!(after.life, before.life, "what it has is other data");
    assert!(after.whole_from > Lsn::ZERO && after.whole_from < FAR, "from where on its new copy is whole");
}

#[test]
fn a_former_master_takes_back_what_only_it_has() {
    let shard = Shard::begin(&["durable", "durable"], 1, &["--shard-failover", "700"]);
    let (mut client, former) = part(&shard);
    let next = 1 - former;
    shard.nodes[former].relay.mend();
    shard.nodes[former].store.mend();
    // Nobody told it that it was done: there is no reply, or that it is not known.
    if let Ok(reply) = client.read_value() {
        assert!(error(&reply).starts_with("NOREPLICAS Not enough good replicas have what was written"));
    }
    assert_eq!(shard.wait_until_whole(), next);
    let mut client = shard.nodes[former].connect().unwrap();
    wait_until("the former master shows what was acknowledged", || {
        client.call(&["GET", "k"]).is_ok_and(|reply| reply == text("acknowledged"))
    });
    assert_eq!(info(&mut client, "sync_rewinds"), 1);
    assert_eq!(info(&mut shard.nodes[next].connect().unwrap(), "sync_full"), 0);
}

/// A new master has fed nobody, and keeps its log for the former one all the same: that goes on where it was, whatever was written meanwhile.
#[test]
fn a_former_master_goes_on_behind_checkpoints_of_its_successor() {
    let small = ["--shard-failover", "700", "--log-segment-size", "1mb", "--repl-backlog-size", "16kb"];
    let mut shard = Shard::begin(&["durable", "durable", "durable"], 1, &small);
    let former = shard.wait_until_whole();
    let lives = |shard: &Shard| shard.nodes[former].standing().map(|own| own["node"].clone());
    let before = lives(&shard);
    shard.nodes[former].kill();
    let write = |shard: &Shard, key: &str, value: &str| {
        wait_until("it is acknowledged", || {
            let client = shard.master().and_then(|(at, _)| shard.nodes[at].connect().ok());
            client
                .is_some_and(|mut client| client.call(&["SET", key, value]).is_ok_and(|reply| reply == ok()))
        });
    };
    let long = "x".repeat(700 << 10);
    for round in 0..3 {
        (0..4).for_each(|number| write(&shard, &format!("long:{number}"), &long));
        write(&shard, "round", &round.to_string());
        for node in shard.nodes.iter().filter(|node| !node.is_down) {
            let mut client = node.connect().unwrap();
            wait_until("a checkpoint begins", || !is_error(&call(&mut client, &["BGREWRITEAOF"]), ""));
            wait_until("it is written", || info(&mut client, "aof_rewrite_in_progress") == 0);
        }
    }
    shard.nodes[former].restart();
    let next = shard.wait_until_whole();
    assert_eq!(lives(&shard), before, "{}", shard.nodes[former].server.last_lines());
    let mut client = shard.nodes[former].connect().unwrap();
    wait_until("it shows what was written meanwhile", || {
        client.call(&["GET", "round"]).is_ok_and(|reply| reply == text("2"))
    });
    assert_eq!(info(&mut shard.nodes[next].connect().unwrap(), "sync_full"), 0);
}

/// Who has fewer databases than a node could do nothing of what is written in the others, and is not let in. Who does not say how many may come, as nodes of an
/// earlier version do.
#[test]
fn who_has_fewer_databases_is_no_node() {
    let shard = Shard::begin(&["durable"], 0, &["--databases", "5"]);
    let link = |more: &[&str]| {
        let mut client = shard.nodes[0].connect().unwrap();
        call(&mut client, &[&["INSYNC", "LINK", "tested", "1", "12345"], more].concat())
    };
    for more in [&["4"][..], &["4"], &["0"], &["-1"]] {
        assert!(error(&link(more)).contains("as many `databases` as it has, which are 5"), "{more:?}");
    }
    let told_in = |lines: &str, databases: i32| {
        lines.matches(&format!("it has {databases} `databases`, and this one has 5")).count()
    };
    // What a server logs is read by a thread of its own.
    wait_until("the last of them is told of", || told_in(&shard.nodes[0].server.last_lines(), -1) > 0);
    let lines = shard.nodes[0].server.last_lines();
    let told = |databases: i32| told_in(&lines, databases);
    assert_eq!([told(4), told(0)], [1, 1], "who asks again and again is told of once: {lines}");
    assert!(is_error(&link(&["many"]), "ERR value is not an integer"));
    for more in [&[][..], &["5"], &["16"]] {
        assert!(matches!(link(more), Value::Simple(_)), "{more:?}");
    }
}

#[test]
fn who_began_an_epoch_that_the_store_has_forgotten_takes_no_part_in_another_of_its_number() {
    let mut shard = Shard::begin(&["durable", "durable"], 0, &["--shard-failover", "0"]);
    assert_eq!(shard.wait_until_whole(), 0);
    let backup = shard.nodes[0].server.dir().join("backup of the store");
    shard.with_stopped_store(|dir| copy_all(dir, &backup));
    shard.wait_until_whole();
    shard.nodes[1].kill();
    // It needs an epoch of its own, and acknowledges alone.
    shard.nodes[0].kill();
    shard.nodes[0].restart();
    let set = |node: &shard::Node, key: &str| {
        wait_until("it takes writes", || {
            node.connect()
                .and_then(|mut client| client.call(&["SET", key, "v"]))
                .is_ok_and(|reply| reply == ok())
        });
    };
    set(&shard.nodes[0], "forgotten");
    shard.nodes[0].kill();
    shard.with_stopped_store(|dir| {
        std::fs::remove_dir_all(dir).unwrap();
        copy_all(&backup, dir);
    });
    shard.nodes[1].restart();
    wait_until("the other is promoted", || {
        shard.nodes[1].connect().unwrap().call(&["INSYNC", "PROMOTE"]).is_ok_and(
            |reply| matches!(&reply, Value::Simple(text) if text.starts_with(b"OK Already master")),
        )
    });
    set(&shard.nodes[1], "of another epoch of this number");
    shard.nodes[0].restart();
    wait_until("it takes no part", || shard.nodes[0].standing().is_some_and(|own| own["role"] == "halted"));
    wait_until("it says why", || shard.nodes[0].server.last_lines().contains("Another has begun epoch 2"));
}

/// A request that takes longer to come than a member may be silent is progress, and not silence.
#[test]
fn a_pair_acknowledges_what_takes_longer_to_come_than_silence() {
    let shard = Shard::begin(&["durable", "memory"], 1, &["--shard-failover", "0", "--shard-silence", "400"]);
    let master = shard.wait_until_whole();
    let long = "x".repeat(3 << 20);
    // Three times as long as silence. The connection on which nodes speak has room for what they say.
    shard.nodes[master].relay.throttle(Way::Back, (long.len() as u64) * 10 / 12);
    let mut client = Client::connect(shard.nodes[master].server.address()).unwrap();
    // A machine without time to spare may part a pair by itself, and then it is tried again.
    wait_until("it is acknowledged", || {
        shard.wait_until_whole();
        call(&mut client, &["SET", "long", &long]) == ok()
    });
    let mut other = shard.nodes[1 - master].connect().unwrap();
    wait_until("a member shows it", || {
        call(&mut other, &["STRLEN", "long"]) == Value::Int(long.len() as i64)
    });
}

#[test]
fn a_master_whose_disk_hangs_keeps_its_member_and_is_replaced_by_command() {
    let directives = ["--shard-silence", "1500", "--shard-lease", "1600", "--enable-debug-command", "yes"];
    let mut shard = Shard::begin(&["durable", "durable"], 1, &directives);
    let master = shard.wait_until_whole();
    let mut client = shard.nodes[master].connect().unwrap();
    assert_eq!(call(&mut client, &["SET", "k", "acknowledged"]), ok());
    assert_eq!(call(&mut client, &["DEBUG", "DISK-HANG", "1"]), ok());
    client.send_request(&["SET", "k", "never"]).unwrap();
    // For longer than a member may be silent; nothing is to happen meanwhile.
    std::thread::sleep(std::time::Duration::from_millis(4000));
    let next = &shard.nodes[1 - master];
    assert_eq!(call(&mut next.connect().unwrap(), &["INSYNC", "PROMOTE"]), ok());
    wait_until("it is master", || next.standing().is_some_and(|own| own["role"] == "master"));
    wait_until("it shows what was acknowledged", || {
        let reply = next.connect().and_then(|mut client| client.call(&["GET", "k"]));
        reply.is_ok_and(|reply| reply == text("acknowledged"))
    });
    shard.nodes[master].kill();
    shard.nodes[master].restart();
    assert_eq!(shard.wait_until_whole(), 1 - master);
}

#[test]
fn a_master_that_is_ended_hands_over() {
    let mut shard = Shard::begin(&["durable", "memory"], 1, &["--shard-failover", "0"]);
    let master = shard.wait_until_whole();
    shard.nodes[master].connect().unwrap().send_request(&["SHUTDOWN"]).unwrap();
    wait_until("another is master", || {
        shard.nodes[1 - master].standing().is_some_and(|own| own["role"] == "master")
    });
    shard.nodes[master].kill();
    shard.nodes[master].restart();
    assert_eq!(shard.wait_until_whole(), 1 - master);
}

#[test]
fn a_durable_pair_keeps_what_it_acknowledged() {
    rounds(&["durable", "durable"], 1, Budget::from_env(1, 4));
}

#[test]
fn a_memory_pair_keeps_what_it_acknowledged() {
    rounds(&["memory", "memory"], 1, Budget::from_env(1, 4));
}

#[test]
fn a_triple_keeps_what_it_acknowledged() {
    rounds(&["durable", "capacity", "durable"], 1, Budget::from_env(1, 4));
}

#[test]
fn a_memory_master_that_is_back_at_once_with_nothing_empties_nobody() {
    rebirths(&["memory", "memory"], 1, Budget::from_env(1, 4));
}
