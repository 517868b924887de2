//! A cluster that begins with a backup: no slot has an owner before its shard holds what was brought.

use super::*;

#[test]
fn slots_wait_for_a_backup_that_the_latest_restore_has_brought() {
    let mut world = World::new(5, 2, Policy { restore: 1, ..policy(1) });
    for _ in 0..2 {
        world.add_server("");
    }
    let order = |world: &mut World, order: Order| {
        let (at, ticket) = world.ask(|ticket| Event::Wants(ticket, order)).expect("somebody leads");
        world.run_for(Duration::from_secs(2));
        world.configs[at].answers.get(&ticket).cloned().expect("it is answered")
    };
    world.run_for(Duration::from_secs(20));
    let slots = |world: &World| world.configs[0].control.view().map_or(0, |view| view.slots.count());
    assert_eq!(slots(&world), 0);
    // Who begin at the same time are told different numbers.
    let (at, one) = world.ask(|ticket| Event::Wants(ticket, Order::BeginRestore)).expect("somebody leads");
    let (_, another) = world.ask(|ticket| Event::Wants(ticket, Order::BeginRestore)).expect("somebody leads");
    world.run_for(Duration::from_secs(2));
    let told = |ticket| world.configs[at].answers.get(&ticket).cloned();
    assert_eq!(
        (told(one), told(another)),
        (Some(Ok("restore 2".to_owned())), Some(Ok("restore 3".to_owned())))
    );
    let to = |shard| Restored {
        slots: topology::SlotMap::even(&[ShardId(shard)]),
        epochs: BTreeMap::from([(ShardId(0), 1)]),
    };
    let late = Restored { epochs: BTreeMap::from([(ShardId(0), 9)]), ..to(0) };
    assert!(order(&mut world, Order::EndRestore(3, late)).is_err_and(|why| why.contains("other masters")));
    assert!(order(&mut world, Order::EndRestore(2, to(0))).is_err_and(|why| why.contains("since")));
    assert!(order(&mut world, Order::EndRestore(3, to(9))).is_err_and(|why| why.contains("not begun")));
    assert_eq!(order(&mut world, Order::EndRestore(3, to(0))), Ok("OK".to_owned()));
    assert_eq!(slots(&world), wire::SLOTS);
    for late in [Order::EndRestore(3, to(0)), Order::BeginRestore] {
        assert!(order(&mut world, late).is_err_and(|why| why.contains("awaits no backup")));
    }
}

/// A master by promotion has what was brought to the one before; who has given something up may not.
#[test]
fn slots_go_to_no_shard_that_may_have_lost_what_was_brought() {
    let brought = Restored { slots: SlotMap::default(), epochs: BTreeMap::from([(ShardId(0), 4)]) };
    let mut view = View::default();
    assert!(brought.why_lost(&view).is_some(), "it is gone");
    let member = MemberId { node: NodeId(1), life: Life(1) };
    for (epoch, is_lossy, has_it) in [
        (4, false, true),
        (4, true, true),
        (5, false, true),
        (5, true, false),
        (6, false, false),
        (3, false, false),
    ] {
        let (version, epoch, members) = (Version(9), Epoch(epoch), BTreeSet::from([member]));
        let decision = Decision { version, epoch, master: member, members, is_lossy };
        view.shards.insert(ShardId(0), Standing::Begun(decision));
        assert_eq!(brought.why_lost(&view).is_none(), has_it, "epoch {epoch:?}, {is_lossy}");
    }
}

/// The master to which a backup was brought is another's before the slots have owners.
#[test]
fn a_failover_before_its_end_is_no_harm_to_a_restore() {
    let mut world = World::new(5, 2, Policy { restore: 1, ..policy(1) });
    for _ in 0..2 {
        world.add_server("");
    }
    world.run_for(Duration::from_secs(20));
    let decision = |world: &World| match world.standing(ShardId(0)) {
        Some(Standing::Begun(decision)) => decision,
        other => panic!("{other:?}"),
    };
    let before = decision(&world);
    let id = world.places[&Place { shard: ShardId(0), node: before.master.node.0 }];
    let at = world.nodes.iter().position(|node| node.server.id == id).expect("it is one of these");
    world.nodes[at].is_up = false;
    world.run_until("another is master", Duration::from_secs(20), |world| {
        decision(world).master != before.master
    });
    let slots = SlotMap::even(&[ShardId(0)]);
    let brought = Restored { slots, epochs: BTreeMap::from([(ShardId(0), before.epoch.0)]) };
    let (end, now) = (Order::EndRestore(1, brought), world.now);
    let (at, ticket) = world.ask(|ticket| Event::Wants(ticket, end)).expect("somebody leads");
    world.run_for(Duration::from_secs(2));
    assert_eq!(world.configs[at].answers.get(&ticket).cloned(), Some(Ok("OK".to_owned())), "{now:?}");
}
