//! DEBUG: what test suites ask for. Off unless `enable-debug-command` allows it.
//!
//! Only what is exact here and serves a test is there; looking into structures
//! that Tarn does not have is not.

use super::{config, help, row};
use crate::config::{Access, Origin};
use crate::dispatch::Context;
use crate::dispatch::table::ServerHandler;
use crate::log;
use command::generic::{dump, object};
use command::parse::{int, int_within};
use command::{Error, Flags, Group, Result, Row};
use keyspace::{Expiry, NewValue, Touch};
use std::time::Duration;
use value::glob::{Case, glob_match};
use wire::{Protocol, Reply};

const FLAGS: Flags = Flags::ADMIN.union(Flags::NOSCRIPT).union(Flags::LOADING).union(Flags::STALE);

/// DEBUG.
pub const ROWS: &[Row<ServerHandler>] = &[row("debug", -2, FLAGS, debug)
    .group(Group::Server)
    .complexity("Depends on the subcommand.")
    .syntax("subcommand [arg [arg ...]]")
    .summary("Does what test suites need.")];

const HELP: &[&str] = &[
    "DISK-HANG <0|1>",
    "    Whether all that is to reach the disk waits, as where a disk hangs.",
    "ERROR <string>",
    "    Reply with this error.",
    "LOG <message>",
    "    Write a line to the server's log.",
    "OBJECT <key>",
    "    How the value of a key is stored.",
    "PANIC",
    "    End the process at once, as a fault would.",
    "POPULATE <count> [<prefix>] [<size>]",
    "    Make keys <prefix>:0, <prefix>:1 ... (\"key\" if not given) with strings of <size> bytes.",
    "PROTOCOL <type>",
    "    Reply with a value of a type: string, integer, double, bignum, null, array, set, map, attrib,",
    "    push, verbatim, true or false.",
    "READ-GATE <0|1>",
    "    Whether what only reads waits until what it shows is on disk. Without, a crash can take back what was shown.",
    "SET-ACTIVE-EXPIRE <0|1>",
    "    Whether expired keys are freed without being looked at.",
    "SLEEP <seconds>",
    "    Stop everything for a while.",
    "STRINGMATCH-LEN <pattern> <string>",
    "    Whether a pattern matches.",
];

type Action = fn(&mut Context<'_, '_>, &mut Reply<'_>) -> Result<()>;

/// Subcommands with the numbers of words that they take, and what does them.
const ACTIONS: &[(&str, std::ops::RangeInclusive<usize>, Action)] = &[
    ("assert", 2..=2, |_, _| std::process::abort()),
    ("disk-hang", 3..=3, disk_hang),
    ("error", 3..=3, |context, _| Err(Error::Text(context.request.arg(2).to_vec().into()))),
    ("help", 2..=2, |_, reply| help(reply, "DEBUG", HELP)),
    ("log", 3..=usize::MAX, write_log),
    ("object", 3..=4, show_object),
    ("panic", 2..=2, |_, _| std::process::abort()),
    ("populate", 3..=5, populate),
    ("protocol", 3..=3, protocol),
    ("read-gate", 3..=3, read_gate),
    ("set-active-expire", 3..=3, set_active_expire),
    ("sleep", 3..=3, sleep),
    ("stringmatch-len", 4..=4, stringmatch),
];

/// DEBUG subcommand [arg [arg ...]]
fn debug(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let is_allowed = match context.server.config.enable_debug_command() {
        Access::Yes => true,
        Access::Local => config::origin(context) == Origin::Local,
        Access::No => false,
    };
    if !is_allowed {
        return Err(Error::text(
            "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", you can run \
             it from a local connection, otherwise you need to set this option in the configuration file, and \
             then restart the server.",
        ));
    }
    let (name, words) = (context.request.arg(1), context.request.len());
    let action = ACTIONS
        .iter()
        .find(|(known, range, _)| name.eq_ignore_ascii_case(known.as_bytes()) && range.contains(&words));
    match action {
        Some((_, _, run)) => run(context, reply),
        None => {
            let name = String::from_utf8_lossy(&name[..name.len().min(128)]);
            let line =
                format!("ERR unknown subcommand or wrong number of arguments for '{name}'. Try DEBUG HELP.");
            Err(Error::Text(line.into_bytes().into()))
        }
    }
}

/// DEBUG SLEEP seconds: no worker runs a command meanwhile.
fn sleep(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let seconds =
        str::from_utf8(context.request.arg(2)).ok().and_then(|text| text.trim().parse::<f64>().ok());
    let span = Duration::try_from_secs_f64(seconds.unwrap_or(0.0)).unwrap_or_default();
    // A transaction has everything already.
    let takes_all = !context.batch.holds_all();
    if takes_all && !context.batch.try_hold_all() {
        return Err(Error::InUse);
    }
    std::thread::sleep(span);
    if takes_all {
        context.batch.release();
    }
    reply.ok();
    Ok(())
}

/// DEBUG DISK-HANG 0|1
fn disk_hang(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    sys::file::hang(context.request.arg(2) == b"1");
    reply.ok();
    Ok(())
}

/// DEBUG OBJECT key
fn show_object(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let keyspace = &context.server.keyspace;
    let keys = [keyspace.key(context.session.db, context.request.arg(2))];
    let view = context.batch.try_view(&keys, context.now, Touch::No).ok_or(Error::InUse)?;
    let object = view.peek(&keys[0]).ok_or(Error::NO_SUCH_KEY)?;
    let idle_s = object.idle_seconds(context.now);
    reply.simple(format!(
        "Value at:{:p} refcount:{} encoding:{} serializedlength:{} lru:{} lru_seconds_idle:{}",
        object.key().as_ptr(),
        object::references(object, keyspace),
        object.encoding().name(),
        dump::payload(object).len() - dump::PAYLOAD_FRAME_BYTES,
        context.now.seconds().saturating_sub(idle_s) & 0xff_ffff,
        idle_s
    ));
    view.finish();
    Ok(())
}

/// DEBUG POPULATE count [prefix] [size]
fn populate(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let request = context.request;
    let positive =
        |at: usize| int_within(request.arg(at), 0..=i64::MAX, "ERR value is out of range, must be positive");
    let count = positive(2)?;
    let prefix = request.get(3).unwrap_or(b"key");
    let size = match request.len() {
        5 => Some(positive(4)? as usize).filter(|size| *size > 0),
        _ => None,
    };
    let takes_locks = !context.batch.is_holding();
    for number in 0..count {
        let name = [prefix, format!(":{number}").as_bytes()].concat();
        let keys = [context.server.keyspace.key(context.session.db, &name)];
        let mut value = format!("value:{number}").into_bytes();
        if let Some(size) = size {
            value.resize(size, 0);
        }
        let mut edit = context.batch.try_edit(&keys, context.now, Touch::Yes).ok_or(Error::InUse)?;
        let is_new = edit.get(&keys[0]).is_none();
        if is_new {
            edit.set(&keys[0], NewValue::from_bytes(&value), Expiry::Clear);
            edit.say(&keys[0], &[b"SET", &name, &value]);
        }
        edit.finish();
        if is_new {
            context.batch.count_write();
        }
        // Who waited for it is served when the command ends.
        if takes_locks {
            context.batch.release();
        }
    }
    reply.ok();
    Ok(())
}

/// DEBUG READ-GATE 0|1
fn read_gate(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    context.server.keyspace.set_reads_seen(int(context.request.arg(2)).unwrap_or(0) != 0);
    reply.ok();
    Ok(())
}

/// DEBUG SET-ACTIVE-EXPIRE 0|1
fn set_active_expire(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    context.server.keyspace.set_active_expiry(int(context.request.arg(2)).unwrap_or(0) != 0);
    reply.ok();
    Ok(())
}

/// DEBUG STRINGMATCH-LEN pattern string
fn stringmatch(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let (pattern, text) = (context.request.arg(2), context.request.arg(3));
    reply.int(i64::from(glob_match(pattern, text, Case::Sensitive)));
    Ok(())
}

/// DEBUG LOG message
fn write_log(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let words: Vec<_> = context.request.iter().skip(2).map(String::from_utf8_lossy).collect();
    log!(Warning, "DEBUG LOG: {}", words.join(" "));
    reply.ok();
    Ok(())
}

/// The double that Redis replies with, which its tests compare with.
#[allow(clippy::approx_constant)] // It is not meant to be pi.
const PROTOCOL_DOUBLE: f64 = 3.141;

/// DEBUG PROTOCOL type
fn protocol(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    match context.request.arg(2).to_ascii_lowercase().as_slice() {
        b"string" => reply.bulk(b"Hello World"),
        b"integer" => reply.int(12345),
        b"double" => reply.double(PROTOCOL_DOUBLE),
        b"null" => reply.null(),
        b"array" => {
            reply.array(3);
            (0..3).for_each(|number| reply.int(number));
        }
        b"set" => {
            reply.set(3);
            (0..3).for_each(|number| reply.int(number));
        }
        b"map" => {
            reply.map(3);
            for number in 0..3 {
                reply.int(number);
                reply.bool(number == 1);
            }
        }
        b"attrib" => {
            reply.attribute(1, |reply| {
                reply.bulk(b"key-popularity");
                reply.array(2);
                reply.bulk(b"key:123");
                reply.int(90);
            });
            reply.bulk(b"Some real reply following the attribute");
        }
        b"push" if reply.protocol() == Protocol::Resp2 => {
            return Err(Error::text("ERR RESP2 is not supported by this command"));
        }
        b"push" => {
            reply.push(2);
            reply.bulk(b"server-cpu-usage");
            reply.int(42);
            reply.bulk(b"Some real reply following the push reply");
        }
        b"true" => reply.bool(true),
        b"false" => reply.bool(false),
        b"verbatim" => reply.verbatim("txt", b"This is a verbatim\nstring"),
        b"bignum" => reply.big_number(b"1234567999999999999999999999999999999"),
        _ => {
            return Err(Error::text(
                "ERR Wrong protocol type name. Please use one of the following: \
                 string|integer|double|bignum|null|array|set|map|attrib|push|verbatim|true|false",
            ));
        }
    }
    Ok(())
}
