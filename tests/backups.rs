//! Backups of whole clusters: `tarn cluster backup` while clients write, and `tarn cluster restore` into another cluster.
//!
//! What is held: whoever writes to one shard after another was acknowledged by another never finds the second write in a backup without the first; nothing acknowledged before a
//! backup began is missing, and nothing is there that was never written.
//!
//!     TARN_STEPS=20 TARN_SEED=$RANDOM ./test --test tests -- --nocapture backups::

use crate::clusters::cluster::{Cluster, Kind, PATIENT, wait_until};
use crate::clusters::guided::Guided;
use crate::clusters::rounds::tags_of_each;
use crate::imports::{complaint, run};
use crate::operators::text;
use crate::slot_moves::move_and_wait;
use crate::tarn_path;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use sys::Prng;
use sys::file::Fs;
use testkit::ask::{call, is_error, ok};
use testkit::{Budget, Client, free_port};
use topology::ShardId;
use wire::Value;

/// Shards of a cluster here.
const SHARDS: usize = 3;
/// Clients that write from shard to shard.
const CLIENTS: usize = 4;

/// A directory for backups, of which each has a name.
struct Backups(tempfile::TempDir);

impl Backups {
    fn new() -> Backups {
        Backups(tempfile::tempdir().expect("there is room"))
    }

    fn dir(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }
}

fn take(cluster: &Cluster, dir: &Path) {
    let output = run("cluster", &["backup", text(dir), "--config", &cluster.place()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// What it says stands beside the directory, in [`said`].
fn spawn(cluster: &Cluster, what: &str, dir: &Path) -> Child {
    let said = fs::File::create(said(dir)).expect("it can be made");
    let words = ["cluster", what, text(dir), "--config", &cluster.place()];
    Command::new(tarn_path()).args(words).stdout(Stdio::null()).stderr(said).spawn().expect("it starts")
}

/// Where the tool's words about a directory are.
fn said(dir: &Path) -> PathBuf {
    dir.with_extension("said")
}

/// A new cluster with what a backup holds.
fn restored(dir: &Path, copies: usize, edition: &str) -> Cluster {
    let cluster = Cluster::begin_awaiting((SHARDS, copies), &["--edition", edition]);
    restore(&cluster, dir);
    cluster
}

fn restore(cluster: &Cluster, dir: &Path) {
    let output = run("cluster", &["restore", text(dir), "--config", &cluster.place()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    cluster.wait_until_whole();
}

/// The keys of a client: one in each shard, in the order in which it writes them.
fn keys(tags: &[String], client: usize) -> Vec<String> {
    (0..SHARDS).map(|at| format!("{{{}}}:{client}", tags[(at + client) % SHARDS])).collect()
}

/// Clients that write 1, 2, 3 ... to one shard after another: each number to the next shard only when the one before has acknowledged it.
struct Writers {
    is_over: AtomicBool,
    /// What the last shard has acknowledged, of each client.
    acknowledged: Vec<AtomicU64>,
    /// What was asked of the first.
    asked: Vec<AtomicU64>,
}

impl Writers {
    fn new() -> Writers {
        let zeros = || (0..CLIENTS).map(|_| AtomicU64::new(0)).collect();
        Writers { is_over: AtomicBool::new(false), acknowledged: zeros(), asked: zeros() }
    }

    fn write(&self, mut guided: Guided, client: usize, tags: &[String]) {
        let keys = keys(tags, client);
        let mut number = 0;
        while !self.is_over.load(Ordering::Relaxed) {
            number += 1;
            self.asked[client].store(number, Ordering::SeqCst);
            for key in &keys {
                let value = number.to_string();
                assert_eq!(guided.call(key, &["SET", key, &value]).expect("it is answered"), ok());
            }
            self.acknowledged[client].store(number, Ordering::SeqCst);
        }
    }

    fn seen(of: &[AtomicU64]) -> Vec<u64> {
        of.iter().map(|one| one.load(Ordering::SeqCst)).collect()
    }

    /// Runs something while they write; they have begun then.
    fn during<T>(&self, cluster: &mut Cluster, work: impl FnOnce(&mut Cluster) -> T) -> T {
        let tags = tags_of_each(1, &cluster.topology_before());
        self.is_over.store(false, Ordering::Relaxed);
        let guided: Vec<Guided> = (0..CLIENTS).map(|_| Guided::new(cluster)).collect();
        thread::scope(|scope| {
            // They end, whatever comes of it.
            let ending = testkit::Ends(&self.is_over);
            for (client, guided) in guided.into_iter().enumerate() {
                let tags = &tags;
                scope.spawn(move || self.write(guided, client, tags));
            }
            let begin = Writers::seen(&self.acknowledged);
            wait_until("all write", || {
                Writers::seen(&self.acknowledged).iter().zip(&begin).all(|(now, then)| now > then)
            });
            let done = work(cluster);
            drop(ending);
            done
        })
    }
}

/// What a cluster has of each client, in the order in which that writes.
fn values(cluster: &Cluster, tags: &[String]) -> Vec<Vec<u64>> {
    let mut guided = Guided::new(cluster);
    let mut value = |key: &String| match guided.call(key, &["GET", key]).expect("it is answered") {
        Value::Bulk(text) => String::from_utf8_lossy(&text).parse().expect("it is a number"),
        _ => 0,
    };
    (0..CLIENTS).map(|client| keys(tags, client).iter().map(&mut value).collect()).collect()
}

/// Whether what is there is of one moment: a number that a shard has, the one before has, too, and at most the next one.
fn is_of_one_moment(of: &[u64]) -> bool {
    of.windows(2).all(|pair| pair[0] >= pair[1]) && of[0] - of[SHARDS - 1] <= 1
}

/// Whether each is of one moment, which lies between these.
fn check(found: &[Vec<u64>], (before, after): (&[u64], &[u64])) {
    for (client, found) in found.iter().enumerate() {
        assert!(is_of_one_moment(found), "client {client}: {found:?}");
        let (least, most) = (before[client], after[client]);
        assert!(found[SHARDS - 1] >= least && found[0] <= most, "client {client}: {least} {found:?} {most}");
    }
}

/// Data of all kinds, in two databases.
fn fill(cluster: &Cluster, tags: &[String]) -> Vec<(&'static str, String)> {
    let mut ledger = Vec::new();
    for (at, tag) in tags.iter().enumerate() {
        let mut client = master(cluster, tag);
        for db in ["0", "1"] {
            call(&mut client, &["SELECT", db]);
            let mut make = |name: &str, words: &[&str]| {
                let key = format!("{{{tag}}}{name}");
                let words: Vec<&str> =
                    [words[0], key.as_str()].into_iter().chain(words[1..].iter().copied()).collect();
                let answer = call(&mut client, &words);
                assert!(!matches!(answer, Value::Error(_)), "{words:?}: {answer:?}");
                ledger.push((db, key));
            };
            make("string", &["SET", &"x".repeat(1000 * (at + 1))]);
            make("number", &["SET", "77"]);
            make("list", &["RPUSH", "a", "b", "c"]);
            make("set", &["SADD", "a", "b", "1"]);
            make("zset", &["ZADD", "1.5", "a", "-0", "b"]);
            make("stream", &["XADD", "7-7", "a", "b"]);
            make("lives", &["SET", "x", "PXAT", "99999999999999"]);
            make("fields", &["HSET", "a", "1", "b", "2"]);
            make("fields", &["HPEXPIREAT", "30000000000000", "FIELDS", "1", "a"]);
            let members: Vec<String> = (0..30_000).map(|number| format!("member-{number}")).collect();
            let words: Vec<&str> = ["SADD"].into_iter().chain(members.iter().map(String::as_str)).collect();
            make("large", &words);
        }
        let code = "#!lua name=lib\nredis.register_function('seven', function() return 7 end)";
        call(&mut client, &["FUNCTION", "LOAD", "REPLACE", code]);
    }
    ledger
}

fn master(cluster: &Cluster, tag: &str) -> Client {
    let topology = cluster.topology().expect("it is there");
    let owner = topology.slots.owner(wire::key_slot(tag.as_bytes())).expect("it has one");
    cluster.connect_loaded(topology.master_of(owner).expect("there is one").id)
}

/// What each key of the ledger is.
fn shown(cluster: &Cluster, ledger: &[(&str, String)]) -> Vec<Value> {
    let one = |(db, key): &(&str, String)| {
        let tag = key.trim_start_matches('{').split('}').next().expect("it has one");
        let mut client = master(cluster, tag);
        call(&mut client, &["SELECT", db]);
        // What is in no order of its own lies in each server's.
        let words: &[&[&str]] = match key.rsplit('}').next() {
            Some("large") => &[&["SCARD"], &["SMISMEMBER", "member-0", "member-29999"]],
            Some("fields") => &[&["HMGET", "a", "b"], &["HPEXPIRETIME", "FIELDS", "2", "a", "b"]],
            _ => &[&["DUMP"], &["PEXPIRETIME"]],
        };
        let mut ask = |words: &&[&str]| {
            let words: Vec<&str> = [words[0], key].into_iter().chain(words[1..].iter().copied()).collect();
            call(&mut client, &words)
        };
        Value::Array(words.iter().map(&mut ask).collect())
    };
    ledger.iter().map(one).collect()
}

/// Another cluster has what the ledger names.
fn compare(cluster: &Cluster, other: &Cluster, ledger: &[(&str, String)]) {
    let (one, another) = (shown(cluster, ledger), shown(other, ledger));
    for ((name, expected), found) in ledger.iter().zip(one).zip(another) {
        assert_eq!(found, expected, "{name:?}");
    }
}

#[test]
fn a_backup_is_of_one_moment_of_all_shards() {
    let backups = Backups::new();
    let mut cluster = Cluster::begin(SHARDS, 1, &["--edition", "durable"]);
    let tags = tags_of_each(1, &cluster.topology_before());
    let ledger = fill(&cluster, &tags);
    let writers = Writers::new();
    let bounds: Vec<_> = writers.during(&mut cluster, |cluster| {
        let one = |name: &str| {
            let before = Writers::seen(&writers.acknowledged);
            take(cluster, &backups.dir(name));
            (before, Writers::seen(&writers.asked))
        };
        ["a", "b", "c"].map(one).into()
    });
    let clusters = [("a", 2, "memory"), ("c", 1, "capacity")]
        .map(|(name, copies, edition)| restored(&backups.dir(name), copies, edition));
    for (other, at) in clusters.iter().zip([0, 2]) {
        check(&values(other, &tags), (&bounds[at].0, &bounds[at].1));
        compare(&cluster, other, &ledger);
        for tag in &tags {
            assert_eq!(call(&mut master(other, tag), &["FCALL", "seven", "0"]), Value::Int(7));
        }
    }
    // The shards of two backups are of no one moment, and that is seen.
    let [early, late] = clusters.map(|other| values(&other, &tags));
    let mixed: Vec<u64> = early[0]
        .iter()
        .zip(&late[0])
        .enumerate()
        .map(|(at, (one, other))| if at == 0 { *one } else { *other })
        .collect();
    assert!(!is_of_one_moment(&mixed), "{mixed:?}");
}

/// No moment is found while slots are on their way, and none in which a slot is of two shards or of none.
#[test]
fn over_etcd_a_backup_is_of_one_moment_while_slots_go_to_and_fro() {
    let backups = Backups::new();
    let mut cluster = Cluster::begin_as(Kind::OverEtcd, (SHARDS, 2), &["--edition", "memory"]);
    let tags = tags_of_each(1, &cluster.topology_before());
    let ledger = fill(&cluster, &tags);
    let writers = Writers::new();
    // Those of the first shard.
    let slots = "0-5460";
    let (dir, mut moved) = (backups.dir("a"), 0);
    let bounds = writers.during(&mut cluster, |cluster| {
        let before = Writers::seen(&writers.acknowledged);
        let mut tool = spawn(cluster, "backup", &dir);
        let mut has_ended = false;
        while !has_ended {
            move_and_wait(cluster, [1, 2, 0][moved % 3], slots);
            moved += 1;
            // A moment takes a while in which no slot moves: the tool looks for one again and again.
            let rests = Instant::now();
            while !has_ended && rests.elapsed() < Duration::from_secs(2) {
                has_ended = tool.try_wait().expect("it is ours").is_some();
                thread::sleep(Duration::from_millis(10));
            }
        }
        let status = tool.wait().expect("it has ended");
        assert!(status.success(), "{}", fs::read_to_string(said(&dir)).unwrap_or_default());
        (before, Writers::seen(&writers.asked))
    });
    let other = Cluster::begin_awaiting_as(Kind::OverEtcd, (SHARDS, 1), &["--edition", "memory"]);
    restore(&other, &dir);
    check(&values(&other, &tags), (&bounds.0, &bounds.1));
    compare(&cluster, &other, &ledger);
}

/// A directory in which there is room for less than a shard has.
#[test]
fn a_disk_that_is_full_ends_a_backup_and_nothing_else() {
    let backups = Backups::new();
    let dir = backups.dir("a");
    let cluster = Cluster::begin(1, 2, &[&["--edition", "memory"], &PATIENT[..]].concat());
    let mut client = master(&cluster, "k");
    let noise: String =
        (0..200_000_u32).map(|number| format!("{:08x}", number.wrapping_mul(2_654_435_761))).collect();
    for number in 0..4 {
        assert_eq!(call(&mut client, &["SET", &format!("k{number}"), &noise]), ok());
    }
    let tool = |blocks: &str| {
        // A file that grows beyond it is an error, and not the end of the process.
        let script = "trap '' XFSZ; ulimit -f \"$1\"; shift; exec \"$@\"";
        let words = ["-c", script, "sh", blocks];
        Command::new("sh")
            .args(words)
            .arg(tarn_path())
            .args(["cluster", "backup", text(&dir), "--config", &cluster.place()])
            .output()
            .expect("there is a shell")
    };
    for _ in 0..2 {
        let output = tool("1024");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
        assert!(said.contains("shard-0.aof cannot be written"), "{said}");
        assert!(!dir.join("manifest.json").exists());
        assert_eq!(call(&mut client, &["SET", "k", "v"]), ok());
    }
    assert!(tool("unlimited").status.success());
    assert!(run("cluster", &["backup", text(&dir), "--verify"]).status.success());
    cluster.wait_until_whole();
}

/// Whoever brings what is small waits for what is large, with nothing to say, and is cut off by no server's `timeout`.
#[test]
fn whoever_brings_a_backup_may_be_silent() {
    let cluster = Cluster::begin_awaiting((1, 1), &["--edition", "memory", "--timeout", "1"]);
    let mut master = None;
    wait_until("the shard has begun", || {
        master = cluster.topology().and_then(|now| Some(now.master_of(ShardId(0))?.id));
        master.is_some()
    });
    let master = master.expect("there is one");
    let mut bringing = None;
    wait_until("it takes a backup", || {
        let mut client = cluster.connect(master).expect("it is up");
        // It may be cut off before it has said anything.
        let is_let_in = matches!(client.call(&["SLOTMOVE", "RESTORE", "1"]), Ok(Value::Int(_)));
        bringing = Some(client);
        is_let_in
    });
    // Whoever comes later and says nothing is gone before.
    let mut other = cluster.connect(master).expect("it is up");
    assert_eq!(other.read_to_close().expect("it is closed"), b"");
    let mut bringing = bringing.expect("it is let in");
    assert_eq!(call(&mut bringing, &["SLOTMOVE", "CONFIRM"]), Value::Int(1));
}

#[test]
fn backups_outlive_kills_of_the_tool_and_of_masters() {
    let budget = Budget::from_env(1, 3);
    let backups = Backups::new();
    let mut cluster = Cluster::begin(SHARDS, 2, &["--edition", "durable"]);
    let tags = tags_of_each(1, &cluster.topology_before());
    let ledger = fill(&cluster, &tags);
    let (writers, mut prng, mut step) = (Writers::new(), Prng::from_seed(budget.seed), 0);
    while budget.allows(step) {
        let dir = backups.dir(&step.to_string());
        let bounds = writers.during(&mut cluster, |cluster| {
            // The tool is killed at some moment, and begun again in the same directory.
            let mut tool = spawn(cluster, "backup", &dir);
            thread::sleep(Duration::from_millis(prng.below(700)));
            tool.kill().expect("it can be");
            tool.wait().expect("it was killed");
            if dir.join("manifest.json").exists() {
                fs::remove_dir_all(&dir).expect("it is there");
            }
            // A shard's master is killed while it runs.
            let before = Writers::seen(&writers.acknowledged);
            let mut tool = spawn(cluster, "backup", &dir);
            thread::sleep(Duration::from_millis(prng.below(700)));
            let shard = ShardId(u16::try_from(prng.below(SHARDS as u64)).expect("there are few"));
            let topology = cluster.topology().expect("it is there");
            let victim = topology.master_of(shard).expect("there is one").id;
            cluster.kill(victim);
            let status = tool.wait().expect("it ends");
            let told = || fs::read_to_string(said(&dir)).unwrap_or_default();
            assert!(status.success(), "step {step}: {}\n{}", told(), cluster.last_lines());
            let bounds = (before, Writers::seen(&writers.asked));
            cluster.restart(victim);
            cluster.wait_until_whole();
            bounds
        });
        let other = restored(&dir, 1, "memory");
        check(&values(&other, &tags), (&bounds.0, &bounds.1));
        compare(&cluster, &other, &ledger);
        step += 1;
    }
}

#[test]
fn a_restore_can_be_begun_again_wherever_it_ended() {
    let budget = Budget::from_env(1, 2);
    let backups = Backups::new();
    let dir = backups.dir("a");
    let cluster = Cluster::begin(SHARDS, 1, &["--edition", "memory"]);
    let tags = tags_of_each(1, &cluster.topology_before());
    let ledger = fill(&cluster, &tags);
    take(&cluster, &dir);
    let (mut prng, mut step) = (Prng::from_seed(budget.seed), 0);
    while budget.allows(step) {
        let mut other = Cluster::begin_awaiting((SHARDS, 2), &["--edition", "durable"]);
        wait_until("all shards have begun", || {
            other.topology().is_some_and(|topology| {
                topology.shards.len() == SHARDS
                    && topology.shards.values().all(|shard| shard.members.len() == 2)
            })
        });
        let mut tool = spawn(&other, "restore", &dir);
        thread::sleep(Duration::from_millis(prng.below(600)));
        tool.kill().expect("it can be");
        tool.wait().expect("it was killed");
        if other.topology().expect("it is there").slots.count() == 0 {
            // Then a master is killed meanwhile.
            let mut tool = spawn(&other, "restore", &dir);
            thread::sleep(Duration::from_millis(prng.below(600)));
            let topology = other.topology().expect("it is there");
            let victim = topology.master_of(ShardId(0)).expect("there is one").id;
            other.kill(victim);
            tool.wait().expect("it ends");
            other.restart(victim);
            wait_until("it is restored", || {
                let is_done = other.topology().expect("it is there").slots.count() != 0;
                is_done
                    || run("cluster", &["restore", text(&dir), "--config", &other.place()]).status.success()
            });
        }
        other.wait_until_whole();
        compare(&cluster, &other, &ledger);
        step += 1;
    }
}

/// Begins a restore; its number.
fn begin_restore(cluster: &Cluster) -> String {
    let mut number = None;
    wait_until("it gives a number", || {
        if let Some(Value::Simple(line)) = cluster.ask_config(&["CLUSTER", "RESTORE", "BEGIN"]) {
            number = String::from_utf8_lossy(&line).strip_prefix("restore ").map(str::to_owned);
        }
        number.is_some()
    });
    number.expect("it was waited for")
}

/// It may have stood still while another was begun, and ended; and the master that had heard of that may have gone.
#[test]
fn who_brings_an_earlier_backup_changes_nothing_any_more() {
    let mut cluster = Cluster::begin_awaiting((1, 2), &["--edition", "memory"]);
    let is_begun = |cluster: &Cluster| {
        let shard = cluster.topology().and_then(|topology| topology.shards.get(&ShardId(0)).cloned());
        shard.is_some_and(|shard| shard.members.len() == 2)
    };
    wait_until("the shard has begun", || is_begun(&cluster));
    let [first, second] = [begin_restore(&cluster), begin_restore(&cluster)];
    let master = |cluster: &Cluster| {
        let topology = cluster.topology().expect("it is there");
        topology.master_of(ShardId(0)).map(|server| server.id)
    };
    let bring = |cluster: &Cluster, number: &str| {
        let id = master(cluster).expect("there is one");
        let at: SocketAddr = cluster.place_of(id).parse().expect("it is an address");
        let mut client = Client::connect(at).expect("it serves");
        let reply = client.call(&["SLOTMOVE", "RESTORE", number]).expect("it answers");
        (client, reply)
    };
    let mut replaced = None;
    wait_until("its master has heard of it", || {
        let (client, reply) = bring(&cluster, &second);
        replaced = Some(client);
        matches!(reply, Value::Int(_))
    });
    let mut replaced = replaced.expect("it was waited for");
    let (_latest, reply) = bring(&cluster, &second);
    assert!(matches!(reply, Value::Int(_)), "{reply:?}");
    let code = "#!lua name=old\nredis.register_function('f', function() return 1 end)";
    let load = replaced.call(&["FUNCTION", "LOAD", "REPLACE", code]).expect("it answers");
    assert!(is_error(&load, "SLOTMOVE-OVER"), "{load:?}");
    let former = master(&cluster).expect("there is one");
    cluster.kill(former);
    wait_until("the other is master", || master(&cluster).is_some_and(|id| id != former));
    wait_until("it says that it is", || {
        let (_, reply) = bring(&cluster, &first);
        assert!(!matches!(reply, Value::Int(_)), "{reply:?}");
        is_error(&reply, "SLOTMOVE-REFUSED another restore has begun since")
    });
}

/// An attempt at a backup of more shards was given up.
#[test]
fn shards_that_a_backup_does_not_reach_are_empty() {
    let backups = Backups::new();
    let dir = backups.dir("a");
    let cluster = Cluster::begin(1, 1, &["--edition", "memory"]);
    take(&cluster, &dir);
    let other = Cluster::begin_awaiting((2, 1), &["--edition", "memory"]);
    wait_until("both shards have begun", || {
        other.topology().is_some_and(|topology| {
            topology.shards.len() == 2 && topology.shards.values().all(|shard| shard.members.len() == 1)
        })
    });
    let topology = other.topology().expect("it is there");
    let id = topology.master_of(ShardId(1)).expect("there is one").id;
    let at: SocketAddr = other.place_of(id).parse().expect("it is an address");
    let mut former = Client::connect(at).expect("it serves");
    let number = begin_restore(&other);
    wait_until("it takes what is brought", || {
        matches!(former.call(&["SLOTMOVE", "RESTORE", &number]).expect("it answers"), Value::Int(_))
    });
    let code = "#!lua name=old\nredis.register_function('f', function() return 1 end)";
    assert_eq!(call(&mut former, &["FUNCTION", "LOAD", code]), Value::Bulk(b"old".to_vec()));
    let output = run("cluster", &["restore", text(&dir), "--config", &other.place()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(call(&mut former, &["FUNCTION", "LIST"]), Value::Array(Vec::new()));
}

/// A restore that stands still, as its servers look for config servers elsewhere, and nobody comes.
#[test]
fn a_cluster_that_is_restored_ends_when_it_is_to() {
    let backups = Backups::new();
    let (dir, new) = (backups.dir("a"), backups.dir("new"));
    let cluster = Cluster::begin(1, 1, &["--edition", "memory"]);
    take(&cluster, &dir);
    let ports = [free_port().expect("there is one"), free_port().expect("there is one")];
    let [port, config] = ports.map(|port| port.to_string());
    let words =
        ["cluster", "up", "--dir", text(&new), "--shards", "1", "--copies", "1", "--edition", "memory"];
    let words = [&words[..], &["--port", &port, "--config-port", &config, "--restore", text(&dir)]].concat();
    let words =
        [&words[..], &["--proxy-port", "none", "--", "--cluster-config-servers", "127.0.0.1:1"]].concat();
    let mut up = Command::new(tarn_path())
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let config = SocketAddr::from((Ipv4Addr::LOCALHOST, ports[1]));
    wait_until("its config server answers", || {
        Client::connect(config).is_ok_and(|mut client| client.call(&["PING"]).is_ok())
    });
    let id = up.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().expect("kill can be run").success());
    wait_until("it ends", || up.try_wait().expect("it is ours").is_some());
    let ended = up.wait_with_output().expect("it has ended");
    let told = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{told}");
    assert!(told.contains("it was ended, and nothing is restored"), "{told}");
}

#[test]
fn what_is_no_backup_and_where_none_goes_is_refused_in_a_sentence() {
    let backups = Backups::new();
    let dir = backups.dir("a");
    let cluster = Cluster::begin(1, 1, &["--edition", "memory"]);
    assert_eq!(call(&mut master(&cluster, "k"), &["SET", "k", "v"]), ok());
    let place = cluster.place();
    take(&cluster, &dir);
    let says = |words: &[&str], what: &str| {
        let said = complaint("cluster", words);
        assert!(said.contains(what), "{said}");
    };
    says(&["backup", text(&dir), "--config", &place], "holds a backup already");
    says(&["restore", text(&dir), "--config", &place], "awaits no backup");
    says(&["backup", text(&backups.dir("b")), "--config", "127.0.0.1:1"], "is not reached");
    says(&["backup", text(&backups.dir("b")), "--verify"], "a backup is whole when it has one");
    let full = backups.dir("full");
    fs::create_dir(&full).expect("there is room");
    fs::write(full.join("else"), "else").expect("there is room");
    says(&["backup", text(&full), "--config", &place], "which is no part of a backup");
    let taken = backups.dir("taken");
    fs::create_dir(&taken).expect("there is room");
    let held = Fs::Real.lock(&taken.join("lock")).expect("it can be locked");
    says(&["backup", text(&taken), "--config", &place], "another `tarn cluster backup` has");
    drop(held);
    take(&cluster, &taken);
    assert!(!taken.join("lock").exists(), "who has ended it keeps it from nobody");
    let (manifest, file) = (dir.join("manifest.json"), dir.join("shard-0.aof"));
    let (whole, bytes) =
        (fs::read_to_string(&manifest).expect("it is there"), fs::read(&file).expect("it is there"));
    let verify = ["backup", text(&dir), "--verify"];
    assert!(run("cluster", &verify).status.success());
    let mut damaged = bytes.clone();
    damaged[bytes.len() / 2] ^= 1;
    fs::write(&file, damaged).expect("there is room");
    says(&verify, "is not what was written");
    says(&["restore", text(&dir), "--config", &place], "is not what was written");
    fs::write(&file, &bytes[..bytes.len() - 1]).expect("there is room");
    says(&verify, "is not what was written");
    fs::remove_file(&file).expect("it is there");
    says(&verify, "cannot be read");
    fs::write(&file, &bytes).expect("there is room");
    fs::write(&manifest, whole.replace("\"format\": 1", "\"format\": 2")).expect("there is room");
    says(&verify, "is of format 2");
    fs::write(&manifest, &whole[..whole.len() / 2]).expect("there is room");
    says(&verify, "is damaged");
    fs::write(&manifest, &whole).expect("there is room");
    assert!(run("cluster", &verify).status.success());
    // A shard without servers: its copy does not come.
    let waits = Cluster::begin_awaiting((1, 1), &["--edition", "memory"]);
    says(&["backup", text(&backups.dir("c")), "--config", &waits.place()], "there is nothing to be copied");
}
