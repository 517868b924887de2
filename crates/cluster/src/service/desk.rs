//! What all connections share.

use crate::control::{Event, Leader, Options, Order, Request, Ticket};
use crate::store::{Latest, Revision, Store, Unavailable};
use crate::table::TAKES_NO_CHANGES;
use parking_lot::Mutex;
use replication::insync::Moment;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_rustls::rustls::{ClientConfig, ServerConfig};
use topology::{Place, Server, ServerId};

/// How long the store may be silent before it counts for nothing what is known of it. Longer than it takes until another member of it is asked.
const NEWS_AGE_MAX: Duration = Duration::from_secs(5);
/// How long it may take until what is known is what the store holds. Less than servers wait for an answer.
const FRESH_WITHIN: Duration = Duration::from_secs(2);

/// What is answered where nothing is done any more.
const ENDS: &str = "NOLEADER this config server ends";
/// The same where something may have been.
const ENDS_UNKNOWN: &str = "UNKNOWN this config server ends, and has not said what has become of this: look, and say it again if it was not done";

/// What the command line says.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Addresses to listen at.
    pub bind: Vec<String>,
    /// The port; 0: none without TLS.
    pub port: u16,
    /// The port where TLS is spoken; 0: none.
    pub tls_port: u16,
    /// By which it is spoken there.
    pub clients: Option<Arc<ServerConfig>>,
    /// By which it is spoken to other config servers and to servers; None: it is not.
    pub peers: Option<Arc<ClientConfig>>,
    /// What clients have to say; None: nothing.
    pub password: Option<String>,
    /// As whom it speaks to servers; empty: the default user.
    pub server_user: String,
    /// With which password; None: without one.
    pub server_password: Option<String>,
    /// The most connections.
    pub clients_max: usize,
    /// For the state machine.
    pub control: Options,
}

/// What comes to the state machine's keeper.
pub enum Letter {
    /// Something happened.
    Happened(Event),
    /// A client asks something that takes time.
    Asks(Question, oneshot::Sender<Result<String, String>>),
    /// A server lives. The answer is whether it is one of the cluster.
    Here {
        /// Which.
        id: ServerId,
        /// How long ago it said so.
        ago: Duration,
        /// What it says of itself.
        figures: String,
        /// Whether it is known.
        answer: oneshot::Sender<bool>,
    },
    /// How all stands.
    Status(oneshot::Sender<serde_json::Value>),
    /// The users of proxies, as they are now; None: nothing can be told of them.
    Users(oneshot::Sender<Option<ToldUsers>>),
    /// Who was heard of, how long ago, and what it said.
    Heard(oneshot::Sender<Vec<(ServerId, Duration, String)>>),
}

/// What a client asks.
pub enum Question {
    /// A server introduces itself, as one of this cluster (empty: of none).
    Joins(String, Server),
    /// An operator wants something.
    Wants(Order),
    /// Something is said of moves.
    Asks(Request),
}

impl Question {
    /// Whether it is an operator's: servers say what they say until it is done, and then it changes nothing.
    fn is_order(&self) -> bool {
        match self {
            Question::Joins(..) | Question::Asks(Request::Said { .. }) => false,
            Question::Wants(_) | Question::Asks(_) => true,
        }
    }

    /// As what the state machine is told.
    pub fn with(self, ticket: Ticket) -> Event {
        match self {
            Question::Joins(cluster, server) => Event::Joins { ticket, cluster, server },
            Question::Wants(order) => Event::Wants(ticket, order),
            Question::Asks(request) => Event::Asks(ticket, request),
        }
    }
}

/// What stands before the ids of servers that are not heard of.
pub const SILENT: &str = "silent";

/// What can be followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Followed {
    /// How the cluster looks.
    Topology,
    /// The users of proxies.
    Users,
}

/// How many follow what.
#[derive(Debug, Default)]
pub struct Followers {
    topology: Cell<usize>,
    users: Cell<usize>,
}

impl Followers {
    /// Those of one.
    pub fn of(&self, of: Followed) -> &Cell<usize> {
        match of {
            Followed::Topology => &self.topology,
            Followed::Users => &self.users,
        }
    }
}

/// The users of proxies, as they are told.
#[derive(Clone, Debug, Default)]
pub struct ToldUsers {
    /// Up to where the store was seen when they were so; None: it was not read yet.
    pub seen: Option<Revision>,
    /// Their revision.
    pub revision: u64,
    /// All lines; empty: nothing is known yet.
    pub text: Arc<str>,
}

/// What everybody may know.
#[derive(Clone, Debug)]
pub struct Published {
    /// Up to where the store was seen; None: it was not read yet.
    pub read: Option<Revision>,
    /// The cluster's id; empty: nothing is known yet.
    pub cluster: String,
    /// Up to where the store was seen when the topology was so; None: it was not read yet.
    pub seen: Option<Revision>,
    /// The topology's revision.
    pub revision: u64,
    /// How many moves it tells of.
    pub moves: usize,
    /// The topology.
    pub text: Arc<str>,
    /// The users of proxies.
    pub users: ToldUsers,
    /// Servers that are not heard of: `silent`, and the id of each.
    pub silent: Arc<str>,
    /// Who leads.
    pub leader: Option<Leader>,
    /// Whether it is this one.
    pub leads: bool,
    /// Why the store takes no changes; None: it does, as far as it is known.
    pub refusal: Option<String>,
    /// Which server has which place, as the store was seen last.
    pub places: Arc<BTreeMap<Place, ServerId>>,
    /// Why nothing can be said of how the cluster looks beyond what was; None: it can be.
    pub untold: Option<String>,
}

impl Published {
    /// Up to where the store was seen when something was as it is told; None: it was not read yet.
    pub fn seen(&self, of: Followed) -> Option<Revision> {
        match of {
            Followed::Topology => self.seen,
            Followed::Users => self.users.seen,
        }
    }
}

impl Default for Published {
    fn default() -> Published {
        Published {
            read: None,
            cluster: String::new(),
            seen: None,
            revision: 0,
            moves: 0,
            text: "".into(),
            users: ToldUsers::default(),
            silent: SILENT.into(),
            leader: None,
            leads: false,
            refusal: None,
            places: Arc::default(),
            untold: None,
        }
    }
}

/// When the store was heard of last.
#[derive(Default)]
pub struct News {
    state: Mutex<(Option<Instant>, String)>,
}

impl News {
    /// The store has answered, or told of a change. Whether it had failed before.
    pub fn came(&self) -> bool {
        let mut state = self.state.lock();
        state.0 = Some(Instant::now());
        !std::mem::take(&mut state.1).is_empty()
    }

    /// It gives no answer; why. Whether that is new.
    pub fn failed(&self, why: String) -> bool {
        std::mem::replace(&mut self.state.lock().1, why).is_empty()
    }

    /// Why it gives no answer; empty: it does.
    pub fn trouble(&self) -> String {
        self.state.lock().1.clone()
    }

    /// Whether it was heard of lately. Also who has stood still himself knows nothing.
    pub fn is_fresh(&self) -> bool {
        self.state.lock().0.is_some_and(|at| at.elapsed() < NEWS_AGE_MAX)
    }
}

/// Who has asked when the store was changed last.
type AsksLatest = oneshot::Sender<Result<Latest, Unavailable>>;

/// What all connections share.
pub struct Desk {
    /// What the command line says.
    pub settings: Settings,
    /// The store of decisions.
    pub store: Arc<dyn Store>,
    /// To the state machine's keeper.
    pub letters: mpsc::Sender<Letter>,
    /// What everybody may know.
    pub published: watch::Receiver<Published>,
    /// How many clients there are.
    pub clients: Cell<usize>,
    /// How many there were.
    pub clients_ever: Cell<u64>,
    /// How many of them follow something.
    pub followers: Followers,
    /// Requests that were answered.
    pub requests: Cell<u64>,
    /// Of the store.
    pub news: Arc<News>,
    /// What the leader has said last of who is not heard of, if it is another.
    pub silent: RefCell<Arc<str>>,
    /// To whoever asks when it was changed last.
    latest: mpsc::UnboundedSender<AsksLatest>,
    /// When it began.
    pub begun: Instant,
}

impl Desk {
    /// Where nobody is yet.
    pub fn new(
        settings: Settings,
        store: Arc<dyn Store>,
        letters: mpsc::Sender<Letter>,
        published: watch::Receiver<Published>,
    ) -> Desk {
        let (latest, asking) = mpsc::unbounded_channel();
        tokio::task::spawn_local(ask_latest(store.clone(), settings.control.prefix.clone(), asking));
        Desk {
            settings,
            store,
            letters,
            published,
            clients: Cell::new(0),
            clients_ever: Cell::new(0),
            followers: Followers::default(),
            requests: Cell::new(0),
            news: Arc::default(),
            silent: RefCell::new(SILENT.into()),
            latest,
            begun: Instant::now(),
        }
    }

    /// The time, as the state machine counts it.
    pub fn now(&self) -> Moment {
        Moment(0).plus(self.begun.elapsed())
    }

    /// Asks the store in a thread; what comes of it happens.
    pub fn call(self: Rc<Self>, ask: impl FnOnce(&dyn Store) -> Event + Send + 'static) {
        let store = self.store.clone();
        tokio::task::spawn_local(async move {
            let event = in_thread(move || ask(&*store)).await;
            // The service may have ended.
            let _ = self.letters.send(Letter::Happened(event)).await;
        });
    }

    /// Asks the state machine; an answer of its own if there is none.
    pub async fn ask(&self, question: Question) -> Result<String, String> {
        let (answer, answered) = oneshot::channel();
        let is_order = question.is_order();
        if self.letters.send(Letter::Asks(question, answer)).await.is_err() || !is_order {
            return answered.await.unwrap_or_else(|_| Err(ENDS.to_owned()));
        }
        // It was read, or not.
        answered.await.unwrap_or_else(|_| Err(ENDS_UNKNOWN.to_owned()))
    }

    /// Waits until the topology that is published is no older than this call. Gives the revision of the whole store then.
    ///
    /// # Errors
    /// Why that cannot be known.
    pub async fn wait_until_fresh(&self) -> Result<Revision, String> {
        self.wait_until_seen(|published| published.seen).await
    }

    /// The users of proxies, no older than this call: those who follow them may be told of a change later. None: there is no cluster yet. With the revision of the
    /// whole store then.
    ///
    /// # Errors
    /// Why that cannot be known.
    pub async fn users(&self) -> Result<(Revision, Option<ToldUsers>), String> {
        let store = self.wait_until_seen(|published| published.read).await?;
        let (answer, answered) = oneshot::channel();
        // The service may have ended.
        let _ = self.letters.send(Letter::Users(answer)).await;
        Ok((store, answered.await.unwrap_or_default()))
    }

    /// Waits until the store was seen up to where it is at this call.
    async fn wait_until_seen(
        &self,
        seen: impl Fn(&Published) -> Option<Revision>,
    ) -> Result<Revision, String> {
        let (answer, answered) = oneshot::channel();
        // The service may have ended.
        let _ = self.latest.send(answer);
        let waiting = async {
            let latest = answered.await.unwrap_or_else(|_| Err(Unavailable("the service ends".to_owned())));
            let Unavailable(why) = match latest {
                Err(why) => why,
                Ok(latest) => {
                    let mut published = self.published.clone();
                    let is_there =
                        |published: &Published| seen(published).is_some_and(|seen| seen >= latest.changed);
                    let told = published.wait_for(|now| now.untold.is_some() || is_there(now)).await;
                    match told.map(|now| now.untold.clone()) {
                        Ok(None) => return Ok(latest.store),
                        Ok(Some(why)) => Unavailable(why),
                        Err(_) => Unavailable("the service ends".to_owned()),
                    }
                }
            };
            Err(why)
        };
        let late = || Err("it takes too long until all is here that it has".to_owned());
        tokio::time::timeout(FRESH_WITHIN, waiting).await.unwrap_or_else(|_| late())
    }

    /// How the store is: `ok`, or what is wrong with it, in one line.
    pub fn store_status(&self) -> String {
        let trouble = self.news.trouble();
        let text = match self.known().refusal {
            _ if !trouble.is_empty() => trouble,
            Some(why) => format!("{TAKES_NO_CHANGES}: {why}"),
            None => "ok".to_owned(),
        };
        text.replace(['\r', '\n'], " ")
    }

    /// How all stands.
    pub async fn status(&self) -> serde_json::Value {
        let (answer, answered) = oneshot::channel();
        // The service may have ended.
        let _ = self.letters.send(Letter::Status(answer)).await;
        answered.await.unwrap_or_default()
    }

    /// What is known now.
    pub fn known(&self) -> Published {
        self.published.borrow().clone()
    }
}

/// Does what may wait in a thread of its own; where the system gives none, here, and all others wait.
pub async fn in_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, told) = oneshot::channel();
    let work = Arc::new(Mutex::new(Some(work)));
    let taken = work.clone();
    let begun = std::thread::Builder::new().name("store-call".to_owned()).spawn(move || {
        let work = taken.lock().take().expect("it is begun once");
        // Who has asked may be gone.
        let _ = tell.send(work());
    });
    match begun {
        Ok(_) => told.await.expect("a thread that panics ends the process"),
        Err(_) => {
            let work = work.lock().take().expect("nobody else has begun it");
            work()
        }
    }
}

/// Asks the store when it was changed last: once for all who have asked before it is asked.
async fn ask_latest(store: Arc<dyn Store>, prefix: String, mut asking: mpsc::UnboundedReceiver<AsksLatest>) {
    let mut asked = Vec::new();
    while asking.recv_many(&mut asked, usize::MAX).await > 0 {
        let (store, prefix) = (store.clone(), prefix.clone());
        let latest = in_thread(move || store.latest(&prefix)).await;
        for one in asked.drain(..) {
            // Who has asked may be gone.
            let _ = one.send(latest.clone());
        }
    }
}
