//! Drives a node's state machine: hands it what happened and how far the log is, and does what it wants done.

mod keeping_up;
mod leaving;
mod telling;

use super::beats::Beats;
use super::fault::Fault;
use super::keeping::Keeping;
use super::source::{Heard, Holding, Source};
use super::{RETRY, Ways, reign, stream_name};
use crate::feeding;
use crate::following::Wanted;
use crate::replicas::synced::Floor;
use crate::server::Server;
use crate::shard::{Letter, Shard, Watched};
use ::log::Lsn;
use leaving::Leaving;
use replication::insync::{
    Action, Answer, Contradiction, Decision, Epoch, Event, History, Kept, LinkId, Member, MemberId, Message,
    Moment, Obstacle, Request, Restored, Role, Ticket, Version, Writes,
};
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use sys::Stamp;
use telemetry::log;

/// Places of a follower's history that are remembered until they are committed.
const PLACES_MAX: usize = 4096;

/// The owner of a node's part.
pub struct Driver {
    server: Arc<Server>,
    shard: Arc<Shard>,
    ways: Box<dyn Ways>,
    keeping: Keeping,
    member: Member,
    source: Option<Source>,
    /// What has come and was not taken yet.
    letters: VecDeque<Letter>,
    /// On which link a master has said something last, and what.
    heard: Option<(LinkId, Heard)>,
    /// Whether that is not answered yet.
    is_asked: bool,
    /// Steps within long requests of the master's: those that were looked at, and those of them that count.
    steps: (u64, u64),
    data: Holding,
    /// Before this place of the log a copy was not whole: the data cannot go back there.
    whole_from: Lsn,
    /// Copies that were put in the place of what was here, as far as is known.
    copies: u64,
    /// Questions up to where a copy needs the stream that are not answered.
    questions: u64,
    /// What happened because of what was done.
    events: VecDeque<Event>,
    /// Offsets in the stream and the stamps that they have here, of what is not committed.
    places: VecDeque<(u64, Stamp)>,
    /// The same for a master: its first place.
    floor: Option<Floor>,
    /// Up to where the log was told to be durable.
    durable: u64,
    committed: u64,
    /// The newest decision that the log tells of.
    told: Version,
    /// The newest decision that the store was told to have forgotten.
    forgotten: Version,
    is_halted: bool,
    /// When the store was asked to have the shard begin with this node, while it has not said what becomes of that.
    begins: Option<Begins>,
    /// Why the newest wish that this node be master has come to nothing.
    obstacle: Option<Obstacle>,
    leaving: Option<Leaving>,
    /// What tells others how far the log is.
    beats: Beats,
    /// Whether nothing waits for this thread, since nobody else has to do with this master ([`Member::is_alone`]).
    is_alone: bool,
    watched: Watched,
    /// A mistake that a test has planted.
    pub(super) fault: Option<Fault>,
}

/// The ticket of the beginning of a shard, which the state machine has never asked for.
const BEGINNING: Ticket = Ticket(u64::MAX);
/// For how long it is asked for.
const BEGINNING_MAX: Duration = Duration::from_secs(60);

/// A wish that the shard begin with this node.
#[derive(Clone, Copy)]
struct Begins {
    said_at: Instant,
    asked_at: Instant,
}

impl Driver {
    pub fn new(server: &Arc<Server>, shard: &Arc<Shard>, keeping: Keeping, ways: Box<dyn Ways>) -> Driver {
        let now = Moment(server.net.gate.time_us());
        let end = feeding::end_of_written(server);
        let id = MemberId { node: shard.settings.node, life: keeping.kept.life };
        let restored = keeping.restored(Lsn(end));
        let data = match (keeping.kept.is_torn, restored.history.beginnings().is_empty()) {
            (true, _) => Holding::Torn,
            (false, true) => Holding::Foreign,
            (false, false) => Holding::Whole,
        };
        let whole_from = keeping.kept.whole_from;
        let member = Member::new(id, shard.settings.options, restored, now);
        Driver {
            server: server.clone(),
            shard: shard.clone(),
            ways,
            keeping,
            member,
            source: None,
            letters: VecDeque::new(),
            heard: None,
            is_asked: false,
            steps: (0, 0),
            data,
            whole_from,
            copies: 0,
            questions: 0,
            events: VecDeque::new(),
            places: VecDeque::new(),
            floor: None,
            durable: 0,
            committed: 0,
            told: Version(0),
            forgotten: Version(0),
            is_halted: false,
            begins: None,
            obstacle: None,
            leaving: None,
            beats: Beats::default(),
            is_alone: false,
            watched: Watched::All,
            fault: None,
        }
    }

    pub fn run(mut self) {
        let pace = self.shard.settings.options.heartbeat / 2;
        let mut next_tick = Instant::now();
        while !self.server.engine.is_ending() {
            let until = self.next_look().map_or(next_tick, |look| look.min(next_tick));
            let letters = self.shard.take(until);
            self.turn(letters, Instant::now, |now| {
                let is_due = now >= next_tick;
                if is_due {
                    next_tick = now + pace;
                }
                is_due
            });
        }
        self.shard.links.close_all(&self.server.net.clients);
    }

    /// Takes what has come, looks how far everything is, and, if that is due behind it, notices that time goes by.
    pub fn turn(
        &mut self,
        letters: VecDeque<Letter>,
        now: impl Fn() -> Instant,
        is_tick_due: impl FnOnce(Instant) -> bool,
    ) {
        self.letters.extend(letters);
        while let Some(letter) = self.letters.pop_front() {
            self.take(letter);
        }
        self.look();
        self.leave(now());
        if is_tick_due(now()) {
            self.happen(Event::Tick);
            self.begin_shard_again(now());
        }
        self.say_records(now());
        self.publish();
    }

    /// When there is something to say, or to look after, if nothing comes before.
    pub fn next_look(&self) -> Option<Instant> {
        let look = self.leaving.map(|leaving| leaving.look_at);
        [look, self.beats.next()].into_iter().flatten().min()
    }

    fn now(&self) -> Moment {
        Moment(self.server.net.gate.time_us())
    }

    fn take(&mut self, letter: Letter) {
        match letter {
            Letter::Happened(Event::Received {
                link,
                from,
                message: Message::Records { epoch, committed, asked_at, is_member, .. },
            }) => {
                let heard = Heard { from, epoch, committed, asked_at, is_member };
                if self.note_heard(link, heard) {
                    self.hear();
                }
            }
            Letter::Happened(Event::Answered { ticket: BEGINNING, answer }) => {
                // That the store is not reached is told where it is asked.
                if answer != Answer::Unreached && self.begins.take().is_some() {
                    log!(Notice, "The beginning of the shard was answered with {answer:?}");
                }
            }
            Letter::Happened(Event::Promote { .. }) if self.is_torn() => {
                log!(Warning, "A node with a copy that is not whole does not become master");
            }
            Letter::Happened(event) => {
                if let Event::Closed { link: Some(link) } = event {
                    self.beats.forget(link);
                }
                self.happen(event);
            }
            Letter::CopyNeeds { link, offset } => self.take_need(link, offset),
            Letter::RecordsGone { order } if self.source.is_some_and(|source| source.order == order) => {
                log!(
                    Warning,
                    "The master has not got the stream any more from where this node is: it needs a full copy, for which it has to leave the in-sync set first if it is in it"
                );
                self.happen(Event::RecordsGone);
            }
            Letter::RecordsGone { .. } => {}
            Letter::Begin => {
                let now = Instant::now();
                self.begin_shard(Begins { said_at: now, asked_at: now });
            }
            Letter::HandOver { to, until } if self.member.role() == Role::Master => {
                self.begin_to_leave(to, until);
            }
            Letter::HandOver { .. } => {}
        }
    }

    /// Looks how far everything is.
    fn look(&mut self) {
        self.while_still(|_| Vec::new());
        self.go_on();
    }

    fn happen(&mut self, event: Event) {
        self.look_at_store(&event);
        self.step(event);
        self.go_on();
    }

    /// A store that says less than it has said before was restored from a backup. That may be told more than once, but not each time.
    fn look_at_store(&mut self, event: &Event) {
        let Event::Answered { answer: Answer::Current(Some(now)) | Answer::Conflict(now), .. } = event else {
            return;
        };
        let Some(known) = self.member.decision().filter(|known| known.version > now.version) else { return };
        if std::mem::replace(&mut self.forgotten, known.version) != known.version {
            log!(
                Warning,
                "The store of decisions says decision {} of shard '{}', and has forgotten decision {}: it was restored from a backup. Nobody is promoted, removed or added before \
                 this shard's nodes are started again, and then by what it says",
                now.version.0,
                self.shard.settings.name,
                known.version.0
            );
        }
    }

    /// What has followed from what was done.
    fn go_on(&mut self) {
        loop {
            while let Some(event) = self.events.pop_front() {
                self.step(event);
            }
            self.enter_source();
            if self.events.is_empty() {
                return;
            }
        }
    }

    fn step(&mut self, event: Event) {
        self.while_still(|driver| driver.member.step(event, driver.now()));
    }

    /// Whether replies wait for this thread, and of what it has to hear, as it stands now.
    fn note_company(&mut self) {
        let is_alone = self.member.is_alone();
        let has_log = self.server.engine.durability.log().is_some();
        let watched = match (self.member.role(), has_log) {
            (Role::Master, _) if is_alone || self.member.counts_others() => Watched::Nothing,
            (_, true) => Watched::Durable,
            (_, false) => Watched::All,
        };
        let before =
            (std::mem::replace(&mut self.is_alone, is_alone), std::mem::replace(&mut self.watched, watched));
        self.shard.watch(watched);
        match (before.0, is_alone) {
            (false, true) => self.server.net.gate.replicate(Stamp::LAST),
            (true, false) => self.hold_for_company(),
            _ if watched > before.1 => self.while_still(|_| Vec::new()),
            _ => {}
        }
    }

    /// Replies wait until this thread knows that others have what they show. What has gone out by now is counted as committed, before anybody else counts.
    fn hold_for_company(&mut self) {
        self.server.net.gate.forget_replicas();
        self.while_still(|_| Vec::new());
        let committed = self.member.committed().0;
        if let Some(stamp) = self.floor.and_then(|floor| floor.stamp_of(committed)) {
            self.server.net.gate.replicate(stamp);
        }
    }

    /// Sends what is due of what others are told.
    fn say_records(&mut self, now: Instant) {
        let (is_master, committed) = (self.member.role() == Role::Master, self.member.committed());
        for (link, message) in self.beats.take(now) {
            if let Message::Records { epoch, start, end, asked_at, is_member, .. } = message
                && is_master
                && epoch == self.member.epoch()
            {
                let message = Message::Records { epoch, start, end, committed, asked_at, is_member };
                self.shard.links.say(&self.server.net.clients, link, &message);
            }
        }
    }

    /// Tells how far the log is. While it is held that nothing of a master's is done.
    fn catch_up(&mut self) -> Vec<Action> {
        match self.member.role() {
            Role::Master => self.catch_up_as_master(),
            Role::Member | Role::Learner => self.catch_up_with_source(),
            Role::Nobody => Vec::new(),
        }
    }

    fn catch_up_as_master(&mut self) -> Vec<Action> {
        let (mut actions, now) = (Vec::new(), self.now());
        let end = feeding::end(&self.server);
        if Lsn(end) > self.member.appended() {
            actions = self.member.step(Event::Appended { end: Lsn(end) }, now);
        }
        let durable = self.server.stream().offset;
        actions.extend(self.tell_durable(durable));
        actions
    }

    fn tell_durable(&mut self, durable: u64) -> Vec<Action> {
        let durable = durable.min(self.member.appended().0);
        if durable <= self.durable {
            return Vec::new();
        }
        self.durable = durable;
        self.member.step(Event::Durable { end: Lsn(durable) }, self.now())
    }

    /// A copy may have been put in the place of what was here: then it is asked up to where it needs the stream.
    fn look_for_copy(&mut self, source: Source) {
        let copies = self.server.following.copies.load(Ordering::Relaxed);
        if std::mem::replace(&mut self.copies, copies) != copies {
            self.data = Holding::Partial(None);
            self.questions += 1;
            self.shard.links.ask_for_end(source.link);
        }
    }

    /// The answer to a question, of which the last is about the newest copy.
    fn take_need(&mut self, link: LinkId, offset: u64) {
        if self.source.is_some_and(|source| source.link == link) {
            self.questions = self.questions.saturating_sub(1);
            if self.questions == 0 && self.data == Holding::Partial(None) {
                self.data = Holding::Partial(Some(offset));
            }
        }
    }

    /// What of the stream that is followed is done here; None: nothing of it yet.
    fn applied(&self, source: Source) -> Option<u64> {
        let state = self.server.following.state.lock();
        let is_this = state.order == source.order;
        let status = state.status.as_ref().filter(|_| is_this)?;
        Some(status.offset).filter(|offset| *offset > 0)
    }

    /// Whether what is here is all that the stream comes to; where a copy has become so, that is kept first.
    fn is_whole(&mut self, source: Source, durable: u64) -> bool {
        match self.data {
            Holding::Whole => true,
            Holding::Partial(Some(until)) if durable >= until => {
                self.whole_from = Lsn(durable);
                let history = self.member.history_to_come();
                let is_kept = self.keep(history);
                if is_kept {
                    self.data = Holding::Whole;
                    self.server.following.wants_no_copy(source.order);
                    self.places.clear();
                }
                is_kept
            }
            Holding::Partial(_) | Holding::Foreign | Holding::Torn => false,
        }
    }

    /// Which stamp the end of the stream has here, where that is its offset.
    fn stamp_of_end(&self, offset: u64) -> Stamp {
        self.server.engine.durability.log().map_or(Stamp(offset), |log| Stamp(log.appended().0))
    }

    /// Notes which stamp a place of the stream has here.
    fn note_place(&mut self, offset: u64) {
        let stamp = self.stamp_of_end(offset);
        if self.places.len() >= PLACES_MAX {
            // Every other one: what is committed is shown a little later then.
            let mut nth = 0;
            self.places.retain(|_| {
                nth += 1;
                nth % 2 == 0
            });
        }
        self.places.push_back((offset, stamp));
    }

    /// Follows the master's stream no more, unless its link is the one that is followed.
    fn leave_source(&mut self) {
        let link = self.member.link().filter(|_| self.is_streaming());
        if let Some(source) = self.source.filter(|source| link != Some(source.link)) {
            let applied = self.applied(source).filter(|_| self.data == Holding::Whole);
            if let Some(applied) = applied.filter(|applied| Lsn(*applied) > self.member.appended()) {
                self.events.push_front(Event::Found { end: Lsn(applied) });
            }
            crate::following::stand_by(&self.server);
            self.source = None;
            let has_come = self.server.following.copies.load(Ordering::Relaxed) != self.copies;
            if has_come || self.is_torn() {
                self.data = Holding::Torn;
            }
        }
    }

    /// Whether what is here may be a copy that is not whole.
    fn is_torn(&self) -> bool {
        matches!(self.data, Holding::Torn | Holding::Partial(_))
    }

    /// What is here where nothing of it is the shard's.
    fn without_shard(&self) -> Holding {
        if self.is_torn() { Holding::Torn } else { Holding::Foreign }
    }

    /// Until when the gate may show anything. Also a master that is alone says so again and again: if nobody drives it any more, its reads end.
    fn lend(&self) {
        if let Some(until) = self.member.reads_until() {
            let longest = self.now().plus(self.shard.settings.options.lease);
            self.server.net.gate.lend(until.min(longest).0);
        }
    }

    fn is_streaming(&self) -> bool {
        matches!(self.member.role(), Role::Member | Role::Learner)
    }

    /// Follows the stream of the master that has said where the logs part, once that is so. Nothing is taken of it before there is something with which
    /// it can be told.
    fn enter_source(&mut self) {
        if self.source.is_some() || !self.is_streaming() {
            return;
        }
        let Some((link, heard)) = self.heard.filter(|(link, _)| self.member.link() == Some(*link)) else {
            return;
        };
        let Some(address) = self.shard.address_of(heard.from.node) else { return };
        let coming = self.member.history_to_come();
        let takes_copy = self.data != Holding::Whole;
        let history = if takes_copy { History::default() } else { coming.clone() };
        if !self.keep_as(history, takes_copy) {
            return;
        }
        let from = self.member.appended().0;
        let id = stream_name(&coming);
        self.places.clear();
        if !takes_copy {
            self.note_place(from);
        }
        self.copies = self.server.following.copies.load(Ordering::Relaxed);
        (self.questions, self.durable) = (0, self.durable.min(from));
        let order = self.ways.follow(&self.server, &address, Wanted { id, from, takes_copy });
        self.source = Some(Source { link, order });
    }

    /// Keeps who this is. Whether it could be.
    fn keep(&mut self, history: History) -> bool {
        let is_torn = history.beginnings().is_empty() && self.is_torn();
        self.keep_as(history, is_torn)
    }

    fn keep_as(&mut self, history: History, is_torn: bool) -> bool {
        let (life, epoch, whole_from) = (self.member.id().life, self.member.epoch(), self.whole_from);
        let kept = Kept { life, epoch, is_torn, whole_from, history };
        if kept == self.keeping.kept {
            return true;
        }
        match self.keeping.keep(kept) {
            Ok(()) => true,
            Err(error) => {
                log!(Warning, "It cannot be written down who this node is, which is tried again: {error}");
                false
            }
        }
    }

    /// Keeps it, however long the disk refuses; false: the server ends.
    fn keep_surely(&mut self, history: &History) -> bool {
        while !self.keep(history.clone()) {
            if self.server.engine.is_ending() {
                return false;
            }
            std::thread::sleep(RETRY);
        }
        true
    }

    fn carry_out(&mut self, actions: Vec<Action>) {
        let link_of = |action: &Action| match action {
            Action::Send { link, message: Message::Acknowledgement { .. } } => Some(*link),
            _ => None,
        };
        let last = actions.iter().rposition(|action| link_of(action).is_some());
        for (nth, action) in actions.into_iter().enumerate() {
            // Each says all that those before it have said.
            if link_of(&action).is_none() || last == Some(nth) {
                self.act(action);
            }
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Dial { node } => self.ways.dial(&self.server, &self.shard, node, self.member.id()),
            Action::Close { link } => {
                self.beats.forget(link);
                self.shard.links.close(&self.server.net.clients, link);
            }
            Action::Send { link, message: message @ Message::Records { .. } } => {
                self.beats.put(link, message)
            }
            Action::Send { link, message } => self.shard.links.say(&self.server.net.clients, link, &message),
            // It is in the log already (see `catch_up_with_source`).
            Action::Append { .. } => {}
            Action::BeginEpoch { .. } => self.begin_epoch(),
            Action::Cut { end } => self.cut(end),
            Action::Persist { epoch } => {
                let history = if self.data == Holding::Whole {
                    self.member.history().clone()
                } else {
                    History::default()
                };
                if self.keep_surely(&history) {
                    self.events.push_back(Event::Persisted { epoch });
                }
            }
            Action::Ask { ticket, request } => {
                if Fault::is(self.fault, Fault::AskedIsDecided) {
                    self.answer_itself(ticket, &request);
                }
                self.shard.questions.ask(ticket, request);
            }
            Action::Commit { end } => self.commit(end.0),
            Action::Lead { epoch } => self.lead(epoch),
            Action::RefuseWaitingWrites => self.server.net.gate.freeze(true),
            Action::StepDown => self.step_down(),
            Action::BeginNewLife => self.begin_new_life(),
            Action::Leave => self.take_no_part(),
            Action::StandDown { obstacle } => {
                log!(Notice, "This node does not become master: {obstacle}");
                self.obstacle = Some(obstacle);
            }
            Action::Halt { why } => self.halt(&why),
        }
    }

    /// A planted mistake: nobody is asked who is master.
    #[cold]
    fn answer_itself(&mut self, ticket: Ticket, request: &Request) {
        if let Request::Propose(next) = request
            && self.member.role() != Role::Master
        {
            self.events.push_back(Event::Answered { ticket, answer: Answer::Done(next.clone()) });
        }
    }

    fn begin_epoch(&mut self) {
        let history = self.member.history().clone();
        let id = stream_name(&history);
        let end = loop {
            let begun = match self.keep(history.clone()) {
                true => reign::begin_stream(&self.server, id),
                false => Err(io::Error::other("see above")),
            };
            match begun {
                Ok(end) => break end,
                Err(error) => log!(Warning, "The epoch cannot begin yet: {error}"),
            }
            if self.server.engine.is_ending() {
                return;
            }
            std::thread::sleep(RETRY);
        };
        self.data = Holding::Whole;
        reign::keep_for(&self.server, self.shard.others());
        let offset = feeding::end_of_written(&self.server);
        self.floor = Some(Floor { offset, stamp: self.stamp_of_end(offset) });
        // What was written before is shown once the first of what is written in this epoch is committed.
        self.server.net.gate.forget_replicas();
        self.server.net.gate.lend(0);
        // Before anybody else writes.
        let actions = self.member.step(Event::Appended { end: Lsn(end) }, self.now());
        self.carry_out(actions);
    }

    fn lead(&mut self, epoch: Epoch) {
        if self.member.writes() == Writes::TooFewMembers {
            self.server.net.gate.freeze(true);
        }
        self.places.clear();
        self.obstacle = None;
        self.publish();
        reign::begin(&self.server);
        log!(Notice, "This node is master of shard '{}' in epoch {}", self.shard.settings.name, epoch.0);
    }

    fn step_down(&mut self) {
        let end = reign::end(&self.server);
        self.floor = None;
        self.places.clear();
        self.server.net.gate.lend(u64::MAX);
        self.events.push_front(Event::Found { end: Lsn(end) });
        log!(Notice, "This node is master of shard '{}' no more", self.shard.settings.name);
    }

    fn commit(&mut self, end: u64) {
        self.committed = end;
        let stamp = match self.floor {
            Some(floor) => floor.stamp_of(end),
            None => {
                let mut stamp = None;
                while let Some((_, at)) = self.places.pop_front_if(|(offset, _)| *offset <= end) {
                    stamp = Some(at);
                }
                stamp
            }
        };
        if let Some(stamp) = stamp {
            self.server.net.gate.replicate(stamp);
            reign::keep_before(&self.server, stamp);
        }
    }

    /// Takes back what only this node has.
    fn cut(&mut self, end: Lsn) {
        self.begin_generation();
        self.durable = self.durable.min(end.0);
        if end == Lsn::ZERO {
            // Nothing of what is here is the shard's: it stays until a copy takes its place.
            self.data = self.without_shard();
            if self.keep_surely(&History::default()) {
                self.events.push_back(Event::Cut);
            }
            return;
        }
        log!(Notice, "What is here behind offset {} is not the shard's, and is taken back", end.0);
        let event = match Fault::is(self.fault, Fault::TailKept)
            || end >= self.whole_from && reign::go_back(&self.server, end.0)
        {
            true => Event::Cut,
            false => Event::CutImpossible,
        };
        self.events.push_back(event);
    }

    fn begin_generation(&mut self) {
        let server = self.server.clone();
        let _still = server.following.stand_still();
        reign::begin_generation(&self.server);
        self.places.clear();
    }

    fn begin_new_life(&mut self) {
        let life = self.keeping.new_life();
        let id = MemberId { node: self.shard.settings.node, life };
        let restored = Restored { epoch: self.member.epoch(), history: History::default(), end: Lsn::ZERO };
        log!(
            Notice,
            "This node begins another life in shard '{}', and takes a full copy",
            self.shard.settings.name
        );
        self.begin_generation();
        self.member = Member::new(id, self.shard.settings.options, restored, self.now());
        self.data = self.without_shard();
        self.durable = 0;
        self.keep_surely(&History::default());
    }

    fn halt(&mut self, why: &Contradiction) {
        let name = &self.shard.settings.name;
        let why = match why {
            Contradiction::Lacking { cut, committed } => format!(
                "The master of shard '{name}' lacks what was acknowledged: the logs part at offset {}, and everything up to {} is committed here",
                cut.0, committed.0
            ),
            Contradiction::Forgotten { epoch } => format!(
                "Another has begun epoch {} of shard '{name}' than whom this node's log has it from: the store of decisions was restored from a backup, or the \
                 shard was begun anew, and what was acknowledged since may be nowhere else but here",
                epoch.0
            ),
        };
        log!(
            Warning,
            "{why}. This node keeps its data, serves nothing and follows nobody, so that somebody can look"
        );
        self.take_no_part();
    }

    fn take_no_part(&mut self) {
        self.is_halted = true;
        reign::halt(&self.server);
    }

    /// Asks the store once more for the first decision if it was asked in vain: it loads, say, or the connection to it broke.
    fn begin_shard_again(&mut self, now: Instant) {
        let patience = self.shard.settings.options.answer;
        let Some(begins) = self.begins.filter(|begins| now.duration_since(begins.asked_at) > patience) else {
            return;
        };
        if now.duration_since(begins.said_at) > BEGINNING_MAX {
            self.begins = None;
            log!(Warning, "The shard is not begun: the store of decisions has not taken that");
            return;
        }
        self.begin_shard(Begins { asked_at: now, ..begins });
    }

    /// Asks the store for the first decision: this node alone, and in no epoch.
    fn begin_shard(&mut self, begins: Begins) {
        self.begins = None;
        if self.is_torn() {
            log!(Warning, "The shard is not begun with a copy that is not whole");
            return;
        }
        let id = self.member.id();
        let members = BTreeSet::from([id]);
        let first = Decision { version: Version(1), epoch: Epoch(0), master: id, members, is_lossy: false };
        self.begins = Some(begins);
        self.shard.questions.ask(BEGINNING, Request::Propose(first));
    }
}
