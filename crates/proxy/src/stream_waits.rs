//! XREAD with BLOCK of streams that are several servers'.
//!
//! All servers are asked for what is there, as without BLOCK; where there is something, that is the reply. Where there is nothing, all are asked to wait, each for its
//! streams, over connections that the client has to itself, and the first that has something ends it.
//!
//! Nothing is taken from a stream by reading it: what another server has found by then is there for the next request. A `$` means what a stream holds when its server
//! is asked to wait, which is within the time of the request.

use crate::joins::{Part, Step, check_waited_for, is_late, is_null, streams};
use crate::links::Patience;
use crate::upstream::{NodeNo, Routes};
use command::Error;
use command::parse::{int, timeout_ms};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use sys::UnixMs;
use value::stream::StreamId;
use wire::{Protocol, Request, encode_arg, encode_request_header};

/// The streams of XREAD, or XREADGROUP, by those who have them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Streams {
    /// The words in front of the names, of which the first is the command and the last `STREAMS`.
    options: Vec<Vec<u8>>,
    owners: Vec<Owner>,
    /// All of them in the order of the request, by the place of their owner, and their encoded names.
    pub order: Vec<(u16, Vec<u8>)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Owner {
    node: NodeNo,
    slot: Option<u16>,
    /// Names, and what is read behind.
    names: Vec<Vec<u8>>,
    ids: Vec<Vec<u8>>,
}

/// Why a request is not one of several servers' streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// It is wrong, which any server says in its words.
    Wrong,
    /// A slot is nobody's.
    NotServed,
}

impl Streams {
    /// Reads a request: its streams stand behind its options, all names in front of all places.
    ///
    /// # Errors
    /// Why they cannot be told apart.
    pub fn of(routes: &Routes, request: &Request<'_>) -> Result<Streams, Unfit> {
        let at = streams_at(request);
        let count = at.map_or(0, |at| request.len() - at);
        let at = at.filter(|_| count > 0 && count.is_multiple_of(2)).ok_or(Unfit::Wrong)?;
        let mut owners: BTreeMap<(NodeNo, Option<u16>), Owner> = BTreeMap::new();
        let mut keys = Vec::new();
        let id = |key: usize| request.arg(key + count / 2);
        // A server looks at one stream after the other, and no further than to what is no place.
        let is_read = request.arg(0).eq_ignore_ascii_case(b"xread");
        let is_last = |key: &usize| is_read && !is_place(id(*key));
        let end = (at..at + count / 2).find(is_last).map_or(at + count / 2, |key| key + 1);
        for key in at..end {
            let (node, slot) = routes.owner_of(request.arg(key)).ok_or(Unfit::NotServed)?;
            let new = || Owner { node, slot, names: Vec::new(), ids: Vec::new() };
            let owner = owners.entry((node, slot)).or_insert_with(new);
            owner.names.push(request.arg(key).to_vec());
            // Nor is what later versions know (`+`) one to any server, so that all of them say so.
            owner.ids.push(if is_read && id(key) == b"+" { b"?" } else { id(key) }.to_vec());
            keys.push(((node, slot), key));
        }
        let numbers: BTreeMap<_, u16> = owners.keys().copied().zip(0..).collect();
        let order = keys.iter().map(|(owner, key)| {
            let mut name = Vec::new();
            encode_arg(&mut name, request.arg(*key));
            (numbers[owner], name)
        });
        Ok(Streams {
            options: (0..at).map(|word| request.arg(word).to_vec()).collect(),
            order: order.collect(),
            owners: owners.into_values().collect(),
        })
    }

    /// The request in parts, with what else it says.
    pub fn parts(&self) -> Vec<Part> {
        self.parts_with(&self.options)
    }

    /// The same with other words in front of the names.
    pub fn parts_with(&self, options: &[Vec<u8>]) -> Vec<Part> {
        let part = |owner: &Owner| {
            let mut bytes = Vec::new();
            encode_request_header(&mut bytes, options.len() + 2 * owner.names.len());
            options
                .iter()
                .chain(&owner.names)
                .chain(&owner.ids)
                .for_each(|word| encode_arg(&mut bytes, word));
            (owner.node, owner.slot, bytes)
        };
        self.owners.iter().map(part).collect()
    }

    /// How many servers, or slots, have some of them.
    pub fn owner_count(&self) -> usize {
        self.owners.len()
    }

    /// Each stream in the order of the request: who has it, its name and what is read behind.
    pub fn each(&self) -> impl Iterator<Item = ((NodeNo, Option<u16>), &[u8], &[u8])> {
        self.places().map(move |(owner, place)| {
            let owner = &self.owners[owner];
            ((owner.node, owner.slot), &owner.names[place][..], &owner.ids[place][..])
        })
    }

    /// The same streams, read behind these places, which are in the order of the request.
    pub fn behind(&self, ids: impl Iterator<Item = Vec<u8>>) -> Streams {
        let mut streams = self.clone();
        for ((owner, place), id) in self.places().zip(ids) {
            streams.owners[owner].ids[place] = id;
        }
        streams
    }

    /// Where each stream is among its owner's, in the order of the request.
    fn places(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let mut next = vec![0; self.owners.len()];
        let place = |(owner, _): &(u16, Vec<u8>)| {
            let place = &mut next[usize::from(*owner)];
            *place += 1;
            (usize::from(*owner), *place - 1)
        };
        self.order.iter().map(place).collect::<Vec<_>>().into_iter()
    }

    /// Its options, each with its words.
    pub fn options(&self) -> impl Iterator<Item = &[Vec<u8>]> {
        let mut rest = &self.options[1..self.options.len() - 1];
        std::iter::from_fn(move || {
            let words = words_of(rest.first()?)?.min(rest.len());
            let (option, behind) = rest.split_at(words);
            rest = behind;
            Some(option)
        })
    }

    /// The words in front of the names without those that have it wait, and how long it is to: of several times the last one counts.
    pub fn without_time(&self) -> (Vec<Vec<u8>>, Option<&[u8]>) {
        let (mut others, mut time) = (vec![self.options[0].clone()], None);
        for option in self.options() {
            match option {
                [word, value] if word.eq_ignore_ascii_case(b"block") => time = Some(&value[..]),
                option => others.extend_from_slice(option),
            }
        }
        others.extend(self.options.last().cloned());
        (others, time)
    }
}

/// The options of a request: where each stands, as far as they are known here. Their words may be any, `STREAMS` among them. The last one is where the names begin,
/// or an option that is not known.
fn options_of<'r>(request: &Request<'r>) -> impl Iterator<Item = (usize, &'r [u8])> {
    let mut next = Some(1);
    std::iter::from_fn(move || {
        let at = next?;
        let word = request.get(at)?;
        next = words_of(word).map(|words| at + words);
        Some((at, word))
    })
}

fn is_streams(word: &[u8]) -> bool {
    word.eq_ignore_ascii_case(b"streams")
}

/// Where the names of a request's streams begin.
fn streams_at(request: &Request<'_>) -> Option<usize> {
    options_of(request).last().filter(|(_, word)| is_streams(word)).map(|(at, _)| at + 1)
}

/// How long a request says that it waits: of several times the last one counts. None: it does not wait. Behind an option that is not known here whatever may be a time is
/// taken for one: a server of a later version may wait, and nobody is to wait behind that.
pub fn block_of<'r>(request: &Request<'r>) -> Option<&'r [u8]> {
    let is_block = |word: &[u8]| word.eq_ignore_ascii_case(b"block");
    let (mut time, mut unknown) = (None, None);
    for (at, word) in options_of(request) {
        if is_block(word) {
            time = request.get(at + 1);
        }
        unknown = Some(at).filter(|_| !is_streams(word) && words_of(word).is_none());
    }
    let behind = |from: usize| (from..request.len()).find(|at| is_block(request.arg(*at)));
    time.or_else(|| request.get(behind(unknown?)? + 1))
}

/// How many words an option has with its own.
fn words_of(option: &[u8]) -> Option<usize> {
    let is = |name: &[u8]| option.eq_ignore_ascii_case(name);
    match () {
        () if is(b"block") || is(b"count") => Some(2),
        () if is(b"group") => Some(3),
        () if is(b"noack") => Some(1),
        () => None,
    }
}

/// Whether XREAD reads behind this: an entry's id, or the last one.
fn is_place(id: &[u8]) -> bool {
    id == b"$" || StreamId::parse(id, 0).is_ok()
}

/// Whether the figures of options are such, in their order.
///
/// # Errors
/// What is wrong with the first that is none, in Redis' words.
pub fn check_figures<'o>(options: impl Iterator<Item = &'o [Vec<u8>]>, now: UnixMs) -> Result<(), Error> {
    for option in options {
        match option {
            [word, time] if word.eq_ignore_ascii_case(b"block") => timeout_ms(time, now).map(drop)?,
            [word, count] if word.eq_ignore_ascii_case(b"count") => int(count).map(drop)?,
            _ => {}
        }
    }
    Ok(())
}

/// Until when a request waits that says so; None inside: it waits for ever. None: it does not say how long, or nothing that makes sense.
pub fn until_of(time: Option<&[u8]>) -> Option<Option<Instant>> {
    let time = timeout_ms(time?, UnixMs(0)).ok()?;
    // What is longer than the clock goes ends as little as what has no end.
    Some(time.and_then(|time| Instant::now().checked_add(Duration::from_millis(time.0))))
}

/// Words in front of the names that have a server wait, for so many milliseconds.
pub fn with_time(mut options: Vec<Vec<u8>>, time: Option<Duration>) -> Vec<Vec<u8>> {
    let time = time.map_or(0, |time| time.as_millis()).to_string().into_bytes();
    // In front of STREAMS.
    let at = options.len() - 1;
    options.splice(at..at, [b"BLOCK".to_vec(), time]);
    options
}

/// One such request on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamWait {
    protocol: Protocol,
    streams: Streams,
    /// The options but for the time.
    options: Vec<Vec<u8>>,
    /// Until when, if not for ever.
    until: Option<Instant>,
    is_waiting: bool,
}

impl StreamWait {
    /// What is wrong with how long a request is to wait, or where.
    ///
    /// # Errors
    /// That, in Redis' words; its streams are of more servers than one client waits at.
    pub fn check(streams: &Streams, now: UnixMs) -> Result<(), Error> {
        // What is only XREADGROUP's is refused by servers, in their words.
        let is_known = |option: &&[Vec<u8>]| option.len() == 2;
        check_figures(streams.options().take_while(is_known), now)?;
        check_waited_for(streams.owners.len())
    }

    /// Begins with the first question. None: it does not say how long it waits, or nothing that makes sense.
    pub fn begin(streams: &Streams, protocol: Protocol) -> Option<(StreamWait, Vec<Part>)> {
        let (options, time) = streams.without_time();
        let until = until_of(time)?;
        let streams = streams.clone();
        let wait = StreamWait { protocol, streams, options, until, is_waiting: false };
        let first = wait.streams.parts_with(&wait.options);
        Some((wait, first))
    }

    /// Whether servers wait now: the first that has something is enough.
    pub fn is_waiting(&self) -> bool {
        self.is_waiting
    }

    /// Whether a server's reply is enough, whatever the others say: there is something, it is an error, or nobody waits there any more though there is time left.
    pub fn is_ended_by(&self, reply: &[u8]) -> bool {
        self.is_waiting && (!is_null(reply) || !is_late(self.until))
    }

    /// All that was asked is answered; or, of what waits, one. None: the replies do not go together.
    pub fn step(&mut self, parts: &[Vec<u8>]) -> Option<Step> {
        let has_something = parts.iter().any(|part| !part.is_empty() && !is_null(part));
        let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
        let is_over = self.is_waiting || left.is_some_and(|left| left < Duration::from_millis(1));
        if has_something || is_over {
            return streams(self.protocol, &self.streams.order, parts).map(Step::Whole);
        }
        self.is_waiting = true;
        let options = with_time(self.options.clone(), left);
        let patience = left.map_or(Patience::ForEver, Patience::Until);
        Some(Step::Wait(self.streams.parts_with(&options), patience))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::Upstream;
    use wire::RequestBuf;

    fn begin(line: &str) -> Option<(StreamWait, Vec<Part>)> {
        let routes = Upstream::fixed("a:1,b:1,c:1").unwrap().routes();
        let request = RequestBuf::from_args(line.split(' '));
        StreamWait::begin(&Streams::of(&routes, &request.as_request()).unwrap(), Protocol::Resp2)
    }

    #[test]
    fn nothing_is_asked_behind_what_is_no_place() {
        for (line, asked) in [
            ("STREAMS foo hello x 2", vec!["XREAD STREAMS foo x"]),
            ("BLOCK 5 STREAMS foo hello foo > 2 1", vec!["XREAD STREAMS foo >"]),
            ("STREAMS foo hello 1 x", vec!["XREAD STREAMS hello x", "XREAD STREAMS foo 1"]),
            ("STREAMS foo hello + 7", vec!["XREAD STREAMS foo ?"]),
        ] {
            let routes = Upstream::fixed("a:1,b:1,c:1").unwrap().routes();
            let request = RequestBuf::from_args(format!("XREAD {line}").split(' '));
            let streams = Streams::of(&routes, &request.as_request()).unwrap();
            assert_eq!(lines(&streams.parts_with(&streams.without_time().0)), asked);
        }
    }

    fn lines(parts: &[Part]) -> Vec<String> {
        let line = |bytes: &[u8]| {
            let text = std::str::from_utf8(bytes).unwrap();
            text.lines().filter(|line| !line.starts_with(['*', '$'])).collect::<Vec<_>>().join(" ")
        };
        parts.iter().map(|(.., bytes)| line(bytes)).collect()
    }

    #[test]
    fn what_is_there_is_told_at_once_and_else_all_are_waited_for() {
        let (mut wait, first) = begin("XREAD COUNT 2 BLOCK 0 STREAMS foo hello 1 2").unwrap();
        assert_eq!(lines(&first), ["XREAD COUNT 2 STREAMS hello 2", "XREAD COUNT 2 STREAMS foo 1"]);
        let null = b"*-1\r\n".to_vec();
        let Some(Step::Wait(parts, Patience::ForEver)) = wait.step(&[null.clone(), null.clone()]) else {
            panic!("nothing is there")
        };
        let waiting = ["XREAD COUNT 2 BLOCK 0 STREAMS hello 2", "XREAD COUNT 2 BLOCK 0 STREAMS foo 1"];
        assert_eq!(lines(&parts), waiting);
        let found = b"*1\r\n*2\r\n$3\r\nfoo\r\n*0\r\n".to_vec();
        assert!(wait.is_waiting() && wait.is_ended_by(&found));
        assert_eq!(wait.step(&[Vec::new(), found.clone()]), Some(Step::Whole(found)));
        // Somebody has said that it is to wait no more.
        assert!(wait.is_ended_by(&null));
        assert_eq!(wait.step(&[null.clone(), Vec::new()]), Some(Step::Whole(null)));
    }

    #[test]
    fn who_says_no_sensible_time_does_not_wait() {
        for time in ["x", "-1", "1.5", "99999999999999999999"] {
            assert!(begin(&format!("XREAD BLOCK {time} STREAMS foo hello 1 2")).is_none(), "{time}");
        }
        assert!(begin("XREAD COUNT block STREAMS foo hello 1 2").is_none());
        // The last one counts, and no server is asked to wait by the way of all others' requests.
        let (_, first) = begin("XREAD BLOCK 5 COUNT 1 block 0 STREAMS foo hello 1 2").unwrap();
        assert_eq!(lines(&first), ["XREAD COUNT 1 STREAMS hello 2", "XREAD COUNT 1 STREAMS foo 1"]);
        assert!(begin("XREAD BLOCK 5 BLOCK x STREAMS foo hello 1 2").is_none());
        assert!(begin("XREAD BLOCK streams STREAMS foo hello 1 2").is_none());
    }
    #[test]
    fn the_first_figure_that_is_none_is_told_as_by_a_server() {
        let routes = Upstream::fixed("a:1,b:1,c:1").unwrap().routes();
        let told = |options: &str| {
            let request = RequestBuf::from_args(format!("XREAD {options} STREAMS foo hello 1 2").split(' '));
            let streams = Streams::of(&routes, &request.as_request()).unwrap();
            StreamWait::check(&streams, UnixMs(1)).err().map(|error| error.to_string())
        };
        let (time, number) = ("timeout is not an integer or out of range", "value is not an integer");
        for (options, wrong) in [
            ("BLOCK 5 COUNT 1", None),
            ("BLOCK x BLOCK 5", Some(time)),
            ("BLOCK 5 BLOCK x", Some(time)),
            ("COUNT - BLOCK x", Some(number)),
            ("BLOCK x COUNT -", Some(time)),
            // Any server says what is wrong with it in front of that.
            ("GROUP g c BLOCK x", None),
            ("NOACK COUNT x BLOCK 5", None),
        ] {
            let told = told(options);
            assert!(
                told.as_deref().map_or(wrong.is_none(), |told| told.contains(wrong.unwrap())),
                "{options}: {told:?}"
            );
        }
    }
}
