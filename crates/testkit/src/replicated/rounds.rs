//! Rounds on a chain: traffic at the head while links are spoilt and servers are restarted, then agreement, then every key.
//!
//! A round begins and ends in agreement. What a disturbance must lead to beside that is held as well: a link that is cut and
//! mended again costs no full synchronization.

use super::{BACKLOG, Chain, Counts, Ending, Member};
use crate::relay::{WAYS, Way};
use crate::seed::Budget;
use crate::spec::Spec;
use crate::traffic::{self, Habits, Progress, Traffic};
use crate::values::pick;
use std::io;
use std::time::Duration;
use sys::Prng;
use wire::Value;

/// Requests of a round, about, beside those of generated streams.
const ROUND_REQUESTS: usize = 1_500;
/// Of rounds, one of so many has a single client.
const ALONE_SHARE: u64 = 4;
/// Before one of so many rounds the head is emptied, if that makes a difference.
const EMPTIED_SHARE: u64 = 4;
/// Longest delay of a slow link each way, and the fewest bytes a second that it carries.
const DELAY_MAX_MS: u64 = 30;
const RATE_MIN: u64 = 50_000;
/// Most bytes behind which a link breaks: often the beginning of a full synchronization or of a command.
const BREAK_BYTES_MAX: u64 = 200_000;
/// A disturbance begins no later than at this share of a round, and lasts for at most so much of it.
const BEGIN_MAX: f64 = 0.6;
const LENGTH_MAX: f64 = 0.3;
/// Longest wait for a follower to have what the head has sent.
const WAIT_MS: &str = "100000";

/// What happens amid a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disturbance {
    /// Nothing.
    Peace,
    /// A follower's link is cut, and later mended.
    Cut(usize),
    /// The same behind so many bytes.
    Break(usize, Way, u64),
    /// A link passes nothing on in one direction for a while.
    Stop(usize, Way),
    /// A follower's connection ends, of which its master does not learn.
    Abandon(usize),
    /// A link is slow: so many milliseconds late each way, with so many bytes a second at most.
    Slow(usize, u64, u64),
    /// A follower's link is cut while its master keeps next to nothing of what it would need later.
    Outrun(usize),
    /// A server is ended and started again; the head only once the clients have had their last answers.
    Restart(usize, Ending),
    /// A follower is, and its link is cut behind so many bytes of what it is sent then: amid a full synchronization, if there is one.
    RestartAndBreak(usize, Ending, u64),
}

impl Disturbance {
    /// One of a chain of so many servers.
    pub fn random(prng: &mut Prng, servers: usize) -> Disturbance {
        let at = 1 + prng.below(servers as u64 - 1) as usize;
        let way = pick(prng, &WAYS);
        let bytes = 1 + prng.below(BREAK_BYTES_MAX);
        let ending = pick(prng, &[Ending::Kill, Ending::Save, Ending::Lose]);
        match prng.below(11) {
            0 => Disturbance::Peace,
            1 => Disturbance::Cut(at),
            2 | 3 => Disturbance::Break(at, way, if way == Way::There { bytes / 1_000 } else { bytes }),
            4 => Disturbance::Stop(at, way),
            5 => Disturbance::Abandon(at),
            6 => Disturbance::Slow(at, prng.below(DELAY_MAX_MS), RATE_MIN + prng.below(10 * RATE_MIN)),
            7 => Disturbance::Restart(at, ending),
            8 => Disturbance::Restart(prng.below(servers as u64) as usize, ending),
            9 => Disturbance::Outrun(at),
            _ => Disturbance::RestartAndBreak(at, ending, bytes),
        }
    }

    fn is_of_head(self) -> bool {
        matches!(self, Disturbance::Restart(0, _))
    }

    /// Whether a follower may need everything again.
    fn may_need_all(self) -> bool {
        use Disturbance::{Outrun, Restart, RestartAndBreak};
        matches!(self, Outrun(_) | Restart(..) | RestartAndBreak(..))
    }
}

/// What a chain has been through.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// Rounds played.
    pub rounds: u64,
    /// Keys that all had alike, over all rounds.
    pub keys: usize,
    /// Where the head's stream ended.
    pub offset: u64,
    /// Synchronizations, of all servers as long as each lived.
    pub counts: Counts,
}

/// Rounds of one chain.
#[derive(Debug)]
pub struct Rounds<'a> {
    chain: Chain,
    specs: &'a [Spec],
    habits: Habits,
    /// Whether all run the same program.
    are_of_a_kind: bool,
    /// Whether nobody has been sent everything since the head was empty: then servers of a kind hold values in the same way.
    are_grown: bool,
    report: Report,
}

impl<'a> Rounds<'a> {
    /// Starts a chain, on which `specs` are played.
    ///
    /// # Errors
    /// If a server does not start, or they do not come to agree.
    pub fn start(members: &[Member], specs: &'a [Spec], habits: Habits) -> io::Result<Rounds<'a>> {
        let chain = Chain::start(members)?;
        chain.await_agreement()?;
        let are_of_a_kind = members.windows(2).all(|pair| pair[0].program == pair[1].program);
        Ok(Rounds { chain, specs, habits, are_of_a_kind, are_grown: true, report: Report::default() })
    }

    /// The chain.
    pub fn chain(&self) -> &Chain {
        &self.chain
    }

    /// Plays rounds for as long as the budget allows; what they came to, or what went wrong and how to see it again.
    ///
    /// # Errors
    /// If a server cannot be driven at all.
    pub fn play(&mut self, budget: Budget) -> io::Result<Result<Report, String>> {
        let mut prng = Prng::from_seed(budget.seed);
        while budget.allows(self.report.rounds) {
            if !self.are_grown && prng.one_in(EMPTIED_SHARE) {
                self.chain.server(0).connect_loaded()?.call(&["FLUSHALL"])?;
                self.are_grown = true;
            }
            let disturbance = Disturbance::random(&mut prng, self.chain.len());
            let found = self.round(disturbance, prng.next_u64());
            let wrong = match found {
                Ok(Ok(())) => continue,
                Ok(Err(wrong)) => wrong,
                Err(error) => error.to_string(),
            };
            let printed: Vec<String> =
                (0..self.chain.len()).map(|at| self.chain.server(at).last_lines()).collect();
            return Ok(Err(format!(
                "{}, round {} with {disturbance:?}, TARN_SEED={}:\n{wrong}\n{}",
                self.chain.name(),
                self.report.rounds,
                budget.seed,
                printed.join("\n--\n")
            )));
        }
        Ok(Ok(self.report))
    }

    /// One round; what went wrong.
    ///
    /// # Errors
    /// If a server cannot be driven, or they do not come to agree.
    pub fn round(&mut self, disturbance: Disturbance, seed: u64) -> io::Result<Result<(), String>> {
        let before = self.all_counts()?;
        self.busy(disturbance, seed)?;
        let mut client = self.chain.server(0).connect_loaded()?;
        client.call(&["SET", "round", &self.report.rounds.to_string()])?;
        let followed = client.call(&["WAIT", "1", WAIT_MS])?;
        if followed != Value::Int(1) {
            return Ok(Err(format!("WAIT 1 {WAIT_MS} says {followed:?}")));
        }
        self.report.offset = self.chain.await_agreement()?;
        self.report.rounds += 1;
        if let Disturbance::Outrun(at) = disturbance {
            set_backlog(&self.chain, at - 1, BACKLOG)?;
        }
        let counts = self.all_counts()?;
        self.are_grown &= !disturbance.may_need_all();
        if !disturbance.may_need_all() && counts.full > before.full {
            return Ok(Err(format!("a full synchronization: there were {before:?}, there are {counts:?}")));
        }
        self.report.counts.full += counts.full.saturating_sub(before.full);
        self.report.counts.partial += counts.partial.saturating_sub(before.partial);
        if let Some(complaint) = self.chain.complaint() {
            return Ok(Err(complaint));
        }
        Ok(self
            .chain
            .difference(self.are_of_a_kind && self.are_grown, !self.habits.use_newer)?
            .map(|keys| self.report.keys += keys))
    }

    /// Has clients at work until they have sent enough, and disturbs the chain meanwhile.
    fn busy(&mut self, disturbance: Disturbance, seed: u64) -> io::Result<()> {
        let mut prng = Prng::from_seed(seed);
        let traffics = if prng.one_in(ALONE_SHARE) {
            vec![traffic::alone(self.specs, self.habits, prng.next_u64())]
        } else {
            traffic::roles(self.specs, self.habits, prng.next_u64())
        };
        let begin = prng.unit() * BEGIN_MAX;
        let end = begin + prng.unit() * LENGTH_MAX;
        let progress = Progress::of(ROUND_REQUESTS);
        let head = self.chain.server(0).address();
        std::thread::scope(|scope| {
            let progress = &progress;
            let clients: Vec<_> = traffics
                .into_iter()
                .map(|mut traffic: Traffic<'_>| scope.spawn(move || traffic.play(head, progress)))
                .collect();
            progress.wait_for(begin);
            let disturbed =
                if disturbance.is_of_head() { Ok(()) } else { disturb(&mut self.chain, disturbance) };
            progress.wait_for(end);
            mend(&self.chain);
            let played: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
            for result in played {
                result.map_err(|_| io::Error::other("the head does not answer"))?;
            }
            disturbed
        })?;
        if disturbance.is_of_head() { disturb(&mut self.chain, disturbance) } else { Ok(()) }
    }

    fn all_counts(&self) -> io::Result<Counts> {
        let mut all = Counts::default();
        for at in 0..self.chain.len() {
            let counts = self.chain.counts(at)?;
            all.full += counts.full;
            all.partial += counts.partial;
        }
        Ok(all)
    }
}

fn disturb(chain: &mut Chain, disturbance: Disturbance) -> io::Result<()> {
    match disturbance {
        Disturbance::Peace => {}
        Disturbance::Cut(at) => chain.link(at).cut(),
        Disturbance::Break(at, way, bytes) => chain.link(at).cut_behind(way, bytes),
        Disturbance::Stop(at, way) => chain.link(at).stop(way),
        Disturbance::Abandon(at) => chain.link(at).abandon(),
        Disturbance::Slow(at, delay, rate) => {
            for way in WAYS {
                chain.link(at).delay(way, Duration::from_millis(delay));
                chain.link(at).throttle(way, rate);
            }
        }
        Disturbance::Outrun(at) => {
            set_backlog(chain, at - 1, "16kb")?;
            chain.link(at).cut();
        }
        Disturbance::Restart(at, ending) => chain.restart(at, ending)?,
        Disturbance::RestartAndBreak(at, ending, bytes) => {
            chain.link(at).cut_behind(Way::Back, bytes);
            chain.restart(at, ending)?;
        }
    }
    Ok(())
}

fn set_backlog(chain: &Chain, at: usize, bytes: &str) -> io::Result<()> {
    match chain.server(at).connect_loaded()?.call(&["CONFIG", "SET", "repl-backlog-size", bytes])? {
        Value::Error(line) => Err(io::Error::other(format!("repl-backlog-size: {}", line.escape_ascii()))),
        _ => Ok(()),
    }
}

fn mend(chain: &Chain) {
    (1..chain.len()).for_each(|at| chain.link(at).mend());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Program;
    use crate::spec;
    use crate::traffic;

    const HABITS: Habits =
        Habits { use_newer: false, set_directives: false, begin_checkpoints: false, withhold: false };

    #[test]
    fn what_is_written_to_a_follower_alone_is_found() {
        let members =
            [Member::new(Program::Redis, &[]), Member::new(Program::Redis, &["--replica-read-only", "no"])];
        let specs = traffic::specs(spec::data_specs(), HABITS);
        let mut rounds = Rounds::start(&members, &specs, HABITS).unwrap();
        rounds.round(Disturbance::Peace, 1).unwrap().unwrap();
        let mut client = rounds.chain().server(1).connect().unwrap();
        client.call(&["SET", "stray", "x"]).unwrap();
        let found = rounds.round(Disturbance::Peace, 2).unwrap().unwrap_err();
        assert!(found.contains("stray"), "{found}");
    }
}
