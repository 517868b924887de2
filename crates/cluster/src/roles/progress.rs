//! How moves go, shown until they are over: one line that is written again and again on a terminal, a line for each step elsewhere. Who stops looking stops nothing.

use super::operator::{is_of_now, is_read};
use crate::asking::Watching;
use crate::screen::Screen;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How often it is asked.
const LOOKING: Duration = Duration::from_millis(300);
/// How long no config server may answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long one answer may take.
const ANSWERING: Duration = Duration::from_secs(10);

/// The moves that an answer names (`moves 3 4`), and None for an answer that says something else.
pub fn named(answer: &str) -> Option<BTreeSet<u64>> {
    let ids = answer.strip_prefix("moves")?;
    ids.split_whitespace().map(|id| id.parse().ok()).collect()
}

/// Shows moves until none of them goes on.
///
/// # Errors
/// One has failed, or nobody who knows it says any more how they are.
pub fn show(ids: BTreeSet<u64>, mut watching: Watching) -> Result<(), String> {
    let mut seen = Seen { ids, ..Seen::default() };
    let mut screen = Screen::new();
    let mut silent_since: Option<Instant> = None;
    loop {
        // One that is cut off from the store may not have heard of them yet, or not that they are over.
        let told = watching.ask(&["CLUSTER", "STATUS", "JSON"], ANSWERING, is_of_now);
        let told = told.and_then(|text| match is_read(&text) {
            true => Ok(text),
            false => Err("no config server has news of the store of decisions".to_owned()),
        });
        match told {
            Ok(text) if seen.look(&serde_json::from_str(&text).unwrap_or_default()) => {
                silent_since = None;
                screen.show(&seen.line(), &seen.step());
                if seen.is_over() {
                    screen.end();
                    return seen.outcome();
                }
            }
            told => {
                let why = told.err().unwrap_or_else(|| "the store of decisions has gone back".to_owned());
                if silent_since.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                    screen.end();
                    return Err(format!("{why}; the moves go on: `tarn cluster moves` shows them"));
                }
            }
        }
        std::thread::sleep(LOOKING);
    }
}

/// What is known of the moves that are looked at.
#[derive(Default)]
struct Seen {
    ids: BTreeSet<u64>,
    /// Of the latest status: another config server may not have come so far yet.
    revision: u64,
    /// As each was when it was seen last.
    moves: BTreeMap<u64, Value>,
    /// Those that are not there any more.
    gone: BTreeSet<u64>,
    /// Gone, and the slots are not where they were to be.
    given_up: BTreeSet<u64>,
    /// Gone before they were seen, and nobody says how.
    unknown: BTreeSet<u64>,
}

impl Seen {
    /// Takes a status; false: it says nothing of moves, or is older than another that was seen, or than they are.
    fn look(&mut self, status: &Value) -> bool {
        let Some(listed) = status["moves"].as_array() else { return false };
        let revision = status["revision"].as_u64().unwrap_or(self.revision);
        if revision < self.revision {
            return false;
        }
        let last = status["last_move"].as_u64();
        if last.is_some_and(|last| self.ids.iter().any(|id| *id > last)) {
            return false;
        }
        self.revision = revision;
        let over = status["moves_over"].as_array().into_iter().flatten();
        let over: BTreeMap<u64, bool> =
            over.filter_map(|one| Some((one["move"].as_u64()?, one["is_done"].as_bool()?))).collect();
        let there: BTreeMap<u64, &Value> =
            listed.iter().filter_map(|one| Some((one["move"].as_u64()?, one))).collect();
        for id in &self.ids {
            match there.get(id) {
                Some(one) => drop(self.moves.insert(*id, (*one).clone())),
                None if self.gone.insert(*id) => {
                    let seen = self.moves.get(id).map(|one| has_come(status, one));
                    match over.get(id).copied().or(seen) {
                        Some(true) => {}
                        Some(false) => drop(self.given_up.insert(*id)),
                        None => drop(self.unknown.insert(*id)),
                    }
                }
                None => {}
            }
        }
        true
    }

    fn failed(&self) -> impl Iterator<Item = (&u64, &Value)> {
        let there = self.moves.iter().filter(|(id, _)| !self.gone.contains(id));
        there.filter(|(_, one)| one["stage"].as_str() == Some("failed"))
    }

    fn is_over(&self) -> bool {
        self.gone.len() + self.failed().count() == self.ids.len()
    }

    /// How all stands.
    fn line(&self) -> String {
        let mut line = format!("{} of {} moves are over", self.gone.len(), self.ids.len());
        for (id, one) in self.moves.iter().filter(|(id, _)| !self.gone.contains(id)) {
            let stage = one["stage"].as_str().unwrap_or("-");
            if stage == "waiting" {
                continue;
            }
            line += &format!("; move {id} (shard {} to {}): {stage}", one["from"], one["to"]);
            let figures = &one["figures"];
            if let (Some(keys), Some(of)) = (figures["keys"].as_u64(), figures["of"].as_u64()) {
                line += &format!(" {keys} of {of} keys");
            }
            if let Some(bytes) = figures["bytes"].as_u64() {
                line += &format!(", {} MiB", bytes >> 20);
            }
            if one["attempt"].as_u64().is_some_and(|attempt| attempt > 1) {
                line += &format!(", attempt {}", one["attempt"]);
            }
        }
        line + &self.waits()
    }

    /// What those that wait wait for, if nothing goes on: most wait for one another.
    fn waits(&self) -> String {
        let there = || self.moves.iter().filter(|(id, _)| !self.gone.contains(id));
        if there().any(|(_, one)| matches!(one["stage"].as_str(), Some("copying" | "switching"))) {
            return String::new();
        }
        let mut told = BTreeMap::new();
        for (id, one) in there() {
            let whys = ["waits_for", "last_failure"].map(|name| one[name].as_str());
            let whys: Vec<&str> = whys.into_iter().flatten().collect();
            if !whys.is_empty() {
                told.entry(whys.join("; ")).or_insert(id);
            }
        }
        told.iter().map(|(why, id)| format!("; move {id} waits: {why}")).collect()
    }

    /// What changes with each step, and not with each key.
    fn step(&self) -> String {
        let stages = self.moves.iter().map(|(id, one)| format!("{id} {} {}", one["stage"], one["attempt"]));
        format!("{} {}{}", self.gone.len(), stages.collect::<Vec<_>>().join(" "), self.waits())
    }

    fn outcome(&self) -> Result<(), String> {
        let failed = self.failed().map(|(id, one)| {
            format!("move {id} has failed: {}; nothing has changed", one["reason"].as_str().unwrap_or("-"))
        });
        let given_up = self.given_up.iter().map(|id| format!("move {id} was given up; nothing has changed"));
        let unknown = self.unknown.iter().map(|id| {
            format!("move {id} was given up or is over, and nobody knows which: `tarn cluster status` shows whose the slots are")
        });
        let sentences: Vec<String> = failed.chain(given_up).chain(unknown).collect();
        if sentences.is_empty() { Ok(()) } else { Err(sentences.join("; ")) }
    }
}

/// Whether all slots of a move are the shard's that was to have them.
fn has_come(status: &Value, one: &Value) -> bool {
    let shards = status["shards"].as_array().into_iter().flatten();
    let owned: Vec<(u64, u64)> = shards
        .filter(|shard| shard["shard"] == one["to"])
        .flat_map(|shard| ranges(&shard["slots"]))
        .collect();
    ranges(&one["slots"]).all(|(first, last)| owned.iter().any(|(from, to)| *from <= first && last <= *to))
}

fn ranges(slots: &Value) -> impl Iterator<Item = (u64, u64)> {
    slots.as_array().into_iter().flatten().filter_map(|range| Some((range[0].as_u64()?, range[1].as_u64()?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn one(id: u64, stage: &str) -> Value {
        json!({
            "move": id, "from": 0, "to": 2, "attempt": 1, "stage": stage, "reason": "no memory is left",
            "slots": [[5, 9]], "figures": { "keys": 3, "of": 10, "bytes": 1 << 20 },
        })
    }

    fn status(moves: &[Value], slots: &Value) -> Value {
        json!({ "moves": moves, "shards": [{ "shard": 2, "slots": slots }] })
    }

    #[test]
    fn an_answer_names_moves() {
        assert_eq!(named("moves 3 4"), Some([3, 4].into()));
        assert_eq!(named("moves"), Some(BTreeSet::new()));
        assert_eq!(named("5 slots from shard 0 to shard 1: 5-9"), None);
    }

    #[test]
    fn moves_are_shown_until_they_are_over() {
        let mut seen = Seen { ids: [1, 2].into(), ..Seen::default() };
        seen.look(&status(&[one(1, "copying"), one(2, "waiting")], &json!([])));
        assert_eq!(seen.line(), "0 of 2 moves are over; move 1 (shard 0 to 2): copying 3 of 10 keys, 1 MiB");
        assert!(!seen.is_over());
        // It goes on; where nothing does it is told why.
        let mut waits = one(2, "waiting");
        waits["waits_for"] = json!("shard 2 has no master that is heard of");
        let mut still = Seen { ids: [2].into(), ..Seen::default() };
        still.look(&status(&[waits.clone()], &json!([])));
        let why = "; move 2 waits: shard 2 has no master that is heard of";
        assert_eq!(still.line(), format!("0 of 1 moves are over{why}"));
        assert!(still.step().ends_with(why));
        seen.look(&status(&[one(1, "copying"), waits], &json!([])));
        assert!(!seen.line().contains("waits"));
        seen.look(&json!(null));
        seen.look(&status(&[one(2, "copying")], &json!([[0, 100]])));
        assert!(!seen.is_over());
        seen.look(&status(&[one(2, "failed")], &json!([[0, 100]])));
        assert!(seen.is_over());
        assert_eq!(
            seen.outcome(),
            Err("move 2 has failed: no memory is left; nothing has changed".to_owned())
        );
        // One that is behind says of moves that are over that they are not there yet.
        let of = |revision: u64, moves: &[Value]| {
            let mut status = status(moves, &json!([]));
            status["revision"] = json!(revision);
            status
        };
        let mut seen = Seen { ids: [1].into(), ..Seen::default() };
        seen.look(&of(7, &[one(1, "copying")]));
        seen.look(&of(6, &[]));
        assert!(!seen.is_over());
        seen.look(&of(8, &[]));
        assert!(seen.is_over());
        for (slots, is_well) in [(json!([[5, 9]]), true), (json!([[5, 8]]), false)] {
            let mut seen = Seen { ids: [1].into(), ..Seen::default() };
            seen.look(&status(&[one(1, "switching")], &json!([])));
            seen.look(&status(&[], &slots));
            assert!(seen.is_over());
            assert_eq!(seen.outcome().is_ok(), is_well, "{slots}");
        }
    }

    #[test]
    fn a_move_that_was_never_seen_is_not_taken_for_done() {
        let of = |last: u64, over: Value| {
            let mut status = status(&[], &json!([]));
            (status["last_move"], status["moves_over"]) = (json!(last), over);
            status
        };
        let begun = || Seen { ids: [4, 5].into(), ..Seen::default() };
        // Whoever says that has not heard of them yet.
        let mut seen = begun();
        assert!(!seen.look(&of(4, json!([]))) && !seen.is_over());
        let over = |is_done: bool| {
            let one = |id: u64, is_done: bool| json!({ "move": id, "is_done": is_done });
            json!([one(3, false), one(4, true), one(5, is_done)])
        };
        assert!(seen.look(&of(5, over(true))) && seen.is_over());
        assert_eq!(seen.outcome(), Ok(()));
        let mut seen = begun();
        assert!(seen.look(&of(7, over(false))) && seen.is_over());
        assert_eq!(seen.outcome(), Err("move 5 was given up; nothing has changed".to_owned()));
        // The config server has begun since.
        let mut seen = begun();
        assert!(seen.look(&of(7, json!([]))) && seen.is_over());
        assert!(seen.outcome().is_err_and(|why| why.contains("move 4 was given up or is over")));
    }
}
