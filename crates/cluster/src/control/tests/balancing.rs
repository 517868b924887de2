//! Slots that move by themselves in whole clusters. What is done when is tested beside it ([`crate::control::balancing`]).

use super::moves::Moving;
use super::{World, policy, seeds};
use crate::control::{Epochs, Event, Measure, Order, Policy, Request, Standing, Word};
use std::time::Duration;
use topology::{ShardId, Stage};

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
