//! XREADGROUP of streams that are several servers'.
//!
//! Each stream's server is asked what it knows of the group (`XINFO GROUPS`), so that what is wrong with any of them is told before something is delivered. Then all
//! servers are asked, without BLOCK, and what they deliver is the reply. Where nothing is there, and the command waits, all are asked to say when something is (`XREAD`,
//! which delivers nothing), over connections that the client has to itself. The first that says so ends that, and is asked for it; where another consumer was faster, all are waited
//! for anew, behind what the group has been given by then. So they are every now and then, since XREAD does not say that a group is no more. Of those who wait for the same
//! at one worker the first alone does so at servers (see `links/crowds.rs`): the next asks them all for entries when that one has ended.
//!
//! Invariants:
//! 1. Nothing is delivered by what waits, so that nothing is delivered to a client that goes away while it waits.
//! 2. What was delivered is told: an error is the reply only where no server has delivered anything. What one does that is lost in that moment stays pending, as for any client
//!    whose connection is lost.
//! 3. Who waits does so behind what the group has been given, whenever that was: what is there for it, or comes before its server is asked to wait, is not missed.

use crate::joins::{
    Part, Step, UNLIKE, check_waited_for, crowd, is_late, is_null, streams as joined, time_until,
};
use crate::links::Patience;
use crate::stream_waits::{Streams, check_figures, until_of, with_time};
use command::Error;
use std::time::{Duration, Instant};
use sys::UnixMs;
use value::stream::{IdText, StreamId};
use value::text::until_zero;
use wire::{Decoder, Protocol, Reply, Value, encode_request};

/// The most streams of a request: each is asked for by a request of its own.
const STREAMS_MAX: usize = 1024;
/// How long servers wait before they are asked again whether the group is there. It costs them two requests.
const LOOK: Duration = Duration::from_secs(5);

/// What was asked last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Each stream's server, what it knows of the group, before anything else or again.
    Looked { is_first: bool },
    /// Servers, for entries: all before anything was waited for, or those that have said that they have some.
    Read { is_first: bool },
    /// All servers, to say when there are some, until this moment at the latest.
    Waiting(Instant),
    /// None: another waits for the same.
    Behind,
}

/// One such request on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupRead {
    protocol: Protocol,
    streams: Streams,
    group: Vec<u8>,
    /// The words in front of the names, but for the time.
    options: Vec<Vec<u8>>,
    /// Until when it waits, or for ever, if it does.
    until: Option<Option<Instant>>,
    /// What the group had been given of each stream, in the order of the request.
    given: Vec<StreamId>,
    /// Of which parts entries were asked.
    asked: Vec<usize>,
    state: State,
    /// Somebody has had its client woken.
    is_woken: bool,
}

impl GroupRead {
    /// What is wrong with the options of a request, or where its streams are.
    ///
    /// # Errors
    /// That, in Redis' words; its streams are of more servers than one client waits at, or too many.
    pub fn check(streams: &Streams, now: UnixMs) -> Result<(), Error> {
        check_figures(streams.options(), now)?;
        group_of(streams).ok_or(Error::XREADGROUP_NO_GROUP)?;
        match streams.order.len() > STREAMS_MAX {
            true => Err(Error::text("ERR proxy: XREADGROUP reads 1024 streams of several slots at most")),
            false => check_waited_for(streams.owner_count()),
        }
    }

    /// Begins with the first question. None: there is something wrong with its options.
    pub fn begin(streams: &Streams, protocol: Protocol) -> Option<(GroupRead, Vec<Part>)> {
        GroupRead::check(streams, UnixMs(0)).ok()?;
        let (options, time) = streams.without_time();
        let read = GroupRead {
            protocol,
            group: group_of(streams)?.to_vec(),
            options,
            until: until_of(time),
            streams: streams.clone(),
            given: Vec::new(),
            asked: (0..streams.owner_count()).collect(),
            state: State::Looked { is_first: true },
            is_woken: false,
        };
        let first = read.look();
        Some((read, first))
    }

    /// Whether servers wait now: the first that has something is enough.
    pub fn is_waiting(&self) -> bool {
        matches!(self.state, State::Waiting(_))
    }

    /// What it waits for: whoever waits for the same is given what it is not.
    pub fn crowd(&self) -> Vec<u8> {
        let names = self.streams.each().map(|((node, _), name, _)| (node, name));
        crowd(&[b"GROUP", &self.group], names)
    }

    /// Another waits for the same, and this one until that has ended: for so long, if not for ever.
    pub fn stand_behind(&mut self) -> Option<Duration> {
        self.state = State::Behind;
        time_until(self.until.flatten())
    }

    /// Whether servers are asked for entries now.
    pub fn is_taking(&self) -> bool {
        matches!(self.state, State::Read { .. })
    }

    /// Whether it waits so.
    pub fn is_behind(&self) -> bool {
        self.state == State::Behind
    }

    /// That one has ended.
    pub fn go_on(&mut self) -> Step {
        self.asked = (0..self.streams.owner_count()).collect();
        self.ask(false)
    }

    /// Somebody has had the client woken, which is told so.
    pub fn note_woken(&mut self) {
        self.is_woken = true;
    }

    /// Whether a server's reply is enough, whatever the others say: there is something, it is an error, or its client is to wait no more.
    pub fn is_ended_by(&self, reply: &[u8]) -> bool {
        match self.state {
            State::Waiting(until) => !is_null(reply) || self.is_woken || !is_late(Some(until)),
            State::Looked { .. } | State::Read { .. } | State::Behind => false,
        }
    }

    /// All that was asked is answered; or, of what waits, one.
    pub fn step(&mut self, parts: &[Vec<u8>]) -> Step {
        match self.state {
            State::Looked { is_first } => {
                match self.looked(parts) {
                    Ok(given) => self.given = given,
                    Err(error) => return Step::Whole(error),
                }
                if is_first { self.ask(true) } else { self.wait() }
            }
            State::Read { is_first } => self.read(is_first, parts),
            State::Waiting(until) => self.waited(until, parts),
            State::Behind => self.waited(Instant::now() + LOOK, parts),
        }
    }

    fn look(&self) -> Vec<Part> {
        let streams = self.streams.each();
        let parts = streams.map(|((node, slot), name, _)| {
            let mut bytes = Vec::new();
            encode_request(&mut bytes, &[b"XINFO", b"GROUPS", name]);
            (node, slot, bytes)
        });
        parts.collect()
    }

    /// What the group was given of each stream, or what is wrong with the first that has something wrong.
    fn looked(&self, parts: &[Vec<u8>]) -> Result<Vec<StreamId>, Vec<u8>> {
        let line = |error: Error| {
            let mut line = Vec::new();
            Reply::new(&mut line, self.protocol).error(error.as_bytes());
            line
        };
        let told = self.streams.each().zip(parts);
        let given = told.map(|((_, name, id), part)| {
            let is_missing = part.starts_with(NO_SUCH_KEY);
            if part.starts_with(b"-") && !is_missing {
                return Err(part.clone());
            }
            let groups = Some(part).filter(|_| !is_missing).and_then(|part| value_of(part));
            let given = groups.and_then(|groups| last_given(&groups, &self.group));
            let no_group = || Error::no_group(name, &self.group, " in XREADGROUP with GROUP option");
            let given = given.ok_or_else(|| line(no_group()))?;
            match until_zero(id) {
                b"$" => Err(line(Error::XREADGROUP_LAST)),
                b">" => Ok(given),
                _ => StreamId::parse(id, 0).map(|_| given).map_err(|_| line(Error::STREAM_ID)),
            }
        });
        given.collect()
    }

    /// Asks for entries.
    fn ask(&mut self, is_first: bool) -> Step {
        self.state = State::Read { is_first };
        let parts = self.streams.parts_with(&self.options).into_iter().enumerate();
        Step::More(parts.filter(|(at, _)| self.asked.contains(at)).map(|(_, part)| part).collect())
    }

    fn read(&mut self, is_first: bool, parts: &[Vec<u8>]) -> Step {
        let is_error = |part: &Vec<u8>| part.starts_with(b"-");
        let mut all = vec![Vec::new(); self.streams.owner_count()];
        self.asked.iter().zip(parts).for_each(|(at, part)| all[*at].clone_from(part));
        if parts.iter().any(|part| !is_error(part) && !is_null(part)) {
            all.iter_mut().filter(|part| is_error(part)).for_each(Vec::clear);
            let whole = joined(self.protocol, &self.streams.order, &all);
            return Step::Whole(whole.unwrap_or_else(|| UNLIKE.to_vec()));
        }
        let mut in_order = self.streams.order.iter().map(|(part, _)| &all[usize::from(*part)]);
        match in_order.find(|part| is_error(part)) {
            Some(error) => Step::Whole(error.clone()),
            None if is_first => self.wait(),
            None => self.look_again(),
        }
    }

    /// How long servers are to wait, if they are.
    fn left(&self) -> Option<Duration> {
        let until = self.until.filter(|_| !self.is_woken)?;
        let left = until.map_or(LOOK, |until| until.saturating_duration_since(Instant::now()).min(LOOK));
        Some(left).filter(|left| *left >= Duration::from_millis(1))
    }

    fn look_again(&mut self) -> Step {
        if self.left().is_none() {
            return self.nothing();
        }
        self.state = State::Looked { is_first: false };
        Step::More(self.look())
    }

    fn wait(&mut self) -> Step {
        let Some(left) = self.left() else { return self.nothing() };
        self.state = State::Waiting(Instant::now() + left);
        let options = ["XREAD", "COUNT", "1", "STREAMS"].map(|word| word.as_bytes().to_vec()).to_vec();
        let streams = self.streams.behind(self.given.iter().map(|id| IdText::of(*id).as_bytes().to_vec()));
        Step::Wait(streams.parts_with(&with_time(options, Some(left))), Patience::Until(left))
    }

    fn waited(&mut self, until: Instant, parts: &[Vec<u8>]) -> Step {
        if let Some(error) = parts.iter().find(|part| part.starts_with(b"-")) {
            return Step::Whole(error.clone());
        }
        let has_something = |at: &usize| !parts[*at].is_empty() && !is_null(&parts[*at]);
        self.asked = (0..parts.len()).filter(has_something).collect();
        match self.asked.is_empty() {
            false => self.ask(false),
            true if is_late(Some(until)) => self.look_again(),
            // Somebody has said at its server that it is to wait no more.
            true => self.nothing(),
        }
    }

    fn nothing(&self) -> Step {
        let null: &[u8] = if self.protocol == Protocol::Resp3 { b"_\r\n" } else { b"*-1\r\n" };
        Step::Whole(null.to_vec())
    }
}

/// What XINFO says of a stream that is not there.
const NO_SUCH_KEY: &[u8] = b"-ERR no such key";

/// The group that a request names; of several the last one counts.
fn group_of(streams: &Streams) -> Option<&[u8]> {
    let names_one = |option: &&[Vec<u8>]| option[0].eq_ignore_ascii_case(b"group");
    streams.options().filter(names_one).last()?.get(1).map(Vec::as_slice)
}

fn value_of(reply: &[u8]) -> Option<Value> {
    let mut decoder = Decoder::new();
    decoder.feed(reply);
    decoder.decode().ok()?
}

/// What a group was given last, by what XINFO GROUPS says.
fn last_given(groups: &Value, group: &[u8]) -> Option<StreamId> {
    let Value::Array(groups) = groups else { return None };
    let is_named = |one: &&Value| matches!(field(one, b"name"), Some(Value::Bulk(name)) if name == group);
    match field(groups.iter().find(is_named)?, b"last-delivered-id")? {
        Value::Bulk(id) => StreamId::parse(id, 0).ok(),
        _ => None,
    }
}

/// A field of a map, which is an array of names and values in RESP2.
fn field<'v>(map: &'v Value, wanted: &[u8]) -> Option<&'v Value> {
    let is_it = |name: &Value| matches!(name, Value::Bulk(name) if name == wanted);
    match map {
        Value::Map(pairs) => pairs.iter().find(|(name, _)| is_it(name)).map(|(_, value)| value),
        Value::Array(words) => words.chunks_exact(2).find(|pair| is_it(&pair[0])).map(|pair| &pair[1]),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::Upstream;
    use wire::RequestBuf;

    fn begin(line: &str) -> (GroupRead, Vec<Part>) {
        let routes = Upstream::fixed("a:1,b:1,c:1").unwrap().routes();
        let request = RequestBuf::from_args(line.split(' '));
        let streams = Streams::of(&routes, &request.as_request()).unwrap();
        GroupRead::begin(&streams, Protocol::Resp2).unwrap()
    }

    fn lines(parts: &[Part]) -> Vec<String> {
        let line = |bytes: &[u8]| {
            let text = std::str::from_utf8(bytes).unwrap();
            text.lines().filter(|line| !line.starts_with(['*', '$'])).collect::<Vec<_>>().join(" ")
        };
        parts.iter().map(|(.., bytes)| line(bytes)).collect()
    }

    fn asked(step: Step) -> Vec<String> {
        match step {
            Step::More(parts) | Step::Wait(parts, _) => lines(&parts),
            Step::Whole(whole) => panic!("{}", whole.escape_ascii()),
        }
    }

    fn told(step: Step) -> String {
        let Step::Whole(whole) = step else { panic!("it asks on") };
        whole.escape_ascii().to_string()
    }

    /// What a server says of a stream whose group `g` was given all up to here.
    fn groups(id: &str) -> Vec<u8> {
        let (other, name) = ("*4\r\n$4\r\nname\r\n$1\r\nh\r\n$1\r\nx\r\n:1\r\n", "$4\r\nname\r\n$1\r\ng\r\n");
        let last = format!("$17\r\nlast-delivered-id\r\n${}\r\n{id}\r\n", id.len());
        format!("*2\r\n{other}*4\r\n{name}{last}").into_bytes()
    }

    const NULL: &[u8] = b"*-1\r\n";
    /// Slots of foo and hello: the third server's, and the first one's.
    const REQUEST: &str = "XREADGROUP COUNT 2 GROUP g streams BLOCK 0 STREAMS foo hello > >";

    #[test]
    fn what_waits_delivers_nothing() {
        let (mut read, first) = begin(REQUEST);
        assert_eq!(lines(&first), ["XINFO GROUPS foo", "XINFO GROUPS hello"]);
        let reads = [
            "XREADGROUP COUNT 2 GROUP g streams STREAMS hello >",
            "XREADGROUP COUNT 2 GROUP g streams STREAMS foo >",
        ];
        assert_eq!(asked(read.step(&[groups("7-1"), groups("8-0")])), reads);
        let waiting = read.step(&[NULL.to_vec(), NULL.to_vec()]);
        assert!(read.is_waiting() && matches!(waiting, Step::Wait(_, Patience::Until(time)) if time == LOOK));
        let waits =
            ["XREAD COUNT 1 BLOCK 5000 STREAMS hello 8-0", "XREAD COUNT 1 BLOCK 5000 STREAMS foo 7-1"];
        assert_eq!(asked(waiting), waits);
        let found = b"*1\r\n*2\r\n$3\r\nfoo\r\n*0\r\n".to_vec();
        assert!(read.is_ended_by(&found));
        assert_eq!(asked(read.step(&[Vec::new(), found.clone()])), reads[1..]);
        // Another was faster: what that one was given is not waited for again.
        assert_eq!(asked(read.step(&[NULL.to_vec()])), lines(&first));
        let waits =
            ["XREAD COUNT 1 BLOCK 5000 STREAMS hello 8-0", "XREAD COUNT 1 BLOCK 5000 STREAMS foo 7-2"];
        assert_eq!(asked(read.step(&[groups("7-2"), groups("8-0")])), waits);
        assert_eq!(asked(read.step(&[found.clone(), found.clone()])), reads);
        // What was delivered counts, though another is lost.
        let step = read.step(&[b"-UNANSWERED\r\n".to_vec(), found.clone()]);
        assert_eq!(step, Step::Whole(found));
    }

    #[test]
    fn what_is_wrong_is_told_before_anything_is_delivered() {
        let no_key = b"-ERR no such key\r\n".to_vec();
        let missing = "-NOGROUP No such key \\'hello\\' or consumer group \\'g\\' in XREADGROUP with GROUP option\\r\\n";
        let first = |line: &str, parts: [Vec<u8>; 2]| told(begin(line).0.step(&parts));
        assert_eq!(first(REQUEST, [groups("1-0"), no_key.clone()]), missing);
        assert_eq!(first(REQUEST, [groups("1-0"), b"*0\r\n".to_vec()]), missing);
        let wrong = b"-WRONGTYPE x\r\n".to_vec();
        assert_eq!(first(REQUEST, [wrong, no_key.clone()]), "-WRONGTYPE x\\r\\n");
        let last = "XREADGROUP GROUP g c STREAMS foo hello $ >";
        assert!(first(last, [groups("1-0"), no_key]).starts_with("-ERR The $ ID is meaningless"));
    }

    #[test]
    fn a_wait_ends_when_somebody_says_so_and_else_goes_on() {
        let (mut read, _) = begin(REQUEST);
        let mut wait = |is_woken: bool, until: Instant| {
            read.state = State::Waiting(until);
            read.is_woken = is_woken;
            (read.is_ended_by(NULL), matches!(read.step(&[NULL.to_vec(), NULL.to_vec()]), Step::Whole(_)))
        };
        let now = Instant::now();
        assert_eq!(wait(false, now + LOOK), (true, true));
        assert_eq!(wait(false, now), (false, false));
        assert_eq!(wait(true, now), (true, true));
    }

    #[test]
    fn a_name_with_line_ends_makes_one_line() {
        let (mut read, _) = begin("XREADGROUP GROUP g\r\nx alice STREAMS foo hello > >");
        let missing = || NO_SUCH_KEY.to_vec();
        let said = "-NOGROUP No such key \\'foo\\' or consumer group \\'g  x\\' in XREADGROUP with GROUP option\\r\\n";
        assert_eq!(told(read.step(&[missing(), missing()])), said);
    }
}
