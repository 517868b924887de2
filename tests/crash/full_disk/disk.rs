//! A small disk: a file with a file system in it, mounted; or, where there are no loop devices, memory that is.
//!
//! Both need rights that not everybody has. Unmounted and gone when dropped, with all that is on it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

static NEXT: AtomicU64 = AtomicU64::new(0);

/// A mounted file system of its own.
pub struct Disk {
    /// Holds the image and the place where it is mounted.
    dir: PathBuf,
}

impl Disk {
    /// Mounts an empty file system of so many bytes.
    ///
    /// # Errors
    /// Why that is not possible here.
    pub fn mount(bytes: u64) -> Result<Disk, String> {
        let dir = format!("tarn-disk-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let dir = std::env::temp_dir().join(dir);
        let disk = Disk { dir };
        std::fs::create_dir_all(disk.path()).map_err(|error| error.to_string())?;
        disk.mount_image(bytes)
            .or_else(|error| disk.mount_memory(bytes).map_err(|other| format!("{error}; {other}")))?;
        Ok(disk)
    }

    /// The root of its files.
    pub fn path(&self) -> PathBuf {
        self.dir.join("mounted")
    }

    /// As a disk: with O_DIRECT, and space that is given out in blocks.
    fn mount_image(&self, bytes: u64) -> Result<(), String> {
        let image = self.dir.join("image");
        let made = std::fs::File::create(&image).and_then(|file| file.set_len(bytes));
        made.map_err(|error| error.to_string())?;
        run(Command::new("mkfs.ext4").args(["-q", "-F", "-m", "0"]).arg(&image))?;
        run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(self.path()))
    }

    fn mount_memory(&self, bytes: u64) -> Result<(), String> {
        let size = format!("size={bytes}");
        run(Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(self.path()))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // A server that is still being killed keeps it busy for a moment: lazily.
        let _ = run(Command::new("umount").arg("--lazy").arg(self.path()));
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Runs a program to its end.
fn run(command: &mut Command) -> Result<(), String> {
    let name = Path::new(command.get_program()).display().to_string();
    let output = command.output().map_err(|error| format!("{name}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}
