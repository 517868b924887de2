use super::*;
use sys::file::simulated::Disk;

fn names() -> Names {
    Names { directory: "appendonlydir".into(), file: "appendonly.aof".into(), snapshot: "dump.rdb".into() }
}

/// A disk with these files, empty but for manifests.
fn disk(files: &[(&str, &str)]) -> Fs {
    let fs = Fs::Simulated(Disk::new(1));
    fs.create_dir_all(Path::new("/d/appendonlydir")).unwrap();
    for (path, content) in files {
        fs.write(&Path::new("/d").join(path), content.as_bytes()).unwrap();
    }
    fs
}

fn located(fs: &Fs, preference: Preference) -> Result<String, String> {
    match locate(fs, Path::new("/d"), &names(), preference) {
        Ok(Some(Place::AppendOnly { files, .. })) => Ok(format!("{files:?}")),
        Ok(Some(Place::Snapshot(path))) => Ok(path.display().to_string()),
        Ok(None) => Ok("nothing".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

const MANIFEST: &str = "appendonlydir/appendonly.aof.manifest";
const BASE: &str = "appendonlydir/appendonly.aof.1.base.rdb";
const TWO: &str =
    "file appendonly.aof.1.base.rdb seq 1 type b\nfile appendonly.aof.1.incr.aof seq 1 type i\n";

#[test]
fn a_manifest_wins_over_a_single_file_and_that_over_a_snapshot() {
    use Preference::{AppendOnly, Snapshot};
    let mut files = vec![("dump.rdb", "")];
    assert_eq!(located(&disk(&files), AppendOnly), Ok("/d/dump.rdb".to_owned()));
    files.push(("appendonly.aof", ""));
    assert_eq!(located(&disk(&files), AppendOnly), Ok(r#"["/d/appendonly.aof"]"#.to_owned()));
    files.extend([(MANIFEST, TWO), (BASE, ""), ("appendonlydir/appendonly.aof.1.incr.aof", "")]);
    let both =
        r#"["/d/appendonlydir/appendonly.aof.1.base.rdb", "/d/appendonlydir/appendonly.aof.1.incr.aof"]"#;
    assert_eq!(located(&disk(&files), AppendOnly), Ok(both.to_owned()));
    assert_eq!(located(&disk(&files), Snapshot), Ok("/d/dump.rdb".to_owned()));
    assert_eq!(located(&disk(&files[1..]), Snapshot), Ok("nothing".to_owned()));
    assert_eq!(located(&disk(&[]), AppendOnly), Ok("nothing".to_owned()));
}

#[test]
fn files_that_are_missing_are_named() {
    let refused = located(&disk(&[(MANIFEST, TWO), (BASE, "")]), Preference::AppendOnly).unwrap_err();
    assert!(
        refused.contains("it names /d/appendonlydir/appendonly.aof.1.incr.aof, which is not there"),
        "{refused}"
    );
    let refused = located(&disk(&[(BASE, ""), ("appendonly.aof", "")]), Preference::AppendOnly).unwrap_err();
    assert!(refused.contains("has appendonly.aof.1.base.rdb and no manifest"), "{refused}");
    let refused = located(&disk(&[(MANIFEST, "nonsense\n")]), Preference::AppendOnly).unwrap_err();
    assert_eq!(
        refused,
        "Can't load /d/appendonlydir/appendonly.aof.manifest: line 1: Invalid AOF manifest file format"
    );
}

#[test]
fn an_interrupted_upgrade_is_read_where_the_file_still_lies() {
    let manifest = "file appendonly.aof seq 1 type b\n";
    let fs = disk(&[(MANIFEST, manifest), ("appendonly.aof", "")]);
    assert_eq!(located(&fs, Preference::AppendOnly), Ok(r#"["/d/appendonly.aof"]"#.to_owned()));
}

#[test]
fn a_directory_that_somebody_names_is_looked_through() {
    let fs = disk(&[
        (MANIFEST, TWO),
        (BASE, ""),
        ("appendonlydir/appendonly.aof.1.incr.aof", ""),
        ("dump.rdb", ""),
    ]);
    let inside = place_in(&fs, Path::new("/d/appendonlydir"), &names()).unwrap();
    assert_eq!(inside, place_in(&fs, Path::new("/d"), &names()).unwrap());
    assert!(matches!(&inside, Some(Place::AppendOnly { files, .. }) if files.len() == 2));
    let aside = Path::new("/d/appendonlydir/appendonly.aof.before-12.manifest");
    fs.write(aside, b"").unwrap();
    assert_eq!(
        inside,
        place_in(&fs, Path::new("/d/appendonlydir"), &names()).unwrap(),
        "what is kept aside counts for nothing"
    );
    fs.write(Path::new("/d/appendonlydir/other.manifest"), b"").unwrap();
    assert!(
        place_in(&fs, Path::new("/d/appendonlydir"), &names())
            .unwrap_err()
            .to_string()
            .contains("several manifests")
    );
}

#[test]
fn the_beginning_of_a_manifest_says_that_what_lies_beside_it_was_cut_short() {
    let begun = "appendonlydir/appendonly.aof.manifest.7.1.tmp";
    assert_eq!(located(&disk(&[(begun, ""), (BASE, "")]), Preference::AppendOnly), Ok("nothing".to_owned()));
    let base_begun = "appendonlydir/appendonly.aof.1.base.rdb.7.tmp";
    assert_eq!(located(&disk(&[(base_begun, "")]), Preference::AppendOnly), Ok("nothing".to_owned()));
    let other = "appendonlydir/other.manifest.7.1.tmp";
    assert!(located(&disk(&[(other, ""), (BASE, "")]), Preference::AppendOnly).is_err());
}

#[test]
fn where_the_times_of_a_log_are_ahead_of_the_clock_a_file_that_came_since_is_not_passed_over() {
    let dir = std::env::temp_dir().join(format!("tarn-ahead-{}", std::process::id()));
    Fs::Real.create_dir_all(&dir).unwrap();
    let dump = dir.join("dump.rdb");
    let write = |version: &str| {
        let mut writer = value::rdb::file::FileWriter::new();
        writer.aux("redis-ver", version);
        Fs::Real.write(&dump, &writer.finish()).unwrap();
    };
    let now = sys::Clock::Real.now();
    let ahead = LogEnd { history: Some(1), last_time: UnixMs(now.0 + 86_400_000), now };
    write("1");
    assert!(matches!(beside(&dir, &names(), ahead), BesideLog::Older(_)), "nothing is noted");
    note(&dir, &dump).unwrap();
    assert!(matches!(beside(&dir, &names(), ahead), BesideLog::Older(_)));
    write("2");
    let BesideLog::Newer(sentence) = beside(&dir, &names(), ahead) else { panic!("it came since") };
    assert!(sentence.contains(" came after the log in "), "{sentence}");
    let right = LogEnd { now: ahead.last_time, ..ahead };
    assert!(matches!(beside(&dir, &names(), right), BesideLog::Older(_)));
    std::fs::remove_dir_all(&dir).unwrap();
}
