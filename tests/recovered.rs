//! What a kill leaves is what was there: a server takes requests of every kind from many clients while checkpoints come and
//! go, everything in it is read, it is killed (SIGKILL) and started again, and everything is read once more.
//!
//! Nothing is expected of a request beforehand: the server itself, a moment before, says what must be there, key by key, time
//! by time, field by field, group by group. So no kind of request needs a model. `testkit::traffic` says what the clients send.
//!
//! 1. All clients have had their last answer before the first reading: everything that it shows is durable.
//! 2. The seed gives the same requests, but not the moments at which the server's threads met.
//!
//!     TARN_SECONDS=3600 TARN_SEED=$RANDOM ./test --test tests -- --nocapture recovered::

use crate::subject::{self, Subject};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use sys::Prng;
use testkit::ask::wait_until;
use testkit::contents::{self, LeftOut};
use testkit::traffic::{self, Habits, Progress, Traffic};
use testkit::{Budget, Client, Contents, Server};

/// What clients send: everything.
const HABITS: Habits =
    Habits { use_newer: true, set_directives: true, begin_checkpoints: true, withhold: true };
/// Rounds of an ordinary test run.
const ROUNDS: u64 = 6;
/// Rounds of a server that is only there to test the test.
const PEER_ROUNDS: u64 = 2;
/// Requests of a round, about, beside those of generated streams.
const ROUND_REQUESTS: usize = 5_000;
/// Keys that make checkpoints last: between those of the clients, in all slots.
const BALLAST: &str = "40000";
/// The largest share of a round that passes before a checkpoint is begun.
const STEP_MAX: f64 = 0.3;
/// Checkpoints that are written while databases are exchanged all the time, and the longest that one may take.
const EXCHANGED: u64 = 2;
const CHECKPOINT_MAX: Duration = Duration::from_secs(600);
/// What makes those last: keys of three databases, each with its database's number.
const BALLAST_OF_EACH: &str =
    "for db = 0, 2 do redis.call('SELECT', db); for i = 1, 4000 do redis.call('SET', 'b' .. i, db) end end";
/// No checkpoint begins behind this share of a round: the last one is to begin amid the traffic.
const LAST_BEGINNING: f64 = 0.8;

/// Plays rounds on one directory, each behind the state that the last one left. What streams say under the names that are left
/// out is not compared.
fn rounds(subject: &Subject, left_out: LeftOut, budget: Budget) {
    let mut prng = Prng::from_seed(budget.seed);
    let mut server = subject.start();
    let (mut round, mut keys, mut checkpoints) = (0, 0, 0);
    while budget.allows(round) {
        let complain = |what: String, server: &Server| {
            panic!("round {round}, TARN_SEED={}:\n{what}\n{}", budget.seed, server.last_lines())
        };
        load_ballast(&mut subject::connect(&server));
        busy(&server, &mut prng);
        assert!(server.ended().expect("the operating system says").is_none(), "{}", server.last_lines());
        // A checkpoint that never ended counts for nothing.
        if !prng.one_in(4) {
            end_checkpoint(&server);
        }
        let mut client = subject::connect(&server);
        checkpoints +=
            crate::info(&mut client, "aof_rewrites") + crate::info(&mut client, "aof_rewrite_in_progress");
        let before = read(&mut client, left_out);
        assert!(!before.is_empty(), "nothing is there to be lost");
        server.kill();
        if let Err(error) = server.restart() {
            complain(format!("after a kill: {error}"), &server);
        }
        let mut client = subject::connect(&server);
        let after = read(&mut client, left_out);
        let now = contents::now_ms(&mut client).expect("the server says");
        if let Some(difference) = before.difference(&after, now) {
            complain(difference, &server);
        }
        keys += before.len();
        round += 1;
    }
    println!(
        "{round} kills of {}: {keys} keys are as they were, over {checkpoints} checkpoints",
        server.program().name()
    );
}

/// Has all clients at work until they have sent enough; begins checkpoints meanwhile.
fn busy(server: &Server, prng: &mut Prng) {
    let specs = traffic::specs(crate::specs(), HABITS);
    let progress = Progress::of(ROUND_REQUESTS);
    std::thread::scope(|scope| {
        let progress = &progress;
        let clients: Vec<_> = traffic::roles(&specs, HABITS, prng.next_u64())
            .into_iter()
            .map(|mut traffic: Traffic<'_>| scope.spawn(move || traffic.play(server.address(), progress)))
            .collect();
        let seed = prng.next_u64();
        let rewriter = scope.spawn(move || begin_checkpoints(server, Prng::from_seed(seed), progress));
        let played: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
        progress.end();
        let begun = rewriter.join();
        // Said once all have ended, so that none waits for one that failed.
        for result in played {
            if let Err(reason) = result {
                println!("the server printed:\n{}", server.last_lines());
                std::panic::resume_unwind(reason);
            }
        }
        begun.expect("the server takes BGREWRITEAOF");
    });
}

fn begin_checkpoints(server: &Server, mut prng: Prng, progress: &Progress) {
    let mut client = subject::connect(server);
    loop {
        // By how much was sent and not by the clock, so that a fast server has its checkpoints amid the traffic as well.
        let at = progress.share() + prng.unit() * STEP_MAX;
        if at > LAST_BEGINNING {
            break;
        }
        progress.wait_for(at);
        // One that runs already, of the server's own, does as well.
        if client.call(&["BGREWRITEAOF"]).is_err() {
            break;
        }
    }
}

/// Waits until no checkpoint is being written.
fn end_checkpoint(server: &Server) {
    let mut client = subject::connect(server);
    wait_until("none is written", || crate::info(&mut client, "aof_rewrite_in_progress") == 0);
}

/// Exchanges databases without a rest, and has a checkpoint completed meanwhile; then kills the server.
fn exchange_beside_checkpoints(subject: &Subject) {
    let mut server = subject.start();
    subject::connect(&server).call(&["EVAL", BALLAST_OF_EACH, "0"]).expect("the server answers");
    for round in 0..EXCHANGED {
        let mut client = subject::connect(&server);
        let completed = crate::info(&mut client, "aof_rewrites");
        let is_over = AtomicBool::new(false);
        let exchanged = std::thread::scope(|scope| {
            let _ends = testkit::Ends(&is_over);
            let exchangers = ["1", "2"].map(|other| scope.spawn(|| exchange(&server, other, &is_over)));
            client.call(&["BGREWRITEAOF"]).expect("the server answers");
            let began = Instant::now();
            while crate::info(&mut client, "aof_rewrites") == completed && began.elapsed() < CHECKPOINT_MAX {
                std::thread::sleep(Duration::from_millis(5));
            }
            is_over.store(true, Ordering::Relaxed);
            exchangers.map(|exchanger| exchanger.join().expect("the server answers"))
        });
        assert!(crate::info(&mut client, "aof_rewrites") > completed, "{}", server.last_lines());
        let before = read(&mut client, LeftOut::default());
        server.kill();
        let mut client = subject::restart(&mut server);
        let after = read(&mut client, LeftOut::default());
        let now = contents::now_ms(&mut client).expect("the server says");
        if let Some(difference) = before.difference(&after, now) {
            panic!("round {round}:\n{difference}\n{}", server.last_lines());
        }
        println!("{} keys are as they were, over {exchanged:?} exchanges", before.len());
    }
}

/// Writes in two databases and exchanges them, until it is over; how often.
fn exchange(server: &Server, other: &str, is_over: &AtomicBool) -> u64 {
    let (mut client, mut count) = (subject::connect(server), 0);
    while !is_over.load(Ordering::Relaxed) {
        let (key, text) = (format!("x{}", count % 50), count.to_string());
        let requests: [&[&str]; 9] = [
            &["SWAPDB", "0", other],
            &["SET", &key, &text],
            &["MULTI"],
            &["INCR", "counter"],
            &["SWAPDB", other, "0"],
            &["RPUSH", "list", &text],
            &["SELECT", if count % 2 == 0 { other } else { "0" }],
            &["INCR", "counter"],
            &["EXEC"],
        ];
        for request in requests {
            client.call(request).expect("the server answers");
        }
        count += 1;
    }
    count
}

fn load_ballast(client: &mut Client) {
    // What a script left behind.
    client.call(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).expect("the server answers");
    // Where DEBUG is off there is none.
    client.call(&["DEBUG", "POPULATE", BALLAST]).expect("the server answers");
}

fn read(client: &mut Client, left_out: LeftOut) -> Contents {
    Contents::read_but(client, left_out).expect("the server answers")
}

#[test]
fn everything_in_durable_tarn_is_there_after_a_kill_beside_checkpoints() {
    rounds(&Subject::durable_tarn(), LeftOut::default(), Budget::from_env(1, ROUNDS));
}

#[test]
fn everything_in_capacity_tarn_is_there_after_a_kill_beside_checkpoints() {
    rounds(&Subject::capacity_tarn(), LeftOut::default(), Budget::from_env(1, ROUNDS));
}

#[test]
fn databases_that_are_exchanged_all_the_time_do_not_keep_durable_tarn_from_a_checkpoint() {
    exchange_beside_checkpoints(&Subject::durable_tarn());
}

#[test]
fn databases_that_are_exchanged_all_the_time_do_not_keep_capacity_tarn_from_a_checkpoint() {
    exchange_beside_checkpoints(&Subject::capacity_tarn());
}

#[test]
fn nothing_is_missed_in_a_server_that_keeps_its_word() {
    // Redis guesses anew how much a group has read when it replays its log.
    let left_out = LeftOut { names: &[b"entries-read", b"lag"], idle_consumers: false };
    rounds(&Subject::redis("always"), left_out, Budget::from_env(1, PEER_ROUNDS));
}
