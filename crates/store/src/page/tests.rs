use super::*;
use crate::number::SegmentNo;
use crate::record::Image;
use sys::{Prng, UnixMs};

const IDENTITY: Identity = Identity { store: 11, generation: 22 };

fn geometry() -> Geometry {
    Geometry::near(64)
}

fn no() -> PageNo {
    geometry().page(SegmentNo(3), 5)
}

fn record<'a>(database: u32, key: &'a [u8], image: &'a [u8]) -> Record<'a> {
    let expires_at = (database > 0).then_some(UnixMs(9));
    Record { database, key, expires_at, kind: 3, flags: 4, image: Image::Plain(image) }
}

/// A page of records of some 130 bytes.
fn page() -> (Vec<u8>, u16) {
    let mut bytes = vec![7; PAGE_BYTES];
    let (mut used, mut count) = (0, 0);
    loop {
        let key = format!("user:{count:012}");
        let image = [count as u8; 100];
        let record = record(u32::from(count) % 4 * 100, key.as_bytes(), &image);
        let head = record.head(Role::Whole);
        if used + head.record_bytes(Width::Short) > ROOM {
            break;
        }
        used = put(&mut bytes, used, &head, &record);
        count += 1;
    }
    seal(&mut bytes, IDENTITY, no(), Header { kind: PageKind::Records, count, used: used as u16 });
    (bytes, count)
}

/// The first page of an extent.
fn extent(role: Role, key: &[u8], image: &[u8]) -> Vec<u8> {
    let head = record(1, key, image).head(role);
    let mut content = [0; HEAD_BYTES_MAX];
    let length = head.encode(Width::Long, &mut content);
    let content = [&content[..length], key, image].concat();
    let used = content.len().min(ROOM);
    let mut bytes = vec![0; PAGE_BYTES];
    bytes[HEADER_BYTES..HEADER_BYTES + used].copy_from_slice(&content[..used]);
    seal(&mut bytes, IDENTITY, no(), Header { kind: PageKind::Extent, count: 1, used: used as u16 });
    bytes
}

fn parse(bytes: &[u8]) -> Result<Page<'_>, Wrong> {
    Page::parse_as(bytes, no(), IDENTITY, geometry())
}

fn reseal(bytes: &mut [u8]) {
    let crc = crc32c::crc32c(&bytes[4..]);
    bytes[..4].copy_from_slice(&crc.to_le_bytes());
}

#[test]
fn every_record_of_a_page_is_found_and_no_other() {
    let (bytes, count) = page();
    assert!(count >= 28, "{count}");
    let page = parse(&bytes).unwrap();
    assert_eq!(page.records().count(), count as usize);
    for index in 0..count {
        let key = format!("user:{index:012}");
        let database = u32::from(index) % 4 * 100;
        let Some(Found::Here(found)) = page.find(database, key.as_bytes()) else { panic!("{key}") };
        assert_eq!(found, record(database, key.as_bytes(), &[index as u8; 100]));
        assert!(page.find(database + 1, key.as_bytes()).is_none());
    }
    assert!(page.find(0, b"user:").is_none());
}

#[test]
fn a_page_of_another_place_or_use_of_the_file_is_refused() {
    let (bytes, _) = page();
    let other = |store, generation| Identity { store, generation };
    let parse_as = |no, identity| Page::parse_as(&bytes, no, identity, geometry()).map(|_| ());
    assert_eq!(parse_as(no(), other(12, 22)), Err(Wrong::Store));
    assert_eq!(parse_as(no(), other(11, 23)), Err(Wrong::Stale));
    assert_eq!(parse_as(no().plus(1).unwrap(), IDENTITY), Err(Wrong::Place));
    assert_eq!(parse(&bytes[..4095]).map(|_| ()), Err(Wrong::Length));
    assert_eq!(parse(&[0; PAGE_BYTES]).map(|_| ()), Err(Wrong::Checksum));
    let mut newer = bytes.clone();
    newer[4] = 2;
    reseal(&mut newer);
    assert_eq!(parse(&newer).map(|_| ()), Err(Wrong::Newer));
}

#[test]
fn a_bit_turned_over_anywhere_is_refused() {
    let (bytes, _) = page();
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(parse(&damaged).map(|_| ()), Err(Wrong::Checksum), "bit {bit}");
    }
}

#[test]
fn the_beginning_of_an_extent_says_what_else_to_read() {
    let bytes = extent(Role::Whole, b"key", &[1; 20_000]);
    let page = parse(&bytes).unwrap();
    let Some(Found::Continues(rest)) = page.find(1, b"key") else { panic!("it goes on") };
    assert_eq!((rest.key(), rest.image_bytes(), rest.runs().len()), (Some(&b"key"[..]), 20_000, 1));
    assert_eq!((rest.runs()[0].first, rest.runs()[0].pages), (no().plus(1).unwrap(), 4));
    assert!(page.find(1, b"kez").is_none() && page.find(0, b"key").is_none());
    let bytes = extent(Role::Whole, b"key", b"short");
    assert!(matches!(parse(&bytes).unwrap().find(1, b"key"), Some(Found::Here(_))));
    let bytes = extent(Role::Whole, b"key", &[1; 59 * ROOM]);
    assert_eq!(parse(&bytes).map(|_| ()), Err(Wrong::Content("an extent leaves its segment")));
    let bytes = extent(Role::Part, b"", &[1; 100]);
    assert!(parse(&bytes).unwrap().find(1, b"").is_none(), "a part is nobody's record");
    let bytes = extent(Role::Manifest, b"key", &[255; 16]);
    assert_eq!(parse(&bytes).map(|_| ()), Err(Wrong::Content("a list of parts is none")));
}

/// Pages whose checksum is right and whose content is anything: only damage to memory or a fault of this program makes them.
#[test]
fn pages_with_a_right_checksum_and_wrong_content_never_panic() {
    let mut prng = Prng::from_seed(1);
    let list = [&100u64.to_le_bytes()[..], &no().get().to_le_bytes(), &2u32.to_le_bytes()].concat();
    let pages = [page().0, extent(Role::Whole, b"key", &[1; 9000]), extent(Role::Manifest, b"key", &list)];
    let (mut right, mut wrong) = (0, 0);
    for _ in 0..60_000 {
        let mut bytes = pages[prng.below(3) as usize].clone();
        for _ in 0..=prng.below(3) {
            let at = match prng.below(3) {
                0 => 5 + prng.below(27),
                1 => 32 + prng.below(60),
                _ => 5 + prng.below(PAGE_BYTES as u64 - 5),
            };
            bytes[at as usize] = if prng.one_in(3) { 255 } else { prng.next_u64() as u8 };
        }
        reseal(&mut bytes);
        match parse(&bytes) {
            Ok(page) => {
                right += 1;
                for found in page.records() {
                    match found {
                        Found::Here(record) => drop(record.to_owned()),
                        Found::Continues(rest) => assert!(rest.runs().iter().all(|run| run.pages > 0)),
                    }
                }
                page.find(1, b"key");
            }
            Err(_) => wrong += 1,
        }
        let noise: Vec<u8> = (0..PAGE_BYTES).map(|_| prng.next_u64() as u8).collect();
        assert!(right > 1000 || parse(&noise).is_err());
    }
    assert!(right > 1000 && wrong > 1000, "{right} {wrong}");
}
