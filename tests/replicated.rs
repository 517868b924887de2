//! Servers that follow each other have the same: chains of Tarn, Redis and Valkey take traffic of all kinds at the head, while
//! links between them are cut, stopped, slowed down and forgotten by one side, and servers are restarted.
//!
//! A round ends when all have the head's history up to the same offset; then every key is read on all of them. See
//! `testkit::replicated` for what is held beside that.
//!
//! 1. A chain of real servers alone keeps the tests honest: what is sent to a head is what they agree about.
//! 2. The seed gives the same requests and disturbances, but not the moments at which they met.
//!
//!     TARN_SECONDS=3600 TARN_SEED=$RANDOM ./test --test tests -- --nocapture replicated::

use std::time::Duration;
use testkit::replicated::Member;
use testkit::replicated::rounds::Rounds;
use testkit::traffic::{self, Habits};
use testkit::{Budget, Program};

/// What clients send to a real server: nothing that it keeps from its followers, and nothing about itself.
const TO_REAL: Habits =
    Habits { use_newer: false, set_directives: false, begin_checkpoints: false, withhold: false };
/// What they send to a Tarn that real servers follow: what these know. Tarn keeps nothing back.
const TO_TARN: Habits = Habits { withhold: true, ..TO_REAL };
/// What they send to a Tarn that only Tarns follow.
const AMONG_TARNS: Habits = Habits { use_newer: true, begin_checkpoints: true, ..TO_TARN };
/// Whether this Tarn takes followers.
const TARN_IS_FOLLOWED: bool = true;
/// What a master is told whose followers read files of Redis 7.0's version.
const FOR_REDIS: &[&str] = &["--repl-rdb-version", "10"];
/// Rounds of an ordinary test run, of each chain.
const ROUNDS: u64 = 4;
/// Longest start of a server that moves a key to the disk at each request that meets it.
const EAGER_START_MAX: Duration = Duration::from_secs(300);

fn redis() -> Member {
    Member::new(Program::Redis, &[])
}

fn valkey() -> Member {
    Member::new(Program::Valkey, &[])
}

/// With all its workers serving, whatever the load is: what goes wrong between them is looked for.
fn tarn(directives: &[&str]) -> Member {
    let always = ["--threads-min", "1024", "--enable-debug-command", "yes"];
    Member::new(crate::tarn(), &[&always[..], directives].concat())
}

fn memory_tarn() -> Member {
    tarn(&["--edition", "memory"])
}

/// With short segments, so that there are many.
fn durable_tarn() -> Member {
    tarn(&["--edition", "durable", "--log-segment-size", "1mb"])
}

/// With everything on disk that can be.
fn capacity_tarn() -> Member {
    let directives = ["--edition", "capacity", "--maxmemory", "1gb", "--eager-spill", "yes"];
    tarn(&[&directives[..], &["--log-segment-size", "1mb"]].concat()).patient(EAGER_START_MAX)
}

/// Plays rounds on a chain, the head first.
fn agree(members: &[Member], habits: Habits) {
    let budget = Budget::from_env(1, ROUNDS);
    let specs = traffic::specs(crate::specs(), habits);
    let mut rounds = Rounds::start(members, &specs, habits).expect("the chain starts");
    match rounds.play(budget).expect("the servers can be driven") {
        Ok(report) => println!("{}: {report:?}", rounds.chain().name()),
        Err(wrong) => panic!("{wrong}"),
    }
}

/// The same of chains in which somebody follows a Tarn: not played before anybody can.
fn agree_once_tarn_is_followed(members: &[Member], habits: Habits) {
    if TARN_IS_FOLLOWED {
        agree(members, habits);
    }
}

#[test]
fn real_servers_agree() {
    agree(&[redis(), redis(), valkey()], TO_REAL);
}

#[test]
fn memory_tarn_agrees_with_the_redis_it_follows() {
    agree(&[redis(), memory_tarn()], TO_REAL);
}

#[test]
fn durable_tarn_agrees_with_the_redis_it_follows() {
    agree(&[redis(), durable_tarn()], TO_REAL);
}

#[test]
fn capacity_tarn_agrees_with_the_redis_it_follows() {
    agree(&[redis(), capacity_tarn()], TO_REAL);
}

#[test]
fn tarn_agrees_with_the_valkey_it_follows() {
    agree(&[valkey(), durable_tarn()], TO_REAL);
}

#[test]
fn redis_agrees_with_the_memory_tarn_it_follows() {
    agree_once_tarn_is_followed(&[memory_tarn().with(FOR_REDIS), redis()], TO_TARN);
}

#[test]
fn redis_agrees_with_the_durable_tarn_it_follows() {
    agree_once_tarn_is_followed(&[durable_tarn().with(FOR_REDIS), redis()], TO_TARN);
}

#[test]
fn valkey_agrees_with_the_capacity_tarn_it_follows() {
    agree_once_tarn_is_followed(&[capacity_tarn().with(FOR_REDIS), valkey()], TO_TARN);
}

#[test]
fn tarns_of_all_editions_agree() {
    agree_once_tarn_is_followed(
        &[durable_tarn(), capacity_tarn(), memory_tarn(), durable_tarn()],
        AMONG_TARNS,
    );
}

#[test]
fn a_tarn_between_two_redis_agrees_with_both() {
    agree_once_tarn_is_followed(&[redis(), durable_tarn().with(FOR_REDIS), redis()], TO_REAL);
}
