//! DEBUG: what test suites ask for. Off unless `enable-debug-command` allows it.
//!
//! Only what is exact here and serves a test is there; looking into structures
//! that Tarn does not have is not.

mod digest;
mod protocol;
mod reload;
mod switch;

use super::config::rewrite_with;
use super::{help, row};
use crate::dispatch::handlers::ServerHandler;
use crate::dispatch::{Context, checks};
use crate::refusals;
use ::config::Appended;
use command::execute::readable;
use command::generic::{dump, object};
use command::parse::int_within;
use command::table::Command;
use command::{Error, Flags, Group, Reach, Result, Row};
use engine::Attention;
use keyspace::{DbIndex, Expiry, Key, NewValue, Touch, ValueRef, View};
use std::ops::RangeInclusive;
use std::time::Duration;
use sys::UnixMs;
use telemetry::log;
use value::collection::{CollectionRef, Encoding};
use value::glob::{Case, glob_match};
use wire::{Reply, Request};

const FLAGS: Flags =
    Flags::ADMIN.union(Flags::NOSCRIPT).union(Flags::LOADING).union(Flags::STALE).union(Flags::ON_LEAVE);

/// DEBUG.
pub const ROWS: &[Row<ServerHandler>] = &[row("debug", -2, Reach::All, FLAGS, debug)
    .passes_by(leaves_out_what_is_held)
    .group(Group::Server)
    .complexity("Depends on the subcommand.")
    .syntax("subcommand [arg [arg ...]]")
    .summary("Does what test suites need.")];

const HELP: &[&str] = &[
    "CHANGE-REPL-ID",
    "    Give the server's data a new name (master_replid); a log says so a moment later.",
    "CONFIG-REWRITE-FORCE-ALL",
    "    Bring the configuration file up to date, with every directive in it.",
    "DIGEST",
    "    Forty hexadecimal digits for all that is there: the same for the same data.",
    "DIGEST-VALUE [<key> ...]",
    "    The same for what each key holds; zeroes for none.",
    "DISK-HANG <0|1>",
    "    Whether all that is to reach the disk waits, as where a disk hangs.",
    "ERROR <string>",
    "    Reply with this error.",
    "HTSTATS <dbid> [full]",
    "    How many keys a database has, and how many of them expire.",
    "HTSTATS-KEY <key> [full]",
    "    How many elements a value has that is kept in a table.",
    "LOADAOF",
    "    Read the log as a start would, and see whether it holds what is in memory.",
    "LOG <message>",
    "    Write a line to the server's log.",
    "OBJECT <key>",
    "    How the value of a key is stored.",
    "PANIC",
    "    End the process at once, as a fault would.",
    "PAUSE-CRON <0|1>",
    "    Whether the server does nothing by itself: frees no expired keys, begins no snapshots, closes no clients.",
    "POPULATE <count> [<prefix>] [<size>]",
    "    Make keys <prefix>:0, <prefix>:1 ... (\"key\" if not given) with strings of <size> bytes.",
    "PROTOCOL <type>",
    "    Reply with a value of a type: string, integer, double, bignum, null, array, set, map, attrib,",
    "    push, verbatim, true or false.",
    "QUICKLIST-PACKED-THRESHOLD <size>",
    "    From which length on an element of a list lies by itself, if it is less than a node holds; 0: none does.",
    "READ-GATE <0|1>",
    "    Whether what only reads waits until what it shows is on disk. Without, a crash can take back what was shown.",
    "RELOAD [NOSAVE] [NOFLUSH] [MERGE]",
    "    Write the RDB file, and take every value from it. With NOSAVE the file that is there takes the place of all",
    "    data; with NOFLUSH it is added to it, and with MERGE where a key is in both, the file's is taken.",
    "REPLYBUFFER <PEAK-RESET-TIME <NEVER|RESET|milliseconds> | RESIZING <0|1>>",
    "    Accepted; no client has a buffer of its own for replies that would be resized.",
    "SET-ACTIVE-EXPIRE <0|1>",
    "    Whether expired keys are freed without being looked at.",
    "SET-DISABLE-DENY-SCRIPTS <0|1>",
    "    Whether scripts may call CLIENT LIST, CLIENT INFO, CLIENT ID, CLIENT GETNAME, and DEBUG where that touches no keys.",
    "SET-SKIP-CHECKSUM-VALIDATION <0|1>",
    "    Whether RESTORE, FUNCTION RESTORE and RELOAD pass over wrong checksums.",
    "SLEEP <seconds>",
    "    Stop everything for a while.",
    "STOP-REWIND <step>",
    "    At which step of going back to where a master has the same the server stands still for good, to be killed there; 0: at none.",
    "STRINGMATCH-LEN <pattern> <string>",
    "    Whether a pattern matches.",
];

type Action = fn(&mut Context<'_, '_>, &mut Reply<'_>) -> Result<()>;

/// A subcommand with the numbers of words that it takes, and what does it.
type Subcommand = (&'static str, RangeInclusive<usize>, Action);

const ACTIONS: &[Subcommand] = &[
    ("assert", 2..=2, |_, _| std::process::abort()),
    ("change-repl-id", 2..=2, switch::change_replication_id),
    ("config-rewrite-force-all", 2..=2, |context, reply| rewrite_with(context, Appended::All, reply)),
    ("digest", 2..=2, digest::of_all),
    ("digest-value", 2..=usize::MAX, digest::of_values),
    ("disk-hang", 3..=3, switch::hang_disk),
    ("error", 3..=3, |context, _| Err(Error::Text(context.request.arg(2).to_vec().into()))),
    ("help", 2..=2, |_, reply| help(reply, "DEBUG", HELP)),
    ("htstats", 3..=usize::MAX, count_keys),
    ("htstats-key", 3..=usize::MAX, count_elements),
    ("loadaof", 2..=2, reload::load_log),
    ("log", 3..=usize::MAX, write_log),
    ("object", 3..=4, show_object),
    ("panic", 2..=2, |_, _| std::process::abort()),
    ("pause-cron", 3..=3, switch::rest),
    ("populate", 3..=5, populate),
    ("protocol", 3..=3, protocol::protocol),
    ("quicklist-packed-threshold", 3..=3, switch::part_long_texts),
    ("read-gate", 3..=3, switch::gate_reads),
    ("reload", 2..=usize::MAX, reload::reload),
    ("replybuffer", 4..=4, switch::tune_reply_buffers),
    ("set-active-expire", 3..=3, switch::expire_actively),
    ("set-disable-deny-scripts", 3..=3, switch::admit_to_scripts),
    ("set-skip-checksum-validation", 3..=3, switch::ignore_checksums),
    ("sleep", 3..=3, sleep),
    ("stop-rewind", 3..=3, switch::stop_rewind),
    ("stringmatch-len", 4..=4, stringmatch),
];

/// Those that change data.
const WRITING: &[&str] = &["populate", "reload"];
/// Those that are about data, or its name: not while it is loaded, when nobody else may look at it, and a file of it is not to be written over.
const NEED_DATA: &[&str] = &[
    "change-repl-id",
    "digest",
    "digest-value",
    "htstats",
    "htstats-key",
    "loadaof",
    "object",
    "populate",
    "reload",
];

/// Commands that are not for scripts, and that a script may call while a test says so: they touch no keys, and leave its session as it is.
const FOR_SCRIPTS: &[&str] = &["client|getname", "client|id", "client|info", "client|list"];
/// The same of DEBUG's own.
const ACTIONS_FOR_SCRIPTS: &[&str] = &[
    "error",
    "log",
    "pause-cron",
    "protocol",
    "set-active-expire",
    "set-disable-deny-scripts",
    "sleep",
    "stringmatch-len",
];

/// Whether an action looks at no key that somebody may hold, or leaves it out.
fn leaves_out_what_is_held(request: &Request<'_>) -> bool {
    let action = request.get(1).unwrap_or_default();
    !["object", "populate", "sleep"].iter().any(|name| action.eq_ignore_ascii_case(name.as_bytes()))
}

/// Whether a script may call this once DEBUG SET-DISABLE-DENY-SCRIPTS says so.
pub fn suits_scripts(command: &Command, request: &Request<'_>) -> bool {
    let is_action = |name: &&str| request.get(1).unwrap_or_default().eq_ignore_ascii_case(name.as_bytes());
    match command.row.name {
        "debug" => ACTIONS_FOR_SCRIPTS.iter().any(is_action),
        name => FOR_SCRIPTS.contains(&name),
    }
}

/// Runs what needs the whole keyspace. A transaction has it already.
fn with_all<T>(
    context: &mut Context<'_, '_>,
    work: impl FnOnce(&mut Context<'_, '_>) -> Result<T>,
) -> Result<T> {
    if context.batch.holds_all() {
        return work(context);
    }
    if !context.batch.try_hold_all() {
        return Err(Error::InUse);
    }
    let result = work(context);
    // Who waited for a key is served when the command ends.
    context.batch.release();
    result
}

/// DEBUG subcommand [arg [arg ...]]
fn debug(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let (name, words) = (context.request.arg(1), context.request.len());
    let action = ACTIONS
        .iter()
        .find(|(known, range, _)| name.eq_ignore_ascii_case(known.as_bytes()) && range.contains(&words));
    match action {
        Some((name, _, run)) => {
            let engine = &context.server.engine;
            if NEED_DATA.contains(name) && engine.attention().contains(Attention::LOADING) {
                return Err(checks::LOADING);
            }
            let writes = WRITING.contains(name);
            let refusal = writes.then(|| refusals::log_error(engine)).flatten();
            refusal.map_or_else(|| run(context, reply), Err)
        }
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
    // Whoever holds something, as a transaction or a script, has all that it needs.
    if context.batch.is_holding() {
        std::thread::sleep(span);
    } else {
        with_all(context, |_| {
            std::thread::sleep(span);
            Ok(())
        })?;
    }
    reply.ok();
    Ok(())
}

/// Looks at keys as they lie there, also if their time is up.
fn look<T>(
    context: &mut Context<'_, '_>,
    keys: &[Key<'_>],
    work: impl FnOnce(&View<'_>) -> Result<T>,
) -> Result<T> {
    const BEFORE_ALL: UnixMs = UnixMs(0);
    let takes_locks = !context.batch.is_holding();
    if takes_locks && !context.batch.try_hold(keys) {
        return Err(Error::InUse);
    }
    // Under what a batch holds the moment is the one that is given.
    let result = match context.batch.try_view(keys, BEFORE_ALL, Touch::No) {
        Some(view) => {
            let result = work(&view);
            view.finish();
            result
        }
        None => Err(Error::InUse),
    };
    let result = readable(context.batch).and(result);
    if takes_locks {
        context.batch.release();
    }
    result
}

/// DEBUG OBJECT key
fn show_object(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let keyspace = &context.server.engine.keyspace;
    let keys = [keyspace.key(context.session.db, context.request.arg(2))];
    let now = context.now;
    let line = look(context, &keys, |view| {
        let object = view.peek(&keys[0]).ok_or(Error::NO_SUCH_KEY)?;
        let idle_s = object.idle_seconds(now);
        Ok(format!(
            "Value at:{:p} refcount:{} encoding:{} serializedlength:{} lru:{} lru_seconds_idle:{}",
            object.key().as_ptr(),
            object::references(object, keyspace),
            object.encoding().name(),
            dump::payload(object).len() - dump::PAYLOAD_FRAME_BYTES,
            now.seconds().saturating_sub(idle_s) & 0xff_ffff,
            idle_s
        ))
    })?;
    reply.simple(line);
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
    if size.is_some_and(|size| size > context.server.engine.config.proto_max_bulk_len()) {
        return Err(Error::StringTooLong);
    }
    let takes_locks = !context.batch.is_holding();
    for number in 0..count {
        let name = [prefix, format!(":{number}").as_bytes()].concat();
        let keys = [context.server.engine.keyspace.key(context.session.db, &name)];
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

/// DEBUG HTSTATS dbid [full]
fn count_keys(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let number = command::parse::int(context.request.arg(2))?;
    let db = u32::try_from(number).ok().filter(|db| *db < context.server.engine.keyspace.databases());
    let db = DbIndex(db.ok_or(Error::text("ERR Out of range database"))?);
    context.batch.see_all();
    let (keys, expiring) = (context.batch.len(db), context.batch.expiring(db));
    let text = format!(
        "[Dictionary HT]\n number of elements: {keys}\n[Expires HT]\n number of elements: {expiring}\n"
    );
    reply.verbatim("txt", text.as_bytes());
    Ok(())
}

/// DEBUG HTSTATS-KEY key [full]
fn count_elements(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let keys = [context.server.engine.keyspace.key(context.session.db, context.request.arg(2))];
    let elements = look(context, &keys, |view| match view.peek(&keys[0]).map(|object| object.value()) {
        None => Err(Error::NO_SUCH_KEY),
        Some(ValueRef::Collection(collection)) if !has_table(collection) => Err(NO_TABLE),
        Some(ValueRef::Collection(CollectionRef::Set(set))) => Ok(set.len()),
        Some(ValueRef::Collection(CollectionRef::Hash(hash))) => Ok(hash.len()),
        Some(ValueRef::Collection(CollectionRef::Zset(zset))) => Ok(zset.len()),
        Some(_) => Err(NO_TABLE),
    })?;
    reply.verbatim("txt", format!(" number of elements: {elements}\n").as_bytes());
    Ok(())
}

const NO_TABLE: Error =
    Error::text("ERR The value stored at the specified key is not represented using an hash table");

fn has_table(collection: CollectionRef<'_>) -> bool {
    matches!(collection.encoding(), Encoding::Hashtable | Encoding::Skiplist)
}
