//! What is served to clients: Tarn as `net` sees it. What a connection asks of its service is passed on to whoever does it.

use crate::blocking::{self, Cut};
use crate::dispatch::{Runner, ownership};
use crate::feeding::{self, joining, synced};
use crate::refusals;
use crate::rights;
use crate::server::{Ending, Server};
use crate::session::Session;
use crate::tick;
use acl::Access;
use config::Config;
use engine::durability;
use net::client::Client;
use net::service::{Closing, Service, Stop, Until};
use net::{Shared, tls, worker};
use std::sync::Arc;
use sys::{Shown, Stamp, TickClock};
use telemetry::log;
use telemetry::stats::ServerCounts;

impl Service for Server {
    type Session = Session;
    type Runner = Runner;

    #[inline]
    fn net(&self) -> &Shared {
        &self.net
    }

    #[inline]
    fn config(&self) -> &Config {
        &self.engine.config
    }

    #[inline]
    fn counts(&self) -> &ServerCounts {
        &self.counts
    }

    #[inline]
    fn ticks(&self) -> &TickClock {
        &self.ticks
    }

    fn requires_password(&self) -> bool {
        !self.acl.is_open()
    }

    fn is_ending(&self) -> bool {
        self.engine.is_ending()
    }

    async fn ended(&self) {
        // Whoever could say so lives as long as the server.
        let _ = self.ending().wait_for(|ending| *ending != Ending::NotYet).await;
    }

    fn begin_thread(&self) {
        durability::gather();
        keyspace::when_stuck(worker::make_way);
    }

    fn rest(&self, worker: usize) {
        synced::ask(self);
        self.shard.note_end(|| feeding::end(self));
        feeding::pass_gathered(self, || self.net.placement.connections_of(worker));
    }

    async fn work(self: Arc<Server>, worker: usize) {
        tick::run(&self, worker).await;
    }

    fn runner(self: &Arc<Server>, worker: usize) -> Runner {
        Runner::new(self.clone(), worker)
    }

    fn begin(&self, client: &Arc<Client>) -> Session {
        Session::new(client.clone(), Access::newcomer(&self.acl))
    }

    fn end(&self, session: &mut Session) {
        session.end(self);
    }

    fn meet(&self, session: &mut Session, secure: &tls::Session) {
        rights::name_user(self, session, secure);
    }

    #[inline]
    fn is_unauthenticated(&self, session: &Session) -> bool {
        session.access.is_unauthenticated(&self.acl)
    }

    #[inline]
    fn run(
        runner: &mut Runner,
        session: &mut Session,
        requests: &wire::Batch,
        input: &[u8],
        from: usize,
        out: &mut Vec<u8>,
    ) -> (Stop, Shown) {
        runner.run(session, requests, input, (from, requests.len()), out)
    }

    fn feed(runner: &mut Runner, session: &mut Session, out: &mut Vec<u8>) {
        let Some(replica) = &session.replica else { return };
        if let Err(error) = joining::feed(runner.server(), replica, out) {
            log!(Warning, "Replica {} is closed: {error}", replica.name());
            session.closing = Closing::Now;
        }
    }

    fn note_blank(&self, session: &Session) {
        if let Some(replica) = &session.replica {
            replica.note_alive(self.engine.clock.now());
        }
    }

    fn unreplicated(&self) -> Vec<u8> {
        refusals::UNREPLICATED.as_bytes().to_vec()
    }

    fn latest(&self) -> Stamp {
        Server::latest(self)
    }

    fn look_again(&self, session: &mut Session) {
        ownership::leave_moved(self, session);
    }

    fn time_is_up(&self, worker: usize, session: &Session) {
        blocking::cut(self, worker, session.client.id, Cut::Timeout);
    }

    fn give_up_wait(&self, session: &mut Session) -> bool {
        let is_given_up = self.blocked.end(&self.engine.keyspace, session.client.id).is_some();
        if is_given_up {
            session.waits = None;
        }
        is_given_up
    }
}

impl net::service::Session for Session {
    #[inline]
    fn client(&self) -> &Arc<Client> {
        &self.client
    }

    #[inline]
    fn closing(&self) -> Closing {
        self.closing
    }

    fn close(&mut self, closing: Closing) {
        self.closing = closing;
    }

    #[inline]
    fn waits(&self) -> Option<Until> {
        self.waits
    }

    fn wait_is_over(&mut self) {
        self.waits = None;
    }

    #[inline]
    fn is_fetching(&self) -> bool {
        self.fetch.as_ref().is_some_and(|fetch| !fetch.is_done())
    }

    fn forget_fetch(&mut self) {
        self.fetch = None;
    }

    #[inline]
    fn is_fed(&self) -> bool {
        self.replica.is_some()
    }

    #[inline]
    fn owes(&self) -> bool {
        false
    }

    #[inline]
    fn is_tied(&self) -> bool {
        false
    }

    fn wait_for_owed(&mut self) {}
}
