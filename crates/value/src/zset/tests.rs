use super::{Direction, LexBound, LexRange, ScoreBound, ScoreRange, Updated, Zset, ZsetRef};
use crate::collection::{Encoding, Thresholds, Type};
use crate::rdb::{RestoreError, Restored, dump, restore};
use std::cmp::Ordering;
use std::collections::HashSet;
use sys::Prng;

struct Seeded(Prng);

impl Seeded {
    fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    fn score(&mut self) -> f64 {
        const ODD: [f64; 8] = [0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, 0.1, -1e300, 5e-324, 1e17];
        match self.below(4) {
            0 => ODD[self.below(8) as usize],
            1 => self.below(1000) as f64 / 7.0,
            _ => self.below(10) as f64 - 5.0,
        }
    }

    fn member(&mut self, spread: u64) -> Vec<u8> {
        let number = self.below(spread);
        match number % 5 {
            0 if number == 0 => Vec::new(),
            1 => format!("{number}").into_bytes(),
            2 => vec![b'x'; (number % 70) as usize],
            3 => vec![number as u8, 0, (number >> 8) as u8],
            _ => format!("member:{number}").into_bytes(),
        }
    }
}

/// Members in order, naively.
#[derive(Default)]
struct Model(Vec<(Vec<u8>, f64)>);

impl Model {
    fn place(&self, member: &[u8]) -> Option<usize> {
        self.0.iter().position(|(other, _)| other == member)
    }

    fn set(&mut self, member: &[u8], score: f64) {
        if let Some(place) = self.place(member) {
            self.0.remove(place);
        }
        self.0.push((member.to_vec(), score));
        self.0.sort_by(|left, right| {
            let by_score = left.1.partial_cmp(&right.1).unwrap_or(Ordering::Equal);
            by_score.then_with(|| left.0.cmp(&right.0))
        });
    }
}

fn contents(zset: ZsetRef<'_>) -> Vec<(Vec<u8>, f64)> {
    zset.iter(0..usize::MAX).map(|(member, score)| (member.to_vec(), score)).collect()
}

fn compare(zset: &Zset, model: &Model, random: &mut Seeded) {
    let view = zset.as_ref();
    assert_eq!(zset.len(), model.0.len());
    assert_eq!(contents(view), model.0);
    if let Zset::Native(native) = zset {
        native.check();
    }
    for (rank, (member, score)) in model.0.iter().enumerate() {
        assert_eq!(view.score(member), Some(*score));
        assert_eq!(view.rank(member), Some((rank, *score)));
        assert_eq!(
            view.at(rank).map(|(member, score)| (member.to_vec(), score)),
            Some((member.clone(), *score))
        );
    }
    assert_eq!(view.at(model.0.len()), None);
    assert_eq!(view.score(b"nobody"), None);
    for _ in 0..10 {
        let mut bound = || ScoreBound { score: random.score(), is_exclusive: random.below(2) == 0 };
        let range = ScoreRange { min: bound(), max: bound() };
        let inside = |score: f64| !range.is_before(score) && !range.is_behind(score);
        let expected: Vec<usize> = (0..model.0.len()).filter(|rank| inside(model.0[*rank].1)).collect();
        assert_eq!(view.ranks_by_score(&range).collect::<Vec<_>>(), expected, "{range:?}");
        let (first, last) = (random.below(200) as usize, random.below(200) as usize);
        let part: Vec<_> =
            view.iter(first..last).rev().map(|(member, score)| (member.to_vec(), score)).collect();
        let expected: Vec<_> = model.0.iter().take(last).skip(first).rev().cloned().collect();
        assert_eq!(part, expected);
    }
    let mut scanned = HashSet::new();
    let mut cursor = 0;
    loop {
        cursor = view.scan(cursor, 7, |member, score| {
            scanned.insert((member.to_vec(), score.to_bits()));
        });
        if cursor == 0 {
            break;
        }
    }
    assert_eq!(scanned.len(), model.0.len());
    match restore(&dump(view.into_collection()), &thresholds(0)) {
        Ok(Restored::Collection(restored)) => {
            assert_eq!(contents(Zset::read(restored.as_ref()).expect("it is a sorted set")), model.0);
        }
        other => assert!(model.0.is_empty(), "{other:?}"),
    }
    assert_eq!(contents(view.to_owned().as_ref()), model.0);
}

impl<'a> ZsetRef<'a> {
    fn into_collection(self) -> crate::collection::CollectionRef<'a> {
        crate::collection::CollectionRef::Zset(self)
    }
}

fn thresholds(entries: usize) -> Thresholds {
    Thresholds { zset_max_listpack_entries: entries, ..Thresholds::default() }
}

fn run(seed: u64, entries: usize, spread: u64, steps: usize) {
    println!("seed {seed}: {entries} entries packed, members of {spread}");
    let mut random = Seeded(Prng::from_seed(seed));
    let thresholds = thresholds(entries);
    let (mut zset, mut model) = (Zset::for_members(1, 0, &thresholds), Model::default());
    for step in 0..steps {
        let member = random.member(spread);
        let known = model.place(&member).map(|place| model.0[place].1);
        match random.below(8) {
            0..=4 => {
                let mut score = random.score();
                if let (0, Some(known)) = (random.below(2), known) {
                    score = known + 0.001;
                }
                let was_packed = zset.as_ref().encoding() == Encoding::Listpack;
                let updated = zset.update(&member, &thresholds, |old| {
                    assert_eq!(old, known);
                    Ok::<_, ()>(Some(score))
                });
                let expected = match known {
                    None => Updated::Added(score),
                    Some(known) if known == score => Updated::Same(score),
                    Some(_) => Updated::Changed(score),
                };
                assert_eq!(updated, Ok(expected));
                if known != Some(score) {
                    model.set(&member, score);
                }
                let is_small = model.0.len() <= entries && (known.is_some() || member.len() <= 64);
                let expected = if was_packed && is_small { Encoding::Listpack } else { Encoding::Skiplist };
                assert_eq!(zset.as_ref().encoding(), expected);
            }
            5 => assert_eq!(zset.update(&member, &thresholds, |_| Err(7)), Err(7)),
            6 => {
                let removed = model.place(&member).map(|place| model.0.remove(place).1);
                assert_eq!(zset.remove(&member), removed);
            }
            _ => {
                let start = random.below(model.0.len() as u64 + 2) as usize;
                let end = start + random.below(4) as usize;
                zset.remove_range(start..end);
                let kept = model.0.len();
                model.0.drain(start.min(kept)..end.min(kept));
            }
        }
        if step % 97 == 0 {
            compare(&zset, &model, &mut random);
        }
    }
    compare(&zset, &model, &mut random);
}

#[test]
fn every_encoding_agrees_with_a_sorted_vector() {
    let seed = std::env::var("TARN_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    for (entries, spread) in [(1_000_000, 100), (0, 100), (0, 2000), (30, 60), (128, 1000)] {
        run(seed, entries, spread, 3000);
    }
}

#[test]
fn members_of_equal_scores_are_found_in_their_order() {
    for entries in [128, 0] {
        let members = ["a", "b", "c", "d", "e"].map(|member| (member, 0.0)).to_vec();
        let zset = Zset::from_members(members, &thresholds(entries));
        let ranks = |min, max, direction| zset.as_ref().ranks_by_lex(&LexRange { min, max }, direction);
        use LexBound::{Exclusive, Highest, Inclusive, Lowest};
        for direction in [Direction::Forward, Direction::Backward] {
            assert_eq!(ranks(Lowest, Highest, direction), 0..5);
            assert_eq!(ranks(Inclusive(b"b"), Exclusive(b"d"), direction), 1..3);
            assert_eq!(ranks(Exclusive(b"b"), Inclusive(b"d"), direction), 2..4);
            assert!(ranks(Highest, Lowest, direction).is_empty());
            assert!(ranks(Exclusive(b"b"), Inclusive(b"b"), direction).is_empty());
            assert!(ranks(Inclusive(b"x"), Highest, direction).is_empty());
        }
    }
}

#[test]
fn many_members_at_once_make_a_set_native() {
    let thresholds = thresholds(3);
    let mut zset = Zset::for_members(3, 64, &thresholds);
    zset.expect_members(3, &thresholds);
    assert_eq!(zset.as_ref().encoding(), Encoding::Listpack);
    zset.expect_members(4, &thresholds);
    assert_eq!(zset.as_ref().encoding(), Encoding::Skiplist);
    assert_eq!(Zset::for_members(1, 65, &thresholds).as_ref().encoding(), Encoding::Skiplist);
}

#[test]
fn images_that_are_no_sorted_sets_are_refused() {
    let good: Vec<u8> = {
        let members = [("a", 1.0), ("b", 2.5), ("c", f64::INFINITY)].to_vec();
        dump(Zset::from_members(members, &thresholds(0)).as_ref().into_collection())
    };
    let body = &good[..good.len() - 10];
    let sealed = |body: &[u8]| {
        let mut payload = [body, &10u16.to_le_bytes()].concat();
        payload.extend_from_slice(&crate::crc64::crc64(0, &payload).to_le_bytes());
        payload
    };
    let read = |body: &[u8]| match restore(&sealed(body), &Thresholds::default()) {
        Ok(Restored::Collection(collection)) => Ok(collection.len()),
        Ok(Restored::String(_)) => Ok(0),
        Err(error) => Err(error),
    };
    assert_eq!(read(body), Ok(3));
    for cut in 1..body.len() {
        assert_eq!(read(&body[..cut]), Err(RestoreError::BadFormat));
    }
    let mut random = Seeded(Prng::from_seed(5));
    for _ in 0..20_000 {
        let mut bad = body.to_vec();
        bad[0] = [3, 5, 12, 17][random.below(4) as usize];
        for _ in 0..=random.below(3) {
            let at = random.below(bad.len() as u64) as usize;
            bad[at] = random.below(256) as u8;
        }
        // Whatever is accepted can be used.
        if let Ok(Restored::Collection(collection)) = restore(&sealed(&bad), &Thresholds::default()) {
            assert_eq!(collection.len(), dump_len(&collection));
        }
    }
    let texts = b"\x03\x03\x01a\x011\x01b\xfe\x01c\xff";
    assert_eq!(read(texts), Ok(3));
    assert_eq!(read(b"\x03\x02\x01a\x011\x01a\x012"), Err(RestoreError::BadFormat));
    assert_eq!(read(b"\x03\x01\x01a\xfd"), Err(RestoreError::BadFormat));
    assert_eq!(read(b"\x05\x00"), Err(RestoreError::BadFormat));
    // A ziplist: its size, the offset of the last entry, the count, "a", 1 and the end.
    let ziplist = b"\x0c\x10\x10\0\0\0\x0d\0\0\0\x02\0\0\x01a\x03\xf2\xff";
    assert_eq!(read(ziplist), Ok(1));
}

fn dump_len(collection: &crate::collection::Collection) -> usize {
    match Zset::read(collection.as_ref()) {
        Some(zset) => zset.iter(0..usize::MAX).count(),
        None => collection.len(),
    }
}

#[test]
fn exact_images_keep_the_sign_of_zero_and_other_scores() {
    let thresholds = Thresholds::default();
    let scores = [-0.0, 0.0, f64::NEG_INFINITY, f64::INFINITY, 0.1, 5e-324, -1e300];
    let members = scores.iter().map(|score| (format!("{score:?}"), *score)).collect();
    let zset = Zset::native_of(members);
    let payload = crate::rdb::dump_exactly(
        crate::collection::CollectionRef::Zset(zset.as_ref()),
        crate::stream::Reads::Redis72,
    );
    let Ok(Restored::Collection(restored)) = restore(&payload, &thresholds) else { panic!("it is an image") };
    let crate::collection::Collection::Zset(restored) = restored else { panic!("of a sorted set") };
    assert!(matches!(restored.as_ref(), ZsetRef::Native(_)));
    for (member, score) in restored.as_ref().iter(0..scores.len()) {
        assert_eq!(format!("{score:?}").into_bytes(), member.to_vec());
    }
    // Without a -0 it is as small as it can be.
    let zset = Zset::native_of(vec![("a", 0.0)]);
    let collection = crate::collection::CollectionRef::Zset(zset.as_ref());
    assert_eq!(crate::rdb::dump_exactly(collection, crate::stream::Reads::Redis72), dump(collection));
}
