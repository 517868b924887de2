//! The store in a directory.

use super::{compare, delete, done, held, keeps_its_promises, put};
use crate::store::embedded::Embedded;
use crate::store::{Change, Outcome, Revision, Seen, Store};
use std::path::Path;
use std::time::Duration;
use sys::file::{
    Fs,
    simulated::{Disk, Faults, Survival},
};

const DIR: &str = "/store";

fn open(disk: &Disk) -> Result<Embedded, String> {
    Embedded::open(Fs::Simulated(disk.clone()), Path::new(DIR))
}

#[test]
fn it_keeps_what_is_promised() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Embedded::open(Fs::Real, dir.path()).expect("it is new");
    keeps_its_promises(&store, &|_| store.forget());
    let before = store.read("").expect("it answers");
    let refused = Embedded::open(Fs::Real, dir.path()).map(drop);
    assert!(refused.is_err_and(|why| why.contains("another process")));
    drop(store);
    let again = Embedded::open(Fs::Real, dir.path()).expect("it is whole");
    assert_eq!(again.read("").expect("it answers"), before);
}

#[test]
fn a_crash_at_any_moment_leaves_a_change_done_or_not() {
    let disk = Disk::new(1);
    let store = open(&disk).expect("it is new");
    let mut last = done(&store, Vec::new(), vec![put("a", "0"), put("b", "0")]);
    disk.film();
    // What is there after each change, by its revision.
    let mut after = vec![held_there(&store)];
    for round in 1..6 {
        let value = round.to_string();
        last = done(&store, vec![compare("a", last)], vec![put("a", &value), put("b", &value), delete("c")]);
        after.push(held_there(&store));
    }
    drop(store);
    let (mut at, mut seen) = (0, Vec::new());
    for (step, cut) in disk.take_film().into_iter().enumerate() {
        for survival in [Survival::Nothing, Survival::All, Survival::Chance, Survival::Bytes(step as u64 * 7)]
        {
            let left = cut.power_cut(step as u64, survival);
            let store = open(&left).expect("a crash damages nothing");
            let found = held_there(&store);
            let which = after.iter().position(|known| *known == found);
            let which = which.unwrap_or_else(|| panic!("nobody ever wrote {found:?}"));
            assert!(which + 1 >= at, "at step {step} change {which} is back");
            at = at.max(which);
            seen.push(which);
        }
    }
    seen.dedup();
    assert!(seen.len() >= 5, "{seen:?}");
}

fn held_there(store: &Embedded) -> Vec<(String, String, Revision)> {
    let reading = store.read("").expect("it answers");
    held(&reading).iter().map(|(key, value, at)| ((*key).to_owned(), (*value).to_owned(), *at)).collect()
}

#[test]
fn what_a_disk_refused_is_known_before_anything_is_told() {
    let disk = Disk::new(2);
    let store = open(&disk).expect("it is new");
    let first = done(&store, Vec::new(), vec![put("a", "1")]);
    disk.set_faults(Faults { write_error_one_in: 1, sync_error_one_in: 1, ..Faults::default() });
    let next = Change { compares: vec![compare("a", first)], writes: vec![put("a", "2")] };
    assert!(matches!(store.change(&next), Outcome::Unknown(_)));
    assert!(matches!(store.change(&next), Outcome::Unreached(_)));
    assert!(store.read("").is_err());
    disk.set_faults(Faults::default());
    assert_eq!(held(&store.read("").expect("the disk is well again")), [("a", "1", first)]);
    assert!(matches!(store.change(&next), Outcome::Done(_)));
    drop(store);
    assert_eq!(open(&disk).expect("it is whole").get("a").unwrap().unwrap().value, "2");
}

#[test]
fn what_is_damaged_is_not_guessed_at() {
    let disk = Disk::new(3);
    let store = open(&disk).expect("it is new");
    done(&store, Vec::new(), vec![put("a", "1"), put("b", "2")]);
    drop(store);
    let path = Path::new(DIR).join("decisions");
    let bytes = disk.content(&path).expect("it is there");
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        for content in [damaged, bytes[..at].to_vec()] {
            disk.place(&path, content);
            assert!(open(&disk).map(drop).is_err_and(|why| why.contains("damaged")), "{at}");
        }
    }
    disk.place(&path, bytes);
    assert!(open(&disk).is_ok());
}

#[test]
fn what_cannot_be_kept_is_refused() {
    let store = open(&Disk::new(4)).expect("it is new");
    for write in [put("a b", "1"), put("", "1"), put("a", "1\n2"), put("ä", "1")] {
        let outcome = store.change(&Change { compares: Vec::new(), writes: vec![write] });
        assert!(matches!(outcome, Outcome::Unreached(_)));
    }
    assert_eq!(store.read("").expect("it answers").revision, Revision(0));
}

#[test]
fn who_is_behind_more_than_is_kept_reads_all_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Embedded::open(Fs::Real, dir.path()).expect("it is new");
    let first = done(&store, Vec::new(), vec![put("a", "0")]);
    let (mut behind, value) = (store.watch("", first).expect("it answers"), "x".repeat(1 << 20));
    let last = (0..40).fold(first, |_, _| done(&store, Vec::new(), vec![put("a", &value)]));
    assert_eq!(behind.next(Duration::ZERO), Ok(Seen::Compacted));
    let before = Revision(last.0 - 1);
    let next = store.watch("", before).expect("it answers").next(Duration::ZERO).expect("it answers");
    assert!(matches!(next, Seen::Changes { revision, .. } if revision == last));
}
