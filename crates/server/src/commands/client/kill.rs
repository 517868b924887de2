//! CLIENT KILL: which clients are meant, and their end.

use super::list::unknown_type;
use crate::dispatch::Context;
use crate::server::Server;
use command::{Error, Result};
use config::ClientClass;
use net::client::{Client, class_from_name};
use net::service::Closing;
use wire::{Reply, Request};

/// Which clients to close: those that fit all that is given.
#[derive(Default)]
struct Filter<'a> {
    id: Option<u64>,
    address: Option<&'a [u8]>,
    local_address: Option<&'a [u8]>,
    /// `Some(None)` is the master's.
    class: Option<Option<ClientClass>>,
    user: Option<&'a [u8]>,
    spares_self: bool,
}

/// CLIENT KILL ip:port | option value [option value ...]
pub fn kill(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let request = context.request;
    let is_old_form = request.len() == 3;
    let filter = match is_old_form {
        true => Filter { address: Some(request.arg(2)), ..Filter::default() },
        false => Filter::parse(context.server, &request)?,
    };
    let mut killed = 0;
    for client in context.server.net.clients.all() {
        let is_self = client.id == context.session.client.id;
        if !filter.fits(&client, Some(client.class())) || is_self && filter.spares_self {
            continue;
        }
        killed += 1;
        match is_self {
            // It gets to know that it was killed; others do not see it any more.
            true => {
                context.server.net.clients.remove(client.id);
                context.session.closing = Closing::AfterReplies;
            }
            false => {
                context.server.net.clients.kill(&client);
            }
        }
    }
    killed += i64::from(context.server.following.end_link_if(|master| filter.fits_master(master)));
    match is_old_form {
        true if killed == 0 => return Err(Error::text("ERR No such client")),
        true => reply.ok(),
        false => reply.int(killed),
    }
    Ok(())
}

impl<'a> Filter<'a> {
    fn parse(server: &Server, request: &Request<'a>) -> Result<Filter<'a>> {
        let mut filter = Filter { spares_self: true, ..Filter::default() };
        for at in (2..request.len()).step_by(2) {
            let option = request.arg(at).to_ascii_lowercase();
            let word = request.get(at + 1).ok_or(Error::Syntax)?;
            match option.as_slice() {
                b"id" => filter.id = Some(parse_id(word)?),
                b"addr" => filter.address = Some(word),
                b"laddr" => filter.local_address = Some(word),
                b"type" => filter.class = Some(class_from_name(word).ok_or_else(|| unknown_type(word))?),
                b"user" if server.acl.get(word).is_none() => return Err(no_such_user(word)),
                b"user" => filter.user = Some(word),
                b"skipme" if word.eq_ignore_ascii_case(b"yes") => filter.spares_self = true,
                b"skipme" if word.eq_ignore_ascii_case(b"no") => filter.spares_self = false,
                _ => return Err(Error::Syntax),
            }
        }
        Ok(filter)
    }

    fn fits(&self, client: &Client, class: Option<ClientClass>) -> bool {
        self.id.is_none_or(|id| id == client.id)
            && self.address.is_none_or(|address| address == client.address.as_bytes())
            && self.local_address.is_none_or(|address| address == client.local_address.as_bytes())
            && self.user.is_none_or(|user| client.is_user(user))
            && self.class.is_none_or(|wanted| wanted == class)
    }

    /// Whether it means the master, which is no user's, nor killed because nothing speaks against it.
    fn fits_master(&self, master: &Client) -> bool {
        let is_named = self.id.is_some()
            || self.address.is_some()
            || self.local_address.is_some()
            || self.class.is_some();
        is_named && self.user.is_none() && self.fits(master, None)
    }
}

fn parse_id(word: &[u8]) -> Result<u64> {
    value::number::parse_i64(word)
        .and_then(|id| u64::try_from(id).ok())
        .filter(|id| *id > 0)
        .ok_or(Error::text("ERR client-id should be greater than 0"))
}

fn no_such_user(name: &[u8]) -> Error {
    Error::quoting("ERR No such user '", name, "'")
}
