//! One shard's copy: what its master sends a replica, in a file, up to where [`super::cut`] says.
//!
//! Thread rule: one thread a shard; what others see of it is in [`Copy`], under its lock.

use super::Reach;
use super::reading::{Kind, kind};
use crate::asking::{Entry, keeps_out};
use net::connect::Outgoing;
use parking_lot::Mutex;
use replication::link::limits::RDB_BYTES_MAX_DEFAULT;
use replication::link::{
    Ask, Ending, Form, Handshake, MasterStream, Outcome, Place, Replica, Role, Transfer, Words,
    acknowledgement,
};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use sys::file::{File, Fs, Mode};
use topology::{Server, ShardId};

/// How long it may take to reach a server.
const CONNECTING: Duration = Duration::from_secs(3);
/// How long a master may be silent. It is heard of every ten seconds.
const SILENCE: Duration = Duration::from_secs(60);
/// How often the master hears of this end.
const WORD: Duration = Duration::from_millis(500);
/// How often a copy is begun of which something comes.
const ATTEMPTS: u32 = 20;
/// How long nothing may come: a shard may be without a master, and have another some time later.
const PATIENCE: Duration = Duration::from_secs(300);
/// Between two attempts.
const REST: Duration = Duration::from_millis(500);
/// How often a copy that has ended looks whether it has done so in vain.
const LOOKING: Duration = Duration::from_millis(20);
/// Why a copy that has ended begins anew.
const IN_VAIN: &str = "others break off behind the moments that all have in common";
/// What is read at a time.
const READ_BYTES: usize = 256 << 10;
/// The longest transaction, which is in memory as a whole.
const UNIT_BYTES_MAX: usize = 2 << 30;

/// How far a copy is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The RDB comes.
    Copying,
    /// It is there; the stream behind it comes.
    Following(Following),
    /// All is there, up to the cut; the RDB is so long.
    Whole(Following, u64),
    /// Nothing will come of it.
    Failed(String),
}

/// Whose stream comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Following {
    /// Its name.
    pub stream: String,
    /// Where the RDB stands in it.
    pub from: u64,
}

/// What others see, and say.
pub struct Copy {
    pub shard: ShardId,
    pub phase: Phase,
    /// Which attempt that is of.
    pub attempt: u32,
    /// Bytes that came.
    pub bytes: u64,
    /// What comes may be behind the moment that is looked for: it is kept in memory until that is known.
    pub is_held: bool,
    /// Where it is to end, once that is known.
    pub cut: Option<u64>,
    /// Why it was begun anew.
    pub trouble: Option<String>,
    /// It is whole up to a moment that is none any more.
    pub is_in_vain: bool,
}

impl Copy {
    pub fn new(shard: ShardId) -> Copy {
        Copy {
            shard,
            phase: Phase::Copying,
            attempt: 0,
            bytes: 0,
            is_held: false,
            cut: None,
            trouble: None,
            is_in_vain: false,
        }
    }

    /// The moment at which it was to end is none any more: it goes on, or begins anew if it has ended there.
    pub fn lose_moment(&mut self) {
        self.cut = None;
        self.is_in_vain = matches!(self.phase, Phase::Whole(..));
    }
}

enum Trouble {
    /// Another attempt may end otherwise.
    Again(String),
    Final(String),
}

impl Trouble {
    fn of_disk(path: &Path, error: &io::Error) -> Trouble {
        Trouble::Final(format!("{} cannot be written: {error}", path.display()))
    }
}

/// Makes the copy of a shard.
pub fn run(reach: &Reach, copy: &Mutex<Copy>, path: &Path, is_over: &AtomicBool) {
    let shard = copy.lock().shard;
    let (mut broken_off, mut without_since, mut told) = (0, Instant::now(), String::new());
    loop {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        let master = reach.topology().and_then(|topology| {
            let master = topology.master_of(shard).cloned();
            master.ok_or_else(|| format!("shard {shard} has no master"))
        });
        let attempt = master
            .map_err(Trouble::Again)
            .and_then(|master| Attempt { reach, copy, path, is_over }.run(&master))
            .and_then(|()| rest_at_moment(copy, is_over));
        match attempt {
            Ok(()) => return,
            Err(Trouble::Final(why)) => return copy.lock().phase = Phase::Failed(why),
            Err(Trouble::Again(why)) => {
                let is_refused = keeps_out(&why);
                let why = format!("shard {shard}: {why}");
                let mut copy = copy.lock();
                if copy.bytes > 0 {
                    (broken_off, without_since) = (broken_off + 1, Instant::now());
                }
                if is_refused || broken_off >= ATTEMPTS || without_since.elapsed() >= PATIENCE {
                    return copy.phase = Phase::Failed(why);
                }
                (copy.phase, copy.bytes, copy.cut) = (Phase::Copying, 0, None);
                copy.attempt += 1;
                // Whoever has it begin anew has told why.
                if !std::mem::take(&mut copy.is_in_vain) && why != told {
                    copy.trouble = Some(format!("{why}; its copy is begun anew"));
                    told = why;
                }
            }
        }
        thread::sleep(REST);
    }
}

/// Waits, behind a copy's end, until the backup is over, or the moment turns out to be none.
fn rest_at_moment(copy: &Mutex<Copy>, is_over: &AtomicBool) -> Result<(), Trouble> {
    while !is_over.load(Ordering::Relaxed) {
        if copy.lock().is_in_vain {
            return Err(Trouble::Again(IN_VAIN.to_owned()));
        }
        thread::sleep(LOOKING);
    }
    Ok(())
}

struct Attempt<'a> {
    reach: &'a Reach,
    copy: &'a Mutex<Copy>,
    path: &'a Path,
    is_over: &'a AtomicBool,
}

impl Attempt<'_> {
    fn run(&self, master: &Server) -> Result<(), Trouble> {
        let (host, port) = self.reach.address(master);
        let broken = |why: &dyn std::fmt::Display| Trouble::Again(format!("its master {host}:{port}: {why}"));
        let Entry { user, password, tls } = self.reach.servers.clone();
        let deadline = Instant::now() + CONNECTING;
        let mut outgoing = Outgoing::connect(host.to_owned(), port, tls, deadline, &mut || Ok(()))
            .map_err(|error| broken(&error))?;
        let replica = Replica {
            user: user.map(String::into_bytes),
            password: password.map(String::into_bytes),
            ..Replica::default()
        };
        let mut source = Source { outgoing: &mut outgoing, is_over: self.is_over, buffer: Vec::new() };
        let (handshake, first) = Handshake::begin(replica, Ask::Full);
        source.send(&first).map_err(|error| broken(&error))?;
        let (stream, from) = match shake_hands(&mut source, handshake).map_err(|error| broken(&error))? {
            Outcome::Full { id, offset } => (id.to_string(), offset),
            Outcome::Refused(ending) | Outcome::Later(ending) => return Err(broken(&ending)),
            Outcome::Partial { .. } | Outcome::Parted { .. } => {
                return Err(broken(&"it answers what was not asked"));
            }
        };
        let file = Fs::Real.open(self.path, Mode::Truncate);
        let file = file.map_err(|error| Trouble::of_disk(self.path, &error))?;
        let rdb_bytes = self.take_rdb(&mut source, &file, &broken)?;
        // Not more than was copied: whoever waits for replicas is not to count this end.
        let word = acknowledgement(from, None);
        source.send(&word).map_err(|error| broken(&error))?;
        let following = Following { stream, from };
        self.copy.lock().phase = Phase::Following(following.clone());
        let whole = Phase::Whole(following, rdb_bytes);
        self.follow(&mut source, (&file, rdb_bytes), (from, &word), &whole, &broken)
    }

    fn take_rdb(
        &self,
        source: &mut Source<'_>,
        file: &File,
        broken: &dyn Fn(&dyn std::fmt::Display) -> Trouble,
    ) -> Result<u64, Trouble> {
        let (mut transfer, mut at) = (Transfer::new(RDB_BYTES_MAX_DEFAULT), 0);
        loop {
            if source.buffer.is_empty() {
                source.fill(SILENCE).map_err(|error| broken(&error))?;
            }
            let bytes = std::mem::take(&mut source.buffer);
            let taken = transfer.step(&bytes).map_err(|ending| broken(&ending))?;
            for part in taken.parts() {
                file.write_at(part, at).map_err(|error| Trouble::of_disk(self.path, &error))?;
                at += part.len() as u64;
            }
            let (used, is_complete) = (taken.used, taken.is_complete);
            source.buffer = bytes[used..].to_vec();
            self.copy.lock().bytes = transfer.handed_out();
            if is_complete {
                debug_assert!(matches!(transfer.form(), Some(Form::Length(_) | Form::Mark)));
                return Ok(transfer.handed_out());
            }
        }
    }

    /// Takes the stream until it is known where it is to end, and that is there: then the copy is whole. Nothing behind that gets to the file: what comes while a moment is looked
    /// for is kept, and what had come before that is before the moment.
    fn follow(
        &self,
        source: &mut Source<'_>,
        (file, mut end): (&File, u64),
        (from, word): (u64, &[u8]),
        whole: &Phase,
        broken: &dyn Fn(&dyn std::fmt::Display) -> Trouble,
    ) -> Result<(), Trouble> {
        let mut stream = Stream::new(from);
        let (mut at, mut kept) = (from, Vec::new());
        let (mut heard, mut said) = (Instant::now(), Instant::now());
        loop {
            let (cut, is_held) = {
                let copy = self.copy.lock();
                (copy.cut, copy.is_held)
            };
            let until = cut.unwrap_or(if is_held { at } else { u64::MAX });
            let due = usize::try_from(until.saturating_sub(at)).unwrap_or(usize::MAX).min(kept.len());
            if due > 0 {
                file.write_at(&kept[..due], end).map_err(|error| Trouble::of_disk(self.path, &error))?;
                if stream.empties(&kept[..due]).map_err(|ending| broken(&ending))? {
                    return Err(Trouble::Again(
                        "its databases were emptied or exchanged meanwhile".to_owned(),
                    ));
                }
                kept.drain(..due);
                (at, end) = (at + due as u64, end + due as u64);
                self.copy.lock().bytes += due as u64;
            }
            if cut.is_some_and(|cut| cut <= at) {
                file.sync_data().map_err(|error| Trouble::of_disk(self.path, &error))?;
                let mut copy = self.copy.lock();
                // There may be another moment by now.
                if copy.cut == cut {
                    copy.phase = whole.clone();
                    return Ok(());
                }
            }
            if said.elapsed() >= WORD {
                source.send(word).map_err(|error| broken(&error))?;
                said = Instant::now();
            }
            if source.buffer.is_empty() && !source.listen().map_err(|error| broken(&error))? {
                if heard.elapsed() >= SILENCE {
                    return Err(broken(&"it is silent"));
                }
                continue;
            }
            heard = Instant::now();
            kept.append(&mut source.buffer);
        }
    }
}

/// The stream that came, as far as it is asked what it does.
struct Stream {
    stream: MasterStream,
    words: Words,
}

impl Stream {
    fn new(from: u64) -> Stream {
        let place = Place { offset: from, database: 0 };
        Stream { stream: MasterStream::new(place, UNIT_BYTES_MAX), words: Words::default() }
    }

    /// Whether something in these bytes changes all keys.
    fn empties(&mut self, bytes: &[u8]) -> Result<bool, Ending> {
        self.stream.feed(bytes);
        while let Some(unit) = self.stream.next_unit()? {
            let mut walk = unit.walk(&mut self.words);
            while let Some(group) = walk.next_group() {
                let mut commands = group.requests().filter(|one| one.role == Role::Command);
                if commands.any(|one| kind(&one.request) == Kind::All) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}

fn shake_hands(source: &mut Source<'_>, mut handshake: Handshake) -> io::Result<Outcome> {
    loop {
        if source.buffer.is_empty() {
            source.fill(SILENCE)?;
        }
        let step = handshake.step(&source.buffer);
        source.buffer.drain(..step.used);
        if !step.send.is_empty() {
            source.send(&step.send)?;
        }
        if let Some(outcome) = step.outcome {
            return Ok(outcome);
        }
    }
}

/// What comes from a master, and was not taken yet.
struct Source<'s> {
    outgoing: &'s mut Outgoing,
    is_over: &'s AtomicBool,
    buffer: Vec<u8>,
}

impl Source<'_> {
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.outgoing.set_deadline(Instant::now() + CONNECTING);
        self.outgoing.write_all(bytes, &mut || Ok(()))
    }

    /// Waits for something to come.
    fn fill(&mut self, patience: Duration) -> io::Result<()> {
        let until = Instant::now() + patience;
        while !self.listen()? {
            if Instant::now() >= until {
                return Err(ErrorKind::TimedOut.into());
            }
        }
        Ok(())
    }

    /// Waits for something to come for a moment. Whether something has.
    fn listen(&mut self) -> io::Result<bool> {
        let is_over = self.is_over;
        let mut look = || match is_over.load(Ordering::Relaxed) {
            true => Err(ErrorKind::Interrupted.into()),
            false => Ok(()),
        };
        self.outgoing.set_deadline(Instant::now() + Duration::from_millis(50));
        let mut buffer = vec![0; READ_BYTES];
        match self.outgoing.read(&mut buffer, &mut look) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                self.buffer.extend_from_slice(&buffer[..count]);
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::TimedOut => Ok(false),
            Err(error) => Err(error),
        }
    }
}
