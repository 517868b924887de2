//! SHUTDOWN: ends the server.

use super::row;
use crate::blocking;
use crate::departure::Wish;
use crate::dispatch::Context;
use crate::dispatch::handlers::ServerHandler;
use crate::feeding;
use crate::insync::deciding;
use crate::pause::{Paused, Purpose};
use crate::replicas::replica::{Replica, Stage};
use crate::replicas::standing;
use crate::server::{Scripting, Server};
use crate::supervision;
use command::{Error, Flags, Group, Reach, Result, Row, Shows};
use config::ShutdownFlags;
use engine::Attention;
use engine::durability;
use engine::snapshot::{self, Last};

use net::service::Closing;
use replication::insync::Role;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use sys::{Shown, UnixMs};
use telemetry::log;
use wire::Reply;

const FLAGS: Flags = Flags::ADMIN
    .union(Flags::NOSCRIPT)
    .union(Flags::LOADING)
    .union(Flags::STALE)
    .union(Flags::NO_MULTI)
    .union(Flags::ALLOW_BUSY);

/// SHUTDOWN.
pub const ROWS: &[Row<ServerHandler>] = &[row("shutdown", -1, Reach::All, FLAGS, shutdown)
    .allow_busy_if(|request| request.iter().skip(1).any(|word| word.eq_ignore_ascii_case(b"nosave")))
    .shows(Shows::Nothing)
    .group(Group::Server)
    .complexity("O(N) when saving, N being the number of keys; otherwise O(1)")
    .syntax("[NOSAVE | SAVE] [NOW] [FORCE] [ABORT]")
    .summary("Ends the server.")];

/// What SHUTDOWN was asked for; None: to give up what it was asked for before.
fn parse(context: &Context<'_, '_>) -> Result<Option<Wish>> {
    let (mut wish, mut abort) = (Wish::default(), false);
    for word in context.request.iter().skip(1) {
        let option = match word.to_ascii_lowercase().as_slice() {
            b"nosave" => &mut wish.nosave,
            b"save" => &mut wish.save,
            b"now" => &mut wish.now,
            b"force" => &mut wish.force,
            b"abort" => &mut abort,
            _ => return Err(Error::Syntax),
        };
        *option = true;
    }
    match (abort, wish) {
        (true, wish) if wish != Wish::default() => Err(Error::Syntax),
        (false, Wish { nosave: true, save: true, .. }) => Err(Error::Syntax),
        (abort, wish) => Ok((!abort).then_some(wish)),
    }
}

/// SHUTDOWN [NOSAVE | SAVE] [NOW] [FORCE] [ABORT]
///
/// The client gets no reply: its connection closes. While a script is busy only NOSAVE gets here. Where replicas are behind, the client
/// waits with the server ([`depart`]), and is told if the end is given up.
fn shutdown(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let server = context.server;
    let Some(wish) = parse(context)? else {
        if !give_up(server, None) {
            return Err(Error::text("ERR No shutdown in progress."));
        }
        log!(Notice, "Shutdown manually aborted.");
        reply.ok();
        return Ok(());
    };
    if let Some(number) = ask(server, wish) {
        let waiter = blocking::wait_for_time(server, context.session, None, ERRORS.to_vec());
        context.session.waits = Some(None);
        if !server.departure.join(number, &waiter) {
            blocking::answer(server, &waiter, ERRORS, Shown::NOTHING);
        }
        return Ok(());
    }
    tell_lagging(server);
    let mut last = Last::Unwanted;
    if saves(server, wish) {
        // One in the background has not all of what is to be saved, and is given up.
        let saved = snapshot::save_instead(&server.engine, context.batch, context.now).ok_or(Error::InUse)?;
        if saved.is_err() && !wish.force {
            return Err(Error::text("ERR Errors trying to SHUTDOWN. Check logs."));
        }
        // Others are served until the end is known to all workers.
        last = if saved.is_ok() { Last::Wanted } else { Last::Unwanted };
    }
    server.engine.snapshots.settle(last);
    context.session.closing = Closing::AfterReplies;
    server.stop_with(0, scripting(wish));
    Ok(())
}

/// What clients are told that waited for an end which was given up.
const ERRORS: &[u8] = b"-ERR Errors trying to SHUTDOWN. Check logs.\r\n";

/// How often it looks whether replicas have all there is.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// How long a master tries to hand over before it is asked again.
const HANDING_OVER: Duration = Duration::from_secs(1);

/// Nobody who has asked nothing for so long is waited for.
const TELLING: Duration = Duration::from_millis(100);

/// How long clients are told where to go, however many ask on.
const TELLING_MAX: Duration = Duration::from_secs(1);

/// NOSAVE is how a script is ended that cannot be killed otherwise.
fn scripting(wish: Wish) -> Scripting {
    if wish.nosave { Scripting::LeftBehind } else { Scripting::Awaited }
}

/// While the data is being loaded there is nothing to save.
fn saves(server: &Server, wish: Wish) -> bool {
    let is_loaded = !server.engine.attention().contains(Attention::LOADING);
    is_loaded && !wish.nosave && (wish.save || !server.engine.config.save_points().is_empty())
}

/// The server is to end. Some: this waits for replicas, or for another master, or does so already; who carries it out is told, and this is the
/// number of that end. Writes are paused meanwhile.
pub fn ask(server: &Server, wish: Wish) -> Option<u64> {
    if let Some((number, ..)) = server.departure.underway() {
        return Some(number);
    }
    log!(Warning, "User requested shutdown...");
    let timeout_s = server.engine.config.shutdown_timeout_s();
    let may_hand_over = may_hand_over(server);
    let waits = !wish.now && timeout_s > 0 && (may_hand_over || !lagging(server).is_empty());
    if !waits && !owes_checkpoint(server, wish) {
        return None;
    }
    let timeout_s = if waits { timeout_s } else { 0 };
    let number = server.departure.begin(wish, Instant::now() + Duration::from_secs(timeout_s.into()));
    if !waits {
        log!(Notice, "Writing the first checkpoint of the log before shutting down.");
    } else if may_hand_over {
        log!(Notice, "Handing over to another member of the shard before shutting down.");
    } else {
        pause(server, number);
        log!(Notice, "Waiting for replicas before shutting down.");
    }
    Some(number)
}

/// Whether the log has begun beside clients and is worth nothing yet. A script that is slow would hold its checkpoint up for who knows how long: then the end
/// ends that first.
fn owes_checkpoint(server: &Server, wish: Wish) -> bool {
    !wish.force && server.engine.durability.owes_checkpoint() && !server.engine.keyspace.has_any_slow_holder()
}

/// Nobody writes any more, until this end is given up, if it has not been.
fn pause(server: &Server, number: u64) {
    let (now, for_ever) = (server.engine.clock.now(), UnixMs(i64::MAX as u64));
    let begin = || server.pause.begin(&server.engine, Purpose::End, Paused::Writes, now, for_ever);
    server.departure.while_underway(number, begin);
}

/// Whether this is the master of a shard, and another could be.
fn can_hand_over(server: &Server) -> bool {
    server.shard.get().is_some_and(|shard| shard.can_hand_over(None))
}

/// The same, or one that follows it in a cluster could be as soon as it is a member: it came back a moment ago.
fn may_hand_over(server: &Server) -> bool {
    let is_followed =
        || server.clustered.is_on() && is_leader(server) && !server.feeding.replicas().is_empty();
    can_hand_over(server) || is_followed()
}

/// Has another member be master, if that can be done until then, and clients be told. Whether it is.
fn hand_over(server: &Arc<Server>, number: u64, until: Instant) -> bool {
    let goes_on = || server.departure.is_underway(number) && Instant::now() < until;
    let (mut asked_at, mut told): (Option<Instant>, _) = (None, String::new());
    while goes_on() && may_hand_over(server) {
        let is_due = asked_at.is_none_or(|at| at.elapsed() >= HANDING_OVER);
        if let Some(shard) = server.shard.get().filter(|_| is_due && can_hand_over(server)) {
            // As long as it takes none this server serves on.
            match deciding::try_store(server, shard, until, goes_on) {
                Ok(()) if goes_on() => shard.hand_over(None, HANDING_OVER),
                Ok(()) => {}
                Err(error) => tell_once(&mut told, &error.to_string()),
            }
            asked_at = Some(Instant::now());
        }
        server.departure.rest(number, LOOK_AGAIN);
    }
    let is_known = || server.clustered.get().is_none_or(|part| part.view().other_master().is_some());
    while goes_on() && !is_leader(server) && !is_known() {
        server.departure.rest(number, LOOK_AGAIN);
    }
    tell_clients(server, number);
    !is_leader(server)
}

/// Tells in the log why nobody is handed over to, each reason once.
fn tell_once(told: &mut String, why: &str) {
    if told != why {
        log!(Warning, "Not handing over, as no other master could be written down: {why}");
        why.clone_into(told);
    }
}

/// Has clients hear where they are to go: until nobody asks anything any more, or waits for who is master.
fn tell_clients(server: &Server, number: u64) {
    let asked = || {
        let waits = server.clustered.get().map_or(0, |part| part.waits.load(Ordering::Relaxed));
        (server.counts.commands.get(), waits)
    };
    let (begun, mut before) = (Instant::now(), asked());
    while server.departure.is_underway(number) && begun.elapsed() < TELLING_MAX {
        server.departure.rest(number, TELLING);
        let now = asked();
        if std::mem::replace(&mut before, now) == now {
            return;
        }
    }
}

fn is_leader(server: &Server) -> bool {
    server.shard.get().is_some_and(|shard| shard.standing().role == Role::Master)
}

/// Replicas that have not acknowledged all that was written, with how much of it that is.
fn lagging(server: &Server) -> Vec<(Arc<Replica>, u64)> {
    let end = feeding::end(server);
    let behind = |replica: Arc<Replica>| {
        let behind = end.saturating_sub(replica.acknowledged());
        (behind > 0).then_some((replica, behind))
    };
    server.feeding.replicas().into_iter().filter_map(behind).collect()
}

/// Tells in the log who lacks what when the server ends.
fn tell_lagging(server: &Server) {
    let (all, lagging, now) = (server.feeding.replicas().len(), lagging(server), server.engine.clock.now());
    for (replica, behind) in &lagging {
        let lag_s = if replica.stage() == Stage::Online { standing::lag_s(replica, now) } else { 0 };
        log!(
            Notice,
            "Lagging replica {} reported offset {behind} behind master, lag={lag_s}, state={}.",
            replica.name(),
            standing::state_name(replica.stage())
        );
    }
    if all > 0 {
        let synced = all.saturating_sub(lagging.len());
        log!(Notice, "{synced} of {all} replicas are in sync when shutting down.");
    }
}

/// What a signal asks for (`shutdown-on-sigterm`, `shutdown-on-sigint`).
pub fn wish_of_signal(server: &Server, is_interrupt: bool) -> Wish {
    let config = &server.engine.config;
    let flags = if is_interrupt { config.shutdown_on_sigint() } else { config.shutdown_on_sigterm() };
    Wish {
        nosave: flags.contains(ShutdownFlags::NOSAVE),
        save: flags.contains(ShutdownFlags::SAVE),
        now: flags.contains(ShutdownFlags::NOW),
        force: flags.contains(ShutdownFlags::FORCE),
    }
}

/// Carries out the end that waits and has this number, or one that was asked for by a signal and does not; in a thread of its own. Gives
/// what becomes of scripts; None: the server stays.
pub fn depart(server: &Arc<Server>, number: Option<u64>, wish: Wish) -> Option<Scripting> {
    let mut wish = wish;
    if let Some(number) = number {
        // It may have been given up before this thread came to it.
        let (_, wanted, until) = server.departure.underway().filter(|(newest, ..)| *newest == number)?;
        wish = wanted;
        if !may_hand_over(server) || !hand_over(server, number, until) {
            pause(server, number);
            wait_for_replicas(server, number, until);
        }
        if !server.departure.is_underway(number) {
            return None;
        }
    }
    tell_lagging(server);
    let is_on = || number.is_none_or(|number| server.departure.is_underway(number));
    let goes_on = || is_on() && owes_checkpoint(server, wish);
    let is_safe = durability::complete(&server.engine, goes_on).is_ok() && save_before_end(server, wish);
    if !is_safe {
        log!(Warning, "Error trying to save the DB, can't exit.");
        log!(Warning, "Errors trying to shut down the server. Check the logs for more information.");
        supervision::notify(server, "STATUS=Error trying to save the DB, can't exit.");
        give_up(server, number);
        return None;
    }
    number.is_none_or(|number| server.departure.make_certain(number)).then(|| scripting(wish))
}

/// Waits until all replicas have what was written, or the time is up, or the end is given up.
fn wait_for_replicas(server: &Server, number: u64, until: Instant) {
    let engine = &server.engine;
    // What was let in before the pause has taken effect behind this, but for what is slow.
    let is_slow = || engine.keyspace.has_any_slow_holder();
    if let Some(mut batch) = engine.keyspace.enter_unless(engine.ending_guest(), is_slow)
        && batch.try_hold_all()
    {
        batch.release();
    }
    while server.departure.is_underway(number) && Instant::now() < until && !lagging(server).is_empty() {
        server.departure.rest(number, LOOK_AGAIN);
    }
}

/// Saves what has to be saved while clients are still served. False: that failed, and the server stays. A script that
/// is slow would hold it up for who knows how long: the end ends it, or waits for it for a while, and saves then.
fn save_before_end(server: &Server, wish: Wish) -> bool {
    let engine = &server.engine;
    if !saves(server, wish) {
        engine.snapshots.settle(Last::Unwanted);
        return true;
    }
    engine.snapshots.settle(Last::Wanted);
    if engine.keyspace.has_any_slow_holder() || !snapshot::is_due_at_end(engine) {
        return true;
    }
    let saved = snapshot::save_before_end(engine);
    if saved.is_err() {
        engine.snapshots.settle(if wish.force { Last::Unwanted } else { Last::ByPoints });
    }
    saved.is_ok() || wish.force
}

/// Gives up an end that waits for replicas, or that one if a number is given, and tells those who wait for it. False: there is none.
fn give_up(server: &Server, number: Option<u64>) -> bool {
    let undo = || server.pause.end(&server.engine, &server.net.clients, Purpose::End);
    let Some(waiters) = server.departure.give_up(number, undo) else { return false };
    waiters.iter().for_each(|waiter| blocking::answer(server, waiter, ERRORS, Shown::NOTHING));
    true
}
