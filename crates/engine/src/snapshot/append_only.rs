//! Append-only files as a Redis writes them on BGREWRITEAOF, for a server without a log: an RDB file as the base, and a manifest that
//! names it. A start with `appendonly yes`, Tarn's or a Redis', reads them; others leave them aside.
//!
//! The manifest is replaced in one step, once the base is whole and synced; what it named before is removed behind that, if this server wrote
//! it. The manifest's temporary file is there before the base is: a start that finds no manifest knows by it that the first one was cut short.

use super::{CHUNK_BYTES, HELD_UP, Part, begin_file, copy_step};
use crate::Engine;
use crate::import::{MANIFEST_BYTES_MAX, Manifest, is_part, refuse_without_manifest};
use keyspace::Cursor;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::thread;
use sys::file::{Fs, Replacement, remove_unfinished, replaced_by};
use telemetry::log;

/// Writes all keys, and gives the bytes. Runs in a thread of its own.
///
/// # Errors
/// If the disk refuses, a manifest cannot be read, or the server ends. What was there is there still.
pub fn write(engine: &Engine) -> io::Result<u64> {
    let directory = engine.dir().join(OsString::from_vec(engine.config.appenddirname()));
    Fs::Real.create_dir_all(&directory)?;
    let name = engine.config.appendfilename();
    let manifest = directory.join(OsStr::from_bytes(&[&name[..], b".manifest"].concat()));
    let before = manifest_before(&manifest)?;
    if before.is_none() {
        refuse_without_manifest(&Fs::Real, &directory, OsStr::from_bytes(&name))?;
    }
    let named: Vec<OsString> =
        before.iter().flat_map(Manifest::files).map(|file| OsString::from_vec(file.to_vec())).collect();
    let found = Fs::Real.list(&directory)?;
    // One that the manifest names may be missing.
    let number = number_behind(found.iter().cloned().chain(named.clone()), &name);
    let base = [&name[..], format!(".{number}.base.rdb").as_bytes()].concat();
    // As long as there is no manifest, this says that what lies beside it counts for nothing.
    let mut begun = Replacement::begin(&Fs::Real, &manifest)?;
    begun.write(format!("file {} seq {number} type b\n", wire::quote(&base)).as_bytes())?;
    begun.sync()?;
    Fs::Real.sync_dir(&directory)?;
    let base = directory.join(OsStr::from_bytes(&base));
    let bytes = write_base(engine, &base)?;
    let is_own = engine.durability.rewrites.has_append_only();
    if before.is_some() && !is_own {
        keep(&manifest, &directory, &name, number)?;
    }
    if let Err(error) = begun.commit() {
        if Fs::Real.kind(&manifest).is_ok_and(|kind| kind.is_none()) {
            let _ = Fs::Real.remove(&base);
        }
        return Err(error);
    }
    engine.durability.rewrites.note_append_only();
    let is_part = |file: &OsStr| is_part(file, OsStr::from_bytes(&name));
    let gone: Vec<OsString> = match before {
        Some(_) if !is_own => Vec::new(),
        Some(_) => named,
        // Of a first one that was cut short.
        None => found.iter().filter(|file| is_part(file)).cloned().collect(),
    };
    // What stays does no harm.
    for file in gone {
        let _ = Fs::Real.remove(&directory.join(file));
    }
    for target in found.iter().filter_map(|file| replaced_by(file)).filter(|target| is_part(target)) {
        let _ = remove_unfinished(&Fs::Real, &directory.join(target));
    }
    Ok(bytes)
}

/// Keeps the files of a manifest that this server has neither read nor written, which a start has promised to leave aside: under a manifest of
/// another name.
fn keep(manifest: &Path, directory: &Path, name: &[u8], number: u64) -> io::Result<()> {
    let kept =
        directory.join(OsStr::from_bytes(&[name, format!(".before-{number}.manifest").as_bytes()].concat()));
    Fs::Real.replace(&kept, &Fs::Real.read(manifest, MANIFEST_BYTES_MAX)?)?;
    log!(
        Warning,
        "This server does not have its data from the append-only files that were in {}: they are kept, and `tarn import {}` reads them",
        directory.display(),
        kept.display()
    );
    Ok(())
}

fn manifest_before(path: &Path) -> io::Result<Option<Manifest>> {
    if Fs::Real.kind(path)?.is_none() {
        return Ok(None);
    }
    let text = Fs::Real.read(path, MANIFEST_BYTES_MAX)?;
    Manifest::parse(&text).map(Some).map_err(|error| io::Error::other(format!("{}: {error}", path.display())))
}

/// A number that none of these files has with this name.
fn number_behind(files: impl Iterator<Item = OsString>, name: &[u8]) -> u64 {
    let number = |file: OsString| {
        let rest = file.as_bytes().strip_prefix(name)?.strip_prefix(b".")?;
        let digits = rest.split(|byte| *byte == b'.').next()?;
        std::str::from_utf8(digits).ok()?.parse::<u64>().ok()
    };
    // Further on are none that anybody has written.
    files.filter_map(number).filter(|number| *number < 1 << 32).max().unwrap_or(0) + 1
}

fn write_base(engine: &Engine, path: &Path) -> io::Result<u64> {
    let mut file = Replacement::begin(&Fs::Real, path)?;
    let mut writer = begin_file(engine, engine.clock.now(), Part::Base, None);
    let mut bytes = 0;
    for db in engine.databases().filter(|db| !engine.keyspace.is_empty(*db)) {
        writer.database(db.0, engine.keyspace.len(db), engine.keyspace.expiring(db));
        let mut cursor = Cursor(0);
        loop {
            fail_if_over(engine)?;
            let Some(step) = copy_step(engine, engine.guest(), db, cursor, &mut writer)? else {
                thread::sleep(HELD_UP);
                continue;
            };
            for frozen in step.long {
                frozen.write(&mut writer, CHUNK_BYTES, &mut |piece| {
                    bytes += write_pending(&mut file, &piece)?;
                    fail_if_over(engine)
                })?;
            }
            cursor = step.next;
            if writer.pending_bytes() >= CHUNK_BYTES {
                bytes += write_pending(&mut file, &writer.take())?;
            }
            if cursor == Cursor(0) {
                break;
            }
            thread::yield_now();
        }
    }
    bytes += write_pending(&mut file, &writer.finish())?;
    file.commit()?;
    Ok(bytes)
}

fn fail_if_over(engine: &Engine) -> io::Result<()> {
    let reason = match engine.durability.rewrites.is_held() {
        _ if engine.is_ending() => "the server ends",
        true => "all keys are being replaced",
        false => return Ok(()),
    };
    Err(io::Error::new(io::ErrorKind::Interrupted, reason))
}

fn write_pending(file: &mut Replacement, bytes: &[u8]) -> io::Result<u64> {
    file.write(bytes)?;
    Ok(bytes.len() as u64)
}
