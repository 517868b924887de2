//! Rounds: clients set, read and count while something happens to the cluster. Afterwards every count that was acknowledged is there, and Porcupine finds what
//! clients saw linearizable; and, so that this says something, it finds what is planted into the same history.

use super::cluster::{Cluster, REPLY_WITHIN, wait_until};
use super::guided::{Came, Guided};
use crate::porcupine::{Notes, Verdict, decide, judge};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use sys::Prng;
use testkit::Budget;
use topology::{ShardId, Topology};
use wire::{Value, key_slot};

/// Clients at work at a time.
const CLIENTS: u64 = 4;
/// A client rests so long between requests: a history is judged in a time that grows with its length.
const PACE: Duration = Duration::from_millis(1);
/// How long a client waits that does not wait long, as one whose counting shows when a shard serves.
const HASTE: Duration = Duration::from_millis(100);

/// Keys that a key's tag makes: what is set and read, what each client counts in, and what the pulse counts in.
fn register(tag: &str) -> String {
    format!("r{{{tag}}}")
}

fn count_of(client: u64, tag: &str) -> String {
    format!("count{client}{{{tag}}}")
}

/// Tags of slots that are meant.
pub fn tags(count: usize, is_meant: impl Fn(u16) -> bool) -> Vec<String> {
    let all = (0..).map(|number: u32| format!("t{number}"));
    all.filter(|tag| is_meant(key_slot(tag.as_bytes()))).take(count).collect()
}

/// The same, so many of each shard.
pub fn tags_of_each(count: usize, topology: &Topology) -> Vec<String> {
    let of = |shard: &ShardId| tags(count, |slot| topology.slots.owner(slot) == Some(*shard));
    topology.shards.keys().flat_map(of).collect()
}

/// Whether a shard acknowledges writes, by a client that writes one after another.
pub struct Pulse {
    tag: String,
    beats: Mutex<Beats>,
}

struct Beats {
    last: Instant,
    longest: Duration,
}

impl Pulse {
    /// That of the shard which has this tag.
    pub fn new(tag: &str) -> Pulse {
        let beats = Beats { last: Instant::now(), longest: Duration::ZERO };
        Pulse { tag: tag.to_owned(), beats: Mutex::new(beats) }
    }

    fn beat(&self) {
        let mut beats = self.beats.lock().expect("nobody panics with it");
        beats.longest = beats.longest.max(beats.last.elapsed());
        beats.last = Instant::now();
    }

    /// What was before counts no more, but when a write was acknowledged last.
    pub fn begin(&self) {
        self.beats.lock().expect("nobody panics with it").longest = Duration::ZERO;
    }

    /// The longest time without an acknowledged write since then, once there is another one.
    pub fn longest(&self) -> Duration {
        let asked = Instant::now();
        let mut longest = Duration::ZERO;
        wait_until("a write is acknowledged", || {
            let beats = self.beats.lock().expect("nobody panics with it");
            longest = beats.longest;
            beats.last > asked
        });
        longest
    }
}

/// What a client has counted: how often it was acknowledged, and how often nobody knows.
type Counted = BTreeMap<String, (u64, u64)>;

fn count(guided: &mut Guided, key: String, counted: &mut Counted) -> bool {
    let came = guided.call_noted(&key, &["INCR", &key]);
    let (done, unknown) = counted.entry(key).or_insert((0, 0));
    match came {
        Came::Reply(_) => *done += 1,
        Came::Refused => {}
        Came::Unknown => *unknown += 1,
    }
    matches!(came, Came::Reply(_))
}

/// What all clients of a round know.
struct Known<'r> {
    tags: &'r [String],
    is_over: AtomicBool,
    acknowledged: AtomicU64,
}

impl Known<'_> {
    /// One client at its work.
    fn work(&self, guided: &mut Guided, notes: &mut Notes<'_>, prng: &mut Prng) -> Counted {
        let (mut number, mut counted) = (0, Counted::new());
        while !self.is_over.load(Ordering::Relaxed) {
            number += 1;
            let tag = &self.tags[usize::try_from(prng.below(self.tags.len() as u64)).unwrap()];
            let is_acknowledged = if prng.one_in(3) {
                count(guided, count_of(notes.client, tag), &mut counted)
            } else {
                let value = format!("{}.{number}", notes.client);
                guided.set_or_get(&register(tag), &value, notes, prng)
            };
            self.acknowledged.fetch_add(u64::from(is_acknowledged), Ordering::Relaxed);
            std::thread::sleep(PACE);
        }
        counted
    }

    /// The client whose counting shows that a shard serves.
    fn feel(&self, guided: &mut Guided, pulse: &Pulse) -> Counted {
        let mut counted = Counted::new();
        while !self.is_over.load(Ordering::Relaxed) {
            if count(guided, count_of(CLIENTS, &pulse.tag), &mut counted) {
                pulse.beat();
                self.acknowledged.fetch_add(1, Ordering::Relaxed);
            }
            std::thread::sleep(PACE);
        }
        counted
    }
}

/// What clients noted down while something happened.
struct Round {
    /// What they did while it did.
    history: String,
    /// What they read when it was over.
    last: String,
    acknowledged: u64,
}

impl Round {
    fn run(
        cluster: &mut Cluster,
        prng: &mut Prng,
        (tags, pulses): (&[String], &[Pulse]),
        act: &mut impl FnMut(&mut Cluster, &mut Prng),
    ) -> Round {
        let began = Instant::now();
        clear(cluster, tags);
        let known = Known { tags, is_over: false.into(), acknowledged: 0.into() };
        let (mut history, mut counts) = (String::new(), Vec::new());
        std::thread::scope(|scope| {
            let known = &known;
            let clients = (0..CLIENTS).map(|client| {
                // Some wait for whoever stands still, some do not.
                let patience = if client % 2 == 0 { REPLY_WITHIN } else { HASTE };
                let mut guided = Guided::hasty(cluster, patience);
                let mut notes = Notes { began: &began, client, lines: String::new() };
                let mut prng = Prng::from_seed(prng.next_u64());
                scope.spawn(move || {
                    let counted = known.work(&mut guided, &mut notes, &mut prng);
                    (notes.lines, counted)
                })
            });
            let clients: Vec<_> = clients.collect();
            let felt = pulses.iter().map(|pulse| {
                let mut guided = Guided::hasty(cluster, HASTE);
                scope.spawn(move || (String::new(), known.feel(&mut guided, pulse)))
            });
            let felt: Vec<_> = felt.collect();
            let until = testkit::Ends(&known.is_over);
            act(cluster, prng);
            drop(until);
            for client in clients.into_iter().chain(felt) {
                let (lines, counted) = client.join().expect("a client ends");
                history.push_str(&lines);
                counts.push(counted);
            }
        });
        let mut notes = Notes { began: &began, client: CLIENTS, lines: String::new() };
        let mut guided = Guided::new(cluster);
        for tag in tags {
            let key = register(tag);
            let call = notes.now();
            let reply = guided.call(&key, &["GET", &key]).expect("the cluster is whole");
            notes.note("get", (&key, None), call, Some(&reply));
        }
        for (key, counted) in counts.into_iter().flatten() {
            has_counted(&mut guided, &key, counted);
        }
        Round { history, last: notes.lines, acknowledged: known.acknowledged.into_inner() }
    }

    fn verdict(&self) -> Verdict {
        judge(&[&*self.history, &self.last].concat())
    }

    /// The same, had a write that was acknowledged been lost, and had a value been shown after a later one: both have to be found. None: nothing could be
    /// planted, or it takes too long to say, since what is wrong has to be wrong in every order of what nobody knows the outcome of.
    fn is_told_apart(&self) -> Option<bool> {
        let stale = self.stale()?;
        let first = self.last.lines().next().expect("there are keys");
        let lost = self.last.replacen(first, &stale, 1);
        let faults = [[&*self.history, &lost, ""], [&*self.history, &self.last, &stale]];
        let verdicts: Option<Vec<Verdict>> = faults.iter().map(|lines| decide(&lines.concat())).collect();
        Some(verdicts?.iter().all(|verdict| *verdict == Verdict::Illegal))
    }

    /// The last read of the first key, had it shown what was acknowledged before an acknowledged write.
    fn stale(&self) -> Option<String> {
        let read = |line: &str| serde_json::from_str::<serde_json::Value>(line).expect("it was written so");
        let mut last = read(self.last.lines().next()?);
        let sets = self.history.lines().map(read);
        let sets = sets.filter(|line| line["op"] == "set" && line["key"] == last["key"]);
        let sets: Vec<_> = sets.filter(|line| line["return"].is_u64()).collect();
        let old = sets.iter().min_by_key(|line| line["return"].as_u64())?;
        let later = sets.iter().any(|line| line["call"].as_u64() > old["return"].as_u64());
        (later && old["value"] != last["value"]).then(|| {
            let end = last["return"].as_u64().expect("it was answered");
            last["value"] = old["value"].clone();
            (last["call"], last["return"]) = ((end + 1).into(), (end + 2).into());
            format!("{last}\n")
        })
    }
}

fn clear(cluster: &Cluster, tags: &[String]) {
    let mut clean = Guided::new(cluster);
    for tag in tags {
        let counts = (0..=CLIENTS).map(|client| count_of(client, tag));
        let keys: Vec<String> = counts.chain([register(tag)]).collect();
        let words: Vec<&str> = std::iter::once("DEL").chain(keys.iter().map(String::as_str)).collect();
        clean.call(&keys[0], &words).expect("the cluster is whole");
    }
}

fn has_counted(guided: &mut Guided, key: &str, (done, unknown): (u64, u64)) {
    let count = match guided.call(key, &["GET", key]).expect("the cluster is whole") {
        Value::Bulk(text) => String::from_utf8_lossy(&text).parse().expect("it is a count"),
        _ => 0,
    };
    assert!(
        (done..=done + unknown).contains(&count),
        "{key} is {count}, of {done} acknowledged and {unknown} perhaps"
    );
}

/// Rounds in which `act` happens once, until the budget is spent. Tags name the keys; those of the pulses are among them.
pub fn rounds(
    cluster: &mut Cluster,
    budget: Budget,
    (tags, pulses): (&[String], &[Pulse]),
    mut act: impl FnMut(&mut Cluster, &mut Prng),
) {
    let mut prng = Prng::from_seed(budget.seed);
    let (mut done, mut acknowledged, mut planted) = (0, 0, 0);
    while budget.allows(done) {
        let round = Round::run(cluster, &mut prng, (tags, pulses), &mut act);
        if round.verdict() == Verdict::Illegal {
            let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("illegal-cluster.jsonl");
            std::fs::write(&path, round.history + &round.last).expect("it can be written");
            println!("{}", cluster.last_lines());
            panic!("round {done} is not linearizable (TARN_SEED={}): {}", budget.seed, path.display());
        }
        if let Some(is_told_apart) = round.is_told_apart() {
            assert!(is_told_apart, "what was planted into round {done} is not found");
            planted += 1;
        }
        (done, acknowledged) = (done + 1, acknowledged + round.acknowledged);
        println!("round {done}: {acknowledged} writes were acknowledged so far");
    }
    println!(
        "{done} rounds (TARN_SEED={}): {acknowledged} writes were acknowledged, and none is lost; in {planted} a lost one and a stale read were planted and found",
        budget.seed
    );
}
