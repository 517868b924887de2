//! ROLE, REPLICAOF, FAILOVER, and what a replica says to its master: REPLCONF, PSYNC, SYNC.
//!
//! The server is a master without replicas. Everything that would make it more is refused before
//! anything happens; what only states that it is one is answered.

use super::row;
use crate::dispatch::Context;
use crate::dispatch::handlers::ServerHandler;
use crate::followed::{Master, Phase};
use crate::following::{self, Order};
use command::category::Categories;
use command::parse::int;
use command::{Error, Flags, Group, Reach, Result, Row, Shows};
use wire::Reply;

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
    row("psync", -3, Reach::Around, SYNCS, refuse_replica)
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
    row("sync", 1, Reach::Around, SYNCS, refuse_replica)
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
        let offset = context.server.stream().offset;
        reply.int(match status.phase {
            Phase::Connected => i64::try_from(offset).unwrap_or(i64::MAX),
            _ => -1,
        });
        return Ok(());
    }
    reply.array(3);
    reply.bulk(b"master");
    reply.int(i64::try_from(context.server.stream().offset).unwrap_or(i64::MAX));
    reply.array(0);
    Ok(())
}

/// REPLICAOF <host port | NO ONE>
fn replicaof(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let request = context.request;
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

/// PSYNC and SYNC
fn refuse_replica(_: &mut Context<'_, '_>, _: &mut Reply<'_>) -> Result<()> {
    Err(Error::text("ERR Replication is not supported by this server: it takes no replicas"))
}

/// What REPLCONF takes from somebody who may become a replica, and what follows of it.
const STATEMENTS: [&[u8]; 5] = [b"listening-port", b"ip-address", b"capa", b"rdb-only", b"rdb-filter-only"];

/// REPLCONF [option value ...]
///
/// Statements are taken; PSYNC is where a replica is refused. ACK and GETACK have no reply in Redis either, so that
/// only a replica may send them.
fn replconf(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let request = context.request;
    if request.len().is_multiple_of(2) {
        return Err(Error::Syntax);
    }
    for at in (1..request.len()).step_by(2) {
        let option = request.arg(at);
        if !STATEMENTS.iter().any(|known| option.eq_ignore_ascii_case(known)) {
            return Err(Error::quoting("ERR Unrecognized REPLCONF option: ", option, ""));
        }
        if option.eq_ignore_ascii_case(b"listening-port") || option.eq_ignore_ascii_case(b"rdb-only") {
            int(request.arg(at + 1))?;
        }
    }
    reply.ok();
    Ok(())
}

/// FAILOVER [TO host port [FORCE]] [ABORT] [TIMEOUT milliseconds]
fn failover(context: &mut Context<'_, '_>, _: &mut Reply<'_>) -> Result<()> {
    let request = context.request;
    let is = |at: usize, word: &[u8]| request.arg(at).eq_ignore_ascii_case(word);
    if request.len() == 2 && is(1, b"abort") {
        return Err(Error::text("ERR No failover in progress."));
    }
    let (mut at, mut timeout, mut to, mut force) = (1, false, false, false);
    while at < request.len() {
        let more = request.len() - at - 1;
        if is(at, b"timeout") && more >= 1 && !timeout {
            timeout = true;
            if int(request.arg(at + 1))? <= 0 {
                return Err(Error::text("ERR FAILOVER timeout must be greater than 0"));
            }
            at += 2;
        } else if is(at, b"to") && more >= 2 && !to {
            to = true;
            int(request.arg(at + 2))?;
            at += 3;
        } else if is(at, b"force") && !force {
            force = true;
            at += 1;
        } else {
            return Err(Error::Syntax);
        }
    }
    Err(Error::text("ERR FAILOVER requires connected replicas."))
}
