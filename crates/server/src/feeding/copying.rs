//! Which full copy a replica gets that cannot go on from where it is, and the threads that make and send them.
//!
//! No replica waits for what another one reads. One that comes alone is sent its copy while that is made, if it knows the end of one whose
//! length it is not told: so no disk is needed. All others get copies by way of files ([`crate::replicas::copies`]): a copy is made at the
//! pace of the disk, for all who want the same, and is sent to each at its own pace. Who comes later gets one that is there, if that is new
//! and nobody has all of it yet, or there are as many as may be.
//!
//! Invariants:
//! 1. At most two copies are made at a time: one that is sent meanwhile, and one in a file.
//! 2. There are at most [`COPIES_MAX`] files. Where another is needed the oldest is given up, with those who are sent it: at once if
//!    nobody can use it, else when it had its time (`repl-timeout`).
//! 3. Who waits first is looked at first.

use super::sending::Sending;
use super::{behind, end, is_relayed, offset_of, unfinished};
use crate::followed::Copying;
use crate::replicas::State;
use crate::replicas::copies::{Copy, Made, Spool};
use crate::replicas::refused::{REFUSED_FOR, Refused};
use crate::replicas::replica::Replica;
use crate::server::Server;
use ::log::ReplicationId;
use engine::durability;
use engine::full_copy::{self, Beginning, Facts, Wanted};
use std::io;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;
use sys::Stamp;
use telemetry::log;
use value::stream::Reads;

/// Copies in files at a time.
const COPIES_MAX: usize = 2;

/// So long after its beginning a copy that nobody has read to its end goes to who comes: longer, and much of the stream would have to be sent
/// behind it.
const NEW_FOR: Duration = Duration::from_secs(60);

/// What is done for somebody who waits.
enum Step {
    /// It is sent a copy while that is made.
    Direct(Arc<Replica>),
    /// It is sent this one.
    Send(Arc<Replica>, Arc<Copy>),
    /// One is made in a file, for it and for others.
    Make(Arc<Replica>),
    /// This one has to go before.
    GiveUp(Arc<Copy>),
}

/// Does what can be done for those that wait for copies.
pub fn begin_next(server: &Arc<Server>) {
    while let Some(step) = next_step(server) {
        match step {
            Step::Direct(replica) => {
                let ended = |server: &Server| server.feeding.state.lock().is_sending_directly = false;
                spawn(server, replica, direct, ended);
            }
            Step::Make(replica) => {
                let ended = |server: &Server| server.feeding.state.lock().is_making = false;
                spawn(server, replica, make, ended);
            }
            Step::Send(replica, copy) => send(server, replica, copy),
            Step::GiveUp(copy) => {
                give_up(server, &copy);
                // They come to their ends, and then it goes on.
                return;
            }
        }
    }
}

fn spawn(
    server: &Arc<Server>,
    replica: Arc<Replica>,
    work: impl FnOnce(&Arc<Server>, &Arc<Replica>) + Send + 'static,
    ended: impl FnOnce(&Server),
) {
    let (thread_server, thread_replica) = (server.clone(), replica.clone());
    let spawned = thread::Builder::new()
        .name("replica-copy".to_owned())
        .spawn(move || work(&thread_server, &thread_replica));
    if let Err(error) = spawned {
        ended(server);
        behind::close(server, &replica, &error);
    }
}

fn next_step(server: &Server) -> Option<Step> {
    let (id, relays) = (server.stream().id, is_relayed(server));
    let state = &mut *server.feeding.state.lock();
    state.waiting.retain(|replica| !replica.is_gone());
    state.copies.retain(|copy| copy.strong_count() > 0);
    let looking = Looking { server, id, relays, state };
    let (at, step) = (0..looking.state.waiting.len()).find_map(|at| Some((at, looking.step_for(at)?)))?;
    match &step {
        Step::GiveUp(_) => return Some(step),
        Step::Direct(_) => state.is_sending_directly = true,
        Step::Make(_) => state.is_making = true,
        Step::Send(replica, copy) => {
            // From now on what is behind it is kept for this one.
            replica.set_position(copy.from);
            copy.add_receiver(replica);
        }
    }
    state.waiting.remove(at);
    Some(step)
}

/// Looks for what can be done.
struct Looking<'l> {
    server: &'l Server,
    id: ReplicationId,
    relays: bool,
    state: &'l State,
}

impl Looking<'_> {
    fn step_for(&self, at: usize) -> Option<Step> {
        let (state, replica) = (self.state, &self.state.waiting[at]);
        let wanted = wanted(self.server, replica);
        let copies: Vec<Arc<Copy>> = state.copies.iter().filter_map(Weak::upgrade).collect();
        let is_any_left = copies.len() < COPIES_MAX;
        let fits = copies.iter().rev().find(|copy| copy.wanted == wanted && self.is_of_use(copy));
        // Who comes when another has read one to its end finds one that begins then, as in a Redis: what was written before is not told again.
        let is_new =
            |copy: &Copy| copy.is_underway() || copy.is_on_its_way() && copy.began.elapsed() < NEW_FOR;
        if let Some(copy) = fits
            && (!is_any_left || is_new(copy))
        {
            return Some(Step::Send(replica.clone(), copy.clone()));
        }
        let is_idle = !state.is_making && !state.is_sending_directly;
        let knows_eof = replica.said.knows_eof && self.server.engine.config.repl_diskless_sync();
        if is_idle && knows_eof && !self.relays && state.waiting.len() == 1 {
            return Some(Step::Direct(replica.clone()));
        }
        match (state.is_making, is_any_left) {
            (true, _) => None,
            (false, true) => Some(Step::Make(replica.clone())),
            (false, false) => self.dispensable(&copies).map(Step::GiveUp),
        }
    }

    /// Whether who gets a copy can go on behind it.
    fn is_of_use(&self, copy: &Copy) -> bool {
        if copy.is_spoilt() || copy.stream != (self.id, self.state.generation) {
            return false;
        }
        let in_backlog = self.state.backlog.as_ref().is_some_and(|backlog| backlog.holds(copy.from));
        let in_segments = || {
            let log = self.server.engine.durability.log();
            log.is_some_and(|log| log.read_stream(copy.from).is_ok_and(|reader| reader.is_some()))
        };
        in_backlog || in_segments()
    }

    fn dispensable(&self, copies: &[Arc<Copy>]) -> Option<Arc<Copy>> {
        let had_its_time = |copy: &Copy| copy.began.elapsed() > behind::patience(self.server);
        let useless = copies.iter().find(|copy| !self.is_of_use(copy));
        useless.or_else(|| copies.iter().find(|copy| had_its_time(copy))).cloned()
    }
}

/// What a replica wants of a copy.
pub fn wanted(server: &Server, replica: &Replica) -> Wanted {
    let said = &replica.said;
    let reads = match engine::image_reads(&server.engine.config) {
        // What it would not be told by that is known to it.
        Reads::Redis50 if said.is_tarn => Reads::Redis70,
        reads => reads,
    };
    Wanted {
        reads,
        knows_field_times: said.is_tarn,
        keys: !said.leaves_keys,
        functions: !said.leaves_functions,
    }
}

fn give_up(server: &Server, copy: &Copy) {
    copy.spoil();
    let error = io::Error::other("its copy is given up for others, who wait for a newer one");
    copy.receivers().iter().filter(|one| !one.is_gone()).for_each(|one| behind::close(server, one, &error));
}

/// Notes that a replica gets a copy.
fn note(server: &Server, replica: &Replica) {
    log!(Notice, "Starting a full copy for replica {}", replica.name());
    server.feeding.full_copies.add(1);
}

fn tell(server: &Server, replica: &Arc<Replica>, done: io::Result<u64>) {
    match done {
        Ok(until) => {
            unfinished::note_sent(server, replica, until);
            log!(Notice, "Synchronization with replica {} succeeded", replica.name());
        }
        Err(error) if Refused::is_reason(&error) && !replica.is_gone() => {
            let (who, now) = (replica.identity(), server.engine.clock.now());
            server.feeding.state.lock().refused.refuse(who, &error, now);
            let told = format!("{error}; it is refused copies for {} seconds", REFUSED_FOR.as_secs());
            behind::close(server, replica, &io::Error::other(told));
        }
        Err(error) => behind::close(server, replica, &error),
    }
}

fn direct(server: &Arc<Server>, replica: &Arc<Replica>) {
    note(server, replica);
    let sending = Sending { server, replica };
    let copied = sending.directly().inspect_err(|_| {
        // It may have all of its copy, and stands where that begins.
        let (from, until) = (replica.position(), end(server));
        from.into_iter().for_each(|from| server.feeding.state.lock().ranges.add(from, until));
    });
    server.feeding.state.lock().is_sending_directly = false;
    begin_next(server);
    tell(server, replica, copied.and_then(|copied| sending.go_on(&copied.behind()).map(|()| copied.until)));
}

fn send(server: &Arc<Server>, replica: Arc<Replica>, copy: Arc<Copy>) {
    let work = move |server: &Arc<Server>, replica: &Arc<Replica>| {
        note(server, replica);
        let done = Sending { server, replica }.by_file(&copy);
        drop(copy);
        tell(server, replica, done);
        begin_next(server);
    };
    spawn(server, replica, work, |_| ());
}

/// Makes a copy in a file, of which a replica is the first to get it.
fn make(server: &Arc<Server>, first: &Arc<Replica>) {
    if let Err(error) = make_for(server, first) {
        log!(Warning, "A full copy for replicas cannot be made: {error}");
        behind::close(server, first, &error);
    }
    server.feeding.state.lock().is_making = false;
    begin_next(server);
}

/// On a server that follows another the copy is of one moment, and the stream goes on behind it as it comes.
///
/// # Errors
/// If it cannot be begun. What comes behind that is told to who gets it.
fn make_for(server: &Arc<Server>, first: &Arc<Replica>) -> io::Result<()> {
    let spool = Spool::begin(&server.engine.dir(), first.client.id)?;
    let still = is_relayed(server).then(|| server.following.stand_still());
    let Begun { beginning, from, selected, copying } = match still.filter(|_| is_relayed(server)) {
        Some(_still) => begin_relayed(server, first)?,
        None => begin_own(server, first),
    };
    let relays = copying.is_some();
    let (id, wanted) = (server.stream().id, wanted(server, first));
    let copy = {
        let mut state = server.feeding.state.lock();
        let copy = Arc::new(Copy::new(wanted, (id, state.generation), beginning, from));
        copy.add_receiver(first);
        state.copies.push(Arc::downgrade(&copy));
        copy
    };
    send(server, first.clone(), copy.clone());
    // Others want the same.
    begin_next(server);
    let made = write(server, &copy, (spool, selected), relays);
    drop(copying);
    if let Some(error) = made.as_ref().err().filter(|_| relays) {
        // Who was to get it may be gone by now.
        log!(Notice, "A full copy for replicas comes to nothing: {error}");
    }
    let until = if relays { from } else { end(server) };
    server.feeding.state.lock().ranges.add(from, until);
    copy.finish(made.map(|(spool, stamps)| Made { spool, stamps, until }));
    Ok(())
}

/// A copy that has begun.
struct Begun<'s> {
    beginning: Beginning,
    /// The offset of that, and the database that is selected there.
    from: u64,
    selected: u32,
    /// Of one of one moment.
    copying: Option<Copying<'s>>,
}

/// While nothing of the master's is done.
fn begin_relayed<'s>(server: &'s Server, first: &Replica) -> io::Result<Begun<'s>> {
    let engine = &*server.engine;
    durability::sync(engine)?;
    let stream = server.stream();
    first.set_position(stream.offset);
    let beginning = full_copy::begin_of_one_moment(engine, || durability::latest(engine));
    let one_moment = beginning.one_moment.clone();
    let copying = one_moment.map(|one_moment| server.following.begin_copying(one_moment));
    Ok(Begun { beginning, from: stream.offset, selected: stream.selected.unwrap_or_default(), copying })
}

fn begin_own(server: &Server, first: &Replica) -> Begun<'static> {
    let beginning = full_copy::begin(&server.engine, || begin_selection(server, first));
    let from = offset_of(&server.engine, beginning.at);
    first.set_position(from);
    // The stream selects before anything else.
    Begun { beginning, from, selected: 0, copying: None }
}

fn write(
    server: &Server,
    copy: &Arc<Copy>,
    (mut spool, selected): (Spool, u32),
    relays: bool,
) -> io::Result<(Spool, full_copy::Stamps)> {
    let whole_from = || match relays {
        // It is as whole as what is here.
        true => server.following.taken.lock().whole_from(copy.from),
        false => Some(end(server)),
    };
    let facts = Facts { first: &facts(server, copy.from, selected), whole_from: &whole_from };
    let stamps = full_copy::write(&server.engine, &copy.beginning, copy.wanted, &facts, &mut |piece| {
        if is_wanted_by_nobody(server, copy) {
            return Err(io::Error::other("nobody waits for it any more"));
        }
        spool.write(&piece)
    })?;
    Ok((spool, stamps))
}

/// Whether all who were to get a copy are gone. Nobody gets it any more then.
fn is_wanted_by_nobody(server: &Server, copy: &Arc<Copy>) -> bool {
    // Who comes is given it with this locked.
    let _state = server.feeding.state.lock();
    let is_so = Arc::strong_count(copy) == 1;
    if is_so {
        copy.spoil();
    }
    is_so
}

/// Has the stream select its database anew, and gives where it does. From now on what is behind that is kept for the replica.
pub fn begin_selection(server: &Server, replica: &Replica) -> Stamp {
    begin_reading(server, |_, offset| replica.set_position(offset))
}

/// The same for another reader. Without a log, `keep` is told from where on it needs the stream.
pub fn begin_reading(server: &Server, keep: impl FnOnce(&mut State, u64)) -> Stamp {
    match server.engine.durability.log() {
        Some(log) => Stamp(log.begin_selection().0),
        None => {
            let state = &mut *server.feeding.state.lock();
            state.dresser.forget();
            let end = state.journal_end;
            keep(state, end);
            Stamp(end)
        }
    }
}

/// What stands at the beginning of a copy.
pub fn facts(server: &Server, offset: u64, database: u32) -> Vec<(&'static str, String)> {
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
