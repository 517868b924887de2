//! CLIENT: what a connection may ask and say about itself and others.
//!
//! A session changes its own state directly; others it reaches by their [`Client`]s.

mod kill;
mod list;
mod tracking;

use super::{HELP_FLAGS, help, row, unknown_subcommand};
use crate::blocking::{self, Cut};
use crate::dispatch::Context;
use crate::dispatch::handlers::ServerHandler;
use crate::pause::{Paused, Purpose};
use crate::session::ReplyMode;
use command::{Error, Flags, Group, Reach, Result, Row, Shows};
use keyspace::Touch;
use net::client::{Client, Traits};
use sys::UnixMs;
use wire::Reply;

const ANYBODY: Flags = Flags::NOSCRIPT.union(Flags::LOADING).union(Flags::STALE);
const ADMIN: Flags = ANYBODY.union(Flags::ADMIN);

/// CLIENT and its subcommands.
pub const ROWS: &[Row<ServerHandler>] =
    &[row("client", -2, Reach::Nothing, Flags::PROTECTED, |context, _| unknown_subcommand(context))
        .shows(Shows::Nothing)
        .since("2.4.0")
        .group(Group::Connection)
        .complexity("Depends on subcommand.")
        .summary("A container for commands about connections.")
        .subcommands(SUBCOMMANDS)];

const SUBCOMMANDS: &[Row<ServerHandler>] = &[
    sub("client|caching", 3, ANYBODY, tracking::caching)
        .shows(Shows::Nothing)
        .since("6.0.0")
        .syntax("<YES | NO>")
        .summary("Says whether the keys of the next command are tracked."),
    sub("client|getname", 2, ANYBODY, get_name).shows(Shows::Nothing).since("2.6.9").summary("Answers with the connection's name."),
    sub("client|getredir", 2, ANYBODY, tracking::redirection)
        .shows(Shows::Nothing)
        .since("6.0.0")
        .summary("Answers with the client that invalidation messages are redirected to."),
    sub("client|help", 2, HELP_FLAGS, client_help).shows(Shows::Nothing).since("5.0.0").summary("Lists the subcommands."),
    sub("client|id", 2, ANYBODY, id).shows(Shows::Nothing).since("5.0.0").summary("Answers with the connection's number."),
    sub("client|info", 2, ANYBODY, list::info)
        .shows(Shows::Nothing)
        .since("6.2.0")
        .tips(&["nondeterministic_output"])
        .summary("Describes the connection."),
    sub("client|kill", -3, ADMIN, kill::kill)
        .shows(Shows::Nothing)
        .since("2.4.0")
        .complexity("O(N) where N is the number of client connections")
        .syntax(
            "<ip:port | [ID client-id] [TYPE <NORMAL | MASTER | SLAVE | REPLICA | PUBSUB>] [USER username] \
             [ADDR ip:port] [LADDR ip:port] [SKIPME <YES | NO>]>",
        )
        .summary("Closes connections."),
    sub("client|list", -2, ADMIN, list::list)
        .shows(Shows::Nothing)
        .since("2.4.0")
        .complexity("O(N) where N is the number of client connections")
        .tips(&["nondeterministic_output"])
        .syntax("[TYPE <NORMAL | MASTER | REPLICA | PUBSUB>] [ID client-id [client-id ...]]")
        .summary("Describes all connections, or those asked for."),
    sub("client|no-evict", 3, ADMIN, no_evict)
        .shows(Shows::Nothing)
        .since("7.0.0")
        .syntax("<ON | OFF>")
        .summary("Spares the connection when clients take too much memory."),
    sub("client|no-touch", 3, ANYBODY, no_touch)
        .shows(Shows::Nothing)
        .since("7.2.0")
        .syntax("<ON | OFF>")
        .summary("Makes the connection's commands not count as uses of their keys."),
    sub("client|pause", -3, ADMIN, pause)
        .reach(Reach::All)
        .shows(Shows::Nothing)
        .since("2.9.50")
        .syntax("timeout [WRITE | ALL]")
        .summary("Holds back the commands of all clients, or those that write, for some time."),
    sub("client|reply", 3, ANYBODY, reply_mode)
        .shows(Shows::Nothing)
        .since("3.2.0")
        .syntax("<ON | OFF | SKIP>")
        .summary("Says whether the connection wants replies."),
    sub("client|setinfo", 4, ANYBODY, set_info)
        .shows(Shows::Nothing)
        .since("7.2.0")
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
        .syntax("<LIB-NAME libname | LIB-VER libver>")
        .summary("Says which client library the connection is made with."),
    sub("client|setname", 3, ANYBODY, set_own_name)
        .shows(Shows::Nothing)
        .since("2.6.9")
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
        .syntax("connection-name")
        .summary("Gives the connection a name."),
    sub("client|unblock", -3, ADMIN, unblock)
        .shows(Shows::Nothing)
        .since("5.0.0")
        .complexity("O(log N) where N is the number of client connections")
        .syntax("client-id [TIMEOUT | ERROR]")
        .summary("Ends the wait of a blocked connection."),
    sub("client|tracking", -3, ANYBODY, tracking::tracking)
        .shows(Shows::Nothing)
        .since("6.0.0")
        .complexity("O(1). Some options may introduce additional complexity.")
        .syntax(
            "<ON | OFF> [REDIRECT client-id] [PREFIX prefix [PREFIX prefix ...]] [BCAST] [OPTIN] [OPTOUT] [NOLOOP]",
        )
        .summary("Tells the connection when keys that it caches are modified."),
    sub("client|trackinginfo", 2, ANYBODY, tracking::tracking_info)
        .shows(Shows::Nothing)
        .since("6.2.0")
        .summary("Answers with how the connection tracks what it caches."),
    sub("client|unpause", 2, ADMIN, unpause)
        .shows(Shows::Nothing)
        .since("6.2.0")
        .complexity("O(N) where N is the number of paused clients")
        .summary("Ends a pause."),
];

const fn sub(name: &'static str, arity: i32, flags: Flags, handler: ServerHandler) -> Row<ServerHandler> {
    row(name, arity, Reach::Nothing, flags.union(Flags::KEEPS_CACHING), handler).group(Group::Connection)
}

/// CLIENT ID
fn id(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    reply.int(context.session.client.id as i64);
    Ok(())
}

/// CLIENT GETNAME
fn get_name(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    match context.session.client.labels().name {
        name if name.is_empty() => reply.null(),
        name => reply.bulk(&name),
    }
    Ok(())
}

/// CLIENT SETNAME connection-name
fn set_own_name(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let name = context.request.arg(2);
    check_label(name, b"Client names")?;
    set_name(&context.session.client, name);
    reply.ok();
    Ok(())
}

/// CLIENT UNBLOCK client-id [TIMEOUT | ERROR]
fn unblock(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let request = context.request;
    let how = match request.get(3) {
        None => Cut::Timeout,
        Some(_) if request.len() > 4 => return Err(wrong_number_of_arguments(request.arg(1))),
        Some(word) if word.eq_ignore_ascii_case(b"timeout") => Cut::Timeout,
        Some(word) if word.eq_ignore_ascii_case(b"error") => Cut::Error,
        Some(_) => return Err(Error::text("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")),
    };
    let id = value::number::parse_i64(request.arg(2)).ok_or(Error::NotInteger)?;
    let is_cut = u64::try_from(id).is_ok_and(|id| blocking::cut(context.server, context.worker, id, how));
    reply.int(i64::from(is_cut));
    Ok(())
}

/// Redis' answer to a subcommand that counts its words itself.
fn wrong_number_of_arguments(word: &[u8]) -> Error {
    Error::quoting("ERR unknown subcommand or wrong number of arguments for '", word, "'. Try CLIENT HELP.")
}

/// Gives a client a name that has been checked; an empty one takes the name away.
pub fn set_name(client: &Client, name: &[u8]) {
    client.label(|labels| labels.name = name.to_vec());
}

/// The longest label: each entry of the slow log, of ACL LOG and of CLIENT LIST has it.
const LABEL_BYTES_MAX: usize = 4096;

/// Labels are shown in lines of words, so they are one printable word.
///
/// # Errors
/// A text that names `what` the label is.
pub fn check_label(label: &[u8], what: &[u8]) -> Result<()> {
    if label.len() > LABEL_BYTES_MAX {
        return Err(Error::quoting("ERR ", what, " cannot be longer than 4096 bytes."));
    }
    if label.iter().all(u8::is_ascii_graphic) {
        return Ok(());
    }
    Err(Error::quoting("ERR ", what, " cannot contain spaces, newlines or special characters."))
}

/// CLIENT SETINFO LIB-NAME libname | LIB-VER libver
fn set_info(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let (attribute, label) = (context.request.arg(2), context.request.arg(3));
    let is_name = attribute.eq_ignore_ascii_case(b"lib-name");
    if !is_name && !attribute.eq_ignore_ascii_case(b"lib-ver") {
        return Err(Error::quoting("ERR Unrecognized option '", attribute, "'"));
    }
    check_label(label, attribute)?;
    context.session.client.label(|labels| {
        *(if is_name { &mut labels.lib_name } else { &mut labels.lib_version }) = label.to_vec();
    });
    reply.ok();
    Ok(())
}

/// CLIENT NO-EVICT ON | OFF
fn no_evict(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let on = on_or_off(context.request.arg(2))?;
    context.session.client.set_trait(Traits::NO_EVICT, on);
    reply.ok();
    Ok(())
}

/// CLIENT NO-TOUCH ON | OFF
fn no_touch(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let on = on_or_off(context.request.arg(2))?;
    context.session.client.set_trait(Traits::NO_TOUCH, on);
    context.session.touch = if on { Touch::Never } else { Touch::Yes };
    reply.ok();
    Ok(())
}

fn on_or_off(word: &[u8]) -> Result<bool> {
    match word {
        word if word.eq_ignore_ascii_case(b"on") => Ok(true),
        word if word.eq_ignore_ascii_case(b"off") => Ok(false),
        _ => Err(Error::Syntax),
    }
}

/// CLIENT REPLY ON | OFF | SKIP
fn reply_mode(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let usual = context.session.usual_mode();
    let mode = &mut context.session.reply_mode;
    match context.request.arg(2) {
        word if word.eq_ignore_ascii_case(b"on") => {
            *mode = usual;
            reply.ok();
        }
        word if word.eq_ignore_ascii_case(b"off") => *mode = ReplyMode::Off,
        word if word.eq_ignore_ascii_case(b"skip") => {
            if *mode != ReplyMode::Off {
                *mode = ReplyMode::SkipNext;
            }
        }
        _ => return Err(Error::Syntax),
    }
    Ok(())
}

/// CLIENT PAUSE timeout [WRITE | ALL]
fn pause(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let request = context.request;
    let what = match request.get(3) {
        _ if request.len() > 4 => return Err(wrong_arguments("PAUSE")),
        None => Paused::All,
        Some(word) if word.eq_ignore_ascii_case(b"all") => Paused::All,
        Some(word) if word.eq_ignore_ascii_case(b"write") => Paused::Writes,
        Some(_) => return Err(Error::text("ERR CLIENT PAUSE mode must be WRITE or ALL")),
    };
    let timeout_ms = value::number::parse_i64(request.arg(2))
        .ok_or(Error::text("ERR timeout is not an integer or out of range"))?;
    let timeout_ms = u64::try_from(timeout_ms).map_err(|_| Error::text("ERR timeout is negative"))?;
    let until = |now: UnixMs| now.0.checked_add(timeout_ms).filter(|until| i64::try_from(*until).is_ok());
    until(context.now).ok_or(Error::text("ERR timeout is out of range"))?;
    // Nothing of a master's is under way when it begins.
    let server = context.server;
    let Some(_still) = server.following.applying.try_lock() else { return Err(Error::InUse) };
    super::settled(context, |context| {
        let now = context.batch.moment(context.now);
        let until = UnixMs(until(now).unwrap_or(i64::MAX as u64));
        server.pause.begin(&server.engine, Purpose::Client, what, now, until);
    })?;
    reply.ok();
    Ok(())
}

/// CLIENT UNPAUSE
fn unpause(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let server = context.server;
    server.pause.end(&server.engine, &server.net.clients, Purpose::Client);
    reply.ok();
    Ok(())
}

fn wrong_arguments(subcommand: &str) -> Error {
    Error::line(format!(
        "ERR unknown subcommand or wrong number of arguments for '{subcommand}'. Try CLIENT HELP."
    ))
}

/// CLIENT HELP
fn client_help(_: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    const LINES: &[&str] = &[
        "CACHING (YES|NO)",
        "    Whether the keys of the next command are tracked, with OPTIN or OPTOUT.",
        "GETNAME",
        "    The name of this connection.",
        "GETREDIR",
        "    Where invalidation messages of this connection go.",
        "ID",
        "    The number of this connection.",
        "INFO",
        "    A line about this connection.",
        "KILL <ip:port>",
        "    Close the connection that comes from there.",
        "KILL <option> <value> [<option> <value> [...]]",
        "    Close all connections that fit every option:",
        "    * ADDR (<ip:port>|<unixsocket>:0): where they come from.",
        "    * LADDR (<ip:port>|<unixsocket>:0): where they arrived.",
        "    * TYPE (NORMAL|MASTER|REPLICA|PUBSUB): what they are.",
        "    * USER <username>: who they are.",
        "    * ID <client-id>: their number.",
        "    * SKIPME (YES|NO): whether this connection stays; YES if not given.",
        "LIST [options ...]",
        "    A line about each connection, or about some:",
        "    * TYPE (NORMAL|MASTER|REPLICA|PUBSUB): what they are.",
        "    * ID <client-id> [<client-id> ...]: their numbers.",
        "NO-EVICT (ON|OFF)",
        "    Whether this connection is spared when clients take too much memory.",
        "NO-TOUCH (ON|OFF)",
        "    Whether commands of this connection do not count as uses of keys.",
        "PAUSE <timeout> [WRITE|ALL]",
        "    Hold back all commands, or those that write, for so many milliseconds.",
        "REPLY (ON|OFF|SKIP)",
        "    Whether this connection gets replies.",
        "SETINFO <option> <value>",
        "    Say what the client library is: LIB-NAME or LIB-VER.",
        "SETNAME <name>",
        "    Name this connection.",
        "TRACKING (ON|OFF) [REDIRECT <id>] [BCAST] [PREFIX <prefix> [...]]",
        "         [OPTIN] [OPTOUT] [NOLOOP]",
        "    Tell this connection when keys that it has read are modified.",
        "TRACKINGINFO",
        "    How this connection tracks.",
        "UNPAUSE",
        "    End a pause.",
    ];
    help(reply, "CLIENT", LINES)
}
