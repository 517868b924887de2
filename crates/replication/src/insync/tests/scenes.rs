//! Single courses of events, told step by step: on a quiet shard, and on one member alone.

use super::super::{
    Action, Answer, Contradiction, Decision, Epoch, Event, Fault, History, Lease, Life, LinkId, Loss, Member,
    MemberId, Message, Moment, NodeId, Obstacle, Options, Reached, Request, Restored, Role, Ticket, Version,
    Writes,
};
use super::disk::Record;
use super::linear;
use super::plan::Plan;
use super::world::World;
use log::Lsn;
use std::collections::BTreeSet;
use testkit::stage::Staged;

const SECOND: u64 = 1_000_000;

fn shard(nodes: usize, change: impl FnOnce(&mut Plan)) -> World {
    let mut plan = Plan::quiet(nodes);
    plan.fate.until = 3_600 * SECOND;
    change(&mut plan);
    let mut world = World::new(1, plan);
    world.run(3 * SECOND);
    assert_eq!(world.master(), Some(0));
    world
}

/// Runs on for so long; replies with how many writes and reads were answered meanwhile.
fn answered(world: &mut World, seconds: u64) -> (usize, usize) {
    let from = world.stage.now;
    world.run(from + seconds * SECOND);
    assert_eq!(world.stage.violation, None);
    assert_eq!(linear::complaint(&world.operations, &world.committed), None);
    let ended = world.operations.iter().filter(|it| it.ended.is_some_and(|at| at > from) && it.is_at_master);
    let writes = ended.clone().filter(|operation| operation.wrote.is_some()).count();
    (writes, ended.count() - writes)
}

fn members(world: &World) -> usize {
    world.store.current().unwrap().members.len()
}

#[test]
fn nobody_notices_that_the_store_of_decisions_is_away() {
    let mut world = shard(3, |_| {});
    world.stage.lose_store();
    let (writes, reads) = answered(&mut world, 60);
    assert!(writes > 1_000 && reads > 1_000, "{writes} {reads}");
}

#[test]
fn a_dead_member_stops_writes_until_it_is_removed_and_reads_at_no_time() {
    let mut world = shard(3, |_| {});
    world.stop(2, true);
    assert!(answered(&mut world, 10).0 > 100);
    assert_eq!(members(&world), 2);
    world.start(2);
    answered(&mut world, 2);
    assert_eq!(members(&world), 3);

    // Without the store nobody can be removed.
    world.stage.lose_store();
    world.stop(2, true);
    let from = world.stage.now;
    world.run(from + 10 * SECOND);
    assert_eq!(world.nodes[0].member.as_ref().unwrap().writes(), Writes::Taken);
    assert_eq!(answered(&mut world, 10), (0, 0), "neither is its lease there");
}

#[test]
fn with_fewer_members_than_the_minimum_reads_go_on_and_writes_do_not() {
    let mut world = shard(2, |plan| plan.options.members_min = 2);
    world.stop(1, false);
    answered(&mut world, 3);
    assert_eq!(world.nodes[0].member.as_ref().unwrap().writes(), Writes::TooFewMembers);
    let (writes, reads) = answered(&mut world, 10);
    assert!(writes == 0 && reads > 100, "{writes} {reads}");
    world.start(1);
    assert!(answered(&mut world, 3).0 > 10);
}

#[test]
fn a_member_whose_disk_takes_nothing_more_is_removed() {
    let mut world = shard(3, |_| {});
    world.stage.nodes[2].is_disk_slow = true;
    let (writes, _) = answered(&mut world, 10);
    assert!(writes > 100 && members(&world) == 2, "{writes}");
}

#[test]
fn data_that_is_gone_is_no_member_wherever_it_was() {
    let mut world = shard(2, |plan| plan.is_memory = vec![true; 2]);
    let committed = world.committed.len();
    world.stop(0, false);
    world.start(0);
    world.run(world.stage.now + 5 * SECOND);
    assert_eq!(world.nodes[0].member.as_ref().unwrap().role(), Role::Nobody);
    assert_eq!(world.master(), None, "it empties nobody");
    world.promote(0, Loss::Refused);
    world.promote(1, Loss::Refused);
    world.run(world.stage.now + 5 * SECOND);
    assert_eq!(world.master(), Some(1));
    answered(&mut world, 5);
    assert!(members(&world) == 2 && world.committed.len() > committed);
}

#[test]
fn with_one_member_left_nobody_is_promoted_unless_loss_is_accepted() {
    let mut world = shard(2, |_| {});
    world.stop(1, true);
    answered(&mut world, 5);
    assert_eq!(members(&world), 1);
    world.stop(0, true);
    world.start(1);
    world.promote(1, Loss::Refused);
    world.run(world.stage.now + 10 * SECOND);
    assert_eq!(world.master(), None);
    // What an operator looked at is another decision.
    let looked_at = world.store.current().unwrap().version;
    world.promote(1, Loss::Accepted(Some(Version(looked_at.0 - 1))));
    world.run(world.stage.now + 5 * SECOND);
    assert_eq!(world.master(), None);
    world.promote(1, Loss::Accepted(Some(looked_at)));
    let lost = world.committed.len() - world.nodes[1].disk.log.len();
    world.committed.truncate(world.nodes[1].disk.log.len());
    // It ends between the decision and its epoch, and says it in the next one.
    while !world.store.current().unwrap().is_lossy {
        world.run(world.stage.now + 1_000);
    }
    let epoch = world.store.current().unwrap().epoch;
    world.stop(1, true);
    world.start(1);
    world.run(world.stage.now + 5 * SECOND);
    assert_eq!(world.master(), Some(1));
    assert!(lost > 0 && world.store.current().unwrap().epoch > epoch);
    let is_beginning = |record: &Record| matches!(record, Record::Begin { is_lossy: true, .. });
    assert!(world.nodes[1].disk.log.iter().any(is_beginning));

    // The other one comes back, and gives up what only it has.
    world.start(0);
    world.run(world.stage.now + 5 * SECOND);
    assert_eq!((world.stage.violation.clone(), members(&world)), (None, 2));
    assert!(world.nodes[0].disk.log.iter().any(is_beginning));
}

#[test]
fn a_master_that_hands_over_is_waited_for_by_nobody() {
    // Nobody writes.
    let mut world = shard(3, |plan| plan.clients = 0);
    let promotions = world.promotions;
    world.hand_over();
    // A lease is fifty times as long.
    world.run(world.stage.now + SECOND / 50);
    let heir = world.master().expect("there is one");
    assert!(heir != 0 && world.promotions == promotions + 1);
    world.run(world.stage.now + 2 * SECOND);
    assert_eq!((world.master(), members(&world), world.stage.violation.clone()), (Some(heir), 3, None));

    // The heir is gone before it hears of it: the former master goes on.
    let mut world = shard(2, |plan| plan.clients = 0);
    world.stage.cut_way(0, 1, 100 * SECOND);
    world.hand_over();
    world.run(world.stage.now + SECOND / 100);
    assert_eq!(world.nodes[0].member.as_ref().unwrap().writes(), Writes::NotMaster);
    world.run(world.stage.now + 3 * SECOND);
    assert_eq!((world.master(), world.stage.violation.clone()), (Some(0), None));
}

#[test]
fn who_has_no_place_any_more_takes_no_part() {
    let by_themselves = |plan: &mut Plan| plan.options.failover = Some(plan.options.lease);
    // A member: the others go on as if it had ended, and it does not come back.
    let mut world = shard(3, by_themselves);
    world.remove(2);
    assert!(answered(&mut world, 10).0 > 100);
    assert_eq!(members(&world), 2);
    world.hand_over();
    world.run(world.stage.now + 5 * SECOND);
    assert_ne!(world.master(), Some(2));
    assert_eq!(
        (world.nodes[2].member.as_ref().unwrap().role(), world.stage.violation.clone()),
        (Role::Nobody, None)
    );

    // The master: another takes its place, with all that was acknowledged.
    let mut world = shard(3, by_themselves);
    world.remove(0);
    answered(&mut world, 10);
    assert!(matches!(world.master(), Some(1 | 2)) && members(&world) == 2);

    // One that stands just then.
    let mut world = shard(3, by_themselves);
    world.stop(0, true);
    world.promote(1, Loss::Refused);
    world.remove(1);
    answered(&mut world, 10);
    assert_eq!((world.master(), members(&world)), (Some(2), 1));
}

// ---- One member alone. ----

const fn id(node: u32) -> MemberId {
    MemberId { node: NodeId(node), life: Life(1) }
}

/// A master of epoch 1 at node 0 that held 10 records when it was promoted, with node 1 as another member who is not heard of.
fn lone_master(fault: Option<Fault>) -> Member {
    let options = Options { lease_max: Options::default().lease, ..Options::default() };
    let beginning = super::super::Beginning { epoch: Epoch(1), first: Lsn(0), is_lossy: false, by: Life(1) };
    let history = History::new(1, vec![beginning]);
    let restored = Restored { epoch: Epoch(1), history, end: Lsn(10) };
    let mut member = Member::new(id(0), options, restored, Moment(0));
    if let Some(fault) = fault {
        member.plant(fault, Moment(0));
    }
    let decision = Decision {
        version: Version(4),
        epoch: Epoch(1),
        master: id(0),
        members: BTreeSet::from([id(0), id(1)]),
        is_lossy: false,
    };
    let ticket = asked(&member.step(Event::Tick, Moment(SECOND))).0;
    let answer = Answer::Current(Some(decision));
    let actions = member.step(Event::Answered { ticket, answer }, Moment(SECOND));
    let (ticket, Request::Propose(decision)) = asked(&actions) else { panic!("{actions:?}") };
    assert_eq!(decision.epoch, Epoch(2));
    member.step(Event::Answered { ticket, answer: Answer::Done(decision) }, Moment(SECOND));
    let actions = member.step(Event::Persisted { epoch: Epoch(2) }, Moment(SECOND));
    assert!(actions.contains(&Action::Lead { epoch: Epoch(2) }));
    member.step(Event::Appended { end: Lsn(11) }, Moment(SECOND));
    member.step(Event::Durable { end: Lsn(11) }, Moment(SECOND));
    member
}

fn asked(actions: &[Action]) -> (Ticket, Request) {
    let ask = actions.iter().find_map(|action| match action {
        Action::Ask { ticket, request } => Some((*ticket, request.clone())),
        _ => None,
    });
    ask.unwrap()
}

fn says(member: &mut Member, node: u32, link: u64, message: Message, now: u64) -> Vec<Action> {
    member.step(Event::Received { link: LinkId(link), from: id(node), message }, Moment(now))
}

fn hello(end: u64) -> Message {
    let beginning = super::super::Beginning { epoch: Epoch(1), first: Lsn(0), is_lossy: false, by: Life(1) };
    Message::Hello { epoch: Epoch(1), history: History::new(1, vec![beginning]), end: Lsn(end) }
}

fn acknowledgement(epoch: u64, durable: u64) -> Message {
    let lease = Some(Lease { asked_at: Moment(SECOND), length: Options::default().lease });
    Message::Acknowledgement {
        epoch: Epoch(epoch),
        reached: Reached::Place(Lsn(durable)),
        durable: Lsn(durable),
        lease,
    }
}

#[test]
fn acknowledgements_of_other_epochs_and_links_count_for_nothing() {
    for (fault, committed) in [(None, 0), (Some(Fault::ForeignAcknowledgement), 9)] {
        let mut member = lone_master(fault);
        says(&mut member, 1, 7, hello(8), SECOND);
        says(&mut member, 1, 7, acknowledgement(1, 9), SECOND);
        says(&mut member, 1, 6, acknowledgement(2, 9), SECOND);
        assert_eq!(member.committed(), Lsn(committed), "{fault:?}");
        assert_eq!(member.reads_until() > Some(Moment(0)), fault.is_some());
    }
    let mut member = lone_master(None);
    says(&mut member, 1, 7, hello(8), SECOND);
    says(&mut member, 1, 7, acknowledgement(2, 8), SECOND);
    says(&mut member, 1, 7, acknowledgement(2, 11), SECOND);
    assert_eq!(member.committed(), Lsn(11));
    assert_eq!(member.reads_until(), Some(Moment(2 * SECOND)));
}

#[test]
fn a_new_master_adds_nobody_who_lacks_what_it_held_when_it_was_promoted() {
    for (fault, is_added) in [(None, false), (Some(Fault::AddedBehindEpoch), true)] {
        let mut member = lone_master(fault);
        says(&mut member, 2, 7, hello(8), SECOND);
        says(&mut member, 2, 7, acknowledgement(2, 8), SECOND);
        let actions = member.step(Event::Tick, Moment(SECOND + 50_000));
        let proposes = actions.iter().any(|action| matches!(action, Action::Ask { .. }));
        assert_eq!(proposes, is_added, "{fault:?}");
        // It has all that was held then; what was appended since, it has not.
        says(&mut member, 2, 7, acknowledgement(2, 10), SECOND + 50_000);
        if !is_added {
            let (_, request) = asked(&member.step(Event::Tick, Moment(SECOND + 100_000)));
            let Request::Propose(decision) = request else { panic!("{request:?}") };
            assert!(decision.members.contains(&id(2)));
        }
    }
}

#[test]
fn word_of_a_higher_epoch_has_a_master_ask_and_a_decision_ends_its_reign() {
    let (mut member, later) = (lone_master(None), SECOND + 200_000);
    let actions = says(&mut member, 1, 7, Message::Refusal { epoch: Epoch(u64::MAX) }, later);
    let (ticket, request) = asked(&actions);
    assert_eq!((request, actions.contains(&Action::StepDown)), (Request::Read, false), "anybody can say it");
    assert_eq!((member.epoch(), member.writes()), (Epoch(2), Writes::Taken));
    let (version, epoch, members) = (Version(9), Epoch(3), [id(1)].into());
    let other = Decision { version, epoch, master: id(1), members, is_lossy: false };
    let nonsense = Decision { members: [id(2)].into(), ..other.clone() };
    let answered =
        |decision: &Decision| Event::Answered { ticket, answer: Answer::Current(Some(decision.clone())) };
    assert_eq!(member.step(answered(&nonsense), Moment(later)), []);
    let actions = member.step(answered(&other), Moment(later));
    assert!(actions.contains(&Action::StepDown));
    assert_eq!((member.epoch(), member.writes(), member.reads_until()), (Epoch(3), Writes::NotMaster, None));
    let refusal = Message::Refusal { epoch: Epoch(3) };
    let actions = says(&mut member, 1, 8, hello(8), later);
    assert!(actions.contains(&Action::Send { link: LinkId(8), message: refusal }));
}

#[test]
fn who_is_told_to_lead_and_cannot_says_why() {
    let other = Decision {
        version: Version(9),
        epoch: Epoch(3),
        master: id(1),
        members: [id(1)].into(),
        is_lossy: false,
    };
    let current = |decision: &Decision| Answer::Current(Some(decision.clone()));
    let (mut member, mut now) = (lone_master(None), SECOND + 200_000);
    let ticket = asked(&says(&mut member, 1, 7, Message::Refusal { epoch: Epoch(3) }, now)).0;
    member.step(Event::Answered { ticket, answer: current(&other) }, Moment(now));
    let mut tell = |loss, answer: Answer| {
        now += SECOND;
        let (ticket, request) = asked(&member.step(Event::Promote { loss }, Moment(now)));
        assert_eq!((request, member.is_told_to_lead()), (Request::Read, true));
        let actions = member.step(Event::Answered { ticket, answer }, Moment(now));
        assert!(!member.is_told_to_lead());
        actions.into_iter().find_map(|action| match action {
            Action::StandDown { obstacle } => Some(obstacle),
            _ => None,
        })
    };
    assert_eq!(tell(Loss::Refused, current(&other)), Some(Obstacle::NoMember));
    assert_eq!(tell(Loss::Accepted(Some(Version(8))), current(&other)), Some(Obstacle::OtherDecision));
    assert_eq!(tell(Loss::Refused, Answer::Unreached), Some(Obstacle::StoreUnreached));
    assert_eq!(tell(Loss::Refused, Answer::Current(None)), Some(Obstacle::NoDecision));
    member.step(Event::Removed, Moment(60 * SECOND));
    let actions = member.step(Event::Promote { loss: Loss::Refused }, Moment(60 * SECOND));
    assert_eq!(actions, [Action::StandDown { obstacle: Obstacle::Halted }]);
}

#[test]
fn a_master_whose_own_disk_takes_nothing_keeps_its_members() {
    let mut member = lone_master(None);
    says(&mut member, 1, 7, hello(8), SECOND);
    says(&mut member, 1, 7, acknowledgement(2, 8), SECOND);
    says(&mut member, 1, 7, acknowledgement(2, 11), SECOND);
    member.step(Event::Appended { end: Lsn(20) }, Moment(SECOND));
    let mut now = SECOND;
    let mut beat = |member: &mut Member, durable| {
        now += 50_000;
        says(member, 1, 7, acknowledgement(2, durable), now);
        let actions = member.step(Event::Tick, Moment(now));
        actions.iter().any(|action| matches!(action, Action::Ask { .. }))
    };
    assert!((0..100).all(|_| !beat(&mut member, 11)), "it has all that can have been sent");
    // What is durable here is to be so there, and soon.
    member.step(Event::Durable { end: Lsn(20) }, Moment(6 * SECOND));
    assert!((0..9).all(|_| !beat(&mut member, 11)));
    assert!((0..9).any(|_| beat(&mut member, 11)));
}

#[test]
fn a_node_that_began_an_epoch_of_which_the_store_names_another_master_takes_no_part() {
    let restored = Restored { epoch: Epoch(2), history: lone_master(None).history().clone(), end: Lsn(30) };
    for (life, halts) in [(1, true), (2, false)] {
        let id = MemberId { life: Life(life), ..id(0) };
        let mut member = Member::new(id, Options::default(), restored.clone(), Moment(0));
        let ticket = asked(&member.step(Event::Tick, Moment(SECOND))).0;
        let members = [id, self::id(1)].into();
        let decision =
            Decision { version: Version(4), epoch: Epoch(2), master: self::id(1), members, is_lossy: false };
        let answer = Answer::Current(Some(decision));
        let actions = member.step(Event::Answered { ticket, answer }, Moment(SECOND));
        let why = Contradiction::Forgotten { epoch: Epoch(2) };
        assert_eq!(actions.contains(&Action::Halt { why }), halts, "{actions:?}");
    }
}

/// Whatever a master has done since, a node whose log has an epoch from another who began it is not cut, and does not ask for ever.
#[test]
fn a_node_whose_log_has_an_epoch_that_another_has_begun_is_not_cut() {
    let beginning = |epoch, first, by| super::super::Beginning {
        epoch: Epoch(epoch),
        first: Lsn(first),
        is_lossy: false,
        by: Life(by),
    };
    let shared = beginning(1, 0, 1);
    for (own, other, halts) in [(2, 2, true), (2, 3, true), (3, 2, true), (1, 3, false)] {
        let epochs = |last, by| (2..=last).map(|epoch| beginning(epoch, 8 * epoch, by)).collect::<Vec<_>>();
        // It has followed whoever began them: its own life is another.
        let history = History::new(1, [vec![shared], epochs(own, 7)].concat());
        let restored = Restored { epoch: Epoch(own), history, end: Lsn(40) };
        let mut member = Member::new(id(0), Options::default(), restored, Moment(0));
        let ticket = asked(&member.step(Event::Tick, Moment(SECOND))).0;
        let (version, members) = (Version(9), [id(1)].into());
        let decision = Decision { version, epoch: Epoch(other), master: id(1), members, is_lossy: false };
        member.step(Event::Answered { ticket, answer: Answer::Current(Some(decision)) }, Moment(SECOND));
        member.step(Event::Connected { link: LinkId(7) }, Moment(SECOND));
        let history = History::new(1, [vec![shared], epochs(other, 9)].concat());
        let welcome = Message::Welcome { epoch: Epoch(other), history, cut: Lsn(16) };
        let actions = says(&mut member, 1, 7, welcome, SECOND);
        let halted = actions.iter().any(|action| matches!(action, Action::Halt { .. }));
        assert_eq!(halted, halts, "{own} and {other}: {actions:?}");
    }
}
