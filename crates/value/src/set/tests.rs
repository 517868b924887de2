//! Sets against a naive model, in every encoding and across the thresholds, and the
//! encodings that Redis' rules lead to.

use super::*;
use crate::collection::Thresholds;
use crate::listpack::Listpack;
use crate::rdb::{Restored, dump, keep, restore};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use sys::Prng;

type Model = BTreeSet<Vec<u8>>;

fn few() -> Thresholds {
    Thresholds {
        set_max_intset_entries: 20,
        set_max_listpack_entries: 12,
        set_max_listpack_value: 10,
        ..Thresholds::default()
    }
}

/// A text out of few: integers of all widths, near-integers, short and long words.
fn text(prng: &mut Prng, ints_only: bool) -> Vec<u8> {
    let number = prng.below(40) as i64 - 20;
    match if ints_only { 0 } else { prng.below(6) } {
        0 if prng.one_in(8) => (number << prng.below(58)).to_string().into(),
        0 => number.to_string().into(),
        1 => format!("0{number}").into(),
        2 => format!("member:{number:08}").into(),
        3 if prng.one_in(10) => vec![b'x'; prng.below(300) as usize],
        _ => format!("m{number}").into(),
    }
}

fn sorted(set: SetRef<'_>) -> Vec<Vec<u8>> {
    let mut members: Vec<_> = set.iter().map(Element::to_vec).collect();
    members.sort();
    members
}

fn check(set: &Set, model: &Model) {
    assert!(sorted(set.as_ref()).iter().eq(model), "{set:?}");
    assert_eq!(set.len(), model.len());
    if let Set::Ints(ints) = set
        && !model.is_empty()
    {
        assert!(Intset::validated(ints.as_ref().bytes().to_vec()).is_some());
    }
    if let Set::Listpack(listpack) = set {
        assert!(Listpack::validated(listpack.as_ref().bytes().to_vec()).is_some());
    }
}

fn survives_storing(set: &Set, model: &Model, thresholds: &Thresholds) {
    if let Some((form, bytes)) = set.compact() {
        check(&Set::from_compact(form, bytes.to_vec()), model);
        assert!(sorted(SetRef::from_compact(form, bytes)).iter().eq(model));
    }
    check(&set.as_ref().to_owned(), model);
    if !model.is_empty() {
        let payload = dump(CollectionRef::Set(set.as_ref()));
        let Ok(Restored::Collection(Collection::Set(restored))) = restore(&payload, thresholds) else {
            panic!("the payload is refused")
        };
        check(&restored, model);
    }
}

fn picks(set: &mut Set, model: &mut Model, thresholds: &Thresholds, prng: &mut Prng) {
    let mut random = {
        let mut own = prng.clone();
        move || own.next_u64()
    };
    let picked = set.as_ref().random(&mut random).map(Element::to_vec);
    assert_eq!(picked.is_some(), !model.is_empty());
    assert!(picked.is_none_or(|member| model.contains(&member)));
    let count = prng.below(model.len() as u64 + 2) as usize;
    let mut sample = Model::new();
    let mut shown = 0;
    set.as_ref().sample(count, &mut random, |member| {
        shown += 1;
        sample.insert(member.to_vec());
    });
    assert_eq!((sample.len(), shown), (count.min(model.len()), count.min(model.len())));
    assert!(sample.is_subset(model));
    if prng.one_in(4) {
        let mut popped = Vec::new();
        let came_to = set.pop(count, thresholds, &mut random, &mut |member| popped.push(member.to_vec()));
        assert_eq!(came_to == Popped::All, count >= model.len());
        assert_eq!(popped.len(), if came_to == Popped::All { 0 } else { count });
        assert!(popped.iter().all(|member| model.remove(member)));
    }
}

#[test]
fn sets_agree_with_a_naive_model_in_every_encoding() {
    let seed = sys::prng::entropy_seed();
    println!("seed {seed}");
    let mut prng = Prng::from_seed(seed);
    let mut seen = BTreeSet::new();
    for _ in 0..300 {
        let thresholds = if prng.one_in(2) { few() } else { Thresholds::default() };
        let ints_only = prng.one_in(2);
        let first = text(&mut prng, ints_only);
        let mut set = Set::new_for(&first, prng.below(30) as usize, &thresholds);
        let mut model = Model::new();
        for step in 0..150 {
            let member = text(&mut prng, ints_only && step < 100);
            assert_eq!(set.as_ref().contains(&member), model.contains(&member));
            match prng.below(8) {
                0..=4 => assert_eq!(set.insert(&member, &thresholds), model.insert(member)),
                5 | 6 => assert_eq!(set.remove(&member), model.remove(&member)),
                _ => picks(&mut set, &mut model, &thresholds, &mut prng),
            }
            if prng.one_in(40) {
                set.prepare_for(prng.below(25) as usize, &thresholds);
            }
            seen.insert(set.as_ref().encoding().name());
            check(&set, &model);
        }
        survives_storing(&set, &model, &thresholds);
    }
    assert_eq!(seen.len(), 3, "an encoding was never reached");
}

fn random_set(prng: &mut Prng, thresholds: &Thresholds) -> (Set, Model) {
    let (ints_only, len) = (prng.one_in(2), prng.below(40));
    let first = text(prng, ints_only);
    let (mut set, mut model) = (Set::new_for(&first, 0, thresholds), Model::new());
    for _ in 0..len {
        let member = text(prng, ints_only);
        set.insert(&member, thresholds);
        model.insert(member);
    }
    (set, model)
}

#[test]
fn combinations_agree_with_a_naive_model() {
    let seed = sys::prng::entropy_seed();
    println!("seed {seed}");
    let mut prng = Prng::from_seed(seed);
    for _ in 0..3000 {
        let thresholds = if prng.one_in(2) { few() } else { Thresholds::default() };
        let (sets, models): (Vec<Set>, Vec<Model>) =
            (0..=prng.below(5)).map(|_| random_set(&mut prng, &thresholds)).unzip();
        let sets: Vec<SetRef<'_>> = sets.iter().map(Type::as_ref).collect();
        let expected = models[1..].iter().fold(models[0].clone(), |all, model| &all & model);
        let mut shown = Vec::new();
        intersection(&sets, |member| {
            shown.push(member.to_vec());
            ControlFlow::Continue(())
        });
        shown.sort();
        assert!(shown.iter().eq(&expected));
        check(&stored_intersection(&sets, &thresholds), &expected);

        let expected = models.iter().fold(Model::new(), |all, model| &all | model);
        let mut shown = Vec::new();
        union(&sets, |member| shown.push(member.to_vec()));
        shown.sort();
        assert!(shown.iter().eq(&expected));
        check(&stored_union(&sets, &thresholds), &expected);

        let expected = models[1..].iter().fold(models[0].clone(), |all, model| &all - model);
        let mut shown = Vec::new();
        difference(sets[0], &sets[1..], |member| shown.push(member.to_vec()));
        shown.sort();
        assert!(shown.iter().eq(&expected));
        check(&stored_difference(sets[0], &sets[1..], &thresholds), &expected);
    }
}

#[test]
fn large_tables_intersect_and_scan_whole() {
    let thresholds = Thresholds::default();
    let set_of = |numbers: std::ops::Range<u32>| {
        let mut set = Set::Table(Members::default());
        numbers.for_each(|number| {
            set.insert(format!("member:{number}").as_bytes(), &thresholds);
        });
        set
    };
    let (a, b) = (set_of(0..30_000), set_of(20_000..60_000));
    assert_eq!(stored_intersection(&[a.as_ref(), b.as_ref()], &thresholds).len(), 10_000);
    let (mut from, mut seen, mut calls) = (Some(Position(0)), 0, 0);
    while let Some(at) = from {
        from = a.as_ref().scan(at, 10, |_| seen += 1);
        calls += 1;
    }
    assert_eq!(seen, 30_000);
    assert!((2000..=3000).contains(&calls), "{calls} calls");
}

/// What a set of these members, added one by one, is encoded as.
fn encoding_of(members: &[&str], thresholds: &Thresholds) -> &'static str {
    let mut set = Set::new_for(members[0].as_bytes(), 1, thresholds);
    members.iter().for_each(|member| {
        set.insert(member.as_bytes(), thresholds);
    });
    set.as_ref().encoding().name()
}

#[test]
fn encodings_change_at_the_thresholds_of_redis() {
    let numbers: Vec<String> = (0..513).map(|number| number.to_string()).collect();
    let numbers: Vec<&str> = numbers.iter().map(String::as_str).collect();
    let words: Vec<String> = (0..129).map(|number| format!("m{number}")).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let long = "x".repeat(65);
    let cases: [(&[&str], &str); 10] = [
        (&numbers[..512], "intset"),
        (&numbers, "hashtable"),
        (&words[..128], "listpack"),
        (&words, "hashtable"),
        (&["1", "m"], "listpack"),
        (&[&numbers[..127], &["m"]].concat(), "listpack"),
        (&[&numbers[..128], &["m"]].concat(), "hashtable"),
        (&["1", &long], "hashtable"),
        (&["m", &long], "hashtable"),
        (&["m", &long[1..]], "listpack"),
    ];
    for (members, expected) in cases {
        assert_eq!(encoding_of(members, &Thresholds::default()), expected, "{members:?}");
    }
    let narrow = Thresholds { set_max_listpack_value: 3, ..Thresholds::default() };
    assert_eq!(encoding_of(&["1000", "m"], &narrow), "hashtable");
    assert_eq!(encoding_of(&["100", "m"], &narrow), "listpack");
}

#[test]
fn what_is_stored_has_the_encoding_that_redis_gives_it() {
    let thresholds = Thresholds::default();
    let set_of = |members: &[&str], hint: usize| {
        let mut set = Set::new_for(members[0].as_bytes(), hint, &thresholds);
        members.iter().for_each(|member| {
            set.insert(member.as_bytes(), &thresholds);
        });
        set
    };
    let name = |set: Set| set.as_ref().encoding().name();
    let (table, mixed, ints) =
        (set_of(&["1", "2", "a"], 1000), set_of(&["1", "2", "b"], 1), set_of(&["1", "2"], 1));
    assert_eq!(name(table.clone()), "hashtable");
    // All that remain are integers.
    assert_eq!(name(stored_intersection(&[mixed.as_ref(), table.as_ref()], &thresholds)), "intset");
    assert_eq!(name(stored_intersection(&[table.as_ref(), table.as_ref()], &thresholds)), "listpack");
    assert_eq!(name(stored_union(&[ints.as_ref(), ints.as_ref()], &thresholds)), "intset");
    assert_eq!(name(stored_union(&[table.as_ref(), ints.as_ref()], &thresholds)), "listpack");
    assert_eq!(name(stored_difference(mixed.as_ref(), &[table.as_ref()], &thresholds)), "listpack");
}

#[test]
fn popping_most_of_a_table_leaves_a_listpack() {
    let thresholds = Thresholds::default();
    let mut prng = Prng::from_seed(1);
    let mut set = Set::Table(Members::default());
    (0..200).for_each(|number| {
        set.insert(format!("m{number}").as_bytes(), &thresholds);
    });
    let mut random = || prng.next_u64();
    assert_eq!(set.pop(150, &thresholds, &mut random, &mut |_| ()), Popped::Some);
    assert_eq!(set.as_ref().encoding(), Encoding::Hashtable);
    assert_eq!(set.pop(45, &thresholds, &mut random, &mut |_| ()), Popped::Some);
    assert_eq!((set.as_ref().encoding(), set.len()), (Encoding::Listpack, 5));
    assert_eq!(set.pop(5, &thresholds, &mut random, &mut |_| ()), Popped::All);
}

#[test]
fn images_are_those_of_redis() {
    let thresholds = Thresholds::default();
    let image = |members: &[&str]| {
        let mut set = Set::new_for(members[0].as_bytes(), 1, &thresholds);
        members.iter().for_each(|member| {
            set.insert(member.as_bytes(), &thresholds);
        });
        let mut out = Vec::new();
        set.as_ref().write_image(&mut out, &mut keep);
        out
    };
    assert_eq!(image(&["1", "-2"]), b"\x0b\x0c\x02\0\0\0\x02\0\0\0\xfe\xff\x01\0");
    assert_eq!(image(&["a", "7"]), b"\x02\x02\x01a\xc0\x07");
}

#[test]
fn hostile_images_are_refused_or_read_as_sound_sets() {
    const FOOTER_BYTES: usize = 8;
    let seed = sys::prng::entropy_seed();
    println!("seed {seed}");
    let mut prng = Prng::from_seed(seed);
    let thresholds = few();
    for _ in 0..20_000 {
        let (set, model) = random_set(&mut prng, &thresholds);
        if model.is_empty() {
            continue;
        }
        let mut payload = match &set {
            Set::Listpack(listpack) => {
                // The form of Redis 7.2, which is only read.
                let mut payload = vec![20];
                crate::rdb::write_string(&mut payload, listpack.as_ref().bytes());
                payload.extend_from_slice(&10u16.to_le_bytes());
                payload
            }
            _ => {
                let mut payload = dump(CollectionRef::Set(set.as_ref()));
                payload.truncate(payload.len() - FOOTER_BYTES);
                payload
            }
        };
        let body = payload.len() as u64 - 2;
        for _ in 0..prng.below(4) {
            let at = prng.below(body) as usize;
            payload[at] = [0, 0xff, payload[at] ^ 1, prng.next_u64() as u8][prng.below(4) as usize];
        }
        payload.extend_from_slice(&crate::crc64::crc64(0, &payload).to_le_bytes());
        if let Ok(Restored::Collection(Collection::Set(restored))) = restore(&payload, &thresholds) {
            let members = sorted(restored.as_ref());
            assert!(!members.is_empty() && members.windows(2).all(|pair| pair[0] < pair[1]));
            assert!(members.iter().all(|member| restored.as_ref().contains(member)));
        }
    }
}
