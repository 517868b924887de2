//! Invalidation messages and their way to a client or to the one that stands in for it.

use net::client::{self, Client, Clients, Traits};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use wire::{Protocol, Reply};

/// Where RESP2 clients, which cannot be told anything on a connection of their own,
/// listen on another.
const CHANNEL: &[u8] = b"__redis__:invalidate";

/// What is invalid, encoded.
#[derive(Clone)]
pub struct Invalid(Vec<u8>);

impl Invalid {
    /// These keys.
    pub fn keys(keys: &[&[u8]]) -> Invalid {
        let mut bytes = Vec::with_capacity(keys.iter().map(|key| key.len() + 16).sum::<usize>() + 16);
        let mut reply = Reply::new(&mut bytes, Protocol::Resp2);
        reply.array(keys.len());
        keys.iter().for_each(|key| reply.bulk(key));
        Invalid(bytes)
    }

    /// All keys: a null of the tracking client's protocol, whoever gets it.
    pub fn everything(protocol: Protocol) -> Invalid {
        let mut bytes = Vec::with_capacity(8);
        Reply::new(&mut bytes, protocol).null();
        Invalid(bytes)
    }

    /// How many bytes that is.
    pub fn bytes(&self) -> usize {
        self.0.len()
    }

    /// Sends it to a tracking client, or to the one that it is redirected to.
    pub fn send(&self, clients: &Clients, client: &Arc<Client>) {
        let redirection = client.redirection.load(Ordering::Relaxed);
        if redirection != 0 || client.traits().contains(Traits::OWED) {
            client.overtaking.fetch_add(1, Ordering::Release);
        }
        match redirection {
            0 => client::deliver(clients, client, |mail, protocol| {
                if protocol == Protocol::Resp3 {
                    self.push(mail);
                }
            }),
            id => match clients.get(id) {
                Some(other) => client::deliver(clients, &other, |mail, protocol| match protocol {
                    Protocol::Resp3 => self.push(mail),
                    // The mail is locked, and the flag only goes away under its lock.
                    Protocol::Resp2 if other.traits().contains(Traits::SUBSCRIBED) => self.publish(mail),
                    Protocol::Resp2 => {}
                }),
                None => tell_broken(clients, client, id),
            },
        }
    }

    fn push(&self, mail: &mut Vec<u8>) {
        let mut reply = Reply::new(mail, Protocol::Resp3);
        reply.push(2);
        reply.bulk(b"invalidate");
        reply.raw(&self.0);
    }

    fn publish(&self, mail: &mut Vec<u8>) {
        let mut reply = Reply::new(mail, Protocol::Resp2);
        reply.array(3);
        reply.bulk(b"message");
        reply.bulk(CHANNEL);
        reply.raw(&self.0);
    }
}

/// The client that stood in for this one is gone: it can only forget everything itself.
fn tell_broken(clients: &Clients, client: &Client, id: u64) {
    client.set_trait(Traits::BROKEN_REDIRECTION, true);
    client::deliver(clients, client, |mail, protocol| {
        if protocol == Protocol::Resp3 {
            let mut reply = Reply::new(mail, protocol);
            reply.push(2);
            reply.bulk(b"tracking-redir-broken");
            reply.int(id as i64);
        }
    });
}
