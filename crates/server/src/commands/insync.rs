//! INSYNC: what nodes of a shard say to each other, and what an operator has them do.

use super::{HELP_FLAGS, help, row, unknown_subcommand};
use crate::dispatch::Context;
use crate::dispatch::handlers::ServerHandler;
use crate::feeding;
use crate::insync::dialling::END;
use crate::server::Server;
use crate::shard::{Address, Promotion, Shard, Standing, say_line};
use command::parse::int;
use command::{Error, Flags, Group, Reach, Result, Row, Shows};
use keyspace::DbIndex;
use net::client::Traits;
use replication::insync::{Event, Life, Loss, MemberId, Message, NodeId, Role, Version, Writes};
use std::sync::Arc;
use std::time::Duration;
use telemetry::log;
use wire::Reply;

const FLAGS: Flags = Flags::ADMIN.union(Flags::NOSCRIPT).union(Flags::STALE).union(Flags::NO_MULTI);
const BETWEEN_NODES: Flags = FLAGS.union(Flags::ALLOW_BUSY);

/// INSYNC and its subcommands.
pub const ROWS: &[Row<ServerHandler>] =
    &[row("insync", -2, Reach::Around, Flags::empty(), |context, _| unknown_subcommand(context))
        .shows(Shows::Nothing)
        .group(Group::Server)
        .complexity("O(1)")
        .summary("Is a container for commands of a shard's in-sync set.")
        .subcommands(SUBCOMMANDS)];

const SUBCOMMANDS: &[Row<ServerHandler>] = &[
    sub("insync|begin", 2, FLAGS, begin)
        .summary("Begins the shard with this node's data, if nobody has begun it."),
    sub("insync|end", 2, BETWEEN_NODES, end).summary("Is what a node asks its master after a full copy."),
    sub("insync|handover", -2, FLAGS, hand_over)
        .syntax("[node]")
        .summary("Has another node become master in this one's place, without waiting for leases."),
    sub("insync|help", 2, HELP_FLAGS, |_, reply| help(reply, "INSYNC", HELP))
        .summary("Lists the subcommands."),
    sub("insync|link", -5, BETWEEN_NODES, link)
        .syntax("shard node life [databases]")
        .summary("Is what a node introduces itself to its master with."),
    sub("insync|promote", -2, FLAGS, promote)
        .syntax("[ACCEPT-LOSS [version]]")
        .summary("Has this node become master, as a member of the in-sync set."),
    sub("insync|say", 3, BETWEEN_NODES, say).syntax("line").summary("Is what a node says to its master."),
    sub("insync|status", 2, FLAGS.union(Flags::LOADING), status)
        .summary("Tells how the node and its shard stand."),
];

const HELP: &[&str] = &[
    "BEGIN",
    "    Begin the shard with this node's data, if nobody has begun it.",
    "HANDOVER [NODE]",
    "    Another member becomes master in this one's place, with everything that this one has.",
    "PROMOTE [ACCEPT-LOSS [VERSION]]",
    "    Become master. Without ACCEPT-LOSS only a member of the in-sync set does; with it acknowledged",
    "    writes that this node lacks are lost, and the former members must be dead. VERSION: only if the",
    "    decision is still this one.",
    "STATUS",
    "    Who this node is, what it is, and what is decided.",
];

const fn sub(name: &'static str, arity: i32, flags: Flags, handler: ServerHandler) -> Row<ServerHandler> {
    row(name, arity, Reach::Around, flags, handler)
        .shows(Shows::Nothing)
        .group(Group::Server)
        .complexity("O(1)")
}

fn shard<'c>(context: &Context<'c, '_>) -> Result<&'c Arc<Shard>> {
    context
        .server
        .shard
        .get()
        .ok_or(Error::text("ERR This server is not a node of a shard (see `shard-name`)"))
}

/// INSYNC BEGIN
fn begin(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let shard = shard(context)?;
    if shard.standing().is_torn {
        return Err(Error::text("ERR What this node has is a copy that is not whole"));
    }
    shard.begin_shard();
    reply.ok();
    Ok(())
}

/// INSYNC PROMOTE [ACCEPT-LOSS [version]]
fn promote(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let words: Vec<&[u8]> = context.request.iter().skip(2).collect();
    let loss = match words.as_slice() {
        [] => Loss::Refused,
        [word, version @ ..] if word.eq_ignore_ascii_case(b"accept-loss") && version.len() < 2 => {
            let version = version.first().map(|version| int(version)).transpose()?;
            let version = version.map(u64::try_from).transpose().map_err(|_| Error::NotInteger)?;
            Loss::Accepted(version.map(Version))
        }
        _ => return Err(Error::Syntax),
    };
    let shard = shard(context)?;
    let standing = shard.standing();
    if standing.role == Role::Master {
        reply.simple("OK Already master");
        return Ok(());
    }
    // What it knows of the decision may be old; whether it may stand is looked at when it has read that.
    let is_known = || standing.decision.as_ref().is_none_or(|known| known.members.contains(&standing.id));
    let is_member = standing.role == Role::Member || standing.role == Role::Nobody && is_known();
    if standing.is_torn {
        return Err(Error::text("ERR What this node has is a copy that is not whole"));
    }
    if !is_member && loss == Loss::Refused {
        return Err(Error::text(
            "ERR This node is not a member of the in-sync set: it may lack acknowledged writes",
        ));
    }
    shard.happened(Event::Promote { loss });
    reply.ok();
    Ok(())
}

/// How long a master tries to hand over.
const HANDING_OVER: Duration = Duration::from_secs(1);

/// INSYNC HANDOVER [node]
fn hand_over(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let to = match context.request.get(2) {
        None => None,
        Some(word) if context.request.len() == 3 => {
            Some(u32::try_from(int(word)?).map(NodeId).map_err(|_| Error::NotInteger)?)
        }
        Some(_) => return Err(Error::Syntax),
    };
    let shard = shard(context)?;
    if !shard.can_hand_over(to) {
        return Err(Error::text("ERR This node is not master of a shard with such a member"));
    }
    shard.hand_over(to, HANDING_OVER);
    reply.ok();
    Ok(())
}

/// INSYNC STATUS
fn status(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let shard = shard(context)?;
    let standing = shard.standing();
    let known = standing.decision.as_ref();
    let members: Vec<String> =
        known.iter().flat_map(|known| &known.members).map(MemberId::to_string).collect();
    let writes = match standing.writes {
        Writes::Taken => "taken",
        Writes::TooFewMembers => "too-few-members",
        Writes::NotMaster => "not-master",
    };
    let facts = [
        ("shard", shard.settings.name.clone()),
        ("node", standing.id.to_string()),
        ("role", role(&standing).to_owned()),
        ("writes", writes.to_owned()),
        ("copy", copy(context.server, &standing).to_owned()),
        ("epoch", standing.epoch.0.to_string()),
        ("committed", standing.committed.0.to_string()),
        ("end", standing.end.0.to_string()),
        ("decision", known.map_or(0, |known| known.version.0).to_string()),
        ("master", known.map_or("none".to_owned(), |known| known.master.to_string())),
        ("members", members.join(" ")),
        ("promotion", promotion(&standing)),
    ];
    reply.map(facts.len());
    for (name, value) in facts {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
    Ok(())
}

/// What the copy is that a node holds. One that has no keys, and nothing of the shard's, has none.
fn copy(server: &Server, standing: &Standing) -> &'static str {
    let keyspace = &server.engine.keyspace;
    let is_empty = || (0..keyspace.databases()).all(|db| keyspace.is_empty(DbIndex(db)));
    match standing.is_torn {
        true => "not-whole",
        false if standing.is_foreign && is_empty() => "none",
        false => "whole",
    }
}

fn promotion(standing: &Standing) -> String {
    match standing.promotion {
        Promotion::None => "none".to_owned(),
        Promotion::UnderWay => "under-way".to_owned(),
        Promotion::Refused(obstacle) => format!("refused: {obstacle}"),
    }
}

/// The word for what a node is.
pub fn role(standing: &Standing) -> &'static str {
    match standing.role {
        _ if standing.is_halted => "halted",
        Role::Master => "master",
        Role::Member => "member",
        Role::Learner => "learner",
        Role::Nobody => "nobody",
    }
}

/// INSYNC LINK shard node life [databases]
fn link(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let request = context.request;
    let shard = shard(context)?;
    if request.arg(2) != shard.settings.name.as_bytes() {
        return Err(Error::text("ERR This server is a node of another shard"));
    }
    let node = u32::try_from(int(request.arg(3))?).ok().map(NodeId);
    let node = node.filter(|node| shard.address_of(*node).is_some());
    let node = node.ok_or(Error::text("ERR There is no such node in `shard-nodes` here"))?;
    let life = std::str::from_utf8(request.arg(4)).ok().and_then(|text| text.parse().ok());
    let life = life.map(Life).ok_or(Error::NotInteger)?;
    if context.session.link.is_some() {
        return Err(Error::text("ERR This connection is a link already"));
    }
    let databases = request.get(5).map(int).transpose()?;
    let own = context.server.engine.keyspace.databases();
    if let Some(databases) = databases.filter(|databases| *databases < i64::from(own)) {
        if shard.links.is_first_refusal(node, Some(databases)) {
            let place = shard.address_of(node).map(|Address { host, port }| format!(" ({host}:{port})"));
            log!(
                Warning,
                "Node {}{} of the shard is not taken: it has {databases} `databases`, and this one has {own}, in each of which something may be written",
                node.0,
                place.unwrap_or_default()
            );
        }
        return Err(Error::line(format!(
            "ERR Whoever follows this node needs as many `databases` as it has, which are {own}, and not {databases}"
        )));
    }
    shard.links.is_first_refusal(node, None);
    let client = &context.session.client;
    client.set_trait(Traits::REPLICA, true);
    let link = shard.links.accept(client, node);
    context.session.link = Some((link, MemberId { node, life }));
    reply.simple(format!("life {}", shard.standing().id.life.0));
    Ok(())
}

/// INSYNC SAY line: there is no reply.
fn say(context: &mut Context<'_, '_>, _: &mut Reply<'_>) -> Result<()> {
    let shard = shard(context)?;
    let (link, from) = context.session.link.ok_or(NO_LINK)?;
    let line = std::str::from_utf8(context.request.arg(2)).ok();
    let message =
        line.and_then(Message::from_line).ok_or(Error::text("ERR That is nothing that a node says"))?;
    shard.happened(Event::Received { link, from, message });
    Ok(())
}

/// INSYNC END: what is asked is answered as a line of the link's.
fn end(context: &mut Context<'_, '_>, _: &mut Reply<'_>) -> Result<()> {
    shard(context)?;
    context.session.link.ok_or(NO_LINK)?;
    // What it has taken needs no more of the stream than is written by now.
    let line = format!("{END}{}", feeding::end(context.server));
    say_line(&context.server.net.clients, &context.session.client, &line);
    Ok(())
}

const NO_LINK: Error = Error::text("ERR This connection is no link between nodes: see INSYNC LINK");
