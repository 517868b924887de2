use super::simulated::{Disk, Faults, SECTOR, Survival};
use super::*;
use std::ffi::OsStr;

/// A directory on a new simulated disk.
fn disk() -> (Disk, Fs, PathBuf) {
    let disk = Disk::new(7);
    let fs = Fs::Simulated(disk.clone());
    let dir = PathBuf::from("/dir");
    fs.create_dir_all(&dir).unwrap();
    (disk, fs, dir)
}

#[test]
fn a_disk_that_hangs_keeps_changes_waiting_and_is_read() {
    let (disk, fs, dir) = disk();
    let path = dir.join("file");
    fs.write(&path, b"before").unwrap();
    let file = fs.open(&path, Mode::Write).unwrap();
    disk.hang(true);
    let writer = std::thread::spawn(move || file.write_at(b"behind", 0));
    disk.wait_until_hanging();
    assert_eq!(fs.read(&path, 100).unwrap(), b"before");
    disk.hang(false);
    writer.join().unwrap().unwrap();
    assert_eq!(fs.read(&path, 100).unwrap(), b"behind");
}

/// What both sides of the door must do alike.
fn live(fs: &Fs, dir: &Path) {
    fs.create_dir_all(dir).unwrap();
    let (one, two) = (dir.join("one"), dir.join("two"));
    assert_eq!(fs.kind(&one).unwrap(), None);
    assert_eq!(fs.open(&one, Mode::Read).unwrap_err().kind(), io::ErrorKind::NotFound);
    let file = fs.open(&one, Mode::CreateNew).unwrap();
    assert_eq!(fs.open(&one, Mode::CreateNew).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    file.preallocate(10_000).unwrap();
    file.write_at(b"hello", 9_998).unwrap();
    file.sync_data().unwrap();
    assert_eq!(file.len().unwrap(), 10_003);
    let mut bytes = [1; 10];
    assert_eq!(file.read_full_at(&mut bytes, 9_995).unwrap(), 8);
    assert_eq!(&bytes[..8], b"\0\0\0hello");
    fs.rename(&one, &two).unwrap();
    fs.sync_dir(dir).unwrap();
    assert_eq!(fs.list(dir).unwrap(), ["two"]);
    let mut page = AlignedBytes::zeroed(DIRECT_ALIGN);
    page.as_mut_slice()[..3].copy_from_slice(b"abc");
    let direct = fs.open(&two, Mode::DirectSynced).unwrap();
    direct.write_synced_at(page.as_slice(), DIRECT_ALIGN as u64).unwrap();
    assert_eq!(&fs.read(&two, 20_000).unwrap()[DIRECT_ALIGN..DIRECT_ALIGN + 4], b"abc\0");
    fs.replace(&two, b"new").unwrap();
    assert_eq!(fs.read(&two, 3).unwrap(), b"new");
    assert_eq!(fs.read(&two, 2).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    let lock = fs.lock(&dir.join("lock")).unwrap();
    assert!(lock.is_some() && fs.lock(&dir.join("lock")).unwrap().is_none());
    drop(lock);
    assert!(fs.lock(&dir.join("lock")).unwrap().is_some());
    fs.remove(&two).unwrap();
    assert_eq!(fs.kind(&two).unwrap(), None);
}

/// Replacements of one file at the same time: each is whole, the last that is committed counts, and nothing stays behind.
fn replace_at_once(fs: &Fs, dir: &Path) {
    fs.create_dir_all(dir).unwrap();
    let path = dir.join("file");
    let mut one = Replacement::begin(fs, &path).unwrap();
    one.write(b"one").unwrap();
    let mut two = Replacement::begin(fs, &path).unwrap();
    assert_ne!(one.temporary(), two.temporary());
    two.write(b"t").unwrap();
    one.sync().unwrap();
    one.commit().unwrap();
    assert_eq!(fs.read(&path, 10).unwrap(), b"one");
    two.write(b"wo").unwrap();
    two.commit().unwrap();
    assert_eq!(fs.read(&path, 10).unwrap(), b"two");
    assert_eq!(fs.list(dir).unwrap(), ["file"]);
}

#[test]
fn replacements_of_one_file_do_not_meet() {
    let (_, fs, dir) = disk();
    replace_at_once(&fs, &dir);
    let real = std::env::temp_dir().join(format!("tarn-replaced-{}", std::process::id()));
    replace_at_once(&Fs::Real, &real);
    std::fs::remove_dir_all(&real).unwrap();
}

#[test]
fn what_was_left_of_a_replacement_goes_and_what_is_written_stays() {
    let dir = std::env::temp_dir().join(format!("tarn-left-{}", std::process::id()));
    let (fs, path) = (Fs::Real, dir.join("dump.rdb"));
    fs.create_dir_all(&dir).unwrap();
    let others = ["dump.rdb", "dump.rdb.1.tmp", "dump.rdb.1.2.tmp.old", "dump.rdb.a.2.tmp", "other.1.2.tmp"];
    let left = ["dump.rdb.1.2.tmp", "dump.rdb.1.10.tmp"];
    others.iter().chain(&left).for_each(|name| fs.write(&dir.join(name), b"x").unwrap());
    let written = Replacement::begin(&fs, &path).unwrap();
    let mut names = others.map(OsString::from).to_vec();
    names.push(written.temporary().file_name().unwrap().to_owned());
    names.sort();
    remove_unfinished(&fs, &path).unwrap();
    assert_eq!(fs.list(&dir).unwrap(), names);
    written.commit().unwrap();
    assert_eq!(replaced_by(OsStr::new("a.b.1.2.tmp")), Some(OsStr::new("a.b")));
    assert_eq!(replaced_by(OsStr::new(".1.2.tmp")), None);
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn both_sides_of_the_door_do_the_same() {
    let (_, fs, dir) = disk();
    live(&fs, &dir);
    let real = std::env::temp_dir().join(format!("tarn-door-{}", std::process::id()));
    live(&Fs::Real, &real);
    std::fs::remove_dir_all(&real).unwrap();
}

#[test]
fn a_power_cut_takes_what_was_not_synced() {
    let (disk, fs, dir) = disk();
    let path = dir.join("file");
    let file = fs.open(&path, Mode::CreateNew).unwrap();
    file.write_at(b"kept", 0).unwrap();
    file.sync_data().unwrap();
    assert_eq!(disk.power_cut(1, Survival::Nothing).content(&path), None, "its name was not synced");
    fs.sync_dir(&dir).unwrap();
    file.write_at(b"lost", 4).unwrap();
    assert_eq!(disk.unsynced_bytes(&path), 4);
    assert_eq!(disk.power_cut(1, Survival::Nothing).content(&path).unwrap(), b"kept");
    assert_eq!(disk.power_cut(1, Survival::Bytes(2)).content(&path).unwrap(), b"keptlo");
    assert_eq!(disk.power_cut(1, Survival::All).content(&path).unwrap(), b"keptlost");
}

#[test]
fn a_write_that_was_not_synced_survives_sector_by_sector() {
    let (disk, fs, dir) = disk();
    let path = dir.join("file");
    let file = fs.open(&path, Mode::CreateNew).unwrap();
    file.preallocate(20 * SECTOR as u64).unwrap();
    fs.sync_dir(&dir).unwrap();
    file.write_at(&[1; 20 * SECTOR], 0).unwrap();
    let after = disk.power_cut(3, Survival::Chance).content(&path).unwrap();
    let kept = after.chunks(SECTOR).filter(|sector| sector.iter().all(|byte| *byte == 1)).count();
    let lost = after.chunks(SECTOR).filter(|sector| sector.iter().all(|byte| *byte == 0)).count();
    assert!(kept > 3 && lost > 3 && kept + lost == 20, "{kept} {lost}");
}

#[test]
fn a_failed_sync_forgets_what_it_did_not_write() {
    let (disk, fs, dir) = disk();
    let path = dir.join("file");
    let file = fs.open(&path, Mode::CreateNew).unwrap();
    fs.sync_dir(&dir).unwrap();
    file.write_at(&[1; 40 * SECTOR], 0).unwrap();
    disk.set_faults(Faults { sync_error_one_in: 1, ..Faults::default() });
    assert!(file.sync_data().is_err());
    disk.set_faults(Faults::default());
    assert!(file.sync_data().is_ok(), "the second one has nothing to do");
    assert_eq!(disk.content(&path).unwrap(), [1; 40 * SECTOR], "readers still see it");
    assert_ne!(disk.power_cut(1, Survival::All).content(&path).unwrap(), [1; 40 * SECTOR]);
}

#[test]
fn a_full_disk_takes_what_there_is_room_for() {
    let (disk, fs, dir) = disk();
    disk.set_faults(Faults { space_bytes: Some(1000), ..Faults::default() });
    let file = fs.open(&dir.join("file"), Mode::CreateNew).unwrap();
    assert_eq!(file.write_at(&[1; 1001], 0).unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert_eq!((file.len().unwrap(), fs.bytes_left(&dir).unwrap()), (1000, 0));
    file.write_at(&[2; 1000], 0).unwrap();
    fs.remove(&dir.join("file")).unwrap();
    assert_eq!(fs.bytes_left(&dir).unwrap(), 1000);
    assert!(fs.open(&dir.join("other"), Mode::CreateNew).unwrap().write_at(&[3; 1000], 0).is_ok());
}

#[test]
fn a_disk_says_how_much_is_left_and_a_missing_folder_none() {
    assert_eq!(disk().1.bytes_left(Path::new("/")).unwrap(), u64::MAX);
    assert!(Fs::Real.bytes_left(&std::env::temp_dir()).unwrap() > 0);
    assert!(Fs::Real.bytes_left(Path::new("/proc/none")).is_err());
}

#[test]
fn what_leads_to_a_socket_is_looked_at_and_what_is_one_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let [socket, link] = ["socket", "link"].map(|name| dir.path().join(name));
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    std::os::unix::fs::symlink(&socket, &link).unwrap();
    assert!(
        [&socket, &link, &dir.path().to_owned()].map(|path| Fs::Real.leads_to_socket(path))
            == [true, true, false]
    );
    for path in [&link, &socket] {
        Fs::Real.remove_socket(path).unwrap();
    }
    assert!(std::fs::symlink_metadata(&link).is_ok() && !socket.exists());
}
