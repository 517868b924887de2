//! Shards whose members are gone for good.

use super::*;
use crate::control::{Force, Losing};

impl World {
    fn at(&self, id: ServerId) -> usize {
        self.nodes.iter().position(|node| node.server.id == id).expect("it is one of these")
    }

    /// Who has a number in a shard.
    fn server(&self, shard: ShardId, node: u32) -> ServerId {
        self.places[&Place { shard, node }]
    }

    fn set_up(&mut self, id: ServerId, is_up: bool) {
        let (at, now) = (self.at(id), self.now);
        (self.nodes[at].is_up, self.nodes[at].up_since) = (is_up, now);
    }

    fn members(&self, shard: ShardId) -> Vec<ServerId> {
        let members = self.standing(shard).map(|standing| standing.members()).unwrap_or_default();
        members.into_iter().map(|node| self.server(shard, node)).collect()
    }

    /// An operator gives a shard up whose members are all down, and takes whatever else there is.
    pub(super) fn lose_something(&mut self) {
        let shard = ShardId(self.random.below(u64::from(self.policy.shards)) as u16);
        let members = self.members(shard);
        let Some(nodes) = self.placed().remove(&shard) else { return };
        let heir = nodes.keys().map(|node| self.server(shard, *node)).find(|id| !members.contains(id));
        if let Some(heir) = heir
            && members.iter().all(|id| !self.nodes[self.at(*id)].is_up)
        {
            self.unwanted.extend(&members);
            let losing = Losing { shard, heir, gone: Some(members.into_iter().collect()) };
            self.ask(|ticket| Event::Wants(ticket, Order::Lose(losing)));
        }
    }

    /// Nothing is given up while somebody lives who has it.
    pub(super) fn check_loss(&self, shard: ShardId, members: &BTreeSet<u32>) {
        for node in members {
            let node = &self.nodes[self.at(self.server(shard, *node))];
            let lives =
                node.is_up && node.life == LIFE && self.now.since(node.up_since) > Duration::from_secs(10);
            assert!(!lives, "{} lives, and what it has is given up", node.server.id);
        }
    }

    fn order(&mut self, order: Order, span: u64) -> Result<String, String> {
        let (at, ticket) = self.ask(|ticket| Event::Wants(ticket, order)).expect("somebody leads");
        self.run_for(Duration::from_secs(span));
        self.configs[at].answers.get(&ticket).cloned().expect("it is answered by now")
    }
}

const SHARD: ShardId = ShardId(0);

/// A shard of two, of which the one has gone on alone, and is down now; gives it, and the other.
fn half_lost() -> (World, ServerId, ServerId) {
    let mut world = World::whole(5, 2);
    world.run_for(Duration::from_secs(1));
    let master = world.standing(SHARD).and_then(|standing| standing.master()).expect("there is one");
    let ahead = world.server(SHARD, master);
    let behind = world.members(SHARD).into_iter().find(|id| *id != ahead).expect("there is another");
    let (one, other) = (world.at(ahead), world.at(behind));
    (world.nodes[one].offset, world.nodes[other].offset) = (5000, 3000);
    world.set_up(behind, false);
    world.run_for(Duration::from_secs(2));
    assert_eq!(world.members(SHARD), [ahead]);
    world.set_up(behind, true);
    world.set_up(ahead, false);
    world.run_for(Duration::from_secs(8));
    assert_eq!(world.members(SHARD), [ahead], "nobody takes its place by himself");
    (world, ahead, behind)
}

fn lose(heir: ServerId, gone: &[ServerId]) -> Order {
    Order::Lose(Losing { shard: SHARD, heir, gone: Some(gone.iter().copied().collect()) })
}

#[test]
fn a_copy_that_is_no_member_becomes_master_by_an_operators_word_only() {
    let (mut world, ahead, behind) = half_lost();
    let refused = |answer: Result<String, String>, why: &str| {
        assert!(answer.as_ref().is_err_and(|told| told.contains(why)), "{answer:?}");
    };
    let other = ServerId::from_bytes([9; 20]);
    // Who is gone has to be said, and is said to who asks.
    refused(world.order(lose(behind, &[]), 1), &format!("{ahead} (10.0.0."));
    refused(world.order(lose(behind, &[]), 1), "2000 bytes of the log are lost, and what came after that");
    refused(world.order(lose(behind, &[behind]), 1), "is no member");
    refused(world.order(lose(behind, &[ahead, other]), 1), "is no member");
    refused(world.order(lose(other, &[ahead]), 1), "there is no server");
    refused(world.order(lose(ahead, &[]), 1), "is not heard of");
    let shard = Losing { shard: ShardId(7), heir: behind, gone: Some([ahead].into()) };
    refused(world.order(Order::Lose(shard), 1), "there is no shard 7");
    // Nobody who lives is gone.
    world.set_up(ahead, true);
    world.run_for(Duration::from_secs(2));
    refused(world.order(lose(behind, &[ahead]), 1), "nothing need be lost");
    assert_eq!(world.members(SHARD).len(), 2, "the shard has mended itself");
    let (mut world, ahead, behind) = half_lost();
    world.add_server("");
    world.unwanted.insert(ahead);
    let told = world.order(lose(behind, &[ahead]), 4).expect("it is done");
    assert!(told.contains("it has the log up to 3000") && told.contains("2000 bytes"), "{told}");
    assert!(world.is_whole() && !world.members(SHARD).contains(&ahead));
    // It may be said again, and whoever was given up is not taken back.
    assert!(world.order(lose(behind, &[ahead]), 1).is_ok());
    world.set_up(ahead, true);
    let server = world.nodes[world.at(ahead)].server.clone();
    let (at, ticket) =
        world.ask(|ticket| Event::Joins { ticket, cluster: String::new(), server }).expect("somebody leads");
    assert!(world.configs[at].answers[&ticket].as_ref().is_err_and(|why| why.starts_with("REMOVED")));
}

#[test]
fn a_spare_begins_a_shard_anew_of_which_nothing_is_left() {
    let mut world = World::whole(6, 2);
    world.run_for(Duration::from_secs(1));
    let members = world.members(SHARD);
    for id in &members {
        world.set_up(*id, false);
    }
    for _ in 0..2 {
        world.add_server("");
    }
    world.run_for(Duration::from_secs(30));
    assert_eq!(world.members(SHARD), members, "what may be needed is not replaced");
    let spare = world.nodes[2].server.id;
    assert!(world.order(lose(spare, &members[..1]), 1).is_err_and(|why| why.contains("GONE")));
    world.unwanted.extend(&members);
    assert!(world.order(lose(spare, &members), 5).is_ok());
    world.run_until("it is whole", Duration::from_secs(5), World::is_whole);
    assert!(world.members(SHARD).contains(&spare));
    // The servers that are gone are in nobody's way.
    assert!(world.order(Order::Remove(members[0], Force::No), 1).is_ok());
}

/// Both were started again, and what they held was in memory: there is nobody to name, and that has to be said, too.
#[test]
fn nothing_is_given_up_by_who_only_looks() {
    let mut world = World::whole(7, 2);
    let other = world.members(SHARD)[1];
    for node in &mut world.nodes {
        node.life += 1;
    }
    world.run_for(Duration::from_secs(2));
    let before = world.standing(SHARD);
    let look = || Order::Lose(Losing { shard: SHARD, heir: other, gone: None });
    let told = world.order(look(), 1).expect_err("nothing is done");
    assert!(told.contains("nobody is to be named") && told.contains("it has the log up to"), "{told}");
    assert_eq!(world.standing(SHARD), before);
    world.ask(|ticket| Event::Wants(ticket, lose(other, &[])));
    world.run_for(Duration::from_secs(1));
    let master = world.standing(SHARD).and_then(|standing| standing.master()).expect("there is one");
    assert_ne!(world.standing(SHARD), before);
    assert_eq!(world.server(SHARD, master), other);
    // What he is told may be lost, and another config server asked.
    for node in &mut world.nodes {
        node.life = LIFE;
    }
    world.run_for(Duration::from_secs(2));
    assert!(world.order(look(), 1).is_err_and(|why| why.contains("nothing need be lost")));
    let again = world.order(lose(other, &[]), 1);
    assert!(again.as_ref().is_ok_and(|told| told.contains("is master of shard 0")), "{again:?}");
}
