//! CLIENT LIST and CLIENT INFO.

use crate::dispatch::Context;
use command::{Error, Result};
use config::ClientClass;
use net::client::{Client, Traits, class_from_name};
use std::sync::Arc;
use wire::Reply;

/// CLIENT INFO
pub fn info(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    note_own_command(context);
    let line = context.session.client.line_running(context.now, &context.request) + "\n";
    reply.verbatim("txt", line.as_bytes());
    Ok(())
}

/// CLIENT LIST [TYPE type | ID client-id [client-id ...]]
pub fn list(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    note_own_command(context);
    let (clients, request) = (&context.server.net.clients, context.request);
    let option = request.get(2).unwrap_or_default();
    let listed = if request.len() == 4 && option.eq_ignore_ascii_case(b"type") {
        let class = class_from_name(request.arg(3)).ok_or_else(|| unknown_type(request.arg(3)))?;
        everybody(context).into_iter().filter(|client| class_of(client) == class).collect()
    } else if request.len() > 3 && option.eq_ignore_ascii_case(b"id") {
        let ids: Result<Vec<i64>> = request
            .iter()
            .skip(3)
            .map(|word| value::number::parse_i64(word).ok_or(Error::text("ERR Invalid client ID")))
            .collect();
        let master = master(context);
        let find = |id| clients.get(id).or_else(|| master.clone().filter(|master| master.id == id));
        ids?.into_iter().filter_map(|id| find(u64::try_from(id).ok()?)).collect()
    } else if request.len() == 2 {
        everybody(context)
    } else {
        return Err(Error::Syntax);
    };
    let mut text = String::new();
    for client in listed {
        let is_own = client.id == context.session.client.id;
        text.push_str(&match is_own {
            true => client.line_running(context.now, &request),
            false => client.line(context.now),
        });
        text.push('\n');
        if text.len() > reply.bytes_left() {
            // The client is closed: it may have named one as often as it likes.
            break;
        }
    }
    reply.verbatim("txt", text.as_bytes());
    Ok(())
}

/// All clients and the master, if one is followed, in the order in which they came.
fn everybody(context: &Context<'_, '_>) -> Vec<Arc<Client>> {
    let mut all = context.server.net.clients.all();
    if let Some(master) = master(context) {
        all.push(master);
        all.sort_by_key(|client| client.id);
    }
    all
}

/// The master that is followed, as a client.
fn master(context: &Context<'_, '_>) -> Option<Arc<Client>> {
    let server = context.server;
    server.following.master_client(server.stream().selected.unwrap_or(0)).map(Arc::new)
}

/// As [`class_from_name`] has it.
fn class_of(client: &Client) -> Option<ClientClass> {
    (!client.traits().contains(Traits::MASTER)).then(|| client.class())
}

/// The error for a class of clients that does not exist.
pub fn unknown_type(name: &[u8]) -> Error {
    Error::quoting("ERR Unknown client type '", name, "'")
}

/// A session notes what it did at the end of its batch, but it sees itself as it is. In a transaction that is at EXEC, which has noted so.
fn note_own_command(context: &Context<'_, '_>) {
    if context.batch.is_holding() && !context.session.runs_script {
        return;
    }
    context.session.client.note_batch(Some(context.command.id), 0, context.now);
}
