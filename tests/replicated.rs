//! Servers that follow each other have the same: chains of Tarn, Redis and Valkey take traffic of all kinds at the head, while
//! links between them are cut, stopped, slowed down and forgotten by one side, and servers are restarted.
//!
//! A round ends when all have the head's history up to the same offset; then every key is read on all of them. See
//! `testkit::replicated` for what is held beside that.
//!
//!     TARN_SECONDS=3600 TARN_SEED=$RANDOM ./test --test tests -- --nocapture replicated::

use testkit::replicated::Member;
use testkit::replicated::rounds::Rounds;
use testkit::traffic::{self, Habits};
use testkit::{Budget, Program};

/// What clients send: what all real servers know, and nothing about the server itself.
const HABITS: Habits =
    Habits { use_newer: false, set_directives: false, begin_checkpoints: false, withhold: false };
/// Rounds of an ordinary test run, of each chain.
const ROUNDS: u64 = 4;

fn redis() -> Member {
    Member::new(Program::Redis, &[])
}

fn valkey() -> Member {
    Member::new(Program::Valkey, &[])
}

/// Plays rounds on a chain.
fn agree(members: &[Member], habits: Habits) {
    let budget = Budget::from_env(1, ROUNDS);
    let specs = traffic::specs(crate::specs(), habits);
    let mut rounds = Rounds::start(members, &specs, habits).expect("the chain starts");
    match rounds.play(budget).expect("the servers can be driven") {
        Ok(report) => println!("{}: {report:?}", rounds.chain().name()),
        Err(wrong) => panic!("{wrong}"),
    }
}

#[test]
fn real_servers_agree() {
    agree(&[redis(), redis(), valkey()], HABITS);
}
