//! Listpacks against a vector of texts, by edits; and hostile bytes, which must be refused or readable.

use value::listpack::{Element, Listpack, ListpackRef};

use super::{Prng, fuzz};

fn text(prng: &mut Prng) -> Vec<u8> {
    match prng.below(8) {
        0 => (prng.next() as i64 >> prng.below(64)).to_string().into_bytes(),
        1 => prng.bytes_of(b"0123456789-", 0..=21),
        2 => {
            let length = prng.pick(&[62, 63, 64, 125, 126, 127, 4094, 4095, 4096, 16_376, 16_378]);
            prng.bytes_of(b"x", length..=length)
        }
        3 => (prng.below(4) as i64 - 1).to_string().into_bytes(),
        _ => prng.bytes_of(b"abc", 0..=3),
    }
}

fn assert_same(listpack: ListpackRef<'_>, model: &[Vec<u8>], prng: &mut Prng) {
    assert_eq!(listpack.len(), model.len());
    assert_eq!(listpack.is_empty(), model.is_empty());
    assert!(listpack.iter().map(Element::to_vec).eq(model.iter().cloned()));
    assert!(listpack.iter().rev().map(Element::to_vec).eq(model.iter().rev().cloned()));
    let size = model.iter().fold(7, |bytes, text| Listpack::would_be(bytes, text));
    assert_eq!(listpack.bytes().len(), size);
    let index = prng.index(model.len() as i64 + 1);
    let expected = if index < 0 { index + model.len() as i64 } else { index };
    let expected = usize::try_from(expected).ok().and_then(|index| model.get(index));
    assert_eq!(listpack.get(index as isize).map(Element::to_vec).as_ref(), expected, "{index}");
    let (wanted, step) = (text(prng), 1 + prng.below(3));
    let from = prng.below(model.len() + 1);
    let found = model.iter().enumerate().skip(from).step_by(step).find(|(_, text)| **text == wanted);
    let from = listpack.seek(from as isize).unwrap_or(listpack.end());
    assert_eq!(
        listpack.find(&wanted, from, step),
        found.and_then(|(index, _)| listpack.seek(index as isize)),
        "{wanted:?} by {step}"
    );
}

fn edit(listpack: &mut Listpack, model: &mut Vec<Vec<u8>>, prng: &mut Prng) {
    let new = text(prng);
    let index = prng.below(model.len() + 1);
    let at = listpack.as_ref().seek(index as isize).unwrap_or(listpack.as_ref().end());
    match prng.below(10) {
        0..3 => {
            listpack.push_back(&new);
            model.push(new);
        }
        3 => {
            listpack.push_front(&new);
            model.insert(0, new);
        }
        4 => {
            listpack.insert_before(at, &new);
            assert!(listpack.as_ref().element(at).is(&new));
            model.insert(index, new);
        }
        5 if index < model.len() => {
            listpack.replace(at, &new);
            model[index] = new;
        }
        6 if index < model.len() => {
            assert_eq!(listpack.remove(at), at);
            model.remove(index);
        }
        7 if prng.below(4) == 0 => {
            let count = prng.below(model.len() + 3);
            listpack.remove_range(at, count);
            model.drain(index..(index + count).min(model.len()));
        }
        8 if prng.below(4) == 0 => {
            let tail = listpack.split_off(at);
            let expected = model.split_off(index);
            assert_same(tail.as_ref(), &expected, prng);
            if prng.below(2) == 0 {
                listpack.append(tail.as_ref());
                model.extend(expected);
            }
        }
        _ => {
            let bytes = listpack.as_ref().bytes().to_vec();
            *listpack = Listpack::validated(bytes).expect("a listpack is valid after every edit");
        }
    }
}

#[test]
fn listpacks_agree_with_a_vector_after_every_edit() {
    fuzz(60, |prng| {
        let (mut listpack, mut model) = (Listpack::new(), Vec::new());
        for _ in 0..prng.below(120) {
            edit(&mut listpack, &mut model, prng);
            assert_same(listpack.as_ref(), &model, prng);
        }
    });
}

#[test]
fn damaged_listpacks_are_refused_or_readable() {
    fuzz(3_000, |prng| {
        let mut listpack = Listpack::new();
        (0..prng.below(12)).for_each(|_| listpack.push_back(&text(prng)));
        let mut bytes = listpack.into_bytes();
        for _ in 0..=prng.below(3) {
            let index = prng.below(bytes.len());
            bytes[index] = prng.next() as u8;
        }
        if let Some(listpack) = Listpack::validated(bytes) {
            let forward: Vec<_> = listpack.as_ref().iter().collect();
            let mut backward: Vec<_> = listpack.as_ref().iter().rev().collect();
            backward.reverse();
            assert_eq!(forward, backward);
            assert_eq!(forward.len(), listpack.as_ref().len());
        }
    });
}
