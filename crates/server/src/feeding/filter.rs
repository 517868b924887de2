//! The stream of the time in which a full copy was made, as the replica that got the copy needs it.
//!
//! A slot's copy holds what was written to it up to its stamp; what stands in the stream for that must not be applied again. It is left
//! out, and bytes that do nothing stand for it behind the unit, so that every offset between units is what it is for all others.
//!
//! Thread rule: one thread. Invariant: what comes out of a unit is as long as what went in.

use command::Flags;
use command::effects::Scope;
use command::table::{self, Runs};
use engine::Engine;
use engine::durability::apply;
use engine::full_copy::Stamps;
use engine::slot_copy::Copied;
use keyspace::{DbIndex, Key};
use replication::feed::pad;
use replication::link::{MasterStream, Place, Role, Unit, UnitRequest, Words};
use std::io;
use sys::Stamp;
use wire::{encode_arg, encode_request_header};

/// The longest unit that is looked at: a transaction is in memory as a whole.
const UNIT_BYTES_MAX: usize = 2 << 30;

/// Up to where in the history a copy has each key.
pub trait CopiedTo {
    /// Up to where it has this one; [`Stamp::LAST`]: nothing of it is due, whenever it is written.
    fn of(&self, key: &Key<'_>) -> Stamp;
}

impl CopiedTo for Stamps {
    fn of(&self, key: &Key<'_>) -> Stamp {
        Stamps::of(self, key.db.0, key.slot)
    }
}

impl CopiedTo for Copied {
    fn of(&self, key: &Key<'_>) -> Stamp {
        Copied::of(self, key)
    }
}

/// Makes a replica's stream of the one that all read.
pub struct Filter<'f> {
    engine: &'f Engine,
    stamps: &'f Stamps,
    stream: MasterStream,
    words: Words,
    /// What an offset is less than the stamp of the same place.
    less: u64,
}

/// What is to be done with a request.
enum Verdict {
    /// The copy has not got it.
    Due,
    /// It has.
    Done,
    /// This is what it has not got of it.
    Instead(Vec<u8>),
}

impl<'f> Filter<'f> {
    /// For a copy that began at an offset, which was this place in the history.
    pub fn new(engine: &'f Engine, stamps: &'f Stamps, offset: u64, at: Stamp) -> Filter<'f> {
        let stream = MasterStream::new(Place { offset, database: 0 }, UNIT_BYTES_MAX);
        Filter { engine, stamps, stream, words: Words::default(), less: at.0.wrapping_sub(offset) }
    }

    /// Takes the next bytes of the stream, and appends what the replica is to be sent.
    ///
    /// # Errors
    /// Something in it cannot be taken apart by keys, or is nothing that this version knows.
    pub fn take(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        self.stream.feed(bytes);
        let (engine, stamps, less) = (self.engine, self.stamps, self.less);
        let judge = Judge { engine, stamps };
        while let Some(unit) =
            self.stream.next_unit().map_err(|ending| io::Error::other(ending.to_string()))?
        {
            judge.unit(&unit, (Stamp(unit.end().offset.wrapping_add(less)), &mut self.words), out)?;
        }
        Ok(())
    }
}

/// Makes requests of the stream that all read, for who has a copy of some slots: what that lacks, database by database. Nothing else.
pub struct Sieve<'f> {
    engine: &'f Engine,
    stream: MasterStream,
    words: Words,
    /// What an offset is less than the stamp of the same place.
    less: u64,
}

impl<'f> Sieve<'f> {
    /// For a copy that began at an offset, which was this place in the history.
    pub fn new(engine: &'f Engine, offset: u64, at: Stamp) -> Sieve<'f> {
        let stream = MasterStream::new(Place { offset, database: 0 }, UNIT_BYTES_MAX);
        Sieve { engine, stream, words: Words::default(), less: at.0.wrapping_sub(offset) }
    }

    /// Takes the next bytes of the stream, and shows the requests of them that are due.
    ///
    /// # Errors
    /// As [`Filter::take`].
    pub fn take(
        &mut self,
        bytes: &[u8],
        copied: &dyn CopiedTo,
        mut show: impl FnMut(DbIndex, &[u8]),
    ) -> io::Result<()> {
        self.stream.feed(bytes);
        let judge = Judge { engine: self.engine, stamps: copied };
        while let Some(unit) =
            self.stream.next_unit().map_err(|ending| io::Error::other(ending.to_string()))?
        {
            let end = Stamp(unit.end().offset.wrapping_add(self.less));
            let mut walk = unit.walk(&mut self.words);
            while let Some(group) = walk.next_group() {
                for request in group.commands() {
                    let db = DbIndex(request.database);
                    match judge.request(&request, end)? {
                        Verdict::Due if is_of_keys(&request) => show(db, request.bytes),
                        Verdict::Instead(bytes) => show(db, &bytes),
                        Verdict::Due | Verdict::Done => {}
                    }
                }
            }
        }
        Ok(())
    }
}

/// Whether a request changes keys.
fn is_of_keys(request: &UnitRequest<'_>) -> bool {
    let effect = table::find_for(&request.request).and_then(|command| command.effect);
    matches!(effect, Some(Scope::Key(_) | Scope::OnlyKey | Scope::Transfer))
}

struct Judge<'f> {
    engine: &'f Engine,
    stamps: &'f dyn CopiedTo,
}

impl Judge<'_> {
    fn unit(&self, unit: &Unit<'_>, (end, words): (Stamp, &mut Words), out: &mut Vec<u8>) -> io::Result<()> {
        let (mut are_all_due, mut are_all_done) = (true, true);
        let mut walk = unit.walk(words);
        while let Some(group) = walk.next_group() {
            for request in group.commands() {
                let verdict = self.request(&request, end)?;
                are_all_due &= matches!(verdict, Verdict::Due);
                are_all_done &= matches!(verdict, Verdict::Done);
            }
        }
        if are_all_due {
            out.extend_from_slice(unit.bytes());
            return Ok(());
        }
        let begin = out.len();
        match are_all_done {
            true => keep_selection(unit, words, out),
            false => self.keep_due(unit, (end, words), out)?,
        }
        let kept = out.len() - begin;
        let left_out = unit.bytes().len().checked_sub(kept);
        pad(out, left_out.ok_or_else(|| io::Error::other("a request became longer"))?);
        Ok(())
    }

    /// Appends what the copy has not got of a unit. Each verdict is found again: kept, those of many small requests would be more than these.
    fn keep_due(
        &self,
        unit: &Unit<'_>,
        (end, words): (Stamp, &mut Words),
        out: &mut Vec<u8>,
    ) -> io::Result<()> {
        let mut walk = unit.walk(words);
        while let Some(group) = walk.next_group() {
            for request in group.requests() {
                let verdict = match request.role {
                    Role::Command => self.request(&request, end)?,
                    _ => Verdict::Due,
                };
                match verdict {
                    Verdict::Due => out.extend_from_slice(request.bytes),
                    Verdict::Done => {}
                    Verdict::Instead(bytes) => out.extend_from_slice(&bytes),
                }
            }
        }
        Ok(())
    }

    fn request(&self, request: &UnitRequest<'_>, end: Stamp) -> io::Result<Verdict> {
        let (effect, db) = (request.request, DbIndex(request.database));
        let unknown = || {
            let name = effect.get(0).unwrap_or_default().escape_ascii().to_string();
            io::Error::other(format!("'{name}' cannot be taken apart by its keys"))
        };
        if db.0 >= self.engine.keyspace.databases() {
            return Err(unknown());
        }
        let command = table::find_for(&effect).ok_or_else(unknown)?;
        match (command.effect, command.row.handler) {
            (Some(scope @ (Scope::Key(_) | Scope::OnlyKey)), Runs::Data(row)) => {
                let position = scope.key_position(row, &effect).ok_or_else(unknown)?;
                let key = self.engine.keyspace.key(db, effect.arg(position));
                Ok(if self.is_due(&key, end) { Verdict::Due } else { Verdict::Done })
            }
            (Some(Scope::Transfer), Runs::Data(row)) => {
                let placed = apply::placed(self.engine, db, row, &effect);
                let (transfer, [source, target]) =
                    placed.map_err(|refusal| io::Error::other(refusal.to_string()))?;
                Ok(match (self.is_due(&source, end), self.is_due(&target, end)) {
                    (true, true) => Verdict::Due,
                    (false, false) => Verdict::Done,
                    // The copy has the target as it became; a copy of the source left that as it was.
                    (true, false) if transfer.is_copy => Verdict::Done,
                    (true, false) => Verdict::Instead(removal(source.bytes)),
                    (false, true) => {
                        return Err(io::Error::other("a key was copied without what became of it"));
                    }
                })
            }
            (Some(Scope::Libraries | Scope::Selection), _) => Ok(Verdict::Due),
            (Some(Scope::Databases), _) => {
                Err(io::Error::other("databases were emptied or exchanged while they were copied"))
            }
            // A message changes nothing.
            (None, _) if command.is(Flags::PUBSUB) => Ok(Verdict::Due),
            _ => Err(unknown()),
        }
    }

    fn is_due(&self, key: &Key<'_>, end: Stamp) -> bool {
        self.stamps.of(key) < end
    }
}

/// Appends what is kept of a unit of which nothing is due: what comes behind it is for the database that it selected last.
fn keep_selection(unit: &Unit<'_>, words: &mut Words, out: &mut Vec<u8>) {
    let begin = out.len();
    let mut walk = unit.walk(words);
    while let Some(group) = walk.next_group() {
        if let Some(select) = group.requests().filter(|request| request.role == Role::Select).last() {
            out.truncate(begin);
            out.extend_from_slice(select.bytes);
        }
    }
}

fn removal(key: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    encode_request_header(&mut out, 2);
    [&b"DEL"[..], key].into_iter().for_each(|word| encode_arg(&mut out, word));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Server;
    use crate::{assembly, commands};
    use config::{Config, Startup};
    use engine::full_copy::{self, Facts, Wanted};
    use std::panic::AssertUnwindSafe;
    use std::sync::Arc;
    use sys::Prng;
    use testkit::Budget;
    use value::stream::Reads;
    use wire::RequestBuf;

    fn encoded(lines: &[&str]) -> Vec<u8> {
        let mut out = Vec::new();
        for line in lines {
            let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            encode_request_header(&mut out, words.len());
            words.into_iter().for_each(|word| encode_arg(&mut out, word));
        }
        out
    }

    /// A server of which the slot of "copied" was copied when all of the stream had been done there.
    fn with_copied() -> (Arc<Server>, Stamps) {
        commands::install();
        let Ok(Startup::Serve { config, .. }) = Config::from_text(b"edition memory") else {
            panic!("it is a file of one line")
        };
        let server = assembly::new(*config, 2);
        let engine = &server.engine;
        let key = engine.keyspace.key(DbIndex(0), b"copied");
        engine.keyspace.enter(0).restore_stamp(DbIndex(0), key.slot, Stamp(1 << 40));
        let set = RequestBuf::from_args(["SET", "copied", "1"]);
        let Runs::Data(row) = table::find_for(&set.as_request()).unwrap().row.handler else { panic!() };
        apply::Applier::new(engine, 0)
            .on_key(&mut engine.keyspace.enter(0), row, (DbIndex(0), sys::UnixMs(0)), &set.as_request())
            .unwrap();
        let beginning = full_copy::begin(engine, || Stamp(0));
        let wanted = Wanted { reads: Reads::Redis72, knows_field_times: false, keys: true, functions: true };
        let stamps = full_copy::write(engine, &beginning, wanted, &Facts::NONE, &mut |_| Ok(())).unwrap();
        (server, stamps)
    }

    /// What is left to be done of a stream of requests, and that nothing moved.
    fn left(filter: &mut Filter<'_>, lines: &[&str]) -> io::Result<Vec<String>> {
        let (bytes, mut out) = (encoded(lines), Vec::new());
        filter.take(&bytes, &mut out)?;
        assert_eq!(out.len(), bytes.len());
        Ok(commands_of(&out))
    }

    /// All that is to be done of a stream.
    fn commands_of(bytes: &[u8]) -> Vec<String> {
        let mut stream = MasterStream::new(Place::default(), UNIT_BYTES_MAX);
        stream.feed(bytes);
        let mut done = Vec::new();
        while let Some(unit) = stream.next_unit().expect("it is a stream") {
            let mut words = Words::default();
            let mut walk = unit.walk(&mut words);
            let Some(group) = walk.next_group() else { continue };
            done.extend(group.commands().map(|request| {
                let words: Vec<_> = request.request.iter().map(String::from_utf8_lossy).collect();
                format!("{} {}", request.database, words.join(" "))
            }));
        }
        done
    }

    #[test]
    fn what_a_copy_has_is_left_out_and_what_it_lacks_stays() {
        let (server, stamps) = with_copied();
        let engine = &server.engine;
        let mut filter = Filter::new(engine, &stamps, 0, Stamp(0));
        let mut left = |lines: &[&str]| left(&mut filter, lines);
        assert_eq!(left(&["SELECT 0", "SET copied 1", "SET other 2"]).unwrap(), ["0 SET other 2"]);
        let several =
            ["MULTI", "SET copied 1", "SELECT 1", "SET copied 3", "SELECT 0", "INCR copied", "EXEC"];
        assert_eq!(left(&several).unwrap(), ["1 SET copied 3"]);
        assert!(left(&["MULTI", "APPEND copied x", "DEL copied", "EXEC"]).unwrap().is_empty());
        // Of a transaction of which nothing is left it stays which database it selected.
        let selecting = ["MULTI", "SET copied 1", "SELECT 1", "EXEC", "SET later 5", "SELECT 0"];
        assert_eq!(left(&selecting).unwrap(), ["1 SET later 5"]);
        assert_eq!(left(&["RENAME other copied"]).unwrap(), ["0 DEL other"]);
        assert!(left(&["COPY other copied REPLACE"]).unwrap().is_empty());
        assert_eq!(left(&["RENAME other another"]).unwrap(), ["0 RENAME other another"]);
        assert_eq!(left(&["PUBLISH copied told"]).unwrap(), ["0 PUBLISH copied told"]);
        assert!(left(&["RENAME copied other"]).is_err());
        let mut filter = Filter::new(engine, &stamps, 0, Stamp(0));
        assert!(super::tests::left(&mut filter, &["FLUSHALL"]).is_err());
    }

    fn below(prng: &mut Prng, bound: usize) -> usize {
        usize::try_from(prng.below(bound as u64)).unwrap()
    }

    /// A request in a database, and what of it is left for who has what was copied in database 0.
    fn request(prng: &mut Prng, database: u32) -> (String, Option<String>) {
        const KEYS: [&str; 3] = ["copied", "other", "another"];
        let (key, target) = (KEYS[below(prng, 3)], KEYS[1 + below(prng, 2)]);
        let has = |key: &str| database == 0 && key == "copied";
        let line = match prng.below(6) {
            0 => "PING".to_owned(),
            1 if key != target && key != "copied" => {
                // What a copy has of the target became of what the source was.
                return match (prng.one_in(2), database == 0) {
                    (true, true) => (format!("RENAME {key} copied"), Some(format!("DEL {key}"))),
                    (true, false) => (format!("RENAME {key} copied"), Some(format!("RENAME {key} copied"))),
                    (false, true) => (format!("COPY {key} copied REPLACE"), None),
                    (false, false) => {
                        let line = format!("COPY {key} {target} REPLACE");
                        (line.clone(), Some(line))
                    }
                };
            }
            2 => format!("APPEND {key} {}", "x".repeat(below(prng, 50))),
            3 => format!("INCR {key}"),
            _ => format!("SET {key} {}", prng.below(1 << 20)),
        };
        let left = Some(line.clone()).filter(|line| line != "PING" && !has(key));
        (line, left)
    }

    /// A stream of units, its bytes unit by unit, and what is left to be done of it.
    fn stream(prng: &mut Prng) -> (Vec<Vec<u8>>, Vec<String>) {
        let (mut units, mut left, mut database) = (vec![encoded(&["SELECT 0"])], Vec::new(), 0);
        for _ in 0..prng.below(15) {
            let mut unit = Vec::new();
            let count = if prng.one_in(3) { 1 + below(prng, 6) } else { 0 };
            for _ in 0..count.max(1) {
                if prng.one_in(4) {
                    database = u32::try_from(prng.below(3)).unwrap();
                    unit.push(format!("SELECT {database}"));
                    if count == 0 {
                        break;
                    }
                }
                let (line, of_it) = request(prng, database);
                unit.push(line);
                left.extend(of_it.map(|line| format!("{database} {line}")));
            }
            if count > 0 {
                unit = [vec!["MULTI".to_owned()], unit, vec!["EXEC".to_owned()]].concat();
            }
            units.push(encoded(&unit.iter().map(String::as_str).collect::<Vec<_>>()));
        }
        units.push(encoded(&["SET other last"]));
        left.push(format!("{database} SET other last"));
        (units, left)
    }

    /// What comes out of a stream in these pieces, and the error behind which nothing does.
    fn filtered<'p>(
        (server, stamps): &(Arc<Server>, Stamps),
        pieces: impl Iterator<Item = &'p [u8]>,
    ) -> (Vec<u8>, Option<String>) {
        let mut filter = Filter::new(&server.engine, stamps, 0, Stamp(0));
        let (mut out, mut fed) = (Vec::new(), 0);
        for piece in pieces {
            fed += piece.len();
            if let Err(error) = filter.take(piece, &mut out) {
                return (out, Some(error.to_string()));
            }
            assert!(out.len() <= fed);
        }
        (out, None)
    }

    /// Runs `step` for each seed and tells which one failed.
    fn run(step: impl Fn(&mut Prng)) {
        let budget = Budget::from_env(1, 2000);
        let mut done = 0;
        while budget.allows(done) {
            let seed = budget.seed.wrapping_add(done);
            let told = std::panic::catch_unwind(AssertUnwindSafe(|| step(&mut Prng::from_seed(seed))));
            assert!(told.is_ok(), "repeat with TARN_SEED={seed} TARN_STEPS=1");
            done += 1;
        }
    }

    #[test]
    fn of_any_stream_that_is_left_which_a_copy_lacks() {
        let copied = with_copied();
        run(|prng| {
            let (units, expected) = stream(prng);
            let bytes = units.concat();
            let (out, done) = filtered(&copied, units.iter().map(Vec::as_slice));
            assert_eq!((done, out.len()), (None, bytes.len()), "{}", bytes.escape_ascii());
            assert_eq!(commands_of(&out), expected);
            // Each unit is as long as it was.
            let mut filter = Filter::new(&copied.0.engine, &copied.1, 0, Stamp(0));
            for unit in &units {
                let mut out = Vec::new();
                filter.take(unit, &mut out).unwrap();
                assert_eq!(out.len(), unit.len());
            }
            let length = 1 + below(prng, 40);
            assert_eq!(filtered(&copied, bytes.chunks(length)).0, out);
        });
    }

    #[test]
    fn a_damaged_stream_is_filtered_alike_however_it_is_cut() {
        let copied = with_copied();
        run(|prng| {
            let mut bytes = stream(prng).0.concat();
            for _ in 0..1 + prng.below(3) {
                if bytes.is_empty() {
                    break;
                }
                let at = below(prng, bytes.len());
                match prng.below(4) {
                    0 => bytes[at] = prng.next_u64().to_le_bytes()[0],
                    1 => drop(bytes.remove(at)),
                    2 => bytes.insert(at, b"\r\n$*019SX"[below(prng, 9)]),
                    _ => bytes.truncate(at + 1),
                }
            }
            let whole = filtered(&copied, [&bytes[..]].into_iter());
            for length in [1, 1 + below(prng, 60)] {
                assert_eq!(filtered(&copied, bytes.chunks(length)), whole);
            }
        });
    }
}
