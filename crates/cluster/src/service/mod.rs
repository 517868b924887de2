//! `tarn config` as it serves: RESP for servers, proxies and operators; the state machine ([`crate::control`]) and the store behind it.
//!
//! Thread rule: one thread has all connections and the state machine. The store is asked in threads beside it, since its calls block; one more watches it.

mod client;
mod desk;
mod moves;
mod pace;
mod peer;
mod requests;
#[cfg(test)]
mod tests;
mod users;
mod watcher;

pub use desk::Settings;

use crate::control::view::View;
use crate::control::{Action, Control, Event, Ticket};
use crate::store::{Store, Unavailable};
use desk::{Desk, Followed, Letter, Published, SILENT, ToldUsers};
use pace::Pace;
use replication::insync::Moment;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use telemetry::log;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_rustls::TlsAcceptor;
use topology::ServerId;

/// How long those who were told something last have it written to them.
const ANSWERED_WITHIN: Duration = Duration::from_millis(20);
/// How often time passes for the state machine.
const TICK: Duration = Duration::from_millis(100);
/// Letters that may wait for it.
const LETTERS_MAX: usize = 1024;
/// Calls of the store that may be under way.
const CALLS_MAX: usize = 16;

/// Serves until a signal ends it.
///
/// # Errors
/// One sentence for the operator.
pub fn run(settings: Settings, store: Arc<dyn Store>) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(CALLS_MAX)
        .build()
        .map_err(|error| format!("cannot begin: {error}"))?;
    let done = tokio::task::LocalSet::new().block_on(&runtime, serve(settings, store));
    // A call of the store that hangs is not waited for.
    runtime.shutdown_timeout(Duration::from_millis(100));
    done
}

async fn serve(settings: Settings, store: Arc<dyn Store>) -> Result<(), String> {
    let mut listeners = Vec::new();
    let tls = settings.clients.clone().map(TlsAcceptor::from);
    let ports = [(settings.port, None), (settings.tls_port, tls)];
    for (port, tls) in ports.iter().filter(|(port, _)| *port != 0) {
        for host in &settings.bind {
            let listener = TcpListener::bind((host.as_str(), *port)).await;
            let listener = listener.map_err(|error| format!("cannot listen at {host}:{port}: {error}"))?;
            listeners.push((listener, tls.clone()));
        }
    }
    let (letters, incoming) = mpsc::channel(LETTERS_MAX);
    let (publish, published) = watch::channel(Published::default());
    let desk = Rc::new(Desk::new(settings, store, letters, published));
    watcher::begin(&desk).map_err(|error| format!("cannot begin a thread: {error}"))?;
    tokio::task::spawn_local(peer::tell_leader(desk.clone()));
    for (listener, tls) in listeners {
        tokio::task::spawn_local(client::accept(desk.clone(), listener, tls));
    }
    let shown = ports.iter().filter(|(port, _)| *port != 0).map(|(port, tls)| match tls {
        None => format!("port {port}"),
        Some(_) => format!("port {port} (TLS)"),
    });
    let shown: Vec<String> = shown.collect();
    log!(Notice, "Ready to accept connections at {}, {}", desk.settings.bind.join(","), shown.join(", "));
    Keeper::new(&desk, publish).run(incoming).await;
    Ok(())
}

/// Resolves when a signal says that it is enough.
async fn ended() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut terminate), Ok(mut interrupt)) =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

/// Who has the state machine, and does what it says.
struct Keeper {
    control: Control,
    desk: Rc<Desk>,
    publish: watch::Sender<Published>,
    /// Who waits for which answer.
    asked: BTreeMap<Ticket, oneshot::Sender<Result<String, String>>>,
    tickets: u64,
    /// Servers that are not heard of, as it is told.
    silent: Arc<str>,
    /// Which topology was published last, and when the next one may be.
    topology: Pace,
    /// The same of users.
    users: Pace,
    /// The topology's revision when it was last said who has which place.
    placed: u64,
    /// Whether it was looked whether the cluster has the settings that were said for it.
    has_compared: bool,
}

impl Keeper {
    /// One that knows nothing yet.
    fn new(desk: &Rc<Desk>, publish: watch::Sender<Published>) -> Keeper {
        let pace = Pace::new(Instant::now());
        Keeper {
            control: Control::new(desk.settings.control.clone()),
            desk: desk.clone(),
            publish,
            asked: BTreeMap::new(),
            tickets: 0,
            silent: SILENT.into(),
            topology: pace.clone(),
            users: pace,
            placed: 0,
            has_compared: false,
        }
    }

    async fn run(&mut self, mut incoming: mpsc::Receiver<Letter>) {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let ended = ended();
        tokio::pin!(ended);
        loop {
            let due = self.due();
            tokio::select! {
                () = &mut ended => break,
                Some(letter) = incoming.recv() => self.take(letter),
                _ = tick.tick() => {
                    self.step(Event::Tick);
                    self.look_who_is_silent();
                }
                () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now).into()), if due.is_some() => {}
            }
            self.publish_news();
        }
        log!(Notice, "This config server ends");
        self.end().await;
    }

    /// Tells those who wait that nothing more comes, and has another lead at once.
    async fn end(&mut self) {
        for action in self.control.end() {
            match action {
                Action::Release(lease) => {
                    let store = self.desk.store.clone();
                    let released = desk::in_thread(move || store.release(lease));
                    // Else the lease ends by itself.
                    let _ = tokio::time::timeout(Duration::from_secs(1), released).await;
                }
                other => self.act(other),
            }
        }
        // For what was answered to be on its way.
        tokio::time::sleep(ANSWERED_WITHIN).await;
    }

    fn now(&self) -> Moment {
        self.desk.now()
    }

    fn take(&mut self, letter: Letter) {
        match letter {
            Letter::Happened(event) => self.step(event),
            Letter::Asks(event, answer) => {
                self.tickets += 1;
                let ticket = Ticket(self.tickets);
                self.asked.insert(ticket, answer);
                self.step(event.with(ticket));
            }
            Letter::Here { id, ago, figures, answer } => {
                let is_known = self.control.view().is_some_and(|view| view.servers.contains_key(&id));
                if is_known {
                    let at = Moment(self.now().0.saturating_sub(ago.as_micros() as u64));
                    self.step(Event::Here { id, at, figures });
                }
                // Who asked may be gone.
                let _ = answer.send(is_known);
            }
            Letter::Status(answer) => {
                let mut status = self.control.status(self.now());
                status["store"] = self.desk.store_status().into();
                let _ = answer.send(status);
            }
            Letter::Users(answer) => {
                // Who asked may be gone.
                let _ = answer.send(self.users_now());
            }
            Letter::Heard(answer) => {
                let now = self.now();
                let heard = self.control.heard().iter();
                let heard = heard.map(|(id, heard)| (*id, now.since(heard.at), heard.figures.clone()));
                let _ = answer.send(heard.collect());
            }
        }
    }

    fn step(&mut self, event: Event) {
        let now = self.now();
        for action in self.control.step(event, now) {
            self.act(action);
        }
        self.compare_settings();
    }

    /// Says once which of the settings that were said are not the cluster's.
    fn compare_settings(&mut self) {
        if self.has_compared {
            return;
        }
        let Some(policy) = self.control.view().and_then(|view| view.policy) else { return };
        self.has_compared = true;
        for sentence in self.desk.settings.control.differing(&policy) {
            log!(Warning, "{sentence}");
        }
    }

    fn act(&mut self, action: Action) {
        let desk = self.desk.clone();
        match action {
            Action::Change(change) => desk.call(move |store| Event::Answered(store.change(&change))),
            Action::Grant(length) => {
                desk.call(move |store| Event::Granted(store.grant(length).map_err(|Unavailable(why)| why)))
            }
            Action::Renew(lease) => {
                desk.call(move |store| Event::Renewed(lease, store.renew(lease).ok()));
            }
            Action::Release(lease) => desk.call(move |store| {
                let _ = store.release(lease);
                Event::Tick
            }),
            Action::Answer(ticket, answer) => {
                if let Some(asked) = self.asked.remove(&ticket) {
                    // Who asked may be gone.
                    let _ = asked.send(answer);
                }
            }
            Action::Promote(ticket, id, loss) => {
                let view = self.control.view();
                let server = view.and_then(|view| view.servers.get(&id)).cloned();
                let place = server.as_ref().and_then(|server| server.place);
                let master = view.zip(place).and_then(|(view, place)| view.master_of(place.shard)).cloned();
                tokio::task::spawn_local(async move {
                    let result = match server {
                        Some(server) => peer::promote(&desk, &server, master.as_ref(), loss).await,
                        None => Err("ERR the server that was to be master is gone".to_owned()),
                    };
                    // The service may have ended.
                    let _ = desk.letters.send(Letter::Happened(Event::Promoted(ticket, result))).await;
                });
            }
            Action::Note(text) => log!(Notice, "{text}"),
        }
    }

    /// Who leads hears of all servers; others are told by it.
    fn look_who_is_silent(&mut self) {
        self.silent = match self.control.leads() {
            true => silent_text(&self.control.silent(self.now())),
            false => self.desk.silent.borrow().clone(),
        };
    }

    /// What can be told of the cluster, if there is one.
    fn tellable(&self) -> Option<&View> {
        self.control.view().filter(|view| view.why_untold().is_none() && !view.cluster.is_empty())
    }

    /// A revision of something that was not told yet, and when it may be.
    fn news_of(&self, of: Followed) -> Option<(u64, Instant)> {
        let view = self.tellable()?;
        let (pace, revision) = match of {
            Followed::Topology => (&self.topology, view.topology_revision().0),
            Followed::Users => (&self.users, view.users.revision.0),
        };
        pace.due(revision).map(|due| (revision, due))
    }

    /// When something may be told that was not told yet; None: all was.
    fn due(&self) -> Option<Instant> {
        let news = [Followed::Topology, Followed::Users].map(|of| self.news_of(of));
        news.into_iter().flatten().map(|(_, due)| due).min()
    }

    /// Tells everybody, but not more often than can be taken.
    fn publish_news(&mut self) {
        self.publish_standing();
        if self.control.view().and_then(View::why_untold).is_some() {
            // Nor is what was told believed to be as it is now: who comes anew waits.
            return;
        }
        let now = Instant::now();
        self.publish_topology(now);
        self.publish_users(now);
    }

    /// Tells who leads, who is silent, and whether the store is well.
    fn publish_standing(&mut self) {
        let leader = self.control.leader().cloned();
        let leads = self.control.leads();
        let silent = self.silent.clone();
        let refusal = self.control.refusal().map(str::to_owned);
        let untold = self.control.view().and_then(View::why_untold);
        let read = self.control.view().map(|view| view.revision);
        self.publish.send_if_modified(|published| {
            let is_later = std::mem::replace(&mut published.read, read) != read;
            let is_other = is_later
                || (&published.leader, published.leads, &published.silent) != (&leader, leads, &silent)
                || (&published.refusal, &published.untold) != (&refusal, &untold);
            (published.leader, published.leads, published.silent) = (leader, leads, silent);
            (published.refusal, published.untold) = (refusal, untold);
            is_other
        });
        let now = self.control.view().map(|view| (view.topology_revision().0, view.places()));
        if let Some((revision, places)) = now.filter(|(revision, _)| *revision != self.placed) {
            self.placed = revision;
            let places = Arc::new(places.clone());
            self.publish.send_if_modified(|published| {
                published.places = places;
                false
            });
        }
    }

    /// Tells how the cluster looks, if that is due, or up to where it is still so.
    fn publish_topology(&mut self, now: Instant) {
        let seen = self.control.view().map(|view| view.revision);
        let Some((revision, due)) = self.news_of(Followed::Topology) else {
            self.publish.send_if_modified(|published| std::mem::replace(&mut published.seen, seen) != seen);
            return;
        };
        if now < due {
            return;
        }
        let Some(topology) = self.control.topology() else { return };
        let text: Arc<str> = topology.to_text().into();
        let followers = self.desk.followers.of(Followed::Topology).get();
        self.topology.tell(revision, (text.len(), followers), now);
        self.publish.send_modify(|published| {
            published.seen = seen;
            published.cluster = topology.cluster;
            published.revision = revision;
            published.moves = topology.moves.len();
            published.text = text;
        });
    }

    /// The same of the users of proxies, which may be many: what they keep waiting is nothing but users.
    fn publish_users(&mut self, now: Instant) {
        let seen = self.control.view().map(|view| view.revision);
        let Some((revision, due)) = self.news_of(Followed::Users) else {
            let users_seen =
                |published: &mut Published| std::mem::replace(&mut published.users.seen, seen) != seen;
            self.publish.send_if_modified(users_seen);
            return;
        };
        if now < due {
            return;
        }
        let Some(users) = self.users_now() else { return };
        let followers = self.desk.followers.of(Followed::Users).get();
        self.users.tell(revision, (users.text.len(), followers), now);
        self.publish.send_modify(|published| published.users = users);
    }

    /// The users of proxies as they are in the store, as far as it was seen; None: nothing can be told of them.
    fn users_now(&self) -> Option<ToldUsers> {
        let view = self.tellable()?;
        let (seen, revision) = (Some(view.revision), view.users.revision.0);
        let text = match self.users.due(revision) {
            None => self.publish.borrow().users.text.clone(),
            Some(_) => view.users.to_text(&view.cluster).into(),
        };
        Some(ToldUsers { seen, revision, text })
    }
}

/// Servers that are not heard of, as they are told to who follows.
fn silent_text(silent: &BTreeSet<ServerId>) -> Arc<str> {
    silent.iter().fold(SILENT.to_owned(), |text, id| format!("{text} {id}")).into()
}
