//! One turn of jobs: all of them are sent, and then all replies are read; and what each came to.

use super::nodes::redirection;
use super::{Ending, Job, Target, Trouble};
use crate::connection::shown;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;
use wire::{Value, encode_request};

/// Jobs of a turn that are left, by number.
#[derive(Default)]
pub(super) struct Turn {
    /// Nothing of them was done.
    pub again: Vec<usize>,
    /// Nobody knows.
    pub lost: Vec<usize>,
}

/// What becomes of a job.
enum Outcome {
    Done,
    Again,
}

/// Words with which an error begins that passes.
const PASSING: [&str; 8] =
    ["TRYAGAIN", "LOADING", "CLUSTERDOWN", "MASTERDOWN", "READONLY", "BUSY", "NOREPLICAS", "NOTREADY"];

/// Replies around those of a job's own.
#[derive(Clone, Copy)]
struct Shape {
    /// In front: of SELECT and ASKING.
    before: usize,
    is_transaction: bool,
}

impl Target {
    /// Sends jobs to where their slots are, and reads what comes of it.
    pub(super) fn turn(&mut self, jobs: &mut [Job], left: &[usize]) -> Result<Turn, Ending> {
        let mut turn = Turn::default();
        let mut nodes: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for at in left {
            let job = &jobs[*at];
            if let Some(node) = job.node {
                self.check_has_slots(node)?;
            }
            let owner = job.node.or(job.asked_at).or_else(|| self.slots.owner(job.slot));
            let owner = owner.unwrap_or_else(|| self.masters().first().copied().unwrap_or_default());
            nodes.entry(owner).or_default().push(*at);
        }
        let writes = left.iter().any(|at| jobs[*at].writes);
        let unreached = self.reach(&nodes.keys().copied().collect::<Vec<_>>(), writes)?;
        let mut sent: Vec<(usize, Vec<(usize, Shape)>)> = Vec::new();
        for (node, own) in nodes {
            // The loss of another may have taken it along.
            if unreached.contains(&node) || self.connections[node].is_none() {
                turn.again.extend(own);
                continue;
            }
            let mut bytes = Vec::new();
            let shapes: Vec<_> =
                own.iter().map(|at| (*at, self.encode(node, &mut jobs[*at], &mut bytes))).collect();
            let connection = self.connections[node].as_mut().expect("it was opened");
            match connection.say(&bytes, &mut *self.look) {
                Ok(()) => sent.push((node, shapes)),
                Err(error) => {
                    turn.lost.extend(own);
                    self.lost(node, &error)?;
                }
            }
        }
        for (node, shapes) in sent {
            self.hear_all(node, jobs, &shapes, &mut turn)?;
        }
        self.check_moves()?;
        Ok(turn)
    }

    /// Makes sure of connections to nodes, and, where something is to be written, that nobody else writes since they were made. Gives those that are not
    /// reached.
    fn reach(&mut self, nodes: &[usize], writes: bool) -> Result<BTreeSet<usize>, Ending> {
        let mut unreached = BTreeSet::new();
        loop {
            for node in nodes {
                if !unreached.contains(node)
                    && let Err(trouble) = self.node(*node)
                {
                    unreached.insert(*node);
                    self.take_trouble(*node, trouble)?;
                }
            }
            if !writes || self.is_confirmed() {
                return Ok(unreached);
            }
            self.confirm()?;
        }
    }

    fn is_confirmed(&self) -> bool {
        self.writer.as_ref().is_none_or(|writer| writer.is_confirmed)
            && self.ender.as_ref().is_none_or(|ender| ender.is_confirmed)
    }

    fn take_trouble(&mut self, node: usize, trouble: Trouble) -> Result<(), Ending> {
        match trouble {
            Trouble::Ending(ending) => Err(ending),
            Trouble::Lost(error) => self.lost(node, &error),
        }
    }

    fn encode(&mut self, node: usize, job: &mut Job, out: &mut Vec<u8>) -> Shape {
        let mark = self.mark(job);
        let connection = self.connections[node].as_mut().expect("it was opened");
        let mut before = 0;
        if connection.database != job.database {
            encode_request(out, &[b"SELECT", job.database.to_string().as_bytes()]);
            connection.database = job.database;
            before += 1;
        }
        if job.asked_at.take().is_some() {
            encode_request(out, &[b"ASKING"]);
            before += 1;
        }
        match &mark {
            None => out.extend_from_slice(&job.requests),
            Some((key, text)) => {
                encode_request(out, &[b"MULTI"]);
                out.extend_from_slice(&job.requests);
                encode_request(out, &[b"SET", key.as_bytes(), text.as_bytes()]);
                encode_request(out, &[b"EXEC"]);
            }
        }
        Shape { before, is_transaction: mark.is_some() }
    }

    fn hear_all(
        &mut self,
        node: usize,
        jobs: &mut [Job],
        shapes: &[(usize, Shape)],
        turn: &mut Turn,
    ) -> Result<(), Ending> {
        for (number, (at, shape)) in shapes.iter().enumerate() {
            let count = shape.before + jobs[*at].count + if shape.is_transaction { 3 } else { 0 };
            let connection = self.connections[node].as_mut();
            let heard = connection.map(|connection| {
                (0..count).map(|_| connection.hear(&mut *self.look)).collect::<std::io::Result<Vec<Value>>>()
            });
            let judged = match heard {
                None => Ok(Outcome::Again),
                Some(Err(error)) => Err(Trouble::Lost(error)),
                Some(Ok(replies)) => self.judge(node, &mut jobs[*at], *shape, replies),
            };
            match judged {
                Ok(Outcome::Done) => self.heard.set(Instant::now()),
                Ok(Outcome::Again) => turn.again.push(*at),
                Err(trouble) => {
                    turn.lost.extend(shapes[number..].iter().map(|(at, _)| *at));
                    return self.take_trouble(node, trouble);
                }
            }
        }
        Ok(())
    }

    fn judge(
        &mut self,
        node: usize,
        job: &mut Job,
        shape: Shape,
        mut replies: Vec<Value>,
    ) -> Result<Outcome, Trouble> {
        let own = replies.split_off(shape.before);
        if let Some(Value::Error(line)) = replies.iter().find(|reply| matches!(reply, Value::Error(_))) {
            let why = format!("the target has no database {}: {}", job.database, shown(line));
            return Err(Ending::Stopped(why).into());
        }
        if !shape.is_transaction {
            let is_stream = job.end.is_some();
            let wrong = own.iter().enumerate().find_map(|(at, reply)| Some((at, error(reply)?)));
            return match wrong {
                // What cannot be asked is told to who asks.
                Some((at, line)) if !job.keeps_replies || is_elsewhere(line) || is_passing(line) => {
                    self.judge_refusal(node, job, (at, line), is_stream)
                }
                _ => {
                    job.replies = if job.keeps_replies { own } else { Vec::new() };
                    Ok(Outcome::Done)
                }
            };
        }
        match own.last() {
            Some(Value::Array(done)) => {
                let wrong = done.iter().enumerate().find_map(|(at, reply)| Some((at, error(reply)?)));
                match wrong {
                    None => Ok(Outcome::Done),
                    Some((at, line)) => Err(self.spoilt(job, at, line).into()),
                }
            }
            _ => {
                // The first that was refused says why; MULTI stands in front.
                let wrong = own.iter().enumerate().find_map(|(at, reply)| Some((at, error(reply)?)));
                let (at, line) = wrong.unwrap_or((0, b"it was not executed"));
                self.judge_refusal(node, job, (at.saturating_sub(1), line), false)
            }
        }
    }

    /// Nothing of a job was done, or, where it is no transaction, what may be done twice.
    fn judge_refusal(
        &mut self,
        node: usize,
        job: &mut Job,
        (at, line): (usize, &[u8]),
        is_bare: bool,
    ) -> Result<Outcome, Trouble> {
        if is_bare {
            let why = format!("the target refuses {}: {}", job.name(at), shown(line));
            return Err(match line.starts_with(b"UNANSWERED") {
                true => Ending::NeedsCopy(why).into(),
                false => self.spoil(why).into(),
            });
        }
        if let Some(redirection) = redirection(line, &self.place(node)) {
            let asked_at = self.follow(node, redirection);
            // Of several requests each would have to be asked for; the slot is there as a whole soon.
            let may_ask = job.end.is_some() || job.count == 1;
            job.asked_at = asked_at.filter(|_| may_ask);
            return Ok(Outcome::Again);
        }
        match is_passing(line) {
            true => {
                self.tell(format!("the target {} refuses: {}", self.place(node), shown(line)));
                Ok(Outcome::Again)
            }
            false => {
                Err(Ending::Stopped(format!("the target refuses {}: {}", job.name(at), shown(line))).into())
            }
        }
    }

    /// A request of the stream had an error, and those beside it were done.
    fn spoilt(&mut self, job: &Job, at: usize, line: &[u8]) -> Ending {
        self.spoil(format!("the target refuses {}, which the source has done: {}", job.name(at), shown(line)))
    }

    /// What is there is not what the source has, and is not gone on from.
    fn spoil(&mut self, why: String) -> Ending {
        // Replies of other jobs are under way on them, and nobody reads those any more. What follows has the servers end them.
        self.forget_connections();
        let spoilt = self.write_state(|state| state.stage = super::Stage::Spoilt);
        let more = match spoilt {
            Ok(()) => "the next run begins a new copy",
            Err(_) => "that could not be kept in the target: begin a new copy with --anew",
        };
        Ending::Stopped(format!("{why}; {more}"))
    }
}

fn error(reply: &Value) -> Option<&[u8]> {
    match reply {
        Value::Error(line) => Some(line),
        _ => None,
    }
}

/// Whether a refusal passes: BUSY does, and BUSYGROUP does not.
pub(super) fn is_passing(line: &[u8]) -> bool {
    let first = line.split(|byte| *byte == b' ').next().unwrap_or_default();
    PASSING.iter().any(|word| first == word.as_bytes())
}

fn is_elsewhere(line: &[u8]) -> bool {
    line.starts_with(b"MOVED ") || line.starts_with(b"ASK ")
}

#[cfg(test)]
mod tests {
    use super::is_passing;

    #[test]
    fn a_refusal_passes_by_its_first_word() {
        assert!(is_passing(b"BUSY a script runs") && is_passing(b"LOADING"));
        assert!(!is_passing(b"BUSYGROUP it is there") && !is_passing(b"BUSYKEY it is there"));
    }
}
