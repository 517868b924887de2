//! Slots that move between shards of real processes, with all that they hold, while they are written and while servers are killed and stand still.
//!
//!     TARN_STEPS=100 TARN_SEED=$RANDOM ./test --test tests -- --nocapture slot_moves::nothing_is_lost

use crate::clusters::cluster::{self, Cluster, Kind, PATIENT};
use crate::clusters::guided::Guided;
use crate::clusters::rounds::{rounds, tags};
use crate::operators::{refused_by, shown_by};
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use sys::Prng;
use testkit::ask::{call, is_error, ok, text};
use testkit::{Budget, Client};
use topology::{ServerId, ShardId, Stage, Topology};
use wire::{Value, key_slot};

/// Keys that are set and read, of slots that move.
const KEYS: usize = 6;
/// How long something lasts at most, in milliseconds.
const FAULT_MS_MAX: u64 = 2000;

/// The master of a shard, as the config server says.
fn master(topology: &Topology, shard: u16) -> ServerId {
    topology.master_of(ShardId(shard)).expect("there is one").id
}

/// What a config server says of the cluster; nothing where none answers.
fn status(cluster: &Cluster) -> serde_json::Value {
    match cluster.ask_config(&["CLUSTER", "STATUS", "JSON"]) {
        Some(Value::Bulk(text)) => serde_json::from_slice(&text).expect("it is JSON"),
        _ => serde_json::Value::Null,
    }
}

/// Has slots go to a shard; gives the number of the last of the moves, 0 if there is nothing to move, or why there is none.
pub fn move_slots(cluster: &Cluster, to: u16, slots: &[String]) -> Result<u64, String> {
    let to = to.to_string();
    let words: Vec<&str> =
        ["CLUSTER", "MOVE-SLOTS", "-", &to].into_iter().chain(slots.iter().map(String::as_str)).collect();
    let mut answer = None;
    cluster::wait_until("the move is written down", || {
        answer = cluster.ask_config(&words);
        !matches!(&answer, None | Some(Value::Error(_)))
            || matches!(&answer, Some(Value::Error(line)) if line.starts_with(b"ERR"))
    });
    match answer {
        Some(Value::Simple(line)) => {
            let line = String::from_utf8_lossy(&line).into_owned();
            Ok(line.strip_prefix("moves").map_or(0, last_number))
        }
        other => Err(format!("{other:?}")),
    }
}

fn last_number(numbers: &str) -> u64 {
    numbers.split_whitespace().next_back().expect("there is one").parse().expect("it is a number")
}

/// Waits until no move is under way, by a config server that knows of this one; gives why one has failed, if one has.
pub fn wait_for_moves(cluster: &Cluster, last: u64) -> Option<String> {
    let mut failed = None;
    cluster::wait_until("moves are over", || {
        cluster.topology().filter(|topology| topology.last_move >= last).is_some_and(|topology| {
            let mut moves = topology.moves.values();
            failed = moves.clone().find_map(|one| match &one.stage {
                Stage::Failed(reason) => Some(reason.clone()),
                _ => None,
            });
            moves.all(|one| matches!(one.stage, Stage::Failed(_)))
        })
    });
    failed
}

/// Keys of all types, with and without times to live, short and long, in several databases.
fn fill(client: &mut Client, databases: u32, tag: &str) {
    for db in 0..databases {
        call(client, &["SELECT", &db.to_string()]);
        let key = |name: &str| format!("{name}{{{tag}}}");
        call(client, &["SET", &key("string"), "value"]);
        call(client, &["SET", &key("number"), "42", "EX", "10000"]);
        call(client, &["SET", &key("text"), &"x".repeat(300_000)]);
        call(client, &["SET", &key("expired"), "soon", "PX", "1"]);
        for chunk in 0..60 {
            let words = |command: &str, name: &str, each: &dyn Fn(u32) -> Vec<String>| {
                let members = (chunk * 50..chunk * 50 + 50).flat_map(each);
                [command.to_owned(), key(name)].into_iter().chain(members).collect::<Vec<_>>()
            };
            let long = |number: u32| format!("{number}-{}", "y".repeat(60));
            for words in [
                words("RPUSH", "list", &|n| vec![long(n)]),
                words("SADD", "set", &|n| vec![long(n)]),
                words("ZADD", "zset", &|n| vec![n.to_string(), long(n)]),
                words("HSET", "hash", &|n| vec![long(n), n.to_string()]),
            ] {
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                call(client, &words);
            }
        }
        for number in 1..500 {
            call(client, &["XADD", &key("stream"), &format!("{number}-1"), "field", &number.to_string()]);
        }
        call(client, &["XGROUP", "CREATE", &key("stream"), "group", "0"]);
        call(client, &["XREADGROUP", "GROUP", "group", "me", "COUNT", "10", "STREAMS", &key("stream"), ">"]);
        for (command, name, more) in
            [("RPUSH", "few", "1"), ("SADD", "ints", "7"), ("SADD", "small", "a"), ("PFADD", "hll", "a")]
        {
            call(client, &[command, &key(name), more]);
        }
        call(client, &["EXPIRE", &key("few"), "5000"]);
    }
    call(client, &["SELECT", "0"]);
}

/// What a server shows of each key of a database.
fn shown(client: &mut Client, db: u32) -> BTreeMap<Vec<u8>, (Value, Value)> {
    call(client, &["SELECT", &db.to_string()]);
    let Value::Array(keys) = call(client, &["KEYS", "*"]) else { panic!("it lists keys") };
    let mut all = BTreeMap::new();
    for key in keys {
        let Value::Bulk(name) = key else { panic!("a key is bytes") };
        let text = String::from_utf8_lossy(&name).into_owned();
        let digest = call(client, &["DEBUG", "DIGEST-VALUE", &text]);
        let until = call(client, &["PEXPIRETIME", &text]);
        all.insert(name, (digest, until));
    }
    all
}

/// Has slots go to a shard, and waits until they have.
pub fn move_and_wait(cluster: &Cluster, to: u16, slots: &str) {
    let last = move_slots(cluster, to, &[slots.to_owned()]).expect("it can be");
    assert_eq!(wait_for_moves(cluster, last), None);
}

fn moves_everything(edition: &str) {
    let directives = ["--edition", edition, "--enable-debug-command", "yes"];
    let cluster = Cluster::begin(2, 2, &[&directives, &PATIENT[..]].concat());
    let topology = cluster.topology().expect("it is there");
    let (source, target) = (master(&topology, 0), master(&topology, 1));
    let (mut from, mut to) = (cluster.connect(source).unwrap(), cluster.connect(target).unwrap());
    let tags = tags(3, |slot| slot < 2000);
    for tag in &tags {
        fill(&mut from, 3, tag);
    }
    let before: Vec<_> = (0..3).map(|db| shown(&mut from, db)).collect();
    assert!(before.iter().all(|all| all.len() > 30));
    move_and_wait(&cluster, 1, "0-1999");
    cluster::wait_until("the other shard shows them", || {
        (0..3).all(|db| shown(&mut to, db) == before[db as usize])
    });
    // It has heard of it then.
    cluster::wait_until("the first shows none", || (0..3).all(|db| shown(&mut from, db).is_empty()));
    for (client, count) in [(&mut from, 0), (&mut to, before[2].len())] {
        // The last database that was looked at.
        assert_eq!(call(client, &["DBSIZE"]), Value::Int(count as i64));
    }
    // All of it is with the replica, too.
    let replica = topology.replicas_of(ShardId(1)).next().expect("there is one").id;
    let mut replica = cluster.connect(replica).unwrap();
    assert_eq!(call(&mut replica, &["READONLY"]), ok());
    cluster::wait_until("the replica shows them", || {
        (0..3).all(|db| shown(&mut replica, db) == before[db as usize])
    });
    // And back, when somebody has them whom they did not come to as clients' writes.
    move_and_wait(&cluster, 0, "0-1999");
    cluster::wait_until("they are back", || (0..3).all(|db| shown(&mut from, db) == before[db as usize]));
}

#[test]
fn slots_move_with_all_they_hold_in_memory() {
    moves_everything("memory");
}

#[test]
fn slots_move_with_all_they_hold_durably() {
    moves_everything("durable");
}

#[test]
fn slots_move_with_all_they_hold_beyond_memory() {
    moves_everything("capacity");
}

/// Something happens to a server or to the config server that leads, or nothing does. It is for the caller to mend it.
fn disturb(cluster: &mut Cluster, prng: &mut Prng) {
    let topology = cluster.topology_before();
    let lasts = Duration::from_millis(prng.below(FAULT_MS_MAX));
    let servers: Vec<ServerId> = topology.servers.keys().copied().collect();
    let masters = [master(&topology, 0), master(&topology, 1)];
    let whom = match prng.below(4) {
        0 => servers[usize::try_from(prng.below(servers.len() as u64)).unwrap()],
        _ => masters[usize::try_from(prng.below(2)).unwrap()],
    };
    match prng.below(5) {
        0 => return,
        1 => {
            if let Some(leader) = cluster.config.leader() {
                cluster.config.kill(leader);
            }
        }
        2 => cluster.signal(whom, "-STOP"),
        _ => cluster.kill(whom),
    }
    std::thread::sleep(lasts);
}

/// Rounds in which slots go to and fro while something happens.
fn slots_come_and_go(kind: Kind, directives: &[&str], budget: Budget) {
    let mut cluster = Cluster::begin_as(kind, (2, 2), directives);
    let tags = tags(KEYS, |slot| slot < 4000);
    let slot = key_slot(tags[0].as_bytes());
    rounds(&mut cluster, budget, (&tags, &[]), |cluster, prng| {
        for _ in 0..1 + prng.below(2) {
            let is_first = cluster.topology_before().slots.owner(slot) == Some(ShardId(0));
            let last = move_slots(cluster, u16::from(is_first), &["0-3999".to_owned()]);
            // When in the move it happens is what this is about.
            std::thread::sleep(Duration::from_millis(prng.below(150)));
            disturb(cluster, prng);
            cluster.mend();
            cluster.wait_until_whole();
            wait_for_moves(cluster, last.unwrap_or(0));
        }
    });
}

#[test]
fn nothing_is_lost_while_slots_go_to_and_fro() {
    let directives = ["--edition", "durable", "--min-sync-replicas", "1"];
    let quick = ["--shard-silence", "300", "--shard-lease", "500"];
    slots_come_and_go(Kind::Embedded, &[&directives[..], &quick].concat(), Budget::from_env(1, 2));
}

#[test]
fn over_etcd_nothing_is_lost_while_slots_go_to_and_fro() {
    slots_come_and_go(Kind::OverEtcd, &["--edition", "durable"], Budget::from_env(1, 2));
}

#[test]
fn an_operator_sees_how_slots_move() {
    let cluster = Cluster::begin(2, 1, &[]);
    let place = cluster.place();
    let shown = |words: &[&str]| shown_by("cluster", &[words, &["--config", &place]].concat());
    let owned = || {
        let slots = cluster.topology().expect("it is there").slots;
        [0, 1].map(|shard| slots.count_of(ShardId(shard)))
    };
    let source = master(&cluster.topology().expect("it is there"), 0);
    fill(&mut cluster.connect(source).unwrap(), 1, &tags(1, |slot| slot < 2000)[0]);
    assert_eq!(shown(&["moves"]), "no slots are on their way\n");
    let moved = shown(&["move-slots", "1", "0-1999", "5000", "--from", "0"]);
    assert!(moved.starts_with("moves 1\n") && moved.ends_with("1 of 1 moves are over\n"), "{moved}");
    assert_eq!(owned(), [8192 - 2001, 8192 + 2001]);
    // Said again it finds nothing to do.
    assert_eq!(shown(&["move-slots", "1", "0-1999", "5000"]), "nothing is to be moved\n");
    let refused = |words: &[&str]| refused_by("cluster", &[words, &["--config", &place]].concat());
    assert_eq!(shown(&["move-slots", "1", "0-1", "--from", "0"]), "nothing is to be moved\n");
    assert!(refused(&["move-slots", "0", "0-1", "--from", "0"]).contains("cannot give slots to itself"));
    assert!(refused(&["move-slots", "7", "0-1"]).contains("no shard 7"));
    assert!(refused(&["move-slots", "0", "16384"]).contains("slots are 0 to 16383"));
    assert!(refused(&["cancel-move", "99"]).contains("no move 99"));
    let planned = shown(&["rebalance", "--dry-run"]);
    assert!(planned.starts_with("2001 slots from shard 1 to shard 0: "), "{planned}");
    assert_eq!(owned(), [8192 - 2001, 8192 + 2001]);
    let moved = shown(&["rebalance"]);
    assert!(moved.starts_with("moves 2\n") && moved.ends_with("1 of 1 moves are over\n"), "{moved}");
    assert_eq!(owned(), [8192, 8192]);
    assert_eq!(shown(&["set", "move-rate", "100000"]), "OK\n");
    assert_eq!(shown(&["rebalance", "--no-wait"]), "nothing is to be moved\n");
}

/// The config server that the tool has asked is cut off from the store while slots are on their way: it does not hear any more that they come.
#[test]
fn whoever_shows_how_slots_move_goes_on_to_another_config_server() {
    let mut cluster = Cluster::begin_as(Kind::OverEtcd, (2, 1), &["--edition", "memory"]);
    let source = master(&cluster.topology().expect("it is there"), 0);
    fill(&mut cluster.connect(source).unwrap(), 1, &tags(1, |slot| slot < 2000)[0]);
    cluster::wait_until("one leads", || cluster.config.leader().is_some());
    let leader = cluster.config.leader().expect("one leads");
    let addresses = cluster.config.addresses();
    let (first, other) = (addresses[leader].to_string(), addresses[1 - leader].to_string());
    let places = format!("{first},{other}");
    // Slow enough to be seen under way.
    assert_eq!(shown_by("cluster", &["set", "move-rate", "20000", "--config", &places]), "OK\n");
    let mut tool = Command::new(crate::tarn_path())
        .args(["cluster", "move-slots", "1", "0-1999", "--config", &places])
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("it starts");
    let is_copying = || {
        let moves = cluster.topology().map(|topology| topology.moves).unwrap_or_default();
        moves.values().any(|one| one.stage == Stage::Copying)
    };
    cluster::wait_until("it is under way", is_copying);
    cluster.config.cut_off(leader);
    cluster::wait_until("the other one leads", || cluster.config.leader() == Some(1 - leader));
    let mut ended = None;
    cluster::wait_until("it may be faster", || {
        let words = ["cluster", "set", "move-rate", "0", "--config", &other];
        Command::new(crate::tarn_path()).args(words).output().is_ok_and(|output| output.status.success())
    });
    cluster::wait_until("the tool has seen its end", || {
        ended = tool.try_wait().expect("it is ours");
        ended.is_some()
    });
    assert!(ended.is_some_and(|status| status.success()));
    cluster.config.mend();
    cluster::wait_until("all know it", || {
        cluster.topology().is_some_and(|now| now.slots.count_of(ShardId(1)) == 8192 + 2000)
    });
}

/// Counts a key of its own up, many at a time, until its slot is another shard's; gives what it was told last.
fn count_until_it_is_elsewhere(
    mut client: Client,
    key: &str,
    (counted, is_over): (&AtomicU64, &AtomicBool),
) -> i64 {
    // Requests of one length, so that one that is left out or done twice leaves sound what is read behind it.
    let requests = vec![vec!["INCR".to_owned(), key.to_owned()]; 200];
    let mut told = 0;
    while !is_over.load(Ordering::Relaxed) {
        for reply in client.pipeline(&requests).expect("it is answered") {
            if reply.starts_with(b"-MOVED") {
                return told;
            }
            let text = String::from_utf8_lossy(&reply).into_owned();
            told = text.trim_start_matches(':').trim_end().parse().expect("it is a number");
            counted.fetch_add(1, Ordering::Relaxed);
        }
    }
    told
}

/// The stream is read out of the log's files, up to a place that is further each time, while it goes on.
#[test]
fn what_is_written_while_a_move_is_far_behind_is_there_once() {
    const WRITERS: usize = 4;
    let cluster = Cluster::begin(2, 1, &["--edition", "durable", "--repl-backlog-size", "16kb"]);
    let topology = cluster.topology().expect("it is there");
    let (source, target) = (master(&topology, 0), master(&topology, 1));
    let tag = &tags(1, |slot| slot < 2000)[0];
    let mut client = cluster.connect(source).unwrap();
    for number in 0..10 {
        call(&mut client, &["SET", &format!("long{number}{{{tag}}}"), &"x".repeat(100_000)]);
    }
    let told = |words: &[&str]| matches!(cluster.ask_config(words), Some(Value::Simple(_)));
    let counted = AtomicU64::new(0);
    let await_more = |more: u64| {
        let wanted = counted.load(Ordering::Relaxed) + more;
        cluster::wait_until("more is counted", || counted.load(Ordering::Relaxed) >= wanted);
    };
    let names: Vec<String> = (0..WRITERS).map(|number| format!("count{number}{{{tag}}}")).collect();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _ends = testkit::Ends(&is_over);
        let writers: Vec<_> = names
            .iter()
            .map(|name| {
                let (client, noted) = (cluster.connect(source).unwrap(), (&counted, &is_over));
                scope.spawn(move || count_until_it_is_elsewhere(client, name, noted))
            })
            .collect();
        // Far behind at first, and then faster.
        cluster::wait_until("the rate is known", || told(&["CLUSTER", "SET", "move-rate", "200000"]));
        let last = move_slots(&cluster, 1, &["0-1999".to_owned()]).expect("it can be");
        await_more(20_000);
        cluster::wait_until("it may be faster", || told(&["CLUSTER", "SET", "move-rate", "0"]));
        assert_eq!(wait_for_moves(&cluster, last), None);
        let last: Vec<i64> = writers.into_iter().map(|writer| writer.join().expect("it has ended")).collect();
        let mut taker = cluster.connect(target).unwrap();
        for (name, last) in names.iter().zip(last) {
            let wanted = Value::Bulk(last.to_string().into_bytes());
            assert_eq!(call(&mut taker, &["GET", name]), wanted, "{name}");
        }
    });
}

/// A move takes no more than its rate says however little that is, says so meanwhile, and is faster as soon as it may be.
#[test]
fn a_move_keeps_to_its_rate_however_low() {
    const RATE: u64 = 1000;
    // As much as is sent at a time, and what is written when a rate is told.
    const PIECES: u64 = 300_000;
    let cluster = Cluster::begin(2, 1, &["--edition", "memory"]);
    let source = master(&cluster.topology().expect("it is there"), 0);
    let tag = &tags(1, |slot| slot < 2000)[0];
    let mut client = cluster.connect(source).unwrap();
    for number in 0..10 {
        call(&mut client, &["SET", &format!("long{number}{{{tag}}}"), &"x".repeat(100_000)]);
    }
    let told = |words: &[&str]| matches!(cluster.ask_config(words), Some(Value::Simple(_)));
    cluster::wait_until("the rate is known", || told(&["CLUSTER", "SET", "move-rate", &RATE.to_string()]));
    let began = Instant::now();
    let last = move_slots(&cluster, 1, &["0-1999".to_owned()]).expect("it can be");
    let mut is_told = false;
    cluster::wait_until("it has said how far it is", || {
        let bytes = status(&cluster)["moves"][0]["figures"]["bytes"].as_u64().unwrap_or_default();
        let most = PIECES + RATE * began.elapsed().as_secs();
        assert!(bytes <= most, "{bytes} bytes were sent, {most} at most were due");
        is_told |= bytes > 0;
        is_told && began.elapsed() > Duration::from_secs(6)
    });
    cluster::wait_until("it may be faster", || told(&["CLUSTER", "SET", "move-rate", "0"]));
    assert_eq!(wait_for_moves(&cluster, last), None);
}

/// The master that is to have the slots is cut off from the config servers, and from nobody else, just before they switch: it does not hear that requests are held back for it.
#[test]
fn clients_are_served_while_the_target_does_not_hear_that_slots_switch() {
    let mut cluster = Cluster::begin_as(Kind::OverEtcd, (2, 1), &["--edition", "memory"]);
    let topology = cluster.topology().expect("it is there");
    let (source, target) = (master(&topology, 0), master(&topology, 1));
    let mut client = cluster.connect(source).unwrap();
    // On a busy machine it may take several times what the master that gives slots waits for.
    client.stream().set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let tag = &tags(1, |slot| slot < 2000)[0];
    let key = format!("count{{{tag}}}");
    let mut count = 0;
    let mut is_counted = |client: &mut Client| {
        count += 1;
        assert_eq!(client.call(&["INCR", &key]).expect("it is not held back for long"), Value::Int(count));
    };
    let ask = |words: &[&str]| {
        let mut answer = None;
        cluster::wait_until("somebody answers", || {
            answer = cluster.ask_config(words);
            matches!(answer, Some(Value::Simple(_)))
        });
    };
    // Slow enough to be seen under way, and so much that it takes longer than the target is believed in that is cut off.
    ask(&["CLUSTER", "SET", "move-rate", "20000"]);
    fill(&mut client, 1, tag);
    for number in 0..8 {
        call(&mut client, &["SET", &format!("long{number}{{{tag}}}"), &"x".repeat(200_000)]);
    }
    let last = move_slots(&cluster, 1, &["0-1999".to_owned()]).expect("it can be");
    // How far it is only the config server that leads knows, which is not always the one that answers: all of it takes more than a minute at that rate.
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(2) {
        is_counted(&mut client);
    }
    cluster.links(target).expect("they can be cut").cut_off_from_config();
    // Who does not lead knows of those only who talk to itself.
    let is_missed = || {
        let told = status(&cluster);
        told["is_of_leader"] == true && told["shards"][1]["servers"][0]["lives"] == false
    };
    cluster::wait_until("the target is not heard of", || {
        is_counted(&mut client);
        is_missed()
    });
    // Not before: while it counts as there, slots switch as soon as they are copied.
    ask(&["CLUSTER", "SET", "move-rate", "0"]);
    for _ in 0..2_000 {
        is_counted(&mut client);
    }
    assert_eq!(cluster.topology().expect("it is there").slots.owner(0), Some(ShardId(0)));
    cluster.mend();
    assert_eq!(wait_for_moves(&cluster, last), None);
    let now = cluster.topology().expect("it is there");
    assert_eq!(now.slots.count_of(ShardId(1)), 8192 + 2000);
    let mut taker = cluster.connect(target).unwrap();
    cluster::wait_until(
        "it has been told",
        || matches!(taker.call(&["GET", &key]), Ok(Value::Bulk(now)) if now == count.to_string().as_bytes()),
    );
}

/// A client is sent to where its slot is by each move once, and not to and fro between two masters of which one hears later that the slot has moved.
#[test]
fn a_client_is_sent_elsewhere_once_by_each_move() {
    const MOVES: u16 = 30;
    let cluster = Cluster::begin(2, 1, &["--edition", "memory"]);
    let topology = cluster.topology().expect("it is there");
    let masters = [master(&topology, 0), master(&topology, 1)];
    let key = format!("count{{{}}}", tags(1, |slot| slot < 100)[0]);
    let (counted, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let sent_on = thread::scope(|scope| {
        let _ends = testkit::Ends(&is_over);
        let count = || {
            let mut clients = masters.map(|master| cluster.connect(master).expect("it is there"));
            let mut sent_on = 0;
            while !is_over.load(Ordering::Relaxed) {
                match call(&mut clients[sent_on % 2], &["INCR", &key]) {
                    Value::Int(_) => drop(counted.fetch_add(1, Ordering::Relaxed)),
                    moved => {
                        assert!(is_error(&moved, "MOVED"), "{moved:?}");
                        sent_on += 1;
                    }
                }
            }
            sent_on
        };
        let client = scope.spawn(count);
        for number in 1..=MOVES {
            let last = move_slots(&cluster, number % 2, &["0-99".to_owned()]).expect("it can be");
            assert_eq!(wait_for_moves(&cluster, last), None);
            let before = counted.load(Ordering::Relaxed);
            cluster::wait_until("it is counted", || counted.load(Ordering::Relaxed) > before + 1);
        }
        is_over.store(true, Ordering::Relaxed);
        client.join().expect("it has ended")
    });
    assert_eq!(sent_on, usize::from(MOVES));
}

/// The master that is to have the slots stands still just when requests to them are held back.
#[test]
fn clients_are_served_while_the_target_stands_still_and_slots_switch() {
    let cluster = Cluster::begin(2, 1, &["--edition", "memory"]);
    let key = format!("k{{{}}}", tags(1, |slot| slot < 100)[0]);
    let (mut owner, mut caught, mut round) = (0, 0, 0);
    // How often it has to be tried until it stands still in just that moment is the machine's affair.
    cluster::wait_until("it has stood still in that moment", || {
        round += 1;
        let topology = cluster.topology().expect("it is there");
        let (source, target) = (master(&topology, owner), master(&topology, 1 - owner));
        let mut client = cluster.connect(source).unwrap();
        // On a busy machine it may take several times what the master that gives them waits for.
        client.stream().set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let value = round.to_string();
        assert_eq!(call(&mut client, &["SET", &key, &value]), ok());
        let last = move_slots(&cluster, 1 - owner, &["0-99".to_owned()]).expect("it can be");
        let stage =
            || cluster.topology().map(|topology| topology.moves.get(&last).map(|one| one.stage.clone()));
        cluster::wait_until("they switch", || {
            !matches!(stage(), Some(Some(Stage::Waiting | Stage::Copying)))
        });
        cluster.signal(target, "-STOP");
        // The word that all is ready may have been said.
        thread::sleep(Duration::from_millis(50));
        caught += usize::from(stage() == Some(Some(Stage::Switching)));
        let reply = client.call(&["GET", &key]).expect("it is answered while the other stands still");
        assert!(reply == text(&value) || is_error(&reply, "MOVED"), "{reply:?}");
        cluster.signal(target, "-CONT");
        assert_eq!(wait_for_moves(&cluster, last), None);
        let now = cluster.topology().expect("it is there");
        owner = now.slots.owner(0).expect("it is somebody's").0;
        cluster::wait_until("who has them is told so", || {
            let mut client = cluster.connect(master(&now, owner)).unwrap();
            client.call(&["GET", &key]).is_ok_and(|reply| reply == text(&value))
        });
        caught == 2
    });
}

/// redis-cli moves slots key by key; here each of its words moves a slot, and there is nothing left to move by keys.
#[test]
fn redis_cli_reshards() {
    let cluster = Cluster::begin(2, 1, &["--edition", "memory"]);
    let topology = cluster.topology().expect("it is there");
    let (source, target) = (master(&topology, 0), master(&topology, 1));
    let mut guided = Guided::new(&cluster);
    let names: Vec<String> =
        (0..200).map(|number| format!("k{number}{{{}}}", tags(1, |slot| slot < 3)[0])).collect();
    for name in &names {
        assert_eq!(guided.call(name, &["SET", name, "v"]).unwrap(), ok());
    }
    let server = &topology.servers[&source];
    let (place, from, to) =
        (format!("{}:{}", server.host, server.port), source.to_string(), target.to_string());
    let words = ["--cluster", "reshard", &place, "--cluster-from", &from, "--cluster-to", &to];
    let more = ["--cluster-slots", "8", "--cluster-yes"];
    let output =
        testkit::process::bounded("redis-cli").args(words).args(more).output().expect("there is redis-cli");
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{shown}");
    let slots = cluster.topology().expect("it is there").slots;
    assert_eq!([0, 1].map(|shard| slots.count_of(ShardId(shard))), [8192 - 8, 8192 + 8], "{shown}");
    for name in &names {
        assert_eq!(guided.call(name, &["GET", name]).unwrap(), testkit::ask::text("v"));
    }
    // Nodes that have not heard yet what the cluster is say otherwise for a moment.
    cluster::wait_until("all nodes agree", || {
        let check = testkit::process::bounded("redis-cli").args(["--cluster", "check", &place]).output();
        check.expect("there is redis-cli").status.success()
    });
}
