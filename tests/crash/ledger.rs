//! The ledger: what clients sent and what was answered, and from that what must be there after a crash.
//!
//! Each client has a [`Ledger`] and keys of its own, so that the state of those keys follows from how many of its requests
//! were executed, in the order in which it sent them. [`Books`] are all ledgers together with what clients share and have
//! seen of each other. Nothing here talks to a server; `audit` asks one.
//!
//! What an audit proves of every client:
//! 1. What was answered is there, and of what was not a prefix: its keys are as they were after some number of requests, no
//!    smaller than the number of answers. A gap, or half of a transaction or script, is no such state. (A gap is, where the server
//!    may have refused what it did not answer.)
//! 2. Shared counters are the sum of what those prefixes added.
//! 3. What anybody has read of a counter that only grows is still there.

mod state;

use super::load::{REFUSED_MAX, Refusals};
pub use state::{COUNTERS, FIELDS, KEYS_PER_KIND, KINDS, LIST};
use state::{State, show};
use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;
use std::time::{SystemTime, UNIX_EPOCH};
use testkit::Client;
use wire::Value;

/// How the writes of a unit are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One request.
    Alone,
    /// MULTI, the requests, EXEC.
    Transaction,
    /// EVAL of a script that calls them.
    Script,
}

/// Writes that are there together or not at all.
#[derive(Clone, Debug)]
pub struct Unit {
    form: Form,
    writes: Vec<Vec<String>>,
    sent_ms: u64,
}

impl Unit {
    /// Writes as requests; their second words are their keys.
    pub fn new(form: Form, writes: Vec<Vec<String>>) -> Unit {
        Unit { form, writes, sent_ms: now_ms() }
    }

    /// What goes over the wire; the reply to the last of it is the unit's.
    pub fn requests(&self) -> Vec<Vec<String>> {
        match self.form {
            Form::Alone => self.writes.clone(),
            Form::Transaction => {
                let (begin, end) = (vec!["MULTI".to_owned()], vec!["EXEC".to_owned()]);
                [vec![begin], self.writes.clone(), vec![end]].concat()
            }
            Form::Script => vec![self.script()],
        }
    }

    fn script(&self) -> Vec<String> {
        let (mut calls, mut keys, mut args) = (Vec::new(), Vec::new(), Vec::new());
        for write in &self.writes {
            keys.push(write[1].clone());
            let mut call = format!("redis.call('{}', KEYS[{}]", write[0], keys.len());
            for word in &write[2..] {
                args.push(word.clone());
                call += &format!(", ARGV[{}]", args.len());
            }
            calls.push(call + ")");
        }
        let text = format!("return {{{}}}", calls.join(", "));
        [vec!["EVAL".to_owned(), text, keys.len().to_string()], keys, args].concat()
    }

    /// A line for a complaint.
    fn show(&self) -> String {
        let short = |word: &String| word.chars().take(20).collect::<String>();
        let words = |write: &Vec<String>| write.iter().map(short).collect::<Vec<_>>().join(" ");
        format!("  open: {:?}: {}\n", self.form, self.writes.iter().map(words).collect::<Vec<_>>().join("; "))
    }

    /// The reply of each write.
    fn replies(&self, reply: &Value) -> Vec<Value> {
        match reply {
            Value::Array(replies) if self.form != Form::Alone => replies.clone(),
            other => vec![other.clone()],
        }
    }
}

/// What came of a unit that was answered.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// It was executed.
    Done,
    /// The server refused it with this error: none of it was executed.
    Refused(String),
}

/// One client's requests and answers.
#[derive(Debug)]
pub struct Ledger {
    name: String,
    /// After all that was answered.
    state: State,
    /// Sent and not answered.
    open: VecDeque<Unit>,
    answered: u64,
}

impl Ledger {
    fn new(name: String) -> Ledger {
        Ledger { name, state: State::default(), open: VecDeque::new(), answered: 0 }
    }

    /// The first part of all of the client's keys.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// To be told before the first byte is sent.
    pub fn sent(&mut self, unit: Unit) {
        self.open.push_back(unit);
    }

    /// The last reply of the oldest unit that has none.
    ///
    /// # Panics
    /// If the server executed a part of the unit and refused another.
    pub fn answered(&mut self, reply: &Value) -> Answer {
        let unit = self.open.pop_front().expect("replies come to what was sent");
        if let Value::Error(text) = reply {
            return Answer::Refused(String::from_utf8_lossy(text).into_owned());
        }
        let replies = unit.replies(reply);
        let is_whole = replies.len() == unit.writes.len()
            && !replies.iter().any(|reply| matches!(reply, Value::Error(_)));
        assert!(is_whole, "{unit:?} was answered with {reply:?}");
        self.state.apply(&unit, Some(&replies));
        self.answered += 1;
        Answer::Done
    }

    /// Finds out which of the open units are in `found`, which the ledger then goes on from: so many of the first, or if some may have
    /// been refused, any of them in their order.
    fn settle(&mut self, found: State, refusals: Refusals) -> Result<Settled, String> {
        let ends = match refusals {
            Refusals::Never => self.ends_of_prefixes(),
            Refusals::DiskFull => self.ends_of_choices(),
        };
        let fits: Vec<&(u64, State)> = ends.iter().filter(|(_, state)| state.admits(&found)).collect();
        let Some(survived) = fits.iter().map(|(count, _)| *count).min() else {
            return Err(self.complain(&found));
        };
        let added = |counter: &&str| {
            let sums = fits.iter().map(|(_, state)| state.added.get(*counter).copied().unwrap_or(0));
            let (low, high) = (sums.clone().min().unwrap_or(0), sums.max().unwrap_or(0));
            ((*counter).to_owned(), low..=high)
        };
        let settled =
            Settled { open: self.open.len() as u64, survived, added: COUNTERS.iter().map(added).collect() };
        self.state = found;
        self.open.clear();
        Ok(settled)
    }

    /// What may be there if so many of the open units were executed, and no other.
    fn ends_of_prefixes(&self) -> Vec<(u64, State)> {
        let mut state = self.state.clone();
        let mut ends = vec![(0, state.clone())];
        for (at, unit) in self.open.iter().enumerate() {
            state.apply(unit, None);
            ends.push((at as u64 + 1, state.clone()));
        }
        ends
    }

    /// What may be there if any of the open units were refused: while a disk is full there may be room for one and not for the one
    /// before it.
    fn ends_of_choices(&self) -> Vec<(u64, State)> {
        assert!(self.open.len() as u64 <= REFUSED_MAX, "{}: too much may have been refused", self.name);
        let mut ends = vec![(0, self.state.clone())];
        for unit in &self.open {
            for (count, mut state) in ends.clone() {
                state.apply(unit, None);
                ends.push((count + 1, state));
            }
        }
        ends
    }

    fn complain(&self, found: &State) -> String {
        let ends = self.ends_of_prefixes();
        let (_, all) = ends.last().expect("one of them is the present state");
        format!(
            "{}: {} units answered, {} open, and what is there is after none of those:\n{}{}{}",
            self.name,
            self.answered,
            self.open.len(),
            self.open.iter().map(Unit::show).collect::<String>(),
            show("after all answered", &self.state, found),
            show("after all sent", all, found),
        )
    }
}

/// What a crash left of one client's open units.
struct Settled {
    open: u64,
    /// At least so many of them are there.
    survived: u64,
    /// What they and all answered since the last audit added to each shared counter.
    added: BTreeMap<String, RangeInclusive<i64>>,
}

/// What an audit counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Units answered since the beginning.
    pub answered: u64,
    /// Units that the last crash left open.
    pub open: u64,
    /// Those of them that are there.
    pub survived: u64,
    /// Counters of which a value had been seen.
    pub witnessed: u64,
}

/// All ledgers, and what is everybody's.
#[derive(Debug)]
pub struct Books {
    /// One for each client that writes.
    pub ledgers: Vec<Ledger>,
    /// The shared counters at the last audit.
    totals: BTreeMap<String, i64>,
    /// The largest value of a counter that somebody was shown.
    witnessed: BTreeMap<String, i64>,
}

impl Books {
    /// Empty ones, for so many clients and an empty server.
    pub fn new(clients: usize) -> Books {
        let ledgers = (0..clients).map(|number| Ledger::new(format!("c{number}"))).collect();
        Books { ledgers, totals: BTreeMap::new(), witnessed: BTreeMap::new() }
    }

    /// Counters that only grow: what is read of them must never go back.
    pub fn growing(&self) -> Vec<String> {
        let own = self.ledgers.iter().map(|ledger| format!("{}:seq", ledger.name));
        own.chain(COUNTERS.iter().map(|counter| (*counter).to_owned())).collect()
    }

    /// Empties the list that only grows otherwise. Nobody may write meanwhile.
    pub fn clear_list(&mut self, client: &mut Client) {
        client.call(&["DEL", LIST]).expect("a server that is up");
        for ledger in &mut self.ledgers {
            ledger.state.forget(LIST);
        }
    }

    /// Somebody was shown these values.
    pub fn witness(&mut self, seen: BTreeMap<String, i64>) {
        for (counter, value) in seen {
            let known = self.witnessed.entry(counter).or_default();
            *known = value.max(*known);
        }
    }

    /// Holds a server against the books, which then go on from what is there. Nobody may write meanwhile.
    ///
    /// # Errors
    /// What is lost, or there and must not be, in words.
    pub fn audit(&mut self, client: &mut Client) -> Result<Tally, String> {
        self.audit_beside(client, Refusals::Never)
    }

    /// The same, if units whose answers were lost may have been refused.
    ///
    /// # Errors
    /// As there.
    pub fn audit_beside(&mut self, client: &mut Client, refusals: Refusals) -> Result<Tally, String> {
        let mut tally = Tally { witnessed: self.witnessed.len() as u64, ..Tally::default() };
        let (mut complaints, mut added) = (Vec::new(), Vec::new());
        for ledger in &mut self.ledgers {
            let found = State::read(client, &ledger.name);
            match ledger.settle(found, refusals) {
                Ok(settled) => {
                    tally.open += settled.open;
                    tally.survived += settled.survived;
                    added.push(settled.added);
                }
                Err(complaint) => complaints.push(complaint),
            }
            tally.answered += ledger.answered;
        }
        if complaints.is_empty() {
            for counter in COUNTERS {
                complaints.extend(self.settle_counter(counter, state::number(client, counter), &added).err());
            }
        }
        for (counter, seen) in &self.witnessed {
            let found = state::number(client, counter);
            if found < *seen {
                complaints.push(format!("{counter}: somebody was shown {seen}, and it is {found} now"));
            }
        }
        if complaints.is_empty() { Ok(tally) } else { Err(complaints.join("\n")) }
    }

    fn settle_counter(
        &mut self,
        counter: &str,
        found: i64,
        added: &[BTreeMap<String, RangeInclusive<i64>>],
    ) -> Result<(), String> {
        let total = self.totals.entry(counter.to_owned()).or_default();
        let low = *total + added.iter().map(|added| added[counter].start()).sum::<i64>();
        let high = *total + added.iter().map(|added| added[counter].end()).sum::<i64>();
        *total = found;
        if (low..=high).contains(&found) {
            return Ok(());
        }
        Err(format!("{counter} is {found}; what is there of its clients makes {low} to {high}"))
    }
}

/// The moment, as a server's clock has it.
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970");
    since.as_millis() as u64
}

#[cfg(test)]
mod tests;
