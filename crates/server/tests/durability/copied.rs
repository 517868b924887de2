//! A full copy of what lies on disk only: it has each key as it was when its slot was gathered, whatever is written, sent away and cleaned
//! while it is read, and no more of it is in memory at a time than a piece and a value.

use crate::site::Site;
use engine::durability::checkpoint::{Pace, write as write_checkpoint};
use engine::full_copy::{self, Facts, Wanted};
use engine::residency::by_hand;
use keyspace::Stamp;
use std::collections::BTreeMap;
use sys::file::simulated::Disk;
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

#[test]
fn what_lies_on_disk_is_copied_as_it_was_and_value_by_value() {
    let (clock, disk) = (Clock::simulated(UnixMs(1_700_000_000_000)), Disk::new(1));
    let mut site = Site::open("capacity", &disk, 1, &clock, 1).unwrap();
    let (mut prng, mut expected) = (Prng::from_seed(1), BTreeMap::new());
    for number in 0..KEYS {
        let key = format!("key:{number}");
        let text: String = (0..VALUE_BYTES / 16).map(|_| format!("{:016x}", prng.next_u64())).collect();
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
