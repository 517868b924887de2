//! What the disk under a run gives by itself: random reads of 4 KiB, so many at a time, past the page cache.
//!
//! The reads of the capacity edition are such reads, and its report stands beside these. They are made through the same
//! door (`sys::file::reads`) on one thread, over a file of the size of the data that is removed afterwards.

use crate::report::RandomRead;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use sys::Prng;
use sys::file::reads::{Reads, Way};
use sys::file::{AlignedBytes, Fs, Mode};

/// Reads on their way at once; the published connections, and what disks are usually compared by.
const DEPTH: usize = 32;
/// What one read brings: a page of the store.
const READ_BYTES: u64 = 4_096;
/// For how long reads are made: some ten thousand on the slowest disk that is worth it.
const TIME: Duration = Duration::from_secs(2);
/// What is written at once.
const PIECE_BYTES: u64 = 1 << 20;
/// A smaller file says more of a disk's own memory than of the disk.
const FILE_BYTES_MIN: u64 = 64 << 20;
/// A larger one takes long to write and says the same.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// How fast a folder's disk gives random pages of a file, of about so many bytes.
///
/// # Errors
/// No file can be made, written or read there.
pub fn random_reads(folder: &Path, wanted_bytes: u64) -> io::Result<RandomRead> {
    let pieces = wanted_bytes.clamp(FILE_BYTES_MIN, FILE_BYTES_MAX) / PIECE_BYTES;
    let path = written(folder, pieces)?;
    let file = Arc::new(Fs::Real.open(&path, Mode::Direct)?);
    let mut reads = Reads::new(Way::Auto, DEPTH)?;
    let mut prng = Prng::from_seed(1);
    let pages = pieces * PIECE_BYTES / READ_BYTES;
    let mut start = |reads: &mut Reads, token: u64, buffer: AlignedBytes| {
        reads.start(&file, prng.below(pages) * READ_BYTES, buffer, token);
        Instant::now()
    };
    let mut started: Vec<Instant> = (0..DEPTH as u64)
        .map(|token| start(&mut reads, token, AlignedBytes::zeroed(READ_BYTES as usize)))
        .collect();
    let (began, mut took, mut back) = (Instant::now(), Vec::new(), Vec::new());
    while reads.in_flight() > 0 {
        reads.wait(|token, buffer, outcome| back.push((token, buffer, outcome)));
        let now = Instant::now();
        for (token, buffer, outcome) in back.drain(..) {
            outcome?;
            took.push(now.duration_since(started[token as usize]));
            if now.duration_since(began) < TIME {
                started[token as usize] = start(&mut reads, token, buffer);
            }
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    Ok(summary(took, seconds, pieces * PIECE_BYTES, reads.way().to_string()))
}

fn summary(mut took: Vec<Duration>, seconds: f64, file_bytes: u64, way: String) -> RandomRead {
    took.sort_unstable();
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    RandomRead {
        depth: DEPTH as u32,
        file_bytes,
        way,
        per_second: took.len() as f64 / seconds,
        average_us: micros(took.iter().sum()) / took.len() as f64,
        p50_us: micros(took[took.len() / 2]),
        p99_us: micros(took[took.len() * 99 / 100]),
    }
}

/// A file of random bytes that are on the disk. It is removed with the path.
fn written(folder: &Path, pieces: u64) -> io::Result<tempfile::TempPath> {
    let mut file = tempfile::Builder::new().prefix("tarn-whitepaper-").tempfile_in(folder)?;
    let mut prng = Prng::from_seed(2);
    let mut piece = Vec::with_capacity(PIECE_BYTES as usize);
    for _ in 0..pieces {
        piece.clear();
        while (piece.len() as u64) < PIECE_BYTES {
            piece.extend_from_slice(&prng.next_u64().to_le_bytes());
        }
        file.write_all(&piece)?;
    }
    file.as_file().sync_all()?;
    Ok(file.into_temp_path())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn random_reads_take_time_and_leave_no_file() {
        let folder = tempfile::tempdir_in(super::super::disk::place().folder).unwrap();
        let read = random_reads(folder.path(), 0).unwrap();
        assert_eq!(read.file_bytes, FILE_BYTES_MIN);
        assert!(read.per_second > 0.0 && read.p50_us > 0.0, "{read:?}");
        assert!(read.p50_us <= read.p99_us && read.average_us > 0.0, "{read:?}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        assert!(random_reads(Path::new("/proc/none"), 0).is_err());
    }
}
