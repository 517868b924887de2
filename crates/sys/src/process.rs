//! What the operating system knows about this process and the machine, read from
//! `/proc`. Where a file is missing or reads differently the answer is zero: these
//! are figures for INFO, nothing depends on them.

use std::fs;
use std::time::Duration;

/// Processor time spent by this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// In the program itself.
    pub user: Duration,
    /// In the kernel on its behalf.
    pub system: Duration,
}

/// The unit of times in `/proc/self/stat`, which Linux shows to programs as hundredths of
/// a second whatever its own timer does.
const CLOCK_TICK: Duration = Duration::from_millis(10);

/// Bytes of this process that are in memory.
pub fn resident_bytes() -> u64 {
    kilobytes("/proc/self/status", "VmRSS:")
}

/// Bytes of memory that the machine has.
pub fn machine_bytes() -> u64 {
    kilobytes("/proc/meminfo", "MemTotal:")
}

/// Processor time of all threads of this process.
pub fn cpu_time() -> CpuTime {
    cpu_time_of("/proc/self/stat")
}

/// Processor time of the thread that was started first.
pub fn main_thread_cpu_time() -> CpuTime {
    cpu_time_of(&format!("/proc/self/task/{}/stat", std::process::id()))
}

/// The system's number of the calling thread.
pub fn thread_id() -> u32 {
    // `PID/task/TID`
    let link = fs::read_link("/proc/thread-self").unwrap_or_default();
    link.file_name().and_then(|name| name.to_str()?.parse().ok()).unwrap_or(0)
}

/// Processor time of one thread of this process, to some milliseconds.
pub fn thread_cpu_time(thread: u32) -> Duration {
    let text = fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).unwrap_or_default();
    let nanos = text.split_whitespace().next().and_then(|field| field.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}

/// For how long the machine's cores have had nothing to do, all of them together, to some hundredths of a second.
pub fn machine_idle_time() -> Duration {
    /// Behind the line's name: user, nice, system.
    const FIELDS_BEFORE: usize = 4;
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let fields = text.lines().next().unwrap_or("").split_whitespace().skip(FIELDS_BEFORE);
    // With nothing to do, and with nothing to do but to wait for a disk.
    let ticks: u64 = fields.take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks.saturating_mul(CLOCK_TICK.as_millis() as u64))
}

/// The kernel's release, such as `6.1.0-18-amd64`.
pub fn kernel_release() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()
}

/// What tells one start of this machine from all others, and from other machines. Empty: it does not say.
pub fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// Lets other threads go first whenever they have something to do: for work that nobody
/// waits for. Concerns the thread that calls it.
#[allow(unsafe_code)] // One system call without pointers.
pub fn yield_to_other_threads() {
    const LEAST_URGENT: i32 = 19;
    // SAFETY: takes three numbers; 0 stands for the calling thread. If it is refused,
    // the thread only competes as others do.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, LEAST_URGENT) };
}

fn kilobytes(file: &str, name: &str) -> u64 {
    let text = fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    number.unwrap_or(0) * 1024
}

/// Fields 14 and 15; the second field is a name that may hold blanks, in brackets.
fn cpu_time_of(file: &str) -> CpuTime {
    let text = fs::read_to_string(file).unwrap_or_default();
    let behind_name = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let mut fields = behind_name.split_whitespace().skip(11);
    let mut next = || fields.next().and_then(|field| field.parse::<u32>().ok()).unwrap_or(0) * CLOCK_TICK;
    CpuTime { user: next(), system: next() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_running_process_takes_memory_of_a_machine() {
        assert!(resident_bytes() > 0 && resident_bytes() < machine_bytes());
        assert!(!kernel_release().is_empty());
        assert_eq!(kilobytes("/proc/self/status", "NoSuchLine:"), 0);
    }

    #[test]
    fn a_thread_that_works_takes_time_and_one_that_waits_does_not() {
        let own = thread_id();
        let waits = std::thread::spawn(|| {
            let other = thread_id();
            std::thread::park();
            other
        });
        let mut sum = 0u64;
        while thread_cpu_time(own) < 3 * CLOCK_TICK {
            (0..1_000_000u64).for_each(|n| sum = std::hint::black_box(sum.wrapping_add(n)));
        }
        waits.thread().unpark();
        let other = waits.join().unwrap();
        assert!(own != other && thread_cpu_time(other) == Duration::ZERO, "it is over");
        let idle = machine_idle_time();
        while machine_idle_time() == idle {
            std::thread::sleep(CLOCK_TICK);
        }
    }

    #[test]
    fn work_shows_up_as_processor_time() {
        let mut sum = 0u64;
        while cpu_time().user < 3 * CLOCK_TICK {
            (0..1_000_000u64).for_each(|n| sum = std::hint::black_box(sum.wrapping_add(n)));
        }
        assert!(cpu_time().user >= main_thread_cpu_time().user);
    }
}
