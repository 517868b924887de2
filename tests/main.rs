//! The integration tests: one binary, a module for each kind.
//!
//! docs/testing.md says what each is for and how to run the long ones.

mod acl;
mod answered;
mod backups;
mod begins;
mod bench_cluster;
mod bench_runs;
mod bombs;
mod capacity;
mod checked;
mod clients;
mod clusters;
mod compared;
mod configs;
mod copies;
mod crash;
mod debug;
mod demoted;
mod departures;
mod differences;
mod differential;
mod direct;
mod directives;
mod endings;
mod events;
mod everywhere;
mod failovers;
mod fairness;
mod handover;
mod hostile;
mod identities;
mod idle;
mod imports;
mod info_fields;
mod large;
mod long_scripts;
mod memory;
mod migrate;
mod migrations;
mod moves;
mod operators;
mod porcupine;
mod printed;
mod proxies;
mod recovered;
mod relayed;
mod renamed;
mod replconf;
mod replicas;
mod replicated;
mod replies;
mod resumed;
mod rewinds;
mod rows;
mod secrets;
mod security;
mod shards;
mod slot_moves;
mod snapshots;
mod soak;
mod starts;
mod subject;
mod synced;
mod tidy;
mod tls;
mod whitepaper_runs;
mod whole;
mod workers;

use std::path::{Path, PathBuf};
use testkit::{Client, Program, Spec, spec};
use wire::Value;

/// The `tarn` that was built with these tests, or the one that `TARN_BIN` names.
fn tarn() -> Program {
    Program::Tarn(tarn_path())
}

/// Where it is.
fn tarn_path() -> PathBuf {
    std::env::var_os("TARN_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_tarn").into()).into()
}

/// The root of the sources.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every command of Tarn, from the one table.
fn specs() -> Vec<Spec> {
    let mut specs = spec::data_specs();
    specs.extend(server::commands::FAMILIES.iter().flat_map(|rows| spec::specs(rows)));
    specs
}

/// The names of all rows; subcommands with their bar.
fn row_names() -> Vec<String> {
    specs().into_iter().map(|spec| spec.name).collect()
}

/// A number among INFO's fields.
fn info(client: &mut Client, field: &str) -> u64 {
    let Value::Bulk(text) = client.call(&["INFO", "everything"]).unwrap() else {
        panic!("INFO is a bulk string")
    };
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).unwrap();
    line.parse().unwrap()
}
