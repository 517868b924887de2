//! Shards on a simulated network, disk and clock, each from one seed: nothing acknowledged is lost, nothing shown is taken back, what
//! clients see is linearizable, and it all goes on once disturbances end.
//!
//! `TARN_SEED` and `TARN_STEPS` (seeds to try) repeat and lengthen it; `TARN_TRACE` prints everything that happens.

mod disk;
mod faults;
mod linear;
mod plan;
mod scenes;

mod world;

use super::Loss;
use plan::Plan;
use testkit::seed::Budget;
use testkit::stage::Staged;
use world::World;

/// What one seed came to.
#[derive(Clone, Copy, Debug, Default)]
struct Outcome {
    acknowledged: usize,
    reads: usize,
    promotions: u64,
    cuts: u64,
    /// Whether no data of any member is left, so that the shard stands still, as it must.
    is_lost: bool,
}

/// How long a shard may take to be whole again after all disturbances, in microseconds.
const REST_MAX: u64 = 20_000_000;

/// Plays a seed's plan.
fn play(seed: u64, plan: Plan) -> Result<Outcome, String> {
    let disturbed_until = plan.fate.until;
    let mut world = World::new(seed, plan);
    world.run(disturbed_until);
    world.heal();
    let is_lost = !come_to_rest(&mut world, disturbed_until);
    if let Some(violation) = world.stage.violation {
        return Err(violation);
    }
    if let Some(complaint) = linear::complaint(&world.operations, &world.committed) {
        return Err(complaint);
    }
    let ended = world.operations.iter().filter(|operation| operation.ended.is_some());
    let acknowledged = ended.clone().filter(|operation| operation.wrote.is_some()).count();
    Ok(Outcome {
        acknowledged,
        reads: ended.count() - acknowledged,
        promotions: world.promotions,
        cuts: world.cuts,
        is_lost,
    })
}

/// Waits until all nodes are members again and hold the same. Says whether there was any data to go on with.
fn come_to_rest(world: &mut World, from: u64) -> bool {
    let mut until = from + 1_500_000;
    while world.stage.violation.is_none() && !world.is_at_rest() {
        if world.living_members().is_empty() && world.stage.all_up() {
            return false;
        }
        if until > from + REST_MAX {
            let decision = world.store.current().cloned();
            world.stage.fail(format!("not at rest: {decision:?}"));
        }
        world.run(until);
        // Where no failover is set, somebody who watches has to say that a member is to be master.
        if world.master().is_none() && until.is_multiple_of(2_500_000) {
            let members = world.living_members();
            if !members.is_empty() {
                let chosen = members[world.stage.prng.below(members.len() as u64) as usize];
                world.promote(chosen, Loss::Refused);
            }
        }
        until += 100_000;
    }
    true
}

/// Members take requests that last longer than silence, and are removed only if they stand still in the middle.
#[test]
fn who_comes_forward_within_a_long_request_stays_a_member() {
    let budget = Budget::from_env(1, 100);
    let (mut acknowledged, mut done) = (0, 0);
    while budget.allows(done) {
        let seed = budget.seed + done;
        match play(seed, Plan::about_long_requests(seed, None)) {
            Ok(outcome) => acknowledged += outcome.acknowledged as u64,
            Err(wrong) => panic!("TARN_SEED={seed} TARN_STEPS=1: {wrong}"),
        }
        done += 1;
    }
    assert!(acknowledged > 20 * done, "too little was tried: {acknowledged} in {done}");
}

#[test]
fn shards_keep_what_was_acknowledged_and_go_on() {
    let budget = Budget::from_env(1, 1_500);
    let began = std::time::Instant::now();
    let (mut total, mut lost, mut done) = (Outcome::default(), 0, 0);
    while budget.allows(done) {
        let seed = budget.seed + done;
        match play(seed, Plan::from_seed(seed, None)) {
            Ok(outcome) => {
                total.acknowledged += outcome.acknowledged;
                total.reads += outcome.reads;
                total.promotions += outcome.promotions;
                total.cuts += outcome.cuts;
                lost += u64::from(outcome.is_lost);
            }
            Err(wrong) => panic!("TARN_SEED={seed} TARN_STEPS=1: {wrong}"),
        }
        done += 1;
    }
    println!(
        "{done} seeds in {:.1} s: {total:?}, {lost} lost all members' data",
        began.elapsed().as_secs_f64()
    );
    if done >= 1_000 {
        assert!(total.promotions > 2 * done && total.cuts > done / 4, "too little was tried: {total:?}");
        assert!(lost < done / 20, "{lost} of {done} had nothing to go on with");
    }
}
