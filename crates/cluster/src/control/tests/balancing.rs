//! Slots that move by themselves in whole clusters. What is done when is tested beside it ([`crate::control::balancing`]).

use super::moves::Moving;
use super::{PREFIX, World, policy, seeds};
use crate::control::view::key;
use crate::control::{Epochs, Event, Measure, Order, Policy, Request, Shift, Standing, Word};
use crate::store::{Change, Write};
use std::collections::BTreeSet;
use std::time::Duration;
use topology::{Move, Place, ShardId, SlotRange, Stage};

/// Has all moves be over as soon as they can.
fn move_at_once(world: &mut World) {
    let Some(leader) = world.leader() else { return };
    let view = world.configs[leader].control.view().expect("it leads").clone();
    let epoch = |shard| match view.shards.get(&shard) {
        Some(Standing::Begun(decision)) => decision.epoch.0,
        _ => 0,
    };
    for one in view.moves.values().filter(|one| one.is_under_way()) {
        let epochs = Epochs { from: epoch(one.from), to: epoch(one.to) };
        let word = match one.stage {
            Stage::Copying => Word::CaughtUp(epochs),
            _ => Word::Ready(epochs),
        };
        let request = Request::Said { id: one.id, attempt: one.attempt, word };
        world.ask(|ticket| Event::Asks(ticket, request));
    }
}

fn run(world: &mut World, span: Duration) {
    let end = world.now.plus(span);
    while world.now < end {
        world.step();
        move_at_once(world);
    }
}

fn last_move(world: &World) -> u64 {
    let leader = world.leader().expect("somebody leads");
    world.configs[leader].control.view().expect("it leads").last_move
}

fn keys(world: &World) -> Vec<u64> {
    let keys = world.nodes.iter().map(|node| world.keys(node.server.id));
    keys.filter(|keys| *keys > 0).collect()
}

/// A cluster of two shards, of which the first has thrice as many keys.
fn uneven(auto_rebalance: Option<Measure>) -> World {
    let mut world = World::new(21, 2, Policy { copies: 1, auto_rebalance, ..policy(2) });
    world.weigh = Some(|slot| if slot < 8192 { 30 } else { 10 });
    world.add_server("");
    world.add_server("");
    world.run_until("it is whole", Duration::from_secs(20), World::is_whole);
    world
}

#[test]
fn slots_move_by_themselves_if_that_is_wanted_and_only_then() {
    let mut world = uneven(None);
    run(&mut world, Duration::from_secs(300));
    assert_eq!(last_move(&world), 0);
    let order = Order::Set("auto-rebalance".to_owned(), "keys".to_owned());
    world.ask(|ticket| Event::Wants(ticket, order)).expect("somebody leads");
    run(&mut world, Duration::from_secs(600));
    let (moves, parts) = (last_move(&world), keys(&world));
    assert!((1..=2).contains(&moves), "{moves}");
    let (least, most) = (parts.iter().min().unwrap(), parts.iter().max().unwrap());
    assert!(*most as f64 / *least as f64 <= 1.25 / 0.75, "{parts:?}");
    run(&mut world, Duration::from_secs(1200));
    assert_eq!(last_move(&world), moves);
}

#[test]
fn nothing_moves_by_itself_while_a_master_is_silent() {
    let mut world = uneven(Some(Measure::Keys));
    world.nodes[1].is_up = false;
    run(&mut world, Duration::from_secs(300));
    assert_eq!(last_move(&world), 0);
    (world.nodes[1].is_up, world.nodes[1].up_since) = (true, world.now);
    run(&mut world, Duration::from_secs(300));
    assert!(last_move(&world) > 0);
}

#[test]
fn slots_move_by_themselves_whatever_happens() {
    for seed in seeds(4) {
        let wanted = Policy { auto_rebalance: Some(Measure::Slots), rebalance_threshold: 10, ..policy(3) };
        let mut moving = match Moving::play_as(seed, None, wanted) {
            Err(violation) => panic!("TARN_SEED={seed} TARN_STEPS=1: {violation}"),
            Ok(moving) => moving,
        };
        let parts = |moving: &mut Moving| {
            let slots = moving.truth().slots.clone();
            [0, 1, 2].map(|shard| slots.count_of(ShardId(shard)))
        };
        let is_even = |parts: [usize; 3]| parts.iter().all(|part| part.abs_diff(5461) <= 547);
        for _ in 0..60 {
            if is_even(parts(&mut moving)) {
                break;
            }
            moving.run_for(Duration::from_secs(60));
        }
        let parts = parts(&mut moving);
        assert!(is_even(parts), "TARN_SEED={seed} TARN_STEPS=1: {parts:?}");
    }
}

/// What a server has said that is silent since says nothing of what its shard has now.
#[test]
fn nobody_goes_by_what_was_said_long_ago() {
    let mut world = uneven(None);
    world.run_for(Duration::from_secs(2));
    let planned = |world: &mut World, by: Measure| {
        let request = Request::Rebalance { by, is_dry: true };
        let (at, ticket) = world.ask(|ticket| Event::Asks(ticket, request)).expect("somebody leads");
        world.run_for(Duration::from_secs(1));
        world.configs[at].answers.get(&ticket).cloned().expect("it is answered")
    };
    assert!(planned(&mut world, Measure::Keys).is_ok_and(|told| told.contains("to shard 1")));
    world.nodes[0].is_up = false;
    world.run_for(Duration::from_secs(5));
    let refused = planned(&mut world, Measure::Keys);
    assert!(
        refused.as_ref().is_err_and(|why| why.contains("has not said lately how many keys")),
        "{refused:?}"
    );
    assert!(planned(&mut world, Measure::Slots).is_ok());
}

/// A move is not begun to switch for a master that may not hear of it: requests would be held back for it.
#[test]
fn slots_do_not_switch_to_a_master_that_is_silent() {
    let mut world = uneven(None);
    let shifts = vec![Shift { from: None, to: ShardId(1), slots: vec![SlotRange { first: 0, last: 99 }] }];
    world.run_for(Duration::from_secs(2));
    world.ask(|ticket| Event::Asks(ticket, Request::Begin { shifts, begun: BTreeSet::new() }));
    world.run_for(Duration::from_secs(2));
    let stage = |world: &World| {
        let leader = world.leader().expect("somebody leads");
        world.configs[leader].control.view().expect("it leads").moves.get(&1).map(|one| one.stage.clone())
    };
    assert_eq!(stage(&world), Some(Stage::Copying));
    let taker = world.places[&Place { shard: ShardId(1), node: 1 }];
    let at = world.nodes.iter().position(|node| node.server.id == taker).expect("it is there");
    world.nodes[at].is_up = false;
    world.run_for(Duration::from_secs(5));
    run(&mut world, Duration::from_secs(3));
    assert_eq!(stage(&world), Some(Stage::Copying));
    world.nodes[at].is_up = true;
    run(&mut world, Duration::from_secs(3));
    assert_eq!(stage(&world), None, "it is done");
}

/// There are more of them than one change of the store takes.
#[test]
fn moves_that_have_failed_are_in_nobodys_way() {
    let mut world = uneven(None);
    world.run_for(Duration::from_secs(2));
    let failed = (1..=200_u64).map(|id| {
        let slots = vec![SlotRange { first: 0, last: 99 }];
        let (from, to, stage) = (ShardId(0), ShardId(1), Stage::Failed("no memory is left".to_owned()));
        let one = Move { id, from, to, attempt: 1, stage, slots };
        Write::Put { key: format!("{PREFIX}{}", key::moving(id)), value: one.to_line(), lease: None }
    });
    let last =
        Write::Put { key: format!("{PREFIX}{}", key::LAST_MOVE), value: "200".to_owned(), lease: None };
    let writes: Vec<Write> = [last].into_iter().chain(failed).collect();
    for writes in writes.chunks(100) {
        world.store.change(&Change { compares: Vec::new(), writes: writes.to_vec() });
    }
    let shifts = vec![Shift { from: None, to: ShardId(1), slots: vec![SlotRange { first: 0, last: 99 }] }];
    let begin = Request::Begin { shifts, begun: BTreeSet::new() };
    // With the leader knowing all of them.
    world.step();
    let (at, ticket) = world.ask(|ticket| Event::Asks(ticket, begin)).expect("somebody leads");
    run(&mut world, Duration::from_secs(5));
    assert_eq!(world.configs[at].answers.get(&ticket), Some(&Ok("moves 201".to_owned())));
    let moves = |world: &World| {
        let prefix = format!("{PREFIX}moves/");
        world.store.entries.keys().filter(|key| key.starts_with(&prefix)).count()
    };
    assert_eq!(moves(&world), 0, "they are forgotten, and it is done");
    // Of those in nobody's way, too, only so many are remembered.
    for writes in writes[1..].chunks(100) {
        world.store.change(&Change { compares: Vec::new(), writes: writes.to_vec() });
    }
    let last =
        Write::Put { key: format!("{PREFIX}{}", key::LAST_MOVE), value: "201".to_owned(), lease: None };
    world.store.change(&Change { compares: Vec::new(), writes: vec![last] });
    world.run_for(Duration::from_secs(2));
    assert_eq!(moves(&world), 100);
    assert!(world.value(&key::moving(200)).is_some() && world.value(&key::moving(100)).is_none());
}
