//! Who waits for what, in which order, and what is known when the wait is over. Every step is taken when the one before is seen in the
//! lines: nothing depends on time.

use super::fair::standing_for;
use super::fair::tests::wait_until;
use super::*;
use crate::fixture::{DB, NOW, new_keyspace, set};
use crate::keyspace::Touch;
use crate::object::NewValue;
use crate::{Expiry, TypeName};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use sys::Clock;

/// How many stand in line for a key's slot.
fn waiting_for(keyspace: &Keyspace, key: &Key<'_>) -> usize {
    standing_for(keyspace.keys_of_slot(keyspace.slot_id(key)))
}

/// Keys of different slots.
fn keys(keyspace: &Keyspace) -> [Key<'static>; 3] {
    let keys = [&b"a"[..], b"b", b"c"].map(|name| keyspace.key(DB, name));
    assert_eq!(slots_of(keyspace, &keys).len(), keys.len());
    keys
}

fn look(keyspace: &Keyspace, worker: usize, keys: &[Key<'_>], done: &Sender<usize>) {
    let batch = keyspace.enter(worker);
    let view = batch.view(keys, NOW, Touch::No);
    done.send(worker).unwrap();
    view.finish();
}

#[test]
fn who_wants_several_keys_waits_for_those_before_it_and_for_nobody_behind_it() {
    let keyspace = new_keyspace(4);
    let [a, b, _] = keys(&keyspace);
    let (done, order) = channel();
    let batches = [keyspace.enter(0), keyspace.enter(1)];
    let on_a = batches[0].view(&[a], NOW, Touch::No);
    let on_b = batches[1].view(&[b], NOW, Touch::No);
    thread::scope(|scope| {
        scope.spawn(|| look(&keyspace, 2, &[b, a], &done));
        wait_until(|| waiting_for(&keyspace, &a) + waiting_for(&keyspace, &b) == 2);
        on_a.finish();
        // It has the first now, and keeps it.
        scope.spawn(|| look(&keyspace, 3, &[a], &done));
        wait_until(|| waiting_for(&keyspace, &a) == 1);
        assert!(order.try_recv().is_err());
        on_b.finish();
    });
    assert_eq!(order.try_iter().collect::<Vec<_>>(), [2, 3]);
}

#[test]
fn who_wants_everything_waits_for_those_who_are_in_and_for_nobody_behind_it() {
    let keyspace = new_keyspace(3);
    let [a, ..] = keys(&keyspace);
    let (done, order) = channel();
    let batches = [keyspace.enter(0), keyspace.enter(1)];
    let [first, second] = batches;
    thread::scope(|scope| {
        scope.spawn(|| {
            keyspace.enter(2).exclusively(NOW, Touch::No, |_| done.send(2).unwrap());
        });
        wait_until(|| (0..2).all(|worker| standing_for(keyspace.gate(worker)) == 1));
        drop(first);
        // It has left, and does not come in before.
        scope.spawn(|| look(&keyspace, 0, &[a], &done));
        wait_until(|| standing_for(keyspace.gate(0)) == 1);
        assert!(order.try_recv().is_err());
        drop(second);
    });
    assert_eq!(order.try_iter().collect::<Vec<_>>(), [2, 0]);
}

#[test]
fn the_moment_of_a_command_is_one_at_which_it_has_its_keys() {
    let keyspace = new_keyspace(4);
    let clock = Clock::simulated(NOW);
    keyspace.set_clock(clock.clone());
    let [a, b, _] = keys(&keyspace);
    let batch = keyspace.enter(0);
    let (on_a, since) = (batch.view(&[a], NOW, Touch::No), UnixMs(NOW.0 + 700));
    assert_eq!(on_a.now(), NOW, "who does not wait need not ask");
    thread::scope(|scope| {
        let edits = scope.spawn(|| keyspace.enter(1).edit(&[a, b], NOW, Touch::No).now());
        let holds = scope.spawn(|| {
            let mut batch = keyspace.enter(2);
            batch.hold(&[a]);
            batch.moment(NOW)
        });
        wait_until(|| waiting_for(&keyspace, &a) == 2);
        clock.advance_ms(700);
        on_a.finish();
        assert_eq!((edits.join().unwrap(), holds.join().unwrap()), (since, since));
    });
    drop(batch);
    let batch = keyspace.enter(0);
    thread::scope(|scope| {
        let takes_all = scope.spawn(|| keyspace.enter(3).exclusively(NOW, Touch::No, |all| all.view().now()));
        wait_until(|| standing_for(keyspace.gate(0)) == 1);
        clock.advance_ms(1);
        drop(batch);
        assert_eq!(takes_all.join().unwrap(), UnixMs(since.0 + 1));
    });
}

#[test]
fn what_is_done_again_has_the_moment_that_it_had_though_it_waits() {
    let keyspace = new_keyspace(2);
    keyspace.set_clock(Clock::simulated(UnixMs(NOW.0 + 700)));
    let [a, ..] = keys(&keyspace);
    let mut past = Some(keyspace.in_the_past());
    for moment in [NOW, UnixMs(NOW.0 + 700)] {
        let batch = keyspace.enter(0);
        let on_a = batch.view(&[a], NOW, Touch::No);
        thread::scope(|scope| {
            let edits = scope.spawn(|| keyspace.enter(1).edit(&[a], NOW, Touch::No).now());
            wait_until(|| waiting_for(&keyspace, &a) == 1);
            on_a.finish();
            assert_eq!(edits.join().unwrap(), moment);
        });
        drop(past.take());
    }
}

#[test]
fn only_who_needs_what_is_held_for_long_gives_up() {
    let keyspace = new_keyspace(4);
    let [a, b, c] = keys(&keyspace);
    let (done, order) = channel();
    let (mut slow, other) = (keyspace.enter(0), keyspace.enter(1));
    slow.hold(&[a]);
    keyspace.set_slow_holders(vec![slow.holding()]);
    let on_b = other.view(&[b], NOW, Touch::No);
    let mut batch = keyspace.enter(2);
    assert!(
        batch.try_view(&[a], NOW, Touch::No).is_none() && batch.try_edit(&[c, a], NOW, Touch::No).is_none()
    );
    assert!(!batch.try_hold(&[a, c]));
    assert!(batch.try_view(&[c], NOW, Touch::No).is_some(), "who has given up holds nothing");
    assert!(!batch.try_hold_all() && !batch.is_inside());
    thread::scope(|scope| {
        scope.spawn(|| {
            let batch = keyspace.enter(3);
            let view = batch.try_view(&[b], NOW, Touch::No);
            done.send(view.is_some()).unwrap();
        });
        wait_until(|| waiting_for(&keyspace, &b) == 1);
        on_b.finish();
    });
    assert_eq!(order.try_iter().collect::<Vec<_>>(), [true]);
}

#[test]
fn a_change_holds_what_is_touched_when_those_are_served_who_wait() {
    let keyspace = new_keyspace(2);
    let [a, b, c] = keys(&keyspace);
    let batch = keyspace.enter(0);
    // Somebody moves from the first to the second, and somebody else on to the third.
    for (ticket, source, target) in [(1, a, b), (2, b, c)] {
        let edit = batch.edit(&[source, target], NOW, Touch::No);
        edit.wait_beside(ticket, &[target]);
        edit.wait(ticket, &[source], TypeName::String, false);
        edit.finish();
    }
    drop(batch);
    let change = |key: Key<'_>| {
        let mut batch = keyspace.enter(1);
        let mut edit = batch.edit(&[key], NOW, Touch::No);
        edit.set(&key, NewValue::Bytes(b"value"), Expiry::Clear);
        edit.finish();
        assert!(batch.has_ready());
        let held = [a, b, c].map(|key| batch.holds(&[key]));
        batch.release();
        held
    };
    assert_eq!(change(a), [true, true, true]);
    assert_eq!(change(b), [false, true, true]);
    keyspace.stop_waiting(2, &[(DB, b.bytes.into())]);
    assert_eq!(change(a), [true, true, false]);
    keyspace.stop_waiting(1, &[(DB, a.bytes.into())]);
    assert!(!keyspace.waiting().is_reaching());
}

#[test]
fn who_gives_everything_up_waits_for_nothing_afterwards() {
    let keyspace = new_keyspace(4);
    let [a, ..] = keys(&keyspace);
    let (done, told) = channel();
    let mut slow = keyspace.enter(0);
    slow.hold(&[a]);
    keyspace.set_slow_holders(vec![slow.holding()]);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut batch = keyspace.enter_unless(2, || false).expect("nobody is in the way");
            scope.spawn(|| keyspace.enter(3).exclusively(NOW, Touch::No, |_| {}));
            wait_until(|| standing_for(keyspace.gate(2)) == 1);
            // Who waits for all gates gets that of the one that gives up, and keeps it until the slow one ends.
            let has_all = batch.try_hold_all();
            done.send((has_all, batch.is_inside())).unwrap();
        });
        let gave_up = told.recv_timeout(Duration::from_secs(120));
        slow.release();
        drop(slow);
        assert_eq!(gave_up, Ok((false, false)));
    });
}

#[test]
fn who_holds_more_holds_also_what_somebody_reaches_for_since_it_asked() {
    let keyspace = new_keyspace(3);
    let [a, b, c] = keys(&keyspace);
    let other = keyspace.enter(0);
    let edit = other.edit(&[b], NOW, Touch::No);
    thread::scope(|scope| {
        let holds = scope.spawn(|| {
            let mut batch = keyspace.enter(1);
            batch.hold(&[a]);
            let holds_all = batch.try_hold_also(&[b], Duration::from_secs(60));
            (holds_all, [a, b, c].map(|key| batch.holds(&[key])))
        });
        wait_until(|| waiting_for(&keyspace, &b) == 1);
        edit.wait_beside(1, &[c]);
        edit.wait(1, &[b], TypeName::String, false);
        edit.finish();
        assert_eq!(holds.join().unwrap(), (true, [true; 3]));
    });
}

#[test]
#[cfg_attr(debug_assertions, should_panic(expected = "waits for nothing that a slow script may have"))]
fn who_serves_clients_asks_for_nothing_that_it_cannot_give_up() {
    let keyspace = new_keyspace(1);
    let [a, ..] = keys(&keyspace);
    let batch = keyspace.enter_unless(0, || false).expect("nobody is in the way");
    batch.view(&[a], NOW, Touch::No).finish();
}

#[test]
fn who_stays_outside_looks_into_no_slot_to_count_what_tables_take() {
    let keyspace = new_keyspace(2);
    (0..100).for_each(|number| set(&keyspace, number, NOW, Expiry::Keep));
    let inside = keyspace.enter(0).overhead_bytes();
    let outside = keyspace.stay_outside(0).overhead_bytes();
    assert!(outside > 0 && outside < inside, "{outside}, {inside}");
    assert_eq!(keyspace.stay_outside(0).overhead_bytes_of(DB), outside);
    // Somebody has the keyspace alone, and changes slots without their locks.
    let mut alone = keyspace.enter(1);
    alone.hold_all();
    assert_eq!(keyspace.stay_outside(0).overhead_bytes(), outside);
}
