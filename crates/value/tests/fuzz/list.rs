//! Lists against a deque of texts, by every operation, across the sizes at which their form changes.

use std::collections::VecDeque;

use value::collection::{CollectionRef, Thresholds, Type};
use value::list::{End, Fill, List, Room, Side};
use value::listpack::Element;
use value::rdb::{dump, restore};

use super::{Prng, fuzz};

type Model = VecDeque<Vec<u8>>;

fn text(prng: &mut Prng) -> Vec<u8> {
    match prng.below(12) {
        0 => (prng.next() as i64 >> prng.below(64)).to_string().into_bytes(),
        // Round about what an entry's room in front can hold.
        1 if prng.below(4) == 0 => {
            let length = 65_520 + prng.below(20);
            prng.bytes_of(b"y", length..=length)
        }
        1 => {
            let length = prng.pick(&[100, 1000, 3000, 4080, 4096, 4097, 8100, 8180, 8192, 8193, 9000]);
            prng.bytes_of(b"x", length..=length)
        }
        2..5 => prng.below(5).to_string().into_bytes(),
        _ => prng.bytes_of(b"ab", 0..=3),
    }
}

fn assert_same(list: &List, model: &Model, prng: &mut Prng) {
    let view = list.as_ref();
    assert_eq!((view.len(), view.is_empty()), (model.len(), model.is_empty()));
    assert!(view.iter().map(Element::to_vec).eq(model.iter().cloned()));
    let (index, count) = (prng.below(model.len() + 2), prng.below(model.len() + 2));
    assert_eq!(view.get(index).map(Element::to_vec).as_ref(), model.get(index));
    let forward = view.walk(index, count, End::Head);
    assert_eq!(forward.len(), count.min(model.len().saturating_sub(index)));
    assert!(forward.map(Element::to_vec).eq(model.iter().skip(index).take(count).cloned()));
    if index < model.len() {
        let backward = view.walk(index, count, End::Tail).map(Element::to_vec);
        assert!(backward.eq(model.iter().take(index + 1).rev().take(count).cloned()));
    }
}

fn push(list: &mut List, model: &mut Model, fill: Fill, prng: &mut Prng) {
    let end = prng.pick(&[End::Head, End::Tail]);
    let new: Vec<_> = (0..1 + prng.below(6)).map(|_| text(prng)).collect();
    list.grow(fill, new.iter().map(Vec::len).sum(), new.len());
    for text in new {
        list.push(&text, end);
        match end {
            End::Head => model.push_front(text),
            End::Tail => model.push_back(text),
        }
    }
}

fn pop(list: &mut List, model: &mut Model, end: End, prng: &mut Prng) {
    let count = prng.below(4);
    list.pop(count, end);
    for _ in 0..count {
        match end {
            End::Head => model.pop_front(),
            End::Tail => model.pop_back(),
        };
    }
}

fn remove_matches(list: &mut List, model: &mut Model, prng: &mut Prng) {
    let (wanted, limit, from) = (text(prng), 1 + prng.below(20), prng.pick(&[End::Head, End::Tail]));
    let mut found: Vec<_> = (0..model.len()).filter(|&index| model[index] == wanted).collect();
    match from {
        End::Head => found.truncate(limit),
        End::Tail => found = found.split_off(found.len().saturating_sub(limit)),
    }
    assert_eq!(list.remove_matches(&wanted, limit, from), found.len());
    for index in found.into_iter().rev() {
        model.remove(index);
    }
}

fn edit(list: &mut List, model: &mut Model, fill: Fill, prng: &mut Prng) {
    let (index, new) = (prng.below(model.len() + 1), text(prng));
    match prng.below(12) {
        0..5 => push(list, model, fill, prng),
        5 => {
            let end = prng.pick(&[End::Head, End::Tail]);
            pop(list, model, end, prng);
        }
        6 | 7 => {
            list.grow(fill, new.len(), 1);
            assert_eq!(list.set(index, &new), index < model.len());
            if let Some(place) = model.get_mut(index) {
                *place = new;
            }
        }
        8 | 9 => {
            let pivot = model.get(index).cloned().unwrap_or_else(|| text(prng));
            let side = prng.pick(&[Side::Before, Side::After]);
            list.grow(fill, new.len(), 1);
            let found = model.iter().position(|text| *text == pivot);
            assert_eq!(list.insert(&pivot, side, &new), found.is_some());
            if let Some(found) = found {
                model.insert(found + usize::from(side == Side::After), new);
            }
        }
        10 => remove_matches(list, model, prng),
        _ if prng.below(3) == 0 => {
            let count = prng.below(model.len() + 2);
            list.remove_range(index, count);
            model.drain(index..model.len().min(index + count));
        }
        _ => list.settle(fill, prng.pick(&[Room::Whole, Room::Half])),
    }
    if prng.below(2) == 0 {
        list.shrink(fill);
    }
}

#[test]
fn lists_agree_with_a_deque_after_every_edit() {
    fuzz(60, |prng| {
        let sizes = [Fill::bytes(4096), Fill::bytes(8192), Fill::bytes(65_536)];
        let counts = [Fill::count(1), Fill::count(2), Fill::count(7)];
        let fills = [&sizes[..], &counts].concat();
        let fill = prng.pick(&fills);
        let (mut list, mut model) = (List::new(), Model::new());
        for _ in 0..prng.below(200) {
            edit(&mut list, &mut model, fill, prng);
            assert_same(&list, &model, prng);
        }
    });
}

/// Long runs at the ends, as of queues and stacks: nodes fill, empty and take turns, while edits in the middle
/// come seldom. Mostly shrinking phases take the lists apart again.
#[test]
fn lists_agree_with_a_deque_through_growing_and_shrinking_at_the_ends() {
    fuzz(12, |prng| {
        let fills =
            [Fill::bytes(4096), Fill::bytes(8192), Fill::bytes(65_536), Fill::count(3), Fill::count(200)];
        let fill = prng.pick(&fills);
        let (mut list, mut model) = (List::new(), Model::new());
        for phase in 0..8 {
            let (ends, length) = (1 + prng.below(3), prng.below(90));
            for _ in 0..300 {
                let end = match ends {
                    1 => End::Head,
                    2 => End::Tail,
                    _ => prng.pick(&[End::Head, End::Tail]),
                };
                if prng.below(60) == 0 {
                    edit(&mut list, &mut model, fill, prng);
                } else if prng.below(4) == phase % 2 * 2 {
                    pop(&mut list, &mut model, end, prng);
                } else if phase % 2 == 0 {
                    let text = prng.bytes_of(b"abc", 0..=length);
                    list.grow(fill, text.len(), 1);
                    list.push(&text, end);
                    match end {
                        End::Head => model.push_front(text),
                        End::Tail => model.push_back(text),
                    }
                } else {
                    pop(&mut list, &mut model, end, prng);
                    list.shrink(fill);
                }
            }
            assert_same(&list, &model, prng);
            if !model.is_empty() {
                let image = dump(CollectionRef::List(list.as_ref()));
                assert!(restore(&image, &Thresholds::default()).is_ok(), "every node is a sound listpack");
            }
        }
    });
}
