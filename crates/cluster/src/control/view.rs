//! What the store holds of a cluster, as a config server last saw it.

use super::SILENT;
use super::rebalance::Measure;
use super::users::{Users, unescape};
use crate::store::{Changed, Reading, Revision};
use replication::insync::Decision;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::Duration;
use topology::{Move, Place, Server, ServerId, Shard, ShardId, SlotMap, Topology};

/// Names of keys, behind the cluster's prefix.
pub mod key {
    use topology::{ServerId, ShardId};

    /// The cluster's id.
    pub const CLUSTER: &str = "cluster";
    /// Who leads.
    pub const LEADER: &str = "leader";
    /// Settings of the cluster.
    pub const POLICY: &str = "policy";
    /// Who has which slots.
    pub const SLOTS: &str = "slots";
    /// The number of the last move.
    pub const LAST_MOVE: &str = "last-move";

    /// The name of the user that went last: a key that is gone says nothing of when it went, and who begins to follow is to know.
    pub const USER_GONE: &str = "user-gone";

    /// A server's record.
    #[must_use]
    pub fn server(id: ServerId) -> String {
        format!("servers/{id}")
    }

    /// That a server was removed.
    #[must_use]
    pub fn removed(id: ServerId) -> String {
        format!("removed/{id}")
    }

    /// A shard's decision.
    #[must_use]
    pub fn shard(id: ShardId) -> String {
        format!("shards/{id}")
    }

    /// Slots on their way.
    #[must_use]
    pub fn moving(id: u64) -> String {
        format!("moves/{id}")
    }

    /// A user of the proxies.
    #[must_use]
    pub fn user(name: &str) -> String {
        format!("users/{}", super::super::users::escape(name))
    }

    /// The highest number that a server ever had in a shard.
    #[must_use]
    pub fn number(id: ShardId) -> String {
        format!("numbers/{id}")
    }
}

/// The least time after which a server may be replaced: one word of it that is late is no reason.
const REPLACE_AFTER_MIN: Duration = Duration::from_secs(2 * SILENT.as_secs());

/// Settings of a cluster, which lie in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Servers of each shard.
    pub copies: u32,
    /// Shards that are begun as soon as there are servers for them.
    pub shards: u16,
    /// How long a server may be away before a spare takes its place.
    pub replace_after: Duration,
    /// Bytes that a move takes in a second; 0: as many as it can.
    pub move_rate: u64,
    /// As long as it is not 0 slots are given to nobody, since a backup is to be restored: the number of the last attempt at that, from 1 on.
    pub restore: u64,
    /// What shards are to have the same of without anybody's order; None: slots move by order only.
    pub auto_rebalance: Option<Measure>,
    /// By how many percent of the mean a shard may be off before slots move by themselves.
    pub rebalance_threshold: u32,
}

impl Policy {
    /// What [`Policy::rebalance_threshold`] is where nothing else is said.
    pub const REBALANCE_THRESHOLD: u32 = 25;

    /// Reads for how long a server may be away: seconds, or a number with `s` or `ms` behind it. Never less than it takes to be sure that it is.
    ///
    /// # Errors
    /// What it has to be.
    pub fn read_replace_after(text: &str) -> Result<Duration, String> {
        let milliseconds = match text.strip_suffix("ms") {
            Some(number) => number.parse().ok(),
            None => {
                let seconds = text.strip_suffix('s').unwrap_or(text).parse::<u64>().ok();
                seconds.and_then(|seconds| seconds.checked_mul(1000))
            }
        };
        let span = milliseconds.map(Duration::from_millis).filter(|span| *span >= REPLACE_AFTER_MIN);
        span.ok_or_else(|| {
            let least = REPLACE_AFTER_MIN.as_secs();
            format!("replace-after wants {least} seconds or more (600, 600s or 600000ms), and not '{text}'")
        })
    }

    /// As a line.
    #[must_use]
    pub fn to_line(&self) -> String {
        let Policy { copies, shards, replace_after, move_rate, restore, .. } = self;
        let replace_after = replace_after.as_millis();
        let mut line = format!(
            "policy copies={copies} shards={shards} replace-after={replace_after} move-rate={move_rate}"
        );
        // Writing to a string does not fail.
        if *restore != 0 {
            let _ = write!(line, " restore={restore}");
        }
        if let Some(measure) = self.auto_rebalance {
            let _ = write!(line, " auto-rebalance={}", measure.name());
        }
        if self.rebalance_threshold != Policy::REBALANCE_THRESHOLD {
            let _ = write!(line, " rebalance-threshold={}", self.rebalance_threshold);
        }
        line
    }

    /// From a line; None: it is none. What was written before there was a setting says nothing of it.
    #[must_use]
    pub fn from_line(line: &str) -> Option<Policy> {
        let mut words = line.split(' ');
        (words.next() == Some("policy")).then_some(())?;
        let mut read = |name: &str| words.next()?.strip_prefix(name)?.strip_prefix('=')?.parse::<u64>().ok();
        let (copies, shards, replace_after) = (read("copies")?, read("shards")?, read("replace-after")?);
        let (mut move_rate, mut restore) = (0, 0);
        let (mut auto_rebalance, mut rebalance_threshold) = (None, Policy::REBALANCE_THRESHOLD);
        for word in words {
            match word.split_once('=')? {
                ("move-rate", value) => move_rate = value.parse().ok()?,
                ("restore", value) => restore = value.parse().ok()?,
                ("auto-rebalance", value) => auto_rebalance = Some(Measure::named(value)?),
                ("rebalance-threshold", value) => rebalance_threshold = value.parse().ok()?,
                _ => return None,
            }
        }
        Some(Policy {
            move_rate,
            restore,
            auto_rebalance,
            rebalance_threshold,
            copies: u32::try_from(copies).ok().filter(|copies| *copies > 0)?,
            shards: u16::try_from(shards).ok().filter(|shards| *shards < ShardId::END.0)?,
            replace_after: Duration::from_millis(replace_after),
        })
    }
}

/// How a shard stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nobody was master yet; the node that is to begin it.
    Unbegun(u32),
    /// The decision.
    Begun(Decision),
}

impl Standing {
    /// From what the store holds.
    #[must_use]
    pub fn from_line(line: &str) -> Option<Standing> {
        match line.strip_prefix("none 0 ") {
            Some(node) => node.parse().ok().map(Standing::Unbegun),
            None => Decision::from_line(line).map(Standing::Begun),
        }
    }

    /// As it lies in the store.
    #[must_use]
    pub fn to_line(&self) -> String {
        match self {
            Standing::Unbegun(node) => format!("none 0 {node}"),
            Standing::Begun(decision) => decision.to_line(),
        }
    }

    /// The numbers of the members.
    #[must_use]
    pub fn members(&self) -> BTreeSet<u32> {
        match self {
            Standing::Unbegun(_) => BTreeSet::new(),
            Standing::Begun(decision) => decision.members.iter().map(|member| member.node.0).collect(),
        }
    }

    /// The master's number.
    #[must_use]
    pub fn master(&self) -> Option<u32> {
        match self {
            Standing::Unbegun(_) => None,
            Standing::Begun(decision) => Some(decision.master.node.0),
        }
    }

    fn shard(&self, id: ShardId) -> Shard {
        let (epoch, beginner) = match self {
            Standing::Unbegun(node) => (0, Some(*node)),
            Standing::Begun(decision) => (decision.epoch.0, None),
        };
        Shard { id, epoch, master: self.master(), members: self.members(), beginner }
    }
}

/// Who leads, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    /// The name of its process.
    pub name: String,
    /// Its host.
    pub host: String,
    /// Its port.
    pub port: u16,
}

impl Leader {
    /// As a line.
    #[must_use]
    pub fn to_line(&self) -> String {
        format!("leader {} {} {}", self.name, self.host, self.port)
    }

    /// From a line.
    #[must_use]
    pub fn from_line(line: &str) -> Option<Leader> {
        let words: Vec<&str> = line.split(' ').collect();
        let &["leader", name, host, port] = words.as_slice() else { return None };
        Some(Leader { name: name.to_owned(), host: host.to_owned(), port: port.parse().ok()? })
    }
}

/// What the store holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Up to where it is known.
    pub revision: Revision,
    /// The cluster's id; empty: there is none yet.
    pub cluster: String,
    /// All servers; changed by [`View::set_server`] only.
    pub servers: BTreeMap<ServerId, Server>,
    /// Who has which place.
    places: BTreeMap<Place, ServerId>,
    /// Servers that were removed.
    pub removed: BTreeSet<ServerId>,
    /// All shards.
    pub shards: BTreeMap<ShardId, Standing>,
    /// The highest number that a server ever had in each shard.
    pub numbers: BTreeMap<ShardId, u32>,
    /// Who has which slots.
    pub slots: SlotMap,
    /// Slots on their way, and those that did not come there.
    pub moves: BTreeMap<u64, Move>,
    /// The number of the last move.
    pub last_move: u64,
    /// Who leads.
    pub leader: Option<Leader>,
    /// Settings.
    pub policy: Option<Policy>,
    /// The users of proxies.
    pub users: Users,
    /// Keys that hold what makes no sense.
    pub(super) senseless: BTreeSet<String>,
    /// When each key was last changed.
    revisions: BTreeMap<String, Revision>,
    /// The last revision that has changed what a topology holds.
    topology_revision: Revision,
}

impl View {
    /// All of it, as it was read. `prefix` is the cluster's. What makes no sense is not there, and its key is noted.
    #[must_use]
    pub fn of(reading: &Reading, prefix: &str) -> View {
        let mut view =
            View { revision: reading.revision, topology_revision: reading.revision, ..View::default() };
        // Who follows begins behind 0, and is told also that there are none.
        view.users.revision = Revision(1);
        for entry in &reading.entries {
            if let Some(key) = entry.key.strip_prefix(prefix) {
                // All config servers say the same of what was thought of by it.
                if is_of_users(key) {
                    view.users.revision = view.users.revision.max(entry.revision);
                }
                view.take(key, Some(&entry.value), entry.revision);
            }
        }
        view
    }

    /// Follows a change.
    pub fn follow(&mut self, revision: Revision, changed: &[Changed], prefix: &str) {
        for Changed { key, value } in changed {
            let Some(key) = key.strip_prefix(prefix) else { continue };
            let restore = self.restore();
            self.take(key, value.as_deref(), revision);
            let kind = key.split('/').next().unwrap_or("");
            if matches!(kind, "cluster" | "servers" | "shards" | "slots" | "moves")
                || restore != self.restore()
            {
                self.topology_revision = revision;
            }
            if is_of_users(key) {
                self.users.revision = revision;
            }
        }
        self.revision = self.revision.max(revision);
    }

    /// When a key was last changed; 0: it is not there.
    #[must_use]
    pub fn revision_of(&self, key: &str) -> Revision {
        self.revisions.get(key).copied().unwrap_or_default()
    }

    /// Takes a key over.
    fn take(&mut self, key: &str, value: Option<&str>, revision: Revision) {
        match value {
            Some(_) => self.revisions.insert(key.to_owned(), revision),
            None => self.revisions.remove(key),
        };
        let read = match key.split_once('/') {
            None => self.take_single(key, value),
            Some(("servers", id)) => id.parse().ok().map(|id| {
                let read = value.and_then(Server::from_line).filter(|server| server.id == id);
                self.set_server(id, read)
            }),
            Some(("removed", id)) => id.parse().ok().map(|id| {
                match value {
                    Some(_) => self.removed.insert(id),
                    None => self.removed.remove(&id),
                };
                true
            }),
            Some(("shards", id)) => shard_id(id).map(|id| {
                let read = value.and_then(Standing::from_line);
                keep(&mut self.shards, id, read)
            }),
            Some(("numbers", id)) => shard_id(id).map(|id| {
                let read = value.and_then(|value| value.parse().ok());
                keep(&mut self.numbers, id, read)
            }),
            Some(("moves", id)) => id.parse().ok().map(|id| {
                let read = value.and_then(Move::from_line).filter(|one| one.id == id);
                keep(&mut self.moves, id, read)
            }),
            Some(("users", escaped)) => unescape(escaped).map(|name| self.users.take(&name, value)),
            Some(_) => None,
        };
        match value.is_none() || read == Some(true) {
            true => self.senseless.remove(key),
            false => self.senseless.insert(key.to_owned()),
        };
    }

    /// None: there is no such key.
    fn take_single(&mut self, key: &str, value: Option<&str>) -> Option<bool> {
        Some(match key {
            key::CLUSTER => {
                let read = value.filter(|value| value.parse::<ServerId>().is_ok());
                self.cluster = read.unwrap_or("").to_owned();
                read.is_some()
            }
            key::LEADER => {
                self.leader = value.and_then(Leader::from_line);
                self.leader.is_some()
            }
            key::POLICY => {
                self.policy = value.and_then(Policy::from_line);
                self.policy.is_some()
            }
            key::SLOTS => {
                let read = value.and_then(SlotMap::from_line);
                let is_one = read.is_some();
                self.slots = read.unwrap_or_default();
                is_one
            }
            key::LAST_MOVE => {
                let read = value.and_then(|value| value.parse().ok());
                self.last_move = read.unwrap_or(0);
                read.is_some()
            }
            // Only when it was written counts.
            key::USER_GONE => true,
            _ => return None,
        })
    }

    /// The number of the last attempt to bring a backup; 0: none is awaited, as far as that can be read.
    fn restore(&self) -> u64 {
        self.policy.map_or(0, |policy| policy.restore)
    }

    /// What servers and proxies are told.
    #[must_use]
    pub fn topology(&self) -> Topology {
        Topology {
            cluster: self.cluster.clone(),
            revision: self.topology_revision.0,
            servers: self.servers.clone(),
            shards: self.shards.iter().map(|(id, standing)| (*id, standing.shard(*id))).collect(),
            last_move: self.last_move,
            restore: self.restore(),
            slots: self.slots.clone(),
            moves: self.moves.clone(),
        }
    }

    /// The revision of [`View::topology`].
    #[must_use]
    pub fn topology_revision(&self) -> Revision {
        self.topology_revision
    }

    /// Which server has which place.
    #[must_use]
    pub fn places(&self) -> &BTreeMap<Place, ServerId> {
        &self.places
    }

    /// Has a server be this, or not be there. Whether it is there now.
    pub fn set_server(&mut self, id: ServerId, server: Option<Server>) -> bool {
        let former = self.servers.get(&id).and_then(|server| server.place);
        if let Some(place) = former.filter(|place| self.places.get(place) == Some(&id)) {
            self.places.remove(&place);
        }
        if let Some(place) = server.as_ref().and_then(|server| server.place) {
            self.places.insert(place, id);
        }
        keep(&mut self.servers, id, server)
    }

    /// The shards that have begun.
    pub fn begun(&self) -> impl Iterator<Item = ShardId> + '_ {
        let begun = self.shards.iter().filter(|(_, standing)| matches!(standing, Standing::Begun(_)));
        begun.map(|(id, _)| *id)
    }

    /// The servers that have a place in a shard, by their numbers.
    #[must_use]
    pub fn placed_in(&self, shard: ShardId) -> BTreeMap<u32, &Server> {
        let places = self.places.range(Place { shard, node: 0 }..=Place { shard, node: u32::MAX });
        places.filter_map(|(place, id)| Some((place.node, self.servers.get(id)?))).collect()
    }

    /// The server that is master of a shard.
    #[must_use]
    pub fn master_of(&self, shard: ShardId) -> Option<&Server> {
        let node = self.shards.get(&shard)?.master()?;
        self.servers.get(self.places.get(&Place { shard, node })?)
    }

    /// The number that the next new shard gets; None: there is none left.
    #[must_use]
    pub fn next_shard(&self) -> Option<ShardId> {
        let last = self.shards.keys().chain(self.numbers.keys()).max();
        let next = ShardId(last.map_or(0, |last| last.0 + 1));
        (next < ShardId::END).then_some(next)
    }
}

/// Whether a key tells of users.
fn is_of_users(key: &str) -> bool {
    key == key::USER_GONE || key.starts_with("users/")
}

fn shard_id(text: &str) -> Option<ShardId> {
    text.parse().ok().map(ShardId).filter(|id| *id < ShardId::END)
}

/// Sets or removes; whether there is one now.
fn keep<K: Ord, V>(map: &mut BTreeMap<K, V>, key: K, value: Option<V>) -> bool {
    match value {
        Some(value) => {
            map.insert(key, value);
            true
        }
        None => {
            map.remove(&key);
            false
        }
    }
}
