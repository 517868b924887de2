//! A client with keys of its own: it asks in pipelines, holds every answer against its model, finds out after the server's
//! end how much of the last pipeline was executed, and reads back all that it has.

use super::content;
use super::expect::{Expect, Window, contrast, shorten, shown};
use super::model::Model;
use super::requests::{Load, is_large, now_ms};
use super::unit::{Form, Unit, is_scripted, short};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use sys::Prng;
use testkit::Client;
use wire::Value;

/// Units of a pipeline at most.
const UNITS_MAX: u64 = 60;
/// Requests of a transaction or script at most.
const REQUESTS_MAX: u64 = 6;
/// Entries that are added to a long stream in a row.
const ENTRIES_IN_A_ROW: usize = 200;
/// Keys that are read back at once, and bytes of them, at most.
const CHECKED_KEYS_MAX: usize = 100;
/// Words of the past that a complaint can draw from.
const PAST_MAX: usize = 40_000;
/// Of those, lines shown about one key.
const PAST_SHOWN_MAX: usize = 12;

/// Units that were sent together.
#[derive(Debug)]
struct Pipeline {
    sent: u64,
    units: Vec<Unit>,
    answered: usize,
}

impl Pipeline {
    /// Reads the replies to one unit; what is wrong with them.
    fn answer(&mut self, client: &mut Client, at: usize) -> io::Result<Result<(), String>> {
        let unit = &self.units[at];
        for expected in unit.replies() {
            let reply = client.read_value()?;
            let window = Window { from: self.sent, to: now_ms() };
            if !expected.fits(&reply, window) {
                let about = contrast(&expected, &reply, window);
                return Ok(Err(format!("{}: {about}", unit.shown())));
            }
        }
        self.answered += 1;
        Ok(Ok(()))
    }
}

/// One client.
#[derive(Debug)]
pub struct Owner {
    name: String,
    model: Model,
    load: Load,
    bytes_max: usize,
    /// Sent, and not answered when the connection broke.
    open: Option<Pipeline>,
    /// When that was, milliseconds since 1970.
    broken_at: u64,
    /// Requests in short, for complaints.
    past: VecDeque<String>,
    /// Requests that were answered as they must be.
    pub requests: u64,
    /// Keys that were read back whole.
    pub checked: u64,
}

impl Owner {
    /// A client with so many keys, whose pipelines hold about so many bytes at most.
    pub fn new(number: usize, keys: usize, bytes_max: usize, prng: Prng) -> Owner {
        let name = format!("c{number}");
        Owner {
            model: Model::new(&name, keys),
            load: Load::new(prng),
            bytes_max,
            open: None,
            broken_at: 0,
            past: VecDeque::new(),
            requests: 0,
            checked: 0,
            name,
        }
    }

    /// Writes most of the keys for the first time. Fails if the connection does.
    pub fn fill(&mut self, address: SocketAddr) -> io::Result<()> {
        let mut client = Client::connect(address)?;
        let mut number = 0;
        while number < self.model.capacity() {
            let (sent, mut units, mut bytes) = self.begin();
            while number < self.model.capacity() && units.len() < CHECKED_KEYS_MAX && bytes < self.bytes_max {
                if let Some(request) = self.load.first(&self.model, number) {
                    let expects = vec![self.model.apply(&request, sent)];
                    units.push(Unit { form: Form::Alone, requests: vec![request], expects });
                    bytes += units.last().map_or(0, Unit::bytes);
                }
                number += 1;
            }
            self.play(&mut client, Pipeline { sent, units, answered: 0 })?;
        }
        Ok(())
    }

    /// Sends pipelines and compares what comes, `while_running`. Fails if the connection does.
    pub fn work(&mut self, address: SocketAddr, mut while_running: impl FnMut() -> bool) -> io::Result<()> {
        let mut client = Client::connect(address)?;
        while while_running() {
            let pipeline = self.compose();
            if let Err(error) = self.play(&mut client, pipeline) {
                self.broken_at = now_ms();
                return Err(error);
            }
        }
        Ok(())
    }

    fn begin(&mut self) -> (u64, Vec<Unit>, usize) {
        self.model.begin();
        (now_ms(), Vec::new(), 0)
    }

    fn compose(&mut self) -> Pipeline {
        let (sent, mut units, mut bytes) = self.begin();
        let count = 1 + self.load.prng().below(UNITS_MAX);
        while (units.len() as u64) < count && bytes < self.bytes_max {
            let unit = self.unit(sent);
            bytes += unit.bytes();
            let last = (unit.form == Form::Alone).then(|| unit.requests[0].clone());
            units.push(unit);
            self.lengthen(&last.unwrap_or_default(), sent, &mut units);
        }
        Pipeline { sent, units, answered: 0 }
    }

    fn unit(&mut self, sent: u64) -> Unit {
        let prng = self.load.prng();
        let form = match prng.below(20) {
            0..16 => Form::Alone,
            16 | 17 => Form::Transaction,
            _ => Form::Script,
        };
        let count = if form == Form::Alone { 1 } else { 2 + prng.below(REQUESTS_MAX - 1) as usize };
        let (mut requests, mut expects) = (Vec::new(), Vec::new());
        while requests.len() < count {
            // An error would end a script in its middle.
            let request = self.load.next(&mut self.model, sent, form != Form::Script);
            if form != Form::Script || is_scripted(&request) {
                expects.push(self.model.apply(&request, sent));
                requests.push(request);
            }
        }
        Unit { form, requests, expects }
    }

    /// An entry of a long stream is followed by many more.
    fn lengthen(&mut self, last: &[String], sent: u64, units: &mut Vec<Unit>) {
        let [name, key, .., id, _, _] = last else { return };
        let number = key.rsplit(':').next().and_then(|digits| digits.parse().ok());
        if name != "XADD" || !number.is_some_and(is_large) {
            return;
        }
        let (ms, sequence) = id.split_once('-').expect("ids have two parts");
        for next in 0..ENTRIES_IN_A_ROW {
            // Behind the one before, and before all that comes later.
            let id = format!("{ms}-{}", sequence.parse::<usize>().expect("a number") + 1 + next);
            let request = vec![name.clone(), key.clone(), id, "f".to_owned(), format!("in a row {next}")];
            let expects = vec![self.model.apply(&request, sent)];
            units.push(Unit { form: Form::Alone, requests: vec![request], expects });
        }
    }

    /// Sends a pipeline and compares the answers. If the connection breaks, the pipeline stays open.
    fn play(&mut self, client: &mut Client, pipeline: Pipeline) -> io::Result<()> {
        self.remember(&pipeline);
        let mut bytes = Vec::new();
        for request in pipeline.units.iter().flat_map(Unit::wire) {
            let words: Vec<&[u8]> = request.iter().map(String::as_bytes).collect();
            wire::encode_request(&mut bytes, &words);
        }
        let pipeline = self.open.insert(pipeline);
        client.send(&bytes)?;
        for at in 0..pipeline.units.len() {
            if let Err(differs) = pipeline.answer(client, at)? {
                let keys: Vec<String> =
                    pipeline.units[at].requests.iter().map(|words| words[1].clone()).collect();
                panic!("{differs}{}", self.circumstances(client, &keys));
            }
            self.requests += pipeline.units[at].requests.len() as u64;
        }
        self.open = None;
        self.model.commit(now_ms());
        Ok(())
    }

    /// After the server's end and a new start: finds how much of the open pipeline is there. The model goes on from that.
    pub fn settle(&mut self, client: &mut Client) -> io::Result<()> {
        let Some(open) = self.open.take() else { return Ok(()) };
        let ended = self.broken_at;
        let touched = self.model.take_back();
        let from = now_ms();
        let found: Vec<Found> = touched
            .iter()
            .map(|number| Found::read(client, &self.model.key(*number)))
            .collect::<io::Result<_>>()?;
        let window = Window { from, to: now_ms() };
        let differing = |model: &Model| -> Vec<usize> {
            (0..touched.len()).filter(|at| !found[*at].is(model, touched[*at], window)).collect()
        };
        let mut least = (touched.len() + 1, 0, String::new());
        for count in 0..=open.units.len() {
            if count > 0 {
                let unit = &open.units[count - 1];
                unit.requests.iter().for_each(|request| drop(self.model.apply(request, open.sent)));
                touched.iter().for_each(|number| self.model.close(*number, ended));
            }
            if count < open.answered {
                continue;
            }
            let wrong = differing(&self.model);
            if wrong.is_empty() {
                self.past.push_back(format!(
                    "{ended} -- the server ended; {count} of the last {} units are there, {} were answered",
                    open.units.len(),
                    open.answered
                ));
                self.adopt(&touched, &found);
                return Ok(());
            }
            if wrong.len() < least.0 {
                let lines = wrong.iter().take(5).map(|at| {
                    let number = touched[*at];
                    let entry = self.model.get(number).map(|entry| shorten(&format!("{entry:?}")));
                    format!(
                        "\n    {}: expected {entry:?}, there is {}",
                        self.model.key(number),
                        found[*at].shown()
                    )
                });
                least = (wrong.len(), count, lines.collect());
            }
        }
        let units: String = open
            .units
            .iter()
            .enumerate()
            .map(|(at, unit)| format!("\n    {} {}", at + 1, unit.shown()))
            .collect();
        panic!(
            "{}: {} units were sent and {} answered when the server ended, and what is there is after none of those. After {} of \
             them {} keys differ:{}\n  the units:{units}",
            self.name,
            open.units.len(),
            open.answered,
            least.1,
            least.0,
            least.2
        );
    }

    /// What was found expired is gone; what expires does so at the moment that was found.
    fn adopt(&mut self, touched: &[usize], found: &[Found]) {
        for (number, found) in touched.iter().zip(found) {
            match found.moment {
                _ if found.kind == "none" => self.model.forget(*number),
                Some(moment) => self.model.pin(*number, moment),
                None => {}
            }
        }
    }

    /// Reads every key back whole, and compares it with the model.
    pub fn check(&mut self, client: &mut Client) -> io::Result<()> {
        let mut number = 0;
        while number < self.model.capacity() {
            let (first, mut asked, mut bytes) = (number, Vec::new(), 0);
            while number < self.model.capacity()
                && number - first < CHECKED_KEYS_MAX
                && bytes < self.bytes_max
            {
                let wanted = self.wanted(number);
                bytes += wanted.iter().map(|(_, expected)| expected.bytes()).sum::<usize>();
                asked.extend(wanted.into_iter().map(|(request, expected)| (number, request, expected)));
                number += 1;
            }
            let requests: Vec<&Vec<String>> = asked.iter().map(|(_, request, _)| request).collect();
            let from = now_ms();
            let replies = client.pipeline(&requests.into_iter().cloned().collect::<Vec<_>>())?;
            let window = Window { from, to: now_ms() };
            for ((number, request, expected), reply) in asked.iter().zip(&replies) {
                let reply = testkit::client::decode(reply).expect("replies are whole");
                if !expected.fits(&reply, window) {
                    let about = contrast(expected, &reply, window);
                    let keys = [self.model.key(*number)];
                    panic!("read back by {}: {about}{}", short(request), self.circumstances(client, &keys));
                }
                if request[0] == "PEXPIRETIME" {
                    match reply {
                        Value::Int(moment @ 0..) => self.model.pin(*number, moment as u64),
                        Value::Int(-2) => self.model.forget(*number),
                        _ => {}
                    }
                }
            }
        }
        self.checked += self.model.capacity() as u64;
        Ok(())
    }

    /// The requests that show all of a key, and what they must be answered.
    fn wanted(&mut self, number: usize) -> Vec<(Vec<String>, Expect)> {
        let key = self.model.key(number);
        let words = |name: &str| vec![name.to_owned(), key.clone()];
        let Some(entry) = self.model.get(number).cloned() else {
            return vec![(words("TYPE"), Expect::Simple("none"))];
        };
        let whole = entry.content.whole().into_iter();
        let mut wanted: Vec<_> = content::whole(entry.content.kind(), &key)
            .into_iter()
            .zip(whole)
            .map(|(request, expected)| {
                let gone = match &request[0][..] {
                    "GET" => Expect::Text(None),
                    "XINFO" => Expect::Error("ERR no such key"),
                    _ => Expect::Array(Vec::new()),
                };
                (request, of_expiring(&entry, expected, gone))
            })
            .collect();
        let moment = self.model.apply(&words("PEXPIRETIME"), now_ms());
        wanted.push((words("PEXPIRETIME"), moment));
        wanted
    }

    /// Keys that are surely there at a moment, and those that may be.
    pub fn living(&self, now: u64) -> (i64, i64) {
        let sure =
            self.model.living().filter(|entry| entry.expiry.is_none_or(|expiry| expiry.is_surely_ahead(now)));
        let possible = self
            .model
            .living()
            .filter(|entry| !entry.expiry.is_some_and(|expiry| expiry.is_surely_over(now)));
        (sure.count() as i64, possible.count() as i64)
    }

    fn remember(&mut self, pipeline: &Pipeline) {
        self.past.push_back(format!("{} -- a pipeline", pipeline.sent));
        for unit in &pipeline.units {
            self.past
                .extend(unit.requests.iter().map(|request| format!("{:?} {}", unit.form, short(request))));
        }
        while self.past.len() > PAST_MAX {
            self.past.pop_front();
        }
    }

    /// What a complaint says besides: what is there when asked again, behind all that was sent, and what was asked about the
    /// keys before.
    fn circumstances(&self, client: &Client, keys: &[String]) -> String {
        let mut text = String::new();
        for key in keys {
            let again = client.stream().peer_addr().and_then(Client::connect);
            match again.and_then(|mut client| Found::read(&mut client, key)) {
                Ok(found) => text += &format!("\n  {key}, asked again: {}", found.shown()),
                Err(error) => text += &format!("\n  {key}, asked again: {error}"),
            }
            let is_about =
                |line: &&String| line.contains(" -- the server") || line.split(' ').any(|word| word == key);
            let lines: Vec<&String> = self.past.iter().rev().filter(is_about).take(PAST_SHOWN_MAX).collect();
            lines.iter().rev().for_each(|line| text += &format!("\n    {line}"));
        }
        text
    }
}

fn of_expiring(entry: &super::model::Entry, before: Expect, after: Expect) -> Expect {
    match entry.expiry {
        Some(expiry) => Expect::Until(expiry, Box::new(before), Box::new(after)),
        None => before,
    }
}

/// What a server has at a key.
struct Found {
    kind: String,
    replies: Vec<Value>,
    /// When it expires.
    moment: Option<u64>,
}

impl Found {
    fn read(client: &mut Client, key: &str) -> io::Result<Found> {
        let Value::Simple(kind) = client.call(&["TYPE", key])? else { panic!("TYPE answers a status") };
        let kind = String::from_utf8_lossy(&kind).into_owned();
        let replies: io::Result<Vec<Value>> =
            content::whole(&kind, key).iter().map(|request| client.call(request)).collect();
        match client.call(&["PEXPIRETIME", key])? {
            // It has expired meanwhile.
            Value::Int(-2) => Ok(Found { kind: "none".to_owned(), replies: Vec::new(), moment: None }),
            Value::Int(moment @ 0..) => Ok(Found { kind, replies: replies?, moment: Some(moment as u64) }),
            _ => Ok(Found { kind, replies: replies?, moment: None }),
        }
    }

    /// Whether the model has it so.
    fn is(&self, model: &Model, number: usize, window: Window) -> bool {
        match (model.get(number), &self.kind[..]) {
            (None, kind) => kind == "none",
            (Some(entry), "none") => entry.expiry.is_some_and(|expiry| !expiry.is_surely_ahead(window.to)),
            (Some(entry), kind) => {
                let is_due = match (entry.expiry, self.moment) {
                    (None, None) => true,
                    (Some(expiry), Some(moment)) => {
                        !expiry.is_surely_over(window.from)
                            && Expect::Moment(expiry).fits(&Value::Int(moment as i64), window)
                    }
                    _ => false,
                };
                let whole = entry.content.whole();
                let mut pairs = whole.iter().zip(&self.replies);
                is_due && kind == entry.content.kind() && pairs.all(|(one, reply)| one.fits(reply, window))
            }
        }
    }

    fn shown(&self) -> String {
        let replies: Vec<String> = self.replies.iter().map(|reply| shorten(&shown(Some(reply)))).collect();
        format!("{} {} expires {:?}", self.kind, replies.join(" | "), self.moment)
    }
}
