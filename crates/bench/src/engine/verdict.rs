//! What kept a rate from being higher: the server, the generator, or the machine that both share.

use super::tally::Outcome;
use crate::results::{Limit, LimitedBy, ServerUsage};
use std::time::Duration;
use sys::{TickClock, Ticks};

/// From this share of its time on, a thread counts as busy all the time.
const BUSY: f64 = 0.9;
/// From this share of its time spent waiting for a processor on, a thread lacked processors.
const CROWDED: f64 = 0.1;
/// From this many processors that server and generator lacked on, the machine was the limit.
const SHORT: f64 = 0.2;
/// From this share of the rate that was asked for on, it was reached.
const REACHED: f64 = 0.99;

/// The generator's threads during the measurement.
#[derive(Clone, Copy, Debug, Default)]
pub struct Threads {
    /// Mean share of the time for which they had something to do.
    load: f64,
    /// Mean share for which they had it and waited for a processor.
    waited: f64,
}

impl Threads {
    /// From how the threads ended.
    pub fn of(outcomes: &[Outcome], clock: &TickClock) -> Threads {
        let mut all = Threads::default();
        for outcome in outcomes {
            let span = Duration::from_nanos(clock.nanos_between(Ticks(0), outcome.elapsed));
            let parts = outcomes.len() as f64;
            all.load += outcome.time.load(span) / parts;
            all.waited += outcome.time.waited.as_secs_f64() / span.as_secs_f64().max(1e-9) / parts;
        }
        all
    }
}

/// Judges a run that reached `rate` operations per second.
pub fn limit(asked: Option<f64>, rate: f64, threads: &Threads, server: Option<&ServerUsage>) -> Limit {
    let verdict = |by, sentence: &str| Limit { by, sentence: sentence.to_owned() };
    if asked.is_some_and(|asked| rate >= asked * REACHED) {
        return verdict(LimitedBy::Rate, "The rate that was asked for was reached.");
    }
    let server_load = server.and_then(|server| server.busiest_thread);
    let server_cores = server.map(|server| server.cores_used);
    let is_server_busy = server_load.map(|load| load >= BUSY).or(server_cores.map(|cores| cores >= BUSY));
    let is_generator_busy = threads.load >= BUSY;
    match (is_generator_busy, is_server_busy) {
        (true, Some(true)) if threads.waited >= CROWDED => verdict(
            LimitedBy::Machine,
            "The server and the generator were both busy all the time and shared this machine's processors: \
             with a generator elsewhere the server would do more.",
        ),
        (_, Some(true)) => verdict(LimitedBy::Server, "The server was busy all the time."),
        (true, Some(false)) if threads.waited >= CROWDED => verdict(
            LimitedBy::Machine,
            "The generator was kept waiting for a processor: the machine was too busy to show what the server can do.",
        ),
        (true, Some(false)) => verdict(
            LimitedBy::Generator,
            "The generator was the limit, not the server: its threads were busy all the time. Use more --threads.",
        ),
        (true, None) => verdict(
            LimitedBy::Generator,
            "The generator's threads were busy all the time, and the server cannot be looked into: \
             more --threads may show more.",
        ),
        (false, _)
            if threads.waited + server.and_then(|server| server.cores_lacked).unwrap_or(0.0) >= SHORT =>
        {
            verdict(
                LimitedBy::Machine,
                "Processors were short: the server and the generator waited for them, for each other's sake or for \
                 other programs'. This shows the machine more than the server.",
            )
        }
        (false, _) if asked.is_some() => {
            verdict(LimitedBy::Server, "The server did not keep up with the rate.")
        }
        (false, _) => verdict(
            LimitedBy::Unknown,
            "Neither the server nor the generator was busy all the time: replies were waited for. \
             More connections or a deeper --pipeline may show more.",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::UsageSource;

    fn server(busiest: f64) -> ServerUsage {
        lacking(busiest, 0.0)
    }

    fn lacking(busiest: f64, cores_lacked: f64) -> ServerUsage {
        ServerUsage {
            source: UsageSource::Proc,
            cpu_us_per_operation: 1.0,
            cores_used: busiest,
            busiest_thread: Some(busiest),
            cores_lacked: Some(cores_lacked),
            rss_bytes: 1,
            rss_bytes_max: 1,
        }
    }

    fn judged(asked: Option<f64>, load: f64, waited: f64, usage: Option<f64>) -> LimitedBy {
        let usage = usage.map(server);
        limit(asked, 1000.0, &Threads { load, waited }, usage.as_ref()).by
    }

    #[test]
    fn who_was_busy_was_the_limit() {
        assert_eq!(judged(Some(1001.0), 1.0, 0.0, Some(1.0)), LimitedBy::Rate);
        assert_eq!(judged(Some(2000.0), 0.5, 0.0, Some(0.5)), LimitedBy::Server);
        assert_eq!(judged(None, 0.6, 0.0, Some(0.98)), LimitedBy::Server);
        assert_eq!(judged(None, 0.98, 0.0, Some(0.98)), LimitedBy::Server);
        assert_eq!(judged(None, 0.98, 0.3, Some(0.98)), LimitedBy::Machine);
        assert_eq!(judged(None, 0.98, 0.0, Some(0.4)), LimitedBy::Generator);
        assert_eq!(judged(None, 0.98, 0.0, None), LimitedBy::Generator);
        assert_eq!(judged(None, 0.3, 0.0, Some(0.3)), LimitedBy::Unknown);
        let crowded = limit(None, 1000.0, &Threads { load: 0.5, waited: 0.1 }, Some(&lacking(0.5, 0.3)));
        assert_eq!(crowded.by, LimitedBy::Machine);
    }
}
