//! Whole shards of real servers in one thread, each from one seed: their real logs, recovery, keyspaces, commands, gate, driver and state
//! machine, on a simulated disk, network and clock, with a store of decisions in memory. Nodes are of all editions: durable ones; such as have no log, and come
//! back with nothing, as somebody else; and such as send what they have in memory to their store all the time, and clean it. Masters hand over while clients write.
//!
//! What is here in place of the server's threads and sockets: who dials and accepts (the words that are said on a link are the real ones), who reads a
//! store's answers, the log's flusher and the store's spiller (a turn of one is an event), the connection of a client behind the gate or before a pause's end, and the connection on which the
//! stream comes: a request for it and its answer are one message each, and who is far behind is not read for by a thread of its own. A
//! full copy is of one moment. All that is decided on either side of these is what servers do: `joining::goes_on`, `agreeing`, `rest`,
//! `copy::put_in_place`, `reign`.
//!
//! Checked are all that the simulator of the state machine checks (`replication::insync`), that at the end all nodes have the same
//! keys, values and offsets and everybody's write is taken, and that nobody waits for leases where a master hands over.
//!
//! `TARN_SEED` and `TARN_STEPS` (seeds to try) repeat and lengthen it; `TARN_TRACE` prints what happens.

mod checking;
mod clients;
mod history;
mod node;
mod passing;
mod plan;
mod scenes;
mod stretch;
mod world;

use super::fault::Fault;
use plan::Plan;
use std::ops::RangeInclusive;
use sys::file::simulated::Faults;
use testkit::seed::{Budget, found_within};
use testkit::stage::Staged;
use world::{Figures, World};

/// How long a shard may take to be whole again after all disturbances, in microseconds.
const REST_MAX: u64 = 20_000_000;

fn play(seed: u64, plan: Plan) -> Result<Figures, String> {
    crate::commands::install();
    let until = plan.fate.until;
    let mut world = World::new(seed, plan);
    world.run(until);
    world.heal();
    if !come_to_rest(&mut world, until) {
        world.figures.lost += 1;
        return world.judge();
    }
    // A command may have wanted another master just before, who has to wait until what it lent is over.
    let mut tries = 0;
    while world.stage.violation.is_none() && !world.takes_writes() {
        tries += 1;
        if tries > 3 {
            world.stage.fail("writes are refused for good".to_owned());
        }
    }
    let now = world.stage.now;
    come_to_rest(&mut world, now);
    world.compare_all();
    world.stage.violation.take().map_or_else(|| world.judge(), Err)
}

/// Waits until the shard is whole again. False: there is nothing to go on with.
fn come_to_rest(world: &mut World, from: u64) -> bool {
    // Clients have ended then.
    let mut until = from + 500_000;
    world.run(until);
    while world.stage.violation.is_none() && !world.is_at_rest() {
        if world.is_lost() {
            return false;
        }
        if until > from + REST_MAX {
            let standing = world.standing();
            world.stage.fail(format!("not at rest: {standing}"));
        }
        until += 100_000;
        world.run(until);
    }
    true
}

#[test]
fn shards_with_their_logs_keep_what_was_acknowledged_and_go_on() {
    let budget = Budget::from_env(1, 300);
    let (total, done) = play_all(&budget, Plan::from_seed);
    if done >= 300 {
        assert!(
            total.promotions > 2 * done
                && total.handovers > done / 2
                && total.rewinds > done / 20
                && total.copies > done
                && total.cuts > done / 2
                && total.emptied > done / 4
                && total.spilled > done
                && total.lost < done / 10,
            "too little was tried: {total:?}"
        );
    }
}

#[test]
fn a_master_that_hands_over_has_nobody_wait_for_leases() {
    let budget = Budget::from_env(1, 12);
    let (total, done) = play_all(&budget, Plan::of_handovers_alone);
    assert!(total.handovers > 4 * done, "too little was tried: {total:?}");
    assert!(total.longest_wait < 500_000, "leases are three times as long: {total:?}");
}

/// Plays seeds for as long as it may.
fn play_all(budget: &Budget, plan: impl Fn(u64) -> Plan) -> (Figures, u64) {
    let began = std::time::Instant::now();
    let (mut total, mut done) = (Figures::default(), 0);
    while budget.allows(done) {
        let seed = budget.seed + done;
        match play(seed, plan(seed)) {
            Ok(figures) => total.add(&figures),
            Err(wrong) => panic!("TARN_SEED={seed} TARN_STEPS=1: {wrong}"),
        }
        done += 1;
    }
    println!("{done} seeds in {:.1} s: {total:?}", began.elapsed().as_secs_f64());
    (total, done)
}

#[test]
fn a_seed_is_played_alike_again() {
    let figures = |seed| play(seed, Plan::from_seed(seed)).unwrap();
    (1..=2).for_each(|seed| assert_eq!(figures(seed), figures(seed)));
}

/// Seeds of plans that are changed so that something is wrong.
fn wrong_within(seeds: RangeInclusive<u64>, what: &str, plan: impl Fn(Plan) -> Plan) {
    found_within(what, seeds, |seed| play(seed, plan(Plan::from_seed(seed))));
}

macro_rules! planted {
    ($($name:ident: $fault:ident, $seeds:expr;)*) => {
        $(#[test]
        fn $name() {
            wrong_within($seeds, stringify!($fault), |plan| Plan { fault: Some(Fault::$fault), ..plan });
        })*
    };
}

// From seed 1 on they are found within 905 and 170 seeds; a debug build takes long for so many.
planted! {
    a_member_that_acknowledges_before_its_sync_is_found: DoneIsDurable, 898..=910;
    a_tail_that_is_said_to_be_cut_and_is_not_is_found: TailKept, 165..=175;
}

#[test]
fn an_heir_that_does_not_wait_for_the_decision_is_found() {
    found_within("AskedIsDecided", 1..=40, |seed| {
        play(seed, Plan { fault: Some(Fault::AskedIsDecided), ..Plan::about_handing_over(seed) })
    });
}

#[test]
fn a_node_that_is_emptied_and_takes_itself_for_who_it_was_is_found() {
    wrong_within(1..=40, "a life that is kept", |plan| Plan { keeps_lives: true, ..plan });
}

#[test]
fn disks_that_lie_about_syncs_are_found() {
    let lies = Faults { lies: true, ..Faults::default() };
    wrong_within(1..=20, "a disk that lies", |plan| Plan { disk: lies.clone(), ..plan });
}
