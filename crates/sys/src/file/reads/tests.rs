use super::ring::Completing;
use super::*;
use crate::file::simulated::{Disk, Faults};
use crate::file::{Fs, Mode};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::path::Path;

const PAGE: u64 = DIRECT_ALIGN as u64;

/// Reads of each kind that there is.
fn all_kinds(depth: usize) -> Vec<Reads> {
    let ring = |completing| {
        Reads::with_ring(Way::Ring, depth, |bell| Ring::completing(completing, depth, bell)).unwrap()
    };
    let mut kinds = vec![Reads::new(Way::Threads, depth).unwrap()];
    match Ring::new(depth, &Arc::new(Bell::new().unwrap())) {
        Ok(_) => kinds.extend(Completing::ALL.map(ring)),
        Err(error) => println!("no io_uring here: {error}"),
    }
    kinds
}

/// A file of so many pages, each filled with its number, and so many bytes more.
fn numbered(fs: &Fs, path: &Path, pages: u32, more: usize, mode: Mode) -> Arc<File> {
    let mut bytes: Vec<u8> =
        (0..pages).flat_map(|page| page.to_le_bytes().repeat(DIRECT_ALIGN / 4)).collect();
    bytes.resize(bytes.len() + more, 0);
    fs.write(path, &bytes).unwrap();
    Arc::new(fs.open(path, mode).unwrap())
}

fn page_number(buffer: &AlignedBytes) -> u32 {
    let words = || buffer.as_slice().chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap()));
    let first = words().next().unwrap();
    assert!(words().all(|word| word == first), "a page of {first} is mixed");
    first
}

fn is_readable(reads: &Reads, timeout_s: i64) -> bool {
    let timeout = Timespec { tv_sec: timeout_s, tv_nsec: 0 };
    poll(&mut [PollFd::new(reads, PollFlags::IN)], Some(&timeout)).unwrap() == 1
}

/// Takes all that is in flight, waiting on the descriptor only.
fn take_all(reads: &mut Reads, mut take: impl FnMut(u64, AlignedBytes, io::Result<()>)) {
    while reads.in_flight() > 0 {
        assert!(is_readable(reads, 60), "{}: a wake-up was lost", reads.way());
        reads.finished(&mut take);
    }
}

#[test]
fn what_comes_back_between_taking_and_waiting_leaves_the_descriptor_readable() {
    let dir = tempfile::tempdir().unwrap();
    let file = numbered(&Fs::Real, &dir.path().join("file"), 100, 0, Mode::Direct);
    for mut reads in all_kinds(8) {
        assert!(!is_readable(&reads, 0));
        for step in 0..2000 {
            let page = step % 100;
            reads.start(&file, page * PAGE, reads.buffer(1), page);
            reads.submit();
            // At whatever moment that is.
            let buffers = reads.buffers().clone();
            let mut take = |token, buffer: AlignedBytes, outcome: io::Result<()>| {
                outcome.unwrap();
                assert_eq!(u64::from(page_number(&buffer)), token);
                buffers.give_back(buffer);
            };
            reads.finished(&mut take);
            if reads.in_flight() > 4 {
                assert!(is_readable(&reads, 60), "{}: a wake-up was lost", reads.way());
            }
        }
        take_all(&mut reads, |_, _, outcome| outcome.unwrap());
        assert!(!is_readable(&reads, 0) || reads.finished(|_, _, _| unreachable!()) == 0);
        assert!(reads.buffers().kept() <= 8, "{} buffers", reads.buffers().kept());
    }
}

#[test]
fn more_reads_than_the_depth_wait_in_their_order() {
    let dir = tempfile::tempdir().unwrap();
    let file = numbered(&Fs::Real, &dir.path().join("file"), 50, 0, Mode::Direct);
    for mut reads in all_kinds(1) {
        (0..50).for_each(|page| reads.start(&file, page * PAGE, reads.buffer(1), page));
        assert_eq!(reads.in_flight(), 50);
        reads.submit();
        let mut tokens = Vec::new();
        take_all(&mut reads, |token, buffer, outcome| {
            outcome.unwrap();
            assert_eq!(u64::from(page_number(&buffer)), token);
            tokens.push(token);
        });
        assert!(tokens.iter().copied().eq(0..50), "{}: {tokens:?}", reads.way());
    }
}

#[test]
fn dropping_reads_waits_for_those_on_their_way() {
    let dir = tempfile::tempdir().unwrap();
    let file = numbered(&Fs::Real, &dir.path().join("file"), 100, 0, Mode::Direct);
    for round in 0..30 {
        for mut reads in all_kinds(16) {
            (0..40).for_each(|page| reads.start(&file, page * PAGE, reads.buffer(1), page));
            if round % 3 > 0 {
                reads.submit();
            }
            if round % 3 > 1 {
                reads.finished(|_, _, outcome| outcome.unwrap());
            }
            drop(reads);
            assert_eq!(Arc::strong_count(&file), 1, "a read still has the file");
        }
    }
}

#[test]
fn a_file_that_ends_too_early_is_an_unexpected_end() {
    let dir = tempfile::tempdir().unwrap();
    for mode in [Mode::Direct, Mode::Read] {
        let file = numbered(&Fs::Real, &dir.path().join("file"), 3, 100, mode);
        for mut reads in all_kinds(4) {
            for (token, (page, pages)) in
                [(2, 1), (3, 1), (2, 2), (1, 4), (9, 1), (1 << 40, 1)].iter().enumerate()
            {
                reads.start(&file, page * PAGE, reads.buffer(*pages), token as u64);
            }
            reads.submit();
            let mut outcomes = [const { None }; 6];
            take_all(&mut reads, |token, _, outcome| {
                outcomes[token as usize] = Some(outcome.map_err(|error| error.kind()));
            });
            let end = Some(Err(ErrorKind::UnexpectedEof));
            assert_eq!(outcomes, [Some(Ok(())), end, end, end, end, end], "{} {mode:?}", reads.way());
        }
    }
}

#[test]
fn what_cannot_be_read_comes_back_with_the_error() {
    let dir = tempfile::tempdir().unwrap();
    let folder = Arc::new(Fs::Real.open(dir.path(), Mode::Read).unwrap());
    let file = numbered(&Fs::Real, &dir.path().join("file"), 3, 0, Mode::Direct);
    for mut reads in all_kinds(4) {
        reads.start(&folder, 0, reads.buffer(1), 0);
        reads.start(&file, u64::MAX - 4095, reads.buffer(1), 1);
        reads.start(&file, PAGE, reads.buffer(1), 2);
        reads.start(&file, PAGE, AlignedBytes::with_capacity(0), 3);
        reads.submit();
        let mut outcomes = [const { None }; 4];
        take_all(&mut reads, |token, _, outcome| {
            outcomes[token as usize] = Some(outcome.map_err(|error| error.kind()));
        });
        let [folder, beyond, good, empty] = outcomes;
        assert_eq!(folder, Some(Err(ErrorKind::IsADirectory)));
        assert_eq!(beyond, Some(Err(ErrorKind::InvalidInput)));
        assert_eq!((good, empty), (Some(Ok(())), Some(Ok(()))), "{}", reads.way());
    }
}

#[test]
fn waiting_takes_what_comes_back_first() {
    let dir = tempfile::tempdir().unwrap();
    let file = numbered(&Fs::Real, &dir.path().join("file"), 64, 0, Mode::Direct);
    for mut reads in all_kinds(8) {
        assert_eq!(reads.wait(|_, _, _| unreachable!()), 0);
        (0..64).for_each(|page| reads.start(&file, page * PAGE, reads.buffer(1), page));
        let mut seen = [false; 64];
        while reads.in_flight() > 0 {
            let count = reads.wait(|token, buffer, outcome| {
                outcome.unwrap();
                assert_eq!(u64::from(page_number(&buffer)), token);
                assert!(!std::mem::replace(&mut seen[token as usize], true));
            });
            assert!(count > 0);
        }
        assert_eq!(seen, [true; 64]);
    }
}

#[test]
fn a_simulated_disk_is_read_through_the_same_door() {
    let disk = Disk::new(5);
    let fs = Fs::Simulated(disk.clone());
    let path = Path::new("/file");
    let file = numbered(&fs, path, 300, 0, Mode::Direct);
    let dir = tempfile::tempdir().unwrap();
    let real = numbered(&Fs::Real, &dir.path().join("file"), 300, 0, Mode::Direct);
    disk.flip(path, 8 * (7 * PAGE + 5));
    disk.set_faults(Faults { read_error_one_in: 3, ..Faults::default() });
    for mut reads in all_kinds(4) {
        for page in 0..300 {
            let file = if page % 10 == 9 { &real } else { &file };
            reads.start(file, page * PAGE, reads.buffer(1), page);
        }
        assert!(!is_readable(&reads, 0), "nothing was handed over");
        reads.submit();
        let (mut tokens, mut refused) = (Vec::new(), 0);
        take_all(&mut reads, |token, buffer, outcome| {
            tokens.push(token);
            match outcome {
                Ok(()) if token == 7 => assert_eq!(buffer.as_slice()[5], 1),
                Ok(()) => assert_eq!(u64::from(page_number(&buffer)), token),
                Err(error) => {
                    assert_eq!(error.raw_os_error(), Some(libc::EIO));
                    refused += 1;
                }
            }
        });
        assert!((40..160).contains(&refused), "{refused}");
        assert!(!tokens.is_sorted(), "they come back as on a disk, in no order");
        tokens.sort_unstable();
        assert!(tokens.iter().copied().eq(0..300));
    }
}

#[test]
fn a_refused_ring_is_replaced_by_threads_that_say_so() {
    let refuse = |_: &Arc<Bell>| Err(io::Error::from_raw_os_error(libc::EPERM));
    assert_eq!(Reads::with_ring(Way::Ring, 4, refuse).unwrap_err().kind(), ErrorKind::PermissionDenied);
    let reads = Reads::with_ring(Way::Auto, 4, refuse).unwrap();
    assert!(matches!(reads.engine, Engine::Threads(_)));
    assert_eq!(
        reads.way().to_string(),
        "reader threads, as io_uring is refused: Operation not permitted (os error 1)"
    );
    assert_eq!(Reads::new(Way::Threads, 4).unwrap().way(), &Chosen::Threads);
}

#[test]
fn reads_that_the_system_puts_off_are_tried_again_but_not_for_ever() {
    let disk = Disk::new(1);
    let file = numbered(&Fs::Simulated(disk), Path::new("/file"), 1, 0, Mode::Read);
    let buffer = AlignedBytes::zeroed(DIRECT_ALIGN);
    let mut read = Read { file, offset: 0, buffer, filled: 0, put_off: 0, token: 0 };
    assert!(read.advance(Ok(100)).is_none());
    for _ in 0..PUT_OFF_MAX {
        assert!(read.advance(Err(ErrorKind::WouldBlock.into())).is_none());
    }
    assert!(matches!(read.advance(Err(ErrorKind::WouldBlock.into())), Some(Err(_))));
    assert_eq!(read.filled, 100, "what was read is not read again");
    assert!(matches!(read.advance(Ok(DIRECT_ALIGN - 100)), Some(Ok(()))));
}
