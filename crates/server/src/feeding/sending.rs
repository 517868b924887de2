//! Sends one replica its full copy, and behind it what was written meanwhile, filtered ([`super::filter`]); then the replica reads the stream
//! that all read.
//!
//! Thread rule: one thread for each replica.
//!
//! Invariants:
//! 1. A copy holds nothing that is not as durable as the stream that is sent.
//! 2. Nothing follows a copy without a length before the replica has said that it has it: it looks for the end in what comes last.

use super::behind::{self, Reading};
use super::copying::{begin_selection, facts, wanted};
use super::filter::Filter;
use super::{end, is_relayed, offset_of, unfinished};
use crate::replicas::copies::{Copy, Spool};
use crate::replicas::replica::{Form, Replica, Stage};
use crate::server::Server;
use ::log::ReplicationId;
use engine::full_copy::{self, Beginning, Facts, Lookout, Stamps};
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// How often it looks for more of the stream.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// A replica that is sent a copy.
pub struct Sending<'s> {
    pub server: &'s Arc<Server>,
    pub replica: &'s Arc<Replica>,
}

/// A copy that was sent while it was made.
pub struct Copied {
    beginning: Beginning,
    stamps: Stamps,
    from: u64,
    /// The offset of its end.
    pub until: u64,
}

impl Copied {
    /// What comes behind it.
    pub fn behind(&self) -> Behind<'_> {
        let Copied { beginning, stamps, from, until } = self;
        Behind { beginning, stamps, from: *from, until: *until, by_mark: true }
    }
}

/// What comes behind a copy.
pub struct Behind<'c> {
    beginning: &'c Beginning,
    stamps: &'c Stamps,
    /// Offsets of its beginning and end.
    from: u64,
    until: u64,
    /// Whether its length was not told.
    by_mark: bool,
}

impl Sending<'_> {
    /// Sends a copy while it is made.
    ///
    /// # Errors
    /// If it cannot be made, or the replica does not take it.
    pub fn directly(&self) -> io::Result<Copied> {
        let (server, replica, engine) = (self.server, self.replica, &*self.server.engine);
        let beginning = full_copy::begin(engine, || begin_selection(server, replica));
        let from = offset_of(engine, beginning.at);
        replica.set_position(from);
        self.say_where(server.stream().id, from)?;
        // The stream selects before anything else.
        let first = facts(server, from, 0);
        let facts = Facts { first: &first, whole_from: &|| Some(end(server)) };
        let patience = behind::patience(server);
        let mark = ReplicationId::new().to_string();
        replica.take_blanks(false);
        replica.send(format!("$EOF:{mark}\r\n").into_bytes(), patience)?;
        let (wanted, lookout) = (wanted(server, replica), Lookout::new(engine));
        let stamps = full_copy::write(engine, &beginning, wanted, &facts, &mut |piece| {
            behind::wait_until_sendable(server, end(server))?;
            replica.send_while(piece, patience, &|| lookout.fail_if_much_is_kept())
        })?;
        replica.send(mark.into_bytes(), patience)?;
        let until = end(server);
        server.feeding.state.lock().ranges.add(from, until);
        Ok(Copied { beginning, stamps, from, until })
    }

    /// Sends a copy that is or will be in a file, and what comes behind it. Gives the offset of the copy's end.
    ///
    /// # Errors
    /// If there is none, or the replica does not take it.
    pub fn by_file(&self, copy: &Copy) -> io::Result<u64> {
        let (server, replica) = (self.server, self.replica);
        self.say_where(copy.stream.0, copy.from)?;
        let made = copy.wait(replica)?;
        replica.set_stage(Stage::Copies);
        behind::wait_until_sendable(server, made.until)?;
        self.spool(copy, &made.spool)?;
        let (beginning, stamps) = (&copy.beginning, &made.stamps);
        let behind = Behind { beginning, stamps, from: copy.from, until: made.until, by_mark: false };
        self.go_on(&behind).inspect_err(|error| match error.kind() {
            // It is the replica's.
            ErrorKind::TimedOut | ErrorKind::BrokenPipe => {}
            // What it lacks is something that nobody can be sent behind this copy.
            _ => copy.spoil(),
        })?;
        Ok(made.until)
    }

    /// Says where the stream goes on behind the copy.
    fn say_where(&self, id: ReplicationId, from: u64) -> io::Result<()> {
        let (server, replica) = (self.server, self.replica);
        if replica.form == Form::Psync {
            if !is_relayed(server) {
                unfinished::note_begun(server, replica, from)?;
            }
            replica.say(format!("+FULLRESYNC {id} {from}\r\n").as_bytes());
        }
        Ok(())
    }

    fn spool(&self, copy: &Copy, spool: &Spool) -> io::Result<()> {
        let (server, replica) = (self.server, self.replica);
        replica.take_blanks(false);
        let patience = behind::patience(server);
        replica.send(format!("${}\r\n", spool.bytes()).into_bytes(), patience)?;
        let mut at = 0;
        while at < spool.bytes() {
            let piece = spool.read(at)?;
            at += piece.len() as u64;
            if at == spool.bytes() {
                copy.note_taken();
            }
            replica.send(piece, patience)?;
        }
        Ok(())
    }

    /// Sends what was written while the copy was made, and has the replica read on by itself.
    ///
    /// # Errors
    /// If that cannot be sent behind a copy, is not there any more, or the replica does not take it.
    pub fn go_on(&self, copied: &Behind<'_>) -> io::Result<()> {
        let (server, replica) = (self.server, self.replica);
        if replica.said.rdb_only {
            replica.end();
            return Ok(());
        }
        if copied.by_mark {
            let patience = behind::patience(server);
            replica.wait_for_acknowledgement(|silent| match silent > patience {
                true => Err(io::Error::other("it says nothing while it loads its copy (repl-timeout)")),
                false => self.check_room(copied.from),
            })?;
        }
        let patience = behind::patience(server);
        let mut filter = Filter::new(&server.engine, copied.stamps, copied.from, copied.beginning.at);
        let mut reading = Reading::new(server, copied.from);
        let mut sent = copied.from;
        while reading.offset() < copied.until {
            let bytes = reading.next(copied.until)?;
            if bytes.is_empty() {
                behind::wait_until_sendable(server, copied.until)?;
                thread::sleep(LOOK_AGAIN);
                continue;
            }
            let mut filtered = Vec::new();
            filter.take(&bytes, &mut filtered)?;
            server.feeding.look_at(replica, &filtered, sent)?;
            sent += filtered.len() as u64;
            replica.send_behind_copy(filtered, patience)?;
            replica.set_position(reading.offset());
        }
        // It has had no reason to say anything until now.
        replica.note_alive(server.engine.clock.now());
        replica.go_on(Some(copied.until));
        Ok(())
    }

    /// Fails where what the replica will need is not kept any more.
    fn check_room(&self, from: u64) -> io::Result<()> {
        let server = self.server;
        let is_lost = server.engine.durability.kept_log().is_none()
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
