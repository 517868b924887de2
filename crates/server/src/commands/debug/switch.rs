//! What DEBUG switches on and off for tests.

use crate::assembly;
use crate::dispatch::Context;
use ::config;
use command::parse::int;
use command::{Error, Result};
use value::rdb::Checksum;
use wire::Reply;

/// The word behind a subcommand as Redis reads it: what is no number is 0.
fn is_on(context: &Context<'_, '_>) -> bool {
    int(context.request.arg(2)).unwrap_or(0) != 0
}

/// DEBUG DISK-HANG 0|1
pub fn hang_disk(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    sys::file::hang(context.request.arg(2) == b"1");
    reply.ok();
    Ok(())
}

/// DEBUG READ-GATE 0|1
pub fn gate_reads(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    context.server.engine.keyspace.set_reads_seen(is_on(context));
    reply.ok();
    Ok(())
}

/// DEBUG SET-ACTIVE-EXPIRE 0|1
pub fn expire_actively(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    context.server.engine.keyspace.set_active_expiry(is_on(context));
    reply.ok();
    Ok(())
}

/// DEBUG SET-DISABLE-DENY-SCRIPTS 0|1
pub fn admit_to_scripts(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    context.server.switches.set_admits_to_scripts(is_on(context));
    reply.ok();
    Ok(())
}

/// DEBUG PAUSE-CRON 0|1
pub fn rest(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    context.server.switches.set_rests(is_on(context));
    reply.ok();
    Ok(())
}

/// DEBUG STOP-REWIND step
pub fn stop_rewind(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let step = u8::try_from(int(context.request.arg(2))?).map_err(|_| Error::NotInteger)?;
    context.server.switches.set_rewind_stop(step);
    reply.ok();
    Ok(())
}

/// DEBUG SET-SKIP-CHECKSUM-VALIDATION 0|1
pub fn ignore_checksums(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let checksum = if is_on(context) { Checksum::Ignored } else { Checksum::Checked };
    context.server.engine.settings.set_checksum(checksum);
    reply.ok();
    Ok(())
}

/// DEBUG CHANGE-REPL-ID
pub fn change_replication_id(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    if context.server.shard.is_on() {
        return Err(Error::text("ERR The stream of a shard's node has the name of its epoch"));
    }
    context.server.rename_stream();
    reply.ok();
    Ok(())
}

/// DEBUG QUICKLIST-PACKED-THRESHOLD size; 0 takes it back.
pub fn part_long_texts(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    /// Redis' own limit.
    const MOST: u64 = (1 << 32) - (1 << 20);
    let bytes = config::memory_bytes(context.request.arg(2)).filter(|bytes| *bytes <= MOST);
    let bytes =
        bytes.ok_or(Error::text("ERR argument must be a memory value bigger than 1 and smaller than 4gb"))?;
    let least = match usize::try_from(bytes) {
        Ok(0) | Err(_) => usize::MAX,
        Ok(bytes) => bytes,
    };
    context.server.switches.set_list_plain_bytes_min(least);
    assembly::follow_config(context.server);
    reply.ok();
    Ok(())
}

/// DEBUG REPLYBUFFER PEAK-RESET-TIME NEVER|RESET|milliseconds, or RESIZING 0|1: replies go through buffers of the worker, and there is
/// nothing to resize.
pub fn tune_reply_buffers(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let (what, how) = (context.request.arg(2), context.request.arg(3));
    let is_word = |word: &[u8]| how.eq_ignore_ascii_case(word);
    if what.eq_ignore_ascii_case(b"peak-reset-time") {
        if !is_word(b"never") && !is_word(b"reset") {
            int(how)?;
        }
    } else if !what.eq_ignore_ascii_case(b"resizing") {
        return Err(Error::subcommand_syntax("DEBUG", context.request.arg(1)));
    }
    reply.ok();
    Ok(())
}
