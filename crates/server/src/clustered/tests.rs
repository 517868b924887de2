//! What a server knows of its cluster.

mod serving;

use super::*;
use crate::shard::Promotion;
use config::Startup;
use replication::insync::{Decision, Epoch, Life, MemberId, NodeId, Version, Writes};
use topology::{Move, Route, SlotRange, Stage};

const TEXT: &str = "\
tarn-topology 1 c0ffee 7
server 0101010101010101010101010101010101010101 h1 7001 0 - - durable 0 1
server 0202020202020202020202020202020202020202 h2 7002 0 - - durable 0 2
server 0303030303030303030303030303030303030303 h3 7003 0 - - durable 1 1
shard 0 4 1 1,2 -
shard 1 9 1 1 -
slots 0-8191=0 8192-16383=1
end
";

fn topology() -> Topology {
    Topology::from_text(TEXT).expect("it is whole")
}

fn part(more: &str) -> Clustered {
    let text = format!("edition memory\n{more}");
    let Ok(Startup::Serve { config, .. }) = Config::from_text(text.as_bytes()) else { panic!("{text}") };
    Clustered::of(&config)
}

fn standing(role: Role, epoch: u64, master: u32) -> Standing {
    let member = |node| MemberId { node: NodeId(node), life: Life(1) };
    let decision = Decision {
        version: Version(1),
        epoch: Epoch(epoch),
        master: member(master),
        members: [member(1), member(2)].into(),
        is_lossy: false,
    };
    Standing {
        id: member(1),
        role,
        epoch: Epoch(epoch),
        writes: Writes::Taken,
        committed: ::log::Lsn::ZERO,
        end: ::log::Lsn::ZERO,
        decision: Some(decision),
        is_halted: false,
        is_torn: false,
        is_foreign: false,
        promotion: Promotion::None,
    }
}

fn first() -> ServerId {
    ServerId::from_bytes([1; 20])
}

/// The first server as it introduces itself.
fn record() -> Server {
    Server { place: None, ..topology().servers[&first()].clone() }
}

#[test]
fn a_store_that_has_forgotten_moves_is_known() {
    let clustered = part("cluster-enabled yes");
    let part = clustered.get().expect("it is on");
    let with = |last_move, revision| Topology { last_move, revision, ..topology() };
    assert!(!part.is_forgetful(&with(0, 1)));
    part.publish(with(3, 8));
    assert!(part.is_forgetful(&with(2, 9)) && !part.is_forgetful(&with(3, 9)));
    // One that is over does not begin again, and none goes back.
    let moving = |id, attempt, stage: Stage, revision| {
        let (from, to) = (ShardId(0), ShardId(1));
        let slots = vec![SlotRange { first: 0, last: 9 }];
        let one = Move { id, from, to, attempt, stage, slots };
        Topology { moves: [(id, one)].into(), ..with(4, revision) }
    };
    assert!(part.is_forgetful(&moving(3, 1, Stage::Copying, 9)));
    assert!(!part.is_forgetful(&moving(4, 1, Stage::Waiting, 9)));
    part.publish(moving(4, 2, Stage::Copying, 10));
    assert!(!part.is_forgetful(&moving(4, 2, Stage::Switching, 11)));
    assert!(!part.is_forgetful(&moving(4, 3, Stage::Waiting, 11)));
    assert!(part.is_forgetful(&moving(4, 2, Stage::Waiting, 11)));
    assert!(part.is_forgetful(&moving(4, 1, Stage::Switching, 11)));
    assert!(
        !part.is_forgetful(&moving(4, 1, Stage::Switching, 9)),
        "it is an earlier one, which counts for nothing"
    );
}

#[test]
fn a_slot_is_awaited_while_it_is_about_to_come() {
    let clustered = part("cluster-enabled yes");
    let part = clustered.get().expect("it is on");
    part.introduce(first());
    part.confirm();
    let mut told = topology();
    told.slots.set(5, Some(ShardId(1)));
    let mut awaits = |attempt, stage: Stage| {
        let slots = vec![SlotRange { first: 5, last: 5 }];
        told.moves.insert(1, Move { id: 1, from: ShardId(1), to: ShardId(0), attempt, stage, slots });
        told.revision += 1;
        part.publish(told.clone());
        part.view().awaits(5)
    };
    assert!(!awaits(1, Stage::Switching), "another server leads");
    part.note_standing(&standing(Role::Master, 4, 1));
    assert!(!awaits(2, Stage::Copying));
    assert!(awaits(2, Stage::Switching));
    assert!(!part.view().awaits(4) && !part.view().awaits(6));
    assert!(!awaits(3, Stage::Waiting));
    assert!(awaits(3, Stage::Switching));
}

#[test]
fn a_server_that_stands_alone_knows_nothing() {
    let alone = part("");
    assert!(alone.get().is_none() && Seen::default().renew(&alone).is_none());
}

#[test]
fn no_earlier_topology_is_taken() {
    let clustered = part("cluster-enabled yes");
    let part = clustered.get().expect("it is on");
    assert!(part.told().is_none());
    assert!(part.publish(topology()));
    for revision in [7, 6, 0] {
        let other = Topology { revision, ..Topology::default() };
        assert!(!part.publish(other));
    }
    assert_eq!(part.told().as_deref(), Some(&topology()));
    assert!(part.publish(Topology { revision: 8, ..topology() }));
}

#[test]
fn a_worker_sees_each_change_once() {
    let clustered = part("cluster-enabled yes");
    let part = clustered.get().expect("it is on");
    let mut seen = Seen::default();
    assert!(seen.renew(&clustered).is_some_and(|view| !view.is_up && view.own().is_none()));
    part.introduce(first());
    part.note_record(record());
    assert_eq!(seen.renew(&clustered).and_then(|view| view.own()), Some(&record()));
    part.publish(topology());
    part.confirm();
    let view = seen.renew(&clustered).expect("it is on");
    assert!(view.is_up && view.routes.is_own(0) && !view.leads);
    let version = seen.version;
    part.note_standing(&standing(Role::Master, 4, 1));
    assert!(seen.renew(&clustered).is_some_and(|view| view.leads));
    part.note_standing(&standing(Role::Master, 4, 1));
    seen.renew(&clustered);
    assert_eq!(seen.version, version + 1);
}

#[test]
fn the_own_shard_knows_better_who_is_its_master() {
    let clustered = part("cluster-enabled yes");
    let part = clustered.get().expect("it is on");
    part.introduce(first());
    part.publish(topology());
    let master = || part.view().other_master().map(|server| server.port);
    assert_eq!(master(), None);
    part.note_standing(&standing(Role::Member, 5, 2));
    assert_eq!((master(), part.view().topology.shards[&ShardId(0)].epoch), (Some(7002), 5));
    // What is told later is not always later.
    part.publish(Topology { revision: 8, ..topology() });
    assert_eq!(master(), Some(7002));
    let mut later = Topology { revision: 9, ..topology() };
    later.shards.get_mut(&ShardId(0)).expect("it is there").epoch = 6;
    part.publish(later);
    assert_eq!(master(), None);
}

#[test]
fn members_of_a_reign_are_as_its_master_knows_or_as_was_told() {
    let clustered = part("cluster-enabled yes");
    let part = clustered.get().expect("it is on");
    part.introduce(first());
    let told = |revision, members: &[u32]| {
        let mut told = Topology { revision, ..topology() };
        told.shards.get_mut(&ShardId(0)).expect("it is there").members = members.iter().copied().collect();
        assert!(part.publish(told));
    };
    let members = || part.view().topology.shards[&ShardId(0)].members.iter().copied().collect::<Vec<_>>();
    told(8, &[1, 2, 3]);
    assert_eq!(members(), [1, 2, 3]);
    // The decision that it knows has two.
    part.note_standing(&standing(Role::Member, 4, 2));
    assert_eq!(members(), [1, 2, 3]);
    part.note_standing(&standing(Role::Master, 4, 1));
    assert_eq!(members(), [1, 2]);
    part.note_standing(&standing(Role::Member, 5, 2));
    assert_eq!(members(), [1, 2]);
}

#[test]
fn who_has_not_heard_of_its_shard_serves_nothing() {
    let clustered = part("cluster-enabled yes");
    let part = clustered.get().expect("it is on");
    part.introduce(first());
    part.publish(topology());
    assert!(part.confirm() && !part.confirm());
    assert!(!part.view().leads);
    // A standing without a place is none.
    part.note_standing(&standing(Role::Master, 4, 1));
    let mut without = Topology { revision: 8, ..topology() };
    without.servers.get_mut(&first()).expect("it is there").place = None;
    part.publish(without);
    assert!(!part.view().leads && part.place().is_none());
}

#[test]
fn what_a_directory_tells_is_served_by_nobody() {
    let clustered = part("cluster-enabled yes");
    let part = clustered.get().expect("it is on");
    part.introduce(first());
    part.publish(topology());
    part.note_standing(&standing(Role::Master, 4, 1));
    assert!(!part.view().leads && !part.view().is_up);
    part.confirm();
    assert!(part.view().leads && part.view().is_up);
}

#[test]
fn a_master_serves_once_config_servers_know_of_its_epoch() {
    let clustered = part("cluster-enabled yes");
    let part = clustered.get().expect("it is on");
    part.introduce(first());
    part.publish(topology());
    part.confirm();
    // What is told is older than the reign, so slots may have other owners than it says.
    part.note_standing(&standing(Role::Master, 5, 1));
    assert!(!part.view().leads && part.awaits_word_for().is_some());
    let told = |revision, epoch, master| {
        let mut told = Topology { revision, ..topology() };
        let shard = told.shards.get_mut(&ShardId(0)).expect("it is there");
        (shard.epoch, shard.master) = (epoch, Some(master));
        part.publish(told);
        part.view().leads
    };
    assert!(!told(8, 4, 1));
    assert!(told(9, 5, 1) && part.awaits_word_for().is_none());
    // Somebody else's reign has begun, of which this node's shard has not told it yet.
    assert!(!told(10, 6, 2));
    // A higher epoch was seen.
    assert!(!told(11, 6, 1));
    part.note_standing(&standing(Role::Master, 6, 1));
    assert!(part.view().leads);
}

#[test]
fn a_cluster_with_a_hole_is_down_unless_it_may_have_one() {
    let mut holed = topology();
    holed.slots.set(5, None);
    for (directive, is_up) in [("yes", false), ("no", true)] {
        let clustered = part(&format!("cluster-enabled yes\ncluster-require-full-coverage {directive}"));
        let part = clustered.get().expect("it is on");
        assert!(!part.view().is_up);
        part.publish(holed.clone());
        assert!(!part.view().is_up);
        part.confirm();
        assert_eq!(part.view().is_up, is_up);
        assert_eq!(part.view().routes.of(5), Route::Nobody);
    }
}
