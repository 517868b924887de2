//! A master that is to be none any more: it holds clients' writes back until nothing is under way, and tells a member that it is to be it.

use super::Driver;
use crate::insync::reign;
use replication::insync::{Event, NodeId, Role};
use std::time::{Duration, Instant};
use telemetry::log;

/// A wish that another be master.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaving {
    to: Option<NodeId>,
    until: Instant,
    /// When it is looked next whether it can be granted.
    pub look_at: Instant,
}

/// How often that is.
const LEAVING_LOOK: Duration = Duration::from_millis(1);

impl Driver {
    /// Another is to be master. Writes wait from now on.
    pub(super) fn begin_to_leave(&mut self, to: Option<NodeId>, until: Instant) {
        reign::hold_writes(&self.server);
        self.leaving = Some(Leaving { to, until, look_at: until });
    }

    /// Hands over to another, if that is wished, as soon as nothing is under way.
    pub(super) fn leave(&mut self, now: Instant) {
        let Some(Leaving { to, until, look_at }) = &mut self.leaving else { return };
        let (to, is_late) = (*to, now >= *until);
        *look_at = now + LEAVING_LOOK;
        let is_master = |driver: &Driver| driver.member.role() == Role::Master;
        if is_master(self) && !is_late {
            if self.member.committed() == self.member.appended() && reign::is_quiet(&self.server) {
                self.happen(Event::HandOver { to });
            }
            if is_master(self) {
                return;
            }
        }
        if is_master(self) {
            log!(Notice, "No member could take this master's place in time: it stays master");
        }
        self.leaving = None;
        reign::let_writes_go(&self.server);
    }
}
