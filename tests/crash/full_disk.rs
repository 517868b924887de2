//! A disk of 200 MB, filled to the brim and freed: writes are refused and reads go on while it is full, writes resume when it is
//! not, and nothing that was answered is lost, whenever the server is killed.
//!
//! A reply may never come: that of a write which the server took before it knew that the disk was full, or of a read
//! of what such a write made. Who asks here therefore waits for a moment only, and then asks over another connection.

mod disk;

use super::ledger::Books;
use super::load::{self, Refusals, Stage};
use crate::subject::{self, Subject};
use disk::Disk;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use sys::Prng;
use testkit::{Client, Server};
use wire::Value;

const DISK_BYTES: u64 = 200 << 20;
/// What the ballast leaves free.
const ROOM_BYTES: u64 = 32 << 20;
/// The same where the last part of a disk is kept for checkpoints.
const CAPACITY_ROOM_BYTES: u64 = 112 << 20;
const VALUE_BYTES: usize = 256 * 1024;
/// Clients that write small things meanwhile.
const WRITERS: usize = 2;
/// A reply to a write that has not come after so long is not waited for.
const PATIENCE: Duration = Duration::from_secs(1);
/// The same for a read. One that would show what is not on disk is told so long before.
const READ_PATIENCE: Duration = Duration::from_secs(60);
/// Longest wait for the disk to be full, or writes to be accepted again.
const TURN_SECONDS_MAX: u64 = 300;
/// Values read from the full server, each over a connection of its own.
const READS: u64 = 40;
/// So many of them must come. The others may be in one slot with a write that waits for the disk.
const READS_MIN: u64 = 35;

/// When the server is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kill {
    WhileFull,
    OnceWritesResumed,
}

/// How a write or a read went.
#[derive(Debug, PartialEq)]
enum Reply {
    Came(Value),
    Waits,
}

/// A request over a connection of its own. The connection comes back with it: closing it would tell the server that
/// nobody waits.
fn ask(server: &Server, request: &[&[u8]], patience: Duration) -> (Client, Reply) {
    let mut client = server.connect().expect("the server accepts connections");
    client.stream().set_read_timeout(Some(patience)).expect("a socket has timeouts");
    client.send_request(request).expect("the server reads");
    let reply = match client.read_value() {
        Ok(value) => Reply::Came(value),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Reply::Waits,
        Err(error) => panic!("a connection broke: {error}"),
    };
    (client, reply)
}

/// Large values, and which of them must be there.
#[derive(Default)]
struct Filling {
    next: u64,
    answered: Vec<u64>,
    waiting: Vec<Client>,
    /// Writes that were refused since a script is busy.
    busy: usize,
    /// What ballast is to leave free.
    room: u64,
}

impl Filling {
    fn leaving(room: u64) -> Filling {
        Filling { room, ..Filling::default() }
    }

    fn key(number: u64) -> String {
        format!("large:{number}")
    }

    fn value(number: u64) -> Vec<u8> {
        let mut value = b"0123456789abcdef".repeat(VALUE_BYTES / 16);
        value[..8].copy_from_slice(&number.to_le_bytes());
        value
    }

    /// Writes one more value; whether it was answered, or refused for lack of space.
    fn write(&mut self, server: &Server) -> Option<Result<(), String>> {
        let number = self.next;
        self.next += 1;
        let (client, reply) =
            ask(server, &[b"SET", Self::key(number).as_bytes(), &Self::value(number)], PATIENCE);
        match reply {
            // Its key is by chance in the slot that the script holds, of 16,384.
            Reply::Came(Value::Error(text)) if text.starts_with(b"BUSY ") => {
                self.busy += 1;
                assert!(self.busy < 4, "who needs nothing of a script is told that it is busy");
                None
            }
            Reply::Came(Value::Error(text)) => Some(Err(String::from_utf8_lossy(&text).into_owned())),
            Reply::Came(_) => {
                self.answered.push(number);
                Some(Ok(()))
            }
            Reply::Waits => {
                self.waiting.push(client);
                None
            }
        }
    }

    /// Writes until `is_enough` of what came back.
    fn write_until(&mut self, server: &Server, what: &str, is_enough: fn(&Result<(), String>) -> bool) {
        let begun = Instant::now();
        while !self.write(server).as_ref().is_some_and(is_enough) {
            assert!(begun.elapsed().as_secs() < TURN_SECONDS_MAX, "{what} takes too long");
        }
    }

    /// Reads some of the values that were answered.
    fn read_some(&self, server: &Server, prng: &mut Prng) {
        let mut came = 0;
        for _ in 0..READS {
            let number = self.answered[prng.below(self.answered.len() as u64) as usize];
            // In one slot with a write that waits for the disk it is not shown.
            if let (_, Reply::Came(value)) =
                ask(server, &[b"GET", Self::key(number).as_bytes()], READ_PATIENCE)
                && !matches!(&value, Value::Error(text) if text.starts_with(b"MISCONF "))
            {
                assert_eq!(value, Value::Bulk(Self::value(number)), "{}", Self::key(number));
                came += 1;
            }
        }
        assert!(came >= READS_MIN, "{came} of {READS} reads were answered while the disk was full");
    }

    /// All values that were answered are there.
    fn audit(&self, client: &mut Client) {
        for number in &self.answered {
            let found = client.call(&["GET", &Self::key(*number)]).unwrap();
            assert!(
                found == Value::Bulk(Self::value(*number)),
                "{} was answered and is lost",
                Self::key(*number)
            );
        }
    }
}

/// Fills the disk with values, in the middle of a small load, frees it, and kills the server.
fn fill_and_kill(stage: &mut Stage<'_>, disk: &Disk, filling: &mut Filling, prng: &mut Prng, kill: Kill) {
    let ballast = fill(stage.server(), disk, filling);
    filling.read_some(stage.server(), prng);
    if kill == Kill::WhileFull {
        stage.kill();
        std::fs::remove_file(&ballast).unwrap();
        return;
    }
    std::fs::remove_file(&ballast).unwrap();
    filling.write_until(stage.server(), "resuming", Result::is_ok);
    stage.kill();
}

/// Makes a file that takes all of a disk but so much.
fn leave_room(path: &Path, room: u64) {
    let mut file = std::fs::File::create(path).unwrap();
    let full = io::copy(&mut io::repeat(1), &mut file).unwrap_err();
    assert_eq!(full.kind(), io::ErrorKind::StorageFull);
    let len = file.metadata().unwrap().len();
    // There may be less already.
    file.set_len(len.saturating_sub(room)).unwrap();
}

/// Fills the disk until a write is refused.
fn fill(server: &Server, disk: &Disk, filling: &mut Filling) -> PathBuf {
    let ballast = disk.path().join("ballast");
    leave_room(&ballast, filling.room);
    // It was full for a moment.
    filling.write_until(server, "writing to what is left", Result::is_ok);
    fill_with_values(server, filling);
    ballast
}

/// Writes values until one is refused.
fn fill_with_values(server: &Server, filling: &mut Filling) {
    filling.write_until(server, "filling the disk", |reply| {
        reply.as_ref().is_err_and(|text| {
            assert!(text.starts_with("MISCONF "), "{text}");
            true
        })
    });
}

/// A server with its files on a small disk; None if none can be mounted here.
fn on_a_disk(subject: Subject) -> Option<(Disk, Server)> {
    let mounted = Disk::mount(DISK_BYTES);
    let disk = mounted.map_err(|reason| println!("skipped: no disk can be mounted here: {reason}")).ok()?;
    let dir = disk.path().join("server");
    std::fs::create_dir(&dir).unwrap();
    let server = subject.at(&dir).start();
    Some((disk, server))
}

fn full_disk(subject: Subject, room: u64, kills: &[Kill]) {
    let Some((disk, mut server)) = on_a_disk(subject) else { return };
    let (mut books, mut filling, mut prng) =
        (Books::new(WRITERS), Filling::leaving(room), Prng::from_seed(1));
    for kill in kills {
        let mut scene_prng = Prng::from_seed(prng.next_u64());
        load::during(&mut server, &mut books, &mut prng, Refusals::DiskFull, |stage| {
            fill_and_kill(stage, &disk, &mut filling, &mut scene_prng, *kill);
        });
        filling.waiting.clear();
        let mut client = subject::restart(&mut server);
        let tally = books.audit_beside(&mut client, Refusals::DiskFull);
        let tally = tally.unwrap_or_else(|lost| panic!("killed {kill:?}:\n{lost}"));
        filling.audit(&mut client);
        println!(
            "killed {kill:?}: {} large values and {} units are there",
            filling.answered.len(),
            tally.answered
        );
    }
}

#[test]
fn a_full_disk_costs_durable_tarn_nothing_that_it_answered() {
    let kills = [Kill::OnceWritesResumed, Kill::WhileFull, Kill::OnceWritesResumed];
    full_disk(Subject::durable_tarn_with_segments("8mb"), ROOM_BYTES, &kills);
    // Two of these are all of the disk: when it is freed there is room for short ones only.
    full_disk(Subject::durable_tarn_with_segments("64mb"), ROOM_BYTES, &kills[..1]);
}

/// With a ceiling far below what is stored, the store is full as well as the log, and most of what is read comes from there.
#[test]
fn a_full_disk_costs_capacity_tarn_nothing_that_it_answered() {
    let kills = [Kill::OnceWritesResumed, Kill::WhileFull];
    full_disk(Subject::capacity_tarn_below("32mb"), CAPACITY_ROOM_BYTES, &kills);
}

/// What is deleted from a full store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deleted {
    /// All but each fourth value, by DEL and by UNLINK.
    Most,
    /// The same behind a kill of the server while its disk is full.
    MostBehindKill,
    /// All of them, by FLUSHALL.
    All,
}

impl Filling {
    /// Deletes some of what was answered; none of what was not.
    fn delete(&mut self, server: &Server, deleted: Deleted) {
        let mut client = subject::connect(server);
        if deleted == Deleted::All {
            assert_eq!(client.call(&["FLUSHALL"]).unwrap(), Value::Simple(b"OK".to_vec()));
            self.answered.clear();
            return;
        }
        let (kept, gone) = self.answered.iter().partition::<Vec<u64>, _>(|number| **number % 4 == 0);
        for number in gone {
            let command = if number % 2 == 0 { "DEL" } else { "UNLINK" };
            assert_eq!(client.call(&[command, &Self::key(number)]).unwrap(), Value::Int(1));
        }
        self.answered = kept;
    }
}

/// Nobody but who deletes makes room: the disk is full of values, again and again.
#[test]
fn a_capacity_tarn_that_has_filled_its_disk_takes_writes_again_once_values_are_deleted() {
    let Some((disk, mut server)) = on_a_disk(Subject::capacity_tarn_below("32mb")) else { return };
    let mut filling = Filling::leaving(0);
    for deleted in [Deleted::Most, Deleted::MostBehindKill, Deleted::All, Deleted::Most] {
        fill_with_values(&server, &mut filling);
        filling.waiting.clear();
        if deleted == Deleted::MostBehindKill {
            server.kill();
            filling.audit(&mut subject::restart(&mut server));
        }
        println!("{} values fill the disk; {deleted:?} go", filling.answered.len());
        filling.delete(&server, deleted);
        filling.write_until(&server, "resuming", Result::is_ok);
        filling.waiting.clear();
        server.kill();
        filling.audit(&mut subject::restart(&mut server));
    }
    drop(disk);
}

/// With `always` Redis ends itself when its disk is full. With `no` it answers what it could not write, so that it must not
/// be killed before it could.
#[test]
fn a_full_disk_costs_redis_nothing_once_writes_resumed() {
    full_disk(Subject::redis("no"), ROOM_BYTES, &[Kill::OnceWritesResumed, Kill::OnceWritesResumed]);
}

/// Fills what is left of a disk, to the last byte.
fn fill_up(path: &Path) {
    let mut file = std::fs::File::create(path).unwrap();
    let full = io::copy(&mut io::repeat(1), &mut file).unwrap_err();
    assert_eq!(full.kind(), io::ErrorKind::StorageFull);
}

/// The answer to a request over a connection of its own, which must come.
fn answer(server: &Server, request: &str) -> Value {
    let mut client = subject::connect(server);
    client.call(&request.split(' ').collect::<Vec<_>>()).unwrap()
}

#[test]
fn a_server_is_asked_and_started_on_a_full_disk() {
    let Some((disk, mut server)) = on_a_disk(Subject::durable_tarn_with_segments("8mb")) else { return };
    assert_eq!(answer(&server, "SET first v"), Value::Simple(b"OK".to_vec()));
    let mut filling = Filling::leaving(ROOM_BYTES);
    let ballast = fill(&server, &disk, &mut filling);
    // Whatever shows all there is tells what is on disk, or why it does not; nothing waits for ever.
    for request in
        ["DBSIZE", "SCAN 0", "KEYS first", "RANDOMKEY", "SAVE", "INFO", "WAITAOF 1 0 200", "SET second v"]
    {
        println!("{request}: {:?}", answer(&server, request));
    }
    // Who has written nothing waits for nothing.
    assert_eq!(answer(&server, "WAITAOF 1 0 200"), Value::Array(vec![Value::Int(1), Value::Int(0)]));
    server.kill();
    filling.waiting.clear();
    // A start removes what counts for nothing, and that must not make room.
    for entry in std::fs::read_dir(server.dir()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "tmp") {
            std::fs::remove_file(path).unwrap();
        }
    }
    let more = disk.path().join("more");
    fill_up(&more);
    let mut client = subject::restart(&mut server);
    assert_eq!(answer(&server, "GET first"), Value::Bulk(b"v".to_vec()));
    filling.audit(&mut client);
    for request in ["DBSIZE", "SCAN 0", "INFO keyspace"] {
        assert!(!matches!(answer(&server, request), Value::Error(_)), "{request}");
    }
    let refused = answer(&server, "SET second v");
    assert!(matches!(&refused, Value::Error(text) if text.starts_with(b"MISCONF ")), "{refused:?}");
    [ballast, more].iter().for_each(|path| std::fs::remove_file(path).unwrap());
    filling.write_until(&server, "resuming", Result::is_ok);
    server.kill();
    filling.audit(&mut subject::restart(&mut server));
}

/// Writes, lets time pass until the disk is full, writes again, and then is the only one to ask for an echo.
const LONG_SCRIPT: &str = "redis.call('SET', KEYS[1], 'half')
    local function now() local t = redis.call('TIME') return t[1] * 1000 + t[2] / 1000 end
    local enough = now() + ARGV[1]
    while now() < enough do end
    local reply = redis.pcall('SET', KEYS[1], 'whole')
    redis.call('ECHO', 'over')
    return reply";

/// Waits until the script is over, though its reply may wait for the disk.
fn await_long_script(server: &Server) {
    let begun = Instant::now();
    let mut client = server.connect().expect("the server accepts connections");
    let is_over = |figures: &[u8]| figures.windows(13).any(|window| window == b"cmdstat_echo:");
    // While it runs INFO is refused: it looks at all keys.
    while !matches!(client.call(&["INFO", "commandstats"]).unwrap(), Value::Bulk(figures) if is_over(&figures))
    {
        assert!(begun.elapsed().as_secs() < TURN_SECONDS_MAX, "the script goes on for too long");
    }
}

#[test]
fn a_script_that_runs_while_the_disk_becomes_full_is_not_cut_in_two() {
    let Some((disk, mut server)) = on_a_disk(Subject::durable_tarn_with_segments("8mb")) else { return };
    let mut script = server.connect().unwrap();
    // Whoever connects while it runs is soon served by others than the worker that it keeps busy.
    script.call(&["CONFIG", "SET", "busy-reply-threshold", "100"]).unwrap();
    script.send_request(&["EVAL", LONG_SCRIPT, "1", "long", "4000"].map(str::as_bytes)).unwrap();
    let mut filling = Filling::leaving(ROOM_BYTES);
    let ballast = fill(&server, &disk, &mut filling);
    await_long_script(&server);
    std::fs::remove_file(&ballast).unwrap();
    filling.write_until(&server, "resuming", Result::is_ok);
    assert_eq!(script.read_value().unwrap(), Value::Simple(b"OK".to_vec()));
    server.kill();
    let mut client = subject::restart(&mut server);
    assert_eq!(client.call(&["GET", "long"]).unwrap(), Value::Bulk(b"whole".to_vec()));
}
