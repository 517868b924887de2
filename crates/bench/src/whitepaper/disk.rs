//! The disk under a run: where the servers that it starts keep their files, what is there, and how long a sync takes.
//!
//! The folder is the system's for temporary files (`TMPDIR`) unless that is in memory: then one that outlives a restart, or
//! the one that the run was started in. What cannot be found out is said to be unknown.

use crate::report::SyncedWrite;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// File systems that keep nothing on any disk.
const IN_MEMORY: [&str; 3] = ["tmpfs", "ramfs", "devtmpfs"];
/// What one measured write appends.
const BLOCK: [u8; 4_096] = [b'x'; 4_096];
/// For how long writes are measured: the slow ones among them are rare.
const WRITES_TIME: Duration = Duration::from_secs(1);

/// The folder of the servers' files.
pub struct Place {
    /// Where it is.
    pub folder: PathBuf,
    /// Its file system and device, in words.
    pub text: String,
    /// Whether it is no disk at all.
    pub is_in_memory: bool,
}

/// The folder for this run.
pub fn place() -> Place {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let here = std::env::current_dir().ok();
    let folders = [Some(std::env::temp_dir()), Some(PathBuf::from("/var/tmp")), here];
    let mut places = folders.into_iter().flatten().map(|folder| of(folder, &mounts));
    let first = places.next().expect("the system's folder for temporary files is the first");
    if !first.is_in_memory {
        return first;
    }
    let is_usable = |place: &Place| !place.is_in_memory && tempfile::tempfile_in(&place.folder).is_ok();
    places.find(is_usable).unwrap_or(first)
}

/// A folder with the file system under it.
fn of(folder: PathBuf, mounts: &str) -> Place {
    let real = folder.canonicalize().unwrap_or_else(|_| folder.clone());
    let mount = mount(&real, mounts);
    let text = match mount {
        None => format!("unknown, under {}", folder.display()),
        Some((device, kind)) => {
            let name = device.rsplit('/').next().unwrap_or(device);
            let model = fs::read_to_string(format!("/sys/block/{name}/device/model")).unwrap_or_default();
            let model = match model.trim() {
                "" => String::new(),
                model => format!(" ({model})"),
            };
            format!("{kind} on {device}{model}, under {}", folder.display())
        }
    };
    let is_in_memory = mount.is_some_and(|(_, kind)| IN_MEMORY.contains(&kind));
    Place { folder, text, is_in_memory }
}

/// Device and kind of the file system that holds a folder; of several mounted over each other, the last.
fn mount<'a>(folder: &Path, mounts: &'a str) -> Option<(&'a str, &'a str)> {
    mounts
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(' ');
            Some((fields.next()?, fields.next()?, fields.next()?))
        })
        .filter(|(_, at, _)| folder.starts_with(at))
        .max_by_key(|(_, at, _)| at.len())
        .map(|(device, _, kind)| (device, kind))
}

/// How long it takes to append 4 KiB to a file in a folder and to sync it.
///
/// # Errors
/// No file can be made, written or synced there.
pub fn synced_write(folder: &Path) -> io::Result<SyncedWrite> {
    let mut file = tempfile::tempfile_in(folder)?;
    // The first one makes the file durable too, which is another matter.
    append(&mut file)?;
    let began = Instant::now();
    let mut times = vec![append(&mut file)?];
    while began.elapsed() < WRITES_TIME {
        times.push(append(&mut file)?);
    }
    times.sort_unstable();
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    let average_us = micros(times.iter().sum()) / times.len() as f64;
    Ok(SyncedWrite { p50_us: micros(times[times.len() / 2]), average_us })
}

fn append(file: &mut File) -> io::Result<Duration> {
    let began = Instant::now();
    file.write_all(&BLOCK)?;
    file.sync_data()?;
    Ok(began.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_in_memory_is_told_from_one_on_a_disk() {
        let mounts = "/dev/a / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n";
        assert_eq!(mount(Path::new("/tmp/x"), mounts), Some(("tmpfs", "tmpfs")));
        assert_eq!(mount(Path::new("/tmpx"), mounts), Some(("/dev/a", "ext4")));
        assert!(of(PathBuf::from("/proc"), "tmpfs / tmpfs rw 0 0\n").is_in_memory);
        let disk = of(PathBuf::from("/"), mounts);
        assert_eq!((disk.text.as_str(), disk.is_in_memory), ("ext4 on /dev/a, under /", false));
        assert_eq!(of(PathBuf::from("/"), "").text, "unknown, under /");
    }

    #[test]
    fn a_later_mount_hides_an_earlier_one() {
        let mounts = "/dev/a /d ext4 rw 0 0\ntmpfs /d tmpfs rw 0 0\n";
        assert_eq!(mount(Path::new("/d"), mounts), Some(("tmpfs", "tmpfs")));
    }

    #[test]
    fn a_synced_write_takes_time() {
        let took = synced_write(&place().folder).unwrap();
        assert!(took.p50_us > 0.0 && took.average_us > 0.0);
        assert!(synced_write(Path::new("/proc/none")).is_err());
    }
}
