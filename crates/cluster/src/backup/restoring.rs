//! `tarn cluster restore`: brings a backup to a cluster whose slots have no owners yet, all shards at once; then gives the slots owners, by one change. Before that nobody sees
//! anything of it, and it can be begun again.

use super::bringing::Brought;
use super::manifest::{Manifest, ShardFile};
use super::{ANSWERING, Reach, bringing, taking};
use crate::asking::{Asking, Repeats, is_unable};
use crate::screen::Screen;
use parking_lot::Mutex;
use std::path::Path;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use topology::{Server, ShardId, SlotMap, Topology};

/// How often it looks how far it is.
const LOOKING: Duration = Duration::from_millis(100);
/// How long it may take until there are as many shards as the backup has.
const BEGINNING: Duration = Duration::from_secs(60);

/// How far a restore is, for whoever may end it.
#[derive(Default)]
pub struct Stand(AtomicU8);

/// Nobody has asked for slots to have owners.
const BRINGS: u8 = 0;
/// Nor will anybody.
const GIVEN_UP: u8 = 1;
/// That is asked for, or was.
const ENDS: u8 = 2;

impl Stand {
    /// Has it come to nothing; false: it is too late, and not known whether all is restored.
    pub fn give_up(&self) -> bool {
        self.become_one(GIVEN_UP)
    }

    fn become_one(&self, next: u8) -> bool {
        let before = self.0.compare_exchange(BRINGS, next, Ordering::SeqCst, Ordering::SeqCst);
        before.is_ok() || before == Err(next)
    }
}

/// Brings a backup to a new cluster.
///
/// # Errors
/// One sentence. The cluster has nothing then, unless the sentence says otherwise.
pub fn restore(reach: &Reach, dir: &Path, stand: &Stand) -> Result<(), String> {
    let manifest = taking::verify(dir)?;
    let mut screen = Screen::new();
    let restore = begin(reach)?;
    let targets = wait_for_shards(reach, &manifest, &mut screen)?;
    empty_others(reach, &targets, restore)?;
    let brought = bring_all(reach, dir, &targets, restore, &mut screen)?;
    let mut slots = SlotMap::default();
    for (one, to, _) in &targets {
        one.slots.iter().flat_map(|range| range.slots()).for_each(|slot| slots.set(slot, Some(*to)));
    }
    // The first may have waited for the last for hours.
    let mut epochs = Vec::new();
    for (shard, mut one) in brought {
        one.confirm().map_err(|why| unfinished(shard, &why))?;
        epochs.push((shard, one.epoch));
    }
    if !stand.become_one(ENDS) {
        return Err("it was ended: nothing is restored".to_owned());
    }
    end(reach, restore, (&slots, &epochs))?;
    screen.say(&format!("{} shards have what the backup holds, and the slots that they had", targets.len()));
    Ok(())
}

fn unfinished(shard: ShardId, why: &str) -> String {
    format!("shard {shard}: {why}; nothing is restored, and it can be begun again")
}

/// From here on whoever began before does not go on.
fn begin(reach: &Reach) -> Result<u64, String> {
    let answer = ask_leader(reach, &["CLUSTER", "RESTORE", "BEGIN"])?;
    let number = answer.strip_prefix("restore ").and_then(|number| number.parse().ok());
    number.ok_or_else(|| format!("the config server answers '{answer}'"))
}

/// Asks until somebody leads who can do it.
fn ask_leader(reach: &Reach, words: &[&str]) -> Result<String, String> {
    let began = Instant::now();
    loop {
        let request = (words, 2 * ANSWERING);
        match Asking::first(&reach.places, &reach.config, request, Repeats::No, |_| true) {
            Err(why) if is_unable(&why) && began.elapsed() < BEGINNING => {}
            answer => return answer.map(|(_, text)| text),
        }
        thread::sleep(LOOKING);
    }
}

/// So many words say that a restore ends, without the shards' epochs.
const WITHOUT_EPOCHS: usize = 5;

/// Gives the slots their owners. The config server that leads looks once more whether the shards have what was brought to them in these epochs.
fn end(reach: &Reach, restore: u64, (slots, epochs): (&SlotMap, &[(ShardId, u64)])) -> Result<(), String> {
    let words = ["CLUSTER", "RESTORE", "END", &restore.to_string(), &slots.to_line()].map(str::to_owned);
    let epochs = epochs.iter().flat_map(|(shard, epoch)| [shard.to_string(), epoch.to_string()]);
    let words: Vec<String> = words.into_iter().chain(epochs).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let told = match ask_leader(reach, &words) {
        // The one that leads is of a version that does not look at epochs.
        Err(why) if why.starts_with("ERR unknown subcommand") => ask_leader(reach, &words[..WITHOUT_EPOCHS]),
        told => told,
    };
    match told {
        Ok(_) => Ok(()),
        // It may have been done, and the answer lost.
        Err(_) if reach.topology().is_ok_and(|now| now.slots == *slots) => Ok(()),
        Err(why) => Err(why),
    }
}

/// The file of a shard, the shard that gets it, and that one's master.
type Target = (ShardFile, ShardId, Server);

fn wait_for_shards(reach: &Reach, manifest: &Manifest, screen: &mut Screen) -> Result<Vec<Target>, String> {
    let began = Instant::now();
    loop {
        let topology = reach.topology()?;
        let masters: Vec<(ShardId, &Server)> = begun(&topology).collect();
        let (there, wanted) = (masters.len(), manifest.shards.len());
        if there >= wanted {
            let targets = manifest.shards.iter().zip(masters);
            return Ok(targets.map(|(one, (to, master))| (one.clone(), to, master.clone())).collect());
        }
        let line = format!("{there} of {wanted} shards that the backup has have begun");
        if began.elapsed() >= BEGINNING {
            return Err(format!(
                "{line}: begin as many (`tarn cluster set shards {wanted}`, and servers for them)"
            ));
        }
        screen.show(&line, &line);
        thread::sleep(LOOKING);
    }
}

/// Has shards that get nothing forget what an earlier attempt at another backup has brought there: what becomes theirs later meets none of it.
fn empty_others(reach: &Reach, targets: &[Target], restore: u64) -> Result<(), String> {
    let topology = reach.topology()?;
    let is_other = |shard: &&ShardId| targets.iter().all(|(_, to, _)| to != *shard);
    let others = topology.shards.iter().filter(|(_, shard)| shard.master.is_some());
    for shard in others.map(|(id, _)| id).filter(is_other) {
        let master = topology.master_of(*shard).ok_or_else(|| unfinished(*shard, "it has no master"))?;
        bringing::welcome(reach, master, restore).map_err(|why| unfinished(*shard, &why))?;
    }
    Ok(())
}

fn begun(topology: &Topology) -> impl Iterator<Item = (ShardId, &Server)> {
    topology.shards.keys().filter_map(|shard| Some((*shard, topology.master_of(*shard)?)))
}

fn bring_all(
    reach: &Reach,
    dir: &Path,
    targets: &[Target],
    restore: u64,
    screen: &mut Screen,
) -> Result<Vec<(ShardId, Brought)>, String> {
    let (done, of) = (AtomicU64::new(0), targets.iter().map(|(one, ..)| one.bytes).sum::<u64>());
    let (failed, brought) = (Mutex::new(None), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        let threads: Vec<_> = targets
            .iter()
            .map(|(one, to, master)| {
                let (done, failed, brought) = (&done, &failed, &brought);
                let work = move || match bringing::bring(
                    reach,
                    (&dir.join(&one.file), one),
                    master,
                    restore,
                    done,
                ) {
                    Ok(there) => brought.lock().push((*to, there)),
                    Err(why) => drop(failed.lock().get_or_insert_with(|| unfinished(*to, &why))),
                };
                let thread = thread::Builder::new().spawn_scoped(scope, work);
                if let Err(error) = &thread {
                    let why = format!("cannot begin a thread: {error}");
                    failed.lock().get_or_insert_with(|| unfinished(*to, &why));
                }
                thread
            })
            .collect();
        while threads.iter().flatten().any(|thread| !thread.is_finished()) {
            let shown = done.load(Ordering::Relaxed) >> 20;
            screen.show(&format!("{shown} of {} MiB are brought", of >> 20), "brought");
            thread::sleep(LOOKING);
        }
    });
    failed.into_inner().map_or(Ok(brought.into_inner()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_ends_a_restore_knows_whether_something_may_come_of_it() {
        let (early, late) = (Stand::default(), Stand::default());
        assert!(early.give_up() && early.give_up());
        assert!(!early.become_one(ENDS), "nobody asks for it any more");
        assert!(late.become_one(ENDS) && !late.give_up());
    }
}
