//! The capacity edition under everything at once, for long: all types, four times as much data as memory, expiry, checkpoints,
//! snapshots, cleaning, kills and restarts; every answer and every key against a model.
//!
//! Each client (`owner`) has keys of its own and a model of them (`model`, `content`), asks what `requests` makes up, in the
//! forms of `unit`, and compares what comes (`expect`). A `visitor` looks through everybody's keys. After each end of the server, and
//! at the end of all, every key is read back whole. What is there of a pipeline without answers must be a beginning of it.
//!
//! 1. A failure says which seed, which key, what was expected and what was there. The seed gives the same requests, but not the
//!    moments at which the server's threads met: what fails once need not fail again.
//! 2. No more is resident at any time than the ceiling promises.
//!
//!     TARN_SECONDS=1800 TARN_SEED=$RANDOM ./test --release --test tests -- --nocapture nothing_is_wrong_after_long

mod content;
mod expect;
mod model;
mod owner;
mod requests;
mod unit;
mod visitor;
mod watch;

use crate::imports;
use crate::subject::{self, Subject};
use owner::Owner;
use requests::now_ms;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use sys::Prng;
use testkit::{Budget, Server};
use visitor::{Crowd, Figures};
use watch::Watch;
use wire::Value;

/// Pipelines of all clients together, without a budget.
const STEPS: u64 = 250;
/// From this length on the data and the ceiling are those of a long run, and cleaning must have happened.
const LONG_SECONDS: u64 = 60;
/// The ceiling of a long run.
const CEILING_BYTES: u64 = 48 << 20;
/// Bytes of data for each byte of it.
const DATA_PER_CEILING: u64 = 4;
/// The ceiling of a short run, and its data.
const SHORT_CEILING_BYTES: u64 = 20 << 20;
const SHORT_DATA_BYTES: u64 = 20 << 20;
/// Bytes of a key with its value, on average.
const BYTES_PER_KEY: u64 = 720;
/// What the ceiling says of resident memory beside itself: the program, and what the allocator holds back.
const RESIDENT_SLACK_BYTES: u64 = 64 << 20;
/// The number of keys must come to what the models say within this time, for a loaded machine.
const COUNT_SECONDS_MAX: u64 = 180;

/// How a stretch of traffic ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// SIGKILL.
    Kill,
    /// SIGKILL, and so again for the start that follows.
    KillTwice,
    /// SHUTDOWN, in the middle of the traffic.
    Stop,
    /// The clients stop, and the server goes on.
    Rest,
}

/// The stretches: up to which share of the budget they go, and how they end.
const STRETCHES: [(f64, Ending); 5] = [
    (0.25, Ending::Kill),
    (0.4, Ending::Stop),
    (0.5, Ending::KillTwice),
    (0.75, Ending::Kill),
    (1.0, Ending::Rest),
];

const RUNNING: u8 = 0;
const STOPPING: u8 = 1;
/// The server is being ended: connections may break.
const ENDING: u8 = 2;
/// Somebody panicked.
const FAILED: u8 = 3;

/// Has everybody stop when its thread panics.
struct Alarm<'a>(&'a AtomicU8);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(FAILED, Ordering::SeqCst);
        }
    }
}

struct Soak {
    budget: Budget,
    prng: Prng,
    ceiling: u64,
    crowd: Crowd,
    server: Server,
    owners: Vec<Owner>,
    watch: Watch,
    steps: AtomicU64,
    figures: Figures,
}

impl Soak {
    fn new(budget: Budget) -> Soak {
        let seconds = budget.length().map_or(0, |length| length.as_secs());
        let (ceiling, data, clients) = match seconds {
            0..LONG_SECONDS => (SHORT_CEILING_BYTES, SHORT_DATA_BYTES, 4),
            _ => (CEILING_BYTES, CEILING_BYTES * DATA_PER_CEILING, 6),
        };
        let keys = (data / BYTES_PER_KEY) as usize / clients;
        let mut prng = Prng::from_seed(budget.seed);
        let bytes_max = ceiling as usize / 64;
        let owner = |number| Owner::new(number, keys, bytes_max, Prng::from_seed(prng.next_u64()));
        let owners = (0..clients).map(owner).collect();
        let (server, watch) = (Subject::hurried_capacity_tarn_below(ceiling).start(), Watch::new());
        watch.look_at(server.pid());
        let crowd = Crowd { clients, keys };
        Soak {
            budget,
            prng,
            ceiling,
            crowd,
            server,
            owners,
            watch,
            steps: AtomicU64::new(0),
            figures: Figures::default(),
        }
    }

    /// Has every client do something over a connection to a server that has read its files.
    fn each(&mut self, task: impl Fn(&mut Owner, &Server) -> std::io::Result<()> + Sync) {
        let (server, task) = (&self.server, &task);
        std::thread::scope(|scope| {
            for owner in &mut self.owners {
                scope.spawn(move || task(owner, server).expect("nobody ends the server"));
            }
        });
    }

    /// Traffic up to that share of the budget, and its ending.
    fn stretch(&mut self, share: f64, ending: Ending) {
        let (phase, figures) = (&AtomicU8::new(RUNNING), Mutex::new(Figures::default()));
        let (address, crowd, steps) = (self.server.address(), self.crowd, &self.steps);
        let goes_on = move || [RUNNING, ENDING].contains(&phase.load(Ordering::SeqCst));
        let is_ending = move || phase.load(Ordering::SeqCst) == ENDING;
        let mut prng = Prng::from_seed(self.prng.next_u64());
        std::thread::scope(|scope| {
            for owner in &mut self.owners {
                scope.spawn(move || {
                    let _alarm = Alarm(phase);
                    let done = owner.work(address, || {
                        steps.fetch_add(1, Ordering::Relaxed);
                        goes_on()
                    });
                    assert!(done.is_ok() || is_ending(), "a connection broke: {done:?}");
                });
            }
            let noted = &figures;
            scope.spawn(move || {
                let _alarm = Alarm(phase);
                let note = |figures| *noted.lock().expect("nobody panics with it") = figures;
                let done = visitor::visit(address, crowd, &mut prng, goes_on, note);
                assert!(done.is_ok() || is_ending(), "the visitor's connection broke: {done:?}");
            });
            while self.budget.spent(steps.load(Ordering::Relaxed)) < share
                && phase.load(Ordering::SeqCst) == RUNNING
            {
                // The time is what this is about; there is no event to wait for.
                std::thread::sleep(Duration::from_millis(20));
            }
            if phase.load(Ordering::SeqCst) == FAILED {
                println!("the server, {:?}, printed:\n{}", self.server.ended(), self.server.last_lines());
                return;
            }
            phase.store(if ending == Ending::Rest { STOPPING } else { ENDING }, Ordering::SeqCst);
            match ending {
                Ending::Rest => {}
                Ending::Stop => {
                    let client = subject::connect(&self.server);
                    subject::stop(&mut self.server, client);
                }
                Ending::Kill | Ending::KillTwice => self.server.kill(),
            }
        });
        let figures = figures.into_inner().expect("nobody panicked with it");
        self.figures.add(figures);
    }

    /// Starts the server again if it has ended, and holds it against the models, key by key.
    fn audit(&mut self, ending: Ending) {
        let began = Instant::now();
        if ending == Ending::KillTwice {
            let moment = Duration::from_millis(self.prng.below(400));
            self.server.start_and_kill(moment).expect("the program can be run");
        }
        if ending != Ending::Rest {
            let restarted = self.server.restart();
            restarted.unwrap_or_else(|error| panic!("after {ending:?}: {error}"));
            self.watch.look_at(self.server.pid());
            drop(subject::connect(&self.server));
        }
        let loaded = began.elapsed();
        self.each(|owner, server| owner.settle(&mut subject::connect(server)));
        self.each(|owner, server| owner.check(&mut subject::connect(server)));
        self.assert_count();
        self.assert_resident();
        println!(
            "{ending:?}: back after {} ms, all keys read after {} ms; {} MB live in the store",
            loaded.as_millis(),
            began.elapsed().as_millis(),
            self.figures.live_bytes >> 20
        );
    }

    /// DBSIZE is the sum of what the models have. It may come to that a little later: keys that have expired are found by and by.
    fn assert_count(&self) {
        let mut client = subject::connect(&self.server);
        let began = Instant::now();
        loop {
            let sum = |now| {
                let all = self.owners.iter().map(|owner| owner.living(now));
                all.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
            };
            let possible = sum(now_ms()).1;
            let reply = client.call(&["DBSIZE"]).expect("the server answers");
            let sure = sum(now_ms()).0;
            match reply {
                Value::Int(count) if (sure..=possible).contains(&count) => return,
                _ => {}
            }
            let seconds = began.elapsed().as_secs();
            assert!(
                seconds < COUNT_SECONDS_MAX,
                "DBSIZE is {reply:?}, and there are {sure} to {possible} keys"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn assert_resident(&self) {
        let (most, limit) = (self.watch.most_bytes(), self.ceiling / 20 * 21 + RESIDENT_SLACK_BYTES);
        assert!(most <= limit, "{most} bytes were resident, and {limit} are promised");
    }

    fn run(mut self) {
        self.each(|owner, server| owner.fill(server.address()));
        for (share, ending) in STRETCHES {
            self.stretch(share, ending);
            self.audit(ending);
        }
        let mut client = subject::connect(&self.server);
        self.figures.add(Figures::ask(&mut client).expect("the server answers"));
        subject::stop(&mut self.server, client);
        let checked = imports::run("check", &[&self.server.dir().to_string_lossy()]);
        let text = String::from_utf8_lossy(&checked.stdout).into_owned();
        assert!(checked.status.success() && text.contains("are intact."), "tarn check: {text}");
        self.summarize();
    }

    fn summarize(&self) {
        let sum = |of: fn(&Owner) -> u64| self.owners.iter().map(of).sum::<u64>();
        let figures = self.figures;
        println!(
            "{} requests and {} keys read back over {} kills and a stop, nothing wrong, nothing missing; {} objects spilled, {} cold \
             reads, {} segments cleaned, {} checkpoints, {} MB resident at most below a ceiling of {} MB with {} MB in the store",
            sum(|owner| owner.requests),
            sum(|owner| owner.checked),
            STRETCHES.iter().filter(|(_, ending)| matches!(ending, Ending::Kill | Ending::KillTwice)).count(),
            figures.spilled,
            figures.cold_reads,
            figures.cleaned,
            figures.checkpoints,
            self.watch.most_bytes() >> 20,
            self.ceiling >> 20,
            figures.live_bytes >> 20,
        );
        assert!(figures.spilled > 0 && figures.cold_reads > 0, "everything stayed in memory");
        if self.budget.length().is_some_and(|length| length.as_secs() >= LONG_SECONDS) {
            assert!(
                figures.cleaned > 0 && figures.checkpoints > 0,
                "nothing was cleaned, or no checkpoint written"
            );
        }
    }
}

#[test]
fn nothing_is_wrong_after_long_traffic_of_all_kinds_over_kills() {
    Soak::new(Budget::from_env(1, STEPS)).run();
}
