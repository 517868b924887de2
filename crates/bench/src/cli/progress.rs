//! What is shown while a load runs, on standard error: one line that is rewritten on a terminal, else a line now and
//! then. Also hears Ctrl-C: the first ends the load with its results, the second ends the program.

use crate::Failure;
use crate::plan::{Observer, Plan, Progress};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often a line is written where lines cannot be rewritten.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// The exit code of a program that Ctrl-C has ended.
const INTERRUPTED: i32 = 130;

/// The observer of `tarn bench`.
pub struct Console {
    is_terminal: bool,
    name: String,
    last_line: Instant,
    interrupted: Arc<AtomicBool>,
}

impl Console {
    /// Begins to hear signals.
    ///
    /// # Errors
    /// The system refuses that.
    pub fn new() -> Result<Console, Failure> {
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            flag::register_conditional_shutdown(signal, INTERRUPTED, interrupted.clone())
                .and_then(|_| flag::register(signal, interrupted.clone()))
                .map_err(|error| Failure(format!("cannot hear signals: {error}")))?;
        }
        let is_terminal = io::stderr().is_terminal();
        Ok(Console { is_terminal, name: String::new(), last_line: Instant::now(), interrupted })
    }

    /// A load begins.
    pub fn begin(&mut self, plan: &Plan) {
        self.name = format!("{}: {}", plan.server, plan.work.name());
        self.last_line = Instant::now();
    }

    /// A load has ended: clears the line.
    pub fn end(&mut self) {
        if self.is_terminal {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

impl Observer for Console {
    fn progress(&mut self, progress: &Progress) {
        let line = line(&self.name, progress);
        // Who closed standard error does not want to see this.
        if self.is_terminal {
            let _ = write!(io::stderr(), "\r\x1b[K{line}");
        } else if self.last_line.elapsed() >= LINE_EVERY {
            self.last_line = Instant::now();
            let _ = writeln!(io::stderr(), "{line}");
        }
    }

    fn wants_to_stop(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}

fn line(name: &str, progress: &Progress) -> String {
    let mut line = name.to_owned();
    match progress.measured {
        None => line.push_str("  warming up"),
        Some(measured) => line.push_str(&format!("  {:.0} s", measured.as_secs_f64())),
    }
    line.push_str(&format!("  {:.0} operations/s  {} in all", progress.rate, progress.operations));
    if progress.errors > 0 {
        line.push_str(&format!("  {} errors", progress.errors));
    }
    if let Some(left) = progress.left {
        line.push_str(&format!("  {} left", time(left)));
    }
    line
}

fn time(span: Duration) -> String {
    match span.as_secs_f64().round() as u64 {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds @ 60..3600 => format!("{}:{:02} min", seconds / 60, seconds % 60),
        seconds => format!("{}:{:02} h", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_tells_rate_and_time_left() {
        let progress = Progress {
            measured: Some(Duration::from_secs(3)),
            operations: 250_000,
            errors: 2,
            rate: 81_234.4,
            left: Some(Duration::from_secs(75)),
        };
        assert_eq!(
            line("x: set", &progress),
            "x: set  3 s  81234 operations/s  250000 in all  2 errors  1:15 min left"
        );
    }
}
