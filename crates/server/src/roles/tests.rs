use super::check::{Shown, look_at};
use super::restore::{copy, parse_target};
use super::*;
use engine::moment::Moment;
use log::{Failure, Flushing, Log, Lsn, Observer, Options, Target};
use std::path::Path;
use std::sync::Arc;
use sys::file::simulated::Disk;
use sys::file::{Fs, Mode};
use sys::{Clock, UnixMs};

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

fn complaint(role: Role, line: &str) -> String {
    role(&words(line), &mut String::new()).unwrap_err().0
}

#[test]
fn wrong_words_are_complained_about() {
    assert_eq!(complaint(transfer::import, "--dir x"), "FROM is needed; see --help");
    assert_eq!(complaint(transfer::import, "a b --dir x"), "'b' is one word too many; see --help");
    assert_eq!(complaint(transfer::import, "a"), "--dir is needed; see --help");
    assert_eq!(complaint(transfer::import, "a --dir"), "--dir needs a value");
    assert!(complaint(transfer::import, "a --dir x --nonsense 1").contains("nonsense"));
    assert!(complaint(transfer::import, "a --dir x --databases many").contains("databases"));
    assert_eq!(complaint(transfer::export, "x --dir x --to y"), "'x' is one word too many; see --help");
    assert_eq!(complaint(transfer::export, "--dir x"), "--to is needed; see --help");
    assert_eq!(complaint(transfer::export, "--dir /no/such --to y"), "/no/such is not a directory");
    assert!(complaint(transfer::export, "--dir x --to y --force=1").contains("force"));
    assert_eq!(complaint(check::run, ""), "DIR is needed; see --help");
    assert_eq!(complaint(check::run, "/no/such"), "/no/such: there is no such file or directory");
    assert_eq!(complaint(check::run, "/tmp --deep 1"), "there is no option --deep; see --help");
    assert_eq!(complaint(check::run, "-x"), "there is no option -x");
    for wrong in ["0", "many", "-1", "4294967296"] {
        let told = complaint(check::run, &format!("/tmp --databases {wrong}"));
        assert!(
            told.starts_with(&format!("'{wrong}' is no number of databases: there may be 1 to ")),
            "{told}"
        );
    }
    assert_eq!(complaint(restore::run, "d --to 1"), "--into is needed; see --help");
    assert!(complaint(restore::run, "d --to noon --into e").contains("'noon' is neither a time"));
}

#[test]
fn an_import_from_a_log_that_was_not_completed_says_what_is_to_be_done() {
    crate::commands::install();
    let place = std::env::temp_dir().join(format!("tarn-roles-{}", std::process::id()));
    let dir = place.join("from");
    let options = Options { flushing: Flushing::ByHand, ..Options::default() };
    let mut recovery = log::recover(&Fs::Real, &dir).unwrap();
    recovery.begin_beside_clients(Lsn::ZERO, None);
    let log = recovery.open(&options, Arc::new(Nobody)).unwrap();
    log.append(0, UnixMs(1), b"record");
    log.close().unwrap();
    let line = format!("{} --dir {}", dir.display(), place.join("to").display());
    let said = complaint(transfer::import, &line);
    std::fs::remove_dir_all(&place).unwrap();
    assert!(said.starts_with(&format!("{}: ", dir.display())) && said.contains("remove all log-*"), "{said}");
}

#[test]
fn times_and_lsns_are_told_apart() {
    let time = |ms| Ok(Target::Time(UnixMs(ms)));
    assert_eq!(parse_target("1795339800"), Ok(Target::Lsn(Lsn(1_795_339_800))));
    assert_eq!(parse_target("@1795339800"), time(1_795_339_800_000));
    assert_eq!(parse_target("@1795339800123"), time(1_795_339_800_123));
    assert_eq!(parse_target("2026-11-22T09:30:00Z"), time(1_795_339_800_000));
    assert_eq!(parse_target("2026-11-22T10:30:00.5+01:00"), time(1_795_339_800_500));
    for wrong in ["", "@", "@-1", "-1", "2026-11-22", "1800-01-01T00:00:00Z", "99999999999999999999"] {
        assert!(parse_target(wrong).is_err(), "{wrong}");
    }
    assert_eq!(Moment(UnixMs(1_795_339_800_500)).to_string(), "2026-11-22T09:30:00.500Z");
    assert_eq!(Moment(UnixMs(u64::MAX)).to_string(), format!("@{}", u64::MAX));
}

struct Nobody;

impl Observer for Nobody {
    fn committed(&self, _: Lsn) {}
    fn failed(&self, _: &Failure) {}
    fn resumed(&self) {}
}

/// A log with a record of 6 bytes at each of five seconds.
fn disk_with_log() -> Fs {
    let fs = Fs::Simulated(Disk::new(1));
    let clock = Clock::simulated(UnixMs(1_000_000));
    let options = Options { flushing: Flushing::ByHand, clock, ..Options::default() };
    let log: Log = log::recover(&fs, Path::new("/log")).unwrap().open(&options, Arc::new(Nobody)).unwrap();
    for second in 1..=5 {
        log.append(0, UnixMs(second * 1000), b"record");
        log.flush();
    }
    log.close().unwrap();
    fs
}

fn shown(fs: &Fs, dir: &str) -> (String, bool) {
    let report = look_at(fs, Path::new(dir)).unwrap();
    (
        Shown { dir: Path::new(dir), report: &report, store: None, beside: None }.to_string(),
        report.is_intact(),
    )
}

#[test]
fn a_report_shows_what_is_there_and_what_is_wrong() {
    let fs = disk_with_log();
    let (text, is_intact) = shown(&fs, "/log");
    assert!(is_intact, "{text}");
    let expected =
        "segment, LSN 0 to 30, 6 blocks, 5 records, 1970-01-01T00:00:01.000Z to 1970-01-01T00:00:05.000Z\n";
    assert!(text.contains(expected), "{text}");
    assert!(text.ends_with("A start replays it all, up to LSN 30.\n"), "{text}");
    let segment = fs
        .list(Path::new("/log"))
        .unwrap()
        .into_iter()
        .find(|name| name.to_string_lossy().ends_with(".segment"));
    let path = Path::new("/log").join(segment.unwrap());
    // In the second block.
    fs.open(&path, Mode::Write).unwrap().write_at(b"?", 2 * 4096 + 40).unwrap();
    let (text, is_intact) = shown(&fs, "/log");
    assert!(!is_intact && text.contains("DAMAGED at offset 8192: "), "{text}");
    assert!(
        text.contains("A start refuses this: ") && text.contains("tarn restore DIR --to 6 --into NEWDIR"),
        "{text}"
    );
}

#[test]
fn a_copy_ends_where_it_was_told_to() {
    let fs = disk_with_log();
    let restored = copy(&fs, Path::new("/log"), Target::Lsn(Lsn(13)), Path::new("/lsn")).unwrap();
    assert_eq!((restored.end, restored.last_time), (Lsn(12), Some(UnixMs(2000))));
    let restored = copy(&fs, Path::new("/log"), Target::Time(UnixMs(3500)), Path::new("/time")).unwrap();
    assert_eq!((restored.end, restored.last_time), (Lsn(18), Some(UnixMs(3000))));
    assert!(shown(&fs, "/time").0.ends_with("A start replays it all, up to LSN 18.\n"));
    let again = copy(&fs, Path::new("/log"), Target::Lsn(Lsn(6)), Path::new("/time")).unwrap_err();
    assert!(again.0.contains("holds a log already"), "{}", again.0);
    let nowhere = copy(&fs, Path::new("/none"), Target::Lsn(Lsn(6)), Path::new("/other")).unwrap_err();
    assert_eq!(nowhere.0, "/none is not a directory");
}
