//! `tarn bench --cluster` and the chapter on clusters, as programs, against real clusters of Tarn's and of Redis'.

use crate::bench_runs::{bench, ran};
use crate::clusters::cluster::{self, Cluster};
use crate::whitepaper_runs::{command, report, said};
use bench::Measurement;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use testkit::ask::{ask, call_well, wait_until};
use testkit::{Program, Server, free_port};
use topology::ShardId;
use wire::Value;

/// Two masters of Redis, each with half of the slots.
pub(crate) fn redis_cluster() -> Vec<Server> {
    let servers: Vec<(Server, String)> = [("0", "8191"), ("8192", "16383")]
        .iter()
        .map(|(first, last)| {
            let bus = free_port().unwrap().to_string();
            let words = ["--cluster-enabled", "yes", "--cluster-port", &bus];
            let server = Server::start(Program::Redis, &words).unwrap();
            call_well(&mut server.connect().unwrap(), &["CLUSTER", "ADDSLOTSRANGE", first, last]);
            (server, bus)
        })
        .collect();
    let port = servers[1].0.address().port().to_string();
    let meet = ["CLUSTER", "MEET", "127.0.0.1", &port, &servers[1].1];
    call_well(&mut servers[0].0.connect().unwrap(), &meet);
    wait_until("both know both", || {
        servers.iter().all(|(server, _)| {
            ask(&mut server.connect().unwrap(), &["CLUSTER", "INFO"]).contains("cluster_state:ok")
        })
    });
    servers.into_iter().map(|(server, _)| server).collect()
}

fn tarn_cluster(shards: usize, copies: usize) -> Cluster {
    Cluster::begin(shards, copies, &["--edition", "memory"])
}

fn measurements(json: &Path) -> Vec<Measurement> {
    serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap()
}

/// Runs loads of all kinds, which must go well.
fn run_all(name: &str, port: u16, folder: &Path) {
    let json = folder.join("bench.json");
    for words in [
        "kv -n 300 -c 5 -P 3 -r 1000",
        "kv -n 100 -c 2 --threads 2 -r 9 setex {tag}key:__rand_int__ 10 v",
        "kv --ratio 1:3 -c 2 --threads 2 -n 50 --key-pattern G:S --cluster-mode",
        "ttl -n 200",
        "eval -n 200",
        "ycsb load -w e --records 500 --fields 3",
        "ycsb run -w a --records 500 -n 300 --fields 3",
        "ycsb run -w d --records 500 -n 300 --fields 3 --threads 2",
        "ycsb run -w e --records 500 -n 300 --fields 3 -c 3 -P 2",
        "ycsb run -w f --records 500 -n 300 --fields 3",
    ] {
        let (load, rest) = words.split_once(' ').unwrap();
        let (rest, phase) = match rest.split_once(' ') {
            Some((phase @ ("load" | "run"), rest)) => (rest, phase),
            _ => (rest, ""),
        };
        let output = ran(&format!("{load} {phase} --cluster -p {port} --json {} {rest}", json.display()));
        assert!(output.status.success(), "{name}: {words}: {}", String::from_utf8_lossy(&output.stderr));
        for measured in measurements(&json) {
            assert_eq!(measured.errors_total(), 0, "{name}: {words}: {:?}", measured.errors);
            assert_eq!(Some(measured.operations), measured.operations_asked, "{name}: {words}");
            assert!(measured.server_usage.is_some_and(|usage| usage.rss_bytes > 0), "{name}: {words}");
        }
    }
}

#[test]
fn every_load_runs_against_clusters_of_tarn_and_redis_without_errors() {
    let folder = tempfile::tempdir().unwrap();
    let tarn = tarn_cluster(2, 1);
    run_all("tarn", tarn.places.any(1).port(), folder.path());
    let topology = tarn.topology().unwrap();
    for server in topology.servers.values() {
        let mut client = tarn.connect(server.id).unwrap();
        let Value::Int(keys) = call_well(&mut client, &["DBSIZE"]) else { panic!("it is a number") };
        assert!(keys > 100, "{keys} keys: each master has its part");
    }
    let redis = redis_cluster();
    run_all("redis", redis[0].address().port(), folder.path());
}

#[test]
fn a_server_without_a_cluster_is_refused_in_one_sentence() {
    let server = Server::start(Program::Redis, &[]).unwrap();
    let port = server.address().port();
    let output = ran(&format!("kv -t set -n 10 --cluster -p {port}"));
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        format!(
            "tarn bench: 127.0.0.1:{port} is no node of a cluster: ERR This instance has cluster support disabled\n"
        )
    );
}

/// A load that goes on until it is interrupted.
struct Load {
    child: Child,
    json: tempfile::NamedTempFile,
}

impl Load {
    fn begin(cluster: &Cluster) -> Load {
        let json = tempfile::NamedTempFile::new().unwrap();
        let port = cluster.places.any(0).port();
        let words = format!(
            "kv --cluster --ratio 1:1 -c 10 --threads 1 --key-maximum 1000 --test-time 600 -p {port} --json {}",
            json.path().display()
        );
        let child = bench(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        Load { child, json }
    }

    /// Ends it and gives what was measured.
    fn end(self) -> Measurement {
        let told = Command::new("kill").args(["-INT", &self.child.id().to_string()]).status().unwrap();
        assert!(told.success());
        let output: Output = self.child.wait_with_output().unwrap();
        let measured = measurements(self.json.path()).remove(0);
        let why = measured.unfinished.as_deref();
        assert_eq!(why, Some("stopped by the user"), "{}", String::from_utf8_lossy(&output.stderr));
        measured
    }
}

/// What a shard's master has answered so far.
fn done_by(cluster: &Cluster, shard: u16) -> Option<u64> {
    let topology = cluster.topology()?;
    let master = topology.master_of(ShardId(shard))?;
    let Ok(Value::Bulk(stats)) = cluster.connect(master.id).ok()?.call(&["INFO", "commandstats"]) else {
        return None;
    };
    let stats = String::from_utf8_lossy(&stats).into_owned();
    let calls = |line: &str| line.strip_prefix("cmdstat_set:calls=")?.split(',').next()?.parse().ok();
    stats.lines().find_map(calls)
}

/// Waits until a shard's master, whoever that is, does more of the load.
fn await_progress(cluster: &Cluster, shard: u16) {
    let mut from = None;
    cluster::wait_until("the load goes on", || {
        let done = done_by(cluster, shard);
        let from = *from.get_or_insert(done.unwrap_or(u64::MAX));
        done.is_some_and(|done| done > from.saturating_add(100) || done < from)
    });
}

#[test]
fn slots_that_move_under_load_cost_no_error() {
    let cluster = tarn_cluster(2, 1);
    let load = Load::begin(&cluster);
    await_progress(&cluster, 0);
    for (to, slots) in [("1", "0-8191"), ("0", "4096-12287")] {
        cluster::wait_until("the move is written down", || {
            matches!(cluster.ask_config(&["CLUSTER", "MOVE-SLOTS", "-", to, slots]), Some(Value::Simple(_)))
        });
        cluster::wait_until("they have moved", || cluster.topology().is_some_and(|now| now.moves.is_empty()));
    }
    await_progress(&cluster, 0);
    let measured = load.end();
    assert_eq!(measured.errors_total(), 0, "{:?}", measured.errors);
    assert!(measured.operations > 200);
}

#[test]
fn a_master_that_is_killed_fails_some_operations_and_the_load_goes_on_with_the_next() {
    let mut cluster = tarn_cluster(2, 2);
    let load = Load::begin(&cluster);
    await_progress(&cluster, 0);
    let old = cluster.topology().unwrap().master_of(ShardId(0)).unwrap().id;
    cluster.kill(old);
    cluster::wait_until("another is master", || {
        cluster.topology().is_some_and(|now| now.master_of(ShardId(0)).is_some_and(|new| new.id != old))
    });
    await_progress(&cluster, 0);
    await_progress(&cluster, 1);
    let measured = load.end();
    // Those under way, if there were any in that moment, and those that found nobody.
    let is_known = |text: &str| {
        ["the server closed", "a connection was lost", "cannot connect", "CLUSTERDOWN", "no reply within"]
            .iter()
            .any(|word| text.starts_with(word))
            || text.ends_with("cannot be reached")
    };
    assert!(measured.errors_total() > 0);
    assert!(measured.errors.iter().all(|error| is_known(&error.text)), "{:?}", measured.errors);
}

#[test]
fn the_cluster_chapter_tells_what_shards_do_and_what_clients_see_of_a_kill_and_of_a_move() {
    let folder = tempfile::tempdir().unwrap();
    let files = folder.path().join("files");
    std::fs::create_dir(&files).unwrap();
    let peer = "redis-server --port {port} --save \"\" --appendonly no";
    let other = "sh -c 'exec redis-server --port {port}'; true";
    let words = ["--chapters", "cluster", "--peer-cmd", peer, "--peer-cmd", other];
    let output = command(folder.path(), &words).env("TMPDIR", &files).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let json: serde_json::Value = serde_json::from_str(&report(folder.path(), "report.json")).unwrap();
    let chapter = &json["chapters"][0];
    let servers = chapter["servers"].as_array().unwrap();
    let names: Vec<&str> = servers.iter().map(|server| server["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["Tarn", "redis"], "who is not plainly a redis-server takes no part");
    assert!(servers[1]["command"].as_str().unwrap().ends_with(" --cluster-enabled yes"), "{servers:?}");
    let sections = chapter["sections"].as_array().unwrap();
    let rows = |section: usize| sections[section]["rows"].as_array().unwrap();
    for row in rows(0) {
        for measured in row["measurements"].as_array().unwrap() {
            assert_eq!(measured["errors"], serde_json::json!([]), "{row}");
            assert!(measured["server_usage"]["cpu_us_per_operation"].as_f64().unwrap() > 0.0, "{measured}");
            assert!(measured["command"].as_str().unwrap().contains(" --cluster "), "{measured}");
        }
    }
    let counts: Vec<usize> = sections
        .iter()
        .flat_map(|section| section["rows"].as_array().unwrap())
        .map(|row| row["measurements"].as_array().unwrap().len())
        .collect();
    assert_eq!(counts, [2, 2, 2, 2, 1, 2], "Tarn has no timeout of a peer's");
    let line =
        |section: usize, row: usize, place: usize| &rows(section)[row]["measurements"][place]["timeline"];
    let silence = |line: &serde_json::Value| line["silence"]["ms"].as_f64().unwrap();
    let killed = line(1, 0, 0);
    assert_eq!(killed["events"][0]["what"], "kill -9 of a master");
    assert!(silence(killed) > 0.0 && killed["steps"].as_array().unwrap().len() >= 59, "{killed}");
    // Tarn's slots have moved within seconds; a peer's move may be cut off by the end.
    let events = line(2, 0, 0)["events"].as_array().unwrap();
    assert_eq!(events.len(), 2, "{events:?}");
    assert_eq!(rows(2)[0]["measurements"][0]["errors"], serde_json::json!([]), "{}", rows(2)[0]);
    let page = report(folder.path(), "index.html");
    for part in ["cluster of 4 GB, published", "Without acknowledged writes, ms", "Tenth by tenth"] {
        assert!(page.contains(part), "{part} is missing");
    }
    assert_eq!(std::fs::read_dir(&files).unwrap().count(), 0, "a server's files are left");
}
