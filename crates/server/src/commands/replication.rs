//! ROLE, REPLICAOF, FAILOVER, and what a replica says to its master: REPLCONF, PSYNC, SYNC.
//!
//! Others follow the server (`crate::feeding`), and it may follow one (`crate::following`).

use super::row;
use crate::dispatch::Context;
use crate::dispatch::handlers::ServerHandler;
use crate::feeding;
use crate::feeding::joining::{self, Wish};
use crate::feeding::synced;
use crate::followed::{Master, Phase};
use crate::following::{self, Order, handing_over};
use crate::replicas::replica::{Form, Replica, Said, Stage};
use crate::server::Server;
use crate::session::ReplyMode;
use command::category::Categories;
use command::parse::int;
use command::{Error, Flags, Group, Reach, Result, Row, Shows};
use net::client::Traits;
use replication::insync::NodeId;
use replication::link::NODE;
use std::sync::Arc;
use telemetry::log;
use value::number::parse_i64;
use wire::{Reply, split_words};

const ADMIN: Flags = Flags::ADMIN.union(Flags::NOSCRIPT);
const FOLLOWS: Flags = ADMIN.union(Flags::STALE).union(Flags::NO_ASYNC_LOADING);
const SYNCS: Flags = ADMIN.union(Flags::NO_ASYNC_LOADING).union(Flags::NO_MULTI);

/// FAILOVER, PSYNC, REPLCONF, REPLICAOF, ROLE, SLAVEOF and SYNC.
pub const ROWS: &[Row<ServerHandler>] = &[
    row("failover", -1, Reach::Around, ADMIN.union(Flags::STALE), failover)
        .shows(Shows::Nothing)
        .group(Group::Server)
        .since("6.2.0")
        .complexity("O(1)")
        .syntax("[TO host port [FORCE]] [ABORT] [TIMEOUT milliseconds]")
        .summary("Hands the role of the master to a replica."),
    row("psync", -3, Reach::Around, SYNCS, psync)
        .shows(Shows::Nothing)
        .group(Group::Server)
        .since("2.8.0")
        .syntax("replicationid offset")
        .summary("Is what a replica asks for the stream of changes with."),
    row(
        "replconf",
        -1,
        Reach::Around,
        ADMIN.union(Flags::LOADING).union(Flags::STALE).union(Flags::ALLOW_BUSY),
        replconf,
    )
    .shows(Shows::Nothing)
    .group(Group::Server)
    .since("3.0.0")
    .complexity("O(1)")
    .summary("Is what a replica tells its master about itself with."),
    row("replicaof", 3, Reach::Around, FOLLOWS, replicaof)
        .shows(Shows::Nothing)
        .group(Group::Server)
        .since("5.0.0")
        .complexity("O(1)")
        .syntax("<host port | NO ONE>")
        .summary("Makes the server follow another, or none."),
    row("role", 1, Reach::Nothing, Flags::NOSCRIPT.union(MAY_ALWAYS).union(Flags::FAST), role)
        .shows(Shows::Nothing)
        .group(Group::Server)
        .in_categories(Categories::ADMIN.union(Categories::DANGEROUS))
        .since("2.8.12")
        .complexity("O(1)")
        .summary("Tells the server's part in replication."),
    row("slaveof", 3, Reach::Around, FOLLOWS, replicaof)
        .shows(Shows::Nothing)
        .group(Group::Server)
        .complexity("O(1)")
        .syntax("<host port | NO ONE>")
        .summary("Makes the server follow another, or none."),
    row("sync", 1, Reach::Around, SYNCS, sync)
        .shows(Shows::Nothing)
        .group(Group::Server)
        .summary("Is what an old replica asks for the stream of changes with."),
];

const MAY_ALWAYS: Flags = Flags::LOADING.union(Flags::STALE);

/// ROLE
fn role(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    if let Some(status) = context.server.following.status() {
        reply.array(5);
        reply.bulk(b"slave");
        reply.bulk(status.master.host.as_bytes());
        reply.int(i64::from(status.master.port));
        reply.bulk(status.phase.word().as_bytes());
        let offset = feeding::told(context.server);
        reply.int(match status.phase {
            Phase::Connected => i64::try_from(offset).unwrap_or(i64::MAX),
            _ => -1,
        });
        return Ok(());
    }
    let replicas = context.server.feeding.replicas();
    let online: Vec<_> = replicas.iter().filter(|replica| replica.stage() == Stage::Online).collect();
    reply.array(3);
    reply.bulk(b"master");
    reply.int(i64::try_from(feeding::told(context.server)).unwrap_or(i64::MAX));
    reply.array(online.len());
    for replica in online {
        reply.array(3);
        reply.bulk(replica.host().as_bytes());
        reply.bulk(replica.said.port.to_string().as_bytes());
        reply.bulk(replica.acknowledged().to_string().as_bytes());
    }
    Ok(())
}

/// REPLICAOF <host port | NO ONE>
fn replicaof(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let request = context.request;
    if context.session.replica.is_some() {
        return Err(Error::text("ERR Command is not valid when client is a replica."));
    }
    refuse_in_shard(context.server, Error::text("ERR REPLICAOF not allowed in cluster mode."))?;
    if context.server.failover.is_on() {
        return Err(Error::text("ERR REPLICAOF not allowed while failing over."));
    }
    let (host, port) = (request.arg(1), request.arg(2));
    let master = match host.eq_ignore_ascii_case(b"no") && port.eq_ignore_ascii_case(b"one") {
        true => None,
        false => {
            let port = int(port).ok().and_then(|port| u16::try_from(port).ok());
            let port = port.ok_or(Error::text("ERR Invalid master port"))?;
            Some(Master { host: String::from_utf8_lossy(host).into_owned(), port })
        }
    };
    match following::follow(context.server, master) {
        // Within a transaction nobody waits.
        Order::Underway if context.session.transaction.is_none() => return Err(Error::InUse),
        Order::Already => reply.simple("OK Already connected to specified master"),
        Order::Done | Order::Underway => reply.ok(),
    }
    Ok(())
}

/// # Errors
/// The server is a node of a cluster, or of a shard: its members decide who is master.
fn refuse_in_shard(server: &Server, in_cluster: Error) -> Result<()> {
    match (server.clustered.is_on(), server.shard.is_on()) {
        (true, _) => Err(in_cluster),
        (false, true) => Err(Error::text(
            "ERR This server is a node of a shard, whose members decide who is master: see INSYNC PROMOTE",
        )),
        (false, false) => Ok(()),
    }
}

/// Whether a session is a replica, or monitors, which is the same to Redis: it asks for a stream without being answered.
fn is_told_already(context: &Context<'_, '_>) -> bool {
    context.session.replica.is_some() || context.session.client.traits().contains(Traits::MONITOR)
}

/// PSYNC replicationid offset
fn psync(context: &mut Context<'_, '_>, _: &mut Reply<'_>) -> Result<()> {
    if is_told_already(context) {
        return Ok(());
    }
    let request = context.request;
    // A replica asks for the byte behind what it has; the first of a stream is byte 1.
    let had = |offset: i64| u64::try_from(offset).ok().and_then(|offset| offset.checked_sub(1));
    if request.get(3).is_some_and(|word| word.eq_ignore_ascii_case(b"failover")) {
        refuse_in_shard(context.server, Error::text("ERR FAILOVER not allowed in cluster mode."))?;
        succeed(context, parse_i64(request.arg(2)).and_then(had))?;
    }
    joining::refuse_without_link(context.server)?;
    let (id, offset) = (request.arg(1), int(request.arg(2)));
    let offset = offset.inspect_err(|_| {
        log!(
            Warning,
            "Replica {} asks for synchronization but with a wrong offset",
            context.session.client.address
        );
    })?;
    let is_whole = context.session.said.as_ref().is_some_and(|said| said.is_whole);
    let wish = had(offset).filter(|_| id != b"?");
    let wish = wish.map(|offset| Wish { id: id.to_vec(), offset, is_whole });
    become_replica(context, Form::Psync, wish.as_ref())
}

/// For how long what the master has sent, and what has not come here yet, is waited for before this server takes its place.
const ARRIVES_WITHIN_MS: u64 = 1000;

/// PSYNC id offset FAILOVER: the master wants this server to take its place. `had` is how much of the stream the master has.
fn succeed(context: &mut Context<'_, '_>, had: Option<u64>) -> Result<()> {
    let (server, id) = (context.server, context.request.arg(1));
    let status = server.following.status();
    let said = context.session.said.get_or_insert_default();
    match (said.is_successor, &status) {
        (false, None) => return Err(Error::text("ERR PSYNC FAILOVER can't be sent to a master.")),
        (true, Some(_)) => return Err(joining::NO_MASTER_LINK),
        _ => {}
    }
    if let Some(status) = status {
        if said.asked_at.is_none() {
            log!(Notice, "Failover request received for replid {}.", String::from_utf8_lossy(id));
        }
        if !id.eq_ignore_ascii_case(server.stream().id.to_string().as_bytes()) {
            return Err(Error::text("ERR PSYNC FAILOVER replid must match my replid."));
        }
        let asked_at = *said.asked_at.get_or_insert(context.now);
        let lacks = had.is_some_and(|had| status.offset < had) && status.phase == Phase::Connected;
        if lacks && context.now.0 < asked_at.0 + ARRIVES_WITHIN_MS {
            return Err(Error::InUse);
        }
        said.is_successor = true;
        let line = context.session.client.line(context.now);
        log!(Notice, "MASTER MODE enabled (failover request from '{line}')");
    }
    match following::follow(server, None) {
        Order::Underway => Err(Error::InUse),
        Order::Done | Order::Already => Ok(()),
    }
}

/// SYNC
fn sync(context: &mut Context<'_, '_>, _: &mut Reply<'_>) -> Result<()> {
    become_replica(context, Form::Sync, None)
}

/// There is no reply: what a replica is sent comes from elsewhere from now on.
fn become_replica(context: &mut Context<'_, '_>, form: Form, wish: Option<&Wish>) -> Result<()> {
    if is_told_already(context) {
        return Ok(());
    }
    let mut said = context.session.said.as_deref().cloned().unwrap_or_default();
    said.may_be_elder = !said.is_tarn && context.server.engine.config.repl_rdb_version() == 9;
    let mut replica = Replica::new(context.session.client.clone(), said, form, context.now);
    let shard = context.server.shard.get().filter(|_| replica.said.is_tarn);
    replica.said.node =
        shard.and_then(|shard| shard.node_of(replica.said.node, &replica.host(), replica.said.port));
    let replica = Arc::new(replica);
    joining::join(context.server, context.batch, &replica, wish)?;
    context.session.said = None;
    context.session.replica = Some(replica);
    context.session.reply_mode = ReplyMode::Stream;
    Ok(())
}

/// The longest address that a replica may say that it has.
const ADDRESS_BYTES_MAX: usize = 256;

/// REPLCONF [option value ...]
///
/// ACK and GETACK have no reply: a replica says the one, and a master the other.
fn replconf(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let request = context.request;
    if request.len().is_multiple_of(2) {
        return Err(Error::Syntax);
    }
    let mut said = context.session.said.as_deref().cloned().unwrap_or_default();
    for at in (1..request.len()).step_by(2) {
        let (option, value) = (request.arg(at).to_ascii_lowercase(), request.arg(at + 1));
        match option.as_slice() {
            b"listening-port" => {
                said.port = u16::try_from(int(value)?).unwrap_or_default();
            }
            b"ip-address" if value.len() >= ADDRESS_BYTES_MAX => {
                return Err(Error::line(format!(
                    "ERR REPLCONF ip-address provided by replica instance is too long: {} bytes",
                    value.len()
                )));
            }
            b"ip-address" => said.address = Some(value.to_vec()).filter(|address| !address.is_empty()),
            b"capa" if value.eq_ignore_ascii_case(b"eof") => said.knows_eof = true,
            b"capa" if value.eq_ignore_ascii_case(b"psync2") => said.knows_psync2 = true,
            b"capa" if value.eq_ignore_ascii_case(b"tarn") => said.is_tarn = true,
            b"capa" if value.eq_ignore_ascii_case(b"whole") => said.is_whole = true,
            b"capa" if value.starts_with(NODE.as_bytes()) => said.node = node(&value[NODE.len()..]),
            // What it can do beside that is of no use here.
            b"capa" | b"version" => {}
            b"rdb-only" => said.rdb_only = rdb_only(value)?,
            b"rdb-filter-only" => filter_only(&mut said, value)?,
            b"ack" => {
                note_acknowledgement(context);
                return Ok(());
            }
            b"getack" => return Ok(()),
            b"common" => {
                match joining::common(context.server, value, said.is_whole)? {
                    Some((id, offset)) => reply.simple(format!("COMMON {id} {offset}")),
                    None => reply.simple("COMMON none"),
                }
                return Ok(());
            }
            _ => return Err(Error::quoting("ERR Unrecognized REPLCONF option: ", request.arg(at), "")),
        }
    }
    if context.session.replica.is_none() {
        context.session.said = Some(Box::new(said));
    }
    reply.ok();
    Ok(())
}

/// A number in a shard. What is none says nothing, as anything that this server does not know.
fn node(word: &[u8]) -> Option<NodeId> {
    std::str::from_utf8(word).ok()?.parse().ok().map(NodeId)
}

fn rdb_only(value: &[u8]) -> Result<bool> {
    match int(value)? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Error::text("ERR value is out of range, value must between 0 and 1")),
    }
}

/// Of a copy only these parts are wanted.
fn filter_only(said: &mut Said, value: &[u8]) -> Result<()> {
    let parts = split_words(value).map_err(|_| Error::text("ERR Missing rdb-filter-only values"))?;
    (said.leaves_keys, said.leaves_functions) = (true, true);
    for part in parts {
        match part.eq_ignore_ascii_case(b"functions") {
            true => said.leaves_functions = false,
            false => return Err(Error::quoting("ERR Unsupported rdb-filter-only option: ", &part, "")),
        }
    }
    Ok(())
}

/// REPLCONF ACK offset [FACK offset]
fn note_acknowledgement(context: &mut Context<'_, '_>) {
    let request = context.request;
    let Some(replica) = &context.session.replica else { return };
    let offset = |at: usize| parse_i64(request.get(at)?).and_then(|offset| u64::try_from(offset).ok());
    // Who says that it has more than there is has something else, and counts for nothing.
    let end = feeding::sent_end(context.server);
    let Some(acknowledged) = offset(2).filter(|offset| *offset <= end) else { return };
    let durable = offset(4).filter(|offset| *offset <= end && request.arg(3).eq_ignore_ascii_case(b"fack"));
    context.server.feeding.acknowledge(replica, acknowledged, durable, context.now);
    synced::note(context.server);
}

/// FAILOVER [TO host port [FORCE]] [ABORT] [TIMEOUT milliseconds]
fn failover(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let words = context.request;
    if words.len() == 2 && words.arg(1).eq_ignore_ascii_case(b"abort") {
        return abort_failover(context, reply);
    }
    refuse_in_shard(context.server, Error::text("ERR FAILOVER not allowed in cluster mode."))?;
    let request = parse_failover(context)?;
    check_failover(context.server, &request)?;
    super::settled(context, |context| -> Result<()> {
        // Others may have begun one before nobody else was there.
        check_failover(context.server, &request)?;
        handing_over::begin(context.server, request, context.now);
        Ok(())
    })??;
    reply.ok();
    Ok(())
}

/// What FAILOVER names for a target whose port cannot be one.
const NO_PORT: u16 = 0;

fn parse_failover(context: &Context<'_, '_>) -> Result<handing_over::Request> {
    let words = context.request;
    let is = |at: usize, word: &[u8]| words.arg(at).eq_ignore_ascii_case(word);
    let mut request = handing_over::Request::default();
    let mut at = 1;
    while at < words.len() {
        let more = words.len() - at - 1;
        if is(at, b"timeout") && more >= 1 && request.timeout_ms.is_none() {
            let timeout = u64::try_from(int(words.arg(at + 1))?).ok().filter(|timeout| *timeout > 0);
            request.timeout_ms =
                Some(timeout.ok_or(Error::text("ERR FAILOVER timeout must be greater than 0"))?);
            at += 2;
        } else if is(at, b"to") && more >= 2 && request.target.is_none() {
            let port = u16::try_from(int(words.arg(at + 2))?).unwrap_or(NO_PORT);
            let host = String::from_utf8_lossy(words.arg(at + 1)).into_owned();
            request.target = Some(Master { host, port });
            at += 3;
        } else if is(at, b"force") && !request.is_forced {
            request.is_forced = true;
            at += 1;
        } else {
            return Err(Error::Syntax);
        }
    }
    Ok(request)
}

/// Whether a failover may begin.
fn check_failover(server: &Server, request: &handing_over::Request) -> Result<()> {
    let refused = |text| Err(Error::text(text));
    if server.failover.is_on() {
        return refused("ERR FAILOVER already in progress.");
    }
    if server.following.status().is_some() {
        return refused("ERR FAILOVER is not valid when server is a replica.");
    }
    if server.feeding.replicas().is_empty() {
        return refused("ERR FAILOVER requires connected replicas.");
    }
    if request.is_forced && (request.timeout_ms.is_none() || request.target.is_none()) {
        return refused("ERR FAILOVER with force option requires both a timeout and target HOST and IP.");
    }
    let Some(target) = &request.target else { return Ok(()) };
    match handing_over::find(server, target).map(|replica| replica.stage()) {
        _ if target.port == NO_PORT => refused("ERR FAILOVER target HOST and PORT is not a replica."),
        None => refused("ERR FAILOVER target HOST and PORT is not a replica."),
        Some(Stage::Online) => Ok(()),
        Some(_) => refused("ERR FAILOVER target replica is not online."),
    }
}

/// FAILOVER ABORT
fn abort_failover(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let aborted = handing_over::abort(context.server, context.session.client.id);
    match aborted.ok_or(Error::text("ERR No failover in progress."))? {
        // Within a transaction nobody waits.
        Order::Underway if context.session.transaction.is_none() => Err(Error::InUse),
        Order::Done | Order::Already | Order::Underway => {
            reply.ok();
            Ok(())
        }
    }
}
