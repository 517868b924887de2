//! CONFIG: reads and changes the configuration while the server runs.
//!
//! What a change means beyond the configuration itself (memory ceiling, thresholds)
//! is handed on by [`assembly::follow_config`].

use super::{HELP_FLAGS, help, row, unknown_subcommand};
use crate::dispatch::Context;
use crate::dispatch::checks::LOADING;
use crate::dispatch::handlers::ServerHandler;
use crate::feeding::{handover, unsynced};
use crate::server::Server;
use crate::{assembly, durable};
use command::{Error, Flags, Group, Reach, Result, Row, Secrets, Shows};
use config::{Appended, CannotApply, ChangedDirective, Config, Origin, TABLE};
use engine::Attention;
use net::client::eviction;
use net::tls::Contexts;
use net::{descriptors, encryption, listen};
use std::io;
use std::sync::Arc;
use telemetry::log;
use wire::Reply;

/// CONFIG.
pub const ROWS: &[Row<ServerHandler>] =
    &[row("config", -2, Reach::Around, Flags::empty(), |context, _| unknown_subcommand(context))
        .shows(Shows::Nothing)
        .group(Group::Server)
        .since("2.0.0")
        .complexity("Depends on the subcommand.")
        .summary("Reads and changes the configuration.")
        .subcommands(SUBCOMMANDS)];

/// A proxy sends these to all nodes.
const EVERYWHERE: &[&str] = &["request_policy:all_nodes", "response_policy:all_succeeded"];

const SUBCOMMANDS: &[Row<ServerHandler>] = &[
    sub("config|get", -3, get)
        .shows(Shows::Nothing)
        .complexity("O(N), N being the number of names and patterns")
        .syntax("parameter [parameter ...]")
        .summary("Replies with directives and their values, by name or pattern."),
    row("config|help", 2, Reach::Around, HELP_FLAGS, |_, reply| help(reply, "CONFIG", HELP))
        .shows(Shows::Nothing)
        .group(Group::Server)
        .since("5.0.0")
        .summary("Lists the subcommands."),
    sub("config|resetstat", 2, resetstat)
        .shows(Shows::Nothing)
        .summary("Sets the counts that INFO shows back to zero.")
        .tips(EVERYWHERE),
    sub("config|rewrite", 2, rewrite)
        .shows(Shows::Nothing)
        .since("2.8.0")
        .summary("Brings the configuration file up to the configuration in force.")
        .tips(EVERYWHERE),
    sub("config|set", -4, set)
        .shows(Shows::Nothing)
        .secrets(Secrets::OfDirectives)
        .complexity("O(N), N being the number of directives")
        .syntax("parameter value [parameter value ...]")
        .summary("Changes directives, all of those named or none.")
        .tips(EVERYWHERE),
];

const HELP: &[&str] = &[
    "GET <pattern> [<pattern> ...]",
    "    Directives whose names match, and their values.",
    "SET <directive> <value> [<directive> <value> ...]",
    "    Change directives, all or none.",
    "RESETSTAT",
    "    Set the counts of INFO back to zero.",
    "REWRITE",
    "    Bring the configuration file up to date.",
];

const fn sub(name: &'static str, arity: i32, handler: ServerHandler) -> Row<ServerHandler> {
    const FLAGS: Flags = Flags::ADMIN.union(Flags::NOSCRIPT).union(Flags::LOADING).union(Flags::STALE);
    row(name, arity, Reach::Around, FLAGS, handler).group(Group::Server).since("2.0.0")
}

/// CONFIG GET parameter [parameter ...]
fn get(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let patterns: Vec<&[u8]> = context.request.iter().skip(2).collect();
    let found = context.server.engine.config.get(&patterns);
    reply.map(found.len());
    for (name, value) in found {
        reply.bulk(&name);
        reply.bulk(&value);
    }
    Ok(())
}

/// CONFIG SET parameter value [parameter value ...]
fn set(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let words: Vec<&[u8]> = context.request.iter().skip(2).collect();
    if !words.len().is_multiple_of(2) {
        return Err(Error::Syntax);
    }
    let pairs: Vec<(&[u8], &[u8])> = words.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
    let server = context.server;
    let origin = if context.session.client.is_local() { Origin::Local } else { Origin::Remote };
    let is_loading = server.engine.attention().intersects(Attention::LOADING | Attention::LOADING_BESIDE);
    if is_loading && pairs.iter().any(|(name, _)| Config::is_kept_while_loading(name)) {
        return Err(LOADING);
    }
    // Before the configuration is held: others wait for that inside of the keyspace.
    let holds = begins_log(server, &pairs) && !context.batch.is_holding();
    // Where a master's stream is, is known between its requests only.
    let still = if holds { server.following.applying.try_lock() } else { None };
    if holds && (still.is_none() || !context.batch.try_hold_all()) {
        return Err(Error::InUse);
    }
    let set =
        server.engine.config.set_and_apply(&pairs, origin, |changed| apply(server, &pairs, changed, holds));
    if holds {
        context.batch.release();
    }
    if set.is_err() && pairs.iter().any(|(name, _)| is_oom_score(&name.to_ascii_lowercase())) {
        // The log has what the kernel says against it.
        let _ = server.follow_oom_score();
    }
    set.map_err(|error| Error::line(error.line()))?;
    // What kept a master's copy from being taken may be mended with this.
    server.following.try_now();
    reply.ok();
    Ok(())
}

fn is_oom_score(name: &[u8]) -> bool {
    matches!(name, b"oom-score-adj" | b"oom-score-adj-values")
}

/// Whether these may have a log begin.
fn begins_log(server: &Server, pairs: &[(&[u8], &[u8])]) -> bool {
    let asks = |name: &[u8], value: &[u8]| {
        name.eq_ignore_ascii_case(b"appendonly") && value.eq_ignore_ascii_case(b"yes")
    };
    server.engine.durability.log().is_none() && pairs.iter().any(|(name, value)| asks(name, value))
}

/// Lets the server act on a change.
fn apply(
    server: &Arc<Server>,
    pairs: &[(&[u8], &[u8])],
    changed: &[ChangedDirective],
    holds_all: bool,
) -> std::result::Result<(), CannotApply> {
    if changed.iter().any(|change| change.name() == "maxclients") {
        check_descriptors(server)?;
    }
    if server.engine.durability.log().is_some() && changed.iter().any(|change| change.name() == "dir") {
        let reason = "the log stays where it is: a start with another directory would not find it".to_owned();
        return Err(CannotApply { name: "dir", reason });
    }
    refuse_in_shard(server, changed)?;
    if let Some(change) = changed.iter().find(|change| ["appendfsync", "appendonly"].contains(&change.name()))
    {
        let about = |error: io::Error| CannotApply { name: change.name(), reason: error.to_string() };
        unsynced::note(server).map_err(about)?;
    }
    if let Some(change) = changed.iter().find(|change| is_oom_score(change.name().as_bytes())) {
        let reason = "Failed to set current oom_score_adj. Check server logs.".to_owned();
        server.follow_oom_score().map_err(|_| CannotApply { name: change.name(), reason })?;
    }
    let before = change_tls(server, pairs)?;
    // Last of all that may fail, and never both: they are not taken back.
    let moved = if changed.iter().any(|change| change.name() == "appendonly") {
        switch_log(server, changed, holds_all).map_err(|reason| CannotApply { name: "appendonly", reason })
    } else {
        listen_elsewhere(server, pairs, changed)
    };
    if moved.is_err()
        && let Some(before) = before
    {
        server.net.tls.replace(before);
    }
    moved?;
    assembly::follow_config(server);
    if changed.iter().any(|change| change.name() == "maxmemory-clients") {
        // Who asks next who is there is not told of those that had to go.
        eviction::keep_within_limit(&server.net.clients);
    }
    Ok(())
}

/// # Errors
/// The server is a node of a shard, and what it has acknowledged would not be where its members believe that it is.
fn refuse_in_shard(server: &Server, changed: &[ChangedDirective]) -> std::result::Result<(), CannotApply> {
    // Others find it at its ports.
    const SETTLED: [&str; 5] = ["appendfsync", "appendonly", "min-sync-replicas", "port", "tls-port"];
    // It has introduced itself with these, and is there under its old address as long as it lives. Connections to others, of which some never end, have tls-cluster as it was.
    const OF_CLUSTER: [&str; 4] =
        ["cluster-announce-ip", "cluster-announce-port", "cluster-announce-tls-port", "tls-cluster"];
    let is_settled = |name: &str| {
        SETTLED.contains(&name) && (server.shard.is_on() || server.clustered.is_on())
            || OF_CLUSTER.contains(&name) && server.clustered.is_on()
    };
    match changed.iter().map(|change| change.name()).find(|name| is_settled(name)) {
        None => Ok(()),
        Some(name) => {
            let reason = "a node of a shard or a cluster has it as it was when it started".to_owned();
            Err(CannotApply { name, reason })
        }
    }
}

/// Reads what TLS needs if any of its directives is named, changed or not: the files may have. Returns what was there before.
fn change_tls(
    server: &Server,
    pairs: &[(&[u8], &[u8])],
) -> std::result::Result<Option<Option<Arc<Contexts>>>, CannotApply> {
    let about = || pairs.iter().map(|(name, _)| *name).filter(|name| encryption::is_about(name));
    // Whether clients show certificates is no reason why something cannot be had, as long as something else is named.
    let may_fail = |name: &&[u8]| !name.to_ascii_lowercase().starts_with(b"tls-auth-");
    let Some(named) = about().find(may_fail).or_else(|| about().next()) else {
        return Ok(None);
    };
    encryption::follow_config(&server.net.tls, &server.engine.config).map(Some).map_err(|reason| {
        log!(Warning, "Failed to configure TLS: {reason}");
        let name = TABLE.iter().find(|row| row.is_named(named)).map_or("tls-port", |row| row.name);
        CannotApply { name, reason: "Unable to update TLS configuration. Check server logs.".to_owned() }
    })
}

/// Begins the log, or ends it.
fn switch_log(
    server: &Arc<Server>,
    changed: &[ChangedDirective],
    holds_all: bool,
) -> std::result::Result<(), String> {
    if changed.iter().any(|change| matches!(change.name(), "port" | "tls-port" | "bind")) {
        return Err("it cannot be set together with 'port', 'tls-port' or 'bind'".to_owned());
    }
    if !server.engine.config.appendonly() {
        handover::end_log(server);
        return Ok(());
    }
    if server.engine.durability.log().is_some() {
        return handover::begin_again(server).map_err(|error| error.to_string());
    }
    if !holds_all {
        return Err("it cannot be set in a transaction".to_owned());
    }
    let begin = |beginning| durable::begin_amid_traffic(server, beginning);
    handover::begin_log(server, begin).map_err(|error| error.to_string())
}

const UNABLE_TO_LISTEN: &str = "Unable to listen on this port. Check server logs.";

/// Listens at the addresses that are configured if they are named, changed or not: one of them may have been lost since.
fn listen_elsewhere(
    server: &Server,
    pairs: &[(&[u8], &[u8])],
    changed: &[ChangedDirective],
) -> std::result::Result<(), CannotApply> {
    let is_named = |name: &str| pairs.iter().any(|(named, _)| named.eq_ignore_ascii_case(name.as_bytes()));
    let (name, reason) = if is_named("bind") {
        ("bind", "Failed to bind to specified addresses.")
    } else if is_named("port") {
        ("port", UNABLE_TO_LISTEN)
    } else if is_named("tls-port") {
        ("tls-port", UNABLE_TO_LISTEN)
    } else {
        return Ok(());
    };
    let has_port_changed = changed.iter().any(|change| change.name() == "port");
    listen::move_to_configured(&server.net.doors, &server.engine.config, has_port_changed)
        .map_err(|_| CannotApply { name, reason: reason.to_owned() })
}

/// Refuses more clients than the system lets the process have files; the store's are what they leave.
fn check_descriptors(server: &Server) -> std::result::Result<(), CannotApply> {
    let config = &server.engine.config;
    let maxclients = config.maxclients();
    match descriptors::clients_possible(config, maxclients) {
        Ok(possible) if possible < u64::from(maxclients) => {
            let reason = format!(
                "The operating system is not able to handle the specified number of clients, try with {possible}"
            );
            Err(CannotApply { name: "maxclients", reason })
        }
        _ => {
            if let Ok(handles) = descriptors::of_store(config) {
                server.engine.residency.set_handles(handles);
            }
            Ok(())
        }
    }
}

/// CONFIG REWRITE
fn rewrite(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    rewrite_with(context, Appended::Changed, reply)
}

/// The same, and says which directives the file is to have.
pub(super) fn rewrite_with(
    context: &Context<'_, '_>,
    appended: Appended,
    reply: &mut Reply<'_>,
) -> Result<()> {
    let (config, acl) = (&context.server.engine.config, &context.server.acl);
    if config.aclfile().is_empty() {
        // Otherwise the file of users is where they are kept.
        config.set_users(acl.config_lines());
    }
    config.rewrite(appended).map_err(|error| Error::line(error.to_string()))?;
    reply.ok();
    Ok(())
}

/// CONFIG RESETSTAT
fn resetstat(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let server = context.server;
    server.counts.reset();
    server.net.clients.reset_counts();
    server.engine.scripts.evicted.reset();
    server.worker_counts.iter().for_each(|worker| worker.reset());
    server.net.rounds.iter().for_each(|worker| worker.reset());
    let keys = server.engine.keyspace.stats();
    [&keys.hits, &keys.misses, &keys.expired, &keys.evicted].iter().for_each(|count| count.reset());
    let feeding = &server.feeding;
    [&feeding.full_copies, &feeding.continued, &feeding.refused].iter().for_each(|count| count.reset());
    keyspace::reaper::reset_freed();
    server.samples.reset(sys::memory::used_bytes());
    reply.ok();
    Ok(())
}
