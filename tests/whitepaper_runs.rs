//! `tarn whitepaper` as a user runs it: as a program that starts servers, writes a report, and says what went wrong.
//!
//! The runs are as short as they get: one chapter, half a second for each measurement. A busy machine may have no time for anything in half
//! a second: what has to be measured is measured again then, for longer.

use crate::tarn;
use serde_json::Value as Json;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use testkit::process::Deadline;
use testkit::{Program, Server};

/// A run in a folder, of the chapter with the fewest workloads.
fn whitepaper(folder: &Path, words: &[&str]) -> Output {
    command(folder, words).output().unwrap()
}

pub fn command(folder: &Path, words: &[&str]) -> Command {
    let Program::Tarn(path) = tarn() else { unreachable!("the program under test is Tarn") };
    let path = std::path::absolute(path).unwrap();
    let mut command = Command::new(path);
    let shortest = ["whitepaper", "--quick", "--scale", "0.01", "--chapters", "ttl"];
    command.args(shortest).args(words).current_dir(folder).stdin(Stdio::null());
    command
}

/// How much is measured, and if not all that has to be is measured then.
const SCALES: [&str; 3] = ["0.01", "0.2", "1"];

/// A run that ends well, with all measured that has to be.
fn measured(
    command: impl Fn() -> Command,
    folder: &Path,
    is_whole: impl Fn(&Json) -> bool,
) -> (Output, Json) {
    let mut runs = SCALES.iter().map(|scale| {
        let output = command().args(["--scale", scale]).output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        (output, json_of(folder))
    });
    runs.find(|(_, json)| is_whole(json)).unwrap_or_else(|| panic!("it is never whole: {}", json_of(folder)))
}

fn json_of(folder: &Path) -> Json {
    serde_json::from_str(&report(folder, "report.json")).unwrap()
}

/// All rows of all chapters.
fn rows(json: &Json) -> impl Iterator<Item = &Json> {
    let sections = list(json, "chapters").flat_map(|chapter| list(chapter, "sections"));
    sections.flat_map(|section| list(section, "rows"))
}

fn list<'a>(one: &'a Json, member: &str) -> std::slice::Iter<'a, Json> {
    one[member].as_array().unwrap().iter()
}

/// Whether each row has so many measurements.
fn has_in_each_row(json: &Json, count: usize) -> bool {
    rows(json).all(|row| list(row, "measurements").len() == count)
}

pub fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub fn report(folder: &Path, name: &str) -> String {
    std::fs::read_to_string(folder.join("report").join(name)).unwrap()
}

/// A server that others start, and its folder for reports.
fn running() -> (Server, PathBuf) {
    let server = Server::start(Program::Redis, &[]).unwrap();
    let folder = server.dir().to_owned();
    (server, folder)
}

#[test]
fn a_run_over_a_peer_that_it_starts_writes_the_whole_report() {
    let (_keeps_the_folder, folder) = running();
    let peer = "redis-server --port {port} --save \"\" --appendonly no";
    let run = || command(&folder, &["--peer-cmd", peer]);
    let (_, json) = measured(run, &folder, |json| has_in_each_row(json, 2));
    let page = report(&folder, "index.html");
    for part in
        ["Tarn and redis, measured", "Keys that expire", "cloud 1G, LAN, published", "Redis 7", "Processor"]
    {
        assert!(page.contains(part), "{part} is missing");
    }
    assert!(!page.contains("This report is not whole"));
    let sheet = report(&folder, "report.csv");
    assert_eq!(sheet.lines().filter(|line| line.starts_with("measured,")).count(), 2 * 6, "{sheet}");
    assert!(report(&folder, "report.md").contains("| redis, measured |"));
    assert_eq!(json["servers"].as_array().map(Vec::len), Some(2));
}

#[test]
fn scripts_run_on_every_server_and_can_be_repeated_alone() {
    let (server, folder) = running();
    let address = format!("other=127.0.0.1:{}", server.address().port());
    let run = || command(&folder, &["--chapters", "scripts", "--peer", &address]);
    let (_, json) = measured(run, &folder, |json| has_in_each_row(json, 2));
    let sheet = report(&folder, "report.csv");
    let measured: Vec<&str> = sheet.lines().filter(|line| line.starts_with("measured,")).collect();
    assert_eq!(measured.len(), 2 * 6, "{sheet}");
    for measurement in rows(&json).flat_map(|row| row["measurements"].as_array().unwrap()) {
        assert_eq!(measurement["errors"].as_array().map(Vec::len), Some(0), "{measurement}");
        let command = measurement["command"].as_str().unwrap();
        let name = measurement["workload"].as_str().unwrap();
        let part = if name == "set" { "bench kv -t set " } else { &format!("bench eval -t {name} ") };
        assert!(command.contains(part), "{command}");
    }
    let page = report(&folder, "index.html");
    assert!(page.contains("EVALSHA of one SET") && page.contains("4 cores 8 GB, published"));
}

#[test]
fn the_durable_chapter_starts_its_own_servers_and_says_what_each_promises() {
    let (server, folder) = running();
    let files = folder.join("files");
    std::fs::create_dir(&files).unwrap();
    let address = format!("other=127.0.0.1:{}", server.address().port());
    let peer = "redis-server --port {port} --save \"\" --appendonly no";
    let words = ["--chapters", "ttl,durable", "--peer-cmd", peer, "--peer", &address];
    let run = || {
        let mut command = command(&folder, &words);
        command.env("TMPDIR", &files);
        command
    };
    let (_, json) = measured(run, &folder, |json| has_in_each_row(json, 3));
    assert!(json["servers"][1]["command"].as_str().unwrap().ends_with("--appendonly no"));
    let [tarn, redis, other] = &json["chapters"][1]["servers"].as_array().unwrap()[..] else {
        panic!("{json}")
    };
    assert!(tarn["command"].as_str().unwrap().contains("--edition durable"));
    let added = "--appendonly no --appendonly yes --appendfsync always --save ''";
    assert!(redis["command"].as_str().unwrap().ends_with(added), "{redis}");
    for (server, is_on_disk) in [(tarn, true), (redis, true), (other, false)] {
        assert_eq!(server["promise"]["is_on_disk"].as_bool(), Some(is_on_disk), "{server}");
    }
    assert!(other["promise"]["sentence"].as_str().unwrap().starts_with("Not known: "), "{other}");
    let sheet = report(&folder, "report.csv");
    let measured = sheet.lines().filter(|line| line.starts_with("measured,") && line.contains(",durable,"));
    assert_eq!(measured.count(), 3 * 6, "{sheet}");
    let machine = &json["machine"];
    assert!(machine["disk"].as_str().unwrap().ends_with("/files"), "{machine}");
    assert!(machine["synced_write"]["average_us"].as_f64().unwrap() > 0.0, "{machine}");
    assert_eq!(std::fs::read_dir(&files).unwrap().count(), 0, "a server's files are left");
    assert_eq!(server.connect().unwrap().call(&["DBSIZE"]).unwrap(), wire::Value::Int(0));
}

#[test]
fn the_capacity_chapters_run_every_edition_and_show_whether_the_ceiling_held() {
    let (server, folder) = running();
    let files = folder.join("files");
    std::fs::create_dir(&files).unwrap();
    let address = format!("other=127.0.0.1:{}", server.address().port());
    let peer = "redis-server --port {port} --save \"\" --appendonly no";
    let chapters = "capacity-ample,capacity-scarce";
    let words = ["--chapters", chapters, "--peer-cmd", peer, "--peer", &address];
    let run = || {
        let mut command = command(&folder, &words);
        command.env("TMPDIR", &files);
        command
    };
    let (output, json) = measured(run, &folder, |json| {
        rows(json).all(|row| {
            let of = |member: &str| row[member].as_array().unwrap().len();
            of("measurements") >= 4 && of("residences") == of("measurements")
        }) && report(&folder, "report.csv").lines().filter(|line| line.starts_with("measured,")).count() == 36
    });
    assert!(
        said(&output).contains("[36/36] capacity-scarce: Uniform 50/50, Tarn memory"),
        "{}",
        said(&output)
    );
    let ample = ["Tarn", "redis", "other", "Tarn durable", "Tarn memory"];
    let scarce = ["Tarn", "redis", "other", "Tarn memory"];
    assert_eq!(names(&json["servers"], "name"), ample);
    for (chapter, servers) in json["chapters"].as_array().unwrap().iter().zip([&ample[..], &scarce[..]]) {
        assert_eq!(names(&chapter["servers"], "name"), servers, "{}", chapter["name"]);
        let command = chapter["servers"][0]["command"].as_str().unwrap();
        assert!(command.contains("--edition capacity --maxmemory 8mb"), "{command}");
        for (server, is_on_disk) in chapter["servers"].as_array().unwrap().iter().zip([true, true, false]) {
            assert_eq!(server["promise"]["is_on_disk"].as_bool(), Some(is_on_disk), "{server}");
        }
        let section = &chapter["sections"][0];
        assert_eq!(section["allowance"]["ceiling_bytes"].as_u64(), Some((8 << 20) * 105 / 100 + (64 << 20)));
        for row in section["rows"].as_array().unwrap() {
            assert_eq!(names(&row["measurements"], "server"), servers, "{}", row["label"]);
            assert_eq!(names(&row["residences"], "server"), servers, "{}", row["label"]);
            assert!(
                row["measurements"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .all(|one| one["errors"] == serde_json::json!([]))
            );
            for residence in row["residences"].as_array().unwrap() {
                assert!(residence["rss_bytes_max"].as_u64().unwrap() > 1 << 20, "{residence}");
                let fields = residence["store"].as_array().unwrap();
                assert_eq!(fields.is_empty(), residence["server"] != "Tarn", "{residence}");
            }
        }
    }
    assert!(json["machine"]["random_read"]["per_second"].as_f64().unwrap() > 0.0);
    assert_eq!(std::fs::read_dir(&files).unwrap().count(), 0, "files are left");
    for text in [report(&folder, "index.html"), report(&folder, "report.md")] {
        for part in [
            "Capacity: memory to data 7:1: memory and disk",
            "Capacity: memory to data 1:4: memory and disk",
            "Tarn was given 8 MB of memory",
            "tair.essd.standard.13xlarge, published",
            "they run without a ceiling",
            "The disk itself: random reads of 4 KiB",
            "held",
        ] {
            assert!(text.contains(part), "{part} is missing");
        }
    }
    let sheet = report(&folder, "report.csv");
    let lines = |part: &str| sheet.lines().filter(|line| line.contains(part)).count();
    assert_eq!(lines("measured,,Tarn,"), 2 * 4, "{sheet}");
    assert_eq!(lines("whitepaper-essd-2025,capacity,"), 2 * 4 * 5, "{sheet}");
}

#[test]
fn the_replicated_chapters_run_every_server_with_the_replica_that_it_is_to_have() {
    let (_keeps_the_folder, folder) = running();
    let peer = "redis-server --port {port} --save \"\" --appendonly no";
    let words = ["--chapters", "replicated-memory,replicated-durable", "--peer-cmd", peer];
    let (_, json) = measured(|| command(&folder, &words), &folder, |json| has_in_each_row(json, 5));
    let servers = ["Tarn", "redis with WAIT 1", "redis with a replica", "Tarn with a replica", "Tarn alone"];
    let has = |server: &Json, name: &str| {
        let settings = server["settings"].as_array().unwrap();
        settings.iter().any(|pair| pair[0] == name && pair[1] == "1")
    };
    for chapter in json["chapters"].as_array().unwrap() {
        assert_eq!(names(&chapter["servers"], "name"), servers);
        for server in chapter["servers"].as_array().unwrap() {
            assert_eq!(has(server, "Replicas"), server["name"] != "Tarn alone", "{server}");
            let waits = has(server, "Replicas that have what it answers");
            assert_eq!(waits, server["name"] == "Tarn", "{server}");
        }
        for row in chapter["sections"][0]["rows"].as_array().unwrap() {
            assert_eq!(names(&row["measurements"], "server").len(), servers.len(), "{row}");
            for measured in row["measurements"].as_array().unwrap() {
                assert_eq!(measured["errors"], serde_json::json!([]), "{measured}");
                let is_sent_wait = measured["command"].as_str().unwrap().contains("--wait 1");
                assert_eq!(is_sent_wait, measured["server"] == "redis with WAIT 1", "{measured}");
            }
        }
    }
}

#[test]
fn a_cluster_is_measured_through_two_proxies_in_the_database_of_the_printed_command() {
    let (_keeps_the_folder, folder) = running();
    let run = || command(&folder, &["--chapters", "cluster-proxies"]);
    let (_, json) = measured(run, &folder, |json| has_in_each_row(json, 1) && have_proxies_their_part(json));
    let rows = json["chapters"][0]["sections"][0]["rows"].as_array().unwrap();
    assert_eq!(
        names(&json["chapters"][0]["sections"][0]["rows"], "label"),
        ["1 shard", "2 shards", "4 shards"]
    );
    for row in rows {
        let measured = &row["measurements"][0];
        assert_eq!(measured["errors"], serde_json::json!([]), "{measured}");
        let command = measured["command"].as_str().unwrap();
        assert_eq!(command.matches(" --select-db 10 -c 100 ").count(), 2, "{command}");
    }
    let page = report(&folder, "index.html");
    assert!(page.contains("cluster of 8 GB, published") && !page.contains("This report is not whole"));
}

#[test]
fn a_proxy_stands_beside_twemproxy_over_servers_of_the_same_kind() {
    let (_keeps_the_folder, folder) = running();
    let peer = "redis-server --port {port} --save \"\" --appendonly no";
    let run = || command(&folder, &["--chapters", "twemproxy", "--peer-cmd", peer]);
    let (_, json) = measured(run, &folder, |json| {
        let proxies = json["chapters"][0]["servers"].as_array().unwrap().len();
        has_in_each_row(json, proxies) && have_proxies_their_part(json)
    });
    let chapter = &json["chapters"][0];
    let about = chapter["about"].as_str().unwrap();
    let has_twemproxy = !about.ends_with("neither on the PATH nor in /usr/sbin.");
    let proxies = &["Tarn", "twemproxy"][..if has_twemproxy { 2 } else { 1 }];
    assert_eq!(names(&chapter["servers"], "name"), proxies);
    for (server, version) in chapter["servers"].as_array().unwrap().iter().zip(["tarn ", "twemproxy 0"]) {
        assert!(server["version"].as_str().unwrap().starts_with(version), "{server}");
        let behind = server["settings"].as_array().unwrap().last().unwrap();
        assert!(behind[1].as_str().unwrap().starts_with("2 of Redis 7"), "{server}");
    }
    for row in chapter["sections"][0]["rows"].as_array().unwrap() {
        assert_eq!(names(&row["measurements"], "server"), proxies);
        for measured in row["measurements"].as_array().unwrap() {
            assert_eq!(measured["errors"], serde_json::json!([]), "{measured}");
        }
    }
}

/// Whether of the processor time of each measurement some is the proxies' and some is that of the servers behind them. It is counted in
/// hundredths of a second.
fn have_proxies_their_part(json: &Json) -> bool {
    let has = |measured: &Json| {
        let of = |usage: &str| measured[usage]["cpu_us_per_operation"].as_f64().unwrap();
        of("proxy_usage") > 0.0 && of("server_usage") > of("proxy_usage")
    };
    rows(json).flat_map(|row| row["measurements"].as_array().unwrap()).all(has)
}

/// A member of every element of a list.
fn names<'a>(list: &'a Json, member: &str) -> Vec<&'a str> {
    list.as_array().unwrap().iter().map(|one| one[member].as_str().unwrap()).collect()
}

#[test]
fn a_peer_that_dies_leaves_a_report_of_what_was_measured() {
    let (_keeps_the_folder, folder) = running();
    // Where the machine had no time for the test it has died too late, and where it had none for the run not all else was measured.
    let is_seen = SCALES.iter().any(|scale| dies_in_time(&folder, scale));
    assert!(is_seen, "{}", report(&folder, "report.csv"));
}

/// Has a peer die that has been measured once, of six times. Whether it did, and all that was not its own was measured.
fn dies_in_time(folder: &Path, scale: &str) -> bool {
    let pidfile = folder.join("peer.pid");
    let peer = format!("redis-server --port {{port}} --save \"\" --pidfile {}", pidfile.display());
    let words = ["--peer-cmd", &peer, "--scale", scale];
    let mut child = command(folder, &words).stderr(Stdio::piped()).spawn().unwrap();
    let _deadline = Deadline::of(&child);
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let begun: Vec<String> = lines.by_ref().take_while(|line| !line.starts_with("[2/12] ")).collect();
    let pid = std::fs::read_to_string(pidfile).unwrap_or_default();
    if !Command::new("kill").args(["-KILL", pid.trim()]).status().unwrap().success() {
        // It was measured, and ended, before this was heard of.
        assert_eq!(child.wait().unwrap().code(), Some(0), "{begun:?}");
        return false;
    }
    let rest: Vec<String> = lines.collect();
    if child.wait().unwrap().success() {
        return false;
    }
    assert!(rest.iter().any(|line| line.contains("redis took no further part from ")), "{rest:?}");
    let page = report(folder, "index.html");
    assert!(page.contains("This report is not whole") && page.contains("redis took no further part from "));
    let sheet = report(folder, "report.csv");
    sheet.lines().filter(|line| line.starts_with("measured,,Tarn,")).count() == 6
}

#[test]
fn an_interrupt_leaves_a_report_and_no_server() {
    let (_keeps_the_folder, folder) = running();
    let mut child = command(&folder, &[]).stderr(Stdio::piped()).spawn().unwrap();
    let _deadline = Deadline::of(&child);
    // The rest of its lines is read too: a full pipe must not hold it up.
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.starts_with("[1/6] ")));
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let rest: Vec<String> = lines.collect();
    assert!(rest.iter().any(|line| line.contains("Stopped by a signal at ")), "{rest:?}");
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert!(report(&folder, "report.md").contains("Stopped by a signal at "));
    let json: Json = serde_json::from_str(&report(&folder, "report.json")).unwrap();
    let address = json["servers"][0]["address"].as_str().unwrap();
    assert!(std::net::TcpStream::connect(address).is_err(), "Tarn still runs at {address}");
}

#[test]
fn what_cannot_begin_says_why_in_one_sentence() {
    let (server, folder) = running();
    let port = server.address().port();
    server.connect().unwrap().send(b"SET key value\r\n").unwrap();
    let holding = format!("old=127.0.0.1:{port}");
    let refused = format!("old=redis://:wrong@127.0.0.1:{port}");
    for (words, part) in [
        (&["--peer", "gone=127.0.0.1:1"][..], "cannot connect to 127.0.0.1:1: "),
        (&["--peer", &refused], "refused the password: "),
        (&["--peer", &holding], "old holds 1 keys in database 0, which the run would remove."),
        (&["--peer-cmd", "redis-server --port {port} --no-such-directive 1"], "redis ended at once"),
        (&["--chapters", "capacity"], "There is no chapter 'capacity'; there are "),
        (&["--out", "/proc/none"], "The folder /proc/none for the report cannot be made: "),
    ] {
        let output = whitepaper(&folder, words);
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        let said = said(&output);
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains(part), "{words:?}: {said}");
    }
}
