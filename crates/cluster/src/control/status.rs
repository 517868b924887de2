//! How a cluster stands, for operators: as JSON, which `tarn cluster status` makes a table of.

use super::view::{Standing, View};
use super::{Control, Measure, SILENT};
use replication::insync::Moment;
use serde_json::{Value, json};
use topology::{Move, Server, ServerId, ShardId, Stage};

impl Control {
    /// How all stands, as this config server knows it.
    #[must_use]
    pub fn status(&self, now: Moment) -> Value {
        let empty = View::default();
        let view = self.view().unwrap_or(&empty);
        let spares = view.servers.values().filter(|server| server.place.is_none());
        let shards: Vec<Value> = view
            .shards
            .iter()
            .map(|(id, standing)| {
                let placed = view.placed_in(*id);
                let servers = placed.iter().map(|(node, server)| {
                    let mut shown = self.server(server, now);
                    let is_same = !self.has_other_life(server, standing);
                    shown["node"] = json!(node);
                    shown["is_master"] = json!(standing.master() == Some(*node) && is_same);
                    shown["is_member"] = json!(standing.members().contains(node) && is_same);
                    shown
                });
                let epoch = match standing {
                    Standing::Unbegun(_) => 0,
                    Standing::Begun(decision) => decision.epoch.0,
                };
                let slots = view.slots.ranges_of(*id).map(|range| json!([range.first, range.last]));
                json!({
                    "shard": id.0,
                    "epoch": epoch,
                    "has_begun": matches!(standing, Standing::Begun(_)),
                    "is_bereft": self.is_bereft(*id, standing, view, now),
                    "slots": slots.collect::<Vec<_>>(),
                    "slot_count": view.slots.count_of(*id),
                    "servers": servers.collect::<Vec<_>>(),
                })
            })
            .collect();
        json!({
            "cluster": view.cluster,
            "revision": view.topology_revision().0,
            "is_of_leader": self.leads(),
            "leader": view.leader.as_ref().map(|leader| format!("{}:{}", leader.host, leader.port)),
            "policy": view.policy.map(|policy| json!({
                "copies": policy.copies,
                "shards": policy.shards,
                "replace_after_ms": u64::try_from(policy.replace_after.as_millis()).unwrap_or(u64::MAX),
                "move_rate": policy.move_rate,
                "awaits_restore": policy.restore != 0,
                "auto_rebalance": policy.auto_rebalance.map(Measure::name),
                "rebalance_threshold": policy.rebalance_threshold,
            })),
            "slots_covered": view.slots.count(),
            "serves": self.serves(now),
            "troubles": view.troubles(),
            "shards": shards,
            "moves": view.moves.values().map(|one| self.moving(one, view, now)).collect::<Vec<_>>(),
            "last_move": view.last_move,
            "moves_over": self.moves().over().map(|(id, is_done)| json!({ "move": id, "is_done": is_done })).collect::<Vec<_>>(),
            "orders": self.orders.under_way(now).collect::<Vec<_>>(),
            "spares": spares.map(|server| self.server(server, now)).collect::<Vec<_>>(),
        })
    }

    /// Whether each slot has a shard, each shard that has slots a master that lives and says that it is one.
    #[must_use]
    pub fn serves(&self, now: Moment) -> bool {
        let Some(view) = self.view() else { return false };
        let has_slots = |(id, _): &(&ShardId, &Standing)| view.slots.count_of(**id) > 0;
        let is_well = |(id, standing): (&ShardId, &Standing)| {
            let placed = view.placed_in(*id);
            let master = standing.master().and_then(|node| placed.get(&node).copied());
            master.is_some_and(|server| {
                let said = |name| self.said(server.id, name);
                self.lives(server.id, now) && said("role") == Some("master") && said("serves") != Some("0")
            })
        };
        view.slots.count() == wire::SLOTS && view.shards.iter().filter(has_slots).all(is_well)
    }

    /// Whether a server has said that its data is none of what its shard's decision names: another life is other data, whatever its number.
    fn has_other_life(&self, server: &Server, standing: &Standing) -> bool {
        match standing {
            Standing::Unbegun(_) => false,
            Standing::Begun(decision) => self.is_member(server, decision) == Some(false),
        }
    }

    /// Whether a shard has servers that live, and none of them holds what was acknowledged.
    fn is_bereft(&self, id: ShardId, standing: &Standing, view: &View, now: Moment) -> bool {
        let members = standing.members();
        let placed = view.placed_in(id);
        let mut living = placed.iter().filter(|(_, server)| self.lives(server.id, now)).peekable();
        let has_begun = matches!(standing, Standing::Begun(_));
        has_begun
            && living.peek().is_some()
            && living.all(|(node, server)| !members.contains(node) || self.has_other_life(server, standing))
    }

    fn server(&self, server: &Server, now: Moment) -> Value {
        let figures = self.heard().get(&server.id).map_or("", |heard| heard.figures.as_str());
        json!({
            "id": server.id.to_string(),
            "host": server.host,
            "port": server.port,
            "tls_port": server.tls_port,
            "zone": server.zone,
            "edition": server.edition.name(),
            "is_met": server.is_met,
            "lives": self.lives(server.id, now),
            "silent_ms": self.silent_ms(server.id, now),
            "figures": shown(figures),
        })
    }

    fn moving(&self, one: &Move, view: &View, now: Moment) -> Value {
        let (stage, reason) = match &one.stage {
            Stage::Waiting => ("waiting", None),
            Stage::Copying => ("copying", None),
            Stage::Switching => ("switching", None),
            Stage::Failed(reason) => ("failed", Some(reason)),
        };
        // Who does not lead does not hear of all masters.
        let waits = one.stage == Stage::Waiting && self.leads();
        let waits_for = if waits { self.why_waits(view, one, now) } else { None };
        json!({
            "move": one.id,
            "from": one.from.0,
            "to": one.to.0,
            "attempt": one.attempt,
            "stage": stage,
            "reason": reason,
            "waits_for": waits_for,
            "last_failure": self.moves().last_failure(one),
            "slots": one.slots.iter().map(|range| json!([range.first, range.last])).collect::<Vec<_>>(),
            "slot_count": one.count(),
            "figures": shown(self.moves().progress(one)),
        })
    }

    /// For how long it was silent, if it was heard of and that is worth to be told.
    fn silent_ms(&self, id: ServerId, now: Moment) -> Option<u64> {
        let heard = self.heard().get(&id)?;
        let silence = now.since(heard.at);
        (silence >= SILENT).then(|| u64::try_from(silence.as_millis()).unwrap_or(u64::MAX))
    }
}

/// `key=value` words, numbers as such.
fn shown(figures: &str) -> serde_json::Map<String, Value> {
    let words = figures.split(' ').filter_map(|word| word.split_once('='));
    let value = |text: &str| text.parse::<u64>().map_or_else(|_| json!(text), |number| json!(number));
    words.map(|(name, text)| (name.to_owned(), value(text))).collect()
}
