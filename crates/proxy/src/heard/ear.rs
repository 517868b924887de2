//! Connections that listen: one to each server where something is to be heard. RESP2, which every server speaks.
//!
//! Thread rule: that of all that listens.

use super::line::{Line, Waited};
use super::{Change, Topic, every, is_of_events};
use crate::links::{self, Speech};
use crate::serve::Proxy;
use crate::upstream::NodeNo;
use net::service::Service;
use notify::pubsub::Kind;
use std::collections::{BTreeSet, VecDeque};
use std::convert::Infallible;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;
use telemetry::log;
use tokio::sync::watch;
use tokio::task::spawn_local;
use tokio::time::sleep;
use wire::{Protocol, Value, encode_request};

/// How often it is looked at whether what is heard is still wanted, and where.
const LOOK: Duration = Duration::from_millis(100);
/// Before a server that was not reached is tried again.
const AGAIN_AFTER: Duration = Duration::from_millis(100);
/// Before a node of a cluster that was away is listened to again. Others find it again, and it finds them, a moment after it takes requests: until then what is published
/// at one of them does not reach who listens at another, and nobody would be told of that (`who_listens_again_hears_what_is_published_at_a_node_that_was_away`).
const SETTLING: Duration = Duration::from_secs(1);
/// How much a server is told before it has answered to some of that: what it answers waits on its side, which has a bound.
const UNANSWERED_MAX: usize = 1 << 10;
/// How errors begin that are over when the slot's owner is known.
const ELSEWHERE: [&str; 3] = ["MOVED ", "CLUSTERDOWN ", "LOADING "];

/// How long a server may owe something before its connection counts as lost; zero: for ever.
pub fn patience(proxy: &Proxy) -> Duration {
    Duration::from_secs(u64::from(proxy.host.engine.config.proxy_shard_timeout_s()))
}

/// Has one listen at each server where something is to be heard, as long as the proxy runs.
pub async fn listen_for(proxy: Arc<Proxy>) {
    let mut known = BTreeSet::new();
    let mut changes = proxy.hearing.version.subscribe();
    let mut looks = every(LOOK);
    while !proxy.is_ending() {
        for node in proxy.hearing.nodes() {
            if known.insert(node) {
                spawn_local(Ear { proxy: proxy.clone(), node, changes: changes.clone() }.run());
            }
        }
        tokio::select! {
            _ = changes.changed() => {}
            _ = looks.tick() => proxy.hearing.look(&proxy.upstream.routes(), &proxy.host.pubsub),
        }
    }
}

/// One connection.
struct Ear {
    proxy: Arc<Proxy>,
    node: NodeNo,
    changes: watch::Receiver<u64>,
}

impl Ear {
    async fn run(mut self) {
        let server = self.proxy.upstream.routes().nodes[usize::from(self.node)].clone();
        let (mut is_told, mut was_away) = (false, false);
        loop {
            while !self.proxy.hearing.is_wanted_at(self.node) {
                self.proxy.hearing.take_changes(self.node, false, usize::MAX);
                if self.changes.changed().await.is_err() {
                    return;
                }
            }
            let way = Speech { protocol: Protocol::Resp2, db: 0, is_no_touch: false }.to(self.node);
            match links::connect(&self.proxy, &server, way).await {
                Ok(socket) => {
                    is_told = false;
                    if was_away && self.proxy.upstream.routes().is_cluster {
                        sleep(SETTLING).await;
                    }
                    let Err(error) = self.listen(Line::new(socket, patience(&self.proxy))).await;
                    log!(Warning, "What is published at {server} is not heard: {}", config::sentence(&error));
                    // Where another server has its slots by now, nobody else may have a reason to find out.
                    self.proxy.upstream.hurry();
                    self.proxy.hearing.lose(self.node, &self.proxy.host.pubsub);
                }
                Err(reason) => {
                    if !std::mem::replace(&mut is_told, true) {
                        log!(Warning, "What is published at {server} is not heard: {reason}");
                    }
                    // A new connection is told all.
                    self.proxy.hearing.take_changes(self.node, false, usize::MAX);
                    self.proxy.hearing.lose(self.node, &self.proxy.host.pubsub);
                    self.proxy.upstream.hurry();
                    // What is known to be elsewhere is listened to there, and refused to nobody.
                    self.proxy.hearing.look(&self.proxy.upstream.routes(), &self.proxy.host.pubsub);
                    let error = format!("no connection to the shard at {server}: {reason}");
                    self.proxy.hearing.refuse(self.node, None, &error);
                }
            }
            was_away = true;
            sleep(AGAIN_AFTER).await;
        }
    }

    /// Listens until the connection is lost.
    async fn listen(&mut self, mut line: Line) -> io::Result<Infallible> {
        let mut said = VecDeque::new();
        let mut is_new = true;
        loop {
            let mut bytes = Vec::new();
            let most = UNANSWERED_MAX.saturating_sub(said.len());
            for change in self.proxy.hearing.take_changes(self.node, is_new, most) {
                encode(&mut bytes, &change);
                said.push_back(change);
            }
            is_new = false;
            line.say(&bytes).await?;
            let waited = tokio::select! {
                waited = line.wait() => waited?,
                changed = self.changes.changed() => match changed {
                    Ok(()) => continue,
                    Err(_) => return Err(ErrorKind::ConnectionAborted.into()),
                },
            };
            match waited {
                Waited::Silent => line.ask().await?,
                Waited::Came => {
                    while let Some(value) = line.take()? {
                        self.take(&mut said, value);
                    }
                }
            }
        }
    }

    /// Whether clients are told of a message by this server.
    fn is_told(&self, kind: Kind, name: &[u8], channel: &[u8]) -> bool {
        // Each node of a cluster has what fits a pattern, but for events, of which it has its own.
        let is_everywhere =
            kind == Kind::Pattern && !is_of_events(channel) && self.proxy.upstream.routes().is_cluster;
        self.proxy.hearing.is_told_by(self.node, &(kind, Arc::from(name)), is_everywhere)
    }

    /// Takes what comes.
    fn take(&self, said: &mut VecDeque<Change>, value: Value) {
        let (pubsub, clients) = (&self.proxy.host.pubsub, &self.proxy.net().clients);
        let words = match value {
            Value::Array(words) => words,
            Value::Error(line) => {
                if let Some(Change::Listen(topic, _)) = said.pop_front() {
                    let reason = String::from_utf8_lossy(&line).into_owned();
                    self.proxy.upstream.hurry();
                    // Where its slot is elsewhere it is listened to there as soon as that is known.
                    if !ELSEWHERE.iter().any(|word| reason.starts_with(word)) {
                        self.proxy.hearing.refuse(self.node, Some(&topic), &reason);
                    }
                }
                return;
            }
            // PONG, where nothing is listened to.
            _ => return,
        };
        match &words[..] {
            [Value::Bulk(word), Value::Bulk(channel), Value::Bulk(message)] => match &word[..] {
                b"message" if self.is_told(Kind::Channel, channel, channel) => {
                    pubsub.tell(clients, channel, message);
                }
                b"smessage" if self.is_told(Kind::ShardChannel, channel, channel) => {
                    pubsub.publish_in_shard(clients, channel, message);
                }
                _ => {}
            },
            [Value::Bulk(word), Value::Bulk(pattern), Value::Bulk(channel), Value::Bulk(message)]
                if word == b"pmessage" && self.is_told(Kind::Pattern, pattern, channel) =>
            {
                pubsub.tell_pattern(clients, pattern, channel, message);
            }
            [Value::Bulk(word), Value::Bulk(name), Value::Int(_)] => {
                let Some(kind) = kind_of(word) else { return };
                let topic: Topic = (kind, Arc::from(&name[..]));
                if word.ends_with(b"unsubscribe") {
                    // One that nobody has asked for: its slot is elsewhere.
                    match said.front() == Some(&Change::Leave(topic.clone())) {
                        true => drop(said.pop_front()),
                        false => {
                            self.proxy.upstream.hurry();
                            self.proxy.hearing.move_on(self.node, &topic, pubsub);
                        }
                    }
                } else if let Some(Change::Listen(asked, number)) = said.front()
                    && *asked == topic
                {
                    self.proxy.hearing.confirm(self.node, &topic, *number);
                    said.pop_front();
                }
            }
            _ => {}
        }
    }
}

fn kind_of(word: &[u8]) -> Option<Kind> {
    match word {
        b"subscribe" | b"unsubscribe" => Some(Kind::Channel),
        b"psubscribe" | b"punsubscribe" => Some(Kind::Pattern),
        b"ssubscribe" | b"sunsubscribe" => Some(Kind::ShardChannel),
        _ => None,
    }
}

fn encode(bytes: &mut Vec<u8>, change: &Change) {
    let ((kind, name), words) = match change {
        Change::Listen(topic, _) => (topic, [&b"SUBSCRIBE"[..], b"PSUBSCRIBE", b"SSUBSCRIBE"]),
        Change::Leave(topic) => (topic, [&b"UNSUBSCRIBE"[..], b"PUNSUBSCRIBE", b"SUNSUBSCRIBE"]),
    };
    let word = words[match kind {
        Kind::Channel => 0,
        Kind::Pattern => 1,
        Kind::ShardChannel => 2,
    }];
    encode_request(bytes, &[word, name]);
}
