//! MEMORY: where memory goes.

use super::info::{Usage, human_bytes, ratio};
use super::{HELP_FLAGS, help, row, unknown_subcommand};
use crate::dispatch::Context;
use crate::dispatch::handlers::ServerHandler;
use command::key_use::LOOKS;
use command::parse::int;
use command::{Error, Flags, Group, Keys, Reach, Result, Row, Shows};
use keyspace::{DbIndex, Touch};
use wire::Reply;

/// Bytes of the table word that refers to an object.
const TABLE_WORD_BYTES: usize = 8;
/// Below this use of memory MEMORY DOCTOR has nothing to say.
const DOCTOR_BYTES_MIN: u64 = 5 << 20;

/// MEMORY.
pub const ROWS: &[Row<ServerHandler>] =
    &[row("memory", -2, Reach::All, Flags::empty(), |context, _| unknown_subcommand(context))
        .shows(Shows::Nothing)
        .group(Group::Server)
        .since("4.0.0")
        .complexity("Depends on the subcommand.")
        .summary("Shows where memory goes.")
        .subcommands(SUBCOMMANDS)];

const VARIES: &[&str] = &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"];

const SUBCOMMANDS: &[Row<ServerHandler>] = &[
    sub("memory|doctor", 2, Flags::empty(), doctor)
        .shows(Shows::Nothing)
        .summary("Reports on the use of memory, in words.")
        .tips(VARIES),
    sub("memory|help", 2, HELP_FLAGS, |_, reply| help(reply, "MEMORY", HELP))
        .shows(Shows::Nothing)
        .summary("Lists the subcommands."),
    sub("memory|malloc-stats", 2, Flags::empty(), malloc_stats)
        .shows(Shows::Nothing)
        .summary("Shows what the allocator says about itself.")
        .tips(VARIES),
    sub("memory|purge", 2, Flags::empty(), purge)
        .shows(Shows::Nothing)
        .complexity("Depends on how much memory is free, may be slow.")
        .summary("Gives free memory back to the system.")
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"]),
    sub("memory|stats", 2, Flags::empty(), stats).summary("Shows where memory goes in figures.").tips(VARIES),
    row("memory|usage", -3, Reach::Around, Flags::READONLY, usage)
        .group(Group::Server)
        .since("4.0.0")
        .shows(Shows::WhatItNotes)
        .keys(Keys::SECOND)
        .key_flags(&[LOOKS])
        .complexity("O(N), N being the number of samples")
        .syntax("key [SAMPLES count]")
        .summary("Tells how many bytes a key takes with its value."),
];

const HELP: &[&str] = &[
    "DOCTOR",
    "    A report in words on the use of memory.",
    "MALLOC-STATS",
    "    What the allocator says about itself.",
    "PURGE",
    "    Give free memory back to the system.",
    "STATS",
    "    Where memory goes, in figures.",
    "USAGE <key> [SAMPLES <count>]",
    "    The bytes that a key takes with its value, a collection's estimated from so many elements (default 5, 0 is all).",
];

const fn sub(name: &'static str, arity: i32, flags: Flags, handler: ServerHandler) -> Row<ServerHandler> {
    row(name, arity, Reach::All, flags, handler).passes_by(|_| true).group(Group::Server).since("4.0.0")
}

/// MEMORY USAGE key [SAMPLES count]
fn usage(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let request = context.request;
    let (mut at, mut samples) = (3, 5);
    while at < request.len() {
        let is_samples = request.arg(at).eq_ignore_ascii_case(b"samples") && at + 1 < request.len();
        if !is_samples {
            return Err(Error::Syntax);
        }
        samples = usize::try_from(int(request.arg(at + 1))?).map_err(|_| Error::Syntax)?;
        at += 2;
    }
    let key = context.server.engine.keyspace.key(context.session.db, request.arg(2));
    let keys = [key];
    let view = context.batch.try_view(&keys, context.now, Touch::No).ok_or(Error::InUse)?;
    match view.peek(&keys[0]) {
        Some(object) => reply.int((object.bytes(samples) + TABLE_WORD_BYTES) as i64),
        None => reply.null(),
    }
    view.finish();
    Ok(())
}

/// MEMORY STATS
fn stats(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let usage = Usage::now(context);
    let used: Vec<DbIndex> =
        context.server.engine.databases().filter(|db| !context.batch.is_empty(*db)).collect();
    let keys: u64 = used.iter().map(|db| context.batch.len(*db)).sum();
    let map = reply.deferred_map();
    let mut count = used.len();
    let mut int = |name: &str, value: i64, reply: &mut Reply<'_>| {
        count += 1;
        reply.bulk(name.as_bytes());
        reply.int(value);
    };
    int("peak.allocated", usage.peak as i64, reply);
    int("total.allocated", usage.used as i64, reply);
    int("startup.allocated", usage.startup as i64, reply);
    int("replication.backlog", usage.backlog as i64, reply);
    int("clients.slaves", usage.replicas as i64, reply);
    int("clients.normal", usage.clients as i64, reply);
    int("cluster.links", 0, reply);
    int("aof.buffer", usage.log_buffer as i64, reply);
    int("lua.caches", 0, reply);
    int("functions.caches", 0, reply);
    for db in used {
        databases_overhead(context, db, reply);
    }
    int("overhead.total", usage.overhead() as i64, reply);
    int("keys.count", keys as i64, reply);
    int("keys.bytes-per-key", (usage.used.saturating_sub(usage.startup) / keys.max(1)) as i64, reply);
    int("dataset.bytes", usage.dataset() as i64, reply);
    int("allocator.allocated", usage.used as i64, reply);
    int("allocator.active", usage.used as i64, reply);
    int("allocator.resident", usage.resident as i64, reply);
    int("allocator-fragmentation.bytes", 0, reply);
    int("allocator-rss.bytes", usage.fragmentation_bytes(), reply);
    int("rss-overhead.bytes", 0, reply);
    int("fragmentation.bytes", usage.fragmentation_bytes(), reply);
    let ratios = [
        ("dataset.percentage", usage.dataset_percent()),
        ("peak.percentage", 100.0 * ratio(usage.used, usage.peak)),
        ("allocator-fragmentation.ratio", 1.0),
        ("allocator-rss.ratio", usage.fragmentation()),
        ("rss-overhead.ratio", 1.0),
        ("fragmentation", usage.fragmentation()),
    ];
    for (name, value) in ratios {
        reply.bulk(name.as_bytes());
        reply.double(value);
    }
    reply.end(map, count + ratios.len());
    Ok(())
}

fn databases_overhead(context: &Context<'_, '_>, db: DbIndex, reply: &mut Reply<'_>) {
    reply.bulk(format!("db.{}", db.0).as_bytes());
    reply.map(2);
    reply.bulk(b"overhead.hashtable.main");
    reply.int(context.batch.overhead_bytes_of(db) as i64);
    // Expiries are kept with the keys.
    reply.bulk(b"overhead.hashtable.expires");
    reply.int(0);
}

/// MEMORY DOCTOR
fn doctor(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let usage = Usage::now(context);
    let ceiling = context.server.engine.config.maxmemory();
    let clients = context.server.net.clients.count().max(1) as u64;
    if usage.used < DOCTOR_BYTES_MIN {
        reply.verbatim(
            "txt",
            b"There is too little in memory to say anything about it. Come back with some data.",
        );
        return Ok(());
    }
    let mut findings = Vec::new();
    if usage.peak > usage.used + usage.used / 2 {
        findings.push(format!(
            "Memory was {} at its peak and is {} now. The process may keep what is free; MEMORY PURGE gives \
             it back.",
            human_bytes(usage.peak),
            human_bytes(usage.used)
        ));
    }
    if usage.fragmentation() > 1.4 {
        findings.push(format!(
            "The process has {:.2} times as much memory as it uses. Many keys were deleted, or grew bit by \
             bit; it evens out as new ones are written.",
            usage.fragmentation()
        ));
    }
    if usage.clients / clients > 200 << 10 {
        findings.push(
            "Clients take more than 200 KB each: some send large requests or do not read their replies. \
             CLIENT LIST shows which (qbuf, omem)."
                .to_owned(),
        );
    }
    if ceiling > 0 && usage.used > ceiling / 10 * 9 {
        findings.push("Memory is within a tenth of maxmemory.".to_owned());
    }
    let report = match findings.is_empty() {
        true => "Nothing is wrong with the use of memory.".to_owned(),
        false => findings.iter().map(|finding| format!("- {finding}\n")).collect(),
    };
    reply.verbatim("txt", report.as_bytes());
    Ok(())
}

/// MEMORY PURGE
fn purge(_: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    sys::memory::release();
    reply.ok();
    Ok(())
}

/// MEMORY MALLOC-STATS
fn malloc_stats(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let usage = Usage::now(context);
    let text = format!(
        "mimalloc {}\nbytes in use, size classes counted in full: {}\nmost bytes in use: {}\nbytes resident: {}\n",
        sys::memory::allocator_version(),
        usage.used,
        usage.peak,
        usage.resident
    );
    reply.verbatim("txt", text.as_bytes());
    Ok(())
}
