//! The rest of a master's stream, from where it is gone on with: taken as it comes, and done unit by unit.
//!
//! It knows nothing of connections: bytes come from whoever has one ([`super::link`], or a simulated network).
//!
//! Thread rule: the thread that has the link.

use super::applying::{Applier, Undone};
use super::link::{PATIENCE, look};
use crate::feeding::{self, joining, synced};
use crate::followed::Phase;
use crate::server::Server;
use ::log::{Stream, SyncPolicy};
use engine::Attention;
use replication::link::limits::UNIT_BYTES_MAX_DEFAULT;
use replication::link::{MasterStream, Place, UnitKind};
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

/// How long it waits before it looks again whether the disk has taken something.
const DISK_POLL: Duration = Duration::from_micros(200);

/// The rest of a master's stream.
pub struct Rest {
    server: Arc<Server>,
    order: u64,
    stream: Stream,
    units: MasterStream,
    /// Up to there what has come was counted as steps.
    counted: u64,
    /// Offsets up to which the master wants to hear that it is done here.
    asked: VecDeque<u64>,
}

impl Rest {
    /// What comes behind this place is done by an order.
    pub fn begin(server: &Arc<Server>, order: u64, stream: Stream) -> Rest {
        let place = Place { offset: stream.offset, database: stream.selected.unwrap_or(0) };
        joining::keep_relayed(server);
        if !server.shard.is_on() {
            // What is here is the master's from now on.
            synced::keep_before(server, None);
        }
        server.following.change(order, |status| {
            (status.phase, status.offset, status.read) = (Phase::Connected, place.offset, place.offset);
        });
        let units = MasterStream::new(place, UNIT_BYTES_MAX_DEFAULT);
        Rest { server: server.clone(), order, stream, units, counted: place.offset, asked: VecDeque::new() }
    }

    /// Takes bytes that go on where those before ended, and does all units that are whole. False: nothing more is done now, since what there is
    /// has to stay as it is for a while, or somebody has it for long.
    ///
    /// # Errors
    /// They are nothing that a master says, or the order is not in force any more.
    pub fn take(&mut self, bytes: &[u8], applier: &mut Applier<'_>) -> io::Result<bool> {
        self.units.feed(bytes);
        let server = self.server.clone();
        let Some(applying) = server.following.applying.try_lock_for(PATIENCE) else {
            look(&server, self.order)?;
            return Ok(false);
        };
        // Who has ended the order while nothing was done must not find more done than then.
        look(&server, self.order)?;
        let result = self.apply(applier);
        feeding::pass_gathered(&server, || 1);
        let Place { offset, database } = self.units.place();
        if server.engine.durability.log().is_none() {
            server.set_stream(Stream { offset, selected: Some(database), is_masters: true, ..self.stream });
        }
        let read = offset + self.units.waiting_bytes() as u64;
        server.following.change(self.order, |status| (status.offset, status.read) = (offset, read));
        if matches!(result, Ok(true)) && !self.is_paused() {
            self.count_steps(offset, read);
        }
        drop(applying);
        server.shard.note_done();
        if matches!(result, Ok(false))
            && let Some(copy) = server.following.copying()
        {
            // Who wants nothing to be done is let in meanwhile.
            copy.is_over_soon(PATIENCE);
        }
        result
    }

    /// All that had come whole is done: what waits is of one unit whose end has not come. Only that is progress; what waits because nothing is done is none.
    fn count_steps(&mut self, offset: u64, read: u64) {
        let from = self.counted.max(offset);
        if read > from {
            self.server.following.note_steps(read - from);
            self.counted = read;
        }
    }

    /// Does what has come. False: something of it is left for later, or there is something that a copy of one moment has to have before.
    fn apply(&mut self, applier: &mut Applier<'_>) -> io::Result<bool> {
        // None begins meanwhile.
        let copy = self.server.following.copying();
        let copy = copy.as_deref();
        while !self.is_paused() {
            let result = if let Some(run) = self.units.next_run() {
                let mut free = copy.map_or(usize::MAX, |copy| applier.copied_of_run(copy, run));
                if free == 0 {
                    self.units.give_back();
                    return Ok(false);
                }
                let server = &self.server;
                let (done, result) = applier.apply_run(run, || {
                    let is_next = free > 0 && !is_paused(server);
                    free -= usize::from(is_next);
                    is_next
                });
                self.units.take_back(done);
                result
            } else {
                match self.units.next_unit() {
                    Ok(Some(unit)) => {
                        if copy.is_some_and(|copy| !applier.is_unit_copied(copy, &unit)) {
                            self.units.give_back();
                            return Ok(false);
                        }
                        let result = applier.apply(&unit);
                        let asked = unit.acknowledged().filter(|_| unit.kind() == UnitKind::GetAck);
                        match result {
                            Ok(()) => self.asked.extend(asked),
                            Err(_) => self.units.give_back(),
                        }
                        result
                    }
                    Ok(None) => return Ok(true),
                    Err(ending) => return Err(io::Error::new(ErrorKind::InvalidData, ending)),
                }
            };
            match result {
                Ok(()) => self.wait_for_log()?,
                Err(Undone::HeldUp) => return Ok(false),
                Err(Undone::Unreadable(why)) => {
                    let why = format!(", as the store cannot be read: {why}");
                    let way_out =
                        "Where the disk does not come back, a start with an empty directory takes a new copy";
                    return Err(self.undone(&why, way_out));
                }
                Err(Undone::Impossible(why)) => {
                    return Err(
                        self.undone(&format!(": {why}"), "Else the data would differ from the master's; where it stays so, a start with an empty directory takes a new copy")
                    );
                }
            }
        }
        Ok(true)
    }

    /// The link is not gone on with, so that nothing is acknowledged that is not done.
    #[cold]
    fn undone(&self, why: &str, way_out: &str) -> io::Error {
        let offset = self.units.place().offset;
        let text = format!(
            "What the master sent behind offset {offset} cannot be done here{why}. The link is ended, and nothing more is acknowledged; it is \
             tried again later. {way_out}"
        );
        io::Error::new(ErrorKind::PermissionDenied, text)
    }

    /// Waits until the log takes more.
    fn wait_for_log(&self) -> io::Result<()> {
        let Some(log) = self.server.engine.durability.log() else { return Ok(()) };
        while log.is_full() || log.writable().is_err() {
            log.nudge();
            look(&self.server, self.order)?;
            log.await_disk(DISK_POLL);
        }
        Ok(())
    }

    /// Whether what comes is kept and not done (CLIENT PAUSE).
    pub fn is_paused(&self) -> bool {
        is_paused(&self.server)
    }

    /// Bytes that have come and are not done.
    pub fn waiting_bytes(&self) -> usize {
        self.units.waiting_bytes()
    }

    /// Whether the master wants to hear of something that is done by now, of which it is told then.
    pub fn is_asked(&mut self, applied: u64) -> bool {
        let is_asked = self.asked.front().is_some_and(|offset| *offset <= applied);
        self.asked.retain(|offset| *offset > applied);
        is_asked
    }

    /// The first offset of which the master wants to hear, and that is not done.
    pub fn asked(&self) -> Option<u64> {
        self.asked.front().copied()
    }
}

fn is_paused(server: &Server) -> bool {
    let engine = &server.engine;
    engine.attention().contains(Attention::PAUSED) && server.pause.holds_stream(engine.clock.now())
}

/// What of the stream is done here, and what of it is on disk, where that is promised.
pub fn done(server: &Server) -> (u64, Option<u64>) {
    let engine = &server.engine;
    let applied = || server.following.status().map_or(0, |status| status.offset);
    match engine.durability.log() {
        None => (applied(), None),
        Some(log) => {
            let durable = log.stream().offset;
            // What a crash could take back is not done.
            let done = if log.sync_policy() == SyncPolicy::Always { durable } else { applied() };
            // What was written to a log that has just begun is worth nothing before its first checkpoint.
            (done, (!log.rests() && !log.lacks_checkpoint()).then_some(durable))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::followed::Master;
    use crate::pause::{Paused, Purpose};
    use crate::shard::{Address, Settings, Shard, Store};
    use crate::{assembly, commands, following};
    use ::log::Lsn;
    use config::{Config, Startup};
    use keyspace::DbIndex;
    use replication::insync::{Epoch, Life, MemberId, NodeId, Options};
    use replication::link::limits::GROUP_WORDS_MAX;
    use std::collections::BTreeMap;
    use std::sync::atomic::Ordering;
    use sys::UnixMs;
    use wire::encode_request;

    fn server(is_member: bool) -> Arc<Server> {
        commands::install();
        let Ok(Startup::Serve { config, .. }) = Config::from_text(b"edition memory\ndatabases 2") else {
            panic!("it makes sense")
        };
        let server = assembly::new(*config, 2);
        let settings = Settings {
            name: "tested".to_owned(),
            node: NodeId(1),
            nodes: BTreeMap::new(),
            store: Store::Server(Address { host: "nowhere".to_owned(), port: 1 }),
            options: Options::default(),
        };
        let id = MemberId { node: settings.node, life: Life(1) };
        assert!(!is_member || server.shard.enter(Arc::new(Shard::new(settings, id, Epoch(1)))));
        following::become_follower(&server);
        server
    }

    fn requests(requests: &[&[&str]]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for words in requests {
            let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
            encode_request(&mut bytes, &words);
        }
        bytes
    }

    /// What comes of a request is progress until it is whole, then what is done of it; each once. What waits while nothing is done is none.
    #[test]
    fn steps_are_counted_within_what_is_not_done_as_a_whole_and_never_while_nothing_is_done() {
        let server = server(true);
        let order = following::stand_behind(&server, Master { host: String::new(), port: 0 }, None);
        let mut rest = Rest::begin(&server, order, Stream::begin(Lsn::ZERO));
        let mut applier = Applier::new(&server);
        let mut take = |bytes: &[u8]| {
            let before = server.following.steps.load(Ordering::Relaxed);
            rest.take(bytes, &mut applier).expect("it can be done");
            (server.following.steps.load(Ordering::Relaxed) - before, rest.waiting_bytes())
        };
        let long = requests(&[&["SELECT", "0"], &["SET", "k", &"v".repeat(1000)]]);
        let whole = requests(&[&["SELECT", "0"]]).len();
        assert_eq!(take(&long[..whole + 100]), (100, 100));
        assert_eq!(take(&long[whole + 100..whole + 400]), (300, 400));
        assert_eq!(take(&[]), (0, 400), "nothing has come");
        assert_eq!(take(&long[whole + 400..]), (0, 0), "it is done, which is told by its place");

        // More words than are noted at a time, so that the keys of all are looked up ahead.
        let transaction = |count: usize| {
            let many = vec![&["INCR", "n"][..]; count];
            requests(&[&[&["MULTI"][..]], &many[..], &[&["EXEC"][..]]].concat())
        };
        let count = GROUP_WORDS_MAX as u64;
        let all = transaction(GROUP_WORDS_MAX);
        assert_eq!(take(&all[..all.len() - 1]), (all.len() as u64 - 1, all.len() - 1));
        assert_eq!(
            take(&all[all.len() - 1..]),
            (2 * count + 2, 0),
            "looked at with MULTI and EXEC, and done"
        );
        assert_eq!(take(&transaction(3)), (3, 0), "it is short: its keys are no work");

        // A pause stands for all that has the stream wait.
        let (engine, now) = (&server.engine, server.engine.clock.now());
        server.pause.begin(engine, Purpose::Client, Paused::Writes, now, UnixMs(u64::MAX));
        assert_eq!(take(&long[..whole + 100]), (0, whole + 100));
        assert_eq!(take(&long[whole + 100..whole + 400]), (0, whole + 400));
        server.pause.end(engine, &server.net.clients, Purpose::Client);
        assert_eq!(take(&[]), (400, 400), "they are of what comes now");
    }

    /// What is tried again counts no more than once.
    #[test]
    fn a_transaction_that_is_held_up_makes_no_steps_by_being_tried_again() {
        let server = server(true);
        let order = following::stand_behind(&server, Master { host: String::new(), port: 0 }, None);
        let mut rest = Rest::begin(&server, order, Stream::begin(Lsn::ZERO));
        let mut applier = Applier::new(&server);
        let many = vec![&["INCR", "n"][..]; GROUP_WORDS_MAX];
        let all = requests(&[&[&["SELECT", "0"][..], &["MULTI"]], &many[..], &[&["EXEC"][..]]].concat());
        let steps = || server.following.steps.load(Ordering::Relaxed);
        let keyspace = &server.engine.keyspace;
        let mut other = keyspace.enter(0);
        assert!(other.try_hold(&[keyspace.key(DbIndex(0), b"n")]));
        assert!(!rest.take(&all, &mut applier).expect("it can be done"), "its key is somebody's");
        let looked_at = steps();
        assert_eq!(looked_at, GROUP_WORDS_MAX as u64 + 2);
        for _ in 0..3 {
            assert!(!rest.take(&[], &mut applier).expect("it can be done"));
        }
        assert_eq!(steps(), looked_at);
        other.release();
        drop(other);
        assert!(rest.take(&[], &mut applier).expect("it can be done"));
        assert_eq!(steps(), looked_at + GROUP_WORDS_MAX as u64);
    }

    /// A member says that it has what its master has, so it does not go on behind what it could not do; any other replica does, as in Redis.
    #[test]
    fn a_member_takes_nothing_behind_what_it_cannot_do() {
        let beginning: &[&[&str]] = &[&["SELECT", "1"], &["SET", "k", "v"]];
        let behind: &[&[&str]] = &[&["SELECT", "0"], &["SET", "k", "w"]];
        let impossible: [&[&[&str]]; 4] = [
            &[&["SELECT", "3"], &["SET", "k", "v"]],
            &[&["LPUSH", "k", "v"]],
            &[&["NEWER", "k"]],
            &[&["GET"]],
        ];
        for (requests, is_member) in impossible.into_iter().flat_map(|one| [(one, true), (one, false)]) {
            let server = server(is_member);
            let order = following::stand_behind(&server, Master { host: String::new(), port: 0 }, None);
            let mut rest = Rest::begin(&server, order, Stream::begin(Lsn::ZERO));
            let mut applier = Applier::new(&server);
            let mut take = |requests: &[&[&str]]| {
                let mut bytes = Vec::new();
                for words in requests {
                    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
                    encode_request(&mut bytes, &words);
                }
                let taken = rest.take(&bytes, &mut applier);
                (taken, done(&server).0)
            };
            let (taken, before) = take(beginning);
            assert!(taken.is_ok_and(|is_done| is_done) && before > 0);
            let (taken, after) = take(&[requests, behind].concat());
            match is_member {
                true => {
                    let error = taken.expect_err("it cannot be done");
                    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
                    let selected = if requests.len() > 1 { 23 } else { 0 };
                    assert_eq!(after, before + selected, "{requests:?}: {error}");
                }
                false => assert!(taken.is_ok_and(|is_done| is_done) && after > before + 23, "{requests:?}"),
            }
        }
    }
}
