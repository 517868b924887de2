//! What a config server decides, as a state machine: [`Control::step`] takes an event and the time, and gives the actions that follow. It has no I/O, clock, thread or
//! randomness of its own, so that whole clusters run from one seed.
//!
//! 1. Whatever it decides it decides by a change of the store that compares `leader` and each key that it changes. So a leader that was replaced, or knows something old,
//!    changes nothing.
//! 2. One change of its own is under way at a time, and the next is thought of when what the last one did is seen.
//! 3. All that it needs to know lies in the store, except who was heard of late. A leader that has just begun takes everybody for heard.

mod balancing;
mod election;
mod emptying;
mod left_open;
mod losing;
mod moves;
mod orders;
mod plan;
mod rebalance;
mod senseless;
mod status;
#[cfg(test)]
mod tests;
mod users;
pub mod view;
mod waiting;

pub use losing::Losing;
pub use moves::{Epochs, Request, Shift, Word};
pub use orders::{Force, Order, Restored, Setting};
pub use rebalance::Measure;
pub use users::{UserChange, UserLine, escape, is_password, look_at_name};
pub use view::{Leader, Policy, Standing, View, key};

use crate::store::{Change, Changed, LeaseId, Outcome, Reading, Revision};
use balancing::Balance;
use election::Election;
use moves::Moves;
use orders::{Ends, Orders};
use plan::Work;
use replication::insync::{Loss, Moment};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use topology::{Server, ServerId, ShardId, Topology};

/// A server that is silent for longer is not there: three of its words are missing.
pub const SILENT: Duration = Duration::from_secs(4);
/// How long servers may still come before copies of a shard are put on one machine or into one zone.
const SETTLING: Duration = Duration::from_secs(1);
/// How often it is thought of what is due where nothing happens.
const IDLE: Duration = Duration::from_millis(200);
/// How long after a change that came to nothing the next one is tried.
const RETRY: Duration = Duration::from_millis(100);
/// How often a store that takes no changes is tried where nothing is due.
const TRYING: Duration = Duration::from_secs(1);

/// What is told while changes come to nothing, before why.
const STORE_REFUSES: &str = "The store of decisions takes no changes";
/// What a server is told that was removed.
const REMOVED: &str =
    "REMOVED this server was removed from the cluster; it may come back with an empty directory";

/// Who a config server is, and what it gives a new cluster.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the cluster's keys lie: `/tarn/NAME/`.
    pub prefix: String,
    /// This process, and where others reach it.
    pub own: Leader,
    /// The id that the cluster gets if it has none: 40 hexadecimal digits.
    pub cluster: String,
    /// The settings that the cluster gets if it has none.
    pub policy: Policy,
    /// The names of those that whoever has begun this process has said.
    pub said: BTreeSet<&'static str>,
    /// A leader that is silent for so long is replaced.
    pub lease: Duration,
}

impl Options {
    /// What was said to be a new cluster's, and is not so in this one: a sentence each.
    #[must_use]
    pub fn differing(&self, policy: &Policy) -> Vec<String> {
        let (own, span) = (&self.policy, |span: Duration| format!("{} ms", span.as_millis()));
        let awaits = |policy: &Policy| if policy.restore == 0 { "no" } else { "yes" }.to_owned();
        let all = [
            ("copies", own.copies.to_string(), policy.copies.to_string()),
            ("shards", own.shards.to_string(), policy.shards.to_string()),
            ("replace-after", span(own.replace_after), span(policy.replace_after)),
            ("await-restore", awaits(own), awaits(policy)),
        ];
        all.into_iter()
            .filter(|(name, own, now)| self.said.contains(name) && own != now)
            .map(|(name, own, now)| {
                let remedy = match name {
                    "await-restore" => "it counts where a cluster begins only".to_owned(),
                    _ => format!("`tarn cluster set {name} VALUE` changes it"),
                };
                format!("--{name} is {own}, and the cluster, which is there already, has {now}: {remedy}")
            })
            .collect()
    }
}

/// Tells which request an answer is to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// What happens.
#[derive(Clone, Debug)]
pub enum Event {
    /// Time passes; several times a second.
    Tick,
    /// All that the store holds of the cluster.
    Read(Reading),
    /// The next change of it.
    Changed {
        /// Which.
        revision: Revision,
        /// What is different.
        changed: Vec<Changed>,
    },
    /// What became of [`Action::Change`].
    Answered(Outcome),
    /// What became of [`Action::Grant`]: a sentence if there is none.
    Granted(Result<LeaseId, String>),
    /// What became of [`Action::Renew`]; None: nobody can say.
    Renewed(LeaseId, Option<bool>),
    /// A server introduces itself.
    Joins {
        /// For the answer.
        ticket: Ticket,
        /// The cluster that it is of; empty: of none yet.
        cluster: String,
        /// Its record. Its place counts for nothing.
        server: Server,
    },
    /// A server lives.
    Here {
        /// Which.
        id: ServerId,
        /// When it said so.
        at: Moment,
        /// What it says of itself.
        figures: String,
    },
    /// An operator wants something.
    Wants(Ticket, Order),
    /// Something is said of moves.
    Asks(Ticket, Request),
    /// What became of [`Action::Promote`]: what stands behind `-` if nothing did, or nobody knows.
    Promoted(Ticket, Result<(), String>),
}

/// What follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Change the store. There will be one [`Event::Answered`].
    Change(Change),
    /// Take a lease.
    Grant(Duration),
    /// Renew it.
    Renew(LeaseId),
    /// End it.
    Release(LeaseId),
    /// Answer a request: what comes behind `+`, or behind `-`.
    Answer(Ticket, Result<String, String>),
    /// Tell a server of a shard that it is to be master, at which price.
    Promote(Ticket, ServerId, Loss),
    /// For the log.
    Note(String),
}

/// When a server was heard last, and what it said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heard {
    /// When.
    pub at: Moment,
    /// `key=value` words.
    pub figures: String,
}

/// A server that wants to be written down.
#[derive(Clone, Debug)]
struct Joining {
    ticket: Ticket,
    server: Server,
}

/// That the store gives answers, and takes no changes.
#[derive(Clone, Debug)]
struct Refusal {
    /// Why the last one came to nothing.
    why: String,
    /// When that was known.
    at: Moment,
}

/// What a config server knows and does.
pub struct Control {
    options: Options,
    /// None: the store was not read yet.
    view: Option<View>,
    election: Election,
    /// The change that is under way, or the revision that it has made.
    work: Option<Work>,
    /// When the next change may be thought of.
    not_before: Moment,
    /// None: the store takes changes, as far as it is known.
    refusal: Option<Refusal>,
    heard: BTreeMap<ServerId, Heard>,
    /// Since when each server waits for a place.
    waiting: BTreeMap<ServerId, Moment>,
    joining: Vec<Joining>,
    orders: Orders,
    moves: Moves,
    balance: Balance,
    /// What was told of what makes no sense in the store.
    troubles: BTreeSet<String>,
    actions: Vec<Action>,
}

impl Control {
    /// One that knows nothing yet.
    #[must_use]
    pub fn new(options: Options) -> Control {
        Control {
            options,
            view: None,
            election: Election::default(),
            work: None,
            not_before: Moment(0),
            refusal: None,
            heard: BTreeMap::new(),
            waiting: BTreeMap::new(),
            joining: Vec::new(),
            orders: Orders::default(),
            moves: Moves::default(),
            balance: Balance::default(),
            troubles: BTreeSet::new(),
            actions: Vec::new(),
        }
    }

    /// Takes an event, and gives what follows.
    pub fn step(&mut self, event: Event, now: Moment) -> Vec<Action> {
        match event {
            Event::Tick => {}
            Event::Read(reading) => {
                self.view = Some(View::of(&reading, &self.options.prefix));
                self.not_before = now;
                self.look_at_view(now);
            }
            Event::Changed { revision, changed } => {
                self.store_takes_changes();
                if let Some(view) = &mut self.view {
                    let ended = moves::taken_away(view, &changed, &self.options.prefix);
                    view.follow(revision, &changed, &self.options.prefix);
                    self.moves.are_over(ended, view);
                    self.not_before = now;
                    self.look_at_view(now);
                }
            }
            Event::Answered(outcome) => self.answered(outcome, now),
            Event::Granted(lease) => {
                self.election.granted(lease.as_ref().ok().copied(), self.options.lease, now);
                match lease {
                    Ok(_) => self.store_takes_changes(),
                    Err(why) => self.store_refuses(why, now),
                }
            }
            Event::Renewed(lease, is_held) => self.election.renewed(lease, is_held, self.options.lease, now),
            Event::Joins { ticket, cluster, server } => self.joins(ticket, &cluster, server, now),
            Event::Here { id, at, figures } => {
                let is_later = self.heard.get(&id).is_none_or(|heard| heard.at <= at);
                if is_later {
                    self.heard.insert(id, Heard { at, figures });
                }
            }
            Event::Wants(ticket, order) => self.wants(ticket, order, now),
            Event::Asks(ticket, request) => self.asks_of_moves(ticket, request, now),
            Event::Promoted(ticket, result) => self.promoted(ticket, result, now),
        }
        self.go_on(now);
        std::mem::take(&mut self.actions)
    }

    /// What the store holds, as far as it is known.
    #[must_use]
    pub fn view(&self) -> Option<&View> {
        self.view.as_ref()
    }

    /// What servers and proxies are to be told; None: there is no cluster yet, or it cannot be said how it looks.
    #[must_use]
    pub fn topology(&self) -> Option<Topology> {
        let is_tellable = |view: &&View| !view.cluster.is_empty() && view.why_untold().is_none();
        self.view.as_ref().filter(is_tellable).map(View::topology)
    }

    /// Whether this config server leads, as far as it knows.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.election.leads()
    }

    /// Who leads; None: nobody, or the store was not read yet.
    #[must_use]
    pub fn leader(&self) -> Option<&Leader> {
        self.view.as_ref().and_then(|view| view.leader.as_ref())
    }

    /// Why the store takes no changes, if the last one came to nothing: that it can be read says nothing of it.
    #[must_use]
    pub fn refusal(&self) -> Option<&str> {
        self.refusal.as_ref().map(|refusal| refusal.why.as_str())
    }

    fn store_refuses(&mut self, why: String, now: Moment) {
        if self.refusal.is_none() {
            self.note(format!("{STORE_REFUSES}: {why}"));
        }
        self.refusal = Some(Refusal { why, at: now });
    }

    fn store_takes_changes(&mut self) {
        if self.refusal.take().is_some() {
            self.note("The store of decisions takes changes again".to_owned());
        }
    }

    /// Who was heard of.
    #[must_use]
    pub fn heard(&self) -> &BTreeMap<ServerId, Heard> {
        &self.heard
    }

    /// What a server has said last of itself under this name.
    fn said(&self, id: ServerId, name: &str) -> Option<&str> {
        self.heard.get(&id).and_then(|heard| figure(&heard.figures, name))
    }

    /// The same where it is a number.
    fn said_number(&self, id: ServerId, name: &str) -> Option<u64> {
        self.said(id, name)?.parse().ok()
    }

    /// Ends its part: what is answered to those who wait still, and what is to be done so that another leads at once.
    pub fn end(&mut self) -> Vec<Action> {
        self.leave_open();
        self.give_up(Ends::AtOnce);
        self.actions.extend(self.election.end().map(Action::Release));
        std::mem::take(&mut self.actions)
    }

    /// For how long a server was not heard of.
    fn silence(&self, id: ServerId, now: Moment) -> Duration {
        let heard = self.heard.get(&id).map_or(Moment(0), |heard| heard.at);
        now.since(heard.max(self.election.leads_since()))
    }

    /// The servers that were not heard of for a while. Who leads hears of all; whoever does not is told.
    #[must_use]
    pub fn silent(&self, now: Moment) -> BTreeSet<ServerId> {
        let servers = self.view.iter().flat_map(|view| view.servers.keys());
        servers.copied().filter(|id| self.silence(*id, now) >= SILENT).collect()
    }

    /// Whether a server was heard of lately.
    fn lives(&self, id: ServerId, now: Moment) -> bool {
        self.heard.get(&id).is_some_and(|heard| now.since(heard.at) < SILENT)
    }

    fn look_at_view(&mut self, now: Moment) {
        self.note_troubles();
        let Some(view) = &self.view else { return };
        let waits = |id: &ServerId| view.servers.get(id).is_some_and(|server| server.place.is_none());
        self.waiting.retain(|id, _| waits(id));
        for (id, server) in &view.servers {
            if server.place.is_none() {
                self.waiting.entry(*id).or_insert(now);
            }
        }
        // One that has just introduced itself is not written down yet.
        self.heard.retain(|id, heard| view.servers.contains_key(id) || now.since(heard.at) < SILENT);
        self.tell_what_is_seen();
    }

    fn joins(&mut self, ticket: Ticket, cluster: &str, server: Server, now: Moment) {
        let Some(view) = &self.view else { return self.refuse_to_lead(ticket) };
        let own = view.cluster.clone();
        let known = view.servers.get(&server.id);
        let is_elsewhere = known.is_some_and(|known| may_be_another(known, &server));
        let refusal = if !self.leads() || own.is_empty() {
            return self.refuse_to_lead(ticket);
        } else if !cluster.is_empty() && cluster != own {
            format!("WRONGCLUSTER this is cluster {own}, and the server is of {cluster}")
        } else if view.removed.contains(&server.id) {
            REMOVED.to_owned()
        } else if let Some(why) = view.why_spoilt(&key::server(server.id)) {
            format!("UNAVAILABLE {why}")
        } else if is_elsewhere && self.silence(server.id, now) < SILENT {
            format!(
                "DUPLICATE a server with the id {} lives at {}",
                server.id,
                known.map_or_else(String::new, losing::address)
            )
        } else {
            let server = as_known(server, known);
            let is_known = known == Some(&server);
            // It is there as long as it takes until it says so itself.
            self.heard.entry(server.id).or_insert(Heard { at: now, figures: String::new() }).at = now;
            match is_known {
                true => self.answer(ticket, Ok(format!("id {own}"))),
                false => {
                    self.joining.push(Joining { ticket, server });
                    self.not_before = now;
                }
            }
            return;
        };
        self.answer(ticket, Err(refusal));
    }

    fn refuse_to_lead(&mut self, ticket: Ticket) {
        let text = "NOLEADER no config server leads now, which this needs; try again";
        self.answer(ticket, Err(text.to_owned()));
    }

    fn answer(&mut self, ticket: Ticket, answer: Result<String, String>) {
        self.actions.push(Action::Answer(ticket, answer));
    }

    fn note(&mut self, text: String) {
        self.actions.push(Action::Note(text));
    }

    /// What an operator has to see to is told once.
    fn note_troubles(&mut self) {
        let troubles: BTreeSet<String> = self.view.iter().flat_map(View::troubles).collect();
        for trouble in troubles.difference(&self.troubles).cloned().collect::<Vec<_>>() {
            self.note(format!("An operator is needed: {trouble}"));
        }
        self.troubles = troubles;
    }

    /// Whatever can be done now.
    fn go_on(&mut self, now: Moment) {
        let Some(view) = &self.view else { return };
        self.election.look(view, &self.options.own, now, &mut self.actions);
        self.election.go_on(view, self.options.lease, now, &mut self.actions);
        if !self.leads() {
            self.give_up(Ends::WhenKnown);
        }
        self.go_on_with_orders(now);
        if self.work.is_none() && now >= self.not_before {
            self.begin_work(now);
        }
    }

    /// Who is not the leader any more does nothing for those who wait for the leader's work, and tells them whether something may have been done.
    fn give_up(&mut self, ends: Ends) {
        self.tell_what_is_done();
        self.balance = Balance::default();
        for Joining { ticket, .. } in std::mem::take(&mut self.joining) {
            self.refuse_to_lead(ticket);
        }
        let given_up = self.orders.give_up(ends).into_iter().chain(self.moves.give_up());
        for (ticket, left_open) in given_up.collect::<Vec<_>>() {
            match left_open {
                Some(line) => self.answer(ticket, Err(line)),
                None => self.refuse_to_lead(ticket),
            }
        }
    }
}

/// A server as it introduces itself, with what was known of it that it does not say.
fn as_known(server: Server, known: Option<&Server>) -> Server {
    Server {
        place: known.and_then(|known| known.place),
        is_met: known.is_some_and(|known| known.is_met),
        ..server
    }
}

/// Whether a server that introduces itself may be another process than the one that is known, which may live: from one address only one can be reached on
/// one machine.
fn may_be_another(known: &Server, server: &Server) -> bool {
    let address = |server: &Server| (server.host.clone(), server.port, server.tls_port);
    let machines = [&known.machine, &server.machine];
    address(known) != address(server)
        || machines.iter().all(|machine| !machine.is_empty()) && known.machine != server.machine
}

/// The shard that a server has a place in.
fn shard_of(server: &Server) -> Option<ShardId> {
    server.place.map(|place| place.shard)
}

/// The value of a `key=value` word.
fn figure<'f>(figures: &'f str, name: &str) -> Option<&'f str> {
    figures.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}
