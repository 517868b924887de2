//! The rules of the house, as tests over the sources: which crate may use which,
//! sizes, names, comments that must be there and words that must not.
//!
//! Each rule is a function from a file to complaints, in [`rules`], and is itself
//! tested with small sources. The lists of exceptions here may only shrink: an entry
//! that is not needed any more fails too.

mod rules;

use crate::root;
use rules::{Complaints, Source};
use std::path::Path;

/// The crates from the top to the bottom; each may use those after it only.
const ORDER: &[&str] = &[
    "tarn",
    "bench",
    "proxy",
    "migrate",
    "cluster",
    "server",
    "replication",
    "topology",
    "notify",
    "net",
    "acl",
    "engine",
    "telemetry",
    "config",
    "command",
    "script",
    "lua",
    "keyspace",
    "store",
    "log",
    "value",
    "wire",
    "sys",
];

/// Of these the first is to know nothing of the second, wherever they stand in the order.
const APART: &[(&str, &str)] = &[
    ("net", "engine"),
    ("net", "keyspace"),
    ("notify", "engine"),
    ("acl", "keyspace"),
    ("bench", "command"),
    ("cluster", "server"),
    ("bench", "proxy"),
    ("proxy", "cluster"),
    ("migrate", "server"),
    ("migrate", "cluster"),
    ("migrate", "engine"),
    ("server", "cluster"),
];

/// Modules of the server from the top to the bottom; each may use those after it.
const SERVER_MODULE_ORDER: &[&str] = &[
    "start",
    "serve",
    "roles",
    "commands",
    "supervision",
    "joining",
    "moving",
    "hearing",
    "insync",
    "following",
    "durable",
    "replay",
    "tick",
    "assembly",
    "dispatch",
    "blocking",
    "rights",
    "session",
    "slow",
    "feeding",
    "server",
    "refusals",
    "replicas",
    "arrivals",
    "clustered",
    "shard",
    "failover",
    "followed",
    "departure",
    "blocked",
    "holders",
    "transaction",
    "pause",
    "names",
    "bells",
    "switches",
];

/// The same of the net.
const NET_MODULE_ORDER: &[&str] = &[
    "accept",
    "worker",
    "connection",
    "desk",
    "service",
    "shared",
    "inboxes",
    "placement",
    "accepted",
    "handshakes",
    "gate",
    "listen",
    "stream",
    "encryption",
    "tls",
    "connect",
    "descriptors",
    "client",
];

/// Lines of a file, without its tests, that are a defect.
const FILE_LINES_MAX: usize = 800;
/// Lines of a function, from its signature to its closing brace.
const FUNCTION_LINES_MAX: usize = 70;

/// Files over [`FILE_LINES_MAX`].
const LONG_FILES: &[&str] = &[];
/// Functions over [`FUNCTION_LINES_MAX`], as `path: name`.
const LONG_FUNCTIONS: &[&str] = &[];
/// The files in which `unsafe` may stand.
const UNSAFE_FILES: &[&str] = &[
    "crates/keyspace/src/access.rs",
    "crates/keyspace/src/access/cold.rs",
    "crates/keyspace/src/locks.rs",
    "crates/keyspace/src/locks/fair.rs",
    "crates/keyspace/src/object.rs",
    "crates/keyspace/src/object/residence.rs",
    "crates/keyspace/src/opened.rs",
    "crates/keyspace/src/table.rs",
    "crates/script/src/gate.rs",
    "crates/script/src/library/buffer.rs",
    "crates/script/src/library/mod.rs",
    "crates/script/src/library/plain.rs",
    "crates/script/src/library/sort.rs",
    "crates/script/src/library/strings.rs",
    "crates/script/src/library/tables.rs",
    "crates/script/src/library/watch.rs",
    "crates/script/src/raw/call.rs",
    "crates/script/src/raw/incoming.rs",
    "crates/script/src/raw/json/decode.rs",
    "crates/script/src/raw/json/encode.rs",
    "crates/script/src/raw/json/mod.rs",
    "crates/script/src/raw/mod.rs",
    "crates/script/src/raw/outgoing.rs",
    "crates/script/src/raw/run.rs",
    "crates/sys/src/file/reads/ring.rs",
    "crates/sys/src/memory.rs",
    "crates/sys/src/pages.rs",
    "crates/sys/src/prefetch.rs",
    "crates/sys/src/process.rs",
    "crates/sys/src/socket.rs",
    "crates/value/src/bits.rs",
    "crates/value/src/entry.rs",
    "crates/value/src/hash/fields.rs",
    "crates/value/src/set/members.rs",
    "crates/value/src/table/handle.rs",
    "crates/value/src/table/mod.rs",
    "crates/value/src/table/tests.rs",
    "crates/value/src/zset/native.rs",
];

/// All sources of the repository, by their paths below its root.
fn sources(extensions: &[&str]) -> Vec<Source> {
    let mut found = Vec::new();
    for folder in ["crates", "src", "tests", "docs"] {
        collect(&root().join(folder), extensions, &mut found);
    }
    for file in
        ["Cargo.toml", "README.md", "ARCHITECTURE.md", "test", ".ci/run", "rustfmt.toml", "clippy.toml"]
    {
        if extensions.iter().any(|extension| file.ends_with(extension)) {
            read(&root().join(file), &mut found);
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

fn collect(folder: &Path, extensions: &[&str], found: &mut Vec<Source>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, extensions, found);
        } else if extensions.iter().any(|extension| path.to_string_lossy().ends_with(extension)) {
            read(&path, found);
        }
    }
}

fn read(path: &Path, found: &mut Vec<Source>) {
    if let Ok(text) = std::fs::read_to_string(path) {
        let path = path.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
        found.push(Source { path, text });
    }
}

/// Applies a rule to every Rust file.
fn complaints(rule: fn(&Source) -> Complaints) -> Complaints {
    sources(&[".rs"]).iter().flat_map(rule).collect()
}

fn must_be_empty(complaints: &[String]) {
    assert!(complaints.is_empty(), "{} complaints:\n{}", complaints.len(), complaints.join("\n"));
}

/// Complains of what is not on the list of exceptions, and of exceptions that nothing needs.
fn must_be(found: &[String], exceptions: &[&str]) {
    let unexpected = found.iter().filter(|name| !exceptions.contains(&name.as_str())).cloned();
    let stale = exceptions.iter().filter(|name| !found.iter().any(|found| found == **name));
    let all: Complaints =
        unexpected.chain(stale.map(|name| format!("{name}: not an exception any more"))).collect();
    must_be_empty(&all);
}

#[test]
fn crates_use_only_what_is_below_them() {
    let manifests = sources(&["Cargo.toml"]);
    assert!(manifests.len() > 5, "the manifests were not found");
    must_be_empty(
        &manifests.iter().flat_map(|manifest| rules::edges(manifest, ORDER)).collect::<Complaints>(),
    );
}

#[test]
fn some_crates_know_nothing_of_each_other() {
    let manifests = sources(&["Cargo.toml"]);
    must_be_empty(
        &manifests.iter().flat_map(|manifest| rules::acquaintances(manifest, APART)).collect::<Vec<_>>(),
    );
}

#[test]
fn modules_of_a_crate_use_what_is_below_them() {
    let mut found = complaints(|source| rules::rises(source, "crates/server/src/", SERVER_MODULE_ORDER));
    found.extend(complaints(|source| rules::rises(source, "crates/net/src/", NET_MODULE_ORDER)));
    must_be_empty(&found);
}

#[test]
fn files_are_short() {
    must_be(&complaints(|source| rules::long_file(source, FILE_LINES_MAX)), LONG_FILES);
}

#[test]
fn functions_are_short() {
    must_be(&complaints(|source| rules::long_functions(source, FUNCTION_LINES_MAX)), LONG_FUNCTIONS);
}

#[test]
fn names_say_something() {
    must_be_empty(&complaints(rules::banned_names));
}

#[test]
fn files_begin_with_what_they_are() {
    must_be_empty(&complaints(rules::no_header));
}

#[test]
fn nothing_is_left_for_later() {
    must_be_empty(&complaints(rules::left_for_later));
}

#[test]
fn unsafe_stays_in_its_places_with_its_reasons() {
    must_be(&complaints(rules::with_unsafe), UNSAFE_FILES);
    let mut all = complaints(|source| rules::not_forbidding_unsafe(source, UNSAFE_FILES));
    all.extend(complaints(rules::unsafe_without_reason));
    must_be_empty(&all);
}

#[test]
fn files_are_reached_through_the_door() {
    must_be_empty(&complaints(rules::files_past_the_door));
}

#[test]
fn allowances_have_reasons() {
    must_be_empty(&complaints(rules::allowed_without_reason));
}

#[test]
fn files_name_no_machine_and_no_mirror() {
    let kinds = [".rs", ".toml", ".md", ".py", ".resp", "test", ".ci/run"];
    must_be_empty(&sources(&kinds).iter().flat_map(rules::places).collect::<Complaints>());
}
