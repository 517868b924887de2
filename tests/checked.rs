//! `tarn check` on the files of a real Redis, as redis-check-aof and redis-check-rdb look at them: whole, cut off at every byte, and with every
//! byte turned over.

use crate::imports::{append_only_dir, complaint, empty_redis, fill, increment, redis, rewrite, run};
use crate::operators::{shown_by, text};
use crate::tarn;
use engine::import::check::{Fault, FileReport, look_at};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use sys::file::Fs;
use sys::{Prng, UnixMs};
use testkit::ask::call_well;
use testkit::seed::Budget;
use testkit::{Program, Server};

/// What `tarn check` shows, and whether it ended with 0.
fn checked(words: &[&str]) -> (String, bool) {
    let output = run("check", words);
    (String::from_utf8(output.stdout).unwrap(), output.status.success())
}

/// The report on a file with such a content.
fn report_of(path: &Path, content: &[u8]) -> FileReport {
    // Requests are told apart by the table, as in the program.
    server::commands::install();
    std::fs::write(path, content).unwrap();
    let report = look_at(&Fs::Real, path, OsStr::new("dump.rdb"), UnixMs(0)).unwrap();
    let mut files = report.expect("there is a file").files;
    assert_eq!(files.len(), 1);
    let file = files.pop().unwrap();
    assert!(file.whole <= file.bytes && file.bytes == content.len() as u64);
    file
}

/// A Redis' append-only increment with all kinds of requests, and the server, which has ended.
fn append_only() -> (Server, Vec<u8>) {
    let mut source = redis(&["--auto-aof-rewrite-percentage", "0"]);
    fill(&mut source.connect().unwrap());
    source.kill();
    let content = std::fs::read(increment(&source)).unwrap();
    (source, content)
}

/// The base of a Redis that has rewritten its append-only files.
fn base() -> (Server, Vec<u8>) {
    let mut source = redis(&[]);
    let mut client = source.connect().unwrap();
    fill(&mut client);
    rewrite(&mut client);
    source.kill();
    let content = std::fs::read(named(&source, ".base.rdb")).unwrap();
    (source, content)
}

/// The newest append-only file of such a name.
fn named(server: &Server, end: &str) -> PathBuf {
    let names = std::fs::read_dir(append_only_dir(server)).unwrap().map(|entry| entry.unwrap().path());
    names.filter(|path| text(path).ends_with(end)).max().unwrap()
}

/// Where a number of requests end that stand behind each other, and are not within a transaction.
fn ends(content: &[u8]) -> Vec<usize> {
    let (mut at, mut ends, mut is_within) = (0, vec![0], false);
    let line = |at: usize| {
        let end = at + content[at..].windows(2).position(|two| two == b"\r\n").unwrap();
        (std::str::from_utf8(&content[at + 1..end]).unwrap().parse::<usize>().unwrap(), end + 2)
    };
    while at < content.len() {
        let (words, mut behind) = line(at);
        let mut first = Vec::new();
        for word in 0..words {
            let (length, start) = line(behind);
            if word == 0 {
                first = content[start..start + length].to_ascii_uppercase();
            }
            behind = start + length + 2;
        }
        is_within = (is_within || first == b"MULTI") && first != b"EXEC";
        at = behind;
        if !is_within {
            ends.push(at);
        }
    }
    ends
}

#[test]
fn an_append_only_file_that_is_cut_off_at_any_byte_is_whole_up_to_the_last_request() {
    let (source, content) = append_only();
    let path = source.dir().join("cut.aof");
    let ends = ends(&content);
    assert!(ends.len() > 15, "{ends:?}");
    for len in 1..=content.len() {
        let report = report_of(&path, &content[..len]);
        let whole = *ends.iter().rfind(|end| **end <= len).unwrap();
        assert_eq!(report.whole, whole as u64, "{len}");
        assert_eq!(report.fault, (whole < len).then_some(Fault::CutOff), "{len}");
    }
    assert_eq!(report_of(&path, b"").fault, None);
}

#[test]
fn an_append_only_file_with_any_byte_turned_over_has_its_place_or_is_another() {
    let (source, content) = append_only();
    let path = source.dir().join("flipped.aof");
    let ends = ends(&content);
    for at in 0..content.len() {
        for bit in [0x01, 0x10, 0x80] {
            let mut flipped = content.clone();
            flipped[at] ^= bit;
            let report = report_of(&path, &flipped);
            let before = *ends.iter().rfind(|end| **end <= at).unwrap() as u64;
            // What is before the request that was changed is whole whatever follows.
            assert!(report.whole >= before, "{at} {bit}: {} {:?}", report.whole, report.fault);
            if report.fault.is_none() {
                assert_eq!(report.whole, content.len() as u64);
            }
        }
    }
}

#[test]
fn an_rdb_file_that_is_cut_off_or_changed_anywhere_is_never_whole() {
    let (source, content) = base();
    let path = source.dir().join("damaged.rdb");
    let sound = report_of(&path, &content);
    let rdb = sound.rdb.unwrap();
    assert!(rdb.is_whole && rdb.keys > 5 && rdb.expiring > 0 && rdb.libraries == 1, "{}", rdb.keys);
    assert_eq!((sound.fault, sound.whole), (None, content.len() as u64));
    for len in 1..content.len() {
        let report = report_of(&path, &content[..len]);
        assert!(matches!(report.fault, Some(Fault::Damaged(at, _)) if at <= len as u64), "{len}");
        assert_eq!(report.whole, 0);
    }
    for at in 0..content.len() {
        for bit in [0x01, 0x10, 0x80] {
            let mut flipped = content.clone();
            flipped[at] ^= bit;
            let report = report_of(&path, &flipped);
            assert!(matches!(report.fault, Some(Fault::Damaged(..))), "{at} {bit}");
            assert_eq!(report.whole, 0, "{at} {bit}");
        }
    }
}

#[test]
fn lengths_that_no_file_holds_take_no_memory() {
    let source = empty_redis();
    let path = source.dir().join("hostile");
    for request in ["*1\r\n$99999999999999\r\nx\r\n", "*99999999999999\r\n$1\r\nx\r\n"] {
        assert_eq!(report_of(&path, request.as_bytes()).fault, Some(Fault::CutOff));
    }
    // A string whose length is said in eight bytes; a compressed one that says it becomes as long; a list of as many.
    let long = [&b"\x81"[..], &[0x3f; 8]].concat();
    for item in [[&[0, 1, b'k'][..], &long].concat(), [&[0, 1, b'k', 0xc3, 1][..], &long, b"x"].concat()] {
        let file = [&b"REDIS0011\xfe\x00"[..], &item].concat();
        assert!(matches!(report_of(&path, &file).fault, Some(Fault::Damaged(11, _))));
    }
    let list = [&b"REDIS0011\xfe\x00\x01\x01k"[..], &long, b"\x01x"].concat();
    assert!(matches!(report_of(&path, &list).fault, Some(Fault::Damaged(11, _))));
}

/// The verdict of one of Redis' own tools, and the number behind `ok_up_to=`.
fn by_tool(tool: &str, path: &Path) -> (bool, Option<u64>) {
    let output = Command::new(tool).arg(path).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let number = said.split_once("ok_up_to=").map(|(_, rest)| rest.split(',').next().unwrap());
    (output.status.success(), number.map(|number| number.parse().unwrap()))
}

#[test]
fn what_redis_own_tools_find_is_found() {
    let budget = Budget::from_env(1, 24);
    let ((source, aof), (_other, rdb)) = (append_only(), base());
    let path = source.dir().join("sample");
    for seed in (budget.seed..).take_while(|seed| budget.allows(seed - budget.seed)) {
        let mut prng = Prng::from_seed(seed);
        let content = if prng.below(2) == 0 { &aof } else { &rdb };
        let tool = if content == &aof { "redis-check-aof" } else { "redis-check-rdb" };
        let at = prng.below(content.len() as u64) as usize;
        let cut = report_of(&path, &content[..at.max(5)]);
        let (is_good, whole) = by_tool(tool, &path);
        assert_eq!(cut.fault.is_none(), is_good, "{tool}, cut at {at}; TARN_SEED={seed}");
        if let Some(whole) = whole {
            assert_eq!(cut.whole, whole, "cut at {at}; TARN_SEED={seed}");
        }
        let mut flipped = content.clone();
        flipped[at] ^= 1 << prng.below(8);
        let report = report_of(&path, &flipped);
        let (is_good, _) = by_tool(tool, &path);
        // Redis' tool does not know commands.
        assert!(is_good || report.fault.is_some(), "{tool}, changed at {at}; TARN_SEED={seed}");
    }
}

#[test]
fn a_redis_directory_is_told_with_its_counts() {
    let mut source = redis(&["--auto-aof-rewrite-percentage", "0"]);
    let mut client = source.connect().unwrap();
    fill(&mut client);
    rewrite(&mut client);
    call_well(&mut client, &["SAVE"]);
    call_well(&mut client, &["SET", "behind", "1"]);
    source.kill();
    let (shown, is_good) = checked(&[text(source.dir())]);
    assert!(is_good, "{shown}");
    for part in [
        ".base.rdb: RDB file, ",
        ".incr.aof: append-only file, ",
        ", 2 requests\n",
        "dump.rdb: RDB file, ",
        " RDB version 10 of Redis 7.0.15, 20",
        " keys, 2 of them with times to live (0 are over), 1 libraries of functions\n",
        "All of it is whole: `tarn import ",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    // Each of them alone, by whatever name leads there.
    let inside = append_only_dir(&source);
    for path in [&inside, &inside.join("appendonly.aof.manifest"), &increment(&source)] {
        assert!(checked(&[text(path)]).0.contains(", 2 requests\n"), "{}", path.display());
    }
    // As the sentence says.
    shown_by("import", &[text(source.dir()), "--dir", text(&source.dir().join("tarn"))]);
    // A file of older versions: everything in one.
    let single = source.dir().join("single.aof");
    let base = std::fs::read(named(&source, ".base.rdb")).unwrap();
    std::fs::write(&single, [base, std::fs::read(increment(&source)).unwrap()].concat()).unwrap();
    let (shown, _) = checked(&[text(&single)]);
    assert!(
        shown.contains(": append-only file, ") && shown.contains(", begins with an RDB file: "),
        "{shown}"
    );
    // A Redis that was set to `appendonly no` later: either may count.
    let later = Server::start(Program::Redis, &["--dir", text(source.dir())]).unwrap();
    let mut client = later.connect().unwrap();
    call_well(&mut client, &["SET", "later", "1"]);
    std::fs::File::options()
        .write(true)
        .open(increment(&source))
        .unwrap()
        .set_modified(std::time::SystemTime::UNIX_EPOCH)
        .unwrap();
    std::fs::remove_file(named(&source, ".base.rdb")).unwrap();
    let (shown, is_good) = checked(&[text(source.dir())]);
    assert!(
        !is_good && shown.contains("does not take this over: ") && shown.contains("which is not there"),
        "{shown}"
    );
    assert!(shown.contains("dump.rdb: RDB file, "), "{shown}");
}

#[test]
fn an_end_that_is_cut_off_is_cut_into_a_copy_and_nothing_else_is() {
    let (source, content) = append_only();
    let (path, copy) = (source.dir().join("x.aof"), source.dir().join("copy.aof"));
    let whole = ends(&content);
    let (last, cut) = (whole[whole.len() - 2], content.len() - 3);
    std::fs::write(&path, &content[..cut]).unwrap();
    let (shown, is_good) = checked(&[text(&path)]);
    let told = format!("CUT OFF: whole up to offset {last}, and {} bytes behind it", cut - last);
    assert!(!is_good && shown.contains(&told), "{shown}");
    assert!(shown.contains(&format!("`tarn check {} --cut-into NEWFILE`", path.display())), "{shown}");
    let shown = shown_by("check", &[text(&path), "--cut-into", text(&copy)]);
    assert!(shown.contains(&format!("Wrote the {last} bytes that are whole to ")), "{shown}");
    assert_eq!(std::fs::read(&copy).unwrap(), content[..last]);
    assert_eq!(std::fs::read(&path).unwrap(), content[..cut], "the file stays");
    assert!(checked(&[text(&copy)]).1 && by_tool("redis-check-aof", &copy).0);
    let refused = |path: &Path, to: &Path| complaint("check", &[text(path), "--cut-into", text(to)]);
    assert!(refused(&path, &copy).ends_with("is there already: name a new file"));
    let new = source.dir().join("new.aof");
    assert!(refused(&copy, &new).ends_with("is whole: there is nothing to cut off"));
    // Damage in the middle is told from an end that is missing, also where a length has grown.
    let long = content.windows(4).position(|word| word == b"$4\r\n").unwrap();
    for (at, byte) in [(whole[3], b'?'), (long + 1, b'9')] {
        let mut damaged = content.clone();
        damaged[at] = byte;
        std::fs::write(&path, &damaged).unwrap();
        let (shown, is_good) = checked(&[text(&path)]);
        assert!(!is_good && shown.contains("DAMAGED at offset ") && shown.contains("put "), "{shown}");
    }
    let grown =
        [&content[..whole[3]], b"*2\r\n$6\r\nSELECT\r\n$99999\r\n0\r\n", &content[whole[3]..]].concat();
    std::fs::write(&path, &grown).unwrap();
    let (shown, _) = checked(&[text(&path)]);
    assert!(shown.contains(&format!("DAMAGED at offset {}: a length there is more", whole[3])), "{shown}");
    let unknown = [&content[..], b"*2\r\n$8\r\nJSON.SET\r\n$1\r\nx\r\n"].concat();
    std::fs::write(&path, &unknown).unwrap();
    let (shown, _) = checked(&[text(&path)]);
    assert!(shown.contains(&format!("offset {}: unknown command 'JSON.SET'", content.len())), "{shown}");
    // An RDB file is of use as a whole only.
    let (other, rdb) = base();
    let damaged = other.dir().join("dump.rdb");
    std::fs::write(&damaged, &rdb[..rdb.len() - 1]).unwrap();
    assert!(
        refused(&damaged, &new).ends_with("an RDB file is of use as a whole only: put it back from a copy")
    );
    assert!(!new.exists());
}

#[test]
fn what_would_be_refused_is_said_with_the_reason() {
    let mut source = redis(&["--databases", "64"]);
    let mut client = source.connect().unwrap();
    call_well(&mut client, &["SELECT", "20"]);
    call_well(&mut client, &["SET", "a", "1"]);
    source.kill();
    let dir = source.dir().to_owned();
    let (shown, is_good) = checked(&[text(&dir)]);
    assert!(!is_good && shown.contains(".incr.aof needs `--databases 21`, and there are 16."), "{shown}");
    assert!(checked(&[text(&dir), "--databases", "21"]).1);
    // Only the last file may end too early.
    let path = increment(&source);
    let content = std::fs::read(&path).unwrap();
    std::fs::write(&path, &content[..content.len() - 1]).unwrap();
    std::fs::write(append_only_dir(&source).join("appendonly.aof.2.incr.aof"), &content).unwrap();
    let manifest = append_only_dir(&source).join("appendonly.aof.manifest");
    let lines = std::fs::read_to_string(&manifest).unwrap() + "file appendonly.aof.2.incr.aof seq 2 type i\n";
    std::fs::write(&manifest, lines).unwrap();
    let (shown, is_good) = checked(&[text(&dir), "--databases", "21"]);
    assert!(
        !is_good && shown.contains("it is not the last file, and only that one may be cut off."),
        "{shown}"
    );
    std::fs::write(&manifest, "file x\n").unwrap();
    let (shown, _) = checked(&[text(&dir)]);
    assert!(
        shown.ends_with("appendonly.aof.manifest: line 1: Invalid AOF manifest file format.\n"),
        "{shown}"
    );
    // Neither of them.
    let garbage = dir.join("garbage");
    std::fs::write(&garbage, "nonsense").unwrap();
    let (shown, _) = checked(&[text(&garbage)]);
    assert!(
        shown.contains("DAMAGED at offset 0: it is neither an RDB file nor an append-only file"),
        "{shown}"
    );
    std::fs::write(&garbage, "REDIS0099").unwrap();
    assert!(checked(&[text(&garbage)]).0.contains("its RDB version is 99; up to 12 can be read"));
    let durable = Server::start(crate::tarn(), &["--edition", "durable"]).unwrap();
    let segments = crate::operators::files(durable.dir(), "log-", ".segment");
    assert!(complaint("check", &[text(&segments[0])]).ends_with("is a file of a Tarn: name its directory"));
    assert!(complaint("check", &[text(durable.dir()), "--cut-into", "x"]).contains("`tarn restore "));
}

#[test]
fn a_library_that_does_not_load_is_told_as_a_start_would() {
    let source = empty_redis();
    let path = source.dir().join("libraries.rdb");
    for (code, is_fit) in [
        ("#!lua name=l\nredis.register_function('f', function() return 1 end)", true),
        ("#!lua name=l\nredis.register_function('f', function( return 1 end)", false),
    ] {
        let mut writer = value::rdb::file::FileWriter::new();
        writer.add_function_library(code.as_bytes());
        let report = report_of(&path, &writer.finish());
        assert_eq!(report.fault.is_none(), is_fit, "{:?}", report.fault);
        assert_eq!(report.rdb.unwrap().libraries, 1);
        let into = source.dir().join(format!("into{is_fit}"));
        assert_eq!(run("import", &[text(&path), "--dir", text(&into)]).status.success(), is_fit);
    }
}

#[test]
fn of_a_snapshot_in_a_directory_check_says_what_a_start_does() {
    let mut source = Server::start(tarn(), &["--edition", "memory"]).unwrap();
    call_well(&mut source.connect().unwrap(), &["SET", "key", "1"]);
    call_well(&mut source.connect().unwrap(), &["SAVE"]);
    source.kill();
    let dump = source.dir().join("dump.rdb");
    let whole = std::fs::read(&dump).unwrap();
    let into = |name: &str| source.dir().join(name);
    for (number, content) in [&b""[..], b"garbage", b"*1\r\n$4\r\nPING\r\n"].into_iter().enumerate() {
        std::fs::write(&dump, content).unwrap();
        let (shown, is_good) = checked(&[text(source.dir())]);
        assert!(!is_good && shown.contains("DAMAGED at offset 0: it is no RDB file"), "{shown}");
        let to = into(&number.to_string());
        assert!(!run("import", &[text(source.dir()), "--dir", text(&to)]).status.success());
    }
    // What is behind the end counts for nothing.
    std::fs::write(&dump, [&whole, &b"garbage"[..]].concat()).unwrap();
    let (shown, is_good) = checked(&[text(source.dir())]);
    assert!(is_good && shown.contains(", and 7 bytes behind its end that count for nothing"), "{shown}");
    assert!(
        shown_by("import", &[text(source.dir()), "--dir", text(&into("whole"))]).contains("Wrote 1 keys")
    );
}
