//! Seeded fuzzing of the wire: every stream of bytes, however cut, means the same to the parser as to a naive
//! model that sees all of it at once; and replies come back as the values they were written from.
//!
//! `TARN_SEED` repeats a run, `TARN_STEPS` lengthens it (default: about two seconds). The seed is printed.
//! The model is written for obviousness; `canary` plants faults in it to show that a difference of one byte
//! is noticed.

#[path = "fuzz/model.rs"]
mod model;
#[path = "fuzz/prng.rs"]
mod prng;
#[path = "fuzz/replies.rs"]
mod replies;
#[path = "fuzz/requests.rs"]
mod requests;

use prng::Prng;

/// Runs `step` with a fresh seed per step, so that a failure names the one step to repeat.
fn run(name: &str, steps_default: u64, mut step: impl FnMut(&mut Prng)) {
    let number = |variable: &str| std::env::var(variable).ok().and_then(|text| text.parse::<u64>().ok());
    let steps = number("TARN_STEPS").unwrap_or(steps_default);
    let seed = number("TARN_SEED").unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.expect("the clock is past 1970").as_nanos() as u64
    });
    for index in 0..steps {
        let step_seed = seed.wrapping_add(index);
        let repeat = Repeat { name, step_seed };
        step(&mut Prng::new(step_seed));
        std::mem::forget(repeat);
    }
    println!("{name}: {steps} steps from TARN_SEED={seed}");
}

/// Prints how to repeat a step when the step panics.
struct Repeat<'a> {
    name: &'a str,
    step_seed: u64,
}

impl Drop for Repeat<'_> {
    fn drop(&mut self) {
        eprintln!("{}: repeat with TARN_SEED={} TARN_STEPS=1", self.name, self.step_seed);
    }
}

#[test]
fn requests_are_the_same_however_they_are_cut() {
    run("requests", 600, requests::intact_requests_come_back);
}

#[test]
fn parser_agrees_with_the_model_on_any_bytes() {
    run("bytes", 1500, |prng| {
        let stream = requests::stream(prng);
        let limits = requests::limits(prng);
        if let Err(difference) = requests::compare(prng, &stream, &limits, model::Fault::None) {
            panic!("{difference}");
        }
    });
}

#[test]
fn replies_are_decoded_to_what_was_written() {
    run("replies", 5000, replies::written_values_come_back);
}

#[test]
fn mutated_replies_mean_the_same_however_they_are_cut() {
    run("mutated replies", 20_000, replies::mutated_bytes_are_safe);
}

/// Each planted fault must be noticed within a short run, or the fuzzer is blind.
#[test]
fn canary() {
    for fault in model::FAULTS {
        let noticed = (0..4000).any(|seed| {
            let mut prng = Prng::new(seed);
            let stream = requests::stream(&mut prng);
            let limits = requests::limits(&mut prng);
            requests::compare(&mut prng, &stream, &limits, *fault).is_err()
        });
        assert!(noticed, "{fault:?} went unnoticed");
    }
}
