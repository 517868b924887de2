//! What a node tells of its cluster, and of its own slots.

use super::view;
use crate::clustered::{Link, Part, View};
use crate::commands;
use crate::dispatch::{Context, ownership};
use command::{Error, Result};
use keyspace::Slot;
use net::client::Traits;
use sys::UnixMs;
use topology::Server;
use wire::{Reply, SLOTS};

/// ASKING. No slot is ever half here, so there is nothing to ask for.
pub(super) fn asking(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    view(context)?;
    reply.ok();
    Ok(())
}

/// READONLY
pub(super) fn read_only(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    read_replicas(context, reply, true)
}

/// READWRITE
pub(super) fn read_write(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    read_replicas(context, reply, false)
}

fn read_replicas(context: &mut Context<'_, '_>, reply: &mut Reply<'_>, on: bool) -> Result<()> {
    view(context)?;
    context.session.set_reads_replicas(on);
    reply.ok();
    Ok(())
}

/// CLUSTER SLOTS
pub(super) fn slots(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let view = view(context)?;
    ownership::telling(context.server, &view, context.session.is_secure()).slots(reply);
    Ok(())
}

/// CLUSTER SHARDS
pub(super) fn shards(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let view = view(context)?;
    ownership::telling(context.server, &view, context.session.is_secure()).shards(reply);
    Ok(())
}

/// CLUSTER NODES
pub(super) fn nodes(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let view = view(context)?;
    let telling = ownership::telling(context.server, &view, context.session.is_secure());
    reply.verbatim("txt", telling.nodes().as_bytes());
    Ok(())
}

/// CLUSTER INFO
pub(super) fn info(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let view = view(context)?;
    let telling = ownership::telling(context.server, &view, context.session.is_secure());
    reply.verbatim("txt", telling.info().as_bytes());
    Ok(())
}

/// CLUSTER REPLICAS node-id, CLUSTER SLAVES node-id
pub(super) fn replicas(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let view = view(context)?;
    let node = node(&view, context.request.arg(2))?;
    let telling = ownership::telling(context.server, &view, context.session.is_secure());
    let lines = telling.replicas(node).ok_or(Error::text("ERR The specified node is not a master"))?;
    reply.array(lines.len());
    lines.iter().for_each(|line| reply.bulk(line.as_bytes()));
    Ok(())
}

/// CLUSTER COUNT-FAILURE-REPORTS node-id. Nodes report nobody: config servers see for themselves.
pub(super) fn failure_reports(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    node(&*view(context)?, context.request.arg(2))?;
    reply.int(0);
    Ok(())
}

/// The server of this id.
///
/// # Errors
/// There is none.
pub(super) fn node<'v>(view: &'v View, word: &[u8]) -> Result<&'v Server> {
    let id = std::str::from_utf8(word).ok().and_then(|text| text.parse().ok());
    let node = id.and_then(|id| view.topology.servers.get(&id));
    node.ok_or_else(|| Error::quoting("ERR Unknown node ", word, ""))
}

/// CLUSTER LINKS: there is no bus, but the connections on which nodes listen at each other.
pub(super) fn links(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    view(context)?;
    let links = context.server.clustered.get().map(Part::links).unwrap_or_default();
    // Node by node, as in Redis: clients take those to a node and from it in pairs.
    let mut links: Vec<(Link, UnixMs)> = links.into_iter().collect();
    links.sort_by_key(|(link, _)| match link {
        Link::To(id) => (*id, 0),
        Link::From(id, client) => (*id, client.saturating_add(1)),
    });
    reply.array(links.len());
    for (link, since) in links {
        let (direction, id) = match link {
            Link::To(id) => ("to", id),
            Link::From(id, _) => ("from", id),
        };
        reply.map(6);
        let words = [("direction", direction), ("node", &id.to_string())];
        for (name, value) in words {
            reply.bulk(name.as_bytes());
            reply.bulk(value.as_bytes());
        }
        reply.bulk(b"create-time");
        reply.int(since.0 as i64);
        reply.bulk(b"events");
        reply.bulk(b"r");
        // What waits to be sent is in the client's line of CLIENT LIST.
        for name in ["send-buffer-allocated", "send-buffer-used"] {
            reply.bulk(name.as_bytes());
            reply.int(0);
        }
    }
    Ok(())
}

/// CLUSTER HEAR cluster-id node-id own-id: the connection is that node's from then on ([`crate::hearing`]), if this is the node that it means. May be said again.
pub(super) fn hear(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let view = view(context)?;
    if context.request.arg(2) != view.topology.cluster.as_bytes() {
        return Err(Error::text("ERR This server is a node of another cluster"));
    }
    if view.id != Some(node(&view, context.request.arg(4))?.id) {
        return Err(Error::text("ERR This server is another node"));
    }
    let id = node(&view, context.request.arg(3))?.id;
    let (server, session) = (context.server, &mut *context.session);
    if session.hears_as.is_some() {
        reply.ok();
        return Ok(());
    }
    // Its limits are those of servers that follow, and it is counted among no clients.
    session.client.set_trait(Traits::REPLICA, true);
    session.hears_as = Some(id);
    if let Some(part) = server.clustered.get() {
        part.note_link(Link::From(id, session.client.id), Some(context.now));
    }
    reply.ok();
    server.pubsub.nodes.join(&session.client);
    Ok(())
}

/// CLUSTER MYID
pub(super) fn my_id(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let view = view(context)?;
    let own = ownership::telling(context.server, &view, false).own;
    reply.bulk(own.to_string().as_bytes());
    Ok(())
}

/// CLUSTER MYSHARDID
pub(super) fn my_shard_id(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let view = view(context)?;
    let telling = ownership::telling(context.server, &view, false);
    reply.bulk(telling.shard_name(telling.own).as_bytes());
    Ok(())
}

/// CLUSTER KEYSLOT key
pub(super) fn key_slot(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    view(context)?;
    reply.int(i64::from(wire::key_slot(context.request.arg(2))));
    Ok(())
}

/// CLUSTER COUNTKEYSINSLOT slot: of the database that is selected.
pub(super) fn count_keys(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    view(context)?;
    let number = command::parse::int(context.request.arg(2))?;
    let slot = slot(number).ok_or(Error::text("ERR Invalid slot"))?;
    let is_hidden = context.batch.keyspace().is_hidden(slot);
    let count = match is_hidden {
        true => 0,
        false => context.batch.try_count_slot(context.session.db, slot).ok_or(Error::InUse)?,
    };
    reply.int(i64::try_from(count).unwrap_or(i64::MAX));
    Ok(())
}

/// CLUSTER GETKEYSINSLOT slot count: of the database that is selected. Of a slot that is MIGRATING, none: who would move them one by one has nothing to do.
pub(super) fn keys(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    const INVALID: Error = Error::text("ERR Invalid slot or number of keys");
    view(context)?;
    let number = command::parse::int(context.request.arg(2))?;
    let count = command::parse::int(context.request.arg(3))?;
    let slot = slot(number).ok_or(INVALID)?;
    let is_marked = context.server.clustered.get().is_some_and(|part| part.is_marked(slot.0));
    let is_hidden = is_marked || context.batch.keyspace().is_hidden(slot);
    let most = usize::try_from(count).map_err(|_| INVALID)?;
    let most = if is_hidden { 0 } else { most };
    let db = context.session.db;
    let mut keys: Vec<Vec<u8>> = Vec::new();
    let seen = context.batch.try_visit_slot(db, slot, most, context.now, |object| {
        if keys.len() < most {
            keys.push(object.key().to_vec());
        }
    });
    seen.ok_or(Error::InUse)?;
    reply.array(keys.len());
    keys.iter().for_each(|key| reply.bulk(key));
    Ok(())
}

fn slot(number: i64) -> Option<Slot> {
    u16::try_from(number).ok().filter(|slot| usize::from(*slot) < SLOTS).map(Slot)
}

/// CLUSTER HELP
pub(super) fn help(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    view(context)?;
    commands::help(reply, "CLUSTER", LINES)
}

const LINES: &[&str] = &[
    "COUNT-FAILURE-REPORTS <node-id>",
    "    How many nodes report that this one has failed: none, since config servers see for themselves.",
    "COUNTKEYSINSLOT <slot>",
    "    How many keys of the selected database are in the slot.",
    "CUT HOLD <milliseconds> | CUT POSITION <cut> | CUT RELEASE <cut>",
    "    Holds writes back for a moment, and tells how far the stream goes; said by `tarn cluster backup`.",
    "GETKEYSINSLOT <slot> <count>",
    "    So many keys of the selected database that are in the slot.",
    "INFO",
    "    The state of the cluster, a figure on each line.",
    "KEYSLOT <key>",
    "    The slot of the key.",
    "LINKS",
    "    The connections on which nodes hear what is published at each other.",
    "MYID",
    "    The id of this node.",
    "MYSHARDID",
    "    The id of this node's shard.",
    "NODES",
    "    A line for each node:",
    "    <id> <ip:port@bus-port[,hostname]> <flags> <master> <pings> <pongs> <epoch> <link> <slot> ...",
    "REPLICAS <node-id>",
    "    The lines of a master's replicas.",
    "SHARDS",
    "    The shards, each with its slots and its nodes.",
    "SLOT-STATS SLOTSRANGE <start-slot> <end-slot> | ORDERBY key-count [LIMIT <limit>] [ASC | DESC]",
    "    How many keys are in slots of the node's shard.",
    "SLOTS",
    "    The ranges of slots, each with its master and its replicas.",
    "FAILOVER [FORCE | TAKEOVER], FORGET <node-id>, REPLICATE <node-id>",
    "    Are passed on to the config servers.",
    "ADDSLOTS, ADDSLOTSRANGE, BUMPEPOCH, DELSLOTS, DELSLOTSRANGE, FLUSHSLOTS, MEET, RESET, SAVECONFIG,",
    "SET-CONFIG-EPOCH, SETSLOT",
    "    Are the config servers' own affair: answered where there is nothing to do, and refused else.",
];
