//! SHUTDOWN: ends the server.

use super::row;
use crate::dispatch::Context;
use crate::dispatch::handlers::ServerHandler;
use crate::server::Scripting;
use command::{Error, Flags, Group, Reach, Result, Row, Shows};
use engine::Attention;
use engine::snapshot::{self, Last};
use net::service::Closing;
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

/// What SHUTDOWN was asked for.
#[derive(Default)]
struct Options {
    nosave: bool,
    save: bool,
    now: bool,
    force: bool,
    abort: bool,
}

impl Options {
    fn parse(context: &Context<'_, '_>) -> Result<Options> {
        let mut options = Options::default();
        for word in context.request.iter().skip(1) {
            let option = match word.to_ascii_lowercase().as_slice() {
                b"nosave" => &mut options.nosave,
                b"save" => &mut options.save,
                b"now" => &mut options.now,
                b"force" => &mut options.force,
                b"abort" => &mut options.abort,
                _ => return Err(Error::Syntax),
            };
            *option = true;
        }
        let Options { nosave, save, now, force, abort } = options;
        if nosave && save || abort && (nosave || save || now || force) {
            return Err(Error::Syntax);
        }
        Ok(options)
    }
}

/// SHUTDOWN [NOSAVE | SAVE] [NOW] [FORCE] [ABORT]
///
/// A shutdown waits for nothing that could be aborted. The client gets no reply:
/// its connection closes. While a script is busy only NOSAVE gets here.
fn shutdown(context: &mut Context<'_, '_>, _: &mut Reply<'_>) -> Result<()> {
    let options = Options::parse(context)?;
    if options.abort {
        return Err(Error::text("ERR No shutdown in progress."));
    }
    log!(Warning, "User requested shutdown...");
    let server = context.server;
    // While the data is being loaded there is nothing to save.
    let is_loaded = !server.engine.attention().contains(Attention::LOADING);
    let saves = is_loaded && (options.save || !server.engine.config.save_points().is_empty());
    let mut last = Last::Unwanted;
    if saves && !options.nosave {
        // One in the background has not all of what is to be saved, and is given up.
        let saved = snapshot::save_instead(&server.engine, context.batch, context.now).ok_or(Error::InUse)?;
        if saved.is_err() && !options.force {
            return Err(Error::text("ERR Errors trying to SHUTDOWN. Check logs."));
        }
        // Others are served until the end is known to all workers.
        last = if saved.is_ok() { Last::Wanted } else { Last::Unwanted };
    }
    server.engine.snapshots.settle(last);
    context.session.closing = Closing::AfterReplies;
    // NOSAVE is how a script is ended that cannot be killed otherwise.
    let scripts = if options.nosave { Scripting::LeftBehind } else { Scripting::Awaited };
    context.server.stop_with(0, scripts);
    Ok(())
}
