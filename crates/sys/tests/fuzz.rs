//! Seeded fuzzing of asynchronous reads, each way: reads of random places and sizes are started, handed over, taken and
//! dropped at random moments, and every page that comes back is compared with what was written.
//!
//! Buffers that nobody uses are full of a pattern, and whoever gets one looks whether it still is: a read that went on
//! after its buffer had come back would show. `TARN_SEED` picks the run (printed), `TARN_STEPS` its length. The canary
//! reads a file that differs in one bit.

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;
use std::collections::HashMap;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use sys::Prng;
use sys::file::reads::{Reads, Way};
use sys::file::simulated::Disk;
use sys::file::{AlignedBytes, DIRECT_ALIGN, File, Fs, Mode};

const PAGE: usize = DIRECT_ALIGN;
const PAGES: usize = 1000;
const PATTERN: u8 = 0xa5;
/// Longer than any read takes: who waits so long has missed a wake-up.
const PATIENCE: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };

fn number_from(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// The ways that are open here.
fn ways() -> Vec<Way> {
    match Reads::new(Way::Ring, 1) {
        Ok(_) => vec![Way::Ring, Way::Threads],
        Err(error) => {
            println!("no io_uring here: {error}");
            vec![Way::Threads]
        }
    }
}

/// A file, and what is in it.
struct Written {
    file: Arc<File>,
    content: Vec<u8>,
}

impl Written {
    fn new(fs: &Fs, path: &Path, mode: Mode, prng: &mut Prng) -> Written {
        let content: Vec<u8> = (0..PAGES * PAGE / 8).flat_map(|_| prng.next_u64().to_le_bytes()).collect();
        fs.write(path, &content).expect("the folder can be written to");
        Written { file: Arc::new(fs.open(path, mode).expect("it was just written")), content }
    }
}

/// How whoever wants the reads waits for the descriptor.
enum Waiting {
    Level,
    Edge(OwnedFd),
    Blocking,
}

impl Waiting {
    fn any(reads: &Reads, prng: &mut Prng) -> Waiting {
        match prng.below(3) {
            0 => Waiting::Level,
            1 => Waiting::Blocking,
            _ => {
                let watch = epoll::create(epoll::CreateFlags::CLOEXEC).expect("a descriptor");
                let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
                epoll::add(&watch, reads, epoll::EventData::new_u64(0), flags).expect("it can be watched");
                Waiting::Edge(watch)
            }
        }
    }
}

/// A thread's reads with all that they are to be compared with.
struct Work<'a> {
    reads: Reads,
    waiting: Waiting,
    files: &'a [Written],
    prng: Prng,
    /// What was asked for: file, first page and pages, by token.
    asked: HashMap<u64, (usize, usize, usize)>,
    last_token: u64,
    idle: Vec<AlignedBytes>,
}

impl<'a> Work<'a> {
    fn new(way: Way, files: &'a [Written], mut prng: Prng) -> Work<'a> {
        let depth = 1 + prng.below(40) as usize;
        let reads = Reads::new(way, depth).expect("this way is open here");
        let waiting = Waiting::any(&reads, &mut prng);
        Work { reads, waiting, files, prng, asked: HashMap::new(), last_token: 0, idle: Vec::new() }
    }

    fn step(&mut self) {
        match self.prng.below(8) {
            0..4 => (0..self.prng.below(8)).for_each(|_| self.start()),
            4 => self.reads.submit(),
            5 => drop(self.take()),
            _ => self.wait(),
        }
        assert_eq!(self.reads.in_flight(), self.asked.len());
    }

    fn start(&mut self) {
        let number = self.prng.below(self.files.len() as u64) as usize;
        let pages = if self.prng.one_in(4) { 1 + self.prng.below(8) as usize } else { 1 };
        // Some of them beyond the end.
        let page = self.prng.below(PAGES as u64 + 10) as usize;
        let idle = self.idle.pop().inspect(assert_untouched);
        let mut buffer =
            idle.filter(|idle| idle.len() == pages * PAGE).unwrap_or_else(|| self.reads.buffer(pages));
        buffer.as_mut_slice().fill(PATTERN);
        self.last_token += 1;
        self.asked.insert(self.last_token, (number, page, pages));
        self.reads.start(&self.files[number].file, (page * PAGE) as u64, buffer, self.last_token);
    }

    /// Takes what has come back, and compares it.
    fn take(&mut self) -> usize {
        let Work { reads, files, asked, idle, .. } = self;
        reads.finished(|token, buffer, outcome| idle.extend(compared(asked, files, token, buffer, outcome)))
    }

    /// Hands over what was started, and waits until something has come back.
    fn wait(&mut self) {
        self.reads.submit();
        while !self.asked.is_empty() {
            match &self.waiting {
                Waiting::Level => {
                    let ready = poll(&mut [PollFd::new(&self.reads, PollFlags::IN)], Some(&PATIENCE));
                    assert_eq!(ready, Ok(1), "a wake-up was lost");
                }
                Waiting::Edge(watch) => {
                    let mut events = Vec::with_capacity(2);
                    let ready = epoll::wait(watch, spare_capacity(&mut events), Some(&PATIENCE));
                    // The end of an earlier ring interrupts the thread, too.
                    assert!(matches!(ready, Ok(1) | Err(Errno::INTR)), "a wake-up was lost");
                }
                Waiting::Blocking => {
                    let Work { reads, files, asked, idle, .. } = self;
                    reads.wait(|token, buffer, outcome| {
                        idle.extend(compared(asked, files, token, buffer, outcome));
                    });
                    return;
                }
            }
            if self.take() > 0 {
                return;
            }
        }
    }

    fn finish(&mut self) {
        while !self.asked.is_empty() {
            self.wait();
        }
        self.idle.iter().for_each(assert_untouched);
    }
}

fn assert_untouched(idle: &AlignedBytes) {
    assert!(idle.as_slice().iter().all(|byte| *byte == PATTERN), "a buffer was written to after its read");
}

/// Compares what has come back with what was written; gives the buffer back full of the pattern.
fn compared(
    asked: &mut HashMap<u64, (usize, usize, usize)>,
    files: &[Written],
    token: u64,
    mut buffer: AlignedBytes,
    outcome: std::io::Result<()>,
) -> Option<AlignedBytes> {
    let (number, page, pages) = asked.remove(&token).expect("each comes back once");
    assert_eq!(buffer.len(), pages * PAGE);
    match outcome {
        Ok(()) => {
            let written = files[number].content.get(page * PAGE..(page + pages) * PAGE);
            assert!(written == Some(buffer.as_slice()), "pages {page} to {} are wrong", page + pages);
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{error}");
            assert!(page + pages > PAGES, "page {page} is there");
        }
    }
    buffer.as_mut_slice().fill(PATTERN);
    Some(buffer)
}

/// Files of each kind that can be read.
fn files(dir: &Path, prng: &mut Prng) -> Vec<Written> {
    let simulated = Fs::Simulated(Disk::new(prng.next_u64()));
    vec![
        Written::new(&Fs::Real, &dir.join("direct"), Mode::Direct, prng),
        Written::new(&Fs::Real, &dir.join("buffered"), Mode::Read, prng),
        Written::new(&simulated, Path::new("/simulated"), Mode::Direct, prng),
    ]
}

#[test]
fn reads_bring_what_was_written_whenever_they_are_taken() {
    let (seed, steps) = (number_from("TARN_SEED", 1), number_from("TARN_STEPS", 3000));
    println!("TARN_SEED={seed} TARN_STEPS={steps}");
    let dir = tempfile::tempdir().unwrap();
    let mut prng = Prng::from_seed(seed);
    let files = files(dir.path(), &mut prng);
    for way in ways() {
        let mut work = Work::new(way, &files, prng.clone());
        for _ in 0..steps {
            work.step();
            // Others begin where these are dropped.
            if prng.one_in(100) {
                work = Work::new(way, &files, Prng::from_seed(prng.next_u64()));
            }
        }
        work.finish();
        drop(work);
        assert!(files.iter().all(|written| Arc::strong_count(&written.file) == 1), "a read is left");
    }
}

#[test]
fn threads_that_read_at_once_get_each_their_own() {
    let (seed, steps) = (number_from("TARN_SEED", 2), number_from("TARN_STEPS", 1000));
    println!("TARN_SEED={seed} TARN_STEPS={steps}");
    let dir = tempfile::tempdir().unwrap();
    let files = files(dir.path(), &mut Prng::from_seed(seed));
    for way in ways() {
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let files = &files;
                scope.spawn(move || {
                    let mut work = Work::new(way, files, Prng::from_seed(seed ^ thread << 32));
                    (0..steps).for_each(|_| work.step());
                    work.finish();
                });
            }
        });
    }
}

#[test]
#[should_panic(expected = "are wrong")]
fn canary_a_flipped_bit_is_noticed() {
    let mut prng = Prng::from_seed(3);
    let disk = Disk::new(3);
    let path = Path::new("/file");
    let files = [Written::new(&Fs::Simulated(disk.clone()), path, Mode::Direct, &mut prng)];
    disk.flip(path, 8 * 1234 * 100);
    let mut work = Work::new(ways()[0], &files, prng);
    (0..100_000).for_each(|_| work.step());
}
