//! `tarn cluster backup`: copies of all shards, which go on beside clients for as long as they take; then one moment for all of them; then the manifest.

use super::Reach;
use super::copying::{self, Copy, Phase};
use super::cut::{self, Cut};
use super::manifest::{Manifest, NAME, ShardFile};
use super::reading::{self, Looking};
use crate::asking::keeps_out;
use crate::screen::Screen;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use sys::file::{Fs, Lock};
use topology::{ShardId, SlotRange};

/// How often it looks how far the copies are.
const LOOKING: Duration = Duration::from_millis(50);
/// How long after it was looked for in vain a moment is looked for again: twice as long each time, up to so long.
const TRYING: Duration = Duration::from_millis(500);
const TRYING_MAX: Duration = Duration::from_secs(10);
/// How long it may take until all hold writes back: twice as long each time, up to so long.
const HOLDING: Duration = Duration::from_millis(250);
const HOLDING_MAX: Duration = Duration::from_secs(1);
/// How long there may be none.
const PATIENCE: Duration = Duration::from_secs(300);

/// Takes a backup into a directory.
///
/// # Errors
/// One sentence. There is no manifest then.
pub fn take(reach: &Reach, dir: &Path) -> Result<(), String> {
    let mut screen = Screen::new();
    let topology = reach.topology()?;
    let shards: BTreeSet<ShardId> = topology.slots.ranges().map(|(_, owner)| owner).collect();
    let shards: Vec<ShardId> = shards.into_iter().collect();
    if shards.is_empty() {
        return Err("no shard of this cluster has slots: there is nothing to be copied".to_owned());
    }
    let lock = make_room(dir)?;
    let copies: Vec<Mutex<Copy>> = shards.iter().map(|shard| Mutex::new(Copy::new(*shard))).collect();
    let is_over = AtomicBool::new(false);
    let cut = thread::scope(|scope| {
        for copy in &copies {
            let path = path(dir, copy.lock().shard);
            let is_over = &is_over;
            let work = move || copying::run(reach, copy, &path, is_over);
            if let Err(error) = thread::Builder::new().spawn_scoped(scope, work) {
                is_over.store(true, Ordering::Relaxed);
                return Err(format!("cannot begin a thread: {error}"));
            }
        }
        let cut = attend(reach, &shards, &copies, &mut screen);
        is_over.store(true, Ordering::Relaxed);
        cut
    })?;
    let manifest = describe(dir, &cut, &copies, &mut screen)?;
    manifest.write(dir)?;
    // Nobody begins here any more.
    let _ = Fs::Real.remove(&dir.join(LOCK));
    drop(lock);
    screen.say(&told(&manifest, dir));
    Ok(())
}

fn file_name(shard: ShardId) -> String {
    format!("shard-{shard}.aof")
}

fn path(dir: &Path, shard: ShardId) -> PathBuf {
    dir.join(file_name(shard))
}

/// Locked for as long as a backup is taken into its directory.
const LOCK: &str = "lock";

/// A directory that is empty, or has what an attempt has left that was ended, for nobody else until what is given is dropped.
fn make_room(dir: &Path) -> Result<Lock, String> {
    let shown = dir.display();
    let is_new = Fs::Real.kind(dir).is_ok_and(|kind| kind.is_none());
    let made = Fs::Real.create_dir_all(dir);
    // As secret as the data: one that was there is its owner's affair.
    let closed = made.and_then(|()| if is_new { Fs::Real.set_permissions(dir, 0o700) } else { Ok(()) });
    closed.map_err(|error| format!("{shown} cannot be made: {error}"))?;
    look_through(dir)?;
    let lock =
        Fs::Real.lock(&dir.join(LOCK)).map_err(|error| format!("{shown} cannot be locked: {error}"))?;
    let lock =
        lock.ok_or_else(|| format!("another `tarn cluster backup` has {shown}: take another directory"))?;
    // Whoever had it may have ended in between.
    look_through(dir)?.iter().filter(|name| *name != LOCK).try_for_each(|name| {
        let removed = Fs::Real.remove(&dir.join(name));
        removed.map_err(|error| format!("{shown}/{} cannot be removed: {error}", name.display()))
    })?;
    Ok(lock)
}

/// What is in the directory, all of which an attempt has left that was ended.
fn look_through(dir: &Path) -> Result<Vec<OsString>, String> {
    let shown = dir.display();
    let names = Fs::Real.list(dir).map_err(|error| format!("{shown} cannot be read: {error}"))?;
    for name in &names {
        let name = name.to_string_lossy();
        if name == NAME {
            return Err(format!("{shown} holds a backup already: take another directory"));
        }
        let is_ours = [(NAME, ".tmp"), ("shard-", ".aof")]
            .iter()
            .any(|(begin, end)| name.starts_with(begin) && name.ends_with(end));
        if !is_ours && name != LOCK {
            return Err(format!(
                "{shown} holds {name}, which is no part of a backup: take another directory"
            ));
        }
    }
    Ok(names)
}

/// Waits for the copies, finds a moment when all of them have come so far, and has them end there.
fn attend(
    reach: &Reach,
    shards: &[ShardId],
    copies: &[Mutex<Copy>],
    screen: &mut Screen,
) -> Result<Cut, String> {
    let (mut made, mut waits_since, mut tried, mut told) = (None, None, None::<Instant>, String::new());
    let (mut pause, mut holding, mut is_told) = (TRYING, HOLDING, false);
    loop {
        let phases = look(copies, screen)?;
        // One that was begun anew has lost the moment, and so have all others.
        if made.is_some() && copies.iter().any(|copy| copy.lock().cut.is_none()) {
            (made, waits_since) = (None, None);
            if !std::mem::replace(&mut is_told, true) {
                screen.say("a shard's copy broke off behind the moment that all have in common: another moment is looked for, and copies that have ended at this one are begun anew");
            }
        }
        if phases.iter().all(|phase| matches!(phase, Phase::Whole(..)))
            && let Some(cut) = made.take()
        {
            return Ok(cut);
        }
        if made.is_none() {
            // Also those that have ended at it only now.
            copies.iter().for_each(|copy| copy.lock().lose_moment());
        }
        let follow = phases.iter().all(|phase| matches!(phase, Phase::Following(_)));
        if follow && made.is_none() && tried.is_none_or(|tried| tried.elapsed() >= pause) {
            let since = *waits_since.get_or_insert_with(Instant::now);
            let attempts = hold_back(copies);
            match cut::make(reach, shards, holding)
                .and_then(|cut| end_at(&cut, copies, &attempts).map(|()| cut))
            {
                Ok(cut) => made = Some(cut),
                Err(why) if since.elapsed() >= PATIENCE || is_final(&why) => {
                    return Err(format!("no moment is found that all shards have in common: {why}"));
                }
                Err(why) if why != told => {
                    screen.say(&format!("there is no common moment yet: {why}"));
                    told = why;
                }
                Err(_) => {}
            }
            copies.iter().for_each(|copy| copy.lock().is_held = false);
            tried = Some(Instant::now());
            (pause, holding) = ((2 * pause).min(TRYING_MAX), (2 * holding).min(HOLDING_MAX));
        }
        thread::sleep(LOOKING);
    }
}

/// Whether waiting makes no difference.
fn is_final(why: &str) -> bool {
    keeps_out(why) || why.contains("unknown subcommand")
}

/// Has what comes from now on be kept apart. Gives of each copy, if it is there and follows, which attempt that is of.
fn hold_back(copies: &[Mutex<Copy>]) -> Vec<Option<u32>> {
    let hold = |copy: &Mutex<Copy>| {
        let mut copy = copy.lock();
        copy.is_held = true;
        matches!(copy.phase, Phase::Following(_)).then_some(copy.attempt)
    };
    copies.iter().map(hold).collect()
}

/// Has all copies end at the moment.
///
/// # Errors
/// One of them is of another stream than that in which the moment is, or was not there before the moment was looked for: it may hold what was written behind it.
fn end_at(cut: &Cut, copies: &[Mutex<Copy>], attempts: &[Option<u32>]) -> Result<(), String> {
    // All at once, so that none is begun anew in between.
    let mut copies: Vec<_> = copies.iter().map(Mutex::lock).collect();
    for (copy, attempt) in copies.iter().zip(attempts) {
        let following = match &copy.phase {
            Phase::Following(following) if *attempt == Some(copy.attempt) => following,
            _ => return Err(format!("the copy of shard {} has just been begun anew", copy.shard)),
        };
        let position = cut.positions.get(&copy.shard);
        let fits = position.is_some_and(|one| one.stream == following.stream && one.offset >= following.from);
        if !fits {
            return Err(format!(
                "shard {} has another master, and is copied from the one before",
                copy.shard
            ));
        }
    }
    for copy in &mut copies {
        copy.cut = cut.positions.get(&copy.shard).map(|position| position.offset);
    }
    Ok(())
}

fn look(copies: &[Mutex<Copy>], screen: &mut Screen) -> Result<Vec<Phase>, String> {
    let mut phases = Vec::new();
    let (mut line, mut step) = (Vec::new(), Vec::new());
    for copy in copies {
        let mut copy = copy.lock();
        if let Some(trouble) = copy.trouble.take() {
            screen.say(&trouble);
        }
        let word = match &copy.phase {
            Phase::Copying => "copies",
            Phase::Following(_) => "follows",
            Phase::Whole(..) => "is whole",
            Phase::Failed(why) => return Err(why.clone()),
        };
        line.push(format!("shard {} {word}, {} MiB", copy.shard, copy.bytes >> 20));
        step.push(format!("{} {word}", copy.shard));
        phases.push(copy.phase.clone());
    }
    screen.show(&line.join("; "), &step.join(" "));
    Ok(phases)
}

fn describe(dir: &Path, cut: &Cut, copies: &[Mutex<Copy>], screen: &mut Screen) -> Result<Manifest, String> {
    let taken = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut shards = Vec::new();
    for copy in copies {
        let copy = copy.lock();
        let (Phase::Whole(following, _), Some(position)) = (&copy.phase, cut.positions.get(&copy.shard))
        else {
            return Err(format!("the copy of shard {} is not whole", copy.shard));
        };
        screen.show(&format!("shard {} is looked at once more", copy.shard), &format!("look {}", copy.shard));
        let path = path(dir, copy.shard);
        let (from, until) = (following.from, position.offset);
        let keys = reading::read(&path, (from, until), &mut Looking::default())?;
        let (bytes, sha256) = reading::sum(&path, &mut |_| ())?;
        let slots: Vec<SlotRange> = cut.topology.slots.ranges_of(copy.shard).collect();
        let master = cut.topology.master_of(copy.shard);
        shards.push(ShardFile {
            shard: copy.shard,
            slots,
            file: file_name(copy.shard),
            bytes,
            sha256,
            stream: following.stream.clone(),
            from,
            until,
            epoch: position.epoch,
            keys,
            edition: master.map_or_else(String::new, |server| server.edition.name().to_owned()),
        });
    }
    Ok(Manifest {
        cluster: cut.topology.cluster.clone(),
        revision: cut.topology.revision,
        taken_ms: u64::try_from(taken.as_millis()).unwrap_or(u64::MAX),
        shards,
    })
}

fn told(manifest: &Manifest, dir: &Path) -> String {
    let (keys, bytes) =
        manifest.shards.iter().fold((0, 0), |(keys, bytes), one| (keys + one.keys, bytes + one.bytes));
    format!(
        "{} holds {} shards of cluster {} as of one moment: {keys} keys and what was written to them while they were copied, {bytes} bytes",
        dir.display(),
        manifest.shards.len(),
        manifest.cluster
    )
}

/// Looks at all of a backup, and changes nothing.
///
/// # Errors
/// What is wrong with it.
pub fn verify(dir: &Path) -> Result<Manifest, String> {
    let manifest = Manifest::read(dir)?;
    let mut screen = Screen::new();
    for one in &manifest.shards {
        let (path, mut done) = (dir.join(&one.file), 0);
        reading::compare(&path, one, |bytes| {
            done += bytes;
            let (shown, of) = (done >> 20, one.bytes >> 20);
            screen.show(&format!("{}: {shown} of {of} MiB are looked at", one.file), &one.file);
        })?;
        reading::read(&path, (one.from, one.until), &mut Looking::default())?;
    }
    screen.say(&format!("{}: all is as it was written", told(&manifest, dir)));
    Ok(manifest)
}

#[cfg(test)]
mod tests {
    use super::super::copying::Following;
    use super::super::cut::Position;
    use super::*;
    use std::collections::BTreeMap;
    use topology::Topology;

    #[test]
    fn a_copy_that_was_not_there_before_the_moment_does_not_end_at_it() {
        let shard = ShardId(0);
        let follows = || Phase::Following(Following { stream: "s".to_owned(), from: 5 });
        let copies = [Mutex::new(Copy::new(shard))];
        let position = Position { stream: "s".to_owned(), offset: 9, epoch: 1 };
        let cut = Cut { topology: Topology::default(), positions: BTreeMap::from([(shard, position)]) };
        // It comes while the moment is looked for.
        let attempts = hold_back(&copies);
        copies[0].lock().phase = follows();
        assert!(end_at(&cut, &copies, &attempts).is_err());
        // It is begun anew meanwhile, and follows again.
        let attempts = hold_back(&copies);
        copies[0].lock().attempt += 1;
        assert!(end_at(&cut, &copies, &attempts).is_err());
        assert_eq!(copies[0].lock().cut, None);
        let attempts = hold_back(&copies);
        assert_eq!(end_at(&cut, &copies, &attempts), Ok(()));
        assert_eq!(copies[0].lock().cut, Some(9));
    }
}
