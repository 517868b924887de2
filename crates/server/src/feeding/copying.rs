//! Full copies: what a replica gets that cannot go on from where it is.
//!
//! A thread makes one copy at a time; other replicas wait, and are told every second that this server is still there. A copy goes to its
//! replica while it is made where that knows the end of one whose length it is not told, else by way of a file. Behind it comes what was
//! written meanwhile, filtered ([`super::filter`]), and then the stream that all read.
//!
//! Invariants:
//! 1. A copy holds nothing that is not as durable as the stream that is sent.
//! 2. Nothing follows a copy without a length before the replica has said that it has it: it looks for the end in what comes last.

use super::behind::{self, Reading};
use super::filter::Filter;
use super::unfinished;
use super::{end, is_relayed, offset_of};
use crate::replicas::replica::{Form, Replica, Stage};
use crate::server::Server;
use ::log::ReplicationId;
use engine::durability;
use engine::full_copy::{self, Beginning, Stamps, Wanted};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use sys::Stamp;
use sys::file::{File, Fs, Mode};
use telemetry::log;

/// Bytes read at once of a file.
const PIECE_BYTES: usize = 256 << 10;

/// How often it looks for more of the stream.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Begins the next copy if there is none and somebody waits for one.
pub fn begin_next(server: &Arc<Server>) {
    let Some(replica) = next_in_turn(server) else { return };
    let (thread_server, thread_replica) = (server.clone(), replica.clone());
    let spawned = thread::Builder::new()
        .name("replica-copy".to_owned())
        .spawn(move || run(&thread_server, &thread_replica));
    if let Err(error) = spawned {
        server.feeding.state.lock().is_copying = false;
        behind::close(server, &replica, &error);
    }
}

fn next_in_turn(server: &Server) -> Option<Arc<Replica>> {
    let state = &mut *server.feeding.state.lock();
    if state.is_copying {
        return None;
    }
    let replica = loop {
        let replica = state.waiting.pop_front()?;
        if !replica.is_gone() {
            break replica;
        }
    };
    state.is_copying = true;
    Some(replica)
}

fn run(server: &Arc<Server>, replica: &Arc<Replica>) {
    log!(Notice, "Starting a full copy for replica {}", replica.name());
    server.feeding.full_copies.add(1);
    let copied = Copying { server, replica }.copy().inspect_err(|_| {
        // It may have all of its copy, and stands where that begins.
        let (from, until) = (replica.position(), end(server));
        from.into_iter().for_each(|from| server.feeding.state.lock().ranges.add(from, until));
    });
    server.feeding.state.lock().is_copying = false;
    begin_next(server);
    let done = copied.and_then(|copied| {
        let until = copied.until;
        Copying { server, replica }.go_on(copied)?;
        unfinished::note_sent(server, replica, until);
        Ok(())
    });
    match done {
        Ok(()) => log!(Notice, "Synchronization with replica {} succeeded", replica.name()),
        Err(error) => behind::close(server, replica, &error),
    }
}

/// A copy that has been handed on.
struct Copied {
    beginning: Beginning,
    stamps: Stamps,
    /// Offsets of its beginning and end.
    from: u64,
    until: u64,
    /// Whether its length was not told.
    by_mark: bool,
}

struct Copying<'c> {
    server: &'c Arc<Server>,
    replica: &'c Arc<Replica>,
}

impl Copying<'_> {
    fn copy(&self) -> io::Result<Copied> {
        let (server, replica, engine) = (self.server, self.replica, &*self.server.engine);
        replica.set_stage(Stage::Copies);
        if is_relayed(server) {
            return self.copy_relayed();
        }
        let beginning = full_copy::begin(engine, || self.begin_selection());
        let from = offset_of(engine, beginning.at);
        replica.set_position(from);
        let id = server.stream().id;
        if replica.form == Form::Psync {
            unfinished::note_begun(server, replica)?;
            replica.say(format!("+FULLRESYNC {id} {from}\r\n").as_bytes());
        }
        let by_mark = replica.said.knows_eof && engine.config.repl_diskless_sync();
        // The stream selects before anything else.
        let facts = self.facts(from, 0);
        let stamps = match by_mark {
            true => self.send_by_mark(&beginning, &facts)?,
            false => self.send_by_file(&beginning, &facts)?,
        };
        let until = end(server);
        server.feeding.state.lock().ranges.add(from, until);
        Ok(Copied { beginning, stamps, from, until, by_mark })
    }

    /// The same on a server that follows another: nothing of the master's is done meanwhile, so that the copy is of one moment, and the
    /// stream goes on behind it as it comes. It goes through a file, since the master is not to wait for the replica.
    fn copy_relayed(&self) -> io::Result<Copied> {
        let (server, replica, engine) = (self.server, self.replica, &*self.server.engine);
        let still = server.following.stand_still();
        durability::sync(engine)?;
        let stream = server.stream();
        let from = stream.offset;
        replica.set_position(from);
        if replica.form == Form::Psync {
            replica.say(format!("+FULLRESYNC {} {from}\r\n", stream.id).as_bytes());
        }
        let beginning = full_copy::begin(engine, || durability::latest(engine));
        let (spool, stamps) =
            self.spool(&beginning, &self.facts(from, stream.selected.unwrap_or_default()))?;
        drop(still);
        self.send_spool(&spool)?;
        Ok(Copied { beginning, stamps, from, until: from, by_mark: false })
    }

    /// Has the stream select its database anew, and gives where it does.
    fn begin_selection(&self) -> Stamp {
        match self.server.engine.durability.log() {
            Some(log) => Stamp(log.begin_selection().0),
            None => {
                let mut state = self.server.feeding.state.lock();
                state.dresser.forget();
                // From now on the backlog keeps what is behind it.
                self.replica.set_position(state.journal_end);
                Stamp(state.journal_end)
            }
        }
    }

    fn wanted(&self) -> Wanted {
        let said = &self.replica.said;
        Wanted {
            reads: engine::image_reads(&self.server.engine.config),
            knows_field_times: said.is_tarn,
            keys: !said.leaves_keys,
            functions: !said.leaves_functions,
        }
    }

    fn facts(&self, offset: u64, database: u32) -> Vec<(&'static str, String)> {
        let server = self.server;
        vec![
            ("redis-ver", command::version::REDIS_VERSION.to_owned()),
            ("redis-bits", "64".to_owned()),
            ("ctime", server.engine.clock.now().seconds().to_string()),
            ("used-mem", sys::memory::used_bytes().to_string()),
            ("repl-stream-db", database.to_string()),
            ("repl-id", server.stream().id.to_string()),
            ("repl-offset", offset.to_string()),
            ("aof-base", "0".to_owned()),
        ]
    }

    fn send_by_mark(&self, beginning: &Beginning, facts: &[(&str, String)]) -> io::Result<Stamps> {
        let (server, replica) = (self.server, self.replica);
        let patience = behind::patience(server);
        let mark = ReplicationId::new().to_string();
        replica.take_blanks(false);
        replica.send(format!("$EOF:{mark}\r\n").into_bytes(), patience)?;
        let stamps = full_copy::write(&server.engine, beginning, self.wanted(), facts, &mut |piece| {
            behind::wait_until_sendable(server, end(server))?;
            replica.send(piece, patience)
        })?;
        replica.send(mark.into_bytes(), patience)?;
        Ok(stamps)
    }

    fn send_by_file(&self, beginning: &Beginning, facts: &[(&str, String)]) -> io::Result<Stamps> {
        let (spool, stamps) = self.spool(beginning, facts)?;
        self.send_spool(&spool)?;
        Ok(stamps)
    }

    fn spool(&self, beginning: &Beginning, facts: &[(&str, String)]) -> io::Result<(Spool, Stamps)> {
        let (server, replica) = (self.server, self.replica);
        let mut spool = Spool::begin(server.engine.dir(), replica.client.id)?;
        let stamps = full_copy::write(&server.engine, beginning, self.wanted(), facts, &mut |piece| {
            if replica.is_gone() {
                return Err(io::Error::other("it is gone"));
            }
            spool.write(&piece)
        })?;
        Ok((spool, stamps))
    }

    fn send_spool(&self, spool: &Spool) -> io::Result<()> {
        let (server, replica) = (self.server, self.replica);
        behind::wait_until_sendable(server, end(server))?;
        replica.take_blanks(false);
        let patience = behind::patience(server);
        replica.send(format!("${}\r\n", spool.bytes).into_bytes(), patience)?;
        let mut at = 0;
        while at < spool.bytes {
            let piece = spool.read(at)?;
            at += piece.len() as u64;
            replica.send(piece, patience)?;
        }
        Ok(())
    }

    /// Sends what was written while the copy was made, and has the replica read on by itself.
    fn go_on(&self, copied: Copied) -> io::Result<()> {
        let (server, replica) = (self.server, self.replica);
        if replica.said.rdb_only {
            replica.end();
            return Ok(());
        }
        if copied.by_mark {
            let (began, patience) = (Instant::now(), behind::patience(server));
            replica.wait_for_acknowledgement(|| match began.elapsed() > patience {
                true => Err(io::Error::other("it does not say that it has loaded its copy")),
                false => self.check_room(copied.from),
            })?;
        }
        let patience = behind::patience(server);
        let mut filter = Filter::new(&server.engine, &copied.stamps, copied.from, copied.beginning.at);
        let mut reading = Reading::new(server, copied.from);
        while reading.offset() < copied.until {
            let bytes = reading.next(copied.until)?;
            if bytes.is_empty() {
                behind::wait_until_sendable(server, copied.until)?;
                thread::sleep(LOOK_AGAIN);
                continue;
            }
            server.feeding.refuse_foreign(replica, reading.offset())?;
            let mut filtered = Vec::new();
            filter.take(&bytes, &mut filtered)?;
            replica.send(filtered, patience)?;
            replica.set_position(reading.offset());
        }
        replica.go_on(Some(copied.until));
        Ok(())
    }

    /// Fails where what the replica will need is not kept any more.
    fn check_room(&self, from: u64) -> io::Result<()> {
        let server = self.server;
        let is_lost = server.engine.durability.log().is_none()
            && server.feeding.state.lock().backlog.as_ref().is_none_or(|backlog| !backlog.holds(from));
        match (server.engine.is_ending(), is_lost) {
            (true, _) => Err(io::Error::other("the server ends")),
            (_, true) => Err(io::Error::other(
                "more was written than is kept for it (client-output-buffer-limit replica, repl-backlog-size)",
            )),
            _ => Ok(()),
        }
    }
}

/// With which the names of such files begin.
const SPOOL_BEGIN: &str = "temp-replica-";

/// Removes what a run that was ended has left of copies on their way to replicas.
pub fn remove_left(dir: &Path) {
    let names = Fs::Real.list(dir).unwrap_or_default();
    let is_left = |name: &&str| name.starts_with(SPOOL_BEGIN) && name.ends_with(".rdb");
    for name in names.iter().filter_map(|name| name.to_str()).filter(is_left) {
        // What stays does no harm but by its size.
        let _ = Fs::Real.remove(&dir.join(name));
    }
}

/// A copy on its way through a file, which goes with this.
struct Spool {
    path: PathBuf,
    file: File,
    bytes: u64,
}

impl Spool {
    fn begin(dir: PathBuf, number: u64) -> io::Result<Spool> {
        let path = dir.join(format!("{SPOOL_BEGIN}{}-{number}.rdb", std::process::id()));
        let file = Fs::Real.open(&path, Mode::CreateNew)?;
        Ok(Spool { path, file, bytes: 0 })
    }

    fn write(&mut self, piece: &[u8]) -> io::Result<()> {
        self.file.write_at(piece, self.bytes)?;
        self.bytes += piece.len() as u64;
        Ok(())
    }

    fn read(&self, at: u64) -> io::Result<Vec<u8>> {
        let mut piece = vec![0; PIECE_BYTES.min(usize::try_from(self.bytes - at).unwrap_or(PIECE_BYTES))];
        let read = self.file.read_full_at(&mut piece, at)?;
        if read == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file became shorter"));
        }
        piece.truncate(read);
        Ok(piece)
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = Fs::Real.remove(&self.path);
    }
}
