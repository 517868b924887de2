//! What a transaction changes about dispatch: requests are queued instead of run.

use crate::server::Server;
use crate::session::Session;
use command::table::Command;
use command::{Error, Flags};
use engine::scripts::plan;
use wire::{Reply, Request};

/// Queues a request of a session in a transaction. False: it is one of those that run at once.
pub fn queue(
    server: &Server,
    session: &mut Session,
    command: &'static Command,
    request: &Request<'_>,
    out: &mut Vec<u8>,
) -> bool {
    if command.is(Flags::RUNS_IN_MULTI) {
        return false;
    }
    let Some(transaction) = &mut session.transaction else { return false };
    let flags = match command.runs_script() {
        true => plan::flags_in_effect(&server.engine.scripts, command, request),
        false => command.row.flags,
    };
    transaction.push(command, flags, request, &session.client);
    Reply::new(out, session.protocol).simple("QUEUED");
    true
}

/// The error for a refused request: a refused EXEC ends its transaction and its watches, and says so if there was none.
pub fn refusal_of(server: &Server, command: &Command, session: &mut Session, error: Error) -> Error {
    if !command.is_exec() {
        return error;
    }
    forget(server, session);
    let cause = error.as_bytes().strip_prefix(b"-").unwrap_or(error.as_bytes());
    let cause = cause.strip_prefix(b"ERR ").unwrap_or(cause).to_vec();
    Error::line([b"EXECABORT Transaction discarded because of: ", &cause[..]].concat())
}

/// Ends a session's transaction and its watches.
pub fn forget(server: &Server, session: &mut Session) {
    session.leave_transaction();
    session.watched.clear(&server.watches, &server.engine.keyspace, &session.client);
}

/// The flags that count for the checks: EXEC has those of what it will run, and a script those that it says.
pub fn flags_in_effect(
    server: &Server,
    command: &Command,
    session: &Session,
    request: &Request<'_>,
) -> Flags {
    match &session.transaction {
        Some(transaction) if command.is_exec() => {
            command.row.flags | transaction.flags.unwrap_or(Flags::empty())
        }
        _ if command.runs_script() => plan::flags_in_effect(&server.engine.scripts, command, request),
        _ => command.row.flags,
    }
}
