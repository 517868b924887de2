//! Files survive writing and reading, and damaged ones are refused.

use super::*;
use crate::set::Set;
use sys::Prng;

fn written() -> Vec<u8> {
    let mut writer = FileWriter::new();
    writer.aux("redis-ver", "7.2.0");
    writer.database(0, 3, 1);
    writer.entry(b"text", FileValue::String(b"value"), Some(1_700_000_000_000), None);
    writer.entry(b"number", FileValue::String(b"12345"), None, Some(FileUsage::Frequency(7)));
    let mut file = writer.take();
    writer.database(9, 2, 0);
    writer.entry(b"long", FileValue::String(&[b'x'; 3000]), None, Some(FileUsage::IdleSeconds(300)));
    let mut reader = Reader::over(b"\x02\x01a\x01b");
    let set = Set::read_image(2, &mut reader, &Thresholds::default()).unwrap();
    writer.entry(
        b"set",
        FileValue::Collection(crate::collection::Collection::from(set).as_ref()),
        None,
        None,
    );
    file.extend(writer.take());
    file.extend(writer.finish());
    file
}

fn read(file: &[u8]) -> Result<Vec<FileEntry>, FileError> {
    let mut reader = FileReader::open(file)?;
    let mut entries = Vec::new();
    while let Some(entry) = reader.next_entry(&Thresholds::default())? {
        entries.push(entry);
    }
    Ok(entries)
}

#[test]
fn files_survive_writing_and_reading() {
    let entries = read(&written()).unwrap();
    let facts: Vec<_> =
        entries.iter().map(|entry| (entry.database, &*entry.key, entry.expires_at_ms, entry.usage)).collect();
    assert_eq!(
        facts,
        [
            (0, b"text".as_slice(), Some(1_700_000_000_000), None),
            (0, b"number".as_slice(), None, Some(FileUsage::Frequency(7))),
            (9, b"long".as_slice(), None, Some(FileUsage::IdleSeconds(300))),
            (9, b"set".as_slice(), None, None),
        ]
    );
    assert!(matches!(&entries[0].value, Restored::String(value) if value == b"value"));
    assert!(matches!(&entries[3].value, Restored::Collection(_)));
}

#[test]
fn keys_longer_than_the_window_are_read() {
    let mut writer = FileWriter::new();
    writer.database(0, 2, 0);
    let mut prng = Prng::from_seed(1);
    let long: Vec<u8> = (0..5 << 20).map(|_| prng.below(256) as u8).collect();
    for key in [b"a", b"b"] {
        writer.entry(key, FileValue::String(&long), None, None);
    }
    let entries = read(&writer.finish()).unwrap();
    assert!(entries.iter().all(|entry| matches!(&entry.value, Restored::String(value) if *value == long)));
    assert_eq!(entries.len(), 2);
}

#[test]
fn file_without_a_checksum_is_taken() {
    let mut file = written();
    let end = file.len() - 8;
    file[end..].fill(0);
    assert_eq!(read(&file).unwrap().len(), 4);
}

#[test]
fn old_files_end_without_a_checksum() {
    let old = b"REDIS0003\xfe\0\0\x03key\x05value\xff";
    let mut reader = FileReader::open(&old[..]).unwrap();
    let entry = reader.next_entry(&Thresholds::default()).unwrap().unwrap();
    assert_eq!(entry.key, b"key");
    assert!(reader.next_entry(&Thresholds::default()).unwrap().is_none());
    assert_eq!(reader.end_offset(), old.len() as u64);
    assert!(matches!(read(&old[..old.len() - 1]), Err(FileError::CutOff)));
}

#[test]
fn every_cut_is_noticed() {
    let file = written();
    for cut in 0..file.len() {
        assert!(read(&file[..cut]).is_err(), "{cut} of {} bytes", file.len());
    }
    assert!(matches!(read(&file[..file.len() - 9]), Err(FileError::CutOff)));
}

#[test]
fn strangers_and_newer_files_are_named() {
    assert!(matches!(read(b"*1\r\n$4\r\nPING\r\n"), Err(FileError::NotAnRdbFile)));
    assert!(matches!(read(b"REDIS00+1\xff\0\0\0\0\0\0\0\0"), Err(FileError::NotAnRdbFile)));
    assert!(matches!(read(b"REDIS0099\xff\0\0\0\0\0\0\0\0"), Err(FileError::TooNew(99))));
}

#[test]
fn changed_bytes_are_refused_and_never_a_panic() {
    let good = written();
    for seed in 0..20_000 {
        let mut prng = Prng::from_seed(seed);
        let mut bad = good.clone();
        for _ in 0..=prng.below(3) {
            let at = prng.below(bad.len() as u64) as usize;
            bad[at] = prng.below(256) as u8;
        }
        if prng.below(2) == 0 {
            // Without its checksum a wrong file may be a right one; it must only be no trouble.
            let end = bad.len() - 8;
            bad[end..].fill(0);
            let _ = read(&bad);
        } else if bad != good {
            assert!(read(&bad).is_err() || bad[bad.len() - 8..] == [0; 8], "seed {seed}");
        }
    }
}

#[test]
fn what_declares_more_than_a_server_holds_is_refused_before_it_comes() {
    let key = b"REDIS0011\x00\x01k".to_vec();
    let plain = [&key[..], b"\x81", &(1_u64 << 40).to_be_bytes(), &[b'x'; 100]].concat();
    let packed = [&key[..], b"\xc3\x05\x81", &(1_u64 << 40).to_be_bytes(), &[b'x'; 100]].concat();
    for file in [plain, packed] {
        // There is always more of it.
        let mut reader = FileReader::open((&file[..]).chain(io::repeat(b'x'))).unwrap();
        reader.set_string_max(2 << 30);
        assert!(matches!(reader.next_entry(&Thresholds::default()), Err(FileError::Corrupt(_))));
    }
    let library = [&[OP_FUNCTIONS, 0x80][..], &(1_u32 << 20).to_be_bytes(), &vec![b'x'; 1 << 20]].concat();
    let end: &[u8] = &[OP_END, 0, 0, 0, 0, 0, 0, 0, 0];
    let many = [&b"REDIS0011"[..], &library.repeat(LIBRARY_BYTES_MAX / (1 << 20) + 1), end].concat();
    let mut reader = FileReader::open(&many[..]).unwrap();
    assert!(reader.next_entry(&Thresholds::default()).is_ok_and(|entry| entry.is_none()), "of one's own");
    let mut reader = FileReader::open(&many[..]).unwrap();
    reader.set_string_max(2 << 30);
    assert!(matches!(reader.next_entry(&Thresholds::default()), Err(FileError::Corrupt(_))));
}

#[test]
fn times_are_read_with_their_sign() {
    for (at, expected) in [(-1, None), (i64::MIN, Some(0)), (0, Some(0)), (5, Some(5))] {
        let file = [&b"REDIS0011\xfc"[..], &i64::to_le_bytes(at), b"\x00\x01k\x01v\xff", &[0; 8]].concat();
        assert_eq!(read(&file).unwrap()[0].expires_at_ms, expected);
    }
}
