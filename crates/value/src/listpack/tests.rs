//! Listpacks byte by byte: the encodings, the header, hostile bytes. Sequences of edits are fuzzed in
//! `tests/fuzz`.

use super::*;

fn listpack(texts: &[&[u8]]) -> Listpack {
    let mut listpack = Listpack::new();
    texts.iter().for_each(|text| listpack.push_back(text));
    listpack
}

fn entry(text: &[u8]) -> Vec<u8> {
    let bytes = listpack(&[text]).into_bytes();
    bytes[HEADER_BYTES..bytes.len() - 1].to_vec()
}

fn texts(listpack: &Listpack) -> Vec<Vec<u8>> {
    listpack.as_ref().iter().map(Element::to_vec).collect()
}

#[test]
fn integers_take_the_shortest_encoding() {
    assert_eq!(entry(b"0"), [0, 1]);
    assert_eq!(entry(b"127"), [0x7f, 1]);
    assert_eq!(entry(b"128"), [0xc0, 0x80, 2]);
    assert_eq!(entry(b"-1"), [0xdf, 0xff, 2]);
    assert_eq!(entry(b"-4096"), [0xd0, 0, 2]);
    assert_eq!(entry(b"4096"), [0xf1, 0, 0x10, 3]);
    assert_eq!(entry(b"-32769"), [0xf2, 0xff, 0x7f, 0xff, 4]);
    assert_eq!(entry(b"8388608"), [0xf3, 0, 0, 0x80, 0, 5]);
    assert_eq!(entry(b"2147483648"), [0xf4, 0, 0, 0, 0x80, 0, 0, 0, 0, 9]);
    assert_eq!(entry(b"-9223372036854775808"), [0xf4, 0, 0, 0, 0, 0, 0, 0, 0x80, 9]);
}

#[test]
fn texts_carry_their_length_in_front_and_the_size_of_both_behind() {
    assert_eq!(entry(b""), [0x80, 1]);
    assert_eq!(entry(b"007"), [0x83, b'0', b'0', b'7', 4]);
    assert_eq!(entry(&[b'x'; 63])[..1], [0xbf]);
    assert_eq!(entry(&[b'x'; 64])[..2], [0xe0, 0x40]);
    assert_eq!(entry(&[b'x'; 125]).last(), Some(&127));
    assert_eq!(entry(&[b'x'; 126])[128..], [0x01, 0x80]);
    assert_eq!(entry(&[b'x'; 4095])[..2], [0xef, 0xff]);
    assert_eq!(entry(&[b'x'; 4096])[..5], [0xf0, 0, 0x10, 0, 0]);
    // 16,383 would fit two bytes, but the format changes one earlier.
    assert_eq!(entry(&[b'x'; 16_382 - 5]).len(), 16_382 + 2);
    assert_eq!(entry(&[b'x'; 16_383 - 5]).len(), 16_383 + 3);
}

#[test]
fn sizes_are_known_before_adding() {
    for length in [0, 1, 63, 64, 125, 126, 4095, 4096, 16_377, 16_378] {
        let text = vec![b'x'; length];
        assert_eq!(Listpack::would_be(7, &text), listpack(&[&text]).into_bytes().len());
    }
    assert!(Listpack::may_grow(1 << 20, (1 << 30) - (1 << 20)));
    assert!(!Listpack::may_grow(1 << 20, (1 << 30) - (1 << 20) + 1));
}

#[test]
fn header_holds_size_and_count() {
    assert_eq!(Listpack::new().into_bytes(), [7, 0, 0, 0, 0, 0, 0xff]);
    assert_eq!(listpack(&[b"a", b"5"]).into_bytes(), [12, 0, 0, 0, 2, 0, 0x81, b'a', 2, 5, 1, 0xff]);
}

#[test]
fn count_beyond_sixteen_bits_is_found_by_walking() {
    let mut listpack = Listpack::new();
    (0..65_534).for_each(|_| listpack.push_back(b"1"));
    assert_eq!(listpack.as_ref().len(), 65_534);
    assert_eq!(listpack.as_ref().bytes()[4..6], [0xfe, 0xff]);
    (0..10).for_each(|_| listpack.push_back(b"2"));
    assert_eq!(listpack.as_ref().len(), 65_544);
    assert_eq!(listpack.as_ref().bytes()[4..6], [0xff, 0xff]);
    assert_eq!(listpack.as_ref().get(65_543), Some(Element::Int(2)));
    assert_eq!(listpack.as_ref().get(65_544), None);
    assert_eq!(listpack.as_ref().get(-65_544), Some(Element::Int(1)));
    assert_eq!(listpack.as_ref().get(-65_545), None);
    listpack.remove_range(listpack.as_ref().first().unwrap(), 65_540);
    assert_eq!(texts(&listpack), [b"2", b"2", b"2", b"2"]);
    assert_eq!(listpack.as_ref().len(), 4);
    assert!(Listpack::validated(listpack.into_bytes()).is_some());
}

#[test]
fn find_looks_at_every_step_only() {
    let pairs = listpack(&[b"a", b"b", b"b", b"1", b"7", b"a"]);
    let view = pairs.as_ref();
    let first = view.first().unwrap();
    assert_eq!(view.find(b"b", first, 1), view.seek(1));
    assert_eq!(view.find(b"b", first, 2), view.seek(2));
    assert_eq!(view.find(b"7", first, 2), view.seek(4));
    assert_eq!(view.find(b"07", first, 1), None);
    assert_eq!(view.find(b"1", first, 2), None);
    assert_eq!(view.find(b"a", view.seek(1).unwrap(), 4), view.seek(5));
    assert_eq!(view.find(b"b", view.end(), 1), None);
}

#[test]
fn integer_spelt_as_text_is_still_found() {
    let bytes = vec![10, 0, 0, 0, 1, 0, 0x81, b'5', 2, 0xff];
    let listpack = Listpack::validated(bytes).unwrap();
    assert!(listpack.as_ref().find(b"5", listpack.as_ref().first().unwrap(), 1).is_some());
    assert_eq!(listpack.as_ref().get(0).and_then(Element::int), Some(5));
    assert!(listpack.as_ref().get(0).unwrap().is(b"5"));
}

#[test]
fn hostile_bytes_are_refused() {
    let good = listpack(&[b"a", b"128", &[b'x'; 100], b"-70000", &[b'y'; 5000], b"9999999999"]).into_bytes();
    assert!(Listpack::validated(good.clone()).is_some());
    for cut in 0..good.len() {
        assert!(Listpack::validated(good[..cut].to_vec()).is_none());
        let mut resized = good[..cut].to_vec();
        if let Some(total) = resized.first_chunk_mut() {
            *total = (cut as u32).to_le_bytes();
        }
        assert!(Listpack::validated(resized).is_none());
    }
    let bad: [&[u8]; 9] = [
        &[8, 0, 0, 0, 0, 0, 0xff],                                // too long
        &[7, 0, 0, 0, 1, 0, 0xff],                                // too many
        &[7, 0, 0, 0, 0, 0, 0xfe],                                // no end
        &[9, 0, 0, 0, 1, 0, 5, 2, 0xff],                          // a wrong backward length
        &[9, 0, 0, 0, 1, 0, 0xf5, 1, 0xff],                       // no such encoding
        &[9, 0, 0, 0, 1, 0, 0xff, 1, 0xff],                       // an end before the end
        &[9, 0, 0, 0, 1, 0, 0x83, 4, 0xff],                       // a text that runs out
        &[8, 0, 0, 0, 1, 0, 0xe0, 0xff],                          // a head that runs out
        &[12, 0, 0, 0, 1, 0, 0xf0, 0xff, 0xff, 0xff, 0xff, 0xff], // 4 GB
    ];
    for bytes in bad {
        assert!(Listpack::validated(bytes.to_vec()).is_none(), "{bytes:?}");
    }
    let unknown = [9, 0, 0, 0, 0xff, 0xff, 5, 1, 0xff];
    assert_eq!(Listpack::validated(unknown.to_vec()).unwrap().as_ref().len(), 1);
}
