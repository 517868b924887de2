//! Servers that are killed (SIGKILL) in the middle of their work and started again: nothing that was answered is lost.
//!
//! `ledger` says what must be there, `load` makes work, `crate::subject` starts servers. `histories` records what many clients do
//! to a few keys over crashes and has it checked for linearizability; `full_disk` is about disks without space, `hanging_disk` about
//! one that does not answer.
//!
//!     TARN_STEPS=1000 TARN_SEED=$RANDOM ./test --test tests -- --nocapture crash::

mod full_disk;
mod hanging_disk;
mod histories;
mod ledger;
mod load;

use crate::subject::{self, Subject};
use ledger::{Books, Tally};
use load::Refusals;
use std::path::Path;
use std::time::Duration;
use sys::Prng;
use testkit::ask::wait_until;
use testkit::{Budget, Client, Server};
use wire::Value;

/// Clients that write.
const WRITERS: usize = 6;
/// Rounds of the edition that is tested.
const ROUNDS: u64 = 50;
/// Rounds of a server that is only there to test the tests.
const PEER_ROUNDS: u64 = 5;
/// A server is killed up to so many milliseconds after what came before: nothing, or a checkpoint's beginning.
const ROUND_MS_MAX: u64 = 200;
/// Starts after a kill that are killed, too, at most.
const KILLED_STARTS_MAX: u64 = 2;
/// Such a start is killed up to so many milliseconds after it began: while the program begins, reads its files or has done so.
const START_MS_MAX: u64 = 80;

/// Kills and restarts a server again and again; all on one directory.
fn rounds(subject: &Subject, budget: Budget) {
    let mut prng = Prng::from_seed(budget.seed);
    let (mut server, mut books) = (subject.start(), Books::new(WRITERS));
    let (mut round, mut sum) = (0, Tally::default());
    while budget.allows(round) {
        books.clear_list(&mut subject::connect(&server));
        let [before, moment] = [ROUND_MS_MAX / 2, ROUND_MS_MAX].map(|max| micros_below(&mut prng, max));
        let has_checkpoint = prng.one_in(2);
        load::during(&mut server, &mut books, &mut prng, Refusals::Never, |stage| {
            // The moments are what this is about; there is no event to wait for.
            std::thread::sleep(before);
            if has_checkpoint {
                subject::begin_checkpoint(stage.server());
            }
            std::thread::sleep(moment);
            stage.kill();
        });
        for _ in 0..prng.below(KILLED_STARTS_MAX + 1) {
            server.start_and_kill(micros_below(&mut prng, START_MS_MAX)).expect("the program can be run");
        }
        let tally = books
            .audit(&mut subject::restart(&mut server))
            .unwrap_or_else(|lost| panic!("round {round}, TARN_SEED={}:\n{lost}", budget.seed));
        sum = Tally { open: sum.open + tally.open, survived: sum.survived + tally.survived, ..tally };
        round += 1;
    }
    println!(
        "{round} kills of {}: {} units were answered and none is lost, nor is what was seen of {} counters; \
         {} units were open, and {} of them are there",
        server.program().name(),
        sum.answered,
        sum.witnessed,
        sum.open,
        sum.survived
    );
}

fn micros_below(prng: &mut Prng, max_ms: u64) -> Duration {
    Duration::from_micros(prng.below(max_ms * 1000))
}

#[test]
fn nothing_that_durable_tarn_answered_is_lost_when_it_is_killed() {
    rounds(&Subject::durable_tarn(), Budget::from_env(1, ROUNDS));
}

#[test]
fn nothing_that_capacity_tarn_answered_is_lost_when_it_is_killed() {
    rounds(&Subject::capacity_tarn(), Budget::from_env(1, ROUNDS / 2));
}

#[test]
fn the_ledger_accuses_no_server_that_keeps_its_word() {
    rounds(&Subject::redis("always"), Budget::from_env(1, PEER_ROUNDS));
}

#[test]
fn the_ledger_accuses_no_tarn_that_was_not_killed() {
    let (mut server, mut books) = (Subject::memory_tarn().start(), Books::new(WRITERS));
    load::during(&mut server, &mut books, &mut Prng::from_seed(1), Refusals::Never, |stage| {
        wait_until_grown(stage.server());
    });
    books.audit(&mut subject::connect(&server)).expect("nobody was killed");
}

/// What an audit says after a load that ended in peace, a kill, and `harm` done to the server's files.
fn audit_after(harm: impl FnOnce(&Path)) -> Result<Tally, String> {
    let (mut server, mut books) = (Subject::redis("always").start(), Books::new(WRITERS));
    load::during(&mut server, &mut books, &mut Prng::from_seed(1), Refusals::Never, |stage| {
        wait_until_grown(stage.server());
    });
    server.kill();
    harm(server.dir());
    books.audit(&mut subject::restart(&mut server))
}

/// Waits until the clients have written something.
fn wait_until_grown(server: &Server) {
    let mut client: Client = subject::connect(server);
    let has_some = |reply| matches!(reply, Value::Int(50..));
    wait_until("something is written", || has_some(client.call(&["DBSIZE"]).expect("the server answers")));
}

#[test]
fn writes_behind_keys_that_no_command_wrote_are_kept() {
    let mut server = Subject::durable_tarn().start();
    let mut client = subject::connect(&server);
    let writes = [
        vec!["DEBUG", "POPULATE", "2"],
        vec!["SET", "as-sent", "v"],
        vec!["DEBUG", "POPULATE", "2", "others"],
        vec!["EVAL", "return redis.call('SET', KEYS[1], 'v')", "1", "scripted"],
    ];
    for write in &writes {
        assert_eq!(client.call(write).unwrap(), Value::Simple(b"OK".to_vec()), "{write:?}");
    }
    server.kill();
    let mut client = subject::restart(&mut server);
    let there =
        client.call(&["EXISTS", "key:0", "key:1", "as-sent", "others:0", "others:1", "scripted"]).unwrap();
    assert_eq!(there, Value::Int(6));
}

#[test]
fn a_log_cut_by_one_byte_is_noticed() {
    let tally = audit_after(|_| ()).expect("nothing was harmed");
    assert_eq!(tally.open, 0);
    let lost = audit_after(|dir| {
        let log = dir.join("appendonlydir/appendonly.aof.1.incr.aof");
        let file = std::fs::OpenOptions::new().write(true).open(log).unwrap();
        file.set_len(file.metadata().unwrap().len() - 1).unwrap();
    });
    println!("{}", lost.expect_err("a write is missing"));
}

#[test]
fn a_lost_log_is_noticed() {
    let lost = audit_after(|dir| std::fs::remove_dir_all(dir.join("appendonlydir")).unwrap());
    let lost = lost.expect_err("all is missing");
    assert!(lost.contains("there is: nothing"), "{lost}");
}
