//! What random reads of 4 KB past the page cache cost, one thread asking: reads a second, and microseconds of processor
//! time that the process spends for each (user and system).
//!
//! The thread waits as a server's does, in epoll on the descriptor, and asks for as many as came back. Ways and depths
//! take turns, and each counts with the median of its rounds.
//!
//! `cargo bench -p sys --bench reads [folder [megabytes]]`

use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::time::{ClockId, clock_gettime};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use sys::Prng;
use sys::file::reads::{Reads, Way};
use sys::file::{AlignedBytes, DIRECT_ALIGN, File, Fs, Mode};

const ROUNDS: usize = 7;
const ROUND_TIME: Duration = Duration::from_millis(700);

/// What a round measured.
#[derive(Clone, Copy)]
struct Measured {
    reads_per_second: f64,
    cpu_us: f64,
    reads_per_wake: f64,
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let folder = args.first().map_or_else(std::env::temp_dir, PathBuf::from);
    let megabytes = args.get(1).and_then(|arg| arg.parse().ok()).unwrap_or(1024);
    let path = folder.join(format!("tarn-reads-{}", std::process::id()));
    let file = Arc::new(filled(&path, megabytes));
    std::fs::remove_file(&path).expect("the file was just made");
    let cases: Vec<(Way, usize)> =
        [1, 8, 32].into_iter().flat_map(|depth| [(Way::Ring, depth), (Way::Threads, depth)]).collect();
    let mut rounds = vec![Vec::new(); cases.len()];
    for round in 0..ROUNDS {
        for ((way, depth), measured) in cases.iter().zip(&mut rounds) {
            measured.push(measure(*way, *depth, &file, megabytes, round as u64));
        }
    }
    println!("{:<8} {:>5} {:>10} {:>12} {:>12}", "way", "depth", "reads/s", "cpu us/read", "reads/wake");
    for ((way, depth), measured) in cases.iter().zip(&rounds) {
        let median = |of: fn(&Measured) -> f64| {
            let mut values: Vec<f64> = measured.iter().map(of).collect();
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        let (rate, cpu) = (median(|one| one.reads_per_second), median(|one| one.cpu_us));
        let wake = median(|one| one.reads_per_wake);
        println!("{:<8} {depth:>5} {rate:>10.0} {cpu:>12.2} {wake:>12.1}", format!("{way:?}"));
    }
}

/// A file of random bytes, opened for direct access.
fn filled(path: &Path, megabytes: u64) -> File {
    drop(Fs::Real.open(path, Mode::CreateNew).expect("the folder can be written to"));
    let file = Fs::Real.open(path, Mode::Direct).expect("the file was just made");
    let mut prng = Prng::from_seed(1);
    let mut bytes = AlignedBytes::zeroed(1 << 20);
    bytes
        .as_mut_slice()
        .chunks_exact_mut(8)
        .for_each(|word| word.copy_from_slice(&prng.next_u64().to_le_bytes()));
    for at in 0..megabytes {
        file.write_at(bytes.as_slice(), at << 20).expect("there is room for the file");
    }
    file.sync_data().expect("the disk takes the file");
    file
}

fn measure(way: Way, depth: usize, file: &Arc<File>, megabytes: u64, seed: u64) -> Measured {
    let mut reads = Reads::new(way, depth).expect("this way is open here");
    let watch = epoll::create(epoll::CreateFlags::CLOEXEC).expect("epoll");
    let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
    epoll::add(&watch, &reads, epoll::EventData::new_u64(0), flags).expect("epoll");
    let mut events = Vec::with_capacity(8);
    let pages = (megabytes << 20) / DIRECT_ALIGN as u64;
    let mut prng = Prng::from_seed(seed);
    let buffers = reads.buffers().clone();
    let (begin, cpu_begin) = (Instant::now(), cpu_time());
    let (mut done, mut wakes, mut missing) = (0, 0, depth);
    while begin.elapsed() < ROUND_TIME {
        for _ in 0..missing {
            let buffer = reads.buffer(1);
            reads.start(file, prng.below(pages) * DIRECT_ALIGN as u64, buffer, 0);
        }
        reads.submit();
        events.clear();
        // Should it be interrupted, the loop only goes round once more.
        epoll::wait(&watch, spare_capacity(&mut events), None).unwrap_or_default();
        missing = reads.finished(|_, buffer, outcome| {
            outcome.expect("a page of the file can be read");
            buffers.give_back(buffer);
        });
        done += missing;
        wakes += 1;
    }
    let cpu = cpu_time() - cpu_begin;
    Measured {
        reads_per_second: done as f64 / begin.elapsed().as_secs_f64(),
        cpu_us: cpu.as_secs_f64() * 1e6 / done as f64,
        reads_per_wake: done as f64 / f64::from(wakes),
    }
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
