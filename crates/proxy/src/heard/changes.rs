//! Which keys are modified at the servers: a connection to each master, which tells of all keys (a broadcast, as of a client that tracks), and the host tells
//! its clients that track.
//!
//! There are such connections only while a client tracks, or replies are kept ([`crate::cache`]). When one is lost, or begins, all clients are told to forget
//! everything, since something may have been missed; what one reads while any is missing it is told to forget at once ([`Changes::is_whole`]).
//!
//! Thread rule: shared. Connections are on the thread of all that listens.

use super::ear::patience;
use super::line::{Line, Waited};
use super::{Heard, every};
use crate::links::{self, NO_DB, Speech};
use crate::serve::Proxy;
use crate::upstream::{NodeNo, Routes};
use net::client::Client;
use net::service::Service;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use telemetry::log;
use tokio::sync::watch;
use tokio::task::spawn_local;
use tokio::time::sleep;
use wire::{Protocol, Value, encode_request};

/// How often it is looked at whether anybody tracks, and which masters there are.
const LOOK: Duration = Duration::from_millis(100);
/// Before a server that was not reached is tried again.
const AGAIN_AFTER: Duration = Duration::from_millis(100);
/// How long connections stay when nobody has wanted them any more.
const UNWANTED_MAX: Duration = Duration::from_secs(2);
/// How long a server may be silent that was asked whether it is there, where no limit is set.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// How long a refusal counts.
const REFUSED_FOR: Duration = Duration::from_millis(500);

#[derive(Default)]
struct State {
    /// When somebody wanted to be told last.
    wanted_at: Option<Instant>,
    /// Who tells.
    telling: BTreeSet<NodeNo>,
    /// Why one does not, and since when.
    refused: Option<(Instant, String)>,
    /// Clients that wait until all masters tell.
    waiting: Vec<Arc<Client>>,
}

impl State {
    fn is_whole(&self, routes: &Routes) -> bool {
        routes.masters.iter().all(|node| self.telling.contains(node))
    }

    fn wake(&mut self) {
        self.waiting.drain(..).for_each(|client| client.wake());
    }
}

/// Whether servers tell which keys are modified.
pub struct Changes {
    state: Mutex<State>,
    /// Counts changes of who is to tell.
    version: watch::Sender<u64>,
}

impl Default for Changes {
    fn default() -> Changes {
        Changes { state: Mutex::default(), version: watch::Sender::new(0) }
    }
}

impl Changes {
    /// A client wants to be told.
    pub fn listen(&self, routes: &Routes, client: &Arc<Client>) -> Heard {
        let now = Instant::now();
        let state = &mut *self.state.lock();
        state.wanted_at = Some(now);
        if state.is_whole(routes) {
            return Heard::Yes;
        }
        if let Some((at, reason)) = &state.refused
            && now - *at < REFUSED_FOR
        {
            return Heard::Refused(reason.clone());
        }
        if !state.waiting.iter().any(|waiting| waiting.id == client.id) {
            state.waiting.push(client.clone());
        }
        self.version.send_modify(|version| *version += 1);
        Heard::NotYet
    }

    /// Whether all masters tell by now.
    pub fn is_whole(&self, routes: &Routes) -> bool {
        self.state.lock().is_whole(routes)
    }

    fn is_wanted(&self, proxy: &Proxy) -> bool {
        let state = self.state.lock();
        // Who waits is told, however long that takes.
        !state.waiting.is_empty()
            || proxy.host.engine.config.proxy_cache_bytes() > 0
            || proxy.host.tracking.is_on()
            || state.wanted_at.is_some_and(|at| at.elapsed() < UNWANTED_MAX)
    }

    fn is_wanted_at(&self, proxy: &Proxy, node: NodeNo) -> bool {
        self.is_wanted(proxy) && proxy.upstream.routes().masters.contains(&node)
    }

    /// A server tells from now on. What it did not tell before is forgotten.
    fn begin(&self, proxy: &Proxy, node: NodeNo) {
        self.state.lock().telling.insert(node);
        forget_everything(proxy);
        let (routes, state) = (proxy.upstream.routes(), &mut *self.state.lock());
        if state.is_whole(&routes) {
            state.refused = None;
            state.wake();
        }
    }

    /// A server tells no more.
    fn end(&self, proxy: &Proxy, node: NodeNo) {
        if self.state.lock().telling.remove(&node) {
            forget_everything(proxy);
        }
    }

    /// Those who wait go on if the masters that there are by now tell.
    fn look(&self, routes: &Routes) {
        let state = &mut *self.state.lock();
        if !state.waiting.is_empty() && state.is_whole(routes) {
            state.wake();
        }
    }

    fn refuse(&self, reason: String) {
        let state = &mut *self.state.lock();
        state.refused = Some((Instant::now(), reason));
        state.wake();
    }
}

fn forget_everything(proxy: &Proxy) {
    proxy.cache.forget_all();
    proxy.host.tracking.invalidate_all(&proxy.net().clients, None);
}

/// Has every master tell while somebody wants to know, as long as the proxy runs.
pub async fn follow(proxy: Arc<Proxy>) {
    let mut known = BTreeSet::new();
    let mut changes = proxy.changes.version.subscribe();
    let mut looks = every(LOOK);
    while !proxy.is_ending() {
        if proxy.changes.is_wanted(&proxy) {
            for node in proxy.upstream.routes().masters.iter().copied() {
                if known.insert(node) {
                    spawn_local(Teller { proxy: proxy.clone(), node }.run());
                }
            }
        }
        tokio::select! {
            _ = changes.changed() => {}
            _ = looks.tick() => {
                proxy.changes.look(&proxy.upstream.routes());
                proxy.cache.keep_within(proxy.host.engine.config.proxy_cache_bytes());
            }
        }
    }
}

/// A connection to one server.
struct Teller {
    proxy: Arc<Proxy>,
    node: NodeNo,
}

impl Teller {
    async fn run(self) {
        let (proxy, node) = (&self.proxy, self.node);
        let server = proxy.upstream.routes().nodes[usize::from(node)].clone();
        let mut changes = proxy.changes.version.subscribe();
        let mut is_told = false;
        loop {
            while !proxy.changes.is_wanted_at(proxy, node) {
                tokio::select! {
                    _ = changes.changed() => {}
                    () = sleep(LOOK) => {}
                }
            }
            let way = Speech { protocol: Protocol::Resp3, db: NO_DB, is_no_touch: false }.to(node);
            let failed = match links::connect(proxy, &server, way).await {
                Ok(socket) => {
                    // One that is silent without end tells nothing.
                    let patience = Some(patience(proxy)).filter(|patience| !patience.is_zero());
                    self.listen(Line::new(socket, patience.unwrap_or(SILENCE_MAX))).await.err()
                }
                Err(reason) => Some(reason.to_string()),
            };
            proxy.changes.end(proxy, node);
            match failed {
                None => is_told = false,
                Some(reason) => {
                    if !std::mem::replace(&mut is_told, true) {
                        log!(Warning, "Which keys are modified at {server} is not known: {reason}");
                    }
                    proxy
                        .changes
                        .refuse(format!("which keys are modified at {server} is not known: {reason}"));
                }
            }
            sleep(AGAIN_AFTER).await;
        }
    }

    /// Has the host tell what is said, until nobody wants to know any more.
    ///
    /// # Errors
    /// The connection is lost, or the server does not tell.
    async fn listen(&self, mut line: Line) -> Result<(), String> {
        let sentence = |error: io::Error| config::sentence(&error);
        let mut request = Vec::new();
        encode_request(&mut request, &[b"CLIENT", b"TRACKING", b"ON", b"BCAST"]);
        line.say(&request).await.map_err(sentence)?;
        let mut looks = every(LOOK);
        loop {
            while let Some(value) = line.take().map_err(sentence)? {
                match value {
                    Value::Push(words) => self.take(&words),
                    Value::Simple(word) if word == b"OK" => self.proxy.changes.begin(&self.proxy, self.node),
                    Value::Error(error) => return Err(String::from_utf8_lossy(&error).into_owned()),
                    // PONG.
                    _ => {}
                }
            }
            tokio::select! {
                waited = line.wait() => match waited.map_err(sentence)? {
                    Waited::Silent => line.ask().await.map_err(sentence)?,
                    Waited::Came => {}
                },
                _ = looks.tick() => if !self.proxy.changes.is_wanted_at(&self.proxy, self.node) {
                    return Ok(());
                },
            }
        }
    }

    /// Takes what it is told.
    fn take(&self, words: &[Value]) {
        let (tracking, clients) = (&self.proxy.host.tracking, &self.proxy.net().clients);
        match words {
            [Value::Bulk(word), Value::Array(keys)] if word == b"invalidate" => {
                // A number under which no command of a client runs.
                let guest = self.proxy.host.engine.following_guest();
                for key in keys {
                    if let Value::Bulk(key) = key {
                        self.proxy.cache.forget(key);
                        tracking.invalidate(clients, guest, key, false);
                    }
                }
                tracking.end_batch(clients, guest);
            }
            [Value::Bulk(word), Value::Null] if word == b"invalidate" => forget_everything(&self.proxy),
            _ => {}
        }
    }
}
