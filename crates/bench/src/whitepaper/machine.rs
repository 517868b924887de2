//! The machine under a run, as Linux tells it in `/proc` and `/sys`.
//!
//! What cannot be found out is said to be unknown; nothing here fails.

use super::disk::Place;
use crate::report::Machine;
use std::fs;

/// The machine, with the disk on which servers keep their files.
pub fn here(place: &Place) -> Machine {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let release = read("/proc/sys/kernel/osrelease");
    Machine {
        processor: processor(&read("/proc/cpuinfo")),
        cores: std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32),
        memory_bytes: memory(&read("/proc/meminfo"), &read("/sys/fs/cgroup/memory.max")),
        kernel: format!("Linux {} {}", release.trim(), std::env::consts::ARCH),
        system: system(&read("/etc/os-release")),
        disk: place.text.clone(),
        synced_write: None,
        random_read: None,
        load: read("/proc/loadavg").split(' ').next().and_then(|load| load.parse().ok()),
    }
}

fn processor(cpuinfo: &str) -> String {
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    model.map_or_else(|| format!("unknown ({})", std::env::consts::ARCH), |(_, name)| name.trim().to_owned())
}

/// Memory that this process may have: the machine's, or its control group's if that is less.
fn memory(meminfo: &str, group: &str) -> u64 {
    let total = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse::<u64>().ok())
        .map_or(0, |kilobytes| kilobytes * 1024);
    match group.trim().parse::<u64>() {
        Ok(limit) if limit < total || total == 0 => limit,
        _ => total,
    }
}

fn system(release: &str) -> String {
    let name = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.map_or_else(|| "unknown".to_owned(), |name| name.trim_matches('"').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_read_from_its_files() {
        assert_eq!(processor("processor\t: 0\nmodel name\t: Some CPU @ 2.50GHz\n"), "Some CPU @ 2.50GHz");
        assert!(processor("").starts_with("unknown"));
        assert_eq!(memory("MemTotal:        4096 kB\n", "max\n"), 4096 * 1024);
        assert_eq!(memory("MemTotal:        4096 kB\n", "1048576\n"), 1_048_576);
        assert_eq!(system("ID=x\nPRETTY_NAME=\"Some Linux 12\"\n"), "Some Linux 12");
    }

    #[test]
    fn this_machine_has_cores_and_memory() {
        let machine = here(&super::super::disk::place());
        assert!(machine.cores > 0 && machine.memory_bytes > 0 && machine.kernel.starts_with("Linux "));
    }
}
