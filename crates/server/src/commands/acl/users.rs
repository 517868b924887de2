//! ACL SETUSER, GETUSER, DELUSER, LIST and USERS, and what becomes of the connections of
//! users that are gone.

use crate::dispatch::Context;
use crate::server::Server;
use crate::session::Session;
use acl::{Access, DEFAULT_USER, Selector, is_valid_name, new_channels};
use command::{Error, Result};
use net::client::Client;
use net::service::Closing;
use notify::pubsub::Kind;
use std::collections::BTreeMap;
use std::sync::Arc;
use wire::Reply;

/// ACL SETUSER username [rule [rule ...]]
pub fn set(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let (server, request) = (context.server, context.request);
    let name = request.arg(2);
    if !is_valid_name(name) {
        return Err(Error::text("ERR Usernames can't contain spaces or null characters"));
    }
    let rules: Vec<&[u8]> = request.iter().skip(3).collect();
    server.acl.set_user(name, &rules, new_channels(&server.engine.config)).map_err(|error| error.reply())?;
    close_subscribers_without_right(context);
    reply.ok();
    Ok(())
}

/// ACL GETUSER username
pub fn get(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let Some(user) = context.server.acl.get(context.request.arg(2)) else {
        reply.null();
        return Ok(());
    };
    let mut selectors = user.selectors();
    let root = selectors.next().expect("a user has a root selector");
    let others: Vec<&Selector> = selectors.collect();
    reply.map(6);
    let flags = user.flag_words();
    reply.bulk(b"flags");
    reply.set(flags.len());
    flags.iter().for_each(|word| reply.bulk(word.as_bytes()));
    reply.bulk(b"passwords");
    reply.array(user.password_hashes().len());
    user.password_hashes().for_each(|hash| reply.bulk(hash.as_bytes()));
    write_selector(root, reply);
    reply.bulk(b"selectors");
    reply.array(others.len());
    for selector in others {
        reply.map(3);
        write_selector(selector, reply);
    }
    Ok(())
}

fn write_selector(selector: &Selector, reply: &mut Reply<'_>) {
    reply.bulk(b"commands");
    reply.bulk(&selector.commands_text());
    reply.bulk(b"keys");
    reply.bulk(&selector.keys_text());
    reply.bulk(b"channels");
    reply.bulk(&selector.channels_text());
}

/// ACL LIST
pub fn list(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let lines = context.server.acl.lines();
    reply.array(lines.len());
    lines.iter().for_each(|line| reply.bulk(line.trim_ascii_end()));
    Ok(())
}

/// ACL USERS
pub fn names(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let users = context.server.acl.all();
    reply.array(users.len());
    users.keys().for_each(|name| reply.bulk(name));
    Ok(())
}

/// ACL DELUSER username [username ...]
pub fn delete(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let request = context.request;
    if request.iter().skip(2).any(|name| name == DEFAULT_USER.as_bytes()) {
        return Err(Error::text("ERR The 'default' user cannot be removed"));
    }
    let deleted = request.iter().skip(2).filter(|name| context.server.acl.remove(name)).count();
    if deleted > 0 {
        close_connections_without_user(context);
    }
    reply.int(deleted as i64);
    Ok(())
}

/// Closes the connections of users that do not exist any more; one's own gets its reply.
pub fn close_connections_without_user(context: &mut Context<'_, '_>) {
    let server = context.server;
    for client in without_user(server) {
        if client.id == context.session.client.id {
            leave(server, context.session);
        } else {
            server.net.clients.kill(&client);
        }
    }
}

/// Closes connections that listen to what their users may not listen to any more; one's own gets its reply.
pub fn close_subscribers_without_right(context: &mut Context<'_, '_>) {
    let server = context.server;
    for client in without_right(server) {
        if client.id == context.session.client.id {
            context.session.closing = Closing::AfterReplies;
        } else {
            server.net.clients.kill(&client);
        }
    }
}

/// Users were changed by nobody's request: closes all such connections, but for those that see to it themselves ([`see_to_own`]).
pub fn put_out(server: &Server, sees_to_it: impl Fn(u64) -> bool) {
    for client in without_user(server).into_iter().chain(without_right(server)) {
        if !sees_to_it(client.id) {
            server.net.clients.kill(&client);
        }
    }
}

/// Users were changed meanwhile: a session that is one of such connections gets its reply, and ends.
pub fn see_to_own(server: &Server, session: &mut Session) {
    let id = session.client.id;
    if server.acl.get(&session.client.user()).is_none() {
        leave(server, session);
    } else if without_right(server).iter().any(|client| client.id == id) {
        session.closing = Closing::AfterReplies;
    }
}

/// A session whose user is gone gets its reply, and ends.
fn leave(server: &Server, session: &mut Session) {
    session.closing = Closing::AfterReplies;
    session.act_as(Access::newcomer(&server.acl));
}

/// The connections of users that do not exist.
fn without_user(server: &Server) -> Vec<Arc<Client>> {
    let users = server.acl.all();
    let mut clients = server.net.clients.all();
    clients.retain(|client| !users.contains_key(client.user().as_slice()));
    clients
}

/// Those that listen to what their users may not listen to.
fn without_right(server: &Server) -> Vec<Arc<Client>> {
    let users = server.acl.all();
    let mut losers: BTreeMap<u64, Arc<Client>> = BTreeMap::new();
    server.pubsub.for_each(|kind, name, client| {
        let user = users.get(client.user().as_slice());
        if user.is_some_and(|user| !user.allows_channel(name, kind == Kind::Pattern)) {
            losers.insert(client.id, client.clone());
        }
    });
    losers.into_values().collect()
}
