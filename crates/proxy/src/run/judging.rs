//! What becomes of a request: whether it may be done, and where.

use super::{NOT_SERVED, Runner, Verdict, kind_of, topics_of};
use crate::computed::{self, Computed};
use crate::group_reads::GroupRead;
use crate::heard::Heard;
use crate::links;
use crate::parts::Plan;
use crate::pops;
use crate::serve::Front;
use crate::stream_waits::{StreamWait, Streams, Unfit};
use crate::upstream::NodeNo;
use crate::users::Answer;
use crate::waits::Called;
use crate::ways;
use crate::ways::Way;
use command::table::Command;
use command::{Error, Flags};
use config::ReadFrom;
use server::dispatch::ownership::CROSSSLOT;
use server::dispatch::{checks, ownership};
use server::rights;
use std::time::Instant;
use sys::UnixMs;
use wire::{Request, key_slot};

/// What is told to who may not do everything, and wants a script to be run.
const LIMITED: &str = "NOPERM proxy: scripts and functions may do at the servers what this user may not: they are refused unless \
     'proxy-restricted-scripts' is yes";

impl Runner {
    #[inline]
    pub(super) fn judge(
        &self,
        front: &mut Front,
        command: Option<&'static Command>,
        request: &Request<'_>,
        now: UnixMs,
    ) -> Verdict {
        if let Some(error) = front.refused.take() {
            return Verdict::Refuse(error);
        }
        if front.changes_users {
            return self.changed_users(front);
        }
        // The host says that there is no such command, or no such subcommand.
        let Some(command) = command.filter(|command| !checks::lacks_subcommand(command, request)) else {
            return Verdict::Here;
        };
        let way = match self.proxy.ways[command.id.0] {
            Way::Users if self.proxy.users.is_none() => Way::Here,
            way => way,
        };
        if way == Way::Here && front.inner.transaction.is_none() && !ways::is_of_files(command, request) {
            return Verdict::Here;
        }
        match checks::check_request(&self.proxy.host, &mut front.inner, command, request, now) {
            checks::Verdict::Run => {}
            checks::Verdict::Refuse(error) => return Verdict::Refuse(error),
            _ => return Verdict::Refuse(ways::refusal(command)),
        }
        if let Err(error) = self.admit_script(front, command) {
            return Verdict::Refuse(error);
        }
        if let Some(until) = checks::paused_until(&self.proxy.host, &front.inner, command, request, now) {
            return Verdict::Paused(until);
        }
        let confined = checks::confinement(&front.inner, command);
        if let Some(error) = confined.or_else(|| checks::watching_only(&front.inner, command.row.flags)) {
            return Verdict::Refuse(error);
        }
        if front.inner.transaction.is_some() {
            return self.judge_queued(front, (command, way), request, now);
        }
        self.judge_alone(front, (command, way), request)
    }

    /// Judges what stands alone.
    fn judge_alone(
        &self,
        front: &mut Front,
        (command, way): (&'static Command, Way),
        request: &Request<'_>,
    ) -> Verdict {
        let mut slot = None;
        let is_of_one = ownership::gather(command, request, &mut slot).is_ok();
        if !is_of_one && let Some(form) = pops::form_of(command) {
            return self.pops(front, form, command, request);
        }
        Verdict::Send(match way {
            Way::Slot | Way::Split(_) | Way::Computed
                if is_of_one && !ways::reaches_out(command, request) =>
            {
                if let Some(kept) = self.kept(front, command, request, slot) {
                    return kept;
                }
                return self.to_owner(slot, |node, slot| self.read_or(Plan::One(node, slot), front, command));
            }
            Way::Split(split) if self.may_split(command) => Plan::Parts(split),
            Way::Computed if request.len() <= computed::WORDS_MAX => {
                Plan::Computed(command.id, front.inner.protocol)
            }
            Way::Slot | Way::Split(_) | Way::Computed if !is_of_one => {
                return Verdict::Refuse(Error::text(CROSSSLOT));
            }
            Way::Everywhere(gathering) => Plan::Everywhere(gathering),
            Way::Scan => Plan::Scan,
            Way::Blocks if is_of_one && !ways::may_block(command, request) => {
                return self.to_owner(slot, Plan::One);
            }
            Way::Blocks if is_of_one => return self.to_owner(slot, Plan::Blocks),
            Way::Blocks if command.row.name == "xread" && !ways::may_block(command, request) => {
                Plan::Streams(front.inner.protocol)
            }
            Way::Blocks if command.row.name.starts_with("xread") => {
                return self.read_streams(front, command, request);
            }
            Way::Watch if is_of_one && self.may_watch(front, slot) => {
                return self.to_owner(slot, Plan::Watch);
            }
            Way::Waits => return self.wait(front),
            Way::Blocks | Way::Watch => return Verdict::Refuse(Error::text(CROSSSLOT)),
            Way::Listen => return self.listen(front, command, request),
            Way::Track => return self.track(front, request),
            Way::Users => return self.change_users(front, command, request),
            Way::Unblock => return self.unblock(front, request),
            Way::Publish => {
                let (hearing, channel) = (&self.proxy.hearing, request.arg(1));
                let pubsub = &self.proxy.host.pubsub;
                let by = |node| hearing.correction(pubsub, node, (kind_of(command), channel));
                let publish = |node, slot| Plan::Publish(node, slot, by(node));
                return self.to_owner(Some(key_slot(channel)), publish);
            }
            // There is none to execute.
            Way::Exec | Way::Unwatch => return Verdict::Here,
            Way::Slot | Way::Split(_) | Way::Computed => {
                return Verdict::Refuse(ways::refusal_of_patterns(command));
            }
            // All else of these the host answers.
            Way::Here => return Verdict::Refuse(ways::refusal_of_files(command)),
            Way::Refused => return Verdict::Refuse(ways::refusal(command)),
        })
    }

    /// Has a client woken that waits.
    fn unblock(&self, front: &Front, request: &Request<'_>) -> Verdict {
        let Some((client, called)) = called_by(request) else { return Verdict::Here };
        // It is judged again when who wakes is owed nothing.
        if front.owed > 0 {
            return Verdict::Here;
        }
        match self.proxy.call_here(client, called) {
            Some(true) => Verdict::Changed(Answer::Count(1)),
            Some(false) => Verdict::Send(Plan::Unblock(client, called)),
            None => Verdict::Here,
        }
    }

    /// Has a client listen, once that is so at servers, too.
    fn listen(&self, front: &Front, command: &Command, request: &Request<'_>) -> Verdict {
        let topics = topics_of(command, request);
        let routes = self.links.borrow().routes.clone();
        when_heard(self.proxy.hearing.listen(&routes, &topics, &front.inner.client))
    }

    /// Has a client track what it caches, once servers tell what changes.
    fn track(&self, front: &Front, request: &Request<'_>) -> Verdict {
        if !request.get(2).is_some_and(|word| word.eq_ignore_ascii_case(b"on")) {
            return Verdict::Here;
        }
        let routes = self.links.borrow().routes.clone();
        when_heard(self.proxy.changes.listen(&routes, &front.inner.client))
    }

    /// Sends a request to the server that has this slot. One of a command with keys that has none is wrong, which any server says in its words.
    fn to_owner(&self, slot: Option<u16>, plan: impl FnOnce(NodeNo, Option<u16>) -> Plan) -> Verdict {
        match self.links.borrow().routes.of(slot.unwrap_or(0)) {
            Some(node) => Verdict::Send(plan(node, slot)),
            None => Verdict::Refuse(Error::text(NOT_SERVED)),
        }
    }

    /// Has something taken from keys of several slots.
    fn pops(
        &self,
        front: &Front,
        form: &pops::Form,
        command: &'static Command,
        request: &Request<'_>,
    ) -> Verdict {
        match Computed::only_node(&self.links.borrow().routes, request, command.id) {
            Some(node) if form.waits() => return Verdict::Send(Plan::Blocks(node, None)),
            Some(node) => return Verdict::Send(Plan::One(node, None)),
            None => {}
        }
        if let Err(error) = pops::check_keys(form, command, request) {
            return Verdict::Refuse(error);
        }
        match form.check(request, self.proxy.host.engine.clock.now()) {
            Err(error) if !form.says_more() => Verdict::Refuse(error),
            _ => Verdict::Send(Plan::Pops(command.id, front.inner.protocol)),
        }
    }

    /// Has streams of several slots waited for, or read as by a consumer of a group.
    fn read_streams(&self, front: &Front, command: &Command, request: &Request<'_>) -> Verdict {
        let routes = &self.links.borrow().routes;
        match Computed::only_node(routes, request, command.id) {
            Some(node) if ways::may_block(command, request) => {
                return Verdict::Send(Plan::Blocks(node, None));
            }
            Some(node) => return Verdict::Send(Plan::One(node, None)),
            None => {}
        }
        let (now, protocol) = (self.proxy.host.engine.clock.now(), front.inner.protocol);
        let is_of_group = command.row.name == "xreadgroup";
        let checked = Streams::of(routes, request).map(|streams| match is_of_group {
            true => GroupRead::check(&streams, now),
            false => StreamWait::check(&streams, now),
        });
        match checked {
            Ok(Err(error)) => Verdict::Refuse(error),
            Err(Unfit::NotServed) => Verdict::Refuse(Error::text(NOT_SERVED)),
            Ok(Ok(())) | Err(Unfit::Wrong) if is_of_group => Verdict::Send(Plan::GroupRead(protocol)),
            Ok(Ok(())) | Err(Unfit::Wrong) => Verdict::Send(Plan::StreamWait(protocol)),
        }
    }

    /// A read of a hot key: its reply, or that it is to be kept when it comes.
    #[inline]
    fn kept(
        &self,
        front: &Front,
        command: &Command,
        request: &Request<'_>,
        slot: Option<u16>,
    ) -> Option<Verdict> {
        let is_on = self.proxy.host.engine.config.proxy_cache_bytes() > 0;
        if is_on && ways::is_cacheable(command) { self.kept_reply(front, request, slot?) } else { None }
    }

    fn kept_reply(&self, front: &Front, request: &Request<'_>, slot: u16) -> Option<Verdict> {
        // What a client caches itself, or watches, it reads where changes are told.
        let is_bound = front.inner.tracking.is_some() || front.watched_slot.is_some();
        let is_plain = front.owed == 0 && !is_bound && !front.inner.is_silent();
        let (key, sent) = (request.get(1).filter(|_| is_plain)?, request.as_sent()?);
        let links = self.links.borrow();
        let answered_at =
            front.written.answered_at().filter(|_| self.proxy.changes.is_whole(&links.routes))?;
        let speaks = (front.inner.protocol, front.inner.db.0 as usize);
        if let Some(reply) = self.proxy.cache.get(key, (sent, speaks), answered_at, Instant::now) {
            return Some(Verdict::Cached(reply));
        }
        let is_hot = self.heat.borrow_mut().note(key, Instant::now());
        let node = links.routes.of(slot).filter(|_| is_hot)?;
        Some(Verdict::Send(Plan::Kept(node, Some(slot))))
    }

    /// Has a client wait for what it has written, unless that may be lost, of which it is told once.
    fn wait(&self, front: &mut Front) -> Verdict {
        let (written, losses) = (front.written, &self.proxy.upstream.losses);
        let routes = self.links.borrow().routes.clone();
        let is_written_to = |node| !written.is_nothing() && written.has(node, routes.version);
        let is_master = |node| routes.masters.contains(&node) || written.was_asked(node);
        match losses.is_any_of_masters_since(written.losses(), is_master, is_written_to) {
            true => {
                front.written.begin(self.proxy.upstream.losses_at(routes.version));
                Verdict::Refuse(Error::line(links::MAY_BE_LOST[1..links::MAY_BE_LOST.len() - 2].to_vec()))
            }
            false => Verdict::Send(Plan::Waits(written)),
        }
    }

    /// The same of a replica, if it may answer the request.
    fn read_or(&self, plan: Plan, front: &Front, command: &Command) -> Plan {
        let from = self.proxy.host.engine.config.proxy_read_from();
        let Plan::One(master, slot) = plan else { return plan };
        if from == ReadFrom::Master || !ways::may_be_of_replica(command) {
            return plan;
        }
        // What a client caches, or watches, it reads where changes are told.
        let is_bound = front.inner.tracking.is_some() || front.watched_slot.is_some();
        let needs = {
            let routes = &self.links.borrow().routes;
            front.written.needs_of(master, (routes.version, routes.since))
        };
        let Some(needs) = needs.filter(|_| !is_bound) else { return plan };
        let reader = (front.inner.client.id, needs);
        match self.proxy.replicas.reader(from, master, reader, Instant::now()) {
            Some(replica) => Plan::Read(replica, slot, master),
            None => plan,
        }
    }

    /// Whether a request may be done in parts, one of which may fail while others are done.
    fn may_split(&self, command: &Command) -> bool {
        !command.is(Flags::WRITE) || self.proxy.host.engine.config.proxy_split_writes()
    }

    /// Whether a client watches no keys of another slot. Where it has failed to, a transaction that it has sent behind that executes nothing, but it may watch others.
    fn may_watch(&self, front: &Front, slot: Option<u16>) -> bool {
        front.watched_slot.is_none_or(|watched| Some(watched) == slot)
            || !self.links.borrow().has_watched(front.inner.client.id)
    }

    /// Judges what comes between MULTI and EXEC: all of it goes to one server at once.
    fn judge_queued(
        &self,
        front: &mut Front,
        (command, way): (&Command, Way),
        request: &Request<'_>,
        now: UnixMs,
    ) -> Verdict {
        match way {
            Way::Exec if front.inner.transaction.as_ref().is_some_and(|one| !one.is_doomed) => {
                if let Err(error) = self.admit_all(front, now) {
                    return Verdict::Refuse(error);
                }
                match front.watched_slot {
                    Some(slot) => self.to_owner(Some(slot), Plan::Watched),
                    None => self.to_owner(front.queued_slot, Plan::Transaction),
                }
            }
            // It is given up, or has been refused, or is another MULTI.
            _ if command.is(Flags::RUNS_IN_MULTI) => {
                if command.is(Flags::ENDS_TRANSACTION) {
                    front.queued_slot = None;
                }
                Verdict::Here
            }
            Way::Slot | Way::Split(_) if ways::reaches_out(command, request) => {
                Verdict::Refuse(ways::refusal_of_patterns(command))
            }
            Way::Slot | Way::Split(_) | Way::Computed | Way::Blocks => {
                let mut slot = front.queued_slot.or(front.watched_slot);
                let is_of_one = ownership::gather(command, request, &mut slot).is_ok();
                front.queued_slot = front.queued_slot.or(slot);
                if is_of_one { Verdict::Here } else { Verdict::Refuse(Error::text(CROSSSLOT)) }
            }
            Way::Publish => {
                let slot = Some(key_slot(request.arg(1)));
                let wanted = front.queued_slot.or(front.watched_slot).or(slot);
                if wanted != slot {
                    return Verdict::Refuse(Error::text(CROSSSLOT));
                }
                front.queued_slot = wanted;
                Verdict::Here
            }
            // In a transaction it does nothing.
            Way::Unwatch => Verdict::Here,
            // They say the same wherever they are executed.
            Way::Here if matches!(command.row.name, "ping" | "echo" | "time") => Verdict::Here,
            _ => Verdict::Refuse(ways::refusal(command)),
        }
    }

    /// Whether a session that was admitted may have scripts run: what they call is done with the proxy's rights at the servers, which know nothing of the session's.
    ///
    /// # Errors
    /// Its rights are limited.
    #[inline]
    fn admit_script(&self, front: &Front, command: &Command) -> Result<(), Error> {
        let host = &self.proxy.host;
        let is_limited = command.runs_script() && !front.inner.access.is_unrestricted(&host.acl);
        match is_limited && !host.engine.config.proxy_restricted_scripts() {
            true => Err(Error::text(LIMITED)),
            false => Ok(()),
        }
    }

    /// Whether a session may still do all that it has queued: its rights may be others by now.
    ///
    /// # Errors
    /// What it may not do.
    fn admit_all(&self, front: &mut Front, now: UnixMs) -> Result<(), Error> {
        let Some(transaction) = front.inner.transaction.take() else { return Ok(()) };
        let admitted = transaction.queue().iter().try_for_each(|queued| {
            let (command, request) = (queued.command(), queued.request());
            rights::admit_queued(&self.proxy.host, &mut front.inner, command, &request, now)?;
            self.admit_script(front, command)
        });
        front.inner.transaction = Some(transaction);
        admitted
    }
}

/// Which client a CLIENT UNBLOCK wakes, and what that one is told; None: the host says what is wrong with it.
fn called_by(request: &Request<'_>) -> Option<(u64, Called)> {
    let client = std::str::from_utf8(request.get(2)?).ok()?.parse().ok()?;
    let called = match request.get(3) {
        None => Called::Timeout,
        Some(word) if word.eq_ignore_ascii_case(b"timeout") => Called::Timeout,
        Some(word) if word.eq_ignore_ascii_case(b"error") => Called::Error,
        Some(_) => return None,
    };
    Some((client, called)).filter(|_| request.len() <= 4)
}

/// What becomes of a request whose client wants to listen.
fn when_heard(heard: Heard) -> Verdict {
    match heard {
        Heard::Yes => Verdict::Here,
        Heard::NotYet => Verdict::Wait,
        Heard::Refused(reason) => Verdict::Refuse(Error::line(format!("ERR proxy: {reason}"))),
    }
}
