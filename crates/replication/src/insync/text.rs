//! Messages, decisions and what a node keeps as lines of text: how they travel, and how they lie on disk.
//!
//! A line is words with blanks between them, numbers in decimal, the last word a checksum (CRC-32C) of what stands before it. Whatever is not
//! exactly that is nothing.
//!
//! ```text
//! history   origin beginnings (epoch first lossy[/life])...
//! message   hello epoch end history | welcome epoch cut history | records epoch start end committed asked member
//!           | ack epoch reached durable (- | asked length) | yield epoch | refusal epoch
//! decision  decision version epoch lossy master members member...     a member is node/life
//! kept      kept life epoch torn whole history
//! ```
//!
//! What a replica has reached is a place, or, with the highest bit set, a number of steps: former versions say places only, and look at the first of
//! a link only, which is one.

use super::decisions::{Decision, Version};
use super::history::{Beginning, History};
use super::identity::{Epoch, Life, MemberId, Moment, NodeId};
use super::message::{Lease, Message, Reached};
use log::Lsn;
use std::fmt::Write;
use std::str::SplitAsciiWhitespace;
use std::time::Duration;

/// Set in a number of steps where else there is a place, which no log comes to.
const STEPS: u64 = 1 << 63;

/// The most beginnings or members that a line may name.
const COUNT_MAX: u64 = 100_000;

/// What a node keeps beside its log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Which life the data is.
    pub life: Life,
    /// The highest epoch that it has acted in.
    pub epoch: Epoch,
    /// Whether the data may be those of a copy that is not whole.
    pub is_torn: bool,
    /// From where on the data behind a place of the log are of one moment: before it a copy was not whole yet.
    pub whole_from: Lsn,
    /// The epochs of its log, and those that will follow from the same master.
    pub history: History,
}

/// Words of a line that is being read.
struct Words<'t>(SplitAsciiWhitespace<'t>);

impl<'t> Words<'t> {
    /// Those of a line, if it is whole.
    fn of(line: &'t str) -> Option<Words<'t>> {
        let (body, sum) = line.rsplit_once(' ')?;
        (sum == checksum(body)).then(|| Words(body.split_ascii_whitespace()))
    }

    fn word(&mut self) -> Option<&'t str> {
        self.0.next()
    }

    fn number(&mut self) -> Option<u64> {
        let word = self.word()?;
        word.bytes().all(|byte| byte.is_ascii_digit()).then(|| word.parse().ok())?
    }

    fn flag(&mut self) -> Option<bool> {
        match self.number()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    /// No shard has so many promotions that they come to the last numbers there are.
    fn epoch(&mut self) -> Option<Epoch> {
        self.number().filter(|number| *number < u64::MAX / 2).map(Epoch)
    }

    fn place(&mut self) -> Option<Lsn> {
        self.number().map(Lsn)
    }

    fn count(&mut self) -> Option<u64> {
        self.number().filter(|count| *count <= COUNT_MAX)
    }

    fn history(&mut self) -> Option<History> {
        let (origin, count) = (self.number()?, self.count()?);
        let mut beginnings: Vec<Beginning> = Vec::new();
        for _ in 0..count {
            let (epoch, first, (is_lossy, by)) = (self.epoch()?, self.place()?, self.reign()?);
            let beginning = Beginning { epoch, first, is_lossy, by };
            let ascends = beginnings
                .last()
                .is_none_or(|last| last.epoch < beginning.epoch && last.first < beginning.first);
            if !ascends {
                return None;
            }
            beginnings.push(beginning);
        }
        Some(History::new(origin, beginnings))
    }

    /// Whether an epoch is lossy, and whose it is, which is left out where it is not known.
    fn reign(&mut self) -> Option<(bool, Life)> {
        let word = self.word()?;
        let (lossy, life) = word.split_once('/').unwrap_or((word, "0"));
        let is_lossy = match lossy {
            "0" => false,
            "1" => true,
            _ => return None,
        };
        let is_number = life.bytes().all(|byte| byte.is_ascii_digit());
        let life = life.parse().ok().filter(|life| is_number && (*life != 0) == word.contains('/'))?;
        Some((is_lossy, Life(life)))
    }

    fn member(&mut self) -> Option<MemberId> {
        let (node, life) = self.word()?.split_once('/')?;
        Some(MemberId { node: NodeId(node.parse().ok()?), life: Life(life.parse().ok()?) })
    }

    /// The end: what was read counts only if nothing is left.
    fn ending<T>(mut self, read: T) -> Option<T> {
        self.word().is_none().then_some(read)
    }
}

fn checksum(body: &str) -> String {
    format!("{:08x}", crc32c::crc32c(body.as_bytes()))
}

fn sealed(body: String) -> String {
    let sum = checksum(&body);
    format!("{body} {sum}")
}

fn history_text(history: &History) -> String {
    let mut text = format!("{} {}", history.origin(), history.beginnings().len());
    for Beginning { epoch, first, is_lossy, by } in history.beginnings() {
        let _ = write!(text, " {} {} {}", epoch.0, first.0, u8::from(*is_lossy));
        if by.0 != 0 {
            let _ = write!(text, "/{}", by.0);
        }
    }
    text
}

fn member_text(member: MemberId) -> String {
    format!("{}/{}", member.node.0, member.life.0)
}

impl Message {
    /// The message as a line.
    #[must_use]
    pub fn to_line(&self) -> String {
        sealed(match self {
            Message::Hello { epoch, history, end } => {
                format!("hello {} {} {}", epoch.0, end.0, history_text(history))
            }
            Message::Welcome { epoch, history, cut } => {
                format!("welcome {} {} {}", epoch.0, cut.0, history_text(history))
            }
            Message::Records { epoch, start, end, committed, asked_at, is_member } => format!(
                "records {} {} {} {} {} {}",
                epoch.0,
                start.0,
                end.0,
                committed.0,
                asked_at.0,
                u8::from(*is_member)
            ),
            Message::Acknowledgement { epoch, reached, durable, lease } => {
                let lease = lease.map_or("-".to_owned(), |lease| {
                    format!("{} {}", lease.asked_at.0, lease.length.as_micros())
                });
                let reached = match reached {
                    Reached::Place(place) => place.0,
                    Reached::Within(steps) => STEPS | steps,
                };
                format!("ack {} {reached} {} {lease}", epoch.0, durable.0)
            }
            Message::Yield { epoch } => format!("yield {}", epoch.0),
            Message::Refusal { epoch } => format!("refusal {}", epoch.0),
        })
    }

    /// The message that a line is.
    #[must_use]
    pub fn from_line(line: &str) -> Option<Message> {
        let mut words = Words::of(line)?;
        let kind = words.word()?;
        let epoch = words.epoch()?;
        let message = match kind {
            "hello" => Message::Hello { epoch, end: words.place()?, history: words.history()? },
            "welcome" => Message::Welcome { epoch, cut: words.place()?, history: words.history()? },
            "records" => Message::Records {
                epoch,
                start: words.place()?,
                end: words.place()?,
                committed: words.place()?,
                asked_at: Moment(words.number()?),
                is_member: words.flag()?,
            },
            "ack" => {
                let reached = match words.number()? {
                    steps @ STEPS.. => Reached::Within(steps & !STEPS),
                    place => Reached::Place(Lsn(place)),
                };
                let durable = words.place()?;
                let lease = match words.word()? {
                    "-" => None,
                    asked_at => Some(Lease {
                        asked_at: Moment(asked_at.parse().ok()?),
                        length: Duration::from_micros(words.number()?),
                    }),
                };
                Message::Acknowledgement { epoch, reached, durable, lease }
            }
            "yield" => Message::Yield { epoch },
            "refusal" => Message::Refusal { epoch },
            _ => return None,
        };
        words.ending(message)
    }
}

impl Decision {
    /// The decision as a line.
    #[must_use]
    pub fn to_line(&self) -> String {
        let members: Vec<String> = self.members.iter().copied().map(member_text).collect();
        sealed(format!(
            "decision {} {} {} {} {} {}",
            self.version.0,
            self.epoch.0,
            u8::from(self.is_lossy),
            member_text(self.master),
            members.len(),
            members.join(" ")
        ))
    }

    /// The decision that a line is.
    #[must_use]
    pub fn from_line(line: &str) -> Option<Decision> {
        let mut words = Words::of(line)?;
        if words.word()? != "decision" {
            return None;
        }
        let (version, epoch, is_lossy) = (Version(words.number()?), words.epoch()?, words.flag()?);
        let master = words.member()?;
        let count = words.count()?;
        let members = (0..count).map(|_| words.member()).collect::<Option<_>>()?;
        words.ending(Decision { version, epoch, master, members, is_lossy })
    }
}

impl Kept {
    /// It as a line.
    #[must_use]
    pub fn to_line(&self) -> String {
        let is_torn = u8::from(self.is_torn);
        sealed(format!(
            "kept {} {} {is_torn} {} {}",
            self.life.0,
            self.epoch.0,
            self.whole_from.0,
            history_text(&self.history)
        ))
    }

    /// What a line keeps.
    #[must_use]
    pub fn from_line(line: &str) -> Option<Kept> {
        let mut words = Words::of(line)?;
        if words.word()? != "kept" {
            return None;
        }
        let (life, epoch, is_torn) = (Life(words.number()?), words.epoch()?, words.flag()?);
        let (whole_from, history) = (words.place()?, words.history()?);
        words.ending(Kept { life, epoch, is_torn, whole_from, history })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sys::Prng;
    use testkit::Budget;

    fn history() -> History {
        let beginning =
            |epoch, first, is_lossy, by| Beginning { epoch: Epoch(epoch), first: Lsn(first), is_lossy, by };
        History::new(77, vec![beginning(1, 0, false, Life(0)), beginning(3, 900, true, Life(u64::MAX))])
    }

    fn messages() -> Vec<Message> {
        let (epoch, end) = (Epoch(3), Lsn(4711));
        let lease = Lease { asked_at: Moment(12), length: Duration::from_millis(1000) };
        vec![
            Message::Hello { epoch, history: history(), end },
            Message::Welcome { epoch, history: History::default(), cut: end },
            Message::Records {
                epoch,
                start: Lsn(4),
                end,
                committed: Lsn(u64::MAX),
                asked_at: Moment(5),
                is_member: true,
            },
            Message::Acknowledgement {
                epoch,
                reached: Reached::Place(end),
                durable: Lsn(2),
                lease: Some(lease),
            },
            Message::Acknowledgement { epoch, reached: Reached::Within(0), durable: Lsn(2), lease: None },
            Message::Acknowledgement { epoch, reached: Reached::Within(9), durable: Lsn(2), lease: None },
            Message::Yield { epoch },
            Message::Refusal { epoch },
        ]
    }

    fn decision() -> Decision {
        let member = |node, life| MemberId { node: NodeId(node), life: Life(life) };
        let members = [member(0, u64::MAX), member(2, 9)].into();
        Decision { version: Version(8), epoch: Epoch(3), master: member(2, 9), members, is_lossy: true }
    }

    #[test]
    fn a_line_says_what_was_meant() {
        for message in messages() {
            assert_eq!(Message::from_line(&message.to_line()), Some(message));
        }
        assert_eq!(Decision::from_line(&decision().to_line()), Some(decision()));
        let kept =
            Kept { life: Life(5), epoch: Epoch(3), is_torn: true, whole_from: Lsn(90), history: history() };
        assert_eq!(Kept::from_line(&kept.to_line()), Some(kept));
    }

    /// Nodes of former versions read a place there, and look at no other than the first.
    #[test]
    fn steps_are_said_where_former_versions_say_a_place() {
        let line = |number: u64| sealed(format!("ack 3 {number} 2 -"));
        let said =
            |reached| Message::Acknowledgement { epoch: Epoch(3), reached, durable: Lsn(2), lease: None };
        for (reached, number) in [
            (Reached::Place(Lsn(7)), 7),
            (Reached::Within(7), (1 << 63) + 7),
            (Reached::Place(Lsn((1 << 63) - 1)), (1 << 63) - 1),
        ] {
            assert_eq!(said(reached).to_line(), line(number));
            assert_eq!(Message::from_line(&line(number)), Some(said(reached)));
        }
    }

    #[test]
    fn what_is_damaged_is_nothing() {
        let kept =
            Kept { life: Life(5), epoch: Epoch(3), is_torn: true, whole_from: Lsn(90), history: history() };
        let mut lines: Vec<String> = messages().iter().map(Message::to_line).collect();
        lines.extend([decision().to_line(), kept.to_line()]);
        let is_read = |line: &str| {
            Message::from_line(line).is_some()
                || Decision::from_line(line).is_some()
                || Kept::from_line(line).is_some()
        };
        for line in lines {
            assert!(is_read(&line));
            for at in 0..line.len() {
                assert!(!is_read(&line[..at]), "{}", &line[..at]);
                for byte in [b' ', b'0', b'9', b'x', b'-'] {
                    let mut bytes = line.clone().into_bytes();
                    if std::mem::replace(&mut bytes[at], byte) != byte {
                        assert!(!is_read(&String::from_utf8(bytes).expect("it is ASCII")), "{line} at {at}");
                    }
                }
            }
        }
        for body in [
            "hello 1 2 0 999999999",
            "records 1 2",
            "kept 1 1 0 0 5 2 3 9 0 3 9 0",
            "decision 1 1 0 1/1 1",
            "",
        ] {
            assert!(!is_read(&sealed(body.to_owned())), "{body}");
        }
    }

    /// Some words replaced, removed, put in, or said twice.
    fn damage(body: &mut String, prng: &mut Prng) {
        const ODD: &[&str] = &[
            "",
            "-",
            "-1",
            "0",
            "1/",
            "/1",
            "1/2",
            "18446744073709551615",
            "18446744073709551616",
            "hello",
            "9e9",
            "\u{e9}",
        ];
        let mut words: Vec<String> = body.split(' ').map(str::to_owned).collect();
        for _ in 0..=prng.below(3) {
            let at = usize::try_from(prng.below(words.len() as u64 + 1)).expect("it is small");
            let odd = match prng.one_in(2) {
                true => ODD[usize::try_from(prng.below(ODD.len() as u64)).expect("it is small")].to_owned(),
                false => prng.below(1 << 40).to_string(),
            };
            match prng.below(4) {
                0 if at < words.len() => words[at] = odd,
                1 if at < words.len() && words.len() > 1 => drop(words.remove(at)),
                2 if at < words.len() => words.insert(at, words[at].clone()),
                _ => words.insert(at, odd),
            }
        }
        *body = words.join(" ");
    }

    /// Whoever knows how lines are sealed says what they like: what is read of it is what it says, said in the one way.
    #[test]
    fn what_is_sealed_is_read_as_it_stands_or_not_at_all() {
        let kept =
            Kept { life: Life(5), epoch: Epoch(3), is_torn: false, whole_from: Lsn(90), history: history() };
        let mut lines: Vec<String> = messages().iter().map(Message::to_line).collect();
        lines.extend([decision().to_line(), kept.to_line()]);
        let budget = Budget::from_env(1, 20_000);
        let mut done = 0;
        while budget.allows(done) {
            let seed = budget.seed.wrapping_add(done);
            let prng = &mut Prng::from_seed(seed);
            let line = &lines[usize::try_from(prng.below(lines.len() as u64)).expect("it is small")];
            let mut body = line.rsplit_once(' ').expect("it is sealed").0.to_owned();
            damage(&mut body, prng);
            if prng.one_in(8) {
                body = (0..prng.below(60)).map(|_| char::from(prng.next_u64().to_le_bytes()[0])).collect();
            }
            let line = sealed(body);
            let again = [
                Message::from_line(&line)
                    .map(|read| (Message::from_line(&read.to_line()) == Some(read.clone()), read.to_line())),
                Decision::from_line(&line)
                    .map(|read| (Decision::from_line(&read.to_line()) == Some(read.clone()), read.to_line())),
                Kept::from_line(&line)
                    .map(|read| (Kept::from_line(&read.to_line()) == Some(read.clone()), read.to_line())),
            ];
            let read: Vec<_> = again.into_iter().flatten().collect();
            assert!(read.len() <= 1, "TARN_SEED={seed} TARN_STEPS=1: {line:?} has two meanings");
            for (is_same, said) in read {
                assert!(
                    is_same && said.len() <= line.len(),
                    "TARN_SEED={seed} TARN_STEPS=1: {line:?} became {said:?}"
                );
            }
            done += 1;
        }
    }
}
