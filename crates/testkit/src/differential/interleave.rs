//! Plays schedules: several clients per server take turns; some of them wait for keys,
//! others serve them, unblock them, publish to them or leave. After every turn each
//! client must have been sent the same, and the same clients must be waiting.
//!
//! Nothing sleeps. A real server has one thread, so two answered PINGs on a connection of their own prove that it
//! has seen all that was sent before: a round of its loop lies between them. The server under test may have several
//! threads: it is given time to send as much as Redis has sent, and until the same clients wait; whatever it sends
//! beyond that is found at the end of the next turn at the latest.
//!
//! Invariants:
//! 1. A turn is one client's, and the next one begins when every client is answered or waits.
//! 2. Where the real servers part, as far as a rule allows, a schedule ends.
//! 3. In a word, `@2` stands for the number that the server knows the third client by.

use super::judge::{self, Queue, Verdict};
use super::rules;
use super::{Answer, Difference, Differential, Node, encode, keyspace, records};
use crate::client::Client;
use crate::generate::schedule::{SEATS, is_private, leaves, waits_shortly};
use crate::generate::{Request, Step, words};
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::time::{Duration, Instant};
use wire::Value;

/// How long a server may take for one turn before it counts as not answering: each try of shrinking a lost wake-up takes so long.
const TURN_SECONDS_MAX: u64 = 3;
/// So many times a server of several threads is looked at where there is no telling how much it will send.
const LOOKS: usize = 50;
/// What stands for a connection that the server closed.
const CLOSED: &[u8] = b"(closed)";

/// One client of one server.
#[derive(Debug)]
struct Seat {
    client: Client,
    /// The server's number for it.
    id: i64,
}

/// One server's clients.
#[derive(Debug)]
struct Stage {
    control: Client,
    seats: Vec<Option<Seat>>,
    /// Sent to each since the turn began.
    sent: Vec<Vec<Vec<u8>>>,
}

/// How a turn ended at a server.
#[derive(Debug, PartialEq, Eq)]
struct End {
    /// Who waits.
    waiting: BTreeSet<usize>,
    /// How much each was sent.
    sent: Vec<usize>,
}

/// What the tester remembers of a client, the same for all servers.
#[derive(Debug, Default)]
struct Record {
    /// Requests that are not answered.
    unanswered: VecDeque<Request>,
    queue: Queue,
}

impl Differential {
    /// Plays one schedule on empty servers.
    pub(super) fn play_schedule(&mut self, steps: &[Step]) -> io::Result<Option<Difference>> {
        let mut stages = self.nodes.iter().map(Stage::new).collect::<io::Result<Vec<Stage>>>()?;
        let mut records: Vec<Record> = (0..SEATS).map(|_| Record::default()).collect();
        let is_timed = steps.iter().any(|step| waits_shortly(&step.request));
        let mut position = 0;
        let mut waiting = BTreeSet::new();
        for turn in steps.chunk_by(|a, b| a.batch == b.batch && a.connection == b.connection) {
            position += turn.len();
            let is_busy = waiting.contains(&turn[0].connection);
            if is_busy && !turn.iter().all(|step| is_private(&step.request) || leaves(&step.request)) {
                continue;
            }
            let record = &mut records[turn[0].connection];
            if leaves(&turn[0].request) {
                *record = Record::default();
            } else {
                record.unanswered.extend(turn.iter().map(|step| step.request.clone()));
            }
            for (node, stage) in self.nodes.iter().zip(&mut stages) {
                stage.act(node, turn)?;
            }
            let owes: Vec<bool> =
                records.iter().map(|record| is_timed && !record.unanswered.is_empty()).collect();
            let (subject, oracles) = stages.split_at_mut(1);
            for stage in oracles.iter_mut() {
                stage.settle(&owes)?;
            }
            let mut ends = Vec::new();
            for stage in oracles.iter_mut() {
                ends.push(End { waiting: stage.waiting()?, sent: stage.sent.iter().map(Vec::len).collect() });
            }
            let have_parted = ends.iter().any(|end| *end != ends[0])
                || oracles.iter().any(|stage| stage.sent != oracles[0].sent);
            let is_settled = subject[0].follow(&ends)?;
            waiting.clone_from(&ends[0].waiting);
            if let Some(found) = self.compare_turn(turn, &mut stages, &mut records)? {
                return Ok(Some(Difference { position: Some(position - 1), ..found }));
            }
            if !is_settled {
                let mut answers = Vec::new();
                for stage in &mut stages {
                    answers.push(Some(format!("waiting: {:?}", stage.waiting()?).into_bytes()));
                }
                let found = self.difference(&turn[0].request, answers, Verdict::Different)?;
                return Ok(Some(Difference { position: Some(position - 1), ..found }));
            }
            // A rule has said which of them is right; they need not hold the same any more.
            if have_parted {
                return Ok(None);
            }
        }
        if let Some(found) = records::compare(self, steps)? {
            return Ok(Some(found));
        }
        drop(stages);
        keyspace::compare(self)
    }

    /// Compares what each client was sent in a turn.
    fn compare_turn(
        &mut self,
        turn: &[Step],
        stages: &mut [Stage],
        records: &mut [Record],
    ) -> io::Result<Option<Difference>> {
        for (seat, record) in records.iter_mut().enumerate() {
            let mut sent: Vec<Vec<Vec<u8>>> =
                stages.iter_mut().map(|stage| std::mem::take(&mut stage.sent[seat])).collect();
            if let Some(alter) = self.nodes[0].alter {
                sent[0].iter_mut().for_each(|reply| alter(&turn[0].request, reply));
            }
            follow_valkey(turn, &mut sent);
            let count = sent.iter().map(Vec::len).max().unwrap_or(0);
            for at in 0..count {
                let answers: Vec<Answer> = sent.iter().map(|sent| sent.get(at).cloned()).collect();
                let is_message = answers.iter().flatten().any(|reply| is_message(reply));
                let request = if is_message { None } else { record.unanswered.pop_front() };
                let request = request.unwrap_or_else(|| turn[0].request.clone());
                self.have_parted |= !judge::have_same_errors(&answers[1..]);
                let verdict = if is_message {
                    of_any(turn, &answers)
                } else {
                    judge::judge(&request, &answers, &mut record.queue)
                };
                if verdict != Verdict::Same {
                    return self.difference(&request, answers, verdict).map(Some);
                }
                if answers[0].as_deref() == Some(CLOSED) {
                    *record = Record::default();
                }
                // Who still waits at one of the real servers, as a rule allows, is not told there what it asked since.
                if answers[1..].iter().any(Option::is_none) {
                    break;
                }
            }
        }
        Ok(None)
    }
}

/// Takes what Valkey sent for what Redis sent too, if they differ only in messages that a rule says are as Valkey has them. The first is the
/// server under test.
fn follow_valkey(turn: &[Step], sent: &mut [Vec<Vec<u8>>]) {
    let [_, redis, valkey] = sent else { return };
    let is_excused = |reply: &Vec<u8>| {
        is_message(reply) && turn.iter().any(|step| rules::is_as_valkey_has_it(&step.request, reply))
    };
    let others = |sent: &[Vec<u8>]| -> Vec<Vec<u8>> {
        sent.iter().filter(|reply| !is_excused(reply)).cloned().collect()
    };
    if redis != valkey && others(redis) == others(valkey) {
        redis.clone_from(valkey);
    }
}

/// What to say of messages, which any request of a turn may have caused.
fn of_any(turn: &[Step], answers: &[Answer]) -> Verdict {
    if answers.iter().all(|answer| *answer == answers[0]) {
        return Verdict::Same;
    }
    let mut verdicts = turn.iter().map(|step| judge::judge(&step.request, answers, &mut Queue::default()));
    let first = verdicts.next().expect("a turn has requests");
    if verdicts.any(|verdict| verdict == Verdict::Same) { Verdict::Same } else { first }
}

/// Whether something that was sent answers no request, or is one of several answers: messages, and the confirmations of
/// subscriptions.
fn is_message(reply: &[u8]) -> bool {
    const BEGINNINGS: &[&[u8]] = &[
        b">",
        b"*3\r\n$7\r\nmessage\r\n",
        b"*3\r\n$8\r\nsmessage\r\n",
        b"*4\r\n$8\r\npmessage\r\n",
        b"*3\r\n$9\r\nsubscribe\r\n",
        b"*3\r\n$10\r\npsubscribe\r\n",
        b"*3\r\n$10\r\nssubscribe\r\n",
        b"*3\r\n$11\r\nunsubscribe\r\n",
        b"*3\r\n$12\r\npunsubscribe\r\n",
        b"*3\r\n$12\r\nsunsubscribe\r\n",
    ];
    BEGINNINGS.iter().any(|beginning| reply.starts_with(beginning))
}

impl Stage {
    fn new(node: &Node) -> io::Result<Stage> {
        let seats = (0..SEATS).map(|_| None).collect();
        Ok(Stage { control: node.server.connect()?, seats, sent: vec![Vec::new(); SEATS] })
    }

    /// Sends a turn's requests in one write, or leaves.
    fn act(&mut self, node: &Node, turn: &[Step]) -> io::Result<()> {
        let at = turn[0].connection;
        if leaves(&turn[0].request) {
            if let Some(seat) = self.seats[at].take() {
                drop(seat.client);
                self.await_gone(seat.id)?;
            }
            return Ok(());
        }
        if self.seats[at].is_none() {
            let mut client = node.server.connect()?;
            let Value::Int(id) = client.call(&["CLIENT", "ID"])? else {
                return Err(io::Error::other("CLIENT ID has no number"));
            };
            self.seats[at] = Some(Seat { client, id });
        }
        let mut bytes = Vec::new();
        for step in turn {
            let request: Request = step.request.iter().map(|word| self.resolve(word)).collect();
            encode(&request, node.twist, &mut bytes);
        }
        if let Some(seat) = &mut self.seats[at] {
            // A server that closed shows by closing.
            let _ = seat.client.send(&bytes);
        }
        Ok(())
    }

    fn resolve(&self, word: &[u8]) -> Vec<u8> {
        let [b'@', digit @ b'0'..=b'9'] = word else { return word.to_vec() };
        let seat = self.seats.get(usize::from(digit - b'0')).and_then(Option::as_ref);
        seat.map_or(0, |seat| seat.id).to_string().into_bytes()
    }

    /// Waits until the server, which has one thread, has done all there is to do, and those who owe an answer for
    /// certain have given it.
    fn settle(&mut self, owes: &[bool]) -> io::Result<()> {
        let deadline = Instant::now() + Duration::from_secs(TURN_SECONDS_MAX);
        let mut quiet = 0;
        while quiet < 2 && Instant::now() < deadline {
            self.control.call(&["PING"])?;
            let arrived = self.collect()?;
            quiet = if arrived || self.any_missing(owes)? { 0 } else { quiet + 1 };
        }
        Ok(())
    }

    /// Whether somebody's wait has an end that has not come.
    fn any_missing(&mut self, owes: &[bool]) -> io::Result<bool> {
        Ok(owes.iter().any(|owes| *owes) && !self.waiting()?.is_empty())
    }

    /// Takes what has arrived; whether anything has.
    fn collect(&mut self) -> io::Result<bool> {
        let mut any = false;
        for (slot, sent) in self.seats.iter_mut().zip(&mut self.sent) {
            let Some(seat) = slot else { continue };
            let (replies, is_closed) = seat.client.read_arrived()?;
            any |= !replies.is_empty() || is_closed;
            sent.extend(replies);
            if is_closed {
                sent.push(CLOSED.to_vec());
                *slot = None;
            }
        }
        Ok(any)
    }

    /// Waits until as much has arrived as at one of the real servers, and the same clients wait; whether that came to pass.
    fn follow(&mut self, ends: &[End]) -> io::Result<bool> {
        let deadline = Instant::now() + Duration::from_secs(TURN_SECONDS_MAX);
        loop {
            let waiting = self.waiting()?;
            self.collect()?;
            let is_like = |end: &End| {
                waiting == end.waiting
                    && self.sent.iter().zip(&end.sent).all(|(sent, all)| sent.len() >= *all)
            };
            if ends.iter().any(is_like) {
                if ends.iter().any(|end| *end != ends[0]) {
                    self.look_on()?;
                }
                return Ok(true);
            }
            if Instant::now() > deadline {
                return Ok(false);
            }
            std::thread::yield_now();
        }
    }

    /// Takes what still comes: where real servers differ, the one that is right may have sent more.
    fn look_on(&mut self) -> io::Result<()> {
        for _ in 0..LOOKS {
            self.control.call(&["PING"])?;
            self.collect()?;
        }
        Ok(())
    }

    /// The clients that wait for something.
    fn waiting(&mut self) -> io::Result<BTreeSet<usize>> {
        let lines = self.client_list()?;
        let is_waiting = |seat: &Seat| {
            let id = format!("id={} ", seat.id);
            let line = lines.lines().find(|line| line.starts_with(&id));
            let flags = line.and_then(|line| line.split(" flags=").nth(1)?.split(' ').next());
            flags.is_some_and(|flags| flags.contains('b'))
        };
        let seats = self.seats.iter().enumerate();
        Ok(seats.filter(|(_, seat)| seat.as_ref().is_some_and(is_waiting)).map(|(at, _)| at).collect())
    }

    /// Waits until the server knows that a client has left.
    fn await_gone(&mut self, id: i64) -> io::Result<()> {
        let deadline = Instant::now() + Duration::from_secs(TURN_SECONDS_MAX);
        let start = format!("id={id} ");
        while self.client_list()?.lines().any(|line| line.starts_with(&start)) {
            if Instant::now() > deadline {
                return Err(io::Error::other("a client that left is still listed"));
            }
        }
        Ok(())
    }

    fn client_list(&mut self) -> io::Result<String> {
        match self.control.call(&words(&["CLIENT", "LIST"]))? {
            Value::Bulk(text) => Ok(String::from_utf8_lossy(&text).into_owned()),
            other => Err(io::Error::other(format!("CLIENT LIST answers {other:?}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valkey_is_followed_only_in_what_a_rule_names() {
        let message = |text: &str| format!(">4\r\n+pmessage\r\n+*\r\n+channel\r\n+{text}\r\n").into_bytes();
        let sent = |texts: &[&str]| texts.iter().map(|text| message(text)).collect::<Vec<_>>();
        let turn = [Step { connection: 0, batch: 0, request: words(&["XADD", "s", "*", "f", "v"]) }];
        let followed = |redis: &[&str], valkey: &[&str]| {
            let mut all = [sent(valkey), sent(redis), sent(valkey)];
            follow_valkey(&turn, &mut all);
            all[1] == all[2]
        };
        assert!(followed(&["xadd", "del"], &["xadd", "keymiss", "del"]));
        assert!(followed(&["xgroup-createconsumer", "xadd"], &["xadd"]));
        assert!(!followed(&["xadd"], &["xadd", "del"]));
        assert!(!followed(&["xadd", "del"], &["del", "keymiss", "xadd"]));
    }
}
