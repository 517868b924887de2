//! The names of INFO's fields against those of real servers: what monitors ask for by name has to be there.

use crate::tarn;
use std::collections::BTreeSet;
use testkit::ask::{ask, wait_until};
use testkit::{Program, Server};
use wire::Value;

/// Fields that only Tarn lacks, or only Tarn has.
const TOLERATED: &[(&str, &str)] = &[
    ("atomicvar_api", "Redis': of the C compiler"),
    ("gcc_version", "Redis': of the C compiler"),
    ("allocator_muzzy", "Valkey's own: of another allocator"),
    ("availability_zone", "Valkey's own"),
    ("io_threaded_freed_objects", "Valkey's own"),
    ("io_threaded_poll_processed", "Valkey's own"),
    ("io_threaded_total_prefetch_batches", "Valkey's own"),
    ("io_threaded_total_prefetch_entries", "Valkey's own"),
    ("mem_overhead_db_hashtable_rehashing", "Valkey's own"),
    ("replicas_waiting_psync", "Valkey's own"),
    ("server_mode", "Valkey's own"),
    ("server_name", "Valkey's own"),
    ("valkey_version", "Valkey's own"),
    ("acl_access_denied_tls_cert", "of Redis 8.6 and Valkey 9"),
    ("edition", "Tarn's own"),
    ("paused_clients", "Tarn's own"),
    ("sync_rewinds", "Tarn's own"),
    ("tarn_version", "Tarn's own"),
    ("worker_moves", "Tarn's own"),
    ("worker_threads", "Tarn's own"),
    ("worker_threads_active", "Tarn's own"),
];

/// Sections and fields, of an answer to INFO.
fn names(server: &Server, section: &str) -> BTreeSet<String> {
    let mut client = server.connect().unwrap();
    let Value::Bulk(text) = client.call(&["INFO", section]).unwrap() else { panic!("INFO is a bulk string") };
    let text = String::from_utf8(text).unwrap();
    let name = |line: &str| line.split(':').next().unwrap_or_default().trim_end().to_owned();
    text.lines().map(name).filter(|name| !name.is_empty()).collect()
}

#[test]
fn info_has_the_fields_of_real_servers() {
    let servers = [tarn(), Program::Redis, Program::Valkey].map(|program| {
        let edition: &[&str] = if let Program::Tarn(_) = program { &["--edition", "memory"] } else { &[] };
        Server::start(program, edition).unwrap()
    });
    for server in &servers {
        server.connect().unwrap().call(&["SET", "k", "v"]).unwrap();
    }
    for section in ["everything", "all", "default", "clients", "memory", "stats"] {
        let [ours, redis, valkey] = servers.each_ref().map(|server| names(server, section));
        let theirs: BTreeSet<String> = redis.union(&valkey).cloned().collect();
        let is_tolerated = |name: &&String| TOLERATED.iter().any(|(tolerated, _)| tolerated == name);
        let found: Vec<_> = ours.symmetric_difference(&theirs).filter(|name| !is_tolerated(name)).collect();
        assert!(found.is_empty(), "INFO {section}: {found:?}");
        let unneeded = |(name, _): &&(&str, &str)| ours.contains(*name) == theirs.contains(*name);
        let unneeded: Vec<_> = TOLERATED.iter().filter(unneeded).collect();
        assert!(section != "everything" || unneeded.is_empty(), "no longer differ: {unneeded:?}");
    }
    let [ours, _, valkey] = servers.each_ref().map(|server| names(server, "debug"));
    assert_eq!(ours, valkey);
}

#[test]
fn info_tells_of_the_rounds_of_workers() {
    let server = Server::start(tarn(), &["--edition", "memory", "--threads", "1"]).unwrap();
    let mut client = server.connect().unwrap();
    let mut figures = |names: &[&str]| {
        let text = ask(&mut client, &["INFO", "stats", "debug"]);
        let figure = |name: &&str| {
            let line = text.lines().find_map(|line| line.strip_prefix(*name)?.strip_prefix(':'));
            line.unwrap_or_else(|| panic!("{name} is in {text}")).trim().parse::<u64>().unwrap()
        };
        names.iter().map(figure).collect::<Vec<_>>()
    };
    const SUMS: [&str; 4] = [
        "eventloop_cycles",
        "eventloop_duration_sum",
        "eventloop_duration_cmd_sum",
        "eventloop_duration_cron_sum",
    ];
    const OTHERS: [&str; 4] = [
        "eventloop_duration_max",
        "eventloop_cmd_per_cycle_max",
        "instantaneous_eventloop_cycles_per_sec",
        "instantaneous_eventloop_duration_usec",
    ];
    let first = figures(&SUMS);
    wait_until("all of them grow", || figures(&SUMS).iter().zip(&first).all(|(now, before)| now > before));
    wait_until("there are some", || figures(&OTHERS).iter().all(|figure| *figure > 0));
    let mut other = server.connect().unwrap();
    other.pipeline(&vec![testkit::generate::words(&["PING"]); 50]).unwrap();
    assert!(figures(&["eventloop_cmd_per_cycle_max"])[0] >= 50);
    let before = figures(&["eventloop_cycles"])[0];
    assert_eq!(ask(&mut other, &["CONFIG", "RESETSTAT"]), "OK");
    let after = figures(&["eventloop_cycles", "eventloop_cmd_per_cycle_max"]);
    assert!(after[0] < before && after[1] < 50, "{after:?}, and {before} rounds before");
}
