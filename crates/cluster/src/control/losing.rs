//! A shard whose members are gone for good begins anew with what another server has, by an operator's word.
//!
//! 1. Nothing is done while a member lives, or may: each that is not heard of has to be named, and none that is heard of can be. Nor is anything done for who names nobody, and
//!    does not say either that there is nobody to name: he is told what is known of the loss.
//! 2. The server takes the place of the decision that was looked at, and of no other (`INSYNC PROMOTE ACCEPT-LOSS VERSION`): a member that comes back before that has made
//!    another one, and is left in peace.
//! 3. Then those that were named are removed from the cluster: they have what was given up, and keep it for whoever wants to look, but they serve nothing any more.

use super::orders::{self, Done, Next, Stage, refuse};
use super::view::{Standing, View};
use super::{Control, SILENT};
use replication::insync::{Decision, Loss, Moment};
use std::collections::BTreeSet;
use topology::{Server, ServerId, ShardId};

/// What an operator is ready to lose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Losing {
    /// The shard.
    pub shard: ShardId,
    /// Whose data is to count.
    pub heir: ServerId,
    /// Members that will not come back, if the operator has said who they are, also that there are none; None: he only wants to know.
    pub gone: Option<BTreeSet<ServerId>>,
}

impl Losing {
    fn named(&self) -> impl Iterator<Item = &ServerId> {
        self.gone.iter().flatten()
    }

    fn names(&self, id: ServerId) -> bool {
        self.gone.as_ref().is_some_and(|gone| gone.contains(&id))
    }
}

impl Control {
    pub(super) fn next_of_losing(&self, view: &View, losing: &Losing, stage: &Stage, now: Moment) -> Next {
        let Losing { shard, heir, .. } = losing;
        let Some(Standing::Begun(decision)) = view.shards.get(shard) else {
            return refuse(format!("there is no shard {shard} that has begun"));
        };
        let Some(server) = view.servers.get(heir) else {
            return refuse(format!("there is no server {heir}"));
        };
        let Some(place) = server.place else {
            return match self.why_not_lost(view, losing, decision, now) {
                Some(why) => refuse(why),
                None => orders::place(view, *heir, *shard),
            };
        };
        if place.shard != *shard {
            return refuse(format!("server {heir} has its place in shard {}", place.shard));
        }
        let leads = decision.master.node.0 == place.node && self.is_member(server, decision) == Some(true);
        match stage {
            Stage::Losing(told) if leads => self.bury(view, losing, decision, told.clone(), now),
            Stage::Losing(_) => Next::Wait,
            // It was said before, and is said again.
            _ if leads
                && (losing.named().next().is_some() || losing.gone.is_some() && self.lives(*heir, now)) =>
            {
                let told = format!("server {heir} is master of shard {shard}");
                self.bury(view, losing, decision, told, now)
            }
            _ => self.begin_losing(view, losing, server, decision, now),
        }
    }

    fn begin_losing(
        &self,
        view: &View,
        losing: &Losing,
        server: &Server,
        decision: &Decision,
        now: Moment,
    ) -> Next {
        let Losing { shard, heir, .. } = losing;
        if !self.lives(*heir, now) {
            return refuse(format!("server {heir} is not heard of"));
        }
        match self.is_member(server, decision) {
            Some(true) => {
                return refuse(format!(
                    "server {heir} is a member of shard {shard}: it has all that was acknowledged, and nothing need be lost (CLUSTER SWITCH)"
                ));
            }
            // It has a place, and does not know it yet.
            None => return Next::Wait,
            Some(false) => {}
        }
        if let Some(why) = self.why_not_lost(view, losing, decision, now) {
            return refuse(why);
        }
        let told = format!(
            "server {heir} is master of shard {shard}; {}",
            self.known_of_loss(view, losing, decision, now)
        );
        Next::Promote(*heir, Loss::Accepted(Some(decision.version)), Stage::Losing(told))
    }

    /// Whether a server's data is a member's, as it has said last; None: it has said nothing of that.
    pub(super) fn is_member(&self, server: &Server, decision: &Decision) -> Option<bool> {
        let node = server.place?.node;
        // 0: it takes no part yet.
        let life = self.said_number(server.id, "life").filter(|life| *life > 0)?;
        Some(decision.members.iter().any(|member| member.node.0 == node && member.life.0 == life))
    }

    /// Why the members may not count as gone; None: they may.
    fn why_not_lost(&self, view: &View, losing: &Losing, decision: &Decision, now: Moment) -> Option<String> {
        let placed = view.placed_in(losing.shard);
        let members: Vec<&Server> =
            decision.members.iter().filter_map(|member| placed.get(&member.node.0).copied()).collect();
        if let Some(other) = losing.named().find(|id| members.iter().all(|member| member.id != **id)) {
            return Some(format!("server {other} is no member of shard {}", losing.shard));
        }
        let lives = |server: &Server| self.silence(server.id, now) < SILENT;
        let may_have = |server: &Server| self.is_member(server, decision) != Some(false);
        if let Some(living) = members.iter().find(|server| lives(server) && may_have(server)) {
            return Some(format!(
                "server {} ({}) is a member of shard {}, and was heard of within {} s: it has all that was acknowledged. If it cannot be used, stop it",
                living.id,
                address(living),
                losing.shard,
                SILENT.as_secs()
            ));
        }
        let unnamed = members.iter().filter(|server| !lives(server) && !losing.names(server.id));
        let unnamed: Vec<String> =
            unnamed.map(|server| format!("{} ({})", server.id, address(server))).collect();
        if unnamed.is_empty() {
            let is_look = losing.gone.is_none();
            return is_look.then(|| {
                format!(
                    "no member of shard {} has what was acknowledged any more: each lives with other data, so that nobody is to be named. If what was acknowledged is to be given up, say GONE - (--gone none); {}",
                    losing.shard,
                    self.known_of_loss(view, losing, decision, now)
                )
            });
        }
        Some(format!(
            "these members of shard {} are not heard of, and have what was acknowledged: {}. If they will never come back, each is to be named behind GONE; {}",
            losing.shard,
            unnamed.join(", "),
            self.known_of_loss(view, losing, decision, now)
        ))
    }

    /// What of the log is lost, as far as anybody can say.
    fn known_of_loss(&self, view: &View, losing: &Losing, decision: &Decision, now: Moment) -> String {
        let offset = |id: ServerId| Some((self.said_number(id, "offset")?, self.heard().get(&id)?.at));
        let has = offset(losing.heir).map_or(0, |(offset, _)| offset);
        let placed = view.placed_in(losing.shard);
        let master = placed.get(&decision.master.node.0);
        match master.filter(|master| master.id != losing.heir).and_then(|master| offset(master.id)) {
            None => {
                format!("it has the log up to {has}, and nobody can say how far the last master had come")
            }
            Some((had, at)) => format!(
                "it has the log up to {has}, and the last master had said {} s ago that it had come to {had}: {} bytes of the log are lost, and what came after that",
                now.since(at).as_secs(),
                had.saturating_sub(has)
            ),
        }
    }

    /// Has those go that were named, unless one of them has come back meanwhile and follows.
    fn bury(&self, view: &View, losing: &Losing, decision: &Decision, told: String, now: Moment) -> Next {
        let placed = view.placed_in(losing.shard);
        let is_member = |id: &ServerId| {
            let mut members = decision.members.iter();
            members.any(|member| placed.get(&member.node.0).is_some_and(|server| server.id == *id))
        };
        let is_there = |id: &&ServerId| placed.values().any(|server| server.id == **id);
        let gone = losing.named().filter(is_there);
        let gone: Vec<ServerId> =
            gone.filter(|id| !self.lives(**id, now) && !is_member(id)).copied().collect();
        match gone.is_empty() {
            true => Next::End(Ok(told)),
            false => Next::Stage(Stage::Ready(Done::Bury(gone, told))),
        }
    }
}

/// Where a server is, for people.
pub(super) fn address(server: &Server) -> String {
    let port = if server.port == 0 { server.tls_port } else { server.port };
    format!("{}:{port}", server.host)
}
