//! Tarn against real servers, with commands generated from the command table.
//!
//! `TARN_SEED`, and `TARN_STEPS` or `TARN_SECONDS`, make a run another one or a
//! longer one; `TARN_SURVEY=1` lists all kinds of difference.
//! docs/testing.md tells more. All tests but the last two test the tester.

use crate::tarn;
use testkit::differential::judge::Verdict;
use testkit::differential::{Difference, Differential, Twist, rules};
use testkit::generate::Request;
use testkit::{Budget, Program, Spec};

/// Requests played by an ordinary test run; seconds in a debug build.
const STEPS: u64 = 20_000;
/// The same of schedules, which are played turn by turn.
const SCHEDULE_STEPS: u64 = 3_000;
/// The same of scripts.
const SCRIPT_STEPS: u64 = 3_000;

/// All commands of Tarn that are generated.
fn specs() -> Vec<Spec> {
    crate::specs().into_iter().filter(|spec| rules::is_generated(&spec.name)).collect()
}

#[test]
fn redis_does_not_differ_from_itself() {
    let mut servers = Differential::start(Program::Redis, &[Program::Redis]).unwrap();
    if let Err(found) = servers.run(&specs(), Budget::steps(1, 5_000)).unwrap() {
        panic!("{found}");
    }
}

#[test]
fn real_servers_differ_only_where_a_rule_says_so() {
    let mut servers = Differential::start(Program::Redis, &[Program::Redis, Program::Valkey]).unwrap();
    let mut found = servers.survey(&specs(), Budget::from_env(1, STEPS)).unwrap();
    found.retain(|found| found.verdict == Verdict::OraclesDiffer);
    let shown: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert!(found.is_empty(), "{} kinds without a rule:\n\n{}", found.len(), shown.join("\n\n"));
}

/// The canary: answers to GETRANGE with a negative index lose their last byte.
fn clip_negative_getrange(request: &Request, reply: &mut Vec<u8>) {
    let is_getrange = request[0].eq_ignore_ascii_case(b"getrange");
    if is_getrange
        && request.len() == 4
        && request[2].starts_with(b"-")
        && reply.len() > 7
        && reply[0] == b'$'
    {
        *reply = b"$0\r\n\r\n".to_vec();
    }
}

#[test]
fn planted_fault_is_found_and_shrunk() {
    let mut servers = Differential::start(Program::Redis, &[Program::Redis]).unwrap();
    servers.plant(clip_negative_getrange);
    let found = servers.run(&specs(), Budget::steps(1, 200_000)).unwrap().unwrap_err();
    assert!(found.request[0].eq_ignore_ascii_case(b"getrange"), "{found}");
    assert!(found.stream.len() <= 4, "not shrunk: {found}");
    assert_eq!(found.stream.last().map(|step| &step.request), Some(&found.request), "{found}");
}

/// What is found of a fault planted into what a Redis does.
fn found(servers: Differential, fault: Twist) -> Difference {
    let mut servers = servers;
    servers.plant_twist(fault);
    *servers.run(&specs(), Budget::steps(1, 200_000)).unwrap().expect_err("the fault was not found")
}

fn twins() -> Differential {
    Differential::start(Program::Redis, &[Program::Redis]).unwrap()
}

fn is(request: &Request, name: &str) -> bool {
    request[0].eq_ignore_ascii_case(name.as_bytes())
}

#[test]
fn list_searched_from_the_wrong_end_is_found() {
    let found = found(twins(), |request| {
        if is(request, "lrem") && request.len() == 4 && request[2].starts_with(b"-") {
            request[2].remove(0);
        }
    });
    assert!(found.stream.iter().any(|step| is(&step.request, "lrem")), "{found}");
}

#[test]
fn condition_of_zadd_that_is_not_kept_is_found() {
    let found = found(twins(), |request| {
        if is(request, "zadd") {
            request.iter_mut().skip(2).filter(|word| word.eq_ignore_ascii_case(b"gt")).for_each(|word| {
                *word = b"LT".to_vec();
            });
        }
    });
    assert!(found.stream.iter().any(|step| is(&step.request, "zadd")), "{found}");
}

#[test]
fn transaction_that_runs_although_it_must_not_is_found() {
    let found = found(twins(), |request| {
        if is(request, "watch") {
            request.iter_mut().skip(1).for_each(|key| *key = b"nobody's".to_vec());
        }
    });
    assert!(is(&found.request, "exec"), "{found}");
    assert!(found.stream.len() <= 7, "not shrunk: {found}");
}

#[test]
fn lost_wake_up_is_found_and_shrunk() {
    let found = found(twins().with_schedules(), |request| {
        if is(request, "blmove") && request.len() == 6 {
            request[1] = b"nobody's".to_vec();
        }
    });
    assert!(found.stream.iter().any(|step| is(&step.request, "blmove")), "{found}");
    assert!(found.stream.len() <= 4, "not shrunk: {found}");
}

#[test]
fn schedules_do_not_differ_from_themselves() {
    let mut servers = twins().with_schedules();
    if let Err(found) = servers.run(&crate::specs(), Budget::steps(1, 3_000)).unwrap() {
        panic!("{found}");
    }
}

#[test]
fn tarn_serves_waiting_clients_as_real_servers_do() {
    let servers = Differential::start(tarn(), &[Program::Redis, Program::Valkey]).unwrap();
    // Schedules choose their commands on their own, SUBSCRIBE among them.
    compare(servers.with_schedules(), &crate::specs(), SCHEDULE_STEPS);
}

#[test]
fn tarn_runs_scripts_as_real_servers_do() {
    let servers = Differential::start(tarn(), &[Program::Redis, Program::Valkey]).unwrap();
    compare(servers.with_scripts(), &specs(), SCRIPT_STEPS);
}

#[test]
fn tarn_answers_as_real_servers_do() {
    compare(Differential::start(tarn(), &[Program::Redis, Program::Valkey]).unwrap(), &specs(), STEPS);
}

/// Plays what the environment asks for, `steps` requests if it asks for nothing.
fn compare(mut servers: Differential, specs: &[Spec], steps: u64) {
    if std::env::var_os("TARN_SURVEY").is_some() {
        let found = servers.survey(specs, Budget::from_env(1, steps)).unwrap();
        let shown: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert!(found.is_empty(), "{} kinds of difference:\n\n{}", found.len(), shown.join("\n\n"));
        return;
    }
    match servers.run(specs, Budget::from_env(1, steps)).unwrap() {
        Ok(played) => println!("{played} requests, no difference"),
        Err(found) => panic!("{found}"),
    }
}
