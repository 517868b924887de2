//! Several servers' replies made one, as one server would have given it. Pure: bytes to bytes; nothing is changed of what servers said, so that both
//! protocols keep their forms. A join that has not enough yet says what else is to be asked.

use crate::cache::Filling;
use crate::computed::{self, Computed};
use crate::group_reads::GroupRead;
use crate::links::Patience;
use crate::pops::Pop;
use crate::scans::Scan;
use crate::slot_scans::SlotScan;
use crate::stream_waits::StreamWait;
use crate::upstream::NodeNo;
use command::Error;
use std::io::Write;
use std::time::{Duration, Instant};
use wire::number::parse_int;
use wire::{Protocol, encode_arg, skip_reply};

/// What is sent, to whom, and the slot of its keys, if they have one.
pub type Part = (NodeNo, Option<u16>, Vec<u8>);

/// What comes of replies that are all there.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// What the client gets.
    Whole(Vec<u8>),
    /// These are asked next, and what they say is joined in place of what was said so far.
    More(Vec<Part>),
    /// The same, over connections that the client has to itself, since they wait for so long.
    Wait(Vec<Part>, Patience),
}

/// How replies become one. An error of any of them is the reply to all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Join {
    /// Their numbers added up.
    Sum,
    /// The first: all are the same.
    First,
    /// One array of elements, each from the array of its server, in the order of the request: which server's the next one is.
    Places(Vec<u16>),
    /// One answer of XREAD in this protocol: streams of which there is something, in the order of the request, by their parts and encoded names.
    Streams(Protocol, Vec<(u16, Vec<u8>)>),
    /// One array of all their elements.
    Concat,
    /// How many keys each has; then a key of one that is drawn by that.
    Drawn(Box<Draw>),
    /// One array of 0 and 1: 1 where all have that.
    Both,
    /// The number of one server, and so much more.
    Corrected(i64),
    /// The least of their numbers; of arrays of numbers, in each place the least.
    Least,
    /// This, whatever they say that is no error.
    Said(&'static [u8]),
    /// The first that is no error. If all are, one that says more than that there was nothing to do.
    OneDid,
    /// The first that says of a script that it runs, or else the first.
    Running,
    /// One server's step of a scan over all.
    Scan(Box<Scan>),
    /// Steps of a scan over a cluster.
    SlotScan(Box<SlotScan>),
    /// Copies of keys, on which a command runs.
    Computed(Box<Computed>),
    /// A reply that is to be kept; then the time to live of its key, which is asked for by this.
    Kept(Box<Keeping>),
    /// What is taken from the first of several keys that has something.
    Pop(Box<Pop>),
    /// What is read of several streams once one of them has something.
    StreamWait(Box<StreamWait>),
    /// What a consumer of a group is given of several streams.
    GroupRead(Box<GroupRead>),
}

/// A key of any server: each key is as likely as any other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draw {
    nodes: Vec<NodeNo>,
    asks: Vec<u8>,
    luck: u64,
    is_drawn: bool,
}

impl Draw {
    /// Among these servers, which are asked for a key by this. `luck` is anything.
    pub fn begin(nodes: &[NodeNo], asks: Vec<u8>, luck: u64) -> Draw {
        Draw { nodes: nodes.to_vec(), asks, luck, is_drawn: false }
    }

    fn step(&mut self, parts: &[Vec<u8>]) -> Option<Step> {
        if std::mem::replace(&mut self.is_drawn, true) {
            return Some(Step::Whole(parts.first()?.clone()));
        }
        let counts = parts.iter().map(|part| u64::try_from(number(part)?).ok());
        let counts = counts.collect::<Option<Vec<_>>>()?;
        // Whatever the clock's steps are.
        let luck = self.luck.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16;
        let mut at = luck % counts.iter().sum::<u64>().max(1);
        // Where there are no keys any server says so.
        let drawn = counts.iter().position(|count| {
            let is_its = at < *count;
            at = at.saturating_sub(*count);
            is_its
        });
        let node = *self.nodes.get(drawn.unwrap_or(0))?;
        Some(Step::More(vec![(node, None, self.asks.clone())]))
    }
}

/// A reply on its way to be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keeping {
    filling: Filling,
    asks: Part,
    /// When it has come.
    reply: Option<Vec<u8>>,
}

impl Keeping {
    /// `asks` asks for the time to live of the key.
    pub fn begin(filling: Filling, asks: Part) -> Keeping {
        Keeping { filling, asks, reply: None }
    }

    fn step(&mut self, came: &[u8]) -> Step {
        match self.reply.take() {
            None if self.filling.wants(came) => {
                self.reply = Some(came.to_vec());
                Step::More(vec![self.asks.clone()])
            }
            None => Step::Whole(came.to_vec()),
            Some(reply) => {
                self.filling.end(&reply, came);
                Step::Whole(reply)
            }
        }
    }
}

/// The error that stands for replies that do not go together.
pub const UNLIKE: &[u8] = b"-ERR proxy: the shards' replies are not of one kind\r\n";

impl Join {
    /// All replies are there.
    pub fn step(&mut self, parts: &[Vec<u8>]) -> Step {
        match self {
            Join::OneDid => return Step::Whole(one_that_did(parts)),
            Join::Kept(keeping) => {
                return parts.first().map_or_else(|| Step::Whole(UNLIKE.to_vec()), |came| keeping.step(came));
            }
            Join::Pop(pop) => return pop.step(parts),
            Join::GroupRead(read) => return read.step(parts),
            Join::StreamWait(wait) => {
                return wait.step(parts).unwrap_or_else(|| Step::Whole(UNLIKE.to_vec()));
            }
            Join::Streams(protocol, order) => {
                let joined = streams(*protocol, order, parts);
                return Step::Whole(joined.unwrap_or_else(|| UNLIKE.to_vec()));
            }
            Join::SlotScan(scan) => {
                return scan.step(parts).unwrap_or_else(|| Step::Whole(UNLIKE.to_vec()));
            }
            _ => {}
        }
        match parts.iter().find(|part| part.first() == Some(&b'-')) {
            Some(error) => Step::Whole(error.clone()),
            None => self.of_values(parts).unwrap_or_else(|| Step::Whole(UNLIKE.to_vec())),
        }
    }

    /// What comes is not to be kept: it is of a server that does not tell, maybe.
    pub fn give_up_keeping(&mut self) {
        if let Join::Kept(keeping) = self {
            keeping.filling.give_up();
        }
    }

    /// Whether it does something at servers that is to be done though its client wants no reply.
    pub fn acts(&self) -> bool {
        matches!(self, Join::Pop(_) | Join::GroupRead(_))
    }

    /// Somebody has had its client woken, which is told so.
    pub fn note_woken(&mut self) {
        if let Join::GroupRead(read) = self {
            read.note_woken();
        }
    }

    /// Whether servers may be asked to wait for its client.
    pub fn may_wait(&self) -> bool {
        matches!(self, Join::Pop(_) | Join::StreamWait(_) | Join::GroupRead(_))
    }

    /// Whether something is taken for its client now, which nobody else gets.
    pub fn is_taking(&self) -> bool {
        match self {
            Join::Pop(pop) => pop.is_taking(),
            Join::GroupRead(read) => read.is_taking(),
            _ => false,
        }
    }

    /// Whether its client waits behind another.
    pub fn is_behind(&self) -> bool {
        match self {
            Join::Pop(pop) => pop.is_behind(),
            Join::GroupRead(read) => read.is_behind(),
            _ => false,
        }
    }

    /// What its client waits for, where one of those who wait for the same is given it.
    pub fn crowd(&self) -> Option<Vec<u8>> {
        match self {
            Join::Pop(pop) => Some(pop.crowd()),
            Join::GroupRead(read) => Some(read.crowd()),
            _ => None,
        }
    }

    /// Another client waits for the same, and this one until that has ended: for so long, if not for ever.
    pub fn stand_behind(&mut self) -> Option<Duration> {
        match self {
            Join::Pop(pop) => pop.stand_behind(),
            Join::GroupRead(read) => read.stand_behind(),
            _ => None,
        }
    }

    /// That one has ended: what is asked next.
    pub fn go_on(&mut self) -> Step {
        match self {
            Join::Pop(pop) => pop.go_on(),
            Join::GroupRead(read) => read.go_on(),
            _ => Step::Whole(UNLIKE.to_vec()),
        }
    }

    /// Whether servers wait for its client now.
    pub fn is_waiting(&self) -> bool {
        match self {
            Join::Pop(pop) => pop.is_waiting(),
            Join::StreamWait(wait) => wait.is_waiting(),
            Join::GroupRead(read) => read.is_waiting(),
            _ => false,
        }
    }

    /// Whether a reply is enough, whatever the others say.
    pub fn is_ended_by(&self, reply: &[u8]) -> bool {
        match self {
            Join::Pop(pop) => pop.is_ended_by(reply),
            Join::StreamWait(wait) => wait.is_ended_by(reply),
            Join::GroupRead(read) => read.is_ended_by(reply),
            _ => false,
        }
    }

    /// How long replies may be that are joined.
    pub fn bytes_max(&self) -> usize {
        if let Join::Computed(_) = self { computed::bytes_max() } else { usize::MAX }
    }

    /// What the client gets where they are longer.
    pub fn too_long(&self) -> Vec<u8> {
        if let Join::Computed(computed) = self { computed.too_long() } else { UNLIKE.to_vec() }
    }

    fn of_values(&mut self, parts: &[Vec<u8>]) -> Option<Step> {
        match self {
            Join::Scan(scan) => scan.step(parts.first()?),
            Join::Drawn(draw) => draw.step(parts),
            _ => self.joined(parts).map(Step::Whole),
        }
    }

    fn joined(&self, parts: &[Vec<u8>]) -> Option<Vec<u8>> {
        match self {
            Join::Least => least(parts),
            Join::Said(said) => Some(said.to_vec()),
            Join::Running => parts.iter().find(|part| runs_script(part)).or(parts.first()).cloned(),
            Join::Drawn(_)
            | Join::Scan(_)
            | Join::SlotScan(_)
            | Join::OneDid
            | Join::Kept(_)
            | Join::Pop(_)
            | Join::StreamWait(_)
            | Join::Streams(..)
            | Join::GroupRead(_) => None,
            Join::Computed(computed) => computed.answer(parts),
            Join::First => parts.first().cloned(),
            Join::Sum => {
                let mut numbers = parts.iter().map(|part| number(part));
                let sum = numbers.try_fold(0i64, |sum, number| sum.checked_add(number?))?;
                Some(format!(":{sum}\r\n").into_bytes())
            }
            Join::Corrected(by) => {
                let number = number(parts.first()?)?.saturating_add(*by).max(0);
                Some(format!(":{number}\r\n").into_bytes())
            }
            Join::Concat => {
                let arrays = parts.iter().map(|part| elements(part)).collect::<Option<Vec<_>>>()?;
                Some(array(&arrays.concat()))
            }
            Join::Places(places) => {
                let arrays = parts.iter().map(|part| elements(part)).collect::<Option<Vec<_>>>()?;
                let mut rests: Vec<_> = arrays.iter().map(|array| array.iter()).collect();
                let picked = places.iter().map(|part| rests.get_mut(usize::from(*part))?.next().copied());
                Some(array(&picked.collect::<Option<Vec<_>>>()?))
            }
            Join::Both => {
                let arrays = parts.iter().map(|part| elements(part)).collect::<Option<Vec<_>>>()?;
                let first = arrays.first()?;
                let both = |at: usize| arrays.iter().all(|array| array.get(at) == Some(&&b":1\r\n"[..]));
                let joined: Vec<&[u8]> =
                    (0..first.len()).map(|at| if both(at) { &b":1\r\n"[..] } else { b":0\r\n" }).collect();
                Some(array(&joined))
            }
        }
    }
}

/// Of so many servers, or slots, keys may be that one client waits for.
const WAITED_FOR_MAX: usize = 64;

/// Whether keys may be waited for that are of so many servers, or slots.
///
/// # Errors
/// They are too many.
pub fn check_waited_for(count: usize) -> Result<(), Error> {
    match count > WAITED_FOR_MAX {
        true => Err(Error::text("CROSSSLOT Keys in request are of more slots than can be waited for")),
        false => Ok(()),
    }
}

/// What is waited for, and where, as a name: nothing else makes the same.
pub fn crowd<'n>(kind: &[&[u8]], names: impl Iterator<Item = (NodeNo, &'n [u8])>) -> Vec<u8> {
    let mut names: Vec<_> = names.collect();
    names.sort_unstable();
    let mut crowd = Vec::new();
    kind.iter().for_each(|word| encode_arg(&mut crowd, word));
    for (node, name) in names {
        crowd.extend_from_slice(&node.to_le_bytes());
        encode_arg(&mut crowd, name);
    }
    crowd
}

/// How long it is to a moment; None: there is none.
pub fn time_until(until: Option<Instant>) -> Option<Duration> {
    until.map(|until| until.saturating_duration_since(Instant::now()))
}

/// Whether so little time is left that a server which says that there was nothing is right, and not early.
pub fn is_late(until: Option<Instant>) -> bool {
    const NO_TIME: Duration = Duration::from_millis(20);
    until.is_some_and(|until| until <= Instant::now() + NO_TIME)
}

pub fn is_null(reply: &[u8]) -> bool {
    reply.starts_with(b"$-1") || reply.starts_with(b"_") || reply.starts_with(b"*-1")
}

fn least(parts: &[Vec<u8>]) -> Option<Vec<u8>> {
    let least_of = |numbers: Option<Vec<i64>>| Some(format!(":{}\r\n", numbers?.iter().min()?).into_bytes());
    if !parts.first()?.starts_with(b"*") {
        return least_of(parts.iter().map(|part| number(part)).collect());
    }
    let arrays = parts.iter().map(|part| elements(part)).collect::<Option<Vec<_>>>()?;
    let in_place = |at: usize| least_of(arrays.iter().map(|array| number(array.get(at)?)).collect());
    let places = (0..arrays.first()?.len()).map(in_place).collect::<Option<Vec<_>>>()?;
    Some(array(&places.iter().map(|place| &place[..]).collect::<Vec<_>>()))
}

/// Each part has some of its streams, in their order; one that has none is null, or was not waited for. Of errors the first in the order of the request stands for all: there
/// is one place at most that is none, the last, and types are looked at in front of it.
pub fn streams(protocol: Protocol, order: &[(u16, Vec<u8>)], parts: &[Vec<u8>]) -> Option<Vec<u8>> {
    let of = |begin: &[u8]| parts.iter().find(|part| part.starts_with(begin)).cloned();
    if let Some(error) = of(b"-WRONGTYPE ").or_else(|| of(b"-")) {
        return Some(error);
    }
    let read = parts
        .iter()
        .map(|part| if part.is_empty() || is_null(part) { Some(Vec::new()) } else { streams_of(part) });
    let mut rests: Vec<_> = read.map(|read| Some(read?.into_iter().peekable())).collect::<Option<_>>()?;
    let mut found = Vec::new();
    for (part, name) in order {
        let rest = rests.get_mut(usize::from(*part))?;
        found.extend(rest.next_if(|(one, _)| *one == &name[..]).map(|(_, stream)| stream));
    }
    // Whatever is left is of no stream that was asked for.
    if rests.iter_mut().any(|rest| rest.next().is_some()) {
        return None;
    }
    let head = match (protocol, found.len()) {
        (Protocol::Resp2, 0) => "*-1\r\n".to_owned(),
        (Protocol::Resp3, 0) => "_\r\n".to_owned(),
        (Protocol::Resp2, count) => format!("*{count}\r\n"),
        (Protocol::Resp3, count) => format!("%{count}\r\n"),
    };
    Some([&[head.as_bytes()], &found[..]].concat().concat())
}

/// The streams of one answer: each one's encoded name, and all that is said of it.
fn streams_of(reply: &[u8]) -> Option<Vec<(&[u8], &[u8])>> {
    let Some(pairs) = reply.strip_prefix(b"%") else {
        let name = |stream| elements(stream)?.first().copied();
        return elements(reply)?.into_iter().map(|stream| Some((name(stream)?, stream))).collect();
    };
    let end = pairs.iter().position(|byte| *byte == b'\n')? + 1;
    let count = parse_int(pairs[..end].strip_suffix(b"\r\n")?)?;
    let (mut rest, mut found) = (&pairs[end..], Vec::new());
    for _ in 0..count.max(0) {
        let name = skip_reply(rest).ok()??;
        let all = name + skip_reply(&rest[name..]).ok()??;
        found.push((&rest[..name], &rest[..all]));
        rest = &rest[all..];
    }
    Some(found)
}

fn one_that_did(parts: &[Vec<u8>]) -> Vec<u8> {
    let is_error = |part: &&Vec<u8>| part.first() == Some(&b'-');
    let did = parts.iter().find(|part| !is_error(part));
    let says_more = || parts.iter().find(|part| !part.starts_with(b"-NOTBUSY"));
    did.or_else(says_more).or(parts.first()).cloned().unwrap_or_else(|| UNLIKE.to_vec())
}

/// Whether the first thing that FUNCTION STATS tells, which is the script that runs, is one.
fn runs_script(reply: &[u8]) -> bool {
    let behind = |bytes: &[u8]| bytes.iter().position(|byte| *byte == b'\n').map(|end| end + 1);
    let name = behind(reply).map(|end| &reply[end..]);
    let script = name.and_then(|name| name.get(skip_reply(name).ok()??..));
    script.is_some_and(|script| !is_null(script))
}

pub fn number(reply: &[u8]) -> Option<i64> {
    parse_int(reply.strip_prefix(b":")?.strip_suffix(b"\r\n")?)
}

/// The number in a string.
pub fn text(reply: &[u8]) -> Option<u64> {
    let end = reply.iter().position(|byte| *byte == b'\n')?;
    std::str::from_utf8(reply.get(end + 1..)?.strip_suffix(b"\r\n")?).ok()?.parse().ok()
}

/// The bytes of a string.
pub fn text_of(reply: &[u8]) -> Option<&[u8]> {
    let end = reply.iter().position(|byte| *byte == b'\n')?;
    reply.starts_with(b"$").then(|| reply.get(end + 1..)?.strip_suffix(b"\r\n"))?
}

/// The elements of an array.
pub fn elements(reply: &[u8]) -> Option<Vec<&[u8]>> {
    let end = reply.iter().position(|byte| *byte == b'\n')? + 1;
    let count = parse_int(reply[..end].strip_prefix(b"*")?.strip_suffix(b"\r\n")?)?;
    let (mut rest, mut found) = (&reply[end..], Vec::new());
    for _ in 0..count.max(0) {
        let (element, behind) = rest.split_at(skip_reply(rest).ok()??);
        found.push(element);
        rest = behind;
    }
    Some(found)
}

pub fn array(elements: &[&[u8]]) -> Vec<u8> {
    let mut reply = Vec::with_capacity(16 + elements.iter().map(|element| element.len()).sum::<usize>());
    write!(reply, "*{}\r\n", elements.len()).expect("memory takes it");
    elements.iter().for_each(|element| reply.extend_from_slice(element));
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(join: &Join, parts: &[&str]) -> String {
        let parts: Vec<Vec<u8>> = parts.iter().map(|part| part.as_bytes().to_vec()).collect();
        let Step::Whole(reply) = join.clone().step(&parts) else { panic!("{join:?} asks on") };
        String::from_utf8(reply).unwrap()
    }

    #[test]
    fn who_waits_for_something_else_or_elsewhere_is_in_another_crowd() {
        type Names<'n> = [(NodeNo, &'n [u8]); 2];
        let crowd = |kind: &[&[u8]], names: Names<'_>| super::crowd(kind, names.into_iter());
        let one = crowd(&[b"LIST"], [(0, b"a"), (1, b"b")]);
        assert_eq!(one, crowd(&[b"LIST"], [(1, b"b"), (0, b"a")]));
        assert_ne!(one, crowd(&[b"ZSET"], [(0, b"a"), (1, b"b")]));
        assert_ne!(one, crowd(&[b"GROUP", b"LIST"], [(0, b"a"), (1, b"b")]));
        assert_ne!(one, crowd(&[b"LIST"], [(0, b"a"), (1, b"c")]));
        // It waits at another server, since the keys are there by now.
        assert_ne!(one, crowd(&[b"LIST"], [(0, b"a"), (2, b"b")]));
    }

    #[test]
    fn replies_become_what_one_server_would_say() {
        assert_eq!(joined(&Join::Sum, &[":1\r\n", ":2\r\n", ":0\r\n"]), ":3\r\n");
        assert_eq!(joined(&Join::Corrected(-2), &[":3\r\n"]), ":1\r\n");
        assert_eq!(joined(&Join::First, &["+OK\r\n", "+OK\r\n"]), "+OK\r\n");
        assert_eq!(
            joined(&Join::Concat, &["*1\r\n$1\r\na\r\n", "*0\r\n", "*2\r\n$1\r\nb\r\n$0\r\n\r\n"]),
            "*3\r\n$1\r\na\r\n$1\r\nb\r\n$0\r\n\r\n"
        );
        assert_eq!(
            joined(&Join::Places(vec![1, 0, 1]), &["*1\r\n$-1\r\n", "*2\r\n$1\r\nb\r\n$1\r\nc\r\n"]),
            "*3\r\n$1\r\nb\r\n$-1\r\n$1\r\nc\r\n"
        );
        let counts = |all: [i64; 3]| all.map(|count| format!(":{count}\r\n").into_bytes());
        let drawn = |luck, all| {
            let mut join = Join::Drawn(Box::new(Draw::begin(&[4, 5, 6], b"asks".to_vec(), luck)));
            let Step::More(parts) = join.step(&counts(all)) else { panic!("it is not drawn") };
            assert_eq!(join.step(&[b"$1\r\na\r\n".to_vec()]), Step::Whole(b"$1\r\na\r\n".to_vec()));
            parts[0].0
        };
        let mut drawn_of = [0; 3];
        (0..300).for_each(|luck| drawn_of[usize::from(drawn(luck, [2, 0, 1])) - 4] += 1);
        assert!(drawn_of[0] > 170 && drawn_of[1] == 0 && drawn_of[2] > 70, "{drawn_of:?}");
        assert_eq!(drawn(7, [0, 0, 0]), 4);
        assert_eq!(joined(&Join::Least, &[":7\r\n", ":5\r\n", ":6\r\n"]), ":5\r\n");
        assert_eq!(joined(&Join::Least, &["*2\r\n:1\r\n:2\r\n", "*2\r\n:0\r\n:3\r\n"]), "*2\r\n:0\r\n:2\r\n");
        assert_eq!(joined(&Join::OneDid, &["-NOTBUSY a\r\n", "+OK\r\n", "-ERR\r\n"]), "+OK\r\n");
        assert_eq!(joined(&Join::OneDid, &["-NOTBUSY a\r\n", "-UNKILLABLE\r\n"]), "-UNKILLABLE\r\n");
        assert_eq!(joined(&Join::OneDid, &["-NOTBUSY a\r\n", "-NOTBUSY a\r\n"]), "-NOTBUSY a\r\n");
        let (idle, runs) = ("%2\r\n$1\r\nr\r\n_\r\n", "*4\r\n$1\r\nr\r\n*0\r\n");
        assert_eq!(joined(&Join::Running, &[idle, runs]), runs);
        assert_eq!(joined(&Join::Running, &[idle, idle]), idle);
        assert_eq!(joined(&Join::Both, &["*2\r\n:1\r\n:1\r\n", "*2\r\n:0\r\n:1\r\n"]), "*2\r\n:0\r\n:1\r\n");
    }

    #[test]
    fn streams_come_in_the_order_of_the_request() {
        let order = ["a", "b", "c", "a"].map(|name| format!("$1\r\n{name}\r\n").into_bytes());
        let order: Vec<(u16, Vec<u8>)> = [1, 0, 1, 1].into_iter().zip(order).collect();
        let stream = |name| format!("*2\r\n$1\r\n{name}\r\n*0\r\n");
        let join = Join::Streams(Protocol::Resp2, order.clone());
        let two = format!("*2\r\n{}{}", stream("c"), stream("a"));
        let one = format!("*1\r\n{}", stream("b"));
        let both = format!("*3\r\n{}{}{}", stream("b"), stream("c"), stream("a"));
        assert_eq!(joined(&join, &[&one, &two]), both);
        assert_eq!(joined(&join, &["*-1\r\n", "*-1\r\n"]), "*-1\r\n");
        assert_eq!(joined(&join, &[&two, &one]).as_bytes(), UNLIKE);
        let join = Join::Streams(Protocol::Resp3, order);
        let one = "%1\r\n$1\r\nb\r\n*0\r\n";
        assert_eq!(joined(&join, &[one, "_\r\n"]), one);
        assert_eq!(joined(&join, &["_\r\n", "_\r\n"]), "_\r\n");
    }

    #[test]
    fn an_error_is_the_reply_to_all() {
        assert_eq!(joined(&Join::Sum, &[":1\r\n", "-MISCONF no\r\n"]), "-MISCONF no\r\n");
        assert_eq!(joined(&Join::Sum, &[":1\r\n", "$1\r\na\r\n"]).as_bytes(), UNLIKE);
        assert_eq!(joined(&Join::Places(vec![0, 0]), &["*1\r\n$1\r\na\r\n"]).as_bytes(), UNLIKE);
        assert_eq!(joined(&Join::Sum, &[":9223372036854775807\r\n", ":1\r\n"]).as_bytes(), UNLIKE);
    }
}
