//! A full copy of what lies on disk only: it has each key as it was when its slot was gathered, whatever is written, sent away and cleaned
//! while it is read, and no more of it is in memory at a time than a piece and a value.

use crate::site::Site;
use engine::durability::checkpoint::{Pace, write as write_checkpoint};
use engine::full_copy::{self, Facts, Wanted};
use engine::residency::by_hand;
use keyspace::Stamp;
use std::collections::BTreeMap;
use sys::file::simulated::{Disk, Faults};
use sys::{Clock, Prng, UnixMs};
use testkit::generate::words;
use value::collection::Thresholds;
use value::rdb::Restored;
use value::rdb::file::FileReader;
use value::stream::Reads;

const KEYS: u64 = 40;

/// A value takes many pages, so that each has places of its own.
const VALUE_BYTES: usize = 200 << 10;

/// What is handed on at a time may be so much longer than a value.
const SLACK_BYTES: usize = 300 << 10;

/// So many bytes that do not become fewer.
fn noise(prng: &mut Prng, bytes: usize) -> String {
    (0..bytes / 16).map(|_| format!("{:016x}", prng.next_u64())).collect()
}

#[test]
fn what_lies_on_disk_is_copied_as_it_was_and_value_by_value() {
    let (clock, disk) = (Clock::simulated(UnixMs(1_700_000_000_000)), Disk::new(1));
    let mut site = Site::open("capacity", &disk, 1, &clock, 1).unwrap();
    let (mut prng, mut expected) = (Prng::from_seed(1), BTreeMap::new());
    for number in 0..KEYS {
        let key = format!("key:{number}");
        let text = noise(&mut prng, VALUE_BYTES);
        site.run(&[words(&["SET", &key, &text])]);
        site.log().flush();
        expected.insert(key.into_bytes(), text.into_bytes());
    }
    let server = site.server.clone();
    let engine = &server.engine;
    by_hand::spill(engine, &mut || {}).unwrap();
    let beginning = full_copy::begin(engine, || Stamp(site.log().appended().0));
    let wanted = Wanted { reads: Reads::Redis72, knows_field_times: true, keys: true, functions: false };
    let (mut file, mut longest, mut pieces) = (Vec::new(), 0, 0);
    full_copy::write(engine, &beginning, wanted, &Facts::NONE, &mut |piece| {
        (longest, pieces) = (longest.max(piece.len()), pieces + 1);
        file.extend_from_slice(&piece);
        let key = format!("key:{}", prng.below(KEYS));
        site.run(&[match prng.below(4) {
            0 => words(&["DEL", &key]),
            1 => words(&["APPEND", &key, "more"]),
            2 => words(&["SET", &key, "other"]),
            _ => words(&["STRLEN", &key]),
        }]);
        if pieces % 8 == 0 {
            site.log().flush();
            by_hand::spill(engine, &mut || {}).unwrap();
            by_hand::clean(engine).unwrap();
            write_checkpoint(engine, &site.log(), engine.guest(), Pace::Full).unwrap();
        }
        Ok(())
    })
    .unwrap();
    assert!(pieces > KEYS / 2, "{pieces}");
    assert!(longest <= VALUE_BYTES + SLACK_BYTES, "{longest} bytes at a time");
    let (mut found, mut reader) = (BTreeMap::new(), FileReader::open(&file[..]).unwrap());
    while let Some(entry) = reader.next_entry(&Thresholds::DEFAULT).unwrap() {
        let Restored::String(text) = entry.value else { panic!("there are strings only") };
        assert!(found.insert(entry.key.to_vec(), text).is_none(), "a key came twice");
    }
    assert_eq!(found.len(), expected.len());
    assert!(found == expected, "a value is not as it was");
}

/// What a copy is handing on, and why it must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Short {
    /// Values that lie on disk, while that is full.
    Disk,
    /// The same while only the log finds it full.
    Log,
    /// A long value that lies in memory, while the disk is full.
    DiskBesideLongValue,
}

#[test]
fn a_copy_for_which_the_disk_has_no_room_ends_and_the_server_goes_on() {
    for short in [Short::Disk, Short::Log, Short::DiskBesideLongValue] {
        let (clock, disk) = (Clock::simulated(UnixMs(1_700_000_000_000)), Disk::new(1));
        let mut site = Site::open("capacity", &disk, 1, &clock, 1).unwrap();
        let mut prng = Prng::from_seed(1);
        for number in 0..KEYS {
            site.run(&[words(&["SET", &format!("key:{number}"), &noise(&mut prng, VALUE_BYTES)])]);
            site.log().flush();
        }
        let server = site.server.clone();
        let engine = &server.engine;
        by_hand::spill(engine, &mut || {}).unwrap();
        for _ in 0..if short == Short::DiskBesideLongValue { 2000 } else { 0 } {
            site.run(&[words(&["RPUSH", "long", &noise(&mut prng, 1000)])]);
            site.log().flush();
        }
        let store = engine.residency.store().unwrap();
        let beginning = full_copy::begin(engine, || Stamp(site.log().appended().0));
        let wanted = Wanted { reads: Reads::Redis72, knows_field_times: true, keys: true, functions: false };
        let mut pieces = 0;
        let copied = full_copy::write(engine, &beginning, wanted, &Facts::NONE, &mut |_| {
            pieces += 1;
            if pieces > 1 {
                return Ok(());
            }
            // All that the copy has yet to read dies, and is kept for it.
            (0..KEYS).for_each(|number| drop(site.run(&[words(&["DEL", &format!("key:{number}")])])));
            site.log().flush();
            by_hand::clean(engine).unwrap();
            write_checkpoint(engine, &site.log(), engine.guest(), Pace::Full).unwrap();
            assert!(store.kept_bytes() > 0);
            disk.set_faults(Faults { space_bytes: Some(0), ..Faults::default() });
            if short == Short::Log {
                site.run(&[words(&["SET", "key", &noise(&mut prng, VALUE_BYTES)])]);
                site.log().flush();
                assert!(site.log().writable().is_err());
                disk.set_faults(Faults::default());
            }
            clock.advance_ms(1000);
            Ok(())
        });
        let error = copied.unwrap_err().to_string();
        let why = if short == Short::Log { "the log has no room" } else { "the disk has only 0 bytes left" };
        assert!(error.contains(why), "{short:?}: {error}");
        assert_eq!((pieces, store.stats().segments_retired), (1, 0), "{short:?}");
        disk.set_faults(Faults::default());
        clock.advance_ms(1000);
        site.log().flush();
        site.run(&[words(&["SET", "key", "value"])]);
        site.log().flush();
        assert_eq!(
            (site.log().writable(), site.log().durable()),
            (Ok(()), site.log().appended()),
            "{short:?}"
        );
    }
}
