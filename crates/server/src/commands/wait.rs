//! WAIT and WAITAOF: who waits is answered as soon as so many replicas have acknowledged what it has written, and the log is durable up to
//! there, or when the time is up.

use super::row;
use crate::blocked::Waiter;
use crate::blocking;
use crate::dispatch::Context;
use crate::dispatch::handlers::ServerHandler;
use crate::feeding;
use crate::server::Server;
use ::log::Lsn;
use command::category::Categories;
use command::parse::timeout_ms;
use command::{Error, Flags, Group, Reach, Result, Row, Shows};
use engine::Attention;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use sys::{Shown, UnixMs};
use value::number::parse_i64;
use wire::Reply;

const TIPS: &[&str] = &["request_policy:all_shards", "response_policy:agg_min"];

/// The two rows.
pub const ROWS: &[Row<ServerHandler>] = &[
    row("wait", 3, Reach::Nothing, Flags::PROTECTED, wait)
        .shows(Shows::Nothing)
        .since("3.0.0")
        .group(Group::Generic)
        .in_categories(Categories::CONNECTION)
        .syntax("numreplicas timeout")
        .summary("Waits until replicas have what the connection has written.")
        .tips(TIPS),
    row("waitaof", 4, Reach::Nothing, Flags::NOSCRIPT.union(Flags::PROTECTED), waitaof)
        .shows(Shows::Nothing)
        .since("7.2.0")
        .group(Group::Generic)
        .in_categories(Categories::CONNECTION)
        .syntax("numlocal numreplicas timeout")
        .summary("Waits until what the connection has written is on disk, here and on replicas.")
        .tips(TIPS),
];

/// WAIT numreplicas timeout
fn wait(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    refuse_at_replica(
        context,
        "ERR WAIT cannot be used with replica instances. Please also note that since Redis 4.0 if a replica is \
         configured to be writable (which is not the default) writes to replicas are just local and are not \
         propagated.",
    )?;
    let replicas = int(context.request.arg(1))?;
    let until = timeout_ms(context.request.arg(2), context.now)?;
    let needs = Needs::of(context, false, replicas, Shape::Count);
    answer_or_wait(context, needs, until, reply);
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
    let until = timeout_ms(context.request.arg(3), context.now)?;
    refuse_at_replica(
        context,
        "ERR WAITAOF cannot be used with replica instances. Please also note that writes to replicas are just \
         local and are not propagated.",
    )?;
    if local > 0 && context.server.engine.durability.kept_log().is_none() {
        return Err(NO_LOG);
    }
    let needs = Needs::of(context, local > 0, replicas, Shape::Both);
    answer_or_wait(context, needs, until, reply);
    Ok(())
}

/// # Errors
/// A master is followed, whose stream is all that goes on from here, or no stream of this server's own has begun behind that.
fn refuse_at_replica(context: &Context<'_, '_>, error: &'static str) -> Result<()> {
    match context.server.engine.attention().contains(Attention::FOLLOWING) {
        true => Err(Error::text(error)),
        false => Ok(()),
    }
}

/// There is no log in which it could be, or not any more.
const NO_LOG: Error =
    Error::text("ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.");

/// What the reply tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// How many replicas have it (WAIT).
    Count,
    /// Whether it is on disk here, and on how many replicas (WAITAOF).
    Both,
}

/// What somebody waits for.
#[derive(Clone, Copy)]
struct Needs {
    shape: Shape,
    /// Whether it must be on disk here.
    local: bool,
    replicas: i64,
    /// The end of what the session has written, in the log and in the stream.
    end: Lsn,
    offset: u64,
}

/// What there is of it.
#[derive(Clone, Copy)]
struct Standing {
    local: bool,
    replicas: usize,
}

impl Needs {
    /// What the session has written so far, which is in the stream by now, unless its transaction or script is under way.
    fn of(context: &Context<'_, '_>, local: bool, replicas: i64, shape: Shape) -> Needs {
        let (server, written) =
            (context.server, context.batch.appended().max(context.session.client.written()));
        // What was written before a log that has been gone back in since may be behind its end.
        let end = server.engine.durability.log().map_or(Lsn::ZERO, |log| log.appended().min(Lsn(written.0)));
        Needs { shape, local, replicas, end, offset: feeding::offset_behind(server, written) }
    }

    fn standing(&self, server: &Server) -> Standing {
        // What was written to a log that has just begun is worth nothing before its first checkpoint.
        let has_it = |log: &::log::Log| log.durable() >= self.end && !log.lacks_checkpoint();
        Standing {
            local: server.engine.durability.kept_log().is_some_and(|log| has_it(log)),
            replicas: server.feeding.count_with(self.offset, self.shape == Shape::Both),
        }
    }

    fn is_met(&self, standing: Standing) -> bool {
        (standing.local || !self.local)
            && i64::try_from(standing.replicas).is_ok_and(|replicas| replicas >= self.replicas)
    }

    fn write(&self, standing: Standing, reply: &mut Reply<'_>) {
        let replicas = i64::try_from(standing.replicas).unwrap_or(i64::MAX);
        if self.shape == Shape::Both {
            reply.array(2);
            reply.int(i64::from(standing.local));
        }
        reply.int(replicas);
    }
}

/// Answers at once if that may be, or when what is needed is there or the time is up.
fn answer_or_wait(context: &mut Context<'_, '_>, needs: Needs, until: Option<UnixMs>, reply: &mut Reply<'_>) {
    let (server, standing) = (context.server, needs.standing(context.server));
    if needs.is_met(standing) || !may_wait(context) {
        return needs.write(standing, reply);
    }
    let protocol = context.session.protocol;
    let waiter = begin(context, until, |reply| needs.write(standing, reply));
    if let Some(log) = server.engine.durability.log() {
        log.request_sync();
    }
    if needs.replicas > 0 {
        feeding::ask(server, needs.offset);
    }
    let (server, now) = (server.clone(), context.now);
    tokio::task::spawn_local(async move {
        let span = until.map_or(FOR_EVER, |until| Duration::from_millis(until.0.saturating_sub(now.0)));
        let mut time_is_up = pin!(tokio::time::sleep(span));
        let mut is_up = false;
        while waiter.waits() {
            let mut committed = pin!(server.net.gate.committed.notified());
            let mut acknowledged = pin!(server.feeding.acknowledged.notified());
            committed.as_mut().enable();
            acknowledged.as_mut().enable();
            if needs.local && server.engine.durability.kept_log().is_none() {
                let mut out = Vec::new();
                Reply::new(&mut out, protocol).error(NO_LOG.as_bytes());
                blocking::answer(&server, &waiter, &out, Shown::NOTHING);
                return;
            }
            let standing = needs.standing(&server);
            if is_up || needs.is_met(standing) {
                let mut out = Vec::new();
                needs.write(standing, &mut Reply::new(&mut out, protocol));
                // It says where things are, and nothing else.
                blocking::answer(&server, &waiter, &out, Shown::NOTHING);
                return;
            }
            tokio::select! {
                () = committed => {}
                () = acknowledged => {}
                () = &mut time_is_up => is_up = true,
                // Who waits may have gone.
                () = tokio::time::sleep(LOOK_AGAIN) => {}
            }
        }
    });
}

/// A wait without an end.
const FOR_EVER: Duration = Duration::from_secs(60 * 60 * 24 * 365);

/// How often it is looked whether somebody still waits.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Transactions and scripts get the answer of this moment.
fn may_wait(context: &Context<'_, '_>) -> bool {
    context.session.transaction.is_none() && !context.session.runs_script
}

fn int(word: &[u8]) -> Result<i64> {
    parse_i64(word).ok_or(Error::NotInteger)
}

/// Whoever waits is answered by the task that it begins, also when the time is up: what is there then is not known before.
fn begin(
    context: &mut Context<'_, '_>,
    until: Option<UnixMs>,
    answer: impl FnOnce(&mut Reply<'_>),
) -> Arc<Waiter> {
    let mut if_cut = Vec::new();
    answer(&mut Reply::new(&mut if_cut, context.session.protocol));
    let waiter = blocking::wait_for_time(context.server, context.session, until, if_cut);
    context.session.waits = Some(None);
    waiter
}
