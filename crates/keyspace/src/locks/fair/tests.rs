//! The lock against a model: one holder at a time, first come first served, nobody forgotten.

use super::*;
use crate::locks::lock_all;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc;
use sys::Prng;

fn locks(number: usize) -> Vec<Lock<()>> {
    (0..number).map(|_| Lock::default()).collect()
}

/// Waits until something is so, for no longer than anything takes.
#[track_caller]
pub(crate) fn wait_until(is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(120), "waited too long");
        thread::yield_now();
    }
}

fn ask<'l>(
    locks: &[&'l Lock<()>],
    pulse: Duration,
    goes_on: impl FnMut() -> bool,
) -> (Vec<Guard<'l, ()>>, Asked) {
    let (guards, asked) = lock_all(locks, pulse, goes_on);
    assert_eq!(guards.is_none(), asked == Asked::GivenUp);
    (guards.map(|guards| guards.into_iter().collect()).unwrap_or_default(), asked)
}

fn lock<'l>(locks: &[&'l Lock<()>]) -> (Vec<Guard<'l, ()>>, Asked) {
    ask(locks, Duration::from_millis(5), || true)
}

/// Whether nobody has the lock or stands in line.
fn is_left(lock: &Lock<()>) -> bool {
    standing_for(lock) == 0 && lock.try_lock().is_some()
}

fn wait_until_nobody_may_pass() {
    let since = Instant::now();
    wait_until(|| since.elapsed() > BARGING_MAX);
}

fn seed() -> u64 {
    let given = std::env::var("TARN_SEED").ok().and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(sys::prng::entropy_seed);
    println!("TARN_SEED={seed}");
    seed
}

fn steps(usual: u64) -> u64 {
    std::env::var("TARN_STEPS").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

#[test]
fn those_who_wait_are_served_in_the_order_in_which_they_came() {
    let all = locks(3);
    let (said, order) = mpsc::channel();
    let (held, asked) = lock(&[&all[0], &all[1], &all[2]]);
    assert_eq!(asked, Asked::AtOnce);
    thread::scope(|scope| {
        // What each of them wants: of any two that meet, the first must be served first.
        let wanted: [&[usize]; 6] = [&[0], &[0, 1], &[1], &[2, 0], &[2], &[0, 1, 2]];
        for (number, wanted) in wanted.into_iter().enumerate() {
            let (said, all) = (said.clone(), &all);
            let before: usize = all.iter().map(standing_for).sum();
            scope.spawn(move || {
                let mine: Vec<&Lock<()>> = wanted.iter().map(|at| &all[*at]).collect();
                let (guards, asked) = lock(&mine);
                assert_eq!(asked, Asked::InTurn);
                said.send(number).unwrap();
                drop(guards);
            });
            wait_until(|| all.iter().map(standing_for).sum::<usize>() == before + wanted.len());
        }
        wait_until_nobody_may_pass();
        drop(held);
    });
    let order: Vec<usize> = order.try_iter().collect();
    let at = |number: usize| order.iter().position(|other| *other == number).unwrap();
    for (first, second) in [(0, 1), (1, 2), (1, 3), (3, 4), (0, 3), (4, 5), (2, 5)] {
        assert!(at(first) < at(second), "{first} before {second} in {order:?}");
    }
    assert!(all.iter().all(is_left));
}

#[test]
fn nobody_passes_one_who_has_waited_for_a_while() {
    let one = Lock::default();
    let served = AtomicBool::new(false);
    let (held, _) = lock(&[&one]);
    thread::scope(|scope| {
        scope.spawn(|| {
            let (held, _) = lock(&[&one]);
            served.store(true, Ordering::SeqCst);
            drop(held);
        });
        wait_until(|| standing_for(&one) == 1);
        wait_until_nobody_may_pass();
        // Whoever lets go and comes again at once stands behind.
        drop(held);
        let (held, _) = lock(&[&one]);
        assert!(served.load(Ordering::SeqCst));
        drop(held);
    });
}

#[test]
fn who_gives_up_has_nothing_and_is_in_nobodys_way() {
    let all = locks(2);
    let (held, _) = lock(&[&all[1]]);
    let gives_up = AtomicBool::new(false);
    thread::scope(|scope| {
        let (all, gives_up) = (&all, &gives_up);
        let first = scope.spawn(move || {
            ask(&[&all[0], &all[1]], Duration::from_millis(1), || !gives_up.load(Ordering::SeqCst)).1
        });
        wait_until(|| standing_for(&all[1]) == 1);
        assert!(all[0].is_locked(), "what it got it keeps while it waits");
        let second = scope.spawn(move || lock(&[&all[0]]).1);
        let third = scope.spawn(move || lock(&[&all[1]]).1);
        wait_until(|| standing_for(&all[0]) == 1 && standing_for(&all[1]) == 2);
        gives_up.store(true, Ordering::SeqCst);
        assert_eq!(first.join().unwrap(), Asked::GivenUp);
        assert_eq!(second.join().unwrap(), Asked::InTurn);
        drop(held);
        assert_eq!(third.join().unwrap(), Asked::InTurn);
    });
    assert!(all.iter().all(is_left));
}

/// What is done under a lock, which would be lost if two threads did it at once.
#[derive(Default)]
struct Guarded {
    owner: AtomicU64,
    count: AtomicU64,
}

impl Guarded {
    fn use_as(&self, owner: u64, prng: &mut Prng) {
        assert_eq!(self.owner.swap(owner, Ordering::Relaxed), 0, "two have the lock");
        let count = self.count.load(Ordering::Relaxed);
        if prng.one_in(16) {
            thread::yield_now();
        }
        self.count.store(count + 1, Ordering::Relaxed);
        assert_eq!(self.owner.swap(0, Ordering::Relaxed), owner, "two have the lock");
    }
}

#[test]
fn threads_that_ask_give_up_and_wait_never_meet_and_all_come_to_their_end() {
    const THREADS: u64 = 4;
    let (all, seed) = (locks(5), seed());
    let guarded: Vec<Guarded> = all.iter().map(|_| Guarded::default()).collect();
    let done: Vec<AtomicU64> = all.iter().map(|_| AtomicU64::new(0)).collect();
    let (all, guarded, done) = (&all, &guarded, &done);
    thread::scope(|scope| {
        for number in 1..=THREADS {
            scope.spawn(move || {
                let mut prng = Prng::from_seed(seed ^ number << 32);
                for _ in 0..steps(4000) {
                    let first = prng.below(all.len() as u64) as usize;
                    let count = 1 + prng.below(3) as usize;
                    // In any order: it is not what keeps them from waiting in a circle.
                    let mine: Vec<usize> = (0..count).map(|at| (first + 2 * at) % all.len()).collect();
                    let wanted: Vec<&Lock<()>> = mine.iter().map(|at| &all[*at]).collect();
                    let (guards, asked) = match prng.below(4) {
                        0 => ask(&wanted, Duration::ZERO, || false),
                        1 => {
                            let mut pulses = prng.below(3);
                            let goes_on = || {
                                pulses = pulses.saturating_sub(1);
                                pulses > 0
                            };
                            ask(&wanted, Duration::from_micros(20), goes_on)
                        }
                        _ => lock(&wanted),
                    };
                    if asked != Asked::GivenUp {
                        for at in &mine {
                            guarded[*at].use_as(number, &mut prng);
                            done[*at].fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    drop(guards);
                }
            });
        }
    });
    for ((lock, guarded), done) in all.iter().zip(guarded).zip(done) {
        assert!(is_left(lock));
        assert_eq!(guarded.count.load(Ordering::Relaxed), done.load(Ordering::Relaxed));
    }
}
