//! The proxy as `net` sees it.

use crate::bandwidth::{Bandwidth, Figures};
use crate::cache::Cache;
use crate::heard::{Changes, Hearing};
use crate::links::{self, Speech, conversation::Key, own::OwnConnections};
use crate::reading::Reading;
use crate::replicas::Replicas;
use crate::run::Runner;
use crate::shards::Shards;
use crate::takeover::{self, Taken};
use crate::upstream::Upstream;
use crate::users::Users;
use crate::waits::{Called, Ends, Waits};
use crate::ways::Way;
use crate::written::Written;
use command::Error;
use config::Config;
use net::client::{Client, Traits};
use net::service::{self, Closing, Service, Session as _, Stop, Until};
use net::{Shared, tls};
use parking_lot::Mutex;
use server::server::Server;
use server::session::Session;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use sys::{Shown, Stamp, TickClock};
use telemetry::stats::ServerCounts;

/// The proxy: a server without data, its host, in front of others.
pub struct Proxy {
    /// Knows clients, users and directives, and answers what needs no data.
    pub host: Arc<Server>,
    /// Who is behind it.
    pub upstream: Arc<Upstream>,
    /// What its clients listen to.
    pub hearing: Hearing,
    /// Which keys are modified, for those of them that track.
    pub changes: Changes,
    /// Replies to reads of hot keys.
    pub cache: Arc<Cache>,
    /// Who follows the servers.
    pub replicas: Replicas,
    /// At which servers its clients wait.
    pub waits: Waits,
    /// How many connections they have to themselves.
    pub own_connections: OwnConnections,
    /// What is counted of each server.
    pub shards: Shards,
    /// How much is moved for clients, and who waits for that.
    pub bandwidth: Bandwidth,
    /// Another process has taken over from it.
    pub is_draining: AtomicBool,
    /// Its users, if a cluster's store keeps them.
    pub users: Option<Arc<Users>>,
    /// What it has taken over, until it serves.
    pub taken: Mutex<Taken>,
    /// How many workers do not serve yet.
    pub idle_workers: AtomicUsize,
    /// Which way commands go, by their places in the table.
    pub ways: Vec<Way>,
}

/// The state of one client.
pub struct Front {
    /// What the host knows of it.
    pub inner: Session,
    /// Where the replies are gathered that it is owed.
    pub key: Option<Key>,
    /// How many it is owed, as far as it has looked.
    pub owed: usize,
    /// Why its next request is refused, where that has been found out and others are to be answered first.
    pub refused: Option<Error>,
    /// By which routes it has asked for what it is owed.
    pub version: u64,
    /// The slot of the keys of its transaction, as far as that has come.
    pub queued_slot: Option<u16>,
    /// What it is owed that it caches.
    pub reading: Reading,
    /// Something that it is owed was asked of a replica: what it asks of others waits.
    pub is_at_replica: bool,
    /// Which servers it has written to.
    pub written: Written,
    /// The slot of the keys that it watches.
    pub watched_slot: Option<u16>,
    /// What it is owed comes over a connection that it has to itself: what it asks next waits.
    pub is_alone: bool,
    /// Nothing further is run for it, nor is it kept, before what it waits for at a server is there.
    pub is_blocked: bool,
    /// Users are changed for it, and its request is answered when that is done.
    pub changes_users: bool,
    /// What has to be before anything further is run.
    wait: Option<Wait>,
}

/// What a client's next request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// That the client is owed so many replies at most.
    Owed(usize),
    /// That a link takes requests again.
    Room,
    /// That what it wants to listen to is listened to, or that users are changed as it wants.
    Heard,
}

impl Front {
    /// Nothing further is run before this.
    pub fn wait_for(&mut self, wait: Wait) {
        self.wait = Some(wait);
    }

    /// How its requests are said to servers.
    #[inline]
    pub fn speech(&self) -> Speech {
        let Session { protocol, db, client, .. } = &self.inner;
        let is_no_touch = client.traits().contains(Traits::NO_TOUCH);
        Speech { protocol: *protocol, db: db.0 as usize, is_no_touch }
    }

    /// It was woken, and may be owed less than before.
    pub fn look_whether_it_waits(&mut self) {
        self.wait = self.wait.filter(|wait| matches!(wait, Wait::Owed(most) if self.owed > *most));
    }
}

impl Proxy {
    /// Nothing further is run for a client, nor is it kept, before what it waits for at servers is there.
    pub fn block(&self, front: &mut Front, ends: Ends) {
        front.is_blocked = true;
        front.inner.client.set_trait(Traits::BLOCKED, true);
        self.waits.begin(front.inner.client.id, ends);
    }

    /// Wakes a client of which no server knows that it waits (see [`Waits::call_here`]).
    pub fn call_here(&self, client: u64, called: Called) -> Option<bool> {
        let is_called = self.waits.call_here(client, called);
        if let Some(client) = self.host.net.clients.get(client).filter(|_| is_called == Some(true)) {
            client.wake();
        }
        is_called
    }
}

impl Service for Proxy {
    type Session = Front;
    type Runner = Runner;

    #[inline]
    fn net(&self) -> &Shared {
        self.host.net()
    }

    #[inline]
    fn config(&self) -> &Config {
        self.host.config()
    }

    #[inline]
    fn counts(&self) -> &ServerCounts {
        self.host.counts()
    }

    #[inline]
    fn ticks(&self) -> &TickClock {
        self.host.ticks()
    }

    fn requires_password(&self) -> bool {
        self.host.requires_password()
    }

    fn is_ending(&self) -> bool {
        self.host.is_ending()
    }

    async fn ended(&self) {
        self.host.ended().await;
    }

    fn begin_thread(&self) {
        self.host.begin_thread();
    }

    fn rest(&self, worker: usize) {
        links::rest();
        self.host.rest(worker);
    }

    async fn work(self: Arc<Proxy>, worker: usize) {
        // The last one: all serve.
        if self.idle_workers.fetch_sub(1, Ordering::AcqRel) == 1 {
            takeover::begin(&self);
        }
        self.host.clone().work(worker).await;
    }

    fn runner(self: &Arc<Proxy>, worker: usize) -> Runner {
        Runner::new(self.clone(), worker)
    }

    fn begin(&self, client: &Arc<Client>) -> Front {
        Front {
            inner: self.host.begin(client),
            key: None,
            owed: 0,
            refused: None,
            version: 0,
            queued_slot: None,
            reading: Reading::default(),
            is_at_replica: false,
            written: Written::default(),
            watched_slot: None,
            is_alone: false,
            is_blocked: false,
            changes_users: false,
            wait: None,
        }
    }

    fn end(&self, front: &mut Front) {
        if front.is_blocked {
            self.waits.end(front.inner.client.id);
        }
        if let Some(key) = front.key.take() {
            links::forget(key);
        }
        if front.is_tied() {
            links::dismiss(front.inner.client.id);
        }
        self.bandwidth.forget(&front.inner.client);
        if let Some(users) = self.users.as_ref().filter(|_| front.changes_users) {
            users.forget(front.inner.client.id);
        }
        Service::end(&*self.host, &mut front.inner);
    }

    fn meet(&self, front: &mut Front, secure: &tls::Session) {
        self.host.meet(&mut front.inner, secure);
    }

    fn look_again(&self, front: &mut Front) {
        self.host.look_again(&mut front.inner);
    }

    #[inline]
    fn is_unauthenticated(&self, front: &Front) -> bool {
        self.host.is_unauthenticated(&front.inner)
    }

    #[inline]
    fn run(
        runner: &mut Runner,
        front: &mut Front,
        requests: &wire::Batch,
        input: &[u8],
        from: usize,
        out: &mut Vec<u8>,
    ) -> (Stop, Shown) {
        runner.run(front, requests, input, from, out)
    }

    fn feed(runner: &mut Runner, front: &mut Front, out: &mut Vec<u8>) {
        runner.feed(front, out);
    }

    fn note_blank(&self, front: &Front) {
        self.host.note_blank(&front.inner);
    }

    fn unreplicated(&self) -> Vec<u8> {
        self.host.unreplicated()
    }

    fn latest(&self) -> Stamp {
        Service::latest(&*self.host)
    }

    fn time_is_up(&self, worker: usize, front: &Front) {
        self.host.time_is_up(worker, &front.inner);
    }

    #[inline]
    fn is_short(&self, _: &Arc<Client>) -> bool {
        self.bandwidth.is_short(|| Figures::of(self))
    }

    fn holds_back(&self, client: &Arc<Client>) -> bool {
        self.bandwidth.holds_back(client)
    }

    fn give_up_wait(&self, front: &mut Front) -> bool {
        if !front.is_blocked {
            return self.host.give_up_wait(&mut front.inner);
        }
        if front.key.is_some_and(|key| links::leave(front.inner.client.id, key)) {
            return false;
        }
        front.is_blocked = false;
        self.waits.end(front.inner.client.id);
        // What it waited for is not taken for it.
        links::dismiss(front.inner.client.id);
        if let Some(key) = front.key.take() {
            links::forget(key);
        }
        (front.owed, front.is_alone, front.is_at_replica) = (0, false, false);
        front.reading = Reading::default();
        true
    }
}

impl service::Session for Front {
    #[inline]
    fn client(&self) -> &Arc<Client> {
        &self.inner.client
    }

    #[inline]
    fn closing(&self) -> Closing {
        self.inner.closing
    }

    fn close(&mut self, closing: Closing) {
        self.inner.closing = closing;
    }

    #[inline]
    fn waits(&self) -> Option<Until> {
        if self.is_blocked { Some(None) } else { self.inner.waits }
    }

    fn wait_is_over(&mut self) {
        self.inner.waits = None;
    }

    #[inline]
    fn is_fetching(&self) -> bool {
        self.wait.is_some() || service::Session::is_fetching(&self.inner)
    }

    fn forget_fetch(&mut self) {
        service::Session::forget_fetch(&mut self.inner);
    }

    #[inline]
    fn is_fed(&self) -> bool {
        self.key.is_some() || self.wait.is_some()
    }

    #[inline]
    fn owes(&self) -> bool {
        self.owed > 0
    }

    #[inline]
    fn is_tied(&self) -> bool {
        self.owed > 0 || self.watched_slot.is_some()
    }

    fn wait_for_owed(&mut self) {
        self.wait_for(Wait::Owed(0));
    }
}
