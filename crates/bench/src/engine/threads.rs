//! Processor time of threads, from the scheduler's own accounts in `/proc`, in nanoseconds.
//!
//! Besides the time for which a thread ran they tell for how long it was ready and had to wait for a processor: only
//! both together show whether a thread had anything left to give on a machine that is shared.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

/// What a thread took and wanted to take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadTime {
    /// Running.
    pub ran: Duration,
    /// Ready to run, while something else ran.
    pub waited: Duration,
}

impl ThreadTime {
    /// The calling thread's until now; zero where the system does not tell.
    pub fn now() -> ThreadTime {
        read("/proc/thread-self/schedstat").unwrap_or_default()
    }

    /// What was added since an earlier reading.
    pub fn since(&self, earlier: &ThreadTime) -> ThreadTime {
        ThreadTime {
            ran: self.ran.saturating_sub(earlier.ran),
            waited: self.waited.saturating_sub(earlier.waited),
        }
    }

    /// The share of a span for which the thread had something to do.
    pub fn load(&self, span: Duration) -> f64 {
        (self.ran + self.waited).as_secs_f64() / span.as_secs_f64().max(1e-9)
    }
}

/// All threads of a process by their number; none where the system does not tell.
pub fn of_process(process: u32) -> Option<HashMap<u32, ThreadTime>> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).ok()?;
    let numbers = tasks.flatten().filter_map(|task| task.file_name().to_str()?.parse::<u32>().ok());
    let times: HashMap<u32, ThreadTime> = numbers
        .filter_map(|number| Some((number, read(&format!("/proc/{process}/task/{number}/schedstat"))?)))
        .collect();
    (!times.is_empty()).then_some(times)
}

fn read(file: &str) -> Option<ThreadTime> {
    let text = fs::read_to_string(file).ok()?;
    let mut nanos = text.split_whitespace().map(|field| field.parse().map(Duration::from_nanos));
    Some(ThreadTime { ran: nanos.next()?.ok()?, waited: nanos.next()?.ok()? })
}
