//! Taking from the first of several keys that has something (BLPOP, LMPOP, ZMPOP ...), where the keys are several servers'.
//!
//! All servers are asked which of their keys is the first that is there (`BEXISTS`, which is Tarn's own: where a server does not know it, the request is refused).
//! From the first of these, in the order of the request, is taken, by the command's form for one key. Where somebody else was faster, all are asked again. Where nothing
//! is there, and the command waits, all are asked to say when something is, over connections that the client has to itself; the first that says so ends that, and all
//! are asked again. Of those who wait for the same at one worker the first alone does so at servers (see `links/crowds.rs`): the next asks them all when that one has ended.
//!
//! Invariants:
//! 1. Taken is from one key at a time, so that nothing is taken that the client does not get, nor for one that has gone away while it waited.
//! 2. It is not of one moment: when something is taken, an earlier key may have got something since it was asked for.

use crate::joins::{Part, Step, check_waited_for, crowd, is_late, is_null, text_of, time_until};
use crate::links::Patience;
use crate::upstream::{NodeNo, Routes};
use command::Error;
use command::execute::key_positions;
use command::parse::timeout;
use command::table::Command;
use server::dispatch::ownership::CROSSSLOT;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use sys::UnixMs;
use wire::{Protocol, Request, encode_arg, encode_request, encode_request_header, key_slot};

/// How often all are asked again since somebody else was faster, by a command that does not wait.
const TRIES_MAX: usize = 64;

/// A command that takes from the first of its keys that has something.
#[derive(Debug, PartialEq, Eq)]
pub struct Form {
    name: &'static str,
    /// By which it is taken from one key.
    takes: &'static str,
    /// What it takes from.
    kind: &'static str,
    /// Where the number of its keys stands, if that is said. Then the words behind the keys are those of its form for one key.
    numkeys: Option<usize>,
    /// Where it says how long it waits, from the front or the end, if it does.
    timeout: Option<Timeout>,
}

#[derive(Debug, PartialEq, Eq)]
enum Timeout {
    First,
    Last,
}

const fn form(
    name: &'static str,
    takes: &'static str,
    kind: &'static str,
    numkeys: Option<usize>,
    timeout: Option<Timeout>,
) -> Form {
    Form { name, takes, kind, numkeys, timeout }
}

const FORMS: &[Form] = &[
    form("blmpop", "LMPOP", "LIST", Some(2), Some(Timeout::First)),
    form("blpop", "LPOP", "LIST", None, Some(Timeout::Last)),
    form("brpop", "RPOP", "LIST", None, Some(Timeout::Last)),
    form("bzmpop", "ZMPOP", "ZSET", Some(2), Some(Timeout::First)),
    form("bzpopmax", "ZPOPMAX", "ZSET", None, Some(Timeout::Last)),
    form("bzpopmin", "ZPOPMIN", "ZSET", None, Some(Timeout::Last)),
    form("lmpop", "LMPOP", "LIST", Some(1), None),
    form("zmpop", "ZMPOP", "ZSET", Some(1), None),
];

/// How a command is served whose keys are several servers'; None: it is none of these.
pub fn form_of(command: &Command) -> Option<&'static Form> {
    FORMS.iter().find(|form| form.name == command.row.name)
}

impl Form {
    /// Whether a command of this form waits where nothing is there.
    pub fn waits(&self) -> bool {
        self.timeout.is_some()
    }

    fn word<'r>(&self, request: &Request<'r>) -> Option<&'r [u8]> {
        match self.timeout.as_ref()? {
            Timeout::First => request.get(1),
            Timeout::Last => request.get(request.len() - 1),
        }
    }

    /// What is wrong with how long a request is to wait.
    ///
    /// # Errors
    /// That, in Redis' words.
    pub fn check(&self, request: &Request<'_>, now: UnixMs) -> Result<(), Error> {
        self.word(request).map_or(Ok(()), |word| timeout(word, now).map(drop))
    }

    /// Whether what else is wrong with a request is told before that: then a server says which.
    pub fn says_more(&self) -> bool {
        self.numkeys.is_some()
    }

    /// How long a request waits, if it does not for ever.
    fn time_of(&self, request: &Request<'_>) -> Option<Duration> {
        let until = timeout(self.word(request)?, UnixMs(0)).ok()??;
        Some(Duration::from_millis(until.0))
    }
}

/// The positions of a request's keys.
fn positions_of(command: &Command, request: &Request<'_>) -> Vec<usize> {
    let mut positions = Vec::new();
    key_positions(command.row.keys, request, &mut positions);
    positions
}

/// A request that is wrong, with its first key alone, for the server of this key to say so.
pub fn wrong_of<'r>(command: &Command, request: &Request<'r>) -> Option<(&'r [u8], Vec<u8>)> {
    let positions = positions_of(command, request);
    let (first, last) = (*positions.first()?, *positions.last()?);
    let words = request.iter().enumerate().filter(|(at, _)| *at <= first || *at > last);
    let mut words: Vec<&[u8]> = words.map(|(_, word)| word).collect();
    *words.get_mut(first.checked_sub(1)?)? = b"1";
    let mut bytes = Vec::new();
    encode_request(&mut bytes, &words);
    Some((request.get(first)?, bytes))
}

/// What is wrong with the keys of a request.
///
/// # Errors
/// They are of too many slots for one client to wait for all, or nothing says from which end of them is taken.
pub fn check_keys(form: &Form, command: &Command, request: &Request<'_>) -> Result<(), Error> {
    let positions = positions_of(command, request);
    let slots: BTreeSet<u16> = positions.iter().map(|at| key_slot(request.arg(*at))).collect();
    match positions.last() {
        Some(last) if form.numkeys.is_some() && last + 1 == request.len() => Err(Error::Syntax),
        _ => check_waited_for(slots.len()),
    }
}

/// A server, or its slot, and which of the keys are there.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Owner {
    node: NodeNo,
    slot: Option<u16>,
    keys: Vec<usize>,
}

/// What was asked last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// All, which of their keys are there.
    Asked,
    /// The server of this key, for something of it.
    Taking { at: usize, was_there: bool },
    /// All, to say when a key is there.
    Waiting,
    /// None: another waits for the same.
    Behind,
}

/// One such request on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pop {
    form: &'static Form,
    protocol: Protocol,
    words: Vec<Vec<u8>>,
    owners: Vec<Owner>,
    /// Until when it waits, if it does not wait for ever.
    until: Option<Instant>,
    /// Its server has found nothing wrong with it.
    is_sound: bool,
    tries: usize,
    state: State,
}

impl Pop {
    /// Begins with the first question. None: a slot is nobody's.
    pub fn begin(
        routes: &Routes,
        request: &Request<'_>,
        (command, form): (&Command, &'static Form),
        protocol: Protocol,
    ) -> Option<(Pop, Vec<Part>)> {
        let mut keys: BTreeMap<(NodeNo, Option<u16>), Vec<usize>> = BTreeMap::new();
        for at in positions_of(command, request) {
            keys.entry(routes.owner_of(request.arg(at))?).or_default().push(at);
        }
        let owners = keys.into_iter().map(|((node, slot), keys)| Owner { node, slot, keys });
        let pop = Pop {
            form,
            protocol,
            words: request.iter().map(<[u8]>::to_vec).collect(),
            owners: owners.collect(),
            until: form.time_of(request).and_then(|time| Instant::now().checked_add(time)),
            is_sound: form.numkeys.is_none(),
            tries: 0,
            state: State::Asked,
        };
        let first = pop.ask(b"NOWAIT");
        Some((pop, first))
    }

    /// Whether servers are asked to say when something is there: the first that does so is enough.
    pub fn is_waiting(&self) -> bool {
        self.state == State::Waiting
    }

    /// Whether a server's reply is enough, whatever the others say: there is something, it is an error, or nobody waits there any more though there is time left.
    pub fn is_ended_by(&self, reply: &[u8]) -> bool {
        self.is_waiting() && (!is_null(reply) || !is_late(self.until))
    }

    /// All that was asked is answered; or, of what waits, one.
    pub fn step(&mut self, parts: &[Vec<u8>]) -> Step {
        if let Some(error) = parts.iter().find(|part| part.starts_with(b"-")) {
            let refused = || [b"-", CROSSSLOT.as_bytes(), b"\r\n"].concat();
            return Step::Whole(if error.starts_with(UNKNOWN) { refused() } else { error.clone() });
        }
        match self.state {
            State::Asked => self.asked(parts),
            State::Taking { at, was_there } => self.taken(at, was_there, parts),
            State::Waiting | State::Behind if parts.iter().all(|part| part.is_empty() || is_null(part)) => {
                self.nothing()
            }
            State::Waiting | State::Behind => self.again(),
        }
    }

    fn asked(&mut self, parts: &[Vec<u8>]) -> Step {
        let found = self.owners.iter().zip(parts).filter_map(|(owner, part)| {
            let name = text_of(part)?;
            owner.keys.iter().copied().find(|at| self.words[*at] == name)
        });
        match found.min() {
            Some(at) => self.take(at, true),
            // What is wrong with it a server says.
            None if !self.is_sound => self.take(self.all_keys().min().unwrap_or(0), false),
            None => self.wait(),
        }
    }

    fn taken(&mut self, at: usize, was_there: bool, parts: &[Vec<u8>]) -> Step {
        let Some(reply) = parts.first() else { return self.nothing() };
        self.is_sound = true;
        let is_empty = is_null(reply) || reply.starts_with(b"*0") || reply.starts_with(b"%0");
        match is_empty {
            false => Step::Whole(self.told(at, reply)),
            true if was_there => self.again(),
            true => self.wait(),
        }
    }

    /// What it waits for: whoever waits for the same is given what it is not.
    pub fn crowd(&self) -> Vec<u8> {
        let keys = self.owners.iter().flat_map(|owner| owner.keys.iter().map(|at| (owner.node, *at)));
        crowd(&[self.form.kind.as_bytes()], keys.map(|(node, at)| (node, &self.words[at][..])))
    }

    /// Another waits for the same, and this one until that has ended: for so long, if not for ever.
    pub fn stand_behind(&mut self) -> Option<Duration> {
        self.state = State::Behind;
        time_until(self.until)
    }

    /// Whether something is taken now.
    pub fn is_taking(&self) -> bool {
        matches!(self.state, State::Taking { .. })
    }

    /// Whether it waits so.
    pub fn is_behind(&self) -> bool {
        self.state == State::Behind
    }

    /// That one has ended.
    pub fn go_on(&mut self) -> Step {
        self.state = State::Asked;
        Step::More(self.ask(b"NOWAIT"))
    }

    /// Asks all again: somebody else was faster, or something has come.
    fn again(&mut self) -> Step {
        self.tries += 1;
        let is_over = match self.form.waits() {
            true => self.until.is_some_and(|until| until <= Instant::now()),
            false => self.tries >= TRIES_MAX,
        };
        if is_over {
            return self.nothing();
        }
        self.go_on()
    }

    fn wait(&mut self) -> Step {
        let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
        if !self.form.waits() || left.is_some_and(|left| left < Duration::from_millis(1)) {
            return self.nothing();
        }
        self.state = State::Waiting;
        let seconds = left.map_or("0".to_owned(), |left| format!("{:.3}", left.as_secs_f64()));
        Step::Wait(self.ask(seconds.as_bytes()), left.map_or(Patience::ForEver, Patience::Until))
    }

    fn take(&mut self, at: usize, was_there: bool) -> Step {
        self.state = State::Taking { at, was_there };
        let (takes, key) = (self.form.takes.as_bytes(), &self.words[at][..]);
        let mut bytes = Vec::new();
        match self.form.numkeys {
            None => encode_request(&mut bytes, &[takes, key]),
            Some(_) => {
                let last = self.all_keys().max().unwrap_or(at);
                let rest = &self.words[last + 1..];
                encode_request_header(&mut bytes, 3 + rest.len());
                [takes, b"1", key].iter().for_each(|word| encode_arg(&mut bytes, word));
                rest.iter().for_each(|word| encode_arg(&mut bytes, word));
            }
        }
        let owner = self.owners.iter().find(|owner| owner.keys.contains(&at));
        let (node, slot) = owner.map_or((0, None), |owner| (owner.node, owner.slot));
        Step::More(vec![(node, slot, bytes)])
    }

    fn ask(&self, wait: &[u8]) -> Vec<Part> {
        let part = |owner: &Owner| {
            let mut bytes = Vec::new();
            encode_request_header(&mut bytes, 3 + owner.keys.len());
            [b"BEXISTS", self.form.kind.as_bytes(), wait]
                .iter()
                .for_each(|word| encode_arg(&mut bytes, word));
            owner.keys.iter().for_each(|at| encode_arg(&mut bytes, &self.words[*at]));
            (owner.node, owner.slot, bytes)
        };
        self.owners.iter().map(part).collect()
    }

    fn all_keys(&self) -> impl Iterator<Item = usize> {
        self.owners.iter().flat_map(|owner| owner.keys.iter().copied())
    }

    /// What the client gets of something that was taken from a key.
    fn told(&self, at: usize, reply: &[u8]) -> Vec<u8> {
        if self.form.numkeys.is_some() {
            return reply.to_vec();
        }
        let mut name = Vec::new();
        encode_arg(&mut name, &self.words[at]);
        // A member comes with its score, an element alone.
        match reply.strip_prefix(b"*2\r\n") {
            Some(pair) => [b"*3\r\n", &name[..], pair].concat(),
            None => [b"*2\r\n", &name[..], reply].concat(),
        }
    }

    fn nothing(&self) -> Step {
        let null: &[u8] = if self.protocol == Protocol::Resp3 { b"_\r\n" } else { b"*-1\r\n" };
        Step::Whole(null.to_vec())
    }
}

/// What a server says that is none of Tarn's.
const UNKNOWN: &[u8] = b"-ERR unknown command";

#[cfg(test)]
mod tests {
    use super::*;

    /// A request on its way, of two keys at two servers.
    fn pop(name: &'static str, words: &[&str], keys: [usize; 2]) -> Pop {
        let form = FORMS.iter().find(|form| form.name == name).unwrap();
        Pop {
            form,
            protocol: Protocol::Resp2,
            words: words.iter().map(|word| word.as_bytes().to_vec()).collect(),
            owners: [0, 1].map(|at| Owner { node: at as NodeNo, slot: None, keys: vec![keys[at]] }).into(),
            until: None,
            is_sound: form.numkeys.is_none(),
            tries: 0,
            state: State::Asked,
        }
    }

    fn step(pop: &mut Pop, parts: &[&str]) -> Step {
        pop.step(&parts.iter().map(|part| part.as_bytes().to_vec()).collect::<Vec<_>>())
    }

    fn asked(step: Step) -> Vec<(NodeNo, String)> {
        let parts = match step {
            Step::More(parts) | Step::Wait(parts, _) => parts,
            Step::Whole(whole) => panic!("{}", whole.escape_ascii()),
        };
        let line = |bytes: Vec<u8>| {
            let text = String::from_utf8(bytes).unwrap();
            text.lines().filter(|line| !line.starts_with(['*', '$'])).collect::<Vec<_>>().join(" ")
        };
        parts.into_iter().map(|(node, _, bytes)| (node, line(bytes))).collect()
    }

    const NONE: &str = "$-1\r\n";

    #[test]
    fn who_was_too_late_asks_again_and_waits_at_all() {
        let mut pop = pop("blpop", &["BLPOP", "b", "a", "0"], [2, 1]);
        assert_eq!(asked(step(&mut pop, &["$1\r\na\r\n", "$1\r\nb\r\n"])), [(1, "LPOP b".to_owned())]);
        let questions = asked(step(&mut pop, &[NONE]));
        assert_eq!(questions[0], (0, "BEXISTS LIST NOWAIT a".to_owned()));
        let waiting = step(&mut pop, &[NONE, NONE]);
        assert!(pop.is_waiting() && matches!(waiting, Step::Wait(_, Patience::ForEver)));
        assert_eq!(asked(waiting)[1], (1, "BEXISTS LIST 0 b".to_owned()));
        assert_eq!(asked(step(&mut pop, &["$1\r\na\r\n", ""])).len(), 2);
        assert_eq!(asked(step(&mut pop, &["$1\r\na\r\n", NONE])), [(0, "LPOP a".to_owned())]);
        let told = Step::Whole(b"*2\r\n$1\r\na\r\n$1\r\nx\r\n".to_vec());
        assert_eq!(step(&mut pop, &["$1\r\nx\r\n"]), told);
    }

    #[test]
    fn what_is_wrong_with_a_request_a_server_says() {
        let mut pop = pop("lmpop", &["LMPOP", "2", "b", "a", "LEFT", "COUNT", "x"], [3, 2]);
        assert_eq!(asked(step(&mut pop, &[NONE, NONE])), [(1, "LMPOP 1 b LEFT COUNT x".to_owned())]);
        assert_eq!(step(&mut pop, &["-ERR count\r\n"]), Step::Whole(b"-ERR count\r\n".to_vec()));
        let mut others = super::tests::pop("lmpop", &["LMPOP", "2", "b", "a", "LEFT"], [3, 2]);
        let refused = step(&mut others, &["-ERR unknown command 'BEXISTS'\r\n", NONE]);
        assert_eq!(refused, Step::Whole(format!("-{CROSSSLOT}\r\n").into_bytes()));
    }
}
