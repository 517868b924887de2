//! WAIT and WAITAOF. There are no replicas: who waits for them waits for its time to be up. Who waits for the log is
//! answered as soon as it is durable.

use super::row;
use crate::blocked::Waiter;
use crate::blocking;
use crate::dispatch::Context;
use crate::dispatch::handlers::ServerHandler;
use crate::server::Server;
use command::{Error, Flags, Group, Reach, Result, Row, Shows};
use keyspace::Stamp;
use std::pin::pin;
use std::sync::Arc;
use sys::UnixMs;
use value::number::parse_i64;
use wire::Reply;

const TIPS: &[&str] = &["request_policy:all_shards", "response_policy:agg_min"];

/// The two rows.
pub const ROWS: &[Row<ServerHandler>] = &[
    row("wait", 3, Reach::Nothing, Flags::BLOCKING, wait)
        .shows(Shows::Nothing)
        .since("3.0.0")
        .group(Group::Connection)
        .syntax("numreplicas timeout")
        .summary("Waits until replicas have what the connection has written.")
        .tips(TIPS),
    row("waitaof", 4, Reach::Nothing, Flags::BLOCKING, waitaof)
        .shows(Shows::Nothing)
        .since("7.2.0")
        .group(Group::Connection)
        .syntax("numlocal numreplicas timeout")
        .summary("Waits until what the connection has written is on disk, here and on replicas.")
        .tips(TIPS),
];

/// WAIT numreplicas timeout
fn wait(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let replicas = int(context.request.arg(1))?;
    let until = until(context, 2)?;
    if replicas <= 0 || !may_wait(context) {
        reply.int(0);
    } else {
        begin(context, until, |reply| reply.int(0));
    }
    Ok(())
}

/// WAITAOF numlocal numreplicas timeout
fn waitaof(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let local = int(context.request.arg(1))?;
    if !(0..=1).contains(&local) {
        return Err(Error::text("ERR value is out of range, value must between 0 and 1"));
    }
    let replicas = parse_i64(context.request.arg(2))
        .filter(|count| *count >= 0)
        .ok_or(Error::text("ERR value is out of range, must be positive"))?;
    let until = until(context, 3)?;
    let log = context.server.engine.durability.log().cloned();
    if local > 0 && log.is_none() {
        return Err(Error::text(
            "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.",
        ));
    }
    // Whatever the session has written is in the log by now.
    let end = log.as_ref().map(|log| log.appended());
    let is_durable = move || log.as_ref().is_some_and(|log| end.is_some_and(|end| log.durable() >= end));
    let answer = |local: bool, reply: &mut Reply<'_>| {
        reply.array(2);
        reply.int(i64::from(local));
        reply.int(0);
    };
    let is_met = replicas == 0 && (local == 0 || is_durable());
    if is_met || !may_wait(context) {
        answer(is_durable(), reply);
        return Ok(());
    }
    let protocol = context.session.protocol;
    let waiter = begin(context, until, |reply| answer(false, reply));
    if replicas == 0 {
        let mut out = Vec::new();
        answer(true, &mut Reply::new(&mut out, protocol));
        answer_when_durable(context.server.clone(), waiter, is_durable, out);
    }
    Ok(())
}

/// Answers who waits for the log once it is durable enough.
fn answer_when_durable(
    server: Arc<Server>,
    waiter: Arc<Waiter>,
    is_durable: impl Fn() -> bool + 'static,
    reply: Vec<u8>,
) {
    if let Some(log) = server.engine.durability.log() {
        log.request_sync();
    }
    tokio::task::spawn_local(async move {
        while waiter.waits() {
            let mut committed = pin!(server.net.gate.committed.notified());
            committed.as_mut().enable();
            if is_durable() {
                // It says what is on disk, and nothing else.
                blocking::answer(&server, &waiter, &reply, Stamp(0));
                return;
            }
            committed.await;
        }
    });
}

/// Transactions and scripts get the answer of this moment.
fn may_wait(context: &Context<'_, '_>) -> bool {
    context.session.transaction.is_none() && !context.session.runs_script
}

fn int(word: &[u8]) -> Result<i64> {
    parse_i64(word).ok_or(Error::NotInteger)
}

/// The moment that a timeout in milliseconds means; None for one of 0, which never comes.
fn until(context: &Context<'_, '_>, position: usize) -> Result<Option<UnixMs>> {
    let timeout = parse_i64(context.request.arg(position))
        .ok_or(Error::text("ERR timeout is not an integer or out of range"))?;
    let timeout = u64::try_from(timeout).map_err(|_| Error::text("ERR timeout is negative"))?;
    Ok((timeout > 0).then(|| UnixMs(context.now.0.saturating_add(timeout))))
}

fn begin(
    context: &mut Context<'_, '_>,
    until: Option<UnixMs>,
    answer: impl FnOnce(&mut Reply<'_>),
) -> Arc<Waiter> {
    let mut on_timeout = Vec::new();
    answer(&mut Reply::new(&mut on_timeout, context.session.protocol));
    let waiter = blocking::wait_for_time(context.server, context.session, until, on_timeout);
    context.session.waits = Some(until);
    waiter
}
