//! SUBSCRIBE, PUBLISH and their kin, and PUBSUB.
//!
//! A confirmation is a message like those that follow it, and is sent even if the
//! session wants no replies.

use super::{HELP_FLAGS, help, row, unknown_subcommand};
use crate::dispatch::Context;
use crate::dispatch::handlers::ServerHandler;
use crate::dispatch::ownership;
use crate::feeding;
use command::key_use::KeyFlags;
use command::{Channels, Error, Flags, Group, Keys, Reach, Result, Row, Shows};
use notify::pubsub::{self, Kind};
use std::sync::Arc;
use wire::{Reply, Request};

const LISTENS: Flags = Flags::PUBSUB
    .union(Flags::NOSCRIPT)
    .union(Flags::LOADING)
    .union(Flags::STALE)
    .union(Flags::ANSWERS_BY_MESSAGE)
    .union(Flags::AMONG_MESSAGES);
const PUBLISHES: Flags =
    Flags::PUBSUB.union(Flags::LOADING).union(Flags::STALE).union(Flags::FAST).union(Flags::MAY_REPLICATE);
const ASKS: Flags = Flags::PUBSUB.union(Flags::LOADING).union(Flags::STALE);

/// Publish and subscribe.
pub const ROWS: &[Row<ServerHandler>] = &[
    listens("psubscribe", -2, |context, reply| begin(context, reply, Kind::Pattern))
        .shows(Shows::Nothing)
        .channels(Channels::Patterns)
        .complexity("O(N) where N is the number of patterns to subscribe to.")
        .syntax("pattern [pattern ...]")
        .summary("Listens to all channels whose names fit the patterns."),
    row("publish", 3, Reach::Nothing, PUBLISHES, publish)
        .flags(Flags::IN_APPEND_ONLY_FILE)
        .shows(Shows::Nothing)
        .channels(Channels::First)
        .since("2.0.0")
        .group(Group::Pubsub)
        .complexity(
            "O(N+M) where N is the number of clients subscribed to the receiving channel and M is the total \
             number of subscribed patterns (by any client).",
        )
        .syntax("channel message")
        .summary("Posts a message to a channel."),
    row("pubsub", -2, Reach::Nothing, Flags::PROTECTED, |context, _| unknown_subcommand(context))
        .shows(Shows::Nothing)
        .since("2.8.0")
        .group(Group::Pubsub)
        .complexity("Depends on subcommand.")
        .summary("A container for commands about channels.")
        .subcommands(SUBCOMMANDS),
    listens("punsubscribe", -1, |context, reply| end(context, reply, Kind::Pattern))
        .shows(Shows::Nothing)
        .complexity("O(N) where N is the number of patterns to unsubscribe.")
        .syntax("[pattern [pattern ...]]")
        .summary("Ends subscriptions to patterns, or to all of them."),
    row("spublish", 3, Reach::Nothing, PUBLISHES, publish_in_shard)
        .flags(Flags::IN_APPEND_ONLY_FILE)
        .shows(Shows::Nothing)
        .channels(Channels::First)
        .since("7.0.0")
        .group(Group::Pubsub)
        .keys(Keys::FIRST)
        .key_flags(&[KeyFlags::NOT_KEY])
        .complexity("O(N) where N is the number of clients subscribed to the receiving shard channel.")
        .syntax("shardchannel message")
        .summary("Posts a message to a shard channel."),
    listens("ssubscribe", -2, |context, reply| begin(context, reply, Kind::ShardChannel))
        .shows(Shows::Nothing)
        .channels(Channels::All)
        .since("7.0.0")
        .keys(Keys::ALL)
        .key_flags(&[KeyFlags::NOT_KEY])
        .complexity("O(N) where N is the number of shard channels to subscribe to.")
        .syntax("shardchannel [shardchannel ...]")
        .summary("Listens to shard channels."),
    listens("subscribe", -2, |context, reply| begin(context, reply, Kind::Channel))
        .shows(Shows::Nothing)
        .channels(Channels::All)
        .complexity("O(N) where N is the number of channels to subscribe to.")
        .syntax("channel [channel ...]")
        .summary("Listens to channels."),
    listens("sunsubscribe", -1, |context, reply| end(context, reply, Kind::ShardChannel))
        .shows(Shows::Nothing)
        .since("7.0.0")
        .keys(Keys::ALL)
        .key_flags(&[KeyFlags::NOT_KEY])
        .complexity("O(N) where N is the number of shard channels to unsubscribe.")
        .syntax("[shardchannel [shardchannel ...]]")
        .summary("Ends subscriptions to shard channels, or to all of them."),
    listens("unsubscribe", -1, |context, reply| end(context, reply, Kind::Channel))
        .shows(Shows::Nothing)
        .complexity("O(N) where N is the number of channels to unsubscribe.")
        .syntax("[channel [channel ...]]")
        .summary("Ends subscriptions to channels, or to all of them."),
];

const SUBCOMMANDS: &[Row<ServerHandler>] = &[
    sub("pubsub|channels", -2, ASKS, channels)
        .shows(Shows::Nothing)
        .complexity(
            "O(N) where N is the number of active channels, and assuming constant time pattern matching \
             (relatively short channels and patterns)",
        )
        .syntax("[pattern]")
        .summary("Lists the channels that somebody listens to."),
    sub("pubsub|help", 2, HELP_FLAGS.union(Flags::PROTECTED), pubsub_help)
        .shows(Shows::Nothing)
        .since("6.2.0").summary("Lists the subcommands."),
    sub("pubsub|numpat", 2, ASKS, pattern_count)
        .shows(Shows::Nothing)
        .summary("Counts the patterns that somebody listens to."),
    sub("pubsub|numsub", -2, ASKS, subscriber_counts)
        .shows(Shows::Nothing)
        .complexity("O(N) for the NUMSUB subcommand, where N is the number of requested channels")
        .syntax("[channel [channel ...]]")
        .summary("Counts the subscribers of channels."),
    sub("pubsub|shardchannels", -2, ASKS, shard_channels)
        .shows(Shows::Nothing)
        .since("7.0.0")
        .complexity(
            "O(N) where N is the number of active shard channels, and assuming constant time pattern matching \
             (relatively short shard channels).",
        )
        .syntax("[pattern]")
        .summary("Lists the shard channels that somebody listens to."),
    sub("pubsub|shardnumsub", -2, ASKS, shard_subscriber_counts)
        .shows(Shows::Nothing)
        .since("7.0.0")
        .complexity("O(N) for the SHARDNUMSUB subcommand, where N is the number of requested shard channels")
        .syntax("[shardchannel [shardchannel ...]]")
        .summary("Counts the subscribers of shard channels."),
];

const fn listens(name: &'static str, arity: i32, handler: ServerHandler) -> Row<ServerHandler> {
    row(name, arity, Reach::Nothing, LISTENS, handler).since("2.0.0").group(Group::Pubsub)
}

const fn sub(name: &'static str, arity: i32, flags: Flags, handler: ServerHandler) -> Row<ServerHandler> {
    row(name, arity, Reach::Nothing, flags, handler).since("2.8.0").group(Group::Pubsub)
}

/// SUBSCRIBE channel [channel ...], PSUBSCRIBE, SSUBSCRIBE
fn begin(context: &mut Context<'_, '_>, reply: &mut Reply<'_>, kind: Kind) -> Result<()> {
    let word = match kind {
        Kind::Channel => "subscribe",
        Kind::Pattern => "psubscribe",
        Kind::ShardChannel => "ssubscribe",
    };
    let (pubsub, session) = (&context.server.pubsub, &mut *context.session);
    for name in context.request.iter().skip(1) {
        let count = pubsub.subscribe(&session.client, &mut session.subscriptions, kind, name);
        if kind == Kind::ShardChannel {
            ownership::note_listener(context.server, name);
        }
        confirm(reply, word, Some(name), count);
    }
    Ok(())
}

/// UNSUBSCRIBE [channel [channel ...]], PUNSUBSCRIBE, SUNSUBSCRIBE
fn end(context: &mut Context<'_, '_>, reply: &mut Reply<'_>, kind: Kind) -> Result<()> {
    let word = match kind {
        Kind::Channel => "unsubscribe",
        Kind::Pattern => "punsubscribe",
        Kind::ShardChannel => "sunsubscribe",
    };
    let given: Vec<Arc<[u8]>> = context.request.iter().skip(1).map(Arc::from).collect();
    let subscriptions = context.session.subscriptions.as_ref();
    let names = match given.is_empty() {
        true => subscriptions.map(|subscriptions| subscriptions.all(kind)).unwrap_or_default(),
        false => given,
    };
    // Nothing may come between the replies of a transaction.
    let is_alone = context.session.transaction.is_none();
    let (pubsub, client) = (&context.server.pubsub, context.session.client.clone());
    if is_alone {
        // No message of a channel may come behind the confirmation that it is left: no more are posted from now on, and what is
        // sealed is waited for.
        names.iter().for_each(|name| pubsub.close(&client, kind, name));
        context.session.is_leaving = client.has_sealed_mail();
        if context.session.is_leaving {
            return Err(Error::InUse);
        }
    }
    let listened = context.session.subscriptions.is_some();
    let left = &mut context.session.subscriptions;
    let leave = |name: &Arc<[u8]>| pubsub.unsubscribe(&client, left, kind, name);
    let counts: Vec<usize> = names.iter().map(leave).collect();
    if is_alone {
        context.enclose(&client.take_mail(), reply);
        if listened && !context.session.hears_itself() {
            // Sealed since this began, and of nothing that it has listened to: whoever posted it comes after this.
            client.drop_mail();
        }
    }
    names.iter().zip(counts).for_each(|(name, count)| confirm(reply, word, Some(name), count));
    if names.is_empty() {
        let subscriptions = context.session.subscriptions.as_ref();
        confirm(reply, word, None, subscriptions.map_or(0, |all| all.shown_count(kind)));
    }
    Ok(())
}

fn confirm(reply: &mut Reply<'_>, word: &str, name: Option<&[u8]>, count: usize) {
    reply.push(3);
    reply.bulk(word.as_bytes());
    match name {
        Some(name) => reply.bulk(name),
        None => reply.null(),
    }
    reply.int(count as i64);
}

/// PUBLISH channel message
fn publish(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let (pubsub, clients, request) = (&context.server.pubsub, &context.server.net.clients, context.request);
    reply.int(pubsub.publish(clients, request.arg(1), request.arg(2)) as i64);
    // In a cluster all other nodes are told at once, replicas among them.
    match context.server.clustered.is_on() {
        true => answer_with_message(context),
        false => pass_on(context),
    }
    Ok(())
}

/// In a cluster whoever was told that it is published may publish what follows at another node, and it would come first, or alone: so the reply waits for what the
/// message waits for. Where a server is master no more that may take until it follows another, and where what waits is dropped then, so is the reply.
fn answer_with_message(context: &Context<'_, '_>) {
    context.batch.see_all();
}

/// Replicas have subscribers, too. They hear of it behind what the same transaction or script has written.
fn pass_on(context: &mut Context<'_, '_>) {
    if !feeding::is_read(context.server) {
        return;
    }
    let mut request = Vec::new();
    wire::encode_request(&mut request, &context.request.iter().collect::<Vec<_>>());
    if context.batch.is_holding() || context.session.runs_script {
        context.session.published.extend(request);
    } else {
        feeding::pass_on(context.server, (&context.session.client, context.session.db), &request);
    }
}

/// SPUBLISH shardchannel message
fn publish_in_shard(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let (pubsub, clients, request) = (&context.server.pubsub, &context.server.net.clients, context.request);
    reply.int(pubsub.publish_in_shard(clients, request.arg(1), request.arg(2)) as i64);
    if context.server.clustered.is_on() {
        answer_with_message(context);
    }
    pass_on(context);
    Ok(())
}

/// PUBSUB CHANNELS [pattern]
fn channels(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    list(&context.server.pubsub.channels, context.request, reply)
}

/// PUBSUB SHARDCHANNELS [pattern]
fn shard_channels(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    list(&context.server.pubsub.shard_channels, context.request, reply)
}

fn list(known: &pubsub::Channels, request: Request<'_>, reply: &mut Reply<'_>) -> Result<()> {
    if request.len() > 3 {
        return Err(Error::quoting(
            "ERR unknown subcommand or wrong number of arguments for '",
            request.arg(1),
            "'. Try PUBSUB HELP.",
        ));
    }
    let names = known.names(request.get(2));
    reply.array(names.len());
    names.iter().for_each(|name| reply.bulk(name));
    Ok(())
}

/// PUBSUB NUMSUB [channel [channel ...]]
fn subscriber_counts(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    count_subscribers(&context.server.pubsub.channels, context.request, reply)
}

/// PUBSUB SHARDNUMSUB [shardchannel [shardchannel ...]]
fn shard_subscriber_counts(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    count_subscribers(&context.server.pubsub.shard_channels, context.request, reply)
}

fn count_subscribers(known: &pubsub::Channels, request: Request<'_>, reply: &mut Reply<'_>) -> Result<()> {
    reply.array((request.len() - 2) * 2);
    for channel in request.iter().skip(2) {
        reply.bulk(channel);
        reply.int(known.subscribers_of(channel) as i64);
    }
    Ok(())
}

/// PUBSUB NUMPAT
fn pattern_count(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    reply.int(context.server.pubsub.patterns.count() as i64);
    Ok(())
}

/// PUBSUB HELP
fn pubsub_help(_: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    const LINES: &[&str] = &[
        "CHANNELS [<pattern>]",
        "    The channels that somebody listens to.",
        "NUMPAT",
        "    How many patterns somebody listens to.",
        "NUMSUB [<channel> ...]",
        "    How many listen to each of these channels; patterns are not counted.",
        "SHARDCHANNELS [<pattern>]",
        "    The shard channels that somebody listens to.",
        "SHARDNUMSUB [<shardchannel> ...]",
        "    How many listen to each of these shard channels.",
    ];
    help(reply, "PUBSUB", LINES)
}
