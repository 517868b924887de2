//! What holds of every store of decisions, and what of each.

mod embedded;
mod etcd;
mod gateways;

use super::{Change, Changed, Compare, LeaseId, Outcome, Reading, Revision, Seen, Store, Watch, Write};
use std::time::{Duration, Instant};

/// Longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(120);

fn compare(key: &str, revision: Revision) -> Compare {
    Compare { key: key.to_owned(), revision }
}

fn put(key: &str, value: &str) -> Write {
    Write::Put { key: key.to_owned(), value: value.to_owned(), lease: None }
}

fn put_for(key: &str, value: &str, lease: LeaseId) -> Write {
    Write::Put { key: key.to_owned(), value: value.to_owned(), lease: Some(lease) }
}

fn delete(key: &str) -> Write {
    Write::Delete { key: key.to_owned() }
}

fn change(store: &dyn Store, compares: Vec<Compare>, writes: Vec<Write>) -> Outcome {
    store.change(&Change { compares, writes })
}

fn done(store: &dyn Store, compares: Vec<Compare>, writes: Vec<Write>) -> Revision {
    match change(store, compares, writes) {
        Outcome::Done(revision) => revision,
        other => panic!("it is not done: {other:?}"),
    }
}

fn held(reading: &Reading) -> Vec<(&str, &str, Revision)> {
    reading.entries.iter().map(|entry| (entry.key.as_str(), entry.value.as_str(), entry.revision)).collect()
}

/// The next thing that a watch sees.
#[track_caller]
fn next(watch: &mut dyn Watch) -> (Revision, Vec<Changed>) {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        match watch.next(Duration::from_millis(100)).expect("the store answers") {
            Seen::Changes { revision, changed } => return (revision, changed),
            Seen::Quiet => {}
            Seen::Compacted => panic!("nothing was forgotten"),
        }
    }
    panic!("the watch sees nothing")
}

fn set_to(key: &str, value: &str) -> Changed {
    Changed { key: key.to_owned(), value: Some(value.to_owned()) }
}

fn gone(key: &str) -> Changed {
    Changed { key: key.to_owned(), value: None }
}

/// All that config servers rely on. `forget` has the store forget what was before a revision.
fn keeps_its_promises(store: &dyn Store, forget: &dyn Fn(Revision)) {
    let begin = store.read("/t/").expect("it answers");
    assert_eq!(held(&begin), []);
    changes_are_whole(store);
    watches_see_all(store, begin.revision);
    leases_hold_keys(store);
    only_one_of_many_is_done(store);
    what_is_forgotten_is_said(store, begin.revision, forget);
}

fn changes_are_whole(store: &dyn Store) {
    let absent = Revision(0);
    let first = done(
        store,
        vec![compare("/t/a", absent), compare("/t/ab", absent)],
        vec![put("/t/a", "1 2"), put("/t/ab", "\"x\" ü"), put("/u", "")],
    );
    let reading = store.read("/t/").expect("it answers");
    assert_eq!(held(&reading), [("/t/a", "1 2", first), ("/t/ab", "\"x\" ü", first)]);
    assert!(reading.revision >= first);
    let latest = |prefix| store.latest(prefix).expect("it answers").changed;
    assert_eq!((latest("/t/"), latest("/t/n")), (first, absent));
    let value = |key: &str| store.get(key).expect("it answers").map(|entry| entry.value);
    assert_eq!(
        (value("/t/a").as_deref(), value("/u").as_deref(), value("/t/")),
        (Some("1 2"), Some(""), None)
    );

    // One compare that does not hold is enough.
    let both = vec![compare("/t/a", first), compare("/t/ab", absent)];
    assert_eq!(change(store, both, vec![put("/t/a", "no"), put("/t/new", "no")]), Outcome::Conflict);
    assert_eq!((value("/t/a").as_deref(), value("/t/new")), (Some("1 2"), None));

    // A compare may be of a key that does not change.
    let second = done(store, vec![compare("/u", first)], vec![put("/t/a", "2")]);
    assert!(second > first);
    assert_eq!((latest("/t/"), latest("/t/ab"), latest("/u")), (second, first, first));
    assert_eq!(change(store, vec![compare("/t/a", first)], vec![delete("/t/a")]), Outcome::Conflict);
    let third = done(store, vec![compare("/t/a", second)], vec![delete("/t/a"), put("/t/c", "3")]);
    assert_eq!(
        held(&store.read("/t/").expect("it answers")),
        [("/t/ab", "\"x\" ü", first), ("/t/c", "3", third)]
    );
    // A key that comes again is there no earlier than it comes.
    let fourth = done(store, vec![compare("/t/a", absent)], vec![put("/t/a", "4")]);
    assert_eq!(store.get("/t/a").expect("it answers").map(|entry| entry.revision), Some(fourth));
}

fn watches_see_all(store: &dyn Store, begin: Revision) {
    let mut watch = store.watch("/t/", begin).expect("it answers");
    let (first, both) = next(&mut *watch);
    assert_eq!(both, [set_to("/t/a", "1 2"), set_to("/t/ab", "\"x\" ü")]);
    let (second, changed) = next(&mut *watch);
    assert_eq!(changed, [set_to("/t/a", "2")]);
    let (third, mut changed) = next(&mut *watch);
    changed.sort_by(|a, b| a.key.cmp(&b.key));
    assert_eq!(changed, [gone("/t/a"), set_to("/t/c", "3")]);
    let (fourth, changed) = next(&mut *watch);
    assert_eq!(changed, [set_to("/t/a", "4")]);
    assert!(begin < first && first < second && second < third && third < fourth);

    // From the middle, and what comes only now.
    let mut later = store.watch("/t/", third).expect("it answers");
    assert_eq!(next(&mut *later).0, fourth);
    assert_eq!(later.next(Duration::from_millis(1)), Ok(Seen::Quiet));
    done(store, Vec::new(), vec![put("/u", "not watched")]);
    let fifth = done(store, Vec::new(), vec![put("/t/a", "5")]);
    for watch in [&mut watch, &mut later] {
        assert_eq!(next(&mut **watch), (fifth, vec![set_to("/t/a", "5")]));
    }
    // It is quiet for longer than it takes to be compared with what is there.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(2500) {
        assert_eq!(watch.next(Duration::from_millis(200)), Ok(Seen::Quiet));
    }
}

fn leases_hold_keys(store: &dyn Store) {
    let length = Duration::from_secs(60);
    let lease = store.grant(length).expect("it answers");
    let other = store.grant(length).expect("it answers");
    assert_ne!(lease, other);
    let at = done(store, Vec::new(), vec![put_for("/t/led", "me", lease), put_for("/t/other", "x", other)]);
    assert_eq!(store.renew(lease), Ok(true));
    let mut watch = store.watch("/t/", at).expect("it answers");
    store.release(lease).expect("it answers");
    assert_eq!(next(&mut *watch).1, [gone("/t/led")]);
    assert_eq!(store.get("/t/led"), Ok(None));
    assert!(store.get("/t/other").expect("it answers").is_some());
    assert_eq!(store.renew(lease), Ok(false));
    assert_eq!(store.release(lease), Ok(()));
    let late = change(store, Vec::new(), vec![put_for("/t/led", "me", lease)]);
    assert!(matches!(late, Outcome::Unreached(_)), "{late:?}");
    assert_eq!(store.get("/t/led"), Ok(None));
    store.release(other).expect("it answers");
}

/// Many count in one key at the same time, each by what it has read.
fn only_one_of_many_is_done(store: &dyn Store) {
    const THREADS: usize = 4;
    const TIMES: usize = 10;
    let count = || {
        let entry = store.get("/t/count").expect("it answers");
        let (value, revision) =
            entry.map_or((0, Revision(0)), |entry| (entry.value.parse().unwrap(), entry.revision));
        let next: usize = value + 1;
        change(store, vec![compare("/t/count", revision)], vec![put("/t/count", &next.to_string())])
    };
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..TIMES {
                    while !matches!(count(), Outcome::Done(_)) {}
                }
            });
        }
    });
    let counted = store.get("/t/count").expect("it answers").map(|entry| entry.value);
    assert_eq!(counted, Some((THREADS * TIMES).to_string()));
}

fn what_is_forgotten_is_said(store: &dyn Store, begin: Revision, forget: &dyn Fn(Revision)) {
    let now = store.read("/t/").expect("it answers").revision;
    forget(now);
    let mut watch = store.watch("/t/", begin).expect("it answers");
    assert_eq!(watch.next(PATIENCE), Ok(Seen::Compacted));
    let revision = store.read("/t/").expect("it answers").revision;
    let mut again = store.watch("/t/", revision).expect("it answers");
    let last = done(store, Vec::new(), vec![put("/t/a", "last")]);
    assert_eq!(next(&mut *again), (last, vec![set_to("/t/a", "last")]));
}
