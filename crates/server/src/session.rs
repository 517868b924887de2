//! A session's own state: what its commands read and change. It belongs to the
//! worker that the connection is on, and nobody else sees it; what others may see
//! is in its [`Client`].

use crate::clustered::{Link, View};
use crate::holders::ClaimId;
use crate::replicas::replica::{Replica, Said};
use crate::server::Server;
use crate::transaction::Transaction;
use acl::{Access, Setting};
use engine::Attention;
use engine::residency::fetch::Fetch;
use keyspace::{DbIndex, Stamp, Touch};
use net::client::{Client, Letters, Traits};
use net::service::{Closing, Until};
use notify::monitor::Caller;
use notify::pubsub::Subscriptions;
use notify::tracking::Tracker;
use notify::watches::Watched;
use replication::insync::{LinkId, MemberId};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use sys::UnixMs;
use topology::ServerId;
use wire::Protocol;

/// How long a read of what is not on disk waits for the log to go on: it tries twice a second.
const ASKS_FOR_MS: u64 = 1000;

/// Whether replies are sent (CLIENT REPLY).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyMode {
    /// They are.
    On,
    /// None is until further notice.
    Off,
    /// The reply to the command after this one is not.
    SkipNext,
    /// The reply to this command is not.
    Skip,
    /// It is a replica, and a reply ends it: what it is sent is not made of replies.
    Stream,
}

/// One client's state.
pub struct Session {
    /// The part that others see.
    pub client: Arc<Client>,
    /// The database selected.
    pub db: DbIndex,
    /// The protocol that HELLO chose.
    pub protocol: Protocol,
    /// Whose rights it has.
    pub access: Access,
    /// Whether replies are sent.
    pub reply_mode: ReplyMode,
    /// Whether its commands count as uses of their keys.
    pub touch: Touch,
    /// Whether the connection goes on.
    pub closing: Closing,
    /// Requests since MULTI.
    pub transaction: Option<Box<Transaction>>,
    /// Keys that it watches.
    pub watched: Watched,
    /// Set by a request that has to wait; nothing further runs until that is over.
    pub waits: Option<Until>,
    /// What its next requests need and is being read from disk; they run when that is done.
    pub fetch: Option<Arc<Fetch>>,
    /// Its next request waits for what slow runs hold, or for others who do.
    pub claim: Option<ClaimId>,
    /// Until when it asks again for what is not on disk while the log does not go on.
    asks_until: Option<UnixMs>,
    /// A script runs its commands now.
    pub runs_script: bool,
    /// The moment that its script has seen, in microseconds since 1970: it sees no other until it is slow.
    pub script_time_us: Option<u64>,
    /// What its transaction or script has published, for replicas: whole requests.
    pub published: Vec<u8>,
    /// What it listens to; None of nothing.
    pub subscriptions: Option<Box<Subscriptions>>,
    /// Some of that is closed, and its next request, which was held back, leaves it.
    pub is_leaving: bool,
    /// How it tracks what it caches; None if it does not.
    pub tracking: Option<Box<Tracker>>,
    /// What it has said as one that may become a replica.
    pub said: Option<Box<Said>>,
    /// The replica that it is.
    pub replica: Option<Arc<Replica>>,
    /// It may read from replicas of a cluster (READONLY).
    pub reads_replicas: bool,
    /// The link to another node of the shard that it is, and whose.
    pub link: Option<(LinkId, MemberId)>,
    /// Which node of the cluster it is, that is told of what is published here.
    pub hears_as: Option<ServerId>,
    /// By which view of the cluster its script or transaction was let in, which is over before another counts for it.
    pub let_in_by: Option<Arc<View>>,
    /// What it brings, as the master of another shard.
    pub brings: Option<Box<Brings>>,
}

/// What a session may bring of a move of slots, and how far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Brings {
    /// The move.
    pub id: u64,
    /// By what it is known ([`crate::arrivals`]).
    pub token: u64,
    /// How many requests are done of what it has brought last, which is to be run again.
    pub done: usize,
}

impl Session {
    /// The state of a new connection.
    pub fn new(client: Arc<Client>, access: Access) -> Session {
        Session {
            client,
            db: DbIndex(0),
            protocol: Protocol::Resp2,
            access,
            reply_mode: ReplyMode::On,
            touch: Touch::Yes,
            closing: Closing::No,
            transaction: None,
            watched: Watched::default(),
            waits: None,
            fetch: None,
            claim: None,
            asks_until: None,
            runs_script: false,
            script_time_us: None,
            published: Vec::new(),
            subscriptions: None,
            is_leaving: false,
            tracking: None,
            said: None,
            replica: None,
            reads_replicas: false,
            link: None,
            hears_as: None,
            let_in_by: None,
            brings: None,
        }
    }

    /// Is told of nothing any more: no commands, no messages, no invalidations.
    pub fn listen_no_more(&mut self, server: &Server) {
        let client = &self.client;
        server.monitors.leave(client, |any| server.engine.set_attention(Attention::MONITORS, any));
        server.tracking.disable(&server.engine.keyspace, client, &mut self.tracking);
        server.pubsub.leave_all(client, &mut self.subscriptions);
        if let Some(id) = self.hears_as.take() {
            if let Some(part) = server.clustered.get() {
                part.note_link(Link::From(id, client.id), None);
            }
            server.pubsub.nodes.leave(client);
            client.set_trait(Traits::REPLICA, false);
        }
    }

    /// Brings slots from here on.
    pub fn bring(&mut self, brings: Brings) {
        self.brings = Some(Box::new(brings));
        self.client.set_trait(Traits::BRINGS, true);
    }

    /// Gives back what it held in the server: its client is gone.
    pub fn end(&mut self, server: &Server) {
        self.listen_no_more(server);
        server.blocked.end(&server.engine.keyspace, self.client.id);
        if let Some(replica) = self.replica.take() {
            server.feeding.leave(&replica, server.engine.clock.now());
        }
        if let Some(((link, _), shard)) = self.link.take().zip(server.shard.get()) {
            shard.lost(link);
        }
        self.give_up_claim(server);
        self.watched.clear(&server.watches, &server.engine.keyspace, &self.client);
    }

    /// Notes up to where in the history there is what it has written, if it has written anything: for its WAIT.
    #[inline]
    pub fn note_written(&self, up_to: Stamp) {
        match self.waits.is_some() {
            _ if up_to == Stamp(0) => {}
            false => self.client.note_written(up_to),
            true => self.client.note_written_waiting(up_to),
        }
    }

    /// Its request has what it claimed, or wants it no more.
    #[inline]
    pub fn give_up_claim(&mut self, server: &Server) {
        if let Some(claim) = self.claim.take() {
            server.holders.take_back(&server.engine, claim);
        }
    }

    /// Whether a read of what is not on disk may be run again, for as long as one may take while the log does not go on.
    pub fn may_ask_again(&mut self, now: UnixMs) -> bool {
        match self.asks_until {
            Some(until) if now < until => true,
            // One that is long past was for another request.
            Some(until) if now.0 < until.0 + ASKS_FOR_MS => {
                self.asks_until = None;
                false
            }
            _ => {
                self.asks_until = Some(UnixMs(now.0 + ASKS_FOR_MS));
                true
            }
        }
    }

    /// Takes the transaction, if there is one, and leaves it.
    pub fn leave_transaction(&mut self) -> Option<Transaction> {
        let transaction = self.transaction.take()?;
        self.client.set_trait(Traits::MULTI, false);
        self.client.queued.store(-1, Ordering::Relaxed);
        self.client.queued_bytes.store(0, Ordering::Relaxed);
        Some(*transaction)
    }

    /// A request of the transaction was refused: EXEC will be, too.
    #[inline]
    pub fn doom_transaction(&mut self) {
        if let Some(transaction) = &mut self.transaction {
            transaction.is_doomed = true;
        }
    }

    /// RESET: the state of a new connection again, but for what the client's library
    /// said of itself.
    pub fn reset(&mut self, access: Access) {
        let client = &self.client;
        client.set_trait(Traits::NO_EVICT | Traits::NO_TOUCH | Traits::BRINGS, false);
        self.brings = None;
        if !client.labels().name.is_empty() {
            client.label(|labels| labels.name = Vec::new());
        }
        self.select(DbIndex(0));
        // What was posted is out, or was sealed: then whoever posted it comes after this.
        self.client.drop_mail();
        self.protocol = Protocol::Resp2;
        self.client.speak_at_once(Protocol::Resp2);
        self.act_as(access);
        // What was said of this very reply holds.
        if self.reply_mode != ReplyMode::Skip {
            self.reply_mode = ReplyMode::On;
        }
        self.touch = Touch::Yes;
        self.set_reads_replicas(false);
    }

    /// READONLY and READWRITE: whether it may read from replicas of a cluster.
    pub fn set_reads_replicas(&mut self, on: bool) {
        self.reads_replicas = on;
        self.client.set_trait(Traits::READS_REPLICAS, on);
    }

    /// Whether its client speaks TLS.
    pub fn is_secure(&self) -> bool {
        self.client.traits().contains(Traits::TLS)
    }

    /// Whose its commands are, for those who monitor.
    pub fn caller(&self) -> Caller<'_> {
        Caller { client: &self.client, db: self.db, runs_script: self.runs_script }
    }

    /// Where its requests are made, for the log of refusals.
    pub fn setting(&self) -> Setting {
        if self.transaction.is_some() { Setting::Transaction } else { Setting::TopLevel }
    }

    /// AUTH: whose rights the session has from now on.
    pub fn act_as(&mut self, access: Access) {
        self.client.set_user(access.user().name());
        self.access = access;
    }

    /// SELECT: the database for the commands that follow.
    pub fn select(&mut self, db: DbIndex) {
        self.db = db;
        self.client.db.store(db.0, Ordering::Relaxed);
    }

    /// HELLO: the protocol for the replies that follow. Returns messages that had been posted in the old one; they go out
    /// first. None, and nothing is changed, while some of them must not. Nothing comes between the replies of a transaction:
    /// there they stay in the mail.
    pub fn speak(&mut self, protocol: Protocol) -> Option<Letters> {
        let letters = match self.transaction {
            None => self.client.speak(protocol)?,
            Some(_) => {
                self.client.speak_at_once(protocol);
                Letters::default()
            }
        };
        self.protocol = protocol;
        Some(letters)
    }

    /// How replies are sent where nobody asks for less.
    pub fn usual_mode(&self) -> ReplyMode {
        if self.replica.is_some() { ReplyMode::Stream } else { ReplyMode::On }
    }

    /// Whether the reply to its request at hand is not sent.
    pub fn is_silent(&self) -> bool {
        matches!(self.reply_mode, ReplyMode::Off | ReplyMode::Skip | ReplyMode::Stream)
    }

    /// Whether only messages may come: a RESP2 client that has subscribed could not tell
    /// replies from them.
    #[inline]
    pub fn is_confined(&self) -> bool {
        self.subscriptions.is_some() && self.protocol == Protocol::Resp2
    }

    /// Whether its own commands may lead to messages for itself.
    #[inline]
    pub fn hears_itself(&self) -> bool {
        self.subscriptions.is_some() || self.tracking.is_some()
    }
}
