//! The connection group without CLIENT: PING, ECHO, SELECT, HELLO, AUTH, RESET, QUIT.
//!
//! A session that connected while the default user had no password stays authenticated
//! when one is set, as in Redis.

use super::client::{check_label, set_name};
use super::row;
use crate::dispatch::Context;
use crate::dispatch::handlers::ServerHandler;
use crate::rights;
use acl::{Access, Attempt, DEFAULT_USER, Reason, UserFlags};
use command::effects::Scope;
use command::version::REDIS_VERSION;
use command::{Error, Flags, Group, OptionWords, Reach, Result, Row, Secrets, Shows};
use engine::Attention;
use keyspace::DbIndex;
use net::service::Closing;
use wire::{Protocol, Reply};

const QUICK: Flags = Flags::FAST.union(Flags::LOADING).union(Flags::STALE);
const BEFORE_AUTH: Flags = QUICK.union(Flags::NOSCRIPT).union(Flags::NO_AUTH).union(Flags::ALLOW_BUSY);

/// The connection group, without CLIENT.
pub const ROWS: &[Row<ServerHandler>] = &[
    row("auth", -2, Reach::Nothing, BEFORE_AUTH.union(Flags::SENSITIVE), auth)
        .shows(Shows::Nothing)
        .secrets(Secrets::From(1))
        .group(Group::Connection)
        .complexity("O(N) where N is the number of passwords defined for the user")
        .syntax("[username] password")
        .summary("Shows who the client is, by a password."),
    row("echo", 2, Reach::Nothing, QUICK, echo)
        .shows(Shows::Nothing)
        .group(Group::Connection)
        .syntax("message")
        .summary("Answers with the message."),
    row("hello", -1, Reach::Nothing, BEFORE_AUTH.union(Flags::SENSITIVE), hello)
        .shows(Shows::Nothing)
        .secrets(Secrets::OfOptions(2, &[OptionWords::secret("auth", 2), OptionWords::shown("setname", 1)]))
        .since("6.0.0")
        .group(Group::Connection)
        .syntax("[protover [AUTH username password] [SETNAME clientname]]")
        .summary("Greets the server: chooses the protocol, and may authenticate and name the connection."),
    row("ping", -1, Reach::Nothing, Flags::FAST, ping)
        .flags(Flags::AMONG_MESSAGES.union(Flags::ASKS_HEALTH).union(Flags::IN_APPEND_ONLY_FILE))
        .shows(Shows::Nothing)
        .group(Group::Connection)
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .syntax("[message]")
        .summary("Answers, to show that the server is there."),
    row("quit", -1, Reach::Nothing, BEFORE_AUTH.union(Flags::RUNS_IN_MULTI), quit)
        .flags(Flags::AMONG_MESSAGES.union(Flags::ENDS_TRANSACTION))
        .shows(Shows::Nothing)
        .group(Group::Connection)
        .summary("Closes the connection."),
    row("reset", 1, Reach::Nothing, BEFORE_AUTH.union(Flags::RUNS_IN_MULTI), reset)
        .flags(Flags::AMONG_MESSAGES.union(Flags::ENDS_TRANSACTION))
        .shows(Shows::Nothing)
        .since("6.2.0")
        .group(Group::Connection)
        .summary("Brings the connection back to the state of a new one."),
    row("select", 2, Reach::Nothing, QUICK, select)
        .effect(Scope::Selection)
        .flags(Flags::IN_APPEND_ONLY_FILE)
        .shows(Shows::Nothing)
        .group(Group::Connection)
        .syntax("index")
        .summary("Changes the database of the connection."),
];

/// PING [message]
fn ping(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let request = context.request;
    match request.len() {
        3.. => return Err(Error::arity("ping")),
        _ if context.session.is_confined() => {
            reply.array(2);
            reply.bulk(b"pong");
            reply.bulk(request.get(1).unwrap_or_default());
        }
        2 => reply.bulk(request.arg(1)),
        _ => reply.simple("PONG"),
    }
    Ok(())
}

/// ECHO message
fn echo(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    reply.bulk(context.request.arg(1));
    Ok(())
}

/// SELECT index
fn select(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let index = value::number::parse_i64(context.request.arg(1)).ok_or(Error::NotInteger)?;
    let index = i32::try_from(index).map_err(|_| Error::OUTSIDE_INT32)?;
    let db = u32::try_from(index).ok().filter(|db| *db < context.server.engine.keyspace.databases());
    context.session.select(DbIndex(db.ok_or(Error::DB_INDEX)?));
    reply.ok();
    Ok(())
}

/// QUIT
fn quit(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    context.session.closing = Closing::AfterReplies;
    reply.ok();
    Ok(())
}

/// AUTH [username] password
fn auth(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let request = context.request;
    match request.len() {
        2 if context.server.acl.default_user().flags().contains(UserFlags::NOPASS) => {
            return Err(NO_PASSWORD_CONFIGURED);
        }
        2 => authenticate(context, DEFAULT_USER.as_bytes(), request.arg(1))?,
        3 => authenticate(context, request.arg(1), request.arg(2))?,
        _ => return Err(Error::Syntax),
    }
    reply.ok();
    Ok(())
}

/// HELLO [protover [AUTH username password] [SETNAME clientname]]
fn hello(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let request = context.request;
    let protocol = request.get(1).map(protocol_from).transpose()?;
    let (mut credentials, mut name) = (None, None);
    let mut at = 2;
    while let Some(option) = request.get(at) {
        if option.eq_ignore_ascii_case(b"auth") && at + 2 < request.len() {
            credentials = Some((request.arg(at + 1), request.arg(at + 2)));
            at += 3;
        } else if option.eq_ignore_ascii_case(b"setname") && at + 1 < request.len() {
            check_label(request.arg(at + 1), CLIENT_NAMES)?;
            name = Some(request.arg(at + 1));
            at += 2;
        } else {
            return Err(Error::quoting("ERR Syntax error in HELLO option '", option, "'"));
        }
    }
    if let Some((user, password)) = credentials {
        authenticate(context, user, password)?;
    }
    if context.session.access.is_unauthenticated(&context.server.acl) {
        return Err(HELLO_BEFORE_AUTH);
    }
    if let Some(name) = name {
        set_name(&context.session.client, name);
    }
    if let Some(protocol) = protocol {
        let letters = context.session.speak(protocol).ok_or(Error::InUse)?;
        context.enclose(&letters, reply);
        reply.set_protocol(protocol);
    }
    write_greeting(context, reply);
    Ok(())
}

fn protocol_from(text: &[u8]) -> Result<Protocol> {
    match value::number::parse_i64(text) {
        Some(2) => Ok(Protocol::Resp2),
        Some(3) => Ok(Protocol::Resp3),
        Some(_) => Err(Error::text("NOPROTO unsupported protocol version")),
        None => Err(Error::text("ERR Protocol version is not an integer or out of range")),
    }
}

fn write_greeting(context: &Context<'_, '_>, reply: &mut Reply<'_>) {
    let protocol = match context.session.protocol {
        Protocol::Resp2 => 2,
        Protocol::Resp3 => 3,
    };
    reply.map(7);
    reply.bulk(b"server");
    reply.bulk(b"redis");
    reply.bulk(b"version");
    reply.bulk(REDIS_VERSION.as_bytes());
    reply.bulk(b"proto");
    reply.int(protocol);
    reply.bulk(b"id");
    reply.int(context.session.client.id as i64);
    reply.bulk(b"mode");
    reply.bulk(context.server.mode().as_bytes());
    reply.bulk(b"role");
    let follows = context.server.engine.attention().contains(Attention::FOLLOWING);
    reply.bulk(if follows { b"replica" } else { b"master" });
    reply.bulk(b"modules");
    reply.array(0);
}

/// RESET
fn reset(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    if context.session.replica.is_some() {
        return Err(Error::text("ERR can only reset normal client connections"));
    }
    let (server, client) = (context.server, context.session.client.clone());
    context.session.listen_no_more(server);
    // Nothing that was posted may come behind the reply, where it would be taken for another.
    context.enclose(&client.take_mail(), reply);
    let session = &mut *context.session;
    session.leave_transaction();
    session.watched.clear(&server.watches, &server.engine.keyspace, &client);
    session.reset(Access::newcomer(&context.server.acl));
    reply.set_protocol(Protocol::Resp2);
    reply.simple("RESET");
    Ok(())
}

/// Lets the session in if user and password are right.
fn authenticate(context: &mut Context<'_, '_>, user: &[u8], password: &[u8]) -> Result<()> {
    let (server, now) = (context.server, context.now);
    if let Some(user) = server.acl.authenticate(user, password) {
        context.session.act_as(Access::of(user));
        return Ok(());
    }
    let attempt = Attempt {
        reason: Reason::Auth,
        setting: context.session.setting(),
        object: context.request.arg(0),
        user,
    };
    let client = &context.session.client;
    client.note_command(context.command.id);
    rights::note_attempt(server, client, attempt, now);
    Err(Error::text("WRONGPASS invalid username-password pair or user is disabled."))
}

/// How the error text of a bad name begins.
const CLIENT_NAMES: &[u8] = b"Client names";

const NO_PASSWORD_CONFIGURED: Error = Error::text(
    "ERR AUTH <password> called without any password configured for the default user. Are you sure your \
     configuration is correct?",
);

const HELLO_BEFORE_AUTH: Error = Error::text(
    "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> \
     <pass> option can be used to authenticate the client and select the RESP protocol version at the same time",
);
