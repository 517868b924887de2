//! WAIT and WAITAOF. There are no replicas and there is no log: what waits for them
//! waits for its time to be up.

use super::row;
use crate::blocking;
use crate::dispatch::Context;
use crate::dispatch::table::ServerHandler;
use command::{Error, Flags, Group, Result, Row};
use sys::UnixMs;
use value::number::parse_i64;
use wire::Reply;

const TIPS: &[&str] = &["request_policy:all_shards", "response_policy:agg_min"];

/// The two rows.
pub const ROWS: &[Row<ServerHandler>] = &[
    row("wait", 3, Flags::BLOCKING, wait)
        .since("3.0.0")
        .group(Group::Connection)
        .syntax("numreplicas timeout")
        .summary("Waits until replicas have what the connection has written.")
        .tips(TIPS),
    row("waitaof", 4, Flags::BLOCKING, waitaof)
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
    if replicas <= 0 || context.session.transaction.is_some() {
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
    if local > 0 {
        return Err(Error::text(
            "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.",
        ));
    }
    let answer = |reply: &mut Reply<'_>| {
        reply.array(2);
        reply.int(0);
        reply.int(0);
    };
    if replicas == 0 || context.session.transaction.is_some() {
        answer(reply);
    } else {
        begin(context, until, answer);
    }
    Ok(())
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

fn begin(context: &mut Context<'_, '_>, until: Option<UnixMs>, answer: impl FnOnce(&mut Reply<'_>)) {
    let mut on_timeout = Vec::new();
    answer(&mut Reply::new(&mut on_timeout, context.session.protocol));
    blocking::wait_for_time(context.server, &context.session.client, until, on_timeout);
    context.session.waits = Some(until);
}
