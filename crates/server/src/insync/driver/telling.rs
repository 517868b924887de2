//! Tells others how this node stands: whoever asks, the log, the cluster's view.

use super::Driver;
use crate::feeding::upkeep;
use crate::insync::source::Holding;
use crate::shard::{Promotion, Standing};
use replication::insync::{MemberId, Role, Writes};
use telemetry::log;

impl Driver {
    /// Says who the members are when that has changed.
    fn tell_of_members(&mut self) {
        let Some(known) = self.member.decision().filter(|known| known.version > self.told) else { return };
        self.told = known.version;
        let members: Vec<String> = known.members.iter().map(MemberId::to_string).collect();
        log!(
            Notice,
            "Shard '{}' by decision {}: epoch {}, master {}, members {}",
            self.shard.settings.name,
            known.version.0,
            known.epoch.0,
            known.master,
            members.join(" ")
        );
    }

    /// What has become of the newest wish that this node be master.
    fn promotion(&self) -> Promotion {
        match self.obstacle {
            _ if self.member.is_told_to_lead() => Promotion::UnderWay,
            Some(obstacle) => Promotion::Refused(obstacle),
            None => Promotion::None,
        }
    }

    /// Lets others know how it stands.
    pub(super) fn publish(&mut self) {
        self.tell_of_members();
        let (member, gate) = (&self.member, &self.server.net.gate);
        let (role, writes) = (member.role(), member.writes());
        let follows = self.is_streaming() && self.committed > 0 && self.data == Holding::Whole;
        let standing = Standing {
            id: member.id(),
            role,
            epoch: member.epoch(),
            writes,
            committed: member.committed(),
            end: member.appended(),
            decision: member.decision().cloned(),
            is_halted: self.is_halted,
            is_torn: self.is_torn(),
            is_foreign: self.data == Holding::Foreign,
            promotion: self.promotion(),
        };
        let hides_all = self.is_halted || role != Role::Master && !follows;
        if let Some(part) = self.server.clustered.get() {
            part.note_standing(&standing);
        }
        if self.shard.publish(standing, hides_all) {
            gate.freeze(writes == Writes::TooFewMembers);
            upkeep::follow_minimum(&self.server);
        }
    }
}
