//! `tarn import` and `tarn export`: a Redis' files into a directory that a Tarn starts from, and a Tarn's directory into one RDB file.
//!
//! Both load everything into a server without listeners and write it again: what the reading and the writing side of a server
//! understand is what they understand.

use super::{Complaint, Given, Verdict};
use crate::assembly;
use crate::durable::{load_foreign, load_from};
use crate::server::Server;
use config::{Config, Startup};
use engine::durability;
use engine::import::{self, USUAL_SNAPSHOT};
use engine::snapshot::{self, Leaving};
use keyspace::HashSeed;
use std::ffi::OsString;
use std::fmt::Write;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use sys::file::{Fs, Kind, about};

use sys::{Clock, UnixMs};

pub(super) const IMPORT_USAGE: &str = "\
Usage: tarn import FROM --dir DIR [--DIRECTIVE VALUE ...]

Reads what a Redis has left and writes it to DIR, for `tarn server --dir DIR` to start from. FROM is only read. It is one of:

  dump.rdb               an RDB file
  appendonly.aof         an append-only file, with or without an RDB file at its beginning
  appendonlydir          a directory of append-only files, with its manifest
  a Redis' directory     the first that it has: appendonlydir, appendonly.aof, dump.rdb; if dump.rdb was written after the others,
                         name the one that counts

  --dir DIR              is made if it is not there, and must not hold data
  --DIRECTIVE VALUE      any directive of `tarn server` that counts here, such as --databases 64, --dbfilename x.rdb, or
                         --aof-load-truncated no: refuse a file that ends in the middle of something";

pub(super) const EXPORT_USAGE: &str = "\
Usage: tarn export --dir DIR --to FILE.rdb [--force] [--skip-damaged] [--keep-expired] [--DIRECTIVE VALUE ...]

Loads DIR as `tarn server --dir DIR` would, and writes all of it to one RDB file, which a Redis 7.0 reads (7.4 where fields of hashes
expire). DIR is only read.

  --dir DIR              a directory that no server uses now
  --to FILE.rdb          the file to be written
  --force                replace it if it is there
  --skip-damaged         leave out keys of the capacity edition that cannot be read, and tell how many, and from which pages; ends with 1
                         if there are such
  --keep-expired         of a log, such as `tarn restore` makes: write the keys that were there at its end, also if their time has come
                         since, and those without their times to live; with fields of hashes likewise
  --DIRECTIVE VALUE      any directive of `tarn server` that counts here, such as --databases 64 or --dbfilename x.rdb";

/// A worker for whoever loads, and the spare one.
const WORKERS: usize = 2;

pub(super) fn import(words: &[String], shown: &mut String) -> Result<Verdict, Complaint> {
    let mut given = Given::read(words, &[])?;
    let from = PathBuf::from(given.only_word("FROM")?);
    let dir = given.needed("dir")?;
    let server = server(&dir, given)?;
    if let Some(path) = data_in(&server)? {
        return Err(Complaint(format!(
            "{} is there already, or holds a log: name a directory without data",
            path.display()
        )));
    }
    if Fs::Real.kind(&from).map_err(about(&from))? == Some(Kind::Directory)
        && durability::has_log(&Fs::Real, &from)?
    {
        if matches!(::log::inspect(&Fs::Real, &from), Err(::log::Refusal::NotComplete)) {
            return Err(Complaint(format!("{}: {}", from.display(), import::not_complete_in(&from))));
        }
        return Err(Complaint(format!(
            "{from} holds a Tarn's log, and its other files are older or copies: start a server with `--dir {from}`, or make an RDB file of \
             it with `tarn export --dir {from} --to FILE.rdb`",
            from = from.display()
        )));
    }
    let found = load_from(&server, &from)?;
    Fs::Real.create_dir_all(&server.engine.dir()).map_err(about(&server.engine.dir()))?;
    let to = snapshot::path(&server.engine);
    write(&server, &to, Leaving::default())?;
    writeln!(shown, "{found}\nWrote {} keys to {}", keys(&server), to.display()).expect("a string takes all");
    if let Some(directives) = needed_by_start(&server) {
        writeln!(shown, "Start with `tarn server --dir {dir}{directives}`: else it is not read")
            .expect("a string takes all");
    }
    Ok(Verdict::Good)
}

pub(super) fn export(words: &[String], shown: &mut String) -> Result<Verdict, Complaint> {
    let mut given = Given::read(words, &["force", "skip-damaged", "keep-expired"])?;
    let has = |name: &str| given.switches.iter().any(|switch| switch == name);
    let (is_forced, skips_damaged, keeps_expired) = (has("force"), has("skip-damaged"), has("keep-expired"));
    if let Some(word) = given.words.first() {
        return Err(Complaint(format!("'{word}' is one word too many; see --help")));
    }
    let (dir, to) = (given.needed("dir")?, PathBuf::from(given.needed("to")?));
    if Fs::Real.kind(Path::new(&dir)).map_err(about(Path::new(&dir)))? != Some(Kind::Directory) {
        return Err(Complaint(format!("{dir} is not a directory")));
    }
    match Fs::Real.kind(&to).map_err(about(&to))? {
        Some(Kind::Directory) => return Err(Complaint(format!("{} is a directory", to.display()))),
        Some(_) if !is_forced => {
            return Err(Complaint(format!("{} is there already: --force replaces it", to.display())));
        }
        _ => {}
    }
    let now = Clock::Real.now();
    let clock = if keeps_expired { Clock::simulated(moment_of(&dir)?) } else { Clock::Real };
    let server = server_at(clock, &dir, given)?;
    let found = load(&server, skips_damaged)?.ok_or_else(|| Complaint(format!("{dir} holds no data")))?;
    let times_by = if keeps_expired { now } else { UnixMs(0) };
    let left_out = write(&server, &to, Leaving { damage: skips_damaged, times_by })?;
    let written = keys(&server).saturating_sub(left_out);
    writeln!(shown, "{found}\nWrote {written} keys to {}", to.display()).expect("a string takes all");
    if left_out == 0 {
        return Ok(Verdict::Good);
    }
    writeln!(shown, "LEFT OUT {left_out} keys that cannot be read, whose names lie with them:")
        .expect("a string takes all");
    let damage = server.engine.residency.damage();
    damage.iter().for_each(|why| writeln!(shown, "  {why}").expect("a string takes all"));
    Ok(Verdict::Bad)
}

/// The directives without which a start does not find what was imported, as words behind others; None if there are none.
fn needed_by_start(server: &Server) -> Option<String> {
    let name = server.engine.config.dbfilename();
    let mut words = String::new();
    if name != USUAL_SNAPSHOT.as_bytes() {
        write!(words, " --dbfilename {}", String::from_utf8_lossy(&name)).expect("a string takes all");
    }
    let default = durability::databases::BY_DEFAULT;
    let highest = server.engine.databases().filter(|db| !server.engine.keyspace.is_empty(*db)).last();
    if let Some(db) = highest.filter(|db| db.0 >= default) {
        write!(words, " --databases {}", db.0 + 1).expect("a string takes all");
    }
    Some(words).filter(|words| !words.is_empty())
}

/// Of which moment the content of a log is.
fn moment_of(dir: &str) -> Result<UnixMs, Complaint> {
    let dir = Path::new(dir);
    if !durability::has_log(&Fs::Real, dir)? {
        return Err(Complaint(format!(
            "there is no log in {}: --keep-expired goes by its times",
            dir.display()
        )));
    }
    Ok(log::recover_to_read(&Fs::Real, dir)?.moment())
}

/// Loads what the server's directory holds, as a start does, and leaves it as it is; says what that was.
fn load(server: &Arc<Server>, skips_damaged: bool) -> Result<Option<String>, Complaint> {
    if let Some(end) = durability::load(&server.engine, &Fs::Real, skips_damaged)? {
        return Ok(Some(format!("Loaded the log of {} up to LSN {end}", server.engine.dir().display())));
    }
    let found = load_foreign(server, durability::preference_in(&server.engine, &Fs::Real)?)?;
    Ok(found.map(|found| found.to_string()))
}

/// A server that serves nobody, with the directives given.
fn server(dir: &str, given: Given) -> Result<Arc<Server>, Complaint> {
    server_at(Clock::Real, dir, given)
}

/// The same, by another clock.
fn server_at(clock: Clock, dir: &str, given: Given) -> Result<Arc<Server>, Complaint> {
    let mut words = vec!["--dir".to_owned(), dir.to_owned(), "--loglevel".to_owned(), "warning".to_owned()];
    words.extend(given.options.into_iter().flat_map(|(name, value)| [format!("--{name}"), value]));
    match Config::from_args(&words) {
        Ok(Startup::Serve { config, warnings }) => match warnings.into_iter().next() {
            Some(warning) => Err(Complaint(warning)),
            None => {
                let seed =
                    durability::seed_of_checkpoint(&config, &Fs::Real).unwrap_or_else(HashSeed::from_entropy);
                Ok(assembly::with_seed(*config, WORKERS, clock, seed))
            }
        },
        Ok(_) => Err(Complaint("see --help".to_owned())),
        Err(error) => Err(Complaint(error.to_string().trim().to_owned())),
    }
}

/// Something in the server's directory from which a server could start.
fn data_in(server: &Server) -> Result<Option<PathBuf>, Complaint> {
    let (dir, config) = (server.engine.dir(), &server.engine.config);
    match Fs::Real.kind(&dir).map_err(about(&dir))? {
        None => return Ok(None),
        Some(Kind::Directory) => {}
        Some(_) => return Err(Complaint(format!("{} is not a directory", dir.display()))),
    }
    for name in [config.dbfilename(), config.appendfilename(), config.appenddirname()] {
        let path = dir.join(OsString::from_vec(name));
        if Fs::Real.kind(&path).map_err(about(&path))?.is_some() {
            return Ok(Some(path));
        }
    }
    Ok(durability::has_log(&Fs::Real, &dir)?.then_some(dir))
}

/// Gives how many keys were left out.
fn write(server: &Server, to: &Path, leaving: Leaving) -> Result<u64, Complaint> {
    let now = server.engine.clock.now();
    snapshot::write_all(&server.engine, &mut server.engine.keyspace.enter(0), to, now, leaving)
        .map_err(|error| Complaint(format!("Can't write {}: {error}", to.display())))
}

fn keys(server: &Server) -> u64 {
    server.engine.databases().map(|db| server.engine.keyspace.len(db)).sum()
}
