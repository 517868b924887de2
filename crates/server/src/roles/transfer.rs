//! `tarn import` and `tarn export`: a Redis' files into a directory that a Tarn starts from, and a Tarn's directory into one RDB file.
//!
//! Both load everything into a server without listeners and write it again: what the reading and the writing side of a server
//! understand is what they understand.

use super::{Complaint, Given, Verdict};
use crate::config::{Config, Startup};
use crate::durability;
use crate::import::{load_foreign, load_from};
use crate::server::Server;
use crate::snapshot;
use std::ffi::OsString;
use std::fmt::Write;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use sys::file::{Fs, Kind};

pub(super) const IMPORT_USAGE: &str = "\
Usage: tarn import FROM --dir DIR [--DIRECTIVE VALUE ...]

Reads what a Redis has left and writes it to DIR, for `tarn server --dir DIR` to start from. FROM is only read. It is one of:

  dump.rdb               an RDB file
  appendonly.aof         an append-only file, with or without an RDB file at its beginning
  appendonlydir          a directory of append-only files, with its manifest
  a Redis' directory     the first that it has: appendonlydir, appendonly.aof, dump.rdb

  --dir DIR              is made if it is not there, and must not hold data
  --DIRECTIVE VALUE      any directive of `tarn server` that counts here, such as --databases 64, --dbfilename x.rdb, or
                         --aof-load-truncated no: refuse a file that ends in the middle of something";

pub(super) const EXPORT_USAGE: &str = "\
Usage: tarn export --dir DIR --to FILE.rdb [--force] [--DIRECTIVE VALUE ...]

Loads DIR as `tarn server --dir DIR` would, and writes all of it to one RDB file, which a Redis 7.0 reads. DIR is only read.

  --dir DIR              a directory that no server uses now
  --to FILE.rdb          the file to be written
  --force                replace it if it is there
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
    let found = load_from(&server, &from)?;
    Fs::Real.create_dir_all(&server.dir())?;
    let to = snapshot::path(&server);
    write(&server, &to)?;
    writeln!(shown, "{found}\nWrote {} keys to {}", keys(&server), to.display()).expect("a string takes all");
    Ok(Verdict::Good)
}

pub(super) fn export(words: &[String], shown: &mut String) -> Result<Verdict, Complaint> {
    let mut given = Given::read(words, &["force"])?;
    let is_forced = !given.switches.is_empty();
    if let Some(word) = given.words.first() {
        return Err(Complaint(format!("'{word}' is one word too many; see --help")));
    }
    let (dir, to) = (given.needed("dir")?, PathBuf::from(given.needed("to")?));
    if Fs::Real.kind(Path::new(&dir))? != Some(Kind::Directory) {
        return Err(Complaint(format!("{dir} is not a directory")));
    }
    match Fs::Real.kind(&to)? {
        Some(Kind::Directory) => return Err(Complaint(format!("{} is a directory", to.display()))),
        Some(_) if !is_forced => {
            return Err(Complaint(format!("{} is there already: --force replaces it", to.display())));
        }
        _ => {}
    }
    let server = server(&dir, given)?;
    let found = load(&server)?.ok_or_else(|| Complaint(format!("{dir} holds no data")))?;
    write(&server, &to)?;
    writeln!(shown, "{found}\nWrote {} keys to {}", keys(&server), to.display()).expect("a string takes all");
    Ok(Verdict::Good)
}

/// Loads what the server's directory holds, as a start does, and leaves it as it is; says what that was.
fn load(server: &Arc<Server>) -> Result<Option<String>, Complaint> {
    if let Some(end) = durability::load(server, &Fs::Real)? {
        return Ok(Some(format!("Loaded the log of {} up to LSN {end}", server.dir().display())));
    }
    let found = load_foreign(server, durability::preference(&server.config))?;
    Ok(found.map(|found| found.to_string()))
}

/// A server that serves nobody, with the directives given.
fn server(dir: &str, given: Given) -> Result<Arc<Server>, Complaint> {
    let mut words = vec!["--dir".to_owned(), dir.to_owned(), "--loglevel".to_owned(), "warning".to_owned()];
    words.extend(given.options.into_iter().flat_map(|(name, value)| [format!("--{name}"), value]));
    match Config::from_args(&words) {
        Ok(Startup::Serve { config, warnings }) => match warnings.into_iter().next() {
            Some(warning) => Err(Complaint(warning)),
            None => Ok(Server::new(*config, WORKERS)),
        },
        Ok(_) => Err(Complaint("see --help".to_owned())),
        Err(error) => Err(Complaint(error.to_string().trim().to_owned())),
    }
}

/// Something in the server's directory from which a server could start.
fn data_in(server: &Server) -> Result<Option<PathBuf>, Complaint> {
    let (dir, config) = (server.dir(), &server.config);
    match Fs::Real.kind(&dir)? {
        None => return Ok(None),
        Some(Kind::Directory) => {}
        Some(_) => return Err(Complaint(format!("{} is not a directory", dir.display()))),
    }
    for name in [config.dbfilename(), config.appendfilename(), config.appenddirname()] {
        let path = dir.join(OsString::from_vec(name));
        if Fs::Real.kind(&path)?.is_some() {
            return Ok(Some(path));
        }
    }
    Ok(durability::has_log(&Fs::Real, &dir)?.then_some(dir))
}

fn write(server: &Server, to: &Path) -> Result<(), Complaint> {
    let now = server.clock.now();
    snapshot::write_all(server, &mut server.keyspace.enter(0), to, now)
        .map_err(|error| Complaint(format!("Can't write {}: {error}", to.display())))
}

fn keys(server: &Server) -> u64 {
    server.databases().map(|db| server.keyspace.len(db)).sum()
}
